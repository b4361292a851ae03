/* Convolution without patches: f32, one group, no dilation.
 *
 * With channels innermost, a window's row of taps is kw*c contiguous numbers of x.  A convolution
 * is thus a matrix product whose inner index runs over kh such rows, which are read in place.  The
 * result is computed in tiles of pixels by output channels (gemm_kernel.h).
 *
 *                   rows of the tile   outer sum   inner sum   B
 *     FORWARD       pixels             kh          kw*c        weights, packed
 *     GRAD_INPUT    like FORWARD, with padded dy as input and mirrored weights (stride 1 only)
 *     GRAD_WEIGHT   kw*c taps          oh          ow          dy, in place
 *
 * If there is padding, a band of the image is first copied to the workspace, with zeros around
 * it. */
#include "backend/cpu/conv/direct.h"

#include "backend/cpu/isa.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    wb__cpu_op op;
    wb__conv_desc d;
    const wb__isa *isa;
    const wb__gemm_kernel *kernel;
    /* sizes of the computed correlation; for GRAD_INPUT, its input is dy and its output dx */
    int64_t n, h, w, c, k, oh, ow;
    int64_t stride[2], top, left;       /* top, left: rows and columns of padding */
    int64_t rows_in, width_in;          /* size of a padded band */
    int64_t band, bands, tasks;         /* output rows of a band; number of bands, of tasks */
    int64_t width;                      /* output channels of a block: whole vectors */
    bool padded;
    wb__act act;                        /* FORWARD only */
    bool line;  /* one channel of x, at most 8 of y, stride 1 along rows: line_kernel.h */
    size_t weights_bytes, task_bytes, sums_at;  /* sums_at: offset in a task's task_bytes */
    char impl[32];
} direct;

typedef struct {
    const direct *p;
    const float *x, *w, *y, *bias;
    char *workspace;
} direct_job;

/* Returns the input rows that output rows [i0, i0 + rows) of image n read.  If the image has
 * padding, copies them to `to` with zeros around them; else returns them in place. */
static const float *direct_band_of(const direct *p, const float *x, int64_t n, int64_t i0,
                                   int64_t rows, float *to)
{
    const float *image = x + n * p->h * p->w * p->c;
    const int64_t first = i0 * p->stride[0] - p->top, line = p->width_in * p->c;
    if (!p->padded) return image + first * p->w * p->c;
    const int64_t take = WB__MIN(p->w, p->width_in - p->left) * p->c, left = p->left * p->c;
    float *at = to;
    for (int64_t r = first; r < first + (rows - 1) * p->stride[0] + p->d.kh; r++, at += line) {
        if (r < 0 || r >= p->h) {
            memset(at, 0, (size_t)line * sizeof *at);
            continue;
        }
        memset(at, 0, (size_t)left * sizeof *at);
        memcpy(at + left, image + r * p->w * p->c, (size_t)take * sizeof *at);
        memset(at + left + take, 0, (size_t)(line - left - take) * sizeof *at);
    }
    return to;
}

/* Packs a block of `width` output channels of the weights as [kh][kw*c][width].  Channels after the
 * last are 0.  GRAD_INPUT: the taps are mirrored, and input and output channels exchanged. */
static void direct_pack_block(void *ctx, int64_t block)
{
    const direct_job *j = ctx;
    const direct *p = j->p;
    const bool data = p->d.kind == WB__CONV_GRAD_INPUT;
    const int64_t taps = p->d.kh * p->d.kw, k0 = block * p->width;
    const int64_t real = WB__MIN(p->width, p->k - k0);
    const int64_t s_in = data ? p->k * taps : taps, s_out = data ? taps : p->c * taps;
    float *to = (float *)j->workspace + block * taps * p->c * p->width;
    for (int64_t t = 0; t < taps; t++)
        for (int64_t c = 0; c < p->c; c++, to += p->width) {
            const float *from = j->w + k0 * s_out + c * s_in + (data ? taps - 1 - t : t);
            for (int64_t i = 0; i < real; i++) to[i] = from[i * s_out];
            for (int64_t i = real; i < p->width; i++) to[i] = 0;
        }
}

