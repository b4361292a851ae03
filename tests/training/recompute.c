/* wb_checkpoint_layer: values inside layers are computed again in the backward pass. */
#include "test.h"

#include "weber.h"

enum { WIDTH = 64, ROWS = 256, BLOCKS = 6 };

static wb_layer *block(void)
{
    return wb_Chain(wb_Dense(WIDTH, 4 * WIDTH, wb_gelu), wb_Dropout(0.25),
                    wb_Dense(4 * WIDTH, WIDTH, wb_tanh), wb_BatchNorm(WIDTH));
}

static wb_layer *model(bool checkpointed)
{
    wb_layer *blocks[BLOCKS];
    wb_seed(1);
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = wb_SkipConnection(block(), wb_add);
        if (checkpointed) assert_ptr_equal(wb_checkpoint_layer(blocks[i], true), blocks[i]);
    }
    return wb_Chain_array(BLOCKS, blocks);
}

static wb_tensor *squares(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(m, b.x), b.y);
}

/* m is a tuple of a layer and its input.  The gradient of the input is about 1. */
static wb_tensor *squares_of_input(wb_layer *m, wb_batch b, void *ctx)
{
    wb_tree *both = (wb_tree *)m;
    wb_layer *layer = wb_layer_at(both, "0");
    wb_tensor *in = wb_get(both, "1");
    return wb_div(wb_sum(wb_square(wb_sub(wb_call(layer, in), b.y))), 100);
}

static int same(wb_tensor *x, const char *path, void *ctx)
{
    wb_tensor *y = wb_get(ctx, path);
    assert_non_null(y);
    const double apart = wb_item(wb_max(wb_abs(wb_sub(x, y))));
    const double size = wb_item(wb_max(wb_abs(y)));
    if (!(apart <= 1e-5 * (1 + size))) fail_msg("%s: %g apart, of %g", path, apart, size);
    return 0;
}

/* The same losses, gradients, running statistics and random numbers as without. */
TEST_IN_SCOPE(same_results)
{
    wb_layer *m[2] = {model(false), model(true)};
    wb_tensor *x = wb_randn(ROWS, WIDTH), *y = wb_randn(ROWS, WIDTH), *loss[2], *next[2];
    wb_tree *grads[2];
    for (int k = 0; k < 2; k++) {
        wb_seed(2);
        loss[k] = wb_withgradient(squares, m[k], wb_batch_of(x, y), &grads[k]);
        if (!loss[k]) fail_msg("%s", wb_error());
        next[k] = wb_rand(3);
        assert_int_equal(wb_eval(loss[k]), 0);
    }
    assert_true(wb_item(loss[0]) == wb_item(loss[1]));
    assert_true(wb_item(wb_sum(wb_abs(wb_sub(next[0], next[1])))) == 0);
    assert_int_equal(wb_each_tensor(grads[0], same, grads[1]), 0);
    assert_int_equal(wb_each_tensor(m[0], same, m[1]), 0);
    /* the input's gradient, in wb_withgradient and in a call that is not checkpointed */
    wb_tensor *in = wb_variable(x), *inner[2], *outer[2];
    for (int k = 0; k < 2; k++) {
        wb_trainmode(m[k]);
        wb_seed(3);
        inner[k] = wb_gradient(wb_div(wb_sum(wb_square(wb_call(m[k], in))), 100), in);
        wb_seed(3);
        wb_tree *both = wb_tuple(m[k], in);
        loss[k] = wb_withgradient(squares_of_input, both, wb_batch_of(x, y), &grads[k]);
        if (!loss[k] || !inner[k]) fail_msg("%s", wb_error());
        outer[k] = wb_get(grads[k], "1");
    }
    for (int i = 0; i < 2; i++) {
        wb_tensor **of = i ? inner : outer;
        assert_true(wb_item(wb_max(wb_abs(of[0]))) > 0.1);
        assert_true(wb_item(wb_max(wb_abs(wb_sub(of[0], of[1])))) < 1e-5);
    }
}

static wb_memory memory_of(bool checkpointed)
{
    wb_layer *m = model(checkpointed);
    wb_tensor *x = wb_zeros(ROWS, WIDTH);
    wb_tree *grads;
    wb_memory memory;
    wb_tensor *loss =
        wb_withgradient(squares, m, wb_batch_of(x, x), &grads);
    wb_opt_state *state = wb_setup(wb_Descent(0.1), m);
    assert_int_equal(wb_update(state, m, grads), 0);
    assert_int_equal(wb_estimate_memory(1, &loss, &memory), 0);
    return memory;
}

