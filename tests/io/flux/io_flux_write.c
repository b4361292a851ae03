/* Files that wb_save writes for Flux, read by bson_reference.py, which shares no code with the
 * library, applies BSON.jl's rules and has the structs of Flux's versions.  io_flux_travel.c
 * tests every layer. */
#include "flux_files.h"

#include "far_device.h"
#include "io/flux/fields.h"
#include "io/bson/julia.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- fields and values ----------------------------------------------------------------------- */

/* Fills a tensor with 0, 1, 2, ..., so that the order of its elements in a file is known. */
static int count_up(wb_tensor *x, const char *path, void *ctx)
{
    return wb_assign(x, wb_reshape_array(wb_arange(wb_size(x), WB_F32), wb_ndim(x), x->dims));
}

TEST(fields_and_values)
{
    wb_layer *m = wb_Chain(
        wb_Conv(1, 1, {2, 1}, wb_relu, .flip = true, .pad = {1, 2, 3, 4}, .stride = {5, 6}),
        wb_Flatten(), wb_Dense(3, 2, wb_sigmoid, .bias = false), wb_softmax);
    assert_int_equal(wb_each_tensor(m, count_up, NULL), 0);
    must_save("order.bson", m, NULL, true);
    /* An array's line ends with the first digits of the sha256 of its bytes: of the Float32 numbers
     * 0, 1; of 0; and of 0, 3, 1, 4, 2, 5, the columns of a matrix. */
    const char *structs = "model Flux.Chain\n"
                          "model.layers.0 Flux.Conv\n"
                          "model.layers.0.σ function NNlib.relu\n"
                          "model.layers.0.weight Array{Float32,4} 1x2x1x1 22b6f43bd8d27738\n"
                          "model.layers.0.bias Array{Float32,1} 1 df3f619804a92fdb\n"
                          "model.layers.0.stride (6, 5)\n"
                          "model.layers.0.pad (3, 4, 1, 2)\n"
                          "model.layers.0.dilation (1, 1)\n"
                          "model.layers.0.groups 1\n"
                          "model.layers.1 function MLUtils.flatten\n"
                          "model.layers.2 Flux.Dense\n"
                          "model.layers.2.weight Array{Float32,2} 2x3 0c9d0bb54e4f5a01\n"
                          "model.layers.2.bias false\n"
                          "model.layers.2.σ function NNlib.σ\n"
                          "model.layers.3 function NNlib.softmax\n";
    assert_string_equal(reference("list", in_folder("order.bson"), "1610", NULL), structs);
    must_save("order.bson", m, "0.14", false);
    const char *values = "model.layers.0.σ ()\n"
                         "model.layers.0.weight Array{Float32,4} 1x2x1x1 22b6f43bd8d27738\n"
                         "model.layers.0.bias Array{Float32,1} 1 df3f619804a92fdb\n"
                         "model.layers.0.stride (6, 5)\n"
                         "model.layers.0.pad (3, 4, 1, 2)\n"
                         "model.layers.0.dilation (1, 1)\n"
                         "model.layers.0.groups 1\n"
                         "model.layers.1 ()\n"
                         "model.layers.2.weight Array{Float32,2} 2x3 0c9d0bb54e4f5a01\n"
                         "model.layers.2.bias false\n"
                         "model.layers.2.σ ()\n"
                         "model.layers.3 ()\n";
    assert_string_equal(reference("list", in_folder("order.bson"), "1499", "model"), values);
    assert_non_null(
        strstr(reference("list", in_folder("order.bson"), "1499", "weber"), "\"layer\":\"Chain\""));
}

static wb_tensor *full(double value, wb_dtype dtype, int ndim, int64_t n)
{
    return wb_full_array(value, dtype, ndim, ndim == 1 ? &n : (int64_t[]){2, n});
}

