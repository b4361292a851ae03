/* Shared declarations for reading Flux's layers: read.c (containers, unknown parts, files),
 * read_layers.c (each kind of layer), functions.c (activations, connections). */
#ifndef WB__FLUX_READ_H
#define WB__FLUX_READ_H

#include "base/text.h"
#include "io/flux/value.h"
#include "nn/layer.h"

/* A file of Flux while it is read. */
typedef struct {
    wb__bson_file f;                    /* the BSON document */
    const wb_load_options *o;           /* the options of wb_load */
    /* maps from the address of a shared object in the file to its layer or tensor */
    wb__pointer_map layers, arrays;
    const char *variable;       /* the variable with the model: "model" */
    char path[2048];            /* the path of the part that is being read */
    size_t path_length;
    int depth;
    /* number of channels of the images that the last layer returned, or 1 if the number is unknown;
     * 0: the layer returned no images */
    int64_t channels;
    const char *reason;         /* why the current struct cannot be read; NULL: none */
    char reason_text[256];
    wb__text unknown;           /* one line for each unknown part */
    int n_unknown;
} wb__flux_reader;

/* Appends the name of a part to r->path; wb__flux_leave(r, *back) removes it.  False, with the
 * error set: the part is nested too deep, or the path is too long. */
bool wb__flux_enter(wb__flux_reader *r, const char *name, size_t *back);
void wb__flux_leave(wb__flux_reader *r, size_t back);

/* Returns a value as a layer; NULL with the error set.  wb__flux_unknown returns the layer that
 * .substitute gives for an unknown part.  Without such a layer it returns a placeholder and records
 * the part, so that loading fails at the end. */
wb_layer *wb__flux_layer(wb__flux_reader *r, const wb__jl *v);
wb_layer *wb__flux_unknown(wb__flux_reader *r, const wb__jl *v);

/* Whether v is a struct of Flux whose field `layers` is a list of layers. */
bool wb__flux_contains(const wb__jl *v);
/* Returns a layer that contains no other layers.  NULL with r->f.status set: failed.  NULL with
 * r->f.status 0: Weber has no such layer, and r->reason may give the reason. */
wb_layer *wb__flux_plain(wb__flux_reader *r, const wb__jl *v);
/* Sets *out to the weights of a GRUv3 as one array, [3 out, out]: `gates`, (2 out, out) or (3 out,
 * out) in Julia, of which the first 2 out rows count, above `last`, (out, out); both are [rows,
 * out] here.  The values are the block *made, which the caller frees.  False with r->reason or
 * r->f.status set, and *made NULL: failed. */
bool wb__flux_join_gates(wb__flux_reader *r, const wb__jl_array *gates, const wb__jl_array *last,
                         wb__jl_array *out, void **made);
/* Whether Weber has a layer for the type of this struct.  Weber's layer may lack options of the
 * type. */
bool wb__flux_known(const wb__jl *v);
/* Sets r->reason to the text.  Returns NULL. */
void *wb__flux_reason(wb__flux_reader *r, const char *format, ...) WB__PRINTF(2, 3);

/* wb__flux_function and wb__flux_connection return Weber's function or connection for the function
 * v of Julia.  NULL: Weber has none, or r->f.status is set. */
wb_function wb__flux_function(const wb__jl *v);
wb__connection wb__flux_connection(wb__flux_reader *r, const wb__jl *v);
/* Returns the function that v broadcasts over arrays, or v if it broadcasts none. */
wb__jl wb__flux_unbroadcast(wb__flux_reader *r, const wb__jl *v);
/* Sets *out to the activation in a field; NULL for identity, `nothing` and a missing field.
 * .substitute gets an unknown function.  False: failed; r->reason or r->f.status is set. */
bool wb__flux_activation(wb__flux_reader *r, const wb__jl *v, const char *field, wb_function *out);

#endif
