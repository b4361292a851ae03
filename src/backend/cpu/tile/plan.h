/* What preparing a tile program makes and running it reads: spaces, views, calls, tasks.  Private
 * to tile_*.c. */
#ifndef WB__CPU_TILE_PLAN_H
#define WB__CPU_TILE_PLAN_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/tile/tile.h"

/* ---- spaces (space.c) ------------------------------------------------------------------- */

enum { OUTER, ROWS, COLS, GROUPS };             /* the three loops */
enum { MOST_STEPS = WB_MAX_DIMS + GROUPS };

/* A view along the loops of its segment: each loop one or more dimensions, collapsed as far as this
 * view allows.  Views of no buffer (-1) are numbers that grow with the place: iota, elements of a
 * draw. */
typedef struct {
    int buffer, size;                           /* bytes of an element */
    wb_dtype dtype;
    int64_t offset;
    /* where the loop's dimensions stand in the two lists, and how many */
    int at[GROUPS], n[GROUPS];
    int64_t dim[MOST_STEPS], stride[MOST_STEPS];
    bool varies[GROUPS];
} tile_view;

typedef struct {
    int64_t n[GROUPS];                          /* points of each loop */
    /* columns from one break of some view to the next */
    int64_t run;
    int64_t tile_rows, tile_cols;
    int program, splits, tasks;                 /* splits: partial results of each fold over rows */
    bool by_columns;                            /* tiles of a task: columns outside, rows inside */
    tile_view *views;
    /* of each fold: where its partial results are in the workspace */
    int64_t *parts;
} tile_segment;

/* What kinds of loop a program wants. */
typedef struct {
    bool reduces_columns, stores_rows, reduces_rows, reduces_all, ordered_rows, ordered_cols;
} tile_needs;

/* Fills n, run and views; views[i] for i < count are given, of buffer -1 the later ones. */
void tile_make_space(tile_segment *s, const wb__space *space, const wb__view *const *views,
                     int count, const bool *is_target, tile_needs needs);

/* Element offset of point i of a loop. */
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

/* COL: the same for all rows */
typedef enum { LEVEL_ONE, LEVEL_ROW, LEVEL_COL, LEVEL_FULL } tile_level;

/* The dtype that a register holds as it is. */
static inline wb_dtype tile_dtype(int reg)
{
    static const wb_dtype of[WB__REGS] = {WB_F32, WB_F64, WB_I32, WB_I64};
    return of[reg];
}

/* A call works on the tile, or (`row`) on its first column alone: where ROW values stand. */
typedef enum {
    CALL_PLAIN,             /* fn over all elements */
    CALL_BY_ROW,            /* fn row by row: some operand is one number a row */
    CALL_NUMBER,
    CALL_BIND,              /* the register is the memory itself, read or written */
    CALL_LOAD, CALL_STORE,
    CALL_IOTA, CALL_DRAW,
    CALL_SPLAT,             /* one number a row, to the tile */
    CALL_SPLAT_ONE,         /* one number, to all */
    CALL_REDUCE,              /* whole rows are in the tile */
    CALL_REDUCE_PART,         /* a piece of the rows, into fold `arg` */
    CALL_REDUCE_DONE,         /* fold `arg`, to a value of level ROW */
    CALL_GATHER             /* into fold `arg` */
} tile_call_kind;

typedef struct {
    uint8_t kind, row, reg, list;           /* reg: of the result; list: used while compiling */
    uint8_t size[4];                        /* bytes of an element of d, a, b, c */
    uint8_t level[4];                       /* of d, a, b, c: LEVEL_ONE, ROW or FULL */
    int16_t value[4];                       /* d, a, b, c; -1 */
    int32_t arg;                            /* view, number, fold */
    int32_t numbers;                        /* CALL_DRAW: key and counter */
    union {
        wb__row_fn *row_fn;
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

/* A fold over rows or over all: accumulators are laid out like the tile, and for sums of f32
 * doubles take them in now and then.  A fold along columns in pieces: for each row of the tile a
 * result so far, in 8 bytes. */
typedef enum { REDUCE_ROWS, REDUCE_ALL, REDUCE_COLUMNS } tile_reduction_kind;
typedef struct {
    /* op: 0 sum, 1 max, 2 min, 3 argmax; reg of what is folded, of the result */
    uint8_t op, reg, out, kind;
    int32_t view;
    /* in the scratch: accumulators; doubles, or places of argmax; elements */
    int64_t acc, more, length;
} tile_reduction;

/* calls: once for the rows, then for each piece of them */
typedef struct { int rows_from, from, to; } tile_phase;

typedef struct {
    int n_values, n_calls, n_phases, n_reductions;
    /* calls [0, once_to): once a task; [once_to, hoist_to): once a block of columns */
    int once_to, hoist_to;
    /* calls [last_from, n_calls): when all pieces of the rows are done */
    int last_from;
    int slots;
    bool pieces, wides;                  /* rows are cut into pieces of tile_cols columns */
    int64_t scratch;                /* bytes */
    tile_call *calls;
    int64_t *at;                    /* of each value: where in the scratch; -1: bound to memory */
    /* bytes of an element of values that keep whole rows, piece after piece; else 0 */
    uint8_t *wide;
    tile_phase *phases;
    tile_reduction *reductions;
} tile_program;

/* 0, or an error.  `slot`: bytes of a tile's register. */
int tile_compile(tile_program *p, const tile_segment *s, const wb__fused *f, const wb__view *views,
                 const int *pseudo, const wb__tile_table *t, bool pieces, int64_t slot);
/* Where each value stands in the scratch (register.c). */
int tile_place_values(tile_program *p, const tile_segment *s, int64_t slot);
void tile_program_free(tile_program *p);
bool tile_program_same(const tile_program *a, const tile_program *b);

/* ---- kernels (task.c, run.c) ------------------------------------------------------- */

typedef struct { int32_t segment, split, index; int64_t outer, r0, r1, c0, c1; } tile_task;

/* What a fold has so far: floats as double, integers as int64_t; the place is argmax's, -1 where
 * nothing came yet. */
typedef union { double f; int64_t i; } tile_number;

typedef struct {
    wb__cpu_kernel head;
    int n_segments, n_programs, n_tasks, workers;
    tile_segment *segments;
    tile_program *programs;
    tile_task *tasks;
    const wb__tile_table *table;
    bool reductions;                     /* partial results are put together after all tasks */
    int64_t scratch;                /* bytes a worker */
    int64_t scratch_from;           /* where scratches begin in the workspace; -1: on the stack */
    char impl[64];
} tile_kernel;

enum { STACK_SCRATCH = 64 * 1024, FLUSH_EVERY = 32 };

/* A task while it runs. */
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
    bool flushed[3];                            /* doubles hold something: of each kind of fold */
} tile_run;

/* folds (gather.c) */
void tile_start_reductions(tile_run *r, tile_reduction_kind kind);
void tile_flush_reductions(tile_run *r, tile_reduction_kind kind);
void tile_finish_reductions(const tile_run *r, tile_reduction_kind kind, int64_t rows, int64_t c0,
                       int64_t c1);
void tile_combine(const tile_kernel *k, void *const *buffers, char *workspace);
void tile_reduction_part(const tile_run *r, const tile_call *call);
void tile_reduction_done(const tile_run *r, const tile_call *call);
void tile_store(const tile_view *v, wb__store_fn *store, void *base, int64_t outer, int64_t r0,
                int64_t rows, int64_t c0, int64_t cols, const void *from, int size);

int tile_launch(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                const wb__number *numbers);

#endif
