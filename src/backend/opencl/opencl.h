/* Internal declarations of the OpenCL driver for the GPU runtime.
 *
 *   cl.h         declarations of the OpenCL API
 *   driver.c     loading the OpenCL library at run time; errors
 *   device.c     finding devices, opening and closing them
 *   program.c    compilation
 *   opencl.c     memory, transfers, events, launches; the tables of backend and driver
 *   clblast.c    large matrix products by CLBlast, if it is installed
 *
 * Environment variables:
 *
 *   WEBER_OPENCL_LIBRARY     the driver's file, instead of libOpenCL.so.1
 *   WEBER_OPENCL_DEVICES     the devices to use, in this order: "gpu", "1,0", "cpu,0"
 *   WEBER_MEMORY_LIMIT       bytes that a device may use: 100M, 1.5GiB, 50%
 *   WEBER_OPENCL_STAGING     1: transfers use pinned memory; 0: never; default: not if the
 *                            device shares the host's memory
 *   WEBER_OPENCL_BINARIES    1: compiled kernels are kept on disk; 0: never; default: not with PoCL
 *   WEBER_OPENCL_ATTENTION   1: fused attention also on CPUs; 0: never; default: not on CPUs
 *   WEBER_OPENCL_PRODUCTS    the same for small products in fused kernels
 *   WEBER_OPENCL_FRAGMENTS   0: f16 and bf16 are not multiplied by Intel's matrix units
 *   WEBER_OPENCL_CLBLAST     see clblast.c */
#ifndef WB__OPENCL_H
#define WB__OPENCL_H

#include "backend/gpu/runtime/runtime.h"
#include "backend/opencl/cl.h"

/* A driver's platform.  Its devices share a context, so that memory can be copied between them. */
typedef struct {
    cl_platform_id id;
    char name[96];
    wb__mutex lock;
    cl_context context;         /* created when the first device of the platform is opened */
    char message[400];          /* the driver's latest message */
} wb__cl_platform;

typedef struct {
    wb__gpu_device gpu;
    wb__cl_platform *platform;
    cl_device_id id;
    cl_bitfield type;
    bool exact_division;                /* division and square root are rounded correctly */
    bool declares;      /* programs declare the functions of OpenCL C themselves (program.c) */
    /* queue[WB__GPU_DOWN] is NULL if transfers are not staged */
    cl_command_queue queue[WB__GPU_RECORDING];
} wb__cl_device;

static inline wb__cl_device *wb__cl_of(wb__gpu_device *d) { return (wb__cl_device *)d; }
static inline cl_mem wb__cl_object(uint64_t at) { return (cl_mem)(uintptr_t)at; }

extern const wb__gpu_driver wb__cl_driver;
extern const wb__gpu_hook wb__cl_blast;

/* ---- driver.c -------------------------------------------------------------------------------- */

extern wb__cl_functions wb__cl;
#define cl wb__cl
/* CALL calls an OpenCL function and returns its error code.  MAKE calls an OpenCL function that
 * creates an object, stores the error code in *code and returns the object.  Both set wb__gpu_call
 * to the function's name, for error messages. */
#define CALL(name, ...) (wb__gpu_call = "cl" #name, (int)cl.name(__VA_ARGS__))
#define MAKE(code, name, ...) (wb__gpu_call = "cl" #name, cl.name(__VA_ARGS__, code))

int wb__cl_load(void);
bool wb__cl_usual_driver(void);         /* whether the driver's file is the default */
const char *wb__cl_error_name(int code);
int wb__cl_error_kind(int code);
void wb__cl_error_text(wb__gpu_device *d, int code, char *text, size_t capacity);

/* ---- device.c, program.c: functions of wb__gpu_driver ---------------------------------------- */

int wb__cl_find(wb__gpu_device **list, int *n);
void wb__cl_forget(void);
int wb__cl_open(wb__gpu_device *base);
void wb__cl_close(wb__gpu_device *base);

bool wb__cl_options(wb__gpu_device *base, int flags, char *text, size_t capacity);
int wb__cl_compile(wb__gpu_device *base, const char *text, const char *options, void **program,
                   void **image, size_t *bytes);
int wb__cl_load_image(wb__gpu_device *base, const void *image, size_t bytes, const char *options,
                      void **program);

/* ---- clblast.c ------------------------------------------------------------------------------- */

bool wb__cl_blast_works(void);          /* opens CLBlast once; false with the error set */
void wb__cl_blast_stop(void);

#endif
