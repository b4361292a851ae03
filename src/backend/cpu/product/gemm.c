/* The matrix product.  This file decides whether to compute the transpose, in which blocks, and on
 * which threads.
 *
 * The rows and columns of C are divided into parts.  One thread computes a part, in pieces of at
 * most kc inner indices and nc columns: it packs a piece of B into panels, unless reading B in
 * place is faster.  Several threads may pack the same piece; that takes less time than waiting for
 * each other.  The pieces of k depend on the shape only, so the result does not depend on the
 * number of threads.
 *
 * Products with the same B may share its packed form, in which all pieces follow each other. */
#include "backend/cpu/product/gemm.h"

#include "backend/cpu/onednn/dnnl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GEMM_SERIAL = 120 * 1000, /* with fewer multiply-adds, one thread is faster than two */
    IN_PLACE_ROWS = 64,     /* with more rows than this, B is always packed */
    PACKED_ROWS = 64,       /* with more rows than this, packing B takes little of the time */
    KEPT_ROWS = 512,        /* the same limit, where the packed form is kept from run to run */
    KEPT_BYTES = 32 << 20,  /* limit of a form that is kept; each run makes a larger one */
    GEMM_PER_THREAD = 3,    /* parts for each thread, at most */
    MOST_TASKS = 4,         /* tasks for each thread; 1 if their workspaces exceed TASKS_BYTES */
    TASKS_BYTES = 4 << 20,
    CACHED = 1 << 20                    /* bytes of B that stay in the cache between two runs */
};

static const wb__gemm_kernel *gemm_kernel_for(const wb__gemm *g)
{
    const wb__isa *isa = wb__isa_best();
    const wb__gemm_kernel *bf16 = g->round ? wb__isa_gemm_bf16() : NULL;
    return bf16 ? bf16 : g->a_type == WB_F64 ? isa->gemm_f64 : isa->gemm_f32;
}

static wb_dtype computed_type(wb_dtype t) { return t == WB_F64 ? WB_F64 : WB_F32; }
static int64_t round_up(int64_t a, int64_t b) { return wb__quotient_up(a, b) * b; }
/* Returns the length of a piece if k is divided into about equal pieces of at most the kernel's
 * kc. */
static int64_t gemm_inner_piece(const wb__gemm_kernel *kernel, int64_t k)
{
    int64_t pieces = WB__MAX(wb__quotient_up(k, kernel->kc), 1);
    return WB__MAX(round_up(wb__quotient_up(k, pieces), 16), 16);
}

/* Returns the bytes of `columns` packed columns of B with k inner indices. */
static size_t gemm_packed_bytes(const wb__gemm_kernel *kernel, wb_dtype t, int64_t k,
                                int64_t columns)
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

/* How one thread computes a product: with pieces of kc inner indices, and B as it is stored, from
 * its packed form, or packed by this thread. */
typedef struct {
    const wb__gemm_kernel *kernel;
    int64_t kc;                         /* inner indices of a piece, at most */
    bool in_place, ready;               /* ready: the panels of the only piece are in `scratch` */
    const char *packed;                 /* the packed form of all of B, or NULL */
    int64_t columns, from;      /* columns of this form; its first column that the product needs */
} method;

/* The place of panels of the packed form of B: from column j on, inner indices [k0, k0 + pk) of k.
 * All pieces of nc columns follow each other. */
static size_t packed_at(const method *w, const wb__gemm *g, int64_t j, int64_t k0, int64_t pk)
{
    const int64_t piece = j / w->kernel->nc * w->kernel->nc,
                  wide = round_up(WB__MIN(w->kernel->nc, w->columns - piece), w->kernel->nr);
    return (size_t)(piece * g->k + k0 * wide + (j - piece) * pk)
         * wb__dtype_size(computed_type(g->b_type));
}

