/* Recurrence over cells of the library and of the program, and initial states. nn_sequences has its
 * numbers by PyTorch, on all devices. */
#include "nn/layer.h"

#include "own_cell.h"
#include "reference.h"

static double difference(wb_tensor *x, wb_tensor *y)
{
    wb_tensor *most = wb_max(wb_abs(wb_sub(wb_astype(x, WB_F32), wb_astype(y, WB_F32))));
    if (!most) fail_msg("%s", wb_error());
    return wb_item(most);
}

/* A Recurrence over a cell of the library is the layer with the same parameters. */
TEST_IN_SCOPE(cells_of_the_library)
{
    static const int32_t some[3] = {0, 4, 2};
    wb_layer *cells[4] = {wb_RNNCell(2, 3, wb_relu), wb_LSTMCell(2, 3, .initial_state = true),
                          wb_GRUCell(2, 3, .hidden_bias = true), wb_GRUv3Cell(2, 3)};
    wb_layer *layers[4] = {wb_RNN(2, 3, wb_relu, .return_state = true),
                           wb_LSTM(2, 3, .initial_state = true, .return_state = true),
                           wb_GRU(2, 3, .hidden_bias = true, .return_state = true),
                           wb_GRUv3(2, 3, .return_state = true)};
    wb_tensor *x = wb_randn(3, 4, 2), *n = wb_from(some, WB_I32, 1, (int64_t[]){3});
    for (int i = 0; i < 4; i++) {
        WORKS(wb_set(cells[i], "bias", wb_randn(wb_dim(wb_get(cells[i], "bias"), 0))));
        wb_layer *l = wb_Recurrence(cells[i], .return_state = true);
        for (int k = 0; k < cells[i]->node.n; k++) {
            const char *name = cells[i]->node.children[k].name;
            WORKS(wb_set(layers[i], name, wb_get(cells[i], name)));
        }
        const int n_out = i == 1 ? 3 : 2;
        wb_tensor *want[3], *got[3], *inputs[3] = {x, n, n};
        for (int lengths = 0; lengths < 2; lengths++) {
            WORKS(wb_call_outputs(layers[i], 1 + lengths, inputs, n_out, want));
            WORKS(wb_call_outputs(l, 1 + lengths, inputs, n_out, got));
            for (int k = 0; k < n_out; k++) assert_true(difference(want[k], got[k]) == 0);
        }
        /* the states of a call, and the last output only */
        wb_layer *last = wb_Recurrence(cells[i], .last = true);
        memcpy(inputs + 1, want + 1, 2 * sizeof *want);
        WORKS(wb_call_outputs(layers[i], n_out, inputs, n_out, want));
        wb_tensor *y = wb_call_array(last, n_out, inputs);
        MADE(y);
        assert_true(difference(y, want[1]) == 0);
        assert_int_equal(wb_parameter_count(l), wb_parameter_count(layers[i]));
    }
}

/* The two directions of a bidirectional layer are two Recurrences. */
TEST_IN_SCOPE(reversed)
{
    static const int32_t some[3] = {3, 4, 1};
    wb_layer *both = wb_GRU(2, 3, .bidirectional = true), *cell = wb_GRUCell(2, 3);
    static const char *const names[3] = {"weight_input", "weight_hidden", "bias"};
    static const char *const others[3] = {"weight_input_reverse", "weight_hidden_reverse",
                                          "bias_reverse"};
    for (int i = 0; i < 3; i++) WORKS(wb_set(cell, names[i], wb_get(both, others[i])));
    wb_tensor *x = wb_randn(3, 4, 2), *n = wb_from(some, WB_I32, 1, (int64_t[]){3});
    wb_layer *l = wb_Recurrence(cell, .reverse = true);
    assert_true(difference(wb_slice(wb_call(both, x), 2, 3, 6), wb_call(l, x)) == 0);
    assert_true(difference(wb_slice(wb_call(both, x, n), 2, 3, 6), wb_call(l, x, n)) == 0);
}

