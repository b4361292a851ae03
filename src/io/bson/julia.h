/* Julia's values as BSON.jl writes them: each with its type, since a type's parameters are the exact types of its
 * fields.  Names of types are paths from what `using Flux` makes known: "Flux.Dense", "Core.Float32",
 * "Flux.NNlib.#relu" (the type of the function relu). */
#ifndef WB__JULIA_H
#define WB__JULIA_H

#include "io/bson/bson_write.h"

typedef struct { wb__doc *type, *value; } wb__julia;

/* A type with its parameters, which are types, integers or truths. */
wb__doc *wb__julia_type(wb__doc_room *r, const char *path, int n, wb__doc *const *parameters);

wb__julia wb__julia_nothing(wb__doc_room *r);
wb__julia wb__julia_bool(wb__doc_room *r, bool value);
wb__julia wb__julia_int(wb__doc_room *r, int64_t value);           /* Int64 */
wb__julia wb__julia_float32(wb__doc_room *r, float value);
wb__julia wb__julia_float64(wb__doc_room *r, double value);
wb__julia wb__julia_symbol(wb__doc_room *r, const char *name);
wb__julia wb__julia_tuple(wb__doc_room *r, int n, const wb__julia *values);
wb__julia wb__julia_ints(wb__doc_room *r, int n, const int64_t *values);      /* a tuple */
wb__julia wb__julia_named_tuple(wb__doc_room *r, int n, const char *const *names,
                                const wb__julia *values);

/* "Core.Float32"; NULL: Julia has no such, which is bf16's case. */
const char *wb__julia_dtype(wb_dtype dtype);
/* NULL for such a dtype. */
wb__doc *wb__julia_array_type(wb__doc_room *r, wb_dtype dtype, int ndim);
/* The dimensions are reversed, whose bytes Julia's order leaves as they are; in WB__COLUMNS they are not, so that a
 * matrix stays what it is.  A column: a vector as a matrix of one. */
wb__julia wb__julia_array(wb__doc_room *r, wb_tensor *x, wb__order order);
wb__julia wb__julia_column(wb__doc_room *r, wb_tensor *x);
wb__julia wb__julia_zeros(wb__doc_room *r, wb_dtype dtype, int ndim, const int64_t *dims);
/* Which value it is of those under "_backrefs", from 0. */
wb__doc *wb__julia_reference(wb__doc_room *r, int64_t i);

/* Of a type that was made with wb__julia_type; no fields: what has one value alone, such as a function. */
wb__julia wb__julia_struct(wb__doc_room *r, wb__doc *type, int n, const wb__julia *fields);
wb__julia wb__julia_singleton(wb__doc_room *r, const char *path);

#endif
