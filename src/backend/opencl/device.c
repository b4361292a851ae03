/* Devices: found once, in a stable order (GPUs and accelerators, then processors; otherwise as the
 * driver lists them), opened when first used. */
#include "backend/opencl/opencl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A program may keep a device's address for as long as it likes, so devices stand in fixed places:
 * found again after they were forgotten, each is where it was. */
enum { MOST_PLATFORMS = 16, MOST_DEVICES = WB__CL_MOST_DEVICES };
static wb__cl_platform platforms[MOST_PLATFORMS];
static wb__cl_device places[MOST_DEVICES];
static int n_places;

static struct {
    cl_uint n_platforms;
    wb__cl_device *device[MOST_DEVICES];    /* in order: those of all platforms, then the chosen */
    int n;
} found;

int wb__cl_count(void) { return found.n; }

wb__cl_device *wb__cl_at(int ordinal)
{
    return ordinal >= 0 && ordinal < found.n ? found.device[ordinal] : NULL;
}

/* ---- what a device is ------------------------------------------------------------------------ */

static int ask(cl_device_id id, cl_uint what, void *value, size_t room, const char *name)
{
    const cl_int code = cl.GetDeviceInfo(id, what, room, value, NULL);
    return code ? wb__cl_fail(NULL, "clGetDeviceInfo", code, "%s", name) : 0;
}
#define ASK(what, value) ask(id, CL_DEVICE_##what, &(value), sizeof(value), #what)

/* Some drivers pad names with blanks. */
static void trim_blanks(char *text)
{
    size_t n = strlen(text), from = strspn(text, " ");
    while (n > from && text[n - 1] == ' ') n--;
    memmove(text, text + from, n - from);
    text[n - from] = 0;
}

static int ask_text(cl_device_id id, cl_uint what, char *text, size_t room, const char *name)
{
    char long_text[1024] = "";
    if (ask(id, what, long_text, sizeof long_text - 1, name)) return WB_ERROR_DEVICE;
    trim_blanks(long_text);
    snprintf(text, room, "%.*s", (int)room - 1, long_text);
    return 0;
}

/* A variable that says 1 or 0, or else what is best. */
static bool wished(const char *variable, bool best)
{
    const char *text = getenv(variable);
    return text && *text ? *text == '1' : best;
}

/* PoCL compiles every kernel once more when it is asked for a binary, which takes as long as the
 * first time, and keeps on disk itself what it compiled. */
static bool keeps_its_own(const wb__cl_device *d)
{
    return strstr(d->platform->name, "Portable Computing Language") != NULL;
}

/* Fills in what the driver tells; *unfit: why the device cannot be used, or NULL. */
static int describe(wb__cl_device *d, const char **unfit)
{
    const cl_device_id id = d->id;
    char version[128] = "";
    size_t items = 0, arguments = 0;
    cl_ulong total = 0, most = 0, local = 0;
    cl_bitfield single_fp = 0, double_fp = 0;
    cl_bool unified = 0, little = 0, available = 0, compiler = 0;
    int major = 0, minor = 0;
    if (ask_text(id, CL_DEVICE_NAME, d->name, sizeof d->name, "NAME") ||
        ask_text(id, CL_DRIVER_VERSION, d->driver, sizeof d->driver, "DRIVER_VERSION") ||
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
    d->total = (int64_t)WB__MIN(total, (cl_ulong)INT64_MAX);
    d->most = (int64_t)WB__MIN(most, (cl_ulong)INT64_MAX);
    d->exact_division = single_fp & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
    d->target = (wb__gpu_target){.f64 = double_fp != 0, .is_cpu = d->type & CL_DEVICE_TYPE_CPU,
                                 .most_items = (int)WB__MIN(items, (size_t)1 << 20),
                                 .local_bytes = (size_t)local, .most_args = arguments};
    d->staged = wished("WEBER_OPENCL_STAGING", !unified);
    d->keeps_binaries = wished("WEBER_OPENCL_BINARIES", !keeps_its_own(d));
    d->debug_sync = wb__debug("sync");
    return wb__gpu_memory_limit("opencl", d->total, &d->cache.limit);
}

/* ---- finding --------------------------------------------------------------------------------- */

static void drop_device(wb__cl_device *d)
{
    if (!d) return;
    if (d == &places[n_places - 1]) n_places--;
    pthread_mutex_destroy(&d->opening);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->programs.lock);
    pthread_mutex_destroy(&d->up.lock);
    pthread_mutex_destroy(&d->down.lock);
}

