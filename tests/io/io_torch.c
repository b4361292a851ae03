/* PyTorch's names and conventions, both ways: every layer is saved under the names of PyTorch's
 * state_dict, its values agree with a separate computation, and it loads back with equal bits. */
#include "golden.h"

#include "io/model/load_state.h"

#include <unistd.h>

static const char *file_name(void) { return test_file("torch.safetensors"); }

/* Fills a tensor with random numbers. */
static int draw(wb_tensor *x, const char *path, void *ctx)
{
    int64_t n = wb_ndim(x);
    wb_tensor *r = wb_randn_array(wb_dtype_of(x), (int)n, wb_dims(x));
    assert_int_equal(wb_assign(x, r), 0);
    return 0;
}

/* Saves m with PyTorch's names: the file has exactly the tensors of `names` ("name shape dtype").
 * Loads the file with wb_load, and into `fresh`, a model of the same form: all bits are equal. */
static void both_ways(wb_layer *m, wb_layer *fresh, const char *const *names)
{
    wb__table t;
    if (!m || !fresh) fail_msg("%s", wb_error());
    wb_each_tensor(m, draw, NULL);
    if (wb_save(file_name(), m, .names = WB_NAMES_TORCH)) fail_msg("%s", wb_error());
    if (wb__st_load(file_name(), true, &t)) fail_msg("%s", wb_error());
    int n = 0;
    for (; names[n]; n++) {
        char name[100], *space;
        snprintf(name, sizeof name, "%s", names[n]);
        assert_non_null(space = strchr(name, ' '));
        *space = 0;
        const wb__entry *e = wb__table_find(&t, name);
        if (!e) fail_msg("no %s", name);
        assert_string_equal(wb__entry_describe(e), space + 1);
    }
    if (t.n != n)
        for (int i = 0; i < t.n; i++)
            print_message("%s %s\n", t.entries[i].name, wb__entry_describe(&t.entries[i]));
    assert_int_equal(t.n, n);
    assert_string_equal(wb__table_note(&t, "format"), "pt");
    wb__table_free(&t);

    wb_layer *l = wb_load(file_name());
    if (!l) fail_msg("%s", wb_error());
    wb_each_tensor(m, same_bits_in, l);
    if (wb_load_state(file_name(), fresh, .names = WB_NAMES_TORCH)) fail_msg("%s", wb_error());
    wb_each_tensor(m, same_bits_in, fresh);
    wb_each_tensor(fresh, draw, NULL);
    if (wb_load_state(file_name(), fresh)) fail_msg("%s", wb_error());
    wb_each_tensor(m, same_bits_in, fresh);
    unlink(file_name());
}
#define BOTH_WAYS(layer, ...) both_ways((layer), (layer), (const char *[]){__VA_ARGS__, NULL})

static wb_tensor *beside(wb_tensor *x, wb_tensor *y) { return wb_concat(-1, x, y); }

