/* Flux's models out of BSON files: real ones of real programs, and one made here for every struct and generation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include <cmocka.h>

#include "bson_maker.h"
#include "io/flux.h"
#include "io/model_file.h"
#include "nn/layer.h"
#include "shared_data.h"

/* ---- documents made here --------------------------------------------------------------------- */

static bson_maker made(void)
{
    bson_maker m = {0};
    bm_document(&m);
    bm_key(&m, "model");
    return m;
}

static wb__mapping mapped(bson_maker *m)
{
    bm_finish(m);
    return (wb__mapping){.path = (char *)(uintptr_t)"made.bson", .data = m->bytes, .bytes = (int64_t)m->n};
}

static wb_layer *load_with(bson_maker *m, const wb_load_options *o)
{
    wb__mapping map = mapped(m);
    wb_layer *l = wb__flux_load(&map, o);
    bm_free(m);
    return l;
}

static wb_layer *load(bson_maker *m)
{
    wb_layer *l = load_with(m, NULL);
    if (!l) fail_msg("%s", wb_error());
    return l;
}

/* The layer on one line; valid until the next call. */
static const char *printed(wb_layer *l)
{
    static char line[1000];
    wb__text t = {0};
    wb__print_layer(l, &t);
    char *text = wb__text_take(&t);
    snprintf(line, sizeof line, "%s", text);
    wb__free(text);
    return line;
}

static void expect_layer(bson_maker *m, const char *text)
{
    assert_string_equal(printed(load(m)), text);
}

/* A parameter of this shape counts up from `first` as it lies, or, turned, as Julia's matrix of those sizes does. */
static void expect_values(wb_layer *l, const char *path, const char *shape, double first, bool turned)
{
    wb_tensor *x = wb_get(l, path);
    if (!x) fail_msg("%s", wb_error());
    assert_string_equal(wb_describe(x), shape);
    const int64_t *dims = wb_dims(x);
    for (int64_t i = 0; i < wb_size(x); i++) {
        int64_t at = turned ? i % dims[1] * dims[0] + i / dims[1] : i;
        double value = wb_dtype_of(x) == WB_F64 ? ((const double *)wb_data(x))[i] : ((const float *)wb_data(x))[i];
        assert_true(value == first + (double)at);
    }
}

static void dense_fields(bson_maker *m, const char *activation)
{
    bm_struct(m, "Flux.Dense");
    bm_array(m, 2, 3, 2);
    bm_array(m, 1, 3);
    bm_function(m, activation);
    bm_end(m);
}

static void dense(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    bson_maker m = made();
    dense_fields(&m, "NNlib.#σ");
    wb_layer *l = load(&m);
    assert_string_equal(printed(l), "Dense(2 => 3, sigmoid)");
    expect_values(l, "weight", "[3,2] f32", 0, true);
    expect_values(l, "bias", "[3] f32", 6, false);

    static const struct { const char *julia, *here; } functions[] = {
        {"NNlib.#tanh_fast", ", tanh"}, {"Base.#tanh", ", tanh"}, {"NNlib.#sigmoid_fast", ", sigmoid"},
        {"Main.Base.#identity", ""}, {"NNlib.#relu", ", relu"}, {"NNlib.#leakyrelu", ", leakyrelu"},
        {"NNlib.#gelu_tanh", ", gelu"}, {"NNlib.#logσ", ", logsigmoid"}, {"Flux.NNlib.#swish", ", swish"}};
    for (size_t i = 0; i < WB__COUNT(functions); i++) {
        char text[100];
        m = made();
        dense_fields(&m, functions[i].julia);
        snprintf(text, sizeof text, "Dense(2 => 3%s)", functions[i].here);
        expect_layer(&m, text);
    }
    wb_scope_close(s);
}

/* Without a bias, as false and as Zeros; tracked; transposed; of two dtypes. */
static void arrays_of_all_kinds(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
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
    wb_scope_close(s);
}

static void conv_fields(bson_maker *m, const char *type, int extra)
{
    bm_struct(m, type);
    bm_function(m, "NNlib.#relu");
    bm_array(m, 4, 3, 2, 1, 4);
    bm_array(m, 1, 4);
    bm_integers(m, 2, 2, 1);
    bm_integers(m, 4, 1, 2, 3, 0);
    bm_integers(m, 2, 1, 2);
    if (extra > 0) bm_integer(m, 1);
    if (extra > 1) bm_symbol(m, "zeros");
    bm_end(m);
}

static void convolutions(void **state)
{
    (void)state;
    const char *options = "Conv((2, 3), 1 => 4, relu, pad=(3, 0, 1, 2), stride=(1, 2), dilation=(2, 1)";
    wb_scope *s = wb_scope_open();
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

    m = made();                                     /* groups; padding of the pair form */
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
    wb_scope_close(s);
}

static void pools(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
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
    bm_integers(&m, 2, 1, 1);
    expect_layer(&m, "GlobalMeanPool()");
    wb_scope_close(s);
}

