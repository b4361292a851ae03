/* Each kind of layer against PyTorch: result, gradients of the parameters and of the input. */
#include "golden_layer.h"

/* X(name in nn.safetensors, layer, whether in train mode) */
#define CASES(X)                                                                               \
    X(dense, wb_Dense(4, 3), false)                                                            \
    X(dense_relu, wb_Dense(4, 3, wb_relu), false)                                              \
    X(dense_tanh, wb_Dense(4, 3, wb_tanh), false)                                              \
    X(dense_gelu, wb_Dense(4, 3, wb_gelu), false)                                              \
    X(dense_no_bias, wb_Dense(4, 3, wb_sigmoid, .bias = false), false)                       \
    X(conv, wb_Conv(3, 4, {3}), false)                                                         \
    X(conv_options, wb_Conv(4, 4, {3, 2}, wb_relu, .stride = {2, 1}, .pad = {1, 2},            \
                            .dilation = {1, 2}, .groups = 2), false)                           \
    X(conv_same, wb_Conv(3, 2, {4, 3}, .same = true, .bias = false), false)                  \
    X(conv_flip, wb_Conv(1, 2, {2, 3}, .flip = true), false)                                   \
    X(maxpool, wb_MaxPool({2, 3}, .stride = {2, 1}, .pad = {1}), false)                        \
    X(meanpool, wb_MeanPool({2}, .pad = {1}), false)                                           \
    X(globalmax, wb_GlobalMaxPool(), false)                                                    \
    X(globalmean, wb_GlobalMeanPool(), false)                                                  \
    X(batchnorm_train, wb_BatchNorm(3, wb_relu, .momentum = 0.2, .eps = 1e-4), true)           \
    X(batchnorm_test, wb_testmode(wb_BatchNorm(3, wb_relu, .momentum = 0.2, .eps = 1e-4)), false)\
    X(layernorm, wb_LayerNorm({3, 4}), false)                                                  \
    X(embedding, wb_Embedding(6, 3), false)                                                    \
    X(attention_self, wb_MultiHeadAttention(4, 2, .causal = true), false)                      \
    X(attention_cross, wb_MultiHeadAttention(8, 4, .bias = true), false)                       \
    X(rnn, wb_RNN(2, 3), false)      X(rnn_last, wb_RNN(2, 3, wb_tanh, .last = true), false)   \
    X(lstm, wb_LSTM(2, 3), false)    X(lstm_last, wb_LSTM(2, 3, .last = true), false)          \
    X(gru, wb_GRU(2, 3), false)      X(gru_last, wb_GRU(2, 3, .last = true), false)            \
    X(rnn_cell, wb_RNNCell(2, 3), false)                                                       \
    X(lstm_cell, wb_LSTMCell(2, 3), false)                                                     \
    X(gru_cell, wb_GRUCell(2, 3), false)

#define CASE(name, layer, train) TEST(name) { check_in(#name, layer, train); }
CASES(CASE)

/* ---- results without PyTorch ----------------------------------------------------------------- */

static wb_tensor *doubled(wb_tensor *x) { return wb_add(x, x); }

TEST(containers)
{
    wb_tensor *x = golden_want("dense.x0");
    wb_layer *dense = wb_Dense(4, 4, wb_tanh);
    wb_tensor *y = wb_call(dense, x);

    wb_layer *skip = wb_SkipConnection(dense, wb_sub);
    wb_tensor *difference = wb_sub(wb_call(skip, x), wb_sub(y, x));
    assert_true(wb_item(wb_max(wb_abs(difference))) < 1e-6);

    wb_layer *parallel = wb_Parallel(wb_add, dense, doubled, wb_named("third", dense));
    wb_tensor *sum = wb_sub(wb_call(parallel, x), wb_add(wb_add(y, doubled(x)), y));
    assert_true(wb_item(wb_max(wb_abs(sum))) < 1e-6);
    wb_tensor *two = wb_call_array(wb_Parallel(wb_mul, dense, doubled), 2, (wb_tensor *[]){x, y});
    assert_true(wb_item(wb_max(wb_abs(wb_sub(two, wb_mul(y, doubled(y)))))) < 1e-6);
    wb_tensor *one = wb_call_array(wb_Parallel(wb_mul, dense), 2, (wb_tensor *[]){x, x});
    assert_true(wb_item(wb_max(wb_abs(wb_sub(one, wb_square(y))))) < 1e-6);
    assert_null(wb_call_array(wb_Parallel(wb_mul, dense, doubled), 3, (wb_tensor *[]){x, x, x}));
    FAILED(WB_ERROR_ARGUMENT, "Parallel", "2", "3", "inputs");

    wb_layer *chain = wb_Chain(wb_named("first", dense), doubled, wb_Dense(4, 2), wb_softmax);
    wb_tensor *by_hand = wb_softmax(wb_call(wb_layer_at(chain, "layers.2"), doubled(y)));
    assert_true(wb_item(wb_max(wb_abs(wb_sub(wb_call(chain, x), by_hand)))) < 1e-6);
    assert_ptr_equal(wb_get(chain, "layers.first.weight"), wb_get(dense, "weight"));
}

