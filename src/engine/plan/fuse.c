/* Which values are made together: each group of values becomes one kernel.
 *
 * Values are taken in order.  An elementwise value or reduction joins the group of the latest of
 * its operands where it fits into that group's space; it may also stand beside the last group that
 * read one of its operands.  Since everything else it needs comes from earlier groups, the order of
 * groups stays an order of execution. */
#include "engine/plan/stages.h"

#include <string.h>

static wb__value *value(const wb__making *m, int x) { return &m->ir.value[x]; }
static int input(const wb__making *m, const wb__value *v, int i) { return m->ir.inputs[v->in + i]; }

static int new_group(wb__making *m, wb__group_kind kind)
{
    if (!wb__make_room(&m->group, &m->groups_room, m->n_groups + 1, sizeof *m->group)) {
        m->failed = true;
        return 0;
    }
    m->group[m->n_groups] = (wb__group){
        .kind = kind, .first = -1, .last = -1, .bias = -1, .product = -1, .col_dims = -1,
                                         .aux = -1, .bits = -1, .sums = -1};
    return m->n_groups++;
}

static void join(wb__making *m, int g, int x)
{
    if (m->failed) return;
    wb__group *group = &m->group[g];
    m->fate[x].group = g;
    group->n++;
    m->next[x] = -1;
    if (group->first < 0) group->first = x;
    else m->next[group->last] = x;
    group->last = x;
}

/* The latest group among the makers of a value's operands, and of theirs where they are deferred;
 * -1 if all are leaves. */
static int latest(const wb__making *m, const wb__value *v)
{
    int g = -1;
    for (int i = 0; i < v->n_in; i++) {
        int base = wb__base(m, input(m, v, i));
        int made = m->fate[base].deferred ? latest(m, value(m, base)) : m->fate[base].group;
        g = WB__MAX(g, made);
    }
    return g;
}

/* ---- spaces ---------------------------------------------------------------------------------- */

static bool full(const wb__group *g, const wb__value *v)
{
    return v->ndim == g->ndim && !memcmp(v->dims, g->dims, g->ndim * sizeof g->dims[0]);
}

/* One value a row: size 1 along the columns, the space's size elsewhere. */
static bool row(const wb__group *g, const wb__value *v)
{
    if (v->ndim != g->ndim || g->col_dims < 0) return false;
    for (int i = 0; i < g->ndim; i++)
        if (v->dims[g->axis[i]] != (i < g->ndim - g->col_dims ? g->dims[g->axis[i]] : 1))
            return false;
    return true;
}

static int new_space(wb__making *m, const wb__value *v)
{
    static const int nhwc[4] = {0, 2, 3, 1};
    int at = new_group(m, WB__GROUP_FUSED);
    if (m->failed) return at;
    wb__group *g = &m->group[at];
    g->ndim = v->ndim;
    g->nhwc = v->nhwc;
    memcpy(g->dims, v->dims, sizeof v->dims);
    for (int i = 0; i < v->ndim; i++) g->axis[i] = v->nhwc ? nhwc[i] : i;
    return at;
}

/* Can v's operands be had in group g: from its registers, or from memory made earlier? */
static bool reachable(const wb__making *m, int g, const wb__value *v)
{
    for (int i = 0; i < v->n_in; i++) {
        int x = input(m, v, i), base = wb__base(m, x);
        if (m->fate[base].group == g && (x != base || m->fate[base].closed)) return false;
        if (m->fate[base].group > g) return false;
    }
    return true;
}

/* ---- deferred values: they join whoever needs them first ------------------------------------- */

typedef enum { NO_FOLD, FOLD_COLS, FOLD_ROWS, FOLD_ALL } fold;

static fold fold_in(wb__group *g, const wb__value *v, const wb__value *x, unsigned mask);
static bool fits_elementwise(wb__making *m, const wb__group *g, const wb__value *v);
static bool fits_reduction(wb__making *m, wb__group *g, const wb__value *v);

static bool fits(wb__making *m, wb__group *g, const wb__value *v)
{
    return wb__ops[v->op].class == WB__REDUCE ? fits_reduction(m, g, v) : fits_elementwise(m, g, v);
}

