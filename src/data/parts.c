/* Roots that are made of other datasets, their parts: joined datasets, and windows over a dataset.
 * Batches are copied from the parts as wb__dataset_fill copies them. */
#include "data/dataset.h"

#include <string.h>

/* Whether a dataset can be a part.  A dataset with maps cannot: maps change whole batches, and a
 * batch may have observations of several parts. */
static bool parts_can_have(const wb_dataset *d, const char *what)
{
    if (!wb__is_dataset(d, what)) return false;
    if (!wb__dataset_mapped(d)) return true;
    wb__fail(WB_ERROR_ARGUMENT, "%s: the dataset has a map of wb_mapobs: call %s first, and "
             "wb_mapobs on its result", what, what);
    return false;
}

/* ---- joined datasets ------------------------------------------------------------------------- */

static bool parts_same_fields(const wb_dataset *a, const wb_dataset *b)
{
    if (a->n_fields != b->n_fields || a->device != b->device || !a->names != !b->names)
        return false;
    for (int k = 0; k < a->n_fields; k++) {
        const wb__field *f = &a->field[k], *g = &b->field[k];
        const char *name = a->names ? a->names[k] : NULL, *other = b->names ? b->names[k] : NULL;
        if (f->present != g->present || !name != !other || (name && strcmp(name, other)))
            return false;
        if (f->present && (f->dtype != g->dtype || f->ndim != g->ndim ||
                           memcmp(f->dims, g->dims, (size_t)f->ndim * sizeof *f->dims)))
            return false;
    }
    return true;
}

/* Returns a dataset of arrays with the observations of parts that are on a device. */
static wb_dataset *parts_join_arrays(int n, wb_dataset *const *parts, const wb_dataset *root)
{
    WB__FIRST(wb_joinobs_array, NULL);
    wb_tensor *x[WB__FIELDS];
    wb_scope *s = wb_scope_open();
    wb_tensor **all = wb__alloc((size_t)(n * root->n_fields) * sizeof *all);
    bool ok = s && all;
    for (int i = 0; ok && i < n; i++) {
        wb_batch batch;
        ok = !wb__dataset_all(parts[i], &batch);
        for (int k = 0; ok && k < root->n_fields; k++) all[k * n + i] = *wb__batch_at(&batch, k);
    }
    for (int k = 0; ok && k < root->n_fields; k++) {
        x[k] = root->field[k].present ? wb_concat_array(0, n, all + k * n) : WB_NONE;
        ok = x[k] != NULL;
    }
    wb_dataset *d = ok ? wb__dataset_of_arrays("joinobs", root->n_fields, x, root->names) : NULL;
    wb__free(all);
    if (d) d = wb_object_keep(d);
    return s && wb_scope_close(s) ? NULL : d;
}

wb_dataset *wb_joinobs_array(int n, wb_dataset *const *parts)
{
    WB__EDGE;
    if (n < 1 || !parts)
        return wb__fail_null(WB_ERROR_ARGUMENT, "joinobs: %d datasets; there must be one at least",
                             n);
    for (int i = 0; i < n; i++)
        if (!parts_can_have(parts[i], "joinobs")) return NULL;
    const wb_dataset *root = wb__dataset_root(parts[0]);
    for (int i = 1; i < n; i++)
        if (!parts_same_fields(root, wb__dataset_root(parts[i])))
            return wb__fail_null(WB_ERROR_SHAPE,
                                 "joinobs: dataset %d has other names, shapes, dtypes or another "
                                 "device than dataset 0: print both with wb_show", i);
    if (!wb__dataset_on_host(parts[0])) return parts_join_arrays(n, parts, root);
    wb_dataset *d = wb__dataset_like(root, WB__DATA_JOIN, n);
    for (int i = 0; d && i < n; i++) {
        d->parts[d->n_parts++] = wb__ref(parts[i]);
        d->n = d->first[i + 1] = d->first[i] + parts[i]->n;
    }
    return d;
}

int wb__part_of(const wb_dataset *root, int64_t i)
{
    int low = 0, high = root->n_parts;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (root->first[middle] <= i) low = middle;
        else high = middle;
    }
    return low;
}

static void parts_place_rows(const wb_dataset *root, int64_t i, void *const *to, void **at)
{
    for (int k = 0; k < root->n_fields; k++)
        at[k] = root->field[k].present ? (char *)to[k] + i * root->field[k].bytes : NULL;
}

