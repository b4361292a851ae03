/* Divides products and convolutions into pieces, each of which oneDNN computes on one thread.
 *
 * A product is divided along its batch, else along the longer of rows and columns.  A convolution
 * is divided along its images, and each image along its rows if there are fewer images than
 * threads.  A piece of the gradient of the weights is a sum over some images: the pieces are added
 * in their order.  The pieces depend on the number of threads (wb_threads), and not on which thread
 * computes which. */
#include "backend/cpu/onednn/dnnl.h"

#include "backend/cpu/onednn/dnnl_piece.h"
#include "backend/cpu/isa.h"
#include "base/mutex.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* DNNL_SPLIT_LEAST: with fewer multiply-adds, a piece costs more than it saves.  DNNL_SPLIT_SOON:
 * with fewer, a product does not use "gemm:jit".  MOST_COPIED: limit of the elements in all copies
 * of the weights, unless two copies exceed it. */
enum { BUFFERS = 4, ROUND = 16, MOST_COPIED = 32 << 20 };
static const double DNNL_SPLIT_LEAST = 400e3, DNNL_SPLIT_SOON = 20e6;

typedef struct {
    wb__cpu_op *op;
    bool shared;                        /* `op` belongs to an earlier piece with the same shape */
    int64_t at[BUFFERS];                /* offsets of the piece's operands, in elements */
} dnnl_split_piece;

typedef struct {
    wb__cpu_op op;
    int count, buffers;                 /* pieces; buffers of the operation */
    size_t size;                        /* bytes of an element */
    size_t each;                        /* bytes of the workspace of each piece */
    int64_t sums;                       /* elements of the gradient of the weights, else 0 */
    wb_dtype dtype;
    dnnl_split_piece piece[];
} dnnl_split;

typedef struct {
    const dnnl_split *s;
    void *const *buffers;
    const void *form;                   /* prepared form of the weights, or NULL */
    char *workspace;
    const void *caller;                 /* wb__mutex_me() of the caller */
    atomic_int failed;              /* code of the first error in a thread that is not the caller */
    char message[256];                  /* message of this error */
} dnnl_split_job;

/* Returns the f32 sums of piece i of the weights' gradient.  Those of the first may be in place. */
static float *dnnl_split_sums_of(const dnnl_split_job *j, int64_t i)
{
    const dnnl_split *s = j->s;
    if (s->dtype == WB_F32 && !i) return j->buffers[1];
    float *apart = (float *)(j->workspace + s->each * (size_t)s->count);
    return apart + (i - (s->dtype == WB_F32)) * s->sums;
}

static void dnnl_split_run_piece(void *ctx, int64_t i)
{
    dnnl_split_job *j = ctx;
    const dnnl_split *s = j->s;
    const dnnl_split_piece *p = &s->piece[i];
    void *buffers[BUFFERS];
    for (int b = 0; b < s->buffers; b++)
        buffers[b] = (char *)j->buffers[b] + p->at[b] * (int64_t)s->size;
    if (s->sums) buffers[1] = dnnl_split_sums_of(j, i);
    void *workspace = j->workspace + s->each * (size_t)i;
    if (j->form) p->op->run_form(p->op, buffers, j->form, workspace);
    else p->op->run(p->op, buffers, workspace);
    if (wb__mutex_me() != j->caller && wb_error_code()) {
        int none = 0;
        if (atomic_compare_exchange_strong(&j->failed, &none, wb_error_code()))
            snprintf(j->message, sizeof j->message, "%s", wb_error());
        wb_clear_error();
    }
}

enum { DNNL_SPLIT_SUMS = 16 * 1024 };   /* elements that a task of dnnl_split_add_sums adds */