static wb__cl_device *new_device(wb__cl_platform *p, cl_device_id id)
{
    wb__cl_device *d = &places[n_places++];
    memset(d, 0, sizeof *d);
    d->platform = p;
    d->id = id;
    d->most_waiting = 1;
    d->programs.by = &wb__cl_compiler;
    d->programs.device = d;
    pthread_mutex_init(&d->opening, NULL);
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->programs.lock, NULL);
    pthread_mutex_init(&d->up.lock, NULL);
    pthread_mutex_init(&d->down.lock, NULL);
    return d;
}

/* The devices of one platform, added to those that were found. */
static int list_devices(wb__cl_platform *p)
{
    cl_uint n = 0;
    const cl_bitfield types =
        CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CPU;
    cl_int code = cl.GetPlatformInfo(p->id, CL_PLATFORM_NAME, sizeof p->name - 1, p->name, NULL);
    if (code && code != CL_INVALID_VALUE)       /* the name is longer than our room: none then */
        return wb__cl_fail(NULL, "clGetPlatformInfo", code, "the platform's name");
    code = cl.GetDeviceIDs(p->id, types, 0, NULL, &n);
    if (code == CL_DEVICE_NOT_FOUND || (!code && !n)) return 0;
    if (code) return wb__cl_fail(NULL, "clGetDeviceIDs", code, "platform %s", p->name);
    cl_device_id *ids = wb__alloc_zero(n, sizeof(*ids));
    if (!ids) return WB_ERROR_MEMORY;
    code = cl.GetDeviceIDs(p->id, types, n, ids, NULL);
    int status = code ? wb__cl_fail(NULL, "clGetDeviceIDs", code, "platform %s", p->name) : 0;
    for (cl_uint i = 0; i < n && !status && n_places < MOST_DEVICES; i++) {
        const char *unfit = NULL;
        wb__cl_device *d = new_device(p, ids[i]);
        status = describe(d, &unfit);
        if (!status && unfit)
            wb__log(WB_LOG_WARN, "opencl: %s of %s %s: left out", d->name, p->name, unfit);
        if (!status && !unfit) found.device[found.n++] = d;
        else drop_device(d);
    }
    wb__free(ids);
    return status;
}

/* A platform that fails is left out as a whole; where nothing else is there, its error is ours. */
static int list_platforms(void)
{
    cl_int code = cl.GetPlatformIDs(0, NULL, &found.n_platforms);
    if (code == CL_PLATFORM_NOT_FOUND_KHR || (!code && !found.n_platforms)) {
        found.n_platforms = 0;
        return wb__fail(WB_ERROR_DEVICE, "opencl: no platform: the loader is there, but no driver"
                        " is registered with it (in /etc/OpenCL/vendors); install that of your"
                        " GPU's vendor, or for any processor what Debian calls pocl-opencl-icd");
    }
    const cl_uint n = code ? 0 : WB__MIN(found.n_platforms, (cl_uint)MOST_PLATFORMS);
    found.n_platforms = 0;
    if (code) return wb__cl_fail(NULL, "clGetPlatformIDs", code, "how many there are");
    cl_platform_id *ids = wb__alloc_zero(n, sizeof(*ids));
    int status = ids ? 0 : WB_ERROR_MEMORY, failed = 0;
    if (!status && (code = cl.GetPlatformIDs(n, ids, NULL)))
        status = wb__cl_fail(NULL, "clGetPlatformIDs", code, "%u of them", (unsigned)n);
    for (cl_uint i = 0; i < n && !status; i++) {
        wb__cl_platform *p = &platforms[found.n_platforms++];
        *p = (wb__cl_platform){.id = ids[i]};
        pthread_mutex_init(&p->lock, NULL);
        const int before = found.n;
        if (!list_devices(p)) continue;
        failed = wb_error_code();
        while (found.n > before) drop_device(found.device[--found.n]);
        if (n > 1) wb__log(WB_LOG_WARN, "%s: platform left out", wb_error());
    }
    wb__free(ids);
    if (status || found.n) return status;
    return failed ? failed
                  : wb__fail(WB_ERROR_DEVICE, "opencl: no device on %u platform%s (the first is"
                             " %s); see what `clinfo` says", (unsigned)n, n == 1 ? "" : "s",
                             platforms[0].name);
}

