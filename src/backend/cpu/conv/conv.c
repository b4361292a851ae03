/* Convolution by matrix products, if neither oneDNN (dnnl.c) nor direct.c is used.
 *
 * The output rows of an image are processed in bands.  The patches of a band are copied to a matrix
 * [pixels, kh*kw*c] (im2col), and the weights are reordered to [kh*kw*c, k].  In the formulas,
 * ^T means transposed:
 *
 *     FORWARD       y  = patches · weights
 *     GRAD_INPUT    patches = dy · weights^T, added into dx (col2im)
 *     GRAD_WEIGHT   dw = patches^T · dy, summed by each task over its bands, then over the tasks
 *
 * Everything is computed in f32 (f64 for f64); patches are converted as they are copied.  A task
 * has a range of the bands and a part of the workspace.  The number of tasks is fixed when the
 * operation is prepared, so the result depends on the number of threads at that time only. */
#include "backend/cpu/product/gemm.h"

#include "backend/cpu/conv/direct.h"
#include "backend/cpu/onednn/dnnl.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    wb__cpu_op op;
    wb__conv_desc d;
    int64_t cg, kg, taps, inner;        /* input and output channels of a group; kh*kw; cg*taps */
    int64_t band, tasks;                /* output rows per band; number of tasks */
    wb_dtype wide;                      /* the computed type */
    size_t size;                        /* bytes of a computed element */
    /* In bytes.  The workspace has the weights at weights_at, and task_bytes for each task from
     * tasks_at on, in which patches_at, image_at, sums_at and scratch_at are offsets. */
    size_t weights_at, tasks_at, task_bytes, patches_at, image_at, sums_at, scratch_at;
    bool narrow;                        /* the stored dtype is f16 or bf16 */
    wb__act act;                        /* FORWARD only */
    /* GRAD_INPUT: sums the patches of a whole image; NULL: add_patches adds them, band by band */
    wb__gather_kernel *gather;
    char impl[32];
} cpu_conv_convolution;

typedef struct {
    const cpu_conv_convolution *p;
    const char *x, *w, *y, *bias;       /* for gradients, dx, dw and dy replace x, w and y */
    char *workspace;
} cpu_conv_job;

/* Converts the weights of all groups to [group][kh*kw][cg][kg] or, for GRAD_INPUT, to
 * [group][kg][kh*kw][cg]. */
static void reorder_weights(const cpu_conv_convolution *p, const char *w, char *to)
{
    const wb__conv_desc *d = &p->d;
    const size_t from_size = wb__dtype_size(d->dtype);
    const bool data = d->kind == WB__CONV_GRAD_INPUT;
    const int64_t s_inner = data ? 1 : p->kg, s_out = data ? p->inner : 1;
    for (int64_t k = 0; k < d->k; k++)
        for (int64_t c = 0; c < p->cg; c++)
            for (int64_t t = 0; t < p->taps; t++, w += from_size) {
                const int64_t at =
                    k / p->kg * p->inner * p->kg + k % p->kg * s_out + (t * p->cg + c) * s_inner;
                if (p->wide == d->dtype && p->size == sizeof(float))
                    memcpy(to + (size_t)at * sizeof(float), w, sizeof(float));
                else wb__widen(to + (size_t)at * p->size, w, d->dtype, 1);
            }
}

static int64_t x_index(const wb__conv_desc *d, int64_t n, int64_t c, int64_t i, int64_t j)
{
    return ((n * d->h + i) * d->w + j) * d->c + c;
}

/* Finds the input position that tap (a, b) reads for output (i, j); false: it is in the padding. */
static bool cpu_conv_source(const wb__conv_desc *d, int64_t i, int64_t j, int64_t a, int64_t b,
                            int64_t *row, int64_t *col)
{
    *row = i * d->stride[0] - d->pad[0] + a * d->dilation[0];
    *col = j * d->stride[1] - d->pad[2] + b * d->dilation[1];
    return *row >= 0 && *row < d->h && *col >= 0 && *col < d->w;
}

