/* Models to JSON and back. */
#include "io/structure.h"

#include "io/json_text.h"

#include <string.h>

enum { VERSION = 1, DEEPEST = 100 };

/* Of a model's parameters, before ties are made, against what a file holds of values: what is tied stands there once, and
 * a parameter may stand there in half its width. */
enum { TIED_MOST = 32, LEAST = 1 << 20 };

static const char *const modes[] = {"auto", "train", "test"};

/* ---- options --------------------------------------------------------------------------------- */

static json_t *function_text(const char *what, const char *name)
{
    if (name) return wb__json_string(name);
    return wb__fail_null(WB_ERROR_ARGUMENT,
                         "save: a %s without a name: give it one with wb_name_%s", what, what);
}

/* The i-th value of an option; "absent" for what stands at its default, NULL with the error set for
 * what cannot be told. */
static json_t *option_value(const wb__option *o, const char *options, int i, bool *absent)
{
    const char *at = options + o->offset;
    *absent = false;
    switch (o->kind) {
    case WB__OPTION_INT: return json_integer(((const int64_t *)(const void *)at)[i]);
    case WB__OPTION_REAL: return json_real(((const double *)(const void *)at)[i]);
    case WB__OPTION_BOOL: return json_boolean(*(const bool *)at);
    case WB__OPTION_DTYPE: return json_string(wb_dtype_name(*(const wb_dtype *)(const void *)at));
    case WB__OPTION_AXES: {
        const wb_axes *axes = (const void *)at;
        json_t *list = json_array();
        for (int k = 0; k < axes->n; k++) list = wb__json_append(list, json_integer(axes->axis[k]));
        return list;
    }
    case WB__OPTION_FUNCTION: {
        wb_function f;
        memcpy(&f, at, sizeof f);
        *absent = !f;
        return f ? function_text("function", wb__function_name(f)) : NULL;
    }
    case WB__OPTION_CONNECTION: {
        wb__connection f;
        memcpy(&f, at, sizeof f);
        *absent = !f;
        return f ? function_text("connection", wb__connection_name(f)) : NULL;
    }
    case WB__OPTION_INITIALISER: *absent = true; return NULL;
    }
    return NULL;
}

static json_t *options_json(const wb_layer *l)
{
    json_t *object = json_object();
    for (int i = 0; object && i < l->type->n_options; i++) {
        const wb__option *o = &l->type->options[i];
        bool absent = false;
        json_t *value = o->count > 1 ? json_array() : option_value(o, l->options, 0, &absent);
        for (int k = 0; value && o->count > 1 && k < o->count; k++)
            value = wb__json_append(value, option_value(o, l->options, k, &absent));
        if (absent) continue;
        if (value && !json_object_set_new(object, o->name, value)) continue;
        json_decref(object);
        return NULL;
    }
    return object;
}

static int wrong(const char *file, const wb__layer_type *type, const char *option)
{
    return wb__fail(WB_ERROR_FORMAT, "%s: the option \"%s\" of a %s is wrong", file, option,
                    type->name);
}

static int read_function(const char *file, const wb__option *o, char *at, const char *name)
{
    if (o->kind == WB__OPTION_FUNCTION) {
        wb_function f = wb__function_by_name(name);
        if (!f)
            return wb__fail(
                WB_ERROR_FORMAT,
                "%s: no function is named \"%.200s\": name it with wb_name_function first", file,
                name);
        memcpy(at, &f, sizeof f);
        return 0;
    }
    wb__connection f = wb__connection_by_name(name);
    if (!f)
        return wb__fail(
            WB_ERROR_FORMAT,
            "%s: no connection is named \"%.200s\": name it with wb_name_connection first", file,
            name);
    memcpy(at, &f, sizeof f);
    return 0;
}

