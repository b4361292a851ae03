/* The AMDGPU backend: devices, the driver's functions, each a call of HIP, and the tables. */
#include "backend/amdgpu/amdgpu.h"
#include "backend/nccl/ranks.h"

#include <stdio.h>
#include <string.h>

static void *hip_pointer(uint64_t at) { return (void *)(uintptr_t)at; }

#define API hip
#define API_STREAM hipStream_t
#define API_EVENT hipEvent_t
#define API_MODULE hipModule_t
#define API_FUNCTION hipFunction_t
#define API_GRAPH hipGraph_t
#define API_EXEC hipGraphExec_t
#define API_DEVICE wb__hip_device
#define API_AT(at) hip_pointer(at)
#define API_FROM(from) hip_pointer((uintptr_t)(from))
#define API_NON_BLOCKING hipStreamNonBlocking
#define API_NO_TIMING hipEventDisableTiming
#define API_PORTABLE hipHostMallocPortable
#define API_THREAD_LOCAL hipStreamCaptureModeThreadLocal
#define API_MOST_ITEMS HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
#define API_BEFORE_DROP() API_WAIT((int)hip.DeviceSynchronize())    /* HIP waits since ROCm 6.2 */
#define API_ENTER hip_enter
#define API_LEAVE hip_leave
#define API_WAIT(call) (wb__nccl_wait_begins(), wb__nccl_wait_ends(call, hipErrorLaunchFailure))
#define API_ALLOW_LOCAL(d, function) 0          /* launches may have all of a group */
#define API_INSTANTIATE(made, graph) CALL(GraphInstantiate, (made), (graph), NULL, NULL, 0)
#define API_PEER(d) ((d)->id)
#define API_ENABLE_PEER(d, source) hip_enable_peer(source)
#define API_BEGIN(d) 0
#define API_OPENED(d) 0
#define API_CLOSING(d) ((void)0)
#define API_END(d) ((void)0)

/* ---- the current device ---------------------------------------------------------------------- */

/* HIP has one current device per thread.  hip_enter saves it and hip_leave restores it; the calls
 * may be nested, for a copy between two devices. */
enum { HIP_NESTING = 4 };
static _Thread_local int hip_before[HIP_NESTING], hip_depth;

static int hip_enter(wb__gpu_device *d)
{
    if (hip_depth == HIP_NESTING) return hipErrorInvalidDevice;
    int code = CALL(GetDevice, &hip_before[hip_depth]);
    if (!code) code = CALL(SetDevice, wb__hip_of(d)->id);
    hip_depth += !code;
    return code;
}

static void hip_leave(void) { hip.SetDevice(hip_before[--hip_depth]); }

static int hip_enable_peer(const wb__hip_device *source)
{
    const int code = CALL(DeviceEnablePeerAccess, source->id, 0);
    return code == hipErrorPeerAccessAlreadyEnabled ? 0 : code;
}

#include "backend/gpu/runtime/stream_api.h"

/* ---- finding --------------------------------------------------------------------------------- */

/* Element i is device i of HIP, however often devices are searched, because the program may keep
 * the address of a device. */
static wb__hip_device hip_devices[WB__GPU_MAX_DEVICES];

/* Sets which fragments the device computes (kernels/fragments.k).  gfx90a replaces small numbers of
 * f16 by 0. */
static void set_fragments(wb__hip_device *d)
{
    const bool cdna = wb__begins(d->arch, "gfx90a") || wb__begins(d->arch, "gfx94") ||
                      wb__begins(d->arch, "gfx950");
    const int lanes = cdna ? 64 : wb__begins(d->arch, "gfx110") ? 32 : 0;
    d->gpu.target.fragments_bf16 = lanes;
    d->gpu.target.fragments_f16 = !wb__begins(d->arch, "gfx90a") ? lanes : 0;
}

static int hip_describe(wb__hip_device *d, int id)
{
    const wb__hip_layout *at = wb__hip_properties;
    _Alignas(16) char properties[WB__HIP_PROPERTIES_BYTES] = {0};
    int items = 0, processors = 0, wave = 0;
    size_t total = 0, local = 0;
    const int code = CALL(GetDeviceProperties, properties, id);
    if (code) return wb__gpu_fail(&wb__hip_driver, NULL, code, "device %d", id);
    memcpy(d->gpu.name, properties + at->name, sizeof d->gpu.name - 1);
    memcpy(d->arch, properties + at->gcnArchName, sizeof d->arch - 1);
    memcpy(&total, properties + at->totalGlobalMem, sizeof total);
    memcpy(&local, properties + at->sharedMemPerBlock, sizeof local);
    memcpy(&wave, properties + at->warpSize, sizeof wave);
    memcpy(&items, properties + at->maxThreadsPerBlock, sizeof items);
    memcpy(&processors, properties + at->multiProcessorCount, sizeof processors);
    if (!wb__begins(d->arch, "gfx") || items < 1 || items > 1024)
        return wb__fail(WB_ERROR_DEVICE, "amdgpu:%d: HIP %d describes its GPU in a form that this"
                        " version of Weber does not know (architecture \"%.20s\", %d work-items)",
                        id, wb__hip_version, d->arch, items);
    d->id = id;
    d->gpu.staged = d->gpu.keeps_images = true;
    d->gpu.graphs = wb__hip_has_graphs;
    d->gpu.total = (int64_t)total;
    /* HIP counts a grid in work-items, fewer than 2^32 in each dimension. */
    d->gpu.target = (wb__gpu_target){.f64 = true, .tickets = true, .max_items = items,
                                     .local_bytes = local, .launch_bytes = local,
                                     .max_args_bytes = 4096, .buffer_bytes = sizeof(void *),
                                     .max_groups = {UINT32_MAX / 1024, UINT16_MAX, UINT16_MAX},
                                     .processors = processors};
    set_fragments(d);
    snprintf(d->gpu.about, sizeof d->gpu.about, "%s, %d processors, waves of %d, HIP %d.%d",
             d->arch, processors, wave, wb__hip_version / 10000000, wb__hip_version / 100000 % 100);
    return 0;
}

