/* The gradient walk: what a gradient rule may use. */
#ifndef WB__GRADIENT_H
#define WB__GRADIENT_H

#include "engine/graph.h"

/* A rule gets a node, the gradient g that arrives at it, and for each input whether one is wanted.
 * It puts one tensor in out[i] for each wanted input: WB_NONE for no gradient, NULL where making it
 * failed.  Windows and products may be handed over unmade (below); out[i] is then WB_NONE. */
typedef struct wb__gradient_walk wb__gradient_walk;
typedef void (*wb__gradient_rule)(wb__gradient_walk *w, wb_tensor *node, wb_tensor *g,
                                  const bool *wanted, wb_tensor **out);

/* The contribution g in a window of zeros of the shape of input i. */
void wb__contribute_slice(wb__gradient_walk *w, wb_tensor *node, int i, wb_tensor *g,
                     const int64_t *starts);
/* The contribution a·b of two matrices.  Those of one weight used many times become one product. */
void wb__contribute_product(wb__gradient_walk *w, wb_tensor *node, int i, wb_tensor *a, wb_tensor *b,
                      bool ta, bool tb);

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
