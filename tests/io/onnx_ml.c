/* Operators of ai.onnx.ml, whose results are computed by hand, and files of scikit-learn's form. */
#include "onnx_model.h"

/* ---- files of one node ----------------------------------------------------------------------- */

static size_t node;

/* Begins a file with one node of ai.onnx.ml, to which attributes are added.  end_with ends the
 * node and loads the file, with the outputs `first`, unless that is NULL, and y. */
static void begin(const char *op, int type, const char *inputs, const char *outputs)
{
    start_version(8, 17);
    put_opset(8, "ai.onnx.ml", 4);
    start_graph();
    put_value(INPUT, "x", type, 2, (int64_t[]){-1, -2});
    node = begin_node(op, inputs, outputs);
    wb__wire_put_text(&o, 7, "ai.onnx.ml");
}

/* Ends the file before it is loaded. */
static void end_node(const char *first)
{
    wb__wire_end(&o, node);
    if (first) put_name(OUTPUT, first);
    put_name(OUTPUT, "y");
}

static wb_layer *end_with(const char *first) { return end_node(first), loaded(); }

static wb_layer *end(void) { return end_with(NULL); }

static void put_floats_attr(const char *name, int n, const float *values)
{
    const size_t at = begin_attr(name, WB__ONNX_IS_FLOATS);
    wb__wire_put_floats(&o, 7, n, values);
    wb__wire_end(&o, at);
}

static void put_ints_attr(const char *name, int n, const int64_t *values)
{
    const size_t at = begin_attr(name, WB__ONNX_IS_INTS);
    wb__wire_put_ints(&o, 8, n, values);
    wb__wire_end(&o, at);
}

static void put_texts_attr(const char *name, const char *words)
{
    const size_t at = begin_attr(name, WB__ONNX_IS_STRINGS);
    put_words(9, words);
    wb__wire_end(&o, at);
}

static void put_float_attr(const char *name, float value)
{
    const size_t at = begin_attr(name, WB__ONNX_IS_FLOAT);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    wb__wire_put_fixed(&o, 2, WB__WIRE_FIXED32, bits);
    wb__wire_end(&o, at);
}

static wb_tensor *integers(int ndim, const int64_t *dims, const int64_t *values)
{
    return wb_from(values, WB_I64, ndim, dims);
}

static wb_tensor *doubles(int ndim, const int64_t *dims, const float *values)
{
    return wb_astype(floats(ndim, dims, values), WB_F64);
}

/* The result of the layer for x, which is [rows, columns], as f32 */
static wb_tensor *result(wb_layer *l, wb_tensor *x)
{
    wb_tensor *y = wb_call(l, x);
    MADE(y);
    assert_int_equal(wb_dtype_of(y), WB_F32);
    return y;
}

/* ---- preparation of numbers ------------------------------------------------------------------ */

TEST_IN_SCOPE(scaler)
{
    for (int t = 0; t < 3; t++) {
        begin("Scaler", (int[]){F, WB__ONNX_DOUBLE, I}[t], "x", "y");
        put_floats_attr("offset", 2, VALUES(1, -2));
        put_floats_attr("scale", 2, VALUES(0.5f, 3));
        wb_layer *l = end();
        wb_tensor *x = t == 0   ? floats(DIMS(2, 2), VALUES(3, 0, -1, 1))
                       : t == 1 ? doubles(DIMS(2, 2), VALUES(3, 0, -1, 1))
                                : integers(DIMS(2, 2), (int64_t[]){3, 0, -1, 1});
        for (int i = 0; i < 2; i++)
            is_tensor(result(l, x), DIMS(2, 2), VALUES(1, 6, -1, 9));
    }
    begin("Scaler", F, "x", "y");
    put_floats_attr("scale", 1, VALUES(4));
    is_tensor(result(end(), floats(DIMS(1, 2), VALUES(3, 5))), DIMS(1, 2), VALUES(12, 20));
    begin("Scaler", F, "x", "y");
    put_floats_attr("offset", 3, VALUES(1, 2, 3));
    REFUSED(wb_call(end(), wb_ones(1, 2)), WB_ERROR_SHAPE, "Scaler", "offset", "3", "2", "[1,2]");
}

