/* The reductions of plan.h: REDUCE_ROWS, REDUCE_ALL, and REDUCE_COLUMNS in chunks.  If several
 * tasks share a result, each task writes a partial result to the workspace.  Partial results are
 * combined in the order of the tasks, so the result does not depend on timing. */
#include "backend/cpu/tile/plan.h"
#include "base/parallel.h"

#include <math.h>
#include <string.h>

enum { TILE_GATHER_SUM, TILE_GATHER_MAX, TILE_GATHER_MIN, ARGMAX,
       TILE_GATHER_BLOCK = 256 }; /* TILE_GATHER_BLOCK: results computed at a time */

static bool tile_gather_is_float(int reg) { return reg == WB__REG_F32 || reg == WB__REG_F64; }

static tile_number tile_gather_identity(int op, int reg)
{
    if (tile_gather_is_float(reg))
        return (tile_number){.f = op == TILE_GATHER_SUM   ? 0
                                  : op == TILE_GATHER_MIN ? INFINITY : -INFINITY};
    const int64_t low = reg == WB__REG_I32 ? INT32_MIN : INT64_MIN;
    const int64_t high = reg == WB__REG_I32 ? INT32_MAX : INT64_MAX;
    return (tile_number){.i = op == TILE_GATHER_SUM ? 0 : op == TILE_GATHER_MIN ? high : low};
}

/* Return the type in which partial results are combined: double for floats, int64_t for
 * integers. */
static wb_dtype wide_dtype(int reg) { return tile_gather_is_float(reg) ? WB_F64 : WB_I64; }
static int wide_reg(int reg) { return tile_gather_is_float(reg) ? WB__REG_F64 : WB__REG_I64; }

static void tile_gather_widen(const tile_kernel *k, tile_number *to, const void *from, int reg,
                              int64_t n)
{
    k->table->cast[reg][wide_dtype(reg)](to, from, NULL, NULL, n);
}

/* Merges v into *to.  `at` is the index of v, and *place the index of *to; -1: no element yet.  NaN
 * wins; of equal elements, the one with the smallest index wins. */
static void merge_argmax(bool floats, tile_number *to, int64_t *place, tile_number v, int64_t at)
{
    if (at < 0) return;
    const bool nan = floats && v.f != v.f, has_nan = floats && to->f != to->f;
    const bool more = floats ? v.f > to->f : v.i > to->i;
    const bool equal = nan ? has_nan : floats ? v.f == to->f : v.i == to->i;
    if (*place < 0 || (!has_nan && (nan || more)) || (equal && at < *place)) {
        *to = v;
        *place = at;
    }
}

/* Merges v[i] into to[i].  argmax: at[i] is the index of v[i], and place[i] the index of to[i]. */
static void tile_gather_merge(const tile_kernel *k, const tile_reduction *f, tile_number *to,
                              int64_t *place, const tile_number *v, const int64_t *at, int64_t n)
{
    if (f->op != ARGMAX) k->table->gather[f->op][wide_reg(f->reg)](to, NULL, v, n, 0);
    else
        for (int64_t i = 0; i < n; i++)
            merge_argmax(tile_gather_is_float(f->reg), &to[i], &place[i], v[i], at[i]);
}

/* Returns the register kind of the accumulators.  Sums of i32 have accumulators of 64 bits;
 * reductions along columns have accumulators of the partial results' type. */
static int acc_reg(const tile_reduction *f)
{
    return f->kind == REDUCE_COLUMNS || (f->op == TILE_GATHER_SUM && f->reg == WB__REG_I32)
               ? wide_reg(f->reg)
               : f->reg;
}

/* Whether the accumulators are flushed to doubles at intervals (sums of f32). */
static bool tile_gather_flushes(const tile_reduction *f)
{
    return f->kind != REDUCE_COLUMNS && f->op == TILE_GATHER_SUM && f->reg == WB__REG_F32;
}

void tile_start_reductions(tile_run *r, tile_reduction_kind kind)
{
    const wb__tile_table *t = r->k->table;
    r->flushed[kind] = false;
    for (int i = 0; i < r->p->n_reductions; i++) {
        const tile_reduction *f = &r->p->reductions[i];
        if (f->kind != kind) continue;
        const int reg = acc_reg(f);
        char *acc = r->scratch + f->acc;
        if (f->op == TILE_GATHER_SUM) {
            memset(acc, 0, (size_t)(f->length * wb__reg_size(reg)));
        } else {
            const tile_number v = tile_gather_identity(f->op, f->reg);
            int64_t first;
            t->cast[wide_reg(reg)][tile_dtype(reg)](&first, &v, NULL, NULL, 1);
            t->splat[reg](acc, &first, 1, f->length);
        }
        int64_t *places = (int64_t *)(r->scratch + f->more);
        for (int64_t j = 0; f->op == ARGMAX && j < f->length; j++) places[j] = -1;
    }
}

