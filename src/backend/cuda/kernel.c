/* Steps: prepared when a plan is made, by a library of NVIDIA's or as compiled text, and launched at
 * every run.  A launch looks nothing up, allocates nothing, and takes one lock. */
#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a step is called ------------------------------------------------------------------- */

static size_t add_view(char *text, size_t at, size_t room, const wb__view *v)
{
    static const char *const names[] = {[WB_F32] = "f32", [WB_F64] = "f64", [WB_F16] = "f16",
                                        [WB_BF16] = "bf16", [WB_I8] = "i8", [WB_U8] = "u8",
                                        [WB_I32] = "i32", [WB_I64] = "i64", [WB_BOOL] = "bool"};
    at += (size_t)snprintf(text + at, room - at, " [");
    for (int i = 0; i < v->ndim && at < room; i++)
        at += (size_t)snprintf(text + at, room - at, "%s%lld", i ? "," : "", (long long)v->dims[i]);
    if (at < room) at += (size_t)snprintf(text + at, room - at, "] %s", names[v->dtype]);
    return WB__MIN(at, room - 1);
}

/* "matmul [64,784] f32 [784,10] f32 [64,10] f32" */
static void describe(const wb__step *step, char *text, size_t room)
{
    static const char *const kinds[] = {
        [WB__STEP_FUSED] = "fused", [WB__STEP_MATMUL] = "matmul", [WB__STEP_CONV] = "conv",
        [WB__STEP_POOL] = "pool", [WB__STEP_TAKE] = "take", [WB__STEP_TAKE_ADD] = "take_add",
        [WB__STEP_COPY] = "copy", [WB__STEP_ATTENTION] = "attention"};
    size_t at = (size_t)snprintf(text, room, "%s", kinds[step->kind]);
    if (step->kind == WB__STEP_FUSED && step->fused.n_segments) {
        const wb__space *space = &step->fused.spaces[0];
        wb__view v = {.dtype = WB_F32, .ndim = space->ndim};
        memcpy(v.dims, space->dims, sizeof v.dims);
        if (step->fused.n_views) v.dtype = step->fused.views[0].dtype;
        at = add_view(text, at, room, &v);
        if (step->fused.n_segments > 1)
            snprintf(text + at, room - at, " and %d more", step->fused.n_segments - 1);
    }
    for (int i = 0; i < step->n_views; i++) at = add_view(text, at, room, &step->views[i]);
}

/* ---- preparing ------------------------------------------------------------------------------- */

static int check_sizes(wb__cu_device *d, const wb__gpu_launch *l)
{
    const size_t bytes = (size_t)l->n_buffers * sizeof(CUdeviceptr) + l->args_bytes;
    if (l->groups[0] <= INT32_MAX && l->groups[1] <= UINT16_MAX && l->groups[2] <= UINT16_MAX &&
        bytes <= 4096)
        return 0;
    return wb__fail(WB_ERROR_INTERNAL, "cuda:%d: kernel %s: %u x %u x %u groups, %zu bytes of"
                    " arguments: more than can be launched", d->ordinal, l->entry, l->groups[0],
                    l->groups[1], l->groups[2], bytes);
}

static int prepare_part(wb__cu_device *d, wb__cu_part *p, const wb__gpu_launch *l)
{
    const size_t n = (size_t)l->n_buffers;
    p->launch = l;
    p->changes = l->n_numbers || l->workspace_at >= 0;
    p->args = wb__alloc_zero(l->args_bytes + 1, 1);
    p->address = wb__alloc_zero(n + 1, sizeof *p->address);
    p->argument = wb__alloc_zero(n + 1, sizeof *p->argument);
    if (!p->args || !p->address || !p->argument) return WB_ERROR_MEMORY;
    memcpy(p->args, l->args, l->args_bytes);
    for (size_t i = 0; i < n; i++) p->argument[i] = &p->address[i];
    p->argument[n] = p->args;
    if (check_sizes(d, l)) return WB_ERROR_INTERNAL;
    p->program = wb__gpu_program_get(&d->programs, l->text, l->f64 ? WB__CU_F64 : WB__CU_PLAIN);
    if (!p->program) return wb_error_code();
    return wb__cu_function(d, p->program, l->entry, l->items[0] * l->items[1] * l->items[2],
                           &p->function);
}

