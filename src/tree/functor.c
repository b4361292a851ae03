/* Structs of the program as trees (wb_struct), and opaque leaves (wb_opaque). */
#include "tree/tree.h"

#include <string.h>

static void *object_of(const wb_struct_type *type, int i, const void *value)
{
    void *object;
    memcpy(&object, (const char *)value + type->fields[i].offset, sizeof object);
    return object;
}

bool wb__struct_type_is_whole(const char *what, const wb_struct_type *type)
{
    static const char cure[] = "WB_FUNCTOR and WB_LAYER describe a struct";
    if (!type || !type->name || !*type->name)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: the type of the struct %s: %s", what,
                        type ? "has no name" : "is NULL", cure), false;
    if (type->n_fields < 0 || (type->n_fields && !type->fields))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: the type of %s has %d fields%s: %s", what,
                        type->name, type->n_fields, type->fields ? "" : ", and NULL in place of"
                        " their array", cure), false;
    for (int i = 0; i < type->n_fields; i++)
        if (!type->fields[i].name || type->fields[i].offset >= type->size)
            return wb__fail(WB_ERROR_ARGUMENT, "%s: field %d of the type of %s %s: %s", what, i,
                            type->name, type->fields[i].name ? "is behind its end" : "has no name",
                            cure), false;
    return true;
}

wb_tree *wb_struct_typed(const wb_struct_type *type, const void *value)
{
    if (!wb__struct_type_is_whole("struct", type)) return NULL;
    if (!value) return wb__fail_null(WB_ERROR_ARGUMENT, "struct: no value");
    int n = 0;
    for (int i = 0; i < type->n_fields; i++) {
        if (type->fields[i].type != WB_FIELD_OBJECT) continue;
        void *object = object_of(type, i, value);
        if (WB__NULL(object)) return NULL;
        if (!wb__is(object, &wb__tensor_class) && !wb__is_branch(object))
            return wb__fail_null(WB_ERROR_ARGUMENT, "struct: %s.%s is a %s; tensors, layers and "
                                 "trees go in", type->name, type->fields[i].name, wb__kind(object));
        n++;
    }
    wb_tree *t = wb__tree_new(n);
    if (!t) return NULL;
    t->node.owns_names = false;             /* the names belong to the type */
    t->type = type;
    t->copy = wb__alloc(type->size);
    if (!t->copy) {
        wb_object_free(t);
        return NULL;
    }
    memcpy(t->copy, value, type->size);
    for (int i = 0, k = 0; i < type->n_fields; i++)
        if (type->fields[i].type == WB_FIELD_OBJECT)
            wb__branch_put(&t->node, k++, type->fields[i].name, object_of(type, i, value));
    if (wb__branch_check_depth(&t->node, "struct")) return t;
    wb_object_free(t);
    return NULL;
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
    if (!wb__expect("opaque_get", tree, &wb__tree_class)) return NULL;
    if (!tree->is_opaque)
        return wb__fail_null(WB_ERROR_ARGUMENT, "opaque_get: the tree is not one of wb_opaque");
    return tree->opaque;
}
