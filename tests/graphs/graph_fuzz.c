/* Random graphs over every operation of the library, each compared with a plain interpreter, which
 * has no plans.
 *
 *   graph_fuzz [--seeds N] [--from S] [--seconds T] [--jobs J] [--shrink] [--folder F]
 *              [--device NAME] [--rules N]
 *
 * A seed determines a program of 3 to 40 operations over small tensors of all dtypes, and the
 * manner of its evaluation: the requested results, their order and how many at once, compiled by
 * wb_compile or not, eager or not, the number of threads, the tensors that are freed in between.
 * Programs run in child processes, so that a crash is a failure like any other.  A failing program
 * is shrunk and printed as C (also into F/SEED.c).  With --rules, N programs of each case of
 * graph_fuzz_rules.c instead.  Exits with 1 if a program fails, or if the
 * comparison has become too weak to find errors. */
#include "graph_fuzz.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __APPLE__
#include <malloc/malloc.h>
#define malloc_usable_size malloc_size
#else
#include <malloc.h>
#endif

enum { MOST_FAILURES = 200, MOST_JOBS = 64, SKIPPED = 77, PATIENCE = 120 };

/* The memory that parent and children share. */
typedef struct {
    _Atomic int64_t next, run, invalid, compared, exact, tight, unknown;
    _Atomic int64_t operations[N_OPS];
    _Atomic int n_failures;
    uint64_t failing[MOST_FAILURES];
    char text[MOST_FAILURES][400];
    uint64_t current[MOST_JOBS];
    verdict last;                       /* of the last attempt at shrinking */
} shared_state;

static shared_state *shared;
static int64_t n_seeds = 2000, first_seed = 1;
static double seconds = 1e18;
static int jobs = 1, rules;
static bool shrinks;
static const char *folder, *device;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Fills new memory with large numbers, so that a read of unwritten memory gives wrong results. */
static void *filled(void *context, void *block, size_t bytes)
{
    (void)context;
    if (!bytes) {
        if (block) memset(block, 0xc7, malloc_usable_size(block));
        free(block);
        return NULL;
    }
    void *more = realloc(block, bytes);
    if (more && !block) memset(more, 0xc7, bytes);
    return more;
}

static void use_device(void)
{
    wb_set_allocator(&(wb_allocator){filled, NULL});
    if (!device) return;
    wb_using(device);
    if (!wb_functional(device)) {
        printf("SKIP: %s is not functional here: %s\n", device, wb_why_not(device));
        fflush(stdout);
        _exit(SKIPPED);
    }
    wb_set_default_device(wb_device_at(device, 0));
    exact_division = false;
}

/* ---- running --------------------------------------------------------------------------------- */

static void note_failure(uint64_t seed, const char *text)
{
    int i = atomic_fetch_add(&shared->n_failures, 1);
    if (i >= MOST_FAILURES) return;
    shared->failing[i] = seed;
    snprintf(shared->text[i], sizeof shared->text[i], "%s", text);
}

static void one_seed(uint64_t seed)
{
    static program p;
    verdict v = {0};
    draw_program(&p, seed, device);
    for (int i = 0; i < p.n; i++) atomic_fetch_add(&shared->operations[p.step[i].op], 1);
    bool valid = run_program(&p, &v);
    atomic_fetch_add(&shared->run, 1);
    atomic_fetch_add(&shared->invalid, !valid);
    atomic_fetch_add(&shared->compared, v.compared);
    atomic_fetch_add(&shared->exact, v.exact);
    atomic_fetch_add(&shared->tight, v.tight);
    atomic_fetch_add(&shared->unknown, v.unknown);
    if (v.failed) note_failure(seed, v.text);
    free_program(&p);
}

static void work(int job, double until)
{
    use_device();
    while (now() < until) {
        int64_t i = atomic_fetch_add(&shared->next, 1);
        if (i >= n_seeds) break;
        shared->current[job] = (uint64_t)(first_seed + i);
        alarm(PATIENCE);
        one_seed((uint64_t)(first_seed + i));
        alarm(0);
    }
    shared->current[job] = 0;
    interpret_forget();
    wb_shutdown();
}

static pid_t start(int job, double until)
{
    fflush(stdout);
    pid_t child = fork();
    if (child) return child;
    work(job, until);
    fflush(stdout);
    exit(0);
}

static int job_of(const pid_t *pids, pid_t child)
{
    for (int j = 0; j < jobs; j++)
        if (pids[j] == child) return j;
    return -1;
}

/* Runs all seeds; false: there is no such device. */
static bool run_all(void)
{
    pid_t pids[MOST_JOBS];
    double begun = now(), until = begun + seconds, reported = begun;
    int left = jobs, status;
    for (int j = 0; j < jobs; j++) pids[j] = start(j, until);
    while (left) {
        pid_t child = waitpid(-1, &status, WNOHANG);
        if (child <= 0) {
            usleep(10000);
            if (now() - reported > 30) {
                reported = now();
                printf("%" PRId64 " of %" PRId64 " programs, %d failed, %.0f s\n",
                       (int64_t)shared->run, n_seeds, (int)shared->n_failures, reported - begun);
                fflush(stdout);
            }
            continue;
        }
        int j = job_of(pids, child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) return false;
        if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || j < 0) {
            left--;
            continue;
        }
        char text[100];
        snprintf(text, sizeof text,
                 WIFSIGNALED(status) ? "ended by signal %d" : "ended with status %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        note_failure(shared->current[j], text);
        if (!shared->current[j]) left--;        /* no program ran: a leak at the end, for example */
        else pids[j] = start(j, until);
    }
    return true;
}

