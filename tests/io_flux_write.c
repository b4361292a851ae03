/* What wb_save writes for Flux, read by a reader that shares nothing with it: bson_reference.py, which applies BSON.jl's
 * rules, knows the structs of Flux's versions, and does what Flux.loadmodel! does. */
#include "far_device.h"
#include "golden.h"
#include "process.h"
#include "shared_data.h"

#include "base/file.h"
#include "io/flux.h"
#include "io/flux_fields.h"
#include "io/julia.h"
#include "nn/window.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *folder;

static const char *in_folder(const char *name)
{
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ & 3];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    static char kept[256];
    snprintf(kept, sizeof kept, "%s", process_folder());
    folder = kept;
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    process_remove(folder);
    return 0;
}

/* The reader's answer; skips the test, aloud, where there is no Python. */
static const char *reference(const char *what, const char *a, const char *b, const char *c)
{
    static process p;
    const char *words[] = {"/usr/bin/env", "python3", WB_TEST_DATA "/../bson_reference.py", what, a, b, c, NULL};
    process_run(&p, folder, ENVIRONMENT("PYTHONIOENCODING=utf-8"), words);
    if (p.status == 127) {
        printf("SKIP: python3 was not found, which checks what is written for Flux\n");
        fflush(stdout);
        skip();
    }
    if (p.status) fail_msg("%s %s: %s%s", what, a, p.out, p.err);
    return p.out;
}

static void refused_by_reference(const char *name, const char *version)
{
    static process p;
    const char *words[] = {"/usr/bin/env", "python3", WB_TEST_DATA "/../bson_reference.py", "list", in_folder(name),
                           version, NULL};
    process_run(&p, folder, ENVIRONMENT("PYTHONIOENCODING=utf-8"), words);
    if (p.status != 1 || p.err[0]) fail_msg("%s: %d %s%s", name, p.status, p.out, p.err);
}

static int save(const char *name, void *model, const char *flux, bool structs)
{
    return wb__flux_save(in_folder(name), model,
                         &(wb_save_options){.size = sizeof(wb_save_options), .flux = flux, .structs = structs});
}

static void must_save(const char *name, void *model, const char *flux, bool structs)
{
    if (save(name, model, flux, structs)) fail_msg("%s %s: %s", name, flux ? flux : "", wb_error());
}

static void says(const char *text)
{
    if (!strstr(wb_error(), text)) fail_msg("\"%s\" is not in \"%s\"", text, wb_error());
}

/* Parameters that differ from one another and from zero. */
static int randomise(wb_tensor *x, const char *path, void *ctx)
{
    (void)path;
    (void)ctx;
    if (!wb__dtype_float(wb_dtype_of(x))) return 0;
    wb_tensor *drawn = wb_astype(wb_rand_of(WB_F32, wb_ndim(x), x->dims), wb_dtype_of(x));
    return wb_assign(x, wb_add(drawn, wb_astype(wb_scalar(0.25), wb_dtype_of(x))));
}

/* ---- every layer, every version --------------------------------------------------------------- */

static const struct { const char *flux; int version; } versions[] = {
    {"0.9", 999}, {"0.10", 1099}, {"0.11", 1199}, {"0.12.2", 1202}, {"0.12", 1209}, {"0.12.10", 1210},
    {"0.13.2", 1302}, {"0.13", 1399}, {"0.14", 1499}, {"0.15", 1599}, {"0.16.0", 1600}, {"0.16", 1610},
    {"0.16.12", 1612}};
enum { VERSIONS = WB__COUNT(versions), MODELS = 40 };

/* A model, from which version on it can be written as structs, and until which its structs are known. */
typedef struct { const char *name; wb_layer *model; int since, before; wb_tensor *x; } sample;

