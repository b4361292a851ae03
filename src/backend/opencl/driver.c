/* The driver: opened at run time, never closed (its threads may still run); its errors as ours; and
 * a stand-in that fails at the n-th call, for tests. */
#include "backend/opencl/opencl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wb__cl_functions wb__cl;

/* ---- calls that fail when a test asks --------------------------------------------------------
 *
 * Releases never fail: what they release would leak.  What is made and not released is counted. */

static wb__cl_functions opened;
static _Atomic int64_t calls, live;
static int64_t fail_at;
static bool fail_all;           /* from there on */

static bool must_fail(const char *name)
{
    const int64_t n = ++calls;
    if (fail_all ? n < fail_at : n != fail_at) return false;
    if (n == fail_at)
        wb__log(WB_LOG_INFO, "opencl: call %lld, %s, fails as WEBER_OPENCL_FAIL asks",
                (long long)n, name);
    return true;
}

#define STATUS(name, parameters, arguments)                                                        \
    static cl_int failing_##name parameters                                                        \
    {                                                                                              \
        return must_fail("cl" #name) ? CL_OUT_OF_RESOURCES : opened.name arguments;                \
    }
#define EVENT(name, parameters, arguments)                                                         \
    static cl_int failing_##name parameters                                                        \
    {                                                                                              \
        const cl_int code = must_fail("cl" #name) ? CL_OUT_OF_RESOURCES : opened.name arguments;   \
        if (!code && event) live++;                                                                \
        return code;                                                                               \
    }
#define OBJECT(type, name, parameters, arguments)                                                  \
    static type failing_##name parameters                                                          \
    {                                                                                              \
        type object = NULL;                                                                        \
        *error = CL_OUT_OF_RESOURCES;                                                              \
        if (!must_fail("cl" #name)) object = opened.name arguments;                                \
        if (object) live++;                                                                        \
        return object;                                                                             \
    }
#define RELEASE(name, parameters, arguments)                                                       \
    static cl_int failing_##name parameters                                                        \
    {                                                                                              \
        live--;                                                                                    \
        return opened.name arguments;                                                              \
    }
WB__CL_FUNCTIONS(STATUS, EVENT, OBJECT, RELEASE)
#undef STATUS
#undef EVENT
#undef OBJECT
#undef RELEASE

#define STATUS(name, parameters, arguments) .name = failing_##name,
#define OBJECT(type, name, parameters, arguments) .name = failing_##name,
static const wb__cl_functions failing = {WB__CL_FUNCTIONS(STATUS, STATUS, OBJECT, STATUS)};
#undef STATUS
#undef OBJECT

void wb__cl_tell_left(void)
{
    if (live) wb__log(WB_LOG_WARN, "opencl: %lld objects of the driver's are left",
                      (long long)live);
}

static void choose_table(void)
{
    const char *text = getenv("WEBER_OPENCL_FAIL");
    char *end = NULL;
    calls = live = 0;
    fail_at = text ? strtoll(text, &end, 10) : 0;
    fail_all = fail_at > 0 && *end == '+';
    cl = fail_at > 0 ? failing : opened;
}

/* ---- fork ------------------------------------------------------------------------------------ */

static _Atomic bool child;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void in_child(void) { child = true; }
static void prepare_fork(void) { pthread_atfork(NULL, NULL, in_child); }

bool wb__cl_is_child(void) { return child; }

int wb__cl_check_fork(void)
{
    if (wb__likely(!child)) return 0;
    return wb__fail(WB_ERROR_DEVICE, "opencl: this process was forked from one that had started"
                    " OpenCL, which works there alone: fork before the first use of a device, or"
                    " call exec after it");
}

/* ---- opening --------------------------------------------------------------------------------- */

#define STATUS(name, parameters, arguments) {"cl" #name, offsetof(wb__cl_functions, name)},
#define OBJECT(type, name, parameters, arguments) STATUS(name, parameters, arguments)
static const wb__gpu_function functions[] = {
    WB__CL_FUNCTIONS(STATUS, STATUS, OBJECT, STATUS)
};
#undef STATUS
#undef OBJECT

#if defined(__APPLE__)
static const char usual[] = "/System/Library/Frameworks/OpenCL.framework/OpenCL";
#else
static const char usual[] = "libOpenCL.so.1";
#endif

static const char *driver_file(void)
{
    const char *name = getenv("WEBER_OPENCL_LIBRARY");
    return name && *name ? name : usual;
}

bool wb__cl_usual_driver(void) { return strcmp(driver_file(), usual) == 0; }

int wb__cl_load(void)
{
    const char *file = driver_file();
    pthread_once(&once, prepare_fork);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *said = dlerror();
        return wb__fail(WB_ERROR_DEVICE, "opencl: %s was not found: %s; install an OpenCL driver:"
                        " that of your GPU's vendor, or for any processor what Debian calls"
                        " pocl-opencl-icd", file, said ? said : "no reason given");
    }
    const char *missing =
        wb__gpu_find_functions(library, functions, WB__COUNT(functions), &opened);
    if (!missing) {
        choose_table();
        return 0;
    }
    dlclose(library);
    return wb__fail(WB_ERROR_DEVICE, "opencl: %s has no %s: a driver of OpenCL 1.2 or newer is"
                    " needed", file, missing);
}

/* ---- errors ---------------------------------------------------------------------------------- */

#define ERROR_NAME(name, number) {number, "CL_" #name},
static const struct { cl_int code; const char *name; } errors[] = {WB__CL_ERRORS(ERROR_NAME)};
#undef ERROR_NAME

const char *wb__cl_error_name(cl_int code)
{
    for (size_t i = 0; i < WB__COUNT(errors); i++)
        if (errors[i].code == code) return errors[i].name;
    return "an error of the driver's own";
}

static int code_of(cl_int code)
{
    switch (code) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: case CL_OUT_OF_HOST_MEMORY: return WB_ERROR_MEMORY;
    default: return WB_ERROR_DEVICE;
    }
}

int wb__cl_fail(wb__cl_device *d, const char *call, cl_int code, const char *format, ...)
{
    char who[24] = "opencl", what[1200], said[sizeof d->platform->said] = "";
    if (d) {
        snprintf(who, sizeof who, "opencl:%d", d->base.ordinal);
        pthread_mutex_lock(&d->platform->lock);
        memcpy(said, d->platform->said, sizeof said);
        d->platform->said[0] = 0;
        pthread_mutex_unlock(&d->platform->lock);
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return wb__fail(code_of(code), "%s: %s: %s (%d): %s%s%s", who, call, wb__cl_error_name(code),
                    (int)code, what, *said ? "; the driver says: " : "", said);
}
