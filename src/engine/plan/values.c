/* The values of a plan: imports the graph, pushes slices through elementwise operations, drops
 * unused values, counts uses, chooses layouts, and separates views from values with memory. */
#include "base/text.h"
#include "engine/ops/op.h"

#include <string.h>

/* ---- roots and uses -------------------------------------------------------------------------- */

/* Sets `uses` of each value: as a result, as a written value, and as an input of used values. */
static void values_count_uses(const wb__request *r, wb__values *s)
{
    wb__value *all = s->ir.value;
    for (int i = 0; i < s->ir.n; i++) all[i].uses = 0;
    for (int i = 0; i < r->n_results; i++) all[wb__root(s, r->results[i])].uses++;
    for (int i = 0; i < r->n_writes; i++) all[wb__root(s, r->writes[i])].uses++;
    for (int i = s->ir.n - 1; i >= 0; i--)
        for (int j = 0; all[i].uses && j < all[i].n_in; j++) wb__ir_in(&s->ir, &all[i], j)->uses++;
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* Returns the part of x, which broadcasts to s's operand, that the slice s reads. */
static int values_slice_of(wb__ir *to, int x, const wb__value *s, const int64_t *attr)
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

/* Slices the operands of an elementwise value in place of the value. */
static int push_slice(const wb__rewrite *w, int i)
{
    const wb__value *v = &w->from->value[i], *f = wb__ir_in(w->from, v, 0);
    int in[3];
    if (!w->of[w->from->inputs[v->in]].gone) return -1;
    wb__value made = *f;
    memcpy(made.dims, v->dims, sizeof made.dims);
    for (int j = 0; j < f->n_in; j++)
        in[j] = values_slice_of(w->to, w->of[w->from->inputs[f->in + j]].to, v,
                                w->from->attrs + v->attr);
    return wb__ir_make(w->to, made, f->n_in, in, 0, NULL);
}

/* Marks the elementwise values that only slices read, which push_slice replaces. */
static bool find_only_sliced(const wb__rewrite *w)
{
    const wb__ir *ir = w->from;
    bool any = false;
    wb__slices *slices = wb__alloc_zero((size_t)ir->n + 1, sizeof *slices);
    for (int i = 0; slices && i < ir->n; i++)
        if (ir->value[i].op == WB__OP_slice && ir->value[i].uses) wb__slices_add(slices, ir, i);
    for (int i = 0; slices && i < ir->n; i++) {
        const wb__value *v = &ir->value[i];
        /* slices of one element each are not pushed */
        w->of[i].gone = wb__slices_are_all(&slices[i], v) && slices[i].size > slices[i].n &&
                        wb__is_elementwise((wb__op)v->op);
        any |= w->of[i].gone;
    }
    wb__free(slices);
    return any;
}

/* ---- sums of a product's rows ---------------------------------------------------------------- */

/* Sets `shape` of a matrix that a library step computes: to a reshape of it that an elementwise
 * value reads, if none reads the matrix itself. */
static void find_read_reshapes(const wb__rewrite *w)
{
    enum { DIRECTLY = -1 };
    const wb__ir *ir = w->from;
    for (int i = 0; i < ir->n; i++) {
        const wb__value *v = &ir->value[i];
        for (int j = 0; j < v->n_in && v->uses && wb__is_elementwise((wb__op)v->op); j++) {
            const int in = ir->inputs[v->in + j];
            const wb__value *p = &ir->value[in];
            const bool reshaped = p->op == WB__OP_reshape;
            const int x = reshaped ? ir->inputs[p->in] : in;
            if (wb__ops[ir->value[x].op].class != WB__LIBRARY || ir->value[x].ndim != 2) continue;
            if (!reshaped) w->of[x].shape = DIRECTLY;
            else if (!w->of[x].shape) w->of[x].shape = in;
        }
    }
}

/* Sums a reshape of the matrix x: a kernel that reads the reshape cannot sum the rows of x. */
static int sum_of_reshape(const wb__rewrite *w, int i)
{
    const wb__ir *from = w->from;
    const wb__value *v = &from->value[i];
    const int x = from->inputs[v->in];
    if (from->attrs[v->attr] != 1 || w->of[x].shape <= 0 || from->value[x].ndim != 2) return -1;
    const wb__value *r = &from->value[w->of[x].shape];
    if (r->dims[r->ndim - 1] != from->value[x].dims[1]) return -1;
    const int reshaped = wb__ir_move(w->to, WB__OP_reshape, w->of[x].to, r->ndim, r->dims, 0, NULL);
    const int sum = wb__ir_reduce(w->to, WB__OP_sum, reshaped, (1u << (r->ndim - 1)) - 1);
    return wb__ir_move(w->to, WB__OP_reshape, sum, v->ndim, v->dims, 0, NULL);
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* A rebuild only drops unused values, or also applies the rules that push slices, or those that
 * join kernels where launches are dear.  The first rule that suits a value replaces the value. */
typedef enum { VALUES_DROP, PUSH, JOIN } values_change;
static const struct {
    const char *name;
    values_change when;
    wb__op op;
    int (*make)(const wb__rewrite *w, int i);
} values_rules[] = {
    /* slice(f(a, b)) -> f(slice(a), slice(b)), if only slices read the elementwise f(a, b) */
    {"slices", PUSH, WB__OP_slice, push_slice},
    /* columns of a·b -> a·(columns of b), if only such slices read a·b and readers compute it */
    {"sliced products", JOIN, WB__OP_slice, wb__slice_product},
    /* a concat of several inputs that leave one gap -> the concat with zeros as one more input */
    {"gaps", JOIN, WB__OP_concat, wb__fill_gap},
    /* sum (x - mean)^2 -> sum d^2 - (sum d)^2 / n, where d = x - the first x; or its reshape */
    {"variances", JOIN, WB__OP_sum, wb__one_pass_variance},
    {"reshaped variances", JOIN, WB__OP_reshape, wb__one_pass_variance},
    /* sum of the rows of a matrix -> sum of a reshape of it, if others read this reshape alone */
    {"sums in a shape", JOIN, WB__OP_sum, sum_of_reshape},
};
enum { VALUES_RULES = WB__COUNT(values_rules) };

/* Returns what replaces value i: the result of the first rule that suits, else a copy. */
static int values_apply_rule(values_change what, const wb__rewrite *w, int i)
{
    const wb__value *v = &w->from->value[i];
    int few[8], *in = few, made = -1;
    for (int k = 0; k < VALUES_RULES && made < 0; k++) {
        if (values_rules[k].when != what || values_rules[k].op != (wb__op)v->op) continue;
        made = values_rules[k].make(w, i);
        w->applied[k] += made >= 0;
    }
    if (made >= 0) return made;
    if (v->n_in > 8 && !(in = wb__alloc((size_t)v->n_in * sizeof *in))) {
        w->to->failed = true;
        return 0;
    }
    for (int j = 0; j < v->n_in; j++) in[j] = w->of[w->from->inputs[v->in + j]].to;
    made = wb__ir_make(w->to, *v, v->n_in, in, v->n_attr, w->from->attrs + v->attr);
    if (in != few) wb__free(in);
    return made;
}

/* Copies the used values to a new array, with one kind of change.  *more: a slice was moved, and
 * another pass may move it further.  False: out of memory. */
static bool values_rebuild(const wb__attempt *a, wb__values *s, values_change what, int *applied,
                           bool *more)
{
    const wb__request *r = a->request;
    values_count_uses(r, s);
    wb__ir old = s->ir, new = {.joins = old.joins || what == JOIN};
    const wb__rewrite w = {&old, &new, wb__alloc_zero((size_t)old.n + 1, sizeof *w.of),
                           applied};
    *more = false;
    if (w.of) {
        if (what == PUSH) *more = find_only_sliced(&w);
        if (what == JOIN) {
            wb__find_sliced(a, &w);
            wb__find_variances(&w);
            find_read_reshapes(&w);
        }
        for (int i = 0; i < old.n && !new.failed; i++) {
            if (!old.value[i].uses || w.of[i].gone) continue;
            w.of[i].to = values_apply_rule(what, &w, i);
            if (w.of[i].variance) wb__add_variance_sums(&w, w.of[i].variance);
        }
        for (int i = 0; i < r->order.n; i++) s->of[i] = w.of[s->of[i]].to;
        s->ir = new;
        wb__ir_free(&old);
    }
    wb__free(w.of);
    return w.of && !s->ir.failed;
}

static void print_rules(const int *applied)
{
    wb__text t = {0};
    for (int k = 0; k < VALUES_RULES; k++)
        wb__text_add(&t, "%s %s %d", k ? "," : "", values_rules[k].name, applied[k]);
    wb__log(WB_LOG_DEBUG, "rules:%s", t.text ? t.text : "");
    wb__free(t.text);
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Chooses channels last for convolutions that prefer it, and for what they read. */
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
    struct { int swaps, others; } *reads = wb__alloc_zero((size_t)ir->n + 1, sizeof *reads);
    for (int i = 0; reads && i < ir->n; i++) {
        const wb__value *v = &ir->value[i];
        if (v->op == WB__OP_permute && v->ndim == 4 &&
            !memcmp(ir->attrs + v->attr, swap, sizeof swap))
            reads[ir->inputs[v->in]].swaps++;
        for (int j = 0; wb__is_step((wb__op)v->op, WB__STEP_ATTENTION) && j < v->n_in; j++)
            reads[ir->inputs[v->in + j]].others++;
    }
    for (int i = 0; reads && i < ir->n; i++) {
        wb__value *v = &ir->value[i];
        if (wb__is_step((wb__op)v->op, WB__STEP_ATTENTION) ? v->op == WB__OP_attention_lse
                                                           : v->op != WB__OP_matmul)
            continue;
        const int others = v->op == WB__OP_matmul ? 0 : reads[i].others;
        if (reads[i].swaps && reads[i].swaps + others == v->uses) v->layout = WB__BTHD;
    }
    wb__free(reads);
    return reads;
}

/* ---- values that are read from memory -------------------------------------------------------- */

/* Sets `needed` of the values that must be in memory. */
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
    bool more = true;
    int applied[VALUES_RULES] = {0};
    if (!wb__import(a, s)) return false;
    for (int pass = 0; pass < 4 && more; pass++)
        if (!values_rebuild(a, s, PUSH, applied, &more)) return false;
    if (a->device->backend->dear_launches && !values_rebuild(a, s, JOIN, applied, &more))
        return false;
    if (!values_rebuild(a, s, VALUES_DROP, applied, &more)) return false;
    if (wb__debug("stages")) print_rules(applied);
    const size_t n = (size_t)s->ir.n + 1;
    s->needed = wb__alloc_zero(n, sizeof *s->needed);
    s->base = wb__alloc(n * sizeof *s->base);
    s->view = wb__alloc(n * sizeof *s->view);
    s->window = wb__alloc(n * sizeof *s->window);
    if (!s->needed || !s->base || !s->view || !s->window) return false;
    values_count_uses(a->request, s);
    choose_layouts(a, &s->ir);
    if (a->device->backend->dear_launches && !choose_for_convs(&s->ir)) return false;
    if (!choose_bthd(&s->ir)) return false;
    for (more = true; more;) {
        find_needed(a, s);
        if (!wb__find_views(a, s, &more)) return false;
    }
    return true;
}
