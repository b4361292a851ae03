/* The gradient rules of everything that is not an elementwise row: one function each, named in
 * ops.def. With x the input, y the result and g the gradient of y, each states what it gives. */
#include "engine/gradient.h"

#include <string.h>

#define RULE(name)                                                                                 \
    void wb__grad_##name(wb__gradient_walk *w, wb_tensor *node, wb_tensor *g, const bool *wanted,  \
                         wb_tensor **out)
#define UNUSED (void)w, (void)wanted, (void)out, (void)g, (void)node

static wb_tensor *zero(const wb_tensor *like) { return wb__literal(0, (wb_dtype)like->dtype); }

RULE(where)
{
    UNUSED;
    wb_tensor *c = node->in[0], *x = node->in[1], *y = node->in[2];
    if (wanted[1]) out[1] = wb__sum_to(wb_where(c, g, zero(g)), x->ndim, x->dims);
    if (wanted[2]) out[2] = wb__sum_to(wb_where(c, zero(g), g), y->ndim, y->dims);
}

RULE(cast)
{
    UNUSED;
    wb_dtype from = (wb_dtype)node->in[0]->dtype;
    out[0] = wb__dtype_float(from) && wb__dtype_float((wb_dtype)node->dtype) ? wb_astype(g, from)
                                                                             : WB_NONE;
}

/* ---- shape ----------------------------------------------------------------------------------- */

RULE(reshape) { UNUSED; out[0] = wb_reshape_to(g, node->in[0]->ndim, node->in[0]->dims); }
RULE(expand) { UNUSED; out[0] = wb__sum_to(g, node->in[0]->ndim, node->in[0]->dims); }

RULE(permute)
{
    UNUSED;
    int64_t back[WB_MAX_DIMS];
    for (int i = 0; i < node->ndim; i++) back[node->attr[i]] = i;
    out[0] = wb_permute_to(g, node->ndim, back);
}

/* g in the window that was cut out, turned round where the step was -1 */
RULE(slice)
{
    UNUSED;
    int64_t turn[WB_MAX_DIMS] = {0}, starts[WB_MAX_DIMS];
    bool turned = false;
    for (int i = 0; i < node->ndim; i++) {
        bool down = node->attr[node->ndim + i] < 0;
        starts[i] = down ? node->attr[i] - (node->dims[i] - 1) : node->attr[i];
        turn[i] = down ? WB__MAX(node->dims[i] - 1, 0) : 0;
        turned |= down;
    }
    if (turned) g = wb__slice_window(g, turn, node->dims, node->attr + node->ndim);
    out[0] = g ? WB_NONE : NULL;
    if (g) wb__give_window(w, node, 0, g, starts);
}

RULE(assemble)
{
    UNUSED;
    for (uint32_t i = 0; i < node->n_in; i++)
        if (wanted[i])
            out[i] = wb__slice_window(g, node->attr + i * node->ndim, node->in[i]->dims, NULL);
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* g with the folded axes back, of size 1 */
static wb_tensor *unfold(wb_tensor *node, wb_tensor *g)
{
    const wb_tensor *x = node->in[0];
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) dims[i] = node->attr[0] >> i & 1 ? 1 : x->dims[i];
    return wb_reshape_to(g, x->ndim, dims);
}

RULE(sum)
{
    UNUSED;
    const wb_tensor *x = node->in[0];
    const bool leading = !(node->attr[0] & (node->attr[0] + 1));    /* left out, they broadcast */
    out[0] = wb_expand_to(leading ? g : unfold(node, g), x->ndim, x->dims);
}

/* shared by all places that hold the extreme */
RULE(extreme)
{
    UNUSED;
    wb_tensor *x = node->in[0];
    wb_tensor *here = wb_eq(x, unfold(node, node));
    wb_tensor *count =
        wb__reduce(WB__OP_sum, wb_astype(here, (wb_dtype)x->dtype), (unsigned)node->attr[0], true);
    out[0] = wb_where(here, wb_div(unfold(node, g), count), zero(g));
}

/* dx = y (g - sum g y) */
RULE(softmax)
{
    UNUSED;
    unsigned last = 1u << (node->ndim - 1);
    out[0] = wb_mul(node, wb_sub(g, wb__reduce(WB__OP_sum, wb_mul(g, node), last, true)));
}

/* dx = g - exp(y) sum g */
RULE(logsoftmax)
{
    UNUSED;
    unsigned last = 1u << (node->ndim - 1);
    out[0] = wb_sub(g, wb_mul(wb_exp(node), wb__reduce(WB__OP_sum, g, last, true)));
}

