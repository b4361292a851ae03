/* Loads values from a table into a model.  All tensors are matched before any is changed.  The
 * error lists the first 50 tensors that do not fit. */
#include "io/model/load_state.h"

#include "io/model/names.h"
#include "io/model/transpose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most lines and bytes of an error's list. */
enum { LOAD_STATE_LINES_MOST = 50, LOAD_STATE_LIST_MOST = 7000 };

/* A tensor of the file.  The rows of the name map find the tensor by `name`, its name in the file
 * without .prefix.  If .rename applies, `name` is instead the name that the new path has in the
 * naming that is being tried. */
typedef struct { char *name; wb__entry *entry; bool used; } load_state_source;

/* An attempt to match the tensors of the file and of the model by one naming. */
typedef struct {
    const wb__state_load *o;            /* the options of wb_load_state */
    wb__name_map names;
    int n;
    load_state_source *sources;         /* sorted by name */
    wb__pointer_map found;              /* the row that loads each tensor; WB_NONE: no row fits */
    wb__pointer_map convolutions;       /* the wb__flip of each kernel's convolution */
    int lacking;                        /* number of the model's tensors that get no value */
    int absent;                         /* number of names that the file does not have */
    wb__text list;                      /* the lines of the error, one for each misfit */
    int n_wrong, n_listed;              /* misfits; misfits in `list` */
} load_state_matching;

static void load_state_drop(load_state_matching *m)
{
    for (int i = 0; i < m->n; i++) wb__free(m->sources[i].name);
    wb__free(m->sources);
    wb__name_map_free(&m->names);
    wb__pointer_map_free(&m->found);
    wb__pointer_map_free(&m->convolutions);
    wb__free(m->list.text);
    *m = (load_state_matching){0};
}

/* Returns the path in the model that the first matching row of .rename gives a name of the file;
 * the caller frees it.  NULL: no row matches (*fits is then false), or out of memory. */
static char *load_state_renamed(const wb__state_load *o, const char *name, bool *fits)
{
    *fits = true;
    for (int i = 0; i < o->n_rename; i++) {
        const char *file = o->rename[i].file, *model = o->rename[i].model;
        size_t n = strlen(file), m = strlen(model);
        bool star = n && m && file[n - 1] == '*' && model[m - 1] == '*';
        if (star && !strncmp(file, name, n - 1))
            return wb__printf("%.*s%s", (int)(m - 1), model, name + n - 1);
        if (!strcmp(file, name)) return wb__strdup(model);
    }
    *fits = false;
    return NULL;
}

typedef enum { WEBER, TORCH, TORCH_NUMBERED } naming;

static char *load_state_source_name(const load_state_matching *m, void *model, naming how,
                                    const char *name)
{
    bool fits;
    char *path = load_state_renamed(m->o, name, &fits);
    if (!fits) return wb__strdup(name);
    if (!path || how == WEBER) return path;
    char *words = wb__torch_name(model, path, how == TORCH_NUMBERED);
    wb__free(path);
    return words;
}

static int load_state_by_name(const void *a, const void *b)
{
    return strcmp(((const load_state_source *)a)->name, ((const load_state_source *)b)->name);
}

static int load_state_name_sources(load_state_matching *m, wb__table *file, void *model, naming how)
{
    const char *prefix = m->o->prefix ? m->o->prefix : "";
    const size_t skip = strlen(prefix);
    m->sources = wb__alloc_zero((size_t)WB__MAX(file->n, 1), sizeof *m->sources);
    if (!m->sources) return WB_ERROR_MEMORY;
    for (int i = 0; i < file->n; i++) {
        wb__entry *e = &file->entries[i];
        if (strncmp(e->name, prefix, skip)) continue;
        char *name = load_state_source_name(m, model, how, e->name + skip);
        if (!name) return WB_ERROR_MEMORY;
        m->sources[m->n++] = (load_state_source){.name = name, .entry = e};
    }
    if (m->n) qsort(m->sources, (size_t)m->n, sizeof *m->sources, load_state_by_name);
    return 0;
}

