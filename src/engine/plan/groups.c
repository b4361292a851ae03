/* Forms groups: the values of a group become one kernel.
 *
 * Values are processed in order.  An elementwise value or a reduction joins the latest group that
 * computes one of its operands, if it fits into that group's space.  Otherwise it joins a later
 * group that reads one of its operands, or starts a group.  The order of groups is an order of
 * execution.  Values computed from leaves only, and comparisons of a product's result, are
 * deferred: they join the first group that reads them.  Values that the patterns stage fused into a
 * product join the group of the product.  A small product that its reader computes (products.c) is
 * deferred, too. */
#include "engine/plan/stages.h"

#include <string.h>

enum { MOST_DEFERRED = 64 };    /* limit of progress.below, and thus of the depth of recursion */

/* The state of a value while groups are formed. */
typedef struct {
    int below;  /* 1 + number of deferred values that this deferred value depends on; else 0 */
    int reader;         /* index of the last fused group that reads all of the value, or a view of
                           all of it, without broadcasting, and does not compute it; -1: none */
} progress;

typedef struct {
    const wb__attempt *attempt;
    const wb__values *values;
    const wb__patterns *patterns;
    wb__groups *out;
    progress *progress;
    wb__group dummy;    /* returned by groups_new_group when out of memory */
    bool failed;
} grouping;

static const wb__value *groups_value(const grouping *f, int x) { return wb__value_at(f->values,
                                                                                     x); }
static int groups_base_of(const grouping *f, const wb__value *v, int i)
{
    return f->values->base[wb__input(f->values, v, i)];
}
static bool is_deferred(const grouping *f, int x) { return f->progress[x].below > 0; }
static int groups_group_of(const grouping *f, int x) { return f->out->of[x].group; }

static wb__group *groups_new_group(grouping *f, wb__group_kind kind)
{
    wb__groups *o = f->out;
    if (!wb__reserve(&o->group, &o->capacity, o->n + 1, sizeof *o->group)) {
        f->failed = true;
        return &f->dummy;
    }
    o->group[o->n] =
        (wb__group){.kind = kind, .product = -1, .first = -1, .last = -1, .col_dims = -1,
                    .turns = f->attempt->device->backend->dear_launches};
    return &o->group[o->n++];
}

/* Appends x to the list of group g. */
static void groups_add_value(grouping *f, int g, int x)
{
    if (f->failed) return;
    wb__group *group = &f->out->group[g];
    wb__member *of = f->out->of;
    of[x].group = g;
    of[x].next = -1;
    group->n++;
    group->products += wb__ops[groups_value(f, x)->op].class == WB__LIBRARY;
    group->reduces |= wb__ops[groups_value(f, x)->op].class == WB__REDUCE;
    if (group->first < 0) group->first = x;
    else of[group->last].next = x;
    group->last = x;
}

static void groups_add_to_last(grouping *f, int x) { groups_add_value(f, f->out->n - 1, x); }

/* Returns the index of the latest group that computes an operand of v, or an operand of a deferred
 * operand; -1: no group does. */
static int latest_computing_group(const grouping *f, const wb__value *v)
{
    int g = -1;
    for (int i = 0; i < v->n_in; i++) {
        const int base = groups_base_of(f, v, i);
        const int made = is_deferred(f, base) ? latest_computing_group(f, groups_value(f, base))
                                              : groups_group_of(f, base);
        g = WB__MAX(g, made);
    }
    return g;
}

/* Whether group g can read v's operands from its own registers, or from memory that an earlier
 * group writes. */
static bool groups_can_read(const grouping *f, int g, const wb__value *v)
{
    const bool whole = wb__ops[v->op].class == WB__LIBRARY;     /* v reads whole operands */
    for (int i = 0; i < v->n_in; i++) {
        const int x = wb__input(f->values, v, i), base = f->values->base[x],
                  made = groups_group_of(f, base);
        if (made > g || (made == g && (whole || x != base || f->out->of[base].ends))) return false;
    }
    return true;
}

/* ---- adding a value to a group --------------------------------------------------------------- */

/* Sets `reader` of x if group g reads x for a value of `size` elements without computing x. */
static void set_reader(grouping *f, int g, int x, int64_t size)
{
    const int base = f->values->base[x];
    if (groups_group_of(f, base) == g) return;
    if (groups_value(f, x)->size == size) f->progress[x].reader = g;
    if (groups_value(f, base)->size == size) f->progress[base].reader = g;
}

