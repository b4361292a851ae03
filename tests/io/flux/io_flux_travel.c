/* Models are saved as Flux's files and loaded: every kind of layer for every version, read by the
 * reference reader and by wb_load; real files, saved in between as safetensors; documents in the
 * form of BSON.jl. */
#include "flux_files.h"

#include "io/flux/fields.h"
#include "nn/window.h"

/* ---- every layer, every version -------------------------------------------------------------- */

static const struct { const char *flux; int version; } versions[] = {
    {"0.9", 999}, {"0.10", 1099}, {"0.11", 1199}, {"0.12.2", 1202}, {"0.12", 1209},
    {"0.12.10", 1210}, {"0.13.2", 1302}, {"0.13", 1399}, {"0.14", 1499}, {"0.15", 1599},
    {"0.16.0", 1600}, {"0.16", 1610}, {"0.16.12", 1612}};
enum { VERSIONS = WB__COUNT(versions), MODELS = 80 };

/* A model.  It can be written as structs for versions `since` <= version < `before`, where 0 is no
 * bound.  `x` is an input of the model, or NULL. */
typedef struct { const char *name; wb_layer *model; int since, before; wb_tensor *x; } sample;

static wb_layer *named(const char *function)
{
    return wb_layer_from_function(wb__function_by_name(function));
}

