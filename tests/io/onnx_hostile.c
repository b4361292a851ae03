/* Models of ONNX that no exporter writes: what the operators of their opset do not have, and
 * extreme numbers.  They are errors that name the node, or mean what the standard gives. */
#include "onnx_model.h"

#include <math.h>

/* An initializer of i64 with two dimensions */
static void put_indices(const char *name, int rows, int columns, const int64_t *values)
{
    const size_t at = begin_tensor(INITIALIZER, name, I, 2, (int64_t[]){rows, columns});
    wb__wire_put_bytes(&o, 9, values, 8 * (size_t)(rows * columns));
    wb__wire_end(&o, at);
}

/* ---- what the opset has not ------------------------------------------------------------------ */

/* Begins a model of this opset with x [2,3], [lowest, highest] and [axis] */
static void start_opset(int64_t opset)
{
    start_version(8, opset);
    start_graph();
    put_value(INPUT, "x", F, 2, (int64_t[]){2, 3});
    put_number("low", -1);
    put_number("high", 1);
    put_integers("one", 1, 1, (int64_t[]){1});
}

static wb_layer *one_node(int64_t opset, const char *op, const char *inputs, const char *outputs,
                          const char *attribute)
{
    start_opset(opset);
    const size_t at = begin_node(op, inputs, outputs);
    wb__wire_put_text(&o, 3, "culprit");
    if (attribute) {
        const size_t attr = begin_attr(attribute, WB__ONNX_IS_INTS);
        wb__wire_put_ints(&o, 8, 1, (int64_t[]){1});
        wb__wire_end(&o, attr);
    }
    end_result(at, "y");
    return load();
}

/* A row: an opset in which the operator lacks what the node has, and one in which it has it */
static const struct {
    const char *op, *inputs, *attribute;
    int64_t without, with;
    const char *word;
} foreign[] = {
    {"Clip", "x low high", NULL, 6, 11, "3 inputs"},
    {"Clip", "x low high", NULL, 10, 13, "3 inputs"},
    {"ReduceMean", "x one", NULL, 17, 18, "2 inputs"},
    {"ReduceMax", "x one", NULL, 13, 20, "2 inputs"},
    {"ReduceSum", "x one", NULL, 11, 13, "2 inputs"},
    {"ReduceSum", "x", "axes", 13, 11, "'axes'"},
    {"ReduceMean", "x", "axes", 18, 17, "'axes'"},
    {"Unsqueeze", "x one", NULL, 12, 13, "2 inputs"},
    {"Unsqueeze", "x", "axes", 13, 12, "'axes'"},
    {"Dropout", "x low", NULL, 11, 12, "2 inputs"},
    {"Tile", "x one one", NULL, 6, 0, "3 inputs"},
    {"Relu", "x", "odd", 13, 0, "'odd'"},
    {"Relu", "x", NULL, 0, 13, ""},
    {"Relu", "x", "__hint", 0, 13, ""},
};

TEST_IN_SCOPE(what_the_opset_lacks)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        char opset[32];
        snprintf(opset, sizeof opset, "opset %d", (int)foreign[i].without);
        if (foreign[i].without)
            REFUSED(one_node(foreign[i].without, foreign[i].op, foreign[i].inputs, "y",
                             foreign[i].attribute), WB_ERROR_FORMAT, "culprit", foreign[i].op,
                    foreign[i].word, opset, foreign[i].with ? "does: correct" : "");
        if (foreign[i].with)
            MADE(one_node(foreign[i].with, foreign[i].op, foreign[i].inputs, "y",
                          foreign[i].attribute));
    }
    wb_tensor *x = floats(DIMS(2, 3), VALUES(-3, -2, 0, 1, 2, 3));
    is_tensor(wb_call(one_node(11, "Clip", "x low high", "y", NULL), x), DIMS(2, 3),
              VALUES(-1, -1, 0, 1, 1, 1));
    is_tensor(wb_call(one_node(18, "ReduceMean", "x one", "y", NULL), x), DIMS(2, 1),
              VALUES(-5 / 3.f, 2));
}

