/* Writes elementwise operations of a model; wb__export_write_step finds the file for the others. */
#include "io/onnx/run.h"
#include "io/onnx/writer.h"

#include <math.h>

/* Writes the operator for the operation, with its numbers; NULL: the opset of the file has none. */
static const char *onnx_put_same_operator(wb__exporter *w, wb__op op, int n, const char *const *in)
{
    const wb__onnx_operator *o = wb__onnx_operator_of(op, WB__ONNX_WRITTEN);
    if (!o) return NULL;
    wb__export_begin(w, o->name, n, in);
    for (const wb__onnx_attr_row *a = o->attributes; a && a->type; a++)
        wb__export_put_float(w, a->name, a->number);
    return wb__export_end(w);
}

/* Writes log(1 + x) without loss of digits near 0: log(u) x / (u - 1) for the rounded u = 1 + x
 * (Higham 2002, section 1.14.1).  Where u is 1 nothing is divided by 0, also in gradients. */
static const char *onnx_put_log1p(wb__exporter *w, const char *x, wb_dtype t)
{
    const char *one = wb__export_number(w, t, 1), *u = WB__PUT(w, "Add", one, x);
    const char *log_u = WB__PUT(w, "Log", u), *tiny = WB__PUT(w, "Equal", u, one);
    const char *less = WB__PUT(w, "Where", tiny, one, WB__PUT(w, "Sub", u, one));
    const char *near = WB__PUT(w, "Mul", log_u, WB__PUT(w, "Div", x, less));
    const char *y = WB__PUT(w, "Where", WB__PUT(w, "Less", x, one), near, log_u);
    return WB__PUT(w, "Where", tiny, x, y);
}

/* Writes v = 2 sqrt(2/pi) (x + 0.044715 x^3), of which gelu(x) / x is the sigmoid; or its slope. */
static const char *onnx_put_gelu_inside(wb__exporter *w, const char *x, wb_dtype t, bool slope)
{
    const double c = 1.5957691216057308, a = 0.044715;
    const char *square = WB__PUT(w, "Mul", x, x);
    const char *cubic = WB__PUT(w, "Mul", square, wb__export_number(w, t, (slope ? 3 : 1) * a * c));
    const char *factor = WB__PUT(w, "Add", cubic, wb__export_number(w, t, c));
    return slope ? factor : WB__PUT(w, "Mul", x, factor);
}

/* Writes the slope of gelu, s + x s (1 - s) dv/dx with s = sigmoid(v) (v: onnx_put_gelu_inside). */
static const char *onnx_put_gelu_slope(wb__exporter *w, const char *x, wb_dtype t)
{
    const char *s = WB__PUT(w, "Sigmoid", onnx_put_gelu_inside(w, x, t, false));
    const char *rest = WB__PUT(w, "Sub", wb__export_number(w, t, 1), s);
    const char *y = WB__PUT(w, "Mul", WB__PUT(w, "Mul", s, rest),
                            onnx_put_gelu_inside(w, x, t, true));
    return WB__PUT(w, "Add", s, WB__PUT(w, "Mul", x, y));
}

static const char *onnx_put_gelu_erf(wb__exporter *w, const char *x, wb_dtype t)
{
    const char *inside = WB__PUT(w, "Div", x, wb__export_number(w, t, 1.4142135623730951));
    const char *y = WB__PUT(w, "Add", WB__PUT(w, "Erf", inside), wb__export_number(w, t, 1));
    return WB__PUT(w, "Mul", WB__PUT(w, "Mul", x, y), wb__export_number(w, t, 0.5));
}

static const char *onnx_put_times(wb__exporter *w, const char *x, const char *y)
{
    return WB__PUT(w, "Mul", x, y);
}

/* Writes an operation of one operand that needs several operators. */
static const char *onnx_put_unary(wb__exporter *w, wb__op op, const char *x, wb_dtype t)
{
    switch (op) {
    case WB__OP_square: return onnx_put_times(w, x, x);
    case WB__OP_rsqrt: return WB__PUT(w, "Reciprocal", WB__PUT(w, "Sqrt", x));
    case WB__OP_log1p: return onnx_put_log1p(w, x, t);
    case WB__OP_logsigmoid:
        return WB__PUT(w, "Neg", WB__PUT(w, "Softplus", WB__PUT(w, "Neg", x)));
    case WB__OP_swish: return onnx_put_times(w, x, WB__PUT(w, "Sigmoid", x));
    case WB__OP_gelu:
        return onnx_put_times(w, x, WB__PUT(w, "Sigmoid", onnx_put_gelu_inside(w, x, t, false)));
    case WB__OP_gelu_slope: return onnx_put_gelu_slope(w, x, t);
    case WB__OP_gelu_erf: return onnx_put_gelu_erf(w, x, t);
    case WB__OP_mish: return onnx_put_times(w, x, WB__PUT(w, "Tanh", WB__PUT(w, "Softplus", x)));
    case WB__OP_isfinite:
        return WB__PUT(w, "Less", WB__PUT(w, "Abs", x), wb__export_number(w, t, INFINITY));
    default: return NULL;
    }
}

/* Returns the dtype in which operations are computed: i32 for 8-bit integers, for which runtimes
 * have all operators; the results wrap around when they are cast back. */
