/* Branches, tuples, and children by path. */
#include "tree/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- branches -------------------------------------------------------------------------------- */

bool wb__branch_init(wb__branch *node, const wb__branch_kind *kind, int n)
{
    node->kind = kind;
    if (!n) return true;
    node->children = wb__alloc_zero((size_t)n, sizeof *node->children);
    if (!node->children) return false;
    node->n = n;
    return true;
}

bool wb__branch_init_like(wb__branch *node, wb__branch *of)
{
    if (!wb__branch_init(node, of->kind, of->n)) return false;
    node->names_of = wb__ref(of->names_of ? of->names_of : of);
    for (int i = 0; i < of->n; i++) node->children[i].name = of->children[i].name;
    return true;
}

void wb__branch_clear(wb__branch *node)
{
    for (int i = 0; i < node->n; i++) {
        wb__unref(node->children[i].object);
        if (node->owns_names) wb__free((char *)node->children[i].name);
    }
    wb__free(node->children);
    wb__unref(node->names_of);
    node->n = 0;
    node->children = NULL;
    node->names_of = NULL;
}

bool wb__is_model(const char *what, const void *model)
{
    if (!model) return !wb__null(what, "model");
    if (wb__is_object(model) && wb__is_branch(model)) return true;
    return wb__not_a(what, model, "layer or tree");
}

void wb__branch_put(wb__branch *node, int i, const char *name, void *object)
{
    wb__ref(object);
    wb__unref(node->children[i].object);
    node->children[i] = (wb__child){name, object};
    if (wb__is_branch(object))
        node->depth = WB__MAX(node->depth, ((wb__branch *)object)->depth + 1);
}

bool wb__branch_put_copy(wb__branch *node, int i, const char *name, void *object)
{
    char *copy = wb__strdup(name);
    if (!copy) return false;
    wb__branch_put(node, i, copy, object);
    return true;
}

static int branch_by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool wb__branch_check_names(const wb__branch *node, const char *what)
{
    const char **names = wb__alloc((size_t)WB__MAX(node->n, 1) * sizeof *names);
    if (!names) return false;
    for (int i = 0; i < node->n; i++) names[i] = node->children[i].name;
    qsort(names, (size_t)node->n, sizeof *names, branch_by_name);
    int at = 1;
    while (at < node->n && strcmp(names[at - 1], names[at])) at++;
    if (at < node->n) wb__fail(WB_ERROR_ARGUMENT, "%s named \"%s\"", what, names[at]);
    wb__free(names);
    return at >= node->n;
}

bool wb__branch_check_depth(const wb__branch *node, const char *what)
{
    if (node->depth <= WB__MAX_DEPTH) return true;
    wb__fail(WB_ERROR_ARGUMENT, "%s: nested %d deep; the limit is %d", what, node->depth,
             WB__MAX_DEPTH);
    return false;
}

static wb__branch *tree_like(wb__branch *of);
static const wb__branch_kind tree_kind = {.layer = false, .like = tree_like};

static void tree_destroy(void *object)
{
    wb_tree *t = object;
    wb__branch_clear(&t->node);
    wb__unref(t->loss);
    wb__free(t->copy);
    wb__object_end(t, sizeof *t);
}

/* Adds a hold to each child. */
static void tree_hold(void *object)
{
    const wb_tree *t = object;
    for (int i = 0; i < t->node.n; i++)
        if (!wb_is_none(t->node.children[i].object)) wb__hold(t->node.children[i].object);
}

const wb__class wb__tree_class = {.name = "tree", .destroy = tree_destroy,
                                  .format = wb__format_tree, .to = wb__branch_to,
                                  .device_of = wb__branch_device, .hold = tree_hold};

static wb__branch *tree_like(wb__branch *of)
{
    const wb_tree *from = (const wb_tree *)of;
    wb_tree *t = wb__object_new(&wb__tree_class, sizeof *t);
    if (!t) return NULL;
    t->is_opaque = from->is_opaque;
    t->loss = wb__ref(from->loss);
    t->opaque = from->opaque;
    bool ok = wb__branch_init_like(&t->node, of);
    if (ok && from->type) {
        t->type = from->type;
        t->copy = wb__alloc(from->type->size);
        ok = t->copy != NULL;
        if (ok) memcpy(t->copy, from->copy, from->type->size);
    }
    t->node.kind = &tree_kind;
    if (ok) return &t->node;
    wb_object_free(t);
    return NULL;
}

