/* The driver and NVRTC: opened at run time, never closed (their threads may still run); their errors
 * as ours; and stand-ins that fail at the n-th call, for tests. */
#include "backend/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wb__cu_functions wb__cu;
int wb__cu_driver_version;
bool wb__cu_has_graphs, wb__cu_has_pools;

/* ---- calls that fail when a test asks --------------------------------------------------------
 *
 * What gives something back never fails: it would leak.  What is made and not given back is
 * counted.  A capture that fails to end has ended all the same. */

enum { MOST_COMPILERS = 4 };

static wb__cu_functions opened;
static wb__nvrtc_functions opened_nvrtc[MOST_COMPILERS];
static _Thread_local int compiler;      /* whose functions the stand-ins call */
static _Atomic int64_t calls, live;
static int64_t fail_at;
static bool fail_all;           /* from there on */

static bool must_fail(const char *name)
{
    const int64_t n = ++calls;
    if (fail_all ? n < fail_at : n != fail_at) return false;
    if (n == fail_at)
        wb__log(WB_LOG_INFO, "cuda: call %lld, %s, fails as WEBER_CUDA_FAIL asks", (long long)n,
                name);
    return true;
}

#define FAILING(library, prefix, code, name, parameters, arguments)                                \
    static CUresult failing_##prefix##name parameters                                              \
    {                                                                                              \
        return must_fail(#prefix #name) ? (CUresult)code : library.name arguments;                 \
    }
#define FAILING_MAKE(library, prefix, code, name, parameters, arguments)                           \
    static CUresult failing_##prefix##name parameters                                              \
    {                                                                                              \
        const CUresult status =                                                                    \
            must_fail(#prefix #name) ? (CUresult)code : library.name arguments;                    \
        if (!status) live++;                                                                       \
        return status;                                                                             \
    }
#define FAILING_RELEASE(library, prefix, name, parameters, arguments)                              \
    static CUresult failing_##prefix##name parameters                                              \
    {                                                                                              \
        live--;                                                                                    \
        return library.name arguments;                                                             \
    }
#define STATUS(name, parameters, arguments)                                                        \
    FAILING(opened, cu, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, name, parameters, arguments)
#define MAKE(name, parameters, arguments)                                                          \
    FAILING_MAKE(opened, cu, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, name, parameters, arguments)
#define RELEASE(name, parameters, arguments) FAILING_RELEASE(opened, cu, name, parameters, arguments)
#define ALWAYS(name, parameters, arguments)
#define END(name, parameters, arguments)                                                           \
    static CUresult failing_cu##name parameters                                                    \
    {                                                                                              \
        const bool fails = must_fail("cu" #name);                                                  \
        CUresult status = opened.name arguments;                                                   \
        if (status) return status;                                                                 \
        if (!fails) live++;                                                                        \
        else if (*made) opened.GraphDestroy(*made);                                                \
        if (fails) *made = NULL;                                                                   \
        return fails ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : status;                                \
    }
WB__CU_FUNCTIONS(STATUS, MAKE, RELEASE, ALWAYS, END)
#undef STATUS
#undef MAKE
#undef RELEASE
#undef END
#define STATUS(name, parameters, arguments)                                                        \
    FAILING(opened_nvrtc[compiler], nvrtc, NVRTC_ERROR_OUT_OF_MEMORY, name, parameters, arguments)
#define MAKE(name, parameters, arguments)                                                          \
    FAILING_MAKE(opened_nvrtc[compiler], nvrtc, NVRTC_ERROR_OUT_OF_MEMORY, name, parameters,       \
                 arguments)
#define RELEASE(name, parameters, arguments)                                                       \
    FAILING_RELEASE(opened_nvrtc[compiler], nvrtc, name, parameters, arguments)
WB__NVRTC_FUNCTIONS(STATUS, MAKE, RELEASE, ALWAYS)
#undef STATUS
#undef MAKE
#undef RELEASE

#define SET(name, parameters, arguments) cu.name = failing_cu##name;
#define SET_NVRTC(name, parameters, arguments) to->name = failing_nvrtc##name;
static void choose_table(void)
{
    const char *text = getenv("WEBER_CUDA_FAIL");
    char *end = NULL;
    calls = live = 0;
    fail_at = text ? strtoll(text, &end, 10) : 0;
    fail_all = fail_at > 0 && *end == '+';
    cu = opened;
    if (fail_at <= 0) return;
    WB__CU_FUNCTIONS(SET, SET, SET, ALWAYS, SET)
}

static void choose_nvrtc_table(wb__nvrtc_functions *to, int i)
{
    *to = opened_nvrtc[i];
    if (fail_at <= 0) return;
    WB__NVRTC_FUNCTIONS(SET_NVRTC, SET_NVRTC, SET_NVRTC, ALWAYS)
}
#undef SET
#undef SET_NVRTC
#undef ALWAYS

void wb__cu_tell_left(void)
{
    if (live) wb__log(WB_LOG_WARN, "cuda: %lld objects of the driver's are left", (long long)live);
}

/* ---- fork ------------------------------------------------------------------------------------ */

static _Atomic bool child;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void in_child(void) { child = true; }
static void prepare_fork(void) { pthread_atfork(NULL, NULL, in_child); }

bool wb__cu_is_child(void) { return child; }

int wb__cu_check_fork(void)
{
    if (wb__likely(!child)) return 0;
    return wb__fail(WB_ERROR_DEVICE, "cuda: this process was forked from one that had started"
                    " CUDA, which works there alone: fork before the first use of a device, or"
                    " call exec after it");
}

/* ---- opening the driver ---------------------------------------------------------------------- */

#define LISTED(name, parameters, arguments) {"cu" #name, offsetof(wb__cu_functions, name)},
static const wb__gpu_function functions[] = {
    WB__CU_FUNCTIONS(LISTED, LISTED, LISTED, LISTED, LISTED)
};
#undef LISTED

/* What older drivers lack, and we can do without. */
static bool is_of_pools(const char *name)
{
    return !strncmp(name, "cuMemPool", 9) || !strcmp(name, "cuMemAllocFromPoolAsync") ||
           !strcmp(name, "cuMemFreeAsync");
}

static bool is_of_graphs(const char *name)
{
    return !strncmp(name, "cuGraph", 7) || !strcmp(name, "cuStreamBeginCapture_v2") ||
           !strcmp(name, "cuStreamEndCapture");
}

static const char *driver_file(void)
{
    const char *name = getenv("WEBER_CUDA_LIBRARY");
    return name && *name ? name : "libcuda.so.1";
}

static int find_functions(void *library, const char *file)
{
    const char *graphs = getenv("WEBER_CUDA_GRAPHS");
    wb__cu_has_pools = true;
    wb__cu_has_graphs = !graphs || strcmp(graphs, "0") != 0;
    for (size_t i = 0; i < WB__COUNT(functions); i++) {
        const char *name = wb__gpu_find_functions(library, &functions[i], 1, &opened);
        if (!name) continue;
        if (is_of_pools(name)) wb__cu_has_pools = false;
        else if (is_of_graphs(name)) wb__cu_has_graphs = false;
        else
            return wb__fail(WB_ERROR_DEVICE, "cuda: %s has no %s: it is no driver of NVIDIA's, or"
                            " an old one: install driver 470 or newer", file, name);
    }
    return 0;
}

/* What cuInit says, and what can be done. */
static int init_failed(CUresult code, const char *file)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char hidden[160] = "";
    if (visible)
        snprintf(hidden, sizeof hidden, "; CUDA_VISIBLE_DEVICES is \"%.80s\", which may hide them",
                 visible);
    switch (code) {
    case CUDA_ERROR_STUB_LIBRARY:
        return wb__cu_fail(NULL, "cuInit", code, "%s is the toolkit's stand-in for linking, not a"
                           " driver: install the NVIDIA driver, or take the folder of stubs out of"
                           " LD_LIBRARY_PATH", file);
    case CUDA_ERROR_NO_DEVICE:
        return wb__cu_fail(NULL, "cuInit", code, "the driver is there, but it sees no GPU%s; see"
                           " what `nvidia-smi` says", hidden);
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return wb__cu_fail(NULL, "cuInit", code, "%s is of another version than the kernel's module:"
                           " restart the machine after an update of the driver", file);
    default:
        return wb__cu_fail(NULL, "cuInit", code, "the driver %s does not start%s; see what"
                           " `nvidia-smi` says", file, hidden);
    }
}

int wb__cu_load(void)
{
    const char *file = driver_file();
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *said = dlerror();
        return wb__fail(WB_ERROR_DEVICE, "cuda: %s was not found: %s; install the NVIDIA driver",
                        file, said ? said : "no reason given");
    }
    int status = find_functions(library, file);
    if (status) {
        dlclose(library);
        return status;
    }
    choose_table();
    pthread_once(&once, prepare_fork);
    CUresult code = cu.Init(0);
    if (code) return init_failed(code, file);
    code = cu.DriverGetVersion(&wb__cu_driver_version);
    if (code) return wb__cu_fail(NULL, "cuDriverGetVersion", code, "%s", file);
    if (wb__cu_driver_version < 11000)
        return wb__fail(WB_ERROR_DEVICE, "cuda: the driver knows CUDA %d.%d; 11.0 or newer is"
                        " needed: install driver 470 or newer", wb__cu_driver_version / 1000,
                        wb__cu_driver_version % 1000 / 10);
    return 0;
}

/* ---- opening NVRTC --------------------------------------------------------------------------- */

#define LISTED(name, parameters, arguments) {"nvrtc" #name, offsetof(wb__nvrtc_functions, name)},
static const wb__gpu_function nvrtc_functions[] = {
    WB__NVRTC_FUNCTIONS(LISTED, LISTED, LISTED, LISTED)
    LISTED(GetErrorString, (nvrtcResult code), (code))
};
#undef LISTED

static const wb__cu_file nvrtc_files[] = {{"libnvrtc.so.13", 13}, {"libnvrtc.so.12", 12},
                                          {"libnvrtc.so.11.2", 11}, {"libnvrtc.so", 0}, {0}};

static wb__cu_compiler compilers[MOST_COMPILERS];
static int n_compilers;

/* One that is none of those before: the same file has several names. */
static bool is_new(const wb__nvrtc_functions *f)
{
    for (int i = 0; i < n_compilers; i++)
        if (opened_nvrtc[i].CompileProgram == f->CompileProgram) return false;
    return true;
}

/* Opens one more; 0, or an error. */
static int open_nvrtc(void)
{
    static int from;
    char why[400] = "";
    const char *missing = NULL;
    wb__nvrtc_functions *f = &opened_nvrtc[n_compilers];
    void *library;
    while ((library = wb__cu_open_library(nvrtc_files, &from, why, sizeof why)) &&
           ((missing = wb__gpu_find_functions(library, nvrtc_functions,
                                              WB__COUNT(nvrtc_functions), f)) || !is_new(f))) {}
    if (!library) from = 0;             /* it may be there when it is wanted again */
    if (!library && missing)
        return wb__fail(WB_ERROR_DEVICE, "cuda: NVRTC has no %s: 11.2 or newer is needed", missing);
    if (!library)
        return wb__fail(WB_ERROR_DEVICE, "cuda: NVRTC, which compiles kernels, was not found: %s;"
                        " install it (Debian: libnvrtc12; NVIDIA: cuda-nvrtc; or pip's"
                        " nvidia-cuda-nvrtc), or name its folder in WEBER_CUDA_PATH", why);
    n_compilers++;
    return 0;
}

/* Its version, and stand-ins in place of its functions where a test wants them. */
static int begin_compiler(int i)
{
    int major = 0, minor = 0;
    choose_nvrtc_table(&compilers[i].f, i);
    const nvrtcResult code = compilers[i].f.Version(&major, &minor);
    if (code)
        return wb__fail(WB_ERROR_DEVICE, "cuda: nvrtcVersion: %s",
                        opened_nvrtc[i].GetErrorString(code));
    compilers[i].version = 1000 * major + 10 * minor;
    if (wb__debug("load")) wb__log(WB_LOG_DEBUG, "load: cuda: NVRTC %d.%d", major, minor);
    return 0;
}

const wb__cu_compiler *wb__cu_compiler_at(int i)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    int status = 0;
    pthread_mutex_lock(&one);
    compiler = i;
    if (i == n_compilers && i < MOST_COMPILERS) status = open_nvrtc();
    if (!status && i < n_compilers && !compilers[i].version) status = begin_compiler(i);
    const bool there = !status && i < n_compilers;
    pthread_mutex_unlock(&one);
    if (status && i) wb_clear_error();
    return there ? &compilers[i] : NULL;
}

