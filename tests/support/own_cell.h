/* A cell of the program with an output and two states of different sizes, whose numbers
 * make_golden_sequences.py computes as recurrence_own. */
#ifndef OWN_CELL_H
#define OWN_CELL_H

#include "test.h"

typedef struct { wb_tensor *weight, *gain; } own_cell;
static int call_own_cell(const own_cell *c, int n, wb_tensor *const *in, wb_tensor **out)
{
    if (n != 1 && n != 3) return -1;
    const int64_t dims[2] = {wb_dim(in[0], 0), 3}, ones[2] = {dims[0], 1};
    const wb_dtype dtype = wb_dtype_of(in[0]);
    wb_tensor *h = n > 1 ? in[1] : wb_full_array(0, dtype, 2, dims);
    wb_tensor *m = n > 1 ? in[2] : wb_full_array(1, dtype, 2, ones);
    h = wb_tanh(wb_add(wb_linear(in[0], c->weight, WB_NONE), wb_mul(wb_mul(h, c->gain), m)));
    m = wb_add(wb_mul(m, 0.5), wb_mean(h, .axes = {1}, .keep = true));
    out[0] = wb_mul(h, m);
    out[1] = h;
    out[2] = m;
    return 3;
}
WB_LAYER(own_cell, call_own_cell, weight, gain)

static wb_layer *new_own_cell(void)
{
    return wb_layer_of(own_cell, wb_variable(wb_randn(3, 2)), wb_variable(wb_randn(3)));
}

#endif
