/* Reads Flux's models: containers, unknown parts, files. */
#include "io/flux/read.h"

#include "io/flux/flux.h"
#include "io/model/model_file.h"

#include <stdio.h>
#include <string.h>

enum { FLUX_READ_MOST_LAYERS = 4096, MOST_LISTED = 40, MOST_NUMBERS = 64, MOST_NAMED = 8 };

bool wb__flux_enter(wb__flux_reader *r, const char *name, size_t *back)
{
    *back = r->path_length;
    size_t left = sizeof r->path - r->path_length, n = strlen(name) + (r->path_length > 0);
    if (r->depth >= WB__JL_MAX_DEPTH || n >= left) {
        wb__bson_fail(&r->f, NULL, "\"%.60s...\": parts are nested deeper than %d",
                      r->path, WB__JL_MAX_DEPTH);
        return false;
    }
    snprintf(r->path + r->path_length, left, "%s%s", r->path_length ? "." : "", name);
    for (char *c = r->path + *back + (*back > 0); *c; c++)
        if (*c == '.' && strcmp(name, "layers") && !wb__begins(name, "layers.")) *c = '_';
    r->path_length += n;
    r->depth++;
    return true;
}

void wb__flux_leave(wb__flux_reader *r, size_t back)
{
    r->path_length = back;
    r->path[back] = 0;
    r->depth--;
}

/* ---- unknown parts --------------------------------------------------------------------------- */

void *wb__flux_reason(wb__flux_reader *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    wb__plain_list(r->reason_text, sizeof r->reason_text, format, arguments);
    va_end(arguments);
    r->reason = r->reason_text;
    return NULL;
}

static void *flux_read_part_of(wb__flux_reader *r, const wb__jl *v);

static wb_tensor *flux_read_tensor_of(wb__flux_reader *r, const wb__jl *v)
{
    wb__jl_array a;
    if (!wb__jl_array_of(&r->f, v, &a) || !a.dtype) return r->f.status ? NULL : WB_NONE;
    if (!wb__bson_spend(&r->f, a.bytes / 2)) return NULL;
    void *made;
    const void *values = wb__jl_values(&a, a.dtype, &made);
    wb_tensor *x = values ? wb_from(values, a.dtype, a.ndim, a.dims) : NULL;
    wb__free(made);
    return x;
}

static wb_tree *flux_read_tree_of(wb__flux_reader *r, const wb__jl *v)
{
    wb__jl_fields w;
    if (!wb__bson_spend(&r->f, v->shared ? v->items.bytes : 0)) return NULL;
    int n = wb__jl_count(&r->f, v);
    wb_tree *t = wb__tree_new(n);
    wb__jl_fields_of(&r->f, v, &w);
    for (int i = 0; t && i < n; i++) {
        size_t back;
        void *part = NULL;
        if (wb__jl_fields_next(&r->f, &w) && wb__flux_enter(r, w.name, &back)) {
            part = flux_read_part_of(r, &w.value);
            wb__flux_leave(r, back);
        }
        if (!part) return NULL;
        for (char *c = w.name; *c; c++)
            if (*c == '.') *c = '_';
        if (!wb__branch_put_copy(&t->node, i, w.name, part)) return NULL;
    }
    return t;
}

/* Returns a field of an unknown part for .substitute.  Structs are read as layers.  Returns WB_NONE
 * for a value that .substitute does not get, NULL on failure. */
static void *flux_read_part_of(wb__flux_reader *r, const wb__jl *v)
{
    bool keep = r->o->substitute != NULL;
    wb_function f;
    switch (v->kind) {
    case WB__JL_GPU:
        wb__jl_gpu_fail(&r->f, v, r->path);
        return NULL;
    case WB__JL_ARRAY: return keep ? flux_read_tensor_of(r, v) : WB_NONE;
    case WB__JL_NUMBER:
        if (!keep || !wb__bson_spend(&r->f, 64)) return r->f.status ? NULL : WB_NONE;
        return v->whole ? wb_from(&v->integer, WB_I64, 0, NULL)
                        : wb_from(&v->real, WB_F64, 0, NULL);
    case WB__JL_FUNCTION:
        f = wb__flux_function(v);
        return keep && f ? (void *)wb_layer_from_function(f) : WB_NONE;
    case WB__JL_TUPLE: return flux_read_tree_of(r, v);
    case WB__JL_LIST: case WB__JL_DICT:
        return wb__jl_count(&r->f, v) <= MOST_NUMBERS ? (void *)flux_read_tree_of(r, v)
               : r->f.status                          ? NULL
                                                      : WB_NONE;
    case WB__JL_STRUCT:
        if (wb__jl_named_tuple(v)) return flux_read_tree_of(r, v);
        if (!strcmp(wb__jl_last(v), "Adjoint") || !strcmp(wb__jl_last(v), "Transpose"))
            return keep ? flux_read_tensor_of(r, v) : WB_NONE;
        if (!wb__bson_count(&r->f, v->items))       /* such as Colon */
            return r->f.status ? NULL : WB_NONE;
        return wb__flux_layer(r, v);
    default: return r->f.status ? NULL : WB_NONE;
    }
}

