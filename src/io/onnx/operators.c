/* The table of the operators of ONNX.  An operator that is an operation of ops/ops.def, or one
 * expression, is a row of ops.def and no more.  The operands of two inputs broadcast as in NumPy,
 * which is Weber's rule too.
 *
 * Of the trigonometric and hyperbolic functions Weber has sin, cos and tanh.  The others are
 * composed of these, in forms that are accurate to a few ulp at all x, whose gradients are right
 * everywhere, and in which nothing overflows before the result does. */
#include "io/onnx/ops_common.h"
#include "weber/linalg.h"

#include <math.h>

static const double HALF_PI = 1.5707963267948966, LN2 = 0.69314718055994531;

static wb_tensor *number(double v) { return wb__number_of(v); }

/* ---- trigonometric and hyperbolic functions -------------------------------------------------- */

/* Returns 1 or -1, without a gradient: sign · x is |x|, whose gradient at 0 is that of x. */
static wb_tensor *sign_of(wb_tensor *x)
{
    if (!x) return NULL;
    const wb_dtype t = (wb_dtype)x->dtype;
    return wb_where(wb_lt(x, number(0)), wb__literal(-1, t), wb__literal(1, t));
}

static wb_tensor *cosh_of(wb_tensor *x)
{
    wb_tensor *up = wb_exp(wb_mul(x, number(0.5))), *down = wb_exp(wb_mul(x, number(-0.5)));
    return wb_add(wb_mul(wb_mul(up, number(0.5)), up), wb_mul(wb_mul(down, number(0.5)), down));
}

/* Returns the angle with the tangent b, 0 <= b <= 1.  A guess, to 0.004, is improved by the angle
 * of d, the tangent of the difference to the guess, of which three terms of the series are enough
 * for f64. */
static wb_tensor *small_angle(wb_tensor *b)
{
    wb_tensor *guess = wb_stop_gradient(
        wb_mul(b, wb_sub(number(1.0584), wb_mul(b, number(0.273)))));
    wb_tensor *s = wb_sin(guess), *k = wb_cos(guess);
    wb_tensor *d = wb_div(wb_sub(wb_mul(b, k), s), wb_add(k, wb_mul(b, s)));
    wb_tensor *square = wb_square(d);
    wb_tensor *series = wb_sub(wb_mul(square, number(0.2)), number(1.0 / 3));
    return wb_add(guess, wb_add(d, wb_mul(wb_mul(d, square), series)));
}

/* Returns the angle of a tangent x of any size: beyond 1 it is pi/2 minus that of 1/x. */
static wb_tensor *angle(wb_tensor *x)
{
    wb_tensor *sign = sign_of(x), *a = wb_mul(sign, x);
    wb_tensor *big = wb_gt(a, number(1));
    wb_tensor *inverse = wb_reciprocal(wb_where(big, a, number(1)));
    wb_tensor *y = small_angle(wb_where(big, inverse, a));
    return wb_mul(sign, wb_where(big, wb_sub(number(HALF_PI), y), y));
}

/* For x above ONNX_LARGE, 1 + x^2 is x^2, also in f64. */
#define ONNX_LARGE 1e8

/* Returns log(2 x) for x > ONNX_LARGE, else f(x).  Each branch gets an x at which it and its
 * gradient are finite. */
static wb_tensor *or_log(wb_tensor *x, wb_tensor *(*f)(wb_tensor *))
{
    wb_tensor *large = wb_add(wb_log(wb_maximum(x, number(ONNX_LARGE))), number(LN2));
    return wb_where(wb_gt(x, number(ONNX_LARGE)), large, f(wb_minimum(x, number(ONNX_LARGE))));
}

/* Returns log(x + sqrt(1 + x^2)) for x >= 0, accurate near 0. */
static wb_tensor *asinh_of(wb_tensor *x)
{
    wb_tensor *square = wb_square(x), *root = wb_sqrt(wb_add(square, number(1)));
    return wb_log1p(wb_add(x, wb_div(square, wb_add(root, number(1)))));
}

/* Returns log(x + sqrt(x^2 - 1)), accurate near 1; NaN below 1. */
static wb_tensor *acosh_of(wb_tensor *x)
{
    wb_tensor *more = wb_sub(x, number(1));
    wb_tensor *root = wb_mul(wb_sqrt(more), wb_sqrt(wb_add(more, number(2))));
    return wb_log1p(wb_add(more, root));
}

/* Returns the odd function that is f for x >= 0. */
static wb_tensor *odd(wb_tensor *x, wb_tensor *(*f)(wb_tensor *))
{
    wb_tensor *sign = sign_of(x);
    return wb_mul(sign, or_log(wb_mul(sign, x), f));
}

/* ---- other expressions ----------------------------------------------------------------------- */

