/* Writes and reads structures of models as JSON. */
#include "io/model/structure.h"

#include "base/options.h"
#include "io/base64.h"
#include "io/json.h"
#include "io/model/ties.h"
#include "tree/tree.h"

#include <string.h>

enum { STRUCTURE_VERSION = 2, STRUCTURE_DEEPEST = 100 };

/* A described model may have at most TIED_MOST times as many bytes of values as the file, plus
 * STRUCTURE_LEAST.  It may have more bytes than the file, because the file has the values of tied
 * parameters once. */
enum { TIED_MOST = 32, STRUCTURE_LEAST = 1 << 20 };

static const char *const structure_modes[] = {"auto", "train", "test"};

/* A structure while it is written.  `nameless` lists the functions without names, for the error
 * message. */
typedef struct { wb__json_out out; wb__text path, nameless; } structure_writing;

static bool structure_is_named(const wb__option *o)
{
    return o->kind == WB__OPTION_FUNCTION || o->kind == WB__OPTION_CONNECTION;
}

static const char *structure_kind_of(const wb__option *o)
{
    return o->kind == WB__OPTION_FUNCTION ? "function" : "connection";
}

static void structure_write_blob(wb__json_out *out, const wb__blob *b)
{
    wb__text t = {0};
    wb__base64_add(&t, b->bytes, b->n);
    char *text = wb__text_take(&t);
    if (text) wb__json_put_text(out, text);
    else out->status = WB_ERROR_MEMORY;
    wb__free(text);
}

static void structure_write_option(wb__json_out *out, const wb__option *o, const char *at)
{
    switch (o->kind) {
    case WB__OPTION_BLOB: structure_write_blob(out, *(wb__blob *const *)(const void *)at); break;
    case WB__OPTION_INT: wb__json_put_integer(out, *(const int64_t *)(const void *)at); break;
    case WB__OPTION_INT32:
        wb__json_put_integer(out, *(const int32_t *)(const void *)at);
        break;
    case WB__OPTION_REAL: wb__json_put_real(out, *(const double *)(const void *)at); break;
    case WB__OPTION_FLOAT:
        wb__json_put_real(out, (double)*(const float *)(const void *)at);
        break;
    case WB__OPTION_BOOL: wb__json_put_bool(out, *(const bool *)at); break;
    case WB__OPTION_DTYPE:
        wb__json_put_text(out, wb_dtype_name(*(const wb_dtype *)(const void *)at));
        break;
    case WB__OPTION_TEXT: wb__json_put_text(out, at); break;
    case WB__OPTION_INTS: {
        const int64_t *list = (const void *)at;
        wb__json_open(out, '[');
        for (int k = 0; k < list[0] || k < o->count; k++) wb__json_put_integer(out, list[1 + k]);
        wb__json_close(out, ']');
        break;
    }
    default: break;
    }
}

/* Whether the value of an option means a default that is no number, such as WB_DEFAULT. */
static bool structure_is_default(const wb__option *o, const void *at)
{
    return (o->kind == WB__OPTION_REAL && *(const double *)at == WB_DEFAULT) ||
           (o->kind == WB__OPTION_INT && *(const int64_t *)at == INT64_MIN);
}

/* Writes the options of a layer type or struct, except initialisers, functions that are NULL, and
 * numbers that mean a default. */
static void structure_write_options(structure_writing *w, const wb__layer_type *type,
                                    const void *options)
{
    wb__json_out *out = &w->out;
    if (!type->n_options) return;
    wb__json_put_key(out, "options");
    wb__json_open(out, '{');
    for (int i = 0; i < type->n_options; i++) {
        const wb__option *o = &type->options[i];
        const char *at = (const char *)options + o->offset, *kind = structure_kind_of(o);
        bool set = o->kind != WB__OPTION_INITIALISER;
        const char *name = structure_is_named(o) ? wb__option_name(o, at, &set) : NULL;
        if (!set || (type->defaults && structure_is_default(o, at))) continue;
        wb__json_put_key(out, o->name);
        if (structure_is_named(o) && !name)
            wb__text_add(&w->nameless, "\n  \"%s\": the %s of a %s: wb_name_%s(\"NAME\", ...)"
                         " gives it one", wb__path(&w->path), kind, type->name, kind);
        if (structure_is_named(o)) wb__json_put_text(out, name ? name : "");
        structure_write_option(out, o, at);
    }
    wb__json_close(out, '}');
}

