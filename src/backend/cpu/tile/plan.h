/* The data that preparing a tile program creates and running it reads: spaces, views, calls, tasks.
 * Private to this folder. */
#ifndef WB__CPU_TILE_PLAN_H
#define WB__CPU_TILE_PLAN_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/tile/tile.h"

/* ---- spaces (space.c) ------------------------------------------------------------------- */

enum { OUTER, ROWS, COLS, GROUPS };             /* the three loops */
enum { MAX_STEPS = WB_MAX_DIMS + GROUPS };

/* A view along the loops of its segment; each loop has one or more dimensions, merged where the
 * view's strides allow it.  A view without a buffer (-1) is a number that grows with the position:
 * an iota, or the element index of a draw. */
typedef struct {
    int buffer, size;                           /* bytes of an element */
    wb_dtype dtype;
    int64_t offset;
    /* per loop: index of its first dimension in the two lists, and their count */
    int at[GROUPS], n[GROUPS];
    int64_t dim[MAX_STEPS], stride[MAX_STEPS];
    bool varies[GROUPS];
} tile_view;

typedef struct {
    int64_t n[GROUPS];                          /* points of each loop */
    /* the number of neighbouring columns (a run) along which every view has one stride */
    int64_t run;
    int64_t tile_rows, tile_cols;
    int program, splits, tasks;  /* splits: partial results of each reduction over rows */
    bool by_columns;  /* order of a task's tiles: the outer loop is over columns */
    tile_view *views;
    /* per reduction: the workspace offset of its partial results */
    int64_t *partials;
} tile_segment;

/* The properties of a program that constrain its loops. */
typedef struct {
    bool reduces_columns, stores_rows, reduces_rows, reduces_all, ordered_rows, ordered_cols;
} tile_needs;

/* Sets s->n and s->run, and fills s->views[i] from views[i] for i < count.  A view with buffer -1
 * belongs to an iota or a draw, or is not used. */
void tile_make_space(tile_segment *s, const wb__space *space, const wb__view *const *views,
                     int count, const bool *is_target, tile_needs needs);

/* The element offset of point i of a loop. */
static inline int64_t tile_offset(const tile_view *v, int group, int64_t i)
{
    const int at = v->at[group], n = v->n[group];
    if (wb__likely(n == 1)) return i * v->stride[at];
    int64_t sum = 0;
    for (int k = at + n - 1; k > at; k--) {
        sum += i % v->dim[k] * v->stride[k];
        i /= v->dim[k];
    }
    return sum + i * v->stride[at];
}

/* ---- programs (plan.c) ------------------------------------------------------------------ */

/* LEVEL_PER_COLUMN: one value per column, the same for all rows. */
typedef enum { LEVEL_ONE, LEVEL_PER_ROW, LEVEL_PER_COLUMN, LEVEL_FULL } tile_level;

/* The dtype that a register holds without conversion. */
static inline wb_dtype tile_dtype(int reg)
{
    static const wb_dtype of[WB__REGS] = {WB_F32, WB_F64, WB_I32, WB_I64};
    return of[reg];
}

/* A call works on the whole tile, or (if `row`) only on its first column, which holds PER_ROW
 * values. */
typedef enum {
    CALL_PLAIN,             /* fn on all elements at once */
    CALL_BY_ROW,            /* fn row by row: some operand has one value per row */
    CALL_NUMBER,
    CALL_BIND,              /* the register is memory of a buffer, read or written in place */
    CALL_LOAD, CALL_STORE,
    CALL_IOTA, CALL_DRAW,
    CALL_SPLAT,             /* spreads one value per row over the tile */
    CALL_SPLAT_ONE,         /* spreads one value over the tile */
    CALL_REDUCE,              /* the tile has whole rows */
    CALL_REDUCE_CHUNK,        /* a chunk of the rows, into reduction `arg` */
    CALL_REDUCE_DONE,         /* result of reduction `arg`, a value per row */
    CALL_GATHER             /* into reduction `arg` */
} tile_call_kind;

typedef struct {
    uint8_t kind, row, reg, list;  /* reg: of the result; list: used only by the compiler */
    uint8_t size[4];                        /* bytes of an element of d, a, b, c */
    uint8_t level[4];                       /* levels of d, a, b, c: LEVEL_ONE, PER_ROW or FULL */
    int16_t value[4];                       /* d, a, b, c; -1: none */
    int32_t arg;                            /* index of a view, number or reduction */
    int32_t numbers;                        /* CALL_DRAW: the key; the counter is the next number */
    union {
        wb__elementwise_fn *row_fn;
        wb__load_fn *load;
        wb__store_fn *store;
        wb__iota_fn *iota;
        wb__draw_fn *draw;
        wb__splat_fn *splat;
        wb__reduction_fn *reduction;
        wb__gather_fn *gather;
        void (*any)(void);
    };
} tile_call;

