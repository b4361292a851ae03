/* The formulas of the rules, and the table of all rules.  A rule is a formula and a row. */
#include "optim/optim.h"

#include <math.h>
#include <string.h>

int wb__rule_literals(const wb__rule_kind *kind, const wb_Rule_options *o, double t, double *out)
{
    int n = 0;
    if (kind->numbers) return kind->numbers(o, t, out);
    for (int i = 0; i < WB__RULE_NUMBERS; i++)
        if (wb__kind_has(kind, i)) out[n++] = *wb__rule_number(o, i);
    if (kind->own) out[n++] = t;
    return n;
}

/* ---- descent and momentum -------------------------------------------------------------------- */

static bool descent(wb__rule_step *s, wb_tensor *const *number)
{
    return (s->g = wb_mul(s->g, number[0])) != NULL;
}

static bool momentum(wb__rule_step *s, wb_tensor *const *number)
{
    s->g = s->next[0] = wb__average(s->moment[0], number[1], s->g, number[0], false);
    return s->g != NULL;
}

static int nesterov_numbers(const wb_Rule_options *o, double t, double *out)
{
    (void)t;
    out[0] = -o->rho * o->rho;
    out[1] = (1 + o->rho) * o->eta;
    out[2] = o->rho;
    out[3] = -o->eta;
    return 4;
}

static bool nesterov(wb__rule_step *s, wb_tensor *const *number)
{
    s->next[0] = wb__average(s->moment[0], number[2], s->g, number[3], false);
    s->g = wb__average(s->moment[0], number[0], s->g, number[1], false);
    return s->next[0] && s->g;
}

/* Sets the step of Rprop.  number[0], eta, is where the step sizes start (wb__rule_start). */
static bool rprop(wb__rule_step *s, wb_tensor *const *number)
{
    wb_tensor *zero = wb_scalar(0), *size = s->moment[1];
    wb_tensor *same = wb_mul(wb_sign(s->moment[0]), wb_sign(s->g));
    wb_tensor *turns = wb_lt(same, zero);
    wb_tensor *longer = wb_minimum(wb_mul(size, number[2]), number[4]);
    wb_tensor *shorter = wb_maximum(wb_mul(size, number[1]), number[3]);
    s->next[0] = wb_where(turns, zero, s->g);
    s->next[1] = wb_where(wb_gt(same, zero), longer, wb_where(turns, shorter, size));
    s->g = wb_mul(s->next[1], wb_sign(s->next[0]));
    return s->g != NULL;
}

static int lion_numbers(const wb_Rule_options *o, double t, double *out)
{
    (void)t;
    out[0] = 1 - o->beta[1];
    out[1] = o->beta[1];
    out[2] = o->beta[0];
    out[3] = o->beta[1] - o->beta[0];
    out[4] = o->eta;
    return 5;
}

static bool lion(wb__rule_step *s, wb_tensor *const *number)
{
    s->next[0] = wb__average(s->moment[0], number[0], s->g, number[1], false);
    wb_tensor *direction = wb__average(s->next[0], number[2], s->g, number[3], false);
    return (s->g = wb_mul(wb_sign(direction), number[4])) != NULL;
}

/* ---- Adam and its variants ------------------------------------------------------------------- */

bool wb__averages(wb__rule_step *s, wb_tensor *const *number)
{
    s->next[0] = wb__average(s->moment[0], number[0], s->g, number[1], false);
    s->next[1] = wb__average(s->moment[1], number[2], s->g, number[3], true);
    return s->next[0] && s->next[1];
}

int wb__weights(const wb_Rule_options *o, double *out)
{
    for (int i = 0; i < 2; i++) {
        out[2 * i] = o->beta[i];
        out[2 * i + 1] = 1 - o->beta[i];
    }
    return 4;
}

int wb__logarithms(const wb_Rule_options *o, double t, int n, double *out)
{
    for (int i = 0; i < 2 && isinf(t); i++) out[n++] = -0.5 * log(o->beta[i]);
    return n;
}

/* Merges both bias corrections of Adam into the step size and eps.  With the moments m and v, the
 * decay rates b1 and b2, and c = sqrt(1 - b2^t), Adam's step is
 *   eta * m / (1 - b1^t) / (sqrt(v) / c + eps)  =  (eta * c / (1 - b1^t)) * m / (sqrt(v) + eps * c)
 */
