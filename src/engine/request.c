/* Fills requests.  Every evaluation does this for every tensor of its graph.  The arrays are kept,
 * so memory is allocated only while they grow. */
#include "base/parallel.h"
#include "engine/request.h"

#include <string.h>

void wb__request_free(wb__request *r)
{
    wb__order_free(&r->order);
    wb__free(r->words);
    wb__free(r->numbers);
    wb__free(r->leaves);
    wb__free(r->results);
    wb__free(r->is_result);
    wb__free(r->writes);
    wb__free(r->targets);
    wb__free(r->leaf_of);
    wb__free(r->reads);
    memset(r, 0, sizeof *r);
}

static bool request_add_leaf(wb__request *r, int at, wb__plan_leaf leaf)
{
    if (!wb__reserve(&r->leaves, &r->leaves_capacity, r->n_leaves + 1, sizeof *r->leaves))
        return false;
    r->leaf_of[at] = r->n_leaves;
    r->leaves[r->n_leaves++] = leaf;
    return true;
}

/* Encodes the starts and steps of a slice.  If the slice is read in place it becomes a leaf, and
 * its starts are left out.  A bit of the first word of the tensor records this.  False: out of
 * memory. */
static bool request_encode_slice(wb__request *r, wb_tensor *x, int at, uint64_t **w)
{
    enum { IN_PLACE = 63 };
    wb__leaf_slice slice;
    const bool in_place = wb__leaf_slice_of(x, &slice);
    for (int i = in_place ? x->ndim : 0; i < 2 * x->ndim; i++) *(*w)++ = (uint64_t)x->attr[i];
    if (!in_place) return true;
    r->words[r->n_words] |= (uint64_t)1 << IN_PLACE;
    const int64_t dense = x->size * (int64_t)wb__dtype_size((wb_dtype)x->dtype);
    return request_add_leaf(r, at, (wb__plan_leaf){.tensor = slice.base, .at = slice.at,
                                                   .bytes = slice.bytes, .granule = slice.granule,
                                                   .scattered = slice.bytes > 2 * dense});
}

/* Encodes one tensor as words: operation, shape, inputs and attributes.  Numbers that may differ
 * between runs go to `numbers`; values of fixed literals are part of the words.  A known tensor
 * becomes a leaf.  False: out of memory, or x is gone. */
static bool request_encode_tensor(wb__request *r, wb_tensor *x, int at)
{
    bool leaf = wb__known(x);
    if (wb__unlikely(!leaf && wb__is_gone(x))) return false;
    uint32_t n_in = leaf ? 0 : x->n_in;
    int n_attr = leaf || x->op == WB__OP_custom ? 0 : x->n_attr;    /* customs': for gradients */
    if (!wb__reserve(&r->words, &r->words_capacity, r->n_words + 4 + x->ndim + (int)n_in + n_attr,
                     sizeof *r->words))
        return false;
    uint64_t *w = r->words + r->n_words;
    uint32_t kind;                      /* op, dtype and ndim in one word */
    _Static_assert(offsetof(wb_tensor, dtype) == offsetof(wb_tensor, op) + 2 &&
                   offsetof(wb_tensor, ndim) == offsetof(wb_tensor, op) + 3, "these are adjacent");
    memcpy(&kind, &x->op, sizeof kind);
    if (leaf) kind = (uint32_t)WB__OP_constant | (uint32_t)x->dtype << 16 | (uint32_t)x->ndim << 24;
    *w++ = (uint64_t)kind | (uint64_t)n_in << 32;
    for (int i = 0; i < x->ndim; i++) *w++ = (uint64_t)x->dims[i];
    r->leaf_of[at] = -1;
    if (leaf) {
        const int64_t bytes = x->size * (int64_t)wb__dtype_size((wb_dtype)x->dtype);
        if (!request_add_leaf(r, at, (wb__plan_leaf){.tensor = x, .bytes = bytes})) return false;
    } else {
        for (uint32_t i = 0; i < n_in; i++)
            *w++ = (uint64_t)wb__order_index(&r->order, x->in[i], wb__is_leaf);
        if (x->op == WB__OP_slice) {
            if (!request_encode_slice(r, x, at, &w)) return false;
        } else {
            for (int i = 0; i < n_attr; i++) *w++ = (uint64_t)x->attr[i];
        }
        if (x->n_numbers) {
            if (!wb__reserve(&r->numbers, &r->numbers_capacity, r->n_numbers + 2,
                             sizeof *r->numbers))
                return false;
            bool fixed =
                x->op == WB__OP_normalize || (x->op == WB__OP_literal && wb__literal_fixed(x));
            *w++ = fixed ? 1 : 0;
            if (fixed) *w++ = x->number[0].u;
            else for (int i = 0; i < x->n_numbers; i++) r->numbers[r->n_numbers++] = x->number[i];
        }
    }
    r->n_words = (int)(w - r->words);
    return true;
}

