/* RCCL, which connects the GPUs of several ranks (backend/nccl/ranks.h).
 *
 *   WEBER_AMDGPU_RCCL   0: RCCL is not used */
#include "backend/amdgpu/amdgpu.h"
#include "backend/nccl/ranks.h"

#include <string.h>

static wb__nccl_functions rccl;

/* Whether the opened library can be used.  An RCCL of another version of ROCm cannot: it brings its
 * own HIP. */
static bool rccl_is_usable(const void *table, const char *missing, char *reason, size_t capacity)
{
    const wb__nccl_functions *f = table;
    void *address = NULL, *ours = NULL;
    if (!wb__nccl_suits(f, missing, "librccl", "RCCL 2.17 of ROCm 5.7 or newer", reason, capacity))
        return false;
    memcpy(&address, &f->GetVersion, sizeof address);
    memcpy(&ours, &hip.Init, sizeof ours);
    return !ours || wb__gpu_shares_driver(address, "hipInit", ours, reason, capacity);
}

static wb__gpu_vendor rccl_library = {
    .name = "RCCL", .variable = "WEBER_AMDGPU_RCCL",
    .advice = "install it (Debian and Ubuntu with AMD's packages, and Fedora: rccl), or name its"
              " folder in WEBER_ROCM_PATH",
    .search = &wb__hip_search,
    .files = (const wb__gpu_file[]){{"librccl.so.1", 0}, {"librccl.so", 0}, {NULL, 0}},
    .functions = wb__nccl_names, .n_functions = WB__NCCL_COUNT, .table = &rccl,
        .suits = rccl_is_usable,
    .lock = WB__MUTEX_INIT,
};

static void *rccl_stream(wb__gpu_device *d, wb__gpu_queue q) { return wb__hip_of(d)->stream[q]; }

/* The table of RCCL.  `visible` has CUDA's variable too, which HIP reads. */
const wb__nccl_library wb__hip_rccl = {
    .name = "RCCL", .driver = &wb__hip_driver, .vendor = &rccl_library, .stream = rccl_stream,
    .visible = (const char *const[]){"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                     "CUDA_VISIBLE_DEVICES", NULL},
};
