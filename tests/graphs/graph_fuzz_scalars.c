/* Numbers with bounds of their errors.  Every arithmetic operation on elements appends one; a
 * gradient walks back over them and appends more, so gradients have gradients.
 *
 * An operation whose operands are exact and whose result the dtype can represent is exact.
 * Otherwise the bound is the effect of the operands' errors plus the rounding of the result.  f16
 * and bf16 are computed in f32 and rounded when they are stored: the bound includes both. */
#include "graph_fuzz.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

number *numbers;
int n_numbers;
bool exact_division = true, in_gradient;
static int *operands, n_operands, operand_capacity;

bool is_float(wb_dtype t) { return t == WB_F32 || t == WB_F64 || t == WB_F16 || t == WB_BF16; }

/* The precision of a dtype in bits. */
static int bits_of(wb_dtype t)
{
    return t == WB_F64 ? 53 : t == WB_F16 ? 11 : t == WB_BF16 ? 8 : 24;
}
static int least_of(wb_dtype t)
{
    return t == WB_F64 ? -1074 : t == WB_F16 ? -24 : t == WB_BF16 ? -133 : -149;
}

double greatest(wb_dtype t)
{
    return t == WB_F64 ? DBL_MAX : t == WB_F16 ? 65504 : t == WB_BF16 ? 0x1.fep127 : FLT_MAX;
}

double rounded(wb_dtype t, double v)
{
    if (!isfinite(v) || v == 0 || t == WB_F64) return v;
    int exponent;
    frexp(v, &exponent);
    int unit = exponent - bits_of(t);
    if (unit < least_of(t)) unit = least_of(t);
    double y = ldexp(nearbyint(ldexp(v, -unit)), unit);
    return fabs(y) > greatest(t) ? copysign(INFINITY, v) : y;
}

int64_t wrapped(wb_dtype t, int64_t i)
{
    switch (t) {
    case WB_I8: return (int8_t)(uint8_t)i;
    case WB_U8: return (uint8_t)i;
    case WB_I32: return (int32_t)(uint32_t)i;
    case WB_BOOL: return i != 0;
    default: return i;
    }
}

/* ---- one number ------------------------------------------------------------------------------ */

static int capacity;

static number *append(uint8_t op, wb_dtype t)
{
    if (n_numbers == capacity) {
        capacity = capacity ? 2 * capacity : 4096;
        numbers = realloc(numbers, (size_t)capacity * sizeof *numbers);
        if (!numbers) abort();
    }
    number *x = &numbers[n_numbers++];
    memset(x, 0, sizeof *x);
    x->op = op;
    x->dtype = (uint8_t)t;
    return x;
}

void num_forget(void)
{
    n_numbers = n_operands = 0;
}

static int append_operands(int n, const int *x)
{
    if (n_operands + n > operand_capacity) {
        operand_capacity = 2 * (n_operands + n) + 1024;
        operands = realloc(operands, (size_t)operand_capacity * sizeof *operands);
        if (!operands) abort();
    }
    if (n) memcpy(operands + n_operands, x, (size_t)n * sizeof *x);
    n_operands += n;
    return n_operands - n;
}

const int *num_operands(const number *x) { return operands + x->a; }

static double unit_of(wb_dtype t) { return ldexp(1, -bits_of(t)); }

/* The rounding error of v, which is computed within `ulps` units; f16 and bf16 also have f32's. */
static double rounding(wb_dtype t, double v, double ulps)
{
    double inner = t == WB_F16 || t == WB_BF16 ? unit_of(WB_F32) : unit_of(t);
    double tiny = t == WB_F64 ? 1e-300 : 1e-37;
    double outer = t == WB_F16 || t == WB_BF16 ? unit_of(t) * fabs(v) + ldexp(1, least_of(t)) : 0;
    return inner * fabs(v) * ulps + outer + tiny;
}

/* Sets value and error of the newest number. */
static int finish(double v, double error)
{
    number *x = &numbers[n_numbers - 1];
    x->v = v;
    x->error = error;
    bool over = isfinite(v) && fabs(v) + error > greatest((wb_dtype)x->dtype);
    if (!(error < 1e30) || (!isfinite(v) && (error > 0 || in_gradient)) || over)
        x->error = INFINITY;
    return n_numbers - 1;
}

static bool representable(wb_dtype t, double v) { return rounded(t, v) == v; }