static bool read_value(const wb__option *o, char *at, int i, json_t *value)
{
    switch (o->kind) {
    case WB__OPTION_INT:
        ((int64_t *)(void *)at)[i] = json_integer_value(value);
        return json_is_integer(value);
    case WB__OPTION_REAL:
        ((double *)(void *)at)[i] = json_number_value(value);
        return json_is_number(value);
    case WB__OPTION_BOOL:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value);
    case WB__OPTION_DTYPE:
        for (int d = 1; json_is_string(value) && d < WB_DTYPE_COUNT; d++) {
            if (strcmp(wb_dtype_name((wb_dtype)d), json_string_value(value))) continue;
            *(wb_dtype *)(void *)at = (wb_dtype)d;
            return true;
        }
        return false;
    case WB__OPTION_AXES: {
        wb_axes *axes = (void *)at;
        size_t n = json_array_size(value);
        if (!json_is_array(value) || n > WB_MAX_DIMS) return false;
        axes->n = (int)n;
        for (size_t k = 0; k < n; k++) {
            json_int_t axis = json_integer_value(json_array_get(value, k));
            if (!json_is_integer(json_array_get(value, k)) || axis < -WB_MAX_DIMS ||
                axis >= WB_MAX_DIMS)
                return false;
            axes->axis[k] = (int)axis;
        }
        return true;
    }
    default: return false;
    }
}

/* Options of a type from JSON; what is not there keeps its default; initialisers draw nothing,
 * and make nothing: values follow. */
static int read_options(const char *file, const wb__layer_type *type, json_t *object, char *options)
{
    const char *key;
    json_t *value;
    memcpy(options, &type->options_size, sizeof type->options_size);
    if (object && !json_is_object(object)) return wrong(file, type, "options");
    json_object_foreach(object, key, value) {
        const wb__option *o = NULL;
        for (int i = 0; i < type->n_options; i++)
            if (!strcmp(type->options[i].name, key)) o = &type->options[i];
        if (!o || o->kind == WB__OPTION_INITIALISER)
            return wb__fail(WB_ERROR_FORMAT, "%s: a %s has no option \"%.100s\"", file, type->name,
                            key);
        char *at = options + o->offset;
        bool function = o->kind == WB__OPTION_FUNCTION || o->kind == WB__OPTION_CONNECTION;
        if (function) {
            int status = json_is_string(value)
                             ? read_function(file, o, at, json_string_value(value))
                             : wrong(file, type, o->name);
            if (status) return status;
        } else if (o->count == 1) {
            if (!read_value(o, at, 0, value)) return wrong(file, type, o->name);
        } else {
            bool ok = json_array_size(value) == (size_t)o->count;
            for (int k = 0; ok && k < o->count; k++)
                ok = read_value(o, at, k, json_array_get(value, (size_t)k));
            if (!ok) return wrong(file, type, o->name);
        }
    }
    wb_initialiser empty = wb__init_empty;
    for (int i = 0; i < type->n_options; i++)
        if (type->options[i].kind == WB__OPTION_INITIALISER)
            memcpy(options + type->options[i].offset, &empty, sizeof empty);
    return 0;
}

/* ---- to JSON --------------------------------------------------------------------------------- */

static int set(json_t *object, const char *key, json_t *value)
{
    if (!json_object_set_new(object, key, value)) return 0;
    return wb_error_code() ? (int)wb_error_code() : wb__fail(WB_ERROR_MEMORY, NULL);
}

/* All functions of a model that have no name in files, with where they are. */
static void tell_nameless(void *object, const char *path, int depth, wb__text *t)
{
    wb__child *parts = NULL;
    int n = 0;
    const char *folder = "";
    if (depth > DEEPEST) return;
    if (wb__is(object, &wb__layer_class)) {
        wb_layer *l = wb__layer_unnamed(object, NULL);
        for (int i = 0; i < l->type->n_options; i++) {
            const wb__option *o = &l->type->options[i];
            const char *at = (const char *)l->options + o->offset;
            wb_function f = NULL;
            wb__connection c = NULL;
            if (o->kind == WB__OPTION_FUNCTION) memcpy(&f, at, sizeof f);
            if (o->kind == WB__OPTION_CONNECTION) memcpy(&c, at, sizeof c);
            const char *kind = f ? "function" : "connection";
            if ((f && !wb__function_name(f)) || (c && !wb__connection_name(c)))
                wb__text_add(t, "\n  \"%s\": the %s of a %s: wb_name_%s", path, kind, l->type->name, kind);
        }
        n = wb__layer_parts(l, &parts);
        if (n) folder = wb__is(wb__layer_child(l, 0), &wb__tree_class) ? "layers." : NULL;
    } else if (wb__is(object, &wb__tree_class)) {
        parts = ((wb_tree *)object)->node.children;
        n = ((wb_tree *)object)->node.n;
    }
    for (int i = 0; i < n; i++) {
        wb__text below = {0};
        wb__text_add(&below, "%s%s%s%s", path, *path ? "." : "", folder ? folder : "", folder ? parts[i].name : "layers");
        char *text = wb__text_take(&below);
        if (text) tell_nameless(parts[i].object, text, depth + 1, t);
        else t->failed = true;
        wb__free(text);
    }
}