static int rank(const wb__cl_device *d) { return d->type & CL_DEVICE_TYPE_CPU ? 1 : 0; }

static void sort_devices(void)
{
    for (int i = 1; i < found.n; i++) {
        wb__cl_device *d = found.device[i];
        int k = i;
        for (; k && rank(found.device[k - 1]) > rank(d); k--) found.device[k] = found.device[k - 1];
        found.device[k] = d;
    }
}

/* ---- choosing -------------------------------------------------------------------------------- */

static const struct { const char *name; cl_bitfield type; } type_names[] = {
    {"gpu", CL_DEVICE_TYPE_GPU}, {"accelerator", CL_DEVICE_TYPE_ACCELERATOR},
    {"cpu", CL_DEVICE_TYPE_CPU}};

/* Takes what `word` names from the devices `from` to `to`. */
static int choose(const char *word, wb__cl_device **from, wb__cl_device **to, int *n_to)
{
    char *end = NULL;
    const long number = strtol(word, &end, 10);
    if (end != word && !*end) {
        if (number < 0 || number >= found.n)
            return wb__fail(WB_ERROR_ARGUMENT, "opencl: WEBER_OPENCL_DEVICES names device %ld;"
                            " there are %d", number, found.n);
        if (from[number]) to[(*n_to)++] = from[number];
        from[number] = NULL;
        return 0;
    }
    for (size_t t = 0; t < WB__COUNT(type_names); t++) {
        if (strcasecmp(word, type_names[t].name)) continue;
        for (int i = 0; i < found.n; i++) {
            if (!from[i] || !(from[i]->type & type_names[t].type)) continue;
            to[(*n_to)++] = from[i];
            from[i] = NULL;
        }
        return 0;
    }
    return wb__fail(WB_ERROR_ARGUMENT, "opencl: WEBER_OPENCL_DEVICES: \"%s\" is neither a"
                    " device's number nor gpu, accelerator or cpu", word);
}

static int choose_devices(const char *text)
{
    char *words = wb__strdup(text), *rest = words;
    wb__cl_device **to = wb__alloc_zero((size_t)found.n, sizeof(*to));
    int n = 0, status = words && to ? 0 : WB_ERROR_MEMORY;
    const int all = found.n;
    for (char *word; !status && (word = strtok_r(rest, ", ", &rest));)
        status = choose(word, found.device, to, &n);
    for (int i = 0; i < all && to; i++)
        if (found.device[i] && !status) drop_device(found.device[i]);
    if (status) {                               /* all are to be freed with the rest */
        for (int i = 0, k = 0; i < all && to; i++)
            if (!found.device[i]) found.device[i] = to[k++];
    } else {
        memcpy(found.device, to, (size_t)n * sizeof(*to));
        found.n = n;
    }
    wb__free(words);
    wb__free(to);
    if (!status && !n)
        status = wb__fail(WB_ERROR_DEVICE, "opencl: WEBER_OPENCL_DEVICES=\"%s\" leaves no device"
                          " of %d", text, all);
    return status;
}

/* The devices of each platform that are ours, for its context. */
static void gather_members(void)
{
    for (int i = 0; i < found.n; i++) {
        wb__cl_platform *p = found.device[i]->platform;
        p->members[p->n++] = found.device[i]->id;
    }
}

