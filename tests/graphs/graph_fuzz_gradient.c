/* Derivatives of the interpreter's numbers: a walk from the last number back, which appends the
 * derivatives as numbers. */
#include "graph_fuzz.h"

#include <math.h>
#include <stdlib.h>

typedef struct { int g, next; } contribution;

static contribution *given;
static int n_given, given_capacity, *first, first_capacity;

static void give(int to, int g)
{
    if (n_given == given_capacity) {
        given_capacity = given_capacity ? 2 * given_capacity : 1024;
        given = realloc(given, (size_t)given_capacity * sizeof *given);
        if (!given) abort();
    }
    given[n_given] = (contribution){g, first[to]};
    first[to] = n_given++;
}

static int total(int of)
{
    static int *list, capacity;
    int n = 0;
    for (int i = first[of]; i >= 0; i = given[i].next) {
        if (n == capacity) {
            capacity = capacity ? 2 * capacity : 1024;
            list = realloc(list, (size_t)capacity * sizeof *list);
            if (!list) abort();
        }
        list[n++] = given[i].g;
    }
    return n == 1 ? list[0] : num_sum((wb_dtype)numbers[of].dtype, n, list);
}

/* ---- rules ----------------------------------------------------------------------------------- */

#define NUM(v) num_real(t, v)
#define F(name, x) num_unary(U_##name, t, x)
#define MUL(x, y) num_binary(B_mul, t, x, y)
#define DIV(x, y) num_binary(B_div, t, x, y)
#define ADD(x, y) num_binary(B_add, t, x, y)
#define SUB(x, y) num_binary(B_sub, t, x, y)
#define IF_POSITIVE(x, y, z) num_select(num_compare(C_gt, x, NUM(0)), y, z)

/* The derivative of gelu_slope: s (u' + x (u''/2 - t u'^2)) with u = c (x + a x^3), t = tanh u and
 * s = 1 - t^2. */
static int slope_of_gelu_slope(wb_dtype t, int x)
{
    const double c = 0.7978845608028654, a = 0.044715;
    int square = F(square, x);
    int h = F(tanh, MUL(MUL(NUM(c), x), ADD(NUM(1), MUL(NUM(a), square))));
    int s = SUB(NUM(1), F(square, h)), u1 = MUL(NUM(c), ADD(NUM(1), MUL(NUM(3 * a), square)));
    int u2 = MUL(NUM(3 * a * c), x);
    return MUL(s, ADD(u1, MUL(x, SUB(u2, MUL(h, F(square, u1))))));
}

/* f'(x), with y = f(x); -1 if f has no derivative */
static int slope(int f, wb_dtype t, int x, int y)
{
    int s;
    switch (f) {
    case U_neg: return NUM(-1);
    case U_abs: return F(sign, x);
    case U_square: return MUL(NUM(2), x);
    case U_sqrt: return DIV(NUM(0.5), y);
    case U_rsqrt: return MUL(NUM(-0.5), MUL(y, F(square, y)));
    case U_reciprocal: return F(neg, F(square, y));
    case U_exp: return y;
    case U_log: return F(reciprocal, x);
    case U_log1p: return F(reciprocal, ADD(NUM(1), x));
    case U_sin: return F(cos, x);
    case U_cos: return F(neg, F(sin, x));
    case U_erf: return MUL(NUM(1.1283791670955126), F(exp, F(neg, F(square, x))));
    case U_relu: return IF_POSITIVE(x, NUM(1), NUM(0));
    case U_leakyrelu: return IF_POSITIVE(x, NUM(1), NUM(0.01));
    case U_elu: return IF_POSITIVE(x, NUM(1), ADD(y, NUM(1)));
    case U_selu:
        return IF_POSITIVE(x, NUM(1.0507009873554805), ADD(y, NUM(1.7580993408473766)));
    case U_sigmoid: return MUL(y, SUB(NUM(1), y));
    case U_logsigmoid: return F(sigmoid, F(neg, x));
    case U_tanh: return SUB(NUM(1), F(square, y));
    case U_softplus: return F(sigmoid, x);
    case U_swish: s = F(sigmoid, x); return ADD(y, MUL(s, SUB(NUM(1), y)));
    case U_gelu: return F(gelu_slope, x);
    case U_hardswish:
        s = MUL(ADD(MUL(NUM(2), x), NUM(3)), NUM(1.0 / 6));
        s = num_select(num_compare(C_ge, x, NUM(3)), NUM(1), s);
        return num_select(num_compare(C_gt, x, NUM(-3)), s, NUM(0));
    case U_hardshrink: return num_select(num_compare(C_eq, y, NUM(0)), NUM(0), NUM(1));
    case U_mish:
        s = F(tanh, F(softplus, x));
        return ADD(s, MUL(MUL(x, F(sigmoid, x)), SUB(NUM(1), F(square, s))));
    case U_gelu_slope: return slope_of_gelu_slope(t, x);
    case U_gelu_erf:
        s = MUL(NUM(0.5), ADD(NUM(1), F(erf, MUL(x, NUM(0.70710678118654752)))));
        return ADD(s, MUL(MUL(x, NUM(0.3989422804014327)), F(exp, MUL(NUM(-0.5), F(square, x)))));
    default: return -1;
    }
}

