/* Checkpoints: one safetensors file with the model's tensors under "model.", those of its average
 * under "average.", the moments and masters under "state.", the variables of the loss scale under
 * "scaling.", and the rest as a JSON note (note.c).  Folders of checkpoints are in keep.c. */
#include "train/checkpoint.h"

#include "base/numbers/philox.h"
#include "base/options.h"
#include "base/text.h"
#include "data/loader.h"
#include "dist/dist.h"
#include "io/formats.h"
#include "io/json.h"
#include "io/model/model_file.h"
#include "optim/optim.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKPOINT_NAME_MOST = 100, SERIAL_MOST = 1000000000 };

#define CHECKPOINT_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

int wb__checkpoint_name(const char *what, const char *name)
{
    size_t n = strlen(name);
    if (n && n <= CHECKPOINT_NAME_MOST && name[0] != '.' && strspn(name, CHECKPOINT_LETTERS) == n)
        return 0;
    return wb__fail(WB_ERROR_ARGUMENT,
                    "%s: \"%.120s\" is no name for a checkpoint: 1 to %d letters, digits and "
                    "_ - . (the last not in front)", what, name, CHECKPOINT_NAME_MOST);
}

/* A moment k of a slot in a divided state.  Files have the whole moment. */
typedef struct { const wb_opt_state *state; int slot, k; } divided;

static int checkpoint_write_part(const void *part, int64_t bytes, void *ctx)
{
    return wb__writer_put(ctx, part, bytes);
}

static int checkpoint_write_divided(wb__writer *w, const void *data)
{
    const divided *m = data;
    return wb__divided_read(m->state, m->slot, m->k, checkpoint_write_part, w);
}

/* Sets the shape and the bytes of the entry *t, a part of a moment, to those of the whole
 * moment. */
static void checkpoint_make_whole(wb__st_out *t, const divided *m)
{
    const wb__slot *slot = &m->state->slots[m->slot];
    t->ndim = slot->ndim;
    t->dims = slot->dims;
    t->bytes = (int64_t)wb__dtype_size(t->dtype);
    for (int i = 0; i < slot->ndim; i++) t->bytes *= slot->dims[i];
    t->data = m;
    t->put = checkpoint_write_divided;
}

/* Adds the moments to the list.  `own` is memory with an element for each moment. */
static int checkpoint_add_moments(wb__saving *list, const wb_opt_state *s, divided *own)
{
    int status = 0;
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; !status && k < s->n_moments; k++, own++) {
            char *name = wb__printf("%s.%d", s->slots[i].path, k);
            status = name ? wb__saving_add(list, "state.", name, s->slots[i].moments[k])
                          : WB_ERROR_MEMORY;
            wb__free(name);
            *own = (divided){s, i, k};
            if (!status && wb__is_divided(s))
                checkpoint_make_whole(&list->tensors[list->n - 1], own);
        }
    }
    for (int i = 0; !status && i < WB__SCALING && s->scaling[i]; i++)
        status = wb__saving_add(list, "scaling.", wb__scaling_names[i], s->scaling[i]);
    return status;
}

int wb_save_checkpoint(const char *path, const wb_checkpoint *c)
{
    WB__PUBLIC(wb_save_checkpoint, wb_error_code());
    if (!path || !c)
        return wb__fail(WB_ERROR_ARGUMENT, "save_checkpoint: no %s", path ? "checkpoint" : "path");
    int status = c->name ? wb__checkpoint_name("save_checkpoint", c->name) : 0;
    return status ? status : wb__checkpoint_write(path, c, 0, NULL);
}

/* Whether the library knows all fields of the checkpoint, and its members are NULL or objects of
 * the right kinds. */
static bool checkpoint_has_objects(const wb_checkpoint *c)
{
    return wb__reserve_is_empty("checkpoint", c->reserved_, sizeof c->reserved_) &&
           (!c->model || wb__is_model("checkpoint: .model", c->model)) &&
           (!c->average || wb__is_model("checkpoint: .average", c->average)) &&
           (!c->state || wb__expect("checkpoint: .state", c->state, &wb__opt_state_class)) &&
           (!c->loader || wb__expect("checkpoint: .loader", c->loader, &wb__loader_class));
}