static int check_names(void *model)
{
    wb__text t = {0};
    tell_nameless(model, "", 0, &t);
    const bool failed = t.failed;
    char *text = wb__text_take(&t);
    int status = 0;
    if (failed) status = wb__fail(WB_ERROR_MEMORY, NULL);
    else if (text && *text)
        status = wb__fail(WB_ERROR_ARGUMENT, "save: without a name in files, until one is given:%s", text);
    wb__free(text);
    return status;
}

static json_t *node_json(void *object, int depth);

static int add_parts(json_t *node, int n, const wb__child *parts, int depth)
{
    json_t *list = json_array();
    int status = set(node, "parts", list);
    for (int i = 0; !status && i < n; i++) {
        json_t *part = node_json(parts[i].object, depth + 1);
        if (!part) return wb_error_code();
        status = set(part, "name", wb__json_string(parts[i].name));
        if (json_array_append_new(list, part)) status = wb__fail(WB_ERROR_MEMORY, NULL);
    }
    return status;
}

static json_t *node_json(void *object, int depth)
{
    if (depth > DEEPEST)
        return wb__fail_null(WB_ERROR_ARGUMENT, "save: parts stand in one another deeper than %d",
                             DEEPEST);
    json_t *node = json_object();
    int status = node ? 0 : wb__fail(WB_ERROR_MEMORY, NULL);
    if (status) return NULL;
    if (wb__is(object, &wb__layer_class)) {
        wb_layer *l = wb__layer_unnamed(object, NULL);
        status = set(node, "layer", json_string(l->type->name));
        if (!status && l->mode) status = set(node, "mode", json_string(modes[l->mode]));
        if (!status && l->type->n_options) status = set(node, "options", options_json(l));
        wb__child *parts;
        int n = wb__layer_parts(l, &parts);
        if (!status && n) status = add_parts(node, n, parts, depth);
    } else if (wb__is(object, &wb__tree_class)) {
        wb_tree *t = object;
        status = set(node, "tree",
                     json_string(t->type        ? t->type->name
                                 : t->is_opaque ? "opaque"
                                                : "tuple"));
        if (!status) status = add_parts(node, t->node.n, t->node.children, depth);
    } else {
        status = set(node, "tensor", json_string(wb_describe(object)));
    }
    if (!status) return node;
    json_decref(node);
    return NULL;
}

typedef struct { wb__seen first; json_t *ties; } tie_search;

static int find_tie(const wb__leaf *leaf, void *ctx)
{
    tie_search *t = ctx;
    void **at = wb__seen_at(&t->first, leaf->x);
    if (!at) return WB_ERROR_MEMORY;
    if (*at) return set(t->ties, leaf->path, wb__json_string(*at));
    *at = wb__strdup(leaf->path);
    return *at ? 0 : WB_ERROR_MEMORY;
}

char *wb__structure_text(void *model)
{
    json_t *root = json_pack("{s:i}", "version", VERSION);
    tie_search t = {.ties = json_object()};
    int status = root ? check_names(model) : wb__fail(WB_ERROR_MEMORY, NULL);
    if (!status) status = wb__walk("save", model, NULL, 0, find_tie, &t);
    for (int i = 0; i < t.first.room; i++)
        if (t.first.keys[i]) wb__free(t.first.values[i]);
    wb__seen_drop(&t.first);
    json_t *node = status ? NULL : node_json(model, 0);
    if (!status && !node) status = wb_error_code();
    if (!status) status = set(root, "model", node);
    if (!status && json_object_size(t.ties)) status = set(root, "ties", json_incref(t.ties));
    char *text = status ? NULL : wb__json_text(root);
    json_decref(t.ties);
    json_decref(root);
    return text;
}

