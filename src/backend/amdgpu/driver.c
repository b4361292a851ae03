/* AMD's HIP runtime, its compiler hiprtc and their error codes.  The libraries are opened at run
 * time; they are never closed, because their threads may still run. */
#include "backend/amdgpu/amdgpu.h"

#include "base/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wb__hip_functions wb__hip;
int wb__hip_version;
bool wb__hip_has_graphs;

static int rocm;        /* 1000 * the major version of the opened runtime; 0: none is open */
const wb__gpu_search wb__hip_search = {.tag = "amdgpu", .variable = "WEBER_ROCM_PATH",
                                       .version = &rocm,
                                       .folders = {"/opt/rocm/lib", "/opt/rocm/lib64"}};

#define INSTALL(debian, ubuntu, fedora)                                                            \
    "install it (Debian: " debian "; Ubuntu with AMD's packages: " ubuntu "; Fedora: " fedora      \
    "), or name its folder in WEBER_ROCM_PATH"

/* ---- opening HIP ----------------------------------------------------------------------------- */

#define LISTED(field, name, parameters) {"hip" #name, offsetof(wb__hip_functions, field)},
static const wb__gpu_function hip_driver_functions[] = {
    WB__HIP_FUNCTIONS(LISTED)
    LISTED(GetErrorName, GetErrorName, (hipError code))
    LISTED(GetErrorString, GetErrorString, (hipError code))
};
static const wb__gpu_function hip_graph_functions[] = {WB__HIP_GRAPH_FUNCTIONS(LISTED)};
#undef LISTED

static const wb__gpu_file hip_files[] = {{"libamdhip64.so.7", 7}, {"libamdhip64.so.6", 6},
                                         {"libamdhip64.so.5", 5}, {"libamdhip64.so", 0}, {NULL, 0}};
static void *hip_driver_library;        /* handle of HIP's library */

const wb__hip_layout *wb__hip_properties;
#define FIVE(name, five, six) .name = five,
#define SIX(name, five, six) .name = six,
static const wb__hip_layout of_rocm_5 = {WB__HIP_PROPERTIES(FIVE)};
static const wb__hip_layout of_rocm_6 = {WB__HIP_PROPERTIES(SIX)};

int wb__hip_load(void)
{
    const size_t at = offsetof(wb__hip_functions, GetDeviceProperties);
    const wb__gpu_function properties[] = {{"hipGetDevicePropertiesR0600", at},
                                           {"hipGetDeviceProperties", at}};
    char reason[400];
    hip_driver_library = wb__gpu_find_library(&wb__hip_search, NULL, hip_files,
                                              hip_driver_functions, WB__COUNT(hip_driver_functions),
                                              &hip, reason, sizeof reason);
    if (!hip_driver_library)
        return wb__fail(WB_ERROR_DEVICE, "amdgpu: HIP, AMD's GPU runtime of ROCm 5 or newer, was"
                        " not found: %s; " INSTALL("libamdhip64-5", "hip-runtime-amd", "rocm-hip"),
                        reason);
    const bool old = wb__gpu_find_functions(hip_driver_library, &properties[0], 1, &hip) != NULL;
    if (old && wb__gpu_find_functions(hip_driver_library, &properties[1], 1, &hip))
        return wb__fail(WB_ERROR_DEVICE, "amdgpu: libamdhip64 has no hipGetDeviceProperties");
    wb__hip_properties = old ? &of_rocm_5 : &of_rocm_6;
    wb__hip_has_graphs = !wb__gpu_is_off("WEBER_AMDGPU_GRAPHS") &&
                         !wb__gpu_find_functions(hip_driver_library, hip_graph_functions,
                                                 WB__COUNT(hip_graph_functions), &hip);
    return 0;
}

/* Reports the failure of a call before any device is known, and how to cure it. */
static int hip_driver_init_failed(int code)
{
    const char *const names[] = {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};
    char hidden[300] = "";
    for (size_t i = 0, at = 0; i < WB__COUNT(names); i++)
        if (wb__environment_text(names[i]))
            at += (size_t)snprintf(hidden + at, sizeof hidden - at,
                                   "; %s is \"%.80s\", which may hide it", names[i],
                                   wb__environment_text(names[i]));
    if (code == hipErrorNoDevice || code == hipErrorInvalidDevice)
        return wb__gpu_fail(&wb__hip_driver, NULL, code, "ROCm is installed, but sees no GPU%s; "
                            "run `rocminfo`: the kernel module amdgpu must be loaded, and the user"
                            " must be in the groups render and video", hidden);
    return wb__gpu_fail(&wb__hip_driver, NULL, code, "HIP does not start%s; run `rocminfo` to find"
                        " out why", hidden);
}

int wb__hip_init(int *n)
{
    int code = CALL(Init, 0);
    if (!code) code = CALL(GetDeviceCount, n);
    if (!code && !*n) code = hipErrorNoDevice;
    if (!code) code = CALL(RuntimeGetVersion, &wb__hip_version);
    rocm = wb__hip_version / 10000000 * 1000;
    return code ? hip_driver_init_failed(code) : 0;
}

/* ---- opening the compiler -------------------------------------------------------------------- */

