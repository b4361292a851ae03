/* Opening NCCL, which connects the GPUs of several ranks.
 *
 *   WEBER_CUDA_NCCL   0: NCCL is not used */
#include "backend/cuda/cuda.h"
#include "backend/cuda/nccl_api.h"

#include <stdio.h>

static wb__nccl_functions nccl;

/* The number of a version has two digits each for its second and third part. */
static bool suits(const void *table, const char *missing, char *reason, size_t capacity)
{
    const wb__nccl_functions *f = table;
    int version = 0;
    if (missing) {
        snprintf(reason, capacity, "libnccl has no %s: it is too old: install NCCL 2.17 or newer",
                 missing);
        return false;
    }
    const wb__nccl_enum result = f->GetVersion(&version);
    if (result)
        snprintf(reason, capacity, "ncclGetVersion: %s (%u)", f->GetErrorString(result), result);
    else if (version < WB__NCCL_OLDEST)
        snprintf(reason, capacity, "its version number is %d: install NCCL 2.17 or newer", version);
    else if (version >= 30000)
        snprintf(reason, capacity, "version %d.%d is not of NCCL 2", version / 10000,
                 version / 100 % 100);
    else return true;
    return false;
}

#define NAME(type, name, parameters) {"nccl" #name, offsetof(wb__nccl_functions, name)},
static const wb__gpu_function functions[] = {WB__NCCL_FUNCTIONS(NAME)};
#undef NAME
_Static_assert(WB__COUNT(functions) <= WB__GPU_MAX_FUNCTIONS, "room for the functions");

static wb__gpu_vendor library = {
    .name = "NCCL", .variable = "WEBER_CUDA_NCCL",
    .advice = "install it (NVIDIA: libnccl2; or pip's nvidia-nccl-cu13 or nvidia-nccl-cu12), or"
              " name its folder by WEBER_CUDA_PATH",
    .search = &wb__cu_search,
    .files = (const wb__gpu_file[]){{"libnccl.so.2", 0}, {"libnccl.so", 0}, {NULL, 0}},
    .functions = functions, .n_functions = WB__COUNT(functions), .table = &nccl, .suits = suits,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

const wb__nccl_functions *wb__nccl(void) { return wb__gpu_vendor_works(&library) ? &nccl : NULL; }
