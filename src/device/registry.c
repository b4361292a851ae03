/* The table of all known backends, and their state.  See registry.h. */
#include "device/registry.h"

#include "base/environment.h"
#include "base/mistakes.h"
#include "base/mutex.h"
#include "device/device.h"
#include "engine/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUILT_WITHOUT(name, option) \
    "This Weber was built without the backend " name ": cmake -D" option "=ON builds it in."

/* The GPU backends in order of preference; the CPU comes after them. */
#define GPU_BACKENDS(X) X("CUDA") X("AMDGPU") X("Metal") X("OpenCL")
#define REGISTRY_NAMED(name_) .name = name_, .label = name_ ": ", .prefix = name_ "Device"
#define LIBRARIES(...) ((const char *const[]){__VA_ARGS__, NULL})

enum { CUDA_ROW, AMDGPU_ROW, METAL_ROW, OPENCL_ROW };
const wb__row wb__rows[WB__ROWS] = {
    {REGISTRY_NAMED("CUDA"), .missing = BUILT_WITHOUT("CUDA", "WEBER_CUDA"),
     .libraries = LIBRARIES("cuDNN", "cuBLASLt", "NVRTC", "NCCL"),
     .deviceless = "It needs an NVIDIA GPU, its driver, and CUDA_VISIBLE_DEVICES not to hide it."},
    {REGISTRY_NAMED("AMDGPU"), .alias = "AMD", .missing = BUILT_WITHOUT("AMDGPU", "WEBER_AMDGPU"),
     .libraries = LIBRARIES("MIOpen", "rocBLAS", "hiprtc", "RCCL"),
     .deviceless = "It needs an AMD GPU, ROCm, and HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES "
                   "not to hide it."},
    {REGISTRY_NAMED("Metal"), .missing = BUILT_WITHOUT("Metal", "WEBER_METAL"),
     .libraries = LIBRARIES("MPS", "MPSGraph"),
     .deviceless = "It needs macOS 13 or newer, and a GPU of the family Metal 3."},
    {REGISTRY_NAMED("OpenCL"), .missing = BUILT_WITHOUT("OpenCL", "WEBER_OPENCL"),
     .libraries = LIBRARIES("CLBlast"),
     .deviceless = "It needs a vendor's OpenCL driver, or PoCL for the processor "
                   "(Debian: pocl-opencl-icd)."},
    {REGISTRY_NAMED("CPU"), .missing = "", .deviceless = "", .libraries = LIBRARIES(NULL)},
};

#define REGISTRY_ENTRY(name) name,
#define REGISTRY_LISTED(name) name ", "
static const char *const registry_names[] = {GPU_BACKENDS(REGISTRY_ENTRY) "CPU", NULL};
static const char *const gpu_names[] = {GPU_BACKENDS(REGISTRY_ENTRY) NULL};
#define NAMES GPU_BACKENDS(REGISTRY_LISTED) "CPU"

const char *const *wb_supported_devices(void) { return registry_names; }
const char *const *wb_supported_gpu_backends(void) { return gpu_names; }

/* ---- state --------------------------------------------------------------------------------- */

typedef enum { NOT_STARTED, STARTING, WORKS, REGISTRY_FAILED } condition;

/* The state of each backend, by row.  `reason`, why the backend does not work, is in fixed memory,
 * so that it is available when memory is short. */
static struct {
    const wb__backend *backend;
    condition condition;
    const wb_device **devices;
    int n;
    bool started;                       /* the backend has worked at least once */
    char reason[WB__REASON_BYTES];
} registry_state[WB__ROWS] = {[WB__CPU_ROW] = {.backend = &wb__cpu_backend}};

/* The backends that are built in, by row. */
static const wb__backend *registry_built[WB__ROWS] = {
#ifdef WB_HAVE_CUDA
    [CUDA_ROW] = &wb__cu_backend,
#endif
#ifdef WB_HAVE_AMDGPU
    [AMDGPU_ROW] = &wb__amd_backend,
#endif
#ifdef WB_HAVE_METAL
    [METAL_ROW] = &wb__mtl_backend,
#endif
#ifdef WB_HAVE_OPENCL
    [OPENCL_ROW] = &wb__cl_backend,
#endif
    [WB__CPU_ROW] = &wb__cpu_backend,
};

static wb__mutex registry_lock = WB__MUTEX_INIT;
static int registry_depth;              /* how often the owner of the lock has locked it */
static wb__once registry_once = WB__ONCE_INIT;
static bool environment_read;
static bool alias_logged;

