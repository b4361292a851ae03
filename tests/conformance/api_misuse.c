/* A first user's mistakes: what is missing or out of range is an error that names it. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"     /* clang: .axes = {1} */

#include "test.h"

#include <weber.h>

#pragma GCC diagnostic ignored "-Wmissing-braces"       /* forms that are right, if not in style */

TEST(missing_arrays)
{
    float number = 0;
    wb_tensor *x = wb_ones(4, 5);
    wb_memory m;
    REFUSED(wb_from(&number, WB_F32, 2, NULL), "from: no sizes for 2 dimensions");
    REFUSED(wb_reshape_array(x, 2, NULL), "reshape: no sizes for 2 dimensions");
    REFUSED(wb_permute_array(x, 2, NULL), "permute: no order of 2 axes");
    REFUSED(!wb_copy_out(x, NULL, 80), "copy_out: no buffer");
    REFUSED(!isnan(wb_at_array(x, 2, NULL)), "at: no indices");
    REFUSED(!wb_eval_array(2, NULL), "eval: 2 tensors");
    REFUSED(!wb_eval_array(-1, &x), "eval: -1 tensors");
    REFUSED(!wb_memory_estimate(1, &x, NULL), "memory_estimate: 1 tensors, no place to write to");
    REFUSED(!wb_memory_estimate(1, NULL, &m), "memory_estimate: 1 tensors, a place to write to");
}

TEST(messages_name_what_was_given)
{
    wb_tensor *x = wb_ones(4, 5), *image = wb_ones(1, 2, 5, 5), *w = wb_ones(3, 2, 3, 3);
    REFUSED(wb_matmul(x, wb_full_array(1, WB_F64, 1, (int64_t[]){5})),
            "matmul: dtypes differ: [4,5] f32 · [5] f64");
    REFUSED(wb_linear(x, wb_full_array(1, WB_F64, 2, (int64_t[]){3, 5}), wb_ones(3)),
            "linear: dtypes differ: [4,5] f32 · [3,5] f64");
    REFUSED(wb_unsqueeze(x, 3), "unsqueeze: a new axis of [4,5] f32 is one of -3 to 2, not 3");
    REFUSED(wb_unsqueeze(wb_ones(1, 1, 1, 1, 1, 1, 1, 1), 0),
            "unsqueeze: [1,1,1,1,1,1,1,1] f32 has 8 dimensions already, the most there may be");
    REFUSED(wb_attention(x, x, x, x), "attention: the mask is [4,5] f32, not bool (true: keep)");
    REFUSED(wb_conv(image, w, WB_NONE, .pad = {-1}),
            "conv: window 3x3, stride 1x1, padding -1,-1,-1,-1: window, stride and dilation are at "
            "least 1, padding at least 0");
    REFUSED(wb_conv(image, w, WB_NONE, .pad = {INT64_MAX, INT64_MAX}),
            "conv: 9223372036854775807 as a size of window, stride, dilation or padding");
    REFUSED(wb_conv(wb_ones(1, 0, 5, 5), wb_ones(3, 0, 3, 3), WB_NONE),
            "conv: no channels: [1,0,5,5] f32 · [3,0,3,3] f32");
    wb_tensor *b = wb_full_array(1, WB_F64, 1, (int64_t[]){3});
    REFUSED(wb_conv(image, w, b), "conv: the bias is [3] f64; the weight [3,2,3,3] f32 wants [3] "
                                  "of its dtype");
    REFUSED(wb_conv_transpose(wb_ones(1, 3, 5, 5), w, b),
            "conv_transpose: the bias is [3] f64; the weight [3,2,3,3] f32 wants [2]");
    REFUSED(wb_conv_transpose(wb_ones(1, 3, 5, 5), wb_ones(3, 3, 2, 2), b),
            "conv_transpose: the bias is [3] f64; the weight [3,3,2,2] f32 wants [3] of its dtype");
    REFUSED(wb_linear(x, wb_ones(3, 5), b),
            "linear: the bias is [3] f64; the weight [3,5] f32 wants [3] of its dtype");
    assert_non_null(wb_conv(image, w, WB_NONE));        /* without options, pedantically too */
}