static void gemm_multiply(const method *w, const wb__gemm *g, void *scratch)
{
    const wb__gemm_kernel *kernel = w->kernel;
    for (int64_t j0 = 0, j1; j0 < g->n; j0 = j1) {
        const int64_t piece = w->packed ? (w->from + j0) % kernel->nc : 0;
        j1 = WB__MIN(j0 - piece + kernel->nc, g->n);
        int64_t k0 = 0;
        do {
            const int64_t pk = WB__MIN(w->kc, g->k - k0);
            const void *panels = w->in_place ? NULL : scratch;
            if (w->packed) panels = w->packed + packed_at(w, g, w->from + j0, k0, pk);
            else if (!w->in_place && !w->ready) kernel->pack_b(g, k0, pk, j0, j1, scratch);
            kernel->block(g, k0, pk, 0, g->m, j0, j1, panels, k0 == 0, k0 + pk >= g->k);
            k0 += pk;
        } while (k0 < g->k);
    }
}

static size_t scratch_for(const wb__gemm *g, const wb__gemm_kernel *kernel)
{
    return gemm_packed_bytes(kernel, g->a_type, gemm_inner_piece(kernel, g->k),
                             round_up(WB__MIN(g->n, kernel->nc), kernel->nr));
}

/* Computes a product on one thread, for conv.c. */

size_t wb__gemm_scratch(const wb__gemm *g)
{
    const wb__gemm_kernel *kernel = gemm_kernel_for(g);
    return reads_in_place(g, kernel) ? 0 : scratch_for(g, kernel);
}

void wb__gemm_run(const wb__gemm *g, void *scratch)
{
    const wb__gemm_kernel *kernel = gemm_kernel_for(g);
    const method w = { .kernel = kernel, .kc = gemm_inner_piece(kernel, g->k),
                       .in_place = reads_in_place(g, kernel) };
    gemm_multiply(&w, g, scratch);
}

/* A prepared product. */

typedef struct {
    wb__cpu_op op;
    wb__gemm g; /* one product of the batch, with NULL pointers; transposed if `transposed` */
    method method;
    bool transposed, dots;              /* dots: computed by dot products */
    bool packed;                        /* B is in its packed form */
    size_t form_at;                     /* offset of B's packed form in the workspace, in bytes,
                                           for runs without a prepared form */
    bool has_bias;
    int64_t batch[2], a_b[2], b_b[2], c_b[2], count;            /* count: products of the batch */
    /* A product is divided into parts of so many rows and columns at most.  A task computes some
     * parts one after the other, with scratch memory of its own. */
    int64_t rows, columns, row_parts, column_parts;
    int64_t parts, tasks;               /* parts of all products; tasks of a run */
    bool one_piece;                     /* a part has all inner indices and columns in a piece */
    bool wide;                          /* C is kept in f32 between the pieces of k */
    size_t wide_at, each;               /* bytes: offset of this copy in a task's workspace, and
                                           size of that workspace */
    char impl[32];
} gemm_product;

static const void *gemm_shift(const void *base, int64_t elements, size_t size)
{
    return (const char *)base + elements * (int64_t)size;
}

/* Sets *g and *w to part number `part`.  Parts of neighbouring products and rows follow each other,
 * since they may read the same columns of B. */
static void gemm_set_part(const gemm_product *p, void *const *buffers, int64_t part, wb__gemm *g,
                          method *w)
{
    const size_t size = wb__dtype_size(p->g.a_type);
    const int64_t rest = part / p->row_parts, b = rest % p->count;
    const int64_t i0 = part % p->row_parts * p->rows, j0 = rest / p->count * p->columns;
    const int64_t b0 = b / p->batch[1], b1 = b % p->batch[1];
    const int x = p->transposed, y = !p->transposed;
    *g = p->g;
    *w = p->method;
    g->m = WB__MIN(p->rows, g->m - i0);
    g->n = WB__MIN(p->columns, g->n - j0);
    g->a = gemm_shift(buffers[x], b0 * p->a_b[0] + b1 * p->a_b[1] + i0 * g->as0, size);
    g->c = (void *)gemm_shift(buffers[2],
                              b0 * p->c_b[0] + b1 * p->c_b[1] + i0 * g->cs0 + j0 * g->cs1, size);
    if (p->has_bias) g->bias = gemm_shift(buffers[3], g->bias_rows ? i0 : j0, size);
    if (p->packed) w->packed = buffers[y], w->from = j0;
    else g->b = gemm_shift(buffers[y], b0 * p->b_b[0] + b1 * p->b_b[1] + j0 * g->bs1, size);
}

