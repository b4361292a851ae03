/* The OpenCL backend, from the inside.
 *
 *   cl.h         what is used of OpenCL, declared
 *   driver.c     opening it at run time; its errors as ours; calls that fail when a test asks
 *   device.c     finding devices, opening and closing them
 *   memory.c     memory with a cache and a limit
 *   transfer.c   uploads, downloads, copies
 *   program.c    texts compiled, kept on disk
 *   kernel.c     steps prepared and launched
 *   clblast.c    large matrix products by CLBlast, where it is installed
 *   opencl.c     the backend's table
 *
 * Each device has two queues that run in order.  The compute queue has the kernels and nearly all
 * copies, so that commands take effect in the order of the calls.  The transfer queue has uploads
 * into memory that no command of the compute queue still uses: they run beside it.  To know that,
 * commands of the compute queue are counted, and memory remembers the last one that used it.
 *
 * Variables of the environment:
 *   WEBER_OPENCL_LIBRARY   the driver's file, in place of libOpenCL.so.1
 *   WEBER_OPENCL_DEVICES   which devices there are: "gpu", "1,0", "cpu,0"; in this order
 *   WEBER_MEMORY_LIMIT     bytes that a device may hold: 100M, 1.5GiB, 50%
 *   WEBER_OPENCL_STAGING   1: transfers through pinned memory, 0: never; else as the device is
 *   WEBER_OPENCL_BINARIES  1: compiled kernels are kept on disk, 0: never; else where it pays
 *   WEBER_OPENCL_ATTENTION 1: fused attention on processors too, 0: never; else where it pays
 *   WEBER_OPENCL_FAIL      for tests: the n-th call of the driver fails; "n+": all from there on */
#ifndef WB__OPENCL_H
#define WB__OPENCL_H

#include "backend/gpu/gpu.h"
#include "backend/kernel_cache.h"
#include "backend/opencl/cl.h"

#include <pthread.h>

extern wb__cl_functions wb__cl;
#define cl wb__cl

/* ---- memory ---------------------------------------------------------------------------------- */

/* What the engine has as a handle. */
typedef struct wb__cl_memory {
    cl_mem mem;
    size_t bytes;
    uint64_t serial;            /* no other memory of the process had this number */
    uint64_t used;              /* the last command of the compute queue that uses it */
    struct wb__cl_memory *next; /* in the cache */
} wb__cl_memory;

/* Blocks are rounded up to one of eight sizes an octave and kept, when released, in a queue of
 * their size: the one released first, whose use has most likely ended, is handed out first. */
typedef struct { wb__cl_memory *first, *last; } wb__cl_class;

typedef struct {
    wb__cl_class free[WB__GPU_SIZE_CLASSES];
    int64_t limit, used, peak, cached;      /* bytes */
} wb__cl_cache;

/* Pinned memory that data pass through, in two halves: while one is copied, the other travels. */
enum { WB__CL_HALF = 4 << 20 };
typedef struct {
    pthread_mutex_t lock;
    cl_mem mem;
    unsigned char *at;
    cl_event busy[2];           /* the last transfer of each half */
    int next;
} wb__cl_staging;

/* ---- devices --------------------------------------------------------------------------------- */

enum { WB__CL_MOST_DEVICES = 64 };

/* A driver's platform; its devices share a context, so that they can copy from one another. */
typedef struct {
    cl_platform_id id;
    char name[128];
    pthread_mutex_t lock;
    cl_context context;         /* made when the first of its devices is opened */
    cl_device_id members[WB__CL_MOST_DEVICES];      /* its devices, those that are ours */
    cl_uint n;
    char said[400];             /* what the driver told last */
} wb__cl_platform;

enum { WB__CL_MARKS = 16 };

typedef struct wb__cl_device {
    wb_device base;
    wb__cl_platform *platform;
    cl_device_id id;
    cl_bitfield type;
    char name[128], driver[128];
    wb__gpu_target target;
    int64_t total, most;        /* bytes: of the device, of one buffer */
    bool exact_division, debug_sync, staged, keeps_binaries;

    pthread_mutex_t opening;
    _Atomic bool open;
    _Atomic int kernels;        /* that were prepared and not destroyed */
    cl_command_queue compute, transfer;

    pthread_mutex_t lock;       /* of what follows, and of setting a kernel's arguments */
    uint64_t issued, completed; /* commands of the compute queue: so many, known to be done */
    int waiting, most_waiting;  /* since the last flush, and before the next */
    struct { cl_event event; uint64_t count; } mark[WB__CL_MARKS];
    int n_marks;
    cl_int failed;              /* how a command ended that nobody waited for */
    wb__cl_cache cache;

    wb__cl_staging up, down;

    wb__gpu_programs programs;
} wb__cl_device;

