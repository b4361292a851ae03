/* Rules that look at a whole parameter: LAMB, Adafactor and Muon. */
#include "optim/optim.h"

#include <math.h>

/* Returns the sum of all elements, a scalar. */
static wb_tensor *whole_sum(wb_tensor *x)
{
    return x ? wb__reduce(WB__OP_sum, x, (1u << x->ndim) - 1, false) : NULL;
}

/* Returns the factor with which no sum of squares of values of the dtype overflows. */
static double shrink_of(const wb_tensor *x) { return x->dtype == WB_F64 ? 0x1p-560 : 0x1p-80; }

static wb__squares whole_squares_of(wb_tensor *x)
{
    if (!x) return (wb__squares){NULL, NULL};
    return (wb__squares){whole_sum(wb_square(x)),
                         whole_sum(wb_square(wb_mul(x, wb_scalar(shrink_of(x)))))};
}

/* Returns a sum as f64; one in f32 is first multiplied by `more`. */
static wb_tensor *whole_as_f64(wb_tensor *sum, double more)
{
    return sum->dtype == WB_F64 ? sum : wb_mul(wb_astype(sum, WB_F64), wb_scalar(more));
}

static bool whole_add_sum(wb_tensor **sum, wb_tensor *part, double more)
{
    if (part && *sum && part->dtype != (*sum)->dtype) {             /* f64 and f32 */
        part = whole_as_f64(part, more);
        *sum = whole_as_f64(*sum, more);
    }
    *sum = *sum ? wb_add(*sum, part) : part;
    return *sum != NULL;
}

bool wb__squares_add(wb__squares *sum, wb_tensor *x)
{
    const wb__squares part = whole_squares_of(x);
    const double more = 0x1p-560 / 0x1p-80;
    return whole_add_sum(&sum->plain, part.plain, 1) &&
           whole_add_sum(&sum->shrunk, part.shrunk, more * more);
}

wb_tensor *wb__norm_finite(wb__squares s)
{
    return s.plain ? wb_where(wb_isfinite(s.plain), s.plain, s.shrunk) : NULL;
}

wb_tensor *wb__norm_of(wb__squares s, bool inverse)
{
    wb_tensor *(*root)(wb_tensor *) = inverse ? wb_rsqrt : wb_sqrt;
    if (!s.plain || !s.shrunk) return NULL;
    const double shrink = shrink_of(s.shrunk);
    return wb_where(wb_isfinite(s.plain), root(s.plain),
                    wb_mul(root(s.shrunk), wb_scalar(inverse ? shrink : 1 / shrink)));
}

static wb_tensor *whole_norm(wb_tensor *x) { return wb__norm_of(whole_squares_of(x), false); }

/* Returns the root of the mean of the squares of x's elements. */
static wb_tensor *whole_rms(wb_tensor *x)
{
    return wb_sqrt(wb_mul(whole_sum(wb_square(x)), wb_scalar(1 / (double)WB__MAX(x->size, 1))));
}

/* ---- LAMB ------------------------------------------------------------------------------------ */

static int lamb_numbers(const wb_Rule_options *o, double t, double *out)
{
    wb__weights(o, out);
    out[4] = 1 / (1 - pow(o->beta[0], t));
    out[5] = 1 / (1 - pow(o->beta[1], t));
    out[6] = o->eps;
    out[7] = o->lambda;
    out[8] = o->eta;
    return wb__logarithms(o, t, 9, out);
}

static bool lamb_counted(wb_tensor **number, wb_tensor *t)
{
    number[4] = wb_reciprocal(wb__complement_of_power(number[9], t));
    number[5] = wb_reciprocal(wb__complement_of_power(number[10], t));
    number[9] = number[10] = NULL;
    return number[4] && number[5];
}

