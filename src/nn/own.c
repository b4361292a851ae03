/* Structs of the program as layers (wb_layer_of), and the registry of their types by name.
 *
 * Such a layer has the object fields of its struct as children.  Its options are a copy of the
 * whole struct, in which the pointers to objects are not used: each call copies the struct and
 * fills in the children, which wb_set, wb_to and others replace. */
#include "base/mutex.h"
#include "nn/layer.h"

#include <string.h>

/* A registered type.  `rows` are the fields that are numbers and functions; `objects` are the
 * indices of the fields that are children. */
typedef struct own_type {
    wb__layer_type type;                /* its detail is this own_type */
    const wb_struct_type *of;           /* the description of the program's struct */
    wb__option *rows;
    int *objects, n_objects;
    struct own_type *next;
} own_type;

static own_type *own_layer_registry;
static wb__mutex own_layer_lock = WB__MUTEX_INIT;

/* The layer of a struct that this thread is calling, the innermost one; NULL: none. */
static _Thread_local wb_layer *own_layer_calling;

/* Returns the object in a field of the struct `value`. */
static void *own_layer_object_in(const void *value, const wb_field *field)
{
    void *object;
    memcpy(&object, (const char *)value + field->offset, sizeof object);
    return object;
}

/* Copies the struct of the layer to `value`, with the layer's children in the object fields. */
static void own_layer_fill(const wb_layer *l, void *value)
{
    const own_type *own = l->type->detail;
    memcpy(value, l->options, own->of->size);
    for (int i = 0; i < own->n_objects; i++)
        memcpy((char *)value + own->of->fields[own->objects[i]].offset,
               &l->node.children[i].object, sizeof(void *));
}

WB__PROGRAM_CALL(struct_call, struct_run, int,
                 wb_struct_call f; const void *value; int n; wb_tensor *const *inputs;
                 wb_tensor **outputs;,
                 c->f(c->value, c->n, c->inputs, c->outputs))

static int own_layer_call(wb_layer *l, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    const own_type *own = l->type->detail;
    union { char bytes[512]; max_align_t align; } here;
    void *value = own->of->size <= sizeof here ? &here : wb__alloc(own->of->size);
    if (!value) return -1;
    own_layer_fill(l, value);
    for (int i = 0; i < WB__OUTPUTS; i++) outputs[i] = NULL;
    wb_layer *outer = own_layer_calling;
    own_layer_calling = l;
    wb__this_thread()->program_calls++;
    struct_call c = {own->of->call, value, n, inputs, outputs, 0};
    int n_out = wb__call_program(struct_run, &c) ? c.result : -1;
    own_layer_calling = outer;
    if (value != &here) wb__free(value);
    if (n_out > WB__OUTPUTS || !n_out)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: its function gives %d outputs; it gives 1 to %d",
                        own->of->name, n_out, WB__OUTPUTS), -1;
    for (int i = 0; i < n_out; i++)
        if (!wb__operand(own->of->name, outputs[i])) n_out = -1;
    return n_out;
}

bool wb_in_trainmode(void)
{
    bool automatic;
    return own_layer_calling ? wb__train_mode(own_layer_calling, &automatic)
                             : wb__this_thread()->training > 0;
}

void wb__own_failed(const wb_layer *inner)
{
    for (int i = 0; own_layer_calling && i < own_layer_calling->node.n; i++)
        if (own_layer_calling->node.children[i].object == inner)
            wb__failed_in(own_layer_calling->node.children[i].name, "");
}

/* ---- types ----------------------------------------------------------------------------------- */

static const wb__option_kind own_layer_kinds[] = {
    [WB_FIELD_INT64] = WB__OPTION_INT, [WB_FIELD_INT32] = WB__OPTION_INT32,
    [WB_FIELD_UINT64] = WB__OPTION_INT, [WB_FIELD_UINT32] = WB__OPTION_INT32,
    [WB_FIELD_DOUBLE] = WB__OPTION_REAL, [WB_FIELD_FLOAT] = WB__OPTION_FLOAT,
    [WB_FIELD_BOOL] = WB__OPTION_BOOL, [WB_FIELD_FUNCTION] = WB__OPTION_FUNCTION,
    [WB_FIELD_CONNECTION] = WB__OPTION_CONNECTION};

/* Whether option o of l, a layer of a struct, is a field of an unsigned type. */
static bool own_layer_is_unsigned(const wb_layer *l, const wb__option *o)
{
    const wb_struct_type *of = wb__own_struct(l->type);
    for (int i = 0; of && i < of->n_fields; i++)
        if (of->fields[i].offset == o->offset)
            return of->fields[i].type == WB_FIELD_UINT64 || of->fields[i].type == WB_FIELD_UINT32;
    return false;
}