TEST(transposed)
{
    static const float ones[4] = {1, 2, 3, 4},
                       twice[16] = {1, 2, 2, 4, 3, 4, 6, 8, 3, 6, 4, 8, 9, 12, 12, 16},
                       once[9] = {1, 4, 4, 6, 20, 16, 9, 24, 16},
                       flipped[9] = {4, 11, 6, 14, 30, 14, 6, 11, 4};
    wb_tensor *x = wb_from(ones, WB_F32, 4, (int64_t[]){1, 1, 2, 2});
    wb_layer *l[3] = {wb_ConvTranspose(1, 1, {2}, .stride = {2}), wb_ConvTranspose(1, 1, {2}),
                      wb_ConvTranspose(1, 1, {2}, .flip = true)};
    const float *want[3] = {twice, once, flipped};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wb_assign(wb_get(l[i], "weight"), x), 0);
        wb_tensor *y = wb_call(l[i], x);
        float got[16];
        if (!y || wb_copy_out(y, got, (size_t)wb_size(y) * sizeof *got)) fail_msg("%s", wb_error());
        for (int64_t j = 0; j < wb_size(y); j++) assert_true(got[j] == want[i][j]);
    }
    for (int stride = 1; stride < 4; stride++) {
        wb_tensor *y = wb_call(wb_ConvTranspose(2, 3, {4, 3}, .stride = {stride}, .same = true),
                               wb_ones(1, 2, 5, 6));
        const int64_t want_dims[4] = {1, 3, 5 * stride, 6 * stride};
        assert_memory_equal(wb_dims(y), want_dims, sizeof want_dims);
        assert_int_equal(wb_ndim(y), 4);
    }
    assert_null(wb_ConvTranspose(1, 1, {2}, .outpad = {1}));
    FAILED(WB_ERROR_ARGUMENT, "ConvTranspose", ".outpad", "1", "0", "stride");
    assert_null(wb_Conv(1, 1, {2}, .outpad = {1}));
    assert_null(wb_conv(x, x, WB_NONE, .outpad = {1}));
    assert_null(wb_conv_transpose(x, x, WB_NONE, .pad = {2, 2}));
    FAILED(WB_ERROR_SHAPE, "conv_transpose", "[1,1,2,2] f32", "2x2", "padding", "2,2,2,2");
    assert_null(wb_conv_transpose(x, wb_ones(2, 1, 2, 2), WB_NONE));
    assert_null(wb_conv_transpose(x, x, wb_ones(2)));
}

TEST(cells_step)
{
    wb_layer *lstm = wb_LSTM(2, 3), *cell = wb_LSTMCell(2, 3);
    golden_parameters("lstm", lstm);
    golden_parameters("lstm", cell);
    wb_tensor *x = golden_want("lstm.x0"), *states[2] = {WB_NONE, WB_NONE}, *outputs[4];
    for (int t = 0; t < 4; t++) {
        wb_tensor *now = wb_reshape(wb_slice(x, 1, t, t + 1), 2, 2);
        assert_int_equal(wb_cell_step(cell, now, 2, states), 0);
        outputs[t] = states[0];
    }
    assert_golden(wb_stack_array(1, 4, outputs), "lstm.y", 2e-5);
    FAILS(wb_cell_step(cell, x, 1, states), WB_ERROR_ARGUMENT, "LSTMCell", "2", "states", "1");
    assert_int_equal(wb_cell_step(lstm, x, 2, states), WB_ERROR_ARGUMENT);
}