TEST(every_kind)
{
    wb_name_connection("beside", beside);
    BOTH_WAYS(wb_Dense(4, 2), "weight [2,4] f32", "bias [2] f32");
    BOTH_WAYS(wb_Dense(4, 2, .bias = false, .dtype = WB_F16), "weight [2,4] f16");
    BOTH_WAYS(wb_Conv(4, 6, {3, 2}, .groups = 2), "weight [6,2,3,2] f32", "bias [6] f32");
    BOTH_WAYS(wb_Conv(2, 3, {3, 2}, .flip = true, .dtype = WB_F64), "weight [3,2,3,2] f64",
              "bias [3] f64");
    BOTH_WAYS(wb_ConvTranspose(4, 6, {3, 2}, .groups = 2), "weight [4,3,3,2] f32", "bias [6] f32");
    BOTH_WAYS(wb_ConvTranspose(2, 3, {3, 2}, .flip = true), "weight [2,3,3,2] f32", "bias [3] f32");
    BOTH_WAYS(wb_Conv1d(4, 6, {3}, .flip = true), "weight [6,4,3] f32", "bias [6] f32");
    BOTH_WAYS(wb_Conv(4, 6, {3, 2, 1}, .flip = true), "weight [6,4,3,2,1] f32", "bias [6] f32");
    BOTH_WAYS(wb_ConvTranspose1d(4, 6, {3}, .flip = true), "weight [4,6,3] f32", "bias [6] f32");
    BOTH_WAYS(wb_ConvTranspose(4, 6, {3, 2, 1}), "weight [4,6,3,2,1] f32", "bias [6] f32");
    BOTH_WAYS(wb_BatchNorm(3), "weight [3] f32", "bias [3] f32", "running_mean [3] f32",
              "running_var [3] f32", "num_batches_tracked [] i64");
    BOTH_WAYS(wb_BatchNorm(3, .affine = false), "running_mean [3] f32", "running_var [3] f32",
              "num_batches_tracked [] i64");
    BOTH_WAYS(wb_BatchNorm(3, .track_stats = false), "weight [3] f32", "bias [3] f32");
    BOTH_WAYS(wb_LayerNorm({2, 3}), "weight [2,3] f32", "bias [2,3] f32");
    BOTH_WAYS(wb_GroupNorm(4, 2), "weight [4] f32", "bias [4] f32");
    BOTH_WAYS(wb_InstanceNorm(3, .affine = true), "weight [3] f32", "bias [3] f32");
    BOTH_WAYS(wb_InstanceNorm(3, .track_stats = true), "running_mean [3] f32",
              "running_var [3] f32", "num_batches_tracked [] i64");
    BOTH_WAYS(wb_RMSNorm({2, 3}), "weight [2,3] f32");
    BOTH_WAYS(wb_Bilinear(3, 4, 2), "weight [2,3,4] f32", "bias [2] f32");
    BOTH_WAYS(wb_DepthwiseConv(3, 6, {2}), "weight [6,1,2,2] f32", "bias [6] f32");
    BOTH_WAYS(wb_EmbeddingBag(5, 3), "weight [5,3] f32");
    BOTH_WAYS(wb_Embedding(5, 3), "weight [5,3] f32");
    BOTH_WAYS(wb_RNN(4, 3), "weight_ih_l0 [3,4] f32", "weight_hh_l0 [3,3] f32",
              "bias_ih_l0 [3] f32", "bias_hh_l0 [3] f32");
    BOTH_WAYS(wb_LSTM(4, 3), "weight_ih_l0 [12,4] f32", "weight_hh_l0 [12,3] f32",
              "bias_ih_l0 [12] f32", "bias_hh_l0 [12] f32");
    BOTH_WAYS(wb_GRU(4, 3), "weight_ih_l0 [9,4] f32", "weight_hh_l0 [9,3] f32",
              "bias_ih_l0 [9] f32", "bias_hh_l0 [9] f32");
    BOTH_WAYS(wb_GRU(4, 3, .hidden_bias = true), "weight_ih_l0 [9,4] f32", "weight_hh_l0 [9,3] f32",
              "bias_ih_l0 [9] f32", "bias_hh_l0 [9] f32");
    BOTH_WAYS(wb_GRU(4, 3, .bias = false), "weight_ih_l0 [9,4] f32", "weight_hh_l0 [9,3] f32");
    BOTH_WAYS(wb_LSTM(4, 3, .layers = 2, .bidirectional = true), "weight_ih_l0 [12,4] f32",
              "weight_hh_l0 [12,3] f32", "bias_ih_l0 [12] f32", "bias_hh_l0 [12] f32",
              "weight_ih_l0_reverse [12,4] f32", "weight_hh_l0_reverse [12,3] f32",
              "bias_ih_l0_reverse [12] f32", "bias_hh_l0_reverse [12] f32",
              "weight_ih_l1 [12,6] f32", "weight_hh_l1 [12,3] f32", "bias_ih_l1 [12] f32",
              "bias_hh_l1 [12] f32", "weight_ih_l1_reverse [12,6] f32",
              "weight_hh_l1_reverse [12,3] f32", "bias_ih_l1_reverse [12] f32",
              "bias_hh_l1_reverse [12] f32");
    BOTH_WAYS(wb_GRU(4, 3, .layers = 2, .bias = false), "weight_ih_l0 [9,4] f32",
              "weight_hh_l0 [9,3] f32", "weight_ih_l1 [9,3] f32", "weight_hh_l1 [9,3] f32");
    BOTH_WAYS(wb_RNNCell(4, 3), "weight_ih [3,4] f32", "weight_hh [3,3] f32", "bias_ih [3] f32",
              "bias_hh [3] f32");
    BOTH_WAYS(wb_LSTMCell(4, 3), "weight_ih [12,4] f32", "weight_hh [12,3] f32", "bias_ih [12] f32",
              "bias_hh [12] f32");
    BOTH_WAYS(wb_GRUCell(4, 3), "weight_ih [9,4] f32", "weight_hh [9,3] f32", "bias_ih [9] f32",
              "bias_hh [9] f32");
    BOTH_WAYS(wb_Recurrence(wb_GRUCell(4, 3)), "cell.weight_ih [9,4] f32",
              "cell.weight_hh [9,3] f32", "cell.bias_ih [9] f32", "cell.bias_hh [9] f32");
    BOTH_WAYS(wb_Chain(wb_WeightNorm(wb_Dense(4, 2, wb_relu)), wb_Dense(2, 2)),
              "0.parametrizations.weight.original0 [2,1] f32",
              "0.parametrizations.weight.original1 [2,4] f32", "0.bias [2] f32",
              "2.weight [2,2] f32", "2.bias [2] f32");
    BOTH_WAYS(wb_WeightNorm(wb_Conv(4, 6, {3}, .flip = true), .whole = true),
              "parametrizations.weight.original0 [] f32",
              "parametrizations.weight.original1 [6,4,3,3] f32", "bias [6] f32");
    BOTH_WAYS(wb_WeightNorm(wb_LSTM(4, 3), "weight_hidden"), "weight_ih_l0 [12,4] f32",
              "parametrizations.weight_hh_l0.original0 [12,1] f32",
              "parametrizations.weight_hh_l0.original1 [12,3] f32", "bias_ih_l0 [12] f32",
              "bias_hh_l0 [12] f32");
    BOTH_WAYS(wb_WeightNorm(wb_WeightNorm(wb_LSTMCell(4, 3), "weight_hidden"), "weight_input"),
              "parametrizations.weight_ih.original0 [12,1] f32",
              "parametrizations.weight_ih.original1 [12,4] f32",
              "parametrizations.weight_hh.original0 [12,1] f32",
              "parametrizations.weight_hh.original1 [12,3] f32", "bias_ih [12] f32",
              "bias_hh [12] f32");
    BOTH_WAYS(wb_MultiHeadAttention(4, 2), "in_proj_weight [12,4] f32",
              "out_proj.weight [4,4] f32");
    BOTH_WAYS(wb_MultiHeadAttention(4, 2, .bias = true), "in_proj_weight [12,4] f32",
              "in_proj_bias [12] f32", "out_proj.weight [4,4] f32", "out_proj.bias [4] f32");
    BOTH_WAYS(wb_MultiHeadAttention(4, 2, .k_in = 3, .bias = true), "q_proj_weight [4,4] f32",
              "k_proj_weight [4,3] f32", "v_proj_weight [4,4] f32", "in_proj_bias [12] f32",
              "out_proj.weight [4,4] f32", "out_proj.bias [4] f32");
}

