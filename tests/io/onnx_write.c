/* wb_save of models as files of ONNX: what is in the files, and what is refused.  The models of
 * tests/onnx/written.c compare outputs. */
#include "folder.h"

#include "far_device.h"

#include "base/files/file.h"
#include "base/map.h"
#include "io/onnx/model.h"
#include "nn/layer.h"
#include "weber.h"

/* ---- files ----------------------------------------------------------------------------------- */

static wb__onnx_model *m;               /* the file that was read last */
static wb__mapping *mapped;

static void forget(void)
{
    wb__onnx_free(m);
    wb__unmap(mapped);
    m = NULL;
    mapped = NULL;
}

static int clean(void **state)
{
    forget();
    return remove_folder(state);
}

static const char *path(void) { return in_folder("m.onnx"); }

static const wb__onnx_graph *read_file(void)
{
    forget();
    MADE(mapped = wb__map(path()));
    WORKS(wb__onnx_read(path(), mapped->data, (size_t)mapped->bytes, &m));
    return m->graph;
}

/* The operators of the file, separated by blanks, without constants */
static const char *operators(void)
{
    static char text[2000];
    const wb__onnx_graph *g = read_file();
    *text = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i].op, "Constant"))
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? " " : "",
                     g->nodes[i].op);
    return text;
}

/* The shape of a value of the file, such as "input [batch,2]" */
static const char *port(int v)
{
    static char text[4][200];
    static int turn;
    const wb__onnx_value *p = &m->graph->values[v];
    char *to = text[turn++ & 3];
    int n = snprintf(to, 200, "%s [", p->name);
    for (int i = 0; i < p->ndim; i++)
        n += p->dims[i] >= 0 ? snprintf(to + n, 200 - (size_t)n, "%s%d", i ? "," : "",
                                        (int)p->dims[i])
                             : snprintf(to + n, 200 - (size_t)n, "%s%s", i ? "," : "",
                                        p->dim_names[i] ? p->dim_names[i] : "?");
    snprintf(to + n, 200 - (size_t)n, "]");
    return to;
}

static wb_layer *loaded(void)
{
    wb_layer *l = wb_load(path());
    MADE(l);
    return l;
}

static void is_near(wb_tensor *a, wb_tensor *b)
{
    MADE(a);
    MADE(b);
    assert_int_equal(wb_size(a), wb_size(b));
    const float *p = wb_data(a), *q = wb_data(b);
    MADE(p);
    MADE(q);
    for (int64_t i = 0; i < wb_size(a); i++)
        if (!(fabsf(p[i] - q[i]) <= 1e-5f))
            fail_msg("element %d is %g, not %g", (int)i, (double)q[i], (double)p[i]);
}

/* ---- names ----------------------------------------------------------------------------------- */

TEST_IN_SCOPE(a_network)
{
    wb_layer *l = wb_Chain(wb_Dense(2, 3, wb_relu), wb_Dense(3, 1, .bias = false));
    WORKS(wb_save(path(), l, .inputs = {wb_ones(4, 2)}));
    assert_string_equal(operators(), "Gemm Relu Gemm Identity");
    const wb__onnx_graph *g = m->graph;
    assert_int_equal(m->ir_version, 8);
    assert_int_equal(m->opset, 17);
    assert_string_equal(m->producer, "weber");
    assert_string_equal(g->name, "Chain");
    assert_int_equal(g->n_inputs, 1);
    assert_string_equal(port(g->inputs[0]), "input [batch,2]");
    assert_string_equal(port(g->outputs[0]), "output [batch,1]");
    assert_int_equal(m->n_tensors, 3);
    assert_string_equal(m->tensors[0].name, "layers.0.weight");
    assert_string_equal(m->tensors[1].name, "layers.0.bias");
    assert_string_equal(m->tensors[2].name, "layers.1.weight");
    assert_memory_equal(m->tensors[0].data, wb_data(wb_get(l, "layers.0.weight")), 24);
    assert_string_equal(g->nodes[0].name, "/layers.0/Gemm_0");
    wb_tensor *x = wb_rand(5, 2);
    is_near(wb_call(l, x), wb_call(loaded(), x));
}

