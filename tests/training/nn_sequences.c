/* Attention and recurrent layers against PyTorch: sequences.safetensors, written by
 * make_golden_sequences.py; and the cache of keys and values against calls of the whole text. */
#define GOLDEN_FILE WB_TEST_DATA "/sequences.safetensors"
#include "golden_layer.h"
#include "reference.h"

/* The cell of recurrence_own: an output, and two states of different sizes. */
typedef struct { wb_tensor *weight, *gain; } own_cell;
static int call_own_cell(const own_cell *c, int n, wb_tensor *const *in, wb_tensor **out)
{
    if (n != 1 && n != 3) return -1;
    const int64_t dims[2] = {wb_dim(in[0], 0), 3}, ones[2] = {dims[0], 1};
    const wb_dtype dtype = wb_dtype_of(in[0]);
    wb_tensor *h = n > 1 ? in[1] : wb_full_array(0, dtype, 2, dims);
    wb_tensor *m = n > 1 ? in[2] : wb_full_array(1, dtype, 2, ones);
    h = wb_tanh(wb_add(wb_linear(in[0], c->weight, WB_NONE), wb_mul(wb_mul(h, c->gain), m)));
    m = wb_add(wb_mul(m, 0.5), wb_mean(h, .axes = {1}, .keep = true));
    out[0] = wb_mul(h, m);
    out[1] = h;
    out[2] = m;
    return 3;
}
WB_LAYER(own_cell, call_own_cell, weight, gain)

static wb_layer *new_own_cell(void)
{
    return wb_layer_of(own_cell, wb_variable(wb_randn(3, 2)), wb_variable(wb_randn(3)));
}

/* X(name in sequences.safetensors, layer) */
#define CASES(X)                                                                               \
    X(attention_sizes, wb_MultiHeadAttention(6, 2, .k_in = 5, .v_in = 4, .qk_dim = 4,          \
                                             .v_dim = 8, .out = 3, .bias = true,               \
                                             .weights = true))                                 \
    X(attention_groups, wb_MultiHeadAttention(8, 4, .kv_heads = 2, .causal = true,             \
                                              .rotary = 100))                                  \
    X(rnn_states, wb_RNN(2, 3, .return_state = true))                                          \
    X(lstm_states, wb_LSTM(2, 3, .return_state = true))                                        \
    X(gru_states, wb_GRU(2, 3, .return_state = true))                                          \
    X(lstm_deep, wb_LSTM(2, 3, .layers = 2, .bidirectional = true, .return_state = true))      \
    X(gru_deep, wb_GRU(2, 3, .layers = 2, .bidirectional = true, .hidden_bias = true,          \
                       .return_state = true))                                                  \
    X(rnn_deep, wb_RNN(2, 3, .layers = 3, .return_state = true))                               \
    X(rnn_both, wb_RNN(2, 3, .bidirectional = true))                                           \
    X(lstm_lengths, wb_LSTM(2, 3, .return_state = true))                                       \
    X(gruv3, wb_GRUv3(2, 3, .return_state = true))                                             \
    X(recurrence_own, wb_Recurrence(new_own_cell(), .return_state = true))

#define CASE(name, layer) TEST(name) { check_in(#name, layer, false); }
CASES(CASE)

