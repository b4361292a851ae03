/* The reference results of products, convolutions, pools, attention, losses, layers and
 * gradients. */
#include "graph_fuzz.h"

#include <math.h>
#include <string.h>

enum { MOST_TERMS = 4096 };

static int left[MOST_TERMS + 1], right[MOST_TERMS + 1];       /* factors of terms, and a bias */

/* ---- matrix products ------------------------------------------------------------------------- */

/* The sum of left[i] * right[i] and a bias, whose terms the library may add in any order. */
static int dot_with_bias(wb_dtype t, int n, const value *b, int64_t place)
{
    int product = num_dot(t, n, left, right);
    if (!b) return product;
    left[n] = b->at[place];
    right[n] = num_real(t, 1);
    int y = num_dot(t, n + 1, left, right);
    if (t != wide(t) && numbers[product].error > 0)     /* rounded before the bias, perhaps */
        numbers[y].error += numbers[product].error;
    return y;
}

/* a [..., m, k] · b [..., k, n]; transposed: b is [..., n, k] */
static bool product(const value *a, const value *b, bool transposed, const value *bias, value *y)
{
    if (a->ndim < 2 || b->ndim < 2 || a->dtype != b->dtype || !is_float(a->dtype)) return false;
    value outer_a = *a, outer_b = *b;
    outer_a.ndim -= 2;
    outer_b.ndim -= 2;
    int64_t dims[WB_MAX_DIMS + 2], m = a->dims[a->ndim - 2], k = a->dims[a->ndim - 1];
    int64_t inner = b->dims[b->ndim - (transposed ? 1 : 2)],
            n = b->dims[b->ndim - (transposed ? 2 : 1)];
    int ndim;
    if (k != inner || !broadcast(&outer_a, &outer_b, &ndim, dims)) return false;
    dims[ndim] = m;
    dims[ndim + 1] = n;
    if (!new_value(y, a->dtype, ndim + 2, dims)) return false;
    int64_t index[WB_MAX_DIMS] = {0};
    for (int64_t e = 0; e < y->size; e++, next_index(ndim + 2, dims, index)) {
        int64_t at_a = 0, at_b = 0, row = index[ndim], column = index[ndim + 1];
        for (int i = 0; i < outer_a.ndim; i++)
            at_a = at_a * a->dims[i] + (a->dims[i] == 1 ? 0 : index[ndim - outer_a.ndim + i]);
        for (int i = 0; i < outer_b.ndim; i++)
            at_b = at_b * b->dims[i] + (b->dims[i] == 1 ? 0 : index[ndim - outer_b.ndim + i]);
        for (int64_t i = 0; i < k; i++) {
            left[i] = a->at[(at_a * m + row) * k + i];
            right[i] =
                b->at[transposed ? (at_b * n + column) * k + i : (at_b * k + i) * n + column];
        }
        y->at[e] = dot_with_bias(y->dtype, (int)k, bias, column);
    }
    return true;
}

/* A one-dimensional x is a row, a one-dimensional w a column. */
static bool matmul(const value *x, const value *w, value *y)
{
    value a = *x, b = *w;
    if (!x->ndim || !w->ndim) return false;
    if (x->ndim == 1) a.ndim = 2, a.dims[0] = 1, a.dims[1] = x->dims[0];
    if (w->ndim == 1) b.ndim = 2, b.dims[0] = w->dims[0], b.dims[1] = 1;
    if (!product(&a, &b, false, NULL, y)) return false;
    int last = y->ndim - 1;
    if (x->ndim == 1) {
        y->dims[last - 1] = y->dims[last];
        y->ndim--;
    }
    if (w->ndim == 1) y->ndim--;
    return true;
}