static void batchnorm_fields(bson_maker *m, bool old, bool affine, bool track)
{
    bm_struct(m, "Flux.BatchNorm");
    bm_function(m, "NNlib.#relu");
    for (int i = 0; i < 4; i++)
        if (i < 2 ? affine : track) bm_array(m, 1, 3);
        else bm_null(m);
    bm_float(m, 1e-3f);
    bm_float(m, 0.2f);
    if (!old) bm_bool(m, affine), bm_bool(m, track);
    if (old) bm_bool(m, 0);
    else bm_null(m);
    if (!old) bm_integer(m, 3);
    bm_end(m);
}

static void norms(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    for (int old = 0; old < 2; old++) {
        bson_maker m = made();
        batchnorm_fields(&m, old, true, true);
        wb_layer *l = load(&m);
        const wb_batchnorm_options *o = l->options;
        assert_true(o->channels == 3 && o->eps == 1e-3f && o->momentum == 0.2f && o->activation == wb_relu);
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

    m = made();                                     /* LayerNorm, 0.11 */
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
        const wb_layernorm_options *o = l->options;
        assert_true(o->shape[0] == 5 && o->shape[1] == 4 && !o->shape[2] && o->eps == 0.5 && o->activation == wb_relu);
        assert_int_equal(o->no_affine, !affine);
        if (affine) expect_values(l, "bias", "[5,4] f32", 20, false);
    }
    wb_scope_close(s);
}

static void dropout_and_embedding(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
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
    wb_scope_close(s);
}

/* generation 0: Recur(cell, init, state) with vectors; 1: Recur(cell, state) with state0; 2: LSTM(cell); 3: the cell */
static void recurrent_fields(bson_maker *m, const char *name, int gates, int generation, double state)
{
    char cell[40], layer[40];
    snprintf(cell, sizeof cell, "Flux.%sCell", name);
    snprintf(layer, sizeof layer, "Flux.%s", name);
    int n = gates == 4 ? 2 : 1;
    if (generation < 3) bm_struct(m, generation < 2 ? "Flux.Recur" : layer);
    bm_struct(m, cell);
    if (gates == 1) bm_function(m, "Base.#tanh");
    m->value = 0;
    bm_array(m, 2, 3 * gates, 2);
    bm_array(m, 2, 3 * gates, 3);
    bm_array(m, 1, 3 * gates);
    float h[3] = {(float)state, 0, (float)state};
    if (generation == 1 && n == 2) bm_tuple(m);
    for (int i = 0; generation < 2 && i < n; i++)
        bm_bytes(m, "Core.Float32", generation ? 2 : 1, (int64_t[]){3, 1}, h, sizeof h);
    if (generation == 1 && n == 2) bm_end(m);
    bm_end(m);
    if (generation == 0) bm_null(m);
    if (generation < 2) bm_null(m);
    if (generation < 3) bm_end(m);
}

static void recurrent_layers(void **state)
{
    (void)state;
    static const struct { const char *name; int gates; } kinds[] = {{"RNN", 1}, {"GRU", 3}, {"LSTM", 4}};
    wb_scope *s = wb_scope_open();
    for (int k = 0; k < 3; k++)
        for (int generation = 0; generation < 4; generation++) {
            int g = kinds[k].gates;
            char text[100], wi[20], wh[20], b[20];
            bson_maker m = made();
            recurrent_fields(&m, kinds[k].name, g, generation, 0);
            wb_layer *l = load(&m);
            snprintf(text, sizeof text, "%s%s(2 => 3%s)", kinds[k].name, generation == 3 ? "Cell" : "", k ? "" : ", tanh");
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
            assert_true(wb_at(wb_get(l, "initial_hidden"), 2) == 2 && wb_at(wb_get(l, "initial_hidden"), 1) == 0);
            if (g == 4) assert_true(wb_at(wb_get(l, "initial_cell"), 0) == 2);
        }
    wb_scope_close(s);
}