static void registry_stop_all(void);

static void registry_set_shutdown(void) { wb__at_shutdown = registry_stop_all; }

static void load_from_environment(void)
{
    environment_read = true;
    const char *at = wb__environment_text("WEBER_BACKENDS");
    wb__error_kept kept;
    wb__error_keep(&kept);
    while (at && *at) {
        char name[64];
        size_t n = strcspn(at, ","), blank = strspn(at, " ");
        if (blank > n) blank = n;
        size_t length = n - blank;
        while (length && at[blank + length - 1] == ' ') length--;
        snprintf(name, sizeof name, "%.*s", (int)length, at + blank);
        if (*name && wb_using(name)) {
            char reason[WB__REASON_BYTES];
            wb__error_plain(reason, sizeof reason);
            wb__log(WB_LOG_WARN, "WEBER_BACKENDS: %s", reason);
        }
        at += n + (at[n] == ',');
    }
    wb__error_restore(&kept);
}

static void registry_lock_again(void)
{
    if (!wb__mutex_is_mine(&registry_lock)) {
        wb__mutex_lock(&registry_lock);
        registry_depth = 0;
    }
    registry_depth++;
}

void wb__registry_lock(void)
{
    wb__once_run(&registry_once, registry_set_shutdown);
    registry_lock_again();
    if (!environment_read) load_from_environment();
}

void wb__registry_unlock(void)
{
    if (!--registry_depth) wb__mutex_unlock(&registry_lock);
}

/* ---- rows ---------------------------------------------------------------------------------- */

int wb__row_find(const char *name)
{
    for (int i = 0; name && i < WB__ROWS; i++) {
        if (!strcmp(name, wb__rows[i].name)) return i;
        if (!wb__rows[i].alias || strcmp(name, wb__rows[i].alias) != 0) continue;
        wb__registry_lock();
        bool was_logged = alias_logged;
        alias_logged = true;
        wb__registry_unlock();
        if (!was_logged)
            wb__log(WB_LOG_WARN, "\"%s\" backend is deprecated. Please use \"%s\" instead.", name,
                    wb__rows[i].name);
        return i;
    }
    return -1;
}

static int fail_unsupported_backend(const char *name)
{
    wb__fail(WB_ERROR_ARGUMENT, "Unsupported GPU backend: %s.\nSupported backends are: " NAMES ".",
             name ? name : "NULL");
    return -1;
}

int wb__row_named(const char *name)
{
    int row = wb__row_find(name);
    return row < 0 ? fail_unsupported_backend(name) : row;
}

int wb__row_exact(const char *name)
{
    for (int i = 0; i < WB__ROWS; i++)
        if (!strcmp(name, wb__rows[i].name)) return i;
    return fail_unsupported_backend(name);
}

int wb__row_of(const wb__backend *backend)
{
    for (int i = 0; i < WB__ROWS; i++)
        if (!strcmp(backend->name, wb__rows[i].name)) return i;
    return WB__CPU_ROW;
}

bool wb__row_loaded(int row) { return registry_state[row].backend != NULL; }
const wb__backend *wb__row_backend(int row) { return registry_state[row].backend; }

static bool registry_list_devices(int row)
{
    const wb__backend *b = registry_state[row].backend;
    int n = b->count();
    if (n <= 0) {
        wb__fail(WB_ERROR_DEVICE, "%s found no device. %s", wb__rows[row].name,
                 wb__rows[row].deviceless);
        return false;
    }
    const wb_device **list = wb__alloc_zero((size_t)n, sizeof(*list));
    if (!list) return false;
    for (int i = 0; i < n; i++) list[i] = b->device(i);
    registry_state[row].devices = list;
    registry_state[row].n = n;
    return true;
}

/* Starts a backend.  A start that failed is not tried again before wb_shutdown, except when memory
 * was short. */
