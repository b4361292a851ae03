/* The loop over the steps of sequences, with lengths. */
#include "nn/recurrent.h"

#include <stdio.h>

wb_tensor *wb__where_valid(wb_tensor *valid, wb_tensor *x, wb_tensor *before)
{
    int64_t dims[WB_MAX_DIMS] = {valid->dims[0]};
    for (int i = 1; i < x->ndim; i++) dims[i] = 1;
    if (x->ndim != 2) valid = wb_reshape_array(valid, x->ndim, dims);
    return wb_where(valid, x, before ? before : wb_scalar(0));
}

/* Whether x has a row for each of the `n` sequences.  Otherwise sets the error. */
static bool sequence_has_rows(const wb_tensor *x, int64_t n)
{
    if (x->ndim && x->dims[0] == n) return true;
    return !wb__fail(WB_ERROR_SHAPE, "a cell gives %s: with lengths, its output and states are "
                     "[%lld, ...]", wb_describe(x), (long long)n);
}

/* Undoes a time step in the rows whose sequence is shorter: their states become `before` again, and
 * *y becomes zeros. */
static bool mask_step(wb_tensor *valid, int n, wb_tensor *const *before, wb_tensor **states,
                      wb_tensor **y)
{
    wb_tensor *output = *y;
    if (!valid || !sequence_has_rows(output, valid->dims[0])) return false;
    *y = wb__where_valid(valid, output, NULL);
    for (int i = 0; *y && i < n; i++) {
        if (!sequence_has_rows(states[i], valid->dims[0])) return false;
        const bool same = states[i] == output && !before[i];
        states[i] = same ? *y : wb__where_valid(valid, states[i], before[i]);
        if (!states[i]) return false;
    }
    return *y != NULL;
}

wb_tensor *wb__steps_first(wb_tensor *x)
{
    int64_t axes[WB_MAX_DIMS] = {1, 0};
    for (int i = 2; x && i < x->ndim; i++) axes[i] = i;
    return x ? wb_permute_array(x, x->ndim, axes) : NULL;
}

wb_tensor *wb__stack_steps(int64_t n, wb_tensor *const *outputs)
{
    return wb__steps_first(wb_stack_array(0, (int)n, outputs));
}

/* Returns time step t of x [T, N, ...], which is [N, ...]. */
static wb_tensor *sequence_step_of(wb_tensor *x, int64_t t)
{
    wb_tensor *now = wb_slice(x, 0, t, t + 1);
    return now ? wb_reshape_array(now, x->ndim - 1, x->dims + 1) : NULL;
}

bool wb__unroll(const wb__steps *s, wb_tensor *x, wb_tensor *lengths, bool reverse, int *n,
                wb_tensor **states, wb_tensor **outputs)
{
    if (!x) return false;
    const int64_t steps = x->dims[0];
    for (int64_t i = 0; i < steps; i++) {
        const int64_t t = reverse ? steps - 1 - i : i;
        wb_tensor *now = sequence_step_of(x, t), *before[WB__OUTPUTS] = {NULL};
        memcpy(before, states, (size_t)*n * sizeof *before);
        if (!now || !s->step(s, now, n, states, &outputs[t])) return false;
        if (lengths && !mask_step(wb_gt(lengths, wb_scalar_int(t)), *n, before, states,
                                  &outputs[t]))
            return false;
    }
    return true;
}

bool wb__read_lengths(const char *what, const wb_tensor *x, int *n, wb_tensor *const *inputs,
                      wb_tensor **lengths)
{
    wb_tensor *y = inputs[*n - 1];
    if (*n < 2 || wb__dtype_float((wb_dtype)y->dtype) || y->dtype == WB_BOOL) return true;
    if (y->ndim != 1 || y->dims[0] != x->dims[0])
        return !wb__fail(WB_ERROR_SHAPE, "%s: expects lengths [%lld], got %s", what,
                         (long long)x->dims[0], wb_describe(y));
    char name[80];
    snprintf(name, sizeof name, "%s lengths", what);
    if (!wb__indices_below(name, y, x->dims[1] + 1)) return false;
    *n -= 1;
    *lengths = wb_unsqueeze(wb__as(y, WB_I64), -1);
    return *lengths != NULL;
}