/* Would v be a fold whose result its own kernel cannot use? */
static bool closes(wb__making *m, wb__group *g, const wb__value *v)
{
    if (wb__ops[v->op].class != WB__REDUCE) return false;
    return fold_in(g, v, wb__ir_in(&m->ir, v, 0), (unsigned)m->ir.attrs[v->attr]) != FOLD_COLS;
}

/* Would v's deferred operands, and theirs, fit into group g?  What they read may have been made
 * since they were put off. `trial` is a copy of the group whose columns may become fixed. */
static bool deferred_fit(wb__making *m, int g, wb__group *trial, const wb__value *v)
{
    for (int i = 0; i < v->n_in; i++) {
        int x = input(m, v, i);
        if (!m->fate[x].deferred) continue;
        const wb__value *d = value(m, x);
        if (!reachable(m, g, d) || !deferred_fit(m, g, trial, d) || !fits(m, trial, d) ||
            closes(m, trial, d))
            return false;
    }
    return true;
}

enum { MOST_WAITING = 64 };         /* so that asking whether they fit takes a bounded time */

static void place_in(wb__making *m, int g, int x);

static void pull(wb__making *m, int g, const wb__value *v)
{
    for (int i = 0; i < v->n_in; i++) {
        int x = input(m, v, i);
        if (!m->fate[x].deferred) continue;
        m->fate[x].deferred = false;
        pull(m, g, value(m, x));
        place_in(m, g, x);
    }
}

static void group_alone(wb__making *m, int x);

static void make_deferred(wb__making *m, const wb__value *v)
{
    for (int i = 0; i < v->n_in; i++) {
        int x = wb__base(m, input(m, v, i));
        if (!m->fate[x].deferred) continue;
        m->fate[x].deferred = false;
        group_alone(m, x);
    }
}

static bool may_join(wb__making *m, int g, const wb__value *v)
{
    wb__group trial = m->group[g];
    if (trial.n >= m->most_values) return false;
    return m->group[g].kind == WB__GROUP_FUSED && reachable(m, g, v) &&
           deferred_fit(m, g, &trial, v) && fits(m, &trial, v);
}

/* Groups that v might join: its latest maker, or one that already reads an operand and comes after
 * all makers. */
static int candidate(wb__making *m, const wb__value *v)
{
    int g = latest(m, v);
    if (g >= 0 && may_join(m, g, v)) return g;
    for (int i = 0; i < v->n_in; i++) {
        int r = m->fate[wb__base(m, input(m, v, i))].reader;
        if (r > g && may_join(m, r, v)) return r;
    }
    return -1;
}

static void note_readers(wb__making *m, int g, const wb__value *v)
{
    for (int i = 0; i < v->n_in; i++) {
        int base = wb__base(m, input(m, v, i));
        if (m->fate[base].group != g && value(m, base)->size == v->size) m->fate[base].reader = g;
    }
}

/* ---- elementwise values ---------------------------------------------------------------------- */

