/* The gradient of a convolution's input: f32, one group, no dilation; fastest with few channels.
 *
 * With channels innermost, a pixel of dy changes a strip of kw*c contiguous numbers in each of kh
 * rows of dx.  A vector holds neighbouring numbers of a strip, so few of its lanes are empty
 * although there are few channels.  For each row of dx, the strips of a row of pixels are one
 * matrix product, [ow, kh*k] by [kh*k, kw*c], whose inner index runs over the rows of dy that
 * change the row; then the strips, which overlap, are added up (strips_kernel.h).  Rows are
 * independent, so the bits are the same for each number of threads. */
#include "backend/cpu/conv/direct.h"

#include "backend/cpu/isa.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    wb__cpu_op op;
    wb__conv_desc d;
    const wb__gemm_kernel *kernel;      /* computes strips */
    wb__strips_kernel *add;             /* adds strips up to a row of dx */
    wb__strips strips;
    int64_t packed;                     /* columns of the packed weights: whole vectors */
    int64_t tasks;
    size_t weights_bytes, task_bytes;   /* weights_bytes: of the packed weights */
    char impl[32];
} strips_gradient;

typedef struct {
    const strips_gradient *p;
    const float *w, *dy;
    float *dx;
    char *workspace;
} strips_job;

/* Packs the weights [k, c, kh, kw] as [kh][k][kw*c], padded with 0. */
static void strips_pack(const strips_job *j)
{
    const wb__conv_desc *d = &j->p->d;
    const int64_t taps = d->kh * d->kw;
    float *to = (float *)j->workspace;
    for (int64_t a = 0; a < d->kh; a++)
        for (int64_t k = 0; k < d->k; k++, to += j->p->packed) {
            const float *from = j->w + k * d->c * taps + a * d->kw;
            for (int64_t b = 0; b < d->kw; b++)
                for (int64_t c = 0; c < d->c; c++) to[b * d->c + c] = from[c * taps + b];
            for (int64_t i = d->kw * d->c; i < j->p->packed; i++) to[i] = 0;
        }
}

/* Computes the strips of row r of image n.  Returns false if no row of dy changes this row. */
static bool strips_of(const strips_job *j, int64_t n, int64_t r, float *strips)
{
    const strips_gradient *p = j->p;
    const wb__conv_desc *d = &p->d;
    /* row i of dy changes row i*stride - pad + a by its taps of row a */
    const int64_t at = r + d->pad[0], stride = d->stride[0];
    const int64_t low = WB__MAX(at - (d->oh - 1) * stride, 0);
    const int64_t first = low + (at - low) % stride, last = WB__MIN(d->kh - 1, at);
    if (first > last) return false;
    const wb__tile t = { .outer = (last - first) / stride + 1,
                         .k = d->k,
                         .as0 = d->k,
                         .as1 = 1,
                         .a_outer = -d->ow * d->k,
                         .bs0 = p->packed,
                         .b_outer = stride * d->k * p->packed, .cs0 = p->strips.stride };
    const float *dy = j->dy + (n * d->oh + (at - first) / stride) * d->ow * d->k,
                *w = (const float *)j->workspace + first * d->k * p->packed;
    for (int64_t q = 0; q < d->ow; q += p->kernel->mr)
        for (int64_t i = 0; i < p->strips.width; i += p->kernel->nr)
            p->kernel->tile((int)WB__MIN(d->ow - q, p->kernel->mr),
                            (int)WB__MIN(p->strips.width - i, p->kernel->nr), dy + q * d->k, w + i,
                            strips + q * p->strips.stride + i, &t);
    return true;
}

static void strips_one_task(void *ctx, int64_t task)
{
    const strips_job *j = ctx;
    const strips_gradient *p = j->p;
    const wb__conv_desc *d = &p->d;
    const int64_t units = d->n * d->h, line = d->w * d->c;
    float *mine = (float *)(j->workspace + p->weights_bytes + (size_t)task * p->task_bytes),
          *strips = mine + p->kernel->lanes;
    memset(mine, 0, p->task_bytes);     /* no tile of a product writes the zeros around strips */
    for (int64_t u = units * task / p->tasks; u < units * (task + 1) / p->tasks; u++) {
        float *row = j->dx + u * line;
        if (strips_of(j, u / d->h, u % d->h, strips)) p->add(&p->strips, strips, row);
        else memset(row, 0, (size_t)line * sizeof *row);
    }
}

static void strips_run_gradient(const wb__cpu_op *op, void *const *buffers, void *workspace)
{
    const strips_gradient *p = (const strips_gradient *)op;
    strips_job j = { p, buffers[1], buffers[2], buffers[0], workspace };
    strips_pack(&j);
    wb__parallel(p->tasks, strips_one_task, &j);
}

/* Whether the weights of a strip's taps, all of which it reads, stay in the second-level cache. */
static bool strips_suits(const wb__conv_desc *d)
{
    enum { WEIGHTS = 128 << 10 };
    return (double)(d->kh * d->kw) * (double)d->c * (double)d->k <= WEIGHTS &&
           d->kind == WB__CONV_GRAD_INPUT && d->dtype == WB_F32 && d->groups == 1 &&
           d->dilation[0] == 1 && d->dilation[1] == 1 && !d->has_bias && !d->act && d->n && d->c &&
           d->h && d->w && d->k && d->oh && d->ow && d->kh && d->kw;
}

int wb__strips_conv(const wb__conv_desc *d, wb__cpu_op **op, const char **reason)
{
    (void)reason;
    *op = NULL;
    if (!strips_suits(d)) return 0;
    const wb__isa *isa = wb__isa_best();
    strips_gradient *p = wb__alloc_zero(1, sizeof *p);
    if (!p) return WB_ERROR_MEMORY;
    const int64_t lanes = isa->gemm_f32->lanes, width = d->kw * d->c;
    p->d = *d;
    p->kernel = isa->gemm_f32;
    p->add = isa->strips;
    p->packed = (width + lanes - 1) / lanes * lanes;
    p->strips = (wb__strips){ .count = d->ow, .width = width, .stride = width + lanes,
                              .apart = d->stride[1] * d->c, .left = d->pad[2] * d->c,
                              .n = d->w * d->c };
    const double work = (double)d->n * (double)(d->oh * d->ow * d->k) * (double)(width * d->kh);
    p->tasks = work < 200e3 ? 1 : WB__MIN(wb__threads(), d->n * d->h);
    p->weights_bytes = wb__aligned((size_t)(d->kh * d->k * p->packed) * sizeof(float));
    p->task_bytes = wb__aligned((size_t)(lanes + d->ow * p->strips.stride) * sizeof(float));
    p->op.workspace = p->weights_bytes + (size_t)p->tasks * p->task_bytes;
    p->op.run = strips_run_gradient;
    p->op.destroy = wb__cpu_op_free;
    snprintf(p->impl, sizeof p->impl, "strips %s", isa->name);
    p->op.impl = p->impl;
    *op = &p->op;
    return 0;
}
