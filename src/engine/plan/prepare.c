/* The last stage: prepares a kernel for each step and fills in the plan.  Notes the steps that the
 * backend accepted and then declines, so that the next attempt avoids them. */
#include "engine/plan/stages.h"

#include "engine/profile.h"

#include <string.h>

/* Logs which implementation runs a library operation and, if no vendor's library does, the
 * reason. */
static void report_dispatch(const wb_device *device, const wb__plan_step *d, const wb__kernel *k)
{
    char *text = wb__describe(d, k);
    wb__log(WB_LOG_DEBUG, "dispatch: %s:%d: %s", device->backend->tag, device->ordinal,
            text ? text : "");
    wb__free(text);
}

/* Whether two steps have the same operation, dtypes and dimensions. */
static bool are_equal_steps(const wb__step *a, const wb__step *b)
{
    bool same = a->kind == b->kind && a->variant == b->variant && a->epilogue == b->epilogue &&
                a->aux_kind == b->aux_kind && a->sums_of == b->sums_of &&
                a->n_views == b->n_views;
    for (int i = 0; i < a->n_views && same; i++) {
        const wb__view *v = &a->views[i], *w = &b->views[i];
        same = v->dtype == w->dtype && v->ndim == w->ndim &&
               !memcmp(v->dims, w->dims, (size_t)v->ndim * sizeof v->dims[0]);
    }
    return same;
}

/* The index of a step among the declined steps; `n` if it is not one of them. */
static int index_of_declined(const wb__declined *d, const wb__step *s)
{
    int i = 0;
    while (i < d->n && !are_equal_steps(&d->step[i], s)) i++;
    return i;
}

bool wb__supported(const wb__attempt *a, const wb__step *s)
{
    const wb__declined *d = a->declined;
    const wb__backend *b = a->device->backend;
    return !d->all && index_of_declined(d, s) == d->n && b->supports && b->supports(a->device, s);
}

/* Adds a step to the declined ones.  If an earlier attempt has already added it, wb__supported
 * returns false for every step from now on.  False: out of memory. */
static bool add_declined(wb__declined *d, const wb__step *s)
{
    const int i = index_of_declined(d, s);
    d->all |= i < d->known;
    if (i < d->n) return true;
    if (!wb__reserve(&d->step, &d->capacity, d->n + 1, sizeof *d->step)) return false;
    d->step[d->n++] = *s;
    return true;
}

/* Prepares the kernel of a step and sets *status to 0.  If the backend declines a step that its
 * `supports` accepted, notes it for the next attempt and sets *status to WB_ERROR_UNSUPPORTED.
 * False: failed, with the error set. */
static bool prepare_step(const wb__attempt *a, const wb__step *s, wb__kernel **k, int *status)
{
    *status = a->device->backend->prepare(a->device, s, k);
    if (!*status) return true;
    const bool supported = s->kind == WB__STEP_ATTENTION || wb__step_is_special(s);
    if (*status != WB_ERROR_UNSUPPORTED || !supported || a->declined->all) return false;
    if (wb__debug("plan"))
        wb__log(WB_LOG_DEBUG, "plan: made again, since a step was declined: %s", wb_error());
    return add_declined(a->declined, s);
}

/* Adds a prepared kernel's launches, workspace and description to the plan. */
static void prepare_add_kernel(const wb__attempt *a, const wb__plan_step *d, bool is_final,
                               wb__plan *p)
{
    const int i = p->n_steps - 1, launches = WB__MAX(d->step.fused.n_segments, 1);
    p->n_launches += launches;
    if (is_final) p->n_final_launches += launches;
    p->library_writes |= is_final && d->step.kind != WB__STEP_FUSED;
    int64_t *workspace = p->kernels[i]->in_branch ? &p->branch_bytes : &p->workspace_bytes;
    *workspace = WB__MAX(*workspace, (int64_t)p->kernels[i]->workspace);
    if (p->text) p->text[i] = wb__describe(d, p->kernels[i]);
    if (wb__debug("dispatch") && d->step.kind != WB__STEP_FUSED)
        report_dispatch(a->device, d, p->kernels[i]);
}

