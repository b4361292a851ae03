/* Logs of numbers: the bytes that TensorBoard's own code writes, what its reader finds, the CSV
 * file, threads, failures, and wb_train. */
#include "folder.h"
#include "python.h"

#include "base/files/file.h"
#include "train/logger.h"

#include <dirent.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <weber.h>

/* tests/data/make_events.py prints these bytes. */
static const char golden[] =
    "\030\000\000\000\000\000\000\000\243\177K\042\011\000\000\020\100\374T\331A\032\015brain\056"
    "Event\072\062\063\215\057\351\032\000\000\000\000\000\000\000\022\233\330\055\011\000\000"
    "\140\100\374T\331A\020\001\052\015\012\013\012\004loss\025\000\000\100\077Q\362\047\203\044"
    "\000\000\000\000\000\000\000B\053\200M\011\000\000\240\100\374T\331A\020\254\002\052\026\012"
    "\024\012\015train\057gr\303\266\303\237e\025\000\000\200\177\365\347\213\334\244\000\000\000"
    "\000\000\000\000A\023\270\050\011\000\000\340\100\374T\331A\020\377\377\377\377\377\377\377"
    "\377\377\001\052\215\001\012\212\001\012\202\001xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\025"
    "\140B\242\215\066C\032\011";

TEST(the_bytes_are_those_of_tensorboard)
{
    wb__wire_out o = {0};
    char x[131] = "";
    memset(x, 'x', 130);
    wb__event_version(&o, 1700000000.25);
    wb__event_scalar(&o, 1700000001.5, 1, "loss", 0.75f);
    wb__event_scalar(&o, 1700000002.5, 300, "train/gr\303\266\303\237e", INFINITY);
    wb__event_scalar(&o, 1700000003.5, -1, x, -1e-30f);
    assert_false(o.failed);
    assert_int_equal(o.n, sizeof golden - 1);
    assert_memory_equal(o.data, golden, sizeof golden - 1);
    wb__wire_free(&o);
}

/* ---- files ----------------------------------------------------------------------------------- */

static char *read_csv(const char *log)
{
    char path[512];
    int64_t bytes;
    snprintf(path, sizeof path, "%s/scalars.csv", log);
    char *text = wb__file_read(path, &bytes);
    if (!text) fail_msg("%s", wb_error());
    return text;
}

/* The line from its second field on; NULL: there is no such line. */
static const char *line(char *text, int i)
{
    static char fields[512];
    for (; i > 0 && text; i--) text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL;
    if (!text || !*text) return NULL;
    snprintf(fields, sizeof fields, "%.*s", (int)strcspn(text, "\n"), text);
    const char *comma = strchr(fields, ',');
    assert_non_null(comma);
    return comma + 1;
}

static int count_events(const char *log)
{
    DIR *d = opendir(log);
    int n = 0;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        n += !strncmp(e->d_name, "events.out.tfevents.", 20);
    closedir(d);
    return n;
}

/* The number of records of the only file of events. */
static int count_records(const char *log)
{
    DIR *d = opendir(log);
    char path[512] = "";
    int64_t bytes = 0;
    int n = 0;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        if (!strncmp(e->d_name, "events", 6)) snprintf(path, sizeof path, "%s/%s", log, e->d_name);
    closedir(d);
    char *all = wb__file_read(path, &bytes);
    assert_non_null(all);
    for (int64_t at = 0, length; at < bytes; at += 16 + length, n++)
        memcpy(&length, all + at, sizeof length);       /* between two sums: 12 and 4 bytes more */
    wb__free(all);
    return n;
}

/* TensorBoard's reader finds the numbers that the CSV file has. */
static void tensorboard_reads(const char *log)
{
    if (!python_has("tensorboard")) return;
    assert_int_equal(python_script("training/read_events.py", log), 0);
}

