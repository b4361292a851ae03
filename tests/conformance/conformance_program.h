/* A random graph of conformance_graph.c as a program: its instructions, and their interpreter in
 * double precision. */
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
    /* Operands: indices of values.  OP_ASSIGN writes value b to variable a.  OP_CONCAT and OP_STACK
     * have c operands, in part. */
    int a, b, c;
    int n;                              /* the axis; of shapes and orders: the length of dims */
    int part[4];                        /* operands; of OP_TAKE: the rows that are gathered */
    int64_t dims[WB_MAX_DIMS];          /* a shape or an order; a slice's bounds; padding */
    unsigned mask;
    bool keep;
    double number;
} instruction;

typedef struct {
    instruction op[MAX_OPS];
    int n_ops, n_values;                /* values: variables, leaves, results of instructions */
    array start[VARIABLES + LEAVES];
    double error[MAX_VALUES];           /* a bound of the absolute error, in units of the dtype's
                                         * precision */
    bool exact[MAX_VALUES];             /* the value is computed without rounding */
    bool smooth;                        /* the program has derivatives: it assigns nothing */
    wb_dtype dtype;
} program;

static const char *const unary_names[] = {
    "neg",        "abs",  "square",   "sqrt",  "rsqrt", "reciprocal", "exp",  "log",
    "log1p",      "sin",  "cos",      "erf",   "relu",  "leakyrelu",  "elu",  "sigmoid",
    "logsigmoid", "tanh", "softplus", "swish", "gelu",  "gelu_erf",   "sign", "floor"};
static const char *const binary_names[] = {"add", "sub", "mul", "div", "maximum", "minimum"};
static const char *const reduce_names[] = {"sum", "mean", "max", "min", "variance", "logsumexp"};
static const char *const row_names[] = {"softmax", "logsoftmax", "normalize"};
#define LENGTH(a) (int64_t)(sizeof(a) / sizeof *(a))

/* ---- the interpreter ------------------------------------------------------------------------- */

/* The result of i.  value[] holds the values so far, the current ones of the variables first. */
static array interpret(const instruction *i, const array *value)
{
    array x = value[i->a];
    switch (i->kind) {
    case OP_UNARY: return ref_map(ref_unary(i->name), x);
    case OP_BINARY: return ref_map2(ref_binary(i->name), x, value[i->b]);
    case OP_SCALAR: return ref_map2(ref_binary(i->name), x, ref_number(i->number));
    case OP_WHERE:
        return ref_where(ref_map2(ref_compare(i->name), value[i->c], ref_number(i->number)), x,
                         value[i->b]);
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
        array part[4];
        for (int k = 0; k < i->c; k++) {
            part[k] = value[i->part[k]];
            if (i->kind == OP_CONCAT) continue;
            int64_t dims[WB_MAX_DIMS];
            for (int d = 0, e = 0; d <= x.ndim; d++) dims[d] = d == i->n ? 1 : x.dims[e++];
            part[k] = ref_reshape(part[k], x.ndim + 1, dims);
        }
        return ref_concat(i->c, part, i->n);
    }
    case OP_MATMUL: return ref_matmul(x, value[i->b]);
    case OP_TAKE: {
        array index = ref_new(1, i->dims);
        for (int k = 0; k < i->dims[0]; k++) index.at[k] = i->part[k];
        return ref_take(x, index);
    }
    default: return x;
    }
}

#endif
