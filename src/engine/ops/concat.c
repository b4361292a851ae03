/* Concatenation, stacking and padding, all as tensors placed in a tensor of zeros. */
#include "engine/ops/op.h"

#include <string.h>

/* Returns a tensor of zeros in which each part is placed at its start.  Parts must not overlap. */
wb_tensor *wb__concat_at(int ndim, const int64_t *dims, int n, wb_tensor *const *parts,
                         const int64_t *starts)
{
    int64_t size;
    if (!wb__check_dims("concat", ndim, dims, &size)) return NULL;
    if (n * ndim > UINT16_MAX)
        return wb__fail_null(WB_ERROR_UNSUPPORTED,
                             "concat: %d pieces of %d dimensions are too many", n, ndim);
    return wb__node(WB__OP_concat, (wb_dtype)parts[0]->dtype, ndim, dims, n, parts, n * ndim,
                    starts);
}

wb_tensor *wb__pad_zeros(wb_tensor *x, int axis, int64_t before, int64_t after)
{
    int a = wb__axis("pad", x, axis);
    if (a < 0) return NULL;
    if (before < 0 || after < 0 || before > UINT32_MAX || after > UINT32_MAX)
        return wb__fail_null(WB_ERROR_SHAPE, "pad: %lld before and %lld after", (long long)before,
                             (long long)after);
    if (!before && !after) return wb__unchanged(x);
    int64_t starts[WB_MAX_DIMS] = {0}, dims[WB_MAX_DIMS];
    memcpy(dims, x->dims, sizeof dims);
    starts[a] = before;
    dims[a] += before + after;
    return wb__concat_at(x->ndim, dims, 1, &x, starts);
}

static bool are_concat_operands(const char *what, int n, wb_tensor *const *x)
{
    const wb_tensor *placed = NULL;
    if (n < 1 || !x) {
        wb__fail(WB_ERROR_ARGUMENT, x ? "%s: nothing to join" : "%s: no list of tensors", what);
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (!wb__operand(what, x[i]) || (placed && !wb__one_device(what, placed, x[i])))
            return false;
        if (x[i]->device) placed = x[i];
    }
    return true;
}

wb_tensor *wb_concat_array(int axis, int n, wb_tensor *const *x)
{
    if (!are_concat_operands("concat", n, x)) return NULL;
    int a = wb__axis("concat", x[0], axis);
    if (a < 0) return NULL;
    if (n == 1) return wb__unchanged(x[0]);
    int64_t dims[WB_MAX_DIMS],
        *starts = wb__alloc_zero((size_t)n * (size_t)x[0]->ndim, sizeof *starts);
    if (!starts) return NULL;
    memcpy(dims, x[0]->dims, sizeof dims);
    dims[a] = 0;
    wb_tensor *y = NULL;
    for (int i = 0; i < n; i++) {
        bool fits = x[i]->ndim == x[0]->ndim && x[i]->dtype == x[0]->dtype;
        for (int j = 0; fits && j < x[0]->ndim; j++)
            fits = j == a || x[i]->dims[j] == x[0]->dims[j];
        if (!fits) {
            wb__fail(WB_ERROR_SHAPE, "concat: does not fit along axis %d: %s · %s", axis,
                     wb_describe(x[0]), wb_describe(x[i]));
            goto done;
        }
        starts[i * x[0]->ndim + a] = dims[a];
        dims[a] += x[i]->dims[a];
    }
    y = wb__concat_at(x[0]->ndim, dims, n, x, starts);
done:
    wb__free(starts);
    return y;
}

wb_tensor *wb_stack_array(int axis, int n, wb_tensor *const *x)
{
    if (!are_concat_operands("stack", n, x)) return NULL;
    wb_tensor **wide = wb__alloc((size_t)n * sizeof *wide);
    if (!wide) return NULL;
    wb_tensor *y = NULL;
    int i = 0;
    for (; i < n; i++) {
        if (!(wide[i] = wb_unsqueeze(x[i], axis))) break;
        if (x[i]->dtype == x[0]->dtype && wb__same_dims(x[i], x[0])) continue;
        wb__fail(WB_ERROR_SHAPE, "stack: differ: %s · %s", wb_describe(x[0]), wb_describe(x[i]));
        break;
    }
    if (i == n) y = wb_concat_array(axis, n, wide);
    wb__free(wide);
    return y;
}

GRADIENT(concat)
{
    for (uint32_t i = 0; i < node->n_in; i++)
        if (wanted[i])
            out[i] = wb__slice_at(g, node->attr + i * node->ndim, node->in[i]->dims, NULL);
}
