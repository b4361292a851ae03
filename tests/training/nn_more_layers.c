/* Norms, layers of images, embeddings and others against PyTorch: layers.safetensors, written by
 * make_golden_layers.py. */
#define GOLDEN_FILE WB_TEST_DATA "/layers.safetensors"
#include "golden_layer.h"
#include "reference.h"

#include "weber/device.h"

#include <unistd.h>

static wb_tensor *unfolded(wb_tensor *x)
{
    return wb_unfold(x, .window = {3, 2}, .dilation = {1, 2}, .pad = {1, 0}, .stride = {2, 1});
}
static wb_tensor *folded(wb_tensor *x)
{
    return wb_fold(x, .window = {3, 2}, .dilation = {1, 2}, .pad = {1, 0}, .stride = {2, 1},
                   .sizes = {6, 5});
}
static wb_tensor *normed(wb_tensor *x)
{
    return wb_lpnormpool(x, 3, .window = {2, 3}, .stride = {1, 2});
}

/* X(name in layers.safetensors, layer, whether in train mode) */
#define CASES(X)                                                                               \
    X(groupnorm, wb_GroupNorm(6, 2, wb_relu, .eps = 1e-3), false)                              \
    X(groupnorm_plain, wb_GroupNorm(6, 3, .affine = false), false)                           \
    X(instancenorm, wb_InstanceNorm(3), false)                                                 \
    X(instancenorm_train, wb_InstanceNorm(3, wb_tanh, .affine = true, .track_stats = true,     \
                                          .momentum = 0.2, .eps = 1e-4), true)                 \
    X(instancenorm_test, wb_testmode(wb_InstanceNorm(3, wb_tanh, .affine = true,               \
                                                     .track_stats = true, .eps = 1e-4)), false) \
    X(rmsnorm, wb_RMSNorm({3, 4}, .eps = 1e-3), false)                                         \
    X(rmsnorm_plain, wb_RMSNorm({4}, .affine = false), false)                                \
    X(scale, wb_Scale({3, 4}, wb_relu), false)                                                 \
    X(bilinear, wb_Bilinear(3, 4, 2, wb_tanh), false)                                          \
    X(bilinear_one, wb_Bilinear(3, 3, 2, .bias = false), false)                              \
    X(maxout, wb_Maxout(wb_Dense(4, 2), wb_Dense(4, 2), wb_Dense(4, 2)), false)                \
    X(pixelshuffle, wb_PixelShuffle(3), false)                                                 \
    X(depthwise, wb_DepthwiseConv(3, 6, {2, 3}), false)                                        \
    X(embedding_padding, wb_Embedding(6, 3, .padding_index = 2), false)                        \
    X(bag_mean, wb_EmbeddingBag(6, 3), false)                                                  \
    X(bag_sum, wb_EmbeddingBag(6, 3, .mode = WB_BAG_SUM), false)                               \
    X(bag_max, wb_EmbeddingBag(6, 3, .mode = WB_BAG_MAX), false)                               \
    X(bag_mean_offsets, wb_EmbeddingBag(6, 3), false)                                          \
    X(bag_sum_offsets, wb_EmbeddingBag(6, 3, .mode = WB_BAG_SUM), false)                       \
    X(bag_max_offsets, wb_EmbeddingBag(6, 3, .mode = WB_BAG_MAX), false)                       \
    X(weightnorm, wb_WeightNorm(wb_Dense(4, 3)), false)                                        \
    X(weightnorm_dim, wb_WeightNorm(wb_Dense(4, 3), .dim = -1), false)                         \
    X(weightnorm_whole, wb_WeightNorm(wb_Dense(4, 3), .whole = true), false)                   \
    X(weightnorm_conv, wb_WeightNorm(wb_Conv(4, 6, {3, 2}, .groups = 2)), false)               \
    X(weightnorm_transpose, wb_WeightNorm(wb_ConvTranspose1d(3, 4, {3}), .dim = 1), false)     \
    X(weightnorm_embedding, wb_WeightNorm(wb_Embedding(5, 3)), false)                          \
    X(weightnorm_lstm, wb_Recurrence(wb_WeightNorm(wb_WeightNorm(wb_LSTMCell(2, 3),            \
        "weight_input"), "weight_hidden")), false)                                             \
    X(nearest_1d, wb_Upsample(.sizes = {9}), false)                                            \
    X(nearest_2d, wb_Upsample(.sizes = {6, 4}), false)                                         \
    X(nearest_3d, wb_Upsample(.sizes = {4, 3, 5}), false)                                      \
    X(linear_1d_corners, wb_Upsample(.sizes = {9}, .mode = WB_UPSAMPLE_LINEAR), false)         \
    X(linear_2d_corners, wb_Upsample(.sizes = {6, 5}, .mode = WB_UPSAMPLE_LINEAR), false)      \
    X(linear_3d_corners, wb_Upsample(.sizes = {4, 5, 2}, .mode = WB_UPSAMPLE_LINEAR), false)   \
    X(linear_1d_centres, wb_Upsample(.sizes = {9}, .mode = WB_UPSAMPLE_LINEAR,                 \
                                     .align_corners = false), false)                         \
    X(linear_2d_centres, wb_Upsample(.sizes = {6, 5}, .mode = WB_UPSAMPLE_LINEAR,              \
                                     .align_corners = false), false)                         \
    X(linear_3d_centres, wb_Upsample(.sizes = {4, 5, 2}, .mode = WB_UPSAMPLE_LINEAR,           \
                                     .align_corners = false), false)                         \
    X(adaptive_mean_1d, wb_AdaptiveMeanPool({3}), false)                                       \
    X(adaptive_mean_2d, wb_AdaptiveMeanPool({3, 2}), false)                                    \
    X(adaptive_mean_3d, wb_AdaptiveMeanPool({2, 3, 4}), false)                                 \
    X(adaptive_max_1d, wb_AdaptiveMaxPool({3}), false)                                         \
    X(adaptive_max_2d, wb_AdaptiveMaxPool({3, 2}), false)                                      \
    X(adaptive_max_3d, wb_AdaptiveMaxPool({2, 3, 4}), false)                                   \
    X(adaptive_fixed, wb_AdaptiveMeanPool({3, 2}, .fixed = true), false)                       \
    X(conv1d, wb_Conv1d(3, 4, {3}), false)                                                     \
    X(conv1d_options, wb_Conv1d(4, 4, {3}, wb_relu, .stride = {2}, .pad = {2, 1},              \
                                .dilation = {2}, .groups = 2), false)                          \
    X(conv3d, wb_Conv(3, 4, {2, 3, 2}), false)                                                 \
    X(conv3d_options, wb_Conv(4, 4, {3, 2, 2}, .stride = {2, 1, 3}, .pad = {1, 2, 0},          \
                              .dilation = {2, 1, 2}, .groups = 2), false)                      \
    X(conv_transpose1d, wb_ConvTranspose1d(4, 4, {3}, .stride = {3}, .pad = {1},               \
                                           .outpad = {2}, .groups = 2), false)                 \
    X(conv_transpose3d, wb_ConvTranspose(4, 4, {3, 2, 2}, .stride = {2, 1, 3},                 \
                                         .pad = {1, 0, 1}, .outpad = {1, 0, 2},                \
                                         .dilation = {2, 1, 1}, .groups = 2), false)           \
    X(conv_reflect, wb_Conv(2, 4, {3, 2}, .pad = {2, 1, 1, 0},                                 \
                            .pad_mode = WB_PAD_REFLECT), false)                                \
    X(conv_replicate, wb_Conv(2, 4, {3, 2}, .pad = {2, 1, 1, 0},                               \
                              .pad_mode = WB_PAD_REPLICATE), false)                            \
    X(conv_circular, wb_Conv(2, 4, {3, 2}, .pad = {2, 1, 1, 0},                                \
                             .pad_mode = WB_PAD_CIRCULAR), false)                              \
    X(maxpool1d, wb_MaxPool1d({3}, .stride = {2}, .pad = {1}), false)                          \
    X(meanpool1d, wb_MeanPool1d({3}, .stride = {2}, .pad = {1}), false)                        \
    X(maxpool3d, wb_MaxPool({3, 2, 2}, .stride = {1, 2, 1}, .pad = {1, 0, 1}), false)          \
    X(meanpool3d, wb_MeanPool({3, 2, 2}, .stride = {1, 2, 1}, .pad = {1, 0, 1}), false)        \
    X(unfold, wb_function_layer("unfolded", unfolded), false)                                  \
    X(fold, wb_function_layer("folded", folded), false)                                        \
    X(lpnormpool, wb_function_layer("normed", normed), false)

