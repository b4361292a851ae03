/* Groups that were begun apart and turn out to belong together, and small ones that need not be.
 *
 * Values join groups in their order, so the gates of a cell, each made of the same product, begin four
 * groups; what needs them all joins the last.  Here an elementwise group takes in the elementwise
 * groups before it that make its operands, where nobody between the two needs them: one kernel, and
 * what it had to load stays in registers.
 *
 * What is done to one number a channel, as between the sums of a batch norm and their use, would be a
 * kernel of its own between two large ones.  On a GPU such a kernel costs more than to make these
 * numbers again for each element, so they are written into the programs that want them. */
#include "engine/plan/stages.h"

enum {
    MOST_MERGED = 64,                   /* values in a group that grew by merging */
    MOST_AGAIN = 8                      /* values in one that is made again */
};

/* Who uses each value: the users of x are user[first[x]] .. user[first[x + 1] - 1]. */
typedef struct { int *first, *user; } users;

static const wb__value *value(const wb__making *m, int x) { return &m->ir.value[x]; }

/* What x reads, behind views. */
static int operand(const wb__making *m, int x, int i)
{
    return wb__base(m, m->ir.inputs[value(m, x)->in + i]);
}

static bool find_users(const wb__making *m, users *u)
{
    const int n = m->ir.n;
    int total = 0;
    for (int x = 0; x < n; x++) total += value(m, x)->n_in;
    u->first = wb__alloc_zero((size_t)n + 2, sizeof *u->first);
    u->user = wb__alloc(((size_t)total + 1) * sizeof *u->user);
    if (!u->first || !u->user) return false;
    for (int x = 0; x < n; x++)
        for (int i = 0; i < value(m, x)->n_in; i++) u->first[operand(m, x, i) + 2]++;
    for (int x = 0; x < n; x++) u->first[x + 2] += u->first[x + 1];
    for (int x = 0; x < n; x++)         /* first[x + 1] moves from the start of x's to its end */
        for (int i = 0; i < value(m, x)->n_in; i++) u->user[u->first[operand(m, x, i) + 1]++] = x;
    return true;
}

/* Nothing but elementwise values, none of which is written to a variable: that is done at the end. */
static bool is_plain(const wb__making *m, int g, const bool *written)
{
    const wb__group *group = &m->group[g];
    if (group->kind != WB__GROUP_FUSED || group->first < 0) return false;
    for (int x = group->first; x >= 0; x = m->next[x])
        if (!wb__is_elementwise((wb__op)value(m, x)->op) || m->fate[x].closed || written[x])
            return false;
    return true;
}

static bool same_space(const wb__group *a, const wb__group *b)
{
    if (a->ndim != b->ndim || a->nhwc != b->nhwc || a->outer_dims != b->outer_dims) return false;
    if (a->col_dims >= 0 && b->col_dims >= 0 && a->col_dims != b->col_dims) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dims[i] != b->dims[i] || a->axis[i] != b->axis[i]) return false;
    return true;
}

/* Does a group before b, other than a itself, use what a makes?  Does b look at it by a view? */
static bool wanted_between(const wb__making *m, const users *u, int a, int b)
{
    for (int x = m->group[a].first; x >= 0; x = m->next[x])
        for (int k = u->first[x]; k < u->first[x + 1]; k++) {
            const int g = m->fate[u->user[k]].group;
            if (g >= 0 && g != a && g < b) return true;
            const wb__value *user = value(m, u->user[k]);
            for (int i = 0; g == b && i < user->n_in; i++) {
                const int in = m->ir.inputs[user->in + i];
                if (in != x && wb__base(m, in) == x) return true;
            }
        }
    return false;
}

/* Group a's values stand before b's from now on; a is empty. */
static void take_in(wb__making *m, int a, int b)
{
    wb__group *from = &m->group[a], *to = &m->group[b];
    for (int x = from->first; x >= 0; x = m->next[x]) m->fate[x].group = b;
    m->next[from->last] = to->first;
    to->first = from->first;
    to->n += from->n;
    if (to->col_dims < 0) to->col_dims = from->col_dims;
    from->first = from->last = -1;
    from->n = 0;
}

