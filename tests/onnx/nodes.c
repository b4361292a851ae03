/* Calls the models of ONNX's own tests, and models of PyTorch, scikit-learn and Keras, and compares
 * their outputs with the expected ones.
 *
 *     nodes [FOLDER]           all tests; their files are in the folder
 *     nodes FOLDER WORD...     the cases whose names contain a word, of this folder of cases; with
 *                              WEBER_TEST_WRITTEN=FILE after their models were written to the file
 *                              and read again
 *
 * nodes.py, exports.py, scikit.py and keras_models.py write the cases; the tests are skipped
 * without their Python packages.  Other processes call the models, so that a crash, or a case
 * without an end, is one failed case.  The results are the tables of docs/onnx.md (page.py). */
#include "test.h"

#include "onnx_case.h"
#include "python.h"
#include "weber.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 200, PATIENCE = 120, LONGEST = 1200, MOST_PRINTED = 60 };

static const char *folder = "onnx-cases";

typedef struct { case_result result; char reason[LONGEST]; } outcome;

/* The memory that the processes share. */
typedef struct { int current; outcome of[]; } shared_state;

typedef struct {
    char folder[1000], *text;
    int n;
    onnx_case *cases;
    shared_state *shared;
    size_t bytes;
    int faults;                         /* processes that failed after their last case */
} suite;

static const char *const results[] = {"failed", "passed", "unsupported"};

/* ---- the list of cases ----------------------------------------------------------------------- */

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s cannot be read", path);
    fseek(f, 0, SEEK_END);
    const size_t n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(n + 1);
    assert_true(text && fread(text, 1, n, f) == n);
    fclose(f);
    text[n] = 0;
    return text;
}

/* The columns of a line of cases.txt, which are ended by tabs */
static onnx_case case_of(char *line)
{
    char *columns[7] = {NULL}, *rest = line;
    for (int i = 0; i < 7; i++) columns[i] = strtok_r(NULL, "\t", &rest);
    if (!columns[6]) fail_msg("cases.txt: %s", line);
    return (onnx_case){columns[0], columns[4], columns[5], columns[6], atof(columns[2]),
                       atof(columns[3])};
}

static void open_suite(suite *s, const char *path)
{
    char file[1100];
    snprintf(s->folder, sizeof s->folder, "%s", path);
    snprintf(file, sizeof file, "%s/cases.txt", path);
    s->text = read_text(file);
    for (const char *c = s->text; *c; c++) s->n += *c == '\n';
    s->cases = calloc((size_t)s->n + 1, sizeof *s->cases);
    char *rest = s->text, *line;
    for (int i = 0; (line = strtok_r(NULL, "\n", &rest)) != NULL; i++) s->cases[i] = case_of(line);
    s->bytes = sizeof *s->shared + (size_t)s->n * sizeof *s->shared->of;
    s->shared = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s->cases && s->shared != MAP_FAILED);
}

static void close_suite(suite *s)
{
    munmap(s->shared, s->bytes);
    free(s->cases);
    free(s->text);
}

static bool is_left_out(const onnx_case *c, int i)
{
    return fewer() > 1 && (i % fewer() || strchr(c->flags, 'h'));
}

/* ---- running --------------------------------------------------------------------------------- */

/* A child: runs the cases from `first` to before `end`. */
static void work(suite *s, int first, int end)
{
    for (int i = first; i < end; i++) {
        outcome *o = &s->shared->of[i];
        s->shared->current = i;
        if (is_left_out(&s->cases[i], i)) {
            o->result = CASE_UNSUPPORTED;
            continue;
        }
        alarm(PATIENCE);
        o->result = run_onnx_case(s->folder, &s->cases[i], o->reason, sizeof o->reason);
        alarm(0);
    }
    s->shared->current = end;
    wb_shutdown();
}

/* What a child has died of */
static void describe_end(int status, char *text, size_t n)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(text, n, "took longer than %d seconds", PATIENCE);
    else if (WIFSIGNALED(status))
        snprintf(text, n, "crashed: %s", strsignal(WTERMSIG(status)));
    else
        snprintf(text, n, "ended with status %d", WEXITSTATUS(status));
}

/* Runs the cases from `first` on; returns the next one to run. */
static int run_batch(suite *s, int first)
{
    const int end = first + BATCH < s->n ? first + BATCH : s->n;
    int status;
    s->shared->current = first;
    fflush(stdout);
    const pid_t child = fork();
    if (!child) {
        work(s, first, end);
        fflush(stdout);
        exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) fail_msg("no process can be started");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return end;
    char text[200];
    describe_end(status, text, sizeof text);
    const int i = s->shared->current;
    if (i >= end) {
        print_error("after the cases %s to %s: a process %s\n", s->cases[first].name,
                    s->cases[end - 1].name, text);
        s->faults++;
        return end;
    }
    s->shared->of[i].result = CASE_FAILED;
    snprintf(s->shared->of[i].reason, LONGEST, "%s", text);
    return i + 1;
}

