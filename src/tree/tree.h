/* Trees of named children: what wb_fmap maps, wb_gradient mirrors, wb_setup gives state to, and
 * files store.
 *
 * A branch is a layer or a wb_tree; its children are tensors (or WB_NONE), layers and trees.  A
 * layer is a branch with a forward pass; what kind of branch one is says its wb__branch_kind, so
 * that this floor need not know layers. Files: branch.c (branches and paths), walk.c (visits),
 * fmap.c (mapping, ties), functor.c (structs of the program), gradient.c (wb_gradient), show.c and
 * show_tensor.c (printing), move.c (wb_to). */
#ifndef WB__TREE_H
#define WB__TREE_H

#include "base/pointer_map.h"
#include "base/text.h"
#include "engine/tensor.h"

#include <string.h>

/* A child's name belongs to its node, to the node whose names it borrows, or to the program's
 * constants. */
typedef struct { const char *name; void *object; } wb__child;

typedef struct wb__branch wb__branch;
typedef struct {
    bool layer;     /* its tensors are parameters: only variables are trained */
    /* the same with its children still empty, in the current scope */
    wb__branch *(*like)(wb__branch *of);
} wb__branch_kind;

/* Visits are recursive: a thread with a small stack must be able to go all the way down. */
enum { WB__MOST_DEPTH = 128 };

struct wb__branch {
    wb__object object;
    const wb__branch_kind *kind;
    int n, depth;       /* depth: of branches, the longest way down */
    wb__setting replaced;   /* how often a child was, by wb_set and wb_tie */
    bool owns_names;
    void *names_of;     /* the node that the names are borrowed from (counted) */
    wb__child *children;
};

struct wb_tree {
    wb__branch node;
    const wb_struct_type *type;             /* of wb_struct: the rest of the struct is in `copy` */
    void *copy;
    wb_tensor *loss;                        /* of wb_gradient: what these are the gradients of (counted) */
    bool is_opaque;                         /* of wb_opaque */
    void *opaque;
};

/* Room for n children, all empty; and dropping them. */
bool wb__branch_init(wb__branch *node, const wb__branch_kind *kind, int n);
void wb__branch_clear(wb__branch *node);
/* The i-th child; takes a reference to the object.  The first borrows a name that outlives the
 * node. */
void wb__branch_put(wb__branch *node, int i, const char *name, void *object);
bool wb__branch_put_copy(wb__branch *node, int i, const char *name, void *object);
/* Have all children names of their own?  Else the error is set: `what` says "Chain: two layers are". */
bool wb__branch_distinct(const wb__branch *node, const char *what);
/* Is the branch nested at most WB__MOST_DEPTH deep?  Else the error is set. */
bool wb__branch_shallow(const wb__branch *node, const char *what);
/* Children named as those of `of`, which is held. */
bool wb__branch_init_like(wb__branch *node, wb__branch *of);

static inline bool wb__is_branch(const void *object)
{
    return wb__is(object, &wb__layer_class) || wb__is(object, &wb__tree_class);
}

/* a tree whose names are its own; children by wb__branch_put_copy */
wb_tree *wb__tree_new(int n);

/* The place of a part: NULL with the error set if there is none.  `path` is not "".  `of`, if not
 * NULL, becomes the branch that the place is in. */
wb__child *wb__place(const char *what, void *object, const char *path, wb__branch **of);
/* The caller uses the children: what wb_compile records depends on them. */
static inline void wb__branch_used(wb__branch *node) { wb__setting_counted(node, &node->replaced); }

/* A leaf under visit.  `other` is what stands at the same place in a second tree. */
typedef struct {
    wb_tensor *x;
    void *other;
    const char *path;                       /* "layers.0.weight", valid during the call */
    bool trainable;
} wb__leaf;
typedef int (*wb__leaf_visit)(const wb__leaf *leaf, void *ctx);

enum { WB__TRAINABLE = 1, WB__DISTINCT = 2 };

/* Leaves in order of definition, WB_NONE left out.  Trainable is a floating tensor that is not
 * frozen, and a variable where it is a layer's.  `other`, if not NULL, is a tree of the same names;
 * WB_NONE in it stands for anything.  A nonzero return ends the walk and is returned. */
int wb__walk(const char *what, void *object, void *other, unsigned which, wb__leaf_visit f,
             void *ctx);

/* A tree with the structure of `object` whose leaves are f's results (NULL fails).  An opaque part
 * becomes WB_NONE; where `object` itself is opaque the tree is empty. */
typedef wb_tensor *(*wb__leaf_result)(const wb__leaf *leaf, void *ctx);
wb_tree *wb__mirror(void *object, wb__leaf_result f, void *ctx);

/* wb_gradient, but the parameters that `skips` answers true for get WB_NONE, and nothing is built for
 * them.  `leaf` counts trainable leaves from 0, in the order of wb__walk. */
wb_tree *wb__gradient_of_some(wb_tensor *loss, wb_layer *wrt, bool (*skips)(void *ctx, int leaf),
                              void *ctx);

/* The structure rebuilt with each distinct tensor replaced by f's result; variables of layers stay
 * variables. */
void *wb__fmap(void *object, wb_leaf_function f, void *ctx);

/* A variable for a layer, holding x, with the flags of the variable it takes the place of (may be
 * NULL). */
wb_tensor *wb__successor(wb_tensor *x, const wb_tensor *of);

/* The path of a visit: "layers.0.weight". */
static inline const char *wb__path(const wb__text *path) { return path->text ? path->text : ""; }
static inline bool wb__path_push(wb__text *path, const char *name)      /* false: out of memory */
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

char *wb__format_tensor(wb_tensor *x);      /* "[2,3] f32" and its values in rows */
char *wb__format_tree(void *tree);

#endif
