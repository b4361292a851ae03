/* A replacement of OpenCL's loader, named by WEBER_OPENCL_LIBRARY, whose calls can fail.  It
 * forwards each call to the real loader, except the calls that OPENCL_FAIL makes fail: "n": the
 * n-th; "n+": the n-th and all later ones.  clGetPlatformIDs reads the variable and restarts the
 * count.  Functions that release an object never fail: the object would leak.  Objects that are
 * created and not released are counted.
 *
 * OPENCL_INTEL, as in "16 cl_intel_subgroups ...", presents each device as a GPU of Intel, which
 * has these extensions, and whose smallest sub-group has so many items. */
#include "backend/opencl/cl.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* How many calls failed since the last call of this function; `text` names the first of them. */
API int64_t opencl_failed(char text[200]);
/* How many objects were created and not released. */
API int64_t opencl_left(void);

/* The functions, by kind:
 *   STATUS    returns a status
 *   EVENT     returns a status, and an event through its last parameter if that is not NULL
 *   OBJECT    returns an object, and a status through its last parameter
 *   RELEASE   releases an object
 *   WAIT      waits for commands */
#define FUNCTIONS(STATUS, EVENT, OBJECT, RELEASE, WAIT)                                            \
    STATUS(GetPlatformInfo,                                                                        \
           (cl_platform_id p, cl_uint what, size_t size, void *value, size_t *bytes),              \
           (p, what, size, value, bytes))                                                          \
    STATUS(GetDeviceIDs,                                                                           \
           (cl_platform_id p, cl_bitfield type, cl_uint most, cl_device_id *list, cl_uint *n),     \
           (p, type, most, list, n))                                                               \
    OBJECT(cl_context, CreateContext,                                                              \
           (const cl_property *properties, cl_uint n, const cl_device_id *devices,                 \
            cl_context_notify notify, void *context, cl_int *error),                               \
           (properties, n, devices, notify, context, error))                                       \
    OBJECT(cl_command_queue, CreateCommandQueue,                                                   \
           (cl_context c, cl_device_id d, cl_bitfield properties, cl_int *error),                  \
           (c, d, properties, error))                                                              \
    OBJECT(cl_mem, CreateBuffer,                                                                   \
           (cl_context c, cl_bitfield flags, size_t bytes, void *host, cl_int *error),             \
           (c, flags, bytes, host, error))                                                         \
    OBJECT(cl_program, CreateProgramWithSource,                                                    \
           (cl_context c, cl_uint n, const char **texts, const size_t *lengths, cl_int *error),    \
           (c, n, texts, lengths, error))                                                          \
    OBJECT(cl_program, CreateProgramWithBinary,                                                    \
           (cl_context c, cl_uint n, const cl_device_id *devices, const size_t *lengths,           \
            const unsigned char **binaries, cl_int *status, cl_int *error),                        \
           (c, n, devices, lengths, binaries, status, error))                                      \
    STATUS(BuildProgram,                                                                           \
           (cl_program p, cl_uint n, const cl_device_id *devices, const char *options,             \
            cl_build_notify notify, void *context),                                                \
           (p, n, devices, options, notify, context))                                              \
    STATUS(GetProgramInfo,                                                                         \
           (cl_program p, cl_uint what, size_t size, void *value, size_t *bytes),                  \
           (p, what, size, value, bytes))                                                          \
    STATUS(GetProgramBuildInfo,                                                                    \
           (cl_program p, cl_device_id d, cl_uint what, size_t size, void *value, size_t *bytes),  \
           (p, d, what, size, value, bytes))                                                       \
    OBJECT(cl_kernel, CreateKernel, (cl_program p, const char *name, cl_int *error),               \
           (p, name, error))                                                                       \
    STATUS(GetKernelWorkGroupInfo,                                                                 \
           (cl_kernel k, cl_device_id d, cl_uint what, size_t size, void *value, size_t *bytes),   \
           (k, d, what, size, value, bytes))                                                       \
    STATUS(SetKernelArg, (cl_kernel k, cl_uint index, size_t bytes, const void *value),            \
           (k, index, bytes, value))                                                               \
    EVENT(EnqueueNDRangeKernel,                                                                    \
          (cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset,                    \
           const size_t *global, const size_t *local, cl_uint n, const cl_event *wait,             \
           cl_event *event),                                                                       \
          (q, k, dims, offset, global, local, n, wait, event))                                     \
    EVENT(EnqueueReadBuffer,                                                                       \
          (cl_command_queue q, cl_mem m, cl_bool blocking, size_t at, size_t bytes, void *to,      \
           cl_uint n, const cl_event *wait, cl_event *event),                                      \
          (q, m, blocking, at, bytes, to, n, wait, event))                                         \
    EVENT(EnqueueWriteBuffer,                                                                      \
          (cl_command_queue q, cl_mem m, cl_bool blocking, size_t at, size_t bytes,                \
           const void *from, cl_uint n, const cl_event *wait, cl_event *event),                    \
          (q, m, blocking, at, bytes, from, n, wait, event))                                       \
    EVENT(EnqueueCopyBuffer,                                                                       \
          (cl_command_queue q, cl_mem from, cl_mem to, size_t from_at, size_t to_at,               \
           size_t bytes, cl_uint n, const cl_event *wait, cl_event *event),                        \
          (q, from, to, from_at, to_at, bytes, n, wait, event))                                    \
    EVENT(EnqueueMigrateMemObjects,                                                                \
          (cl_command_queue q, cl_uint count, const cl_mem *objects, cl_bitfield flags,            \
           cl_uint n, const cl_event *wait, cl_event *event),                                      \
          (q, count, objects, flags, n, wait, event))                                              \
    OBJECT(void *, EnqueueMapBuffer,                                                               \
           (cl_command_queue q, cl_mem m, cl_bool blocking, cl_bitfield flags, size_t at,          \
            size_t bytes, cl_uint n, const cl_event *wait, cl_event *event, cl_int *error),        \
           (q, m, blocking, flags, at, bytes, n, wait, event, error))                              \
    RELEASE(EnqueueUnmapMemObject,                                                                 \
            (cl_command_queue q, cl_mem m, void *at, cl_uint n, const cl_event *wait,              \
             cl_event *event),                                                                     \
            (q, m, at, n, wait, event))                                                            \
    EVENT(EnqueueMarkerWithWaitList,                                                               \
          (cl_command_queue q, cl_uint n, const cl_event *wait, cl_event *event),                  \
          (q, n, wait, event))                                                                     \
    STATUS(Flush, (cl_command_queue q), (q))                                                       \
    WAIT(Finish, (cl_command_queue q), (q))                                                      \
    WAIT(WaitForEvents, (cl_uint n, const cl_event *events), (n, events))                        \
    STATUS(GetEventInfo,                                                                           \
           (cl_event e, cl_uint what, size_t size, void *value, size_t *bytes),                    \
           (e, what, size, value, bytes))                                                          \
    RELEASE(ReleaseContext, (cl_context c), (c))                                                   \
    RELEASE(ReleaseCommandQueue, (cl_command_queue q), (q))                                        \
    RELEASE(ReleaseMemObject, (cl_mem m), (m))                                                     \
    RELEASE(ReleaseProgram, (cl_program p), (p))                                                   \
    RELEASE(ReleaseKernel, (cl_kernel k), (k))                                                     \
    RELEASE(ReleaseEvent, (cl_event e), (e))

