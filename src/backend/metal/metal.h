/* Internal declarations of the Metal driver for the GPU runtime.
 *
 *   objc.h       declarations of the Objective-C runtime, Foundation and Metal
 *   driver.c     opening Metal at run time; errors; autorelease pools; finding devices
 *   program.c    compilation; pipelines in binary archives
 *   metal.c      memory, command buffers, transfers, events, launches; the tables
 *
 * Nothing from Apple is needed to compile the driver: the declarations are ours, and the framework
 * is opened at the first use.
 *
 * Environment variables:
 *
 *   WEBER_METAL_LIBRARY   the file of the framework, instead of Metal.framework
 *   WEBER_METAL_DEVICES   the devices to use, in this order: "1,0"; 0 is the system's default
 *                         device, the others follow in Metal's order
 *   WEBER_METAL_STAGING   1: memory is private to the GPU, and transfers use shared memory; 0:
 *                         never; default: only if the GPU has memory of its own
 *   WEBER_METAL_PATH      the folder of the files MetalPerformanceShaders and
 *                         MetalPerformanceShadersGraph, instead of their frameworks
 *   WEBER_METAL_MPS       0: MPS is not used; 1: also for small products
 *   WEBER_METAL_MPSGRAPH  0: MPSGraph is not used; 1: also for small convolutions
 *   WEBER_MEMORY_LIMIT    bytes that a device may use: 100M, 1.5GiB, 50% */
#ifndef WB__METAL_H
#define WB__METAL_H

#include "backend/gpu/runtime/runtime.h"
#include "backend/metal/objc.h"

/* Codes of errors.  Codes below 100 are those of MTLCommandBufferError, in any domain of
 * NSError. */
enum {
    WB__MTL_NO_OBJECT = 100,    /* a method that creates an object returned nil */
    WB__MTL_NO_MEMORY,
    WB__MTL_NOT_COMPILED,
    WB__MTL_NO_KERNEL,          /* a program has no kernel of this name */
    WB__MTL_NESTING             /* too many autorelease pools inside one another */
};

/* A command queue, and its command buffer that is being encoded.  Metal executes the commands of a
 * queue in the order of the calls of `commit`, one after the other where they use the same buffers:
 * it tracks the use of buffers that newBuffer makes (not that of heaps).  A queue has at most 64
 * command buffers that are not completed; we wait at 32, since MPSGraph may commit further ones. */
enum { WB__MTL_MAX_RUNNING = 32 };
typedef struct {
    wb__mutex lock;             /* guards the fields below; taken after the device's lock */
    id queue, event;            /* event: signalled with increasing values; NULL without staging */
    uint64_t value;             /* the last value that the event will be signalled with */
    id buffer, encoder;     /* buffer: not committed yet, or NULL; encoder: open in it, or NULL */
    bool encodes_copies;        /* the encoder encodes copies, not kernels */
    id running[WB__MTL_MAX_RUNNING];    /* committed and not known to be completed; oldest first */
    int n_running;              /* number of elements of `running` in use */
    int failed;                 /* error of the first command buffer that failed, or 0 */
    char reason[200];           /* description of that error */
} wb__mtl_queue;

typedef struct {
    wb__gpu_device gpu;         /* must be the first field, since wb__mtl_of casts its address */
    id device;                  /* the MTLDevice */
    wb__mtl_queue queue[WB__GPU_RECORDING];     /* without staging, only the first is used */
    wb__mutex copying;          /* guards copy_pipeline; taken after the lock of a queue */
    id copy_pipeline;           /* copies any number of bytes; NULL: not needed yet */
} wb__mtl_device;

static inline wb__mtl_device *wb__mtl_of(wb__gpu_device *d) { return (wb__mtl_device *)d; }
static inline id wb__mtl_object(uint64_t at) { return (id)(uintptr_t)at; }

extern const wb__gpu_driver wb__mtl_driver;

/* ---- driver.c -------------------------------------------------------------------------------- */

int wb__mtl_load(void);
int wb__mtl_find(wb__gpu_device **list, int *n);
void wb__mtl_forget(void);
int wb__mtl_open(wb__gpu_device *base);
void wb__mtl_close(wb__gpu_device *base);
id wb__mtl_class(const char *name);
id wb__mtl_string(const char *text);
/* wb__mtl_enter pushes an autorelease pool, and wb__mtl_leave pops it; calls may be nested. */
int wb__mtl_enter(wb__gpu_device *d);
void wb__mtl_leave(void);

/* Return `code`, after keeping the description of an NSError, which may be NULL, or a reason, as
 * the text that wb__mtl_error_text writes for this code. */
int wb__mtl_failed(int code, id error);
int wb__mtl_failed_because(int code, const char *reason);
const char *wb__mtl_error_name(int code);
int wb__mtl_error_kind(int code);
void wb__mtl_error_text(wb__gpu_device *d, int code, char *text, size_t capacity);

/* Calls a method that creates an object, and records its name in objc.h for messages. */
#define MAKE(name, ...) (wb__gpu_call = #name, mtl_##name(__VA_ARGS__))

/* ---- program.c ------------------------------------------------------------------------------- */

bool wb__mtl_options(wb__gpu_device *base, int flags, char *text, size_t capacity);
int wb__mtl_compile(wb__gpu_device *base, const char *text, const char *options, void **program,
                    void **image, size_t *bytes);
int wb__mtl_load_image(wb__gpu_device *base, const void *image, size_t bytes, const char *options,
                       void **program);
void wb__mtl_unload(wb__gpu_device *base, void *program);
/* Makes the pipeline of a kernel, which the caller releases. */
int wb__mtl_pipeline(void *program, const char *entry, id *pipeline);

/* Makes the pipeline of the only kernel of a text. */
int wb__mtl_pipeline_of(wb__mtl_device *d, const char *text, id *pipeline);

/* ---- metal.c: commands that a library encodes ------------------------------------------------ */

/* wb__mtl_encode_begin takes the queue's lock, ends the open encoder, and sets `buffer` to the
 * queue's command buffer, which is not committed.  After a code other than 0 the lock is not held.
 * wb__mtl_encode_end releases the lock; `now` is the command buffer to continue with, since a
 * library may have committed the one that it got.  If `encoded` is true, *event receives an event
 * after the commands, unless `event` is NULL. */
typedef struct {
    wb__mtl_queue *queue;
    id buffer;                          /* the command buffer */
    void *point, **event;               /* for wb__mtl_encode_end: new event, and where it goes */
} wb__mtl_encoding;
int wb__mtl_encode_begin(wb__gpu_device *d, wb__gpu_queue q, void **event, wb__mtl_encoding *e);
void wb__mtl_encode_end(wb__gpu_device *d, const wb__mtl_encoding *e, id now, bool encoded);

/* ---- mps.c, mpsgraph.c ----------------------------------------------------------------------- */

extern const wb__gpu_hook wb__mtl_mps, wb__mtl_mpsgraph;
bool wb__mtl_mps_works(void);           /* false: the error is set */
bool wb__mtl_mpsgraph_works(void);

#endif