/* Computes C in f32, and converts it to its narrow dtype. */
static void multiply_wide(const method *w, const wb__gemm *g, void *scratch, float *wide)
{
    wb__gemm f32 = *g;
    f32.c = wide;
    f32.c_type = WB_F32;
    f32.cs0 = g->n;
    f32.cs1 = 1;
    gemm_multiply(w, &f32, scratch);
    for (int64_t i = 0; i < g->m; i++, wide += g->n) {
        uint16_t *to = (uint16_t *)g->c + i * g->cs0;
        if (g->cs1 == 1) wb__narrow(to, g->c_type, wide, g->n);
        else for (int64_t j = 0; j < g->n; j++)
            wb__narrow(to + j * g->cs1, g->c_type, wide + j, 1);
    }
}

/* The data that a run shares with its tasks. */
typedef struct {
    const gemm_product *p;
    void *const *buffers;
    char *workspace;
} product_run;

static void gemm_run_parts(void *ctx, int64_t task)
{
    const product_run *r = ctx;
    const gemm_product *p = r->p;
    char *mine = r->workspace + (size_t)task * p->each;
    const void *b = NULL;
    const int64_t end = p->parts * (task + 1) / p->tasks;
    for (int64_t part = p->parts * task / p->tasks; part < end; part++) {
        wb__gemm g;
        method w;
        gemm_set_part(p, r->buffers, part, &g, &w);
        w.ready = p->one_piece && g.b == b;
        b = g.b;
        if (p->dots) p->method.kernel->dots(&g, 0, g.m);
        else if (p->wide) multiply_wide(&w, &g, mine, (float *)(mine + p->wide_at));
        else gemm_multiply(&w, &g, mine);
    }
}

static void gemm_run_product(const wb__cpu_op *op, void *const *buffers, void *workspace)
{
    const gemm_product *p = (const gemm_product *)op;
    product_run r = { p, buffers, workspace };
    if (p->tasks > 1) wb__parallel(p->tasks, gemm_run_parts, &r);
    else if (p->tasks) gemm_run_parts(&r, 0);
}

/* Estimates the time of a product in cycles: multiply-adds at two vectors per cycle, plus the cost
 * of copying B or transposing C. */
