/* The CUDA backend, from the inside.
 *
 *   cu.h         what is used of the driver and of NVRTC, declared
 *   driver.c     opening them at run time; their errors as ours; calls that fail when a test asks
 *   device.c     finding devices, opening and closing them, which of them is lost
 *   memory.c     memory with a cache and a limit, over the driver's stream-ordered pool
 *   transfer.c   uploads, downloads, copies within and between devices
 *   program.c    texts compiled by NVRTC, kept on disk
 *   kernel.c     steps prepared and launched
 *   graph.c      plans as one command
 *   table.c      in graphs: kernels whose arguments lie in the device's memory, many segments as one
 *   open.c       libraries of NVIDIA's
 *   lt_api.h lt.h lt*.c       matrix products by cuBLASLt
 *   dnn_api.h dnn.h dnn*.c    convolutions and attention by cuDNN's graphs
 *   rest.c       what they leave of a step
 *   cuda.c       the backend's table
 *
 * Nothing of NVIDIA's is needed to build it: declarations are ours (a test compares them with the
 * toolkit's headers where these are), and libraries are opened when they are first wanted.
 *
 * Variables of the environment:
 *   WEBER_CUDA_LIBRARY    the driver's file, in place of libcuda.so.1
 *   WEBER_CUDA_PATH       a folder in which NVRTC, cuBLASLt and cuDNN are looked for first
 *   WEBER_MEMORY_LIMIT    bytes that a device may hold: 100M, 1.5GiB, 50%
 *   WEBER_CUDA_GRAPHS     0: plans are never made into graphs
 *   WEBER_CUDA_CUBLASLT, WEBER_CUDA_CUDNN    0: not used
 *   WEBER_CUDA_FAIL       for tests: the n-th call of the driver fails; "n+": all from there on */
#ifndef WB__CUDA_H
#define WB__CUDA_H

#include "backend/gpu/gpu.h"
#include "backend/kernel_cache.h"
#include "backend/cuda/cu.h"

#include <pthread.h>

/* ---- memory ---------------------------------------------------------------------------------- */

/* What the engine has as a handle.  Commands of the compute stream are counted, and so are uploads:
 * memory remembers the last of either that used it.  An upload waits, on its own stream, for the
 * first; the compute stream waits for the second when one of its commands wants the memory. */
typedef struct wb__cu_memory {
    CUdeviceptr at;
    size_t bytes;
    uint64_t used;              /* the last command of the compute stream that uses it */
    uint64_t uploaded;          /* the last upload into it */
    struct wb__cu_memory *next; /* in the cache */
} wb__cu_memory;

/* Blocks are rounded up to one of eight sizes an octave and kept, when released, on a stack of
 * their size: the one released last is handed out first, so that a program that does the same at
 * every step gets the same addresses, which graphs hold. */
typedef struct {
    wb__cu_memory *free[WB__GPU_SIZE_CLASSES];
    int64_t limit, used, peak, cached;      /* bytes */
} wb__cu_cache;

/* Pinned memory that data pass through, in two halves: while one is copied, the other travels.
 * Behind those for uploads there is room for some small ones, so that none waits for a large one. */
enum { WB__CU_HALF = 4 << 20, WB__CU_SMALL = 64 << 10 };
typedef struct {
    pthread_mutex_t lock;
    unsigned char *at;
    CUevent event[2];           /* the last transfer of each half */
    bool busy[2];
    int next;
} wb__cu_staging;

/* ---- devices --------------------------------------------------------------------------------- */

typedef struct wb__cu_device wb__cu_device;
enum { WB__CU_MOST_DEVICES = 64, WB__CU_MARKS = 16 };

/* An event and the number of the last command or upload before it. */
typedef struct { CUevent event; uint64_t count; } wb__cu_mark;

struct wb__cu_device {
    wb_device base;
    int ordinal;
    CUdevice id;
    char name[128];
    int arch;                   /* 10 * major + minor of its compute capability: 90 */
    int processors;
    wb__gpu_target target;
    int64_t total;              /* bytes */
    bool has_pools, debug_sync;

    pthread_mutex_t opening;
    _Atomic bool open;
    _Atomic int kernels;        /* that were prepared and not destroyed, and graphs */
    CUcontext context;          /* the primary one */
    CUstream compute, up, down; /* up: uploads; down: large downloads */
    CUstream capturing;         /* nothing runs on it: graphs are recorded there */
    CUmemoryPool pool;          /* NULL: the device has none */

