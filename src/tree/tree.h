/* Trees of named children: what wb_fmap maps, wb_gradient mirrors, wb_setup gives state to, and files store.
 *
 * A layer is a tree whose children are its parameters and inner layers; a wb_tree is one without a forward pass. */
#ifndef WB__TREE_H
#define WB__TREE_H

#include "engine/tensor.h"

/* A child is a tensor (or WB_NONE), a layer, a tree, or an opaque pointer's tree. */
typedef struct { char *name; void *object; } wb__child;

struct wb_tree {
    wb__object object;
    int n;
    wb__child *children;
    const wb_struct_type *type;         /* of wb_struct: the rest of the struct is in `copy` */
    void *copy;
    void *opaque;                       /* of wb_opaque */
};

/* The children of a layer or tree; 0 for leaves. */
int wb__children(const void *object, wb__child **children);

wb_tree *wb__tree_new(int n);                                           /* children to be filled by wb__tree_put */
int wb__tree_put(wb_tree *t, int i, const char *name, void *object);    /* takes a reference */

/* Leaves in order of definition, each with its path "layers.0.weight" (valid during the call). */
typedef int (*wb__leaf_visit)(wb_tensor *x, const char *path, void *ctx);
int wb__walk(void *object, bool trainable_only, bool distinct, wb__leaf_visit f, void *ctx);

/* A tree with the structure of `object` whose leaves are f(leaf); used by gradients and optimiser state. */
wb_tree *wb__mirror(void *object, void *(*f)(wb_tensor *leaf, const char *path, void *ctx), void *ctx);

#endif
