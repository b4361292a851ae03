/* Attention in f32, one head after the other, for blocks of queries: a thread has the scores and
 * weights of one block only, and what the causal mask hides is not computed.
 *
 * The gradients compute p again from the scores (the notation is that of ops/ops.h):
 *
 *     p = softmax(scale q·kᵀ)     dv = Σ pᵀ·do     ds = scale p (do·vᵀ - sum(do o))
 *     dq = ds·k                   dk = Σ dsᵀ·q     sums over the blocks of queries, last first
 *
 * They do not read lse, whose rounding would make p wrong by 2^-24 of it.  Where some queries of a
 * block do not see a key that others see, its weight is 0, and 0 times a NaN or infinity is NaN.
 *
 * A head is computed by one thread, so the result does not depend on their number.  Rows of p are
 * computed by functions of tile programs, products by the kernel of gemm.c. */
#include "backend/cpu/cpu.h"

#include "backend/cpu/isa.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { Q, KEYS, V, O, LSE, DO, DQ, DK, DV };    /* the views of the step */
/* BLOCK: queries of a block.  LEAST: for fewer queries or keys, or fewer heads, the composed form
 * is not slower, and divides its work among more threads.  MAX_DEPTH: longer rows have not been
 * measured. */
enum { BLOCK = 32, LEAST = 32, LEAST_HEADS = 4, MAX_DEPTH = 256, LINE = 16 };

typedef struct {
    wb__cpu_kernel head;
    const wb__tile_table *table;
    const wb__gemm_kernel *gemm;
    wb__view views[9];
    int64_t heads, queries, keys, depth, width;         /* depth of q and k, width of v and o */
    float scale;
    bool causal, grad;
    int workers;
    /* offsets, in floats, in the scratch of a worker: packed k and v, scores, the gradient of p,
     * two numbers for each row of a block, the products do o, do divided by the sums of p; and the
     * floats of this scratch */
    int64_t packed_k, packed_v, p, dp, sum, product, shared, scratch;
} attention;

typedef struct {
    const attention *k;
    char *base[9];
    float *workspace;
    atomic_llong next;
} run;

/* A head, with the addresses of its first rows. */
typedef struct {
    const attention *k;
    float *at[9], *scratch;
} head;

static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static int64_t stride(const head *h, int view) { return h->k->views[view].strides[2]; }
static float *row(const head *h, int view, int64_t i) { return h->at[view] + i * stride(h, view); }

/* The block of queries [i0, i0 + rows), which reads the keys [0, seen). */
typedef struct { int64_t i0, rows, seen; } block;

static block block_at(const attention *k, int64_t i0)
{
    block b = {i0, WB__MIN(BLOCK, k->queries - i0), k->keys};
    if (k->causal) b.seen = b.i0 + b.rows + k->keys - k->queries;
    return b;
}

/* How many keys query i of the block sees. */
static int64_t seen_by(const attention *k, const block *b, int64_t i)
{
    return k->causal ? b->seen - b->rows + i + 1 : b->seen;
}

/* Sets what the causal mask hides in a block's matrix. */
static void hide(const attention *k, const block *b, float *p, float value)
{
    for (int64_t i = 0; k->causal && i < b->rows; i++)
        for (int64_t j = seen_by(k, b, i); j < b->seen; j++) p[i * b->seen + j] = value;
}

/* ---- products -------------------------------------------------------------------------------- */

static void pack(const head *h, int view, int64_t depth, float *to)
{
    const wb__gemm g = {.n = h->k->keys, .k = depth, .b = h->at[view], .bs0 = 1,
                        .bs1 = stride(h, view), .b_type = WB_F32};
    h->k->gemm->pack_b(&g, 0, depth, 0, h->k->keys, to);
}

static void multiply(const head *h, wb__gemm g, const float *packed)
{
    g.a_type = g.b_type = g.c_type = g.bias_type = WB_F32;
    g.bs1 = g.cs1 = 1;
    h->k->gemm->block(&g, 0, g.k, 0, g.m, 0, g.n, packed, true, true);
}

/* to [rows, seen] = x·packedᵀ, with the block's rows of x */
static void to_keys(const head *h, const block *b, int x, int64_t depth, const float *packed,
                    float *to)
{
    multiply(h, (wb__gemm){.m = b->rows, .n = b->seen, .k = depth, .a = row(h, x, b->i0),
                           .as0 = stride(h, x), .as1 = 1, .c = to, .cs0 = b->seen}, packed);
}

/* The block's rows of y = p·x, with the seen rows of x */
static void to_queries(const head *h, const block *b, const float *p, int x, int64_t width, int y)
{
    multiply(h, (wb__gemm){.m = b->rows, .n = width, .k = b->seen, .a = p, .as0 = b->seen, .as1 = 1,
                           .b = h->at[x], .bs0 = stride(h, x), .c = row(h, y, b->i0),
                           .cs0 = stride(h, y)}, NULL);
}

