/* Reads GraphProto and NodeProto.  The values of a graph are numbered as they are found:
 * initializers, inputs, results of nodes, then values of outer graphs that its nodes read. */
#include "io/onnx/read.h"

#include <stdio.h>

enum { ONNX_GRAPH_TEXT = 500 };

/* Returns the index of the value of this name, and adds the value if there is none; sets *is_new to
 * whether it was added.  -1: out of memory. */
static int onnx_graph_add_value(wb__onnx_building *b, wb__span name, bool *is_new)
{
    const int i = wb__name_set_add(b->r->m, &b->names, name, is_new);
    if (i < 0 || !*is_new) return i;
    if (!wb__onnx_reserve(b->r->m, &b->g->values, &b->value_capacity, i + 1,
                          sizeof *b->g->values))
        return -1;
    b->g->values[i] = (wb__onnx_value){.name = b->names.list[i], .ndim = -1, .outer = -1,
                                       .parameter = -1};
    b->g->n_values = i + 1;
    return i;
}

/* Returns the index of a value of this or an outer graph; -1: there is none; -2: out of memory. */
static int onnx_graph_find_value(wb__onnx_building *b, wb__span name)
{
    bool is_new;
    int i = wb__name_set_find(&b->names, name);
    if (i >= 0 || !b->outer) return i;
    const int outer = onnx_graph_find_value(b->outer, name);
    if (outer < 0) return outer;
    if ((i = onnx_graph_add_value(b, name, &is_new)) < 0) return -2;
    wb__onnx_value *v = &b->g->values[i];
    const char *own = v->name;
    *v = b->outer->g->values[outer];
    v->name = own;
    v->initializer = NULL;
    v->outer = outer;
    return i;
}

/* ---- types of values ------------------------------------------------------------------------- */

static int onnx_graph_read_dim(wb__onnx_building *b, wb__wire in, wb__onnx_value *v)
{
    wb__wire_field f;
    wb__span name = {"", 0};
    int64_t size = -1;
    while (wb__wire_next(&in, &f)) {
        if (f.number == DIM_VALUE) wb__wire_int(&in, &f, &size);
        else if (f.number == DIM_NAME) wb__wire_text(&in, &f, &name);
    }
    if (in.status) return in.status;
    v->dims[v->ndim] = WB__MAX(size, -1);
    v->dim_names[v->ndim] = NULL;
    if (name.n && !(v->dim_names[v->ndim] = wb__onnx_copy(b->r->m, name))) return wb_error_code();
    v->ndim++;
    return 0;
}

static int onnx_graph_read_shape(wb__onnx_building *b, wb__wire in, wb__onnx_value *v)
{
    wb__wire_field f;
    wb__wire dim;
    v->ndim = 0;
    while (wb__wire_next(&in, &f)) {
        if (f.number != SHAPE_DIM || !wb__wire_message(&in, &f, &dim)) continue;
        if (v->ndim == WB_MAX_DIMS)
            return wb__onnx_fail(b->r, WB_ERROR_FORMAT, "byte %lld: value \"%.200s\" has more than "
                                 "%d dimensions", (long long)(f.at - b->r->file.data), v->name,
                                 WB_MAX_DIMS);
        in.status = onnx_graph_read_dim(b, dim, v);
    }
    return in.status;
}

/* Sets the type and the shape of v from a TypeProto.Tensor. */
static int onnx_graph_read_tensor_type(wb__onnx_building *b, wb__wire in, wb__onnx_value *v)
{
    wb__wire_field f;
    wb__wire shape;
    int64_t type = 0;
    while (wb__wire_next(&in, &f)) {
        if (f.number == TENSOR_TYPE_ELEMENT) wb__wire_int(&in, &f, &type);
        else if (f.number == TENSOR_TYPE_SHAPE && wb__wire_message(&in, &f, &shape))
            in.status = onnx_graph_read_shape(b, shape, v);
    }
    if (in.status) return in.status;
    v->type = wb__onnx_type_of(type);
    return v->type ? 0 : wb__onnx_fail(b->r, WB_ERROR_FORMAT, "the elements of \"%.200s\" have "
                                       "type %lld, which is none of ONNX's", v->name,
                                       (long long)type);
}