TEST_IN_SCOPE(ties)
{
    wb_layer *l = wb_Chain(wb_Dense(3, 3, wb_tanh), wb_Dense(3, 3));
    WORKS(wb_tie(l, "layers.0.weight", "layers.1.weight"));
    WORKS(wb_save(path(), l, .inputs = {wb_ones(1, 3)}));
    read_file();
    assert_int_equal(m->n_tensors, 3);
    wb_tensor *x = wb_rand(2, 3);
    is_near(wb_call(l, x), wb_call(loaded(), x));
}

TEST_IN_SCOPE(names_of_the_program)
{
    wb_layer *l = wb_Parallel(wb_separate, wb_Dense(2, 3), wb_Dense(2, 1));
    wb_tensor *x = wb_ones(4, 2);
    WORKS(wb_save(path(), l, .inputs = {x}, .input_names = {"x"}, .output_names = {"a", "b"}));
    read_file();
    assert_string_equal(port(m->graph->inputs[0]), "x [batch,2]");
    assert_string_equal(port(m->graph->outputs[1]), "b [batch,1]");
    FAILS(wb_save(path(), l, .inputs = {x}, .output_names = {"a"}), WB_ERROR_ARGUMENT,
          ".output_names", "1", "2");
    FAILS(wb_save(path(), l, .inputs = {x}, .output_names = {"a", "a"}), WB_ERROR_ARGUMENT, "a",
          "another output");
    FAILS(wb_save(path(), l, .inputs = {x}, .input_names = {"layers.0.bias"}), WB_ERROR_ARGUMENT,
          "layers.0.bias", "a tensor of the model");
    FAILS(wb_save(path(), l, .inputs = {x}, .output_names = {"a", "input"}), WB_ERROR_ARGUMENT,
          "input");
    FAILS(wb_save(path(), l, .inputs = {x}, .input_names = {"/x"}), WB_ERROR_ARGUMENT, "/");
    FAILS(wb_save(path(), l, .inputs = {x}, .input_names = {""}), WB_ERROR_ARGUMENT, "empty");
}

/* Values of the file have other names than the tensors of a model that came from such a file. */
TEST_IN_SCOPE(a_file_of_a_file)
{
    wb_layer *l = wb_Chain(wb_Conv(1, 2, {3, 3}, wb_gelu), wb_BatchNorm(2), wb_Flatten(),
                           wb_Dense(8, 3));
    WORKS(wb_save(path(), l, .inputs = {wb_ones(2, 1, 4, 4)}));
    wb_layer *once = loaded();
    WORKS(wb_save(path(), once, .inputs = {wb_ones(2, 1, 4, 4)}));
    wb_layer *twice = loaded();
    wb_tensor *x = wb_rand(3, 1, 4, 4);
    is_near(wb_call(wb_testmode(l), x), wb_call(twice, x));
    assert_int_equal(wb_parameter_count(l), wb_parameter_count(twice));
    is_near(wb_get(l, "layers.1.var"), wb_get(twice, "layers.1.var"));
    WORKS(wb_save(path(), wb_Chain(once, wb_Dense(3, 1)), .inputs = {wb_ones(2, 1, 4, 4)}));
    MADE(wb_get(loaded(), "layers.0.layers.0.weight"));
}

/* ---- dtypes ---------------------------------------------------------------------------------- */

TEST_IN_SCOPE(dtypes)
{
    wb_layer *l = wb_Dense(2, 3, .dtype = WB_BF16);
    WORKS(wb_save(path(), l, .inputs = {wb_full_array(1, WB_BF16, 2, (int64_t[]){1, 2})}));
    read_file();
    assert_int_equal(m->tensors[0].type, WB__ONNX_BFLOAT16);
    assert_int_equal(m->graph->values[m->graph->outputs[0]].type, WB__ONNX_BFLOAT16);
    l = wb_Dense(2, 3, .dtype = WB_F16);
    WORKS(wb_save(path(), l, .inputs = {wb_full_array(1, WB_F16, 2, (int64_t[]){1, 2})}));
    assert_string_equal(operators(), "Gemm Identity");
    assert_int_equal(m->tensors[0].type, WB__ONNX_FLOAT16);
}

/* ---- the batch ------------------------------------------------------------------------------- */

#define LAYER(name, ...)                                                                           \
    static wb_tensor *call_##name(wb_tensor *x) { return __VA_ARGS__; }
