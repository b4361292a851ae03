/* Folds over rows, over everything, and along rows in pieces: what each task has is reduced to a
 * line of partial results in the workspace, and those are put together in the order of tasks, so
 * that the bits do not depend on who was first. */
#include "backend/cpu/tile_plan.h"
#include "base/parallel.h"

#include <math.h>
#include <string.h>

enum { SUM, MAX, MIN, ARGMAX, BLOCK = 256 };     /* results are made a block at a time */

static bool is_float(int reg) { return reg == WB__REG_F32 || reg == WB__REG_F64; }

static tile_number identity(int op, int reg)
{
    if (is_float(reg)) return (tile_number){.f = op == SUM ? 0 : op == MIN ? INFINITY : -INFINITY};
    const int64_t low = reg == WB__REG_I32 ? INT32_MIN : INT64_MIN;
    const int64_t high = reg == WB__REG_I32 ? INT32_MAX : INT64_MAX;
    return (tile_number){.i = op == SUM ? 0 : op == MIN ? high : low};
}

/* *to takes v in, which comes from place `at`. */
static inline void merge(int op, bool floats, tile_number *to, int64_t *place, tile_number v,
                         int64_t at)
{
    if (op == SUM) {
        if (floats) to->f += v.f;
        else to->i = (int64_t)((uint64_t)to->i + (uint64_t)v.i);
    } else if (op == MAX) {
        if (floats) to->f = v.f > to->f || v.f != v.f ? v.f : to->f;
        else to->i = v.i > to->i ? v.i : to->i;
    } else if (op == MIN) {
        if (floats) to->f = v.f < to->f || v.f != v.f ? v.f : to->f;
        else to->i = v.i < to->i ? v.i : to->i;
    } else if (at >= 0) {
        const bool nan = floats && v.f != v.f, has_nan = floats && to->f != to->f;
        const bool more = floats ? v.f > to->f : v.i > to->i;
        const bool equal = nan ? has_nan : floats ? v.f == to->f : v.i == to->i;
        if (*place < 0 || (!has_nan && (nan || more)) || (equal && at < *place)) {
            *to = v;
            *place = at;
        }
    }
}

static tile_number read_number(const void *p, int64_t i, int reg)
{
    switch (reg) {
    case WB__REG_F32: return (tile_number){.f = ((const float *)p)[i]};
    case WB__REG_F64: return (tile_number){.f = ((const double *)p)[i]};
    case WB__REG_I32: return (tile_number){.i = ((const int32_t *)p)[i]};
    default: return (tile_number){.i = ((const int64_t *)p)[i]};
    }
}

/* A result, of a register of kind `from`, in one of kind `to`. */
static void write_number(void *p, int64_t i, int to, tile_number v, int from)
{
    const double f = is_float(from) ? v.f : (double)v.i;
    int64_t n = v.i;
    if (is_float(from) && !is_float(to)) wb__convert(&n, WB_I64, &v.f, WB_F64, 1);
    switch (to) {
    case WB__REG_F32: ((float *)p)[i] = is_float(from) ? (float)f : (float)v.i; break;
    case WB__REG_F64: ((double *)p)[i] = f; break;
    case WB__REG_I32: ((int32_t *)p)[i] = (int32_t)(uint32_t)(uint64_t)n; break;
    default: ((int64_t *)p)[i] = n; break;
    }
}

static void fill(void *p, int64_t n, int op, int reg)
{
    const tile_number v = identity(op, reg);
    switch (reg) {
    case WB__REG_F32: for (int64_t i = 0; i < n; i++) ((float *)p)[i] = (float)v.f; break;
    case WB__REG_F64: for (int64_t i = 0; i < n; i++) ((double *)p)[i] = v.f; break;
    case WB__REG_I32: for (int64_t i = 0; i < n; i++) ((int32_t *)p)[i] = (int32_t)v.i; break;
    default: for (int64_t i = 0; i < n; i++) ((int64_t *)p)[i] = v.i; break;
    }
}

/* Sums of i32 stand in accumulators of 64 bits. */
static int acc_reg(const tile_fold *f)
{
    return f->op == SUM && f->reg == WB__REG_I32 ? WB__REG_I64 : f->reg;
}