/* Copies the patches of output rows [i0, i1) of image n, group g. */
static void copy_patches(const cpu_conv_convolution *p, const char *x, int64_t n, int64_t g,
                         int64_t i0, int64_t i1, char *patches)
{
    const wb__conv_desc *d = &p->d;
    const size_t from_size = wb__dtype_size(d->dtype), run = (size_t)p->cg * p->size;
    const bool whole = d->groups == 1 && d->dilation[1] == 1;   /* a row of taps is contiguous */
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = 0; j < d->ow; j++)
            for (int64_t a = 0; a < d->kh; a++) {
                int64_t r, c;
                if (whole && cpu_conv_source(d, i, j, a, 0, &r, &c) && c + d->kw <= d->w) {
                    wb__widen(patches, x + (size_t)x_index(d, n, 0, r, c) * from_size, d->dtype,
                              d->kw * d->c);
                    patches += (size_t)d->kw * run;
                    continue;
                }
                for (int64_t b = 0; b < d->kw; b++, patches += run) {
                    if (!cpu_conv_source(d, i, j, a, b, &r, &c)) memset(patches, 0, run);
                    else
                        wb__widen(patches, x + (size_t)x_index(d, n, g * p->cg, r, c) * from_size,
                                  d->dtype, p->cg);
                }
            }
}

#define ADD_RUN(T, to, from, n)                                                         \
    for (int64_t q_ = 0; q_ < (n); q_++) ((T *)(to))[q_] += ((const T *)(from))[q_]

static void cpu_conv_add_run(bool is_double, char *to, const char *from, int64_t n)
{
    if (is_double) { ADD_RUN(double, to, from, n); }
    else { ADD_RUN(float, to, from, n); }
}

/* Adds patches into an image of the computed dtype: the gradient of copying patches. */
static void add_patches(const cpu_conv_convolution *p, char *image, int64_t g, int64_t i0,
                        int64_t i1, const char *patches)
{
    const wb__conv_desc *d = &p->d;
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = 0; j < d->ow; j++)
            for (int64_t a = 0; a < d->kh; a++)
                for (int64_t b = 0; b < d->kw; b++, patches += (size_t)p->cg * p->size) {
                    int64_t r, c;
                    if (!cpu_conv_source(d, i, j, a, b, &r, &c)) continue;
                    cpu_conv_add_run(p->wide == WB_F64,
                                     image + (size_t)x_index(d, 0, g * p->cg, r, c) * p->size,
                                     patches, p->cg);
                }
}

/* Describes the matrix product of a band of `pixels` output pixels, with NULL pointers. */
static wb__gemm cpu_conv_product_of(const cpu_conv_convolution *p, int64_t pixels)
{
    const wb__conv_desc *d = &p->d;
    wb__gemm g = { .m = pixels, .as1 = 1, .bs1 = 1, .cs1 = 1, .a_type = p->wide,
                   .b_type = p->wide, .c_type = p->wide, .bias_type = d->dtype,
                   .round = d->dtype == WB_BF16 };  /* patches and weights were bf16 */
    switch (d->kind) {
    case WB__CONV_FORWARD:          /* y[pixel, out] = patches[pixel, inner] · w[inner, out] */
        g.act = p->act;
        g.k = p->inner, g.n = p->kg;
        g.as0 = p->inner, g.bs0 = p->kg;
        /* a narrow y is computed in f32 in the workspace, then converted */
        g.cs0 = p->narrow ? p->kg : d->k;
        break;
    case WB__CONV_GRAD_INPUT:       /* patches[pixel, inner] = dy[pixel, out] · w[out, inner] */
        g.a_type = d->dtype;
        g.k = p->kg, g.n = p->inner;
        g.as0 = d->k, g.bs0 = p->inner, g.cs0 = p->inner;
        break;
    case WB__CONV_GRAD_WEIGHT:      /* dw[inner, out] += patches[inner, pixel] · dy[pixel, out] */
        g.b_type = d->dtype;
        g.add_to_c = true;
        g.m = p->inner, g.k = pixels, g.n = p->kg;
        g.as0 = 1, g.as1 = p->inner, g.bs0 = d->k, g.cs0 = p->kg;
        break;
    }
    return g;
}

