/* What libcuda's and libnvrtc's doubles must agree in about images of modules.  A test part: see
 * vgpu.h. */
#include "inside.h"

uint64_t vgpu_hash(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 1099511628211u;
    return h;
}

/* What compiled kernels may use of this machine's processor. */
const char *vgpu_machine_flags(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma")) return "-mfma";
#endif
    return "";
}
