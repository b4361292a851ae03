/* Operators whose results have a shape that depends on values: Compress, NonZero, Unique.  The
 * values are read when the node is called, so wb_compile records such a node only if they are
 * fixed. */
#include "io/onnx/frame.h"
#include "io/onnx/ops_common.h"
#include "weber/indexing.h"

#include <string.h>

/* Returns the values of x, which is made of input 0, as `dtype`, in a block that the caller frees.
 * NULL: the error is set. */
static void *onnx_select_values_of(const wb__onnx_call *c, wb_tensor *x, wb_dtype dtype)
{
    wb_tensor *y = wb__as(x, dtype);
    void *values = y ? wb__alloc((size_t)y->size * wb_dtype_bytes(dtype) + 1) : NULL;
    if (!values || wb__onnx_copy_values(c, 0, y, values, dtype)) return values;
    wb__free(values);
    return NULL;
}

/* ---- Compress -------------------------------------------------------------------------------- */

/* The condition may be shorter than the axis. */
bool wb__onnx_compress(wb__onnx_call *c)
{
    const int64_t *condition;
    const bool flat = !wb__onnx_attribute(c, "axis");
    wb_tensor *x = flat ? wb_reshape_array(c->in[0], 1, &c->in[0]->size) : c->in[0];
    const int axis = x ? wb__onnx_axis(c, flat ? 0 : wb__onnx_int(c, "axis"), x->ndim) : -1;
    const int n = axis < 0 ? -2 : wb__onnx_input_ints(c, 1, &condition);
    if (n < 0) return false;
    int64_t count = 0, *places = wb__alloc((size_t)n * sizeof *places + 1);
    for (int64_t i = 0; places && i < n; i++)
        if (condition[i]) places[count++] = i;
    const bool fits = !places || !count || places[count - 1] < x->dims[axis];
    wb_tensor *at = places && fits ? wb__onnx_from(x, places, WB_I64, 1, &count) : NULL;
    wb__free(places);
    if (!fits)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "the condition %s selects elements that axis %d "
                               "of %s has not", wb_describe(c->in[1]), axis, wb_describe(x));
    return wb__onnx_give(c, at ? wb_take(x, at, axis) : NULL);
}

/* ---- NonZero --------------------------------------------------------------------------------- */

/* [axes, elements]: column k has the place of the k-th element that is not 0. */
bool wb__onnx_non_zero(wb__onnx_call *c)
{
    wb_tensor *x = c->in[0];
    const int64_t size = x->size;
    uint8_t *truth = onnx_select_values_of(c, x, WB_BOOL);
    int64_t n = 0, m = 0, *places = NULL;
    for (int64_t i = 0; truth && i < size; i++) n += truth[i] != 0;
    if (truth) places = wb__alloc((size_t)(n * x->ndim) * sizeof *places + 1);
    for (int64_t i = 0; places && i < size; i++) {
        int64_t rest = i;
        if (!truth[i]) continue;
        for (int a = x->ndim - 1; a >= 0; a--) {
            places[a * n + m] = rest % x->dims[a];
            rest /= x->dims[a];
        }
        m++;
    }
    wb_tensor *y = places ? wb__onnx_from(x, places, WB_I64, 2, (int64_t[]){x->ndim, n}) : NULL;
    wb__free(places);
    wb__free(truth);
    return wb__onnx_give(c, y);
}

/* ---- Unique ---------------------------------------------------------------------------------- */

/* n items of `each` elements; one of both lists is set. */
typedef struct { int64_t n, each; const double *reals; const int64_t *whole; } onnx_select_items;

/* NaN is equal to NaN, and greater than numbers. */
static int compare_reals(double a, double b)
{
    const bool a_nan = a != a, b_nan = b != b;
    if (a_nan || b_nan) return a_nan - b_nan;
    return (a > b) - (a < b);
}

static int onnx_select_compare(const onnx_select_items *t, int64_t i, int64_t k)
{
    for (int64_t e = 0; e < t->each; e++) {
        const int64_t p = i * t->each + e, q = k * t->each + e;
        const int way = t->reals ? compare_reals(t->reals[p], t->reals[q])
                                 : (t->whole[p] > t->whole[q]) - (t->whole[p] < t->whole[q]);
        if (way) return way;
    }
    return 0;
}

