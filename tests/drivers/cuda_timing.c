/* Algorithms of cuBLASLt and engines of cuDNN that are chosen by timing (gpu/runtime/timing.c), on
 * the test doubles, which take the times in VGPU_LT_TIMES and VGPU_DNN_TIMES. */
#include "test.h"

#include "tests/doubles/cuda_double.h"
#include "weber.h"
#include "weber/device.h"

#include <dirent.h>
#include <unistd.h>

enum { N = 40, ALGORITHMS = 3, MOST = 8 };

static const float filter[] = {1, -2, 3, 0, 2, -1, 1, 1, -3};

static wb_tensor *product(wb_tensor *a, int n)
{
    (void)n;
    return wb_matmul(a, a);
}

static double first_of_product(const float *x, int n)
{
    double sum = 0;
    for (int k = 0; k < n; k++) sum += (double)x[k] * x[k * n];
    return sum;
}

static wb_tensor *convolution(wb_tensor *a, int n)
{
    wb_tensor *w = wb_from(filter, WB_F32, 4, (int64_t[]){1, 1, 3, 3});
    return wb_conv(wb_reshape(a, 1, 1, n, n), wb_to(w, wb_device_at("CUDA", 0)), WB_NONE);
}

static double first_of_convolution(const float *x, int n)
{
    double sum = 0;
    for (int k = 0; k < 9; k++) sum += (double)filter[k] * x[k / 3 * n + k % 3];
    return sum;
}

/* A library, and a step of an [n, n] matrix that it executes.  limit: of memory, too little for
 * timing. */
static struct library {
    const char *name, *file, *runs, *times, *limit;
    wb_tensor *(*step)(wb_tensor *a, int n);
    double (*first)(const float *x, int n);
    int64_t (*runs_of)(int);
} libraries[] = {
    {"cuBLASLt", "libcublasLt.so.13", "vgpu_lt_runs", "VGPU_LT_TIMES", "22K", product,
     first_of_product, NULL},
    {"cuDNN", "libcudnn.so.9", "vgpu_dnn_runs", "VGPU_DNN_TIMES", "25K", convolution,
     first_of_convolution, NULL}};

static char folder[] = "/tmp/weber-timing-XXXXXX";
static const struct library *now;
static char chosen[200];

static void listen(wb_log_level level, const char *text, void *context)
{
    const char *at = now ? strstr(text, now->name) : NULL;
    if (at && strstr(at, ": algorithm")) snprintf(chosen, sizeof chosen, "%s", at);
}

/* Calls f for each file of the cache; returns their number. */
static int each_file(void (*f)(const char *path))
{
    DIR *d = opendir(folder);
    int n = 0;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        char path[sizeof folder + sizeof e->d_name + 1];
        if (*e->d_name == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        f(path);
        n++;
    }
    closedir(d);
    return n;
}

static void damage(const char *path)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, -3, SEEK_END), 0);
    fputs("???", file);
    fclose(file);
}

static void erase(const char *path) { unlink(path); }

/* A process from here on: the device is opened anew. */
static void restart(const char *times)
{
    wb_shutdown();
    *chosen = 0;
    setenv(now->times, times, 1);
    forget_calls();
}

/* Evaluates the library's step and returns the algorithm of its last launch, or -1 if the
 * evaluation failed. */
static int evaluate(int n)
{
    static float x[N * N];
    int64_t before[MOST];
    wb_scope *scope = wb_scope_open();
    for (int i = 0; i < N * N; i++) x[i] = (float)(i % 7) - 3;
    wb_tensor *a = wb_to(wb_from(x, WB_F32, 2, (int64_t[]){n, n}), wb_device_at("CUDA", 0));
    wb_tensor *y = now->step(a, n);
    if (y && wb_eval(y)) y = NULL;              /* chooses, and launches once */
    for (int i = 0; i < MOST; i++) before[i] = now->runs_of(i);
    wb_tensor *z = y ? now->step(a, n) : NULL;
    int which = -1;
    const float *at = z && !wb_eval(z) ? wb_data(z) : NULL;
    for (int i = 0; i < MOST && at; i++)
        if (now->runs_of(i) != before[i]) which = i;
    if (at) assert_true(at[0] == (float)now->first(x, n));
    wb_scope_close(scope);
    return which;
}

static int64_t timed(void) { return count_calls("cuEventElapsedTime"); }

static void for_each_library(void (*f)(void))
{
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        now = &libraries[i];
        f();
    }
}