static double difference(wb_tensor *x, wb_tensor *y)
{
    wb_tensor *most = wb_max(wb_abs(wb_sub(wb_astype(x, WB_F32), wb_astype(y, WB_F32))));
    if (!most) fail_msg("%s", wb_error());
    return wb_item(most);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* A text in two parts, with the state handed on, gives what the whole text gives. */
TEST_IN_SCOPE(carried_state)
{
    wb_layer *l = wb_LSTM(2, 3, .return_state = true);
    wb_tensor *x = wb_randn(2, 5, 2), *whole[3], *part[3], *rest[3];
    WORKS(wb_call_outputs(l, 1, &x, 3, whole));
    WORKS(wb_call_outputs(l, 1, (wb_tensor *[]){wb_slice(x, 1, 0, 2)}, 3, part));
    WORKS(wb_call_outputs(l, 3, (wb_tensor *[]){wb_slice(x, 1, 2, 5), part[1], part[2]}, 3, rest));
    assert_true(difference(wb_concat(1, part[0], rest[0]), whole[0]) < 1e-6);
    assert_true(difference(rest[1], whole[1]) < 1e-6 && difference(rest[2], whole[2]) < 1e-6);
    assert_true(difference(part[2], whole[2]) > 1e-4);
    wb_tensor *h = wb_zeros(2, 3);
    REFUSED(wb_call(l, x, h), WB_ERROR_ARGUMENT, "LSTM", "2");
    REFUSED(wb_call(wb_GRU(2, 3), x, wb_zeros(1, 3)), WB_ERROR_SHAPE, "GRU", "[2,3]", "[1,3] f32");
    REFUSED(wb_call(wb_GRU(2, 3), x, h, h), WB_ERROR_ARGUMENT, "GRU", "1", "3");
    REFUSED(wb_GRUCell(2, 3, .return_state = true), WB_ERROR_ARGUMENT, "GRUCell", ".return_state");
}

/* The last states of both directions; lengths of 0 and T; initial states; the other dtypes. */
TEST_IN_SCOPE(lengths)
{
    static const int32_t some[3] = {0, 4, 2};
    static const wb_dtype dtypes[3] = {WB_F32, WB_F16, WB_BF16};
    wb_tensor *n = wb_from(some, WB_I32, 1, (int64_t[]){3}), *y[3];
    for (int i = 0; i < 3; i++) {
        if (!has_dtype(dtypes[i])) continue;
        wb_layer *l = wb_LSTM(2, 3, .layers = 2, .bidirectional = true, .return_state = true,
                              .initial_state = true, .dtype = dtypes[i], .init = wb_init_normal);
        wb_tensor *x = wb_astype(wb_randn(3, 4, 2), dtypes[i]), *first = wb_full(0.5, 3);
        WORKS(wb_set(l, "initial_hidden_l1_reverse", wb_astype(first, dtypes[i])));
        WORKS(wb_call_outputs(l, 2, (wb_tensor *[]){x, wb_astype(n, WB_I64)}, 3, y));
        assert_true(wb_dtype_of(y[0]) == dtypes[i] && wb_dim(y[0], 2) == 6);
        assert_int_equal(wb_dim(y[1], 0), 4);
        /* nothing happens to a sequence without steps */
        assert_true(wb_item(wb_max(wb_abs(wb_slice(wb_astype(y[0], WB_F32), 0, 0, 1)))) == 0);
        assert_true(wb_at(y[1], 3, 0, 1) == 0.5 && wb_at(y[2], 3, 0, 1) == 0);
        assert_true(wb_item(wb_max(wb_abs(wb_slice(wb_slice(wb_astype(y[0], WB_F32), 0, 2, 3), 1, 2,
                                                   4)))) == 0);
        /* a sequence alone, without lengths, gives the same */
        wb_tensor *part = wb_slice(wb_slice(x, 0, 2, 3), 1, 0, 2), *alone[3];
        WORKS(wb_call_outputs(l, 1, &part, 3, alone));
        const double within = i ? 2e-2 : 1e-6;
        assert_true(difference(alone[0], wb_slice(wb_slice(y[0], 0, 2, 3), 1, 0, 2)) < within);
        assert_true(difference(alone[2], wb_slice(y[2], 1, 2, 3)) < within);
        assert_true(difference(alone[1], wb_slice(y[1], 1, 0, 1)) > 1e-3);
    }
    wb_tensor *x = wb_randn(3, 4, 2);
    wb_layer *both = wb_GRU(2, 3, .bidirectional = true, .last = true, .return_state = true);
    WORKS(wb_call_outputs(both, 2, (wb_tensor *[]){x, n}, 2, y));
    wb_tensor *want = wb_reshape(wb_permute(y[1], 1, 0, 2), 3, 6);
    assert_true(difference(y[0], want) == 0);
    WORKS(wb_call_outputs(both, 1, &x, 2, y));
    assert_true(difference(y[0], want) > 1e-4);
}

/* The cell and the layer are one formula. */
TEST_IN_SCOPE(gruv3_cell)
{
    wb_layer *l = wb_GRUv3(2, 3), *cell = wb_GRUv3Cell(2, 3);
    static const char *const names[3] = {"weight_input", "weight_hidden", "bias"};
    for (int i = 0; i < 3; i++) WORKS(wb_set(cell, names[i], wb_get(l, names[i])));
    wb_tensor *x = wb_randn(2, 3, 2), *y = wb_call(l, x), *h = WB_NONE;
    for (int t = 0; t < 3; t++) {
        WORKS(wb_cell_step(cell, wb_reshape(wb_slice(x, 1, t, t + 1), 2, 2), 1, &h));
        assert_true(difference(h, wb_reshape(wb_slice(y, 1, t, t + 1), 2, 3)) < 1e-6);
    }
}

TEST_IN_SCOPE(wrong_layers)
{
    wb_tensor *x = wb_zeros(2, 4, 2), *n = wb_astype(wb_zeros(2), WB_I32);
    wb_layer *l = wb_GRU(2, 3, .layers = 2);
    REFUSED(wb_call(l, x, wb_zeros(2, 3)), WB_ERROR_SHAPE, "GRU", "[2,2,3]", "[2,3] f32");
    REFUSED(wb_call(l, x, wb_astype(wb_zeros(3), WB_I32)), WB_ERROR_SHAPE, "GRU", "lengths [2]",
            "[3] i32");
    REFUSED(wb_call(l, x, n, n), WB_ERROR_SHAPE, "[2,2,3]", "[2] i32");
    REFUSED(wb_call(wb_LSTM(2, 3), x, wb_zeros(2, 3), n), WB_ERROR_ARGUMENT, "LSTM", "2", "3");
    REFUSED(wb_GRU(2, 3, .layers = 0), WB_ERROR_ARGUMENT, "GRU", ".layers", "0");
    REFUSED(wb_LSTM(2, 3, .layers = -1), WB_ERROR_ARGUMENT, "LSTM", ".layers", "-1");
    REFUSED(wb_GRUCell(2, 3, .layers = 2), WB_ERROR_ARGUMENT, "GRUCell", ".layers");
    REFUSED(wb_RNNCell(2, 3, .bidirectional = true), WB_ERROR_ARGUMENT, "RNNCell",
            ".bidirectional");
    REFUSED(wb_GRUv3(2, 3, .hidden_bias = true), WB_ERROR_ARGUMENT, "GRUv3", ".hidden_bias");
    REFUSED(wb_GRUv3(2, 3, wb_relu), WB_ERROR_ARGUMENT, "GRUv3", ".activation");
}

/* ---- Recurrence ------------------------------------------------------------------------------ */

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
    for (int i = 0; i < 3; i++)
        WORKS(wb_set(cell, names[i], wb_get(both, NAME("%s_reverse", names[i]))));
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
    assert_string_equal(wb_describe(s[1]), "[2,3] f16");
    assert_true(wb_item(wb_sum(wb_abs(wb_astype(s[0], WB_F32)))) == 0);
    wb_layer *deep = wb_GRU(2, 3, .layers = 2, .bidirectional = true, .initial_state = true);
    for (int i = 0; i < 4; i++)
        WORKS(wb_set(deep, NAME("initial_hidden%s%s", i > 1 ? "_l1" : "", i % 2 ? "_reverse" : ""),
                     wb_full(i, 3)));
    WORKS(wb_initial_states(deep, 2, 1, s));
    assert_string_equal(wb_describe(s[0]), "[4,2,3] f32");
    for (int i = 0; i < 4; i++) assert_true(wb_at(s[0], i, 1, 2) == i);
    assert_true(difference(wb_call(deep, x, s[0]), wb_call(deep, x)) < 1e-6);
    wb_tensor *g = wb_gradient(wb_sum(s[0]), wb_get(deep, "initial_hidden_l1"));
    MADE(g);
    assert_true(wb_at(g, 1) == 2);
    wb_layer *cell = wb_GRUCell(2, 3, .initial_state = true);
    WORKS(wb_set(cell, "initial_hidden", wb_full(0.25, 3)));
    WORKS(wb_initial_states(wb_Recurrence(wb_WeightNorm(cell, "weight_hidden")), 5, 1, s));
    assert_string_equal(wb_describe(s[0]), "[5,3] f32");
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
    REFUSED(wb_call(wb_Recurrence(wb_layer_of(odd_cell, w, 1)), x), WB_ERROR_ARGUMENT, "odd_cell",
            "one tensor");
    REFUSED(wb_call(wb_Recurrence(wb_layer_of(odd_cell, w, 3)), x), WB_ERROR_ARGUMENT, "odd_cell",
            "4", "2");
    REFUSED(wb_call(wb_Recurrence(wb_layer_of(odd_cell, w, 0)), x), WB_ERROR_SHAPE, "odd_cell",
            "[] f32", "2");
    REFUSED(wb_call(wb_Chain(wb_Recurrence(wb_layer_of(odd_cell, w, -1))), x), WB_ERROR_SHAPE,
            "layers.0.cell: ", "[2,2] f32");
}

