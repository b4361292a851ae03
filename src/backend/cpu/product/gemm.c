/* The matrix product.  This file decides whether to compute the transpose, in which blocks, and on
 * which threads.
 *
 * C is computed in pieces of at most kc inner indices and nc columns of the kernel.  First, a piece
 * of B is packed into panels, unless reading B in place is faster.  Then tasks compute the products
 * of the piece, each for some rows and columns of C.  The pieces depend on the shape only, so the
 * result does not depend on the number of threads.
 *
 * Products with the same B may share its packed form, in which all pieces follow each other. */
#include "backend/cpu/product/gemm.h"

#include "backend/cpu/onednn/dnnl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SERIAL = 120 * 1000,    /* with fewer multiply-adds, one thread is faster */
    IN_PLACE_ROWS = 64,     /* with more rows than this, B is always packed */
    PACKED_ROWS = 64,       /* with more rows than this, packing B takes little of the time */
    /* limit, in bytes, of the workspace of a chunk of the batch; one product alone may exceed it */
    CHUNK_BYTES = 4 << 20,
    CACHED = 1 << 20                    /* bytes of B that stay in the cache between two runs */
};

static const wb__gemm_kernel *kernel_for(const wb__gemm *g)
{
    const wb__isa *isa = wb__isa_best();
    const wb__gemm_kernel *bf16 = g->round ? wb__isa_gemm_bf16() : NULL;
    return bf16 ? bf16 : g->a_type == WB_F64 ? isa->gemm_f64 : isa->gemm_f32;
}

