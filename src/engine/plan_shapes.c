/* A warning about a loop that makes a plan at each iteration, since its shapes change, or numbers
 * that are part of a plan.  A sequence of operations is counted when a plan is built for it, so
 * that running plans costs nothing. */
#include "engine/plan_shapes.h"

#include "base/mutex.h"
#include "base/text.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* MANY: plans of one sequence that are too many; SEQUENCES: sequences that are watched; SHAPES:
 * shapes of a plan that are compared; PLAN_SHAPES_NAMED: shapes that a message names. */
enum { MANY = 32, SEQUENCES = 8, SHAPES = 512, PLAN_SHAPES_NAMED = 3 };

/* The shape of a tensor that brings a sequence its shapes: a leaf, that is, a tensor without
 * operands, or a number that is expanded, as in wb_ones. */
typedef struct { int32_t dims[WB_MAX_DIMS]; } plan_shapes_shape;
typedef struct {
    uint64_t hash;                  /* hash of the operations, dtypes and numbers of dimensions */
    uint64_t seen[MANY];            /* hashes of the plans' shapes and numbers */
    int plans;
    bool apart;             /* some shape differed from that of the first plan in several axes */
    plan_shapes_shape first[SHAPES]; /* the shapes of the first plan */
    uint64_t numbers[SHAPES];  /* hashes of the first plan's operations: their shapes and numbers */
} sequence;

typedef enum { PLAN_SHAPES_NOTHING, OF_SHAPES, OF_NUMBERS } plan_shapes_change;

/* Static, since a program must not fail because there is no memory for a warning. */
static wb__mutex plan_shapes_lock = WB__MUTEX_INIT;
static sequence plan_shapes_sequences[SEQUENCES];
static atomic_bool plan_shapes_warned;

/* Whether x brings shapes.  A leaf keeps its operands until it is detached. */
static bool brings_shapes(const wb_tensor *x)
{
    return wb__is_leaf(x) || !x->n_in || (x->op == WB__OP_expand && !x->in[0]->ndim);
}

/* Returns a hash of the shape of x and of its numbers that are part of a plan. */
static uint64_t plan_shapes_numbers_of(const wb_tensor *x)
{
    uint64_t h = x->op;
    for (int k = 0; k < x->ndim; k++) h = wb__mix(h, (uint64_t)x->dims[k]);
    if (wb__is_leaf(x)) return h;
    for (int k = 0; x->op != WB__OP_custom && k < x->n_attr; k++)
        h = wb__mix(h, (uint64_t)x->attr[k]);
    if (x->op == WB__OP_literal && wb__literal_fixed(x)) h = wb__mix(h, x->number[0].u);
    return h;
}

static uint64_t plan_shapes_hash_of(const wb__request *r, uint64_t *numbers)
{
    uint64_t h = (uint64_t)r->order.n;
    *numbers = 0;
    for (int i = 0; i < r->order.n; i++) {
        const wb_tensor *x = r->order.node[i];
        const uint64_t op = wb__is_leaf(x) ? WB__OP_constant : x->op;
        h = wb__mix(h, op | (uint64_t)x->dtype << 16 | (uint64_t)x->ndim << 24);
        *numbers = wb__mix(*numbers, plan_shapes_numbers_of(x));
    }
    return h;
}

/* Returns the sequence with this hash; if there is none, the one with the fewest plans, emptied. */
static sequence *plan_shapes_find(uint64_t hash)
{
    sequence *least = plan_shapes_sequences;
    for (int i = 0; i < SEQUENCES; i++) {
        if (plan_shapes_sequences[i].plans && plan_shapes_sequences[i].hash == hash)
            return &plan_shapes_sequences[i];
        if (plan_shapes_sequences[i].plans < least->plans) least = &plan_shapes_sequences[i];
    }
    least->hash = hash;
    least->plans = 0;
    least->apart = false;
    return least;
}

static plan_shapes_shape plan_shapes_shape_of(const wb_tensor *x)
{
    plan_shapes_shape s = {{0}};
    for (int k = 0; k < x->ndim; k++) s.dims[k] = (int32_t)WB__MIN(x->dims[k], INT32_MAX);
    return s;
}

/* Sets `apart` if a shape differs from that of the first plan in several axes. */
static void plan_shapes_compare(sequence *s, const wb__request *r)
{
    for (int i = 0, at = 0; i < r->order.n && at < SHAPES; i++) {
        if (!brings_shapes(r->order.node[i])) continue;
        const plan_shapes_shape *first = &s->first[at++],
                                now = plan_shapes_shape_of(r->order.node[i]);
        int axes = 0;
        for (int k = 0; k < WB_MAX_DIMS; k++) axes += first->dims[k] != now.dims[k];
        s->apart |= axes > 1;
    }
}

/* Returns the number of bytes, at most `most`, of the whole characters at the text's beginning. */
static int plan_shapes_first_bytes(const char *text, int most)
{
    int n = 0;
    while (n < most && text[n]) {
        const int length = WB__MAX(wb__utf8(text + n, SIZE_MAX), 1);
        if (n + length > most) break;
        n += length;
    }
    return n;
}

/* Writes the shapes that differ from those of the first plan.  False: none differs; or all differ,
 * and in several axes, as in a program that looks at each parameter of a model in turn; or there is
 * no leaf, as where parameters get their initial values. */