TEST(trees_and_dtypes)
{
    static const char *const names[] = {"none", "f32", "bytes", "picture", "i8", "i32", "i64",
                                        "truth", "half", "scalar", "nil", "inner"};
    void *values[] = {WB_NONE, wb_ones(2, 3), full(7, WB_U8, 1, 5), full(7, WB_U8, 2, 5),
                      full(-3, WB_I8, 1, 2), full(-3, WB_I32, 1, 2), full(-3, WB_I64, 1, 2),
                      full(1, WB_BOOL, 1, 3), full(0.5, WB_F16, 1, 2), wb_scalar(2), wb_zeros(0, 4),
                      wb_tuple(wb_ones(1), wb_Dense(1, 1))};
    wb_tree *t = wb_named_tuple(WB__COUNT(names), names, values);
    if (!t) fail_msg("%s", wb_error());
    for (int structs = 0; structs < 2; structs++) {
        must_save("tree.bson", t, NULL, structs);
        const char *listed = reference("list", in_folder("tree.bson"), "1610", "model");
        const char *lines[] = {"model.none nothing\n", "model.f32 Array{Float32,2} 3x2 ",
                               "model.bytes Array{UInt8,1} 5 ", "model.picture Array{UInt8,2} 5x2 ",
                               "model.i8 Array{Int8,1} 2 ", "model.i32 Array{Int32,1} 2 ",
                               "model.i64 Array{Int64,1} 2 ", "model.truth Array{Bool,1} 3 ",
                               "model.half Array{Float16,1} 2 ", "model.scalar Array{Float32,0}  ",
                               "model.nil Array{Float32,2} 4x0 ",
                               "model.inner.0 Array{Float32,1} 1 ",
                               "model.inner.1.weight Array{Float32,2} 1x1 "};
        for (size_t i = 0; i < WB__COUNT(lines); i++)
            if (!strstr(listed, lines[i])) fail_msg("\"%s\" is not in\n%s", lines[i], listed);
        assert_true(structs == (strstr(listed, "model.inner.1 Flux.Dense\n") != NULL));
    }
    wb_layer *bf16 = wb_Chain(wb_Dense(2, 2), wb_Dense(2, 2, .dtype = WB_BF16),
                              wb_BatchNorm(2, .dtype = WB_BF16));
    FAILS(save("bf16.bson", bf16, NULL, false), WB_ERROR_ARGUMENT, "wb_to", ".safetensors");
    assert_true(HAS_LINE(wb_error(), "\"layers.1.weight\"", "[2,2] bf16"));
    assert_true(HAS_LINE(wb_error(), "\"layers.1.bias\"", "[2] bf16"));
    assert_int_not_equal(access(in_folder("bf16.bson"), F_OK), 0);
}

/* A tied tensor is one array in the file.  Only a matrix that a Dense and an Embedding share is
 * written twice, since Flux has it by columns in one and by rows in the other. */
TEST(ties)
{
    wb_layer *shared = wb_Dense(4, 4),
             *m = wb_Chain(wb_Embedding(4, 4), shared, wb_Dense(4, 4), shared);
    assert_int_equal(wb_each_tensor(m, randomise, NULL), 0);
    assert_int_equal(wb_tie(m, "layers.2.bias", "layers.1.bias"), 0);
    assert_int_equal(wb_tie(m, "layers.1.weight", "layers.0.weight"), 0);
    assert_int_equal(wb_save(in_folder("ties.safetensors"), m), 0);
    for (int structs = 0; structs < 2; structs++) {
        const char *name = structs ? "ties-structs.bson" : "ties-state.bson";
        must_save(name, m, NULL, structs);
        reference("compare", in_folder(name), "1610", in_folder("ties.safetensors"));
        int64_t bytes;
        char *text = wb__file_read(in_folder(name), &bytes);
        int references = 0;
        for (int64_t i = 0; i + 8 <= bytes; i++) references += !memcmp(text + i, "backref", 8);
        wb__free(text);
        assert_int_equal(references, 6);
    }
    reference("loadmodel", in_folder("ties-structs.bson"), in_folder("ties-state.bson"), "1610");
}

