/* Values that a loop reads: slices, rows and elements whose index changes from step to step make no
 * new plans. */
#include "reference.h"

#include "engine/tensor.h"

static int64_t built(void) { return wb_stats().plans_built; }

static array numbers(int64_t from, int64_t n, double scale)
{
    array x = ref_new(1, &n);
    for (int64_t i = 0; i < n; i++) x.at[i] = scale * (double)(from + i);
    return x;
}

static wb_tensor *dense(array x, wb_dtype t)
{
    wb_tensor *y = tensor_of(x, t, 0);
    assert_int_equal(wb_eval(y), 0);
    return y;
}

/* ---- slices of a result ---------------------------------------------------------------------- */

static wb_tensor *row(wb_tensor *x, int64_t i) { return wb_slice(x, 0, i, i + 1); }
static wb_tensor *column(wb_tensor *x, int64_t i) { return wb_slice(x, 1, i, i + 1); }
static wb_tensor *element(wb_tensor *x, int64_t i)
{
    return wb_reshape_array(wb_slice(wb_slice(x, 0, i, i + 1), 1, 6 - i, 7 - i), 0, NULL);
}
static wb_tensor *turned(wb_tensor *x, int64_t i)
{
    return wb_slice(wb_transpose(x), 0, i % 3, 7, 3);
}
static wb_tensor *nothing(wb_tensor *x, int64_t i) { return wb_slice(x, 0, i, i); }

static wb_tensor *(*const slices[])(wb_tensor *x, int64_t i) = {row, column, element, turned,
                                                                nothing};

/* The second read evaluates the tensor, so any number of reads takes three plans.  The values are
 * those of slices of a tensor that was evaluated before. */
TEST(slices_of_a_result)
{
    static const wb_dtype types[] = {WB_F32, WB_F16, WB_BF16, WB_I32};
    for (size_t k = 0; k < WB__COUNT(slices); k++)
        for (size_t t = 0; t < WB__COUNT(types); t++) IN_SCOPE {
            wb_tensor *x = dense(ref_reshape(numbers(0, 49, 1), 2, (int64_t[]){7, 7}), types[t]);
            wb_tensor *y = wb_mul(x, x), *known = wb_mul(x, x);
            assert_int_equal(wb_eval(known), 0);
            array want[7];
            for (int64_t i = 0; i < 7; i++) want[i] = values_of(slices[k](known, i));
            const int64_t before = built();
            for (int64_t i = 0; i < 7; i++)
                check(slices[k](y, i), want[i], 0, 0, "slice %zu of a result, %lld", k,
                      (long long)i);
            if (built() - before > 3)
                fail_msg("slice %zu: %lld plans", k, (long long)(built() - before));
            ref_forget();
        }
}

/* Slices that are evaluated together are one plan, which computes no more than them. */
TEST_IN_SCOPE(slices_at_once)
{
    wb_tensor *x = dense(numbers(0, 12, 1), WB_F32);
    wb_tensor *y = wb_neg(x), *a = wb_slice(y, 0, 0, 4), *b = wb_slice(y, 0, 8, 12);
    const int64_t before = wb_stats().steps;
    assert_int_equal(wb_eval(a, b), 0);
    assert_int_equal(wb_stats().steps - before, 1);
    assert_null(y->storage);
    check(a, numbers(0, 4, -1), 0, 0, "the first");
    check(b, numbers(8, 4, -1), 0, 0, "the last");
}

/* ---- variables ------------------------------------------------------------------------------- */

/* Rows of a variable that each step writes. */
TEST_IN_SCOPE(rows_of_what_is_assigned)
{
    wb_tensor *v = wb_variable(dense(numbers(0, 12, 1), WB_F32));
    int64_t plans = 0;
    for (int64_t i = 0; i < 9; i++) IN_SCOPE {
        if (i == 1) plans = built();
        assert_int_equal(wb_assign(v, wb_add(v, wb_scalar(1))), 0);
        check(wb_slice(v, 0, i, i + 3), numbers(2 * i + 1, 3, 1), 0, 0, "row %lld", (long long)i);
        assert_true(wb_item(wb_slice(v, 0, 11, 12)) == (double)(i + 12));
    }
    assert_int_equal(built(), plans);
    ref_forget();
}