wb_tree *wb__tree_new(int n)
{
    wb_tree *t = wb__object_new(&wb__tree_class, sizeof *t);
    if (!t) return NULL;
    t->node.owns_names = true;
    if (wb__branch_init(&t->node, &tree_kind, n)) return t;
    wb_object_free(t);
    return NULL;
}

/* Whether wb_to accepts the object, although no tuple can have it as an element. */
static bool branch_moves_alone(const void *object)
{
    return wb__is(object, &wb__loader_class) || wb__is(object, &wb__dataset_class) ||
           wb__is(object, &wb__opt_state_class);
}

static wb_tree *branch_tree_of(const char *what, int n, const char *const *names,
                               void *const *objects)
{
    if (n < 0 || (n && !objects)) return wb__fail_null(WB_ERROR_ARGUMENT, "%s: no elements", what);
    for (int i = 0; i < n; i++) {
        if (!objects[i]) {
            char which[32];
            snprintf(which, sizeof which, "element %d", i);
            wb__null(what, which);
            return NULL;
        }
        if (!wb__is(objects[i], &wb__tensor_class) && !wb__is_branch(objects[i]))
            return wb__fail_null(WB_ERROR_ARGUMENT,
                                 "%s: element %d is a %s; tensors, layers and trees go in%s", what,
                                 i, wb__kind(objects[i]),
                                 branch_moves_alone(objects[i]) ? ": move each by itself, as in "
                                                           "train = wb_gpu(train)" : "");
        if (!names) continue;
        if (!names[i] || !names[i][0] || strchr(names[i], '.'))
            return wb__fail_null(WB_ERROR_ARGUMENT, "%s: element %d has the name \"%s\"; it must "
                                 "not be empty or hold a dot", what, i, names[i] ? names[i] : "");
    }
    wb_tree *t = wb__tree_new(n);
    bool ok = t != NULL;
    for (int i = 0; ok && i < n; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        ok = wb__branch_put_copy(&t->node, i, names ? names[i] : number, objects[i]);
    }
    if (ok && names) ok = wb__branch_check_names(&t->node, "named_tuple: two elements are");
    if (ok && wb__branch_check_depth(&t->node, what)) return t;
    if (t) wb_object_free(t);
    return NULL;
}

wb_tree *wb_tuple_array(int n, void *const *objects) { return branch_tree_of("tuple", n, NULL,
                                                                             objects); }

wb_tree *wb_named_tuple(int n, const char *const *names, void *const *objects)
{
    if (n > 0 && !names) return wb__fail_null(WB_ERROR_ARGUMENT, "named_tuple: no names");
    return branch_tree_of("named_tuple", n, names, objects);
}

static void *branch_no_child(const char *what, const wb__branch *node, const char *path,
                             size_t n_done, const char *name, size_t n)
{
    char names[160] = "nothing";
    size_t used = 0;
    for (int i = 0; i < node->n && used < sizeof names - 1; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, i ? ", %s" : "%s",
                                 node->children[i].name);
    if (used >= sizeof names) memcpy(names + sizeof names - 4, "...", 4);
    if (!n_done)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: no \"%.*s\" in the object, which has %s", what,
                             (int)n, name, names);
    return wb__fail_null(WB_ERROR_ARGUMENT, "%s: no \"%.*s\" in \"%.*s\", which has %s", what,
                         (int)n, name, (int)n_done, path, names);
}

static wb__child *branch_child_named(const wb__branch *node, const char *name, size_t n)
{
    for (int i = 0; i < node->n; i++)
        if (!strncmp(node->children[i].name, name, n) && !node->children[i].name[n])
            return &node->children[i];
    return NULL;
}

