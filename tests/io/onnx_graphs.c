/* Models of ONNX: graphs, attributes, names, the order of nodes, functions of the file. */
#include "onnx_file.h"

/* ---- a model --------------------------------------------------------------------------------- */

TEST(a_model)
{
    const float w[] = {1, 2, 3};
    start_with("x", WB__ONNX_FLOAT, 2, (int64_t[]){-1, 3});
    put_floats("w", 3, w);
    put_value(OUTPUT, "y", WB__ONNX_FLOAT, 2, (int64_t[]){-1, 3});
    put_value(INFO, "h", WB__ONNX_FLOAT16, 1, (int64_t[]){7});
    put_name(INFO, "nothing");
    put_node("Mul", "x w", "h");
    const size_t at = begin_node("Clip", "h - w", "y -");
    wb__wire_put_text(&o, 3, "the clip");
    wb__wire_put_text(&o, 7, "ai.onnx");
    wb__wire_end(&o, at);
    finish();
    wb__wire_put_text(&o, 14, "metadata");
    READS();
    const wb__onnx_graph *g = m->graph;
    assert_string_equal(m->path, "m.onnx");
    assert_string_equal(m->producer, "by hand");
    assert_true(m->ir_version == 8 && m->opset == 17 && m->n_tensors == 1);
    assert_string_equal(g->name, "main");
    assert_true(g->n_nodes == 2 && g->n_inputs == 1 && g->n_outputs == 1 && g->n_values == 4);
    const wb__onnx_value *x = value_of(g, g->inputs[0]), *y = value_of(g, g->outputs[0]);
    assert_string_equal(x->name, "x");
    assert_true(x->type == WB__ONNX_FLOAT && x->ndim == 2 && x->dims[0] == -1 && x->dims[1] == 3);
    assert_string_equal(x->dim_names[0], "N");
    assert_true(!x->dim_names[1] && !x->initializer && x->outer == -1 && x->parameter == -1);
    assert_string_equal(y->name, "y");
    const wb__onnx_node *mul = &g->nodes[0], *clip = &g->nodes[1];
    assert_string_equal(mul->op, "Mul");
    assert_string_equal(mul->name, "");
    assert_true(mul->n_in == 2 && mul->n_out == 1 && mul->opset == 17 && !mul->operator);
    const wb__onnx_value *weight = value_of(g, mul->in[1]), *h = value_of(g, mul->out[0]);
    assert_true(weight->initializer == m->tensors && weight->ndim == 1 && weight->dims[0] == 3);
    assert_memory_equal(m->tensors->data, w, sizeof w);
    assert_true((const uint8_t *)m->tensors->data > o.data);        /* in the file */
    assert_true(h->type == WB__ONNX_FLOAT16 && h->ndim == 1 && h->dims[0] == 7);
    assert_string_equal(clip->name, "the clip");
    assert_string_equal(clip->domain, "");
    assert_true(clip->index == 1 && clip->n_in == 3 && clip->in[1] == -1 && clip->n_out == 2);
    assert_true(clip->in[0] == mul->out[0] && clip->in[2] == mul->in[1] && clip->out[1] == -1);
    assert_true(clip->out[0] == g->outputs[0]);
}

TEST(versions)
{
    const struct { int64_t ir, opset; const char *fact; } no[] = {
        {8, 0, "0"}, {8, 29, "29"}, {8, 1000000, "1000000"}, {8, -1, "-1"}, {2, 17, "2"},
        {15, 17, "15"}};
    for (int i = 0; i < 6; i++) {
        start_version(no[i].ir, 0);
        put_opset(8, "", no[i].opset);
        start_graph();
        finish();
        IS_REFUSED(WB_ERROR_UNSUPPORTED, no[i].fact, i < 4 ? "opset" : "ir_version");
    }
    for (int opset = 1; opset <= 28; opset++) {
        start_version(opset < 12 ? 3 : 14, opset);
        put_opset(8, "com.example", 3);
        put_opset(8, "ai.onnx", opset);
        start_graph();
        const size_t at = begin_node("Mine", "", "y");
        wb__wire_put_text(&o, 7, "com.example");
        end_result(at, "y");
        finish();
        READS();
        assert_true(m->opset == opset && m->graph->nodes[0].opset == 3);
        assert_string_equal(m->graph->nodes[0].domain, "com.example");
    }
    start_version(8, 17);
    put_opset(8, "ai.onnx", 16);
    start_graph();
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "17", "16");
    start_version(8, 0);
    start_graph();
    put_result("Relu", "", "y");
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "node 0", "Relu", "opset_import");
    start_version(8, 17);
    IS_REFUSED(WB_ERROR_FORMAT, "no graph");
    start();
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "outputs");
    start();
    finish();
    start_graph();
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "second graph");
}

