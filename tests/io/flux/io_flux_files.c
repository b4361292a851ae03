/* Flux's BSON files: unknown parts, outlines, and files of real programs. */
#include "test.h"

#include <unistd.h>

#include "flux_reading.h"
#include "io/model/model_file.h"
#include "shared_data.h"

static void copy_message(wb_log_level level, const char *message, void *ctx)
{
    snprintf(ctx, 500, "%s", message);
}

/* ---- unknown parts --------------------------------------------------------------------------- */

static bson_maker with_unknown_parts(void)
{
    bson_maker m = made();
    bm_struct(&m, "Flux.Chain");
    bm_tuple(&m);
    unknown_attention(&m);
    bm_closure(&m, "#7#8"), bm_integer(&m, 3), bm_end(&m);
    bm_function(&m, "Main.#normalise");
    bm_struct(&m, "Flux.Bilinear");
    bm_array(&m, 4, 3, 2, 1, 4), bm_array(&m, 1, 4), bm_function(&m, "NNlib.#relu");
    bm_end(&m);
    bm_struct(&m, "Flux.Dense");
    bm_array(&m, 2, 3, 2), bm_array(&m, 1, 3), bm_function(&m, "NNlib.#unheard");
    bm_end(&m);
    bm_struct(&m, "Flux.MaxPool");
    bm_integers(&m, 4, 2, 2, 2, 2), bm_integers(&m, 4, 0, 0, 0, 0),
        bm_integers(&m, 4, 2, 2, 2, 2);
    bm_end(&m);
    bm_end(&m);
    return m;
}

typedef struct { int n; char listed[1000]; wb_layer *last; bool all; } offers;

static wb_layer *offered(const wb_unknown *part, void *ctx)
{
    offers *o = ctx;
    size_t n = strlen(o->listed);
    o->n++;
    snprintf(o->listed + n, sizeof o->listed - n, "%s: %s\n", part->path, part->type);
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
    if (!strcmp(part->type, "Bilinear"))
        assert_string_equal(wb_describe(wb_get(part->fields, "weight")), "[4,1,2,3] f32");
    return o->all && strcmp(part->type, "DNC.State") ? wb_layer_from_function(wb_square) : NULL;
}

TEST_IN_SCOPE(unknown_parts)
{
    bson_maker m = with_unknown_parts();
    assert_null(load_with(&m, NULL));
    assert_int_equal(wb_error_code(), WB_ERROR_FORMAT);
    assert_true(HAS_LINE(wb_error(), "made.bson", "7", "\"model\""));
    assert_true(HAS_LINE(wb_error(), "\"layers.0\"", "Main.Attention", "6", "fields"));
    assert_true(HAS_LINE(wb_error(), "\"layers.0.5\"", "DNC.State", "1", "field"));
    assert_true(HAS_LINE(wb_error(), "\"layers.1\"", "closure", "#7#8", "1", "field"));
    assert_true(HAS_LINE(wb_error(), "\"layers.2\"", "function", "Main.normalise"));
    assert_true(HAS_LINE(wb_error(), "\"layers.3\"", "Bilinear", "3", "fields"));
    assert_true(HAS_LINE(wb_error(), "\"layers.4.activation\"", "function", "NNlib.unheard"));
    assert_true(HAS_LINE(wb_error(), "\"layers.5\"", "MaxPool", "3", "fields", "k", "axes"));

    offers o = {0};
    m = with_unknown_parts();
    const wb_load_options all = WB_OPTIONS_OF(wb_load_options, .substitute = offered, .ctx = &o);
    assert_null(load_with(&m, &all));
    assert_true(HAS_LINE(wb_error(), "5", "\"model\""));
    assert_null(strstr(wb_error(), "Attention"));
    assert_null(strstr(wb_error(), "DNC.State"));
    assert_int_equal(o.n, 7);
    assert_string_equal(o.listed,
                        "layers.0.5: DNC.State\nlayers.0: Main.Attention\nlayers.1: closure #7#8\n"
                        "layers.2: function Main.normalise\nlayers.3: Bilinear\n"
                        "layers.4.activation: function NNlib.unheard\nlayers.5: MaxPool\n");

    o = (offers){.all = true};
    m = with_unknown_parts();
    wb_layer *l = load_with(&m, &all);
    if (!l) fail_msg("%s", wb_error());
    assert_string_equal(
        printed(l),
        "Chain(Dense(2 => 3, relu), square, square, square, Dense(2 => 3, square), square)");
}