static int samples(sample *s)
{
    wb_tensor *flat = wb_randn(3, 4), *image = wb_randn(2, 3, 6, 5), *four = wb_randn(2, 4, 6, 5), *six = wb_randn(3, 6),
              *steps = wb_randn(2, 3, 4), *numbers = wb_arange(9, WB_I32), *two = wb_randn(3, 2);
    const sample all[] = {
        {"dense", wb_Dense(4, 2, wb_gelu), 0, 0, flat},
        {"dense64", wb_Dense(4, 2, wb_sigmoid, .no_bias = true, .dtype = WB_F64), 0, 0, NULL},
        {"dense16", wb_Dense(4, 3, wb_elu, .dtype = WB_F16), 0, 0, NULL},
        {"conv", wb_Conv(3, 5, {3, 2}, wb_relu, .flip = true, .stride = {2, 1}, .pad = {0, 1, 2, 3}), 0, 1612, image},
        {"cross", wb_Conv(3, 5, {3, 2}, wb_leakyrelu, .same = true, .dilation = {1, 2}), 0, 1612, image},
        {"groups", wb_Conv(4, 6, {3, 2}, wb_selu, .groups = 2, .no_bias = true), 1205, 1612, four},
        {"flipped_groups", wb_Conv(4, 6, {3, 2}, .groups = 2, .flip = true), 1205, 1612, four},
        {"maxpool", wb_MaxPool({3, 2}, .pad = {1, 0, 1, 0}, .stride = {2}), 0, 0, image},
        {"meanpool", wb_MeanPool({2, 3}), 0, 0, image},
        {"global_max", wb_GlobalMaxPool(), 1100, 0, image},
        {"global_mean", wb_GlobalMeanPool(), 1100, 0, image},
        {"flatten", wb_Flatten(), 1000, 0, image},
        {"dropout", wb_testmode(wb_Dropout(0.3)), 0, 0, flat},
        {"dropout_rows", wb_Dropout(0.3, .axes = WB_AXES(-1)), 0, 0, flat},
        {"dropout_slices", wb_Dropout(0.3, .axes = WB_AXES(-3, -4)), 0, 0, image},
        {"batchnorm", wb_BatchNorm(4, wb_tanh, .eps = 1e-3, .momentum = 0.2), 0, 0, four},
        {"batchnorm_plain", wb_BatchNorm(4, .no_affine = true), 1200, 0, four},
        {"batchnorm_free", wb_trainmode(wb_BatchNorm(4, .no_track_stats = true)), 1200, 0, NULL},
        {"layernorm", wb_LayerNorm({6, 5}), 0, 0, image},
        {"layernorm_eps", wb_LayerNorm({6, 5}, .eps = 0.1), 1200, 0, image},
        {"layernorm_active", wb_LayerNorm({6}, wb_relu), 1200, 0, six},
        {"layernorm_plain", wb_LayerNorm({6}, .no_affine = true), 1200, 0, six},
        {"layernorm_applied", wb_LayerNorm({6}, wb_relu, .no_affine = true), 1200, 0, six},
        {"embedding", wb_Embedding(9, 4), 1204, 1611, numbers},
        {"attention", wb_MultiHeadAttention(4, 2, .bias = true, .dropout = 0.1), 1315, 0, steps},
        {"rnn", wb_RNN(4, 3, wb_relu), 0, 0, steps},
        {"lstm", wb_LSTM(4, 3), 0, 0, steps},
        {"gru", wb_GRU(4, 3, .no_bias = true), 0, 0, steps},
        {"rnn_cell", wb_RNNCell(4, 3), 0, 0, flat},
        {"lstm_cell", wb_LSTMCell(4, 3), 0, 0, flat},
        {"gru_cell", wb_GRUCell(4, 3), 0, 0, flat},
        {"chain", wb_Chain(wb_Dense(4, 3, wb_softplus), wb_layer_from_function(wb_relu), wb_softmax), 0, 0, flat},
        {"named", wb_Chain(wb_named("in", wb_Dense(4, 3, wb_swish)), wb_named("out", wb_Dense(3, 2))), 1207, 0, flat},
        {"skip", wb_SkipConnection(wb_Chain(wb_Dense(4, 4)), wb_add), 0, 0, flat},
        {"parallel", wb_Parallel(wb_sub, wb_Dense(4, 2), wb_Dense(4, 2)), 1200, 0, flat},
        {"vcat", wb_Parallel(wb__connection_by_name("vcat"), wb_Dense(4, 2), wb_Dense(4, 1)), 1200, 0, flat},
        {"deep", wb_Chain(wb_Chain(wb_Chain(wb_Dense(2, 2)), wb_Chain(wb_BatchNorm(2)))), 0, 0, two},
    };
    memcpy(s, all, sizeof all);
    for (size_t i = 0; i < WB__COUNT(all); i++) {
        if (!s[i].model) fail_msg("%s: %s", s[i].name, wb_error());
        if (wb_each_tensor(s[i].model, randomise, NULL)) fail_msg("%s: %s", s[i].name, wb_error());
    }
    return (int)WB__COUNT(all);
}

