/* The tables declared in ops.h. */
#include "ops/ops.h"

#define OPS_ROW(name, text, class, accepts, step, variant) \
    [WB__OP_##name] = {#name, text, class, accepts, step, variant},
#define FUSED(name, text, class, accepts) OPS_ROW(name, text, class, accepts, WB__STEP_FUSED, 0)
#define WB__PLAIN 0

const char *const wb__step_names[WB__STEP_COUNT] = {
    [WB__STEP_FUSED] = "fused",
#define WB_STEP(NAME, name, cpu, gpu) [WB__STEP_##NAME] = #name,
#include "ops/ops.def"
};

const wb__op_info wb__ops[WB__OP_COUNT] = {
    [WB__OP_NONE] = {"none", NULL, WB__STATE, 0, WB__STEP_FUSED, 0},
#define WB_UNARY(name, accepts, expression, gradient) \
    FUSED(name, #expression, WB__UNARY, WB__##accepts)
#define WB_BINARY(name, accepts, expression, gradient_x, gradient_y) \
    FUSED(name, #expression, WB__BINARY, WB__##accepts)
#define WB_COMPARE(name, accepts, expression) \
    FUSED(name, #expression, WB__COMPARE, WB__##accepts)
#define WB_TEST(name, accepts, expression) FUSED(name, #expression, WB__TEST, WB__##accepts)
#define WB_LIBRARY(name, step, variant, composed, gradient) \
    OPS_ROW(name, NULL, WB__LIBRARY, WB__ANY, WB__STEP_##step, WB__##variant)
#define WB_COMPOSITE(name, composed, gradient) FUSED(name, NULL, WB__COMPOSITE, WB__ANY)
#define WB_OTHER(name, class, gradient) FUSED(name, NULL, WB__##class, WB__ANY)
#include "ops/ops.def"
};
