/* Writes products, convolutions, pools, softmax, normalisation and attention of a model in
 * operators of ONNX. */
#include "io/onnx/writer.h"

#include <string.h>

static const char *onnx_put_gemm(wb__exporter *w, int a, int b, const char *bias,
                                 const int64_t *turned)
{
    const char *in[3] = {wb__export_value(w, a), wb__export_value(w, b), bias};
    wb__export_begin(w, "Gemm", bias ? 3 : 2, in);
    if (turned[0]) wb__export_put_int(w, "transA", 1);
    if (turned[1]) wb__export_put_int(w, "transB", 1);
    return wb__export_end(w);
}

static const char *onnx_put_transposed(wb__exporter *w, const char *x, int n)
{
    int64_t order[WB_MAX_DIMS];
    for (int i = 0; i < n; i++) order[i] = i < n - 2 ? i : 2 * n - 3 - i;
    return wb__export_permuted(w, x, n, order);
}

static const char *onnx_put_matrices(wb__exporter *w, int a, int b, bool ta, bool tb)
{
    const char *x = wb__export_value(w, a), *y = wb__export_value(w, b);
    if (ta) x = onnx_put_transposed(w, x, wb__export_x(w, a)->ndim);
    if (tb) y = onnx_put_transposed(w, y, wb__export_x(w, b)->ndim);
    return WB__PUT(w, "MatMul", x, y);
}