static load_state_source *load_state_source_of(const load_state_matching *m,
                                               const wb__name_row *row)
{
    load_state_source key = {.name = row->name};
    return m->n ? bsearch(&key, m->sources, (size_t)m->n, sizeof key, load_state_by_name) : NULL;
}

/* ---- the list of misfits --------------------------------------------------------------------- */

static void load_state_report(load_state_matching *m, const char *format, ...) WB__PRINTF(2, 3);
static void load_state_report(load_state_matching *m, const char *format, ...)
{
    va_list list;
    m->n_wrong++;
    if (m->list.length > LOAD_STATE_LIST_MOST || m->n_listed == LOAD_STATE_LINES_MOST) return;
    m->n_listed++;
    va_start(list, format);
    wb__text_add(&m->list, "\n  ");
    wb__text_list(&m->list, format, list);
    va_end(list);
}

/* The name of a tensor in the file, in parentheses, if it is not the path in the model; else "". */
typedef struct { char text[216]; } file_name;
static const char *file_name_of(const wb__name_row *l, file_name *out)
{
    out->text[0] = 0;
    if (strcmp(l->name, l->path)) snprintf(out->text, sizeof out->text, " (\"%.200s\")", l->name);
    return out->text;
}

static void load_state_report_misfit(load_state_matching *m, const wb__name_row *l,
                                     const wb__entry *e)
{
    file_name second;
    char part[40] = "";
    if (l->x->op != WB__OP_variable) {
        load_state_report(m, "\"%.200s\"%s, %s, is a constant in the model: wb_variable makes what "
                          "can be loaded into", l->path, file_name_of(l, &second),
                          wb_describe(l->x));
        return;
    }
    if (l->parts > 1) snprintf(part, sizeof part, "one of %d parts of ", l->parts);
    load_state_report(m, "\"%.200s\"%s, %s in the model, is in the file %s%s", l->path,
                      file_name_of(l, &second), wb_describe(l->x), part, wb__entry_describe(e));
}

static void load_state_report_missing(load_state_matching *m, const wb__name_row *l)
{
    file_name second;
    load_state_report(m, "\"%.200s\"%s, %s, is not in the file", l->path, file_name_of(l, &second),
                      wb_describe(l->x));
}

/* Whether the source is PyTorch's counter of batches beside running statistics that are loaded.  A
 * model from an ONNX file has the statistics and no counter. */
static bool load_state_is_counter(const load_state_matching *m, const load_state_source *s)
{
    static const char count[] = "num_batches_tracked";
    const size_t n = strlen(s->name), tail = sizeof count - 1;
    if (n < tail || strcmp(s->name + n - tail, count)) return false;
    wb__name_row beside = {.name = wb__printf("%.*srunning_mean", (int)(n - tail), s->name)};
    const load_state_source *mean = beside.name ? load_state_source_of(m, &beside) : NULL;
    wb__free(beside.name);
    return mean && mean->used;
}

/* Whether a layer of the model has the source as a constant, such as the positions of an encoder,
 * which are part of PyTorch's state. */
static bool load_state_is_constant(void *object, const char *name, const wb__entry *e)
{
    const wb_layer *l = wb__is(object, &wb__layer_class) ? object : NULL;
    if (l && l->type->has_constant && e->data && !e->transposed)
        return l->type->has_constant(l, name, e->dtype, (size_t)e->bytes, e->data);
    const wb__branch *node = wb__is_branch(object) ? object : NULL;
    for (int i = 0; node && i < node->n; i++) {
        const size_t n = strlen(node->children[i].name);
        if (!strncmp(name, node->children[i].name, n) && name[n] == '.')
            return load_state_is_constant(node->children[i].object, name + n + 1, e);
    }
    return false;
}

