/* Reads and writes Flux's models in BSON files. */
#ifndef WB__FLUX_H
#define WB__FLUX_H

#include "base/map.h"
#include "io/table.h"

/* ---- reading: read.c, table.c, params.c, outline.c ----------------------- */

/* Loads a model from a BSON file, for wb_load. NULL with the error set. */
wb_layer *wb__flux_load(const wb__mapping *m, const wb_load_options *o);

/* Makes the table of all arrays of one variable, with Weber's paths as names. A list of parameters
 * gives a table that is `nameless`. `key` chooses the variable as in wb__jl_variable (value.h).
 * Values stay in the mapping, which must outlive the table; out->mapping is not set. Returns 0 or
 * an error code; on failure *out is empty. */
int wb__flux_table(const wb__mapping *m, const char *key, wb__table *out);

/* Gives the entries of a nameless table the names and layouts of the model's parameters, which are
 * in the order of Flux.params. Leaves other tables unchanged. `path` is the file, for messages.
 * Returns 0 or an error code. */
int wb__flux_name_params(wb__table *t, const char *path, void *model);

/* Calls `row` for each variable of a file and for its parts. A part comes after the part around it.
 * Options of layers, and numbers and strings in lists, are left out. Stops at a nonzero result of
 * `row` and returns it. Returns an error code on failure, else 0. */
typedef struct {
    int depth;                          /* variables: 0 */
    const char *path;                   /* "model.layers.0.weight" */
    const char *name;                   /* last part of the path: "weight" */
    const char *type;                   /* "Chain", "Array{Float32,2}", "closure #3#4" */
    /* a number or string as text; the activation of a layer, such as "relu"; else NULL */
    const char *value;
    enum { WB__FLUX_VALUE, WB__FLUX_ARRAY, WB__FLUX_LAYER, WB__FLUX_LIST, WB__FLUX_UNKNOWN } kind;
    int fields;                         /* number of fields of a layer, list or unknown part */
    wb_dtype dtype;                     /* of arrays; 0: a dtype that Weber lacks */
    int ndim;
    int64_t dims[WB_MAX_DIMS];          /* row-major: Julia's, reversed */
    int64_t bytes;                      /* of the values; for a list or layer, of all its arrays */
} wb__flux_row;
int wb__flux_outline(const wb__mapping *m, int (*row)(const wb__flux_row *, void *ctx), void *ctx);

/* ---- writing: save.c, save_layers.c ----------------------------------------------------- */

/* Implements wb_save for .bson files. Writes a state document, or with .structs the layers as
 * structs. Returns 0 or an error code. */
int wb__flux_save(const char *path, void *model, const wb_save_options *o);

#endif
