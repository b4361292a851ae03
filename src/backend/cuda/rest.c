/* Functions behind a product or a convolution that no library makes with it: the library does the
 * rest of the step, and a kernel of ours the function, in place. */
#include "backend/cuda/cuda.h"

#include <string.h>

/* Dimensions by their strides, the smallest last, so that neighbours stay neighbours. */
static void sort_dims(const wb__view *from, wb__view *to)
{
    *to = *from;
    to->ndim = 0;
    for (int i = 0; i < from->ndim; i++) {
        int at = to->ndim;
        if (from->dims[i] == 1) continue;
        for (; at > 0 && to->strides[at - 1] < from->strides[i]; at--) {
            to->dims[at] = to->dims[at - 1];
            to->strides[at] = to->strides[at - 1];
        }
        to->dims[at] = from->dims[i];
        to->strides[at] = from->strides[i];
        to->ndim++;
    }
    if (to->ndim) return;
    to->ndim = 1;
    to->dims[0] = to->strides[0] = 1;
}

bool wb__cu_split(const wb__step *step, wb__step *bare, wb__cu_rest *rest)
{
    if (step->epilogue == WB__OP_NONE || wb__step_is_special(step)) return false;
    *bare = *step;
    bare->epilogue = WB__OP_NONE;
    memset(rest, 0, sizeof *rest);
    sort_dims(&step->views[2], &rest->view);
    const wb__view *c = &rest->view;
    const uint8_t reg = c->dtype == WB_F64 ? WB__REG_F64 : WB__REG_F32, dtype = (uint8_t)c->dtype;
    const wb__instr program[3] = {
        {WB__LOAD, reg, WB__LEVEL_FULL, dtype, 0, -1, -1, -1, 0, 0, 0},
        {WB__ROW, reg, WB__LEVEL_FULL, dtype, (uint16_t)step->epilogue, 0, -1, -1, 0, 0, 0},
        {WB__STORE, reg, WB__LEVEL_FULL, dtype, 0, 1, -1, -1, 0, 0, 0}};
    memcpy(rest->instr, program, sizeof program);
    rest->space = (wb__space){.ndim = c->ndim, .row_dims = c->ndim - 1, .col_dims = 1};
    memcpy(rest->space.dims, c->dims, sizeof c->dims);
    rest->step = (wb__step){
        .kind = WB__STEP_FUSED,
        .fused = {.n_instr = 3, .n_views = 1, .n_segments = 1, .instr = rest->instr,
                  .spaces = &rest->space, .views = &rest->view}};
    return true;
}