/* The latest group that makes an operand of b and may become part of it; -1: none. */
static int candidate(const wb__making *m, const users *u, int b, const bool *written)
{
    int best = -1;
    for (int x = m->group[b].first; x >= 0; x = m->next[x])
        for (int i = 0; i < value(m, x)->n_in; i++) {
            const int a = m->fate[operand(m, x, i)].group;
            if (a <= best || a >= b || !is_plain(m, a, written)) continue;
            if (m->group[a].n + m->group[b].n > WB__MIN(m->most_values, MOST_MERGED)) continue;
            if (same_space(&m->group[a], &m->group[b]) && !wanted_between(m, u, a, b)) best = a;
        }
    return best;
}

/* ---- small groups made again ------------------------------------------------------------------- */

static bool writes(const wb__making *m, int g, const bool *written)
{
    for (int x = m->group[g].first; x >= 0; x = m->next[x])
        if (written[x]) return true;
    return false;
}

/* Can v be made again for each point of the group's space?  It is smaller, and of its dimensions. */
static bool spreads(const wb__group *g, const wb__value *v)
{
    bool smaller = false;
    if (g->kind != WB__GROUP_FUSED || v->ndim != g->ndim) return false;
    for (int i = 0; i < v->ndim; i++) {
        if (v->dims[i] != 1 && v->dims[i] != g->dims[i]) return false;
        smaller |= v->dims[i] != g->dims[i];
    }
    return smaller;
}

static bool reads_directly(const wb__making *m, const wb__value *user, int x)
{
    for (int i = 0; i < user->n_in; i++) {
        const int in = m->ir.inputs[user->in + i];
        if (in != x && wb__base(m, in) == x) return false;
    }
    return true;
}

static bool may_be_made_again(const wb__making *m, const users *u, int g, const bool *written,
                              const bool *needed)
{
    if (m->group[g].n > MOST_AGAIN || !is_plain(m, g, written)) return false;
    for (int x = m->group[g].first; x >= 0; x = m->next[x]) {
        if (needed[x]) return false;
        for (int k = u->first[x]; k < u->first[x + 1]; k++) {
            const wb__value *user = value(m, u->user[k]);
            const int to = m->fate[u->user[k]].group;
            if (wb__is_view(m, u->user[k])) continue;       /* who looks through it is a user too */
            if (!reads_directly(m, user, x)) return false;
            if (to == g || (to < 0 && m->fate[u->user[k]].again)) continue;
            if (to < 0 || !spreads(&m->group[to], value(m, x)) || writes(m, to, written)) return false;
            if (!wb__is_elementwise((wb__op)user->op) && wb__ops[user->op].class != WB__REDUCE)
                return false;
        }
    }
    return true;
}

static void make_again(wb__making *m, int g)
{
    wb__group *group = &m->group[g];
    for (int x = group->first; x >= 0; x = m->next[x]) {
        m->fate[x].group = -1;
        m->fate[x].again = true;
    }
    group->first = group->last = -1;
    group->n = 0;
}

/* ---- both -------------------------------------------------------------------------------------- */

void wb__merge_groups(wb__making *m, const bool *needed)
{
    users u = {0};
    bool *written = wb__alloc_zero((size_t)m->ir.n + 1, sizeof *written);
    const wb__request *r = m->request;
    if (written && find_users(m, &u)) {
        for (int i = 0; i < r->n_writes; i++) written[m->value_of[r->writes[i]->index]] = true;
        for (int g = m->n_groups - 1; g >= 0 && !m->device->backend->addressable; g--)
            if (may_be_made_again(m, &u, g, written, needed)) make_again(m, g);
        for (int b = 0; b < m->n_groups; b++)
            for (int a = 0; a >= 0 && is_plain(m, b, written);) {
                a = candidate(m, &u, b, written);
                if (a >= 0) take_in(m, a, b);
            }
    } else {
        m->failed = true;
    }
    wb__free(written);
    wb__free(u.first);
    wb__free(u.user);
}