static double gemm_cost(const wb__gemm *g, const wb__gemm_kernel *kernel)
{
    const double m = (double)g->m, n = (double)g->n, k = (double)g->k;
    const double tall = (double)WB__MIN(g->m, kernel->mr), wide = (double)WB__MIN(
        wb__quotient_up(g->n, kernel->lanes), kernel->nr / kernel->lanes);
    double cycles = m * (double)round_up(g->n, kernel->lanes) * k / (2.0 * kernel->lanes);
    if (tall * wide < 8) cycles *= 8 / (tall * wide); /* with few sums, latency is not hidden */
    if (!reads_in_place(g, kernel)) cycles += n * k * (g->bs1 == 1 ? 0.1 : 0.4);
    if (g->cs1 != 1) /* each further piece of k reads and writes C again */
        cycles += m * n * (g->cs0 == 1 ? 0.3 : 1) *
                  (2 * (double)wb__quotient_up(g->k, kernel->kc) - 1);
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

/* Estimates the cycles of a part: of its product, of fetching A and B, of writing C beside another
 * thread (a processor also fetches the lines that follow), and of starting the part. */
static double part_cost(const gemm_product *p, int64_t rows, int64_t columns)
{
    wb__gemm g = p->g;
    g.m = rows;
    g.n = columns;
    if (p->packed) g.bs1 = 1;           /* no copy: as if B were read in place */
    double fetched = 0.2 * (double)g.k * (double)(rows + columns);
    if (g.as1 != 1) fetched += 0.1 * (double)g.k * (double)rows;
    if (columns < p->g.n && g.cs1 == 1) fetched += 150 * (double)rows;
    if (rows < p->g.m && g.cs0 == 1) fetched += 150 * (double)columns;
    return gemm_cost(&g, p->method.kernel) + fetched + 600;
}

/* Divides each product into parts such that all parts together take the least time on so many
 * threads.  More parts may take a little longer: a slow thread then delays the others less. */
static void gemm_divide(gemm_product *p, int threads)
{
    const wb__gemm *g = &p->g;
    const int row = p->method.kernel->mr,
              column = p->packed ? p->method.kernel->nr : p->method.kernel->lanes;
    double best = INFINITY;
    for (int per_thread = GEMM_PER_THREAD; per_thread > 0; per_thread--) {
        const int64_t want = wb__quotient_up(per_thread * threads, p->count);
        for (int64_t c = 1; c <= WB__MIN(want, wb__quotient_up(g->n, column)); c++) {
            const int64_t rows = round_up(wb__quotient_up(g->m, wb__quotient_up(want, c)), row),
                          columns = round_up(wb__quotient_up(g->n, c), column);
            const int64_t parts =
                p->count * wb__quotient_up(g->m, rows) * wb__quotient_up(g->n, columns);
            const double time = (double)wb__quotient_up(parts, threads)
                              * part_cost(p, WB__MIN(rows, g->m), WB__MIN(columns, g->n));
            if (time > 0.97 * best) continue;
            best = time;
            p->rows = rows;
            p->columns = columns;
        }
    }
}

static void gemm_lay_out(gemm_product *p, int threads)
{
    const wb__gemm *g = &p->g;
    const wb__gemm_kernel *kernel = p->method.kernel;
    p->method.kc = gemm_inner_piece(kernel, g->k);
    p->method.columns = g->n;
    p->wide = !p->dots && g->c_type != computed_type(g->c_type) && g->k > p->method.kc;
    if (!p->count || !g->m || !g->n) return;
    p->rows = g->m;
    p->columns = g->n;
    if (threads > 1 && p->dots)
        p->columns = round_up(
            wb__quotient_up(g->n, wb__quotient_up(GEMM_PER_THREAD * threads, p->count)), 4);
    else if (threads > 1) gemm_divide(p, threads);
    p->row_parts = wb__quotient_up(g->m, p->rows);
    p->column_parts = wb__quotient_up(g->n, p->columns);
    p->parts = p->count * p->row_parts * p->column_parts;
    wb__gemm part = *g;
    part.m = WB__MIN(p->rows, g->m);
    part.n = WB__MIN(p->columns, g->n);
    const bool whole = kernel->masked || g->n % kernel->lanes == 0;  /* true of the last part too */
    p->method.in_place = !p->packed && whole && reads_in_place(&part, kernel);
    p->one_piece = g->k <= p->method.kc && part.n <= kernel->nc;
    const bool packs = !p->method.in_place && !p->dots && !p->packed;
    p->wide_at = packs ? wb__aligned(scratch_for(&part, kernel)) : 0;
    p->each = wb__aligned(p->wide_at + (p->wide ? (size_t)(part.m * part.n) * sizeof(float) : 0));
    p->tasks = threads > 1 ? WB__MIN(p->parts, MOST_TASKS * threads) : 1;
    if ((size_t)p->tasks * p->each > TASKS_BYTES) p->tasks = WB__MIN(p->tasks, threads);
    p->op.workspace = p->each * (size_t)p->tasks;
}

/* Whether our product is faster than oneDNN's: for small products, because a call of oneDNN has a
 * cost, and for products of one row or column, where oneDNN does not reach memory speed. */
static bool own_is_faster(const wb__matmul_desc *d)
{
    const double work = (double)(d->batch[0] * d->batch[1]) * (double)(d->m * d->n) * (double)d->k;
    return work < 12e3 || d->m == 1 || d->n == 1;
}

/* Whether to round f32 operands to bf16: packing them is then a small part of the time. */
static bool gemm_rounds(const wb__matmul_desc *d)
{
    return d->round && d->dtype == WB_F32 && d->m >= 8 && d->n >= 8 && d->k >= 8
        && wb__isa_gemm_bf16();
}

/* ---- packed operands ------------------------------------------------------------------------- */

static void pack_panel(void *ctx, int64_t i)
{
    const product_run *r = ctx;
    const gemm_product *p = r->p;
    const wb__gemm_kernel *kernel = p->method.kernel;
    wb__gemm g = p->g;
    g.b = r->buffers[0];
    const int64_t j = i * kernel->nr;
    for (int64_t k0 = 0; k0 < g.k; k0 += p->method.kc) {
        const int64_t pk = WB__MIN(p->method.kc, g.k - k0);
        kernel->pack_b(&g, k0, pk, j, WB__MIN(j + kernel->nr, g.n),
                       (char *)r->buffers[1] + packed_at(&p->method, &g, j, k0, pk));
    }
}

/* Writes the packed form of B, whose values are at `from`. */
static int pack_operand(const wb__cpu_op *op, const void *from, void *form)
{
    const gemm_product *p = (const gemm_product *)op;
    product_run r = { p, (void *[]){(void *)from, form}, NULL };
    const int64_t panels = wb__quotient_up(p->g.n, p->method.kernel->nr);
    if (p->g.n * p->g.k >= GEMM_SERIAL) wb__parallel(panels, pack_panel, &r);
    else for (int64_t i = 0; i < panels; i++) pack_panel(&r, i);
    return 0;
}

static void run_pack(const wb__cpu_op *op, void *const *buffers, void *workspace)
{
    (void)workspace;
    pack_operand(op, buffers[0], buffers[1]);
}

static void run_prepared(const wb__cpu_op *op, void *const *buffers, const void *form,
                         void *workspace)
{
    const gemm_product *p = (const gemm_product *)op;
    gemm_run_product(op, (void *[]){buffers[0], (void *)form, buffers[2],
                                  p->has_bias ? buffers[3] : NULL}, workspace);
}

static void run_unprepared(const wb__cpu_op *op, void *const *buffers, void *workspace)
{
    char *form = (char *)workspace + ((const gemm_product *)op)->form_at;
    pack_operand(op, buffers[1], form);
    run_prepared(op, buffers, form, workspace);
}

/* Lets the product read its packed B, which has `bytes` bytes, as a prepared form. */
static void gemm_enable_form(gemm_product *p, size_t bytes)
{
    const int64_t key[] = { p->g.k, p->g.n, p->g.bs0, p->g.bs1, p->g.b_type };
    p->form_at = wb__aligned(p->op.workspace);
    p->op.workspace = p->form_at + bytes;
    p->op.run = run_unprepared;
    p->op.form_bytes = bytes;
    p->op.form_key = wb__cpu_form_key(WB__CPU_FORM_PACKED, sizeof key, key);
    p->op.make_form = pack_operand;
    p->op.run_form = run_prepared;
}

/* Returns the bytes of the packed form of B that may be kept from run to run; 0: there is none. */
static int64_t gemm_kept_bytes(const wb__matmul_desc *d)
{
    const bool one = d->batch[0] * d->batch[1] == 1;
    const int64_t bytes = d->kept && one && !gemm_rounds(d) ? wb__cpu_matmul_packed(d) : 0;
    return bytes <= KEPT_BYTES ? bytes : 0;
}

int wb__cpu_matmul(const wb__matmul_desc *d, wb__cpu_op **op)
{
    const char *reason = NULL;
    const int64_t form = gemm_kept_bytes(d);
    const bool packed = d->packed || form;
    *op = NULL;
    if (d->packed) reason = "our own product, with B packed once for several products";
    else if (form) reason = "our own product, whose packed weights are kept";
    else if (gemm_rounds(d)) reason = "products may be rounded to bf16";
    else if (own_is_faster(d)) reason = "our own product is faster at this shape";
    else {
        int error = wb__dnnl_matmul(d, op, &reason);
        if (error || *op) return error;
    }
    if (!wb__dtype_float(d->dtype))
        return wb__fail(WB_ERROR_UNSUPPORTED, "matmul: not for dtype %s", wb_dtype_name(d->dtype));
    gemm_product *p = wb__alloc_zero(1, sizeof *p);
    if (!p) return WB_ERROR_MEMORY;
    p->op.run = gemm_run_product;
    p->op.destroy = wb__cpu_op_free;
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
                       .round = !packed && (d->dtype == WB_BF16 || gemm_rounds(d)),
                       .act = wb__act_of(d->act, computed_type(d->dtype)) };
    const wb__gemm_kernel *kernel = gemm_kernel_for(&p->g);
    p->method.kernel = kernel;
    p->has_bias = d->has_bias;
    p->count = d->batch[0] * d->batch[1];
    wb__gemm transposed = transposed_product(&p->g);
    p->packed = packed;
    p->dots = !packed && suits_dots(&p->g, kernel);
    p->transposed = !packed && !p->dots && (suits_dots(&transposed, kernel)
                                 || gemm_cost(&transposed, kernel) < gemm_cost(&p->g, kernel));
    if (p->transposed) {
        p->dots = suits_dots(&transposed, kernel);
        p->g = transposed;
    }
    p->g.streams = p->g.n * p->g.k * (int64_t)wb__dtype_size(d->dtype) > CACHED;
    for (int i = 0; i < 2; i++) {
        p->batch[i] = d->batch[i];
        p->a_b[i] = p->transposed ? d->b_b[i] : d->a_b[i];
        p->b_b[i] = p->transposed ? d->a_b[i] : d->b_b[i];
        p->c_b[i] = d->c_b[i];
    }
    const double work = (double)p->count * (double)d->m * (double)d->n * (double)WB__MAX(d->k, 1);
    gemm_lay_out(p, (int)WB__MAX(WB__MIN(wb__threads(), 2 * work / GEMM_SERIAL), 1));
    snprintf(p->impl, sizeof p->impl, "%s %s%s", p->dots ? "dot" : "gemm", wb__isa_best()->name,
             kernel->narrow ? " bf16" : "");
    p->op.impl = p->impl;
    if (form) gemm_enable_form(p, (size_t)form);
    *op = &p->op;
    return 0;
}

