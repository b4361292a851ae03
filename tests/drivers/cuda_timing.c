/* Algorithms of cuBLASLt that are chosen by timing (gpu/runtime/timing.c), on the test doubles,
 * whose algorithms take the times in VGPU_LT_TIMES. */
#include "test.h"

#include "tests/doubles/cuda_double.h"
#include "weber.h"
#include "weber/device.h"

#include <dirent.h>
#include <unistd.h>

enum { N = 40, ALGORITHMS = 3 };

static char folder[] = "/tmp/weber-timing-XXXXXX";
static int64_t (*runs_of)(int);
static char chosen[200];

static void listen(wb_log_level level, const char *text, void *context)
{
    const char *at = strstr(text, "cuBLASLt: algorithm");
    if (at) snprintf(chosen, sizeof chosen, "%s", at);
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
        if (f) f(path);
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
    setenv("VGPU_LT_TIMES", times, 1);
    forget_calls();
}

/* Evaluates a product and returns the algorithm of its last launch, or -1 if the evaluation
 * failed. */
static int product(int n)
{
    static float x[N * N];
    int64_t before[ALGORITHMS];
    wb_scope *scope = wb_scope_open();
    for (int i = 0; i < N * N; i++) x[i] = (float)(i % 7) - 3;
    wb_tensor *a = wb_to(wb_from(x, WB_F32, 2, (int64_t[]){n, n}), wb_device_at("CUDA", 0));
    wb_tensor *y = wb_matmul(a, a);
    if (y && wb_eval(y)) y = NULL;              /* chooses, and launches once */
    for (int i = 0; i < ALGORITHMS; i++) before[i] = runs_of(i);
    wb_tensor *z = y ? wb_matmul(a, a) : NULL;
    int which = -1;
    const float *at = z && !wb_eval(z) ? wb_data(z) : NULL;
    for (int i = 0; i < ALGORITHMS && at; i++)
        if (runs_of(i) != before[i]) which = i;
    double sum = 0;
    for (int k = 0; k < n; k++) sum += (double)x[k] * x[k * n];
    if (at) assert_true(at[0] == (float)sum);
    wb_scope_close(scope);
    return which;
}

static int64_t timed(void) { return count_calls("cuEventElapsedTime"); }

TEST(the_fastest_is_kept)
{
    restart("30,10,20");
    assert_int_equal(product(N), 1);
    if (!strstr(chosen, "algorithm 2 of 3 takes 10.0 us, the first 30.0")) fail_msg("%s", chosen);
    assert_int_equal(timed(), 2 * ALGORITHMS);
    assert_int_equal(product(N), 1);
    assert_int_equal(timed(), 2 * ALGORITHMS);
    restart("5,10,20");                         /* the next process reads the choice */
    assert_int_equal(product(N), 1);
    assert_int_equal(timed(), 0);
    assert_int_equal(product(N - 1), 0);        /* another problem */
    assert_int_equal(timed(), 2 * ALGORITHMS);
    assert_true(each_file(damage) >= 2);
    restart("30,20,10");                        /* a damaged choice is made again */
    assert_int_equal(product(N), 2);
    assert_int_equal(timed(), 2 * ALGORITHMS);
    restart("30,20");                           /* nor is one taken that is not in the list */
    assert_int_equal(product(N), 1);
}

TEST(nothing_is_timed)
{
    restart("30,10,20");
    wb_set_deterministic(true);
    assert_int_equal(product(N), 0);            /* although a choice is on the disk */
    wb_set_deterministic(false);
    setenv("WEBER_GPU_TIMING", "0", 1);
    restart("30,10,20");
    assert_int_equal(product(N), 0);
    setenv("WEBER_GPU_TIMING", "50", 1);        /* this one is too short */
    restart("30,10,20");
    assert_int_equal(product(N), 0);
    setenv("WEBER_GPU_TIMING", "1e-6", 1);
    setenv("WEBER_MEMORY_LIMIT", "22K", 1);     /* no memory for scratch */
    restart("30,10,20");
    assert_int_equal(product(N - 2), 0);
    assert_int_equal(timed(), 0);
    unsetenv("WEBER_MEMORY_LIMIT");
}

/* Each call of the driver may fail: the product is right, or an error. */
TEST(calls_that_fail)
{
    for (int n = 1; n < 400; n++) {
        char which[16], text[200];
        each_file(erase);
        restart("30,10,20");
        snprintf(which, sizeof which, "%d", n);
        setenv(FAIL, which, 1);
        calls_failed(text);
        const int algorithm = product(N);
        const bool failed = calls_failed(text) > 0;
        unsetenv(FAIL);
        if (algorithm < 0 && !failed) fail_msg("%d: %s", n, wb_error());
        wb_clear_error();
        if (!failed) {
            assert_int_equal(algorithm, 1);
            print_message("%d calls\n", n - 1);
            return;
        }
    }
    fail_msg("there is no end");
}

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
    char file[600];
    snprintf(file, sizeof file, "%s/libcublasLt.so.13", path ? path : "");
    void *lt = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (lt) *(void **)&runs_of = dlsym(lt, "vgpu_lt_runs");
    if (!runs_of || !mkdtemp(folder)) return 1;
    setenv("WEBER_CACHE_DIR", folder, 1);
    setenv("WEBER_GPU_TIMING", "1e-6", 1);
    setenv("WEBER_DEBUG", "dispatch", 1);
    wb_set_log(listen, NULL);
    return wb_using("CUDA");
}

int main(void) { return run_cases(begin, NULL); }
