/* Trees: paths, visits, mapping, ties, structs of the program, and gradients with the structure
 * of the model. */
#include "golden.h"

static wb_tensor *numbers(int n, const float *values)
{
    return wb_from(values, WB_F32, 1, (int64_t[]){n});
}
#define NUMBERS(...) numbers(sizeof((float[]){__VA_ARGS__}) / sizeof(float), (float[]){__VA_ARGS__})

TEST(paths)
{
    wb_layer *m =
        wb_Chain(wb_Dense(2, 3, .bias = false), wb_relu, wb_named("head", wb_Dense(3, 1)));
    assert_int_equal(wb_size(wb_get(m, "layers.0.weight")), 6);
    assert_true(wb_is_none(wb_get(m, "layers.0.bias")));
    assert_int_equal(wb_size(wb_get(m, "layers.head.bias")), 1);
    assert_ptr_equal(wb_get(wb_child(m, "layers.head"), "weight"), wb_get(m, "layers.head.weight"));
    assert_ptr_equal(wb_get(wb_child(m, ""), "layers.head.weight"),
                     wb_get(m, "layers.head.weight"));
    assert_ptr_equal(wb_get(wb_child(m, "layers"), "head.weight"), wb_get(m, "layers.head.weight"));
    assert_non_null(wb_layer_at(m, "layers.head"));
    assert_int_equal(wb_child_count(m), 1);
    wb_tree *inner = wb_child(m, wb_child_name(m, 0));
    assert_int_equal(wb_child_count(inner), 3);
    assert_string_equal(wb_child_name(inner, 0), "0");
    assert_string_equal(wb_child_name(inner, 2), "head");
    assert_string_equal(wb_child_name(wb_layer_at(m, "layers.head"), 1), "bias");
    assert_int_equal(wb_child_count(wb_zeros(2)), 0);
    assert_int_equal(wb_child_count(wb_opaque(NULL)), 0);
    REFUSED(wb_child_name(inner, 3), WB_ERROR_ARGUMENT, "child_name", "3");
    REFUSED(wb_child_name(inner, -1), WB_ERROR_ARGUMENT, "child_name", "-1", "3");
    assert_int_equal(wb_child_count(wb_Adam()), -1);
    FAILED(WB_ERROR_ARGUMENT, "child_count", "rule");
    wb_clear_error();
    assert_int_equal(wb_child_count(NULL), -1);
    FAILED(WB_ERROR_ARGUMENT, "child_count", "NULL");
    assert_ptr_equal(wb_layer_at(m, ""), m);
    wb_tensor *x = wb_zeros(2);
    assert_ptr_equal(wb_get(x, ""), x);
    REFUSED(wb_get(m, "layers.3.weight"), WB_ERROR_ARGUMENT, "get:", "\"3\"", "\"layers\"", "0",
            "1", "head");
    REFUSED(wb_get(m, "layers.0"), WB_ERROR_ARGUMENT, "get:", "\"layers.0\"", "layer", "tensor");
    REFUSED(wb_get(m, "layers.0.weight.x"), WB_ERROR_ARGUMENT, "get:", "\"layers.0.weight\"",
            "tensor");
    REFUSED(wb_child(m, "layers.0.weight"), WB_ERROR_ARGUMENT, "child", "\"layers.0.weight\"",
            "tensor", "tree");
    REFUSED(wb_layer_at(m, "layers"), WB_ERROR_ARGUMENT, "layer_at", "\"layers\"", "tree", "layer");
    REFUSED(wb_get(NULL, "x"), WB_ERROR_ARGUMENT, "get:", "tensor", "NULL");
    REFUSED(wb_tuple(m, NULL), WB_ERROR_ARGUMENT, "tuple", "element", "1", "NULL");
    REFUSED(wb_tuple_array(2, (void *[]){m, wb_Adam()}), WB_ERROR_ARGUMENT, "tuple", "element", "1",
            "rule", "tensors", "trees");
    REFUSED(wb_named_tuple(2, (const char *[]){"a", "a"}, (void *[]){m, m}), WB_ERROR_ARGUMENT,
            "named_tuple", "elements", "\"a\"");
    REFUSED(wb_named_tuple(1, (const char *[]){"a.b"}, (void *[]){m}), WB_ERROR_ARGUMENT,
            "named_tuple", "element", "0", "\"a.b\"");
}

typedef struct { char text[500]; int stop_at, n; } list;
static int write_down(wb_tensor *x, const char *path, void *ctx)
{
    list *l = ctx;
    size_t n = strlen(l->text);
    snprintf(l->text + n, sizeof l->text - n, "%s%s:%lld", n ? " " : "", path,
             (long long)wb_size(x));
    return ++l->n == l->stop_at ? 7 : 0;
}

