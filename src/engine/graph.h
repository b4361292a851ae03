/* Walks over a graph.  A walk lists tensors so that inputs come before the tensors that read
 * them. */
#ifndef WB__GRAPH_H
#define WB__GRAPH_H

#include "base/table.h"
#include "engine/tensor.h"

/* The order of a walk: the tensors that were added and all tensors reachable from them.  Inputs
 * come before the tensors that read them.  The walk does not enter the inputs of a leaf. */
typedef struct {
    wb_tensor **node;
    int n, capacity;
    uint32_t mark;                      /* `mark` of the tensors in this walk */
    /* Index of each leaf in `node`.  Leaves, such as parameters, may be in walks of several threads
     * at once, so their `mark` and `index` are not written. */
    wb__pointer_map leaves;
    wb_tensor **stack;                  /* tensors whose inputs are being walked */
    int stack_capacity;
} wb__order;

void wb__order_begin(wb__order *o); /* forgets the last walk; keeps the memory */
void wb__order_free(wb__order *o);
/* Adds x and the tensors reachable from x, except those already in the order.  False: out of
 * memory. */
bool wb__order_add(wb__order *o, wb_tensor *x, bool (*is_leaf)(const wb_tensor *x));
/* Adds x alone: the walks of later additions end at x. */
bool wb__order_add_end(wb__order *o, wb_tensor *x, bool (*is_leaf)(const wb_tensor *x));
/* Does what wb__order_add does with wb__is_leaf, but faster, since the test is inlined. */
bool wb__order_add_unevaluated(wb__order *o, wb_tensor *x);
static inline int wb__order_index(const wb__order *o, const wb_tensor *x,
                                  bool (*is_leaf)(const wb_tensor *x)) /* -1: absent */
{
    if (is_leaf(x)) return wb__pointer_map_get(&o->leaves, x);
    return x->mark == o->mark ? (int)x->index : -1;
}
/* Writes the marks and indices of this walk again, after another walk overwrote them. */
void wb__order_again(wb__order *o, bool (*is_leaf)(const wb_tensor *x));

#endif
