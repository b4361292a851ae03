/* Low-rank adapters: values, gradients against differences, training, merging, and files of
 * adapters alone. */
#include "golden.h"
#include "reference.h"

#include "weber/adapt.h"

#include <unistd.h>

static double apart(wb_tensor *x, wb_tensor *y)
{
    MADE(x);
    MADE(y);
    return wb_item(wb_max(wb_abs(wb_sub(wb_astype(x, WB_F32), wb_astype(y, WB_F32)))));
}

/* The layers that can have an adapter, with an input. */
typedef struct { const char *name; wb_layer *layer; wb_tensor *x; } adapted;
enum { KINDS = 8 };
static adapted kind(int i)
{
    wb_tensor *words = wb_from((int32_t[]){4, 0, 2, 2}, WB_I32, 2, (int64_t[]){2, 2});
    switch (i) {
    case 0: return (adapted){"Dense", wb_Dense(6, 5, wb_tanh), wb_randn(2, 3, 6)};
    case 1: return (adapted){"Dense without bias", wb_Dense(6, 5, .bias = false), wb_randn(4, 6)};
    case 2: return (adapted){"Embedding", wb_Embedding(5, 4), words};
    case 3: return (adapted){"Conv", wb_Conv(2, 4, {3}, wb_tanh, .pad = {1}), wb_randn(1, 2, 5, 5)};
    case 4: return (adapted){"grouped Conv", wb_Conv(4, 4, {3}, .groups = 2),
                             wb_randn(1, 4, 5, 5)};
    case 5: return (adapted){"Conv1d", wb_Conv1d(2, 4, {3}), wb_randn(1, 2, 6)};
    case 6: return (adapted){"ConvTranspose", wb_ConvTranspose(4, 2, {3}), wb_randn(1, 4, 3, 3)};
    default: return (adapted){"Quantized", wb_quantize(wb_Dense(64, 5, wb_tanh)),
                              wb_randn(4, 64)};
    }
}

/* It gives what the layer gives, until b changes; then it computes with the weight plus the
 * change. */
TEST_IN_SCOPE(values)
{
    for (int i = 0; i < KINDS; i++) {
        const adapted k = kind(i);
        wb_tensor *y = wb_keep(wb_call(k.layer, k.x));
        MADE(y);
        wb_layer *l = wb_LoRA(k.layer, .rank = 2, .alpha = 6);
        MADE(l);
        if (!k.x || apart(wb_call(l, k.x), y) != 0) fail_msg("%s: differs at first", k.name);
        wb_tensor *b = wb_get(l, "b"), *a = wb_get(l, "a");
        assert_int_equal(wb_dim(a, 0), 2);
        assert_int_equal(wb_dim(b, 1), 2);
        WORKS(wb_set(l, "b", wb_mul(wb_randn_array(WB_F32, 2, wb_dims(b)), 0.3)));
        b = wb_get(l, "b");
        wb_tensor *z = wb_call(l, k.x);
        if (apart(z, y) < 1e-3) fail_msg("%s: no change", k.name);
        if (i == KINDS - 1) continue;
        wb_tensor *w = wb_get(k.layer, "weight");
        wb_tensor *sum = wb_add(w, wb_reshape_array(wb_mul(wb_matmul(b, a), 3), wb_ndim(w),
                                                    wb_dims(w)));
        wb_layer *merged = wb_merge_lora(l);
        MADE(merged);
        assert_string_equal(merged->type->name, k.layer->type->name);
        assert_true(apart(wb_get(merged, "weight"), sum) < 1e-5);
        if (apart(wb_call(merged, k.x), z) > 1e-5) fail_msg("%s: merged differs", k.name);
        WORKS(wb_set(k.layer, "weight", sum));
        if (apart(wb_call(k.layer, k.x), z) > 1e-5) fail_msg("%s: another sum", k.name);
    }
}

