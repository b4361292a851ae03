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

enum { Q, K, V, O, LSE, DO, DQ, DK, DV };

/* ---- problems -------------------------------------------------------------------------------- */

const char *wb__dnn_attention_problem(const wb__step *step, wb__dnn_problem *p)
{
    const wb__view *q = &step->views[Q], *k = &step->views[K], *v = &step->views[V];
    const int64_t width = q->dims[3];
    if (!wb__is_half(q->dtype)) return "cuDNN: attention is of f16 or bf16";
    for (int i = 0; i < step->n_views; i++) {
        const wb__view *view = &step->views[i];
        if (view->ndim != 4) return "cuDNN: attention of other than 4 dimensions";
        if (view->dtype != (i == LSE ? WB_F32 : q->dtype)) return "cuDNN: mixed dtypes";
        for (int d = 0; d < 4; d++)
            if (view->dims[d] < 1) return "cuDNN: nothing to do";
        if (i == LSE) continue;
        if (view->strides[3] != 1 || p->views[i].align < 16) return "cuDNN: strides of attention";
        for (int d = 0; d < 3; d++)
            if (view->strides[d] % 8) return "cuDNN: strides of attention";
    }
    if (width % 8 || width > 128 || v->dims[3] != width) return "cuDNN: width of the heads";
    if (k->dims[1] != q->dims[1] || v->dims[1] != q->dims[1]) return "cuDNN: number of heads";
    if (step->attention.causal && k->dims[2] != q->dims[2]) return "cuDNN: lengths differ";
    const wb__dnn_view *lse = &p->views[LSE];
    if (lse->strides[2] != 1 || lse->strides[1] != lse->dims[2] ||
        lse->strides[0] != lse->dims[1] * lse->dims[2])
        return "cuDNN: strides of attention";
    p->views[LSE].strides[3] = 1;
    p->causal = step->attention.causal;
    p->forbidden = step->deterministic ? 1 << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC : 0;
    return NULL;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

/* A view with its last two dimensions exchanged. */
static wb__dnn_view transposed_view(const wb__dnn_view *v)
{
    wb__dnn_view t = *v;
    t.dims[2] = v->dims[3], t.dims[3] = v->dims[2];
    t.strides[2] = v->strides[3], t.strides[3] = v->strides[2];
    return t;
}

/* Shapes of tensors: `scores` is [N, H, T, S] and `row` is [N, H, T, 1].  N is the size of the
 * batch, and H, T and S are the numbers of heads, queries and keys. */
typedef struct { int64_t scores[4], row[4]; } shapes;

static shapes shapes_of(const wb__dnn_problem *p)
{
    const int64_t *q = p->views[Q].dims, s = p->views[K].dims[2];
    return (shapes){{q[0], q[1], q[2], s}, {q[0], q[1], q[2], 1}};
}

static wb__dnn_desc scores(wb__dnn_graph *g, const shapes *of)
{
    return wb__dnn_between(g, CUDNN_DATA_FLOAT, of->scores, NULL);
}

/* Adds the operation y = mode(x, b), or y = mode(x) if b is NULL.  Returns y, of shape `dims`. */
static wb__dnn_desc pointwise(wb__dnn_graph *g, int mode, wb__dnn_desc x, wb__dnn_desc b,
                              const int64_t dims[4])
{
    wb__dnn_desc y = wb__dnn_between(g, CUDNN_DATA_FLOAT, dims, NULL);
    wb__dnn_pointwise(g, mode, WB__DNN_NO_AXIS, x, b, NULL, y);
    return y;
}

/* Masks s: minus infinity where the key's index is greater than the query's. */
static wb__dnn_desc masked(wb__dnn_graph *g, const shapes *of, wb__dnn_desc s)
{
    wb__dnn_desc row = wb__dnn_between(g, CUDNN_DATA_INT32, of->scores, NULL);
    wb__dnn_desc column = wb__dnn_between(g, CUDNN_DATA_INT32, of->scores, NULL);
    wb__dnn_desc where = wb__dnn_between(g, CUDNN_DATA_BOOLEAN, of->scores, NULL), y;
    wb__dnn_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, 2, s, NULL, NULL, row);
    wb__dnn_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, 3, s, NULL, NULL, column);
    wb__dnn_compare(g, CUDNN_POINTWISE_CMP_GE, row, column, where);
    y = scores(g, of);
    wb__dnn_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, WB__DNN_NO_AXIS, s,
                      wb__dnn_number(g, WB__DNN_MINUS_INFINITY, CUDNN_DATA_FLOAT), where, y);
    return y;
}

static void forward(wb__dnn_graph *g, const wb__dnn_problem *p, const shapes *of,
                    const wb__dnn_desc t[])
{
    wb__dnn_desc s = scores(g, of), m, l, e, w;
    wb__dnn_matmul(g, t[Q], t[K], s);
    s = pointwise(g, CUDNN_POINTWISE_MUL, s, wb__dnn_number(g, WB__DNN_SCALE, CUDNN_DATA_FLOAT),
               of->scores);
    if (p->causal) s = masked(g, of, s);
    m = wb__dnn_between(g, CUDNN_DATA_FLOAT, of->row, NULL);
    wb__dnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, m);
    s = pointwise(g, CUDNN_POINTWISE_SUB, s, m, of->scores);
    e = pointwise(g, CUDNN_POINTWISE_EXP, s, NULL, of->scores);
    l = wb__dnn_between(g, CUDNN_DATA_FLOAT, of->row, NULL);
    wb__dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, l);
    wb__dnn_pointwise(g, CUDNN_POINTWISE_ADD, WB__DNN_NO_AXIS, m,
                      pointwise(g, CUDNN_POINTWISE_LOG, l, NULL, of->row), NULL, t[LSE]);
    w = wb__dnn_between(g, p->views[Q].type, of->scores, NULL);
    wb__dnn_pointwise(g, CUDNN_POINTWISE_DIV, WB__DNN_NO_AXIS, e, l, NULL, w);
    wb__dnn_matmul(g, w, t[V], t[O]);
}