/* In files of the third version of the format, all initializers are inputs. */
TEST(an_initializer_is_no_input)
{
    start_version(3, 9);
    start_graph();
    put_value(INPUT, "w", WB__ONNX_FLOAT, 1, (int64_t[]){2});
    put_value(INPUT, "x", WB__ONNX_FLOAT, 1, (int64_t[]){2});
    put_node("Add", "x w", "y");
    put_floats("w", 2, (float[]){1, 2});
    put_name(OUTPUT, "y");
    put_name(OUTPUT, "w");
    finish();
    READS();
    assert_true(m->graph->n_inputs == 1 && m->graph->n_outputs == 2 && m->graph->n_values == 3);
    assert_string_equal(name_in(m->graph, m->graph->inputs[0]), "x");
    assert_true(value_of(m->graph, m->graph->outputs[1])->initializer == m->tensors);
}

/* ---- attributes ------------------------------------------------------------------------------ */

TEST(attributes_of_every_type)
{
    const size_t node = begin_node_file();
    put_int_attr("int", -3);
    wb__wire_end(&o, begin_attr("zero", WB__ONNX_IS_INT));
    size_t at = begin_attr("float", WB__ONNX_IS_FLOAT);
    wb__wire_put_float(&o, 2, 0.5f);
    wb__wire_end(&o, at);
    at = begin_attr("string", WB__ONNX_IS_STRING);
    wb__wire_put_bytes(&o, 4, "a\0b", 3);
    wb__wire_end(&o, at);
    at = begin_attr("tensor", WB__ONNX_IS_TENSOR);
    wb__wire_end(&o, begin_tensor(5, "", WB__ONNX_FLOAT, 1, (int64_t[]){0}));
    wb__wire_end(&o, at);
    at = begin_attr("ints", WB__ONNX_IS_INTS);
    wb__wire_put_ints(&o, 8, 2, (int64_t[]){1, -2});
    wb__wire_put_int(&o, 8, 3);
    wb__wire_end(&o, at);
    at = begin_attr("floats", WB__ONNX_IS_FLOATS);
    wb__wire_put_float(&o, 7, 1.5f);
    wb__wire_put_floats(&o, 7, 2, (float[]){2.5f, 3.5f});
    wb__wire_end(&o, at);
    at = begin_attr("strings", WB__ONNX_IS_STRINGS);
    put_words(9, "one - three");
    wb__wire_end(&o, at);
    at = begin_attr("untyped", 0);                      /* as in the first version of the format */
    wb__wire_put_int(&o, 3, 4);
    wb__wire_end(&o, at);
    wb__wire_end(&o, begin_attr("types", 14));
    end_node_file(node);
    READS();
    const wb__onnx_attr *a = m->graph->nodes[0].attrs;
    assert_int_equal(m->graph->nodes[0].n_attrs, 10);
    assert_string_equal(a[0].name, "int");
    assert_true(a[0].type == WB__ONNX_IS_INT && a[0].i == -3 && a[1].i == 0 && a[2].f == 0.5f);
    assert_true(a[3].s_bytes == 3 && !memcmp(a[3].s, "a\0b", 4));
    assert_true(a[4].t->ndim == 1 && a[4].t->size == 0);
    assert_true(a[5].n == 3 && a[5].ints[0] == 1 && a[5].ints[1] == -2 && a[5].ints[2] == 3);
    assert_true(a[6].n == 3 && a[6].floats[0] == 1.5f && a[6].floats[2] == 3.5f);
    assert_true(a[7].n == 3);
    assert_string_equal(a[7].strings[0], "one");
    assert_string_equal(a[7].strings[1], "");
    assert_string_equal(a[7].strings[2], "three");
    assert_true(a[8].type == WB__ONNX_IS_INT && a[8].i == 4 && a[9].type == 14);
}

