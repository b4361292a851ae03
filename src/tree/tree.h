/* Trees of named children.  wb_fmap, wb_gradient, wb_setup and files work on these trees.
 *
 * A branch is a layer or a wb_tree.  Its children are tensors (or WB_NONE), layers and trees.  A
 * layer is a branch with a forward pass.  wb__branch_kind holds the difference between layers and
 * trees.  Files: branch.c (branches and paths), walk.c (visits), fmap.c (mapping, ties), functor.c
 * (structs of the program), gradient.c (wb_gradient), show.c and show_tensor.c (printing), move.c
 * (wb_to). */
#ifndef WB__TREE_H
#define WB__TREE_H

#include "base/mutex.h"
#include "base/table.h"
#include "base/text.h"
#include "engine/evaluate.h"

#include <string.h>

/* A child of a branch.  `object` is a tensor, WB_NONE, a layer or a tree.  `name` is freed with a
 * branch that has owns_names, and is otherwise only borrowed. */
typedef struct { const char *name; void *object; } wb__child;

typedef struct wb__branch wb__branch;
typedef struct {
    bool layer;     /* true for layers, in which only variables are trainable */
    /* Returns a new branch of the same kind, with the same names and empty children, in the current
     * scope.  NULL with the error set. */
    wb__branch *(*like)(wb__branch *of);
} wb__branch_kind;

/* The greatest depth of nested branches.  Visits of the leaves recurse, and this limit keeps their
 * stack small. */
enum { WB__MAX_DEPTH = 128 };

struct wb__branch {
    wb__object object;
    const wb__branch_kind *kind;
    int n, depth;           /* number of children; number of levels of branches below this one */
    wb__setting replaced;   /* number of replacements of children by wb_set and wb_tie */
    bool owns_names;        /* the names of the children are freed with this branch */
    bool is_target;         /* wb_copy or wb_average has written to it, or it was made for them */
    void *names_of;         /* another branch that owns the names (reference), or NULL */
    wb__child *children;
};

struct wb_tree {
    wb__branch node;
    const wb_struct_type *type;             /* the struct type of a tree of wb_struct, else NULL */
    void *copy;                             /* a copy of the struct of wb_struct, else NULL */
    wb_tensor *loss;                        /* the loss, in a tree of wb_gradient (reference) */
    bool is_opaque;                         /* created by wb_opaque, with the pointer `opaque` */
    void *opaque;
};

/* wb__branch_init allocates n empty children, or returns false if memory is short.
 * wb__branch_clear releases all children of the branch. */
bool wb__branch_init(wb__branch *node, const wb__branch_kind *kind, int n);
void wb__branch_clear(wb__branch *node);
/* wb__branch_put and wb__branch_put_copy set child i and add a reference to the object.
 * wb__branch_put borrows the name, which must outlive the branch.  wb__branch_put_copy copies the
 * name, for branches with owns_names, and returns false if memory is short. */
void wb__branch_put(wb__branch *node, int i, const char *name, void *object);
bool wb__branch_put_copy(wb__branch *node, int i, const char *name, void *object);
/* Whether all children have different names.  Otherwise sets an error, with a message of `what` and
 * the name.  An example of `what` is "Chain: two layers are". */
bool wb__branch_check_names(const wb__branch *node, const char *what);
/* Whether `node` has at most WB__MAX_DEPTH levels of branches below it.  Otherwise sets an error
 * that begins with `what`. */
bool wb__branch_check_depth(const wb__branch *node, const char *what);
/* Initialises `node` like wb__branch_init, with the kind, the number of children and the names of
 * `of`, and a reference to the branch that owns the names.  False: out of memory. */
bool wb__branch_init_like(wb__branch *node, wb__branch *of);

static inline bool wb__is_branch(const void *object)
{
    return wb__is(object, &wb__layer_class) || wb__is(object, &wb__tree_class);
}

/* Whether `model` is a layer or tree that was not freed.  Otherwise sets the error. */
bool wb__is_model(const char *what, const void *model);

/* Returns a tree with n empty children, which wb__branch_put_copy sets; the tree owns their
 * names. */
wb_tree *wb__tree_new(int n);
/* Whether WB_FUNCTOR or WB_LAYER has made the description of the struct; else sets the error. */
bool wb__struct_type_is_whole(const char *what, const wb_struct_type *type);

/* Returns the child of `object` at a path, which must not be "".  Sets *of to the branch that has
 * the child; `of` may be NULL.  Returns NULL, with the error set, if there is no such child. */
