/* What the files of the driver's double share.  A test part: see vgpu.h. */
#ifndef VGPU_INSIDE_H
#define VGPU_INSIDE_H

#include "driver.h"
#include "vgpu.h"

#include <stdarg.h>

enum { VGPU_MOST_DEVICES = 8, VGPU_MOST_ARGUMENTS = 4096, VGPU_ALIGNMENT = 256 };

/* A function of the driver: made to fail where a test asks (vgpu_fails), counted, alone in the
 * double while it runs; a result that tells of a mistake goes into the books.
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

enum { VGPU_FAILURE = 701 };            /* CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES */

typedef struct vgpu_counter {
    const char *name;
    int64_t calls;                      /* 0: not in the list yet */
    struct vgpu_counter *next;
} vgpu_counter;

void vgpu_enter(vgpu_counter *c);
CUresult vgpu_leave(vgpu_counter *c, CUresult result);
/* For counting alone, where the lock is held. */
void vgpu_count(vgpu_counter *c);

/* The context that a call is for; returns from the function where there is none, or a fault was
 * met in it. */
#define CONTEXT(c)                                                                               \
    CUcontext c = vgpu_current();                                                                \
    if (!c) return CUDA_ERROR_INVALID_CONTEXT;                                                   \
    if (c->fault) return c->fault
#define TRY(call)                                                                                \
    do {                                                                                         \
        const CUresult tried = (call);                                                           \
        if (tried) return tried;                                                                 \
    } while (0)

/* ---- books ----------------------------------------------------------------------------------- */

typedef enum {
    VGPU_STREAM, VGPU_EVENT, VGPU_MODULE, VGPU_FUNCTION, VGPU_POOL, VGPU_GRAPH, VGPU_EXEC,
    VGPU_KINDS
} vgpu_kind;

/* The beginning of whatever a handle means.  Handles are never used again, so that one that was
 * given back is known. */
typedef struct vgpu_object {
    vgpu_kind kind;
    bool dead;
    CUcontext context;
    struct vgpu_object *next;
} vgpu_object;

void *vgpu_new(vgpu_kind kind, size_t bytes, CUcontext context);
void vgpu_end(void *object);
/* Whether a handle is alive and of that kind. */
bool vgpu_is(const void *handle, vgpu_kind kind);
/* Gives back all that belongs to a context; its kinds in the order of vgpu_kind. */
void vgpu_each(CUcontext context, vgpu_kind kind, void (*visit)(void *object));

const char *vgpu_env(const char *name, const char *otherwise);
long long vgpu_env_number(const char *name, long long otherwise);
void *vgpu_zeroed(size_t bytes);

/* ---- devices and contexts -------------------------------------------------------------------- */

struct CUctx_st {
    int device;
    int retained;                       /* 0: not alive */
    CUresult fault;                     /* what every call answers from now on; 0 */
    bool peers[VGPU_MOST_DEVICES];      /* whose memory it may reach */
};