#define CASE(name, layer, train) TEST(name) { check_in(#name, layer, train); }
CASES(CASE)

/* ---- files, prints, dtypes ------------------------------------------------------------------- */

static char *printed(wb_layer *l)
{
    wb__text t = {0};
    wb__print_layer(l, &t);
    return wb__text_take(&t);
}

static const char *file_name(void) { return test_file("layers.safetensors"); }

/* A layer that is saved and loaded prints the same and computes the same bits. */
static void check_file(const char *name, wb_layer *l)
{
    wb_scope *scope = wb_scope_open();
    MADE(l);
    WORKS(wb_save(file_name(), l));
    wb_layer *back = wb_load(file_name());
    MADE(back);
    unlink(file_name());
    char *want = printed(l), *got = printed(back);
    assert_string_equal(got, want);
    wb__free(want);
    wb__free(got);
    wb_tensor *x[3];
    int n = 0;
    while (n < 3 && (x[n] = golden_tensor(NAME("%s.x%d", name, n)))) n++;
    wb_tensor *y = wb_call_array(l, n, x), *z = wb_call_array(back, n, x);
    MADE(y);
    MADE(z);
    const void *p = wb_data(y), *q = wb_data(z);
    assert_memory_equal(p, q, (size_t)wb_size(y) * sizeof(float));
    WORKS(wb_scope_close(scope));
}

#define FILED(name, layer, train) check_file(#name, layer);
TEST(saved_and_loaded) { CASES(FILED) }

static void shows(wb_layer *l, const char *want)
{
    MADE(l);
    char *text = printed(l);
    assert_string_equal(text, want);
    wb__free(text);
}

