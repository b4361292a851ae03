/* Kernels that compute products of matrices and values that depend on them, element by element.
 *
 * A group of items computes a tile of some rows and columns.  Several items, the lanes, share an
 * element: each adds up a part of the sums of the element's products, and lane 0 adds the lanes'
 * sums, always in the same order, and computes what depends on them.  The sums are short, so the
 * time is that of waiting for memory: an item requests all or many of its operands before it uses
 * the first, and operands of other instructions even before those.  An item loads 16 bytes at once
 * where k is the innermost dimension of an operand in memory.
 *
 * Adjacent items are lanes of one element if that is so for the second operands, and elements of
 * one line if not, so that a wave reads adjacent memory. */
#include "backend/gpu/fused.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TILE_COLUMNS = 8,       /* columns of a tile; fewer if the tile has more rows than the space */
    MOST_LANES = 32,            /* lanes of an element */
    MOST_AHEAD = 8,             /* chunks that an item requests before it uses the first one */
    MOST_VECTORS = 32,          /* vectors that these chunks may be */
    FUSED_PRODUCT_PAD = 4,      /* elements between the lanes' sums in local memory */
    MOST_SUMMED = 1024,         /* products of an element of the result */
    MOST_ELEMENTS = 32768,      /* elements of the result */
    PRODUCTS_A_PROCESSOR = 32768, /* multiplications of one processor of the GPU that take less time
                                   than starting a kernel: at 32 a clock, about 0.6 us */
    PROCESSORS_IF_UNKNOWN = 64        /* number of processors where a driver reports none */
};

/* ---- which products -------------------------------------------------------------------------- */

static int64_t processors_of(const wb__gpu_target *t)
{
    return t->processors ? t->processors : PROCESSORS_IF_UNKNOWN;
}

bool wb__fuse_takes_product(const wb__gpu_target *t, const wb__step *s)
{
    const wb__view *a = &s->views[0], *b = &s->views[1], *c = &s->views[2];
    const int64_t k = a->dims[a->ndim - 1];
    int64_t elements = 1;
    if (!wb__dtype_float(c->dtype) || (c->dtype == WB_F64 && !t->f64) || a->dtype != c->dtype ||
        b->dtype != c->dtype || k < 1 || k > MOST_SUMMED)
        return false;
    for (int d = 0; d < c->ndim; d++) {
        elements *= c->dims[d];
        if (elements > MOST_ELEMENTS) return false;
    }
    return elements && elements * k <= PRODUCTS_A_PROCESSOR * processors_of(t);
}

/* ---- the shape of the kernel ----------------------------------------------------------------- */

typedef struct {
    wb__fuse *k;
    int lanes, rows, columns;   /* lanes of an element; rows and columns of a tile */
    bool lanes_first;           /* adjacent items are lanes of one element */
    bool *done;                 /* of each instruction: the loop that computes it is emitted */
} fused_product_tiles;

static bool is_needed(const wb__fuse *k, int i)
{
    return k->needed[i] && k->program->instr[i].kind == WB__PRODUCT;
}

static const wb__view *fused_product_view_of(const wb__fuse *k, int i, int side)
{
    const wb__instr *in = &k->program->instr[i];
    return &k->program->views[side ? in->c : in->arg];
}

static const wb__fuse_operand *fused_product_operand_of(const wb__fuse *k, int i, int side)
{
    const wb__instr *in = &k->program->instr[i];
    return &k->operands[side ? in->c : in->arg];
}

/* Returns the stride of an operand along k, the dimension that is summed. */
static int64_t k_stride(const wb__fuse *k, int i, int side)
{
    return fused_product_view_of(k, i, side)->strides[k->program->space.ndim];
}

/* Returns the elements of a chunk: as many as 16 bytes have, or fewer, so that chunks divide k. */
static int fused_product_chunk_of(const wb__fuse *k, int i)
{
    const wb__instr *in = &k->program->instr[i];
    int n = WB__CHUNK / (int)wb__dtype_size(fused_product_view_of(k, i, 0)->dtype);
    while (in->scale % n) n /= 2;
    return n;
}