/* ---- masks and rotations --------------------------------------------------------------------- */

TEST_IN_SCOPE(masks)
{
    wb_layer *l = wb_MultiHeadAttention(4, 2, .bias = true);
    wb_tensor *x = wb_randn(2, 3, 4), *y;
    wb_tensor *keep = wb_causal_mask(3, 3);
    wb_layer *causal = wb_MultiHeadAttention(4, 2, .bias = true, .causal = true);
    for (int i = 0; i < 4; i++) {
        static const char *const names[4] = {"q_proj", "k_proj", "v_proj", "out_proj"};
        WORKS(wb_set(causal, NAME("%s.weight", names[i]), wb_get(l, NAME("%s.weight", names[i]))));
    }
    MADE(y = wb_call(l, x, x, x, keep));
    assert_true(difference(y, wb_call(causal, x)) < 1e-6);
    assert_true(difference(y, wb_call(l, x)) > 1e-3);
    wb_tensor *bias = wb_where(keep, wb_scalar(0), wb_scalar(-1e9));
    assert_true(difference(y, wb_call(l, x, x, x, bias)) < 1e-6);
    /* both masks hold; the mask of a sample */
    wb_tensor *first = wb_reshape(wb_lt(wb_arange(6, WB_I32), wb_scalar(5)), 2, 1, 1, 3);
    wb_tensor *both = wb_call(l, x, x, x, wb_and(first, keep));
    assert_true(difference(wb_call(causal, x, x, x, first), both) < 1e-6);
    assert_true(difference(both, y) > 1e-4);
}

