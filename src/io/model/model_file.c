/* Saves and loads models: wb_save, wb_load, wb_load_state. */
#include "io/model/model_file.h"

#include "io/flux/flux.h"
#include "io/formats.h"
#include "io/model/names.h"
#include "io/model/structure.h"
#include "io/onnx/write.h"

#include <string.h>

/* The context of model_file_add_leaf. */
typedef struct {
    const char *prefix;
    wb__saving *list;
} gathering;

/* The context of model_file_put_part.  Values are copied from their device to the file in parts of
 * elements of `each` bytes, so that no second copy of a model is needed. */
typedef struct { wb__writer *w; size_t each; } model_file_putting;

static int model_file_put_part(const void *part, int64_t n, void *ctx)
{
    const model_file_putting *p = ctx;
    return wb__writer_put(p->w, part, n * (int64_t)p->each);
}

static int model_file_write_tensor(wb__writer *w, const void *data)
{
    wb_tensor *x = (wb_tensor *)(uintptr_t)data;
    model_file_putting p = {w, wb__dtype_size((wb_dtype)x->dtype)};
    return wb__read_in_parts(x, model_file_put_part, &p);
}

int wb__saving_write(wb__saving *l, const char *path, int n_notes, const wb__note *notes)
{
    return wb__st_save(model_file_write_tensor, path, l->n, l->tensors, n_notes, notes);
}

int wb__saving_add(wb__saving *l, const char *prefix, const char *name, wb_tensor *x)
{
    if (!wb__reserve(&l->tensors, &l->capacity, l->n + 1, sizeof *l->tensors))
        return WB_ERROR_MEMORY;
    int status = wb_eval_array(1, &x);
    if (status) return status;
    char *full = wb__printf("%s%s", prefix, name);
    if (!full) return WB_ERROR_MEMORY;
    const int64_t bytes = x->size * (int64_t)wb__dtype_size((wb_dtype)x->dtype);
    l->tensors[l->n++] = (wb__st_out){full, (wb_dtype)x->dtype, x->ndim, x->dims, bytes, x, NULL};
    return 0;
}

void wb__saving_free(wb__saving *l)
{
    for (int i = 0; i < l->n; i++) wb__free(l->tensors[i].name);
    wb__free(l->tensors);
    *l = (wb__saving){0};
}

static int model_file_add_leaf(const wb__leaf *leaf, void *ctx)
{
    gathering *g = ctx;
    return wb__saving_add(g->list, g->prefix, leaf->path, leaf->x);
}

int wb__saving_add_model(wb__saving *l, const char *prefix, void *model)
{
    int status = wb__evaluate_pending();
    gathering g = {prefix, l};
    return status ? status : wb__walk("save", model, NULL, WB__DISTINCT, model_file_add_leaf, &g);
}

/* Returns the tensor that is written for a row: l->x, flipped kernels, zeros, or the concatenation
 * of the tensors of l->parts rows.  NULL with the error set. */
static wb_tensor *model_file_tensor_of_row(const wb__name_row *l)
{
    switch (l->kind) {
    case WB__NAME_FLIPPED: {
        wb_tensor *x = l->x;
        for (int a = 2; x && a < l->x->ndim; a++) x = wb_flip(x, a);
        return x;
    }
    case WB__NAME_ADDED: return wb_full_array(0, (wb_dtype)l->x->dtype, l->x->ndim, l->x->dims);
    case WB__NAME_COUNT: return wb_full_array(0, WB_I64, 0, NULL);
    case WB__NAME_COPY: break;
    }
    wb_tensor *parts[3];
    if (l->parts == 1) return l->x;
    for (int i = 0; i < l->parts; i++) parts[i] = l[i].x;
    return wb_concat_array(0, l->parts, parts);
}