TEST(visits)
{
    wb_layer *d = wb_Dense(2, 2), *m = wb_Chain(d, wb_BatchNorm(2), d);
    list l = {0};
    assert_int_equal(wb_each_parameter(m, write_down, &l), 0);
    assert_string_equal(l.text,
                        "layers.0.weight:4 layers.0.bias:2 layers.1.scale:2 layers.1.bias:2");
    assert_int_equal(wb_parameter_count(m), 10);
    l = (list){0};
    assert_int_equal(wb_each_tensor(m, write_down, &l), 0);
    assert_string_equal(l.text, "layers.0.weight:4 layers.0.bias:2 layers.1.scale:2 "
                                "layers.1.bias:2 layers.1.mean:2 layers.1.var:2");
    l = (list){.stop_at = 2};
    assert_int_equal(wb_each_tensor(m, write_down, &l), 7);
    l = (list){0};
    wb_tree *t = wb_tuple(wb_zeros(3), wb_arange(2, WB_I32), wb_tuple(m), WB_NONE);
    assert_int_equal(wb_each_parameter(t, write_down, &l), 0);
    assert_string_equal(
        l.text,
        "0:3 2.0.layers.0.weight:4 2.0.layers.0.bias:2 2.0.layers.1.scale:2 2.0.layers.1.bias:2");
    assert_int_equal(wb_parameter_count(wb_tuple_array(0, NULL)), 0);
}

static int called;
static wb_tensor *twice(wb_tensor *x, const char *path, void *ctx)
{
    called++;
    return strstr(path, "bias") ? x : wb_mul(x, wb_scalar(2));
}
static wb_tensor *nothing(wb_tensor *x, const char *path, void *ctx)
{
    return (void)x, (void)path, (void)ctx, NULL;
}

TEST(mapping_keeps_ties)
{
    wb_layer *d = wb_Dense(2, 2), *m = wb_testmode(wb_Chain(d, wb_BatchNorm(2), d, wb_Dense(2, 2)));
    assert_int_equal(wb_tie(m, "layers.3.weight", "layers.0.weight"), 0);
    called = 0;
    wb_layer *mapped = wb_fmap(twice, m, NULL);
    assert_int_equal(called, 7);
    assert_ptr_not_equal(mapped, m);
    assert_ptr_not_equal(wb_get(mapped, "layers.0.weight"), wb_get(m, "layers.0.weight"));
    assert_ptr_equal(wb_get(mapped, "layers.0.weight"), wb_get(mapped, "layers.2.weight"));
    assert_ptr_equal(wb_get(mapped, "layers.0.weight"), wb_get(mapped, "layers.3.weight"));
    assert_ptr_equal(wb_layer_at(mapped, "layers.0"), wb_layer_at(mapped, "layers.2"));
    assert_ptr_equal(wb_get(mapped, "layers.0.bias"), wb_get(m, "layers.0.bias"));
    assert_int_equal(wb_layer_at(mapped, "layers.1")->mode, WB__MODE_TEST);
    /* Running statistics do not become parameters. */
    assert_int_equal(wb_parameter_count(mapped), wb_parameter_count(m));
    assert_true(wb_at(wb_get(mapped, "layers.0.weight"), 0, 1) ==
                2 * wb_at(wb_get(m, "layers.0.weight"), 0, 1));
    assert_non_null(wb_call(mapped, wb_zeros(3, 2)));
    assert_null(wb_fmap(nothing, m, NULL));
    wb_tree *t = wb_tuple(wb_ones(2), wb_opaque(&called), m);
    wb_tree *u = wb_fmap(twice, t, NULL);
    assert_true(wb_at(wb_get(u, "0"), 1) == 2);
    assert_ptr_equal(wb_opaque_get(wb_child(u, "1")), &called);
    wb_tensor *x = wb_variable(wb_ones(3));             /* an opaque part has no gradient */
    wb_tree *g = wb_gradient(wb_sum(x), wb_tuple(x, wb_opaque(&called), wb_tuple(wb_opaque(NULL))));
    assert_true(wb_at(wb_get(g, "0"), 2) == 1);
    assert_true(wb_is_none(wb_get(g, "1")) && wb_is_none(wb_get(g, "2.0")));
    assert_int_equal(wb_parameter_count(wb_gradient(wb_sum(x), wb_opaque(NULL))), 0);
}

TEST(setting_and_tying)
{
    wb_layer *m = wb_Chain(wb_Dense(2, 3), wb_Dense(2, 3), wb_Dense(3, 2));
    assert_int_equal(wb_set(m, "layers.0.bias", NUMBERS(1, 2, 3)), 0);
    assert_true(wb_at(wb_get(m, "layers.0.bias"), 2) == 3);
    REFUSED(!wb_set(m, "layers.0.bias", NUMBERS(1, 2)), WB_ERROR_SHAPE, "set:", "\"layers.0.bias\"",
            "[3] f32", "[2] f32");
    REFUSED(!wb_set(m, "layers.0", NUMBERS(1, 2)), WB_ERROR_ARGUMENT, "set:", "\"layers.0\"",
            "layer", "tensor");
    assert_int_equal(wb_tie(m, "layers.1.weight", "layers.0.weight"), 0);
    assert_ptr_equal(wb_get(m, "layers.1.weight"), wb_get(m, "layers.0.weight"));
    assert_int_equal(wb_parameter_count(m), 6 + 3 + 3 + 8);
    REFUSED(!wb_tie(m, "layers.2.weight", "layers.0.weight"), WB_ERROR_SHAPE, "tie",
            "\"layers.2.weight\"", "[2,3] f32", "[3,2] f32");
}

