/* Library operations by the kernels of kernels/: pools, copies, and functions that the files
 * library_*.c share.
 *
 * The source text of a kernel has a few #define lines, then types and argument structs, then one or
 * two files of kernels/.  Shapes and offsets are arguments, so that one text works for many shapes.
 *
 * Other operations are in library_product.c, library_rows.c, library_cumsum.c and
 * library_attention.c. */
#include "backend/gpu/library.h"

#include <stdio.h>
#include <string.h>

/* ---- texts and launches ---------------------------------------------------------------------- */

bool wb__gpu_needs_wide(const wb__view *views, int n, int64_t count)
{
    for (int i = 0; i < n; i++) {
        int64_t reach = 0;
        for (int d = 0; d < views[i].ndim; d++) {
            const int64_t s = views[i].strides[d];
            if (views[i].dims[d] > 0) reach += (views[i].dims[d] - 1) * (s < 0 ? -s : s);
        }
        if (reach >= WB__GPU_NARROW) return true;
    }
    return count >= WB__GPU_NARROW;
}

char *wb__gpu_source(int dtype, bool wide, const char *defines, const char *family,
                     const char *rest)
{
    char head[160] = "";
    if (dtype >= 0) {                           /* sums of bool wrap around, like bytes */
        const wb__gpu_type *type = &wb__gpu_types[dtype == WB_BOOL ? WB_U8 : dtype];
        snprintf(head, sizeof head, "#define NAME %s\n#define STORED %s\n#undef KIND\n"
                 "#define KIND %s\n%s", type->name, type->stored, type->kind,
                 wb__dtype_float((wb_dtype)dtype) ? "" : "#define INTEGER\n");
    }
    return wb__printf("%s%s%s%s%s%s%s", wide ? "#define WIDE\n" : "", head, defines,
                      wb__gpu_text_types, wb__gpu_text_args, family, rest);
}

int wb__gpu_launch_of(wb__gpu_work *work, char *text, const wb__gpu_plan *p)
{
    const int64_t groups = (p->total + p->items - 1) / p->items;
    if (groups > INT32_MAX) {
        wb__free(text);
        return wb__fail(WB_ERROR_UNSUPPORTED, "%s: %lld groups of a kernel are more than a device "
                        "supports", p->entry, (long long)groups);
    }
    wb__gpu_launch *l = wb__gpu_add_launch(work, text, p->entry, p->n_buffers, p->args_bytes, 0);
    if (!l) return WB_ERROR_MEMORY;
    memcpy(l->buffer, p->buffers, (size_t)p->n_buffers * sizeof *l->buffer);
    memcpy(l->args, p->args, p->args_bytes);
    l->workspace_at = p->workspace_at;
    l->f64 = p->f64;
    l->groups[0] = (uint32_t)groups;
    l->items[0] = (uint32_t)p->items;
    for (int i = 0; p->origins[i].view; i++)
        if (!wb__gpu_add_origin(&l->origins, &l->n_origins, p->origins[i].view, p->origins[i].at))
            return WB_ERROR_MEMORY;
    return 0;
}

/* ---- pools ----------------------------------------------------------------------------------- */

static void gpu_library_strides_of(const wb__view *v, wb__wide *to)
{
    for (int i = 0; i < 4; i++) to[i] = wb__wide_of(v->strides[i]);
}

