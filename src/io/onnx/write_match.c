/* Finds groups of steps that are one operator of ONNX, and the steps that are needed. */
#include "io/onnx/writer.h"

#include <string.h>

/* ---- parts of graphs ------------------------------------------------------------------------- */

static wb__op onnx_match_op_of(const wb__exporter *w, int i)
{
    const wb__export_step *s = &w->steps[i];
    return s->n_in || !wb__known(s->x[0]) ? (wb__op)s->x[0]->op : WB__OP_constant;
}

/* Returns the step whose value step i has too, behind casts to its own dtype and other operations
 * that change nothing. */
static int onnx_match_same_value(const wb__exporter *w, int i)
{
    for (;;) {
        const wb__op op = onnx_match_op_of(w, i);
        if (op != WB__OP_stop && op != WB__OP_automatic && op != WB__OP_custom &&
            op != WB__OP_moved && op != WB__OP_attention_cached)
            return i;
        i = w->steps[i].in[0];
    }
}

/* Returns input k of step i. */
static int onnx_match_operand(const wb__exporter *w, int i, int k) {
    return onnx_match_same_value(w, w->steps[i].in[k]);
}

/* Sets *p to the operand of the operation `op` for which `is` is true, and *q to the other one.
 * False: i is no such operation, or neither operand fits. */
static bool onnx_match_operands(const wb__exporter *w, int i, wb__op op,
                                bool (*is)(const wb__exporter *w, int i), int *p, int *q)
{
    if (onnx_match_op_of(w, i) != op) return false;
    for (int k = 0; k < 2; k++) {
        *p = onnx_match_operand(w, i, k);
        *q = onnx_match_operand(w, i, !k);
        if (is(w, *p)) return true;
    }
    return false;
}

static bool onnx_match_is_product(const wb__exporter *w, int i)
{
    return onnx_match_op_of(w, i) == WB__OP_matmul && w->steps[i].uses == 1 &&
           w->steps[i].x[0]->ndim == 2 && w->steps[w->steps[i].in[0]].x[0]->ndim == 2;
}
static bool onnx_match_is_convolution(const wb__exporter *w, int i)
{
    return (onnx_match_op_of(w, i) == WB__OP_conv ||
            onnx_match_op_of(w, i) == WB__OP_conv_grad_input) &&
           w->steps[i].uses == 1;
}
static bool onnx_match_is_sum(const wb__exporter *w, int i)
{
    return onnx_match_op_of(w, i) == WB__OP_sum && w->steps[i].uses == 1;
}
static bool onnx_match_is_normalised(const wb__exporter *w, int i)
{
    return onnx_match_op_of(w, i) == WB__OP_normalize && w->steps[i].uses == 1;
}
static bool is_mul(const wb__exporter *w, int i) { return onnx_match_op_of(w, i) == WB__OP_mul; }
static bool is_rsqrt(const wb__exporter *w, int i) { return onnx_match_op_of(w,
                                                                             i) == WB__OP_rsqrt; }
static bool onnx_match_is_literal(const wb__exporter *w, int i)
{
    return w->steps[i].x[0]->op == WB__OP_literal;
}

/* Whether step i is a vector with the size n. */
static bool onnx_match_is_vector(const wb__exporter *w, int i, wb__export_size n)
{
    return w->steps[i].x[0]->ndim == 1 && wb__export_same(w->steps[i].dims[0], n);
}

/* Returns the vector [C] that step i reshapes to [C, 1, ...] or [1, C, 1, ...] for a tensor with
 * `ndim` axes; -1 if i is none. */
static int onnx_match_along_channels(const wb__exporter *w, int i, int ndim)
{
    const wb_tensor *x = w->steps[i].x[0];
    if (onnx_match_op_of(w, i) != WB__OP_reshape) return -1;
    const int vector = onnx_match_operand(w, i, 0), channels = x->ndim - ndim + 1;
    if (channels < 0 || w->steps[vector].x[0]->ndim != 1 || w->steps[vector].dims[0].k) return -1;
    for (int k = 0; k < x->ndim; k++)
        if (k != channels && !wb__export_is(w->steps[i].dims[k], 1)) return -1;
    return vector;
}

