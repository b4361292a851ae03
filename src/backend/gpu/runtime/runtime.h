/* The runtime shared by all backends that compile kernel text for a GPU.
 *
 *   device.c     starting and stopping, opening devices, lost devices, fork, error messages
 *   memory.c     the caching allocator, the memory limit, size classes
 *   transfer.c   the order of commands; uploads, downloads, copies within and between devices
 *   read.c       small downloads that later commands do not wait for
 *   program.c    compiled programs, in memory and on disk
 *   aside.c      routines of a library that run while later steps run
 *   collective.c operations of the ranks that no library of the device performs
 *   kernel.c     prepares steps (by a vendor library or from text) and launches them
 *   files.c      opening the files of vendors' libraries
 *   vendor.c     vendor libraries: versions, handles, cached algorithms
 *   timing.c     chooses algorithms of a library by timing
 *   tiles.c      chooses the tile of our own products by timing
 *   split.c      splits a step into a part for a library and a kernel for the rest
 *   graph.c      plans recorded as one command, if the driver supports it
 *   table.c      for graphs: kernel arguments in device memory, many launches combined into one
 *
 * A backend is a driver: a table of functions (wb__gpu_driver), most of which are one call of the
 * vendor's API.  A library that executes whole steps is a table of functions too (wb__gpu_hook). */
#ifndef WB__GPU_RUNTIME_H
#define WB__GPU_RUNTIME_H

#include "backend/gpu/gpu.h"
#include "backend/gpu/runtime/files.h"
#include "base/mutex.h"
#include "base/table.h"

typedef struct wb__gpu_device wb__gpu_device;
typedef struct wb__gpu_driver wb__gpu_driver;
typedef struct wb__gpu_vendor_state wb__gpu_vendor_state;
typedef struct wb__gpu_vendor wb__gpu_vendor;

/* ---- memory ---------------------------------------------------------------------------------- */

/* A block of device memory; the engine receives it as a handle.  The commands of the compute queue
 * are numbered from 1; uploads have numbers of their own. */
typedef struct wb__gpu_memory {
    uint64_t at;                /* address, or the driver's object cast to an integer */
    size_t bytes;
    uint64_t serial;            /* unique in the process */
    uint64_t used;              /* number of the last compute command that uses this memory */
    uint64_t uploaded;          /* number of the last upload into this memory; 0: none */
    struct wb__gpu_memory *next;        /* in the list of free blocks of its size class */
} wb__gpu_memory;

/* Released blocks, in a list for each size class: sizes are rounded up, eight per power of two. */
enum { WB__GPU_SIZE_CLASSES = 320 };
typedef struct {
    struct { wb__gpu_memory *first, *last; } free[WB__GPU_SIZE_CLASSES];
    int64_t limit, used, peak, cached;      /* in bytes; used: blocks in use; cached: free ones */
} wb__gpu_cache;

/* Pinned memory for staged transfers, in two halves: one half is copied by the host while the other
 * is transferred.  Uploads also have some small buffers, so that a small upload does not wait for a
 * large one. */
enum { WB__GPU_HALF = 4 << 20, WB__GPU_SMALL = 64 << 10 };
typedef struct {
    wb__mutex lock;
    unsigned char *at;          /* NULL: not allocated yet */
    void *object;               /* the driver's object */
    void *event[2];             /* reached when a half's last transfer has ended */
    bool busy[2];               /* event[i] may not be reached yet */
    int next;                   /* half that the next transfer uses */
} wb__gpu_staging;

/* Small downloads that later commands do not wait for (wb__backend.begin_read) have 8 bytes of
 * pinned memory each, behind the halves of wb__gpu_device.from. */
enum { WB__GPU_READS = 4 };
typedef struct {
    void *event;    /* reached when the download has ended; without staging, when it can begin */
    uint64_t count;             /* number of the last command before the download */
    uint64_t from;              /* without staging: wb__gpu_memory.at of the source */
    size_t at, bytes;           /* place of the first byte in the source; bytes to read */
    bool busy;                  /* a read is going on */
} wb__gpu_read;

/* ---- devices --------------------------------------------------------------------------------- */

/* Each queue of a device executes its commands in order; different queues run concurrently.  Graphs
 * are recorded on the queue RECORDING, which executes nothing; a driver without graphs lacks it.
 * Routines beside the compute queue (aside.c) are on ASIDE; a graph's other branch is on BRANCH. */