/* A closure without captured values is read as Flatten where it is between a layer of images and a
 * Dense whose inputs the channels divide.  Elsewhere it is unknown. */
TEST_IN_SCOPE(flattening_closures)
{
    static const char *const texts[] = {"Flatten()", NULL, NULL, NULL};
    wb_set_log(copy_message, (char[500]){0});
    for (int wrong = 0; wrong < 4; wrong++) {
        bson_maker m = made();
        bm_struct(&m, "Flux.Chain");
        bm_tuple(&m);
        if (wrong == 3) dense_fields(&m, "NNlib.#relu");        /* no images */
        else conv_fields(&m, "Flux.Conv", 1);
        bm_closure(&m, "#1#2");
        if (wrong == 2) bm_integer(&m, 1);                      /* it captures a value */
        bm_end(&m);
        bm_function(&m, "NNlib.#relu");
        bm_struct(&m, "Flux.Dense");
        bm_array(&m, 2, 3, wrong == 1 ? 9 : 8);                 /* 4 channels do not divide 9 */
        bm_array(&m, 1, 3);
        bm_function(&m, "Base.#identity");
        wb_layer *l = load_with(&m, NULL);
        if (texts[wrong]) assert_string_equal(printed(wb_layer_at(l, "layers.1")), texts[wrong]);
        else assert_null(l), assert_true(HAS_LINE(wb_error(), "\"layers.1\"", "closure", "#1#2"));
    }
    wb_set_log(NULL, NULL);
}

TEST(from_a_gpu)
{
    static const char *const types[] = {"CuArrays.CuArray", "CUDA.CuArray", "AMDGPU.ROCArray",
                                        "Metal.MtlArray"};
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
            assert_true(HAS_LINE(wb_error(), types[i]));
            assert_true(HAS_LINE(wb_error(), "cpu(model)"));
            bm_free(&m);
        }
}

static wb_layer *keyed(bson_maker *m, const char *key)
{
    const wb_load_options o = WB_OPTIONS_OF(wb_load_options, .key = key);
    return load_with(m, &o);
}

TEST_IN_SCOPE(variables)
{
    for (int n = 0; n < 3; n++) {
        bson_maker m = {0};
        bm_document(&m);
        bm_key(&m, "acc"), bm_real(&m, 0.5);
        bm_key(&m, "encoder"), dense_fields(&m, "NNlib.#relu");
        if (n) bm_key(&m, "decoder"), dense_fields(&m, "NNlib.#tanh");
        const wb_load_options o = WB_OPTIONS_OF(wb_load_options, .key = "decoder");
        wb_layer *l = load_with(&m, n < 2 ? NULL : &o);
        if (n != 1)
            assert_string_equal(printed(l), n ? "Dense(2 => 3, tanh)" : "Dense(2 => 3, relu)");
        else assert_null(l), assert_true(HAS_LINE(wb_error(), ".key", "acc", "encoder", "decoder"));
    }
    bson_maker m = made();
    dense_fields(&m, "NNlib.#relu");
    assert_null(keyed(&m, "net"));
    assert_true(HAS_LINE(wb_error(), "variable", "\"net\"", "model"));
    m = made();
    bm_array(&m, 2, 3, 2);
    assert_null(load_with(&m, NULL));
    assert_true(HAS_LINE(wb_error(), "\"model\"", "Array{Float32,2}", "layers", "wb_load_state"));
}

/* A dictionary with an epoch and `layers` models.  Its keys are Symbols, or with `text` strings,
 * which BSON.jl writes as a struct Base.Dict. */
static bson_maker dictionary(bool text, int layers)
{
    static const char *const names[] = {"model", "critic"};
    bson_maker m = {0};
    bm_document(&m);
    bm_key(&m, "checkpoint");
    if (text) {
        bm_struct(&m, "Base.Dict");
        bm_list(&m);
        bm_text(&m, "epoch");
        for (int i = 0; i < layers; i++) bm_text(&m, names[i]);
        bm_close(&m);
        bm_list(&m);
    } else {
        bm_document(&m);
        bm_key(&m, "epoch");
    }
    bm_integer(&m, 3);
    for (int i = 0; i < layers; i++) {
        if (!text) bm_key(&m, names[i]);
        dense_fields(&m, i ? "NNlib.#tanh" : "NNlib.#relu");
    }
    bm_close(&m);
    if (text) bm_end(&m);
    return m;
}

