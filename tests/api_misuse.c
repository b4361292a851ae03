/* A first user's mistakes: what is missing or out of range is an error that names it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <weber.h>

#define REFUSED(call, message)                          \
    do {                                                \
        wb_clear_error();                               \
        assert_false(call);                             \
        assert_string_equal(wb_error(), message);       \
    } while (0)

static void missing_arrays(void **state)
{
    (void)state;
    float number = 0;
    wb_tensor *x = wb_ones(4, 5);
    wb_memory m;
    REFUSED(wb_from(&number, WB_F32, 2, NULL), "from: no sizes for 2 dimensions");
    REFUSED(wb_reshape_to(x, 2, NULL), "reshape: no sizes for 2 dimensions");
    REFUSED(wb_permute_to(x, 2, NULL), "permute: no order of 2 axes");
    REFUSED(!wb_copy_out(x, NULL, 80), "copy_out: no buffer");
    REFUSED(!isnan(wb_at_index(x, 2, NULL)), "at: no indices");
    REFUSED(!wb_eval_all(2, NULL), "eval: 2 tensors");
    REFUSED(!wb_eval_all(-1, &x), "eval: -1 tensors");
    REFUSED(!wb_memory_estimate(1, &x, NULL), "memory_estimate: 1 tensors, no place to write to");
    REFUSED(!wb_memory_estimate(1, NULL, &m), "memory_estimate: 1 tensors, a place to write to");
}

static void messages_name_what_was_given(void **state)
{
    (void)state;
    wb_tensor *x = wb_ones(4, 5), *image = wb_ones(1, 2, 5, 5), *w = wb_ones(3, 2, 3, 3);
    REFUSED(wb_matmul(x, wb_full_of(1, WB_F64, 1, (int64_t[]){5})),
            "matmul: dtypes differ: [4,5] f32 · [5] f64");
    REFUSED(wb_unsqueeze(x, 3), "unsqueeze: a new axis of [4,5] f32 is one of -3 to 2, not 3");
    REFUSED(wb_unsqueeze(wb_ones(1, 1, 1, 1, 1, 1, 1, 1), 0),
            "unsqueeze: [1,1,1,1,1,1,1,1] f32 has 8 dimensions already, the most there may be");
    REFUSED(wb_attention(x, x, x, x), "attention: the mask is [4,5] f32, not bool (true: keep)");
    REFUSED(wb_conv(image, w, WB_NONE, .pad = {-1}),
            "conv: window 3x3, stride 1x1, padding -1,0,0,0: window, stride and dilation are at "
            "least 1, padding at least 0");
    REFUSED(wb_conv(image, w, WB_NONE, .pad = {INT64_MAX, INT64_MAX}),
            "conv: 9223372036854775807 as a size of window, stride, dilation or padding");
    REFUSED(wb_conv(wb_ones(1, 0, 5, 5), wb_ones(3, 0, 3, 3), WB_NONE),
            "conv: no channels: [1,0,5,5] f32 · [3,0,3,3] f32");
    assert_non_null(wb_conv(image, w, WB_NONE));        /* without options, pedantically too */
}

static void numbers_out_of_range(void **state)
{
    (void)state;
    REFUSED(wb_BatchNorm(3, .eps = -1), "BatchNorm: eps is -1; it cannot be negative");
    REFUSED(wb_BatchNorm(3, .momentum = 2), "BatchNorm: momentum is 2; it must be in [0, 1]");
    REFUSED(wb_BatchNorm(3, .momentum = NAN), "BatchNorm: momentum is nan; it must be in [0, 1]");
    REFUSED(wb_LayerNorm({3}, .eps = NAN), "LayerNorm: eps is nan; it cannot be negative");
    REFUSED(wb_Adam(.eta = INFINITY), "Adam: eta is inf; it must be finite");
    REFUSED(wb_Adam(.beta = {0.9, 1}), "Adam: beta[1] is 1; it must be below 1");
    REFUSED(wb_ClipGrad(.delta = -1), "ClipGrad: delta is -1; it must not be negative");
    assert_non_null(wb_BatchNorm(3, .eps = WB_ZERO, .momentum = WB_ZERO));
    assert_non_null(wb_Adam(.eta = WB_ZERO, .beta = {WB_ZERO, WB_ZERO}, .eps = WB_ZERO));
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_mse(wb_call(model, batch.x), batch.y);
}

static void nothing_to_train_on(void **state)
{
    (void)state;
    wb_layer *m = wb_Dense(3, 2);
    wb_loader *l = wb_dataloader(wb_dataset_of(wb_zeros(0, 3), wb_zeros(0, 2)), .batchsize = 4);
    REFUSED(!wb_train(loss, m, l, wb_setup(wb_Adam(), m)),
            "train: the loader has no batches: the dataset is empty, or shorter than a batch with "
            ".drop_last");
}

