/* Walks over a graph without recursion.  A walk lists each tensor once. */
#include "engine/graph.h"

#include <string.h>

uint32_t wb__next_mark(void)
{
    static _Atomic uint32_t walks;
    uint32_t mark = 1 + atomic_fetch_add_explicit(&walks, 1, memory_order_relaxed);
    return mark ? mark : wb__next_mark();
}

void wb__order_begin(wb__order *o)
{
    o->n = 0;
    o->mark = wb__next_mark();
    wb__hash_clear(&o->leaves);
}

void wb__order_free(wb__order *o)
{
    wb__free(o->node);
    wb__free(o->stack);
    wb__pointer_map_free(&o->leaves);
    memset(o, 0, sizeof *o);
}

void wb__order_again(wb__order *o, bool (*is_leaf)(const wb_tensor *x))
{
    for (int i = 0; i < o->n; i++) {
        if (is_leaf(o->node[i])) continue;
        o->node[i]->mark = o->mark;
        o->node[i]->index = (uint32_t)i;
    }
}

static inline bool graph_append_tensor(wb__order *o, wb_tensor *x, bool leaf)
{
    if (!wb__reserve(&o->node, &o->capacity, o->n + 1, sizeof *o->node)) return false;
    if (leaf && !wb__pointer_map_put(&o->leaves, x, o->n)) return false;
    if (!leaf) x->index = (uint32_t)o->n;
    o->node[o->n++] = x;
    return true;
}

/* Adds `root` and the tensors reachable from `root`, depth first.  Tensors on the stack are marked.
 * Until a tensor is appended, its `index` counts its inputs that are already walked. */
static inline __attribute__((always_inline)) bool
graph_add_reachable(wb__order *o, wb_tensor *root, bool (*is_leaf)(const wb_tensor *x))
{
    int depth = 0;
    if (is_leaf(root))
        return wb__pointer_map_get(&o->leaves, root) >= 0 || graph_append_tensor(o, root, true);
    if (root->mark == o->mark) return true;
    if (!wb__reserve(&o->stack, &o->stack_capacity, 1, sizeof *o->stack)) return false;
    root->mark = o->mark;
    root->index = 0;
    o->stack[depth++] = root;
    while (depth) {
        wb_tensor *x = o->stack[depth - 1];
        if (x->index == x->n_in) {
            if (!graph_append_tensor(o, x, false)) return false;
            depth--;
            continue;
        }
        wb_tensor *in = x->in[x->index++];
        if (is_leaf(in)) {
            if (wb__pointer_map_get(&o->leaves, in) < 0 && !graph_append_tensor(o, in, true))
                return false;
        } else if (in->mark != o->mark) {
            if (!wb__reserve(&o->stack, &o->stack_capacity, depth + 1, sizeof *o->stack))
                return false;
            in->mark = o->mark;
            in->index = 0;
            o->stack[depth++] = in;
        }
    }
    return true;
}

bool wb__order_add(wb__order *o, wb_tensor *root, bool (*is_leaf)(const wb_tensor *x))
{
    return graph_add_reachable(o, root, is_leaf);
}

bool wb__order_add_end(wb__order *o, wb_tensor *x, bool (*is_leaf)(const wb_tensor *x))
{
    if (is_leaf(x))
        return wb__pointer_map_get(&o->leaves, x) >= 0 || graph_append_tensor(o, x, true);
    if (x->mark == o->mark) return true;
    x->mark = o->mark;
    return graph_append_tensor(o, x, false);
}

bool wb__order_add_unevaluated(wb__order *o, wb_tensor *root)
{
    return graph_add_reachable(o, root, wb__is_leaf);
}