/* ---- results --------------------------------------------------------------------------------- */

static void write_results(const suite *s)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/results.txt", s->folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < s->n; i++) {
        outcome *o = &s->shared->of[i];
        for (char *c = o->reason; *c; c++)
            if (strchr("\t\n\r", *c)) *c = ' ';
        fprintf(f, "%s\t%s\t%s\n", s->cases[i].name, results[o->result], o->reason);
    }
    assert_int_equal(fclose(f), 0);
}

/* Prints the failed cases; returns the number of those that passed, or -1. */
static int count(const suite *s)
{
    int counts[3] = {0, 0, 0};
    for (int i = 0; i < s->n; i++) {
        const outcome *o = &s->shared->of[i];
        if (counts[o->result]++ < MOST_PRINTED && o->result == CASE_FAILED)
            print_error("%s: %s\n", s->cases[i].name, o->reason);
    }
    print_message("%d passed, %d unsupported, %d failed\n", counts[CASE_PASSED],
                  counts[CASE_UNSUPPORTED], counts[CASE_FAILED]);
    return counts[CASE_FAILED] || s->faults ? -1 : counts[CASE_PASSED];
}

/* Has the cases of a program written, runs them, of which at least a share of `least` must pass,
 * and compares their table with docs/onnx.md.  With `again` the models are written by Weber and
 * read again before, and no table is compared. */
static void run_suite(const char *name, double least, bool again)
{
    suite s = {.n = 0};
    char path[800], action[100], written[820];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(written, sizeof written, "%s/written.onnx", path);
    snprintf(action, sizeof action, "onnx/%s.py write", name);
    if (python_script(action, path)) fail_msg("%s failed", action);
    open_suite(&s, path);
    if (again) write_onnx_cases(written);
    for (int i = 0; i < s.n;) i = run_batch(&s, i);
    write_onnx_cases(NULL);
    if (!again) write_results(&s);
    const int passed = count(&s);
    close_suite(&s);
    assert_true(passed >= (fewer() > 1 ? 1 : (int)(least * s.n)));
    if (fewer() > 1 || again) return;
    snprintf(action, sizeof action, "onnx/%s.py check", name);
    if (python_script(action, path)) fail_msg("docs/onnx.md is not of these results");
}

TEST(cases_of_the_package)
{
    if (!python_has("onnx")) skip();
    run_suite("nodes", 0.75, false);
}

TEST(exports_of_pytorch)
{
    if (!python_has("onnx") || !python_has("torch")) skip();
    run_suite("exports", 1.0, false);
}

TEST(exports_of_scikit_learn)
{
    if (!python_has("onnx") || !python_has("skl2onnx")) skip();
    run_suite("scikit", 0.9, false);
}

TEST(exports_of_keras)
{
    if (!python_has("tf2onnx")) skip();
    run_suite("keras_models", 1.0, false);
}

TEST(cases_written_again)
{
    if (!python_has("onnx")) skip();
    run_suite("nodes", 0.55, true);
}

TEST(exports_written_again)
{
    if (!python_has("onnx") || !python_has("torch")) skip();
    run_suite("exports", 1.0, true);
}

/* ---- some cases by name ---------------------------------------------------------------------- */

static int run_named(const char *path, int n, char **words)
{
    suite s = {.n = 0};
    int failed = 0;
    open_suite(&s, path);
    for (int i = 0; i < s.n; i++) {
        bool named = false;
        for (int w = 0; w < n; w++) named = named || strstr(s.cases[i].name, words[w]);
        if (!named) continue;
        outcome *o = &s.shared->of[i];
        o->result = run_onnx_case(s.folder, &s.cases[i], o->reason, sizeof o->reason);
        failed += o->result == CASE_FAILED;
        printf("%s: %s: %s\n", s.cases[i].name, results[o->result], o->reason);
    }
    close_suite(&s);
    wb_shutdown();
    return failed > 0;
}

int main(int argc, char **argv)
{
    write_onnx_cases(getenv("WEBER_TEST_WRITTEN"));
    if (argc > 2) return run_named(argv[1], argc - 2, argv + 2);
    if (argc > 1) folder = argv[1];
    return run_all_cases();
}
