/* The types, constants and functions of OpenCL 1.2 that this backend uses, so that the backend
 * compiles without OpenCL's headers.  The function table and the table's loader are generated from
 * the list of functions. */
#ifndef WB__CL_H
#define WB__CL_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef cl_uint cl_bool;
typedef cl_ulong cl_bitfield;
typedef intptr_t cl_property;

typedef struct wb__cl_its_platform_id *cl_platform_id;
typedef struct wb__cl_its_device_id *cl_device_id;
typedef struct wb__cl_its_context *cl_context;
typedef struct wb__cl_its_command_queue *cl_command_queue;
typedef struct wb__cl_its_mem *cl_mem;
typedef struct wb__cl_its_program *cl_program;
typedef struct wb__cl_its_kernel *cl_kernel;
typedef struct wb__cl_its_event *cl_event;

typedef void (*cl_context_notify)(const char *message, const void *data, size_t bytes,
                                  void *context);
typedef void (*cl_build_notify)(cl_program program, void *context);

enum {
    CL_FALSE = 0, CL_TRUE = 1,

    CL_DEVICE_TYPE_CPU = 1 << 1, CL_DEVICE_TYPE_GPU = 1 << 2, CL_DEVICE_TYPE_ACCELERATOR = 1 << 3,

    CL_PLATFORM_NAME = 0x0902,
    CL_CONTEXT_PLATFORM = 0x1084,

    CL_DEVICE_TYPE = 0x1000, CL_DEVICE_VENDOR_ID = 0x1001, CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010, CL_DEVICE_MAX_PARAMETER_SIZE = 0x1017,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101B, CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023, CL_DEVICE_ENDIAN_LITTLE = 0x1026,
    CL_DEVICE_AVAILABLE = 0x1027, CL_DEVICE_COMPILER_AVAILABLE = 0x1028, CL_DEVICE_NAME = 0x102B,
    CL_DRIVER_VERSION = 0x102D, CL_DEVICE_VERSION = 0x102F, CL_DEVICE_EXTENSIONS = 0x1030,
    CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032, CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
    CL_DEVICE_SUB_GROUP_SIZES_INTEL = 0x4108,

    CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7,

    CL_MEM_READ_WRITE = 1 << 0, CL_MEM_ALLOC_HOST_PTR = 1 << 4,
    CL_MAP_READ = 1 << 0, CL_MAP_WRITE = 1 << 1,
    CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED = 1 << 1,

    CL_PROGRAM_DEVICES = 0x1163, CL_PROGRAM_BINARY_SIZES = 0x1165, CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183, CL_KERNEL_WORK_GROUP_SIZE = 0x11B0,

    CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,
    CL_COMPLETE = 0
};

/* Errors that can occur, with their codes. */
#define WB__CL_ERRORS(X)                                                                           \
    X(DEVICE_NOT_FOUND, -1) X(DEVICE_NOT_AVAILABLE, -2) X(COMPILER_NOT_AVAILABLE, -3)              \
    X(MEM_OBJECT_ALLOCATION_FAILURE, -4) X(OUT_OF_RESOURCES, -5) X(OUT_OF_HOST_MEMORY, -6)         \
    X(PROFILING_INFO_NOT_AVAILABLE, -7) X(MEM_COPY_OVERLAP, -8) X(BUILD_PROGRAM_FAILURE, -11)      \
    X(MAP_FAILURE, -12) X(MISALIGNED_SUB_BUFFER_OFFSET, -13)                                       \
    X(EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, -14) X(COMPILE_PROGRAM_FAILURE, -15)              \
    X(LINKER_NOT_AVAILABLE, -16) X(LINK_PROGRAM_FAILURE, -17) X(INVALID_VALUE, -30)                \
    X(INVALID_DEVICE_TYPE, -31) X(INVALID_PLATFORM, -32) X(INVALID_DEVICE, -33)                    \
    X(INVALID_CONTEXT, -34) X(INVALID_QUEUE_PROPERTIES, -35) X(INVALID_COMMAND_QUEUE, -36)         \
    X(INVALID_HOST_PTR, -37) X(INVALID_MEM_OBJECT, -38) X(INVALID_BINARY, -42)                     \
    X(INVALID_BUILD_OPTIONS, -43) X(INVALID_PROGRAM, -44) X(INVALID_PROGRAM_EXECUTABLE, -45)       \
    X(INVALID_KERNEL_NAME, -46) X(INVALID_KERNEL_DEFINITION, -47) X(INVALID_KERNEL, -48)           \
    X(INVALID_ARG_INDEX, -49) X(INVALID_ARG_VALUE, -50) X(INVALID_ARG_SIZE, -51)                   \
    X(INVALID_KERNEL_ARGS, -52) X(INVALID_WORK_DIMENSION, -53) X(INVALID_WORK_GROUP_SIZE, -54)     \
    X(INVALID_WORK_ITEM_SIZE, -55) X(INVALID_GLOBAL_OFFSET, -56) X(INVALID_EVENT_WAIT_LIST, -57)   \
    X(INVALID_EVENT, -58) X(INVALID_OPERATION, -59) X(INVALID_BUFFER_SIZE, -61)                    \
    X(INVALID_GLOBAL_WORK_SIZE, -63) X(INVALID_PROPERTY, -64) X(INVALID_COMPILER_OPTIONS, -66)     \
    X(PLATFORM_NOT_FOUND_KHR, -1001)

