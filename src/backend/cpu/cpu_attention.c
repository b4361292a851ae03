/* Attention in f32, one head after the other, for blocks of queries: a thread has the scores and
 * weights of one block only.  A query sees the keys that the causal mask does not hide from it.
 *
 * The gradients compute p again from the scores (the notation is that of ops/ops.h):
 *
 *     p = softmax(scale q·kᵀ)     dv = Σ pᵀ·do     ds = scale p (do·vᵀ - sum(do o))
 *     dq = ds·k                   dk = Σ dsᵀ·q     sums over the blocks of queries, last first
 *
 * The gradients do not read lse, whose rounding would make p wrong by 2^-24 of it.  A key that some
 * queries of a block do not see has weight 0 for them, and 0 times a NaN or infinity is NaN.
 *
 * A head is computed by one thread, so the result does not depend on their number.  Rows of p are
 * computed by functions of tile programs, products by the kernel of gemm.c.
 *
 * Attention to a cache, at the end, has one query in each head, in f32, f16 or bf16. */
#include "backend/cpu/cpu.h"

#include "backend/cpu/isa.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { ATTN_Q, ATTN_KEYS, ATTN_V, ATTN_O, ATTN_LSE, ATTN_DO, ATTN_DQ, ATTN_DK,
       ATTN_DV }; /* the views of the step */
/* ATTN_BLOCK: queries of a block.  ATTN_LEAST: for fewer queries or keys, or fewer heads, the
 * composed form is not slower, and divides its work among more threads.  ATTN_MAX_DEPTH: longer
 * rows have not been measured. */
enum { ATTN_BLOCK = 32, ATTN_LEAST = 32, LEAST_HEADS = 4, ATTN_MAX_DEPTH = 256, ATTN_LINE = 16 };

/* The fields that the kernels of attention and of attention to a cache begin with. */
typedef struct common common;
struct common {
    wb__cpu_kernel kernel;
    const wb__tile_table *table;
    const wb__gemm_kernel *gemm;
    wb__view views[9];
    int n_views, workers;
    int64_t heads, depth, width;        /* heads of k in all samples; depth: columns of q and k;
                                           width: columns of v and o */
    int64_t scratch;                    /* floats of a worker */
    float scale;
    /* Computes one of the heads; at: the addresses of the first rows of the views. */
    void (*run_head)(const common *k, char *const *at, float *scratch);
};

typedef struct {
    common c;
    int64_t queries, keys;
    bool causal, grad;
    /* Offsets, in floats, in the scratch of a worker: packed k and v, scores, the gradient of p,
     * two numbers for each row of a block, the products do o, do divided by the sums of p. */
    int64_t packed_k, packed_v, p, dp, sum, product, shared;
} attn_kernel;

/* A head, and for each view the address of the head's first row. */
typedef struct {
    const attn_kernel *k;
    float *at[9], *scratch;
} attn_head;

static int64_t attn_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static int64_t attn_stride(const attn_head *h, int view) { return h->k->c.views[view].strides[2]; }
static float *attn_row(const attn_head *h, int view, int64_t i)
{
    return h->at[view] + i * attn_stride(h, view);
}

/* The block of queries [i0, i0 + rows), from which the mask does not hide the keys [0, seen). */
typedef struct { int64_t i0, rows, seen; } attn_block;

static attn_block attn_block_at(const attn_kernel *k, int64_t i0)
{
    attn_block b = {i0, WB__MIN(ATTN_BLOCK, k->queries - i0), k->keys};
    if (k->causal) b.seen = b.i0 + b.rows + k->keys - k->queries;
    return b;
}

/* Returns the number of keys that query i of the block sees. */
static int64_t attn_seen_by(const attn_kernel *k, const attn_block *b, int64_t i)
{
    return k->causal ? b->seen - b->rows + i + 1 : b->seen;
}

/* Sets the elements of p, a matrix [query, key], to `value` where the causal mask hides the key. */
static void attn_mask_scores(const attn_kernel *k, const attn_block *b, float *p, float value)
{
    for (int64_t i = 0; k->causal && i < b->rows; i++)
        for (int64_t j = attn_seen_by(k, b, i); j < b->seen; j++) p[i * b->seen + j] = value;
}

/* ---- products -------------------------------------------------------------------------------- */