static void cpu_conv_one_band(const cpu_conv_job *j, char *mine, int64_t n, int64_t group,
                              int64_t i0, int64_t i1)
{
    const cpu_conv_convolution *p = j->p;
    const wb__conv_desc *d = &p->d;
    const size_t stored = wb__dtype_size(d->dtype), w_at = (size_t)(group * p->inner * p->kg);
    const int64_t pixels = (i1 - i0) * d->ow;
    const int64_t y_at = (n * d->oh + i0) * d->ow * d->k + group * p->kg;
    char *patches = mine + p->patches_at, *w = j->workspace + p->weights_at + w_at * p->size;
    char *y = (char *)j->y + (size_t)y_at * stored;
    wb__gemm g = cpu_conv_product_of(p, pixels);
    if (d->kind != WB__CONV_GRAD_INPUT) copy_patches(p, j->x, n, group, i0, i1, patches);
    switch (d->kind) {
    case WB__CONV_FORWARD:
        g.a = patches, g.b = w, g.c = p->narrow ? mine + p->sums_at : y;
        if (d->has_bias) g.bias = j->bias + (size_t)(group * p->kg) * stored;
        break;
    case WB__CONV_GRAD_INPUT: g.a = y, g.b = w, g.c = patches; break;
    case WB__CONV_GRAD_WEIGHT:
        g.a = patches, g.b = y, g.c = mine + p->sums_at + w_at * p->size;
        break;
    }
    wb__gemm_run(&g, mine + p->scratch_at);
    if (d->kind == WB__CONV_FORWARD && p->narrow)
        for (int64_t i = 0; i < pixels; i++)
            wb__narrow(y + (size_t)(i * d->k) * stored, d->dtype, (float *)g.c + i * p->kg, p->kg);
}

static void cpu_conv_one_task(void *ctx, int64_t task)
{
    const cpu_conv_job *j = ctx;
    const cpu_conv_convolution *p = j->p;
    const wb__conv_desc *d = &p->d;
    const size_t stored = wb__dtype_size(d->dtype);
    const int64_t image = d->c * d->h * d->w;
    char *mine = j->workspace + p->tasks_at + (size_t)task * p->task_bytes;
    if (d->kind == WB__CONV_GRAD_WEIGHT)
        memset(mine + p->sums_at, 0, (size_t)(d->k * p->inner) * p->size);
    /* Each task has a range of bands.  With GRAD_INPUT, the bands of an image overlap in dx, so a
     * task has whole images. */
    const int64_t bands = WB__MAX((d->oh + p->band - 1) / p->band, 1);
    const int64_t unit = d->kind == WB__CONV_GRAD_INPUT ? bands : 1, units = d->n * bands / unit;
    const int64_t from = units * task / p->tasks * unit, to = units * (task + 1) / p->tasks * unit;
    for (int64_t u = from; u < to; u++) {
        const int64_t n = u / bands, i0 = u % bands * p->band, i1 = WB__MIN(i0 + p->band, d->oh);
        char *dx = (char *)j->x + (size_t)(n * image) * stored;
        char *wide = p->narrow ? mine + p->image_at : dx;
        if (d->kind == WB__CONV_GRAD_INPUT && i0 == 0 && !(p->gather && i1 > 0 && d->ow > 0))
            memset(wide, 0, (size_t)image * p->size);
        if (i1 > i0 && d->ow > 0)
            for (int64_t g = 0; g < d->groups; g++) {
                cpu_conv_one_band(j, mine, n, g, i0, i1);
                if (p->gather)
                    p->gather(d, p->cg, mine + p->patches_at, wide + (size_t)(g * p->cg) * p->size);
                else if (d->kind == WB__CONV_GRAD_INPUT)
                    add_patches(p, wide, g, i0, i1, mine + p->patches_at);
            }
        if (d->kind == WB__CONV_GRAD_INPUT && p->narrow && u % bands == bands - 1)
            wb__narrow(dx, d->dtype, wide, image);
    }
}