TEST_IN_SCOPE(normalizer)
{
    static const char *const norms[] = {"MAX", "L1", "L2"};
    static const float rows[3][6] = {{-0.75f, 1, 0, 0, 1, 2},
                                     {-3 / 7.f, 4 / 7.f, 0, 0, -1 / 3.f, -2 / 3.f},
                                     {-0.6f, 0.8f, 0, 0, -0.4472136f, -0.8944272f}};
    for (int i = 0; i < 3; i++) {
        begin("Normalizer", F, "x", "y");
        if (i) put_text_attr("norm", norms[i]);
        wb_layer *l = end();
        wb_tensor *x = floats(DIMS(3, 2), VALUES(-3, 4, 0, 0, -1, -2));
        is_tensor(result(l, x), DIMS(3, 2), rows[i]);
    }
    begin("Normalizer", F, "x", "y");
    put_text_attr("norm", "L3");
    end_node(NULL);
    REFUSED(load(), WB_ERROR_FORMAT, "ai.onnx.ml.Normalizer", "L3", "L2");
}

TEST_IN_SCOPE(binarizer)
{
    begin("Binarizer", F, "x", "y");
    put_float_attr("threshold", 0.5f);
    wb_tensor *x = floats(DIMS(2, 2), VALUES(0.5f, 0.75f, -1, NAN));
    is_tensor(result(end(), x), DIMS(2, 2), VALUES(0, 1, 0, 0));
    begin("Binarizer", I, "x", "y");
    wb_tensor *y = wb_call(end(), integers(DIMS(1, 3), (int64_t[]){-1, 0, 1}));
    MADE(y);
    assert_int_equal(wb_dtype_of(y), WB_I64);
    is_tensor(y, DIMS(1, 3), VALUES(0, 0, 1));
}

TEST_IN_SCOPE(imputer)
{
    begin("Imputer", F, "x", "y");
    put_floats_attr("imputed_value_floats", 2, VALUES(5, 6));
    put_float_attr("replaced_value_float", NAN);
    wb_tensor *x = floats(DIMS(2, 2), VALUES(1, NAN, NAN, 0));
    is_tensor(result(end(), x), DIMS(2, 2), VALUES(1, 6, 5, 0));
    begin("Imputer", F, "x", "y");
    put_floats_attr("imputed_value_floats", 1, VALUES(5));
    is_tensor(result(end(), floats(DIMS(1, 3), VALUES(0, 2, 0))), DIMS(1, 3), VALUES(5, 2, 5));
    begin("Imputer", I, "x", "y");
    put_ints_attr("imputed_value_int64s", 2, (int64_t[]){7, 8});
    put_int_attr("replaced_value_int64", -1);
    wb_layer *l = end();
    is_tensor(wb_call(l, integers(DIMS(2, 2), (int64_t[]){-1, 0, 1, -1})), DIMS(2, 2),
              VALUES(7, 0, 1, 8));
    REFUSED(wb_call(l, integers(DIMS(1, 3), (int64_t[]){0, 0, 0})), WB_ERROR_SHAPE, "2", "[1,3]");
    begin("Imputer", F, "x", "y");
    put_ints_attr("imputed_value_int64s", 1, (int64_t[]){7});
    REFUSED(wb_call(end(), wb_ones(1, 2)), WB_ERROR_DTYPE, "Imputer", "i64", "f32");
}