static void flux_read_add_unknown(wb__flux_reader *r, const char *type, int n, const char *reason)
{
    if (r->n_unknown++ >= MOST_LISTED) return;
    const char *path = *r->path ? r->path : r->variable, *s = n == 1 ? "" : "s";
    wb__text_add(&r->unknown, "\n  \"%s\": %s (%d field%s)%s%s", path, type, n, s,
                 reason ? ": " : "", reason ? reason : "");
}

/* Returns l.  If l is NULL for lack of memory, sets r->f.status to WB_ERROR_MEMORY. */
static wb_layer *flux_read_made(wb__flux_reader *r, wb_layer *l)
{
    if (!l && !r->f.status) r->f.status = WB_ERROR_MEMORY;
    return l;
}

/* Returns a placeholder layer, so that reading continues and finds all unknown parts. */
static wb_layer *flux_read_placeholder(wb__flux_reader *r)
{
    return flux_read_made(r, wb_layer_from_function(wb_identity));
}

WB__PROGRAM_CALL(substitute_call, substitute_run, wb_layer *,
                 const wb_load_options *o; const wb_unknown *part;,
                 c->o->substitute(c->part, c->o->ctx))

/* Sets *l to the layer that .substitute gives, or to NULL.  False: it has thrown an exception. */
static bool flux_read_substitute(const wb__flux_reader *r, const wb_unknown *part, wb_layer **l)
{
    substitute_call c = {r->o, part, NULL};
    const bool returned = wb__call_program(substitute_run, &c);
    *l = c.result;
    return returned;
}

wb_layer *wb__flux_unknown(wb__flux_reader *r, const wb__jl *v)
{
    char type[2 * WB__JL_NAME], reason[sizeof r->reason_text] = "";
    if (v->kind == WB__JL_GPU) return wb__jl_gpu_fail(&r->f, v, r->path), NULL;
    if (r->reason) snprintf(reason, sizeof reason, "%s", r->reason);
    r->reason = NULL;
    wb__jl_type_text(&r->f, v, type, sizeof type);
    bool inside = v->kind == WB__JL_STRUCT || v->kind == WB__JL_CLOSURE;
    const int64_t channels = r->channels;
    size_t listed = r->unknown.length;
    int n_before = r->n_unknown, n = inside ? wb__jl_count(&r->f, v) : 0;
    wb_tree *fields = inside ? flux_read_tree_of(r, v) : wb__tree_new(0);
    if (!fields || r->f.status) return NULL;
    r->channels = 0;
    wb_layer *l = NULL;
    const wb_unknown part = {.path = r->path, .type = type, .fields = fields};
    if (r->o->substitute && !flux_read_substitute(r, &part, &l)) return NULL;
    if (l && wb__is(l, &wb__layer_class)) {
        l = wb__layer_unnamed(l, NULL);
        if (!strcmp(l->type->name, "MaxPool") || !strcmp(l->type->name, "MeanPool"))
            r->channels = channels;
        r->n_unknown = n_before;
        if (r->unknown.text) r->unknown.text[r->unknown.length = listed] = 0;
        return l;
    }
    flux_read_add_unknown(r, type, n, *reason ? reason : NULL);
    return flux_read_placeholder(r);
}

/* ---- containers ------------------------------------------------------------------------------ */

/* The layers of a tuple, a vector or a NamedTuple, with their names. */
typedef struct { int n; bool named; wb_layer **layers; char **names; } inner_layers;

static void flux_read_free_layers(inner_layers *p)
{
    for (int i = 0; p->names && i < p->n; i++) wb__free(p->names[i]);
    wb__free(p->names);
    wb__free(p->layers);
}

/* Whether the next layer in `w` is a Dense whose number of inputs is a multiple of r->channels.
 * Functions and Dropout layers are skipped. */