static int adam_numbers(const wb_Rule_options *o, double t, double *out)
{
    double c = sqrt(1 - pow(o->beta[1], t));        /* c is 1 for t == INFINITY */
    wb__weights(o, out);
    out[4] = o->eta * c / (1 - pow(o->beta[0], t));
    out[5] = o->eps * c;
    out[6] = o->eta * o->lambda;
    return wb__logarithms(o, t, 7, out);
}

static bool adam(wb__rule_step *s, wb_tensor *const *number)
{
    return wb__averages(s, number) &&
           (s->g = wb__adam_step(s->next[0], s->next[1], number[4], number[5])) != NULL;
}

/* Returns 2h / (1 + h), where h = tanh(t * minus_half_log). */
wb_tensor *wb__complement_of_power(wb_tensor *minus_half_log, wb_tensor *t)
{
    wb_tensor *h = wb_tanh(wb_mul(t, minus_half_log));
    return wb_div(wb_mul(h, wb_scalar(2)), wb_add(h, wb_scalar(1)));
}

static bool adam_counted(wb_tensor **number, wb_tensor *t)
{
    wb_tensor *c = wb_sqrt(wb__complement_of_power(number[8], t));
    number[4] = wb_div(wb_mul(c, number[4]), wb__complement_of_power(number[7], t));
    number[5] = wb_mul(c, number[5]);
    number[7] = number[8] = NULL;
    return number[4] && number[5];
}

static bool adamw(wb__rule_step *s, wb_tensor *const *number)
{
    return adam(s, number) && (s->g = wb_add(s->g, wb_mul(s->x, number[6]))) != NULL;
}

/* Sets the step of OAdam, whose third moment is the term of the update before. */
static bool oadam(wb__rule_step *s, wb_tensor *const *number)
{
    if (!adam(s, number)) return false;
    s->next[2] = s->g;
    return (s->g = wb_sub(wb_mul(s->g, wb_scalar(2)), s->moment[2])) != NULL;
}

static int adabelief_numbers(const wb_Rule_options *o, double t, double *out)
{
    const int n = adam_numbers(o, t, out);
    out[6] = o->eps;
    return n;
}

static bool adabelief(wb__rule_step *s, wb_tensor *const *number)
{
    s->next[0] = wb__average(s->moment[0], number[0], s->g, number[1], false);
    wb_tensor *surprise = wb_sub(s->g, s->next[0]);
    wb_tensor *average = wb__average(s->moment[1], number[2], surprise, number[3], true);
    s->next[1] = wb_add(average, number[6]);
    return (s->g = wb__adam_step(s->next[0], s->next[1], number[4], number[5])) != NULL;
}

/* Returns a factor of RAdam's step.  Let l = rho_inf and r = rho_t (weber/train.h).  If r > 4, the
 * step is Adam's times sqrt((r - 4) (r - 2) / r) * radam_scale(l).  number[4], [5] and [6] are a, e
 * and s of the step a m / (sqrt(s v) + e).  If r <= 4, e is 1 and s is 0. */
static double radam_scale(double l)
{
    return l > 4 ? sqrt(l / ((l - 4) * (l - 2))) : 0;
}

static int radam_numbers(const wb_Rule_options *o, double t, double *out)
{
    const double b2 = o->beta[1], x = -log(b2), power = pow(b2, t);
    const double l = 2 / (1 - b2) - 1, r = isinf(t) ? l : l - 2 * t * power / (1 - power);
    const bool rectified = !isinf(t) && r > 4;
    wb__weights(o, out);
    out[4] = o->eta / (1 - pow(o->beta[0], t));
    if (rectified) out[4] *= sqrt((r - 4) * (r - 2) / r) * radam_scale(l);
    out[5] = isinf(t) || rectified ? o->eps : 1;
    out[6] = rectified ? 1 / (1 - power) : 0;
    if (!isinf(t)) return 7;
    out[6] = l;
    wb__logarithms(o, t, 7, out);
    out[9] = isinf(x) ? 0 : l - 2 / x;
    out[10] = 2 / x;
    out[11] = radam_scale(l);
    return 12;
}

static bool radam(wb__rule_step *s, wb_tensor *const *number)
{
    if (!wb__averages(s, number)) return false;
    wb_tensor *v = wb_mul(s->next[1], number[6]);
    return (s->g = wb__adam_step(s->next[0], v, number[4], number[5])) != NULL;
}

/* Returns rho_t.  With x = -log(b2) and y = t x / 2, rho_t is rho_inf - 2 t exp(-2 y) / (1 - exp(-2
 * y)).  Where y is small, the terms cancel; there it is t + (rho_inf - 2 / x) - (2 / x) q, where q
 * = y / tanh(y) - 1 is a series. */
