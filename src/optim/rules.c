/* The rules: hyperparameters, chains, printing.  Their formulas are in formulas.c, their state is
 * in state.c, updates are in update.c. */
#include "optim/optim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Indices into wb__rule_fields. */
enum { ETA = WB__ETA, RHO, BETA, LAMBDA = WB__LAMBDA, ELL = LAMBDA + 3, GAMMA = ELL + 2 };

const wb__rule_field wb__rule_fields[WB__RULE_NUMBERS] = {
    {"eta", "eta", offsetof(wb_Rule_options, eta)},
    {"rho", "rho", offsetof(wb_Rule_options, rho)},
    {"beta[0]", "beta", offsetof(wb_Rule_options, beta)},
    {"beta[1]", "beta", offsetof(wb_Rule_options, beta) + sizeof(double)},
    {"eps", "eps", offsetof(wb_Rule_options, eps)},
    {"lambda", "lambda", offsetof(wb_Rule_options, lambda)},
    {"delta", "delta", offsetof(wb_Rule_options, delta)},
    {"omega", "omega", offsetof(wb_Rule_options, omega)},
    {"ell[0]", "ell", offsetof(wb_Rule_options, ell)},
    {"ell[1]", "ell", offsetof(wb_Rule_options, ell) + sizeof(double)},
    {"gamma[0]", "gamma", offsetof(wb_Rule_options, gamma)},
    {"gamma[1]", "gamma", offsetof(wb_Rule_options, gamma) + sizeof(double)},
};

/* Whether the field is element `at` of an option with two numbers. */
static bool rules_is_of_pair(const wb__rule_field *f, int at)
{
    const size_t n = strlen(f->option);
    return f->name[n] == '[' && f->name[n + 1] == '0' + at;
}

/* Returns the index of the number that the rule takes by place, without a name: eta, or as in
 * WB_RULES_. */
static int rules_index_by_place(const char *rule)
{
    size_t at = offsetof(wb_Rule_options, eta);
    int i = 0;
#define AT(Name, number) if (!strcmp(rule, #Name)) at = offsetof(wb_Rule_options, number);
    WB_RULES_(AT)
#undef AT
    while (wb__rule_fields[i].offset != at) i++;
    return i;
}

/* Sets the rule's number `i` to the number by place, if the program gave one. */
static bool rules_set_by_place(const char *what, wb_Rule_options *o, int i)
{
    if (o->number == WB_DEFAULT) return true;
    if (*wb__rule_number(o, i) != WB_DEFAULT)
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: its number by place is .%s; give that alone, once",
                         what, wb__rule_fields[i].option);
    *wb__rule_number(o, i) = o->number;
    return true;
}

bool wb__rule_read(const char *what, const char *rule, wb_Rule_options *o,
                   const wb_Rule_options *given)
{
    wb__given g;
    if (!wb__read_options(what, wb_Rule_options, o, given, &g)) return false;
    if (g.text && (uintptr_t)o->by_place_ != WB_MARK_)      /* WB_FOREIGN_NUMBERS_: .lr = 0 */
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: here .lr and .learning_rate are called .eta, "
                         ".momentum is .rho, and .weight_decay is .lambda", what);
    for (int i = 0; i < WB__RULE_NUMBERS; i++) {
        const wb__rule_field *f = &wb__rule_fields[i];
        const int numbers = rules_is_of_pair(f, 0) ? wb__numbers_given(&g, f->option) : -1;
        if (numbers == 0 || numbers > 2)
            return wb__fail(WB_ERROR_ARGUMENT, "%s: .%s has %d numbers; it has two, as in .beta = "
                            "{0.9, 0.999}", what, f->option, numbers), false;
        if (numbers == 1) *wb__rule_number(o, i + 1) = WB_DEFAULT;      /* {b1} */
    }
    return rules_set_by_place(what, o, rule ? rules_index_by_place(rule) : ETA);
}

/* ---- rules ----------------------------------------------------------------------------------- */