/* ---- from JSON ------------------------------------------------------------------------------- */

static wb_layer *build(const char *file, json_t *node, int depth);

static wb_layer *build_container(const char *file, const wb__layer_type *type, const void *options,
                                 json_t *parts, int depth)
{
    size_t n = json_array_size(parts);
    if (!n) return wb__fail_null(WB_ERROR_FORMAT, "%s: a %s without parts", file, type->name);
    wb_layer *made = NULL, **layers = wb__alloc_zero(n, sizeof *layers);
    const char **names = wb__alloc_zero(n, sizeof *names);
    bool ok = layers && names;
    for (size_t i = 0; ok && i < n; i++) {
        json_t *part = json_array_get(parts, i);
        names[i] = json_string_value(json_object_get(part, "name"));
        if (!names[i] || !*names[i] || strchr(names[i], '.'))
            ok = !wb__fail(WB_ERROR_FORMAT, "%s: a part of a %s has no name, or a wrong one", file,
                           type->name);
        if (ok) ok = (layers[i] = build(file, part, depth + 1)) != NULL;
    }
    if (ok) made = type->assemble(options, (int)n, names, layers);
    wb__free(layers);
    wb__free(names);
    return made;
}

static wb_layer *build(const char *file, json_t *node, int depth)
{
    if (depth > DEEPEST)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: layers stand in one another deeper than %d",
                             file, DEEPEST);
    const char *kind = json_string_value(json_object_get(node, "layer"));
    if (!kind)
        return wb__fail_null(WB_ERROR_FORMAT,
                             "%s: holds no layer there but a %s: read it with wb_load_state", file,
                             json_object_get(node, "tree") ? "tree" : "thing of another kind");
    const wb__layer_type *type = wb__layer_type_named(kind);
    if (!type)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: no kind of layer is named \"%.100s\"", file,
                             kind);
    char *options = wb__alloc_zero(1, type->options_size + sizeof(size_t));
    if (!options) return NULL;
    wb_layer *made = NULL;
    if (!read_options(file, type, json_object_get(node, "options"), options))
        made = type->assemble
                   ? build_container(file, type, options, json_object_get(node, "parts"), depth)
                   : type->make(options);
    wb__free(options);
    const char *mode = json_string_value(json_object_get(node, "mode"));
    if (!made || !mode) return made;
    for (int i = 0; i < 3; i++) {
        if (strcmp(mode, modes[i])) continue;
        made->mode = i;
        return made;
    }
    return wb__fail_null(WB_ERROR_FORMAT, "%s: no mode is named \"%.100s\"", file, mode);
}

wb_layer *wb__structure_build(const char *file, const char *text, int64_t values)
{
    json_error_t error;
    json_t *root = wb__json_load(text, &error);
    if (!root)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: the model's description: %s", file, error.text);
    wb_layer *made = NULL;
    json_t *version = json_object_get(root, "version"), *same;
    if (!json_is_integer(version) || json_integer_value(version) < 1 ||
        json_integer_value(version) > VERSION)
        wb__fail(WB_ERROR_FORMAT, "%s: the model's description is of version %lld; %d is known",
                 file, (long long)json_integer_value(version), VERSION);
    else {
        wb__parameters_limit(values > INT64_MAX / (2 * TIED_MOST) ? INT64_MAX : TIED_MOST * values + LEAST);
        made = build(file, json_object_get(root, "model"), 0);
        wb__parameters_limit(-1);
    }
    const char *path;
    if (made) json_object_foreach(json_object_get(root, "ties"), path, same) {
        if (json_is_string(same) && !wb_tie(made, path, json_string_value(same))) continue;
        if (!json_is_string(same))
            wb__fail(WB_ERROR_FORMAT, "%s: the tie of \"%.100s\" is wrong", file, path);
        made = NULL;
        break;
    }
    json_decref(root);
    if (!made && !strstr(wb_error(), file)) wb__fail((int)wb_error_code(), "%s: %s", file, wb_error());
    return made;
}
