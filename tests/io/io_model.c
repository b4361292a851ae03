/* Models in files: every kind of layer is restored from its file alone; state is loaded into
 * existing models. */
#include "golden.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *file_name(void) { return test_file("model"); }

/* Saves and loads m; the copy prints the same text, and has equal tensors and an equal result. */
static wb_layer *round_trip(wb_layer *m, wb_tensor *x)
{
    if (!m) fail_msg("%s", wb_error());
    if (wb_save(file_name(), m)) fail_msg("%s", wb_error());
    wb_seed(5);
    wb_layer *l = wb_load(file_name());
    if (!l) fail_msg("%s", wb_error());
    unlink(file_name());
    assert_shown_alike(m, l);
    wb_each_tensor(m, same_bits_in, l);
    wb_each_tensor(l, same_bits_in, m);
    assert_int_equal(wb_parameter_count(m), wb_parameter_count(l));
    if (!x) return l;
    wb_tensor *y = wb_call(m, x), *z = wb_call(l, x);
    if (!y || !z) fail_msg("%s", wb_error());
    assert_memory_equal(wb_data(y), wb_data(z), (size_t)wb_size(y) * sizeof(float));
    return l;
}

static wb_tensor *doubled(wb_tensor *x) { return wb_add(x, x); }
static wb_tensor *beside(wb_tensor *x, wb_tensor *y) { return wb_concat(-1, x, y); }

TEST(every_kind)
{
    wb_tensor *flat = wb_randn(3, 4), *image = wb_randn(2, 4, 6, 6), *sequence = wb_randn(2, 3, 4);
    wb_name_connection("beside", beside);
    round_trip(wb_Dense(4, 2, wb_gelu, .bias = false), flat);
    round_trip(wb_Dense(4, 2, .dtype = WB_F64), NULL);
    round_trip(wb_Conv(4, 6, {3}, wb_relu, .stride = {2}, .pad = {1, 0}, .dilation = {1, 2},
                       .groups = 2),
               image);
    round_trip(wb_Conv(4, 6, {3, 2}, .same = true, .flip = true), image);
    round_trip(wb_Conv(4, 6, {3, 2}, .pad = {0, 1, 2, 0}), image);
    round_trip(wb_MaxPool({3}, .pad = {1}, .stride = {2}), image);
    round_trip(wb_MeanPool({2, 3}), image);
    round_trip(wb_GlobalMaxPool(), image);
    round_trip(wb_GlobalMeanPool(), image);
    round_trip(wb_Flatten(), image);
    round_trip(wb_testmode(wb_Dropout(0.3, .axes = WB_INTS(0, -1))), image);
    round_trip(wb_BatchNorm(4, wb_tanh, .eps = 1e-3, .momentum = 0), image);
    round_trip(wb_testmode(wb_BatchNorm(4, .affine = false)), image);
    round_trip(wb_BatchNorm(4, .track_stats = false), image);
    round_trip(wb_LayerNorm({6, 6}, wb_relu, .eps = 0.1), image);
    round_trip(wb_LayerNorm({4}, .affine = false), flat);
    round_trip(wb_Embedding(9, 4), wb_arange(9, WB_I32));
    round_trip(wb_MultiHeadAttention(4, 2, .causal = true, .bias = true), sequence);
    round_trip(wb_RNN(4, 3, wb_relu), sequence);
    round_trip(wb_LSTM(4, 3, .last = true), sequence);
    round_trip(wb_GRU(4, 3, .bias = false), sequence);
    round_trip(wb_GRU(4, 3, .layers = 2, .bidirectional = true, .hidden_bias = true), sequence);
    round_trip(wb_LSTM(4, 3, .layers = 3, .initial_state = true), sequence);
    round_trip(wb_GRUv3(4, 3), sequence);
    round_trip(wb_GRUv3Cell(4, 3), flat);
    round_trip(wb_RNNCell(4, 3), flat);
    round_trip(wb_LSTMCell(4, 3), flat);
    round_trip(wb_GRUCell(4, 3), flat);
    round_trip(wb_Recurrence(wb_LSTMCell(4, 3, .initial_state = true), .reverse = true), sequence);
    round_trip(wb_WeightNorm(wb_Dense(4, 3), .dim = 1), flat);
    round_trip(wb_WeightNorm(wb_Conv(4, 6, {3}, .groups = 2), .whole = true), image);
    wb_layer *cell = wb_WeightNorm(wb_GRUCell(4, 3, .dtype = WB_F32), "weight_hidden");
    round_trip(wb_Chain(wb_Recurrence(wb_WeightNorm(cell, "weight_input", .dim = -1), .last = true),
                        wb_WeightNorm(wb_Dense(3, 1))), sequence);
    round_trip(wb_WeightNorm(wb_Dense(4, 3, .dtype = WB_BF16)), NULL);
    round_trip(wb_Chain(wb_Dense(4, 4), wb_named("act", wb_layer_from_function(wb_softmax)),
                        wb_Flatten()),
               flat);
    round_trip(wb_SkipConnection(wb_Dense(4, 4), wb_mul), flat);
    round_trip(wb_SkipConnection(wb_Chain(wb_Dense(4, 4)), beside), flat);
    round_trip(wb_Parallel(wb_add, wb_Dense(4, 2), wb_named("b", wb_Dense(4, 2))), flat);
    round_trip(wb_function_layer("doubled", doubled), flat);
    assert_int_equal(wb_save(file_name(), wb_named("whole", wb_Dense(4, 2))), 0);
    assert_non_null(wb_get(wb_load(file_name()), "weight"));
    unlink(file_name());
}

