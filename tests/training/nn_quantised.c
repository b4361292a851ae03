/* wb_linear_int8, wb_quantize_rows and wb_quantize: values against the same formulas made of other
 * operations, which on other devices are the composed form, files, and mistakes. */
#include "golden.h"
#include "reference.h"

#include "engine/request.h"
#include "weber/adapt.h"

#include <unistd.h>

static double apart(wb_tensor *x, wb_tensor *y)
{
    MADE(x);
    MADE(y);
    return wb_item(wb_max(wb_abs(wb_sub(wb_astype(x, WB_F32), wb_astype(y, WB_F32)))));
}

/* x [m, k] as integers in f32, less that of 0, and the unit in which a row is counted. */
static wb_tensor *rounded(wb_tensor *x, wb_tensor **unit)
{
    wb_tensor *low = wb_minimum(wb_min(x, .axes = {-1}, .keep = true), 0),
              *high = wb_maximum(wb_max(x, .axes = {-1}, .keep = true), 0);
    *unit = wb_sub(wb_mul(high, 1 / 255.0), wb_mul(low, 1 / 255.0));
    wb_tensor *factor = wb_where(wb_ge(*unit, 0x1p-100), wb_div(1, *unit), wb_scalar(0));
    wb_tensor *zero = wb_floor(wb_sub(0.5, wb_mul(low, factor)));
    wb_tensor *q = wb_floor(wb_add(wb_mul(x, factor), wb_add(zero, 0.5)));
    return wb_sub(wb_minimum(wb_maximum(q, 0), 255), zero);
}

/* wb_linear_int8 made of other operations. */
static wb_tensor *formula(wb_tensor *x, wb_tensor *w, wb_tensor *scale, wb_tensor *b)
{
    wb_tensor *unit, *q = rounded(x, &unit);
    wb_tensor *y = wb_mul(wb_linear(q, wb_astype(w, WB_F32), WB_NONE), unit);
    y = wb_mul(y, scale);
    return b == WB_NONE ? y : wb_add(y, b);
}

static wb_tensor *integers(int64_t n, int64_t k)
{
    return wb_astype(wb_sub(wb_floor(wb_mul(wb_rand(n, k), 255)), 127), WB_I8);
}

/* The same bits where the sums are below 2^24; with bias and activation, of any rank. */
TEST_IN_SCOPE(product)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {1, 5, 7}, {3, 33, 65}, {8, 16, 768},
                                       {70, 50, 300}, {2, 4, 1000}, {1, 300, 1024}};
    for (size_t i = 0; i < WB__COUNT(sizes); i++) {
        const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        wb_tensor *x = wb_keep(wb_randn(m, k)), *w = wb_keep(integers(n, k)),
                  *s = wb_keep(wb_rand(n)), *b = wb_keep(wb_randn(n));
        WORKS(wb_eval(x, w, s, b));
        const double within = 2e-6 * sqrt((double)k) * 255;
        assert_true(apart(wb_linear_int8(x, w, s, WB_NONE), formula(x, w, s, WB_NONE)) <= within);
        assert_true(apart(wb_linear_int8(x, w, s, b), formula(x, w, s, b)) <= within);
        assert_true(apart(wb_relu(wb_linear_int8(x, w, s, b)), wb_relu(formula(x, w, s, b))) <=
                    within);
        assert_true(apart(wb_tanh(wb_linear_int8(x, w, s, b)), wb_tanh(formula(x, w, s, b))) <=
                    1e-5 + within);
        wb_tensor *y = wb_linear_int8(wb_reshape(x, 1, m, 1, k), w, s, b);
        MADE(y);
        assert_true(wb_ndim(y) == 4 && wb_dim(y, 1) == m && wb_dim(y, 3) == n);
        assert_true(apart(wb_reshape(y, m, n), wb_linear_int8(x, w, s, b)) == 0);
    }
}