/* The file has one node with an attribute "a" of this type, whose value is in the field. */
static void attr_file(int type, uint32_t field)
{
    const size_t node = begin_node_file(), at = begin_attr("a", type);
    if (field == 3) wb__wire_put_int(&o, 3, 1);
    else if (field) wb__wire_put_text(&o, field, "");
    wb__wire_end(&o, at);
    end_node_file(node);
}

TEST(attributes_that_are_refused)
{
    attr_file(WB__ONNX_IS_FLOAT, 3);
    IS_REFUSED(WB_ERROR_FORMAT, "node 0", "Op", "\"a\"", "float");
    attr_file(WB__ONNX_IS_TENSOR, 0);
    IS_REFUSED(WB_ERROR_FORMAT, "node 0", "\"a\"", "no value");
    attr_file(WB__ONNX_IS_GRAPH, 0);
    IS_REFUSED(WB_ERROR_FORMAT, "node 0", "\"a\"", "no value");
    attr_file(15, 0);
    IS_REFUSED(WB_ERROR_FORMAT, "node 0", "\"a\"", "15");
    attr_file(0, 0);
    IS_REFUSED(WB_ERROR_FORMAT, "node 0", "\"a\"", "type 0");
    attr_file(11, 22);
    IS_REFUSED(WB_ERROR_UNSUPPORTED, "node 0", "\"a\"", "SparseTensorProto");
    attr_file(WB__ONNX_IS_INT, 21);                     /* an empty reference is none */
    READS();
    const size_t node = begin_node_file(), at = begin_attr("a", WB__ONNX_IS_INT);
    wb__wire_put_text(&o, 21, "outer");
    wb__wire_end(&o, at);
    end_node_file(node);
    IS_REFUSED(WB_ERROR_FORMAT, "node 0", "\"a\"", "\"outer\"", "function");
    const size_t twice = begin_node_file();
    put_int_attr("a", 1);
    put_int_attr("a", 1);
    end_node_file(twice);
    IS_REFUSED(WB_ERROR_FORMAT, "node 0", "two", "\"a\"");
    const size_t unnamed = begin_node_file();
    put_int_attr("", 1);
    end_node_file(unnamed);
    IS_REFUSED(WB_ERROR_FORMAT, "node 0", "name");
    attr_file(WB__ONNX_IS_INT, 2);                      /* text where a float must be */
    IS_REFUSED(WB_ERROR_FORMAT, "node 0", "\"a\"", "int");
}

/* ---- names and order ------------------------------------------------------------------------- */

TEST(nodes_are_sorted)
{
    start();
    put_name(INPUT, "x");
    put_node("Last", "c b", "y");
    put_node("Third", "b", "c");
    put_node("First", "x", "a");
    put_node("Second", "a", "b");
    put_name(OUTPUT, "y");
    finish();
    READS();
    assert_string_equal(operators(m->graph), "First Second Third Last");
    for (int i = 0; i < 4; i++) assert_int_equal(m->graph->nodes[i].index, i);
}