static void all_kinds(void **state)
{
    (void)state;
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
                fail_msg("%s for %s: %d %s", s[i].name, flux, status, status ? wb_error() : "written");
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

/* ---- there and back --------------------------------------------------------------------------- */

static int same_bits_in(wb_tensor *x, const char *path, void *other)
{
    wb_tensor *y = wb_get(other, path);
    if (!y) fail_msg("%s: %s", path, wb_error());
    assert_string_equal(wb_describe(x), wb_describe(y));
    if (memcmp(wb_data(x), wb_data(y), (size_t)wb_size(x) * wb_dtype_bytes(wb_dtype_of(x)))) fail_msg("%s differs", path);
    return 0;
}

static wb_layer *loaded(const char *name)
{
    wb_seed(9);
    wb_layer *l = wb_load(in_folder(name));
    if (!l) fail_msg("%s: %s", name, wb_error());
    return l;
}

static void same_model(const char *name, wb_layer *m)
{
    wb_layer *l = loaded(name);
    char *a = wb_format_object(m), *b = wb_format_object(l);
    assert_string_equal(a, b);
    wb_free_text(a);
    wb_free_text(b);
    wb_each_tensor(m, same_bits_in, l);
    wb_each_tensor(l, same_bits_in, m);
}

/* Numbers of Flux's structs are Float32, so that sums may differ in the last place. */
static void same_answer(const sample *s, wb_layer *l)
{
    if (!s->x) return;
    wb_tensor *y = wb_call(s->model, s->x), *z = wb_call(l, s->x);
    if (!y || !z) fail_msg("%s: %s", s->name, wb_error());
    assert_string_equal(wb_describe(y), wb_describe(z));
    const float *a = wb_data(y), *b = wb_data(z);
    for (int64_t i = 0; i < wb_size(y); i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5f * (1 + fabsf(a[i])))) fail_msg("%s: %g, then %g", s->name, a[i], b[i]);
}

/* What is not in the version's structs comes back as its like: zeros for no bias, a plain convolution of groups as a
 * .flip of kernels turned over. */
static bool comes_back_as_it_was(const sample *s, int version)
{
    bool no_bias = !strcmp(s->name, "dense64") || (!strcmp(s->name, "gru") && version < 1500);
    if (no_bias && version < (s->name[0] == 'g' ? 1500 : 1300)) return false;
    return strcmp(s->name, "groups") != 0;
}

static void there_and_back(void **state)
{
    (void)state;
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
            if (number < 1000) wb_automode(l);      /* there only trains, or does not */
            same_answer(&s[i], l);
            if (comes_back_as_it_was(&s[i], number)) wb_each_tensor(s[i].model, same_bits_in, l);
            structs++;
        }
    }
    assert_true(structs > 300);
}

static void is_counted(wb_tensor *x, int64_t place, double value)
{
    if (!x) fail_msg("%s", wb_error());
    const float *v = wb_data(x);
    if (v[place] != (float)value) fail_msg("%s: number %lld is %g, not %g", wb_describe(x), (long long)place, v[place], value);
}

/* Into a model that exists go the kernels that make its convolutions do what those of the file do. */
static void kernels_into_either_kind(void **state)
{
    (void)state;
    wb_layer *plain = wb_Conv(2, 4, {3, 2}, .no_bias = true), *flip = wb_Conv(2, 4, {3, 2}, .no_bias = true, .flip = true);
    wb_layer *grouped = wb_Conv(2, 4, {3, 2}, .no_bias = true, .groups = 2), *twice = wb_Chain(grouped, wb_Conv(4, 2, {1}),
                                                                                              grouped);
    wb_tensor *x = wb_randn(2, 2, 9, 8);
    for (int k = 0; k < 4; k++) {
        wb_layer *from = k & 1 ? flip : plain, *into = k & 1 ? plain : flip;
        wb_each_tensor(from, randomise, NULL);
        must_save("kernels.bson", from, NULL, k & 2);
        if (wb_load_state(in_folder("kernels.bson"), into)) fail_msg("%s", wb_error());
        same_answer(&(sample){.name = "kernels", .model = from, .x = x}, into);
        is_counted(wb_get(into, "weight"), 0, (double)((const float *)wb_data(wb_get(from, "weight")))[5]);
    }
    wb_each_tensor(twice, randomise, NULL);
    must_save("kernels.bson", twice, NULL, false);
    same_model("kernels.bson", twice);
    must_save("kernels.bson", twice, NULL, true);
    same_answer(&(sample){.name = "twice", .model = twice, .x = x}, loaded("kernels.bson"));
}

