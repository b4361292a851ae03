/* Random graphs over every operation, compared with a plain interpreter (graph_fuzz.c).
 *
 * graph_fuzz_scalars.c    numbers with bounds of their errors
 * graph_fuzz_gradient.c   and their derivatives
 * graph_fuzz_interpret.c  what each operation should compute, element by element
 * graph_fuzz_products.c   the same for products, convolutions, pools, attention, losses, layers
 * graph_fuzz_draw.c       draws a program; graph_fuzz_operands.c finds operands that fit
 * graph_fuzz_call.c       calls the library for each instruction
 * graph_fuzz_run.c        evaluates a program in one of many ways, and compares
 * graph_fuzz_shrink.c     makes a failing program small; graph_fuzz_print.c prints it as C */
#ifndef GRAPH_FUZZ_H
#define GRAPH_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "weber.h"

/* ---- numbers --------------------------------------------------------------------------------- */

/* One element of a tensor: its value, and how far the library's may be from it.  An error of 0
 * means that the two are equal, infinity that nothing is known.  Integers and bools have `i`; an
 * integer that is not known exactly has an infinite error, a bool an error of 1. */
typedef struct {
    uint8_t op, dtype;
    int32_t a, b, c; /* numbers of operands, or a place in the list of operands */
    union {
        double v;
        int64_t i;
    };
    double error;
} number;

#define FUZZ_UNARY(X)                                                                              \
    X(neg) X(abs) X(sign) X(square) X(sqrt) X(rsqrt) X(reciprocal) X(exp) X(log) X(log1p) X(sin)   \
    X(cos) X(erf) X(floor) X(relu) X(leakyrelu) X(elu) X(selu) X(sigmoid) X(logsigmoid) X(tanh)    \
    X(softplus) X(swish) X(gelu) X(gelu_erf) X(mish) X(hardswish)
#define FUZZ_BINARY(X) X(add) X(sub) X(mul) X(div) X(pow) X(maximum) X(minimum)
#define FUZZ_COMPARE(X) X(eq) X(ne) X(lt) X(le) X(gt) X(ge) X(and) X(or)
#define FUZZ_REDUCE(X) X(sum) X(mean) X(max) X(min) X(variance) X(logsumexp)
#define FUZZ_LOSS(X)                                                                               \
    X(mse) X(mae) X(huber) X(crossentropy) X(logitcrossentropy) X(binarycrossentropy)              \
    X(logitbinarycrossentropy)

#define FUZZ_ENUM(name) U_##name,
enum { FUZZ_UNARY(FUZZ_ENUM) N_UNARY, U_gelu_slope = N_UNARY }; /* the last is gelu's derivative */
#undef FUZZ_ENUM
#define FUZZ_ENUM(name) B_##name,
enum { FUZZ_BINARY(FUZZ_ENUM) N_BINARY };
#undef FUZZ_ENUM
#define FUZZ_ENUM(name) C_##name,
enum { FUZZ_COMPARE(FUZZ_ENUM) N_COMPARE };
#undef FUZZ_ENUM
#define FUZZ_ENUM(name) R_##name,
enum { FUZZ_REDUCE(FUZZ_ENUM) N_REDUCE };
#undef FUZZ_ENUM
#define FUZZ_ENUM(name) L_##name,
enum { FUZZ_LOSS(FUZZ_ENUM) N_LOSS };
#undef FUZZ_ENUM

/* How a number was made: a and b (and c, the condition's branches) are operands; of the last three,
 * a is the place of the operands in their list and b how many there are (of each factor in DOT). */
enum { CONSTANT, UNARY, BINARY, SELECT, CAST, SUM, DOT, EXTREME };

extern bool in_gradient;                /* what is not finite is not known */
const int *num_operands(const number *x);

extern number *numbers;
extern int n_numbers;
extern bool exact_division; /* quotients and roots are rounded correctly (not on GPUs) */
enum { MOST_NUMBERS = 400000 };