/* dx = (g - mean g - y mean(g y)) / sqrt(var + eps) */
RULE(normalise)
{
    UNUSED;
    wb_tensor *x = node->in[0];
    wb_dtype dtype = (wb_dtype)x->dtype;
    unsigned mask = (unsigned)node->attr[0];
    if (dtype == WB_F16 || dtype == WB_BF16) { /* sums of squares do not fit into f16 */
        x = wb_astype(x, WB_F32);
        g = wb_astype(g, WB_F32);
        node = wb__normalise(x, mask, node->number[0].f);
        if (!x || !g || !node) return;
    }
    wb_tensor *variance = wb__mean(wb_square(wb_sub(x, wb__mean(x, mask, true))), mask, true);
    wb_tensor *scale =
        wb_rsqrt(wb_add(variance, wb__literal(node->number[0].f, (wb_dtype)x->dtype)));
    wb_tensor *along = wb_mul(node, wb__mean(wb_mul(g, node), mask, true));
    out[0] = wb_mul(scale, wb_sub(wb_sub(g, wb__mean(g, mask, true)), along));
    if (out[0] && out[0]->dtype != dtype) out[0] = wb_astype(out[0], dtype);
}

/* ---- products -------------------------------------------------------------------------------- */

static void product(wb__gradient_walk *w, wb_tensor *node, int i, wb_tensor *a, wb_tensor *b,
                    bool ta, bool tb, wb_tensor **out)
{
    wb_tensor *x = node->in[i];
    out[i] = WB_NONE;
    if (a->ndim == 2 && b->ndim == 2) wb__give_product(w, node, i, a, b, ta, tb);
    else out[i] = wb__sum_to(wb__matmul(a, b, ta, tb), x->ndim, x->dims);
}

/* y = a'b':  da' = g b'^T,  db' = a'^T g, each turned where its operand was */
RULE(matmul)
{
    wb_tensor *a = node->in[0], *b = node->in[1];
    bool ta = node->attr[0], tb = node->attr[1];
    if (wanted[0] && !ta) product(w, node, 0, g, b, false, !tb, out);
    if (wanted[0] && ta) product(w, node, 0, b, g, tb, true, out);
    if (wanted[1] && !tb) product(w, node, 1, a, g, !ta, false, out);
    if (wanted[1] && tb) product(w, node, 1, g, a, true, ta, out);
}

static wb_tensor *like(wb__op op, const wb_tensor *shape, wb_tensor *p, wb_tensor *q,
                       const wb_tensor *node)
{
    return wb__node(op, (wb_dtype)shape->dtype, shape->ndim, shape->dims, 2, (wb_tensor *[]){p, q},
                    node->n_attr, node->attr);
}

/* The three kinds of convolution are each other's gradients. */
RULE(conv)
{
    UNUSED;
    wb_tensor *x = node->in[0], *k = node->in[1];
    if (wanted[0]) out[0] = like(WB__OP_conv_data, x, g, k, node);
    if (wanted[1]) out[1] = like(WB__OP_conv_weights, k, x, g, node);
}

RULE(conv_data)
{
    UNUSED;
    wb_tensor *dy = node->in[0], *k = node->in[1];
    if (wanted[0]) out[0] = like(WB__OP_conv, dy, g, k, node);
    if (wanted[1]) out[1] = like(WB__OP_conv_weights, k, g, dy, node);
}

RULE(conv_weights)
{
    UNUSED;
    wb_tensor *x = node->in[0], *dy = node->in[1];
    if (wanted[0]) out[0] = like(WB__OP_conv_data, x, dy, g, node);
    if (wanted[1]) out[1] = like(WB__OP_conv, dy, x, g, node);
}

/* ---- pools and rows -------------------------------------------------------------------------- */

RULE(maxpool) { UNUSED; out[0] = like(WB__OP_maxpool_back, node->in[0], node->in[0], g, node); }

/* linear in its second operand; where the maxima are does not move */
RULE(maxpool_back)
{
    UNUSED;
    if (wanted[0]) out[0] = WB_NONE;
    if (wanted[1]) out[1] = like(WB__OP_maxpool_take, node->in[1], node->in[0], g, node);
}

RULE(maxpool_take)
{
    UNUSED;
    if (wanted[0]) out[0] = WB_NONE;
    if (wanted[1]) out[1] = like(WB__OP_maxpool_back, node->in[1], node->in[0], g, node);
}

RULE(meanpool)
{
    UNUSED;
    wb_tensor *x = node->in[0];
    out[0] = wb__node(WB__OP_meanpool_back, (wb_dtype)x->dtype, 4, x->dims, 1, &g, node->n_attr,
                      node->attr);
}

RULE(meanpool_back)
{
    UNUSED;
    wb_tensor *dy = node->in[0];
    out[0] = wb__node(WB__OP_meanpool, (wb_dtype)dy->dtype, 4, dy->dims, 1, &g, node->n_attr,
                      node->attr);
}

RULE(take)
{
    UNUSED;
    wb_tensor *x = node->in[0], *index = node->in[1];
    if (wanted[0])
        out[0] = wb__node(WB__OP_take_add, (wb_dtype)x->dtype, x->ndim, x->dims, 2,
                          (wb_tensor *[]){index, g}, 0, NULL);
}

RULE(take_add)
{
    UNUSED;
    if (wanted[1]) out[1] = wb_take(g, node->in[0]);
}