int wb__checkpoint_write(const char *path, const wb_checkpoint *c, int64_t serial, const char *best)
{
    static const char what[] = "save_checkpoint";
    wb__saving list = {0};
    const wb_opt_state *s = c->state;
    if (!checkpoint_has_objects(c)) return wb_error_code();
    const size_t n = s ? (size_t)s->n * (size_t)s->n_moments : 0;
    divided *moments = wb__alloc((n + 1) * sizeof *moments);
    int status = moments ? wb__evaluate_pending() : WB_ERROR_MEMORY;
    if (!status) status = wb__guard_confirm();
    if (!status && s) status = wb__sums_whole(what, s);
    if (!status && c->model) status = wb__saving_add_model(&list, "model.", c->model);
    if (!status && c->average) status = wb__saving_add_model(&list, "average.", c->average);
    if (!status && s) status = checkpoint_add_moments(&list, s, moments);
    char *text = status ? NULL : wb__checkpoint_note(c, serial, best);
    if (!status && !text) status = wb_error_code();
    status = wb__divided_agree(s, what, status);
    if (!status && wb__is_divided(s) && s->part) status = wb__divided_serve(s, what);
    else if (!status) {
        status = wb__saving_write(&list, path, 2,
                                  (wb__note[]){{"format", "weber"}, {"weber_checkpoint", text}});
        if (wb__is_divided(s)) status = wb__divided_end(status);
    }
    wb__free(text);
    wb__free(moments);
    wb__saving_free(&list);
    return status;
}

/* ---- loading: all checks come before any change ---------------------------------------------- */

/* A checkpoint file that is loaded: its tensors, its note, and what was read from the note. */
typedef struct {
    const char *path;
    wb__table file;
    wb__json *note;
    uint64_t random[2], loader[WB__LOADER_WORDS];
} restoring;

/* Sets the error that the file is a damaged checkpoint, with the reason; returns its code. */
static int checkpoint_fail(const restoring *r, const char *what)
{
    return wb__fail(WB_ERROR_FORMAT, "%s: the checkpoint's %s", r->path, what);
}

static bool checkpoint_read_words(const wb__json *list, int n, uint64_t *out)
{
    const wb__json *word;
    if (wb__json_count(list) != n) return false;
    WB__JSON_EACH(list, word, i) {
        const char *text = wb__json_text(word);
        char *end;
        errno = 0;
        if (!text || text[0] < '0' || text[0] > '9') return false;
        out[i] = strtoull(text, &end, 10);
        if (*end || errno) return false;
    }
    return true;
}

static bool checkpoint_read_number(const wb__json *value, double *out)
{
    const char *text = wb__json_text(value);
    char *end;
    if (!text || !*text) return false;
    *out = wb__plain_number(text, &end);
    return !*end;
}

/* Whether `list` is a list of n elements. */
static bool is_list_of(const wb__json *list, int n)
{
    return wb__json_is(list, WB__JSON_LIST) && wb__json_count(list) == n;
}

static int checkpoint_fail_other_rule(const restoring *r, const wb_rule *rule)
{
    const wb__json *part;
    wb__text its = {0};
    const wb__json *list = wb__json_get(r->note, "rule");
    WB__JSON_EACH(list, part, i) {
        const char *name = wb__json_text(wb__json_get(part, "name"));
        wb__text_add(&its, "%s%.40s", i ? ", " : "", name ? name : "?");
        if (its.length > 200) break;
    }
    wb__text_add(&its, "; this state's is ");
    for (int k = 0; k < rule->n; k++)
        wb__text_add(&its, "%s%s", k ? ", " : "", rule->parts[k].kind->name);
    const int status = wb__fail(WB_ERROR_FORMAT, "%s: the checkpoint's rule is another one: %s",
                                r->path, its.text ? its.text : "");
    wb__free(its.text);
    return status;
}

/* Sets `parts` to the parts of the rule, with the hyperparameters in the checkpoint's `list`.
 * Returns 0 or an error code. */
