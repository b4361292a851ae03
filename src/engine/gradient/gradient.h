/* The gradient walk, as gradient rules use it. */
#ifndef WB__GRADIENT_H
#define WB__GRADIENT_H

#include "engine/graph.h"

/* A rule gets a node, its gradient g, and for each input whether its gradient is needed.  It sets
 * out[i] for each such input: the gradient, WB_NONE for none, or NULL if it failed.  It may
 * instead pass a contribution to one of the two functions below; out[i] is then WB_NONE. */
typedef struct wb__gradient_walk wb__gradient_walk;
typedef void (*wb__gradient_rule)(wb__gradient_walk *w, wb_tensor *node, wb_tensor *g,
                                  const bool *wanted, wb_tensor **out);

/* Contributes a tensor of zeros with the shape of input i and g at `starts`. */
void wb__contribute_slice(wb__gradient_walk *w, wb_tensor *node, int i, wb_tensor *g,
                          const int64_t *starts);
/* Contributes a·b, two matrices.  Contributions to one weight that is used many times become one
 * product. */
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