void tile_start_folds(tile_run *r, bool all)
{
    r->flushed[all] = false;
    for (int i = 0; i < r->p->n_folds; i++) {
        const tile_fold *f = &r->p->folds[i];
        if (f->all != all) continue;
        const int64_t n = f->length;
        if (f->op == SUM) memset(r->scratch + f->acc, 0, (size_t)(n * wb__reg_size(acc_reg(f))));
        else fill(r->scratch + f->acc, n, f->op, f->reg);
        int64_t *places = (int64_t *)(r->scratch + f->more);
        for (int64_t j = 0; f->op == ARGMAX && j < n; j++) places[j] = -1;
    }
}

void tile_flush_folds(tile_run *r, bool all)
{
    for (int i = 0; i < r->p->n_folds; i++) {
        const tile_fold *f = &r->p->folds[i];
        if (f->all != all || f->op != SUM || f->reg != WB__REG_F32) continue;
        double *more = (double *)(r->scratch + f->more);
        if (!r->flushed[all]) memset(more, 0, (size_t)f->length * 8);
        r->k->table->flush(more, (float *)(r->scratch + f->acc), f->length);
    }
    r->flushed[all] = true;
}

/* Partial results of a fold: numbers, and after all of them places. */
static tile_number *parts_of(const tile_segment *s, const tile_fold *f, int fold, char *workspace,
                             int64_t **places)
{
    tile_number *v = (tile_number *)(workspace + s->parts[fold]);
    const int64_t n = f->all ? s->tasks : s->splits * s->n[OUTER] * s->n[COLS];
    *places = f->op == ARGMAX ? (int64_t *)(v + n) : NULL;
    return v;
}

/* Accumulator i as a number. */
static tile_number accumulated(const tile_run *r, const tile_fold *f, int64_t i)
{
    tile_number v = read_number(r->scratch + f->acc, i, acc_reg(f));
    if (f->op == SUM && f->reg == WB__REG_F32 && r->flushed[f->all])
        v.f += ((double *)(r->scratch + f->more))[i];
    return v;
}

/* The sum of all accumulators of f32, in eight at a time. */
static double sum_all(const tile_run *r, const tile_fold *f)
{
    const float *acc = (const float *)(r->scratch + f->acc);
    const double *more = (const double *)(r->scratch + f->more);
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= f->length; i += 8)
        for (int j = 0; j < 8; j++) lane[j] += acc[i + j];
    for (; i < f->length; i++) lane[0] += acc[i];
    for (i = 0; r->flushed[1] && i < f->length; i++) lane[i & 7] += more[i];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3]))
        + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static void finish_all(const tile_run *r, const tile_fold *f, int fold)
{
    int64_t *places, place = -1;
    tile_number *parts = parts_of(r->s, f, fold, r->workspace, &places);
    tile_number best = identity(f->op, f->reg);
    const int64_t *at = (const int64_t *)(r->scratch + f->more);
    if (f->op == SUM && f->reg == WB__REG_F32) {
        best.f = sum_all(r, f);
    } else {
        for (int64_t j = 0; j < f->length; j++)
            merge(f->op, is_float(f->reg), &best, &place, accumulated(r, f, j),
                  places && at[j] >= 0 ? at[j] + j : -1);
    }
    parts[r->task->index] = best;
    if (places) places[r->task->index] = place;
}

/* n <= BLOCK columns, of which `rows` lines of accumulators begin at `first`. */
static void reduce_lines(const tile_run *r, const tile_fold *f, int64_t first, int64_t rows,
                         int64_t step, int64_t n,
                         tile_number *v, int64_t *places)
{
    if (f->op == SUM && f->reg == WB__REG_F32) {
        const float *acc = (const float *)(r->scratch + f->acc) + first;
        const double *more = (const double *)(r->scratch + f->more) + first;
        for (int64_t c = 0; c < n; c++) v[c].f = acc[c];
        for (int64_t row = 1; row < rows; row++)
            for (int64_t c = 0; c < n; c++) v[c].f += acc[row * step + c];
        for (int64_t row = 0; r->flushed[0] && row < rows; row++)
            for (int64_t c = 0; c < n; c++) v[c].f += more[row * step + c];
        return;
    }
    const int64_t *at = (const int64_t *)(r->scratch + f->more) + first;
    for (int64_t c = 0; c < n; c++) v[c] = identity(f->op, f->reg), places[c] = -1;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < n; c++) {
            const int64_t j = row * step + c;
            const int64_t place = f->op == ARGMAX && at[j] >= 0 ? at[j] + row : -1;
            merge(f->op, is_float(f->reg), &v[c], &places[c], accumulated(r, f, first + j), place);
        }
}