wb__child *wb__child_at(const char *what, void *object, const char *path, wb__branch **of);
extern wb__mutex wb__replacing;         /* held while wb_set or wb_tie replaces a child */
/* Records, while wb_compile records a function, that the function depends on which objects are the
 * children of the branch. */
static inline void wb__branch_used(wb__branch *node) { wb__setting_counted(node, &node->replaced); }

/* A leaf that wb__walk visits.  `other` is the object at the same path in the second tree, or NULL
 * without a second tree. */
typedef struct {
    wb_tensor *x;                           /* the leaf itself */
    void *other;
    const char *path;                       /* "layers.0.weight", valid during the call */
    bool trainable;
} wb__leaf;
typedef int (*wb__leaf_visit)(const wb__leaf *leaf, void *ctx);

enum { WB__TRAINABLE = 1, WB__DISTINCT = 2, WB__NAMELESS = 4 };

/* Calls f for each leaf of `object`, in the order of the children.  A leaf is a tensor other than
 * WB_NONE.  A leaf is trainable if it is floating and not frozen, and, in a layer, a variable.
 * With WB__TRAINABLE in `which`, only trainable leaves are visited.  With WB__DISTINCT, a tied leaf
 * is visited once.  With WB__NAMELESS, which is faster, the paths of leaves are "".  `other`, if
 * not NULL, is a second tree with the same names.  A WB_NONE in the second tree matches any
 * subtree.  The walk ends at the first nonzero result of f and returns this result.  Otherwise
 * returns 0, or an error code on failure. */
int wb__walk(const char *what, void *object, void *other, unsigned which, wb__leaf_visit f,
             void *ctx);

/* wb__tree_map returns a tree with the structure of `object` and the results of f as leaves.  If f
 * returns NULL, wb__tree_map fails.  An opaque child becomes WB_NONE; an opaque `object` gives an
 * empty tree. */
typedef wb_tensor *(*wb__leaf_result)(const wb__leaf *leaf, void *ctx);
wb_tree *wb__tree_map(void *object, wb__leaf_result f, void *ctx);

/* Like wb_gradient, but a leaf gets WB_NONE instead of a gradient if `skips` returns true for it.
 * The argument `leaf` of `skips` is the index of the leaf among all trainable leaves, in the order
 * of wb__walk. *reaches becomes false if `loss` depends on none of the leaves that are not skipped,
 * although there are such leaves. */
wb_tree *wb__gradient_of_some(wb_tensor *loss, void *wrt, bool (*skips)(void *ctx, int leaf),
                              void *ctx, bool *reaches);

/* Returns a copy of the structure `object`, with the result of f in place of each tensor.  f is
 * called once for a tied tensor.  In a layer, the result for a variable is made a variable.  NULL
 * with the error set. */
void *wb__fmap(void *object, wb_leaf_function f, void *ctx);
/* Like wb__fmap, but the result for a variable in a layer need not be a variable. */
void *wb__fmap_plain(void *object, wb_leaf_function f, void *ctx);
/* Returns a copy of the structure in which the result of `replace`, which may be the same object,
 * replaces each layer and tree; `path` is its path.  Tensors stay as they are.  NULL: failed. */
void *wb__fmap_replacing(void *object,
                         void *(*replace)(void *branch, const char *path, void *ctx), void *ctx);

/* Returns a variable that replaces the tensor `of`.  The variable is x if x is a variable, else a
 * new variable with x's value.  If `of` is not NULL, the variable gets the flags
 * wb__kept_flags(of).  Returns NULL if x is NULL or on failure. */
wb_tensor *wb__variable_replacing(wb_tensor *x, const wb_tensor *of);

/* A path to a leaf, such as "layers.0.weight".  wb__path returns its text.  wb__path_push appends a
 * name, or returns false if memory is short.  wb__path_cut shortens the path to `length` bytes. */
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

/* Whether a path is equal to the first n characters of `start`, or is the path of something below.
 * A '*' in these characters matches any text, and then the whole path must match. */
bool wb__path_is_below(const char *path, const char *start, size_t n);

/* wb_to and wb_device_of of layers and trees. */
void *wb__branch_to(void *object, const wb_device *d, wb_dtype dtype);
const wb_device *wb__branch_device(void *object);

/* Return the text that wb_show prints for a tensor and for a tree.  The text of a tensor is its
 * shape and dtype, such as "[2,3] f32", and its values in rows. */
char *wb__format_tensor(wb_tensor *x);
char *wb__format_tree(void *tree);

#endif