/* The same bits for each number of threads, with parts of rows and of columns. */
TEST_IN_SCOPE(threads)
{
    static const int64_t sizes[][3] = {{1, 2000, 300}, {200, 131, 70}, {53, 50, 1000}};
    const int before = wb_threads();
    for (size_t i = 0; i < WB__COUNT(sizes); i++) {
        const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        wb_tensor *x = wb_keep(wb_randn(m, k)), *w = wb_keep(integers(n, k)),
                  *s = wb_keep(wb_rand(n)), *first = NULL;
        WORKS(wb_eval(x, w, s));
        for (int t = 1; t <= 8; t += t < 3 ? 1 : 5) {
            wb_set_threads(t);
            wb__cache_clear();             /* plans divide the work when they are made */
            wb_tensor *y = wb_keep(wb_gelu(wb_linear_int8(x, w, s, WB_NONE)));
            if (!first) first = y;
            assert_true(apart(y, first) == 0);
        }
    }
    wb_set_threads(before);
}

/* Operands that are views, and empty ones. */
TEST_IN_SCOPE(views)
{
    wb_tensor *x = wb_keep(wb_randn(40, 6)), *w = wb_keep(integers(80, 9)),
              *s = wb_keep(wb_rand(18));
    WORKS(wb_eval(x, w, s));
    wb_tensor *xt = wb_transpose(x), *wt = wb_slice(wb_transpose(w), 1, 0, 40),
              *st = wb_slice(wb_flip(s, 0), 0, 3, 12);
    assert_true(apart(wb_linear_int8(xt, wt, st, WB_NONE), formula(xt, wt, st, WB_NONE)) < 1e-3);
    wb_tensor *part = wb_slice(x, 1, 1, 5), *v = wb_slice(integers(3, 8), 1, 2, 6),
              *three = wb_ones(3);
    assert_true(apart(wb_linear_int8(part, v, three, WB_NONE), formula(part, v, three, WB_NONE)) <
                1e-3);
    wb_tensor *both = wb_concat(1, wb_linear_int8(part, v, three, WB_NONE), x);
    assert_true(apart(wb_slice(both, 1, 0, 3), formula(part, v, three, WB_NONE)) < 1e-3);
    wb_tensor *none = wb_linear_int8(wb_zeros(0, 4), v, three, WB_NONE);
    MADE(none);
    assert_int_equal(wb_dim(none, 0), 0);
    WORKS(wb_eval(none));
}

/* Numbers near the greatest ones of f32, in x and in a weight: nothing in between overflows. */
TEST_IN_SCOPE(greatest_numbers)
{
    const float far[] = {3.4e38f, -3.4e38f, 1e38f, 3.4e38f, 0, 1e37f};
    const double want = 3.4e38 * 0.75e-3 + 1e38 * 0.125e-3;
    wb_tensor *x = wb_from(far, WB_F32, 2, (int64_t[]){2, 3}), *q, *s;
    wb_tensor *near = wb_from((float[]){0.25e-3f, -0.5e-3f, 0.125e-3f}, WB_F32, 2,
                              (int64_t[]){1, 3});
    for (int i = 0; i < 2; i++) {
        WORKS(wb_quantize_rows(i ? x : near, &q, &s));
        wb_tensor *y = wb_linear_int8(i ? near : x, q, s, WB_NONE);
        MADE(y);
        assert_true(fabs(wb_at(y, 0, 0) - want) < 0.02 * want);
    }
}

/* A row with NaN or infinity is NaN, the others are as they were. */
TEST_IN_SCOPE(not_finite)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    wb_tensor *w = integers(5, 3), *s = wb_ones(5);
    for (int i = 0; i < 3; i++) {
        const float values[] = {1, 2, 3, 1, bad[i], 3, 0, 0, 0};
        wb_tensor *x = wb_from(values, WB_F32, 2, (int64_t[]){3, 3});
        wb_tensor *y = wb_linear_int8(x, w, s, wb_full(0.5, 5));
        MADE(y);
        const float *at = wb_data(y);
        for (int j = 0; j < 5; j++)
            assert_true(isfinite(at[j]) && isnan(at[5 + j]) && at[10 + j] == 0.5f);
    }
}

/* The gradient of x is that of the product without rounding, and the layers in front get it. */
TEST_IN_SCOPE(gradient)
{
    wb_tensor *x = wb_variable(wb_randn(4, 6)), *w = wb_keep(integers(5, 6)),
              *s = wb_keep(wb_rand(5)), *b = wb_variable(wb_randn(5)), *g = wb_keep(wb_randn(4, 5));
    WORKS(wb_eval(w, s, g));
    wb_tree *got = wb_gradient(wb_sum(wb_mul(wb_linear_int8(x, w, s, b), g)), wb_tuple(x, b));
    MADE(got);
    wb_tensor *wide = wb_mul(wb_astype(w, WB_F32), wb_unsqueeze(s, -1));
    assert_true(apart(wb_get(got, "0"), wb_matmul(g, wide)) < 1e-3);
    assert_true(apart(wb_get(got, "1"), wb_sum(g, 0)) < 1e-5);
}