/* Returns whether each element is infinite with one of the signs asked for. */
static wb_tensor *is_inf(wb_tensor *x, bool negative, bool positive)
{
    if (!negative && !positive)
        return wb_expand_array(wb__literal(0, WB_BOOL), x->ndim, x->dims);
    if (negative && positive) x = wb_abs(x);
    return wb_eq(x, number(positive ? INFINITY : -INFINITY));
}

static wb_tensor *celu(const wb__onnx_call *c, wb_tensor *x, double alpha)
{
    if (alpha > 0) return wb_celu_of(x, alpha);
    wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "alpha is %g; it must be positive", alpha);
    return NULL;
}

/* Returns all inputs joined by an operation of two operands. */
static wb_tensor *joined(const wb__onnx_call *c, wb__op op)
{
    if (!wb__onnx_has(c, WB__MAX(c->n_in, 1))) return NULL;
    wb_tensor *y = wb__unchanged(c->in[0]);
    for (int i = 1; i < c->n_in && y; i++)
        y = wb__elementwise(op, (wb_tensor *[]){y, c->in[i]});
    return y;
}

bool wb__onnx_operation(wb__onnx_call *c)
{
    const wb__onnx_operator *o = c->node->operator;
    const bool any = o->ports[0].in[1] == WB__ONNX_ANY;
    return wb__onnx_give(c, any ? joined(c, o->op) : wb__elementwise(o->op, c->in));
}

/* Whether the operator is its operation in this node: the operation takes the dtype, and its
 * numbers are those of the node.  The numbers of ONNX are f32. */
static bool is_operation(const wb__onnx_call *c)
{
    const wb__onnx_operator *o = c->node->operator;
    if (!o->op || !wb__dtype_float((wb_dtype)c->in[0]->dtype)) return false;
    const wb_dtype t = (wb_dtype)c->in[0]->dtype;
    for (const wb__onnx_attr_row *a = o->attributes; a && a->type; a++) {
        const double given = wb__onnx_number_of(c, a);
        if (given != (double)(float)a->number || (t == WB_F64 && given != a->number)) return false;
    }
    return true;
}

static bool call_formula(wb__onnx_call *c)
{
    const wb__onnx_operator *o = c->node->operator;
    const wb__onnx_accepted kind = o->accepts;
    const wb__onnx_attr_row *row = o->attributes;
    double n[2] = {0, 0};
    if (o->ports[0].in[1] == WB__ONNX_ANY && !wb__onnx_has(c, c->n_in)) return false;
    if (kind == WB__ONNX_OF_TRUTHS && c->in[0]->dtype != WB_BOOL)
        return wb__onnx_refuse(c, WB_ERROR_DTYPE, "the inputs are %s; they must be bool",
                               wb_describe(c->in[0]));
    const bool reals = kind == WB__ONNX_OF_REALS || kind == WB__ONNX_OF_WIDE;
    if (reals && !wb__onnx_floating(c, 0)) return false;
    if (c->n_in && is_operation(c)) return wb__onnx_operation(c);
    for (int i = 0; i < 2 && row && row[i].has_default; i++) n[i] = wb__onnx_number_of(c, &row[i]);
    wb_tensor *x = wb__onnx_in(c, 0);
    if (kind == WB__ONNX_OF_WIDE) x = wb__wide(x);
    wb_tensor *y = o->formula(c, x, wb__onnx_in(c, 1), wb__onnx_in(c, 2), n[0], n[1]);
    return wb__onnx_give(c, kind == WB__ONNX_OF_WIDE ? wb__as(y, (wb_dtype)c->in[0]->dtype) : y);
}

#define ONNX_OP(name, function, ...)
#define ONNX_IS(name, op, ...)
#define ONNX_FORMULA(name, kind, expression, ...)                                                  \
    static wb_tensor *FORMULA(name)(const wb__onnx_call *c, wb_tensor *x, wb_tensor *y,            \
                                    wb_tensor *z, double a, double b)                              \
    {                                                                                              \
        (void)c, (void)x, (void)y, (void)z, (void)a, (void)b;                                      \
        return expression;                                                                         \
    }
#define FORMULA(name) formula_##name
#include "io/onnx/ops.def"
#undef FORMULA
#define FORMULA(name) microsoft_formula_##name
#include "io/onnx/ops_microsoft.def"
#undef FORMULA
#undef ONNX_OP
#undef ONNX_IS
#undef ONNX_FORMULA

/* clang-format off */
enum { ANY = WB__ONNX_ANY };
/* Inputs and outputs.  AT: their counts for all opsets from the first one on, with one output. */
#define AT(since, least, most) .ports = {{since, {least, most}, {1, 1}}}
#define PORTS(...) .ports = {__VA_ARGS__}
/* Attributes: with a default; with known words, of which the first is the default; without a
 * default; needed.  The last argument of an attribute that not all opsets have are these opsets. */
