/* The intermediate form of a plan: the graph as an array of values, inputs before the values that
 * read them.
 *
 * wb__ir_make simplifies a value and merges it with an equal one that exists already.  A rebuild
 * (values.c) walks the array once and makes a new array of changed values.  Values are indices, not
 * pointers, and nothing here refers to the graph. */
#ifndef WB__IR_H
#define WB__IR_H

#include "backend/backend.h"
#include "engine/graph.h"

/* The order of a value's axes in memory, outermost first. */
typedef enum {
    WB__ROW_MAJOR,
    WB__CHANNELS_LAST,              /* [N, C, H, W] in memory as [N, H, W, C] */
    WB__BTHD                        /* [B, H, T, D] in memory as [B, T, H, D] */
} wb__layout;
static inline int wb__layout_axis(wb__layout l, int i)
{
    static const int axis[][4] = {
        [WB__CHANNELS_LAST] = {0, 2, 3, 1}, [WB__BTHD] = {0, 2, 1, 3}};
    return l == WB__ROW_MAJOR ? i : axis[l][i];
}

typedef struct {
    uint16_t op;                    /* wb__op; WB__OP_constant: a leaf */
    uint8_t dtype, ndim;
    bool fixed;     /* a literal's number is part of the plan, and not given anew to each run */
    uint8_t layout;                 /* wb__layout */
    bool in_reader; /* products.c made this product from a slice of another product; the fused
                       kernel that reads it computes it (wb__product.in_reader) */
    bool prefers_channels_last;     /* the operands of this convolution should be channels last */
    int n_in, in;                   /* its inputs are ir->inputs[in .. in + n_in) */
    int n_attr, attr;               /* its attributes are ir->attrs[attr .. attr + n_attr) */
    int number;                     /* index, in wb__request.numbers, of the first number of random
                                       numbers, or of a literal that is not fixed; else -1 */
    int leaf;                       /* index of the buffer of a leaf; else -1 */
    int uses;                   /* number of times that used values, results and writes read it */
    double value;                   /* the number of a fixed literal; else 0 */
    int64_t size, dims[WB_MAX_DIMS];
} wb__value;

typedef struct {
    wb__value *value;
    int n, capacity;
    int *inputs;
    int n_inputs, inputs_capacity;
    int64_t *attrs;
    int n_attrs, attrs_capacity;
    wb__hash_table table;           /* finds the index of a value by a hash of the value */
    bool joins;                     /* a reduction does not move in front of a reshape of a matrix
                                       that a library step computes; elementwise operations move in
                                       front of expands */
    bool failed;                /* memory ran out; functions that return an index then return 0 */
} wb__ir;

void wb__ir_free(wb__ir *ir);

/* Returns the index of a value that computes what `v` with these inputs and attributes computes: a
 * simpler value, an equal value that exists already, or a new value.  The fields n_in, in, n_attr,
 * attr, size and uses of v are ignored. */
int wb__ir_make(wb__ir *ir, wb__value v, int n_in, const int *in, int n_attr, const int64_t *attr);

/* Short forms of wb__ir_make.  The operands broadcast.  b < 0: the operation has one operand, a. */
int wb__ir_elementwise(wb__ir *ir, wb__op op, int a, int b);
int wb__ir_where(wb__ir *ir, int condition, int x, int y);
int wb__ir_reduce(wb__ir *ir, wb__op op, int x, unsigned mask);  /* the reduced axes keep size 1 */
int wb__ir_literal(wb__ir *ir, double value, wb_dtype dtype);       /* a fixed literal without
                                                                       dimensions */
int wb__ir_move(wb__ir *ir, wb__op op, int x, int ndim, const int64_t *dims, int n_attr,
                const int64_t *attr);

static inline wb__value *wb__ir_in(const wb__ir *ir, const wb__value *v, int i)
{
    return &ir->value[ir->inputs[v->in + i]];
}

/* Whether op is a further result of a step that has several results, such as attention_lse.  Its
 * only input is the first result of that step. */
static inline bool wb__is_further_result(int op)
{
    return op == WB__OP_attention_lse || op == WB__OP_attention_dk || op == WB__OP_attention_dv;
}

#endif
