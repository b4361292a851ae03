/* Which initializers of a file are parameters, and the bytes of the file that a layer keeps: the
 * model without the values of its parameters. */
#include "io/onnx/parameters.h"

#include "io/onnx/frame.h"
#include "io/onnx/read.h"
#include "io/protobuf.h"

/* ---- uses of values -------------------------------------------------------------------------- */

/* How a value is used: by a node that is called; as data; as numbers that decide a shape or a
 * similar property, such as the scales of Resize. */
enum { READ = 1, DATA = 2, ONNX_PARAMS_NUMBERS = 4 };

/* The uses of the values of a graph. */
typedef struct onnx_params_uses {
    const wb__onnx_graph *graph;
    struct onnx_params_uses *outer;
    uint8_t *of;                        /* the uses of each value, as bits */
} onnx_params_uses;

static void onnx_params_add_use(const onnx_params_uses *u, int v, unsigned use)
{
    const wb__onnx_graph *owner = u->graph;
    v = wb__onnx_owner(&owner, v);
    while (u->graph != owner) u = u->outer;
    u->of[v] |= (uint8_t)use;
}

static bool onnx_params_find_uses(onnx_params_uses *u);

/* Adds the uses in the graphs that are attributes of the node to those of u. */
static bool onnx_params_find_inner(onnx_params_uses *u, const wb__onnx_node *n)
{
    bool ok = true;
    for (int i = 0; ok && i < n->n_attrs; i++) {
        const wb__onnx_graph *g = n->attrs[i].g;
        if (!g) continue;
        onnx_params_uses inner = {g, u, wb__alloc_zero((size_t)g->n_values + 1, 1)};
        ok = inner.of && onnx_params_find_uses(&inner);
        wb__free(inner.of);
    }
    return ok;
}

/* Sets the uses, from the outputs back to the inputs: the inputs of a node have the uses of its
 * results, too. */
static bool onnx_params_find_uses(onnx_params_uses *u)
{
    const wb__onnx_graph *g = u->graph;
    for (int i = 0; i < g->n_outputs; i++) onnx_params_add_use(u, g->outputs[i], READ | DATA);
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const wb__onnx_node *n = &g->nodes[i];
        const wb__onnx_operator *of = n->operator;
        unsigned use = of->calls_graphs ? DATA : 0;
        for (int k = 0; k < n->n_out && !of->calls_graphs; k++)
            if (n->out[k] >= 0) use |= u->of[n->out[k]] & (DATA | ONNX_PARAMS_NUMBERS);
        if (of->reads_sizes) use = 0;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0)
                onnx_params_add_use(u, n->in[k],
                    READ | (k < 32 && of->constants >> k & 1 ? ONNX_PARAMS_NUMBERS : use));
        if (!onnx_params_find_inner(u, n)) return false;
    }
    return true;
}

/* Whether a value with these uses is a parameter: a floating initializer with at least one
 * dimension that a node uses as data.  A number of a formula is no parameter: it has no dimensions,
 * or has one element and is read as a number, too. */
static bool onnx_params_is_parameter(const wb__onnx_value *v, unsigned use)
{
    const wb__onnx_tensor *t = v->initializer;
    const wb_dtype dtype = wb__onnx_dtype(t->type);
    if (!dtype || !wb__dtype_float(dtype) || !t->ndim || !t->size || !(use & DATA)) return false;
    return !(use & ONNX_PARAMS_NUMBERS && t->size == 1);
}

int wb__onnx_find_parameters(const wb__onnx_model *m, wb__onnx_part *parts)
{
    const wb__onnx_graph *g = m->graph;
    onnx_params_uses u = {g, NULL, wb__alloc_zero((size_t)g->n_values + 1, 1)};
    int status = u.of && onnx_params_find_uses(&u) ? 0 : WB_ERROR_MEMORY;
    for (int v = 0; !status && v < g->n_values; v++) {
        const wb__onnx_tensor *t = g->values[v].initializer;
        if (!t) continue;
        wb__onnx_part *part = &parts[t - m->tensors];
        *part = !(u.of[v] & READ)                    ? WB__ONNX_UNUSED
                : onnx_params_is_parameter(&g->values[v], u.of[v]) ? WB__ONNX_PARAMETER
                                                       : WB__ONNX_CONSTANT;
        if (*part == WB__ONNX_CONSTANT && !wb__onnx_dtype(t->type))
            status = wb__fail(WB_ERROR_UNSUPPORTED, "%s: the initializer \"%.200s\" is %s, which "
                              "Weber lacks", m->path, t->name, wb__onnx_type_name(t->type));
    }
    wb__free(u.of);
    return status;
}

/* ---- the bytes that are kept ----------------------------------------------------------------- */

/* A model while its kept bytes are written. */
typedef struct {
    wb__onnx_model *m;                  /* the model */
    const wb__onnx_part *parts;
    wb__wire_file file;
    wb__wire_out *out;
} onnx_params_keeping;

static void onnx_params_copy_field(wb__wire_out *out, const wb__wire_field *f)
{
    if (f->kind == WB__WIRE_BYTES) wb__wire_put_bytes(out, f->number, f->bytes, f->n);
    else if (f->kind == WB__WIRE_VARINT) wb__wire_put_int(out, f->number, (int64_t)f->value);
    else wb__wire_put_fixed(out, f->number, f->kind, f->value);
}

