/* wb_load_tensors: a file's tensors as a flat tree. */
#include "base/text.h"
#include "io/borrow.h"
#include "io/formats.h"

#include <string.h>

enum { MOST_LISTED = 50 };

/* All that Weber has no dtype for, at once. */
static int check(const char *path, const wb__table *t)
{
    wb__text list = {0};
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        const wb__entry *e = &t->entries[i];
        if (!e->dtype && n++ < MOST_LISTED) wb__text_add(&list, "\n  \"%.200s\": %s", e->name, e->type);
    }
    if (n > MOST_LISTED) wb__text_add(&list, "\n  and %d more", n - MOST_LISTED);
    if (!n) return 0;
    char *text = wb__text_take(&list);
    if (text) wb__fail(WB_ERROR_DTYPE, "%s: holds what is no tensor of Weber's:%s", path, text);
    wb__free(text);
    return wb_error_code();
}

/* The entry's own block where it has one that will do, else a copy. */
static wb_tensor *tensor_of(wb__entry *e)
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
    if (!wb_default_device()->backend->is_gpu)
        return wb__borrow_block(block, e->dtype, e->ndim, e->dims);
    wb_tensor *x = wb_from(block, e->dtype, e->ndim, e->dims);
    wb__free(block);
    return x;
}

static bool fill(wb_tree *tree, wb__table *t)
{
    for (int i = 0; i < t->n; i++) {
        wb_tensor *x = tensor_of(&t->entries[i]);
        if (!x || !wb__branch_put_copy(&tree->node, i, t->entries[i].name, x)) return false;
        wb_object_free(x);
    }
    return true;
}

wb_tree *wb_load_tensors(const char *path)
{
    wb__table t;
    if (wb__table_load(path, NULL, true, &t)) return NULL;
    wb_tree *tree = check(path, &t) ? NULL : wb__tree_new(t.n);
    if (tree && !fill(tree, &t)) {
        wb_object_free(tree);
        tree = NULL;
    }
    wb__table_free(&t);
    return tree;
}
