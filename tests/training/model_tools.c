/* Tools for models: clones, copies, flat parameters, visits, activations, shapes, summaries,
 * profiles. */
#include "test.h"

#include "weber.h"

#include "engine/tensor.h"
#include "folder.h"

#include <stdlib.h>

static wb_layer *model(void)
{
    wb_layer *d = wb_Dense(3, 3, wb_tanh);
    wb_layer *m = wb_Chain(wb_Dense(2, 3, wb_relu), d, wb_BatchNorm(3), d, wb_Dropout(0.5),
                           wb_named("head", wb_Dense(3, 1)));
    if (wb_tie(m, "layers.3.weight", "layers.1.weight")) fail_msg("%s", wb_error());
    return m;
}

static void close_to(wb_tensor *x, wb_tensor *y)
{
    const double apart = wb_item(wb_max(wb_abs(wb_sub(x, y))));
    if (!(apart < 1e-6)) fail_msg("%g apart; %s", apart, wb_error());
}

TEST_IN_SCOPE(clones)
{
    wb_layer *m = wb_testmode(model()), *c = wb_clone(m);
    wb_tensor *x = wb_randn(4, 2), *before = wb_call(m, x);
    assert_int_equal(wb_eval(before), 0);
    assert_ptr_not_equal(wb_get(c, "layers.0.weight"), wb_get(m, "layers.0.weight"));
    assert_ptr_equal(wb_get(c, "layers.3.weight"), wb_get(c, "layers.1.weight"));
    wb_assign(wb_get(m, "layers.0.weight"), wb_zeros(3, 2));
    wb_assign(wb_get(m, "layers.2.mean"), wb_ones(3));
    close_to(wb_call(c, x), before);
    wb_tree *t = wb_clone(wb_tuple(m, x));
    assert_ptr_equal(wb_get(t, "1"), x);
    REFUSED(wb_object_clone(x), WB_ERROR_ARGUMENT, "clone", "tensor", "layer");
}

static bool same(wb_layer *a, wb_layer *b, const char *path)
{
    wb_tensor *x = wb_get(a, path), *y = wb_get(b, path);
    if (!x || !y) fail_msg("%s", wb_error());
    y = wb_astype(y, wb_dtype_of(x));
    if (wb_device_of(y) != wb_device_of(x)) y = wb_to(y, wb_device_of(x), .dtype = WB_DTYPE_KEEP);
    return wb_item(wb_all(wb_eq(x, y))) != 0;
}

/* Parameters, running statistics and tied parameters; other dtypes and devices. */
TEST_IN_SCOPE(copies)
{
    static const char *const paths[] = {"layers.0.weight", "layers.0.bias", "layers.1.weight",
                                        "layers.2.mean", "layers.2.var", "layers.3.weight",
                                        "layers.head.bias"};
    wb_layer *m = model(), *to[3] = {model(), model(), model()};
    to[1] = wb_to(to[1], wb_device_of(m), .dtype = WB_BF16);
    to[2] = wb_to(to[2], wb_device_at("CPU", 1));
    WORKS(wb_assign(wb_get(m, "layers.2.mean"), wb_randn(3)));
    WORKS(wb_assign(wb_get(m, "layers.head.bias"), wb_randn(1)));
    for (int i = 0; i < 3; i++) {
        assert_false(same(to[i], m, "layers.0.weight"));
        WORKS(wb_copy(to[i], m));
        for (size_t k = 0; k < WB__COUNT(paths); k++)
            if (!same(to[i], m, paths[k])) fail_msg("way %d: %s differs", i, paths[k]);
        assert_ptr_equal(wb_get(to[i], "layers.3.weight"), wb_get(to[i], "layers.1.weight"));
    }
    /* The copy is one of values. */
    wb_tensor *x = wb_randn(4, 2);
    wb_layer *m0 = wb_testmode(m), *t0 = wb_testmode(to[0]);
    close_to(wb_call(t0, x), wb_call(m0, x));
    WORKS(wb_assign(wb_get(m, "layers.0.weight"), wb_zeros(3, 2)));
    assert_false(same(to[0], m, "layers.0.weight"));
    WORKS(wb_copy(to[1], to[2]));
    WORKS(wb_copy(m, m));
    wb_tree *a = wb_tuple(wb_variable(wb_ones(2)), m),
            *b = wb_tuple(wb_variable(wb_zeros(2)), to[0]);
    WORKS(wb_copy(b, a));
    assert_true(wb_item(wb_sum(wb_get(b, "0"))) == 2 && same(to[0], m, "layers.0.weight"));
}