static int samples(sample *s)
{
    wb_tensor *flat = wb_randn(3, 4), *image = wb_randn(2, 3, 6, 5), *four = wb_randn(2, 4, 6, 5),
              *six = wb_randn(3, 6), *steps = wb_randn(2, 3, 4), *numbers = wb_arange(9, WB_I32),
              *two = wb_randn(3, 2), *line = wb_randn(2, 3, 8), *line4 = wb_randn(2, 4, 8),
              *volume = wb_randn(2, 3, 4, 5, 4), *bags = wb_reshape(numbers, 3, 3);
    const sample all[] = {
        {"dense", wb_Dense(4, 2, wb_gelu), 0, 0, flat},
        {"dense64", wb_Dense(4, 2, wb_sigmoid, .bias = false, .dtype = WB_F64), 0, 0, NULL},
        {"dense16", wb_Dense(4, 3, wb_elu, .dtype = WB_F16), 0, 0, NULL},
        {"conv",
         wb_Conv(3, 5, {3, 2}, wb_relu, .flip = true, .stride = {2, 1}, .pad = {0, 1, 2, 3}),
         0, 1612, image},
        {"cross", wb_Conv(3, 5, {3, 2}, wb_leakyrelu, .same = true, .dilation = {1, 2}),
         0, 1612, image},
        {"groups", wb_Conv(4, 6, {3, 2}, wb_selu, .groups = 2, .bias = false), 1205, 1612, four},
        {"flipped_groups", wb_Conv(4, 6, {3, 2}, .groups = 2, .flip = true), 1205, 1612, four},
        {"transpose",
         wb_ConvTranspose(3, 5, {3, 2}, wb_relu, .flip = true, .stride = {2, 1},
                          .pad = {0, 1, 2, 1}),
         0, 0, image},
        {"transpose_groups",
         wb_ConvTranspose(4, 6, {3, 4}, .flip = true, .groups = 2, .same = true, .bias = false),
         1205, 0, four},
        {"transpose_outpad",
         wb_ConvTranspose(3, 2, {3, 4}, wb_tanh, .stride = {2, 3}, .outpad = {0, 2}),
         1417, 0, image},
        {"maxpool", wb_MaxPool({3, 2}, .pad = {1, 0, 1, 0}, .stride = {2}), 0, 0, image},
        {"meanpool", wb_MeanPool({2, 3}), 0, 0, image},
        {"global_max", wb_GlobalMaxPool(), 1100, 0, image},
        {"global_mean", wb_GlobalMeanPool(), 1100, 0, image},
        {"flatten", wb_Flatten(), 1000, 0, image},
        {"dropout", wb_testmode(wb_Dropout(0.3)), 0, 0, flat},
        {"dropout_rows", wb_Dropout(0.3, .axes = WB_INTS(-1)), 0, 0, flat},
        {"dropout_slices", wb_Dropout(0.3, .axes = WB_INTS(-3, -4)), 0, 0, image},
        {"batchnorm", wb_BatchNorm(4, wb_tanh, .eps = 1e-3, .momentum = 0.2), 0, 0, four},
        {"batchnorm_plain", wb_BatchNorm(4, .affine = false), 1200, 0, four},
        {"batchnorm_free", wb_trainmode(wb_BatchNorm(4, .track_stats = false)), 1200, 0, NULL},
        {"layernorm", wb_LayerNorm({6, 5}), 0, 0, image},
        {"layernorm_eps", wb_LayerNorm({6, 5}, .eps = 0.1), 1200, 0, image},
        {"layernorm_active", wb_LayerNorm({6}, wb_relu), 1200, 0, six},
        {"layernorm_no_bias", wb_LayerNorm({6}, wb_relu, .bias = false), 1300, 0, six},
        {"layernorm_plain", wb_LayerNorm({6}, .affine = false), 1200, 0, six},
        {"layernorm_applied", wb_LayerNorm({6}, wb_relu, .affine = false), 1200, 0, six},
        {"embedding", wb_Embedding(9, 4), 1204, 1611, numbers},
        {"attention", wb_MultiHeadAttention(4, 2, .bias = true, .dropout = 0.1), 1315, 0, steps},
        {"rnn", wb_RNN(4, 3, wb_relu), 0, 0, steps},
        {"lstm", wb_LSTM(4, 3), 0, 0, steps},
        {"gru", wb_GRU(4, 3, .bias = false), 0, 0, steps},
        {"rnn_cell", wb_RNNCell(4, 3), 0, 0, flat},
        {"lstm_cell", wb_LSTMCell(4, 3), 0, 0, flat},
        {"gru_cell", wb_GRUCell(4, 3), 0, 0, flat},
        {"chain",
         wb_Chain(wb_Dense(4, 3, wb_softplus), wb_layer_from_function(wb_relu), wb_softmax),
         0, 0, flat},
        {"named",
         wb_Chain(wb_named("in", wb_Dense(4, 3, wb_swish)), wb_named("out", wb_Dense(3, 2))),
         1207, 0, flat},
        {"skip", wb_SkipConnection(wb_Chain(wb_Dense(4, 4)), wb_add), 0, 0, flat},
        {"parallel", wb_Parallel(wb_sub, wb_Dense(4, 2), wb_Dense(4, 2)), 1200, 0, flat},
        {"product", wb_Parallel(wb_mul, wb_Dense(4, 2), wb_Dense(4, 2), wb_Dense(4, 2)),
         1300, 0, flat},
        {"quotient", wb_SkipConnection(wb_Dense(4, 4), wb_div), 1300, 0, flat},
        {"larger", wb_Parallel(wb_maximum, wb_Dense(4, 2), wb_Dense(4, 2)), 1300, 0, flat},
        {"vcat", wb_Parallel(wb__connection_by_name("vcat"), wb_Dense(4, 2), wb_Dense(4, 1)),
         1200, 0, flat},
        {"made",
         wb_Chain(named("relu6"), named("hardtanh"), named("hardsigmoid"), named("hardswish"),
                  named("mish"), wb_Dense(4, 4, wb__function_by_name("softsign"))),
         1300, 0, flat},
        {"made_too",
         wb_Chain(named("softshrink"), named("tanhshrink"), named("trelu"), named("lisht"),
                  named("logcosh")),
         1300, 0, flat},
        {"plain_functions", wb_Chain(wb_neg, wb_reciprocal, wb_abs, wb_log1p, wb_sqrt, wb_exp),
         0, 0, flat},
        {"conv1d", wb_Conv1d(3, 5, {3}, wb_relu, .flip = true, .stride = {2}, .pad = {1, 2}),
         0, 1612, line},
        {"cross1d", wb_Conv1d(3, 5, {3}), 0, 1612, line},
        {"groups1d", wb_Conv1d(4, 6, {3}, .groups = 2), 1205, 1612, line4},
        {"conv3d",
         wb_Conv(3, 4, {2, 3, 2}, wb_relu, .flip = true, .stride = {1, 2, 1},
                 .pad = {0, 1, 2, 0, 1, 1}),
         0, 1612, volume},
        {"transpose1d",
         wb_ConvTranspose1d(3, 2, {3}, .flip = true, .stride = {2}, .outpad = {1}),
         1417, 0, line},
        {"transpose3d", wb_ConvTranspose(3, 2, {2, 2, 3}, .flip = true), 0, 0, volume},
        {"maxpool1d", wb_MaxPool1d({3}, .stride = {2}, .pad = {1, 0}), 0, 0, line},
        {"meanpool3d", wb_MeanPool({2, 1, 2}), 0, 0, volume},
        {"adaptive_max", wb_AdaptiveMaxPool({2, 3}, .fixed = true), 1100, 0, image},
        {"adaptive_mean", wb_AdaptiveMeanPool({1, 1}), 1100, 0, image},
        {"adaptive_line", wb_AdaptiveMeanPool({3}, .fixed = true), 1100, 0, line},
        {"upsample", wb_Upsample(.scale = {2}), 1200, 0, image},
        {"upsample_linear", wb_Upsample(.scale = {2, 3}, .mode = WB_UPSAMPLE_LINEAR),
         1200, 0, image},
        {"upsample_sizes", wb_Upsample(.sizes = {5, 6, 8}, .mode = WB_UPSAMPLE_LINEAR),
         1209, 0, volume},
        {"shuffle", wb_PixelShuffle(2), 1200, 0, four},
        {"instancenorm", wb_InstanceNorm(4, wb_relu, .affine = true, .track_stats = true),
         0, 0, four},
        {"instancenorm_plain", wb_InstanceNorm(4), 1200, 0, four},
        {"groupnorm", wb_GroupNorm(4, 2, wb_tanh, .eps = 1e-3), 1200, 0, four},
        {"groupnorm_plain", wb_GroupNorm(4, 2, .affine = false), 1200, 0, four},
        {"scale", wb_Scale({6, 5}), 0, 0, image},
        {"scale_active", wb_Scale({6}, wb_relu, .bias = false), 1300, 0, six},
        {"bilinear", wb_Bilinear(4, 4, 3, wb_tanh), 1200, 0, flat},
        {"bilinear_plain", wb_Bilinear(4, 4, 3, .bias = false), 1200, 0, flat},
        {"alphadropout", wb_testmode(wb_AlphaDropout(0.2)), 0, 0, flat},
        {"bag", wb_EmbeddingBag(9, 4), 1315, 0, bags},
        {"bag_sum", wb_EmbeddingBag(9, 4, .mode = WB_BAG_SUM), 1315, 0, bags},
        {"bag_max", wb_EmbeddingBag(9, 4, .mode = WB_BAG_MAX), 1315, 0, bags},
        {"gruv3", wb_GRUv3(4, 3), 1207, 0, steps},
        {"gruv3_cell", wb_GRUv3Cell(4, 3), 1207, 0, flat},
        {"maxout", wb_Maxout(wb_Dense(4, 3), wb_Dense(4, 3, wb_relu)), 0, 0, flat},
        {"fusion", wb_PairwiseFusion(wb_add, wb_Dense(4, 4), wb_Dense(4, 4)), 1304, 0, NULL},
        {"separate", wb_Parallel(wb_separate, wb_Dense(4, 2), wb_Dense(4, 1)), 1200, 0, NULL},
        {"lstm_state", wb_LSTM(4, 3, .return_state = true), 1601, 0, NULL},
        {"deep", wb_Chain(wb_Chain(wb_Chain(wb_Dense(2, 2)), wb_Chain(wb_BatchNorm(2)))),
         0, 0, two},
    };
    assert_int_equal(WB__COUNT(all), MODELS);
    memcpy(s, all, sizeof all);
    for (size_t i = 0; i < WB__COUNT(all); i++) {
        if (!s[i].model) fail_msg("%s: %s", s[i].name, wb_error());
        if (wb_each_tensor(s[i].model, randomise, NULL)) fail_msg("%s: %s", s[i].name, wb_error());
    }
    return (int)WB__COUNT(all);
}