    /* Why the device can no longer be used, once it cannot; "": it can. */
    pthread_mutex_t losing;
    _Atomic bool lost;
    char lost_because[440];

    pthread_mutex_t lock;       /* of what follows, and of putting commands on streams */
    uint64_t issued, uploads;   /* commands of the compute stream; uploads */
    uint64_t awaited;           /* the compute stream waits for uploads up to this one */
    wb__cu_mark mark[WB__CU_MARKS], upload[WB__CU_MARKS];   /* rings, each by a count of its own */
    uint64_t marks;
    wb__cu_cache cache;
    uint64_t reached;           /* devices from which it copies directly, as bits */
    void *lt, *dnn;             /* lt.c's, dnn.c's */

    wb__cu_staging to, from;    /* the device */

    wb__gpu_programs programs;  /* with its lock, what they are compiled with: */
    int compiler;               /* which NVRTC, */
    bool portable;              /* and whether for the driver to translate (PTX) */
};

/* ---- open.c ---------------------------------------------------------------------------------- */

/* A library's file, and the version of CUDA that it belongs to; 0: not known.  NULL ends a list. */
typedef struct { const char *name; int major; } wb__cu_file;
/* Opens the first of these files that is there: in WEBER_CUDA_PATH, where the system looks, in the
 * toolkit's folder; in each, those for the driver's version of CUDA first, then older ones, then
 * newer ones.  *from: where to begin, 0, and afterwards where to go on for another file.  NULL:
 * there is none, and `why` has what was said of the first. */
void *wb__cu_open_library(const wb__cu_file *files, int *from, char *why, size_t room);

/* ---- driver.c -------------------------------------------------------------------------------- */

extern wb__cu_functions wb__cu;
#define cu wb__cu

extern int wb__cu_driver_version;                           /* 1000 * major + 10 * minor */
extern bool wb__cu_has_graphs, wb__cu_has_pools;            /* this driver knows them */

/* Opens the driver and fills the table; 0, or an error that says how to get one. */
int wb__cu_load(void);
/* One of the NVRTCs that are there; they are opened as they are wanted, first the one that suits
 * the driver best. */
typedef struct {
    wb__nvrtc_functions f;
    int version;                /* 1000 * major + 10 * minor */
} wb__cu_compiler;
/* NULL: there are no so many; for the first, with an error that says how to get it. */
const wb__cu_compiler *wb__cu_compiler_at(int i);
/* An error of the driver's as ours: "cuda:0: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700):
 * what was asked; what the driver says".  d may be NULL; where it is not, errors after which the
 * driver does nothing more for this process make the device a lost one. */
int wb__cu_fail(wb__cu_device *d, const char *call, CUresult code, const char *format, ...)
    WB__PRINTF(4, 5);
const char *wb__cu_error_name(CUresult code);
/* A child of fork has no use of the driver: no call is made there.  0, or an error that says so;
 * what only gives back asks for wb__cu_is_child. */
bool wb__cu_is_child(void);
int wb__cu_check_fork(void);
/* Where WEBER_CUDA_FAIL counts: says so if something of the driver's was not given back. */
void wb__cu_tell_left(void);

/* ---- device.c -------------------------------------------------------------------------------- */

int wb__cu_find(void);                          /* lists devices; 0, or an error */
bool wb__cu_in_use(void);                       /* is memory of theirs held, or a kernel? */
void wb__cu_forget(void);                       /* closes and forgets them */
int wb__cu_count(void);
wb__cu_device *wb__cu_at(int ordinal);          /* NULL: there is none */
/* Before calls for a device, and after them: opens it, makes its context current and the one that
 * was current so again.  0, or an error: then there is nothing to leave.  What only gives back enters
 * with wb__cu_enter_to_release, which never complains, and says whether there is something to leave. */
int wb__cu_enter(wb__cu_device *d);
bool wb__cu_enter_to_release(wb__cu_device *d);
void wb__cu_leave(void);

/* ---- memory.c -------------------------------------------------------------------------------- */

void *wb__cu_allocate(const wb_device *base, size_t bytes);
void wb__cu_release(const wb_device *base, void *memory, size_t bytes);
void wb__cu_trim(const wb_device *base);
int wb__cu_memory_of(const wb_device *base, wb_device_memory *m);
void wb__cu_share(const wb_device *base, const void *memory, size_t at, wb__shared *s);
void *wb__cu_adopt(const wb_device *base, void *address, size_t bytes);
void wb__cu_disown(const wb_device *base, void *memory);