/* Describes `rows` rows of outputs for line_kernel.h. */
static wb__line direct_line_of(const direct *p, int64_t rows)
{
    return (wb__line){ .kh = p->d.kh, .kw = p->d.kw, .line = p->width_in,
                       .step = p->stride[0] * p->width_in, .rows = rows, .n = p->ow, .k = p->k,
                       .relu = p->act.relu };
}

static void direct_forward_task(void *ctx, int64_t task)
{
    const direct_job *j = ctx;
    const direct *p = j->p;
    const int mr = p->kernel->mr;
    const int64_t kh = p->d.kh, run = p->d.kw * p->c, units = p->n * p->bands;
    float *mine = (float *)(j->workspace + p->weights_bytes + (size_t)task * p->task_bytes);
    wb__tile t = { .outer = kh,
                   .k = run,
                   .as0 = p->stride[1] * p->c,
                   .as1 = 1,
                   .a_outer = p->width_in * p->c,
                   .bs0 = p->width,
                   .b_outer = run * p->width,
                   .cs0 = p->k, .relu = p->act.relu };
    float bias[8] = { 0 };
    if (p->line && j->bias) memcpy(bias, j->bias, (size_t)p->k * sizeof *bias);
    for (int64_t u = units * task / p->tasks; u < units * (task + 1) / p->tasks; u++) {
        const int64_t n = u / p->bands, i0 = u % p->bands * p->band,
                      rows = WB__MIN(p->band, p->oh - i0);
        const float *x = direct_band_of(p, j->x, n, i0, rows, mine);
        float *y = (float *)j->y + (n * p->oh + i0) * p->ow * p->k;
        if (p->line) {
            const wb__line l = direct_line_of(p, rows);
            p->isa->line(&l, x, j->workspace, j->bias ? bias : NULL, y);
        } else
        for (int64_t k0 = 0; k0 < p->k; k0 += p->width) {
            const int nr = (int)WB__MIN(p->width, p->k - k0);
            const float *w = (const float *)j->workspace + k0 * kh * run;
            t.bias = j->bias ? j->bias + k0 : NULL;
            for (int64_t i = 0; i < rows; i++)
                for (int64_t q = 0; q < p->ow; q += mr)
                    p->kernel->tile((int)WB__MIN(p->ow - q, mr), nr,
                                    x + (i * p->stride[0] * p->width_in + q * p->stride[1]) * p->c,
                                    w, y + (i * p->ow + q) * p->k + k0, &t);
        }
        if (p->act.row) p->act.row(y, y, NULL, NULL, rows * p->ow * p->k);
    }
}

/* Sets `sums` to the weights' gradient over the images [from, to), which have one channel. */
static void direct_weights_of_lines(const direct_job *j, int64_t from, int64_t to, float *band,
                                    float *sums)
{
    const direct *p = j->p;
    const wb__line l = direct_line_of(p, p->oh);
    const int64_t lanes = p->kernel->lanes, all = l.kh * l.kw * l.k;
    memset(sums, 0, (size_t)(all * lanes) * sizeof *sums);
    for (int64_t n = from; n < to; n++)
        p->isa->line_weights(&l, direct_band_of(p, j->x, n, 0, p->oh, band),
                             j->y + n * p->oh * p->ow * p->k, sums);
    for (int64_t i = 0; i < all; i++) {
        float sum = 0;
        for (int64_t lane = 0; lane < lanes; lane++) sum += sums[i * lanes + lane];
        sums[i] = sum;
    }
}

/* Computes the gradient of the weights over the images of this task, as [kh][kw*c][k] in the task's
 * part of the workspace. */
