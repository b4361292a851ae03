/* Reads Flux's layers from BSON files: one file for each struct and generation, made here. */
#include "test.h"

#include "flux_reading.h"

TEST_IN_SCOPE(dense)
{
    bson_maker m = made();
    dense_fields(&m, "NNlib.#σ");
    wb_layer *l = load(&m);
    assert_string_equal(printed(l), "Dense(2 => 3, sigmoid)");
    expect_values(l, "weight", "[3,2] f32", 0, true);
    expect_values(l, "bias", "[3] f32", 6, false);

    static const struct { const char *julia, *here; } functions[] = {
        {"NNlib.#tanh_fast", ", tanh"}, {"Base.#tanh", ", tanh"},
        {"NNlib.#sigmoid_fast", ", sigmoid"}, {"Main.Base.#identity", ""},
        {"NNlib.#relu", ", relu"}, {"NNlib.#leakyrelu", ", leakyrelu"},
        {"NNlib.#gelu_tanh", ", gelu"}, {"NNlib.#logσ", ", logsigmoid"},
        {"Flux.NNlib.#swish", ", swish"}, {"NNlib.#hardσ", ", hardsigmoid"},
        {"NNlib.#mish", ", mish"}, {"NNlib.#gelu_sigmoid", ", gelu"}};
    for (size_t i = 0; i < WB__COUNT(functions); i++) {
        char text[100];
        m = made();
        dense_fields(&m, functions[i].julia);
        snprintf(text, sizeof text, "Dense(2 => 3%s)", functions[i].here);
        expect_layer(&m, text);
    }
}

/* No bias, written as false and as Zeros; tracked arrays; transposed arrays; two dtypes. */
TEST_IN_SCOPE(arrays_of_all_kinds)
{
    for (int zeros = 0; zeros < 2; zeros++) {
        bson_maker m = made();
        bm_struct(&m, "Main.Flux.Dense");
        bm_array(&m, 2, 3, 2);
        if (zeros) bm_function(&m, "Flux.Zeros");
        else bm_bool(&m, 0);
        bm_function(&m, "Base.#identity");
        expect_layer(&m, "Dense(2 => 3; bias=false)");
    }

    bson_maker m = made();
    bm_struct(&m, "Flux.Dense");
    for (int i = 0; i < 2; i++) {
        bm_struct(&m, i ? "Tracker.TrackedArray" : "Flux.Tracker.TrackedArray");
        bm_struct(&m, "Tracker.Tracked"), bm_end(&m);
        bm_array(&m, i ? 1 : 2, 3, 2);
        bm_null(&m);
        bm_end(&m);
    }
    bm_function(&m, "Base.#identity");
    wb_layer *l = load(&m);
    expect_values(l, "weight", "[3,2] f32", 0, true);
    expect_values(l, "bias", "[3] f32", 6, false);

    m = made();
    bm_struct(&m, "Flux.Dense");
    bm_struct(&m, "LinearAlgebra.Adjoint");
    bm_array(&m, 2, 2, 3);
    bm_end(&m);
    bm_bytes(&m, "Core.Float64", 1, (int64_t[]){3}, (double[]){6, 7, 8}, 24);
    bm_function(&m, "Base.#identity");
    l = load(&m);
    expect_values(l, "weight", "[3,2] f64", 0, false);
    expect_values(l, "bias", "[3] f64", 6, false);
}