static void dnnl_split_add_sums(void *ctx, int64_t part)
{
    const dnnl_split_job *j = ctx;
    const dnnl_split *s = j->s;
    const int64_t from = part * DNNL_SPLIT_SUMS, n = WB__MIN(s->sums - from, DNNL_SPLIT_SUMS);
    float *to = dnnl_split_sums_of(j, 0) + from;
    for (int i = 1; i < s->count; i++) {
        const float *more = dnnl_split_sums_of(j, i) + from;
        for (int64_t e = 0; e < n; e++) to[e] += more[e];
    }
    if (s->dtype != WB_F32) wb__narrow((uint16_t *)j->buffers[1] + from, s->dtype, to, n);
}

static void dnnl_split_run_form(const wb__cpu_op *op, void *const *buffers, const void *form,
                                void *workspace)
{
    const dnnl_split *s = (const dnnl_split *)op;
    dnnl_split_job j = { .s = s, .buffers = buffers, .form = form, .workspace = workspace,
                         .caller = wb__mutex_me() };
    wb__parallel(s->count, dnnl_split_run_piece, &j);
    const int failed = atomic_load(&j.failed);
    if (failed) wb__fail(failed, "%s", j.message);
    if (s->sums)
        wb__parallel((s->sums + DNNL_SPLIT_SUMS - 1) / DNNL_SPLIT_SUMS, dnnl_split_add_sums, &j);
}

static void dnnl_split_run(const wb__cpu_op *op, void *const *buffers, void *workspace)
{
    dnnl_split_run_form(op, buffers, NULL, workspace);
}

static int dnnl_split_make_form(const wb__cpu_op *op, const void *from, void *form)
{
    const wb__cpu_op *first = ((const dnnl_split *)op)->piece[0].op;
    return first->make_form(first, from, form);
}

/* Lets the operation read a prepared form if all pieces read the same form of all weights. */
static void share_form(dnnl_split *s)
{
    const wb__cpu_op *first = s->piece[0].op;
    bool same = first->form_bytes;
    for (int i = 0; i < s->count && same; i++)
        same = s->piece[i].op->form_bytes == first->form_bytes
            && s->piece[i].op->form_key == first->form_key && !s->piece[i].at[1];
    if (!same) return;
    s->op.form_bytes = first->form_bytes;
    s->op.form_key = first->form_key;
    s->op.make_form = dnnl_split_make_form;
    s->op.run_form = dnnl_split_run_form;
}

static void dnnl_split_destroy(wb__cpu_op *op)
{
    dnnl_split *s = (dnnl_split *)op;
    for (int i = 0; i < s->count; i++)
        if (s->piece[i].op && !s->piece[i].shared) s->piece[i].op->destroy(s->piece[i].op);
    wb__free(s);
}

static dnnl_split *dnnl_split_begin(int count, int buffers, wb_dtype dtype)
{
    dnnl_split *s = wb__alloc_zero(1, sizeof *s + (size_t)count * sizeof(dnnl_split_piece));
    if (!s) return NULL;
    s->op.run = dnnl_split_run;
    s->op.destroy = dnnl_split_destroy;
    s->count = count;
    s->buffers = buffers;
    s->dtype = dtype;
    s->size = wb__dtype_size(dtype);
    return s;
}

/* Reserves what runs of pieces need that share an operation, since all may be concurrent. */
static int dnnl_split_reserve(const dnnl_split *s)
{
    int error = 0, n = 0;
    for (int i = s->count - 1; i >= 0 && !error; i--) {
        n++;
        if (s->piece[i].shared) continue;
        error = wb__dnnl_piece_reserve(s->piece[i].op, n);
        n = 0;
    }
    return error;
}

/* Sets *op to the divided operation; frees s if a piece has been refused or has failed. */
static int dnnl_split_finish(dnnl_split *s, int error, wb__cpu_op **op)
{
    bool all = !error;
    for (int i = 0; i < s->count && all; i++) {
        const wb__cpu_op *o = s->piece[i].op;
        all = o != NULL;
        if (all) s->each = WB__MAX(s->each, wb__aligned(o->workspace));
    }
    if (all) error = dnnl_split_reserve(s);
    if (!all || error) {
        dnnl_split_destroy(&s->op);
        return error;
    }
    const int64_t apart = s->sums ? s->count - (s->dtype == WB_F32) : 0;
    s->op.workspace = s->each * (size_t)s->count + (size_t)(apart * s->sums) * sizeof(float);
    s->op.impl = s->piece[0].op->impl;
    share_form(s);
    *op = &s->op;
    return 0;
}