/* Sets the error that an input or output of a graph is no tensor, and returns its code. */
static int onnx_graph_refuse_kind(const wb__onnx_building *b, const char *port,
                                  const wb__onnx_value *v)
{
    return wb__onnx_fail(b->r, WB_ERROR_UNSUPPORTED, "%s \"%.200s\" of a graph is %s; only tensors "
                         "are read", port, v->name, v->kind);
}

/* Sets the type of v from a TypeProto. */
static int onnx_graph_read_type(wb__onnx_building *b, wb__wire in, wb__onnx_value *v)
{
    static const char *const kinds[TYPE_FIELDS] = {
        [TYPE_SEQUENCE] = "a sequence", [TYPE_MAP] = "a map", [TYPE_OPAQUE] = "opaque",
        [TYPE_SPARSE] = "a sparse tensor", [TYPE_OPTIONAL] = "optional"};
    wb__wire_field f;
    wb__wire inside;
    while (wb__wire_next(&in, &f)) {
        const char *kind = f.number < TYPE_FIELDS ? kinds[f.number] : NULL;
        if (f.number == TYPE_TENSOR && wb__wire_message(&in, &f, &inside))
            in.status = onnx_graph_read_tensor_type(b, inside, v);
        else if (kind)
            v->kind = kind;
    }
    return in.status;
}

/* Sets *name and *type from a ValueInfoProto. */
static int onnx_graph_read_info(wb__onnx_building *b, wb__wire in, wb__span *name, wb__wire *type)
{
    wb__wire_field f;
    *name = (wb__span){"", 0};
    *type = wb__wire_of(in.file, NULL, 0);
    while (wb__wire_next(&in, &f)) {
        if (f.number == INFO_NAME) wb__wire_text(&in, &f, name);
        else if (f.number == INFO_TYPE) wb__wire_message(&in, &f, type);
    }
    if (in.status) return in.status;
    if (!name->n) return wb__wire_fail(&in, in.at, "an input, output or value_info has no name");
    *name = wb__onnx_name(b->r, b->scope, *name);
    return name->at ? 0 : (int)wb_error_code();
}

/* ---- initializers, inputs -------------------------------------------------------------------- */

static int onnx_graph_read_initializer(wb__onnx_building *b, wb__wire in, wb__onnx_tensor *t)
{
    bool is_new;
    int status = wb__onnx_read_tensor(b->r, in, b->r->bare && !b->outer, t);
    if (status) return status;
    if (!*t->name) return wb__wire_fail(&in, in.at, "an initializer has no name");
    wb__span name = wb__onnx_name(b->r, b->scope, wb__span_of(t->name));
    const int i = name.at ? onnx_graph_add_value(b, name, &is_new) : -1;
    if (i < 0) return wb_error_code();
    if (!is_new)
        return wb__onnx_fail(b->r, WB_ERROR_FORMAT, "two initializers are named \"%.200s\"",
                             t->name);
    wb__onnx_value *v = &b->g->values[i];
    t->name = v->name;
    v->initializer = t;
    v->type = t->type;
    v->ndim = t->ndim;
    memcpy(v->dims, t->dims, sizeof v->dims);
    return 0;
}

/* Sets the type of v from a TypeProto.  If the value has a type already, both must be the same. */
static int onnx_graph_compare_type(wb__onnx_building *b, wb__wire type, wb__onnx_value *v)
{
    wb__onnx_value again = {.name = v->name};
    if (!v->type) return onnx_graph_read_type(b, type, v);
    const int status = onnx_graph_read_type(b, type, &again);
    if (status || !again.type || again.type == v->type) return status;
    return wb__onnx_fail(b->r, WB_ERROR_FORMAT, "the elements of \"%.200s\" are %s in one place "
                         "and %s in another", v->name, wb__onnx_type_name(v->type),
                         wb__onnx_type_name(again.type));
}

/* Adds an input to the values.  Inputs that are initializers too, as in files of version 3, are not
 * counted in *inputs. */
