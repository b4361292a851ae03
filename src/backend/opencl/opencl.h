/* The OpenCL driver of the GPU runtime, from the inside.
 *
 *   cl.h         what is used of OpenCL, declared
 *   driver.c     opening it at run time; errors
 *   device.c     finding devices, opening and closing them
 *   program.c    texts compiled
 *   opencl.c     memory, transfers, events, launches; the backend's table and the driver's
 *   clblast.c    large matrix products by CLBlast, where it is installed
 *
 * Variables of the environment:
 *   WEBER_OPENCL_LIBRARY   the driver's file, in place of libOpenCL.so.1
 *   WEBER_OPENCL_DEVICES   which devices there are: "gpu", "1,0", "cpu,0"; in this order
 *   WEBER_MEMORY_LIMIT     bytes that a device may hold: 100M, 1.5GiB, 50%
 *   WEBER_OPENCL_STAGING   1: transfers through pinned memory, 0: never; else as the device is
 *   WEBER_OPENCL_BINARIES  1: compiled kernels are kept on disk, 0: never; else where it pays
 *   WEBER_OPENCL_ATTENTION 1: fused attention on processors too, 0: never; else where it pays */
#ifndef WB__OPENCL_H
#define WB__OPENCL_H

#include "backend/gpu/runtime/runtime.h"
#include "backend/opencl/cl.h"

/* A driver's platform; its devices share a context, so that they can copy from one another. */
typedef struct {
    cl_platform_id id;
    char name[96];
    pthread_mutex_t lock;
    cl_context context;         /* made when the first of its devices is opened */
    char said[400];             /* the driver's last words */
} wb__cl_platform;

typedef struct {
    wb__gpu_device gpu;
    wb__cl_platform *platform;
    cl_device_id id;
    cl_bitfield type;
    bool exact_division;
    cl_command_queue queue[WB__GPU_RECORDING];      /* the last is NULL where nothing is staged */
} wb__cl_device;

static inline wb__cl_device *wb__cl_of(wb__gpu_device *d) { return (wb__cl_device *)d; }
static inline cl_mem wb__cl_object(uint64_t at) { return (cl_mem)(uintptr_t)at; }

extern const wb__gpu_driver wb__cl_driver;
extern const wb__gpu_hook wb__cl_blast;

/* ---- driver.c -------------------------------------------------------------------------------- */

extern wb__cl_functions wb__cl;
#define cl wb__cl
/* A call of the driver, noted for messages: its code; and one that makes an object, its code being
 * stored. */
#define CALL(name, ...) (wb__gpu_call = "cl" #name, (int)cl.name(__VA_ARGS__))
#define MAKE(code, name, ...) (wb__gpu_call = "cl" #name, cl.name(__VA_ARGS__, code))

int wb__cl_load(void);
bool wb__cl_usual_driver(void);         /* whether the driver's file is the usual one */
const char *wb__cl_error_name(int code);
int wb__cl_error_kind(int code);
void wb__cl_error_text(wb__gpu_device *d, int code, char *text, size_t room);

/* ---- device.c, program.c: as in wb__gpu_driver ----------------------------------------------- */

int wb__cl_find(wb__gpu_device **list, int *n);
void wb__cl_forget(void);
int wb__cl_open(wb__gpu_device *base);
void wb__cl_close(wb__gpu_device *base);

bool wb__cl_options(wb__gpu_device *base, int flags, char *text, size_t room);
int wb__cl_compile(wb__gpu_device *base, const char *text, const char *options, void **program,
                   void **image, size_t *bytes);
int wb__cl_load_image(wb__gpu_device *base, const void *image, size_t bytes, const char *options,
                      void **program);

/* ---- clblast.c ------------------------------------------------------------------------------- */

bool wb__cl_blast_works(void);          /* opens it, once; false with the error set */
void wb__cl_blast_stop(void);

#endif