static wb_tensor *to_half(wb_tensor *x, const char *path, void *ctx)
{
    return (void)path, (void)ctx, wb_astype(x, WB_F16);
}

TEST(ties_modes_and_dtypes)
{
    wb_layer *shared = wb_Dense(4, 4);
    wb_layer *m =
        wb_Chain(shared, wb_Dense(4, 4), shared, wb_trainmode(wb_Dropout(0.5)), wb_BatchNorm(4));
    wb_tie(m, "layers.1.weight", "layers.0.weight");
    wb_layer *l = round_trip(m, NULL);
    assert_ptr_equal(wb_get(l, "layers.0.weight"), wb_get(l, "layers.2.weight"));
    assert_ptr_equal(wb_get(l, "layers.0.weight"), wb_get(l, "layers.1.weight"));
    assert_ptr_equal(wb_get(l, "layers.0.bias"), wb_get(l, "layers.2.bias"));
    assert_ptr_not_equal(wb_get(l, "layers.0.bias"), wb_get(l, "layers.1.bias"));
    assert_int_equal(wb_layer_at(l, "layers.3")->mode, WB__MODE_TRAIN);
    assert_int_equal(wb_layer_at(l, "layers.4")->mode, WB__MODE_AUTO);
    wb_layer *half = round_trip(wb_fmap(to_half, m, NULL), NULL);
    assert_int_equal(wb_dtype_of(wb_get(half, "layers.0.weight")), WB_F16);
    assert_ptr_equal(wb_get(half, "layers.0.weight"), wb_get(half, "layers.1.weight"));
    assert_int_equal(wb_parameter_count(half), wb_parameter_count(m));
}

static wb_tensor *unknown(wb_tensor *x) { return wb_neg(x); }
static wb_tensor *unjoined(wb_tensor *y, wb_tensor *x) { return wb_sub(x, y); }

TEST(functions_by_name)
{
    wb_layer *inner = wb_Chain(wb_relu, unknown), *m = wb_Chain(wb_Dense(2, 2, unknown), wb_relu);
    FAILS(wb_save(file_name(), wb_Chain(m, wb_SkipConnection(inner, unjoined))), WB_ERROR_ARGUMENT,
          "save", "name");
    assert_true(HAS_LINE(wb_error(), "\"layers.0.layers.0\"", "Dense", "wb_name_function"));
    assert_true(HAS_LINE(wb_error(), "\"layers.1\"", "SkipConnection", "wb_name_connection"));
    assert_true(HAS_LINE(wb_error(), "\"layers.1.layers.layers.1\"", "Function",
                         "wb_name_function"));
    assert_int_equal(lines_of(wb_error()), 4);
    assert_int_equal(wb_save(file_name(), m), WB_ERROR_ARGUMENT);
    assert_int_not_equal(access(file_name(), F_OK), 0);
    FAILS(wb_name_function("relu", unknown), WB_ERROR_ARGUMENT, "name_function", "\"relu\"");
    assert_int_equal(wb_name_function("mine", unknown), 0);
    assert_int_equal(wb_name_function("mine", unknown), 0);
    round_trip(m, wb_randn(1, 2));
}

/* ---- descriptions that are wrong ------------------------------------------------------------- */

static void refused(const char *description, int code, const char *const *facts)
{
    wb__note note = {"weber", (char *)(uintptr_t)description};
    assert_int_equal(wb__st_save(NULL, file_name(), 0, NULL, 1, &note), 0);
    wb_clear_error();
    assert_null(wb_load(file_name()));
    if (!failed_with(code, facts)) fail_msg("%s: %s", description, wb_error());
    unlink(file_name());
}
#define REFUSED_MODEL(description, code, ...) refused(description, code, FACTS(__VA_ARGS__))