bool wb__rule_check(const wb__rule_kind *kind, const wb_Rule_options *o)
{
    for (int i = 0; i < WB__RULE_NUMBERS; i++) {
        double value = *wb__rule_number(o, i);
        if (i == ETA && value < 0)
            return !wb__fail(WB_ERROR_ARGUMENT, "%s: the learning rate cannot be negative: %s is "
                             "%g", kind->name, wb__rule_fields[i].name, value);
        const char *must = NULL;
        if (isnan(value)) must = "be a number";
        else if (i == ETA && isinf(value)) must = "be finite";
        else if (i != LAMBDA && value < 0) must = "not be negative";
        else if ((i == BETA || i == BETA + 1) && value >= 1) must = "be below 1";
        else if ((i == RHO || i == ELL) && value > 1) must = "not exceed 1";
        else if (i == ELL + 1 && value < 1 && *wb__rule_number(&kind->defaults, i) > 0)
            must = "be 1 or more";
        else if (i == GAMMA && value > *wb__rule_number(o, GAMMA + 1) &&
                 *wb__rule_number(&kind->defaults, GAMMA + 1) != 0)
            must = "not exceed gamma[1]";
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

wb_rule *wb__rule_new(int n)
{
    wb_rule *r = wb__object_new(&wb__rule_class, sizeof *r);
    if (!r) return NULL;
    r->parts = wb__alloc_zero((size_t)n + 1, sizeof *r->parts);
    r->n = n;
    if (r->parts) return r;
    wb_object_free(r);
    return NULL;
}

/* Sets the error that the rule has no number i, which the program gave; names the rule's numbers.
 * Returns NULL. */
static wb_rule *rules_fail_number(const wb__rule_kind *kind, int i, double value)
{
    char list[100] = "";
    size_t used = 0;
    const char *last = "";
    for (int k = 0; k < WB__RULE_NUMBERS && used < sizeof list; k++) {
        const char *option = wb__rule_fields[k].option;
        if (!wb__kind_has(kind, k) || !strcmp(option, last)) continue;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s.%s", used ? ", " : "",
                                 option);
        last = option;
    }
    return wb__fail_null(WB_ERROR_ARGUMENT, "%s: it has no %s; %g was given; it has %s", kind->name,
                         wb__rule_fields[i].name, value, *list ? list : "no numbers");
}

wb_rule *wb__rule_of(const wb__rule_kind *kind, const wb__rule_kind *centred,
                     const wb_Rule_options *given)
{
    wb_Rule_options o;
    if (!wb__rule_read(kind->name, kind->name, &o, given)) return NULL;
    if (o.centered && !centred)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: it has no .centered", kind->name);
    if (o.centered) kind = centred;
    for (int i = 0; i < WB__RULE_NUMBERS; i++) {
        double *value = wb__rule_number(&o, i);
        if (!wb__kind_has(kind, i) && *value != WB_DEFAULT)
            return rules_fail_number(kind, i, *value);
        *value = wb__or(*value, *wb__rule_number(&kind->defaults, i));
    }
    if (!wb__rule_check(kind, &o)) return NULL;
    wb_rule *r = wb__rule_new(1);
    if (r) r->parts[0] = (wb__rule_part){kind, o};
    return r;
}

double wb__rule_start(const wb_rule *rule, int moment)
{
    const wb__rule_part *part = rule->parts;
    for (; moment >= part->kind->moments; part++) moment -= part->kind->moments;
    if (part->kind->own) return part->kind->own->start[moment];
    if (part->kind->start == WB__FROM_EPS) return part->o.eps;
    return part->kind->start == WB__STEPS_FROM_ETA && moment == 1 ? part->o.eta : 0;
}

wb_rule *wb_AccumGrad(int64_t n)
{
    if (n < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "AccumGrad: %lld batches; it takes at least 1",
                             (long long)n);
    wb_rule *r = wb__rule_new(0);
    if (r) r->accumulate = n;
    return r;
}

const char *wb__rule_whole(const wb_rule *rule)
{
    for (int i = 0; i < rule->n; i++)
        if (rule->parts[i].kind->whole) return rule->parts[i].kind->name;
    return NULL;
}

void wb__moment_shape(const wb_opt_state *s, const wb__slot *slot, int moment, int *ndim,
                      int64_t *dims)
{
    *ndim = slot->ndim;
    memcpy(dims, slot->dims, sizeof slot->dims);
    for (int p = 0; p < s->rule->n; moment -= s->rule->parts[p++].kind->moments) {
        const wb__rule_kind *kind = s->rule->parts[p].kind;
        if (moment < 0 || moment >= kind->moments || !kind->shape) continue;
        kind->shape(moment, ndim, dims);
        return;
    }
}

/* Returns a rule that applies the rules in order.  A chain in a chain becomes one list of parts. */
wb_rule *wb_OptimizerChain_array(int n, wb_rule *const *rules)
{
    int total = 0;
    if (n < 1 || !rules) return wb__fail_null(WB_ERROR_ARGUMENT, "OptimizerChain: no rules");
    for (int i = 0; i < n; i++) {
        if (WB__NULL(rules[i])) return NULL;
        if (!wb__is(rules[i], &wb__rule_class))
            return wb__fail_null(WB_ERROR_ARGUMENT, "OptimizerChain: element %d is a %s, not a "
                                 "rule", i, wb__kind(rules[i]));
        total += rules[i]->n;
    }
    wb_rule *r = wb__rule_new(total);
    for (int i = 0, at = 0; r && i < n; at += rules[i++]->n) {
        memcpy(r->parts + at, rules[i]->parts, (size_t)rules[i]->n * sizeof *r->parts);
        r->bucket = WB__MAX(r->bucket, rules[i]->bucket);
        r->shard |= rules[i]->shard;
        r->accumulate = WB__MAX(r->accumulate, rules[i]->accumulate);
    }
    return r;
}

wb_rule *wb_DistributedOptimizer_with(wb_rule *rule, const wb_DistributedOptimizer_options *given)
{
    wb_DistributedOptimizer_options o;
    if (!wb__expect("DistributedOptimizer", rule, &wb__rule_class) ||
        !wb__read_options("DistributedOptimizer", wb_DistributedOptimizer_options, &o, given, NULL))
        return NULL;
    if (o.bucket < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "DistributedOptimizer: .bucket is %lld; it is a "
                             "number of bytes, at least 1", (long long)o.bucket);
    if (o.accumulate < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "DistributedOptimizer: .accumulate is %lld; it is "
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
    wb_rule *r = wb__rule_new(rule->n);
    if (!r) return NULL;
    memcpy(r->parts, rule->parts, (size_t)r->n * sizeof *r->parts);
    r->bucket = rule->bucket;
    r->shard = rule->shard;
    r->accumulate = rule->accumulate;
    return r;
}

static void rules_print_part(const wb__rule_part *p, wb__text *t)
{
    const char *comma = "";
    wb__text_add(t, "%s(", p->kind->name);
    for (int i = 0; i < WB__RULE_NUMBERS; i++) {
        const wb__rule_field *f = &wb__rule_fields[i];
        const double *number = wb__rule_number(&p->o, i);
        if (!wb__part_has(p, i) || (rules_is_of_pair(f, 1) && wb__part_has(p, i - 1))) continue;
        if (!rules_is_of_pair(f, 0)) wb__text_add(t, "%s%s=%g", comma, f->name, *number);
        else wb__text_add(t, "%s%s=(%g, %g)", comma, f->option, number[0], number[1]);
        comma = ", ";
    }
    wb__text_add(t, ")");
}

void wb__rule_print(const wb_rule *rule, wb__text *t)
{
    const bool first = rule->accumulate > 1 && !rule->bucket;       /* AccumGrad */
    const bool chain = rule->n + first > 1;
    if (rule->bucket) wb__text_add(t, "DistributedOptimizer(");
    if (chain) wb__text_add(t, "OptimizerChain(");
    if (first || !rule->n) wb__text_add(t, "AccumGrad(%lld)", (long long)rule->accumulate);
    for (int i = 0; i < rule->n; i++) {
        if (i || first) wb__text_add(t, ", ");
        rules_print_part(&rule->parts[i], t);
    }
    if (chain) wb__text_add(t, ")");
    if (rule->accumulate > 1 && !first)
        wb__text_add(t, ", accumulate=%lld", (long long)rule->accumulate);
    if (rule->bucket) wb__text_add(t, rule->shard ? ", shard=true)" : ")");
}
