/* The tile of our own products, chosen by timing (gpu/runtime/tiles.c), on the double of CUDA or
 * HIP, whose kernels take the times in VGPU_KERNEL_TIMES. */
#include "test.h"

#include "tests/doubles/cuda_double.h"
#include "tests/support/process.h"
#include "weber.h"

#include "engine/request.h"

enum { ROWS = 128, DEEP = 32 };

static const char *backend;             /* CUDA or AMDGPU */
static char folder[400], chosen[200];
static int fresh;

static void listen(wb_log_level level, const char *text, void *context)
{
    const char *at = strstr(text, "Weber: algorithm");
    if (at) snprintf(chosen, sizeof chosen, "%s", at);
}

static int64_t timed(void) { return count_calls("cuEventElapsedTime"); }

/* A process from here on, with the files of earlier ones unless `anew`. */
static void restart(const char *times, bool anew)
{
    char cache[sizeof folder + 20];
    fresh += anew;
    snprintf(cache, sizeof cache, "%s/%d", folder, fresh);
    wb_shutdown();
    *chosen = 0;
    setenv("WEBER_CACHE_DIR", cache, 1);
    setenv("VGPU_KERNEL_TIMES", times, 1);
    assert_int_equal(wb_using(backend), 0);
    forget_calls();
}

/* The tile that a product has. */
static const char *tile(bool deterministic)
{
    static char name[80];
    const wb_device *d = wb_device_at(backend, 0);
    wb__step s = {.kind = WB__STEP_MATMUL, .n_views = 3, .deterministic = deterministic};
    wb__kernel *k = NULL;
    for (int i = 0; i < 3; i++) {
        const int64_t rows = i == 1 ? DEEP : ROWS, cols = i == 0 ? DEEP : ROWS;
        s.views[i] = (wb__view){.dtype = WB_F32, .buffer = i, .ndim = 2, .dims = {rows, cols},
                                .strides = {cols, 1}};
    }
    if (d->backend->prepare(d, &s, &k)) fail_msg("%s", wb_error());
    snprintf(name, sizeof name, "%s", k->impl);
    d->backend->destroy(d, k);
    return name;
}

static const char large[] = "product, tiles of 128", small[] = "product, tiles of 64";

TEST(the_fastest_is_kept)
{
    restart("0,1", true);               /* one group of 128 instead of four of 64 */
    assert_string_equal(tile(false), large);
    if (!strstr(chosen, "algorithm 2 of 2 takes 1.0 us, the first 4.0")) fail_msg("%s", chosen);
    assert_int_equal(timed(), 4);
    restart("100,-1", false);           /* the next process reads the choice */
    assert_string_equal(tile(false), large);
    assert_int_equal(timed(), 0);
    restart("100,-1", true);
    assert_string_equal(tile(false), small);
    assert_int_equal(timed(), 4);
}

TEST(nothing_is_timed)
{
    restart("0,1", true);
    assert_string_equal(tile(true), small);
    assert_int_equal(timed(), 0);
    assert_string_equal(tile(false), large);
    assert_string_equal(tile(true), small);     /* although a choice is on the disk */
    setenv("WEBER_GPU_TIMING", "50", 1);        /* it is too short */
    restart("0,1", true);
    assert_string_equal(tile(false), small);
    assert_int_equal(timed(), 0);
    setenv("WEBER_GPU_TIMING", "1e-6", 1);
}

/* The product that timing chose is right, also when a call fails while it is chosen. */
TEST(calls_that_fail)
{
    static float x[ROWS * DEEP], y[DEEP * ROWS];
    for (int i = 0; i < ROWS * DEEP; i++) x[i] = (float)(i % 7) - 3, y[i] = (float)(i % 5) - 2;
    for (int n = 1; n < 400; n++) {
        char which[16], text[200];
        snprintf(which, sizeof which, "%d", n);
        restart("0,1", true);
        setenv(FAIL, which, 1);
        wb_shutdown();                  /* calls are counted from the start of the driver */
        calls_failed(text);
        wb_scope *scope = wb_scope_open();
        wb_tensor *a = wb_to(wb_from(x, WB_F32, 2, (int64_t[]){ROWS, DEEP}),
                             wb_device_at(backend, 0));
        wb_tensor *b = wb_to(wb_from(y, WB_F32, 2, (int64_t[]){DEEP, ROWS}),
                             wb_device_at(backend, 0));
        wb_tensor *c = a && b ? wb_matmul(a, b) : NULL;
        const float *at = c && !wb_eval(c) ? wb_data(c) : NULL;
        const bool failed = calls_failed(text) > 0;
        unsetenv(FAIL);
        for (int i = 0; i < ROWS * ROWS && at; i += 97) {
            double sum = 0;
            for (int k = 0; k < DEEP; k++)
                sum += (double)x[i / ROWS * DEEP + k] * y[k * ROWS + i % ROWS];
            assert_true(at[i] == (float)sum);
        }
        if (!at && !failed) fail_msg("%d: %s", n, wb_error());
        wb_clear_error();
        wb_scope_close(scope);
        wb_clear_error();
        if (!failed) {
            print_message("%d calls\n", n - 1);
            restart("100,-1", false);
            assert_string_equal(tile(false), large);    /* it was chosen and kept */
            assert_int_equal(timed(), 0);
            return;
        }
    }
    fail_msg("there is no end");
}

TEST(nothing_is_left)
{
    wb_shutdown();
    process_remove(folder);
    assert_int_equal(tell_left(), 0);
}

static int begin(void **state)
{
    open_double();
    backend = getenv("WEBER_BACKENDS");         /* AMDGPU, or not set */
    if (!backend) backend = "CUDA";
    snprintf(folder, sizeof folder, "%s", process_folder());
    setenv("WEBER_CUDA_CUBLASLT", "0", 1);
    setenv("WEBER_AMDGPU_ROCBLAS", "0", 1);
    setenv("WEBER_GPU_TIMING", "1e-6", 1);
    setenv("WEBER_DEBUG", "dispatch", 1);
    wb_set_log(listen, NULL);
    return 0;
}

int main(void) { return run_cases(begin, NULL); }