static void registry_start(int row)
{
    wb__error_kept kept;
    wb__error_keep(&kept);
    wb_clear_error();
    registry_state[row].condition = STARTING;
    snprintf(registry_state[row].reason, WB__REASON_BYTES, "%s is being started.",
             wb__rows[row].name);
    if (registry_state[row].backend->start() == 0) {
        if (registry_list_devices(row)) registry_state[row].condition = WORKS;
        else registry_state[row].backend->stop();
        registry_state[row].started |= registry_state[row].condition == WORKS;
    }
    if (registry_state[row].condition != WORKS) {
        bool retry = wb_error_code() == WB_ERROR_MEMORY;
        registry_state[row].condition = retry ? NOT_STARTED : REGISTRY_FAILED;
        if (*wb_error()) wb__error_plain(registry_state[row].reason, WB__REASON_BYTES);
        else snprintf(registry_state[row].reason, WB__REASON_BYTES, "%s", wb__rows[row].deviceless);
    }
    if (wb__debug("load"))
        wb__log(WB_LOG_DEBUG, "load: %s: %d device%s%s%s", wb__rows[row].name,
                registry_state[row].n, registry_state[row].n == 1 ? "" : "s",
                registry_state[row].n ? "" : ": ",
                registry_state[row].n ? "" : registry_state[row].reason);
    wb__error_restore(&kept);
}

bool wb__row_works(int row)
{
    if (!registry_state[row].backend) return false;
    if (registry_state[row].condition == NOT_STARTED) registry_start(row);
    return registry_state[row].condition == WORKS;
}

const char *wb__row_reason(int row)
{
    if (wb__row_works(row)) return "";
    if (!registry_state[row].backend && !*registry_state[row].reason)
        snprintf(registry_state[row].reason, WB__REASON_BYTES,
                 "%s is not loaded: wb_using(\"%s\").", wb__rows[row].name, wb__rows[row].name);
    return registry_state[row].reason;
}

const char *wb__row_label(int row, const char *reason)
{
    const char *name = wb__rows[row].name;
    return wb__begins(reason, name) ? "" : wb__rows[row].label;
}

wb_device_list wb__row_devices(int row)
{
    if (!wb__row_works(row)) return (wb_device_list){0};
    return (wb_device_list){registry_state[row].n, registry_state[row].devices};
}

/* Stops all backends; called by wb_shutdown.  They stay loaded and start again on demand.  stop()
 * does nothing while the program holds objects of the backend.  So `started` stays set, and the
 * next shutdown calls stop() again. */
static void registry_stop_all(void)
{
    registry_lock_again();
    wb__selection_forget_device();
    for (int i = 0; i < WB__ROWS; i++) {
        if (registry_state[i].started) registry_state[i].backend->stop();
        if (registry_state[i].backend) registry_state[i].condition = NOT_STARTED;
        wb__free(registry_state[i].devices);
        registry_state[i].devices = NULL;
        registry_state[i].n = 0;
        registry_state[i].reason[0] = 0;
    }
    wb__registry_unlock();
}

/* ---- loading ------------------------------------------------------------------------------- */

void wb__registry_put(const char *name, const wb__backend *backend)
{
    const int row = wb__row_exact(name);
    if (row >= 0) registry_built[row] = backend;
}

int wb_using(const char *backend)
{
    int row = wb__row_named(backend), status = 0;
    if (row < 0) return wb_error_code();
    wb__registry_lock();
    if (!registry_state[row].backend && !(registry_state[row].backend = registry_built[row])) {
        status = wb__fail(WB_ERROR_DEVICE, "%s", wb__rows[row].missing);
        wb__error_plain(registry_state[row].reason, WB__REASON_BYTES);
    }
    wb__registry_unlock();
    return status;
}

bool wb_loaded(const char *backend)
{
    int row = wb__row_named(backend);
    if (row < 0) return false;
    wb__registry_lock();
    bool loaded = wb__row_loaded(row);
    wb__registry_unlock();
    return loaded;
}

bool (wb_functional)(const char *backend, const char *part)
{
    int row = wb__row_named(backend), have = 1;
    if (row < 0) return false;
    wb__registry_lock();
    bool works = wb__row_works(row);
    if (works && part) have = registry_state[row].backend->part(part);
    wb__registry_unlock();
    if (have < 0)
        wb__fail(WB_ERROR_ARGUMENT, "%s has no part called \"%s\"", wb__rows[row].name, part);
    return works && have > 0;
}

const char *wb_why_not(const char *backend)
{
    char *text = wb__thread_text(WB__TEXT_REASON);
    int row = wb__row_named(backend);
    if (row < 0) {
        wb__error_plain(text, WB__THREAD_TEXT_BYTES);
    } else {
        wb__registry_lock();
        snprintf(text, WB__THREAD_TEXT_BYTES, "%s", wb__row_reason(row));
        wb__registry_unlock();
    }
    return text;
}
