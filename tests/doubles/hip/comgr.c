/* A test double of AMD's code object manager: its list of instruction sets.  See hip.h. */
#include "hip.h"

static const char *const sets[] = {
    VGPU_ISAS
#if VGPU_ROCM >= 6
    , VGPU_LATER_ISAS
#endif
};

enum { SUCCESS = 0, INVALID_ARGUMENT = 2 };

VGPU_API int amd_comgr_get_isa_count(size_t *n)
{
    if (!n) return INVALID_ARGUMENT;
    *n = sizeof sets / sizeof *sets;
    return SUCCESS;
}

VGPU_API int amd_comgr_get_isa_name(size_t i, const char **name)
{
    static _Thread_local char text[64];
    if (i >= sizeof sets / sizeof *sets || !name) return INVALID_ARGUMENT;
    snprintf(text, sizeof text, "amdgcn-amd-amdhsa--%s", sets[i]);
    *name = text;
    return SUCCESS;
}