/* Both orders of the features, and errors. */
TEST_IN_SCOPE(rotations)
{
    static const float row[4] = {1, 2, 3, 4};
    /* position 3, base 100: angles 3 and 0.3; computed in Python */
    static const double halves[4] = {-1.413352521, 0.728592126, -2.828857481, 4.412386369},
                        pairs[4] = {-1.272232513, -1.838864985, 1.683928641, 4.707906576};
    wb_tensor *x = wb_from(row, WB_F32, 2, (int64_t[]){1, 4}), *at = wb_full(3, 1);
    for (int i = 0; i < 2; i++) {
        wb_tensor *y = wb_rotary(x, at, .base = 100, .pairs = i);
        float got[4];
        WORKS(wb_copy_out(y, got, sizeof got));
        for (int k = 0; k < 4; k++)
            assert_true(fabs((double)got[k] - (i ? pairs : halves)[k]) < 1e-5);
    }
    wb_tensor *half = wb_rotary(wb_astype(x, WB_BF16), at, .base = 100);
    assert_true(wb_dtype_of(half) == WB_BF16);
    assert_true(difference(half, wb_rotary(x, at, .base = 100)) < 0.05);
    REFUSED(wb_rotary(wb_zeros(2, 3), wb_positions(2)), WB_ERROR_SHAPE, "rotary", "[2,3] f32");
    REFUSED(wb_rotary(x, wb_positions(2)), WB_ERROR_SHAPE, "rotary", "[2] i32");
    REFUSED(wb_rotary(x, at, .base = -1), WB_ERROR_ARGUMENT, "rotary", "base", "-1");
    REFUSED(wb_rotary(wb_astype(x, WB_I32), at), WB_ERROR_DTYPE, "rotary", "[1,4] i32");
}