static void load_state_report_unexpected(load_state_matching *m, void *model)
{
    for (int i = 0; i < m->n; i++) {
        const load_state_source *s = &m->sources[i];
        const bool before = i && !strcmp(s->name, s[-1].name);
        const bool after = i + 1 < m->n && !strcmp(s->name, s[1].name);
        if (before)
            load_state_report(m, "\"%.200s\" and \"%.200s\" are the same in the model: \"%.200s\"",
                              s[-1].entry->name, s->entry->name, s->name);
        else if (!s->used && !after && !load_state_is_counter(m, s) &&
                 !load_state_is_constant(model, s->name, s->entry))
            load_state_report(m, "\"%.200s\", %s, is not in the model", s->entry->name,
                              wb__entry_describe(s->entry));
    }
}

static bool load_state_same_shape(const wb__name_row *l, const wb__entry *e)
{
    const wb_tensor *x = l->x;
    if (e->ndim != x->ndim || e->dtype != (wb_dtype)x->dtype) return false;
    if (x->op != WB__OP_variable || (!e->data && x->size)) return false;
    for (int d = 0; d < x->ndim; d++)
        if (e->dims[d] != x->dims[d] * (d ? 1 : l->parts)) return false;
    return true;
}

/* Whether the entry's last l->zeros elements, which the model cannot store, are 0 or -0. */
static bool load_state_rest_is_zero(const wb__name_row *l, const wb__entry *e)
{
    const int64_t each = (int64_t)wb__dtype_size(e->dtype), rows = l->x->dims[0];
    const uint8_t *at = e->data;
    for (int64_t i = (rows - l->zeros) * each; i < rows * each; i++)
        if (at[i] & (i % each == each - 1 ? 0x7f : 0xff)) return false;
    return true;
}

typedef enum { ABSENT, UNFIT, GOOD } load_state;

static load_state load_state_check_row(load_state_matching *m, const wb__name_row *l)
{
    load_state_source *s = load_state_source_of(m, l);
    if (!s) return ABSENT;
    s->used = true;
    if (l->kind == WB__NAME_COUNT) return GOOD;
    if (!load_state_same_shape(l, s->entry)) {
        load_state_report_misfit(m, l, s->entry);
        return UNFIT;
    }
    if (!l->zeros || load_state_rest_is_zero(l, s->entry)) return GOOD;
    load_state_report(m, "\"%.200s\" (\"%.200s\"): its last %lld numbers are not zero, and %s",
                      l->path, l->name, (long long)l->zeros,
                      "there is no place for them: make the GRU with .hidden_bias = true");
    return UNFIT;
}

/* Sets m->found for each tensor to the row that loads it.  A tied tensor has several rows.  The
 * first row that is in the file and fits is used. */
static int load_state_match_rows(load_state_matching *m)
{
    for (int i = 0; i < m->names.n; i++) {
        wb__name_row *l = &m->names.rows[i];
        if (l->kind == WB__NAME_ADDED) continue;
        load_state s = load_state_check_row(m, l);
        if (l->kind == WB__NAME_COUNT) continue;
        bool added = i + 1 < m->names.n && l[1].kind == WB__NAME_ADDED;
        load_state second = added ? load_state_check_row(m, l + 1) : GOOD;
        if (s == GOOD && second == ABSENT) load_state_report_missing(m, l + 1);
        void **at = wb__pointer_map_at(&m->found, l->x);
        if (!at) return WB_ERROR_MEMORY;
        if (*at && !wb_is_none(*at)) continue;
        if (s == GOOD && second == GOOD) *at = l;
        else if (s != ABSENT || second == UNFIT) *at = WB_NONE;
    }
    return 0;
}

static int load_state_find_missing(load_state_matching *m)
{
    wb__pointer_map counted = {0};
    for (int i = 0; i < m->names.n; i++) {
        const wb__name_row *l = &m->names.rows[i];
        if (!l->x || l->kind == WB__NAME_ADDED) continue;
        void **at = wb__pointer_map_at(&m->found, l->x);
        void **once = wb__pointer_map_at(&counted, l->x);
        if (!at || !once) return wb__pointer_map_free(&counted), WB_ERROR_MEMORY;
        if (*once) continue;
        *once = l->x;
        if (!*at) load_state_report_missing(m, l);
        m->lacking += !*at || wb_is_none(*at);
        m->absent += !*at;
    }
    wb__pointer_map_free(&counted);
    return 0;
}