static void add_to_space(grouping *f, int g, int x)
{
    const wb__value *v = groups_value(f, x);
    if (f->failed) return;
    if (wb__ops[v->op].class == WB__REDUCE) {
        wb__group *to = &f->out->group[g];
        wb__space_turn(to, f->values, v);
        f->out->of[x].ends =
            wb__space_reduction(to, f->values, v, &to->col_dims) != WB__REDUCES_COLUMNS;
        const int in = wb__input(f->values, v, 0);
        set_reader(f, g, in, groups_value(f, in)->size);
    } else {
        for (int i = 0; i < v->n_in; i++) set_reader(f, g, wb__input(f->values, v, i), v->size);
    }
    groups_add_value(f, g, x);
}

/* Starts a fused group with the space of v. */
static void groups_start_fused(grouping *f, const wb__value *v)
{
    wb__group *g = groups_new_group(f, WB__GROUP_FUSED);
    if (wb__ops[v->op].class == WB__REDUCE) wb__space_of_reduction(g, f->values, v);
    else wb__space_of(g, v);
}

/* ---- deferred values ------------------------------------------------------------------------- */

/* Whether v, if it joined group g, would be complete only when the kernel of g ends. */
static bool ends_with_kernel(const grouping *f, const wb__group *g, const wb__value *v)
{
    int cols;
    return wb__ops[v->op].class == WB__REDUCE &&
           wb__space_reduction(g, f->values, v, &cols) != WB__REDUCES_COLUMNS;
}

/* Whether the deferred values that v depends on fit into group g.  `trial` is a copy of the group,
 * whose col_dims this function may set. */
static bool groups_deferred_fit(const grouping *f, int g, wb__group *trial, const wb__value *v)
{
    for (int i = 0; i < v->n_in; i++) {
        const int x = wb__input(f->values, v, i);
        if (!is_deferred(f, x)) continue;
        const wb__value *d = groups_value(f, x);
        if (!groups_can_read(f, g, d) || !groups_deferred_fit(f, g, trial, d) ||
            !wb__space_admit(trial, f->values, d) || ends_with_kernel(f, trial, d))
            return false;
    }
    return true;
}

/* Adds to group g the deferred values that v depends on. */
static void groups_add_deferred(grouping *f, int g, const wb__value *v)
{
    for (int i = 0; i < v->n_in; i++) {
        const int x = wb__input(f->values, v, i);
        if (!is_deferred(f, x)) continue;
        f->progress[x].below = 0;
        groups_add_deferred(f, g, groups_value(f, x));
        add_to_space(f, g, x);
    }
}

static void group_alone(grouping *f, int x);
static void group_library(grouping *f, int x);

/* Ends the deferral of x: x gets a group. */
static void group_if_deferred(grouping *f, int x)
{
    if (!is_deferred(f, x)) return;
    f->progress[x].below = 0;
    group_alone(f, x);
}

/* Returns the number of deferred values that v depends on, plus 1 for v.  A value that is reached
 * on several paths counts once for each path. */
static int count_below(const grouping *f, const wb__value *v)
{
    int n = 1;
    for (int i = 0; i < v->n_in; i++) n += f->progress[wb__input(f->values, v, i)].below;
    return n;
}

/* Starts a group for x and the deferred values that x depends on.  If they do not fit into one
 * group, x's deferred operands get groups of their own first. */
static void group_alone(grouping *f, int x)
{
    const wb__value *v = groups_value(f, x);
    if (wb__ops[v->op].class == WB__LIBRARY) {
        group_library(f, x);
        return;
    }
    groups_start_fused(f, v);
    if (f->failed) return;
    wb__group trial = f->out->group[f->out->n - 1];
    if (count_below(f, v) > f->attempt->most_values ||
        !groups_deferred_fit(f, f->out->n - 1, &trial, v) ||
        (trial.products && wb__ops[v->op].class == WB__REDUCE)) {
        f->out->n--;                            /* the group is still empty */
        for (int i = 0; i < v->n_in; i++) group_if_deferred(f, groups_base_of(f, v, i));
        groups_start_fused(f, v);
        if (f->failed) return;
    }
    const int g = f->out->n - 1;
    groups_add_deferred(f, g, v);
    add_to_space(f, g, x);
}

/* Whether the elementwise value or reduction v can be deferred.  Its operands must be leaves, free
 * sources or deferred values; a comparison may also read the result of a product.  A reduction must
 * satisfy wb__reduces_columns. */
