/* A process that is killed while it saves a file.  A child saves again and again, other values each
 * time, and reports each save that is complete.  For each kind of file 200 children are killed at
 * random moments.  After each kill the file is complete and holds the values of the last reported
 * save or of the next one.
 *
 *   crash [--count N] [--seed N]     N kills for each kind of file */
#include "reference.h"

#include "base/files/file.h"
#include "engine/evaluate.h"
#include "io/formats.h"
#include "weber/files.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 256, COLUMNS = 512, KILLS = 200 };

static char folder[] = "/tmp/weber-crash-XXXXXX", path[128];
static wb_layer *model;

static int make_all(void **state)
{
    if (!mkdtemp(folder)) return 1;
    model = wb_Chain(wb_Dense(COLUMNS, ROWS), wb_Dense(ROWS, COLUMNS));
    return !model;
}

/* The number of temporary files in the folder.  remove_all: removes every file. */
static int parts(bool remove_all)
{
    int n = 0;
    char full[400];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        n += strstr(e->d_name, ".part") != NULL;
        snprintf(full, sizeof full, "%s/%s", folder, e->d_name);
        if (remove_all && e->d_name[0] != '.') unlink(full);
    }
    if (d) closedir(d);
    return n;
}

static int remove_all(void **state)
{
    parts(true);
    return rmdir(folder);
}

/* ---- saved values ---------------------------------------------------------------------------- */

static float values[ROWS * COLUMNS];

static int fill_leaf(wb_tensor *x, const char *name, void *ctx)
{
    return wb__overwrite(x, values, (size_t)x->size * sizeof *values);
}

static void fill(int number)
{
    for (int i = 0; i < ROWS * COLUMNS; i++) values[i] = (float)number;
    if (wb_each_tensor(model, fill_leaf, NULL)) fail_msg("%s", wb_error());
}

/* The number that all elements have.  A file that mixes two saves would have two. */
static int number_in(wb_tensor *x)
{
    const float *at = x ? wb_data(x) : NULL;
    if (!at) fail_msg("after a kill: %s", wb_error());
    for (int64_t i = 1; i < x->size; i++)
        if (at[i] != at[0])
            fail_msg("element %lld is %g, the first is %g", (long long)i, at[i], at[0]);
    return (int)at[0];
}

static int same_number(wb_tensor *x, const char *name, void *number)
{
    if (number_in(x) != *(int *)number) fail_msg("%s is of another saving", name);
    return 0;
}

static int number_of(wb_layer *m)
{
    if (!m) fail_msg("after a kill: %s", wb_error());
    int number = number_in(wb_get(m, "layers.0.weight"));
    wb_each_tensor(m, same_number, &number);
    return number;
}

/* ---- the kinds of file ----------------------------------------------------------------------- */

static int save_model(int number) { return fill(number), wb_save(path, model); }
static int load_model(void) { return number_of(wb_load(path)); }

#if WB_HAVE_ZIP
static int load_state(void)
{
    fill(0);
    if (wb_load_state(path, model)) fail_msg("after a kill: %s", wb_error());
    return number_of(model);
}
#endif

static int save_array(int number)
{
    return fill(number), wb_save_npy(path, wb_get(model, "layers.0.weight"));
}
static int load_array(void) { return number_in(wb_load_npy(path)); }

/* The metric is the epoch's number, and lower is better: the first checkpoint remains the best. */
static int save_checkpoint(int number)
{
    fill(number);
    wb_checkpoint c = {.model = model, .epoch = number, .metric = number, .has_metric = true};
    return wb_keep_checkpoint(folder, &c, .last = 2, .best = true);
}

static int load_checkpoint(void)
{
    wb_checkpoint c = {.model = model};
    if (wb_load_best_checkpoint(folder, &c) || c.epoch != 1 || number_of(model) != 1)
        fail_msg("the best is lost: %s", wb_error());
    if (wb_load_latest_checkpoint(folder, &c)) fail_msg("after a kill: %s", wb_error());
    assert_int_equal(number_of(model), c.epoch);
    return (int)c.epoch;
}

typedef struct {
    const char *name, *ending;
    wb__format format;
    int (*save)(int number);
    int (*load)(void);
} kind;