/* Flux's cells have an initial state until version 0.14; saving one for a later version fails. */
TEST(initial_states)
{
    needs_reading();
    wb_layer *models[] = {wb_LSTM(4, 3, .initial_state = true), wb_GRU(4, 3, .initial_state = true),
                          wb_RNNCell(4, 3, .initial_state = true)};
    for (size_t i = 0; i < WB__COUNT(models); i++) {
        wb_layer *m = models[i];
        if (!m || wb_each_tensor(m, randomise, NULL)) fail_msg("%s", wb_error());
        const char *before[] = {"0.9", "0.11", "0.12", "0.13", "0.14"};
        for (size_t k = 0; k < WB__COUNT(before); k++) {
            must_save("initial.bson", m, before[k], true);
            wb_each_tensor(m, same_bits_in, loaded("initial.bson"));
        }
        must_save("initial.bson", m, "0.14", false);
        same_model("initial.bson", m);
        for (int structs = 0; structs < 2; structs++) {
            assert_int_equal(save("initial.bson", m, "0.15", structs), WB_ERROR_ARGUMENT);
            FAILED(WB_ERROR_ARGUMENT, "initial state", "0.15");
        }
    }
    must_save("initial.bson", models[0], "0.14", true);
    const char *listed = reference("list", in_folder("initial.bson"), "1499", NULL);
    const char *lines[] = {"model Flux.Recur\n", "model.cell.state0.0 Array{Float32,2} 3x1 ",
                           "model.cell.state0.1 Array{Float32,2} 3x1 ",
                           "model.state.1 Array{Float32,2} 3x1 "};
    for (size_t i = 0; i < WB__COUNT(lines); i++)
        if (!strstr(listed, lines[i])) fail_msg("\"%s\" is not in\n%s", lines[i], listed);
}

/* Flux's layers have one layer and one direction. */
TEST(deep_layers)
{
    needs_reading();
    wb_layer *models[] = {wb_LSTM(4, 3, .layers = 2), wb_GRU(4, 3, .bidirectional = true)};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(save("deep.bson", models[i / 2], NULL, i % 2), WB_ERROR_ARGUMENT);
        FAILED(WB_ERROR_ARGUMENT, i < 2 ? "LSTM" : "GRU", "layers", "directions");
    }
}