/* ---- the cache ------------------------------------------------------------------------------- */

static wb_tensor *places(wb_tensor *x) { return wb_positions(wb_dim(x, 1)); }

static wb_layer *block(wb_dtype dtype)
{
    wb_layer *attention = wb_MultiHeadAttention(8, 4, .causal = true, .kv_heads = 2, .bias = true,
                                                .rotary = 100, .dtype = dtype);
    return wb_SkipConnection(wb_Chain(wb_LayerNorm({8}, .dtype = dtype), attention), wb_add);
}

/* A block is used twice, and so has two pairs in the cache. */
static wb_layer *text_model(wb_dtype dtype)
{
    wb_layer *table = wb_Chain(wb_function_layer("places", places),
                               wb_Embedding(6, 8, .dtype = dtype));
    wb_layer *twice = block(dtype);
    return wb_Chain(wb_Parallel(wb_add, wb_Embedding(5, 8, .dtype = dtype), table), twice,
                    block(dtype), twice);
}

typedef struct { wb_layer *model; wb_tree *cache; } writer;

static int next(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx)
{
    writer *w = ctx;
    outputs[0] = wb_call_cached(w->model, w->cache, inputs[0]);
    return outputs[0] ? 1 : -1;
}

static wb_tensor *letters(int64_t from, int64_t n)
{
    static const int32_t text[2][6] = {{3, 1, 4, 1, 0, 2}, {2, 0, 2, 4, 3, 1}};
    wb_tensor *all = wb_from(text, WB_I32, 2, (int64_t[]){2, 6});
    return wb_slice(all, 1, from, from + n);
}

static void go_to(wb_tree *cache, int position)
{
    WORKS(wb_assign(wb_get(cache, "position"), wb_full_array(position, WB_I32, 1, (int64_t[]){1})));
}

static void writes_in(wb_dtype dtype, double within)
{
    writer w = {text_model(dtype), NULL};
    MADE(w.cache = wb_attention_cache(w.model, 2, 6));
    const wb_tensor *keys = wb_get(w.cache, "keys.2");
    assert_memory_equal(wb_dims(keys), ((int64_t[]){2, 2, 2, 6}), 4 * sizeof(int64_t));
    assert_true(wb_dtype_of(keys) == dtype);
    wb_tensor *want = wb_call(w.model, letters(0, 6)), *y;
    wb_compiled *step = wb_compile(next, &w);
    for (int compiled = 0; compiled < 2; compiled++) {
        static const int starts[] = {0, 3, 4, 2, 3, 4, 5};      /* at 4 back to 2 */
        for (int i = 0; i < 7; i++) {
            const int at = starts[i], n = i ? 1 : 3;
            wb_tensor *x = letters(at, n);
            if (i == 3 || !i) go_to(w.cache, at);
            if (compiled) WORKS(wb_call_compiled(step, 1, &x, 1, &y));
            else MADE(y = wb_call_cached(w.model, w.cache, x));
            assert_true(difference(y, wb_slice(want, 1, at, at + n)) < within);
            assert_int_equal((int)wb_item(wb_get(w.cache, "position")), at + n);
        }
    }
    wb_object_free(step);
}

TEST_IN_SCOPE(cache_f32) { writes_in(WB_F32, 1e-5); }
TEST_IN_SCOPE(cache_bf16) { writes_in(WB_BF16, 0.1); }