/* The seen rows of y get pᵀ·x, with x [rows, width].  The last block, which is computed first,
 * overwrites them; the others add to them. */
static void add_to_keys(const head *h, const block *b, const float *p, const float *x,
                        int64_t x_stride, int64_t width, int y)
{
    multiply(h, (wb__gemm){.m = b->seen, .n = width, .k = b->rows, .a = p, .as0 = 1, .as1 = b->seen,
                           .b = x, .bs0 = x_stride, .c = h->at[y], .cs0 = stride(h, y),
                           .add_to_c = b->i0 + b->rows < h->k->queries}, NULL);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* x = x times `factor` */
static void scale_by(const attention *k, float *to, const float *x, float factor, int64_t n)
{
    k->table->row[WB__OP_mul][WB__REG_F32][WB__VSV](to, x, &factor, NULL, n);
}

/* Row i of scores, whose maximum is infinite, gets scores with the weights that softmax has by its
 * definition: +Inf elements share the sum 1, and if all are -Inf, all have the same. */
static void replace_infinite(const attention *k, const block *b, int64_t i, float *s, float most)
{
    for (int64_t j = 0; j < seen_by(k, b, i); j++) s[j] = s[j] == most ? 0 : -INFINITY;
}

/* Computes exp(scale (s - max s)) of the block's queries, the maxima and the sums of rows. */
static void weigh(const head *h, const block *b, float *p, float *most, float *sum)
{
    const attention *k = h->k;
    to_keys(h, b, Q, k->depth, h->scratch + k->packed_k, p);
    hide(k, b, p, -INFINITY);
    k->table->reduction[1][WB__REG_F32](most, p, b->rows, b->seen);
    for (int64_t i = 0; i < b->rows; i++) {
        float *s = p + i * b->seen;
        const float from = isinf(most[i]) ? 0 : most[i];
        if (isinf(most[i])) replace_infinite(k, b, i, s, most[i]);
        k->table->pair[WB__PAIR_SUB][WB__PAIR_MUL][3](s, s, &from, &k->scale, b->seen);
    }
    k->table->row[WB__OP_exp][WB__REG_F32][WB__VVV](p, p, NULL, NULL, b->rows * b->seen);
    k->table->reduction[0][WB__REG_F32](sum, p, b->rows, b->seen);
}

static void forward(const head *h, const block *b)
{
    const attention *k = h->k;
    float *p = h->scratch + k->p, *sum = h->scratch + k->sum, most[BLOCK];
    weigh(h, b, p, most, sum);
    to_queries(h, b, p, V, k->width, O);
    float *lse = row(h, LSE, b->i0);
    for (int64_t i = 0; i < b->rows; i++) {
        float *o = row(h, O, b->i0 + i);
        scale_by(k, o, o, 1 / sum[i], k->width);
        lse[i * stride(h, LSE)] = k->scale * most[i] + logf(sum[i]);
    }
}

static void backward(const head *h, const block *b)
{
    const attention *k = h->k;
    float *p = h->scratch + k->p, *ds = h->scratch + k->dp, *sum = h->scratch + k->sum;
    float *product = h->scratch + k->product, *shared = h->scratch + k->shared;
    float *inner = sum + BLOCK, most[BLOCK];            /* inner: sum(do o) */
    weigh(h, b, p, most, sum);
    for (int64_t i = 0; i < b->rows; i++) {
        const float *gradient = row(h, DO, b->i0 + i);
        scale_by(k, shared + i * k->width, gradient, 1 / sum[i], k->width);
        k->table->row[WB__OP_mul][WB__REG_F32][WB__VVV](product + i * k->width, gradient,
                                                        row(h, O, b->i0 + i), NULL, k->width);
    }
    add_to_keys(h, b, p, shared, k->width, k->width, DV);
    k->table->reduction[0][WB__REG_F32](inner, product, b->rows, k->width);
    to_keys(h, b, DO, k->width, h->scratch + k->packed_v, ds);
    for (int64_t i = 0; i < b->rows; i++) {
        float *to = ds + i * b->seen;
        k->table->pair[WB__PAIR_SUB][WB__PAIR_MUL][1](to, to, inner + i, p + i * b->seen, b->seen);
        scale_by(k, to, to, k->scale / sum[i], b->seen);
    }
    hide(k, b, ds, 0);
    to_queries(h, b, ds, KEYS, k->depth, DQ);
    add_to_keys(h, b, ds, row(h, Q, b->i0), stride(h, Q), k->depth, DK);
}

/* ---- heads ----------------------------------------------------------------------------------- */

static void run_head(const head *h)
{
    const attention *k = h->k;
    pack(h, KEYS, k->depth, h->scratch + k->packed_k);
    if (k->grad) pack(h, V, k->width, h->scratch + k->packed_v);
    for (int64_t i = (k->queries - 1) / BLOCK * BLOCK; i >= 0; i -= BLOCK) {
        const block b = block_at(k, i);
        if (k->grad) backward(h, &b);
        else forward(h, &b);
    }
}

static void worker(void *ctx, int64_t i)
{
    run *r = ctx;
    const attention *k = r->k;
    head h = {.k = k, .scratch = r->workspace + i * k->scratch};
    for (;;) {
        const int64_t n = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
        if (n >= k->heads) return;
        const int64_t n0 = n / k->views[Q].dims[1], n1 = n % k->views[Q].dims[1];
        for (int v = 0; v < (k->grad ? 9 : 5); v++)
            h.at[v] = (float *)(void *)r->base[v] + n0 * k->views[v].strides[0] +
                      n1 * k->views[v].strides[1];
        run_head(&h);
    }
}

static int launch(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                  const wb__number *numbers)
{
    (void)numbers;
    const attention *k = (const attention *)kernel;
    run r = {.k = k, .workspace = workspace};
    for (int v = 0; v < (k->grad ? 9 : 5); v++) r.base[v] = wb__cpu_at(&k->views[v], buffers);
    if (k->workers == 1) worker(&r, 0);
    else wb__parallel(k->workers, worker, &r);
    return 0;
}

static void destroy(wb__cpu_kernel *kernel) { wb__free(kernel); }

/* ---- preparing ------------------------------------------------------------------------------- */

bool wb__cpu_supports(const wb_device *d, const wb__step *s)
{
    (void)d;
    if (s->kind != WB__STEP_ATTENTION) return false;
    if (s->precision == WB__PRECISION_MEDIUM && wb__isa_gemm_bf16()) return false;
    const wb__gemm_kernel *gemm = wb__isa_best()->gemm_f32;
    const int64_t *q = s->views[Q].dims, *k = s->views[KEYS].dims;
    for (int i = 0; i < s->n_views; i++) {
        const wb__view *v = &s->views[i];
        if (v->dtype != WB_F32 || v->ndim != 4) return false;
        if (i == LSE) continue;
        if (v->dims[3] > MAX_DEPTH || (v->strides[3] != 1 && v->dims[3] > 1)) return false;
        if (!v->dims[3] || (!gemm->masked && v->dims[3] % gemm->lanes)) return false;
    }
    if (q[0] * q[1] < LEAST_HEADS || q[2] < LEAST || k[2] < LEAST) return false;
    if (2 * q[0] * q[1] < wb__threads()) return false;          /* most threads would be idle */
    return !s->attention.causal || q[2] <= k[2];
}

static void lay_out(attention *k)
{
    const int64_t columns = up(k->keys, k->gemm->nr), scores = up(BLOCK * k->keys, LINE);
    const int64_t size[] = {columns * k->depth, k->grad ? columns * k->width : 0, scores,
                            k->grad ? scores : 0, 2 * BLOCK, k->grad ? BLOCK * k->width : 0,
                            k->grad ? BLOCK * k->width : 0};
    int64_t *const at[] = {&k->packed_k, &k->packed_v, &k->p, &k->dp, &k->sum, &k->product,
                           &k->shared};
    for (int i = 0; i < (int)WB__COUNT(size); i++) {
        *at[i] = k->scratch;
        k->scratch += up(size[i], LINE);
    }
    k->workers = (int)WB__MIN(k->heads, wb__threads());
    k->head.base.workspace = (size_t)(k->workers * k->scratch) * sizeof(float);
}

int wb__cpu_attention(const wb__step *s, wb__cpu_kernel **kernel)
{
    if (!wb__cpu_supports(NULL, s))
        return wb__fail(WB_ERROR_UNSUPPORTED, "attention: not for %s in this layout",
                        wb_dtype_name(s->views[Q].dtype));
    attention *k = wb__alloc_zero(1, sizeof *k);
    if (!k) return WB_ERROR_MEMORY;
    const int64_t *q = s->views[Q].dims;
    k->table = wb__tile_table_here();
    k->gemm = wb__isa_best()->gemm_f32;
    memcpy(k->views, s->views, sizeof k->views);
    k->heads = q[0] * q[1];
    k->queries = q[2];
    k->keys = s->views[KEYS].dims[2];
    k->depth = q[3];
    k->width = s->views[V].dims[3];
    k->scale = (float)s->attention.scale;
    k->causal = s->attention.causal;
    k->grad = s->variant == WB__ATTENTION_GRAD;
    lay_out(k);
    k->head.launch = launch;
    k->head.destroy = destroy;
    k->head.base.impl = "attention by blocks";
    *kernel = &k->head;
    return 0;
}