/* Whether an item loads the chunks of operand `side` (0 or 1) of instruction i as vectors. */
static bool fused_product_is_vector(const wb__fuse *k, int i, int side)
{
    const wb__view *v = fused_product_view_of(k, i, side);
    const int64_t n = WB__CHUNK / (int64_t)wb__dtype_size(v->dtype);
    if (fused_product_chunk_of(k, i) != n || k_stride(k, i, side) != 1) return false;
    if (v->offset % n || v->granule % WB__CHUNK) return false;
    for (int d = 0; d < k->program->space.ndim; d++)
        if (k->program->space.dims[d] != 1 && v->strides[d] % n) return false;
    return true;
}

static int fused_product_log_of(int n)
{
    int log = 0;
    while (1 << log < n) log++;
    return log;
}

/* Returns the lanes of an element: as many as keep half of the items busy that run at once. */
static int fused_product_lanes_of(const wb__fuse *k)
{
    int64_t elements = 1, chunks = 1;
    int n = 1, products = 0;
    for (int d = 0; d < k->n_dims; d++) elements *= k->dim[d];
    for (int i = 0; i < k->program->n_instr; i++) {
        if (!is_needed(k, i)) continue;
        products++;
        chunks = WB__MAX(chunks, k->program->instr[i].scale / fused_product_chunk_of(k, i));
    }
    const int64_t items = WB__GROUP_ITEMS / 2 * processors_of(k->target);
    if (k->target->in_turn) return 1;
    while (n < MOST_LANES && n < chunks && elements * n < items) n *= 2;
    const int64_t each = (int64_t)sizeof(double) * (WB__GROUP_ITEMS + n * FUSED_PRODUCT_PAD);
    return each * products > (int64_t)k->target->local_bytes ? 1 : n;
}

static void choose_tiles(fused_product_tiles *t)
{
    const wb__fuse *k = t->k;
    const int64_t rows = k->n_dims > 1 ? k->dim[k->n_dims - 2] : 1;
    t->lanes = fused_product_lanes_of(k);
    const int elements = WB__GROUP_ITEMS / t->lanes;
    t->rows = 1 << wb__fuse_log(rows, fused_product_log_of(WB__MAX(elements / TILE_COLUMNS, 1)));
    t->columns = elements / t->rows;
    for (int i = 0; i < k->program->n_instr; i++)
        t->lanes_first |= is_needed(k, i) && fused_product_is_vector(k, i, 1);
}

/* ---- indices --------------------------------------------------------------------------------- */