static void direct_weights_task(void *ctx, int64_t task)
{
    const direct_job *j = ctx;
    const direct *p = j->p;
    const int mr = p->kernel->mr;
    const int64_t kh = p->d.kh, run = p->d.kw * p->c, line = p->width_in * p->c;
    char *mine = j->workspace + (size_t)task * p->task_bytes;
    float *sums = (float *)(mine + p->sums_at);
    wb__tile t = { .outer = p->oh,
                   .k = p->ow,
                   .as0 = 1,
                   .as1 = p->stride[1] * p->c,
                   .a_outer = p->stride[0] * line,
                   .bs0 = p->k,
                   .b_outer = p->ow * p->k, .cs0 = p->k };
    const int64_t from = p->n * task / p->tasks, to = p->n * (task + 1) / p->tasks;
    if (p->line) {
        direct_weights_of_lines(j, from, to, (float *)mine, sums);
        return;
    }
    for (int64_t n = from; n < to; n++, t.add = true) {
        const float *x = direct_band_of(p, j->x, n, 0, p->oh, (float *)mine),
                    *dy = j->y + n * p->oh * p->ow * p->k;
        for (int64_t k0 = 0; k0 < p->k; k0 += p->width)
            for (int64_t a = 0; a < kh; a++)
                for (int64_t r = 0; r < run; r += mr)
                    p->kernel->tile((int)WB__MIN(run - r, mr), (int)WB__MIN(p->width, p->k - k0),
                                    x + a * line + r, dy + k0, sums + (a * run + r) * p->k + k0,
                                    &t);
    }
}

/* Adds up the gradients of all tasks in order, and writes the sum to dw. */
static void direct_add_sums(const direct_job *j)
{
    const direct *p = j->p;
    const int64_t taps = p->d.kh * p->d.kw, all = taps * p->c * p->k;
    float *first = (float *)(j->workspace + p->sums_at), *dw = (float *)j->w;
    for (int64_t task = 1; task < p->tasks; task++) {
        const float *more =
            (const float *)(j->workspace + (size_t)task * p->task_bytes + p->sums_at);
        for (int64_t i = 0; i < all; i++) first[i] += more[i];
    }
    for (int64_t k = 0; k < p->k; k++)
        for (int64_t c = 0; c < p->c; c++)
            for (int64_t t = 0; t < taps; t++) *dw++ = first[(t * p->c + c) * p->k + k];
}

static void direct_run(const wb__cpu_op *op, void *const *buffers, void *workspace)
{
    const direct *p = (const direct *)op;
    direct_job j = { p, buffers[0], buffers[1], buffers[2], p->d.has_bias ? buffers[3] : NULL,
                     workspace };
    if (p->d.kind == WB__CONV_GRAD_WEIGHT) {
        wb__parallel(p->tasks, direct_weights_task, &j);
        direct_add_sums(&j);
        return;
    }
    if (p->d.kind == WB__CONV_GRAD_INPUT) j.x = buffers[2], j.y = buffers[0];
    const int64_t blocks = (p->k + p->width - 1) / p->width;
    for (int64_t b = 0; b < blocks; b++) direct_pack_block(&j, b);
    wb__parallel(p->tasks, direct_forward_task, &j);
}

static bool direct_suits(const wb__conv_desc *d)
{
    if (d->dtype != WB_F32 || d->groups != 1 || d->dilation[0] != 1 || d->dilation[1] != 1)
        return false;
    if (wb__conv_is_plain(d) && (d->c > 1 || d->k > 1)) return false;
    if (!d->n || !d->c || !d->h || !d->w || !d->k || !d->oh || !d->ow || !d->kh || !d->kw)
        return false;
    if (d->kind != WB__CONV_GRAD_INPUT) return true;
    /* the input of this correlation is dy, whose padding must not be negative on any side */
    return d->stride[0] == 1 && d->stride[1] == 1 && d->pad[0] < d->kh && d->pad[2] < d->kw
        && d->kh - 1 - d->pad[0] + d->oh <= d->h + d->kh - 1
        && d->kw - 1 - d->pad[2] + d->ow <= d->w + d->kw - 1;
}

