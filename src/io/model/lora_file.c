/* Saves and loads low-rank adapters: wb_save_lora, wb_load_lora.  The file has the factors of each
 * LoRA, "PATH.a" and "PATH.b", and the other parameters that are trained, by their paths; a tensor
 * with several paths once, by the first.  Its note "weber_lora" is JSON:
 *
 *   {"version": 1, "layers": {"layers.0": {"rank": 8, "alpha": 16.0, "dropout": 0.0}, ...},
 *    "ties": {"layers.1.a": "layers.0.a", ...}} */
#include "io/formats.h"
#include "io/json.h"
#include "io/model/model_file.h"
#include "io/model/ties.h"
#include "nn/layer.h"

#include "weber/adapt.h"

#include <string.h>

enum { LORA_FILE_VERSION = 1 };
static const char lora_file_note_name[] = "weber_lora";

/* A file while it is made. */
typedef struct {
    void *model;
    wb__saving list;
    wb__json_out layers;
    wb__ties ties;
} saving;

/* Writes rank, alpha and dropout of the LoRA whose path is the first n bytes of `path`. */
static void lora_file_put_numbers(wb__json_out *out, const wb_layer *l, const char *path, int n)
{
    int64_t rank;
    double alpha, dropout;
    char *key = wb__printf("%.*s", n, path);
    if (!key) {
        out->status = WB_ERROR_MEMORY;
        return;
    }
    wb__lora_numbers(l, &rank, &alpha, &dropout);
    wb__json_put_key(out, key);
    wb__json_open(out, '{');
    wb__json_put_key(out, "rank");
    wb__json_put_integer(out, rank);
    wb__json_put_key(out, "alpha");
    wb__json_put_real(out, alpha);
    wb__json_put_key(out, "dropout");
    wb__json_put_real(out, dropout);
    wb__json_close(out, '}');
    wb__free(key);
}

/* Adds a tensor if it is a factor of a LoRA, frozen or not, or is trained. */
static int lora_file_add_leaf(const wb__leaf *leaf, void *ctx)
{
    saving *s = ctx;
    const char *dot = strrchr(leaf->path, '.'), *name = dot ? dot + 1 : leaf->path;
    const bool a = !strcmp(name, "a");
    wb__branch *of = NULL;
    if (a || !strcmp(name, "b")) wb__child_at("save_lora", s->model, leaf->path, &of);
    const bool factor = of && wb__is_lora(of);
    bool is_first;
    if (!factor && !leaf->trainable) return 0;
    if (factor && a)
        lora_file_put_numbers(&s->layers, (const wb_layer *)of, leaf->path,
                              (int)(name - leaf->path) - (dot != NULL));
    int status = s->layers.status;
    if (!status) status = wb__ties_add(&s->ties, leaf, &is_first);
    return status || !is_first ? status : wb__saving_add(&s->list, "", leaf->path, leaf->x);
}

/* Returns the note, which the caller frees.  NULL with the error set. */
static char *lora_file_note_of(saving *s)
{
    char *layers = wb__json_take(&s->layers), *ties = wb__ties_take(&s->ties), *note = NULL;
    if (layers && !*layers)
        wb__fail(WB_ERROR_ARGUMENT, "save_lora: the model has no LoRA: wb_add_lora makes a model "
                 "that has");
    else if (layers && ties)
        note = wb__printf("{\"version\":%d,\"layers\":{%s},\"ties\":{%s}}", LORA_FILE_VERSION,
                          layers, ties);
    wb__free(layers);
    wb__free(ties);
    return note;
}

static int lora_file_save(const char *path, void *model)
{
    saving s = {.model = model};
    int status = wb__evaluate_pending();
    if (!status) status = wb__walk("save_lora", model, NULL, 0, lora_file_add_leaf, &s);
    if (status) s.layers.status = status;
    char *note = lora_file_note_of(&s);
    if (!status && !note) status = wb__error_or(WB_ERROR_MEMORY);
    if (!status)
        status = wb__saving_write(&s.list, path, 2,
            (wb__note[]){{"format", "weber"}, {(char *)(uintptr_t)lora_file_note_name, note}});
    wb__saving_free(&s.list);
    wb__free(note);
    return status;
}