TEST(wrong_descriptions)
{
#define MODEL(m) "{\"version\":1,\"model\":" m "}"
    REFUSED_MODEL("x", WB_ERROR_FORMAT, "model", "description");
    REFUSED_MODEL("{}", WB_ERROR_FORMAT, "version", "0", "2");
    REFUSED_MODEL("{\"version\":9}", WB_ERROR_FORMAT, "version", "9", "2");
    REFUSED_MODEL(MODEL("{\"layer\":\"Magic\"}"), WB_ERROR_FORMAT, "layer", "\"Magic\"");
    REFUSED_MODEL(MODEL("{\"tree\":\"tuple\"}"), WB_ERROR_FORMAT, "layer", "tree", "wb_load_tree");
    REFUSED_MODEL(MODEL("3"), WB_ERROR_FORMAT, "layer");
    REFUSED_MODEL(MODEL("{\"layer\":\"Dense\",\"options\":{\"in\":2}}"), WB_ERROR_ARGUMENT, "Dense",
                  "sizes", "2", "0");
    REFUSED_MODEL(MODEL("{\"layer\":\"Dense\",\"options\":{\"in\":\"2\"}}"), WB_ERROR_FORMAT,
                  "option", "\"in\"", "Dense");
    REFUSED_MODEL(MODEL("{\"layer\":\"Dense\",\"options\":{\"width\":2}}"), WB_ERROR_FORMAT,
                  "Dense", "option", "\"width\"");
    REFUSED_MODEL(MODEL("{\"layer\":\"Dense\",\"options\":[]}"), WB_ERROR_FORMAT, "option",
                  "options", "Dense");
    REFUSED_MODEL(MODEL("{\"layer\":\"Conv\",\"options\":{\"kernel\":[\"1\"]}}"), WB_ERROR_FORMAT,
                  "option", "\"kernel\"", "Conv");
    REFUSED_MODEL(MODEL("{\"layer\":\"Conv\",\"options\":{\"kernel\":{\"a\":1,\"b\":1}}}"),
                  WB_ERROR_FORMAT, "option", "\"kernel\"", "Conv");
    REFUSED_MODEL(MODEL("{\"layer\":\"Dropout\",\"options\":{\"p\":2}}"), WB_ERROR_ARGUMENT, "p",
                  "2");
    REFUSED_MODEL(MODEL("{\"layer\":\"Dropout\",\"options\":{\"p\":0,\"axes\":[99]}}"),
                  WB_ERROR_ARGUMENT, "Dropout", ".axes", "99");
    REFUSED_MODEL(MODEL("{\"layer\":\"Dense\",\"options\":{\"dtype\":\"f99\"}}"), WB_ERROR_FORMAT,
                  "option", "\"dtype\"", "Dense");
    REFUSED_MODEL(MODEL("{\"layer\":\"Function\",\"options\":{\"f\":\"nobody\"}}"), WB_ERROR_FORMAT,
                  "function", "\"nobody\"", "name", "wb_name_function");
    REFUSED_MODEL(MODEL("{\"layer\":\"Function\"}"), WB_ERROR_ARGUMENT, "function");
    REFUSED_MODEL(MODEL("{\"layer\":\"Parallel\",\"options\":{\"connection\":\"nobody\"}}"),
                  WB_ERROR_FORMAT, "connection", "\"nobody\"");
    REFUSED_MODEL(MODEL("{\"layer\":\"Chain\"}"), WB_ERROR_FORMAT, "Chain", "parts");
    REFUSED_MODEL(
        MODEL("{\"layer\":\"Chain\",\"parts\":{\"a\":{\"name\":\"0\",\"layer\":\"Flatten\"}}}"),
        WB_ERROR_FORMAT, "Chain", "parts");
    REFUSED_MODEL(MODEL("{\"layer\":\"Chain\",\"parts\":[{\"layer\":\"Flatten\"}]}"),
                  WB_ERROR_FORMAT, "part", "Chain", "name");
    REFUSED_MODEL(MODEL("{\"layer\":\"Flatten\",\"mode\":\"odd\"}"), WB_ERROR_FORMAT, "mode",
                  "\"odd\"");
    REFUSED_MODEL(MODEL("{\"layer\":\"Dense\",\"options\":{\"in\":1,\"out\":1}}"), WB_ERROR_FORMAT,
                  "\"weight\"", "[1,1] f32");
    REFUSED_MODEL("{\"version\":1,\"model\":{\"layer\":\"Flatten\"},\"ties\":{\"a\":\"b\"}}",
                  WB_ERROR_ARGUMENT, "tie", "\"a\"");
    REFUSED_MODEL("{\"version\":1,\"model\":{\"layer\":\"Flatten\"},\"ties\":[\"a\"]}",
                  WB_ERROR_FORMAT, "model", "ties");
    char deep[20000] = "{\"version\":1,\"model\":";
    for (int i = 0; i < 150; i++)
        strcat(deep,
               "{\"layer\":\"Chain\",\"parts\":[{\"name\":\"0\",\"layer\":\"Chain\",\"parts\":[");
    for (int i = 0; i < 150; i++) strcat(deep, "]}]}");
    strcat(deep, "}");
    wb__note note = {"weber", deep};
    assert_int_equal(wb__st_save(NULL, file_name(), 0, NULL, 1, &note), 0);
    assert_null(wb_load(file_name()));
    unlink(file_name());
    wb_layer *l = wb_Flatten();
    for (int i = 0; i < 110; i++) l = wb_SkipConnection(l, wb_add);
    FAILS(wb_save(file_name(), l), WB_ERROR_ARGUMENT, "save", "100");
}