static wb_tensor *loss_of(wb_layer *l, wb_tensor *x)
{
    wb_tensor *y = wb_call(l, x);
    MADE(y);
    return wb_sum(wb_mul(y, wb_sin(wb_reshape_array(wb_arange(wb_size(y), WB_F32), wb_ndim(y),
                                                    wb_dims(y)))));
}

/* Each number of a and b: the gradient equals the difference of the loss; nothing else has one. */
TEST_IN_SCOPE(gradients)
{
    for (int i = 0; i < KINDS; i++) {
        const adapted k = kind(i);
        wb_layer *l = wb_LoRA(k.layer, .rank = 2, .alpha = 3);
        MADE(l);
        WORKS(wb_set(l, "b", wb_randn_array(WB_F32, 2, wb_dims(wb_get(l, "b")))));
        wb_tree *g = wb_gradient(loss_of(l, k.x), l);
        MADE(g);
        assert_true(wb_is_none(wb_get(g, i == KINDS - 1 ? "layer.layer.weight" : "layer.weight")));
        for (int part = 0; part < 2; part++) {
            const char *name = part ? "b" : "a";
            wb_tensor *x = wb_get(l, name), *got = wb_get(g, name);
            const int64_t n = wb_size(x);
            float *values = malloc((size_t)n * sizeof *values);
            WORKS(wb_copy_out(x, values, (size_t)n * sizeof *values));
            for (int64_t e = 0; e < n; e++) {
                double at[2];
                const float was = values[e], h = 5e-3f;
                for (int side = 0; side < 2; side++) {
                    values[e] = side ? was + h : was - h;
                    WORKS(wb_assign(x, wb_from(values, WB_F32, 2, wb_dims(x))));
                    at[side] = wb_item(loss_of(l, k.x));
                }
                values[e] = was;
                const double slope = (at[1] - at[0]) / (2 * (double)h);
                const double found = wb_item(wb_reshape(wb_slice(wb_reshape(got, -1), 0, e, e + 1),
                                                        1));
                if (fabs(slope - found) > 2e-2 * (1 + fabs(slope)))
                    fail_msg("%s: %s[%lld]: %g, the difference is %g", k.name, name, (long long)e,
                             found, slope);
            }
            WORKS(wb_assign(x, wb_from(values, WB_F32, 2, wb_dims(x))));
            free(values);
        }
    }
}

static wb_layer *encoder(void)
{
    return wb_Chain(wb_Embedding(11, 64), wb_MultiHeadAttention(64, 2, .bias = true),
                    wb_LayerNorm({64}), wb_Dense(64, 64, wb_gelu), wb_Dense(64, 3));
}
static wb_tensor *sentence(void)
{
    return wb_from((int32_t[]){1, 5, 10, 0, 7, 7, 3, 2}, WB_I32, 2, (int64_t[]){2, 4});
}

static int is_adapter(wb_tensor *x, const char *path, void *count)
{
    const size_t n = strlen(path);
    assert_true(path[n - 2] == '.' && (path[n - 1] == 'a' || path[n - 1] == 'b'));
    ++*(int *)count;
    return 0;
}

