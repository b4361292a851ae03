/* Lines about plans and their steps, for WEBER_DEBUG. */
#include "engine/plan/stages.h"

#include <stdio.h>

char *wb__describe(const wb__plan_step *d, const wb__kernel *k)
{
    static const char *const kinds[] = {"fused", "matmul",   "conv", "pool",
                                        "take",  "take_add", "copy", "attention"};
    char text[768];
    size_t n = 0, room = sizeof text;
    const wb__view *shape = d->step.kind == WB__STEP_FUSED
                                ? NULL
                                : &d->step.views[d->step.kind == WB__STEP_COPY ? 1 : 2];
    if (d->step.kind == WB__STEP_ATTENTION) shape = &d->step.views[3];
    if (d->step.kind == WB__STEP_POOL) shape = &d->step.views[d->step.n_views - 1];
    if (d->step.kind == WB__STEP_CONV && d->step.variant == WB__CONV_DATA) shape = d->step.views;
    if (d->step.kind == WB__STEP_CONV && d->step.variant == WB__CONV_WEIGHTS) shape = d->step.views + 1;
    n += (size_t)snprintf(text, room, "%-8s [", kinds[d->step.kind]);
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