TEST_IN_SCOPE(prints)
{
    shows(wb_GroupNorm(6, 2, wb_relu, .affine = false), "GroupNorm(6, 2, relu, affine=false)");
    shows(wb_testmode(wb_InstanceNorm(3)), "InstanceNorm(3, affine=false, active=false)");
    shows(wb_RMSNorm({3, 4}), "RMSNorm(3, 4)");
    shows(wb_Scale({4}, wb_relu, .bias = false), "Scale(4, relu; bias=false)");
    shows(wb_Bilinear(3, 4, 2, wb_tanh), "Bilinear((3, 4) => 2, tanh)");
    shows(wb_Bilinear(3, 3, 2, .bias = false), "Bilinear(3 => 2; bias=false)");
    shows(wb_Maxout(wb_Dense(2, 2), wb_relu), "Maxout(Dense(2 => 2), relu)");
    shows(wb_PixelShuffle(2), "PixelShuffle(2)");
    shows(wb_WeightNorm(wb_Dense(2, 3), .dim = 1), "WeightNorm(Dense(2 => 3), weight; dim=1)");
    shows(wb_WeightNorm(wb_GRUCell(2, 3), "weight_hidden", .whole = true),
          "WeightNorm(GRUCell(2 => 3), weight_hidden; whole=true)");
    shows(wb_Upsample(.scale = {2}), "Upsample(nearest, scale=2)");
    shows(wb_Upsample(.sizes = {4, 5}, .mode = WB_UPSAMPLE_LINEAR, .align_corners = false),
          "Upsample(linear, sizes=(4, 5), align_corners=false)");
    shows(wb_AdaptiveMaxPool({3}), "AdaptiveMaxPool(3)");
    shows(wb_AdaptiveMeanPool({3, 2}, .fixed = true), "AdaptiveMeanPool((3, 2), fixed=true)");
    shows(wb_trainmode(wb_AlphaDropout(0.5)), "AlphaDropout(0.5, active=true)");
    shows(wb_Conv1d(2, 3, {4}, wb_relu, .pad = {1, 2}, .stride = {2}),
          "Conv1d((4,), 2 => 3, relu, pad=(1, 2), stride=2)");
    shows(wb_ConvTranspose1d(2, 3, {4}, .same = true), "ConvTranspose1d((4,), 2 => 3, pad=same)");
    shows(wb_Conv(2, 3, {1, 2, 3}, .pad = {1, 0, 2}, .pad_mode = WB_PAD_CIRCULAR),
          "Conv((1, 2, 3), 2 => 3, pad=(1, 0, 2), pad_mode=circular)");
    shows(wb_MaxPool({1, 2, 3}, .pad = {0, 0, 1, 0, 2, 1}),
          "MaxPool((1, 2, 3), pad=(0, 0, 1, 0, 2, 1))");
    shows(wb_MeanPool1d({3}, .stride = {2}), "MeanPool1d((3,), stride=2)");
    shows(wb_DepthwiseConv(2, 4, {3}), "Conv((3, 3), 2 => 4, groups=2)");
    shows(wb_Embedding(4, 2, .padding_index = 0), "Embedding(4 => 2; padding_index=0)");
    shows(wb_Embedding(4, 2, .padding_index = -1), "Embedding(4 => 2; padding_index=3)");
    shows(wb_Embedding(4, 2), "Embedding(4 => 2)");
    shows(wb_EmbeddingBag(4, 2, .mode = WB_BAG_MAX), "EmbeddingBag(4 => 2, max)");
}

/* The greatest difference of two tensors of any floating dtype. */
static double apart(wb_tensor *x, wb_tensor *y)
{
    MADE(x);
    MADE(y);
    x = wb_astype(x, WB_F32);
    return wb_item(wb_max(wb_abs(wb_sub(x, wb_astype(y, WB_F32)))));
}

/* Layers of other dtypes compute the same as f32, within the precision of the dtype. */
TEST_IN_SCOPE(dtypes)
{
    static const struct { wb_dtype dtype; double tolerance; } rows[] = {
        {WB_F64, 2e-6}, {WB_F16, 8e-3}, {WB_BF16, 6e-2}};
    wb_tensor *x = golden_want("groupnorm.x0"), *r = golden_want("rmsnorm.x0");
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        const wb_dtype t = rows[i].dtype;
        const wb_device *d = wb_default_device();
        if (!d->backend->has_dtype(d, t)) continue;
        wb_tensor *y = wb_astype(x, t), *s = wb_astype(r, t);
        MADE(y);
        wb_tensor *g = wb_call(wb_GroupNorm(6, 2, .dtype = t), y);
        MADE(g);
        assert_int_equal(wb_dtype_of(g), t);
        assert_true(apart(g, wb_call(wb_GroupNorm(6, 2), x)) < rows[i].tolerance);
        assert_true(apart(wb_call(wb_InstanceNorm(6), y), wb_call(wb_InstanceNorm(6), x)) <
                    rows[i].tolerance);
        wb_layer *wide = wb_RMSNorm({3, 4}, .eps = 1e-3);
        assert_true(apart(wb_call(wb_RMSNorm({3, 4}, .eps = 1e-3, .dtype = t), s),
                          wb_call(wide, r)) < rows[i].tolerance);
    }
}

/* ---- random and initial values --------------------------------------------------------------- */

/* An element is kept or replaced by the limit of selu; both then have the same factor and shift. */
TEST_IN_SCOPE(alpha_dropout)
{
    enum { N = 4000 };
    const double p = 0.25, limit = -1.7580993408473766;
    const double a = 1 / sqrt((1 - p) * (1 + p * limit * limit)), b = -a * p * limit;
    wb_seed(4);
    wb_tensor *x = wb_randn(N);
    wb_layer *l = wb_AlphaDropout(p);
    wb_tensor *y = wb_call(wb_trainmode(l), x);
    const float *in = wb_data(x), *out = wb_data(y);
    int dropped = 0;
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        const bool kept = fabs(out[i] - (a * (double)in[i] + b)) < 1e-5;
        if (!kept) assert_true(fabs(out[i] - (a * limit + b)) < 1e-5);
        dropped += !kept;
        sum += out[i];
        squares += (double)out[i] * out[i];
    }
    assert_true(abs(dropped - N / 4) < 120);
    assert_true(fabs(sum / N) < 0.08);
    assert_true(fabs(squares / N - 1) < 0.12);
    assert_ptr_equal(wb_call(wb_testmode(l), x), x);
    wb_tensor *none = wb_call(wb_trainmode(wb_AlphaDropout(1)), x);
    assert_true(wb_item(wb_max(wb_abs(none))) == 0);
    REFUSED(wb_AlphaDropout(1.5), WB_ERROR_ARGUMENT, "AlphaDropout", "p", "1.5", "[0, 1]");
    REFUSED(wb_AlphaDropout(), WB_ERROR_ARGUMENT, "AlphaDropout", "probability");
}

