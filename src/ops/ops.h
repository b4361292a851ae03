/* Numbers and tables made of ops.def. */
#ifndef WB__OPS_H
#define WB__OPS_H

#include "base/base.h"

typedef enum {
    WB__OP_NONE,
#define WB_UNARY(name, accepts, expression, gradient) WB__OP_##name,
#define WB_BINARY(name, accepts, expression, gradient_x, gradient_y) WB__OP_##name,
#define WB_COMPARE(name, accepts, expression) WB__OP_##name,
#define WB_TEST(name, accepts, expression) WB__OP_##name,
#define WB_OTHER(name, class, gradient) WB__OP_##name,
#include "ops/ops.def"
    WB__OP_COUNT
} wb__op;

typedef enum {
    WB__UNARY, WB__BINARY, WB__COMPARE, WB__TEST,   /* elementwise, of one list each */
    WB__ELEMENTWISE,                                /* where, cast */
    WB__SOURCE, WB__MOVE, WB__REDUCE, WB__LIBRARY, WB__COMPOSITE, WB__STATE
} wb__op_class;

enum { WB__FLOATS = 1, WB__BOOLS = 2, WB__INTEGERS = 4, WB__NUMBERS = 5, WB__ANY = 7 };

typedef struct {
    const char *name;
    const char *expression;         /* of elementwise rows, in the dialect; else NULL */
    wb__op_class class;
    int accepts;
} wb__op_info;

extern const wb__op_info wb__ops[WB__OP_COUNT];

static inline bool wb__is_elementwise(wb__op op) { return wb__ops[op].class <= WB__ELEMENTWISE; }

/* A number that a plan takes when it runs. */
typedef union { double f; uint64_t u; } wb__number;

/* Attributes of convolutions and pools, as int64_t fields in this order. */
typedef struct {
    int64_t stride[2], dilation[2], pad[4], groups, size[2];
} wb__conv_attr; /* size: of the result's last axes */
typedef struct { int64_t window[2], stride[2], pad[4], size[2]; } wb__pool_attr;

#endif