#define LISTED(name, parameters) {"hiprtc" #name, offsetof(wb__hiprtc_functions, name)},
static const wb__gpu_function hiprtc_functions[] = {
    WB__HIPRTC_FUNCTIONS(LISTED)
    LISTED(GetErrorString, (hiprtcResult code))
};
#undef LISTED
static const wb__gpu_file hiprtc_files[] = {{"libhiprtc.so.7", 7}, {"libhiprtc.so.6", 6},
                                            {"libhiprtc.so.5", 5}, {NULL, 0}};
static const wb__gpu_function comgr_functions[] = {
    {"amd_comgr_get_isa_count", offsetof(wb__comgr_functions, get_isa_count)},
    {"amd_comgr_get_isa_name", offsetof(wb__comgr_functions, get_isa_name)},
};
static const wb__gpu_file comgr_files[] = {{"libamd_comgr.so.3", 7}, {"libamd_comgr.so.2", 5},
                                           {NULL, 0}};

static wb__hip_compiler hip_compiler;
static wb__comgr_functions comgr;
static bool compiler_works;

/* Opens the compiler.  Up to ROCm 6 the runtime itself contains hiprtc. */
static int open_compiler(void)
{
    char reason[400];
    void *own = wb__gpu_find_library(&wb__hip_search, hip_driver_library, hiprtc_files,
                                     hiprtc_functions, WB__COUNT(hiprtc_functions), &hip_compiler.f,
                                     reason, sizeof reason);
    if (!own)
        return wb__fail(WB_ERROR_DEVICE, "amdgpu: hiprtc, which compiles kernels, was not found: "
                        "%s; " INSTALL("libamdhip64-5, from 13 on with libhiprtc-builtins5",
                        "hip-runtime-amd", "rocm-hip"), reason);
    /* This is the compiler's own comgr, unless the compiler opens it at run time. */
    if (!wb__gpu_find_library(&wb__hip_search, own, comgr_files, comgr_functions,
                              WB__COUNT(comgr_functions), &comgr, reason, sizeof reason))
        return wb__fail(WB_ERROR_DEVICE, "amdgpu: comgr, which lists the GPUs that hiprtc compiles"
                        " for, was not found: %s; " INSTALL("libamd-comgr2", "comgr", "rocm-comgr"),
                        reason);
    const hiprtcResult code = hip_compiler.f.Version(&hip_compiler.major, &hip_compiler.minor);
    if (code)
        return wb__fail(WB_ERROR_DEVICE, "amdgpu: hiprtcVersion: %s",
                        hip_compiler.f.GetErrorString(code));
    if (wb__debug("load"))
        wb__log(WB_LOG_DEBUG, "load: amdgpu: hiprtc %d.%d", hip_compiler.major, hip_compiler.minor);
    return 0;
}

const wb__hip_compiler *wb__hip_compiler_get(void)
{
    static wb__mutex one = WB__MUTEX_INIT;
    wb__mutex_lock(&one);
    compiler_works = compiler_works || !open_compiler();
    const bool works = compiler_works;
    wb__mutex_unlock(&one);
    return works ? &hip_compiler : NULL;
}

/* Entries of comgr's list end with the instruction set: amdgcn-amd-amdhsa--gfx90a. */
int wb__hip_check_arch(const wb__hip_device *d)
{
    const size_t length = strcspn(d->arch, ":");
    size_t n = 0;
    if (!comgr.get_isa_count(&n)) {
        for (size_t i = 0; i < n; i++) {
            const char *name = NULL, *set = NULL;
            if (!comgr.get_isa_name(i, &name) && name) set = strrchr(name, '-');
            if (set && strlen(set + 1) == length && !memcmp(set + 1, d->arch, length)) return 0;
        }
    }
    return wb__fail(WB_ERROR_DEVICE, "amdgpu:%d: hiprtc %d.%d of this ROCm does not compile for"
                    " %.*s (%s): install a newer ROCm; for a GPU like one that hiprtc knows,"
                    " HSA_OVERRIDE_GFX_VERSION may help", d->id,
                    hip_compiler.major, hip_compiler.minor, (int)length, d->arch, d->gpu.name);
}

/* ---- errors ---------------------------------------------------------------------------------- */

const char *wb__hip_error_name(int code)
{
    const char *name = hip.GetErrorName((hipError)code);
    return name ? name : "an unknown error";
}

void wb__hip_error_text(wb__gpu_device *d, int code, char *text, size_t capacity)
{
    const char *message = hip.GetErrorString((hipError)code);
    (void)d;
    if (message && strcmp(message, wb__hip_error_name(code)))
        snprintf(text, capacity, "%s", message);
}

int wb__hip_error_kind(int code)
{
    switch (code) {
    case hipErrorOutOfMemory: return WB__GPU_ERROR_MEMORY | WB__GPU_ERROR_FULL;
    case hipErrorECCNotCorrectable: case hipErrorIllegalAddress: case hipErrorLaunchTimeOut:
    case hipErrorContextIsDestroyed: case hipErrorAssert: case hipErrorLaunchFailure:
        return WB__GPU_ERROR_LOST;
    default: return 0;
    }
}