/* ---- structs --------------------------------------------------------------------------------- */

typedef struct { wb_layer *actor; double gamma; wb_tensor *scale; } agent;
WB_FUNCTOR(agent, actor, scale)
typedef struct { wb_layer *actor; } other;
WB_FUNCTOR(other, actor)

TEST(structs)
{
    agent a = {wb_Dense(2, 1), 0.9, NUMBERS(3)}, b = {0};
    wb_tree *t = wb_struct(agent, &a);
    assert_int_equal(wb_parameter_count(t), 4);
    wb_tree *mapped = wb_fmap(twice, t, NULL);
    assert_int_equal(wb_struct_get(agent, mapped, &b), 0);
    assert_true(b.gamma == 0.9 && b.actor != a.actor && wb_at(b.scale, 0) == 6);
    assert_non_null(wb_call(b.actor, wb_zeros(1, 2)));
    other o;
    REFUSED(!wb_struct_get(other, mapped, &o), WB_ERROR_ARGUMENT, "struct_get", "tree", "agent",
            "other");
    a.scale = NULL;
    REFUSED(wb_struct(agent, &a), WB_ERROR_ARGUMENT, "struct_typed", "object", "NULL");
    wb_tensor *x = NUMBERS(1, 2), *loss = wb_sum(wb_mul(wb_call(b.actor, x), b.scale));
    wb_tree *g = wb_gradient(loss, mapped);
    assert_true(fabs(wb_at(wb_get(g, "actor.weight"), 0, 1) - 12) < 1e-5);
    assert_int_equal(wb_size(wb_get(g, "scale")), 1);
}

/* ---- gradients ------------------------------------------------------------------------------- */

TEST(gradients)
{
    wb_tensor *w = wb_rand(2, 5), *b = wb_rand(2), *x = wb_rand(5), *y = wb_rand(2);
    wb_tensor *l = wb_sum(wb_square(wb_sub(wb_add(wb_matmul(w, x), b), y)));
    wb_tree *g = wb_gradient(l, wb_tuple(w, b, wb_zeros(3), wb_arange(3, WB_I32), WB_NONE));
    wb_tensor *residual = wb_mul(wb_scalar(2), wb_sub(wb_add(wb_matmul(w, x), b), y));
    assert_true(wb_item(wb_max(wb_abs(wb_sub(wb_get(g, "1"), residual)))) < 1e-5);
    wb_tensor *outer = wb_mul(wb_unsqueeze(residual, 1), wb_unsqueeze(x, 0));
    assert_true(wb_item(wb_max(wb_abs(wb_sub(wb_get(g, "0"), outer)))) < 1e-5);
    assert_true(wb_is_none(wb_get(g, "2")) && wb_is_none(wb_get(g, "3")) &&
                wb_is_none(wb_get(g, "4")));
    wb_tensor *zero = wb_gradient(l, wb_ones(3));
    assert_true(wb_item(wb_sum(zero)) == 0 && wb_size(zero) == 3);
    REFUSED(wb_gradient(y, w), WB_ERROR_SHAPE, "gradient", "loss", "[2] f32", "element");
    REFUSED(wb_gradient(NULL, w), WB_ERROR_ARGUMENT, "gradient_tensor", "loss", "NULL");

    /* Both names of a tie have the sum of the gradients of both uses. */
    wb_layer *m = wb_Chain(wb_Dense(2, 2, .bias = false), wb_Dense(2, 2, .bias = false));
    wb_tensor *in = wb_from((float[]){1, 2}, WB_F32, 2, (int64_t[]){1, 2});
    wb_layer *apart = wb_fmap(twice, m, NULL);
    wb_set(apart, "layers.0.weight", wb_get(m, "layers.0.weight"));
    wb_set(apart, "layers.1.weight", wb_get(m, "layers.0.weight"));
    wb_tie(m, "layers.1.weight", "layers.0.weight");
    wb_tree *tied = wb_gradient(wb_sum(wb_call(m, in)), m),
            *two = wb_gradient(wb_sum(wb_call(apart, in)), apart);
    wb_tensor *sum = wb_add(wb_get(two, "layers.0.weight"), wb_get(two, "layers.1.weight"));
    assert_ptr_equal(wb_get(tied, "layers.0.weight"), wb_get(tied, "layers.1.weight"));
    assert_true(wb_item(wb_max(wb_abs(wb_sub(wb_get(tied, "layers.0.weight"), sum)))) < 1e-5);
}

int main(void) { return run_cases(golden_open, golden_close); }