/* A learned state is where a sequence begins: the first output is a cell's from that state. */
static void initial_states(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    wb_tensor *x = wb_rand(2, 3, 2), *first = wb_reshape(wb_slice(x, 1, 0, 1), 2, 2);
    wb_layer *(*sequences[])(const wb_recurrent_options *) = {wb_rnn_with, wb_lstm_with, wb_gru_with};
    wb_layer *(*cells[])(const wb_recurrent_options *) = {wb_rnn_cell_with, wb_lstm_cell_with, wb_gru_cell_with};
    for (int k = 0; k < 3; k++) {
        wb_recurrent_options o = {.size = sizeof o, .in = 2, .out = 3, .initial_state = true};
        wb_layer *l = sequences[k](&o), *with = cells[k](&o);
        wb_tensor *h = wb_rand(3), *c = wb_rand(3);
        assert_int_equal(wb_set(l, "initial_hidden", h), 0);
        if (k == 1) assert_int_equal(wb_set(l, "initial_cell", c), 0);
        o.initial_state = false;
        wb_layer *without = cells[k](&o);
        static const char *const names[] = {"weight_input", "weight_hidden", "bias", "initial_hidden", "initial_cell"};
        for (int i = 0; i < (k == 1 ? 5 : 4); i++) {
            assert_int_equal(wb_set(with, names[i], wb_get(l, names[i])), 0);
            if (i < 3) assert_int_equal(wb_set(without, names[i], wb_get(l, names[i])), 0);
        }
        h = wb_add(wb_zeros(2, 3), h);
        c = wb_add(wb_zeros(2, 3), c);
        wb_tensor *expected = wb_call_many(without, k == 1 ? 3 : 2, (wb_tensor *[]){first, h, c});
        wb_tensor *y = wb_call(l, x), *one = wb_call(with, first);
        assert_non_null(y);
        assert_string_equal(wb_describe(y), "[2,3,3] f32");
        assert_string_equal(wb_describe(one), "[2,3] f32");
        wb_tensor *begun = wb_reshape(wb_slice(y, 1, 0, 1), 2, 3);
        for (int i = 0; i < 6; i++) {
            assert_float_equal(((const float *)wb_data(begun))[i], ((const float *)wb_data(expected))[i], 1e-6);
            assert_float_equal(((const float *)wb_data(one))[i], ((const float *)wb_data(expected))[i], 1e-6);
        }
        wb_tree *g = wb_gradient(wb_sum(y), l);
        assert_string_equal(wb_describe(wb_get(g, "initial_hidden")), "[3] f32");
    }
    wb_scope_close(s);
}