static const kind kinds[] = {
    {"safetensors", "m.safetensors", WB__FORMAT_SAFETENSORS, save_model, load_model},
    {"checkpoints", "checkpoint-000001.safetensors", WB__FORMAT_SAFETENSORS, save_checkpoint,
     load_checkpoint},
    {"NPY", "m.npy", WB__FORMAT_NPY, save_array, load_array},
#if WB_HAVE_ZIP
    {"NPZ", "m.npz", WB__FORMAT_NPZ, save_model, load_state},
#endif
#if WB_HAVE_BSON
    {"BSON", "m.bson", WB__FORMAT_BSON, save_model, load_model},
#endif
};

/* ---- killing --------------------------------------------------------------------------------- */

static pid_t begin(const kind *k, int from, int *reports)
{
    int ends[2];
    if (pipe(ends)) fail_msg("no pipe");
    pid_t child = fork();
    if (child < 0) fail_msg("no fork");
    if (!child) {
        close(ends[0]);
        for (int number = from, ready = from - 1;; number++) {
            if (write(ends[1], &ready, sizeof ready) != sizeof ready) _exit(1);
            if (k->save(number)) _exit(1);
            ready = number;
        }
    }
    close(ends[1]);
    *reports = ends[0];
    return child;
}

static int next_report(int reports)
{
    int number;
    return read(reports, &number, sizeof number) == sizeof number ? number : -1;
}

static void nap(double seconds)
{
    const double rest = seconds - (double)(time_t)seconds;
    nanosleep(&(struct timespec){(time_t)seconds, (long)(rest * 1e9)}, NULL);
}

/* The last number that the child reported before it was killed. */
static int end(pid_t child, int reports)
{
    int number = -1, how;
    kill(child, SIGKILL);
    waitpid(child, &how, 0);
    if (!WIFSIGNALED(how)) fail_msg("the child could not save: status %d", how);
    for (int next; (next = next_report(reports)) >= 0;) number = next;
    close(reports);
    return number;
}

/* The duration of a save in seconds.  *last: the number that the file then holds. */
static double time_of(const kind *k, int from, int *last)
{
    enum { ROUNDS = 10 };
    int reports;
    pid_t child = begin(k, from, &reports);
    next_report(reports);
    double begun = wb__now();
    for (int i = 0; i < ROUNDS; i++) *last = next_report(reports);
    double each = (wb__now() - begun) / ROUNDS;
    int more = end(child, reports);
    if (more > *last) *last = more;
    return each;
}

static void killed(const kind *k)
{
    int last, torn = 0, further = 0, kills = option_count ? option_count : KILLS;
    snprintf(path, sizeof path, "%s/%s", folder, k->ending);
    if (k->save(1)) fail_msg("%s: %s", k->name, wb_error());
    wb__mapping *m = wb__map(path);
    wb__format format = m ? wb__format_of(m) : WB__FORMAT_UNKNOWN;
    wb__unmap(m);
    assert_int_equal(format, k->format);
    double each = time_of(k, 2, &last), begun = wb__now();
    last = k->load();
    for (int i = 0; i < kills; i++) IN_SCOPE {
        int reports;
        pid_t child = begin(k, last + 1, &reports);
        if (next_report(reports) != last) fail_msg("%s: the child did not begin", k->name);
        nap(draw_real(0, 2 * each));
        int done = end(child, reports);
        if (done < last) done = last;
        int left = parts(false);
        torn += left != 0;
        if (left > 1) fail_msg("%s: %d temporary files after kill %d", k->name, left, i);
        last = k->load();
        if (last != done && last != done + 1)
            fail_msg("%s: kill %d: %d was saved, %d is there", k->name, i, done, last);
        further += last == done + 1;
    }
    print_message("%s: %d kills in %.1f s, a saving takes %.1f ms; %d left a temporary file, %d "
                  "came after the renaming\n",
                  k->name, kills, wb__now() - begun, 1e3 * each, torn, further);
    if (torn < kills / 10)
        fail_msg("%s: hardly any kill came while a file was being written", k->name);
    if (k->save(last + 1)) fail_msg("%s", wb_error());
    assert_int_equal(parts(true), 0);
}

TEST(every_kind)
{
    for (size_t i = 0; i < WB__COUNT(kinds); i++) killed(&kinds[i]);
    if (WB__COUNT(kinds) < 5)
        print_message("SKIPPED what is left of BSON and NPZ: built without libbson or libzip\n");
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    wb_set_threads(1);                  /* a forked child has no threads of the pool */
    return run_cases(make_all, remove_all);
}