/* Stores n results of a fold, columns from c0 on. */
static void store_results(const tile_kernel *k, const tile_segment *s, const tile_fold *f,
                          char *base, int64_t outer,
                          int64_t c0, int64_t n, const tile_number *v, const int64_t *places)
{
    const tile_view *view = &s->views[f->view];
    _Alignas(64) char result[BLOCK * 8], cast[BLOCK * 8];
    int reg = f->out;
    if (reg == WB__REG_F32 && is_float(f->reg)) {
        for (int64_t i = 0; i < n; i++) ((float *)result)[i] = (float)v[i].f;
    } else {
        for (int64_t i = 0; i < n; i++) {
            const tile_number one = places ? (tile_number){.i = WB__MAX(places[i], 0)} : v[i];
            write_number(result, i, reg, one, places ? WB__REG_I64 : f->reg);
        }
    }
    const void *from = result;
    if (wb__reg_of(view->dtype) != (wb__reg)reg) {
        k->table->cast[reg][view->dtype](cast, result, NULL, NULL, n);
        reg = wb__reg_of(view->dtype);
        from = cast;
    }
    tile_store(view, k->table->store[view->dtype], base, outer, 0, 1, c0, n, from,
               wb__reg_size(reg));
}

/* Columns [c0, c1) of the task, of which the accumulators have `rows` rows; or, of the folds over
 * all, everything. */
void tile_finish_folds(const tile_run *r, bool all, int64_t rows, int64_t c0, int64_t c1)
{
    const tile_segment *s = r->s;
    const tile_task *t = r->task;
    for (int i = 0; i < r->p->n_folds; i++) {
        const tile_fold *f = &r->p->folds[i];
        if (f->all != all) continue;
        if (all) {
            finish_all(r, f, i);
            continue;
        }
        for (int64_t c = c0; c < c1; c += BLOCK) {
            const int64_t n = WB__MIN(BLOCK, c1 - c);
            const int64_t line = (t->split * s->n[OUTER] + t->outer) * s->n[COLS] + c;
            const int64_t first = (r->p->pieces ? c0 * s->tile_rows : 0) + c - c0;
            tile_number v[BLOCK];
            int64_t at[BLOCK], *places;
            if (rows > 0) reduce_lines(r, f, first, rows, c1 - c0, n, v, at);
            else for (int64_t j = 0; j < n; j++) v[j] = identity(f->op, f->reg), at[j] = -1;
            if (s->splits == 1) {                       /* nobody else has a part of these */
                store_results(r->k, s, f, r->buffers[s->views[f->view].buffer], t->outer, c, n, v,
                              f->op == ARGMAX ? at : NULL);
                continue;
            }
            tile_number *parts = parts_of(s, f, i, r->workspace, &places);
            memcpy(parts + line, v, (size_t)n * sizeof *v);
            if (places) memcpy(places + line, at, (size_t)n * sizeof *at);
        }
    }
}

/* ---- putting tasks together ------------------------------------------------------------------ */

/* What all tasks have of one block of columns. */
typedef struct {
    const tile_kernel *k;
    const tile_segment *s;
    const tile_fold *f;
    int fold;
    char *base, *workspace;
} joint;