void wb__print_option(const wb_layer *l, const wb__option *o, wb__text *t)
{
    const void *at = (const char *)l->options + o->offset;
    const bool natural = own_layer_is_unsigned(l, o);
    bool set;
    const char *name;
    wb__text_add(t, "%s = ", o->name);
    switch (o->kind) {
    case WB__OPTION_INT:
        if (natural) wb__text_add(t, "%llu", (unsigned long long)*(const uint64_t *)at);
        else wb__text_add(t, "%lld", (long long)*(const int64_t *)at);
        break;
    case WB__OPTION_INT32:
        if (natural) wb__text_add(t, "%u", *(const unsigned *)at);
        else wb__text_add(t, "%d", (int)*(const int32_t *)at);
        break;
    case WB__OPTION_REAL: wb__text_add(t, "%g", *(const double *)at); break;
    case WB__OPTION_FLOAT: wb__text_add(t, "%g", (double)*(const float *)at); break;
    case WB__OPTION_BOOL: wb__text_add(t, *(const bool *)at ? "true" : "false"); break;
    default:
        name = wb__option_name(o, at, &set);
        wb__text_add(t, "%s", name ? name : set ? "function" : "NULL");
    }
}

/* Prints "scaled(inner = Dense(8 => 8), slope = 0.1)".  Tensors are not printed. */
static void own_layer_print(const wb_layer *l, wb__text *t)
{
    const own_type *own = l->type->detail;
    const char *comma = "";
    wb__text_add(t, "%s(", own->of->name);
    for (int i = 0; i < l->node.n; i++) {
        if (!wb__is(wb__layer_child(l, i), &wb__layer_class)) continue;
        wb__text_add(t, "%s%s = ", comma, l->node.children[i].name);
        wb__print_layer(wb__layer_child(l, i), t);
        comma = ", ";
    }
    for (int i = 0; i < l->type->n_options; i++) {
        wb__text_add(t, "%s", comma);
        wb__print_option(l, &l->type->options[i], t);
        comma = ", ";
    }
    wb__text_add(t, ")");
}

static bool own_layer_same_type(const wb_struct_type *a, const wb_struct_type *b)
{
    if (a->size != b->size || a->n_fields != b->n_fields || !a->call != !b->call) return false;
    for (int i = 0; i < a->n_fields; i++)
        if (strcmp(a->fields[i].name, b->fields[i].name) ||
            a->fields[i].type != b->fields[i].type || a->fields[i].offset != b->fields[i].offset)
            return false;
    return true;
}

/* Returns the first type with this name; NULL: none. */
static own_type *own_layer_find(const char *name)
{
    for (own_type *own = own_layer_registry; own; own = own->next)
        if (!strcmp(own->of->name, name)) return own;
    return NULL;
}

static own_type *own_layer_new_type(const wb_struct_type *of)
{
    const size_t n = (size_t)of->n_fields;
    own_type *own = wb__alloc_zero(1, sizeof *own + n * (sizeof *own->rows + sizeof *own->objects));
    if (!own) return NULL;
    own->of = of;
    own->rows = (wb__option *)(own + 1);
    own->objects = (int *)(own->rows + n);
    int n_rows = 0;
    for (int i = 0; i < of->n_fields; i++) {
        const wb_field *f = &of->fields[i];
        if (f->type == WB_FIELD_OBJECT) own->objects[own->n_objects++] = i;
        else own->rows[n_rows++] = (wb__option){f->name, own_layer_kinds[f->type], f->offset, 1};
    }
    own->type = (wb__layer_type){.name = of->name, .options_size = of->size, .n_options = n_rows,
                                 .options = own->rows, .call_many = own_layer_call,
                                 .print = own_layer_print, .detail = own};
    return own;
}

/* Returns the type of this struct, and registers it if it is not yet registered.  A header that is
 * included in two files declares its struct twice, and each layer calls the function that it was
 * made with.  NULL: no memory. */
static own_type *own_layer_find_or_add(const wb_struct_type *of)
{
    own_type **end = &own_layer_registry;
    while (*end && (*end)->of != of) end = &(*end)->next;
    if (!*end) *end = own_layer_new_type(of);
    return *end;
}

/* Returns the registered type of a struct after checking the struct.  NULL with the error set. */
static own_type *own_layer_registered(const char *what, const wb_struct_type *of)
{
    if (!wb__struct_type_is_whole(what, of)) return NULL;
    const wb__layer_type *other = wb__layer_type_named(of->name);
    if (other && other->call_many != own_layer_call)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: a layer of the library is named %s: give the "
                             "struct another name", what, of->name);
    wb__mutex_lock(&own_layer_lock);
    own_type *own = own_layer_find(of->name);
    const bool fits = !own || own_layer_same_type(own->of, of);
    if (fits) own = own_layer_find_or_add(of);
    wb__mutex_unlock(&own_layer_lock);
    if (fits) return own;
    return wb__fail_null(WB_ERROR_ARGUMENT, "%s: another struct is named %s: give one of them "
                         "another name", what, of->name);
}