/* Adds a model's tensors with PyTorch's names.  The current scope owns the computed tensors. */
static int model_file_add_torch(wb__saving *list, void *model)
{
    wb__name_map names;
    int status = wb__evaluate_pending();
    if (!status) status = wb__name_map_torch(model, false, &names);
    if (status) return status;
    for (int i = 0; !status && i < names.n; i++) {
        const wb__name_row *l = &names.rows[i];
        if (l->other || l->part) continue;
        wb_tensor *x = model_file_tensor_of_row(l);
        status = x ? wb__saving_add(list, "", l->name, x) : (int)wb_error_code();
    }
    wb__name_map_free(&names);
    return status;
}

/* Sets the error that `model` is not a model.  If `path` is an object, the two arguments were
 * swapped, and the message names that.  Returns its code. */
static int model_file_swapped(const char *what, const char *path, const void *model)
{
    if (!model || !wb__is_object(path)) return wb__error_or(WB_ERROR_ARGUMENT);
    return wb__fail(WB_ERROR_ARGUMENT, "%s: the first argument is a %s, not a path: wb_%s(path, "
                    "model, ...)", what, wb__kind(path), what);
}

int wb__saving_write_model(const char *path, void *model, wb__saving *list, bool torch)
{
    char *text = wb__structure_text(model);
    if (!text) return wb_error_code();
    int status = wb__saving_write(list, path, 2 + torch,
                                  (wb__note[]){{"format", torch ? "pt" : "weber"}, {"weber", text},
                                               {"weber_names", "torch"}});
    wb__free(text);
    return status;
}

int wb_save_with(const char *path, void *model, const wb_save_options *given)
{
    WB__PUBLIC(wb_save_with, wb_error_code());
    wb_save_options o;
    wb__given g;
    if (!wb__read_options("save", wb_save_options, &o, given, &g) ||
        !wb__ints_read("save", &g, "batch_axes", -1, o.batch_axes, WB_MAX_DIMS))
        return wb_error_code();
    if (!wb__is_model("save", model)) return model_file_swapped("save", path, model);
    if (!path) return wb__fail(WB_ERROR_ARGUMENT, "save: no path");
    if (wb__is(model, &wb__layer_class)) model = wb__layer_unnamed(model, NULL);
    wb__format format = wb__format_named(path);
    const int take = WB__HAS_MODELS | WB__HAS_CALLS | WB__WRITES_TENSORS;
    char endings[WB__FORMAT_WORDS];
    if (format && !(wb__formats[format].flags & take))
        return wb__fail(WB_ERROR_ARGUMENT, "save: %s: the format %s has no model; it goes into %s",
                        path, wb__format_name(format), wb__format_endings(take, endings));
    const char *only = wb__onnx_option(&o, &g);
    if (format != WB__FORMAT_ONNX && only)
        return wb__fail(WB_ERROR_ARGUMENT, "save: %s: only ONNX has .%s", path, only);
    if (format == WB__FORMAT_BSON) return wb__flux_save(path, model, &o);
    if (o.key || o.flux || o.structs)
        return wb__fail(WB_ERROR_ARGUMENT, "save: %s: only BSON has .%s", path,
                        o.key ? "key" : o.flux ? "flux" : "structs");
    if (format == WB__FORMAT_ONNX) return wb__onnx_save(path, model, &o, &g);
    if ((unsigned)o.names > WB_NAMES_TORCH)
        return wb__fail(WB_ERROR_ARGUMENT, "save: .names is %d", (int)o.names);
    wb_scope *scope = wb_scope_open();      /* owns the computed tensors */
    if (!scope) return wb_error_code();
    wb__saving list = {0};
    bool torch = o.names == WB_NAMES_TORCH;
    int status = torch ? model_file_add_torch(&list, model)
                       : wb__saving_add_model(&list, "", model);
    if (!status)
        status = wb__formats[format].save(path, model, &list, torch);
    wb__saving_free(&list);
    wb_scope_close(scope);
    return status;
}

/* ---- loading values -------------------------------------------------------------------------- */

static bool ends_in_star(const char *name)
{
    const size_t n = strlen(name);
    return n && name[n - 1] == '*';
}

