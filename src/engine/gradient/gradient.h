/* The gradient walk, as gradient rules use it. */
#ifndef WB__GRADIENT_H
#define WB__GRADIENT_H

#include "engine/graph.h"

/* A gradient rule gets a node, the gradient g of the node, and for each input whether its gradient
 * is needed.  For each such input it sets out[i] to the gradient, to WB_NONE if there is none, or
 * to NULL if the rule failed.  A rule may instead pass the gradient to one of the two functions
 * below, and then sets out[i] to WB_NONE. */
typedef struct wb__gradient_walk wb__gradient_walk;
typedef void (*wb__gradient_rule)(wb__gradient_walk *w, wb_tensor *node, wb_tensor *g,
                                  const bool *wanted, wb_tensor **out);

/* Adds g, placed at `starts` in a tensor of zeros, to the gradient of the node's input i. */
void wb__contribute_slice(wb__gradient_walk *w, wb_tensor *node, int i, wb_tensor *g,
                          const int64_t *starts);
/* Adds the matrix product a·b to the gradient of the node's input i.  a is transposed if ta, and b
 * if tb.  The products for a weight that is used many times are computed as one product. */
void wb__contribute_product(wb__gradient_walk *w, wb_tensor *node, int i, wb_tensor *a,
                            wb_tensor *b, bool ta, bool tb);

extern const wb__gradient_rule wb__gradient_rules[WB__OP_COUNT];

typedef void wb__gradient_function(wb__gradient_walk *w, wb_tensor *node, wb_tensor *g,
                                   const bool *wanted, wb_tensor **out);
#define RULE_OF(gradient) wb__gradient_function wb__grad_##gradient;
#define WB_LIBRARY(name, step, variant, composed, gradient) RULE_OF(gradient)
#define WB_COMPOSITE(name, composed, gradient) RULE_OF(gradient)
#define WB_OTHER(name, class, gradient) RULE_OF(gradient)
#include "ops/ops.def"
#undef RULE_OF

#endif