/* A slice of a version that a later write replaces before it is evaluated. */
TEST_IN_SCOPE(rows_between_two_writes)
{
    wb_tensor *v = wb_variable(dense(numbers(0, 12, 1), WB_F32));
    assert_int_equal(wb_assign(v, wb_add(v, wb_scalar(1))), 0);
    wb_tensor *between = wb_slice(v, 0, 1, 4), *of_it = wb_neg(between);
    assert_int_equal(wb_assign(v, wb_add(v, wb_scalar(1))), 0);
    wb_tensor *last = wb_slice(v, 0, 1, 4);
    assert_int_equal(wb_eval(between, last), 0);
    check(between, numbers(2, 3, 1), 0, 0, "between the writes");
    check(last, numbers(3, 3, 1), 0, 0, "after both");
    check(of_it, numbers(2, 3, -1), 0, 0, "what reads it");
    ref_forget();
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* A loop that moves batches to the device, and reads elements, rows and results. */
TEST_IN_SCOPE(moving_and_reading)
{
    const wb_device *d = wb_default_device();
    array x = ref_reshape(numbers(0, 112, 1), 2, (int64_t[]){16, 7});
    wb_tensor *far = dense(x, WB_F32), *v = wb_variable(far);
    wb_set_default_device(wb_cpu_device());
    wb_tensor *near = dense(x, WB_F32);
    wb_allow_scalar(true);
    int64_t plans = 0;
    for (int64_t i = 0; i < 15; i++) IN_SCOPE {
        if (i == 1) plans = built();
        const double here = x.at[7 * i + i % 7];
        float row[7], sum = 0;
        for (int k = 0; k < 14; k++) sum += (float)x.at[7 * i + k];
        assert_true(wb_item(wb_sum(wb_to(wb_slice(near, 0, i, i + 2), d))) == sum);
        assert_int_equal(wb_copy_out(wb_slice(far, 0, i, i + 1), row, sizeof row), 0);
        for (int k = 0; k < 7; k++) assert_true(row[k] == x.at[7 * i + k]);
        assert_true(wb_at(far, i, i % 7) == here);
        assert_true(wb_item(wb_slice(wb_slice(v, 0, i, i + 1), 1, i % 7, i % 7 + 1)) == here);
        wb_tensor *back = wb_cpu(wb_slice(v, 1, i % 7, i % 7 + 1));
        assert_true(back && ((const float *)wb_data(back))[i] == here);
    }
    assert_int_equal(built(), plans);
    wb_set_default_device(d);
    ref_forget();
}

/* ---- the cost of a step ---------------------------------------------------------------------- */

/* Tensors that a training step of a small network with Adam makes: counted, since time is not. */
TEST_IN_SCOPE(a_step_makes_few_tensors)
{
    wb_layer *m = wb_Chain(wb_Dense(2, 3, wb_tanh), wb_Dense(3, 2));
    wb_opt_state *o = wb_setup(wb_Adam(.eta = 0.01), m);
    wb_tensor *x = wb_randn(8, 2), *y = wb_onehotbatch(wb_argmax(x, 1), 2);
    assert_int_equal(wb_eval(x, y), 0);
    for (int i = 0; i < 3; i++) IN_SCOPE {
        wb_tensor *loss = wb_logitcrossentropy(wb_call(m, x), y);
        assert_int_equal(wb_update(o, m, wb_gradient(loss, m)), 0);
        const int made = wb__this_thread()->made;
        if (made > 42) fail_msg("%d tensors besides literals and writes", made);
        wb_item(loss);
    }
}

int main(int argc, char **argv) { return run_with_options(argc, argv); }
