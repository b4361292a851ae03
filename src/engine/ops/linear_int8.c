/* Products with i8 weights: the rows of x are quantised when the product is computed, and integers
 * are multiplied.  A backend that has no kernel for this computes the same in f32, in which the
 * integers, and their sums below 2^24, are exact.
 *
 *   low[i] = min(0, x[i,k] of all k)      high[i] = max(0, x[i,k] of all k)
 *   s[i] = high[i] / 255 - low[i] / 255   f[i] = 1 / s[i], or 0 if s[i] < 2^-100
 *   z[i] = floor(1/2 - low[i] f[i])       the integer of 0
 *   q[i,k] = floor(x[i,k] f[i] + z[i] + 1/2), in 0 .. 255
 *   y[i,j] = (sum over k of (q[i,k] - z[i]) w[j,k]) · s[i] · scale[j] */
#include "backend/kinds.h"
#include "engine/ops/op.h"

#include <string.h>

static const double one_of_127 = (float)(1.0 / 127), one_of_255 = (float)(1.0 / 255);

/* Whether w and scale are the weight of n quantised rows.  Otherwise sets the error. */
static bool is_quantised(const char *what, const wb_tensor *w, const wb_tensor *scale)
{
    if (!wb__operand(what, w) || !wb__operand(what, scale)) return false;
    if (w->dtype != WB_I8 || scale->dtype != WB_F32)
        return !wb__fail(WB_ERROR_DTYPE, "%s: the weight is %s and the scale %s; want i8 and f32 "
                         "(wb_astype converts a scale)", what, wb_describe(w),
                         wb_describe(scale));
    if (w->ndim == 2 && w->size && scale->ndim == 1 && scale->dims[0] == w->dims[0]) return true;
    return !wb__fail(WB_ERROR_SHAPE, "%s: the weight is %s and the scale %s: want [out, in] and "
                     "[out], with elements", what, wb_describe(w), wb_describe(scale));
}

wb_tensor *wb_linear_int8(wb_tensor *x, wb_tensor *w, wb_tensor *scale, wb_tensor *b)
{
    if (!wb__floating("linear_int8", x) || !is_quantised("linear_int8", w, scale) ||
        (!b && wb__null("linear_int8", "b (WB_NONE for no bias)")))
        return NULL;
    const int64_t in = w->dims[1];
    if (x->ndim < 1 || x->dims[x->ndim - 1] != in)
        return wb__fail_null(WB_ERROR_SHAPE, "linear_int8: %s · %s: want [..., in] · [out, in]",
                             wb_describe(x), wb_describe(w));
    if (in > WB__INT8_MOST)
        return wb__fail_null(WB_ERROR_UNSUPPORTED, "linear_int8: %s: a sum of more than %d "
                             "products may exceed an i32", wb_describe(w), WB__INT8_MOST);
    if (b != WB_NONE && !wb__floating("linear_int8", b)) return NULL;
    if (b != WB_NONE && (b->ndim != 1 || b->dims[0] != w->dims[0] || b->dtype != x->dtype))
        return wb__fail_null(b->dtype != x->dtype ? WB_ERROR_DTYPE : WB_ERROR_SHAPE,
                             "linear_int8: the bias is %s: want [%lld] %s", wb_describe(b),
                             (long long)w->dims[0], wb_dtype_name((wb_dtype)x->dtype));
    const wb__frame f = wb__frame_begin();
    int64_t dims[WB_MAX_DIMS], rows = 1;
    memcpy(dims, x->dims, sizeof dims);
    dims[x->ndim - 1] = w->dims[0];
    for (int i = 0; i < x->ndim - 1; i++) rows *= dims[i];
    wb_tensor *flat = wb__as(wb_reshape_array(x, 2, (int64_t[]){rows, in}), WB_F32);
    wb_tensor *y = flat ? wb__node(WB__OP_linear_int8, WB_F32, 2, (int64_t[]){rows, w->dims[0]}, 3,
                                   (wb_tensor *[]){flat, w, scale}, 0, NULL) : NULL;
    if (y && b != WB_NONE) y = wb_add(y, wb__as(b, WB_F32));
    y = y ? wb__as(y, (wb_dtype)x->dtype) : NULL;
    return wb__frame_end(f, y ? wb_reshape_array(y, x->ndim, dims) : NULL);
}

/* The rounding of x counts as the identity.  Neither the weight nor its scale has a gradient. */
GRADIENT(linear_int8)
{
    for (int i = 1; i < 3; i++)
        if (wanted[i]) out[i] = WB_NONE;
    if (wanted[0])
        out[0] = wb__matmul(wb_mul(g, node->in[2]), wb_astype(node->in[1], WB_F32), false, false);
}

/* Returns w [n, ...] as a matrix of n rows, in f32. */
static wb_tensor *int8_rows_of(wb_tensor *w)
{
    const int64_t n = w->dims[0];
    return wb__as(wb_reshape_array(w, 2, (int64_t[]){n, w->size / WB__MAX(n, 1)}), WB_F32);
}