/* After the first texts one plan serves all positions. */
TEST_IN_SCOPE(one_plan)
{
    wb_layer *model = text_model(WB_F32);
    wb_tree *cache = wb_attention_cache(model, 2, 6);
    int64_t built = 0;
    for (int64_t at = 0; at < 6; at++) {
        WORKS(wb_eval(wb_call_cached(model, cache, letters(at, 1))));
        if (at == 1) built = wb_stats().plans_built;
    }
    assert_int_equal(wb_stats().plans_built, built);
}

TEST_IN_SCOPE(wrong_uses)
{
    wb_layer *l = wb_MultiHeadAttention(4, 2, .k_in = 3), *plain = wb_MultiHeadAttention(4, 2);
    wb_tensor *x = wb_zeros(2, 3, 4), *k = wb_zeros(2, 5, 3), *v = wb_zeros(2, 5, 4);
    REFUSED(wb_call(l, x), WB_ERROR_SHAPE, "MultiHeadAttention", "[N,T,3]", "[2,3,4] f32");
    REFUSED(wb_call(l, x, k), WB_ERROR_ARGUMENT, "MultiHeadAttention", "mask", "2");
    REFUSED(wb_call(l, x, k, v, wb_zeros(4, 3)), WB_ERROR_SHAPE, "mask", "[4,3] f32", "[2,2,3,5]");
    REFUSED(wb_call(l, x, k, v, wb_zeros(1, 2, 2, 3, 5)), WB_ERROR_SHAPE, "[1,2,2,3,5] f32");
    REFUSED(wb_call(l, x, k, v, wb_astype(wb_zeros(3, 5), WB_I32)), WB_ERROR_SHAPE, "[3,5] i32");
    REFUSED(wb_MultiHeadAttention(8, 4, .kv_heads = 3), WB_ERROR_ARGUMENT, ".kv_heads", "3", "4");
    REFUSED(wb_MultiHeadAttention(8, 4, .v_dim = 6), WB_ERROR_ARGUMENT, "4", "6");
    REFUSED(wb_MultiHeadAttention(8, 4, .out = -1), WB_ERROR_ARGUMENT, ".out", "negative");
    REFUSED(wb_MultiHeadAttention(6, 2, .rotary = 100), WB_ERROR_ARGUMENT, ".rotary", "100", "3");
    REFUSED(wb_call(wb_MultiHeadAttention(4, 2, .weights = true), x), WB_ERROR_ARGUMENT, "2");

    REFUSED(wb_attention_cache(plain, 2, 6), WB_ERROR_ARGUMENT, "attention_cache", ".causal");
    wb_layer *causal = wb_MultiHeadAttention(4, 2, .causal = true), *two = wb_Chain(causal, causal);
    REFUSED(wb_attention_cache(causal, 0, 6), WB_ERROR_ARGUMENT, "0", "6");
    wb_tree *cache = wb_attention_cache(causal, 2, 6);
    REFUSED(wb_call_cached(two, cache, x), WB_ERROR_ARGUMENT, "call_cached", "attention_cache");
    REFUSED(wb_call_cached(plain, cache, x), WB_ERROR_ARGUMENT, "MultiHeadAttention", ".causal");
    REFUSED(wb_call_cached(causal, cache, wb_zeros(3, 1, 4)), WB_ERROR_SHAPE, "[3,2,1,2] f32",
            "[2,2,2,6] f32", "[2,6,2,2] f32");
    REFUSED(wb_call_cached(causal, cache, wb_zeros(2, 7, 4)), WB_ERROR_SHAPE, "[2,2,7,2] f32");
    REFUSED(wb_call_cached(causal, wb_tuple(x), x), WB_ERROR_ARGUMENT, "call_cached", "tree",
            "attention_cache");
    REFUSED(wb_call_cached(wb_Dense(4, 4), cache, x), WB_ERROR_ARGUMENT, "call_cached", ".causal");
    assert_int_equal((int)wb_item(wb_max(wb_positions(3))), 2);
}

int main(void) { return run_cases(golden_open, golden_close); }
