/* Running sums as launches of kernels/cumsum.k. */
#include "backend/gpu/library.h"

#include <stdio.h>

/* A group of GROUP items processes a row if the row has at least GPU_CUMSUM_SHORT elements, and
 * there are fewer than FEW rows or the row's elements are adjacent in memory.  Otherwise, and where
 * items run in turn, one item processes a row. */
enum { GROUP = 256, GPU_CUMSUM_SHORT = 64, GPU_CUMSUM_FEW = 4096 };

int wb__gpu_step_cumsum(const wb__gpu_target *t, const wb__step *s, wb__gpu_work *work)
{
    const wb__view *x = &s->views[0], *y = &s->views[1];
    const int64_t n = x->dims[0];
    const bool beside = x->strides[0] == 1 || x->strides[0] == -1;
    int64_t rows;
    wb__pair_args args;
    char defines[96];
    if (y->dtype == WB_F64 && !t->f64) return wb__gpu_no_f64("cumsum");
    const int dims = wb__gpu_fill_pair(x, y, 1, &rows, &args);
    if (!rows || !n) return 0;
    const bool grouped = !t->in_turn && n >= GPU_CUMSUM_SHORT && (rows < GPU_CUMSUM_FEW || beside);
    snprintf(defines, sizeof defines, "#define DIMS %d\n#define GROUP %d\n%s%s", dims,
             grouped ? GROUP : 1, s->variant ? "#define EXCLUSIVE\n" : "",
             wb__reg_of(y->dtype) == WB__REG_F32 ? "#define LOSSY\n" : "");
    work->impl = grouped ? "running sums, a group a row" : "running sums, an item a row";
    return wb__gpu_launch_of(
        work, wb__gpu_source((int)y->dtype, wb__gpu_needs_wide(s->views, 2, rows), defines,
                             wb__gpu_text_cumsum, ""),
        &(wb__gpu_plan){.entry = "cumsum", .n_buffers = 2, .buffers = {x->buffer, y->buffer},
                        .args = &args, .args_bytes = sizeof args, .workspace_at = -1,
                        .origins = {{x, offsetof(wb__pair_args, x_at)},
                                    {y, offsetof(wb__pair_args, y_at)}},
                        .f64 = y->dtype == WB_F64, .total = grouped ? rows * GROUP : rows,
                        .items = 256});
}
