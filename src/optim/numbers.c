/* The numbers of a rule for the next update of a parameter: the rule's own, or those that wb_adjust
 * gave to the parameter alone, with the eta of its schedule. */
#include "optim/optim.h"

#include <math.h>

double wb__next_step(const wb_opt_state *s, int slot)
{
    return s->scaling[WB__STEPS_MADE] ? INFINITY : (double)(s->counts->slot[slot].steps + 1);
}

bool wb__slot_options(const wb_opt_state *s, int p, int slot, wb_Rule_options *o)
{
    const wb__slot *at = &s->slots[slot];
    *o = at->own ? at->own[p] : s->rule->parts[p].o;
    if (!at->schedule || !wb__part_follows(&s->rule->parts[p])) return true;
    o->eta = wb_schedule_at(at->schedule, (double)(s->counts->updates + 1));
    return !isnan(o->eta);
}

bool wb__slots_alike(const wb_opt_state *s, int p, int a, int b)
{
    const wb__slot *x = &s->slots[a], *y = &s->slots[b];
    if (x->schedule != y->schedule) return false;
    const wb_Rule_options *own = x->own ? &x->own[p] : &s->rule->parts[p].o;
    const wb_Rule_options *its = y->own ? &y->own[p] : &s->rule->parts[p].o;
    bool alike = true;
    for (int i = 0; own != its && i < WB__RULE_NUMBERS; i++)
        alike &= *wb__rule_number(own, i) == *wb__rule_number(its, i);
    return alike;
}

bool wb__schedules_fit(const wb_opt_state *s)
{
    const wb_schedule *before = NULL;
    for (int i = 0; i < s->n; i++) {
        wb_schedule *schedule = s->slots[i].schedule;
        if (schedule && schedule != before &&
            isnan(wb_schedule_at(schedule, (double)(s->counts->updates + 1))))
            return false;
        before = schedule;
    }
    return true;
}

/* The context of numbers_renew, which replays of a recorded wb_update call. */
typedef struct { wb_opt_state *state; int part, slot; } numbering;

static void numbers_renew(void *context, double *numbers)
{
    const numbering *n = context;
    wb_Rule_options o;
    wb__slot_options(n->state, n->part, n->slot, &o);
    wb__rule_literals(n->state->rule->parts[n->part].kind, &o, wb__next_step(n->state, n->slot),
                      numbers);
}

int wb__literals(wb_opt_state *s, int p, int slot, wb_dtype dtype, wb_tensor *t, wb_tensor **out)
{
    double numbers[WB__MAX_NUMBERS];
    wb_Rule_options o;
    const wb__rule_kind *kind = s->rule->parts[p].kind;
    if (!wb__slot_options(s, p, slot, &o)) return wb__error_or(WB_ERROR_NUMBER);
    const int n = wb__rule_literals(kind, &o, wb__next_step(s, slot), numbers);
    for (int i = 0; i < n; i++)
        if (!(out[i] = wb__argument(numbers[i], dtype))) return WB_ERROR_MEMORY;
    const numbering context = {s, p, slot};
    const int status = wb__on_replay(&(wb__replay){.n = n, .literals = out, .before = numbers_renew,
                                    .context = &context, .bytes = sizeof context, .holds = s});
    if (!status && t && kind->own) out[n - 1] = t;
    if (!status && t && kind->counted && !kind->counted(out, t)) return WB_ERROR_MEMORY;
    return status;
}