/* Whether a library may be used; where it is missing although nobody switched it off, that is said
 * once. */
static bool may_use(const char *name, const char *variable, bool (*works)(void), bool *said)
{
    static pthread_mutex_t saying = PTHREAD_MUTEX_INITIALIZER;
    const char *text = getenv(variable);
    if (text && strcmp(text, "0") == 0) return false;
    if (works()) return true;
    pthread_mutex_lock(&saying);
    if (!*said)
        wb__log(WB_LOG_WARN, "cuda: %s is not used, our own kernels are: %s", name, wb_error());
    *said = true;
    pthread_mutex_unlock(&saying);
    wb_clear_error();
    return false;
}

static bool may_use_lt(void)
{
    static bool said;
    return may_use("cuBLASLt", "WEBER_CUDA_CUBLASLT", wb__cu_lt_works, &said);
}

static bool may_use_dnn(void)
{
    static bool said;
    return may_use("cuDNN", "WEBER_CUDA_CUDNN", wb__cu_dnn_works, &said);
}

/* With the context.  WB_ERROR_UNSUPPORTED: by text. */
static int prepare_routine(wb__cu_device *d, const wb__step *step, wb__cu_routine **r,
                           const char **why)
{
    const bool lt = step->kind == WB__STEP_MATMUL;
    const bool dnn = step->kind == WB__STEP_CONV || step->kind == WB__STEP_ATTENTION;
    if (!lt && !dnn) return WB_ERROR_UNSUPPORTED;
    if (!(lt ? may_use_lt() : may_use_dnn())) {
        *why = lt ? "cuBLASLt is not used" : "cuDNN is not used";
        return WB_ERROR_UNSUPPORTED;
    }
    pthread_mutex_lock(&d->lock);
    const int status = lt ? wb__cu_lt_prepare(d, step, r, why) : wb__cu_dnn_prepare(d, step, r, why);
    pthread_mutex_unlock(&d->lock);
    return status;
}

/* The step without its function by a library, and the function by text. */
static int prepare_split(wb__cu_device *d, const wb__step *step, wb__cu_routine **r,
                         wb__gpu_work **work)
{
    wb__step bare;
    wb__cu_rest rest;
    const char *why = NULL;
    if (!wb__cu_split(step, &bare, &rest)) return WB_ERROR_UNSUPPORTED;
    int status = prepare_routine(d, &bare, r, &why);
    if (status) return status;
    status = wb__gpu_step(&d->target, &rest.step, work);
    if (!status) return 0;
    pthread_mutex_lock(&d->lock);
    (*r)->destroy(d, *r);
    pthread_mutex_unlock(&d->lock);
    *r = NULL;
    return status;
}

/* Which of the plan's buffers the kernel uses. */
static void use_buffer(wb__cu_kernel *k, int buffer)
{
    if (buffer < 0) return;
    for (int i = 0; i < k->n_used; i++)
        if (k->used[i] == buffer) return;
    k->used[k->n_used++] = buffer;
    k->n_buffers = WB__MAX(k->n_buffers, buffer + 1);
}

static int list_buffers(wb__cu_kernel *k, const wb__step *step)
{
    size_t room = (size_t)step->n_views + 3;
    for (int i = 0; i < k->n; i++) room += (size_t)k->work->launch[i].n_buffers;
    k->used = wb__alloc_zero(room, sizeof *k->used);
    if (!k->used) return WB_ERROR_MEMORY;
    for (int i = 0; i < k->n; i++) {
        const wb__gpu_launch *l = &k->work->launch[i];
        for (int j = 0; j < l->n_buffers; j++) use_buffer(k, l->buffer[j]);
    }
    if (k->routine) {
        for (int i = 0; i < step->n_views; i++) use_buffer(k, step->views[i].buffer);
        if (step->aux_kind) use_buffer(k, step->aux.buffer);
        if (step->sums_of) use_buffer(k, step->sums.buffer);
    }
    k->address = wb__alloc_zero((size_t)k->n_buffers + 1, sizeof *k->address);
    return k->address ? 0 : WB_ERROR_MEMORY;
}

