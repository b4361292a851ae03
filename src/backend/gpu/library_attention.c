/* Attention as launches of kernels/attention.k. */
#include "backend/gpu/library.h"

#include <stdio.h>

enum { Q, KEYS, V, O, LSE, DO, DQ, DK, DV, SIDE = 64, MAX_DEPTH = 128 };
/* Bytes of local memory that kernels/attention.k needs with DEEP 16, and with DEEP 32. */
enum { LOCAL_BYTES_16 = 28 << 10, LOCAL_BYTES_32 = 36 << 10 };

_Static_assert(sizeof(wb__attention_args) == 4 * 8 + 9 * 8 + 27 * 8 + 8 + 8, "no holes");

static int64_t blocks(int64_t n) { return (n + SIDE - 1) / SIDE; }

/* Of the optional steps, products in fused kernels and attention are supported, but not on a CPU,
 * where other steps are faster. */
bool wb__gpu_supports(const wb__gpu_target *t, const wb__step *s)
{
    if (s->kind == WB__STEP_FUSED) return wb__fuse_takes_product(t, s);
    if (s->kind != WB__STEP_ATTENTION || t->is_cpu || t->local_bytes < LOCAL_BYTES_16) return false;
    const wb_dtype dtype = s->views[Q].dtype;
    if (dtype != WB_F32 && dtype != WB_F16 && dtype != WB_BF16) return false;
    for (int i = 0; i < s->n_views; i++) {
        const wb__view *v = &s->views[i];
        if (v->ndim != 4 || v->dtype != (i == LSE ? WB_F32 : dtype)) return false;
        if (v->dims[3] < 1 || v->dims[3] > MAX_DEPTH) return false;
        if (v->strides[3] != 1 && v->dims[3] > 1) return false;
    }
    const int64_t *q = s->views[Q].dims, *k = s->views[KEYS].dims;
    const int64_t many = q[0] * q[1], groups = many * blocks(WB__MAX(q[2], k[2]));
    if (!many || !q[2] || !k[2] || groups > INT32_MAX / 64) return false;
    return !s->attention.causal || q[2] <= k[2];
}

static int launch(const wb__gpu_target *t, const wb__step *s, wb__gpu_work *work, const char *entry,
                  int64_t total, int n, const int *operands)
{
    const wb__view *views = s->views;
    const int64_t *q = views[Q].dims, *k = views[KEYS].dims;
    char defines[96];
    wb__attention_args args = {
        .queries = wb__wide_of(q[2]), .keys = wb__wide_of(k[2]), .heads = wb__wide_of(q[1]),
        .batches = wb__wide_of(q[0]), .scale = (float)s->attention.scale,
        .causal = s->attention.causal};
    wb__gpu_plan plan = {.entry = entry, .n_buffers = n, .args = &args, .args_bytes = sizeof args,
                         .workspace_at = -1, .total = total, .items = 256};
    for (int i = 0; i < s->n_views; i++) {
        args.at[i] = wb__wide_of(views[i].offset);
        plan.origins[i].view = &views[i];
        plan.origins[i].at = offsetof(wb__attention_args, at) + (size_t)i * sizeof args.at[i];
        for (int d = 0; d < 3; d++) args.step[i][d] = wb__wide_of(views[i].strides[d]);
    }
    for (int i = 0; i < n; i++) {
        plan.buffers[i] = operands[i] < 0 ? WB__GPU_WORKSPACE : views[operands[i]].buffer;
        if (operands[i] < 0) plan.workspace_at = (int)offsetof(wb__attention_args, work_at);
    }
    snprintf(defines, sizeof defines, "%s#define DEPTH %d\n#define WIDTH_V %d\n#define DEEP %d\n",
             s->variant == WB__ATTENTION_FORWARD ? "#define FORWARD\n" : "", (int)views[Q].dims[3],
             (int)views[V].dims[3], t->local_bytes >= LOCAL_BYTES_32 ? 32 : 16);
    const bool wide = wb__gpu_wide(views, s->n_views, WB__MAX(total, q[0] * q[1] * q[2]));
    return wb__gpu_launch_of(
        work, wb__gpu_text((int)views[Q].dtype, wide, defines, wb__gpu_text_attention, ""), &plan);
}

int wb__gpu_step_attention(const wb__gpu_target *t, const wb__step *s, wb__gpu_work *work)
{
    enum { W = WB__GPU_WORKSPACE };
    const int64_t *q = s->views[Q].dims, *k = s->views[KEYS].dims, many = q[0] * q[1];
    wb__gpu_target anywhere = *t;
    anywhere.is_cpu = false;
    if (!wb__gpu_supports(&anywhere, s))
        return wb__fail(WB_ERROR_UNSUPPORTED,
                        "attention: not for %s, depths %lld and %lld, %lld queries of %lld keys",
                        wb_dtype_name(s->views[Q].dtype), (long long)q[3],
                        (long long)s->views[V].dims[3], (long long)q[2], (long long)k[2]);
    work->impl = "attention, tiles of 64";
    if (s->variant == WB__ATTENTION_FORWARD)
        return launch(t, s, work, "attention_forward", many * blocks(q[2]) * 256, 5,
                      (int[]){Q, KEYS, V, O, LSE});
    work->workspace = (size_t)(many * q[2]) * sizeof(float);
    int e = launch(t, s, work, "attention_queries", many * blocks(q[2]) * 256, 8,
                   (int[]){Q, KEYS, V, O, LSE, DO, W, DQ});
    if (!e)
        e = launch(t, s, work, "attention_keys", many * blocks(k[2]) * 256, 8,
                   (int[]){Q, KEYS, V, LSE, DO, W, DK, DV});
    return e;
}
