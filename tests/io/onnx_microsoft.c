/* Operators of the domain com.microsoft: their numbers are those of ONNX Runtime 1.32, and the
 * model is saved again with operators of ONNX. */
#include "onnx_model.h"

enum { N = 8 };

/* x has the first eight numbers, and the second input the four of `bias`. */
static const float x_values[N] = {-3, -0.5f, 0, 0.75f, 1, 2, -1, 4};
static const float bias[4] = {0.5f, -1, 0.25f, 0};

static const struct { const char *op, *attribute; int inputs; float alpha, y[N]; } rows[] = {
    {"Gelu", NULL, 1, 0,
     {-0.004049689f, -0.15426877f, 0, 0.5800295f, 0.8413447f, 1.9544997f, -0.15865526f,
      3.9998732f}},
    {"BiasGelu", NULL, 2, 0,
     {-0.015524104f, -0.100210816f, 0.14967658f, 0.5800295f, 1.3997892f, 0.8413447f,
      -0.16997051f, 3.9998732f}},
    {"FastGelu", NULL, 2, 0,
     {-0.015084296f, -0.10042843f, 0.14967535f, 0.5799606f, 1.3995715f, 0.841192f, -0.17003945f,
      3.99993f}},
    {"FastGelu", NULL, 1, 0,
     {-3.6375225e-03f, -0.154286f, 0, 0.57996058f, 0.8411920f, 1.9545977f, -0.15880796f,
      3.9999299f}},
    {"QuickGelu", NULL, 1, 0,
     {-0.018071294f, -0.14961158f, 0, 0.5863901f, 0.84579575f, 1.9356587f, -0.15420422f,
      3.9955854f}},
    {"QuickGelu", "alpha", 1, 1,
     {-0.1422776f, -0.18877035f, 0, 0.50938404f, 0.7310586f, 1.7615942f, -0.26894143f,
      3.928055f}},
};

static wb_layer *model_of(size_t row)
{
    start_version(8, 17);
    put_opset(8, "com.microsoft", 1);
    start_graph();
    put_value(INPUT, "x", F, 2, (int64_t[]){-1, 4});
    put_matrix("b", 1, 4, bias);
    const size_t at = begin_node(rows[row].op, rows[row].inputs > 1 ? "x b" : "x", "y");
    wb__wire_put_text(&o, 7, "com.microsoft");
    if (rows[row].attribute) {
        const size_t attr = begin_attr(rows[row].attribute, WB__ONNX_IS_FLOAT);
        wb__wire_put_float(&o, 2, rows[row].alpha);
        wb__wire_end(&o, attr);
    }
    end_result(at, "y");
    return loaded();
}

TEST_IN_SCOPE(numbers_of_onnx_runtime)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wb_tensor *x = floats(DIMS(2, 4), x_values);
        wb_layer *model = model_of(i);
        is_tensor(wb_call(model, x), DIMS(2, 4), rows[i].y);
        assert_int_equal(wb_save(in_folder("again.onnx"), model, .inputs = {x}), 0);
        wb_layer *again = wb_load(in_folder("again.onnx"));
        if (!again) fail_msg("%s", wb_error());
        is_tensor(wb_call(again, x), DIMS(2, 4), rows[i].y);
    }
}

TEST_IN_SCOPE(what_the_domain_lacks)
{
    start_version(8, 17);
    put_opset(8, "com.microsoft", 1);
    start_graph();
    put_value(INPUT, "x", F, 1, (int64_t[]){2});
    const size_t at = begin_node("Sparkle", "x", "y");
    wb__wire_put_text(&o, 7, "com.microsoft");
    end_result(at, "y");
    REFUSED(load(), WB_ERROR_UNSUPPORTED, "com.microsoft.Sparkle");
}

int main(void) { return run_cases(make_folder, remove_folder); }