static wb_dtype computed_type(wb_dtype t) { return t == WB_F64 ? WB_F64 : WB_F32; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/* The length of a piece if k is divided into about equal pieces of at most the kernel's kc. */
static int64_t inner_piece(const wb__gemm_kernel *kernel, int64_t k)
{
    int64_t pieces = WB__MAX(ceil_div(k, kernel->kc), 1);
    return WB__MAX(round_up(ceil_div(k, pieces), 16), 16);
}

/* The bytes of `columns` packed columns of B with k inner indices. */
static size_t packed_bytes(const wb__gemm_kernel *kernel, wb_dtype t, int64_t k, int64_t columns)
{
    return kernel->narrow ? (size_t)((k + 1) / 2 * columns) * 2 * sizeof(uint16_t)
                          : (size_t)(k * columns) * wb__dtype_size(computed_type(t));
}

static bool reads_in_place(const wb__gemm *g, const wb__gemm_kernel *kernel)
{
    const bool stored = g->b_type == (kernel->narrow ? WB_BF16 : computed_type(g->b_type));
    return g->bs1 == 1 && stored && g->m <= (kernel->narrow ? kernel->mr : IN_PLACE_ROWS)
        && (g->bs0 || !kernel->narrow) && (kernel->masked || g->n % kernel->lanes == 0);
}

/* For conv.c: a product on one thread. */

size_t wb__gemm_scratch(const wb__gemm *g)
{
    const wb__gemm_kernel *kernel = kernel_for(g);
    if (reads_in_place(g, kernel)) return 0;
    return packed_bytes(kernel, g->a_type, inner_piece(kernel, g->k),
                        round_up(WB__MIN(g->n, kernel->nc), kernel->nr));
}

void wb__gemm_run(const wb__gemm *g, void *scratch)
{
    const wb__gemm_kernel *kernel = kernel_for(g);
    const int64_t kc = inner_piece(kernel, g->k);
    const bool in_place = reads_in_place(g, kernel);
    for (int64_t j0 = 0; j0 < g->n; j0 += kernel->nc) {
        const int64_t j1 = WB__MIN(j0 + kernel->nc, g->n);
        int64_t p0 = 0;
        do {
            const int64_t pk = WB__MIN(kc, g->k - p0);
            if (!in_place) kernel->pack_b(g, p0, pk, j0, j1, scratch);
            kernel->block(g, p0, pk, 0, g->m, j0, j1, in_place ? NULL : scratch, p0 == 0,
                          p0 + pk >= g->k);
            p0 += pk;
        } while (p0 < g->k);
    }
}

/* A prepared product. */

typedef struct {
    wb__cpu_op op;
    wb__gemm g; /* one product of the batch, with NULL pointers; transposed if `transposed` */
    const wb__gemm_kernel *kernel;
    bool transposed, in_place, dots, serial;
    bool packed;                        /* B is in its packed form */
    bool simple;                        /* one product in one piece, on one thread */
    bool has_bias, shared_b;            /* shared_b: the whole batch has one B */
    int64_t batch[2], a_b[2], b_b[2], c_b[2], count, chunk, kc;
    size_t packed_each, wide_at; /* bytes of a packed piece; offset of the f32 copy of C */
    bool wide;                          /* C is kept in f32 between the pieces of k */
    char impl[32];
} product;

/* The data that a run shares with its tasks. */
typedef struct {
    const product *p;
    void *const *buffers;
    char *workspace, *panels;           /* panels: the packed piece */
    int64_t b0, b1;                     /* products of the batch in this chunk */
    int64_t k0, pk, j0, j1;             /* the piece */
    int64_t rows, row_tasks, columns, column_tasks;
    bool first, last;
} piece;

static const void *shift(const void *base, int64_t elements, size_t size)
{
    return (const char *)base + elements * (int64_t)size;
}

static void place(const piece *w, int64_t b, wb__gemm *g)
{
    const product *p = w->p;
    const size_t size = wb__dtype_size(p->g.a_type);
    const int64_t i0 = b / p->batch[1], i1 = b % p->batch[1];
    const int x = p->transposed, y = !p->transposed;
    *g = p->g;
    g->a = shift(w->buffers[x], i0 * p->a_b[0] + i1 * p->a_b[1], size);
    g->b = shift(w->buffers[y], i0 * p->b_b[0] + i1 * p->b_b[1], size);
    g->bias = p->has_bias ? w->buffers[3] : NULL;
    if (p->wide) {
        g->c = w->workspace + p->wide_at + (size_t)((b - w->b0) * g->m * g->n) * sizeof(float);
        g->c_type = WB_F32;
        g->cs0 = g->n;
        g->cs1 = 1;
    } else
        g->c = (void *)shift(w->buffers[2], i0 * p->c_b[0] + i1 * p->c_b[1], size);
}

enum { PANELS = 4 };                    /* panels of B that one task packs */

static void pack_task(void *ctx, int64_t i)
{
    const piece *w = ctx;
    const product *p = w->p;
    const int64_t step = PANELS * p->kernel->nr, tasks = ceil_div(w->j1 - w->j0, step);
    const int64_t b = w->b0 + i / tasks, j = w->j0 + i % tasks * step;
    wb__gemm g;
    place(w, b, &g);
    char *to = w->panels + (size_t)(b - w->b0) * p->packed_each
             + packed_bytes(p->kernel, g.b_type, w->pk, j - w->j0);
    p->kernel->pack_b(&g, w->k0, w->pk, j, WB__MIN(j + step, w->j1), to);
}

static int64_t pack_tasks(const piece *w)
{
    return ceil_div(w->j1 - w->j0, PANELS * w->p->kernel->nr);
}

/* The place of a piece in the packed form of B. */
static char *packed_piece(const piece *w, void *packed)
{
    const wb__gemm *g = &w->p->g;
    const int64_t at = w->j0 * g->k + w->k0 * round_up(w->j1 - w->j0, w->p->kernel->nr);
    return (char *)packed + (size_t)at * wb__dtype_size(computed_type(g->b_type));
}

static void block_task(void *ctx, int64_t i)
{
    const piece *w = ctx;
    const product *p = w->p;
    const int64_t column = i % w->column_tasks, rest = i / w->column_tasks;
    const int64_t b = w->b0 + rest / w->row_tasks, i0 = rest % w->row_tasks * w->rows;
    const int64_t j0 = w->j0 + column * w->columns;
    wb__gemm g;
    place(w, b, &g);
    const char *packed = NULL;
    if (!p->in_place)
        packed = w->panels + (p->shared_b ? 0 : (size_t)(b - w->b0) * p->packed_each)
               + packed_bytes(p->kernel, g.b_type, w->pk, j0 - w->j0);
    p->kernel->block(&g, w->k0, w->pk, i0, WB__MIN(i0 + w->rows, g.m), j0,
                     WB__MIN(j0 + w->columns, w->j1), packed, w->first, w->last);
}

static void dots_task(void *ctx, int64_t i)
{
    const piece *w = ctx;
    const int64_t b = w->b0 + i / w->column_tasks, j0 = i % w->column_tasks * w->columns;
    wb__gemm g;
    place(w, b, &g);
    const size_t size = wb__dtype_size(g.a_type);
    g.b = shift(g.b, j0 * g.bs1, size);
    g.c = (void *)shift(g.c, j0 * g.cs1, size);
    if (g.bias && !g.bias_rows) g.bias = shift(g.bias, j0, size);
    g.n = WB__MIN(w->columns, g.n - j0);
    w->p->kernel->dots(&g, 0, g.m);
}

/* Converts a row of f32 sums to the narrow dtype of C. */
static void narrow_task(void *ctx, int64_t i)
{
    const piece *w = ctx;
    const product *p = w->p;
    const int64_t b = w->b0 + i / p->g.m, row = i % p->g.m, n = p->g.n;
    const float *from =
        (const float *)(w->workspace + p->wide_at) + ((b - w->b0) * p->g.m + row) * n;
    uint16_t *to = (uint16_t *)w->buffers[2] + b / p->batch[1] * p->c_b[0]
                   + b % p->batch[1] * p->c_b[1] + row * p->g.cs0;
    if (p->g.cs1 == 1) wb__narrow(to, p->g.c_type, from, n);
    else for (int64_t j = 0; j < n; j++) wb__narrow(to + j * p->g.cs1, p->g.c_type, from + j, 1);
}

static void spread_over(bool serial, int64_t n, void (*body)(void *ctx, int64_t i), void *ctx)
{
    if (!serial) wb__parallel(n, body, ctx);
    else for (int64_t i = 0; i < n; i++) body(ctx, i);
}

/* Cuts a piece into tasks, about three per thread. */
static void cut(piece *w, int threads)
{
    const product *p = w->p;
    const int mr = p->kernel->mr, nr = p->kernel->nr;
    const int64_t panels = ceil_div(p->g.m, mr), n = w->j1 - w->j0;
    const int64_t want = threads > 1 ? ceil_div(3 * threads, w->b1 - w->b0) : 1;
    /* few rows and packed columns: a thread reads only its columns of B */
    const int64_t most = p->packed && n >= want * nr ? 1 : panels;
    w->rows = ceil_div(panels, WB__MIN(want, most)) * mr;
    w->row_tasks = ceil_div(p->g.m, w->rows);
    w->columns = round_up(ceil_div(n, ceil_div(want, w->row_tasks)), nr);
    w->column_tasks = ceil_div(n, w->columns);
}

static void run_product(const wb__cpu_op *op, void *const *buffers, void *workspace)
{
    const product *p = (const product *)op;
    const wb__gemm *g = &p->g;
    if (!p->count || !g->m || !g->n) return;
    piece w = { .p = p, .buffers = buffers, .workspace = workspace };
    if (p->simple) { /* for a tiny product the overhead dominates */
        wb__gemm one = *g;
        one.a = buffers[p->transposed], one.b = buffers[!p->transposed], one.c = buffers[2];
        one.bias = p->has_bias ? buffers[3] : NULL;
        if (p->packed) workspace = buffers[1];
        else if (!p->in_place) p->kernel->pack_b(&one, 0, g->k, 0, g->n, workspace);
        p->kernel->block(&one, 0, g->k, 0, g->m, 0, g->n, p->in_place ? NULL : workspace, true,
                         true);
        return;
    }
    const int threads = p->serial ? 1 : wb__threads();
    for (w.b0 = 0; w.b0 < p->count; w.b0 = w.b1) {
        w.b1 = WB__MIN(w.b0 + p->chunk, p->count);
        const int64_t products = w.b1 - w.b0;
        if (p->dots) {
            int64_t want = threads > 1 ? ceil_div(3 * threads, products) : 1;
            w.columns = round_up(ceil_div(g->n, want), 4);
            w.column_tasks = ceil_div(g->n, w.columns);
            spread_over(threads == 1, products * w.column_tasks, dots_task, &w);
            continue;
        }
        for (w.j0 = 0; w.j0 < g->n; w.j0 = w.j1) {
            w.j1 = WB__MIN(w.j0 + p->kernel->nc, g->n);
            cut(&w, threads);
            w.k0 = 0;
            do {
                w.pk = WB__MIN(p->kc, g->k - w.k0);
                w.first = w.k0 == 0;
                w.last = w.k0 + w.pk >= g->k;
                w.panels = p->packed ? packed_piece(&w, buffers[1]) : workspace;
                if (!p->in_place && !p->packed)
                    spread_over(threads == 1, (p->shared_b ? 1 : products) * pack_tasks(&w),
                                pack_task, &w);
                spread_over(threads == 1, products * w.row_tasks * w.column_tasks, block_task, &w);
                w.k0 += w.pk;
            } while (w.k0 < g->k);
        }
        if (p->wide) spread_over(threads == 1, products * g->m, narrow_task, &w);
    }
}

static void destroy_product(wb__cpu_op *op) { wb__free(op); }

/* Estimates the time of a product in cycles: multiply-adds at two vectors per cycle, plus the cost
 * of copying B or transposing C. */
static double cost(const wb__gemm *g, const wb__gemm_kernel *kernel)
{
    const double m = (double)g->m, n = (double)g->n, k = (double)g->k;
    const double tall = (double)WB__MIN(g->m, kernel->mr), wide = (double)WB__MIN(
        ceil_div(g->n, kernel->lanes), kernel->nr / kernel->lanes);
    double cycles = m * (double)round_up(g->n, kernel->lanes) * k / (2.0 * kernel->lanes);
    if (tall * wide < 8) cycles *= 8 / (tall * wide); /* with few sums, latency is not hidden */
    if (!reads_in_place(g, kernel)) cycles += n * k * (g->bs1 == 1 ? 0.1 : 0.4);
    if (g->cs1 != 1) /* each further piece of k reads and writes C again */
        cycles += m * n * (g->cs0 == 1 ? 0.3 : 1) * (2 * (double)ceil_div(g->k, kernel->kc) - 1);
    return cycles;
}

/* Returns the product whose result is C transposed: B transposed times A transposed. */
static wb__gemm transposed_product(const wb__gemm *g)
{
    wb__gemm t = *g;
    t.m = g->n, t.n = g->m;
    t.as0 = g->bs1, t.as1 = g->bs0;
    t.bs0 = g->as1, t.bs1 = g->as0;
    t.cs0 = g->cs1, t.cs1 = g->cs0;
    t.bias_rows = !g->bias_rows;
    return t;
}

static bool suits_dots(const wb__gemm *g, const wb__gemm_kernel *kernel)
{
    return g->m <= 2 && g->as1 == 1 && g->bs0 == 1 && g->bs1 != 1 && g->k >= 2 * kernel->lanes
        && (g->a_type == computed_type(g->a_type) || (kernel->narrow && g->a_type == WB_BF16));
}

static void lay_out(product *p)
{
    const wb__gemm *g = &p->g;
    const int64_t size = (int64_t)wb__dtype_size(computed_type(g->a_type));
    p->in_place = !p->packed && reads_in_place(g, p->kernel);
    p->kc = inner_piece(p->kernel, g->k);
    p->shared_b = !p->b_b[0] && !p->b_b[1];
    p->wide = !p->dots && g->c_type != computed_type(g->c_type) && g->k > p->kc;
    p->chunk = WB__MAX(p->count, 1);
    const int64_t columns = round_up(WB__MIN(g->n, p->kernel->nc), p->kernel->nr);
    int64_t each = p->in_place || p->dots || p->packed
                     ? 0 : (int64_t)packed_bytes(p->kernel, g->a_type, p->kc, columns);
    int64_t wide = p->wide ? g->m * g->n * size : 0;
    if (each || wide)
        p->chunk =
            WB__MIN(p->chunk, WB__MAX(CHUNK_BYTES / ((p->shared_b ? 0 : each) + wide + 1), 1));
    p->packed_each = (size_t)each;
    p->wide_at = (size_t)(p->shared_b ? each : each * p->chunk);
    p->op.workspace = p->wide_at + (size_t)(wide * p->chunk);
    p->simple = p->serial && p->count == 1 && !p->dots && g->k <= p->kc
             && g->n <= p->kernel->nc;
}

/* Whether our product is faster than oneDNN's: for small products, because a call of oneDNN has a
 * cost, and for products of one row or column, where oneDNN does not reach memory speed. */
static bool own_is_faster(const wb__matmul_desc *d)
{
    const double work = (double)(d->batch[0] * d->batch[1]) * (double)(d->m * d->n) * (double)d->k;
    return work < 12e3 || d->m == 1 || d->n == 1;
}

/* Whether to round f32 operands to bf16: packing them is then a small part of the time. */
static bool rounds(const wb__matmul_desc *d)
{
    return d->round && d->dtype == WB_F32 && d->m >= 8 && d->n >= 8 && d->k >= 8
        && wb__isa_gemm_bf16();
}

int wb__cpu_matmul(const wb__matmul_desc *d, wb__cpu_op **op)
{
    const char *reason = NULL;
    *op = NULL;
    if (d->packed) reason = "our own product, with B packed once for several products";
    else if (rounds(d)) reason = "products may be rounded to bf16";
    else if (own_is_faster(d)) reason = "our own product is faster at this shape";
    else {
        int error = wb__dnnl_matmul(d, op, &reason);
        if (error || *op) return error;
    }
    if (!wb__dtype_float(d->dtype))
        return wb__fail(WB_ERROR_UNSUPPORTED, "matmul: not for dtype %s", wb_dtype_name(d->dtype));
    product *p = wb__alloc_zero(1, sizeof *p);
    if (!p) return WB_ERROR_MEMORY;
    p->op.run = run_product;
    p->op.destroy = destroy_product;
    p->op.reason = reason;
    p->g = (wb__gemm){ .m = d->m,
                       .n = d->n,
                       .k = d->k,
                       .as0 = d->a_s[0],
                       .as1 = d->a_s[1],
                       .bs0 = d->b_s[0],
                       .bs1 = d->b_s[1],
                       .cs0 = d->c_s[0],
                       .cs1 = d->c_s[1],
                       .a_type = d->dtype,
                       .b_type = d->dtype,
                       .c_type = d->dtype,
                       .bias_type = d->dtype,
                       .round = !d->packed && (d->dtype == WB_BF16 || rounds(d)),
                       .act = wb__act_of(d->act, computed_type(d->dtype)) };
    p->kernel = kernel_for(&p->g);
    p->has_bias = d->has_bias;
    p->count = d->batch[0] * d->batch[1];
    wb__gemm transposed = transposed_product(&p->g);
    p->packed = d->packed;
    p->dots = !d->packed && suits_dots(&p->g, p->kernel);
    p->transposed = !d->packed && !p->dots && (suits_dots(&transposed, p->kernel)
                                 || cost(&transposed, p->kernel) < cost(&p->g, p->kernel));
    if (p->transposed) {
        p->dots = suits_dots(&transposed, p->kernel);
        p->g = transposed;
    }
    p->g.streams = p->g.n * p->g.k * (int64_t)wb__dtype_size(d->dtype) > CACHED;
    for (int i = 0; i < 2; i++) {
        p->batch[i] = d->batch[i];
        p->a_b[i] = p->transposed ? d->b_b[i] : d->a_b[i];
        p->b_b[i] = p->transposed ? d->a_b[i] : d->b_b[i];
        p->c_b[i] = d->c_b[i];
    }
    p->serial = (double)p->count * (double)d->m * (double)d->n * (double)WB__MAX(d->k, 1) < SERIAL;
    lay_out(p);
    snprintf(p->impl, sizeof p->impl, "%s %s%s", p->dots ? "dot" : "gemm", wb__isa_best()->name,
             p->kernel->narrow ? " bf16" : "");
    p->op.impl = p->impl;
    *op = &p->op;
    return 0;
}

/* ---- packed operands ------------------------------------------------------------------------- */

static void run_pack(const wb__cpu_op *op, void *const *buffers, void *workspace)
{
    const product *p = (const product *)op;
    const wb__gemm *g = &p->g;
    void *const at[4] = { buffers[0], buffers[0], buffers[1], NULL };
    piece w = { .p = p, .buffers = at, .workspace = workspace, .b1 = 1 };
    for (w.j0 = 0; w.j0 < g->n; w.j0 = w.j1) {
        w.j1 = WB__MIN(w.j0 + p->kernel->nc, g->n);
        for (w.k0 = 0; w.k0 < g->k; w.k0 += w.pk) {
            w.pk = WB__MIN(p->kc, g->k - w.k0);
            w.panels = packed_piece(&w, buffers[1]);
            spread_over(p->serial, pack_tasks(&w), pack_task, &w);
        }
    }
}

int wb__cpu_matmul_pack(const wb__matmul_desc *d, wb__cpu_op **op)
{
    product *p = wb__alloc_zero(1, sizeof *p);
    *op = p ? &p->op : NULL;
    if (!p) return WB_ERROR_MEMORY;
    p->op.run = run_pack;
    p->op.destroy = destroy_product;
    p->op.impl = wb__isa_best()->name;
    p->g = (wb__gemm){ .n = d->n, .k = d->k, .bs0 = d->b_s[0], .bs1 = d->b_s[1],
                       .a_type = d->dtype, .b_type = d->dtype };
    p->kernel = kernel_for(&p->g);
    p->batch[0] = p->batch[1] = p->count = 1;
    p->kc = inner_piece(p->kernel, d->k);
    p->serial = d->n * d->k < SERIAL;
    return 0;
}

/* Measured on a Zen 4 core (f32, AVX-512, B of 32 x 32 to 512 x 2048) against oneDNN 2.6: with B
 * packed a product takes 0.31 of the time at 2 rows, 0.62 at 8, 0.78 at 16, 0.87 at 32, 0.94 at 64
 * and 0.98 at 128, if B is transposed, and 0.35 to 1.02 otherwise.  Our own product, which packs B
 * itself, takes 4 times as long at 4 rows and 1.1 times at 32.  With one row the time is that of
 * reading B.  bf16 is left to the processor's own products. */
int64_t wb__cpu_matmul_packed(const wb__matmul_desc *d)
{
    if (d->m < 2 || d->m > PACKED_ROWS || d->n < 2 || d->k < 1) return 0;
    if (!wb__dtype_float(d->dtype) || d->dtype == WB_BF16) return 0;
    return d->k * round_up(d->n, kernel_for(&(wb__gemm){ .a_type = d->dtype })->nr)
         * (int64_t)wb__dtype_size(computed_type(d->dtype));
}