TEST(containers)
{
    /* In PyTorch's Sequential, activations and functions are layers with a number of their own. */
    BOTH_WAYS(wb_Chain(wb_Dense(4, 4, wb_relu), wb_Dense(4, 4), wb_tanh, wb_Dense(4, 2, wb_relu),
                       wb_BatchNorm(2, wb_relu), wb_Dense(2, 1)),
              "0.weight [4,4] f32", "0.bias [4] f32", "2.weight [4,4] f32", "2.bias [4] f32",
              "4.weight [2,4] f32", "4.bias [2] f32", "6.weight [2] f32", "6.bias [2] f32",
              "6.running_mean [2] f32", "6.running_var [2] f32", "6.num_batches_tracked [] i64",
              "8.weight [1,2] f32", "8.bias [1] f32");
    BOTH_WAYS(wb_Chain(wb_RNN(2, 2, wb_relu), wb_Dense(2, 2, .bias = false)),
              "0.weight_ih_l0 [2,2] f32", "0.weight_hh_l0 [2,2] f32", "0.bias_ih_l0 [2] f32",
              "0.bias_hh_l0 [2] f32", "1.weight [2,2] f32");
    BOTH_WAYS(wb_Chain(wb_named("encoder", wb_Chain(wb_Dense(2, 2, wb_relu), wb_LayerNorm({2}))),
                       wb_named("head", wb_MultiHeadAttention(2, 1))),
              "encoder.0.weight [2,2] f32", "encoder.0.bias [2] f32", "encoder.2.weight [2] f32",
              "encoder.2.bias [2] f32", "head.in_proj_weight [6,2] f32",
              "head.out_proj.weight [2,2] f32");
    BOTH_WAYS(wb_Chain(wb_SkipConnection(wb_Chain(wb_Dense(2, 2), wb_Dense(2, 2, .bias = false)),
                                         beside),
                       wb_Parallel(wb_add, wb_Embedding(2, 2), wb_named("b", wb_Embedding(3, 2)))),
              "0.layers.0.weight [2,2] f32", "0.layers.0.bias [2] f32",
              "0.layers.1.weight [2,2] f32", "1.layers.0.weight [2,2] f32",
              "1.layers.b.weight [3,2] f32");
}