static _Atomic int64_t calls, live, failed;
static int64_t fail_at;
static bool fail_all;                   /* the later calls fail too */
static char first_failed[200];

int64_t opencl_failed(char text[200])
{
    const int64_t n = failed;
    memcpy(text, first_failed, sizeof first_failed);
    failed = 0;
    return n;
}

int64_t opencl_left(void) { return live; }

static void read_variable(void)
{
    const char *text = getenv("OPENCL_FAIL");
    char *end = NULL;
    calls = 0;
    fail_at = text ? strtoll(text, &end, 10) : 0;
    fail_all = fail_at > 0 && *end == '+';
}

static bool must_fail(const char *name)
{
    const int64_t n = ++calls;
    if (fail_at <= 0 || (fail_all ? n < fail_at : n != fail_at)) return false;
    if (!failed)
        snprintf(first_failed, sizeof first_failed, "call %lld, %s", (long long)n, name);
    failed++;
    return true;
}

static void *real(const char *name)
{
    static void *library;
    if (!library) library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) fprintf(stderr, "opencl double: the real loader has no %s\n", name);
    if (!found) abort();
    return found;
}

#define BEGIN(type, name, parameters)                                                              \
    API type cl##name parameters;                                                                  \
    API type cl##name parameters                                                                   \
    {                                                                                              \
        static type(*function) parameters;                                                         \
        if (!function) *(void **)&function = real("cl" #name);
#define STATUS(name, parameters, arguments)                                                        \
    BEGIN(cl_int, name, parameters)                                                                \
    return must_fail("cl" #name) ? CL_OUT_OF_RESOURCES : function arguments;                       \
    }
/* A wait that fails has waited all the same: the caller may release memory next, which no command
 * may write to any more. */
#define WAIT(name, parameters, arguments)                                                          \
    BEGIN(cl_int, name, parameters)                                                                \
    const cl_int code = function arguments;                                                        \
    return must_fail("cl" #name) ? CL_OUT_OF_RESOURCES : code;                                     \
    }
#define EVENT(name, parameters, arguments)                                                         \
    BEGIN(cl_int, name, parameters)                                                                \
    const cl_int code = must_fail("cl" #name) ? CL_OUT_OF_RESOURCES : function arguments;          \
    if (!code && event) live++;                                                                    \
    return code;                                                                                   \
    }
#define OBJECT(type, name, parameters, arguments)                                                  \
    BEGIN(type, name, parameters)                                                                  \
    type object = NULL;                                                                            \
    *error = CL_OUT_OF_RESOURCES;                                                                  \
    if (!must_fail("cl" #name)) object = function arguments;                                       \
    if (object) live++;                                                                            \
    return object;                                                                                 \
    }
#define RELEASE(name, parameters, arguments)                                                       \
    BEGIN(cl_int, name, parameters)                                                                \
    live--;                                                                                        \
    return function arguments;                                                                     \
    }
FUNCTIONS(STATUS, EVENT, OBJECT, RELEASE, WAIT)

/* What OPENCL_INTEL makes a device answer.  False: nothing. */
static bool as_intel(cl_uint what, size_t size, void *value, size_t *bytes)
{
    const char *text = getenv("OPENCL_INTEL");
    char *extensions = NULL;
    if (!text) return false;
    const size_t least = strtoul(text, &extensions, 10), sizes[] = {2 * least, least};
    const cl_bitfield gpu = CL_DEVICE_TYPE_GPU;
    const cl_uint vendor = 0x8086;
    const struct { cl_uint what; const void *from; size_t bytes; } all[] = {
        {CL_DEVICE_TYPE, &gpu, sizeof gpu}, {CL_DEVICE_VENDOR_ID, &vendor, sizeof vendor},
        {CL_DEVICE_EXTENSIONS, extensions, strlen(extensions) + 1},
        {CL_DEVICE_SUB_GROUP_SIZES_INTEL, sizes, sizeof sizes}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].what != what) continue;
        if (value && size >= all[i].bytes) memcpy(value, all[i].from, all[i].bytes);
        if (bytes) *bytes = all[i].bytes;
        return true;
    }
    return false;
}

BEGIN(cl_int, GetDeviceInfo,
      (cl_device_id d, cl_uint what, size_t size, void *value, size_t *bytes))
    if (must_fail("clGetDeviceInfo")) return CL_OUT_OF_RESOURCES;
    return as_intel(what, size, value, bytes) ? 0 : function(d, what, size, value, bytes);
}

/* The backend's first call at every start. */
API cl_int clGetPlatformIDs(cl_uint most, cl_platform_id *list, cl_uint *n);
API cl_int clGetPlatformIDs(cl_uint most, cl_platform_id *list, cl_uint *n)
{
    static cl_int (*function)(cl_uint, cl_platform_id *, cl_uint *);
    if (!function) *(void **)&function = real("clGetPlatformIDs");
    if (!list) read_variable();
    return must_fail("clGetPlatformIDs") ? CL_OUT_OF_RESOURCES : function(most, list, n);
}
