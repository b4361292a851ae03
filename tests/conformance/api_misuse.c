/* Mistakes of a first user: each missing or invalid argument is an error that names it. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"     /* clang, for .axes = {1} */

#include "test.h"

#include <weber.h>

#pragma GCC diagnostic ignored "-Wmissing-braces"       /* valid C with fewer braces */

TEST(missing_arrays)
{
    float number = 0;
    wb_tensor *x = wb_ones(4, 5);
    wb_memory m;
    REFUSED(wb_from(&number, WB_F32, 2, NULL), WB_ERROR_ARGUMENT, "from", "2", "dimensions");
    REFUSED(wb_reshape_array(x, 2, NULL), WB_ERROR_ARGUMENT, "reshape", "2", "dimensions");
    REFUSED(wb_permute_array(x, 2, NULL), WB_ERROR_ARGUMENT, "permute", "order", "2");
    REFUSED(!wb_copy_out(x, NULL, 80), WB_ERROR_ARGUMENT, "copy_out", "buffer");
    REFUSED(!isnan(wb_at_array(x, 2, NULL)), WB_ERROR_ARGUMENT, "at:", "indices");
    REFUSED(!wb_eval_array(2, NULL), WB_ERROR_ARGUMENT, "eval", "2", "tensors");
    REFUSED(!wb_eval_array(-1, &x), WB_ERROR_ARGUMENT, "eval", "-1", "tensors");
    REFUSED(!wb_estimate_memory(1, &x, NULL), WB_ERROR_ARGUMENT, "estimate_memory", "1", "tensors");
    REFUSED(!wb_estimate_memory(1, NULL, &m), WB_ERROR_ARGUMENT, "estimate_memory", "1", "tensors");
}

/* Where the dtype is a variable, the C type of the data is compared at run time. */
TEST(data_of_another_type)
{
    const int64_t dims[] = {2};
    double real[2] = {1, 2}, square[2][1] = {{1}, {2}};
    short words[2] = {1, 2};
    uint16_t halves[2] = {0x3C00, 0x4000};
    bool truths[2] = {false, true};
    wb_dtype t = WB_F32;
    REFUSED(wb_from(real, t, 1, dims), WB_ERROR_DTYPE, "from: ", "double *", "whose dtype is f64",
            "f32 takes float *");
    REFUSED(wb_from((const double[]){1, 2}, t, 1, dims), WB_ERROR_DTYPE, "double *");
    REFUSED(wb_from(square, t, 1, dims), WB_ERROR_DTYPE, "double *");
    REFUSED(wb_borrow(real, t, 1, dims, NULL, NULL), WB_ERROR_DTYPE, "borrow: ", "double *");
    REFUSED(wb_from(words, t, 1, dims), WB_ERROR_DTYPE, "short *", "no dtype");
    REFUSED(wb_from(halves, t, 1, dims), WB_ERROR_DTYPE, "f16 or bf16");
    REFUSED(wb_from(real, (wb_dtype)77, 1, dims), WB_ERROR_DTYPE, "77");
    t = WB_F64;
    assert_true(wb_at(wb_from(real, t, 1, dims), 1) == 2);
    assert_true(wb_at(wb_borrow(real, t, 1, dims, NULL, NULL), 1) == 2);
    t = WB_F16;
    assert_true(wb_at(wb_from(halves, t, 1, dims), 1) == 2);
    t = WB_U8;
    assert_true(wb_at(wb_from(truths, t, 1, dims), 1) == 1);
    assert_true(wb_at(wb_from((void *)real, WB_I64, 1, dims), 0) == 0x3FF0000000000000);
    assert_true(wb_at((wb_from)((float[]){1, 2}, WB_F32, 1, dims), 1) == 2);
}