LAYER(squared, wb_mul(x, (double)(wb_dim(x, 0) * wb_dim(x, 0))))
LAYER(branching, wb_dim(x, 0) > 3 ? wb_neg(x) : wb_exp(x))
LAYER(longer, wb_dim(x, 0) > 3 ? wb_neg(wb_neg(x)) : x)
LAYER(limited, wb_mul(x, wb_dim(x, 0) > 3 ? 4 : (double)wb_dim(x, 0)))
LAYER(every_third, wb_slice(x, 0, 0, wb_dim(x, 0), 3))
LAYER(a_half, wb_slice(x, 0, 0, wb_dim(x, 0) / 2))
LAYER(of_one, wb_slice(x, 0, 0, wb_dim(x, 0) > 1 ? wb_dim(x, 0) - 1 : 1))
LAYER(of_its_size, wb_reshape(x, 2, 3))
LAYER(of_square_size, wb_expand(x, wb_dim(x, 0) * wb_dim(x, 0), wb_dim(x, 0), 3))
static wb_tensor *call_counted(wb_tensor *x)
{
    float n[32];                        /* for all sizes of the batch that are recorded */
    const int64_t dims[2] = {wb_dim(x, 0), 1};
    for (int i = 0; i < 32; i++) n[i] = (float)i;
    return wb_add(x, wb_from(n, WB_F32, 2, dims));
}

/* A constant whose rows are equal is one row. */
static wb_tensor *call_equal_rows(wb_tensor *x)
{
    float n[64];
    const int64_t dims[2] = {wb_dim(x, 0), 2};
    for (int i = 0; i < 64; i++) n[i] = (float)(i % 2);
    return wb_concat(1, x, wb_from(n, WB_F32, 2, dims));
}

TEST_IN_SCOPE(equal_rows)
{
    wb_layer *l = wb_Chain(call_equal_rows);
    WORKS(wb_save(path(), l, .inputs = {wb_rand(2, 3)}));
    wb_tensor *x = wb_rand(7, 3);
    is_near(wb_call(l, x), wb_call(loaded(), x));
}

TEST_IN_SCOPE(what_depends_on_the_batch)
{
    static const struct { wb_function f; const char *fact; } rows[] = {
        {call_squared, "number"}, {call_branching, "exp"}, {call_longer, "operations"},
        {call_of_its_size, "reshape"}, {call_of_square_size, "linear"},
        {call_counted, "constant"}, {call_limited, "number"}, {call_every_third, "linear"},
        {call_a_half, "linear"}, {call_of_one, "batch of 1"}};
    wb_tensor *x = wb_rand(2, 3);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wb_layer *l = wb_Chain(wb_Dense(3, 3), rows[i].f);
        wb_clear_error();
        assert_true(wb_save(path(), l, .inputs = {x}));
        assert_true(HAS_FACTS(wb_error(), path(), ".fixed", "batch"));
        if (!strstr(wb_error(), rows[i].fact)) fail_msg("%s: %s", rows[i].fact, wb_error());
        WORKS(wb_save(path(), l, .inputs = {x}, .fixed = true));
        read_file();
        assert_string_equal(port(m->graph->inputs[0]), "input [2,3]");
        is_near(wb_call(l, x), wb_call(loaded(), x));
    }
}

TEST_IN_SCOPE(axes_of_the_batch)
{
    wb_layer *l = wb_LSTM(3, 4, .layers = 2, .return_state = true);
    wb_tensor *x = wb_rand(3, 5, 3), *h = wb_rand(2, 3, 4), *c = wb_rand(2, 3, 4);
    WORKS(wb_save(path(), l, .inputs = {x, h, c}, .batch_axes = {0, 1, 1}));
    read_file();
    assert_string_equal(port(m->graph->inputs[1]), "input1 [2,batch,4]");
    assert_string_equal(port(m->graph->outputs[2]), "output2 [2,batch,4]");
    FAILS(wb_save(path(), l, .inputs = {x, h, c}), WB_ERROR_SHAPE, ".batch_axes", ".fixed");
    FAILS(wb_save(path(), l, .inputs = {x, h, c}, .batch_axes = {0, 1}), WB_ERROR_ARGUMENT,
          ".batch_axes", "2", "3");
    FAILS(wb_save(path(), l, .inputs = {x, h, c}, .batch_axes = {0, 1, 3}), WB_ERROR_ARGUMENT,
          "axis 3");
    FAILS(wb_save(path(), l, .inputs = {x, h, c}, .batch_axes = {0, 1, 0}), WB_ERROR_SHAPE, "2",
          "3");
    FAILS(wb_save(path(), l, .inputs = {wb_zeros(0, 5, 3)}), WB_ERROR_SHAPE, "empty");
    WORKS(wb_save(path(), l, .inputs = {x, h, c}, .batch_axes = {-1, -1, -1}));
    read_file();
    assert_string_equal(port(m->graph->inputs[0]), "input [3,5,3]");
}