/* A reduction over rows or over everything has accumulators with the shape of the tile; over rows
 * that are cut into chunks, with the shape of all chunks of the tile's rows.  Sums of f32 are
 * flushed to doubles at intervals.  A reduction along columns in chunks has, for each row of the
 * tile, a partial result of 8 bytes. */
typedef enum { REDUCE_ROWS, REDUCE_ALL, REDUCE_COLUMNS } tile_reduction_kind;
typedef struct {
    /* op: 0 sum, 1 max, 2 min, 3 argmax; reg: of the operand; out: of the result */
    uint8_t op, reg, out, kind;
    int32_t view;
    /* acc: accumulators; more: doubles, or indices of argmax (both offsets in the scratch); length:
     * elements */
    int64_t acc, more, length;
} tile_reduction;

/* Calls [rows_from, from) run once for the rows, [from, to) for each chunk of their columns. */
typedef struct { int rows_from, from, to; } tile_phase;

typedef struct {
    int n_values, n_calls, n_phases, n_reductions;
    /* calls [0, once_to): once per task; [once_to, hoist_to): once per block of columns */
    int once_to, hoist_to;
    /* calls [last_from, n_calls): after the last chunk of the rows */
    int last_from;
    int n_registers;
    /* chunked: rows are cut into chunks of tile_cols columns; wides: some value has `wide` set */
    bool chunked, wides;
    int64_t scratch;                /* in bytes */
    tile_call *calls;
    int64_t *at;                    /* per value: offset in the scratch; -1: bound to memory */
    /* per value: bytes of an element if it is kept for whole rows, chunk after chunk; else 0 */
    uint8_t *wide;
    tile_phase *phases;
    tile_reduction *reductions;
} tile_program;

/* Compiles a program into *p.  Returns 0, or an error code and an empty *p.  `register_bytes`: the
 * size of a register, which holds one value of a tile. */
int tile_compile(tile_program *p, const tile_segment *s, const wb__fused *f, const wb__view *views,
                 const int *pseudo, const wb__tile_table *t, bool chunked, int64_t register_bytes);
/* Assigns each value an offset in the scratch (register.c). */
int tile_allocate_values(tile_program *p, const tile_segment *s, int64_t register_bytes);
void tile_program_free(tile_program *p);
bool tile_program_same(const tile_program *a, const tile_program *b);

/* ---- kernels (task.c, run.c) ------------------------------------------------------- */

typedef struct { int32_t segment, split, index; int64_t outer, r0, r1, c0, c1; } tile_task;

/* A partial result of a reduction: floats as double, integers as int64_t.  The index of argmax is
 * separate; -1: no element yet. */
typedef union { double f; int64_t i; } tile_number;

typedef struct {
    wb__cpu_kernel head;
    int n_segments, n_programs, n_tasks, workers;
    tile_segment *segments;
    tile_program *programs;
    tile_task *tasks;
    const wb__tile_table *table;
    bool reductions;                     /* partial results are combined after all tasks */
    int64_t scratch;                /* bytes per worker */
    int64_t scratch_from;           /* workspace offset of the scratches; -1: on the stack */
    char impl[64];
} tile_kernel;

enum { STACK_SCRATCH = 64 * 1024, FLUSH_EVERY = 32 };

/* The state of a running task. */
typedef struct {
    const tile_kernel *k;
    const tile_segment *s;
    const tile_program *p;
    const tile_task *task;
    void *const *buffers;
    const wb__number *numbers;
    char *scratch, *workspace;
    void **value;
    int64_t rows, cols, r0, c0;                 /* the tile */
    bool flushed[3];  /* per kind of reduction: whether the doubles contain sums */
} tile_run;

/* reductions (gather.c) */
void tile_start_reductions(tile_run *r, tile_reduction_kind kind);
void tile_flush_reductions(tile_run *r, tile_reduction_kind kind);
void tile_finish_reductions(const tile_run *r, tile_reduction_kind kind, int64_t rows, int64_t c0,
                       int64_t c1);
void tile_combine(const tile_kernel *k, void *const *buffers, char *workspace);
void tile_reduction_chunk(const tile_run *r, const tile_call *call);
void tile_reduction_done(const tile_run *r, const tile_call *call);
void tile_store(const tile_view *v, wb__store_fn *store, void *base, int64_t outer, int64_t r0,
                int64_t rows, int64_t c0, int64_t cols, const void *from, int size);

int tile_launch(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                const wb__number *numbers);

#endif
