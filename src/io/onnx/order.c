/* Sorts the nodes of a graph, so that each follows those whose results the node, or a graph in it,
 * reads.  Files should have this order; the nodes of other files are sorted. */
#include "io/onnx/read.h"

/* The lists of a sort.  The values that node i reads are reads[first[i]] to reads[first[i + 1] -
 * 1]; producer[v] is the node that computes value v, or -1. */
typedef struct {
    const wb__onnx_reader *r;           /* the file, for messages */
    const wb__onnx_graph *g;            /* the graph */
    int *block;                         /* the memory of all lists */
    int *producer, *first, *reads;
    int *state, *next, *path, *order;   /* lists with a number for each node */
} sorting;

enum { NEW, ONNX_ORDER_OPEN, ONNX_ORDER_DONE };

/* Returns the number of the values that a node, or a graph in it, reads, and writes them to `to`,
 * if that is not NULL. */
static size_t onnx_order_values_of(const wb__onnx_node *node, int *to)
{
    size_t n = 0;
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i] < 0) continue;
        if (to) to[n] = node->in[i];
        n++;
    }
    for (int i = 0; i < node->n_attrs; i++) {
        const wb__onnx_graph *inner = node->attrs[i].g;
        for (int k = 0; inner && k < inner->n_values; k++) {
            if (inner->values[k].outer < 0) continue;
            if (to) to[n] = inner->values[k].outer;
            n++;
        }
    }
    return n;
}

static bool onnx_order_make_lists(sorting *s)
{
    const wb__onnx_graph *g = s->g;
    const size_t nodes = (size_t)g->n_nodes, values = (size_t)g->n_values;
    size_t reads = 0;
    for (int i = 0; i < g->n_nodes; i++) reads += onnx_order_values_of(&g->nodes[i], NULL);
    if (reads > INT32_MAX)
        return wb__fail(WB_ERROR_MEMORY, "%s: out of memory", s->r->m->path), false;
    s->block = wb__alloc_zero(values + 5 * nodes + 1 + reads, sizeof *s->block);
    if (!s->block) return false;
    s->producer = s->block;
    s->first = s->producer + values;
    s->state = s->first + nodes + 1;
    s->next = s->state + nodes;
    s->path = s->next + nodes;
    s->order = s->path + nodes;
    s->reads = s->order + nodes;
    for (int i = 0; i < g->n_values; i++) s->producer[i] = -1;
    for (int i = 0; i < g->n_nodes; i++) {
        const wb__onnx_node *node = &g->nodes[i];
        for (int k = 0; k < node->n_out; k++)
            if (node->out[k] >= 0) s->producer[node->out[k]] = i;
        s->next[i] = s->first[i];
        s->first[i + 1] = s->first[i] + (int)onnx_order_values_of(node, s->reads + s->first[i]);
    }
    return true;
}

static bool onnx_order_is_sorted(const sorting *s)
{
    for (int i = 0; i < s->g->n_nodes; i++)
        for (int k = s->first[i]; k < s->first[i + 1]; k++)
            if (s->producer[s->reads[k]] >= i) return false;
    return true;
}

static int onnx_order_fail_cycle(const sorting *s, int node, int value)
{
    char one[400], two[400];
    wb__onnx_node_text(&s->g->nodes[node], one, sizeof one);
    wb__onnx_node_text(&s->g->nodes[s->producer[value]], two, sizeof two);
    return wb__onnx_fail(s->r, WB_ERROR_FORMAT, "the nodes form a cycle: %s reads \"%.200s\", and "
                         "%s, which computes it, needs the result of the former", one,
                         s->g->values[value].name, two);
}

/* Adds the nodes that a node needs, in the order of the file, then the node, to the order.  `path`
 * has the nodes that were begun and are not done. */
static int onnx_order_visit(sorting *s, int node, int *n_done)
{
    int depth = 0;
    if (s->state[node] == ONNX_ORDER_DONE) return 0;
    s->path[0] = node;
    s->state[node] = ONNX_ORDER_OPEN;
    while (depth >= 0) {
        const int at = s->path[depth];
        if (s->next[at] == s->first[at + 1]) {
            s->state[at] = ONNX_ORDER_DONE;
            s->order[(*n_done)++] = at;
            depth--;
            continue;
        }
        const int value = s->reads[s->next[at]++], needed = s->producer[value];
        if (needed < 0 || s->state[needed] == ONNX_ORDER_DONE) continue;
        if (s->state[needed] == ONNX_ORDER_OPEN) return onnx_order_fail_cycle(s, at, value);
        s->state[needed] = ONNX_ORDER_OPEN;
        s->path[++depth] = needed;
    }
    return 0;
}

static int onnx_order_sort(sorting *s, wb__onnx_graph *g)
{
    int n_done = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const int status = onnx_order_visit(s, i, &n_done);
        if (status) return status;
    }
    wb__onnx_node *nodes = wb__onnx_alloc(s->r->m, (size_t)g->n_nodes, sizeof *nodes);
    if (!nodes) return wb_error_code();
    for (int i = 0; i < g->n_nodes; i++) {
        nodes[i] = g->nodes[s->order[i]];
        nodes[i].index = i;
    }
    g->nodes = nodes;
    return 0;
}

int wb__onnx_order(const wb__onnx_reader *r, wb__onnx_graph *g)
{
    sorting s = {.r = r, .g = g};
    int status = onnx_order_make_lists(&s) ? 0 : WB_ERROR_MEMORY;
    if (!status && !onnx_order_is_sorted(&s)) status = onnx_order_sort(&s, g);
    wb__free(s.block);
    return status;
}