int wb__cl_find(void)
{
    const char *chosen = getenv("WEBER_OPENCL_DEVICES");
    int status = list_platforms();
    if (!status) sort_devices();
    if (!status && chosen) status = choose_devices(chosen);
    if (!status) gather_members();
    for (int i = 0; i < found.n && !status; i++) {
        wb__cl_device *d = found.device[i];
        if (wb__debug("load"))
            wb__log(WB_LOG_DEBUG, "load: opencl:%d: %s, %s %s", i, d->name, d->platform->name,
                    d->driver);
        d->base.backend = &wb__cl_backend;
        d->base.ordinal = i;
        d->base.name = d->name;
        d->base.state = d;
    }
    if (status) wb__cl_forget();
    return status;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void driver_said(const char *said, const void *data, size_t bytes, void *context)
{
    (void)data, (void)bytes;
    wb__cl_platform *p = context;
    pthread_mutex_lock(&p->lock);
    snprintf(p->said, sizeof p->said, "%s", said);
    pthread_mutex_unlock(&p->lock);
}

static int open_context(wb__cl_device *d)
{
    wb__cl_platform *p = d->platform;
    const cl_property properties[] = {CL_CONTEXT_PLATFORM, (cl_property)p->id, 0};
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    cl_int code = 0;
    pthread_mutex_lock(&one);
    if (!p->context)
        p->context = cl.CreateContext(properties, p->n, p->members, driver_said, p, &code);
    pthread_mutex_unlock(&one);
    if (code) p->context = NULL;
    return code ? wb__cl_fail(d, "clCreateContext", code, "%u devices of %s", (unsigned)p->n,
                              p->name) : 0;
}

static void close_queues(wb__cl_device *d)
{
    if (d->compute) cl.ReleaseCommandQueue(d->compute);
    if (d->transfer) cl.ReleaseCommandQueue(d->transfer);
    d->compute = d->transfer = NULL;
}

static int open_queues(wb__cl_device *d)
{
    cl_int code = 0;
    d->compute = cl.CreateCommandQueue(d->platform->context, d->id, 0, &code);
    if (!code) d->transfer = cl.CreateCommandQueue(d->platform->context, d->id, 0, &code);
    if (!code) return 0;
    close_queues(d);
    return wb__cl_fail(d, "clCreateCommandQueue", code, "%s", d->name);
}

int wb__cl_open(wb__cl_device *d)
{
    if (wb__likely(d->open)) return 0;
    int status = wb__cl_backend.start();        /* it may have been stopped since d was found */
    if (status) return status;
    pthread_mutex_lock(&d->opening);
    if (!d->open) status = open_context(d);
    if (!status && !d->open) status = open_queues(d);
    if (!status) d->open = true;
    pthread_mutex_unlock(&d->opening);
    return status;
}

static void close_device(wb__cl_device *d)
{
    if (!d->open) return;
    cl.Finish(d->transfer);
    cl.Finish(d->compute);
    wb__cl_drop_marks(d);
    wb__cl_free_staging(d, &d->up);
    wb__cl_free_staging(d, &d->down);
    wb__gpu_programs_free(&d->programs);
    wb__cl_trim(&d->base);
    close_queues(d);
    d->open = false;
}

bool wb__cl_in_use(void)
{
    bool used = false;
    for (int i = 0; i < found.n; i++)
        used |= found.device[i]->cache.used || found.device[i]->kernels;
    return used;
}

void wb__cl_forget(void)
{
    for (int i = 0; i < found.n; i++) {
        close_device(found.device[i]);
        drop_device(found.device[i]);
    }
    for (cl_uint i = 0; i < found.n_platforms; i++) {
        wb__cl_platform *p = &platforms[i];
        if (p->context) cl.ReleaseContext(p->context);
        p->context = NULL;
        pthread_mutex_destroy(&p->lock);
    }
    n_places = 0;
    memset(&found, 0, sizeof found);
}