TEST_IN_SCOPE(feature_vectorizer)
{
    begin("FeatureVectorizer", I, "x x", "y");
    put_ints_attr("inputdimensions", 2, (int64_t[]){2, 2});
    wb_layer *l = end();
    is_tensor(result(l, integers(DIMS(2, 2), (int64_t[]){1, 2, 3, 4})), DIMS(2, 4),
              VALUES(1, 2, 1, 2, 3, 4, 3, 4));
    REFUSED(wb_call(l, integers(DIMS(1, 3), (int64_t[]){1, 2, 3})), WB_ERROR_SHAPE, "input 0",
            "[1,3]", "2 columns");
    begin("FeatureVectorizer", I, "- x", "y");
    put_ints_attr("inputdimensions", 2, (int64_t[]){2, 2});
    REFUSED(wb_call(end(), integers(DIMS(1, 2), (int64_t[]){1, 2})), WB_ERROR_FORMAT, "input 0");
}

/* ---- selection and categories ---------------------------------------------------------------- */

TEST_IN_SCOPE(array_feature_extractor)
{
    begin("ArrayFeatureExtractor", F, "x at", "y");
    wb__wire_end(&o, node);
    put_integers("at", 1, 3, (int64_t[]){2, 0, 2});
    put_name(OUTPUT, "y");
    wb_tensor *x = floats(DIMS(2, 3), VALUES(1, 2, 3, 4, 5, 6));
    is_tensor(result(loaded(), x), DIMS(2, 3), VALUES(3, 1, 3, 6, 4, 6));
    begin("ArrayFeatureExtractor", I, "classes x", "y");
    wb__wire_end(&o, node);
    put_integers("classes", 1, 3, (int64_t[]){10, 20, 30});
    put_name(OUTPUT, "y");
    wb_tensor *y = wb_call(loaded(), integers(DIMS(2, 1), (int64_t[]){2, 1}));
    MADE(y);
    assert_int_equal(wb_dtype_of(y), WB_I64);
    is_tensor(y, DIMS(1, 2), VALUES(30, 20));
    begin("ArrayFeatureExtractor", F, "x x", "y");
    REFUSED(wb_call(end(), wb_ones(1, 2)), WB_ERROR_SHAPE, "ArrayFeatureExtractor", "f32");
}

TEST_IN_SCOPE(one_hot_encoder)
{
    begin("OneHotEncoder", I, "x", "y");
    put_ints_attr("cats_int64s", 3, (int64_t[]){4, 7, 5});
    is_tensor(result(end(), integers(DIMS(2, 2), (int64_t[]){7, 4, 5, 6})), DIMS(2, 2, 3),
              VALUES(0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0));
    begin("OneHotEncoder", F, "x", "y");
    put_ints_attr("cats_int64s", 2, (int64_t[]){0, 1});
    is_tensor(result(end(), floats(DIMS(1, 3), VALUES(1.9f, -0.5f, NAN))), DIMS(1, 3, 2),
              VALUES(0, 1, 1, 0, 0, 0));
    begin("OneHotEncoder", I, "x", "y");
    put_ints_attr("cats_int64s", 2, (int64_t[]){0, 1});
    put_int_attr("zeros", 0);
    wb_tensor *y = result(end(), integers(DIMS(1, 2), (int64_t[]){1, 2}));
    is_tensor(wb_slice(y, 1, 0, 1), DIMS(1, 1, 2), VALUES(0, 1));
    const float *data = wb_data(y);
    assert_true(data && isnan(data[2]) && isnan(data[3]));
    begin("OneHotEncoder", I, "x", "y");
    put_texts_attr("cats_strings", "a b");
    REFUSED(wb_call(end(), integers(DIMS(1, 1), (int64_t[]){1})), WB_ERROR_UNSUPPORTED,
            "OneHotEncoder", "cats_strings", "integers");
}