TEST(all_kinds)
{
    sample s[MODELS];
    int n = samples(s);
    FILE *commands = fopen(in_folder("commands"), "w");
    assert_non_null(commands);
    for (int i = 0; i < n; i++) {
        char tensors[64];
        snprintf(tensors, sizeof tensors, "%s.safetensors", s[i].name);
        if (wb_save(in_folder(tensors), s[i].model)) fail_msg("%s: %s", s[i].name, wb_error());
        for (size_t v = 0; v < VERSIONS; v++) {
            const char *flux = versions[v].flux;
            int number = versions[v].version;
            const char *layers = NAME("%s-%s.bson", s[i].name, flux);
            const char *values = NAME("%s-%s-state.bson", s[i].name, flux);
            bool has = number >= s[i].since && (!s[i].before || number < s[i].before);
            int status = save(layers, s[i].model, flux, true);
            if (status != (has ? 0 : WB_ERROR_ARGUMENT))
                fail_msg("%s for %s: %d %s", s[i].name, flux, status,
                         status ? wb_error() : "written");
            if (has) fprintf(commands, "compare %s %d %s\n", layers, number, tensors);
            if (number < 1300) continue;
            if (!save(values, s[i].model, flux, false)) {
                fprintf(commands, "compare %s %d %s\n", values, number, tensors);
                if (has) fprintf(commands, "loadmodel %s %s %d\n", layers, values, number);
            } else if (has)
                fail_msg("%s for %s: %s", s[i].name, flux, wb_error());
        }
    }
    fclose(commands);
    const char *answer = reference("all", in_folder("commands"), NULL, NULL);
    if (strncmp(answer, "all ", 4)) fail_msg("%s", answer);
    assert_true(atoi(answer + 4) > 700);
}