TEST(numbers_out_of_range)
{
    REFUSED(wb_BatchNorm(3, .eps = -1), "BatchNorm: eps is -1; it cannot be negative");
    REFUSED(wb_BatchNorm(3, .momentum = 2), "BatchNorm: momentum is 2; it must be in [0, 1]");
    REFUSED(wb_BatchNorm(3, .momentum = NAN), "BatchNorm: momentum is nan; it must be in [0, 1]");
    REFUSED(wb_LayerNorm({3}, .eps = NAN), "LayerNorm: eps is nan; it cannot be negative");
    REFUSED(wb_Adam(.eta = INFINITY), "Adam: eta is inf; it must be finite");
    REFUSED(wb_Adam(.beta = {0.9, 1}), "Adam: beta[1] is 1; it must be below 1");
    REFUSED(wb_ClipGrad(.delta = -1), "ClipGrad: delta is -1; it must not be negative");
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

/* A number that is given as 0 is 0, wherever it stands among others. */
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
    assert_true(fabs(moved(wb_AdamW(.eta = 0.1, .lambda = 0.0, .eps = 0.0), 0, false) - 0.1) < 1e-6);
    assert_true(moved(wb_Descent(.eta = 0), 0, false) == 0);
    assert_true(moved(wb_OptimiserChain(wb_ClipGrad(.delta = 0), wb_Descent(1)), 0, false) == 0);
    char *text = wb_object_format(wb_Adam(.beta = {0, 0.5}, .eps = 0));
    assert_string_equal(text, "Adam(eta=0.001, beta=(0, 0.5), eps=0)");
    wb_free_text(text);
    text = wb_object_format(wb_Adam(.beta = {0.5}));
    assert_string_equal(text, "Adam(eta=0.001, beta=(0.5, 0.999), eps=1e-08)");
    wb_free_text(text);
    wb_tree *t = wb_tuple(wb_variable(wb_ones(1)));
    wb_opt_state *s = wb_setup(wb_AdamW(.eta = 1), t);
    assert_int_equal(wb_adjust(s, .eta = 0.0, .lambda = 1e-3, .beta = {0.5, 0.0}), 0);
    assert_int_equal(wb_adjust(s, .lambda = 0.25), 0);
    text = wb_object_format(s);
    assert_non_null(strstr(text, "AdamW(eta=0, beta=(0.5, 0), eps=1e-08, lambda=0.25)"));
    wb_free_text(text);
    REFUSED(!wb_adjust_with(s, &(wb_Rule_options){.size = sizeof(wb_Rule_options)}), "adjust: no number is given");
    REFUSED(wb_WeightDecay(0.5), "WeightDecay: it has no eta; 0.5 was given");
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
        wb_sum(x, .axes = {1, 0}), wb_sum(x, .keep = true, .axes = {1, 0}), wb_sum(x, 1, .keep = true),
        wb_sum(x), wb_sum(x, .keep = true), wb_sum(x, .axes = WB_INTS(0, 1, 2))};
    const char *shapes[] = {"[2,4]", "[2,4]", "[2,4]", "[2,4]", "[3,4]", "[3,4]", "[3]", "[3]",
                            "[4]", "[1,1,4]", "[2,1,4]", "[]", "[1,1,1]", "[]"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_memory_equal(wb_describe(forms[i]), shapes[i], strlen(shapes[i]));
    wb_reduce_options own = {.size = sizeof own, .axes = WB_INTS(2, 0)};
    assert_int_equal(wb_ndim(wb_sum_with(x, &own)), 1);
    wb_ints_set(own.axes, 1, (int64_t[]){0});
    assert_int_equal(wb_ndim(wb_sum_with(x, &own)), 2);
    REFUSED(wb_sum_with(x, &(wb_reduce_options){.size = sizeof own, .axes = {1, 2}}),
            "sum: .axes is not a list: initialise it with WB_INTS(...)");
    char *text = wb_object_format(wb_Dropout(0.5, .axes = {1, 0}));
    assert_string_equal(text, "Dropout(0.5, axes=(1, 0))");
    wb_free_text(text);
}

TEST(numbers_by_place)
{
    wb_dataset *d = wb_dataset_of(wb_randn(64, 3), WB_NONE);
    assert_int_equal(wb_loader_length(wb_dataloader(d, 32)), 2);
    assert_int_equal(wb_loader_length(wb_dataloader(d, 32, true)), 2);
    assert_int_equal(wb_loader_length(wb_dataloader(d)), 64);
    assert_int_equal(wb_loader_length(wb_dataloader(d, .batchsize = 32, .ahead = 0)), 2);
    REFUSED(wb_dataloader(d, .batchsize = 0), "dataloader: the batchsize is 0");
    char *text = wb_object_format(wb_Chain(wb_Conv(1, 6, 5), wb_Conv(1, 6, {5, 3}, wb_relu, .pad = {2}), wb_MaxPool(2),
                                           wb_MaxPool({3}, .stride = {2})));
    assert_non_null(strstr(text, "Conv((5, 5), 1 => 6)"));
    assert_non_null(strstr(text, "Conv((5, 3), 1 => 6, relu, pad=2)"));
    assert_non_null(strstr(text, "MaxPool((2, 2))"));
    assert_non_null(strstr(text, "MaxPool((3, 3), stride=2)"));
    wb_free_text(text);
}

static wb_tensor *gives_null(wb_tensor *x) { (void)x; return NULL; }
static wb_tensor *no_loss(wb_layer *m, wb_batch b, void *ctx) { (void)m, (void)b, (void)ctx; return NULL; }
static wb_tensor *wide_loss(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_square(wb_call(m, b.x));
}

