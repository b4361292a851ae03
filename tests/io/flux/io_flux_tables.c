/* Flux's BSON files as tables: the names of their arrays, kinds of kernels, lists of parameters. */
#include "test.h"

#include <unistd.h>

#include "base/files/file.h"
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
TEST_IN_SCOPE(flipped_kernels)
{
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

/* ---- files of arrays ------------------------------------------------------------------------- */

static const char *made_file(bson_maker *m)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/weber-%ld-arrays.bson", (long)getpid());
    bm_finish(m);
    assert_int_equal(wb__file_write(path, m->bytes, (int64_t)m->n), 0);
    bm_free(m);
    return path;
}

static bson_maker empty_file(void)
{
    bson_maker m = {0};
    bm_document(&m);
    return m;
}

/* wb_load_tensors and wb_load_tree take no key, so they advise none: without a variable that is
 * meant before the others, all are read. */
TEST_IN_SCOPE(several_variables)
{
    bson_maker m = empty_file();
    bm_key(&m, "x"), bm_array(&m, 2, 3, 2);
    bm_key(&m, "epoch"), bm_integer(&m, 7);
    bm_key(&m, "net"), bm_document(&m);
    bm_key(&m, "weight"), bm_array(&m, 1, 4), bm_close(&m);
    const char *path = made_file(&m);
    wb_tree *t = wb_load_tensors(path);
    if (!t) fail_msg("%s", wb_error());
    assert_string_equal(wb_describe(wb_get(t, "x")), "[2,3] f32");
    assert_string_equal(wb_describe(wb_get(t, "net.weight")), "[4] f32");
    assert_null(wb_get(t, "epoch"));
    REFUSED(wb_load_tree(path), WB_ERROR_FORMAT, path, "2 tensors", "wb_load_tensors reads them");
    assert_null(strstr(wb_error(), "key"));
    FAILS(wb_load_state(path, wb_Dense(2, 3)), WB_ERROR_FORMAT, ".key", "x, epoch, net");
    REFUSED(wb_load(path), WB_ERROR_FORMAT, ".key", "x, epoch, net");
    unlink(path);
}

TEST_IN_SCOPE(one_array)
{
    bson_maker m = empty_file();
    bm_key(&m, "x"), bm_array(&m, 2, 3, 2);
    const char *path = made_file(&m);
    wb_tree *t = wb_load_tensors(path);
    if (!t) fail_msg("%s", wb_error());
    assert_string_equal(wb_describe(wb_get(t, "x")), "[2,3] f32");
    REFUSED(wb_load_tree(path), WB_ERROR_FORMAT, path, "1 tensor,", "wb_load_tensors", "\"x\"");
    assert_null(strstr(wb_error(), "model"));
    REFUSED(wb_load(path), WB_ERROR_FORMAT, "\"x\" is an Array{Float32,2}", "wb_load_tensors");
    unlink(path);
}

TEST_IN_SCOPE(no_array)
{
    bson_maker m = empty_file();
    bm_key(&m, "m"), bm_real(&m, 2000.68);
    bm_key(&m, "text"), bm_text(&m, "a");
    const char *path = made_file(&m);
    REFUSED(wb_load_tensors(path), WB_ERROR_FORMAT, path, "no array", "m, text", "weber show");
    assert_null(strstr(wb_error(), "key"));
    REFUSED(wb_load_tree(path), WB_ERROR_FORMAT, path, "no array", "m, text");
    REFUSED(wb_load(path), WB_ERROR_FORMAT, path, "no layer", "m, text");
    assert_null(strstr(wb_error(), "key"));
    FAILS(wb_load_state(path, wb_Dense(2, 3)), WB_ERROR_FORMAT, path, "no array");
    unlink(path);
}

/* Int16, UInt16 and UInt32 are widened; nine axes are reported as such. */
TEST_IN_SCOPE(narrow_integers)
{
    bson_maker m = empty_file();
    const int64_t four[] = {2, 2}, nine[] = {1, 1, 1, 1, 1, 1, 1, 1, 2};
    bm_key(&m, "i"), bm_bytes(&m, "Core.Int16", 2, four, (int16_t[]){-1, 2, 3, -32768}, 8);
    bm_key(&m, "u"), bm_bytes(&m, "Core.UInt16", 1, (int64_t[]){2}, (uint16_t[]){65535, 1}, 4);
    bm_key(&m, "v"), bm_bytes(&m, "Core.UInt32", 1, (int64_t[]){1}, (uint32_t[]){4294967295}, 4);
    const char *path = made_file(&m);
    wb_tree *t = wb_load_tensors(path);
    if (!t) fail_msg("%s", wb_error());
    assert_string_equal(wb_describe(wb_get(t, "i")), "[2,2] i32");
    assert_true(wb_at(wb_get(t, "i"), 0, 0) == -1 && wb_at(wb_get(t, "i"), 0, 1) == 2 &&
                wb_at(wb_get(t, "i"), 1, 1) == -32768);
    assert_string_equal(wb_describe(wb_get(t, "u")), "[2] i32");
    assert_true(wb_at(wb_get(t, "u"), 0) == 65535 && wb_at(wb_get(t, "u"), 1) == 1);
    assert_string_equal(wb_describe(wb_get(t, "v")), "[1] i64");
    assert_true(wb_at(wb_get(t, "v"), 0) == 4294967295);
    m = empty_file();
    bm_key(&m, "x"), bm_bytes(&m, "Core.Float32", 9, nine, "abcdefgh", 8);
    REFUSED(wb_load_tensors(made_file(&m)), WB_ERROR_SHAPE, "\"x\": Float32 with 9 axes");
    unlink(path);
}

/* One array, named 50 times: each name becomes a tensor, which counts. */
TEST_IN_SCOPE(an_array_that_is_named_again)
{
    bson_maker m = made();
    bm_list(&m);
    for (int i = 0; i < 50; i++) bm_ref(&m, 1);
    bm_close(&m);
    bm_key(&m, "_backrefs");
    bm_list(&m), bm_array(&m, 1, 1000);
    const char *path = made_file(&m);
    wb_set_unpack_limit(100000);
    REFUSED(wb_load_tensors(path), WB_ERROR_FORMAT, path, "wb_set_unpack_limit");
    wb_set_unpack_limit(200000);
    wb_tree *t = wb_load_tensors(path);
    if (!t) fail_msg("%s", wb_error());
    assert_true(wb_at(wb_get(t, "49"), 999) == 999);
    wb_set_unpack_limit((int64_t)4 << 30);
    unlink(path);
}

int main(void)
{
    if (!reads_bson()) return 0;
    return run_all_cases();
}
