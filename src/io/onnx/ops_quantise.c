/* Quantised operators of ONNX: right, not fast.  An integer q means (q - zero point) scale.
 *
 * Sums of products of 8 bits are computed in f64, or in f32 where that is exact too.  A GPU without
 * f64 fails with the message of its backend. */
#include "io/onnx/ops_common.h"
#include "io/onnx/ops_window.h"

static bool is_byte(const wb_tensor *x) { return x->dtype == WB_U8 || x->dtype == WB_I8; }

/* Whether input i is u8 or i8. */
static bool onnx_quantise_has_bytes(const wb__onnx_call *c, int i)
{
    if (is_byte(c->in[i])) return true;
    return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "input %d is %s; u8 and i8 are done", i,
                           wb_describe(c->in[i]));
}

/* Returns round(x) + zero, limited to the numbers of t; `zero` has integers, or is NULL for 0.  NaN
 * becomes the least number, as in ONNX Runtime; ONNX does not define it. */
static wb_tensor *onnx_quantise_saturate(wb_tensor *x, wb_tensor *zero, wb_dtype t)
{
    wb_tensor *y = wb__onnx_rounded(x), *least = wb__number_of(t == WB_I8 ? -128 : 0);
    if (zero && y) y = wb_add(y, wb__as(zero, (wb_dtype)y->dtype));
    y = y ? wb_where(wb_ge(y, least), y, least) : NULL;
    y = wb_minimum(y, wb__number_of(t == WB_I8 ? 127 : 255));
    return y ? wb_astype(y, t) : NULL;
}

/* ---- QuantizeLinear, DequantizeLinear -------------------------------------------------------- */

/* The scale and zero point of x: one number, one for each index along an axis, or one for each
 * block of `block` elements along it. */
typedef struct { int axis; int64_t block; } granularity;

static bool onnx_quantise_read_granularity(const wb__onnx_call *c, granularity *g)
{
    const wb_tensor *x = c->in[0], *scale = c->in[1], *zero = wb__onnx_in(c, 2);
    *g = (granularity){0, wb__onnx_int(c, "block_size")};
    if (zero && (zero->ndim != scale->ndim || !wb__same_dims(zero, scale)) &&
        (zero->size != 1 || scale->size != 1))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its scale is %s, its zero point %s",
                               wb_describe(scale), wb_describe(zero));
    if (scale->size == 1 && !g->block) return true;
    g->axis = wb__onnx_axis(c, wb__onnx_int(c, "axis"), x->ndim);
    if (g->axis < 0) return false;
    bool fits = g->block >= 0 && g->block <= INT32_MAX && scale->ndim == (g->block ? x->ndim : 1);
    if (fits && !g->block) fits = scale->dims[0] == x->dims[g->axis];
    for (int i = 0; i < x->ndim && fits && g->block; i++)
        fits = scale->dims[i] == (i == g->axis ? (x->dims[i] + g->block - 1) / g->block
                                               : x->dims[i]);
    return fits || wb__onnx_refuse(c, WB_ERROR_SHAPE, "its scale is %s, for %s along axis %d in "
                                   "blocks of %lld", wb_describe(scale), wb_describe(x), g->axis,
                                   (long long)WB__MAX(g->block, 1));
}

/* Returns a scale or zero point in a shape that broadcasts to x. */
static wb_tensor *onnx_quantise_spread(wb_tensor *v, const wb_tensor *x, const granularity *g)
{
    int64_t dims[WB_MAX_DIMS];
    if (!v) return NULL;
    if (g->block) {
        v = wb_repeat(v, g->axis, g->block);
        return v ? wb_slice(v, g->axis, 0, x->dims[g->axis]) : NULL;
    }
    if (v->size == 1) return wb_reshape_array(v, 0, NULL);
    for (int i = 0; i < x->ndim; i++) dims[i] = i == g->axis ? x->dims[i] : 1;
    return wb_reshape_array(v, x->ndim, dims);
}

/* Sets *t to the dtype of the result: that of the zero point, or output_dtype, or u8. */
static bool read_byte_type(const wb__onnx_call *c, wb_dtype *t)
{
    const wb_tensor *zero = wb__onnx_in(c, 2);
    const wb__onnx_type type = (wb__onnx_type)wb__onnx_int(c, "output_dtype");
    *t = zero ? (wb_dtype)zero->dtype : type ? wb__onnx_dtype(type) : WB_U8;
    if ((*t == WB_U8 || *t == WB_I8) && (!type || wb__onnx_dtype(type) == *t)) return true;
    return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "a result of %s; u8 and i8 are done",
                           type ? wb__onnx_type_name(type) : wb_dtype_name(*t));
}

/* Sets *t to the type of an attribute; without the attribute *t stays. */
static bool read_float_type(const wb__onnx_call *c, const char *name, wb_dtype *t)
{
    const wb__onnx_type type = (wb__onnx_type)wb__onnx_int(c, name);
    if (type == WB__ONNX_UNDEFINED) return true;
    *t = wb__onnx_dtype(type);
    if (*t && wb__dtype_float(*t)) return true;
    return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "%s is %s", name, wb__onnx_type_name(type));
}

