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
void wb__give_window(wb__gradient_walk *w, wb_tensor *node, int i, wb_tensor *g,
                     const int64_t *starts);
/* The contribution a·b of two matrices.  Those of one weight used many times become one product. */
void wb__give_product(wb__gradient_walk *w, wb_tensor *node, int i, wb_tensor *a, wb_tensor *b,
                      bool ta, bool tb);

extern const wb__gradient_rule wb__gradient_rules[WB__OP_COUNT];

typedef void wb__gradient_function(wb__gradient_walk *w, wb_tensor *node, wb_tensor *g,
                                   const bool *wanted, wb_tensor **out);
wb__gradient_function wb__grad_assemble;
wb__gradient_function wb__grad_attention;
wb__gradient_function wb__grad_attention_back;
wb__gradient_function wb__grad_cast;
wb__gradient_function wb__grad_conv;
wb__gradient_function wb__grad_conv_data;
wb__gradient_function wb__grad_conv_weights;
wb__gradient_function wb__grad_expand;
wb__gradient_function wb__grad_extreme;
wb__gradient_function wb__grad_logsoftmax;
wb__gradient_function wb__grad_matmul;
wb__gradient_function wb__grad_maxpool;
wb__gradient_function wb__grad_maxpool_back;
wb__gradient_function wb__grad_maxpool_take;
wb__gradient_function wb__grad_moved;
wb__gradient_function wb__grad_meanpool;
wb__gradient_function wb__grad_meanpool_back;
wb__gradient_function wb__grad_normalise;
wb__gradient_function wb__grad_permute;
wb__gradient_function wb__grad_reshape;
wb__gradient_function wb__grad_slice;
wb__gradient_function wb__grad_softmax;
wb__gradient_function wb__grad_sum;
wb__gradient_function wb__grad_take;
wb__gradient_function wb__grad_take_add;
wb__gradient_function wb__grad_where;

#endif