static int structure_fail_option(const char *file, const wb__layer_type *type, const char *option)
{
    return wb__fail(WB_ERROR_FORMAT, "%s: the option \"%s\" of a %s is wrong", file, option,
                    type->name);
}

static bool structure_read_ints(const wb__option *o, int64_t *list, const wb__json *numbers)
{
    const wb__json *number = NULL;
    int64_t values[WB_MAX_DIMS], length = 0;
    const int64_t n = wb__json_is(numbers, WB__JSON_LIST) ? wb__json_count(numbers) : -1;
    if (n < 0 || n > WB_MAX_DIMS || (o->count && n != o->count)) return false;
    WB__JSON_EACH(numbers, number, k) {
        if (!wb__json_is(number, WB__JSON_INTEGER)) return false;
        const int64_t value = wb__json_integer(number);
        /* Weber 0.4 wrote -1 for no padding. */
        values[k] = value == -1 && !strcmp(o->name, "pad") ? 0 : value;
        /* Zeros at the end of a shape are dropped. */
        if (value || strcmp(o->name, "shape")) length = k + 1;
    }
    wb_ints_set(list, (int)length, values);
    return true;
}

static bool structure_read_blob(wb__blob **at, const char *text)
{
    const int64_t n = text ? wb__base64_bytes(text) : -1;
    *at = n < 0 ? NULL : wb__blob_new((size_t)n);
    return *at && wb__base64_read(text, (*at)->bytes);
}

static bool structure_read_value(const wb__option *o, char *at, const wb__json *value)
{
    const char *text = wb__json_text(value);
    switch (o->kind) {
    case WB__OPTION_INT:
        *(int64_t *)(void *)at = wb__json_integer(value);
        return wb__json_is(value, WB__JSON_INTEGER);
    case WB__OPTION_INT32:
        *(int32_t *)(void *)at = (int32_t)wb__json_integer(value);
        return wb__json_is(value, WB__JSON_INTEGER) &&
               wb__json_integer(value) == *(int32_t *)(void *)at;
    case WB__OPTION_REAL:
        *(double *)(void *)at =
            wb__json_is(value, WB__JSON_REAL) ? value->is.real : (double)wb__json_integer(value);
        return wb__json_is(value, WB__JSON_REAL) || wb__json_is(value, WB__JSON_INTEGER);
    case WB__OPTION_FLOAT:
        *(float *)(void *)at = wb__json_is(value, WB__JSON_REAL) ? (float)value->is.real
                                                                 : (float)wb__json_integer(value);
        return wb__json_is(value, WB__JSON_REAL) || wb__json_is(value, WB__JSON_INTEGER);
    case WB__OPTION_BOOL:
        *(bool *)at = wb__json_is(value, WB__JSON_TRUE);
        return wb__json_is(value, WB__JSON_TRUE) || wb__json_is(value, WB__JSON_FALSE);
    case WB__OPTION_DTYPE:
        for (int d = 1; text && d < WB_DTYPE_COUNT; d++) {
            if (strcmp(wb_dtype_name((wb_dtype)d), text)) continue;
            *(wb_dtype *)(void *)at = (wb_dtype)d;
            return true;
        }
        return false;
    case WB__OPTION_TEXT:
        if (text && strlen(text) < (size_t)o->count) memcpy(at, text, strlen(text) + 1);
        return text && strlen(text) < (size_t)o->count;
    case WB__OPTION_INTS: return structure_read_ints(o, (void *)at, value);
    case WB__OPTION_BLOB: return structure_read_blob((void *)at, text);
    default: return false;
    }
}

