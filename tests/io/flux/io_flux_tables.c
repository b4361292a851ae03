/* Flux's BSON files as tables: the names of their arrays, kinds of kernels, lists of parameters. */
#include "test.h"

#include <unistd.h>

#include "flux_reading.h"
#include "io/model/model_file.h"

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
        for (int k = 0; k < e->ndim; k++)
            n += (size_t)snprintf(out + n, size - n, " %lld", (long long)e->dims[k]);
        if (e->dtype != WB_F32)
            snprintf(out + n, size - n, " %s", e->dtype ? wb_dtype_name(e->dtype) : e->type);
        assert_true(e->owned || (const uint8_t *)e->data == map.data + e->begin);
        assert_true(e->begin > 0 && (e->owned || e->begin + e->bytes < map.bytes));
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

TEST(tables)
{
    bson_maker m = made();                          /* structs */
    bm_struct(&m, "Flux.Chain");
    bm_tuple(&m);
    dense_fields(&m, "NNlib.#relu");
    batchnorm_fields(&m, true, true, true);
    recurrent_fields(&m, "LSTM", 4, 1, 2);
    recurrent_fields(&m, "GRU", 3, 2, 0);
    unknown_attention(&m);
    expect_names(
        &m,
        "layers.0.bias 3; layers.0.weight 3 2; layers.1.bias 3; layers.1.mean 3; layers.1.scale 3; "
        "layers.1.var 3; layers.2.bias 12; layers.2.initial_cell 3; layers.2.initial_hidden 3; "
        "layers.2.weight_hidden 12 3; layers.2.weight_input 12 2; layers.3.bias 9; "
        "layers.3.weight_hidden 9 3; layers.3.weight_input 9 2; layers.4.0.bias 3; "
        "layers.4.0.weight 3 2; layers.4.1 5 3; layers.4.4.1 2; layers.4.5.0 4");

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
    expect_names(
        &m,
        "layers.0.bias 3; layers.0.weight 3 2; layers.1.bias 3; layers.1.mean 3; layers.1.scale 3; "
        "layers.1.var 3; layers.2.bias 9; layers.2.initial_hidden 3; layers.2.weight_hidden 9 3; "
        "layers.2.weight_input 9 2; layers.3.weight 10 4; layers.4.bias 4; layers.4.scale 4");

    m = made();                                     /* a Bilinear, a GRUv3 and a GroupNorm */
    bm_named(&m, 3, "a", "b", "c");
    bm_named(&m, 3, "weight", "bias", "σ");
    bm_array(&m, 3, 2, 3, 4), bm_array(&m, 1, 2), bm_tuple(&m), bm_end(&m);
    bm_end(&m);
    bm_named(&m, 1, "cell");
    bm_named(&m, 4, "Wi", "Wh", "b", "Wh_h̃");
    bm_array(&m, 2, 9, 2), bm_array(&m, 2, 9, 3), bm_array(&m, 1, 9), bm_array(&m, 2, 3, 3);
    bm_end(&m);
    bm_end(&m);
    bm_named(&m, 5, "G", "β", "γ", "μ", "chs");
    bm_integer(&m, 2), bm_array(&m, 1, 4), bm_array(&m, 1, 4), bm_null(&m), bm_integer(&m, 4);
    bm_end(&m);
    expect_names(&m, "a.bias 2; a.weight 2 3 4; b.bias 9; b.weight_hidden 9 3; b.weight_input 9 2; "
                     "c.bias 4; c.scale 4");

    m = made();                                     /* weights of a GRUv3 that do not fit */
    bm_named(&m, 4, "Wi", "Wh", "b", "Wh_h̃");
    bm_array(&m, 2, 9, 2), bm_array(&m, 2, 8, 3), bm_array(&m, 1, 9), bm_array(&m, 2, 3, 3);
    wb__table none;
    wb__mapping map = mapped(&m);
    assert_int_equal(wb__flux_table(&map, NULL, &none), WB_ERROR_FORMAT);
    FAILED(WB_ERROR_FORMAT, "made.bson", "\"weight_hidden\"", "weights");
    bm_free(&m);

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
    expect_names(
        &m,
        "a_b 2 i64; bits 3 2 bool; bytes 3 u8; half 2 f16; letters 2 Char; no 3 0; z 2 Complex");

    m = made();
    bm_struct(&m, "Flux.DepthwiseConv");
    bm_function(&m, "Base.#identity");
    bm_array(&m, 4, 3, 3, 2, 4), bm_array(&m, 1, 8);
    for (int i = 0; i < 3; i++) bm_integers(&m, 2, 1, 1);
    expect_names(&m, "bias 8; weight 8 1 3 3");

    m = made();                                     /* Zygote.Params */
    bm_struct(&m, "Zygote.Params");
    bm_struct(&m, "Zygote.Buffer");
    bm_list(&m), bm_array(&m, 2, 3, 2), bm_array(&m, 1, 3), bm_close(&m);
    bm_bool(&m, 0);
    bm_end(&m);
    bm_struct(&m, "Base.IdSet"), bm_end(&m);
    expect_names(&m, "0 2 3; 1 3; nameless");
}