static int one_copy(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx)
{
    wb_layer **m = ctx;
    if (wb_copy(m[0], m[1])) return -1;
    outputs[0] = wb_mul(inputs[0], wb_get(m[0], "bias"));
    return 1;
}

/* In a compiled function a copy is an assignment of each call. */
TEST_IN_SCOPE(compiled_copies)
{
    wb_layer *m[2] = {wb_Dense(2, 2), wb_Dense(2, 2)};
    wb_compiled *c = wb_compile(one_copy, m);
    for (int i = 0; i < 3; i++) {
        wb_tensor *x = wb_full(2, 2), *y = NULL;
        WORKS(wb_assign(wb_get(m[1], "bias"), wb_full(i + 1, 2)));
        WORKS(wb_call_compiled(c, 1, &x, 1, &y));
        assert_true(wb_at(y, 1) == 2 * (i + 1) && same(m[0], m[1], "weight"));
    }
}

/* Two models that exchange their parameters; a copy of which nothing is done, in each mode: the
 * first leaf fits, the second does not. */
static void copy_all_or_nothing(void)
{
    wb_tensor *a = wb_variable(wb_ones(2)), *b = wb_variable(wb_full(5, 2));
    WORKS(wb_copy(wb_tuple(a, b), wb_tuple(b, a)));
    assert_true(wb_at(a, 0) == 5 && wb_at(b, 1) == 1);
    wb_layer *to = wb_Chain(wb_Dense(2, 3), wb_Dense(3, 4)),
             *from = wb_Chain(wb_Dense(2, 3), wb_Dense(3, 5));
    wb_tensor *bias = wb_get(to, "layers.0.bias");
    WORKS(wb_assign(bias, wb_ones(3)));
    WORKS(wb_assign(wb_get(from, "layers.0.bias"), wb_full(7, 3)));
    REFUSED(!wb_copy(to, from), WB_ERROR_SHAPE, "layers.1.weight", "[4,3]", "[5,3]");
    wb_clear_error();
    assert_true(wb_at(bias, 0) == 1 && !same(to, from, "layers.0.weight"));
}

TEST(copies_of_all_or_nothing)
{
    const int eager = wb__this_thread()->eager;
    for (int i = 0; i < 4; i++) {       /* in the root scope writes that are pending end a step */
        wb_scope *s = i & 1 ? wb_scope_open() : NULL;
        wb__this_thread()->eager = i & 2;
        copy_all_or_nothing();
        wb__this_thread()->eager = eager;
        if (s) WORKS(wb_scope_close(s));
    }
}

TEST_IN_SCOPE(wrong_copies)
{
    wb_layer *m = model(), *other = wb_Chain(wb_Dense(2, 3)), *dense = wb_Dense(2, 3);
    wb_tensor *was = wb_stop_gradient(wb_get(m, "layers.0.weight"));
    WORKS(wb_eval(was));
    REFUSED(!wb_copy(m, other), WB_ERROR_ARGUMENT, "copy", "(to, from)", "layers.1");
    REFUSED(!wb_copy(other, m), WB_ERROR_ARGUMENT, "copy", "(from, to)", "layers.1");
    REFUSED(!wb_copy(dense, wb_Dense(2, 4)), WB_ERROR_SHAPE, "\"weight\"", "[3,2] f32",
            "[4,2] f32");
    REFUSED(!wb_copy(dense, wb_Dense(2, 3, .bias = false)), WB_ERROR_SHAPE, "\"bias\"",
            "no tensor");
    REFUSED(!wb_copy(wb_Dense(2, 3, .bias = false), dense), WB_ERROR_ARGUMENT, "\"bias\"",
            "[3] f32");
    wb_layer *apart = wb_Chain(wb_Dense(2, 2), wb_Dense(2, 2)), *tied = wb_clone(apart);
    WORKS(wb_tie(tied, "layers.1.weight", "layers.0.weight"));
    REFUSED(!wb_copy(tied, apart), WB_ERROR_ARGUMENT, "layers.1.weight", "several places");
    WORKS(wb_copy(apart, tied));
    wb_tree *constant = wb_tuple(wb_ones(2)), *variable = wb_tuple(wb_variable(wb_ones(2)));
    REFUSED(!wb_copy(constant, variable), WB_ERROR_ARGUMENT, "\"0\"", "constant", "wb_variable");
    REFUSED(!wb_copy(constant, wb_tuple(wb_zeros(2))), WB_ERROR_ARGUMENT, "no variable");
    REFUSED(!wb_copy(m, NULL), WB_ERROR_ARGUMENT, "copy", "NULL");
    REFUSED(!wb_copy(m, was), WB_ERROR_ARGUMENT, "copy", "tensor");
    wb_clear_error();
    assert_true(wb_item(wb_all(wb_eq(was, wb_get(m, "layers.0.weight")))) != 0);
}

