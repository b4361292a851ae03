/* Reductions by several groups of one launch, on the double of CUDA: the group that ends last
 * combines the partial results, whichever group it is.  The double also checks that the groups
 * execute their fences. */
#include "test.h"

#include "tests/doubles/cuda_double.h"
#include "weber.h"

#include <math.h>

enum { ELEMENTS = 40000, COLUMNS = 24, BATCH = 2, RUNS = 6 };

static float data[ELEMENTS * COLUMNS];
static const char *const orders[] = {"forward", "backward", "shuffled"};

/* The i-th integer of a run: sums of them are exact in every order. */
static float whole(int64_t i, int run)
{
    return (float)((i * 7 + i / 11 * 5 + run * 13) % 31 - 15);
}

static int64_t place(int run) { return (int64_t)(run + 1) * 6007 % ELEMENTS; }

static wb_tensor *filled(int run, int ndim, const int64_t *dims)
{
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) n *= dims[d];
    for (int64_t i = 0; i < n; i++) data[i] = whole(i, run);
    if (ndim == 1) data[place(run)] = 100, data[place(run) / 2 + 1] = -100;
    return wb_from(data, WB_F32, ndim, dims);
}

/* ---- one launch, and right in every order ---------------------------------------------------- */

static int of_everything(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)ctx;
    out[0] = wb_sum(in[0]);
    out[1] = wb_max(in[0]);
    out[2] = wb_min(in[0]);
    out[3] = wb_sum(wb_square(in[0]));
    return 4;
}

static void check_everything(wb_tensor *const *out, int run)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < ELEMENTS; i++) {
        const double v = (double)data[i];
        sum += v;
        squares += v * v;
    }
    assert_true(wb_item(out[0]) == sum);
    assert_true(wb_item(out[1]) == 100);
    assert_true(wb_item(out[2]) == -100);
    assert_true(wb_item(out[3]) == squares);
}

/* Other numbers in each run: partial results that are missing, or of an earlier run, show.  From
 * the second run on the launch is part of a graph. */
TEST_IN_SCOPE(several_reductions_again_and_again)
{
    static const int64_t dims[] = {ELEMENTS};
    wb_compiled *c = wb_compile(of_everything, NULL);
    for (int run = 0; run < RUNS; run++) {
        wb_tensor *x = filled(run, 1, dims), *out[4];
        setenv("VGPU_ORDER", orders[run % 3], 1);
        WORKS(wb_eval(x));
        forget_calls();
        WORKS(wb_call_compiled(c, 1, &x, 4, out));
        WORKS(wb_eval(out[0], out[1], out[2], out[3]));
        check_everything(out, run);
        if (!run) assert_int_equal(count_calls("cuLaunchKernel"), 1);
    }
    unsetenv("VGPU_ORDER");
}

/* A launch has several tiles of columns and several outer dimensions, each with a counter. */
TEST(tiles_have_counters_of_their_own)
{
    static const int64_t dims[] = {BATCH, ELEMENTS / 2, COLUMNS};
    for (int run = 0; run < RUNS; run++) IN_SCOPE {
        wb_tensor *x = filled(run, 3, dims), *sum = wb_sum(x, 1), *most = wb_max(x, 1);
        setenv("VGPU_ORDER", orders[run % 3], 1);
        WORKS(wb_eval(sum, most));
        for (int64_t b = 0; b < BATCH; b++)
            for (int64_t c = 0; c < COLUMNS; c++) {
                double total = 0;
                float best = -100;
                const float *column = data + b * ELEMENTS / 2 * COLUMNS + c;
                for (int64_t r = 0; r < ELEMENTS / 2; r++) {
                    total += (double)column[r * COLUMNS];
                    best = fmaxf(best, column[r * COLUMNS]);
                }
                assert_true(wb_at(sum, b, c) == total);
                assert_true(wb_at(most, b, c) == (double)best);
            }
    }
    unsetenv("VGPU_ORDER");
}

/* The same bits whichever group is the last, of numbers whose sum depends on the order. */
TEST(same_bits_in_every_order)
{
    double first = 0;
    for (int64_t i = 0; i < ELEMENTS; i++) data[i] = sinf((float)i) * (i % 1000 ? 1 : 1e6f);
    for (int k = 0; k < 3; k++) IN_SCOPE {
        wb_tensor *x = wb_from(data, WB_F32, 2, (int64_t[]){ELEMENTS / 4, 4});
        setenv("VGPU_ORDER", orders[k], 1);
        wb_tensor *y = wb_sum(wb_mul(wb_sum(x, 0), wb_from(data + 1, WB_F32, 1, (int64_t[]){4})));
        const double found = wb_item(y);
        if (!k) first = found;
        assert_true(found == first && found != 0);
    }
    unsetenv("VGPU_ORDER");
}

