/* A warning about a loop that makes a plan at each step, since its shapes change.  A sequence of
 * operations is counted when a plan is built for it, so that running plans costs nothing. */
#include "engine/plan_shapes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* Plans of one sequence, sequences in sight, and shapes that a message names. */
enum { MANY = 32, SEQUENCES = 16, NAMED = 3 };

/* The tensors that bring a sequence its shapes are the leaves and those without operands. */
typedef struct { int64_t dims[WB_MAX_DIMS]; uint8_t ndim; } shape;
typedef struct {
    uint64_t hash;                  /* of operations, dtypes and numbers of dimensions */
    uint64_t seen[MANY];            /* hashes of the shapes */
    int plans, n;
    shape *first;                   /* the n shapes of the first plan */
} sequence;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sequence sequences[SEQUENCES];
static atomic_bool warned;

/* A leaf keeps its operands until it is detached. */
static bool brings_shapes(const wb_tensor *x) { return wb__is_leaf(x) || !x->n_in; }

static uint64_t hash_of(const wb__request *r, uint64_t *shapes, int *n)
{
    uint64_t h = (uint64_t)r->order.n;
    *shapes = 0, *n = 0;
    for (int i = 0; i < r->order.n; i++) {
        const wb_tensor *x = r->order.node[i];
        const uint64_t op = wb__is_leaf(x) ? WB__OP_constant : x->op;
        h = wb__mix(h, op | (uint64_t)x->dtype << 16 | (uint64_t)x->ndim << 24);
        if (!brings_shapes(x)) continue;
        ++*n;
        for (int k = 0; k < x->ndim; k++) *shapes = wb__mix(*shapes, (uint64_t)x->dims[k]);
    }
    return h;
}

/* Returns the sequence of the hash, or the one with the fewest plans, emptied. */
static sequence *find(uint64_t hash)
{
    sequence *least = sequences;
    for (int i = 0; i < SEQUENCES; i++) {
        if (sequences[i].first && sequences[i].hash == hash) return &sequences[i];
        if (sequences[i].plans < least->plans) least = &sequences[i];
    }
    wb__free(least->first);
    *least = (sequence){.hash = hash};
    return least;
}

static void keep_first(sequence *s, const wb__request *r, int n)
{
    s->first = wb__alloc_zero((size_t)n + 1, sizeof *s->first);
    if (!s->first) {
        wb_clear_error();
        return;
    }
    for (int i = 0; i < r->order.n; i++) {
        const wb_tensor *x = r->order.node[i];
        if (!brings_shapes(x)) continue;
        memcpy(s->first[s->n].dims, x->dims, x->ndim * sizeof x->dims[0]);
        s->first[s->n++].ndim = x->ndim;
    }
}

static void write_shape(wb__text *t, const shape *s)
{
    for (int k = 0; k < s->ndim; k++)
        wb__text_add(t, k ? ",%lld" : "[%lld", (long long)s->dims[k]);
    wb__text_add(t, "]");
}

/* Writes the shapes that differ from those of the first plan.  False: none differs, or all do, as
 * where each parameter of a model is looked at in turn. */
static bool write_changes(const sequence *s, const wb__request *r, wb__text *t)
{
    int at = 0, named = 0, same = 0;
    for (int i = 0; i < r->order.n && at < s->n; i++) {
        const wb_tensor *x = r->order.node[i];
        if (!brings_shapes(x)) continue;
        const shape *first = &s->first[at++];
        if (!x->ndim) continue;
        if (!memcmp(first->dims, x->dims, x->ndim * sizeof x->dims[0])) {
            same += wb__is_leaf(x);
        } else if (named++ < NAMED) {
            wb__text_add(t, "%s%s, at first ", named > 1 ? "; " : "", wb_describe(x));
            write_shape(t, first);
        }
    }
    if (named > NAMED) wb__text_add(t, "; ...");
    return named && same;
}

/* Counts a plan.  Returns whether it is the one to warn at. */
static bool count(const wb__request *r, wb__text *changes)
{
    uint64_t shapes;
    int n;
    sequence *s = find(hash_of(r, &shapes, &n));
    if (s->plans >= MANY) return false;
    for (int i = 0; i < s->plans; i++)
        if (s->seen[i] == shapes) return false;
    if (!s->first) keep_first(s, r, n);
    if (!s->first || s->n != n) return false;
    s->seen[s->plans++] = shapes;
    return s->plans == MANY && write_changes(s, r, changes);
}

void wb__plan_shapes_count(const wb__request *r)
{
    wb__text changes = {0};
    if (atomic_load_explicit(&warned, memory_order_relaxed)) return;
    pthread_mutex_lock(&lock);
    const bool many = count(r, &changes);
    pthread_mutex_unlock(&lock);
    char *text = wb__text_take(&changes);
    if (many && text && !atomic_exchange(&warned, true))
        wb__log(WB_LOG_WARN,
                "%d plans were made for the same operations, since shapes change: %s.\n"
                "A new shape costs a plan, which is kept for the next time (wb_set_plan_cache).\n"
                "Pad to one length or to a few (buckets), and leave a short last batch out "
                "(.drop_last).", MANY, text);
    wb__free(text);
}

void wb__plan_shapes_clear(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SEQUENCES; i++) wb__free(sequences[i].first);
    memset(sequences, 0, sizeof sequences);
    pthread_mutex_unlock(&lock);
}