static wb_tensor *radam_rho_of(wb_tensor *const *number, wb_tensor *t, wb_tensor *complement)
{
    wb_tensor *y = wb_mul(t, number[8]), *square = wb_square(y);
    wb_tensor *q = wb_sub(wb_scalar(1.0 / 45), wb_mul(square, wb_scalar(2.0 / 945)));
    q = wb_mul(square, wb_sub(wb_scalar(1.0 / 3), wb_mul(square, q)));
    wb_tensor *early = wb_sub(wb_add(t, number[9]), wb_mul(number[10], q));
    wb_tensor *power = wb_exp(wb_mul(y, wb_scalar(-2)));
    wb_tensor *rest = wb_div(wb_mul(wb_mul(t, power), wb_scalar(2)), complement);
    return wb_where(wb_lt(y, wb_scalar(0.3)), early, wb_sub(number[6], rest));
}

static bool radam_counted(wb_tensor **number, wb_tensor *t)
{
    wb_tensor *one = wb_scalar(1), *c = wb__complement_of_power(number[8], t);
    wb_tensor *r = radam_rho_of(number, t, c), *rectified = wb_gt(r, wb_scalar(4));
    wb_tensor *ratio = wb_div(wb_mul(wb_sub(r, wb_scalar(4)), wb_sub(r, wb_scalar(2))), r);
    wb_tensor *factor = wb_mul(wb_sqrt(ratio), number[11]);
    wb_tensor *eta = wb_mul(number[4], wb_where(rectified, factor, one));
    number[4] = wb_div(eta, wb__complement_of_power(number[7], t));
    number[5] = wb_where(rectified, number[5], one);
    number[6] = wb_where(rectified, wb_reciprocal(c), wb_scalar(0));
    for (int i = 7; i < 12; i++) number[i] = NULL;
    return number[4] && number[5] && number[6];
}

static int adamax_numbers(const wb_Rule_options *o, double t, double *out)
{
    out[0] = o->beta[0];
    out[1] = 1 - o->beta[0];
    out[2] = o->beta[1];
    out[3] = o->eta / (1 - pow(o->beta[0], t));
    out[4] = o->eps;
    return wb__logarithms(o, t, 5, out);
}

static bool adamax(wb__rule_step *s, wb_tensor *const *number)
{
    s->next[0] = wb__average(s->moment[0], number[0], s->g, number[1], false);
    s->next[1] = wb_maximum(wb_mul(s->moment[1], number[2]), wb_abs(s->g));
    s->g = wb_div(wb_mul(s->next[0], number[3]), wb_add(s->next[1], number[4]));
    return s->g != NULL;
}

static bool adamax_counted(wb_tensor **number, wb_tensor *t)
{
    number[3] = wb_div(number[3], wb__complement_of_power(number[5], t));
    number[5] = number[6] = NULL;
    return number[3] != NULL;
}

/* Sets `out` to the numbers of NAdam's step, (number[4] m + number[5] g) / (sqrt(number[6] v) +
 * eps). */
static int nadam_numbers(const wb_Rule_options *o, double t, double *out)
{
    const double b1 = o->beta[0], b2 = o->beta[1];
    wb__weights(o, out);
    out[4] = o->eta * b1 / (1 - pow(b1, t + 1));
    out[5] = o->eta * (1 - b1) / (1 - pow(b1, t));
    out[6] = b2 / (1 - pow(b2, t));
    out[7] = o->eps;
    return wb__logarithms(o, t, 8, out);
}

static bool nadam(wb__rule_step *s, wb_tensor *const *number)
{
    if (!wb__averages(s, number)) return false;
    wb_tensor *m = wb__average(s->next[0], number[4], s->g, number[5], false);
    wb_tensor *root = wb_sqrt(wb_mul(s->next[1], number[6]));
    return (s->g = wb_div(m, wb_add(root, number[7]))) != NULL;
}

static bool nadam_counted(wb_tensor **number, wb_tensor *t)
{
    number[4] = wb_div(number[4], wb__complement_of_power(number[8], wb_add(t, wb_scalar(1))));
    number[5] = wb_div(number[5], wb__complement_of_power(number[8], t));
    number[6] = wb_div(number[6], wb__complement_of_power(number[9], t));
    number[8] = number[9] = NULL;
    return number[4] && number[5] && number[6];
}