/* ---- errors ---------------------------------------------------------------------------------- */

const char *wb__cu_error_name(CUresult code)
{
    const char *name = NULL;
    if (!opened.GetErrorName || opened.GetErrorName(code, &name) || !name) return "an unknown error";
    return name;
}

/* After these the driver does nothing more for the context, whatever is asked. */
static bool ends_it(CUresult code)
{
    switch (code) {
    case CUDA_ERROR_DEVICE_UNAVAILABLE: case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE: case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS: case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED: case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR: case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS: case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC: case CUDA_ERROR_LAUNCH_FAILED: case CUDA_ERROR_UNKNOWN:
        return true;
    default: return false;
    }
}

static void lose(wb__cu_device *d, const char *call, CUresult code, const char *what)
{
    pthread_mutex_lock(&d->losing);
    if (!d->lost)
        snprintf(d->lost_because, sizeof d->lost_because, "%s: %s (%u): %.300s", call,
                 wb__cu_error_name(code), code, what);
    d->lost = true;
    pthread_mutex_unlock(&d->losing);
}

int wb__cu_fail(wb__cu_device *d, const char *call, CUresult code, const char *format, ...)
{
    char who[24] = "cuda", what[1200];
    const char *said = NULL;
    if (d) snprintf(who, sizeof who, "cuda:%d", d->ordinal);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const bool lost = d && ends_it(code);
    if (lost) lose(d, call, code, what);
    if (!opened.GetErrorString || opened.GetErrorString(code, &said)) said = NULL;
    return wb__fail(code == CUDA_ERROR_OUT_OF_MEMORY ? WB_ERROR_MEMORY : WB_ERROR_DEVICE,
                    "%s: %s: %s (%u): %s%s%s%s", who, call, wb__cu_error_name(code), code, what,
                    said ? "; the driver says: " : "", said ? said : "",
                    lost && !d->debug_sync ? "; WEBER_DEBUG=sync names the kernel" : "");
}
