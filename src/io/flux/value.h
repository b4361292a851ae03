/* Julia's values as BSON.jl lowers them: structs, tuples, arrays, functions, shared objects. Looked
 * at in place, as everything of bson.h; what reads layers out of them is read.c, tables
 * table.c. */
#ifndef WB__FLUX_VALUE_H
#define WB__FLUX_VALUE_H

#include "io/bson/bson.h"
#include "io/flux/fields.h"

enum { WB__JL_NAME = 128, WB__JL_DEEPEST = 100 };

typedef enum {
    WB__JL_ABSENT,
    WB__JL_NOTHING,
    WB__JL_BOOL,
    WB__JL_NUMBER,
    WB__JL_STRING,
    WB__JL_SYMBOL,
    WB__JL_ARRAY,
    WB__JL_LIST,                /* a vector of anything */
    WB__JL_TUPLE,
    WB__JL_DICT,
    WB__JL_STRUCT,              /* NamedTuples too */
    WB__JL_FUNCTION,            /* with a name */
    WB__JL_CLOSURE,             /* without */
    WB__JL_GPU,                 /* an array that was in a GPU's memory: a pointer, no values */
    WB__JL_OTHER                /* types, modules */
} wb__jl_kind;

typedef struct {
    wb__jl_kind kind;
    bool shared;                /* reached by a reference */
    bool whole;                 /* a number: an integer */
    const void *at;             /* where it lies: the same for all references to one object */
    wb__bson items;             /* fields, elements, text, or an array's bytes */
    wb__bson type;              /* of a struct, of an array's elements */
    wb__bson size;              /* of an array */
    double real;
    int64_t integer;            /* bools too */
    char name[WB__JL_NAME]; /* of a struct's type "Flux.Dense", of a function "NNlib.relu", without
                               Main where a package follows it */
} wb__jl;

/* References followed; TrackedArray taken off. */
wb__jl wb__jl_of(wb__bson_file *f, wb__bson v);
const char *wb__jl_last(const wb__jl *v);                   /* "Dense" */
bool wb__jl_flux(const wb__jl *v, const char *type);        /* is it Flux's struct of that name? */
bool wb__jl_named_tuple(const wb__jl *v);

bool wb__jl_holds(const wb__jl *v);                         /* may there be arrays in it? */

/* Fields in order, with Flux's names where the type and their number are known, a NamedTuple's or a
 * dictionary's, else their positions.  Of lists and tuples, elements. */
typedef struct {
    char name[WB__JL_NAME];
    wb__jl value;
    int i;
    wb__bson_walk items, names;
    const wb__flux_struct *layout;
    bool keyed, named;
} wb__jl_fields;
void wb__jl_fields_of(wb__bson_file *f, const wb__jl *v, wb__jl_fields *out);
bool wb__jl_fields_next(wb__bson_file *f, wb__jl_fields *w);
int wb__jl_count(wb__bson_file *f, const wb__jl *v);
wb__jl wb__jl_field(wb__bson_file *f, const wb__jl *v, const char *name);
wb__jl wb__jl_item(wb__bson_file *f, const wb__jl *v, int i);

/* An array's values where they lie.  Checked: so many bytes as its sizes and type say. */
typedef struct {
    wb_dtype dtype;             /* 0: one that Weber has not, or more than WB_MAX_DIMS dimensions */
    char type[16];
    int ndim;
    int64_t dims[WB_MAX_DIMS];  /* the reverse of Julia's */
    const uint8_t *data;
    int64_t count, bytes;
    bool transposed; /* a lazy transpose: the values lie in the order of dims[1], dims[0] */
    const void *at;
    bool shared;
} wb__jl_array;
bool wb__jl_array_of(wb__bson_file *f, const wb__jl *v, wb__jl_array *out);
/* A matrix of (out, in) in Julia becomes [out, in]; other arrays stay as they are. */
void wb__jl_turn(wb__jl_array *a);
bool wb__jl_zero(const wb__jl_array *a);
/* The values row-major in a dtype: where they lie, or in `*made`, for wb__free; NULL without
 * memory. */
const void *wb__jl_values(const wb__jl_array *a, wb_dtype dtype, void **made);

/* Up to `most` integers of a tuple, an array or one alone: how many, or -1. */
int wb__jl_integers(wb__bson_file *f, const wb__jl *v, int most, int64_t *out);

/* For people: "Chain", "Array{Float32,2}", "closure #3#4", "function NNlib.relu",
 * "Main.Controller". */
void wb__jl_type_text(wb__bson_file *f, const wb__jl *v, char *out, size_t size);

int wb__jl_gpu_fail(wb__bson_file *f, const wb__jl *v, const char *path);

bool wb__jl_layer(const wb__jl *v);                         /* one of Flux's structs */

/* What is meant: `key`, a variable, or with dots a part of one; else "model", else the only one (that holds anything but
 * numbers and text), else the only layer.  Without a key, of a dictionary in which one layer is, or "model": that. */
wb__jl wb__jl_variable(wb__bson_file *f, const char *key, char *name, size_t size);

#endif
