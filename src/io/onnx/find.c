/* The operators of the nodes of a model. */
#include "base/text.h"
#include "io/onnx/frame.h"
#include "io/onnx/read.h"

#include <string.h>

static bool is_onnx(const char *domain) { return !*domain || !strcmp(domain, "ai.onnx"); }

/* Returns the operator of this name for any opset, or NULL. */
static const wb__onnx_operator *onnx_find_any(const char *domain, const char *op)
{
    const char *of = is_onnx(domain) ? "" : domain;
    int n;
    const wb__onnx_operator *list = wb__onnx_operators(&n);
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, op) && !strcmp(list[i].domain, of)) return &list[i];
    return NULL;
}

const wb__onnx_operator *wb__onnx_find(const char *domain, const char *op, int64_t opset)
{
    const wb__onnx_operator *o = onnx_find_any(domain, op);
    if (!o || o->ports[0].since > opset) return NULL;
    return o->removed && opset >= o->removed ? NULL : o;
}

/* ---- what is not supported ------------------------------------------------------------------- */

/* The first nodes of an operator that is not supported.  `other` is the operator of this name for
 * other opsets, or NULL. */
enum { OPERATORS = 50, NODES = 3 };
typedef struct {
    const wb__onnx_node *nodes[NODES];
    int n;
    const wb__onnx_operator *other;
} onnx_find_missing;
typedef struct { int n, further; onnx_find_missing list[OPERATORS]; } misses;

static void onnx_find_add_missing(misses *m, const wb__onnx_node *n)
{
    int i = 0;
    while (i < m->n && (strcmp(m->list[i].nodes[0]->op, n->op) ||
                        strcmp(m->list[i].nodes[0]->domain, n->domain)))
        i++;
    if (i == OPERATORS) {
        m->further++;
        return;
    }
    onnx_find_missing *o = &m->list[i];
    if (i == m->n) m->n++;
    o->other = onnx_find_any(n->domain, n->op);
    if (o->n < NODES) o->nodes[o->n] = n;
    o->n++;
}

/* Sets the operators of the nodes of g, and adds nodes without one to *m.  Returns 0 or an error
 * code. */
static int onnx_find_in_graph(misses *m, const wb__onnx_model *model, const wb__onnx_graph *g)
{
    int status = 0;
    for (int i = 0; !status && i < g->n_nodes; i++) {
        wb__onnx_node *n = &g->nodes[i];
        n->operator = wb__onnx_find(n->domain, n->op, n->opset);
        if (n->operator) status = wb__onnx_check_form(model, g, n);
        else onnx_find_add_missing(m, n);
        for (int k = 0; !status && k < n->n_attrs; k++)
            if (n->attrs[k].g) status = onnx_find_in_graph(m, model, n->attrs[k].g);
    }
    return status;
}

static void onnx_find_add_clause(wb__text *t, const onnx_find_missing *o)
{
    const wb__onnx_node *first = o->nodes[0];
    if (!is_onnx(first->domain)) {
        wb__text_foreign(t, first->domain);
        wb__text_add(t, ".");
    }
    wb__text_foreign(t, first->op);
    if (o->other) wb__text_add(t, " of opset %lld", (long long)first->opset);
    wb__text_add(t, o->n > 1 ? " (nodes " : " (node ");
    for (int i = 0; i < o->n && i < NODES; i++) {
        const wb__onnx_node *n = o->nodes[i];
        const bool named = n->name && *n->name;
        wb__text_add(t, i ? ", " : "");
        if (!named) wb__text_add(t, "%d", n->index);
        if (named) wb__text_add(t, "'");
        if (named) wb__text_foreign(t, n->name);
        if (named) wb__text_add(t, "'");
    }
    if (o->n > NODES) wb__text_add(t, " and %d more", o->n - NODES);
    if (o->other && o->other->removed && first->opset >= o->other->removed)
        wb__text_add(t, "; opset %d and later do not have it", o->other->removed);
    else if (o->other)
        wb__text_add(t, "; Weber has it from opset %d on", o->other->ports[0].since);
    wb__text_add(t, ")");
}

int wb__onnx_find_operators(const wb__onnx_model *model)
{
    misses *m = wb__alloc_zero(1, sizeof *m);
    if (!m) return WB_ERROR_MEMORY;
    int status = onnx_find_in_graph(m, model, model->graph);
    wb__text t = {0};
    for (int i = 0; i < m->n; i++) {
        wb__text_add(&t, i ? ", " : "");
        onnx_find_add_clause(&t, &m->list[i]);
    }
    if (m->further) wb__text_add(&t, ", and %d nodes of others", m->further);
    char *text = m->n ? wb__text_take(&t) : NULL;
    if (!status && m->n && !text) status = WB_ERROR_MEMORY;
    if (!status && text)
        status = wb__fail(WB_ERROR_UNSUPPORTED, "%s: %d operator%s not supported: %s", model->path,
                          m->n, m->n == 1 ? " is" : "s are", text);
    wb__free(text);
    wb__free(m);
    return status;
}
