/* Attention as graphs of cuDNN.  cuDNN selects its flash engines by matching exactly this pattern
 * of operations.  (Its single operation for all of attention has no causal mask before cuDNN 9.21.)
 *
 * FORWARD       s = q·kᵀ * scale, masked; m = max s; e = exp(s - m); l = sum e
 *               lse = m + log l; o = (e / l)·v
 * GRAD          delta = sum(do * o)
 *               p = exp(s - lse), with the same mask; dv = pᵀ·do
 *               ds = (do·vᵀ - delta) * p * scale; dk = dsᵀ·q; dq = ds·k
 *
 * Scores and sums are f32; p and ds are rounded to the dtype of q before they are multiplied.  GRAD
 * has two tensors in memory, after cuDNN's own workspace: delta, and dq in f32, to which each block
 * of keys adds its part.  A deterministic gradient needs no dq in f32; it stores ds in cuDNN's
 * workspace. */
#include "backend/cuda/dnn.h"

#include <string.h>

enum { CUDNN_ATTN_Q, CUDNN_ATTN_K, CUDNN_ATTN_V, CUDNN_ATTN_O, CUDNN_ATTN_LSE, CUDNN_ATTN_DO,
       CUDNN_ATTN_DQ, CUDNN_ATTN_DK, CUDNN_ATTN_DV };

/* ---- problems -------------------------------------------------------------------------------- */

const char *wb__dnn_attention_problem(const wb__step *step, wb__dnn_problem *p)
{
    const wb__view *q = &step->views[CUDNN_ATTN_Q], *k = &step->views[CUDNN_ATTN_K],
                   *v = &step->views[CUDNN_ATTN_V];
    const int64_t width = q->dims[3];
    if (!wb__is_half(q->dtype)) return "cuDNN: attention is of f16 or bf16";
    for (int i = 0; i < step->n_views; i++) {
        const wb__view *view = &step->views[i];
        if (view->ndim != 4) return "cuDNN: attention of other than 4 dimensions";
        if (view->dtype != (i == CUDNN_ATTN_LSE ? WB_F32 : q->dtype)) return "cuDNN: mixed dtypes";
        for (int d = 0; d < 4; d++)
            if (view->dims[d] < 1) return "cuDNN: nothing to do";
        if (i == CUDNN_ATTN_LSE) continue;
        if (view->strides[3] != 1 || p->views[i].align < 16) return "cuDNN: strides of attention";
        for (int d = 0; d < 3; d++)
            if (view->strides[d] % 8) return "cuDNN: strides of attention";
    }
    if (width % 8 || width > 128 || v->dims[3] != width) return "cuDNN: width of the heads";
    if (k->dims[1] != q->dims[1] || v->dims[1] != q->dims[1]) return "cuDNN: number of heads";
    if (step->attention.causal && k->dims[2] != q->dims[2]) return "cuDNN: lengths differ";
    const wb__dnn_view *lse = &p->views[CUDNN_ATTN_LSE];
    if (lse->strides[2] != 1 || lse->strides[1] != lse->dims[2] ||
        lse->strides[0] != lse->dims[1] * lse->dims[2])
        return "cuDNN: strides of attention";
    p->views[CUDNN_ATTN_LSE].strides[3] = 1;
    p->causal = step->attention.causal;
    p->forbidden = step->deterministic ? 1 << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC : 0;
    return NULL;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

/* Returns a view with its last two dimensions exchanged. */
static wb__dnn_view transposed_view(const wb__dnn_view *v)
{
    wb__dnn_view t = *v;
    t.dims[2] = v->dims[3], t.dims[3] = v->dims[2];
    t.strides[2] = v->strides[3], t.strides[3] = v->strides[2];
    return t;
}

/* The shapes of two kinds of tensors: scores, [N, H, T, S], and rows of sums, [N, H, T, 1].  N is
 * the size of the batch, and H, T and S are the numbers of heads, queries and keys. */
typedef struct { int64_t scores[4], row[4]; } shapes;

static shapes shapes_of(const wb__dnn_problem *p)
{
    const int64_t *q = p->views[CUDNN_ATTN_Q].dims, s = p->views[CUDNN_ATTN_K].dims[2];
    return (shapes){{q[0], q[1], q[2], s}, {q[0], q[1], q[2], 1}};
}

static wb__dnn_desc cudnn_attn_scores(wb__dnn_graph *g, const shapes *of)
{
    return wb__dnn_new_virtual(g, CUDNN_DATA_FLOAT, of->scores, NULL);
}

/* Adds the operation y = mode(x, b), or y = mode(x) if b is NULL.  Returns y, of shape `dims`. */
static wb__dnn_desc cudnn_attn_pointwise(wb__dnn_graph *g, int mode, wb__dnn_desc x, wb__dnn_desc b,
                                         const int64_t dims[4])
{
    wb__dnn_desc y = wb__dnn_new_virtual(g, CUDNN_DATA_FLOAT, dims, NULL);
    wb__dnn_add_pointwise(g, mode, WB__DNN_NO_AXIS, x, b, NULL, y);
    return y;
}

/* Returns s with minus infinity where the key's index is greater than the query's. */
static wb__dnn_desc cudnn_attn_masked(wb__dnn_graph *g, const shapes *of, wb__dnn_desc s)
{
    wb__dnn_desc row = wb__dnn_new_virtual(g, CUDNN_DATA_INT32, of->scores, NULL);
    wb__dnn_desc column = wb__dnn_new_virtual(g, CUDNN_DATA_INT32, of->scores, NULL);
    wb__dnn_desc where = wb__dnn_new_virtual(g, CUDNN_DATA_BOOLEAN, of->scores, NULL), y;
    wb__dnn_add_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, 2, s, NULL, NULL, row);
    wb__dnn_add_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, 3, s, NULL, NULL, column);
    wb__dnn_add_comparison(g, CUDNN_POINTWISE_CMP_GE, row, column, where);
    y = cudnn_attn_scores(g, of);
    wb__dnn_add_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, WB__DNN_NO_AXIS, s,
                          wb__dnn_new_scalar(g, WB__DNN_MINUS_INFINITY, CUDNN_DATA_FLOAT), where,
                          y);
    return y;
}