/* bson_reference.py refuses files with one changed name and truncated files. */
TEST(the_reader_is_strict)
{
    wb_layer *m = wb_Chain(wb_Dense(3, 2, wb_relu), wb_BatchNorm(2));
    must_save("strict.bson", m, NULL, true);
    int64_t n;
    char *text = wb__file_read(in_folder("strict.bson"), &n);
    assert_non_null(text);
    reference("list", in_folder("strict.bson"), "1610", NULL);
    static const struct { const char *from, *to; } changes[] = {
        {"#relu", "#relv"}, {"Float32", "Float64"}, {"BatchNorm", "LayerNorm"}, {"Tuple", "Tuplf"},
        {"datatype", "datatypf"}, {"struct", "strudt"}, {"params", "parbms"}, {"array", "arrby"}};
    for (size_t i = 0; i < WB__COUNT(changes); i++) {
        char *copy = wb__alloc((size_t)n);
        memcpy(copy, text, (size_t)n);
        for (char *at = copy; at + 16 < copy + n; at++)
            if (!memcmp(at, changes[i].from, strlen(changes[i].from) + 1)) {
                memcpy(at, changes[i].to, strlen(changes[i].to));
                break;
            }
        assert_int_not_equal(memcmp(copy, text, (size_t)n), 0);
        assert_int_equal(wb__file_write(in_folder("broken.bson"), copy, n), 0);
        wb__free(copy);
        refused_by_reference("broken.bson", "1610");
    }
    assert_int_equal(wb__file_write(in_folder("broken.bson"), text, n - 1), 0);
    refused_by_reference("broken.bson", "1610");
    refused_by_reference("strict.bson", "1199");            /* BatchNorm has 8 fields there */
    wb__free(text);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static wb_tensor *own(wb_tensor *x) { return wb_neg(x); }
static wb_tensor *join(wb_tensor *x, wb_tensor *y) { return wb_add(x, y); }

TEST(refusals)
{
    wb_name_function("own", own);
    wb_name_connection("join", join);
    wb_layer *m = wb_Chain(
        wb_Dense(2, 2, own), wb_Dense(2, 2, wb_softmax), wb_LSTM(2, 2, .last = true),
        wb_Chain(wb_MultiHeadAttention(2, 1, .causal = true)), wb_Dropout(0.1, .axes = WB_INTS(0)),
        wb_SkipConnection(wb_Dense(2, 2), join), own);
    if (!m) fail_msg("%s", wb_error());
    FAILS(save("refused.bson", m, "0.16", true), WB_ERROR_ARGUMENT, "Flux", "0.16");
    assert_true(HAS_LINE(wb_error(), "\"layers.0\"", "activation", "own"));
    assert_true(HAS_LINE(wb_error(), "\"layers.1\"", "softmax", "activation"));
    assert_true(HAS_LINE(wb_error(), "\"layers.2\"", "LSTM", ".last"));
    assert_true(HAS_LINE(wb_error(), "\"layers.3.layers.0\"", "MultiHeadAttention", "causal",
                         "mask"));
    assert_true(HAS_LINE(wb_error(), "\"layers.4\"", "Dropout", "axis", "0"));
    assert_true(HAS_LINE(wb_error(), "\"layers.5\"", "connection", "join"));
    assert_true(HAS_LINE(wb_error(), "\"layers.6\"", "function", "own"));
    assert_true(HAS_FACTS(wb_error(), ".safetensors"));
    must_save("refused.bson", m, "0.16", false);        /* a state contains no functions */

    m = wb_Chain(wb_Recurrence(wb_GRUCell(2, 2)), wb_WeightNorm(wb_Dense(2, 2)));
    for (int structs = 0; structs < 2; structs++) {
        assert_int_equal(save("no.bson", m, "0.16", structs), WB_ERROR_ARGUMENT);
        assert_true(HAS_LINE(wb_error(), "\"layers.0\"", "Recurrence"));
        assert_true(HAS_LINE(wb_error(), "\"layers.1\"", "WeightNorm"));
    }

    wb_layer *d = wb_Dense(1, 1);
    const char *wrong[] = {"0.8", "0.17", "1.0", "0.16.", "0.16.x", "16", "", "0.16.100", "0.-9"};
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        FAILS(save("no.bson", d, wrong[i], true), WB_ERROR_ARGUMENT, "\"0.9\"", "\"0.16\"");
    }
    FAILS(save("no.bson", d, "0.12", false), WB_ERROR_ARGUMENT, "Flux", "0.12", "loadmodel!");
    const char *keys[] = {"_backrefs", "weber", "\xff"};
    for (size_t i = 0; i < WB__COUNT(keys); i++) {
        wb_save_options o = WB_OPTIONS_OF(wb_save_options, .key = keys[i]);
        assert_int_equal(wb__flux_save(in_folder("no.bson"), d, &o), WB_ERROR_ARGUMENT);
    }
    assert_int_not_equal(access(in_folder("no.bson"), F_OK), 0);
    wb_save_options o = WB_OPTIONS_OF(wb_save_options, .key = "größe");
    assert_int_equal(wb__flux_save(in_folder("key.bson"), d, &o), 0);
    assert_non_null(strstr(reference("list", in_folder("key.bson"), "1610", NULL), "größe.weight"));
    FAILS(save("no.bson", wb_Chain(wb_named("\xfftext", wb_Dense(1, 1))), NULL, true),
          WB_ERROR_ARGUMENT, "UTF-8");
    o.key = NULL;
    assert_int_not_equal(wb__flux_save(WB_TEST_NOWHERE "/no.bson", d, &o), 0);
}