extern struct CUctx_st vgpu_contexts[VGPU_MOST_DEVICES];
int vgpu_devices(void);
CUcontext vgpu_current(void);
bool vgpu_started(void);
/* A fault of a kernel: sticks to the context. */
void vgpu_fault(CUcontext c, CUresult fault, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- memory ---------------------------------------------------------------------------------- */

/* Allocated memory.  It is reachable from the moment when the stream that it was asked on comes to
 * the allocation, until the one that it was given back on comes to that. */
typedef struct {
    CUdeviceptr at;
    size_t bytes, mapped;
    int device;
    CUmemoryPool pool;                  /* NULL: by cuMemAlloc */
    bool there, freed; /* reached; given back by a call, perhaps not yet executed */
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

vgpu_block *vgpu_block_of(CUdeviceptr at);
/* Whether so many bytes from there are one block's, as a call sees it. */
bool vgpu_holds(CUdeviceptr at, size_t bytes);
/* Whether a kernel of that context may reach the address. */
bool vgpu_reaches(CUcontext c, CUdeviceptr at);
bool vgpu_pinned(const void *at, size_t bytes);
void vgpu_memory_books(vgpu_books *b);
void vgpu_free_context_memory(CUcontext c);
void vgpu_trim_pools(int device);

/* ---- streams --------------------------------------------------------------------------------- */

/* Something to be done in order: a launch, a copy; also in a graph.  It never changes. */
typedef struct vgpu_work {
    int references;
    const char *name;
    CUcontext context;
    CUresult (*run)(struct vgpu_work *w);
    void (*drop)(struct vgpu_work *w);  /* gives back what the payload holds; NULL */
    size_t bytes;
    _Alignas(16) unsigned char payload[];
} vgpu_work;

vgpu_work *vgpu_work_new(CUcontext c, const char *name, CUresult (*run)(vgpu_work *w),
                         const void *payload, size_t bytes);
vgpu_work *vgpu_work_keep(vgpu_work *w);
void vgpu_work_drop(vgpu_work *w);
/* Runs it; faults are its context's. */
void vgpu_work_run(vgpu_work *w);

/* A point that a stream comes to. */
typedef struct vgpu_ticket {
    int references;
    bool done;
    struct CUstream_st *stream;
} vgpu_ticket;

typedef struct vgpu_command {
    vgpu_work *work;                    /* one of the three */
    vgpu_ticket *wait, *mark;
    struct vgpu_command *next;
} vgpu_command;

struct vgpu_capture;
struct CUstream_st {
    vgpu_object object;
    bool ended;                         /* destroyed: goes when its commands are done */
    int64_t n;
    vgpu_command *first, **last;
    struct vgpu_capture *capture;
    struct CUstream_st *next;
};

struct CUevent_st {
    vgpu_object object;
    vgpu_ticket *ticket;                /* of the last record; NULL */
};

/* Whether the handle is a stream that was made, not one of those that every context has; `same`: it
 * must be the current context's. */
CUresult vgpu_stream(CUstream s, bool same);
/* Records the work, which is taken over: at the stream's end, or in its capture. */
CUresult vgpu_put(CUstream s, vgpu_work *w);
CUresult vgpu_wait_stream(CUstream s);
CUresult vgpu_wait_context(CUcontext c);
/* Until nothing is recorded any more. */
void vgpu_wait_all(void);
void vgpu_put_wait(CUstream s, vgpu_ticket *t);
vgpu_ticket *vgpu_put_mark(CUstream s);         /* the caller's reference */
vgpu_ticket *vgpu_ticket_keep(vgpu_ticket *t);
void vgpu_ticket_drop(vgpu_ticket *t);
int64_t vgpu_recorded(void);
void vgpu_end_streams(CUcontext c);

/* ---- graphs and capture ---------------------------------------------------------------------- */

/* In the stream's capture. */
CUresult vgpu_capture_put(CUstream s, vgpu_work *w);
/* For calls that must not be made while a stream is captured: an error, and the capture is
 * spoilt. */
CUresult vgpu_not_captured(CUstream s);
/* For those that no stream is named in: what the capturing thread must not call. */
CUresult vgpu_unsafe(void);
#define SAFE_ONLY TRY(vgpu_unsafe())
void vgpu_capture_leave(CUstream s);

/* ---- kernels --------------------------------------------------------------------------------- */

/* What nvrtc.c makes: see shim.h. */
typedef struct {
    void (*call)(void **arguments);
    int n;
    const unsigned *sizes;
    const unsigned char *pointers;
} vgpu_kernel;

typedef struct {
    struct { unsigned x, y, z; } item, group, items, groups;
    void (*barrier)(int line);
} vgpu_place;

typedef struct {
    const char *name;
    const vgpu_kernel *kernel;
    vgpu_place *here;
    char *shared, *shared_end;
    unsigned groups[3], items[3];
    void **arguments;
} vgpu_grid;

/* Runs a kernel; false: its items do not all come to the same barriers. */
bool vgpu_run_grid(const vgpu_grid *g);
/* Runs a function that may touch the device's memory, and only that; false: it touched another
 * address, which `vgpu_fault_address` tells. */
bool vgpu_guarded(CUresult (*run)(vgpu_work *w), vgpu_work *w, CUresult *result);
extern void *vgpu_fault_address;

/* ---- the image of a module: made by nvrtc.c, read by module.c -------------------------------- */

typedef struct {
    char magic[8];                      /* "VGPUBIN", "VGPUPTX" */
    uint32_t toolkit;                   /* the version of CUDA that made it: 13 */
    uint32_t arch;                      /* 90 */
    uint32_t bytes;                     /* of the object that follows */
    uint64_t hash;                      /* of it */
    char flags[48];                     /* of the compiler that depend on this machine */
} vgpu_image;

uint64_t vgpu_hash(const void *data, size_t bytes);
const char *vgpu_machine_flags(void);

#endif
