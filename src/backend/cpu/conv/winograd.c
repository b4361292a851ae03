/* Winograd's convolution F(4x4, 3x3): f32, windows of 3 by 3, stride 1, one group, no dilation.
 *
 * An image is computed in tiles of 4x4 outputs, from 6x6 inputs each, with 36 instead of 144
 * multiplications per pair of channels.  With the transforms of winograd_kernel.h, per tile,
 *
 *     FORWARD       y  = A^T [ (G w G^T) . (B^T x B) ] A, summed over the input channels
 *     GRAD_INPUT    like FORWARD, with dy as input and weights rotated by 180 degrees
 *     GRAD_WEIGHT   dw = G^T [ (B^T x B) . (A dy A^T) ] G, summed over the tiles
 *
 * where . multiplies the 36 positions: for each position, the sum is a matrix product
 * (gemm_kernel.h).  The tiles of the batch are computed in blocks, so that a block's transformed
 * tiles stay in an L2 of 1 MB, with up to 64 channels.
 *
 * The root mean square of the rounding errors is less than 4 times that of our direct convolution;
 * tests/cpu/cpu_winograd.c measures it.  Sums of oneDNN with AVX2 are more accurate: dx has up to 5
 * times their error.  An infinity or NaN in x makes all outputs of its tiles NaN.  Each sum has a
 * fixed order, so the result does not depend on the number of threads.  F(2x2, 3x3) has smaller
 * errors, but needs 64 multiplications for the same outputs, and F(4x4) is accurate enough wherever
 * it is faster. */
#include "backend/cpu/conv/direct.h"

#include "backend/cpu/isa.h"
#include "base/environment.h"

#include <stdio.h>

enum { POSITIONS = 36, WINOGRAD_LINE = 64 / sizeof(float) };

typedef struct {
    wb__cpu_op op;
    wb__conv_desc d;
    const wb__gemm_kernel *product;
    const wb__winograd_kernel *transform;
    /* sizes of the computed correlation; for GRAD_INPUT, its input is dy and its output dx */
    int64_t n, h, w, c, k, oh, ow, top, left;
    int64_t rows, columns, tiles;   /* rows and columns of tiles of an image; tiles of the batch */
    int64_t block, blocks, tasks;       /* tiles of a block; number of blocks, of tasks */
    int64_t run;                        /* GRAD_WEIGHT: tiles whose products are added up first */
    int64_t cp, kp, width;      /* c and k in whole vectors; columns of a panel of the products */
    /* Distances between two positions of the transformed inputs, outputs (GRAD_WEIGHT: gradients)
     * and weights, in elements.  The first two have a cache line more than needed, because at a
     * power of 2 all positions would have the same places in the caches. */
    int64_t in_step, out_step, w_step;
    size_t weights_bytes, task_bytes, out_at;  /* in bytes; out_at: offset in a task's workspace */
    wb__act act;
    char impl[32];
} winograd;

typedef struct {
    const winograd *p;
    const float *x, *w, *y, *bias;
    const float *u;                     /* the transformed weights; NULL for GRAD_WEIGHT */
    char *workspace;
    int64_t first, count;               /* GRAD_WEIGHT: the tiles of this block */
} winograd_job;

static int64_t winograd_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* Restricts a tile of `size` pixels from `at` on to the pixels [from, to) inside of [0, limit). */
static void winograd_clip(int64_t at, int64_t limit, int size, int *from, int *to)
{
    *from = (int)WB__MIN(WB__MAX(-at, 0), size);
    *to = (int)WB__MAX(WB__MIN(limit - at, size), *from);
}

/* Describes the 6x6 inputs of a tile in *t and returns the address of the first one, which may be
 * outside of the image. */
static const float *input_tile(const winograd *p, const float *x, int64_t tile,
                               wb__winograd_tile *t)
{
    const int64_t n = tile / (p->rows * p->columns), i = tile / p->columns % p->rows * 4 - p->top,
                  j = tile % p->columns * 4 - p->left;
    *t = (wb__winograd_tile){ .channels = p->c, .line = p->w * p->c, .step = p->in_step };
    winograd_clip(i, p->h, 6, &t->top, &t->bottom);
    winograd_clip(j, p->w, 6, &t->left, &t->right);
    return x + ((n * p->h + i) * p->w + j) * p->c;
}