TEST_IN_SCOPE(outputs_that_the_operator_lacks)
{
    REFUSED(one_node(13, "Relu", "x", "y z", NULL), WB_ERROR_FORMAT, "culprit", "2 outputs",
            "1 at most");
    REFUSED(one_node(13, "Relu", "x", "- y", NULL), WB_ERROR_FORMAT, "culprit", "2 outputs");
    REFUSED(one_node(13, "TopK", "x one", "- y", NULL), WB_ERROR_FORMAT, "culprit", "output 0",
            "no name");
    REFUSED(one_node(13, "Relu", "-", "y", NULL), WB_ERROR_FORMAT, "culprit", "input 0", "no name");
    wb_tensor *x = wb_ones(2, 3);
    REFUSED(wb_call(one_node(13, "Sum", "- x", "y", NULL), x), WB_ERROR_FORMAT, "input 0");
    REFUSED(wb_call(one_node(13, "Mean", "-", "y", NULL), x), WB_ERROR_FORMAT, "input 0");
    REFUSED(one_node(7, "MaxPool", "x", "y z", NULL), WB_ERROR_FORMAT, "culprit", "2 outputs",
            "opset 8");
    MADE(one_node(13, "Dropout", "x", "y -", NULL));
    MADE(one_node(13, "Split", "x", "- y", NULL));
}

/* The operator of a later opset takes its place. */
TEST_IN_SCOPE(operators_that_an_opset_lacks)
{
    MADE(one_node(9, "Upsample", "x one", "y", NULL));
    REFUSED(one_node(10, "Upsample", "x one", "y", NULL), WB_ERROR_UNSUPPORTED, "Upsample",
            "culprit", "opset 10", "later");
    REFUSED(one_node(11, "Scatter", "x one x", "y", NULL), WB_ERROR_UNSUPPORTED, "Scatter");
    start_version(8, 13);
    put_opset(8, "ai.onnx.ml", 6);
    start_graph();
    put_value(INPUT, "x", F, 1, (int64_t[]){2});
    put_name(OUTPUT, "x");
    REFUSED(load(), WB_ERROR_UNSUPPORTED, "version 6 of ai.onnx.ml", "5");
}

/* Clip with its bounds as inputs, in a function of opset `own` that a model of opset `opset` calls,
 * or in the branch of an If */
static wb_layer *inner_clip(int64_t opset, int64_t own)
{
    start_opset(opset);
    const size_t call = begin_node(own ? "Bound" : "If", own ? "x" : "yes", "y");
    if (own) wb__wire_put_text(&o, 7, "own");
    for (int i = 0; !own && i < 2; i++) {
        put_body(i ? "else_branch" : "then_branch", i ? "Neg" : "Clip", i ? "x" : "x low high",
                 "z");
    }
    wb__wire_end(&o, call);
    const size_t yes = begin_tensor(INITIALIZER, "yes", B, 0, NULL);
    wb__wire_put_bytes(&o, 9, "\1", 1);
    end_result(yes, "y");
    if (!own) return load();
    finish();
    put_opset(8, "own", 1);
    begun = wb__wire_begin(&o, 25);
    wb__wire_put_text(&o, 1, "Bound");
    wb__wire_put_text(&o, 10, "own");
    put_words(4, "a");
    put_words(5, "b");
    put_opset(9, "", own);
    wb__wire_end(&o, begin_step("Neg", "a", "n"));
    wb__wire_end(&o, begin_step("Clip", "n a a", "b"));
    return load();
}

TEST_IN_SCOPE(what_the_opset_of_a_graph_or_function_lacks)
{
    MADE(inner_clip(11, 0));
    REFUSED(inner_clip(10, 0), WB_ERROR_FORMAT, "Clip", "3 inputs", "opset 10");
    MADE(inner_clip(10, 11));
    REFUSED(inner_clip(11, 10), WB_ERROR_FORMAT, "Clip", "3 inputs", "opset 10");
}

/* ---- types ----------------------------------------------------------------------------------- */

/* x, t = Cast(x) and y = Relu(t), with these types of x, t, y; -2: not declared */
static wb_layer *typed(int64_t x, int64_t t, int64_t y, int to)
{
    const struct { uint32_t field; const char *name; int64_t type; } values[] = {
        {INPUT, "x", x}, {INFO, "t", t}, {OUTPUT, "y", y}};
    start();
    put_cast("x", "t", to);
    put_node("Relu", "t", "y");
    for (int i = 0; i < 3; i++) {
        if (values[i].type == -2) {
            if (i != 1) put_name(values[i].field, values[i].name);
            continue;
        }
        const size_t info = wb__wire_begin(&o, values[i].field);
        wb__wire_put_text(&o, 1, values[i].name);
        const size_t of = wb__wire_begin(&o, 2), tensor = wb__wire_begin(&o, 1);
        if (values[i].type != -3) wb__wire_put_int(&o, 1, values[i].type);
        wb__wire_end(&o, tensor);
        wb__wire_end(&o, of);
        wb__wire_end(&o, info);
    }
    return load();
}

