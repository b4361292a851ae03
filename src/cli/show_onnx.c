/* `weber show` of ONNX files: what the model takes and gives, and a line for each node.
 *
 *   m.onnx: ONNX, opset 17, 2 nodes
 *     inputs: x [N,2] f32
 *     outputs: y [N,3] f32
 *     node  operator  name      outputs       initializers
 *     0     MatMul    /fc/Mul   h [N,3] f32   24 bytes
 *     1     Mine      -         y [N,3] f32               # not supported
 *
 * Sizes are those that the file names.  Nodes of the graph of a Loop have numbers as 4.body.0. */
#include "cli/cli.h"

#include "base/map.h"
#include "base/text.h"
#include "io/onnx/model.h"
#include "io/onnx/run.h"

#include <stdio.h>
#include <string.h>

enum { SHOW_ONNX_NODE, OPERATOR, SHOW_ONNX_NAME, SHOW_ONNX_OUTPUTS, SHOW_ONNX_BYTES,
       SHOW_ONNX_COLUMNS, SHOW_ONNX_LONGEST = 60 };
typedef struct { char *cell[SHOW_ONNX_COLUMNS]; bool supported; } show_onnx_row;
typedef struct { show_onnx_row *rows; int n, capacity, n_unsupported; } show_onnx_table;

/* Adds at most SHOW_ONNX_LONGEST bytes of a text of the file to t. */
static void show_onnx_add_short(wb__text *t, const char *text)
{
    char some[SHOW_ONNX_LONGEST + 1];
    snprintf(some, sizeof some, "%s", text);
    wb__text_foreign(t, some);
    if (strlen(text) > SHOW_ONNX_LONGEST) wb__text_add(t, "...");
}

static void show_onnx_add_value(wb__text *t, const wb__onnx_value *v)
{
    const wb_dtype dtype = wb__onnx_dtype(v->type);
    show_onnx_add_short(t, v->name);
    if (v->ndim >= 0) wb__text_add(t, " [");
    for (int i = 0; i < v->ndim; i++) {
        if (i) wb__text_add(t, ",");
        if (v->dims[i] >= 0) wb__text_add(t, "%lld", (long long)v->dims[i]);
        else show_onnx_add_short(t, v->dim_names[i] ? v->dim_names[i] : "?");
    }
    if (v->ndim >= 0) wb__text_add(t, "]");
    if (v->type) wb__text_add(t, " %s", dtype ? wb_dtype_name(dtype) : wb__onnx_type_name(v->type));
}

static void show_onnx_add_values(wb__text *t, const wb__onnx_graph *g, int n, const int *values)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        if (values[i] < 0) continue;
        wb__text_add(t, any ? ", " : "");
        show_onnx_add_value(t, &g->values[values[i]]);
        any = true;
    }
    if (!any) wb__text_add(t, "none");
}

/* Adds the number of bytes of the initializers that the node reads, also those of outer graphs. */
static void show_onnx_add_bytes(wb__text *t, const wb__onnx_graph *g, const wb__onnx_node *n)
{
    int64_t sum = 0;
    for (int i = 0; i < n->n_in; i++) {
        const wb__onnx_graph *of = g;
        const int v = wb__onnx_owner(&of, n->in[i]);
        const wb__onnx_tensor *x = v >= 0 ? of->values[v].initializer : NULL;
        if (x) sum += x->size * (int64_t)wb__dtype_size(wb__onnx_dtype(x->type));
    }
    if (sum) wb__text_bytes(t, sum);
}

static bool show_onnx_add_nodes(show_onnx_table *list, const wb__onnx_graph *g, const char *prefix);

