/* Models of ONNX as layers, for tests: parts of files, and how they are loaded and checked. */
#ifndef TEST_ONNX_MODEL_H
#define TEST_ONNX_MODEL_H

#include "onnx_file.h"

/* ---- files ----------------------------------------------------------------------------------- */

enum { F = WB__ONNX_FLOAT, I = WB__ONNX_INT64, B = WB__ONNX_BOOL };

/* An initializer of i64; ndim 0 or 1 */
static inline void put_integers(const char *name, int ndim, int n, const int64_t *values)
{
    const size_t at = begin_tensor(INITIALIZER, name, I, ndim, (int64_t[]){n});
    wb__wire_put_bytes(&o, 9, values, 8 * (size_t)n);
    wb__wire_end(&o, at);
}

static inline void put_matrix(const char *name, int rows, int columns, const float *values)
{
    const size_t at = begin_tensor(INITIALIZER, name, F, 2, (int64_t[]){rows, columns});
    wb__wire_put_bytes(&o, 9, values, 4 * (size_t)(rows * columns));
    wb__wire_end(&o, at);
}

static inline void put_number(const char *name, float value)
{
    const size_t at = begin_tensor(INITIALIZER, name, F, 0, NULL);
    wb__wire_put_bytes(&o, 9, &value, 4);
    wb__wire_end(&o, at);
}

static inline void put_axis(const char *op, const char *inputs, const char *outputs, int64_t axis)
{
    const size_t at = begin_node(op, inputs, outputs);
    put_int_attr("axis", axis);
    wb__wire_end(&o, at);
}

static inline void put_cast(const char *input, const char *output, int type)
{
    const size_t at = begin_node("Cast", input, output);
    put_int_attr("to", type);
    wb__wire_end(&o, at);
}

static size_t graph_attr;
static inline size_t begin_body(const char *name)
{
    graph_attr = begin_attr(name, WB__ONNX_IS_GRAPH);
    return wb__wire_begin(&o, 6);
}
static inline void end_body(size_t at)
{
    wb__wire_end(&o, at);
    wb__wire_end(&o, graph_attr);
}

/* A graph of one node with one result, in an attribute */
static inline void put_body(const char *name, const char *op, const char *inputs,
                            const char *result)
{
    const size_t at = begin_body(name);
    put_result(op, inputs, result);
    end_body(at);
}

/* Ends the file and loads it. */
static inline wb_layer *load(void)
{
    finish();
    assert_false(o.failed);
    put_file(in_folder("m.onnx"), o.data, o.n);
    return wb_load(in_folder("m.onnx"));
}

static inline wb_layer *loaded(void)
{
    wb_layer *l = load();
    if (!l) fail_msg("%s", wb_error());
    return l;
}

static inline wb_tensor *floats(int ndim, const int64_t *dims, const float *values)
{
    return wb_from(values, WB_F32, ndim, dims);
}

/* x has this shape and these values. */
static inline void is_tensor(wb_tensor *x, int ndim, const int64_t *dims, const float *values)
{
    if (!x) fail_msg("%s", wb_error());
    assert_int_equal(wb_ndim(x), ndim);
    for (int i = 0; i < ndim; i++) assert_int_equal(wb_dim(x, i), dims[i]);
    const float *data = wb_data(wb_astype(x, WB_F32));
    if (!data) fail_msg("%s", wb_error());
    for (int64_t i = 0; i < wb_size(x); i++)
        if (fabsf(data[i] - values[i]) > 1e-5f)
            fail_msg("element %d is %g, not %g", (int)i, (double)data[i], (double)values[i]);
}
#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__}
#define VALUES(...) (float[]){__VA_ARGS__}

/* A function for wb_compile, with one input. */
static inline int call_layer(wb_tensor *const *in, wb_tensor **out, void *layer)
{
    out[0] = wb_call(layer, in[0]);
    return out[0] ? 1 : -1;
}

#endif
