/* Writes and reads structures of models as JSON. */
#include "io/model/structure.h"

#include "base/options.h"
#include "io/json.h"
#include "tree/tree.h"

#include <string.h>

enum { VERSION = 1, DEEPEST = 100 };

/* A described model may have at most TIED_MOST times as many bytes of values as the file, plus
 * LEAST. It may have more bytes than the file, because the file has the values of tied parameters
 * once. */
enum { TIED_MOST = 32, LEAST = 1 << 20 };

static const char *const modes[] = {"auto", "train", "test"};

/* ---- options --------------------------------------------------------------------------------- */

/* The state of the writer. `nameless` is a list, for the error message, of functions without
 * names. */
typedef struct { wb__json_out out; wb__text path, nameless; } writing;

static bool is_named(const wb__option *o)
{
    return o->kind == WB__OPTION_FUNCTION || o->kind == WB__OPTION_CONNECTION;
}

static const char *kind_of(const wb__option *o)
{
    return o->kind == WB__OPTION_FUNCTION ? "function" : "connection";
}

static void put_option(wb__json_out *out, const wb__option *o, const char *at)
{
    switch (o->kind) {
    case WB__OPTION_INT: wb__json_put_integer(out, *(const int64_t *)(const void *)at); break;
    case WB__OPTION_REAL: wb__json_put_real(out, *(const double *)(const void *)at); break;
    case WB__OPTION_BOOL: wb__json_put_bool(out, *(const bool *)at); break;
    case WB__OPTION_DTYPE:
        wb__json_put_text(out, wb_dtype_name(*(const wb_dtype *)(const void *)at));
        break;
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

/* Writes the options of a layer. Initialisers, and functions that are NULL, are left out. */
static void put_options(writing *w, const wb_layer *l)
{
    wb__json_out *out = &w->out;
    wb__json_open(out, '{');
    for (int i = 0; i < l->type->n_options; i++) {
        const wb__option *o = &l->type->options[i];
        const char *at = (const char *)l->options + o->offset, *kind = kind_of(o);
        bool set = o->kind != WB__OPTION_INITIALISER;
        const char *name = is_named(o) ? wb__option_name(o, at, &set) : NULL;
        if (!set) continue;
        wb__json_put_key(out, o->name);
        if (is_named(o) && !name)
            wb__text_add(&w->nameless, "\n  \"%s\": the %s of a %s: wb_name_%s",
                         wb__path(&w->path), kind, l->type->name, kind);
        if (is_named(o)) wb__json_put_text(out, name ? name : "");
        put_option(out, o, at);
    }
    wb__json_close(out, '}');
}

static int wrong(const char *file, const wb__layer_type *type, const char *option)
{
    return wb__fail(WB_ERROR_FORMAT, "%s: the option \"%s\" of a %s is wrong", file, option,
                    type->name);
}

static bool read_ints(const wb__option *o, int64_t *list, const wb__json *numbers)
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

static bool read_value(const wb__option *o, char *at, const wb__json *value)
{
    const char *text = wb__json_text(value);
    switch (o->kind) {
    case WB__OPTION_INT:
        *(int64_t *)(void *)at = wb__json_integer(value);
        return wb__json_is(value, WB__JSON_INTEGER);
    case WB__OPTION_REAL:
        *(double *)(void *)at =
            wb__json_is(value, WB__JSON_REAL) ? value->is.real : (double)wb__json_integer(value);
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
    case WB__OPTION_INTS: return read_ints(o, (void *)at, value);
    default: return false;
    }
}

static int read_option(const char *file, const wb__layer_type *type, const wb__option *o,
                       const wb__json *value, char *at)
{
    const char *name = is_named(o) ? wb__json_text(value) : NULL;
    if (name && wb__option_named(o, at, name)) return 0;
    if (name)
        return wb__fail(WB_ERROR_FORMAT,
                        "%s: no %s is named \"%.200s\": name it with wb_name_%s first", file,
                        kind_of(o), name, kind_of(o));
    return read_value(o, at, value) ? 0 : wrong(file, type, o->name);
}

/* Reads options of a layer type. Missing options keep their defaults; initialisers become
 * wb__init_empty, because the values are loaded later. */
static int read_options(const char *file, const wb__layer_type *type, const wb__json *object,
                        char *options)
{
    const wb__json *value;
    memcpy(options, &type->options_size, sizeof type->options_size);
    if (object && !wb__json_is(object, WB__JSON_OBJECT)) return wrong(file, type, "options");
    WB__JSON_EACH_MEMBER(object, value, member) {
        const char *key = wb__json_key(value);
        const wb__option *o = NULL;
        for (int i = 0; i < type->n_options; i++)
            if (!strcmp(type->options[i].name, key)) o = &type->options[i];
        if (!o || o->kind == WB__OPTION_INITIALISER)
            return wb__fail(WB_ERROR_FORMAT, "%s: a %s has no option \"%.100s\"", file, type->name,
                            key);
        const int status = read_option(file, type, o, value, options + o->offset);
        if (status) return status;
    }
    wb_initialiser empty = wb__init_empty;
    for (int i = 0; i < type->n_options; i++)
        if (type->options[i].kind == WB__OPTION_INITIALISER)
            memcpy(options + type->options[i].offset, &empty, sizeof empty);
    return 0;
}

/* ---- to JSON --------------------------------------------------------------------------------- */

static void put_node(writing *w, void *object, const char *name, int depth);

static void put_children(writing *w, int n, const wb__child *children, int depth)
{
    const size_t length = w->path.length;
    wb__json_put_key(&w->out, "parts");
    wb__json_open(&w->out, '[');
    for (int i = 0; !w->out.status && i < n; i++) {
        wb__path_push(&w->path, children[i].name);
        put_node(w, children[i].object, children[i].name, depth + 1);
        wb__path_cut(&w->path, length);
    }
    wb__json_close(&w->out, ']');
}

static void put_layer(writing *w, wb_layer *l, int depth)
{
    wb__json_put_pair(&w->out, "layer", l->type->name);
    if (l->mode) wb__json_put_pair(&w->out, "mode", modes[l->mode]);
    if (l->type->n_options) {
        wb__json_put_key(&w->out, "options");
        put_options(w, l);
    }
    wb__child *layers;
    const int n = wb__container_layers(l, &layers);
    const size_t length = w->path.length;
    if (n && wb__is(wb__layer_child(l, 0), &wb__tree_class)) wb__path_push(&w->path, "layers");
    if (n) put_children(w, n, layers, depth);
    wb__path_cut(&w->path, length);
}

/* Writes a layer, tree or tensor as a JSON object. `name` is its name in its parent; NULL: it is
 * the whole model. */
static void put_node(writing *w, void *object, const char *name, int depth)
{
    wb__json_out *out = &w->out;
    if (depth > DEEPEST) {
        out->status =
            wb__fail(WB_ERROR_ARGUMENT, "save: parts are nested deeper than %d", DEEPEST);
        return;
    }
    wb__json_open(out, '{');
    if (wb__is(object, &wb__layer_class)) {
        put_layer(w, wb__layer_unnamed(object, NULL), depth);
    } else if (wb__is(object, &wb__tree_class)) {
        wb_tree *t = object;
        wb__json_put_pair(out, "tree", t->type ? t->type->name : t->is_opaque ? "opaque" : "tuple");
        put_children(w, t->node.n, t->node.children, depth);
    } else {
        wb__json_put_pair(out, "tensor", wb_describe(object));
    }
    if (name) wb__json_put_pair(out, "name", name);
    wb__json_close(out, '}');
}

typedef struct { wb__pointer_map first; wb__json_out ties; } tie_search;

static int find_tie(const wb__leaf *leaf, void *ctx)
{
    tie_search *t = ctx;
    void **at = wb__pointer_map_at(&t->first, leaf->x);
    if (!at) return WB_ERROR_MEMORY;
    if (*at) {
        wb__json_put_pair(&t->ties, leaf->path, *at);
        return t->ties.status;
    }
    *at = wb__strdup(leaf->path);
    return *at ? 0 : WB_ERROR_MEMORY;
}

/* Returns the ties as members of a JSON object, `"second path":"first path",...`; the caller frees
 * the text. NULL with the error set. */
static char *ties_text(void *model)
{
    tie_search t = {0};
    const int status = wb__walk("save", model, NULL, 0, find_tie, &t);
    for (int i = 0; i < t.first.capacity; i++)
        if (t.first.keys[i]) wb__free(t.first.values[i]);
    wb__pointer_map_free(&t.first);
    if (status) t.ties.status = status;
    return wb__json_take(&t.ties);
}

char *wb__structure_text(void *model)
{
    writing w = {0};
    wb__json_open(&w.out, '{');
    wb__json_put_key(&w.out, "version");
    wb__json_put_integer(&w.out, VERSION);
    wb__json_put_key(&w.out, "model");
    put_node(&w, model, NULL, 0);
    if (w.path.failed || w.nameless.failed) w.out.status = wb__fail(WB_ERROR_MEMORY, NULL);
    else if (!w.out.status && w.nameless.length)
        w.out.status = wb__fail(WB_ERROR_ARGUMENT, "save: without a name in files, until one is "
                                "given:%s", w.nameless.text);
    char *ties = w.out.status ? NULL : ties_text(model);
    if (!ties && !w.out.status) w.out.status = wb__error_or(WB_ERROR_MEMORY);
    if (ties && *ties) wb__text_add(&w.out.text, ",\"ties\":{%s}", ties);
    wb__json_close(&w.out, '}');
    wb__free(ties);
    wb__free(w.path.text);
    wb__free(w.nameless.text);
    return wb__json_take(&w.out);
}

/* ---- from JSON ------------------------------------------------------------------------------- */

static wb_layer *build(const char *file, const wb__json *node, int depth);

/* Puts the file's name in front of the message of the current error, which lacks it. Returns
 * NULL. */
static wb_layer *fail_in(const char *file)
{
    return wb__fail_null((int)wb_error_code(), "%s: %s", file, wb_error());
}

static wb_layer *build_container(const char *file, const wb__layer_type *type, const void *options,
                                 const wb__json *parts, int depth)
{
    const wb__json *part;
    const size_t n = (size_t)wb__json_count(parts);
    if (!n) return wb__fail_null(WB_ERROR_FORMAT, "%s: a %s without parts", file, type->name);
    wb_layer *made = NULL, **layers = wb__alloc_zero(n, sizeof *layers);
    const char **names = wb__alloc_zero(n, sizeof *names);
    bool ok = layers && names;
    if (ok) WB__JSON_EACH(parts, part, i) {
        names[i] = wb__json_text(wb__json_get(part, "name"));
        if (!names[i] || !*names[i] || strchr(names[i], '.'))
            ok = !wb__fail(WB_ERROR_FORMAT, "%s: a part of a %s has no name, or a wrong one", file,
                           type->name);
        if (ok) ok = (layers[i] = build(file, part, depth + 1)) != NULL;
        if (!ok) break;
    }
    if (ok && !(made = type->assemble(options, (int)n, names, layers))) fail_in(file);
    wb__free(layers);
    wb__free(names);
    return made;
}

static wb_layer *build(const char *file, const wb__json *node, int depth)
{
    if (depth > DEEPEST)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: layers are nested deeper than %d",
                             file, DEEPEST);
    const char *kind = wb__json_text(wb__json_get(node, "layer"));
    if (!kind)
        return wb__fail_null(WB_ERROR_FORMAT,
                             "%s: describes a %s, not a layer: read it with wb_load_state", file,
                             wb__json_get(node, "tree") ? "tree" : "value of another kind");
    const wb__layer_type *type = wb__layer_type_named(kind);
    if (!type)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: no kind of layer is named \"%.100s\"", file,
                             kind);
    char *options = wb__alloc_zero(1, type->options_size + sizeof(size_t));
    if (!options) return NULL;
    wb_layer *made = NULL;
    const bool known = !read_options(file, type, wb__json_get(node, "options"), options);
    if (known && type->assemble)
        made = build_container(file, type, options, wb__json_get(node, "parts"), depth);
    else if (known && !(made = type->make(options))) fail_in(file);
    wb__free(options);
    const char *mode = wb__json_text(wb__json_get(node, "mode"));
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
    const char *reason;
    wb__json *root = wb__json_read(text, &reason);
    if (!root)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: the model's description: %s", file, reason);
    wb_layer *made = NULL;
    const wb__json *same, *ties = wb__json_get(root, "ties");
    const int64_t version = wb__json_integer(wb__json_get(root, "version"));
    if (version < 1 || version > VERSION)
        wb__fail(WB_ERROR_FORMAT, "%s: the model's description is of version %lld; %d is known",
                 file, (long long)version, VERSION);
    else {
        wb__parameters_limit(values > INT64_MAX / (2 * TIED_MOST) ? INT64_MAX
                                                                  : TIED_MOST * values + LEAST);
        made = build(file, wb__json_get(root, "model"), 0);
        wb__parameters_limit(-1);
    }
    if (made && ties && !wb__json_is(ties, WB__JSON_OBJECT)) {
        wb__fail(WB_ERROR_FORMAT, "%s: the model's ties are no object", file);
        made = NULL;
    }
    if (made) WB__JSON_EACH_MEMBER(ties, same, i) {
        const char *path = wb__json_key(same), *first = wb__json_text(same);
        if (first && !wb_tie(made, path, first)) continue;
        if (first) fail_in(file);
        else wb__fail(WB_ERROR_FORMAT, "%s: the tie of \"%.100s\" is wrong", file, path);
        made = NULL;
        break;
    }
    wb__free(root);
    return made;
}
