/* Prepares a fused kernel: its tile sizes, programs, tasks and workspace. */
#include "backend/cpu/tile/plan.h"
#include "base/parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* SMALL and TILE_TASK_GRAIN measure work in elements of the space times calls of the program.
 * Below SMALL, one thread computes everything.  TILE_TASK_GRAIN is about the least work of a task.
 * CACHE: the bytes that the registers of a program should fit in.  TILE_TASK_LARGE: the bytes from
 * which on it is faster to fetch the next tile ahead; AdamW of 0.8 million numbers in 13 MB then
 * takes 0.7 of the time. */
enum { SMALL = 32 * 1024, TILE_TASK_GRAIN = 16 * 1024, TASKS_A_THREAD = 4, TRANSPOSED_ROWS = 32,
      CACHE = 32 * 1024, TILE_TASK_LARGE = 4 << 20 };

const wb__tile_table *wb__tile_table_here(void)
{
#ifdef WB_HAVE_X86_ISA
    static const wb__tile_table *const table[] = {&wb__tile_portable, &wb__tile_avx2,
                                                  &wb__tile_avx512};
    return table[wb__isa_here()];
#else
    return &wb__tile_portable;
#endif
}

/* Properties of a program that do not depend on the tile size. */
typedef struct {
    const wb__fused *f;
    tile_needs needs;
    int count;  /* number of views; those of iotas and draws come last */
    int *pseudo;                        /* per instruction: view of the iota or draw; else -1 */
    bool *used, *is_target;             /* per view: used; is_target: written by the program */
    int register_size;                  /* bytes of a register of a tile */
} program_facts;

static bool stores_rows(const wb__space *space, const wb__view *v)
{
    bool wide = false;
    for (int i = space->ndim - space->col_dims; i < space->ndim; i++) {
        if (space->dims[i] == 1) continue;
        wide = true;
        if (v->strides[i]) return false;
    }
    return wide;
}

static void find_facts(program_facts *a)
{
    const wb__fused *f = a->f;
    a->count = f->n_views;
    a->register_size = 4;
    for (int i = 0; i < f->n_instr; i++) {
        const wb__instr *in = &f->instr[i];
        a->pseudo[i] = -1;
        if (wb__reg_size(in->reg) == 8) a->register_size = 8;
        switch ((wb__instr_kind)in->kind) {
        case WB__IOTA: case WB__UNIFORM: case WB__GAUSSIAN: a->pseudo[i] = a->count++; break;
        case WB__LOAD: a->used[in->arg] = true; break;
        case WB__STORE:
            a->used[in->arg] = a->is_target[in->arg] = true;
            if (f->n_segments && wb__reg_size(wb__reg_of(f->views[in->arg].dtype)) == 8)
                a->register_size = 8;
            for (int s = 0; s < f->n_segments; s++)
                a->needs.stores_rows |=
                    stores_rows(&f->spaces[s], &f->views[s * f->n_views + in->arg]);
            break;
        case WB__REDUCE_COLUMNS:
            a->needs.reduces_columns = true;
            a->needs.ordered_cols |= in->op == WB__OP_argmax;
            break;
        case WB__REDUCE_ROWS: case WB__REDUCE_ALL:
            a->used[in->arg] = a->is_target[in->arg] = true;
            if (in->kind == WB__REDUCE_ROWS) a->needs.reduces_rows = true;
            else a->needs.reduces_all = true;
            if (in->op == WB__OP_argmax) {
                a->needs.ordered_rows = true;
                if (in->kind == WB__REDUCE_ALL) a->needs.ordered_cols = true;
            }
            break;
        default: break;
        }
    }
}