static bool fits_elementwise(wb__making *m, const wb__group *g, const wb__value *v)
{
    (void)m;
    return full(g, v) || row(g, v);
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* How the reduced axes lie in a space with a fixed number of columns. */
static fold fold_with(const wb__group *g, const wb__value *x, unsigned mask, int cols, bool choose)
{
    bool in_cols = true, all_cols = true, in_rows = true, all_rows = true;
    int outer = g->outer_dims;
    for (int i = 0; i < g->ndim; i++) {
        int axis = g->axis[i];
        if (x->dims[axis] == 1) continue;
        bool reduced = mask >> axis & 1;
        if (i < g->ndim - cols) {
            in_cols &= !reduced;
            all_rows &= reduced || i < outer;
            in_rows &= !(reduced && i < outer);
        } else {
            all_cols &= reduced;
            in_rows &= !reduced;
        }
    }
    if (all_cols && all_rows && !choose && !outer) return FOLD_ALL;
    if (in_cols && all_cols) return FOLD_COLS;
    if (in_rows && all_rows) return FOLD_ROWS;
    return NO_FOLD;
}

/* The fold that reduces v's operand in group g; sets the group's columns where they were free. */
static fold fold_in(wb__group *g, const wb__value *v, const wb__value *x, unsigned mask)
{
    bool everything = true;
    for (int i = 0; i < x->ndim; i++) everything &= x->dims[i] == 1 || mask >> i & 1;
    if (everything && v->op != WB__OP_argmax && !g->outer_dims) return FOLD_ALL;
    if (g->col_dims >= 0) {
        fold f = fold_with(g, x, mask, g->col_dims, true);
        return v->op == WB__OP_argmax && f != FOLD_COLS ? NO_FOLD : f;
    }
    for (int cols = 0; cols <= g->ndim; cols++) {
        fold f = fold_with(g, x, mask, cols, true);
        if (f == NO_FOLD || (v->op == WB__OP_argmax && f != FOLD_COLS)) continue;
        g->col_dims = cols;
        return f;
    }
    return NO_FOLD;
}

static bool has_points(const wb__group *g)
{
    for (int i = 0; i < g->ndim; i++)
        if (!g->dims[i]) return false;
    return true;
}

static bool fits_reduction(wb__making *m, wb__group *g, const wb__value *v)
{
    const wb__value *x = wb__ir_in(&m->ir, v, 0);
    unsigned mask = (unsigned)m->ir.attrs[v->attr];
    if (full(g, x)) return fold_in(g, v, x, mask) != NO_FOLD;
    /* a fold over all points meets a row's value once a column: no matter to an extreme, wrong for
     * a sum; and never, where there are no columns */
    return (v->op == WB__OP_max || v->op == WB__OP_min) && row(g, x) && has_points(g) &&
           fold_in(g, v, x, mask) == FOLD_ALL;
}

/* A space of its own for a reduction that fits nowhere: outer dimensions where the reduced axes lie
 * in the middle, else the reduced axes moved to the end. */
static int own_space(wb__making *m, const wb__value *v, const wb__value *x, unsigned mask)
{
    int at = new_space(m, x);
    if (m->failed) return at;
    wb__group *g = &m->group[at];
    if (fold_in(g, v, x, mask) != NO_FOLD) return at;
    int first = g->ndim, last = -1, n = 0, axis[WB_MAX_DIMS];
    for (int i = 0; i < g->ndim; i++)
        if (mask >> g->axis[i] & 1) { first = WB__MIN(first, i); last = i; }
    bool together = v->op != WB__OP_argmax;
    for (int i = first; i <= last; i++)
        together &= mask >> g->axis[i] & 1 || x->dims[g->axis[i]] == 1;
    if (together) {
        g->outer_dims = first;
        g->col_dims = g->ndim - 1 - last;
        return at;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < g->ndim; i++)
            if ((mask >> g->axis[i] & 1) == (unsigned)pass) axis[n++] = g->axis[i];
    memcpy(g->axis, axis, sizeof axis);
    for (g->col_dims = 0; mask; mask &= mask - 1) g->col_dims++;
    return at;
}

/* ---- one value into a group ------------------------------------------------------------------ */

static void place_in(wb__making *m, int g, int x)
{
    const wb__value *v = value(m, x);
    if (wb__ops[v->op].class == WB__REDUCE) {
        fold f = fold_in(&m->group[g], v, wb__ir_in(&m->ir, v, 0), (unsigned)m->ir.attrs[v->attr]);
        m->fate[x].closed = f == FOLD_ROWS || f == FOLD_ALL;
        int base = wb__base(m, input(m, v, 0));
        if (m->fate[base].group != g && value(m, base)->size == wb__ir_in(&m->ir, v, 0)->size)
            m->fate[base].reader = g;
    } else {
        note_readers(m, g, v);
    }
    join(m, g, x);
}

static int space_for(wb__making *m, const wb__value *v)
{
    bool folds = wb__ops[v->op].class == WB__REDUCE;
    return folds ? own_space(m, v, wb__ir_in(&m->ir, v, 0), (unsigned)m->ir.attrs[v->attr])
                 : new_space(m, v);
}

/* A new group for v and as many of its deferred operands as fit; the others get groups before it.
 */
static void group_alone(wb__making *m, int x)
{
    const wb__value *v = value(m, x);
    int g = space_for(m, v);
    if (m->failed) return;
    wb__group trial = m->group[g];
    if (!deferred_fit(m, g, &trial, v)) {
        m->n_groups--;                          /* it is empty yet: those before it first */
        make_deferred(m, v);
        g = space_for(m, v);
        if (m->failed) return;
    }
    pull(m, g, v);
    place_in(m, g, x);
}

/* The deferred values that v stands on, and itself; one met along several ways counts as often. */
static int waiting(const wb__making *m, const wb__value *v)
{
    int n = 1;
    for (int i = 0; i < v->n_in; i++) {
        const wb__fate *f = &m->fate[input(m, v, i)];
        if (f->deferred) n += f->waiting;
    }
    return n;
}

/* Made of leaves, sources and other deferred values only, and ending no kernel: it can wait.  So can
 * the comparison of a product that stands in memory, such as relu's in the backward pass: to read
 * the product there costs no more than a kernel here that writes where it is positive. */
static bool can_wait(const wb__making *m, const wb__value *v)
{
    const bool compares = wb__ops[v->op].class == WB__COMPARE;
    for (int i = 0; i < v->n_in; i++) {
        const int base = wb__base(m, input(m, v, i)), g = m->fate[base].group;
        if (g < 0) continue;
        if (!compares || m->group[g].kind != WB__GROUP_LIBRARY || m->group[g].product != base)
            return false;
    }
    if (waiting(m, v) > MOST_WAITING) return false;
    if (wb__ops[v->op].class != WB__REDUCE) return true;
    const wb__value *x = wb__ir_in(&m->ir, v, 0);
    unsigned mask = (unsigned)m->ir.attrs[v->attr];
    bool rest = false, seen = false;
    for (int i = 0; i < x->ndim; i++) {         /* trailing axes, and not all of them */
        if (x->dims[i] == 1) continue;
        bool reduced = mask >> i & 1;
        if (seen && !reduced) return false;
        seen |= reduced;
        rest |= !reduced;
    }
    return rest && !x->nhwc;
}

static void fusable(wb__making *m, int x, bool needed)
{
    const wb__value *v = value(m, x);
    for (int i = 0; i < v->n_in; i++) {         /* a view looks at memory */
        int in = input(m, v, i), base = wb__base(m, in);
        if (in == base || !m->fate[base].deferred) continue;
        m->fate[base].deferred = false;
        group_alone(m, base);
    }
    if (m->failed || m->fate[x].put_off || wb__absorbed(m, x)) return;
    for (int i = 0; i < v->n_in; i++) {         /* what was to be absorbed with x */
        wb__fate *f = &m->fate[input(m, v, i)];
        if (!f->put_off) continue;
        f->put_off = false;
        fusable(m, input(m, v, i), false);
    }
    int g = candidate(m, v);
    if (g >= 0) {
        pull(m, g, v);
        place_in(m, g, x);
    } else if (!needed && can_wait(m, v)) {
        m->fate[x].deferred = true;
        m->fate[x].waiting = waiting(m, v);
    } else {
        group_alone(m, x);
    }
}

/* ---- everything ------------------------------------------------------------------------------ */

static bool wants_memory(const wb__op op)
{
    wb__op_class c = wb__ops[op].class;
    return c == WB__LIBRARY || op == WB__OP_assemble;
}

/* Sources and views that a library kernel, an assembly or a result needs as memory are made by a
 * kernel of their own. */
static void find_needed(wb__making *m, bool *needed)
{
    const wb__request *r = m->request;
    for (int i = 0; i < m->ir.n; i++) {
        const wb__value *v = value(m, i);
        if (!wants_memory((wb__op)v->op)) continue;
        for (int j = 0; j < v->n_in; j++) needed[input(m, v, j)] = true;
    }
    for (int i = 0; i < r->n_results; i++) needed[m->value_of[r->results[i]->index]] = true;
    for (int i = 0; i < r->n_writes; i++) needed[m->value_of[r->writes[i]->index]] = true;
    for (int i = m->ir.n - 1; i >= 0; i--) { /* through views, down to what they look at */
        const wb__value *v = value(m, i);
        if (needed[i] && wb__ops[v->op].class == WB__MOVE && v->op != WB__OP_assemble)
            needed[input(m, v, 0)] = true;
    }
}

static void one(wb__making *m, int x, const bool *needed)
{
    const wb__value *v = value(m, x);
    wb__view view;
    switch (wb__ops[v->op].class) {
    case WB__UNARY:
    case WB__BINARY:
    case WB__COMPARE:
    case WB__TEST:
    case WB__ELEMENTWISE:
    case WB__REDUCE: fusable(m, x, needed[x]); break;
    case WB__SOURCE: if (needed[x]) join(m, new_space(m, v), x); break;
    case WB__MOVE:
        if (m->fate[wb__base(m, input(m, v, 0))].deferred && v->op != WB__OP_assemble &&
            !wb__view_of(m, x, &view)) {
            int base = wb__base(m, input(m, v, 0));
            m->fate[base].deferred = false;
            group_alone(m, base);
        }
        if (v->op == WB__OP_assemble) join(m, new_group(m, WB__GROUP_ASSEMBLE), x);
        else if (!wb__view_of(m, x, &view)) { /* no strides tell it: a copy, in order */
            m->fate[x].closed = true;
            join(m, new_space(m, wb__ir_in(&m->ir, v, 0)), x);
        }
        break;
    case WB__LIBRARY: {
        if (wb__is_beside(v->op)) {
            join(m, m->fate[input(m, v, 0)].group, x);
            break;
        }
        int g = new_group(m, WB__GROUP_LIBRARY);
        join(m, g, x);
        if (!m->failed) m->group[g].product = x;
        break;
    }
    default: break;
    }
}

/* What another group, a library kernel or the outside reads must stand in memory. */
static void find_stored(wb__making *m, const bool *needed)
{
    for (int i = 0; i < m->ir.n; i++) {
        const wb__value *v = value(m, i);
        int g = m->fate[i].group;
        if (needed[i]) m->fate[wb__base(m, i)].stored = true;
        if (g < 0 && !m->fate[i].again) continue;
        for (int j = 0; j < v->n_in; j++) {
            int x = input(m, v, j), base = wb__base(m, x);
            if (m->fate[base].again) continue;
            if (m->fate[base].group != g || x != base) m->fate[base].stored = true;
        }
        if (g < 0) continue;
        if (m->group[g].aux == i || m->group[g].sums == i) m->fate[i].stored = true;
        if (m->fate[i].closed ||
            (m->group[g].kind != WB__GROUP_FUSED && m->group[g].product == i) ||
            v->op == WB__OP_assemble || wb__is_beside(v->op))
            m->fate[i].stored = true;
        if (v->op == WB__OP_reshape || v->op == WB__OP_permute || v->op == WB__OP_slice ||
            v->op == WB__OP_expand)
            m->fate[i].stored = true;
    }
}

bool wb__fuse(wb__making *m)
{
    size_t n = (size_t)m->ir.n + 1;
    bool *needed = wb__alloc_zero(n, sizeof *needed);
    m->fate = wb__alloc(n * sizeof *m->fate);
    m->next = wb__alloc(n * sizeof *m->next);
    if (!needed || !m->fate || !m->next) {
        wb__free(needed);
        return false;
    }
    for (int i = 0; i < m->ir.n; i++)
        m->fate[i] = (wb__fate){.group = -1,
                                .result = -1,
                                .write = -1,
                                .reader = -1,
                                .inside = -1,
                                .constant = -1,
                                .tenant = -1};
    find_needed(m, needed);
    wb__find_absorbable(m);
    for (int i = 0; i < m->ir.n && !m->failed; i++) one(m, i, needed);
    if (!m->failed) wb__merge_groups(m, needed);
    if (!m->failed) find_stored(m, needed);
    for (int g = 0; g < m->n_groups; g++) {
        wb__group *group = &m->group[g];
        if (group->kind == WB__GROUP_FUSED && group->col_dims < 0)
            group->col_dims = WB__MIN(group->ndim, 1);
    }
    wb__free(needed);
    return !m->failed;
}