static int structure_read_option(const char *file, const wb__layer_type *type, const wb__option *o,
                                 const wb__json *value, char *at)
{
    const char *name = structure_is_named(o) ? wb__json_text(value) : NULL;
    if (name && wb__option_named(o, at, name)) return 0;
    if (name)
        return wb__fail(WB_ERROR_FORMAT, "%s: no %s is named \"%.200s\": name it with wb_name_%s "
                        "first", file, structure_kind_of(o), name, structure_kind_of(o));
    return structure_read_value(o, at, value) ? 0 : structure_fail_option(file, type, o->name);
}

/* Sets `options` to the options of a layer type in the file.  Missing options keep their defaults;
 * initialisers become wb__init_empty, because the values are loaded later. */
static int structure_read_options(const char *file, const wb__layer_type *type,
                                  const wb__json *object, char *options)
{
    const wb__json *value;
    if (type->defaults) memcpy(options, type->defaults, type->options_size);
    else if (type->options_size && !wb__own_struct(type))
        memcpy(options, &type->options_size, sizeof type->options_size);
    if (object && !wb__json_is(object, WB__JSON_OBJECT))
        return structure_fail_option(file, type, "options");
    WB__JSON_EACH_MEMBER(object, value, member) {
        const char *key = wb__json_key(value);
        const wb__option *o = NULL;
        if (wb__json_is(value, WB__JSON_NULL)) continue;
        for (int i = 0; i < type->n_options; i++)
            if (!strcmp(type->options[i].name, key)) o = &type->options[i];
        if (!o || o->kind == WB__OPTION_INITIALISER)
            return wb__fail(WB_ERROR_FORMAT, "%s: %s has no option \"%.100s\"", file, type->name,
                            key);
        const int status = structure_read_option(file, type, o, value, options + o->offset);
        if (status) return status;
    }
    for (int i = 0; wb__own_struct(type) && i < type->n_options; i++)
        if (!structure_is_named(&type->options[i]) && !wb__json_get(object, type->options[i].name))
            return wb__fail(WB_ERROR_FORMAT, "%s: %s has no \"%s\", which this program's struct "
                            "has", file, type->name, type->options[i].name);
    wb_initializer empty = wb__init_empty;
    for (int i = 0; i < type->n_options; i++)
        if (type->options[i].kind == WB__OPTION_INITIALISER)
            memcpy(options + type->options[i].offset, &empty, sizeof empty);
    return 0;
}

static void structure_write_node(structure_writing *w, void *object, const char *name, int depth);

static void put_children(structure_writing *w, int n, const wb__child *children, int depth)
{
    const size_t length = w->path.length;
    wb__json_put_key(&w->out, "parts");
    wb__json_open(&w->out, '[');
    for (int i = 0; !w->out.status && i < n; i++) {
        wb__path_push(&w->path, children[i].name);
        structure_write_node(w, children[i].object, children[i].name, depth + 1);
        wb__path_cut(&w->path, length);
    }
    wb__json_close(&w->out, ']');
}

/* Whether the object is a layer that was put around another one, such as a LoRA, which no layer
 * does by itself. */
static bool structure_is_wrapped(const void *object)
{
    return wb__is(object, &wb__layer_class) && ((const wb_layer *)object)->type->one_row &&
           ((const wb_layer *)object)->type->assemble;
}

/* Writes those inner layers that have replaced the ones that the layer had made. */
static void structure_write_replaced(structure_writing *w, const wb_layer *l, int depth)
{
    bool any = false;
    for (int i = 0; !w->out.status && i < l->node.n; i++) {
        const wb__child *c = &l->node.children[i];
        const size_t length = w->path.length;
        if (!structure_is_wrapped(c->object)) continue;
        if (!any) wb__json_put_key(&w->out, "parts");
        if (!any) wb__json_open(&w->out, '[');
        any = true;
        wb__path_push(&w->path, c->name);
        structure_write_node(w, c->object, c->name, depth + 1);
        wb__path_cut(&w->path, length);
    }
    if (any) wb__json_close(&w->out, ']');
}