/* Lists the devices and returns 0.  A device for which nothing can be compiled is left out, with a
 * warning, as a machine often has a GPU in its processor beside the GPU to use.  If no device is
 * left, returns the error of the last device. */
static int hip_find(wb__gpu_device **list, int *n)
{
    int all = 0, status = wb__hip_init(&all);
    if (!status && !wb__hip_compiler_get()) status = (int)wb_error_code();
    if (status) return status;
    for (int i = 0; i < WB__MIN(all, (int)WB__GPU_MAX_DEVICES); i++) {
        memset(&hip_devices[i], 0, sizeof hip_devices[i]);
        if ((status = hip_describe(&hip_devices[i], i))) return status;
        if (!wb__hip_check_arch(&hip_devices[i])) list[(*n)++] = &hip_devices[i].gpu;
        else if (all > 1) wb__log(WB_LOG_WARN, "%s", wb_error());
    }
    if (!*n) return (int)wb_error_code();
    wb_clear_error();
    return 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int hip_allocate(wb__gpu_device *d, size_t bytes, uint64_t *at)
{
    void *made = NULL;
    (void)d;
    const int code = CALL(Malloc, &made, bytes);
    *at = (uintptr_t)made;
    return code;
}

static void hip_release(wb__gpu_device *d, uint64_t at)
{
    (void)d;
    API_WAIT((int)hip.Free(hip_pointer(at)));   /* the call waits for all commands of the device */
}

/* ---- programs -------------------------------------------------------------------------------- */

#define RTC_TABLE wb__hiprtc_functions
#define RTC_PROGRAM hiprtcProgram
#define RTC_NAME "hiprtc"
#define RTC_FILE "kernel.hip"
#define RTC_NO_MEMORY HIPRTC_ERROR_OUT_OF_MEMORY
#define RTC_INVALID_OPTION (-1)         /* there are no other options to try */
#define RTC_SIZE(d, f, program, bytes) (f)->GetCodeSize((program), (bytes))
#define RTC_IMAGE(d, f, program, image) (f)->GetCode((program), (image))
#define RTC_LOAD_FAILED(d, code, options)                                                          \
    wb__gpu_fail((d)->driver, (d), (code), "a kernel compiled with %s", (options))
#include "backend/gpu/runtime/rtc_api.h"

static bool hip_options(wb__gpu_device *base, int flags, char *text, size_t capacity)
{
    wb__hip_device *d = wb__hip_of(base);
    const wb__hip_compiler *c = wb__hip_compiler_get();
    (void)flags;
    if (!c) return false;
    snprintf(base->maker, sizeof base->maker, "hiprtc %d.%d of HIP %d", c->major, c->minor,
             wb__hip_version);
    snprintf(text, capacity, "--offload-arch=%s -ffp-contract=off -O3", d->arch);
    return true;
}

static int hip_compile(wb__gpu_device *base, const char *text, const char *list, void **program,
                       void **image, size_t *bytes)
{
    return rtc_make_program(base, &wb__hip_compiler_get()->f, text, list, program, image, bytes);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static wb__gpu_state hip_state = {.starting = WB__MUTEX_INIT};

static const wb__gpu_hook *const hip_libraries[] = {&wb__hip_blas, &wb__hip_miopen, &wb__nccl_ranks,
                                              NULL};

const wb__gpu_driver wb__hip_driver = {
    .backend = &wb__amd_backend, .state = &hip_state, .dlpack = 10, .libraries = hip_libraries,
    .load = wb__hip_load, .find = hip_find, .error_name = wb__hip_error_name,
    .error_kind = wb__hip_error_kind, .error_text = wb__hip_error_text,
    .allocate = hip_allocate, .release = hip_release, .options = hip_options,
    .compile = hip_compile, WB__GPU_STREAM_FUNCTIONS,
};

static int hip_part_state(const char *name)
{
    if (!strcmp(name, "hiprtc")) return wb__hip_compiler_get() != NULL;
    if (!strcmp(name, "rocBLAS")) return wb__hip_blas_works();
    if (!strcmp(name, "MIOpen")) return wb__hip_miopen_works();
    return strcmp(name, "RCCL") ? -1 : wb__nccl_open(&wb__hip_rccl) != NULL;
}

WB__GPU_WRAPPERS(wb__hip_driver)

const wb__backend wb__amd_backend = {
    .name = "AMDGPU", .tag = "amdgpu", .part = hip_part_state, .supports = wb__gpu_supports_step,
    WB__GPU_FUNCTIONS,
    .branches = wb__gpu_runs_branches,
    .graph = wb__gpu_record_graph, .graph_free = wb__gpu_graph_free, .graph_run = wb__gpu_graph_run,
    .adopt = wb__gpu_adopt, .disown = wb__gpu_disown,
};