/* With six blocks, the plan keeps one block's values and the blocks' outputs. */
TEST_IN_SCOPE(less_memory)
{
    const wb_memory all = memory_of(false), less = memory_of(true);
    if (!(less.arena < 0.55 * (double)all.arena))
        fail_msg("%lld bytes with checkpoints, %lld without", (long long)less.arena,
                 (long long)all.arena);
    assert_true(less.kernels > all.kernels);
}

TEST_IN_SCOPE(training_and_compiled_steps)
{
    wb_layer *m[2] = {model(false), model(true)};
    wb_seed(4);
    wb_tensor *x = wb_randn(ROWS, WIDTH), *y = wb_randn(ROWS, WIDTH);
    double loss[2];
    for (int k = 0; k < 2; k++) {
        wb_opt_state *state = wb_setup(wb_Adam(0.001), m[k]);
        wb_loader *data = wb_dataloader(wb_dataset_of(x, y), 64);
        wb_seed(5);
        assert_int_equal(wb_train(squares, m[k], data, state, .epochs = 3), 0);
        wb_testmode(m[k]);
        loss[k] = wb_item(wb_mse(wb_call(m[k], x), y));
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-4 * loss[0]);
}

/* A step that wb_compile replays draws other random numbers each time, the same in both calls. */
static int compiled_step(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    wb_tree *grads;
    out[0] = wb_withgradient(squares, ctx, wb_batch_of(in[0], in[1]), &grads);
    out[1] = out[0] ? wb_get(grads, "layers.0.layers.layers.0.weight") : NULL;
    return out[1] ? 2 : -1;
}

TEST_IN_SCOPE(replays)
{
    wb_layer *m[2] = {model(false), model(true)};
    wb_tensor *in[2] = {wb_randn(ROWS, WIDTH), wb_randn(ROWS, WIDTH)};
    assert_int_equal(wb_eval(in[0], in[1]), 0);
    wb_tensor *out[2][3][2];
    for (int k = 0; k < 2; k++) {
        wb_compiled *c = wb_compile(compiled_step, m[k]);
        wb_seed(6);
        for (int i = 0; i < 3; i++)
            if (wb_call_compiled(c, 2, in, 2, out[k][i])) fail_msg("%s", wb_error());
    }
    for (int i = 0; i < 3; i++) {
        const double loss[2] = {wb_item(out[0][i][0]), wb_item(out[1][i][0])};
        assert_true(fabs(loss[0] - loss[1]) < 1e-6 * loss[0]);
        const double apart = wb_item(wb_max(wb_abs(wb_sub(out[0][i][1], out[1][i][1]))));
        assert_true(apart < 1e-6);
    }
    assert_true(wb_item(out[1][0][0]) != wb_item(out[1][1][0]));
}

/* Sums of masks are exact: those of a checkpointed layer are those of the plain one. */
static int compiled_masks(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_call(ctx, in[0]);
    out[1] = out[0] ? wb_gradient(wb_sum(wb_square(out[0])), wb_get(ctx, "layers.0.scale")) : NULL;
    return out[1] ? 2 : -1;
}

TEST_IN_SCOPE(replayed_masks)
{
    wb_tensor *in = wb_ones(ROWS, WIDTH), *out[2][3][2];
    assert_int_equal(wb_eval(in), 0);
    for (int k = 0; k < 2; k++) {
        wb_layer *m = wb_Chain(wb_Scale({WIDTH}), wb_Dropout(0.5));
        wb_trainmode(m);
        if (k) assert_non_null(wb_checkpoint_layer(m, true));
        wb_compiled *c = wb_compile(compiled_masks, m);
        wb_seed(6);
        for (int i = 0; i < 3; i++)
            if (wb_call_compiled(c, 1, &in, 2, out[k][i])) fail_msg("%s", wb_error());
    }
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++)
            assert_memory_equal(wb_data(out[0][i][j]), wb_data(out[1][i][j]),
                                (size_t)wb_size(out[0][i][j]) * sizeof(float));
    assert_true(memcmp(wb_data(out[1][0][0]), wb_data(out[1][1][0]), ROWS * WIDTH * sizeof(float)));
}