typedef enum {
    WB__GPU_COMPUTE, WB__GPU_UP, WB__GPU_DOWN, WB__GPU_RECORDING, WB__GPU_ASIDE, WB__GPU_BRANCH,
    WB__GPU_QUEUES
} wb__gpu_queue;

/* An event, and the number of the last command before it, or upload in wb__gpu_device.upload. */
typedef struct { void *event; uint64_t count; } wb__gpu_mark;

enum { WB__GPU_MAX_DEVICES = 64, WB__GPU_MARKS = 16 };

typedef struct wb__gpu_program {
    struct wb__gpu_program *next;
    uint64_t hash, last;        /* last: wb__gpu_programs.clock when a user last released it */
    int users, flags;           /* users: number of launches that use it; flags: wb__gpu_flags */
    void *object;               /* the driver's program */
    char text[];
} wb__gpu_program;

enum { WB__GPU_BUCKETS = 256 };

static inline uint64_t wb__gpu_text_hash(const char *text, int flags)
{
    return wb__hash((uint64_t)flags, text, strlen(text));
}

typedef struct {
    wb__mutex lock;             /* guards the fields below and the driver's compiler */
    wb__gpu_program *program[WB__GPU_BUCKETS];
    uint64_t clock;             /* counts releases; see wb__gpu_program.last */
    int idle;                   /* programs without users */
} wb__gpu_programs;

/* The base of a driver's device struct. */
struct wb__gpu_device {
    wb_device base;             /* set by the runtime */
    const wb__gpu_driver *driver;

    /* Set by the driver's `find`. */
    char name[128], about[256]; /* the device's name; a description for the log */
    const char *kind;           /* "gpu", "accelerator" or "cpu"; users can select devices by it */
    char maker[384];  /* names the compiler; part of the key of images on disk */
    wb__gpu_target target;
    /* sizes in bytes of the device's memory, and of its largest possible block; 0: no limit */
    int64_t total, most;
    bool staged;                /* transfers go through pinned memory */
    bool keeps_images;          /* compiled images are kept on disk */
    bool graphs;                /* the driver can record commands */
    bool allocates_in_order;    /* allocating a block is a command of the compute queue */

    bool debug_sync, recording;         /* each launch is waited for; a graph is being recorded */
    wb__mutex opening;          /* held while the device is opened or closed */
    _Atomic bool open;
    _Atomic int holders;        /* kernels, graphs and adopted memory that are not freed yet */

    /* Set when the device has become unusable. */
    wb__mutex losing;           /* guards lost_because */
    _Atomic bool lost;
    char lost_because[440];     /* why it is lost */

    wb__mutex lock;             /* guards the queues, and all fields below without their own lock */
    /* numbers of the last compute command, and of the last one that is known to be completed */
    uint64_t issued, completed;
    /* numbers of the last upload, and of the last upload that the compute queue waits for */
    uint64_t uploads, awaited;
    wb__gpu_mark mark[WB__GPU_MARKS], upload[WB__GPU_MARKS];    /* ring buffers */
    uint64_t marks, marks_reached;  /* number of marks created; number known to be reached */
    void *branch_events[2 * WB__GPU_MARKS];     /* between branches (graph.c); NULL: not made */
    int waiting, flush_interval;  /* commands since the last flush; commands between flushes */
    int failed;                 /* code of a failed command that is not reported yet; 0: none */
    wb__gpu_cache cache;

    wb__gpu_staging to, from;   /* pinned memory for uploads, and for downloads */
    wb__gpu_read read[WB__GPU_READS];
    wb__gpu_programs programs;
    wb__gpu_vendor_state *vendor_states;  /* handles of vendor libraries */
    double timing_seconds;               /* seconds that timing.c has taken */
};

/* ---- drivers --------------------------------------------------------------------------------- */

/* Properties of an error code. */
typedef enum {
    WB__GPU_ERROR_MEMORY = 1,   /* memory is exhausted, whichever call returns the code */
    WB__GPU_ERROR_FULL = 2,     /* memory is exhausted if `allocate` returns the code */
    WB__GPU_ERROR_LOST = 4      /* the driver rejects all further calls for the device */
} wb__gpu_error;

/* The name of the vendor's function that this thread called last; drivers set it before a call. */
extern _Thread_local const char *wb__gpu_call;