bool is_float(wb_dtype t);
double rounded(wb_dtype t, double v);       /* to the nearest number of a floating dtype */
int64_t wrapped(wb_dtype t, int64_t i);     /* into an integer dtype */
double greatest(wb_dtype t);

void num_forget(void);                      /* all numbers */
int num_real(wb_dtype t, double v);
int num_real_within(wb_dtype t, double v, double error);
int num_integer(wb_dtype t, int64_t i, bool known);
int num_unary(int f, wb_dtype t, int x);
int num_binary(int f, wb_dtype t, int x, int y);
int num_compare(int f, int x, int y);       /* gives a bool */
int num_select(int condition, int x, int y);
int num_cast(wb_dtype t, int x);
int num_sum(wb_dtype t, int n, const int *x);
int num_mean(wb_dtype t, int n, const int *x, int64_t count);      /* their sum by a count */
int num_dot(wb_dtype t, int n, const int *x, const int *y);
int num_extreme(wb_dtype t, int n, const int *x, bool least, bool first);
int num_argmax(int n, const int *x);
/* The derivative of `loss` by each of n numbers, as numbers with derivatives of their own.  `last`
 * is the latest number that the library's walk begins with: the loss, or the last one beside it. */
void num_gradient(int loss, int last, int n, const int *by, int *out);

/* ---- programs -------------------------------------------------------------------------------- */

typedef struct {
    wb_dtype dtype;
    int ndim;
    int64_t dims[WB_MAX_DIMS], size;
    int *at;                            /* the number of each element, row-major */
} value;

#define FUZZ_OPS(X)                                                                                \
    X(LEAF) X(VARIABLE) X(FULL) X(ARANGE) X(EYE) X(CAUSAL) X(RAND) X(RANDN) X(UNARY) X(NOT)        \
    X(ISFINITE) X(BINARY) X(BINARY_NUMBER) X(COMPARE) X(COMPARE_NUMBER) X(WHERE) X(CAST) X(STOP)   \
    X(REDUCE) X(ARGMAX) X(ONECOLD) X(CUMSUM) X(RESHAPE) X(PERMUTE) X(EXPAND) X(TRANSPOSE)          \
    X(FLATTEN) X(UNSQUEEZE) X(SQUEEZE) X(SLICE) X(FLIP) X(PAD) X(CONCAT) X(STACK) X(TAKE)          \
    X(ONEHOT) X(MATMUL)                                                                            \
    X(LINEAR) X(CONV) X(MAXPOOL) X(MEANPOOL) X(SOFTMAX) X(LOGSOFTMAX) X(SOFTMAX_OVER)              \
    X(LOGSOFTMAX_OVER) X(NORMALISE) X(ATTENTION) X(DROPOUT) X(LOSS) X(LAYERNORM) X(BATCHNORM)      \
    X(GRADIENT) X(JACOBIAN) X(ASSIGN)
#define FUZZ_ENUM(name) OP_##name,
typedef enum { FUZZ_OPS(FUZZ_ENUM) N_OPS } op_kind;
#undef FUZZ_ENUM

enum { MOST_INSTRUCTIONS = 64, MOST_OPERANDS = 6, MOST_PARAMETERS = 12, MOST_WANTED = 8 };

typedef union { double v; int64_t i; } element;

/* Instruction number i makes value number i; an operand is the number of an earlier one. */
typedef struct {
    op_kind op;
    int row;                            /* U_..., B_..., ...: which of that kind */
    int n_in, in[MOST_OPERANDS];
    wb_dtype dtype;                     /* of leaves, sources and casts */
    int n;                              /* how many of p are in use: sizes, an order, axes, ... */
    int64_t p[MOST_PARAMETERS];
    bool flag;                          /* .keep of reductions; the number is on the left */
    double number;
    element *data;                      /* of leaves and variables; p has their sizes */
} instruction;

