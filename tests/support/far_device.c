/* See far_device.h. */
#include "far_device.h"

#include "test.h"

#include <stdatomic.h>

static const uintptr_t mask = (uintptr_t)0x5a5a << 48;
static struct { _Atomic int64_t uploads, up_bytes, downloads, down_bytes, copies, launches; } count;
static _Atomic int64_t held, fail_in, limit;
static _Atomic int most_views;
static void (*watcher)(const wb__step *step);

static void *decode(const void *handle)
{
    return handle ? (void *)((uintptr_t)handle ^ mask) : NULL;
}

static int must_fail(const char *what)
{
    if (!fail_in || atomic_fetch_sub(&fail_in, 1) != 1) return 0;
    return wb__fail(WB_ERROR_DEVICE, "far:0: %s failed", what);
}

static const wb_device *cpu(void) { return &wb__cpu_devices[0]; }

static void *far_allocate(const wb_device *d, size_t bytes)
{
    (void)d;
    if (must_fail("allocate")) return NULL;
    void *memory = wb__alloc_aligned(bytes);
    if (!memory) return NULL;
    held += (int64_t)bytes;
    return decode(memory);
}

static void far_release(const wb_device *d, void *memory, size_t bytes)
{
    (void)d;
    if (!memory) return;
    held -= (int64_t)bytes;
    wb__free(decode(memory));
}

static void far_trim(const wb_device *d) { (void)d; }

static int far_upload(const wb_device *d, void *to, size_t at, const void *from, size_t bytes)
{
    (void)d;
    count.uploads++;
    count.up_bytes += (int64_t)bytes;
    if (must_fail("upload")) return WB_ERROR_DEVICE;
    memcpy((char *)decode(to) + at, from, bytes);
    return 0;
}

static int far_download(const wb_device *d, void *to, const void *from, size_t at, size_t bytes)
{
    (void)d;
    count.downloads++;
    count.down_bytes += (int64_t)bytes;
    if (must_fail("download")) return WB_ERROR_DEVICE;
    memcpy(to, (const char *)decode(from) + at, bytes);
    return 0;
}

static int far_copy(const wb_device *d, void *to, size_t to_at, const wb_device *from_device,
                    const void *from, size_t from_at, size_t bytes)
{
    (void)d, (void)from_device;
    count.copies++;
    if (must_fail("copy")) return WB_ERROR_DEVICE;
    memcpy((char *)decode(to) + to_at, (const char *)decode(from) + from_at, bytes);
    return 0;
}

/* ---- kernels: the CPU's, with decoded addresses ---------------------------------------------- */

typedef struct {
    wb__kernel base;
    wb__kernel *inner;
    int n_buffers;
} far_kernel;

static int far_prepare(const wb_device *d, const wb__step *step, wb__kernel **kernel)
{
    (void)d;
    if (must_fail("prepare")) return WB_ERROR_DEVICE;
    if (watcher) watcher(step);
    if (most_views && step->kind == WB__STEP_FUSED &&
        step->fused.n_views * step->fused.n_segments > most_views)
        return wb__fail(WB_ERROR_UNSUPPORTED, "the far device has no kernel of %d views",
                        step->fused.n_views * step->fused.n_segments);
    far_kernel *k = wb__alloc_zero(1, sizeof *k);
    if (!k) return WB_ERROR_MEMORY;
    const int status = cpu()->backend->prepare(cpu(), step, &k->inner);
    if (status) {
        wb__free(k);
        return status;
    }
    k->base = *k->inner;
    const bool fused = step->kind == WB__STEP_FUSED;
    const int n = fused ? step->fused.n_views * step->fused.n_segments : step->n_views;
    const wb__view *views = fused ? step->fused.views : step->views;
    for (int i = 0; i < n; i++) k->n_buffers = WB__MAX(k->n_buffers, views[i].buffer + 1);
    *kernel = &k->base;
    return 0;
}

static void far_destroy(const wb_device *d, wb__kernel *kernel)
{
    (void)d;
    far_kernel *k = (far_kernel *)kernel;
    if (!k) return;
    cpu()->backend->destroy(cpu(), k->inner);
    wb__free(k);
}

