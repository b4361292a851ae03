/* Files of ONNX for tests, which are made by the writer of protobuf.h. */
#ifndef TEST_ONNX_FILE_H
#define TEST_ONNX_FILE_H

#include "folder.h"

#include "io/formats.h"
#include "io/onnx/model.h"
#include "io/protobuf.h"

static wb__wire_out o;                  /* the file that is being written */
static wb__onnx_model *m;
static size_t begun;                    /* its graph */
static char path[96];

enum { INITIALIZER = 5, INPUT = 11, OUTPUT = 12, INFO = 13 };

/* ---- writing --------------------------------------------------------------------------------- */

static inline void put_opset(uint32_t field, const char *domain, int64_t version)
{
    const size_t at = wb__wire_begin(&o, field);
    wb__wire_put_text(&o, 1, domain);
    wb__wire_put_int(&o, 2, version);
    wb__wire_end(&o, at);
}

static inline void start_version(int64_t ir, int64_t opset)
{
    wb__wire_free(&o);
    wb__onnx_free(m);
    m = NULL;
    wb__wire_put_int(&o, 1, ir);
    wb__wire_put_text(&o, 2, "by hand");
    if (opset) put_opset(8, "", opset);
}

static inline void start_graph(void)
{
    begun = wb__wire_begin(&o, 7);
    wb__wire_put_text(&o, 2, "main");
}

static inline void start(void)
{
    start_version(8, 17);
    start_graph();
}

static inline void finish(void) { wb__wire_end(&o, begun); }

/* A ValueInfoProto.  Dimension -1 is named "N"; -2 has no name and no size. */
static inline void put_value(uint32_t field, const char *name, int type, int ndim,
                             const int64_t *dims)
{
    const size_t info = wb__wire_begin(&o, field);
    wb__wire_put_text(&o, 1, name);
    const size_t of = wb__wire_begin(&o, 2), tensor = wb__wire_begin(&o, 1);
    wb__wire_put_int(&o, 1, type);
    const size_t shape = wb__wire_begin(&o, 2);
    for (int i = 0; i < ndim; i++) {
        const size_t dim = wb__wire_begin(&o, 1);
        if (dims[i] == -1) wb__wire_put_text(&o, 2, "N");
        else if (dims[i] >= 0) wb__wire_put_int(&o, 1, dims[i]);
        wb__wire_end(&o, dim);
    }
    wb__wire_end(&o, shape);
    wb__wire_end(&o, tensor);
    wb__wire_end(&o, of);
    wb__wire_end(&o, info);
}

/* A value of which only the name is known */
static inline void put_name(uint32_t field, const char *name)
{
    const size_t at = wb__wire_begin(&o, field);
    wb__wire_put_text(&o, 1, name);
    wb__wire_end(&o, at);
}

/* Begins a file whose first input this is. */
static inline void start_with(const char *name, int type, int ndim, const int64_t *dims)
{
    start();
    put_value(INPUT, name, type, ndim, dims);
}

/* Puts each word of the text; "-" is a name that is left out. */
static inline void put_words(uint32_t field, const char *words)
{
    while (*words) {
        const size_t n = strcspn(words, " ");
        wb__wire_put_bytes(&o, field, words, n == 1 && *words == '-' ? 0 : n);
        words += n + (words[n] == ' ');
    }
}

static inline size_t begin_node(const char *op, const char *inputs, const char *outputs)
{
    const size_t at = wb__wire_begin(&o, 1);
    put_words(1, inputs);
    put_words(2, outputs);
    wb__wire_put_text(&o, 4, op);
    return at;
}

static inline void put_node(const char *op, const char *inputs, const char *outputs)
{
    wb__wire_end(&o, begin_node(op, inputs, outputs));
}

/* Ends a node or tensor, whose name is the next output of the graph. */
static inline void end_result(size_t node, const char *output)
{
    wb__wire_end(&o, node);
    put_name(OUTPUT, output);
}

static inline void put_result(const char *op, const char *inputs, const char *output)
{
    end_result(begin_node(op, inputs, output), output);
}

