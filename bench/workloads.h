/* The workloads of the benchmark.  torch_twin.py and jax_twin.py have the same.
 *
 *   W1   MLP 2-3(tanh)-2, batch 64, Adam 1e-2
 *   W2   MLP 784-256(relu)-10, batch 64, Adam 1e-3
 *   W3   LeNet-5, 28x28, batch 64, Adam 1e-3
 *   W4a  VGG-like, 32x32x3, batch 32, SGD 0.01 momentum 0.9
 *   W4b  ResNet-20 (He et al. 2015), batch 32, the same
 *   W5   GPT: 4 layers, 4 heads, d 128, T 128, 65 characters, tied head, batch 8, AdamW 3e-4
 *   W6   LSTM 64-128, T 50, batch 32, Adam 1e-3
 *   W7a  inference of W2, batch 1
 *   W7b  inference of W3, batch 1
 *   G1   GPT-2 124M: 12 layers, 12 heads, d 768, T 1024, 50257 words, tied head, batch 16,
 *        AdamW 3e-4
 *   G2   ResNet-50 v1.5 (its strides are in the 3x3 convolutions), 224x224, batch 128, as W4
 *
 * The loss is cross-entropy with class indices.  The embedding table of G1 has 50304 rows, since
 * products are faster with multiples of 64; the last 47 rows are never used. */
#ifndef BENCH_WORKLOADS_H
#define BENCH_WORKLOADS_H

#include <weber.h>

typedef struct {
    const char *name;
    wb_layer *(*model)(void);
    wb_rule *(*rule)(void);         /* NULL: inference */
    int ndim;
    int64_t dims[4];                /* shape of a batch */
    int64_t classes;                /* number of classes in the data */
    int64_t scores;                 /* number of the model's scores: classes, or more */
    bool tokens;                    /* x and y are class indices, one per position */
    int batches;                    /* created beforehand, used in rotation */
} workload;

enum { MOST_BATCHES = 8 };

/* NULL: there is no workload of this name. */
const workload *workload_named(const char *name);

/* x and y of a batch, evaluated, on the CPU; x NULL: failed. */
wb_batch workload_batch(const workload *w);

/* The loss of a model on a batch, for wb_withgradient; ctx is the workload. */
wb_tensor *workload_loss(wb_layer *model, wb_batch batch, void *ctx);

#endif
