/* Creates the kernels of a step, and fills in the arguments of launches. */
#include "backend/gpu/gpu.h"

#include <string.h>

const wb__gpu_type wb__gpu_types[WB_DTYPE_COUNT] = {
    [WB_DTYPE_DEFAULT] = {"F32", "f32", "f32"},
    [WB_F32] = {"F32", "f32", "f32"}, [WB_F64] = {"F64", "f64", "f64"},
    [WB_F16] = {"F16", "u16", "f32"}, [WB_BF16] = {"BF16", "u16", "f32"},
    [WB_I8] = {"I8", "i8", "i32"}, [WB_U8] = {"U8", "u8", "i32"},
    [WB_I32] = {"I32", "i32", "i32"}, [WB_I64] = {"I64", "i64", "i64"},
    [WB_BOOL] = {"BOOL", "u8", "i32"}};

wb__gpu_launch *wb__gpu_add_launch(wb__gpu_work *work, char *text, const char *entry, int n_buffers,
                                   size_t args_bytes, int n_numbers)
{
    wb__gpu_launch *more =
        text ? wb__realloc(work->launch, (size_t)(work->n + 1) * sizeof *more) : NULL;
    if (!more) {
        wb__free(text);
        return NULL;
    }
    work->launch = more;
    wb__gpu_launch *l = &more[work->n++];
    *l = (wb__gpu_launch){.text = text, .entry = entry, .n_buffers = n_buffers,
                          .args_bytes = args_bytes, .n_numbers = n_numbers, .workspace_at = -1,
                          .groups = {1, 1, 1}, .items = {1, 1, 1}};
    l->buffer = wb__alloc_zero((size_t)n_buffers + 1, sizeof *l->buffer);
    l->args = wb__alloc_zero(args_bytes + 1, 1);
    l->numbers = wb__alloc_zero((size_t)n_numbers + 1, sizeof *l->numbers);
    return l->buffer && l->args && l->numbers ? l : NULL;
}

bool wb__gpu_add_origin(wb__gpu_origin **list, int *n, const wb__view *v, size_t at)
{
    if (!v->granule) return true;
    wb__gpu_origin *more = wb__realloc(*list, (size_t)(*n + 1) * sizeof *more);
    if (!more) return false;
    *list = more;
    more[(*n)++] = (wb__gpu_origin){v->buffer, (uint32_t)at, (uint32_t)wb__dtype_size(v->dtype)};
    return true;
}

int wb__gpu_no_f64(const char *what)
{
    return wb__fail(WB_ERROR_UNSUPPORTED, "%s: the device has no f64: compute in f32, or on the"
                    " CPU (wb_cpu)", what);
}

void wb__gpu_work_free(wb__gpu_work *work)
{
    if (!work) return;
    for (int i = 0; i < work->n; i++) {
        wb__free(work->launch[i].text);
        wb__free(work->launch[i].buffer);
        wb__free(work->launch[i].args);
        wb__free(work->launch[i].numbers);
        wb__free(work->launch[i].origins);
    }
    wb__free(work->launch);
    wb__free(work);
}

int wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work)
{
    wb__gpu_work *w = wb__alloc_zero(1, sizeof *w);
    if (!w) return WB_ERROR_MEMORY;
    int status = step->kind == WB__STEP_FUSED ? wb__gpu_fused(t, &step->fused, w)
                                              : wb__gpu_library(t, step, w);
    if (!status) *work = w;
    else wb__gpu_work_free(w);
    return status;
}

static void gpu_put_word(unsigned char *at, uint64_t v)
{
    uint32_t words[2] = {(uint32_t)v, (uint32_t)(v >> 32)};
    memcpy(at, words, sizeof words);
}

static void move_origin(unsigned char *at, uint64_t by)
{
    uint32_t words[2];
    memcpy(words, at, sizeof words);
    gpu_put_word(at, ((uint64_t)words[1] << 32 | words[0]) + by);
}

void wb__gpu_fill_args(const wb__gpu_launch *l, const wb__number *numbers, const size_t *offsets,
                       size_t workspace_at, void *out)
{
    unsigned char *to = out;
    memcpy(to, l->args, l->args_bytes);
    if (l->workspace_at >= 0) gpu_put_word(to + l->workspace_at, workspace_at);
    for (int i = 0; i < l->n_origins && offsets; i++)
        move_origin(to + l->origins[i].at, offsets[l->origins[i].buffer] / l->origins[i].size);
    for (int i = 0; i < l->n_numbers; i++) {
        const wb__gpu_number *n = &l->numbers[i];
        const wb__number v = numbers[n->number];
        const float f = n->type == WB__GPU_NUMBER_ODD ? wb__f64_to_odd(v.f) : (float)v.f;
        int32_t narrow;
        int64_t wide;
        switch (n->type) {
        case WB__GPU_NUMBER_F32: case WB__GPU_NUMBER_ODD: memcpy(to + n->at, &f, sizeof f); break;
        case WB__GPU_NUMBER_I32:
            wb__convert(&narrow, WB_I32, &v.f, WB_F64, 1);
            memcpy(to + n->at, &narrow, sizeof narrow);
            break;
        case WB__GPU_NUMBER_I64:
            wb__convert(&wide, WB_I64, &v.f, WB_F64, 1);
            gpu_put_word(to + n->at, (uint64_t)wide);
            break;
        case WB__GPU_NUMBER_F64: case WB__GPU_NUMBER_U64: gpu_put_word(to + n->at, v.u); break;
        }
    }
}