/* Adapters in a whole model: all else is frozen. */
TEST_IN_SCOPE(whole_model)
{
    wb_layer *m = encoder();
    wb_tensor *x = sentence(), *y = wb_keep(wb_call(m, x));
    wb_layer *l = wb_add_lora(m, .rank = 2);
    MADE(l);
    assert_true(apart(wb_call(l, x), y) < 1e-5);        /* projections are one product, or three */
    int count = 0;
    WORKS(wb_each_parameter(l, is_adapter, &count));
    assert_int_equal(count, 12);
    assert_int_equal(wb_parameter_count(m), 0);
    assert_ptr_equal(wb_get(l, "layers.3.layer.weight"), wb_get(m, "layers.3.weight"));
    char *text = wb_object_format(l);
    assert_true(strstr(text, "LoRA(Dense(64 => 64, gelu); rank=2),"));
    wb_free_text(text);

    m = encoder();
    l = wb_add_lora(m, "*.q_proj *.v_proj layers.0", .rank = 1, .alpha = 0.5, .train = "layers.4");
    MADE(l);
    assert_string_equal(wb_layer_at(l, "layers.0")->type->name, "LoRA");
    assert_string_equal(wb_layer_at(l, "layers.1.q_proj")->type->name, "LoRA");
    assert_string_equal(wb_layer_at(l, "layers.1.k_proj")->type->name, "Dense");
    assert_int_equal(wb_parameter_count(l), (11 + 64) + 2 * 128 + (64 * 3 + 3));
    wb_layer *twice = wb_Dense(4, 4), *both = wb_add_lora(wb_Chain(twice, twice), .rank = 1);
    assert_ptr_equal(wb_layer_at(both, "layers.0"), wb_layer_at(both, "layers.1"));
    MADE(wb_add_lora(wb_tuple(wb_Dense(2, 2), wb_Dense(2, 3)), .rank = 1));
}

static double train(wb_layer *l, wb_tensor *x, wb_tensor *target, int steps)
{
    wb_opt_state *s = wb_setup(wb_Adam(0.02), l);
    MADE(s);
    double last = 0;
    for (int i = 0; i < steps; i++) {
        wb_tensor *loss = wb_mse(wb_call(l, x), target);
        MADE(loss);
        WORKS(wb_update(s, l, wb_gradient(loss, l)));
        last = wb_item(loss);
    }
    return last;
}

typedef struct { wb_layer *model; wb_opt_state *state; } step_of;
static int step(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx)
{
    step_of *s = ctx;
    outputs[0] = wb_mse(wb_call(s->model, inputs[0]), inputs[1]);
    return outputs[0] && !wb_update(s->state, s->model, wb_gradient(outputs[0], s->model)) ? 1 : -1;
}

/* Training changes the adapters alone, also behind wb_compile, and also of a quantised model. */
TEST_IN_SCOPE(trained)
{
    for (int i = 0; i < 2; i++) {
        wb_layer *m = i ? wb_quantize(encoder()) : encoder();
        wb_tensor *x = sentence(), *target = wb_keep(wb_randn(2, 4, 3));
        const char *name = i ? "layers.3.layer.bias" : "layers.3.bias";
        wb_tensor *before = wb_keep(wb_add(wb_get(m, name), 0)), *y = wb_keep(wb_call(m, x));
        WORKS(wb_eval(before, y, target));
        wb_layer *l = wb_add_lora(m, .rank = 4, .alpha = 8);
        MADE(l);
        const double first = wb_item(wb_mse(wb_call(l, x), target));
        assert_true(train(l, x, target, 80) < 0.5 * first);
        assert_true(apart(wb_get(m, name), before) == 0);
        assert_true(apart(wb_call(m, x), y) == 0);
        step_of s = {l, wb_setup(wb_Adam(0.01), l)};
        wb_compiled *f = wb_compile(step, &s);
        double loss = 0;
        for (int k = 0; k < 5; k++) {
            wb_tensor *out;
            WORKS(wb_call_compiled(f, 2, (wb_tensor *[]){x, target}, 1, &out));
            loss = wb_item(out);
        }
        assert_true(loss < 0.5 * first);
        if (i) {
            REFUSED(wb_merge_lora(l), WB_ERROR_UNSUPPORTED, "quantised", "wb_quantize");
            continue;
        }
        wb_tensor *z = wb_keep(wb_call(l, x));
        wb_layer *merged = wb_merge_lora(l);
        MADE(merged);
        assert_true(apart(wb_call(merged, x), z) < 1e-4);
        assert_string_equal(wb_layer_at(merged, "layers.1.q_proj")->type->name, "Dense");
        MADE(wb_quantize(l));
        assert_string_equal(wb_layer_at(wb_quantize(l), "layers.3.layer")->type->name, "Quantized");
    }
}

