/* Convolutions (cross-correlations over two axes), and their gradients. */
#include "base/options.h"
#include "engine/ops/op.h"
#include "engine/ops/sliding.h"

#include <string.h>

/* Reads the options into attributes.  False, with the error set, if they or the operands' dtypes do
 * not fit a convolution. */
static bool read_conv_options(const char *what, wb_tensor *x, wb_tensor *w, wb_tensor *b,
                              const wb_conv_options *given, wb__conv_attr *a, int64_t outpad[2])
{
    wb_conv_options options, *s = &options;
    if (!wb__floating(what, x) || !wb__floating(what, w) ||
        (!b && wb__null(what, "b (WB_NONE for no bias)")))
        return false;
    wb__given g;
    if (!wb__read_options(what, wb_conv_options, s, given, &g)) return false;
    *a = (wb__conv_attr){.groups = s->groups};
    if (!wb__sliding_pair(what, &g, "stride", -1, s->stride, 1, 1) ||
        !wb__sliding_pair(what, &g, "dilation", -1, s->dilation, 1, 1) ||
        !wb__sliding_pair(what, &g, "outpad", -1, s->outpad, 0, 0) ||
        !wb__sliding_pad(what, &g, s->pad, 2))
        return false;
    memcpy(a->stride, s->stride + 1, sizeof a->stride);
    memcpy(a->dilation, s->dilation + 1, sizeof a->dilation);
    memcpy(a->pad, s->pad + 1, sizeof a->pad);
    memcpy(outpad, s->outpad + 1, 2 * sizeof *outpad);
    if (x->dtype == w->dtype) return true;
    wb__fail(WB_ERROR_DTYPE, "%s: dtypes differ: %s · %s", what, wb_describe(x), wb_describe(w));
    return false;
}

static bool channels_fit(const char *what, bool fit, const wb_tensor *x, const wb_tensor *w,
                         int64_t groups)
{
    if (fit) return true;
    wb__fail(WB_ERROR_SHAPE, "%s: channels do not fit: %s · %s in %lld group%s", what,
             wb_describe(x), wb_describe(w), (long long)groups, groups == 1 ? "" : "s");
    return false;
}

static bool refuse_outpad(const char *what, const int64_t *outpad)
{
    if (!outpad[0] && !outpad[1]) return true;
    return wb__fail(WB_ERROR_ARGUMENT, "%s: .outpad is wb_conv_transpose's", what), false;
}

static wb_tensor *add_conv_bias(wb_tensor *y, wb_tensor *b)
{
    return b == WB_NONE ? y : wb_add(y, wb_reshape_array(b, 3, (int64_t[]){b->dims[0], 1, 1}));
}

wb_tensor *wb_conv_with(wb_tensor *x, wb_tensor *w, wb_tensor *b, const wb_conv_options *o)
{
    wb__conv_attr a;
    int64_t outpad[2];
    if (x && wb__operand("conv", x) && wb__in_space(x)) return wb__conv_in_space(x, w, b, o);
    if (!read_conv_options("conv", x, w, b, o, &a, outpad) || !refuse_outpad("conv", outpad))
        return NULL;
    if (x->ndim != 4 || w->ndim != 4)
        return wb__fail_null(WB_ERROR_SHAPE, "conv: %s · %s: want [N,C,H,W] · [K,C/groups,kh,kw]",
                             wb_describe(x), wb_describe(w));
    if (!w->dims[1])
        return wb__fail_null(WB_ERROR_SHAPE, "conv: no channels: %s · %s", wb_describe(x),
                             wb_describe(w));
    const bool fit =
        a.groups >= 1 && x->dims[1] == w->dims[1] * a.groups && !(w->dims[0] % a.groups);
    if (!channels_fit("conv", fit, x, w, a.groups) || !wb__bias_fits("conv", b, w, w->dims[0]) ||
        !wb__sliding_size("conv", x, w->dims + 2, a.stride, a.pad, a.dilation, a.size))
        return NULL;
    int64_t dims[4] = {x->dims[0], w->dims[0], a.size[0], a.size[1]}, size;
    if (!wb__check_dims("conv", 4, dims, &size)) return NULL;
    return add_conv_bias(wb__node(WB__OP_conv, (wb_dtype)x->dtype, 4, dims, 2, (wb_tensor *[]){x,
                                                                                               w},
                                  sizeof a / 8, (int64_t *)&a),
                         b);
}

/* Sets `size` to the result's size along both axes.  This is the input size for which wb_conv
 * returns the size of x.  If there are several, .outpad chooses one.  False, with the error set:
 * the numbers do not fit. */
static bool transposed_size(const wb_tensor *x, const int64_t *k, const int64_t *outpad,
                            const wb__conv_attr *a, int64_t *size)
{
    const char *what = "conv_transpose";
    if (!wb__sliding_valid(what, k, a->stride, a->pad, a->dilation)) return false;
    for (int i = 0; i < 2; i++) {
        const int64_t n = x->dims[2 + i], reach = (k[i] - 1) * a->dilation[i] + 1;
        if (outpad[i] < 0 || outpad[i] >= a->stride[i])
            return wb__fail(WB_ERROR_ARGUMENT,
                            "%s: .outpad {%lld, %lld} is not smaller than the stride %lldx%lld, "
                            "or negative", what, (long long)outpad[0], (long long)outpad[1],
                            (long long)a->stride[0], (long long)a->stride[1]),
                   false;
        const int64_t wide = n > INT32_MAX ? -1 : (n - 1) * a->stride[i] + reach + outpad[i];
        size[i] = wide - a->pad[2 * i] - a->pad[2 * i + 1];
        if (n < 1 || size[i] < 1)
            return wb__fail(WB_ERROR_SHAPE,
                            "%s: nothing is left of %s, windows of %lldx%lld and padding "
                            "%lld,%lld,%lld,%lld", what, wb_describe(x), (long long)k[0],
                            (long long)k[1], (long long)a->pad[0], (long long)a->pad[1],
                            (long long)a->pad[2], (long long)a->pad[3]),
                   false;
    }
    return true;
}

