/* Enums and tables generated from ops.def. */
#ifndef WB__OPS_H
#define WB__OPS_H

#include "base/base.h"

typedef enum {
    WB__OP_NONE,
#define WB_UNARY(name, accepts, expression, gradient) WB__OP_##name,
#define WB_BINARY(name, accepts, expression, gradient_x, gradient_y) WB__OP_##name,
#define WB_COMPARE(name, accepts, expression) WB__OP_##name,
#define WB_TEST(name, accepts, expression) WB__OP_##name,
#define WB_LIBRARY(name, step, variant, composed, gradient) WB__OP_##name,
#define WB_COMPOSITE(name, composed, gradient) WB__OP_##name,
#define WB_OTHER(name, class, gradient) WB__OP_##name,
#include "ops/ops.def"
    WB__OP_COUNT
} wb__op;

typedef enum {
    WB__UNARY, WB__BINARY, WB__COMPARE, WB__TEST,   /* elementwise: the WB_UNARY ... WB_TEST rows
                                                       of ops.def */
    WB__ELEMENTWISE,                                /* elementwise, other forms: where, cast */
    WB__SOURCE, WB__MOVE, WB__REDUCE, WB__LIBRARY, WB__COMPOSITE, WB__STATE
} wb__op_class;

enum { WB__FLOATS = 1, WB__BOOLS = 2, WB__INTEGERS = 4, WB__NUMBERS = 5, WB__ANY = 7 };

/* ---- steps that a backend performs ----------------------------------------------------------- */

typedef enum {
    WB__STEP_FUSED,         /* a program of elementwise operations and reductions (backend.h) */
#define WB_STEP(NAME, name, cpu, gpu) WB__STEP_##NAME,
#include "ops/ops.def"
    WB__STEP_COUNT
} wb__step_kind;
extern const char *const wb__step_names[WB__STEP_COUNT];

/* Attention over [N, H, T, D]: s = scale · q·kᵀ, p = softmax(s), o = p·v.  If causal, s is -inf
 * above the diagonal through the last query and the last key.  The views of wb__step are:
 *   FORWARD    q, k, v, o, lse                    lse [N, H, T, 1] f32 = log sum exp(s)
 *   GRAD       q, k, v, o, lse, do, dq, dk, dv    dq is the gradient of q, and so on
 * CACHED is attention of one query in each head, T = 1, to the keys and values of a cache at the
 * positions before `position`, i32 [1], and to those of the position itself, k_now and v_now:
 *   CACHED     q, k, v, o, k_now, v_now, position   k [N, K, L, D], k_now [N, K, 1, D]; v alike
 * A head of k and v serves H / K consecutive heads of q.  If position >= L, k_now and v_now are not
 * used; if position < 0, o is 0. */
typedef enum { WB__ATTENTION_FORWARD, WB__ATTENTION_GRAD, WB__ATTENTION_CACHED } wb__attention_kind;
typedef struct {
    double scale;
    bool causal;
} wb__attention_attr;

/* The most inner indices of a product of i8: 2^16 · 255 · 128 is below 2^31. */
enum { WB__INT8_MOST = 1 << 16 };

typedef enum { WB__CONV_FORWARD, WB__CONV_GRAD_INPUT, WB__CONV_GRAD_WEIGHT } wb__conv_kind;

typedef enum {
    WB__POOL_MAX,           /* y = max of x over the window       views: x, y */
    WB__POOL_MAX_GRAD,      /* dx, the gradient of MAX            views: x, dy, dx */
    WB__POOL_MAX_GATHER,    /* y = v at the first maximum of x    views: x, v, y */
    WB__POOL_MEAN,          /* y = mean of x and padding zeros    views: x, y */
    WB__POOL_MEAN_GRAD      /* dx, the gradient of MEAN           views: dy, dx */
} wb__pool_kind;

/* How rows with one index are combined (SCATTER_ADD).  MAX, MIN: NaN wins.  SET: the last wins. */
typedef enum {
    WB__ROWS_ADD, WB__ROWS_MUL, WB__ROWS_MAX, WB__ROWS_MIN, WB__ROWS_SET
} wb__rows_kind;

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    const char *expression;  /* the row's expression in the kernel dialect (ops.def); NULL: none */
    wb__op_class class;
    int accepts;                    /* WB__FLOATS ... of the dtypes that the operands may have */
    wb__step_kind step;             /* the step of a LIBRARY row; WB__STEP_FUSED for other rows */
    int variant;                    /* the variant of `step`, an enum of this file; else 0 */
} wb__op_info;

extern const wb__op_info wb__ops[WB__OP_COUNT];

static inline bool wb__is_elementwise(wb__op op) { return wb__ops[op].class <= WB__ELEMENTWISE; }
_Static_assert(WB__UNARY < WB__ELEMENTWISE && WB__BINARY < WB__ELEMENTWISE &&
               WB__COMPARE < WB__ELEMENTWISE && WB__TEST < WB__ELEMENTWISE,
               "elementwise classes come first");

static inline bool wb__is_step(wb__op op, wb__step_kind kind) { return wb__ops[op].step == kind; }

/* A number of an operation, such as the value of a literal (f) or the key of random numbers (u). */
typedef union { double f; uint64_t u; } wb__number;

/* Attributes of convolutions and pools, stored as int64_t attributes in this order.  `size` is the
 * size of the result's last two axes. */
typedef struct {
    int64_t stride[2], dilation[2], pad[4], groups, size[2];
} wb__conv_attr;
typedef struct { int64_t window[2], stride[2], pad[4], size[2]; } wb__pool_attr;

#endif