/* The other dtypes are computed in f32. */
TEST_IN_SCOPE(dtypes)
{
    static const struct { wb_dtype dtype; double within; } rows[] = {
        {WB_F64, 1e-6}, {WB_F16, 1e-3}, {WB_BF16, 8e-3}};
    wb_tensor *w = integers(5, 30), *s = wb_full(0.01, 5);
    for (int i = 0; i < 3; i++) {
        if (!has_dtype(rows[i].dtype)) continue;
        wb_tensor *x = wb_astype(wb_randn(3, 30), rows[i].dtype);
        wb_tensor *y = wb_linear_int8(x, w, s, wb_astype(wb_ones(5), rows[i].dtype));
        MADE(y);
        assert_int_equal(wb_dtype_of(y), rows[i].dtype);
        wb_tensor *want = formula(wb_astype(x, WB_F32), w, s, wb_ones(5));
        const double largest = wb_item(wb_max(wb_abs(want)));
        assert_true(apart(y, want) <= rows[i].within * (1 + largest));
    }
}

/* Integers are the nearest ones, the greatest of a row is 127, and a row of zeros stays. */
TEST_IN_SCOPE(rows)
{
    static const wb_dtype dtypes[] = {WB_F32, WB_F64, WB_F16, WB_BF16};
    for (int i = 0; i < 4; i++) {
        if (!has_dtype(dtypes[i])) continue;
        wb_tensor *w = wb_mul(wb_randn(9, 4, 5), wb_reshape(wb_arange(9, WB_F32), 9, 1, 1));
        w = wb_keep(wb_astype(w, dtypes[i]));
        WORKS(wb_eval(w));
        wb_tensor *q, *s;
        WORKS(wb_quantize_rows(w, &q, &s));
        assert_true(wb_dtype_of(q) == WB_I8 && wb_dtype_of(s) == WB_F32);
        assert_true(wb_ndim(q) == 3 && wb_ndim(s) == 1 && wb_dim(s, 0) == 9);
        wb_tensor *n = wb_astype(wb_reshape(q, 9, 20), WB_F32), *scale = s;
        wb_tensor *most = wb_max(wb_abs(n), 1);
        assert_true(wb_at(most, 0) == 0 && wb_at(scale, 0) == 0);
        assert_true(wb_item(wb_min(wb_slice(most, 0, 1, 9))) >= 126 &&
                    wb_item(wb_max(most)) == 127);
        wb_tensor *column = wb_unsqueeze(scale, -1);
        wb_tensor *off = wb_abs(wb_sub(wb_reshape(wb_astype(w, WB_F32), 9, 20),
                                       wb_mul(n, column)));
        wb_tensor *over = wb_sub(off, wb_mul(column, 0.5001));
        assert_true(wb_item(wb_max(over)) <= 0);
    }
    wb_tensor *q, *s;
    const float bad[] = {1, INFINITY, 2, 3};
    WORKS(wb_quantize_rows(wb_from(bad, WB_F32, 2, (int64_t[]){2, 2}), &q, &s));
    wb_tensor *y = wb_linear_int8(wb_ones(1, 2), q, s, WB_NONE);
    assert_true(!isfinite(wb_at(s, 0)) && isnan(wb_at(y, 0, 0)));
    assert_true(fabs(wb_at(y, 0, 1) - 212 * 3 / 127.0) < 1e-5);
    if (has_dtype(WB_F16)) {                    /* f16 has no scale as small as these */
        const float small[] = {1e-3f, -3e-4f, 0, 2e-6f, 1e-6f, -6e-8f};
        wb_tensor *w = wb_astype(wb_from(small, WB_F32, 2, (int64_t[]){2, 3}), WB_F16);
        WORKS(wb_quantize_rows(w, &q, &s));
        wb_tensor *scale = wb_unsqueeze(s, -1), *back = wb_mul(wb_astype(q, WB_F32), scale);
        wb_tensor *off = wb_abs(wb_sub(back, wb_astype(w, WB_F32)));
        assert_true(wb_item(wb_max(wb_sub(off, wb_mul(scale, 0.5001)))) <= 0);
        assert_true(wb_at(q, 0, 0) == 127 && wb_at(q, 1, 0) == 127);
    }
    if (!getenv("WEBER_TEST_DEVICE")) {         /* others may have no scale as small as this */
        const float small[] = {1e-37f, 5e-38f, 1e-38f};
        WORKS(wb_quantize_rows(wb_from(small, WB_F32, 2, (int64_t[]){1, 3}), &q, &s));
        assert_true(wb_at(q, 0, 0) == 127 && wb_at(q, 0, 2) == 13);
        assert_true(wb_at(q, 0, 1) == 63 || wb_at(q, 0, 1) == 64);      /* of 63.5 */
    }
    FAILS(wb_quantize_rows(wb_zeros(3), &q, &s), WB_ERROR_SHAPE, "quantize_rows", "[3] f32");
    FAILS(wb_quantize_rows(wb_zeros(3, 0), &q, &s), WB_ERROR_SHAPE, "[3,0] f32");
    FAILS(wb_quantize_rows(wb_arange(4, WB_I32), &q, &s), WB_ERROR_DTYPE, "quantize_rows");
    FAILS(wb_quantize_rows(wb_zeros(3, 2), NULL, &s), WB_ERROR_ARGUMENT, "integers");
    FAILS(wb_quantize_rows(wb_zeros(3, 2), &q, NULL), WB_ERROR_ARGUMENT, "scales");
}