/* Adds x, a tensor of the order, to the results, unless it is one already.  False: out of
 * memory. */
static bool request_add_result(wb__request *r, wb_tensor *x)
{
    if (x->op == WB__OP_assign) return true;        /* its value is written to the variable */
    const int known = r->n_is_result;
    if (!wb__reserve(&r->is_result, &r->is_result_capacity, r->order.n, sizeof *r->is_result))
        return false;
    if (r->order.n > known) memset(r->is_result + known, 0, (size_t)(r->order.n - known));
    r->n_is_result = WB__MAX(known, r->order.n);
    if (r->is_result[x->index]) return true;
    r->is_result[x->index] = true;
    if (!wb__reserve(&r->results, &r->results_capacity, r->n_results + 1, sizeof *r->results))
        return false;
    r->results[r->n_results++] = x;
    return true;
}

/* Sets targets[i] to the index of the buffer that write i writes: the leaf of its variable, or a
 * new buffer after the leaves.  -1: a later write replaces write i.  False: out of memory. */
static bool find_targets(wb__request *r)
{
    if (!wb__reserve(&r->targets, &r->targets_capacity, r->n_writes + 1, sizeof *r->targets))
        return false;
    r->n_targets = 0;
    for (int i = 0; i < r->n_writes; i++) {
        wb_tensor *v = r->writes[i]->variable;
        r->targets[i] = -1;
        if (v->current != r->writes[i]) continue;   /* a later write replaces it */
        int at = wb__pointer_map_get(&r->order.leaves, v->live);
        r->targets[i] = at >= 0 ? r->leaf_of[at] : r->n_leaves + r->n_targets++;
    }
    return true;
}

/* Adds a pending write, and what it depends on, to the order.  False: out of memory. */
static bool request_add_write(wb__request *r, wb_tensor *a)
{
    return !a->variable || a->device != r->device || wb__order_add_unevaluated(&r->order, a);
}

/* Adds the thread's pending writes, and what they depend on.  The order begins with the last write:
 * an optimiser updates the first layer first, and the backward pass begins with the last layer.  So
 * the gradient of each weight follows that of its layer's output, and the memory of both is free
 * early.  Vectors, such as biases, come after the matrix before them, so that a product can compute
 * the sums of a bias's gradient.  Vectors and numbers at the beginning of the writes, such as
 * running statistics and the numbers of an optimiser, come first: all updates read these numbers.
 * False: out of memory. */
static bool add_writes(wb__request *r, const wb__thread *t)
{
    if (!wb__reserve(&r->writes, &r->writes_capacity, t->n_pending, sizeof *r->writes))
        return false;
    int first = 0;
    for (; first < t->n_pending && t->pending[first]->ndim < 2; first++)
        if (!request_add_write(r, t->pending[first])) return false;
    int added = t->n_pending;               /* writes from this one on are in the order */
    for (int i = t->n_pending; i > first;) {
        const wb_tensor *last = t->pending[--i];    /* last write to a parameter or its moments */
        while (i > first && wb__same_dims(t->pending[i - 1], last)) i--;
        if (last->ndim < 2 && i > first) continue;
        for (int k = i; k < added; k++)
            if (!request_add_write(r, t->pending[k])) return false;
        added = i;
    }
    for (int i = 0; i < t->n_pending; i++)
        if (t->pending[i]->variable && t->pending[i]->device == r->device)
            r->writes[r->n_writes++] = t->pending[i];
    return true;
}

