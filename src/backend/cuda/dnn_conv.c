/* Convolutions as graphs of cuDNN. */
#include "backend/cuda/dnn.h"
#include "backend/gpu/runtime/runtime.h"

#include <string.h>

/* ---- problems -------------------------------------------------------------------------------- */

/* Sets `strides` to the strides of a dense tensor with the layout of the view, NHWC or NCHW.  They
 * differ from the view's strides only in dimensions of size 1, where a view may have any stride,
 * but cuDNN derives the layout from all strides.  Returns false if the view has another layout. */
static bool cudnn_conv_layout(const wb__view *v, int64_t strides[4])
{
    static const int orders[2][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}};
    const bool first = wb__gpu_is_dense(v, false);
    const bool last = wb__gpu_is_dense(v, true) && (v->strides[1] == 1 || !first);
    if (!last && !first) return false;
    int64_t size = 1;
    for (int i = 3; i >= 0; i--) {
        const int at = orders[last][i];
        strides[at] = size;
        size *= v->dims[at];
    }
    return true;
}

static int forbidden_notes(const wb__step *step)
{
    int bits = 1 << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
               1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
    const bool f32 = step->views[0].dtype == WB_F32;
    if (step->deterministic) bits |= 1 << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    /* FFT and Winograd are less accurate than a sum of products in f32 */
    if (!f32 || step->precision == WB__PRECISION_HIGHEST)
        bits |= 1 << CUDNN_NUMERICAL_NOTE_FFT | 1 << CUDNN_NUMERICAL_NOTE_WINOGRAD |
                1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 |
                1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6;
    if (!f32) return bits;
    if (step->precision != WB__PRECISION_MEDIUM)
        bits |= 1 << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    if (step->precision == WB__PRECISION_HIGHEST) bits |= 1 << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    return bits;
}

const wb__dnn_epilogue *wb__dnn_epilogue_of(wb__op op)
{
    static const wb__dnn_epilogue known[] = {
        {WB__OP_NONE, 0, {"cuDNN", "cuDNN bias"}},
        {WB__OP_relu, CUDNN_POINTWISE_RELU_FWD, {"cuDNN relu", "cuDNN bias relu"}},
        {WB__OP_tanh, CUDNN_POINTWISE_TANH_FWD, {"cuDNN tanh", "cuDNN bias tanh"}},
        {WB__OP_sigmoid, CUDNN_POINTWISE_SIGMOID_FWD, {"cuDNN sigmoid", "cuDNN bias sigmoid"}}};
    for (size_t i = 0; i < WB__COUNT(known); i++)
        if (known[i].op == op) return &known[i];
    return NULL;
}

const char *wb__dnn_conv_problem(const wb__step *step, wb__dnn_problem *p)
{
    for (int i = 0; i < 3; i++) {
        const wb__view *v = &step->views[i];
        if (v->ndim != 4 || !cudnn_conv_layout(v, p->views[i].strides)) return "cuDNN: strides";
        for (int k = 0; k < 4; k++)
            if (v->dims[k] < 1) return "cuDNN: nothing to do";
    }
    for (int i = 1; i < step->n_views; i++)
        if (step->views[i].dtype != step->views[0].dtype) return "cuDNN: mixed dtypes";
    if (step->n_views > 3) {
        const wb__view *bias = &step->views[3];
        if (bias->dims[0] > 1 && bias->strides[0] != 1) return "cuDNN: strides of the bias";
        const int64_t dims[4] = {1, bias->dims[0], 1, 1};
        const int64_t strides[4] = {bias->dims[0], 1, bias->dims[0], bias->dims[0]};
        memcpy(p->views[3].dims, dims, sizeof dims);
        memcpy(p->views[3].strides, strides, sizeof strides);
    }
    if (!wb__dnn_epilogue_of(step->epilogue)) return "cuDNN: no such epilogue";
    if (step->variant == WB__CONV_GRAD_INPUT && (step->n_views > 3 || step->epilogue))
        return "cuDNN: no epilogue of a data gradient";
    p->conv = step->conv;
    p->forbidden = forbidden_notes(step);
    return NULL;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static wb__dnn_desc cudnn_conv_convolution(wb__dnn_graph *g, const wb__conv_attr *a)
{
    const int type = CUDNN_DATA_FLOAT, mode = CUDNN_CROSS_CORRELATION;
    const int64_t two = 2, before[2] = {a->pad[0], a->pad[2]}, behind[2] = {a->pad[1], a->pad[3]};
    wb__dnn_desc d = wb__dnn_new_desc(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    wb__dnn_set_attr(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    wb__dnn_set_attr(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    wb__dnn_set_attr(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
    wb__dnn_set_attr(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before);
    wb__dnn_set_attr(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, behind);
    wb__dnn_set_attr(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, a->dilation);
    wb__dnn_set_attr(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, a->stride);
    wb__dnn_finalize(g, d);
    return d;
}

/* cuDNN's names for each variant of convolution.  operand: attributes of the step's views. */
static const struct { int descriptor, operand[3], how, alpha, beta; } cudnn_conv_table[] = {
    [WB__CONV_FORWARD] = {
        CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [WB__CONV_GRAD_INPUT] = {
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [WB__CONV_GRAD_WEIGHT] = {
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static wb__dnn_desc cudnn_conv_between(wb__dnn_graph *g, const wb__dnn_view *y)
{
    return wb__dnn_new_virtual(g, CUDNN_DATA_FLOAT, y->dims, y->strides);
}

/* Adds operations that compute y from the convolution's result x: the bias, if any, the
 * epilogue. */
static void cudnn_conv_epilogue(wb__dnn_graph *g, const wb__dnn_problem *p, wb__dnn_desc x,
                                wb__dnn_desc y)
{
    const bool acts = p->epilogue != WB__OP_NONE;
    if (p->n_views > 3) {
        wb__dnn_desc sum = acts ? cudnn_conv_between(g, &p->views[2]) : y;
        wb__dnn_add_pointwise(g, CUDNN_POINTWISE_ADD, WB__DNN_NO_AXIS, x,
                              wb__dnn_new_tensor(g, 4, &p->views[3]), NULL, sum);
        x = sum;
    }
    if (!acts) return;
    const int mode = wb__dnn_epilogue_of((wb__op)p->epilogue)->mode;
    wb__dnn_add_pointwise(g, mode, WB__DNN_NO_AXIS, x, NULL, NULL, y);
}

void wb__dnn_add_conv(wb__dnn_graph *g, const wb__dnn_problem *p)
{
    const float one = 1, zero = 0;
    const bool fused = p->n_views > 3 || p->epilogue != WB__OP_NONE;
    const int v = p->variant;
    wb__dnn_desc t[3];
    for (int i = 0; i < 3; i++)
        t[i] = i == 2 && fused ? cudnn_conv_between(g, &p->views[2])
                               : wb__dnn_new_tensor(g, i + 1, &p->views[i]);
    wb__dnn_desc how = cudnn_conv_convolution(g, &p->conv),
                 d = wb__dnn_new_desc(g, cudnn_conv_table[v].descriptor);
    for (int i = 0; i < 3; i++)
        wb__dnn_set_attr(g, d, cudnn_conv_table[v].operand[i], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                         &t[i]);
    wb__dnn_set_attr(g, d, cudnn_conv_table[v].how, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    wb__dnn_set_attr(g, d, cudnn_conv_table[v].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    wb__dnn_set_attr(g, d, cudnn_conv_table[v].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    wb__dnn_add_operation(g, d);
    if (fused) cudnn_conv_epilogue(g, p, t[2], wb__dnn_new_tensor(g, 3, &p->views[2]));
}