typedef struct wb__gpu_hook wb__gpu_hook;

/* The state of a backend. */
typedef struct {
    wb__mutex starting;                 /* held while the backend starts or stops */
    bool started;
    _Atomic bool guarded, child;        /* a fork handler is set; this process is a forked child */
    int n;                              /* number of devices */
    wb__gpu_device *device[WB__GPU_MAX_DEVICES];
} wb__gpu_state;

/* int functions return a "code" or a "status".  A code is the vendor's error code, 0 for success;
 * the function also sets wb__gpu_call.  A status is an error code of Weber, with the error set.
 * From `allocate` on, the device is open and current.  Commands, except some transfers, are put on
 * queues with the device's lock held.  *event receives the command's event; `event` may be NULL. */
struct wb__gpu_driver {
    const wb__backend *backend;
    wb__gpu_state *state;
    int dlpack;                 /* the device type in DLPack */
    bool objects;               /* memory is an object of the driver, which has no address */
    bool oldest_first;          /* reuse the block released first (wb__gpu_release) */
    const char *choosing;       /* the environment variable that selects devices; or NULL */
    const wb__gpu_hook *const *libraries;       /* NULL-terminated; NULL: none */

    /* Return a status.  load opens the vendor's library; find lists the devices, opening none. */
    int (*load)(void);
    int (*find)(wb__gpu_device **list, int *n);
    void (*forget)(void);  /* called when all devices are closed; or NULL */
    int (*open)(wb__gpu_device *d);             /* status; creates queues and other resources */
    void (*close)(wb__gpu_device *d);
    int (*enter)(wb__gpu_device *d);  /* code: makes d current for this thread; NULL: no need */
    void (*leave)(void);              /* ends what `enter` began; NULL: no need */

    const char *(*error_name)(int code);
    int (*error_kind)(int code);                /* a bit set of wb__gpu_error */
    /* Writes the driver's own error message, if it has one; d may be NULL. */
    void (*error_text)(wb__gpu_device *d, int code, char *text, size_t capacity);

    /* Returns a code.  timing.c alone calls it with the device's lock held. */
    int (*allocate)(wb__gpu_device *d, size_t bytes, uint64_t *at);
    void (*release)(wb__gpu_device *d, uint64_t at);                    /* lock held */
    void (*trim)(wb__gpu_device *d);            /* called after releases; or NULL */
    int (*memory_left)(wb__gpu_device *d, size_t *bytes);               /* code; or NULL */
    int (*pin)(wb__gpu_device *d, wb__gpu_staging *s, size_t bytes);    /* code */
    void (*unpin)(wb__gpu_device *d, wb__gpu_staging *s);

    /* Return a code.  Copy from host to device (up) or from device to host (down).  wait true:
     * return when the copy is done; false: return at once, and the host memory must be pinned. */
    int (*up)(wb__gpu_device *d, wb__gpu_queue q, uint64_t to, size_t at, const void *from,
              size_t bytes, bool wait);
    int (*down)(wb__gpu_device *d, wb__gpu_queue q, void *to, uint64_t from, size_t at,
                size_t bytes, bool wait);
    void *(*contents)(uint64_t at);  /* host address of memory, or NULL; NULL: there is none */
    /* Whether `d` can copy from the memory of `source`.  If this pointer is NULL, it always can. */
    bool (*reaches)(const wb__gpu_device *d, const wb__gpu_device *source);
    /* code: enqueues on the compute queue of d. */
    int (*copy)(wb__gpu_device *d, uint64_t to, size_t to_at, wb__gpu_device *source, uint64_t from,
                size_t from_at, size_t bytes, void **event);

    int (*open_queue)(wb__gpu_device *d, wb__gpu_queue q);      /* code; NULL: no ASIDE, BRANCH */
    int (*new_event)(void **event);             /* code; NULL: record creates events */
    void (*drop_event)(void *event);
    int (*record)(wb__gpu_device *d, wb__gpu_queue q, void **event);    /* code */
    int (*wait_event)(wb__gpu_device *d, wb__gpu_queue q, void *event); /* code: the queue waits */
    int (*sync_event)(void *event);             /* code: the host waits */
    /* Whether an event is reached; sets *ended to its command's error code.  `done` may be NULL. */
    bool (*done)(void *event, int *ended);
    /* code: calls `work`, which puts commands on the compute queue and returns 0 or another code,
     * waits for them, and sets *ms to the time that the device took.  NULL: nothing is timed. */
    int (*elapsed)(wb__gpu_device *d, int (*work)(void *ctx), void *ctx, float *ms);
    int (*flush)(wb__gpu_device *d);            /* code: flushes the compute queue; NULL: no need */
    int (*sync)(wb__gpu_device *d, wb__gpu_queue q);    /* code: waits for the whole queue */