TEST(messages_name_what_was_given)
{
    wb_tensor *x = wb_ones(4, 5), *image = wb_ones(1, 2, 5, 5), *w = wb_ones(3, 2, 3, 3);
    REFUSED(wb_matmul(x, wb_full_array(1, WB_F64, 1, (int64_t[]){5})), WB_ERROR_DTYPE, "matmul",
            "[4,5] f32", "[5] f64");
    REFUSED(wb_linear(x, wb_full_array(1, WB_F64, 2, (int64_t[]){3, 5}), wb_ones(3)),
            WB_ERROR_DTYPE, "linear", "[4,5] f32", "[3,5] f64");
    REFUSED(wb_unsqueeze(x, 3), WB_ERROR_SHAPE, "unsqueeze", "axis", "[4,5] f32", "-3", "2", "3");
    REFUSED(wb_unsqueeze(wb_ones(1, 1, 1, 1, 1, 1, 1, 1), 0), WB_ERROR_SHAPE, "unsqueeze",
            "[1,1,1,1,1,1,1,1] f32", "8", "dimensions");
    REFUSED(wb_attention(x, x, x, x), WB_ERROR_DTYPE, "attention", "mask", "[4,5] f32", "bool");
    REFUSED(wb_conv(image, w, WB_NONE, .pad = {-1}), WB_ERROR_ARGUMENT, "conv", "window", "3x3",
            "stride", "1x1", "padding", "-1,-1,-1,-1", "dilation", "1", "0");
    REFUSED(wb_conv(image, w, WB_NONE, .pad = {INT64_MAX, INT64_MAX}), WB_ERROR_ARGUMENT, "conv",
            "9223372036854775807", "window", "stride", "dilation", "padding");
    REFUSED(wb_conv(wb_ones(1, 0, 5, 5), wb_ones(3, 0, 3, 3), WB_NONE), WB_ERROR_SHAPE, "conv",
            "channels", "[1,0,5,5] f32", "[3,0,3,3] f32");
    wb_tensor *b = wb_full_array(1, WB_F64, 1, (int64_t[]){3});
    REFUSED(wb_conv(image, w, b), WB_ERROR_DTYPE, "conv", "bias", "[3] f64", "weight",
            "[3,2,3,3] f32", "[3]");
    REFUSED(wb_conv_transpose(wb_ones(1, 3, 5, 5), w, b), WB_ERROR_SHAPE, "conv_transpose", "bias",
            "[3] f64", "weight", "[3,2,3,3] f32", "[2]");
    REFUSED(wb_conv_transpose(wb_ones(1, 3, 5, 5), wb_ones(3, 3, 2, 2), b), WB_ERROR_DTYPE,
            "conv_transpose", "bias", "[3] f64", "weight", "[3,3,2,2] f32", "[3]");
    REFUSED(wb_linear(x, wb_ones(3, 5), b), WB_ERROR_DTYPE, "linear", "bias", "[3] f64", "weight",
            "[3,5] f32", "[3]");
    assert_non_null(wb_conv(image, w, WB_NONE));        /* no options: no warning of -pedantic */
}

TEST(numbers_out_of_range)
{
    REFUSED(wb_BatchNorm(3, .eps = -1), WB_ERROR_ARGUMENT, "BatchNorm", "eps", "-1");
    REFUSED(wb_BatchNorm(3, .momentum = 2), WB_ERROR_ARGUMENT, "BatchNorm", "momentum", "2",
            "[0, 1]");
    REFUSED(wb_BatchNorm(3, .momentum = NAN), WB_ERROR_ARGUMENT, "BatchNorm", "momentum", "nan",
            "[0, 1]");
    REFUSED(wb_LayerNorm({3}, .eps = NAN), WB_ERROR_ARGUMENT, "LayerNorm", "eps", "nan");
    REFUSED(wb_Adam(.eta = INFINITY), WB_ERROR_ARGUMENT, "Adam", "eta", "inf");
    REFUSED(wb_Adam(.beta = {0.9, 1}), WB_ERROR_ARGUMENT, "Adam", "beta[1]", "1", "1");
    REFUSED(wb_ClipGrad(.delta = -1), WB_ERROR_ARGUMENT, "ClipGrad", "delta", "-1");
    assert_non_null(wb_BatchNorm(3, .eps = 0, .momentum = 0));
    assert_non_null(wb_Adam(.eta = 0, .beta = {0, 0}, .eps = 0));
}

