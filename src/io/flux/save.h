/* A model as Flux's: what save.c (the document) and save_layers.c (each kind of layer) share. */
#ifndef WB__FLUX_SAVE_H
#define WB__FLUX_SAVE_H

#include "io/flux/fields.h"
#include "io/bson/julia.h"
#include "nn/layer.h"

typedef struct {
    wb__doc_room room;
    bool structs;               /* the layers themselves, or what Flux.state makes of them */
    int version;                /* minor*100 + patch of Flux 0.minor.patch */
    const char *version_text;
    int depth;
    wb__text path;              /* of the part under work */
    wb__text wrong;             /* what cannot be written, a line each */
    int n_wrong;
    wb__pointer_map uses;              /* of a tensor: non-NULL in several places */
    wb__pointer_map references[WB__ORDERS];    /* of such a tensor in that order: its place among the references + 1 */
    wb__doc *shared;           /* those references */
} wb__flux_saver;

/* Takes note of what cannot be written, with its path; gives nothing in its place. */
wb__julia wb__flux_refuse(wb__flux_saver *s, const char *format, ...) WB__PRINTF(2, 3);

/* A part by that name: a tensor; a branch: a layer, a tuple, or a named tuple. */
wb__julia wb__flux_tensor(wb__flux_saver *s, const char *name, wb_tensor *x, wb__order order);
wb__julia wb__flux_value(wb__flux_saver *s, const char *name, void *object);
/* The parts of a container or the children of a tree, as a tuple or a named one. */
wb__julia wb__flux_parts(wb__flux_saver *s, int n, const wb__child *parts);
bool wb__flux_numbered(int n, const wb__child *parts);      /* "0", "1", ...: no names */
/* save_layers.c's */
wb__julia wb__flux_save_layer(wb__flux_saver *s, wb_layer *l);

#endif
