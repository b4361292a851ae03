/* Rows by index as launches of kernels/rows.k. */
#include "backend/gpu/library.h"

#include <stdio.h>

static int64_t gpu_rows_size_of(const wb__view *v, int from)
{
    int64_t n = 1;
    for (int i = from; i < v->ndim; i++) n *= v->dims[i];
    return n;
}

static const char *gpu_rows_index_type(wb_dtype t)
{
    return t == WB_I8 ? "i8" : t == WB_I32 ? "i32" : t == WB_I64 ? "i64" : "u8";
}

/* Adds a launch with an item for each of `total` elements, whose buffers are the step's views. */
static int gpu_rows_add_launch(const wb__step *s, const wb__rows_args *args, const char *kind,
                               bool wide, int64_t total, wb__gpu_work *work)
{
    const bool takes = s->kind == WB__STEP_GATHER;
    const wb__view *x = &s->views[!takes], *index = &s->views[takes], *y = &s->views[2];
    char defines[96];
    snprintf(defines, sizeof defines, "#define %s\n#define INDEX %s\n#define ELEMENT u%d\n", kind,
             gpu_rows_index_type(index->dtype), 8 * (int)wb__dtype_size(x->dtype));
    return wb__gpu_launch_of(
        work, wb__gpu_source(-1, wide, defines, wb__gpu_text_rows, ""),
        &(wb__gpu_plan){.entry = takes ? "rows_take" : "rows_set", .n_buffers = 3,
                        .buffers = {x->buffer, index->buffer, y->buffer}, .args = args,
                        .args_bytes = sizeof *args, .workspace_at = -1,
                        .origins = {{x, offsetof(wb__rows_args, x_at)},
                                    {index, offsetof(wb__rows_args, index_at)},
                                    {y, offsetof(wb__rows_args, y_at)}},
                        .total = total, .items = 256});
}

/* Up to RANKED indices, the algorithm `ranked` is used (kernels/rows.k), which compares each index
 * with all others; up to GPU_ROWS_FEW such comparisons, in the launch that sets the rows. */
enum { RANKED = 1 << 16, GPU_ROWS_FEW = 1 << 24 };

static int scatter_add(const wb__gpu_target *t, const wb__step *s, const wb__rows_args *args,
                       bool wide, int64_t n, int64_t count, int64_t total, wb__gpu_work *work)
{
    const wb__view *index = &s->views[0], *x = &s->views[1], *y = &s->views[2];
    const int64_t group = t->in_turn ? 1 : 256;
    const bool ranked = !t->in_turn && count <= RANKED;
    static const char *const combine[] = {
        [WB__ROWS_ADD] = "", [WB__ROWS_MUL] = "#define COMBINE TAKE_PRODUCT\n",
        [WB__ROWS_MAX] = "#define COMBINE TAKE_MAX\n",
        [WB__ROWS_MIN] = "#define COMBINE TAKE_MIN\n",
        [WB__ROWS_SET] = "#define SET\n#define COMBINE TAKE_LAST\n"};
    char defines[128];
    snprintf(defines, sizeof defines, "#define INDEX %s\n#define GROUP %d\n%s%s",
             gpu_rows_index_type(index->dtype), (int)group, ranked ? "#define RANKED\n" : "",
             combine[s->variant]);
    const wb__gpu_plan plans[3] = {
        {.entry = "rows_clear", .n_buffers = 1, .buffers = {WB__GPU_WORKSPACE}, .total = n,
         .items = 256},
        {.entry = ranked ? "rows_rank" : "rows_link", .n_buffers = 2,
         .buffers = {index->buffer, WB__GPU_WORKSPACE}, .total = ranked ? count : group,
         .items = group},
        {.entry = "rows_add", .n_buffers = 3, .total = total, .items = 256,
         .buffers = {x->buffer, y->buffer, WB__GPU_WORKSPACE}}};
    work->impl = "rows added";
    work->workspace = (size_t)(2 * n + count) * (wide ? 8 : 4);
    int e = 0;
    for (int i = 0; i < 3 && !e; i++) {
        wb__gpu_plan plan = plans[i];
        if (!plan.total) continue;              /* no indices, so no lists */
        plan.args = args;
        plan.args_bytes = sizeof *args;
        plan.workspace_at = (int)offsetof(wb__rows_args, work_at);
        plan.f64 = y->dtype == WB_F64;
        for (int k = 0; k < 3; k++) {
            static const size_t at[3] = {offsetof(wb__rows_args, index_at),
                                         offsetof(wb__rows_args, x_at),
                                         offsetof(wb__rows_args, y_at)};
            plan.origins[k].view = &s->views[k];
            plan.origins[k].at = at[k];
        }
        e = wb__gpu_launch_of(
            work, wb__gpu_source((int)y->dtype, wide, defines, wb__gpu_text_rows, ""), &plan);
    }
    return e;
}

int wb__gpu_step_rows(const wb__gpu_target *t, const wb__step *s, wb__gpu_work *work)
{
    const bool adds = s->kind == WB__STEP_SCATTER_ADD;
    const wb__view *x = &s->views[adds], *index = &s->views[!adds], *y = &s->views[2];
    const wb__view *table = adds ? y : x;
    const int64_t n = table->dims[0], inner = gpu_rows_size_of(table, 1),
                  count = gpu_rows_size_of(index, 0);
    const int64_t total = (adds ? n : count) * inner;
    const int64_t x_row = adds || x->dims[0] == 1 ? inner : x->strides[0];
    const bool wide = wb__gpu_needs_wide(s->views, 3, WB__MAX(total, 2 * n + count));
    const wb__rows_args args = {
        .total = wb__wide_of(total), .count = wb__wide_of(count), .rows = wb__wide_of(n),
        .inner = wb__wide_of(inner), .x_row = wb__wide_of(x_row), .x_at = wb__wide_of(x->offset),
        .index_at = wb__wide_of(index->offset), .y_at = wb__wide_of(y->offset),
    };
    const bool few = adds && s->variant == WB__ROWS_SET && count < GPU_ROWS_FEW &&
                     count * inner < GPU_ROWS_FEW && count * count * inner < GPU_ROWS_FEW;
    if (adds && !few && y->dtype == WB_F64 && !t->f64)
        return wb__gpu_no_f64("the gradient of take");
    work->impl = few ? "rows set" : "rows taken";
    if (!total) return 0;
    if (few) return count ? gpu_rows_add_launch(s, &args, "FEW", wide, count * inner, work) : 0;
    return adds ? scatter_add(t, s, &args, wide, n, count, total, work)
                : gpu_rows_add_launch(s, &args, "GATHER", wide, total, work);
}