/* Layers and options that Flux has not, or only in later versions. */
TEST(layers_of_other_versions)
{
    wb_layer *m = wb_Chain(
        wb_RMSNorm({2}), wb_AdaptiveMaxPool({2, 2}), wb_Upsample(.scale = {2}, .mode = 1),
        wb_Upsample(.scale = {2, 2}, .mode = 1, .align_corners = false),
        wb_Conv(2, 2, {3}, .pad = {1}, .pad_mode = WB_PAD_REFLECT),
        wb_Embedding(3, 2, .padding_index = 1), wb_GRUv3(2, 2, .layers = 2));
    if (!m) fail_msg("%s", wb_error());
    FAILS(save("refused.bson", m, "0.16", true), WB_ERROR_ARGUMENT, "Flux", "0.16", ".safetensors");
    assert_true(HAS_LINE(wb_error(), "\"layers.0\"", "RMSNorm", "no"));
    assert_true(HAS_LINE(wb_error(), "\"layers.1\"", "AdaptiveMaxPool", ".fixed"));
    assert_true(HAS_LINE(wb_error(), "\"layers.2\"", "Upsample", "{2, 2}"));
    assert_true(HAS_LINE(wb_error(), "\"layers.3\"", "Upsample", ".align_corners"));
    assert_true(HAS_LINE(wb_error(), "\"layers.4\"", "CrossCor", "pad_mode", "0.16.12"));
    assert_true(HAS_LINE(wb_error(), "\"layers.5\"", "Embedding", "padding_idx", "0.16.11"));
    assert_true(HAS_LINE(wb_error(), "\"layers.6\"", "GRUv3", "layers"));
    static const struct { const char *version, *since; int i; } old[] = {
        {"0.11", "0.12", 0}, {"0.11", "0.12.0", 1}, {"0.12", "0.13", 2}, {"0.13.3", "0.13.4", 3},
        {"0.12.6", "0.12.7", 4}, {"0.13.14", "0.13.15", 5}, {"0.16.0", "0.16.1", 6},
        {"0.11", "0.12", 7}, {"0.12.8", "0.12.9", 8}};
    wb_layer *layers[] = {
        wb_GroupNorm(4, 2), wb_PixelShuffle(2), wb_Scale({2}, wb_relu),
        wb_PairwiseFusion(wb_add, wb_Dense(1, 1), wb_Dense(1, 1)), wb_GRUv3(1, 1),
        wb_EmbeddingBag(2, 2), wb_LSTM(1, 1, .return_state = true), wb_InstanceNorm(4),
        wb_Upsample(.scale = {2, 2, 2}, .mode = WB_UPSAMPLE_LINEAR)};
    for (size_t i = 0; i < WB__COUNT(old); i++) {
        assert_int_equal(save("refused.bson", layers[i], old[i].version, true), WB_ERROR_ARGUMENT);
        FAILED(WB_ERROR_ARGUMENT, old[i].since);
    }
    /* A state has values only, and no index of the padding. */
    must_save("refused.bson", wb_Embedding(3, 2, .padding_index = 1), NULL, false);
    assert_int_equal(save("refused.bson", wb_RMSNorm({2}), NULL, false), WB_ERROR_ARGUMENT);
    FAILED(WB_ERROR_ARGUMENT, "RMSNorm", ".safetensors");
}

/* A tensor of 2 GiB is refused before it is read: here, its memory is not readable. */
TEST(too_large)
{
    const int64_t n = (int64_t)1 << 29;
    void *at = mmap(NULL, (size_t)n * 4, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                    0);
    if (at == MAP_FAILED) {
        printf("SKIP: no 2 GiB of addresses\n");
        skip();
    }
    wb_scope *scope = wb_scope_open();
    wb_tensor *x = wb_borrow(at, WB_F32, 1, &n, NULL, NULL);
    if (!x) fail_msg("%s", wb_error());
    assert_int_equal(save("large.bson", wb_tuple(x), NULL, false), WB_ERROR_ARGUMENT);
    FAILED(WB_ERROR_ARGUMENT, "BSON", "2", "GiB", ".safetensors");
    assert_int_not_equal(access(in_folder("large.bson"), F_OK), 0);
    wb_scope_close(scope);
    munmap(at, (size_t)n * 4);
}

TEST(nested)
{
    wb_layer *m = wb_Dense(1, 1);
    for (int i = 0; i < 49; i++) m = wb_Chain(m);
    must_save("nested.bson", m, NULL, true);
    must_save("nested.bson", m, NULL, false);
    m = wb_Dense(1, 1);
    for (int i = 0; i < 110; i++) m = wb_SkipConnection(m, wb_add);
    FAILS(save("nested.bson", m, NULL, true), WB_ERROR_ARGUMENT, "100");
}

/* ---- devices and faults ---------------------------------------------------------------------- */

static void same_file(const char *a, const char *b)
{
    int64_t n, m;
    char *x = wb__file_read(in_folder(a), &n), *y = wb__file_read(in_folder(b), &m);
    if (!x || !y) fail_msg("%s", wb_error());
    if (n != m || memcmp(x, y, (size_t)n)) fail_msg("%s and %s differ", a, b);
    wb__free(x);
    wb__free(y);
}

