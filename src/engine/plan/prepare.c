/* From steps to the backend's kernels; steps that a backend takes, and declines. */
#include "engine/plan/stages.h"

#include <string.h>

/* What a library operation will be done by, and why not by a vendor's routine. */
static void tell_dispatch(const wb_device *device, const wb__plan_step *d, const wb__kernel *k)
{
    char *text = wb__describe(d, k);
    wb__log(WB_LOG_DEBUG, "dispatch: %s:%d: %s", device->backend->tag, device->ordinal,
            text ? text : "");
    wb__free(text);
}

/* ---- steps that the backend takes, and declines ---------------------------------------------- */

static bool same_problem(const wb__step *a, const wb__step *b)
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

/* The number of a declined step in the list; `n` if it is not there. */
static int place_of_declined(const wb__declined *d, const wb__step *s)
{
    int i = 0;
    while (i < d->n && !same_problem(&d->step[i], s)) i++;
    return i;
}

bool wb__taken(const wb__attempt *a, const wb__step *s)
{
    const wb__declined *d = a->declined;
    return !d->all && place_of_declined(d, s) == d->n && a->device->backend->takes(a->device, s);
}

/* What is declined a second time was asked for in another form: then nothing is asked any more. */
static bool note_declined(wb__declined *d, const wb__step *s)
{
    const int i = place_of_declined(d, s);
    d->all |= i < d->known;
    if (i < d->n) return true;
    if (!wb__make_room(&d->step, &d->capacity, d->n + 1, sizeof *d->step)) return false;
    d->step[d->n++] = *s;
    return true;
}

/* *status: WB_ERROR_UNSUPPORTED where the step was declined, which the next attempt knows. */
static bool prepare_step(const wb__attempt *a, const wb__step *s, wb__kernel **k, int *status)
{
    *status = a->device->backend->prepare(a->device, s, k);
    if (!*status) return true;
    const bool taken = s->kind == WB__STEP_ATTENTION || wb__step_is_special(s);
    if (*status != WB_ERROR_UNSUPPORTED || !taken || a->declined->all) return false;
    if (wb__debug("plan"))
        wb__log(WB_LOG_DEBUG, "plan: made again, since a step was declined: %s", wb_error());
    return note_declined(a->declined, s);
}

/* ---- everything ------------------------------------------------------------------------------ */

/* What is kept of a step that was prepared. */
static void note_kernel(const wb__attempt *a, const wb__plan_step *d, bool is_final, wb__plan *p)
{
    const int i = p->n_steps - 1, launches = WB__MAX(d->step.fused.n_segments, 1);
    p->n_launches += launches;
    if (is_final) p->n_final_launches += launches;
    p->workspace_bytes = WB__MAX(p->workspace_bytes, (int64_t)p->kernels[i]->workspace);
    if (p->text) p->text[i] = wb__describe(d, p->kernels[i]);
    if (wb__debug("dispatch") && d->step.kind != WB__STEP_FUSED)
        tell_dispatch(a->device, d, p->kernels[i]);
}

/* After a declined step the others are prepared all the same, so that all that are declined are
 * known at once. */
bool wb__prepare(const wb__attempt *a, const wb__programs *s, wb__plan *p)
{
    const bool telling = wb__debug("plan");
    p->kernels = wb__alloc_zero((size_t)s->n + 1, sizeof *p->kernels);
    p->text = telling ? wb__alloc_zero((size_t)s->n + 1, sizeof *p->text) : NULL;
    if (!p->kernels || (telling && !p->text)) return false;
    bool declined = false;
    p->n_compute = s->n_compute;
    for (int i = 0; i < s->n; i++) {
        int status = 0;
        if (!prepare_step(a, &s->step[i].step, &p->kernels[p->n_steps], &status)) return false;
        declined |= status != 0;
        p->n_steps += !status;
        if (!declined) note_kernel(a, &s->step[i], i >= s->n_compute, p);
    }
    if (declined) wb__fail(WB_ERROR_UNSUPPORTED, "a step that was taken is declined");
    return !declined;
}
