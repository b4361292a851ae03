/* Any bytes as an ONNX file: read or refused; every name, tensor and list of the model can be
 * read. */
#include "file.h"

#include "io/formats.h"
#include "io/onnx/model.h"

#include <string.h>

static size_t sum;                      /* so that no read is left out */

static void must(bool condition)
{
    if (!condition) abort();
}

static void walk_tensor(const wb__onnx_tensor *t)
{
    const wb_dtype dtype = wb__onnx_dtype(t->type);
    sum += strlen(t->name) + strlen(wb__onnx_type_name(t->type));
    must(t->ndim >= 0 && t->ndim <= WB_MAX_DIMS && !t->size == !t->data);
    const size_t bytes = dtype ? (size_t)t->size * wb__dtype_size(dtype) : 0;
    for (size_t i = 0; i < bytes; i++) sum += ((const uint8_t *)t->data)[i];
    for (int64_t i = 0; t->type == WB__ONNX_STRING && i < t->size; i++)
        sum += strlen(((const char *const *)t->data)[i]);
}

static void walk_graph(const wb__onnx_graph *g);

static void walk_attr(const wb__onnx_attr *a)
{
    sum += strlen(a->name) + (a->s ? strlen(a->s) : 0);
    for (int i = 0; i < a->n; i++) {
        if (a->ints) sum += (size_t)a->ints[i];
        if (a->floats) sum += a->floats[i] > 0;
        if (a->strings) sum += strlen(a->strings[i]);
    }
    if (a->t) walk_tensor(a->t);
    if (a->g) walk_graph(a->g);
}

static void walk_node(const wb__onnx_graph *g, const wb__onnx_node *node, bool *known)
{
    sum += strlen(node->op) + strlen(node->domain) + strlen(node->name);
    for (int i = 0; i < node->n_in; i++) must(node->in[i] < 0 || known[node->in[i]]);
    for (int i = 0; i < node->n_out; i++) {
        must(node->out[i] < g->n_values);
        if (node->out[i] < 0) continue;
        must(!known[node->out[i]]);
        known[node->out[i]] = true;
    }
    for (int i = 0; i < node->n_attrs; i++) walk_attr(&node->attrs[i]);
}

/* Each node follows those whose results it reads. */
static void walk_graph(const wb__onnx_graph *g)
{
    bool *known = calloc((size_t)g->n_values + 1, sizeof *known);
    must(known != NULL);
    sum += strlen(g->name);
    for (int i = 0; i < g->n_values; i++) {
        const wb__onnx_value *v = &g->values[i];
        sum += strlen(v->name);
        if (v->initializer) walk_tensor(v->initializer);
        must(v->outer < 0 || (g->outer && v->outer < g->outer->n_values));
        known[i] = v->initializer || v->outer >= 0;
        for (int k = 0; k < v->ndim; k++) sum += v->dim_names[k] ? strlen(v->dim_names[k]) : 0;
    }
    for (int i = 0; i < g->n_inputs; i++) known[g->inputs[i]] = true;
    for (int i = 0; i < g->n_nodes; i++) walk_node(g, &g->nodes[i], known);
    for (int i = 0; i < g->n_outputs; i++) must(known[g->outputs[i]]);
    free(known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    wb__onnx_model *m;
    if (!wb__onnx_read("fuzz.onnx", data, size, &m)) {
        walk_graph(m->graph);
        wb__onnx_free(m);
    }
    if (!wb__onnx_read(NULL, data, size, &m)) wb__onnx_free(m);
    wb__table t;
    if (!wb__table_load(path, NULL, true, &t)) wb__table_free(&t);
    return 0;
}