static int checkpoint_read_parts(const restoring *r, const wb__json *list, const wb_rule *rule,
                                 wb__rule_part *parts)
{
    const wb__json *part;
    if (!is_list_of(list, rule->n)) return checkpoint_fail_other_rule(r, rule);
    WB__JSON_EACH(list, part, i) {
        const char *name = wb__json_text(wb__json_get(part, "name"));
        parts[i] = rule->parts[i];
        if (!name || strcmp(name, parts[i].kind->name)) return checkpoint_fail_other_rule(r, rule);
        for (int k = 0; k < WB__RULE_NUMBERS; k++)
            if (wb__part_has(&parts[i], k) &&
                !checkpoint_read_number(wb__json_get(part, wb__rule_fields[k].name),
                                        wb__rule_number(&parts[i].o, k)))
                return checkpoint_fail(r, "rule lacks a number");
        if (!wb__rule_check(parts[i].kind, &parts[i].o)) return WB_ERROR_FORMAT;
    }
    return 0;
}

/* Reads the parts of the rule, then the parts of each slot that has numbers of its own, into
 * `parts`.  The slots have been checked.  Returns 0 or an error code. */
static int checkpoint_read_rule(const restoring *r, const wb_opt_state *s, wb__rule_part *parts)
{
    const wb__json *slot, *slots = wb__json_get(r->note, "slots");
    int status = checkpoint_read_parts(r, wb__json_get(r->note, "rule"), s->rule, parts);
    WB__JSON_EACH(slots, slot, i) {
        const wb__json *own = wb__json_get(slot, "rule");
        if (!status && own)
            status = checkpoint_read_parts(r, own, s->rule, parts + (i + 1) * s->rule->n);
    }
    return status;
}

static wb__entry *checkpoint_entry_of(const restoring *r, char *name)
{
    wb__entry *t = name ? wb__table_find(&r->file, name) : NULL;
    wb__free(name);
    return t;
}

static wb__entry *moment_of(const restoring *r, const wb__slot *slot, int k)
{
    return checkpoint_entry_of(r, wb__printf("state.%s.%d", slot->path, k));
}

static wb__entry *scaling_of(const restoring *r, int i)
{
    return checkpoint_entry_of(r, wb__printf("scaling.%s", wb__scaling_names[i]));
}

/* Whether the entry t is not NULL and has this dtype and shape. */
static bool checkpoint_fits(const wb__entry *t, wb_dtype dtype, int ndim, const int64_t *dims)
{
    return t && t->dtype == dtype && t->ndim == ndim &&
           !memcmp(t->dims, dims, (size_t)ndim * sizeof *dims);
}

static int checkpoint_check_mixed(const restoring *r, const wb_opt_state *s)
{
    const char *mixed = wb__json_text(wb__json_get(r->note, "mixed"));
    const char *own = s->mixed ? wb_dtype_name(s->mixed) : "none", *its = mixed ? mixed : "none";
    if (strcmp(own, its))
        return wb__fail(WB_ERROR_FORMAT, "%s: the checkpoint's state was set up with .mixed %s, "
                        "this one with %s", r->path, its, own);
    for (int i = 0; i < WB__SCALING && s->scaling[i]; i++)
        if (!checkpoint_fits(scaling_of(r, i), WB_F32, s->scaling[i]->ndim, s->scaling[i]->dims))
            return checkpoint_fail(r, "scale is missing or does not fit");
    return 0;
}

static int checkpoint_check_state(const restoring *r, const wb_opt_state *s)
{
    const wb__json *entry, *slots = wb__json_get(r->note, "slots");
    const wb__json *updates = wb__json_get(r->note, "updates");
    if (!is_list_of(slots, s->n)) return checkpoint_fail(r, "state is of another model");
    if (updates && (!wb__json_is(updates, WB__JSON_INTEGER) || wb__json_integer(updates) < 0))
        return checkpoint_fail(r, "updates are wrong");
    WB__JSON_EACH(slots, entry, i) {
        const wb__slot *slot = &s->slots[i];
        const wb__json *steps = wb__json_get(entry, "steps");
        const char *path = wb__json_text(wb__json_get(entry, "path"));
        if (!path || strcmp(path, slot->path))
            return checkpoint_fail(r, "state is of another model");
        if (!wb__json_is(steps, WB__JSON_INTEGER) || wb__json_integer(steps) < 0)
            return checkpoint_fail(r, "steps are wrong");
        for (int k = 0; k < s->n_moments; k++) {
            int64_t dims[WB_MAX_DIMS];
            int ndim;
            wb__moment_shape(s, slot, k, &ndim, dims);
            if (!checkpoint_fits(moment_of(r, slot, k), wb__moment_dtype(slot->dtype), ndim, dims))
                return wb__fail(WB_ERROR_FORMAT, "%s: the checkpoint's moments of \"%s\" are "
                                "missing or do not fit", r->path, slot->path);
        }
    }
    return 0;
}

