/* Checks of operands and shapes.  Messages begin with the operation's name and describe the
 * operand. */
#include "engine/tensor.h"

#include <stdio.h>
#include <string.h>

bool wb__check_dims(const char *what, int ndim, const int64_t *dims, int64_t *size)
{
    int64_t n = 1, bound = 1;           /* products of the sizes; bound: a size of 0 counts as 1 */
    if (ndim < 0 || ndim > WB_MAX_DIMS) {
        wb__fail(WB_ERROR_SHAPE, "%s: %d dimensions; a tensor has at most %d", what, ndim,
                 WB_MAX_DIMS);
        return false;
    }
    if (ndim && !dims) {
        wb__fail(WB_ERROR_ARGUMENT, "%s: no sizes for %d dimensions", what, ndim);
        return false;
    }
    for (int i = 0; i < ndim; i++) {
        if (dims[i] < 0) {
            wb__fail(WB_ERROR_SHAPE, "%s: dimension %d is %lld", what, i, (long long)dims[i]);
            return false;
        }
    }
    for (int i = 0; i < ndim; i++) {
        if (dims[i] > WB__MAX_DIM ||
            __builtin_mul_overflow(bound, WB__MAX(dims[i], 1), &bound) || bound > WB__MAX_SIZE) {
            wb__fail(WB_ERROR_SHAPE,
                     "%s: too large: a tensor has fewer than 2^40 elements, and so has each part "
                     "of an empty one, and fewer than 2^32 along a dimension (dimension %d is "
                     "%lld)", what, i, (long long)dims[i]);
            return false;
        }
        n *= dims[i];
    }
    *size = n;
    return true;
}

bool wb__operand(const char *what, const wb_tensor *x)
{
    if (!x) {
        if (!wb_error_code())
            wb__fail(WB_ERROR_ARGUMENT, "%s: an operand is NULL, and nothing failed before", what);
        return false;
    }
    if (x == WB_NONE) {
        wb__fail(WB_ERROR_ARGUMENT, "%s: an operand is WB_NONE", what);
        return false;
    }
    if (!wb__is(x, &wb__tensor_class)) {
        wb__fail(WB_ERROR_ARGUMENT, "%s: an operand is a %s, not a tensor", what, wb__kind(x));
        return false;
    }
    return true;
}

bool wb__floating(const char *what, const wb_tensor *x)
{
    if (!wb__operand(what, x)) return false;
    if (wb__dtype_float((wb_dtype)x->dtype)) return true;
    wb__fail(WB_ERROR_DTYPE, "%s: needs a floating tensor, got %s", what, wb_describe(x));
    return false;
}

/* Sets the error of an index out of range: its value, its position and the range.  Returns
 * false. */
static bool fail_outside(const char *what, const wb_tensor *index, int64_t at, int64_t value,
                         int64_t bound)
{
    char position[WB_MAX_DIMS * 24] = "";
    int64_t each = index->size;
    for (int i = 0, n = 0; i < index->ndim; i++) {
        each /= index->dims[i];
        n += snprintf(position + n, sizeof position - (size_t)n, i ? ",%lld" : "%lld",
                      (long long)(at / each % index->dims[i]));
    }
    return !wb__fail(WB_ERROR_ARGUMENT, "%s: %lld, at [%s] of %s, is not in 0 to %lld%s", what,
                     (long long)value, position, wb_describe(index), (long long)bound - 1,
                     wb__checks ? " (WEBER_DEBUG=check)" : "");
}

/* What the integers of a tensor are checked for. */
typedef struct {
    const char *what;                   /* name of the operation, with which messages begin */
    int64_t bound;                      /* each integer must be in 0 .. bound - 1, */
    const int64_t *except;              /* or be *except; NULL: no exception */
    bool ascending;                     /* no integer may be less than the one before */
    int64_t before;                     /* the integer before the next one, if `ascending` */
} value_check;

/* Whether element `at` of x may have this value; otherwise sets the error. */
static bool check_value(value_check *c, const wb_tensor *x, int64_t at, int64_t value)
{
    if ((value < 0 || value >= c->bound) && !(c->except && value == *c->except))
        return fail_outside(c->what, x, at, value, c->bound);
    if (c->ascending && (at ? value < c->before : value != 0))
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: %lld, at [%lld] of %s, %s", c->what,
                         (long long)value, (long long)at, wb_describe(x),
                         at ? "is below the one before: they ascend" : "is not 0: the first is");
    c->before = value;
    return true;
}

