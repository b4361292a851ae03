/* Graphs with two branches, on the double of CUDA or HIP, which runs their kernels in every order
 * that the graph allows, one in the middle of another: the bits are those of one chain. */
#include "test.h"

#include "tests/doubles/cuda_double.h"
#include "weber.h"

#include "engine/request.h"

enum {
    LAYERS = 10, BATCH = 4, PIXELS = 6, CHANNELS = 8,   /* of `train` */
    ROWS = 4096, COLUMNS = 24, STEPS = 5, NUMBERS = 8192
};

static const char *const schedules[] = {"latest", "lazy", "round", "random:1", "random:2",
                                        "random:3", "random:4", "random:5"};
static const wb_device *device;
static int chains;                      /* graphs that were reported as one chain */

/* Plans are not printed. */
static void count_chains(wb_log_level level, const char *text, void *context)
{
    (void)level, (void)context;
    chains += strstr(text, "is one chain: ") != NULL;
}

static wb_tensor *filled(int seed, int ndim, const int64_t *dims)
{
    static float data[ROWS * COLUMNS];
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) n *= dims[d];
    assert_true(n <= (int64_t)WB__COUNT(data));
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)((i * 37 + i / 7 * 11 + seed * 5) % 61 - 30) / 64;
    return wb_from(data, WB_F32, ndim, dims);
}

/* ---- programs -------------------------------------------------------------------------------- */

typedef struct { int n; wb_tensor *variable[LAYERS + 1]; } model;

/* A network with convolutions: most gradients of its weights are in the other branch. */
static int train(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    model *m = ctx;
    wb_tensor *h = in[0];
    for (int i = 0; i < LAYERS; i++)
        h = wb_tanh(wb_conv(h, m->variable[i], WB_NONE, .pad = {1}));
    h = wb_reshape(h, BATCH, CHANNELS * PIXELS * PIXELS);
    out[0] = wb_mean(wb_square(wb_matmul(h, m->variable[LAYERS])));
    for (int i = m->n - 1; i >= 0; i--) {
        wb_tensor *v = m->variable[i];
        wb_assign(v, wb_sub(v, wb_mul(wb_gradient(out[0], v), 0.5)));
    }
    return 1;
}

static void make_train(model *m, wb_tensor **in)
{
    *in = filled(1, 4, (int64_t[]){BATCH, CHANNELS, PIXELS, PIXELS});
    for (m->n = 0; m->n < LAYERS; m->n++)
        m->variable[m->n] = wb_variable(
            filled(2 + m->n, 4, (int64_t[]){CHANNELS, CHANNELS, 3, 3}));
    m->variable[m->n++] = wb_variable(filled(7, 2, (int64_t[]){CHANNELS * PIXELS * PIXELS, 16}));
}

/* Sums with tickets, by one text in both branches. */
static int sum_up(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    model *m = ctx;
    wb_tensor *sums = wb_sum(wb_square(in[0]), .axes = {0}, .keep = true);
    for (int i = 0; i < 3; i++) sums = wb_matmul(sums, m->variable[0]);
    out[0] = sums;
    out[1] = wb_sum(wb_square(m->variable[1]), .axes = {0});
    return 2;
}

/* The other branch has a run-time number and a workspace, as the first kernel of the main branch.
 * A kernel that is far behind it writes the variable that it reads. */
static int write_late(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    model *m = ctx;
    wb_tensor *product = wb_mul(m->variable[0], wb_mean(wb_square(in[0])));
    for (int i = 0; i < 20; i++) product = wb_tanh(wb_matmul(product, m->variable[0]));
    out[0] = wb_sum(wb_square(wb_mul(m->variable[1], 0.75)));
    wb_assign(m->variable[1], wb_add(m->variable[1], wb_mul(in[0], wb_mean(product))));
    return 1;
}

static void make_sums(model *m, wb_tensor **in)
{
    *in = filled(1, 2, (int64_t[]){ROWS, COLUMNS});
    m->n = 2;
    m->variable[0] = wb_variable(filled(2, 2, (int64_t[]){COLUMNS, COLUMNS}));
    m->variable[1] = wb_variable(filled(3, 2, (int64_t[]){ROWS, COLUMNS}));
}

static const struct {
    int n, beside;              /* results; kernels that are not in the longest chain */
    int (*call)(wb_tensor *const *in, wb_tensor **out, void *ctx);
    void (*make)(model *m, wb_tensor **in);
} programs[] = {{1, 10, train, make_train}, {2, 1, sum_up, make_sums},
              {1, 1, write_late, make_sums}};