static bool show_onnx_add_node(show_onnx_table *list, const wb__onnx_graph *g,
                               const wb__onnx_node *n, const char *prefix)
{
    wb__text cells[SHOW_ONNX_COLUMNS] = {0};
    char number[SHOW_ONNX_LONGEST];
    bool ok = wb__reserve(&list->rows, &list->capacity, list->n + 1, sizeof *list->rows);
    if (!ok) return false;
    snprintf(number, sizeof number, "%s%d", prefix, n->index);
    show_onnx_add_short(&cells[SHOW_ONNX_NODE], number);
    if (*n->domain) show_onnx_add_short(&cells[OPERATOR], n->domain);
    if (*n->domain) wb__text_add(&cells[OPERATOR], ".");
    show_onnx_add_short(&cells[OPERATOR], n->op);
    show_onnx_add_short(&cells[SHOW_ONNX_NAME], n->name && *n->name ? n->name : "-");
    show_onnx_add_values(&cells[SHOW_ONNX_OUTPUTS], g, n->n_out, n->out);
    wb__text_add(&cells[SHOW_ONNX_BYTES], "%s", "");
    show_onnx_add_bytes(&cells[SHOW_ONNX_BYTES], g, n);
    show_onnx_row *r = &list->rows[list->n++];
    *r = (show_onnx_row){.supported = wb__onnx_find(n->domain, n->op, n->opset) != NULL};
    list->n_unsupported += !r->supported;
    for (int c = 0; c < SHOW_ONNX_COLUMNS; c++) ok = (r->cell[c] = wb__text_take(&cells[c])) && ok;
    for (int i = 0; ok && i < n->n_attrs; i++) {
        char inner[2 * SHOW_ONNX_LONGEST];
        snprintf(inner, sizeof inner, "%s.%.40s.", number, n->attrs[i].name);
        if (n->attrs[i].g) ok = show_onnx_add_nodes(list, n->attrs[i].g, inner);
    }
    return ok;
}

static bool show_onnx_add_nodes(show_onnx_table *list, const wb__onnx_graph *g, const char *prefix)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (!show_onnx_add_node(list, g, &g->nodes[i], prefix)) return false;
    return true;
}

static void show_onnx_print_rows(wb__text *t, const show_onnx_table *list)
{
    static char *const heads[SHOW_ONNX_COLUMNS] = {"node", "operator", "name", "outputs",
                                                   "initializers"};
    int width[SHOW_ONNX_COLUMNS];
    for (int c = 0; c < SHOW_ONNX_COLUMNS; c++) {
        width[c] = wb__characters(heads[c]);
        for (int i = 0; i < list->n; i++)
            width[c] = WB__MAX(width[c], wb__characters(list->rows[i].cell[c]));
    }
    for (int i = -1; i < list->n; i++) {
        const show_onnx_row *r = i < 0 ? NULL : &list->rows[i];
        const bool all = r && !r->supported;
        const int n = all || !r || *r->cell[SHOW_ONNX_BYTES] ? SHOW_ONNX_COLUMNS : SHOW_ONNX_BYTES;
        for (int c = 0; c < n; c++) {
            const char *cell = r ? r->cell[c] : heads[c];
            wb__text_add(t, "  %s", cell);
            if (c < n - 1 || all) wb__text_spaces(t, width[c] - wb__characters(cell));
        }
        wb__text_add(t, all ? "  # not supported\n" : "\n");
    }
}

static void show_onnx_add_all(wb__text *t, const wb__onnx_model *m, const show_onnx_table *list)
{
    const wb__onnx_graph *g = m->graph;
    wb__text_foreign(t, m->path);
    wb__text_add(t, ": ONNX, opset %lld, ", (long long)m->opset);
    wb__text_count(t, list->n);
    wb__text_add(t, list->n == 1 ? " node" : " nodes");
    if (*m->producer) wb__text_add(t, ", made by ");
    show_onnx_add_short(t, m->producer);
    wb__text_add(t, "\n  inputs: ");
    show_onnx_add_values(t, g, g->n_inputs, g->inputs);
    wb__text_add(t, "\n  outputs: ");
    show_onnx_add_values(t, g, g->n_outputs, g->outputs);
    wb__text_add(t, "\n");
    if (list->n) show_onnx_print_rows(t, list);
    if (list->n_unsupported)
        wb__text_add(t, "  %d node%s not supported\n", list->n_unsupported,
                     list->n_unsupported == 1 ? " is" : "s are");
}

int wb__cli_show_onnx(const wb__mapping *file)
{
    wb__onnx_model *m;
    show_onnx_table list = {0};
    wb__text t = {0};
    if (wb__onnx_read(file->path, file->data, (size_t)file->bytes, &m))
        return wb__cli_print_error();
    const bool ok = show_onnx_add_nodes(&list, m->graph, "");
    if (ok) show_onnx_add_all(&t, m, &list);
    char *text = ok ? wb__text_take(&t) : NULL;
    if (text) fputs(text, stdout);
    wb__free(text);
    for (int i = 0; i < list.n; i++)
        for (int c = 0; c < SHOW_ONNX_COLUMNS; c++) wb__free(list.rows[i].cell[c]);
    wb__free(list.rows);
    wb__onnx_free(m);
    return text ? 0 : wb__cli_print_error();
}
