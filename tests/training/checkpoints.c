/* Checkpoints: names, metrics, versions, damage; folders that keep the last and the best;
 * training that is killed and resumed; all of it also while allocations and writes fail. */
#include "golden.h"

#include "base/files/file.h"
#include "base/numbers/philox.h"
#include "io/model/model_file.h"
#include "optim/optim.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 40 };

static char folder[] = "/tmp/weber-keep-XXXXXX", path[96];

static int make_folder(void **state)
{
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/one", folder);
    return 0;
}

static int each_entry(bool (*is_wanted)(const char *), bool remove)
{
    int n = 0;
    char full[400];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.' || (is_wanted && !is_wanted(e->d_name))) continue;
        n++;
        snprintf(full, sizeof full, "%s/%s", folder, e->d_name);
        if (remove) unlink(full);
    }
    if (d) closedir(d);
    return n;
}

static int empty_folder(void **state)
{
    each_entry(NULL, true);
    return golden_close(state) | rmdir(folder);
}

static bool is_part(const char *name) { return strstr(name, ".part"); }
static int files(void) { return each_entry(NULL, false); }

static bool there(const char *name)
{
    char full[200];
    snprintf(full, sizeof full, "%s/%s", folder, name);
    return access(full, F_OK) == 0;
}

static void put(const char *name, const void *data, size_t n)
{
    char full[200];
    snprintf(full, sizeof full, "%s/%s", folder, name);
    assert_int_equal(wb__file_write(full, data, (int64_t)n), 0);
}

/* ---- one file -------------------------------------------------------------------------------- */

static wb_layer *filled(double value)
{
    wb_layer *m = wb_Chain(wb_Dense(3, 4, wb_tanh), wb_Dense(4, 1));
    wb_tensor *w = wb_get(m, "layers.0.weight");
    wb_assign(w, wb_full_array(value, WB_F32, 2, (int64_t[]){4, 3}));
    assert_int_equal(wb__evaluate_pending(), 0);
    return m;
}

static double value_of(wb_layer *m) { return wb_item(wb_mean(wb_get(m, "layers.0.weight"))); }

TEST(names_and_metrics)
{
    wb_layer *m = filled(1);
    wb_checkpoint c = {.model = m, .epoch = 7, .name = "digits", .metric = 0.1, .has_metric = true};
    WORKS(wb_save_checkpoint(path, &c));
    wb_checkpoint back = {.model = filled(0)};
    WORKS(wb_load_checkpoint(path, &back));
    assert_true(back.epoch == 7 && back.has_metric && back.metric == 0.1);
    assert_true(value_of(back.model) == 1);
    back.name = "digits";
    WORKS(wb_load_checkpoint(path, &back));
    back.name = "letters";
    FAILS(wb_load_checkpoint(path, &back), WB_ERROR_FORMAT, path, "\"digits\"", "\"letters\"");
    c = (wb_checkpoint){.model = m, .metric = 3};
    WORKS(wb_save_checkpoint(path, &c));
    FAILS(wb_load_checkpoint(path, &back), WB_ERROR_FORMAT, path, "name");
    back.name = NULL;
    WORKS(wb_load_checkpoint(path, &back));
    assert_true(!back.has_metric && back.metric == 0);
    char too_long[102] = "";
    memset(too_long, 'x', sizeof too_long - 1);
    const char *wrong[] = {"", ".x", "a/b", "../x", "a b", "\xc3\xa9", too_long};
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        c.name = wrong[i];
        FAILS(wb_save_checkpoint(path, &c), WB_ERROR_ARGUMENT, "name");
        FAILS(wb_keep_checkpoint(folder, &c), WB_ERROR_ARGUMENT, "name");
        FAILS(wb_load_latest_checkpoint(folder, &c), WB_ERROR_ARGUMENT, "name");
    }
    unlink(path);
}

/* Names that are not UTF-8 are refused, also where only the checkpoint's note has them: the state
 * of a rule without moments has no tensors. */