static void attn_pack(const attn_head *h, int view, int64_t depth, float *to)
{
    const wb__gemm g = {.n = h->k->keys, .k = depth, .b = h->at[view], .bs0 = 1,
                        .bs1 = attn_stride(h, view), .b_type = WB_F32};
    h->k->c.gemm->pack_b(&g, 0, depth, 0, h->k->keys, to);
}

static void attn_multiply(const attn_head *h, wb__gemm g, const float *packed)
{
    g.a_type = g.b_type = g.c_type = g.bias_type = WB_F32;
    g.bs1 = g.cs1 = 1;
    h->k->c.gemm->block(&g, 0, g.k, 0, g.m, 0, g.n, packed, true, true);
}

/* to [rows, seen] = x·packedᵀ, with the block's rows of x */
static void attn_scores_of(const attn_head *h, const attn_block *b, int x, int64_t depth,
                           const float *packed, float *to)
{
    attn_multiply(h, (wb__gemm){.m = b->rows, .n = b->seen, .k = depth, .a = attn_row(h, x, b->i0),
                                .as0 = attn_stride(h, x), .as1 = 1, .c = to, .cs0 = b->seen},
                  packed);
}

/* Sets the block's rows of y to p·x, with the seen rows of x: those of keys that the block sees. */
static void attn_add_up_keys(const attn_head *h, const attn_block *b, const float *p, int x,
                             int64_t width, int y)
{
    attn_multiply(h,
                  (wb__gemm){.m = b->rows, .n = width, .k = b->seen, .a = p, .as0 = b->seen,
                             .as1 = 1, .b = h->at[x], .bs0 = attn_stride(h, x),
                             .c = attn_row(h, y, b->i0), .cs0 = attn_stride(h, y)},
                  NULL);
}

/* Adds pᵀ·x, with x [rows, width], to the seen rows of y.  The last block, which is computed first,
 * overwrites them. */