void tile_flush_reductions(tile_run *r, tile_reduction_kind kind)
{
    for (int i = 0; i < r->p->n_reductions; i++) {
        const tile_reduction *f = &r->p->reductions[i];
        if (f->kind != kind || !tile_gather_flushes(f)) continue;
        double *more = (double *)(r->scratch + f->more);
        if (!r->flushed[kind]) memset(more, 0, (size_t)f->length * 8);
        r->k->table->flush(more, (float *)(r->scratch + f->acc), f->length);
    }
    r->flushed[kind] = true;
}

/* Returns the partial results of a reduction.  *places becomes the address of the indices of
 * argmax, which follow the results; NULL: the reduction is no argmax. */
static tile_number *partials_of(const tile_segment *s, const tile_reduction *f, int reduction,
                                char *workspace, int64_t **places)
{
    tile_number *v = (tile_number *)(workspace + s->partials[reduction]);
    const int64_t n = f->kind == REDUCE_ALL ? s->tasks : s->splits * s->n[OUTER] * s->n[COLS];
    *places = f->op == ARGMAX ? (int64_t *)(v + n) : NULL;
    return v;
}

/* Adds up all accumulators of a sum of f32, in eight interleaved sums. */
static double tile_gather_sum_all(const tile_run *r, const tile_reduction *f)
{
    const float *acc = (const float *)(r->scratch + f->acc);
    const double *more = (const double *)(r->scratch + f->more);
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= f->length; i += 8)
        for (int j = 0; j < 8; j++) lane[j] += acc[i + j];
    for (; i < f->length; i++) lane[0] += acc[i];
    for (i = 0; r->flushed[REDUCE_ALL] && i < f->length; i++) lane[i & 7] += more[i];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3]))
        + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static void tile_gather_finish_all(const tile_run *r, const tile_reduction *f, int reduction)
{
    const int reg = acc_reg(f);
    const char *acc = r->scratch + f->acc;
    int64_t *places, place = -1, one;
    tile_number *partials = partials_of(r->s, f, reduction, r->workspace, &places);
    tile_number best = tile_gather_identity(f->op, f->reg), v;
    if (f->op == ARGMAX) {
        const int64_t *at = (const int64_t *)(r->scratch + f->more);
        for (int64_t j = 0; j < f->length; j++) {
            tile_gather_widen(r->k, &v, acc + j * wb__reg_size(reg), reg, 1);
            merge_argmax(tile_gather_is_float(reg), &best, &place, v, at[j] < 0 ? -1 : at[j] + j);
        }
    } else if (tile_gather_flushes(f)) {
        best.f = tile_gather_sum_all(r, f);
    } else {
        r->k->table->reduction[f->op][reg](&one, acc, 1, f->length);
        tile_gather_widen(r->k, &best, &one, reg, 1);
    }
    partials[r->task->index] = best;
    if (places) places[r->task->index] = place;
}

/* Reduces `rows` lines of n <= TILE_GATHER_BLOCK accumulators to v[n], for argmax with the indices
 * in places[n].  The first line begins at accumulator `first`; lines are `step` apart. */
static void tile_gather_reduce_lines(const tile_run *r, const tile_reduction *f, int64_t first,
                                     int64_t rows, int64_t step, int64_t n, tile_number *v,
                                     int64_t *places)
{
    const int reg = acc_reg(f);
    const char *from = r->scratch + f->acc + first * wb__reg_size(reg);
    if (tile_gather_flushes(f)) {
        const float *acc = (const float *)from;
        const double *more = (const double *)(r->scratch + f->more) + first;
        for (int64_t c = 0; c < n; c++) v[c].f = acc[c];
        for (int64_t row = 1; row < rows; row++)
            for (int64_t c = 0; c < n; c++) v[c].f += acc[row * step + c];
        for (int64_t row = 0; r->flushed[REDUCE_ROWS] && row < rows; row++)
            for (int64_t c = 0; c < n; c++) v[c].f += more[row * step + c];
        return;
    }
    const int64_t *at = (const int64_t *)(r->scratch + f->more) + first;
    for (int64_t c = 0; c < n; c++) v[c] = tile_gather_identity(f->op, f->reg), places[c] = -1;
    for (int64_t row = 0; row < rows; row++, from += step * wb__reg_size(reg), at += step) {
        tile_number line[TILE_GATHER_BLOCK];
        int64_t place[TILE_GATHER_BLOCK];
        tile_gather_widen(r->k, line, from, reg, n);
        for (int64_t c = 0; f->op == ARGMAX && c < n; c++) place[c] = at[c] < 0 ? -1 : at[c] + row;
        tile_gather_merge(r->k, f, v, places, line, place, n);
    }
}