TEST_IN_SCOPE(types_that_onnx_lacks)
{
    static const int64_t wrong[] = {0, -1, -3, 29, 255, 256, INT32_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char number[32];
        snprintf(number, sizeof number, "%lld", (long long)(wrong[i] == -3 ? 0 : wrong[i]));
        REFUSED(typed(wrong[i], F, F, F), WB_ERROR_FORMAT, "\"x\"", number);
        REFUSED(typed(F, wrong[i], F, F), WB_ERROR_FORMAT, "\"t\"", number);
        REFUSED(typed(F, F, wrong[i], F), WB_ERROR_FORMAT, "\"y\"", number);
    }
    wb_tensor *x = floats(DIMS(2), VALUES(-1, 2.5f));
    is_tensor(wb_call(typed(F, F, F, F), x), DIMS(2), VALUES(0, 2.5f));
    is_tensor(wb_call(typed(F, -2, -2, WB__ONNX_INT32), x), DIMS(2), VALUES(0, 2));
    is_tensor(wb_call(typed(-2, WB__ONNX_INT32, -2, WB__ONNX_INT32), x), DIMS(2), VALUES(0, 2));
}

/* What a node computes has the type that the file declares for it. */
TEST_IN_SCOPE(types_that_contradict)
{
    REFUSED(typed(F, F, -2, WB__ONNX_INT32), WB_ERROR_FORMAT, "Cast", "'to'", "\"t\"", "int32",
            "float32");
    wb_tensor *x = floats(DIMS(2), VALUES(-1, 2.5f));
    REFUSED(wb_call(typed(F, -2, WB__ONNX_INT64, WB__ONNX_INT32), x), WB_ERROR_DTYPE, "Relu",
            "\"y\"", "i32", "int64");
    start_with("x", F, 1, (int64_t[]){-1});
    put_node("Neg", "x", "y");
    put_value(INFO, "y", F, 1, (int64_t[]){-1});
    put_value(OUTPUT, "y", I, 1, (int64_t[]){-1});
    REFUSED(load(), WB_ERROR_FORMAT, "\"y\"", "float32", "int64");
    start_version(3, 9);
    start_graph();
    put_number("w", 2);
    put_value(INPUT, "w", I, 0, NULL);
    put_result("Neg", "w", "y");
    REFUSED(load(), WB_ERROR_FORMAT, "\"w\"", "float32", "int64");
}

/* ---- indices --------------------------------------------------------------------------------- */

/* A model y = op(x, at, u) with x [3,2] and u [2,2], whose indices are `at`, or an input */
static wb_layer *indexed(const char *op, int64_t first, int64_t second, bool fixed)
{
    const bool scatter = !strncmp(op, "Scatter", 7), elements = strstr(op, "Elements");
    const int64_t at[4] = {first, elements ? 1 : 0, second, elements ? 1 : 0};
    start_with("x", F, 2, (int64_t[]){3, 2});
    if (fixed) put_indices("at", 2, 2, at);
    else put_value(INPUT, "at", I, 2, (int64_t[]){2, 2});
    if (scatter && elements) put_matrix("u", 2, 2, VALUES(1, 2, 3, 4));
    else if (scatter) put_floats("u", 2, VALUES(1, 2));
    put_named("finder", op, scatter ? "x at u" : "x at", "y");
    put_name(OUTPUT, "y");
    return loaded();
}

TEST_IN_SCOPE(indices_out_of_range)
{
    static const char *const ops[] = {"Gather", "GatherElements", "GatherND", "ScatterElements",
                                      "ScatterND"};
    static const int64_t wrong[] = {3, -4, INT64_MAX, INT64_MIN};
    wb_tensor *x = wb_ones(3, 2);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        MADE(wb_call(indexed(ops[i], -3, 2, true), x));
        for (size_t k = 0; k < 4; k++) {
            char number[32];
            snprintf(number, sizeof number, "%lld", (long long)wrong[k]);
            REFUSED(wb_call(indexed(ops[i], 0, wrong[k], true), x), WB_ERROR_SHAPE, ops[i],
                    "finder", number, "size 3");
        }
        wb_tensor *in[] = {x, wb_from((int64_t[]){0, 0, 5, 0}, WB_I64, 2, (int64_t[]){2, 2})};
        MADE(wb_call_array(indexed(ops[i], 0, 0, false), 2, in));
    }
}

