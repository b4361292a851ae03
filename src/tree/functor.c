/* Structs of the program as trees (wb_struct), and opaque leaves (wb_opaque). */
#include "tree/tree.h"

#include <string.h>

wb_tree *wb_struct_typed(const wb_struct_type *type, const void *value)
{
    if (!type || !value)
        return wb__fail_null(WB_ERROR_ARGUMENT, "struct: no %s", type ? "value" : "type");
    for (int i = 0; i < type->n_fields; i++) {
        void *object;
        memcpy(&object, (const char *)value + type->fields[i].offset, sizeof object);
        if (WB__NULL(object)) return NULL;
        if (!wb__is(object, &wb__tensor_class) && !wb__is_branch(object))
            return wb__fail_null(WB_ERROR_ARGUMENT,
                                 "struct: %s.%s is a %s; tensors, layers and trees go in",
                                 type->name, type->fields[i].name,
                                 wb__kind(object));
    }
    wb_tree *t = wb__tree_new(type->n_fields);
    if (!t) return NULL;
    t->node.owns_names = false;             /* the names belong to the type */
    t->type = type;
    t->copy = wb__alloc(type->size);
    if (!t->copy) {
        wb_object_free(t);
        return NULL;
    }
    memcpy(t->copy, value, type->size);
    for (int i = 0; i < type->n_fields; i++) {
        void *object;
        memcpy(&object, (const char *)value + type->fields[i].offset, sizeof object);
        wb__branch_put(&t->node, i, type->fields[i].name, object);
    }
    if (wb__branch_check_depth(&t->node, "struct")) return t;
    wb_object_free(t);
    return NULL;
}

/* Writes the struct of the tree to `value`. The current scope takes a reference to each object in
 * the struct. */
int wb_struct_get_typed(const wb_struct_type *type, wb_tree *tree, void *value)
{
    if (WB__NULL(tree)) return wb__error_or(WB_ERROR_ARGUMENT);
    if (!type || !value)
        return wb__fail(WB_ERROR_ARGUMENT, "struct_get: no %s", type ? "place to copy to" : "type");
    if (!tree->type || tree->type->size != type->size || strcmp(tree->type->name, type->name))
        return wb__fail(WB_ERROR_ARGUMENT, "struct_get: the tree is made of a %s, not a %s",
                        tree->type ? tree->type->name : "tuple", type->name);
    for (int i = 0; i < tree->node.n; i++) {
        void *object = tree->node.children[i].object;
        if (!wb_is_none(object) && !wb__scope_give(wb__ref(object))) return WB_ERROR_MEMORY;
    }
    memcpy(value, tree->copy, type->size);
    for (int i = 0; i < tree->node.n; i++)
        memcpy((char *)value + type->fields[i].offset, &tree->node.children[i].object,
               sizeof(void *));
    return 0;
}

wb_tree *wb_opaque(void *p)
{
    wb_tree *t = wb__tree_new(0);
    if (!t) return NULL;
    t->is_opaque = true;
    t->opaque = p;
    return t;
}

void *wb_opaque_get(wb_tree *tree)
{
    if (WB__NULL(tree) || !wb__alive("opaque_get", tree)) return NULL;
    if (!tree->is_opaque)
        return wb__fail_null(WB_ERROR_ARGUMENT, "opaque_get: the tree is not one of wb_opaque");
    return tree->opaque;
}