TEST(names_that_are_refused)
{
    start();
    put_name(INPUT, "x");
    put_node("A", "x c", "a");
    put_node("B", "a", "b");
    put_node("C", "b", "c");
    put_name(OUTPUT, "b");
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "cycle", "node", "node");
    start();
    put_result("A", "a", "a");
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "cycle", "\"a\"");
    const char *const inputs[] = {"x x", "x y", "w"};
    for (int i = 0; i < 3; i++) {                       /* computed twice; an input; a constant */
        start();
        put_name(INPUT, "x");
        put_floats("w", 1, (float[]){1});
        put_node("A", "x", "y");
        put_node("B", "x", i == 0 ? "y" : i == 1 ? "x" : "w");
        put_name(OUTPUT, "y");
        finish();
        IS_REFUSED(WB_ERROR_FORMAT, "B", "number 1", i == 0 ? "\"y\"" : i == 1 ? "\"x\"" : "\"w\"");
        start();
        put_name(INPUT, "x");
        put_node("A", inputs[i], "y");
        put_name(OUTPUT, "y");
        finish();
        if (i == 0) READS();
        else IS_REFUSED(WB_ERROR_FORMAT, "A", i == 1 ? "cycle" : "\"w\"");
    }
    start();
    put_node("A", "", "y");
    put_name(OUTPUT, "z");
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "output", "\"z\"");
    start();
    put_name(INPUT, "x");
    put_name(INPUT, "x");
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "two", "\"x\"");
    start();
    put_name(INPUT, "");
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "name");
    start();
    put_node("", "", "y");
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "op_type");
    start();
    put_node("A", "", "y");
    o.data[o.n - 4] = 0;                                /* the name "y" becomes a zero byte */
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "zero byte");
    start_with("x", WB__ONNX_FLOAT, 9, (int64_t[9]){1, 1, 1, 1, 1, 1, 1, 1, 1});
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "\"x\"", "8", "dimensions");
    start();
    const size_t info = wb__wire_begin(&o, INPUT);
    wb__wire_put_text(&o, 1, "x");
    const size_t type = wb__wire_begin(&o, 2);
    wb__wire_put_text(&o, 4, "");
    wb__wire_end(&o, type);
    wb__wire_end(&o, info);
    finish();
    IS_REFUSED(WB_ERROR_UNSUPPORTED, "input", "\"x\"", "sequence");
}

/* ---- graphs in graphs ------------------------------------------------------------------------ */

TEST(graphs_read_values_of_outer_graphs)
{
    start_with("x", WB__ONNX_FLOAT, 1, (int64_t[]){5});
    const size_t node = begin_node("If", "x", "y"), attr = begin_attr("body", WB__ONNX_IS_GRAPH);
    const size_t inner = wb__wire_begin(&o, 6);
    const size_t node2 = begin_node("If", "late", "b"), attr2 = begin_attr("body", 5);
    const size_t inner2 = wb__wire_begin(&o, 6);
    put_result("Neg", "x", "n");
    put_name(OUTPUT, "late");
    wb__wire_end(&o, inner2);
    wb__wire_end(&o, attr2);
    end_result(node2, "b");
    wb__wire_end(&o, inner);
    wb__wire_end(&o, attr);
    wb__wire_end(&o, node);
    put_node("Abs", "x", "late");               /* needed by the graph in the node before */
    put_name(OUTPUT, "y");
    finish();
    READS();
    const wb__onnx_graph *g = m->graph;
    assert_string_equal(operators(g), "Abs If");
    const wb__onnx_graph *one = g->nodes[1].attrs[0].g, *two = one->nodes[0].attrs[0].g;
    assert_true(one->outer == g && two->outer == one && !g->outer);
    const wb__onnx_value *x = value_of(two, two->nodes[0].in[0]);
    assert_string_equal(x->name, "x");
    assert_true(x->type == WB__ONNX_FLOAT && x->ndim == 1 && x->dims[0] == 5);
    x = value_of(one, x->outer);
    assert_string_equal(x->name, "x");
    assert_true(x->outer == g->inputs[0]);
    const wb__onnx_value *late = value_of(two, two->outputs[1]);
    assert_true(value_of(one, late->outer)->outer == g->nodes[0].out[0]);
}

/* Graphs in graphs, this many in all */
static void deep_file(int depth)
{
    size_t at[200][3];
    start();
    for (int i = 1; i < depth; i++) {
        at[i][0] = begin_node("If", "", "y");
        at[i][1] = begin_attr("body", WB__ONNX_IS_GRAPH);
        at[i][2] = wb__wire_begin(&o, 6);
    }
    put_result("Op", "", "y");
    for (int i = depth - 1; i > 0; i--) {
        for (int k = 2; k >= 0; k--) wb__wire_end(&o, at[i][k]);
        put_name(OUTPUT, "y");
    }
    finish();
}