/* Gradients reach parameters and inputs by every path, and gradients of gradients too. */
static wb_tensor *penalty(wb_layer *m, wb_batch b, void *ctx)
{
    wb_tensor *x = wb_mul(b.x, wb_get(ctx, "gain"));
    wb_tensor *y = wb_sum(wb_square(wb_call(m, wb_call(m, x))));
    return wb_add(y, wb_sum(wb_square(wb_gradient(y, x))));
}

TEST_IN_SCOPE(every_path)
{
    wb_seed(7);
    wb_layer *d = wb_Dense(3, 3, wb_tanh);
    wb_tensor *x = wb_randn(4, 3), *gain = wb_variable(wb_ones(3));
    wb_tree *extra = wb_named_tuple(1, (const char *[]){"gain"}, (void *[]){gain}), *grads[2];
    wb_tensor *by_gain[2], *flat = wb_variable(wb_destructure(d)), *by_flat[2];
    for (int on = 0; on < 2; on++) {
        wb_checkpoint_layer(d, on);
        wb_tensor *loss = wb_withgradient(penalty, d, wb_batch_of(x, WB_NONE), &grads[on], extra);
        if (!loss) fail_msg("%s", wb_error());
        by_gain[on] = wb_gradient(loss, gain);
        wb_layer *made = wb_checkpoint_layer(wb_restructure(d, flat), on);
        by_flat[on] = wb_gradient(wb_withgradient(penalty, made, wb_batch_of(x, WB_NONE), NULL,
                                                  extra), flat);
        if (!by_gain[on] || !by_flat[on]) fail_msg("%s", wb_error());
    }
    assert_int_equal(wb_each_tensor(grads[0], same, grads[1]), 0);
    same(by_gain[0], "", by_gain[1]);
    same(by_flat[0], "", by_flat[1]);
    assert_true(wb_item(wb_max(wb_abs(by_flat[1]))) > 0.1);
}

/* A layer that uses a tensor from outside has no gradient to it. */
static wb_tensor *outside;
typedef struct { double by; } shifted;
static wb_tensor *call_shifted(const shifted *s, wb_tensor *x)
{
    return wb_add(x, wb_mul(outside, s->by));
}
WB_LAYER(shifted, call_shifted, by)

static wb_tensor *summed(wb_layer *m, wb_batch b, void *ctx) { return wb_sum(wb_call(m, b.x)); }

TEST_IN_SCOPE(wrong_uses)
{
    wb_layer *d = wb_checkpoint_layer(wb_Dense(2, 2), true);
    wb_tensor *x = wb_ones(3, 2);
    wb_tree *grads;
    wb_layer *two = wb_checkpoint_layer(wb_Parallel(wb_separate, d, d), true);
    REFUSED(wb_withgradient(summed, two, wb_batch_of(x, WB_NONE), &grads), WB_ERROR_UNSUPPORTED,
            "Parallel", "2", "wb_checkpoint_layer");
    REFUSED(wb_checkpoint_layer((wb_layer *)x, true), WB_ERROR_ARGUMENT, "checkpoint_layer",
            "tensor", "layer");
    wb_layer *open = wb_checkpoint_layer(wb_layer_of(shifted, 2), true);
    wb_tensor *in = wb_variable(x);
    outside = wb_square(wb_variable(wb_ones(2)));
    wb_tensor *loss = wb_withgradient(summed, open, wb_batch_of(in, WB_NONE), NULL);
    REFUSED(wb_gradient(loss, in), WB_ERROR_UNSUPPORTED, "checkpoint_layer", "shifted", "[2] f32");
    outside = wb_ones(2);
    loss = wb_withgradient(summed, open, wb_batch_of(in, WB_NONE), NULL);
    assert_true(wb_item(wb_sum(wb_gradient(loss, in))) == 6);
    /* a copy keeps the setting; an embedding's integers have no gradient */
    wb_layer *m = wb_checkpoint_layer(wb_Chain(wb_Embedding(5, 2), wb_Dense(2, 2)), true);
    wb_tensor *ids = wb_from(((int32_t[]){1, 3, 3}), WB_I32, 1, (int64_t[]){3});
    assert_non_null(wb_withgradient(summed, m, wb_batch_of(ids, WB_NONE), &grads));
    assert_true(wb_at(wb_get(grads, "layers.0.weight"), 3, 0) ==
                2 * wb_at(wb_get(grads, "layers.0.weight"), 1, 0));
    assert_true(wb_at(wb_get(grads, "layers.0.weight"), 0, 0) == 0);
}