static wb_dtype onnx_put_computed(wb_dtype t) { return t == WB_I8 || t == WB_U8 ? WB_I32 : t; }

/* Returns operand k of a step.  A literal is a number without dimensions if another operand has the
 * dimensions of the result. */
static const char *onnx_put_op_operand(wb__exporter *w, int step, int k)
{
    const int i = wb__export_operand(w, step, k);
    const wb_dtype t = wb__export_dtype_of(w, i);
    bool alone = false;
    for (int j = 0; j < w->steps[step].n_in && wb__export_x(w, i)->op == WB__OP_literal; j++) {
        const int other = wb__export_operand(w, step, j);
        alone |= j != k && wb__export_x(w, other)->op != WB__OP_literal &&
                  wb__export_has_dims(w, other, step);
    }
    const char *x = alone ? wb__export_literal_number(w, i) : wb__export_value(w, i);
    return wb__export_cast(w, x, t, onnx_put_computed(t));
}

/* Writes a quotient.  A quotient of integers by 0 is 0. */
static const char *onnx_put_divide(wb__exporter *w, int step, const char *x, const char *y,
                                   wb_dtype t)
{
    const wb_tensor *divisor = wb__export_x(w, wb__export_operand(w, step, 1));
    const bool checked = !wb__dtype_float(t) &&
                         !(divisor->op == WB__OP_literal && divisor->number[0].f != 0);
    if (!checked) return WB__PUT(w, "Div", x, y);
    const char *zero = wb__export_number(w, t, 0), *none = WB__PUT(w, "Equal", y, zero);
    const char *some = WB__PUT(w, "Where", none, wb__export_number(w, t, 1), y);
    return WB__PUT(w, "Where", none, zero, WB__PUT(w, "Div", x, some));
}

/* Writes a cast.  bf16 is stored as f32, and rounded where the model rounds it. */
static const char *onnx_put_cast(wb__exporter *w, int step)
{
    const int i = wb__export_operand(w, step, 0);
    const wb_dtype from = wb__export_dtype_of(w, i), to = (wb_dtype)wb__export_x(w, step)->dtype;
    const char *x = wb__export_value(w, i);
    if (to != WB_BF16) return wb__export_cast(w, x, from, to);
    return wb__export_cast(w, wb__export_cast(w, x, from, WB_BF16), WB_BF16, WB_F32);
}

const char *wb__export_write_elementwise(wb__exporter *w, int step)
{
    const wb__op op = (wb__op)wb__export_x(w, step)->op;
    const wb_dtype result = wb__export_dtype_of(w, step);
    const char *in[3] = {NULL}, *y;
    if (!wb__is_elementwise(op)) return NULL;
    if (op == WB__OP_cast) return onnx_put_cast(w, step);
    const int n = w->steps[step].n_in;
    for (int k = 0; k < n; k++) in[k] = onnx_put_op_operand(w, step, k);
    const wb_dtype t = onnx_put_computed(
        wb__export_dtype_of(w, wb__export_operand(w, step, n - 1)));
    if (op == WB__OP_where) y = wb__export_where(w, in[0], in[1], in[2], t);
    else if (op == WB__OP_ne) y = WB__PUT(w, "Not", WB__PUT(w, "Equal", in[0], in[1]));
    else if (op == WB__OP_div) y = onnx_put_divide(w, step, in[0], in[1], t);
    else if (!(y = onnx_put_same_operator(w, op, n, in))) y = onnx_put_unary(w, op, in[0], t);
    return y ? wb__export_cast(w, y, result == WB_BOOL ? WB_BOOL : t, result) : NULL;
}

/* Whether a file has the operation's first operand in place of the operation. */
static bool onnx_put_is_identity(wb__op op)
{
    return op == WB__OP_stop || op == WB__OP_automatic || op == WB__OP_custom ||
           op == WB__OP_moved || op == WB__OP_assign || op == WB__OP_attention_cached;
}

static const char *onnx_put_write(wb__exporter *w, int step)
{
    const wb_tensor *x = wb__export_x(w, step);
    const wb__op op = (wb__op)x->op;
    if (onnx_put_is_identity(op)) return wb__export_value(w, wb__export_operand(w, step, 0));
    const char *y = w->steps[step].group.kind ? NULL : wb__export_write_elementwise(w, step);
    if (!y) y = wb__export_write_product(w, step);
    if (!y) y = wb__export_write_move(w, step);
    if (!y) y = wb__export_write_rows(w, step);
    if (y) return y;
    if (op == WB__OP_host)
        return wb__export_cannot(w, "is a C function (wb_host_operation, or an operation of linear "
                                 "algebra), which ONNX has not");
    if (op == WB__OP_collective)
        return wb__export_cannot(w, "is an operation of the ranks of a communicator");
    if (op == WB__OP_linear_int8)
        return wb__export_cannot(w, "has i8 weights, which files of ONNX do not get: save the "
                                 "model from which wb_quantize made this one");
    return wb__export_cannot(w, "is an operation of gradients or of an optimiser, for which opset "
                             "17 has no operator");
}

void wb__export_write_step(wb__exporter *w, int step)
{
    w->steps[step].name = onnx_put_write(w, step);
}