/* Lengths and states of a cell of the program: each sequence alone gives the same. */
TEST_IN_SCOPE(own_cell_lengths)
{
    static const int32_t some[3] = {3, 4, 1};
    wb_tensor *x = wb_randn(3, 4, 2), *n = wb_from(some, WB_I32, 1, (int64_t[]){3}), *y[3];
    wb_tensor *h = wb_randn(3, 3), *m = wb_rand(3, 1);
    for (int reverse = 0; reverse < 2; reverse++) {
        wb_layer *cell = new_own_cell();
        wb_layer *l = wb_Recurrence(cell, .return_state = true, .reverse = reverse);
        wb_layer *last = wb_Recurrence(cell, .last = true, .reverse = reverse);
        WORKS(wb_call_outputs(l, 4, (wb_tensor *[]){x, h, m, n}, 3, y));
        wb_tensor *end = wb_call(last, x, h, m, n);
        for (int64_t i = 0; i < 3; i++) {
            wb_tensor *part = wb_slice(wb_slice(x, 0, i, i + 1), 1, 0, some[i]), *alone[3];
            wb_tensor *in[3] = {part, wb_slice(h, 0, i, i + 1), wb_slice(m, 0, i, i + 1)};
            WORKS(wb_call_outputs(l, 3, in, 3, alone));
            assert_true(difference(wb_slice(wb_slice(y[0], 0, i, i + 1), 1, 0, some[i]),
                                   alone[0]) < 1e-6);
            for (int k = 1; k < 3; k++)
                assert_true(difference(wb_slice(y[k], 0, i, i + 1), alone[k]) < 1e-6);
            assert_true(difference(wb_slice(end, 0, i, i + 1), wb_call_array(last, 3, in)) < 1e-6);
            wb_tensor *behind = wb_slice(wb_slice(y[0], 0, i, i + 1), 1, some[i], 4);
            assert_true(some[i] == 4 || wb_item(wb_max(wb_abs(behind))) == 0);
        }
    }
}

/* A cell over images: the steps of x are [N, C, L], and indices count the steps. */
typedef struct { wb_layer *conv; } image_cell;
static int call_image_cell(const image_cell *c, int n, wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *h = n > 1 ? in[2] : wb_mul(in[0], 0.5);
    out[0] = wb_tanh(wb_add(wb_call(c->conv, in[0]), h));
    out[1] = n > 1 ? wb_add(in[1], wb_scalar_int(1)) : wb_full_array(0, WB_I32, 0, NULL);
    out[2] = out[0];
    return 3;
}
WB_LAYER(image_cell, call_image_cell, conv)

TEST_IN_SCOPE(cells_of_images)
{
    wb_layer *conv = wb_Conv1d(2, 2, {3}, .pad = {1}), *cell = wb_layer_of(image_cell, conv);
    wb_layer *l = wb_Recurrence(cell, .return_state = true);
    wb_tensor *x = wb_randn(2, 3, 2, 5), *y[3], *h = NULL;
    WORKS(wb_call_outputs(l, 1, &x, 3, y));
    assert_memory_equal(wb_dims(y[0]), ((int64_t[]){2, 3, 2, 5}), 4 * sizeof(int64_t));
    for (int64_t t = 0; t < 3; t++) {
        wb_tensor *now = wb_reshape(wb_slice(x, 1, t, t + 1), 2, 2, 5);
        h = wb_tanh(wb_add(wb_call(conv, now), h ? h : wb_mul(now, 0.5)));
        assert_true(difference(h, wb_reshape(wb_slice(y[0], 1, t, t + 1), 2, 2, 5)) < 1e-6);
    }
    assert_true(wb_item(y[1]) == 2 && difference(y[2], h) < 1e-6);
    wb_tensor *n = wb_from((int32_t[]){3, 1}, WB_I32, 1, (int64_t[]){2});
    REFUSED(wb_call(l, x, n), WB_ERROR_SHAPE, "[] i32", "[2, ...]");
    REFUSED(wb_call(wb_Recurrence(new_own_cell(), .reverse = true), x, n), WB_ERROR_ARGUMENT,
            "Recurrence", ".reverse", "lengths", "states");
}

