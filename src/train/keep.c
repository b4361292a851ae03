/* Folders of checkpoints: FOLDER/NAME-000012.safetensors.  The header of each file has a serial
 * number, which gives the order in which the files were written.  The epoch does not give this
 * order, because a training may start again from an earlier epoch. */
#include "train/checkpoint.h"

#include "base/files/file.h"
#include "base/options.h"
#include "dist/dist.h"
#include "optim/optim.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ENDING ".safetensors"

typedef struct { char *path; wb__checkpoint_about about; } keep_file;

/* The checkpoints in a folder that have one name. */
typedef struct {
    const char *folder, *name;
    keep_file *files;                   /* keep_collect sorts them: the newest first */
    int n, capacity;
    bool report;                        /* whether unreadable files are reported in the log */
} keep_state;

/* ---- names of files -------------------------------------------------------------------------- */

static char *keep_path_of(const keep_state *k, int64_t epoch)
{
    return wb__printf("%s/%s-%06" PRId64 ENDING, k->folder, k->name, epoch);
}

/* Returns the epoch in the file name, such as 12 in NAME-000012.safetensors, and sets *rest to the
 * end of the name after ".safetensors".  Returns -1 for other names. */
static int64_t keep_epoch_in(const keep_state *k, const char *file, const char **rest)
{
    const size_t n = strlen(k->name);
    if (strncmp(file, k->name, n) || file[n] != '-') return -1;
    const char *digits = file + n + 1;
    const size_t many = strspn(digits, "0123456789");
    if (many < 6 || many > 19 || (many > 6 && digits[0] == '0')) return -1;
    if (strncmp(digits + many, ENDING, sizeof ENDING - 1)) return -1;
    *rest = digits + many + sizeof ENDING - 1;
    return strtoll(digits, NULL, 10);
}

/* Whether `rest` is the end of the name of a temporary file, such as ".0.part".  A writer that was
 * killed leaves such a file. */
static bool keep_is_leftover(const char *rest)
{
    size_t digits = rest[0] == '.' ? strspn(rest + 1, "0123456789") : 0;
    return digits && !strcmp(rest + 1 + digits, ".part");
}

/* ---- files of a folder ----------------------------------------------------------------------- */

static int keep_add(keep_state *k, char *path, const wb__checkpoint_about *about)
{
    if (!wb__reserve(&k->files, &k->capacity, k->n + 1, sizeof *k->files)) return WB_ERROR_MEMORY;
    k->files[k->n++] = (keep_file){path, *about};
    return 0;
}

static void log_skipped(const char *path)
{
    wb__log(WB_LOG_WARN, "%s is passed over: %s", path, wb_error());
    wb_clear_error();
}

static int keep_add_file(const char *file, void *ctx)
{
    keep_state *k = ctx;
    const char *rest;
    int64_t epoch = keep_epoch_in(k, file, &rest);
    if (epoch < 0) return 0;
    char *path = wb__printf("%s/%s", k->folder, file);
    if (!path) return WB_ERROR_MEMORY;
    wb__checkpoint_about about;
    int status = 0;
    if (*rest) {
        if (keep_is_leftover(rest)) (void)!wb__writer_sweep(path);
    } else if ((status = wb__checkpoint_peek(path, &about)) == 0) {
        if (!strcmp(about.name, k->name) && about.epoch == epoch &&
            (status = keep_add(k, path, &about)) == 0)
            return 0;
    } else if (status != WB_ERROR_MEMORY) {
        if (k->report) log_skipped(path);
        else wb_clear_error();
        status = 0;
    }
    wb__free(path);
    return status;
}

static int by_serial(const void *a, const void *b)
{
    const wb__checkpoint_about *x = &((const keep_file *)a)->about,
                               *y = &((const keep_file *)b)->about;
    if (x->serial != y->serial) return x->serial > y->serial ? -1 : 1;
    return x->epoch != y->epoch ? (x->epoch > y->epoch ? -1 : 1) : 0;
}

/* Sets k->files to the checkpoints of the folder, the newest first.  Returns 0 or an error code. */
static int keep_collect(keep_state *k)
{
    int status = wb__folder_each(k->folder, keep_add_file, k);
    if (k->n) qsort(k->files, (size_t)k->n, sizeof *k->files, by_serial);
    return status;
}

static void keep_free_list(keep_state *k)
{
    for (int i = 0; i < k->n; i++) wb__free(k->files[i].path);
    wb__free(k->files);
}

/* Whether checkpoint a is better than checkpoint b.  A checkpoint without a metric, or with the
 * metric NaN, is never better.  If the metrics are equal, the older checkpoint is better. */
