/* Models of ONNX as layers: calls, parameters, files, shapes that depend on sizes. */
#include "onnx_model.h"

#include "far_device.h"

#include "base/text.h"
#include "engine/tensor.h"
#include "io/safetensors/safetensors.h"

#include <pthread.h>

/* ---- a network ------------------------------------------------------------------------------- */

/* y = relu(x fc.0.weight + fc.0.bias), x [N,2], y [N,3] */
static void put_network(void)
{
    start_with("x", F, 2, (int64_t[]){-1, 2});
    put_value(OUTPUT, "y", F, 2, (int64_t[]){-1, 3});
    put_matrix("fc.0.weight", 2, 3, VALUES(1, -1, 2, 0, 1, 1));
    put_floats("fc.0.bias", 3, VALUES(0, 0.5f, -1));
    put_floats("unused", 1, VALUES(7));
    put_node("MatMul", "x fc.0.weight", "h");
    put_node("Add", "h fc.0.bias", "sum");
    put_node("Relu", "sum", "y");
}

static wb_tensor *some_x(void) { return floats(DIMS(2, 2), VALUES(1, 2, -1, 3)); }
static const float some_y[] = {1, 1.5f, 3, 0, 4.5f, 0};

static int add_path(wb_tensor *x, const char *name, void *text)
{
    wb__text_add(text, "%s %s\n", name, wb_describe(x));
    return 0;
}

TEST_IN_SCOPE(a_layer)
{
    put_network();
    wb_layer *l = loaded();
    is_tensor(wb_call(l, some_x()), DIMS(2, 3), some_y);
    is_tensor(wb_call(l, floats(DIMS(1, 2), VALUES(1, 2))), DIMS(1, 3), some_y);
    assert_int_equal(wb_dim(wb_call(l, wb_zeros(0, 2)), 0), 0);
    assert_int_equal(wb_parameter_count(l), 9);
    is_tensor(wb_get(l, "fc.0.bias"), DIMS(3), VALUES(0, 0.5f, -1));
    wb__text t = {0};
    WORKS(wb_each_parameter(l, add_path, &t));
    char *text = wb__text_take(&t);
    assert_string_equal(text, "fc.0.weight [2,3] f32\nfc.0.bias [3] f32\n");
    wb__free(text);
    text = wb_object_format(l);
    assert_true(HAS_FACTS(text, "Onnx", "m.onnx", "x", "[N,2]", "y", "[N,3]", "9 parameters"));
    wb_free_text(text);
    wb_layer *chain = wb_Chain(l, wb_Dense(3, 1));
    assert_int_equal(wb_size(wb_call(chain, some_x())), 2);
    is_tensor(wb_get(chain, "layers.0.fc.0.bias"), DIMS(3), VALUES(0, 0.5f, -1));
}

TEST_IN_SCOPE(inputs)
{
    put_network();
    wb_layer *l = loaded();
    REFUSED(wb_call(l, wb_zeros(2, 3)), WB_ERROR_SHAPE, "m.onnx", "x", "[2,3]", "[N,2]");
    REFUSED(wb_call(l, wb_zeros(2)), WB_ERROR_SHAPE, "[2]", "2 dimensions");
    REFUSED(wb_call(l, wb_full_array(0, WB_F64, DIMS(2, 2))), WB_ERROR_DTYPE, "f32", "[2,2] f64");
    REFUSED(wb_call_array(l, 2, (wb_tensor *[]){some_x(), some_x()}), WB_ERROR_ARGUMENT, "1", "2");
    start_with("a", F, 2, (int64_t[]){-1, 2});
    put_value(INPUT, "b", F, 1, (int64_t[]){-1});
    put_node("Neg", "a", "c");
    put_result("Neg", "b", "d");
    put_name(OUTPUT, "c");
    l = loaded();
    wb_tensor *x[] = {some_x(), wb_ones(2)}, *y[2];
    WORKS(wb_call_outputs(l, 2, x, 2, y));
    is_tensor(y[0], DIMS(2), VALUES(-1, -1));
    is_tensor(y[1], DIMS(2, 2), VALUES(-1, -2, 1, -3));
    x[1] = wb_ones(3);
    REFUSED(wb_call_array(l, 2, x), WB_ERROR_SHAPE, "N", "2", "3", "a", "b");
}