static void containers(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    bson_maker m = made();
    bm_struct(&m, "Flux.Chain");
    bm_list(&m);                                    /* a vector, as the oldest have */
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
    assert_string_equal(printed(l), "Chain(Dense(2 => 3), Chain(norm = BatchNorm(3, relu), head = softmax), relu, Flatten())");
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

    m = made();
    bm_struct(&m, "Flux.MultiHeadAttention");
    bm_integer(&m, 2);
    for (int i = 0; i < 5; i++) {
        if (i == 3) {
            bm_struct(&m, "Flux.Dropout");
            bm_real(&m, 0.5), bm_function(&m, "Base.Colon"), bm_null(&m), bm_function(&m, "Random.TaskLocalRNG");
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
    wb_scope_close(s);
}

/* Shared arrays are one parameter, shared mutable layers one layer. */
static void ties(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
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
    expect_values(l, "layers.4.weight", "[3,3] f32", 6, false);     /* the other way round: no tie */
    assert_int_equal(wb_parameter_count(l), 9 + 9 + 6 + 6);
    wb_scope_close(s);
}

static void told(wb_log_level level, const char *message, void *ctx)
{
    (void)level;
    snprintf(ctx, 500, "%s", message);
}

/* ---- what is unknown ------------------------------------------------------------------------- */

static void error_has(const char *text)
{
    if (!strstr(wb_error(), text)) fail_msg("\"%s\" is not in: %s", text, wb_error());
}

static void attention_of_mine(bson_maker *m)
{
    bm_struct(m, "Main.Attention");
    dense_fields(m, "NNlib.#relu");
    bm_array(m, 2, 3, 5);
    bm_integer(m, 7);
    bm_function(m, "Base.#tanh");
    bm_tuple(m);
    bm_null(m), bm_array(m, 1, 2);
    bm_end(m);
    bm_struct(m, "DNC.State");
    bm_array(m, 1, 4);
    bm_end(m);
    bm_end(m);
}

static bson_maker with_unknown_parts(void)
{
    bson_maker m = made();
    bm_struct(&m, "Flux.Chain");
    bm_tuple(&m);
    attention_of_mine(&m);
    bm_closure(&m, "#7#8"), bm_integer(&m, 3), bm_end(&m);
    bm_function(&m, "Main.#normalise");
    conv_fields(&m, "Flux.ConvTranspose", 1);
    bm_struct(&m, "Flux.Dense");
    bm_array(&m, 2, 3, 2), bm_array(&m, 1, 3), bm_function(&m, "NNlib.#mish");
    bm_end(&m);
    bm_struct(&m, "Flux.MaxPool");
    bm_integers(&m, 1, 2), bm_integers(&m, 2, 0, 0), bm_integers(&m, 1, 2);
    bm_end(&m);
    bm_end(&m);
    return m;
}

typedef struct { int n; char told[1000]; wb_layer *last; bool all; } offers;

static wb_layer *offered(const wb_unknown *part, void *ctx)
{
    offers *o = ctx;
    size_t n = strlen(o->told);
    o->n++;
    snprintf(o->told + n, sizeof o->told - n, "%s: %s\n", part->path, part->type);
    if (!strcmp(part->type, "Main.Attention")) {
        assert_string_equal(printed(wb_layer_at(part->fields, "0")), "Dense(2 => 3, relu)");
        assert_string_equal(wb_describe(wb_get(part->fields, "1")), "[5,3] f32");
        assert_true(wb_item(wb_get(part->fields, "2")) == 7);
        assert_string_equal(printed(wb_layer_at(part->fields, "3")), "tanh");
        assert_true(wb_is_none(wb_get(part->fields, "4.0")));
        assert_string_equal(wb_describe(wb_get(part->fields, "4.1")), "[2] f32");
        return wb_layer_at(part->fields, "0");
    }
    if (!strncmp(part->type, "closure", 7)) assert_true(wb_item(wb_get(part->fields, "0")) == 3);
    if (!strcmp(part->type, "ConvTranspose"))
        assert_string_equal(wb_describe(wb_get(part->fields, "weight")), "[4,1,2,3] f32");
    return o->all && strcmp(part->type, "DNC.State") ? wb_layer_from_function(wb_square) : NULL;
}

static void unknown_parts(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    bson_maker m = with_unknown_parts();
    assert_null(load_with(&m, NULL));
    assert_int_equal(wb_error_code(), WB_ERROR_FORMAT);
    error_has("made.bson: 7 parts of \"model\" are unknown here");
    error_has("\"layers.0\": Main.Attention (6 fields)");
    error_has("\"layers.0.5\": DNC.State (1 field)");
    error_has("\"layers.1\": closure #7#8 (1 field)");
    error_has("\"layers.2\": function Main.normalise");
    error_has("\"layers.3\": ConvTranspose (7 fields)");
    error_has("\"layers.4.activation\": function NNlib.mish");
    error_has("\"layers.5\": MaxPool (3 fields): its k is not of two axes");

    offers o = {0};
    m = with_unknown_parts();
    assert_null(load_with(&m, &(wb_load_options){.size = sizeof(wb_load_options), .substitute = offered, .ctx = &o}));
    error_has("5 parts of");
    assert_null(strstr(wb_error(), "Attention"));
    assert_null(strstr(wb_error(), "DNC.State"));
    assert_int_equal(o.n, 7);
    assert_string_equal(o.told, "layers.0.5: DNC.State\nlayers.0: Main.Attention\nlayers.1: closure #7#8\n"
                                "layers.2: function Main.normalise\nlayers.3: ConvTranspose\n"
                                "layers.4.activation: function NNlib.mish\nlayers.5: MaxPool\n");

    o = (offers){.all = true};
    m = with_unknown_parts();
    wb_layer *l =
        load_with(&m, &(wb_load_options){.size = sizeof(wb_load_options), .substitute = offered, .ctx = &o});
    if (!l) fail_msg("%s", wb_error());
    assert_string_equal(printed(l), "Chain(Dense(2 => 3, relu), square, square, square, Dense(2 => 3, square), square)");
    wb_scope_close(s);
}

/* A closure is taken for Flatten only where images end and a Dense begins. */
static void flattening_closures(void **state)
{
    (void)state;
    static const char *const texts[] = {"Flatten()", NULL, NULL, NULL};
    wb_scope *s = wb_scope_open();
    wb_set_log(told, (char[500]){0});
    for (int wrong = 0; wrong < 4; wrong++) {
        bson_maker m = made();
        bm_struct(&m, "Flux.Chain");
        bm_tuple(&m);
        if (wrong == 3) dense_fields(&m, "NNlib.#relu");        /* no images */
        else conv_fields(&m, "Flux.Conv", 1);
        bm_closure(&m, "#1#2");
        if (wrong == 2) bm_integer(&m, 1);                      /* it knows something */
        bm_end(&m);
        bm_function(&m, "NNlib.#relu");
        bm_struct(&m, "Flux.Dense");
        bm_array(&m, 2, 3, wrong == 1 ? 9 : 8);                 /* 4 channels do not divide 9 */
        bm_array(&m, 1, 3);
        bm_function(&m, "Base.#identity");
        wb_layer *l = load_with(&m, NULL);
        if (texts[wrong]) assert_string_equal(printed(wb_layer_at(l, "layers.1")), texts[wrong]);
        else assert_null(l), error_has("\"layers.1\": closure #1#2");
    }
    wb_set_log(NULL, NULL);
    wb_scope_close(s);
}

static void from_a_gpu(void **state)
{
    (void)state;
    static const char *const types[] = {"CuArrays.CuArray", "CUDA.CuArray", "AMDGPU.ROCArray", "Metal.MtlArray"};
    for (size_t i = 0; i < WB__COUNT(types); i++)
        for (int table = 0; table < 2; table++) {
            bson_maker m = made();
            bm_struct(&m, "Flux.Chain");
            bm_tuple(&m);
            bm_struct(&m, "Flux.Dense");
            bm_struct(&m, types[i]);
            bm_integer(&m, 12345), bm_integers(&m, 2, 3, 2);
            wb__mapping map = mapped(&m);
            wb__table t;
            if (table) assert_int_equal(wb__flux_table(&map, NULL, &t), WB_ERROR_FORMAT);
            else assert_null(wb__flux_load(&map, NULL));
            error_has(types[i]);
            error_has("save it again after model = cpu(model)");
            bm_free(&m);
        }
}

static void variables(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    for (int n = 0; n < 3; n++) {
        bson_maker m = {0};
        bm_document(&m);
        bm_key(&m, "acc"), bm_real(&m, 0.5);
        bm_key(&m, "encoder"), dense_fields(&m, "NNlib.#relu");
        if (n) bm_key(&m, "decoder"), dense_fields(&m, "NNlib.#tanh");
        wb_layer *l = load_with(&m, n < 2 ? NULL : &(wb_load_options){.size = sizeof(wb_load_options), .key = "decoder"});
        if (n != 1) assert_string_equal(printed(l), n ? "Dense(2 => 3, tanh)" : "Dense(2 => 3, relu)");
        else assert_null(l), error_has("say by .key which is meant: acc, encoder, decoder");
    }
    bson_maker m = made();
    dense_fields(&m, "NNlib.#relu");
    assert_null(load_with(&m, &(wb_load_options){.size = sizeof(wb_load_options), .key = "net"}));
    error_has("no variable is named \"net\"; there are: model");
    m = made();
    bm_array(&m, 2, 3, 2);
    assert_null(load_with(&m, NULL));
    error_has("\"model\" is a Array{Float32,2}, values without layers: make the model and use wb_load_state");
    wb_scope_close(s);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void names_of(bson_maker *m, const char *key, char *out, size_t size)
{
    wb__table t;
    wb__mapping map = mapped(m);
    *out = 0;
    if (wb__flux_table(&map, key, &t)) fail_msg("%s", wb_error());
    for (int i = 0; i < t.n; i++) {
        wb__entry *e = &t.entries[i];
        size_t n = strlen(out);
        n += (size_t)snprintf(out + n, size - n, "%s%s", i ? "; " : "", e->name);
        for (int k = 0; k < e->ndim; k++) n += (size_t)snprintf(out + n, size - n, " %lld", (long long)e->dims[k]);
        if (e->dtype != WB_F32) snprintf(out + n, size - n, " %s", e->dtype ? wb_dtype_name(e->dtype) : e->type);
        assert_true(e->owned || (const uint8_t *)e->data == map.data + e->begin);
        assert_true(e->begin > 0 && e->begin + e->bytes < map.bytes);
    }
    if (t.nameless) snprintf(out + strlen(out), size - strlen(out), "; nameless");
    wb__table_free(&t);
    bm_free(m);
}

static void expect_names(bson_maker *m, const char *text)
{
    char names[1000];
    names_of(m, NULL, names, sizeof names);
    assert_string_equal(names, text);
}

static void tables(void **state)
{
    (void)state;
    bson_maker m = made();                          /* structs */
    bm_struct(&m, "Flux.Chain");
    bm_tuple(&m);
    dense_fields(&m, "NNlib.#relu");
    batchnorm_fields(&m, true, true, true);
    recurrent_fields(&m, "LSTM", 4, 1, 2);
    recurrent_fields(&m, "GRU", 3, 2, 0);
    attention_of_mine(&m);
    expect_names(&m, "layers.0.bias 3; layers.0.weight 3 2; layers.1.bias 3; layers.1.mean 3; layers.1.scale 3; "
                     "layers.1.var 3; layers.2.bias 12; layers.2.initial_cell 3; layers.2.initial_hidden 3; "
                     "layers.2.weight_hidden 12 3; layers.2.weight_input 12 2; layers.3.bias 9; "
                     "layers.3.weight_hidden 9 3; layers.3.weight_input 9 2; layers.4.0.bias 3; layers.4.0.weight 3 2; "
                     "layers.4.1 5 3; layers.4.4.1 2; layers.4.5.0 4");

    m = made();                                     /* Flux.state: the same names without types */
    bm_named(&m, 1, "layers");
    bm_tuple(&m);
    bm_named(&m, 3, "weight", "bias", "σ");
    bm_array(&m, 2, 3, 2), bm_array(&m, 1, 3), bm_tuple(&m), bm_end(&m);
    bm_end(&m);
    bm_named(&m, 5, "λ", "β", "γ", "μ", "σ²");
    bm_tuple(&m), bm_end(&m);
    for (int i = 0; i < 4; i++) bm_array(&m, 1, 3);
    bm_end(&m);
    bm_named(&m, 2, "cell", "state");
    bm_named(&m, 4, "Wi", "Wh", "b", "state0");
    bm_array(&m, 2, 9, 2), bm_array(&m, 2, 9, 3), bm_array(&m, 1, 9), bm_array(&m, 2, 3, 1);
    bm_end(&m);
    bm_array(&m, 2, 3, 1);
    bm_end(&m);
    bm_named(&m, 1, "weight");
    bm_array(&m, 2, 4, 10);
    bm_end(&m);
    bm_named(&m, 3, "λ", "diag", "affine");
    bm_tuple(&m), bm_end(&m);
    bm_named(&m, 2, "scale", "bias");
    bm_array(&m, 1, 4), bm_array(&m, 1, 4);
    bm_end(&m);
    bm_bool(&m, 1);
    bm_end(&m);
    expect_names(&m, "layers.0.bias 3; layers.0.weight 3 2; layers.1.bias 3; layers.1.mean 3; layers.1.scale 3; "
                     "layers.1.var 3; layers.2.bias 9; layers.2.initial_hidden 3; layers.2.weight_hidden 9 3; "
                     "layers.2.weight_input 9 2; layers.3.weight 10 4; layers.4.bias 4; layers.4.scale 4");

    m = made();                                     /* dtypes, in a dictionary */
    bm_document(&m);
    bm_key(&m, "a.b"), bm_bytes(&m, "Core.Int64", 1, (int64_t[]){2}, (int64_t[]){1, 2}, 16);
    bm_key(&m, "bits"), bm_bytes(&m, "Core.Bool", 2, (int64_t[]){2, 3}, "\1\0\1\0\1\1", 6);
    bm_key(&m, "bytes"), bm_binary(&m, "abc", 3);
    bm_key(&m, "half"), bm_bytes(&m, "Core.Float16", 1, (int64_t[]){2}, "abcd", 4);
    bm_key(&m, "letters"), bm_bytes(&m, "Core.Char", 1, (int64_t[]){2}, "abcdefgh", 8);
    bm_key(&m, "no"), bm_bytes(&m, "Core.Float32", 2, (int64_t[]){0, 3}, "", 0);
    bm_key(&m, "z"), bm_bytes(&m, "Base.Complex", 1, (int64_t[]){2}, "abcdefghabcdefgh", 16);
    bm_close(&m);
    expect_names(&m, "a_b 2 i64; bits 3 2 bool; bytes 3 u8; half 2 f16; letters 2 Char; no 3 0; z 2 Complex");

    m = made();                                     /* Zygote.Params */
    bm_struct(&m, "Zygote.Params");
    bm_struct(&m, "Zygote.Buffer");
    bm_list(&m), bm_array(&m, 2, 3, 2), bm_array(&m, 1, 3), bm_close(&m);
    bm_bool(&m, 0);
    bm_end(&m);
    bm_struct(&m, "Base.IdSet"), bm_end(&m);
    expect_names(&m, "0 2 3; 1 3; nameless");
}

/* A grouped convolution that does not flip has its kernels turned over in Flux's files of ours; nobody sees it. */
static void kernels_turned_over(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    char path[] = "/tmp/weber-flux-XXXXXX", file[64];
    assert_non_null(mkdtemp(path));
    snprintf(file, sizeof file, "%s/m.bson", path);
    wb_layer *models[2];
    for (int i = 0; i < 2; i++)
        models[i] = wb_Chain(wb_named("a", wb_SkipConnection(wb_Conv(.in = 4, .out = 4, .kernel = {3, 1}, .groups = 2),
                                                             wb_add)),
                             wb_named("b", wb_Conv(.in = 4, .out = 4, .kernel = {2, 3})));
    assert_int_equal(wb_save(file, models[0]), 0);
    wb_layer *loaded = wb_load(file);
    if (!loaded) fail_msg("%s", wb_error());
    assert_int_equal(wb_load_state(file, models[1]), 0);
    static const char *const weights[] = {"layers.a.layers.weight", "layers.b.weight"};
    for (int i = 0; i < 2; i++) {
        wb_tensor *was = wb_get(models[0], weights[i]);
        size_t bytes = (size_t)wb_size(was) * 4;
        assert_memory_equal(wb_data(wb_get(loaded, weights[i])), wb_data(was), bytes);
        assert_memory_equal(wb_data(wb_get(models[1], weights[i])), wb_data(was), bytes);
    }
    unlink(file);
    rmdir(path);
    wb_scope_close(s);
}

/* In Flux's order: the bias of a BatchNorm before its scale; what recurrent layers begin with, where it is zero. */
static void lists_of_parameters(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    wb_layer *model = wb_Chain(wb_Dense(.in = 2, .out = 3), wb_BatchNorm(.channels = 3), wb_LSTM(.in = 3, .out = 2),
                               wb_Embedding(.n = 5, .dim = 4));
    for (int with = 0; with < 4; with++) {
        bson_maker m = made();
        bm_list(&m);
        bm_array(&m, 2, 3, 2), bm_array(&m, 1, 3);
        bm_array(&m, 1, 3), bm_array(&m, 1, 3);
        bm_array(&m, 2, 8, 3), bm_array(&m, 2, 8, 2), bm_array(&m, 1, 8);
        float h[2] = {0, (float)(with == 2)};
        for (int i = 0; with && i < 2; i++) bm_bytes(&m, "Core.Float32", 1, (int64_t[]){2}, h, 8);
        bm_array(&m, 2, 4, 5);
        if (with == 3) bm_array(&m, 1, 1);
        wb__table t;
        wb__mapping map = mapped(&m);
        assert_int_equal(wb__flux_table(&map, NULL, &t), 0);
        assert_true(t.nameless);
        int status = wb__flux_name_params(&t, "made.bson", model);
        if (with == 2) error_has("array 7 is a learned initial state");
        if (with == 3) error_has("a list of 11 arrays without names; the model has 8 parameters");
        assert_int_equal(status, with < 2 ? 0 : WB_ERROR_FORMAT);
        for (int i = 0; !status && i < 8; i++) {
            static const struct { const char *name; int dims[2]; float second; } all[] = {
                {"layers.0.bias", {3}, 7}, {"layers.0.weight", {3, 2}, 3}, {"layers.1.bias", {3}, 10},
                {"layers.1.scale", {3}, 13}, {"layers.2.bias", {8}, 56}, {"layers.2.weight_hidden", {8, 2}, 47},
                {"layers.2.weight_input", {8, 3}, 23}, {"layers.3.weight", {5, 4}, 64}};
            float second;
            wb__entry *e = &t.entries[i];
            memcpy(&second, (const char *)e->data + 4, 4);
            assert_string_equal(e->name, all[i].name);
            assert_true(e->dims[0] == all[i].dims[0] && (e->ndim == 1 || e->dims[1] == all[i].dims[1]));
            assert_true(second == all[i].second);
        }
        wb__table_free(&t);
        bm_free(&m);
    }
    wb_scope_close(s);
}

/* ---- real files ------------------------------------------------------------------------------ */

static char real_path[1024];

static wb_layer *load_real(const char *name, const wb_load_options *o)
{
    char file[200];
    snprintf(file, sizeof file, "flux-models/%s", name);
    if (!shared_file(real_path, sizeof real_path, file)) skip();
    wb__mapping *m = wb__map(real_path);
    assert_non_null(m);
    wb_layer *model = wb__flux_load(m, o);
    wb__unmap(m);
    return model;
}

/* The first axis of the arrays that these two were trained on is a picture's row, the last one here: the pictures lie on
 * their side. */
static double accuracy(wb_layer *model, const float *logits)
{
    char images[1024], labels[1024];
    if (!shared_file(images, sizeof images, "mnist-t10k/t10k-images-idx3-ubyte.gz") ||
        !shared_file(labels, sizeof labels, "mnist-t10k/t10k-labels-idx1-ubyte.gz")) skip();
    wb_tensor *x = wb_read_idx(images), *y = wb_read_idx(labels);
    x = wb_div(wb_astype(wb_permute(x, 0, 2, 1), WB_F32), wb_scalar(255));
    x = wb_reshape(x, 10000, 1, 28, 28);
    int right = 0;
    for (int at = 0; at < 10000; at += 1000) {
        wb_scope *s = wb_scope_open();
        wb_tensor *out = wb_call(model, wb_slice(x, 0, at, at + 1000));
        const float *p = wb_data(out);
        const uint8_t *label = wb_data(wb_slice(y, 0, at, at + 1000));
        assert_non_null(p);
        for (int i = 0; !at && i < 10; i++) assert_float_equal(p[i], logits[i], 1e-3);
        for (int i = 0; i < 1000; i++) {
            int best = 0;
            for (int k = 1; k < 10; k++)
                if (p[10 * i + k] > p[10 * i + best]) best = k;
            right += best == label[i];
        }
        wb_scope_close(s);
    }
    return right / 1e4;
}

static void a_model_of_2020(void **state)
{
    (void)state;
    static const float logits[10] = {-7.4504f, -3.0844f, 1.2763f, -2.1351f, -13.6553f,
                                     -13.4810f, -32.2989f, 15.9946f, -7.9445f, 0.9139f};
    char said[500] = "";
    wb_scope *s = wb_scope_open();
    wb_set_log(told, said);
    wb_layer *model = load_real("juliacon2020-model_conv.bson", NULL);
    wb_set_log(NULL, NULL);
    if (!model) fail_msg("%s", wb_error());
    assert_non_null(strstr(said, "\"layers.6\" is a closure (#3#4)"));
    assert_non_null(strstr(said, "taken for Flatten"));
    wb_layer *parts[8];
    for (int i = 0; i < 8; i++) {
        char path[16];
        snprintf(path, sizeof path, "layers.%d", i);
        parts[i] = wb_layer_at(model, path);
    }
    assert_true(accuracy(wb_chain_of(8, parts), logits) == 0.9874);        /* without its softmax */
    wb_scope_close(s);
}

/* A list of parameters, into a model of the same architecture. */
static void parameters_of_2020(void **state)
{
    (void)state;
    static const float logits[10] = {-9.7769f, -7.1424f, -0.6834f, 0.4824f, -9.8856f,
                                     -10.2815f, -31.9557f, 21.3716f, -11.3518f, 1.4664f};
    if (!shared_file(real_path, sizeof real_path, "flux-models/tetsugps-mnist_conv.bson")) skip();
    wb_scope *s = wb_scope_open();
    wb_layer *model = wb_Chain(
        wb_Conv(.in = 1, .out = 16, .kernel = {3}, .activation = wb_relu, .pad = {1}, .flip = true),
        wb_MaxPool(.window = {2}),
        wb_Conv(.in = 16, .out = 32, .kernel = {3}, .activation = wb_relu, .pad = {1}, .flip = true),
        wb_MaxPool(.window = {2}),
        wb_Conv(.in = 32, .out = 32, .kernel = {3}, .activation = wb_relu, .pad = {1}, .flip = true),
        wb_MaxPool(.window = {2}), wb_flatten, wb_Dense(.in = 288, .out = 10));
    wb__mapping *m = wb__map(real_path);
    wb__table t;
    assert_int_equal(wb__flux_table(m, NULL, &t), 0);
    assert_int_equal(wb__flux_name_params(&t, m->path, model), 0);
    assert_int_equal(wb__pour(&t, m->path, "", model, false, false), 0);
    wb__table_free(&t);
    wb__unmap(m);
    assert_true(accuracy(model, logits) == 0.9928);
    wb_scope_close(s);
}

static void other_real_files(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    wb_layer *l = load_real("arcaman07-dense.bson", NULL);
    assert_string_equal(printed(l), "Dense(13 => 1)");
    l = load_real("psuskin-model.bson", NULL);
    assert_string_equal(printed(l), "Chain(Dense(6 => 100, relu), Dense(100 => 75, relu), Dense(75 => 25, relu), "
                                    "Dense(25 => 10, relu), Dense(10 => 1))");
    assert_null(load_real("sjrodahl-dnc.bson", NULL));
    error_has("\"cell\": DNC.DNCCell (9 fields)");
    error_has("\"cell.8\": DNC.State (5 fields)");
    error_has("\"model\": Recur (3 fields): its cell is DNC.DNCCell");
    wb_scope_close(s);
}

static int row_to_text(const wb__flux_row *row, void *ctx)
{
    char *out = ctx;
    size_t n = strlen(out);
    snprintf(out + n, 4000 - n, "%*s%s %s%s%s\n", row->depth, "", row->name, row->type, row->value ? " " : "",
             row->value ? row->value : "");
    return 0;
}

static void outlines(void **state)
{
    (void)state;
    char text[4000] = "";
    bson_maker m = made();
    bm_struct(&m, "Flux.Chain");
    bm_tuple(&m);
    conv_fields(&m, "Flux.Conv", 1);
    bm_closure(&m, "#7#8"), bm_end(&m);
    bm_function(&m, "NNlib.#softmax");
    attention_of_mine(&m);
    bm_end(&m), bm_end(&m);
    bm_key(&m, "acc"), bm_real(&m, 0.5);
    wb__mapping map = mapped(&m);
    assert_int_equal(wb__flux_outline(&map, row_to_text, text), 0);
    assert_string_equal(text, "model Chain\n 0 Conv relu\n  weight Array{Float32,4}\n  bias Array{Float32,1}\n"
                              " 1 closure #7#8\n 2 function NNlib.softmax\n 3 Main.Attention\n  0 Dense relu\n"
                              "   weight Array{Float32,2}\n   bias Array{Float32,1}\n  1 Array{Float32,2}\n"
                              "  2 Int64 7\n  3 function Base.tanh\n  4 Tuple\n   1 Array{Float32,1}\n"
                              "  5 DNC.State\n   0 Array{Float32,1}\nacc Float64 0.5\n");
    bm_free(&m);
}

int main(void)
{
    bson_maker none = {0};
    bm_document(&none);
    wb__mapping map = mapped(&none);
    if (!wb__flux_load(&map, NULL) && wb_error_code() == WB_ERROR_UNSUPPORTED)
        return printf("SKIP: %s\n", wb_error()), 0;
    bm_free(&none);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense), cmocka_unit_test(arrays_of_all_kinds), cmocka_unit_test(convolutions),
        cmocka_unit_test(pools), cmocka_unit_test(norms), cmocka_unit_test(dropout_and_embedding),
        cmocka_unit_test(recurrent_layers), cmocka_unit_test(initial_states), cmocka_unit_test(containers),
        cmocka_unit_test(ties), cmocka_unit_test(unknown_parts), cmocka_unit_test(flattening_closures),
        cmocka_unit_test(from_a_gpu), cmocka_unit_test(variables), cmocka_unit_test(tables), cmocka_unit_test(kernels_turned_over),
        cmocka_unit_test(lists_of_parameters), cmocka_unit_test(outlines), cmocka_unit_test(a_model_of_2020),
        cmocka_unit_test(parameters_of_2020), cmocka_unit_test(other_real_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