static int onnx_graph_read_input(wb__onnx_building *b, wb__wire in, int *inputs)
{
    wb__span name;
    wb__wire type;
    bool is_new;
    int status = onnx_graph_read_info(b, in, &name, &type);
    if (status) return status;
    const int i = onnx_graph_add_value(b, name, &is_new);
    if (i < 0) return wb_error_code();
    if (!is_new && b->g->values[i].initializer)
        return onnx_graph_compare_type(b, type, &b->g->values[i]);
    if (!is_new)
        return wb__onnx_fail(b->r, WB_ERROR_FORMAT, "two inputs are named \"%.200s\"",
                             b->g->values[i].name);
    inputs[b->g->n_inputs++] = i;
    status = onnx_graph_read_type(b, type, &b->g->values[i]);
    if (status || !b->g->values[i].kind) return status;
    return onnx_graph_refuse_kind(b, "input", &b->g->values[i]);
}

/* Adds what an output or value_info declares to a value of this graph.  Ignores other names. */
static int onnx_graph_read_value_type(wb__onnx_building *b, wb__wire in)
{
    wb__span name;
    wb__wire type;
    int status = onnx_graph_read_info(b, in, &name, &type);
    const int i = status ? -1 : wb__name_set_find(&b->names, name);
    return i < 0 ? status : onnx_graph_compare_type(b, type, &b->g->values[i]);
}

int wb__onnx_read_head(wb__wire in, wb__node_head *h)
{
    wb__wire_field f;
    const wb__span none = {"", 0};
    *h = (wb__node_head){none, none, none, none, 0, 0, 0};
    while (wb__wire_next(&in, &f))
        switch (f.number) {
        case NODE_INPUT: h->n_in++; break;
        case NODE_OUTPUT: h->n_out++; break;
        case NODE_NAME: wb__wire_text(&in, &f, &h->name); break;
        case NODE_OP: wb__wire_text(&in, &f, &h->op); break;
        case NODE_ATTR: h->n_attrs++; break;
        case NODE_DOMAIN: wb__wire_text(&in, &f, &h->domain); break;
        case NODE_OVERLOAD: wb__wire_text(&in, &f, &h->overload); break;
        default: break;
        }
    if (in.status) return in.status;
    h->domain = wb__onnx_domain(h->domain);
    return h->op.n ? 0 : wb__wire_fail(&in, in.at, "a node has no operator (op_type)");
}

const char *wb__onnx_node_text(const wb__onnx_node *node, char *to, size_t n)
{
    const char *dot = *node->domain ? "." : "";
    if (*node->name)
        snprintf(to, n, "node \"%.150s\" (%.60s%s%.60s, number %d)", node->name, node->domain, dot,
                 node->op, node->index);
    else
        snprintf(to, n, "node %d (%.60s%s%.60s)", node->index, node->domain, dot, node->op);
    return to;
}

/* Adds a node, and its results to the values. */
static int onnx_graph_add_node(wb__onnx_building *b, wb__wire in, const wb__onnx_scope *scope,
                               const wb__node_head *h)
{
    wb__wire_field f;
    bool is_new = true;
    const wb__wire whole = in;
    while (wb__wire_next(&in, &f)) {
        wb__span name;
        if (f.number != NODE_OUTPUT || !wb__wire_text(&in, &f, &name) || !name.n) continue;
        name = wb__onnx_name(b->r, scope, name);
        const int i = name.at ? onnx_graph_add_value(b, name, &is_new) : -1;
        if (i < 0) return wb_error_code();
        if (!is_new)
            return wb__onnx_fail(b->r, WB_ERROR_FORMAT, "node \"%.*s\" (%.*s, number %d) computes "
                                 "\"%.200s\", which another node computes, or which is an input or "
                                 "initializer", (int)WB__MIN(h->name.n, 150), h->name.at,
                                 (int)WB__MIN(h->op.n, 60), h->op.at, b->g->n_nodes,
                                 b->g->values[i].name);
    }
    if (in.status) return in.status;
    if (!wb__onnx_reserve(b->r->m, &b->raw, &b->raw_capacity, b->g->n_nodes + 1, sizeof *b->raw))
        return wb_error_code();
    b->raw[b->g->n_nodes++] = (wb__raw_node){whole.at, whole.end, scope};
    return 0;
}