int wb_load_state_with(const char *path, void *model, const wb_load_state_options *given)
{
    WB__PUBLIC(wb_load_state_with, wb_error_code());
    if (!wb__is_model("load_state", model)) return model_file_swapped("load_state", path, model);
    if (!path) return wb__fail(WB_ERROR_ARGUMENT, "load_state: no path");
    wb_load_state_options o;
    if (!wb__read_options("load_state", wb_load_state_options, &o, given, NULL))
        return wb_error_code();
    if (o.n_rename < 0 || (o.rename && !o.n_rename))
        return wb__fail(WB_ERROR_ARGUMENT, "load_state: .n_rename is %d; it is the number of rows "
                        "of .rename", o.n_rename);
    if ((unsigned)o.names > WB_NAMES_TORCH)
        return wb__fail(WB_ERROR_ARGUMENT, "load_state: .names is %d", (int)o.names);
    for (int i = 0; i < o.n_rename; i++)
        if (!o.rename || !o.rename[i].file || !o.rename[i].model)
            return wb__fail(WB_ERROR_ARGUMENT, "load_state: row %d of .rename lacks a name", i);
        else if (ends_in_star(o.rename[i].file) != ends_in_star(o.rename[i].model))
            return wb__fail(WB_ERROR_ARGUMENT, "load_state: row %d of .rename, \"%.200s\" to "
                            "\"%.200s\", has a '*' at the end of one side alone", i,
                            o.rename[i].file, o.rename[i].model);
    if (wb__is(model, &wb__layer_class)) model = wb__layer_unnamed(model, NULL);
    wb__table file;
    int status = wb__table_load(path, o.key, true, &file);
    if (status) return status;
    const wb__state_load how = {.path = path, .prefix = o.prefix, .names = o.names,
                                .lenient = o.lenient, .n_rename = o.n_rename, .rename = o.rename};
    if (file.nameless && (o.n_rename || (o.prefix && *o.prefix)))
        status = wb__fail(WB_ERROR_ARGUMENT, "%s: holds a list of values, which have no names for "
                          ".%s", path, o.n_rename ? "rename" : "prefix");
    if (!status) status = wb__flux_name_params(&file, path, model);
    if (!status) status = wb__load_values(&file, &how, model);
    wb__table_free(&file);
    return status;
}

/* ---- loading a model ------------------------------------------------------------------------- */

/* Returns a new tensor with the dtype of the file's entry, or x itself if `ctx`, a map from tensors
 * to entries of another floating dtype, has none.  wb__fmap calls it for each tensor.  NULL with
 * the error set. */
static wb_tensor *model_file_retype(wb_tensor *x, const char *path, void *ctx)
{
    (void)path;
    void **at = wb__pointer_map_at(ctx, x);
    const wb__entry *e = at ? *at : NULL;
    if (!at) return NULL;
    return e ? wb_full_array(0, e->dtype, x->ndim, x->dims) : x;
}

static void *model_file_retype_all(void *model, const wb__table *file, bool torch)
{
    wb__name_map names;
    wb__pointer_map other = {0};
    bool any = false;
    bool failed = torch ? wb__name_map_torch(model, false, &names)
                        : wb__name_map_weber(model, &names);
    if (failed) return NULL;
    for (int i = 0; !failed && i < names.n; i++) {
        const wb__name_row *l = &names.rows[i];
        wb__entry *e = l->x ? wb__table_find(file, l->name) : NULL;
        if (!e || e->dtype == (wb_dtype)l->x->dtype || !e->dtype || !wb__dtype_float(e->dtype))
            continue;
        void **at = wb__pointer_map_at(&other, l->x);
        if (at) *at = e;
        any = true;
        failed = !at;
    }
    if (failed) model = NULL;
    else if (any) model = wb__fmap(model, model_file_retype, &other);
    wb__pointer_map_free(&other);
    wb__name_map_free(&names);
    return model;
}

