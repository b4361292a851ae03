/* Descriptions of plans and steps, for WEBER_DEBUG. */
#include "engine/plan/stages.h"

#include "backend/collective.h"
#include "base/text.h"

enum { MOST_OF_PROGRAM = 744 };         /* characters from which on a description lists no more
                                           instructions */

/* The view of a library step's result. */
static const wb__view *describe_result_of(const wb__step *s)
{
    switch (s->kind) {
    case WB__STEP_MATMUL: return &s->views[2];
    case WB__STEP_LINEAR_INT8: return &s->views[3];
    case WB__STEP_CONV:
        return &s->views[s->variant == WB__CONV_GRAD_INPUT    ? 0
                         : s->variant == WB__CONV_GRAD_WEIGHT ? 1
                                                              : 2];
    case WB__STEP_ATTENTION: return &s->views[3];
    default: return &s->views[s->n_views - 1];
    }
}

static void describe_add_program(wb__text *t, const wb__fused *f)
{
    static const char *const words[] = {[WB__CAST] = "cast", [WB__LOAD] = "load",
                                        [WB__PRODUCT] = "product",
                                        [WB__STORE] = "store", [WB__UNIFORM] = "draw",
                                        [WB__GAUSSIAN] = "draw"};
    static const char *const over[] = {[WB__REDUCE_COLUMNS] = " cols", [WB__REDUCE_ROWS] = " rows",
                                       [WB__REDUCE_ALL] = " all", [WB__STORE] = NULL};
    if (f->n_segments > 1) wb__text_add(t, " and %d more", f->n_segments - 1);
    wb__text_add(t, ":");
    for (int i = 0; i < f->n_instr && t->length < MOST_OF_PROGRAM; i++) {
        const wb__instr *in = &f->instr[i];
        const char *word = in->kind == WB__ELEMENTWISE_OP || over[in->kind] ? wb__ops[in->op].name
                                                                 : words[in->kind];
        if (word) wb__text_add(t, " %s%s", word, over[in->kind] ? over[in->kind] : "");
    }
}

static const char *const describe_collectives[] = {[WB__COLLECT_ALLREDUCE] = "allreduce",
                                                   [WB__COLLECT_REDUCE_SCATTER] = "reduce_scatter",
                                                   [WB__COLLECT_ALLGATHER] = "allgather"};

char *wb__describe(const wb__plan_step *d, const wb__kernel *k)
{
    const wb__step *s = &d->step;
    const bool fused = s->kind == WB__STEP_FUSED;
    const bool slope = s->aux_kind == WB__AUX_FACTOR || s->aux_kind == WB__AUX_MASK;
    const int64_t *dims = fused ? s->fused.spaces[0].dims : describe_result_of(s)->dims;
    const int ndim = fused ? s->fused.spaces[0].ndim : describe_result_of(s)->ndim;
    wb__text t = {0};
    wb__text_add(&t, "%-8s [", wb__step_names[s->kind]);
    for (int i = 0; i < ndim; i++) wb__text_add(&t, i ? ",%lld" : "%lld", (long long)dims[i]);
    wb__text_add(&t, "]");
    if (s->kind == WB__STEP_COLLECTIVE)
        wb__text_add(&t, " %s", describe_collectives[s->collective]);
    if (fused) describe_add_program(&t, &s->fused);
    else if (d->text) wb__text_add(&t, " %s", d->text);
    if (s->epilogue) wb__text_add(&t, slope ? " + slope" : " + activation");
    if (((s->kind == WB__STEP_MATMUL || s->kind == WB__STEP_CONV) && s->n_views == 4) ||
        (s->kind == WB__STEP_LINEAR_INT8 && s->n_views == 5))
        wb__text_add(&t, " + bias");
    if (s->aux_kind == WB__AUX_ADDEND) wb__text_add(&t, " + addend");
    if (s->sums_of) wb__text_add(&t, " + sums");
    if (k->impl && k->reason) wb__text_add(&t, "  {%s; %s}", k->impl, k->reason);
    else if (k->impl) wb__text_add(&t, "  {%s}", k->impl);
    const wb__cost c = wb__step_cost(s);
    wb__text_add(&t, "  reads %lld, writes %lld", (long long)(c.read + k->reloaded),
                 (long long)c.written);
    if (c.flops > 0) wb__text_add(&t, ", %.6g FLOP", c.flops);
    if (s->in_branch) wb__text_add(&t, ", in the branch");
    if (d->after >= 0) wb__text_add(&t, ", after %d", d->after);
    return wb__text_take(&t);
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
