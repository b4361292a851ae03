/* Attention of one head, and its gradients, in loops of double: the formulas of ops/ops.h. */
#ifndef ATTENTION_REFERENCE_H
#define ATTENTION_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t queries, keys, depth, width;        /* width: of v */
    double scale;
    bool causal;
} attention_shape;

/* The order of a step's views; all rows are contiguous.  If `do` is NULL no gradients are computed.
 */
enum {
    ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_O, ATTENTION_LSE, ATTENTION_DO, ATTENTION_DQ,
    ATTENTION_DK, ATTENTION_DV, ATTENTION_VIEWS
};
void attention_head(const attention_shape *s, double *const view[ATTENTION_VIEWS]);

#endif
