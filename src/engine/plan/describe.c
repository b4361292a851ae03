/* Lines about plans and their steps, for WEBER_DEBUG. */
#include "engine/plan/stages.h"

#include <stdio.h>

/* What the step makes. */
static const wb__view *result_of(const wb__step *s)
{
    switch (s->kind) {
    case WB__STEP_MATMUL: return &s->views[2];
    case WB__STEP_CONV:
        return &s->views[s->variant == WB__CONV_DATA ? 0 : s->variant == WB__CONV_WEIGHTS ? 1 : 2];
    case WB__STEP_ATTENTION: return &s->views[3];
    default: return &s->views[s->n_views - 1];
    }
}

char *wb__describe(const wb__plan_step *d, const wb__kernel *k)
{
    char text[768];
    size_t n = 0, room = sizeof text;
    const wb__view *shape = d->step.kind == WB__STEP_FUSED ? NULL : result_of(&d->step);
    n += (size_t)snprintf(text, room, "%-8s [", wb__step_names[d->step.kind]);
    const int64_t *dims = shape ? shape->dims : d->spaces[0].dims;
    int ndim = shape ? shape->ndim : d->spaces[0].ndim;
    for (int i = 0; i < ndim; i++)
        n += (size_t)snprintf(text + n, room - n, i ? ",%lld" : "%lld", (long long)dims[i]);
    n += (size_t)snprintf(text + n, room - n, "]");
    if (!shape) {
        if (d->step.fused.n_segments > 1)
            n += (size_t)snprintf(text + n, room - n, " and %d more", d->step.fused.n_segments - 1);
        n += (size_t)snprintf(text + n, room - n, ":");
        for (int i = 0; i < d->step.fused.n_instr && n < room - 24; i++) {
            const wb__instr *in = &d->instr[i];
            const char *word = in->kind == WB__ROW || in->kind == WB__FOLD_COLS ||
                                       in->kind == WB__FOLD_ROWS || in->kind == WB__FOLD_ALL
                                   ? wb__ops[in->op].name
                               : in->kind == WB__CAST                                ? "cast"
                               : in->kind == WB__LOAD                                ? "load"
                               : in->kind == WB__STORE                               ? "store"
                               : in->kind == WB__UNIFORM || in->kind == WB__GAUSSIAN ? "draw"
                                                                                     : NULL;
            const char *over = in->kind == WB__FOLD_COLS   ? " cols"
                               : in->kind == WB__FOLD_ROWS ? " rows"
                               : in->kind == WB__FOLD_ALL  ? " all"
                                                           : "";
            if (word) n += (size_t)snprintf(text + n, room - n, " %s%s", word, over);
        }
    } else if (d->text && n < room) {
        n += (size_t)snprintf(text + n, room - n, " %s", d->text);
    }
    const bool back = d->step.aux_kind == WB__AUX_FACTOR || d->step.aux_kind == WB__AUX_MASK;
    if (d->step.epilogue && n < room)
        n += (size_t)snprintf(text + n, room - n, back ? " + slope" : " + activation");
    if ((d->step.kind == WB__STEP_MATMUL || d->step.kind == WB__STEP_CONV) &&
        d->step.n_views == 4 && n < room)
        n += (size_t)snprintf(text + n, room - n, " + bias");
    if (d->step.sums_of && n < room) n += (size_t)snprintf(text + n, room - n, " + sums");
    if (k->impl && n < room)
        snprintf(text + n, room - n, "  {%s%s%s}", k->impl, k->why ? "; " : "",
                 k->why ? k->why : "");
    return wb__strdup(text);
}

void wb__plan_print(const wb__plan *p)
{
    wb__log(WB_LOG_DEBUG,
            "plan: %d kernels, the last %d write variables\n"
            "bytes: arena %lld, workspace %lld, inputs %lld, results %lld: peak %lld",
            p->n_steps, p->n_steps - p->n_compute, (long long)p->arena_bytes,
            (long long)p->workspace_bytes, (long long)p->input_bytes, (long long)p->result_bytes,
            (long long)(p->arena_bytes + p->workspace_bytes + p->input_bytes + p->result_bytes));
    for (int i = 0; i < p->n_steps; i++)
        wb__log(WB_LOG_DEBUG, "%4d %s", i, p->text && p->text[i] ? p->text[i] : "");
}