/* Describes the 4x4 outputs of a tile in *t and returns the address of the first one. */
static const float *output_tile(const winograd *p, const float *y, int64_t tile,
                                wb__winograd_tile *t)
{
    const int64_t n = tile / (p->rows * p->columns), i = tile / p->columns % p->rows * 4,
                  j = tile % p->columns * 4;
    *t = (wb__winograd_tile){ .channels = p->k, .line = p->ow * p->k, .step = p->out_step };
    winograd_clip(i, p->oh, 4, &t->top, &t->bottom);
    winograd_clip(j, p->ow, 4, &t->left, &t->right);
    return y + ((n * p->oh + i) * p->ow + j) * p->k;
}

/* Transforms the weights to a vector of output channels: [position][panel][c][width]. */
static void winograd_weights_task(void *ctx, int64_t vector)
{
    const winograd_job *j = ctx;
    const winograd *p = j->p;
    const bool dx = p->d.kind == WB__CONV_GRAD_INPUT;
    const int64_t s_in = dx ? p->k * 9 : 9, s_out = dx ? 9 : p->c * 9;
    const int64_t k = vector * p->product->lanes, panel = k / p->width * p->width;
    float *u = (float *)j->u + panel * p->c + k - panel;
    const int n = (int)WB__MIN(p->product->lanes, p->k - k);
    for (int64_t c = 0; c < p->c; c++)
        p->transform->weights(j->w + k * s_out + c * s_in, s_out, n, dx, u + c * p->width,
                              p->w_step);
}

/* Multiplies the transformed inputs of `count` tiles by the transformed weights. */
static void winograd_multiply(const winograd *p, const float *u, const float *v, float *m,
                              int64_t count)
{
    const int mr = p->product->mr;
    wb__tile t = { .outer = 1, .k = p->c, .as0 = p->cp, .as1 = 1, .bs0 = p->width, .cs0 = p->kp };
    for (int at = 0; at < POSITIONS; at++, u += p->w_step, v += p->in_step, m += p->out_step)
        for (int64_t k = 0; k < p->kp; k += p->width)
            for (int64_t q = 0; q < count; q += mr)
                p->product->tile((int)WB__MIN(count - q, mr), (int)WB__MIN(p->width, p->kp - k),
                                 v + q * p->cp, u + k * p->c, m + q * p->kp + k, &t);
}

static void winograd_forward_task(void *ctx, int64_t task)
{
    const winograd_job *j = ctx;
    const winograd *p = j->p;
    char *mine = j->workspace + p->weights_bytes + (size_t)task * p->task_bytes;
    float *v = (float *)mine, *m = (float *)(mine + p->out_at);
    wb__winograd_tile t;
    for (int64_t b = p->blocks * task / p->tasks; b < p->blocks * (task + 1) / p->tasks; b++) {
        const int64_t first = b * p->block, count = WB__MIN(p->block, p->tiles - first);
        for (int64_t i = 0; i < count; i++) {
            const float *x = input_tile(p, j->x, first + i, &t);
            p->transform->input(&t, x, v + i * p->cp);
        }
        winograd_multiply(p, j->u, v, m, count);
        for (int64_t i = 0; i < count; i++) {
            float *y = (float *)output_tile(p, j->y, first + i, &t);
            p->transform->output(&t, m + i * p->kp, j->bias, p->act.relu, y);
            if (p->act.row)
                for (int r = 0; r < t.bottom; r++)
                    p->act.row(y + r * t.line, y + r * t.line, NULL, NULL, t.right * p->k);
        }
    }
}

/* ---- the gradient of the weights ------------------------------------------------------------- */

/* Transforms a task's tiles of the block, both of x and of dy. */
static void winograd_both_task(void *ctx, int64_t task)
{
    const winograd_job *j = ctx;
    const winograd *p = j->p;
    float *v = (float *)(j->workspace + p->weights_bytes), *g = v + p->out_at / sizeof(float);
    wb__winograd_tile t;
    for (int64_t i = j->count * task / p->tasks; i < j->count * (task + 1) / p->tasks; i++) {
        const float *x = input_tile(p, j->x, j->first + i, &t);
        p->transform->input(&t, x, v + i * p->cp);
        const float *dy = output_tile(p, j->y, j->first + i, &t);
        p->transform->grad(&t, dy, g + i * p->kp);
    }
}

/* Adds the block's products at one position: sums[c, k] += v[tile, c] * g[tile, k].  The products
 * of p->run tiles are added up first, so that rounding errors grow slowly with the batch. */
