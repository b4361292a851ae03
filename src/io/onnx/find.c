/* The table of the operators of ONNX, and what is particular to some of them. */
#include "base/text.h"
#include "io/onnx/frame.h"
#include "io/onnx/read.h"

#include <limits.h>
#include <string.h>

typedef struct {
    const char *name;
    int64_t first;                      /* opset */
    int inputs;                         /* the most */
    wb__onnx_function *function;
} row;
enum { ANY = INT_MAX };
#define ONNX_OP(name, first, inputs, function) {#name, first, inputs, wb__onnx_##function},
static const row rows[] = {
#include "io/onnx/ops.def"
    {NULL, 0, 0, NULL}};
static const row ml_rows[] = {
#include "io/onnx/ops_ml.def"
    {NULL, 0, 0, NULL}};
#undef ONNX_OP

static bool is_onnx(const char *domain) { return !*domain || !strcmp(domain, "ai.onnx"); }

static const row *find_row(const char *domain, const char *op)
{
    const row *r = is_onnx(domain) ? rows : !strcmp(domain, "ai.onnx.ml") ? ml_rows : NULL;
    for (; r && r->name; r++)
        if (!strcmp(r->name, op)) return r;
    return NULL;
}

wb__onnx_function *wb__onnx_find(const char *domain, const char *op, int64_t opset)
{
    const row *r = find_row(domain, op);
    return r && r->first <= opset ? r->function : NULL;
}

/* An input that the operator does not have would be ignored. */
static int check_inputs(const wb__onnx_model *m, const wb__onnx_node *n, const row *r)
{
    char text[500];
    for (int i = r->inputs; i < n->n_in; i++)
        if (n->in[i] >= 0)
            return wb__fail(WB_ERROR_FORMAT, "%s: %s: has %d inputs; the operator has %d at most",
                            m->path, wb__onnx_node_text(n, text, sizeof text), n->n_in, r->inputs);
    return 0;
}

/* ---- what is not supported ------------------------------------------------------------------- */

/* The first nodes of an operator that is not supported.  `from` is the first opset of Weber's
 * operator, or 0. */
enum { OPERATORS = 50, NODES = 3 };
typedef struct {
    const wb__onnx_node *nodes[NODES];
    int n;
    int64_t from;
} missing;
typedef struct { int n, further; missing list[OPERATORS]; } misses;

static void add_missing(misses *m, const wb__onnx_node *n, const row *r)
{
    int i = 0;
    while (i < m->n && (strcmp(m->list[i].nodes[0]->op, n->op) ||
                        strcmp(m->list[i].nodes[0]->domain, n->domain)))
        i++;
    if (i == OPERATORS) {
        m->further++;
        return;
    }
    missing *o = &m->list[i];
    if (i == m->n) m->n++;
    if (r) o->from = r->first;
    if (o->n < NODES) o->nodes[o->n] = n;
    o->n++;
}

/* Returns 0 or an error code. */
static int find_in(misses *m, const wb__onnx_model *model, const wb__onnx_graph *g)
{
    int status = 0;
    for (int i = 0; !status && i < g->n_nodes; i++) {
        wb__onnx_node *n = &g->nodes[i];
        const row *r = find_row(n->domain, n->op);
        n->function = r && r->first <= n->opset ? r->function : NULL;
        if (n->function) status = check_inputs(model, n, r);
        else add_missing(m, n, r);
        for (int k = 0; !status && k < n->n_attrs; k++)
            if (n->attrs[k].g) status = find_in(m, model, n->attrs[k].g);
    }
    return status;
}

static void add_clause(wb__text *t, const missing *o)
{
    const wb__onnx_node *first = o->nodes[0];
    if (!is_onnx(first->domain)) {
        wb__text_foreign(t, first->domain);
        wb__text_add(t, ".");
    }
    wb__text_foreign(t, first->op);
    if (o->from) wb__text_add(t, " of opset %lld", (long long)first->opset);
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
    if (o->from) wb__text_add(t, "; Weber has it from opset %lld on", (long long)o->from);
    wb__text_add(t, ")");
}

int wb__onnx_find_all(const wb__onnx_model *model)
{
    misses *m = wb__alloc_zero(1, sizeof *m);
    if (!m) return WB_ERROR_MEMORY;
    int status = find_in(m, model, model->graph);
    wb__text t = {0};
    for (int i = 0; i < m->n; i++) {
        wb__text_add(&t, i ? ", " : "");
        add_clause(&t, &m->list[i]);
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

/* ---- particular operators -------------------------------------------------------------------- */

bool wb__onnx_is_control(const wb__onnx_node *n)
{
    return is_onnx(n->domain) && (!strcmp(n->op, "If") || !strcmp(n->op, "Loop"));
}

bool wb__onnx_reads_sizes(const wb__onnx_node *n)
{
    return is_onnx(n->domain) && (!strcmp(n->op, "Shape") || !strcmp(n->op, "Size"));
}

/* Inputs that are read as numbers, sorted by operator.  Those of QuantizeLinear and the like are
 * the scales and zero points, which stay constants. */
static const struct { const char *op; unsigned inputs; } number_inputs[] = {
    {"AffineGrid", 1u << 1}, {"BlackmanWindow", 1u << 0}, {"CenterCropPad", 1u << 1},
    {"Clip", 3u << 1}, {"Col2Im", 3u << 1}, {"Compress", 1u << 1}, {"ConstantOfShape", 1u << 0},
    {"CumProd", 1u << 1}, {"CumSum", 1u << 1}, {"DFT", 3u << 1}, {"DequantizeLinear", 3u << 1},
    {"Dropout", 3u << 1}, {"Expand", 1u << 1},
    {"HammingWindow", 1u << 0}, {"HannWindow", 1u << 0}, {"If", 1u << 0}, {"Loop", 3u << 0},
    {"MaxUnpool", 1u << 2}, {"MelWeightMatrix", 31u << 0}, {"OneHot", 1u << 1}, {"Pad", 7u << 1},
    {"Pow", 1u << 1}, {"QLinearConv", 0xf6u}, {"QLinearMatMul", 0xf6u}, {"QuantizeLinear", 3u << 1},
    {"Range", 7u << 0}, {"ReduceL1", 1u << 1}, {"ReduceL2", 1u << 1}, {"ReduceLogSum", 1u << 1},
    {"ReduceLogSumExp", 1u << 1}, {"ReduceMax", 1u << 1}, {"ReduceMean", 1u << 1},
    {"ReduceMin", 1u << 1}, {"ReduceProd", 1u << 1}, {"ReduceSum", 1u << 1},
    {"ReduceSumSquare", 1u << 1}, {"Reshape", 1u << 1}, {"Resize", 7u << 1}, {"STFT", 5u << 1},
    {"Slice", 15u << 1}, {"Split", 1u << 1}, {"Squeeze", 1u << 1}, {"Tile", 1u << 1},
    {"TopK", 1u << 1}, {"Trilu", 1u << 1}, {"Unsqueeze", 1u << 1}, {"Upsample", 1u << 1}};

unsigned wb__onnx_number_inputs(const wb__onnx_node *n)
{
    if (!is_onnx(n->domain)) return 0;
    for (size_t i = 0; i < WB__COUNT(number_inputs); i++)
        if (*n->op == *number_inputs[i].op && !strcmp(n->op, number_inputs[i].op))
            return number_inputs[i].inputs;
    return 0;
}