static void onnx_params_put_tensor(wb__wire_out *out, uint32_t field, const wb__onnx_tensor *t,
                                   bool values)
{
    const size_t begun = wb__wire_begin(out, field);
    wb__wire_put_ints(out, TENSOR_DIMS, t->ndim, t->dims);
    wb__wire_put_int(out, TENSOR_TYPE, t->type);
    wb__wire_put_text(out, TENSOR_NAME, t->name);
    if (values)
        wb__wire_put_bytes(out, TENSOR_RAW, t->data, (size_t)wb__onnx_tensor_bytes(t));
    wb__wire_end(out, begun);
}

/* ---- tensors in nodes ------------------------------------------------------------------------ */

/* The messages that may contain tensors besides the initializers of the main graph. */
typedef enum { GRAPH, ONNX_PARAMS_FUNCTION, ONNX_PARAMS_NODE, ATTR, TENSOR,
               ONNX_PARAMS_OTHER } message;

static message onnx_params_inside_of(message m, uint32_t field)
{
    switch (m) {
    case GRAPH:
        return field == GRAPH_NODE          ? ONNX_PARAMS_NODE
               : field == GRAPH_INITIALIZER ? TENSOR
                                            : ONNX_PARAMS_OTHER;
    case ONNX_PARAMS_FUNCTION: return field == FUNCTION_NODE ? ONNX_PARAMS_NODE : ONNX_PARAMS_OTHER;
    case ONNX_PARAMS_NODE: return field == NODE_ATTR ? ATTR : ONNX_PARAMS_OTHER;
    case ATTR:
        return field == ATTR_TENSOR || field == ATTR_TENSORS ? TENSOR
               : field == ATTR_GRAPH || field == ATTR_GRAPHS ? GRAPH : ONNX_PARAMS_OTHER;
    default: return ONNX_PARAMS_OTHER;
    }
}

static bool onnx_params_is_external(wb__wire in)
{
    wb__wire_field f;
    bool is = false;
    while (wb__wire_next(&in, &f))
        is |= f.number == TENSOR_LOCATION && f.value == LOCATION_EXTERNAL;
    return is;
}

/* Copies a field that is a message.  Tensors get their values that are in other files. */
static int onnx_params_put_message(const onnx_params_keeping *k, message kind,
                                   const wb__wire_field *field)
{
    wb__wire in = wb__wire_of(&k->file, field->bytes, field->n);
    wb__wire_field f;
    if (kind == TENSOR && onnx_params_is_external(in)) {
        wb__onnx_reader r = {.m = k->m, .file = k->file};
        wb__onnx_tensor t;
        const int status = wb__onnx_read_tensor(&r, in, false, &t);
        if (!status) onnx_params_put_tensor(k->out, field->number, &t, true);
        return status;
    }
    if (kind == TENSOR) return onnx_params_copy_field(k->out, field), 0;
    const size_t begun = wb__wire_begin(k->out, field->number);
    while (wb__wire_next(&in, &f)) {
        const message inner = f.kind == WB__WIRE_BYTES ? onnx_params_inside_of(kind, f.number)
                                                       : ONNX_PARAMS_OTHER;
        if (inner == ONNX_PARAMS_OTHER) onnx_params_copy_field(k->out, &f);
        else in.status = onnx_params_put_message(k, inner, &f);
    }
    wb__wire_end(k->out, begun);
    return in.status;
}

/* ---- the model ------------------------------------------------------------------------------- */

static int onnx_params_put_graph(const onnx_params_keeping *k, wb__wire in)
{
    wb__wire_field f;
    int i = 0;
    while (wb__wire_next(&in, &f)) {
        if (f.number == GRAPH_INITIALIZER && i < k->m->n_tensors) {
            onnx_params_put_tensor(k->out, GRAPH_INITIALIZER, &k->m->tensors[i],
                                   k->parts[i] == WB__ONNX_CONSTANT);
            i++;
        } else if (f.number == GRAPH_NODE && f.kind == WB__WIRE_BYTES) {
            in.status = onnx_params_put_message(k, ONNX_PARAMS_NODE, &f);
        } else if (f.number != GRAPH_DOC && f.number != GRAPH_INFO) {
            onnx_params_copy_field(k->out, &f);
        }
    }
    return in.status;
}

int wb__onnx_put_without_parameters(wb__onnx_model *m, const wb__onnx_part *parts, const void *data,
                                    size_t bytes, wb__wire_out *out)
{
    const onnx_params_keeping k = {m, parts, {m->path, data}, out};
    wb__wire in = wb__wire_of(&k.file, data, bytes), graph;
    wb__wire_field f;
    *out = (wb__wire_out){0};
    while (wb__wire_next(&in, &f)) {
        if (f.number == MODEL_GRAPH && wb__wire_message(&in, &f, &graph)) {
            const size_t begun = wb__wire_begin(out, MODEL_GRAPH);
            in.status = onnx_params_put_graph(&k, graph);
            wb__wire_end(out, begun);
        } else if (f.number == MODEL_FUNCTION && f.kind == WB__WIRE_BYTES) {
            in.status = onnx_params_put_message(&k, ONNX_PARAMS_FUNCTION, &f);
        } else if (f.number != MODEL_DOC && f.number != MODEL_METADATA) {
            onnx_params_copy_field(out, &f);
        }
    }
    return out->failed ? WB_ERROR_MEMORY : in.status;
}
