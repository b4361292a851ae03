/* OpenCL's loader with calls that fail: named by WEBER_OPENCL_LIBRARY, it passes each call on to
 * the real one, but for those that OPENCL_FAIL asks to fail: "n": the n-th, "n+": and all behind
 * it.  The variable is read, and calls are counted anew, when platforms are looked for.  What gives
 * something back never fails: it would leak.  What is made and not given back is counted.  A test
 * part. */
#include "backend/opencl/cl.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* How many calls failed since it was last asked, and in `text` the first of them; objects that were
 * made and not given back. */
API int64_t opencl_failed(char text[200]);
API int64_t opencl_left(void);

/* Functions: those that give a status; a status, and an event by their last parameter where it is
 * not NULL; an object, and the status by their last parameter; those that release one; and those
 * that wait. */
#define FUNCTIONS(STATUS, EVENT, OBJECT, RELEASE, WAIT)                                            \
    STATUS(GetPlatformInfo,                                                                        \
           (cl_platform_id p, cl_uint what, size_t room, void *value, size_t *bytes),              \
           (p, what, room, value, bytes))                                                          \
    STATUS(GetDeviceIDs,                                                                           \
           (cl_platform_id p, cl_bitfield type, cl_uint room, cl_device_id *list, cl_uint *n),     \
           (p, type, room, list, n))                                                               \
    STATUS(GetDeviceInfo,                                                                          \
           (cl_device_id d, cl_uint what, size_t room, void *value, size_t *bytes),                \
           (d, what, room, value, bytes))                                                          \
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
           (cl_program p, cl_uint what, size_t room, void *value, size_t *bytes),                  \
           (p, what, room, value, bytes))                                                          \
    STATUS(GetProgramBuildInfo,                                                                    \
           (cl_program p, cl_device_id d, cl_uint what, size_t room, void *value, size_t *bytes),  \
           (p, d, what, room, value, bytes))                                                       \
    OBJECT(cl_kernel, CreateKernel, (cl_program p, const char *name, cl_int *error),               \
           (p, name, error))                                                                       \
    STATUS(GetKernelWorkGroupInfo,                                                                 \
           (cl_kernel k, cl_device_id d, cl_uint what, size_t room, void *value, size_t *bytes),   \
           (k, d, what, room, value, bytes))                                                       \
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
           (cl_event e, cl_uint what, size_t room, void *value, size_t *bytes),                    \
           (e, what, room, value, bytes))                                                          \
    RELEASE(ReleaseContext, (cl_context c), (c))                                                   \
    RELEASE(ReleaseCommandQueue, (cl_command_queue q), (q))                                        \
    RELEASE(ReleaseMemObject, (cl_mem m), (m))                                                     \
    RELEASE(ReleaseProgram, (cl_program p), (p))                                                   \
    RELEASE(ReleaseKernel, (cl_kernel k), (k))                                                     \
    RELEASE(ReleaseEvent, (cl_event e), (e))

static _Atomic int64_t calls, live, failed;
static int64_t fail_at;
static bool fail_all;                   /* from there on */
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
/* It has waited all the same: memory that is given back next is not written to any more. */
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

/* The first call of every start. */
API cl_int clGetPlatformIDs(cl_uint room, cl_platform_id *list, cl_uint *n);
API cl_int clGetPlatformIDs(cl_uint room, cl_platform_id *list, cl_uint *n)
{
    static cl_int (*function)(cl_uint, cl_platform_id *, cl_uint *);
    if (!function) *(void **)&function = real("clGetPlatformIDs");
    if (!list) read_variable();
    return must_fail("clGetPlatformIDs") ? CL_OUT_OF_RESOURCES : function(room, list, n);
}