/* ---- what is refused ------------------------------------------------------------------------- */

typedef struct { wb_tensor *sum; int kind; } odd;
static int double_it(int n, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    for (int i = 0; i < 6; i++) ((float *)out->data)[i] = 2 * ((const float *)in->data)[i];
    return n != 1;
}
static wb_tensor *call_odd(const odd *o, wb_tensor *x)
{
    switch (o->kind) {
    case 0: return wb_add(x, wb_rand_like(x));
    case 1: return wb_item(wb_sum(x)) > 0 ? x : wb_neg(x);
    case 2: return wb_assign(o->sum, wb_sum(x)) ? NULL : x;
    case 3: return wb_host_operation(double_it, NULL, WB_F32, 2, (int64_t[]){2, 3}, 1, &x);
    default: return wb_fail(WB_ERROR_SHAPE, "odd: %d is no kind", o->kind), NULL;
    }
}
WB_LAYER(odd, call_odd, sum, kind)

static wb_layer *new_odd(int kind)
{
    return wb_Chain(wb_Dense(3, 3), wb_named("odd", wb_layer_of(odd, wb_zeros(), kind)));
}

TEST_IN_SCOPE(operations_that_are_refused)
{
    wb_tensor *x = wb_rand(2, 3);
    FAILS(wb_save(path(), new_odd(0), .inputs = {x}), WB_ERROR_UNSUPPORTED, path(), "uniform",
          "odd", "random");
    FAILS(wb_save(path(), new_odd(1), .inputs = {x}), WB_ERROR_UNSUPPORTED, path(), "reads a value",
          "item");
    FAILS(wb_save(path(), new_odd(3), .inputs = {x}, .fixed = true), WB_ERROR_UNSUPPORTED, path(),
          "host", "odd", "C function");
    FAILS(wb_save(path(), new_odd(4), .inputs = {x}), WB_ERROR_SHAPE, path(), "4 is no kind");
    FAILS(wb_save(path(), new_odd(4), .inputs = {x}, .fixed = true), WB_ERROR_SHAPE, path(),
          "4 is no kind");
    wb_layer *l = new_odd(2);
    FAILS(wb_save(path(), l, .inputs = {x}), WB_ERROR_UNSUPPORTED, path(), "assigns",
          "layers.odd.sum");
    assert_true(wb_item(wb_get(l, "layers.odd.sum")) == 0);
    FAILS(wb_save(path(), wb_Dense(4, 3), .inputs = {x}), WB_ERROR_SHAPE, path(), "[2,3]");
}

TEST_IN_SCOPE(arguments)
{
    wb_layer *l = wb_Dense(3, 2);
    wb_tensor *x = wb_ones(2, 3), *none = NULL;
    FAILS(wb_save(path(), l), WB_ERROR_ARGUMENT, path(), ".inputs");
    FAILS(wb_save(path(), l, .inputs = {none}), WB_ERROR_ARGUMENT, "inputs");
    FAILS(wb_save(path(), l, .inputs = {x, none}), WB_ERROR_ARGUMENT, "inputs");
    FAILS(wb_save(path(), l, .inputs = {WB_NONE}), WB_ERROR_ARGUMENT, "WB_NONE");
    FAILS(wb_save(path(), l, .inputs = {x}, .key = "k"), WB_ERROR_ARGUMENT, ".key");
    FAILS(wb_save(path(), l, .inputs = {x}, .names = WB_NAMES_TORCH), WB_ERROR_ARGUMENT, ".names");
    FAILS(wb_save(path(), wb_tuple(l), .inputs = {x}), WB_ERROR_ARGUMENT, path(), "tree");
    FAILS(wb_save(in_folder("m.safetensors"), l, .inputs = {x}), WB_ERROR_ARGUMENT, ".inputs");
    FAILS(wb_save(in_folder("m.npz"), l, .fixed = true), WB_ERROR_ARGUMENT, ".fixed");
    FAILS(wb_save(in_folder("m.bson"), l, .batch_axes = {0}), WB_ERROR_ARGUMENT, ".batch_axes");
    FAILS(wb_save(WB_TEST_NOWHERE "/m.onnx", l, .inputs = {x}), WB_ERROR_FILE,
          WB_TEST_NOWHERE "/m.onnx");
    WORKS(wb_save(path(), wb_named("whole", l), .inputs = {x}));
}