    /* Writes the compiler options to try next.  false: there are no more; the error is set. */
    bool (*options)(wb__gpu_device *d, int flags, char *text, size_t capacity);
    /* Returns a status.  *image receives the binary of the program, which the caller frees, or
     * NULL.  WB_ERROR_UNSUPPORTED: other options may work. */
    int (*compile)(wb__gpu_device *d, const char *text, const char *options, void **program,
                   void **image, size_t *bytes);
    int (*load_image)(wb__gpu_device *d, const void *image, size_t bytes, const char *options,
                      void **program);          /* code */
    void (*unload)(wb__gpu_device *d, void *program);
    /* Returns a code.  Finds a kernel whose launches ask for `local` bytes of local memory beside
     * its own arrays, and the largest number of items of the kernel's groups. */
    int (*function)(wb__gpu_device *d, void *program, const char *entry, size_t local,
                    void **function, size_t *max_items);
    void (*drop_function)(void *function);      /* or NULL */
    /* code: sets an argument for the next launches.  memory: value points to a wb__gpu_memory.at.
     * value NULL: local memory.  If this pointer is NULL, `launch` passes the arguments. */
    int (*bind)(void *function, int index, bool memory, size_t bytes, const void *value);
    int (*launch)(wb__gpu_device *d, wb__gpu_queue q, void *function, const uint32_t groups[3],
                  const uint32_t items[3], size_t local, void **arguments, void **event); /* code */

    /* Functions for graphs; all NULL if the driver has no graphs.  The int functions return a code.
     * Commands put on WB__GPU_RECORDING between record_begin and record_end become a recording.
     * instantiate makes a graph of a recording; run enqueues the graph. */
    int (*record_begin)(wb__gpu_device *d);
    int (*record_end)(wb__gpu_device *d, void **recorded);
    int (*instantiate)(void *recorded, void **graph);
    int (*run)(wb__gpu_device *d, void *graph);
    void (*drop_recorded)(void *recorded);
    void (*drop_graph)(void *graph);
};

/* ---- vendor libraries ------------------------------------------------------------------------ */

typedef struct wb__gpu_addresses wb__gpu_addresses;

/* A step that a vendor library has prepared; the first member of the library's own struct.  Its
 * launches allocate no device memory, so that graphs can record them.  workspace: in bytes. */
typedef struct {
    const wb__gpu_hook *library;
    const char *impl;           /* for the printed plan: the library and the epilogue */
    size_t workspace;
    struct wb__gpu_entry *held; /* the library's solution for its problem, or NULL */
} wb__gpu_routine;
/* Keeps a copy of a routine that the library has made, `bytes` bytes with the library's own fields.
 * The copy holds `entry` until it is destroyed.  Returns 0 or WB_ERROR_MEMORY. */
int wb__gpu_keep_routine(const wb__gpu_routine *made, size_t bytes, struct wb__gpu_entry *entry,
                         wb__gpu_routine **r);

/* A vendor library that executes steps.  The functions are called with the device entered
 * (wb__gpu_enter) and the device's lock held. */
struct wb__gpu_hook {
    unsigned kinds;             /* bit set of wb__step_kind */
    bool bare;                  /* the library adds neither bias nor epilogue */
    bool aside;                 /* its routines run beside the compute queue (aside.c) */
    /* the runtime opens the library before it calls a function; NULL: `prepare` opens it */
    wb__gpu_vendor *vendor;
    /* Whether the library accepts an optional step (`supports` of wb__backend); NULL: none. */
    bool (*supports)(wb__gpu_device *d, const wb__step *step);
    /* Prepares a step.  Returns 0, or an error code.  WB_ERROR_UNSUPPORTED: the library does not
     * support the step; *reason then is a short reason, and no error message is set. */
    int (*prepare)(wb__gpu_device *d, const wb__step *step, wb__gpu_routine **r,
                   const char **reason);
    /* Returns a status.  Enqueues the step, and calls wb__gpu_count_command for each command. */
    int (*launch)(wb__gpu_device *d, wb__gpu_routine *r, wb__gpu_queue q,
                  const wb__gpu_addresses *at);
    /* Frees what the routine allocated, but not the routine; or NULL. */
    void (*destroy)(wb__gpu_device *d, wb__gpu_routine *r);
    bool (*prefers_channels_last)(wb__gpu_device *d, const wb__step *conv);  /* or NULL */
};