int wb_quantize_rows(wb_tensor *w, wb_tensor **q, wb_tensor **scale)
{
    if (q) *q = NULL;
    if (scale) *scale = NULL;
    if (!wb__floating("quantize_rows", w)) return wb_error_code();
    if (!q || !scale)
        return wb__fail(WB_ERROR_ARGUMENT, "quantize_rows: no place for the %s",
                        q ? "scales" : "integers");
    if (w->ndim < 2 || !w->size)
        return wb__fail(WB_ERROR_SHAPE, "quantize_rows: %s: want [n, ...] with elements",
                        wb_describe(w));
    const wb__frame f = wb__frame_begin();
    const int64_t n = w->dims[0];
    wb_tensor *rows = int8_rows_of(w);
    wb_tensor *most = rows ? wb__reduce(WB__OP_max, wb_abs(rows), 2, false) : NULL;
    wb_tensor *s = most ? wb_mul(most, wb__literal(one_of_127, WB_F32)) : NULL;
    /* a row of zeros is divided by 1; the inverse of a small scale would be infinite */
    wb_tensor *divisor = s ? wb_where(wb_gt(s, wb_scalar(0)), s, wb_scalar(1)) : NULL;
    wb_tensor *y = divisor ? wb_div(rows, wb_reshape_array(divisor, 2, (int64_t[]){n, 1})) : NULL;
    y = y ? wb_floor(wb_add(y, wb_scalar(0.5))) : NULL;
    y = y ? wb_minimum(wb_maximum(y, wb_scalar(-127)), wb_scalar(127)) : NULL;
    y = y ? wb_reshape_array(wb_astype(y, WB_I8), w->ndim, w->dims) : NULL;
    void *const kept[2] = {s, y};
    wb__frame_end_many(f, y ? 2 : 0, kept);
    if (!y) return wb__error_or(WB_ERROR_ARGUMENT);
    *q = y;
    *scale = s;
    return 0;
}

static int int8_times(wb__ir *ir, int a, int b) { return wb__ir_elementwise(ir, WB__OP_mul, a, b); }
static int int8_literal(wb__ir *ir, double x) { return wb__ir_literal(ir, x, WB_F32); }

/* Returns q - z of x [m, k], and sets *scale to s · WB__INT8_DOWN, [m, 1]. */
static int int8_quantise_rows(wb__ir *ir, int x, int *scale)
{
    const int nought = int8_literal(ir, 0), part = int8_literal(ir, one_of_255),
              half = int8_literal(ir, 0.5);
    const int low = wb__ir_elementwise(ir, WB__OP_minimum, wb__ir_reduce(ir, WB__OP_min, x, 2),
                                       nought);
    const int high = wb__ir_elementwise(ir, WB__OP_maximum, wb__ir_reduce(ir, WB__OP_max, x, 2),
                                        nought);
    const int s = wb__ir_elementwise(ir, WB__OP_sub, int8_times(ir, high, part),
                                     int8_times(ir, low, part));
    const int large = wb__ir_elementwise(ir, WB__OP_ge, s,
                                         int8_literal(ir, (double)WB__INT8_LEAST));
    const int inverse = wb__ir_elementwise(ir, WB__OP_div, int8_literal(ir, 1), s);
    const int factor = wb__ir_where(ir, large, inverse, nought);
    const int zero = wb__ir_elementwise(
        ir, WB__OP_floor,
        wb__ir_elementwise(ir, WB__OP_sub, half, int8_times(ir, low, factor)), -1);
    const int up = wb__ir_elementwise(ir, WB__OP_add, int8_times(ir, x, factor),
                                      wb__ir_elementwise(ir, WB__OP_add, zero, half));
    int q = wb__ir_elementwise(ir, WB__OP_floor, up, -1);
    q = wb__ir_elementwise(ir, WB__OP_maximum, q, nought);
    q = wb__ir_elementwise(ir, WB__OP_minimum, q, int8_literal(ir, 255));
    *scale = int8_times(ir, s, int8_literal(ir, (double)WB__INT8_DOWN));
    return wb__ir_elementwise(ir, WB__OP_sub, q, zero);
}

static int int8_compose_product(wb__ir *ir, const wb_tensor *x, const int *in)
{
    int scale;
    const int q = int8_quantise_rows(ir, in[0], &scale);
    wb__value sums = {.op = WB__OP_matmul, .dtype = WB_F32, .ndim = 2, .number = -1, .leaf = -1,
                      .dims = {x->dims[0], x->dims[1]}};
    const int product = wb__ir_make(ir, sums, 2, (int[]){q, wb__ir_as(ir, in[1], WB_F32)}, 2,
                                    (int64_t[]){false, true});
    const int down = int8_times(ir, int8_times(ir, product, scale), in[2]);
    return int8_times(ir, down, int8_literal(ir, (double)WB__INT8_UP));
}

/* Whether the backend accepts the step of the product. */
static bool int8_is_supported(const wb__attempt *a, const wb__ir *ir, const wb_tensor *x,
                              const int *in)
{
    wb__step s = wb__step_blank(a, WB__STEP_LINEAR_INT8);
    wb__value y = {.dtype = WB_F32, .ndim = 2, .dims = {x->dims[0], x->dims[1]}, .size = x->size};
    s.n_views = 4;
    for (int i = 0; i < 3; i++) {
        wb__value v = ir->value[in[i]];
        v.layout = WB__ROW_MAJOR;
        wb__contiguous(&v, &s.views[i]);
    }
    wb__contiguous(&y, &s.views[3]);
    return wb__supported(a, &s);
}

COMPOSED(linear_int8)
{
    const wb__value v = {.op = WB__OP_linear_int8, .dtype = WB_F32, .ndim = 2, .number = -1,
                         .leaf = -1, .dims = {x->dims[0], x->dims[1]}};
    return int8_is_supported(a, &s->ir, x, in) ? wb__ir_make(&s->ir, v, 3, in, 0, NULL)
                                               : int8_compose_product(&s->ir, x, in);
}

FILL(LINEAR_INT8)
{
    wb__add_rows(m, wb__operand_of(m, v, 0));
    wb__add_rows(m, wb__operand_of(m, v, 1));
    wb__add_any(m, wb__operand_of(m, v, 2));
    wb__add_any(m, p->result);
}