TEST_IN_SCOPE(convolutions)
{
    const char *options =
        "Conv((2, 3), 1 => 4, relu, pad=(3, 0, 1, 2), stride=(1, 2), dilation=(2, 1)";
    char text[200];
    for (int extra = 0; extra < 3; extra++) {
        bson_maker m = made();
        conv_fields(&m, "Flux.Conv", extra);
        wb_layer *l = load(&m);
        snprintf(text, sizeof text, "%s, flip=true)", options);
        assert_string_equal(printed(l), text);
        expect_values(l, "weight", "[4,1,2,3] f32", 0, false);
        expect_values(l, "bias", "[4] f32", 24, false);
    }
    bson_maker m = made();
    conv_fields(&m, "Flux.CrossCor", 0);
    snprintf(text, sizeof text, "%s)", options);
    expect_layer(&m, text);

    m = made();                                     /* groups; one padding for each axis */
    bm_struct(&m, "Flux.Conv");
    bm_function(&m, "Base.#identity");
    bm_array(&m, 4, 3, 3, 2, 6);
    bm_bool(&m, 0);
    bm_integers(&m, 2, 1, 1), bm_integers(&m, 2, 2, 1), bm_integers(&m, 2, 1, 1);
    bm_integer(&m, 2);
    expect_layer(&m, "Conv((3, 3), 4 => 6, pad=(1, 2), groups=2, flip=true, bias=false)");

    m = made();
    bm_struct(&m, "Flux.DepthwiseConv");
    bm_function(&m, "Base.#identity");
    bm_array(&m, 4, 3, 3, 2, 4);
    bm_array(&m, 1, 8);
    bm_integers(&m, 2, 1, 1), bm_integers(&m, 2, 0, 0), bm_integers(&m, 2, 1, 1);
    wb_layer *l = load(&m);
    assert_string_equal(printed(l), "Conv((3, 3), 4 => 8, groups=4, flip=true)");
    expect_values(l, "weight", "[8,1,3,3] f32", 0, false);
}

TEST_IN_SCOPE(pools)
{
    bson_maker m = made();
    bm_struct(&m, "Flux.MaxPool");
    bm_integers(&m, 2, 3, 2), bm_integers(&m, 4, 1, 1, 0, 0), bm_integers(&m, 2, 2, 1);
    expect_layer(&m, "MaxPool((2, 3), pad=(0, 1), stride=(1, 2))");
    m = made();
    bm_struct(&m, "Flux.MeanPool");
    bm_integers(&m, 2, 2, 2), bm_integers(&m, 2, 0, 0), bm_integers(&m, 2, 2, 2);
    expect_layer(&m, "MeanPool((2, 2))");
    m = made();
    bm_function(&m, "Flux.GlobalMaxPool");
    expect_layer(&m, "GlobalMaxPool()");
    m = made();
    bm_struct(&m, "Flux.AdaptiveMeanPool");
    bm_integers(&m, 2, 1, 3);
    expect_layer(&m, "AdaptiveMeanPool((3, 1), fixed=true)");
    m = made();
    bm_struct(&m, "Flux.MeanPool");
    bm_integers(&m, 1, 3), bm_integers(&m, 2, 1, 0), bm_integers(&m, 1, 2);
    expect_layer(&m, "MeanPool1d((3,), pad=(1, 0), stride=2)");
    m = made();
    bm_struct(&m, "Flux.MaxPool");
    bm_integers(&m, 3, 3, 2, 1), bm_integers(&m, 6, 1, 2, 0, 1, 0, 0), bm_integers(&m, 3, 3, 2, 1);
    expect_layer(&m, "MaxPool((1, 2, 3), pad=(0, 0, 0, 1, 1, 2))");
}

TEST_IN_SCOPE(norms)
{
    for (int old = 0; old < 2; old++) {
        bson_maker m = made();
        batchnorm_fields(&m, old, true, true);
        wb_layer *l = load(&m);
        const wb_BatchNorm_options *o = l->options;
        assert_true(o->channels == 3 && o->eps == 1e-3f && o->momentum == 0.2f &&
                    o->activation == wb_relu);
        assert_int_equal(l->mode, old ? WB__MODE_TEST : WB__MODE_AUTO);
        expect_values(l, "bias", "[3] f32", 0, false);
        expect_values(l, "scale", "[3] f32", 3, false);
        expect_values(l, "mean", "[3] f32", 6, false);
        expect_values(l, "var", "[3] f32", 9, false);
        assert_int_equal(wb_parameter_count(l), 6);
    }
    bson_maker m = made();
    batchnorm_fields(&m, false, false, true);
    wb_layer *l = load(&m);
    assert_true(wb_is_none(wb_get(l, "scale")));
    expect_values(l, "var", "[3] f32", 3, false);
    m = made();
    batchnorm_fields(&m, false, true, false);
    l = load(&m);
    assert_true(wb_is_none(wb_get(l, "mean")));
    expect_values(l, "scale", "[3] f32", 3, false);

    m = made();                                     /* LayerNorm of Flux 0.11 */
    bm_struct(&m, "Flux.LayerNorm");
    bm_struct(&m, "Flux.Diagonal");
    bm_array(&m, 1, 4), bm_array(&m, 1, 4);
    l = load(&m);
    expect_values(l, "scale", "[4] f32", 0, false);
    expect_values(l, "bias", "[4] f32", 4, false);
    for (int affine = 0; affine < 2; affine++) {
        m = made();
        bm_struct(&m, "Flux.LayerNorm");
        bm_function(&m, "NNlib.#relu");
        if (affine) {
            bm_struct(&m, "Flux.Scale");
            bm_array(&m, 2, 4, 5), bm_array(&m, 2, 4, 5), bm_function(&m, "NNlib.#relu");
            bm_end(&m);
        } else {
            bm_function(&m, "Base.#identity");
        }
        bm_float(&m, 0.5f);
        bm_integers(&m, 2, 4, 5);
        bm_bool(&m, affine);
        l = load(&m);
        const wb_LayerNorm_options *o = l->options;
        assert_true(o->shape[0] == 2 && o->shape[1] == 5 && o->shape[2] == 4 && o->eps == 0.5 &&
                    o->activation == wb_relu);
        assert_int_equal(o->affine, affine);
        if (affine) expect_values(l, "bias", "[5,4] f32", 20, false);
    }
}