static int amsgrad_numbers(const wb_Rule_options *o, double t, double *out)
{
    const int n = wb__weights(o, out);
    (void)t;
    out[n] = o->eta;
    out[n + 1] = o->eps;
    return n + 2;
}

/* Sets the step of AMSGrad, whose third moment is the largest second moment so far. */
static bool amsgrad(wb__rule_step *s, wb_tensor *const *number)
{
    if (!wb__averages(s, number)) return false;
    s->next[2] = wb_maximum(s->moment[2], s->next[1]);
    return (s->g = wb__adam_step(s->next[0], s->next[2], number[4], number[5])) != NULL;
}

/* ---- rules that divide by an average of g^2 -------------------------------------------------- */

static bool adagrad(wb__rule_step *s, wb_tensor *const *number)
{
    s->next[0] = wb_add(s->moment[0], wb_square(s->g));
    return (s->g = wb__adam_step(s->g, s->next[0], number[0], number[1])) != NULL;
}

static int rho_numbers(const wb_Rule_options *o, double t, double *out)
{
    (void)t;
    out[0] = o->rho;
    out[1] = 1 - o->rho;
    out[2] = o->eps;
    out[3] = o->eta;
    return 4;
}

static bool rmsprop(wb__rule_step *s, wb_tensor *const *number)
{
    s->next[0] = wb__average(s->moment[0], number[0], s->g, number[1], true);
    return (s->g = wb__adam_step(s->g, s->next[0], number[3], number[2])) != NULL;
}

/* Sets the step; the second moment is the average of g.  Rounding can make the variance
 * negative. */
static bool centred_rmsprop(wb__rule_step *s, wb_tensor *const *number)
{
    s->next[0] = wb__average(s->moment[0], number[0], s->g, number[1], true);
    s->next[1] = wb__average(s->moment[1], number[0], s->g, number[1], false);
    wb_tensor *variance = wb_sub(s->next[0], wb_square(s->next[1]));
    variance = wb_maximum(variance, wb_scalar(0));
    return (s->g = wb__adam_step(s->g, variance, number[3], number[2])) != NULL;
}

/* Sets the step of AdaDelta, whose second moment is the average of the squares of the steps. */
static bool adadelta(wb__rule_step *s, wb_tensor *const *number)
{
    s->next[0] = wb__average(s->moment[0], number[0], s->g, number[1], true);
    wb_tensor *length = wb_sqrt(wb_add(s->moment[1], number[2]));
    s->g = wb_div(wb_mul(s->g, length), wb_sqrt(wb_add(s->next[0], number[2])));
    s->next[1] = wb__average(s->moment[1], number[0], s->g, number[1], true);
    return s->next[1] != NULL;
}

/* ---- changes of the gradient ----------------------------------------------------------------- */

static bool sign_decay(wb__rule_step *s, wb_tensor *const *number)
{
    return (s->g = wb_add(s->g, wb_mul(wb_sign(s->x), number[0]))) != NULL;
}

static bool decay(wb__rule_step *s, wb_tensor *const *number)
{
    return (s->g = wb_add(s->g, wb_mul(s->x, number[0]))) != NULL;
}

static int clip_numbers(const wb_Rule_options *o, double t, double *out)
{
    (void)t;
    out[0] = -o->delta;
    out[1] = o->delta;
    return 2;
}

static bool formula_clip(wb__rule_step *s, wb_tensor *const *number)
{
    return (s->g = wb_minimum(wb_maximum(s->g, number[0]), number[1])) != NULL;
}

/* Scales the gradient by number[0], min(omega / |g|, 1), which update_norm_factor in update.c
 * computes from all gradients. */
static bool formula_scale(wb__rule_step *s, wb_tensor *const *number)
{
    wb_tensor *factor = number[0];
    if (factor && factor->dtype != s->g->dtype) factor = wb_astype(factor, (wb_dtype)s->g->dtype);
    return (s->g = wb_mul(s->g, factor)) != NULL;
}

/* The columns of RULES: identifier, name, moments, start, numbers, apply, counted, all_together,
 * defaults.  RMSPROP has the two kinds of wb_RMSProp. */