static int restore_values(const wb__entry *t, wb_tensor *x)
{
    return t ? wb__overwrite(x, t->data, (size_t)t->bytes) : WB_ERROR_MEMORY;
}

static int restore_moment(const restoring *r, wb_opt_state *s, int slot, int k)
{
    const wb__entry *t = moment_of(r, &s->slots[slot], k);
    if (!t || !wb__is_divided(s)) return restore_values(t, s->slots[slot].moments[k]);
    return s->gives ? wb__divided_give(s, slot, k, t->data)
                    : wb__divided_set(s, slot, k, s->part, t->data);
}

/* Sets the slot's own numbers from `parts`; NULL: the slot has none.  Returns 0 or an error
 * code. */
static int restore_own(const wb_opt_state *s, wb__slot *slot, const wb__rule_part *parts)
{
    const int status = wb__slot_own(s, slot, parts->kind != NULL);
    for (int p = 0; slot->own && p < s->rule->n; p++) slot->own[p] = parts[p].o;
    return status;
}

static int restore_state(const restoring *r, wb_opt_state *s, const wb__rule_part *parts)
{
    int status = wb__sums_drop(s);
    const wb__json *entry = NULL, *slots = wb__json_get(r->note, "slots");
    const wb__json *updates = wb__json_get(r->note, "updates");
    wb__opt_counts *counts = status ? NULL : wb__opt_counts_new(s->n, s->counts);
    if (!counts) return wb__error_or(WB_ERROR_MEMORY);
    wb__unref(s->counts);               /* a cancelled write may still restore the old counts */
    s->counts = counts;
    counts->updates = wb__json_integer(updates);
    s->changes++;
    WB__JSON_EACH(slots, entry, i) {
        if (!status) status = restore_own(s, &s->slots[i], parts + (i + 1) * s->rule->n);
        for (int k = 0; !status && k < s->n_moments; k++)
            status = restore_moment(r, s, i, k);
        if (status) return status;
        counts->slot[i].steps = wb__json_integer(wb__json_get(entry, "steps"));
        if (!updates) counts->updates = WB__MAX(counts->updates, counts->slot[i].steps);
        const bool frozen = wb__json_is(wb__json_get(entry, "frozen"), WB__JSON_TRUE);
        wb__setting_set(s, &s->slots[i].frozen, frozen);
    }
    for (int i = 0; !status && i < WB__SCALING && s->scaling[i]; i++)
        status = restore_values(scaling_of(r, i), s->scaling[i]);
    if (status) return status;
    memcpy(s->rule->parts, parts, (size_t)s->rule->n * sizeof *parts);
    return 0;
}

static int checkpoint_read_about(const restoring *r, wb__checkpoint_about *about)
{
    const wb__json *epoch = wb__json_get(r->note, "epoch"), *name = wb__json_get(r->note, "name"),
                   *metric = wb__json_get(r->note, "metric"),
                   *serial = wb__json_get(r->note, "serial"), *best = wb__json_get(r->note, "best");
    const char *called = wb__json_text(name), *direction = wb__json_text(best);
    *about = (wb__checkpoint_about){
        .epoch = wb__json_integer(epoch), .serial = wb__json_integer(serial), .has_metric = metric};
    if (!wb__json_is(epoch, WB__JSON_INTEGER)) return checkpoint_fail(r, "epoch is wrong");
    if (name && (!called || strlen(called) > CHECKPOINT_NAME_MOST))
        return checkpoint_fail(r, "name is wrong");
    if (metric && !checkpoint_read_number(metric, &about->metric))
        return checkpoint_fail(r, "metric is wrong");
    if (serial && (!wb__json_is(serial, WB__JSON_INTEGER) || about->serial < 1 ||
                   about->serial > SERIAL_MOST))
        return checkpoint_fail(r, "serial is wrong");
    if (best && (!direction || strlen(direction) >= sizeof about->best))
        return checkpoint_fail(r, "direction of the best is wrong");
    snprintf(about->name, sizeof about->name, "%s", called ? called : "");
    snprintf(about->best, sizeof about->best, "%s", direction ? direction : "");
    return 0;
}

