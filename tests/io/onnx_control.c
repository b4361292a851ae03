/* Operators of ONNX that call graphs, constants, random numbers; what is refused. */
#include "onnx_model.h"

/* ---- If and Loop ----------------------------------------------------------------------------- */

/* y = x + 1 if `condition`, else w x, for a w of the outer graph */
static void put_if(bool is_input)
{
    start_with("x", F, 1, (int64_t[]){-1});
    if (is_input) put_value(INPUT, "condition", B, 0, NULL);
    put_floats("w", 1, VALUES(3));
    put_floats("one", 1, VALUES(1));
    if (!is_input) {
        put_integers("two", 0, 1, (int64_t[]){2});
        put_node("Size", "x", "size");
        put_node("Equal", "size two", "condition");
    }
    const size_t node = begin_node("If", "condition", "y");
    put_body("then_branch", "Add", "x one", "a");
    put_body("else_branch", "Mul", "x w", "b");
    end_result(node, "y");
}

TEST_IN_SCOPE(if_by_sizes)
{
    put_if(false);
    wb_layer *l = loaded();
    wb_compiled *c = wb_compile(call_layer, l);
    for (int i = 0; i < 2; i++) {
        wb_tensor *x = wb_ones(3), *y;
        is_tensor(wb_call(l, wb_ones(2)), DIMS(2), VALUES(2, 2));
        is_tensor(wb_call(l, x), DIMS(3), VALUES(3, 3, 3));
        WORKS(wb_call_compiled(c, 1, &x, 1, &y));
        is_tensor(y, DIMS(3), VALUES(3, 3, 3));
    }
    is_tensor(wb_get(wb_gradient(wb_sum(wb_call(l, wb_ones(3))), l), "w"), DIMS(1), VALUES(3));
}

TEST_IN_SCOPE(if_by_a_value)
{
    put_if(true);
    wb_layer *l = loaded();
    for (int i = 0; i < 4; i++) {
        wb_tensor *x[] = {wb_ones(2), wb_full_array(i % 2, WB_BOOL, 0, NULL)};
        is_tensor(wb_call_array(l, 2, x), DIMS(2), i % 2 ? VALUES(2, 2) : VALUES(3, 3));
    }
}

static void end_external(size_t tensor, const char *offset)
{
    put_entry("location", "w.bin");
    put_entry("offset", offset);
    wb__wire_put_int(&o, 14, 1);
    wb__wire_end(&o, tensor);
}

/* The values of a branch's initializer and of a Constant are in another file, which is removed
 * after loading. */
TEST_IN_SCOPE(values_of_a_branch_in_another_file)
{
    put_file(in_folder("w.bin"), VALUES(5, 7), 8);
    start_with("x", F, 1, (int64_t[]){-1});
    put_value(INPUT, "condition", B, 0, NULL);
    const size_t node = begin_node("If", "condition", "y");
    size_t at = begin_body("then_branch");
    end_external(begin_tensor(INITIALIZER, "factor", F, 1, (int64_t[]){1}), "0");
    put_result("Mul", "x factor", "a");
    end_body(at);
    at = begin_body("else_branch");
    const size_t constant = begin_node("Constant", "", "summand");
    const size_t value = begin_attr("value", WB__ONNX_IS_TENSOR);
    end_external(begin_tensor(5, "", F, 1, (int64_t[]){1}), "4");
    wb__wire_end(&o, value);
    wb__wire_end(&o, constant);
    put_result("Add", "x summand", "b");
    end_body(at);
    end_result(node, "y");
    wb_layer *l = loaded();
    assert_int_equal(remove(in_folder("w.bin")), 0);
    WORKS(wb_save(in_folder("m.safetensors"), l));
    l = wb_load(in_folder("m.safetensors"));
    for (int i = 0; i < 2; i++) {
        wb_tensor *x[] = {wb_ones(2), wb_full_array(i, WB_BOOL, 0, NULL)};
        is_tensor(wb_call_array(l, 2, x), DIMS(2), i ? VALUES(5, 5) : VALUES(8, 8));
    }
}