TEST(names_that_are_no_text)
{
    wb_layer *m = wb_Chain(wb_named("\xff", wb_Dense(2, 2)), wb_Dense(2, 1));
    wb_checkpoint c = {.model = m}, alone = {.state = wb_setup(wb_Descent(0.1), m)};
    FAILS(wb_save_checkpoint(path, &c), WB_ERROR_ARGUMENT, "UTF-8");
    FAILS(wb_save_checkpoint(path, &alone), WB_ERROR_ARGUMENT, "UTF-8");
    assert_int_not_equal(access(path, F_OK), 0);
}

/* Rewrites the file `path` with a changed note. */
static void rewrite(const char *key, const char *(*change)(const char *))
{
    wb__table t;
    wb__st_out out[64];
    wb__note notes[8];
    int n_notes = 0;
    assert_int_equal(wb__st_load(path, true, &t), 0);
    for (int i = 0; i < t.n; i++) {
        const wb__entry *e = &t.entries[i];
        out[i] = (wb__st_out){e->name, e->dtype, e->ndim, e->dims, e->bytes, e->data, NULL};
    }
    for (int i = 0; i < t.n_notes; i++) {
        if (!strcmp(t.notes[i].key, "weber_crc32")) continue;
        bool it = !strcmp(t.notes[i].key, key);
        notes[n_notes++] = (wb__note){
            t.notes[i].key, it ? (char *)(uintptr_t)change(t.notes[i].value) : t.notes[i].value};
    }
    assert_int_equal(wb__st_save(NULL, path, t.n, out, n_notes, notes), 0);
    wb__table_free(&t);
}

static char changed[2000];

static const char *old, *new;

/* The note with the text `new` in the place of `old`. */
static const char *replaced(const char *note)
{
    const char *at = strstr(note, old);
    assert_non_null(at);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - note), note, new, at + strlen(old));
    return changed;
}

static void replace(const char *from, const char *to)
{
    old = from;
    new = to;
    rewrite("weber_checkpoint", replaced);
}

TEST(versions)
{
    wb_checkpoint c = {.model = filled(2), .epoch = 5}, back = {.model = filled(0)};
    WORKS(wb_save_checkpoint(path, &c));
    replace("\"version\":2", "\"version\":1");
    WORKS(wb_load_checkpoint(path, &back));
    assert_true(back.epoch == 5 && value_of(back.model) == 2);
    WORKS(wb_save_checkpoint(path, &c));
    replace("\"version\":2", "\"version\":3");
    FAILS(wb_load_checkpoint(path, &back), WB_ERROR_FORMAT, path, "version", "3", "2");
    WORKS(wb_save_checkpoint(path, &c));
    replace("{", "{\"serial\":9223372036854775807,");
    FAILS(wb_load_checkpoint(path, &back), WB_ERROR_FORMAT, path, "serial");
    unlink(path);
}

/* Numbers that no program writes are errors, before anything is changed. */
TEST(numbers_of_the_note)
{
    static const char *const counts[] = {"nan", "1e300", "-1", "1.5", "2147483648", ""},
                      *const updates[] = {"-1", "1.5", "\"0\"", "null"};
    wb_layer *m = filled(2);
    wb_watch watch = {.count = 3, .begun = true, .score = 0.5}, its = {.count = 7};
    wb_opt_state *s = wb_setup(wb_Descent(), m);
    const wb_checkpoint c = {.model = m, .state = s, .stop = &watch};
    wb_checkpoint back = {.model = filled(0), .stop = &its};
    back.state = wb_setup(wb_Descent(), back.model);
    for (size_t i = 0; i < WB__COUNT(counts) + WB__COUNT(updates); i++) {
        const bool count = i < WB__COUNT(counts);
        char text[80];
        WORKS(wb_save_checkpoint(path, &c));
        if (count) snprintf(text, sizeof text, "\"stop\":[\"%s\"", counts[i]);
        else snprintf(text, sizeof text, "\"updates\":%s", updates[i - WB__COUNT(counts)]);
        replace(count ? "\"stop\":[\"3\"" : "\"updates\":0", text);
        FAILS(wb_load_checkpoint(path, &back), WB_ERROR_FORMAT, path,
              count ? "watched" : "updates");
        assert_true(its.count == 7 && value_of(back.model) == 0);
    }
    WORKS(wb_save_checkpoint(path, &c));
    replace("\"stop\":[\"3\"", "\"stop\":[\"2147483647\"");
    WORKS(wb_load_checkpoint(path, &back));
    assert_true(its.count == 2147483647 && its.begun && its.score == 0.5);
    unlink(path);
}