/* Adds a node, or, if it calls a function of the file, the nodes of the function. */
static int onnx_graph_add_nodes(wb__onnx_building *b, wb__wire in, const wb__onnx_scope *scope)
{
    wb__node_head h;
    wb__wire_field f;
    wb__onnx_scope *inner;
    wb__wire node;
    const wb__local *called = NULL;
    int status = wb__onnx_read_head(in, &h);
    if (!status) status = wb__onnx_called(b->r, &h, &called);
    if (status) return status;
    if (!called) return onnx_graph_add_node(b, in, scope, &h);
    if ((status = wb__onnx_enter(b->r, called, in, scope, &inner))) return status;
    wb__wire body = wb__wire_of(&b->r->file, called->at, (size_t)(called->end - called->at));
    while (wb__wire_next(&body, &f))
        if (f.number == FUNCTION_NODE && wb__wire_message(&body, &f, &node))
            body.status = onnx_graph_add_nodes(b, node, inner);
    return body.status;
}

/* Sets the node's inputs and outputs. */
static int onnx_graph_set_ports(wb__onnx_building *b, wb__wire in, const wb__onnx_scope *scope,
                                wb__onnx_node *node, int *list[2])
{
    wb__wire_field f;
    int n[2] = {0, 0};
    char text[ONNX_GRAPH_TEXT];
    while (wb__wire_next(&in, &f)) {
        wb__span name;
        const bool is_in = f.number == NODE_INPUT, is_out = f.number == NODE_OUTPUT;
        if ((!is_in && !is_out) || !wb__wire_text(&in, &f, &name)) continue;
        const int at = n[is_out]++;
        name = wb__onnx_name(b->r, scope, name);
        if (!name.at) return wb_error_code();
        const int i = name.n ? onnx_graph_find_value(b, name) : -1;
        if (i == -2) return wb_error_code();
        if (i < 0 && name.n)
            return wb__onnx_fail(b->r, WB_ERROR_FORMAT, "%s: input %d is \"%.*s\", which no node "
                                 "computes, and which is no input or initializer",
                                 wb__onnx_node_text(node, text, sizeof text), at,
                                 (int)WB__MIN(name.n, 200), name.at);
        list[is_out][at] = i;
    }
    return in.status;
}

static int onnx_graph_find_opset(wb__onnx_building *b, const wb__onnx_scope *scope,
                                 wb__onnx_node *node)
{
    char text[ONNX_GRAPH_TEXT];
    const wb__opsets *own = scope ? &scope->function->opsets : &b->r->opsets;
    const wb__span domain = wb__span_of(node->domain);
    int i = wb__name_set_find(&own->domains, domain);
    if (i < 0) i = wb__name_set_find(&(own = &b->r->opsets)->domains, domain);
    node->opset = i < 0 ? 0 : own->versions[i];
    if (i >= 0 || *node->domain) return 0;
    return wb__onnx_fail(b->r, WB_ERROR_FORMAT, "%s: the file gives no version of ONNX's operators "
                         "(opset_import)", wb__onnx_node_text(node, text, sizeof text));
}

/* Sets `attrs` to the attributes, which may be graphs. */
static int onnx_graph_read_attrs(wb__onnx_building *b, wb__wire in, const wb__onnx_scope *scope,
                                 wb__onnx_node *node, wb__onnx_attr *attrs)
{
    enum { MOST_ATTRS = 256 };
    wb__wire_field f;
    wb__wire inside;
    char text[ONNX_GRAPH_TEXT];
    bool none;
    while (wb__wire_next(&in, &f)) {
        wb__onnx_attr *a = &attrs[node->n_attrs];
        if (f.number != NODE_ATTR || !wb__wire_message(&in, &f, &inside)) continue;
        if ((in.status = wb__onnx_read_attr(b, node, inside, scope, a, &none)) || none) continue;
        for (int i = 0; i < node->n_attrs; i++)
            if (!strcmp(attrs[i].name, a->name))
                return wb__onnx_fail(b->r, WB_ERROR_FORMAT, "%s: two attributes are named "
                                     "\"%.100s\"", wb__onnx_node_text(node, text, sizeof text),
                                     a->name);
        if (++node->n_attrs > MOST_ATTRS)
            return wb__onnx_fail(b->r, WB_ERROR_FORMAT, "%s: more than %d attributes",
                                 wb__onnx_node_text(node, text, sizeof text), MOST_ATTRS);
    }
    return in.status;
}