TEST(depth_of_graphs)
{
    deep_file(64);
    READS();
    deep_file(65);
    IS_REFUSED(WB_ERROR_FORMAT, "64", "deep");
}

/* ---- functions of the file ------------------------------------------------------------------- */

TEST(functions_become_their_nodes)
{
    start();
    put_name(INPUT, "x");
    size_t node = begin_node("Twice", "x x", "y");
    wb__wire_put_text(&o, 3, "here");
    put_int_attr("alpha", 5);
    end_call(node);
    end_call(begin_node("Twice", "y", "- z"));
    put_name(OUTPUT, "y");
    put_name(OUTPUT, "z");
    finish();
    put_functions();
    READS();
    const wb__onnx_graph *g = m->graph;
    assert_string_equal(operators(g), "Op If Op If Other Op If Op If Other");
    const wb__onnx_node *n = g->nodes;
    assert_true(n[0].opset == 18 && n[0].in[0] == g->inputs[0] && n[0].in[1] == g->inputs[0]);
    assert_true(n[0].n_attrs == 1 && n[0].attrs[0].i == 5);
    assert_string_equal(n[0].attrs[0].name, "k");
    assert_true(n[1].in[0] == n[0].out[0] && n[2].in[0] == n[1].out[0] && n[2].in[1] == -1);
    assert_true(n[2].attrs[0].i == 77 && n[2].out[0] != n[0].out[0]);
    assert_true(n[3].out[0] == g->outputs[0] && n[4].in[0] == g->inputs[0]);
    assert_true(n[5].in[0] == g->outputs[0] && n[5].in[1] == -1 && n[5].attrs[0].i == 77);
    assert_true(n[9].out[0] == g->outputs[1]);
    const wb__onnx_graph *inner = n[1].attrs[0].g;
    assert_true(value_of(inner, inner->nodes[0].in[0])->outer == g->inputs[0]);
}

TEST(functions_that_are_refused)
{
    start();
    put_name(INPUT, "x");
    end_call(begin_node("Once", "x x x", "y"));
    finish();
    put_functions();
    IS_REFUSED(WB_ERROR_FORMAT, "\"Once\"", "2", "inputs");
    start();
    put_name(INPUT, "x");
    end_call(begin_node("Once", "x", "y z"));
    finish();
    put_functions();
    IS_REFUSED(WB_ERROR_FORMAT, "\"Once\"", "1", "outputs");
    start();
    const size_t node = begin_node("Once", "", "y");
    wb__wire_put_text(&o, 8, "an overload");
    end_call(node);
    finish();
    put_functions();
    IS_REFUSED(WB_ERROR_FORMAT, "\"Once\"", "an overload");
    start();
    finish();
    put_functions();
    put_functions();
    IS_REFUSED(WB_ERROR_FORMAT, "two", "\"Twice\"");
    start();
    finish();
    wb__wire_end(&o, begin_function("F", "a", "a"));
    IS_REFUSED(WB_ERROR_FORMAT, "two", "\"a\"");
    start();
    finish();
    const size_t at = begin_function("F", "", "");
    put_opset(9, "", 18);
    put_opset(9, "ai.onnx", 22);
    wb__wire_end(&o, at);
    IS_REFUSED(WB_ERROR_FORMAT, "18", "22");
    start();
    end_call(begin_node("F", "", "y"));
    put_name(OUTPUT, "y");
    finish();
    const size_t itself = begin_function("F", "", "a");
    end_call(begin_step("F", "", "a"));
    wb__wire_end(&o, itself);
    IS_REFUSED(WB_ERROR_FORMAT, "\"F\"", "itself", "64");
}

/* ---- hostile files --------------------------------------------------------------------------- */

/* Reads a file; it may be refused, but needs at most the bytes that its size allows.  The peak
 * never falls, so tests of larger files come after those of smaller ones. */
static void costs_little(const uint8_t *data, size_t n, int64_t more)
{
    const int64_t before = wb_memory_used();
    int64_t peak = wb_memory_peak();
    wb__onnx_model *read = NULL;
    wb_clear_error();
    const int status = wb__onnx_read(path, data, n, &read);
    assert_true((status == 0) == (read != NULL));
    if (status) assert_true(status == WB_ERROR_FORMAT || status == WB_ERROR_UNSUPPORTED);
    if (status) assert_int_equal(wb_error_code(), status);
    wb__onnx_free(read);
    assert_true(wb_memory_used() == before);
    peak = WB__MAX(peak, before + 110 * (int64_t)n + (1 << 20) + more);
    assert_true(wb_memory_peak() <= peak);
}

