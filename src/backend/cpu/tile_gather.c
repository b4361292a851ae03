/* Folds over rows, over everything, and along rows in pieces: what each task has is reduced to a line of partial results
 * in the workspace, and those are put together in the order of tasks, so that the bits do not depend on who was first. */
#include "backend/cpu/tile_plan.h"

#include <math.h>
#include <string.h>

enum { SUM, MAX, MIN, ARGMAX };

static bool is_float(int reg) { return reg == WB__REG_F32 || reg == WB__REG_F64; }

static tile_number identity(int op, int reg)
{
    if (is_float(reg)) return (tile_number){.f = op == SUM ? 0 : op == MIN ? INFINITY : -INFINITY};
    const int64_t low = reg == WB__REG_I32 ? INT32_MIN : INT64_MIN, high = reg == WB__REG_I32 ? INT32_MAX : INT64_MAX;
    return (tile_number){.i = op == SUM ? 0 : op == MIN ? high : low};
}

/* *to takes v in, which comes from place `at`. */
static inline void merge(int op, bool floats, tile_number *to, int64_t *place, tile_number v, int64_t at)
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
        if (*place < 0 || (nan && !has_nan) || (more && !has_nan) || (equal && at < *place)) *to = v, *place = at;
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
static int acc_reg(const tile_fold *f) { return f->op == SUM && f->reg == WB__REG_I32 ? WB__REG_I64 : f->reg; }

void tile_start_folds(const tile_run *r, bool all)
{
    for (int i = 0; i < r->p->n_folds; i++) {
        const tile_fold *f = &r->p->folds[i];
        if (f->all != all) continue;
        const int64_t n = f->length;
        if (f->op == SUM) memset(r->scratch + f->acc, 0, (size_t)(n * wb__reg_size(acc_reg(f))));
        else fill(r->scratch + f->acc, n, f->op, f->reg);
        if (f->op == SUM && f->reg == WB__REG_F32) memset(r->scratch + f->more, 0, (size_t)n * 8);
        if (f->op == ARGMAX) for (int64_t j = 0; j < n; j++) ((int64_t *)(r->scratch + f->more))[j] = -1;
    }
}

void tile_flush_folds(const tile_run *r, bool all)
{
    for (int i = 0; i < r->p->n_folds; i++) {
        const tile_fold *f = &r->p->folds[i];
        if (f->all == all && f->op == SUM && f->reg == WB__REG_F32)
            r->k->table->flush((double *)(r->scratch + f->more), (float *)(r->scratch + f->acc), f->length);
    }
}

/* Partial results of a fold: numbers, and after all of them places. */
static tile_number *parts_of(const tile_segment *s, const tile_fold *f, int fold, char *workspace, int64_t **places)
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
    if (f->op == SUM && f->reg == WB__REG_F32) v.f += ((double *)(r->scratch + f->more))[i];
    return v;
}

/* Columns [c0, c1) of the task, of which the accumulators have `rows` rows; or all of it. */
void tile_finish_folds(const tile_run *r, bool all, int64_t rows, int64_t c0, int64_t c1)
{
    const tile_segment *s = r->s;
    const tile_task *t = r->task;
    for (int i = 0; i < r->p->n_folds; i++) {
        const tile_fold *f = &r->p->folds[i];
        if (f->all != all) continue;
        const bool floats = is_float(f->reg);
        int64_t *places;
        tile_number *parts = parts_of(s, f, i, r->workspace, &places);
        const int64_t *at = (const int64_t *)(r->scratch + f->more);
        if (all) {
            tile_number best = identity(f->op, f->reg);
            int64_t place = -1;
            for (int64_t j = 0; j < f->length; j++)
                merge(f->op, floats, &best, &place, accumulated(r, f, j), places ? (at[j] < 0 ? -1 : at[j] + j) : 0);
            parts[t->index] = best;
            if (places) places[t->index] = place;
            continue;
        }
        const int64_t cols = c1 - c0, begin = r->p->pieces ? c0 * s->tile_rows : 0;
        const int64_t line = (t->split * s->n[OUTER] + t->outer) * s->n[COLS] + c0;
        for (int64_t c = 0; c < cols; c++) {
            parts[line + c] = identity(f->op, f->reg);
            if (places) places[line + c] = -1;
        }
        for (int64_t row = 0; row < rows; row++)
            for (int64_t c = 0; c < cols; c++) {
                const int64_t j = begin + row * cols + c;
                merge(f->op, floats, &parts[line + c], places ? &places[line + c] : NULL, accumulated(r, f, j),
                      places ? (at[j] < 0 ? -1 : at[j] + row) : 0);
            }
    }
}

