/* Passes over the values before they are grouped: slices are pushed through elementwise operations,
 * unused values dropped, uses counted, and layouts chosen. */
#include "engine/ops/op.h"

#include <string.h>

/* ---- roots and uses -------------------------------------------------------------------------- */

static int root(const wb__making *m, const wb_tensor *x) { return m->value_of[x->index]; }

static void count_roots(wb__making *m, int *uses)
{
    const wb__request *r = m->request;
    for (int i = 0; i < r->n_results; i++) uses[root(m, r->results[i])]++;
    for (int i = 0; i < r->n_writes; i++) uses[root(m, r->writes[i])]++;
}

/* uses[i]: how often value i is an input or a root, dead ones' inputs left out. */
static void count_uses(wb__making *m, int *uses)
{
    wb__ir *ir = &m->ir;
    memset(uses, 0, (size_t)ir->n * sizeof *uses);
    count_roots(m, uses);
    for (int i = ir->n - 1; i >= 0; i--) {
        const wb__value *v = &ir->value[i];
        for (int j = 0; uses[i] && j < v->n_in; j++) uses[ir->inputs[v->in + j]]++;
    }
}

/* ---- slices ---------------------------------------------------------------------------------- */

static int slice_of(wb__ir *to, int x, const wb__value *s, const int64_t *attr)
{
    const wb__value *p = &to->value[x];
    int64_t dims[WB_MAX_DIMS], window[2 * WB_MAX_DIMS];
    int lead = s->ndim - p->ndim;
    for (int i = 0; i < p->ndim; i++) {
        bool whole = p->dims[i] == 1;
        dims[i] = whole ? 1 : s->dims[lead + i];
        window[i] = whole ? 0 : attr[lead + i];
        window[p->ndim + i] = whole ? 1 : attr[s->ndim + lead + i];
    }
    return wb__ir_move(to, WB__OP_slice, x, p->ndim, dims, 2 * p->ndim, window);
}

/* A copy of value i in `to`; where it is a slice of an elementwise value that is only sliced, the
 * operation on slices. */
static int copy(const wb__ir *from, wb__ir *to, int i, const int *map, const bool *only_sliced)
{
    const wb__value *v = &from->value[i];
    int few[8], *in = v->n_in <= 8 ? few : wb__alloc((size_t)v->n_in * sizeof *in), made = 0;
    if (!in) {
        to->failed = true;
        return 0;
    }
    for (int j = 0; j < v->n_in; j++) in[j] = map[from->inputs[v->in + j]];
    if (v->op == WB__OP_slice && only_sliced[from->inputs[v->in]]) {
        const wb__value *e = wb__ir_in(from, v, 0);
        wb__value inner = *e;
        memcpy(inner.dims, v->dims, sizeof inner.dims);
        for (int j = 0; j < e->n_in; j++)
            few[j] = slice_of(to, map[from->inputs[e->in + j]], v, from->attrs + v->attr);
        made = wb__ir_make(to, inner, e->n_in, few, 0, NULL);
    } else {
        made = wb__ir_make(to, *v, v->n_in, in, v->n_attr, from->attrs + v->attr);
    }
    if (in != few) wb__free(in);
    return made;
}

static bool find_only_sliced(wb__making *m, const int *uses, bool *only_sliced)
{
    wb__ir *ir = &m->ir;
    bool any = false;
    int *slices = wb__alloc_zero((size_t)ir->n + 1, sizeof *slices);
    int64_t *covered = wb__alloc_zero((size_t)ir->n + 1, sizeof *covered);
    for (int i = 0; slices && covered && i < ir->n; i++) {
        const wb__value *v = &ir->value[i];
        if (v->op != WB__OP_slice || !uses[i]) continue;
        slices[ir->inputs[v->in]]++;
        covered[ir->inputs[v->in]] += v->size;
    }
    for (int i = 0; slices && covered && i < ir->n; i++) {
        const wb__value *v = &ir->value[i];
        only_sliced[i] = slices[i] && slices[i] == uses[i] && covered[i] <= v->size &&
                         covered[i] > slices[i] &&      /* single numbers are read where they stand */
                         wb__is_elementwise((wb__op)v->op);
        any |= only_sliced[i];
    }
    wb__free(slices);
    wb__free(covered);
    return any;
}