TEST(errors_say_where)
{
    wb_layer *inner = wb_Chain(wb_Dense(4, 4), wb_named("head", wb_Dense(3, 2)));
    wb_layer *m = wb_Chain(wb_Dense(4, 4), wb_SkipConnection(inner, wb_add));
    wb_layer *both = wb_Chain(wb_Parallel(wb_add, wb_Dense(4, 2), m));
    REFUSED(wb_call(m, wb_ones(2, 4)),
            "layers.1.layers.layers.head: Dense: expects 3 features in the last dimension, got [2,4] f32");
    REFUSED(wb_call(both, wb_ones(2, 4)),
            "layers.0.layers.1.layers.1.layers.layers.head: Dense: expects 3 features in the last dimension, got [2,4] f32");
    REFUSED(wb_call(wb_Dense(3, 2), wb_ones(2, 4)), "Dense: expects 3 features in the last dimension, got [2,4] f32");
    REFUSED(wb_call(wb_Chain(wb_Dense(4, 4), gives_null), wb_ones(2, 4)),
            "layers.1: Function: gave NULL, and nothing failed");
}

/* What is handed NULL says so, unless NULL came from what failed before. */
TEST(null_is_named)
{
    wb_tensor *x = wb_ones(2, 2);
    wb_layer *m = wb_Dense(2, 2), *none = NULL;
    wb_tree *grads = NULL;
    wb_opt_state *s = wb_setup(wb_Adam(), m);
    REFUSED(wb_call(none, x), "call: layer is NULL, and nothing failed before");
    REFUSED(wb_mse(x, NULL), "mse: y is NULL, and nothing failed before");
    REFUSED(wb_add(x, NULL), "add: an operand is NULL, and nothing failed before");
    REFUSED(wb_setup(NULL, m), "setup: rule is NULL, and nothing failed before");
    REFUSED(!wb_update(s, m, grads), "update: grads is NULL, and nothing failed before");
    REFUSED(wb_update_new(s, m, grads), "update_new: grads is NULL, and nothing failed before");
    REFUSED(!wb_freeze(NULL, ""), "freeze: state is NULL, and nothing failed before");
    REFUSED(!wb_adjust(NULL, .eta = 0.1), "adjust: state is NULL, and nothing failed before");
    REFUSED(!wb_each_tensor(NULL, NULL, NULL), "each_tensor: object is NULL, and nothing failed before");
    REFUSED(wb_fmap(NULL, none, NULL), "fmap: x is NULL, and nothing failed before");
    REFUSED(wb_dataloader(NULL), "dataloader: d is NULL, and nothing failed before");
    REFUSED(wb_mse(wb_matmul(x, wb_ones(3, 3)), x), "matmul: inner sizes differ: [2,2] f32 · [3,3] f32");
    REFUSED(wb_withgradient(no_loss, m, (wb_batch){.x = x}, &grads),
            "withgradient: the loss function gave NULL, and nothing failed");
    wb_loader *l = wb_dataloader(wb_dataset_of(x, x), 2);
    REFUSED(!wb_train(wide_loss, m, l, s), "train: the loss function gave [2,2] f32, not one floating number: take its "
            "mean or sum");
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    return wb_mse(wb_call(model, batch.x), batch.y);
}

TEST(nothing_to_train_on)
{
    wb_layer *m = wb_Dense(3, 2);
    wb_loader *l = wb_dataloader(wb_dataset_of(wb_zeros(0, 3), wb_zeros(0, 2)), .batchsize = 4);
    REFUSED(!wb_train(loss, m, l, wb_setup(wb_Adam(), m)),
            "train: the loader has no batches: the dataset is empty, or shorter than a batch with "
            ".drop_last");
}

/* After an update a gradient of the old loss is neither silence nor zeros. */
TEST(gradient_after_the_update)
{
    wb_layer *m = wb_Dense(3, 1, .no_bias = true, .init = wb_init_ones);
    wb_opt_state *s = wb_setup(wb_Descent(), m);
    wb_tensor *l = loss(m, (wb_batch){.x = wb_ones(2, 3), .y = wb_zeros(2, 1)}, NULL);
    assert_int_equal(wb_update(s, m, wb_gradient(l, m)), 0);
    assert_true(wb_item(l) == 9);
    REFUSED(wb_gradient(l, m), "gradient: the loss was made from a value of weight that has been "
            "overwritten since: take the gradient before the update, or call the model again");
    assert_null(wb_gradient(l, wb_get(m, "weight")));
}

TEST(layers_in_tuples_print_their_commas)
{
    wb_layer *chain = wb_Chain(wb_Dense(3, 4), wb_Dense(4, 4));
    char *text = wb_object_format(wb_tuple(wb_Dense(3, 2), chain, wb_ones(2)));
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

/* Inputs of a recording are its inputs, whatever they were when it was made: one tensor twice, a
 * variable. */
TEST(compiled_inputs)
{
    wb_tensor *one = wb_full_array(1, WB_F32, 1, (int64_t[]){1}), *two = wb_full_array(2, WB_F32, 1, (int64_t[]){1});
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
            "item: called inside a function that wb_compile is recording: no value exists yet; make what "
            "is read a result of the function and read it after wb_call_compiled (wb_where chooses "
            "between values)");
    REFUSED(!wb_call_compiled(wb_compile(nothing, NULL), 1, &one, 1, out),
            "compile: result 0 of the function is NULL; it was called with 1 input");
    REFUSED(!wb_call_compiled(c, 1, NULL, 1, out),
            "call_compiled: 1 inputs, 1 results, and no array of them");
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
