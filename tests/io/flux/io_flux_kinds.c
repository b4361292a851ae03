/* Reads the kinds of Flux's layers with fields of their own from BSON files that are made here: the
 * cell GRUv3, norms, products, more axes of space, rows of tables. */
#include "test.h"

#include "flux_reading.h"

/* Weber's weight has the first 6 rows of Wh, (6, 3) or since Flux 0.15 (9, 3), above Wh_h̃. */
TEST_IN_SCOPE(gruv3)
{
    for (int blocks = 2; blocks < 4; blocks++) {
        bson_maker m = made();
        bm_struct(&m, "Flux.GRUv3Cell");
        bm_array(&m, 2, 9, 2), bm_array(&m, 2, 3 * blocks, 3), bm_array(&m, 1, 9);
        bm_array(&m, 2, 3, 3);
        wb_layer *l = load(&m);
        assert_string_equal(printed(l), "GRUv3Cell(2 => 3)");
        expect_values(l, "weight_input", "[9,2] f32", 0, true);
        expect_values(l, "bias", "[9] f32", 18 + 9 * blocks, false);
        wb_tensor *h = wb_get(l, "weight_hidden");
        assert_string_equal(wb_describe(h), "[9,3] f32");
        for (int row = 0; row < 9; row++)
            for (int column = 0; column < 3; column++)
                assert_true(wb_at(h, row, column) ==
                            (row < 6 ? 18 + 3 * blocks * column + row
                                     : 27 + 9 * blocks + 3 * column + row - 6));
    }
    bson_maker m = made();
    bm_struct(&m, "Flux.GRUv3Cell");
    bm_array(&m, 2, 9, 2), bm_array(&m, 2, 5, 3), bm_array(&m, 1, 9), bm_array(&m, 2, 3, 3);
    REFUSED(load_with(&m, NULL), WB_ERROR_FORMAT, "GRUv3Cell", "weights");
}

/* Begin and end a struct with parameters of its type, which the caller adds between them. */
static void begin_parameters(bson_maker *m)
{
    bm_tag(m, "struct");
    bm_key(m, "type"), bm_tag(m, "datatype");
    bm_key(m, "params"), bm_list(m);
}

static void end_parameters(bson_maker *m, const char *name)
{
    bm_close(m);
    bm_key(m, "name"), bm_names(m, name);
    bm_close(m);
    bm_key(m, "data"), bm_list(m);
}

/* Recurrence of Flux 0.16 over a cell, and a layer that gives its state. */
TEST_IN_SCOPE(recurrences)
{
    bson_maker m = made();
    bm_struct(&m, "Flux.Recurrence");
    bm_struct(&m, "Flux.GRUCell");
    bm_array(&m, 2, 9, 2), bm_array(&m, 2, 9, 3), bm_bool(&m, 0);
    bm_end(&m);
    expect_layer(&m, "GRU(2 => 3; bias=false)");
    m = made();
    begin_parameters(&m);
    bm_bool(&m, 1);
    end_parameters(&m, "Flux.LSTM");
    bm_struct(&m, "Flux.LSTMCell");
    bm_array(&m, 2, 12, 2), bm_array(&m, 2, 12, 3), bm_array(&m, 1, 12);
    bm_end(&m);
    const wb_Recurrent_options *o = load(&m)->options;
    assert_true(o->return_state);
}

TEST_IN_SCOPE(weight_norms)
{
    bson_maker m = made();
    bm_struct(&m, "Flux.WeightNorm");
    dense_fields(&m, "Base.#identity");
    bm_array(&m, 2, 3, 1), bm_symbol(&m, "weight"), bm_integer(&m, 2);
    REFUSED(load_with(&m, NULL), WB_ERROR_FORMAT, "WeightNorm", "Flux.remove_weight_norms(model)");
}

static void norm_fields(bson_maker *m, bool arrays, bool statistics)
{
    bm_function(m, "NNlib.#relu");
    for (int i = 0; i < 4; i++)
        if (i < 2 ? arrays : statistics) bm_array(m, 1, 4);
        else bm_null(m);
    bm_float(m, 1e-3f), bm_float(m, 0.2f), bm_bool(m, arrays), bm_bool(m, statistics);
    bm_null(m), bm_integer(m, 4);
    bm_end(m);
}

TEST_IN_SCOPE(norms_of_samples)
{
    for (int arrays = 0; arrays < 2; arrays++) {
        bson_maker m = made();
        bm_struct(&m, "Flux.InstanceNorm");
        norm_fields(&m, arrays, arrays);
        wb_layer *l = load(&m);
        const wb_InstanceNorm_options *o = l->options;
        assert_true(o->channels == 4 && o->affine == arrays && o->track_stats == arrays &&
                    o->momentum == 0.2f && o->activation == wb_relu);
        if (arrays) expect_values(l, "scale", "[4] f32", 4, false);
        m = made();
        bm_struct(&m, "Flux.GroupNorm");
        bm_integer(&m, 2);
        norm_fields(&m, arrays, false);
        l = load(&m);
        const wb_GroupNorm_options *g = l->options;
        assert_true(g->channels == 4 && g->groups == 2 && g->affine == arrays &&
                    g->eps == 1e-3f && g->activation == wb_relu);
        if (arrays) expect_values(l, "bias", "[4] f32", 0, false);
    }
    bson_maker m = made();
    bm_struct(&m, "Flux.GroupNorm");
    bm_integer(&m, 2);
    norm_fields(&m, true, true);
    REFUSED(load_with(&m, NULL), WB_ERROR_FORMAT, "GroupNorm", "statistics");
}

