/* Reading values, which evaluates them. */
#include "engine/tensor.h"

#include <math.h>
#include <string.h>

static const char *values(const char *what, wb_tensor *x)
{
    if (!wb__operand(what, x)) return NULL;
    wb_tensor *bound = wb__bind(x);
    if (wb__this_thread()->recording)           /* today's value would be in every replay */
        return wb__fail_null(WB_ERROR_ARGUMENT,
                             "%s: a value was asked for while a function was being recorded by "
                             "wb_compile",
                             what);
    if (!bound->storage && wb__evaluate(1, &bound, NULL)) return NULL;
    if (!bound->storage)
        return wb__fail_null(WB_ERROR_INTERNAL, "%s: %s has no value", what, wb_describe(x));
    return (const char *)bound->storage->data + bound->offset;
}

const void *wb_data(wb_tensor *x) { return values("data", x); }

static double one(const char *at, wb_dtype dtype)
{
    double v;
    wb__convert(&v, WB_F64, at, dtype, 1);
    return v;
}

double wb_item(wb_tensor *x)
{
    if (x && wb__is(x, &wb__tensor_class) && x != WB_NONE && x->size != 1) {
        wb__fail(WB_ERROR_SHAPE, "item: %s is not one element", wb_describe(x));
        return NAN;
    }
    const char *at = values("item", x);
    return at ? one(at, (wb_dtype)x->dtype) : NAN;
}

double wb_at_index(wb_tensor *x, int n, const int64_t *index)
{
    if (!wb__operand("at", x)) return NAN;
    int64_t at = 0;
    if (n != x->ndim) {
        wb__fail(WB_ERROR_SHAPE, "at: %d indices for %s", n, wb_describe(x));
        return NAN;
    }
    if (n && !index) {
        wb__fail(WB_ERROR_ARGUMENT, "at: no indices");
        return NAN;
    }
    for (int i = 0; i < n; i++) {
        if (index[i] < 0 || index[i] >= x->dims[i]) {
            wb__fail(WB_ERROR_ARGUMENT, "at: index %lld of axis %d of %s", (long long)index[i], i,
                     wb_describe(x));
            return NAN;
        }
        at = at * x->dims[i] + index[i];
    }
    const char *from = values("at", x);
    return from ? one(from + (size_t)at * wb__dtype_size((wb_dtype)x->dtype), (wb_dtype)x->dtype)
                : NAN;
}

int wb_copy_out(wb_tensor *x, void *buffer, size_t bytes)
{
    const char *from = values("copy_out", x);
    if (!from) return wb_error_code() ? (int)wb_error_code() : WB_ERROR_ARGUMENT;
    size_t need = (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype);
    if (bytes != need)
        return wb__fail(WB_ERROR_ARGUMENT, "copy_out: %zu bytes of room for %s, which is %zu",
                        bytes, wb_describe(x), need);
    if (bytes && !buffer) return wb__fail(WB_ERROR_ARGUMENT, "copy_out: no buffer");
    if (bytes) memcpy(buffer, from, bytes);
    return 0;
}