/* Attention with a cache, step by step, computes what it computes at once. */
TEST_IN_SCOPE(cached)
{
    for (int i = 0; i < 3; i++) {
        wb_layer *m = wb_Chain(wb_MultiHeadAttention(64, 2, .causal = true, .bias = true));
        if (i) m = wb_quantize(m);
        if (i != 1) m = wb_add_lora(m, .rank = 2);
        MADE(m);
        if (i != 1) WORKS(wb_set(m, "layers.0.k_proj.b", wb_randn(64, 2)));
        wb_tensor *x = wb_randn(2, 4, 64), *whole = wb_keep(wb_call(m, x));
        wb_tree *cache = wb_attention_cache(m, 2, 4);
        MADE(cache);
        for (int64_t t = 0; t < 4; t++) {
            wb_tensor *y = wb_call_cached(m, cache, wb_slice(x, 1, t, t + 1));
            assert_true(apart(y, wb_slice(whole, 1, t, t + 1)) < 1e-4);
        }
    }
}

/* Dropout of the adapter's input, in train mode only. */
TEST_IN_SCOPE(dropped)
{
    wb_layer *l = wb_LoRA(wb_Dense(4, 4), .rank = 2, .dropout = 0.5);
    wb_tensor *x = wb_randn(3, 4);
    WORKS(wb_set(l, "b", wb_ones(4, 2)));
    assert_true(apart(wb_call(l, x), wb_call(l, x)) == 0);
    wb_trainmode(l);
    assert_true(apart(wb_call(l, x), wb_call(l, x)) > 0);
    wb_testmode(l);
    assert_true(apart(wb_call(l, x), wb_call(wb_merge_lora(l), x)) < 1e-5);
}

/* ---- files ----------------------------------------------------------------------------------- */

TEST_IN_SCOPE(whole_files)
{
    const char *path = test_file("lora.safetensors");
    wb_tensor *x = sentence();
    for (int i = 0; i < 4; i++) {
        wb_layer *m = i % 2 ? wb_quantize(encoder()) : encoder();
        wb_layer *l = wb_add_lora(m, .rank = 2, .alpha = 3, .dropout = i > 1 ? 0.1 : 0);
        WORKS(wb_set(l, "layers.1.v_proj.b", wb_randn(64, 2)));
        WORKS(wb_save(path, l));
        wb_layer *back = wb_load(path);
        MADE(back);
        wb_each_tensor(l, same_bits_in, back);
        wb_each_tensor(back, same_bits_in, l);
        char *a = wb_object_format(l), *b = wb_object_format(back);
        assert_true(strlen(a) > 100 && strlen(b) > 100);
        wb_free_text(a);
        wb_free_text(b);
        assert_true(apart(wb_call(l, x), wb_call(back, x)) == 0);
        assert_string_equal(wb_layer_at(back, "layers.1.v_proj")->type->name, "LoRA");
    }
    unlink(path);
}

static int64_t size_of(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    const long n = ftell(f);
    fclose(f);
    return n;
}