static bool lamb(wb__rule_step *s, wb_tensor *const *number)
{
    if (!wb__averages(s, number)) return false;
    wb_tensor *one = wb_scalar(1), *zero = wb_scalar(0);
    wb_tensor *root = wb_sqrt(wb_mul(s->next[1], number[5]));
    wb_tensor *r = wb_div(wb_mul(s->next[0], number[4]), wb_add(root, number[6]));
    wb_tensor *u = wb_add(r, wb_mul(s->x, number[7]));
    wb_tensor *of_x = whole_norm(s->x), *of_u = whole_norm(u);
    wb_tensor *ratio = wb_where(wb_gt(of_u, zero), wb_div(of_x, of_u), one);
    ratio = wb_where(wb_gt(of_x, zero), ratio, one);
    return (s->g = wb_mul(u, wb_mul(ratio, number[8]))) != NULL;
}

/* ---- Adafactor ------------------------------------------------------------------------------- */

static int adafactor_numbers(const wb_Rule_options *o, double t, double *out)
{
    const bool counts = isinf(t);           /* the device counts t: adafactor_counted goes on */
    out[0] = counts ? -o->rho : pow(t, -o->rho);
    out[1] = counts ? 0.5 : 1 - out[0];
    out[2] = counts ? o->eta : fmin(o->eta, 1 / sqrt(t));
    out[3] = o->eps;
    out[4] = o->eps * o->eps;
    out[5] = o->delta;
    out[6] = 1 / o->omega;
    out[7] = o->eta * o->lambda;
    return 8;
}

static bool adafactor_counted(wb_tensor **number, wb_tensor *t)
{
    number[0] = wb_pow(t, number[0]);
    number[1] = wb_sub(wb_scalar(1), number[0]);
    number[2] = wb_minimum(wb_rsqrt(t), number[2]);
    return number[1] && number[2];
}

/* Sets the shape of a moment.  The first moment has the averages of rows or, if a parameter has no
 * rows, all averages.  The second has the averages of columns, or one element that stays 0. */
static void adafactor_shape(int moment, int *ndim, int64_t *dims)
{
    if (*ndim > 1) dims[*ndim - 1 - moment] = 1;
    else if (moment) *ndim = 0;
}

/* Returns the new value of a moment: its weighted average with the means of x over an axis. */
static wb_tensor *whole_mean_over_axis(wb__rule_step *s, int moment, wb_tensor *x,
                                       wb_tensor *const *number)
{
    const int axis = s->g->ndim - 1 - moment;
    const double n = (double)WB__MAX(s->g->dims[axis], 1);
    wb_tensor *mean = wb_mul(wb__reduce(WB__OP_sum, x, 1u << axis, true), wb_scalar(1 / n));
    return wb_add(wb_mul(s->moment[moment], number[1]), wb_mul(mean, number[0]));
}

static wb_tensor *whole_variance(wb__rule_step *s, wb_tensor *const *number)
{
    const int n = s->g->ndim;
    wb_tensor *square = wb_square(s->g);
    if (n < 2) {
        s->next[1] = wb__unchanged(s->moment[1]);
        s->next[0] = wb_add(wb_mul(s->moment[0], number[1]), wb_mul(square, number[0]));
        return s->next[0];
    }
    for (int k = 0; k < 2; k++)
        if (!square || !(s->next[k] = whole_mean_over_axis(s, k, square, number))) return NULL;
    const double rows = (double)WB__MAX(s->g->dims[n - 2], 1);
    wb_tensor *mean = wb__reduce(WB__OP_sum, s->next[0], 1u << (n - 2), true);
    mean = wb_maximum(wb_mul(mean, wb_scalar(1 / rows)), number[3]);
    return wb_mul(wb_div(s->next[0], mean), s->next[1]);
}

static bool adafactor(wb__rule_step *s, wb_tensor *const *number)
{
    wb_tensor *v = whole_variance(s, number);
    wb_tensor *u = wb_mul(s->g, wb_rsqrt(wb_maximum(v, number[4])));
    if (!u || !s->next[1]) return false;
    wb_tensor *most = wb_maximum(wb_mul(whole_rms(u), number[6]), wb_scalar(1));
    wb_tensor *size = wb_mul(wb_maximum(whole_rms(s->x), number[5]), number[2]);
    s->g = wb_add(wb_mul(s->x, number[7]), wb_mul(u, wb_div(size, most)));
    return s->g != NULL;
}