int num_real_within(wb_dtype t, double v, double error)
{
    append(CONSTANT, t);
    return finish(v, error);
}

int num_real(wb_dtype t, double v) { return num_real_within(t, v, 0); }

int num_integer(wb_dtype t, int64_t i, bool known)
{
    number *x = append(CONSTANT, t);
    x->i = wrapped(t, i);
    x->error = known ? 0 : t == WB_BOOL ? 1 : INFINITY;
    return n_numbers - 1;
}

/* ---- functions ------------------------------------------------------------------------------- */

static double sigmoid(double x)
{
    double e = exp(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

static double slope_of_gelu(double x)
{
    double c = fmax(-40, fmin(40, x)), a = 0.7978845608028654;
    double t = tanh(a * (c + 0.044715 * c * c * c));
    double y = 0.5 * (1 + t) + 0.5 * c * (1 - t * t) * a * (1 + 3 * 0.044715 * c * c);
    return isnan(x) ? x : y;
}

static double function(int f, double x)
{
    switch (f) {
    case U_neg: return -x;
    case U_abs: return fabs(x);
    case U_sign: return x > 0 ? 1 : x < 0 ? -1 : x;
    case U_square: return x * x;
    case U_sqrt: return sqrt(x);
    case U_rsqrt: return 1 / sqrt(x);
    case U_reciprocal: return 1 / x;
    case U_exp: return exp(x);
    case U_log: return log(x);
    case U_log1p: return log1p(x);
    case U_sin: return sin(x);
    case U_cos: return cos(x);
    case U_erf: return erf(x);
    case U_floor: return floor(x);
    case U_relu: return x < 0 ? 0 : x;
    case U_leakyrelu: return x > 0 ? x : 0.01 * x;
    case U_elu: return x > 0 ? x : expm1(x);
    case U_selu: return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * expm1(x));
    case U_sigmoid: return sigmoid(x);
    case U_logsigmoid: return isnan(x) ? x : fmin(x, 0) - log1p(exp(-fabs(x)));
    case U_tanh: return tanh(x);
    case U_softplus: return isnan(x) ? x : fmax(x, 0) + log1p(exp(-fabs(x)));
    case U_swish: return x * sigmoid(x);
    case U_mish: return x * tanh(isnan(x) ? x : fmax(x, 0) + log1p(exp(-fabs(x))));
    case U_hardswish: return isnan(x) ? x : x * (x <= -3 ? 0 : x >= 3 ? 1 : (x + 3) / 6);
    case U_hardshrink: return x < -0.5 ? x : x <= 0.5 ? 0 : x;
    case U_gelu: return x * sigmoid(2 * 0.7978845608028654 * (x + 0.044715 * x * x * x));
    case U_gelu_erf: return 0.5 * x * erfc(-x * 0.70710678118654752);
    case U_gelu_slope: return slope_of_gelu(x);
    default: abort();
    }
}

/* True if f(x) = y is exact in the dtype, and the library's result is equal to it. */
static bool exact_function(int f, double x, double y, wb_dtype t)
{
    switch (f) {
    case U_neg: case U_abs: case U_sign: case U_floor: case U_relu: return true;
    case U_square: return fma(x, x, -y) == 0 && representable(t, y);
    case U_sqrt: return exact_division && fma(y, y, -x) == 0 && representable(t, y);
    case U_reciprocal: return exact_division && fma(x, y, -1) == 0 && representable(t, y);
    case U_leakyrelu: return x >= 0;
    case U_elu: return x >= 0;
    default: return false;
    }
}

/* The greatest change of f over [x - e, x + e].  The functions are monotone between their extrema,
 * which are far apart. */
static double spread_of(int f, double x, double y, double e)
{
    double most = 0;
    if (e == 0) return 0;
    for (int i = -4; i <= 4; i++) {
        double z = function(f, x + e * i / 4);
        if (!isfinite(z)) return INFINITY;
        most = fmax(most, fabs(z - y));
    }
    return 1.25 * most;
}

static int64_t integer_function(int f, int64_t x)
{
    switch (f) {
    case U_neg: return (int64_t)(0 - (uint64_t)x);
    case U_abs: return x < 0 ? (int64_t)(0 - (uint64_t)x) : x;
    case U_sign: return (x > 0) - (x < 0);
    case U_square: return (int64_t)((uint64_t)x * (uint64_t)x);
    default: abort();
    }
}

int num_unary(int f, wb_dtype t, int a)
{
    const number x = numbers[a];
    if (!is_float(t)) return num_integer(t, integer_function(f, x.i), x.error == 0);
    double y = function(f, x.v), error = spread_of(f, x.v, y, x.error);
    if (!isfinite(x.v) && x.error == 0 && (f == U_sin || f == U_cos || f >= U_gelu))
        error = INFINITY;
    if (isfinite(y) && !(x.error == 0 && exact_function(f, x.v, y, t))) {
        bool simple = f <= U_reciprocal || f == U_relu || f == U_floor;
        if (!(f == U_neg || f == U_abs || f == U_sign || f == U_floor || f == U_relu))
            error += rounding(t, y, simple ? 4 : 16);
        if (f >= U_elu) error += rounding(wide(t), x.v, 8);
        if (f == U_gelu_slope) error += 64 * unit_of(wide(t));
    }
    bool by_zero = x.v == 0 && (f == U_reciprocal || f == U_rsqrt);
    if (isnan(error) || by_zero) error = INFINITY;     /* a zero may have either sign */
    number *n = append(UNARY, t);
    n->a = a;
    n->b = f;
    return finish(y, error);
}

/* ---- two operands ---------------------------------------------------------------------------- */

static int integer_binary(int f, wb_dtype t, const number *x, const number *y)
{
    uint64_t a = (uint64_t)x->i, b = (uint64_t)y->i;
    int64_t r = 0;
    switch (f) {
    case B_add: r = (int64_t)(a + b); break;
    case B_sub: r = (int64_t)(a - b); break;
    case B_mul: r = (int64_t)(a * b); break;
    case B_div: r = y->i == 0 ? 0 : y->i == -1 ? (int64_t)(0 - a) : x->i / y->i; break;
    case B_maximum: r = x->i > y->i ? x->i : y->i; break;
    case B_minimum: r = x->i < y->i ? x->i : y->i; break;
    default: abort();
    }
    return num_integer(t, r, x->error == 0 && y->error == 0);
}

static double quotient_error(const number *x, const number *y, double r)
{
    double least = fabs(y->v) - y->error;
    if (x->error == 0 && y->error == 0) return 0;
    return least > 0 ? (x->error + fabs(r) * y->error) / least : INFINITY;
}

static double power_error(const number *x, const number *y, double r)
{
    double most = 0;
    if (x->error == 0 && y->error == 0) return 0;
    for (int i = -1; i <= 1; i++)
        for (int j = -1; j <= 1; j++) {
            double z = pow(x->v + i * x->error, y->v + j * y->error);
            if (!isfinite(z)) return INFINITY;
            most = fmax(most, fabs(z - r));
        }
    return 2 * most;
}

/* The value; `error`: the effect of the operands' errors; `exact`: it has no rounding error. */
static double binary(int f, const number *x, const number *y, double *error, bool *exact)
{
    double r, back;
    *exact = false;
    switch (f) {
    case B_add: case B_sub: {
        double b = f == B_add ? y->v : -y->v;
        r = x->v + b;
        *error = x->error + y->error;
        back = r - x->v;
        *exact = (x->v - (r - back)) + (b - back) == 0;
        return r;
    }
    case B_mul:
        r = x->v * y->v;
        *error = x->error == 0 && y->error == 0 ? 0
               : fabs(x->v) * y->error + fabs(y->v) * x->error + x->error * y->error;
        *exact = fma(x->v, y->v, -r) == 0;
        return r;
    case B_div:
        r = x->v / y->v;
        *error = quotient_error(x, y, r);
        *exact = exact_division && fma(r, y->v, -x->v) == 0;
        return r;
    case B_pow:
        r = pow(x->v, y->v);
        *error = power_error(x, y, r);
        return r;
    default: abort();
    }
}

int num_binary(int f, wb_dtype t, int a, int b)
{
    const number x = numbers[a], y = numbers[b];
    if (!is_float(t)) return integer_binary(f, t, &x, &y);
    if (f >= B_maximum) return num_extreme(t, 2, (int[]){a, b}, f == B_minimum, true);
    double error;
    bool exact;
    double r = binary(f, &x, &y, &error, &exact);
    if (isnan(error)) error = INFINITY;
    bool known = x.error == 0 && y.error == 0;
    if (isfinite(r) && !(known && exact && representable(t, r)))
        error += rounding(t, r, f == B_pow ? 16 : 3);
    if (!isfinite(r) && known && isfinite(x.v) && isfinite(y.v)) error = INFINITY;
    number *n = append(BINARY, t);
    n->a = a;
    n->b = b;
    n->c = f;
    return finish(r, error);
}

static bool holds(int f, double x, double y)
{
    switch (f) {
    case C_eq: return x == y;
    case C_ne: return x != y;
    case C_lt: return x < y;
    case C_le: return x <= y;
    case C_gt: return x > y;
    case C_ge: return x >= y;
    case C_and: return x != 0 && y != 0;
    default: return x != 0 || y != 0;
    }
}

int num_compare(int f, int a, int b)
{
    const number x = numbers[a], y = numbers[b];
    if (is_float((wb_dtype)x.dtype)) {
        double e = 2 * (x.error + y.error);
        bool known = e == 0 || (isfinite(e) && fabs(x.v - y.v) > e);
        return num_integer(WB_BOOL, holds(f, x.v, y.v), known);
    }
    bool known = x.error == 0 && y.error == 0;
    bool r =
        f < C_and ? holds(f, (double)((x.i > y.i) - (x.i < y.i)), 0) : holds(f, x.i != 0, y.i != 0);
    return num_integer(WB_BOOL, r, known);
}

int num_select(int condition, int a, int b)
{
    const number c = numbers[condition], x = numbers[a], y = numbers[b];
    wb_dtype t = (wb_dtype)x.dtype;
    if (!is_float(t)) {
        const number *r = c.i ? &x : &y;
        return num_integer(t, r->i, (c.error == 0 || x.i == y.i) && r->error == 0);
    }
    number *n = append(SELECT, t);
    n->a = condition;
    n->b = a;
    n->c = b;
    if (c.error == 0) return finish(c.i ? x.v : y.v, c.i ? x.error : y.error);
    double apart = fabs(x.v - y.v);
    return finish(c.i ? x.v : y.v, fmax(x.error, y.error) + (isnan(apart) ? INFINITY : apart));
}

/* ---- from dtype to dtype --------------------------------------------------------------------- */

static double least_integer(wb_dtype t)
{
    return t == WB_I8 ? -128 : t == WB_U8 ? 0 : t == WB_I32 ? INT32_MIN : (double)INT64_MIN;
}

static int64_t truncated(wb_dtype t, double v)
{
    double most = t == WB_I8 ? 127 : t == WB_U8 ? 255 : t == WB_I32 ? INT32_MAX : 0x1p63;
    if (isnan(v)) return 0;
    if (v <= least_integer(t)) return (int64_t)least_integer(t);
    if (v >= most) return t == WB_I64 ? INT64_MAX : (int64_t)most;
    return (int64_t)v;
}

int num_cast(wb_dtype t, int a)
{
    const number x = numbers[a];
    wb_dtype from = (wb_dtype)x.dtype;
    if (is_float(from) && t == WB_BOOL)
        return num_integer(t, x.v != 0, x.error == 0 || fabs(x.v) > 2 * x.error);
    if (is_float(from) && !is_float(t)) {
        bool known = isfinite(x.error) &&
                     truncated(t, x.v - 2 * x.error) == truncated(t, x.v + 2 * x.error);
        return num_integer(t, truncated(t, x.v), known || x.error == 0);
    }
    if (!is_float(t)) return num_integer(t, t == WB_BOOL ? x.i != 0 : x.i, x.error == 0);
    double v = is_float(from) ? x.v
               : t == WB_F32  ? (double)(float)x.i
                              : (double)x.i,
           error = x.error;
    number *n = append(CAST, t);
    n->a = a;
    if (error == 0 && t == WB_F32) v = (double)(float)v;
    if (isfinite(v) && !(error == 0 && representable(t, v))) error += rounding(t, v, 1);
    return finish(v, error);
}

/* ---- many operands --------------------------------------------------------------------------- */

/* the exponent of the lowest bit that is set */
static int lowest_bit(double v)
{
    int exponent;
    if (v == 0 || !isfinite(v)) return 4000;
    int64_t m = (int64_t)ldexp(fabs(frexp(v, &exponent)), 53);
    return exponent - 53 + __builtin_ctzll((unsigned long long)m);
}

static int finish_sum(wb_dtype t, int n, double v, double error, double size, int lowest)
{
    if (isnan(error)) error = INFINITY;
    bool exact = error == 0 && (size == 0 || (lowest < 4000 && isfinite(size) &&
                                              size < ldexp(1, bits_of(wide(t)) + lowest)));
    if (isfinite(v) && !exact) error += (n + 4) * unit_of(wide(t)) * size;
    if (isfinite(v) && !(exact && representable(t, v))) error += rounding(t, v, 1);
    return finish(v, error);
}

int num_sum(wb_dtype t, int n, const int *x)
{
    if (!is_float(t)) {
        uint64_t s = 0;
        bool known = true;
        for (int i = 0; i < n; i++) {
            s += (uint64_t)numbers[x[i]].i;
            known &= numbers[x[i]].error == 0;
        }
        return num_integer(t, (int64_t)s, known);
    }
    int list = append_operands(n, x), lowest = 4000;
    number *sum = append(SUM, t);
    sum->a = list;
    sum->b = n;
    double v = 0, error = 0, size = 0;
    for (int i = 0; i < n; i++) {
        const number *y = &numbers[operands[list + i]];
        int low = lowest_bit(y->v);
        v += y->v;
        size += fabs(y->v);
        error += y->error;
        lowest = low < lowest ? low : lowest;
    }
    if (in_gradient && (t == WB_F16 || t == WB_BF16)) error += 4 * unit_of(t) * size;
    return finish_sum(t, n, v, error, size, lowest);
}

int num_dot(wb_dtype t, int n, const int *x, const int *y)
{
    int list = append_operands(n, x), lowest = 4000;
    append_operands(n, y);
    number *sum = append(DOT, t);
    sum->a = list;
    sum->b = n;
    double v = 0, error = 0, size = 0;
    for (int i = 0; i < n; i++) {
        const number *a = &numbers[operands[list + i]], *b = &numbers[operands[list + n + i]];
        int low = a->v == 0 || b->v == 0 ? 4000 : lowest_bit(a->v) + lowest_bit(b->v);
        v += a->v * b->v;
        size += fabs(a->v * b->v);
        error += fabs(a->v) * b->error + fabs(b->v) * a->error + a->error * b->error;
        lowest = low < lowest ? low : lowest;
    }
    return finish_sum(t, n, v, isfinite(v) ? error : INFINITY, size, lowest);
}

/* A product with 1/n, which is rounded unless n is a power of two. */
int num_mean(wb_dtype t, int n, const int *x, int64_t count)
{
    bool exact = !(count & (count - 1));
    int share = num_real_within(t, 1 / (double)count, exact ? 0 : unit_of(wide(t)) / (double)count);
    return num_binary(B_mul, t, num_sum(t, n, x), share);
}

int num_extreme(wb_dtype t, int n, const int *x, bool least, bool first)
{
    double sign = least ? -1 : 1;
    if (!is_float(t)) {
        int64_t best = numbers[x[0]].i;
        bool known = true;
        for (int i = 0; i < n; i++) {
            int64_t y = numbers[x[i]].i;
            if (least ? y < best : y > best) best = y;
            known &= numbers[x[i]].error == 0;
        }
        return num_integer(t, best, known);
    }
    int list = append_operands(n, x);
    number *top = append(EXTREME, t);
    top->a = list;
    top->b = n;
    top->c = least | first << 1;
    double v = -INFINITY, error = 0;
    for (int i = 0; i < n; i++) {
        const number *y = &numbers[operands[list + i]];
        if (isnan(y->v) || isnan(v)) v = NAN;
        else v = fmax(v, sign * y->v);
        error = fmax(error, y->error);
    }
    return finish(sign * v, error);
}

int num_argmax(int n, const int *x)
{
    int best = 0;
    bool known = true;
    if (!is_float((wb_dtype)numbers[x[0]].dtype)) {
        for (int i = 0; i < n; i++) {
            if (numbers[x[i]].i > numbers[x[best]].i) best = i;
            known &= numbers[x[i]].error == 0;
        }
        return num_integer(WB_I32, best, known);
    }
    for (int i = 0; i < n; i++) {
        double y = numbers[x[i]].v, top = numbers[x[best]].v;
        if ((y > top && !isnan(top)) || (isnan(y) && !isnan(top))) best = i;
    }
    for (int i = 0; i < n; i++) {
        double apart = 2 * (numbers[x[i]].error + numbers[x[best]].error);
        if (i != best && apart > 0 && !(numbers[x[best]].v - numbers[x[i]].v > apart))
            known = false;
        if (!isfinite(numbers[x[i]].error)) known = false;
    }
    return num_integer(WB_I32, best, known);
}
