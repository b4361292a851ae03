/* wb_to of datasets moves the arrays of the root as a whole and rebuilds views and maps over them.
 * All observations of a source and of joined datasets are computed first. */
#include "data/dataset.h"

#include <string.h>

const wb_device *wb__dataset_device(void *dataset)
{
    return wb__dataset_root(dataset)->device;
}

/* Returns 1 if the arrays must be moved or converted, 0 if neither, and -1 with the error set if
 * the device lacks a dtype. */
static int data_move_is_needed(const wb_dataset *root, const wb_device *d, wb_dtype requested)
{
    int go = root->device != d;
    for (int k = 0; k < root->n_fields; k++) {
        const wb__field *f = &root->field[k];
        if (!f->present || (root->device == d && !requested)) continue;
        const wb_dtype t = wb__dtype_on(d, f->dtype, requested);
        if (!t) return -1;
        if (t != f->dtype) go = 1;
    }
    return go;
}

static wb_dataset *data_move_root(wb_dataset *root, const wb_device *d, wb_dtype requested)
{
    wb_batch all;
    wb_tensor *x[WB__FIELDS];
    const bool computed = root->kind != WB__DATA_ARRAYS;
    if (root->kind == WB__DATA_WINDOW) return wb__windows_to(root, d, requested);
    if (computed && wb__dataset_all(root, &all)) return NULL;
    for (int k = 0; k < root->n_fields; k++) {
        x[k] = computed                 ? *wb__batch_at(&all, k)
               : root->field[k].present ? root->tensor[k]
                                        : WB_NONE;
        if (!(x[k] = wb__tensor_to(x[k], d, requested))) return NULL;
    }
    return wb__dataset_of_arrays("dataset_of", root->n_fields, x, root->names);
}

/* Returns the moved root of a dataset, or `root` itself if nothing must be moved.  NULL with the
 * error set. */
static wb_dataset *data_move_root_to(wb_dataset *root, const wb_device *d, wb_dtype requested)
{
    const int go = data_move_is_needed(root, d, requested);
    if (go <= 0) return go ? NULL : root;
    WB__FIRST(wb_object_to, NULL);
    if (root->kind == WB__DATA_STREAM)
        return wb__fail_null(WB_ERROR_UNSUPPORTED, "to: a stream cannot be moved as a whole; move "
                             "its loader, which uploads each batch");
    wb_scope *s = wb_scope_open();
    if (!s) return NULL;
    wb_dataset *made = data_move_root(root, d, requested);
    if (made) made = wb_object_keep(made);
    return wb_scope_close(s) ? NULL : made;
}

static wb_dataset *data_move_rebuild(const wb_dataset *from, wb_dataset *below)
{
    wb_dataset *made = wb__dataset_over(below, from->kind, from->n);
    if (!made) return NULL;
    made->start = from->start;
    made->rank = from->rank;
    made->ranks = from->ranks;
    made->seed = from->seed;
    made->map = from->map;
    made->maps_single = from->maps_single;
    made->ctx = from->ctx;
    if (!from->order) return made;
    made->order = wb__alloc((size_t)from->n * sizeof *made->order);
    if (!made->order) {
        wb_object_free(made);
        return NULL;
    }
    memcpy(made->order, from->order, (size_t)from->n * sizeof *made->order);
    return made;
}

void *wb__dataset_to(void *dataset, const wb_device *d, wb_dtype requested)
{
    wb_dataset *from = dataset;
    if (!from->below) return data_move_root_to(from, d, requested);
    wb_dataset *below = wb__dataset_to(from->below, d, requested);
    if (!below || below == from->below) return below ? from : NULL;
    return data_move_rebuild(from, below);
}
