/* Julia's values as BSON.jl writes them: structs, tuples, arrays, functions, shared objects. They
 * are read in place, as in bson.h. read.c makes layers of them, table.c tables. */
#ifndef WB__FLUX_VALUE_H
#define WB__FLUX_VALUE_H

#include "io/bson/bson.h"
#include "io/flux/fields.h"

enum { WB__JL_NAME = 128, WB__JL_MAX_DEPTH = 100 };

typedef enum {
    WB__JL_ABSENT,
    WB__JL_NOTHING,
    WB__JL_BOOL,
    WB__JL_NUMBER,
    WB__JL_STRING,
    WB__JL_SYMBOL,
    WB__JL_ARRAY,
    WB__JL_LIST,                /* a vector of any values */
    WB__JL_TUPLE,
    WB__JL_DICT,
    WB__JL_STRUCT,              /* also a NamedTuple */
    WB__JL_FUNCTION,            /* a function with a name */
    WB__JL_CLOSURE,             /* a function without a name */
    WB__JL_GPU,                 /* an array in GPU memory: a pointer without values */
    WB__JL_OTHER                /* types, modules */
} wb__jl_kind;

typedef struct {
    wb__jl_kind kind;
    bool shared;                /* reached through a reference */
    bool whole;                 /* a number that is an integer */
    const void *at;             /* address in the file; equal for all references to one object */
    wb__bson items;             /* fields, elements, text, or an array's bytes */
    wb__bson type;              /* the type of a struct, or of an array's elements */
    wb__bson size;              /* the sizes of an array */
    double real;
    int64_t integer;            /* also bools */
    /* Of a struct its type, "Flux.Dense"; of a function "NNlib.relu". A first part "Main" is left
     * out if a package follows. */
    char name[WB__JL_NAME];
} wb__jl;

/* Reads a value; follows references and unwraps TrackedArray. */
wb__jl wb__jl_of(wb__bson_file *f, wb__bson v);
const char *wb__jl_last(const wb__jl *v);                   /* last part of the name: "Dense" */
bool wb__jl_flux(const wb__jl *v, const char *type);        /* is v this struct of Flux? */
bool wb__jl_named_tuple(const wb__jl *v);

/* Whether values of v's kind may contain arrays. */
bool wb__jl_may_hold_arrays(const wb__jl *v);

/* Visits the fields of a struct, or the elements of a list or tuple. Names are Flux's if the type
 * and its number of fields are known; the names of a NamedTuple or dictionary; else indices. */
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

/* An array in place. If its element type is known, its number of bytes matches its sizes. */
typedef struct {
    wb_dtype dtype;             /* 0: a dtype that Weber lacks, or too many dimensions */
    char type[16];
    int ndim;
    int64_t dims[WB_MAX_DIMS];  /* Julia's, reversed */
    const uint8_t *data;
    int64_t count, bytes;
    bool transposed; /* the values are a matrix [dims[1], dims[0]] in the file */
    const void *at;
    bool shared;
} wb__jl_array;
/* Makes *out the array of v. False: v is no array of plain elements, or f->status is set. */
bool wb__jl_array_of(wb__bson_file *f, const wb__jl *v, wb__jl_array *out);
/* Makes a matrix that is (out, in) in Julia, and so [in, out] here, [out, in] without moving
 * values; other arrays are unchanged. */
void wb__jl_transpose(wb__jl_array *a);
/* Whether all bytes are zero. */
bool wb__jl_zero(const wb__jl_array *a);
/* The values row-major in a dtype: in the file if possible, else in *made, which the caller frees.
 * NULL: out of memory. */
const void *wb__jl_values(const wb__jl_array *a, wb_dtype dtype, void **made);

/* Reads integers from a tuple, a list, an array or a number. Returns how many; -1: there are more
 * than `most`, or other values. */
int wb__jl_integers(wb__bson_file *f, const wb__jl *v, int most, int64_t *out);

/* Writes the type of v, for messages: "Chain", "Array{Float32,2}", "closure #3#4", "function
 * NNlib.relu", "Main.Controller". */
void wb__jl_type_text(wb__bson_file *f, const wb__jl *v, char *out, size_t size);

/* Sets the error for an array in GPU memory, and returns its code. */
int wb__jl_gpu_fail(wb__bson_file *f, const wb__jl *v, const char *path);

/* Whether v is a struct of Flux that fields.c lists with fields. */
bool wb__jl_layer(const wb__jl *v);

/* Finds the variable `key`, or with dots a part of a variable. Without a key: "model"; else the
 * only variable that may hold arrays or is a function; else the only layer. If the variable found
 * without a key is a dictionary, its layer "model" or its only layer. Writes the name to `name`.
 * Absent, with the error set: none found. */
wb__jl wb__jl_variable(wb__bson_file *f, const char *key, char *name, size_t size);

#endif
