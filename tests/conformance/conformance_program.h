/* What a random graph of conformance_graph.c is: a program, its instructions, and the plain
 * interpreter of them. */
#ifndef CONFORMANCE_PROGRAM_H
#define CONFORMANCE_PROGRAM_H

#include "reference.h"

enum { MAX_OPS = 60, MAX_VALUES = 96, VARIABLES = 3, LEAVES = 4 };

typedef enum {
    OP_UNARY,
    OP_BINARY,
    OP_SCALAR,
    OP_WHERE,
    OP_REDUCE,
    OP_ROWS,
    OP_RESHAPE,
    OP_PERMUTE,
    OP_EXPAND,
    OP_SLICE,
    OP_FLIP,
    OP_PAD,
    OP_CONCAT,
    OP_STACK,
    OP_MATMUL,
    OP_TAKE,
    OP_ASSIGN,
    OP_KINDS
} op_kind;

typedef struct {
    op_kind kind;
    const char *name;
    int a, b, c;                        /* values; of OP_ASSIGN: a the variable's number, b the value */
    int n;                              /* of OP_CONCAT: pieces in piece[]; of shapes: ndim */
    int piece[4];
    int64_t dims[WB_MAX_DIMS];
    unsigned mask;
    bool keep;
    double number;
} instruction;

typedef struct {
    instruction op[MAX_OPS];
    int n_ops, n_values;                /* leaves and variables first */
    array start[VARIABLES + LEAVES];
    double error[MAX_VALUES];           /* in units of the dtype's precision, absolute */
    bool exact[MAX_VALUES], smooth;
    wb_dtype dtype;
} program;

static const char *const unary_names[] = {
    "neg",        "abs",  "square",   "sqrt",  "rsqrt", "reciprocal", "exp",  "log",
    "log1p",      "sin",  "cos",      "erf",   "relu",  "leakyrelu",  "elu",  "sigmoid",
    "logsigmoid", "tanh", "softplus", "swish", "gelu",  "gelu_erf",   "sign", "floor"};
static const char *const binary_names[] = {"add", "sub", "mul", "div", "maximum", "minimum"};
static const char *const reduce_names[] = {"sum", "mean", "max", "min", "variance", "logsumexp"};
static const char *const row_names[] = {"softmax", "logsoftmax", "normalise"};
#define LENGTH(a) (int64_t)(sizeof(a) / sizeof *(a))

/* ---- the interpreter ------------------------------------------------------------------------- */

/* The current value of each variable is now[v]; instruction results go to value[]. */
static array interpret(const instruction *i, const array *value)
{
    array x = value[i->a];
    switch (i->kind) {
    case OP_UNARY: return ref_map(ref_unary(i->name), x);
    case OP_BINARY: return ref_map2(ref_binary(i->name), x, value[i->b]);
    case OP_SCALAR: return ref_map2(ref_binary(i->name), x, ref_number(i->number));
    case OP_WHERE: return ref_where(ref_map2(ref_compare(i->name), value[i->c], ref_number(i->number)), x, value[i->b]);
    case OP_REDUCE:
        if (!strcmp(i->name, "sum")) return ref_sum(x, i->mask, i->keep);
        if (!strcmp(i->name, "mean")) return ref_mean(x, i->mask, i->keep);
        if (!strcmp(i->name, "max")) return ref_max(x, i->mask, i->keep);
        if (!strcmp(i->name, "min")) return ref_min(x, i->mask, i->keep);
        if (!strcmp(i->name, "variance")) return ref_variance(x, i->mask, i->keep);
        return ref_logsumexp(x, i->mask, i->keep);
    case OP_ROWS:
        if (!strcmp(i->name, "softmax")) return ref_softmax(x);
        if (!strcmp(i->name, "logsoftmax")) return ref_logsoftmax(x);
        return ref_normalise(x, i->n, 0.1);
    case OP_RESHAPE: return ref_reshape(x, i->n, i->dims);
    case OP_PERMUTE: return ref_permute(x, i->dims);
    case OP_EXPAND: return ref_expand(x, i->n, i->dims);
    case OP_SLICE: return ref_slice(x, i->n, i->dims[0], i->dims[1]);
    case OP_FLIP: return ref_flip(x, i->n);
    case OP_PAD: return ref_pad(x, i->n, i->dims[0], i->dims[1]);
    case OP_CONCAT: case OP_STACK: {
        array piece[4];
        for (int k = 0; k < i->c; k++) {
            piece[k] = value[i->piece[k]];
            if (i->kind == OP_CONCAT) continue;
            int64_t dims[WB_MAX_DIMS];
            for (int d = 0, e = 0; d <= x.ndim; d++) dims[d] = d == i->n ? 1 : x.dims[e++];
            piece[k] = ref_reshape(piece[k], x.ndim + 1, dims);
        }
        return ref_concat(i->c, piece, i->n);
    }
    case OP_MATMUL: return ref_matmul(x, value[i->b]);
    case OP_TAKE: {
        array index = ref_new(1, i->dims);
        for (int k = 0; k < i->dims[0]; k++) index.at[k] = i->piece[k];
        return ref_take(x, index);
    }
    default: return x;
    }
}

#endif