TEST(every_prefix_and_every_byte)
{
    put_everything();
    WORKS(wb__onnx_read(path, o.data, o.n, &m));
    for (size_t n = 0; n < o.n; n++) {
        uint8_t *exact = malloc(n + 1);
        memcpy(exact, o.data, n);
        costs_little(exact, n, 0);
        free(exact);
    }
    static const uint8_t values[] = {0, 1, 2, 7, 8, 0x0a, 0x7f, 0x80, 0xff};
    for (size_t at = 0; at < o.n; at++) {
        const uint8_t old = o.data[at];
        for (size_t k = 0; k < WB__COUNT(values) + 8; k++) {
            o.data[at] = k < WB__COUNT(values) ? values[k]
                                               : (uint8_t)(old ^ 1u << (k - WB__COUNT(values)));
            costs_little(o.data, o.n, 0);
        }
        o.data[at] = old;
    }
}

/* Each of 63 graphs has a value for each of many names of the outermost one. */
TEST(names_that_many_graphs_share)
{
    enum { DEPTH = 64, NAMES = 2000 };
    size_t at[DEPTH][3];
    char name[16];
    start();
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "%d", i);
        put_node("A", "", name);
    }
    for (int i = 1; i < DEPTH; i++) {
        at[i][0] = begin_node("If", "", "");
        at[i][1] = begin_attr("b", WB__ONNX_IS_GRAPH);
        at[i][2] = wb__wire_begin(&o, 6);
    }
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "%d", i);
        put_node("A", name, "");
    }
    for (int i = DEPTH - 1; i > 0; i--)
        for (int k = 2; k >= 0; k--) wb__wire_end(&o, at[i][k]);
    put_name(OUTPUT, "0");
    finish();
    costs_little(o.data, o.n, 0);
    IS_REFUSED(WB_ERROR_FORMAT, "bytes");
}

TEST(many_small_things)
{
    const struct { uint32_t field; const char *bytes; } rows[] = {
        {1, ""}, {1, "\x22\1A"}, {5, ""}, {5, "\x10\1\x42\1a"},
        {11, ""}, {11, "\x0a\1a"}, {12, ""}, {13, ""}, {13, "\x0a\1a"}, {14, ""}};
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        start();
        for (int k = 0; k < 50000; k++)
            wb__wire_put_bytes(&o, rows[i].field, rows[i].bytes, strlen(rows[i].bytes));
        finish();
        costs_little(o.data, o.n, 0);
    }
    for (uint32_t field = 1; field < 10; field++) {     /* one node */
        const size_t node = begin_node_file(), at = begin_attr("a", (int)field);
        for (int k = 0; k < 50000; k++) wb__wire_put_bytes(&o, field, "", 0);
        wb__wire_end(&o, at);
        for (int k = 0; k < 50000; k++) wb__wire_put_bytes(&o, 1 + field % 2, "", 0);
        end_node_file(node);
        costs_little(o.data, o.n, 0);
    }
}

/* Each of these functions calls the next one twice. */
TEST(calls_that_double)
{
    start();
    end_call(begin_node("F0", "", "y"));
    put_name(OUTPUT, "y");
    finish();
    for (int i = 0; i < 60; i++) {
        char name[8], next[8];
        snprintf(name, sizeof name, "F%d", i);
        snprintf(next, sizeof next, i < 59 ? "F%d" : "Op", i + 1);
        const size_t at = begin_function(name, "", "a");
        end_call(begin_step(next, "", "a"));
        end_call(begin_step(next, "", "b"));
        wb__wire_end(&o, at);
    }
    IS_REFUSED(WB_ERROR_FORMAT, "bytes");
    costs_little(o.data, o.n, 33 << 20);
}

int main(void) { return run_cases(make_folder, clean); }