/* Tall and wide matrices, which are copied from the device in several parts of 1 MiB. */
TEST(from_any_device)
{
    wb_scope *scope = wb_scope_open();
    wb_layer *m = wb_Chain(wb_Dense(3, 400001), wb_Dense(400001, 3),
                           wb_Conv(4, 4, {3}, .groups = 2), wb_Dense(700, 900), wb_LSTM(2, 2));
    if (!m || wb_each_tensor(m, randomise, NULL)) fail_msg("%s", wb_error());
    wb_layer *far = wb_to(m, far_device());
    if (!far) fail_msg("%s", wb_error());
    must_save("here.bson", m, NULL, false);
    must_save("far.bson", far, NULL, false);
    same_file("here.bson", "far.bson");
    must_save("here.bson", m, "0.14", true);
    must_save("far.bson", far, "0.14", true);
    same_file("here.bson", "far.bson");
    assert_int_equal(wb_save(in_folder("here.safetensors"), m), 0);
    wb_scope_close(scope);
    reference("compare", in_folder("here.bson"), "1499", in_folder("here.safetensors"));
}

static void every_fault(const char *what, void (*fail_at)(int64_t), wb_layer *m, bool structs)
{
    must_save("whole.bson", m, NULL, structs);
    int64_t n = 1;
    for (;; n++) {
        if (wb__file_write(in_folder("old.bson"), "old", 3)) fail_msg("%s", wb_error());
        fail_at(n);
        int status = save("old.bson", m, NULL, structs);
        fail_at(0);
        int64_t bytes;
        char *text = wb__file_read(in_folder("old.bson"), &bytes);
        assert_non_null(text);
        bool old = bytes == 3;
        wb__free(text);
        if (!status) break;
        if (!wb_error()[0]) fail_msg("%s %lld failed without a message", what, (long long)n);
        /* Where the new file is there, only the folder's fsync failed. */
        if (!old) same_file("old.bson", "whole.bson");
    }
    same_file("old.bson", "whole.bson");
    assert_true(n > 5);
    struct stat s;
    assert_int_not_equal(stat(in_folder(".old.bson"), &s), 0);
}

TEST_IN_SCOPE(faults)
{
    wb_layer *shared = wb_Dense(4, 4, wb_relu);
    wb_layer *m = wb_Chain(wb_Conv(4, 4, {2}, .groups = 2), wb_BatchNorm(4), shared, shared,
                           wb_LSTM(4, 4));
    wb_layer *far = wb_to(m, far_device());
    if (!m || !far) fail_msg("%s", wb_error());
    for (int structs = 0; structs < 2; structs++) {
        every_fault("allocation", wb__alloc_fail_at, m, structs);
        every_fault("file call", wb__io_fail_at, m, structs);
        every_fault("allocation", wb__alloc_fail_at, far, structs);
        every_fault("call of the device", far_fail_at, far, structs);
    }
}

/* ---- the registry ---------------------------------------------------------------------------- */

TEST(layouts)
{
    assert_int_equal(wb__flux_struct_of("Conv", 1100)->n, 6);
    assert_int_equal(wb__flux_struct_of("Conv", 1610)->n, 7);
    assert_string_equal(wb__flux_struct_by_count("Conv", 8)->fields[7].name, "pad_mode");
    assert_int_equal(wb__flux_field_at(wb__flux_struct_by_count("BatchNorm", 8), "active"), 7);
    assert_int_equal(wb__flux_field_at(wb__flux_struct_by_count("BatchNorm", 11), "chs"), 10);
    assert_int_equal(wb__flux_field_at(wb__flux_struct_of("Dense", 900), "stride"), -1);
    assert_null(wb__flux_struct_of("Recur", 1500));
    assert_null(wb__flux_struct_of("Embedding", 1100));
    assert_null(wb__flux_struct_by_count("Dense", 4));
    assert_true(wb__flux_struct_known("Maxout"));
    assert_false(wb__flux_struct_known("Attention"));
}

TEST(utf8)
{
    const char *good[] = {"", "a", "ä", "€", "😀", "\xf4\x8f\xbf\xbf"};
    const char *bad[] = {"\x80", "\xc0\x80", "\xc3", "\xe0\x9f\xbf", "\xed\xa0\x80",
                         "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82",
                         "a\xff"};
    for (size_t i = 0; i < WB__COUNT(good); i++) assert_true(wb__is_utf8(good[i]));
    for (size_t i = 0; i < WB__COUNT(bad); i++) assert_false(wb__is_utf8(bad[i]));
}

int main(void) { return run_cases(make_folder, remove_folder); }