/* Adds w x [i + 1] times, i < trips, and collects the sums and the iterations. */
static void put_loop(bool is_input)
{
    start_with("x", F, 1, (int64_t[]){-1});
    if (is_input) put_value(INPUT, "trips", I, 0, NULL);
    else put_node("Size", "x", "trips");
    put_floats("w", 1, VALUES(2));
    const size_t node = begin_node("Loop", "trips - x", "last sums counts");
    const size_t at = begin_body("body");
    put_value(INPUT, "i", I, 0, NULL);
    put_value(INPUT, "goes_on", B, 0, NULL);
    put_value(INPUT, "sum", F, 1, (int64_t[]){-1});
    put_node("Identity", "goes_on", "still");
    put_node("Mul", "x w", "part");
    put_node("Add", "sum part", "next");
    put_node("Identity", "next", "seen");
    put_node("Identity", "i", "count");
    put_value(OUTPUT, "still", B, 0, NULL);
    put_value(OUTPUT, "next", F, 1, (int64_t[]){2});
    put_value(OUTPUT, "seen", F, 1, (int64_t[]){2});
    put_value(OUTPUT, "count", I, 0, NULL);
    end_body(at);
    end_result(node, "last");
    put_name(OUTPUT, "sums");
    put_name(OUTPUT, "counts");
}

TEST_IN_SCOPE(loops)
{
    wb_tensor *y[3];
    put_loop(false);
    wb_layer *l = loaded();
    for (int i = 0; i < 2; i++) {
        wb_tensor *x = wb_ones(2);
        WORKS(wb_call_outputs(l, 1, &x, 3, y));
        is_tensor(y[0], DIMS(2), VALUES(5, 5));
        is_tensor(y[1], DIMS(2, 2), VALUES(3, 3, 5, 5));
        is_tensor(y[2], DIMS(2), VALUES(0, 1));
    }
    is_tensor(wb_get(wb_gradient(wb_sum(y[0]), l), "w"), DIMS(1), VALUES(4));
    put_loop(true);
    l = loaded();
    for (int64_t trips = 3; trips >= 0; trips--) {
        wb_tensor *x[] = {wb_ones(2), wb_from(&trips, WB_I64, 0, NULL)};
        WORKS(wb_call_outputs(l, 2, x, 3, y));
        is_tensor(y[0], DIMS(2), VALUES(1 + 2 * (float)trips, 1 + 2 * (float)trips));
        assert_int_equal(wb_dim(y[1], 0), trips);
        assert_int_equal(wb_dim(y[2], 0), trips);
    }
}

/* The sum of the numbers below `trips`, twice: a loop that a value ends, in one of two iterations.
 * The inner loop adds the size of zeros that are as many as its iteration. */
TEST_IN_SCOPE(a_loop_in_a_loop)
{
    start_with("trips", I, 0, NULL);
    put_integers("two", 0, 1, (int64_t[]){2});
    put_integers("zero", 0, 1, (int64_t[]){0});
    put_integers("first", 1, 1, (int64_t[]){0});
    const size_t outer = begin_node("Loop", "two - zero", "y");
    const size_t at = begin_body("body"), attr = graph_attr;
    put_name(INPUT, "i");
    put_name(INPUT, "goes_on");
    put_name(INPUT, "sum");
    const size_t inner = begin_node("Loop", "trips - sum", "next");
    const size_t inside = begin_body("body");
    put_name(INPUT, "k");
    put_name(INPUT, "more");
    put_name(INPUT, "part");
    put_node("Unsqueeze", "k first", "count");
    put_node("ConstantOfShape", "count", "zeros");
    put_node("Size", "zeros", "n");
    put_node("Add", "part n", "longer");
    put_name(OUTPUT, "more");
    put_name(OUTPUT, "longer");
    end_body(inside);
    end_result(inner, "goes_on");
    put_name(OUTPUT, "next");
    graph_attr = attr;
    end_body(at);
    end_result(outer, "y");
    wb_layer *l = loaded();
    for (int i = 0; i < 6; i++) {
        const int64_t trips = (int64_t[]){2, 1, 3, 3, 0, 4}[i];
        wb_tensor *y = wb_call(l, wb_from(&trips, WB_I64, 0, NULL));
        MADE(y);
        assert_true(wb_item(y) == (double)(trips * (trips - 1)));
    }
}

TEST_IN_SCOPE(endless_loops)
{
    start_with("x", F, 1, (int64_t[]){1});
    const size_t node = begin_node("Loop", "- - x", "y");
    const size_t at = begin_body("body");
    put_name(INPUT, "i");
    put_name(INPUT, "goes_on");
    put_name(INPUT, "v");
    put_node("Identity", "v", "w");
    put_name(OUTPUT, "goes_on");
    put_name(OUTPUT, "w");
    end_body(at);
    end_result(node, "y");
    wb_layer *l = loaded();
    REFUSED(wb_call(l, wb_ones(1)), WB_ERROR_UNSUPPORTED, "Loop", "65536");
}

/* ---- constants, casts, random numbers -------------------------------------------------------- */