static bool find_gemm(const wb__exporter *w, int i, wb__export_group *g)
{
    int product, bias;
    if (!onnx_match_operands(w, i, WB__OP_add, onnx_match_is_product, &product, &bias) ||
        !onnx_match_is_vector(w, bias, w->steps[product].dims[1]))
        return false;
    const int *of = w->steps[product].in;
    *g = (wb__export_group){WB__ONNX_GEMM, 3, {of[0], of[1], bias}, product, 0};
    return true;
}

static bool find_convolution(const wb__exporter *w, int i, wb__export_group *g)
{
    int of, bias;
    if (!onnx_match_operands(w, i, WB__OP_add, onnx_match_is_convolution, &of, &bias)) return false;
    bias = onnx_match_along_channels(w, bias, 4);
    if (bias < 0 || !onnx_match_is_vector(w, bias, w->steps[of].dims[1])) return false;
    *g = (wb__export_group){WB__ONNX_CONVOLVE, 3,
                          {w->steps[of].in[0], w->steps[of].in[1], bias}, of, 0};
    return true;
}

/* Whether v has the shape of the axes that step `normalise` normalises, the last ones. */
static bool onnx_match_has_normalised(const wb__exporter *w, int v, int normalise)
{
    const wb__export_step *s = &w->steps[normalise], *t = &w->steps[v];
    const int n = t->x[0]->ndim, first = s->x[0]->ndim - n;
    const unsigned last = ((1u << n) - 1) << (first < 0 ? 0 : first);
    bool same = n > 0 && first >= 0 && (unsigned)s->x[0]->attr[0] == last;
    for (int k = 0; same && k < n; k++)
        same = wb__export_same(t->dims[k], s->dims[first + k]) && !t->dims[k].k;
    return same;
}

/* Whether step i is scale · normalise(x) + bias over the last axes; sets *g. */
static bool find_layer_norm(const wb__exporter *w, int i, wb__export_group *g)
{
    int product, bias, of, scale;
    if (w->steps[i].x[0]->dtype == WB_F64 ||
        !onnx_match_operands(w, i, WB__OP_add, is_mul, &product, &bias) ||
        w->steps[product].uses != 1 ||
        !onnx_match_operands(w, product, WB__OP_mul, onnx_match_is_normalised, &of, &scale) ||
        !onnx_match_has_normalised(w, scale, of) || !onnx_match_has_normalised(w, bias, of))
        return false;
    *g = (wb__export_group){WB__ONNX_LAYER_NORM, 3, {w->steps[of].in[0], scale, bias}, of, 0};
    return true;
}

/* Whether step i is rsqrt(variance + eps), or scale times that; sets scale, variance and eps. */
static bool onnx_match_find_factor(const wb__exporter *w, int i, int *scale, int *variance,
                                   double *eps)
{
    int root = i, number;
    *scale = -1;
    if (onnx_match_op_of(w, i) == WB__OP_mul &&
        !onnx_match_operands(w, i, WB__OP_mul, is_rsqrt, &root, scale))
        return false;
    if (onnx_match_op_of(w, root) != WB__OP_rsqrt) return false;
    const int sum = onnx_match_operand(w, root, 0);
    if (!onnx_match_operands(w, sum, WB__OP_add, onnx_match_is_literal, &number,
                             variance)) return false;
    *eps = w->steps[number].x[0]->number[0].f;
    return true;
}

/* Whether step i is bias - mean · factor, or the negative of this product; sets bias and mean. */
static bool onnx_match_find_shift(const wb__exporter *w, int i, int factor, int *bias, int *mean)
{
    const wb__op op = onnx_match_op_of(w, i);
    if (op != WB__OP_sub && op != WB__OP_neg) return false;
    const int product = onnx_match_operand(w, i, op == WB__OP_sub);
    *bias = op == WB__OP_sub ? onnx_match_operand(w, i, 0) : -1;
    if (onnx_match_op_of(w, product) != WB__OP_mul) return false;
    const int a = onnx_match_operand(w, product, 0), b = onnx_match_operand(w, product, 1);
    *mean = b == factor ? a : b;
    return a == factor || b == factor;
}

