/* Rules of the program's own: wb_rule_type as a wb__rule_kind. */
#include "base/mutex.h"
#include "optim/optim.h"

#include <string.h>

enum { OWN_RULE_TYPES = 64 };

static wb__mutex own_rule_lock = WB__MUTEX_INIT;
static wb__rule_kind own_rule_kinds[OWN_RULE_TYPES];
static int n_kinds;

/* The list of a type's defaults, in the order of wb__rule_fields. */
#define FIELDS(of)                                                                              \
    {of(eta), of(rho), of(beta[0]), of(beta[1]), of(eps), of(lambda), of(delta), of(omega),      \
     of(ell[0]), of(ell[1]), of(gamma[0]), of(gamma[1])}

/* Whether x is a tensor like `like`.  If not, sets the error. */
static bool own_rule_is_alike(const wb_rule_type *type, const char *what, int i, wb_tensor *x,
                              const wb_tensor *like)
{
    if (!x && !wb_error_code())
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: apply set no %s[%d], and nothing failed; "
                         "wb_fail sets the reason", type->name, what, i);
    if (!wb__operand(type->name, x)) return false;
    if (wb__same_dims(x, like) && x->dtype == like->dtype) return true;
    wb__text t = {0};
    wb__text_add(&t, "%s", wb_describe(like));
    wb__fail(WB_ERROR_SHAPE, "%s: apply gave %s for %s[%d]; the parameter is %s", type->name,
             wb_describe(x), what, i, t.text ? t.text : "");
    wb__free(wb__text_take(&t));
    return false;
}

WB__PROGRAM_CALL(apply_call, apply_run, wb_tensor *,
                 const wb_rule_type *type; wb_rule_step *step;,
                 c->type->apply(c->step, c->type->ctx))

static bool apply(wb__rule_step *s, wb_tensor *const *number)
{
    const wb_rule_type *type = s->kind->own;
    wb_rule_step own = {.x = s->x, .g = s->g};
    int n = 0;
#define ADDRESS(field) &own.field
    wb_tensor **const to[WB__RULE_NUMBERS] = FIELDS(ADDRESS);
    for (int i = 0; i < WB__RULE_NUMBERS; i++)
        if (wb__kind_has(s->kind, i)) *to[i] = number[n++];
    own.t = number[n];
    for (int k = 0; k < type->states; k++) own.state[k] = s->moment[k];
    wb_clear_error();
    apply_call c = {type, &own, NULL};
    wb_tensor *g = wb__call_program(apply_run, &c) ? c.result : NULL;
    if (!own_rule_is_alike(type, "result", 0, g, s->g)) return false;
    for (int k = 0; k < type->states; k++) {
        if (!own_rule_is_alike(type, "next", k, own.next[k], s->g)) return false;
        /* a variable is assigned a value of its own */
        s->next[k] = wb__unchanged(own.next[k]);
    }
    s->g = g;
    return true;
}

/* Returns the kind of a type, made at the first call.  NULL, with the error set: failed.  The
 * caller holds the lock. */
static const wb__rule_kind *own_rule_kind_of(const wb_rule_type *type)
{
    for (int i = 0; i < n_kinds; i++) {
        if (own_rule_kinds[i].own == type) return &own_rule_kinds[i];
        if (!strcmp(own_rule_kinds[i].name, type->name))
            return wb__fail_null(WB_ERROR_ARGUMENT, "Rule: there is another type \"%s\"",
                                 type->name);
    }
    if (n_kinds == OWN_RULE_TYPES)
        return wb__fail_null(WB_ERROR_ARGUMENT, "Rule: \"%s\" is one type too many; there are %d",
                             type->name, OWN_RULE_TYPES);
    wb__rule_kind *k = &own_rule_kinds[n_kinds++];
#define VALUE(field) type->field
    const double defaults[WB__RULE_NUMBERS] = FIELDS(VALUE);
    *k = (wb__rule_kind){.name = type->name, .moments = type->states, .apply = apply,
                         .whole = type->whole, .own = type};
    for (int i = 0; i < WB__RULE_NUMBERS; i++) *wb__rule_number(&k->defaults, i) = defaults[i];
    return k;
}

wb_rule *wb_CustomRule_with(const wb_rule_type *type, const wb_Rule_options *o)
{
    if (!type || !type->name || !*type->name || !type->apply)
        return wb__fail_null(WB_ERROR_ARGUMENT, "Rule: no %s",
                             !type ? "type" : type->apply ? "name" : "function apply");
    if (type->states < 0 || type->states > WB__MOMENTS)
        return wb__fail_null(WB_ERROR_ARGUMENT, "Rule: \"%s\" has %d states; it has 0 to %d",
                             type->name, type->states, WB__MOMENTS);
    if (!wb__reserve_is_empty("Rule", type->reserved_, sizeof type->reserved_)) return NULL;
    if (wb__rule_known(type->name))
        return wb__fail_null(WB_ERROR_ARGUMENT, "Rule: \"%s\" is a rule of the library",
                             type->name);
    wb__mutex_lock(&own_rule_lock);
    const wb__rule_kind *kind = own_rule_kind_of(type);
    wb__mutex_unlock(&own_rule_lock);
    return kind ? wb__rule_of(kind, NULL, o) : NULL;
}