/* Matches the tensors of the file with those of the model by the naming `how`. */
static int load_state_match(load_state_matching *m, wb__table *file, void *model, naming how)
{
    int status = how == WEBER ? wb__name_map_weber(model, &m->names)
                              : wb__name_map_torch(model, how == TORCH_NUMBERED, &m->names);
    if (!status) status = load_state_name_sources(m, file, model, how);
    if (!status) status = load_state_match_rows(m);
    return status ? status : load_state_find_missing(m);
}

/* ---- choosing the names ---------------------------------------------------------------------- */

static bool load_state_noted(const wb__table *file, const char *key, const char *value)
{
    const char *found = wb__table_note(file, key);
    return found && (!value || !strcmp(found, value));
}

/* Writes the namings that the file may use to `out`, the likeliest first.  Returns their number. */
static int load_state_candidates(const wb__table *file, wb_names names, naming *out)
{
    int n = 0;
    if (names == WB_NAMES_AUTO && load_state_noted(file, "weber", NULL))
        names = load_state_noted(file, "weber_names", "torch") ? WB_NAMES_TORCH : WB_NAMES_WEBER;
    /* PyTorch's names may be the same as Weber's, but PyTorch does not flip kernels.  So in a file
     * of PyTorch the namings of PyTorch come first. */
    const bool torch = load_state_noted(file, "format", "pt");
    if (names == WB_NAMES_WEBER || (names == WB_NAMES_AUTO && !torch)) out[n++] = WEBER;
    if (names != WB_NAMES_WEBER) out[n++] = TORCH, out[n++] = TORCH_NUMBERED;
    if (names == WB_NAMES_AUTO && torch) out[n++] = WEBER;
    return n;
}

static int load_state_match_best(load_state_matching *best, wb__table *file, void *model)
{
    naming hows[4];
    const wb__state_load *o = best->o;
    int n = load_state_candidates(file, o->names, hows),
        status = load_state_match(best, file, model, hows[0]);
    for (int i = 1; !status && best->lacking && i < n; i++) {
        load_state_matching other = {.o = o};
        status = load_state_match(&other, file, model, hows[i]);
        /* If two namings leave equally many tensors without a value, the naming with fewer names
         * absent from the file wins.  So the error for a file of another dtype lists dtypes. */
        const bool named = other.lacking == best->lacking && other.absent < best->absent;
        if (!status && (named || other.lacking < best->lacking)) {
            load_state_drop(best);
            *best = other;
        } else {
            load_state_drop(&other);
        }
    }
    return status;
}

const char *wb__entry_describe(const wb__entry *e)
{
    const size_t bytes = WB__THREAD_TEXT_BYTES;
    char *text = wb__thread_text(WB__TEXT_ENTRY);
    size_t n = 1;
    if (e->axes > WB_MAX_DIMS) {
        snprintf(text, bytes, "%s with %d axes, of which Weber has up to %d", e->type, e->axes,
                 WB_MAX_DIMS);
        return text;
    }
    text[0] = '[';
    for (int d = 0; d < e->ndim; d++)
        n += (size_t)snprintf(text + n, bytes - n, d ? ",%lld" : "%lld", (long long)e->dims[d]);
    snprintf(text + n, bytes - n, "] %s", e->dtype ? wb_dtype_name(e->dtype) : e->type);
    return text;
}

static int64_t load_state_elements(const wb__entry *e)
{
    int64_t n = 1;
    for (int d = 0; d < e->ndim; d++) n *= e->dims[d];
    return n;
}

const void *wb__entry_values(const wb__entry *e, void **block)
{
    const uint8_t *from = e->data;
    if (e->transposed && from && e->bytes) {
        if (!(*block = wb__alloc_aligned((size_t)e->bytes))) return NULL;
        wb__to_rows(*block, from, wb__dtype_size(e->dtype), e->ndim, e->dims);
        from = *block;
    } else {
        *block = NULL;
    }
    int64_t n = e->dtype == WB_BOOL ? load_state_elements(e) : 0, i = 0;
    while (i < n && from[i] < 2) i++;
    if (i == n) return from;
    uint8_t *to = *block ? *block : (*block = wb__alloc_aligned((size_t)n));
    for (i = 0; to && i < n; i++) to[i] = from[i] != 0;
    return to;
}