int wb_name_struct_typed(const wb_struct_type *type)
{
    return own_layer_registered("name_struct", type) ? 0 : wb__error_or(WB_ERROR_MEMORY);
}

const wb__layer_type *wb__own_type_named(const char *name)
{
    wb__mutex_lock(&own_layer_lock);
    const own_type *own = own_layer_find(name);
    wb__mutex_unlock(&own_layer_lock);
    return own ? &own->type : NULL;
}

const wb__layer_type *wb__own_type_of(const wb_struct_type *type)
{
    const own_type *own = own_layer_registered("save", type);
    return own ? &own->type : NULL;
}

const wb_struct_type *wb__own_struct(const wb__layer_type *type)
{
    return type->call_many == own_layer_call ? ((const own_type *)type->detail)->of : NULL;
}

/* Returns `object` as a child of a layer: a tensor that is not a variable becomes a variable that
 * is not trained.  NULL with the error set. */
static void *own_layer_as_child(const char *type, const char *field, void *object)
{
    if (!object && wb__null(type, field)) return NULL;
    if (wb_is_none(object) || wb__is_branch(object))
        return wb__is(object, &wb__layer_class) ? wb__layer_unnamed(object, NULL) : object;
    if (!wb__is(object, &wb__tensor_class))
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: .%s is a %s; tensors, layers and trees go in",
                             type, field, wb__kind(object));
    wb_tensor *x = object;
    if (x->op == WB__OP_variable) return x;
    wb_tensor *v = wb_variable(x);
    if (v) v->flags |= WB__FROZEN;
    return v;
}

wb_layer *wb__own_assemble(const wb__layer_type *type, const void *value, void *const *objects)
{
    const own_type *own = type->detail;
    wb_layer *l = wb__layer_new(type, value, own->n_objects);
    for (int i = 0; l && i < own->n_objects; i++) {
        const char *name = own->of->fields[own->objects[i]].name;
        if (!wb__layer_put(l, i, name, own_layer_as_child(type->name, name, objects[i])))
            return NULL;
    }
    return l;
}

wb_layer *wb_layer_typed(const wb_struct_type *type, const void *value)
{
    WB__PUBLIC(wb_layer_typed, NULL);
    if (!wb__struct_type_is_whole("layer_of", type)) return NULL;
    if (!value) return wb__fail_null(WB_ERROR_ARGUMENT, "layer_of: no value");
    if (!type->call)
        return wb__fail_null(WB_ERROR_ARGUMENT, "layer_of: WB_FUNCTOR declares %s, which has no "
                             "function: WB_LAYER declares a struct with one", type->name);
    own_type *own = own_layer_registered("layer_of", type);
    void **objects = own ? wb__alloc(sizeof *objects * (size_t)WB__MAX(own->n_objects, 1)) : NULL;
    if (!objects) return NULL;
    for (int i = 0; i < own->n_objects; i++)
        objects[i] = own_layer_object_in(value, &type->fields[own->objects[i]]);
    wb_layer *l = wb__own_assemble(&own->type, value, objects);
    wb__free(objects);
    return l;
}

int wb_struct_get_typed(const wb_struct_type *type, void *object, void *value)
{
    if (WB__NULL(object)) return wb__error_or(WB_ERROR_ARGUMENT);
    if (!wb__struct_type_is_whole("struct_get", type)) return wb_error_code();
    if (!value) return wb__fail(WB_ERROR_ARGUMENT, "struct_get: no place to copy to");
    const bool layer = wb__is(object, &wb__layer_class);
    if (!layer && !wb__is(object, &wb__tree_class))
        return wb__fail(WB_ERROR_ARGUMENT, "struct_get: a %s is no tree of wb_struct and no layer "
                        "of wb_layer_of", wb__kind(object));
    wb__branch *node = object;
    const wb_struct_type *of = layer ? wb__own_struct(((wb_layer *)object)->type)
                                     : ((wb_tree *)object)->type;
    if (!of || strcmp(of->name, type->name) || !own_layer_same_type(of, type))
        return wb__fail(WB_ERROR_ARGUMENT, "struct_get: the %s is made of a %s, not a %s",
                        wb__kind(object),
                        of ? of->name : layer ? ((wb_layer *)object)->type->name : "tuple",
                        type->name);
    for (int i = 0; i < node->n; i++) {
        void *child = node->children[i].object;
        if (!wb_is_none(child) && !wb__scope_give(wb__ref(child))) return WB_ERROR_MEMORY;
    }
    memcpy(value, layer ? ((wb_layer *)object)->options : ((wb_tree *)object)->copy, type->size);
    for (int i = 0, k = 0; i < type->n_fields; i++)
        if (type->fields[i].type == WB_FIELD_OBJECT)
            memcpy((char *)value + type->fields[i].offset, &node->children[k++].object,
                   sizeof(void *));
    return 0;
}