/* ---- Muon ------------------------------------------------------------------------------------ */

static int muon_numbers(const wb_Rule_options *o, double t, double *out)
{
    (void)t;
    out[0] = o->rho;
    out[1] = 1 - o->rho;
    out[2] = o->eta;
    out[3] = o->eps;
    out[4] = o->eta * o->lambda;
    return 5;
}

/* Returns a matrix x with singular values changed to about 1.  x has at most as many rows as
 * columns. */
static wb_tensor *whole_orthogonalise(wb_tensor *x, wb_tensor *eps)
{
    static const double c[] = {3.4445, -4.775, 2.0315};
    x = wb_div(x, wb_maximum(whole_norm(x), eps));
    for (int i = 0; i < 5 && x; i++) {
        wb_tensor *a = wb_matmul(x, wb_transpose(x));
        wb_tensor *b = wb_add(wb_mul(a, wb_scalar(c[1])),
                              wb_mul(wb_matmul(a, a), wb_scalar(c[2])));
        x = wb_add(wb_mul(x, wb_scalar(c[0])), wb_matmul(b, x));
    }
    return x;
}

static bool muon(wb__rule_step *s, wb_tensor *const *number)
{
    s->next[0] = wb__average(s->moment[0], number[0], s->g, number[1], false);
    wb_tensor *u = wb__average(s->next[0], number[0], s->g, number[1], false);
    if (!u) return false;
    const int64_t rows = u->ndim > 1 ? u->dims[0] : 1, columns = u->size / WB__MAX(rows, 1);
    const int64_t matrix[] = {rows, columns};
    double factor = 1;
    if (u->ndim < 2 || !u->size) u = wb_div(u, wb_maximum(whole_rms(u), number[3]));
    else {
        wb_tensor *m = wb_reshape_array(u, 2, matrix);
        m = rows > columns ? wb_transpose(whole_orthogonalise(wb_transpose(m), number[3]))
                           : whole_orthogonalise(m, number[3]);
        factor = sqrt(WB__MAX((double)rows / (double)columns, 1));
        u = wb_reshape_array(m, u->ndim, u->dims);
    }
    u = wb_mul(wb_mul(u, wb_scalar(factor)), number[2]);
    return (s->g = wb_add(u, wb_mul(s->x, number[4]))) != NULL;
}

static const wb__rule_kind
    lamb_kind = {.name = "LAMB", .moments = 2, .numbers = lamb_numbers, .apply = lamb,
                 .counted = lamb_counted, .whole = true,
                 .defaults = {.size = sizeof(wb_Rule_options), .eta = 0.001,
                              .beta = {0.9, 0.999}, .eps = 1e-6, .lambda = 0.01}},
    adafactor_kind = {.name = "Adafactor", .moments = 2, .numbers = adafactor_numbers,
                      .apply = adafactor, .counted = adafactor_counted, .whole = true,
                      .shape = adafactor_shape,
                      .defaults = {.size = sizeof(wb_Rule_options), .eta = 0.01, .rho = 0.8,
                                   .eps = 0x1p-23, .delta = 1e-3, .omega = 1},
                      .zeros = 1u << WB__LAMBDA},
    muon_kind = {.name = "Muon", .moments = 1, .numbers = muon_numbers, .apply = muon,
                 .whole = true,
                 .defaults = {.size = sizeof(wb_Rule_options), .eta = 0.001, .rho = 0.95,
                              .eps = 1e-7, .lambda = 0.1}};

wb_rule *wb_LAMB_with(const wb_Rule_options *o) { return wb__rule_of(&lamb_kind, NULL, o); }
wb_rule *wb_Adafactor_with(const wb_Rule_options *o)
{
    return wb__rule_of(&adafactor_kind, NULL, o);
}
wb_rule *wb_Muon_with(const wb_Rule_options *o) { return wb__rule_of(&muon_kind, NULL, o); }