/* Two long rows, each with several groups: one launch for the sums, one for the means, one for the
 * sums of squares, one for all elements and the variances. */
TEST(long_rows)
{
    enum { ROWS = 2 };
    for (int run = 0; run < 2; run++) IN_SCOPE {
        wb_tensor *x = filled(run, 2, (int64_t[]){ROWS, ELEMENTS});
        WORKS(wb_eval(x));
        wb_tensor *mean = wb_mean(x, .axes = {1}, .keep = true), *apart = wb_sub(x, mean);
        wb_tensor *var = wb_mean(wb_square(apart), .axes = {1}, .keep = true);
        wb_tensor *y = wb_div(apart, wb_sqrt(wb_add(var, 0.5)));
        forget_calls();
        WORKS(wb_eval(y, mean, var));
        if (!run) assert_int_equal(count_calls("cuLaunchKernel"), 4);
        for (int64_t r = 0; r < ROWS; r++) {
            const float *row = data + r * ELEMENTS;
            double sum = 0, squares = 0;
            for (int64_t i = 0; i < ELEMENTS; i++) sum += (double)row[i];
            const double m = sum / ELEMENTS;
            for (int64_t i = 0; i < ELEMENTS; i++)
                squares += ((double)row[i] - m) * ((double)row[i] - m);
            const double v = squares / ELEMENTS;
            assert_true(fabs(wb_at(mean, r, 0) - m) < 1e-6);
            assert_true(fabs(wb_at(var, r, 0) - v) < 1e-4);
            for (int64_t i = 0; i < ELEMENTS; i += 997)
                assert_true(fabs(wb_at(y, r, i) - ((double)row[i] - m) / sqrt(v + 0.5)) < 1e-5);
        }
    }
}

/* The sum of one kernel needs the largest element: it is a launch of its own, like the result. */
TEST_IN_SCOPE(one_reduction_behind_another)
{
    wb_tensor *x = filled(3, 2, (int64_t[]){2, ELEMENTS});
    WORKS(wb_eval(x));
    wb_tensor *y = wb_softmax(x);
    forget_calls();
    WORKS(wb_eval(y));
    assert_int_equal(count_calls("cuLaunchKernel"), 3);
    for (int64_t r = 0; r < 2; r++) {
        double sum = 0;
        for (int64_t i = 0; i < ELEMENTS; i++) sum += exp((double)data[r * ELEMENTS + i]);
        for (int64_t i = 0; i < ELEMENTS; i += 997) {
            const double expected = exp((double)data[r * ELEMENTS + i]) / sum;
            assert_true(fabs(wb_at(y, r, i) / expected - 1) < 1e-5);
        }
    }
}

/* ---- after a failure ------------------------------------------------------------------------- */

/* Each call of an evaluation fails once: the next evaluation finds all counters at 0. */
TEST(a_launch_that_fails)
{
    static const int64_t dims[] = {ELEMENTS};
    int failures = 0;
    for (int n = 1; n < 40; n++) IN_SCOPE {
        char text[24], what[200];
        wb_tensor *x = filled(n % 5, 1, dims), *out[4];
        WORKS(wb_eval(x));
        of_everything(&x, out, NULL);
        snprintf(text, sizeof text, "%d", n);
        setenv(FAIL, text, 1);
        fail_from_here();
        const int status = wb_eval(out[0], out[1], out[2], out[3]);
        unsetenv(FAIL);
        fail_from_here();
        failures += calls_failed(what) > 0 && status && strstr(what, "cuLaunchKernel");
        wb_clear_error();
        if (status) of_everything(&x, out, NULL);
        WORKS(wb_eval(out[0], out[1], out[2], out[3]));
        check_everything(out, n % 5);
    }
    assert_true(failures > 0);
}

TEST(no_wrong_use) { assert_int_equal(books().wrong, 0); }

static int begin(void **state)
{
    (void)state;
    open_double();
    wb_using("CUDA");
    wb_allow_scalar(true);
    wb_set_default_device(wb_device_at("CUDA", 0));
    return 0;
}

int main(void) { return run_cases(begin, NULL); }
