/* wb_gradient.  This file collects the leaves of `wrt`, lets the engine compute their gradients,
 * and puts the gradients into a tree with the structure of `wrt`. */
#include "tree/tree.h"

#include <string.h>

typedef struct {
    wb__pointer_map index;              /* index of each leaf in wrt, plus 1 */
    wb_tensor **wrt, **grads;
    int n, capacity;
    int visited;                        /* index of the next trainable leaf, for `skips` */
    bool (*skips)(void *ctx, int leaf); /* whether to skip a leaf; may be NULL */
    void *ctx;
} tree_gradient_leaves;

static int tree_gradient_collect(const wb__leaf *leaf, void *ctx)
{
    tree_gradient_leaves *l = ctx;
    if (l->skips && l->skips(l->ctx, l->visited++)) return 0;
    void **at = wb__pointer_map_at(&l->index, leaf->x);
    if (!at) return WB_ERROR_MEMORY;
    if (*at) return 0;
    if (!wb__reserve(&l->wrt, &l->capacity, l->n + 1, sizeof *l->wrt)) return WB_ERROR_MEMORY;
    l->wrt[l->n++] = leaf->x;
    *at = (void *)(intptr_t)l->n;
    return 0;
}

/* Returns the gradient of a leaf, WB_NONE if the leaf has no gradient, or NULL if memory is short.
 * A tied leaf has the same gradient tensor at all its paths. */
static wb_tensor *tree_gradient_result(const wb__leaf *leaf, void *ctx)
{
    tree_gradient_leaves *l = ctx;
    if (!leaf->trainable) return WB_NONE;
    void **at = wb__pointer_map_at(&l->index, leaf->x);
    if (!at || !*at) return at ? WB_NONE : NULL;
    wb_tensor *g = l->grads[(intptr_t)*at - 1];
    return g ? g : WB_NONE;
}

static bool is_loss(const wb_tensor *loss)
{
    if (!wb__floating("gradient", loss)) return false;
    if (loss->size == 1) return true;
    wb__fail(WB_ERROR_SHAPE, "gradient: the loss is %s; it must have one element",
             wb_describe(loss));
    return false;
}

/* Returns the gradients as a tree.  `reaches` is as in wb__gradient_of_some, or NULL. */
static wb_tree *gradient(wb_tensor *loss, void *wrt, bool (*skips)(void *ctx, int leaf), void *ctx,
                         bool *reaches)
{
    if (WB__NULL(loss) || WB__NULL(wrt) || !is_loss(loss)) return NULL;
    tree_gradient_leaves l = {.skips = skips, .ctx = ctx};
    wb_tree *made = NULL;
    if (wb__walk("gradient", wrt, NULL, WB__TRAINABLE | WB__NAMELESS, tree_gradient_collect, &l))
        goto end;
    l.grads = wb__alloc_zero((size_t)l.n + 1, sizeof *l.grads);
    if (!l.grads || (l.n && wb__gradients(loss, l.n, l.wrt, l.grads))) goto end;
    if (reaches) *reaches = !l.n;
    for (int i = 0; reaches && i < l.n; i++) *reaches |= l.grads[i] != NULL;
    const wb__frame f = wb__frame_begin();
    made = wb__frame_end(f, wb__tree_map(wrt, tree_gradient_result, &l));
    if (made) made->loss = wb__ref(wb__version("gradient", loss));
end:
    wb__free(l.wrt);
    wb__free(l.grads);
    wb__pointer_map_free(&l.index);
    return made;
}

wb_tree *wb_gradient_layer(wb_tensor *loss, wb_layer *wrt)
{
    WB__EDGE;
    return gradient(loss, wrt, NULL, NULL, NULL);
}

wb_tree *wb_gradient_tree(wb_tensor *loss, wb_tree *wrt)
{
    WB__EDGE;
    return gradient(loss, wrt, NULL, NULL, NULL);
}

wb_tree *wb__gradient_of_some(wb_tensor *loss, void *wrt, bool (*skips)(void *ctx, int leaf),
                              void *ctx, bool *reaches)
{
    return gradient(loss, wrt, skips, ctx, reaches);
}

wb_tensor *wb_gradient_tensor(wb_tensor *loss, wb_tensor *wrt)
{
    WB__EDGE;
    if (WB__NULL(loss) || WB__NULL(wrt) || !is_loss(loss) || !wb__floating("gradient", wrt))
        return NULL;
    wb_tensor *g = NULL;
    if (wb__gradients(loss, 1, &wrt, &g)) return NULL;
    return g ? g : wb__zeros_like(wrt);
}