static void structure_write_layer(structure_writing *w, wb_layer *l, int depth)
{
    wb__json_put_pair(&w->out, "layer", l->type->name);
    if (l->mode) wb__json_put_pair(&w->out, "mode", structure_modes[l->mode]);
    structure_write_options(w, l->type, l->options);
    wb__child *layers = l->node.children;
    const int n = wb__own_struct(l->type) ? l->node.n : wb__container_layers(l, &layers);
    const size_t length = w->path.length;
    if (n && layers != l->node.children) wb__path_push(&w->path, "layers");
    if (n) put_children(w, n, layers, depth);
    else structure_write_replaced(w, l, depth);
    wb__path_cut(&w->path, length);
}

static void structure_write_tensor(wb__json_out *out, const wb_tensor *x)
{
    const bool none = wb_is_none(x);
    wb__json_put_pair(out, "tensor", none ? "none" : wb_dtype_name((wb_dtype)x->dtype));
    if (none) return;
    wb__json_put_key(out, "shape");
    wb__json_open(out, '[');
    for (int i = 0; i < x->ndim; i++) wb__json_put_integer(out, x->dims[i]);
    wb__json_close(out, ']');
    if (!(x->flags & WB__FROZEN)) return;
    wb__json_put_key(out, "statistic");
    wb__json_put_bool(out, true);
}

static void structure_write_tree(structure_writing *w, wb_tree *t, int depth)
{
    wb__json_put_pair(&w->out, "tree",
                      t->type ? t->type->name : t->is_opaque ? "opaque" : "tuple");
    const wb__layer_type *own = t->type ? wb__own_type_of(t->type) : NULL;
    if (own) structure_write_options(w, own, t->copy);
    else if (t->type) w->out.status = wb__error_or(WB_ERROR_MEMORY);
    put_children(w, t->node.n, t->node.children, depth);
}

/* Writes a layer, tree or tensor as a JSON object.  `name` is its name in its parent; NULL for the
 * whole model. */
static void structure_write_node(structure_writing *w, void *object, const char *name, int depth)
{
    wb__json_out *out = &w->out;
    if (depth > STRUCTURE_DEEPEST) {
        out->status =
            wb__fail(WB_ERROR_ARGUMENT, "save: parts are nested deeper than %d", STRUCTURE_DEEPEST);
        return;
    }
    wb__json_open(out, '{');
    if (wb__is(object, &wb__layer_class))
        structure_write_layer(w, wb__layer_unnamed(object, NULL), depth);
    else if (wb__is(object, &wb__tree_class)) structure_write_tree(w, object, depth);
    else structure_write_tensor(out, object);
    if (name) wb__json_put_pair(out, "name", name);
    wb__json_close(out, '}');
}

static int structure_find_tie(const wb__leaf *leaf, void *ctx)
{
    bool is_first;
    return wb__ties_add(ctx, leaf, &is_first);
}

static char *structure_ties_text(void *model)
{
    wb__ties t = {0};
    const int status = wb__walk("save", model, NULL, 0, structure_find_tie, &t);
    if (status) t.out.status = status;
    return wb__ties_take(&t);
}