TEST_IN_SCOPE(wrong_operands)
{
    wb_tensor *x = wb_zeros(2, 3), *w = integers(4, 3), *s = wb_ones(4);
    REFUSED(wb_linear_int8(x, wb_zeros(4, 3), s, WB_NONE), WB_ERROR_DTYPE, "[4,3] f32", "i8");
    REFUSED(wb_linear_int8(x, w, wb_astype(s, WB_I32), WB_NONE), WB_ERROR_DTYPE, "[4] i32", "f32");
    REFUSED(wb_linear_int8(x, w, wb_ones(3), WB_NONE), WB_ERROR_SHAPE, "[4,3] i8", "[3] f32");
    REFUSED(wb_linear_int8(wb_zeros(2, 4), w, s, WB_NONE), WB_ERROR_SHAPE, "[2,4] f32");
    REFUSED(wb_linear_int8(x, w, s, wb_ones(3)), WB_ERROR_SHAPE, "bias", "[3] f32", "[4]");
    REFUSED(wb_linear_int8(wb_arange(3, WB_I32), w, s, WB_NONE), WB_ERROR_DTYPE, "linear_int8");
    REFUSED(wb_linear_int8(x, w, s, NULL), WB_ERROR_ARGUMENT, "b");
    wb_tensor *wide = wb_astype(wb_zeros(1, (1 << 16) + 1), WB_I8);
    REFUSED(wb_linear_int8(wb_zeros(1, (1 << 16) + 1), wide, wb_ones(1), WB_NONE),
            WB_ERROR_UNSUPPORTED, "65536");
}

/* ---- models ---------------------------------------------------------------------------------- */

static wb_layer *block(void)
{
    return wb_Chain(wb_LayerNorm({64}), wb_MultiHeadAttention(64, 2, .causal = true, .bias = true),
                    wb_Dense(64, 96, wb_gelu), wb_Dense(96, 64, .bias = false));
}