TEST_IN_SCOPE(training)
{
    put_network();
    wb_layer *l = loaded();
    wb_tensor *loss = wb_sum(wb_call(l, some_x()));
    wb_tree *g = wb_gradient(loss, l);
    is_tensor(wb_get(g, "fc.0.bias"), DIMS(3), VALUES(1, 2, 1));
    is_tensor(wb_get(g, "fc.0.weight"), DIMS(2, 3), VALUES(1, 0, 1, 2, 5, 2));
    wb_opt_state *state = wb_setup(wb_Descent(0.5), l);
    WORKS(wb_update(state, l, g));
    is_tensor(wb_get(l, "fc.0.bias"), DIMS(3), VALUES(-0.5f, -0.5f, -1.5f));
}

TEST_IN_SCOPE(own_files)
{
    put_network();
    wb_layer *l = loaded();
    WORKS(wb_save(in_folder("m.safetensors"), l));
    wb_layer *again = wb_load(in_folder("m.safetensors"));
    MADE(again);
    is_tensor(wb_call(again, some_x()), DIMS(2, 3), some_y);
    assert_shown_alike(l, again);
    const char *names[] = {"fc.0.weight", "fc.0.bias"};
    wb_layer *copy = wb_clone(l);
    MADE(copy);
    WORKS(wb_set(copy, names[1], wb_zeros(3)));
    is_tensor(wb_call(copy, some_x()), DIMS(2, 3), VALUES(1, 1, 4, 0, 4, 1));
    is_tensor(wb_call(l, some_x()), DIMS(2, 3), some_y);
    WORKS(wb_load_state(in_folder("m.safetensors"), copy));
    is_tensor(wb_call(copy, some_x()), DIMS(2, 3), some_y);
    WORKS(wb_set(copy, names[1], wb_zeros(3)));
    WORKS(wb_load_state(in_folder("m.onnx"), copy));
    is_tensor(wb_call(copy, some_x()), DIMS(2, 3), some_y);
    wb_layer *chain = wb_Chain(wb_named("body", l), wb_Dense(3, 1));
    WORKS(wb_save(in_folder("chain.safetensors"), chain));
    wb_layer *both = wb_load(in_folder("chain.safetensors"));
    MADE(both);
    assert_true(wb_item(wb_sum(wb_call(chain, some_x()))) ==
                wb_item(wb_sum(wb_call(both, some_x()))));
    wb_free(l);
    is_tensor(wb_call(again, some_x()), DIMS(2, 3), some_y);
}

TEST_IN_SCOPE(statistics)
{
    start_with("x", F, 2, (int64_t[]){-1, 2});
    put_floats("bn.weight", 2, VALUES(1, 2));
    put_floats("bn.bias", 2, VALUES(0, 1));
    put_floats("bn.running_mean", 2, VALUES(1, 1));
    put_floats("bn.running_var", 2, VALUES(1, 4));
    put_number("two", 2);
    const size_t at = begin_node("BatchNormalization",
                                 "x bn.weight bn.bias bn.running_mean bn.running_var", "h");
    wb__wire_end(&o, at);
    put_result("Mul", "h two", "y");
    wb_layer *l = loaded();
    assert_int_equal(wb_parameter_count(l), 4);
    assert_true(((wb_tensor *)wb_get(l, "bn.running_var"))->flags & WB__FROZEN);
    wb_tensor *y = wb_call(l, some_x());
    MADE(y);
    const float *data = wb_data(y);
    assert_true(fabsf(data[3] - 6) < 1e-3f);    /* 2 (2 (3 - 1) / 2 + 1) */
    /* a state dict of PyTorch, which counts batches */
    const float v[2] = {5, 6};
    const int64_t count = 3;
    const char *path = in_folder("state.safetensors");
    wb__st_out state[] = {{"bn.weight", WB_F32, 1, (int64_t[]){2}, 8, v, NULL},
                          {"bn.bias", WB_F32, 1, (int64_t[]){2}, 8, v, NULL},
                          {"bn.running_mean", WB_F32, 1, (int64_t[]){2}, 8, v, NULL},
                          {"bn.running_var", WB_F32, 1, (int64_t[]){2}, 8, v, NULL},
                          {"bn.num_batches_tracked", WB_I64, 0, NULL, 8, &count, NULL}};
    WORKS(wb__st_save(NULL, path, 5, state, 0, NULL));
    WORKS(wb_load_state(path, l));
    is_tensor(wb_get(l, "bn.running_mean"), DIMS(2), v);
    /* in place of the count a constant of the model, with its value and with another */
    float two = 2;
    int at_count = 0;
    while (strcmp(state[at_count].name, "bn.num_batches_tracked")) at_count++;
    state[at_count] = (wb__st_out){"two", WB_F32, 0, NULL, 4, &two, NULL};
    WORKS(wb__st_save(NULL, path, 5, state, 0, NULL));
    WORKS(wb_load_state(path, l));
    two = 3;
    WORKS(wb__st_save(NULL, path, 5, state, 0, NULL));
    FAILS(wb_load_state(path, l), WB_ERROR_FORMAT, "two", "[] f32");
}