static void through_binary(number n, wb_dtype t, int g, const bool *needed)
{
    int x = n.a, y = n.b, r;
    switch (n.c) {
    case B_add:
        if (needed[x]) give(x, g);
        if (needed[y]) give(y, g);
        return;
    case B_sub:
        if (needed[x]) give(x, g);
        if (needed[y]) give(y, F(neg, g));
        return;
    case B_mul:
        if (needed[x]) give(x, MUL(g, y));
        if (needed[y]) give(y, MUL(g, x));
        return;
    case B_div:
        if (needed[x]) give(x, DIV(g, y));
        if (needed[y]) give(y, F(neg, DIV(MUL(g, x), F(square, y))));
        return;
    default:
        if (needed[x]) {
            r = MUL(g, MUL(y, num_binary(B_pow, t, x, SUB(y, NUM(1)))));
            give(x, num_select(num_compare(C_eq, y, NUM(0)), NUM(0), r));
        }
        if (needed[y]) {
            r = MUL(g, MUL(num_binary(B_pow, t, x, y), F(log, x)));
            give(y, IF_POSITIVE(x, r, NUM(0)));
        }
    }
}

/* The gradient of a maximum or minimum goes to its first element, or in equal shares to all equal
 * elements. */
static void through_extreme(number n, double v, wb_dtype t, int g, const bool *needed)
{
    int equal = 0;
    bool doubtful = false, only_first = n.c & 2;
    for (int i = 0; i < n.b; i++) {
        const number *x = &numbers[num_operands(&n)[i]];
        bool near = fabs(x->v - v) <= 2 * (x->error + n.error) || !isfinite(x->v);
        if (x->error == 0 && n.error == 0) equal += x->v == v;
        else if (near) doubtful = true, equal++;
    }
    bool taken = false;
    for (int i = 0; i < n.b; i++) {
        int x = num_operands(&n)[i];
        bool here = numbers[x].v == v && !(only_first && taken);
        taken |= numbers[x].v == v;
        if (!needed[x]) continue;
        if (isnan(v)) give(x, num_real_within(t, 0, INFINITY));
        else if (doubtful && equal > 1) give(x, MUL(g, num_real_within(t, 0.5, 0.5)));
        else if (here) give(x, only_first || equal < 2 ? g : DIV(g, NUM(equal)));
    }
}