static void the_fastest(void)
{
    restart("30,10,20");
    assert_int_equal(evaluate(N), 1);
    if (!strstr(chosen, "algorithm 2 of 3 takes 10.0 us, the first 30.0")) fail_msg("%s", chosen);
    assert_int_equal(timed(), 2 * ALGORITHMS);
    assert_int_equal(evaluate(N), 1);
    assert_int_equal(timed(), 2 * ALGORITHMS);
    restart("5,10,20");                         /* the next process reads the choice */
    assert_int_equal(evaluate(N), 1);
    assert_int_equal(timed(), 0);
    assert_int_equal(evaluate(N - 1), 0);       /* another problem */
    assert_int_equal(timed(), 2 * ALGORITHMS);
    assert_true(each_file(damage) >= 2);
    restart("30,20,10");                        /* a damaged choice is made again */
    assert_int_equal(evaluate(N), 2);
    assert_int_equal(timed(), 2 * ALGORITHMS);
    restart("30,20");                           /* nor is one taken that is not in the list */
    assert_int_equal(evaluate(N), 1);
}

TEST(the_fastest_is_kept) { for_each_library(the_fastest); }

/* A candidate whose first run is long is not run again. */
static void long_runs(void)
{
    each_file(erase);
    restart("300000,150000,250000");
    assert_int_equal(evaluate(N), 1);
    if (!strstr(chosen, "algorithm 2 of 3 takes 150000.0 us, the first 300000.0"))
        fail_msg("%s", chosen);
    assert_int_equal(timed(), ALGORITHMS);
    each_file(erase);
}

TEST(runs_that_are_long) { for_each_library(long_runs); }

static void nothing(void)
{
    restart("30,10,20");
    wb_set_deterministic(true);
    assert_int_equal(evaluate(N), 0);           /* although a choice is on the disk */
    wb_set_deterministic(false);
    setenv("WEBER_GPU_TIMING", "0", 1);
    restart("30,10,20");
    assert_int_equal(evaluate(N), 0);
    setenv("WEBER_GPU_TIMING", "50", 1);        /* this one is too short */
    restart("30,10,20");
    assert_int_equal(evaluate(N), 0);
    setenv("WEBER_GPU_TIMING", "1e-6", 1);
    setenv("WEBER_MEMORY_LIMIT", now->limit, 1);        /* no memory for scratch */
    restart("30,10,20");
    assert_int_equal(evaluate(N - 2), 0);
    assert_int_equal(timed(), 0);
    unsetenv("WEBER_MEMORY_LIMIT");
}

TEST(nothing_is_timed) { for_each_library(nothing); }

/* The first five engine configurations whose plans can be made are timed, and those that fail at
 * the launch are not chosen. */
TEST(engines_that_fail)
{
    now = &libraries[1];
    each_file(erase);
    restart("-1,40,-2,30,-1,-1,35,20");
    assert_int_equal(evaluate(N), 7);
    if (!strstr(chosen, "algorithm 5 of 5 takes 20.0 us, the first 40.0")) fail_msg("%s", chosen);
    restart("-1,40,-2,10,-1,-1,35,20");         /* the choice, although another one is faster now */
    assert_int_equal(evaluate(N), 7);
    assert_int_equal(timed(), 0);
    restart("-1,40,-2,30,-1,-1,35,-1");         /* its plan cannot be made any more */
    assert_int_equal(evaluate(N), 3);
    assert_int_equal(timed(), 2 * 3);
    each_file(erase);
    restart("9,8,7,6,5,4");                     /* the sixth is not timed */
    assert_int_equal(evaluate(N), 4);
    each_file(erase);
    restart("-2,-2");                           /* none works, and none is kept */
    evaluate(N);
    wb_clear_error();
    restart("20,10");
    assert_int_equal(evaluate(N), 1);
}

static void failing_calls(void)
{
    for (int n = 1; n < 500; n++) {
        char which[16], text[200];
        each_file(erase);
        restart("30,10,20");
        snprintf(which, sizeof which, "%d", n);
        setenv(FAIL, which, 1);
        calls_failed(text);
        const int algorithm = evaluate(N);
        const bool failed = calls_failed(text) > 0;
        unsetenv(FAIL);
        if (algorithm < 0 && !failed) fail_msg("%d: %s", n, wb_error());
        wb_clear_error();
        if (!failed) {
            assert_int_equal(algorithm, 1);
            print_message("%s: %d calls\n", now->name, n - 1);
            return;
        }
    }
    fail_msg("there is no end");
}

/* Each call of the driver may fail: the result is right, or an error. */
TEST(calls_that_fail) { for_each_library(failing_calls); }

TEST(nothing_is_left)
{
    wb_shutdown();
    each_file(erase);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(tell_left(), 0);
}

static int begin(void **state)
{
    open_double();
    const char *path = getenv("WEBER_CUDA_PATH");
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        struct library *l = &libraries[i];
        char file[600];
        snprintf(file, sizeof file, "%s/%s", path ? path : "", l->file);
        void *opened = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (opened) *(void **)&l->runs_of = dlsym(opened, l->runs);
        if (!l->runs_of) return 1;
    }
    if (!mkdtemp(folder)) return 1;
    setenv("WEBER_CACHE_DIR", folder, 1);
    setenv("WEBER_GPU_TIMING", "1e-6", 1);
    setenv("WEBER_DEBUG", "dispatch", 1);
    wb_set_log(listen, NULL);
    return wb_using("CUDA");
}

int main(void) { return run_cases(begin, NULL); }