/* A change of any bit is detected before the model is changed. */
TEST(any_damage)
{
    int64_t n;
    wb_layer *m = wb_Dense(3, 2);
    wb_checkpoint c = {.model = m, .state = wb_setup(wb_Momentum(), m), .epoch = 1},
                  back = {.model = wb_Dense(3, 2)};
    back.state = wb_setup(wb_Momentum(), back.model);
    WORKS(wb_save_checkpoint(path, &c));
    char *data = wb__file_read(path, &n), before[24];
    assert_non_null(data);
    memcpy(before, wb_data(wb_get(back.model, "weight")), sizeof before);
    bool named = false;
    for (int64_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit += 3) {
            data[i] ^= (char)(1 << bit);
            put("one", data, (size_t)n);
            int status = wb_load_checkpoint(path, &back);
            if (status != WB_ERROR_FORMAT && status != WB_ERROR_FILE)
                fail_msg("bit %d of byte %lld of %lld: status %d", bit, (long long)i, (long long)n,
                         status);
            assert_memory_equal(before, wb_data(wb_get(back.model, "weight")), sizeof before);
            named |= HAS_LINE(wb_error(), "\"model.weight\"", "checksum");
            data[i] ^= (char)(1 << bit);
        }
    assert_true(named);
    for (int64_t i = 0; i < n; i++) {
        put("one", data, (size_t)i);
        assert_int_equal(wb_load_checkpoint(path, &back), WB_ERROR_FORMAT);
    }
    put("one", data, (size_t)n);
    WORKS(wb_load_checkpoint(path, &back));
    wb__free(data);
    unlink(path);
}

/* A pipe, in which a writer cannot go back to add checksums, receives the same bytes as a file. */
TEST(into_a_pipe)
{
    char pipe[100], copy[100];
    snprintf(pipe, sizeof pipe, "%s/pipe", folder);
    snprintf(copy, sizeof copy, "%s/copy", folder);
    wb_layer *m = filled(3);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    pid_t child = fork();
    if (!child) {
        FILE *from = fopen(pipe, "rb"), *to = fopen(copy, "wb");
        for (int c; from && to && (c = fgetc(from)) != EOF;) fputc(c, to);
        _exit(!from || !to || fclose(to));
    }
    WORKS(wb_save(pipe, m));
    WORKS(wb_save(path, m));
    int how;
    waitpid(child, &how, 0);
    assert_true(WIFEXITED(how) && !WEXITSTATUS(how));
    int64_t n, k;
    char *a = wb__file_read(path, &n), *b = wb__file_read(copy, &k);
    assert_true(a && b && n == k && !memcmp(a, b, (size_t)n));
    wb__free(a);
    wb__free(b);
    WORKS(!wb_load(copy));
    each_entry(NULL, true);
}

/* ---- folders --------------------------------------------------------------------------------- */

static char logged[2000];
static void listen(wb_log_level level, const char *text, void *ctx)
{
    size_t n = strlen(logged);
    snprintf(logged + n, sizeof logged - n, "%s\n", text);
}

static void kept(const char *name, int64_t epoch, double metric, int last, bool best)
{
    wb_checkpoint c = {.model = filled((double)epoch), .epoch = epoch, .name = name,
                       .metric = metric, .has_metric = true};
    WORKS(wb_keep_checkpoint(folder, &c, .last = last, .best = best));
}

