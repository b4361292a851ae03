/* A replacement of OpenCL's loader, named by WEBER_OPENCL_LIBRARY, whose calls can fail.  It
 * forwards each call to the real loader, except the calls that OPENCL_FAIL makes fail: "n": the
 * n-th; "n+": the n-th and all later ones.  clGetPlatformIDs reads the variable and restarts the
 * count.  Functions that release an object never fail: the object would leak.  Objects that are
 * created and not released are counted.
 *
 * It takes the freedom that OpenCL 1 leaves to drivers.  A blocking write has copied the host's
 * memory when it returns, but the data are in the buffer only later: at the latest when the host
 * waits for its queue (clFinish, a blocking read or map, or an event of that queue), or when a
 * command of another queue waits for an event of it.  A query never finds an event complete.  A
 * message comes without the caller's context.
 *
 * OPENCL_INTEL, as in "16 cl_intel_subgroups ...", presents each device as a GPU of Intel, which
 * has these extensions, and whose smallest sub-group has so many items. */
#include "backend/opencl/cl.h"

#include <dlfcn.h>
#include <pthread.h>
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
/* The function that a call of clFinish in this file reaches. */
API void *opencl_finish(void);

/* The functions, by kind:
 *   STATUS    returns a status
 *   EVENT     returns a status, and an event through its last parameter if that is not NULL
 *   OBJECT    returns an object, and a status through its last parameter
 *   RELEASE   releases an object
 * Those that differ from the real ones are below. */
#define FUNCTIONS(STATUS, EVENT, OBJECT, RELEASE)                                                  \
    STATUS(GetPlatformInfo,                                                                        \
           (cl_platform_id p, cl_uint what, size_t size, void *value, size_t *bytes),              \
           (p, what, size, value, bytes))                                                          \
    STATUS(GetDeviceIDs,                                                                           \
           (cl_platform_id p, cl_bitfield type, cl_uint most, cl_device_id *list, cl_uint *n),     \
           (p, type, most, list, n))                                                               \
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
    EVENT(EnqueueCopyBuffer,                                                                       \
          (cl_command_queue q, cl_mem from, cl_mem to, size_t from_at, size_t to_at,               \
           size_t bytes, cl_uint n, const cl_event *wait, cl_event *event),                        \
          (q, from, to, from_at, to_at, bytes, n, wait, event))                                    \
    EVENT(EnqueueMigrateMemObjects,                                                                \
          (cl_command_queue q, cl_uint count, const cl_mem *objects, cl_bitfield flags,            \
           cl_uint n, const cl_event *wait, cl_event *event),                                      \
          (q, count, objects, flags, n, wait, event))                                              \
    RELEASE(EnqueueUnmapMemObject,                                                                 \
            (cl_command_queue q, cl_mem m, void *at, cl_uint n, const cl_event *wait,              \
             cl_event *event),                                                                     \
            (q, m, at, n, wait, event))                                                            \
    EVENT(EnqueueMarkerWithWaitList,                                                               \
          (cl_command_queue q, cl_uint n, const cl_event *wait, cl_event *event),                  \
          (q, n, wait, event))                                                                     \
    STATUS(Flush, (cl_command_queue q), (q))                                                       \
    RELEASE(ReleaseContext, (cl_context c), (c))                                                   \
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

/* ---- blocking writes ------------------------------------------------------------------------- */

