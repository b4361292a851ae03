/* The rules: formulas, hyperparameters, names. The state is in state.c, updates are in update.c. */
#include "optim/optim.h"

#include <math.h>
#include <string.h>

enum { ETA, RHO, BETA, EPS = BETA + 2, LAMBDA };        /* indices into wb__rule_fields */

const wb__rule_field wb__rule_fields[WB__RULE_NUMBERS] = {
    {"eta", "eta", 0, offsetof(wb_Rule_options, eta)},
    {"rho", "rho", 1, offsetof(wb_Rule_options, rho)},
    {"beta[0]", "beta", -1, offsetof(wb_Rule_options, beta)},
    {"beta[1]", "beta", -1, offsetof(wb_Rule_options, beta) + sizeof(double)},
    {"eps", "eps", -1, offsetof(wb_Rule_options, eps)},
    {"lambda", "lambda", -1, offsetof(wb_Rule_options, lambda)},
    {"delta", "delta", -1, offsetof(wb_Rule_options, delta)},
    {"omega", "omega", -1, offsetof(wb_Rule_options, omega)},
};

bool wb__rule_read(const char *what, wb_Rule_options *o, const wb_Rule_options *given)
{
    wb__given g;
    if (!wb__read_options(what, o, sizeof *o, given, "eta rho beta eps lambda delta omega", &g))
        return false;
    const int betas = wb__numbers_given(&g, "beta");
    if (betas == 0 || betas > 2)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .beta has %d numbers; it has two, {b1, b2}", what,
                        betas),
               false;
    for (int i = 0; i < WB__RULE_NUMBERS; i++) {
        const wb__rule_field *f = &wb__rule_fields[i];
        double *value = wb__rule_number(o, i);
        if (i == BETA + 1 && betas == 1) continue;          /* {b1}: b2 is not given */
        *value = wb__real_option(&g, f->option, f->position, *value);
    }
    return true;
}

/* ---- formulas -------------------------------------------------------------------------------- */

int wb__rule_literals(const wb__rule_kind *kind, const wb_Rule_options *o, double t, double *out)
{
    int n = 0;
    if (kind->numbers) return kind->numbers(o, t, out);
    for (int i = 0; i < WB__RULE_NUMBERS; i++)
        if (*wb__rule_number(&kind->defaults, i) != 0) out[n++] = *wb__rule_number(o, i);
    return n;
}

static bool descent(wb__rule_step *s, wb_tensor *const *number)
{
    return (s->g = wb_mul(s->g, number[0])) != NULL;
}

static bool momentum(wb__rule_step *s, wb_tensor *const *number)
{
    s->g = s->next[0] = wb__average(s->moment[0], number[1], s->g, number[0], false);
    return s->g != NULL;
}

/* Merges both bias corrections of Adam into the step size and eps. With the moments m and v, the
 * decay rates b1 and b2, and c = sqrt(1 - b2^t), Adam's step is
 *   eta * m / (1 - b1^t) / (sqrt(v) / c + eps)  =  (eta * c / (1 - b1^t)) * m / (sqrt(v) + eps * c)
 */
static int adam_numbers(const wb_Rule_options *o, double t, double *out)
{
    double c = sqrt(1 - pow(o->beta[1], t));        /* c is 1 for t == INFINITY */
    out[0] = o->beta[0];
    out[1] = 1 - o->beta[0];
    out[2] = o->beta[1];
    out[3] = 1 - o->beta[1];
    out[4] = o->eta * c / (1 - pow(o->beta[0], t));
    out[5] = o->eps * c;
    out[6] = o->eta * o->lambda;
    if (!isinf(t)) return 7;
    for (int i = 0; i < 2; i++) out[7 + i] = -0.5 * log(o->beta[i]);
    return 9;
}

static bool adam(wb__rule_step *s, wb_tensor *const *number)
{
    s->next[0] = wb__average(s->moment[0], number[0], s->g, number[1], false);
    s->next[1] = wb__average(s->moment[1], number[2], s->g, number[3], true);
    s->g = wb__adam_step(s->next[0], s->next[1], number[4], number[5]);
    return s->g != NULL;
}

/* Returns 1 - b^t, accurate also for b near 1. The result is 2h / (1 + h), where
 * h = tanh(t * minus_half_log) and minus_half_log = -log(b) / 2. */
static wb_tensor *complement_of_power(wb_tensor *minus_half_log, wb_tensor *t)
{
    wb_tensor *h = wb_tanh(wb_mul(t, minus_half_log));
    return wb_div(wb_mul(h, wb_scalar(2)), wb_add(h, wb_scalar(1)));
}