static double moved(wb_rule *rule, double eta, bool adjust)
{
    wb_tensor *w = wb_variable(wb_ones(1));
    wb_tree *t = wb_tuple(w);
    wb_opt_state *s = wb_setup(rule, t);
    if (adjust) assert_int_equal(wb_adjust(s, .eta = eta), 0);
    assert_int_equal(wb_update(s, t, wb_gradient(wb_sum(w), t)), 0);
    return 1 - wb_at(w, 0);
}

/* An option that is set to 0 is 0 and not its default, at any position of the list. */
TEST(zero_is_zero)
{
    const double none = 0;
    assert_true(moved(wb_Descent(.eta = 0.0), 0, false) == 0);
    assert_true(moved(wb_Descent(0), 0, false) == 0);
    assert_true(moved(wb_Descent(.eta = none), 0, false) == 0);
    assert_true(moved(wb_Momentum(.eta = 1, .rho = 0), 0, false) == 1);
    assert_true(moved(wb_Adam(.eta = 0.0, .beta = {0.5, 0.5}), 0, false) == 0);
    assert_true(moved(wb_Descent(.eta = 1), none, true) == 0);
    assert_true(moved(wb_Descent(.eta = 1), 0.5, true) == 0.5);
    assert_true(fabs(moved(wb_AdamW(.eta = 0.1, .lambda = 0.0, .eps = 0.0), 0, false) - 0.1) <
                1e-6);
    assert_true(moved(wb_Descent(.eta = 0), 0, false) == 0);
    assert_true(moved(wb_OptimizerChain(wb_ClipGrad(.delta = 0), wb_Descent(1)), 0, false) == 0);
    assert_shows(wb_Adam(.beta = {0, 0.5}, .eps = 0), "Adam(eta=0.001, beta=(0, 0.5), eps=0)");
    assert_shows(wb_Adam(.beta = {0.5}), "Adam(eta=0.001, beta=(0.5, 0.999), eps=1e-08)");
    wb_tree *t = wb_tuple(wb_variable(wb_ones(1)));
    wb_opt_state *s = wb_setup(wb_AdamW(.eta = 1), t);
    assert_int_equal(wb_adjust(s, .eta = 0.0, .lambda = 1e-3, .beta = {0.5, 0.0}), 0);
    assert_int_equal(wb_adjust(s, .lambda = 0.25), 0);
    char *text = wb_object_format(s);
    assert_non_null(strstr(text, "AdamW(eta=0, beta=(0.5, 0), eps=1e-08, lambda=0.25)"));
    wb_free_text(text);
    REFUSED(!wb_adjust(s, .eta = WB_DEFAULT), WB_ERROR_ARGUMENT, "adjust", "no number");
    assert_shows(wb_WeightDecay(0.5), "WeightDecay(lambda=0.5)");   /* by place: its own number */
    REFUSED(wb_WeightDecay(.eta = 0.5), WB_ERROR_ARGUMENT, "WeightDecay", "eta", "0.5");
}

TEST(zero_in_layers)
{
    wb_tensor *x = wb_from((float[]){1, 3, 2, 2}, WB_F32, 2, (int64_t[]){2, 2});
    wb_layer *norm = wb_BatchNorm(2, .eps = 0.0, .momentum = 0.0);
    assert_true(wb_at(wb_call(wb_trainmode(norm), x), 0, 0) == -1);
    assert_true(wb_at(wb_get(norm, "mean"), 0) == 0);
    assert_true(wb_at(wb_call(wb_LayerNorm({2}, .eps = 0), x), 0, 0) == -1);
    assert_true(wb_at(wb_call(wb_LayerNorm({2}), x), 0, 0) > -1);
    assert_true(wb_at(wb_call(wb_LayerNorm(2), x), 0, 0) > -1);
    assert_int_equal(wb_size(wb_get(wb_LayerNorm({3, 4}, wb_relu), "scale")), 12);
    assert_true(wb_call(wb_trainmode(wb_Dropout(0.0)), x) == x);
}