int wb_save_lora(const char *path, void *model)
{
    WB__PUBLIC(wb_save_lora, wb_error_code());
    if (!wb__is_model("save_lora", model)) return wb__error_or(WB_ERROR_ARGUMENT);
    if (!path) return wb__fail(WB_ERROR_ARGUMENT, "save_lora: no path");
    if (wb__format_named(path) != WB__FORMAT_SAFETENSORS)
        return wb__fail(WB_ERROR_ARGUMENT, "save_lora: %s: adapters go into a .safetensors file",
                        path);
    return lora_file_save(path, model);
}

typedef struct {
    const char *path;
    wb__table file;
    wb__json *root;
    int n_layers;                       /* how many layers of the file were found in the model */
    wb__pointer_map inside;             /* the layers inside the new adapters */
    wb__pointer_map trained;            /* tensors of the model that the file has by their paths */
} loading;

/* Sets *rank to the rank of a layer, and `number` to alpha and dropout.  False, with the error set,
 * if they are wrong. */
static bool lora_file_read_numbers(const loading *t, const char *layer, const wb__json *at,
                                   int64_t *rank, double *number)
{
    static const char *const keys[2] = {"alpha", "dropout"};
    const wb__json *r = wb__json_get(at, "rank");
    bool good = wb__json_is(r, WB__JSON_INTEGER);
    *rank = wb__json_integer(r);
    const wb__json *ties = wb__json_get(t->root, "ties");
    char *name = wb__printf("%s%sa", layer, *layer ? "." : "");
    const char *first = name ? wb__json_text(wb__json_get(ties, name)) : NULL;
    const wb__entry *a = name ? wb__table_find(&t->file, first ? first : name) : NULL;
    good &= a && a->ndim == 2 && a->dims[0] == *rank;
    wb__free(name);
    for (int i = 0; i < 2; i++) {
        const wb__json *v = wb__json_get(at, keys[i]);
        good &= wb__json_is(v, WB__JSON_REAL) || wb__json_is(v, WB__JSON_INTEGER);
        number[i] = wb__json_is(v, WB__JSON_REAL) ? v->is.real : (double)wb__json_integer(v);
    }
    if (good) return true;
    return !wb__fail(WB_ERROR_FORMAT, "%s: the rank, alpha or dropout of \"%.200s\" is wrong, or "
                     "not that of its tensors", t->path, layer);
}

static void *lora_file_adapt(void *branch, const char *path, void *ctx)
{
    loading *t = ctx;
    const wb__json *at = wb__json_get(wb__json_get(t->root, "layers"), path);
    int64_t rank;
    double number[2];
    if (!at || !wb__is(branch, &wb__layer_class)) return branch;
    if (wb__pointer_map_get(&t->inside, branch) >= 0) return branch;
    if (!lora_file_read_numbers(t, path, at, &rank, number)) return NULL;
    wb_layer *made = wb__lora_empty(branch, rank, number[0], number[1]);
    if (!made)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: does not fit the model: \"%.200s\": %s", t->path,
                             path, wb_error());
    t->n_layers++;
    return wb__pointer_map_put(&t->inside, branch, 0) ? made : NULL;
}

/* Ties tensors as they are tied in the file, and checks that each layer and tensor of the file is
 * in the model, with the same shape and dtype.  False with the error set. */