TEST_IN_SCOPE(flat)
{
    wb_layer *m = wb_testmode(model());
    wb_tensor *x = wb_randn(4, 2), *flat = wb_destructure(m);
    assert_int_equal(wb_size(flat), wb_parameter_count(m));
    assert_true(wb_at(flat, 5) == wb_at(wb_get(m, "layers.0.weight"), 2, 1));
    wb_layer *same = wb_restructure(m, flat);
    close_to(wb_call(same, x), wb_call(m, x));
    assert_ptr_equal(wb_get(same, "layers.3.weight"), wb_get(same, "layers.1.weight"));
    /* gradients with respect to the vector are those of the parameters */
    wb_tensor *v = wb_variable(flat);
    wb_tensor *g = wb_gradient(wb_sum(wb_square(wb_call(wb_restructure(m, v), x))), v);
    wb_tree *want = wb_gradient(wb_sum(wb_square(wb_call(m, x))), m);
    close_to(wb_slice(g, 0, 0, 6), wb_reshape(wb_get(want, "layers.0.weight"), -1));
    close_to(wb_slice(g, 0, 9, 18), wb_reshape(wb_get(want, "layers.1.weight"), -1));
    /* the gradient of the vector with respect to a parameter */
    wb_tensor *w = wb_get(m, "layers.head.weight");
    close_to(wb_gradient(wb_sum(wb_square(wb_destructure(m))), w), wb_mul(w, 2));
    REFUSED(wb_restructure(m, wb_zeros(5)), WB_ERROR_SHAPE, "restructure", "[5] f32", "31");
    REFUSED(wb_destructure(wb_Flatten()), WB_ERROR_ARGUMENT, "destructure", "trainable");
    wb_layer *wide = wb_Dense(2, 1, .dtype = WB_F64);
    wb_tensor *mixed = wb_destructure(wb_tuple(wb_Dense(1, 1), wide));
    assert_true(wb_dtype_of(mixed) == WB_F32 && wb_size(mixed) == 5);
}

typedef struct { char text[300]; int stop; } list;
static int add(wb_layer *layer, const char *path, void *ctx)
{
    list *l = ctx;
    const size_t n = strlen(l->text);
    snprintf(l->text + n, sizeof l->text - n, "%s%s", n ? " " : "", *path ? path : ".");
    return --l->stop == 0 ? 9 : 0;
}

TEST_IN_SCOPE(visits)
{
    wb_layer *m = wb_Chain(wb_Dense(2, 2), wb_SkipConnection(wb_Chain(wb_relu), wb_add));
    list l = {.stop = -1};
    assert_int_equal(wb_each_layer(m, add, &l), 0);
    assert_string_equal(l.text, ". layers.0 layers.1 layers.1.layers layers.1.layers.layers.0");
    l = (list){.stop = 2};
    assert_int_equal(wb_each_layer(wb_tuple(m, m), add, &l), 9);
    assert_string_equal(l.text, "0 0.layers.0");
    assert_int_equal(wb_layer_count(m), 2);
    assert_int_equal(wb_layer_count(wb_Dense(1, 1)), 0);
    assert_int_equal(wb_each_layer(wb_ones(1), add, &l), WB_ERROR_ARGUMENT);
    assert_int_equal(wb_layer_count((wb_layer *)wb_ones(1)), -1);
}

TEST_IN_SCOPE(outputs_of_layers)
{
    wb_layer *m = wb_Chain(wb_Dense(2, 3), wb_relu, wb_Dense(3, 1));
    wb_tensor *x = wb_randn(4, 2), *y[3];
    assert_int_equal(wb_activations(m, x, 3, y), 0);
    close_to(y[0], wb_call(wb_layer_at(m, "layers.0"), x));
    close_to(y[1], wb_relu(y[0]));
    close_to(y[2], wb_call(m, x));
    FAILS(wb_activations(m, x, 2, y), WB_ERROR_ARGUMENT, "activations", "2", "3");
    FAILS(wb_activations(m, wb_ones(1, 3), 3, y), WB_ERROR_SHAPE, "layers.0", "Dense");
    assert_null(y[0]);
    assert_int_equal(wb_activations(wb_Dense(2, 1), x, 1, y), WB_ERROR_ARGUMENT);
    FAILED(WB_ERROR_ARGUMENT, "activations", "Dense", "Chain");
}