/* clang-format off */
#define ZERO WB__FROM_ZERO
#define ADAM .eta = 0.001, .beta = {0.9, 0.999}, .eps = 1e-8
#define RULES(X)                                                                                   \
    X(descent, Descent, 0, ZERO, NULL, descent, NULL, false, .eta = 0.1)                           \
    X(momentum, Momentum, 1, ZERO, NULL, momentum, NULL, false, .eta = 0.01, .rho = 0.9)           \
    X(nesterov, Nesterov, 1, ZERO, nesterov_numbers, nesterov, NULL, false,                        \
      .eta = 0.001, .rho = 0.9)                                                                    \
    X(rprop, Rprop, 2, WB__STEPS_FROM_ETA, NULL, rprop, NULL, false,                               \
      .eta = 0.001, .ell = {0.5, 1.2}, .gamma = {1e-6, 50})                                        \
    X(lion, Lion, 1, ZERO, lion_numbers, lion, NULL, false, .eta = 0.001, .beta = {0.9, 0.999})    \
    X(adam, Adam, 2, ZERO, adam_numbers, adam, adam_counted, false, ADAM)                          \
    X(adamw, AdamW, 2, ZERO, adam_numbers, adamw, adam_counted, false, ADAM, .lambda = 0.01)       \
    X(oadam, OAdam, 3, ZERO, adam_numbers, oadam, adam_counted, false,                             \
      .eta = 0.001, .beta = {0.5, 0.9}, .eps = 1e-8)                                               \
    X(adabelief, AdaBelief, 2, ZERO, adabelief_numbers, adabelief, adam_counted, false,            \
      .eta = 0.001, .beta = {0.9, 0.999}, .eps = 1e-16)                                            \
    X(radam, RAdam, 2, ZERO, radam_numbers, radam, radam_counted, false, ADAM)                     \
    X(adamax, AdaMax, 2, ZERO, adamax_numbers, adamax, adamax_counted, false, ADAM)                \
    X(nadam, NAdam, 2, ZERO, nadam_numbers, nadam, nadam_counted, false, ADAM)                     \
    X(amsgrad, AMSGrad, 3, WB__FROM_EPS, amsgrad_numbers, amsgrad, NULL, false, ADAM)              \
    X(adagrad, AdaGrad, 1, WB__FROM_EPS, NULL, adagrad, NULL, false, .eta = 0.1, .eps = 1e-8)      \
    X(adadelta, AdaDelta, 2, ZERO, rho_numbers, adadelta, NULL, false, .rho = 0.9, .eps = 1e-8)    \
    X(weightdecay, WeightDecay, 0, ZERO, NULL, decay, NULL, false, .lambda = 5e-4)                 \
    X(signdecay, SignDecay, 0, ZERO, NULL, sign_decay, NULL, false, .lambda = 1e-3)                \
    X(clipgrad, ClipGrad, 0, ZERO, clip_numbers, formula_clip, NULL, false, .delta = 10)           \
    X(clipnorm, ClipNorm, 0, ZERO, NULL, formula_scale, NULL, true, .omega = 10)
#define RMSPROP(X)                                                                                 \
    X(rmsprop, RMSProp, 1, ZERO, rho_numbers, rmsprop, NULL, false,                                \
      .eta = 0.001, .rho = 0.9, .eps = 1e-8)                                                       \
    X(centred, CenteredRMSProp, 2, ZERO, rho_numbers, centred_rmsprop, NULL, false,                \
      .eta = 0.001, .rho = 0.9, .eps = 1e-8)
/* clang-format on */

#define FORMULA_KIND(id, Name, count, first, values, formula, of_t, together, ...)              \
    static const wb__rule_kind id##_kind = {                                                    \
        .name = #Name, .moments = count, .start = first, .numbers = values, .apply = formula,   \
        .counted = of_t, .all_together = together,                                              \
        .defaults = {.size = sizeof(wb_Rule_options), __VA_ARGS__}};
#define FORMULA_FUNCTION(name, Name, ...)                                                       \
    wb_rule *wb_##Name##_with(const wb_Rule_options *o)                                         \
    {                                                                                           \
        return wb__rule_of(&name##_kind, NULL, o);                                              \
    }
RULES(FORMULA_KIND)
RULES(FORMULA_FUNCTION)
RMSPROP(FORMULA_KIND)

wb_rule *wb_RMSProp_with(const wb_Rule_options *o)
{
    return wb__rule_of(&rmsprop_kind, &centred_kind, o);
}

#define FORMULA_NAME(name, Name, ...) #Name,
bool wb__rule_known(const char *name)
{
    static const char *const names[] = {RULES(FORMULA_NAME) RMSPROP(FORMULA_NAME) "LAMB",
                                        "Adafactor", "Muon", "AccumGrad", "OptimizerChain",
                                        "DistributedOptimizer"};
    bool known = false;
    for (size_t i = 0; i < WB__COUNT(names); i++) known |= !strcmp(name, names[i]);
    return known;
}