static bool flux_read_dense_follows(wb__flux_reader *r, wb__jl_fields w)
{
    while (wb__jl_fields_next(&r->f, &w)) {
        const wb__jl *v = &w.value;
        if (v->kind == WB__JL_FUNCTION || wb__jl_flux(v, "Dropout")) continue;
        wb__jl_array a;
        wb__jl weight = wb__jl_flux(v, "Dense") ? wb__jl_field(&r->f, v, "weight") : (wb__jl){0};
        return wb__jl_array_of(&r->f, &weight, &a) && a.ndim == 2 && a.dims[0] > 0 &&
               a.dims[0] % r->channels == 0;
    }
    return false;
}

static wb_layer *flux_read_inner_layer(wb__flux_reader *r, const wb__jl_fields *w, bool chain)
{
    const wb__jl *v = &w->value;
    if (!chain || v->kind != WB__JL_CLOSURE || !r->channels || wb__jl_count(&r->f, v) ||
        !flux_read_dense_follows(r, *w))
        return r->f.status ? NULL : wb__flux_layer(r, v);
    wb__log(WB_LOG_INFO,
            "%s: \"%s\" is a closure (%s) between images and a Dense: taken for Flatten",
            r->f.map->path, r->path, v->name);
    r->channels = 0;
    return flux_read_made(r, wb_Flatten());
}

static bool flux_read_layers(wb__flux_reader *r, const wb__jl *list, bool chain, inner_layers *p)
{
    wb__jl_fields w;
    bool known =
        list->kind == WB__JL_TUPLE || list->kind == WB__JL_LIST || wb__jl_named_tuple(list);
    int n = known ? wb__jl_count(&r->f, list) : 0;
    *p = (inner_layers){.named = wb__jl_named_tuple(list)};
    if (!known) return wb__flux_reason(r, "its layers are no list"), false;
    if (n > FLUX_READ_MOST_LAYERS)
        return wb__flux_reason(r, "%d layers are more than %d", n, FLUX_READ_MOST_LAYERS), false;
    if (!wb__bson_spend(&r->f, list->shared ? list->items.bytes : 0)) return false;
    p->layers = wb__alloc_zero((size_t)n + 1, sizeof *p->layers);
    p->names = wb__alloc_zero((size_t)n + 1, sizeof *p->names);
    if (!p->layers || !p->names) return r->f.status = WB_ERROR_MEMORY, false;
    wb__jl_fields_of(&r->f, list, &w);
    int64_t channels = r->channels;
    while (p->n < n && wb__jl_fields_next(&r->f, &w)) {
        char name[WB__JL_NAME + 8];
        size_t back;
        snprintf(name, sizeof name, "layers.%s", w.name);
        if (!chain) r->channels = channels;
        if (!wb__flux_enter(r, name, &back)) return false;
        if (!*w.name || strchr(w.name, '.')) {
            wb__bson_fail(&r->f, w.items.of.at, "a layer is named \"%s\"", w.name);
            return false;
        }
        p->names[p->n] = wb__strdup(w.name);
        p->layers[p->n] = flux_read_inner_layer(r, &w, chain);
        wb__flux_leave(r, back);
        p->n++;
        if (!p->names[p->n - 1] && !r->f.status) r->f.status = WB_ERROR_MEMORY;
        if (!p->layers[p->n - 1] || r->f.status) return false;
    }
    return !r->f.status;
}

static wb_layer *flux_read_assembled(wb__flux_reader *r, const char *type, const void *options,
                                     inner_layers *p)
{
    wb_layer *l = wb__layer_type_named(type)->assemble(
        options, p->n, p->named ? (const char *const *)p->names : NULL, p->layers);
    if (!l && !r->f.status)
        r->f.status =
            wb__fail(wb_error_code() == WB_ERROR_MEMORY ? WB_ERROR_MEMORY : WB_ERROR_FORMAT,
                     "%s: \"%s\": %s", r->f.map->path, r->path, wb_error());
    return l;
}

typedef struct { size_t size; wb__connection connection; } flux_read_join_options;

/* Returns the connection of a layer.  NULL with r->f.status set: failed.  NULL with r->reason set:
 * the connection is unknown. */
static wb__connection flux_read_connection(wb__flux_reader *r, const wb__jl *v)
{
    wb__jl f = wb__jl_field(&r->f, v, "connection");
    char type[2 * WB__JL_NAME];
    wb__connection known = wb__flux_connection(r, &f);
    if (known || r->f.status) return known;
    wb__jl_type_text(&r->f, &f, type, sizeof type);
    wb__flux_reason(r, "its connection is %s; name one by wb_name_connection", type);
    return NULL;
}

bool wb__flux_contains(const wb__jl *v)
{
    return wb__jl_flux(v, "Chain") || wb__jl_flux(v, "Parallel") || wb__jl_flux(v, "Maxout") ||
           wb__jl_flux(v, "PairwiseFusion");
}