static bool write_changed_shapes(const sequence *s, const wb__request *r, char *text, size_t bytes)
{
    size_t n = 0;
    int at = 0, named = 0, same = 0, leaves = 0;
    for (int i = 0; i < r->order.n && at < SHAPES; i++) {
        const wb_tensor *x = r->order.node[i];
        if (!brings_shapes(x)) continue;
        const plan_shapes_shape *first = &s->first[at++], now = plan_shapes_shape_of(x);
        if (!x->ndim) continue;
        leaves += wb__is_leaf(x);
        if (!memcmp(first, &now, sizeof now)) {
            same += wb__is_leaf(x);
        } else if (named++ < PLAN_SHAPES_NAMED) {
            const char *what = wb_describe(x);
            n += (size_t)snprintf(text + n, bytes - n, "%s%.*s, at first [", named > 1 ? "; " : "",
                                  plan_shapes_first_bytes(what, 80), what);
            for (int k = 0; k < x->ndim; k++)
                n += (size_t)snprintf(text + n, bytes - n, k ? ",%d" : "%d", first->dims[k]);
            n += (size_t)snprintf(text + n, bytes - n, "]");
        }
    }
    if (named > PLAN_SHAPES_NAMED) snprintf(text + n, bytes - n, "; ...");
    return named && (same || (leaves && !s->apart));
}

/* Whether the sequence has a leaf, and each leaf the shape that it had in the first plan. */
static bool have_leaves_same_shapes(const sequence *s, const wb__request *r)
{
    int leaves = 0;
    for (int i = 0, at = 0; i < r->order.n && at < SHAPES; i++) {
        const wb_tensor *x = r->order.node[i];
        if (!brings_shapes(x)) continue;
        const plan_shapes_shape now = plan_shapes_shape_of(x);
        if (memcmp(&s->first[at++], &now, sizeof now)) return false;
        leaves += x->ndim && wb__is_leaf(x);
    }
    return leaves > 0;
}

/* Writes the first operation whose shape or numbers differ from those in the first plan.  Called if
 * no leaf differs.  False: no operation differs. */
static bool write_changed_operation(const sequence *s, const wb__request *r, char *text,
                                    size_t bytes)
{
    if (!have_leaves_same_shapes(s, r)) return false;
    for (int i = 0; i < r->order.n && i < SHAPES; i++) {
        const wb_tensor *x = r->order.node[i];
        if (s->numbers[i] == plan_shapes_numbers_of(x)) continue;
        const char *what = wb_describe(x);
        if (x->op == WB__OP_literal) snprintf(text, bytes, "the number %g", x->number[0].f);
        else snprintf(text, bytes, "%s, of which one is now %.*s", wb__ops[x->op].name,
                      plan_shapes_first_bytes(what, 80), what);
        return true;
    }
    return false;
}

static void plan_shapes_keep_first(sequence *s, const wb__request *r)
{
    for (int i = 0, at = 0; i < r->order.n && at < SHAPES; i++)
        if (brings_shapes(r->order.node[i]))
            s->first[at++] = plan_shapes_shape_of(r->order.node[i]);
    for (int i = 0; i < r->order.n && i < SHAPES; i++)
        s->numbers[i] = plan_shapes_numbers_of(r->order.node[i]);
}

/* Counts a plan.  If this is the plan to warn at, returns what changes from plan to plan. */
static plan_shapes_change plan_shapes_count_plan(const wb__request *r, char *text, size_t bytes)
{
    uint64_t numbers;
    sequence *s = plan_shapes_find(plan_shapes_hash_of(r, &numbers));
    if (s->plans >= MANY) return PLAN_SHAPES_NOTHING;
    for (int i = 0; i < s->plans; i++)
        if (s->seen[i] == numbers) return PLAN_SHAPES_NOTHING;
    if (!s->plans) plan_shapes_keep_first(s, r);
    plan_shapes_compare(s, r);
    s->seen[s->plans++] = numbers;
    if (s->plans < MANY) return PLAN_SHAPES_NOTHING;
    return write_changed_shapes(s, r, text, bytes)     ? OF_SHAPES
           : write_changed_operation(s, r, text, bytes) ? OF_NUMBERS
                                                        : PLAN_SHAPES_NOTHING;
}

void wb__plan_shapes_count(const wb__request *r)
{
    char text[PLAN_SHAPES_NAMED * 300]; /* 80 characters, 8 sizes, and the words between, each */
    if (atomic_load_explicit(&plan_shapes_warned, memory_order_relaxed)) return;
    wb__mutex_lock(&plan_shapes_lock);
    const plan_shapes_change many = plan_shapes_count_plan(r, text, sizeof text);
    wb__mutex_unlock(&plan_shapes_lock);
    if (!many || atomic_exchange(&plan_shapes_warned, true)) return;
    if (many == OF_NUMBERS)
        wb__log(WB_LOG_WARN,
                "%d plans were made for the same operations, since numbers of an operation change: "
                "%s.\n"
                "Sizes, places and exponents are parts of a plan, which is kept for the next time "
                "(wb_set_plan_cache).\n"
                "Use few of them, or give what changes as a tensor, as wb_take and wb_pow do.",
                MANY, text);
    else
        wb__log(WB_LOG_WARN,
                "%d plans were made for the same operations, since shapes change: %s.\n"
                "A new shape costs a plan, which is kept for the next time (wb_set_plan_cache).\n"
                "Pad to one length or to a few (buckets), and leave a short last batch out "
                "(.drop_last).", MANY, text);
}

void wb__plan_shapes_clear(void)
{
    wb__mutex_lock(&plan_shapes_lock);
    for (int i = 0; i < SEQUENCES; i++) plan_shapes_sequences[i].plans = 0;
    wb__mutex_unlock(&plan_shapes_lock);
}