/* Trained in a Chain, moved to another dtype, shown, summarised. */
TEST_IN_SCOPE(recurrences_are_layers)
{
    wb_layer *l = wb_Chain(wb_Recurrence(new_own_cell(), .last = true), wb_Dense(3, 1));
    wb_tensor *x = wb_randn(4, 5, 2), *y = wb_full(0.5, 4, 1);
    wb_opt_state *s = wb_setup(wb_Adam(0.05), l);
    double first = 0, now = 0;
    for (int i = 0; i < 20; i++) {
        wb_tensor *loss = wb_mse(wb_call(l, x), y);
        MADE(loss);
        WORKS(wb_update(s, l, wb_gradient(loss, l)));
        now = wb_item(loss);
        if (!i) first = now;
    }
    assert_true(now < 0.3 * first);
    if (has_dtype(WB_F64)) {
        wb_layer *wide = wb_to(l, wb_device_of(l), .dtype = WB_F64);
        assert_true(difference(wb_call(wide, wb_astype(x, WB_F64)), wb_call(l, x)) < 1e-5);
    }
    char *text = wb_object_format(wb_Recurrence(wb_LSTMCell(2, 3), .last = true, .reverse = true));
    assert_non_null(strstr(text, "Recurrence(LSTMCell(2 => 3); last=true, reverse=true)"));
    assert_non_null(strstr(text, "72 parameters"));
    wb_free_text(text);
    text = wb_summary_format(l, 1, &x);
    MADE(text);
    assert_non_null(strstr(text, "layers.0 "));
    assert_null(strstr(text, "layers.0.cell"));
    wb_free_text(text);
    assert_int_equal(wb_layer_count(wb_layer_at(l, "layers.0")), 1);
}

TEST_IN_SCOPE(initial_states)
{
    wb_tensor *s[2], *x = wb_randn(2, 4, 2);
    WORKS(wb_initial_states(wb_LSTMCell(2, 3, .dtype = WB_F16), 2, 2, s));
    assert_non_null(strstr(wb_describe(s[1]), "[2,3] f16"));
    assert_true(wb_item(wb_sum(wb_abs(wb_astype(s[0], WB_F32)))) == 0);
    wb_layer *deep = wb_GRU(2, 3, .layers = 2, .bidirectional = true, .initial_state = true);
    static const char *const names[4] = {"initial_hidden", "initial_hidden_reverse",
                                         "initial_hidden_l1", "initial_hidden_l1_reverse"};
    for (int i = 0; i < 4; i++) WORKS(wb_set(deep, names[i], wb_full(i, 3)));
    WORKS(wb_initial_states(deep, 2, 1, s));
    assert_non_null(strstr(wb_describe(s[0]), "[4,2,3] f32"));
    for (int i = 0; i < 4; i++) assert_true(wb_at(s[0], i, 1, 2) == i);
    assert_true(difference(wb_call(deep, x, s[0]), wb_call(deep, x)) < 1e-6);
    wb_tensor *g = wb_gradient(wb_sum(s[0]), wb_get(deep, "initial_hidden_l1"));
    MADE(g);
    assert_true(wb_at(g, 1) == 2);
    wb_layer *cell = wb_GRUCell(2, 3, .initial_state = true);
    WORKS(wb_set(cell, "initial_hidden", wb_full(0.25, 3)));
    WORKS(wb_initial_states(wb_Recurrence(wb_WeightNorm(cell, "weight_hidden")), 5, 1, s));
    assert_non_null(strstr(wb_describe(s[0]), "[5,3] f32"));
    assert_true(wb_at(s[0], 4, 1) == 0.25);
    REFUSED(!wb_initial_states(cell, 2, 2, s), WB_ERROR_ARGUMENT, "GRUCell", "1", "2");
    REFUSED(!wb_initial_states(cell, -2, 1, s), WB_ERROR_ARGUMENT, "initial_states", "negative");
    REFUSED(!wb_initial_states(cell, 2, 1, NULL), WB_ERROR_ARGUMENT, "initial_states", "states");
    REFUSED(!wb_initial_states(new_own_cell(), 2, 1, s), WB_ERROR_ARGUMENT, "own_cell", "own");
    REFUSED(!wb_initial_states(wb_Dense(2, 3), 2, 1, s), WB_ERROR_ARGUMENT, "Dense");
}