TEST_IN_SCOPE(dropout_and_embedding)
{
    for (int fields = 3; fields < 5; fields++) {
        bson_maker m = made();
        bm_struct(&m, "Flux.Dropout");
        if (fields == 3) bm_real(&m, 0.25), bm_function(&m, "Core.Colon");
        else bm_float(&m, 0.25f), bm_integer(&m, 3);
        bm_bool(&m, 1);
        if (fields == 4) bm_function(&m, "Random.TaskLocalRNG");
        expect_layer(&m, fields == 3 ? "Dropout(0.25)" : "Dropout(0.25, axes=-3, active=true)");
        m = made();
        bm_struct(&m, "Flux.Embedding");
        bm_array(&m, 2, 4, 10);
        if (fields == 4) bm_null(&m);
        wb_layer *l = load(&m);
        assert_string_equal(printed(l), "Embedding(10 => 4)");
        expect_values(l, "weight", "[10,4] f32", 0, false);
    }
}

TEST_IN_SCOPE(recurrent_layers)
{
    static const struct { const char *name; int gates; } kinds[] = {
        {"RNN", 1}, {"GRU", 3}, {"LSTM", 4}};
    for (int k = 0; k < 3; k++)
        for (int generation = 0; generation < 4; generation++) {
            int g = kinds[k].gates;
            char text[100], wi[20], wh[20], b[20];
            bson_maker m = made();
            recurrent_fields(&m, kinds[k].name, g, generation, 0);
            wb_layer *l = load(&m);
            snprintf(text, sizeof text, "%s%s(2 => 3%s)", kinds[k].name,
                     generation == 3 ? "Cell" : "", k ? "" : ", tanh");
            assert_string_equal(printed(l), text);
            snprintf(wi, sizeof wi, "[%d,2] f32", 3 * g);
            snprintf(wh, sizeof wh, "[%d,3] f32", 3 * g);
            snprintf(b, sizeof b, "[%d] f32", 3 * g);
            expect_values(l, "weight_input", wi, 0, true);
            expect_values(l, "weight_hidden", wh, 6 * g, true);
            expect_values(l, "bias", b, 15 * g, false);
            if (generation > 1) continue;
            m = made();
            recurrent_fields(&m, kinds[k].name, g, generation, 2);
            l = load(&m);
            assert_non_null(strstr(printed(l), "initial_state=true"));
            assert_true(wb_at(wb_get(l, "initial_hidden"), 2) == 2 &&
                        wb_at(wb_get(l, "initial_hidden"), 1) == 0);
            if (g == 4) assert_true(wb_at(wb_get(l, "initial_cell"), 0) == 2);
        }
}

/* A sequence begins with the learned state: its first output equals that of a cell without a state
 * of its own which gets the learned state as input. */