/* After an update a gradient of the old loss is neither silence nor zeros. */
static void gradient_after_the_update(void **state)
{
    (void)state;
    wb_layer *m = wb_Dense(3, 1, .no_bias = true, .init = wb_init_ones);
    wb_opt_state *s = wb_setup(wb_Descent(), m);
    wb_tensor *l = loss(m, (wb_batch){.x = wb_ones(2, 3), .y = wb_zeros(2, 1)}, NULL);
    assert_int_equal(wb_update(s, m, wb_gradient(l, m)), 0);
    assert_true(wb_item(l) == 9);
    REFUSED(wb_gradient(l, m), "gradient: the loss was made from a value of weight that has been "
            "overwritten since: take the gradient before the update, or call the model again");
    assert_null(wb_gradient(l, wb_get(m, "weight")));
}

static void layers_in_tuples_print_their_commas(void **state)
{
    (void)state;
    wb_layer *chain = wb_Chain(wb_Dense(3, 4), wb_Dense(4, 4));
    char *text = wb_format_object(wb_tuple(wb_Dense(3, 2), chain, wb_ones(2)));
    assert_string_equal(text, "(\n"
                              "  0 = Dense(3 => 2),       # 8 parameters\n"
                              "  1 = Chain(\n"
                              "    Dense(3 => 4),                        # 16 parameters\n"
                              "    Dense(4 => 4),                        # 20 parameters\n"
                              "  ),                   # Total: 4 arrays, 36 parameters, 144 bytes.\n"
                              "  2 = [2] f32,\n"
                              ")");
    wb_free_text(text);
}

static int sum_of_two(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)ctx;
    out[0] = wb_add(in[0], wb_mul(in[1], wb_scalar(10)));
    out[1] = in[1];
    return 2;
}

static int reads(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)ctx;
    double now = wb_item(in[0]);
    out[0] = now == now ? wb_scalar(now) : NULL;
    return 1;
}

static int adds_to(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    wb_tensor *v = ctx;
    if (wb_assign(v, wb_add(v, wb_flip(in[0], 0)))) return -1;
    out[0] = wb_sum(in[0]);
    return 1;
}

static int nothing(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)in, (void)ctx;
    out[0] = NULL;
    return 1;
}

/* Inputs of a recording are its inputs, whatever they were when it was made: one tensor twice, a
 * variable. */
static void compiled_inputs(void **state)
{
    (void)state;
    wb_tensor *one = wb_full_of(1, WB_F32, 1, (int64_t[]){1}), *two = wb_full_of(2, WB_F32, 1, (int64_t[]){1});
    wb_tensor *u = wb_variable(one), *v = wb_variable(two), *out[2];
    wb_tensor *pairs[][2] = {{one, one}, {one, two}, {two, one}, {u, v}, {v, u}, {u, u}};
    wb_compiled *c = wb_compile(sum_of_two, NULL);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(wb_call_compiled(c, 2, pairs[i], 2, out), 0);
        assert_true(wb_item(out[0]) == wb_item(pairs[i][0]) + 10 * wb_item(pairs[i][1]));
        assert_true(wb_item(out[1]) == wb_item(pairs[i][1]));
    }
    wb_tensor *both = wb_variable(wb_from((float[]){1, 2}, WB_F32, 1, (int64_t[]){2}));
    c = wb_compile(adds_to, both);
    for (int i = 0; i < 2; i++) {                       /* the input is the variable that is written */
        assert_int_equal(wb_call_compiled(c, 1, &both, 1, out), 0);
        assert_true(wb_item(out[0]) == 3 + 3 * i);
        assert_true(wb_at(both, 0) == 3 + 3 * i && wb_at(both, 1) == 3 + 3 * i);
    }
    REFUSED(!wb_call_compiled(wb_compile(reads, NULL), 1, &one, 1, out),
            "item: a value was asked for while a function was being recorded by wb_compile");
    REFUSED(!wb_call_compiled(wb_compile(nothing, NULL), 1, &one, 1, out),
            "compile: result 0 of the function is NULL");
    REFUSED(!wb_call_compiled(c, 1, NULL, 1, out),
            "call_compiled: 1 inputs, 1 results, and no array of them");
}

/* x^0 is 1 everywhere: its gradient is 0 at 0 too, where y x^(y-1) is 0 times infinity. */
static void power_of_nothing(void **state)
{
    (void)state;
    wb_tensor *x = wb_variable(wb_zeros(2));
    assert_true(wb_at(wb_gradient(wb_sum(wb_pow(x, wb_scalar(0))), x), 1) == 0);
    assert_true(wb_at(wb_gradient(wb_sum(wb_pow(x, wb_scalar(1))), x), 1) == 1);
}

static int over(void **state)
{
    (void)state;
    wb_shutdown();
    return wb_memory_used() != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_arrays),
        cmocka_unit_test(messages_name_what_was_given),
        cmocka_unit_test(numbers_out_of_range),
        cmocka_unit_test(nothing_to_train_on),
        cmocka_unit_test(gradient_after_the_update),
        cmocka_unit_test(compiled_inputs),
        cmocka_unit_test(power_of_nothing),
        cmocka_unit_test(layers_in_tuples_print_their_commas),
    };
    return cmocka_run_group_tests(tests, NULL, over);
}
