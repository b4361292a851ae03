/* Saves models to BSON files for Flux.  This file writes the document, save_layers.c the layers. */
#include "io/flux/save.h"

#include "io/flux/flux.h"
#include "io/model/structure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLUX_SAVE_DEEPEST = 100, OLDEST = 9, NEWEST = 16, LOADMODEL = 1300 };

wb__julia wb__flux_refuse(wb__flux_saver *s, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    wb__text_add(&s->wrong, "\n  \"%s\": ", wb__path(&s->path));
    wb__text_list(&s->wrong, format, list);
    va_end(list);
    s->n_wrong++;
    return wb__julia_nothing(&s->arena);
}

/* Returns a tensor of the document.  If the tensor occurs several times, "_backrefs" has its array,
 * and each occurrence is a reference to that array. */
static wb__julia flux_save_tensor(wb__flux_saver *s, wb_tensor *x, wb__doc_order order)
{
    wb__doc_arena *r = &s->arena;
    if (!wb__julia_dtype((wb_dtype)x->dtype))
        return wb__flux_refuse(s,
                               "%s: Flux's files have no %s: convert it with wb_to, or use "
                               ".safetensors",
                               wb_describe(x), wb_dtype_name((wb_dtype)x->dtype));
    wb__julia v = wb__julia_array(r, x, order);
    void **uses = wb__pointer_map_at(&s->uses, x);
    void **at = wb__pointer_map_at(&s->references[order], x);
    if (!uses || !at) r->failed = true;
    if (!uses || !at || !*uses) return v;
    if (!*at) {
        if (!s->shared) s->shared = wb__doc_list(r);
        wb__doc_push(r, s->shared, v.value);
        *at = (void *)(uintptr_t)wb__doc_count(s->shared);
    }
    v.value = wb__julia_reference(r, (int64_t)(uintptr_t)*at - 1);
    return v;
}

wb__julia wb__flux_tensor(wb__flux_saver *s, const char *name, wb_tensor *x, wb__doc_order order)
{
    const size_t length = s->path.length;
    wb__path_push(&s->path, name);
    wb__julia v = flux_save_tensor(s, x, order);
    wb__path_cut(&s->path, length);
    return v;
}

static int flux_save_count_uses(const wb__leaf *leaf, void *ctx)
{
    wb__flux_saver *s = ctx;
    wb_tensor *x = leaf->x;
    int status = wb_eval_array(1, &x);
    void **first = status ? NULL : wb__pointer_map_at(&s->references[WB__DOC_ROWS], x);
    if (!first) return status ? status : WB_ERROR_MEMORY;
    if (*first) {
        void **uses = wb__pointer_map_at(&s->uses, x);
        if (!uses) return WB_ERROR_MEMORY;
        *uses = x;
    }
    *first = x;
    return 0;
}

bool wb__flux_numbered(int n, const wb__child *children)
{
    for (int i = 0; i < n; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        if (strcmp(children[i].name, number)) return false;
    }
    return true;
}

static wb__julia flux_save_no_memory(wb__flux_saver *s)
{
    s->arena.failed = true;
    return (wb__julia){NULL, NULL};
}

wb__julia wb__flux_children(wb__flux_saver *s, int n, const wb__child *children)
{
    size_t count = (size_t)(n ? n : 1);
    wb__julia *values = wb__doc_memory(&s->arena, count * sizeof *values);
    const char **names = wb__doc_memory(&s->arena, count * sizeof *names);
    if (!values || !names) return flux_save_no_memory(s);
    for (int i = 0; i < n; i++) {
        names[i] = children[i].name;
        values[i] = wb__flux_value(s, children[i].name, children[i].object);
        if (!wb__is_utf8(names[i])) wb__flux_refuse(s, "a name of its parts is not UTF-8");
    }
    return wb__flux_numbered(n, children) ? wb__julia_tuple(&s->arena, n, values)
                                          : wb__julia_named_tuple(&s->arena, n, names, values);
}

static wb__julia flux_save_value_of(wb__flux_saver *s, void *object)
{
    if (wb_is_none(object)) return wb__julia_nothing(&s->arena);
    if (wb__is(object, &wb__tensor_class)) return flux_save_tensor(s, object, WB__DOC_ROWS);
    if (wb__is(object, &wb__layer_class))
        return wb__flux_save_layer(s, wb__layer_unnamed(object, NULL));
    const wb_tree *t = object;
    return t->is_opaque ? wb__julia_tuple(&s->arena, 0, NULL)
                        : wb__flux_children(s, t->node.n, t->node.children);
}

wb__julia wb__flux_value(wb__flux_saver *s, const char *name, void *object)
{
    if (s->depth == FLUX_SAVE_DEEPEST)
        return wb__flux_refuse(s, "parts are nested deeper than %d", FLUX_SAVE_DEEPEST);
    const size_t length = s->path.length;
    wb__path_push(&s->path, name);
    s->depth++;
    wb__julia v = flux_save_value_of(s, object);
    s->depth--;
    wb__path_cut(&s->path, length);
    return v;
}