/* ---- products -------------------------------------------------------------------------------- */

/* Returns where piece i of n units begins, which are divided at multiples of `round`. */
static int64_t dnnl_split_cut(int64_t n, int64_t count, int64_t i, int64_t round)
{
    const int64_t units = (n + round - 1) / round;
    return WB__MIN(units * i / count * round, n);
}

static int pieces_for(double work, int64_t units)
{
    const int64_t most = WB__MIN(wb__threads(), units);
    return (int)WB__MAX(WB__MIN(most, (int64_t)(work / DNNL_SPLIT_LEAST)), 1);
}

static int split_matmul(const wb__matmul_desc *d, int count, wb__cpu_op **op, const char **reason)
{
    const int64_t batch = d->batch[0] * d->batch[1];
    const bool by_rows = d->m >= d->n;
    dnnl_split *s = dnnl_split_begin(count, d->has_bias ? 4 : 3, d->dtype);
    if (!s) return WB_ERROR_MEMORY;
    int error = 0;
    wb__matmul_desc before = *d;
    for (int64_t i = 0; i < count && !error; i++) {
        wb__matmul_desc part = *d;
        dnnl_split_piece *p = &s->piece[i];
        if (batch > 1) {
            const int x = d->batch[1] == 1 ? 0 : 1;     /* the two batch dimensions are one */
            const int64_t from = batch * i / count;
            part.batch[0] = 1;
            part.batch[1] = batch * (i + 1) / count - from;
            part.a_b[1] = d->a_b[x], part.b_b[1] = d->b_b[x], part.c_b[1] = d->c_b[x];
            p->at[0] = from * d->a_b[x], p->at[1] = from * d->b_b[x], p->at[2] = from * d->c_b[x];
        } else if (by_rows) {
            const int64_t from = dnnl_split_cut(d->m, count, i, ROUND);
            part.m = dnnl_split_cut(d->m, count, i + 1, ROUND) - from;
            p->at[0] = from * d->a_s[0], p->at[2] = from * d->c_s[0];
        } else {
            const int64_t from = dnnl_split_cut(d->n, count, i, ROUND);
            part.n = dnnl_split_cut(d->n, count, i + 1, ROUND) - from;
            p->at[1] = from * d->b_s[1], p->at[2] = from * d->c_s[1], p->at[3] = from;
        }
        p->shared = i > 0 && !memcmp(&part, &before, sizeof part);
        if (p->shared) p->op = s->piece[i - 1].op;
        else error = wb__dnnl_matmul_piece(&part, &p->op, reason);
        before = part;
    }
    return dnnl_split_finish(s, error, op);
}

/* Whether the two batch dimensions are one, since the other has size 1. */
static bool is_one_batch(const wb__matmul_desc *d)
{
    const int64_t n = d->batch[1];
    return d->batch[0] == 1 || n == 1
        || (d->a_b[0] == d->a_b[1] * n && d->b_b[0] == d->b_b[1] * n && d->c_b[0] == d->c_b[1] * n);
}

int wb__dnnl_matmul(const wb__matmul_desc *d, wb__cpu_op **op, const char **reason)
{
    const int64_t batch = d->batch[0] * d->batch[1];
    const double work = (double)batch * (double)(d->m * d->n) * (double)d->k;
    const int64_t units = batch > 1 ? batch : (WB__MAX(d->m, d->n) + ROUND - 1) / ROUND;
    const int count = is_one_batch(d) ? pieces_for(work, units) : 1;
    *op = NULL;
    int error = count > 1 ? split_matmul(d, count, op, reason) : 0;
    if (!error && !*op) error = wb__dnnl_matmul_piece(d, op, reason);
    /* oneDNN falls back to "gemm:jit" where the rows of an operand are not adjacent, as in pieces
     * of columns.  The first run of "gemm:jit" in a process takes 30 ms; our own product is as
     * fast, but not that of bf16. */
    const bool late = *op && d->dtype == WB_F32 && work < DNNL_SPLIT_SOON &&
                      strstr((*op)->impl, "gemm:jit");
    if (!error && late) {
        (*op)->destroy(*op);
        *op = NULL;
        *reason = "our own product is ready at once";
    }
    return error;
}