void *wb__model_from(const char *path, const char *structure, wb__table *file, bool tree)
{
    const char *names = wb__table_note(file, "weber_names");
    bool torch = names && !strcmp(names, "torch");
    void *model = wb__structure_build(path, structure, wb__table_bytes(file));
    if (model && !wb__is(model, tree ? &wb__tree_class : &wb__layer_class))
        return wb__fail_null(WB_ERROR_FORMAT, "%s: describes a %s, not a %s: wb_load%s reads it",
                             path, wb__kind(model), tree ? "tree" : "layer", tree ? "" : "_tree");
    if (model) model = model_file_retype_all(model, file, torch);
    const wb__state_load how = {.path = path, .names = torch ? WB_NAMES_TORCH : WB_NAMES_WEBER};
    return model && !wb__load_values(file, &how, model) ? model : NULL;
}

static void *model_file_of_tensors(const char *path, wb__table *file, bool tree)
{
    const char *structure = wb__table_note(file, "weber");
    if (structure) return wb__model_from(path, structure, file, tree);
    if (wb__table_note(file, "weber_checkpoint"))
        return wb__fail_null(WB_ERROR_FORMAT, "%s: is a checkpoint, which describes no model: make "
                             "the model and use wb_load_checkpoint, or wb_load_state with .prefix "
                             "= \"model.\"", path);
    if (wb__table_note(file, "weber_lora"))
        return wb__fail_null(WB_ERROR_FORMAT, "%s: has adapters alone: wb_load_lora puts them into "
                             "the model that they adapt", path);
    if (!file->n)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: has no tensors, and describes no model%s", path,
                             tree ? " and no tree" : "");
    if (tree)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: has %d tensor%s, and is no tree that wb_save "
                             "wrote: wb_load_tensors reads %s by name%s%.200s%s", path, file->n,
                             file->n == 1 ? "" : "s", file->n == 1 ? "it" : "them",
                             file->n == 1 ? ", \"" : "", file->n == 1 ? file->entries->name : "",
                             file->n == 1 ? "\"" : "");
    return wb__fail_null(WB_ERROR_FORMAT, "%s: has tensors, and describes no model: wb_load_state "
                         "puts them into a model that the program makes, wb_load_tensors reads "
                         "them, and wb_load_pretrained makes the model of a hub's folder from its "
                         "config.json", path);
}

wb_layer *wb_load_with(const char *path, const wb_load_options *given)
{
    WB__PUBLIC(wb_load_with, NULL);
    wb_load_options o;
    if (!wb__read_options("load", wb_load_options, &o, given, NULL)) return NULL;
    if (!path) return wb__fail_null(WB_ERROR_ARGUMENT, "load: no path");
    if (wb__is_folder(path))
        return wb__fail_null(WB_ERROR_FILE, "%s: is a folder: wb_load_pretrained makes the model "
                             "of a hub's folder", path);
    wb__mapping *m = wb__map(path);
    if (!m) return NULL;
    wb_layer *model = NULL;
    wb__table file = {0};
    const wb__format_row *format = &wb__formats[wb__format_in(m)];
    if (format->load) {
        wb__map_ahead(m, m->data, m->bytes);
        model = format->load(m, &o);
    } else if (!wb__table_of(m, o.key, true, &file)) {
        model = model_file_of_tensors(path, &file, false);
    }
    if (file.mapping) wb__table_free(&file);
    else wb__unmap(m);
    return model;
}

wb_tree *wb_load_tree(const char *path)
{
    WB__PUBLIC(wb_load_tree, NULL);
    if (!path) return wb__fail_null(WB_ERROR_ARGUMENT, "load_tree: no path");
    wb__mapping *m = wb__map(path);
    if (!m) return NULL;
    wb_tree *tree = NULL;
    wb__table file = {0};
    if (!wb__table_of(m, wb__all_variables, true, &file))
        tree = model_file_of_tensors(path, &file, true);
    if (file.mapping) wb__table_free(&file);
    else wb__unmap(m);
    return tree;
}
