/* The tensors of a model hub's folder, in one safetensors file or in several that an index lists,
 * and the parameters that get their values. */
#include "io/pretrained/pretrained.h"

#include "base/os.h"
#include "io/model/load_state.h"
#include "io/safetensors/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most lines and bytes of an error's list. */
enum { WEIGHTS_LINES_MOST = 50, WEIGHTS_LIST_MOST = 7000 };
enum { WEIGHTS_NAME_MOST = 160 }; /* bytes; more than a parameter's name with a prefix has */
#define ONE_FILE "model.safetensors"
#define INDEX "model.safetensors.index.json"

void wb__hub_weights_free(wb__hub_weights *w)
{
    for (int i = 0; i < w->n_files; i++) wb__table_free(&w->files[i]);
    wb__free(w->files);
    wb__free(w->entries);
    wb__free(w->used);
    *w = (wb__hub_weights){0};
}

static int weights_add_file(const char *folder, const char *name, wb__hub_weights *w, int *capacity)
{
    if (!wb__reserve(&w->files, capacity, w->n_files + 1, sizeof *w->files)) return WB_ERROR_MEMORY;
    char *path = wb__printf("%s/%s", folder, name);
    const int status = path ? wb__st_load(path, true, &w->files[w->n_files]) : WB_ERROR_MEMORY;
    w->n_files += !status;
    wb__free(path);
    return status;
}

/* Adds the files of the index to *w.  Checks that each tensor is in the file that the index names
 * for it, and in no other.  Returns 0 or an error code. */
static int weights_read_index(const char *folder, wb__hub_weights *w)
{
    enum { FILES_MOST = 1000 };
    wb__json *root = wb__hub_json(folder, INDEX);
    const wb__json *map = wb__json_get(root, "weight_map"), *v;
    const char **names = wb__alloc_zero(FILES_MOST, sizeof *names);
    int capacity = 0, status = root && names ? 0 : wb__error_or(WB_ERROR_MEMORY);
    int64_t n = 0;
    if (!status) WB__JSON_EACH_MEMBER(map, v, i) {
        const char *file = wb__json_text(v);
        int k = 0;
        while (file && k < w->n_files && strcmp(names[k], file)) k++;
        if (!wb__hub_is_plain(file) || k == FILES_MOST)
            status = wb__fail(WB_ERROR_FORMAT, "%s/" INDEX ": \"%.200s\" is in \"%.200s\"; at most "
                              "%d files in this folder are read", folder, wb__json_key(v),
                              file ? file : "", FILES_MOST);
        else if (k == w->n_files) {
            names[k] = file;
            status = weights_add_file(folder, file, w, &capacity);
        }
        if (!status && !wb__table_find(&w->files[k], wb__json_key(v)))
            status = wb__fail(WB_ERROR_FORMAT, "%s/%s: has no tensor \"%.200s\", which " INDEX
                              " has in it", folder, file, wb__json_key(v));
        if (status) break;
        n = i + 1;
    }
    for (int i = 0; i < w->n_files; i++) n -= w->files[i].n;
    if (!status && (n || !w->n_files))
        status = wb__fail(WB_ERROR_FORMAT, "%s/" INDEX ": its \"weight_map\" lacks tensors of the "
                          "files that it names, or has none", folder);
    wb__free(names);
    wb__free(root);
    return status;
}

static int weights_by_name(const void *a, const void *b)
{
    return strcmp((*(const wb__entry *const *)a)->name, (*(const wb__entry *const *)b)->name);
}