/* Returns the version in a text such as "0.16.10"; 0: unknown.  Without a patch number 0.12 is
 * 0.12.9, 0.16 is 0.16.10, and other versions have patch 99. */
static int flux_save_version_of(const char *text)
{
    char *end;
    if (!wb__begins(text, "0.") || text[2] < '0' || text[2] > '9') return 0;
    long minor = strtol(text + 2, &end, 10), patch = minor == 16 ? 10 : minor == 12 ? 9 : 99;
    if (*end == '.' && end[1] >= '0' && end[1] <= '9') patch = strtol(end + 1, &end, 10);
    return *end || minor < OLDEST || minor > NEWEST || patch > 99 ? 0 : (int)(100 * minor + patch);
}

static int flux_save_check(const char *path, const wb_save_options *o, wb__flux_saver *s)
{
    const char *key = o->key ? o->key : "model";
    s->structs = o->structs;
    s->version_text = o->flux ? o->flux : "0.16";
    s->version = flux_save_version_of(s->version_text);
    if (!s->version)
        return wb__fail(WB_ERROR_ARGUMENT, "save: .flux is \"%s\"; known are \"0.%d\" to \"0.%d\", "
                        "also with a patch: \"0.16.10\"", s->version_text, OLDEST, NEWEST);
    if (!s->structs && s->version < LOADMODEL)
        return wb__fail(WB_ERROR_ARGUMENT, "save: Flux %s has no loadmodel! yet, which came with "
                        "0.13: save the layers themselves, with .structs = true", s->version_text);
    if (!*key || !wb__is_utf8(key) || !strcmp(key, "_backrefs") ||
        (!strcmp(key, "weber") && !o->structs))
        return wb__fail(WB_ERROR_ARGUMENT, "save: \"%s\" is no key for %s", key, path);
    return 0;
}

/* Returns the document of a file with the model under `key`.  NULL: out of memory. */
static wb__doc *flux_save_document(wb__flux_saver *s, void *model, const char *key,
                                   const char *structure)
{
    wb__doc_arena *r = &s->arena;
    wb__doc *d = wb__doc_document(r);
    wb__doc_put(r, d, key, flux_save_value_of(s, model).value);
    if (structure) wb__doc_put(r, d, "weber", wb__doc_text(r, structure));
    if (s->shared) wb__doc_put(r, d, "_backrefs", s->shared);
    return r->failed ? NULL : d;
}

/* Writes a document to a file.  Returns 0 or an error code. */
static int flux_save_write(const char *path, const wb__doc *d)
{
    if (wb__doc_size(d) > WB__DOC_MAX)
        return wb__fail(WB_ERROR_ARGUMENT, "save: %s would have %lld bytes; BSON has room for 2 "
                        "GiB less one: save to .safetensors", path, (long long)wb__doc_size(d));
    wb__writer *w = wb__writer_open(path);
    if (!w) return wb_error_code();
    int status = wb__doc_write(d, w);
    if (!status) return wb__writer_close(w);
    wb__writer_drop(w);
    return status;
}

static int flux_save(wb__flux_saver *s, const char *path, void *model, const char *key,
                     const char *structure)
{
    int status = wb__evaluate_pending();
    if (!status) status = wb__walk("save", model, NULL, 0, flux_save_count_uses, s);
    wb__pointer_map_free(&s->references[WB__DOC_ROWS]);
    if (status) return status;
    const wb__doc *d = flux_save_document(s, model, key, structure);
    if (s->wrong.failed || s->path.failed || (!d && !s->n_wrong))
        return wb__fail(WB_ERROR_MEMORY, NULL);
    if (s->n_wrong)
        return wb__fail(WB_ERROR_ARGUMENT, "save: %s: Flux %s has no such (.safetensors holds any "
                        "model):%s", path, s->version_text, s->wrong.text);
    return flux_save_write(path, d);
}

int wb__flux_save(const char *path, void *model, const wb_save_options *o)
{
    wb__flux_saver s = {0};
    int status = flux_save_check(path, o, &s);
    if (status) return status;
    if (wb__is(model, &wb__layer_class)) model = wb__layer_unnamed(model, NULL);
    char *structure = o->structs ? NULL : wb__structure_text(model);
    if (!o->structs && !structure) status = wb_error_code();
    wb_scope *scope = status ? NULL : wb_scope_open();      /* owns the computed tensors */
    if (!status && !scope) status = wb_error_code();
    if (!status) status = flux_save(&s, path, model, o->key ? o->key : "model", structure);
    wb_scope_close(scope);
    wb__free(structure);
    wb__free(s.path.text);
    wb__free(s.wrong.text);
    wb__pointer_map_free(&s.uses);
    for (int i = 0; i < WB__DOC_ORDERS; i++) wb__pointer_map_free(&s.references[i]);
    wb__doc_drop(&s.arena);
    return status;
}
