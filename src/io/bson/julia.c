/* Julia's values as BSON.jl writes them. */
#include "io/bson/julia.h"

#include "engine/tensor.h"

#include <string.h>

static wb__doc *julia_tagged(wb__doc_arena *r, const char *tag)
{
    wb__doc *d = wb__doc_document(r);
    wb__doc_put(r, d, "tag", wb__doc_text(r, tag));
    return d;
}

wb__doc *wb__julia_type(wb__doc_arena *r, const char *path, int n, wb__doc *const *parameters)
{
    wb__doc *d = julia_tagged(r, "datatype"), *list = wb__doc_list(r), *names = wb__doc_list(r);
    for (int i = 0; i < n; i++) wb__doc_push(r, list, parameters[i]);
    for (const char *at = path, *end; *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, ".");
        char *name = wb__doc_memory(r, (size_t)(end - at) + 1);
        if (!name) return NULL;
        memcpy(name, at, (size_t)(end - at));
        name[end - at] = 0;
        wb__doc_push(r, names, wb__doc_text(r, name));
    }
    wb__doc_put(r, d, "params", list);
    wb__doc_put(r, d, "name", names);
    return d;
}

static wb__doc *julia_core(wb__doc_arena *r, const char *path)
{
    return wb__julia_type(r, path, 0, NULL);
}

wb__julia wb__julia_nothing(wb__doc_arena *r)
{
    return (wb__julia){julia_core(r, "Core.Nothing"), wb__doc_null(r)};
}

wb__julia wb__julia_bool(wb__doc_arena *r, bool value)
{
    return (wb__julia){julia_core(r, "Core.Bool"), wb__doc_bool(r, value)};
}

wb__julia wb__julia_int(wb__doc_arena *r, int64_t value)
{
    return (wb__julia){julia_core(r, "Core.Int64"), wb__doc_int(r, value)};
}

wb__julia wb__julia_float64(wb__doc_arena *r, double value)
{
    return (wb__julia){julia_core(r, "Core.Float64"), wb__doc_real(r, value)};
}

wb__julia wb__julia_float32(wb__doc_arena *r, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint8_t bytes[4] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16),
                        (uint8_t)(bits >> 24)};
    wb__julia v = {julia_core(r, "Core.Float32"), julia_tagged(r, "struct")};
    wb__doc_put(r, v.value, "type", v.type);
    wb__doc_put(r, v.value, "data", wb__doc_bytes(r, bytes, sizeof bytes));
    return v;
}

static wb__doc *julia_symbol(wb__doc_arena *r, const char *name)
{
    wb__doc *d = julia_tagged(r, "symbol");
    wb__doc_put(r, d, "name", wb__doc_text(r, name));
    return d;
}

wb__julia wb__julia_symbol(wb__doc_arena *r, const char *name)
{
    return (wb__julia){julia_core(r, "Core.Symbol"), julia_symbol(r, name)};
}

/* ---- tuples ---------------------------------------------------------------------------------- */

static wb__doc *julia_tuple_of(wb__doc_arena *r, wb__doc *list)
{
    wb__doc *d = julia_tagged(r, "tuple");
    wb__doc_put(r, d, "data", list);
    return d;
}

/* Returns an array, in the arena, of the n types if `types` is true, else of the n values.  NULL:
 * out of memory. */
static wb__doc **julia_members(wb__doc_arena *r, int n, const wb__julia *values, bool types)
{
    wb__doc **row = wb__doc_memory(r, (size_t)(n ? n : 1) * sizeof *row);
    for (int i = 0; row && i < n; i++) row[i] = types ? values[i].type : values[i].value;
    return row;
}

static wb__doc *julia_list_of(wb__doc_arena *r, int n, const wb__julia *values)
{
    wb__doc *list = wb__doc_list(r);
    for (int i = 0; i < n; i++) wb__doc_push(r, list, values[i].value);
    return list;
}

wb__julia wb__julia_tuple(wb__doc_arena *r, int n, const wb__julia *values)
{
    wb__doc **types = julia_members(r, n, values, true);
    if (!types) return (wb__julia){NULL, NULL};
    return (wb__julia){wb__julia_type(r, "Core.Tuple", n, types),
                       julia_tuple_of(r, julia_list_of(r, n, values))};
}

wb__julia wb__julia_ints(wb__doc_arena *r, int n, const int64_t *values)
{
    wb__julia *row = wb__doc_memory(r, (size_t)(n ? n : 1) * sizeof *row);
    for (int i = 0; row && i < n; i++) row[i] = wb__julia_int(r, values[i]);
    return row ? wb__julia_tuple(r, n, row) : (wb__julia){NULL, NULL};
}

