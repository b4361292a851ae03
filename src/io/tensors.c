/* wb_load_tensors, which loads the tensors of a file as a tree of one level. */
#include "io/borrow.h"
#include "io/formats.h"

/* Returns a tensor of the entry's values on the default device.  On the CPU the tensor takes over a
 * block with the values, if the entry owns one or wb__entry_values makes one.  Otherwise the values
 * are copied.  NULL with the error set. */
static wb_tensor *io_tensors_from_entry(wb__entry *e)
{
    void *block;
    const void *values = wb__entry_values(e, &block);
    if (!values && e->bytes) return NULL;
    if (!block && e->owned) {
        block = (void *)(uintptr_t)e->data;
        e->owned = false;
        e->data = NULL;
    }
    if (!block) return wb_from(values, e->dtype, e->ndim, e->dims);
    if (wb_default_device()->backend->host_visible)
        return wb__borrow_block(block, e->dtype, e->ndim, e->dims);
    wb_tensor *x = wb_from(block, e->dtype, e->ndim, e->dims);
    wb__free(block);
    return x;
}

static bool io_tensors_add_all(wb_tree *tree, wb__table *t)
{
    for (int i = 0; i < t->n; i++) {
        wb_tensor *x = io_tensors_from_entry(&t->entries[i]);
        if (!x || !wb__branch_put_copy(&tree->node, i, t->entries[i].name, x)) return false;
        wb_object_free(x);
    }
    return true;
}

wb_tree *wb_load_tensors(const char *path)
{
    wb__table t;
    if (wb__table_load(path, wb__all_variables, true, &t)) return NULL;
    wb_tree *tree = wb__table_check(path, &t) ? NULL : wb__tree_new(t.n);
    if (tree && !io_tensors_add_all(tree, &t)) {
        wb_object_free(tree);
        tree = NULL;
    }
    wb__table_free(&t);
    return tree;
}
