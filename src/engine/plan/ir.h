/* The form in which a plan is made: the graph as an array of values, inputs before their users.
 *
 * Making a value simplifies it and merges it with an equal one that is there already, so a pass that
 * changes values is one walk over the array that makes a new one.  Indices, not pointers; nothing here refers to
 * the graph. */
#ifndef WB__IR_H
#define WB__IR_H

#include "backend/backend.h"
#include "engine/graph.h"

/* The order of a value's axes in memory, outermost first. */
typedef enum {
    WB__ROW_MAJOR,
    WB__CHANNELS_LAST,              /* [N, C, H, W] as [N, H, W, C] */
    WB__HEADS_INSIDE                /* [B, H, T, D] as [B, T, H, D] */
} wb__layout;
static inline int wb__layout_axis(wb__layout l, int i)
{
    static const int axis[][4] = {
        [WB__CHANNELS_LAST] = {0, 2, 3, 1}, [WB__HEADS_INSIDE] = {0, 2, 1, 3}};
    return l == WB__ROW_MAJOR ? i : axis[l][i];
}

typedef struct {
    uint16_t op;                    /* wb__op; WB__OP_constant is a leaf */
    uint8_t dtype, ndim;
    bool fixed;                     /* a literal whose value is known to the plan */
    uint8_t layout;                 /* wb__layout */
    bool prefers_channels_last;     /* a convolution, of its operands */
    int n_in, in;                   /* inputs are ir->inputs[in .. in + n_in) */
    int n_attr, attr;               /* likewise ir->attrs */
    int number;                     /* of a literal or a draw: index of its run-time number */
    int leaf;                       /* of a leaf: its buffer */
    int uses;                       /* inputs of others and roots that are this value */
    double value;                   /* of a fixed literal */
    int64_t size, dims[WB_MAX_DIMS];
} wb__value;

typedef struct {
    wb__value *value;
    int n, room;
    int *inputs;
    int n_inputs, inputs_room;
    int64_t *attrs;
    int n_attrs, attrs_room;
    int *table;                     /* hash table of values, -1 where empty */
    int table_room;
    bool failed;                    /* memory ran out: every index since is 0 */
} wb__ir;

void wb__ir_free(wb__ir *ir);

/* A value like `v` (its in, attr and size are set here, uses is 0), with these inputs and attributes,
 * simplified. */
int wb__ir_make(wb__ir *ir, wb__value v, int n_in, const int *in, int n_attr, const int64_t *attr);

/* Short forms for passes. */
int wb__ir_elementwise(wb__ir *ir, wb__op op, int a, int b); /* b < 0: one operand; broadcasts */
int wb__ir_where(wb__ir *ir, int condition, int x, int y);
int wb__ir_reduce(wb__ir *ir, wb__op op, int x, unsigned mask);     /* axes kept with size 1 */
int wb__ir_literal(wb__ir *ir, double value, wb_dtype dtype);       /* fixed, 0-d */
int wb__ir_move(wb__ir *ir, wb__op op, int x, int ndim, const int64_t *dims, int n_attr,
                const int64_t *attr);

static inline wb__value *wb__ir_in(const wb__ir *ir, const wb__value *v, int i)
{
    return &ir->value[ir->inputs[v->in + i]];
}

/* Another result of the step that makes its one operand? */
static inline bool wb__is_beside(int op)
{
    return op == WB__OP_attention_lse || op == WB__OP_attention_dk || op == WB__OP_attention_dv;
}

#endif