static void winograd_sums_task(void *ctx, int64_t at)
{
    const winograd_job *j = ctx;
    const winograd *p = j->p;
    const int mr = p->product->mr;
    const float *v = (float *)(j->workspace + p->weights_bytes),
                *g = v + p->out_at / sizeof(float) + at * p->out_step;
    v += at * p->in_step;
    float *sums = (float *)j->workspace + at * p->w_step;
    wb__tile t = { .outer = 1, .as0 = 1, .as1 = p->cp, .bs0 = p->kp, .cs0 = p->kp };
    for (int64_t k = 0; k < p->kp; k += p->width)
        for (int64_t c = 0; c < p->c; c += mr)
            for (int64_t i = 0; i < j->count; i += p->run) {
                t.k = WB__MIN(j->count - i, p->run);
                t.add = j->first + i > 0;
                p->product->tile((int)WB__MIN(p->c - c, mr), (int)WB__MIN(p->width, p->kp - k),
                                 v + i * p->cp + c, g + i * p->kp + k, sums + c * p->kp + k, &t);
            }
}

/* Transforms the sums of a vector of output channels to dw. */
static void winograd_back_task(void *ctx, int64_t vector)
{
    const winograd_job *j = ctx;
    const winograd *p = j->p;
    const int64_t k = vector * p->product->lanes;
    const int n = (int)WB__MIN(p->product->lanes, p->k - k);
    for (int64_t c = 0; c < p->c; c++)
        p->transform->sums((const float *)j->workspace + c * p->kp + k, p->w_step, n, p->c * 9,
                           (float *)j->w + (k * p->c + c) * 9);
}

/* Writes the prepared form of the weights: their transforms. */
static int transform_weights(const wb__cpu_op *op, const void *from, void *form)
{
    const winograd *p = (const winograd *)op;
    wb__parallel(p->kp / p->product->lanes, winograd_weights_task, &(winograd_job){ .p = p,
                                                                                    .w = from,
                                                                                    .u = form });
    return 0;
}

static void run_transformed(const wb__cpu_op *op, void *const *buffers, const void *form,
                            void *workspace)
{
    const winograd *p = (const winograd *)op;
    const bool dx = p->d.kind == WB__CONV_GRAD_INPUT;
    wb__parallel(p->tasks, winograd_forward_task,
                 &(winograd_job){ .p = p, .x = buffers[dx ? 2 : 0], .y = buffers[dx ? 0 : 2],
                                  .u = form, .bias = p->d.has_bias ? buffers[3] : NULL,
                                  .workspace = workspace });
}

static void winograd_run(const wb__cpu_op *op, void *const *buffers, void *workspace)
{
    const winograd *p = (const winograd *)op;
    if (p->d.kind == WB__CONV_GRAD_WEIGHT) {
        winograd_job j = { .p = p, .x = buffers[0], .w = buffers[1], .y = buffers[2],
                           .workspace = workspace };
        for (; j.first < p->tiles; j.first += p->block) {
            j.count = WB__MIN(p->block, p->tiles - j.first);
            wb__parallel(p->tasks, winograd_both_task, &j);
            wb__parallel(POSITIONS, winograd_sums_task, &j);
        }
        wb__parallel(p->kp / p->product->lanes, winograd_back_task, &j);
        return;
    }
    transform_weights(op, buffers[1], workspace);
    run_transformed(op, buffers, workspace, workspace);
}

static void winograd_lay_out(winograd *p)
{
    enum { BLOCK_BYTES = 512 * 1024 };  /* half of L2; the products' panels have the rest */
    const wb__conv_desc *d = &p->d;
    const bool dx = d->kind == WB__CONV_GRAD_INPUT, weights = d->kind == WB__CONV_GRAD_WEIGHT;
    const int lanes = p->product->lanes, most = p->product->nr / lanes;
    p->n = d->n;
    p->h = dx ? d->oh : d->h, p->w = dx ? d->ow : d->w, p->c = dx ? d->k : d->c;
    p->oh = dx ? d->h : d->oh, p->ow = dx ? d->w : d->ow, p->k = dx ? d->c : d->k;
    p->top = dx ? 2 - d->pad[0] : d->pad[0], p->left = dx ? 2 - d->pad[2] : d->pad[2];
    p->rows = (p->oh + 3) / 4, p->columns = (p->ow + 3) / 4;
    p->tiles = p->n * p->rows * p->columns;
    p->cp = winograd_up(p->c, lanes), p->kp = winograd_up(p->k, lanes);
    const int64_t vectors = p->kp / lanes, panels = (vectors + most - 1) / most;
    p->width = (vectors + panels - 1) / panels * lanes;
    const int64_t fits = BLOCK_BYTES / (POSITIONS * (p->cp + p->kp) * (int64_t)sizeof(float));
    p->block = WB__MIN(WB__MAX(fits / 32 * 32, 32), 128);
    /* runs of 32 are 10 to 15 % faster, but with few pixels their error is more than 4 times that
     * of a direct convolution */
    p->run = p->n * p->oh * p->ow < 4096 ? 16 : 32;
    p->tasks = wb__threads();
    if (!weights) {
        p->block = WB__MIN(p->block, winograd_up((p->tiles + p->tasks - 1) / p->tasks, 8));
        p->blocks = (p->tiles + p->block - 1) / p->block;
        p->tasks = WB__MIN(p->tasks, p->blocks);
    }
    p->in_step = p->block * p->cp + WINOGRAD_LINE;
    p->out_step = p->block * p->kp + WINOGRAD_LINE;
    p->w_step = (weights ? p->c * p->kp : panels * p->width * p->c) + WINOGRAD_LINE;
    p->weights_bytes = wb__aligned((size_t)(POSITIONS * p->w_step) * sizeof(float));
    p->out_at = wb__aligned((size_t)(POSITIONS * p->in_step) * sizeof(float));
    p->task_bytes = p->out_at + wb__aligned((size_t)(POSITIONS * p->out_step) * sizeof(float));
    p->op.workspace = p->weights_bytes + (size_t)(weights ? 1 : p->tasks) * p->task_bytes;
}