/* Computes QuantizeLinear.  The quotient has the dtype `precision`, by default that of the scale.
 * `saturate` is about float8, which Weber lacks. */
bool wb__onnx_quantize_linear(wb__onnx_call *c)
{
    granularity g;
    wb_dtype t;
    if (!read_byte_type(c, &t) || !onnx_quantise_read_granularity(c, &g)) return false;
    wb_tensor *x = c->in[0], *scale = c->in[1], *zero = wb__onnx_in(c, 2);
    wb_dtype in = (wb_dtype)scale->dtype;
    if (!read_float_type(c, "precision", &in)) return false;
    if (!wb__dtype_float((wb_dtype)scale->dtype) ||
        (!wb__dtype_float((wb_dtype)x->dtype) && x->dtype != WB_I32))
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "its input is %s, its scale %s",
                               wb_describe(x), wb_describe(scale));
    wb_tensor *y = wb__wide(wb_div(wb__as(x, in), wb__as(onnx_quantise_spread(scale, x, &g), in)));
    if (!y || (zero && !(zero = onnx_quantise_spread(zero, x, &g)))) return false;
    return wb__onnx_give(c, onnx_quantise_saturate(y, zero, t));
}

bool wb__onnx_dequantize_linear(wb__onnx_call *c)
{
    granularity g;
    if (!onnx_quantise_read_granularity(c, &g)) return false;
    wb_tensor *x = c->in[0], *scale = c->in[1], *zero = wb__onnx_in(c, 2);
    if (!is_byte(x) && x->dtype != WB_I32)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "its input is %s; u8, i8 and i32 are done",
                               wb_describe(x));
    wb_dtype t = (wb_dtype)scale->dtype;
    const wb_dtype wide = wb__computed_in(t);
    if (!read_float_type(c, "output_dtype", &t)) return false;
    wb_tensor *y = wb__as(x, wide);
    if (zero && !(zero = onnx_quantise_spread(zero, x, &g))) return false;
    if (zero) y = wb_sub(y, wb__as(zero, wide));
    y = wb_mul(y, wb__as(onnx_quantise_spread(scale, x, &g), wide));
    return wb__onnx_give(c, wb__as(y, t));
}

/* Computes DynamicQuantizeLinear.  The scale is that of the range of x, to which 0 belongs; for a
 * range of 0, 1 / 255.  With NaN in x the scale is NaN, so that results computed with it show the
 * fault; ONNX Runtime leaves NaN out. */
bool wb__onnx_dynamic_quantize_linear(wb__onnx_call *c)
{
    wb_tensor *x = c->in[0], *zero = wb__number_of(0), *most = wb__number_of(255);
    if (x->dtype != WB_F32 || !x->size)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "its input is %s; it is f32 with elements",
                               wb_describe(x));
    wb_tensor *flat = wb_reshape_array(x, 1, &x->size);
    if (!flat) return false;
    wb_tensor *low = wb_minimum(wb__reduce(WB__OP_min, flat, 1, false), zero);
    wb_tensor *range = wb_sub(wb_maximum(wb__reduce(WB__OP_max, flat, 1, false), zero), low);
    range = wb_where(wb_eq(range, zero), wb__number_of(1), range);
    wb_tensor *scale = wb_div(range, most);
    wb_tensor *first = wb_neg(wb_div(low, scale));
    first = wb__onnx_rounded(wb_minimum(wb_maximum(first, zero), most));
    wb_tensor *y = onnx_quantise_saturate(wb_div(x, scale), first, WB_U8);
    if (!y) return false;
    if (wb__onnx_wants(c, 1)) c->out[1] = scale;
    if (wb__onnx_wants(c, 2) && !(c->out[2] = wb_astype(first, WB_U8))) return false;
    return wb__onnx_give(c, y);
}

/* Returns x - zero as t.  A zero point of several numbers has one for each index along `axis`. */
static wb_tensor *onnx_quantise_subtract_zero(wb_tensor *x, wb_tensor *zero, int axis, wb_dtype t)
{
    int64_t dims[WB_MAX_DIMS];
    wb_tensor *y = wb__as(x, t);
    if (!zero) return y;
    for (int i = 0; i < x->ndim; i++) dims[i] = i == axis ? x->dims[i] : 1;
    if (zero->size == 1) zero = wb_reshape_array(zero, 0, NULL);
    else if (zero->ndim == 1) zero = wb_reshape_array(zero, x->ndim, dims);
    return wb_sub(y, wb__as(zero, t));
}

/* Returns the product of a and b without their zero points, f32 or f64 with whole numbers. */
static wb_tensor *byte_product(const wb__onnx_call *c, wb_tensor *a, wb_tensor *a_zero,
                               wb_tensor *b, wb_tensor *b_zero)
{
    if (!a->ndim || !b->ndim) {
        wb__onnx_refuse(c, WB_ERROR_SHAPE, "%s · %s", wb_describe(a), wb_describe(b));
        return NULL;
    }
    /* a product is below 2^16, and f32 is exact up to 2^24 */
    const wb_dtype t = a->dims[a->ndim - 1] <= 256 ? WB_F32 : WB_F64;
    return wb_matmul(onnx_quantise_subtract_zero(a, a_zero, a->ndim - 2, t),
                     onnx_quantise_subtract_zero(b, b_zero, b->ndim - 1, t));
}

