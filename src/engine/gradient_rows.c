/* The gradients of the elementwise rows of ops.def, as functions, and the table of all gradient
 * rules. */
#include "engine/gradient.h"

/* The words of the gradient column. */
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

/* g times the second derivative of gelu:  with u = c (x + a x^3), t = tanh u, s = 1 - t^2,
 *   s u' + x/2 (s u'' - 2 t s u'^2)  = s (u' + x (u''/2 - t u'^2)) */
static wb_tensor *gelu_curve(wb_tensor *g, wb_tensor *x)
{
    const double c = 0.7978845608028654, a = 0.044715;
    wb_tensor *x2 = wb_square(x);
    wb_tensor *t = wb_tanh(MUL(MUL(NUM(c), x), ADD(NUM(1), MUL(NUM(a), x2))));
    wb_tensor *s = SUB(NUM(1), SQUARE(t));
    wb_tensor *u1 = MUL(NUM(c), ADD(NUM(1), MUL(NUM(3 * a), x2)));
    wb_tensor *half_u2 = MUL(NUM(3 * a * c), x);
    return MUL(g, MUL(s, ADD(u1, MUL(x, SUB(half_u2, MUL(t, SQUARE(u1)))))));
}

/* The result is y where a row's column says y; x and y are the operands where there are two. */
#define WB_UNARY(name, accepts, expression, gradient)                                                            \
    static void name##_rule(wb__gradient_walk *w, wb_tensor *node, wb_tensor *g, const bool *wanted, wb_tensor **out) \
    {                                                                                                            \
        wb_tensor *x = node->in[0], *y = node;                                                                   \
        (void)w, (void)wanted, (void)g, (void)x, (void)y;                                                                \
        out[0] = gradient;                                                                                       \
    }
#define WB_BINARY(name, accepts, expression, gradient_x, gradient_y)                                             \
    static void name##_rule(wb__gradient_walk *w, wb_tensor *node, wb_tensor *g, const bool *wanted, wb_tensor **out) \
    {                                                                                                            \
        wb_tensor *x = node->in[0], *y = node->in[1];                                                            \
        (void)w;                                                                                                 \
        if (wanted[0]) out[0] = wb__sum_to(gradient_x, x->ndim, x->dims);                                        \
        if (wanted[1]) out[1] = wb__sum_to(gradient_y, y->ndim, y->dims);                                        \
    }
#include "ops/ops.def"

const wb__gradient_rule wb__gradient_rules[WB__OP_COUNT] = {
#define WB_UNARY(name, accepts, expression, gradient) [WB__OP_##name] = name##_rule,
#define WB_BINARY(name, accepts, expression, gradient_x, gradient_y) [WB__OP_##name] = name##_rule,
#define WB_LIBRARY(name, step, variant, gradient) [WB__OP_##name] = gradient,
#define WB_OTHER(name, class, gradient) [WB__OP_##name] = gradient,
#include "ops/ops.def"
};