/* A tied tensor has two names in PyTorch's state_dict. */
TEST(ties)
{
    wb_layer *m = wb_Chain(wb_Embedding(4, 2), wb_Dense(2, 4, .bias = false));
    wb_tie(m, "layers.1.weight", "layers.0.weight");
    wb_layer *n = wb_Chain(wb_Embedding(4, 2), wb_Dense(2, 4, .bias = false));
    wb_tie(n, "layers.1.weight", "layers.0.weight");
    both_ways(m, n, (const char *[]){"0.weight [4,2] f32", "1.weight [4,2] f32", NULL});
}

/* PyTorch's names in NPZ files; an NPY file has no names and is refused. */
TEST(other_formats)
{
#ifdef WB_HAVE_ZIP
    wb_layer *make[2];
    const char *path = test_file("torch.npz");
    for (int i = 0; i < 2; i++)
        make[i] = wb_Chain(wb_Conv(1, 2, {2}, wb_relu, .flip = true), wb_MultiHeadAttention(4, 2),
                           wb_BatchNorm(4));
    wb_each_tensor(make[0], draw, NULL);
    if (wb_save(path, make[0], .names = WB_NAMES_TORCH)) fail_msg("%s", wb_error());
    wb_tree *t = wb_load_tensors(path);
    if (!t) fail_msg("%s", wb_error());
    assert_non_null(wb_get(t, "2.in_proj_weight"));
    if (wb_load_state(path, make[1])) fail_msg("%s", wb_error());
    wb_each_tensor(make[0], same_bits_in, make[1]);
    REFUSED(wb_load(path), WB_ERROR_FORMAT, "model");
    unlink(path);
#else
    skip();
#endif
    assert_int_equal(wb_save(test_file("torch.npy"), wb_Dense(1, 1)), WB_ERROR_ARGUMENT);
    FAILED(WB_ERROR_ARGUMENT, "model", "NPY", ".safetensors", ".bson", ".npz");
}

static wb_tensor *to_bf16(wb_tensor *x, const char *path, void *ctx)
{
    return (void)path, (void)ctx, wb_astype(x, WB_BF16);
}

TEST(other_dtypes)
{
    wb_layer *m = wb_Chain(wb_MultiHeadAttention(4, 2, .bias = true), wb_LSTM(4, 2)),
             *h = wb_fmap(to_bf16, m, NULL);
    assert_int_equal(wb_save(file_name(), h, .names = WB_NAMES_TORCH), 0);
    wb_layer *l = wb_load(file_name());
    if (!l) fail_msg("%s", wb_error());
    wb_each_tensor(h, same_bits_in, l);
    FAILS(wb_load_state(file_name(), m), WB_ERROR_FORMAT, "\"layers.0.k_proj.bias\"",
          "\"0.in_proj_bias\"", "[4] f32", "model", "file", "3", "[12] bf16");
    unlink(file_name());
}

/* ---- values ---------------------------------------------------------------------------------- */