TEST(the_last_and_the_best)
{
    const double metrics[] = {9, 5, 2, 7, NAN, 2, 3, 4};
    wb_checkpoint back = {.model = filled(0), .name = "a"};
    FAILS(wb_load_latest_checkpoint(folder, &back), WB_ERROR_FILE, folder, "\"a\"");
    FAILS(wb_load_best_checkpoint(folder, &back), WB_ERROR_FILE, folder, "\"a\"", "metric");
    put("a-000001.txt", "mine", 4);
    put("a-1.safetensors", "mine", 4);
    put("a-b-000001.safetensors", "mine", 4);
    put("a-000100.safetensors", "mine", 4);         /* named like a checkpoint */
    for (int i = 0; i < 8; i++) {
        kept("a", i + 1, metrics[i], 2, true);
        kept("a-b", i + 50, metrics[i], 1, false);
    }
    assert_int_equal(files(), 4 + 3 + 1);
    assert_true(there("a-000003.safetensors") && there("a-000007.safetensors") &&
                there("a-000008.safetensors"));
    assert_true(there("a-b-000057.safetensors") && there("a-000100.safetensors") &&
                there("a-b-000001.safetensors"));
    logged[0] = 0;
    wb_set_log(listen, NULL);
    WORKS(wb_load_latest_checkpoint(folder, &back));
    assert_true(back.epoch == 8 && back.metric == 4 && value_of(back.model) == 8);
    assert_true(HAS_LINE(logged, "a-000100.safetensors"));
    WORKS(wb_load_best_checkpoint(folder, &back));
    assert_true(back.epoch == 3 && back.metric == 2 && value_of(back.model) == 3);
    wb_set_log(NULL, NULL);
    back.name = "a-b";
    WORKS(wb_load_latest_checkpoint(folder, &back));
    assert_int_equal(back.epoch, 57);

    /* After a new start, the file written last is the newest one, though its epoch is lower. */
    kept("a", 1, 6, 2, true);
    assert_true(there("a-000001.safetensors") && there("a-000008.safetensors") &&
                there("a-000003.safetensors"));
    assert_false(there("a-000007.safetensors"));
    back.name = "a";
    WORKS(wb_load_latest_checkpoint(folder, &back));
    assert_int_equal(back.epoch, 1);

    wb_checkpoint c = {.model = filled(5), .epoch = 5, .metric = 0.7, .has_metric = true};
    WORKS(wb_keep_checkpoint(folder, &c, .best = true, .higher = true));
    c.epoch = 6, c.metric = 0.5;
    WORKS(wb_keep_checkpoint(folder, &c, .last = 1, .best = true, .higher = true));
    assert_true(there("checkpoint-000005.safetensors") && there("checkpoint-000006.safetensors"));
    c.name = NULL;
    WORKS(wb_load_best_checkpoint(folder, &c));
    assert_int_equal(c.epoch, 5);
    c.epoch = 7, c.has_metric = false;
    FAILS(wb_keep_checkpoint(folder, &c, .best = true), WB_ERROR_ARGUMENT, "metric");
    c.epoch = -1;
    FAILS(wb_keep_checkpoint(folder, &c), WB_ERROR_ARGUMENT, "epoch", "-1");
    c.epoch = 7;
    FAILS(wb_keep_checkpoint(WB_TEST_NOWHERE "/x", &c), WB_ERROR_FILE, WB_TEST_NOWHERE "/x");
    for (int i = 0; i < 6; i++, c.epoch++) WORKS(wb_keep_checkpoint(folder, &c, .last = -1));
    assert_true(there("checkpoint-000005.safetensors") && there("checkpoint-000012.safetensors"));
    WORKS(wb_keep_checkpoint(folder, &c));
    assert_false(there("checkpoint-000005.safetensors"));
    c.epoch = INT64_MAX;
    WORKS(wb_keep_checkpoint(folder, &c));
    c.epoch = 0;
    WORKS(wb_load_latest_checkpoint(folder, &c));
    assert_true(c.epoch == INT64_MAX);
    each_entry(NULL, true);
}

