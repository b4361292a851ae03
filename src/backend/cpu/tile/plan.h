/* The data structures of tile programs: spaces, views, calls and tasks.  Private to this folder. */
#ifndef WB__CPU_TILE_PLAN_H
#define WB__CPU_TILE_PLAN_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/tile/tile.h"

/* ---- spaces (space.c) ------------------------------------------------------------------- */

enum { OUTER, ROWS, COLS, GROUPS };             /* the three loops */
enum { MAX_STEPS = WB_MAX_DIMS + GROUPS };

/* A view along the three loops of its segment.  Each loop has one or more dimensions; they are
 * merged where the view's strides allow it.  If the view has no buffer (-1), the offset and strides
 * give a number instead of an address: the value of an iota, or the element index of a draw. */
typedef struct {
    int buffer, size;                           /* size: bytes of an element */
    wb_dtype dtype;
    int64_t offset;
    /* of each loop: index, in dim and stride, of its first dimension; number of its dimensions */
    int at[GROUPS], n[GROUPS];
    int64_t dim[MAX_STEPS], stride[MAX_STEPS];
    bool varies[GROUPS];                /* whether the view changes along the loop */
} tile_view;

typedef struct {
    int64_t n[GROUPS];                          /* points of each loop */
    /* the number of neighbouring columns (a run) along which every view has one stride */
    int64_t run;
    int64_t tile_rows, tile_cols;               /* most rows and columns of a tile */
    /* program: index in the kernel's programs; splits: number of partial results for each result of
     * REDUCE_ROWS; tasks: number of the segment's tasks */
    int program, splits, tasks;
    bool by_columns;  /* order of a task's tiles: the outer loop is over columns */
    tile_view *views;
    /* per reduction: offset, in the workspace, of its partial results */
    int64_t *partials;
} tile_segment;

/* The properties of a program that constrain its loops: which reductions it has, whether it stores
 * PER_ROW values, and whether an argmax needs the rows or columns in their original order. */
typedef struct {
    bool reduces_columns, stores_rows, reduces_rows, reduces_all, ordered_rows, ordered_cols;
} tile_needs;

/* Sets s->n and s->run, and fills s->views[i] from views[i] for i < count.  A view with buffer -1
 * belongs to an iota or a draw, or is not used. */
void tile_make_space(tile_segment *s, const wb__space *space, const wb__view *const *views,
                     int count, const bool *is_target, tile_needs needs);

/* Returns the offset, in elements, of point i of a loop. */
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

/* The levels of backend.h, and LEVEL_PER_COLUMN: one value per column, the same for all rows. */
typedef enum { LEVEL_ONE, LEVEL_PER_ROW, LEVEL_PER_COLUMN, LEVEL_FULL } tile_level;

/* The dtype that a register holds without conversion. */
static inline wb_dtype tile_dtype(int reg)
{
    static const wb_dtype of[WB__REGS] = {WB_F32, WB_F64, WB_I32, WB_I64};
    return of[reg];
}

/* The kinds of calls; a call is for a whole tile, or (`row`) for its first column: PER_ROW
 * values. */
typedef enum {
    CALL_PLAIN,             /* row_fn on all elements at once */
    CALL_BY_ROW,            /* row_fn row by row, because some operand has one value per row */
    CALL_NUMBER,
    CALL_BIND,              /* the value is in the memory of a buffer, not in the scratch */
    CALL_LOAD, CALL_STORE,
    CALL_IOTA, CALL_DRAW,
    CALL_SPLAT,             /* spreads one value per row over the tile */
    CALL_SPLAT_ONE,         /* spreads one value over the tile */
    CALL_REDUCE,              /* reduces each row; the tile has whole rows */
    CALL_REDUCE_CHUNK,        /* merges a chunk of each row into reduction `arg` */
    CALL_REDUCE_DONE,         /* gets the result of reduction `arg`, one value per row */
    CALL_GATHER             /* merges the tile, element by element, into reduction `arg` */
} tile_call_kind;