static void cudnn_attn_forward(wb__dnn_graph *g, const wb__dnn_problem *p, const shapes *of,
                               const wb__dnn_desc t[])
{
    wb__dnn_desc s = cudnn_attn_scores(g, of), m, l, e, w;
    wb__dnn_add_matmul(g, t[CUDNN_ATTN_Q], t[CUDNN_ATTN_K], s);
    s = cudnn_attn_pointwise(g, CUDNN_POINTWISE_MUL, s,
                             wb__dnn_new_scalar(g, WB__DNN_SCALE, CUDNN_DATA_FLOAT), of->scores);
    if (p->causal) s = cudnn_attn_masked(g, of, s);
    m = wb__dnn_new_virtual(g, CUDNN_DATA_FLOAT, of->row, NULL);
    wb__dnn_add_reduction(g, CUDNN_REDUCE_TENSOR_MAX, s, m);
    s = cudnn_attn_pointwise(g, CUDNN_POINTWISE_SUB, s, m, of->scores);
    e = cudnn_attn_pointwise(g, CUDNN_POINTWISE_EXP, s, NULL, of->scores);
    l = wb__dnn_new_virtual(g, CUDNN_DATA_FLOAT, of->row, NULL);
    wb__dnn_add_reduction(g, CUDNN_REDUCE_TENSOR_ADD, e, l);
    wb__dnn_add_pointwise(g, CUDNN_POINTWISE_ADD, WB__DNN_NO_AXIS, m,
                          cudnn_attn_pointwise(g, CUDNN_POINTWISE_LOG, l, NULL, of->row), NULL,
                          t[CUDNN_ATTN_LSE]);
    w = wb__dnn_new_virtual(g, p->views[CUDNN_ATTN_Q].type, of->scores, NULL);
    wb__dnn_add_pointwise(g, CUDNN_POINTWISE_DIV, WB__DNN_NO_AXIS, e, l, NULL, w);
    wb__dnn_add_matmul(g, w, t[CUDNN_ATTN_V], t[CUDNN_ATTN_O]);
}

/* Transposes the last two dimensions of s, which has the shape of the scores, and rounds the result
 * to the dtype of q. */
static wb__dnn_desc cudnn_attn_transposed(wb__dnn_graph *g, const wb__dnn_problem *p,
                                          const shapes *of, wb__dnn_desc s)
{
    const int64_t *d = of->scores, dims[4] = {d[0], d[1], d[3], d[2]};
    const int64_t strides[4] = {d[1] * d[2] * d[3], d[2] * d[3], 1, d[3]};
    wb__dnn_desc y = wb__dnn_new_virtual(g, p->views[CUDNN_ATTN_Q].type, dims, strides);
    wb__dnn_add_reshape(g, s, y);
    return y;
}

