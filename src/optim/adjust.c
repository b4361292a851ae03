/* Changes of a state: wb_adjust, wb_set_schedule, wb_freeze, wb_thaw, for all parameters or for
 * those of a path; reading numbers back. */
#include "optim/optim.h"

#include <stdio.h>
#include <string.h>

static int no_object(void) { return wb__error_or(WB_ERROR_ARGUMENT); }

static int adjust_is_state(const char *what, const wb_opt_state *s)
{
    return wb__expect(what, s, &wb__opt_state_class) ? 0 : no_object();
}

/* Returns an array [s->n]: whether the slot's parameter has a path at or below `path`.  NULL, with
 * the error set, if no slot has one. */
static bool *slots_below(const char *what, const wb_opt_state *s, const char *path)
{
    bool found = false;
    if (!path) return wb__fail_null(WB_ERROR_ARGUMENT, "%s: no path", what);
    bool *below = wb__alloc_zero((size_t)s->n, sizeof *below);
    for (int i = 0; below && i < s->n_paths; i++)
        if (wb__path_is_below(s->paths[i].path, path, strlen(path)))
            below[s->paths[i].slot] = found = true;
    if (!below || found) return below;
    wb__free(below);
    return wb__fail_null(WB_ERROR_ARGUMENT, "%s: no parameter is below \"%s\"", what, path);
}

static int set_frozen(const char *what, wb_opt_state *s, const char *path, bool frozen)
{
    const int status = adjust_is_state(what, s);
    bool *below = status ? NULL : slots_below(what, s, path);
    if (!below) return no_object();
    for (int i = 0; i < s->n; i++)
        if (below[i]) wb__setting_set(s, &s->slots[i].frozen, frozen);
    wb__free(below);
    return 0;
}

int wb_freeze(wb_opt_state *s, const char *path) { return set_frozen("freeze", s, path, true); }
int wb_thaw(wb_opt_state *s, const char *path) { return set_frozen("thaw", s, path, false); }

/* Sets those numbers *o of a part of the rule that the program gives. */
static void adjust_set_given(const wb__rule_part *part, const wb_Rule_options *given,
                             wb_Rule_options *o)
{
    for (int i = 0; i < WB__RULE_NUMBERS; i++)
        if (wb__part_has(part, i))
            *wb__rule_number(o, i) = wb__or(*wb__rule_number(given, i), *wb__rule_number(o, i));
}

static int adjust_fail_no_number(const char *what, const wb_rule *rule, const char *option)
{
    wb__text t = {0};
    wb__rule_print(rule, &t);
    int status = wb__fail(WB_ERROR_ARGUMENT, "%s: %s has no %s", what, t.text ? t.text : "the rule",
                          option);
    wb__free(wb__text_take(&t));
    return status;
}

/* Returns 0 if the given numbers fit the other numbers of each slot i with below[i], or of all
 * slots if `below` is NULL; else an error code. */
static int adjust_check(const char *what, const wb_opt_state *s, const wb_Rule_options *o,
                        const bool *below)
{
    int n_given = 0;
    for (int i = 0; i < WB__RULE_NUMBERS; i++) {
        bool taken = false;
        if (*wb__rule_number(o, i) == WB_DEFAULT) continue;
        for (int p = 0; p < s->rule->n; p++) {
            const wb__rule_part *part = &s->rule->parts[p];
            if (!wb__part_has(part, i)) continue;
            if (i == WB__ETA && !wb__part_follows(part))
                return wb__fail(WB_ERROR_ARGUMENT, "%s: the eta of %s is the step size with "
                                "which wb_setup begins: change .gamma, its bounds", what,
                                part->kind->name);
            if (below && part->kind->all_together)
                return wb__fail(WB_ERROR_ARGUMENT, "%s: %s has one .%s for all parameters together:"
                                " change it with wb_adjust", what, part->kind->name,
                                wb__rule_fields[i].option);
            for (int k = below ? 0 : -1; k < s->n; k++) {
                if (k >= 0 && ((below && !below[k]) || (!below && !s->slots[k].own))) continue;
                wb_Rule_options new = k >= 0 && s->slots[k].own ? s->slots[k].own[p] : part->o;
                adjust_set_given(part, o, &new);
                if (!wb__rule_check(part->kind, &new)) return WB_ERROR_ARGUMENT;
            }
            taken = true;
        }
        if (!taken) return adjust_fail_no_number(what, s->rule, wb__rule_fields[i].option);
        n_given++;
    }
    return n_given ? 0 : wb__fail(WB_ERROR_ARGUMENT, "%s: no number is given", what);
}

int wb__slot_own(const wb_opt_state *s, wb__slot *slot, bool own)
{
    if (own == (slot->own != NULL)) return 0;
    wb__free(slot->own);
    slot->own = own ? wb__alloc_zero((size_t)s->rule->n, sizeof *slot->own) : NULL;
    for (int p = 0; slot->own && p < s->rule->n; p++) slot->own[p] = s->rule->parts[p].o;
    return own && !slot->own ? WB_ERROR_MEMORY : 0;
}

