/* Makes Julia's values as BSON.jl writes them.  Each value comes with its type, because the type of
 * a struct or tuple includes the types of its fields.  Names of types are paths that are valid
 * after `using Flux`: "Flux.Dense", "Core.Float32", "Flux.NNlib.#relu" (the type of the function
 * relu). */
#ifndef WB__JULIA_H
#define WB__JULIA_H

#include "io/bson/bson_write.h"

typedef struct { wb__doc *type, *value; } wb__julia;

/* Returns a type with n parameters, which are types, integers, bools or tuples. */
wb__doc *wb__julia_type(wb__doc_arena *r, const char *path, int n, wb__doc *const *parameters);

wb__julia wb__julia_nothing(wb__doc_arena *r);
wb__julia wb__julia_bool(wb__doc_arena *r, bool value);
wb__julia wb__julia_int(wb__doc_arena *r, int64_t value);           /* Int64 */
wb__julia wb__julia_float32(wb__doc_arena *r, float value);
wb__julia wb__julia_float64(wb__doc_arena *r, double value);
wb__julia wb__julia_symbol(wb__doc_arena *r, const char *name);
wb__julia wb__julia_tuple(wb__doc_arena *r, int n, const wb__julia *values);
wb__julia wb__julia_ints(wb__doc_arena *r, int n, const int64_t *values);      /* a tuple */
wb__julia wb__julia_named_tuple(wb__doc_arena *r, int n, const char *const *names,
                                const wb__julia *values);

/* Returns the path of a dtype's type, such as "Core.Float32"; NULL: Julia lacks the dtype
 * (bf16). */
const char *wb__julia_dtype(wb_dtype dtype);
/* Returns the type Array{dtype,ndim}; NULL if Julia lacks the dtype, or if memory is short. */
wb__doc *wb__julia_array_type(wb__doc_arena *r, wb_dtype dtype, int ndim);
/* wb__julia_array returns an array of the elements of x in `order`.  Julia is column-major, so the
 * array has the dimensions of x in reverse order; with WB__DOC_COLUMNS, those of x.
 * wb__julia_column returns a vector as a matrix with one column. */
wb__julia wb__julia_array(wb__doc_arena *r, wb_tensor *x, wb__doc_order order);
wb__julia wb__julia_column(wb__doc_arena *r, wb_tensor *x);
wb__julia wb__julia_zeros(wb__doc_arena *r, wb_dtype dtype, int ndim, const int64_t *dims);
/* Returns a reference to entry i of "_backrefs", counted from 0. */
wb__doc *wb__julia_reference(wb__doc_arena *r, int64_t i);

/* wb__julia_struct returns a struct of a type from wb__julia_type.  wb__julia_singleton returns the
 * only value of a type without fields, such as a function. */
wb__julia wb__julia_struct(wb__doc_arena *r, wb__doc *type, int n, const wb__julia *fields);
wb__julia wb__julia_singleton(wb__doc_arena *r, const char *path);

#endif