/* ---- shapes that depend on sizes ------------------------------------------------------------- */

/* y = x reshaped to [N, -1], by Shape, Gather, Unsqueeze, Concat */
static void put_flatten(void)
{
    start_with("x", F, 3, (int64_t[]){-1, -2, 2});
    put_integers("zero", 0, 1, (int64_t[]){0});
    put_integers("axes", 1, 1, (int64_t[]){0});
    put_integers("rest", 1, 1, (int64_t[]){-1});
    put_node("Shape", "x", "shape");
    put_axis("Gather", "shape zero", "n", 0);
    put_node("Unsqueeze", "n axes", "n1");
    put_axis("Concat", "n1 rest", "to", 0);
    put_result("Reshape", "x to", "y");
}

TEST_IN_SCOPE(sizes)
{
    put_flatten();
    wb_layer *l = loaded();
    assert_int_equal(wb_parameter_count(l), 0);
    for (int i = 0; i < 6; i++) {
        const int64_t n = 2 + i % 3, t = 3 + i % 2;
        wb_tensor *y = wb_call(l, wb_rand(n, t, 2));
        MADE(y);
        assert_int_equal(wb_dim(y, 0), n);
        assert_int_equal(wb_dim(y, 1), 2 * t);
    }
    const wb_engine_stats before = wb_stats();
    wb_call(l, wb_zeros(2, 3, 2));
    assert_int_equal(wb_stats().steps, before.steps);           /* nothing is evaluated again */
}

TEST_IN_SCOPE(recorded)
{
    put_flatten();
    wb_layer *l = loaded();
    wb_compiled *c = wb_compile(call_layer, l);
    for (int i = 0; i < 4; i++) {
        wb_tensor *x = wb_rand(2 + i % 2, 3, 2), *y;
        WORKS(wb_call_compiled(c, 1, &x, 1, &y));
        assert_int_equal(wb_dim(y, 1), 6);
        assert_memory_equal(wb_data(x), wb_data(y), (size_t)wb_size(x) * 4);
    }
}

/* y = x + scale (0, 1, ...), a row as long as those of x, which is data that only sizes determine,
 * and whose first element is a constant */
static void put_positions(void)
{
    start_with("x", F, 2, (int64_t[]){-1, -2});
    put_integers("one", 0, 1, (int64_t[]){1});
    put_integers("none", 1, 1, (int64_t[]){0});
    put_floats("scale", 1, VALUES(2));
    put_node("Shape", "x", "shape");
    put_axis("Gather", "shape one", "n", 0);
    put_node("Range", "one n one", "rest");
    put_axis("Concat", "none rest", "row", 0);
    put_cast("row", "reals", F);
    put_node("Mul", "reals scale", "scaled");
    put_number("unit", 1);
    put_node("Add", "x scaled", "sum");
    put_result("Mul", "sum unit", "y");
}

TEST_IN_SCOPE(positions)
{
    put_positions();
    wb_layer *l = loaded();
    assert_int_equal(wb_parameter_count(l), 1);
    for (int i = 0; i < 2; i++) {
        is_tensor(wb_call(l, wb_ones(1, 3)), DIMS(1, 3), VALUES(1, 3, 5));
        is_tensor(wb_call(l, wb_ones(2, 1)), DIMS(2, 1), VALUES(1, 1));
    }
    wb_compiled *c = wb_compile(call_layer, l);
    wb_tensor *x = wb_ones(1, 2), *y;
    WORKS(wb_call_compiled(c, 1, &x, 1, &y));
    is_tensor(y, DIMS(1, 2), VALUES(1, 3));
    is_tensor(wb_get(wb_gradient(wb_sum(wb_call(l, wb_ones(1, 3))), l), "scale"), DIMS(1),
              VALUES(3));
}