/* Descriptions of version 1: a default was 0, 0 was -1e-300, and .affine was .no_affine. */
TEST(first_version)
{
    wb__note note = {"weber", (char *)(uintptr_t)MODEL(
        "{\"layer\":\"Chain\",\"parts\":[{\"name\":\"0\",\"layer\":\"BatchNorm\",\"options\":{"
        "\"channels\":4,\"eps\":0.0,\"no_affine\":true,\"no_track_stats\":true,"
        "\"momentum\":-1e-300}},{\"name\":\"1\",\"layer\":\"RMSNorm\",\"options\":{"
        "\"shape\":[4,0,0,0],\"no_affine\":true,\"eps\":0}}]}")};
    assert_int_equal(wb__st_save(NULL, file_name(), 0, NULL, 1, &note), 0);
    for (int i = 0; i < 2; i++) {               /* then as this version writes them */
        wb_layer *m = wb_load(file_name());
        MADE(m);
        const wb_BatchNorm_options *batch = wb_layer_at(m, "layers.0")->options;
        const wb_RMSNorm_options *rms = wb_layer_at(m, "layers.1")->options;
        assert_true(batch->eps == 1e-5 && batch->momentum == 0 && rms->eps == WB_DEFAULT &&
                    !rms->affine && !batch->affine && !batch->track_stats);
        assert_int_equal(wb_save(file_name(), m), 0);
    }
    unlink(file_name());
}

/* ---- state into a model ---------------------------------------------------------------------- */

TEST(state_into_models)
{
    const char *path = file_name();
    wb_layer *m = wb_Chain(wb_Dense(2, 3), wb_BatchNorm(3));
    wb_tree *t =
        wb_named_tuple(2, (const char *[]){"net", "scale"}, (void *[]){m, wb_variable(wb_ones(2))});
    assert_int_equal(wb_save(path, t), 0);
    REFUSED(wb_load(path), WB_ERROR_FORMAT, "tree", "wb_load_tree");
    wb_layer *n = wb_Chain(wb_Dense(2, 3), wb_BatchNorm(3));
    wb_tree *constants = wb_named_tuple(1, (const char *[]){"scale"}, (void *[]){wb_ones(2)});
    FAILS(wb_load_state(path, constants, .lenient = false, .prefix = ""), WB_ERROR_FORMAT,
          "\"scale\"", "[2] f32", "constant", "model");
    FAILS(wb_load_state(path, NULL), WB_ERROR_ARGUMENT, "load_state", "model");
    assert_int_equal(wb_load_state(path, n, .prefix = "net."), 0);
    wb_each_tensor(m, same_bits_in, n);

    wb_layer *o = wb_Chain(wb_Dense(2, 4), wb_BatchNorm(3, .track_stats = false), wb_Dense(1, 1));
    float before = (float)wb_at(wb_get(o, "layers.1.scale"), 0);
    assert_int_equal(wb_load_state(path, o, .prefix = "net."), WB_ERROR_FORMAT);
    const char *text = wb_error();
    assert_true(HAS_FACTS(text, path, "model"));
    assert_true(HAS_LINE(text, "\"layers.0.weight\"", "[4,2] f32", "model", "file", "[3,2] f32"));
    assert_true(HAS_LINE(text, "\"layers.0.bias\"", "[4] f32", "model", "file", "[3] f32"));
    assert_true(HAS_LINE(text, "\"layers.2.weight\"", "[1,1] f32", "file"));
    assert_true(HAS_LINE(text, "\"layers.2.bias\"", "[1] f32", "file"));
    assert_true(HAS_LINE(text, "\"net.layers.1.mean\"", "[3] f32", "model"));
    assert_true(HAS_LINE(text, "\"net.layers.1.var\"", "[3] f32", "model"));
    assert_true((float)wb_at(wb_get(o, "layers.1.scale"), 0) == before);
    assert_int_equal(wb_set(m, "layers.1.scale", wb_full_array(3, WB_F32, 1, (int64_t[]){3})), 0);
    assert_int_equal(wb_save(path, m), 0);
    assert_int_equal(wb_load_state(path, o, .lenient = true), 0);
    assert_true(wb_at(wb_get(o, "layers.1.scale"), 2) == 3);

    /* The file may have either name of a tie. */
    wb_layer *tied = wb_Chain(wb_Dense(2, 2), wb_Dense(2, 2));
    wb_tie(tied, "layers.1.weight", "layers.0.weight");
    wb__st_out out[] = {{"layers.1.weight", WB_F32, 2, (int64_t[]){2, 2}, 16,
                         (float[]){1, 2, 3, 4}, NULL},
                        {"layers.0.bias", WB_F32, 1, (int64_t[]){2}, 8, (float[]){5, 6}, NULL},
                        {"layers.1.bias", WB_F32, 1, (int64_t[]){2}, 8, (float[]){7, 8}, NULL}};
    assert_int_equal(wb__st_save(NULL, path, 3, out, 0, NULL), 0);
    if (wb_load_state(path, tied)) fail_msg("%s", wb_error());
    assert_true(wb_at(wb_get(tied, "layers.0.weight"), 1, 0) == 3);
    REFUSED(wb_load(path), WB_ERROR_FORMAT, "model");
    unlink(path);
}