/* Real files: to safetensors and to BSON again, in both forms. */
static void real_files(void **state)
{
    (void)state;
    const char *names[] = {"juliacon2020-model_conv.bson", "arcaman07-dense.bson", "psuskin-model.bson"};
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
            if (wb_save(in_folder("real.bson"), second, .structs = structs)) fail_msg("%s", wb_error());
            reference("compare", in_folder("real.bson"), "1610", in_folder("real.safetensors"));
            wb_layer *third = loaded("real.bson");
            wb_each_tensor(first, same_bits_in, third);
            wb_each_tensor(third, same_bits_in, first);
            char *a = wb_format_object(first), *b = wb_format_object(third);
            assert_string_equal(a, b);
            wb_free_text(a);
            wb_free_text(b);
        }
    }
    if (!found) skip();
}

/* ---- documents that others wrote ------------------------------------------------------------- */

static wb_layer *made(const char *name)
{
    reference("make", name, in_folder("made.bson"), NULL);
    return loaded("made.bson");
}

/* Numbers there are i/8 in Julia's order: element (row, column) of a matrix of r rows is (row + r column)/8. */
static void documents_of_bson_jl(void **state)
{
    (void)state;
    wb_layer *l = made("shared");
    assert_ptr_equal(wb_get(l, "layers.0.weight"), wb_get(l, "layers.1.weight"));
    is_counted(wb_get(l, "layers.0.weight"), 1, 3 / 8.0);       /* first row, second column */
    is_counted(wb_get(l, "layers.1.bias"), 0, 5 / 8.0);
    assert_true(((const wb_dense_options *)wb_layer_at(l, "layers.1")->options)->activation == wb_relu);

    const wb_conv_options *o = made("conv")->options;
    assert_true(o->flip && o->in == 1 && o->out == 2 && o->kernel[0] == 2 && o->kernel[1] == 3);
    assert_true(o->stride[0] == 2 && o->stride[1] == 1 && o->activation == wb_sigmoid);
    int64_t pad[4];
    wb__conv_padding(o, pad);
    assert_true(pad[0] == 0 && pad[1] == 2 && pad[2] == 1 && pad[3] == 0);

    l = made("recur");
    assert_string_equal(l->type->name, "LSTM");
    is_counted(wb_get(l, "weight_input"), 1, 8 / 8.0);
    is_counted(wb_get(l, "weight_hidden"), 2, 4 / 8.0);

    reference("make", "state", in_folder("made.bson"), NULL);
    assert_null(wb_load(in_folder("made.bson")));
    says("values without layers");
    l = wb_Chain(wb_Dense(3, 2), wb_BatchNorm(2));
    if (wb_load_state(in_folder("made.bson"), l)) fail_msg("%s", wb_error());
    is_counted(wb_get(l, "layers.0.weight"), 1, 2 / 8.0);
    is_counted(wb_get(l, "layers.1.bias"), 1, 2);
    is_counted(wb_get(l, "layers.1.scale"), 1, 4);
    is_counted(wb_get(l, "layers.1.mean"), 1, 6);
    is_counted(wb_get(l, "layers.1.var"), 1, 8);
}

/* ---- what stands where ------------------------------------------------------------------------ */

/* Numbers 0, 1, 2, ...: whoever reads the file with them in hand can see the order. */
static int count_up(wb_tensor *x, const char *path, void *ctx)
{
    (void)path;
    (void)ctx;
    return wb_assign(x, wb_reshape_to(wb_arange(wb_size(x), WB_F32), wb_ndim(x), x->dims));
}

static void what_stands_where(void **state)
{
    (void)state;
    wb_layer *m = wb_Chain(wb_Conv(1, 1, {2, 1}, wb_relu, .flip = true, .pad = {1, 2, 3, 4}, .stride = {5, 6}),
                           wb_Flatten(), wb_Dense(3, 2, wb_sigmoid, .no_bias = true), wb_softmax);
    assert_int_equal(wb_each_tensor(m, count_up, NULL), 0);
    must_save("order.bson", m, NULL, true);
    /* sha256 of the bytes of 0f0, 1f0; of 0f0; and of 0f0, 3f0, 1f0, 4f0, 2f0, 5f0, a matrix by its columns */
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
    assert_non_null(strstr(reference("list", in_folder("order.bson"), "1499", "weber"), "\"layer\":\"Chain\""));
}