/* The row is computed on the CPU and copied to the device, once for each size. */
TEST_IN_SCOPE(another_device)
{
    put_positions();
    const wb_device *d = far_device();
    wb_layer *l = wb_to(loaded(), d);
    for (int i = 0; i < 3; i++) {
        wb_tensor *x = wb_to(wb_from(VALUES(1, 1, 1), WB_F32, DIMS(1, 3)), d);
        far_forget();
        wb_tensor *y = wb_call(l, x);
        MADE(y);
        assert_true(wb_device_of(y) == d);
        assert_int_equal(far_count().uploads, i ? 0 : 2);     /* the row, and the unit */
        is_tensor(wb_cpu(y), DIMS(1, 3), VALUES(1, 3, 5));
    }
    wb_compiled *c = wb_compile(call_layer, l);
    wb_tensor *x = wb_to(wb_from(VALUES(1, 1), WB_F32, DIMS(1, 2)), d), *y;
    WORKS(wb_call_compiled(c, 1, &x, 1, &y));
    is_tensor(wb_cpu(y), DIMS(1, 2), VALUES(1, 3));
}

/* y = x in the shape of the input `to` */
TEST_IN_SCOPE(a_shape_that_is_an_input)
{
    start_with("x", F, 1, (int64_t[]){-1});
    put_value(INPUT, "to", I, 1, (int64_t[]){2});
    put_named("shaper", "Reshape", "x to", "y");
    put_name(OUTPUT, "y");
    wb_layer *l = loaded();
    const int64_t shapes[][2] = {{2, 3}, {3, 2}, {2, 3}};
    for (int i = 0; i < 3; i++) {
        wb_tensor *x[] = {wb_ones(6), wb_from(shapes[i], WB_I64, DIMS(2))};
        wb_tensor *y = wb_call_array(l, 2, x);
        MADE(y);
        assert_int_equal(wb_dim(y, 0), shapes[i][0]);
    }
}

/* y has as many zeros as x, in the shape of `to`, has rows: inputs of the same sizes give
 * results of other sizes. */
TEST_IN_SCOPE(sizes_that_depend_on_a_value)
{
    start_with("x", F, 1, (int64_t[]){-1});
    put_value(INPUT, "to", I, 1, (int64_t[]){2});
    put_integers("first", 1, 1, (int64_t[]){0});
    put_node("Reshape", "x to", "r");
    put_node("Shape", "r", "shape");
    put_axis("Gather", "shape first", "rows", 0);
    put_node("ConstantOfShape", "rows", "zeros");
    put_node("Shape", "x", "all");
    put_node("ConstantOfShape", "all", "others");
    put_name(OUTPUT, "zeros");
    put_name(OUTPUT, "others");
    wb_layer *l = loaded();
    const int64_t shapes[][2] = {{2, 3}, {3, 2}, {3, 2}, {6, 1}, {2, 3}};
    for (int i = 0; i < 5; i++) {
        wb_tensor *x[] = {wb_ones(6), wb_from(shapes[i], WB_I64, DIMS(2))}, *y[2];
        WORKS(wb_call_outputs(l, 2, x, 2, y));
        assert_int_equal(wb_dim(y[0], 0), shapes[i][0]);
        assert_int_equal(wb_dim(y[1], 0), 6);
    }
}

static int call_both(wb_tensor *const *in, wb_tensor **out, void *layer)
{
    out[0] = wb_call_array(layer, 2, in);
    return out[0] ? 1 : -1;
}

TEST_IN_SCOPE(what_cannot_be_recorded)
{
    start_with("x", F, 1, (int64_t[]){-1});
    put_value(INPUT, "to", I, 1, (int64_t[]){2});
    put_named("shaper", "Reshape", "x to", "y");
    put_name(OUTPUT, "y");
    wb_compiled *c = wb_compile(call_both, loaded());
    wb_tensor *x[] = {wb_ones(6), wb_from((int64_t[]){2, 3}, WB_I64, DIMS(2))}, *y;
    FAILS(wb_call_compiled(c, 2, x, 1, &y), WB_ERROR_UNSUPPORTED, "Reshape", "shaper", "to",
          "wb_compile");
}

TEST_IN_SCOPE(dtypes_that_must_stay)
{
    start_with("x", F, 2, (int64_t[]){-1, 2});
    put_matrix("w", 2, 2, VALUES(1, 2, 3, 4));
    put_result("MatMul", "x w", "y");
    wb_layer *l = loaded();
    REFUSED(wb_setup(wb_Adam(), l, .mixed = WB_BF16), WB_ERROR_UNSUPPORTED, "w", "bf16", "ONNX");
    REFUSED(wb_to(l, wb_cpu_device(), .dtype = WB_F64), WB_ERROR_UNSUPPORTED, "w", "f64", "ONNX");
    is_tensor(wb_call(l, wb_ones(1, 2)), DIMS(1, 2), VALUES(4, 6));
}