/* ---- shrinking ------------------------------------------------------------------------------- */

static const char *first_text = "";

/* While shrinking, an error of the library counts only if it is the original failure, since a
 * smaller program may be invalid. */
static bool same_error(const verdict *v)
{
    return v->result > -1000 || !strncmp(v->text, first_text, 10);
}

/* Runs in a child process: any abnormal end is a failure. */
static bool fails(const program *p, verdict *v)
{
    fflush(stdout);
    memset(&shared->last, 0, sizeof shared->last);
    pid_t child = fork();
    if (child == 0) {
        verdict mine = {0};
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        alarm(PATIENCE);
        use_device();
        bool valid = run_program(p, &mine);
        if (!valid || !same_error(&mine)) mine.failed = false;
        shared->last = mine;
        _exit(0);
    }
    int status;
    while (waitpid(child, &status, 0) < 0) {}
    *v = shared->last;
    if (WIFSIGNALED(status)) {
        v->failed = true;
        v->result = -1000;
        snprintf(v->text, sizeof v->text, "ended by signal %d", WTERMSIG(status));
    }
    return v->failed;
}

static void show_failure(uint64_t seed, const char *text)
{
    fflush(stdout);
    pid_t child = fork();
    if (child) {
        int status;
        while (waitpid(child, &status, 0) < 0) {}
        return;
    }
    static program p;
    verdict v = {.failed = true, .result = -1000};
    use_device();
    snprintf(v.text, sizeof v.text, "%s", text);
    draw_program(&p, seed, device);
    first_text = text;
    verdict again = v;
    if (fails(&p, &again)) shrink_program(&p, fails, &again);
    else printf("seed %" PRIu64 " fails only after the programs before it\n", seed);
    v = again.failed ? again : v;
    print_program(stdout, &p, &v);
    if (folder) {
        char path[500];
        snprintf(path, sizeof path, "%s/%" PRIu64 ".c", folder, seed);
        FILE *f = fopen(path, "w");
        if (f) print_program(f, &p, &v);
        if (f) fclose(f);
    }
    fflush(stdout);
    _exit(0);
}

/* ---- the program ----------------------------------------------------------------------------- */

static int report(double took)
{
    int64_t compared = shared->compared ? shared->compared : 1;
    int failures = shared->n_failures;
    printf("%" PRId64 " programs in %.1f s, %" PRId64 " of them not valid; %" PRId64
           " elements: %.1f %% exact, %.1f %% "
           "within 1 %%, %.1f %% not known; %d failed\n",
           (int64_t)shared->run, took, (int64_t)shared->invalid, (int64_t)shared->compared,
           100.0 * (double)shared->exact / (double)compared,
           100.0 * (double)shared->tight / (double)compared,
           100.0 * (double)shared->unknown / (double)compared, failures);
    if (failures > MOST_FAILURES) failures = MOST_FAILURES;
    for (int i = 0; i < failures; i++)
        printf("seed %" PRIu64 ": %s\n", shared->failing[i], shared->text[i]);
    for (int i = 0; i < failures && i < 10 && shrinks; i++)
        show_failure(shared->failing[i], shared->text[i]);
    bool weak = shared->invalid * 20 > shared->run || shared->tight * 10 < shared->compared * 8;
    for (int i = 0; i < N_OPS && shared->run >= 2000; i++) {
        if (shared->operations[i]) continue;
        printf("no program has the operation %s\n", op_names[i]);
        weak = true;
    }
    if (weak && shared->run >= 100) printf("the comparison is too weak\n");
    return failures || (weak && shared->run >= 100);
}

static void usage(void)
{
    fprintf(stderr, "graph_fuzz [--seeds N] [--from S] [--seconds T] [--jobs J] [--shrink] "
                    "[--folder F] [--device NAME] [--rules N]\n");
    exit(2);
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--shrink")) {
            shrinks = true;
            continue;
        }
        const char *word = i + 1 < argc ? argv[i + 1] : NULL;
        if (!word) usage();
        if (!strcmp(argv[i], "--seeds")) n_seeds = atoll(word);
        else if (!strcmp(argv[i], "--from")) first_seed = atoll(word);
        else if (!strcmp(argv[i], "--seconds")) seconds = atof(word);
        else if (!strcmp(argv[i], "--jobs")) jobs = atoi(word);
        else if (!strcmp(argv[i], "--folder")) folder = word;
        else if (!strcmp(argv[i], "--device")) device = word;
        else if (!strcmp(argv[i], "--rules")) rules = atoi(word);
        else usage();
        i++;
    }
    if (jobs < 1 || jobs > MOST_JOBS || n_seeds < 1) usage();
}

int main(int argc, char **argv)
{
    read_arguments(argc, argv);
    setenv("WEBER_OPENCL_PRODUCTS", "1", 0);    /* small products in fused kernels on PoCL, too */
    if (rules) {
        setenv("WEBER_DEBUG", "stages", 1);
        use_device();
        return test_rules(rules);
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 2;
    double begun = now();
    if (!run_all()) return SKIPPED;
    return report(now() - begun);
}