/* All Dense are quantised, also those of attention; the others are shared. */
TEST_IN_SCOPE(whole_model)
{
    wb_layer *m = wb_Chain(wb_Embedding(20, 64), block(), wb_Dense(64, 5));
    wb_layer *l = wb_quantize(m);
    MADE(l);
    char *text = wb_object_format(l);
    assert_true(strstr(text, "Quantized(Embedding(20 => 64))") &&
                strstr(text, "Quantized(Dense(64 => 96, gelu))") &&
                strstr(text, "Quantized(Dense(96 => 64; bias=false))"));
    wb_free_text(text);
    assert_int_equal(wb_dtype_of(wb_get(l, "layers.1.layers.1.q_proj.layer.weight")), WB_I8);
    assert_int_equal(wb_dtype_of(wb_get(l, "layers.1.layers.1.out_proj.scale")), WB_F32);
    assert_ptr_equal(wb_get(l, "layers.1.layers.0.scale"), wb_get(m, "layers.1.layers.0.scale"));
    assert_ptr_equal(wb_get(l, "layers.2.layer.bias"), wb_get(m, "layers.2.bias"));
    assert_int_equal(wb_dtype_of(wb_get(m, "layers.2.weight")), WB_F32);
    wb_tensor *x = wb_from((int32_t[]){1, 5, 19, 0, 7, 7}, WB_I32, 2, (int64_t[]){2, 3});
    wb_tensor *want = wb_call(m, x), *y = wb_call(l, x);
    MADE(y);
    const double largest = wb_item(wb_max(wb_abs(want)));
    assert_true(apart(y, want) < 0.1 * largest && apart(y, want) > 0);
    /* the layer computes with its tensors */
    wb_tensor *z = wb_randn(3, 64);
    assert_true(apart(wb_call(wb_layer_at(l, "layers.2"), z),
                      wb_linear_int8(z, wb_get(l, "layers.2.layer.weight"),
                                     wb_get(l, "layers.2.scale"), wb_get(l, "layers.2.layer.bias")))
                == 0);
    wb_tensor *rows = wb_call(wb_layer_at(l, "layers.0"), x);
    assert_true(apart(rows, wb_call(wb_layer_at(m, "layers.0"), x)) < 4.0 / 127);
    /* only what is not quantised is trained */
    assert_int_equal(wb_parameter_count(l), 128 + 4 * 64 + 96 + 5);
    MADE(wb_setup(wb_Adam(), l));
    assert_ptr_equal(wb_quantize(wb_tuple(m, l)) ? NULL : l, NULL);
}

/* A weight that two layers share is quantised once, and stays shared. */
TEST_IN_SCOPE(shared_weights)
{
    wb_layer *m = wb_Chain(wb_Embedding(9, 64), wb_Dense(64, 64), wb_Dense(64, 9, .bias = false));
    WORKS(wb_tie(m, "layers.2.weight", "layers.0.weight"));
    wb_layer *l = wb_quantize(m);
    MADE(l);
    assert_ptr_equal(wb_get(l, "layers.2.layer.weight"), wb_get(l, "layers.0.layer.weight"));
    assert_ptr_equal(wb_get(l, "layers.2.scale"), wb_get(l, "layers.0.scale"));
    wb_layer *dense = wb_Dense(64, 64), *twice = wb_quantize(wb_Chain(dense, dense));
    assert_ptr_equal(wb_layer_at(twice, "layers.0"), wb_layer_at(twice, "layers.1"));
    wb_tree *tree = wb_quantize(wb_tuple(dense, wb_Conv(1, 2, {3})));
    MADE(tree);
    assert_string_equal(wb_layer_at((wb_layer *)tree, "0")->type->name, "Quantized");
    assert_string_equal(wb_layer_at((wb_layer *)tree, "1")->type->name, "Conv");
}

/* Short rows stay as they are, also beside others and where a path names their layer. */
TEST_IN_SCOPE(short_rows)
{
    wb_layer *m = wb_Chain(wb_Dense(63, 64), wb_Dense(64, 63)), *l = wb_quantize(m);
    MADE(l);
    assert_ptr_equal(wb_get(l, "layers.0.weight"), wb_get(m, "layers.0.weight"));
    assert_string_equal(wb_layer_at(l, "layers.1")->type->name, "Quantized");
    REFUSED(wb_quantize(m, .layers = "layers.0"), WB_ERROR_ARGUMENT, "layers.0", "64");
    REFUSED(wb_quantize(wb_Embedding(50, 63)), WB_ERROR_ARGUMENT, "quantize", "64");
}