static inline void put_named(const char *name, const char *op, const char *inputs,
                             const char *outputs)
{
    const size_t at = begin_node(op, inputs, outputs);
    wb__wire_put_text(&o, 3, name);
    wb__wire_end(&o, at);
}

static inline size_t begin_attr(const char *name, int type)
{
    const size_t at = wb__wire_begin(&o, 5);
    wb__wire_put_text(&o, 1, name);
    if (type) wb__wire_put_int(&o, 20, type);
    return at;
}

static inline void put_int_attr(const char *name, int64_t value)
{
    const size_t at = begin_attr(name, WB__ONNX_IS_INT);
    wb__wire_put_int(&o, 3, value);
    wb__wire_end(&o, at);
}

static inline void put_text_attr(const char *name, const char *value)
{
    const size_t at = begin_attr(name, WB__ONNX_IS_STRING);
    wb__wire_put_text(&o, 4, value);
    wb__wire_end(&o, at);
}

static inline size_t begin_tensor(uint32_t field, const char *name, int type, int ndim,
                           const int64_t *dims)
{
    const size_t at = wb__wire_begin(&o, field);
    wb__wire_put_ints(&o, 1, ndim, dims);
    wb__wire_put_int(&o, 2, type);
    wb__wire_put_text(&o, 8, name);
    return at;
}

/* A one-dimensional initializer of f32 */
static inline void put_floats(const char *name, int n, const float *values)
{
    const size_t at = begin_tensor(INITIALIZER, name, WB__ONNX_FLOAT, 1, (int64_t[]){n});
    wb__wire_put_bytes(&o, 9, values, 4 * (size_t)n);
    wb__wire_end(&o, at);
}

/* Begins a file with one node, to which attributes are added; end_node_file ends it. */
static inline size_t begin_node_file(void)
{
    start();
    return begin_node("Op", "", "y");
}

static inline void end_node_file(size_t node)
{
    wb__wire_end(&o, node);
    put_name(OUTPUT, "y");
    finish();
}

/* A file with an initializer "t", which has `raw` bytes of raw_data */
static inline void tensor_file(int type, int ndim, const int64_t *dims, size_t raw)
{
    static const uint8_t bytes[64] = {[7] = 2};
    start();
    const size_t at = begin_tensor(INITIALIZER, "t", type, ndim, dims);
    if (raw) wb__wire_put_bytes(&o, 9, bytes, raw);
    wb__wire_end(&o, at);
    put_name(OUTPUT, "t");
    finish();
}

static inline void put_entry(const char *key, const char *value)
{
    const size_t at = wb__wire_begin(&o, 13);
    wb__wire_put_text(&o, 1, key);
    wb__wire_put_text(&o, 2, value);
    wb__wire_end(&o, at);
}

/* ---- functions of the file ------------------------------------------------------------------- */

static inline size_t begin_function(const char *name, const char *inputs, const char *outputs)
{
    const size_t at = wb__wire_begin(&o, 25);
    wb__wire_put_text(&o, 1, name);
    wb__wire_put_text(&o, 10, "own");
    put_words(4, inputs);
    put_words(5, outputs);
    put_opset(9, "", 18);
    return at;
}

/* A node of a function, which is field 7 */
static inline size_t begin_step(const char *op, const char *inputs, const char *outputs)
{
    const size_t at = wb__wire_begin(&o, 7);
    put_words(1, inputs);
    put_words(2, outputs);
    wb__wire_put_text(&o, 4, op);
    return at;
}

/* Ends a node that calls a function. */
static inline void end_call(size_t node)
{
    wb__wire_put_text(&o, 7, "own");
    wb__wire_end(&o, node);
}

static inline void put_reference(const char *name, const char *to)
{
    const size_t at = begin_attr(name, WB__ONNX_IS_INT);
    wb__wire_put_text(&o, 21, to);
    wb__wire_end(&o, at);
}

/* own.Twice(a, optional) -> (b, other) calls own.Once(a, optional) twice, which is Op with the
 * attribute of the call, and a graph. */
