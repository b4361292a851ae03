/* Walking a graph: an order in which inputs come before their users, and numbers for tensors. */
#ifndef WB__GRAPH_H
#define WB__GRAPH_H

#include "base/pointer_map.h"
#include "engine/tensor.h"

/* An order of everything reachable from some tensors, inputs first.  A leaf has no inputs for this
 * walk. */
typedef struct {
    wb_tensor **node;
    int n, capacity;
    uint32_t mark;
    /* Tensors that several threads may walk over at once, such as parameters: their `mark` is not
     * written. */
    wb__pointer_map leaves;
    wb_tensor **stack;
    int stack_capacity;
} wb__order;

void wb__order_begin(wb__order *o); /* forgets the last walk, keeps the memory */
void wb__order_free(wb__order *o);
/* Adds what is reachable from x and not there yet; false on lack of memory. */
bool wb__order_add(wb__order *o, wb_tensor *x, bool (*is_leaf)(const wb_tensor *x));
/* wb__order_add with wb__is_leaf, inlined: each evaluation walks in this way. */
bool wb__order_add_unevaluated(wb__order *o, wb_tensor *x);
static inline int wb__order_index(const wb__order *o, const wb_tensor *x,
                                  bool (*is_leaf)(const wb_tensor *x)) /* -1 if absent */
{
    if (is_leaf(x)) return wb__pointer_map_get(&o->leaves, x);
    return x->mark == o->mark ? (int)x->index : -1;
}
/* Numbers its tensors as they were, after another walk went over them. */
void wb__order_again(wb__order *o, bool (*is_leaf)(const wb_tensor *x));

#endif
