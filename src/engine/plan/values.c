/* The values of a plan: imports the graph, pushes slices through elementwise operations, drops
 * unused values, counts uses, chooses layouts, and separates views from values with memory. */
#include "engine/ops/op.h"

#include <string.h>

/* ---- roots and uses -------------------------------------------------------------------------- */

static void count_roots(const wb__request *r, const wb__values *s, int *uses)
{
    for (int i = 0; i < r->n_results; i++) uses[wb__root(s, r->results[i])]++;
    for (int i = 0; i < r->n_writes; i++) uses[wb__root(s, r->writes[i])]++;
}

/* Sets uses[i] to the number of uses of value i: as a result, as a written value, and as an input
 * of used values. */
static void count_uses(const wb__request *r, const wb__values *s, int *uses)
{
    const wb__ir *ir = &s->ir;
    memset(uses, 0, (size_t)ir->n * sizeof *uses);
    count_roots(r, s, uses);
    for (int i = ir->n - 1; i >= 0; i--) {
        const wb__value *v = &ir->value[i];
        for (int j = 0; uses[i] && j < v->n_in; j++) uses[ir->inputs[v->in + j]]++;
    }
}

/* ---- slices ---------------------------------------------------------------------------------- */

static int slice_of(wb__ir *to, int x, const wb__value *s, const int64_t *attr)
{
    if (to->failed) return 0;
    const wb__value *p = &to->value[x];
    int64_t dims[WB_MAX_DIMS], attrs[2 * WB_MAX_DIMS];
    int lead = s->ndim - p->ndim;
    for (int i = 0; i < p->ndim; i++) {
        bool whole = p->dims[i] == 1;
        dims[i] = whole ? 1 : s->dims[lead + i];
        attrs[i] = whole ? 0 : attr[lead + i];
        attrs[p->ndim + i] = whole ? 1 : attr[s->ndim + lead + i];
    }
    return wb__ir_move(to, WB__OP_slice, x, p->ndim, dims, 2 * p->ndim, attrs);
}

/* Copies value i to `to` and returns its index there.  If value i is slice(f(a, b)) and only slices
 * of f(a, b) are read, makes f(slice(a), slice(b)) instead. */
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

static bool find_only_sliced(const wb__ir *ir, const int *uses, bool *only_sliced)
{
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
        /* slices of one element each, for which `covered` equals `slices`, are not pushed */
        only_sliced[i] = slices[i] && slices[i] == uses[i] && covered[i] <= v->size &&
                         covered[i] > slices[i] && wb__is_elementwise((wb__op)v->op);
        any |= only_sliced[i];
    }
    wb__free(slices);
    wb__free(covered);
    return any;
}

/* ---- sums of a product's rows ---------------------------------------------------------------- */

/* Sets shape[x], for a matrix x that a library step computes, to a reshape of x that an elementwise
 * value reads, if none reads x itself; elsewhere to -1. */
static void find_shapes(const wb__ir *ir, const int *uses, int *shape)
{
    enum { DIRECTLY = -2 };
    for (int i = 0; i < ir->n; i++) shape[i] = -1;
    for (int i = 0; i < ir->n; i++) {
        const wb__value *v = &ir->value[i];
        for (int j = 0; j < v->n_in && uses[i] && wb__is_elementwise((wb__op)v->op); j++) {
            const int in = ir->inputs[v->in + j];
            const wb__value *p = &ir->value[in];
            const bool reshaped = p->op == WB__OP_reshape;
            const int x = reshaped ? ir->inputs[p->in] : in;
            if (wb__ops[ir->value[x].op].class != WB__LIBRARY || ir->value[x].ndim != 2) continue;
            if (!reshaped) shape[x] = DIRECTLY;
            else if (shape[x] == -1) shape[x] = in;
        }
    }
}

/* A kernel that reads a reshape of the matrix x cannot sum the rows of x itself.  If value i is
 * such a sum, makes it a sum over the reshape and returns its index in `to`; else returns -1. */