/* Returns a layer with a list of layers.  NULL with r->f.status set: failed.  NULL with r->reason
 * set: the layer is an unknown part. */
static wb_layer *flux_read_container(wb__flux_reader *r, const wb__jl *v)
{
    const bool chain = wb__jl_flux(v, "Chain"), joins = !chain && !wb__jl_flux(v, "Maxout");
    inner_layers p;
    wb__jl list = chain ? wb__jl_item(&r->f, v, 0) : wb__jl_field(&r->f, v, "layers");
    flux_read_join_options o = {sizeof o, joins ? flux_read_connection(r, v) : NULL};
    wb_layer *l = NULL;
    if (joins && !o.connection) return NULL;
    if (flux_read_layers(r, &list, chain, &p))
        l = p.n     ? flux_read_assembled(r, wb__jl_last(v), joins ? &o : NULL, &p)
            : chain ? flux_read_placeholder(r)
                    : wb__flux_reason(r, "it has no layers");
    flux_read_free_layers(&p);
    if (joins && o.connection == wb__connection_by_name("vcat")) r->channels = 0;
    return l;
}

static wb_layer *flux_read_skip(wb__flux_reader *r, const wb__jl *v)
{
    size_t back;
    wb__jl inner = wb__jl_field(&r->f, v, "layers");
    wb__connection connection = flux_read_connection(r, v);
    if (!connection || !wb__flux_enter(r, "layers", &back)) return NULL;
    wb_layer *l = wb__flux_layer(r, &inner);
    wb__flux_leave(r, back);
    return l ? flux_read_made(r, wb_SkipConnection(l, connection)) : NULL;
}

static wb_layer *flux_read_function_layer(wb__flux_reader *r, const wb__jl *v)
{
    wb_function f = wb__flux_function(v);
    if (!strcmp(wb__jl_last(v), "flatten")) return r->channels = 0, flux_read_made(r, wb_Flatten());
    return f ? flux_read_made(r, wb_layer_from_function(f)) : NULL;
}

static wb_layer *flux_read_struct(wb__flux_reader *r, const wb__jl *v)
{
    if (wb__flux_contains(v)) return flux_read_container(r, v);
    if (wb__jl_flux(v, "SkipConnection")) return flux_read_skip(r, v);
    wb__jl f = wb__flux_unbroadcast(r, v);
    return f.kind == WB__JL_FUNCTION ? flux_read_function_layer(r, &f) : wb__flux_plain(r, v);
}

static bool flux_read_is_mutable(const wb__jl *v)
{
    static const char *const types[] = {"BatchNorm", "InstanceNorm", "GroupNorm", "Dropout",
                                        "AlphaDropout"};
    for (size_t i = 0; i < WB__COUNT(types); i++)
        if (wb__jl_flux(v, types[i])) return true;
    return false;
}

/* Returns a value as a layer.  Several references to one mutable struct give one layer. */
wb_layer *wb__flux_layer(wb__flux_reader *r, const wb__jl *v)
{
    r->reason = NULL;
    if (r->f.status) return NULL;
    bool one = v->shared && flux_read_is_mutable(v);
    void **seen = one ? wb__pointer_map_at(&r->layers, v->at) : NULL;
    if (one && !seen) return r->f.status = WB_ERROR_MEMORY, NULL;
    if (seen && *seen) return *seen;
    if (v->shared && !wb__bson_spend(&r->f, v->items.bytes)) return NULL;
    wb_layer *l = v->kind == WB__JL_STRUCT     ? flux_read_struct(r, v)
                  : v->kind == WB__JL_FUNCTION ? flux_read_function_layer(r, v)
                                               : NULL;
    if (!l && !r->f.status) l = wb__flux_unknown(r, v);
    if (!l && !r->f.status) r->f.status = wb__error_or(WB_ERROR_MEMORY);
    if (seen && l && (seen = wb__pointer_map_at(&r->layers, v->at))) *seen = l;
    return l;
}

/* Returns the model of a file that wb_save wrote without .structs, with the structure of the
 * model. */
static wb_layer *flux_read_by_structure(const wb__mapping *m, const char *key)
{
    wb__table values = {0};
    if (wb__flux_table(m, key, &values)) return NULL;
    wb_layer *l = wb__model_from(m->path, wb__table_note(&values, "weber"), &values, false);
    wb__table_free(&values);
    return l;
}

/* Writes the layers inside a value to `list`, as values for .key.  Returns the text of `list`, such
 * as `; it holds layers: .key = "nets.0"`, or "" if there are none. */