/* The memory and numbers of a launch.  The arrays are indexed by the plan's buffer index.  The
 * workspace begins at byte workspace_at of its memory. */
struct wb__gpu_addresses {
    const uint64_t *address;  /* address of each buffer, unless `objects` of the driver is true */
    void *const *buffers;               /* the memory handle of each buffer */
    const size_t *offsets;  /* byte offset of each buffer in its memory; NULL: all are 0 */
    wb__gpu_memory *memory;             /* handle of the workspace's memory, or NULL */
    uint64_t workspace;                 /* address of this memory (wb__gpu_memory.at) */
    size_t workspace_at, branch_at;     /* branch_at: as in wb__sequence */
    const wb__number *numbers;
};

/* ---- device.c -------------------------------------------------------------------------------- */

/* These functions implement entries of wb__backend for a driver v or a device `base`. */
int wb__gpu_start(const wb__gpu_driver *v);
void wb__gpu_stop(const wb__gpu_driver *v);
int wb__gpu_count(const wb__gpu_driver *v);
const wb_device *wb__gpu_device_at(const wb__gpu_driver *v, int ordinal);
bool wb__gpu_has_dtype(const wb_device *base, wb_dtype t);

/* WB__GPU_WRAPPERS defines the functions start, stop, count and device of a backend.
 * WB__GPU_FUNCTIONS lists the entries that the wb__backend tables of all GPU backends share. */
#define WB__GPU_WRAPPERS(driver)                                                                   \
    static int start(void) { return wb__gpu_start(&(driver)); }                                    \
    static void stop(void) { wb__gpu_stop(&(driver)); }                                            \
    static int count(void) { return wb__gpu_count(&(driver)); }                                    \
    static const wb_device *device(int ordinal) { return wb__gpu_device_at(&(driver), ordinal); }
#define WB__GPU_FUNCTIONS                                                                          \
    WB__GPU_TRAITS, .start = start, .stop = stop, .count = count, .device = device,                \
    .has_dtype = wb__gpu_has_dtype, .memory = wb__gpu_memory_of, .allocate = wb__gpu_allocate,     \
    .release = wb__gpu_release, .trim = wb__gpu_trim, .upload = wb__gpu_upload,                    \
    .download = wb__gpu_download, .map = wb__gpu_map, .copy = wb__gpu_copy,                        \
    .begin_read = wb__gpu_begin_read, .end_read = wb__gpu_end_read, .is_lost = wb__gpu_is_lost,    \
    .prepare = wb__gpu_prepare, .destroy = wb__gpu_destroy, .launch = wb__gpu_launch_kernel,       \
    .finish = wb__gpu_finish, .wait = wb__gpu_wait, .share = wb__gpu_share,                        \
    .collect = wb__gpu_perform_collective,                                                         \
    .prefers_channels_last = wb__gpu_prefers_channels_last

/* Reports a driver's error as an error of Weber: "tag:0: function: ERROR_NAME (700): the request;
 * the driver reports: message".  The function is wb__gpu_call, and `format` gives the request.  d
 * may be NULL.  A fatal error marks d as lost. */
int wb__gpu_fail(const wb__gpu_driver *v, wb__gpu_device *d, int code, const char *format, ...)
    WB__PRINTF(4, 5);
bool wb__gpu_is_lost(const wb_device *base);
/* Marks d as lost: from now on each use is an error with this reason. */
void wb__gpu_mark_lost(wb__gpu_device *d, int code, const char *what);
/* Marks the device as lost for a reason `why` that is no error of the driver. */
void wb__gpu_mark_lost_because(wb__gpu_device *d, const char *why);

/* Returns an error in a forked child, which must not call the driver; else 0. */
int wb__gpu_check_fork(const wb__gpu_driver *v);
static inline bool wb__gpu_is_child(const wb__gpu_device *d) { return d->driver->state->child; }

