/* Julia's values as BSON.jl writes them: structs, tuples, arrays, functions, shared objects.  They
 * are read in place, as in bson.h.  read.c makes layers from them, and table.c makes tables. */
#ifndef WB__FLUX_VALUE_H
#define WB__FLUX_VALUE_H

#include "io/bson/bson.h"
#include "io/flux/fields.h"
#include "io/table.h"

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
    /* the type of a struct, "Flux.Dense", or the name of a function, "NNlib.relu"; "Main" in front
     * of a package is left out */
    char name[WB__JL_NAME];
} wb__jl;

/* Returns a value of the file.  Follows references, and reads a TrackedArray as the array in it. */
wb__jl wb__jl_of(wb__bson_file *f, wb__bson v);
const char *wb__jl_last(const wb__jl *v);                   /* last part of the name: "Dense" */
bool wb__jl_flux(const wb__jl *v, const char *type);        /* whether v is this struct of Flux */
bool wb__jl_named_tuple(const wb__jl *v);
bool wb__jl_is_dict_struct(const wb__jl *v);                /* a Dict that is stored as a struct */

/* Whether values of v's kind may contain arrays. */
bool wb__jl_may_hold_arrays(const wb__jl *v);

/* An iterator over the fields of a struct, or the elements of a list, tuple or dictionary.  `name`
 * is Flux's name of the field if the type and its number of fields are known, or the name in a
 * NamedTuple or dictionary.  Otherwise `name` is the index. */
typedef struct {
    char name[WB__JL_NAME];
    wb__jl value;
    int i;                      /* index of the field */
    wb__bson_walk items, names;
    const wb__flux_struct *layout;
    bool keyed, named;          /* a dictionary; a NamedTuple */
} wb__jl_fields;
void wb__jl_key_text(const wb__bson_walk *w, char *out, size_t size);   /* the key of an element */
void wb__jl_fields_of(wb__bson_file *f, const wb__jl *v, wb__jl_fields *out);
bool wb__jl_fields_next(wb__bson_file *f, wb__jl_fields *w);
int wb__jl_count(wb__bson_file *f, const wb__jl *v);
wb__jl wb__jl_field(wb__bson_file *f, const wb__jl *v, const char *name);
wb__jl wb__jl_item(wb__bson_file *f, const wb__jl *v, int i);

/* An array whose values are in the file.  If its element type is known, `bytes` is `count` times
 * the size of an element. */
typedef struct {
    wb_dtype dtype;             /* 0: a dtype that Weber lacks, or too many dimensions */
    char type[16];              /* the short name of the element type */
    wb__narrow_int narrow;      /* integers that tables widen; then dtype is 0 */
    int axes;                   /* number of axes, if it is above WB_MAX_DIMS; ndim is 0 then */
    int ndim;
    int64_t dims[WB_MAX_DIMS];  /* Julia's dimensions in reverse order */
    const uint8_t *data;
    int64_t count, bytes;       /* number of elements; size of the values */
    bool transposed;            /* the values are column-major, in 2 or 3 dimensions */
    const void *at;             /* address in the file, as in wb__jl */
    bool shared;
} wb__jl_array;
/* Sets *out to the array of v.  False: v is no array that is stored as bytes, or f->status is
 * set. */
bool wb__jl_array_of(wb__bson_file *f, const wb__jl *v, wb__jl_array *out);
/* Reverses the 2 or 3 dimensions of an array without moving its values, for arrays that are
 * (out, in) in Julia and [out, in] in Weber.  Other arrays stay unchanged. */
void wb__jl_transpose(wb__jl_array *a);
/* Whether all bytes are zero. */
bool wb__jl_zero(const wb__jl_array *a);
/* Returns the values, row-major and converted to a dtype.  They are in the file or in a copy. *made
 * is that copy, which the caller frees; without a copy it is NULL.  The result is NULL if memory is
 * short. */
const void *wb__jl_values(const wb__jl_array *a, wb_dtype dtype, void **made);

/* Sets `out` to the integers of a tuple, a list, an array or a number.  Returns their number; -1 if
 * there are more than `most`, or other values. */
int wb__jl_integers(wb__bson_file *f, const wb__jl *v, int most, int64_t *out);

/* Sets `out` to the type of v for messages, such as "Chain", "Array{Float32,2}", "closure #3#4",
 * "function NNlib.relu" or "Main.Controller". */
void wb__jl_type_text(wb__bson_file *f, const wb__jl *v, char *out, size_t size);

/* Sets the error for an array in GPU memory, and returns the error code. */
int wb__jl_gpu_fail(wb__bson_file *f, const wb__jl *v, const char *path);

/* Whether v is a struct of Flux that has fields in its newest version, according to fields.c. */
bool wb__jl_layer(const wb__jl *v);

/* Returns a variable of the file.  `key` is the name of a variable, or, with dots, the path of a
 * part of a variable.  If `key` is NULL, chooses the variable "model", else the only layer, else
 * the only variable that may hold arrays or is a function.  If that variable is a dictionary with a
 * layer "model" or with only one layer, returns this layer.  Writes the name or path to `name`.  If
 * nothing is found, sets the error and returns a value of kind WB__JL_ABSENT. */
wb__jl wb__jl_variable(wb__bson_file *f, const char *key, char *name, size_t size);
/* Whether several variables hold arrays or layers, and none of them is preferred without a key. */
bool wb__jl_is_unclear(wb__bson_file *f);
/* Sets *v to the next variable of the file, and `name` to its name.  `w` starts as wb__bson_walk_of
 * (f->root).  False: there is no further one, or f->status is set. */
bool wb__jl_next_variable(wb__bson_file *f, wb__bson_walk *w, wb__jl *v, char *name, size_t size);

#endif