/* The model is saved in test mode, and keeps its own. */
TEST_IN_SCOPE(modes)
{
    wb_layer *l = wb_Chain(wb_Dense(3, 4), wb_BatchNorm(4), wb_Dropout(0.5));
    wb_trainmode(l);
    WORKS(wb_save(path(), l, .inputs = {wb_ones(2, 3)}));
    assert_string_equal(operators(), "Gemm BatchNormalization Identity");
    wb_tensor *x = wb_rand(8, 3);
    wb_tensor *y = wb_call(l, x);
    MADE(y);
    assert_true(wb_item(wb_sum(wb_astype(wb_eq(y, 0), WB_F32))) > 0);
    WORKS(wb_save(path(), l, .inputs = {x}));       /* the call has changed the statistics */
    is_near(wb_call(wb_testmode(l), x), wb_call(loaded(), x));
    wb_layer *read = loaded();
    assert_true(((wb_tensor *)wb_get(read, "layers.1.mean"))->flags & WB__FROZEN);
    assert_int_equal(wb_parameter_count(read), wb_parameter_count(l));
}

/* A model on another device gives the same file. */
TEST_IN_SCOPE(devices)
{
    wb_layer *l = wb_Chain(wb_Embedding(5, 4), wb_LayerNorm({4}), wb_Dense(4, 3, wb_gelu));
    wb_tensor *x = wb_from((int64_t[]){1, 2, 3, 4}, WB_I64, 2, (int64_t[]){2, 2});
    WORKS(wb_save(path(), l, .inputs = {x}));
    char *here = NULL;
    int64_t n = 0, m_bytes;
    MADE(here = wb__file_read(path(), &n));
    const wb_device *far = far_device();
    WORKS(wb_save(path(), wb_to(l, far), .inputs = {wb_to(x, far)}));
    char *there = wb__file_read(path(), &m_bytes);
    MADE(there);
    assert_int_equal(n, m_bytes);
    assert_memory_equal(here, there, (size_t)n);
    wb__free(here);
    wb__free(there);
    assert_true(wb_save(path(), wb_to(l, far), .inputs = {x}));     /* the input is elsewhere */
}

TEST_IN_SCOPE(too_large)
{
    wb_layer *l = wb_Dense(40000, 14000, .init = wb__init_empty);
    if (!l) skip();                     /* no address space */
    FAILS(wb_save(path(), l, .inputs = {wb_ones(1, 40000)}), WB_ERROR_UNSUPPORTED, path(), "2 GiB");
    assert_non_null(strstr(wb_error(), "2240056"));
}

/* ---- failures of memory ---------------------------------------------------------------------- */

TEST_IN_SCOPE(without_memory)
{
    wb_layer *l = wb_Chain(wb_Embedding(5, 4), wb_LSTM(4, 3, .last = true), wb_Dense(3, 2));
    wb_tensor *x = wb_from((int64_t[]){1, 2, 3, 4}, WB_I64, 2, (int64_t[]){2, 2});
    WORKS(wb_save(path(), l, .inputs = {x}));
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        wb__alloc_fail_at(n);
        const int status = wb_save(path(), l, .inputs = {x});
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        if (finished) WORKS(status);
        else assert_int_equal(status, WB_ERROR_MEMORY);
    }
    MADE(wb_call(loaded(), x));
}

int main(void) { return run_cases(make_folder, clean); }