static wb_tensor *full(double value, wb_dtype dtype, int ndim, int64_t n)
{
    return wb_full_of(value, dtype, ndim, ndim == 1 ? &n : (int64_t[]){2, n});
}

static void trees_and_dtypes(void **state)
{
    (void)state;
    static const char *const names[] = {"none", "f32", "bytes", "picture", "i8", "i32", "i64", "truth", "half", "scalar",
                                        "nil", "inner"};
    void *values[] = {WB_NONE, wb_ones(2, 3), full(7, WB_U8, 1, 5), full(7, WB_U8, 2, 5), full(-3, WB_I8, 1, 2),
                      full(-3, WB_I32, 1, 2), full(-3, WB_I64, 1, 2), full(1, WB_BOOL, 1, 3), full(0.5, WB_F16, 1, 2),
                      wb_scalar(2), wb_zeros(0, 4), wb_tuple(wb_ones(1), wb_Dense(1, 1))};
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
                               "model.nil Array{Float32,2} 4x0 ", "model.inner.0 Array{Float32,1} 1 ",
                               "model.inner.1.weight Array{Float32,2} 1x1 "};
        for (size_t i = 0; i < WB__COUNT(lines); i++)
            if (!strstr(listed, lines[i])) fail_msg("\"%s\" is not in\n%s", lines[i], listed);
        assert_true(structs == (strstr(listed, "model.inner.1 Flux.Dense\n") != NULL));
    }
    wb_layer *bf16 = wb_Chain(wb_Dense(2, 2), wb_Dense(2, 2, .dtype = WB_BF16), wb_BatchNorm(2, .dtype = WB_BF16));
    assert_int_equal(save("bf16.bson", bf16, NULL, false), WB_ERROR_ARGUMENT);
    says("\n  \"layers.1.weight\": [2,2] bf16");
    says("\n  \"layers.1.bias\": [2] bf16");
    says("convert it with wb_to, or use .safetensors");
    assert_int_not_equal(access(in_folder("bf16.bson"), F_OK), 0);
}

/* One array for a tie, wherever it stands; but a matrix that stands in a Dense and in an Embedding is two, since there it
 * is by columns and here by rows. */
static void ties(void **state)
{
    (void)state;
    wb_layer *shared = wb_Dense(4, 4), *m = wb_Chain(wb_Embedding(4, 4), shared, wb_Dense(4, 4), shared);
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

/* What a cell begins with is its own until Flux 0.14; the reference reader calls it zero elsewhere. */
static void initial_states(void **state)
{
    (void)state;
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
            says("with an initial state: since 0.15 that is an argument of the call");
        }
    }
    must_save("initial.bson", models[0], "0.14", true);
    const char *listed = reference("list", in_folder("initial.bson"), "1499", NULL);
    const char *lines[] = {"model Flux.Recur\n", "model.cell.state0.0 Array{Float32,2} 3x1 ",
                           "model.cell.state0.1 Array{Float32,2} 3x1 ", "model.state.1 Array{Float32,2} 3x1 "};
    for (size_t i = 0; i < WB__COUNT(lines); i++)
        if (!strstr(listed, lines[i])) fail_msg("\"%s\" is not in\n%s", lines[i], listed);
}

/* The reader that checks everything does refuse. */
static void the_reader_is_strict(void **state)
{
    (void)state;
    wb_layer *m = wb_Chain(wb_Dense(3, 2, wb_relu), wb_BatchNorm(2));
    must_save("strict.bson", m, NULL, true);
    int64_t n;
    char *text = wb__file_read(in_folder("strict.bson"), &n);
    assert_non_null(text);
    reference("list", in_folder("strict.bson"), "1610", NULL);
    static const struct { const char *from, *to; } changes[] = {
        {"#relu", "#relv"}, {"Float32", "Float64"}, {"BatchNorm", "LayerNorm"}, {"Tuple", "Tuplf"}, {"datatype", "datatypf"},
        {"struct", "strudt"}, {"params", "parbms"}, {"array", "arrby"}};
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
    refused_by_reference("strict.bson", "1199");            /* BatchNorm had 8 fields */
    wb__free(text);
}

/* ---- refusals --------------------------------------------------------------------------------- */