WB_INITIALIZER(doubled, wb_orthogonal, 2)

/* The normal distribution within [-2, 2] has the standard deviation 0.8796, and a narrow one keeps
 * its own; a kernel at its centre. */
TEST_IN_SCOPE(initialisers)
{
    enum { N = 20000 };
    wb_seed(5);
    wb_tensor *x = wb_init_truncated_normal(WB_F32, 1, (int64_t[]){N});
    MADE(x);
    assert_true(wb_item(wb_max(wb_abs(x))) <= 2 && wb_item(wb_max(x)) > 1.9);
    assert_true(fabs(wb_item(wb_mean(x))) < 0.02);
    assert_true(fabs(sqrt(wb_item(wb_variance(x))) - 0.8796) < 0.01);
    x = wb_lecun_normal(WB_F32, 2, (int64_t[]){N / 16, 16});
    assert_true(fabs(sqrt(wb_item(wb_variance(x))) - 1.0 / 4) < 0.01);
    x = wb_identity_init(WB_F32, 4, (int64_t[]){2, 3, 3, 2});
    MADE(x);
    assert_true(wb_item(wb_sum(x)) == 2 && wb_at(x, 0, 0, 1, 0) == 1 && wb_at(x, 1, 1, 1, 0) == 1);
    assert_true(wb_item(wb_sum(wb_identity_init(WB_F16, 1, (int64_t[]){3}))) == 0);
    for (int turn = 0; turn < 2; turn++) {      /* rows, then columns are orthonormal */
        x = wb_orthogonal(WB_F32, 3, (int64_t[]){turn ? 20 : 6, 3, 4});
        MADE(x);
        x = wb_reshape(x, -1, 12);
        if (turn) x = wb_transpose(x);
        wb_tensor *one = wb_matmul(x, wb_transpose(x));
        assert_true(wb_item(wb_max(wb_abs(wb_sub(one, wb_eye(turn ? 12 : 6, WB_F32))))) < 1e-6);
        assert_true(fabs(wb_item(wb_sum(x))) > 1e-3);
    }
    for (int turn = 0; turn < 2; turn++) {      /* in blocks of 32, of which the last is short */
        const int64_t n = 150, wide[2] = {n, turn ? n : 2 * n};
        x = wb_orthogonal(WB_F32, 2, wide);
        MADE(x);
        wb_tensor *one = wb_matmul(x, wb_transpose(x));
        assert_true(wb_item(wb_max(wb_abs(wb_sub(one, wb_eye(n, WB_F32))))) < 2e-6);
        wb_seed(11);
        wb_tensor *drawn = wb_randn_array(WB_F32, 1, (int64_t[]){wide[0] * wide[1]});
        drawn = wb_reshape(drawn, n, -1);
        wb_seed(11);
        /* with r = drawn·qᵀ lower triangular, of a positive diagonal */
        wb_tensor *r = wb_matmul(drawn, wb_transpose(wb_orthogonal(WB_F32, 2, wide)));
        assert_true(wb_item(wb_max(wb_abs(wb_triu(r, 1)))) < 1e-4);
        assert_true(wb_item(wb_min(wb_sum(wb_mul(r, wb_eye(n, WB_F32)), .axes = {1}))) > 0);
    }
    static const double by_default[7] = {1, 1, M_SQRT2, M_SQRT2, 1, 1, 1};
    static const wb_initializer plain[7] = {
        wb_glorot_uniform, wb_glorot_normal, wb_kaiming_uniform, wb_kaiming_normal,
        wb_lecun_normal, wb_identity_init, wb_orthogonal};
    const int64_t dims[2] = {300, 200};
    for (int i = 0; i < 7; i++) {
        wb_seed(7);
        wb_tensor *one = plain[i](WB_F32, 2, dims);
        wb_seed(7);
        wb_tensor *same = wb_init_gain(plain[i], by_default[i], WB_F32, 2, dims);
        wb_seed(7);
        wb_tensor *half = wb_init_gain(plain[i], 0.5, WB_F32, 2, dims);
        MADE(half);
        assert_true(apart(one, same) == 0);
        assert_true(apart(wb_mul(one, 0.5 / by_default[i]), half) < 1e-6);
        wb_tensor *none = wb_init_gain(plain[i], 0, WB_F32, 2, dims);
        assert_true(wb_item(wb_max(wb_abs(none))) == 0);
        REFUSED(wb_init_gain(plain[i], INFINITY, WB_F32, 2, dims), WB_ERROR_ARGUMENT, "gain",
                "inf");
    }
    REFUSED(wb_init_gain(wb_init_zeros, 2, WB_F32, 2, dims), WB_ERROR_ARGUMENT, "wb_orthogonal");
    x = wb_get(wb_Dense(12, 6, .init = doubled), "weight");
    assert_true(fabs(wb_item(wb_sum(wb_square(x))) - 24) < 1e-4);
    x = wb_sparse_init(0.55, 0.5, WB_F32, 2, (int64_t[]){10, 2000});
    MADE(x);
    wb_tensor *zero = wb_astype(wb_eq(x, wb_scalar(0)), WB_F32), *each = wb_sum(zero, .axes = {0});
    assert_true(wb_item(wb_min(each)) == 6 && wb_item(wb_max(each)) == 6);
    wb_tensor *rows = wb_mean(zero, .axes = {1});       /* at random places */
    assert_true(wb_item(wb_min(rows)) > 0.55 && wb_item(wb_max(rows)) < 0.65);
    assert_true(fabs(sqrt(wb_item(wb_mean(wb_square(x))) / 0.4) - 0.5) < 0.02);
    REFUSED(wb_orthogonal(WB_I32, 2, (int64_t[]){3, 3}), WB_ERROR_DTYPE, "orthogonal", "i32");
    REFUSED(wb_orthogonal(WB_F32, 1, (int64_t[]){3}), WB_ERROR_SHAPE, "orthogonal", "1");
    REFUSED(wb_sparse_init(1.5, 1, WB_F32, 2, (int64_t[]){3, 3}), WB_ERROR_ARGUMENT, "sparse_init",
            "1.5");
}

