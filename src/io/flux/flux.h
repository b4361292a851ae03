/* Flux's models in BSON files, both ways: what formats.c dispatches to. */
#ifndef WB__FLUX_H
#define WB__FLUX_H

#include "base/map.h"
#include "io/table.h"

/* ---- reading: read.c, table.c, params.c, outline.c ----------------------- */

/* The layers, ready to run (wb_load). */
wb_layer *wb__flux_load(const wb__mapping *m, const wb_load_options *o);

/* All arrays of one variable by Weber's paths; a list of parameters is nameless.  `key` NULL: "model", or the only
 * variable that holds any.  Values stay in the mapping, which must outlive the table; `out->mapping` is left alone.
 * On failure nothing is held. */
int wb__flux_table(const wb__mapping *m, const char *key, wb__table *out);

/* A nameless table gets the names of the model's parameters, in the order in which Flux.params lists them, and their
 * layout: then it is a table like any other.  `path`: the file's, for messages. */
int wb__flux_name_params(wb__table *t, const char *path, void *model);

/* The file for people: each variable, layer, array, number and unknown part, parents first.  A nonzero return of
 * `row` ends it and is returned. */
typedef struct {
    int depth;                          /* variables: 0 */
    const char *path;                   /* "model.layers.0.weight" */
    const char *name;                   /* its last part: "weight" */
    const char *type;                   /* "Chain", "Array{Float32,2}", "closure #3#4", "Main.Controller", "Float64" */
    const char *value;                  /* of numbers, strings, functions: "0.9874", "relu"; else NULL */
    enum { WB__FLUX_VALUE, WB__FLUX_ARRAY, WB__FLUX_LAYER, WB__FLUX_LIST, WB__FLUX_UNKNOWN } kind;
    int fields;                         /* of layers, lists and unknown parts */
    wb_dtype dtype;                     /* of arrays; 0: one that Weber has not */
    int ndim;
    int64_t dims[WB_MAX_DIMS];          /* row-major: the reverse of Julia's */
    int64_t bytes;                      /* of an array's values, or of all in a layer, list or part */
} wb__flux_row;
int wb__flux_outline(const wb__mapping *m, int (*row)(const wb__flux_row *, void *ctx), void *ctx);

/* ---- writing: save.c, save_layers.c ----------------------------------------------------- */

/* The whole of wb_save for .bson: a state document, or with .structs the layers themselves. */
int wb__flux_save(const char *path, void *model, const wb_save_options *o);

#endif