static void flip(const char *name, long at)
{
    char full[200];
    snprintf(full, sizeof full, "%s/%s", folder, name);
    FILE *f = fopen(full, "r+b");
    assert_non_null(f);
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    fputc(c ^ 4, f);
    fclose(f);
}

TEST(damaged_ones_are_passed_over)
{
    for (int i = 1; i <= 5; i++) kept("d", i, 10 - i, 5, true);
    flip("d-000005.safetensors", -3);               /* the values */
    flip("d-000004.safetensors", 8);                /* the header */
    char full[200];
    snprintf(full, sizeof full, "%s/d-000003.safetensors", folder);
    assert_int_equal(truncate(full, 100), 0);
    wb_checkpoint back = {.model = filled(0), .name = "d"};
    logged[0] = 0;
    wb_set_log(listen, NULL);
    WORKS(wb_load_latest_checkpoint(folder, &back));
    assert_int_equal(back.epoch, 2);
    assert_true(HAS_LINE(logged, "d-000005.safetensors", "checksum"));
    assert_true(HAS_LINE(logged, "d-000004.safetensors"));
    assert_true(HAS_LINE(logged, "d-000003.safetensors"));
    WORKS(wb_load_best_checkpoint(folder, &back));
    assert_int_equal(back.epoch, 2);
    logged[0] = 0;
    /* The newest valid file is of another model: older files are not tried. */
    back.model = wb_Dense(3, 2);
    FAILS(wb_load_latest_checkpoint(folder, &back), WB_ERROR_FORMAT, folder, "d-000002.safetensors",
          "model");
    wb_set_log(NULL, NULL);
    kept("d", 6, 1, 1, false);                      /* damaged files are not removed */
    assert_true(there("d-000006.safetensors") && there("d-000004.safetensors") &&
                !there("d-000002.safetensors"));
    each_entry(NULL, true);
}

/* The temporary files of killed writers are removed.  Those of open writers and files with other
 * names are not. */
TEST(leftovers)
{
    put("l-000001.safetensors.0.part", "half", 4);
    put("l-000009.safetensors.3.part", "half", 4);
    put("l-000009.safetensors.x.part", "mine", 4);
    put("one.0.part", "half", 4);
    char under_way[200];
    snprintf(under_way, sizeof under_way, "%s/l-000008.safetensors", folder);
    wb__writer *w = wb__writer_open(under_way), *v = wb__writer_open(under_way);
    assert_true(w && v && there("l-000008.safetensors.0.part") &&
                there("l-000008.safetensors.1.part"));
    kept("l", 1, 0, 1, false);
    assert_false(there("l-000001.safetensors.0.part") || there("l-000009.safetensors.3.part"));
    assert_true(there("l-000008.safetensors.0.part") && there("l-000009.safetensors.x.part"));
    wb__writer_put(v, "v", 1);
    wb__writer_put(w, "w", 1);
    WORKS(wb__writer_close(v));
    WORKS(wb__writer_close(w));
    assert_int_equal(each_entry(is_part, false), 2);
    put("one", "whole", 5);
    assert_int_equal(each_entry(is_part, false), 1);
    each_entry(NULL, true);
}

/* ---- resumed training ------------------------------------------------------------------------ */

static wb_tensor *loss(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(m, b.x), b.y);
}

typedef struct { wb_layer *model; wb_opt_state *state; wb_loader *loader; } run;

