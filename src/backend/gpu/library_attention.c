/* Attention as launches of kernels/attention.k. */
#include "backend/gpu/library.h"

#include <stdio.h>

enum { GPU_ATTN_Q, GPU_ATTN_KEYS, GPU_ATTN_V, GPU_ATTN_O, GPU_ATTN_LSE, GPU_ATTN_DO, GPU_ATTN_DQ,
       GPU_ATTN_DK, GPU_ATTN_DV, SIDE = 64, GPU_ATTN_MAX_DEPTH = 128, WAVES = 4 };
/* Bytes of local memory that a group of kernels/attention.k needs with DEEP 16 and with DEEP 32,
 * and that a group of attention_fragments.k needs beside its stages. */
enum { LOCAL_BYTES_16 = 28 << 10, LOCAL_BYTES_32 = 36 << 10, LOCAL_BYTES_BESIDE = 6 << 10 };

_Static_assert(sizeof(wb__attention_args) == 4 * 8 + 9 * 8 + 27 * 8 + 8 + 8, "no holes");

/* Whether our kernels execute an optional step: products in fused kernels and attention, except
 * where the composed steps are faster. */
bool wb__gpu_supports(const wb__gpu_target *t, const wb__step *s)
{
    if (t->composes) return false;
    if (s->kind == WB__STEP_FUSED) return wb__fuse_takes_product(t, s);
    if (s->kind != WB__STEP_ATTENTION || t->local_bytes < LOCAL_BYTES_16) return false;
    if (s->variant == WB__ATTENTION_CACHED) return false;   /* composed: more groups */
    const wb_dtype dtype = s->views[GPU_ATTN_Q].dtype;
    if (dtype != WB_F32 && !wb__is_half(dtype)) return false;
    for (int i = 0; i < s->n_views; i++) {
        const wb__view *v = &s->views[i];
        if (v->ndim != 4 || v->dtype != (i == GPU_ATTN_LSE ? WB_F32 : dtype)) return false;
        if (v->dims[3] < 1 || v->dims[3] > GPU_ATTN_MAX_DEPTH) return false;
        if (v->strides[3] != 1 && v->dims[3] > 1) return false;
    }
    const int64_t *q = s->views[GPU_ATTN_Q].dims, *k = s->views[GPU_ATTN_KEYS].dims;
    const int64_t many = q[0] * q[1], groups = many * wb__quotient_up(WB__MAX(q[2], k[2]), SIDE);
    if (!many || !q[2] || !k[2] || groups > INT32_MAX / 64) return false;
    return !s->attention.causal || q[2] <= k[2];
}

typedef struct {
    const char *entry, *define;             /* name in attention.k; macro that selects it */
    bool of_keys;                           /* a group processes rows of keys; false: of queries */
    int n, operands[8];                     /* indices of the step's views; -1: the workspace */
} gpu_attn_kernel;

/* Returns the items of a wave that multiplies fragments; 0: the kernels multiply single elements.
 * Waves of 8 items have too few registers for their rows of fragments. */
static int gpu_attn_lanes_of(const wb__gpu_target *t, const wb__step *s)
{
    const wb_dtype d = s->views[GPU_ATTN_Q].dtype;
    const int lanes = d == WB_BF16 ? t->fragments_bf16 : d == WB_F16 ? t->fragments_f16 : 0;
    return s->attention.scale > 0 && lanes != 8 ? lanes : 0;
}

/* Returns how many times 16 rows a wave processes.  Twice 16 rows need half of the loads from local
 * memory, but many registers and half of the groups. */
static int gpu_attn_up_of(const wb__gpu_target *t, const wb__step *s, const gpu_attn_kernel *k)
{
    const int64_t *q = s->views[GPU_ATTN_Q].dims,
                  groups = q[0] * q[1] * wb__quotient_up(q[2], 2 * SIDE);
    const bool narrow = q[3] <= 64 && s->views[GPU_ATTN_V].dims[3] <= 64;
    return narrow && !k->of_keys && groups >= 2 * (t->processors ? t->processors : 132) ? 2 : 1;
}

/* Returns the most rows for which local memory has space for two stages (blocks of an operand). */
static int side_of(const wb__gpu_target *t, const wb__step *s)
{
    const int64_t padded = 16 * (wb__quotient_up(s->views[GPU_ATTN_Q].dims[3], 16) +
                                 wb__quotient_up(s->views[GPU_ATTN_V].dims[3], 16));
    const int64_t fits = WB__MIN((int64_t)t->local_bytes, 48 << 10) - LOCAL_BYTES_BESIDE;
    int side = 64;
    while (side > 16 && 2 * side * (padded + 16) * 2 > fits) side /= 2;
    return side;
}

