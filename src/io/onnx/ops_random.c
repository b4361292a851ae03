/* Operators of ONNX with random numbers, from the seed of wb_seed: Dropout, RandomNormal,
 * RandomUniform and the like, Bernoulli.  A seed in the file is refused, as ONNX does not define
 * the numbers that follow from it. */
#include "io/onnx/ops_common.h"
#include "weber/ops.h"

/* Whether the node has no seed; else sets the error. */
static bool onnx_random_without_seed(wb__onnx_call *c)
{
    if (!wb__onnx_attribute(c, "seed")) return true;
    return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "has a seed; the random numbers come from that "
                           "of wb_seed: remove the attribute");
}

/* Returns x scale + shift. */
static wb_tensor *onnx_random_scaled(wb_tensor *x, double scale, double shift)
{
    if (x && scale != 1) x = wb_mul(x, wb_scalar(scale));
    return x && shift != 0 ? wb_add(x, wb_scalar(shift)) : x;
}

/* Gives the node random numbers of the shape and dtype of the attributes, or else of the input. */
static bool onnx_random_give(wb__onnx_call *c, bool normal)
{
    const wb_tensor *like = wb__onnx_in(c, 0);
    const int64_t *dims = like ? like->dims : NULL;
    if (!onnx_random_without_seed(c)) return false;
    const int n = like ? like->ndim : wb__onnx_ints(c, "shape", &dims);
    if (n > WB_MAX_DIMS)
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "has a shape of %d sizes", n);
    const wb_dtype t = wb__onnx_dtype_in(c, "dtype", like ? (wb_dtype)like->dtype : WB_F32);
    const double low = wb__onnx_real(c, normal ? "mean" : "low");
    const double scale = normal ? wb__onnx_real(c, "scale") : wb__onnx_real(c, "high") - low;
    return t &&
           wb__onnx_give(c, onnx_random_scaled(
                                (normal ? wb_randn_array : wb_rand_array)(t, n, dims), scale, low));
}

bool wb__onnx_random_normal(wb__onnx_call *c) { return onnx_random_give(c, true); }
bool wb__onnx_random_uniform(wb__onnx_call *c) { return onnx_random_give(c, false); }

bool wb__onnx_bernoulli(wb__onnx_call *c)
{
    if (!onnx_random_without_seed(c)) return false;
    const wb_dtype dtype = wb__onnx_dtype_in(c, "dtype", (wb_dtype)c->in[0]->dtype);
    wb_tensor *y = dtype ? wb_bernoulli(c->in[0]) : NULL;
    return wb__onnx_give(c, y ? wb__as(y, dtype) : NULL);
}

/* ---- Dropout --------------------------------------------------------------------------------- */

/* Gives the node its input, of which elements are dropped with probability p, 0 < p < 1. */
static bool onnx_random_drop(wb__onnx_call *c, double p)
{
    wb_tensor *x = c->in[0];
    if (!wb__floating("Dropout", x)) return false;
    const wb_dtype draws = x->dtype == WB_F64 ? WB_F64 : WB_F32;
    wb_tensor *u = wb__uniform_beside(x, draws, x->ndim, x->dims);
    wb_tensor *keep = u ? wb_ge(u, wb__argument(p, draws)) : NULL;
    wb_tensor *scale = wb__argument(1 / (1 - p), (wb_dtype)x->dtype);
    if (!keep || !scale) return false;
    if (wb__onnx_wants(c, 1)) c->out[1] = keep;
    return wb__onnx_give(c, wb_where(keep, wb_mul(x, scale), wb__literal(0, (wb_dtype)x->dtype)));
}

/* Computes Dropout: drops nothing, unless the input training_mode, which opset 12 has, is true. */
bool wb__onnx_dropout(wb__onnx_call *c)
{
    const int64_t opset = c->node->opset, *training = NULL;
    double p = 0.5;
    (void)wb__onnx_real(c, "ratio");       /* has no effect without training */
    const int n = opset >= 12 ? wb__onnx_input_ints(c, 2, &training) : -1;
    if (n == -2) return false;
    const bool trains = n > 0 && *training;
    if (trains && !wb__onnx_input_real(c, 1, &p)) return false;
    if (!(p >= 0 && p < 1))
        return wb__onnx_refuse(c, WB_ERROR_ARGUMENT, "the ratio is %g; it must be in [0, 1)", p);
    if (trains && p > 0) return onnx_random_without_seed(c) && onnx_random_drop(c, p);
    wb_tensor *x = c->in[0];
    if (wb__onnx_wants(c, 1) &&
        !(c->out[1] = wb_full_array(1, opset >= 10 ? WB_BOOL : (wb_dtype)x->dtype, x->ndim,
                                    x->dims)))
        return false;
    return wb__onnx_give(c, x);
}