int wb__cpu_matmul_pack(const wb__matmul_desc *d, wb__cpu_op **op)
{
    gemm_product *p = wb__alloc_zero(1, sizeof *p);
    *op = p ? &p->op : NULL;
    if (!p) return WB_ERROR_MEMORY;
    p->op.run = run_pack;
    p->op.destroy = wb__cpu_op_free;
    p->op.impl = wb__isa_best()->name;
    p->g = (wb__gemm){ .n = d->n, .k = d->k, .bs0 = d->b_s[0], .bs1 = d->b_s[1],
                       .a_type = d->dtype, .b_type = d->dtype };
    p->method.kernel = gemm_kernel_for(&p->g);
    p->method.kc = gemm_inner_piece(p->method.kernel, d->k);
    p->method.columns = d->n;
    return 0;
}

/* Measured on a Zen 4 core (f32, AVX-512, B of 32 x 32 to 512 x 2048) against oneDNN 2.6: with B
 * packed a product takes 0.31 of the time at 2 rows, 0.62 at 8, 0.78 at 16, 0.87 at 32, 0.94 at 64
 * and 0.98 at 128, if B is transposed, and 0.35 to 1.02 otherwise.  Where the packed form is kept,
 * all products of a sentence encoder (384 columns, 500 rows, B transposed) take 0.7 of the time of
 * oneDNN, which copies B in each of them, on an Intel processor with AVX-512.  Our own product,
 * which packs B itself, takes 4 times as long at 4 rows and 1.1 times at 32.  With one row the time
 * is that of reading B.  bf16 is left to the processor's own products. */
int64_t wb__cpu_matmul_packed(const wb__matmul_desc *d)
{
    if (d->m < 2 || d->m > (d->kept ? KEPT_ROWS : PACKED_ROWS) || d->n < 2 || d->k < 1) return 0;
    if (!wb__dtype_float(d->dtype) || d->dtype == WB_BF16) return 0;
    return d->k * round_up(d->n, gemm_kernel_for(&(wb__gemm){ .a_type = d->dtype })->nr)
         * (int64_t)wb__dtype_size(computed_type(d->dtype));
}