TEST_IN_SCOPE(constants)
{
    start();
    size_t node = begin_node("Constant", "", "a"), at = begin_attr("value_floats", 6);
    wb__wire_put_floats(&o, 7, 2, VALUES(1.5f, 2.5f));
    wb__wire_end(&o, at);
    wb__wire_end(&o, node);
    node = begin_node("Constant", "", "shape");
    at = begin_attr("value_ints", WB__ONNX_IS_INTS);
    wb__wire_put_ints(&o, 8, 2, (int64_t[]){2, 3});
    wb__wire_end(&o, at);
    wb__wire_end(&o, node);
    node = begin_node("ConstantOfShape", "shape", "b");
    at = begin_attr("value", WB__ONNX_IS_TENSOR);
    const size_t t = begin_tensor(5, "", I, 1, (int64_t[]){1});
    wb__wire_put_bytes(&o, 9, (int64_t[]){INT64_MAX}, 8);
    wb__wire_end(&o, t);
    wb__wire_end(&o, at);
    wb__wire_end(&o, node);
    put_cast("a", "c", I);
    put_name(OUTPUT, "a");
    put_name(OUTPUT, "b");
    put_name(OUTPUT, "c");
    wb_layer *l = loaded();
    wb_tensor *y[3];
    for (int i = 0; i < 2; i++) {
        WORKS(wb_call_outputs(l, 0, NULL, 3, y));
        is_tensor(y[0], DIMS(2), VALUES(1.5f, 2.5f));
        assert_int_equal(wb_dtype_of(y[1]), WB_I64);
        assert_int_equal(wb_size(y[1]), 6);
        assert_true(((const int64_t *)wb_data(y[1]))[5] == INT64_MAX);
        assert_int_equal(wb_dtype_of(y[2]), WB_I64);
        is_tensor(y[2], DIMS(2), VALUES(1, 2));
    }
}

TEST_IN_SCOPE(random_numbers)
{
    start_with("x", F, 1, (int64_t[]){-1});
    put_node("RandomNormalLike", "x", "noise");
    put_result("Add", "x noise", "y");
    wb_layer *l = loaded();
    wb_tensor *x = wb_zeros(50), *y[3];
    for (int i = 0; i < 3; i++) {
        if (i != 1) wb_seed(7);
        MADE(y[i] = wb_call(l, x));
        WORKS(wb_eval(y[i]));
    }
    assert_memory_equal(wb_data(y[0]), wb_data(y[2]), 200);
    assert_memory_not_equal(wb_data(y[0]), wb_data(y[1]), 200);
    start_with("x", F, 1, (int64_t[]){-1});
    put_node("Dropout", "x", "y mask");
    put_name(OUTPUT, "y");
    put_name(OUTPUT, "mask");
    x = wb_ones(2);
    WORKS(wb_call_outputs(loaded(), 1, &x, 2, y));
    is_tensor(y[0], DIMS(2), VALUES(1, 1));
    assert_int_equal(wb_dtype_of(y[1]), WB_BOOL);
    is_tensor(y[1], DIMS(2), VALUES(1, 1));
}

/* ---- what is refused ------------------------------------------------------------------------- */

TEST_IN_SCOPE(unsupported)
{
    start_with("x", F, 1, (int64_t[]){-1});
    put_named("first", "Nonsense", "x", "a");
    put_node("Nonsense", "a", "b");
    size_t at = begin_node("Gelu", "b", "c");
    wb__wire_put_text(&o, 7, "com.example");
    wb__wire_end(&o, at);
    put_result("Neg", "c", "y");
    REFUSED(load(), WB_ERROR_UNSUPPORTED, "m.onnx", "2 operators", "Nonsense", "first", "1",
            "com.example.Gelu", "2");
    start_with("x", WB__ONNX_UINT16, 1, (int64_t[]){-1});
    put_result("Neg", "x", "y");
    REFUSED(load(), WB_ERROR_UNSUPPORTED, "x", "uint16");
    start_with("x", F, 1, (int64_t[]){-1});
    put_cast("x", "y", WB__ONNX_UINT32);
    put_name(OUTPUT, "y");
    REFUSED(wb_call(loaded(), wb_ones(2)), WB_ERROR_UNSUPPORTED, "m.onnx", "Cast", "uint32");
    start_with("x", F, 1, (int64_t[]){-1});
    at = begin_node("Identity", "x", "y");
    put_int_attr("odd", 3);
    end_result(at, "y");
    REFUSED(load(), WB_ERROR_FORMAT, "Identity", "odd");
    start_with("x", F, 1, (int64_t[]){-1});
    for (int i = 0; i < 17; i++) {
        char name[8];
        snprintf(name, sizeof name, "y%d", i);
        put_node("Neg", "x", name);
        put_name(OUTPUT, name);
    }
    REFUSED(load(), WB_ERROR_UNSUPPORTED, "17", "16");
}

