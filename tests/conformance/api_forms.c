/* The forms of the public macros: numbers as operands, lists, calls with several inputs, nested
 * calls, arguments with side effects. */
#include "reference.h"

#include "weber/nn.h"

static double first(wb_tensor *x) { return wb_at_array(x, wb_ndim(x), (int64_t[WB_MAX_DIMS]){0}); }

TEST_IN_SCOPE(operands_may_be_numbers)
{
    wb_tensor *x = wb_full(3, 2, 2), *n = wb_full_array(7, WB_I32, 1, (int64_t[]){2});
    const int i = 2;
    const int64_t l = 2;
    const float f = 0.5f;
    const unsigned char c = 4;
    assert_true(first(wb_add(x, i)) == 5 && first(wb_sub(l, x)) == -1 && first(wb_mul(x, f)) == 1.5);
    assert_true(first(wb_div(x, c)) == 0.75 && first(wb_pow(2, x)) == 8 && first(wb_maximum(x, 4.0)) == 4);
    assert_true(first(wb_minimum(1u, x)) == 1 && first(wb_div(n, 2)) == 3);
    assert_true(first(wb_gt(x, 2)) == 1 && first(wb_le(x, 2)) == 0 && first(wb_eq(3, x)) == 1);
    assert_true(first(wb_ne(x, 3)) == 0 && first(wb_lt(x, 3)) == 0 && first(wb_ge(x, 3)) == 1);
    assert_true(first(wb_where(wb_gt(x, 2), 1, x)) == 1 && first(wb_where(wb_lt(x, 2), x, -1.5)) == -1.5);
    assert_int_equal(wb_dtype_of(wb_mul(n, 3)), WB_I32);
    assert_null(wb_mul(n, 0.5));                /* an integer dtype does not hold it */
    wb_clear_error();
    assert_null(wb_add(NULL, 1));
    assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
    wb_clear_error();
    assert_true(first(wb_gradient(wb_sum(wb_mul(wb_square(x), 0.5)), x)) == 3);
}

TEST_IN_SCOPE(arguments_are_evaluated_once)
{
    wb_tensor *x[] = {wb_ones(2), wb_full(2, 2), wb_full(3, 2)};
    int i = 0;
    double d = 1;
    assert_true(first(wb_add(x[i++], d++)) == 2 && i == 1 && d == 2);
    i = 0;
    wb_tensor *kept = wb_keep(x[i++]);
    assert_true(kept == x[0] && i == 1);
    assert_true(first(wb_cpu(x[i++])) == 2 && i == 2);
}

/* Each level has the text of its operand once: 24 levels compile at once. */
TEST_IN_SCOPE(calls_nest)
{
    wb_tensor *x = wb_full(1, 3);
#define TWICE(x) wb_add(wb_mul(x, 0.5), wb_mul(x, 0.5))
#define FOUR(x) wb_add(wb_sub(wb_add(wb_sub(x, 1), 1), 1), 1)
    assert_true(first(TWICE(TWICE(TWICE(x)))) == 1);
    assert_true(first(FOUR(FOUR(FOUR(FOUR(FOUR(FOUR(x))))))) == 1);
    wb_layer *deep = wb_Chain(wb_Chain(wb_Chain(wb_Chain(wb_Chain(wb_Chain(wb_Chain(wb_relu)))))));
    assert_true(first(wb_call(deep, x)) == 1);
}

TEST_IN_SCOPE(layers_take_several_inputs)
{
    wb_seed(2);
    wb_layer *attend = wb_MultiHeadAttention(8, 2), *cell = wb_LSTMCell(3, 4);
    wb_tensor *q = wb_randn(1, 2, 8), *k = wb_randn(1, 5, 8), *v = wb_randn(1, 5, 8);
    wb_tensor *want = wb_call_array(attend, 3, (wb_tensor *[]){q, k, v}), *got = wb_call(attend, q, k, v);
    assert_true(wb_item(wb_sum(wb_abs(wb_sub(want, got)))) == 0);
    assert_non_null(wb_call(cell, wb_zeros(1, 3), wb_zeros(1, 4), wb_zeros(1, 4)));
    wb_tensor *(*call)(wb_layer *, wb_tensor *) = wb_call;      /* the function of the name */
    assert_non_null(call(attend, q));
}

TEST_IN_SCOPE(lists_are_what_is_written)
{
    wb_tensor *x = wb_ones(1, 1, 4, 6), *w = wb_ones(1, 1, 3, 3);
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .pad = {1, 0})), "[1,1,4,4] f32");
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .pad = {0, 1})), "[1,1,2,6] f32");
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .pad = {1})), "[1,1,4,6] f32");
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .pad = {0, 0, 0, 2})), "[1,1,2,6] f32");
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .stride = {1, 2}, .pad = {1})), "[1,1,4,3] f32");
    assert_string_equal(wb_describe(wb_call(wb_Conv(1, 2, {3}, .pad = {1, 0}), x)), "[1,2,4,4] f32");
    assert_string_equal(wb_describe(wb_call(wb_MaxPool({2}, .pad = {1, 0}), x)), "[1,1,3,3] f32");
    assert_string_equal(wb_describe(wb_call(wb_ConvTranspose(1, 2, {3}, .stride = {2}, .outpad = {1, 0}), x)),
                        "[1,2,10,13] f32");
    assert_null(wb_conv(x, w, WB_NONE, .pad = {1, 2, 3}));
    FAILED(WB_ERROR_ARGUMENT, ".pad", "3");
    wb_clear_error();
    assert_null(wb_conv(x, w, WB_NONE, .stride = {2, 0}));
    assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
    wb_clear_error();
    assert_null(wb_Conv(1, 2, {3}, .groups = 0));
    assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
    wb_clear_error();
    const wb_conv_options o = {.size = sizeof o, .pad = WB_INTS(1, 0), .stride = WB_INTS(1)};
    assert_string_equal(wb_describe(wb_conv_with(x, w, WB_NONE, &o)), "[1,1,4,4] f32");
    wb_conv_options bare = {.size = sizeof bare};
    bare.pad[0] = 1;
    assert_null(wb_conv_with(x, w, WB_NONE, &bare));
    FAILED(WB_ERROR_ARGUMENT, ".pad", "WB_INTS");
    wb_clear_error();
    wb_ints_set(bare.pad, 2, (int64_t[]){0, 1});
    assert_string_equal(wb_describe(wb_conv_with(x, w, WB_NONE, &bare)), "[1,1,2,6] f32");
}

TEST_IN_SCOPE(zero_is_no_default)
{
    wb_tensor *x = wb_zeros(2, 3);
    assert_null(wb_huber(x, x, 0));
    assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
    wb_clear_error();
    assert_true(isnan(wb_at(wb_normalise(x, 1, 0), 0, 0)));     /* 0/0 */
    assert_true(wb_at(wb_normalise(x, 1, 1e-5), 0, 0) == 0);
}

int main(void) { return run_all_cases(); }