static void join_block(void *ctx, int64_t block)
{
    const joint *j = ctx;
    const tile_segment *s = j->s;
    const tile_fold *f = j->f;
    int64_t *places, at[BLOCK];
    tile_number v[BLOCK];
    const tile_number *parts = parts_of(s, f, j->fold, j->workspace, &places);
    const int64_t lines = f->all ? s->tasks : s->splits;
    const int64_t outers = f->all ? 1 : s->n[OUTER], cols = f->all ? 1 : s->n[COLS];
    const int64_t blocks = (cols + BLOCK - 1) / BLOCK;
    const int64_t outer = block / blocks, c0 = block % blocks * BLOCK;
    const int64_t n = WB__MIN(BLOCK, cols - c0);
    for (int64_t i = 0; i < n; i++) v[i] = identity(f->op, f->reg), at[i] = -1;
    for (int64_t l = 0; l < lines; l++) {
        const int64_t from = (l * outers + outer) * cols + c0;
        if (f->op == SUM && is_float(f->reg))
            for (int64_t i = 0; i < n; i++) v[i].f += parts[from + i].f;
        else
            for (int64_t i = 0; i < n; i++)
                merge(f->op, is_float(f->reg), &v[i], &at[i], parts[from + i],
                      places ? places[from + i] : -1);
    }
    store_results(j->k, s, f, j->base, outer, c0, n, v, places ? at : NULL);
}

void tile_combine(const tile_kernel *k, void *const *buffers, char *workspace)
{
    enum { MANY = 64 * 1024 };
    for (int i = 0; i < k->n_segments; i++) {
        const tile_segment *s = &k->segments[i];
        const tile_program *p = &k->programs[s->program];
        for (int fold = 0; fold < p->n_folds; fold++) {
            const tile_fold *f = &p->folds[fold];
            joint j = {.k = k, .s = s, .f = f, .fold = fold,
                       .base = buffers[s->views[f->view].buffer], .workspace = workspace};
            const int64_t blocks = f->all ? 1 : s->n[OUTER] * ((s->n[COLS] + BLOCK - 1) / BLOCK);
            if (!f->all && s->splits == 1) continue;                    /* stored by the tasks */
            if (blocks * BLOCK * s->splits >= MANY) wb__parallel(blocks, join_block, &j);
            else for (int64_t b = 0; b < blocks; b++) join_block(&j, b);
        }
    }
}

/* ---- folds along rows, in pieces ------------------------------------------------------------- */

void tile_start_parts(const tile_run *r)
{
    for (int i = 0; i < r->p->n_parts; i++) {
        const tile_part *part = &r->p->parts[i];
        tile_number *acc = (tile_number *)(r->scratch + part->acc);
        int64_t *at = (int64_t *)(r->scratch + part->at);
        for (int64_t j = 0; j < r->s->tile_rows; j++) {
            acc[j] = identity(part->op, part->reg);
            at[j] = -1;
        }
    }
}

void tile_fold_part(const tile_run *r, const tile_call *call)
{
    enum { SOME = 64 };
    const tile_part *part = &r->p->parts[call->arg];
    tile_number *acc = (tile_number *)(r->scratch + part->acc);
    int64_t *at = (int64_t *)(r->scratch + part->at);
    const char *from = r->value[call->value[1]];
    int64_t result[SOME];
    for (int64_t i = 0; i < r->rows; i += SOME) {
        const int64_t n = WB__MIN(SOME, r->rows - i);
        const char *rows = from + i * r->cols * call->size[1];
        call->fold(result, rows, n, r->cols);
        for (int64_t j = 0; j < n; j++) {
            const int64_t place = part->op == ARGMAX ? ((const int32_t *)result)[j] : 0;
            const tile_number v = part->op == ARGMAX
                ? read_number(rows, j * r->cols + place, part->reg)
                                                     : read_number(result, j, part->reg);
            merge(part->op, is_float(part->reg), &acc[i + j], &at[i + j], v, r->c0 + place);
        }
    }
}

void tile_fold_done(const tile_run *r, const tile_call *call)
{
    const tile_part *part = &r->p->parts[call->arg];
    const tile_number *acc = (const tile_number *)(r->scratch + part->acc);
    const int64_t *at = (const int64_t *)(r->scratch + part->at);
    void *d = r->value[call->value[0]];
    for (int64_t i = 0; i < r->rows; i++) {
        const tile_number v = part->op == ARGMAX ? (tile_number){.i = WB__MAX(at[i], 0)} : acc[i];
        write_number(d, i, call->reg, v, part->op == ARGMAX ? WB__REG_I64 : part->reg);
    }
}
