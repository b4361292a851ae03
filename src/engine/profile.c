/* Measures kernels one by one (wb_profile_begin).  io/profile.c writes the results. */
#include "engine/profile.h"

#include "engine/request.h"

#include <string.h>

_Atomic bool wb__profiling;
static wb__mutex profile_lock = WB__MUTEX_INIT;
static wb__profile profile;
static double profile_begun;
static int profile_threads;
static _Thread_local int profile_thread; /* number of this thread, from 1; 0: none yet */

int wb_profile_begin(void)
{
    WB__FIRST(wb_profile_begin, wb_error_code());
    wb__mutex_lock(&profile_lock);
    const bool already = wb__profiling;
    if (!already) profile_begun = wb__now();
    wb__profiling = true;
    wb__mutex_unlock(&profile_lock);
    if (already)
        return wb__fail(WB_ERROR_ARGUMENT, "profile_begin: a profile has begun: wb_profile_end "
                        "ends it");
    wb__cache_clear();                  /* plans made from now on have descriptions */
    return 0;
}

static bool profile_add_launch(const wb__plan *p, int i, double start, double end)
{
    char *name = p->text && p->text[i] ? wb__strdup(p->text[i])
                                       : wb__printf("step %d of a recorded plan {%s}", i,
                                                    p->kernels[i]->impl ? p->kernels[i]->impl : "");
    wb__mutex_lock(&profile_lock);
    if (!profile_thread) profile_thread = ++profile_threads;
    const bool ok = name && wb__reserve(&profile.launches, &profile.capacity, profile.n + 1,
                                        sizeof *profile.launches);
    if (ok && wb__profiling)
        profile.launches[profile.n++] =
            (wb__launch_time){name, p->device, start - profile_begun, end - start, profile_thread};
    else wb__free(name);
    wb__mutex_unlock(&profile_lock);
    return ok;
}

int wb__profile_launch(const wb__plan *p, int i, void **buffers, const size_t *offsets,
                       const wb__number *numbers)
{
    const wb__backend *backend = p->device->backend;
    int status = backend->wait ? backend->wait(p->device) : 0;
    const double start = wb__now();
    if (!status)
        status = backend->launch(p->device, p->kernels[i], buffers, offsets, buffers[p->arena],
                                 (size_t)p->arena_bytes, numbers);
    if (!status && backend->wait) status = backend->wait(p->device);
    if (!status && !profile_add_launch(p, i, start, wb__now())) status = WB_ERROR_MEMORY;
    return status;
}

bool wb__profile_take(wb__profile *out)
{
    wb__mutex_lock(&profile_lock);
    const bool was = wb__profiling;
    wb__profiling = false;
    *out = profile;
    profile = (wb__profile){0};
    wb__mutex_unlock(&profile_lock);
    if (was) return true;
    wb__fail(WB_ERROR_ARGUMENT, "profile_end: no profile has begun: wb_profile_begin begins one");
    return false;
}

void wb__profile_free(wb__profile *p)
{
    for (int i = 0; i < p->n; i++) wb__free(p->launches[i].name);
    wb__free(p->launches);
    *p = (wb__profile){0};
}
