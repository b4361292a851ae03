/* Draws products, convolutions, pools, attention, losses, layers and gradients over all kinds of
 * operands. */
#include "graph_fuzz.h"

#include <math.h>
#include <string.h>

static int64_t positive_size(const drawing *d)
{
    int64_t n = draw_size(d);
    return n ? n : 1;
}

static wb_dtype floating(const drawing *d) { return is_float(d->main) ? d->main : WB_F32; }

static bool add(drawing *d, instruction *s)
{
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i] < 0) return false;
    return add_step(d, s) >= 0;
}

/* ---- products -------------------------------------------------------------------------------- */

static bool draw_matmul(drawing *d, instruction *s)
{
    int i = operand_any(d, FLOATS, 1, 5);
    if (i < 0) return false;
    const value x = d->v[i];
    int64_t k = x.dims[x.ndim - 1], dims[WB_MAX_DIMS];
    int ndim = 0;
    if (draw_chance(3))
        for (int a = 0; a < x.ndim - 2; a++) dims[ndim++] = draw_chance(3) ? 1 : x.dims[a];
    dims[ndim++] = k;
    if (ndim > 1 || !draw_chance(4)) dims[ndim++] = draw_size(d);
    s->in[0] = i;
    s->in[1] = operand_like(d, x.dtype, ndim, dims);
    s->n_in = 2;
    return add(d, s);
}

static bool draw_linear(drawing *d, instruction *s)
{
    int i = operand_any(d, FLOATS, 1, 5);
    if (i < 0) return false;
    const value x = d->v[i];
    int64_t out = draw_size(d);
    s->in[0] = i;
    s->in[1] = operand_like(d, x.dtype, 2, (int64_t[]){out, x.dims[x.ndim - 1]});
    s->n_in = 2;
    if (!draw_chance(4)) s->in[s->n_in++] = operand_like(d, x.dtype, 1, &out);
    return add(d, s);
}

static bool draw_conv(drawing *d, instruction *s)
{
    wb_dtype t = floating(d);
    int64_t groups = draw_chance(3) ? draw_between(2, 3) : 1;
    int64_t each = draw_between(1, draw_chance(8) ? 8 : 3),
            out = groups * draw_between(1, draw_chance(8) ? 9 : 3);
    int64_t dims[4] = {draw_between(draw_chance(30) ? 0 : 1, 2), groups * each, draw_between(1, 7),
                       draw_between(1, 7)};
    int64_t kernel[4] = {out, each, draw_between(1, 3), draw_between(1, 3)};
    int64_t p[9] = {draw_between(1, 2), draw_between(1, 2), 0, 0, 0, 0, 1, 1, groups};
    for (int i = 2; i < 6; i++) p[i] = draw_chance(2) ? 0 : draw_between(0, 2);
    for (int i = 6; i < 8; i++) p[i] = draw_chance(4) ? 2 : 1;
    memcpy(s->p, p, sizeof p);
    s->n = 9;
    s->in[0] = operand_like(d, t, 4, dims);
    s->in[1] = operand_like(d, t, 4, kernel);
    s->n_in = 2;
    if (!draw_chance(3)) s->in[s->n_in++] = operand_like(d, t, 1, &out);
    return add(d, s);
}