int wb__hub_weights_read(const char *folder, wb__hub_weights *w)
{
    int capacity = 0, status;
    int64_t n = 0;
    *w = (wb__hub_weights){0};
    char *one = wb__printf("%s/" ONE_FILE, folder), *index = wb__printf("%s/" INDEX, folder);
    if (!one || !index) status = WB_ERROR_MEMORY;
    else if (wb__os_is_there(one)) status = weights_add_file(folder, ONE_FILE, w, &capacity);
    else if (wb__os_is_there(index)) status = weights_read_index(folder, w);
    else
        status = wb__fail(WB_ERROR_FILE, "%s: has no " ONE_FILE " and no " INDEX ", which have the "
                          "values of a model; other files of values are not read", folder);
    wb__free(one);
    wb__free(index);
    for (int i = 0; i < w->n_files; i++) n += w->files[i].n;
    if (status) return status;
    w->entries = wb__alloc((size_t)(n + 1) * sizeof *w->entries);
    w->used = wb__alloc_zero((size_t)n + 1, sizeof *w->used);
    if (!w->entries || !w->used) return WB_ERROR_MEMORY;
    for (int i = 0; i < w->n_files; i++)
        for (int k = 0; k < w->files[i].n; k++) w->entries[w->n++] = &w->files[i].entries[k];
    if (w->n) qsort(w->entries, (size_t)w->n, sizeof *w->entries, weights_by_name);
    return 0;
}

static int weights_find(const wb__hub_weights *w, const char *name)
{
    const wb__entry key = {.name = (char *)(uintptr_t)name}, *of = &key;
    const wb__entry **at =
        w->n ? bsearch(&of, w->entries, (size_t)w->n, sizeof *w->entries, weights_by_name) : NULL;
    return at ? (int)(at - w->entries) : -1;
}

int wb__hub_find(const wb__hub_weights *w, const char *prefix, const char *name)
{
    char full[WEIGHTS_NAME_MOST];
    const int at = weights_find(w, name);
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return at >= 0 ? at : weights_find(w, full);
}

/* ---- parameters ------------------------------------------------------------------------------ */

void wb__hub_parameters_free(wb__hub_parameters *p)
{
    for (int i = 0; i < p->n; i++) {
        wb__free(p->rows[i].file);
        wb__free(p->rows[i].path);
    }
    wb__free(p->rows);
    *p = (wb__hub_parameters){0};
}

/* Returns `name` with the number in place of its "%d"; the caller frees it. */
static char *weights_name_of_block(const char *name, int64_t block)
{
    const char *d = strstr(name, "%d");
    if (!d) return wb__strdup(name);
    return wb__printf("%.*s%lld%s", (int)(d - name), name, (long long)block, d + 2);
}

/* Adds the tensor FILE.`tensor` of a row, with the path PATH.`parameter`. */
static bool weights_add_parameter(wb__hub_parameters *out, const wb__hub_row *row, int64_t block,
                                  const char *tensor, const char *parameter, wb__hub_parameter p)
{
    if (!wb__reserve(&out->rows, &out->capacity, out->n + 1, sizeof *out->rows)) return false;
    const bool in_block = strstr(row->file, "%d");
    char *file = weights_name_of_block(row->file, block);
    static const char *const projections[] = {".q_proj", ".k_proj", ".v_proj"};
    p.file = file ? wb__printf("%s.%s", file, tensor) : NULL;
    p.path = in_block ? wb__printf("layers.block%lld.layers.%s%s.%s", (long long)block, row->layer,
                                   p.parts > 1 ? projections[p.part] : "", parameter)
                      : wb__printf("layers.%s.%s", row->layer, parameter);
    wb__free(file);
    out->rows[out->n++] = p;
    return p.file && p.path;
}

