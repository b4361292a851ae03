/* Steps are prepared when a plan is created, by a vendor library or as compiled text, and launched
 * at every run.  A launch looks nothing up, allocates nothing and takes one lock.  If a driver
 * binds arguments, only those that differ from the previous launch are bound. */
#include "backend/gpu/runtime/aside.h"
#include "backend/gpu/runtime/collective.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the description of a step --------------------------------------------------------------- */

static size_t gpu_kernel_add_view(char *text, size_t at, size_t capacity, const wb__view *v)
{
    at += (size_t)snprintf(text + at, capacity - at, " [");
    for (int i = 0; i < v->ndim && at < capacity; i++)
        at += (size_t)snprintf(text + at, capacity - at, "%s%lld", i ? "," : "",
                               (long long)v->dims[i]);
    if (at < capacity)
        at += (size_t)snprintf(text + at, capacity - at, "] %s", wb_dtype_name(v->dtype));
    return WB__MIN(at, capacity - 1);
}

/* Writes a text such as "matmul [64,784] f32 [784,10] f32 [64,10] f32". */
static void gpu_kernel_describe(const wb__step *step, char *text, size_t capacity)
{
    size_t at = (size_t)snprintf(text, capacity, "%s", wb__step_names[step->kind]);
    if (step->kind == WB__STEP_FUSED && step->fused.n_segments) {
        const wb__space *space = &step->fused.spaces[0];
        wb__view v = {.dtype = WB_F32, .ndim = space->ndim};
        memcpy(v.dims, space->dims, sizeof v.dims);
        if (step->fused.n_views) v.dtype = step->fused.views[0].dtype;
        at = gpu_kernel_add_view(text, at, capacity, &v);
        if (step->fused.n_segments > 1)
            snprintf(text + at, capacity - at, " and %d more", step->fused.n_segments - 1);
    }
    for (int i = 0; i < step->n_views; i++)
        at = gpu_kernel_add_view(text, at, capacity, &step->views[i]);
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* Returns an error if a launch exceeds a limit of the device. */
static int gpu_kernel_check_sizes(wb__gpu_device *d, const wb__gpu_launch *l)
{
    const wb__gpu_target *t = &d->target;
    const size_t bytes = (size_t)l->n_buffers * t->buffer_bytes + l->args_bytes;
    if (l->groups[0] <= t->max_groups[0] && l->groups[1] <= t->max_groups[1] &&
        l->groups[2] <= t->max_groups[2] && bytes <= t->max_args_bytes &&
        (!t->max_buffers || l->n_buffers <= t->max_buffers))
        return 0;
    return wb__fail(WB_ERROR_INTERNAL, "%s:%d: kernel %s: %u x %u x %u groups, %d buffers, %zu"
                    " bytes of arguments: more than can be launched", d->driver->backend->tag,
                    d->base.ordinal, l->entry, l->groups[0], l->groups[1], l->groups[2],
                    l->n_buffers, bytes);
}

/* Binds an argument of a launch: the address of a buffer, or the argument struct. */
static int gpu_kernel_bind(wb__gpu_device *d, wb__gpu_bound_launch *p, int argument, size_t bytes,
                           const void *value)
{
    const bool memory = argument < p->launch->n_buffers;
    const int code = d->driver->bind(p->function, argument, memory, bytes, value);
    return code ? wb__gpu_fail(d->driver, d, code, "kernel %s, argument %d", p->launch->entry,
                               argument) : 0;
}

static int gpu_kernel_prepare_launch(wb__gpu_device *d, wb__gpu_bound_launch *p,
                                     const wb__gpu_launch *l, bool in_branch)
{
    const size_t n = (size_t)l->n_buffers;
    p->launch = l;
    p->changes = l->n_numbers || l->workspace_at >= 0 || (d->driver->objects && l->n_origins);
    p->args = wb__alloc_zero(2 * l->args_bytes + 1, 1);
    p->address = wb__alloc_zero(n + 1, sizeof *p->address);
    p->argument = wb__alloc_zero(n + 1, sizeof *p->argument);
    if (!p->args || !p->address || !p->argument) return WB_ERROR_MEMORY;
    p->next = p->args + l->args_bytes;
    memcpy(p->args, l->args, l->args_bytes);
    for (size_t i = 0; i < n; i++) p->argument[i] = &p->address[i];
    p->argument[n] = p->args;
    if (gpu_kernel_check_sizes(d, l)) return WB_ERROR_INTERNAL;
    p->program = wb__gpu_program_get(d, l->text, (l->f64 ? WB__GPU_F64 : 0) |
                                                  (in_branch ? WB__GPU_APART : 0));
    if (!p->program) return wb_error_code();
    const int status =
        wb__gpu_function_of(d, p->program, l->entry, l->items, l->local, &p->function);
    if (status || !l->local || !d->driver->bind) return status;
    return gpu_kernel_bind(d, p, l->n_buffers + 1, l->local, NULL);
}

/* ---- libraries ------------------------------------------------------------------------------- */

/* Returns the driver's library for this kind of step; NULL: none. */
static const wb__gpu_hook *gpu_kernel_library_for(const wb__gpu_device *d, const wb__step *step)
{
    const wb__gpu_hook *const *all = d->driver->libraries;
    for (int i = 0; all && all[i]; i++)
        if (all[i]->kinds >> step->kind & 1) return all[i];
    return NULL;
}

/* With the device entered: prepares a step by a vendor library.  WB_ERROR_UNSUPPORTED: no library
 * executes this step. */
static int prepare_routine(wb__gpu_device *d, const wb__step *step, wb__gpu_routine **r,
                           const char **reason)
{
    const wb__gpu_hook *library = gpu_kernel_library_for(d, step);
    if (!library) return WB_ERROR_UNSUPPORTED;
    if (library->vendor && !wb__gpu_vendor_usable(library->vendor)) {
        *reason = library->vendor->reasons[WB__GPU_UNUSED];
        return WB_ERROR_UNSUPPORTED;
    }
    wb__mutex_lock(&d->lock);
    const int status = library->prepare(d, step, r, reason);
    wb__mutex_unlock(&d->lock);
    return status;
}

int wb__gpu_keep_routine(const wb__gpu_routine *made, size_t bytes, wb__gpu_entry *entry,
                         wb__gpu_routine **r)
{
    *r = wb__alloc(bytes);
    if (!*r) return WB_ERROR_MEMORY;
    memcpy(*r, made, bytes);
    (*r)->held = entry;
    if (entry) entry->holders++;
    return 0;
}

static void destroy_routine(wb__gpu_device *d, wb__gpu_routine *r)
{
    if (!r) return;
    wb__mutex_lock(&d->lock);
    if (r->library->destroy) r->library->destroy(d, r);
    if (r->held) r->held->holders--;
    wb__free(r);
    wb__mutex_unlock(&d->lock);
}

/* Prepares the step without its epilogue by a vendor library, and creates the launches of the
 * epilogue.  If the library accepts no epilogue at all, *reason is why it declines the rest. */
static int gpu_kernel_prepare_split(wb__gpu_device *d, const wb__step *step, wb__gpu_routine **r,
                                    wb__gpu_work **work, const char **reason)
{
    const wb__gpu_hook *library = gpu_kernel_library_for(d, step);
    wb__step bare;
    wb__gpu_rest rest;
    const char *other = NULL;
    if (!library || !wb__gpu_split_epilogue(step, library->bare, &bare,
                                            &rest)) return WB_ERROR_UNSUPPORTED;
    int status = prepare_routine(d, &bare, r, library->bare ? reason : &other);
    if (status) return status;
    status = wb__gpu_step(&d->target, &rest.step, work);
    if (!status) return 0;
    destroy_routine(d, *r);
    *r = NULL;
    return status;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Adds a buffer of the plan to those that the kernel uses. */
static void add_used_buffer(wb__gpu_kernel *k, int buffer)
{
    if (buffer < 0) return;
    for (int i = 0; i < k->n_used; i++)
        if (k->used[i] == buffer) return;
    k->used[k->n_used++] = buffer;
    k->n_buffers = WB__MAX(k->n_buffers, buffer + 1);
}

static int list_buffers(wb__gpu_kernel *k, const wb__step *step)
{
    size_t capacity = (size_t)step->n_views + 3;
    for (int i = 0; i < k->n; i++) capacity += (size_t)k->work->launch[i].n_buffers;
    k->used = wb__alloc_zero(capacity, sizeof *k->used);
    if (!k->used) return WB_ERROR_MEMORY;
    for (int i = 0; i < k->n; i++) {
        const wb__gpu_launch *l = &k->work->launch[i];
        for (int j = 0; j < l->n_buffers; j++) add_used_buffer(k, l->buffer[j]);
    }
    if (k->routine) {
        for (int i = 0; i < step->n_views; i++) add_used_buffer(k, step->views[i].buffer);
        if (step->aux_kind) add_used_buffer(k, step->aux.buffer);
        if (step->sums_of) add_used_buffer(k, step->sums.buffer);
    }
    k->address = wb__alloc_zero((size_t)k->n_buffers + 1, sizeof *k->address);
    return k->address ? 0 : WB_ERROR_MEMORY;
}

/* What a kernel is made of; NULL: not of this.  reason: why no library executes all of the step. */
typedef struct {
    wb__gpu_routine *routine;
    wb__gpu_work *work;
    struct wb__gpu_collective *collective;
    const char *reason;
} parts;

/* Creates a kernel of these parts, which it owns from then on, also on failure.  On failure, the
 * caller destroys *kernel, which may be incomplete, or NULL. */
static int gpu_kernel_of_parts(wb__gpu_device *d, const wb__step *step, const parts *of,
                               wb__gpu_kernel **kernel)
{
    wb__gpu_routine *routine = of->routine;
    wb__gpu_work *work = of->work;
    const int n = work ? work->n : 0;
    wb__gpu_kernel *k = wb__alloc_zero(1, sizeof *k + (size_t)n * sizeof *k->launches);
    if (!k) {
        wb__gpu_work_free(work);
        wb__gpu_collective_destroy(d, of->collective);
        destroy_routine(d, routine);
        return WB_ERROR_MEMORY;
    }
    k->collective = of->collective;
    k->routine = routine;
    k->work = work;
    k->base.workspace = WB__MAX(work ? work->workspace : 0, routine ? routine->workspace : 0);
    k->base.reloaded = work ? work->reloaded : 0;
    k->base.impl = routine ? routine->impl : work ? work->impl
                 : wb__gpu_collective_impl(of->collective);
    k->base.reason = routine ? NULL : of->reason;
    k->base.unfinished = of->collective || (routine && routine->library->aside);
    k->base.by_host = of->collective;
    k->base.in_branch = step->in_branch;
    k->n = n;
    gpu_kernel_describe(step, k->what, sizeof k->what);
    *kernel = k;
    int status = list_buffers(k, step);
    if (!status && routine && routine->library->aside) status = wb__gpu_aside_make(d, &k->aside);
    for (int i = 0; i < n && !status; i++)
        status = gpu_kernel_prepare_launch(d, &k->launches[i], &work->launch[i], step->in_branch);
    return status;
}

int wb__gpu_kernel_of(wb__gpu_device *d, const wb__step *step, wb__gpu_work *work,
                      wb__gpu_kernel **kernel)
{
    const parts of = {.work = work};
    return gpu_kernel_of_parts(d, step, &of, kernel);
}

/* Prepares a step by a vendor library, by a library and our kernels, or by our kernels.  On
 * failure, the caller destroys *kernel, which may be incomplete, or NULL. */
static int gpu_kernel_prepare(wb__gpu_device *d, const wb__step *step, wb__gpu_kernel **kernel)
{
    parts of = {.routine = NULL};
    int status = prepare_routine(d, step, &of.routine, &of.reason);
    if (status == WB_ERROR_UNSUPPORTED)
        status = gpu_kernel_prepare_split(d, step, &of.routine, &of.work, &of.reason);
    if (status == WB_ERROR_UNSUPPORTED && wb__step_is_special(step))
        return wb__fail(WB_ERROR_UNSUPPORTED, "%s:%d: %s", d->driver->backend->tag, d->base.ordinal,
                        of.reason ? of.reason : "no kernel has this epilogue and these sums");
    if (status == WB_ERROR_UNSUPPORTED)
        status = step->kind == WB__STEP_COLLECTIVE
                     ? wb__gpu_collective_prepare(d, step, &of.collective)
                     : wb__gpu_step(&d->target, step, &of.work);
    if (status) return status;
    if (of.work && !of.routine) wb__gpu_choose_tile(d, step, &of.work);
    return gpu_kernel_of_parts(d, step, &of, kernel);
}

/* Logs the launches of our own kernels for a step, unless a vendor's library executes all of it. */
static void log_launches(const wb__gpu_device *d, const wb__gpu_kernel *k)
{
    wb__text t = {0};
    for (int i = 0; i < k->n; i++) {
        const wb__gpu_bound_launch *p = &k->launches[i];
        const uint32_t *groups = p->launch->groups, *items = p->launch->items;
        wb__text_add(&t, "; text %016" PRIx64 ", %s, %" PRIu64 " items", p->program->hash,
                     p->launch->entry, (uint64_t)groups[0] * groups[1] * groups[2] * items[0] *
                     items[1] * items[2]);
    }
    wb__log(WB_LOG_DEBUG, "kernel: %s:%d: step %s%s", d->driver->backend->tag, d->base.ordinal,
            k->what, t.text ? t.text : "");
    wb__free(t.text);
}

int wb__gpu_prepare(const wb_device *base, const wb__step *step, wb__kernel **kernel)
{
    wb__gpu_device *d = base->state;
    wb__gpu_kernel *k = NULL;
    *kernel = NULL;
    if (wb__gpu_enter(d)) return wb_error_code();
    const int status = gpu_kernel_prepare(d, step, &k);
    wb__gpu_leave(d);
    if (k) d->holders++;
    if (!status && wb__debug("kernel")) log_launches(d, k);
    if (status) wb__gpu_destroy(base, k ? &k->base : NULL);
    else *kernel = &k->base;
    return status;
}

void wb__gpu_kernel_free(wb__gpu_device *d, wb__gpu_kernel *k)
{
    if (!k) return;
    for (int i = 0; i < k->n; i++) {
        wb__gpu_bound_launch *p = &k->launches[i];
        if (p->function && d->driver->drop_function) d->driver->drop_function(p->function);
        wb__gpu_program_release(d, p->program);
        wb__free(p->args);
        wb__free(p->address);
        wb__free(p->argument);
    }
    destroy_routine(d, k->routine);
    wb__gpu_aside_drop(d, k->aside);
    wb__gpu_collective_destroy(d, k->collective);
    wb__gpu_work_free(k->work);
    wb__free(k->used);
    wb__free(k->address);
    wb__free(k);
}

void wb__gpu_destroy(const wb_device *base, wb__kernel *kernel)
{
    wb__gpu_device *d = base->state;
    if (!kernel || wb__gpu_is_child(d)) return;
    const bool entered = wb__gpu_enter_to_release(d);
    d->holders--;
    wb__gpu_kernel_free(d, (wb__gpu_kernel *)kernel);
    if (entered) wb__gpu_leave(d);
}

/* ---- what the libraries support -------------------------------------------------------------- */

/* Asks a vendor library about a step, with the device entered and the device's lock held.  Returns
 * false if the library lacks this function, or the library or the device is not usable. */
static bool ask_library(const wb_device *base, const wb__gpu_hook *library, const wb__step *step,
                        bool (*function)(wb__gpu_device *, const wb__step *))
{
    wb__gpu_device *d = base->state;
    if (!function || (library->vendor && !wb__gpu_vendor_usable(library->vendor))) return false;
    if (wb__gpu_enter(d)) {
        wb_clear_error();
        return false;
    }
    wb__mutex_lock(&d->lock);
    const bool answer = function(d, step);
    wb__mutex_unlock(&d->lock);
    wb__gpu_leave(d);
    return answer;
}

bool wb__gpu_supports_step(const wb_device *base, const wb__step *step)
{
    const wb__gpu_device *d = base->state;
    const wb__gpu_hook *library = gpu_kernel_library_for(d, step);
    if (library && ask_library(base, library, step, library->supports)) return true;
    return wb__gpu_supports(&d->target, step);
}

bool wb__gpu_prefers_channels_last(const wb_device *base, const wb__step *conv)
{
    const wb__gpu_hook *library = gpu_kernel_library_for(base->state, conv);
    return library && ask_library(base, library, conv, library->prefers_channels_last);
}

/* ---- launching ------------------------------------------------------------------------------- */

static int gpu_kernel_launch_failed(wb__gpu_device *d, const wb__gpu_kernel *k,
                                    const wb__gpu_launch *l, int code)
{
    return wb__gpu_fail(d->driver, d, code, "%s (%s): kernel %s, %u x %u x %u groups of %u x %u x"
                        " %u items", k->what, k->base.impl, l->entry, l->groups[0], l->groups[1],
                        l->groups[2], l->items[0], l->items[1], l->items[2]);
}

/* Binds the arguments that have changed since the previous launch. */
static int bind_arguments(wb__gpu_device *d, wb__gpu_bound_launch *p, const wb__gpu_addresses *at)
{
    const wb__gpu_launch *l = p->launch;
    for (int i = 0; i < l->n_buffers; i++) {
        wb__gpu_memory *m =
            l->buffer[i] == WB__GPU_WORKSPACE ? at->memory : at->buffers[l->buffer[i]];
        if (m->serial == p->address[i]) continue;
        const int status = gpu_kernel_bind(d, p, i, sizeof m->at, &m->at);
        if (status) return status;
        p->address[i] = m->serial;
    }
    if (p->set && !p->changes) return 0;
    wb__gpu_fill_args(l, at->numbers, at->offsets, at->workspace_at, p->next);
    if (p->set && !memcmp(p->next, p->args, l->args_bytes)) return 0;
    const int status = gpu_kernel_bind(d, p, l->n_buffers, l->args_bytes, p->next);
    if (status) return status;
    memcpy(p->args, p->next, l->args_bytes);
    p->set = true;
    return 0;
}

int wb__gpu_enqueue(wb__gpu_device *d, const wb__gpu_kernel *k, wb__gpu_bound_launch *p,
                    wb__gpu_queue q, const wb__gpu_addresses *at)
{
    const wb__gpu_launch *l = p->launch;
    if (d->driver->bind) {
        const int status = bind_arguments(d, p, at);
        if (status) return status;
    } else {
        for (int i = 0; i < l->n_buffers; i++)
            p->address[i] =
                l->buffer[i] == WB__GPU_WORKSPACE ? at->workspace : at->address[l->buffer[i]];
        if (p->changes) wb__gpu_fill_args(l, at->numbers, NULL, at->workspace_at, p->args);
    }
    void **event = q == WB__GPU_COMPUTE ? wb__gpu_next_event(d) : NULL;
    int code =
        d->driver->launch(d, q, p->function, l->groups, l->items, l->local, p->argument, event);
    if (code) return gpu_kernel_launch_failed(d, k, l, code);
    if (q == WB__GPU_COMPUTE) wb__gpu_count_command(d, event);
    if (!d->debug_sync) return 0;
    code = d->driver->sync(d, q);
    return code ? gpu_kernel_launch_failed(d, k, l, code) : 0;
}

int wb__gpu_launch_routine(wb__gpu_device *d, const wb__gpu_kernel *k, wb__gpu_queue q,
                           const wb__gpu_addresses *at)
{
    const int status = k->aside ? wb__gpu_aside_fork(d, k, at)
                                : k->routine->library->launch(d, k->routine, q, at);
    if (status || !d->debug_sync) return status;
    const int code = d->driver->sync(d, k->aside ? WB__GPU_ASIDE : q);
    return code ? wb__gpu_fail(d->driver, d, code, "%s (%s)", k->what, k->base.impl) : 0;
}

/* With the lock held: puts the launches of a kernel, or its routine, on the compute queue. */
static int gpu_kernel_launch(wb__gpu_device *d, wb__gpu_kernel *k, const wb__gpu_addresses *at)
{
    int status = at->memory ? wb__gpu_command_uses(d, at->memory) : 0;
    for (int i = 0; i < k->n_used && !status; i++) {
        const int b = k->used[i];
        wb__gpu_memory *m = at->buffers[b];
        k->address[b] = m->at + (at->offsets ? at->offsets[b] : 0);
        status = wb__gpu_command_uses(d, m);
    }
    if (!status && k->routine) status = wb__gpu_launch_routine(d, k, WB__GPU_COMPUTE, at);
    for (int i = 0; i < k->n && !status; i++)
        status = wb__gpu_enqueue(d, k, &k->launches[i], WB__GPU_COMPUTE, at);
    for (int i = 0; i < k->n_used; i++)  /* the last command above is the buffers' last use */
        ((wb__gpu_memory *)at->buffers[k->used[i]])->used = d->issued;
    if (at->memory) at->memory->used = d->issued;
    return status;
}

int wb__gpu_launch_kernel(const wb_device *base, const wb__kernel *kernel, void *const *buffers,
                          const size_t *offsets, void *workspace, size_t workspace_at,
                          const wb__number *numbers)
{
    wb__gpu_device *d = base->state;
    wb__gpu_kernel *k = (wb__gpu_kernel *)kernel;
    wb__gpu_memory *w = workspace;
    const wb__gpu_addresses at = {.address = k->address, .buffers = buffers, .offsets = offsets,
                                  .memory = w, .workspace = w ? w->at : 0,
                                  .workspace_at = workspace_at, .numbers = numbers};
    if (k->collective) return wb__gpu_collective_launch(base, k->collective, buffers, offsets);
    int status = wb__gpu_enter(d);
    if (status) return status;
    if (k->aside) wb__gpu_aside_begins(k, buffers);
    wb__mutex_lock(&d->lock);
    status = gpu_kernel_launch(d, k, &at);
    wb__mutex_unlock(&d->lock);
    if (k->aside && status) wb__gpu_aside_ends(k);
    wb__gpu_leave(d);
    return status;
}

int wb__gpu_finish(const wb_device *base, const wb__kernel *kernel)
{
    const wb__gpu_kernel *k = (const wb__gpu_kernel *)kernel;
    if (k->aside) return wb__gpu_aside_finish(base->state, k);
    return k->collective ? wb__gpu_collective_finish(base, k->collective) : 0;
}