/* A file of adapters alone, loaded onto the base again. */
TEST_IN_SCOPE(adapter_files)
{
    const char *base_path = test_file("base.safetensors"), *path = test_file("alone.safetensors");
    wb_layer *m = wb_Chain(wb_Dense(64, 64, wb_relu), encoder());
    WORKS(wb_save(base_path, m));
    wb_tensor *x = wb_randn(5, 64), *words = sentence();
    wb_layer *l = wb_add_lora(m, "layers.0 *.q_proj layers.1.layers.0", .rank = 2, .alpha = 5,
                              .train = "layers.1.layers.4");
    MADE(l);
    WORKS(wb_set(l, "layers.0.b", wb_randn(64, 2)));
    WORKS(wb_set(l, "layers.1.layers.1.q_proj.b", wb_randn(64, 2)));
    WORKS(wb_set(l, "layers.1.layers.4.bias", wb_randn(3)));
    WORKS(wb_save_lora(path, l));
    assert_true(size_of(path) < size_of(base_path) / 4);
    wb_layer *base = wb_load(base_path), *back = wb_load_lora(path, base);
    MADE(back);
    wb_each_tensor(l, same_bits_in, back);
    wb_each_tensor(back, same_bits_in, l);
    assert_int_equal(wb_parameter_count(l), wb_parameter_count(back));
    for (int i = 0; i < 2; i++) {
        wb_layer *a = wb_layer_at(l, i ? "layers.1" : "layers.0"),
                 *b = wb_layer_at(back, i ? "layers.1" : "layers.0");
        assert_true(apart(wb_call(a, i ? words : x), wb_call(b, i ? words : x)) == 0);
    }
    /* onto a quantised base too */
    base = wb_load(base_path);
    assert_true(wb_load_lora(path, wb_quantize(base, .layers = "layers.0")) != NULL);

    /* other bases */
    wb_layer *small = wb_Chain(wb_Dense(64, 32, wb_relu), encoder());
    REFUSED(wb_load_lora(path, small), WB_ERROR_FORMAT, "\"layers.0.b\"", "[64,2] f32",
            "[32,2] f32");
    wb_layer *other = wb_Chain(wb_Dense(64, 64, wb_relu), wb_Dense(64, 2));
    REFUSED(wb_load_lora(path, other), WB_ERROR_FORMAT, path, "\"layers.1.layers.0\"");
    wb_layer *kinds = wb_Chain(wb_LayerNorm({64}), encoder());
    REFUSED(wb_load_lora(path, kinds), WB_ERROR_FORMAT, "\"layers.0\"", "LayerNorm");
    REFUSED(wb_load_lora(base_path, base), WB_ERROR_FORMAT, base_path, "wb_save_lora");
    REFUSED(wb_load_lora(WB_TEST_NOWHERE "/x.safetensors", base), WB_ERROR_FILE,
            WB_TEST_NOWHERE "/x.safetensors");
    REFUSED(wb_load_lora(path, (wb_layer *)NULL), WB_ERROR_ARGUMENT, "NULL");
    FAILS(wb_save_lora(path, base), WB_ERROR_ARGUMENT, "save_lora", "wb_add_lora");
    FAILS(wb_save_lora("x.npz", l), WB_ERROR_ARGUMENT, "x.npz", ".safetensors");
    unlink(path);
    unlink(base_path);
}

/* Factors that several adapters share are in the file once, and shared again. */
TEST_IN_SCOPE(files_of_tied_adapters)
{
    const char *path = test_file("tied.safetensors"), *base_path = test_file("once.safetensors");
    wb_layer *shared = wb_Dense(4, 4);
    wb_layer *m = wb_Chain(wb_Dense(4, 4), shared, wb_Dense(4, 4), shared);
    wb_tensor *x = wb_randn(3, 4);
    WORKS(wb_save(base_path, m));
    wb_layer *l = wb_add_lora(m, .rank = 2, .alpha = 3);
    MADE(l);
    WORKS(wb_set(l, "layers.0.b", wb_randn(4, 2)));
    WORKS(wb_set(l, "layers.1.b", wb_randn(4, 2)));
    WORKS(wb_tie(l, "layers.2.b", "layers.0.b"));
    WORKS(wb_tie(l, "layers.1.a", "layers.0.a"));
    WORKS(wb_tie(l, "layers.2.a", "layers.0.a"));
    WORKS(wb_save_lora(path, l));
    wb_tree *tensors = wb_load_tensors(path);
    MADE(tensors);
    assert_null(wb_get(tensors, "layers.1.a"));
    wb_clear_error();
    /* The layer that m has twice is two layers of tied tensors in the file of m. */
    wb_layer *bases[2] = {m, wb_load(base_path)};
    for (int i = 0; i < 2; i++) {
        wb_layer *back = wb_load_lora(path, bases[i]);
        MADE(back);
        assert_ptr_equal(wb_get(back, "layers.1.a"), wb_get(back, "layers.0.a"));
        assert_ptr_equal(wb_get(back, "layers.2.b"), wb_get(back, "layers.0.b"));
        assert_ptr_equal(wb_get(back, "layers.3.b"), wb_get(back, "layers.1.b"));
        assert_true(wb_get(back, "layers.1.b") != wb_get(back, "layers.0.b"));
        assert_int_equal(wb_parameter_count(back), wb_parameter_count(l));
        assert_true(apart(wb_call(back, x), wb_call(l, x)) == 0);
    }
    wb_layer *other = wb_Chain(wb_Dense(4, 4), shared, wb_Dense(4, 3), wb_Dense(3, 4));
    REFUSED(wb_load_lora(path, other), WB_ERROR_SHAPE, path, "layers.2.b");
    REFUSED(wb_load(path), WB_ERROR_FORMAT, path, "wb_load_lora");
    unlink(path);
    unlink(base_path);
}