/* wb__gpu_enter opens the device if necessary and makes it current.  Returns 0, or an error; only
 * after 0 must wb__gpu_leave be called.  wb__gpu_enter_to_release is for functions that only free.
 * It opens no device, sets no error, and returns whether wb__gpu_leave must be called. */
int wb__gpu_enter(wb__gpu_device *d);
bool wb__gpu_enter_to_release(wb__gpu_device *d);
void wb__gpu_leave(wb__gpu_device *d);

/* ---- memory.c -------------------------------------------------------------------------------- */

/* Sets *limit to the bytes that WEBER_MEMORY_LIMIT allows out of `total`.  Returns 0, or an error
 * whose message begins with `tag`. */
int wb__gpu_memory_limit(const char *tag, int64_t total, int64_t *limit);
void *wb__gpu_allocate(const wb_device *base, size_t bytes);
void wb__gpu_release(const wb_device *base, void *memory, size_t bytes);
void wb__gpu_trim(const wb_device *base);
int wb__gpu_memory_of(const wb_device *base, wb_device_memory *m);
void wb__gpu_share(const wb_device *base, const void *memory, size_t at, wb__shared *s);
void *wb__gpu_adopt(const wb_device *base, void *address, size_t bytes);
void wb__gpu_disown(const wb_device *base, void *memory);

/* ---- transfer.c ------------------------------------------------------------------------------ */

int wb__gpu_upload(const wb_device *base, void *to, size_t at, const void *from, size_t bytes);
int wb__gpu_download(const wb_device *base, void *to, const void *from, size_t at, size_t bytes);
int wb__gpu_begin_read(const wb_device *base, const void *memory, size_t at, size_t bytes,
                       void **read);
int wb__gpu_end_read(const wb_device *base, void *read, void *to);
int wb__gpu_map(const wb_device *base, const void *memory, const void **at);
int wb__gpu_copy(const wb_device *base, void *to, size_t to_at, const wb_device *from_device,
                 const void *from, size_t from_at, size_t bytes);
/* For read.c.  With the lock held, makes queue q wait for the commands up to `count`: for the
 * oldest mark behind them, or a new one.  `what` is part of the message of a failure. */
int wb__gpu_queue_after(wb__gpu_device *d, wb__gpu_queue q, uint64_t count, const char *what);
/* Records that all commands up to `count` are completed.  Returns 0, or the error of one of them
 * that has not been reported yet. */
int wb__gpu_commands_ended(wb__gpu_device *d, uint64_t count);
int wb__gpu_make_staging(wb__gpu_device *d, wb__gpu_staging *s);
/* Copy between device memory and the caller's pinned memory s.  An upload may go on when the
 * function returns; event 0 of s is then reached at its end. */
int wb__gpu_upload_pinned(const wb_device *base, void *to, size_t at, wb__gpu_staging *s,
                          size_t bytes);
int wb__gpu_download_pinned(const wb_device *base, wb__gpu_staging *s, const void *from, size_t at,
                            size_t bytes);
int wb__gpu_wait(const wb_device *base);
void wb__gpu_free_staging(wb__gpu_device *d, wb__gpu_staging *s);

/* Called with the device's lock held.  wb__gpu_command_uses: records that the compute queue's next
 * command uses m, and makes the queue wait for the last upload into m.  wb__gpu_next_event: where
 * to store the next command's event; NULL: it needs none.  wb__gpu_count_command: counts a command
 * just put on the compute queue.  wb__gpu_mark_now: puts an event after all commands; NULL: the
 * error is set. */
int wb__gpu_command_uses(wb__gpu_device *d, wb__gpu_memory *m);
void **wb__gpu_next_event(wb__gpu_device *d);
void wb__gpu_count_command(wb__gpu_device *d, void **event);
wb__gpu_mark *wb__gpu_mark_now(wb__gpu_device *d);

/* ---- program.c ------------------------------------------------------------------------------- */

/* Flags of a program: macros before the prelude.  APART: no other kernel uses its counters. */
typedef enum { WB__GPU_PLAIN, WB__GPU_F64 = 1, WB__GPU_TABLE = 2, WB__GPU_APART = 4 } wb__gpu_flags;

/* Returns the program of a text, from memory, from disk or newly compiled; NULL: the error is set.
 * The caller releases it with wb__gpu_program_release, which accepts NULL. */
