/* Normalisation to mean 0 and variance 1 over some axes. */
#include "engine/ops/op.h"

#include <string.h>

wb_tensor *wb__normalise(wb_tensor *x, unsigned mask, double eps)
{
    int64_t attr = mask;
    if (!x) return NULL;
    return wb__made(wb__node_with(WB__OP_normalize, (wb_dtype)x->dtype, x->ndim, x->dims, 1, &x, 1,
                                  &attr, 1, &(wb__number){.f = eps}));
}

wb_tensor *wb_normalize(wb_tensor *x, int n_axes, double eps)
{
    if (!wb__floating("normalize", x)) return NULL;
    if (n_axes < 1 || n_axes > x->ndim)
        return wb__fail_null(WB_ERROR_SHAPE, "normalize: %d axes of %s", n_axes, wb_describe(x));
    if (!(eps >= 0)) return wb__fail_null(WB_ERROR_ARGUMENT, "normalize: eps is %g", eps);
    return wb__normalise(x, ((1u << x->ndim) - 1) & ~((1u << (x->ndim - n_axes)) - 1), eps);
}

/* Whether c, broadcast to the dimensions of x, has one number along the axes of `mask`. */
static bool is_constant_along(const wb_tensor *c, const wb_tensor *x, unsigned mask)
{
    for (int i = 0; i < c->ndim; i++)
        if (mask >> (i + x->ndim - c->ndim) & 1 && c->dims[i] != 1) return false;
    return true;
}

/* Returns c, and sets g to h, if g is c * h, where c has one number along the axes of `mask` and h
 * the dimensions of g.  Returns NULL otherwise, also if g is evaluated and has lost its inputs. */
static wb_tensor *split_factor(wb_tensor **g, unsigned mask)
{
    const wb_tensor *product = *g;
    if (product->op != WB__OP_mul || product->n_in != 2) return NULL;
    for (int i = 0; i < 2; i++) {
        wb_tensor *c = product->in[i], *h = product->in[!i];
        if (!is_constant_along(c, product, mask) || h->ndim != product->ndim ||
            memcmp(h->dims, product->dims, h->ndim * sizeof h->dims[0]))
            continue;
        *g = h;
        return c;
    }
    return NULL;
}

/* Sets the gradient of x to (g - mean g - y mean(g y)) / sqrt(var + eps), with y the result, g its
 * gradient, var the variance of x, and means over the normalised axes.  In a batch norm g is c h,
 * with c its scale.  Then the gradient of x is c / sqrt(var + eps) times the same expression of h,
 * whose sums are also the gradients of scale and bias.  In 16 bits these sums differ from those, so
 * c stays in g. */
GRADIENT(normalize)
{
    wb_tensor *x = node->in[0];
    wb_dtype dtype = (wb_dtype)x->dtype;
    unsigned mask = (unsigned)node->attr[0];
    const bool narrow = wb__is_half(dtype);
    wb_tensor *factor = narrow ? NULL : split_factor(&g, mask);
    if (narrow) { /* sums of squares could overflow in f16, and would lose digits in bf16 */
        x = wb_astype(x, WB_F32);
        g = wb_astype(g, WB_F32);
        node = wb__normalise(x, mask, node->number[0].f);
        if (!x || !g || !node) return;
    }
    wb_tensor *variance = wb__mean(wb_square(wb_sub(x, wb__mean(x, mask, true))), mask, true);
    wb_tensor *scale =
        wb_rsqrt(wb_add(variance, wb__literal(node->number[0].f, (wb_dtype)x->dtype)));
    wb_tensor *along = wb_mul(node, wb__mean(wb_mul(g, node), mask, true));
    if (factor) scale = wb_mul(factor, scale);
    out[0] = wb_mul(scale, wb_sub(wb_sub(g, wb__mean(g, mask, true)), along));
    if (out[0] && out[0]->dtype != dtype) out[0] = wb_astype(out[0], dtype);
}

static int normalise_mean(wb__ir *ir, int x, unsigned mask)
{
    const wb__value *v = &ir->value[x];
    double n = 1;
    for (int i = 0; i < v->ndim; i++)
        if (mask >> i & 1) n *= (double)v->dims[i];
    int factor = wb__ir_literal(ir, 1 / n, (wb_dtype)v->dtype);
    return wb__ir_elementwise(ir, WB__OP_mul, wb__ir_reduce(ir, WB__OP_sum, x, mask), factor);
}

static int normalise(wb__ir *ir, int x, unsigned mask, double eps)
{
    int centred = wb__ir_elementwise(ir, WB__OP_sub, x, normalise_mean(ir, x, mask));
    int variance = normalise_mean(ir, wb__ir_elementwise(ir, WB__OP_square, centred, -1), mask);
    int padded = wb__ir_elementwise(ir, WB__OP_add, variance,
                                    wb__ir_literal(ir, eps, (wb_dtype)ir->value[x].dtype));
    return wb__ir_elementwise(ir, WB__OP_mul, centred,
                              wb__ir_elementwise(ir, WB__OP_rsqrt, padded, -1));
}

COMPOSED(normalize)
{
    const wb_dtype t = (wb_dtype)x->dtype;
    const int wide = wb__ir_as(&s->ir, in[0], wb__computed_in(t));
    return wb__ir_as(&s->ir, normalise(&s->ir, wide, (unsigned)x->attr[0], x->number[0].f), t);
}