/* ---- there and back -------------------------------------------------------------------------- */

/* l returns the same values as the model, up to rounding: Flux's structs hold numbers as
 * Float32. */
static void same_answer(const sample *s, wb_layer *l)
{
    if (!s->x) return;
    wb_tensor *y = wb_call(s->model, s->x), *z = wb_call(l, s->x);
    if (!y || !z) fail_msg("%s: %s", s->name, wb_error());
    assert_string_equal(wb_describe(y), wb_describe(z));
    const float *a = wb_data(y), *b = wb_data(z);
    for (int64_t i = 0; i < wb_size(y); i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5f * (1 + fabsf(a[i]))))
            fail_msg("%s: %g, then %g", s->name, a[i], b[i]);
}

/* Whether the loaded model has the same tensors.  Where a version's structs cannot express a layer,
 * it is saved as an equivalent one: a bias of zeros instead of none, a grouped convolution as one
 * with .flip and flipped kernels. */
static bool is_loaded_exactly(const sample *s, int version)
{
    bool no_bias = !strcmp(s->name, "dense64") || (!strcmp(s->name, "gru") && version < 1500);
    if (no_bias && version < (s->name[0] == 'g' ? 1500 : 1300)) return false;
    const bool zeros = !strcmp(s->name, "transpose_groups") || !strcmp(s->name, "bilinear_plain");
    if (zeros && version < 1300) return false;
    return strncmp(s->name, "groups", 6) && strcmp(s->name, "transpose_outpad");
}

TEST(there_and_back)
{
    needs_reading();
    sample s[MODELS];
    int n = samples(s), structs = 0;
    for (int i = 0; i < n; i++) {
        must_save("back.bson", s[i].model, NULL, false);
        same_model("back.bson", s[i].model);
        same_answer(&s[i], loaded("back.bson"));
        for (size_t v = 0; v < VERSIONS; v++) {
            int number = versions[v].version;
            if (number < s[i].since || (s[i].before && number >= s[i].before)) continue;
            must_save("back.bson", s[i].model, versions[v].flux, true);
            wb_layer *l = loaded("back.bson");
            if (number < 1000) wb_automode(l);      /* Flux 0.9 has no automatic mode */
            same_answer(&s[i], l);
            if (is_loaded_exactly(&s[i], number)) wb_each_tensor(s[i].model, same_bits_in, l);
            structs++;
        }
    }
    assert_true(structs > 300);
}

/* ---- every row of the table ------------------------------------------------------------------ */

static const char *version_text(int version)
{
    static char text[16];
    snprintf(text, sizeof text, "0.%d.%d", version / 100, version % 100);
    return text;
}