static int onnx_graph_read_node(wb__onnx_building *b, int index)
{
    wb__onnx_model *m = b->r->m;
    const wb__raw_node *raw = &b->raw[index];
    const wb__wire in = wb__wire_of(&b->r->file, raw->at, (size_t)(raw->end - raw->at));
    wb__onnx_node *node = &b->g->nodes[index];
    wb__node_head h;
    int status = wb__onnx_read_head(in, &h);
    if (status) return status;
    const wb__span name = wb__onnx_prefixed(b->r, raw->scope, h.name);
    int *list[2] = {wb__onnx_alloc(m, (size_t)h.n_in, sizeof(int)),
                    wb__onnx_alloc(m, (size_t)h.n_out, sizeof(int))};
    wb__onnx_attr *attrs = wb__onnx_alloc(m, (size_t)h.n_attrs, sizeof *attrs);
    *node = (wb__onnx_node){.op = wb__onnx_copy(m, h.op), .domain = wb__onnx_copy(m, h.domain),
                            .name = name.at ? wb__onnx_copy(m, name) : NULL, .index = index,
                            .n_in = h.n_in, .n_out = h.n_out, .in = list[0], .out = list[1],
                            .attrs = attrs};
    if (!list[0] || !list[1] || !attrs || !node->op || !node->domain || !node->name)
        return wb_error_code();
    status = onnx_graph_find_opset(b, raw->scope, node);
    if (!status) status = onnx_graph_set_ports(b, in, raw->scope, node, list);
    return status ? status : onnx_graph_read_attrs(b, in, raw->scope, node, attrs);
}

typedef struct { int nodes, initializers, inputs, outputs; } counts;

static int onnx_graph_count_fields(wb__onnx_building *b, wb__wire in, counts *n)
{
    wb__wire_field f;
    wb__span name = {"", 0};
    while (wb__wire_next(&in, &f))
        switch (f.number) {
        case GRAPH_NODE: n->nodes++; break;
        case GRAPH_NAME: wb__wire_text(&in, &f, &name); break;
        case GRAPH_INITIALIZER: n->initializers++; break;
        case GRAPH_INPUT: n->inputs++; break;
        case GRAPH_OUTPUT: n->outputs++; break;
        case GRAPH_SPARSE:
            return wb__onnx_fail(b->r, WB_ERROR_UNSUPPORTED, "byte %lld: an initializer is sparse "
                                 "(SparseTensorProto); sparse tensors are not read",
                                 (long long)(f.at - b->r->file.data));
        default: break;
        }
    if (in.status) return in.status;
    return (b->g->name = wb__onnx_copy(b->r->m, name)) ? 0 : (int)wb_error_code();
}

/* Allocates what the counts of the message need; further values are added as they are found. */
static int onnx_graph_allocate(wb__onnx_building *b, const counts *n, wb__onnx_tensor **tensors,
                               int **inputs, int **outputs)
{
    wb__onnx_model *m = b->r->m;
    const int64_t values = (int64_t)n->nodes + n->initializers + n->inputs;
    *tensors = wb__onnx_alloc(m, (size_t)n->initializers, sizeof **tensors);
    b->g->inputs = *inputs = wb__onnx_alloc(m, (size_t)n->inputs, sizeof **inputs);
    b->g->outputs = *outputs = wb__onnx_alloc(m, (size_t)n->outputs, sizeof **outputs);
    if (!*tensors || !*inputs || !*outputs ||
        !wb__onnx_reserve(m, &b->g->values, &b->value_capacity, (int)WB__MIN(values, INT32_MAX),
                          sizeof *b->g->values) ||
        !wb__onnx_reserve(m, &b->raw, &b->raw_capacity, n->nodes, sizeof *b->raw))
        return wb_error_code();
    if (!b->outer) {
        m->tensors = *tensors;
        m->n_tensors = n->initializers;
    }
    return 0;
}

