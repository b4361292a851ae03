/* Sorted orders as launches of kernels/sort.k. */
#include "backend/gpu/library.h"

#include <stdio.h>

enum { RUN = 32 };

int wb__gpu_step_sort(const wb__gpu_target *t, const wb__step *s, wb__gpu_work *work)
{
    const wb__view *x = &s->views[0], *y = &s->views[1];
    const int64_t n = x->dims[0];
    int64_t rows;
    wb__sort_args args = {0};
    char defines[96];
    if (x->dtype == WB_F64 && !t->f64) return wb__gpu_no_f64("sort");
    const int dims = wb__gpu_fill_pair(x, y, 1, &rows, &args.pair);
    const int64_t total = rows * n;
    if (!total) return 0;
    const bool wide = wb__gpu_needs_wide(s->views, 2, 2 * total);
    args.pair.total = wb__wide_of(total);
    args.n = wb__wide_of(n);
    work->impl = "sorted by merging";
    work->workspace = (size_t)(2 * total) * (wide ? 8 : 4);
    snprintf(defines, sizeof defines, "#define DIMS %d\n#define RUN %d\n%s", dims, RUN,
             s->variant ? "#define DESCENDING\n" : "");
    wb__gpu_plan plan = {.entry = "sort_runs", .n_buffers = 2,
                         .buffers = {x->buffer, WB__GPU_WORKSPACE}, .args = &args,
                         .args_bytes = sizeof args,
                         .workspace_at = (int)offsetof(wb__sort_args, work_at),
                         .origins = {{x, offsetof(wb__sort_args, pair.x_at)},
                                     {y, offsetof(wb__sort_args, pair.y_at)}},
                         .f64 = x->dtype == WB_F64, .total = total, .items = 256};
    int64_t from = 0, to = 0;
    int e = 0;
    for (int64_t run = RUN; !e; run *= 2) {
        args.from = wb__wide_of(from);
        args.to = wb__wide_of(to);
        e = wb__gpu_launch_of(
            work, wb__gpu_source((int)x->dtype, wide, defines, wb__gpu_text_sort, ""), &plan);
        from = to;
        to = total - to;
        if (run >= n) break;
        args.run = wb__wide_of(run);
        plan.entry = "sort_merge";
    }
    if (e) return e;
    args.from = wb__wide_of(from);
    plan.entry = "sort_put";
    plan.buffers[0] = y->buffer;
    return wb__gpu_launch_of(
        work, wb__gpu_source((int)x->dtype, wide, defines, wb__gpu_text_sort, ""), &plan);
}