/* Writes each kernel of `from`, flipped along all its axes, the axes 2 and up, to `to`. */
static void load_state_flip_kernels(uint8_t *to, const uint8_t *from, const wb_tensor *x)
{
    const size_t each = wb__dtype_size((wb_dtype)x->dtype);
    int64_t plane = 1;
    for (int i = 2; i < x->ndim; i++) plane *= x->dims[i];
    for (int64_t first = 0; first < x->size; first += plane)
        for (int64_t i = 0; i < plane; i++)
            memcpy(to + (size_t)(first + i) * each,
                   from + (size_t)(first + plane - 1 - i) * each, each);
}

/* Sets `to` to a + b, rounded once. */
static void load_state_add(void *to, const uint8_t *a, const uint8_t *b, wb_dtype t, int64_t n)
{
    const size_t each = wb__dtype_size(t);
    for (int64_t i = 0; i < n; i++) {
        double x, y;
        char element[8];
        wb__convert(&x, WB_F64, memcpy(element, a + (size_t)i * each, each), t, 1);
        wb__convert(&y, WB_F64, memcpy(element, b + (size_t)i * each, each), t, 1);
        x += y;
        wb__convert(element, t, &x, WB_F64, 1);
        memcpy((char *)to + (size_t)i * each, element, each);
    }
}

static int load_state_find_kernels(load_state_matching *m, void *object)
{
    int status = 0;
    if (!wb__is_branch(object)) return 0;
    wb__branch *node = object;
    for (int i = 0; !status &&
         i < node->n; i++) status = load_state_find_kernels(m, node->children[i].object);
    const wb_layer *l = node->kind->layer ? object : NULL;
    const bool *flip = l ? wb__layer_option(l->type, l->options, "flip") : NULL;
    if (status || !flip) return status;
    void **at = wb__pointer_map_at(&m->convolutions, wb__layer_child(l, 0));
    if (!at) return WB_ERROR_MEMORY;
    *at = (void *)(uintptr_t)(*flip ? WB__FLIP_YES : WB__FLIP_NO);
    return 0;
}

/* Sets *flipped to whether the kernels must be flipped, so that the model's convolution computes
 * the same as the convolution of the file.  Returns 0 or an error code. */
static int load_state_must_flip(load_state_matching *m, const wb__name_row *l, const wb__entry *e,
                                bool *flipped)
{
    void **at = e->flip ? wb__pointer_map_at(&m->convolutions, l->x) : NULL;
    *flipped = at && *at ? (wb__flip)(uintptr_t)*at != e->flip : l->kind == WB__NAME_FLIPPED;
    return e->flip && !at ? WB_ERROR_MEMORY : 0;
}

static size_t load_state_bytes_of(const wb_tensor *x)
{
    return (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype);
}

static bool is_added(const load_state_matching *m, const wb__name_row *l)
{
    return l + 1 < m->names.rows + m->names.n && l[1].kind == WB__NAME_ADDED;
}

/* Returns the values of a row as the model stores them, in the file or in a copy if they must be
 * changed.  *block is that copy, which the caller frees with wb__free; without a copy it is NULL.
 * Returns NULL if memory is short or there are no values. */
static const uint8_t *load_state_values_of(load_state_matching *m, const wb__name_row *l,
                                           void **block)
{
    const wb__entry *e = load_state_source_of(m, l)->entry;
    const wb_tensor *x = l->x;
    const size_t bytes = load_state_bytes_of(x);
    bool flipped;
    *block = NULL;
    if (load_state_must_flip(m, l, e, &flipped)) return NULL;
    const uint8_t *values = wb__entry_values(e, block);
    if (!values) return NULL;
    values += (size_t)l->part * bytes;
    if (!flipped && !is_added(m, l)) return values;
    uint8_t *made = wb__alloc_aligned(WB__MAX(bytes, 1));
    if (made && is_added(m, l))
        load_state_add(made, values, load_state_source_of(m, l + 1)->entry->data,
                       (wb_dtype)x->dtype, x->size);
    else if (made && bytes) load_state_flip_kernels(made, values, x);
    wb__free(*block);
    return *block = made;
}