/* A write whose data are not in the buffer yet: it waits for the event `gate`. */
typedef struct late_write {
    struct late_write *next;
    cl_command_queue queue;
    cl_event gate;
} late_write;
static late_write *late_writes;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, parameters)                                                               \
    static type(*name) parameters;                                                                 \
    if (!name) *(void **)&name = real("cl" #name)

/* Lets the late writes of a queue end. */
static void end_writes(cl_command_queue q)
{
    REAL(cl_int, SetUserEventStatus, (cl_event, cl_int));
    REAL(cl_int, ReleaseEvent, (cl_event));
    pthread_mutex_lock(&writing);
    for (late_write **at = &late_writes; *at;) {
        late_write *w = *at;
        if (w->queue != q) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        SetUserEventStatus(w->gate, CL_COMPLETE);
        ReleaseEvent(w->gate);
        free(w);
    }
    pthread_mutex_unlock(&writing);
}

/* Lets the late writes end that are before these events. */
static void end_writes_behind(cl_uint n, const cl_event *events)
{
    enum { CL_EVENT_COMMAND_QUEUE = 0x11D0 };
    REAL(cl_int, GetEventInfo, (cl_event, cl_uint, size_t, void *, size_t *));
    for (cl_uint i = 0; i < n; i++) {
        cl_command_queue q = NULL;
        GetEventInfo(events[i], CL_EVENT_COMMAND_QUEUE, sizeof q, &q, NULL);
        end_writes(q);
    }
}

static void forget_copy(cl_event e, cl_int status, void *copy)
{
    (void)e, (void)status;
    free(copy);
}

static late_write *new_gate(cl_command_queue q)
{
    enum { CL_QUEUE_CONTEXT = 0x1090 };
    REAL(cl_int, GetCommandQueueInfo, (cl_command_queue, cl_uint, size_t, void *, size_t *));
    REAL(cl_event, CreateUserEvent, (cl_context, cl_int *));
    cl_context context = NULL;
    cl_int code = 0;
    late_write *w = calloc(1, sizeof *w);
    if (!w || GetCommandQueueInfo(q, CL_QUEUE_CONTEXT, sizeof context, &context, NULL)) abort();
    w->queue = q;
    w->gate = CreateUserEvent(context, &code);
    if (code) abort();
    return w;
}

static cl_int write_late(cl_command_queue q, cl_mem m, size_t at, size_t bytes, const void *from,
                         cl_event *event)
{
    REAL(cl_int, EnqueueWriteBuffer, (cl_command_queue, cl_mem, cl_bool, size_t, size_t,
                                      const void *, cl_uint, const cl_event *, cl_event *));
    REAL(cl_int, SetEventCallback,
         (cl_event, cl_int, void (*)(cl_event, cl_int, void *), void *));
    REAL(cl_int, ReleaseEvent, (cl_event));
    cl_event written = NULL;
    void *copy = malloc(bytes);
    if (!copy) abort();
    memcpy(copy, from, bytes);
    pthread_mutex_lock(&writing);
    late_write *w = new_gate(q);
    const cl_int code =
        EnqueueWriteBuffer(q, m, CL_FALSE, at, bytes, copy, 1, &w->gate, &written);
    w->next = late_writes;
    late_writes = w;
    pthread_mutex_unlock(&writing);
    if (code || SetEventCallback(written, CL_COMPLETE, forget_copy, copy)) abort();
    if (event) *event = written;
    else ReleaseEvent(written);
    return 0;
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
#define EVENT(name, parameters, arguments)                                                         \
    BEGIN(cl_int, name, parameters)                                                                \
    end_writes_behind(n, wait);                                                                    \
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
FUNCTIONS(STATUS, EVENT, OBJECT, RELEASE)

/* ---- functions that differ ------------------------------------------------------------------- */

BEGIN(cl_int, EnqueueWriteBuffer,
      (cl_command_queue q, cl_mem m, cl_bool blocking, size_t at, size_t bytes, const void *from,
       cl_uint n, const cl_event *wait, cl_event *event))
    end_writes_behind(n, wait);
    if (must_fail("clEnqueueWriteBuffer")) return CL_OUT_OF_RESOURCES;
    const cl_int code = blocking && !n ? write_late(q, m, at, bytes, from, event)
                                       : function(q, m, blocking, at, bytes, from, n, wait, event);
    if (!code && event) live++;
    return code;
}

BEGIN(cl_int, EnqueueReadBuffer,
      (cl_command_queue q, cl_mem m, cl_bool blocking, size_t at, size_t bytes, void *to,
       cl_uint n, const cl_event *wait, cl_event *event))
    end_writes_behind(n, wait);
    if (must_fail("clEnqueueReadBuffer")) return CL_OUT_OF_RESOURCES;
    if (blocking) end_writes(q);
    const cl_int code = function(q, m, blocking, at, bytes, to, n, wait, event);
    if (!code && event) live++;
    return code;
}

BEGIN(void *, EnqueueMapBuffer,
      (cl_command_queue q, cl_mem m, cl_bool blocking, cl_bitfield flags, size_t at, size_t bytes,
       cl_uint n, const cl_event *wait, cl_event *event, cl_int *error))
    end_writes_behind(n, wait);
    *error = CL_OUT_OF_RESOURCES;
    if (must_fail("clEnqueueMapBuffer")) return NULL;
    if (blocking) end_writes(q);
    void *mapped = function(q, m, blocking, flags, at, bytes, n, wait, event, error);
    if (mapped) live++;
    return mapped;
}

/* A wait that fails has waited all the same: the caller may release memory next, which no command
 * may write to any more. */
BEGIN(cl_int, Finish, (cl_command_queue q))
    end_writes(q);
    const cl_int code = function(q);
    return must_fail("clFinish") ? CL_OUT_OF_RESOURCES : code;
}

void *opencl_finish(void) { return (void *)(uintptr_t)clFinish; }

BEGIN(cl_int, WaitForEvents, (cl_uint n, const cl_event *events))
    end_writes_behind(n, events);
    const cl_int code = function(n, events);
    return must_fail("clWaitForEvents") ? CL_OUT_OF_RESOURCES : code;
}

BEGIN(cl_int, GetEventInfo, (cl_event e, cl_uint what, size_t size, void *value, size_t *bytes))
    enum { CL_SUBMITTED = 2 };
    if (must_fail("clGetEventInfo")) return CL_OUT_OF_RESOURCES;
    const cl_int code = function(e, what, size, value, bytes);
    cl_int *status = what == CL_EVENT_COMMAND_EXECUTION_STATUS ? value : NULL;
    if (!code && status && *status == CL_COMPLETE) *status = CL_SUBMITTED;
    return code;
}

BEGIN(cl_int, ReleaseCommandQueue, (cl_command_queue q))
    end_writes(q);
    live--;
    return function(q);
}

BEGIN(cl_context, CreateContext,
      (const cl_property *properties, cl_uint n, const cl_device_id *devices,
       cl_context_notify notify, void *context, cl_int *error))
    *error = CL_OUT_OF_RESOURCES;
    if (must_fail("clCreateContext")) return NULL;
    if (notify) notify("a message for nobody", NULL, 0, NULL);
    cl_context object = function(properties, n, devices, notify, context, error);
    if (object) live++;
    return object;
}

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
