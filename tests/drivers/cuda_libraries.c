/* The libraries that compute a model's steps, on the doubles of CUDA: cuDNN computes attention with
 * its gradient, and convolutions, channels last; cuBLASLt computes products with epilogues and
 * sums.  The gradients equal the CPU's, also if a library declines a step or its launch fails. */
#include "test.h"

#include "tests/doubles/cuda_double.h"
#include "engine/request.h"
#include "weber.h"

/* ---- the log of dispatch --------------------------------------------------------------------- */

static char logs[1 << 16];
static int warnings, rebuilt;

static void listen(wb_log_level level, const char *text, void *context)
{
    if (level >= WB_LOG_WARN && !warnings++) print_message("%s\n", text);
    rebuilt += strstr(text, "plan: made again") != NULL;
    if (strncmp(text, "dispatch:", 9)) return;
    const size_t at = strlen(logs), left = sizeof logs - at;
    snprintf(logs + at, left, "%s\n", text);
}

static int times(const char *what)
{
    int n = 0;
    for (const char *at = logs; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

static bool anything_goes;              /* libraries need not compute all that they support */

static void must_log(const char *what, int at_least)
{
    if (anything_goes || times(what) >= at_least) return;
    fail_msg("\"%s\" %d times, not %d; what was chosen:\n%s", what, times(what), at_least, logs);
}

/* ---- models ---------------------------------------------------------------------------------- */

enum { N = 2, T = 24, WIDTH = 32, HEADS = 2, MOST = 4096 };

static float numbers[MOST];

static wb_tensor *input(int ndim, const int64_t *dims, const wb_device *d)
{
    wb_tensor *x = wb_from(numbers, WB_F32, ndim, dims);
    return wb_variable(wb_to(wb_astype(x, WB_BF16), d));
}

/* The gradient of the sum of y's squares with respect to x, as f32 on the CPU. */
static const float *slopes(wb_tensor *y, wb_tensor *x)
{
    wb_tensor *loss = wb_sum(wb_square(wb_astype(y, WB_F32)));
    wb_tensor *g = wb_cpu(wb_astype(wb_gradient(loss, x), WB_F32));
    const float *at = wb_data(g);
    if (!at) fail_msg("%s", wb_error());
    return at;
}

/* Compares the results and gradients of both devices; `f` computes y from x and the model m. */
static void same(wb_layer *m, wb_tensor *(*f)(wb_layer *m, wb_tensor *x), int ndim,
                 const int64_t *dims)
{
    const wb_device *cpu = wb_device_at("CPU", 0), *gpu = wb_device_at("CUDA", 0);
    int64_t n = 1;
    double off = 0, size = 0;
    for (int i = 0; i < ndim; i++) n *= dims[i];
    if (!cpu || !gpu) fail_msg("%s", wb_error());
    wb_layer *there = wb_to(m, gpu);
    wb_tensor *x = input(ndim, dims, cpu);
    const float *want = slopes(f(m, x), x);
    logs[0] = 0;
    x = input(ndim, dims, gpu);
    const float *got = slopes(f(there, x), x);
    for (int64_t i = 0; i < n; i++) {
        off += pow((double)got[i] - (double)want[i], 2);
        size += pow((double)want[i], 2);
    }
    if (!(sqrt(off) <= 0.02 * sqrt(size))) fail_msg("off by %g of %g", sqrt(off), sqrt(size));
}

static void test_attention(void **state)
{
    wb_scope *scope = wb_scope_open();
    wb_layer *m = wb_MultiHeadAttention(WIDTH, HEADS, .causal = true, .dtype = WB_BF16);
    same(m, wb_call, 3, (int64_t[]){N, T, WIDTH});
    must_log("cuDNN flash", 2);
    assert_int_equal(wb_scope_close(scope), 0);
}

/* Returns the model's result, and records a small step along the gradients of its parameters. */
static wb_tensor *with_gradients(wb_layer *m, wb_tensor *x)
{
    wb_tensor *y = wb_call(m, x);
    wb_update(wb_setup(wb_Descent(1e-4), m), m, wb_gradient(wb_sum(wb_square(y)), m));
    return y;
}

static void test_products(void **state)
{
    wb_scope *scope = wb_scope_open();
    wb_layer *m = wb_Chain(wb_Dense(WIDTH, 4 * WIDTH, wb_gelu, .dtype = WB_BF16),
                           wb_Dense(4 * WIDTH, WIDTH, .dtype = WB_BF16));
    same(m, with_gradients, 2, (int64_t[]){N * T, WIDTH});
    must_log("cuBLASLt bias gelu", 1);
    must_log("cuBLASLt gelu-back", 1);
    must_log("sums", 1);
    assert_int_equal(wb_scope_close(scope), 0);
}

static void test_convolutions(void **state)
{
    wb_scope *scope = wb_scope_open();
    wb_layer *m = wb_Chain(wb_Conv(8, 16, {3}, wb_relu, .dtype = WB_BF16),
                           wb_Conv(16, 8, {3}, .dtype = WB_BF16));
    same(m, with_gradients, 4, (int64_t[]){N, 8, 9, 9});
    must_log("cuDNN bias relu", 1);
    must_log("cuDNN", 5);
    assert_int_equal(wb_scope_close(scope), 0);
}

/* ---- libraries that fail --------------------------------------------------------------------- */

static wb_tensor *in_chain(wb_layer *m, wb_tensor *x)
{
    return with_gradients(m, wb_matmul(x, wb_tanh(wb_transpose(x))));
}

/* Long sums, whose partial results are in a workspace after an arena of an odd size. */
static void test_workspaces(void **state)
{
    for (int64_t rows = 3; rows < 12; rows++) IN_SCOPE {
        wb_seed((uint64_t)rows);
        wb_layer *m = wb_Chain(wb_Dense(rows, 2 * rows + 1, wb_tanh, .dtype = WB_BF16),
                               wb_Dense(2 * rows + 1, 7, .dtype = WB_BF16));
        same(m, in_chain, 2, (int64_t[]){rows, 96});
        must_log("cuBLASLt", 1);
        assert_true(anything_goes || !warnings);
    }
}

/* Every n-th step that a library supports fails, when it is prepared or when it is launched,
 * whichever `variable` selects; the epilogues and sums of the step are then computed otherwise. */
static void unreliable(const char *variable, int n_warnings)
{
    static const char *const turns[] = {"1", "2", "3", "5", "7", "11"};
    for (size_t i = 0; i < WB__COUNT(turns); i++) {
        wb_shutdown();
        wb__cache_clear();
        assert_int_equal(wb_using("CUDA"), 0);
        setenv(variable, turns[i], 1);
        anything_goes = true;
        warnings = 0;
        test_products(NULL);
        test_attention(NULL);
        test_convolutions(NULL);
        test_workspaces(NULL);
        assert_int_equal(warnings, n_warnings);
        anything_goes = false;
        unsetenv(variable);
    }
    wb__cache_clear();
}

static void test_declined_products(void **state)
{
    rebuilt = 0;
    unreliable("VGPU_LT_DECLINES", 0);
    assert_true(rebuilt > 10);
}

static void test_declined_plans(void **state) { (void)state, unreliable("VGPU_DNN_DECLINES", 0); }
static void test_refused_products(void **state) { (void)state, unreliable("VGPU_LT_REFUSES", 1); }
static void test_refused_plans(void **state) { (void)state, unreliable("VGPU_DNN_REFUSES", 1); }

/* ---- memory ---------------------------------------------------------------------------------- */

static int trained(wb_tensor *const *in, wb_tensor **out, void *context)
{
    void *const *all = context;
    wb_layer *m = all[0];
    out[0] = wb_mean(wb_square(wb_astype(wb_call(m, in[0]), WB_F32)));
    return wb_update(all[1], m, wb_gradient(out[0], m)) ? -1 : 1;
}

/* A compiled step with eight batches in turn allocates nothing after twenty steps, and copies no
 * batch. */
static void test_flat_memory(void **state)
{
    enum { BATCHES = 8, STEADY = 20, STEPS = 80 };
    const wb_device *gpu = wb_device_at("CUDA", 0);
    wb_device_memory then, now;
    wb_scope *scope = wb_scope_open();
    wb_layer *m = wb_to(wb_Chain(wb_Dense(WIDTH, 48, wb_relu), wb_Dense(48, WIDTH)), gpu);
    void *all[] = {m, wb_setup(wb_Adam(.eta = 0.001), m)};
    wb_tensor *batch[BATCHES], *out[1];
    wb_compiled *step = wb_compile(trained, all);
    for (int i = 0; i < BATCHES; i++)
        batch[i] = wb_to(wb_from(numbers + 64 * i, WB_F32, 2, (int64_t[]){N * T, WIDTH}), gpu);
    for (int i = 0; i < STEPS; i++) {
        wb_scope *inner = wb_scope_open();
        if (wb_call_compiled(step, 1, &batch[i % BATCHES], 1, out)) fail_msg("%s", wb_error());
        if (!(wb_item(out[0]) >= 0)) fail_msg("step %d: %s", i, wb_error());
        assert_int_equal(wb_scope_close(inner), 0);
        if (i == STEADY - 1) assert_int_equal(wb_device_memory_of(gpu, &then), 0);
        if (i == STEADY - 1) forget_calls();
    }
    assert_int_equal(wb_device_memory_of(gpu, &now), 0);
    assert_int_equal(now.used + now.cached, then.used + then.cached);
    assert_int_equal(now.peak, then.peak);
    assert_int_equal(count_calls("cuMemcpyDtoDAsync_v2"), 0);
    assert_int_equal(count_calls("cuStreamBeginCapture_v2"), 0);
    assert_true(count_calls("cuGraphLaunch") >= STEPS - STEADY);
    assert_int_equal(wb_scope_close(scope), 0);
}

/* Objects that the program holds stay valid after wb_shutdown, and so does the backend, until the
 * next wb_shutdown. */
static void test_shutdowns(void **state)
{
    wb_shutdown();
    assert_int_equal(wb_memory_used(), 0);
    const wb_device *gpu = wb_device_at("CUDA", 0);
    wb_tensor *x = wb_retain(wb_to(wb_from(numbers, WB_F32, 2, (int64_t[]){WIDTH, WIDTH}), gpu));
    assert_int_equal(wb_eval(wb_matmul(x, x)), 0);
    wb_shutdown();
    assert_int_equal(wb_eval(wb_matmul(x, x)), 0);
    wb_release(x);
    wb_shutdown();
    assert_int_equal(wb_memory_used(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention), cmocka_unit_test(test_products),
        cmocka_unit_test(test_convolutions), cmocka_unit_test(test_workspaces),
        cmocka_unit_test(test_declined_products), cmocka_unit_test(test_declined_plans),
        cmocka_unit_test(test_refused_products), cmocka_unit_test(test_refused_plans),
        cmocka_unit_test(test_flat_memory), cmocka_unit_test(test_shutdowns)};
#ifndef WB_TEST_CUDA_DOUBLE
    printf("SKIP: the double of CUDA was not built\n");
    return 77;
#endif
    open_double();
    setenv("WEBER_DEBUG", "dispatch,plan", 1);
    wb_set_log(listen, NULL);
    if (wb_using("CUDA")) {
        print_error("%s\n", wb_error());
        return 1;
    }
    unsigned seed = 7;
    for (int i = 0; i < MOST; i++) {
        seed = seed * 1664525u + 1013904223u;
        numbers[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    wb_shutdown();
    return failed;
}