TEST_IN_SCOPE(one_index_out_of_range)
{
    start_with("x", F, 2, (int64_t[]){3, 2});
    put_integers("at", 0, 1, (int64_t[]){3});
    put_result("Gather", "x at", "y");
    REFUSED(wb_call(loaded(), wb_ones(3, 2)), WB_ERROR_SHAPE, "Gather", "node 0", "3");
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* x[start:end:step] of x = 0, 1, 2, 3 */
static wb_tensor *sliced(int64_t start_at, int64_t end, int64_t step)
{
    start_with("x", F, 1, (int64_t[]){-1});
    put_integers("start", 1, 1, &start_at);
    put_integers("end", 1, 1, &end);
    put_integers("axis", 1, 1, (int64_t[]){0});
    put_integers("step", 1, 1, &step);
    put_result("Slice", "x start end axis step", "y");
    return wb_call(loaded(), floats(DIMS(4), VALUES(0, 1, 2, 3)));
}

TEST_IN_SCOPE(slices_of_extreme_bounds)
{
    is_tensor(sliced(INT64_MIN, INT64_MAX, 1), DIMS(4), VALUES(0, 1, 2, 3));
    is_tensor(sliced(INT64_MAX, INT64_MIN, -1), DIMS(4), VALUES(3, 2, 1, 0));
    is_tensor(sliced(INT64_MIN, INT64_MAX, INT64_MAX), DIMS(1), VALUES(0));
    is_tensor(sliced(INT64_MAX, INT64_MIN, INT64_MIN), DIMS(1), VALUES(3));
    is_tensor(sliced(-1, INT64_MIN, INT64_MIN + 1), DIMS(1), VALUES(3));
    is_tensor(sliced(INT64_MIN, INT64_MIN, 1), DIMS(0), VALUES(0));
    is_tensor(sliced(INT64_MIN, INT64_MAX, INT64_MIN), DIMS(0), VALUES(0));
    REFUSED(sliced(0, 4, 0), WB_ERROR_FORMAT, "Slice", "step");
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* x [4], cropped or padded to a size */
static wb_tensor *centered(int64_t size)
{
    start_version(8, 18);
    start_graph();
    put_value(INPUT, "x", F, 1, (int64_t[]){-1});
    put_integers("size", 1, 1, &size);
    put_result("CenterCropPad", "x size", "y");
    return wb_call(loaded(), floats(DIMS(4), VALUES(1, 2, 3, 4)));
}

TEST_IN_SCOPE(sizes_of_extreme_numbers)
{
    is_tensor(centered(2), DIMS(2), VALUES(2, 3));
    is_tensor(centered(7), DIMS(7), VALUES(0, 1, 2, 3, 4, 0, 0));
    is_tensor(centered(0), DIMS(0), VALUES(0));
    REFUSED(centered(INT64_MIN), WB_ERROR_SHAPE, "CenterCropPad", "-9223372036854775808", "axis 0");
    REFUSED(centered(INT64_MAX), WB_ERROR_SHAPE, "CenterCropPad", "9223372036854775807");
    REFUSED(centered(-1), WB_ERROR_SHAPE, "CenterCropPad", "-1");
}

/* x [1,1,from,1] = 0, 1, ..., resized to [1,1,to,1] */
static wb_tensor *ramp(const char *mode, bool antialias, int64_t from, int64_t to)
{
    start_version(8, 18);
    start_graph();
    put_value(INPUT, "x", F, 4, (int64_t[]){1, 1, from, 1});
    put_integers("sizes", 1, 4, (int64_t[]){1, 1, to, 1});
    const size_t at = begin_node("Resize", "x - - sizes", "y");
    put_text_attr("mode", mode);
    if (antialias) put_int_attr("antialias", 1);
    end_result(at, "y");
    wb_tensor *x = wb_reshape(wb_arange(from, WB_F32), 1, 1, from, 1);
    return wb_call(loaded(), x);
}

/* A call needs a small multiple of what it reads and makes, whatever sizes the file names: here
 * 1 MB each time.  The matrices of products would have 160 and 400 MB. */
TEST_IN_SCOPE(memory_of_resize)
{
    enum { MANY = 200000, FEW = 100 };
    const int64_t before = wb_memory_peak();
    const float *y = wb_data(ramp("linear", false, FEW, MANY));
    assert_non_null(y);
    for (int i = 0; i < MANY; i += 997) {
        const double p = (i + 0.5) * FEW / MANY - 0.5;
        assert_true(fabs(y[i] - fmin(fmax(p, 0), FEW - 1)) < 1e-4);
    }
    assert_non_null(y = wb_data(ramp("cubic", false, FEW, MANY)));
    for (int i = MANY / 20; i < MANY * 19 / 20; i += 997)
        assert_true(fabs(y[i] - ((i + 0.5) * FEW / MANY - 0.5)) < 0.1);
    assert_non_null(y = wb_data(ramp("linear", true, MANY, 2 * FEW)));
    for (int i = 2; i < 2 * FEW - 2; i++)
        assert_true(fabs(y[i] / ((i + 0.5) * MANY / (2 * FEW) - 0.5) - 1) < 1e-5);
    assert_true(wb_memory_peak() - before < 40 << 20);
}

/* x [1,N] = 0, 1, ..., resized to [rows, columns] */
enum { N = 1 << 12 };
static wb_tensor *resized(int64_t rows, int64_t columns)
{
    start_version(8, 18);
    start_graph();
    put_value(INPUT, "x", F, 2, (int64_t[]){1, N});
    put_integers("sizes", 1, 2, (int64_t[]){rows, columns});
    const size_t at = begin_node("Resize", "x - - sizes", "y");
    put_text_attr("mode", "linear");
    end_result(at, "y");
    return wb_call(loaded(), wb_reshape(wb_arange(N, WB_F32), 1, N));
}

/* The axis that shrinks comes first: between x and the result is nothing larger than both. */
TEST_IN_SCOPE(order_of_resize)
{
    wb_tensor *y = resized(N, 1);
    const int64_t before = wb_memory_peak();
    MADE(y);
    WORKS(wb_eval(y));
    assert_true(fabs(wb_at(y, N - 1, 0) - (N - 1) / 2.0) < 1e-3);
    const int64_t peak = wb_memory_peak();
    assert_true(peak - before < 1 << 20);
    REFUSED(resized(1 << 30, 1 << 30), WB_ERROR_SHAPE, "Resize", "too large");
    assert_true(wb_memory_peak() - peak < 1 << 20);
}

/* The transform of 1, 2 and n - 2 zeros, or its inverse, [1, n, 2] */
static wb_tensor *spectrum(int64_t n, bool inverse)
{
    start_version(8, 20);
    start_graph();
    put_value(INPUT, "x", F, 3, (int64_t[]){1, 2, 1});
    put_integers("n", 0, 1, &n);
    const size_t at = begin_node("DFT", "x n", "y");
    put_int_attr("inverse", inverse);
    end_result(at, "y");
    return wb_call(loaded(), floats(DIMS(1, 2, 1), VALUES(1, 2)));
}

/* A matrix of all n elements, which are a prime number, would have 400 MB. */
TEST_IN_SCOPE(memory_of_dft)
{
    enum { PRIME = 10007 };
    const int64_t before = wb_memory_peak();
    for (int inverse = 0; inverse < 2; inverse++) {
        const float *y = wb_data(spectrum(PRIME, inverse));
        const double by = inverse ? PRIME : 1;
        assert_non_null(y);
        for (int f = 0; f < PRIME; f += 101) {
            const double angle = (inverse ? 2 : -2) * acos(-1) * f / PRIME;
            assert_true(fabs(y[2 * f] * by - (1 + 2 * cos(angle))) < 1e-5);
            assert_true(fabs(y[2 * f + 1] * by - 2 * sin(angle)) < 1e-5);
        }
    }
    assert_true(wb_memory_peak() - before < 8 << 20);
}

/* LRN of x [1,2,1,1] = 3, 4 over `size` channels, of which two have elements; bias 1, alpha = size,
 * beta 1 */
static wb_tensor *over_channels(int64_t size)
{
    const struct { const char *name; float value; } numbers[] = {
        {"alpha", (float)size}, {"beta", 1}, {"bias", 1}};
    start_with("x", F, 4, (int64_t[]){1, 2, 1, 1});
    const size_t at = begin_node("LRN", "x", "y");
    put_int_attr("size", size);
    for (int i = 0; i < 3; i++) {
        const size_t attr = begin_attr(numbers[i].name, WB__ONNX_IS_FLOAT);
        wb__wire_put_float(&o, 2, numbers[i].value);
        wb__wire_end(&o, attr);
    }
    end_result(at, "y");
    return wb_call(loaded(), floats(DIMS(1, 2, 1, 1), VALUES(3, 4)));
}

/* A window of 2^31 channels takes no longer than one of all channels. */
TEST_IN_SCOPE(windows_of_many_channels)
{
    is_tensor(over_channels(1), DIMS(1, 2, 1, 1), VALUES(3 / 10.f, 4 / 17.f));
    is_tensor(over_channels(2), DIMS(1, 2, 1, 1), VALUES(3 / 26.f, 4 / 17.f));
    is_tensor(over_channels(3), DIMS(1, 2, 1, 1), VALUES(3 / 26.f, 4 / 26.f));
    is_tensor(over_channels(INT32_MAX), DIMS(1, 2, 1, 1), VALUES(3 / 26.f, 4 / 26.f));
}

/* A pool of x [1,1,4], with padding that is one element smaller than a window on both sides, or, if
 * the dilation is great, for a result of 4 elements */
static wb_tensor *pooled(const char *op, const char *outputs, int64_t kernel, int64_t dilation)
{
    const int64_t reach = (kernel - 1) * dilation;
    const struct { const char *name; int n; int64_t values[2]; } lists[] = {
        {"kernel_shape", 1, {kernel}}, {"dilations", 1, {dilation}}, {"pads", 2, {reach, reach}}};
    start_version(8, 19);
    start_graph();
    put_value(INPUT, "x", F, 3, (int64_t[]){1, 1, 4});
    const size_t at = begin_node(op, "x", outputs);
    if (dilation > 2) put_text_attr("auto_pad", "SAME_UPPER");
    for (int k = 0; k < (dilation > 2 ? 2 : 3); k++) {
        const size_t attr = begin_attr(lists[k].name, WB__ONNX_IS_INTS);
        wb__wire_put_ints(&o, 8, lists[k].n, lists[k].values);
        wb__wire_end(&o, attr);
    }
    end_result(at, "y");
    return wb_call(loaded(), floats(DIMS(1, 1, 4), VALUES(1, 2, 3, 4)));
}

/* Each element of a window is a node where Weber's pools do not do. */
TEST_IN_SCOPE(windows_of_many_elements)
{
    REFUSED(pooled("MaxPool", "y at", 5000, 1), WB_ERROR_UNSUPPORTED, "MaxPool", "5000", "4096");
    REFUSED(pooled("MaxPool", "y", 5000, 2), WB_ERROR_UNSUPPORTED, "MaxPool", "5000", "4096");
    REFUSED(pooled("AveragePool", "y", 5000, 2), WB_ERROR_UNSUPPORTED, "AveragePool", "4096");
    REFUSED(pooled("LpPool", "y", 5000, 2), WB_ERROR_UNSUPPORTED, "LpPool", "4096");
    REFUSED(pooled("AveragePool", "y", 3, 1 << 27), WB_ERROR_UNSUPPORTED, "padding", "134217728");
    is_tensor(pooled("MaxPool", "y at", 3, 1), DIMS(1, 1, 6), VALUES(1, 2, 3, 4, 4, 4));
    is_tensor(pooled("AveragePool", "y", 3, 2), DIMS(1, 1, 8), VALUES(1, 2, 2, 3, 2, 3, 3, 4));
}

/* ---- values ---------------------------------------------------------------------------------- */

TEST_IN_SCOPE(shapes_of_values_in_a_compiled_function)
{
    static const char *const ops[] = {"NonZero", "Unique"};
    for (int i = 0; i < 2; i++) {
        start_with("x", F, 1, (int64_t[]){-1});
        put_named("counter", ops[i], "x", "y");
        put_name(OUTPUT, "y");
        wb_layer *l = loaded();
        wb_tensor *x = floats(DIMS(3), VALUES(1, 0, 1)), *y;
        assert_int_equal(wb_size(wb_call(l, x)), 2);
        wb_compiled *c = wb_compile(call_layer, l);
        FAILS(wb_call_compiled(c, 1, &x, 1, &y), WB_ERROR_UNSUPPORTED, ops[i], "counter", "'x'",
              "wb_compile", "outside");
    }
}

int main(void) { return run_cases(make_folder, clean); }