/* The n-th call from here on fails; 0: none does. */
static void make_fail(int n)
{
    char text[24];
    snprintf(text, sizeof text, "%d", n);
    setenv(FAIL, text, 1);
    fail_from_here();
}

/* Runs a program some times, and makes a call fail (fail_at) when its graph is made.  Writes its
 * results, and its variables at the end, to `found`.  Returns the number of values; -1: a step
 * failed. */
static int run(int which, int fail_at, float *found)
{
    int n = 0, status = 0;
    wb__cache_clear();
    wb_scope *s = wb_scope_open();
    model m;
    wb_tensor *in, *out[2];
    programs[which].make(&m, &in);
    WORKS(wb_eval(in));
    wb_compiled *c = wb_compile(programs[which].call, &m);
    for (int i = 0; i < STEPS && !status; i++) {
        if (i == 1 && fail_at) make_fail(fail_at);
        status = wb_call_compiled(c, 1, &in, programs[which].n, out);
        for (int k = 0; k < programs[which].n && !status; k++) {
            const float *data = wb_data(out[k]);
            status = data ? 0 : wb_error_code();
            for (int64_t j = 0; j < wb_size(out[k]) && !status; j++) found[n++] = data[j];
        }
    }
    for (int i = 0; i < m.n && !status; i++) {
        const float *data = wb_data(m.variable[i]);
        status = data ? 0 : wb_error_code();
        for (int64_t j = 0; j < wb_size(m.variable[i]) && j < 1000 && !status; j++)
            found[n++] = data[j];
    }
    if (fail_at) make_fail(0);
    if (status) wb_clear_error();
    if (wb_scope_close(s)) wb_clear_error();
    return status ? -1 : n;
}

static int run_as_chain(int which, float *found)
{
    setenv("WEBER_GPU_BRANCHES", "0", 1);
    const int n = run(which, 0, found);
    unsetenv("WEBER_GPU_BRANCHES");
    assert_true(n > 0 && n <= NUMBERS);
    return n;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static float expected[NUMBERS], found[NUMBERS];

TEST(bits_of_one_chain)
{
    for (int which = 0; which < (int)WB__COUNT(programs); which++) {
        forget_calls();
        const int n = run_as_chain(which, expected);
        assert_true(count_calls("cuGraphLaunch") > 1);
        assert_int_equal(books().chain, books().nodes);
        for (size_t i = 0; i < WB__COUNT(schedules); i++) {
            setenv("VGPU_SCHEDULE", schedules[i], 1);
            forget_calls();
            assert_int_equal(run(which, 0, found), n);
            assert_int_equal(books().nodes - books().chain, programs[which].beside);
            if (memcmp(expected, found, (size_t)n * sizeof *found))
                fail_msg("program %d, %s: other bits", which, schedules[i]);
            if (books().wrong) fail_msg("%s: %s", schedules[i], books().first_wrong);
        }
    }
    unsetenv("VGPU_SCHEDULE");
}

/* Each call fails once.  Without the queue or an event of the other branch a graph is one chain. */
TEST(a_call_fails)
{
    enum { ALL = 33 };                  /* a queue and 32 events */
    const int n = run_as_chain(0, expected);
    char what[200];
    wb_set_log(count_chains, NULL);
    for (int call = 1, more = 1; more && chains < ALL; call++) {
        wb__cache_clear();
        device->backend->stop();
        const int ran = run(0, call, found);
        more = calls_failed(what) > 0;
        if (ran >= 0 && (ran != n || memcmp(expected, found, (size_t)n * sizeof *found)))
            fail_msg("%s: other bits", what);
        if (books().wrong) fail_msg("%s: %s", what, books().first_wrong);
    }
    wb_set_log(NULL, NULL);
    assert_int_equal(chains, ALL);
}

TEST(nothing_is_left)
{
    wb__cache_clear();
    device->backend->stop();
    assert_int_equal(tell_left(), 0);
}

static int begin(void **state)
{
    (void)state;
    open_double();
    setenv("WEBER_DEBUG", "plan", 1);
    const char *backend = getenv("WEBER_BACKENDS");     /* AMDGPU, or not set */
    if (!backend) backend = "CUDA";
    wb_using(backend);
    wb_set_default_device(device = wb_device_at(backend, 0));
    return device ? 0 : 1;
}

int main(void) { return run_cases(begin, NULL); }