static int fill_joined(const wb_dataset *root, int64_t n, const int64_t *index, void *const *to,
                       bool parallel)
{
    int64_t *below = wb__alloc((size_t)n * sizeof *below + 1);
    void *at[WB__FIELDS] = {NULL};
    int status = below ? 0 : WB_ERROR_MEMORY;
    for (int64_t i = 0, run; !status && i < n; i += run) {      /* rows of one part at once */
        const int part = wb__part_of(root, index[i]);
        for (run = 0; i + run < n && wb__part_of(root, index[i + run]) == part; run++)
            below[run] = index[i + run] - root->first[part];
        parts_place_rows(root, i, to, at);
        status = wb__dataset_fill(root->parts[part], run, below, at, parallel);
    }
    wb__free(below);
    return status;
}

/* ---- windows --------------------------------------------------------------------------------- */

static wb_dataset *parts_windows_over(wb_dataset *d, int64_t size, int64_t stride)
{
    wb_dataset *w = wb__dataset_like(wb__dataset_root(d), WB__DATA_WINDOW, 1);
    if (!w) return NULL;
    w->parts[w->n_parts++] = wb__ref(d);
    w->n = (d->n - size) / stride + 1;
    w->window = size;
    w->stride = stride;
    for (int k = 0; k < w->n_fields; k++) {
        wb__field *f = &w->field[k];
        if (!f->present) continue;
        if (f->ndim < WB_MAX_DIMS - 1)
            memmove(f->dims + 1, f->dims, (size_t)f->ndim * sizeof *f->dims);
        f->dims[0] = size;
        f->ndim++;
    }
    if (!wb__dataset_measure(w, "slidingwindow")) return w;
    wb_object_free(w);
    return NULL;
}

wb_dataset *wb_slidingwindow(wb_dataset *d, int64_t size, int64_t stride)
{
    if (!parts_can_have(d, "slidingwindow")) return NULL;
    if (size < 1 || size > d->n || stride < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT,
                             "slidingwindow: size %lld and stride %lld over %lld observations; "
                             "both are at least 1, and the size at most the number of observations",
                             (long long)size, (long long)stride, (long long)d->n);
    return parts_windows_over(d, size, stride);
}

/* Returns a block with the indices of the observations in n windows.  NULL with the error set. */
static int64_t *parts_window_rows(const wb_dataset *root, int64_t n, const int64_t *index)
{
    int64_t *rows = wb__alloc((size_t)(n * root->window) * sizeof *rows + 1);
    for (int64_t i = 0; rows && i < n; i++)
        for (int64_t j = 0; j < root->window; j++)
            rows[i * root->window + j] = index[i] * root->stride + j;
    return rows;
}

int wb__parts_fill(const wb_dataset *root, int64_t n, const int64_t *index, void *const *to,
                   bool parallel)
{
    if (root->kind == WB__DATA_JOIN) return fill_joined(root, n, index, to, parallel);
    int64_t *rows = parts_window_rows(root, n, index);
    if (!rows) return WB_ERROR_MEMORY;
    const int status = wb__dataset_fill(root->parts[0], n * root->window, rows, to, parallel);
    wb__free(rows);
    return status;
}

int wb__windows_gather(const wb_dataset *root, int64_t n, const int64_t *index, wb_batch *batch)
{
    int64_t *rows = parts_window_rows(root, n, index);
    if (!rows) return WB_ERROR_MEMORY;
    int status = wb__dataset_gather(root->parts[0], n * root->window, rows, batch);
    wb__free(rows);
    batch->n = n;
    batch->names = root->names;
    for (int k = 0; !status && k < root->n_fields; k++) {
        const wb__field *f = &root->field[k];
        int64_t dims[WB_MAX_DIMS] = {n};
        memcpy(dims + 1, f->dims, (size_t)f->ndim * sizeof *dims);
        wb_tensor **x = wb__batch_at(batch, k);
        if (f->present && !(*x = wb_reshape_array(*x, f->ndim + 1, dims)))
            status = wb_error_code();
    }
    return status;
}

wb_dataset *wb__windows_to(wb_dataset *root, const wb_device *d, wb_dtype dtype)
{
    wb_dataset *part = wb__dataset_to(root->parts[0], d, dtype);
    return part ? parts_windows_over(part, root->window, root->stride) : NULL;
}
