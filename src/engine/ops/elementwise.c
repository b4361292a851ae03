/* The elementwise operations.  Most public functions here come from rows of ops.def. */
#include "base/options.h"
#include "engine/ops/op.h"

#include <float.h>
#include <string.h>

#include <math.h>

static bool is_accepted_dtype(const char *what, int accepts, const wb_tensor *x)
{
    int kind = x->dtype == WB_BOOL                   ? WB__BOOLS
               : wb__dtype_float((wb_dtype)x->dtype) ? WB__FLOATS
                                                     : WB__INTEGERS;
    if (wb__likely(accepts & kind)) return true;
    wb__fail(WB_ERROR_DTYPE, "%s: does not take %s", what, wb_describe(x));
    return false;
}

static wb_tensor *elementwise_unary(wb__op op, wb_tensor *x, bool test)
{
    const char *what = wb__ops[op].name;
    if (!wb__operand(what, x) || !is_accepted_dtype(what, wb__ops[op].accepts, x)) return NULL;
    return wb__node(op, test ? WB_BOOL : (wb_dtype)x->dtype, x->ndim, x->dims, 1, &x, 0, NULL);
}

bool wb__holds(wb_dtype dtype, double v)
{
    char capacity[8];
    double back;
    wb__convert(capacity, dtype, &v, WB_F64, 1);
    wb__convert(&back, WB_F64, capacity, dtype, 1);
    return back == v && !(dtype == WB_I64 && v >= 0x1p63);      /* i64 makes 2^63 - 1 of 2^63 */
}

/* Returns x, or, if x is a WB__WEAK literal, a literal with the value of x and the dtype of
 * `other`.  A weak x keeps its dtype if `other` is weak or bool, or if `other` has integers and x
 * is not whole.  NULL: x is whole but the integer dtype does not hold it, or out of memory. */
static wb_tensor *adopt_dtype(const char *what, wb_tensor *x, const wb_tensor *other)
{
    if (!(x->flags & WB__WEAK) || x->dtype == other->dtype || (other->flags & WB__WEAK)) return x;
    double v = x->number[0].f;
    const bool whole = !wb__dtype_float((wb_dtype)other->dtype);
    if (other->dtype == WB_BOOL || (whole && v != trunc(v))) return x;
    if (whole && !wb__holds((wb_dtype)other->dtype, v))
        return wb__fail_null(WB_ERROR_DTYPE,
                             "%s: %g does not fit into %s: convert that with wb_astype first",
                             what, v, wb_describe(other));
    wb_tensor *y = x->flags & WB__FIXED ? wb__literal(v, (wb_dtype)other->dtype)
                                        : wb__argument(v, (wb_dtype)other->dtype);
    if (y && x->flags & WB__RENEWED) wb__renewed(y, x->renewed.hook, x->renewed.number);
    return y;
}

static bool have_same_dtype(const char *what, const wb_tensor *x, const wb_tensor *y)
{
    if (wb__likely(x->dtype == y->dtype)) return true;
    wb__fail(WB_ERROR_DTYPE, "%s: dtypes differ: %s · %s", what, wb_describe(x), wb_describe(y));
    return false;
}

static wb_tensor *elementwise_binary(wb__op op, wb_tensor *x, wb_tensor *y, bool compare)
{
    const char *what = wb__ops[op].name;
    if (!wb__operand(what, x) || !wb__operand(what, y)) return NULL;
    wb_tensor *in[2] = {adopt_dtype(what, x, y), NULL};
    in[1] = adopt_dtype(what, y, in[0] ? in[0] : x);
    if (!in[0] || !in[1] || !have_same_dtype(what, in[0], in[1]) ||
        !is_accepted_dtype(what, wb__ops[op].accepts, in[0]))
        return NULL;
    int ndim;
    int64_t dims[WB_MAX_DIMS], size;
    if (!wb__broadcast(what, x, y, &ndim, dims) || !wb__check_dims(what, ndim, dims, &size))
        return NULL;
    return wb__node(op, compare ? WB_BOOL : (wb_dtype)in[0]->dtype, ndim, dims, 2, in, 0, NULL);
}

