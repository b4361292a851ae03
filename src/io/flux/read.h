/* Shared declarations for reading Flux's layers: read.c (containers, unknown parts, files),
 * read_layers.c (each kind of layer), functions.c (activations, connections). */
#ifndef WB__FLUX_READ_H
#define WB__FLUX_READ_H

#include "base/text.h"
#include "io/flux/value.h"
#include "nn/layer.h"

typedef struct {
    wb__bson_file f;
    const wb_load_options *o;
    /* Objects that several references share: address in the file -> layer or tensor. */
    wb__pointer_map layers, arrays;
    const char *variable;       /* the variable with the model: "model" */
    char path[2048];            /* of the part being read */
    size_t path_length;
    int depth;
    int64_t channels;           /* of the images that the last layer returns, 1 if
                                 * unknown; 0: no images */
    const char *reason;         /* why the current struct cannot be read; NULL: none */
    char reason_text[256];
    wb__text unknown;           /* one line for each unknown part */
    int n_unknown;
} wb__flux_reader;

/* Enters the part with this name; wb__flux_leave(r, *back) leaves it. False, with the error set:
 * the part is nested too deep, or the path is too long. */
bool wb__flux_enter(wb__flux_reader *r, const char *name, size_t *back);
void wb__flux_leave(wb__flux_reader *r, size_t back);

/* Reads a value as a layer; NULL with the error set. For an unknown part wb__flux_unknown returns
 * the layer from .substitute; without one it records the part and returns a placeholder, and
 * loading fails at the end. */
wb_layer *wb__flux_layer(wb__flux_reader *r, const wb__jl *v);
wb_layer *wb__flux_unknown(wb__flux_reader *r, const wb__jl *v);

/* Reads a layer that contains no other layers. NULL with `reason` set: Weber has no such layer;
 * NULL with the file's status set: failed. */
wb_layer *wb__flux_plain(wb__flux_reader *r, const wb__jl *v);
/* Whether Weber has a layer for this struct, perhaps not with all options. */
bool wb__flux_known(const wb__jl *v);
/* Sets `reason`; returns NULL. */
void *wb__flux_reason(wb__flux_reader *r, const char *format, ...) WB__PRINTF(2, 3);

/* Return Weber's function or connection for a function of Julia. NULL: v is none that Weber has, or
 * f.status is set. */
wb_function wb__flux_function(const wb__jl *v);
wb__connection wb__flux_connection(wb__flux_reader *r, const wb__jl *v);
/* The function inside a broadcast; any other value is returned unchanged. */
wb__jl wb__flux_unbroadcast(wb__flux_reader *r, const wb__jl *v);
/* Reads an activation from a field into *out; identity, nothing or no field become NULL. For an
 * unknown one .substitute is asked. False: failed, with a reason or the file's status set. */
bool wb__flux_activation(wb__flux_reader *r, const wb__jl *v, const char *field, wb_function *out);

#endif
