/* Runs tile programs: the tasks of a kernel in parallel, the tiles of a task in sequence, the calls
 * of a tile in sequence. */
#include "backend/cpu/tile/plan.h"
#include "base/parallel.h"

#include <stdatomic.h>
#include <string.h>

/* ---- calls that depend on the position ------------------------------------------------------- */

static int64_t tile_run_offset_of(const tile_run *r, const tile_view *v, int64_t c0)
{
    int64_t at = v->offset + tile_offset(v, ROWS, r->r0) + tile_offset(v, COLS, c0);
    if (r->task->outer) at += tile_offset(v, OUTER, r->task->outer);
    return at;
}

/* A patch: a part of a tile in which a view has one row stride and one column stride. */
typedef struct { int64_t r, c, rows, cols, offset; } patch;

/* Moves p to the next patch of a tile; false: there is none. */
static bool next_patch(const tile_view *v, patch *p, int64_t outer, int64_t r0, int64_t rows,
                       int64_t c0, int64_t cols)
{
    const int64_t row_dim = v->dim[v->at[ROWS] + v->n[ROWS] - 1];
    const int64_t col_dim = v->dim[v->at[COLS] + v->n[COLS] - 1];
    if (p->cols) {
        p->c += p->cols;
        if (p->c == cols) p->c = 0, p->r += p->rows;
    }
    if (p->r == rows) return false;
    p->rows = v->n[ROWS] == 1 ? rows : WB__MIN(rows - p->r, row_dim - (r0 + p->r) % row_dim);
    p->cols = v->n[COLS] == 1 ? cols : WB__MIN(cols - p->c, col_dim - (c0 + p->c) % col_dim);
    p->offset = v->offset + tile_offset(v, OUTER, outer) + tile_offset(v, ROWS, r0 + p->r) +
                tile_offset(v, COLS, c0 + p->c);
    return true;
}

static int64_t tile_run_inner(const tile_view *v, int group)
{
    return v->stride[v->at[group] + v->n[group] - 1];
}

/* Begins to fetch the memory of a view that the next tile of the task reads or writes into the
 * second-level cache, if the view is dense; `at` is the address of the current tile.  The processor
 * fetches ahead by itself only within a page, which is as long as most tiles.  (The function must
 * be inlined: GCC sees no effect in a function that only fetches, and removes calls of it.) */
static inline __attribute__((always_inline)) void fetch_next(const tile_run *r, const tile_view *v,
                                                             const char *at)
{
    const tile_task *t = r->task;
    const bool down = r->rows > 1 || (r->s->by_columns && !r->p->chunked);
    if (r->r0 + r->rows >= t->r1 && (down || r->c0 + r->cols >= t->c1)) return;
    if (v->n[ROWS] > 1 || v->n[COLS] > 1 || tile_run_inner(v, COLS) != 1) return;
    if (r->rows > 1 && tile_run_inner(v, ROWS) != r->cols) return;
    const int64_t bytes = r->rows * r->cols * v->size;
    const uintptr_t next =
        (uintptr_t)at + (uintptr_t)(down ? r->rows * tile_run_inner(v, ROWS) * v->size : bytes);
    for (int64_t i = 0; i < bytes; i += 64)  /* the addresses may be beyond the end of the view */
        __builtin_prefetch((const void *)(next + (uintptr_t)i), 0, 2);
}

static void tile_run_load(const tile_run *r, const tile_call *call, int64_t rows, int64_t cols,
                          int64_t c0)
{
    const tile_view *v = &r->s->views[call->arg];
    char *d = r->value[call->value[0]];
    const char *base = r->buffers[v->buffer];
    const int size = call->size[0];
    if (wb__likely(v->n[ROWS] == 1 && v->n[COLS] == 1)) {
        base += tile_run_offset_of(r, v, c0) * v->size;
        if (call->ahead && r->k->large) fetch_next(r, v, base);
        call->load(d, cols, base, rows, cols, tile_run_inner(v, ROWS), tile_run_inner(v, COLS));
        return;
    }
    for (patch p = {0}; next_patch(v, &p, r->task->outer, r->r0, rows, c0, cols);)
        call->load(d + (p.r * cols + p.c) * size, cols, base + p.offset * v->size, p.rows, p.cols,
                   tile_run_inner(v, ROWS), tile_run_inner(v, COLS));
}