/* Reads all fields with this number. */
static int onnx_graph_read_fields(wb__onnx_building *b, wb__wire in, uint32_t number,
                                  wb__onnx_tensor *tensors, int *inputs)
{
    wb__wire_field f;
    wb__wire inside;
    while (wb__wire_next(&in, &f)) {
        if (f.number != number || !wb__wire_message(&in, &f, &inside)) continue;
        if (number == GRAPH_INITIALIZER)
            in.status = onnx_graph_read_initializer(b, inside, tensors++);
        else if (number == GRAPH_INPUT) in.status = onnx_graph_read_input(b, inside, inputs);
        else if (number == GRAPH_NODE) in.status = onnx_graph_add_nodes(b, inside, b->scope);
        else in.status = onnx_graph_read_value_type(b, inside);
    }
    return in.status;
}

static int onnx_graph_read_outputs(wb__onnx_building *b, wb__wire in, int *outputs)
{
    wb__wire_field f;
    wb__wire inside, type;
    wb__span name;
    while (wb__wire_next(&in, &f)) {
        if (f.number != GRAPH_OUTPUT || !wb__wire_message(&in, &f, &inside)) continue;
        if ((in.status = onnx_graph_read_info(b, inside, &name, &type))) break;
        const int i = onnx_graph_find_value(b, name);
        if (i == -2) return wb_error_code();
        if (i < 0)
            return wb__onnx_fail(b->r, WB_ERROR_FORMAT, "output \"%.*s\" of graph \"%.100s\": no "
                                 "node computes it, and it is no input or initializer",
                                 (int)WB__MIN(name.n, 200), name.at, b->g->name);
        wb__onnx_value *v = &b->g->values[i];
        if (v->kind && (in.status = onnx_graph_refuse_kind(b, "output", v))) break;
        outputs[b->g->n_outputs++] = i;
    }
    return in.status;
}

/* Sets the type of a ZipMap's output, by ONNX a sequence of maps, to a tensor of floats, which this
 * library makes in its place (ops_ml.c). */
static void onnx_graph_retype_zipmap(wb__onnx_building *b, const wb__onnx_node *n)
{
    if (strcmp(n->op, "ZipMap") || strcmp(n->domain, WB__ONNX_ML) || n->n_out != 1) return;
    wb__onnx_value *v = n->out[0] >= 0 ? &b->g->values[n->out[0]] : NULL;
    if (!v || !v->kind) return;
    v->kind = NULL;
    v->type = WB__ONNX_FLOAT;
}

static int onnx_graph_read_nodes(wb__onnx_building *b)
{
    int status = 0;
    b->g->nodes = wb__onnx_alloc(b->r->m, (size_t)b->g->n_nodes, sizeof *b->g->nodes);
    if (!b->g->nodes) return wb_error_code();
    for (int i = 0; !status && i < b->g->n_nodes; i++) {
        status = onnx_graph_read_node(b, i);
        if (!status) onnx_graph_retype_zipmap(b, &b->g->nodes[i]);
    }
    return status;
}

int wb__onnx_read_graph(wb__onnx_reader *r, wb__wire in, const wb__onnx_scope *scope,
                        wb__onnx_building *outer, wb__onnx_graph **out)
{
    static const uint32_t order[] = {GRAPH_INITIALIZER, GRAPH_INPUT, GRAPH_NODE, GRAPH_OUTPUT,
                                     GRAPH_INFO};
    wb__onnx_building b = {.r = r, .outer = outer, .scope = scope,
                           .depth = outer ? outer->depth + 1 : 1};
    counts n = {0};
    wb__onnx_tensor *tensors;
    int *inputs, *outputs;
    if (b.depth > WB__ONNX_DEPTH)
        return wb__wire_fail(&in, in.at, "graphs in graphs are more than %d deep", WB__ONNX_DEPTH);
    *out = b.g = wb__onnx_alloc(r->m, 1, sizeof *b.g);
    if (!b.g) return wb_error_code();
    b.g->outer = outer ? outer->g : NULL;
    int status = onnx_graph_count_fields(&b, in, &n);
    if (!status) status = onnx_graph_allocate(&b, &n, &tensors, &inputs, &outputs);
    for (size_t i = 0; !status && i < WB__COUNT(order); i++)
        status = onnx_graph_read_fields(&b, in, order[i], tensors, inputs);
    if (!status) status = onnx_graph_read_nodes(&b);
    if (!status) status = onnx_graph_read_outputs(&b, in, outputs);
    return status ? status : wb__onnx_order(r, b.g);
}