/* Writes n results of a reduction, numbers or indices (argmax), to a register of kind `reg`. */
static void write_results(const tile_kernel *k, const tile_reduction *f, void *to, int reg,
                          int64_t n, const tile_number *v, const int64_t *places)
{
    if (f->op != ARGMAX) {
        k->table->cast[wide_reg(f->reg)][tile_dtype(reg)](to, v, NULL, NULL, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t place = WB__MAX(places[i], 0);
        k->table->cast[WB__REG_I64][tile_dtype(reg)]((char *)to + i * wb__reg_size(reg), &place,
                                                     NULL, NULL, 1);
    }
}

/* Stores n results of a reduction, from column c0 on. */
static void tile_gather_store_results(const tile_kernel *k, const tile_segment *s,
                                      const tile_reduction *f, char *base, int64_t outer,
                                      int64_t c0, int64_t n, const tile_number *v,
                                      const int64_t *places)
{
    const tile_view *view = &s->views[f->view];
    _Alignas(64) char result[TILE_GATHER_BLOCK * 8], cast[TILE_GATHER_BLOCK * 8];
    int reg = f->out;
    write_results(k, f, result, reg, n, v, places);
    const void *from = result;
    if (wb__reg_of(view->dtype) != (wb__reg)reg) {
        k->table->cast[reg][view->dtype](cast, result, NULL, NULL, n);
        reg = wb__reg_of(view->dtype);
        from = cast;
    }
    tile_store(view, k->table->store[view->dtype], base, outer, 0, 1, c0, n, from,
               wb__reg_size(reg));
}

/* Reduces the accumulators of a kind, and stores the results or partial results.  REDUCE_ROWS: the
 * columns [c0, c1) of the accumulators, which have `rows` rows.  REDUCE_ALL: all accumulators. */
void tile_finish_reductions(const tile_run *r, tile_reduction_kind kind, int64_t rows, int64_t c0,
                            int64_t c1)
{
    const tile_segment *s = r->s;
    const tile_task *t = r->task;
    for (int i = 0; i < r->p->n_reductions; i++) {
        const tile_reduction *f = &r->p->reductions[i];
        if (f->kind != kind) continue;
        if (kind == REDUCE_ALL) {
            tile_gather_finish_all(r, f, i);
            continue;
        }
        for (int64_t c = c0; c < c1; c += TILE_GATHER_BLOCK) {
            const int64_t n = WB__MIN(TILE_GATHER_BLOCK, c1 - c);
            const int64_t line = (t->split * s->n[OUTER] + t->outer) * s->n[COLS] + c;
            const int64_t first = (r->p->chunked ? c0 * s->tile_rows : 0) + c - c0;
            tile_number v[TILE_GATHER_BLOCK];
            int64_t at[TILE_GATHER_BLOCK], *places;
            if (rows > 0) tile_gather_reduce_lines(r, f, first, rows, c1 - c0, n, v, at);
            else
                for (int64_t j = 0; j < n; j++)
                    v[j] = tile_gather_identity(f->op, f->reg), at[j] = -1;
            if (s->splits == 1) {                       /* no other task has partial results */
                tile_gather_store_results(r->k, s, f, r->buffers[s->views[f->view].buffer],
                                          t->outer, c, n, v, at);
                continue;
            }
            tile_number *partials = partials_of(s, f, i, r->workspace, &places);
            memcpy(partials + line, v, (size_t)n * sizeof *v);
            if (places) memcpy(places + line, at, (size_t)n * sizeof *at);
        }
    }
}

/* ---- combining the tasks --------------------------------------------------------------------- */

/* A reduction; tile_gather_join_block combines its partial results, a block of columns a call. */
typedef struct {
    const tile_kernel *k;
    const tile_segment *s;
    const tile_reduction *f;
    int reduction;
    char *base, *workspace;
} joint;

static void tile_gather_join_block(void *ctx, int64_t block)
{
    const joint *j = ctx;
    const tile_segment *s = j->s;
    const tile_reduction *f = j->f;
    int64_t *places, at[TILE_GATHER_BLOCK];
    tile_number v[TILE_GATHER_BLOCK];
    const tile_number *partials = partials_of(s, f, j->reduction, j->workspace, &places);
    const bool all = f->kind == REDUCE_ALL;
    const int64_t lines = all ? s->tasks : s->splits;
    const int64_t outers = all ? 1 : s->n[OUTER], cols = all ? 1 : s->n[COLS];
    const int64_t blocks = (cols + TILE_GATHER_BLOCK - 1) / TILE_GATHER_BLOCK;
    const int64_t outer = block / blocks, c0 = block % blocks * TILE_GATHER_BLOCK;
    const int64_t n = WB__MIN(TILE_GATHER_BLOCK, cols - c0);
    for (int64_t i = 0; i < n; i++) v[i] = tile_gather_identity(f->op, f->reg), at[i] = -1;
    for (int64_t l = 0; l < lines; l++) {
        const int64_t from = (l * outers + outer) * cols + c0;
        tile_gather_merge(j->k, f, v, at, partials + from, places ? places + from : NULL, n);
    }
    tile_gather_store_results(j->k, s, f, j->base, outer, c0, n, v, at);
}

void tile_combine_partials(const tile_kernel *k, void *const *buffers, char *workspace)
{
    enum { MANY = 64 * 1024 };
    for (int i = 0; i < k->n_segments; i++) {
        const tile_segment *s = &k->segments[i];
        const tile_program *p = &k->programs[s->program];
        for (int reduction = 0; reduction < p->n_reductions; reduction++) {
            const tile_reduction *f = &p->reductions[reduction];
            const bool all = f->kind == REDUCE_ALL;
            /* skips reductions that the tasks have already completed */
            if (!all && (f->kind != REDUCE_ROWS || s->splits == 1)) continue;
            joint j = {.k = k, .s = s, .f = f, .reduction = reduction,
                       .base = buffers[s->views[f->view].buffer], .workspace = workspace};
            const int64_t blocks = all ? 1
                                       : s->n[OUTER] * ((s->n[COLS] + TILE_GATHER_BLOCK - 1) /
                                                        TILE_GATHER_BLOCK);
            if (blocks * TILE_GATHER_BLOCK * s->splits >= MANY)
                wb__parallel(blocks, tile_gather_join_block, &j);
            else for (int64_t b = 0; b < blocks; b++) tile_gather_join_block(&j, b);
        }
    }
}

/* ---- reductions along columns, in chunks ----------------------------------------------------- */

void tile_merge_chunk(const tile_run *r, const tile_call *call)
{
    enum { SOME = 64 };
    const tile_reduction *f = &r->p->reductions[call->arg];
    tile_number *acc = (tile_number *)(r->scratch + f->acc);
    int64_t *at = (int64_t *)(r->scratch + f->more);
    const char *rows = r->value[call->value[1]];
    for (int64_t i = 0; i < r->rows; i += SOME) {
        const int64_t n = WB__MIN(SOME, r->rows - i), line = r->cols * call->size[1];
        int64_t result[SOME], places[SOME];
        tile_number v[SOME];
        call->reduction(result, rows, n, r->cols);
        for (int64_t j = 0; f->op == ARGMAX && j < n; j++) {
            const int32_t place = ((const int32_t *)result)[j];
            tile_gather_widen(r->k, &v[j], rows + j * line + place * call->size[1], f->reg, 1);
            places[j] = r->c0 + place;
        }
        if (f->op != ARGMAX) tile_gather_widen(r->k, v, result, f->reg, n);
        tile_gather_merge(r->k, f, acc + i, at + i, v, places, n);
        rows += n * line;
    }
}

void tile_finish_chunks(const tile_run *r, const tile_call *call)
{
    const tile_reduction *f = &r->p->reductions[call->arg];
    write_results(r->k, f, r->value[call->value[0]], call->reg, r->rows,
                  (const tile_number *)(r->scratch + f->acc),
                  (const int64_t *)(r->scratch + f->more));
}