/* ---- putting tasks together ---- */

enum { BLOCK = 256 };

/* Stores n results of a fold, columns from c0 on. */
static void store_results(const tile_kernel *k, const tile_segment *s, const tile_fold *f, char *base, int64_t outer,
                          int64_t c0, int64_t n, const tile_number *v, const int64_t *places)
{
    const tile_view *view = &s->views[f->view];
    _Alignas(64) char result[BLOCK * 8], cast[BLOCK * 8];
    int reg = f->out;
    for (int64_t i = 0; i < n; i++) {
        const tile_number one = places ? (tile_number){.i = WB__MAX(places[i], 0)} : v[i];
        write_number(result, i, reg, one, places ? WB__REG_I64 : f->reg);
    }
    const void *from = result;
    if (wb__reg_of(view->dtype) != (wb__reg)reg) {
        k->table->cast[reg][view->dtype](cast, result, NULL, NULL, n);
        reg = wb__reg_of(view->dtype);
        from = cast;
    }
    tile_store(view, k->table->store[view->dtype], base, outer, 0, 1, c0, n, from, wb__reg_size(reg));
}

static void combine_fold(const tile_kernel *k, const tile_segment *s, const tile_fold *f, int fold, char *base,
                         char *workspace)
{
    int64_t *places;
    const tile_number *parts = parts_of(s, f, fold, workspace, &places);
    const int64_t lines = f->all ? s->tasks : s->splits, outers = f->all ? 1 : s->n[OUTER], cols = f->all ? 1 : s->n[COLS];
    const bool floats = is_float(f->reg);
    for (int64_t o = 0; o < outers; o++)
        for (int64_t c0 = 0; c0 < cols; c0 += BLOCK) {
            const int64_t n = WB__MIN(BLOCK, cols - c0);
            tile_number v[BLOCK];
            int64_t at[BLOCK];
            for (int64_t i = 0; i < n; i++) v[i] = identity(f->op, f->reg), at[i] = -1;
            for (int64_t l = 0; l < lines; l++) {
                const int64_t from = (l * outers + o) * cols + c0;
                for (int64_t i = 0; i < n; i++)
                    merge(f->op, floats, &v[i], &at[i], parts[from + i], places ? places[from + i] : 0);
            }
            store_results(k, s, f, base, o, c0, n, v, places ? at : NULL);
        }
}

void tile_combine(const tile_kernel *k, void *const *buffers, char *workspace)
{
    for (int i = 0; i < k->n_segments; i++) {
        const tile_segment *s = &k->segments[i];
        const tile_program *p = &k->programs[s->program];
        for (int j = 0; j < p->n_folds; j++)
            combine_fold(k, s, &p->folds[j], j, buffers[s->views[p->folds[j].view].buffer], workspace);
    }
}

/* ---- folds along rows, in pieces ---- */

void tile_start_parts(const tile_run *r)
{
    for (int i = 0; i < r->p->n_parts; i++) {
        const tile_part *part = &r->p->parts[i];
        tile_number *acc = (tile_number *)(r->scratch + part->acc);
        int64_t *at = (int64_t *)(r->scratch + part->at);
        for (int64_t j = 0; j < r->s->tile_rows; j++) acc[j] = identity(part->op, part->reg), at[j] = -1;
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
            const tile_number v = part->op == ARGMAX ? read_number(rows, j * r->cols + place, part->reg)
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