static const char *layers_in(wb__flux_reader *r, const char *name, const wb__jl *v, wb__text *list)
{
    int n = 0;
    wb__jl_fields w;
    const bool has = v->kind == WB__JL_STRUCT || v->kind == WB__JL_DICT ||
                     v->kind == WB__JL_TUPLE || v->kind == WB__JL_LIST;
    if (!has) return "";
    for (wb__jl_fields_of(&r->f, v, &w); wb__jl_fields_next(&r->f, &w);)
        if (wb__jl_layer(&w.value) && n++ < MOST_NAMED)
            wb__text_add(list, n == 1 ? "; it holds layers: .key = \"%s.%s\"" : ", \"%s.%s\"",
                         name, w.name);
    if (n > MOST_NAMED) wb__text_add(list, ", ...");
    return list->text ? list->text : "";
}

static wb_layer *flux_read_fail_no_layer(wb__flux_reader *r, const char *name, const wb__jl *v)
{
    char type[2 * WB__JL_NAME];
    wb__text list = {0};
    wb__jl_type_text(&r->f, v, type, sizeof type);
    if (*layers_in(r, name, v, &list)) {
        wb__bson_fail(&r->f, NULL, "\"%s\" is a %s%s", name, type, list.text);
        wb__free(list.text);
        return NULL;
    }
    const bool array = v->kind == WB__JL_ARRAY;
    wb__bson_fail(&r->f, NULL, "\"%s\" is a%s %s, %s", name, array ? "n" : "", type,
                  array ? "values without layers: wb_load_tensors reads arrays, and wb_load_state "
                          "puts them into a model that the program makes"
                        : "values without layers: make the model and use wb_load_state");
    return NULL;
}

static wb_layer *flux_read_variable(wb__flux_reader *r, const char *name, const wb__jl *v)
{
    bool layer = v->kind == WB__JL_FUNCTION || v->kind == WB__JL_CLOSURE || v->kind == WB__JL_GPU ||
        (v->kind == WB__JL_STRUCT && !wb__jl_named_tuple(v) && strcmp(wb__jl_last(v), "Params"));
    if (r->f.status) return NULL;
    if (!layer) return flux_read_fail_no_layer(r, name, v);
    wb_layer *l = wb__flux_layer(r, v);
    if (!l || r->f.status) return NULL;
    if (!r->n_unknown) return l;
    if (r->n_unknown > MOST_LISTED)
        wb__text_add(&r->unknown, "\n  and %d more", r->n_unknown - MOST_LISTED);
    if (r->unknown.failed) return r->f.status = WB_ERROR_MEMORY, NULL;
    bool one = r->n_unknown == 1;
    wb__text list = {0};
    const char *inner = wb__jl_layer(v) ? "" : layers_in(r, name, v, &list);
    r->f.status = wb__fail(WB_ERROR_FORMAT, "%s: %d part%s of \"%s\" %s unknown here; .substitute "
                           "can give layers:%s%s", r->f.map->path, r->n_unknown, one ? "" : "s",
                           name, one ? "is" : "are", r->unknown.text ? r->unknown.text : "", inner);
    wb__free(list.text);
    return NULL;
}

wb_layer *wb__flux_load(const wb__mapping *m, const wb_load_options *given)
{
    wb_load_options o;
    char name[WB__JL_NAME] = "";
    if (!wb__read_options("load", wb_load_options, &o, given, NULL)) return NULL;
    wb__flux_reader *r = wb__alloc_zero(1, sizeof *r);
    if (!r) return NULL;
    r->o = &o;
    r->variable = name;
    wb_layer *l = NULL;
    wb__bson text = {0};
    if (!wb__bson_open(&r->f, m)) {
        text = wb__bson_get(&r->f, r->f.root, "weber");
        wb__jl v = wb__jl_variable(&r->f, o.key, name, sizeof name);
        bool state = v.kind == WB__JL_DICT || v.kind == WB__JL_TUPLE || wb__jl_named_tuple(&v);
        /* `text` is the structure of a whole variable, so a part is read without it. */
        state &= wb__bson_get(&r->f, r->f.root, name).kind != WB__BSON_ABSENT;
        if (r->f.status) text.kind = WB__BSON_ABSENT;
        else if (text.kind != WB__BSON_STRING || !state)
            text.kind = WB__BSON_ABSENT, l = flux_read_variable(r, name, &v);
    }
    wb__bson_close(&r->f);
    wb__pointer_map_free(&r->layers);
    wb__pointer_map_free(&r->arrays);
    wb__free(r->unknown.text);
    if (r->f.status) l = NULL;
    wb__free(r);
    return text.kind == WB__BSON_STRING ? flux_read_by_structure(m, o.key) : l;
}