static int make_views(const program_facts *a, tile_segment *s, int segment)
{
    const wb__fused *f = a->f;
    const wb__space *space = &f->spaces[segment];
    const size_t n = (size_t)WB__MAX(a->count, 1);
    wb__view *made = wb__alloc_zero(n, sizeof *made);
    const wb__view **list = wb__alloc_zero(n, sizeof *list);
    s->views = wb__alloc_zero(n, sizeof *s->views);
    int e = made && list && s->views ? 0 : WB_ERROR_MEMORY;
    for (int i = 0; !e && i < a->count; i++) {
        made[i].buffer = -1;
        made[i].dtype = WB_I64;
        list[i] = i < f->n_views && a->used[i] ? &f->views[segment * f->n_views + i] : &made[i];
    }
    for (int i = 0; !e && i < f->n_instr; i++) {
        const wb__instr *in = &f->instr[i];
        if (a->pseudo[i] < 0) continue;
        wb__view *v = &made[a->pseudo[i]];
        if (in->kind == WB__IOTA) {
            v->offset = in->shift;
            v->strides[in->arg] = space->dims[in->arg] == 1 ? 0 : in->scale;
        } else {
            *v = f->views[segment * f->n_views + in->c];
            v->buffer = -1;
        }
    }
    if (!e) tile_make_space(s, space, list, a->count, a->is_target, a->needs);
    wb__free(made);
    wb__free(list);
    return e;
}

/* ---- tile sizes ------------------------------------------------------------------------------ */

/* Whether some view is contiguous along the rows, and not along the columns. */
static bool tile_task_transposed(const tile_segment *s, int count)
{
    if (s->n[ROWS] < 8 || s->n[COLS] < 8) return false;
    for (int i = 0; i < count; i++) {
        const tile_view *v = &s->views[i];
        const int64_t col = v->stride[v->at[COLS] + v->n[COLS] - 1];
        const int64_t row = v->stride[v->at[ROWS] + v->n[ROWS] - 1];
        if (v->buffer >= 0 && col != 0 && col != 1 && row == 1) return true;
    }
    return false;
}

/* Returns the columns per tile, at most `most`.  If a run (plan.h) fits, a tile has as many whole
 * runs as fit; otherwise a run is cut into about equal chunks. */
static int64_t tile_task_chunk(int64_t run, int64_t most)
{
    if (run < most) return most / run * run;
    const int64_t n = (run + most - 1) / most, each = (run + n - 1) / n;
    return WB__MIN((each + 15) / 16 * 16, most);
}

/* Chooses the tile size; returns whether rows are cut into chunks. */
static bool shape_tiles(tile_segment *s, const program_facts *a, int64_t most)
{
    const int64_t rows = WB__MAX(s->n[ROWS], 1), cols = s->n[COLS];
    const bool turned = tile_task_transposed(s, a->f->n_views)
        && !(a->needs.reduces_all && a->needs.ordered_cols);
    const int64_t square_rows = WB__MIN(TRANSPOSED_ROWS, rows);
    const int64_t square_cols = WB__MIN(most / TRANSPOSED_ROWS, cols);
    const bool square = turned && cols > square_cols && most / cols < 16;
    const bool by_rows = a->needs.reduces_columns || a->needs.stores_rows;
    const bool chunked = by_rows && (!cols || cols > 2 * most || square);
    if (!cols || (cols <= (by_rows ? 2 * most : most) && !square)) {
        s->tile_cols = WB__MAX(cols, 1);
        s->tile_rows = WB__MIN(rows, WB__MAX(most / s->tile_cols, 1));
    } else if (square) {
        s->tile_rows = square_rows;
        s->tile_cols = square_cols;
    } else {
        s->tile_rows = 1;
        s->tile_cols = tile_task_chunk(s->run, most);
    }
    return chunked;
}