int wb__gpu_step_pool(const wb__gpu_target *t, const wb__step *s, wb__gpu_work *work)
{
    static const char *const defines[] = {
        [WB__POOL_MAX] = "#define POOL_MAX\n", [WB__POOL_MAX_GRAD] = "#define POOL_MAX_GRAD\n",
        [WB__POOL_MAX_GATHER] = "#define POOL_MAX_GATHER\n",
        [WB__POOL_MEAN] = "#define POOL_MEAN\n", [WB__POOL_MEAN_GRAD] = "#define POOL_MEAN_GRAD\n"};
    const bool back = s->variant == WB__POOL_MAX_GRAD || s->variant == WB__POOL_MEAN_GRAD;
    const wb__view *c = &s->views[s->n_views - 1], *a = &s->views[0];
    const wb__view *b = s->n_views > 2 ? &s->views[1] : a;
    const wb__view *x = back ? c : a;
    const wb__view *y = s->variant == WB__POOL_MAX_GRAD ? b : back ? a : c;
    const wb_dtype dtype = c->dtype;
    int64_t total = 1;
    for (int i = 0; i < 4; i++) total *= c->dims[i];
    if (!wb__dtype_float(dtype))
        return wb__fail(WB_ERROR_UNSUPPORTED, "pool: not for dtype %s", wb_dtype_name(dtype));
    if (dtype == WB_F64 && !t->f64) return wb__gpu_no_f64("pool");
    if (!total) return 0;
    wb__pool_args args = {
        .total = wb__wide_of(total), .a_at = wb__wide_of(a->offset), .b_at = wb__wide_of(b->offset),
        .c_at = wb__wide_of(c->offset), .c = (int)x->dims[1], .h = (int)x->dims[2],
        .w = (int)x->dims[3], .oh = (int)y->dims[2], .ow = (int)y->dims[3],
        .channels_last = c->strides[1] == 1 && c->dims[1] > 1,
    };
    for (int i = 0; i < 2; i++) {
        args.window[i] = (int)s->pool.window[i];
        args.stride[i] = (int)s->pool.stride[i];
        args.pad[i] = (int)s->pool.pad[2 * i];
    }
    gpu_library_strides_of(a, args.a_s);
    gpu_library_strides_of(b, args.b_s);
    gpu_library_strides_of(c, args.c_s);
    work->impl = "pool";
    char *text = wb__gpu_source(dtype, wb__gpu_needs_wide(s->views, s->n_views, total),
                                defines[s->variant], wb__gpu_text_pool, "");
    return wb__gpu_launch_of(
        work, text,
        &(wb__gpu_plan){.entry = "pool", .n_buffers = 3,
                        .buffers = {a->buffer, b->buffer, c->buffer},
                        .args = &args, .args_bytes = sizeof args, .workspace_at = -1,
                        .origins = {{a, offsetof(wb__pool_args, a_at)},
                                    {b, offsetof(wb__pool_args, b_at)},
                                    {c, offsetof(wb__pool_args, c_at)}},
                        .f64 = dtype == WB_F64, .total = total, .items = 256});
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Merges the dimensions of both views from `first` on where their strides allow it.  Writes the
 * merged sizes and strides to dim, x_s and y_s; returns the number of merged dimensions. */
static int gpu_library_merge(const wb__view *x, const wb__view *y, int first, int64_t dim[],
                             int64_t x_s[], int64_t y_s[])
{
    int n = 0;
    for (int i = first; i < x->ndim; i++) {
        const int64_t size = x->dims[i], sx = x->strides[i], sy = y->strides[i];
        if (size == 1) continue;
        if (n && x_s[n - 1] == sx * size && y_s[n - 1] == sy * size) dim[n - 1] *= size;
        else dim[n++] = size;
        x_s[n - 1] = sx;
        y_s[n - 1] = sy;
    }
    return n;
}

int wb__gpu_fill_pair(const wb__view *x, const wb__view *y, int first, int64_t *total,
                      wb__pair_args *args)
{
    int64_t dim[WB_MAX_DIMS], x_s[WB_MAX_DIMS], y_s[WB_MAX_DIMS];
    *total = 1;
    for (int i = first; i < x->ndim; i++) *total *= x->dims[i];
    *args = (wb__pair_args){.total = wb__wide_of(*total), .x_at = wb__wide_of(x->offset),
                            .y_at = wb__wide_of(y->offset)};
    const int n = gpu_library_merge(x, y, first, dim, x_s, y_s);
    const bool runs = !n || (n == 1 && x_s[0] == 1 && y_s[0] == 1);
    /* few variants of the text */
    const int dims = runs ? 0 : n <= 2 ? 2 : n <= 4 ? 4 : WB_MAX_DIMS - first;
    for (int i = 0; i < first + dims; i++) {        /* missing dimensions are added in front */
        const int at = i - first - (dims - n);
        args->dims[i] = wb__wide_of(i < first ? x->dims[i] : at < 0 ? 1 : dim[at]);
        args->x_s[i] = wb__wide_of(i < first ? x->strides[i] : at < 0 ? 0 : x_s[at]);
        args->y_s[i] = wb__wide_of(i < first ? y->strides[i] : at < 0 ? 0 : y_s[at]);
    }
    return dims;
}

int wb__gpu_step_copy(const wb__gpu_target *t, const wb__step *s, wb__gpu_work *work)
{
    (void)t;
    const wb__view *from = &s->views[0], *to = &s->views[1];
    int64_t total;
    wb__pair_args args;
    char defines[64];
    snprintf(defines, sizeof defines, "#define DIMS %d\n#define ELEMENT u%d\n",
             wb__gpu_fill_pair(from, to, 0, &total, &args), 8 * (int)wb__dtype_size(from->dtype));
    if (!total) return 0;
    work->impl = "copy";
    return wb__gpu_launch_of(
        work, wb__gpu_source(-1, wb__gpu_needs_wide(s->views, 2, total), defines,
                             wb__gpu_text_copy, ""),
        &(wb__gpu_plan){.entry = "copy", .n_buffers = 2, .buffers = {from->buffer, to->buffer},
                        .args = &args, .args_bytes = sizeof args, .workspace_at = -1,
                        .origins = {{from, offsetof(wb__pair_args, x_at)},
                                    {to, offsetof(wb__pair_args, y_at)}},
                        .total = total, .items = 256});
}

#define wb__gpu_step_none NULL

static wb__gpu_step_function *const gpu_library_makers[WB__STEP_COUNT] = {
#define WB_STEP(NAME, name, cpu, gpu) [WB__STEP_##NAME] = wb__gpu_step_##gpu,
#include "ops/ops.def"
};

int wb__gpu_library(const wb__gpu_target *t, const wb__step *step, wb__gpu_work *work)
{
    work->impl = "nothing";
    return gpu_library_makers[step->kind](t, step, work);
}