#define WB__CL_ERROR_ENUM(name, number) CL_##name = number,
enum { WB__CL_ERRORS(WB__CL_ERROR_ENUM) };
#undef WB__CL_ERROR_ENUM

#define WB__CL_INFO cl_uint what, size_t capacity, void *value, size_t *bytes
#define WB__CL_EVENTS cl_uint n, const cl_event *wait, cl_event *event

/* X(type, name, parameters).  A function that creates an object returns a status in its last
 * parameter; a command returns an event in its last parameter if that is not NULL. */
#define WB__CL_FUNCTIONS(X)                                                                        \
    X(cl_int, GetPlatformIDs, (cl_uint capacity, cl_platform_id *list, cl_uint *n))                \
    X(cl_int, GetPlatformInfo, (cl_platform_id p, WB__CL_INFO))                                    \
    X(cl_int, GetDeviceIDs,                                                                        \
      (cl_platform_id p, cl_bitfield type, cl_uint capacity, cl_device_id *list, cl_uint *n))      \
    X(cl_int, GetDeviceInfo, (cl_device_id d, WB__CL_INFO))                                        \
    X(cl_context, CreateContext,                                                                   \
      (const cl_property *properties, cl_uint n, const cl_device_id *devices,                      \
       cl_context_notify notify, void *context, cl_int *error))                                    \
    X(cl_command_queue, CreateCommandQueue,                                                        \
      (cl_context c, cl_device_id d, cl_bitfield properties, cl_int *error))                       \
    X(cl_mem, CreateBuffer,                                                                        \
      (cl_context c, cl_bitfield flags, size_t bytes, void *host, cl_int *error))                  \
    X(cl_program, CreateProgramWithSource,                                                         \
      (cl_context c, cl_uint n, const char **texts, const size_t *lengths, cl_int *error))         \
    X(cl_program, CreateProgramWithBinary,                                                         \
      (cl_context c, cl_uint n, const cl_device_id *devices, const size_t *lengths,                \
       const unsigned char **binaries, cl_int *status, cl_int *error))                             \
    X(cl_int, BuildProgram,                                                                        \
      (cl_program p, cl_uint n, const cl_device_id *devices, const char *options,                  \
       cl_build_notify notify, void *context))                                                     \
    X(cl_int, GetProgramInfo, (cl_program p, WB__CL_INFO))                                         \
    X(cl_int, GetProgramBuildInfo, (cl_program p, cl_device_id d, WB__CL_INFO))                    \
    X(cl_kernel, CreateKernel, (cl_program p, const char *name, cl_int *error))                    \
    X(cl_int, GetKernelWorkGroupInfo, (cl_kernel k, cl_device_id d, WB__CL_INFO))                  \
    X(cl_int, SetKernelArg, (cl_kernel k, cl_uint index, size_t bytes, const void *value))         \
    X(cl_int, EnqueueNDRangeKernel,                                                                \
      (cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset,                        \
       const size_t *global, const size_t *local, WB__CL_EVENTS))                                  \
    X(cl_int, EnqueueReadBuffer,                                                                   \
      (cl_command_queue q, cl_mem m, cl_bool blocking, size_t at, size_t bytes, void *to,          \
       WB__CL_EVENTS))                                                                             \
    X(cl_int, EnqueueWriteBuffer,                                                                  \
      (cl_command_queue q, cl_mem m, cl_bool blocking, size_t at, size_t bytes,                    \
       const void *from, WB__CL_EVENTS))                                                           \
    X(cl_int, EnqueueCopyBuffer,                                                                   \
      (cl_command_queue q, cl_mem from, cl_mem to, size_t from_at, size_t to_at, size_t bytes,     \
       WB__CL_EVENTS))                                                                             \
    X(cl_int, EnqueueMigrateMemObjects,                                                            \
      (cl_command_queue q, cl_uint count, const cl_mem *objects, cl_bitfield flags,                \
       WB__CL_EVENTS))                                                                             \
    X(void *, EnqueueMapBuffer,                                                                    \
      (cl_command_queue q, cl_mem m, cl_bool blocking, cl_bitfield flags, size_t at,               \
       size_t bytes, WB__CL_EVENTS, cl_int *error))                                                \
    X(cl_int, EnqueueUnmapMemObject, (cl_command_queue q, cl_mem m, void *at, WB__CL_EVENTS))      \
    X(cl_int, EnqueueMarkerWithWaitList, (cl_command_queue q, WB__CL_EVENTS))                      \
    X(cl_int, Flush, (cl_command_queue q))                                                         \
    X(cl_int, Finish, (cl_command_queue q))                                                        \
    X(cl_int, WaitForEvents, (cl_uint n, const cl_event *events))                                  \
    X(cl_int, GetEventInfo, (cl_event e, WB__CL_INFO))                                             \
    X(cl_int, ReleaseContext, (cl_context c))                                                      \
    X(cl_int, ReleaseCommandQueue, (cl_command_queue q))                                           \
    X(cl_int, ReleaseMemObject, (cl_mem m))                                                        \
    X(cl_int, ReleaseProgram, (cl_program p))                                                      \
    X(cl_int, ReleaseKernel, (cl_kernel k))                                                        \
    X(cl_int, ReleaseEvent, (cl_event e))

/* The function table: cl.Finish is clFinish. */
#define WB__CL_FIELD(type, name, parameters) type (*name) parameters;
typedef struct { WB__CL_FUNCTIONS(WB__CL_FIELD) } wb__cl_functions;
#undef WB__CL_FIELD

#endif
