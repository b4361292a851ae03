/* Kernels that keep long rows in local memory, on the double of CUDA or HIP: its local memory is
 * full of NaN when a group begins, and is no larger than the launch asked for. */
#include "test.h"

#include "tests/doubles/cuda_double.h"
#include "weber.h"

#include <math.h>

enum { ROWS = 3, MOST = 60000, RUNS = 4 };

static float data[ROWS * MOST];
static bool hip;                        /* the device is the double of HIP */

static float number(int64_t i, int run)
{
    return (float)((i * 37 + i / 7 * 11 + run) % 61 - 30) / 8;
}

static wb_tensor *filled(int run, wb_dtype t, int64_t cols)
{
    for (int64_t i = 0; i < ROWS * cols; i++) data[i] = number(i, run);
    return wb_astype(wb_from(data, WB_F32, 2, (int64_t[]){ROWS, cols}), t);
}

static double sum_of_row(const float *row, int64_t cols)
{
    double sum = 0;
    for (int64_t i = 0; i < cols; i++) sum += exp((double)row[i]);
    return sum;
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

static int loss_of(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)ctx;
    out[0] = wb_logitcrossentropy(wb_astype(in[0], WB_F32), in[1]);
    out[1] = wb_gradient(out[0], in[0]);
    return 2;
}

/* `least`: the size of the least number of the gradient's dtype that is not 0. */
static void check(wb_tensor *const *out, const int64_t *label, int64_t cols, double relative,
                  double least)
{
    wb_tensor *g = wb_astype(out[1], WB_F32);
    double loss = 0;
    WORKS(wb_eval(g));
    const float *found = wb_data(g);
    for (int64_t r = 0; r < ROWS; r++) {
        const float *row = data + r * cols;
        const double sum = sum_of_row(row, cols);
        loss += (log(sum) - (double)row[label[r]]) / ROWS;
        for (int64_t i = 0; i < cols; i++) {
            const double want = (exp((double)row[i]) / sum - (i == label[r])) / ROWS;
            const double got = (double)found[r * cols + i];
            if (fabs(got - want) <= fabs(want) * relative + least) continue;
            fail_msg("row %d, class %d of %d: %.9g, not %.9g", (int)r, (int)i, (int)cols, got,
                     want);
        }
    }
    assert_true(fabs(wb_item(out[0]) - loss) < 1e-5 * loss);
}

/* From the second run on the launch is part of a graph. */
static void cross_entropy(wb_dtype t, int64_t cols, bool kept, double relative, double least)
{
    wb_scope *s = wb_scope_open();
    wb_compiled *c = wb_compile(loss_of, NULL);
    forget_calls();
    for (int run = 0; run < RUNS; run++) {
        const int64_t label[ROWS] = {0, cols - 1, (run * 1001 + 17) % cols};
        wb_tensor *in[2] = {filled(run, t, cols), wb_from(label, WB_I64, 1, (int64_t[]){ROWS})};
        wb_tensor *out[2];
        setenv("VGPU_ORDER", run % 2 ? "backward" : "forward", 1);
        WORKS(wb_call_compiled(c, 2, in, 2, out));
        check(out, label, cols, relative, least);
    }
    unsetenv("VGPU_ORDER");
    assert_int_equal(wb_scope_close(s), 0);
    if (!hip) assert_int_equal(count_calls("cuFuncSetAttribute") > 0, kept);
}

/* The numbers are exact in all dtypes.  A group of sm_90 can have 227 KiB, one of the double of HIP
 * 48 KiB; rows of less than 16 KiB are not kept. */
TEST(rows_that_fit)
{
    cross_entropy(WB_BF16, 50304, true, 0x1p-8, 1e-30);
    cross_entropy(WB_F32, 50304, true, 1e-5, 1e-12);
    cross_entropy(WB_BF16, 8192, true, 0x1p-8, 1e-30);
    cross_entropy(WB_F16, 16000, true, 0x1p-10, 6e-8);
}

/* Kernels of one text are one function of the driver: rows of another length, whose kernel is made
 * in between, leave it the local memory that the longer ones need. */
static int softmax_of(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)ctx;
    out[0] = wb_softmax(in[0]);
    return 1;
}

TEST_IN_SCOPE(lengths_in_turn)
{
    static const int64_t cols[] = {12000, 6000, 12000, 6000, 12000};
    wb_compiled *c[2] = {wb_compile(softmax_of, NULL), wb_compile(softmax_of, NULL)};
    for (int run = 0; run < (int)(sizeof cols / sizeof *cols); run++) {
        wb_tensor *x = filled(run, WB_F32, cols[run]), *out;
        WORKS(wb_call_compiled(c[run % 2], 1, &x, 1, &out));
        for (int64_t i = 0; i < cols[run]; i += 7) {
            const double want = exp((double)data[i]) / sum_of_row(data, cols[run]);
            assert_true(fabs(wb_at(out, 0, i) - want) <= 1e-5 * want);
        }
    }
}