static int tile_task_add_program(tile_kernel *k, tile_segment *s, const program_facts *a,
                                 int segment)
{
    tile_program p;
    int64_t most = WB__TILE * 4 / a->register_size;
    for (;;) {
        const bool chunked = shape_tiles(s, a, most);
        const int64_t register_bytes =
            WB__MAX(most, s->tile_rows * s->tile_cols) * a->register_size;
        const int e = tile_compile(&p, s, a->f, a->f->views + segment * a->f->n_views, a->pseudo,
                                   k->table, chunked, register_bytes);
        if (e) return e;
        if (p.n_registers * register_bytes <= CACHE || most <= 256) break;
        most /= 2;
        tile_program_free(&p);
    }
    s->by_columns = a->needs.reduces_rows || p.hoist_to > p.once_to;
    s->partials = wb__alloc_zero((size_t)WB__MAX(p.n_reductions, 1), sizeof *s->partials);
    for (s->program = 0; s->program < k->n_programs; s->program++) {
        if (!tile_program_same(&k->programs[s->program], &p)) continue;
        tile_program_free(&p);
        return s->partials ? 0 : WB_ERROR_MEMORY;
    }
    k->programs[k->n_programs++] = p;
    return s->partials ? 0 : WB_ERROR_MEMORY;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

/* The number of tasks along each loop. */
typedef struct { int64_t outer, rows, cols; } tile_task_cut;

static tile_task_cut cut_segment(const tile_segment *s, const program_facts *a, int64_t wanted)
{
    const bool by_rows = a->needs.reduces_columns || a->needs.stores_rows;
    const int64_t row_tiles = WB__MAX(wb__quotient_up(s->n[ROWS], s->tile_rows), 1);
    const int64_t col_tiles = WB__MAX(wb__quotient_up(s->n[COLS], s->tile_cols), 1);
    tile_task_cut c = {.outer = s->n[OUTER], .rows = 1, .cols = 1};
    wanted = WB__MAX(wb__quotient_up(wanted, WB__MAX(c.outer, 1)), 1);
    if (by_rows) {
        c.rows = WB__MIN(wanted, row_tiles);
    } else if (a->needs.reduces_rows) {
        c.cols = WB__MIN(wanted, col_tiles);
        c.rows = WB__MIN(wb__quotient_up(wanted, c.cols), row_tiles);
    } else {
        c.rows = WB__MIN(wanted, row_tiles);
        c.cols = WB__MIN(wb__quotient_up(wanted, c.rows), col_tiles);
    }
    return c;
}

static void add_tasks(tile_kernel *k, int segment, tile_task_cut c)
{
    tile_segment *s = &k->segments[segment];
    const int64_t row_tiles = wb__quotient_up(s->n[ROWS], s->tile_rows);
    const int64_t col_tiles = wb__quotient_up(s->n[COLS], s->tile_cols);
    s->splits = (int)c.rows;
    s->tasks = 0;
    for (int64_t o = 0; o < c.outer; o++)
        for (int64_t i = 0; i < c.rows; i++)
            for (int64_t j = 0; j < c.cols; j++) {
                tile_task *t = &k->tasks[k->n_tasks++];
                *t = (tile_task){.segment = segment, .split = (int)i, .index = s->tasks++,
                                 .outer = o};
                t->r0 = row_tiles * i / c.rows * s->tile_rows;
                t->r1 = WB__MIN(row_tiles * (i + 1) / c.rows * s->tile_rows, s->n[ROWS]);
                t->c0 = col_tiles * j / c.cols * s->tile_cols;
                t->c1 = WB__MIN(col_tiles * (j + 1) / c.cols * s->tile_cols, s->n[COLS]);
            }
}

static int make_tasks(tile_kernel *k, const program_facts *a)
{
    const int threads = wb__threads();
    int64_t work = 0, count = 0;
    for (int i = 0; i < k->n_segments; i++) {
        const tile_segment *s = &k->segments[i];
        work += s->n[OUTER] * s->n[ROWS] * s->n[COLS] * (k->programs[s->program].n_calls + 1);
    }
    const int64_t share = WB__MAX(work / (threads * TASKS_A_THREAD), TILE_TASK_GRAIN);
    const int64_t each = work < SMALL || threads == 1 ? INT64_MAX : share;
    tile_task_cut *cuts = wb__alloc((size_t)WB__MAX(k->n_segments, 1) * sizeof *cuts);
    if (!cuts) return WB_ERROR_MEMORY;
    for (int i = 0; i < k->n_segments; i++) {
        const tile_segment *s = &k->segments[i];
        const int64_t mine =
            s->n[OUTER] * s->n[ROWS] * s->n[COLS] * (k->programs[s->program].n_calls + 1);
        cuts[i] = cut_segment(s, a, mine / each + 1);
        if (!a->needs.reduces_rows && !a->needs.reduces_all && !a->needs.stores_rows && !mine)
            cuts[i].rows = cuts[i].cols = 0;
        count += cuts[i].outer * cuts[i].rows * cuts[i].cols;
    }
    k->tasks = wb__alloc((size_t)WB__MAX(count, 1) * sizeof *k->tasks);
    for (int i = 0; k->tasks && i < k->n_segments; i++) add_tasks(k, i, cuts[i]);
    wb__free(cuts);
    k->workers = (int)WB__MAX(WB__MIN((int64_t)threads, count), 1);
    if (each == INT64_MAX) k->workers = 1;
    return k->tasks ? 0 : WB_ERROR_MEMORY;
}

static void make_workspace(tile_kernel *k)
{
    int64_t end = 0;
    for (int i = 0; i < k->n_segments; i++) {
        tile_segment *s = &k->segments[i];
        const tile_program *p = &k->programs[s->program];
        for (int j = 0; j < p->n_reductions; j++) {
            const tile_reduction_kind kind = p->reductions[j].kind;
            const int64_t n = kind == REDUCE_ALL ? s->tasks
                            : kind == REDUCE_COLUMNS || s->splits == 1
                                ? 0 : s->splits * s->n[OUTER] * s->n[COLS];
            s->partials[j] = end;
            end += n * (p->reductions[j].op == 3 ? 16 : 8);
        }
    }
    end = wb__quotient_up(end, 64) * 64;
    k->scratch = 0;
    for (int i = 0; i < k->n_programs; i++)
        k->scratch = WB__MAX(k->scratch, k->programs[i].scratch);
    k->scratch = wb__quotient_up(k->scratch, 64) * 64;
    k->scratch_from = k->scratch <= STACK_SCRATCH ? -1 : end;
    if (k->scratch_from >= 0) end += k->workers * k->scratch;
    k->head.base.workspace = (size_t)end;
}

/* Returns the bytes of the views that tiles may fetch ahead. */
static int64_t bytes_ahead(const tile_kernel *k)
{
    int64_t bytes = 0;
    for (int i = 0; i < k->n_segments; i++) {
        const tile_segment *s = &k->segments[i];
        const tile_program *p = &k->programs[s->program];
        for (int j = 0; j < p->n_calls; j++) {
            if (!p->calls[j].ahead) continue;
            const tile_view *v = &s->views[p->calls[j].arg];
            const bool one_row = v->n[ROWS] == 1 && !v->stride[v->at[ROWS]];    /* read by all */
            bytes += s->n[OUTER] * (one_row ? 1 : s->n[ROWS]) * s->n[COLS] * v->size;
        }
    }
    return bytes;
}

static void tile_task_destroy(wb__cpu_kernel *kernel)
{
    tile_kernel *k = (tile_kernel *)kernel;
    for (int i = 0; i < k->n_programs; i++) tile_program_free(&k->programs[i]);
    for (int i = 0; i < k->n_segments; i++) {
        wb__free(k->segments[i].views);
        wb__free(k->segments[i].partials);
    }
    wb__free(k->segments);
    wb__free(k->programs);
    wb__free(k->tasks);
    wb__free(k);
}

int wb__cpu_fused(const wb__fused *f, wb__cpu_kernel **kernel)
{
    const size_t views = (size_t)f->n_views + 1, segments = (size_t)WB__MAX(f->n_segments, 1);
    program_facts a = {.f = f};
    tile_kernel *k = wb__alloc_zero(1, sizeof *k);
    bool *bools = wb__alloc_zero(2 * views, sizeof *bools);
    a.pseudo = wb__alloc((size_t)WB__MAX(f->n_instr, 1) * sizeof *a.pseudo);
    int e = k && bools && a.pseudo ? 0 : WB_ERROR_MEMORY;
    if (!e) {
        a.used = bools;
        a.is_target = bools + views;
        find_facts(&a);
        k->table = wb__tile_table_here();
        k->segments = wb__alloc_zero(segments, sizeof *k->segments);
        k->programs = wb__alloc_zero(segments, sizeof *k->programs);
        if (!k->segments || !k->programs) e = WB_ERROR_MEMORY;
    }
    for (int i = 0; !e && i < f->n_segments; i++) {
        k->n_segments = i + 1;
        e = make_views(&a, &k->segments[i], i);
        if (!e) e = tile_task_add_program(k, &k->segments[i], &a, i);
    }
    if (!e) e = make_tasks(k, &a);
    if (!e) {
        make_workspace(k);
        k->large = bytes_ahead(k) >= TILE_TASK_LARGE;
        k->reductions = a.needs.reduces_rows || a.needs.reduces_all;
        snprintf(k->impl, sizeof k->impl, "tile %s", k->table->isa);
        k->head.base.impl = k->impl;
        k->head.launch = tile_launch;
        k->head.destroy = tile_task_destroy;
    }
    wb__free(bools);
    wb__free(a.pseudo);
    *kernel = e ? NULL : &k->head;
    if (e && k) tile_task_destroy(&k->head);
    return e;
}