static void cudnn_attn_gradients(wb__dnn_graph *g, const wb__dnn_problem *p, const shapes *of,
                                 const wb__dnn_desc t[])
{
    const wb__dnn_view *q = &p->views[CUDNN_ATTN_Q], *k = &p->views[CUDNN_ATTN_K];
    wb__dnn_desc scale = wb__dnn_new_scalar(g, WB__DNN_SCALE, CUDNN_DATA_FLOAT);
    wb__dnn_desc one = wb__dnn_new_scalar(g, WB__DNN_ONE, CUDNN_DATA_FLOAT);
    wb__dnn_view delta_view = {.dims = {of->row[0], of->row[1], of->row[2], 1},
                               .strides = {of->row[1] * of->row[2], of->row[2], 1, 1},
                               .type = CUDNN_DATA_FLOAT, .align = 16};
    wb__dnn_desc sum = wb__dnn_new_virtual(g, CUDNN_DATA_FLOAT, of->row, NULL);
    wb__dnn_desc delta = wb__dnn_new_tensor(g, WB__DNN_DELTA, &delta_view);
    const wb__dnn_desc products = cudnn_attn_pointwise(g, CUDNN_POINTWISE_MUL, t[CUDNN_ATTN_DO],
                                                       t[CUDNN_ATTN_O], q->dims);
    wb__dnn_add_reduction(g, CUDNN_REDUCE_TENSOR_ADD, products, sum);
    wb__dnn_add_pointwise(g, CUDNN_POINTWISE_MUL, WB__DNN_NO_AXIS, sum, one, NULL, delta);

    wb__dnn_desc s = cudnn_attn_scores(g, of);
    wb__dnn_add_matmul(g, t[CUDNN_ATTN_Q], t[CUDNN_ATTN_K], s);
    s = cudnn_attn_pointwise(g, CUDNN_POINTWISE_MUL, s, scale, of->scores);
    s = cudnn_attn_pointwise(g, CUDNN_POINTWISE_SUB, s, t[CUDNN_ATTN_LSE], of->scores);
    if (p->causal) s = cudnn_attn_masked(g, of, s);
    wb__dnn_desc e = cudnn_attn_pointwise(g, CUDNN_POINTWISE_EXP, s, NULL, of->scores);
    wb__dnn_add_matmul(g, cudnn_attn_transposed(g, p, of, e), t[CUDNN_ATTN_DO], t[CUDNN_ATTN_DV]);

    wb__dnn_desc ds = cudnn_attn_scores(g, of);
    wb__dnn_add_matmul(g, t[CUDNN_ATTN_DO], t[CUDNN_ATTN_V], ds);
    ds = cudnn_attn_pointwise(g, CUDNN_POINTWISE_SUB, ds, delta, of->scores);
    ds = cudnn_attn_pointwise(g, CUDNN_POINTWISE_MUL, ds, e, of->scores);
    ds = cudnn_attn_pointwise(g, CUDNN_POINTWISE_MUL, ds, scale, of->scores);
    wb__dnn_add_matmul(g, cudnn_attn_transposed(g, p, of, ds), t[CUDNN_ATTN_Q], t[CUDNN_ATTN_DK]);

    wb__dnn_desc straight = wb__dnn_new_virtual(g, k->type, k->dims, k->strides);
    wb__dnn_add_reshape(g, t[CUDNN_ATTN_K], straight);
    if (p->forbidden) {
        wb__dnn_add_matmul(g, ds, straight, t[CUDNN_ATTN_DQ]);
        return;
    }
    wb__dnn_view dense = {.dims = {q->dims[0], q->dims[1], q->dims[2], q->dims[3]},
                          .strides = {q->dims[1] * q->dims[2] * q->dims[3],
                                      q->dims[2] * q->dims[3], q->dims[3], 1},
                          .type = CUDNN_DATA_FLOAT, .align = 16};
    wb__dnn_desc dq = wb__dnn_new_tensor(g, WB__DNN_DQ, &dense);
    wb__dnn_add_matmul(g, ds, straight, dq);
    wb__dnn_add_pointwise(g, CUDNN_POINTWISE_IDENTITY, WB__DNN_NO_AXIS, dq, NULL, NULL,
                          t[CUDNN_ATTN_DQ]);
}

void wb__dnn_add_attention(wb__dnn_graph *g, const wb__dnn_problem *p)
{
    const shapes of = shapes_of(p);
    const bool backwards = p->variant == WB__ATTENTION_GRAD;
    wb__dnn_desc t[9] = {NULL};
    for (int i = 0; i < p->n_views; i++) {
        const wb__dnn_view other = transposed_view(&p->views[i]);
        const bool turn = i == CUDNN_ATTN_K || (i == CUDNN_ATTN_V && backwards);
        t[i] = wb__dnn_new_tensor(g, i + 1, turn ? &other : &p->views[i]);
    }
    if (backwards) cudnn_attn_gradients(g, p, &of, t);
    else cudnn_attn_forward(g, p, &of, t);
}

int wb__dnn_list_extras(const wb__dnn_problem *p, wb__dnn_extra extras[2])
{
    if (p->kind != WB__STEP_ATTENTION || p->variant != WB__ATTENTION_GRAD) return 0;
    const int64_t *q = p->views[CUDNN_ATTN_Q].dims;
    const size_t rows = (size_t)(q[0] * q[1] * q[2]);
    extras[0] = (wb__dnn_extra){WB__DNN_DELTA, rows * 4};
    extras[1] = (wb__dnn_extra){WB__DNN_DQ, rows * (size_t)q[3] * 4};
    return p->forbidden ? 1 : 2;
}