/* A node computes the outputs that its operator always has. */
TEST_IN_SCOPE(no_outputs)
{
    static const char *const outputs[] = {"", "-"};
    for (int i = 0; i < 2; i++) {
        start_with("x", F, 1, (int64_t[]){-1});
        const size_t at = begin_node("Concat", "x x", outputs[i]);
        put_int_attr("axis", 0);
        wb__wire_end(&o, at);
        put_result("Neg", "x", "y");
        REFUSED(load(), WB_ERROR_FORMAT, "Concat", "output 0", "needs");
    }
}

/* The most inputs and outputs for which a call allocates no list, and one more */
TEST_IN_SCOPE(many_inputs)
{
    static const char words[] = "x x x x x x x x x x x x x x x x x x x x x x x x";
    for (int i = 0; i < 2; i++) {
        start_with("x", F, 1, (int64_t[]){-1});
        put_node("Sum", words + 2 * (1 - i), "y");
        put_name(OUTPUT, "y");
        is_tensor(wb_call(loaded(), wb_ones(2)), DIMS(2), VALUES(23.f + (float)i, 23.f + (float)i));
    }
}

/* An operation that fails names the node. */
TEST_IN_SCOPE(failures)
{
    start_with("x", F, 2, (int64_t[]){-1, -2});
    put_matrix("w", 2, 3, VALUES(1, 2, 3, 4, 5, 6));
    put_named("/product", "MatMul", "x w", "y");
    put_name(OUTPUT, "y");
    wb_layer *l = loaded();
    REFUSED(wb_call(l, wb_ones(2, 5)), WB_ERROR_SHAPE, "m.onnx", "MatMul", "/product", "[2,5]");
}

/* Loads a model, calls it twice, and saves it; false if something failed. */
static bool use_model(const char *file, const char *saved)
{
    wb_tensor *y[3], *x = wb_ones(2);
    wb_layer *l = wb_load(file);
    for (int i = 0; i < 2; i++)
        if (!l || !x || wb_call_outputs(l, 1, &x, 3, y) || wb_eval(y[0], y[1], y[2])) return false;
    return !wb_save(saved, l);
}

/* Each allocation fails once; some of them are not needed. */
TEST(every_allocation)
{
    char file[96], saved[96];
    put_loop(false);
    finish();
    snprintf(file, sizeof file, "%s", in_folder("m.onnx"));
    snprintf(saved, sizeof saved, "%s", in_folder("m.safetensors"));
    put_file(file, o.data, o.n);
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        wb_clear_error();
        wb__pool_trim();
        wb__alloc_fail_at(n);
        const bool good = use_model(file, saved);
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        if (!good && (finished || wb_error_code() != WB_ERROR_MEMORY))
            fail_msg("allocation %d: %s", (int)n, wb_error());
        wb_clear_error();
    }
}

/* ---- weber show ------------------------------------------------------------------------------ */

static void shows(const process *p, const char *words)
{
    if (!strstr(p->out, words)) fail_msg("\"%s\" is not in:\n%s%s", words, p->out, p->err);
}

TEST(shown)
{
    static process p;
    put_if(true);
    put_named("later", "Nonsense", "y", "z");
    finish();
    put_file(in_folder("m.onnx"), o.data, o.n);
    process_run(&p, folder, ENVIRONMENT(NULL), ENVIRONMENT(WB_TEST_COMMAND, "show", "m.onnx"));
    assert_int_equal(p.status, 0);
    assert_string_equal(p.err, "");
    shows(&p, "m.onnx: ONNX, opset 17, 4 nodes, made by by hand\n");
    shows(&p, "  inputs: x [N] f32, condition [] bool\n  outputs: y");
    shows(&p, "  0                If        -      y");
    shows(&p, "  0.then_branch.0  Add       -      a        4 bytes\n");
    shows(&p, "  1                Nonsense  later  z                      # not supported\n");
    shows(&p, "1 node is not supported");
    shows(&p, "m.onnx: ONNX, 2 tensors, 8 bytes");
    put_file(in_folder("m.onnx"), o.data, o.n / 2);
    process_run(&p, folder, ENVIRONMENT(NULL), ENVIRONMENT(WB_TEST_COMMAND, "show", "m.onnx"));
    assert_int_equal(p.status, 1);
}

int main(void) { return run_cases(make_folder, clean); }
