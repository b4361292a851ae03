/* Models in safetensors files: wb_save, wb_load, wb_load_state. */
#include "io/model_file.h"

#include "io/structure.h"

#include <string.h>

/* ---- saving ---------------------------------------------------------------------------------- */

typedef struct {
    const char *prefix;
    wb__saving *list;
} gathering;

/* Values go from their device to the file in parts: a model need not fit beside itself. */
typedef struct { wb__writer *w; size_t each; } putting;

static int put_part(const void *part, int64_t n, void *ctx)
{
    const putting *p = ctx;
    return wb__writer_put(p->w, part, n * (int64_t)p->each);
}

static int put_tensor(wb__writer *w, const void *data)
{
    wb_tensor *x = (wb_tensor *)(uintptr_t)data;
    putting p = {w, wb__dtype_size((wb_dtype)x->dtype)};
    return wb__read_in_parts(x, put_part, &p);
}

int wb__saving_write(wb__saving *l, const char *path, int n_notes, const wb__note *notes)
{
    return wb__st_save_by(put_tensor, path, l->n, l->tensors, n_notes, notes);
}

int wb__saving_add(wb__saving *l, const char *prefix, const char *name, wb_tensor *x)
{
    if (l->n == l->room) {
        int room = l->room ? 2 * l->room : 32;
        wb__st_out *more = wb__realloc(l->tensors, (size_t)room * sizeof *more);
        if (!more) return WB_ERROR_MEMORY;
        l->tensors = more;
        l->room = room;
    }
    int status = wb_eval_all(1, &x);
    if (status) return status;
    char *full = wb__printf("%s%s", prefix, name);
    if (!full) return WB_ERROR_MEMORY;
    l->tensors[l->n++] = (wb__st_out){full, (wb_dtype)x->dtype, x->ndim, x->dims,
                                      x->size * (int64_t)wb__dtype_size((wb_dtype)x->dtype), x};
    return 0;
}

void wb__saving_free(wb__saving *l)
{
    for (int i = 0; i < l->n; i++) wb__free(l->tensors[i].name);
    wb__free(l->tensors);
    *l = (wb__saving){0};
}

static int gather(const wb__leaf *leaf, void *ctx)
{
    gathering *g = ctx;
    return wb__saving_add(g->list, g->prefix, leaf->path, leaf->x);
}

int wb__saving_add_model(wb__saving *l, const char *prefix, void *model)
{
    int status = wb__evaluate_pending();
    gathering g = {prefix, l};
    return status ? status : wb__walk("save", model, NULL, WB__DISTINCT, gather, &g);
}

static int no_object(void) { return wb_error_code() ? (int)wb_error_code() : WB_ERROR_ARGUMENT; }

int wb_save_with(const char *path, void *model, const wb_save_options *given)
{
    wb_save_options o;
    wb__read_options(&o, sizeof o, given);
    if (!model) return no_object();
    if (!path) return wb__fail(WB_ERROR_ARGUMENT, "save: no path");
    if (!wb__is_branch(model))
        return wb__fail(WB_ERROR_ARGUMENT, "save: a %s; layers and trees are saved",
                        ((wb__object *)model)->class->name);
    if (wb__is(model, &wb__layer_class)) model = wb__layer_unnamed(model, NULL);
    wb__saving list = {0};
    char *text = wb__structure_text(model);
    int status = text ? wb__saving_add_model(&list, "", model) : no_object();
    if (!status)
        status = wb__saving_write(&list, path, 2,
                                  (wb__note[]){{"format", "weber"}, {"weber", text}});
    wb__saving_free(&list);
    wb__free(text);
    return status;
}

/* ---- values into a model --------------------------------------------------------------------- */

typedef struct {
    wb__table *file;
    const char *path, *prefix;
    wb__seen found;                     /* of a tensor: what it is to be given */
    wb__text wrong;
    int n_wrong;
} matching;

static wb__entry *entry_of(const matching *m, const char *path, bool *failed)
{
    char *name = wb__printf("%s%s", m->prefix, path);
    *failed = !name;
    wb__entry *t = name ? wb__table_find(m->file, name) : NULL;
    wb__free(name);
    return t;
}

static void complain(matching *m, const char *path, const char *what, const char *verb,
                     const char *where)
{
    wb__text_add(&m->wrong, "\n  \"%s\", %s%s%s", path, what, verb, where);
    m->n_wrong++;
}

static const char *describe(const wb__entry *t)
{
    wb_tensor shape = {.dtype = (uint8_t)t->dtype, .ndim = (uint8_t)t->ndim};
    memcpy(shape.dims, t->dims, sizeof t->dims);
    return wb_describe(&shape);
}

static int match_leaf(const wb__leaf *leaf, void *ctx)
{
    matching *m = ctx;
    bool failed;
    wb__entry *t = entry_of(m, leaf->path, &failed);
    if (failed) return WB_ERROR_MEMORY;
    if (!t) return 0;
    t->used = true;
    const wb_tensor *x = leaf->x;
    bool shape = t->ndim == x->ndim && !memcmp(t->dims, x->dims, (size_t)x->ndim * sizeof *x->dims);
    void **at = wb__seen_at(&m->found, x);
    if (!at) return WB_ERROR_MEMORY;
    *at = t;                            /* even if it is wrong: then it is not missing */
    if (shape && (wb_dtype)x->dtype == t->dtype && x->op == WB__OP_variable) return 0;
    complain(m, leaf->path, wb_describe(x), " in the model, is in the file ", describe(t));
    *at = WB_NONE;
    return 0;
}