/* *kernel: what there is of it, also on failure. */
static int prepare(wb__cu_device *d, const wb__step *step, wb__cu_kernel **kernel)
{
    wb__cu_routine *routine = NULL;
    wb__gpu_work *work = NULL;
    const char *why = NULL;
    int status = prepare_routine(d, step, &routine, &why);
    if (status == WB_ERROR_UNSUPPORTED) status = prepare_split(d, step, &routine, &work);
    if (status == WB_ERROR_UNSUPPORTED && wb__step_is_special(step))
        return wb__fail(WB_ERROR_UNSUPPORTED, "cuda:%d: %s", d->ordinal, why);
    if (status == WB_ERROR_UNSUPPORTED) status = wb__gpu_step(&d->target, step, &work);
    if (status) return status;
    const int n = work ? work->n : 0;
    wb__cu_kernel *k = wb__alloc_zero(1, sizeof *k + (size_t)n * sizeof *k->parts);
    if (!k) {
        wb__gpu_work_free(work);
        pthread_mutex_lock(&d->lock);
        if (routine) routine->destroy(d, routine);
        pthread_mutex_unlock(&d->lock);
        return WB_ERROR_MEMORY;
    }
    k->routine = routine;
    k->work = work;
    k->base.workspace = WB__MAX(work ? work->workspace : 0, routine ? routine->workspace : 0);
    k->base.impl = routine ? routine->impl : work->impl;
    k->base.why = routine ? NULL : why;
    k->n = n;
    describe(step, k->what, sizeof k->what);
    *kernel = k;
    status = list_buffers(k, step);
    for (int i = 0; i < n && !status; i++)
        status = prepare_part(d, &k->parts[i], &work->launch[i]);
    return status;
}

int wb__cu_prepare(const wb_device *base, const wb__step *step, wb__kernel **kernel)
{
    wb__cu_device *d = base->state;
    wb__cu_kernel *k = NULL;
    *kernel = NULL;
    if (wb__cu_enter(d)) return wb_error_code();
    const int status = prepare(d, step, &k);
    wb__cu_leave();
    if (k) d->kernels++;
    if (status) wb__cu_destroy(base, k ? &k->base : NULL);
    else *kernel = &k->base;
    return status;
}

void wb__cu_destroy(const wb_device *base, wb__kernel *kernel)
{
    wb__cu_device *d = base->state;
    wb__cu_kernel *k = (wb__cu_kernel *)kernel;
    if (!k || wb__cu_is_child()) return;
    const bool entered = wb__cu_enter_to_release(d);
    d->kernels--;
    for (int i = 0; i < k->n; i++) {
        wb__cu_part *p = &k->parts[i];
        wb__gpu_program_put(&d->programs, p->program);
        wb__free(p->args);
        wb__free(p->address);
        wb__free(p->argument);
    }
    if (k->routine) {
        pthread_mutex_lock(&d->lock);
        k->routine->destroy(d, k->routine);
        pthread_mutex_unlock(&d->lock);
    }
    wb__gpu_work_free(k->work);
    wb__free(k->used);
    wb__free(k->address);
    wb__free(k);
    if (entered) wb__cu_leave();
}

/* ---- what the libraries take ----------------------------------------------------------------- */

/* Asks a library, which wants the context and the lock. */
static bool ask(const wb_device *base, const wb__step *step,
                bool (*question)(wb__cu_device *, const wb__step *))
{
    wb__cu_device *d = base->state;
    if (wb__cu_enter(d)) {
        wb_clear_error();
        return false;
    }
    pthread_mutex_lock(&d->lock);
    const bool answer = question(d, step);
    pthread_mutex_unlock(&d->lock);
    wb__cu_leave();
    return answer;
}

bool wb__cu_takes(const wb_device *base, const wb__step *step)
{
    if (step->kind == WB__STEP_MATMUL) return may_use_lt() && ask(base, step, wb__cu_lt_takes);
    const wb__cu_device *d = base->state;
    if (step->kind == WB__STEP_ATTENTION && may_use_dnn() && ask(base, step, wb__cu_dnn_takes))
        return true;
    return wb__gpu_takes(&d->target, step);
}

bool wb__cu_prefers_nhwc(const wb_device *base, const wb__step *conv)
{
    return may_use_dnn() && ask(base, conv, wb__cu_dnn_prefers_nhwc);
}

/* ---- what the libraries refuse --------------------------------------------------------------- */