WB_INITIALIZER(torch_weight, wb_kaiming_uniform, 0.57735026918962576)   /* 1 / sqrt(3) */

/* PyTorch's kaiming_uniform_(a = sqrt(5)) is uniform up to 1 / sqrt(fan_in); fan_in is the second
 * axis of the weight times the kernel. */
TEST_IN_SCOPE(initial_weights_of_pytorch)
{
    wb_seed(3);
    const struct { wb_layer *layer; double fan_in; } rows[] = {
        {wb_Dense(784, 300, .init = torch_weight), 784},
        {wb_Conv(16, 64, {3}, .groups = 2, .init = torch_weight), 8 * 9},
        {wb_ConvTranspose(16, 64, {3}, .init = torch_weight), 64 * 9}};
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        wb_tensor *w = wb_abs(wb_mul(wb_get(rows[i].layer, "weight"), sqrt(rows[i].fan_in)));
        assert_true(wb_item(wb_max(w)) < 1.00001 && wb_item(wb_max(w)) > 0.99);
        assert_true(fabs(wb_item(wb_mean(wb_square(w))) - 1.0 / 3) < 0.02);
    }
}

TEST_IN_SCOPE(padding_row_begins_with_zeros)
{
    for (int64_t index = 0; index < 4; index++) {
        wb_tensor *weight = wb_get(wb_Embedding(4, 2, .padding_index = index), "weight");
        for (int64_t i = 0; i < 4; i++)
            assert_int_equal(wb_at(weight, i, 0) == 0 && wb_at(weight, i, 1) == 0, i == index);
    }
}

/* Bags without indices, the last one too; an offset behind the end. */
TEST_IN_SCOPE(empty_bags)
{
    wb_tensor *x = wb_from((int32_t[]){1, 2}, WB_I32, 1, (int64_t[]){2});
    wb_tensor *offsets = wb_from((int32_t[]){0, 0, 2, 2}, WB_I32, 1, (int64_t[]){4});
    wb_tensor *none = wb_from((int32_t[4]){0}, WB_I32, 1, (int64_t[]){4});
    for (int64_t mode = 0; mode < 3; mode++) {
        wb_layer *l = wb_EmbeddingBag(3, 1, .mode = mode);
        wb_tensor *y = wb_call(l, x, offsets), *w = wb_get(l, "weight");
        MADE(y);
        const double p = wb_at(w, 1, 0), q = wb_at(w, 2, 0);
        const double want = mode == WB_BAG_MEAN ? (p + q) / 2 : mode == WB_BAG_SUM ? p + q
                                                                                  : fmax(p, q);
        for (int i = 0; i < 4; i++)
            assert_true(fabs(wb_at(y, i, 0) - (i == 1 ? want : 0)) < 1e-6);
        y = wb_call(l, wb_from((int32_t[]){0}, WB_I32, 1, (int64_t[]){0}), none);
        MADE(y);
        assert_true(wb_dim(y, 0) == 4 && wb_item(wb_sum(y)) == 0);
    }
}

/* The sum of a bag is above the largest f16, and its mean is not. */
TEST_IN_SCOPE(bags_in_f16)
{
    wb_layer *l = wb_EmbeddingBag(3, 1, .dtype = WB_F16);
    wb_tensor *x = wb_astype(wb_zeros(1, 300), WB_I32);
    WORKS(wb_assign(wb_get(l, "weight"), wb_full_array(1000, WB_F16, 2, (int64_t[]){3, 1})));
    wb_tensor *y = wb_call(l, x);
    MADE(y);
    assert_true(wb_dtype_of(y) == WB_F16 && wb_item(y) == 1000);
}

/* Offsets that the host can read are checked at once. */
TEST_IN_SCOPE(wrong_offsets)
{
    static const int64_t wrong[4][3] = {{0, 2, 1}, {0, 1, 5}, {1, 2, 3}, {0, -1, 2}};
    static const char *const parts[4] = {"ascend", "not in 0 to 4", "first", "not in 0 to 4"};
    const char *device = getenv("WEBER_TEST_DEVICE");
    const bool visible = !device || !*device || wb_device_at(device, 0)->backend->host_visible;
    wb_tensor *x = wb_from((int32_t[4]){0}, WB_I32, 1, (int64_t[]){4});
    wb_layer *l = wb_EmbeddingBag(3, 2);
    for (int i = 0; i < 4; i++) {
        wb_tensor *offsets = wb_from(wrong[i], WB_I64, 1, (int64_t[]){3});
        if (visible)
            REFUSED(wb_call(l, x, offsets), WB_ERROR_ARGUMENT, "EmbeddingBag offsets", "[3] i64",
                    parts[i]);
        else
            MADE(wb_call(l, x, offsets));
    }
    MADE(wb_call(l, x, wb_from((int64_t[]){0, 4, 4}, WB_I64, 1, (int64_t[]){3})));
}

