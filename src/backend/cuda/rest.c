/* An epilogue that no library computes with its product or convolution, and the bias of a data
 * gradient: the library does the rest of the step, and a kernel of ours these, in place. */
#include "backend/cuda/cuda.h"

#include <string.h>

/* The dimensions of `from` by its strides, the smallest last, so that neighbours stay neighbours;
 * `beside` has a stride for each of them too. */
static void sort_dims(const wb__view *from, const int64_t *beside, wb__view to[2])
{
    to[0] = *from;
    to[0].ndim = 0;
    for (int i = 0; i < from->ndim; i++) {
        int at = to->ndim;
        if (from->dims[i] == 1) continue;
        for (; at > 0 && to->strides[at - 1] < from->strides[i]; at--) {
            to->dims[at] = to->dims[at - 1];
            to->strides[at] = to->strides[at - 1];
            to[1].strides[at] = to[1].strides[at - 1];
        }
        to->dims[at] = from->dims[i];
        to->strides[at] = from->strides[i];
        to[1].strides[at] = beside[i];
        to->ndim++;
    }
    if (!to->ndim) {
        to->ndim = 1;
        to->dims[0] = to->strides[0] = 1;
    }
    to[1].ndim = to->ndim;
    memcpy(to[1].dims, to->dims, sizeof to->dims);
}

bool wb__cu_split(const wb__step *step, wb__step *bare, wb__cu_rest *rest)
{
    const bool data = step->kind == WB__STEP_CONV && step->variant == WB__CONV_DATA;
    const wb__view *bias = data && step->n_views > 3 ? &step->views[3] : NULL;
    if ((!step->epilogue && !bias) || wb__step_is_special(step)) return false;
    *bare = *step;
    bare->epilogue = WB__OP_NONE;
    if (bias) bare->n_views = 3;
    memset(rest, 0, sizeof *rest);
    int64_t channel[WB_MAX_DIMS] = {0};
    if (bias) {
        rest->view[1] = *bias;
        channel[1] = bias->strides[0];
    }
    sort_dims(&step->views[data ? 0 : 2], channel, rest->view);
    const wb__view *c = &rest->view[0];
    const uint8_t reg = c->dtype == WB_F64 ? WB__REG_F64 : WB__REG_F32, dtype = (uint8_t)c->dtype;
    const wb__instr program[5] = {
        {WB__LOAD, reg, WB__LEVEL_FULL, dtype, 0, -1, -1, -1, 0, 0, 0},
        {WB__LOAD, reg, WB__LEVEL_FULL, dtype, 0, -1, -1, -1, 1, 0, 0},
        {WB__ROW, reg, WB__LEVEL_FULL, dtype, WB__OP_add, 0, 1, -1, 0, 0, 0},
        {WB__ROW, reg, WB__LEVEL_FULL, dtype, (uint16_t)step->epilogue, 0, -1, -1, 0, 0, 0},
        {WB__STORE, reg, WB__LEVEL_FULL, dtype, 0, 0, -1, -1, 0, 0, 0}};
    int n = 0;
    for (int i = 0; i < 5; i++) {
        if (((i == 1 || i == 2) && !bias) || (i == 3 && !step->epilogue)) continue;
        rest->instr[n] = program[i];
        if (i > 2) rest->instr[n].a = n - 1;
        n++;
    }
    rest->space = (wb__space){.ndim = c->ndim, .row_dims = c->ndim - 1, .col_dims = 1};
    memcpy(rest->space.dims, c->dims, sizeof c->dims);
    rest->step = (wb__step){
        .kind = WB__STEP_FUSED,
        .fused = {.n_instr = n, .n_views = bias ? 2 : 1, .n_segments = 1, .instr = rest->instr,
                  .spaces = &rest->space, .views = rest->view}};
    return true;
}