/* Sorts order[0 .. n-1] by merging runs; equal items keep their order.  spare: n numbers. */
static void sort_items(const onnx_select_items *t, int64_t *order, int64_t *spare)
{
    for (int64_t i = 0; i < t->n; i++) order[i] = i;
    for (int64_t run = 1; run < t->n; run *= 2) {
        for (int64_t low = 0; low < t->n; low += 2 * run) {
            const int64_t middle = WB__MIN(low + run, t->n), high = WB__MIN(low + 2 * run, t->n);
            int64_t a = low, b = middle;
            for (int64_t k = low; k < high; k++) {
                const bool first = b == high ||
                                   (a < middle && onnx_select_compare(t, order[a], order[b]) <= 0);
                spare[k] = order[first ? a++ : b++];
            }
        }
        memcpy(order, spare, (size_t)t->n * sizeof *order);
    }
}

/* What is known of the unique items: `count` of them; for each the first item that is equal to it
 * and the number of these; for each item the number of its unique item. */
typedef struct { int64_t count, *first, *number, *inverse; } onnx_select_unique;

/* Finds the unique items, in sorted order.  order: the items sorted. */
static void find_unique(const onnx_select_items *t, const int64_t *order, onnx_select_unique *u)
{
    u->count = 0;
    for (int64_t k = 0; k < t->n; k++) {
        if (!k || onnx_select_compare(t, order[k - 1], order[k])) {
            u->first[u->count] = order[k];
            u->number[u->count++] = 0;
        }
        u->number[u->count - 1]++;
        u->inverse[order[k]] = u->count - 1;
    }
}

/* Puts the unique items into the order of their first occurrences.  An item is a first one if it is
 * that of its unique item.  at, spare: n numbers each. */
static void by_occurrence(int64_t n, onnx_select_unique *u, int64_t *at, int64_t *spare)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t was = u->inverse[i];
        if (u->first[was] == i) {
            at[was] = found;
            spare[found++] = was;
        }
        u->inverse[i] = at[was];
    }
    memcpy(at, u->first, (size_t)found * sizeof *at);
    for (int64_t i = 0; i < found; i++) u->first[i] = at[spare[i]];
    memcpy(at, u->number, (size_t)found * sizeof *at);
    for (int64_t i = 0; i < found; i++) u->number[i] = at[spare[i]];
}

/* Sets the outputs for x, whose items are along the axis. */
static bool give_unique(wb__onnx_call *c, wb_tensor *x, int axis, int64_t n,
                        const onnx_select_unique *u)
{
    wb_tensor *first = wb__onnx_from(x, u->first, WB_I64, 1, &u->count);
    c->out[0] = first ? wb_take(x, first, axis) : NULL;
    if (c->n_out > 1) c->out[1] = first;
    if (c->n_out > 2) c->out[2] = wb__onnx_from(x, u->inverse, WB_I64, 1, &n);
    if (c->n_out > 3) c->out[3] = wb__onnx_from(x, u->number, WB_I64, 1, &u->count);
    for (int i = 0; i < c->n_out && i < 4; i++)
        if (!c->out[i]) return false;
    return true;
}

bool wb__onnx_unique(wb__onnx_call *c)
{
    const bool flat = !wb__onnx_attribute(c, "axis");
    wb_tensor *x = flat ? wb_reshape_array(c->in[0], 1, &c->in[0]->size) : c->in[0];
    const int axis = x ? wb__onnx_axis(c, flat ? 0 : wb__onnx_int(c, "axis"), x->ndim) : -1;
    if (axis < 0) return false;
    int64_t order[WB_MAX_DIMS] = {axis};
    for (int i = 0, k = 1; i < x->ndim; i++)
        if (i != axis) order[k++] = i;
    const int64_t n = x->dims[axis];
    const bool real = wb__dtype_float((wb_dtype)x->dtype);
    void *values = onnx_select_values_of(c, wb_permute_array(x, x->ndim, order),
                                         real ? WB_F64 : WB_I64);
    int64_t *block = values ? wb__alloc_zero(5 * (size_t)n + 1, sizeof *block) : NULL;
    bool ok = block != NULL;
    if (ok) {
        const onnx_select_items t = {n, n ? x->size / n : 0, real ? values : NULL,
                                     real ? NULL : values};
        onnx_select_unique u = {0, block, block + n, block + 2 * n};
        sort_items(&t, block + 3 * n, block + 4 * n);
        find_unique(&t, block + 3 * n, &u);
        if (!wb__onnx_int(c, "sorted")) by_occurrence(n, &u, block + 3 * n, block + 4 * n);
        ok = give_unique(c, x, axis, n, &u);
    }
    wb__free(block);
    wb__free(values);
    return ok;
}
