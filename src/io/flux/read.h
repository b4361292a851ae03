/* Layers out of Flux's structs: what is shared by read.c (containers, unknown parts, files)
 * read_layers.c (each kind of layer) and functions.c (activations, connections). */
#ifndef WB__FLUX_READ_H
#define WB__FLUX_READ_H

#include "base/text.h"
#include "io/flux/value.h"
#include "nn/layer.h"

typedef struct {
    wb__bson_file f;
    const wb_load_options *o;
    wb__pointer_map layers,
        arrays; /* objects that references share, by where they lie: what was made of them */
    const char *variable;       /* what holds the model: "model" */
    char path[2048];            /* of the part being read */
    size_t path_length;
    int depth;
    int64_t channels; /* of the images that come out of the layers read so far; 0: no images */
    const char *why;            /* what is wrong with the struct at hand */
    char why_room[256];
    wb__text unknown;           /* one line each */
    int n_unknown;
} wb__flux_reader;

/* The part of that name inside the present one; what it returns goes to wb__flux_leave.  False,
 * with the error set, where parts stand in one another too deep. */
bool wb__flux_enter(wb__flux_reader *r, const char *name, size_t *back);
void wb__flux_leave(wb__flux_reader *r, size_t back);

/* The value as a layer; NULL with the error set.  An unknown part gives what .substitute says, or
 * is noted and stands in as something that is never used. */
wb_layer *wb__flux_layer(wb__flux_reader *r, const wb__jl *v);
wb_layer *wb__flux_unknown(wb__flux_reader *r, const wb__jl *v);

/* Any of Flux's layers without others inside.  NULL, and `why` says why, where it is nothing that
 * Weber has; NULL and the file's status set on failure. */
wb_layer *wb__flux_plain(wb__flux_reader *r, const wb__jl *v);
bool wb__flux_known(
    const wb__jl *v); /* a struct that Weber has a layer for, if its options allow */
/* A reason, and NULL. */
void *wb__flux_why(wb__flux_reader *r, const char *format, ...) WB__PRINTF(2, 3);

/* Functions by Julia's names; NULL: Weber has none. */
wb_function wb__flux_function(const wb__jl *v);
wb__connection wb__flux_connection(wb__flux_reader *r, const wb__jl *v);
/* The function that a broadcast of it is, or v itself. */
wb__jl wb__flux_unbroadcast(wb__flux_reader *r, const wb__jl *v);
/* Of a field: identity is NULL.  False: not known. */
bool wb__flux_activation(wb__flux_reader *r, const wb__jl *v, const char *field, wb_function *out);

#endif
