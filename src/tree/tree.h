/* Trees of named children: wb_fmap, wb_gradient, wb_setup and files work on them.
 *
 * A branch is a layer or a wb_tree. Its children are tensors (or WB_NONE), layers and trees. A
 * layer is a branch with a forward pass. wb__branch_kind holds the difference, so that this folder
 * does not depend on layers. Files: branch.c (branches and paths), walk.c (visits), fmap.c
 * (mapping, ties), functor.c (structs of the program), gradient.c (wb_gradient), show.c and
 * show_tensor.c (printing), move.c (wb_to). */
#ifndef WB__TREE_H
#define WB__TREE_H

#include "base/pointer_map.h"
#include "base/text.h"
#include "engine/tensor.h"

#include <string.h>

/* The name belongs to the branch, to the branch whose names it borrows, or is a constant of the
 * program. */
typedef struct { const char *name; void *object; } wb__child;

typedef struct wb__branch wb__branch;
typedef struct {
    bool layer;     /* only its variables are trainable */
    /* A new branch of the same kind with the same names and empty children, in the current
     * scope. */
    wb__branch *(*like)(wb__branch *of);
} wb__branch_kind;

/* How deep branches may be nested. Visits recurse, and the limit keeps them within a small
 * stack. */
enum { WB__MAX_DEPTH = 128 };

struct wb__branch {
    wb__object object;
    const wb__branch_kind *kind;
    int n, depth;           /* depth: of the deepest branch below; 0: no branches below */
    wb__setting replaced;   /* counts children replaced by wb_set and wb_tie */
    bool owns_names;
    void *names_of;     /* the branch whose names are borrowed (reference), or NULL */
    wb__child *children;
};

struct wb_tree {
    wb__branch node;
    const wb_struct_type *type;             /* of wb_struct, else NULL */
    void *copy;                             /* of wb_struct: a copy of the program's struct */
    wb_tensor *loss;                        /* of wb_gradient: the loss (reference) */
    bool is_opaque;                         /* created by wb_opaque */
    void *opaque;
};

/* wb__branch_init allocates n empty children; false: out of memory. wb__branch_clear releases all
 * children. */
bool wb__branch_init(wb__branch *node, const wb__branch_kind *kind, int n);
void wb__branch_clear(wb__branch *node);
/* Sets child i, with a reference to the object. wb__branch_put borrows the name, which must outlive
 * the branch; wb__branch_put_copy copies it, for branches with owns_names. */
void wb__branch_put(wb__branch *node, int i, const char *name, void *object);
bool wb__branch_put_copy(wb__branch *node, int i, const char *name, void *object);
/* Whether all children have different names; otherwise sets the error, which begins with `what`,
 * such as "Chain: two layers are". */
bool wb__branch_check_names(const wb__branch *node, const char *what);
/* Whether the branch is at most WB__MAX_DEPTH deep; otherwise sets the error. */
bool wb__branch_check_depth(const wb__branch *node, const char *what);
/* wb__branch_init with the kind, the number of children and their names from `of`. The node keeps a
 * reference to the branch that owns the names. */
bool wb__branch_init_like(wb__branch *node, wb__branch *of);

static inline bool wb__is_branch(const void *object)
{
    return wb__is(object, &wb__layer_class) || wb__is(object, &wb__tree_class);
}

/* Makes a tree with n empty children, which are set with wb__branch_put_copy; it owns their
 * names. */
wb_tree *wb__tree_new(int n);

/* Returns the child at a path, which must not be ""; NULL with the error set: none. Sets *of,
 * unless `of` is NULL, to the branch that has the child. */
wb__child *wb__child_at(const char *what, void *object, const char *path, wb__branch **of);
/* Notes that the caller reads the children, so that wb_compile records the dependency. */
static inline void wb__branch_used(wb__branch *node) { wb__setting_counted(node, &node->replaced); }

/* A leaf during a visit. `other` is the object at the same path in the second tree. */
typedef struct {
    wb_tensor *x;
    void *other;
    const char *path;                       /* "layers.0.weight", valid during the call */
    bool trainable;
} wb__leaf;
typedef int (*wb__leaf_visit)(const wb__leaf *leaf, void *ctx);

enum { WB__TRAINABLE = 1, WB__DISTINCT = 2 };

/* Calls f for each leaf in order of definition, except WB_NONE. A leaf is trainable if it is
 * floating and not frozen and, in a layer, a variable. WB__TRAINABLE skips other leaves,
 * WB__DISTINCT visits a tied leaf once. `other`, if not NULL, is a tree with the same names;
 * WB_NONE in it matches any subtree. The walk ends at the first nonzero result of f and returns it;
 * it returns an error code on failure, else 0. */
int wb__walk(const char *what, void *object, void *other, unsigned which, wb__leaf_visit f,
             void *ctx);

/* A tree with the structure of `object` and the results of f as leaves; NULL from f is a failure.
 * An opaque child becomes WB_NONE; an opaque `object` gives an empty tree. */
typedef wb_tensor *(*wb__leaf_result)(const wb__leaf *leaf, void *ctx);
wb_tree *wb__tree_map(void *object, wb__leaf_result f, void *ctx);

/* wb_gradient that builds no gradients for leaves for which `skips` returns true; they get WB_NONE.
 * `leaf` is the index among the trainable leaves in the order of wb__walk. */
wb_tree *wb__gradient_of_some(wb_tensor *loss, wb_layer *wrt, bool (*skips)(void *ctx, int leaf),
                              void *ctx);

/* Returns a new structure like `object`, with f's result in place of each tensor; f is called once
 * for a tied tensor, and variables of layers stay variables. NULL with the error set. */
void *wb__fmap(void *object, wb_leaf_function f, void *ctx);

/* Returns a variable that replaces the tensor `of`, which may be NULL: x itself if it is a
 * variable, else a new one with x's value. If `of` is a variable, adds its flags for frozen and
 * mixed. NULL if x is NULL or on failure. */
wb_tensor *wb__variable_replacing(wb_tensor *x, const wb_tensor *of);

/* The path of a visit, such as "layers.0.weight". wb__path_push returns false if out of memory;
 * wb__path_cut goes back to an earlier length. */
static inline const char *wb__path(const wb__text *path) { return path->text ? path->text : ""; }
static inline bool wb__path_push(wb__text *path, const char *name)
{
    if (path->length) wb__text_raw(path, ".", 1);
    wb__text_raw(path, name, strlen(name));
    return !path->failed;
}
static inline void wb__path_cut(wb__text *path, size_t length)
{
    path->length = length;
    if (path->text) path->text[length] = 0;
}

/* wb_to and wb_device_of of layers and trees. */
void *wb__branch_to(void *object, const wb_device *d, wb_dtype dtype);
const wb_device *wb__branch_device(void *object);

/* wb_object_format of a tensor: "[2,3] f32" and its values in rows; and of a tree. */
char *wb__format_tensor(wb_tensor *x);
char *wb__format_tree(void *tree);

#endif
