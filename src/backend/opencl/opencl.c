/* The OpenCL backend's table.  opencl.h says where everything is. */
#include "backend/opencl/opencl.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static bool started;

static int start(void)
{
    if (wb__cl_check_fork()) return WB_ERROR_DEVICE;
    pthread_mutex_lock(&starting);
    int status = started ? 0 : wb__cl_load();
    if (!status && !started) status = wb__cl_find();
    if (!status) started = true;
    pthread_mutex_unlock(&starting);
    return status;
}

static void stop(void)
{
    if (wb__cl_is_child()) return;
    pthread_mutex_lock(&starting);
    if (started && wb__cl_in_use()) {       /* by what the program still holds: it stays usable */
        for (int i = 0; i < wb__cl_count(); i++) wb__cl_trim(&wb__cl_at(i)->base);
    } else if (started) {
        wb__cl_blast_stop();
        wb__cl_forget();
        wb__cl_tell_left();
        started = false;
    }
    pthread_mutex_unlock(&starting);
}

static const wb_device *device(int ordinal)
{
    wb__cl_device *d = wb__cl_at(ordinal);
    return d ? &d->base : NULL;
}

static int part(const char *name)
{
    return strcmp(name, "CLBlast") ? -1 : wb__cl_blast_works();
}

static bool has_dtype(const wb_device *base, wb_dtype t)
{
    const wb__cl_device *d = base->state;
    return t != WB_F64 || d->target.f64;
}

static bool prefers_nhwc(const wb_device *base, const wb__step *conv)
{
    (void)base, (void)conv;
    return false;
}

/* WEBER_OPENCL_ATTENTION: 0 never, 1 on processors too. */
static bool takes(const wb_device *base, const wb__step *step)
{
    const wb__cl_device *d = base->state;
    const char *asked = getenv("WEBER_OPENCL_ATTENTION");
    wb__gpu_target target = d->target;
    if (asked && !strcmp(asked, "0")) return false;
    if (asked && !strcmp(asked, "1")) target.is_cpu = false;
    return wb__gpu_takes(&target, step);
}

static void share(const wb_device *base, const void *memory, size_t at, wb__shared *s)
{
    const wb__cl_memory *m = memory;
    *s = (wb__shared){.kind = 4, .ordinal = base->ordinal};
    if (!m) return;
    s->data = (void *)m->mem;
    s->at = at;
}

const wb__backend wb__cl_backend = {
    .name = "OpenCL",
    .tag = "opencl",
    .start = start,
    .stop = stop,
    .count = wb__cl_count,
    .device = device,
    .part = part,
    .has_dtype = has_dtype,
    .memory = wb__cl_memory_of,
    .allocate = wb__cl_allocate,
    .release = wb__cl_release,
    .trim = wb__cl_trim,
    .upload = wb__cl_upload,
    .download = wb__cl_download,
    .copy = wb__cl_copy,
    .prepare = wb__cl_prepare,
    .destroy = wb__cl_destroy,
    .launch = wb__cl_launch,
    .wait = wb__cl_wait,
    .prefers_nhwc = prefers_nhwc,
    .takes = takes,
    .share = share,
};