static bool file_has(const char *name, const char *type)
{
    static char bytes[1 << 20];
    FILE *f = fopen(in_folder(name), "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f), length = strlen(type) + 1;
    fclose(f);
    for (size_t i = 0; i + length < n; i++)
        if (!bytes[i] && !memcmp(bytes + i + 1, type, length)) return true;
    return false;
}

/* For the first version of each row of wb__flux_structs, some sample is saved with the row's
 * struct, and is loaded again. */
TEST(every_struct)
{
    needs_reading();
    sample s[MODELS];
    int n = samples(s), rows = 0;
    for (const wb__flux_struct *row = wb__flux_structs; row->type; row++) {
        if (!row->parameters) continue;                 /* such a struct is read, never written */
        int version = WB__MAX(row->since, 900), found = 0;
        for (int i = 0; i < n; i++) {
            if (version < s[i].since || (s[i].before && version >= s[i].before)) continue;
            must_save("row.bson", s[i].model, version_text(version), true);
            if (!file_has("row.bson", row->type)) continue;
            wb_layer *l = loaded("row.bson");
            if (version < 1000) wb_automode(l);
            same_answer(&s[i], l);
            if (is_loaded_exactly(&s[i], version)) wb_each_tensor(s[i].model, same_bits_in, l);
            found++;
        }
        if (!found) fail_msg("no model has the %s of %s", row->type, version_text(version));
        rows++;
    }
    assert_true(rows > 40);
}

static wb_layer *round_trip(wb_layer *l, int version)
{
    must_save("row.bson", l, version_text(version), true);
    wb_layer *back = loaded("row.bson");
    assert_string_equal(back->type->name, l->type->name);
    return back;
}

TEST(every_function)
{
    needs_reading();
    for (const wb__flux_name *row = wb__flux_functions; row->path; row++) {
        wb_function f = wb__function_by_name(row->weber);
        int version = WB__MAX(row->since, 900);
        const char *julia = strchr(row->path, '#') + 1;
        assert_string_equal(wb__flux_name_julia(wb__flux_functions, julia)->weber, row->weber);
        bool alias = *row->path == '#', layer = !strcmp(row->weber, "flatten");
        if (layer) round_trip(wb_Flatten(), version);
        if (!f || alias || layer) continue;
        const wb_layer *l = round_trip(wb_layer_from_function(f), version);
        assert_memory_equal(wb__layer_option(l->type, l->options, "f"), &f, sizeof f);
        if (!row->elements) continue;
        l = round_trip(wb_Dense(2, 2, f), version);
        assert_true(((const wb_Dense_options *)l->options)->activation == f);
    }
    for (const wb__flux_name *row = wb__flux_connections; row->path; row++) {
        wb__connection f = wb__connection_by_name(row->weber), known;
        wb_layer *both[2] = {wb_Parallel(f, wb_Dense(2, 2), wb_Dense(2, 2)),
                             wb_SkipConnection(wb_Dense(2, 2), f)};
        for (int i = 0; i < 2; i++) {
            const wb_layer *l = round_trip(both[i], row->elements ? 1300 : 1200);
            memcpy(&known, wb__layer_option(l->type, l->options, "connection"), sizeof known);
            assert_true(known == f);
        }
    }
}

/* ---- kernels, files -------------------------------------------------------------------------- */

static void is_counted(wb_tensor *x, int64_t place, double value)
{
    if (!x) fail_msg("%s", wb_error());
    const float *v = wb_data(x);
    if (v[place] != (float)value)
        fail_msg("%s: number %lld is %g, not %g", wb_describe(x), (long long)place, v[place],
                 value);
}

/* wb_load_state flips the kernels where the model's convolution has .flip and that of the file has
 * not, or the reverse, so that both compute the same. */
TEST(kernels_into_either_kind)
{
    needs_reading();
    wb_layer *plain = wb_Conv(2, 4, {3, 2}, .bias = false),
             *flip = wb_Conv(2, 4, {3, 2}, .bias = false, .flip = true);
    wb_layer *grouped = wb_Conv(2, 4, {3, 2}, .bias = false, .groups = 2),
             *twice = wb_Chain(grouped, wb_Conv(4, 2, {1}), grouped);
    wb_tensor *x = wb_randn(2, 2, 9, 8);
    for (int k = 0; k < 4; k++) {
        wb_layer *from = k & 1 ? flip : plain, *into = k & 1 ? plain : flip;
        wb_each_tensor(from, randomise, NULL);
        must_save("kernels.bson", from, NULL, k & 2);
        if (wb_load_state(in_folder("kernels.bson"), into)) fail_msg("%s", wb_error());
        same_answer(&(sample){.name = "kernels", .model = from, .x = x}, into);
        is_counted(wb_get(into, "weight"), 0,
                   (double)((const float *)wb_data(wb_get(from, "weight")))[5]);
    }
    wb_layer *line[2], *volume[2];
    for (int i = 0; i < 2; i++) {
        line[i] = wb_Conv1d(2, 4, {3}, .flip = i);
        volume[i] = wb_Conv(2, 4, {3, 2, 2}, .flip = i);
    }
    wb_tensor *x1 = wb_randn(2, 2, 9), *x3 = wb_randn(2, 2, 4, 5, 6);
    for (int k = 0; k < 4; k++) {
        wb_layer **both = k & 1 ? volume : line;
        wb_each_tensor(both[k / 2], randomise, NULL);
        must_save("kernels.bson", both[k / 2], NULL, false);
        if (wb_load_state(in_folder("kernels.bson"), both[!(k / 2)])) fail_msg("%s", wb_error());
        same_answer(&(sample){.name = "axes", .model = both[k / 2], .x = k & 1 ? x3 : x1},
                    both[!(k / 2)]);
    }
    wb_each_tensor(twice, randomise, NULL);
    must_save("kernels.bson", twice, NULL, false);
    same_model("kernels.bson", twice);
    must_save("kernels.bson", twice, NULL, true);
    same_answer(&(sample){.name = "twice", .model = twice, .x = x}, loaded("kernels.bson"));
}

/* Real files are saved as safetensors, and then as BSON again, as structs and as a state. */
TEST(real_files)
{
    needs_reading();
    const char *names[] = {"juliacon2020-model_conv.bson", "arcaman07-dense.bson",
                           "psuskin-model.bson"};
    int found = 0;
    for (size_t i = 0; i < WB__COUNT(names); i++) {
        char path[1024];
        if (!shared_file(path, sizeof path, NAME("flux-models/%s", names[i]))) continue;
        found++;
        wb_layer *first = wb_load(path);
        if (!first) fail_msg("%s", wb_error());
        if (wb_save(in_folder("real.safetensors"), first)) fail_msg("%s", wb_error());
        wb_layer *second = loaded("real.safetensors");
        wb_each_tensor(first, same_bits_in, second);
        for (int structs = 0; structs < 2; structs++) {
            if (wb_save(in_folder("real.bson"), second, .structs = structs))
                fail_msg("%s", wb_error());
            reference("compare", in_folder("real.bson"), "1610", in_folder("real.safetensors"));
            wb_layer *third = loaded("real.bson");
            wb_each_tensor(first, same_bits_in, third);
            wb_each_tensor(third, same_bits_in, first);
            assert_shown_alike(first, third);
        }
    }
    if (!found) skip();
}

/* ---- documents of BSON.jl -------------------------------------------------------------------- */

static wb_layer *made(const char *name)
{
    reference("make", name, in_folder("made.bson"), NULL);
    return loaded("made.bson");
}

/* bson_reference.py makes these files.  Element (row, column) of a matrix with r rows is
 * (row + r column)/8. */
TEST(documents_of_bson_jl)
{
    needs_reading();
    wb_layer *l = made("shared");
    assert_ptr_equal(wb_get(l, "layers.0.weight"), wb_get(l, "layers.1.weight"));
    is_counted(wb_get(l, "layers.0.weight"), 1, 3 / 8.0);       /* first row, second column */
    is_counted(wb_get(l, "layers.1.bias"), 0, 5 / 8.0);
    const wb_Dense_options *dense = wb_layer_at(l, "layers.1")->options;
    assert_true(dense->activation == wb_relu);

    const wb_Conv_options *o = made("conv")->options;
    assert_true(o->flip && o->in == 1 && o->out == 2 && o->kernel[1] == 2 && o->kernel[2] == 3);
    assert_true(o->stride[1] == 2 && o->stride[2] == 1 && o->activation == wb_sigmoid);
    int64_t pad[4];
    wb__padding(made("conv")->type, o, pad);
    assert_true(pad[0] == 0 && pad[1] == 2 && pad[2] == 1 && pad[3] == 0);

    l = made("recur");
    assert_string_equal(l->type->name, "LSTM");
    is_counted(wb_get(l, "weight_input"), 1, 8 / 8.0);
    is_counted(wb_get(l, "weight_hidden"), 2, 4 / 8.0);

    reference("make", "state", in_folder("made.bson"), NULL);
    REFUSED(wb_load(in_folder("made.bson")), WB_ERROR_FORMAT, "layers", "wb_load_state");
    l = wb_Chain(wb_Dense(3, 2), wb_BatchNorm(2));
    if (wb_load_state(in_folder("made.bson"), l)) fail_msg("%s", wb_error());
    is_counted(wb_get(l, "layers.0.weight"), 1, 2 / 8.0);
    is_counted(wb_get(l, "layers.1.bias"), 1, 2);
    is_counted(wb_get(l, "layers.1.scale"), 1, 4);
    is_counted(wb_get(l, "layers.1.mean"), 1, 6);
    is_counted(wb_get(l, "layers.1.var"), 1, 8);
}

int main(void) { return run_cases(make_folder, remove_folder); }