/* wb_save flips the kernels of a grouped convolution without .flip, since Flux's convolution flips.
 * wb_load and wb_load_state flip them back. */
TEST(flipped_kernels)
{
    wb_scope *s = wb_scope_open();
    char path[] = "/tmp/weber-flux-XXXXXX", file[64];
    assert_non_null(mkdtemp(path));
    snprintf(file, sizeof file, "%s/m.bson", path);
    wb_layer *models[2];
    for (int i = 0; i < 2; i++)
        models[i] = wb_Chain(wb_named("a", wb_SkipConnection(wb_Conv(4, 4, {3, 1}, .groups = 2),
                                                             wb_add)),
                             wb_named("b", wb_Conv(4, 4, {2, 3})));
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

/* Lists without names are in Flux's order: the bias of a BatchNorm precedes its scale.  `with` 0:
 * no initial state; 1: zeros as LSTM's initial state; 2: another one, refused; 3: one array too
 * many, refused. */
TEST_IN_SCOPE(lists_of_parameters)
{
    wb_layer *model = wb_Chain(wb_Dense(.in = 2, .out = 3), wb_BatchNorm(.channels = 3),
                               wb_LSTM(.in = 3, .out = 2), wb_Embedding(.n = 5, .dim = 4));
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
        if (with == 2) assert_true(HAS_LINE(wb_error(), "7", "initial state"));
        if (with == 3) assert_true(HAS_LINE(wb_error(), "11", "arrays", "names", "8",
                                            "parameters"));
        assert_int_equal(status, with < 2 ? 0 : WB_ERROR_FORMAT);
        for (int i = 0; !status && i < 8; i++) {
            static const struct { const char *name; int dims[2]; float second; } all[] = {
                {"layers.0.bias", {3}, 7}, {"layers.0.weight", {3, 2}, 3},
                {"layers.1.bias", {3}, 10}, {"layers.1.scale", {3}, 13}, {"layers.2.bias", {8}, 56},
                {"layers.2.weight_hidden", {8, 2}, 47}, {"layers.2.weight_input", {8, 3}, 23},
                {"layers.3.weight", {5, 4}, 64}};
            float second;
            wb__entry *e = &t.entries[i];
            void *block;
            memcpy(&second, (const char *)wb__entry_values(e, &block) + 4, 4);
            wb__free(block);
            assert_string_equal(e->name, all[i].name);
            assert_true(e->dims[0] == all[i].dims[0] &&
                        (e->ndim == 1 || e->dims[1] == all[i].dims[1]));
            assert_true(second == all[i].second);
        }
        wb__table_free(&t);
        bm_free(&m);
    }
}

int main(void)
{
    if (!reads_bson()) return 0;
    return run_all_cases();
}
