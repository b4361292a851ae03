/* Finds, describes and opens OpenCL devices.  Devices are found when the backend starts, and opened
 * when they are first used. */
#include "backend/opencl/opencl.h"
#include "base/environment.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Devices have fixed positions, since a program may keep a device's address: if the drivers list
 * the same devices again, each gets its old position. */
enum { MAX_PLATFORMS = 16, MAX_DEVICES = WB__GPU_MAX_DEVICES };
static wb__cl_platform opencl_device_platforms[MAX_PLATFORMS];
static wb__cl_device opencl_device_devices[MAX_DEVICES];
static cl_uint n_platforms;
static int opencl_device_n_devices;

/* ---- properties of a device ------------------------------------------------------------------ */

#define OPENCL_DEVICE_FAIL(...) wb__gpu_fail(&wb__cl_driver, NULL, __VA_ARGS__)

static int opencl_device_ask(cl_device_id id, cl_uint what, void *value, size_t capacity,
                             const char *name)
{
    const int code = CALL(GetDeviceInfo, id, what, capacity, value, NULL);
    return code ? OPENCL_DEVICE_FAIL(code, "%s", name) : 0;
}
#define ASK(what, value) opencl_device_ask(id, CL_DEVICE_##what, &(value), sizeof(value), #what)

/* Removes blanks at both ends: some drivers pad names with spaces. */
static void trim_blanks(char *text)
{
    size_t n = strlen(text), from = strspn(text, " ");
    while (n > from && text[n - 1] == ' ') n--;
    memmove(text, text + from, n - from);
    text[n - from] = 0;
}

static int ask_text(cl_device_id id, cl_uint what, char *text, size_t capacity, const char *name)
{
    char long_text[1024] = "";
    if (opencl_device_ask(id, what, long_text, sizeof long_text - 1, name)) return WB_ERROR_DEVICE;
    trim_blanks(long_text);
    snprintf(text, capacity, "%.*s", (int)capacity - 1, long_text);
    return 0;
}

/* Whether the driver is PoCL. */
static bool is_pocl(const wb__cl_device *d)
{
    return strstr(d->platform->name, "Portable Computing Language") != NULL;
}

/* Whether the blank-separated list has the name. */
static bool opencl_device_is_listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

/* Returns the device's list of extensions, which the caller frees; NULL: there is none. */
static char *extensions_of(cl_device_id id)
{
    size_t bytes = 0;
    if (cl.GetDeviceInfo(id, CL_DEVICE_EXTENSIONS, 0, NULL, &bytes) || !bytes) return NULL;
    char *text = wb__alloc_zero(bytes + 1, 1);
    if (!text) wb_clear_error();
    if (!text || !cl.GetDeviceInfo(id, CL_DEVICE_EXTENSIONS, bytes, text, NULL)) return text;
    wb__free(text);
    return NULL;
}

/* Returns the items of a sub-group of an Intel GPU whose sub-groups multiply matrices; else 0.  The
 * extension demands the device's smallest size, which is 8 or 16. */
static int matrix_lanes(const wb__cl_device *d)
{
    enum { INTEL = 0x8086 };
    static const char *const needed[] = {"cl_intel_subgroup_matrix_multiply_accumulate",
                                         "cl_intel_subgroups", "cl_intel_required_subgroup_size"};
    cl_uint vendor = 0;
    size_t sizes[16] = {0}, bytes = 0, least = 0;
    if (!(d->type & CL_DEVICE_TYPE_GPU) || wb__gpu_is_off("WEBER_OPENCL_FRAGMENTS") ||
        cl.GetDeviceInfo(d->id, CL_DEVICE_VENDOR_ID, sizeof vendor, &vendor, NULL) ||
        vendor != INTEL)
        return 0;
    char *list = extensions_of(d->id);
    bool has = list != NULL;
    for (size_t i = 0; i < WB__COUNT(needed) && has; i++)
        has = opencl_device_is_listed(list, needed[i]);
    wb__free(list);
    if (!has || cl.GetDeviceInfo(d->id, CL_DEVICE_SUB_GROUP_SIZES_INTEL, sizeof sizes, sizes,
                                 &bytes))
        return 0;
    for (size_t i = 0; i < bytes / sizeof *sizes; i++)
        if (!least || sizes[i] < least) least = sizes[i];
    return least == 8 || least == 16 ? (int)least : 0;
}