char *wb__structure_text(void *model)
{
    structure_writing w = {0};
    wb__json_open(&w.out, '{');
    wb__json_put_key(&w.out, "version");
    wb__json_put_integer(&w.out, STRUCTURE_VERSION);
    wb__json_put_key(&w.out, "model");
    structure_write_node(&w, model, NULL, 0);
    if (w.path.failed || w.nameless.failed) w.out.status = wb__fail(WB_ERROR_MEMORY, NULL);
    else if (!w.out.status && w.nameless.length)
        w.out.status = wb__fail(WB_ERROR_ARGUMENT, "save: what the program made has no name "
                                "in files:%s", w.nameless.text);
    char *ties = w.out.status ? NULL : structure_ties_text(model);
    if (!ties && !w.out.status) w.out.status = wb__error_or(WB_ERROR_MEMORY);
    if (ties && *ties) wb__text_add(&w.out.text, ",\"ties\":{%s}", ties);
    wb__json_close(&w.out, '}');
    wb__free(ties);
    wb__free(w.path.text);
    wb__free(w.nameless.text);
    return wb__json_take(&w.out);
}

/* ---- from JSON ------------------------------------------------------------------------------- */

static void *structure_build(const char *file, const wb__json *node, int depth);

/* Puts the file's name before the current error's message.  Returns NULL. */
static void *structure_fail_in(const char *file)
{
    return wb__fail_null((int)wb_error_code(), "%s: %s", file, wb_error());
}

/* The parts of a layer or tree, with their names. */
typedef struct { int n; const char **names; void **objects; } part_list;

static void structure_drop_parts(part_list *p)
{
    wb__free(p->names);
    wb__free(p->objects);
}

/* Sets *p to all parts.  False, with the error set, on failure. */
static bool build_parts(const char *file, const char *kind, const wb__json *parts, int depth,
                        part_list *p)
{
    const wb__json *part;
    const size_t n = parts ? (size_t)wb__json_count(parts) : 0;
    *p = (part_list){(int)n, wb__alloc_zero(WB__MAX(n, 1), sizeof *p->names),
                     wb__alloc_zero(WB__MAX(n, 1), sizeof *p->objects)};
    bool ok = p->names && p->objects;
    if (ok && n) WB__JSON_EACH(parts, part, i) {
        p->names[i] = wb__json_text(wb__json_get(part, "name"));
        if (!p->names[i] || !*p->names[i] || strchr(p->names[i], '.'))
            ok = !wb__fail(WB_ERROR_FORMAT, "%s: a part of a %s has no name, or a wrong one", file,
                           kind);
        if (ok) ok = (p->objects[i] = structure_build(file, part, depth + 1)) != NULL;
        if (!ok) break;
    }
    return ok;
}

static wb_layer *structure_assemble(const char *file, const wb__layer_type *type,
                                    const void *options, const part_list *p)
{
    if (!p->n) return wb__fail_null(WB_ERROR_FORMAT, "%s: %s without parts", file, type->name);
    for (int i = 0; i < p->n; i++)
        if (!wb__is(p->objects[i], &wb__layer_class))
            return wb__fail_null(WB_ERROR_FORMAT, "%s: part %d of a %s is a %s, not a layer", file,
                                 i, type->name, wb__kind(p->objects[i]));
    return type->assemble(options, p->n, p->names, (wb_layer *const *)p->objects);
}

/* Changes the order of the parts of a struct to that of its fields that are objects. */
static bool structure_sort_parts(const char *file, const wb_struct_type *of, part_list *p)
{
    int k = 0;
    for (int i = 0; i < of->n_fields; i++) {
        const wb_field *f = &of->fields[i];
        if (f->type != WB_FIELD_OBJECT) continue;
        int at = k;
        while (at < p->n && strcmp(p->names[at], f->name)) at++;
        if (at >= p->n)
            return !wb__fail(WB_ERROR_FORMAT, "%s: %s has no \"%s\", which this program's struct "
                             "has", file, of->name, f->name);
        const char *name = p->names[k];
        void *object = p->objects[k];
        p->names[k] = p->names[at], p->objects[k] = p->objects[at];
        p->names[at] = name, p->objects[at] = object;
        k++;
    }
    if (k < p->n)
        return !wb__fail(WB_ERROR_FORMAT, "%s: %s has a \"%.100s\", which this program's struct "
                         "has not", file, of->name, p->names[k]);
    return true;
}