/* ---- WeightNorm ------------------------------------------------------------------------------ */

/* A new WeightNorm computes as its layer, in all dtypes; without it the layer has the weight. */
TEST_IN_SCOPE(norms_come_and_go)
{
    static const wb_dtype dtypes[4] = {WB_F32, WB_F16, WB_BF16, WB_F64};
    for (int i = 0; i < 4; i++) {
        if (!has_dtype(dtypes[i])) continue;
        wb_layer *inner = wb_Dense(5, 4, wb_tanh, .dtype = dtypes[i]);
        wb_tensor *x = wb_astype(wb_randn(3, 5), dtypes[i]), *y = wb_call(inner, x);
        wb_layer *l = wb_Chain(wb_WeightNorm(inner), wb_WeightNorm(wb_Dense(4, 1)));
        const double within = i == 1 ? 3e-3 : i == 2 ? 3e-2 : 1e-6;
        assert_true(apart(wb_call(wb_layer_at(l, "layers.0"), x), y) < within);
        wb_tensor *g = wb_get(l, "layers.0.g");
        assert_true(wb_dtype_of(g) == dtypes[i] && wb_dim(g, 0) == 4 && wb_dim(g, 1) == 1);
        WORKS(wb_set(l, "layers.0.g", wb_mul(g, 2)));
        y = wb_call(wb_layer_at(l, "layers.0"), x);
        wb_layer *plain = wb_remove_weight_norms(l);
        MADE(plain);
        assert_string_equal(plain->type->name, "Chain");
        assert_string_equal(wb_layer_at(plain, "layers.0")->type->name, "Dense");
        assert_true(apart(wb_call(wb_layer_at(plain, "layers.0"), x), y) < within);
        assert_ptr_equal(wb_get(plain, "layers.0.bias"), wb_get(inner, "bias"));
        assert_true(wb_get(plain, "layers.0.weight") != wb_get(inner, "weight"));
        assert_int_equal(wb_parameter_count(plain), wb_parameter_count(l) - 5);
        assert_true(apart(wb_get(l, "layers.0.g"), wb_mul(g, 2)) == 0);
    }
}

/* Two layers with one g and one v keep one weight; a layer that occurs twice is one layer. */
TEST_IN_SCOPE(tied_norms)
{
    wb_layer *a = wb_WeightNorm(wb_Dense(3, 3)), *b = wb_WeightNorm(wb_Dense(3, 3));
    wb_layer *l = wb_Chain(a, b, a);
    WORKS(wb_tie(l, "layers.1.layer.weight", "layers.0.layer.weight"));
    WORKS(wb_tie(l, "layers.1.g", "layers.0.g"));
    wb_layer *plain = wb_remove_weight_norms(l);
    MADE(plain);
    assert_ptr_equal(wb_get(plain, "layers.0.weight"), wb_get(plain, "layers.1.weight"));
    assert_ptr_equal(wb_layer_at(plain, "layers.0"), wb_layer_at(plain, "layers.2"));
    wb_tensor *x = wb_randn(2, 3);
    assert_true(apart(wb_call(l, x), wb_call(plain, x)) < 1e-5);
    wb_tree *tree = wb_remove_weight_norms(wb_tuple(a, wb_Dense(2, 2)));
    MADE(tree);
    assert_string_equal(wb_layer_at((wb_layer *)tree, "0")->type->name, "Dense");
}

/* Training changes g and v, and a row of zeros stays. */
TEST_IN_SCOPE(trained_norms)
{
    wb_layer *l = wb_WeightNorm(wb_Dense(3, 2));
    wb_tensor *x = wb_randn(8, 3), *y = wb_full(1.5, 8, 2);
    wb_tensor *rows = wb_reshape(wb_arange(2, WB_F32), 2, 1);
    WORKS(wb_set(l, "layer.weight", wb_mul(wb_get(l, "layer.weight"), rows)));
    WORKS(wb_set(l, "g", wb_mul(wb_get(l, "g"), rows)));
    wb_opt_state *s = wb_setup(wb_Descent(0.1), l);
    wb_tensor *v = wb_clone(l) ? wb_add(wb_get(l, "layer.weight"), 0) : NULL;
    double first = 0, now = 0;
    for (int i = 0; i < 30; i++) {
        wb_tensor *loss = wb_mse(wb_call(l, x), y);
        MADE(loss);
        WORKS(wb_update(s, l, wb_gradient(loss, l)));
        now = wb_item(loss);
        if (!i) first = now;
    }
    assert_true(now < 0.2 * first);
    wb_tensor *after = wb_get(l, "layer.weight");
    assert_true(wb_at(after, 0, 1) == 0 && wb_at(wb_get(l, "g"), 0, 0) == 0);
    assert_true(apart(v, after) > 1e-3);
}