TEST_IN_SCOPE(label_encoder)
{
    begin("LabelEncoder", I, "x", "y");
    put_ints_attr("keys_int64s", 3, (int64_t[]){1, 2, 1});
    put_floats_attr("values_floats", 3, VALUES(0.5f, 0.25f, 0.75f));
    put_float_attr("default_float", -3);
    is_tensor(result(end(), integers(DIMS(2, 2), (int64_t[]){1, 2, 9, 1})), DIMS(2, 2),
              VALUES(0.75f, 0.25f, -3, 0.75f));
    begin("LabelEncoder", F, "x", "y");
    put_floats_attr("keys_floats", 2, VALUES(0.5f, NAN));
    put_ints_attr("values_int64s", 2, (int64_t[]){(int64_t)1 << 60, 6});
    wb_tensor *y = wb_call(end(), floats(DIMS(1, 3), VALUES(0.5f, NAN, 1)));
    MADE(y);
    assert_int_equal(wb_dtype_of(y), WB_I64);
    const int64_t *data = wb_data(y);
    assert_true(data && data[0] == (int64_t)1 << 60 && data[1] == 6 && data[2] == -1);
    begin("LabelEncoder", F, "x", "y");
    put_ints_attr("keys_int64s", 1, (int64_t[]){1});
    put_ints_attr("values_int64s", 1, (int64_t[]){1});
    REFUSED(wb_call(end(), wb_ones(1, 2)), WB_ERROR_DTYPE, "LabelEncoder", "i64", "f32");
    begin("LabelEncoder", I, "x", "y");
    put_ints_attr("keys_int64s", 1, (int64_t[]){1});
    put_texts_attr("values_strings", "one");
    REFUSED(wb_call(end(), integers(DIMS(1, 1), (int64_t[]){1})), WB_ERROR_UNSUPPORTED,
            "LabelEncoder", "values_strings");
}

/* ---- linear models --------------------------------------------------------------------------- */

/* Scores of x = [1, 2]: 0.75, 0.25, 0; of [0, 0]: 0.25, 0.5, 0 */
static void put_linear(const char *transform)
{
    put_floats_attr("coefficients", 6, VALUES(0.1f, 0.2f, -0.05f, -0.1f, 0.5f, -0.25f));
    put_floats_attr("intercepts", 3, VALUES(0.25f, 0.5f, 0));
    if (transform) put_text_attr("post_transform", transform);
}

static const struct { const char *name; float scores[6]; } transforms[] = {
    {NULL, {0.75f, 0.25f, 0, 0.25f, 0.5f, 0}},
    {"NONE", {0.75f, 0.25f, 0, 0.25f, 0.5f, 0}},
    {"LOGISTIC", {0.6791787f, 0.5621765f, 0.5f, 0.5621765f, 0.6224593f, 0.5f}},
    {"SOFTMAX", {0.4810252f, 0.2917576f, 0.2272172f, 0.3264962f, 0.4192279f, 0.2542758f}},
    {"SOFTMAX_ZERO", {0.6224593f, 0.3775407f, 0, 0.4378235f, 0.5621765f, 0}},
    {"PROBIT", {0.6745741f, -0.6745741f, -INFINITY, -0.6745741f, 0, -INFINITY}}};

static void are_scores(wb_tensor *y, int i)
{
    const float *data = wb_data(y);
    MADE(data);
    assert_int_equal(wb_dim(y, 0), 2);
    assert_int_equal(wb_dim(y, 1), 3);
    for (int k = 0; k < 6; k++) {
        const float right = transforms[i].scores[k];
        if (!(data[k] == right || fabsf(data[k] - right) < 2e-4f))
            fail_msg("transform %d: element %d is %g, not %g", i, k, (double)data[k],
                     (double)right);
    }
}