static void through(int i, int g, const bool *needed)
{
    const number n = numbers[i];
    wb_dtype t = (wb_dtype)n.dtype;
    int s;
    switch (n.op) {
    case UNARY:
        s = slope(n.b, t, n.a, i);
        if (s >= 0) give(n.a, MUL(g, s));
        break;
    case BINARY: through_binary(n, t, g, needed); break;
    case SELECT:
        s = numbers[n.a].error == 0 ? -1 : MUL(g, num_real_within(t, 0.5, 0.5));
        if (needed[n.b] && (s >= 0 || numbers[n.a].i)) give(n.b, s >= 0 ? s : g);
        if (needed[n.c] && (s >= 0 || !numbers[n.a].i)) give(n.c, s >= 0 ? s : g);
        break;
    case CAST: give(n.a, num_cast((wb_dtype)numbers[n.a].dtype, g)); break;
    case SUM:
        for (int k = 0; k < n.b; k++)
            if (needed[num_operands(&n)[k]]) give(num_operands(&n)[k], g);
        break;
    case DOT:
        for (int k = 0; k < n.b; k++) {
            int x = num_operands(&n)[k], y = num_operands(&n)[n.b + k];
            if (needed[x]) give(x, MUL(g, y));
            if (needed[y]) give(y, MUL(g, x));
        }
        break;
    case EXTREME: through_extreme(n, n.v, t, g, needed); break;
    default: break;
    }
}

/* ---- the walk -------------------------------------------------------------------------------- */

static bool depends(const number *x, const bool *needed)
{
    switch (x->op) {
    case UNARY: case CAST: return is_float((wb_dtype)numbers[x->a].dtype) && needed[x->a];
    case BINARY: return needed[x->a] || needed[x->b];
    case SELECT: return needed[x->b] || needed[x->c];
    case SUM: case DOT: case EXTREME:
        for (int i = 0; i < x->b * (x->op == DOT ? 2 : 1); i++)
            if (needed[num_operands(x)[i]]) return true;
        return false;
    default: return false;
    }
}

/* True if the number or one of its operands is not finite. */
static bool not_finite(const number *x)
{
    bool found = !isfinite(x->v);
    switch (x->op) {
    case BINARY: found |= !isfinite(numbers[x->b].v); /* fall through */
    case UNARY:
    case CAST: return found || !isfinite(numbers[x->a].v);
    case SUM:
    case DOT:
    case EXTREME:
        for (int i = 0; i < x->b * (x->op == DOT ? 2 : 1) && !found; i++)
            found = !isfinite(numbers[num_operands(x)[i]].v);
        return found;
    default: return found;
    }
}

void num_gradient(int loss, int last, int n, const int *by, int *out)
{
    int before = last + 1;
    bool *needed = calloc((size_t)n_numbers, 1);
    if (first_capacity < before)
        first = realloc(first, (size_t)(first_capacity = 2 * before) * sizeof *first);
    if (!needed || !first) abort();
    for (int i = 0; i < before; i++) first[i] = -1;
    n_given = 0;
    in_gradient = true;
    for (int i = 0; i < n; i++) needed[by[i]] = true;
    for (int i = 0; i < before; i++) needed[i] |= depends(&numbers[i], needed);
    wb_dtype t = (wb_dtype)numbers[loss].dtype;
    if (needed[loss]) give(loss, NUM(1));
    for (int i = last; i >= 0; i--) {
        /* a number without contributions has gradient 0 in the library, and 0 * infinity is NaN */
        if (first[i] < 0 && !(needed[i] && not_finite(&numbers[i]))) continue;
        int g = first[i] < 0 ? num_real((wb_dtype)numbers[i].dtype, 0) : total(i);
        first[i] = -2 - g;                  /* marks i as done, with gradient g */
        through(i, g, needed);
        if (n_numbers > 4 * MOST_NUMBERS) break;
    }
    for (int i = 0; i < n; i++)
        out[i] = by[i] < before && first[by[i]] <= -2 ? -2 - first[by[i]]
                                                      : num_real((wb_dtype)numbers[by[i]].dtype, 0);
    in_gradient = false;
    free(needed);
}