/* The weight of a product whose result decides what is computed is a parameter too. */
TEST_IN_SCOPE(a_weight_that_decides)
{
    start_with("x", F, 2, (int64_t[]){-1, 2});
    put_matrix("w", 2, 2, VALUES(1, 2, 3, 4));
    put_number("zero", 0);
    put_node("MatMul", "x w", "h");
    const size_t sum = begin_node("ReduceSum", "h", "sum");
    put_int_attr("keepdims", 0);
    wb__wire_end(&o, sum);
    put_node("Greater", "sum zero", "condition");
    const size_t node = begin_node("If", "condition", "y");
    put_body("then_branch", "Neg", "h", "a");
    put_body("else_branch", "Identity", "h", "b");
    end_result(node, "y");
    wb_layer *l = loaded();
    is_tensor(wb_call(l, wb_ones(1, 2)), DIMS(1, 2), VALUES(-4, -6));
    is_tensor(wb_get(wb_gradient(wb_sum(wb_call(l, wb_ones(1, 2))), l), "w"), DIMS(2, 2),
              VALUES(-1, -1, -1, -1));
}

/* A file of PyTorch means the size of the result. */
TEST_IN_SCOPE(corners_of_pytorch)
{
    for (int i = 0; i < 2; i++) {
        wb__wire_free(&o);
        wb__wire_put_int(&o, 1, 8);
        wb__wire_put_text(&o, 2, i ? "pytorch" : "another");
        put_opset(8, "", 17);
        start_graph();
        put_value(INPUT, "x", F, 3, (int64_t[]){1, 1, -1});
        put_floats("scales", 3, VALUES(1, 1, 1.5f));
        const size_t node = begin_node("Resize", "x - scales", "y");
        put_text_attr("mode", "linear");
        put_text_attr("coordinate_transformation_mode", "align_corners");
        end_result(node, "y");
        wb_tensor *y = wb_call(loaded(), floats(DIMS(1, 1, 3), VALUES(0, 1, 2)));
        is_tensor(y, DIMS(1, 1, 4), i ? VALUES(0, 2.f / 3, 4.f / 3, 2)
                                      : VALUES(0, 2 / 3.5f, 4 / 3.5f, 6 / 3.5f));
    }
}

TEST_IN_SCOPE(an_input_that_the_operator_lacks)
{
    start_with("x", F, 1, (int64_t[]){-1});
    put_value(INPUT, "z", F, 1, (int64_t[]){-1});
    put_named("rectifier", "Relu", "x z", "y");
    put_name(OUTPUT, "y");
    REFUSED(load(), WB_ERROR_FORMAT, "Relu", "rectifier", "has 2 inputs", "1 at most");
}

/* Numbers out of range become the nearest integer, and NaN the least, as in ONNX Runtime. */
TEST_IN_SCOPE(quantised_nan)
{
    for (int i = 0; i < 2; i++) {
        start_with("x", F, 1, (int64_t[]){-1});
        put_number("scale", 0.01f);
        put_number("five", 5);
        put_cast("five", "zero", i ? 3 : 2);            /* INT8, UINT8 */
        put_result("QuantizeLinear", "x scale zero", "y");
        wb_tensor *y = wb_call(loaded(), floats(DIMS(5), VALUES(NAN, INFINITY, -INFINITY, 0, -1)));
        is_tensor(y, DIMS(5), i ? VALUES(-128, 127, -128, 5, -95) : VALUES(0, 255, 0, 5, 0));
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *call_often(void *layer)
{
    bool right = true;
    for (int i = 0; i < 40; i++) IN_SCOPE {
        const int64_t n = 1 + i % 5;
        wb_tensor *y = wb_call(layer, wb_rand(n, 3, 2));
        right = right && y && !wb_eval(y) && wb_dim(y, 0) == n && wb_dim(y, 1) == 6;
    }
    return right ? layer : NULL;
}

TEST_IN_SCOPE(threads)
{
    put_flatten();
    wb_layer *l = loaded();
    pthread_t threads[4];
    void *right;
    for (int i = 0; i < 4; i++) assert_false(pthread_create(&threads[i], NULL, call_often, l));
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &right);
        assert_true(right == l);
    }
}

int main(void) { return run_cases(make_folder, clean); }