TEST_IN_SCOPE(linear_models)
{
    wb_tensor *x = floats(DIMS(2, 2), VALUES(1, 2, 0, 0)), *y[2];
    for (int i = 0; i < (int)WB__COUNT(transforms); i++) {
        begin("LinearRegressor", F, "x", "y");
        put_int_attr("targets", 3);
        put_linear(transforms[i].name);
        wb_layer *l = end();
        are_scores(result(l, x), i);
        are_scores(result(l, x), i);
        begin("LinearClassifier", WB__ONNX_DOUBLE, "x", "label y");
        put_ints_attr("classlabels_ints", 3, (int64_t[]){4, -1, 6});
        put_linear(transforms[i].name);
        l = end_with("label");
        wb_tensor *wide = wb_astype(x, WB_F64);
        WORKS(wb_call_outputs(l, 1, &wide, 2, y));
        assert_int_equal(wb_dtype_of(y[0]), WB_I64);
        is_tensor(y[0], DIMS(2), VALUES(4, -1));
        assert_int_equal(wb_dtype_of(y[1]), WB_F32);
        are_scores(y[1], i);
    }
}

/* One row of coefficients for two classes is that of the second. */
TEST_IN_SCOPE(two_classes)
{
    wb_tensor *x = floats(DIMS(3, 2), VALUES(1, 0, -1, 0, 0, 0)), *y[2];
    for (int i = 0; i < 2; i++) {
        begin("LinearClassifier", F, "x", "label y");
        put_ints_attr("classlabels_ints", 2, (int64_t[]){4, 5});
        put_floats_attr("coefficients", 2, VALUES(2, 7));
        put_floats_attr("intercepts", 1, VALUES(0));
        put_text_attr("post_transform", i ? "SOFTMAX" : "LOGISTIC");
        wb_layer *l = end_with("label");
        if (i) {
            FAILS(wb_call_outputs(l, 1, &x, 2, y), WB_ERROR_UNSUPPORTED, "LinearClassifier",
                  "2 classes", "2 coefficients", "LOGISTIC");
            break;
        }
        WORKS(wb_call_outputs(l, 1, &x, 2, y));
        is_tensor(y[0], DIMS(3), VALUES(5, 4, 4));
        is_tensor(y[1], DIMS(3, 2),
                  VALUES(0.1192029f, 0.8807971f, 0.8807971f, 0.1192029f, 0.5f, 0.5f));
    }
    begin("LinearRegressor", F, "x", "y");
    put_floats_attr("coefficients", 3, VALUES(2, 7, 1));
    wb_layer *l = end();
    REFUSED(wb_call(l, x), WB_ERROR_SHAPE, "LinearRegressor", "coefficients", "3", "2", "[3,2]");
    is_tensor(result(l, wb_ones(2, 3)), DIMS(2, 1), VALUES(10, 10));
    begin("LinearRegressor", F, "x", "y");
    put_linear("TANH");
    put_int_attr("targets", 3);
    end_node(NULL);
    REFUSED(load(), WB_ERROR_FORMAT, "TANH", "LOGISTIC", "PROBIT");
}

/* ---- files of scikit-learn's form ------------------------------------------------------------ */

/* Puts the type of a sequence of maps from integers to floats, or of a sequence of f32. */
static void put_sequence(const char *name, bool of_maps)
{
    const size_t info = wb__wire_begin(&o, OUTPUT);
    wb__wire_put_text(&o, 1, name);
    const size_t type = wb__wire_begin(&o, 2), sequence = wb__wire_begin(&o, 4);
    const size_t element = wb__wire_begin(&o, 1), map = wb__wire_begin(&o, of_maps ? 5 : 1);
    wb__wire_put_int(&o, 1, of_maps ? I : F);
    wb__wire_end(&o, map);
    wb__wire_end(&o, element);
    wb__wire_end(&o, sequence);
    wb__wire_end(&o, type);
    wb__wire_end(&o, info);
}

/* Begins a classifier of two classes and ends its node. */
static void put_classifier(bool texts)
{
    begin("LinearClassifier", F, "x", "label scores");
    if (texts) put_texts_attr("classlabels_strings", "no yes");
    else put_ints_attr("classlabels_ints", 2, (int64_t[]){0, 1});
    put_floats_attr("coefficients", 4, VALUES(1, 0, 0, 1));
    wb__wire_end(&o, node);
}