typedef struct { wb_tensor *w; int64_t outputs; } odd_cell;
static int call_odd_cell(const odd_cell *c, int n, wb_tensor *const *in, wb_tensor **out)
{
    if (c->outputs < 0) return out[0] = wb_matmul(in[0], wb_zeros(7, 7)), out[0] ? 1 : -1;
    for (int i = 0; i < c->outputs + n - 1; i++) out[i] = c->outputs ? in[0] : wb_sum(in[0]);
    if (!c->outputs) return out[1] = in[0], out[0] = wb_sum(in[0]), 2;
    return (int)c->outputs + n - 1;
}
WB_LAYER(odd_cell, call_odd_cell, w, outputs)

TEST_IN_SCOPE(wrong_recurrences)
{
    wb_tensor *x = wb_zeros(2, 4, 2), *w = wb_zeros(1);
    REFUSED(wb_Recurrence(wb_LSTM(2, 3)), WB_ERROR_ARGUMENT, "Recurrence", "LSTM");
    REFUSED(wb_Recurrence(wb_Dense(2, 3)), WB_ERROR_ARGUMENT, "Recurrence", "Dense");
    REFUSED(wb_Recurrence(NULL), WB_ERROR_ARGUMENT, "NULL");
    wb_layer *l = wb_Recurrence(wb_LSTMCell(2, 3));
    REFUSED(wb_call(l, wb_zeros(2, 4, 3)), WB_ERROR_SHAPE, "cell: LSTMCell", "[2,4,3] f32");
    REFUSED(wb_call(l, wb_zeros(2, 0, 2)), WB_ERROR_SHAPE, "LSTMCell", "[2,0,2] f32");
    REFUSED(wb_call(l, x, wb_zeros(2, 3)), WB_ERROR_ARGUMENT, "LSTMCell", "2");
    l = wb_Recurrence(new_own_cell());
    REFUSED(wb_call(l, wb_zeros(2)), WB_ERROR_SHAPE, "Recurrence", "[2] f32");
    REFUSED(wb_call(l, wb_zeros(2, 0, 2)), WB_ERROR_SHAPE, "Recurrence", "[2,0,2] f32");
    REFUSED(wb_call(wb_Chain(wb_Recurrence(wb_layer_of(odd_cell, w, 1))), x), WB_ERROR_ARGUMENT,
            "layers.0.cell: odd_cell", "one tensor");
    REFUSED(wb_call(wb_Recurrence(wb_layer_of(odd_cell, w, 3)), x), WB_ERROR_ARGUMENT, "odd_cell",
            "4", "2");
    REFUSED(wb_call(wb_Recurrence(wb_layer_of(odd_cell, w, 0)), x), WB_ERROR_SHAPE,
            "cell: odd_cell", "[] f32", "2");
    REFUSED(wb_call(wb_Chain(wb_Recurrence(wb_layer_of(odd_cell, w, -1))), x), WB_ERROR_SHAPE,
            "layers.0.cell: ", "[2,2] f32");
}

/* ---- other ways to run ----------------------------------------------------------------------- */