/* Transposes the last two dimensions of s, which has the shape of the scores, and rounds the result
 * to the dtype of q. */
static wb__dnn_desc transposed(wb__dnn_graph *g, const wb__dnn_problem *p, const shapes *of,
                               wb__dnn_desc s)
{
    const int64_t *d = of->scores, dims[4] = {d[0], d[1], d[3], d[2]};
    const int64_t strides[4] = {d[1] * d[2] * d[3], d[2] * d[3], 1, d[3]};
    wb__dnn_desc y = wb__dnn_between(g, p->views[Q].type, dims, strides);
    wb__dnn_reshape(g, s, y);
    return y;
}

static void back(wb__dnn_graph *g, const wb__dnn_problem *p, const shapes *of,
                 const wb__dnn_desc t[])
{
    const wb__dnn_view *q = &p->views[Q], *k = &p->views[K];
    wb__dnn_desc scale = wb__dnn_number(g, WB__DNN_SCALE, CUDNN_DATA_FLOAT);
    wb__dnn_desc one = wb__dnn_number(g, WB__DNN_ONE, CUDNN_DATA_FLOAT);
    wb__dnn_view delta_view = {.dims = {of->row[0], of->row[1], of->row[2], 1},
                               .strides = {of->row[1] * of->row[2], of->row[2], 1, 1},
                               .type = CUDNN_DATA_FLOAT, .align = 16};
    wb__dnn_desc sum = wb__dnn_between(g, CUDNN_DATA_FLOAT, of->row, NULL);
    wb__dnn_desc delta = wb__dnn_tensor(g, WB__DNN_DELTA, &delta_view);
    wb__dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD,
                   pointwise(g, CUDNN_POINTWISE_MUL, t[DO], t[O], q->dims), sum);
    wb__dnn_pointwise(g, CUDNN_POINTWISE_MUL, WB__DNN_NO_AXIS, sum, one, NULL, delta);

    wb__dnn_desc s = scores(g, of);
    wb__dnn_matmul(g, t[Q], t[K], s);
    s = pointwise(g, CUDNN_POINTWISE_MUL, s, scale, of->scores);
    s = pointwise(g, CUDNN_POINTWISE_SUB, s, t[LSE], of->scores);
    if (p->causal) s = masked(g, of, s);
    wb__dnn_desc e = pointwise(g, CUDNN_POINTWISE_EXP, s, NULL, of->scores);
    wb__dnn_matmul(g, transposed(g, p, of, e), t[DO], t[DV]);

    wb__dnn_desc ds = scores(g, of);
    wb__dnn_matmul(g, t[DO], t[V], ds);
    ds = pointwise(g, CUDNN_POINTWISE_SUB, ds, delta, of->scores);
    ds = pointwise(g, CUDNN_POINTWISE_MUL, ds, e, of->scores);
    ds = pointwise(g, CUDNN_POINTWISE_MUL, ds, scale, of->scores);
    wb__dnn_matmul(g, transposed(g, p, of, ds), t[Q], t[DK]);

    wb__dnn_desc straight = wb__dnn_between(g, k->type, k->dims, k->strides);
    wb__dnn_reshape(g, t[K], straight);
    if (p->forbidden) {
        wb__dnn_matmul(g, ds, straight, t[DQ]);
        return;
    }
    wb__dnn_view dense = {.dims = {q->dims[0], q->dims[1], q->dims[2], q->dims[3]},
                          .strides = {q->dims[1] * q->dims[2] * q->dims[3],
                                      q->dims[2] * q->dims[3], q->dims[3], 1},
                          .type = CUDNN_DATA_FLOAT, .align = 16};
    wb__dnn_desc dq = wb__dnn_tensor(g, WB__DNN_DQ, &dense);
    wb__dnn_matmul(g, ds, straight, dq);
    wb__dnn_pointwise(g, CUDNN_POINTWISE_IDENTITY, WB__DNN_NO_AXIS, dq, NULL, NULL, t[DQ]);
}

void wb__dnn_attention(wb__dnn_graph *g, const wb__dnn_problem *p)
{
    const shapes of = shapes_of(p);
    const bool backwards = p->variant == WB__ATTENTION_GRAD;
    wb__dnn_desc t[9] = {NULL};
    for (int i = 0; i < p->n_views; i++) {
        const wb__dnn_view other = transposed_view(&p->views[i]);
        const bool turn = i == K || (i == V && backwards);
        t[i] = wb__dnn_tensor(g, i + 1, turn ? &other : &p->views[i]);
    }
    if (backwards) back(g, p, &of, t);
    else forward(g, p, &of, t);
}

int wb__dnn_extras(const wb__dnn_problem *p, wb__dnn_extra extras[2])
{
    if (p->kind != WB__STEP_ATTENTION || p->variant != WB__ATTENTION_GRAD) return 0;
    const int64_t *q = p->views[Q].dims;
    const size_t rows = (size_t)(q[0] * q[1] * q[2]);
    extras[0] = (wb__dnn_extra){WB__DNN_DELTA, rows * 4};
    extras[1] = (wb__dnn_extra){WB__DNN_DQ, rows * (size_t)q[3] * 4};
    return p->forbidden ? 1 : 2;
}
