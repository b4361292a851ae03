/* Making a plan: the stages in turn. */
#include "engine/plan/stages.h"

#include <string.h>

void wb__plan_free(wb__plan *p)
{
    if (!p) return;
    for (int i = 0; i < WB__PARTS; i++)
        if (p->part[i].graph) p->device->backend->graph_free(p->device, p->part[i].graph);
    for (int i = p->n_steps - 1; i >= 0; i--) {     /* the youngest first: drivers keep lists of them */
        p->device->backend->destroy(p->device, p->kernels[i]);
        if (p->text) wb__free(p->text[i]);
    }
    wb__free(p->kernels);
    wb__free(p->text);
    wb__free(p->words);
    wb__free(p->constants);
    wb__free(p->buffers);
    wb__free(p);
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

static bool keep_key(const wb__request *r, const wb__programs *m, wb__plan *p)
{
    p->words = wb__alloc((size_t)(r->n_words + 1) * sizeof *p->words);
    p->constants = wb__alloc((size_t)(m->n_constants + 1) * sizeof *p->constants);
    if (!p->words || !p->constants) return false;
    memcpy(p->words, r->words, (size_t)r->n_words * sizeof *p->words);
    if (m->n_constants)
        memcpy(p->constants, m->constants, (size_t)m->n_constants * sizeof *p->constants);
    p->n_words = r->n_words;
    p->n_constants = m->n_constants;
    return true;
}

static size_t bytes_of(const wb_tensor *x)
{
    return (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype);
}

/* What each buffer is for, and how far into it the plan reaches. */
static bool tell_buffers(const wb__request *r, const wb__ir *ir, wb__plan *p)
{
    p->buffers = wb__alloc_zero((size_t)p->arena + 1, sizeof *p->buffers);
    if (!p->buffers) return false;
    wb__buffer *b = p->buffers;
    for (int i = 0; i < r->n_leaves; i++, b++) {
        const wb__plan_leaf *l = &r->leaves[i];
        b->kind = l->tensor->variable && !l->granule ? WB__BUFFER_VARIABLE : WB__BUFFER_INPUT;
        b->scattered = l->scattered;
    }
    for (int i = 0; i < ir->n; i++)             /* others are read through windows only */
        if (ir->value[i].op == WB__OP_constant)
            p->buffers[ir->value[i].leaf].bytes = (size_t)r->leaves[ir->value[i].leaf].bytes;
    for (int i = 0; i < r->n_targets; i++) b[i].kind = WB__BUFFER_VARIABLE;
    for (int i = 0; i < r->n_writes; i++)
        if (r->targets[i] >= 0) p->buffers[r->targets[i]].kind = WB__BUFFER_VARIABLE;
    for (int i = 0; i < r->n_writes; i++)
        if (r->targets[i] >= r->n_leaves)
            p->buffers[r->targets[i]].bytes = bytes_of(r->writes[i]->variable);
    b += r->n_targets;
    for (int i = 0; i < r->n_results; i++, b++)
        *b = (wb__buffer){.kind = WB__BUFFER_RESULT, .bytes = bytes_of(r->results[i])};
    *b = (wb__buffer){.kind = WB__BUFFER_ARENA,
                     .bytes = (size_t)(p->arena_bytes + p->workspace_bytes)};
    return true;
}

static void count_bytes(const wb__request *r, wb__plan *p)
{
    for (int i = 0; i < r->n_leaves; i++)
        if (!r->leaves[i].granule) p->input_bytes += r->leaves[i].bytes;
    for (int i = 0; i < r->n_results; i++) p->result_bytes += (int64_t)bytes_of(r->results[i]);
}

/* The last stage. */
static wb__plan *finish(const wb__attempt *a, const wb__values *values,
                        const wb__placement *placement, const wb__programs *programs,
                        uint64_t hash)
{
    const wb__request *r = a->request;
    wb__plan *p = wb__alloc_zero(1, sizeof *p);
    if (!p) return NULL;
    p->hash = hash;
    p->device = a->device;
    p->arena = placement->arena_buffer;
    p->arena_bytes = programs->arena_bytes;
    if (wb__prepare(a, programs, p) && keep_key(r, programs, p) &&
        tell_buffers(r, &values->ir, p)) {
        count_bytes(r, p);
        return p;
    }
    wb__plan_free(p);
    return NULL;
}

/* All stages: each is finished before the next one begins. */
static wb__plan *attempt(const wb__attempt *a, uint64_t hash)
{
    wb__values values = {0};
    wb__patterns patterns = {0};
    wb__groups groups = {0};
    wb__placement placement = {0};
    wb__programs programs = {0};
    wb__plan *p = NULL;
    if (wb__values_make(a, &values) && wb__patterns_find(a, &values, &patterns) &&
        wb__groups_make(a, &values, &patterns, &groups) &&
        wb__placement_make(a, &values, &patterns, &groups, &placement) &&
        wb__programs_make(a, &values, &patterns, &groups, &placement, &programs))
        p = finish(a, &values, &placement, &programs, hash);
    wb__programs_free(&programs);
    wb__placement_free(&placement);
    wb__groups_free(&groups);
    wb__patterns_free(&patterns);
    wb__values_free(&values);
    if (p && wb__debug("plan")) wb__plan_print(p);
    return p;
}

/* A device may refuse a fused kernel that is too large for it: smaller ones then; or decline a step
 * that it accepted: then the plan is made without it. */
wb__plan *wb__plan_make(const wb__request *r, uint64_t hash)
{
    static const int most_values[] = {256, 64, 16, 4, 1};
    wb__declined declined = {0};
    wb__plan *p = NULL;
    for (size_t i = 0; !p && i < WB__COUNT(most_values);) {
        const int before = declined.n + declined.all;
        const wb__attempt a = {r, r->device, most_values[i], &declined};
        declined.known = declined.n;
        p = attempt(&a, hash);
        if (p || wb_error_code() != WB_ERROR_UNSUPPORTED) break;
        const bool learnt = declined.n + declined.all > before;
        if (!learnt && (r->device->backend->addressable || ++i == WB__COUNT(most_values))) break;
        wb_clear_error();
    }
    wb__free(declined.step);
    return p;
}