/* A model in f16 stays one, and a row of small numbers keeps its precision. */
TEST_IN_SCOPE(half_precision)
{
    if (!has_dtype(WB_F16)) return;
    const wb_dtype t = WB_F16;
    wb_layer *m = wb_Chain(wb_Embedding(9, 64, .dtype = t), wb_LayerNorm({64}, .dtype = t),
                           wb_Dense(64, 65, .dtype = t, .bias = false),
                           wb_Dense(65, 5, .dtype = t));
    wb_tensor *small = wb_astype(wb_mul(wb_randn(9, 64), 1e-5), t), *x = wb_arange(9, WB_I32);
    WORKS(wb_set(m, "layers.0.weight", small));
    wb_layer *l = wb_quantize(m);
    MADE(l);
    assert_int_equal(wb_dtype_of(wb_get(l, "layers.0.scale")), WB_F32);
    assert_int_equal(wb_dtype_of(wb_call(l, x)), t);
    wb_tensor *rows = wb_call(wb_layer_at(l, "layers.0"), x);
    assert_int_equal(wb_dtype_of(rows), t);
    wb_tensor *most = wb_max(wb_abs(wb_astype(small, WB_F32)), .axes = {-1}, .keep = true);
    wb_tensor *off = wb_abs(wb_sub(wb_astype(rows, WB_F32), wb_astype(small, WB_F32)));
    assert_true(wb_item(wb_max(wb_sub(off, wb_mul(most, 0.5001 / 127)))) <= 0x1p-25);
    const double largest = wb_item(wb_max(wb_abs(wb_astype(wb_call(m, x), WB_F32))));
    assert_true(apart(wb_call(l, x), wb_call(m, x)) < 0.05 * largest);
    /* the model in f32 has the same integers and scales */
    wb_layer *wide = wb_to(l, wb_device_of(l), .dtype = WB_F32);
    MADE(wide);
    assert_ptr_equal(wb_get(wide, "layers.2.scale"), wb_get(l, "layers.2.scale"));
    assert_int_equal(wb_dtype_of(wb_call(wide, x)), WB_F32);
}

TEST_IN_SCOPE(chosen_layers)
{
    wb_layer *m = wb_Chain(wb_Dense(64, 64), block(), wb_WeightNorm(wb_Dense(64, 4)));
    wb_layer *l = wb_quantize(m, .layers = "layers.0 *.q_proj");
    MADE(l);
    assert_string_equal(wb_layer_at(l, "layers.0")->type->name, "Quantized");
    assert_string_equal(wb_layer_at(l, "layers.1.layers.1.q_proj")->type->name, "Quantized");
    assert_string_equal(wb_layer_at(l, "layers.1.layers.1.k_proj")->type->name, "Dense");
    l = wb_quantize(m);
    assert_string_equal(wb_layer_at(l, "layers.2.layer")->type->name, "Dense");
    REFUSED(wb_quantize(m, .layers = "layers.9"), WB_ERROR_ARGUMENT, "quantize", "layers.9");
    REFUSED(wb_quantize(m, .bits = 4), WB_ERROR_UNSUPPORTED, ".bits", "4", "8");
    REFUSED(wb_quantize(wb_Chain(wb_Flatten())), WB_ERROR_ARGUMENT, "Dense");
    REFUSED(wb_quantize((wb_layer *)NULL), WB_ERROR_ARGUMENT, "NULL");
    REFUSED(wb_quantize(wb_quantize(wb_Dense(64, 2))), WB_ERROR_ARGUMENT, "Dense");
    WORKS(wb_set(m, "layers.0.weight", wb_full(NAN, 64, 64)));
    REFUSED(wb_quantize(m), WB_ERROR_ARGUMENT, "layers.0", "NaN");
    REFUSED(wb_call(wb_quantize(wb_Dense(64, 3)), wb_zeros(1, 5)), WB_ERROR_SHAPE, "64",
            "[1,5] f32");
}

static int call_it(wb_tensor *const *inputs, wb_tensor **outputs, void *layer)
{
    outputs[0] = wb_call(layer, inputs[0]);
    return outputs[0] ? 1 : -1;
}

TEST_IN_SCOPE(compiled_copied_moved)
{
    wb_layer *l = wb_quantize(block());
    wb_tensor *x = wb_randn(2, 3, 64), *y = wb_call(l, x), *z = NULL;
    wb_compiled *f = wb_compile(call_it, l);
    for (int i = 0; i < 3; i++) {
        WORKS(wb_call_compiled(f, 1, &x, 1, &z));
        assert_true(apart(y, z) == 0);
    }
    assert_true(apart(y, wb_call(wb_clone(l), x)) == 0);
    if (!has_dtype(WB_BF16)) return;
    wb_layer *half = wb_to(l, wb_device_of(l), .dtype = WB_BF16);
    MADE(half);
    assert_int_equal(wb_dtype_of(wb_get(half, "layers.2.layer.weight")), WB_I8);
    assert_int_equal(wb_dtype_of(wb_get(half, "layers.2.scale")), WB_F32);
    assert_int_equal(wb_dtype_of(wb_get(half, "layers.2.like")), WB_BF16);
    z = wb_call(half, wb_astype(x, WB_BF16));
    MADE(z);
    assert_int_equal(wb_dtype_of(z), WB_BF16);
    assert_true(apart(y, z) < 0.1 * wb_item(wb_max(wb_abs(y))));
    wb_layer *words = wb_to(wb_quantize(wb_Embedding(5, 64)), wb_device_of(l), .dtype = WB_BF16);
    assert_int_equal(wb_dtype_of(wb_call(words, wb_arange(5, WB_I32))), WB_BF16);
}