bool wb__onnx_mat_mul_integer(wb__onnx_call *c)
{
    if (!onnx_quantise_has_bytes(c, 0) || !onnx_quantise_has_bytes(c, 1)) return false;
    wb_tensor *y = byte_product(c, c->in[0], wb__onnx_in(c, 2), c->in[1], wb__onnx_in(c, 3));
    return wb__onnx_give(c, y ? wb_astype(y, WB_I32) : NULL);
}

/* Returns a scale of one number, or of one for each index along `axis` of y. */
static wb_tensor *onnx_quantise_scale_along(wb_tensor *scale, const wb_tensor *y, int axis)
{
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < y->ndim; i++) dims[i] = i == axis ? y->dims[i] : 1;
    if (scale->size == 1) return wb_reshape_array(scale, 0, NULL);
    return scale->ndim == 1 ? wb_reshape_array(scale, y->ndim, dims) : scale;
}

/* Gives the node y, whole numbers of f64, times the scales of the operands over that of the
 * result.  The second operand's scale may have a number for each index along `axis`, the first's
 * along `first`.  This factor has the dtype of the scales. */
static bool onnx_quantise_give_rescaled(wb__onnx_call *c, wb_tensor *y, int first, int axis)
{
    wb_tensor *zero = c->in[7];
    if (!y) return false;
    if (c->in[6]->size != 1 || zero->size != 1)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "the scale of the result is %s; one number "
                               "is done", wb_describe(c->in[6]));
    wb_tensor *factor = wb_mul(onnx_quantise_scale_along(c->in[1], y, first),
                               onnx_quantise_scale_along(c->in[4], y, axis));
    factor = wb_div(factor, onnx_quantise_scale_along(c->in[6], y, axis));
    zero = wb_reshape_array(zero, 0, NULL);
    if (!zero) return false;
    y = wb_mul(y, wb__as(factor, WB_F64));
    return wb__onnx_give(c, onnx_quantise_saturate(y, zero, (wb_dtype)zero->dtype));
}

/* Whether the inputs of a QLinear operator are there: x, scale, zero, w, scale, zero, and scale and
 * zero of the result. */
static bool onnx_quantise_has_operands(const wb__onnx_call *c)
{
    if (!onnx_quantise_has_bytes(c, 0) || !onnx_quantise_has_bytes(c, 3) ||
        !onnx_quantise_has_bytes(c, 7))
        return false;
    for (int i = 1; i < 8; i += i == 1 ? 3 : 2)
        if (!wb__dtype_float((wb_dtype)c->in[i]->dtype))
            return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "input %d, a scale, is %s", i,
                                   wb_describe(c->in[i]));
    return true;
}

bool wb__onnx_q_linear_mat_mul(wb__onnx_call *c)
{
    if (!onnx_quantise_has_operands(c)) return false;
    wb_tensor *y = byte_product(c, c->in[0], c->in[2], c->in[3], c->in[5]);
    if (!y) return false;
    return onnx_quantise_give_rescaled(c, wb__as(y, WB_F64), y->ndim - 2, y->ndim - 1);
}

/* ---- convolutions ---------------------------------------------------------------------------- */

/* Returns the convolution of x and w without their zero points, f64 with whole numbers.  Padding
 * counts as the zero point.  Convolutions of f32 may be computed by transforms that round. */
static wb_tensor *byte_conv(const wb__onnx_call *c, int x, int x_zero, int w, int w_zero,
                            wb_tensor *b)
{
    wb_tensor *left = onnx_quantise_subtract_zero(c->in[x], wb__onnx_in(c, x_zero), 1, WB_F64);
    wb_tensor *right = onnx_quantise_subtract_zero(c->in[w], wb__onnx_in(c, w_zero), 0, WB_F64);
    return wb__onnx_conv_of(c, left, right, b ? wb__as(b, WB_F64) : WB_NONE);
}

bool wb__onnx_conv_integer(wb__onnx_call *c)
{
    if (!onnx_quantise_has_bytes(c, 0) || !onnx_quantise_has_bytes(c, 1)) return false;
    const wb_tensor *zero = wb__onnx_in(c, 2);
    if (zero && zero->size != 1)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "the zero point of x is %s", wb_describe(zero));
    wb_tensor *y = byte_conv(c, 0, 2, 1, 3, NULL);
    return wb__onnx_give(c, y ? wb_astype(y, WB_I32) : NULL);
}

bool wb__onnx_q_linear_conv(wb__onnx_call *c)
{
    if (!onnx_quantise_has_operands(c)) return false;
    if (c->in[1]->size != 1 || c->in[2]->size != 1)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "scale and zero point of x are %s and %s",
                               wb_describe(c->in[1]), wb_describe(c->in[2]));
    wb_tensor *y = byte_conv(c, 0, 2, 3, 5, wb__onnx_in(c, 8));
    return onnx_quantise_give_rescaled(c, y, 1, 1);
}
