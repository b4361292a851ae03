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

/* Replaces scores s, [rows, n], by exp(scale (s - max s)), and computes the maxima and the sums of
 * the rows.  In row i, the scores from seen + i * more on are -Inf.  If the maximum of a row is
 * infinite, its scores become those with the weights that softmax has by its definition: +Inf
 * elements share the sum 1, and if all are -Inf, all have the same. */
static void exponentials(const wb__tile_table *table, float scale, float *s, int64_t rows, int64_t n,
                         int64_t seen, int64_t more, float *most, float *sum)
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

/* Computes exp(scale (s - max s)) of the block's queries, the maxima and the sums of rows. */
static void weigh(const head *h, const block *b, float *p, float *most, float *sum)
{
    const attention *k = h->k;
    to_keys(h, b, Q, k->depth, h->scratch + k->packed_k, p);
    hide(k, b, p, -INFINITY);
    exponentials(k->table, k->scale, p, b->rows, b->seen, seen_by(k, b, 0), k->causal, most, sum);
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

/* ---- a cache --------------------------------------------------------------------------------- */

/* One query in each head attends to the keys and values of a cache in f32, f16 or bf16, computed in
 * f32.  Only the positions in use are read. */
enum { KEY_NOW = O + 1, VALUE_NOW, POSITION, CACHED_VIEWS };
enum { ROWS = 64 };     /* keys or values that are converted at once */

typedef struct {
    wb__cpu_kernel head;
    const wb__tile_table *table;
    const wb__gemm_kernel *gemm;
    wb__view views[CACHED_VIEWS];
    int64_t heads, queries, length, depth, width;   /* heads of keys; queries of one of these */
    float scale;
    int workers;
    /* offsets, in floats, in the scratch of a worker: q, weights, maxima and sums, o, converted
     * rows; and the floats of this scratch */
    int64_t q, p, most, o, rows, scratch;
} cached;

/* A head of keys, with the addresses of its first rows. */
typedef struct {
    const cached *k;
    const char *at[CACHED_VIEWS];
    float *scratch;
} cached_head;

/* Whether products read the rows of a view where they are. */
static bool in_place(const cached *k, int view)
{
    const wb__view *v = &k->views[view];
    return v->dtype == WB_F32 && (k->gemm->masked || v->dims[3] % k->gemm->lanes == 0);
}

/* The rows of a view from row j on, the first n of these as floats; n <= ROWS unless they are read
 * in place.  *stride: floats from one row to the next. */
static const float *floats(const cached_head *h, int view, int64_t j, int64_t n, int64_t *stride)
{
    const wb__view *v = &h->k->views[view];
    const int64_t width = v->dims[3];
    const int64_t step = v->strides[2] * (int64_t)wb__dtype_size(v->dtype);
    const char *from = h->at[view] + j * step;
    *stride = in_place(h->k, view) ? v->strides[2] : up(width, LINE);
    if (in_place(h->k, view)) return (const float *)(const void *)from;
    float *to = h->scratch + h->k->rows;
    if (v->strides[2] == *stride) wb__widen(to, from, v->dtype, n * *stride);
    else for (int64_t i = 0; i < n; i++, from += step)
        wb__widen(to + i * *stride, from, v->dtype, width);
    return to;
}

/* The scores of n keys from the first on, of `total`, which begin at column `at`. */
static void scores_of(const cached_head *h, int view, int64_t n, int64_t total, int64_t at)
{
    const cached *k = h->k;
    const int64_t step = in_place(k, view) ? n : ROWS;
    for (int64_t j = 0, some; j < n; j += some) {
        int64_t stride;
        some = WB__MIN(n - j, step);
        const float *rows = floats(h, view, j, some, &stride);
        const wb__gemm g = {.m = k->queries, .n = some, .k = k->depth, .a = h->scratch + k->q,
                            .as0 = k->depth, .as1 = 1, .b = rows, .bs0 = 1, .bs1 = stride,
                            .c = h->scratch + k->p + at + j, .cs0 = total, .cs1 = 1,
                            .a_type = WB_F32, .b_type = WB_F32, .c_type = WB_F32};
        k->gemm->dots(&g, 0, g.m);
    }
}

/* Adds the products of weights from column `at` on and n values to o; or sets o, if `at` is 0. */
static void add_values(const cached_head *h, int view, int64_t n, int64_t total, int64_t at)
{
    const cached *k = h->k;
    const int64_t step = in_place(k, view) ? n : ROWS;
    for (int64_t j = 0, some; j < n; j += some) {
        int64_t stride;
        some = WB__MIN(n - j, step);
        const float *rows = floats(h, view, j, some, &stride);
        const wb__gemm g = {.m = k->queries, .n = k->width, .k = some,
                            .a = h->scratch + k->p + at + j, .as0 = total, .as1 = 1, .b = rows,
                            .bs0 = stride, .bs1 = 1, .c = h->scratch + k->o, .cs0 = k->width,
                            .cs1 = 1, .a_type = WB_F32, .b_type = WB_F32, .c_type = WB_F32,
                            .add_to_c = at + j > 0};
        k->gemm->block(&g, 0, g.k, 0, g.m, 0, g.n, NULL, true, true);
    }
}

static void run_cached(const cached_head *h)
{
    const cached *k = h->k;
    const int32_t position = *(const int32_t *)(const void *)h->at[POSITION];
    const int64_t n = WB__MIN(WB__MAX(position, 0), k->length);
    const int64_t now = position >= 0 && position < k->length, total = n + now;
    const wb__view *q = &k->views[Q], *o = &k->views[O];
    const int64_t size = (int64_t)wb__dtype_size(q->dtype);
    float *p = h->scratch + k->p, *most = h->scratch + k->most, *sum = most + k->queries;
    for (int64_t i = 0; i < k->queries; i++)
        wb__widen(h->scratch + k->q + i * k->depth, h->at[Q] + i * q->strides[1] * size, q->dtype,
                  k->depth);
    scores_of(h, KEYS, n, total, 0);
    scores_of(h, KEY_NOW, now, total, n);
    if (total) exponentials(k->table, k->scale, p, k->queries, total, total, 0, most, sum);
    add_values(h, V, n, total, 0);
    add_values(h, VALUE_NOW, now, total, n);
    for (int64_t i = 0; i < k->queries; i++) {
        float *to = h->scratch + k->o + i * k->width;
        for (int64_t j = 0; j < k->width; j++) to[j] = total ? to[j] / sum[i] : 0;
        wb__narrow((char *)h->at[O] + i * o->strides[1] * size, o->dtype, to, k->width);
    }
}

typedef struct {
    const cached *k;
    char *base[CACHED_VIEWS];
    float *workspace;
    atomic_llong next;
} cached_run;

static void cached_worker(void *ctx, int64_t i)
{
    cached_run *r = ctx;
    const cached *k = r->k;
    cached_head h = {.k = k, .scratch = r->workspace + i * k->scratch};
    for (;;) {
        const int64_t n = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
        if (n >= k->heads) return;
        const int64_t n0 = n / k->views[KEYS].dims[1], n1 = n % k->views[KEYS].dims[1];
        for (int v = 0; v < POSITION; v++) {
            const wb__view *view = &k->views[v];
            const int64_t many = v == Q || v == O ? k->queries : 1;
            h.at[v] = r->base[v] + (n0 * view->strides[0] + n1 * many * view->strides[1]) *
                                       (int64_t)wb__dtype_size(view->dtype);
        }
        h.at[POSITION] = r->base[POSITION];
        run_cached(&h);
    }
}

static int launch_cached(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                         const wb__number *numbers)
{
    (void)numbers;
    const cached *k = (const cached *)kernel;
    cached_run r = {.k = k, .workspace = workspace};
    for (int v = 0; v < CACHED_VIEWS; v++) r.base[v] = wb__cpu_at(&k->views[v], buffers);
    if (k->workers == 1) cached_worker(&r, 0);
    else wb__parallel(k->workers, cached_worker, &r);
    return 0;
}

/* ---- preparing ------------------------------------------------------------------------------- */

static bool supports_cached(const wb__step *s)
{
    const wb_dtype t = s->views[Q].dtype;
    bool good = t == WB_F32 || t == WB_F16 || t == WB_BF16;
    for (int i = 0; i < POSITION; i++) {
        const wb__view *v = &s->views[i];
        good &= v->dtype == t && v->ndim == 4 && v->dims[3] > 0 &&
                (v->strides[3] == 1 || v->dims[3] == 1);
    }
    return good && s->views[Q].dims[2] == 1 && s->views[POSITION].dtype == WB_I32;
}

bool wb__cpu_supports(const wb_device *d, const wb__step *s)
{
    (void)d;
    if (s->kind != WB__STEP_ATTENTION) return false;
    if (s->variant == WB__ATTENTION_CACHED) return supports_cached(s);
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

static void lay_out_cached(cached *k)
{
    const int64_t size[] = {k->queries * k->depth, k->queries * (k->length + 1), 2 * k->queries,
                            k->queries * k->width, ROWS * up(WB__MAX(k->depth, k->width), LINE)};
    int64_t *const at[] = {&k->q, &k->p, &k->most, &k->o, &k->rows};
    for (int i = 0; i < (int)WB__COUNT(size); i++) {
        *at[i] = k->scratch;
        k->scratch += up(size[i], LINE);
    }
    k->workers = (int)WB__MIN(k->heads, wb__threads());
    k->head.base.workspace = (size_t)(k->workers * k->scratch) * sizeof(float);
}

static int prepare_cached(const wb__step *s, wb__cpu_kernel **kernel)
{
    cached *k = wb__alloc_zero(1, sizeof *k);
    if (!k) return WB_ERROR_MEMORY;
    const int64_t *q = s->views[Q].dims, *keys = s->views[KEYS].dims;
    k->table = wb__tile_table_here();
    k->gemm = wb__isa_best()->gemm_f32;
    memcpy(k->views, s->views, sizeof k->views);
    k->heads = keys[0] * keys[1];
    k->queries = keys[1] ? q[1] / keys[1] : 0;
    k->length = keys[2];
    k->depth = q[3];
    k->width = s->views[V].dims[3];
    k->scale = (float)s->attention.scale;
    lay_out_cached(k);
    k->head.launch = launch_cached;
    k->head.destroy = destroy;
    k->head.base.impl = "attention to a cache";
    *kernel = &k->head;
    return 0;
}

int wb__cpu_attention(const wb__step *s, wb__cpu_kernel **kernel)
{
    if (!wb__cpu_supports(NULL, s))
        return wb__fail(WB_ERROR_UNSUPPORTED, "attention: not for %s in this layout",
                        wb_dtype_name(s->views[Q].dtype));
    if (s->variant == WB__ATTENTION_CACHED) return prepare_cached(s, kernel);
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
