/* A layer against PyTorch: result, gradients of the parameters and of the input, and statistics. */
#ifndef GOLDEN_LAYER_H
#define GOLDEN_LAYER_H

#include "golden.h"

typedef struct { const char *name; wb_tree *grads; double tolerance; } checking;

static int check_gradient(wb_tensor *x, const char *path, void *ctx)
{
    const checking *c = ctx;
    assert_golden(wb_get(c->grads, path), NAME("%s.grad.%s", c->name, path), c->tolerance);
    return 0;
}

static int check_after(wb_tensor *x, const char *path, void *ctx)
{
    const checking *c = ctx;
    const char *name = NAME("%s.after.%s", c->name, path);
    if (wb__table_find(&golden, name)) assert_golden(x, name, c->tolerance);
    return 0;
}

enum { MOST_INPUTS = 5 };

/* The result of a layer; several results one after the other, in a row. */
static wb_tensor *called(wb_layer *layer, int n, wb_tensor *const *x)
{
    wb_tensor *y[WB__OUTPUTS];
    const int n_out = wb__call_layer(layer, n, x, y);
    for (int i = 0; n_out > 1 && i < n_out; i++) y[i] = wb_reshape(y[i], -1);
    return n_out < 1 ? NULL : n_out == 1 ? y[0] : wb_concat_array(0, n_out, y);
}

static void check_in(const char *name, wb_layer *layer, bool train)
{
    wb_scope *scope = wb_scope_open();
    if (!layer) fail_msg("%s: %s", name, wb_error());
    if (wb__table_find(&golden, NAME("%s.param.weight", name)) || layer->node.n)
        golden_parameters(name, layer);
    if (train) wb_trainmode(layer);
    wb_tensor *x[MOST_INPUTS];
    int n = 0;
    while (n < MOST_INPUTS && (x[n] = golden_tensor(NAME("%s.x%d", name, n)))) n++;
    wb_tensor *y = called(layer, n, x);
    if (!y) fail_msg("%s: %s", name, wb_error());
    wb_tensor *loss = wb_sum(wb_mul(y, golden_want(NAME("%s.r", name))));
    checking c = {name, layer->node.n ? wb_gradient(loss, layer) : NULL, 2e-5};
    if (layer->node.n && !c.grads) fail_msg("%s: %s", name, wb_error());
    wb_tensor *gx[MOST_INPUTS] = {0};
    for (int i = 0; i < n; i++)
        if (wb_dtype_of(x[i]) == WB_F32) gx[i] = wb_gradient(loss, x[i]);
    assert_golden(y, NAME("%s.y", name), c.tolerance);
    if (c.grads) assert_int_equal(wb_each_parameter(layer, check_gradient, &c), 0);
    for (int i = 0; i < n; i++)
        if (wb_dtype_of(x[i]) == WB_F32)
            assert_golden(gx[i], NAME("%s.grad_x%d", name, i), c.tolerance);
    assert_int_equal(wb_scope_close(scope), 0);
    assert_int_equal(wb_each_tensor(layer, check_after, &c), 0);
}

#endif