TEST_IN_SCOPE(wrong_norms)
{
    wb_layer *cell = wb_GRUCell(2, 3), *l = wb_WeightNorm(cell, "weight_hidden");
    REFUSED(wb_WeightNorm(wb_Dense(2, 3), "gain"), WB_ERROR_ARGUMENT, "Dense", "\"gain\"");
    REFUSED(wb_WeightNorm(wb_Dense(2, 3, .bias = false), "bias"), WB_ERROR_ARGUMENT, "\"bias\"");
    REFUSED(wb_WeightNorm(wb_Chain(wb_Dense(2, 3))), WB_ERROR_ARGUMENT, "Chain", "\"weight\"");
    REFUSED(wb_WeightNorm(wb_Dense(2, 3), .dim = 2), WB_ERROR_SHAPE, "WeightNorm", "2", "[3,2]");
    REFUSED(wb_WeightNorm(wb_Dense(2, 3), .dim = 1, .whole = true), WB_ERROR_ARGUMENT, ".whole");
    REFUSED(wb_WeightNorm(l, "weight_hidden"), WB_ERROR_ARGUMENT, "weight_hidden", "already");
    REFUSED(wb_WeightNorm(NULL), WB_ERROR_ARGUMENT, "NULL");
    REFUSED(wb_remove_weight_norms((wb_layer *)NULL), WB_ERROR_ARGUMENT, "NULL");
    REFUSED(wb_call(l, wb_zeros(1, 3)), WB_ERROR_SHAPE, "layer: GRUCell", "[1,3] f32");
    REFUSED(wb_Recurrence(wb_WeightNorm(wb_GRU(2, 3), "bias")), WB_ERROR_ARGUMENT, "GRU");
    wb_tensor *h = WB_NONE, *want = WB_NONE, *x = wb_ones(1, 2);
    WORKS(wb_cell_step(l, x, 1, &h));
    WORKS(wb_cell_step(cell, x, 1, &want));
    assert_true(apart(h, want) < 1e-6);
}