/* Sets the device's properties.  *unfit: the reason why the device cannot be used, or NULL. */
static int opencl_device_describe(wb__cl_device *d, const char **unfit)
{
    const cl_device_id id = d->id;
    char name[sizeof d->gpu.name] = "", version[128] = "", driver[96] = "";
    size_t items = 0, arguments = 0;
    cl_ulong total = 0, most = 0, local = 0;
    cl_bitfield single_fp = 0, double_fp = 0;
    cl_bool unified = 0, little = 0, available = 0, compiler = 0;
    int major = 0, minor = 0;
    if (ask_text(id, CL_DEVICE_NAME, name, sizeof name, "NAME") ||
        ask_text(id, CL_DRIVER_VERSION, driver, sizeof driver, "DRIVER_VERSION") ||
        ask_text(id, CL_DEVICE_VERSION, version, sizeof version, "VERSION") ||
        ASK(TYPE, d->type) || ASK(MAX_WORK_GROUP_SIZE, items) || ASK(GLOBAL_MEM_SIZE, total) ||
        ASK(MAX_MEM_ALLOC_SIZE, most) || ASK(LOCAL_MEM_SIZE, local) ||
        ASK(MAX_PARAMETER_SIZE, arguments) || ASK(SINGLE_FP_CONFIG, single_fp) ||
        ASK(DOUBLE_FP_CONFIG, double_fp) || ASK(HOST_UNIFIED_MEMORY, unified) ||
        ASK(ENDIAN_LITTLE, little) || ASK(AVAILABLE, available) ||
        ASK(COMPILER_AVAILABLE, compiler))
        return WB_ERROR_DEVICE;
    if (sscanf(version, "OpenCL %d.%d", &major, &minor) != 2) major = 0;
    *unfit = !available ? "is not available"
           : !compiler ? "has no compiler"
           : !little ? "is big-endian"
           : major * 100 + minor < 102 ? "knows less than OpenCL 1.2"
           : items < 256 ? "runs fewer than 256 items in a group"
           : arguments < 1024 ? "takes less than 1,024 bytes of arguments" : NULL;
    d->exact_division = single_fp & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
    d->gpu.kind = d->type & CL_DEVICE_TYPE_CPU ? "cpu"
                : d->type & CL_DEVICE_TYPE_GPU ? "gpu" : "accelerator";
    d->gpu.total = (int64_t)WB__MIN(total, (cl_ulong)INT64_MAX);
    d->gpu.most = (int64_t)WB__MIN(most, (cl_ulong)INT64_MAX);
    d->gpu.target = (wb__gpu_target){.f64 = double_fp != 0, .in_turn = d->type & CL_DEVICE_TYPE_CPU,
                                     .composes = d->type & CL_DEVICE_TYPE_CPU,
                                     .max_items = (int)WB__MIN(items, (size_t)1 << 20),
                                     .local_bytes = (size_t)local, .launch_bytes = (size_t)local,
                                     .max_args_bytes = arguments,
                                     .max_groups = {UINT32_MAX, UINT32_MAX, UINT32_MAX}};
    d->gpu.target.fragments_f16 = d->gpu.target.fragments_bf16 = matrix_lanes(d);
    d->gpu.staged = wb__environment_switch("WEBER_OPENCL_STAGING", !unified);
    /* PoCL has a disk cache of its own, and compiles a kernel again when its image is requested. */
    d->gpu.keeps_images = wb__environment_switch("WEBER_OPENCL_BINARIES", !is_pocl(d));
    d->declares = is_pocl(d);
    memcpy(d->gpu.name, name, sizeof name);
    snprintf(d->gpu.about, sizeof d->gpu.about, "%s %s", d->platform->name, driver);
    snprintf(d->gpu.maker, sizeof d->gpu.maker, "%s %s %s", name, d->platform->name, driver);
    return 0;
}

/* ---- finding --------------------------------------------------------------------------------- */

/* Adds the devices of a platform to the list. */
static int opencl_device_list_devices(wb__cl_platform *p, wb__gpu_device **list, int *n_list)
{
    cl_uint n = 0;
    const cl_bitfield types = CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CPU;
    int code = CALL(GetPlatformInfo, p->id, CL_PLATFORM_NAME, sizeof p->name - 1, p->name, NULL);
    if (code && code != CL_INVALID_VALUE)       /* no name, if it does not fit in the buffer */
        return OPENCL_DEVICE_FAIL(code, "the platform's name");
    code = CALL(GetDeviceIDs, p->id, types, 0, NULL, &n);
    if (code == CL_DEVICE_NOT_FOUND || (!code && !n)) return 0;
    if (code) return OPENCL_DEVICE_FAIL(code, "platform %s", p->name);
    cl_device_id *ids = wb__alloc_zero(n, sizeof(*ids));
    if (!ids) return WB_ERROR_MEMORY;
    code = CALL(GetDeviceIDs, p->id, types, n, ids, NULL);
    int status = code ? OPENCL_DEVICE_FAIL(code, "platform %s", p->name) : 0;
    for (cl_uint i = 0; i < n && !status && opencl_device_n_devices < MAX_DEVICES; i++) {
        const char *unfit = NULL;
        wb__cl_device *d = &opencl_device_devices[opencl_device_n_devices];
        memset(d, 0, sizeof *d);
        d->platform = p;
        d->id = ids[i];
        status = opencl_device_describe(d, &unfit);
        if (!status && unfit)
            wb__log(WB_LOG_WARN, "opencl: %s of %s %s: skipped", d->gpu.name, p->name, unfit);
        if (status || unfit) continue;
        list[(*n_list)++] = &d->gpu;
        opencl_device_n_devices++;
    }
    wb__free(ids);
    return status;
}