static void emit_indices(const fused_product_tiles *t)
{
    wb__fuse *k = t->k;
    const int last = k->n_dims - 1, elements = WB__GROUP_ITEMS / t->lanes;
    wb__fuse_line(k, "const uint l = LID(0);");
    if (t->lanes_first)
        wb__fuse_line(k, "const uint lane = l & %du, e = l >> %d;", t->lanes - 1,
                      fused_product_log_of(t->lanes));
    else
        wb__fuse_line(k, "const uint lane = l >> %d, e = l & %du;", fused_product_log_of(elements),
                      elements - 1);
    wb__fuse_line(k, "const uint row = GRP(1) * %du + (e >> %d), col = GRP(0) * %du + (e & %du);",
                  t->rows, fused_product_log_of(t->columns), t->columns, t->columns - 1);
    wb__fuse_uint(k, last >= 0 ? k->dim[last] : 1, "cols");
    wb__fuse_uint(k, last > 0 ? k->dim[last - 1] : 1, "rows");
    wb__fuse_line(k, "const bool inside = row < a.rows && col < a.cols;");
    if (last > 1) wb__fuse_line(k, "const uint z = GRP(2);");
    wb__fuse_emit_indices(k, "z", 0, last - 1);
    if (last > 0) wb__fuse_line(k, "const uint i%d = inside ? row : 0;", last - 1);
    if (last >= 0) wb__fuse_line(k, "const uint i%d = inside ? col : 0;", last);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Whether one loop over k computes both products, the instructions i and j. */
static bool same_loop(const wb__fuse *k, int i, int j)
{
    return is_needed(k, j) && k->program->instr[j].scale == k->program->instr[i].scale &&
           fused_product_view_of(k, j, 0)->dtype == fused_product_view_of(k, i, 0)->dtype;
}

/* Returns the suffix of the variables for the chunks of operand `side` of instruction i: that of
 * the first operand of the loop that is in the same memory. */
static int fused_product_first_alike(const wb__fuse *k, int i, int side)
{
    for (int j = 0; j <= i; j++)
        for (int s = 0; s < 2 && same_loop(k, i, j); s++)
            if (fused_product_operand_of(k, j, s)->id == fused_product_operand_of(k, i, side)->id &&
                k_stride(k, j, s) == k_stride(k, i, side))
                return 2 * j + s;
    return -1;
}

/* Calls `emit` for each different operand of the loop of instruction i.  n: the operand's suffix
 * (fused_product_first_alike). */
static void fused_product_each_operand(wb__fuse *k, int i,
                                       void (*emit)(wb__fuse *k, int i, int side, int n))
{
    for (int j = i; j < k->program->n_instr; j++)
        for (int side = 0; side < 2 && same_loop(k, i, j); side++) {
            const int n = fused_product_first_alike(k, j, side);
            if (n == 2 * j + side) emit(k, j, side, n);
        }
}

/* Returns the number of chunks that an item requests at once. */
static int ahead_of(const wb__fuse *k, int i)
{
    const int64_t chunks = k->program->instr[i].scale / fused_product_chunk_of(k, i);
    const int64_t n = wb__quotient_up(chunks, fused_product_lanes_of(k));
    int loads = 1, most = 1;
    for (int j = 0; j < k->program->n_instr; j++) loads += same_loop(k, i, j);
    while (2 * most <= MOST_AHEAD && 2 * most * loads <= MOST_VECTORS && 2 * most <= n) most *= 2;
    return k->target->in_turn ? 1 : most;
}

/* Whether the stride of an operand along k needs 64 bits. */
static bool is_far(const wb__fuse *k, int i, int side)
{
    return llabs(k_stride(k, i, side)) * k->program->instr[i].scale > INT32_MAX;
}

/* Emits the operand's stride along k, a field of the struct, unless the stride is 1. */
static void emit_stride(wb__fuse *k, int i, int side, int n)
{
    const int64_t stride = k_stride(k, i, side);
    if (stride == 1) return;
    if (is_far(k, i, side)) wb__fuse_pair(k, stride, "k%d", n);
    else wb__fuse_uint(k, stride, "k%d", n);
}

/* Emits the declaration of the array of chunks that an item requests at once. */
static void emit_array(wb__fuse *k, int i, int side, int n)
{
    const wb_dtype t = fused_product_view_of(k, i, side)->dtype;
    const int chunk = fused_product_chunk_of(k, i), ahead = ahead_of(k, i);
    if (fused_product_is_vector(k, i, side)) {
        k->vector_types |= 1u << t;
        wb__fuse_line(k, "%sx%d g%d[%d];", wb__gpu_types[t].stored, chunk, n, ahead);
    } else {
        wb__fuse_line(k, "%s g%d[%d];", wb__gpu_types[t].stored, n, ahead * chunk);
    }
}

/* Emits the loads of chunk u. */
static void emit_loads(wb__fuse *k, int i, int side, int n)
{
    const char *stored = wb__gpu_types[fused_product_view_of(k, i, side)->dtype].stored;
    const int p = fused_product_operand_of(k, i, side)->id, chunk = fused_product_chunk_of(k, i);
    char from[80];
    if (fused_product_is_vector(k, i, side)) {
        wb__fuse_line(k, "g%d[u] = *(GLOBAL const %sx%d *)(p%d + at);", n, stored, chunk, p);
        return;
    }
    if (k_stride(k, i, side) == 1) snprintf(from, sizeof from, "at + j");
    else if (!is_far(k, i, side)) snprintf(from, sizeof from, "(int)(at + j) * (int)a.k%d", n);
    else snprintf(from, sizeof from, "(i64)(at + j) * I64(a.k%d, a.k%dh)", n, n);
    wb__fuse_line(k, "UNROLL for (uint j = 0; j < %du; j++) g%d[u * %du + j] = p%d[%s];", chunk, n,
                  chunk, p, from);
}

static void emit_element(wb__fuse *k, int i, int side, int n)
{
    const wb_dtype t = fused_product_view_of(k, i, side)->dtype;
    if (fused_product_is_vector(k, i, side))
        wb__fuse_line(k, "const %s m%d = OF_%s(g%d[u].at[j]);", wb__gpu_types[t].kind, n,
                      wb__gpu_types[t].name, n);
    else
        wb__fuse_line(k, "const %s m%d = OF_%s(g%d[u * %du + j]);", wb__gpu_types[t].kind, n,
                      wb__gpu_types[t].name, n, fused_product_chunk_of(k, i));
}

static void emit_sum(wb__fuse *k, int i)
{
    const int x = fused_product_first_alike(k, i, 0), y = fused_product_first_alike(k, i, 1);
    if (k->program->instr[i].reg == WB__REG_F64) wb__fuse_line(k, "s%d += m%d * m%d;", i, x, y);
    else
        wb__fuse_line(k, "s%d = FMA(m%d, m%d, s%d);", i, x, y, i);
}

/* Emits the loop over the chunks of an item, for instruction i and all others of the same loop.  A
 * chunk behind the last one is loaded from a valid address, and not added. */
static void emit_loop(const fused_product_tiles *t, int i)
{
    wb__fuse *k = t->k;
    const wb__fuse_program *p = k->program;
    const int chunk = fused_product_chunk_of(k, i), n = ahead_of(k, i),
              sum = (int)p->instr[i].scale;
    const bool cut = sum / chunk % (n * t->lanes) != 0;
    fused_product_each_operand(k, i, emit_stride);
    for (int j = i; j < p->n_instr; j++)
        if (same_loop(k, i, j)) {
            k->f64 |= p->instr[j].reg == WB__REG_F64;
            wb__fuse_line(k, "%s s%d = 0;", wb__fuse_kinds[p->instr[j].reg], j);
        }
    wb__fuse_open(k, "for (uint c = lane; c < %du; c += %du)", sum / chunk, n * t->lanes);
    fused_product_each_operand(k, i, emit_array);
    for (int uses = 0; uses < 2; uses++) {
        wb__fuse_open(k, "UNROLL for (uint u = 0; u < %du; u++)", n);
        wb__fuse_line(k, "%suint at = (c + u * %du) * %du;", uses || !cut ? "const " : "", t->lanes,
                      chunk);
        if (!uses) {
            if (cut) wb__fuse_line(k, "if (at >= %du) at = 0;", sum);
            fused_product_each_operand(k, i, emit_loads);
            wb__fuse_close(k);
            continue;
        }
        if (cut) wb__fuse_open(k, "if (at < %du)", sum);
        wb__fuse_open(k, "UNROLL for (uint j = 0; j < %du; j++)", chunk);
        fused_product_each_operand(k, i, emit_element);
        for (int j = i; j < p->n_instr; j++) {
            if (!same_loop(k, i, j)) continue;
            emit_sum(k, j);
            t->done[j] = true;
        }
        for (int open = 2 + cut; open; open--) wb__fuse_close(k);
    }
    wb__fuse_close(k);
}

/* ---- the sums of the lanes ------------------------------------------------------------------- */

static int pitch_of(const fused_product_tiles *t)
{
    return WB__GROUP_ITEMS / t->lanes + FUSED_PRODUCT_PAD;
}

/* Emits the store of an item's sum in local memory, where the lanes' sums are added up. */
static void fused_product_write_sum(const fused_product_tiles *t, int i)
{
    if (t->lanes == 1) return;
    const char *kind = wb__fuse_kinds[t->k->program->instr[i].reg];
    wb__fuse_line(t->k, "LOCAL %s t%d[%d];", kind, i, t->lanes * pitch_of(t));
    wb__fuse_line(t->k, "t%d[lane * %du + e] = s%d;", i, pitch_of(t), i);
}

/* Adds the sum of n lanes, from `lane` on, to an expression: a tree, in which few additions
 * wait. */
static void sum_of_lanes(const fused_product_tiles *t, int i, int lane, int n, wb__text *to)
{
    if (n == 1) {
        wb__text_add(to, "t%d[e + %du]", i, lane * pitch_of(t));
        return;
    }
    wb__text_add(to, "(");
    sum_of_lanes(t, i, lane, n / 2, to);
    wb__text_add(to, " + ");
    sum_of_lanes(t, i, lane + n / 2, n / 2, to);
    wb__text_add(to, ")");
}

/* Emits the value of instruction i. */
static void emit_sum_of_lanes(const fused_product_tiles *t, int i)
{
    wb__text sum = {0};
    if (t->lanes > 1) sum_of_lanes(t, i, 0, t->lanes, &sum);
    else wb__text_add(&sum, "s%d", i);
    t->k->failed |= sum.failed;
    if (sum.text) wb__fuse_emit_value(t->k, i, sum.text);
    t->k->emitted[i] = WB__EMITTED_FULL;
    wb__free(sum.text);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Emits the loads that no product needs, so that they are under way while the sums are computed. */
static int emit_other_loads(const fused_product_tiles *t)
{
    wb__fuse *k = t->k;
    bool *loads = wb__alloc_zero((size_t)k->program->n_instr + 1, sizeof *loads);
    if (!loads) return WB_ERROR_MEMORY;
    for (int i = 0; i < k->program->n_instr; i++)
        loads[i] = k->needed[i] && k->program->instr[i].kind == WB__LOAD;
    wb__fuse_emit_values(k, loads, WB__LEVEL_FULL);
    wb__free(loads);
    return 0;
}

bool wb__fuse_has_products(const wb__fuse_program *p, const bool *needed)
{
    for (int i = 0; i < p->n_instr; i++)
        if ((!needed || needed[i]) && p->instr[i].kind == WB__PRODUCT) return true;
    return false;
}

static int fused_product_emit_kernel(fused_product_tiles *t, const bool *stores)
{
    wb__fuse *k = t->k;
    const int n = k->program->n_instr;
    choose_tiles(t);
    emit_indices(t);
    wb__fuse_emit_bases(k);
    const int e = emit_other_loads(t);
    if (e) return e;
    for (int i = 0; i < n; i++)
        if (is_needed(k, i) && !t->done[i]) emit_loop(t, i);
    for (int i = 0; i < n; i++)
        if (is_needed(k, i)) fused_product_write_sum(t, i);
    if (t->lanes > 1) wb__fuse_line(k, "BARRIER;");
    wb__fuse_open(k, t->lanes > 1 ? "if (lane == 0 && inside)" : "if (inside)");
    for (int i = 0; i < n; i++)
        if (is_needed(k, i)) emit_sum_of_lanes(t, i);
    wb__fuse_emit_values(k, k->needed, WB__LEVEL_FULL);
    for (int i = 0; i < n; i++)
        if (stores[i]) wb__fuse_emit_store(k, i);
    wb__fuse_close(k);
    return 0;
}

int wb__fused_products(wb__fuse *k, const bool *stores)
{
    fused_product_tiles t = {.k = k, .done = wb__alloc_zero((size_t)k->program->n_instr + 1,
                                                            sizeof *t.done)};
    const int last = k->n_dims - 1;
    int64_t outer = 1;
    k->impl = "an element some items, with products";
    k->resident = 1;
    const int e = t.done ? fused_product_emit_kernel(&t, stores) : WB_ERROR_MEMORY;
    wb__free(t.done);
    if (e) {
        wb__fuse_free(k);
        return e;
    }
    for (int d = 0; d < last - 1; d++) outer *= k->dim[d];
    return wb__fuse_finish(k, wb__quotient_up(last >= 0 ? k->dim[last] : 1, t.columns),
                           wb__quotient_up(last > 0 ? k->dim[last - 1] : 1, t.rows), outer);
}