#define HAS(...) .attributes = (const wb__onnx_attr_row[]){__VA_ARGS__ {.type = 0}}
#define INT(...) {.type = WB__ONNX_IS_INT, .has_default = true, NAMED(.number, __VA_ARGS__)},
#define REAL(...) {.type = WB__ONNX_IS_FLOAT, .has_default = true, NAMED(.number, __VA_ARGS__)},
#define WORD(...) {.type = WB__ONNX_IS_STRING, .has_default = true, NAMED(.words, __VA_ARGS__)},
#define NAMED(value, text, ...) .name = text, value = __VA_ARGS__
#define MAY(kind, ...) {.type = WB__ONNX_IS_##kind, .name = __VA_ARGS__},
#define MUST(kind, ...) {.type = WB__ONNX_IS_##kind, .is_needed = true, .name = __VA_ARGS__},
#define FROM(opset) .from = opset
#define BEFORE(opset) .before = opset
#define DURING(first, opset) FROM(first), BEFORE(opset)
/* The bits of the inputs first .. last, and of one input. */
#define INPUTS(first, last) ((2u << (last)) - (1u << (first)))
#define INPUT(i) INPUTS(i, i)
/* What several rows have. */
#define AUTO_PAD WORD("auto_pad", "NOTSET VALID SAME_UPPER SAME_LOWER")
#define CONVOLUTION AUTO_PAD MAY(INTS, "dilations") INT("group", 1) MAY(INTS, "kernel_shape") \
    MAY(INTS, "pads") MAY(INTS, "strides")
#define RECURRENT MAY(FLOATS, "activation_alpha") MAY(FLOATS, "activation_beta") \
    MAY(STRINGS, "activations") MAY(FLOAT, "clip") \
    WORD("direction", "forward reverse bidirectional") MAY(INT, "hidden_size") \
    INT("layout", 0, FROM(14))
#define REDUCTION(by_input) PORTS({1, {1, 1}, {1, 1}}, {by_input, {1, 2}, {1, 1}}), \
    HAS(MAY(INTS, "axes", BEFORE(by_input)) INT("keepdims", 1) \
    INT("noop_with_empty_axes", 0, FROM(by_input))), .constants = INPUT(1)
#define EXTREME AT(1, 1, 1), HAS(INT("axis", 0) INT("keepdims", 1) \
    INT("select_last_index", 0, FROM(12)))
#define CUMULATIVE HAS(INT("exclusive", 0) INT("reverse", 0)), .constants = INPUT(1)
#define SOFTMAX AT(1, 1, 1), HAS(INT("axis", 1, BEFORE(13)) INT("axis", -1, FROM(13)))
#define WINDOW AT(17, 1, 1), HAS(INT("output_datatype", 1) INT("periodic", 1)), \
    .constants = INPUT(0)
#define RANDOM(...) HAS(__VA_ARGS__ MAY(FLOAT, "seed")), .is_random = true
#define SCATTER WORD("reduction", "none add mul", DURING(16, 18)) \
    WORD("reduction", "none add mul max min", FROM(18))
#define TRANSFORMS WORD("post_transform", "NONE SOFTMAX LOGISTIC SOFTMAX_ZERO PROBIT")
/* clang-format on */

#define ONNX_OP(operator, call, ...) \
    {.name = #operator, .domain = DOMAIN, .function = wb__onnx_##call, __VA_ARGS__},
#define ONNX_IS(operator, operation, ...) \
    {.name = #operator, .domain = DOMAIN, .function = wb__onnx_operation, \
     .op = WB__OP_##operation, __VA_ARGS__},
#define ONNX_FORMULA(operator, kind, expression, ...) \
    {.name = #operator, .domain = DOMAIN, .function = call_formula, .accepts = WB__ONNX_OF_##kind, \
     .formula = FORMULA(operator), __VA_ARGS__},
static const wb__onnx_operator operators[] = {
#define FORMULA(name) formula_##name
#define DOMAIN ""
#include "io/onnx/ops.def"
#undef DOMAIN
#define DOMAIN WB__ONNX_ML
#include "io/onnx/ops_ml.def"
#undef DOMAIN
#undef FORMULA
#define FORMULA(name) microsoft_formula_##name
#define DOMAIN "com.microsoft"
#include "io/onnx/ops_microsoft.def"
};

const wb__onnx_operator *wb__onnx_operators(int *n)
{
    *n = WB__COUNT(operators);
    return operators;
}

const wb__onnx_operator *wb__onnx_operator_of(wb__op op, int64_t opset)
{
    for (size_t i = 0; i < WB__COUNT(operators); i++)
        if (operators[i].op == op && !*operators[i].domain &&
            operators[i].ports[0].since <= opset)
            return &operators[i];
    return NULL;
}