static wb_layer *both_wrappers(void)
{
    wb_layer *cell = wb_WeightNorm(wb_GRUCell(2, 3, .init = wb_init_normal), "weight_hidden");
    return wb_Chain(wb_Recurrence(cell, .last = true), wb_WeightNorm(wb_Dense(3, 1)));
}

static int call_model(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx)
{
    outputs[0] = wb_call(ctx, inputs[0]);
    return outputs[0] ? 1 : -1;
}

/* A compiled function sees other values, and other tensors, of the layers inside. */
TEST_IN_SCOPE(compiled)
{
    static const char *const paths[4] = {"layers.0.cell.g", "layers.0.cell.layer.weight_hidden",
                                         "layers.1.g", "layers.1.layer.weight"};
    wb_layer *l = both_wrappers();
    wb_tensor *x = wb_randn(4, 5, 2), *y, *before = wb_call(l, x);
    wb_compiled *f = wb_compile(call_model, l);
    WORKS(wb_eval(before));
    WORKS(wb_call_compiled(f, 1, &x, 1, &y));
    assert_true(difference(y, before) < 1e-6);
    for (int i = 0; i < 8; i++) {
        wb_tensor *old = wb_get(l, paths[i / 2]);
        wb_tensor *now = wb_randn_array(WB_F32, wb_ndim(old), wb_dims(old));
        if (i % 2) WORKS(wb_set(l, paths[i / 2], now));
        else WORKS(wb_assign(old, now));
        WORKS(wb_call_compiled(f, 1, &x, 1, &y));
        assert_true(difference(y, wb_call(l, x)) < 1e-6);
        assert_true(difference(y, before) > 1e-5);
        MADE(before = wb_add(y, 0));
        WORKS(wb_eval(before));
    }
    wb_object_free(f);
}

static wb_tensor *loss(wb_layer *m, wb_batch b, void *ctx)
{
    return (void)ctx, wb_mse(wb_call(m, b.x), b.y);
}

static int warnings;
static void count(wb_log_level level, const char *text, void *ctx)
{
    (void)text, (void)ctx;
    warnings += level == WB_LOG_WARN;
}

/* Gradient checkpointing changes no gradient; .mixed training works and warns of nothing. */
TEST_IN_SCOPE(trained_otherwise)
{
    wb_layer *l = both_wrappers();
    wb_batch b = wb_batch_of(wb_randn(4, 5, 2), wb_full(0.7, 4, 1));
    wb_tree *grads[2];
    for (int i = 0; i < 2; i++) {
        wb_checkpoint_layer(wb_layer_at(l, "layers.0"), i);
        wb_checkpoint_layer(wb_layer_at(l, "layers.1"), i);
        MADE(wb_withgradient(loss, l, b, &grads[i]));
    }
    assert_true(difference(wb_get(grads[0], "layers.0.cell.g"),
                           wb_get(grads[1], "layers.0.cell.g")) < 1e-6);
    assert_true(difference(wb_get(grads[0], "layers.1.layer.weight"),
                           wb_get(grads[1], "layers.1.layer.weight")) < 1e-6);
    assert_true(wb_item(wb_max(wb_abs(wb_get(grads[1], "layers.0.cell.g")))) > 1e-4);
    wb_opt_state *s = wb_setup(wb_Adam(0.02), l, .mixed = WB_BF16);
    double first = 0, now = 0;
    wb_set_log(count, NULL);
    for (int i = 0; i < 30; i++) {
        wb_tree *g;
        wb_tensor *y = wb_withgradient(loss, l, b, &g);
        MADE(y);
        WORKS(wb_update(s, l, g));
        now = wb_item(y);
        if (!i) first = now;
    }
    wb_set_log(NULL, NULL);
    assert_true(now < 0.3 * first && !warnings);
    assert_int_equal(wb_dtype_of(wb_get(l, "layers.1.g")), WB_BF16);
}