/* Tied names have one tensor.  A file with two different values for them is refused; a file with
 * equal values is loaded. */
TEST(two_values_for_a_tie)
{
    const char *path = file_name();
    for (int torch = 0; torch < 2; torch++) {
        wb_layer *tied = wb_Chain(wb_Dense(2, 2), wb_Dense(2, 2));
        wb_tie(tied, "layers.1.weight", "layers.0.weight");
        wb_layer *apart = wb_Chain(wb_Dense(2, 2), wb_Dense(2, 2));
        const wb_names names = torch ? WB_NAMES_TORCH : WB_NAMES_WEBER;
        const float before = (float)wb_at(wb_get(tied, "layers.0.weight"), 0, 0);
        assert_int_equal(wb_save(path, apart, .names = names), 0);
        FAILS(wb_load_state(path, tied), WB_ERROR_FORMAT, path);
        if (torch) assert_true(HAS_LINE(wb_error(), "\"0.weight\"", "\"1.weight\""));
        assert_true(HAS_LINE(wb_error(), "\"layers.0.weight\"", "\"layers.1.weight\"", "values"));
        assert_true((float)wb_at(wb_get(tied, "layers.0.weight"), 0, 0) == before);
        assert_int_equal(wb_load_state(path, tied, .lenient = true), 0);
        assert_memory_equal(wb_data(wb_get(tied, "layers.1.weight")),
                            wb_data(wb_get(apart, "layers.0.weight")), 16);
        assert_int_equal(wb_set(apart, "layers.1.weight", wb_get(apart, "layers.0.weight")), 0);
        assert_int_equal(wb_save(path, apart, .names = names), 0);
        if (wb_load_state(path, tied)) fail_msg("%s", wb_error());
    }
    unlink(path);
}

/* Saving to a symbolic link replaces the link and leaves its target as it is. */
TEST(a_link_is_replaced)
{
    const char *path = file_name();
    char link[4096];
    snprintf(link, sizeof link, "%s.link.safetensors", path);
    unlink(link);
    wb_layer *a = wb_Dense(2, 2), *b = wb_Dense(5, 5);
    assert_int_equal(wb_save(path, a), 0);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(wb_save(link, b), 0);
    struct stat about;
    assert_int_equal(lstat(link, &about), 0);
    assert_true(S_ISREG(about.st_mode));
    assert_int_equal(wb_dim(wb_get(wb_load(link), "weight"), 0), 5);
    assert_int_equal(wb_dim(wb_get(wb_load(path), "weight"), 0), 2);
    unlink(link);
    assert_int_equal(symlink("nowhere at all", link), 0);
    assert_int_equal(wb_save(link, b), 0);
    assert_int_equal(lstat(link, &about), 0);
    assert_true(S_ISREG(about.st_mode));
    unlink(link);
    unlink(path);
}

int main(void) { return run_cases(NULL, golden_close); }