/* ---- convolutions ---------------------------------------------------------------------------- */

/* Restricts d to the rows [from, to) of y, and returns the first row of x that these rows need. */
static int64_t restrict_rows(wb__conv_desc *d, int64_t from, int64_t to)
{
    const int64_t begin = from * d->stride[0] - d->pad[0],
                  end = (to - 1) * d->stride[0] - d->pad[0] + (d->kh - 1) * d->dilation[0] + 1;
    const int64_t first = WB__MIN(WB__MAX(begin, 0), d->h - 1);
    d->h = WB__MAX(WB__MIN(end, d->h), first + 1) - first;
    d->pad[0] = first - begin;
    d->oh = to - from;
    d->pad[1] = (d->oh - 1) * d->stride[0] + (d->kh - 1) * d->dilation[0] + 1 - d->h - d->pad[0];
    return first;
}

static int dnnl_split_conv(const wb__conv_desc *d, int count, int per_image, wb__cpu_op **op,
                           const char **reason)
{
    dnnl_split *s = dnnl_split_begin(count, d->has_bias ? 4 : 3, d->dtype);
    if (!s) return WB_ERROR_MEMORY;
    const bool weights = d->kind == WB__CONV_GRAD_WEIGHT;
    if (weights) s->sums = d->k * (d->c / d->groups) * d->kh * d->kw;
    int error = 0;
    wb__conv_desc before = *d;
    for (int64_t i = 0; i < count && !error; i++) {
        wb__conv_desc part = *d;
        dnnl_split_piece *p = &s->piece[i];
        int64_t image, x_row = 0, y_row = 0;
        if (per_image == 1) {
            image = d->n * i / count;
            part.n = d->n * (i + 1) / count - image;
        } else {
            image = i / per_image;
            part.n = 1;
            y_row = d->oh * (i % per_image) / per_image;
            x_row = restrict_rows(&part, y_row, d->oh * (i % per_image + 1) / per_image);
        }
        p->at[0] = (image * d->h + x_row) * d->w * d->c;
        p->at[2] = (image * d->oh + y_row) * d->ow * d->k;
        p->shared = i > 0 && !memcmp(&part, &before, sizeof part);
        if (p->shared) p->op = s->piece[i - 1].op;
        else error = wb__dnnl_conv_piece(&part, weights, &p->op, reason);
        before = part;
    }
    return dnnl_split_finish(s, error, op);
}

int wb__dnnl_conv(const wb__conv_desc *d, wb__cpu_op **op, const char **reason)
{
    const double work = (double)(d->n * d->oh * d->ow) * (double)(d->k * d->kh * d->kw)
                      * (double)(d->c / WB__MAX(d->groups, 1));
    /* Each piece has a copy of the weights in the layout of oneDNN, or of their gradient. */
    const int64_t weights = d->k * (d->c / WB__MAX(d->groups, 1)) * d->kh * d->kw;
    const int want = pieces_for(work, WB__MAX(MOST_COPIED / WB__MAX(weights, 1), 2));
    int count = (int)WB__MIN(want, d->n), per_image = 1;
    if (d->n && d->n < want && d->kind != WB__CONV_GRAD_INPUT
        && (d->kind == WB__CONV_FORWARD || d->n == 1)) {
        per_image = (int)WB__MIN((want + d->n - 1) / d->n, WB__MAX(d->oh / 2, 1));
        count = (int)d->n * per_image;
    }
    *op = NULL;
    if (count > 1) {
        const int error = dnnl_split_conv(d, count, per_image, op, reason);
        if (error || *op) return error;
    }
    return wb__dnnl_conv_piece(d, false, op, reason);
}