/* Whether a layer of the file can replace one that the layer made: it contains a layer of the same
 * kind, with a weight of the same shape. */
static bool structure_can_replace(const wb_layer *made, const wb_layer *l)
{
    while (structure_is_wrapped(l)) l = wb__layer_child(l, 0);
    if (!wb__is(l, &wb__layer_class) || l->type != made->type || !l->node.n) return false;
    const wb_tensor *w = wb__layer_child(l, 0), *v = wb__layer_child(made, 0);
    return wb__is(w, &wb__tensor_class) && wb__is(v, &wb__tensor_class) && wb__same_dims(w, v);
}

/* Replaces inner layers of `made` by the parts that have their names. */
static bool structure_replace_inner(const char *file, wb_layer *made, const part_list *p)
{
    for (int k = 0; k < p->n; k++) {
        int i = 0;
        while (i < made->node.n && strcmp(made->node.children[i].name, p->names[k])) i++;
        void *inner = i < made->node.n ? wb__layer_child(made, i) : NULL;
        if (!inner || !wb__is(inner, &wb__layer_class) || !structure_is_wrapped(p->objects[k]) ||
            !structure_can_replace(inner, p->objects[k]))
            return !wb__fail(WB_ERROR_FORMAT, "%s: %s has no inner layer \"%.100s\" that its "
                             "part of this name can replace", file, made->type->name, p->names[k]);
        wb__branch_put(&made->node, i, made->node.children[i].name, p->objects[k]);
        if (!wb__branch_check_depth(&made->node, made->type->name)) return false;
    }
    return true;
}

static wb_layer *build_layer(const char *file, const wb__json *node, const char *kind, int depth)
{
    const wb__layer_type *type = wb__layer_type_named(kind);
    if (!type)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: no kind of layer is named \"%.100s\": if it "
                             "is a struct of the program, call wb_name_struct(%.100s) first", file,
                             kind, kind);
    const wb_struct_type *of = wb__own_struct(type);
    char *options = wb__alloc_zero(1, type->options_size + sizeof(max_align_t));
    if (!options) return NULL;
    wb_layer *made = NULL;
    part_list parts = {0};
    bool ok = !structure_read_options(file, type, wb__json_get(node, "options"), options);
    if (ok)
        ok = build_parts(file, type->name, wb__json_get(node, "parts"), depth, &parts);
    if (ok && of) ok = structure_sort_parts(file, of, &parts);
    if (ok) {
        made = of               ? wb__own_assemble(type, options, parts.objects)
               : type->assemble ? structure_assemble(file, type, options, &parts)
                                : type->make(options);
        if (!made) structure_fail_in(file);
    }
    if (made && !of && !type->assemble && !structure_replace_inner(file, made, &parts)) made = NULL;
    structure_drop_parts(&parts);
    wb__blobs_unref(type, options);
    wb__free(options);
    const char *mode = wb__json_text(wb__json_get(node, "mode"));
    if (!made || !mode) return made;
    for (int i = 0; i < 3; i++) {
        if (strcmp(mode, structure_modes[i])) continue;
        made->mode = i;
        return made;
    }
    return wb__fail_null(WB_ERROR_FORMAT, "%s: no mode is named \"%.100s\"", file, mode);
}

static wb_tree *build_struct(const char *file, const wb__layer_type *own, const wb__json *node,
                             part_list *p)
{
    const wb_struct_type *of = wb__own_struct(own);
    char *value = wb__alloc_zero(1, of->size);
    if (!value) return NULL;
    wb_tree *t = NULL;
    if (structure_sort_parts(file, of, p) &&
        !structure_read_options(file, own, wb__json_get(node, "options"), value)) {
        for (int i = 0, k = 0; i < of->n_fields; i++)
            if (of->fields[i].type == WB_FIELD_OBJECT)
                memcpy(value + of->fields[i].offset, &p->objects[k++], sizeof(void *));
        t = wb_struct_typed(of, value);
    }
    wb__free(value);
    return t;
}