/* Axes in every form that a program may write them in. */
TEST(axes_by_any_form)
{
    wb_tensor *x = wb_ones(2, 3, 4), *forms[] = {
        wb_sum(x, .axes = WB_INTS(1)), wb_sum(x, .axes = {1}), wb_sum(x, 1), wb_sum(x, -2),
        wb_mean(x, .axes = {0}), wb_mean(x, 0), wb_max(x, 0, -1), wb_max(x, .axes = {-1, 0}),
        wb_sum(x, .axes = {1, 0}), wb_sum(x, .keep = true, .axes = {1, 0}),
        wb_sum(x, 1, .keep = true), wb_sum(x), wb_sum(x, .keep = true),
        wb_sum(x, .axes = WB_INTS(0, 1, 2))};
    const char *shapes[] = {"[2,4]", "[2,4]", "[2,4]", "[2,4]", "[3,4]", "[3,4]", "[3]", "[3]",
                            "[4]", "[1,1,4]", "[2,1,4]", "[]", "[1,1,1]", "[]"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_memory_equal(wb_describe(forms[i]), shapes[i], strlen(shapes[i]));
    wb_reduce_options own = WB_OPTIONS_OF(wb_reduce_options, .axes = WB_INTS(2, 0));
    assert_int_equal(wb_ndim(wb_sum_with(x, &own)), 1);
    wb_ints_set(own.axes, 1, (int64_t[]){0});
    assert_int_equal(wb_ndim(wb_sum_with(x, &own)), 2);
    wb_reduce_options untagged = WB_OPTIONS_OF(wb_reduce_options);
    untagged.axes[0] = 1;
    REFUSED(wb_sum_with(x, &untagged), WB_ERROR_ARGUMENT, "sum", ".axes", "WB_INTS");
    assert_shows(wb_Dropout(0.5, .axes = {1, 0}), "Dropout(0.5, axes=(1, 0))");
}

TEST(numbers_by_place)
{
    wb_dataset *d = wb_dataset_of(wb_randn(64, 3), WB_NONE);
    assert_int_equal(wb_loader_length(wb_dataloader(d, 32)), 2);
    assert_int_equal(wb_loader_length(wb_dataloader(d, 32, true)), 2);
    assert_int_equal(wb_loader_length(wb_dataloader(d)), 64);
    assert_int_equal(wb_loader_length(wb_dataloader(d, .batchsize = 32, .ahead = 0)), 2);
    REFUSED(wb_dataloader(d, .batchsize = 0), WB_ERROR_ARGUMENT, "dataloader", "batchsize", "0");
    char *text =
        wb_object_format(wb_Chain(wb_Conv(1, 6, 5), wb_Conv(1, 6, {5, 3}, wb_relu, .pad = {2}),
                                  wb_MaxPool(2), wb_MaxPool({3}, .stride = {2})));
    assert_non_null(strstr(text, "Conv((5, 5), 1 => 6)"));
    assert_non_null(strstr(text, "Conv((5, 3), 1 => 6, relu, pad=2)"));
    assert_non_null(strstr(text, "MaxPool((2, 2))"));
    assert_non_null(strstr(text, "MaxPool((3, 3), stride=2)"));
    wb_free_text(text);
}

static wb_tensor *gives_null(wb_tensor *x) { (void)x; return NULL; }
static wb_tensor *no_loss(wb_layer *m, wb_batch b, void *ctx)
{
    (void)m, (void)b, (void)ctx;
    return NULL;
}
static wb_tensor *wide_loss(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_square(wb_call(m, b.x));
}

TEST(errors_name_the_path)
{
    wb_layer *inner = wb_Chain(wb_Dense(4, 4), wb_named("head", wb_Dense(3, 2)));
    wb_layer *m = wb_Chain(wb_Dense(4, 4), wb_SkipConnection(inner, wb_add));
    wb_layer *both = wb_Chain(wb_Parallel(wb_add, wb_Dense(4, 2), m));
    REFUSED(wb_call(m, wb_ones(2, 4)), WB_ERROR_SHAPE, "layers.1.layers.layers.head", "Dense", "3",
            "features", "dimension", "[2,4] f32");
    REFUSED(wb_call(both, wb_ones(2, 4)), WB_ERROR_SHAPE,
            "layers.0.layers.1.layers.1.layers.layers.head", "Dense", "3", "features", "dimension",
            "[2,4] f32");
    REFUSED(wb_call(wb_Dense(3, 2), wb_ones(2, 4)), WB_ERROR_SHAPE, "Dense", "3", "features",
            "dimension", "[2,4] f32");
    REFUSED(wb_call(wb_Chain(wb_Dense(4, 4), gives_null), wb_ones(2, 4)), WB_ERROR_ARGUMENT,
            "layers.1", "Function", "NULL");
}

/* A list that could not be set is no list that was not given: the function that takes it fails. */
TEST(lists_without_numbers)
{
    static const int64_t two[] = {0, 1};
    wb_tensor *x = wb_ones(2, 2);
    for (int i = 0; i < 2; i++) {
        wb_reduce_options o = WB_OPTIONS_OF(wb_reduce_options);
        wb_clear_error();
        wb_ints_set(o.axes, i ? -1 : 2, i ? two : NULL);
        FAILED(WB_ERROR_ARGUMENT, "ints_set", i ? "-1 numbers" : "2 numbers");
        REFUSED(wb_sum_with(x, &o), WB_ERROR_ARGUMENT, "sum", ".axes", "wb_ints_set");
        wb_ints_set(o.axes, 2, two);
        MADE(wb_sum_with(x, &o));
        wb_ints_set(o.axes, 0, NULL);
        MADE(wb_sum_with(x, &o));
    }
    wb_clear_error();
    wb_ints_set(NULL, 2, two);
    FAILED(WB_ERROR_ARGUMENT, "ints_set", "list is NULL");
    REFUSED(wb_spectrogram(NULL, .n_fft = 8), WB_ERROR_ARGUMENT, "spectrogram", "NULL");
    wb_clear_error();
}

/* A NULL argument is reported as an error, unless it is the result of a call that failed: then that
 * call's error is kept. */
TEST(null_is_named)
{
    wb_tensor *x = wb_ones(2, 2);
    wb_layer *m = wb_Dense(2, 2), *none = NULL;
    wb_tree *grads = NULL;
    wb_opt_state *s = wb_setup(wb_Adam(), m);
    REFUSED(wb_call(none, x), WB_ERROR_ARGUMENT, "call", "layer", "NULL");
    REFUSED(wb_mse(x, NULL), WB_ERROR_ARGUMENT, "mse", "y", "NULL");
    REFUSED(wb_add(x, NULL), WB_ERROR_ARGUMENT, "add", "operand", "NULL");
    REFUSED(wb_setup(NULL, m), WB_ERROR_ARGUMENT, "setup", "rule", "NULL");
    REFUSED(!wb_update(s, m, grads), WB_ERROR_ARGUMENT, "update", "grads", "NULL");
    REFUSED(wb_update_new(s, m, grads), WB_ERROR_ARGUMENT, "update_new", "grads", "NULL");
    REFUSED(!wb_freeze(NULL, ""), WB_ERROR_ARGUMENT, "freeze", "state", "NULL");
    REFUSED(!wb_adjust(NULL, .eta = 0.1), WB_ERROR_ARGUMENT, "adjust", "state", "NULL");
    REFUSED(!wb_each_tensor(NULL, NULL, NULL), WB_ERROR_ARGUMENT, "each_tensor", "object", "NULL");
    REFUSED(wb_fmap(NULL, none, NULL), WB_ERROR_ARGUMENT, "fmap", "x", "NULL");
    REFUSED(wb_dataloader(NULL), WB_ERROR_ARGUMENT, "dataloader", "dataset", "NULL");
    REFUSED(wb_mse(wb_matmul(x, wb_ones(3, 3)), x), WB_ERROR_SHAPE, "matmul", "[2,2] f32",
            "[3,3] f32");
    REFUSED(wb_withgradient(no_loss, m, (wb_batch){.x = x}, &grads), WB_ERROR_ARGUMENT,
            "withgradient", "loss", "NULL");
    wb_loader *l = wb_dataloader(wb_dataset_of(x, x), 2);
    REFUSED(!wb_train(wide_loss, m, l, s), WB_ERROR_SHAPE, "train", "loss", "[2,2] f32",
            "floating");
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    return wb_mse(wb_call(model, batch.x), batch.y);
}

TEST(nothing_to_train_on)
{
    wb_layer *m = wb_Dense(3, 2);
    wb_loader *l = wb_dataloader(wb_dataset_of(wb_zeros(0, 3), wb_zeros(0, 2)), .batchsize = 4);
    REFUSED(!wb_train(loss, m, l, wb_setup(wb_Adam(), m)), WB_ERROR_ARGUMENT, "train", "loader",
            "batches", "dataset", "batch", ".drop_last");
}

/* After an update, the gradient of the old loss fails with an error; it is not zeros. */
TEST(gradient_after_the_update)
{
    wb_layer *m = wb_Dense(3, 1, .bias = false, .init = wb_init_ones);
    wb_opt_state *s = wb_setup(wb_Descent(), m);
    wb_tensor *l = loss(m, (wb_batch){.x = wb_ones(2, 3), .y = wb_zeros(2, 1)}, NULL);
    assert_int_equal(wb_update(s, m, wb_gradient(l, m)), 0);
    assert_true(wb_item(l) == 9);
    REFUSED(wb_gradient(l, m), WB_ERROR_VERSION, "gradient", "loss", "weight", "overwritten",
            "model");
    assert_null(wb_gradient(l, wb_get(m, "weight")));
}

TEST(layers_in_tuples_print_their_commas)
{
    wb_layer *chain = wb_Chain(wb_Dense(3, 4), wb_Dense(4, 4));
    assert_shows(wb_tuple(wb_Dense(3, 2), chain, wb_ones(2)),
                 "(\n"
                 "  0 = Dense(3 => 2),       # 8 parameters\n"
                 "  1 = Chain(\n"
                 "    Dense(3 => 4),                        # 16 parameters\n"
                 "    Dense(4 => 4),                        # 20 parameters\n"
                 "  ),                   # Total: 4 arrays, 36 parameters, 144 bytes.\n"
                 "  2 = [2] f32,\n"
                 ")");
}

static int sum_of_two(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_add(in[0], wb_mul(in[1], wb_scalar(10)));
    out[1] = in[1];
    return 2;
}

static int reads(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
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
    out[0] = NULL;
    return 1;
}

/* A compiled function distinguishes its inputs even where the recorded call passed one tensor twice
 * or a variable. */
TEST(compiled_inputs)
{
    wb_tensor *one = wb_full_array(1, WB_F32, 1, (int64_t[]){1}),
              *two = wb_full_array(2, WB_F32, 1, (int64_t[]){1});
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
    for (int i = 0; i < 2; i++) {       /* the input is the variable that the function assigns */
        assert_int_equal(wb_call_compiled(c, 1, &both, 1, out), 0);
        assert_true(wb_item(out[0]) == 3 + 3 * i);
        assert_true(wb_at(both, 0) == 3 + 3 * i && wb_at(both, 1) == 3 + 3 * i);
    }
    REFUSED(!wb_call_compiled(wb_compile(reads, NULL), 1, &one, 1, out), WB_ERROR_ARGUMENT, "item",
            "wb_compile", "result", "wb_call_compiled", "wb_where");
    REFUSED(!wb_call_compiled(wb_compile(nothing, NULL), 1, &one, 1, out), WB_ERROR_ARGUMENT,
            "compile", "result", "0", "function", "NULL", "1", "input");
    REFUSED(!wb_call_compiled(c, 1, NULL, 1, out), WB_ERROR_ARGUMENT, "call_compiled", "1",
            "inputs", "1", "results", "array");
}

/* x^0 is 1 everywhere: its gradient is 0 at 0 too, where y x^(y-1) is 0 times infinity. */
TEST(power_of_nothing)
{
    wb_tensor *x = wb_variable(wb_zeros(2));
    assert_true(wb_at(wb_gradient(wb_sum(wb_pow(x, wb_scalar(0))), x), 1) == 0);
    assert_true(wb_at(wb_gradient(wb_sum(wb_pow(x, wb_scalar(1))), x), 1) == 1);
}

static int over(void **state)
{
    wb_shutdown();
    return wb_memory_used() != 0;
}

int main(void) { return run_cases(NULL, over); }