/* ---- transfer.c ------------------------------------------------------------------------------ */

int wb__cu_upload(const wb_device *base, void *to, size_t at, const void *from, size_t bytes);
int wb__cu_download(const wb_device *base, void *to, const void *from, size_t at, size_t bytes);
int wb__cu_copy(const wb_device *base, void *to, size_t to_at, const wb_device *from_device,
                const void *from, size_t from_at, size_t bytes);
int wb__cu_wait(const wb_device *base);
void wb__cu_free_staging(wb__cu_staging *s);

/* All with the lock and the context.  wb__cu_uses: the next command of the compute stream uses this
 * memory, and waits for its upload.  wb__cu_issue: a command was put on the compute stream.
 * wb__cu_mark_now: an event behind all of them, or NULL with the error set. */
int wb__cu_uses(wb__cu_device *d, wb__cu_memory *m);
static inline void wb__cu_issue(wb__cu_device *d) { d->issued++; }
wb__cu_mark *wb__cu_mark_now(wb__cu_device *d);

/* ---- program.c ------------------------------------------------------------------------------- */

typedef enum { WB__CU_PLAIN = 0, WB__CU_F64 = 1, WB__CU_TABLE = 2 } wb__cu_flags;

/* Flags are words defined in front of the prelude.  With the context. */
extern const wb__gpu_compiler wb__cu_compiling;
/* A kernel of the program that is to run with so many items in a group; 0, or an error. */
int wb__cu_function(wb__cu_device *d, const wb__gpu_program *p, const char *entry, uint32_t items,
                    CUfunction *function);

/* ---- kernel.c -------------------------------------------------------------------------------- */

typedef struct wb__cu_routine wb__cu_routine;

/* One launch of a step. */
typedef struct {
    const wb__gpu_launch *launch;
    wb__gpu_program *program;
    CUfunction function;
    bool changes;               /* the struct of arguments differs from launch to launch */
    unsigned char *args;        /* the struct */
    CUdeviceptr *address;       /* of each buffer */
    void **argument;            /* pointers to these, and to the struct */
} wb__cu_part;

typedef struct {
    wb__kernel base;
    wb__cu_routine *routine;    /* comes before the parts; NULL: there is none */
    int n_buffers;              /* of the plan's, as far as the step names them */
    int n_used, *used;          /* which */
    CUdeviceptr *address;       /* room for the routine's */
    wb__gpu_work *work;
    char what[160];             /* the step, for errors */
    int n;
    wb__cu_part parts[];
} wb__cu_kernel;

int wb__cu_prepare(const wb_device *base, const wb__step *step, wb__kernel **kernel);
void wb__cu_destroy(const wb_device *base, wb__kernel *kernel);
int wb__cu_launch(const wb_device *base, const wb__kernel *kernel, void *const *buffers,
                  const size_t *places, void *workspace, size_t workspace_at,
                  const wb__number *numbers);
bool wb__cu_takes(const wb_device *base, const wb__step *step);
bool wb__cu_prefers_nhwc(const wb_device *base, const wb__step *conv);

/* Where a kernel's buffers lie, by the plan's numbers; the workspace begins at byte workspace_at of
 * what is at `workspace`. */
typedef struct {
    const CUdeviceptr *address;
    CUdeviceptr workspace;
    size_t workspace_at;
    const wb__number *numbers;
} wb__cu_places;

/* With the lock and the context: puts one part of a kernel, or its routine, on a stream. */
int wb__cu_launch_part(wb__cu_device *d, const wb__cu_kernel *k, const wb__cu_part *p,
                       CUstream stream, const wb__cu_places *at);
int wb__cu_launch_routine(wb__cu_device *d, const wb__cu_kernel *k, CUstream stream,
                          const wb__cu_places *at);

/* ---- graph.c, table.c ------------------------------------------------------------------------ */

int wb__cu_graph(const wb_device *base, const wb__sequence *s, wb__graph **graph);
void wb__cu_graph_free(const wb_device *base, wb__graph *graph);
int wb__cu_graph_run(const wb_device *base, wb__graph *graph, void *const *buffers,
                     const size_t *places, const wb__number *numbers);

/* Launches of one kernel as one table: its rows, in the device's memory, hold the addresses of the
 * buffers, the struct of arguments and the first group of one launch each. */
