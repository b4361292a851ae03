/* Declarations that the files of the driver's double share.  See vgpu.h. */
#ifndef VGPU_INSIDE_H
#define VGPU_INSIDE_H

#include "driver.h"
#include "vgpu.h"

#include <stdarg.h>

enum { VGPU_MOST_DEVICES = 8, VGPU_MOST_ARGUMENTS = 4096, VGPU_ALIGNMENT = 256 };

/* Defines a function of the driver.  It fails if VGPU_FAIL selects it, is counted, holds the
 * double's lock while it runs, and a result that indicates a mistake counts as a wrong use.
 *   API(cuCtxSetCurrent, (CUcontext c), (c)) { ... return CUDA_SUCCESS; } */
#define API(name, parameters, arguments)                                                         \
    static CUresult name##_inside parameters;                                                    \
    VGPU_API CUresult name parameters;                                                           \
    VGPU_API CUresult name parameters                                                            \
    {                                                                                            \
        static vgpu_counter counter = {#name, 0, NULL};                                          \
        if (vgpu_fails(#name)) return (CUresult)VGPU_FAILURE;                                    \
        vgpu_enter(&counter);                                                                    \
        return vgpu_leave(&counter, name##_inside arguments);                                    \
    }                                                                                            \
    static CUresult name##_inside parameters

enum { VGPU_FAILURE = 701 };            /* CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: for VGPU_FAIL */

typedef struct vgpu_counter {
    const char *name;
    int64_t calls;                      /* 0: not in the list yet */
    struct vgpu_counter *next;
} vgpu_counter;

VGPU_API void vgpu_enter(vgpu_counter *c);
VGPU_API CUresult vgpu_leave(vgpu_counter *c, CUresult result);
int64_t vgpu_entered(void);
/* Runs commands if the program has called nothing since the last call of this: devices go on while
 * their host waits for something else. */
VGPU_API void vgpu_go_on(void);
/* Counts a call; the lock must be held. */
VGPU_API void vgpu_count(vgpu_counter *c);
/* The lock of all doubles, which a thread may hold several times. */
VGPU_API void vgpu_hold(void);
VGPU_API void vgpu_let_go(void);
/* Sleeps without the lock, which this thread holds once. */
void vgpu_nap(void);
/* How many calls VGPU_FAIL made fail; the lock must be held. */
int64_t vgpu_all_failed(void);
/* VGPU_FAIL counts calls from here on. */
VGPU_API void vgpu_fail_from_here(void);

/* Defines c as the current context.  Returns an error from the calling function if there is none or
 * a fault occurred in it. */
#define CONTEXT(c)                                                                               \
    CUcontext c = vgpu_current();                                                                \
    if (!c) return CUDA_ERROR_INVALID_CONTEXT;                                                   \
    if (c->fault) return c->fault
#define TRY(call)                                                                                \
    do {                                                                                         \
        const CUresult tried = (call);                                                           \
        if (tried) return tried;                                                                 \
    } while (0)

/* ---- handles and counts ---------------------------------------------------------------------- */

typedef enum {
    VGPU_STREAM, VGPU_EVENT, VGPU_MODULE, VGPU_FUNCTION, VGPU_POOL, VGPU_GRAPH, VGPU_EXEC,
    VGPU_KINDS
} vgpu_kind;

/* The head of every object that has a handle.  Objects are never freed and handles never reused, so
 * that the use of a destroyed object is found. */
typedef struct vgpu_object {
    vgpu_kind kind;
    bool dead;
    CUcontext context;
    struct vgpu_object *next;
} vgpu_object;

void *vgpu_new(vgpu_kind kind, size_t bytes, CUcontext context);
void vgpu_end(void *object);
/* True if the handle is of a living object of that kind. */
bool vgpu_is(const void *handle, vgpu_kind kind);
/* Calls visit for each living object of this kind and context. */
void vgpu_each(CUcontext context, vgpu_kind kind, void (*visit)(void *object));

/* Records that this address is a handle; and whether it was ever recorded. */
VGPU_API void vgpu_remember(const void *handle);
VGPU_API bool vgpu_known(const void *handle);

VGPU_API const char *vgpu_env(const char *name, const char *otherwise);
VGPU_API long long vgpu_env_number(const char *name, long long otherwise);
/* Whether VGPU_DRY is set. */
VGPU_API bool vgpu_dry(void);
/* For the report of a dry process: note the largest.  chain: nodes of the graph's longest chain. */
void vgpu_note_nodes(int n, int chain);
void vgpu_note_memory(size_t bytes);
VGPU_API void *vgpu_zeroed(size_t bytes);

/* ---- devices and contexts -------------------------------------------------------------------- */

struct CUctx_st {
    int device;
    int retained;                       /* 0: not alive */
    CUresult fault;                     /* the result of every call from now on; 0: no fault */
    bool peers[VGPU_MOST_DEVICES];      /* devices whose memory it can access */
};

extern struct CUctx_st vgpu_contexts[VGPU_MOST_DEVICES];
int vgpu_devices(void);
/* The most bytes of shared memory of a block, if its kernel asks for them. */
int vgpu_most_shared(void);
CUcontext vgpu_current(void);
bool vgpu_started(void);
/* Records a kernel's fault, which makes the context unusable. */
void vgpu_fault(CUcontext c, CUresult fault, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- memory ---------------------------------------------------------------------------------- */

/* Allocated memory.  It is accessible from the execution of the allocation in its stream to the
 * execution of the release in its stream. */
typedef struct {
    CUdeviceptr at;
    size_t bytes, mapped;
    int device;
    CUmemoryPool pool;                  /* NULL: by cuMemAlloc */
    bool accessible;                    /* the allocation is executed */
    bool freed;                         /* the release is called, but may not be executed yet */
} vgpu_block;

struct CUmemPoolHandle_st {
    vgpu_object object;
    int device;
    size_t used, reserved;
    uint64_t threshold;
    bool access[VGPU_MOST_DEVICES];
};

typedef struct vgpu_host_block {
    CUcontext context;
    char *at;
    size_t bytes;
    struct vgpu_host_block *next;
} vgpu_host_block;

/* Allocates memory of a device, which a call may use at once; and frees it. */
VGPU_API CUresult vgpu_take(int device, size_t bytes, CUdeviceptr *at);
VGPU_API void vgpu_give(CUdeviceptr at);
/* The bytes of a device that vgpu_take has allocated, each block rounded up. */
VGPU_API size_t vgpu_taken(int device);
vgpu_block *vgpu_block_of(CUdeviceptr at);
/* True if these bytes are within a block that no call has freed. */
bool vgpu_holds(CUdeviceptr at, size_t bytes);
/* True if kernels of the context can access the address. */
bool vgpu_reaches(CUcontext c, CUdeviceptr at);
bool vgpu_pinned(const void *at, size_t bytes);
void vgpu_memory_books(vgpu_books *b);
void vgpu_free_context_memory(CUcontext c);
void vgpu_trim_pools(int device);

/* ---- streams --------------------------------------------------------------------------------- */

/* A unit of work of a stream or of a graph, such as a launch or a copy. */
typedef struct vgpu_work {
    int references;
    const char *name;
    CUcontext context;
    CUresult (*run)(struct vgpu_work *w);
    void (*drop)(struct vgpu_work *w);  /* frees what the payload owns; NULL: nothing */
    size_t bytes;
    _Alignas(16) unsigned char payload[];
} vgpu_work;

VGPU_API vgpu_work *vgpu_work_new(CUcontext c, const char *name, CUresult (*run)(vgpu_work *w),
                                  const void *payload, size_t bytes);
vgpu_work *vgpu_work_keep(vgpu_work *w);
VGPU_API void vgpu_work_drop(vgpu_work *w);
/* Runs it.  A fault is recorded in its context.  False: it is not complete, and runs again. */
bool vgpu_work_run(vgpu_work *w);

/* A point in a stream, which is done when all commands before it are. */
typedef struct vgpu_ticket {
    int references;
    bool done;
    struct CUstream_st *stream;
} vgpu_ticket;

typedef struct vgpu_command {
    vgpu_work *work;                    /* one of work, wait and mark is set */
    vgpu_ticket *wait, *mark;
    struct vgpu_command *next;
} vgpu_command;

/* Nodes of a graph, by index. */
typedef struct { int n, *node; } vgpu_nodes;

struct vgpu_capture;
struct CUstream_st {
    vgpu_object object;
    bool ended;                         /* destroyed: removed when its commands are done */
    int64_t n;
    int64_t works;                      /* kernels, copies and graphs that were ever put on it */
    int64_t operation;                  /* the last operation of NCCL on it, or that it waits for */
    double clock;                       /* microseconds that vgpu_spend has counted */
    vgpu_command *first, **last;
    struct vgpu_capture *capture;
    vgpu_nodes tips;                    /* of its capture: what the next command waits for */
    struct CUstream_st *next;
};

struct CUevent_st {
    vgpu_object object;
    vgpu_ticket *ticket;                /* of the last record; NULL: none, or in a capture */
    int64_t operation;                  /* that of the stream at the last record */
    bool timed;                         /* created for cuEventElapsedTime */
    double clock;                       /* that of the stream at the last record */
    uint64_t capture;                   /* the number of the capture of the last record, or 0 */
    vgpu_nodes tips;                    /* what waits for the event waits for these */
};

/* An error unless the handle is a stream that the program created (not a context's default stream);
 * `same`: and belongs to the current context. */
CUresult vgpu_stream(CUstream s, bool same);
/* Whether the last operation of NCCL is on another stream, and s has not waited for it. */
bool vgpu_goes_on_beside(CUstream s);
/* The index of the next one of n streams that could run now, by VGPU_SCHEDULE. */
VGPU_API int vgpu_pick(int n);
/* Appends work to the stream, or to its capture, and takes over the caller's reference. */
CUresult vgpu_put(CUstream s, vgpu_work *w);
CUresult vgpu_wait_stream(CUstream s);
CUresult vgpu_wait_context(CUcontext c);
/* Runs all queued commands of all contexts. */
void vgpu_wait_all(void);
void vgpu_put_wait(CUstream s, vgpu_ticket *t);
vgpu_ticket *vgpu_put_mark(CUstream s);         /* a reference for the caller */
vgpu_ticket *vgpu_ticket_keep(vgpu_ticket *t);
void vgpu_ticket_drop(vgpu_ticket *t);
int64_t vgpu_recorded(void);
void vgpu_end_streams(CUcontext c);

/* ---- graphs and capture ---------------------------------------------------------------------- */

/* Appends work to the stream's capture. */
CUresult vgpu_capture_put(CUstream s, vgpu_work *w);
/* For calls that are not permitted on a captured stream: returns an error and invalidates the
 * capture if the stream is captured. */
CUresult vgpu_not_captured(CUstream s);
/* For calls without a stream: an error if the mode of a capture does not permit them. */
CUresult vgpu_unsafe(void);
#define SAFE_ONLY TRY(vgpu_unsafe())
void vgpu_capture_leave(CUstream s);
/* An event in a capture: records it on a captured stream; and makes a stream wait for it, which
 * then takes part in the capture. */
CUresult vgpu_capture_record(CUevent e, CUstream s);
CUresult vgpu_capture_wait(CUstream s, CUevent e);
/* All streams, the newest first. */
CUstream vgpu_streams(void);

/* ---- kernels --------------------------------------------------------------------------------- */

/* A kernel as compiled by nvrtc.c: see shim.h. */
typedef struct {
    void (*call)(void **arguments);
    int n;
    const unsigned *sizes;
    const unsigned char *pointers;
} vgpu_kernel;

typedef struct {
    struct { unsigned x, y, z; } item, group, items, groups;
    void (*barrier)(int line);
    void (*fence)(void);
    unsigned (*ticket)(unsigned *counter, unsigned most);   /* atomicInc */
    char *launch_local;                         /* the shared memory that the launch asked for */
} vgpu_position;

typedef struct {
    const char *name;
    const vgpu_kernel *kernel;
    vgpu_position *here;
    char *shared, *shared_end;
    unsigned groups[3], items[3];
    unsigned launch_local;              /* bytes of shared memory beside the kernel's arrays */
    void **arguments;
} vgpu_grid;

/* In the middle of a command of a graph: may run another one that is ready. */
void vgpu_meanwhile(void);
/* Runs a kernel; false: not all items of a group reach the same barriers. */
VGPU_API bool vgpu_run_grid(const vgpu_grid *g);
/* Runs a function and catches its memory faults; false: it accessed the invalid address
 * vgpu_fault_address. */
VGPU_API bool vgpu_guarded(CUresult (*run)(vgpu_work *w), vgpu_work *w, CUresult *result);
extern VGPU_API void *vgpu_fault_address;
/* Loads a shared object that the doubles' compiler has made; NULL: it does not load. */
VGPU_API void *vgpu_open_code(const void *code, size_t bytes);

/* ---- the image of a module: written by nvrtc.c, read by module.c ----------------------------- */

typedef struct {
    char magic[8];                      /* "VGPUBIN", "VGPUPTX" */
    uint32_t toolkit;                   /* the version of CUDA that compiled it: 13 */
    uint32_t arch;                      /* the compute capability: 90 */
    uint32_t bytes;                     /* of the shared object that follows */
    uint64_t hash;                      /* of the shared object */
    char flags[48];                     /* compiler flags that depend on this machine */
} vgpu_image;

uint64_t vgpu_hash(const void *data, size_t bytes);
const char *vgpu_machine_flags(void);

#endif
