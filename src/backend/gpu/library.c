#include "backend/gpu/gpu.h"

int wb__gpu_library(const wb__gpu_target *t, const wb__step *step, wb__gpu_work *work)
{
    (void)t, (void)step, (void)work;
    return wb__fail(WB_ERROR_UNSUPPORTED, "library steps have no kernels yet");
}
