/* Opens the driver and NVRTC, and names error codes of the driver.  Neither library is ever closed,
 * because threads that it has started may still run. */
#include "backend/cuda/cuda.h"

#include "base/environment.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wb__cu_functions wb__cu;
int wb__cu_driver_version;
bool wb__cu_has_graphs, wb__cu_has_pools;

const wb__gpu_search wb__cu_search = {
    .tag = "cuda", .variable = "WEBER_CUDA_PATH", .version = &wb__cu_driver_version,
    .folders = {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"}};

/* ---- opening the driver ---------------------------------------------------------------------- */

#define LISTED(name, version, parameters) {"cu" #name #version, offsetof(wb__cu_functions, name)},
static const wb__gpu_function cuda_driver_functions[] = {WB__CU_FUNCTIONS(LISTED)};
#undef LISTED

/* Whether a function of the driver is for memory pools, or for graphs; older drivers lack both. */
static bool is_pool_function(const char *name)
{
    return wb__begins(name, "cuMemPool") || !strcmp(name, "cuMemAllocFromPoolAsync") ||
           !strcmp(name, "cuMemFreeAsync");
}

static bool is_graph_function(const char *name)
{
    return wb__begins(name, "cuGraph") || !strcmp(name, "cuStreamBeginCapture_v2") ||
           !strcmp(name, "cuStreamEndCapture");
}

static const char *cuda_driver_file;    /* name of the driver's file */

static int cuda_driver_find_functions(void *library)
{
    wb__cu_has_pools = true;
    wb__cu_has_graphs = !wb__gpu_is_off("WEBER_CUDA_GRAPHS");
    for (size_t i = 0; i < WB__COUNT(cuda_driver_functions); i++) {
        const char *name = wb__gpu_find_functions(library, &cuda_driver_functions[i], 1, &cu);
        if (!name) continue;
        if (is_pool_function(name)) wb__cu_has_pools = false;
        else if (is_graph_function(name)) wb__cu_has_graphs = false;
        else
            return wb__fail(WB_ERROR_DEVICE, "cuda: %s has no %s: it is not NVIDIA's driver, or it"
                            " is too old: install driver 470 or newer", cuda_driver_file, name);
    }
    return 0;
}

#define CUDA_DRIVER_FAIL(...) wb__gpu_fail(&wb__cu_driver, NULL, __VA_ARGS__)

/* Sets the error for a failure of cuInit, with advice.  Returns the error code. */
static int cuda_driver_init_failed(int code)
{
    const char *visible = wb__environment_text("CUDA_VISIBLE_DEVICES");
    char hidden[160] = "";
    if (visible)
        snprintf(hidden, sizeof hidden, "; CUDA_VISIBLE_DEVICES is \"%.80s\", which may hide them",
                 visible);
    switch (code) {
    case CUDA_ERROR_STUB_LIBRARY:
        return CUDA_DRIVER_FAIL(
            code,
            "%s is the toolkit's stand-in for linking, not a driver: install the"
            " NVIDIA driver, or take the folder of stubs out of LD_LIBRARY_PATH",
            cuda_driver_file);
    case CUDA_ERROR_NO_DEVICE:
        return CUDA_DRIVER_FAIL(
            code, "the driver is there, but it sees no GPU%s; see what `nvidia-smi` says", hidden);
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return CUDA_DRIVER_FAIL(
            code,
            "%s is of another version than the kernel's module: restart the machine"
            " after an update of the driver",
            cuda_driver_file);
    default:
        return CUDA_DRIVER_FAIL(code, "the driver %s does not start%s; see what `nvidia-smi` says",
                                cuda_driver_file, hidden);
    }
}

int wb__cu_load(void)
{
    void *library = wb__gpu_open_library("cuda", "WEBER_CUDA_LIBRARY", "libcuda.so.1",
                                         "cuInit", "install the NVIDIA driver", &cuda_driver_file);
    const int status = library ? cuda_driver_find_functions(library) : WB_ERROR_DEVICE;
    if (library && status) wb__os_library_close(library);
    return status;
}

int wb__cu_init(void)
{
    int code = CALL(Init, 0);
    if (code) return cuda_driver_init_failed(code);
    code = CALL(DriverGetVersion, &wb__cu_driver_version);
    if (code) return CUDA_DRIVER_FAIL(code, "%s", cuda_driver_file);
    if (wb__cu_driver_version < 11000)
        return wb__fail(WB_ERROR_DEVICE, "cuda: the driver supports CUDA %d.%d; 11.0 or newer is"
                        " needed: install driver 470 or newer", wb__cu_driver_version / 1000,
                        wb__cu_driver_version % 1000 / 10);
    return 0;
}

/* ---- opening NVRTC --------------------------------------------------------------------------- */

#define LISTED(name, parameters) {"nvrtc" #name, offsetof(wb__nvrtc_functions, name)},
static const wb__gpu_function nvrtc_functions[] = {
    WB__NVRTC_FUNCTIONS(LISTED)
    LISTED(GetErrorString, (nvrtcResult code))
};
#undef LISTED

static const wb__gpu_file nvrtc_files[] = {{"libnvrtc.so.13", 13}, {"libnvrtc.so.12", 12},
                                           {"libnvrtc.so.11.2", 11}, {"libnvrtc.so", 0}, {NULL, 0}};

enum { MAX_COMPILERS = 4 };
static wb__cu_compiler cuda_driver_compilers[MAX_COMPILERS];
static int n_compilers;

/* Whether no listed compiler has these functions: two file names may be of the same library. */
static bool cuda_driver_is_new(const wb__nvrtc_functions *f)
{
    for (int i = 0; i < n_compilers; i++)
        if (cuda_driver_compilers[i].f.CompileProgram == f->CompileProgram) return false;
    return true;
}

/* Opens one more compiler.  Returns 0 or an error code. */
static int open_nvrtc(void)
{
    static int from;
    char reason[400] = "";
    const char *missing = NULL;
    wb__nvrtc_functions *f = &cuda_driver_compilers[n_compilers].f;
    void *library;
    while ((library = wb__gpu_open_next(&wb__cu_search, nvrtc_files, &from, reason,
                                        sizeof reason)) &&
           ((missing = wb__gpu_find_functions(library, nvrtc_functions,
                                              WB__COUNT(nvrtc_functions), f)) ||
            !cuda_driver_is_new(f))) {}
    if (!library) from = 0;             /* the next call searches from the beginning */
    if (!library && missing)
        return wb__fail(WB_ERROR_DEVICE, "cuda: NVRTC has no %s: 11.2 or newer is needed", missing);
    if (!library)
        return wb__fail(WB_ERROR_DEVICE, "cuda: NVRTC, which compiles kernels, was not found: %s;"
                        " install it (Debian: libnvrtc12; NVIDIA: cuda-nvrtc; or pip's"
                        " nvidia-cuda-nvrtc), or name its folder in WEBER_CUDA_PATH", reason);
    n_compilers++;
    return 0;
}

/* Reads the compiler's version.  Returns 0 or an error code. */
static int cuda_driver_read_version(wb__cu_compiler *c)
{
    int major = 0, minor = 0;
    const nvrtcResult code = c->f.Version(&major, &minor);
    if (code) return wb__fail(WB_ERROR_DEVICE, "cuda: nvrtcVersion: %s", c->f.GetErrorString(code));
    c->version = 1000 * major + 10 * minor;
    if (wb__debug("load")) wb__log(WB_LOG_DEBUG, "load: cuda: NVRTC %d.%d", major, minor);
    return 0;
}

const wb__cu_compiler *wb__cu_compiler_at(int i)
{
    static wb__mutex one = WB__MUTEX_INIT;
    int status = 0;
    wb__mutex_lock(&one);
    if (i == n_compilers && i < MAX_COMPILERS) status = open_nvrtc();
    if (!status && i < n_compilers && !cuda_driver_compilers[i].version)
        status = cuda_driver_read_version(&cuda_driver_compilers[i]);
    const bool there = !status && i < n_compilers;
    wb__mutex_unlock(&one);
    if (status && i) wb_clear_error();
    return there ? &cuda_driver_compilers[i] : NULL;
}

/* ---- errors ---------------------------------------------------------------------------------- */

const char *wb__cu_error_name(int code)
{
    const char *name = NULL;
    return cu.GetErrorName((CUresult)code, &name) || !name ? "an unknown error" : name;
}

void wb__cu_error_text(wb__gpu_device *d, int code, char *text, size_t capacity)
{
    const char *message = NULL;
    (void)d;
    if (!cu.GetErrorString((CUresult)code, &message) && message)
        snprintf(text, capacity, "%s", message);
}

int wb__cu_error_kind(int code)
{
    switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY: return WB__GPU_ERROR_MEMORY;
    /* after these errors the driver rejects every call for the context */
    case CUDA_ERROR_DEVICE_UNAVAILABLE: case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE: case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS: case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED: case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR: case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS: case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC: case CUDA_ERROR_LAUNCH_FAILED: case CUDA_ERROR_UNKNOWN:
        return WB__GPU_ERROR_LOST;
    default: return 0;
    }
}