/* Sets *w, whose first three fields the program has set, from a note of note_write_watch. */
static int checkpoint_read_watch(const restoring *r, const char *key, wb_watch *w)
{
    const wb__json *number, *list = wb__json_get(r->note, key);
    double numbers[2] = {0};
    static const char what[] = "watched number is wrong";
    if (!list)
        return wb__fail(WB_ERROR_FORMAT, "%s: the checkpoint was saved without .%s", r->path, key);
    const int n = wb__json_count(list);
    if (!is_list_of(list, n) || n > 2) return checkpoint_fail(r, what);
    WB__JSON_EACH(list, number, i) {
        if (!checkpoint_read_number(number, &numbers[i])) return checkpoint_fail(r, what);
    }
    if (!(numbers[0] >= 0 && numbers[0] <= INT_MAX) || numbers[0] != floor(numbers[0]))
        return checkpoint_fail(r, what);
    w->begun = n == 2;
    w->count = (int)numbers[0];
    w->score = numbers[1];
    return 0;
}

static int checkpoint_open(restoring *r, wb__checkpoint_about *about)
{
    const char *reason, *text = wb__table_note(&r->file, "weber_checkpoint");
    if (!text)
        return wb__fail(WB_ERROR_FORMAT,
                        "%s: is no checkpoint: it was not written by wb_save_checkpoint", r->path);
    r->note = wb__json_read(text, &reason);
    if (!r->note) return checkpoint_fail(r, "note is not JSON");
    const int64_t version = wb__json_integer(wb__json_get(r->note, "version"));
    if (version < 1 || version > WB__CHECKPOINT_VERSION)
        return wb__fail(WB_ERROR_FORMAT, "%s: the checkpoint is of version %lld; up to %d are "
                        "known", r->path, (long long)version, WB__CHECKPOINT_VERSION);
    if (version > 1 && !r->file.summed) return checkpoint_fail(r, "checksums are gone");
    if (!checkpoint_read_words(wb__json_get(r->note, "random"), 2, r->random))
        return checkpoint_fail(r, "random counters are wrong");
    return checkpoint_read_about(r, about);
}

/* Loads the values of the model and of its average, or with `check_only` only checks them. */
static int checkpoint_load_models(restoring *r, const wb_checkpoint *c, bool check_only)
{
    wb__state_load values = {.path = r->path, .prefix = "model.", .names = WB_NAMES_WEBER,
                             .check_only = check_only};
    const int status = c->model ? wb__load_values(&r->file, &values, c->model) : 0;
    values.prefix = "average.";
    return status || !c->average ? status : wb__load_values(&r->file, &values, c->average);
}