static bool linear(const instruction *s, const value *v, value *y)
{
    const value *x = &v[s->in[0]], *w = &v[s->in[1]], *b = s->n_in > 2 ? &v[s->in[2]] : NULL;
    if (w->ndim != 2 || !x->ndim) return false;
    if (b && (b->ndim != 1 || b->dims[0] != w->dims[0] || b->dtype != w->dtype)) return false;
    value rows = *x;
    rows.ndim = 2;
    rows.dims[1] = x->dims[x->ndim - 1];
    rows.dims[0] = 1;
    for (int i = 0; i < x->ndim - 1; i++) rows.dims[0] *= x->dims[i];
    value flat;
    int64_t dims[WB_MAX_DIMS];
    memcpy(dims, x->dims, sizeof dims);
    dims[x->ndim - 1] = w->dims[0];
    if (!product(&rows, w, true, b, &flat) || !new_value(y, x->dtype, x->ndim, dims)) return false;
    memcpy(y->at, flat.at, (size_t)y->size * sizeof *y->at);
    return true;
}

/* ---- windows --------------------------------------------------------------------------------- */

typedef struct { int64_t window[2], stride[2], pad[4], dilation[2], size[2]; } windows;

static bool place_windows(const value *x, windows *w)
{
    for (int i = 0; i < 2; i++) {
        int64_t padded = x->dims[2 + i] + w->pad[2 * i] + w->pad[2 * i + 1];
        int64_t reach = (w->window[i] - 1) * w->dilation[i] + 1;
        if (w->window[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1 || padded < reach)
            return false;
        if (w->pad[2 * i] < 0 || w->pad[2 * i + 1] < 0) return false;
        w->size[i] = (padded - reach) / w->stride[i] + 1;
    }
    return true;
}

/* p: stride 2, pad 4, dilation 2, groups */
static bool conv(const instruction *s, const value *v, value *y)
{
    const value *x = &v[s->in[0]], *k = &v[s->in[1]], *b = s->n_in > 2 ? &v[s->in[2]] : NULL;
    int64_t groups = s->p[8];
    if (x->ndim != 4 || k->ndim != 4 || x->dtype != k->dtype || !is_float(x->dtype)) return false;
    if (groups < 1 || !k->dims[1] || x->dims[1] != k->dims[1] * groups || k->dims[0] % groups)
        return false;
    if (b && (b->ndim != 1 || b->dims[0] != k->dims[0] || b->dtype != k->dtype)) return false;
    windows w = {.window = {k->dims[2], k->dims[3]}};
    memcpy(w.stride, s->p, sizeof w.stride);
    memcpy(w.pad, s->p + 2, sizeof w.pad);
    memcpy(w.dilation, s->p + 6, sizeof w.dilation);
    if (!place_windows(x, &w)) return false;
    int64_t dims[4] = {x->dims[0], k->dims[0], w.size[0], w.size[1]}, at[4] = {0};
    if (k->dims[1] * k->dims[2] * k->dims[3] > MOST_TERMS) return false;
    if (!new_value(y, x->dtype, 4, dims)) return false;
    for (int64_t e = 0; e < y->size; e++, next_index(4, dims, at)) {
        int n = 0;
        bool doubtful = false;
        int64_t first = at[1] / (k->dims[0] / groups) * k->dims[1], t[3] = {0};
        do {
            int64_t row = at[2] * w.stride[0] + t[1] * w.dilation[0] - w.pad[0];
            int64_t column = at[3] * w.stride[1] + t[2] * w.dilation[1] - w.pad[2];
            int weight = k->at[at_index(k, (int64_t[]){at[1], t[0], t[1], t[2]})];
            if (row < 0 || row >= x->dims[2] || column < 0 || column >= x->dims[3]) {
                doubtful |= !isfinite(numbers[weight].v);   /* may be multiplied by the padding */
                continue;
            }
            left[n] = x->at[at_index(x, (int64_t[]){at[0], first + t[0], row, column})];
            right[n++] = weight;
        } while (next_index(3, k->dims + 1, t));
        y->at[e] = dot_with_bias(y->dtype, n, b, at[1]);
        if (doubtful) numbers[y->at[e]].error = INFINITY;
    }
    return true;
}

/* p: window 2, stride 2, pad 4 */
static bool pool(const instruction *s, const value *x, value *y)
{
    if (x->ndim != 4 || !is_float(x->dtype)) return false;
    windows w = {.dilation = {1, 1}};
    memcpy(w.window, s->p, sizeof w.window);
    memcpy(w.stride, s->p + 2, sizeof w.stride);
    memcpy(w.pad, s->p + 4, sizeof w.pad);
    for (int i = 0; i < 4; i++)
        if (w.pad[i] >= w.window[i / 2]) return false;
    if (!place_windows(x, &w)) return false;
    int64_t dims[4] = {x->dims[0], x->dims[1], w.size[0], w.size[1]}, at[4] = {0};
    if (w.window[0] * w.window[1] > MOST_TERMS || !new_value(y, x->dtype, 4, dims)) return false;
    for (int64_t e = 0; e < y->size; e++, next_index(4, dims, at)) {
        int n = 0;
        int64_t t[2] = {0};
        do {
            int64_t row = at[2] * w.stride[0] + t[0] - w.pad[0];
            int64_t column = at[3] * w.stride[1] + t[1] - w.pad[2];
            if (row < 0 || row >= x->dims[2] || column < 0 || column >= x->dims[3]) continue;
            left[n++] = x->at[at_index(x, (int64_t[]){at[0], at[1], row, column})];
        } while (next_index(2, w.window, t));
        if (s->op == OP_MAXPOOL && !n) return false;
        y->at[e] = s->op == OP_MAXPOOL ? num_extreme(y->dtype, n, left, false, true)
                                       : num_mean(y->dtype, n, left, w.window[0] * w.window[1]);
    }
    return true;
}

/* ---- rows ------------------------------------------------------------------------------------ */

void soft_row(wb_dtype t, int n, const int *x, int *y, bool logarithm)
{
    double top = -INFINITY;
    bool finite = true;
    for (int i = 0; i < n; i++) {
        top = fmax(top, numbers[x[i]].v);
        finite &= isfinite(numbers[x[i]].v);
    }
    int most = num_real_within(t, top, finite ? 0 : INFINITY);
    for (int i = 0; i < n; i++) y[i] = num_unary(U_exp, t, num_binary(B_sub, t, x[i], most));
    int sum = num_sum(t, n, y);
    int shift = logarithm ? num_binary(B_add, t, num_unary(U_log, t, sum), most) : 0;
    for (int i = 0; i < n; i++)
        y[i] = logarithm ? num_binary(B_sub, t, x[i], shift) : num_binary(B_div, t, y[i], sum);
}

/* p: the axis, of SOFTMAX_OVER and LOGSOFTMAX_OVER */
static bool soft(const instruction *s, const value *x, value *y)
{
    bool over = s->op == OP_SOFTMAX_OVER || s->op == OP_LOGSOFTMAX_OVER;
    bool logarithm = s->op == OP_LOGSOFTMAX || s->op == OP_LOGSOFTMAX_OVER;
    int axis = normal_axis(x, over ? s->p[0] : -1);
    if (axis < 0 || !is_float(x->dtype) || !new_value(y, x->dtype, x->ndim, x->dims)) return false;
    int64_t n = x->dims[axis], inner = 1;
    for (int i = axis + 1; i < x->ndim; i++) inner *= x->dims[i];
    for (int64_t k = 0; n && k < x->size / n; k++) {
        int64_t first = k / inner * n * inner + k % inner;
        for (int64_t i = 0; i < n; i++) left[i] = x->at[first + i * inner];
        soft_row(x->dtype, (int)n, left, right, logarithm);
        for (int64_t i = 0; i < n; i++) y->at[first + i * inner] = right[i];
    }
    return true;
}

/* (x - mean) / sqrt(variance + eps), all in f32 or f64, rounded at the end */
static void normalise_row(wb_dtype t, double eps, int n, int *x)
{
    wb_dtype w = wide(t);
    for (int i = 0; i < n; i++) x[i] = t == w ? x[i] : num_cast(w, x[i]);
    int mean = num_mean(w, n, x, n);
    int variance = num_binary(B_add, w, variance_of(w, n, x), num_real_within(w, eps, eps * 1e-6));
    int scale = num_unary(U_rsqrt, w, variance);
    for (int i = 0; i < n; i++) {
        x[i] = num_binary(B_mul, w, num_binary(B_sub, w, x[i], mean), scale);
        if (t != w) x[i] = num_cast(t, x[i]);
    }
}

/* Normalises over the axes whose bits are in `mask`. */
static bool normalise(const value *x, unsigned mask, double eps, value *y)
{
    if (!is_float(x->dtype) || !new_value(y, x->dtype, x->ndim, x->dims)) return false;
    int64_t outer[WB_MAX_DIMS] = {0}, rows[WB_MAX_DIMS], each[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) {
        rows[i] = mask >> i & 1 ? 1 : x->dims[i];
        each[i] = mask >> i & 1 ? x->dims[i] : 1;
    }
    if (!x->size) return true;
    do {
        int64_t inner[WB_MAX_DIMS] = {0}, at[WB_MAX_DIMS];
        int n = 0;
        do {
            for (int i = 0; i < x->ndim; i++) at[i] = outer[i] + inner[i];
            right[n] = (int)at_index(x, at);
            left[n] = x->at[right[n]];
            n++;
        } while (next_index(x->ndim, each, inner));
        normalise_row(x->dtype, eps, n, left);
        for (int i = 0; i < n; i++) y->at[right[i]] = left[i];
    } while (next_index(x->ndim, rows, outer));
    return true;
}

/* Operands 1 and 2 are scale and bias, along channels or over the last axes. */
static bool norm_layer(const program *p, const instruction *s, const value *v, value *y)
{
    const value *x = &v[s->in[0]], *scale = &v[s->in[1]], *bias = &v[s->in[2]];
    bool batch = s->op == OP_BATCHNORM;
    int64_t inner = 1;
    for (int i = 1; i < 3; i++)
        if (p->step[s->in[i]].op != OP_LEAF || v[s->in[i]].dtype != x->dtype) return false;
    if (batch) {
        if (x->ndim < 2 || scale->ndim != 1 || scale->dims[0] != x->dims[1] || bias->ndim != 1)
            return false;
        if (bias->dims[0] != x->dims[1] || !x->size || x->size / x->dims[1] < 2) return false;
        for (int i = 2; i < x->ndim; i++) inner *= x->dims[i];
    } else {
        if (!scale->size || scale->ndim > 4 || !scale->ndim || scale->ndim > x->ndim ||
            bias->ndim != scale->ndim)
            return false;
        for (int i = 1; i <= scale->ndim; i++)
            if (scale->dims[scale->ndim - i] != x->dims[x->ndim - i] ||
                bias->dims[scale->ndim - i] != scale->dims[scale->ndim - i])
                return false;
    }
    unsigned all = (1u << x->ndim) - 1;
    unsigned mask = batch ? all & ~2u : all & ~((1u << (x->ndim - scale->ndim)) - 1);
    if (!normalise(x, mask, 1e-5, y)) return false;
    for (int64_t k = 0; k < y->size; k++) {             /* scale and bias: copies, in the layer */
        int64_t c = k / inner % scale->size;
        int factor = num_real(y->dtype, numbers[scale->at[c]].v);
        int shift = num_real(y->dtype, numbers[bias->at[c]].v);
        y->at[k] =
            num_binary(B_add, y->dtype, num_binary(B_mul, y->dtype, y->at[k], factor), shift);
    }
    return true;
}

/* ---- attention ------------------------------------------------------------------------------- */

static void masked_row(wb_dtype t, int n, const int *mask, int *x)
{
    int kept = 0;
    bool known = true;
    for (int i = 0; i < n; i++) {
        known &= !mask || numbers[mask[i]].error == 0;
        if (!mask || numbers[mask[i]].i) left[kept++] = x[i];
    }
    if (kept) soft_row(t, kept, left, right, false);
    for (int i = 0, k = 0; i < n; i++) {
        if (!known) x[i] = num_real_within(t, 0.5, 1);
        else x[i] = !mask || numbers[mask[i]].i ? right[k++] : num_real(t, 0);
    }
}

static bool attention(const instruction *s, const value *v, value *y)
{
    const value *q = &v[s->in[0]], *k = &v[s->in[1]], *mask = s->n_in > 3 ? &v[s->in[3]] : NULL;
    value scores;
    if (v[s->in[2]].dtype != q->dtype || !product(q, k, true, NULL, &scores)) return false;
    const int *kept = NULL;
    if (mask) {
        int ndim;
        int64_t dims[WB_MAX_DIMS];
        if (mask->dtype != WB_BOOL || !broadcast(mask, &scores, &ndim, dims) ||
            ndim != scores.ndim || memcmp(dims, scores.dims, (size_t)ndim * sizeof *dims))
            return false;
        if (!(kept = spread(mask, ndim, dims))) return false;
    }
    wb_dtype t = q->dtype;
    int64_t d = q->dims[q->ndim - 1], n = scores.dims[scores.ndim - 1];
    double scale = 1 / sqrt(d > 1 ? (double)d : 1);
    int factor =
        num_real_within(t, scale, rounded(t, scale) == scale ? 0 : fabs(scale - rounded(t, scale)));
    for (int64_t i = 0; i < scores.size; i++)
        scores.at[i] = num_binary(B_mul, t, scores.at[i], factor);
    for (int64_t row = 0; n && row < scores.size / n; row++)
        masked_row(t, (int)n, kept ? kept + row * n : NULL, scores.at + row * n);
    return product(&scores, &v[s->in[2]], false, NULL, y);
}

/* ---- rows by number -------------------------------------------------------------------------- */

static bool take(const value *x, const value *index, value *y)
{
    if (is_float(index->dtype) || index->dtype == WB_BOOL || !x->ndim) return false;
    int64_t dims[2 * WB_MAX_DIMS], each = 1;
    int ndim = index->ndim + x->ndim - 1;
    if (ndim > WB_MAX_DIMS) return false;
    for (int i = 0; i < index->ndim; i++) dims[i] = index->dims[i];
    for (int i = 1; i < x->ndim; i++) each *= dims[index->ndim + i - 1] = x->dims[i];
    if (!new_value(y, x->dtype, ndim, dims)) return false;
    for (int64_t k = 0; k < y->size; k++) {
        const number *n = &numbers[index->at[k / each]];
        bool inside = n->i >= 0 && n->i < x->dims[0];
        if (n->error == 0 && inside) y->at[k] = x->at[n->i * each + k % each];
        else if (is_float(x->dtype)) y->at[k] = num_real_within(x->dtype, 0, n->error);
        else y->at[k] = num_integer(x->dtype, 0, n->error == 0);
    }
    return true;
}

/* p: classes */
static bool one_hot(const instruction *s, const value *x, value *y)
{
    int64_t dims[WB_MAX_DIMS + 1], classes = s->p[0];
    if (is_float(x->dtype) || x->dtype == WB_BOOL || x->ndim == WB_MAX_DIMS || classes < 1)
        return false;
    memcpy(dims, x->dims, sizeof x->dims);
    dims[x->ndim] = classes;
    if (!new_value(y, WB_F32, x->ndim + 1, dims)) return false;
    for (int64_t k = 0; k < y->size; k++) {
        const number *n = &numbers[x->at[k / classes]];
        y->at[k] = num_real_within(WB_F32, n->i == k % classes, n->error == 0 ? 0 : 1);
    }
    return true;
}

/* ---- losses ---------------------------------------------------------------------------------- */

#define T(f, x, y) num_binary(B_##f, t, x, y)
#define F(f, x) num_unary(U_##f, t, x)
#define NUM(v) num_real(t, v)

static int loss_term(const instruction *s, wb_dtype t, double eps, int x, int y)
{
    int e, q;
    switch (s->row) {
    case L_mse: return F(square, T(sub, x, y));
    case L_mae: return F(abs, T(sub, x, y));
    case L_huber:
        e = F(abs, T(sub, x, y));
        q = num_extreme(t, 2, (int[]){e, NUM(s->number)}, true, true);
        return T(mul, q, T(sub, e, T(mul, q, NUM(0.5))));
    case L_crossentropy: return F(neg, T(mul, y, F(log, T(add, x, NUM(eps)))));
    case L_logitcrossentropy: return F(neg, T(mul, y, x));
    case L_binarycrossentropy:
        e = T(mul, y, F(log, T(add, x, NUM(eps))));
        q = T(mul, T(sub, NUM(1), y), F(log, T(add, T(sub, NUM(1), x), NUM(eps))));
        return F(neg, T(add, e, q));
    default: return T(sub, T(mul, T(sub, NUM(1), y), x), F(logsigmoid, x));
    }
}

static bool loss(const instruction *s, const value *x, const value *target, value *y)
{
    static int term[MOST_TERMS];
    wb_dtype t = wide(x->dtype);
    if (x->dtype != target->dtype || !is_float(t) || x->ndim != target->ndim || !x->size)
        return false;
    if (memcmp(x->dims, target->dims, (size_t)x->ndim * sizeof *x->dims)) return false;
    bool rows = s->row == L_crossentropy || s->row == L_logitcrossentropy;
    if ((rows && !x->ndim) || !new_value(y, t, 0, NULL)) return false;
    value logits = *x;
    double eps = t == WB_F64           ? 0x1p-52
                 : x->dtype == WB_F16  ? 0x1p-10
                 : x->dtype == WB_BF16 ? 0x1p-7
                                       : 0x1p-23;
    if (!new_value(&logits, t, x->ndim, x->dims)) return false;
    for (int64_t i = 0; i < x->size; i++)
        logits.at[i] = t == x->dtype ? x->at[i] : num_cast(t, x->at[i]);
    int64_t n = x->ndim ? x->dims[x->ndim - 1] : 1;
    for (int64_t i = 0; s->row == L_logitcrossentropy && i < x->size / n; i++) {
        memcpy(left, logits.at + i * n, (size_t)n * sizeof *left);
        soft_row(t, (int)n, left, logits.at + i * n, true);
    }
    for (int64_t i = 0; i < x->size; i++) {
        int b = t == x->dtype ? target->at[i] : num_cast(t, target->at[i]);
        term[i] = loss_term(s, t, eps, logits.at[i], b);
    }
    y->at[0] = num_mean(t, (int)x->size, term, rows ? x->size / n : x->size);
    return true;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Does the value have numbers of its own, which no other value shares? */
static bool has_own_numbers(op_kind op)
{
    switch (op) {
    case OP_LEAF:
    case OP_VARIABLE:
    case OP_UNARY:
    case OP_BINARY:
    case OP_BINARY_NUMBER:
    case OP_WHERE:
    case OP_REDUCE: case OP_MATMUL: case OP_LINEAR: case OP_CONV: case OP_MAXPOOL: case OP_MEANPOOL:
    case OP_SOFTMAX: case OP_LOGSOFTMAX: case OP_NORMALISE: case OP_ATTENTION: case OP_LAYERNORM:
    case OP_BATCHNORM:
        return true;
    default: return false;
    }
}

/* Operand 0 is the loss of a gradient or the values of a Jacobian, operand 1 the value with respect
 * to which they are derived. */
static bool gradient(const program *p, const instruction *s, const value *v, int here, value *y)
{
    const value *of = &v[s->in[0]], *by = &v[s->in[1]];
    if (!is_float(of->dtype) || !is_float(by->dtype) || !has_own_numbers(p->step[s->in[1]].op))
        return false;
    for (int i = 0; i < here; i++) {
        op_kind op = p->step[i].op;
        /* the formula of a gradient decides how the gradient depends on the values between */
        if ((op == OP_GRADIENT || op == OP_JACOBIAN) && p->step[s->in[1]].op > OP_VARIABLE)
            return false;
        if (op == OP_ASSIGN) return false;
    }
    if (s->op == OP_GRADIENT) {
        if (of->size != 1 || !new_value(y, by->dtype, by->ndim, by->dims)) return false;
        num_gradient(of->at[0], of->at[0], (int)by->size, by->at, y->at);
    } else {
        if (!of->size || !by->size || of->dtype != by->dtype) return false;
        if (!new_value(y, of->dtype, 2, (int64_t[]){of->size, by->size})) return false;
        int last = 0;
        for (int64_t i = 0; i < of->size; i++) last = of->at[i] > last ? of->at[i] : last;
        for (int64_t i = 0; i < of->size && n_numbers < MOST_NUMBERS; i++)
            num_gradient(of->at[i], last, (int)by->size, by->at, y->at + i * by->size);
    }
    return n_numbers < MOST_NUMBERS;
}

/* Operand 0 is the variable, whose new value later instructions read; gradients do not pass through
 * the assignment. */
static bool assign(const program *p, const instruction *s, value *v)
{
    value *to = &v[s->in[0]];
    const value *x = &v[s->in[1]];
    if (p->step[s->in[0]].op != OP_VARIABLE || to->dtype != x->dtype || to->ndim != x->ndim)
        return false;
    if (memcmp(to->dims, x->dims, (size_t)x->ndim * sizeof *x->dims)) return false;
    value after;
    if (!new_value(&after, x->dtype, x->ndim, x->dims)) return false;
    for (int64_t k = 0; k < x->size; k++) {
        const number n = numbers[x->at[k]];
        after.at[k] = is_float(x->dtype) ? num_real_within(x->dtype, n.v, n.error) : x->at[k];
    }
    *to = after;
    return true;
}

bool interpret_product(const program *p, value *v, int i)
{
    const instruction *s = &p->step[i];
    value *y = &v[i];
    const value *x = &v[s->in[0]];
    switch (s->op) {
    case OP_TAKE: return take(x, &v[s->in[1]], y);
    case OP_ONEHOT: return one_hot(s, x, y);
    case OP_MATMUL: return matmul(x, &v[s->in[1]], y);
    case OP_LINEAR: return linear(s, v, y);
    case OP_CONV: return conv(s, v, y);
    case OP_MAXPOOL: case OP_MEANPOOL: return pool(s, x, y);
    case OP_SOFTMAX:
    case OP_LOGSOFTMAX:
    case OP_SOFTMAX_OVER:
    case OP_LOGSOFTMAX_OVER: return soft(s, x, y);
    case OP_NORMALISE:
        if (s->p[0] < 1 || s->p[0] > x->ndim) return false;
        return normalise(x, ((1u << x->ndim) - 1) & ~((1u << (x->ndim - s->p[0])) - 1), s->number,
                         y);
    case OP_ATTENTION: return attention(s, v, y);
    case OP_LOSS: return loss(s, x, &v[s->in[1]], y);
    case OP_LAYERNORM: case OP_BATCHNORM: return norm_layer(p, s, v, y);
    case OP_GRADIENT: case OP_JACOBIAN: return gradient(p, s, v, i, y);
    case OP_ASSIGN: return assign(p, s, v);
    default: return false;
    }
}
