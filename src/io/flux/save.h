/* Declarations for saving models to Flux's BSON files, shared by save.c (the document) and
 * save_layers.c (each kind of layer). */
#ifndef WB__FLUX_SAVE_H
#define WB__FLUX_SAVE_H

#include "io/flux/fields.h"
#include "io/bson/julia.h"
#include "nn/layer.h"

/* A file of Flux while it is written. */
typedef struct {
    wb__doc_arena arena;
    bool structs;               /* layers are written as structs, not as Flux.state returns them */
    int version;                /* minor*100 + patch of Flux 0.minor.patch */
    const char *version_text;
    int depth;
    wb__text path;              /* path of the part that is being written */
    wb__text wrong;             /* parts that cannot be written, one line for each */
    int n_wrong;
    wb__pointer_map uses;  /* for each tensor: not NULL if it occurs several times */
    wb__pointer_map references[WB__DOC_ORDERS];     /* for each tensor: 1 + its index in `shared` */
    wb__doc *shared;                            /* the values of "_backrefs" */
} wb__flux_saver;

/* Records that the current part cannot be written.  Returns `nothing` as a placeholder. */
wb__julia wb__flux_refuse(wb__flux_saver *s, const char *format, ...) WB__PRINTF(2, 3);

/* wb__flux_tensor returns a tensor of the document, wb__flux_value any child.  `name` is the name
 * of the child, for messages. */
wb__julia wb__flux_tensor(wb__flux_saver *s, const char *name, wb_tensor *x, wb__doc_order order);
wb__julia wb__flux_value(wb__flux_saver *s, const char *name, void *object);
/* Returns children as a tuple if their names are "0", "1", ..., else as a named tuple. */
wb__julia wb__flux_children(wb__flux_saver *s, int n, const wb__child *children);
/* Whether the names are "0", "1", ... */
bool wb__flux_numbered(int n, const wb__child *children);
/* Returns a layer as a struct, or, if s->structs is false, as Flux.state returns it. */
wb__julia wb__flux_save_layer(wb__flux_saver *s, wb_layer *l);

#endif