/* Adds up the gradients of all tasks, in order, and writes the sum to dw in the layout of dw. */
static void cpu_conv_add_sums(const cpu_conv_job *j)
{
    const cpu_conv_convolution *p = j->p;
    const wb__conv_desc *d = &p->d;
    char *first = j->workspace + p->tasks_at + p->sums_at;
    for (int64_t t = 1; t < p->tasks; t++)
        cpu_conv_add_run(p->wide == WB_F64, first, first + (size_t)t * p->task_bytes,
                         d->k * p->inner);
    const size_t stored = wb__dtype_size(d->dtype);
    char *to = (char *)j->w;
    for (int64_t k = 0; k < d->k; k++)
        for (int64_t c = 0; c < p->cg; c++)
            for (int64_t t = 0; t < p->taps; t++, to += stored) {
                const int64_t at = ((k / p->kg * p->taps + t) * p->cg + c) * p->kg + k % p->kg;
                wb__narrow(to, d->dtype, first + (size_t)at * p->size, 1);
            }
}

static void run_convolution(const wb__cpu_op *op, void *const *buffers, void *workspace)
{
    const cpu_conv_convolution *p = (const cpu_conv_convolution *)op;
    cpu_conv_job j = { p, buffers[0], buffers[1], buffers[2], p->d.has_bias ? buffers[3] : NULL,
                       workspace };
    if (p->d.kind != WB__CONV_GRAD_WEIGHT) reorder_weights(p, j.w, j.workspace + p->weights_at);
    wb__parallel(p->tasks, cpu_conv_one_task, &j);
    if (p->d.kind == WB__CONV_GRAD_WEIGHT) cpu_conv_add_sums(&j);
}

static void cpu_conv_lay_out(cpu_conv_convolution *p)
{
    enum { PATCH_BYTES = 192 * 1024,    /* a band's patches fit in L2 beside the weights */
           GATHER_BYTES = 1536 * 1024 };
    const wb__conv_desc *d = &p->d;
    const size_t row = (size_t)(d->ow * p->inner) * p->size,
                 weights = (size_t)(d->k * p->inner) * p->size;
    p->band = WB__MAX(WB__MIN(row ? (int64_t)(PATCH_BYTES / row) : d->oh, d->oh), 1);
    if (d->kind == WB__CONV_GRAD_INPUT && row * (size_t)d->oh <= GATHER_BYTES && d->kh <= 64
        && d->kw <= 64) {
        const wb__isa *isa = wb__isa_best();
        p->gather = p->wide == WB_F64 ? isa->gather_f64 : isa->gather_f32;
        p->band = WB__MAX(d->oh, 1);
    }
    const int64_t bands = (d->oh + p->band - 1) / p->band;
    const int64_t units = d->kind == WB__CONV_GRAD_INPUT ? d->n : d->n * bands;
    const double work = (double)d->n * (double)(d->oh * d->ow * d->k) * (double)p->inner;
    p->tasks = work < 100e3 ? 1 : WB__MAX(WB__MIN(wb__threads(), units), 1);
    p->weights_at = 0;
    p->tasks_at = d->kind != WB__CONV_GRAD_WEIGHT ? wb__aligned(weights) : 0;
    size_t at = 0;
    p->patches_at = at, at += wb__aligned(row * (size_t)p->band);
    p->image_at = at;
    if (d->kind == WB__CONV_GRAD_INPUT && p->narrow)
        at += wb__aligned((size_t)(d->c * d->h * d->w) * p->size);
    p->sums_at = at;
    if (d->kind == WB__CONV_GRAD_WEIGHT) at += wb__aligned(weights);
    if (d->kind == WB__CONV_FORWARD && p->narrow)
        at += wb__aligned((size_t)(p->band * d->ow * p->kg) * p->size);
    p->scratch_at = at;
    wb__gemm full = cpu_conv_product_of(p, p->band * d->ow),
             last = cpu_conv_product_of(p, d->oh % p->band * d->ow);
    at += wb__aligned(WB__MAX(wb__gemm_scratch(&full), wb__gemm_scratch(&last)));
    p->task_bytes = at;
    p->op.workspace = p->tasks_at + (size_t)p->tasks * at;
}

