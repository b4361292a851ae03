/* Finds values that cost less to compute again than to load.
 *
 * On a GPU a batch norm in bf16 computes x - mean and (x - mean) / deviation in f32, which several
 * kernels read.  To compute them again from x costs each kernel two bytes for an element in place
 * of four, and a few operations that take no time beside that; and nothing is stored.  Such a value
 * is rematerialised: the kernels that read it compute it again, from values that are stored anyway.
 * Its own group also computes it, if that group reads it.
 *
 * A kernel that stores a y of bf16 has more exact numbers in registers.  A value is computed again
 * from the stored y only if a cast to f32 reads y, which reads the rounded y in the kernel too
 * (fused.c), so that both kernels compute the same bits.  Or if y is only scaled: 1 - y * y in bf16
 * would lose digits.
 *
 * On the CPU an operation costs as much as a load from the second-level cache.  A value is computed
 * again there if one or two operations compute it from values of its own size: s * (1 - s) and
 * 1 - t * t of the gates of an LSTM, which all steps would keep beside s and t. */
#include "engine/plan/stages.h"

enum {
    MOST_OPERATIONS = 8,                /* operations that compute a value again */
    MOST_IF_NOT_FREE = 2,               /* the same limit where operations take time */
    MOST_SOURCES = 3                /* stored values of full size from which it is computed again */
};

typedef struct {
    const wb__values *values;
    wb__groups *out;
    const wb__readers *readers;
    const bool *written;                /* of each value: it is written to a variable */
    int most_values;
    bool free_operations;             /* as in wb__backend */
} remaker;

/* How a value is computed again. */
typedef struct {
    int64_t size;                       /* elements of the value */
    int source[MOST_SOURCES], n_sources;  /* stored values from which it is computed */
    int also[MOST_OPERATIONS], n_also;  /* values of its group that are computed again with it */
    int operations;                     /* number of operations */
    bool scales;                        /* the operations between the value that is being traced and
                                           the recipe's value only scale */
} recipe;

static const wb__value *remake_value(const remaker *r, int x) { return wb__value_at(r->values, x); }
static wb__member *remake_member(const remaker *r, int x) { return &r->out->of[x]; }

/* Whether an operation takes less time than a load of its result. */
static bool is_cheap(wb__op op)
{
    switch (op) {
    case WB__OP_neg: case WB__OP_abs: case WB__OP_square: case WB__OP_relu: case WB__OP_leakyrelu:
    case WB__OP_add: case WB__OP_sub: case WB__OP_mul: case WB__OP_maximum: case WB__OP_minimum:
    case WB__OP_where: case WB__OP_cast:
        return true;
    default: return wb__ops[op].class == WB__COMPARE || wb__ops[op].class == WB__TEST;
    }
}

/* Whether the result of x has about the relative error of its operands of full size. */
static bool only_scales(const remaker *r, int x)
{
    const wb__value *v = remake_value(r, x);
    bool by_less = false;
    for (int i = 0; i < v->n_in; i++) by_less |= wb__ir_in(&r->values->ir, v, i)->size < v->size;
    return v->op == WB__OP_cast || v->op == WB__OP_neg || v->op == WB__OP_where ||
           (v->op == WB__OP_mul && by_less);
}

/* Whether a kernel stores x, unless it is rematerialised. */
static bool is_stored(const remaker *r, int x)
{
    const int g = remake_member(r, x)->group;
    bool stored = g < 0 || r->values->needed[x] || remake_member(r, x)->ends;
    for (int k = r->readers->first[x]; k < r->readers->first[x + 1] && !stored; k++)
        stored = remake_member(r, r->readers->user[k])->group != g;
    return stored;
}

/* Adds x to the recipe's sources.  False: there are too many. */
static bool remake_add_source(recipe *c, int x)
{
    for (int i = 0; i < c->n_sources; i++)
        if (c->source[i] == x) return true;
    if (c->n_sources == MOST_SOURCES) return false;
    c->source[c->n_sources++] = x;
    return true;
}

/* Whether x is rounded when it is stored: its own kernel has more exact numbers in registers. */
static bool is_rounded(const wb__value *x) { return wb__is_half(x->dtype) && x->op != WB__OP_cast; }

static bool remake_add_to_recipe(const remaker *r, int x, recipe *c);

/* Adds an operand of x, `in`, to the recipe. */
static bool remake_add_operand(const remaker *r, int x, int in, recipe *c)
{
    const int base = r->values->base[in];
    const wb__value *v = remake_value(r, base);
    const wb__member *of = remake_member(r, base);
    if (wb__is_free_source(r->values, base))
        return v->op == WB__OP_literal || v->op == WB__OP_iota;
    if (v->size < c->size && !r->free_operations) return false;
    if (v->size < c->size || (of->rematerialised && of->group < 0)) return true;
    if (of->rematerialised) return remake_add_to_recipe(r, base, c);
    if (in != base || v->op == WB__OP_constant || is_stored(r, base)) {
        const bool own = of->group >= 0 && of->group == remake_member(r, x)->group;
        const bool exact = !own || !is_rounded(v) || remake_value(r, x)->op == WB__OP_cast;
        return (exact || c->scales) && remake_add_source(c, base);
    }
    if (c->n_also == MOST_OPERATIONS || !is_cheap((wb__op)v->op)) return false;
    c->also[c->n_also++] = base;
    return remake_add_to_recipe(r, base, c);
}