TEST_IN_SCOPE(shapes)
{
    wb_layer *m = wb_trainmode(wb_Chain(wb_Conv(1, 6, {5, 5}, wb_relu), wb_BatchNorm(6),
                                        wb_MaxPool({2}), wb_Flatten(), wb_Dropout(0.5)));
    int64_t out[WB_MAX_DIMS];
    wb_seed(3);
    const wb_engine_stats before = wb_stats();
    assert_int_equal(wb_output_size(m, WB_F32, 4, (int64_t[]){8, 1, 28, 28}, out), 2);
    assert_true(out[0] == 8 && out[1] == 6 * 12 * 12);
    assert_int_equal(wb_stats().steps, before.steps);
    assert_true(wb_item(wb_sum(wb_get(m, "layers.1.mean"))) == 0);
    const double drawn = wb_item(wb_rand(1));
    wb_seed(3);
    assert_true(wb_item(wb_rand(1)) == drawn);
    assert_int_equal(wb_output_size(wb_Embedding(9, 4), WB_I32, 2, (int64_t[]){2, 3}, out), 3);
    assert_true(out[2] == 4);
    assert_int_equal(wb_output_size(m, WB_F32, 2, (int64_t[]){8, 28}, out), -1);
    FAILED(WB_ERROR_SHAPE, "layers.0", "Conv");
}

TEST_IN_SCOPE(summaries)
{
    wb_layer *d = wb_Dense(64, 64);
    wb_layer *m = wb_Chain(wb_Conv(1, 4, {3, 3}), wb_Flatten(), wb_Dense(144, 64), d, d);
    wb_tensor *x = wb_randn(2, 1, 8, 8);
    char *text = wb_summary_format(m, 1, &x);
    if (!text) fail_msg("%s", wb_error());
    assert_int_equal(lines_of(text), 7);
    /* 2 x 4 x 6 x 6 results of 9 products and a bias; 2 x 64 of 144 */
    assert_true(HAS_LINE(text, "layers.0", "[2,4,6,6] f32", "40", "0.005"));
    assert_true(HAS_LINE(text, "layers.2", "Dense(144", "[2,64] f32", "9280", "0.037"));
    assert_true(HAS_LINE(text, "layers.3", "4160", "0.017"));
    assert_true(HAS_LINE(text, "all", "13480"));
    wb_free_text(text);
    /* attention has one row with its products; statistics stay as they are */
    wb_layer *both = wb_trainmode(wb_Chain(wb_MultiHeadAttention(8, 2), wb_BatchNorm(5)));
    wb_tensor *words = wb_randn(2, 5, 8);
    text = wb_summary_format(both, 1, &words);
    if (!text) fail_msg("%s", wb_error());
    assert_int_equal(lines_of(text), 4);
    assert_true(HAS_LINE(text, "layers.0", "[2,5,8] f32", "256"));
    wb_free_text(text);
    assert_true(wb_item(wb_sum(wb_abs(wb_get(both, "layers.1.mean")))) == 0);
    wb_tensor *wrong = wb_ones(1, 3);
    REFUSED(wb_summary_format(m, 1, &wrong), WB_ERROR_SHAPE, "layers.0", "Conv");
    REFUSED(wb_summary_format(d, 1, NULL), WB_ERROR_ARGUMENT, "Dense: no inputs");
}

TEST_IN_SCOPE(profiles)
{
    wb_layer *m = wb_Chain(wb_Dense(64, 64, wb_tanh), wb_Dense(64, 1));
    REFUSED(wb_profile_end(NULL), WB_ERROR_ARGUMENT, "profile_end", "wb_profile_begin");
    assert_int_equal(wb_profile_begin(), 0);
    assert_int_equal(wb_profile_begin(), WB_ERROR_ARGUMENT);
    wb_tensor *x = wb_randn(128, 64);
    for (int i = 0; i < 3; i++) assert_non_null(wb_data(wb_call(m, x)));
    const char *path = in_folder("trace.json");
    char *text = wb_profile_end(path);
    if (!text) fail_msg("%s", wb_error());
    assert_true(HAS_LINE(text, "matmul", "[128,64]", "3"));
    assert_true(HAS_LINE(text, "all", "100.0%"));
    wb_free_text(text);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    static char trace[1 << 16];
    trace[fread(trace, 1, sizeof trace - 1, f)] = 0;
    fclose(f);
    assert_true(strstr(trace, "{\"traceEvents\":[{\"name\":") == trace);
    assert_non_null(strstr(trace, "\"ph\":\"X\""));
    assert_int_equal(wb_profile_begin(), 0);
    assert_non_null(wb_data(wb_call(m, x)));
    REFUSED(wb_profile_end(WB_TEST_NOWHERE "/trace.json"), WB_ERROR_FILE, WB_TEST_NOWHERE);
}

int main(void)
{
    setenv("WEBER_CPU_DEVICES", "2", 0);
    return run_cases(make_folder, remove_folder);
}