static bool weights_add_row(wb__hub_parameters *out, const wb__hub_config *c,
                            const wb__hub_row *row, int64_t block)
{
    const int64_t o = c->sizes[row->out], i = c->sizes[row->in];
    const bool joined = row->kind == WB__HUB_JOINED, turned = joined || row->kind == WB__HUB_TURNED;
    const int parts = joined ? 3 : 1;
    if (row->kind == WB__HUB_NORM)
        return weights_add_parameter(out, row, block, "weight", "scale",
                                     (wb__hub_parameter){.ndim = 1, .dims = {o}, .parts = 1}) &&
               weights_add_parameter(out, row, block, "bias", "bias",
                                     (wb__hub_parameter){.ndim = 1, .dims = {o}, .parts = 1});
    for (int part = 0; part < parts; part++) {
        const wb__hub_parameter weight = {.ndim = 2, .turned = turned, .part = part, .parts = parts,
                                          .dims = {turned ? i : o, turned ? parts * o : i}};
        const wb__hub_parameter bias = {.ndim = 1, .dims = {parts * o}, .part = part,
                                        .parts = parts};
        if (!weights_add_parameter(out, row, block, "weight", "weight", weight)) return false;
        if (row->kind != WB__HUB_TABLE && row->kind != WB__HUB_HEAD &&
            !weights_add_parameter(out, row, block, "bias", "bias", bias))
            return false;
    }
    return true;
}

/* Whether the model of c has the layer of the row. */
static bool weights_has_row(const wb__hub_config *c, const wb__hub_row *row)
{
    if (!strcmp(row->layer, "pooler")) return c->pooler;
    if (!strcmp(row->layer, "head")) return c->head && c->untied;
    return true;
}

static bool weights_list_parameters(const wb__hub_config *c, wb__hub_parameters *out)
{
    const wb__hub_row *row = c->family->rows;
    for (; row->file; row++) {
        const int64_t n = strstr(row->file, "%d") ? c->blocks : 1;
        for (int64_t b = 0; b < n && weights_has_row(c, row); b++)
            if (!weights_add_row(out, c, row, b)) return false;
    }
    return true;
}

typedef struct { wb__text list; int n_wrong, n_listed; } findings;

static void weights_report(findings *f, const char *format, ...) WB__PRINTF(2, 3);
static void weights_report(findings *f, const char *format, ...)
{
    va_list list;
    f->n_wrong++;
    if (f->list.length > WEIGHTS_LIST_MOST || f->n_listed == WEIGHTS_LINES_MOST) return;
    f->n_listed++;
    va_start(list, format);
    wb__text_add(&f->list, "\n  ");
    wb__text_list(&f->list, format, list);
    va_end(list);
}

/* Returns the index of a parameter's tensor; -1 if there is none.  Files of older models have the
 * names "gamma" and "beta" for the tensors of a norm. */
static int weights_index_of(const wb__hub_weights *w, const wb__hub_config *c,
                            const wb__hub_parameter *p)
{
    const int at = wb__hub_find(w, c->family->prefix, p->file);
    const char *dot = strrchr(p->file, '.'), *norm = strstr(p->file, "LayerNorm.");
    if (at >= 0 || !norm) return at;
    char old[WEIGHTS_NAME_MOST];
    snprintf(old, sizeof old, "%.*s.%s", (int)(dot - p->file), p->file,
             strcmp(dot, ".weight") ? "beta" : "gamma");
    return wb__hub_find(w, c->family->prefix, old);
}

static void weights_shape_text(const wb__hub_parameter *p, char *text, size_t bytes)
{
    if (p->ndim == 1) snprintf(text, bytes, "[%lld]", (long long)p->dims[0]);
    else snprintf(text, bytes, "[%lld,%lld]", (long long)p->dims[0], (long long)p->dims[1]);
}

static void weights_match_one(findings *f, const wb__hub_config *c, wb__hub_weights *w,
                              wb__hub_parameter *p, wb_dtype *dtype)
{
    char shape[48];
    const int at = weights_index_of(w, c, p);
    weights_shape_text(p, shape, sizeof shape);
    if (at < 0) {
        if (!p->part) weights_report(f, "\"%.200s\", %s, is missing", p->file, shape);
        return;
    }
    const wb__entry *e = w->entries[at];
    w->used[at] = true;
    p->entry = e;
    if (!*dtype && e->dtype && wb__dtype_float(e->dtype)) *dtype = e->dtype;
    const bool same = e->ndim == p->ndim && e->dims[0] == p->dims[0] &&
                      (p->ndim == 1 || e->dims[1] == p->dims[1]);
    if (p->part || (same && *dtype && e->dtype == *dtype)) return;
    weights_report(f, "\"%.200s\" is %s; the model has %s %s", e->name, wb__entry_describe(e),
                   shape, *dtype ? wb_dtype_name(*dtype) : "of a floating dtype");
}