static bool draw_pool(drawing *d, instruction *s)
{
    int64_t dims[4] = {draw_between(1, 2), draw_between(1, 3), draw_between(1, 7),
                       draw_between(1, 7)};
    int i = draw_chance(2) ? operand_any(d, FLOATS, 4, 4) : operand_like(d, floating(d), 4, dims);
    s->in[0] = i;
    s->n_in = 1;
    s->n = 8;
    for (int a = 0; a < 2; a++) {
        s->p[a] = draw_between(1, 3);
        s->p[2 + a] = draw_between(1, 3);
        s->p[4 + 2 * a] = draw_between(0, s->p[a] - 1);
        s->p[5 + 2 * a] = draw_between(0, s->p[a] - 1);
    }
    return add(d, s);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool draw_rows(drawing *d, instruction *s)
{
    int i = operand_any(d, FLOATS, s->op == OP_DROPOUT ? 0 : 1, WB_MAX_DIMS);
    if (i < 0) return false;
    const value *x = &d->v[i];
    s->in[s->n_in++] = i;
    s->n = 1;
    s->p[0] = x->ndim ? draw_between(-x->ndim, x->ndim - 1) : 0;
    if (s->op == OP_NORMALISE) {
        s->p[0] = draw_between(1, x->ndim);
        s->number = draw_chance(2) ? 0.25 : 1e-3;
    } else if (s->op == OP_DROPOUT) {
        s->number = (double[]){0.5, 0.25, 0.75, 0, 1}[draw_between(0, 4)];
    }
    return add(d, s);
}

static bool draw_attention(drawing *d, instruction *s)
{
    wb_dtype t = floating(d);
    int64_t n = draw_between(1, 2), h = draw_between(1, 2), tq = positive_size(d), tk = tq,
            width = draw_between(1, 5);
    int64_t e = draw_chance(3) ? draw_between(1, 4) : width;
    int lead = draw_chance(3) ? (int)draw_between(0, 3) : 2;
    if (draw_chance(3)) tk = positive_size(d);
    if (tq > 17 || tk > 17) return false;
    int64_t q[WB_MAX_DIMS] = {n, h, h}, k[WB_MAX_DIMS] = {n, h, h}, v[WB_MAX_DIMS] = {n, h, h};
    if (lead && draw_chance(6)) k[0] = v[0] = 1;
    q[lead] = tq, q[lead + 1] = width;
    k[lead] = tk, k[lead + 1] = width;
    v[lead] = tk, v[lead + 1] = e;
    s->in[0] = operand_like(d, t, lead + 2, q);
    s->in[1] =
        draw_chance(6) && tq == tk && k[0] == q[0] ? s->in[0] : operand_like(d, t, lead + 2, k);
    s->in[2] = operand_like(d, t, lead + 2, v);
    s->n_in = 3;
    if (draw_chance(2)) {
        instruction causal = {.op = OP_CAUSAL, .n = 2, .p = {tq, tk}};
        s->in[s->n_in++] = draw_chance(2) ? add_step(d, &causal)
                                          : operand_like(d, WB_BOOL, 2, (int64_t[]){tq, tk});
    }
    return add(d, s);
}

static bool draw_take(drawing *d, instruction *s)
{
    int i = operand_any(d, ANY, 1, 5);
    if (i < 0) return false;
    int64_t dims[2] = {draw_size(d), draw_between(1, 3)};
    static const wb_dtype integers[] = {WB_I32, WB_I64, WB_U8, WB_I8};
    s->in[0] = i;
    s->in[1] = draw_chance(3)
                   ? operand_any(d, INTEGERS, 0, 2)
                   : operand_like(d, integers[draw_between(0, 3)], (int)draw_between(0, 2), dims);
    s->n_in = 2;
    return add(d, s);
}

static bool draw_onehot(drawing *d, instruction *s)
{
    s->in[s->n_in++] = operand_any(d, INTEGERS, 0, 3);
    s->n = 1;
    s->p[0] = draw_between(1, 6);
    return add(d, s);
}

/* ---- losses, layers, gradients --------------------------------------------------------------- */

static bool draw_loss(drawing *d, instruction *s)
{
    int i = operand_any(d, FLOATS, 0, 4);
    if (i < 0) return false;
    const value x = d->v[i];
    s->row = (int)draw_between(0, N_LOSS - 1);
    s->number = draw_chance(2) ? 0.5 : 1;
    if (s->row == L_crossentropy || s->row == L_binarycrossentropy) {
        instruction sure = {.op = OP_UNARY, .row = U_sigmoid, .n_in = 1, .in = {i}};
        if ((i = add_step(d, &sure)) < 0) return false;
    }
    s->in[0] = i;
    s->in[1] = operand_like(d, x.dtype, x.ndim, x.dims);
    s->n_in = 2;
    return add(d, s);
}

static bool draw_norm_layer(drawing *d, instruction *s)
{
    int i = operand_any(d, FLOATS, s->op == OP_BATCHNORM ? 2 : 1, 5);
    if (i < 0) return false;
    const value x = d->v[i];
    int axes = x.ndim && draw_chance(3) ? 2 : 1;
    if (axes > x.ndim) axes = x.ndim;
    int ndim = s->op == OP_BATCHNORM ? 1 : axes;
    const int64_t *dims = s->op == OP_BATCHNORM ? x.dims + 1 : x.dims + x.ndim - axes;
    s->in[0] = i;
    s->n_in = 3;
    for (int k = 1; k < 3; k++) {
        s->in[k] = operand_leaf(d, x.dtype, ndim, dims);
        if (s->in[k] >= 0) d->p->step[s->in[k]].op = OP_LEAF;
    }
    return add(d, s);
}

/* A gradient of an earlier value of one element, or of the sum or mean of an earlier value. */
static bool draw_gradient(drawing *d, instruction *s)
{
    int of = operand_any(d, FLOATS, 0, WB_MAX_DIMS), by = -1;
    if (of < 0) return false;
    if (s->op == OP_JACOBIAN && d->v[of].size > 12) return false;
    if (s->op == OP_GRADIENT && (d->v[of].size != 1 || d->v[of].ndim > 2)) {
        instruction sum = {
            .op = OP_REDUCE, .row = draw_chance(3) ? R_mean : R_sum, .n_in = 1, .in = {of}};
        if (draw_chance(2)) {
            instruction square = {.op = OP_UNARY, .row = U_square, .n_in = 1, .in = {of}};
            int y = add_step(d, &square);
            if (y >= 0) sum.in[0] = y;
        }
        if ((of = add_step(d, &sum)) < 0) return false;
    }
    for (int tries = 0; tries < 20 && by < 0; tries++) {
        int i = (int)draw_between(0, of);
        if (is_float(d->v[i].dtype) && (d->p->step[i].op <= OP_VARIABLE || draw_chance(3))) by = i;
    }
    s->in[0] = of;
    s->in[1] = by;
    s->n_in = 2;
    if (by >= 0 && s->op == OP_JACOBIAN && d->v[by].size > 12) return false;
    return add(d, s);
}

static bool draw_assign(drawing *d, instruction *s)
{
    int to = -1;
    for (int tries = 0; tries < 20 && to < 0; tries++) {
        int i = (int)draw_between(0, d->p->n ? d->p->n - 1 : 0);
        if (d->p->n && d->p->step[i].op == OP_VARIABLE) to = i;
    }
    if (to < 0) return false;
    s->in[0] = to;
    s->in[1] = operand_like(d, d->v[to].dtype, d->v[to].ndim, d->v[to].dims);
    s->n_in = 2;
    return s->in[1] != to && add(d, s);
}

bool draw_product(drawing *d, op_kind op)
{
    instruction s = {.op = op};
    switch (op) {
    case OP_MATMUL: return draw_matmul(d, &s);
    case OP_LINEAR: return draw_linear(d, &s);
    case OP_CONV: return draw_conv(d, &s);
    case OP_MAXPOOL: case OP_MEANPOOL: return draw_pool(d, &s);
    case OP_SOFTMAX: case OP_LOGSOFTMAX: case OP_SOFTMAX_OVER: case OP_LOGSOFTMAX_OVER:
    case OP_NORMALISE: case OP_DROPOUT:
        return draw_rows(d, &s);
    case OP_ATTENTION: return draw_attention(d, &s);
    case OP_TAKE: return draw_take(d, &s);
    case OP_ONEHOT: return draw_onehot(d, &s);
    case OP_LOSS: return draw_loss(d, &s);
    case OP_LAYERNORM: case OP_BATCHNORM: return draw_norm_layer(d, &s);
    case OP_GRADIENT: case OP_JACOBIAN: return draw_gradient(d, &s);
    case OP_ASSIGN: return draw_assign(d, &s);
    default: return false;
    }
}
