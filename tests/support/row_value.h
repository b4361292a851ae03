/* A unary operation of ops.def in double: the reference of an epilogue. */
#ifndef ROW_VALUE_H
#define ROW_VALUE_H

#include "ops/ops.h"

#define KIND f64
#include "base/numbers/dialect.h"

/* x itself if there is no operation. */
static inline double row_value(wb__op op, double x)
{
    switch (op) {
#define WB_UNARY(name, accepts, expression, gradient) case WB__OP_##name: return expression;
#include "ops/ops.def"
    default: return x;
    }
}

#endif
