/* Groups the observations with equal labels, by sorting. */
#include "data/groups.h"

#include <stdlib.h>
#include <string.h>

typedef struct { int64_t key, index; } pair;

static int data_groups_by_key(const void *a, const void *b)
{
    const pair *p = a, *q = b;
    if (p->key != q->key) return p->key < q->key ? -1 : 1;
    return p->index < q->index ? -1 : p->index > q->index;
}

void wb__group_free(wb__grouping *g)
{
    wb__free(g->index);
    wb__free(g->start);
    wb__free(g->key);
    *g = (wb__grouping){0};
}

int wb__group_keys(int64_t n, int64_t *keys, wb__grouping *g)
{
    const size_t bytes = ((size_t)n + 1) * sizeof *keys;
    pair *pairs = keys ? wb__alloc(((size_t)n + 1) * sizeof *pairs) : NULL;
    *g = (wb__grouping){n, 0, wb__alloc(bytes), wb__alloc(bytes), keys};
    if (!pairs || !g->index || !g->start) {
        wb__free(pairs);
        wb__group_free(g);
        return WB_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) pairs[i] = (pair){keys[i], i};
    qsort(pairs, (size_t)n, sizeof *pairs, data_groups_by_key);
    for (int64_t i = 0; i < n; i++) {
        if (!i || pairs[i].key != pairs[i - 1].key) {
            g->start[g->groups] = i;
            g->key[g->groups++] = pairs[i].key;
        }
        g->index[i] = pairs[i].index;
    }
    g->start[g->groups] = n;
    wb__free(pairs);
    return 0;
}

/* Replaces the bits of n doubles by integers with the same order.  Returns false if one is NaN. */
static bool data_groups_order_doubles(int64_t n, int64_t *bits)
{
    for (int64_t i = 0; i < n; i++) {
        double value;
        memcpy(&value, &bits[i], sizeof value);
        if (value != value) return false;
        if (value == 0) bits[i] = 0;
        else if (bits[i] < 0) bits[i] = -(bits[i] & INT64_MAX);
    }
    return true;
}

int wb__group_labels(const char *what, wb_tensor *labels, int64_t n, wb__grouping *g)
{
    if (!labels || wb_is_none(labels))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: there are no labels: give .labels", what);
    const int ndim = wb_ndim(labels);
    if (ndim < 0) return wb_error_code();
    if (ndim < 1 || wb_dim(labels, 0) != n || wb_size(labels) != n)
        return wb__fail(WB_ERROR_SHAPE, "%s: labels %s for %lld observations; they are one number "
                        "for each observation, such as wb_onecold of one-hot labels", what,
                        wb_describe(labels), (long long)n);
    const void *data = wb_data(labels);
    int64_t *keys = data ? wb__alloc((size_t)n * sizeof *keys + 1) : NULL;
    if (!keys) return wb_error_code();
    const bool real = wb__dtype_float(wb_dtype_of(labels));
    wb__convert(keys, real ? WB_F64 : WB_I64, data, wb_dtype_of(labels), n);
    if (!real || data_groups_order_doubles(n, keys)) return wb__group_keys(n, keys, g);
    wb__free(keys);
    return wb__fail(WB_ERROR_NUMBER, "%s: a label is NaN", what);
}

int wb__group_dataset(const char *what, wb_dataset *d, wb_tensor *labels, wb__grouping *g)
{
    wb_scope *s = wb_scope_open();
    if (!s) return wb_error_code();
    if (!labels) labels = wb_dataset_y(d);
    int status = labels ? wb__group_labels(what, labels, d->n, g) : (int)wb_error_code();
    const int closed = wb_scope_close(s);
    if (!status && closed) wb__group_free(g);
    return status ? status : closed;
}

/* ---- of tensors ------------------------------------------------------------------------------ */

/* Returns the elements of x at the first observation of each group. */
static wb_tensor *data_groups_first_elements(wb_tensor *x, const wb__grouping *g)
{
    const size_t bytes = wb__dtype_size(wb_dtype_of(x));
    const char *from = wb_data(x);
    char *to = from ? wb__alloc((size_t)g->groups * bytes + 1) : NULL;
    for (int64_t k = 0; to && k < g->groups; k++)
        memcpy(to + (size_t)k * bytes, from + (size_t)g->index[g->start[k]] * bytes, bytes);
    wb_tensor *values = to ? wb_from(to, wb_dtype_of(x), 1, &g->groups) : NULL;
    wb__free(to);
    return values;
}

wb_tensor *wb_group_counts(wb_tensor *labels, wb_tensor **values)
{
    WB__PUBLIC(wb_group_counts, NULL);
    wb__grouping g;
    if (values) *values = NULL;
    if (!wb__operand("group_counts", labels)) return NULL;
    const int64_t n = wb_size(labels);
    if (n < 0 || wb__group_labels("group_counts", labels, n, &g)) return NULL;
    wb_tensor *v = values ? data_groups_first_elements(labels, &g) : labels, *counts = NULL;
    for (int64_t k = 0; k < g.groups; k++) g.key[k] = g.start[k + 1] - g.start[k];
    if (v) counts = wb_from(g.key, WB_I64, 1, &g.groups);
    if (counts && values) *values = v;
    wb__group_free(&g);
    return counts;
}

wb_tensor *wb_group_indices(wb_tensor *labels, double label)
{
    WB__PUBLIC(wb_group_indices, NULL);
    wb__grouping g;
    if (!wb__operand("group_indices", labels)) return NULL;
    const int64_t n = wb_size(labels);
    if (n < 0 || wb__group_labels("group_indices", labels, n, &g)) return NULL;
    wb_tensor *found = NULL;
    int64_t first = 0, count = 0;
    for (int64_t k = 0; k < g.groups; k++) {
        double value;
        const char *at = wb_data(labels);
        const wb_dtype t = wb_dtype_of(labels);
        if (!at) break;
        wb__convert(&value, WB_F64, at + (size_t)g.index[g.start[k]] * wb__dtype_size(t), t, 1);
        if (value != label) continue;
        first = g.start[k];
        count = g.start[k + 1] - first;
    }
    found = wb_from(g.index + first, WB_I64, 1, &count);
    wb__group_free(&g);
    return found;
}