TEST_IN_SCOPE(refusals)
{
    wb_tensor *x = wb_zeros(2, 5), *i = wb_from((int32_t[]){1, 2}, WB_I32, 1, (int64_t[]){2});
    REFUSED(wb_GroupNorm(6, 4), WB_ERROR_ARGUMENT, "GroupNorm", "4", "groups", "6");
    REFUSED(wb_call(wb_GroupNorm(6, 2), x), WB_ERROR_SHAPE, "GroupNorm", "6", "[2,5] f32");
    REFUSED(wb_call(wb_InstanceNorm(5), x), WB_ERROR_SHAPE, "InstanceNorm", "[2,5] f32");
    REFUSED(wb_InstanceNorm(5, .momentum = 2), WB_ERROR_ARGUMENT, "InstanceNorm", "momentum", "2");
    REFUSED(wb_call(wb_RMSNorm({4}), x), WB_ERROR_SHAPE, "RMSNorm", "4", "[2,5] f32");
    REFUSED(wb_RMSNorm({4}, .eps = -1), WB_ERROR_ARGUMENT, "RMSNorm", "eps", "-1");
    REFUSED(wb_Scale({0}), WB_ERROR_ARGUMENT, "Scale", "0");
    REFUSED(wb_call(wb_Scale({4}), x), WB_ERROR_SHAPE, "[2,5] f32", "[4] f32");
    REFUSED(wb_call(wb_Bilinear(4, 5, 2), x), WB_ERROR_SHAPE, "Bilinear", "4", "first",
            "[2,5] f32");
    REFUSED(wb_call(wb_Bilinear(5, 5, 2), x, wb_zeros(3, 5)), WB_ERROR_SHAPE, "Bilinear",
            "[2,5] f32", "[3,5] f32");
    REFUSED(wb_call(wb_Maxout(wb_relu, wb_Dense(4, 2)), x), WB_ERROR_SHAPE, "layers.1", "Dense");
    REFUSED(wb_call(wb_Maxout(wb_relu), x, x), WB_ERROR_ARGUMENT, "Maxout", "one", "2");
    REFUSED(wb_pixel_shuffle(wb_zeros(1, 6, 2, 2), 2), WB_ERROR_SHAPE, "pixel_shuffle", "2",
            "[1,6,2,2] f32");
    wb_tensor *image = wb_zeros(1, 2, 3, 4), *empty = wb_zeros(1, 2, 0);
    REFUSED(wb_Upsample(), WB_ERROR_ARGUMENT, "Upsample", ".scale", ".sizes");
    REFUSED(wb_upsample(image, .scale = {2}, .sizes = {4}), WB_ERROR_ARGUMENT, "upsample", ".scale",
            ".sizes");
    REFUSED(wb_upsample(image, .scale = {0}), WB_ERROR_ARGUMENT, "upsample", ".scale", "0");
    REFUSED(wb_upsample(image, .scale = {1, 2, 3}), WB_ERROR_ARGUMENT, "upsample", ".scale", "3",
            "2", "[1,2,3,4] f32");
    REFUSED(wb_upsample(x, .scale = {2}), WB_ERROR_SHAPE, "upsample", "[2,5] f32");
    REFUSED(wb_upsample(empty, .scale = {2}), WB_ERROR_SHAPE, "upsample", "[1,2,0] f32");
    REFUSED(wb_upsample(image, .scale = {2}, .mode = 2), WB_ERROR_ARGUMENT, "upsample", ".mode",
            "2");
    REFUSED(wb_upsample(image, .scale = {2}, .align_corners = false), WB_ERROR_ARGUMENT,
            "upsample", ".align_corners");
    REFUSED(wb_upsample(wb_astype(image, WB_I32), .scale = {2}, .mode = WB_UPSAMPLE_LINEAR),
            WB_ERROR_DTYPE, "upsample", "[1,2,3,4] i32");
    REFUSED(wb_AdaptiveMaxPool({0}), WB_ERROR_ARGUMENT, "AdaptiveMaxPool", ".out", "0");
    REFUSED(wb_call(wb_AdaptiveMeanPool({4}, .fixed = true), image), WB_ERROR_SHAPE,
            "AdaptiveMeanPool", "4", "2", "[1,2,3,4] f32");
    REFUSED(wb_call(wb_AdaptiveMeanPool({4}), x), WB_ERROR_SHAPE, "AdaptiveMeanPool", "[2,5] f32");
    wb_tensor *line = wb_zeros(1, 2, 5), *solid = wb_zeros(1, 2, 3, 4, 5);
    REFUSED(wb_Conv1d(2, 3, {1, 2}), WB_ERROR_ARGUMENT, "Conv1d", "kernel", "2", "1");
    REFUSED(wb_call(wb_Conv1d(2, 3, {2}), image), WB_ERROR_SHAPE, "Conv1d", "[N,2,L]",
            "[1,2,3,4] f32");
    REFUSED(wb_call(wb_Conv(2, 3, {2, 2, 2}), image), WB_ERROR_SHAPE, "Conv", "[N,2,D,H,W]",
            "[1,2,3,4] f32");
    REFUSED(wb_call(wb_Conv(2, 3, {4, 2, 2}), solid), WB_ERROR_SHAPE, "conv", "4",
            "[1,2,3,4,5] f32");
    REFUSED(wb_Conv(2, 3, {2, 2, 2}, .pad = {1, 1}), WB_ERROR_ARGUMENT, "Conv", ".pad", "2", "3");
    REFUSED(wb_Conv(2, 3, {2}, .pad_mode = 9), WB_ERROR_ARGUMENT, "Conv", ".pad_mode", "9");
    REFUSED(wb_ConvTranspose(2, 3, {2}, .pad_mode = WB_PAD_REFLECT), WB_ERROR_ARGUMENT,
            "ConvTranspose", ".pad_mode");
    REFUSED(wb_call(wb_Conv(2, 3, {2}, .pad = {4}, .pad_mode = WB_PAD_REFLECT), image),
            WB_ERROR_SHAPE, "pad", "WB_PAD_REFLECT", "[1,2,3,4] f32");
    REFUSED(wb_conv(solid, wb_zeros(2, 2, 2, 2), WB_NONE), WB_ERROR_SHAPE, "conv", "5",
            "[1,2,3,4,5] f32", "[2,2,2,2] f32");
    REFUSED(wb_conv(solid, wb_zeros(2, 3, 1, 1, 1), WB_NONE), WB_ERROR_SHAPE, "conv", "channels",
            "[1,2,3,4,5] f32", "[2,3,1,1,1] f32");
    REFUSED(wb_conv(solid, wb_zeros(2, 2, 1, 1, 1), WB_NONE, .stride = {0, 1, 1}),
            WB_ERROR_ARGUMENT, "conv", "stride", "0");
    REFUSED(wb_conv(line, wb_zeros(2, 2, 1), WB_NONE, .outpad = {1}), WB_ERROR_ARGUMENT, "conv",
            ".outpad");
    REFUSED(wb_conv(line, wb_zeros(2, 2, 6), WB_NONE), WB_ERROR_SHAPE, "conv");
    REFUSED(wb_maxpool(line, .window = {0}), WB_ERROR_ARGUMENT, "maxpool", "0");
    REFUSED(wb_maxpool(line, .window = {2}, .stride = {0}), WB_ERROR_ARGUMENT, "maxpool", "0");
    REFUSED(wb_call(wb_MaxPool1d({2}), image), WB_ERROR_SHAPE, "MaxPool1d", "[N,C,L]",
            "[1,2,3,4] f32");
    REFUSED(wb_unfold(x, .window = {2}), WB_ERROR_SHAPE, "unfold", "[2,5] f32");
    REFUSED(wb_unfold(image, .window = {0}), WB_ERROR_ARGUMENT, "unfold", "0");
    REFUSED(wb_fold(line, .window = {2}, .sizes = {3}), WB_ERROR_SHAPE, "fold", "3", "4",
            "[1,2,5] f32");
    REFUSED(wb_fold(line, .window = {1}, .sizes = {INT64_MAX, 2}), WB_ERROR_SHAPE, "fold",
            "9223372036854775807");
    REFUSED(wb_lpnormpool(image, 0, .window = {2}), WB_ERROR_ARGUMENT, "lpnormpool", "p", "0");
    REFUSED(wb_PixelShuffle(0), WB_ERROR_ARGUMENT, "PixelShuffle", "0");
    REFUSED(wb_DepthwiseConv(2, 3, {3}), WB_ERROR_ARGUMENT, "2", "3", "groups");
    REFUSED(wb_DepthwiseConv(2, 4, {3}, .groups = 2), WB_ERROR_ARGUMENT, "DepthwiseConv",
            ".groups");
    REFUSED(wb_DepthwiseConv(2, 4, {3}, .groups = 2), WB_ERROR_ARGUMENT, "DepthwiseConv",
            ".groups");
    REFUSED(wb_Embedding(4, 2, .padding_index = 4), WB_ERROR_ARGUMENT, ".padding_index", "4", "-4",
            "3");
    REFUSED(wb_EmbeddingBag(4, 2, .mode = 3), WB_ERROR_ARGUMENT, "EmbeddingBag", ".mode", "3");
    REFUSED(wb_call(wb_EmbeddingBag(4, 2), i), WB_ERROR_SHAPE, "EmbeddingBag", "[2] i32");
    REFUSED(wb_call(wb_EmbeddingBag(4, 2), x), WB_ERROR_DTYPE, "EmbeddingBag", "[2,5] f32");
}

int main(void) { return run_cases(golden_open, golden_close); }