/* A transposed convolution is the gradient of wb_conv with respect to the x of wb_conv. */
wb_tensor *wb_conv_transpose_with(wb_tensor *x, wb_tensor *w, wb_tensor *b,
                                  const wb_conv_options *o)
{
    const char *what = "conv_transpose";
    wb__conv_attr a;
    int64_t outpad[2], out[2], size;
    if (x && wb__operand(what, x) && wb__in_space(x))
        return wb__conv_transpose_in_space(x, w, b, o);
    if (!read_conv_options(what, x, w, b, o, &a, outpad)) return NULL;
    if (x->ndim != 4 || w->ndim != 4)
        return wb__fail_null(WB_ERROR_SHAPE, "%s: %s · %s: want [N,C,H,W] · [C,K/groups,kh,kw]",
                             what, wb_describe(x), wb_describe(w));
    if (!w->dims[0] || !w->dims[1])
        return wb__fail_null(WB_ERROR_SHAPE, "%s: no channels: %s · %s", what, wb_describe(x),
                             wb_describe(w));
    const bool fit = a.groups >= 1 && x->dims[1] == w->dims[0] && w->dims[0] % a.groups == 0;
    if (!channels_fit(what, fit, x, w, a.groups) ||
        !wb__bias_fits(what, b, w, w->dims[1] * a.groups) ||
        !transposed_size(x, w->dims + 2, outpad, &a, out))
        return NULL;
    memcpy(a.size, x->dims + 2, sizeof a.size);
    int64_t dims[4] = {x->dims[0], w->dims[1] * a.groups, out[0], out[1]};
    if (!wb__check_dims(what, 4, dims, &size)) return NULL;
    return add_conv_bias(wb__node(WB__OP_conv_grad_input, (wb_dtype)x->dtype, 4, dims, 2,
                                  (wb_tensor *[]){x, w}, sizeof a / 8, (int64_t *)&a),
                         b);
}

/* Each of the operations conv, conv_grad_input and conv_grad_weight has the other two as its
 * gradients. */
GRADIENT(conv)
{
    wb_tensor *x = node->in[0], *k = node->in[1];
    if (wanted[0]) out[0] = wb__like(WB__OP_conv_grad_input, x, g, k, node);
    if (wanted[1]) out[1] = wb__like(WB__OP_conv_grad_weight, k, x, g, node);
}

GRADIENT(conv_grad_input)
{
    wb_tensor *dy = node->in[0], *k = node->in[1];
    if (wanted[0]) out[0] = wb__like(WB__OP_conv, dy, g, k, node);
    if (wanted[1]) out[1] = wb__like(WB__OP_conv_grad_weight, k, g, dy, node);
}

GRADIENT(conv_grad_weight)
{
    wb_tensor *x = node->in[0], *dy = node->in[1];
    if (wanted[0]) out[0] = wb__like(WB__OP_conv_grad_input, x, dy, g, node);
    if (wanted[1]) out[1] = wb__like(WB__OP_conv, dy, x, g, node);
}

FILL(CONV)
{
    const bool channels_last = v->prefers_channels_last;
    int a = wb__operand_of(m, v, 0), b = wb__operand_of(m, v, 1);
    wb__plan_step *d = wb__last_step(m);
    memcpy(&d->step.conv, wb__attrs_of(m, v), sizeof d->step.conv);
    switch ((wb__conv_kind)d->step.variant) {
    case WB__CONV_FORWARD:
        wb__add_dense(m, a, channels_last);
        wb__add_dense(m, b, false);
        wb__add_any(m, p->result);
        break;
    case WB__CONV_GRAD_INPUT:
        wb__add_any(m, p->result);
        wb__add_dense(m, b, false);
        wb__add_dense(m, a, channels_last);
        break;
    case WB__CONV_GRAD_WEIGHT:
        wb__add_dense(m, a, channels_last);
        wb__add_any(m, p->result);
        wb__add_dense(m, b, channels_last);
        break;
    }
}

bool wb__conv_prefers_channels_last(const wb__attempt *a, const wb__ir *ir, const wb__value *v)
{
    wb__step s = wb__step_blank(a, WB__STEP_CONV);
    const wb__value *in[2] = {wb__ir_in(ir, v, 0), wb__ir_in(ir, v, 1)};
    const wb__value *by_kind[][3] = {[WB__CONV_FORWARD] = {in[0], in[1], v},
                                     [WB__CONV_GRAD_INPUT] = {v, in[1], in[0]},
                                     [WB__CONV_GRAD_WEIGHT] = {in[0], v, in[1]}};
    s.variant = wb__ops[v->op].variant;
    s.n_views = 3;
    for (int i = 0; i < 3; i++) {
        const wb__value *p = by_kind[s.variant][i];
        s.views[i] = (wb__view){.dtype = (wb_dtype)p->dtype, .ndim = p->ndim};
        memcpy(s.views[i].dims, p->dims, sizeof p->dims);
    }
    memcpy(&s.conv, ir->attrs + v->attr, sizeof s.conv);
    return a->device->backend->prefers_channels_last(a->device, &s);
}