static inline void put_functions(void)
{
    size_t at = begin_function("Twice", "a optional", "b other");
    size_t step = begin_step("Once", "a optional", "inner");
    put_reference("of_once", "alpha");
    end_call(step);
    end_call(begin_step("Once", "inner -", "b"));
    wb__wire_end(&o, begin_step("Other", "a", "other"));
    wb__wire_end(&o, at);
    at = begin_function("Once", "p q", "r");
    wb__wire_put_text(&o, 6, "unset");
    const size_t value = wb__wire_begin(&o, 11);
    wb__wire_put_text(&o, 1, "of_once");
    wb__wire_put_int(&o, 20, WB__ONNX_IS_INT);
    wb__wire_put_int(&o, 3, 77);
    wb__wire_end(&o, value);
    step = begin_step("Op", "p q", "inner");
    put_reference("k", "of_once");
    put_reference("absent", "unset");
    wb__wire_end(&o, step);
    step = begin_step("If", "inner", "r");
    const size_t attr = begin_attr("body", WB__ONNX_IS_GRAPH), graph = wb__wire_begin(&o, 6);
    put_node("Neg", "p", "inner2");
    put_name(OUTPUT, "inner2");
    wb__wire_end(&o, graph);
    wb__wire_end(&o, attr);
    wb__wire_end(&o, step);
    wb__wire_end(&o, at);
}

/* A file with each construct */
static inline void put_everything(void)
{
    start_with("x", WB__ONNX_FLOAT, 2, (int64_t[]){-1, 2});
    put_floats("w", 2, (float[]){1, 2});
    size_t at = begin_tensor(INITIALIZER, "i", WB__ONNX_INT64, 1, (int64_t[]){3});
    wb__wire_put_ints(&o, 7, 3, (int64_t[]){-1, 300, 7});
    wb__wire_end(&o, at);
    at = begin_tensor(INITIALIZER, "e", WB__ONNX_FLOAT, 1, (int64_t[]){2});
    put_entry("location", "w.bin");
    put_entry("offset", "8");
    wb__wire_put_int(&o, 14, 1);
    wb__wire_end(&o, at);
    size_t node = begin_node("Twice", "x w", "t");
    put_int_attr("alpha", 5);
    end_call(node);
    node = begin_node("If", "t", "y");
    at = begin_attr("then", WB__ONNX_IS_GRAPH);
    const size_t graph = wb__wire_begin(&o, 6);
    put_node("Add", "x e", "sum");
    put_name(OUTPUT, "sum");
    wb__wire_end(&o, graph);
    wb__wire_end(&o, at);
    at = begin_attr("floats", WB__ONNX_IS_FLOATS);
    wb__wire_put_floats(&o, 7, 2, (float[]){1, 2});
    wb__wire_end(&o, at);
    at = begin_attr("strings", WB__ONNX_IS_STRINGS);
    put_words(9, "one two");
    wb__wire_end(&o, at);
    wb__wire_end(&o, node);
    put_value(OUTPUT, "y", WB__ONNX_FLOAT, 1, (int64_t[]){2});
    finish();
    put_functions();
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    put_file(in_folder("w.bin"), (float[]){1, 2, 3, 4}, 16);
}

/* ---- reading --------------------------------------------------------------------------------- */

static inline int read_file(void)
{
    wb__onnx_free(m);
    return wb__onnx_read("m.onnx", o.data, o.n, &m);
}

#define READS()                                                                                    \
    do {                                                                                           \
        assert_false(o.failed);                                                                    \
        WORKS(read_file());                                                                        \
    } while (0)
#define IS_REFUSED(code, ...) FAILS(read_file(), code, "m.onnx", __VA_ARGS__)

static inline const wb__onnx_value *value_of(const wb__onnx_graph *g, int i)
{
    return &g->values[i];
}

static inline const char *name_in(const wb__onnx_graph *g, int i)
{
    return i < 0 ? "-" : g->values[i].name;
}

/* The operators of the nodes, in their order */
static inline const char *operators(const wb__onnx_graph *g)
{
    static char text[400];
    size_t n = 0;
    *text = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? " " : "", g->nodes[i].op);
    return text;
}

static inline int clean(void **state)
{
    wb__wire_free(&o);
    wb__onnx_free(m);
    return remove_folder(state);
}

#endif