TEST_IN_SCOPE(a_log_has_two_files)
{
    const char *path = in_folder("deep/er/log");
    wb_logger *l = wb_logger_open(path);
    if (!l) fail_msg("%s", wb_error());
    assert_int_equal(wb_log_scalar(l, "loss", 0.1, 1), 0);
    assert_int_equal(wb_log_scalar(l, "a \"b\", c", -2.5e-300, INT64_MAX), 0);
    assert_int_equal(wb_log_scalar(l, "loss", NAN, -7), 0);
    assert_int_equal(wb_log_scalar(l, "loss", -INFINITY, 0), 0);
    assert_int_equal(wb_log_scalar(l, "loss", 1.0 / 3, 2), 0);
    assert_int_equal(wb_logger_flush(l), 0);
    char *text = read_csv(path);
    assert_string_equal(line(text, 0), "step,tag,value");
    assert_string_equal(line(text, 1), "1,loss,0.1");
    assert_string_equal(line(text, 2), "9223372036854775807,\"a \"\"b\"\", c\",-2.5e-300");
    assert_string_equal(line(text, 3), "-7,loss,nan");
    assert_string_equal(line(text, 4), "0,loss,-inf");
    assert_string_equal(line(text, 5), "2,loss,0.3333333333333333");
    assert_null(line(text, 6));
    assert_true(fabs(strtod(strchr(text, '\n'), NULL) - (double)time(NULL)) < 60);
    wb__free(text);
    assert_int_equal(wb_logger_close(l), 0);
    FAILS(wb_log_scalar(l, "loss", 1, 1), WB_ERROR_ARGUMENT, "closed");
    FAILS(wb_logger_flush(l), WB_ERROR_ARGUMENT, "closed");
    FAILS(wb_logger_close(l), WB_ERROR_ARGUMENT, "closed");
    char *shown = wb_object_format(l);
    assert_true(HAS_FACTS(shown, "Logger", "closed", path));
    wb_free_text(shown);
    assert_int_equal(count_events(path), 1);
    tensorboard_reads(path);
}

TEST_IN_SCOPE(a_log_goes_on)
{
    const char *path = in_folder("again");
    for (int i = 0; i < 3; i++) {
        wb_scope *scope = wb_scope_open();
        wb_logger *l = wb_logger_open(path);
        assert_int_equal(wb_log_scalar(l, "x", i, i), 0);
        assert_int_equal(wb_scope_close(scope), 0);         /* closes the log too */
        if (i != 1) continue;
        char csv[512];
        snprintf(csv, sizeof csv, "%s/scalars.csv", path);
        FILE *f = fopen(csv, "a");
        fputs("1700000000.000000,9,x,0.", f);           /* a process that was killed */
        fclose(f);
    }
    char *text = read_csv(path);
    assert_string_equal(line(text, 0), "step,tag,value");
    assert_string_equal(line(text, 1), "0,x,0");
    assert_string_equal(line(text, 2), "1,x,1");
    assert_string_equal(line(text, 3), "9,x,0.");
    assert_string_equal(line(text, 4), "2,x,2");
    assert_null(line(text, 5));
    wb__free(text);
    assert_int_equal(count_events(path), 3);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, EACH = 500 };
static wb_logger *shared;

static void *write_many(void *tag)
{
    for (int i = 0; i < EACH; i++)
        if (wb_log_scalar(shared, tag, i, i)) return (void *)"failed";
    return NULL;
}