/* Finds the devices.  A platform that fails is skipped; if no device is found, the error of the
 * last platform that failed is returned. */
int wb__cl_find(wb__gpu_device **list, int *n_list)
{
    cl_uint n = 0;
    int code = CALL(GetPlatformIDs, 0, NULL, &n);
    if (code == CL_PLATFORM_NOT_FOUND_KHR || (!code && !n))
        return wb__fail(WB_ERROR_DEVICE, "opencl: no platform: the loader is installed, but no"
                        " driver is registered in /etc/OpenCL/vendors; install the driver of your"
                        " GPU's vendor, or pocl-opencl-icd (Debian), which runs on any CPU");
    if (code) return OPENCL_DEVICE_FAIL(code, "how many there are");
    n = WB__MIN(n, (cl_uint)MAX_PLATFORMS);
    cl_platform_id ids[MAX_PLATFORMS];
    if ((code = CALL(GetPlatformIDs, n, ids, NULL)))
        return OPENCL_DEVICE_FAIL(code, "%u of them", (unsigned)n);
    int failed = 0;
    for (cl_uint i = 0; i < n; i++) {
        wb__cl_platform *p = &opencl_device_platforms[n_platforms++];
        *p = (wb__cl_platform){.id = ids[i]};
        wb__mutex_init(&p->lock);
        const int before = *n_list;
        if (!opencl_device_list_devices(p, list, n_list)) continue;
        failed = wb_error_code();
        opencl_device_n_devices = *n_list = before;
        if (n > 1) wb__log(WB_LOG_WARN, "%s: platform skipped", wb_error());
    }
    if (*n_list) return 0;
    return failed ? failed
                  : wb__fail(WB_ERROR_DEVICE, "opencl: no device on %u platform%s (the first is"
                             " %s); run `clinfo` to find out why", (unsigned)n, n == 1 ? "" : "s",
                             opencl_device_platforms[0].name);
}

void wb__cl_forget(void)
{
    wb__cl_blast_stop();
    for (cl_uint i = 0; i < n_platforms; i++) {
        if (opencl_device_platforms[i].context)
            cl.ReleaseContext(opencl_device_platforms[i].context);
        wb__mutex_destroy(&opencl_device_platforms[i].lock);
    }
    n_platforms = 0;
    opencl_device_n_devices = 0;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* Keeps a message of the driver, which calls this function; some messages belong to no context. */
static void driver_said(const char *message, const void *data, size_t bytes, void *context)
{
    (void)data, (void)bytes;
    wb__cl_platform *p = context;
    if (!p || !message) return;
    wb__mutex_lock(&p->lock);
    snprintf(p->message, sizeof p->message, "%s", message);
    wb__mutex_unlock(&p->lock);
}

static int open_context(wb__cl_platform *p)
{
    const cl_property properties[] = {CL_CONTEXT_PLATFORM, (cl_property)p->id, 0};
    static wb__mutex one = WB__MUTEX_INIT;
    cl_device_id members[MAX_DEVICES];          /* the platform's devices that we use */
    cl_uint n = 0;
    cl_int code = 0;
    wb__mutex_lock(&one);
    for (int i = 0; i < wb__cl_driver.state->n; i++) {
        const wb__cl_device *d = wb__cl_of(wb__cl_driver.state->device[i]);
        if (d->platform == p) members[n++] = d->id;
    }
    if (!p->context)
        p->context = MAKE(&code, CreateContext, properties, n, members, driver_said, p);
    if (code) p->context = NULL;
    wb__mutex_unlock(&one);
    return code;
}

int wb__cl_open(wb__gpu_device *base)
{
    wb__cl_device *d = wb__cl_of(base);
    wb__cl_platform *p = d->platform;
    cl_int code = open_context(p);
    if (code) return wb__gpu_fail(&wb__cl_driver, base, code, "the devices of %s", p->name);
    for (int q = 0; q < (base->staged ? 3 : 2) && !code; q++) {
        d->queue[q] = MAKE(&code, CreateCommandQueue, p->context, d->id, 0);
        if (code) d->queue[q] = NULL;
    }
    if (!code) return 0;
    wb__cl_close(base);
    return wb__gpu_fail(&wb__cl_driver, base, code, "%s", base->name);
}

void wb__cl_close(wb__gpu_device *base)
{
    wb__cl_device *d = wb__cl_of(base);
    for (size_t q = 0; q < WB__COUNT(d->queue); q++) {
        if (d->queue[q]) cl.ReleaseCommandQueue(d->queue[q]);
        d->queue[q] = NULL;
    }
}