void tile_store(const tile_view *v, wb__store_fn *store, void *base, int64_t outer, int64_t r0,
                int64_t rows, int64_t c0, int64_t cols, const void *from, int size)
{
    for (patch p = {0}; next_patch(v, &p, outer, r0, rows, c0, cols);)
        store((const char *)from + (p.r * cols + p.c) * size, cols,
              (char *)base + p.offset * v->size, p.rows, p.cols, tile_run_inner(v, ROWS),
              tile_run_inner(v, COLS));
}

/* Computes values that depend on the position only: iota and draws. */
static void tile_run_positions(const tile_run *r, const tile_call *call, int64_t rows, int64_t cols,
                               int64_t c0)
{
    const tile_view *v = &r->s->views[call->arg];
    const int64_t row_step = tile_run_inner(v, ROWS), col_step = tile_run_inner(v, COLS);
    for (patch p = {0}; next_patch(v, &p, r->task->outer, r->r0, rows, c0, cols);) {
        const bool one_run = p.cols == cols && (row_step == cols * col_step || p.rows == 1);
        const int64_t n = one_run ? p.rows * p.cols : p.cols;
        for (int64_t i = 0; i < (one_run ? 1 : p.rows); i++) {
            char *d = (char *)r->value[call->value[0]] + ((p.r + i) * cols + p.c) * call->size[0];
            const int64_t first = p.offset + i * row_step;
            const wb__number *key = r->numbers + call->numbers;
            if (call->kind == CALL_IOTA) call->iota(d, n, first, col_step);
            else call->draw(d, n, key[0].u, key[1].u, first, col_step);
        }
    }
}

/* Sets a value to a number of the plan. */
static void tile_run_number(const tile_run *r, const tile_call *call)
{
    const double f = r->numbers[call->arg].f;
    void *d = r->value[call->value[0]];
    switch (call->reg) {
    case WB__REG_F32: *(float *)d = call->half ? wb__f64_to_odd(f) : (float)f; break;
    case WB__REG_F64: *(double *)d = f; break;
    case WB__REG_I32: wb__convert(d, WB_I32, &f, WB_F64, 1); break;
    default: wb__convert(d, WB_I64, &f, WB_F64, 1); break;
    }
}

static void tile_run_by_row(const tile_run *r, const tile_call *call)
{
    const char *a[4];
    int64_t step[4];
    for (int k = 0; k < 4; k++) {
        a[k] = call->value[k] < 0 ? NULL : r->value[call->value[k]];
        step[k] = !a[k] || call->level[k] == LEVEL_ONE ? 0
                : call->level[k] == LEVEL_PER_ROW ? call->size[k] : call->size[k] * r->cols;
    }
    for (int64_t i = 0; i < r->rows; i++) {
        call->row_fn((void *)a[0], a[1], a[2], a[3], r->cols);
        for (int k = 0; k < 4; k++) if (a[k]) a[k] += step[k];
    }
}

static void *tile_run_operand(const tile_run *r, const tile_call *call, int k)
{
    return call->value[k] < 0 ? NULL : r->value[call->value[k]];
}

static void tile_run_gather(const tile_run *r, const tile_call *call)
{
    const tile_reduction *f = &r->p->reductions[call->arg];
    const bool all = f->kind == REDUCE_ALL;
    const int64_t at = r->p->chunked && !all ? r->c0 * r->s->tile_rows : 0;
    const int64_t size = f->op == 0 && f->reg == WB__REG_I32 ? 8 : wb__reg_size(f->reg);
    const int64_t line = r->task->outer * r->s->n[ROWS] + r->r0;
    const int64_t now = all ? line * r->s->n[COLS] + r->c0 : r->r0;
    int64_t *places = f->op == 3 ? (int64_t *)(r->scratch + f->more) + at : NULL;
    call->gather(r->scratch + f->acc + at * size, places, tile_run_operand(r, call, 1),
                 r->rows * r->cols, now);
}

