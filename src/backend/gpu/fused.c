#include "backend/gpu/gpu.h"

int wb__gpu_fused(const wb__gpu_target *t, const wb__fused *fused, wb__gpu_work *work)
{
    (void)t, (void)fused, (void)work;
    return wb__fail(WB_ERROR_UNSUPPORTED, "fused kernels are not generated yet");
}
