/* Devices are found when the backend starts.  CUDA_VISIBLE_DEVICES selects them. */
#include "backend/cuda/cuda.h"

#include "base/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Element i is device i of the driver.  This does not change if devices are searched again, because
 * the program may keep the address of a device. */
static wb__cu_device cuda_devices[WB__GPU_MAX_DEVICES];

/* ---- finding --------------------------------------------------------------------------------- */

#define CUDA_DEVICE_ASK(what, value)                                                               \
    (code = CALL(DeviceGetAttribute, &(value), CU_DEVICE_ATTRIBUTE_##what, d->id))

static int cuda_device_describe(wb__cu_device *d, int ordinal)
{
    int code, major = 0, minor = 0, items = 0, pools = 0, processors = 0;
    int local = 0, launch = 0, all = 0;     /* bytes of local memory */
    size_t total = 0;
    if ((code = CALL(DeviceGet, &d->id, ordinal)) ||
        (code = CALL(DeviceGetName, d->gpu.name, sizeof d->gpu.name, d->id)) ||
        (code = CALL(DeviceTotalMem, &total, d->id)) ||
        CUDA_DEVICE_ASK(COMPUTE_CAPABILITY_MAJOR, major) ||
        CUDA_DEVICE_ASK(COMPUTE_CAPABILITY_MINOR, minor) ||
        CUDA_DEVICE_ASK(MAX_THREADS_PER_BLOCK, items) ||
        CUDA_DEVICE_ASK(MAX_SHARED_MEMORY_PER_BLOCK, local) ||
        CUDA_DEVICE_ASK(MULTIPROCESSOR_COUNT, processors) ||
        CUDA_DEVICE_ASK(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, launch) ||
        CUDA_DEVICE_ASK(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, all) ||
        (wb__cu_has_pools && CUDA_DEVICE_ASK(MEMORY_POOLS_SUPPORTED, pools)))
        return wb__gpu_fail(&wb__cu_driver, NULL, code, "device %d", ordinal);
    d->arch = 10 * major + minor;
    d->gpu.allocates_in_order = pools != 0;
    d->gpu.staged = d->gpu.keeps_images = true;
    d->gpu.graphs = wb__cu_has_graphs;
    d->gpu.total = (int64_t)total;
    d->gpu.target = (wb__gpu_target){.f64 = true, .tickets = true, .max_items = items,
                                     .local_bytes = (size_t)local,
                                     .launch_bytes = (size_t)launch, .processor_bytes = (size_t)all,
                                     .max_args_bytes = 4096, .buffer_bytes = sizeof(CUdeviceptr),
                                     .max_groups = {INT32_MAX, UINT16_MAX, UINT16_MAX},
                                     .processors = processors};
    if (d->arch >= 80) d->gpu.target.fragments_f16 = d->gpu.target.fragments_bf16 = 32;
    snprintf(d->gpu.about, sizeof d->gpu.about, "compute capability %d.%d, %d processors, driver"
             " for CUDA %d.%d%s", major, minor, processors, wb__cu_driver_version / 1000,
             wb__cu_driver_version % 1000 / 10, pools ? "" : ", without memory pools");
    return 0;
}

/* Finds the devices.  Fails also if there is no NVRTC, since no kernel could run. */
int wb__cu_find(wb__gpu_device **list, int *n)
{
    int all = 0, status = wb__cu_init();
    const char *visible = wb__environment_text("CUDA_VISIBLE_DEVICES");
    const int code = status ? 0 : CALL(DeviceGetCount, &all);
    if (status) return status;
    if (code) return wb__gpu_fail(&wb__cu_driver, NULL, code, "how many there are");
    if (!all && visible)
        return wb__fail(WB_ERROR_DEVICE, "cuda: no device: CUDA_VISIBLE_DEVICES=\"%s\" hides all"
                        " GPUs", visible);
    if (!all)
        return wb__fail(WB_ERROR_DEVICE, "cuda: no device: the driver is installed, but sees no"
                        " GPU; run `nvidia-smi` to find out why");
    for (int i = 0; i < WB__MIN(all, (int)WB__GPU_MAX_DEVICES) && !status; i++) {
        memset(&cuda_devices[i], 0, sizeof cuda_devices[i]);
        status = cuda_device_describe(&cuda_devices[i], i);
        if (!status) list[(*n)++] = &cuda_devices[i].gpu;
    }
    return status || wb__cu_compiler_at(0) ? status : (int)wb_error_code();
}