static int checkpoint_restore(restoring *r, const wb__checkpoint_about *about, wb_checkpoint *c)
{
    if (c->name && strcmp(c->name, about->name))
        return wb__fail(WB_ERROR_FORMAT, "%s: the checkpoint is %s%s%s, expected \"%s\"", r->path,
                        about->name[0] ? "\"" : "without a name", about->name,
                        about->name[0] ? "\"" : "", c->name);
    const wb_opt_state *s = c->state;
    wb__rule_part *parts =
        s ? wb__alloc_zero((size_t)(s->rule->n * (s->n + 1)) + 1, sizeof *parts) : NULL;
    int status = c->state && !parts ? WB_ERROR_MEMORY : 0;
    if (!status && c->loader && !wb__json_get(r->note, "loader"))
        status = wb__fail(WB_ERROR_FORMAT,
                          "%s: the checkpoint was saved without a loader's position", r->path);
    if (!status && c->loader &&
        !checkpoint_read_words(wb__json_get(r->note, "loader"), WB__LOADER_SHUFFLE, r->loader))
        status = checkpoint_fail(r, "loader position is wrong");
    uint64_t *order = r->loader + WB__LOADER_SHUFFLE;       /* older checkpoints do not have it */
    if (!checkpoint_read_words(wb__json_get(r->note, "order"),
                               WB__LOADER_WORDS - WB__LOADER_SHUFFLE, order))
        for (int i = WB__LOADER_SHUFFLE; i < WB__LOADER_WORDS; i++) r->loader[i] = UINT64_MAX;
    if (!status && c->state && !wb__json_get(r->note, "slots"))
        status = wb__fail(WB_ERROR_FORMAT,
                          "%s: the checkpoint was saved without an optimiser's state", r->path);
    if (!status && c->state) status = checkpoint_check_mixed(r, c->state);
    if (!status && c->state) status = checkpoint_check_state(r, c->state);
    if (!status && c->state) status = checkpoint_read_rule(r, c->state, parts);
    wb_watch stop = c->stop ? *c->stop : (wb_watch){0}, reduce = c->reduce ? *c->reduce : stop;
    if (!status && c->stop) status = checkpoint_read_watch(r, "stop", &stop);
    if (!status && c->reduce) status = checkpoint_read_watch(r, "reduce", &reduce);
    if (!status && c->average && !wb__json_get(r->note, "average"))
        status = wb__fail(WB_ERROR_FORMAT, "%s: the checkpoint was saved without an average",
                          r->path);
    if (!status) status = checkpoint_load_models(r, c, true);
    if (!status && c->loader) status = wb__loader_restore(c->loader, r->loader);
    if (!status) status = checkpoint_load_models(r, c, false);
    if (!status && c->state) status = restore_state(r, c->state, parts);
    if (!status && c->stop) *c->stop = stop;
    if (!status && c->reduce) *c->reduce = reduce;
    if (!status) {
        wb__rng_set_state((wb__rng_state){r->random[0], r->random[1]});
        c->epoch = about->epoch;
        c->metric = about->metric;
        c->has_metric = about->has_metric;
    }
    wb__free(parts);
    return status;
}

static int checkpoint_load(const char *path, bool values, wb__table *out)
{
    wb__mapping *m = wb__map(path);
    if (!m) return wb_error_code();
    const wb__format format = wb__format_of(m);
    const bool other = format != WB__FORMAT_UNKNOWN && format != WB__FORMAT_SAFETENSORS;
    int status = !other ? wb__st_table(m, values, out)
                        : wb__fail(WB_ERROR_FORMAT, "%s: is %s; checkpoints are safetensors files",
                                   path, wb__format_name(format));
    if (status) wb__unmap(m);
    return status;
}

int wb__checkpoint_read(const char *path, wb_checkpoint *c, bool *whole)
{
    wb__checkpoint_about about;
    restoring r = {.path = path};
    *whole = false;
    if (!checkpoint_has_objects(c)) return wb_error_code();
    int status = checkpoint_load(path, true, &r.file);
    if (!status) status = checkpoint_open(&r, &about);
    *whole = !status;
    if (!status) status = checkpoint_restore(&r, &about, c);
    wb__free(r.note);
    wb__table_free(&r.file);
    return status;
}

int wb__checkpoint_peek(const char *path, wb__checkpoint_about *about)
{
    restoring r = {.path = path};
    int status = checkpoint_load(path, false, &r.file);
    if (!status) status = checkpoint_open(&r, about);
    wb__free(r.note);
    wb__table_free(&r.file);
    return status;
}

int wb_load_checkpoint(const char *path, wb_checkpoint *c)
{
    WB__PUBLIC(wb_load_checkpoint, wb_error_code());
    bool whole;
    if (!path || !c)
        return wb__fail(WB_ERROR_ARGUMENT, "load_checkpoint: no %s", path ? "checkpoint" : "path");
    return wb__checkpoint_read(path, c, &whole);
}