/* The maps that ZipMap makes are the matrix that it reads; other sequences are refused. */
TEST_IN_SCOPE(zip_map)
{
    wb_tensor *x = floats(DIMS(2, 2), VALUES(3, 1, 2, 5)), *y[2];
    put_classifier(false);
    node = begin_node("ZipMap", "scores", "y");
    wb__wire_put_text(&o, 7, "ai.onnx.ml");
    put_ints_attr("classlabels_int64s", 2, (int64_t[]){0, 1});
    wb__wire_end(&o, node);
    put_value(OUTPUT, "label", I, 1, (int64_t[]){-1});
    put_sequence("y", true);
    wb_layer *l = loaded();
    for (int i = 0; i < 2; i++) {
        WORKS(wb_call_outputs(l, 1, &x, 2, y));
        is_tensor(y[0], DIMS(2), VALUES(0, 1));
        is_tensor(y[1], DIMS(2, 2), VALUES(3, 1, 2, 5));
        WORKS(wb_save(in_folder("m.safetensors"), l));
        MADE(l = wb_load(in_folder("m.safetensors")));
    }
    char *text = wb_object_format(l);
    assert_true(HAS_FACTS(text, "label", "i64", "y f32"));
    wb_free_text(text);
    begin("ZipMap", F, "x", "y");
    put_ints_attr("classlabels_int64s", 2, (int64_t[]){0, 1});
    REFUSED(wb_call(end(), wb_ones(1, 3)), WB_ERROR_SHAPE, "ZipMap", "2 classes", "[1,3]");
    put_classifier(false);
    put_node("Identity", "scores", "y");
    put_sequence("y", true);
    REFUSED(load(), WB_ERROR_UNSUPPORTED, "output \"y\"", "a sequence");
}

/* Classes that are texts: the scores can be had, the classes are refused when the file is loaded,
 * or where a node reads them. */
TEST_IN_SCOPE(classes_of_texts)
{
    wb_tensor *x = floats(DIMS(1, 2), VALUES(3, 1));
    put_classifier(true);
    put_name(OUTPUT, "scores");
    is_tensor(result(loaded(), x), DIMS(1, 2), VALUES(3, 1));
    put_classifier(true);
    put_value(OUTPUT, "label", WB__ONNX_STRING, 1, (int64_t[]){-1});
    put_name(OUTPUT, "scores");
    REFUSED(load(), WB_ERROR_UNSUPPORTED, "m.onnx", "label", "string", "onnx.utils.extract_model");
    put_classifier(true);
    put_result("Identity", "label", "y");
    REFUSED(wb_call(loaded(), x), WB_ERROR_UNSUPPORTED, "m.onnx", "label", "does not compute");
}

/* The operators of the domain are those from their opset on; trees are listed. */
TEST_IN_SCOPE(domain)
{
    begin("TreeEnsembleRegressor", F, "x", "a");
    wb__wire_end(&o, node);
    node = begin_node("Scaler", "a", "b");
    wb__wire_end(&o, node);
    node = begin_node("Relu", "b", "y");
    wb__wire_put_text(&o, 7, "ai.onnx.ml");
    end_result(node, "y");
    REFUSED(load(), WB_ERROR_UNSUPPORTED, "3 operators", "ai.onnx.ml.TreeEnsembleRegressor",
            "ai.onnx.ml.Relu", "Scaler (node 1)");
    start_version(8, 17);
    put_opset(8, "ai.onnx.ml", 1);
    start_graph();
    put_value(INPUT, "x", I, 1, (int64_t[]){-1});
    node = begin_node("LabelEncoder", "x", "y");
    wb__wire_put_text(&o, 7, "ai.onnx.ml");
    end_result(node, "y");
    REFUSED(load(), WB_ERROR_UNSUPPORTED, "ai.onnx.ml.LabelEncoder of opset 1", "opset 2");
}

int main(void) { return run_cases(make_folder, clean); }