static wb_tree *build_tree(const char *file, const wb__json *node, const char *kind, int depth)
{
    const bool tuple = !strcmp(kind, "tuple");
    const wb__layer_type *own = tuple ? NULL : wb__own_type_named(kind);
    if (!tuple && !own)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: describes a %.100s: if it is a struct of the "
                             "program, call wb_name_struct(%.100s) first", file, kind, kind);
    part_list p;
    wb_tree *t = NULL;
    if (build_parts(file, kind, wb__json_get(node, "parts"), depth, &p))
        t = own ? build_struct(file, own, node, &p) : wb_named_tuple(p.n, p.names, p.objects);
    structure_drop_parts(&p);
    return t;
}

/* Returns a variable whose values are loaded later. */
static wb_tensor *structure_build_tensor(const char *file, const wb__json *node, const char *kind)
{
    const wb__option type = {.kind = WB__OPTION_DTYPE};
    const wb__json *size = NULL, *shape = wb__json_get(node, "shape");
    const int64_t ndim = wb__json_count(shape);
    int64_t dims[WB_MAX_DIMS];
    wb_dtype dtype;
    if (!strcmp(kind, "none")) return WB_NONE;
    bool ok = wb__json_is(shape, WB__JSON_LIST) && ndim <= WB_MAX_DIMS &&
              structure_read_value(&type, (char *)&dtype, wb__json_get(node, "tensor"));
    if (ok) WB__JSON_EACH(shape, size, i) {
        dims[i] = wb__json_integer(size);
        ok &= wb__json_is(size, WB__JSON_INTEGER);
    }
    if (!ok)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: the shape or dtype of a tensor is wrong", file);
    wb_tensor *x = wb__parameter("tensor", "tensor", wb__init_empty, dtype, (int)ndim, dims);
    if (!x) return structure_fail_in(file);
    if (wb__json_is(wb__json_get(node, "statistic"), WB__JSON_TRUE)) x->flags |= WB__FROZEN;
    return x;
}

static void *structure_build(const char *file, const wb__json *node, int depth)
{
    if (depth > STRUCTURE_DEEPEST)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: layers are nested deeper than %d",
                             file, STRUCTURE_DEEPEST);
    const char *layer = wb__json_text(wb__json_get(node, "layer"));
    const char *tree = wb__json_text(wb__json_get(node, "tree"));
    const char *tensor = wb__json_text(wb__json_get(node, "tensor"));
    if (layer) return build_layer(file, node, layer, depth);
    if (tree) return build_tree(file, node, tree, depth);
    if (tensor) return structure_build_tensor(file, node, tensor);
    return wb__fail_null(WB_ERROR_FORMAT, "%s: a part is no layer, tree or tensor", file);
}

void *wb__structure_build(const char *file, const char *text, int64_t values)
{
    const char *reason;
    wb__json *root = wb__json_read(text, &reason);
    if (!root)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: the model's description: %s", file, reason);
    void *made = NULL;
    const int64_t version = wb__json_integer(wb__json_get(root, "version"));
    if (version < 1 || version > STRUCTURE_VERSION)
        wb__fail(WB_ERROR_FORMAT, "%s: the model's description is of version %lld; up to %d are "
                 "known", file, (long long)version, STRUCTURE_VERSION);
    else {
        if (version == 1) wb__structure_update(root);
        wb__parameters_limit(values > INT64_MAX / (2 * TIED_MOST)
                                 ? INT64_MAX
                                 : TIED_MOST * values + STRUCTURE_LEAST);
        made = structure_build(file, wb__json_get(root, "model"), 0);
        wb__parameters_limit(-1);
    }
    if (made && wb__ties_make(file, made, wb__json_get(root, "ties"))) made = NULL;
    wb__free(root);
    return made;
}