/* Element (k, i, j) of a Bilinear's weight is k + 2 i + 6 j here. */
TEST_IN_SCOPE(scales_and_products)
{
    bson_maker m = made();
    bm_struct(&m, "Flux.Bilinear");
    bm_array(&m, 3, 2, 3, 4), bm_array(&m, 1, 2), bm_function(&m, "Base.#tanh");
    wb_layer *l = load(&m);
    assert_string_equal(printed(l), "Bilinear((3, 4) => 2, tanh)");
    expect_values(l, "bias", "[2] f32", 24, false);
    wb_tensor *w = wb_get(l, "weight");
    assert_string_equal(wb_describe(w), "[2,3,4] f32");
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 4; j++) assert_true(wb_at(w, k, i, j) == k + 2 * i + 6 * j);
    m = made();
    bm_struct(&m, "Flux.Scale");
    bm_array(&m, 2, 4, 5), bm_bool(&m, 0), bm_function(&m, "NNlib.#relu");
    l = load(&m);
    assert_string_equal(printed(l), "Scale(5, 4, relu; bias=false)");
    expect_values(l, "scale", "[5,4] f32", 0, false);
    m = made();
    bm_struct(&m, "Flux.Diagonal");
    bm_array(&m, 1, 4), bm_array(&m, 1, 4);
    l = load(&m);
    assert_string_equal(printed(l), "Scale(4)");
    expect_values(l, "bias", "[4] f32", 4, false);
}

static bson_maker upsample_of(const char *mode)
{
    bson_maker m = made();
    begin_parameters(&m);
    bm_symbol(&m, mode);
    end_parameters(&m, "Flux.Upsample");
    return m;
}

TEST_IN_SCOPE(more_space)
{
    bson_maker m = upsample_of("nearest");
    bm_integer(&m, 2), bm_null(&m);
    expect_layer(&m, "Upsample(nearest, scale=2)");
    m = upsample_of("bilinear");
    bm_null(&m), bm_integers(&m, 2, 7, 9);
    expect_layer(&m, "Upsample(linear, sizes=(9, 7))");
    static const char *const wrong[] = {"cubic", "nearest"};
    for (int i = 0; i < 2; i++) {                   /* an unknown mode; a factor of 1.5 */
        m = upsample_of(wrong[i]);
        bm_real(&m, i ? 1.5 : 2.0), bm_null(&m);
        REFUSED(load_with(&m, NULL), WB_ERROR_FORMAT, "Upsample", i ? "scale" : "mode");
    }
    m = made();
    bm_struct(&m, "Flux.PixelShuffle");
    bm_integer(&m, 3);
    expect_layer(&m, "PixelShuffle(3)");
    m = made();
    bm_struct(&m, "Flux.AlphaDropout");
    bm_real(&m, 0.25), bm_null(&m), bm_function(&m, "Random.TaskLocalRNG");
    expect_layer(&m, "AlphaDropout(0.25)");
    m = made();
    bm_struct(&m, "Flux.Conv");
    bm_function(&m, "Base.#identity");
    bm_array(&m, 3, 3, 2, 4), bm_bool(&m, 0);
    bm_integers(&m, 1, 2), bm_integers(&m, 2, 1, 0), bm_integers(&m, 1, 1), bm_integer(&m, 1);
    bm_symbol(&m, "reflect");
    expect_layer(&m, "Conv1d((3,), 2 => 4, pad=(1, 0), pad_mode=reflect, stride=2, flip=true, "
                     "bias=false)");
}

TEST_IN_SCOPE(rows_of_tables)
{
    static const char *const reductions[] = {"Statistics.#mean", "Base.#sum", "Base.#maximum"};
    for (int i = 0; i < 3; i++) {
        bson_maker m = made();
        bm_struct(&m, "Flux.EmbeddingBag");
        bm_array(&m, 2, 4, 10), bm_function(&m, reductions[i]);
        wb_layer *l = load(&m);
        assert_int_equal(((const wb_EmbeddingBag_options *)l->options)->mode, i);
        expect_values(l, "weight", "[10,4] f32", 0, false);
    }
    bson_maker m = made();
    bm_struct(&m, "Flux.Embedding");
    bm_array(&m, 2, 4, 10), bm_integer(&m, 1);
    expect_layer(&m, "Embedding(10 => 4; padding_index=0)");
    m = made();
    bm_struct(&m, "Flux.Embedding");
    bm_array(&m, 2, 4, 10), bm_integer(&m, 11);
    REFUSED(load_with(&m, NULL), WB_ERROR_FORMAT, "Embedding", "1", "10");
}

int main(void)
{
    if (!reads_bson()) return 0;
    return run_all_cases();
}