static bool can_be_deferred(const grouping *f, const wb__value *v)
{
    const bool compares = wb__ops[v->op].class == WB__COMPARE;
    for (int i = 0; i < v->n_in; i++) {
        const int base = groups_base_of(f, v, i), g = groups_group_of(f, base);
        if (g < 0) continue;
        if (!compares || f->out->group[g].kind != WB__GROUP_LIBRARY ||
            f->patterns->product[f->out->group[g].product].result != base)
            return false;
    }
    if (count_below(f, v) > MOST_DEFERRED) return false;
    return wb__ops[v->op].class != WB__REDUCE || wb__reduces_columns(f->values, v);
}

/* ---- elementwise values and reductions ------------------------------------------------------- */

/* Whether v and the deferred values below it can join group g. */
static bool groups_may_join(const grouping *f, int g, const wb__value *v)
{
    wb__group trial = f->out->group[g];
    if (trial.n + count_below(f, v) > f->attempt->most_values) return false;
    return trial.kind == WB__GROUP_FUSED && groups_can_read(f, g, v) &&
           groups_deferred_fit(f, g, &trial, v) && wb__space_admit(&trial, f->values, v);
}

/* Returns the index of the group that v joins: the latest that computes an operand of v, or else a
 * later group that reads an operand; -1: none. */
static int groups_find_for(const grouping *f, const wb__value *v)
{
    const int g = latest_computing_group(f, v);
    if (g >= 0 && groups_may_join(f, g, v)) return g;
    for (int i = 0; i < v->n_in; i++) {
        const int r = WB__MAX(f->progress[groups_base_of(f, v, i)].reader,
                              f->progress[wb__input(f->values, v, i)].reader);
        if (r > g && groups_may_join(f, r, v)) return r;
    }
    return -1;
}

/* Puts x, elementwise or a reduction, into a group, or defers it. */
static void group_fusable(grouping *f, int x)
{
    const wb__value *v = groups_value(f, x);
    for (int i = 0; i < v->n_in; i++) {         /* a view needs its base in memory */
        const int in = wb__input(f->values, v, i), base = f->values->base[in];
        if (in != base) group_if_deferred(f, base);
    }
    if (f->failed) return;
    const int g = groups_find_for(f, v);
    if (g >= 0) {
        groups_add_deferred(f, g, v);
        add_to_space(f, g, x);
    } else if (!f->values->needed[x] && can_be_deferred(f, v)) {
        f->progress[x].below = count_below(f, v);
    } else {
        group_alone(f, x);
    }
}

/* Forms the group of the library operation x; a sum that is fused into it joins.  A further result
 * joins the group of the step's first result.  A deferred bias first gets a group of its own. */
static void group_library(grouping *f, int x)
{
    if (wb__is_further_result(groups_value(f, x)->op)) {
        groups_add_value(f, groups_group_of(f, wb__input(f->values, groups_value(f, x), 0)), x);
        return;
    }
    const int product = f->patterns->of[x].product;
    const wb__product *p = &f->patterns->product[product];
    if (p->bias >= 0) group_if_deferred(f, f->values->base[p->bias]);
    groups_new_group(f, WB__GROUP_LIBRARY)->product = product;
    groups_add_to_last(f, x);
    if (p->sums >= 0) f->out->of[p->sums].group = groups_group_of(f, x);
}

/* Adds x, which is fused into the product p, to p's group.  Forms this group first if p->made_at is
 * x. */
static void group_fused_value(grouping *f, int x, const wb__product *p)
{
    if (p->made_at == x) group_library(f, p->value);
    f->out->of[x].group = groups_group_of(f, p->value);
}

/* Puts x, the concat's input of zeros (gaps.c), which has a group of its own, into the group that
 * computes another input of the concat, if it fits there. */
static void groups_move_zeros(grouping *f, const wb__value *concat, int x)
{
    const int own = groups_group_of(f, x);
    for (int i = 0; i < concat->n_in; i++) {
        const int to = groups_group_of(f, groups_base_of(f, concat, i));
        if (to < 0 || to == own) continue;
        const wb__group *g = &f->out->group[to];
        if (g->kind != WB__GROUP_FUSED || g->reduces || g->n >= f->attempt->most_values ||
            !wb__space_is(g, groups_value(f, x)))
            continue;
        f->out->group[own].first = f->out->group[own].last = -1;
        f->out->group[own].n = 0;
        groups_add_value(f, to, x);
        return;
    }
}

/* Moves the zeros of the concat to groups of its other inputs, where launches are dear. */
static void groups_move_all_zeros(grouping *f, const wb__value *concat)
{
    for (int i = 0; i < concat->n_in && f->attempt->device->backend->dear_launches; i++) {
        const int x = wb__input(f->values, concat, i);
        const wb__value *v = groups_value(f, x);
        if (v->op == WB__OP_literal && v->uses == 1 && groups_group_of(f, x) >= 0 &&
            f->out->group[groups_group_of(f, x)].n == 1)
            groups_move_zeros(f, concat, x);
    }
}

