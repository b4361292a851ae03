/* Functions for images of modules that the doubles of libcuda and libnvrtc share.  See vgpu.h. */
#include "inside.h"

uint64_t vgpu_hash(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 1099511628211u;
    return h;
}

/* Compiler flags for features of this machine's processor. */
const char *vgpu_machine_flags(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma")) return "-mfma";
#endif
    return "";
}
