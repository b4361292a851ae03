/* Random graphs over every operation, compared with a plain interpreter (graph_fuzz.c).
 *
 * graph_fuzz_scalars.c    numbers with bounds of their errors
 * graph_fuzz_gradient.c   derivatives of these numbers
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

/* One element of a tensor: its value, and the greatest difference that the library's value may have
 * from it.  With error 0 the two must be equal, with an infinite error the value is unknown.
 * Integers and bools are in `i`; an integer that is not known exactly has an infinite error, a bool
 * an error of 1. */
typedef struct {
    uint8_t op, dtype;
    int32_t a, b, c;    /* indices of operands, or an index into the list of operands */
    union {
        double v;
        int64_t i;
    };
    double error;
} number;

#define FUZZ_UNARY(X)                                                                              \
    X(neg) X(abs) X(sign) X(square) X(sqrt) X(rsqrt) X(reciprocal) X(exp) X(log) X(log1p) X(sin)   \
    X(cos) X(erf) X(floor) X(relu) X(leakyrelu) X(elu) X(selu) X(sigmoid) X(logsigmoid) X(tanh)    \
    X(softplus) X(swish) X(gelu) X(gelu_erf) X(mish) X(hardswish) X(hardshrink)
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

/* The operation that computed a number: a and b are its operands (SELECT: a is the condition, b and
 * c the branches).  SUM, DOT and EXTREME have b operands (DOT: of each factor) from index a on in
 * the list of operands. */
enum { CONSTANT, UNARY, BINARY, SELECT, CAST, SUM, DOT, EXTREME };

extern bool in_gradient;                /* results that are not finite are unknown */
const int *num_operands(const number *x);

extern number *numbers;
extern int n_numbers;
extern bool exact_division;             /* quotients and roots are rounded correctly: not on GPUs */
enum { MOST_NUMBERS = 400000 };

bool is_float(wb_dtype t);
double rounded(wb_dtype t, double v);       /* to the nearest number of a floating dtype */
int64_t wrapped(wb_dtype t, int64_t i);     /* modulo the range of an integer dtype */
double greatest(wb_dtype t);

void num_forget(void);                      /* removes all numbers */
int num_real(wb_dtype t, double v);
int num_real_within(wb_dtype t, double v, double error);
int num_integer(wb_dtype t, int64_t i, bool known);
int num_unary(int f, wb_dtype t, int x);
int num_binary(int f, wb_dtype t, int x, int y);
int num_compare(int f, int x, int y);       /* returns a bool */
int num_select(int condition, int x, int y);
int num_cast(wb_dtype t, int x);
int num_sum(wb_dtype t, int n, const int *x);
int num_mean(wb_dtype t, int n, const int *x, int64_t count);      /* their sum / count */
int num_dot(wb_dtype t, int n, const int *x, const int *y);
int num_extreme(wb_dtype t, int n, const int *x, bool least, bool first);
int num_argmax(int n, const int *x);
/* The derivatives of `loss` with respect to n numbers; they are numbers, so they have derivatives
 * too.  `last` is the greatest index with which the library's walk begins: the loss, or for a
 * Jacobian the last of its values. */
void num_gradient(int loss, int last, int n, const int *by, int *out);

/* ---- programs -------------------------------------------------------------------------------- */

typedef struct {
    wb_dtype dtype;
    int ndim;
    int64_t dims[WB_MAX_DIMS], size;
    int *at;                            /* each element's index in `numbers`, row-major */
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

enum { MOST_INSTRUCTIONS = 64, MOST_OPERANDS = 6, MOST_PARAMETERS = 12, MOST_RESULTS = 8 };

typedef union { double v; int64_t i; } element;

/* Instruction i computes value i; an operand is the index of an earlier instruction. */
typedef struct {
    op_kind op;
    int row;                            /* the function of this kind: U_..., B_..., ... */
    int n_in, in[MOST_OPERANDS];
    wb_dtype dtype;                     /* of leaves, sources and casts */
    int n;                              /* the length of p: sizes, an order of axes, axes, ... */
    int64_t p[MOST_PARAMETERS];
    bool flag;                          /* .keep of reductions; else: `number` is on the left */
    double number;
    element *data;                      /* of leaves and variables; p has their sizes */
} instruction;

/* How a program is evaluated. */
typedef struct {
    bool eager, compiled, inner_scope, free_some;
    int threads, calls;                 /* calls: of a compiled function */
    int n_first;                        /* results that are requested together, first */
} manner;

typedef struct {
    uint64_t seed;
    int n, n_results, results[MOST_RESULTS];   /* the requested results, in their order */
    instruction step[MOST_INSTRUCTIONS];
    manner way;
} program;

/* Interprets instruction i; false: it is invalid, or too little is known of its values. */
bool interpret_step(const program *p, value *v, int i);
bool interpret_product(const program *p, value *v, int i);
bool interpret(const program *p, value *v);
void interpret_forget(void);
bool new_value(value *y, wb_dtype t, int ndim, const int64_t *dims);
int64_t at_index(const value *x, const int64_t *index);
bool next_index(int ndim, const int64_t *dims, int64_t *index);
int normal_axis(const value *x, int64_t axis);
bool broadcast(const value *x, const value *y, int *ndim, int64_t *dims);
wb_dtype wide(wb_dtype t);              /* the dtype in which sums of a dtype are computed */
const int *spread(const value *x, int ndim, const int64_t *dims);  /* x broadcast to a shape */
void soft_row(wb_dtype t, int n, const int *x, int *y, bool logarithm);
int variance_of(wb_dtype t, int n, const int *x);

/* ---- drawing --------------------------------------------------------------------------------- */

uint64_t draw_word(void);
int64_t draw_between(int64_t low, int64_t high);        /* in [low, high] */
bool draw_chance(int one_in);
void draw_seed(uint64_t seed);
void draw_program(program *p, uint64_t seed, bool device);

/* A program while it is drawn. */
typedef struct {
    program *p;
    value v[MOST_INSTRUCTIONS];
    wb_dtype main;                      /* the dtype of most leaves */
    bool grid, special;                 /* grid: data are multiples of 1/4; special: inf, NaN too */
    int64_t sizes[4];                   /* the sizes of most axes */
} drawing;

int64_t draw_size(const drawing *d);
/* Adds an instruction; -1: it is invalid, or its values are too large or too inaccurate. */
int add_step(drawing *d, const instruction *i);
/* Operands that fit: earlier values, reshaped or converted where needed, or new leaves.  -1: the
 * program has the most instructions already. */
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

/* The first difference from the interpreter, and the numbers of elements that were compared. */
typedef struct {
    bool failed, gone;                  /* gone: a result needed a value that was overwritten */
    int result, call;                   /* result: its index; -1 - n: variable n */
    int64_t element, compared, exact, tight, unknown;
    double got, want, error;
    char text[400];
} verdict;
/* Evaluates p in its manner and compares; adds to v's counts.  false: p is invalid. */
bool run_program(const program *p, verdict *v);
/* Element k of a leaf's data at a later call of a compiled function. */
element shifted(const instruction *s, int64_t size, int64_t k, int call);

bool copy_program(program *to, const program *from);
void free_program(program *p);
void prune_program(program *p);         /* removes instructions that no result needs */
void print_program(FILE *file, const program *p, const verdict *v);
/* Makes p as small as possible while it still fails. */
void shrink_program(program *p, bool (*fails)(const program *p, verdict *v), verdict *v);
/* True if leaf i is an input of the compiled function; the other leaves are its constants. */
bool is_input(const program *p, int i);

#endif
