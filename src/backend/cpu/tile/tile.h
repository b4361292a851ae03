/* Fused kernels on the CPU: tile programs.
 *
 * A kernel runs over a space of rows and columns in tiles of about a thousand elements, so that its
 * values stay in the L1 cache.  Each instruction is one call of a precompiled function over a tile.
 * Those functions are in rows.h, compiled once for each instruction set and collected in a table.
 * plan.c compiles a fused kernel to lists of calls, task.c cuts its space into tasks, run.c runs
 * them.
 *
 * Outside this folder, isa.h and dnnl.c include this file, for the epilogues of products and
 * convolutions, and so do tests. */
#ifndef WB__CPU_TILE_H
#define WB__CPU_TILE_H

#include "backend/backend.h"

/* ---- compiled for each instruction set ------------------------------------------------------- */

/* WB__TILE: about the number of elements of a tile; task.c adapts it to each program.  WB__REGS:
 * number of register kinds (f32, f64, i32, i64).  WB__REDUCTIONS: number of reductions (sum, max,
 * min, argmax). */
enum { WB__TILE = 1024, WB__REGS = 4, WB__REDUCTIONS = 4 };

/* d[i] = f(a[i], b[i], c[i]).  d may be a, b or c if their elements have the same size. */
typedef void wb__elementwise_fn(void *d, const void *a, const void *b, const void *c, int64_t n);
/* Copy rows between a register, in which they are `pitch` elements apart, and memory, in which they
 * have any strides. */
typedef void wb__load_fn(void *d, int64_t pitch, const void *p, int64_t rows, int64_t cols,
                         int64_t row_stride, int64_t col_stride);
typedef void wb__store_fn(const void *s, int64_t pitch, void *p, int64_t rows, int64_t cols,
                          int64_t row_stride, int64_t col_stride);
typedef void wb__iota_fn(void *d, int64_t n, int64_t first, int64_t step);
typedef void wb__draw_fn(void *d, int64_t n, uint64_t key, uint64_t counter, int64_t first,
                         int64_t step);
/* d[r][c] = s[r] */
typedef void wb__splat_fn(void *d, const void *s, int64_t rows, int64_t cols);
/* d[r] = reduction over c of s[r][c] */
typedef void wb__reduction_fn(void *d, const void *s, int64_t rows, int64_t cols);
/* Combines v[i] with the accumulator acc[i].  argmax: at[i] becomes `now` if v[i] wins. */
typedef void wb__gather_fn(void *acc, int64_t *at, const void *v, int64_t n, int64_t now);

/* The operands of a function, in order: V is a vector, S is one number for all elements.  `where`
 * has the forms VVV (WB__VVV), VSV, VVS and VSS. */
enum { WB__VVV, WB__VSV, WB__SVV, WB__SHAPES, WB__WHERE_VSV = WB__VSV, WB__WHERE_VVS = WB__SVV,
       WB__WHERE_VSS = WB__SHAPES };

/* Two operations in one function, for f32: w = first(a, b), d = second(w, c), both rounded.  The
 * operation RSUB is c - w.  Bit 0 of the form: b is one number for all elements; bit 1: c is. */
enum { WB__PAIR_ADD, WB__PAIR_SUB, WB__PAIR_MUL, WB__PAIR_FIRST, WB__PAIR_RSUB = WB__PAIR_FIRST,
       WB__PAIR_SECOND, WB__PAIR_FORMS = 4 };

typedef struct {
    const char *isa;
    /* row[op][kind][shape], with the register kind of the operands; NULL: not supported */
    wb__elementwise_fn *row[WB__OP_COUNT][WB__REGS][WB__SHAPES];
    wb__elementwise_fn *far[2];  /* sin, cos of f32, for arguments of any magnitude */
    wb__elementwise_fn *where_ss[WB__REGS];                 /* both values are scalars */
    wb__elementwise_fn *pair[WB__PAIR_FIRST][WB__PAIR_SECOND][WB__PAIR_FORMS];
    /* cast[from][dtype]: from the register kind `from` to the kind that load[dtype] loads into */
    wb__elementwise_fn *cast[WB__REGS][WB_DTYPE_COUNT];
    wb__load_fn *load[WB_DTYPE_COUNT];
    /* store[dtype]: from the register kind that load[dtype] loads into */
    wb__store_fn *store[WB_DTYPE_COUNT];
    wb__iota_fn *iota[WB__REGS];
    wb__draw_fn *uniform[2], *gaussian[2];                  /* F32, F64 */
    wb__splat_fn *splat[WB__REGS];
    wb__reduction_fn *reduction[WB__REDUCTIONS][WB__REGS];  /* argmax: the index, as int32_t */
    /* acc has the register's type, except that sums of integers have int64_t */
    wb__gather_fn *gather[WB__REDUCTIONS][WB__REGS];
    void (*flush)(double *to, float *acc, int64_t n);       /* to += acc, acc = 0 */
} wb__tile_table;

extern const wb__tile_table wb__tile_portable;
#ifdef WB_HAVE_X86_ISA
extern const wb__tile_table wb__tile_avx2, wb__tile_avx512;
#endif

/* Returns the table for the instruction set of wb__isa_here(). */
const wb__tile_table *wb__tile_table_here(void);

/* Returns the function of a unary operation, for arguments of any magnitude. */
static inline wb__elementwise_fn *wb__tile_unary(const wb__tile_table *t, wb__op op, int reg)
{
    if (reg == WB__REG_F32 && op == WB__OP_sin) return t->far[0];
    if (reg == WB__REG_F32 && op == WB__OP_cos) return t->far[1];
    return t->row[op][reg][WB__VVV];
}

static inline int wb__reg_size(int r) { return r == WB__REG_F64 || r == WB__REG_I64 ? 8 : 4; }

#endif