static bool adam_counted(wb_tensor **number, wb_tensor *t)
{
    wb_tensor *c = wb_sqrt(complement_of_power(number[8], t));
    number[4] = wb_div(wb_mul(c, number[4]), complement_of_power(number[7], t));
    number[5] = wb_mul(c, number[5]);
    number[7] = number[8] = NULL;
    return number[4] && number[5];
}

static bool adamw(wb__rule_step *s, wb_tensor *const *number)
{
    return adam(s, number) && (s->g = wb_add(s->g, wb_mul(s->x, number[6]))) != NULL;
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

static bool clip(wb__rule_step *s, wb_tensor *const *number)
{
    return (s->g = wb_minimum(wb_maximum(s->g, number[0]), number[1])) != NULL;
}

/* number[0] is min(omega / |g|, 1). norm_factor in update.c computes it from all gradients. */
static bool scale(wb__rule_step *s, wb_tensor *const *number)
{
    wb_tensor *factor = number[0];
    if (factor && factor->dtype != s->g->dtype) factor = wb_astype(factor, (wb_dtype)s->g->dtype);
    return (s->g = wb_mul(s->g, factor)) != NULL;
}

/* ---- kinds ----------------------------------------------------------------------------------- */

/* The columns of RULES: identifier, name, moments, numbers, apply, counted, all_together,
 * defaults. */
#define ADAM .eta = 0.001, .beta = {0.9, 0.999}, .eps = 1e-8
#define RULES(X)                                                                                \
    X(descent, Descent, 0, NULL, descent, NULL, false, .eta = 0.1)                              \
    X(momentum, Momentum, 1, NULL, momentum, NULL, false, .eta = 0.01, .rho = 0.9)              \
    X(adam, Adam, 2, adam_numbers, adam, adam_counted, false, ADAM)                             \
    X(adamw, AdamW, 2, adam_numbers, adamw, adam_counted, false, ADAM, .lambda = 0.01)          \
    X(weightdecay, WeightDecay, 0, NULL, decay, NULL, false, .lambda = 5e-4)                    \
    X(clipgrad, ClipGrad, 0, clip_numbers, clip, NULL, false, .delta = 10)                      \
    X(clipnorm, ClipNorm, 0, NULL, scale, NULL, true, .omega = 10)

bool wb__rule_check(const wb__rule_kind *kind, const wb_Rule_options *o)
{
    for (int i = 0; i < WB__RULE_NUMBERS; i++) {
        double value = *wb__rule_number(o, i);
        if (isnan(value) || (i == 0 && value < 0 && value != WB__ZERO)) {
            wb__fail(WB_ERROR_ARGUMENT,
                     i ? "%s: %s is %g" : "%s: the learning rate cannot be negative: %s is %g",
                     kind->name, wb__rule_fields[i].name, value);
            return false;
        }
        const char *must = NULL;
        if (i == ETA && isinf(value)) must = "be finite";
        else if (i != LAMBDA && value < 0 && value != WB__ZERO) must = "not be negative";
        else if ((i == BETA || i == BETA + 1) && value >= 1) must = "be below 1";
        if (must) {
            wb__fail(WB_ERROR_ARGUMENT, "%s: %s is %g; it must %s", kind->name,
                     wb__rule_fields[i].name, value, must);
            return false;
        }
    }
    return true;
}

static void rule_destroy(void *object)
{
    wb_rule *r = object;
    wb__free(r->parts);
    wb__object_end(r, sizeof *r);
}

static char *rule_format(void *object)
{
    wb__text t = {0};
    wb__rule_print(object, &t);
    return wb__text_take(&t);
}

const wb__class wb__rule_class = {.name = "rule", .destroy = rule_destroy, .format = rule_format};

static wb_rule *rule_new(int n)
{
    wb_rule *r = wb__object_new(&wb__rule_class, sizeof *r);
    if (!r) return NULL;
    r->parts = wb__alloc_zero((size_t)n, sizeof *r->parts);
    r->n = n;
    if (r->parts) return r;
    wb_object_free(r);
    return NULL;
}

static wb_rule *rule_of(const wb__rule_kind *kind, const wb_Rule_options *given)
{
    wb_Rule_options o;
    if (!wb__rule_read(kind->name, &o, given)) return NULL;
    for (int i = 0; i < WB__RULE_NUMBERS; i++) {
        double by_default = *wb__rule_number(&kind->defaults, i), *value = wb__rule_number(&o, i);
        if (by_default == 0 && *value != 0)
            return wb__fail_null(WB_ERROR_ARGUMENT, "%s: it has no %s; %g was given", kind->name,
                                 wb__rule_fields[i].name, wb__real(*value, 0));
        *value = by_default == 0 ? 0 : wb__real(*value, by_default);
    }
    if (!wb__rule_check(kind, &o)) return NULL;
    wb_rule *r = rule_new(1);
    if (r) r->parts[0] = (wb__rule_part){kind, o};
    return r;
}

#define KIND(name, Name, moments, numbers, formula, counted, together, ...)                     \
    static const wb__rule_kind name##_kind = {                                                  \
        #Name, moments, {.size = sizeof(wb_Rule_options), __VA_ARGS__},                          \
        numbers, formula, counted, together};                                                   \
    wb_rule *wb_##Name##_with(const wb_Rule_options *o) { return rule_of(&name##_kind, o); }
