/* The gradient rules of the elementwise operations, and the tables of the functions that ops.def
 * names. */
#include "engine/ops/op.h"

/* The names that the gradient columns of ops.def use. */
#define NUM(v) wb__number_of(v)
#define NEG wb_neg
#define ADD wb_add
#define SUB wb_sub
#define MUL wb_mul
#define DIV wb_div
#define SQUARE wb_square
#define SIGN wb_sign
#define EXP wb_exp
#define LOG wb_log
#define SIN wb_sin
#define COS wb_cos
#define ERF wb_erf
#define SIGMOID wb_sigmoid
#define SOFTPLUS wb_softplus
#define TANH wb_tanh
#define WHERE wb_where
#define EQ wb_eq
#define GT wb_gt
#define GE wb_ge
#define LE wb_le
#define ZEROS(g) WB_NONE
#define GELU_SLOPE wb_gelu_slope

/* Returns g times the second derivative of gelu(x) = x/2 (1 + t).  With u = c (x + a x^3),
 * t = tanh u and s = 1 - t^2, the second derivative is
 *   s u' + x/2 (s u'' - 2 t s u'^2)  = s (u' + x (u''/2 - t u'^2))
 * It is 0 from |x| = 16 on, where s is; farther out the powers of x would become infinite. */
static wb_tensor *gelu_curve(wb_tensor *g, wb_tensor *x)
{
    const double c = 0.7978845608028654, a = 0.044715;
    x = wb_clamp(x, NUM(-16), NUM(16));
    wb_tensor *x2 = wb_square(x);
    wb_tensor *t = wb_tanh(MUL(MUL(NUM(c), x), ADD(NUM(1), MUL(NUM(a), x2))));
    wb_tensor *s = SUB(NUM(1), SQUARE(t));
    wb_tensor *u1 = MUL(NUM(c), ADD(NUM(1), MUL(NUM(3 * a), x2)));
    wb_tensor *half_u2 = MUL(NUM(3 * a * c), x);
    return MUL(g, MUL(s, ADD(u1, MUL(x, SUB(half_u2, MUL(t, SQUARE(u1)))))));
}

#define RULE(name)                                                                                 \
    static void name##_rule(WB__ANY_USE wb__gradient_walk *w, wb_tensor *node,                     \
                            WB__ANY_USE wb_tensor *g, WB__ANY_USE const bool *wanted,              \
                            wb_tensor **out)

/* In the gradient of a unary row, x is the operand and y the result; in those of a binary row, x
 * and y are the operands. */
#define WB_UNARY(name, accepts, expression, gradient)                                              \
    RULE(name)                                                                                     \
    {                                                                                              \
        WB__ANY_USE wb_tensor *x = node->in[0], *y = node;                                         \
        out[0] = gradient;                                                                         \
    }
#define WB_BINARY(name, accepts, expression, gradient_x, gradient_y)                               \
    RULE(name)                                                                                     \
    {                                                                                              \
        wb_tensor *x = node->in[0], *y = node->in[1];                                              \
        if (wanted[0]) out[0] = wb__sum_to(gradient_x, x->ndim, x->dims);                          \
        if (wanted[1]) out[1] = wb__sum_to(gradient_y, y->ndim, y->dims);                          \
    }
#include "ops/ops.def"

#define wb__grad_none NULL
#define wb__composed_none NULL

const wb__gradient_rule wb__gradient_rules[WB__OP_COUNT] = {
#define WB_UNARY(name, accepts, expression, gradient) [WB__OP_##name] = name##_rule,
#define WB_BINARY(name, accepts, expression, gx, gy) [WB__OP_##name] = name##_rule,
#define WB_LIBRARY(name, step, variant, composed, gradient) [WB__OP_##name] = wb__grad_##gradient,
#define WB_COMPOSITE(name, composed, gradient) [WB__OP_##name] = wb__grad_##gradient,
#define WB_OTHER(name, class, gradient) [WB__OP_##name] = wb__grad_##gradient,
#include "ops/ops.def"
};

wb__composed_function *const wb__composed[WB__OP_COUNT] = {
#define WB_LIBRARY(name, step, variant, form, gradient) [WB__OP_##name] = wb__composed_##form,
#define WB_COMPOSITE(name, form, gradient) [WB__OP_##name] = wb__composed_##form,
#include "ops/ops.def"
};

wb__fill_function *const wb__fill[WB__OP_COUNT] = {
#define WB_LIBRARY(name, step, variant, composed, gradient) [WB__OP_##name] = wb__fill_##step,
#include "ops/ops.def"
};