/* Checks all values of x, an evaluated tensor of integers. */
static bool check_values(value_check *c, const wb_tensor *x)
{
    enum { CHUNK = 256 };
    int64_t chunk[CHUNK];
    const size_t bytes = wb__dtype_size((wb_dtype)x->dtype);
    const char *values = wb__storage_read(x->storage);
    if (!values) return false;
    for (int64_t at = 0; at < x->size; at += CHUNK) {
        const int64_t n = WB__MIN(x->size - at, CHUNK);
        wb__convert(chunk, WB_I64, values + x->offset + (size_t)at * bytes, (wb_dtype)x->dtype, n);
        for (int64_t i = 0; i < n; i++)
            if ((c->ascending || (uint64_t)chunk[i] >= (uint64_t)c->bound) &&
                !check_value(c, x, at + i, chunk[i]))
                return false;
    }
    return true;
}

/* Checks the values of index if they are known and the host can read them; with WEBER_DEBUG=check
 * it evaluates the index first. */
static bool check_values_if_readable(value_check *c, wb_tensor *index)
{
    const wb__thread *t = wb__this_thread();
    wb_tensor *x = wb__to_evaluate(c->what, index);
    if (!x) return false;
    if (!wb__checks) {
        while (!x->storage && x->op == WB__OP_reshape) x = x->in[0];
        if (!x->storage || t->recording) return true;
        if (x->device && !x->device->backend->host_visible) return true;
    }
    if (!x->storage) {
        if (t->recording) return true;
        if (wb__engine.evaluate_keeping(1, &x)) return false;
    }
    wb__value_read r;
    const wb_tensor *bound = wb__bind_begin(c->what, x, &r);
    const bool good = bound && (!bound->storage || check_values(c, bound));
    wb__value_end(&r);
    return good;
}

bool wb__indices_below(const char *what, wb_tensor *index, int64_t bound)
{
    return wb__labels_below(what, index, bound, NULL);
}

bool wb__labels_below(const char *what, wb_tensor *labels, int64_t bound, const int64_t *except)
{
    if (!wb__checks && !wb__this_thread()->training) return true;
    return check_values_if_readable(&(value_check){.what = what, .bound = bound, .except = except},
                                    labels);
}

bool wb__offsets_ascend(const char *what, wb_tensor *offsets, int64_t bound)
{
    value_check c = {.what = what, .bound = bound, .ascending = true};
    return check_values_if_readable(&c, offsets);
}

bool wb__known_below(const char *what, wb_tensor *index, int64_t bound)
{
    return check_values_if_readable(&(value_check){.what = what, .bound = bound}, index);
}

bool wb__same_dims(const wb_tensor *x, const wb_tensor *y)
{
    bool same = x->ndim == y->ndim;
    for (int i = 0; i < x->ndim && same; i++) same = x->dims[i] == y->dims[i];
    return same;
}

bool wb__broadcast(const char *what, const wb_tensor *x, const wb_tensor *y, int *ndim,
                   int64_t *dims)
{
    int n = *ndim = WB__MAX(x->ndim, y->ndim);
    if (wb__same_dims(x, y)) {
        memcpy(dims, x->dims, (size_t)n * sizeof *dims);
        return true;
    }
    for (int i = 1; i <= n; i++) {
        int64_t a = i <= x->ndim ? x->dims[x->ndim - i] : 1,
                b = i <= y->ndim ? y->dims[y->ndim - i] : 1;
        if (a != b && a != 1 && b != 1) {
            wb__fail(WB_ERROR_SHAPE, "%s: shapes do not broadcast: %s · %s", what, wb_describe(x),
                     wb_describe(y));
            return false;
        }
        dims[n - i] = a == 1 ? b : a;
    }
    return true;
}

int wb__axis(const char *what, const wb_tensor *x, int64_t axis)
{
    if (!wb__operand(what, x)) return -1;
    const int64_t a = axis < 0 ? axis + x->ndim : axis;
    if (a >= 0 && a < x->ndim) return (int)a;
    if (!x->ndim)
        wb__fail(WB_ERROR_SHAPE, "%s: no axis %lld in %s, a scalar: give it one with wb_unsqueeze",
                 what, (long long)axis, wb_describe(x));
    else
        wb__fail(WB_ERROR_SHAPE, "%s: no axis %lld in %s: the first is 0, the last %d or -1", what,
                 (long long)axis, wb_describe(x), x->ndim - 1);
    return -1;
}