/* Computes any convolution of numbers by patches, as a product with the rows of its windows. */
static int conv_by_patches(const wb__conv_desc *d, wb__cpu_op **op, const char **reason)
{
    (void)reason;
    if (!wb__dtype_float(d->dtype))
        return wb__fail(WB_ERROR_UNSUPPORTED, "conv: not for dtype %s", wb_dtype_name(d->dtype));
    if (d->groups < 1 || d->c % d->groups || d->k % d->groups)
        return wb__fail(WB_ERROR_SHAPE, "conv: %lld groups do not divide %lld and %lld channels",
                        (long long)d->groups, (long long)d->c, (long long)d->k);
    cpu_conv_convolution *p = wb__alloc_zero(1, sizeof *p);
    if (!p) return WB_ERROR_MEMORY;
    p->d = *d;
    p->cg = d->c / d->groups;
    p->kg = d->k / d->groups;
    p->taps = d->kh * d->kw;
    p->inner = p->cg * p->taps;
    p->wide = d->dtype == WB_F64 ? WB_F64 : WB_F32;
    p->size = wb__dtype_size(p->wide);
    p->narrow = p->wide != d->dtype;
    p->act = wb__act_of(d->act, p->wide);
    p->op.run = run_convolution;
    p->op.destroy = wb__cpu_op_free;
    cpu_conv_lay_out(p);
    snprintf(p->impl, sizeof p->impl, "im2col gemm %s", wb__isa_best()->name);
    p->op.impl = p->impl;
    *op = &p->op;
    return 0;
}

static bool conv_always(const wb__conv_desc *d) { return d != NULL; }
/* Whether d is an input gradient with an epilogue or a bias: a transposed convolution. */
static bool conv_has_epilogue(const wb__conv_desc *d)
{
    return d->kind == WB__CONV_GRAD_INPUT && (d->has_bias || d->act);
}
/* Whether d has few channels, of which oneDNN's blocks of 16 channels are mostly empty (LeNet,
 * batch 64, one thread, microseconds: forward 138 by `direct` and 303 by oneDNN for 1 input and 6
 * output channels, 136 and 150 for 6 and 16; the gradient of the first weights 158 and 270, that of
 * the 6 channels 224 by `strips` and 450). */
static bool conv_thin_forward(const wb__conv_desc *d)
{
    return d->kind == WB__CONV_FORWARD && d->c <= 8 && d->k <= 16;
}
static bool conv_thin_input(const wb__conv_desc *d)
{
    return d->kind == WB__CONV_GRAD_INPUT && d->c <= 8 && d->kw > 1;
}
static bool conv_thin_weight(const wb__conv_desc *d)
{
    return d->kind == WB__CONV_GRAD_WEIGHT && d->c == 1 && d->k <= 8 && d->stride[1] == 1;
}

/* The ways to compute a convolution, in the order in which they are tried.  The first row whose
 * `suits` is true and whose `make` makes an operation computes it. */
static const struct {
    bool (*suits)(const wb__conv_desc *d);
    /* Makes *op.  *op stays NULL if this way does not compute d; *reason is why not, or NULL. */
    int (*make)(const wb__conv_desc *d, wb__cpu_op **op, const char **reason);
    const char *why;                    /* why no library computes it, or NULL */
} conv_ways[] = {
    {conv_always, wb__winograd_conv, NULL},
    {conv_has_epilogue, wb__conv_epilogue, NULL},
    {conv_thin_forward, wb__direct_conv, "our own kernel is faster for thin channels"},
    {conv_thin_input, wb__strips_conv, "our own kernel is faster for thin channels"},
    {conv_thin_weight, wb__direct_conv, "our own kernel is faster for thin channels"},
    {conv_always, wb__dnnl_conv, NULL},
    {conv_always, wb__direct_conv, NULL},
    {conv_always, wb__strips_conv, NULL},
    {conv_always, conv_by_patches, NULL},
};

int wb__cpu_conv(const wb__conv_desc *d, wb__cpu_op **op)
{
    const char *reason = NULL;
    int error = 0;
    *op = NULL;
    for (size_t i = 0; i < WB__COUNT(conv_ways) && !error && !*op; i++) {
        const char *refusal = NULL;
        if (conv_ways[i].suits(d)) error = conv_ways[i].make(d, op, &refusal);
        const char *why = *op ? conv_ways[i].why : refusal;
        if (why) reason = why;
    }
    if (*op && !(*op)->reason) (*op)->reason = reason;
    return error;
}
