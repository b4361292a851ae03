/* The CUDA backend's table.  cuda.h says where everything is. */
#include "backend/cuda/cuda.h"

#include <string.h>

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static bool started;

/* Without a compiler of kernels nothing can be computed: better the program learns that before it has
 * moved there. */
static int start_once(void)
{
    int status = wb__cu_load();
    if (!status) status = wb__cu_find();
    if (status || wb__cu_compiler_at(0)) return status;
    status = wb_error_code();
    wb__cu_forget();
    return status;
}

static int start(void)
{
    if (wb__cu_check_fork()) return WB_ERROR_DEVICE;
    pthread_mutex_lock(&starting);
    const int status = started ? 0 : start_once();
    if (!status) started = true;
    pthread_mutex_unlock(&starting);
    return status;
}

static void stop(void)
{
    if (wb__cu_is_child()) return;
    pthread_mutex_lock(&starting);
    if (started && wb__cu_in_use()) {       /* by what the program still holds: it stays usable */
        for (int i = 0; i < wb__cu_count(); i++) wb__cu_trim(&wb__cu_at(i)->base);
    } else if (started) {
        wb__cu_forget();
        wb__cu_tell_left();
        started = false;
    }
    pthread_mutex_unlock(&starting);
}

static const wb_device *device(int ordinal)
{
    wb__cu_device *d = wb__cu_at(ordinal);
    return d ? &d->base : NULL;
}

static int part(const char *name)
{
    if (!strcmp(name, "NVRTC")) return wb__cu_compiler_at(0) != NULL;
    if (!strcmp(name, "cuBLASLt")) return wb__cu_lt_works();
    if (!strcmp(name, "cuDNN")) return wb__cu_dnn_works();
    if (strcmp(name, "NCCL")) return -1;
    wb__fail(WB_ERROR_UNSUPPORTED, "cuda: this version of Weber does not use NCCL");
    return 0;
}

static bool has_dtype(const wb_device *base, wb_dtype t)
{
    (void)base, (void)t;
    return true;
}

const wb__backend wb__cu_backend = {
    .name = "CUDA",
    .tag = "cuda",
    .start = start,
    .stop = stop,
    .count = wb__cu_count,
    .device = device,
    .part = part,
    .has_dtype = has_dtype,
    .memory = wb__cu_memory_of,
    .allocate = wb__cu_allocate,
    .release = wb__cu_release,
    .trim = wb__cu_trim,
    .upload = wb__cu_upload,
    .download = wb__cu_download,
    .copy = wb__cu_copy,
    .prepare = wb__cu_prepare,
    .destroy = wb__cu_destroy,
    .launch = wb__cu_launch,
    .wait = wb__cu_wait,
    .prefers_nhwc = wb__cu_prefers_nhwc,
    .takes = wb__cu_takes,
    .graph = wb__cu_graph,
    .graph_free = wb__cu_graph_free,
    .graph_run = wb__cu_graph_run,
    .share = wb__cu_share,
    .adopt = wb__cu_adopt,
    .disown = wb__cu_disown,
};