/* Sets p->waits if the launch of some step only begins it.  False: out of memory. */
static bool copy_waits(const wb__programs *s, wb__plan *p)
{
    bool any = false;
    for (int i = 0; i < s->n; i++) {
        any |= p->kernels[i]->unfinished;
        p->by_host |= p->kernels[i]->by_host;
    }
    if (!any) return true;
    p->waits = wb__alloc((size_t)s->n * sizeof *p->waits);
    for (int i = 0; i < s->n && p->waits; i++)
        p->waits[i] = (wb__plan_wait){s->step[i].waits_for, p->kernels[i]->unfinished};
    return p->waits;
}

/* Keeps the order of two branches, which have a workspace each.  False: out of memory. */
static bool copy_branches(const wb__programs *s, wb__plan *p)
{
    const int64_t unit = WB__WORKSPACE_ALIGN;
    if (!s->branches) return true;
    p->branch_at = (p->workspace_bytes + unit - 1) / unit * unit;
    if (p->branch_bytes) p->workspace_bytes = p->branch_at + p->branch_bytes;
    p->after = wb__alloc(((size_t)s->n + 1) * sizeof *p->after);
    for (int i = 0; i < s->n && p->after; i++) p->after[i] = s->step[i].after;
    return p->after;
}

/* Returns the index of the leaf that view 1 of the step reads, if that leaf may have a prepared
 * form: the step is a product or convolution that reads all of the leaf's tensor, and this plan
 * does not write the leaf.  Returns -1 otherwise. */
static int constant_leaf(const wb__attempt *a, const wb__plan_step *d)
{
    const wb__request *r = a->request;
    const wb__step *s = &d->step;
    const bool reads = s->kind == WB__STEP_MATMUL ? !s->packed && !wb__step_is_special(s)
                     : s->kind == WB__STEP_CONV && s->variant != WB__CONV_GRAD_WEIGHT;
    if (!reads || !a->device->backend->prepare_form) return -1;
    const int leaf = s->views[1].buffer;
    if (d->operand[1].allocation >= 0 || leaf < 0 || leaf >= r->n_leaves) return -1;
    for (int i = 0; i < r->n_targets; i++)
        if (r->targets[i] == leaf) return -1;
    return r->leaves[leaf].granule ? -1 : leaf;
}

/* Adds the prepared form of the leaf that the newest kernel can read to the plan.  False: out of
 * memory. */
static bool prepare_add_form(wb__plan *p, int leaf)
{
    const int kernel = p->n_steps - 1;
    if (leaf < 0 || !p->kernels[kernel]->form_bytes) return true;
    if (!wb__reserve(&p->forms, &p->forms_capacity, p->n_forms + 1, sizeof *p->forms)) return false;
    p->forms[p->n_forms++] = (wb__plan_form){leaf, kernel};
    return true;
}

/* Prepares all steps even after one was declined, so that one attempt finds all declined steps. */
static bool prepare_all(const wb__attempt *a, const wb__programs *s, wb__plan *p)
{
    const bool printing = wb__debug("plan") || wb__profiling;
    p->kernels = wb__alloc_zero((size_t)s->n + 1, sizeof *p->kernels);
    p->text = printing ? wb__alloc_zero((size_t)s->n + 1, sizeof *p->text) : NULL;
    if (!p->kernels || (printing && !p->text)) return false;
    bool declined = false;
    p->n_compute = s->n_compute;
    for (int i = 0; i < s->n; i++) {
        int status = 0;
        wb__step step = s->step[i].step;
        const int leaf = constant_leaf(a, &s->step[i]);
        if (leaf >= 0) step.form = wb__plan_buffers(p);
        if (!prepare_step(a, &step, &p->kernels[p->n_steps], &status)) return false;
        declined |= status != 0;
        p->n_steps += !status;
        if (!status && !prepare_add_form(p, leaf)) return false;
        if (!declined) prepare_add_kernel(a, &s->step[i], i >= s->n_compute, p);
    }
    if (declined) wb__fail(WB_ERROR_UNSUPPORTED, "a step that was taken is declined");
    return !declined;
}