/* A call has a result d and up to three operands a, b, c. */
typedef struct {
    uint8_t kind, row, reg, list;           /* reg: wb__reg of the result; list: see plan.c */
    uint8_t size[4];                        /* bytes of an element of d, a, b, c */
    uint8_t level[4];                       /* levels of d, a, b, c: LEVEL_ONE, PER_ROW or FULL */
    int16_t value[4];                       /* indices of the values d, a, b, c; -1: none */
    bool half;   /* CALL_NUMBER: the number is f16 or bf16 */
    bool ahead;  /* CALL_BIND, CALL_LOAD of a large kernel: fetches what the next tile needs */
    int32_t arg;                            /* index of a view, number or reduction */
    int32_t numbers;  /* CALL_DRAW: index, in tile_run.numbers, of the key; the counter is next */
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

/* A reduction has accumulators in the scratch:
 *
 *     REDUCE_ROWS      one per element of a tile; if rows are cut into chunks, one per element of
 *                      the whole rows of a tile
 *     REDUCE_ALL       one per element of a tile
 *     REDUCE_COLUMNS   one per row of a tile; this kind is used only if rows are cut into chunks
 *
 * For sums of f32, tile_flush_reductions adds the accumulators of REDUCE_ROWS and REDUCE_ALL to
 * doubles at intervals, and then clears the accumulators. */
typedef enum { REDUCE_ROWS, REDUCE_ALL, REDUCE_COLUMNS } tile_reduction_kind;
typedef struct {
    /* op: 0 sum, 1 max, 2 min, 3 argmax; reg, out: wb__reg of the operand and of the result */
    uint8_t op, reg, out, kind;
    int32_t view;                       /* index of the view that gets the results */
    /* acc: offset, in the scratch, of the accumulators; more: offset, in the scratch, of the
     * doubles (sums of f32) or of the indices (argmax); length: number of accumulators */
    int64_t acc, more, length;
} tile_reduction;

/* Calls [rows_from, from) run once for the rows of a tile, calls [from, to) once for each chunk of
 * these rows. */
typedef struct { int rows_from, from, to; } tile_phase;

typedef struct {
    int n_values, n_calls, n_phases, n_reductions;      /* numbers of elements of the arrays */
    /* calls [0, once_to) run once per task; calls [once_to, hoist_to) run once for all tiles of a
     * task that have the same columns */
    int once_to, hoist_to;
    /* calls [last_from, n_calls) run after the last chunk of the rows */
    int last_from;
    int n_registers;                /* registers of the scratch in use */
    /* chunked: rows are cut into chunks of tile_cols columns; wides: wide[v] is not 0 for some v */
    bool chunked, wides;
    int64_t scratch;                /* in bytes */
    tile_call *calls;
    int64_t *at;                    /* at[v]: offset of value v in the scratch; -1: in a buffer */
    /* wide[v]: bytes of an element of value v if all chunks of a row are kept, else 0 */
    uint8_t *wide;
    tile_phase *phases;
    tile_reduction *reductions;
} tile_program;

/* Compiles a fused kernel to *p.  Returns 0, or an error code with *p empty.  register_bytes: size
 * of a register, which holds a number for each element of a tile. */
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
    bool large;                     /* the operands are too large for a core's caches */
    bool reductions;                /* partial results are combined after all tasks */
    int64_t scratch;                /* bytes per worker */
    int64_t scratch_from;           /* workspace offset of the workers' scratch; -1: on the stack */
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
    void **value;                /* address of each value, in the scratch or in a buffer */
    int64_t rows, cols, r0, c0;  /* rows r0 to r0 + rows and columns c0 to c0 + cols of the tile */
    bool flushed[3];  /* per tile_reduction_kind: whether tile_flush_reductions was called */
} tile_run;

/* reductions (gather.c) */
void tile_start_reductions(tile_run *r, tile_reduction_kind kind);
void tile_flush_reductions(tile_run *r, tile_reduction_kind kind);
void tile_finish_reductions(const tile_run *r, tile_reduction_kind kind, int64_t rows, int64_t c0,
                       int64_t c1);
void tile_combine_partials(const tile_kernel *k, void *const *buffers, char *workspace);
void tile_merge_chunk(const tile_run *r, const tile_call *call);
void tile_finish_chunks(const tile_run *r, const tile_call *call);
void tile_store(const tile_view *v, wb__store_fn *store, void *base, int64_t outer, int64_t r0,
                int64_t rows, int64_t c0, int64_t cols, const void *from, int size);

int tile_launch(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                const wb__number *numbers);

#endif