/* Whether Winograd's algorithm computes *d, is faster than a direct convolution, and has less than
 * 4 times the error of ours.  The time to transform the weights is shared by all tiles.  Time
 * relative to oneDNN for y, dx and dw (AMD EPYC Zen 4, AVX-512, one thread, images of 14x14, 28x28,
 * 14x14):
 *
 *     channels   16 tiles           49 tiles           128 tiles
 *     8          1.44  1.38  1.46   0.98  1.06  1.15   1.24  1.44  1.37
 *     16         0.84  0.94  0.96   0.58  0.62  0.60   0.74  0.84  0.85
 *     32         0.69  0.77  0.78   0.46  0.47  0.43   0.59  0.62  0.62
 *     64         0.66  0.67  0.65   0.40  0.40  0.41   0.50  0.51  0.54
 *     128        0.62  0.64  0.60   0.37  0.37  0.37   0.45  0.46  0.48
 *     256        0.81  0.72  0.83   0.46  0.45  0.47   0.51  0.51  0.53
 *     512        1.14  1.08  1.28   0.51  0.55  0.70   0.54  0.51  0.68
 *
 * With AVX2 the figures are similar; without oneDNN and in portable C they are lower.  dw of 16 to
 * 49 tiles has 4 to 5.5 times the error of oneDNN's, whose sums over few pixels are accurate. */
static bool winograd_suits(const wb__conv_desc *d)
{
    if (!wb__environment_switch("WEBER_WINOGRAD", true)) return false;
    if (d->dtype != WB_F32 || d->groups != 1 || d->kh != 3 || d->kw != 3) return false;
    if (d->stride[0] != 1 || d->stride[1] != 1 || d->dilation[0] != 1 || d->dilation[1] != 1)
        return false;
    const bool dx = d->kind == WB__CONV_GRAD_INPUT;
    const int64_t rows = dx ? d->h : d->oh, columns = dx ? d->w : d->ow;
    const int64_t tiles = d->n * ((rows + 3) / 4) * ((columns + 3) / 4);
    const int64_t least = d->kind == WB__CONV_GRAD_WEIGHT ? 64 : 16, thin = WB__MIN(d->c, d->k);
    return thin >= 16 && tiles >= least && tiles * thin >= 512 && d->c * d->k <= tiles * 8192
        && d->h && d->w && d->oh && d->ow;
}

int wb__winograd_conv(const wb__conv_desc *d, wb__cpu_op **op, const char **reason)
{
    (void)reason;
    *op = NULL;
    if (!winograd_suits(d)) return 0;
    winograd *p = wb__alloc_zero(1, sizeof *p);
    if (!p) return WB_ERROR_MEMORY;
    const wb__isa *isa = wb__isa_best();
    p->d = *d;
    p->product = isa->gemm_f32;
    p->transform = isa->winograd;
    p->act = wb__act_of(d->act, WB_F32);
    p->op.run = winograd_run;
    p->op.destroy = wb__cpu_op_free;
    winograd_lay_out(p);
    if (d->kind != WB__CONV_GRAD_WEIGHT) {
        const int64_t key[] = { d->kind, p->c, p->k, p->width, p->w_step };
        p->op.form_bytes = p->weights_bytes;
        p->op.form_key = wb__cpu_form_key(WB__CPU_FORM_WINOGRAD, sizeof key, key);
        p->op.make_form = transform_weights;
        p->op.run_form = run_transformed;
    }
    snprintf(p->impl, sizeof p->impl, "winograd %s", isa->name);
    p->op.impl = p->impl;
    *op = &p->op;
    return 0;
}