static run begin(void)
{
    static float x[N][3], y[N][1];
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 3; k++) x[i][k] = (float)((i * (k + 3)) % 11) / 11 - 0.5f;
        y[i][0] = 2 * x[i][0] - x[i][1] + 0.5f;
    }
    wb_seed(5);
    run r = {.model = wb_Chain(wb_Dense(3, 8, wb_tanh), wb_BatchNorm(8), wb_Dropout(0.2),
                               wb_Dense(8, 1))};
    r.state = wb_setup(wb_Adam(.eta = 0.01), r.model);
    r.loader = wb_dataloader(wb_dataset_of(wb_from(x, WB_F32, 2, (int64_t[]){N, 3}),
                                           wb_from(y, WB_F32, 2, (int64_t[]){N, 1})),
                             .batchsize = 7, .shuffle = true, .seed = 5);
    return r;
}

static int same_bits(wb_tensor *x, const char *name, void *other)
{
    wb_tensor *y = wb_get(other, name);
    if (!y || memcmp(wb_data(x), wb_data(y), (size_t)wb_size(x) * sizeof(float)))
        fail_msg("%s differs", name);
    return 0;
}

static int steps, stop_at;
static int count(int epoch, int64_t batch, wb_tensor *l, void *ctx)
{
    if (++steps == stop_at) kill(getpid(), SIGKILL);
    return 0;
}

static double from_epoch(wb_layer *m, int epoch, void *ctx)
{
    return epoch == 2 ? 0.9 : 0.1;
}