/* Puts x into a group, if a kernel computes it. */
static void group_value(grouping *f, int x)
{
    const wb__value *v = groups_value(f, x);
    const int part = f->patterns->of[x].product;
    switch (wb__ops[v->op].class) {
    case WB__UNARY: case WB__BINARY: case WB__COMPARE: case WB__TEST: case WB__ELEMENTWISE:
    case WB__REDUCE:
        if (part >= 0) group_fused_value(f, x, &f->patterns->product[part]);
        else if (!f->patterns->of[x].unused) group_fusable(f, x);
        break;
    case WB__SOURCE:
        if (!f->values->needed[x]) break;
        groups_start_fused(f, v);
        groups_add_to_last(f, x);
        break;
    case WB__MOVE:
        if (wb__is_view(f->values, x)) break;
        if (v->op == WB__OP_concat) {
            groups_move_all_zeros(f, v);
            groups_new_group(f, WB__GROUP_CONCAT);
            groups_add_to_last(f, x);
        } else {                                /* a contiguous copy */
            group_if_deferred(f, groups_base_of(f, v, 0));
            f->out->of[x].ends = true;
            wb__space_of(groups_new_group(f, WB__GROUP_FUSED),
                         groups_value(f, wb__input(f->values, v, 0)));
            groups_add_to_last(f, x);
        }
        break;
    case WB__LIBRARY:
        if (f->patterns->product[part].in_reader) f->progress[x].below = 1;
        else if (wb__is_further_result(v->op) || f->patterns->product[part].made_at == x)
            group_library(f, x);
        break;
    default: break;
    }
}

static void set_stored(grouping *f, int x)
{
    f->out->of[x].stored |= groups_group_of(f, x) >= 0 && !f->out->of[x].rematerialised;
}

/* Sets .stored for:
 *   - the `needed` values (wb__values);
 *   - values that another group reads, values that their own group reads through a view, and the
 *     operands of rematerialised values;
 *   - values with .ends set, and concats;
 *   - the result, further results, aux and sums of a library step. */
static void find_stored(grouping *f)
{
    wb__member *of = f->out->of;
    for (int x = 0; x < f->values->ir.n; x++) {
        const wb__value *v = groups_value(f, x);
        const int g = of[x].group;
        if (f->values->needed[x]) set_stored(f, f->values->base[x]);
        if (g < 0 && !of[x].rematerialised) continue;
        for (int i = 0; i < v->n_in; i++) {
            const int in = wb__input(f->values, v, i), base = f->values->base[in];
            if (of[base].group != g || in != base || of[x].rematerialised) set_stored(f, base);
        }
        if (g < 0) continue;
        of[x].stored |= of[x].ends || v->op == WB__OP_concat || wb__is_further_result(v->op);
        if (f->out->group[g].kind != WB__GROUP_LIBRARY) continue;
        const wb__product *p = &f->patterns->product[f->out->group[g].product];
        of[x].stored |= p->result == x || p->aux == x || p->sums == x;
    }
}

static bool groups_form_all(grouping *f)
{
    for (int x = 0; x < f->values->ir.n && !f->failed; x++) group_value(f, x);
    if (f->failed || !wb__groups_merge(f->attempt, f->values, f->out)) return false;
    find_stored(f);
    for (int i = 0; i < f->out->n; i++) {
        wb__group *g = &f->out->group[i];
        if (g->kind == WB__GROUP_FUSED && g->col_dims < 0) g->col_dims = WB__MIN(g->ndim, 1);
    }
    return true;
}

bool wb__groups_make(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
                     wb__groups *g)
{
    const size_t n = (size_t)s->ir.n + 1;
    grouping f = {.attempt = a, .values = s, .patterns = p, .out = g};
    g->of = wb__alloc(n * sizeof *g->of);
    f.progress = wb__alloc(n * sizeof *f.progress);
    bool good = g->of && f.progress;
    for (int x = 0; good && x < s->ir.n; x++) {
        g->of[x] = (wb__member){.group = -1, .next = -1};
        f.progress[x] = (progress){.reader = -1};
    }
    good = good && groups_form_all(&f);
    wb__free(f.progress);
    return good;
}

void wb__groups_free(wb__groups *g)
{
    wb__free(g->group);
    wb__free(g->of);
}