static void attn_add_up_queries(const attn_head *h, const attn_block *b, const float *p,
                                const float *x, int64_t x_stride, int64_t width, int y)
{
    attn_multiply(h, (wb__gemm){.m = b->seen, .n = width, .k = b->rows, .a = p, .as0 = 1,
                                .as1 = b->seen, .b = x, .bs0 = x_stride, .c = h->at[y],
                                .cs0 = attn_stride(h, y),
                                .add_to_c = b->i0 + b->rows < h->k->queries}, NULL);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* to = x times `factor` */
static void attn_scale_by(const attn_kernel *k, float *to, const float *x, float factor, int64_t n)
{
    k->c.table->row[WB__OP_mul][WB__REG_F32][WB__VSV](to, x, &factor, NULL, n);
}

/* Replaces the scores s, [rows, n], by exp(scale (s - max s)), and computes the maximum and the sum
 * of each row.  Row 0 has `seen` scores, and each further row `more` scores more; the rest of a row
 * is -Inf.  If the maximum is infinite, scores that equal it count as 0 and all others as -Inf: the
 * former have equal weights. */
static void attn_exponentials(const wb__tile_table *table, float scale, float *s, int64_t rows,
                              int64_t n, int64_t seen, int64_t more, float *most, float *sum)
{
    table->reduction[1][WB__REG_F32](most, s, rows, n);
    for (int64_t i = 0; i < rows; i++) {
        float *row = s + i * n;
        const float from = isinf(most[i]) ? 0 : most[i];
        for (int64_t j = 0; isinf(most[i]) && j < seen + i * more; j++)
            row[j] = row[j] == most[i] ? 0 : -INFINITY;
        table->pair[WB__PAIR_SUB][WB__PAIR_MUL][3](row, row, &from, &scale, n);
    }
    table->row[WB__OP_exp][WB__REG_F32][WB__VVV](s, s, NULL, NULL, rows * n);
    table->reduction[0][WB__REG_F32](sum, s, rows, n);
}

/* Sets p to exp(scale (s - max s)) of the block's scores s, and `most` and `sum` to the maximum of
 * each row of s and the sum of each row of p. */
static void attn_set_weights(const attn_head *h, const attn_block *b, float *p, float *most,
                             float *sum)
{
    const attn_kernel *k = h->k;
    attn_scores_of(h, b, ATTN_Q, k->c.depth, h->scratch + k->packed_k, p);
    attn_mask_scores(k, b, p, -INFINITY);
    attn_exponentials(k->c.table, k->c.scale, p, b->rows, b->seen, attn_seen_by(k, b, 0), k->causal,
                      most, sum);
}

static void attn_forward(const attn_head *h, const attn_block *b)
{
    const attn_kernel *k = h->k;
    float *p = h->scratch + k->p, *sum = h->scratch + k->sum, most[ATTN_BLOCK];
    attn_set_weights(h, b, p, most, sum);
    attn_add_up_keys(h, b, p, ATTN_V, k->c.width, ATTN_O);
    float *lse = attn_row(h, ATTN_LSE, b->i0);
    for (int64_t i = 0; i < b->rows; i++) {
        float *o = attn_row(h, ATTN_O, b->i0 + i);
        attn_scale_by(k, o, o, 1 / sum[i], k->c.width);
        lse[i * attn_stride(h, ATTN_LSE)] = k->c.scale * most[i] + logf(sum[i]);
    }
}

static void attn_backward(const attn_head *h, const attn_block *b)
{
    const attn_kernel *k = h->k;
    float *p = h->scratch + k->p, *ds = h->scratch + k->dp, *sum = h->scratch + k->sum;
    float *product = h->scratch + k->product, *shared = h->scratch + k->shared;
    float *inner = sum + ATTN_BLOCK, most[ATTN_BLOCK];  /* inner: sum(do o) */
    attn_set_weights(h, b, p, most, sum);
    for (int64_t i = 0; i < b->rows; i++) {
        const float *gradient = attn_row(h, ATTN_DO, b->i0 + i);
        attn_scale_by(k, shared + i * k->c.width, gradient, 1 / sum[i], k->c.width);
        k->c.table->row[WB__OP_mul][WB__REG_F32][WB__VVV](
            product + i * k->c.width, gradient, attn_row(h, ATTN_O, b->i0 + i), NULL, k->c.width);
    }
    attn_add_up_queries(h, b, p, shared, k->c.width, k->c.width, ATTN_DV);
    k->c.table->reduction[0][WB__REG_F32](inner, product, b->rows, k->c.width);
    attn_scores_of(h, b, ATTN_DO, k->c.width, h->scratch + k->packed_v, ds);
    for (int64_t i = 0; i < b->rows; i++) {
        float *to = ds + i * b->seen;
        k->c.table->pair[WB__PAIR_SUB][WB__PAIR_MUL][1](to, to, inner + i, p + i * b->seen,
                                                        b->seen);
        attn_scale_by(k, to, to, k->c.scale / sum[i], b->seen);
    }
    attn_mask_scores(k, b, ds, 0);
    attn_add_up_keys(h, b, ds, ATTN_KEYS, k->c.depth, ATTN_DQ);
    attn_add_up_queries(h, b, ds, attn_row(h, ATTN_Q, b->i0), attn_stride(h, ATTN_Q), k->c.depth,
                        ATTN_DK);
}

/* ---- heads ----------------------------------------------------------------------------------- */

static void attn_run_head(const common *c, char *const *at, float *scratch)
{
    const attn_kernel *k = (const attn_kernel *)c;
    attn_head h = {.k = k, .scratch = scratch};
    for (int v = 0; v < c->n_views; v++) h.at[v] = (float *)(void *)at[v];
    attn_pack(&h, ATTN_KEYS, c->depth, scratch + k->packed_k);
    if (k->grad) attn_pack(&h, ATTN_V, c->width, scratch + k->packed_v);
    for (int64_t i = (k->queries - 1) / ATTN_BLOCK * ATTN_BLOCK; i >= 0; i -= ATTN_BLOCK) {
        const attn_block b = attn_block_at(k, i);
        if (k->grad) attn_backward(&h, &b);
        else attn_forward(&h, &b);
    }
}

typedef struct {
    const common *k;
    char *base[9];
    float *workspace;
    atomic_llong next;
} attn_run;

static void attn_worker(void *ctx, int64_t i)
{
    attn_run *r = ctx;
    const common *k = r->k;
    const int64_t of_sample = k->views[ATTN_KEYS].dims[1];
    char *at[9];
    for (;;) {
        const int64_t n = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
        if (n >= k->heads) return;
        for (int v = 0; v < k->n_views; v++) {
            const wb__view *view = &k->views[v];
            const int64_t first = n % of_sample * view->dims[1] / of_sample;
            at[v] = r->base[v];
            if (view->ndim == 4)
                at[v] += (n / of_sample * view->strides[0] + first * view->strides[1]) *
                         (int64_t)wb__dtype_size(view->dtype);
        }
        k->run_head(k, at, r->workspace + i * k->scratch);
    }
}

static int attn_launch(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                       const wb__number *numbers)
{
    (void)numbers;
    const common *k = (const common *)kernel;
    attn_run r = {.k = k, .workspace = workspace};
    for (int v = 0; v < k->n_views; v++) r.base[v] = wb__cpu_at(&k->views[v], buffers);
    if (k->workers == 1) attn_worker(&r, 0);
    else wb__parallel(k->workers, attn_worker, &r);
    return 0;
}

/* ---- attention to a cache -------------------------------------------------------------------- */

/* One query in each head of q attends to the keys and values of a cache, and to those of its own
 * position.  Operands are f32, f16 or bf16, sums f32.  Only the positions in use are read. */
enum { K_NOW = 4, V_NOW, ATTN_POSITION, CACHED_VIEWS }; /* after O; the others are those above */
enum { ATTN_ROWS = 64 }; /* rows of a product: longer sums would round more */

typedef struct {
    common c;
    int64_t group, length;          /* heads of q that share a head of k; positions of the cache */
    /* offsets, in floats, in a worker's scratch: q, weights, maxima and sums, o, converted rows */
    int64_t q, p, most, o, rows;
} attn_cache_kernel;

/* One head of k, and for each view the address of the head's first row. */
typedef struct {
    const attn_cache_kernel *k;
    char *const *at;
    float *scratch;
} attn_cache_head;

/* Whether products read the rows of a view where they are. */
static bool attn_in_place(const common *k, int view)
{
    const wb__view *v = &k->views[view];
    return v->dtype == WB_F32 && (k->gemm->masked || v->dims[3] % k->gemm->lanes == 0);
}

/* Returns rows [j, j + n) of a view as floats, in place or converted, n <= ATTN_ROWS, and sets
 * *stride to the floats from one row to the next. */
static const float *attn_floats(const attn_cache_head *h, int view, int64_t j, int64_t n,
                                int64_t *stride)
{
    const wb__view *v = &h->k->c.views[view];
    const int64_t width = v->dims[3];
    const int64_t row_bytes = v->strides[2] * (int64_t)wb__dtype_size(v->dtype);
    const char *from = h->at[view] + j * row_bytes;
    *stride = attn_in_place(&h->k->c, view) ? v->strides[2] : attn_up(width, ATTN_LINE);
    if (attn_in_place(&h->k->c, view)) return (const float *)(const void *)from;
    float *to = h->scratch + h->k->rows;
    if (width == *stride && v->strides[2] == width) wb__widen(to, from, v->dtype, n * width);
    else for (int64_t i = 0; i < n; i++, from += row_bytes)
        wb__widen(to + i * *stride, from, v->dtype, width);
    return to;
}

/* A product of n keys or values, `rows` [n, stride], and columns [at, at + n) of the scores, which
 * are a matrix [group, total]. */
typedef void attn_product(const attn_cache_head *h, const float *rows, int64_t stride, int64_t n,
                          int64_t total, int64_t at);

/* Sets the columns to the scores of the keys `rows`. */
static void attn_score(const attn_cache_head *h, const float *rows, int64_t stride, int64_t n,
                       int64_t total, int64_t at)
{
    const attn_cache_kernel *k = h->k;
    const wb__gemm g = {.m = k->group, .n = n, .k = k->c.depth, .a = h->scratch + k->q,
                        .as0 = k->c.depth, .as1 = 1, .b = rows, .bs0 = 1, .bs1 = stride,
                        .c = h->scratch + k->p + at, .cs0 = total, .cs1 = 1,
                        .a_type = WB_F32, .b_type = WB_F32, .c_type = WB_F32};
    k->c.gemm->dots(&g, 0, g.m);
}

/* Adds the values `rows` times the columns, which are weights by now, to o.  If `at` is 0, o is
 * overwritten. */
static void attn_add_values(const attn_cache_head *h, const float *rows, int64_t stride, int64_t n,
                            int64_t total, int64_t at)
{
    const attn_cache_kernel *k = h->k;
    const wb__gemm g = {.m = k->group, .n = k->c.width, .k = n, .a = h->scratch + k->p + at,
                        .as0 = total, .as1 = 1, .b = rows, .bs0 = stride, .bs1 = 1,
                        .c = h->scratch + k->o, .cs0 = k->c.width, .cs1 = 1, .a_type = WB_F32,
                        .b_type = WB_F32, .c_type = WB_F32, .add_to_c = at > 0};
    k->c.gemm->block(&g, 0, g.k, 0, g.m, 0, g.n, NULL, true, true);
}

/* Calls f for the first n rows of a view, ATTN_ROWS at a time, and the columns from `at` on. */
static void attn_each_piece(const attn_cache_head *h, attn_product *f, int view, int64_t n,
                            int64_t total, int64_t at)
{
    for (int64_t j = 0; j < n; j += ATTN_ROWS) {
        int64_t stride;
        const int64_t some = WB__MIN(n - j, ATTN_ROWS);
        const float *rows = attn_floats(h, view, j, some, &stride);
        f(h, rows, stride, some, total, at + j);
    }
}

/* Computes o of the heads of q that share a head of k.  n: positions in use; now: 1 if the query's
 * own key and value count, else 0. */
static void attn_run_cache_head(const common *c, char *const *at, float *scratch)
{
    const attn_cache_kernel *k = (const attn_cache_kernel *)c;
    const attn_cache_head h = {k, at, scratch};
    const int32_t position = *(const int32_t *)(const void *)at[ATTN_POSITION];
    const int64_t n = WB__MIN(WB__MAX(position, 0), k->length);
    const int64_t now = position >= 0 && position < k->length, total = n + now;
    const wb__view *q = &c->views[ATTN_Q], *o = &c->views[ATTN_O];
    const int64_t size = (int64_t)wb__dtype_size(q->dtype);
    float *most = scratch + k->most, *sum = most + k->group;
    for (int64_t i = 0; i < k->group; i++)
        wb__widen(scratch + k->q + i * c->depth, at[ATTN_Q] + i * q->strides[1] * size, q->dtype,
                  c->depth);
    attn_each_piece(&h, attn_score, ATTN_KEYS, n, total, 0);
    attn_each_piece(&h, attn_score, K_NOW, now, total, n);
    if (total)
        attn_exponentials(c->table, c->scale, scratch + k->p, k->group, total, total, 0, most, sum);
    attn_each_piece(&h, attn_add_values, ATTN_V, n, total, 0);
    attn_each_piece(&h, attn_add_values, V_NOW, now, total, n);
    for (int64_t i = 0; i < k->group; i++) {
        float *to = scratch + k->o + i * c->width;
        for (int64_t j = 0; j < c->width; j++) to[j] = total ? to[j] / sum[i] : 0;
        wb__narrow(at[ATTN_O] + i * o->strides[1] * size, o->dtype, to, c->width);
    }
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* Whether the kernel computes this attention to a cache.  One thread computes a head of k, even if
 * heads are fewer than threads, since attention in separate steps would read all positions. */
static bool attn_supports_cached(const wb__step *s)
{
    const wb_dtype t = s->views[ATTN_Q].dtype;
    bool good = t == WB_F32 || wb__is_half(t);
    for (int i = 0; i < ATTN_POSITION; i++) {
        const wb__view *v = &s->views[i];
        good &= v->dtype == t && v->ndim == 4 && v->dims[3] > 0 &&
                (v->strides[3] == 1 || v->dims[3] == 1);
    }
    return good && s->views[ATTN_KEYS].dims[1] > 0 && s->views[ATTN_Q].dims[2] == 1 &&
           s->views[ATTN_POSITION].dtype == WB_I32;
}

bool wb__cpu_supports(const wb_device *d, const wb__step *s)
{
    (void)d;
    if (s->kind == WB__STEP_LINEAR_INT8) return wb__cpu_supports_int8(s);
    if (s->kind != WB__STEP_ATTENTION) return false;
    if (s->variant == WB__ATTENTION_CACHED) return attn_supports_cached(s);
    if (s->precision == WB__PRECISION_MEDIUM && wb__isa_gemm_bf16()) return false;
    const wb__gemm_kernel *gemm = wb__isa_best()->gemm_f32;
    const int64_t *q = s->views[ATTN_Q].dims, *k = s->views[ATTN_KEYS].dims;
    for (int i = 0; i < s->n_views; i++) {
        const wb__view *v = &s->views[i];
        if (v->dtype != WB_F32 || v->ndim != 4) return false;
        if (i == ATTN_LSE) continue;
        if (v->dims[3] > ATTN_MAX_DEPTH || (v->strides[3] != 1 && v->dims[3] > 1)) return false;
        if (!v->dims[3] || (!gemm->masked && v->dims[3] % gemm->lanes)) return false;
    }
    if (q[0] * q[1] < LEAST_HEADS || q[2] < ATTN_LEAST || k[2] < ATTN_LEAST) return false;
    if (2 * q[0] * q[1] < wb__threads()) return false;      /* else most threads would be idle */
    return !s->attention.causal || q[2] <= k[2];
}

/* Sets the offsets of n arrays in the scratch of a worker, and the kernel's workspace. */
static void attn_divide_scratch(common *k, int n, const int64_t *size, int64_t *const *at)
{
    for (int i = 0; i < n; i++) {
        *at[i] = k->scratch;
        k->scratch += attn_up(size[i], ATTN_LINE);
    }
    k->workers = (int)WB__MIN(k->heads, wb__threads());
    k->kernel.base.workspace = (size_t)(k->workers * k->scratch) * sizeof(float);
}

static void attn_lay_out(attn_kernel *k)
{
    const int64_t columns = attn_up(k->keys, k->c.gemm->nr),
                  scores = attn_up(ATTN_BLOCK * k->keys, ATTN_LINE);
    const int64_t rows = k->grad ? ATTN_BLOCK * k->c.width : 0;
    const int64_t size[] = {columns * k->c.depth, k->grad ? columns * k->c.width : 0, scores,
                            k->grad ? scores : 0, 2 * ATTN_BLOCK, rows, rows};
    int64_t *const at[] = {&k->packed_k, &k->packed_v, &k->p, &k->dp, &k->sum, &k->product,
                           &k->shared};
    attn_divide_scratch(&k->c, WB__COUNT(size), size, at);
}

static void attn_lay_out_cached(attn_cache_kernel *k)
{
    const int64_t widest = attn_up(WB__MAX(k->c.depth, k->c.width), ATTN_LINE);
    const int64_t size[] = {k->group * k->c.depth, k->group * (k->length + 1), 2 * k->group,
                            k->group * k->c.width, ATTN_ROWS * widest};
    int64_t *const at[] = {&k->q, &k->p, &k->most, &k->o, &k->rows};
    attn_divide_scratch(&k->c, WB__COUNT(size), size, at);
}

/* Returns a kernel of `bytes` bytes, whose common part is set; NULL: out of memory. */
static void *attn_new_kernel(const wb__step *s, size_t bytes)
{
    common *k = wb__alloc_zero(1, bytes);
    if (!k) return NULL;
    const int64_t *keys = s->views[ATTN_KEYS].dims;
    k->kernel.launch = attn_launch;
    k->kernel.destroy = wb__cpu_kernel_free;
    k->table = wb__tile_table_here();
    k->gemm = wb__isa_best()->gemm_f32;
    k->n_views = s->n_views;
    memcpy(k->views, s->views, sizeof k->views);
    k->heads = keys[0] * keys[1];
    k->depth = keys[3];
    k->width = s->views[ATTN_V].dims[3];
    k->scale = (float)s->attention.scale;
    return k;
}

/* Prepares the kernel of attention to a cache.  Returns 0 or an error code. */
static int attn_prepare_cached(const wb__step *s, wb__cpu_kernel **kernel)
{
    attn_cache_kernel *k = attn_new_kernel(s, sizeof *k);
    if (!k) return WB_ERROR_MEMORY;
    k->group = s->views[ATTN_Q].dims[1] / s->views[ATTN_KEYS].dims[1];
    k->length = s->views[ATTN_KEYS].dims[2];
    attn_lay_out_cached(k);
    k->c.run_head = attn_run_cache_head;
    k->c.kernel.base.impl = "attention to a cache";
    *kernel = &k->c.kernel;
    return 0;
}

int wb__cpu_attention(const wb__step *s, wb__cpu_kernel **kernel)
{
    if (!wb__cpu_supports(NULL, s))
        return wb__fail(WB_ERROR_UNSUPPORTED, "attention: not for %s in this layout",
                        wb_dtype_name(s->views[ATTN_Q].dtype));
    if (s->variant == WB__ATTENTION_CACHED) return attn_prepare_cached(s, kernel);
    attn_kernel *k = attn_new_kernel(s, sizeof *k);
    if (!k) return WB_ERROR_MEMORY;
    k->queries = s->views[ATTN_Q].dims[2];
    k->keys = s->views[ATTN_KEYS].dims[2];
    k->causal = s->attention.causal;
    k->grad = s->variant == WB__ATTENTION_GRAD;
    attn_lay_out(k);
    k->c.run_head = attn_run_head;
    k->c.kernel.base.impl = "attention by blocks";
    *kernel = &k->c.kernel;
    return 0;
}