static void put_table(int n, wb__st_out *out, const char *format)
{
    const wb__note note = {"format", (char *)(uintptr_t)format};
    if (wb__st_save(NULL, file_name(), n, out, 1, &note)) fail_msg("%s", wb_error());
}

/* PyTorch correlates, a layer with .flip convolves: its kernels are flipped in PyTorch's files. */
TEST(kernels_are_flipped)
{
    wb_layer *m = wb_Conv(2, 3, {3, 2}, .flip = true);
    wb_each_tensor(m, draw, NULL);
    assert_int_equal(wb_save(file_name(), m, .names = WB_NAMES_TORCH), 0);
    wb__table t;
    assert_int_equal(wb__st_load(file_name(), true, &t), 0);
    const float *flipped = wb__table_find(&t, "weight")->data, *own = wb_data(wb_get(m, "weight"));
    for (int o = 0; o < 6; o++)
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 2; j++)
                assert_true(flipped[(o * 3 + i) * 2 + j] == own[(o * 3 + 2 - i) * 2 + 1 - j]);
    wb_layer *plain = wb_Conv(2, 3, {3, 2});
    assert_int_equal(wb_load_state(file_name(), plain, .names = WB_NAMES_TORCH), 0);
    wb_tensor *x = wb_randn(2, 2, 5, 4), *y = wb_call(m, x), *z = wb_call(plain, x);
    const float *a = wb_data(y), *b = wb_data(z);
    for (int64_t i = 0; i < wb_size(y); i++) assert_true(fabsf(a[i] - b[i]) < 1e-5f);
    wb__table_free(&t);

    /* The same tensors with the note that PyTorch wrote them ("pt") are flipped, and are not
     * flipped with that of another program. */
    float w[4] = {1, 2, 3, 4}, bias = 0;
    wb__st_out out[] = {{"weight", WB_F32, 4, (int64_t[]){1, 1, 2, 2}, 16, w, NULL},
                        {"bias", WB_F32, 1, (int64_t[]){1}, 4, &bias, NULL}};
    wb_layer *f = wb_Conv(1, 1, {2}, .flip = true);
    put_table(2, out, "pt");
    assert_int_equal(wb_load_state(file_name(), f), 0);
    assert_true(wb_at(wb_get(f, "weight"), 0, 0, 0, 0) == 4);
    put_table(2, out, "np");
    assert_int_equal(wb_load_state(file_name(), f), 0);
    assert_true(wb_at(wb_get(f, "weight"), 0, 0, 0, 0) == 1);
    assert_int_equal(wb_load_state(file_name(), f, .names = WB_NAMES_TORCH), 0);
    assert_true(wb_at(wb_get(f, "weight"), 0, 0, 0, 0) == 4);
    unlink(file_name());
}

TEST(two_biases_are_one)
{
    float wi[3] = {1, 2, 3}, wh[3] = {4, 5, 6}, bi[3] = {1, 2, 3}, bh[3] = {0.5f, 0.25f, -0.f};
    wb__st_out out[] = {{"weight_ih_l0", WB_F32, 2, (int64_t[]){3, 1}, 12, wi, NULL},
                        {"weight_hh_l0", WB_F32, 2, (int64_t[]){3, 1}, 12, wh, NULL},
                        {"bias_ih_l0", WB_F32, 1, (int64_t[]){3}, 12, bi, NULL},
                        {"bias_hh_l0", WB_F32, 1, (int64_t[]){3}, 12, bh, NULL}};
    wb_layer *m = wb_GRU(1, 1);
    put_table(4, out, "pt");
    if (wb_load_state(file_name(), m)) fail_msg("%s", wb_error());
    wb_tensor *b = wb_get(m, "bias");
    assert_true(wb_at(b, 0) == 1.5 && wb_at(b, 1) == 2.25 && wb_at(b, 2) == 3);
    bh[2] = 1;                          /* b_hn is not 0: no single bias is equivalent */
    wb__st_out again[] = {{"weight_ih_l0", WB_F32, 2, (int64_t[]){3, 1}, 12, wi, NULL},
                          {"weight_hh_l0", WB_F32, 2, (int64_t[]){3, 1}, 12, wh, NULL},
                          {"bias_ih_l0", WB_F32, 1, (int64_t[]){3}, 12, bi, NULL},
                          {"bias_hh_l0", WB_F32, 1, (int64_t[]){3}, 12, bh, NULL}};
    put_table(4, again, "pt");
    assert_int_equal(wb_load_state(file_name(), m), WB_ERROR_FORMAT);
    FAILED(WB_ERROR_FORMAT, "\"bias\"", "\"bias_hh_l0\"", "1", ".hidden_bias");
    assert_true(wb_at(b, 0) == 1.5);
    m = wb_GRU(1, 1, .hidden_bias = true);
    if (wb_load_state(file_name(), m)) fail_msg("%s", wb_error());
    double h = 0, x[2] = {0.5, -0.25};
    wb_tensor *y = wb_call(m, wb_from((float[]){0.5f, -0.25f}, WB_F32, 3, (int64_t[]){1, 2, 1}));
    for (int t = 0; t < 2; t++) {       /* the formulas of PyTorch's documentation */
        double r = 1 / (1 + exp(-(wi[0] * x[t] + bi[0] + wh[0] * h + bh[0])));
        double z = 1 / (1 + exp(-(wi[1] * x[t] + bi[1] + wh[1] * h + bh[1])));
        h = (1 - z) * tanh(wi[2] * x[t] + bi[2] + r * (wh[2] * h + bh[2])) + z * h;
        assert_true(fabs(wb_at(y, 0, t, 0) - h) < 1e-6);
    }
    unlink(file_name());
}