/* Whether step i is x · factor + shift with the statistics of a BatchNorm, which are tensors of the
 * model; sets *g. */
static bool find_batch_norm(const wb__exporter *w, int i, wb__export_group *g)
{
    int product, shift, x, factor, scale, bias, mean, variance;
    double eps;
    const int ndim = w->steps[i].x[0]->ndim;
    if (!onnx_match_operands(w, i, WB__OP_add, is_mul, &product, &shift) || ndim < 2) return false;
    shift = onnx_match_along_channels(w, shift, ndim);
    if (shift < 0 || onnx_match_op_of(w, product) != WB__OP_mul) return false;
    x = onnx_match_operand(w, product, 0);
    factor = onnx_match_along_channels(w, onnx_match_operand(w, product, 1), ndim);
    if (factor < 0 || w->steps[x].x[0]->ndim != ndim ||
        !onnx_match_find_factor(w, factor, &scale, &variance, &eps) ||
        !onnx_match_find_shift(w, shift, factor, &bias, &mean))
        return false;
    const wb__export_size n = w->steps[x].dims[1];
    if (w->steps[mean].parameter < 0 || w->steps[variance].parameter < 0 ||
        !onnx_match_is_vector(w, mean, n) || !onnx_match_is_vector(w, variance, n) ||
        (scale >= 0 && !onnx_match_is_vector(w, scale, n)) ||
        (bias >= 0 && !onnx_match_is_vector(w, bias, n)))
        return false;
    *g = (wb__export_group){WB__ONNX_BATCH_NORM, 5, {x, scale, bias, mean, variance}, i, eps};
    return true;
}

/* Whether step i is sum(x) · 1/n, where n is the number of elements that are added; sets *g. */
static bool onnx_match_find_mean(const wb__exporter *w, int i, wb__export_group *g)
{
    int sum, number;
    if (!onnx_match_operands(w, i, WB__OP_mul, onnx_match_is_sum, &sum, &number) ||
        !onnx_match_is_literal(w, number) || w->steps[number].x[0]->size != 1 ||
        !wb__export_has_dims(w, sum, i))
        return false;
    const int x = w->steps[sum].in[0];
    for (int r = 0; r < w->records; r++) {
        double n = 1;
        for (int k = 0; k < w->steps[x].x[r]->ndim; k++)
            if (w->steps[sum].x[r]->attr[0] >> k & 1) n *= (double)w->steps[x].x[r]->dims[k];
        if (w->steps[number].x[r]->number[0].f != 1 / n) return false;
    }
    *g = (wb__export_group){WB__ONNX_MEAN, 1, {x}, sum, 0};
    return true;
}

static void onnx_match_find_group(wb__exporter *w, int i)
{
    static bool (*const find[])(const wb__exporter *, int, wb__export_group *) = {
        find_gemm, find_convolution, find_layer_norm, find_batch_norm, onnx_match_find_mean};
    const wb_dtype t = (wb_dtype)w->steps[i].x[0]->dtype;
    const wb__op op = onnx_match_op_of(w, i);
    if ((op != WB__OP_add && op != WB__OP_mul) || !wb__dtype_float(t)) return;
    for (size_t k = 0; k < WB__COUNT(find); k++)
        if (find[k](w, i, &w->steps[i].group)) return;
}

void wb__export_match(wb__exporter *w)
{
    for (int i = 0; i < w->n_outputs; i++) w->steps[w->outputs[i].step].needed = true;
    for (int i = w->n_steps - 1; i >= 0; i--) {
        wb__export_step *s = &w->steps[i];
        if (!s->needed || !s->n_in) continue;
        while (onnx_match_op_of(w, i) == WB__OP_reshape &&
               onnx_match_op_of(w, onnx_match_operand(w, i, 0)) == WB__OP_reshape)
            s->in[0] = w->steps[onnx_match_operand(w, i, 0)].in[0]; /* a reshape of a reshape */
        onnx_match_find_group(w, i);
        const wb__export_group *g = &s->group;
        const int n = g->kind ? g->n : s->n_in;
        const int *in = g->kind ? g->in : s->in;
        for (int k = 0; k < n; k++)
            if (in[k] >= 0) w->steps[in[k]].needed = true;
    }
}