static int far_launch(const wb_device *d, const wb__kernel *kernel, void *const *buffers,
                      const size_t *offsets, void *workspace, size_t workspace_at,
                      const wb__number *numbers)
{
    (void)d;
    const far_kernel *k = (const far_kernel *)kernel;
    count.launches++;
    if (must_fail("launch")) return WB_ERROR_DEVICE;
    void **real = malloc(((size_t)k->n_buffers + 1) * sizeof *real);
    if (!real) return wb__fail(WB_ERROR_MEMORY, NULL);
    for (int i = 0; i < k->n_buffers; i++)
        real[i] = buffers[i] ? (char *)decode(buffers[i]) + (offsets ? offsets[i] : 0) : NULL;
    const int status = cpu()->backend->launch(cpu(), k->inner, real, NULL, decode(workspace),
                                              workspace_at, numbers);
    free(real);
    return status;
}

static int far_wait(const wb_device *d)
{
    (void)d;
    return 0;
}

static bool far_prefers_channels_last(const wb_device *d, const wb__step *conv)
{
    (void)d, (void)conv;
    return false;
}

/* ---- the device ------------------------------------------------------------------------------ */

static int far_start(void) { return 0; }
static void far_stop(void) {}
static int far_count_devices(void) { return 1; }
static const wb_device *far_at(int ordinal) { return ordinal ? NULL : far_device(); }
static int far_part(const char *name)
{
    (void)name;
    return -1;
}
static bool far_has_dtype(const wb_device *d, wb_dtype t)
{
    (void)d;
    return t != WB_F64;
}
static int far_memory(const wb_device *d, wb_device_memory *m)
{
    (void)d;
    *m = (wb_device_memory){.total = -1, .free = -1, .used = held, .peak = -1};
    if (limit) m->total = limit, m->free = limit - held;
    return 0;
}

static const wb__backend backend = {
    .name = "Far", .tag = "far", WB__GPU_TRAITS,
    .start = far_start, .stop = far_stop, .count = far_count_devices, .device = far_at,
    .part = far_part, .has_dtype = far_has_dtype, .memory = far_memory, .allocate = far_allocate,
    .release = far_release, .trim = far_trim, .upload = far_upload, .download = far_download,
    .copy = far_copy, .prepare = far_prepare, .destroy = far_destroy, .launch = far_launch,
    .wait = far_wait, .prefers_channels_last = far_prefers_channels_last};

const wb_device *far_device(void)
{
    static const wb_device device = {
        .kind = wb__device_kind, .backend = &backend, .name = "a far device"};
    return &device;
}

far_counts far_count(void)
{
    return (far_counts){count.uploads, count.up_bytes, count.downloads, count.down_bytes,
                        count.copies, count.launches};
}

void far_forget(void)
{
    count.uploads = count.up_bytes = count.downloads = count.down_bytes = 0;
    count.copies = count.launches = 0;
}

int64_t far_held(void) { return held; }
void far_fail_at(int64_t n) { fail_in = n; }
void far_limit(int64_t bytes) { limit = bytes; }
void far_views(int most) { most_views = most; }
void far_watch(void (*seen)(const wb__step *step)) { watcher = seen; }

int every_device(const wb_device *out[MOST_PLACES])
{
    static _Atomic bool reported;
    int n = 0;
    setenv("WEBER_CPU_DEVICES", "3", 1);
    for (int i = 0; i < 3; i++) out[n++] = wb_device_at("CPU", i);
    out[n++] = far_device();
    if (wb_using("OpenCL") || !wb_functional("OpenCL")) {
        if (!atomic_exchange(&reported, true))
            printf("without OpenCL, since: %s\n", wb_why_not("OpenCL"));
        wb_clear_error();
        return n;
    }
    const wb_device_list list = wb_devices("OpenCL");
    for (int i = 0; i < list.n && n < MOST_PLACES; i++) out[n++] = list.device[i];
    return n;
}

int run_everywhere(const wb_device *places[MOST_PLACES], int *n_places)
{
    *n_places = every_device(places);
    const int failed = run_all_cases();
    wb_shutdown();
    wb__pool_trim();
    if (far_held()) print_message("%lld bytes are left on the far device\n", (long long)far_held());
    return failed || far_held();
}

bool same_bits(const wb_device *d)
{
    return d->backend->host_visible || d == far_device();
}