static void run_calls(const tile_run *r, int from, int to)
{
    for (const tile_call *call = r->p->calls + from, *end = r->p->calls + to; call < end; call++) {
        const int64_t cols = call->row ? 1 : r->cols, c0 = call->row ? 0 : r->c0;
        switch ((tile_call_kind)call->kind) {
        case CALL_PLAIN:
            call->row_fn(tile_run_operand(r, call, 0), tile_run_operand(r, call, 1),
                         tile_run_operand(r, call, 2), tile_run_operand(r, call, 3),
                         r->rows * cols);
            break;
        case CALL_BY_ROW: tile_run_by_row(r, call); break;
        case CALL_NUMBER: tile_run_number(r, call); break;
        case CALL_BIND: {
            const tile_view *v = &r->s->views[call->arg];
            char *at = (char *)r->buffers[v->buffer] + tile_run_offset_of(r, v, c0) * v->size;
            if (call->ahead && r->k->large) fetch_next(r, v, at);
            r->value[call->value[0]] = at;
            break;
        }
        case CALL_LOAD: tile_run_load(r, call, r->rows, cols, c0); break;
        case CALL_STORE: {
            const tile_view *v = &r->s->views[call->arg];
            tile_store(v, call->store, r->buffers[v->buffer], r->task->outer, r->r0, r->rows, c0,
                       cols, tile_run_operand(r, call, 1), call->size[1]);
            break;
        }
        case CALL_IOTA: case CALL_DRAW: tile_run_positions(r, call, r->rows, cols, c0); break;
        case CALL_SPLAT:
            call->splat(tile_run_operand(r, call, 0), tile_run_operand(r, call, 1), r->rows, cols);
            break;
        case CALL_SPLAT_ONE:
            call->splat(tile_run_operand(r, call, 0), tile_run_operand(r, call, 1), 1,
                        r->rows * cols);
            break;
        case CALL_REDUCE:
            call->reduction(tile_run_operand(r, call, 0), tile_run_operand(r, call, 1), r->rows,
                            r->cols);
            break;
        case CALL_REDUCE_CHUNK: tile_merge_chunk(r, call); break;
        case CALL_REDUCE_DONE: tile_finish_chunks(r, call); break;
        case CALL_GATHER: tile_run_gather(r, call); break;
        }
    }
}

/* ---- tiles of a task ------------------------------------------------------------------------- */

/* Returns the end of the chunk of columns that begins at c0, which is at most the end of its run
 * (plan.h) if runs are longer than chunks. */
static int64_t tile_run_chunk_end(const tile_segment *s, int64_t c0, int64_t c1)
{
    int64_t end = WB__MIN(c0 + s->tile_cols, c1);
    if (s->run >= s->tile_cols && s->run < s->n[COLS])
        end = WB__MIN(end, (c0 / s->run + 1) * s->run);
    return end;
}

static void set_tile(tile_run *r, int64_t r0, int64_t rows, int64_t c0, int64_t cols)
{
    r->r0 = r0, r->rows = rows, r->c0 = c0, r->cols = cols;
}

/* Sets the addresses of the values kept for whole rows, for the current chunk. */
static void set_wides(tile_run *r)
{
    const tile_program *p = r->p;
    const int64_t at = r->c0 * r->s->tile_rows;
    for (int v = 0; v < p->n_values; v++)
        if (p->wide[v]) r->value[v] = r->scratch + p->at[v] + at * p->wide[v];
}

/* Runs a task whose rows are cut into chunks: each phase runs over all chunks of a tile's rows. */
static void run_chunks(tile_run *r)
{
    const tile_program *p = r->p;
    const tile_segment *s = r->s;
    const tile_task *t = r->task;
    int64_t visits = 0, blocks = 0;
    for (int64_t r0 = t->r0; r0 < t->r1; r0 += s->tile_rows) {
        const int64_t rows = WB__MIN(s->tile_rows, t->r1 - r0);
        set_tile(r, r0, rows, 0, 1);
        tile_start_reductions(r, REDUCE_COLUMNS);
        for (int i = 0; i < p->n_phases; i++) {
            const tile_phase *phase = &p->phases[i];
            set_tile(r, r0, rows, 0, 1);
            run_calls(r, phase->rows_from, phase->from);
            if (phase->from == phase->to) continue;
            for (int64_t c0 = t->c0, c1; c0 < t->c1; c0 = c1) {
                c1 = tile_run_chunk_end(s, c0, t->c1);
                set_tile(r, r0, rows, c0, c1 - c0);
                if (p->wides) set_wides(r);
                run_calls(r, phase->from, phase->to);
                if (p->n_reductions && ++visits % FLUSH_EVERY == 0)
                    tile_flush_reductions(r, REDUCE_ALL);
            }
        }
        set_tile(r, r0, rows, 0, 1);
        run_calls(r, p->last_from, p->n_calls);
        if (p->n_reductions && ++blocks % FLUSH_EVERY == 0) tile_flush_reductions(r, REDUCE_ROWS);
    }
    if (!p->n_reductions) return;
    const int64_t rows = WB__MIN(s->tile_rows, t->r1 - t->r0);
    for (int64_t c0 = t->c0, c1; c0 < t->c1; c0 = c1) {
        c1 = tile_run_chunk_end(s, c0, t->c1);
        tile_finish_reductions(r, REDUCE_ROWS, rows, c0, c1);
    }
}