TEST_IN_SCOPE(initial_states)
{
    wb_tensor *x = wb_rand(2, 3, 2), *first = wb_reshape(wb_slice(x, 1, 0, 1), 2, 2);
    wb_layer *(*sequences[])(const wb_Recurrent_options *) = {wb_RNN_with, wb_LSTM_with,
                                                              wb_GRU_with};
    wb_layer *(*cells[])(const wb_Recurrent_options *) = {wb_RNNCell_with, wb_LSTMCell_with,
                                                          wb_GRUCell_with};
    for (int k = 0; k < 3; k++) {
        wb_Recurrent_options o = WB_OPTIONS_OF(wb_Recurrent_options, 2, 3, .initial_state = true);
        wb_layer *l = sequences[k](&o), *with = cells[k](&o);
        wb_tensor *h = wb_rand(3), *c = wb_rand(3);
        assert_int_equal(wb_set(l, "initial_hidden", h), 0);
        if (k == 1) assert_int_equal(wb_set(l, "initial_cell", c), 0);
        o.initial_state = false;
        wb_layer *without = cells[k](&o);
        static const char *const names[] = {"weight_input", "weight_hidden", "bias",
                                            "initial_hidden", "initial_cell"};
        for (int i = 0; i < (k == 1 ? 5 : 4); i++) {
            assert_int_equal(wb_set(with, names[i], wb_get(l, names[i])), 0);
            if (i < 3) assert_int_equal(wb_set(without, names[i], wb_get(l, names[i])), 0);
        }
        h = wb_add(wb_zeros(2, 3), h);
        c = wb_add(wb_zeros(2, 3), c);
        wb_tensor *expected = wb_call_array(without, k == 1 ? 3 : 2, (wb_tensor *[]){first, h, c});
        wb_tensor *y = wb_call(l, x), *one = wb_call(with, first);
        assert_non_null(y);
        assert_string_equal(wb_describe(y), "[2,3,3] f32");
        assert_string_equal(wb_describe(one), "[2,3] f32");
        wb_tensor *begun = wb_reshape(wb_slice(y, 1, 0, 1), 2, 3);
        for (int i = 0; i < 6; i++) {
            assert_float_equal(((const float *)wb_data(begun))[i],
                               ((const float *)wb_data(expected))[i], 1e-6);
            assert_float_equal(((const float *)wb_data(one))[i],
                               ((const float *)wb_data(expected))[i], 1e-6);
        }
        wb_tree *g = wb_gradient(wb_sum(y), l);
        assert_string_equal(wb_describe(wb_get(g, "initial_hidden")), "[3] f32");
    }
}

TEST_IN_SCOPE(containers)
{
    bson_maker m = made();
    bm_struct(&m, "Flux.Chain");
    bm_list(&m);                                    /* a vector, as in the oldest files */
    dense_fields(&m, "Base.#identity");
    bm_struct(&m, "Flux.Chain");
    bm_named(&m, 2, "norm", "head");
    batchnorm_fields(&m, false, true, true);
    bm_function(&m, "NNlib.#softmax");
    bm_end(&m);
    bm_end(&m);
    bm_struct(&m, "Base.Fix1");
    bm_function(&m, "Base.#broadcast"), bm_function(&m, "NNlib.#relu");
    bm_end(&m);
    bm_function(&m, "MLUtils.#flatten");
    bm_close(&m);
    wb_layer *l = load(&m);
    assert_string_equal(
        printed(l),
        "Chain(Dense(2 => 3), Chain(norm = BatchNorm(3, relu), head = softmax), relu, Flatten())");
    expect_values(l, "layers.1.layers.norm.bias", "[3] f32", 9, false);

    m = made();
    bm_struct(&m, "Flux.SkipConnection");
    dense_fields(&m, "Base.#identity");
    bm_function(&m, "Base.#+");
    expect_layer(&m, "SkipConnection(Dense(2 => 3), add)");
    m = made();
    bm_struct(&m, "Flux.Parallel");
    bm_function(&m, "Base.#vcat");
    bm_tuple(&m);
    dense_fields(&m, "Base.#identity");
    dense_fields(&m, "NNlib.#relu");
    bm_end(&m);
    l = load(&m);
    assert_string_equal(printed(l), "Parallel(vcat, Dense(2 => 3), Dense(2 => 3, relu))");
    assert_string_equal(wb_describe(wb_call(l, wb_rand(5, 2))), "[5,6] f32");
    m = made();
    bm_struct(&m, "Flux.Parallel");
    bm_struct(&m, "Base.Broadcast.BroadcastFunction"), bm_function(&m, "Base.#*"), bm_end(&m);
    bm_named(&m, 1, "a");
    dense_fields(&m, "Base.#identity");
    expect_layer((bm_end(&m), &m), "Parallel(mul, a = Dense(2 => 3))");

    for (int fusion = 0; fusion < 2; fusion++) {
        m = made();
        bm_struct(&m, fusion ? "Flux.PairwiseFusion" : "Flux.Maxout");
        if (fusion) bm_function(&m, "Base.#+");
        bm_tuple(&m);
        dense_fields(&m, "Base.#identity");
        dense_fields(&m, "NNlib.#relu");
        bm_end(&m);
        expect_layer(&m, fusion ? "PairwiseFusion(add, Dense(2 => 3), Dense(2 => 3, relu))"
                                : "Maxout(Dense(2 => 3), Dense(2 => 3, relu))");
    }
    m = made();
    bm_struct(&m, "Flux.Parallel");
    bm_function(&m, "Core.#tuple");
    bm_tuple(&m);
    dense_fields(&m, "Base.#identity");
    expect_layer((bm_end(&m), &m), "Parallel(separate, Dense(2 => 3))");

    m = made();
    bm_struct(&m, "Flux.MultiHeadAttention");
    bm_integer(&m, 2);
    for (int i = 0; i < 5; i++) {
        if (i == 3) {
            bm_struct(&m, "Flux.Dropout");
            bm_real(&m, 0.5), bm_function(&m, "Base.Colon"), bm_null(&m),
                bm_function(&m, "Random.TaskLocalRNG");
            bm_end(&m);
            continue;
        }
        bm_struct(&m, "Flux.Dense");
        bm_array(&m, 2, 4, 4), bm_bool(&m, 0), bm_function(&m, "Base.#identity");
        bm_end(&m);
    }
    l = load(&m);
    assert_string_equal(printed(l), "MultiHeadAttention(4; nheads=2, dropout=0.5)");
    expect_values(l, "out_proj.weight", "[4,4] f32", 48, true);
}