TEST_IN_SCOPE(threads_share_a_log)
{
    pthread_t threads[THREADS];
    char tags[THREADS][8];
    const char *path = in_folder("threads");
    shared = wb_logger_open(path);
    assert_non_null(shared);
    for (int i = 0; i < THREADS; i++) {
        snprintf(tags[i], sizeof tags[i], "t%d", i);
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, tags[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    assert_int_equal(wb_logger_close(shared), 0);
    char *text = read_csv(path);
    int next[THREADS] = {0};
    for (char *at = strchr(text, '\n') + 1; *at; at = strchr(at, '\n') + 1) {
        int t, value;
        long step;
        assert_int_equal(sscanf(at, "%*d.%*d,%ld,t%d,%d\n", &step, &t, &value), 3);
        assert_int_equal(step, next[t]);
        assert_int_equal(value, next[t]++);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(next[i], EACH);
    wb__free(text);
    tensorboard_reads(path);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* A number is written by the process that has logged it: not again by the end of each child. */
TEST_IN_SCOPE(children_of_fork_write_their_own_numbers)
{
    const char *path = in_folder("forked");
    wb_logger *l = wb_logger_open(path);
    if (!l) fail_msg("%s", wb_error());
    for (int i = 0; i < 5; i++) assert_int_equal(wb_log_scalar(l, "parent", i, i), 0);
    fflush(stdout);                                     /* alone: the log keeps its numbers */
    fflush(stderr);
    for (int i = 0; i < 3; i++) {
        int status;
        const pid_t child = fork();
        if (!child) {
            if (i && wb_log_scalar(l, "child", 7, i)) _exit(1);
            if (i == 2) _exit(wb_logger_close(l));
            fflush(NULL);                               /* as exit does */
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_int_equal(wb_log_scalar(l, "parent", 5, 5), 0);
    assert_int_equal(wb_logger_close(l), 0);
    char *text = read_csv(path);
    static const char *const lines[] = {
        "step,tag,value", "0,parent,0", "1,parent,1", "2,parent,2", "3,parent,3", "4,parent,4",
        "1,child,7", "2,child,7", "5,parent,5"};
    for (int i = 0; i < (int)WB__COUNT(lines); i++) assert_string_equal(line(text, i), lines[i]);
    assert_null(line(text, (int)WB__COUNT(lines)));
    wb__free(text);
    assert_int_equal(count_records(path), 1 + 8);       /* the version, and the numbers */
    tensorboard_reads(path);
}

TEST_IN_SCOPE(wrong_uses)
{
    wb_logger *l = wb_logger_open(in_folder("wrong"));
    char tag[1100] = "";
    memset(tag, 'a', 1024);
    FAILS(wb_log_scalar(l, tag, 1, 1), WB_ERROR_ARGUMENT, "log_scalar", "1023");
    FAILS(wb_log_scalar(l, "", 1, 1), WB_ERROR_ARGUMENT, "log_scalar", "tag");
    FAILS(wb_log_scalar(l, NULL, 1, 1), WB_ERROR_ARGUMENT, "log_scalar", "tag");
    FAILS(wb_log_scalar(l, "\xff", 1, 1), WB_ERROR_ARGUMENT, "log_scalar", "UTF-8");
    FAILS(wb_log_scalar(NULL, "x", 1, 1), WB_ERROR_ARGUMENT, "log_scalar", "NULL");
    FAILS(wb_log_scalar((wb_logger *)wb_ones(2), "x", 1, 1), WB_ERROR_ARGUMENT, "tensor", "logger");
    REFUSED(wb_logger_open(NULL), WB_ERROR_ARGUMENT, "logger_open", "path");
    REFUSED(wb_logger_open(""), WB_ERROR_ARGUMENT, "logger_open", "path");
    put_file(in_folder("file"), "x", 1);
    REFUSED(wb_logger_open(in_folder("file")), WB_ERROR_FILE, "file");
    REFUSED(wb_logger_open(in_folder("file/below")), WB_ERROR_FILE, "file");
    assert_int_equal(mkdir(in_folder("csv"), 0777), 0);
    assert_int_equal(mkdir(in_folder("csv/scalars.csv"), 0777), 0);
    REFUSED(wb_logger_open(in_folder("csv")), WB_ERROR_FILE, "scalars.csv");
    assert_int_equal(wb_logger_close(l), 0);
}

TEST_IN_SCOPE(a_full_disk_is_an_error_until_the_end)
{
    wb_logger *l = wb_logger_open(in_folder("full"));
    struct rlimit before, limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = (struct rlimit){256, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < 20; i++) wb_log_scalar(l, "loss", i, i);
    const int flushed = wb_logger_flush(l);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(flushed, WB_ERROR_FILE);
    FAILED(WB_ERROR_FILE, "cannot", "written");
    FAILS(wb_log_scalar(l, "loss", 1, 1), WB_ERROR_FILE, "written");
    FAILS(wb_logger_close(l), WB_ERROR_FILE, "written");
}

TEST_IN_SCOPE(no_memory)
{
    for (int n = 1;; n++) {
        wb_scope *scope = wb_scope_open();
        wb__alloc_fail_at(n);
        wb_logger *l = wb_logger_open(in_folder("memory"));
        const int status = l ? wb_log_scalar(l, "loss", 1, 1) : WB_ERROR_MEMORY;
        const bool done = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        wb_scope_close(scope);
        if (done) {
            assert_int_equal(status, 0);
            assert_true(n > 4);
            break;
        }
        assert_int_equal(status, WB_ERROR_MEMORY);
        wb_clear_error();
    }
}

/* ---- training -------------------------------------------------------------------------------- */

static wb_tensor *loss(wb_layer *m, wb_batch b, void *ctx) { return wb_mse(wb_call(m, b.x), b.y); }
static double metric(wb_layer *m, int epoch, void *ctx) { return 10 * epoch; }

static wb_tensor *seen[64];
static int n_seen;
static int see(int epoch, int64_t batch, wb_tensor *l, void *ctx)
{
    seen[n_seen++] = wb_retain(l);
    return 0;
}

static wb_loader *batches(void)
{
    wb_seed(3);
    return wb_dataloader(wb_dataset_of(wb_randn(20, 3), wb_randn(20, 1)), .batchsize = 8);
}

TEST_IN_SCOPE(training_writes_losses_and_metrics)
{
    const char *path = in_folder("train");
    wb_loader *data = batches();
    wb_layer *m = wb_Dense(3, 1);
    wb_opt_state *s = wb_setup(wb_Adam(), m);
    wb_logger *l = wb_logger_open(path);
    n_seen = 0;
    if (wb_train(loss, m, data, s, .epochs = 2, .logger = l, .metric = metric, .each = see) ||
        wb_train(loss, m, data, s, .epochs = 1, .logger = l, .each = see))
        fail_msg("%s", wb_error());
    assert_int_equal(wb_logger_close(l), 0);
    assert_int_equal(n_seen, 9);
    char *text = read_csv(path);
    for (int i = 0, at = 1; i < 9; i++) {
        char expected[64], tag[16];
        double value;
        int step;
        assert_int_equal(sscanf(line(text, at++), "%d,%15[a-z],%lf", &step, tag, &value), 3);
        assert_int_equal(step, i + 1);
        assert_string_equal(tag, "loss");
        assert_true(value == wb_item(seen[i]));
        wb_release(seen[i]);
        if (i % 3 != 2 || i > 5) continue;
        snprintf(expected, sizeof expected, "%d,metric,%d", i + 1, 10 * (i / 3 + 1));
        assert_string_equal(line(text, at++), expected);
    }
    assert_null(line(text, 12));
    wb__free(text);
    tensorboard_reads(path);
}

TEST_IN_SCOPE(the_losses_before_a_failure_are_written)
{
    const char *path = in_folder("nan");
    float x[20][3] = {{0}};
    x[17][0] = INFINITY;                /* of the third batch */
    wb_loader *data = wb_dataloader(wb_dataset_of(wb_from(x, WB_F32, 2, (int64_t[]){20, 3}),
                                                  wb_ones(20, 1)), .batchsize = 8);
    wb_layer *m = wb_Dense(3, 1);
    wb_logger *l = wb_logger_open(path);
    FAILS(wb_train(loss, m, data, wb_setup(wb_Adam(), m), .logger = l), WB_ERROR_NUMBER, "3");
    assert_int_equal(wb_logger_close(l), 0);
    char *text = read_csv(path);
    assert_non_null(strstr(line(text, 2), "2,loss,"));
    wb__free(text);
}

TEST_IN_SCOPE(with_accumulated_batches_each_update_has_a_loss)
{
    const char *path = in_folder("accumulate");
    wb_loader *data = batches();
    wb_layer *m = wb_Dense(3, 1);
    wb_logger *l = wb_logger_open(path);
    wb_opt_state *s = wb_setup(wb_OptimizerChain(wb_AccumGrad(2), wb_Adam()), m);
    if (wb_train(loss, m, data, s, .epochs = 2, .logger = l)) fail_msg("%s", wb_error());
    assert_int_equal(wb_logger_close(l), 0);
    char *text = read_csv(path);
    for (int i = 1; i <= 4; i++) assert_int_equal(atoi(line(text, i)), i);
    assert_null(line(text, 5));
    wb__free(text);
}

TEST_IN_SCOPE(a_closed_log_ends_the_training)
{
    wb_loader *data = batches();
    wb_layer *m = wb_Dense(3, 1);
    wb_logger *l = wb_logger_open(in_folder("closed"));
    assert_int_equal(wb_logger_close(l), 0);
    FAILS(wb_train(loss, m, data, wb_setup(wb_Adam(), m), .logger = l), WB_ERROR_ARGUMENT,
          "closed");
}

TEST_IN_SCOPE(numbers_have_a_point_in_every_locale)
{
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        printf("SKIP: there is no locale de_DE.UTF-8\n");
        return;
    }
    wb_logger *l = wb_logger_open(in_folder("locale"));
    assert_int_equal(wb_log_scalar(l, "x", 0.5, 1), 0);
    assert_int_equal(wb_logger_close(l), 0);
    setlocale(LC_NUMERIC, "C");
    char *text = read_csv(in_folder("locale"));
    assert_string_equal(line(text, 1), "1,x,0.5");
    wb__free(text);
}

int main(void) { return run_cases(make_folder, remove_folder); }