/* ---- driver.c -------------------------------------------------------------------------------- */

/* Opens the driver and fills the table; 0, or an error that says how to get one. */
int wb__cl_load(void);
/* Whether the driver's file is the usual one. */
bool wb__cl_usual_driver(void);
/* An error of the driver's as ours: "opencl:0: clFinish: CL_OUT_OF_RESOURCES (-5): ...", with what
 * was asked, and what the driver said.  d may be NULL. */
int wb__cl_fail(wb__cl_device *d, const char *call, cl_int code, const char *format, ...)
    WB__PRINTF(4, 5);
const char *wb__cl_error_name(cl_int code);
/* A child of fork has none of the driver's threads, and its calls may wait for them for ever: none is
 * made there.  0, or an error that says so; what only gives back asks for wb__cl_is_child. */
bool wb__cl_is_child(void);
int wb__cl_check_fork(void);
/* Where WEBER_OPENCL_FAIL counts: says so if objects of the driver's were not released. */
void wb__cl_tell_left(void);

/* ---- device.c -------------------------------------------------------------------------------- */

int wb__cl_find(void);                          /* lists devices; 0, or an error */
bool wb__cl_in_use(void);                       /* is memory of theirs held, or a kernel? */
void wb__cl_forget(void);                       /* closes and forgets them */
int wb__cl_count(void);
wb__cl_device *wb__cl_at(int ordinal);          /* NULL: there is none */
int wb__cl_open(wb__cl_device *d);              /* context and queues, once */

/* ---- memory.c -------------------------------------------------------------------------------- */

void *wb__cl_allocate(const wb_device *base, size_t bytes);
void wb__cl_release(const wb_device *base, void *memory, size_t bytes);
void wb__cl_trim(const wb_device *base);
int wb__cl_memory_of(const wb_device *base, wb_device_memory *m);

/* ---- transfer.c ------------------------------------------------------------------------------ */

int wb__cl_upload(const wb_device *base, void *to, size_t at, const void *from, size_t bytes);
int wb__cl_download(const wb_device *base, void *to, const void *from, size_t at, size_t bytes);
int wb__cl_copy(const wb_device *base, void *to, size_t to_at, const wb_device *from_device,
                const void *from, size_t from_at, size_t bytes);
int wb__cl_wait(const wb_device *base);

/* To be called with the lock.  _enqueued: a command was put on the compute queue, and `event`,
 * if it is not NULL, is its; _wants_event: whether it should have one. */
bool wb__cl_wants_event(const wb__cl_device *d);
void wb__cl_enqueued(wb__cl_device *d, cl_event event);
void wb__cl_drop_marks(wb__cl_device *d);
void wb__cl_free_staging(wb__cl_device *d, wb__cl_staging *s);

/* ---- program.c ------------------------------------------------------------------------------- */

extern const wb__gpu_compiler wb__cl_compiler;      /* flags: whether the text uses double */

/* ---- kernel.c, clblast.c --------------------------------------------------------------------- */

typedef struct wb__cl_kernel wb__cl_kernel;

/* A product for CLBlast. */
typedef struct {
    wb_dtype dtype;
    int view[3];                            /* buffers of a, b, c */
    bool transposed[2];
    size_t m, n, k, batch, at[3], row[3], step[3];      /* elements */
} wb__cl_product;

int wb__cl_prepare(const wb_device *base, const wb__step *step, wb__kernel **kernel);
void wb__cl_destroy(const wb_device *base, wb__kernel *kernel);
int wb__cl_launch(const wb_device *base, const wb__kernel *kernel, void *const *buffers,
                  const size_t *places, void *workspace, size_t workspace_at,
                  const wb__number *numbers);

/* Whether CLBlast can be used: opens it, once; false with the error set. */
bool wb__cl_blast_works(void);
/* Whether this step is for CLBlast, and as what; else *why. */
bool wb__cl_blast_takes(const wb__cl_device *d, const wb__step *step, wb__cl_product *p,
                        const char **why);
/* With the device's lock: enqueues it. */
int wb__cl_blast_launch(wb__cl_device *d, const wb__cl_product *p, void *const *buffers,
                        const size_t *places);
void wb__cl_blast_stop(void);

#endif