static void direct_lay_out(direct *p)
{
    const wb__conv_desc *d = &p->d;
    const bool data = d->kind == WB__CONV_GRAD_INPUT;
    p->n = d->n;
    p->h = data ? d->oh : d->h, p->w = data ? d->ow : d->w, p->c = data ? d->k : d->c;
    p->oh = data ? d->h : d->oh, p->ow = data ? d->w : d->ow, p->k = data ? d->c : d->k;
    p->stride[0] = d->stride[0], p->stride[1] = d->stride[1];
    p->top = data ? d->kh - 1 - d->pad[0] : d->pad[0];
    p->left = data ? d->kw - 1 - d->pad[2] : d->pad[2];
    const int64_t need_rows = (p->oh - 1) * p->stride[0] + d->kh,
                  need = (p->ow - 1) * p->stride[1] + d->kw;
    p->padded = p->top || p->left || need_rows > p->h || need > p->w;
    p->width_in = p->padded ? need : p->w;
    const int lanes = p->kernel->lanes, most = p->kernel->nr / lanes;
    const int64_t vectors = (p->k + lanes - 1) / lanes, blocks = (vectors + most - 1) / most;
    p->width = (vectors + blocks - 1) / blocks * lanes;
    p->line = d->kind != WB__CONV_GRAD_INPUT && p->c == 1 && p->k <= 8 && p->stride[1] == 1;
    if (p->line) p->width = 8;
    const int64_t threads =
        (double)p->n * (double)(p->oh * p->ow * p->c * p->k) * (double)(d->kh * d->kw) < 200e3
            ? 1
            : wb__threads();
    p->band = p->oh;
    if (d->kind != WB__CONV_GRAD_WEIGHT && p->n < threads)
        p->band = WB__MAX((p->oh * p->n + threads - 1) / threads, 1);
    p->bands = (p->oh + p->band - 1) / p->band;
    p->tasks =
        WB__MAX(WB__MIN(threads, d->kind == WB__CONV_GRAD_WEIGHT ? p->n : p->n * p->bands), 1);
    p->rows_in = (p->band - 1) * p->stride[0] + d->kh;
    const size_t band =
        p->padded ? wb__aligned((size_t)(p->rows_in * p->width_in * p->c) * sizeof(float)) : 0;
    const int64_t inner = d->kh * d->kw * p->c;
    p->sums_at = band;
    p->task_bytes = band;
    if (d->kind == WB__CONV_GRAD_WEIGHT)
        p->task_bytes += wb__aligned((size_t)(inner * p->k * (p->line ? lanes : 1)) *
                                     sizeof(float));
    else p->weights_bytes = wb__aligned((size_t)(inner * WB__MAX(blocks * p->width, 8)) *
                                        sizeof(float));
    p->op.workspace = p->weights_bytes + (size_t)p->tasks * p->task_bytes;
}

int wb__direct_conv(const wb__conv_desc *d, wb__cpu_op **op, const char **reason)
{
    (void)reason;
    *op = NULL;
    if (!direct_suits(d)) return 0;
    const wb__isa *isa = wb__isa_best();
    direct *p = wb__alloc_zero(1, sizeof *p);
    if (!p) return WB_ERROR_MEMORY;
    p->d = *d;
    p->isa = isa;
    p->kernel = isa->gemm_f32;
    p->act = wb__act_of(d->act, WB_F32);
    p->op.run = direct_run;
    p->op.destroy = wb__cpu_op_free;
    direct_lay_out(p);
    if (d->kind == WB__CONV_GRAD_WEIGHT && !p->line && !p->kernel->masked &&
        d->k % p->kernel->lanes) {
        wb__cpu_op_free(&p->op);
        return 0;
    }
    snprintf(p->impl, sizeof p->impl, "direct %s", isa->name);
    p->op.impl = p->impl;
    *op = &p->op;
    return 0;
}
