/* Reads and writes Flux's models in BSON files. */
#ifndef WB__FLUX_H
#define WB__FLUX_H

#include "base/map.h"
#include "io/table.h"

/* ---- reading: read.c, table.c, params.c, outline.c ----------------------- */

/* Loads a model from a BSON file, for wb_load.  NULL with the error set. */
wb_layer *wb__flux_load(const wb__mapping *m, const wb_load_options *o);

/* Sets *out to the table of all arrays of one variable, with Weber's paths as names.  A list of
 * parameters gives a table that is `nameless`.  `key` chooses the variable as in wb__jl_variable
 * (value.h), or is wb__all_variables (table.h).  Values stay in the mapping, which must outlive the
 * table; out->mapping is not set.  Returns 0 or an error code; on failure *out is empty. */
int wb__flux_table(const wb__mapping *m, const char *key, wb__table *out);

/* Sets Weber's names and shapes in a nameless table, whose entries are a model's parameters in the
 * order of Flux.params.  Leaves a table with names unchanged.  `path` is the file, for messages.
 * Returns 0 or an error code. */
int wb__flux_name_params(wb__table *t, const char *path, void *model);

/* A row of the outline: a variable of a file, or a part of a variable. */
typedef struct {
    int depth;                          /* 0 for variables */
    const char *path;                   /* "model.layers.0.weight" */
    const char *name;                   /* last part of the path: "weight" */
    const char *type;                   /* "Chain", "Array{Float32,2}", "closure #3#4" */
    /* the text of a number, bool, string or symbol; the activation of a layer, "relu"; else NULL */
    const char *value;
    enum { WB__FLUX_VALUE, WB__FLUX_ARRAY, WB__FLUX_LAYER, WB__FLUX_LIST, WB__FLUX_UNKNOWN } kind;
    int fields;                         /* number of fields of a layer, list or unknown part */
    wb_dtype dtype;                     /* dtype of an array; 0: a dtype that Weber lacks */
    int ndim;
    int64_t dims[WB_MAX_DIMS];          /* row-major: Julia's dimensions in reverse order */
    int64_t bytes;  /* bytes of the values of an array, or of all arrays inside */
} wb__flux_row;
/* Calls `row` for each variable of a file and for the parts of the variables.  A part comes after
 * the part that contains it.  Options of layers, and numbers and strings in lists, are left out.
 * Stops if `row` returns a nonzero value, and returns that value.  Returns an error code on
 * failure, else 0. */
int wb__flux_outline(const wb__mapping *m, int (*row)(const wb__flux_row *, void *ctx), void *ctx);

/* ---- writing: save.c, save_layers.c ----------------------------------------------------- */

/* Saves a model in a .bson file, for wb_save.  Writes the model's arrays as Flux.state returns
 * them, and the model's structure as text.  With .structs, writes Flux's structs instead.  Returns
 * 0 or an error code. */
int wb__flux_save(const char *path, void *model, const wb_save_options *o);

#endif