RULES(KIND)

/* A chain inside a chain is flattened into one list of parts. */
wb_rule *wb_OptimiserChain_array(int n, wb_rule *const *rules)
{
    int total = 0;
    if (n < 1 || !rules) return wb__fail_null(WB_ERROR_ARGUMENT, "OptimiserChain: no rules");
    for (int i = 0; i < n; i++) {
        if (WB__NULL(rules[i])) return NULL;
        if (!wb__is(rules[i], &wb__rule_class))
            return wb__fail_null(WB_ERROR_ARGUMENT,
                                 "OptimiserChain: element %d is a %s, not a rule", i,
                                 wb__kind(rules[i]));
        total += rules[i]->n;
    }
    wb_rule *r = rule_new(total);
    for (int i = 0, at = 0; r && i < n; at += rules[i++]->n) {
        memcpy(r->parts + at, rules[i]->parts, (size_t)rules[i]->n * sizeof *r->parts);
        r->bucket = WB__MAX(r->bucket, rules[i]->bucket);
        r->shard |= rules[i]->shard;
        r->accumulate = WB__MAX(r->accumulate, rules[i]->accumulate);
    }
    return r;
}

wb_rule *wb_DistributedOptimiser_with(wb_rule *rule, const wb_DistributedOptimiser_options *given)
{
    wb_DistributedOptimiser_options o;
    wb__given g;
    if (WB__NULL(rule)) return NULL;
    if (!wb__is(rule, &wb__rule_class))
        return wb__fail_null(WB_ERROR_ARGUMENT, "DistributedOptimiser: a %s is not a rule",
                             wb__kind(rule));
    if (!wb__read_options("DistributedOptimiser", &o, sizeof o, given, "bucket accumulate",
                         &g))
        return NULL;
    o.bucket = wb__int_option(&g, "bucket", -1, o.bucket, 25000000);
    if (o.bucket < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "DistributedOptimiser: .bucket is %lld; it is a "
                             "number of bytes, at least 1", (long long)o.bucket);
    o.accumulate = wb__int_option(&g, "accumulate", -1, o.accumulate, 1);
    if (o.accumulate < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "DistributedOptimiser: .accumulate is %lld; it is "
                             "a number of batches, at least 1", (long long)o.accumulate);
    wb_rule *r = wb__rule_copy(rule);
    if (!r) return NULL;
    r->bucket = o.bucket;
    r->shard = o.shard;
    r->accumulate = WB__MAX(r->accumulate, o.accumulate);
    return r;
}

wb_rule *wb__rule_copy(const wb_rule *rule)
{
    wb_rule *r = rule_new(rule->n);
    if (!r) return NULL;
    memcpy(r->parts, rule->parts, (size_t)r->n * sizeof *r->parts);
    r->bucket = rule->bucket;
    r->shard = rule->shard;
    r->accumulate = rule->accumulate;
    return r;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_part(const wb__rule_part *p, wb__text *t)
{
    const char *comma = "";
    wb__text_add(t, "%s(", p->kind->name);
    for (int i = 0; i < WB__RULE_NUMBERS; i++) {
        size_t offset = wb__rule_fields[i].offset, beta = offsetof(wb_Rule_options, beta);
        if (*wb__rule_number(&p->kind->defaults, i) == 0 || offset == beta + sizeof(double))
            continue;
        if (offset == beta) wb__text_add(t, "%sbeta=(%g, %g)", comma, p->o.beta[0], p->o.beta[1]);
        else wb__text_add(t, "%s%s=%g", comma, wb__rule_fields[i].name, *wb__rule_number(&p->o, i));
        comma = ", ";
    }
    wb__text_add(t, ")");
}

void wb__rule_print(const wb_rule *rule, wb__text *t)
{
    if (rule->bucket) wb__text_add(t, "DistributedOptimiser(");
    if (rule->n > 1) wb__text_add(t, "OptimiserChain(");
    for (int i = 0; i < rule->n; i++) {
        if (i) wb__text_add(t, ", ");
        print_part(&rule->parts[i], t);
    }
    if (rule->n > 1) wb__text_add(t, ")");
    if (rule->accumulate > 1) wb__text_add(t, ", accumulate=%lld", (long long)rule->accumulate);
    if (rule->bucket) wb__text_add(t, rule->shard ? ", shard=true)" : ")");
}