/* Models inside dictionaries, tuples and structs of the program that saved them. */
TEST_IN_SCOPE(models_in_other_things)
{
    for (int text = 0; text < 2; text++)
        for (int layers = 1; layers < 3; layers++) {
            bson_maker m = dictionary(text, layers);
            expect_layer(&m, "Dense(2 => 3, relu)");
            m = dictionary(text, layers);
            wb_layer *l = keyed(&m, "checkpoint.model");
            assert_string_equal(l ? printed(l) : wb_error(), "Dense(2 => 3, relu)");
            m = dictionary(text, 2);
            assert_string_equal(printed(keyed(&m, "checkpoint.critic")), "Dense(2 => 3, tanh)");
        }
    bson_maker m = dictionary(false, 1);
    assert_null(keyed(&m, "checkpoint.no"));
    assert_true(HAS_LINE(wb_error(), "variable", "\"checkpoint.no\"", "checkpoint"));
    for (int own = 0; own < 2; own++)
        for (int key = 0; key < 2; key++) {
            m = made();
            if (own) bm_struct(&m, "Main.Agent");
            else bm_tuple(&m);
            dense_fields(&m, "NNlib.#relu"), dense_fields(&m, "NNlib.#tanh");
            bm_end(&m);
            wb_layer *l = keyed(&m, key ? "model.1" : NULL);
            if (key) assert_string_equal(printed(l), "Dense(2 => 3, tanh)");
            else assert_null(l), assert_true(HAS_LINE(wb_error(), "layers", ".key", "\"model.0\"",
                                                      "\"model.1\""));
        }
    m = (bson_maker){0};                            /* an optimiser next to it is no layer */
    bm_document(&m), bm_key(&m, "net"), dense_fields(&m, "NNlib.#relu");
    bm_key(&m, "opt"), bm_struct(&m, "Flux.Optimise.ADAM"), bm_real(&m, 0.1), bm_end(&m);
    expect_layer(&m, "Dense(2 => 3, relu)");
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

/* The share of MNIST's test images that the model classifies correctly; its first outputs must
 * equal `logits`.  The two models below were trained on transposed images. */
static double accuracy(wb_layer *model, const float *logits)
{
    char images[1024], labels[1024];
    if (!shared_file(images, sizeof images, "mnist-t10k/t10k-images-idx3-ubyte.gz") ||
        !shared_file(labels, sizeof labels, "mnist-t10k/t10k-labels-idx1-ubyte.gz")) skip();
    wb_tensor *x = wb_load_idx_tensor(images), *y = wb_load_idx_tensor(labels);
    x = wb_div(wb_astype(wb_permute(x, 0, 2, 1), WB_F32), wb_scalar(255));
    x = wb_reshape(x, 10000, 1, 28, 28);
    int right = 0;
    for (int at = 0; at < 10000; at += 1000) IN_SCOPE {
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
    }
    return right / 1e4;
}

TEST_IN_SCOPE(a_model_of_2020)
{
    static const float logits[10] = {-7.4504f, -3.0844f, 1.2763f, -2.1351f, -13.6553f,
                                     -13.4810f, -32.2989f, 15.9946f, -7.9445f, 0.9139f};
    char message[500] = "";
    wb_set_log(copy_message, message);
    wb_layer *model = load_real("juliacon2020-model_conv.bson", NULL);
    wb_set_log(NULL, NULL);
    if (!model) fail_msg("%s", wb_error());
    assert_true(HAS_FACTS(message, "\"layers.6\"", "closure", "#3#4", "Flatten"));
    wb_layer *parts[8];
    for (int i = 0; i < 8; i++) {
        char path[16];
        snprintf(path, sizeof path, "layers.%d", i);
        parts[i] = wb_layer_at(model, path);
    }
    /* Layers 0 to 7 are the model without its softmax. */
    assert_true(accuracy(wb_Chain_array(8, parts), logits) == 0.9874);
}

/* A file with a list of parameters, loaded into a model of the same architecture. */
TEST_IN_SCOPE(parameters_of_2020)
{
    static const float logits[10] = {-9.7769f, -7.1424f, -0.6834f, 0.4824f, -9.8856f,
                                     -10.2815f, -31.9557f, 21.3716f, -11.3518f, 1.4664f};
    if (!shared_file(real_path, sizeof real_path, "flux-models/tetsugps-mnist_conv.bson")) skip();
    wb_layer *model = wb_Chain(
        wb_Conv(1, 16, {3}, wb_relu, .pad = {1}, .flip = true),
        wb_MaxPool(.window = {2}),
        wb_Conv(16, 32, {3}, wb_relu, .pad = {1}, .flip = true),
        wb_MaxPool(.window = {2}),
        wb_Conv(32, 32, {3}, wb_relu, .pad = {1}, .flip = true),
        wb_MaxPool(.window = {2}), wb_flatten, wb_Dense(.in = 288, .out = 10));
    wb__mapping *m = wb__map(real_path);
    wb__table t;
    assert_int_equal(wb__flux_table(m, NULL, &t), 0);
    assert_int_equal(wb__flux_name_params(&t, m->path, model), 0);
    const wb__state_load how = {.path = m->path, .names = WB_NAMES_WEBER};
    assert_int_equal(wb__load_values(&t, &how, model), 0);
    wb__table_free(&t);
    wb__unmap(m);
    assert_true(accuracy(model, logits) == 0.9928);
}

TEST_IN_SCOPE(other_real_files)
{
    wb_layer *l = load_real("arcaman07-dense.bson", NULL);
    assert_string_equal(printed(l), "Dense(13 => 1)");
    l = load_real("psuskin-model.bson", NULL);
    assert_string_equal(
        printed(l), "Chain(Dense(6 => 100, relu), Dense(100 => 75, relu), Dense(75 => 25, relu), "
                    "Dense(25 => 10, relu), Dense(10 => 1))");
    assert_null(load_real("sjrodahl-dnc.bson", NULL));
    assert_true(HAS_LINE(wb_error(), "\"cell\"", "DNC.DNCCell", "9", "fields"));
    assert_true(HAS_LINE(wb_error(), "\"cell.8\"", "DNC.State", "5", "fields"));
    assert_true(HAS_LINE(wb_error(), "\"model\"", "Recur", "3", "fields", "cell", "DNC.DNCCell"));
}

static int row_to_text(const wb__flux_row *row, void *ctx)
{
    char *out = ctx;
    size_t n = strlen(out);
    snprintf(out + n, 4000 - n, "%*s%s %s%s%s\n", row->depth, "", row->name, row->type,
             row->value ? " " : "", row->value ? row->value : "");
    return 0;
}

TEST(outlines)
{
    char text[4000] = "";
    bson_maker m = made();
    bm_struct(&m, "Flux.Chain");
    bm_tuple(&m);
    conv_fields(&m, "Flux.Conv", 1);
    bm_closure(&m, "#7#8"), bm_end(&m);
    bm_function(&m, "NNlib.#softmax");
    unknown_attention(&m);
    bm_end(&m), bm_end(&m);
    bm_key(&m, "acc"), bm_real(&m, 0.5);
    wb__mapping map = mapped(&m);
    assert_int_equal(wb__flux_outline(&map, row_to_text, text), 0);
    assert_string_equal(
        text, "model Chain\n 0 Conv relu\n  weight Array{Float32,4}\n  bias Array{Float32,1}\n"
              " 1 closure #7#8\n 2 function NNlib.softmax\n 3 Main.Attention\n  0 Dense relu\n"
              "   weight Array{Float32,2}\n   bias Array{Float32,1}\n  1 Array{Float32,2}\n"
              "  2 Int64 7\n  3 function Base.tanh\n  4 Tuple\n   1 Array{Float32,1}\n"
              "  5 DNC.State\n   0 Array{Float32,1}\nacc Float64 0.5\n");
    bm_free(&m);
}

int main(void)
{
    if (!reads_bson()) return 0;
    return run_all_cases();
}