/* Adds the versions that guarded writes replace.  False: out of memory. */
static bool add_guarded(wb__request *r)
{
    for (int i = 0; i < r->n_writes && r->guard; i++) {
        const wb_tensor *a = r->writes[i];
        if (a->variable->current == a && !wb__order_add_unevaluated(&r->order, a->variable->live))
            return false;
    }
    return true;
}

int wb__request_fill(wb__request *r, const wb_device *device, int n, wb_tensor *const *tensors,
                     bool with_pending)
{
    wb__thread *t = wb__this_thread();
    const wb__numerics_now numerics = wb__numerics();
    r->device = device;
    r->precision = numerics.precision;
    r->deterministic = numerics.deterministic;
    r->n_words = r->n_numbers = r->n_leaves = r->n_results = r->n_writes = r->n_is_result = 0;
    r->refused = true;
    wb__order_begin(&r->order);
    if (r->guard && !wb__order_add_unevaluated(&r->order, r->before)) return WB_ERROR_MEMORY;
    for (int i = 0; i < n; i++) {
        if (wb__is_gone(tensors[i])) return wb__gone(tensors[i]);
        if (wb__has_storage(tensors[i]) || wb__device_of(tensors[i]) != device) continue;
        if (!wb__order_add_unevaluated(&r->order, tensors[i]) || !request_add_result(r,
                                                                                     tensors[i])) {
            r->refused = false;
            return WB_ERROR_MEMORY;
        }
    }
    for (int i = 0; i < r->order.n; i++)
        if (wb__is_gone(r->order.node[i])) return wb__gone(r->order.node[i]);
    r->refused = false;
    if (with_pending && (!add_writes(r, t) || !add_guarded(r))) return WB_ERROR_MEMORY;
    if (!wb__reserve(&r->leaf_of, &r->leaf_of_capacity, r->order.n + 1, sizeof *r->leaf_of))
        return WB_ERROR_MEMORY;
    for (int i = 0; i < r->order.n; i++) {
        wb_tensor *x = r->order.node[i];
        if (!request_encode_tensor(r, x, i)) return wb__is_gone(x) ? wb__gone(x) : WB_ERROR_MEMORY;
    }
    if (!find_targets(r)) return WB_ERROR_MEMORY;
    if (!wb__reserve(&r->words, &r->words_capacity, r->n_words + r->n_results + 2 * r->n_writes + 7,
                     sizeof *r->words))
        return WB_ERROR_MEMORY;
    uint64_t *w = r->words + r->n_words;
    *w++ = (uint64_t)r->n_results << 32 | (uint64_t)r->n_writes;
    *w++ = (uint64_t)wb__threads();                 /* kernels are prepared for these: threads, */
    *w++ = (uint64_t)(uintptr_t)device;             /* device, */
    *w++ = (uint64_t)r->precision << 1 | r->deterministic;      /* precision, and whether runs are
                                                                   deterministic */
    for (int i = 0; i < r->n_results; i++) *w++ = r->results[i]->index;
    for (int i = 0; i < r->n_writes; i++) {
        *w++ = r->writes[i]->index;
        *w++ = (uint64_t)r->targets[i];
    }
    *w++ = r->guard ? 1 + (uint64_t)r->guard->index : 0;
    if (r->guard) {
        const int at = wb__pointer_map_get(&r->order.leaves, r->before);
        r->before_leaf = r->leaf_of[at];
        *w++ = (uint64_t)at;
    }
    r->n_words = (int)(w - r->words);
    return 0;
}

/* Hashes the words in four independent chains, so that the multiplications overlap. */
uint64_t wb__request_hash(const wb__request *r)
{
    uint64_t h[4] = {0x243F6A8885A308D3u, 0x13198A2E03707344u, 0xA4093822299F31D0u,
                     0x082EFA98EC4E6C89u};
    int i = 0;
    for (; i + 4 <= r->n_words; i += 4)
        for (int k = 0; k < 4; k++) h[k] = wb__mix(h[k], r->words[i + k]);
    for (; i < r->n_words; i++) h[0] = wb__mix(h[0], r->words[i]);
    return wb__mix(wb__mix(wb__mix(h[0], h[1]), h[2]), h[3]);
}
