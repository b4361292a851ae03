/* NCCL, which connects the GPUs of several ranks (backend/nccl/ranks.h).
 *
 *   WEBER_CUDA_NCCL   0: NCCL is not used */
#include "backend/cuda/cuda.h"
#include "backend/nccl/ranks.h"

static wb__nccl_functions cuda_nccl_functions;

/* Whether the opened library can be used; if not, writes `reason`. */
static bool cuda_nccl_is_usable(const void *table, const char *missing, char *reason,
                                size_t capacity)
{
    return wb__nccl_suits(table, missing, "libnccl", "NCCL 2.17 or newer", reason, capacity);
}

static wb__gpu_vendor cuda_nccl_library = {
    .name = "NCCL", .variable = "WEBER_CUDA_NCCL",
    .advice = "install it (NVIDIA: libnccl2; or pip's nvidia-nccl-cu13 or nvidia-nccl-cu12), or"
              " name its folder by WEBER_CUDA_PATH",
    .search = &wb__cu_search,
    .files = (const wb__gpu_file[]){{"libnccl.so.2", 0}, {"libnccl.so", 0}, {NULL, 0}},
    .functions = wb__nccl_names, .n_functions = WB__NCCL_COUNT, .table = &cuda_nccl_functions,
    .suits = cuda_nccl_is_usable, .lock = WB__MUTEX_INIT,
};

static void *nccl_stream(wb__gpu_device *d, wb__gpu_queue q) { return wb__cu_of(d)->stream[q]; }

const wb__nccl_library wb__cu_nccl = {
    .name = "NCCL", .driver = &wb__cu_driver, .vendor = &cuda_nccl_library,
    .stream = nccl_stream, .visible = (const char *const[]){"CUDA_VISIBLE_DEVICES", NULL},
};