/* Saves and loads; the copy prints the same and gives the same bits. */
static void round_trip(wb_layer *l, wb_tensor *x, wb_names names)
{
    const char *path = test_file("quantised.safetensors");
    MADE(l);
    WORKS(wb_save(path, l, .names = names));
    wb_layer *m = wb_load(path);
    MADE(m);
    assert_shown_alike(l, m);
    wb_each_tensor(l, same_bits_in, m);
    wb_each_tensor(m, same_bits_in, l);
    assert_int_equal(wb_parameter_count(l), wb_parameter_count(m));
    assert_true(apart(wb_call(l, x), wb_call(m, x)) == 0);
    WORKS(wb_load_state(path, l, .names = names));
    unlink(path);
}

TEST_IN_SCOPE(files)
{
    wb_tensor *x = wb_randn(2, 3, 64), *words = wb_arange(6, WB_I32);
    for (int i = 0; i < 2; i++) {
        const wb_names names = i ? WB_NAMES_TORCH : WB_NAMES_WEBER;
        round_trip(wb_quantize(wb_Dense(64, 4, wb_relu)), x, names);
        round_trip(wb_quantize(wb_Dense(64, 4, .dtype = WB_F32, .bias = false)), x, names);
        round_trip(wb_quantize(wb_Embedding(6, 64)), words, names);
        if (has_dtype(WB_F16))
            round_trip(wb_quantize(wb_Embedding(6, 64, .dtype = WB_F16)), words, names);
        round_trip(wb_quantize(block()), x, names);
        round_trip(wb_quantize(block(), .layers = "*.v_proj"), x, names);
    }
    wb_layer *tied = wb_Chain(wb_Embedding(6, 64), wb_Dense(64, 6, .bias = false));
    WORKS(wb_tie(tied, "layers.1.weight", "layers.0.weight"));
    round_trip(wb_quantize(tied), words, WB_NAMES_WEBER);
    FAILS(wb_save(test_file("q.bson"), wb_quantize(wb_Dense(64, 2))), WB_ERROR_ARGUMENT,
          "Quantized");
}

/* A file that puts another layer where a projection was is refused. */
static void change(const char *path, const char *from, const char *to)
{
    static char bytes[1 << 16];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes, f), length = strlen(from);
    fclose(f);
    assert_int_equal(length, strlen(to));
    char *at = memmem(bytes, n, from, length);
    assert_non_null(at);
    memcpy(at, to, length);
    f = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

TEST_IN_SCOPE(wrong_files)
{
    static const struct { const char *from, *to, *fact; } rows[] = {
        {"\\\"bits\\\":8", "\\\"bits\\\":4", "Quantized"},
        {"\\\"name\\\":\\\"q_proj\\\"", "\\\"name\\\":\\\"x_proj\\\"", "\"x_proj\""},
        {"\\\"in\\\":64,\\\"out\\\":64", "\\\"in\\\":64,\\\"out\\\":69", "\"q_proj\""},
        {"\\\"Quantized\\\"", "\\\"SkipLayer\\\"", "\"SkipLayer\""}};
    const char *path = test_file("wrong.safetensors");
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        WORKS(wb_save(path, wb_quantize(wb_MultiHeadAttention(64, 2))));
        change(path, "weber_crc32", "weber_crc33");    /* the note counts as unknown */
        change(path, rows[i].from, rows[i].to);
        REFUSED(wb_load(path), WB_ERROR_FORMAT, rows[i].fact);
        unlink(path);
    }
}

int main(void)
{
    wb_seed(1);
    after_each_test = ref_forget;
    return run_all_cases();
}
