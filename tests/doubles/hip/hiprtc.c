/* A test double of hiprtc: the double of NVRTC compiles the text.  See hip.h. */
#include "hip.h"

#include <string.h>

typedef struct { nvrtcProgram inner; char *log; } *hiprtcProgram;

/* The names and numbers of the errors that are used here are the same in NVRTC and hiprtc. */
VGPU_API const char *hiprtcGetErrorString(int code)
{
    static _Thread_local char text[80];
    const char *nv = nvrtcGetErrorString((nvrtcResult)code);
    snprintf(text, sizeof text, "HIPRTC%s", strncmp(nv, "NVRTC", 5) ? "_ERROR_UNKNOWN" : nv + 5);
    return text;
}

VGPU_API int hiprtcVersion(int *major, int *minor)
{
    if (vgpu_fails("hiprtcVersion")) return NVRTC_ERROR_OUT_OF_MEMORY;
    *major = VGPU_ROCM;
    *minor = 2;
    return NVRTC_SUCCESS;
}

VGPU_API int hiprtcCreateProgram(hiprtcProgram *made, const char *text, const char *name, int n,
                                 const char **headers, const char **names)
{
    hiprtcProgram p = calloc(1, sizeof *p);
    if (!p) return NVRTC_ERROR_OUT_OF_MEMORY;
    const int code = (int)nvrtcCreateProgram(&p->inner, text, name, n, (const char *const *)headers,
                                             (const char *const *)names);
    if (code) free(p);
    else *made = p;
    return code;
}

VGPU_API int hiprtcDestroyProgram(hiprtcProgram *program)
{
    if (!program || !*program) return NVRTC_ERROR_INVALID_PROGRAM;
    const int code = (int)nvrtcDestroyProgram(&(*program)->inner);
    free((*program)->log);
    free(*program);
    *program = NULL;
    return code;
}

/* As the real compiler, which ends the process for an instruction set that it does not know. */
static void check_arch(const char *arch)
{
    static const char *const sets[] = {
        VGPU_ISAS,
#if VGPU_ROCM >= 6
        VGPU_LATER_ISAS
#endif
    };
    const size_t length = strcspn(arch, ":");
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (strlen(sets[i]) == length && !strncmp(sets[i], arch, length)) return;
    fprintf(stderr, "vgpu: hiprtc does not know %s\n", arch);
    abort();
}

VGPU_API int hiprtcCompileProgram(hiprtcProgram p, int n, const char **options)
{
    static const char *const known[] = {"-ffp-contract=off", "-O3", "-O2", "-w", "-std=c++14"};
    const char *list[] = {"--gpu-architecture=sm_90", "--fmad=false", "-default-device"};
    bool contracts = true, names_arch = false;
    if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
    for (int i = 0; i < n; i++) {
        bool good = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            good = good || !strcmp(options[i], known[k]);
        if (!strcmp(options[i], known[0])) contracts = false;
        if (!strncmp(options[i], "--offload-arch=", 15)) {
            check_arch(options[i] + 15);
            good = names_arch = true;
            if (strcmp(options[i] + 15, vgpu_gfx()))
                vgpu_wrong("hiprtcCompileProgram: for %s on a device %s", options[i] + 15,
                           vgpu_gfx());
        }
        if (good) continue;
        free(p->log);
        p->log = malloc(200);
        if (p->log) snprintf(p->log, 200, "error: unknown argument: '%s'\n", options[i]);
        return NVRTC_ERROR_INVALID_OPTION;
    }
    if (contracts) vgpu_wrong("hiprtcCompileProgram: products and sums may be contracted");
    if (!names_arch) vgpu_wrong("hiprtcCompileProgram: no --offload-arch");
    return (int)nvrtcCompileProgram(p->inner, 3, list);
}

VGPU_API int hiprtcGetCodeSize(hiprtcProgram p, size_t *bytes)
{
    return (int)nvrtcGetCUBINSize(p ? p->inner : NULL, bytes);
}

VGPU_API int hiprtcGetCode(hiprtcProgram p, char *image)
{
    return (int)nvrtcGetCUBIN(p ? p->inner : NULL, image);
}

VGPU_API int hiprtcGetProgramLogSize(hiprtcProgram p, size_t *bytes)
{
    if (!p || !p->log) return (int)nvrtcGetProgramLogSize(p ? p->inner : NULL, bytes);
    *bytes = strlen(p->log) + 1;
    return NVRTC_SUCCESS;
}

VGPU_API int hiprtcGetProgramLog(hiprtcProgram p, char *log)
{
    if (!p || !p->log) return (int)nvrtcGetProgramLog(p ? p->inner : NULL, log);
    strcpy(log, p->log);
    return NVRTC_SUCCESS;
}