static int sum_in_shape(const wb__ir *from, wb__ir *to, int i, const int *map, const int *shape)
{
    const wb__value *v = &from->value[i];
    if (v->op != WB__OP_sum || from->attrs[v->attr] != 1) return -1;
    const int x = from->inputs[v->in];
    if (shape[x] < 0 || from->value[x].ndim != 2) return -1;
    const wb__value *r = &from->value[shape[x]];
    if (r->dims[r->ndim - 1] != from->value[x].dims[1]) return -1;
    const int reshaped = wb__ir_move(to, WB__OP_reshape, map[x], r->ndim, r->dims, 0, NULL);
    const int sum = wb__ir_reduce(to, WB__OP_sum, reshaped, (1u << (r->ndim - 1)) - 1);
    return wb__ir_move(to, WB__OP_reshape, sum, v->ndim, v->dims, 0, NULL);
}

/* What rebuild changes: nothing; slices move in front of elementwise values; where launches are
 * dear, values are read once for several sums (sum_in_shape, variance.c), slices of small products
 * become products (products.c), and concats have no gaps (gaps.c). */
typedef enum { DROP, PUSH, JOIN } change;

static int joined(const wb__ir *from, wb__ir *to, int i, const int *map, const int *shape,
                  const bool *sliced)
{
    const wb__value *v = &from->value[i];
    if (v->op == WB__OP_slice && sliced[from->inputs[v->in]])
        return wb__slice_product(from, to, i, map);
    if (v->op == WB__OP_concat) return wb__fill_gap(from, to, i, map);
    const int made = wb__one_pass_variance(from, to, i, map);
    return made >= 0 ? made : sum_in_shape(from, to, i, map, shape);
}

/* Copies the used values to a new array, with one kind of change.  *more: a slice was moved, and
 * another pass may move it further.  False: out of memory. */
static bool rebuild(const wb__attempt *a, wb__values *s, change what, bool *more)
{
    const wb__request *r = a->request;
    wb__ir old = s->ir, new = {0};
    size_t n = (size_t)old.n + 1;
    int *uses = wb__alloc(n * sizeof *uses), *map = wb__alloc_zero(n, sizeof *map);
    bool *only_sliced = wb__alloc_zero(n, sizeof *only_sliced);
    bool *sliced = wb__alloc_zero(n, sizeof *sliced);
    int *variance_of = wb__alloc(n * sizeof *variance_of), *shape = wb__alloc(n * sizeof *shape);
    const bool good = uses && map && only_sliced && sliced && variance_of && shape;
    *more = false;
    new.joins = old.joins || what == JOIN;
    if (good) {
        count_uses(r, s, uses);
        if (what == PUSH) *more = find_only_sliced(&old, uses, only_sliced);
        if (what == JOIN) {
            wb__find_sliced(a, &old, uses, sliced);
            wb__find_variances(&old, variance_of);
            find_shapes(&old, uses, shape);
        }
        for (int i = 0; i < old.n && !new.failed; i++) {
            if (!uses[i] || only_sliced[i] || sliced[i]) continue;
            map[i] = what == JOIN ? joined(&old, &new, i, map, shape, sliced) : -1;
            if (map[i] < 0) map[i] = copy(&old, &new, i, map, only_sliced);
            if (what == JOIN && variance_of[i] >= 0)
                wb__begin_variance(&old, &new, variance_of[i], map);
        }
        for (int i = 0; i < r->order.n; i++) s->of[i] = map[s->of[i]];
        s->ir = new;
        wb__ir_free(&old);
    }
    wb__free(uses);
    wb__free(map);
    wb__free(only_sliced);
    wb__free(sliced);
    wb__free(variance_of);
    wb__free(shape);
    return good && !s->ir.failed;
}

/* ---- layouts --------------------------------------------------------------------------------- */

static void choose_layouts(const wb__attempt *a, wb__ir *ir)
{
    for (int i = 0; i < ir->n; i++) {
        wb__value *v = &ir->value[i];
        wb__op op = (wb__op)v->op;
        if (v->ndim != 4) continue;
        if (wb__is_step(op, WB__STEP_CONV)) {
            v->prefers_channels_last = wb__conv_prefers_channels_last(a, ir, v);
            if (v->prefers_channels_last && op != WB__OP_conv_grad_weight)
                v->layout = WB__CHANNELS_LAST;
        } else if (wb__is_step(op, WB__STEP_POOL))
            v->layout = wb__ir_in(ir, v, 0)->layout;
        else if (wb__is_elementwise(op))
            for (int j = 0; j < v->n_in; j++) {
                const wb__value *p = wb__ir_in(ir, v, j);
                if (p->layout && p->size == v->size) v->layout = p->layout;
            }
    }
}