int wb__cu_refused(wb__cu_device *d, bool *told)
{
    char said[600];
    snprintf(said, sizeof said, "%s", wb_error());
    const CUresult code = cu.StreamSynchronize(d->compute);
    if (code) return wb__cu_fail(d, "cuStreamSynchronize", code, "%s", said);
    if (!*told || wb__debug("dispatch"))
        wb__log(*told ? WB_LOG_INFO : WB_LOG_WARN, "%s; from now on our own kernels do this step"
                " and others that the library refuses", said);
    *told = true;
    return wb__fail(WB_ERROR_UNSUPPORTED, "%s", said);
}

/* ---- launching ------------------------------------------------------------------------------- */

static int launch_failed(wb__cu_device *d, const char *call, const wb__cu_kernel *k,
                         const wb__gpu_launch *l, CUresult code)
{
    return wb__cu_fail(d, call, code, "%s (%s): kernel %s, %u x %u x %u groups of %u x %u x %u"
                       " items", k->what, k->base.impl, l->entry, l->groups[0], l->groups[1],
                       l->groups[2], l->items[0], l->items[1], l->items[2]);
}

int wb__cu_launch_part(wb__cu_device *d, const wb__cu_kernel *k, const wb__cu_part *p,
                       CUstream stream, const wb__cu_places *at)
{
    const wb__gpu_launch *l = p->launch;
    for (int i = 0; i < l->n_buffers; i++)
        p->address[i] =
            l->buffer[i] == WB__GPU_WORKSPACE ? at->workspace : at->address[l->buffer[i]];
    if (p->changes) wb__gpu_fill(l, at->numbers, NULL, at->workspace_at, p->args);
    CUresult code = cu.LaunchKernel(p->function, l->groups[0], l->groups[1], l->groups[2],
                                    l->items[0], l->items[1], l->items[2], 0, stream, p->argument,
                                    NULL);
    if (code) return launch_failed(d, "cuLaunchKernel", k, l, code);
    if (!d->debug_sync) return 0;
    code = cu.StreamSynchronize(stream);
    return code ? launch_failed(d, "cuStreamSynchronize", k, l, code) : 0;
}

int wb__cu_launch_routine(wb__cu_device *d, const wb__cu_kernel *k, CUstream stream,
                          const wb__cu_places *at)
{
    const int status = k->routine->launch(d, k->routine, stream, at->address,
                                          at->workspace + at->workspace_at);
    if (status || !d->debug_sync) return status;
    const CUresult code = cu.StreamSynchronize(stream);
    return code ? wb__cu_fail(d, "cuStreamSynchronize", code, "%s (%s)", k->what, k->base.impl) : 0;
}

/* With the lock. */
static int launch(wb__cu_device *d, wb__cu_kernel *k, void *const *buffers, const size_t *places,
                  wb__cu_memory *workspace, const wb__cu_places *at)
{
    int status = workspace ? wb__cu_uses(d, workspace) : 0;
    for (int i = 0; i < k->n_used && !status; i++) {
        wb__cu_memory *m = buffers[k->used[i]];
        k->address[k->used[i]] = m->at + (places ? places[k->used[i]] : 0);
        status = wb__cu_uses(d, m);
    }
    if (!status && k->routine) status = wb__cu_launch_routine(d, k, d->compute, at);
    for (int i = 0; i < k->n && !status; i++)
        status = wb__cu_launch_part(d, k, &k->parts[i], d->compute, at);
    if (!status) wb__cu_issue(d);
    return status;
}

int wb__cu_launch(const wb_device *base, const wb__kernel *kernel, void *const *buffers,
                  const size_t *places, void *workspace, size_t workspace_at,
                  const wb__number *numbers)
{
    wb__cu_device *d = base->state;
    wb__cu_kernel *k = (wb__cu_kernel *)kernel;
    wb__cu_memory *w = workspace;
    const wb__cu_places at = {.address = k->address, .workspace = w ? w->at : 0,
                              .workspace_at = workspace_at, .numbers = numbers};
    if (wb__cu_enter(d)) return WB_ERROR_DEVICE;
    pthread_mutex_lock(&d->lock);
    const int status = launch(d, k, buffers, places, w, &at);
    pthread_mutex_unlock(&d->lock);
    wb__cu_leave();
    return status;
}