static bool keep_is_better(const wb__checkpoint_about *a, const wb__checkpoint_about *b,
                           bool higher)
{
    if (!a->has_metric || isnan(a->metric)) return false;
    if (!b->has_metric || isnan(b->metric)) return true;
    if (a->metric != b->metric) return higher == (a->metric > b->metric);
    return a->serial < b->serial;
}

/* ---- keeping --------------------------------------------------------------------------------- */

/* Sets *k to an empty list for the folder and the name of *c.  Returns 0 or an error code. */
static int keep_init(const char *what, const char *folder, const wb_checkpoint *c, keep_state *k)
{
    if (!folder || !c)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: no %s", what, folder ? "checkpoint" : "folder");
    *k = (keep_state){.folder = folder, .name = c->name ? c->name : "checkpoint"};
    return wb__checkpoint_name(what, k->name);
}

/* Removes all files except the newest o->last files and, if o->best is set, the best file. */
static void remove_others(const keep_state *k, const wb_keep_checkpoint_options *o)
{
    int best = 0;
    for (int i = 1; i < k->n; i++)
        if (keep_is_better(&k->files[i].about, &k->files[best].about, o->higher)) best = i;
    for (int i = o->last; i < k->n; i++)
        if ((i != best || !o->best) && wb__file_remove(k->files[i].path)) {
            wb__log(WB_LOG_WARN, "an old checkpoint stays: %s", wb_error());
            wb_clear_error();
        }
}

/* Sets *about and *path to the description and the path of the new checkpoint, and adds it to the
 * list.  Returns 0 or an error code. */
static int keep_prepare(keep_state *k, const wb_checkpoint *c, wb__checkpoint_about *about,
                        char **path)
{
    int status = wb__folder_make(k->folder);
    if (!status) status = keep_collect(k);
    if (status) return status;
    *about = (wb__checkpoint_about){.epoch = c->epoch,
                                    .serial = k->n ? k->files[0].about.serial + 1 : 1,
                                    .metric = c->metric,
                                    .has_metric = c->has_metric};
    *path = keep_path_of(k, c->epoch);
    if (!*path) return WB_ERROR_MEMORY;
    for (int i = 0; i < k->n; i++)              /* the new file overwrites one of the same epoch */
        if (!strcmp(k->files[i].path, *path)) {
            wb__free(k->files[i].path);
            memmove(k->files + i, k->files + i + 1, (size_t)(--k->n - i) * sizeof *k->files);
        }
    status = keep_add(k, *path, about);
    if (status) wb__free(*path);
    return status;
}

static int keep_new_checkpoint(keep_state *k, const wb_checkpoint *c,
                               const wb_keep_checkpoint_options *o)
{
    wb__checkpoint_about about;
    char *path;
    if (wb__is_divided(c->state) && c->state->part)     /* rank 0 writes for all */
        return wb__checkpoint_write(NULL, c, 0, NULL);
    int status = keep_prepare(k, c, &about, &path);
    if (status) return wb__divided_agree(c->state, "keep_checkpoint", status);
    wb_checkpoint named = *c;
    named.name = k->name;
    status = wb__checkpoint_write(path, &named, about.serial,
                                  !o->best    ? NULL
                                  : o->higher ? WB__CHECKPOINT_HIGHEST
                                              : WB__CHECKPOINT_LOWEST);
    if (status || o->last < 0) return status;
    qsort(k->files, (size_t)k->n, sizeof *k->files, by_serial);
    remove_others(k, o);
    return 0;
}

int wb_keep_checkpoint_with(const char *folder, const wb_checkpoint *c,
                            const wb_keep_checkpoint_options *given)
{
    WB__PUBLIC(wb_keep_checkpoint_with, wb_error_code());
    keep_state k;
    wb_keep_checkpoint_options o;
    if (!wb__read_options("keep_checkpoint", wb_keep_checkpoint_options, &o, given, NULL))
        return wb_error_code();
    if (!o.last)
        return wb__fail(WB_ERROR_ARGUMENT,
                        "keep_checkpoint: .last is 0; it is at least 1, or negative for all");
    int status = keep_init("keep_checkpoint", folder, c, &k);
    if (status) return status;
    if (c->epoch < 0)
        return wb__fail(WB_ERROR_ARGUMENT, "keep_checkpoint: epoch %lld", (long long)c->epoch);
    if (o.best && !c->has_metric)
        return wb__fail(WB_ERROR_ARGUMENT,
                        "keep_checkpoint: .best needs a metric; the checkpoint has none");
    status = keep_new_checkpoint(&k, c, &o);
    keep_free_list(&k);
    return status;
}