/* Whether a tensor that is no parameter is known: a constant of the computation, or part of a head
 * or pooler that is not built. */
static bool weights_is_known(const wb__hub_config *c, const char *name)
{
    const char *prefix = c->family->prefix;
    const char *bare = wb__begins(name, prefix) ? name + strlen(prefix) : name;
    for (const char *const *buffer = c->family->buffers; *buffer; buffer++) {
        const char *d = strstr(*buffer, "%d"), *rest = bare;
        const size_t before = d ? (size_t)(d - *buffer) : strlen(*buffer);
        if (strncmp(bare, *buffer, before)) continue;
        rest += before + (d ? strspn(bare + before, "0123456789") : 0);
        if (!strcmp(rest, d ? d + 2 : "")) return true;
    }
    return (c->left_out && wb__begins(name, c->left_out)) ||
           wb__begins(bare, "pooler.");
}

/* Whether the tensor is the head of a GPT-2: either the model is built without the head, or the
 * tensor equals the table of the tokens, which is used in its place. */
static bool weights_is_tied_head(const wb__hub_config *c, const wb__entry *e,
                                 const wb__entry *tokens)
{
    if (strcmp(e->name, "lm_head.weight") || !c->family->causal) return false;
    return !c->head || (!c->untied && tokens && e->dtype == tokens->dtype &&
                        e->bytes == tokens->bytes &&
                        !memcmp(e->data, tokens->data, (size_t)e->bytes));
}

static void weights_report_others(findings *f, const wb__hub_config *c, const wb__hub_weights *w,
                                  const wb__entry *tokens)
{
    for (int i = 0; i < w->n; i++) {
        const wb__entry *e = w->entries[i];
        if (i && !strcmp(e->name, w->entries[i - 1]->name))
            weights_report(f, "\"%.200s\" is in two files", e->name);
        else if (!w->used[i] && !weights_is_known(c, e->name) &&
                 !weights_is_tied_head(c, e, tokens))
            weights_report(f, "\"%.200s\", %s, is not in the model", e->name,
                           wb__entry_describe(e));
    }
}

int wb__hub_match(const char *folder, const wb__hub_config *c, wb__hub_weights *w,
                  wb__hub_parameters *out, wb_dtype *dtype)
{
    findings f = {0};
    *out = (wb__hub_parameters){0};
    *dtype = WB_DTYPE_DEFAULT;
    if (c->blocks > w->n)
        return wb__fail(WB_ERROR_FORMAT, "%s: config.json has %lld blocks, and there are %d "
                        "tensors", folder, (long long)c->blocks, w->n);
    if (!weights_list_parameters(c, out)) return wb__error_or(WB_ERROR_MEMORY);
    for (int i = 0; i < out->n; i++) weights_match_one(&f, c, w, &out->rows[i], dtype);
    weights_report_others(&f, c, w, out->rows[0].entry);
    int status = f.list.failed ? wb__fail(WB_ERROR_MEMORY, NULL) : 0;
    char more[40] = "";
    if (f.n_wrong > f.n_listed)
        snprintf(more, sizeof more, "\n  and %d more", f.n_wrong - f.n_listed);
    if (!status && f.n_wrong)
        status = wb__fail(WB_ERROR_FORMAT, "%s: the tensors do not fit config.json:%s%s", folder,
                          f.list.text, more);
    wb__free(f.list.text);
    return status;
}
