/* Computes variances in one pass, where launches are dear.
 *
 * A batch norm sums (x - mean)^2 over the rows of a channel, so a second kernel reads x again when
 * the mean is known.  With any number k near the values, and d = x - k,
 *
 *     sum (x - mean)^2  =  sum d^2 - (sum d) (sum d) / n,
 *
 * whose sums one kernel computes together with that of x.  k is the channel's first value.  The
 * subtraction loses log2(1 + (mean - k)^2 / variance) bits, which is one or two bits for nearly all
 * values; a k that is 1000 standard deviations away leaves a relative error of 0.1.
 *
 * Only a value in memory has a first value that another kernel can read: a leaf, or the result of a
 * convolution or of another library step.  A reduction over columns needs no second kernel. */
#include "engine/ops/op.h"

#include <string.h>

/* Whether the reduction v of x keeps an axis behind one that it reduces. */
static bool reduces_rows(const wb__value *x, unsigned mask)
{
    bool reduced = false;
    for (int i = 0; i < x->ndim && x->size; i++) {
        if (x->dims[i] == 1) continue;
        if (!(mask >> i & 1) && reduced) return true;
        reduced |= mask >> i & 1;
    }
    return false;
}

/* A sum of (x - mean)^2.  stored: x, or the value of which x is a cast; sum: the sum of x.  All are
 * indices of values. */
typedef struct { int x, stored, sum; } variance_spread;

/* Returns the sum of x over the axes of `mask`, if m is the mean of x over these axes; else -1. */
static int sum_of_mean(const wb__ir *ir, int m, int x, unsigned mask)
{
    const wb__value *v = &ir->value[m];
    for (int i = 0; i < 2 && v->op == WB__OP_mul; i++) {
        const wb__value *sum = wb__ir_in(ir, v, i), *factor = wb__ir_in(ir, v, !i);
        if (sum->op == WB__OP_sum && ir->inputs[sum->in] == x && sum->size &&
            (unsigned)ir->attrs[sum->attr] == mask && factor->op == WB__OP_literal &&
            factor->fixed && (float)factor->value ==
                                 (float)((double)sum->size / (double)ir->value[x].size))
            return ir->inputs[v->in + i];
    }
    return -1;
}

/* Whether v is the sum of (x - mean)^2 over rows, where x is in memory.  If so, fills s. */
static bool is_spread(const wb__ir *ir, const wb__value *v, variance_spread *s)
{
    if (v->op != WB__OP_sum || v->dtype != WB_F32) return false;
    const unsigned mask = (unsigned)ir->attrs[v->attr];
    const wb__value *square = wb__ir_in(ir, v, 0);
    if (square->op != WB__OP_square) return false;
    const wb__value *centred = wb__ir_in(ir, square, 0);
    if (centred->op != WB__OP_sub) return false;
    s->x = s->stored = ir->inputs[centred->in];
    const wb__value *x = &ir->value[s->x];
    s->sum = sum_of_mean(ir, ir->inputs[centred->in + 1], s->x, mask);
    if (s->sum < 0 || !reduces_rows(x, mask)) return false;
    if (x->op == WB__OP_cast) s->stored = ir->inputs[x->in];
    const wb__op op = (wb__op)ir->value[s->stored].op;
    return op == WB__OP_constant || wb__ops[op].class == WB__LIBRARY;
}

/* Returns the first value of `x` along the axes of `mask`, with x's dimensions, as f32. */
static int variance_first_of(wb__ir *ir, int x, unsigned mask)
{
    if (ir->failed) return 0;
    const wb__value *v = &ir->value[x];
    const int ndim = v->ndim;
    int64_t dims[WB_MAX_DIMS], attrs[2 * WB_MAX_DIMS];
    for (int i = 0; i < ndim; i++) {
        dims[i] = mask >> i & 1 ? 1 : v->dims[i];
        attrs[i] = 0;
        attrs[ndim + i] = 1;
    }
    int64_t all[WB_MAX_DIMS];
    memcpy(all, v->dims, sizeof all);
    const int first = wb__ir_move(ir, WB__OP_slice, x, ndim, dims, 2 * ndim, attrs);
    return wb__ir_as(ir, wb__ir_move(ir, WB__OP_expand, first, ndim, all, 0, NULL), WB_F32);
}

/* Adds the sums of d and of d^2 to `to`. */
static void variance_add_sums(const wb__rewrite *w, const variance_spread *s, unsigned mask,
                              int sums[2])
{
    wb__ir *to = w->to;
    const int first = variance_first_of(to, w->of[s->stored].to, mask);
    const int d = wb__ir_elementwise(to, WB__OP_sub, w->of[s->x].to, first);
    sums[0] = wb__ir_reduce(to, WB__OP_sum, d, mask);
    sums[1] = wb__ir_reduce(to, WB__OP_sum, wb__ir_elementwise(to, WB__OP_square, d, -1), mask);
}

void wb__find_variances(const wb__rewrite *w)
{
    variance_spread s;
    for (int i = 0; i < w->from->n; i++)
        if (is_spread(w->from, &w->from->value[i], &s)) w->of[s.sum].variance = i;
}

void wb__add_variance_sums(const wb__rewrite *w, int i)
{
    int sums[2];
    variance_spread s;
    const wb__value *v = &w->from->value[i];
    if (is_spread(w->from, v, &s))
        variance_add_sums(w, &s, (unsigned)w->from->attrs[v->attr], sums);
}

/* Returns the one-pass form of value i, a sum of (x - mean)^2 or a reshape of it; -1: i is another
 * value.  The sums are reshaped, not the result, so that its readers can compute it again. */
int wb__one_pass_variance(const wb__rewrite *w, int i)
{
    const wb__ir *from = w->from;
    wb__ir *to = w->to;
    int sums[2];
    variance_spread s;
    const wb__value *v = &from->value[i];
    const wb__value *two_pass = v->op == WB__OP_reshape ? wb__ir_in(from, v, 0) : v;
    if (!is_spread(from, two_pass, &s)) return -1;
    const double share = (double)two_pass->size / (double)from->value[s.x].size;
    variance_add_sums(w, &s, (unsigned)from->attrs[two_pass->attr], sums);
    for (int k = 0; k < 2; k++)
        sums[k] = wb__ir_move(to, WB__OP_reshape, sums[k], v->ndim, v->dims, 0, NULL);
    /* (sum d / n) sum d is finite if sum d^2 is; (sum d)^2 need not be. */
    const int mean = wb__ir_elementwise(to, WB__OP_mul, sums[0], wb__ir_literal(to, share, WB_F32));
    const int less = wb__ir_elementwise(to, WB__OP_mul, mean, sums[0]);
    return wb__ir_elementwise(to, WB__OP_maximum,
                              wb__ir_elementwise(to, WB__OP_sub, sums[1], less),
                              wb__ir_literal(to, 0, WB_F32));
}