wb__child *wb__child_at(const char *what, void *object, const char *path, wb__branch **of)
{
    const char *name = path;
    for (;;) {
        if (!wb__is_branch(object))
            return wb__fail_null(WB_ERROR_ARGUMENT, "%s: \"%.*s\" is a %s and has no parts", what,
                                 (int)(name > path ? name - path - 1 : 0), path, wb__kind(object));
        wb__branch *node = object;
        wb__branch_used(node);
        if (of) *of = node;
        size_t n = strlen(name);
        /* names in trees from files may contain dots */
        wb__child *found = branch_child_named(node, name, n);
        if (found) return found;
        n = strcspn(name, ".");
        if (name[n]) found = branch_child_named(node, name, n);
        if (!found)
            return branch_no_child(what, node, path, name > path ? (size_t)(name - path - 1) : 0,
                                   name, n);
        name += n + 1;
        object = found->object;
    }
}

/* Sets *node to the branch that `object` is, or to NULL if the object has no children.  False with
 * the error set: the object is of another kind. */
static bool branch_of(const char *what, void *object, wb__branch **node)
{
    *node = NULL;
    if (object && wb__is_branch(object)) wb__branch_used(*node = object);
    else if (!wb__is(object, &wb__tensor_class))
        return wb__not_a(what, object, "tensor, layer or tree");
    return true;
}

static void *branch_object_at(const char *what, void *object, const char *path)
{
    wb__branch *node;
    if (!branch_of(what, object, &node)) return NULL;
    if (!path) return wb__fail_null(WB_ERROR_ARGUMENT, "%s: no path", what);
    if (!*path) return object;
    wb__child *child = wb__child_at(what, object, path, NULL);
    return child ? child->object : NULL;
}

/* Returns the object with a new reference, which the current scope owns. */
static void *branch_referenced(void *object)
{
    return wb_is_none(object) ? object : wb__scope_give(wb__ref(object));
}

wb_tensor *wb_get(void *object, const char *path)
{
    void *found = branch_object_at("get", object, path);
    if (!found || wb__is(found, &wb__tensor_class)) return found ? branch_referenced(found) : NULL;
    return wb__fail_null(WB_ERROR_ARGUMENT, "get: \"%s\" is a %s, not a tensor", path,
                         wb__kind(found));
}

wb_tree *wb_child(void *object, const char *path)
{
    void *found = branch_object_at("child", object, path);
    if (!found) return NULL;
    if (wb__is(found, &wb__tree_class)) return branch_referenced(found);
    if (!wb__is_branch(found))
        return wb__fail_null(WB_ERROR_ARGUMENT, "child: \"%s\" is a %s, not a tree", path,
                             wb__kind(found));
    wb__branch *layer = found;
    wb__branch_used(layer);
    wb_tree *t = wb__tree_new(0);
    if (!t) return NULL;
    if (!wb__branch_init_like(&t->node, layer)) {
        wb_object_free(t);
        return NULL;
    }
    t->node.kind = &tree_kind;
    t->node.owns_names = false;
    for (int i = 0; i < layer->n; i++)
        t->node.children[i].object = wb__ref(layer->children[i].object);
    return t;
}

int wb_child_count(void *object)
{
    wb__branch *node;
    return !branch_of("child_count", object, &node) ? -1 : node ? node->n : 0;
}

const char *wb_child_name(void *object, int i)
{
    wb__branch *node;
    if (!branch_of("child_name", object, &node)) return NULL;
    if (node && i >= 0 && i < node->n) return node->children[i].name;
    return wb__fail_null(WB_ERROR_ARGUMENT, "child_name: no child %d of %d", i, node ? node->n : 0);
}

/* ---- patterns of paths ----------------------------------------------------------------------- */

/* Whether the text matches the pattern of n characters, in which '*' matches any text. */
static bool branch_matches_pattern(const char *text, const char *pattern, size_t n)
{
    const char *star = NULL, *at = NULL, *end = pattern + n;
    while (*text) {
        if (pattern < end && *pattern == '*') {
            star = pattern++;
            at = text;
        } else if (pattern < end && *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++at;
        } else return false;
    }
    while (pattern < end && *pattern == '*') pattern++;
    return pattern == end;
}

bool wb__path_is_below(const char *path, const char *start, size_t n)
{
    if (memchr(start, '*', n)) return branch_matches_pattern(path, start, n);
    return !n || (!strncmp(path, start, n) && (!path[n] || path[n] == '.'));
}