static bool tie_and_compare(loading *t, void *model)
{
    const wb__json *layers = wb__json_get(t->root, "layers"), *at = NULL;
    if (t->n_layers != wb__json_members(layers)) WB__JSON_EACH_MEMBER(layers, at, i) {
        const char *key = wb__json_key(at);
        if (!wb_layer_at(model, key) || !wb__is_lora(wb_layer_at(model, key)))
            return !wb__fail(WB_ERROR_FORMAT, "%s: does not fit the model: it has no layer "
                             "\"%.200s\"", t->path, key);
    }
    if (wb__ties_make(t->path, model, wb__json_get(t->root, "ties"))) return false;
    for (int i = 0; i < t->file.n; i++) {
        const wb__entry *e = &t->file.entries[i];
        const wb__child *child = wb__child_at("load_lora", model, e->name, NULL);
        const wb_tensor *x = child ? child->object : NULL;
        bool same = x && !wb_is_none(x) && wb__is(x, &wb__tensor_class) &&
                    x->op == WB__OP_variable && e->dtype == (wb_dtype)x->dtype &&
                    e->ndim == x->ndim && !memcmp(e->dims, x->dims, (size_t)x->ndim * 8);
        if (!same)
            return !wb__fail(WB_ERROR_FORMAT, "%s: does not fit the model: \"%.200s\" is %s in the "
                             "file, and %s in the model", t->path, e->name, wb__entry_describe(e),
                             x && wb__is(x, &wb__tensor_class) ? wb_describe(x) : "not there");
        if (!wb__pointer_map_put(&t->trained, x, 0)) return false;
    }
    return true;
}

static int lora_file_freeze_others(const wb__leaf *leaf, void *ctx)
{
    const loading *t = ctx;
    if (leaf->x->op == WB__OP_variable && wb__pointer_map_get(&t->trained, leaf->x) < 0)
        leaf->x->flags |= WB__FROZEN;
    return 0;
}

/* Copies the values of the file to the model, which was checked, and freezes other tensors. */
static bool lora_file_load_values(loading *t, void *model)
{
    for (int i = 0; i < t->file.n; i++) {
        const wb__entry *e = &t->file.entries[i];
        wb_tensor *x = wb__child_at("load_lora", model, e->name, NULL)->object;
        void *block;
        const void *values = wb__entry_values(e, &block);
        const int status = values || !e->bytes ? wb__overwrite(x, values, (size_t)e->bytes)
                                               : WB_ERROR_MEMORY;
        wb__free(block);
        if (status) return false;
    }
    return !wb__walk("load_lora", model, NULL, WB__DISTINCT | WB__NAMELESS, lora_file_freeze_others,
                     t);
}

static void *lora_file_load(loading *t, void *model)
{
    const char *text = wb__table_note(&t->file, lora_file_note_name), *reason = NULL;
    if (!text)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: has no adapters, which wb_save_lora writes",
                             t->path);
    t->root = wb__json_read(text, &reason);
    if (!t->root)
        return wb_error_code() == WB_ERROR_MEMORY
                   ? NULL : wb__fail_null(WB_ERROR_FORMAT, "%s: the description of the adapters: "
                                          "%s", t->path, reason);
    const wb__json *version = wb__json_get(t->root, "version");
    if (!wb__json_is(version, WB__JSON_INTEGER) ||
        !wb__json_is(wb__json_get(t->root, "layers"), WB__JSON_OBJECT))
        return wb__fail_null(WB_ERROR_FORMAT, "%s: the description of the adapters lacks "
                             "\"version\" or \"layers\"", t->path);
    if (wb__json_integer(version) != LORA_FILE_VERSION)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: the adapters are of version %lld; %d is known",
                             t->path, (long long)wb__json_integer(version), LORA_FILE_VERSION);
    void *made = wb__fmap_replacing(model, lora_file_adapt, t);
    return made && tie_and_compare(t, made) && lora_file_load_values(t, made) ? made : NULL;
}

void *wb_object_load_lora(const char *path, void *model)
{
    WB__PUBLIC(wb_object_load_lora, NULL);
    loading t = {.path = path};
    if (!wb__is_model("load_lora", model)) return NULL;
    if (!path) return wb__fail_null(WB_ERROR_ARGUMENT, "load_lora: no path");
    if (wb__table_load(path, NULL, true, &t.file)) return NULL;
    void *made = lora_file_load(&t, model);
    wb__table_free(&t.file);
    wb__free(t.root);
    wb__pointer_map_free(&t.inside);
    wb__pointer_map_free(&t.trained);
    return made;
}