/* An array that two layers share becomes one parameter; a shared mutable layer becomes one
 * layer. */
TEST_IN_SCOPE(ties)
{
    bson_maker m = made();
    bm_struct(&m, "Flux.Chain");
    bm_tuple(&m);
    for (int i = 0; i < 2; i++) {
        bm_struct(&m, "Flux.Dense");
        bm_ref(&m, 2);
        bm_array(&m, 1, 3);
        bm_function(&m, "Base.#identity");
        bm_end(&m);
        bm_ref(&m, 3);
    }
    bm_struct(&m, "Flux.Embedding");
    bm_ref(&m, 2);
    bm_end(&m);
    bm_end(&m), bm_end(&m);
    bm_key(&m, "_backrefs");
    bm_list(&m);
    bm_type(&m, "Main.Core.Float32");
    bm_array(&m, 2, 3, 3);
    batchnorm_fields(&m, false, true, true);
    wb_layer *l = load(&m);
    assert_ptr_equal(wb_get(l, "layers.0.weight"), wb_get(l, "layers.2.weight"));
    assert_ptr_equal(wb_layer_at(l, "layers.1"), wb_layer_at(l, "layers.3"));
    assert_ptr_not_equal(wb_get(l, "layers.0.bias"), wb_get(l, "layers.2.bias"));
    expect_values(l, "layers.0.weight", "[3,3] f32", 6, true);
    /* An Embedding's matrix is not transposed, so that it is no tie. */
    expect_values(l, "layers.4.weight", "[3,3] f32", 6, false);
    assert_int_equal(wb_parameter_count(l), 9 + 9 + 6 + 6);

    m = made();                                     /* arrays of cells, whose names are copies */
    bm_struct(&m, "Flux.Chain");
    bm_tuple(&m);
    for (int i = 0; i < 2; i++) {
        bm_struct(&m, "Flux.GRUCell");
        bm_ref(&m, 1), bm_ref(&m, 2), bm_ref(&m, 3);
        bm_end(&m);
    }
    bm_end(&m), bm_end(&m);
    bm_key(&m, "_backrefs");
    bm_list(&m);
    bm_array(&m, 2, 9, 2), bm_array(&m, 2, 9, 3), bm_array(&m, 1, 9);
    l = load(&m);
    assert_ptr_equal(wb_get(l, "layers.0.weight_hidden"), wb_get(l, "layers.1.weight_hidden"));
    assert_int_equal(wb_parameter_count(l), 18 + 27 + 9);
}

int main(void)
{
    if (!reads_bson()) return 0;
    return run_all_cases();
}