static wb_tensor *own(wb_tensor *x) { return wb_neg(x); }
static wb_tensor *join(wb_tensor *x, wb_tensor *y) { return wb_add(x, y); }

static void refusals(void **state)
{
    (void)state;
    wb_name_function("own", own);
    wb_name_connection("join", join);
    wb_layer *m = wb_Chain(wb_Dense(2, 2, own), wb_Dense(2, 2, wb_softmax), wb_LSTM(2, 2, .last = true),
                           wb_Chain(wb_MultiHeadAttention(2, 1, .causal = true)), wb_Dropout(0.1, .axes = WB_AXES(0)),
                           wb_SkipConnection(wb_Dense(2, 2), join), own);
    if (!m) fail_msg("%s", wb_error());
    assert_int_equal(save("refused.bson", m, "0.16", true), WB_ERROR_ARGUMENT);
    const char *lines[] = {": Flux 0.16 has no such:\n  \"layers.0\": the activation own",
                           "\n  \"layers.1\": softmax as an activation: it is a layer of its own",
                           "\n  \"layers.2\": LSTM with .last: there it gives all steps",
                           "\n  \"layers.3.layers.0\": a causal MultiHeadAttention: there the mask",
                           "\n  \"layers.4\": Dropout over axis 0: count axes from the end",
                           "\n  \"layers.5\": the connection join", "\n  \"layers.6\": the function own"};
    for (size_t i = 0; i < WB__COUNT(lines); i++) says(lines[i]);
    must_save("refused.bson", m, "0.16", false);        /* a state has no functions */

    wb_layer *d = wb_Dense(1, 1);
    const char *wrong[] = {"0.8", "0.17", "1.0", "0.16.", "0.16.x", "16", "", "0.16.100", "0.-9"};
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        assert_int_equal(save("no.bson", d, wrong[i], true), WB_ERROR_ARGUMENT);
        says("known are \"0.9\" to \"0.16\"");
    }
    assert_int_equal(save("no.bson", d, "0.12", false), WB_ERROR_ARGUMENT);
    says("Flux 0.12 has no loadmodel! yet");
    const char *keys[] = {"", "_backrefs", "weber", "\xff"};
    for (size_t i = 0; i < WB__COUNT(keys); i++) {
        wb_save_options o = {.size = sizeof o, .key = keys[i]};
        if (*keys[i]) assert_int_equal(wb__flux_save(in_folder("no.bson"), d, &o), WB_ERROR_ARGUMENT);
    }
    assert_int_not_equal(access(in_folder("no.bson"), F_OK), 0);
    wb_save_options o = {.size = sizeof o, .key = "größe"};
    assert_int_equal(wb__flux_save(in_folder("key.bson"), d, &o), 0);
    assert_non_null(strstr(reference("list", in_folder("key.bson"), "1610", NULL), "größe.weight"));
    assert_int_equal(save("no.bson", wb_Chain(wb_named("\xfftext", wb_Dense(1, 1))), NULL, true), WB_ERROR_ARGUMENT);
    says("not UTF-8");
    assert_int_not_equal(wb__flux_save("/nonexistent/no.bson", d, &(wb_save_options){.size = sizeof o}), 0);
}

/* Of addresses alone: what is refused is not read. */
static void too_large(void **state)
{
    (void)state;
    const int64_t n = (int64_t)1 << 29;
    void *at = mmap(NULL, (size_t)n * 4, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        printf("SKIP: no 2 GiB of addresses\n");
        skip();
    }
    wb_scope *scope = wb_scope_open();
    wb_tensor *x = wb_borrow(at, WB_F32, 1, &n, NULL, NULL);
    if (!x) fail_msg("%s", wb_error());
    assert_int_equal(save("large.bson", wb_tuple(x), NULL, false), WB_ERROR_ARGUMENT);
    says("would have 21474");
    says("BSON has room for 2 GiB less one: save to .safetensors");
    assert_int_not_equal(access(in_folder("large.bson"), F_OK), 0);
    wb_scope_close(scope);
    munmap(at, (size_t)n * 4);
}

static void nested(void **state)
{
    (void)state;
    wb_layer *m = wb_Dense(1, 1);
    for (int i = 0; i < 49; i++) m = wb_Chain(m);
    must_save("nested.bson", m, NULL, true);
    must_save("nested.bson", m, NULL, false);
    for (int i = 0; i < 60; i++) m = wb_Chain(m);
    assert_int_equal(save("nested.bson", m, NULL, true), WB_ERROR_ARGUMENT);
    says("deeper than 100");
}