TEST(refusals)
{
    wb_tensor *x = wb_zeros(32, 10);
    REFUSED(wb_call(wb_Dense(784, 10), x), WB_ERROR_SHAPE, "Dense", "784", "features", "dimension",
            "[32,10] f32");
    REFUSED(wb_call(wb_Conv(3, 4, {3}), x), WB_ERROR_SHAPE, "Conv", "[N,3,H,W]", "[32,10] f32");
    REFUSED(wb_call(wb_BatchNorm(4), x), WB_ERROR_SHAPE, "BatchNorm", "4", "channels", "dimension",
            "1", "[32,10] f32");
    REFUSED(wb_call(wb_LayerNorm({4}), x), WB_ERROR_SHAPE, "LayerNorm", "4", "[32,10] f32");
    REFUSED(wb_call(wb_Embedding(4, 2), x), WB_ERROR_DTYPE, "Embedding", "integers", "[32,10] f32");
    REFUSED(wb_call(wb_LSTM(4, 2), x), WB_ERROR_SHAPE, "LSTM", "[N,T,4]", "[32,10] f32");
    REFUSED(wb_call(wb_MultiHeadAttention(8), x), WB_ERROR_SHAPE, "MultiHeadAttention", "[N,T,8]",
            "[32,10] f32");
    REFUSED(wb_call(wb_MaxPool({2}), x), WB_ERROR_SHAPE, "MaxPool", "[N,C,H,W]", "[32,10] f32");
    REFUSED(wb_call(wb_trainmode(wb_BatchNorm(10)), wb_zeros(1, 10)), WB_ERROR_SHAPE, "BatchNorm",
            "[1,10] f32");
    REFUSED(wb_Dense(0, 3), WB_ERROR_ARGUMENT, "Dense", "0", "3");
    REFUSED(wb_Dense(3, 3, .dtype = WB_I32), WB_ERROR_DTYPE, "Dense", "parameters", "floating",
            "i32");
    REFUSED(wb_Conv(3, 4, {3}, .groups = 2), WB_ERROR_ARGUMENT, "Conv", "2", "groups", "3", "4");
    REFUSED(wb_Conv(3, 4, {-1}), WB_ERROR_ARGUMENT, "Conv", ".kernel", "{-1, -1}");
    REFUSED(wb_Conv(3, 4, {3}, .pad = {-2}), WB_ERROR_ARGUMENT, "Conv", ".pad", "-2");
    REFUSED(wb_Dropout(1.5), WB_ERROR_ARGUMENT, "Dropout", "p", "1.5", "[0, 1]");
    REFUSED(wb_MultiHeadAttention(10, 4), WB_ERROR_ARGUMENT, "MultiHeadAttention", "4", "heads",
            "10");
    REFUSED(wb_LSTM(2, 3, wb_relu), WB_ERROR_ARGUMENT, "LSTM", ".activation", "RNN");
    REFUSED(wb_Chain(wb_named("a", wb_Dense(1, 1)), wb_named("a", wb_Dense(1, 1))),
            WB_ERROR_ARGUMENT, "Chain", "\"a\"");
    REFUSED(wb_Chain_array(0, NULL), WB_ERROR_ARGUMENT, "Chain", "layers");
    REFUSED(wb_layer_from_function(NULL), WB_ERROR_ARGUMENT, "layer", "function");
    REFUSED(wb_Chain(wb_Dense(2, 2), wb_Dense(0, 1)), WB_ERROR_ARGUMENT, "Dense", "0", "1");
    wb_clear_error();
    assert_null(wb_call(NULL, x));
    assert_null(wb_call(wb_Dense(10, 2), NULL));
    FAILED(WB_ERROR_ARGUMENT, "call", "layer", "NULL");
}

int main(void) { return run_cases(golden_open, golden_close); }