static int gpu_attn_launch(const wb__gpu_target *t, const wb__step *s, wb__gpu_work *work,
                           gpu_attn_kernel run)
{
    const wb__view *views = s->views;
    const int64_t *q = views[GPU_ATTN_Q].dims, *k = views[GPU_ATTN_KEYS].dims;
    const int lanes = gpu_attn_lanes_of(t, s), up = lanes ? gpu_attn_up_of(t, s, &run) : 1;
    const int64_t items = lanes ? WAVES * lanes : 256;
    const int64_t total = q[0] * q[1] * wb__quotient_up(run.of_keys ? k[2] : q[2], SIDE * up) *
                          items;
    const bool forward = s->variant == WB__ATTENTION_FORWARD;
    char defines[160];
    wb__attention_args args = {
        .queries = wb__wide_of(q[2]), .keys = wb__wide_of(k[2]), .heads = wb__wide_of(q[1]),
        .batches = wb__wide_of(q[0]), .scale = (float)s->attention.scale,
        .causal = s->attention.causal};
    wb__gpu_plan plan = {.entry = run.entry, .n_buffers = run.n, .args = &args,
                         .args_bytes = sizeof args, .workspace_at = -1, .total = total,
                         .items = items};
    for (int i = 0; i < s->n_views; i++) {
        args.at[i] = wb__wide_of(views[i].offset);
        plan.origins[i].view = &views[i];
        plan.origins[i].at = offsetof(wb__attention_args, at) + (size_t)i * sizeof args.at[i];
        for (int d = 0; d < 3; d++) args.step[i][d] = wb__wide_of(views[i].strides[d]);
    }
    for (int i = 0; i < run.n; i++) {
        const int at = run.operands[i];
        plan.buffers[i] = at < 0 ? WB__GPU_WORKSPACE : views[at].buffer;
        if (at < 0) plan.workspace_at = (int)offsetof(wb__attention_args, work_at);
    }
    int n = snprintf(defines, sizeof defines,
                     "#define %s\n#define DEPTH %d\n#define WIDTH_V %d\n",
                     lanes || forward ? run.define : "GRADIENTS",
                     (int)views[GPU_ATTN_Q].dims[3], (int)views[GPU_ATTN_V].dims[3]);
    if (lanes)
        snprintf(defines + n, sizeof defines - (size_t)n,
                 "#define UP %d\n#define SIDE %d\n#define FRAGMENTS %d\n", up, side_of(t, s),
                 lanes);
    else
        snprintf(defines + n, sizeof defines - (size_t)n, "#define DEEP %d\n",
                 t->local_bytes >= LOCAL_BYTES_32 ? 32 : 16);
    const bool wide = wb__gpu_needs_wide(views, s->n_views, WB__MAX(total, q[0] * q[1] * q[2]));
    char *rest = wb__printf("%s%s", wb__gpu_text_attention,
                            lanes ? wb__gpu_text_attention_fragments : "");
    if (!rest) return WB_ERROR_MEMORY;
    char *text = wb__gpu_source((int)views[GPU_ATTN_Q].dtype, wide, defines,
                                lanes ? wb__gpu_text_fragments : "", rest);
    wb__free(rest);
    work->impl = lanes ? "attention, fragments" : "attention, tiles of 64";
    return wb__gpu_launch_of(work, text, &plan);
}

int wb__gpu_step_attention(const wb__gpu_target *t, const wb__step *s, wb__gpu_work *work)
{
    enum { W = WB__GPU_WORKSPACE };
    const int64_t *q = s->views[GPU_ATTN_Q].dims, *k = s->views[GPU_ATTN_KEYS].dims,
                  many = q[0] * q[1];
    wb__gpu_target anywhere = *t;
    anywhere.composes = false;
    if (!wb__gpu_supports(&anywhere, s))
        return wb__fail(WB_ERROR_UNSUPPORTED,
                        "attention: not for %s, depths %lld and %lld, %lld queries of %lld keys",
                        wb_dtype_name(s->views[GPU_ATTN_Q].dtype), (long long)q[3],
                        (long long)s->views[GPU_ATTN_V].dims[3], (long long)q[2], (long long)k[2]);
    if (s->variant == WB__ATTENTION_FORWARD)
        return gpu_attn_launch(t, s, work,
                               (gpu_attn_kernel){"attention_forward", "FORWARD", false, 5,
                                                 {GPU_ATTN_Q, GPU_ATTN_KEYS, GPU_ATTN_V, GPU_ATTN_O,
                                                  GPU_ATTN_LSE}});
    work->workspace = (size_t)(many * q[2]) * sizeof(float);
    int e = gpu_attn_launch(t, s, work,
                            (gpu_attn_kernel){"attention_queries", "OF_QUERIES", false, 8,
                                              {GPU_ATTN_Q, GPU_ATTN_KEYS, GPU_ATTN_V, GPU_ATTN_O,
                                               GPU_ATTN_LSE, GPU_ATTN_DO, W, GPU_ATTN_DQ}});
    if (!e)
        e = gpu_attn_launch(t, s, work,
                            (gpu_attn_kernel){"attention_keys", "OF_KEYS", true, 8,
                                              {GPU_ATTN_Q, GPU_ATTN_KEYS, GPU_ATTN_V, GPU_ATTN_LSE,
                                               GPU_ATTN_DO, W, GPU_ATTN_DK, GPU_ATTN_DV}});
    return e;
}