/* Adds the operations that compute x again to the recipe.  False: they cost too much. */
static bool remake_add_to_recipe(const remaker *r, int x, recipe *c)
{
    const wb__value *v = remake_value(r, x);
    const bool scales = c->scales;
    const int most = r->free_operations ? MOST_OPERATIONS : MOST_IF_NOT_FREE;
    bool good = ++c->operations <= most;
    c->scales = scales && only_scales(r, x);
    for (int i = 0; i < v->n_in && good; i++)
        good = remake_add_operand(r, x, wb__input(r->values, v, i), c);
    c->scales = scales;
    return good;
}

/* Whether each reader of x can compute it again. */
static bool can_all_readers_remake(const remaker *r, int x)
{
    const wb__value *v = remake_value(r, x);
    for (int k = r->readers->first[x]; k < r->readers->first[x + 1]; k++) {
        const int u = r->readers->user[k], to = remake_member(r, u)->group;
        const wb__value *user = remake_value(r, u);
        if (wb__is_view(r->values, u)) continue;        /* the readers of a view are listed too */
        if (to < 0 || !wb__reads_directly(r->values, user, x)) return false;
        if (to == remake_member(r, x)->group) continue;
        const wb__group *g = &r->out->group[to];
        if (g->kind != WB__GROUP_FUSED || !wb__space_is(g, v) ||
            wb__group_writes(r->out, to, r->written) || g->n + MOST_OPERATIONS > r->most_values ||
            (!wb__is_elementwise((wb__op)user->op) && wb__ops[user->op].class != WB__REDUCE))
            return false;
    }
    return true;
}

/* Whether the kernel of group g loads all of `source`. */
static bool remake_loads(const remaker *r, int g, int source)
{
    for (int x = r->out->group[g].first; x >= 0; x = remake_member(r, x)->next) {
        const wb__value *v = remake_value(r, x);
        for (int i = 0; i < v->n_in; i++) {
            const int base = r->values->base[wb__input(r->values, v, i)];
            if (base == source) return true;
            if (!remake_member(r, base)->rematerialised || remake_member(r, base)->group == g)
                continue;
            recipe c = {.size = remake_value(r, base)->size, .scales = true};
            if (remake_member(r, base)->group < 0 || !remake_add_to_recipe(r, base, &c)) continue;
            for (int k = 0; k < c.n_sources; k++)
                if (c.source[k] == source) return true;
        }
    }
    return false;
}

/* Whether computing x again costs each reader no more bytes than loading x.  Then the store of x is
 * saved, and the sources that must be kept for a reader need no more memory than x. */
static bool remake_pays(const remaker *r, int x, const recipe *c)
{
    for (int k = r->readers->first[x]; k < r->readers->first[x + 1]; k++) {
        const int to = remake_member(r, r->readers->user[k])->group;
        int64_t loaded = 0;
        for (int i = 0; i < c->n_sources && to >= 0 && to != remake_member(r, x)->group; i++)
            if (!remake_loads(r, to, c->source[i]))
                loaded += wb__value_bytes(remake_value(r, c->source[i]));
        if (loaded > wb__value_bytes(remake_value(r, x))) return false;
    }
    return true;
}

/* Marks x as rematerialised if this is possible and costs less than loading x. */
static void remake_if_cheaper(const remaker *r, int x)
{
    const wb__value *v = remake_value(r, x);
    const wb__member *of = remake_member(r, x);
    const int g = of->group;
    if (g < 0 || of->rematerialised || of->ends || r->values->needed[x] || r->written[x] ||
        r->out->group[g].kind != WB__GROUP_FUSED || !wb__is_elementwise((wb__op)v->op) ||
        !is_cheap((wb__op)v->op) || !wb__space_is(&r->out->group[g], v) || !is_stored(r, x))
        return;
    recipe c = {.size = v->size, .scales = true};
    if (!can_all_readers_remake(r, x) || !remake_add_to_recipe(r, x, &c) || !remake_pays(r, x, &c))
        return;
    remake_member(r, x)->rematerialised = true;
    for (int i = 0; i < c.n_also; i++) remake_member(r, c.also[i])->rematerialised = true;
}

/* Removes x from its group if nothing in this group reads x. */
static void remake_drop_unread(const remaker *r, int x)
{
    wb__member *of = remake_member(r, x);
    const int g = of->group;
    if (!of->rematerialised || g < 0) return;
    for (int k = r->readers->first[x]; k < r->readers->first[x + 1]; k++)
        if (remake_member(r, r->readers->user[k])->group == g) return;
    wb__group *group = &r->out->group[g];
    int before = -1;
    for (int y = group->first; y != x; y = remake_member(r, y)->next) before = y;
    *(before < 0 ? &group->first : &remake_member(r, before)->next) = of->next;
    if (group->last == x) group->last = before;
    group->n--;
    of->group = of->next = -1;
}

void wb__groups_remake(const wb__attempt *a, const wb__values *s, const wb__readers *readers,
                       const bool *written, wb__groups *g)
{
    const remaker r = {.values = s, .out = g, .readers = readers, .written = written,
                       .most_values = a->most_values,
                       .free_operations = a->device->backend->free_operations};
    for (int x = 0; x < s->ir.n; x++) remake_if_cheaper(&r, x);
    for (int x = s->ir.n - 1; x >= 0; x--) remake_drop_unread(&r, x);
}