static int find_missing(const wb__leaf *leaf, void *ctx)
{
    matching *m = ctx;
    void **at = wb__seen_at(&m->found, leaf->x);
    if (!at) return WB_ERROR_MEMORY;
    if (!*at) complain(m, leaf->path, wb_describe(leaf->x), ", is not in the ", "file");
    return 0;
}

static void find_unexpected(matching *m)
{
    size_t n = strlen(m->prefix);
    for (int i = 0; i < m->file->n; i++) {
        const wb__entry *t = &m->file->entries[i];
        if (t->used || strncmp(t->name, m->prefix, n)) continue;
        complain(m, t->name, describe(t), ", is not in the ", "model");
    }
}

/* Places are tied, so a tensor may have several names: any of them will do. */
static int match(matching *m, void *model, bool lenient)
{
    int status = wb__walk("load", model, NULL, 0, match_leaf, m);
    if (status || lenient) return status;
    status = wb__walk("load", model, NULL, WB__DISTINCT, find_missing, m);
    if (status) return status;
    find_unexpected(m);
    if (m->n_wrong)
        status = wb__fail(WB_ERROR_FORMAT, "%s: does not fit the model:%s", m->path,
                          m->wrong.text ? m->wrong.text : "");
    return status;
}

static int pour_leaf(const wb__leaf *leaf, void *ctx)
{
    matching *m = ctx;
    void **at = wb__seen_at(&m->found, leaf->x);
    if (!at) return WB_ERROR_MEMORY;
    if (!*at || wb_is_none(*at)) return 0;
    wb__entry *t = *at;
    return wb__overwrite(leaf->x, t->data, (size_t)t->bytes);
}

static void drop(matching *m)
{
    wb__seen_drop(&m->found);
    wb__free(wb__text_take(&m->wrong));
}

int wb__pour(wb__table *file, const char *path, const char *prefix, void *model, bool lenient,
                bool check_only)
{
    matching m = {.file = file, .path = path, .prefix = prefix};
    int status = match(&m, model, lenient);
    if (!status && !check_only) status = wb__walk("load", model, NULL, WB__DISTINCT, pour_leaf, &m);
    drop(&m);
    return status;
}

int wb_load_state_with(const char *path, void *model, const wb_load_state_options *given)
{
    if (!model) return no_object();
    if (!path) return wb__fail(WB_ERROR_ARGUMENT, "load_state: no path");
    if (!wb__is_branch(model))
        return wb__fail(WB_ERROR_ARGUMENT, "load_state: a %s is no model",
                        ((wb__object *)model)->class->name);
    wb_load_state_options o;
    wb__read_options(&o, sizeof o, given);
    wb__table file;
    int status = wb__st_load(path, true, &file);
    if (status) return status;
    status = wb__pour(&file, path, o.prefix ? o.prefix : "", model, o.lenient, false);
    wb__table_free(&file);
    return status;
}

/* ---- a model from a file alone --------------------------------------------------------------- */

/* A parameter that was saved in another floating dtype than its layer's options say: room of that
 * dtype. */
static wb_tensor *retype(wb_tensor *x, const char *path, void *ctx)
{
    const wb__table *file = ctx;
    const wb__entry *t = wb__table_find(file, path);
    if (!t || t->dtype == (wb_dtype)x->dtype || !wb__dtype_float(t->dtype)) return x;
    return wb_full_of(0, t->dtype, x->ndim, x->dims);
}

static bool retyped(const wb_layer *model, wb__table *file)
{
    matching m = {.file = file, .path = "", .prefix = ""};
    bool differs = wb__walk("load", (void *)(uintptr_t)model, NULL, 0, match_leaf, &m) || m.n_wrong;
    drop(&m);
    for (int i = 0; i < file->n; i++) file->entries[i].used = false;
    return differs;
}

wb_layer *wb_load_with(const char *path, const wb_load_options *given)
{
    wb_load_options o;
    wb__read_options(&o, sizeof o, given);
    if (!path) return wb__fail_null(WB_ERROR_ARGUMENT, "load: no path");
    wb__table file;
    if (wb__st_load(path, true, &file)) return NULL;
    const char *text = wb__table_note(&file, "weber");
    wb_layer *model = NULL;
    int64_t values = 0;
    for (int i = 0; i < file.n; i++) values += file.entries[i].bytes;
    if (text) model = wb__structure_build(path, text, values);
    else
        wb__fail(
            WB_ERROR_FORMAT,
            "%s: describes no model, it has tensors alone: make the model and use wb_load_state",
            path);
    if (model && retyped(model, &file)) model = wb__fmap(model, retype, &file);
    if (model && wb__pour(&file, path, "", model, false, false)) model = NULL;
    wb__table_free(&file);
    return model;
}