wb__gpu_program *wb__gpu_program_get(wb__gpu_device *d, const char *text, int flags);
void wb__gpu_program_release(wb__gpu_device *d, wb__gpu_program *p);
void wb__gpu_programs_free(wb__gpu_device *d);
/* Finds the kernel `entry` of a program, for groups of `items` and launches that ask for `local`
 * bytes of local memory.  Returns 0, or an error. */
int wb__gpu_function_of(wb__gpu_device *d, const wb__gpu_program *p, const char *entry,
                        const uint32_t items[3], size_t local, void **function);
/* With WEBER_DEBUG=kernel, logs a text that does not compile and the compiler's messages. */
void wb__gpu_log_build(const wb__gpu_device *d, const char *text, const char *message);

/* ---- kernel.c -------------------------------------------------------------------------------- */

/* A launch of a kernel. */
typedef struct {
    const wb__gpu_launch *launch;
    wb__gpu_program *program;
    void *function;             /* the driver's kernel */
    bool changes;               /* the argument struct may differ from launch to launch */
    bool set;                   /* the argument struct has been bound once */
    unsigned char *args, *next; /* the struct of the last launch; room for the next one */
    uint64_t *address;  /* address of each buffer argument; with `bind`, serial of its memory */
    void **argument;            /* pointers to the elements of `address`, and to `args` */
} wb__gpu_bound_launch;

typedef struct {
    wb__kernel base;
    wb__gpu_routine *routine;   /* runs before the launches; NULL: none */
    struct wb__gpu_aside *aside;        /* of a routine beside the compute queue; else NULL */
    int n_buffers;              /* highest index, in the plan, of the step's buffers, plus one */
    int n_used, *used;          /* the indices, in the plan, of the step's buffers */
    uint64_t *address;          /* address of each buffer, at the launch */
    wb__gpu_work *work;         /* NULL: the routine does everything */
    char what[160];             /* describes the step in errors */
    struct wb__gpu_collective *collective;  /* performs the step; NULL: another step */
    int n;                      /* number of launches */
    wb__gpu_bound_launch launches[];
} wb__gpu_kernel;

int wb__gpu_prepare(const wb_device *base, const wb__step *step, wb__kernel **kernel);
void wb__gpu_destroy(const wb_device *base, wb__kernel *kernel);
int wb__gpu_finish(const wb_device *base, const wb__kernel *kernel);
int wb__gpu_launch_kernel(const wb_device *base, const wb__kernel *kernel, void *const *buffers,
                          const size_t *offsets, void *workspace, size_t workspace_at,
                          const wb__number *numbers);
bool wb__gpu_supports_step(const wb_device *base, const wb__step *step);
bool wb__gpu_prefers_channels_last(const wb_device *base, const wb__step *conv);

/* With the device entered: creates a kernel of the launches `work`, which the kernel owns, also on
 * failure.  After a failure the caller frees *kernel, which may be incomplete or NULL. */
int wb__gpu_kernel_of(wb__gpu_device *d, const wb__step *step, wb__gpu_work *work,
                      wb__gpu_kernel **kernel);
void wb__gpu_kernel_free(wb__gpu_device *d, wb__gpu_kernel *k);

/* With the device's lock held: puts one launch of a kernel, or the kernel's routine, on a queue. */
int wb__gpu_enqueue(wb__gpu_device *d, const wb__gpu_kernel *k, wb__gpu_bound_launch *p,
                    wb__gpu_queue q, const wb__gpu_addresses *at);
int wb__gpu_launch_routine(wb__gpu_device *d, const wb__gpu_kernel *k, wb__gpu_queue q,
                           const wb__gpu_addresses *at);

int wb__gpu_perform_collective(const wb_device *base, const struct wb__collective *c);

/* ---- tiles.c --------------------------------------------------------------------------------- */

/* With the device entered: if timing finds that another tile of a product is faster, replaces
 * *work.  A failure leaves *work as it is, and no error. */
void wb__gpu_choose_tile(wb__gpu_device *d, const wb__step *step, wb__gpu_work **work);

/* ---- split.c --------------------------------------------------------------------------------- */