wb__julia wb__julia_named_tuple(wb__doc_arena *r, int n, const char *const *names,
                                const wb__julia *values)
{
    wb__doc *symbols = wb__doc_list(r), **types = julia_members(r, n, values, true);
    if (!types) return (wb__julia){NULL, NULL};
    for (int i = 0; i < n; i++) wb__doc_push(r, symbols, julia_symbol(r, names[i]));
    wb__doc *both[2] = {julia_tuple_of(r, symbols), wb__julia_type(r, "Core.Tuple", n, types)};
    return wb__julia_struct(r, wb__julia_type(r, "Core.NamedTuple", 2, both), n, values);
}

wb__julia wb__julia_struct(wb__doc_arena *r, wb__doc *type, int n, const wb__julia *fields)
{
    wb__julia v = {type, julia_tagged(r, "struct")};
    wb__doc_put(r, v.value, "type", type);
    wb__doc_put(r, v.value, "data", julia_list_of(r, n, fields));
    return v;
}

wb__julia wb__julia_singleton(wb__doc_arena *r, const char *path)
{
    return wb__julia_struct(r, julia_core(r, path), 0, NULL);
}

const char *wb__julia_dtype(wb_dtype dtype)
{
    switch (dtype) {
    case WB_F64: return "Core.Float64";
    case WB_F32: return "Core.Float32";
    case WB_F16: return "Core.Float16";
    case WB_I64: return "Core.Int64";
    case WB_I32: return "Core.Int32";
    case WB_I8: return "Core.Int8";
    case WB_U8: return "Core.UInt8";
    case WB_BOOL: return "Core.Bool";
    default: return NULL;
    }
}

wb__doc *wb__julia_array_type(wb__doc_arena *r, wb_dtype dtype, int ndim)
{
    const char *element = wb__julia_dtype(dtype);
    if (!element) return NULL;
    wb__doc *both[2] = {julia_core(r, element), wb__doc_int(r, ndim)};
    return wb__julia_type(r, "Core.Array", 2, both);
}

/* Returns an array; `dims` are Weber's dimensions.  Returns `nothing` if Julia lacks the dtype.  A
 * Vector{UInt8} is a BSON binary without a type, as BSON.jl writes it. */
static wb__julia julia_array(wb__doc_arena *r, wb_dtype dtype, int ndim, const int64_t *dims,
                             wb__doc *data)
{
    wb__julia v = {wb__julia_array_type(r, dtype, ndim), data};
    if (!wb__julia_dtype(dtype)) return wb__julia_nothing(r);
    if (dtype == WB_U8 && ndim == 1) return v;
    wb__doc *size = wb__doc_list(r);
    for (int i = ndim; i-- > 0;) wb__doc_push(r, size, wb__doc_int(r, dims[i]));
    v.value = julia_tagged(r, "array");
    wb__doc_put(r, v.value, "type", julia_core(r, wb__julia_dtype(dtype)));
    wb__doc_put(r, v.value, "size", size);
    wb__doc_put(r, v.value, "data", data);
    return v;
}

wb__julia wb__julia_array(wb__doc_arena *r, wb_tensor *x, wb__doc_order order)
{
    int64_t columns[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) columns[i] = x->dims[x->ndim - 1 - i];
    return julia_array(r, (wb_dtype)x->dtype, x->ndim, order == WB__DOC_COLUMNS ? columns : x->dims,
                       wb__doc_tensor(r, x, order));
}

wb__julia wb__julia_column(wb__doc_arena *r, wb_tensor *x)
{
    return julia_array(r, (wb_dtype)x->dtype, 2, (int64_t[]){1, x->size},
                       wb__doc_tensor(r, x, WB__DOC_ROWS));
}

wb__julia wb__julia_zeros(wb__doc_arena *r, wb_dtype dtype, int ndim, const int64_t *dims)
{
    int64_t bytes = (int64_t)wb__dtype_size(dtype);
    for (int i = 0; i < ndim; i++) bytes *= dims[i];
    return julia_array(r, dtype, ndim, dims, wb__doc_zeros(r, bytes));
}

wb__doc *wb__julia_reference(wb__doc_arena *r, int64_t i)
{
    wb__doc *d = julia_tagged(r, "backref");
    wb__doc_put(r, d, "ref", wb__doc_int(r, i + 1));
    return d;
}