typedef struct {
    const wb__cu_kernel *kernel;
    int n, *part;               /* which of the kernel's parts are its rows */
    wb__gpu_program *program;
    CUfunction function;
    size_t at, row_bytes;       /* in the block; of one row */
    uint32_t groups;
} wb__cu_table;

/* A number as the words that it becomes, and a place where one of them goes. */
typedef struct { uint32_t at, word; } wb__cu_target;

/* The tables of a sequence, in the order of its kernels.  They lie in one block, and behind them the
 * list of places into which, before every run, a small kernel writes the plan's numbers. */
typedef struct {
    int n, room, n_targets;
    wb__cu_table *table;
    wb__cu_target *target;      /* by words */
    size_t list_at, bytes;      /* of the block */
    wb__gpu_launch words;       /* gpu_fill makes the words with it */
    wb__gpu_program *program;   /* that writes them */
    CUfunction function;
    unsigned char *args;        /* its arguments */
} wb__cu_tables;

/* 0, an error, or WB_ERROR_UNSUPPORTED without a message: a launch with numbers that no table can
 * hold.  With the context. */
int wb__cu_tables_make(wb__cu_device *d, const wb__sequence *s, wb__cu_tables *t);
void wb__cu_tables_free(wb__cu_device *d, wb__cu_tables *t);
/* The block's contents for buffers at these places. */
void wb__cu_tables_fill(const wb__cu_tables *t, const wb__cu_places *at, unsigned char *block);
/* With the lock: writes the numbers into the block, on the compute stream. */
int wb__cu_tables_write(wb__cu_device *d, wb__cu_tables *t, CUdeviceptr block,
                        const wb__number *numbers);
/* With the lock: a table, on a stream. */
int wb__cu_table_launch(wb__cu_device *d, const wb__cu_table *t, CUdeviceptr block,
                        CUstream stream);

/* ---- library routines: lt.c, dnn.c, dnn_attention.c -------------------------------------------
 *
 * A step that a library of NVIDIA's does.  It must be capturable: what it needs is made when it is
 * prepared, its memory is the workspace that it is lent. */

struct wb__cu_routine {
    const char *impl;           /* for the printed plan: "cuBLASLt bias relu", "cuDNN" */
    size_t workspace;
    /* Enqueues on the stream, with the device's context current; buffers are addresses by number. */
    int (*launch)(wb__cu_device *d, wb__cu_routine *r, CUstream stream, const CUdeviceptr *buffers,
                  CUdeviceptr workspace);
    void (*destroy)(wb__cu_device *d, wb__cu_routine *r);
};

/* These, and a routine's own functions, are called with the device's context current and its lock
 * held.  0; WB_ERROR_UNSUPPORTED without a message: not by this library, and *why says in a few words
 * why not; another code: an error. */
int wb__cu_lt_prepare(wb__cu_device *d, const wb__step *step, wb__cu_routine **r, const char **why);
int wb__cu_dnn_prepare(wb__cu_device *d, const wb__step *step, wb__cu_routine **r, const char **why);
/* After a library's call failed at launch, with the error set.  Where the device failed with it,
 * that error; else WB_ERROR_UNSUPPORTED: the caller remembers not to ask the library for the
 * problem again.  The first refusal of a library is a warning; *told: it was. */
int wb__cu_refused(wb__cu_device *d, bool *told);
/* Whether it would take an epilogue, sums, attention: see `takes` of wb__backend. */
bool wb__cu_lt_takes(wb__cu_device *d, const wb__step *step);
bool wb__cu_dnn_takes(wb__cu_device *d, const wb__step *step);
bool wb__cu_dnn_prefers_nhwc(wb__cu_device *d, const wb__step *conv);
/* Whether the library can be used: opens it, once; false with the error set. */
bool wb__cu_lt_works(void);
int wb__cu_lt_major(void);      /* the CUDA that cuBLASLt is of, 13; 0: it cannot be used */
bool wb__cu_dnn_works(void);
/* rest.c: a step with a simple function behind it as the step without it, and the function in place.
 * False: there is none. */
typedef struct {
    wb__step step;
    wb__instr instr[5];
    wb__space space;
    wb__view view[2];
} wb__cu_rest;
bool wb__cu_split(const wb__step *step, wb__step *bare, wb__cu_rest *rest);

/* Handles that belong to a device: given back when it is closed, its context current. */
void wb__cu_lt_close(wb__cu_device *d);
void wb__cu_dnn_close(wb__cu_device *d);

#endif