/* One pass: everything that is used, anew.  True if a slice was pushed, and another pass may find
 * more. */
static bool renew(wb__making *m, bool push)
{
    wb__ir old = m->ir;
    size_t n = (size_t)old.n + 1;
    int *uses = wb__alloc(n * sizeof *uses), *map = wb__alloc_zero(n, sizeof *map);
    bool *only_sliced = wb__alloc_zero(n, sizeof *only_sliced), pushed = false;
    if (!uses || !map || !only_sliced) {
        m->failed = true;
        goto done;
    }
    count_uses(m, uses);
    if (push) pushed = find_only_sliced(m, uses, only_sliced);
    memset(&m->ir, 0, sizeof m->ir);
    for (int i = 0; i < old.n; i++)
        if (uses[i] && !only_sliced[i]) map[i] = copy(&old, &m->ir, i, map, only_sliced);
    for (int i = 0; i < m->request->order.n; i++) m->value_of[i] = map[m->value_of[i]];
    m->failed |= m->ir.failed;
    wb__ir_free(&old);
done:
    wb__free(uses);
    wb__free(map);
    wb__free(only_sliced);
    return pushed && !m->failed;
}

/* ---- layouts --------------------------------------------------------------------------------- */

static void choose_layouts(wb__making *m)
{
    wb__ir *ir = &m->ir;
    for (int i = 0; i < ir->n; i++) {
        wb__value *v = &ir->value[i];
        wb__op op = (wb__op)v->op;
        if (v->ndim != 4) continue;
        if (wb__is_step(op, WB__STEP_CONV)) {
            v->wants_nhwc = wb__conv_prefers_nhwc(m, v);
            v->nhwc = v->wants_nhwc && op != WB__OP_conv_weights;
        } else if (wb__is_step(op, WB__STEP_POOL))
            v->nhwc = wb__ir_in(ir, v, 0)->nhwc;
        else if (wb__is_elementwise(op))
            for (int j = 0; j < v->n_in; j++) {
                const wb__value *p = wb__ir_in(ir, v, j);
                v->nhwc |= p->nhwc && p->size == v->size;
            }
    }
}

/* The result of attention is wanted with heads and time swapped: then it is made so, and no copy is
 * needed.  Steps of attention read it either way. */
static bool choose_heads(wb__making *m)
{
    static const int64_t swap[4] = {0, 2, 1, 3};
    wb__ir *ir = &m->ir;
    int *swaps = wb__alloc_zero((size_t)ir->n + 1, sizeof *swaps);
    int *reads = wb__alloc_zero((size_t)ir->n + 1, sizeof *reads);
    if (!swaps || !reads) {
        wb__free(swaps);
        wb__free(reads);
        return false;
    }
    for (int i = 0; i < ir->n; i++) {
        const wb__value *v = &ir->value[i];
        if (v->op == WB__OP_permute && v->ndim == 4 &&
            !memcmp(ir->attrs + v->attr, swap, sizeof swap))
            swaps[ir->inputs[v->in]]++;
        for (int j = 0; wb__is_step((wb__op)v->op, WB__STEP_ATTENTION) && j < v->n_in; j++)
            reads[ir->inputs[v->in + j]]++;
    }
    for (int i = 0; i < ir->n; i++) {
        wb__value *v = &ir->value[i];
        v->heads_first = v->op == WB__OP_matmul && swaps[i] && swaps[i] == v->uses;
        if (wb__is_step((wb__op)v->op, WB__STEP_ATTENTION) && v->op != WB__OP_attention_lse)
            v->heads_first = swaps[i] && swaps[i] + reads[i] == v->uses;
    }
    wb__free(swaps);
    wb__free(reads);
    return true;
}

bool wb__rewrite(wb__making *m)
{
    for (int pass = 0; pass < 4 && renew(m, true); pass++) {}
    if (!m->failed) renew(m, false);
    if (m->failed) return false;
    int *uses = wb__alloc((size_t)(m->ir.n + 1) * sizeof *uses);
    if (!uses) return false;
    count_uses(m, uses);
    for (int i = 0; i < m->ir.n; i++) m->ir.value[i].uses = uses[i];
    wb__free(uses);
    choose_layouts(m);
    return choose_heads(m);
}