/* How a program is evaluated. */
typedef struct {
    bool eager, compiled, inner_scope, free_some;
    int threads, n_first, calls; /* results asked for at once; calls of a compiled function */
} manner;

typedef struct {
    uint64_t seed;
    int n, n_wanted, wanted[MOST_WANTED];   /* results, in the order in which they are asked for */
    instruction step[MOST_INSTRUCTIONS];
    manner way;
} program;

/* Interprets instruction i; false: it is not a valid one, or its values are of no use. */
bool interpret_step(const program *p, value *v, int i);
bool interpret_product(const program *p, value *v, int i);
bool interpret(const program *p, value *v);
void interpret_forget(void);
bool new_value(value *y, wb_dtype t, int ndim, const int64_t *dims);
int64_t at_index(const value *x, const int64_t *index);
bool next_index(int ndim, const int64_t *dims, int64_t *index);
int normal_axis(const value *x, int64_t axis);
bool broadcast(const value *x, const value *y, int *ndim, int64_t *dims);
wb_dtype wide(wb_dtype t);              /* in which sums of a dtype are made */
const int *spread(const value *x, int ndim, const int64_t *dims);  /* x broadcast to a shape */
void soft_row(wb_dtype t, int n, const int *x, int *y, bool logarithm);
int variance_of(wb_dtype t, int n, const int *x);

/* ---- drawing --------------------------------------------------------------------------------- */

uint64_t draw_word(void);
int64_t draw_between(int64_t low, int64_t high);        /* both included */
bool draw_chance(int one_in);
void draw_seed(uint64_t seed);
void draw_program(program *p, uint64_t seed, bool device);

/* A program while it is drawn. */
typedef struct {
    program *p;
    value v[MOST_INSTRUCTIONS];
    wb_dtype main;                      /* the dtype of most leaves */
    bool grid, special;                 /* small multiples of 1/4 alone; infinities and NaN too */
    int64_t sizes[4];                   /* of most axes */
} drawing;

int64_t draw_size(const drawing *d);
/* Adds an instruction; -1: it is not valid, or its values are large or hardly known. */
int add_step(drawing *d, const instruction *i);
/* Operands that fit: earlier values, moved or converted where needed, or new leaves.  -1: no
 * room. */
int operand_leaf(drawing *d, wb_dtype t, int ndim, const int64_t *dims);
int operand_like(drawing *d, wb_dtype t, int ndim, const int64_t *dims);
enum { ANY, FLOATS, INTEGERS, NO_BOOL };
int operand_any(drawing *d, int kind, int least_ndim, int most_ndim);
bool draw_step(drawing *d);
bool draw_product(drawing *d, op_kind op);

/* ---- the library ----------------------------------------------------------------------------- */

extern const char *const unary_names[], *const binary_names[], *const compare_names[],
    *const reduce_names[], *const loss_names[], *const op_names[];

wb_tensor *call_step(const program *p, int i, wb_tensor **t);
wb_tensor *leaf_tensor(const instruction *i);

/* What differs from the interpreter, and how many elements were compared. */
typedef struct {
    bool failed, gone; /* gone: a result needed a value that had been overwritten */
    int result, call;                   /* which of the results; -1 - n: variable number n */
    int64_t element, compared, exact, tight, unknown;
    double got, want, error;
    char text[400];
} verdict;
/* Evaluates p in its manner and compares; v's counts go on.  false: p is not valid. */
bool run_program(const program *p, verdict *v);
element shifted(const instruction *s, int64_t size, int64_t k,
                int call); /* leaf data of a later call */

bool copy_program(program *to, const program *from);
void free_program(program *p);
void prune_program(program *p);         /* what no result needs */
void print_program(FILE *file, const program *p, const verdict *v);
/* The smallest program that is found which still fails. */
void shrink_program(program *p, bool (*fails)(const program *p, verdict *v), verdict *v);
bool is_input(const program *p,
              int i); /* of a compiled function; other leaves are constants of it */

#endif
