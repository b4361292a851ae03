/* Julia's values as BSON.jl writes them: each with its type, since a type's parameters are the exact types of its
 * fields.  Names of types are paths from what `using Flux` makes known: "Flux.Dense", "Core.Float32",
 * "Flux.NNlib.#relu" (the type of the function relu). */
#ifndef WB__JULIA_H
#define WB__JULIA_H

#include "io/bson_write.h"

typedef struct { wb__bson *type, *value; } wb__julia;

/* A type with its parameters, which are types, integers or truths. */
wb__bson *wb__julia_type(wb__bson_room *r, const char *path, int n, wb__bson *const *parameters);

wb__julia wb__julia_nothing(wb__bson_room *r);
wb__julia wb__julia_bool(wb__bson_room *r, bool value);
wb__julia wb__julia_int(wb__bson_room *r, int64_t value);           /* Int64 */
wb__julia wb__julia_float32(wb__bson_room *r, float value);
wb__julia wb__julia_float64(wb__bson_room *r, double value);
wb__julia wb__julia_symbol(wb__bson_room *r, const char *name);
wb__julia wb__julia_tuple(wb__bson_room *r, int n, const wb__julia *values);
wb__julia wb__julia_ints(wb__bson_room *r, int n, const int64_t *values);      /* a tuple */
wb__julia wb__julia_named_tuple(wb__bson_room *r, int n, const char *const *names,
                                const wb__julia *values);

/* "Core.Float32"; NULL: Julia has no such, which is bf16's case. */
const char *wb__julia_dtype(wb_dtype dtype);
/* NULL for such a dtype. */
wb__bson *wb__julia_array_type(wb__bson_room *r, wb_dtype dtype, int ndim);
/* The same bytes with the dimensions reversed. */
wb__julia wb__julia_array(wb__bson_room *r, wb_tensor *x, bool turned);
wb__julia wb__julia_zeros(wb__bson_room *r, wb_dtype dtype, int ndim, const int64_t *dims);
/* Which value it is of those under "_backrefs", from 0. */
wb__bson *wb__julia_reference(wb__bson_room *r, int64_t i);

/* Of a type that was made with wb__julia_type; no fields: what has one value alone, such as a function. */
wb__julia wb__julia_struct(wb__bson_room *r, wb__bson *type, int n, const wb__julia *fields);
wb__julia wb__julia_singleton(wb__bson_room *r, const char *path);

#endif