/* Sets one tensor to its values, directly from the file to the device unless the values need a
 * copy. */
static int load_state_tensor(load_state_matching *m, const wb__name_row *l)
{
    void *block;
    const uint8_t *values = load_state_values_of(m, l, &block);
    if (!values && load_state_bytes_of(l->x)) return WB_ERROR_MEMORY;
    int status = wb__overwrite(l->x, values, load_state_bytes_of(l->x));
    wb__free(block);
    return status;
}

/* Whether the file has values of the right shape and dtype for the row.  PyTorch stores some of
 * Weber's biases as two tensors to be added; the next row has the second, which is checked too. */
static bool source_fits(const load_state_matching *m, const wb__name_row *l)
{
    const load_state_source *s = load_state_source_of(m, l);
    return s && load_state_same_shape(l, s->entry) && (!is_added(m, l) || source_fits(m, l + 1));
}

/* Returns 0 if the file has the same values for all paths of each tied tensor, else an error
 * code. */
static int load_state_check_ties(load_state_matching *m, void *model)
{
    int status = load_state_find_kernels(m, model);
    for (int i = 0; !status && i < m->names.n; i++) {
        const wb__name_row *l = &m->names.rows[i];
        if (!l->x || l->kind == WB__NAME_ADDED || !load_state_bytes_of(l->x)) continue;
        void **at = wb__pointer_map_at(&m->found, l->x), *blocks[2];
        if (!at) return WB_ERROR_MEMORY;
        const wb__name_row *first = *at;
        if (!first || wb_is_none(first) || first == l || !source_fits(m, l)) continue;
        const uint8_t *a = load_state_values_of(m, first, &blocks[0]),
                      *b = load_state_values_of(m, l, &blocks[1]);
        if (!a || !b) status = WB_ERROR_MEMORY;
        else if (memcmp(a, b, load_state_bytes_of(l->x)))
            load_state_report(m, "\"%.200s\" and \"%.200s\" are one tensor in the model and have "
                              "different values in the file (\"%.200s\" and \"%.200s\")",
                              first->path, l->path, first->name, l->name);
        wb__free(blocks[0]);
        wb__free(blocks[1]);
    }
    return status;
}

/* Sets all tensors of the model that a row loads to their values. */
static int load_state_all(load_state_matching *m)
{
    int status = 0;
    for (int i = 0; i < m->names.n; i++) {
        const wb__name_row *l = &m->names.rows[i];
        void **at = l->x ? wb__pointer_map_at(&m->found, l->x) : NULL;
        if (l->x && !at) return WB_ERROR_MEMORY;
        status = at && *at == l ? load_state_tensor(m, l) : 0;
        if (status) return status;
    }
    return 0;
}

int wb__load_values(wb__table *file, const wb__state_load *o, void *model)
{
    load_state_matching m = {.o = o};
    int status = load_state_match_best(&m, file, model);
    if (!status) status = load_state_check_ties(&m, model);
    if (!status) load_state_report_unexpected(&m, model);
    if (!status && m.list.failed) status = WB_ERROR_MEMORY;
    if (!status && m.n_wrong) {
        char more[40] = "";
        if (m.n_wrong > m.n_listed)
            snprintf(more, sizeof more, "\n  and %d more", m.n_wrong - m.n_listed);
        if (!o->lenient)
            status = wb__fail(WB_ERROR_FORMAT, "%s: does not fit the model:%s%s", o->path,
                              m.list.text, more);
        else
            wb__log(WB_LOG_INFO, "%s: does not all fit the model:%s%s", o->path, m.list.text, more);
    }
    if (!status && !o->check_only) status = load_state_all(&m);
    load_state_drop(&m);
    return status;
}