/* Loads the first undamaged file of the list and sets *found to true.  If all files are damaged,
 * sets *found to false and returns 0.  Returns an error code if the undamaged file does not fit the
 * objects in *c, or if memory is short. */
static int keep_load_first(keep_state *k, wb_checkpoint *c, bool *found)
{
    *found = false;
    for (int i = 0; i < k->n; i++) {
        wb_checkpoint named = *c;
        named.name = k->name;
        int status = wb__checkpoint_read(k->files[i].path, &named, found);
        if (!status) {
            named.name = c->name;
            *c = named;
        }
        if (*found || status == WB_ERROR_MEMORY) return status;
        log_skipped(k->files[i].path);
    }
    return 0;
}

static int by_lowest(const void *a, const void *b)
{
    return keep_is_better(&((const keep_file *)a)->about, &((const keep_file *)b)->about,
                          false) ? -1
                                                                                              : 1;
}

static int by_highest(const void *a, const void *b)
{
    return keep_is_better(&((const keep_file *)a)->about, &((const keep_file *)b)->about, true) ? -1
                                                                                             : 1;
}

/* Removes files whose metric is missing or NaN from the list, and sorts the others, the best
 * first.  A higher metric is better if `best` of the newest file is "highest". */
static void keep_sort_by_metric(keep_state *k)
{
    bool higher = k->n && !strcmp(k->files[0].about.best, WB__CHECKPOINT_HIGHEST);
    int n = 0;
    for (int i = 0; i < k->n; i++) {
        if (k->files[i].about.has_metric && !isnan(k->files[i].about.metric))
            k->files[n++] = k->files[i];
        else wb__free(k->files[i].path);
    }
    k->n = n;
    if (n) qsort(k->files, (size_t)n, sizeof *k->files, higher ? by_highest : by_lowest);
}

static int keep_load_from(const char *what, const char *folder, wb_checkpoint *c, bool best,
                          bool *found)
{
    keep_state k;
    *found = false;
    int status = keep_init(what, folder, c, &k);
    if (status) return status;
    k.report = true;
    status = keep_collect(&k);
    if (best) keep_sort_by_metric(&k);
    if (!status) status = keep_load_first(&k, c, found);
    keep_free_list(&k);
    return status;
}

int wb__checkpoint_resume(const char *folder, wb_checkpoint *c, bool *found)
{
    return keep_load_from("load_latest_checkpoint", folder, c, false, found);
}

int wb__checkpoint_newest(const char *folder, const wb_checkpoint *c, int64_t *epoch)
{
    keep_state k;
    int status = keep_init("train", folder, c, &k);
    if (status) return status;
    status = keep_collect(&k);
    *epoch = k.n ? k.files[0].about.epoch : -1;
    keep_free_list(&k);
    return status;
}

int wb_load_latest_checkpoint(const char *folder, wb_checkpoint *c)
{
    WB__FIRST(wb_load_latest_checkpoint, wb_error_code());
    bool found;
    int status = wb__checkpoint_resume(folder, c, &found);
    if (status || found) return status;
    return wb__fail(WB_ERROR_FILE, "%s: holds no checkpoint \"%s\"", folder,
                    c->name ? c->name : "checkpoint");
}

int wb_load_best_checkpoint(const char *folder, wb_checkpoint *c)
{
    WB__FIRST(wb_load_best_checkpoint, wb_error_code());
    bool found;
    int status = keep_load_from("load_best_checkpoint", folder, c, true, &found);
    if (status || found) return status;
    return wb__fail(WB_ERROR_FILE, "%s: holds no checkpoint \"%s\" with a metric", folder,
                    c->name ? c->name : "checkpoint");
}

/* ---- options of wb_train --------------------------------------------------------------------- */

int wb__check_saving(const wb_train_options *o)
{
    if (o->checkpoint && o->folder)
        return wb__fail(WB_ERROR_ARGUMENT,
                        "train: .checkpoint and .folder: one of both keeps what is saved");
    if (o->resume && !o->checkpoint && !o->folder)
        return wb__fail(WB_ERROR_ARGUMENT, "train: .resume needs .checkpoint or .folder");
    if ((o->keep_best || (o->higher && !o->stop && !o->reduce)) && !o->folder)
        return wb__fail(WB_ERROR_ARGUMENT, "train: .%s needs .folder",
                        o->keep_best ? "keep_best" : "higher");
    if (!o->keep_last)
        return wb__fail(WB_ERROR_ARGUMENT,
                        "train: .keep_last is 0; it is at least 1, or negative for all");
    return o->name ? wb__checkpoint_name("train", o->name) : 0;
}
