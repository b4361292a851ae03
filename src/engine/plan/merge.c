/* Merges groups.
 *
 * A value joins only one of the groups that compute its operands.  Thus the four gates of an LSTM
 * cell start four groups, and the value that reads all gates joins the last of them.  Here an
 * elementwise group is merged with earlier elementwise groups that compute its operands, if no
 * group in between reads these operands.  They then stay in registers of one kernel.
 *
 * A computation on one number for each channel, such as between the sums of a batch norm and their
 * use, would be a small kernel between two large ones.  On a GPU this kernel costs more than
 * recomputing the numbers for each element.  Such values are rematerialised: every kernel that
 * reads them recomputes them.  remake.c finds further values to rematerialise. */
#include "engine/plan/stages.h"

enum {
    MOST_MERGED = 64,                   /* values in a merged group */
    MOST_REMATERIALISED = 8             /* values in a rematerialised group */
};

typedef struct {
    const wb__values *values;
    wb__groups *out;
    int most_values;                    /* limit of values in a group */
    bool *written;                      /* of each value: it is written to a variable */
    wb__readers readers;
} merger;

static const wb__value *merge_value(const merger *m, int x) { return wb__value_at(m->values, x); }
static int merge_group_of(const merger *m, int x) { return m->out->of[x].group; }
static int merge_next(const merger *m, int x) { return m->out->of[x].next; }

/* Returns the value in whose memory input i of x is. */
static int merge_base_of(const merger *m, int x, int i)
{
    return m->values->base[wb__input(m->values, merge_value(m, x), i)];
}

static bool merge_find_readers(merger *m)
{
    const int n = m->values->ir.n;
    int total = 0;
    for (int x = 0; x < n; x++) total += merge_value(m, x)->n_in;
    int *first = m->readers.first = wb__alloc_zero((size_t)n + 2, sizeof *first);
    int *user = m->readers.user = wb__alloc(((size_t)total + 1) * sizeof *user);
    if (!first || !user) return false;
    for (int x = 0; x < n; x++)
        for (int i = 0; i < merge_value(m, x)->n_in; i++) first[merge_base_of(m, x, i) + 2]++;
    for (int x = 0; x < n; x++) first[x + 2] += first[x + 1];
    for (int x = 0; x < n; x++)  /* first[x + 1] moves from the begin of x's readers to their end */
        for (int i = 0; i < merge_value(m, x)->n_in; i++)
            user[first[merge_base_of(m, x, i) + 1]++] = x;
    return true;
}

/* Whether the group of x may be merged with others as far as x goes: x is elementwise, a product,
 * or zeros that fill the gap of a concat (gaps.c) and have joined a group. */
static bool is_mergeable_value(const merger *m, int x)
{
    const wb__value *v = merge_value(m, x);
    return wb__is_elementwise((wb__op)v->op) || wb__ops[v->op].class == WB__LIBRARY ||
           (v->op == WB__OP_literal && v->uses == 1 && m->out->group[merge_group_of(m, x)].n > 1);
}

/* Whether group g has only mergeable values, of which none is written to a variable. */
static bool is_mergeable_group(const merger *m, int g)
{
    const wb__group *group = &m->out->group[g];
    if (group->kind != WB__GROUP_FUSED || group->first < 0) return false;
    for (int x = group->first; x >= 0; x = merge_next(m, x))
        if (!is_mergeable_value(m, x) || m->out->of[x].ends || m->written[x]) return false;
    return true;
}

/* Whether two groups have the same space. */
static bool have_one_space(const wb__group *a, const wb__group *b)
{
    if (a->ndim != b->ndim || a->layout != b->layout || a->outer_dims != b->outer_dims)
        return false;
    if (a->col_dims >= 0 && b->col_dims >= 0 && a->col_dims != b->col_dims) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dims[i] != b->dims[i] || a->axis[i] != b->axis[i]) return false;
    return true;
}

bool wb__reads_directly(const wb__values *s, const wb__value *user, int x)
{
    for (int i = 0; i < user->n_in; i++) {
        const int in = wb__input(s, user, i);
        if (in != x && s->base[in] == x) return false;
    }
    return true;
}

/* Whether the values of group a can move to group b: no group between a and b reads them, and b
 * reads them without views and not as operands of products. */
static bool merge_may_move(const merger *m, int a, int b)
{
    for (int x = m->out->group[a].first; x >= 0; x = merge_next(m, x))
        for (int k = m->readers.first[x]; k < m->readers.first[x + 1]; k++) {
            const wb__value *user = merge_value(m, m->readers.user[k]);
            const int g = merge_group_of(m, m->readers.user[k]);
            if (g >= 0 && g != a && g < b) return false;
            if (g == b && (wb__ops[user->op].class == WB__LIBRARY ||
                           !wb__reads_directly(m->values, user, x)))
                return false;
        }
    return true;
}