/* Children that train are killed in the middle of an epoch until one finishes all epochs. */
TEST(killed_and_run_again)
{
    run whole = begin();
    WORKS(wb_train(loss, whole.model, whole.loader, whole.state, .epochs = 6));
    for (int into_folder = 0; into_folder < 2; into_folder++) {
        int deaths = 0;
        for (bool ended = false; !ended;) {
            pid_t child = fork();
            if (!child) {
                run r = begin();
                stop_at = 6 * 2 + 3;                /* in its third epoch of six batches */
                WORKS(wb_train(loss, r.model, r.loader, r.state, .epochs = 6, .each = count,
                               .resume = true, .checkpoint = into_folder ? NULL : path,
                               .folder = into_folder ? folder : NULL, .keep_last = 2, .name = "t"));
                _exit(0);
            }
            int how;
            waitpid(child, &how, 0);
            ended = WIFEXITED(how);
            assert_true(ended ? WEXITSTATUS(how) == 0
                              : WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
            assert_true((deaths += !ended) < 4);
        }
        assert_int_equal(deaths, 2);
        run r = begin();
        steps = stop_at = 0;
        WORKS(wb_train(loss, r.model, r.loader, r.state, .epochs = 6, .each = count, .resume = true,
                       .checkpoint = into_folder ? NULL : path,
                       .folder = into_folder ? folder : NULL, .name = "t"));
        assert_int_equal(steps, 0);                 /* all epochs are done */
        wb_each_tensor(whole.model, same_bits, r.model);
        WORKS(wb_train(loss, r.model, r.loader, r.state, .epochs = 1));
        run w = begin();
        WORKS(wb_train(loss, w.model, w.loader, w.state, .epochs = 7));
        wb_each_tensor(w.model, same_bits, r.model);
    }
    assert_int_equal(files(), 1 + 2);
    each_entry(NULL, true);
}

TEST(metrics_of_wb_train)
{
    run r = begin();
    WORKS(wb_train(loss, r.model, r.loader, r.state, .epochs = 5, .folder = folder, .keep_last = 1,
                   .keep_best = true, .metric = from_epoch, .higher = true));
    assert_true(there("checkpoint-000002.safetensors") && there("checkpoint-000005.safetensors"));
    assert_int_equal(files(), 2);
    r = begin();
    double sum = 0;
    WORKS(wb_train(loss, r.model, r.loader, r.state, .checkpoint = path));
    wb_checkpoint c = {.model = r.model};
    WORKS(wb_load_checkpoint(path, &c));
    run again = begin();
    WB_EACH_BATCH(b, again.loader) {
        wb_tree *g;
        wb_tensor *l = wb_withgradient(loss, again.model, b, &g);
        WORKS(wb_update(again.state, again.model, g));
        sum += wb_item(l) * (double)b.n;
    }
    assert_true(c.has_metric && c.metric == sum / 40);
    FAILS(wb_train(loss, r.model, r.loader, r.state, .checkpoint = path, .folder = folder),
          WB_ERROR_ARGUMENT, ".checkpoint", ".folder");
    FAILS(wb_train(loss, r.model, r.loader, r.state, .resume = true), WB_ERROR_ARGUMENT, ".resume");
    /* A folder that cannot be looked into is not one without checkpoints: nothing is trained. */
    const int64_t epochs = wb_loader_epoch(r.loader);
    FAILS(wb_train(loss, r.model, r.loader, r.state, .resume = true, .folder = "/dev/null/x"),
          WB_ERROR_FILE, "/dev/null/x");
    assert_int_equal(wb_loader_epoch(r.loader), epochs);
    each_entry(NULL, true);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* For each n, the n-th call fails while a checkpoint is written.  The last checkpoints and the best
 * one remain valid, and at most one temporary file remains. */
static void faults(void (*fail_at)(int64_t), int64_t (*calls)(void))
{
    wb_layer *m = filled(0);
    bool finished = false;
    wb_set_log(listen, NULL);
    for (int64_t n = 1; !finished; n++) {
        wb_scope *s = wb_scope_open();
        each_entry(NULL, true);
        kept("f", 1, 1, 3, true);                   /* the best */
        kept("f", 2, 2, 3, true);
        kept("f", 3, 3, 3, true);
        put("f-000009.safetensors.0.part", "half", 4);
        wb_checkpoint c = {.model = filled(4), .epoch = 4, .name = "f", .metric = 4,
                           .has_metric = true},
                      back = {.model = m, .name = "f"};
        fail_at(n);
        wb_clear_error();
        int status = wb_keep_checkpoint(folder, &c, .last = 2, .best = true);
        if (status && !wb_error()[0]) fail_msg("failing silently at %lld", (long long)n);
        finished = calls() < n;
        fail_at(0);
        WORKS(wb_load_latest_checkpoint(folder, &back));
        assert_int_equal(back.epoch, value_of(m));
        assert_true(back.epoch == 4 || (back.epoch == 3 && status));
        assert_true(!finished || (back.epoch == 4 && !there("f-000002.safetensors")));
        assert_true(there("f-000003.safetensors") && there("f-000001.safetensors"));
        WORKS(wb_load_best_checkpoint(folder, &back));
        assert_true(back.epoch == 1 && value_of(m) == 1);
        assert_true(each_entry(is_part, false) <= (finished ? 0 : 1));
        wb_scope_close(s);
        assert_true(n < 5000);
    }
    finished = false;
    for (int64_t n = 1; !finished; n++) {           /* the model changes as a whole or not */
        wb_scope *s = wb_scope_open();
        wb_checkpoint back = {.model = m, .name = "f"};
        wb_assign(wb_get(m, "layers.0.weight"), wb_zeros(4, 3));
        assert_int_equal(wb__evaluate_pending(), 0);
        fail_at(n);
        int latest = wb_load_latest_checkpoint(folder, &back);
        int best = wb_load_best_checkpoint(folder, &back);
        finished = calls() < n;
        fail_at(0);
        double value = value_of(m);
        assert_true(latest || best ? value == 0 || value == 4 || value == 1 : value == back.epoch);
        assert_true(!finished || (!latest && !best && back.epoch == 1));
        wb_scope_close(s);
        assert_true(n < 5000);
    }
    wb_set_log(NULL, NULL);
    each_entry(NULL, true);
}

TEST(every_allocation_may_fail) { faults(wb__alloc_fail_at, wb__alloc_count); }
TEST(every_call_may_fail) { faults(wb__io_fail_at, wb__io_count); }

int main(void) { return run_cases(make_folder, empty_folder); }