static const char *onnx_put_matmul(wb__exporter *w, int step)
{
    const int a = w->steps[step].in[0], b = w->steps[step].in[1];
    const int64_t turned[2] = {wb__export_fixed_attr(w, step, 0),
                               wb__export_fixed_attr(w, step, 1)};
    if ((turned[0] || turned[1]) && wb__export_x(w, a)->ndim == 2 && wb__export_x(w, b)->ndim == 2)
        return onnx_put_gemm(w, a, b, NULL, turned);
    return onnx_put_matrices(w, a, b, turned[0] != 0, turned[1] != 0);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Sets list[i] to attribute first + i, for i < n. */
static void onnx_put_read_attrs(wb__exporter *w, int step, int first, int n, int64_t *list)
{
    for (int i = 0; i < n; i++) list[i] = wb__export_fixed_attr(w, step, first + i);
}

/* Writes a padding.  Weber's is top, bottom, left, right; ONNX has the starts first. */
static void onnx_put_pads(wb__exporter *w, int step, int first)
{
    int64_t p[4];
    onnx_put_read_attrs(w, step, first, 4, p);
    if (p[0] || p[1] || p[2] || p[3])
        wb__export_put_ints(w, "pads", 4, (int64_t[]){p[0], p[2], p[1], p[3]});
}

/* The attributes of a convolution, in the order of wb__conv_attr. */
enum { STRIDE = 0, DILATION = 2, ONNX_PUT_PAD = 4, ONNX_PUT_GROUPS = 8 };

/* Returns the number of elements that a transposed convolution adds behind the windows, along axis
 * 0 or 1. */
static int64_t onnx_put_added(wb__exporter *w, int step, int kernel, int axis)
{
    const wb__export_step *s = &w->steps[step];
    const wb__export_size in = w->steps[s->in[0]].dims[2 + axis], out = s->dims[2 + axis];
    const int64_t k = w->steps[kernel].dims[2 + axis].c;
    const int64_t stride = wb__export_fixed_attr(w, step, STRIDE + axis);
    const int64_t reach = (k - 1) * wb__export_fixed_attr(w, step, DILATION + axis) + 1;
    const int64_t pads = wb__export_fixed_attr(w, step, ONNX_PUT_PAD + 2 * axis) +
                         wb__export_fixed_attr(w, step, ONNX_PUT_PAD + 2 * axis + 1);
    const int64_t more = out.c - ((in.c - 1) * stride + reach - pads);
    if (in.k || out.k || more < 0 || more >= WB__MAX(stride, 1))
        wb__export_cannot(w, "is a transposed convolution to a size that its stride does not give");
    return more;
}

/* Writes the convolution `step`; `bias` is the name of a bias, or NULL. */
static const char *onnx_put_convolution(wb__exporter *w, int step, const char *bias)
{
    const wb__export_step *s = &w->steps[step];
    const bool transpose = s->x[0]->op == WB__OP_conv_grad_input;
    const char *in[3] = {wb__export_value(w, s->in[0]), wb__export_value(w, s->in[1]), bias};
    const wb__export_size *kernel = w->steps[s->in[1]].dims;
    int64_t pair[2];
    wb__export_begin(w, transpose ? "ConvTranspose" : "Conv", bias ? 3 : 2, in);
    wb__export_put_ints(w, "kernel_shape", 2, (int64_t[]){kernel[2].c, kernel[3].c});
    onnx_put_read_attrs(w, step, STRIDE, 2, pair);
    if (pair[0] != 1 || pair[1] != 1) wb__export_put_ints(w, "strides", 2, pair);
    onnx_put_read_attrs(w, step, DILATION, 2, pair);
    if (pair[0] != 1 || pair[1] != 1) wb__export_put_ints(w, "dilations", 2, pair);
    onnx_put_pads(w, step, ONNX_PUT_PAD);
    const int64_t groups = wb__export_fixed_attr(w, step, ONNX_PUT_GROUPS);
    if (groups != 1) wb__export_put_int(w, "group", groups);
    for (int i = 0; transpose && i < 2; i++) pair[i] = onnx_put_added(w, step, s->in[1], i);
    if (transpose && (pair[0] || pair[1])) wb__export_put_ints(w, "output_padding", 2, pair);
    return wb__export_end(w);
}

static const char *onnx_put_pool(wb__exporter *w, int step)
{
    enum { WINDOW = 0, STRIDES = 2, PADDING = 4 };
    const bool mean = wb__export_x(w, step)->op == WB__OP_meanpool;
    const char *x = wb__export_value(w, w->steps[step].in[0]);
    int64_t pair[2];
    wb__export_begin(w, mean ? "AveragePool" : "MaxPool", 1, &x);
    onnx_put_read_attrs(w, step, WINDOW, 2, pair);
    wb__export_put_ints(w, "kernel_shape", 2, pair);
    onnx_put_read_attrs(w, step, STRIDES, 2, pair);
    wb__export_put_ints(w, "strides", 2, pair);
    onnx_put_pads(w, step, PADDING);
    if (mean) wb__export_put_int(w, "count_include_pad", 1);
    return wb__export_end(w);
}

static const char *onnx_put_over_last(wb__exporter *w, const char *op, const char *x)
{
    wb__export_begin(w, op, 1, &x);
    wb__export_put_int(w, "axis", -1);
    return wb__export_end(w);
}

static const char *onnx_put_mean_of(wb__exporter *w, const char *x, unsigned mask, bool keep)
{
    int64_t axes[WB_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < WB_MAX_DIMS; i++)
        if (mask >> i & 1) axes[n++] = i;
    wb__export_begin(w, "ReduceMean", 1, &x);
    wb__export_put_ints(w, "axes", n, axes);
    wb__export_put_int(w, "keepdims", keep);
    return wb__export_end(w);
}

static const char *onnx_put_layer_norm(wb__exporter *w, const char *x, const char *scale,
                                       const char *bias, int axes, double eps)
{
    wb__export_begin(w, "LayerNormalization", bias ? 3 : 2, (const char *[]){x, scale, bias});
    wb__export_put_int(w, "axis", -axes);
    wb__export_put_float(w, "epsilon", eps);
    return wb__export_end(w);
}

/* Writes a vector of n ones or zeros, as a constant of the file. */
static const char *onnx_put_same_numbers(wb__exporter *w, wb_dtype t, int64_t n, double value)
{
    const wb__export_size size = {0, n};
    return wb__export_filled(w, wb__export_number(w, t, value), 1, &size);
}

/* Writes (x - mean) / sqrt(variance + eps), computed in f32 if x is f16. */
static const char *onnx_put_normalise(wb__exporter *w, int step)
{
    const wb_tensor *y = wb__export_x(w, step);
    const wb_dtype dtype = wb__export_dtype_of(w, step), t = wb__computed_in(dtype);
    const unsigned mask = (unsigned)wb__export_fixed_attr(w, step, 0);
    const wb__export_size last = w->steps[step].dims[WB__MAX(y->ndim - 1, 0)];
    const double eps = y->number[0].f;
    const char *x = wb__export_value(w, w->steps[step].in[0]);
    if (y->ndim && mask == 1u << (y->ndim - 1) && !last.k && dtype != WB_F64)
        return onnx_put_layer_norm(w, x, onnx_put_same_numbers(w, dtype, last.c, 1), NULL, 1, eps);
    x = wb__export_cast(w, x, dtype, t);
    const char *centred = WB__PUT(w, "Sub", x, onnx_put_mean_of(w, x, mask, true));
    const char *variance = onnx_put_mean_of(w, WB__PUT(w, "Mul", centred, centred), mask, true);
    const char *padded = WB__PUT(w, "Add", variance, wb__export_number(w, t, eps));
    return wb__export_cast(w, WB__PUT(w, "Div", centred, WB__PUT(w, "Sqrt", padded)), t, dtype);
}

/* Writes softmax(scale q·kᵀ)·v.  The weights of masked keys are almost 0, and are set to 0, so that
 * a row without a key is 0. */
static const char *onnx_put_attention(wb__exporter *w, int step)
{
    const wb__export_step *s = &w->steps[step];
    const wb_dtype t = wb__export_dtype_of(w, step);
    const int q = s->in[0], k = s->in[1];
    double scale;
    const int64_t bits = wb__export_fixed_attr(w, step, 0);
    memcpy(&scale, &bits, sizeof scale);
    const char *mask = s->n_in > 3 ? wb__export_value(w, s->in[3]) : NULL;
    const char *y = onnx_put_matrices(w, q, k, false, true);
    y = WB__PUT(w, "Mul", y, wb__export_number(w, t, scale));
    if (mask) y = WB__PUT(w, "Where", mask, y, wb__export_number(w, t, wb__masked(t)));
    y = onnx_put_over_last(w, "Softmax", y);
    if (mask) y = WB__PUT(w, "Where", mask, y, wb__export_number(w, t, 0));
    return WB__PUT(w, "MatMul", y, wb__export_value(w, s->in[2]));
}

static const char *onnx_put_optional(wb__exporter *w, int step)
{
    return step < 0 ? NULL : wb__export_value(w, step);
}

static const char *onnx_put_batch_norm(wb__exporter *w, int step, const wb__export_group *g)
{
    const wb_dtype t = wb__export_dtype_of(w, step);
    const int64_t n = w->steps[g->in[3]].dims[0].c;
    const char *in[5];
    for (int i = 0; i < 5; i++) in[i] = onnx_put_optional(w, g->in[i]);
    if (!in[1]) in[1] = onnx_put_same_numbers(w, t, n, 1);
    if (!in[2]) in[2] = onnx_put_same_numbers(w, t, n, 0);
    wb__export_begin(w, "BatchNormalization", 5, in);
    wb__export_put_float(w, "epsilon", g->eps);
    return wb__export_end(w);
}

static const char *onnx_put_grouped(wb__exporter *w, int step, const wb__export_group *g)
{
    const wb_tensor *of = wb__export_x(w, g->of);
    switch (g->kind) {
    case WB__ONNX_GEMM: {
        const int64_t turned[2] = {wb__export_fixed_attr(w, g->of, 0),
                                   wb__export_fixed_attr(w, g->of, 1)};
        return onnx_put_gemm(w, g->in[0], g->in[1], wb__export_value(w, g->in[2]), turned);
    }
    case WB__ONNX_CONVOLVE: return onnx_put_convolution(w, g->of, wb__export_value(w, g->in[2]));
    case WB__ONNX_LAYER_NORM:
        return onnx_put_layer_norm(w, wb__export_value(w, g->in[0]), wb__export_value(w, g->in[1]),
                                   wb__export_value(w, g->in[2]), wb__export_x(w, g->in[1])->ndim,
                                   of->number[0].f);
    case WB__ONNX_BATCH_NORM: return onnx_put_batch_norm(w, step, g);
    case WB__ONNX_MEAN:
        return onnx_put_mean_of(w, wb__export_value(w, g->in[0]),
                                (unsigned)wb__export_fixed_attr(w, g->of, 0),
                                of->ndim == wb__export_x(w, g->in[0])->ndim);
    default: return NULL;
    }
}

const char *wb__export_write_product(wb__exporter *w, int step)
{
    const wb__export_step *s = &w->steps[step];
    if (s->group.kind) return onnx_put_grouped(w, step, &s->group);
    switch (s->x[0]->op) {
    case WB__OP_matmul: return onnx_put_matmul(w, step);
    case WB__OP_conv: case WB__OP_conv_grad_input: return onnx_put_convolution(w, step, NULL);
    case WB__OP_maxpool: case WB__OP_meanpool: return onnx_put_pool(w, step);
    case WB__OP_softmax: return onnx_put_over_last(w, "Softmax", wb__export_value(w, s->in[0]));
    case WB__OP_logsoftmax:
        return onnx_put_over_last(w, "LogSoftmax", wb__export_value(w, s->in[0]));
    case WB__OP_normalize: return onnx_put_normalise(w, step);
    case WB__OP_attention: return onnx_put_attention(w, step);
    default: return NULL;
    }
}