/* Copies to the plan the words and constants by which a later request finds it. */
static bool prepare_copy_key(const wb__request *r, const wb__programs *m, wb__plan *p)
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

static size_t prepare_bytes_of(const wb_tensor *x)
{
    return (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype);
}

/* Fills in the kind of each buffer and the number of bytes that the plan uses of it. */
static bool fill_buffers(const wb__request *r, const wb__ir *ir, wb__plan *p)
{
    p->buffers = wb__alloc_zero((size_t)p->arena + 1, sizeof *p->buffers);
    if (!p->buffers) return false;
    wb__buffer *b = p->buffers;
    for (int i = 0; i < r->n_leaves; i++, b++) {
        const wb__plan_leaf *l = &r->leaves[i];
        b->kind = l->tensor->variable && !l->granule ? WB__BUFFER_VARIABLE : WB__BUFFER_INPUT;
        b->scattered = l->scattered;
    }
    for (int i = 0; i < ir->n; i++)         /* no step reads a leaf that is not in `ir`: 0 bytes */
        if (ir->value[i].op == WB__OP_constant)
            p->buffers[ir->value[i].leaf].bytes = (size_t)r->leaves[ir->value[i].leaf].bytes;
    for (int i = 0; i < r->n_targets; i++) b[i].kind = WB__BUFFER_VARIABLE;
    for (int i = 0; i < r->n_writes; i++)
        if (r->targets[i] >= 0) p->buffers[r->targets[i]].kind = WB__BUFFER_VARIABLE;
    for (int i = 0; i < r->n_writes; i++)
        if (r->targets[i] >= r->n_leaves)
            p->buffers[r->targets[i]].bytes = prepare_bytes_of(r->writes[i]->variable);
    b += r->n_targets;
    for (int i = 0; i < r->n_results; i++, b++)
        *b = (wb__buffer){.kind = WB__BUFFER_RESULT, .bytes = prepare_bytes_of(r->results[i])};
    *b = (wb__buffer){.kind = WB__BUFFER_ARENA,
                     .bytes = (size_t)(p->arena_bytes + p->workspace_bytes)};
    return true;
}

static void prepare_count_bytes(const wb__request *r, wb__plan *p)
{
    for (int i = 0; i < r->n_leaves; i++)
        if (!r->leaves[i].granule) p->input_bytes += r->leaves[i].bytes;
    for (int i = 0; i < r->n_results; i++)
        p->result_bytes += (int64_t)prepare_bytes_of(r->results[i]);
}

wb__plan *wb__plan_finish(const wb__attempt *a, const wb__values *values,
                          const wb__placement *placement, const wb__programs *programs)
{
    const wb__request *r = a->request;
    wb__plan *p = wb__alloc_zero(1, sizeof *p);
    if (!p) return NULL;
    wb__mutex_init(&p->building);
    p->device = a->device;
    p->arena = placement->arena_buffer;
    p->arena_bytes = programs->arena_bytes;
    if (prepare_all(a, programs, p) && prepare_copy_key(r, programs, p) &&
        copy_waits(programs, p) && copy_branches(programs, p) && fill_buffers(r, &values->ir, p)) {
        prepare_count_bytes(r, p);
        return p;
    }
    wb__plan_free(p);
    return NULL;
}

void wb__plan_free(wb__plan *p)
{
    if (!p) return;
    for (int i = 0; i < WB__PHASES; i++)
        if (p->phase[i].graph) p->device->backend->graph_free(p->device, p->phase[i].graph);
    for (int i = p->n_steps - 1; i >= 0; i--) {     /* newest first, as a driver may search its list
                                                       of kernels */
        p->device->backend->destroy(p->device, p->kernels[i]);
        if (p->text) wb__free(p->text[i]);
    }
    wb__free(p->kernels);
    wb__free(p->waits);
    wb__free(p->after);
    wb__free(p->text);
    wb__free(p->forms);
    wb__free(p->words);
    wb__free(p->constants);
    wb__mutex_destroy(&p->building);
    wb__free(p->buffers);
    wb__free(p);
}
