/* Models of ONNX with numbers that no exporter writes.  They are errors that name the node, or mean
 * what the standard gives. */
#include "onnx_model.h"

/* An initializer of i64 with two dimensions */
static void put_indices(const char *name, int rows, int columns, const int64_t *values)
{
    const size_t at = begin_tensor(INITIALIZER, name, I, 2, (int64_t[]){rows, columns});
    wb__wire_put_bytes(&o, 9, values, 8 * (size_t)(rows * columns));
    wb__wire_end(&o, at);
}

/* ---- indices --------------------------------------------------------------------------------- */

/* A model y = op(x, at, u) with x [3,2] and u [2,2], whose indices are `at`, or an input */
static wb_layer *indexed(const char *op, int64_t first, int64_t second, bool fixed)
{
    const bool scatter = !strncmp(op, "Scatter", 7), elements = strstr(op, "Elements");
    const int64_t at[4] = {first, elements ? 1 : 0, second, elements ? 1 : 0};
    start();
    put_value(INPUT, "x", F, 2, (int64_t[]){3, 2});
    if (fixed) put_indices("at", 2, 2, at);
    else put_value(INPUT, "at", I, 2, (int64_t[]){2, 2});
    if (scatter && elements) put_matrix("u", 2, 2, VALUES(1, 2, 3, 4));
    else if (scatter) put_floats("u", 2, VALUES(1, 2));
    const size_t node = begin_node(op, scatter ? "x at u" : "x at", "y");
    wb__wire_put_text(&o, 3, "finder");
    wb__wire_end(&o, node);
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
    start();
    put_value(INPUT, "x", F, 2, (int64_t[]){3, 2});
    put_integers("at", 0, 1, (int64_t[]){3});
    put_node("Gather", "x at", "y");
    put_name(OUTPUT, "y");
    REFUSED(wb_call(loaded(), wb_ones(3, 2)), WB_ERROR_SHAPE, "Gather", "node 0", "3");
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* x[start:end:step] of x = 0, 1, 2, 3 */
static wb_tensor *sliced(int64_t start_at, int64_t end, int64_t step)
{
    start();
    put_value(INPUT, "x", F, 1, (int64_t[]){-1});
    put_integers("start", 1, 1, &start_at);
    put_integers("end", 1, 1, &end);
    put_integers("axis", 1, 1, (int64_t[]){0});
    put_integers("step", 1, 1, &step);
    put_node("Slice", "x start end axis step", "y");
    put_name(OUTPUT, "y");
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

/* ---- values ---------------------------------------------------------------------------------- */

TEST_IN_SCOPE(shapes_of_values_in_a_compiled_function)
{
    static const char *const ops[] = {"NonZero", "Unique"};
    for (int i = 0; i < 2; i++) {
        start();
        put_value(INPUT, "x", F, 1, (int64_t[]){-1});
        const size_t at = begin_node(ops[i], "x", "y");
        wb__wire_put_text(&o, 3, "counter");
        wb__wire_end(&o, at);
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