#define WB_UNARY(name, accepts, expression, gradient) \
    wb_tensor *(wb_##name)(wb_tensor *x) { return elementwise_unary(WB__OP_##name, x, false); }
#define WB_TEST(name, accepts, expression) \
    wb_tensor *(wb_##name)(wb_tensor *x) { return elementwise_unary(WB__OP_##name, x, true); }
#define WB_BINARY(name, accepts, expression, gradient_x, gradient_y) \
    wb_tensor *(wb_##name)(wb_tensor *x, wb_tensor *y)                                             \
    {                                                                                              \
        return elementwise_binary(WB__OP_##name, x, y, false);                                     \
    }
#define WB_COMPARE(name, accepts, expression) \
    wb_tensor *(wb_##name)(wb_tensor *x, wb_tensor *y) { return elementwise_binary(WB__OP_##name,  \
                                                                                   x,              \
                                                                                   y, true); }
#include "ops/ops.def"

wb_tensor *wb__elementwise(wb__op op, wb_tensor *const *x)
{
    const wb__op_class class = wb__ops[op].class;
    return class == WB__UNARY || class == WB__TEST
               ? elementwise_unary(op, x[0], class == WB__TEST)
               : elementwise_binary(op, x[0], x[1], class == WB__COMPARE);
}

wb_tensor *wb_identity(wb_tensor *x) { return x; }

wb_tensor *(wb_where)(wb_tensor *condition, wb_tensor *x, wb_tensor *y)
{
    if (!wb__operand("where", condition) || !wb__operand("where", x) || !wb__operand("where", y))
        return NULL;
    if (condition->dtype != WB_BOOL)
        return wb__fail_null(WB_ERROR_DTYPE, "where: the condition is %s, not bool",
                             wb_describe(condition));
    wb_tensor *in[3] = {condition, adopt_dtype("where", x, y), NULL};
    in[2] = adopt_dtype("where", y, in[1] ? in[1] : x);
    if (!in[1] || !in[2] || !have_same_dtype("where", in[1], in[2])) return NULL;
    int ndim;
    int64_t dims[WB_MAX_DIMS], size;
    if (!wb__broadcast("where", x, y, &ndim, dims)) return NULL;
    wb_tensor both = {.ndim = (uint8_t)ndim, .dtype = in[1]->dtype};
    memcpy(both.dims, dims, sizeof dims);
    if (!wb__broadcast("where", condition, &both, &ndim, dims) ||
        !wb__check_dims("where", ndim, dims, &size))
        return NULL;
    return wb__node(WB__OP_where, (wb_dtype)in[1]->dtype, ndim, dims, 3, in, 0, NULL);
}

static double greatest_finite(wb_dtype dtype)
{
    return dtype == WB_F64    ? DBL_MAX
           : dtype == WB_F16  ? 65504
           : dtype == WB_BF16 ? 0x1.fep127
                              : FLT_MAX;
}

static wb_tensor *nan_to_num(wb_tensor *x, const wb_nan_to_num_options *given)
{
    wb_nan_to_num_options o;
    if (!wb__floating("nan_to_num", x) ||
        !wb__read_options("nan_to_num", wb_nan_to_num_options, &o, given, NULL))
        return NULL;
    const double most = greatest_finite((wb_dtype)x->dtype);
    const double posinf = wb__or(o.posinf, most), neginf = wb__or(o.neginf, -most);
    wb_tensor *y = wb_where(wb_isnan(x), wb_scalar(o.nan), x);
    y = wb_where(wb_eq(x, wb_scalar(INFINITY)), wb_scalar(posinf), y);
    return wb_where(wb_eq(x, wb_scalar(-INFINITY)), wb_scalar(neginf), y);
}

wb_tensor *wb_nan_to_num_with(wb_tensor *x, const wb_nan_to_num_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, nan_to_num(x, o));
}

wb_tensor *wb_astype(wb_tensor *x, wb_dtype dtype)
{
    if (!wb__operand("astype", x) || !wb__is_dtype("astype", dtype)) return NULL;
    if (x->dtype == dtype) return wb__unchanged(x);
    return wb__node(WB__OP_cast, dtype, x->ndim, x->dims, 1, &x, 0, NULL);
}

wb_tensor *wb_stop_gradient(wb_tensor *x)
{
    if (!wb__operand("stop_gradient", x)) return NULL;
    return wb__node(WB__OP_stop, (wb_dtype)x->dtype, x->ndim, x->dims, 1, &x, 0, NULL);
}

wb_tensor *wb__mark_automatic(wb_tensor *x, const char *layer)
{
    if (!x) return NULL;
    wb_tensor *y = wb__node(WB__OP_automatic, (wb_dtype)x->dtype, x->ndim, x->dims, 1, &x, 0, NULL);
    if (y) y->name = layer;
    return y;
}

static wb_tensor *zero_like(const wb_tensor *x) { return wb__literal(0, (wb_dtype)x->dtype); }

GRADIENT(where)
{
    wb_tensor *c = node->in[0], *x = node->in[1], *y = node->in[2];
    if (wanted[1]) out[1] = wb__sum_to(wb_where(c, g, zero_like(g)), x->ndim, x->dims);
    if (wanted[2]) out[2] = wb__sum_to(wb_where(c, zero_like(g), g), y->ndim, y->dims);
}

GRADIENT(cast)
{
    wb_dtype from = (wb_dtype)node->in[0]->dtype;
    out[0] = wb__dtype_float(from) && wb__dtype_float((wb_dtype)node->dtype) ? wb_astype(g, from)
                                                                             : WB_NONE;
}