/* Moves the values of group a to the front of group b; a becomes empty. */
static void merge_group_into(merger *m, int a, int b)
{
    wb__group *from = &m->out->group[a], *to = &m->out->group[b];
    for (int x = from->first; x >= 0; x = merge_next(m, x)) m->out->of[x].group = b;
    m->out->of[from->last].next = to->first;
    to->first = from->first;
    to->n += from->n;
    to->products += from->products;
    if (to->col_dims < 0) to->col_dims = from->col_dims;
    from->first = from->last = -1;
    from->n = 0;
}

/* Returns the latest group that computes an operand of b and can be merged into b; -1: none. */
static int merge_find_candidate(const merger *m, int b)
{
    int best = -1;
    for (int x = m->out->group[b].first; x >= 0; x = merge_next(m, x))
        for (int i = 0; i < merge_value(m, x)->n_in; i++) {
            const int a = merge_group_of(m, merge_base_of(m, x, i));
            if (a <= best || a >= b || !is_mergeable_group(m, a)) continue;
            const int n = m->out->group[a].n + m->out->group[b].n;
            if (n > WB__MIN(m->most_values, MOST_MERGED)) continue;
            if (m->out->group[a].products + m->out->group[b].products > WB__MOST_PRODUCTS) continue;
            if (!have_one_space(&m->out->group[a], &m->out->group[b])) continue;
            if (merge_may_move(m, a, b)) best = a;
        }
    return best;
}

bool wb__group_writes(const wb__groups *g, int group, const bool *written)
{
    for (int x = g->group[group].first; x >= 0; x = g->of[x].next)
        if (written[x]) return true;
    return false;
}

/* Whether v is smaller than the space of the fused group g and broadcasts to it. */
static bool broadcasts_to(const wb__group *g, const wb__value *v)
{
    bool smaller = false;
    if (g->kind != WB__GROUP_FUSED || v->ndim != g->ndim) return false;
    for (int i = 0; i < v->ndim; i++) {
        if (v->dims[i] != 1 && v->dims[i] != g->dims[i]) return false;
        smaller |= v->dims[i] != g->dims[i];
    }
    return smaller;
}

/* Whether the kernels that read the values of group g can recompute them. */
static bool may_rematerialise(const merger *m, int g)
{
    if (m->out->group[g].n > MOST_REMATERIALISED || m->out->group[g].products ||
        !is_mergeable_group(m, g))
        return false;
    for (int x = m->out->group[g].first; x >= 0; x = merge_next(m, x)) {
        if (m->values->needed[x]) return false;
        for (int k = m->readers.first[x]; k < m->readers.first[x + 1]; k++) {
            const int u = m->readers.user[k], to = merge_group_of(m, u);
            const wb__value *user = merge_value(m, u);
            if (wb__is_view(m->values, u)) continue;    /* the readers of a view are listed too */
            if (!wb__reads_directly(m->values, user, x)) return false;
            if (to == g || (to < 0 && m->out->of[u].rematerialised)) continue;
            if (to < 0 || !broadcasts_to(&m->out->group[to], merge_value(m, x)) ||
                wb__group_writes(m->out, to, m->written))
                return false;
            if (!wb__is_elementwise((wb__op)user->op) && wb__ops[user->op].class != WB__REDUCE)
                return false;
        }
    }
    return true;
}

/* Marks the values of group g as rematerialised; g becomes empty. */
static void rematerialise_group(merger *m, int g)
{
    wb__group *group = &m->out->group[g];
    for (int x = group->first; x >= 0; x = merge_next(m, x)) {
        m->out->of[x].group = -1;
        m->out->of[x].rematerialised = true;
    }
    group->first = group->last = -1;
    group->n = 0;
}

/* Rematerialises small groups if `rematerialises`, and merges groups. */
static void merge_all_groups(merger *m, bool rematerialises)
{
    for (int g = m->out->n - 1; g >= 0 && rematerialises; g--)
        if (may_rematerialise(m, g)) rematerialise_group(m, g);
    for (int b = 0; b < m->out->n; b++)
        for (int a = 0; a >= 0 && is_mergeable_group(m, b);) {
            a = merge_find_candidate(m, b);
            if (a >= 0) merge_group_into(m, a, b);
        }
}

bool wb__groups_merge(const wb__attempt *a, const wb__values *s, wb__groups *g)
{
    const wb__request *r = a->request;
    merger m = {.values = s, .out = g, .most_values = a->most_values};
    m.written = wb__alloc_zero((size_t)s->ir.n + 1, sizeof *m.written);
    const bool good = m.written && merge_find_readers(&m);
    if (good) {
        for (int i = 0; i < r->n_writes; i++)
            m.written[wb__same_memory(s, wb__root(s, r->writes[i]))] = true;
        merge_all_groups(&m, a->device->backend->free_operations);
        wb__groups_remake(a, s, &m.readers, m.written, g);
    }
    wb__free(m.written);
    wb__free(m.readers.first);
    wb__free(m.readers.user);
    return good;
}