static void tile_run_rows(tile_run *r, int64_t c0, int64_t c1)
{
    const tile_program *p = r->p;
    const tile_task *t = r->task;
    int64_t visits = 0;
    for (int64_t r0 = t->r0; r0 < t->r1; r0 += r->s->tile_rows) {
        set_tile(r, r0, WB__MIN(r->s->tile_rows, t->r1 - r0), c0, c1 - c0);
        run_calls(r, p->hoist_to, p->last_from);
        if (p->n_reductions && ++visits % FLUSH_EVERY == 0) {
            tile_flush_reductions(r, REDUCE_ALL);
            tile_flush_reductions(r, REDUCE_ROWS);
        }
    }
}

/* Runs the tiles of a task, in sequence. */
static void tile_run_task(tile_run *r)
{
    const tile_program *p = r->p;
    const tile_segment *s = r->s;
    const tile_task *t = r->task;
    r->value = (void **)r->scratch;
    for (int v = 0; v < p->n_values; v++) r->value[v] = p->at[v] < 0 ? NULL : r->scratch + p->at[v];
    set_tile(r, t->r0, 1, t->c0, 1);
    run_calls(r, 0, p->once_to);
    if (p->n_reductions) tile_start_reductions(r, REDUCE_ALL);
    const int64_t rows = WB__MIN(s->tile_rows, t->r1 - t->r0);
    if (p->chunked) {
        if (p->n_reductions) tile_start_reductions(r, REDUCE_ROWS);
        run_chunks(r);
    } else if (s->by_columns) {
        for (int64_t c0 = t->c0, c1; c0 < t->c1; c0 = c1) {
            c1 = tile_run_chunk_end(s, c0, t->c1);
            set_tile(r, t->r0, rows, c0, c1 - c0);
            if (rows) run_calls(r, p->once_to, p->hoist_to);
            if (p->n_reductions) tile_start_reductions(r, REDUCE_ROWS);
            tile_run_rows(r, c0, c1);
            if (p->n_reductions) tile_finish_reductions(r, REDUCE_ROWS, rows, c0, c1);
        }
    } else {
        int64_t visits = 0;
        for (int64_t r0 = t->r0; r0 < t->r1; r0 += s->tile_rows)
            for (int64_t c0 = t->c0, c1; c0 < t->c1; c0 = c1) {
                c1 = tile_run_chunk_end(s, c0, t->c1);
                set_tile(r, r0, WB__MIN(s->tile_rows, t->r1 - r0), c0, c1 - c0);
                run_calls(r, p->hoist_to, p->last_from);
                if (p->n_reductions && ++visits % FLUSH_EVERY == 0)
                    tile_flush_reductions(r, REDUCE_ALL);
            }
    }
    if (p->n_reductions) tile_finish_reductions(r, REDUCE_ALL, rows, 0, 0);
}

/* ---- tasks of a kernel ----------------------------------------------------------------------- */

typedef struct {
    const tile_kernel *k;
    void *const *buffers;
    const wb__number *numbers;
    char *workspace;
    atomic_int next;                    /* the next task that a worker takes */
} tile_run_launch;

static void tile_run_work(tile_run_launch *l, char *scratch)
{
    const tile_kernel *k = l->k;
    for (;;) {
        const int i = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed);
        if (i >= k->n_tasks) return;
        const tile_task *t = &k->tasks[i];
        const tile_segment *s = &k->segments[t->segment];
        tile_run r = {.k = k, .s = s, .p = &k->programs[s->program], .task = t,
                      .buffers = l->buffers, .numbers = l->numbers, .scratch = scratch,
                      .workspace = l->workspace};
        tile_run_task(&r);
    }
}

static void work_on_stack(tile_run_launch *l)
{
    _Alignas(64) char scratch[STACK_SCRATCH];
    tile_run_work(l, scratch);
}

static void tile_run_worker(void *ctx, int64_t i)
{
    tile_run_launch *l = ctx;
    if (l->k->scratch_from < 0) work_on_stack(l);
    else tile_run_work(l, l->workspace + l->k->scratch_from + i * l->k->scratch);
}

int tile_launch(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                const wb__number *numbers)
{
    const tile_kernel *k = (const tile_kernel *)kernel;
    tile_run_launch l = {.k = k, .buffers = buffers, .numbers = numbers, .workspace = workspace};
    if (k->workers == 1) tile_run_worker(&l, 0);
    else wb__parallel(k->workers, tile_run_worker, &l);
    if (k->reductions) tile_combine_partials(k, buffers, workspace);
    return 0;
}