void wb__slot_follow(wb_opt_state *s, wb__slot *slot, wb_schedule *schedule)
{
    if (slot->schedule == schedule) return;
    wb__ref(schedule);
    wb__unref(slot->schedule);
    slot->schedule = schedule;
    s->changes++;
}

/* Reads the options of wb_adjust.  Returns 0 or an error code. */
static int adjust_read_numbers(const char *what, const wb_opt_state *s,
                               const wb_Rule_options *given, wb_Rule_options *o)
{
    const int status = adjust_is_state(what, s);
    if (status) return status;
    if (!wb__rule_read(what, NULL, o, given)) return wb_error_code();
    if (o->centered)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .centered cannot be changed, since the state "
                        "has other moments: call wb_setup with a rule that has it", what);
    return 0;
}

int wb_adjust_with(wb_opt_state *s, const wb_Rule_options *given)
{
    WB__PUBLIC(wb_adjust_with, wb_error_code());
    wb_Rule_options o;
    int status = adjust_read_numbers("adjust", s, given, &o);
    if (!status) status = adjust_check("adjust", s, &o, NULL);
    for (int p = 0; !status && p < s->rule->n; p++) {
        adjust_set_given(&s->rule->parts[p], &o, &s->rule->parts[p].o);
        for (int i = 0; i < s->n; i++)
            if (s->slots[i].own) adjust_set_given(&s->rule->parts[p], &o, &s->slots[i].own[p]);
    }
    for (int i = 0; !status && o.eta != WB_DEFAULT && i < s->n; i++)
        wb__slot_follow(s, &s->slots[i], NULL);
    return status;
}

int wb_adjust_at_with(wb_opt_state *s, const char *path, const wb_Rule_options *given)
{
    WB__PUBLIC(wb_adjust_at_with, wb_error_code());
    static const char what[] = "adjust_at";
    wb_Rule_options o;
    int status = adjust_read_numbers(what, s, given, &o);
    bool *below = status ? NULL : slots_below(what, s, path);
    if (!below) return no_object();
    status = adjust_check(what, s, &o, below);
    for (int i = 0; !status && i < s->n; i++)
        if (below[i]) status = wb__slot_own(s, &s->slots[i], true);
    for (int i = 0; !status && i < s->n; i++) {
        if (!below[i]) continue;
        for (int p = 0; p < s->rule->n; p++)
            adjust_set_given(&s->rule->parts[p], &o, &s->slots[i].own[p]);
        if (o.eta != WB_DEFAULT) wb__slot_follow(s, &s->slots[i], NULL);
    }
    s->changes++;
    wb__free(below);
    return status;
}

int wb__rule_follows(const char *what, const wb_rule *rule, const char *by)
{
    char wanted[80];
    for (int p = 0; p < rule->n; p++)
        if (wb__part_follows(&rule->parts[p])) return 0;
    snprintf(wanted, sizeof wanted, "eta that %s can change", by);
    return adjust_fail_no_number(what, rule, wanted);
}

int wb_set_schedule(wb_opt_state *s, const char *path, wb_schedule *schedule)
{
    WB__PUBLIC(wb_set_schedule, wb_error_code());
    static const char what[] = "set_schedule";
    int status = adjust_is_state(what, s);
    if (status) return status;
    if (!wb__schedule_given(what, schedule)) return no_object();
    status = wb__rule_follows(what, s->rule, "a schedule");
    if (status) return status;
    bool *below = slots_below(what, s, path);
    if (!below) return no_object();
    for (int i = 0; i < s->n; i++)
        if (below[i]) wb__slot_follow(s, &s->slots[i], schedule);
    wb__free(below);
    return 0;
}

int wb_rule_number(wb_opt_state *s, const char *path, const char *name, double *value)
{
    WB__EDGE;
    static const char what[] = "rule_number";
    int status = adjust_is_state(what, s), slot = 0, field = 0;
    if (status) return status;
    if (!name || !value) return wb__fail(WB_ERROR_ARGUMENT, "%s: no name, or no value", what);
    bool *below = slots_below(what, s, path);
    if (!below) return no_object();
    while (!below[slot]) slot++;
    wb__free(below);
    while (field < WB__RULE_NUMBERS && strcmp(wb__rule_fields[field].name, name)) field++;
    for (int p = 0; field < WB__RULE_NUMBERS && p < s->rule->n; p++) {
        wb_Rule_options o;
        if (!wb__part_has(&s->rule->parts[p], field)) continue;
        if (!wb__slot_options(s, p, slot, &o)) return wb_error_code();
        *value = *wb__rule_number(&o, field);
        return 0;
    }
    return adjust_fail_no_number(what, s->rule, name);
}