/* Adapters that a second wb_add_lora froze are saved with those that it made. */
TEST_IN_SCOPE(files_of_frozen_adapters)
{
    const char *path = test_file("frozen.safetensors");
    wb_layer *m = wb_Chain(wb_Dense(4, 4), wb_Dense(4, 4));
    wb_tensor *x = wb_randn(3, 4);
    wb_layer *first = wb_add_lora(m, "layers.0", .rank = 2);
    WORKS(wb_set(first, "layers.0.b", wb_randn(4, 2)));
    wb_layer *both = wb_add_lora(first, "layers.1", .rank = 1);
    WORKS(wb_set(both, "layers.1.b", wb_randn(4, 1)));
    WORKS(wb_save_lora(path, both));
    wb_layer *back = wb_load_lora(path, m);
    MADE(back);
    assert_true(apart(wb_call(back, x), wb_call(both, x)) == 0);
    unlink(path);
}

/* Without .alpha the factor is 1; .alpha = 0 is 0, also in a file. */
TEST_IN_SCOPE(alpha_of_zero)
{
    const char *path = test_file("zero.safetensors");
    wb_layer *d = wb_Dense(4, 4);
    wb_tensor *x = wb_randn(3, 4), *y = wb_keep(wb_call(d, x));
    wb_layer *plain = wb_LoRA(d, .rank = 2), *none = wb_LoRA(d, .rank = 2, .alpha = 0);
    wb_layer *same = wb_LoRA(d, .rank = 2, .alpha = WB_DEFAULT);
    wb_layer *layers[] = {plain, same, none, wb_add_lora(d, .rank = 2, .alpha = 0)};
    for (int i = 0; i < 4; i++) {
        wb_layer *l = layers[i];
        MADE(l);
        WORKS(wb_set(l, "b", wb_ones(4, 2)));
        WORKS(wb_set(l, "a", wb_ones(2, 4)));
        wb_tensor *change = wb_mul(wb_sum(x, .axes = {1}, .keep = true), i < 2 ? 2 : 0);
        assert_true(apart(wb_call(l, x), wb_add(y, change)) < 1e-5);
        char *text = wb_object_format(l);
        assert_int_equal(strstr(text, "alpha=0") != NULL, i > 1);
        wb_free_text(text);
    }
    WORKS(wb_save_lora(path, none));
    wb_layer *back = wb_load_lora(path, d);
    MADE(back);
    assert_true(apart(wb_call(back, x), y) == 0);
    unlink(path);
}