/* A fused step in place of an epilogue, with the arrays to which the step's pointers point. */
typedef struct {
    wb__step step;
    wb__instr instr[5];
    wb__view views[2];
    wb__space space;                    /* the dimensions that the fused step runs over */
} wb__gpu_rest;
/* Splits a step into `bare`, without the epilogue, and `rest`, which applies the epilogue in place.
 * If bare_of_bias is true or the step is a convolution's input gradient, `rest` also adds the bias.
 * false: the step is not split. */
bool wb__gpu_split_epilogue(const wb__step *step, bool bare_of_bias, wb__step *bare,
                            wb__gpu_rest *rest);

/* Whether a view of a picture is dense, as NCHW or with the channels last, as NHWC.  Dimensions of
 * size 1 may have any stride. */
bool wb__gpu_is_dense(const wb__view *v, bool channels_last);
/* Whether the last two dimensions of a view are a matrix with contiguous rows, possibly transposed;
 * *row: elements from one row to the next. */
bool wb__gpu_is_matrix(const wb__view *v, bool *transposed, int64_t *row);
/* Whether the batch dimensions of a product's three views can be merged into one of size *batch.
 * step[i]: stride of the merged dimension in view i, in elements; not set if *batch is 1. */
bool wb__gpu_merge_batch(const wb__view *v, int64_t *step, int64_t *batch);

/* ---- graph.c, table.c ------------------------------------------------------------------------ */

bool wb__gpu_runs_branches(const wb_device *base);
int wb__gpu_record_graph(const wb_device *base, const wb__sequence *s, wb__graph **graph);
void wb__gpu_graph_free(const wb_device *base, wb__graph *graph);
int wb__gpu_graph_run(const wb_device *base, wb__graph *graph, void *const *buffers,
                      const size_t *offsets, const wb__number *numbers);

/* Launches of one kernel, combined into one launch.  The table, in device memory, has a row for
 * each: its buffer addresses, argument struct, and first group index in the combined launch. */
typedef struct {
    const wb__gpu_kernel *kernel;
    int n, *row_launch;         /* number of rows; index in kernel->launches of each row */
    wb__gpu_program *program;
    void *function;             /* the driver's kernel, which finds its row by its group index */
    size_t at, row_bytes;       /* offset in the block of tables; size of a row; in bytes */
    uint32_t groups;            /* groups of the combined launch */
} wb__gpu_table;

/* A word of the tables that is written before each run.  at: index of this word in the block; word:
 * index of the word with its value in the converted numbers, which have two words each. */
typedef struct { uint32_t at, word; } wb__gpu_table_word;

/* The tables of a sequence, in the order of the kernels, in one block of memory.  Some words of the
 * tables are numbers of the plan, which a small kernel writes before each run.  The block ends with
 * a list of wb__gpu_table_word, the places of these words. */
typedef struct {
    int n, capacity, n_targets; /* elements of `table`, in use and in all; elements of `target` */
    wb__gpu_table *table;
    wb__gpu_table_word *target; /* sorted by word */
    size_t list_at, bytes;      /* byte offset of the list in the block; bytes of the block */
    wb__gpu_launch words;       /* never launched; wb__gpu_fill_args converts the numbers with it */
    wb__gpu_program *program;   /* the program that writes the words */
    void *function;
    unsigned char *args;        /* the argument struct of this program */
} wb__gpu_tables;

/* Creates the tables, with the device entered.  Returns 0, or an error.  WB_ERROR_UNSUPPORTED,
 * without a message: a written kernel uses numbers of the plan, or the block is too large. */
int wb__gpu_tables_make(wb__gpu_device *d, const wb__sequence *s, wb__gpu_tables *t);
void wb__gpu_tables_free(wb__gpu_device *d, wb__gpu_tables *t);
/* Writes the contents of the block of tables, with the addresses of `at`, to host memory. */
void wb__gpu_tables_fill(const wb__gpu_tables *t, const wb__gpu_addresses *at,
                         unsigned char *block);
/* Called with the device's lock held.  wb__gpu_tables_write enqueues, on the compute queue, the
 * kernel that writes the numbers into the block.  wb__gpu_table_launch enqueues a table on q. */
int wb__gpu_tables_write(wb__gpu_device *d, wb__gpu_tables *t, uint64_t block,
                         const wb__number *numbers);
int wb__gpu_table_launch(wb__gpu_device *d, const wb__gpu_table *t, uint64_t block,
                         wb__gpu_queue q);

#include "backend/gpu/runtime/vendor.h"

#endif
