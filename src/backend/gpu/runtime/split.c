/* Converts steps to the form that libraries support.
 *
 * No library adds a bias to an input gradient, for example.  The step is then split: the library
 * computes c without bias and epilogue, and a kernel of ours applies both in place: c = epilogue(c
 * + bias). */
#include "backend/gpu/runtime/runtime.h"

#include <string.h>

/* Sets to[0] to `from` without dimensions of size 1, the others sorted by stride, the smallest
 * last, so that adjacent elements stay adjacent.  Sets to[1] to `beside`, which is broadcast to
 * `from`, with the dimensions in the same order. */
static void gpu_split_sort_dims(const wb__view *from, const wb__view *beside, wb__view to[2])
{
    to[0] = *from;
    to[1] = *beside;
    to[0].ndim = 0;
    for (int i = 0; i < from->ndim; i++) {
        int at = to[0].ndim;
        if (from->dims[i] == 1) continue;
        for (; at > 0 && to[0].strides[at - 1] < from->strides[i]; at--)
            for (int v = 0; v < 2; v++) {
                to[v].dims[at] = to[v].dims[at - 1];
                to[v].strides[at] = to[v].strides[at - 1];
            }
        to[0].dims[at] = to[1].dims[at] = from->dims[i];
        to[0].strides[at] = from->strides[i];
        to[1].strides[at] = beside->strides[i];
        to[0].ndim++;
    }
    if (!to[0].ndim) {
        to[0].ndim = 1;
        for (int v = 0; v < 2; v++) to[v].dims[0] = to[v].strides[0] = 1;
    }
    to[1].ndim = to[0].ndim;
}

static wb__instr gpu_split_instruction(wb_dtype t, wb__instr_kind kind, wb__op op, int a, int b,
                                       int arg)
{
    return (wb__instr){.kind = (uint8_t)kind, .reg = (uint8_t)wb__reg_of(t),
                       .level = WB__LEVEL_FULL, .dtype = (uint8_t)t, .op = (uint16_t)op,
                       .a = a, .b = b, .c = -1, .arg = arg};
}

bool wb__gpu_split_epilogue(const wb__step *step, bool bare_of_bias, wb__step *bare,
                            wb__gpu_rest *rest)
{
    const bool data = step->kind == WB__STEP_CONV && step->variant == WB__CONV_GRAD_INPUT;
    const wb__view *c = &step->views[data ? 0 : 2], *bias = NULL;
    const wb_dtype t = c->dtype;
    if ((bare_of_bias || data) && step->n_views > 3) bias = &step->views[3];
    if (wb__step_is_special(step) || (step->epilogue == WB__OP_NONE && !bias)) return false;
    *bare = *step;
    bare->epilogue = WB__OP_NONE;
    if (bias) bare->n_views = 3;
    memset(rest, 0, sizeof *rest);
    wb__view beside = *c;
    if (bias) {
        beside.buffer = bias->buffer;
        beside.offset = bias->offset;
        beside.granule = bias->granule;
        memset(beside.strides, 0, sizeof beside.strides);
        beside.strides[step->kind == WB__STEP_CONV ? 1 : c->ndim - 1] = bias->strides[0];
    }
    gpu_split_sort_dims(c, &beside, rest->views);
    int n = 0, last = 0;
    rest->instr[n++] = gpu_split_instruction(t, WB__LOAD, 0, -1, -1, 0);
    if (bias) {
        rest->instr[n++] = gpu_split_instruction(t, WB__LOAD, 0, -1, -1, 1);
        rest->instr[n++] = gpu_split_instruction(t, WB__ELEMENTWISE_OP, WB__OP_add, 0, 1, -1);
        last = n - 1;
    }
    if (step->epilogue != WB__OP_NONE) {
        rest->instr[n++] = gpu_split_instruction(t, WB__ELEMENTWISE_OP, step->epilogue, last, -1,
                                                 -1);
        last = n - 1;
    }
    rest->instr[n++] = gpu_split_instruction(t, WB__STORE, 0, last, -1, 0);
    const int ndim = rest->views[0].ndim;
    rest->space = (wb__space){.ndim = ndim, .row_dims = ndim - 1, .col_dims = 1};
    memcpy(rest->space.dims, rest->views[0].dims, sizeof rest->space.dims);
    rest->step = (wb__step){
        .kind = WB__STEP_FUSED,
        .fused = {.n_instr = n, .n_views = bias ? 2 : 1, .n_segments = 1, .instr = rest->instr,
                  .spaces = &rest->space, .views = rest->views}};
    return true;
}

bool wb__gpu_is_dense(const wb__view *v, bool channels_last)
{
    static const int orders[2][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}};
    int64_t size = 1;
    for (int i = 3; i >= 0; i--) {
        const int at = orders[channels_last][i];
        if (v->dims[at] != 1 && v->strides[at] != size) return false;
        size *= v->dims[at];
    }
    return true;
}

bool wb__gpu_is_matrix(const wb__view *v, bool *transposed, int64_t *row)
{
    const int64_t *dims = v->dims + v->ndim - 2, *strides = v->strides + v->ndim - 2;
    for (int turned = 0; turned < 2; turned++) {
        const int64_t length = dims[!turned], step = strides[!turned], apart = strides[turned];
        const bool one_row = dims[turned] == 1;
        if ((step != 1 && length != 1) || (!one_row && apart < length)) continue;
        *transposed = turned;
        *row = one_row ? length : apart;
        return true;
    }
    return false;
}

bool wb__gpu_merge_batch(const wb__view *v, int64_t *step, int64_t *batch)
{
    *batch = 1;
    for (int i = v[2].ndim - 3; i >= 0; i--) {
        if (v[2].dims[i] == 1) continue;
        for (int j = 0; j < 3; j++) {
            const int64_t s = v[j].strides[i];
            if (s < 0 || (*batch > 1 && s != step[j] * *batch)) return false;
            if (*batch == 1) step[j] = s;
        }
        *batch *= v[2].dims[i];
        if (*batch > INT32_MAX) return false;
    }
    return true;
}