/* A LoRA, a Quantized and both count as one layer, and have one. */
TEST_IN_SCOPE(counts_of_layers)
{
    wb_layer *m = wb_Chain(wb_Dense(64, 64), wb_Dense(64, 4), wb_relu), *q = wb_quantize(m);
    wb_layer *l = wb_add_lora(m, .rank = 1), *both = wb_add_lora(q, .rank = 1);
    assert_int_equal(wb_layer_count(m), 3);
    assert_int_equal(wb_layer_count(q), 3);
    assert_int_equal(wb_layer_count(l), 3);
    assert_int_equal(wb_layer_count(both), 3);
    assert_int_equal(wb_layer_count(wb_layer_at(m, "layers.0")), 0);
    assert_int_equal(wb_layer_count(wb_layer_at(q, "layers.0")), 1);
    assert_int_equal(wb_layer_count(wb_layer_at(l, "layers.0")), 1);
    assert_int_equal(wb_layer_count(wb_layer_at(both, "layers.0")), 1);
}

TEST_IN_SCOPE(wrong_layers)
{
    REFUSED(wb_LoRA(wb_MultiHeadAttention(4, 2)), WB_ERROR_ARGUMENT, "MultiHeadAttention",
            "wb_add_lora");
    REFUSED(wb_LoRA(wb_LSTM(4, 2)), WB_ERROR_ARGUMENT, "LSTM");
    REFUSED(wb_LoRA(wb_WeightNorm(wb_Dense(4, 2))), WB_ERROR_ARGUMENT, "WeightNorm");
    REFUSED(wb_LoRA(wb_LoRA(wb_Dense(4, 2), .rank = 1)), WB_ERROR_ARGUMENT, "LoRA");
    REFUSED(wb_LoRA(wb_Dense(4, 2), .rank = 5), WB_ERROR_ARGUMENT, "5", "[2,4] f32", "4");
    REFUSED(wb_LoRA(wb_Dense(4, 2), .rank = 0), WB_ERROR_ARGUMENT, "0");
    REFUSED(wb_LoRA(wb_Dense(4, 2)), WB_ERROR_ARGUMENT, "8", "[2,4] f32");
    REFUSED(wb_LoRA(wb_Dense(4, 2), .rank = 1, .dropout = 1), WB_ERROR_ARGUMENT, ".dropout", "1");
    REFUSED(wb_LoRA(wb_Embedding(4, 2), .rank = 1, .dropout = 0.5), WB_ERROR_ARGUMENT, "Embedding",
            ".dropout");
    assert_null(strstr(wb_error(), "a Embedding"));
    REFUSED(wb_LoRA(NULL), WB_ERROR_ARGUMENT, "NULL");
    REFUSED(wb_add_lora(encoder(), "layers.2"), WB_ERROR_ARGUMENT, "\"layers.2\"");
    REFUSED(wb_add_lora(wb_Chain(wb_LayerNorm({4})), .rank = 1), WB_ERROR_ARGUMENT, "no Dense",
            ".layers");
    assert_null(strstr(wb_error(), "any Dense"));
    REFUSED(wb_add_lora(encoder(), .train = "haed"), WB_ERROR_ARGUMENT, ".train", "\"haed\"");
    REFUSED(wb_add_lora(encoder(), "layers.0 nope"), WB_ERROR_ARGUMENT, ".layers", "\"nope\"");
    wb_layer *l = wb_Chain(wb_Dense(64, 64), wb_Dense(2, 2));   /* a rank that is too large */
    REFUSED(wb_add_lora(l, .rank = 8), WB_ERROR_ARGUMENT, "8", "[2,2]");
    assert_int_equal(wb_parameter_count(l), 64 * 64 + 64 + 2 * 2 + 2);      /* nothing is frozen */
    REFUSED(wb_add_lora((wb_tree *)NULL), WB_ERROR_ARGUMENT, "NULL");
    REFUSED(wb_call(wb_LoRA(wb_Dense(4, 2), .rank = 1), wb_zeros(1, 3)), WB_ERROR_SHAPE, "4",
            "[1,3] f32");
}

int main(void)
{
    wb_seed(1);
    after_each_test = ref_forget;
    return run_all_cases();
}