/* PyTorch's names without PyTorch's note, and another dtype: the error reports the dtypes and no
 * missing name. */
TEST(another_dtype_is_reported)
{
    double w[6] = {0}, b[3] = {0};
    wb__st_out out[] = {{"a.weight", WB_F64, 2, (int64_t[]){3, 2}, 48, w, NULL},
                        {"a.bias", WB_F64, 1, (int64_t[]){3}, 24, b, NULL}};
    wb_layer *m = wb_Chain(wb_named("a", wb_Dense(2, 3)));
    put_table(2, out, "np");
    FAILS(wb_load_state(file_name(), m), WB_ERROR_FORMAT, "\"layers.a.weight\"", "\"a.weight\"",
          "[3,2] f32", "model", "[3,2] f64");
    assert_true(HAS_LINE(wb_error(), "\"layers.a.bias\"", "\"a.bias\"", "[3] f32", "[3] f64"));
    assert_int_equal(lines_of(wb_error()), 3);              /* none for missing names */
    unlink(file_name());
}

/* Files that number the activations, or do not, and models with activations inside layers or as
 * layers. */
TEST(numbering)
{
    float w[4] = {1, 2, 3, 4};
    wb__st_out out[] = {{"0.weight", WB_F32, 2, (int64_t[]){2, 2}, 16, w, NULL},
                        {"2.weight", WB_F32, 2, (int64_t[]){2, 2}, 16, w, NULL}};
    wb_layer *short_form = wb_Chain(wb_Dense(2, 2, wb_relu, .bias = false),
                                    wb_Dense(2, 2, .bias = false));
    wb_layer *long_form = wb_Chain(wb_Dense(2, 2, .bias = false), wb_relu,
                                   wb_Dense(2, 2, .bias = false));
    put_table(2, out, "pt");
    if (wb_load_state(file_name(), short_form)) fail_msg("%s", wb_error());
    if (wb_load_state(file_name(), long_form)) fail_msg("%s", wb_error());
    wb__st_out close[] = {{"0.weight", WB_F32, 2, (int64_t[]){2, 2}, 16, w, NULL},
                          {"1.weight", WB_F32, 2, (int64_t[]){2, 2}, 16, w, NULL}};
    put_table(2, close, "pt");          /* activations have no number here */
    if (wb_load_state(file_name(), short_form)) fail_msg("%s", wb_error());
    if (wb_load_state(file_name(), short_form, .names = WB_NAMES_TORCH)) fail_msg("%s", wb_error());
    assert_int_equal(wb_load_state(file_name(), long_form), WB_ERROR_FORMAT);
    FAILS(wb_load_state(file_name(), short_form, .names = WB_NAMES_WEBER), WB_ERROR_FORMAT,
          file_name());
    assert_true(HAS_LINE(wb_error(), "\"layers.0.weight\"", "[2,2] f32", "file"));
    unlink(file_name());
}