/* Chooses channels last for values that only convolutions in this layout read: else each of these
 * steps would launch a copy of them.  False: out of memory. */
static bool choose_for_convs(wb__ir *ir)
{
    int *reads = wb__alloc_zero((size_t)ir->n + 1, sizeof *reads);
    for (int i = 0; reads && i < ir->n; i++) {
        const wb__value *v = &ir->value[i];
        if (!wb__is_step((wb__op)v->op, WB__STEP_CONV) || !v->prefers_channels_last) continue;
        for (int j = 0; j < v->n_in && (!j || v->op == WB__OP_conv_grad_weight); j++)
            reads[ir->inputs[v->in + j]]++;
    }
    for (int i = 0; reads && i < ir->n; i++) {
        wb__value *v = &ir->value[i];
        if (reads[i] && reads[i] == v->uses && wb__is_elementwise((wb__op)v->op))
            v->layout = WB__CHANNELS_LAST;
    }
    wb__free(reads);
    return reads;
}

/* Chooses the layout BTHD for a matrix product or a result of attention if all readers swap heads
 * and time.  A result of attention may also be read by attention steps, which accept both layouts.
 * False: out of memory. */
static bool choose_bthd(wb__ir *ir)
{
    static const int64_t swap[4] = {0, 2, 1, 3};
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
        if (wb__is_step((wb__op)v->op, WB__STEP_ATTENTION) ? v->op == WB__OP_attention_lse
                                                           : v->op != WB__OP_matmul)
            continue;
        const int others = v->op == WB__OP_matmul ? 0 : reads[i];
        if (swaps[i] && swaps[i] + others == v->uses) v->layout = WB__BTHD;
    }
    wb__free(swaps);
    wb__free(reads);
    return true;
}

/* ---- values that are read from memory -------------------------------------------------------- */

static void find_needed(const wb__attempt *a, wb__values *s)
{
    const wb__request *r = a->request;
    for (int i = 0; i < r->n_results; i++) s->needed[wb__root(s, r->results[i])] = true;
    for (int i = 0; i < r->n_writes; i++) s->needed[wb__root(s, r->writes[i])] = true;
    for (int i = s->ir.n - 1; i >= 0; i--) {        /* through views, down to their bases */
        const wb__value *v = wb__value_at(s, i);
        const bool reads = wb__ops[v->op].class == WB__LIBRARY ||
                           (v->op == WB__OP_concat && !wb__may_be_padded_view(a, s, i)) ||
                           (s->needed[i] && wb__is_view_op((wb__op)v->op));
        for (int j = 0; j < v->n_in && reads; j++) s->needed[wb__input(s, v, j)] = true;
    }
}

/* ---- the whole stage ------------------------------------------------------------------------- */

void wb__values_free(wb__values *s)
{
    wb__ir_free(&s->ir);
    wb__free(s->of);
    wb__free(s->needed);
    wb__free(s->base);
    wb__free(s->view);
    wb__free(s->window);
    wb__free(s->windows);
}

bool wb__values_make(const wb__attempt *a, wb__values *s)
{
    const wb__request *r = a->request;
    bool more = true;
    if (!wb__import(a, s)) return false;
    for (int pass = 0; pass < 4 && more; pass++)
        if (!rebuild(a, s, PUSH, &more)) return false;
    if (a->device->backend->dear_launches && !rebuild(a, s, JOIN, &more)) return false;
    if (!rebuild(a, s, DROP, &more)) return false;
    const size_t n = (size_t)s->ir.n + 1;
    int *uses = wb__alloc(n * sizeof *uses);
    s->needed = wb__alloc_zero(n, sizeof *s->needed);
    s->base = wb__alloc(n * sizeof *s->base);
    s->view = wb__alloc(n * sizeof *s->view);
    s->window = wb__alloc(n * sizeof *s->window);
    const bool good = uses && s->needed && s->base && s->view && s->window;
    if (good) {
        count_uses(r, s, uses);
        for (int i = 0; i < s->ir.n; i++) s->ir.value[i].uses = uses[i];
    }
    wb__free(uses);
    if (!good) return false;
    choose_layouts(a, &s->ir);
    if (a->device->backend->dear_launches && !choose_for_convs(&s->ir)) return false;
    if (!choose_bthd(&s->ir)) return false;
    for (more = true; more;) {
        find_needed(a, s);
        if (!wb__find_views(a, s, &more)) return false;
    }
    return true;
}