/* ---- devices and faults ----------------------------------------------------------------------- */

static void same_file(const char *a, const char *b)
{
    int64_t n, m;
    char *x = wb__file_read(in_folder(a), &n), *y = wb__file_read(in_folder(b), &m);
    if (!x || !y) fail_msg("%s", wb_error());
    if (n != m || memcmp(x, y, (size_t)n)) fail_msg("%s and %s differ", a, b);
    wb__free(x);
    wb__free(y);
}

/* Matrices of several parts of 1 MiB, tall and wide. */
static void from_any_device(void **state)
{
    (void)state;
    wb_scope *scope = wb_scope_open();
    wb_layer *m = wb_Chain(wb_Dense(3, 400001), wb_Dense(400001, 3), wb_Conv(4, 4, {3}, .groups = 2),
                           wb_Dense(700, 900), wb_LSTM(2, 2));
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
        if (!old) same_file("old.bson", "whole.bson");      /* only the folder was not made durable */
    }
    same_file("old.bson", "whole.bson");
    assert_true(n > 5);
    struct stat s;
    assert_int_not_equal(stat(in_folder(".old.bson"), &s), 0);
}

static void faults(void **state)
{
    (void)state;
    wb_scope *scope = wb_scope_open();
    wb_layer *shared = wb_Dense(4, 4, wb_relu);
    wb_layer *m = wb_Chain(wb_Conv(4, 4, {2}, .groups = 2), wb_BatchNorm(4), shared, shared, wb_LSTM(4, 4));
    wb_layer *far = wb_to(m, far_device());
    if (!m || !far) fail_msg("%s", wb_error());
    for (int structs = 0; structs < 2; structs++) {
        every_fault("allocation", wb__alloc_fail_at, m, structs);
        every_fault("file call", wb__io_fail_at, m, structs);
        every_fault("allocation", wb__alloc_fail_at, far, structs);
        every_fault("call of the device", far_fail_at, far, structs);
    }
    wb_scope_close(scope);
}

/* ---- the registry ----------------------------------------------------------------------------- */

static void layouts(void **state)
{
    (void)state;
    assert_int_equal(wb__flux_struct_of("Conv", 1100)->n, 6);
    assert_int_equal(wb__flux_struct_of("Conv", 1610)->n, 7);
    assert_string_equal(wb__flux_struct_by_count("Conv", 8)->fields[7], "pad_mode");
    assert_int_equal(wb__flux_field(wb__flux_struct_by_count("BatchNorm", 8), "active"), 7);
    assert_int_equal(wb__flux_field(wb__flux_struct_by_count("BatchNorm", 11), "chs"), 10);
    assert_int_equal(wb__flux_field(wb__flux_struct_of("Dense", 900), "stride"), -1);
    assert_null(wb__flux_struct_of("Recur", 1500));
    assert_null(wb__flux_struct_of("Embedding", 1100));
    assert_null(wb__flux_struct_by_count("Dense", 4));
    assert_true(wb__flux_struct_known("Maxout"));
    assert_false(wb__flux_struct_known("Attention"));
}

static void utf8(void **state)
{
    (void)state;
    const char *good[] = {"", "a", "ä", "€", "😀", "\xf4\x8f\xbf\xbf"};
    const char *bad[] = {"\x80", "\xc0\x80", "\xc3", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                         "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82", "a\xff"};
    for (size_t i = 0; i < WB__COUNT(good); i++) assert_true(wb__is_utf8(good[i]));
    for (size_t i = 0; i < WB__COUNT(bad); i++) assert_false(wb__is_utf8(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts),         cmocka_unit_test(utf8),
        cmocka_unit_test(all_kinds),       cmocka_unit_test(there_and_back),
        cmocka_unit_test(kernels_into_either_kind),
        cmocka_unit_test(real_files),      cmocka_unit_test(documents_of_bson_jl),
        cmocka_unit_test(what_stands_where),
        cmocka_unit_test(trees_and_dtypes), cmocka_unit_test(ties),
        cmocka_unit_test(initial_states),  cmocka_unit_test(the_reader_is_strict),
        cmocka_unit_test(refusals),        cmocka_unit_test(too_large),
        cmocka_unit_test(nested),          cmocka_unit_test(from_any_device),
        cmocka_unit_test(faults),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
