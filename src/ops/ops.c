/* The table behind ops.h. */
#include "ops/ops.h"

const wb__op_info wb__ops[WB__OP_COUNT] = {
    [WB__OP_NONE] = {"none", NULL, WB__STATE, 0},
#define WB_UNARY(name, accepts, expression, gradient) \
    [WB__OP_##name] = {#name, #expression, WB__UNARY, WB__##accepts},
#define WB_BINARY(name, accepts, expression, gradient_x, gradient_y) \
    [WB__OP_##name] = {#name, #expression, WB__BINARY, WB__##accepts},
#define WB_COMPARE(name, accepts, expression) \
    [WB__OP_##name] = {#name, #expression, WB__COMPARE, WB__##accepts},
#define WB_TEST(name, accepts, expression) \
    [WB__OP_##name] = {#name, #expression, WB__TEST, WB__##accepts},
#define WB__PLAIN 0
#define WB_LIBRARY(name, step, variant, gradient) \
    [WB__OP_##name] = {#name, NULL, WB__LIBRARY, WB__ANY, WB__STEP_##step, WB__##variant},
#define WB_OTHER(name, class, gradient) [WB__OP_##name] = {#name, NULL, WB__##class, WB__ANY},
#include "ops/ops.def"
};