/* ---- other names ----------------------------------------------------------------------------- */

TEST(renames)
{
    float w[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, v[2] = {1, 2};
    int64_t count = 7;
    wb__st_out out[] = {{"net.fc.weight", WB_F32, 2, (int64_t[]){2, 2}, 16, w, NULL},
                        {"net.fc.bias", WB_F32, 1, (int64_t[]){2}, 8, v, NULL},
                        {"net.bn.weight", WB_F32, 1, (int64_t[]){2}, 8, v, NULL},
                        {"net.bn.bias", WB_F32, 1, (int64_t[]){2}, 8, v, NULL},
                        {"net.bn.running_mean", WB_F32, 1, (int64_t[]){2}, 8, v, NULL},
                        {"net.bn.running_var", WB_F32, 1, (int64_t[]){2}, 8, v, NULL},
                        {"net.bn.num_batches_tracked", WB_I64, 0, NULL, 8, &count, NULL},
                        {"net.h.0.attn.in_proj_weight", WB_F32, 2, (int64_t[]){6, 2}, 48, w, NULL},
                        {"net.h.0.attn.out_proj.weight", WB_F32, 2, (int64_t[]){2, 2}, 16, w, NULL},
                        {"other.weight", WB_F32, 1, (int64_t[]){2}, 8, v, NULL}};
    const int n = WB__COUNT(out);
    wb_layer *m = wb_Chain(
        wb_Dense(2, 2, wb_relu), wb_BatchNorm(2),
        wb_named("blocks", wb_Chain(wb_Chain(wb_named("mha", wb_MultiHeadAttention(2, 1))))));
    const wb_rename rows[] = {{"fc.*", "layers.0.*"},
                              {"bn.running_mean", "layers.1.mean"},
                              {"bn.*", "layers.1.*"},
                              {"h.0.attn.*", "layers.blocks.layers.0.layers.mha.*"},
                              {"h.*", "nowhere.*"}};
    put_table(n, out, "pt");
    if (wb_load_state(file_name(), m, .prefix = "net.", .n_rename = WB__COUNT(rows),
                      .rename = rows))
        fail_msg("%s", wb_error());
    assert_true(wb_at(wb_get(m, "layers.0.weight"), 1, 0) == 3);
    assert_true(wb_at(wb_get(m, "layers.1.mean"), 1) == 2 &&
                wb_at(wb_get(m, "layers.1.var"), 1) == 2);
    assert_true(wb_at(wb_get(m, "layers.blocks.layers.0.layers.mha.k_proj.weight"), 0, 0) == 5);
    assert_true(wb_at(wb_get(m, "layers.blocks.layers.0.layers.mha.v_proj.weight"), 1, 1) == 12);

    const wb_rename two[] = {{"fc.weight", "layers.0.weight"},
                             {"h.0.attn.out_proj.weight", "layers.0.weight"}};
    assert_int_equal(wb_load_state(file_name(), m, .prefix = "net.", .n_rename = 2, .rename = two),
                     WB_ERROR_FORMAT);
    const char *text = wb_error();
    assert_true(HAS_LINE(text, "\"net.fc.weight\"", "\"net.h.0.attn.out_proj.weight\"", "model",
                         "\"0.weight\""));
    assert_true(HAS_LINE(text, "\"layers.0.bias\"", "\"0.bias\"", "[2] f32", "file"));
    assert_true(HAS_LINE(text, "\"layers.1.var\"", "\"2.running_var\"", "[2] f32", "file"));
    assert_true(HAS_LINE(text, "\"layers.blocks.layers.0.layers.mha.q_proj.weight\"",
                         "\"blocks.0.mha.in_proj_weight\"", "[2,2] f32", "file"));
    assert_true(HAS_LINE(text, "\"net.bn.num_batches_tracked\"", "[] i64", "model"));
    assert_false(HAS_FACTS(text, "other.weight"));
    assert_false(HAS_LINE(text, "\"net.fc.weight\"", "[2,2] f32"));    /* the first line lists it */
    assert_false(HAS_LINE(text, "\"net.h.0.attn.out_proj.weight\"", "[2,2] f32"));
    const wb_rename no_name = {"a", NULL}, half = {"fc.*", "layers.0.weight"};
    assert_int_equal(wb_load_state(file_name(), m, .n_rename = 1, .rename = &no_name),
                     WB_ERROR_ARGUMENT);
    FAILS(wb_load_state(file_name(), m, .n_rename = 1, .rename = &half), WB_ERROR_ARGUMENT, "'*'",
          "fc.*", "layers.0.weight");

    wb__st_out apart[] = {{"q_proj.weight", WB_F32, 2, (int64_t[]){2, 2}, 16, w, NULL},
                          {"k_proj.weight", WB_F32, 2, (int64_t[]){2, 2}, 16, w + 4, NULL},
                          {"v_proj.weight", WB_F32, 2, (int64_t[]){2, 2}, 16, w + 8, NULL},
                          {"out_proj.weight", WB_F32, 2, (int64_t[]){2, 2}, 16, w, NULL}};
    wb_layer *mha = wb_MultiHeadAttention(2, 1);
    put_table(4, apart, "pt");
    if (wb_load_state(file_name(), mha, .names = WB_NAMES_TORCH)) fail_msg("%s", wb_error());
    assert_true(wb_at(wb_get(mha, "v_proj.weight"), 0, 0) == 9);
    unlink(file_name());
}

/* An error lists 50 names, then the number of the others. */
TEST(long_lists)
{
    wb_layer *layers[80];
    for (int i = 0; i < 80; i++) layers[i] = wb_Dense(2, 2, .bias = false);
    wb_layer *m = wb_Chain_array(80, layers), *one = wb_Chain_array(50, layers);
    float w[4] = {0};
    wb__st_out out[] = {{"none.of.these", WB_F32, 2, (int64_t[]){2, 2}, 16, w, NULL}};
    put_table(1, out, "np");
    FAILS(wb_load_state(file_name(), m), WB_ERROR_FORMAT, "\"layers.49.weight\"");
    assert_null(strstr(wb_error(), "\"layers.50.weight\""));
    assert_true(HAS_FACTS(strrchr(wb_error(), '\n'), "31"));
    assert_int_equal(lines_of(wb_error()), 52);
    assert_int_equal(wb_load_state(file_name(), one), WB_ERROR_FORMAT);
    assert_true(HAS_FACTS(strrchr(wb_error(), '\n'), "1"));
    assert_int_equal(lines_of(wb_error()), 52);
    unlink(file_name());
}

static int n_logged;
static char logged[4096];
static void listen(wb_log_level level, const char *text, void *ctx)
{
    n_logged += level == WB_LOG_INFO;
    snprintf(logged, sizeof logged, "%s", text);
}

TEST(lenient)
{
    wb_layer *m = wb_Chain(wb_Dense(2, 2), wb_Dense(2, 3));
    float w[4] = {1, 2, 3, 4};
    wb__st_out out[] = {{"0.weight", WB_F32, 2, (int64_t[]){2, 2}, 16, w, NULL},
                        {"1.weight", WB_F32, 2, (int64_t[]){2, 2}, 16, w, NULL},
                        {"more", WB_F32, 2, (int64_t[]){2, 2}, 16, w, NULL}};
    put_table(3, out, "pt");
    wb_set_log(listen, NULL);
    n_logged = 0;
    int status = wb_load_state(file_name(), m, .lenient = true);
    wb_set_log(NULL, NULL);
    assert_int_equal(status, 0);
    assert_int_equal(n_logged, 1);
    assert_true(HAS_FACTS(logged, file_name(), "model"));
    assert_true(HAS_LINE(logged, "\"layers.1.weight\"", "\"1.weight\"", "[3,2] f32", "model",
                         "file", "[2,2] f32"));
    assert_true(HAS_LINE(logged, "\"layers.0.bias\"", "\"0.bias\"", "[2] f32", "file"));
    assert_true(HAS_LINE(logged, "\"more\"", "[2,2] f32", "model"));
    assert_true(wb_at(wb_get(m, "layers.0.weight"), 1, 1) == 4);
    unlink(file_name());
}

int main(void) { return run_cases(NULL, golden_close); }