TEST(rows_of_odd_lengths)
{
    cross_entropy(WB_BF16, 50257, true, 0x1p-8, 1e-30);
    cross_entropy(WB_F16, 9001, true, 0x1p-10, 6e-8);
    cross_entropy(WB_F32, 12001, true, 1e-5, 1e-12);
    cross_entropy(WB_F32, 12002, true, 1e-5, 1e-12);
}

TEST(rows_that_do_not_fit)
{
    cross_entropy(WB_F32, MOST, false, 1e-5, 1e-12);
    cross_entropy(WB_BF16, 8184, false, 0x1p-8, 1e-30);
}

/* ---- other programs -------------------------------------------------------------------------- */

/* Two operands that two loops load; one row of the weights for all rows is not kept. */
static int products(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)ctx;
    wb_tensor *y = in[0], *g = in[1];
    wb_tensor *dot = wb_sum(wb_mul(y, g), .axes = {-1}, .keep = true);
    out[0] = wb_mul(wb_mul(y, wb_sub(g, dot)), in[2]);
    return 1;
}

TEST(two_operands)
{
    enum { COLS = 5001 };
    wb_scope *s = wb_scope_open();
    wb_compiled *c = wb_compile(products, NULL);
    forget_calls();
    for (int run = 0; run < 2; run++) {
        wb_tensor *g = wb_add(filled(run + 1, WB_F32, COLS), 0.5), *out;
        WORKS(wb_eval(g));
        wb_tensor *y = filled(run, WB_F32, COLS);
        wb_tensor *w = wb_from(data, WB_F32, 1, (int64_t[]){COLS});
        WORKS(wb_call_compiled(c, 3, ((wb_tensor *[]){y, g, w}), 1, &out));
        for (int64_t r = 0; r < ROWS; r++) {
            double dot = 0;
            for (int64_t i = 0; i < COLS; i++)
                dot += (double)data[r * COLS + i] * ((double)number(r * COLS + i, run + 1) + 0.5);
            for (int64_t i = 0; i < COLS; i += 11) {
                const double other = (double)number(r * COLS + i, run + 1) + 0.5;
                const double want = (double)data[r * COLS + i] * (other - dot) * (double)data[i];
                assert_true(fabs(wb_at(out, r, i) - want) <= 1e-5 * fabs(want));
            }
        }
    }
    assert_int_equal(wb_scope_close(s), 0);
    if (!hip) assert_true(count_calls("cuFuncSetAttribute") > 0);
}

/* A kernel with numbers of its run is a table in a graph. */
static int drawn(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)ctx;
    out[0] = wb_mul(wb_softmax(in[0]), wb_add(wb_rand(ROWS, MOST / 4), 1));
    return 1;
}

TEST(a_table)
{
    enum { COLS = MOST / 4 };
    wb_scope *s = wb_scope_open();
    wb_compiled *c = wb_compile(drawn, NULL);
    double before = 0;
    forget_calls();
    for (int run = 0; run < RUNS; run++) {
        wb_tensor *x = filled(run, WB_F32, COLS), *out;
        WORKS(wb_call_compiled(c, 1, &x, 1, &out));
        for (int64_t r = 0; r < ROWS; r++) {
            const double sum = sum_of_row(data + r * COLS, COLS);
            for (int64_t i = 0; i < COLS; i += 7) {
                const double p = exp((double)data[r * COLS + i]) / sum;
                const double ratio = wb_at(out, r, i) / p;
                assert_true(ratio > 1 - 1e-5 && ratio < 2 + 1e-5);
            }
        }
        const double now = wb_at(out, 0, 0) * sum_of_row(data, COLS) / exp((double)data[0]);
        assert_true(fabs(now - before) > 1e-6);         /* other numbers are drawn */
        before = now;
    }
    assert_int_equal(wb_scope_close(s), 0);
    if (!hip) assert_true(count_calls("cuFuncSetAttribute") > 0);
}

TEST(no_wrong_use) { assert_int_equal(books().wrong, 0); }

static int begin(void **state)
{
    (void)state;
    open_double();
    const char *backend = getenv("WEBER_BACKENDS");     /* AMDGPU, or not set */
    hip = backend != NULL;
    if (!backend) backend = "CUDA";
    wb_using(backend);
    wb_allow_scalar(true);
    wb_set_default_device(wb_device_at(backend, 0));
    return 0;
}

int main(void) { return run_cases(begin, NULL); }
