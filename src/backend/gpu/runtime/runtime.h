/* The runtime shared by all backends that compile kernel text for a GPU.
 *
 *   device.c     starting and stopping, opening devices, lost devices, fork, error messages
 *   memory.c     the caching allocator, the memory limit, size classes
 *   transfer.c   the order of commands; uploads, downloads, copies within and between devices
 *   program.c    compiled programs, in memory and on disk
 *   kernel.c     prepares steps (by a vendor library or from text) and launches them
 *   vendor.c     vendor libraries: opening, handles, cached algorithms
 *   split.c      splits a step into a part for a library and a kernel for the rest
 *   graph.c      plans recorded as one command, if the driver supports it
 *   table.c      kernel arguments in device memory, for graphs: many segments in one launch
 *
 * A backend is a driver: a table of functions, most of which are one call of the vendor's API
 * (wb__gpu_driver).  A vendor library that executes whole steps is a table of functions too
 * (wb__gpu_hook). */
#ifndef WB__GPU_RUNTIME_H
#define WB__GPU_RUNTIME_H

#include "backend/gpu/gpu.h"

#include <pthread.h>

typedef struct wb__gpu_device wb__gpu_device;
typedef struct wb__gpu_driver wb__gpu_driver;
typedef struct wb__gpu_vendor_state wb__gpu_vendor_state;
typedef struct wb__gpu_vendor wb__gpu_vendor;

/* ---- memory ---------------------------------------------------------------------------------- */

/* The memory handle that the engine receives.  Commands of the compute queue are numbered, and so
 * are uploads; memory records the last of each that used it. */
typedef struct wb__gpu_memory {
    uint64_t at;                /* its address, or the driver's object cast to an integer */
    size_t bytes;
    uint64_t serial;            /* unique in the process */
    uint64_t used;              /* number of the last compute command that uses this memory */
    uint64_t uploaded;          /* number of the last upload into this memory; 0: none */
    struct wb__gpu_memory *next;        /* next in the list of free blocks */
} wb__gpu_memory;

/* Blocks are rounded up to one of eight sizes per power of two.  Released blocks are kept by size
 * class. */
enum { WB__GPU_SIZE_CLASSES = 320 };
typedef struct {
    struct { wb__gpu_memory *first, *last; } free[WB__GPU_SIZE_CLASSES];
    int64_t limit, used, peak, cached;      /* in bytes */
} wb__gpu_cache;

/* Pinned memory for staged transfers, in two halves: one half is copied by the host while the other
 * is transferred.  Uploads also have some small buffers, so that a small upload does not wait for a
 * large one. */
enum { WB__GPU_HALF = 4 << 20, WB__GPU_SMALL = 64 << 10 };
typedef struct {
    pthread_mutex_t lock;
    unsigned char *at;          /* NULL: not allocated yet */
    void *object;               /* the driver's object */
    void *event[2];             /* reached when a half's last transfer has ended */
    bool busy[2];
    int next;
} wb__gpu_staging;

/* ---- devices --------------------------------------------------------------------------------- */

/* Each queue of a device executes its commands in order; different queues run concurrently.  The
 * last queue executes nothing: graphs are recorded on it.  A driver without graphs has only the
 * first three. */
typedef enum {
    WB__GPU_COMPUTE, WB__GPU_UP, WB__GPU_DOWN, WB__GPU_RECORDING, WB__GPU_QUEUES
} wb__gpu_queue;

/* An event, and the number of the last command or upload before it. */
typedef struct { void *event; uint64_t count; } wb__gpu_mark;

enum { WB__GPU_MAX_DEVICES = 64, WB__GPU_MARKS = 16 };

typedef struct wb__gpu_program {
    struct wb__gpu_program *next;
    /* last: the value of the table's clock when the last user released the program */
    uint64_t hash, last;
    int users, flags;
    void *object;               /* the driver's program */
    char text[];
} wb__gpu_program;

enum { WB__GPU_BUCKETS = 256 };
typedef struct {
    pthread_mutex_t lock;       /* guards the fields below and the driver's compiler */
    wb__gpu_program *program[WB__GPU_BUCKETS];
    uint64_t clock;
    int idle;
} wb__gpu_programs;

/* The base of a driver's device struct. */
struct wb__gpu_device {
    wb_device base;             /* set by the runtime */
    const wb__gpu_driver *driver;

    /* Set by the driver's `find`. */
    char name[128], about[256]; /* the manufacturer's name; a description for the log */
    const char *kind;           /* "gpu", "accelerator" or "cpu"; programs choose devices by it */
    char maker[384];  /* names what compiles: part of the key of a program kept on disk */
    wb__gpu_target target;
    /* in bytes: the device's memory; the largest block that it allocates, 0: no limit of its own */
    int64_t total, most;
    bool staged;                /* transfers go through pinned memory */
    bool keeps_images;          /* compiled images are kept on disk */
    bool graphs;                /* the driver can record commands */
    bool allocates_in_order;    /* only commands issued after an allocation may use its block */

    bool debug_sync;
    pthread_mutex_t opening;
    _Atomic bool open;
    _Atomic int holders;        /* kernels, graphs and adopted memory that are not freed yet */

    /* Set when the device has become unusable. */
    pthread_mutex_t losing;
    _Atomic bool lost;
    char lost_because[440];

    pthread_mutex_t lock;       /* guards the order on queues, and fields below that lack a lock */
    /* commands of the compute queue: issued; completed, as far as checked */
    uint64_t issued, completed;
    /* uploads issued, and the last one that the compute queue waits for */
    uint64_t uploads, awaited;
    wb__gpu_mark mark[WB__GPU_MARKS], upload[WB__GPU_MARKS];    /* ring buffers */
    uint64_t marks, marks_reached;  /* marks created; marks reached, as far as checked */
    int waiting, flush_interval;  /* commands since the last flush; commands between flushes */
    int failed;                 /* code of a failed command that is not reported yet; 0: none */
    wb__gpu_cache cache;

    wb__gpu_staging to, from;   /* staging for uploads; for downloads */
    wb__gpu_programs programs;
    wb__gpu_vendor_state *vendor_states;  /* handles of vendor libraries */
};

/* ---- drivers --------------------------------------------------------------------------------- */

/* Properties of an error code. */
typedef enum {
    WB__GPU_ERROR_MEMORY = 1,   /* out of memory: reported as WB_ERROR_MEMORY */
    WB__GPU_ERROR_FULL = 2,     /* an allocation failed that may succeed without the cache */
    WB__GPU_ERROR_LOST = 4      /* the driver rejects all further calls for the device */
} wb__gpu_error;

/* The name of the vendor's function that this thread called last; drivers set it before a call. */
extern _Thread_local const char *wb__gpu_call;

typedef struct wb__gpu_hook wb__gpu_hook;

/* The state of a backend. */
typedef struct {
    pthread_mutex_t starting;
    bool started;
    _Atomic bool guarded, child;        /* a fork handler is set; this process is a forked child */
    int n;
    wb__gpu_device *device[WB__GPU_MAX_DEVICES];
} wb__gpu_state;

/* A function marked "code" returns the vendor's code, 0 for success, and sets wb__gpu_call.  A
 * function marked "status" returns an error code of Weber with the error set.  From `allocate` on,
 * the device is open and current.  Commands are put on queues while the device's lock is held, but
 * some transfers without it.  `event`: receives the event of the command; NULL: none is needed. */
struct wb__gpu_driver {
    const wb__backend *backend;
    wb__gpu_state *state;
    int dlpack;                 /* the device type in DLPack */
    bool objects;               /* memory is an object of the driver, not an address */
    bool oldest_first;          /* reuse the block that was released first */
    const char *choosing;       /* the environment variable that selects devices; or NULL */
    const wb__gpu_hook *const *libraries;       /* NULL-terminated; NULL: none */

    /* status.  load opens the vendor's library.  find lists the n devices; none is opened yet. */
    int (*load)(void);
    int (*find)(wb__gpu_device **list, int *n);
    void (*forget)(void);  /* called after the last device was closed; or NULL */
    int (*open)(wb__gpu_device *d);             /* status: creates queues and other resources */
    void (*close)(wb__gpu_device *d);
    /* code: makes the device current for this thread; enter and leave may be NULL */
    int (*enter)(wb__gpu_device *d);
    void (*leave)(void);

    const char *(*error_name)(int code);
    int (*error_kind)(int code);                /* a bit set of wb__gpu_error */
    /* Writes the driver's own error message, if it has one; d may be NULL. */
    void (*error_text)(wb__gpu_device *d, int code, char *text, size_t capacity);

    int (*allocate)(wb__gpu_device *d, size_t bytes, uint64_t *at);     /* code; lock not held */
    void (*release)(wb__gpu_device *d, uint64_t at);                    /* lock held */
    void (*trim)(wb__gpu_device *d);            /* called after releases; or NULL */
    int (*memory_left)(wb__gpu_device *d, size_t *bytes);               /* code; or NULL */
    int (*pin)(wb__gpu_device *d, wb__gpu_staging *s, size_t bytes);    /* code */
    void (*unpin)(wb__gpu_device *d, wb__gpu_staging *s);

    /* code: copy between host and device.  With `wait`, they return when the copy is done; without,
     * at once, and the host memory is pinned. */
    int (*up)(wb__gpu_device *d, wb__gpu_queue q, uint64_t to, size_t at, const void *from,
              size_t bytes, bool wait);
    int (*down)(wb__gpu_device *d, wb__gpu_queue q, void *to, uint64_t from, size_t at,
                size_t bytes, bool wait);
    /* Whether `d` can copy from the memory of `source`; NULL: always. */
    bool (*reaches)(const wb__gpu_device *d, const wb__gpu_device *source);
    /* code: enqueues on the compute queue of d. */
    int (*copy)(wb__gpu_device *d, uint64_t to, size_t to_at, wb__gpu_device *source, uint64_t from,
                size_t from_at, size_t bytes, void **event);

    int (*new_event)(void **event);             /* code; NULL: record creates events */
    void (*drop_event)(void *event);
    int (*record)(wb__gpu_device *d, wb__gpu_queue q, void **event);    /* code */
    int (*wait_event)(wb__gpu_device *d, wb__gpu_queue q, void *event); /* code: the queue waits */
    int (*sync_event)(void *event);             /* code: the host waits */
    /* Whether the event was reached, and the error code of its command; NULL: never called. */
    bool (*done)(void *event, int *ended);
    int (*flush)(wb__gpu_device *d);  /* code: flushes the compute queue; NULL: not needed */
    int (*sync)(wb__gpu_device *d, wb__gpu_queue q);    /* code: waits for the whole queue */

    /* Writes the compiler options to try next.  false: none are left, and the error is set. */
    bool (*options)(wb__gpu_device *d, int flags, char *text, size_t capacity);
    /* status.  *image: the caller frees it; NULL: none.  WB_ERROR_UNSUPPORTED: try other
     * options. */
    int (*compile)(wb__gpu_device *d, const char *text, const char *options, void **program,
                   void **image, size_t *bytes);
    int (*load_image)(wb__gpu_device *d, const void *image, size_t bytes, const char *options,
                      void **program);          /* code */
    void (*unload)(wb__gpu_device *d, void *program);
    /* code: finds a kernel of a program, and the largest number of items of its groups. */
    int (*function)(wb__gpu_device *d, void *program, const char *entry, void **function,
                    size_t *max_items);
    void (*drop_function)(void *function);      /* or NULL */
    /* code: sets an argument for the function's next launches; NULL: arguments are passed at the
     * launch. */
    int (*bind)(void *function, int index, size_t bytes, const void *value);
    int (*launch)(wb__gpu_device *d, wb__gpu_queue q, void *function, const uint32_t groups[3],
                  const uint32_t items[3], void **arguments, void **event);     /* code */

    /* code; NULL: the driver cannot record commands.  Commands are recorded on WB__GPU_RECORDING; a
     * recording is instantiated as a graph and dropped; a graph can run any number of times. */
    int (*record_begin)(wb__gpu_device *d);
    int (*record_end)(wb__gpu_device *d, void **recorded);
    int (*instantiate)(void *recorded, void **graph);
    int (*run)(wb__gpu_device *d, void *graph);
    void (*drop_recorded)(void *recorded);
    void (*drop_graph)(void *graph);
};

/* ---- vendor libraries ------------------------------------------------------------------------ */

typedef struct wb__gpu_addresses wb__gpu_addresses;

/* A step prepared by a library; the library's own struct begins with it.  Its launch must be
 * recordable, so it allocates nothing on the device: its only memory beside the buffers is the
 * workspace. */
typedef struct {
    const wb__gpu_hook *library;
    const char *impl;           /* for the printed plan: the library and the epilogue */
    size_t workspace;
} wb__gpu_routine;

/* supports, prepare, launch, destroy and prefers_channels_last are called with the device entered
 * and its lock held. */
struct wb__gpu_hook {
    unsigned kinds;             /* bit set of wb__step_kind */
    bool bare;                  /* the library adds no bias and no epilogue */
    /* the library, which is opened before any call; NULL: `prepare` checks whether it is usable */
    wb__gpu_vendor *vendor;
    /* Whether the library supports the step's epilogue, sums or attention (`supports` of
     * wb__backend); or NULL. */
    bool (*supports)(wb__gpu_device *d, const wb__step *step);
    /* Returns 0; WB_ERROR_UNSUPPORTED without a message if the library does not support the step,
     * with a short reason in *reason; or another error code. */
    int (*prepare)(wb__gpu_device *d, const wb__step *step, wb__gpu_routine **r,
                   const char **reason);
    /* status: enqueues the step, and counts the commands that it put on the compute queue. */
    int (*launch)(wb__gpu_device *d, wb__gpu_routine *r, wb__gpu_queue q,
                  const wb__gpu_addresses *at);
    void (*destroy)(wb__gpu_device *d, wb__gpu_routine *r);
    bool (*prefers_channels_last)(wb__gpu_device *d, const wb__step *conv);  /* or NULL */
};

/* The memory of a launch's buffers, by the plan's buffer index.  The workspace begins at byte
 * workspace_at of `workspace`. */
struct wb__gpu_addresses {
    const uint64_t *address;            /* address of each buffer, for drivers with addresses */
    void *const *buffers;               /* the memory handle of each buffer */
    const size_t *offsets;  /* the byte of its memory at which each buffer begins; NULL: 0 */
    wb__gpu_memory *memory;             /* the workspace's memory, for drivers with objects */
    uint64_t workspace;
    size_t workspace_at;
    const wb__number *numbers;
};

/* ---- device.c -------------------------------------------------------------------------------- */

/* The functions of wb__backend that have no device parameter, and has_dtype. */
int wb__gpu_start(const wb__gpu_driver *v);
void wb__gpu_stop(const wb__gpu_driver *v);
int wb__gpu_count(const wb__gpu_driver *v);
const wb_device *wb__gpu_device_at(const wb__gpu_driver *v, int ordinal);
bool wb__gpu_has_dtype(const wb_device *base, wb_dtype t);

/* For a backend's file: the first macro defines start, stop, count and device for its driver; the
 * second lists the entries that the wb__backend tables of all GPU backends share. */
#define WB__GPU_WRAPPERS(driver)                                                                   \
    static int start(void) { return wb__gpu_start(&(driver)); }                                    \
    static void stop(void) { wb__gpu_stop(&(driver)); }                                            \
    static int count(void) { return wb__gpu_count(&(driver)); }                                    \
    static const wb_device *device(int ordinal) { return wb__gpu_device_at(&(driver), ordinal); }
#define WB__GPU_FUNCTIONS                                                                          \
    .is_gpu = true, .start = start, .stop = stop, .count = count, .device = device,                \
    .has_dtype = wb__gpu_has_dtype, .memory = wb__gpu_memory_of, .allocate = wb__gpu_allocate,     \
    .release = wb__gpu_release, .trim = wb__gpu_trim, .upload = wb__gpu_upload,                    \
    .download = wb__gpu_download, .copy = wb__gpu_copy, .prepare = wb__gpu_prepare,                \
    .destroy = wb__gpu_destroy, .launch = wb__gpu_launch_kernel, .wait = wb__gpu_wait,             \
    .prefers_channels_last = wb__gpu_prefers_channels_last, .share = wb__gpu_share

/* Reports a driver's error as an error of Weber: "tag:0: function: ERROR_NAME (700): the request;
 * the driver reports: message".  The function is wb__gpu_call.  d may be NULL; otherwise a fatal
 * error marks the device as lost. */
int wb__gpu_fail(const wb__gpu_driver *v, wb__gpu_device *d, int code, const char *format, ...)
    WB__PRINTF(4, 5);

/* A forked child must not call the driver.  Returns an error in a child, else 0. */
int wb__gpu_check_fork(const wb__gpu_driver *v);
static inline bool wb__gpu_is_child(const wb__gpu_device *d) { return d->driver->state->child; }

/* Opens the device if necessary and makes it current; 0, or an error (then do not call leave).
 * enter_to_release is for functions that only free: it sets no error, and returns whether to call
 * leave. */
int wb__gpu_enter(wb__gpu_device *d);
bool wb__gpu_enter_to_release(wb__gpu_device *d);
void wb__gpu_leave(wb__gpu_device *d);

/* ---- memory.c -------------------------------------------------------------------------------- */

/* The number of bytes that WEBER_MEMORY_LIMIT allows out of `total`; 0, or an error whose message
 * begins with `tag`. */
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
int wb__gpu_copy(const wb_device *base, void *to, size_t to_at, const wb_device *from_device,
                 const void *from, size_t from_at, size_t bytes);
int wb__gpu_wait(const wb_device *base);
void wb__gpu_free_staging(wb__gpu_device *d, wb__gpu_staging *s);
int wb__gpu_make_events(wb__gpu_device *d);
void wb__gpu_drop_events(wb__gpu_device *d);

/* With the lock held.  uses: the compute queue's next command will use this memory, and the queue
 * waits for its upload.  next_event: the address for the next command's event; NULL: it needs none.
 * issued: the command was put on the compute queue.  mark_now: creates an event after all commands
 * so far; NULL: the error is set. */
int wb__gpu_uses(wb__gpu_device *d, wb__gpu_memory *m);
void **wb__gpu_next_event(wb__gpu_device *d);
void wb__gpu_issued(wb__gpu_device *d, void **event);
wb__gpu_mark *wb__gpu_mark_now(wb__gpu_device *d);

/* ---- program.c ------------------------------------------------------------------------------- */

/* Macros defined before the prelude. */
typedef enum { WB__GPU_PLAIN = 0, WB__GPU_F64 = 1, WB__GPU_TABLE = 2 } wb__gpu_flags;

/* The program of a text: from memory, from disk or compiled.  The caller releases it with put,
 * which accepts NULL. */
wb__gpu_program *wb__gpu_program_get(wb__gpu_device *d, const char *text, int flags);
void wb__gpu_program_put(wb__gpu_device *d, wb__gpu_program *p);
void wb__gpu_programs_free(wb__gpu_device *d);
/* Finds a kernel of the program for groups of this size.  Returns 0, or an error. */
int wb__gpu_function_of(wb__gpu_device *d, const wb__gpu_program *p, const char *entry,
                        const uint32_t items[3], void **function);
/* With WEBER_DEBUG=kernel, logs a text that does not compile and the compiler's messages. */
void wb__gpu_log_build(const wb__gpu_device *d, const char *text, const char *message);

/* ---- kernel.c -------------------------------------------------------------------------------- */

/* A launch of a kernel. */
typedef struct {
    const wb__gpu_launch *launch;
    wb__gpu_program *program;
    void *function;
    bool changes;               /* the argument struct may differ from launch to launch */
    bool set;                   /* the struct has been bound */
    unsigned char *args, *next; /* the struct of the last launch; room for the next one */
    uint64_t *address;          /* of buffers; of a driver with `bind`: serials of bound memory */
    void **argument;            /* pointers to these addresses and to the struct */
} wb__gpu_bound_launch;

typedef struct {
    wb__kernel base;
    wb__gpu_routine *routine;   /* runs before the launches; NULL: none */
    int n_buffers;              /* highest buffer index of the step, plus one */
    int n_used, *used;          /* the indices of the buffers that it uses */
    uint64_t *address;          /* address of each buffer, at the launch */
    wb__gpu_work *work;         /* NULL: the routine does everything */
    char what[160];             /* describes the step in errors */
    int n;
    wb__gpu_bound_launch launches[];
} wb__gpu_kernel;

int wb__gpu_prepare(const wb_device *base, const wb__step *step, wb__kernel **kernel);
void wb__gpu_destroy(const wb_device *base, wb__kernel *kernel);
int wb__gpu_launch_kernel(const wb_device *base, const wb__kernel *kernel, void *const *buffers,
                          const size_t *offsets, void *workspace, size_t workspace_at,
                          const wb__number *numbers);
bool wb__gpu_supports_step(const wb_device *base, const wb__step *step);
bool wb__gpu_prefers_channels_last(const wb_device *base, const wb__step *conv);

/* With the lock held: puts one launch of a kernel, or its routine, on a queue. */
int wb__gpu_enqueue(wb__gpu_device *d, const wb__gpu_kernel *k, wb__gpu_bound_launch *p,
                    wb__gpu_queue q, const wb__gpu_addresses *at);
int wb__gpu_launch_routine(wb__gpu_device *d, const wb__gpu_kernel *k, wb__gpu_queue q,
                           const wb__gpu_addresses *at);

/* ---- vendor.c -------------------------------------------------------------------------------- */

/* A function of a vendor library, and the offset of its pointer in a table.  find_functions
 * fills the table; returns NULL, or the first name that the library lacks, whose pointer is set
 * to NULL. */
typedef struct { const char *name; size_t at; } wb__gpu_function;
const char *wb__gpu_find_functions(void *library, const wb__gpu_function *list, size_t n, void *to);

/* Opens a driver's library.  *file: its name, from an environment variable or the default.  NULL:
 * failed, with an error that ends with `advice`. */
void *wb__gpu_open_library(const char *tag, const char *variable, const char *usual,
                           const char *advice, const char **file);

/* A library's file name, and the major version of the vendor's toolkit that it belongs to; 0:
 * unknown.  A list ends with NULL. */
typedef struct { const char *name; int major; } wb__gpu_file;

/* Where to look for a vendor's files: in the folder of an environment variable, in the system's
 * library path, and in further folders. */
typedef struct {
    const char *tag, *variable, *folders[2];    /* NULL: none */
    const int *version;         /* the toolkit version of the driver, 1000 * major; NULL: any */
} wb__gpu_search;

/* Opens the first file of the list that can be opened.  In each folder, versions that are not newer
 * than the driver's come first, in the order of the list, then newer ones.  *from: 0 at first; each
 * call advances it for the next one.  NULL: no further file; `reason` has dlopen's message. */
void *wb__gpu_open_next(const wb__gpu_search *s, const wb__gpu_file *files, int *from, char *reason,
                        size_t capacity);

/* A cached result for a problem, such as an algorithm; the library's own struct begins with it, and
 * the problem follows. */
typedef struct wb__gpu_entry {
    struct wb__gpu_entry *next;
    int holders;                /* number of routines that use it */
    bool found;                 /* false: the library has no solution */
    bool refused;               /* failed at a launch: never tried a second time */
} wb__gpu_entry;

/* Reasons why a library does not execute a step, for the printed plan. */
enum { WB__GPU_UNUSED, WB__GPU_NO_HANDLE, WB__GPU_NOTHING, WB__GPU_REFUSED, WB__GPU_REASONS };
enum { WB__GPU_MAX_FUNCTIONS = 24 };

/* A vendor library.  It is opened at the first use. */
struct wb__gpu_vendor {
    const char *name, *variable;  /* an environment variable that disables it with 0; or NULL */
    const char *advice;                     /* how to install it */
    const wb__gpu_search *search;
    const wb__gpu_file *files;
    const wb__gpu_function *functions;
    size_t n_functions;
    void *table;                            /* the function table */
    /* Whether a version is suitable, given its table and the first function that it lacks; if not,
     * `reason` explains it. */
    bool (*suits)(const void *table, const char *missing, char *reason, size_t capacity);

    /* For a library with cached problems: handles, status codes, entries.  find fills an entry for
     * its problem; 0, or an error.  drop frees the contents of an entry; or NULL. */
    const char *creating;                   /* the name of the call that creates a handle */
    int (*create)(void **handle);           /* the library's status, 0 for success */
    void (*destroy)(void *handle);
    const char *(*status_name)(int status);
    bool (*is_memory)(int status);
    /* the library's own message about the last error; or NULL */
    void (*last_message)(char *text, size_t capacity);
    size_t entry_bytes, problem_bytes;
    int (*find)(wb__gpu_device *d, const wb__gpu_vendor *l, void *handle, wb__gpu_entry *e);
    void (*drop)(wb__gpu_entry *e);
    const char *reasons[WB__GPU_REASONS];

    pthread_mutex_t lock;                   /* guards the fields below, which the runtime sets */
    bool searched, works, version_fixed;    /* version_fixed: some device has a handle */
    _Atomic bool missing_logged, warned;    /* logged: no library was found; no handle was made */
    int from;
    char reason[600];
};

/* A device's handle of a library, and its cached problems. */
struct wb__gpu_vendor_state {
    wb__gpu_vendor_state *next;
    wb__gpu_vendor *library;
    void *handle;               /* NULL: could not be created */
    wb__gpu_entry *first;       /* newest first */
    int n;
    bool refusal_logged;        /* a refusal was logged */
};

bool wb__gpu_vendor_works(wb__gpu_vendor *l);         /* opens it once; false with the error set */
/* The same without an error.  If the library is not disabled but does not work, a warning is logged
 * once. */
bool wb__gpu_vendor_usable(wb__gpu_vendor *l);
void wb__gpu_vendors_close(wb__gpu_device *d);
/* For usable libraries, with the device's lock held.  handle: NULL without an error if none can be
 * created.  entry_of: NULL with *error and *reason, as `prepare` of a hook. */
void *wb__gpu_vendor_handle(wb__gpu_device *d, wb__gpu_vendor *l);
wb__gpu_entry *wb__gpu_entry_of(wb__gpu_device *d, wb__gpu_vendor *l, const void *problem,
                                const char **reason, int *error);
/* Report a failed call of the library.  fail sets an error, and returns its code.  note, for calls
 * while planning, only logs it with WEBER_DEBUG=dispatch, as our own kernels replace the
 * library. */
int wb__gpu_vendor_fail(const wb__gpu_device *d, const wb__gpu_vendor *l, int status,
                         const char *call);
void wb__gpu_vendor_note(const wb__gpu_device *d, const wb__gpu_vendor *l, int status,
                          const char *call);
/* Reports a call that failed at a launch.  If the device failed too, returns that error;
 * otherwise WB_ERROR_UNSUPPORTED, and the entry is not used again.  A library's first refusal is
 * a warning. */
int wb__gpu_entry_refused(wb__gpu_device *d, wb__gpu_vendor *l, wb__gpu_entry *e, int status,
                          const char *call);

/* ---- split.c --------------------------------------------------------------------------------- */

/* Splits a step.  `bare` lacks the epilogue, and the bias if bare_of_bias is true or the step is a
 * convolution's input gradient; `rest` applies them in place.  false: there is nothing to split. */
typedef struct {
    wb__step step;
    wb__instr instr[5];
    wb__view views[2];
    wb__space space;
} wb__gpu_rest;
bool wb__gpu_split(const wb__step *step, bool bare_of_bias, wb__step *bare, wb__gpu_rest *rest);

/* Whether the last two dimensions of a view are a matrix with contiguous rows, possibly transposed;
 * *row: elements from one row to the next. */
bool wb__gpu_matrix(const wb__view *v, bool *transposed, int64_t *row);
/* Whether the batch dimensions of a product's three views merge into one of size *batch, with
 * step[i] in view i, in elements; step is set only if there are batch dimensions. */
bool wb__gpu_batch(const wb__view *v, int64_t *step, int64_t *batch);

/* ---- graph.c, table.c ------------------------------------------------------------------------ */

int wb__gpu_graph(const wb_device *base, const wb__sequence *s, wb__graph **graph);
void wb__gpu_graph_free(const wb_device *base, wb__graph *graph);
int wb__gpu_graph_run(const wb_device *base, wb__graph *graph, void *const *buffers,
                      const size_t *offsets, const wb__number *numbers);

/* One or several launches of one kernel combined into one.  Each row of the table, in device
 * memory, holds the buffer addresses, the argument struct and the first group of one launch. */
typedef struct {
    const wb__gpu_kernel *kernel;
    int n, *row_launch;         /* the indices of the kernel's launches that are its rows */
    wb__gpu_program *program;
    void *function;
    size_t at, row_bytes;       /* offset in the block; size of a row */
    uint32_t groups;
} wb__gpu_table;

/* word: the index of a 32-bit word in the list of converted numbers, which has two words per
 * number; at: the index of the word of the block that gets it. */
typedef struct { uint32_t at, word; } wb__gpu_table_word;

/* The tables of a sequence, in the order of its kernels, in one block of memory.  Some words of the
 * tables are numbers of the plan; a small kernel writes them before each run.  A list after the
 * tables has their places (wb__gpu_table_word). */
typedef struct {
    int n, capacity, n_targets;
    wb__gpu_table *table;
    wb__gpu_table_word *target; /* sorted by word */
    size_t list_at, bytes;      /* in bytes: the list's offset in the block; the block's size */
    wb__gpu_launch words;       /* lists the numbers for wb__gpu_fill, which makes words */
    wb__gpu_program *program;   /* the program that writes the words */
    void *function;
    unsigned char *args;        /* its arguments */
} wb__gpu_tables;

/* Returns 0, an error, or WB_ERROR_UNSUPPORTED without a message: a written kernel has numbers of
 * the plan, or the block is too large.  The device must be entered. */
int wb__gpu_tables_make(wb__gpu_device *d, const wb__sequence *s, wb__gpu_tables *t);
void wb__gpu_tables_free(wb__gpu_device *d, wb__gpu_tables *t);
/* Writes the contents of the block to host memory, with the addresses of `at`. */
void wb__gpu_tables_fill(const wb__gpu_tables *t, const wb__gpu_addresses *at,
                         unsigned char *block);
/* Called with the lock held.  write enqueues the kernel that writes the numbers into the block, on
 * the compute queue.  launch enqueues a table. */
int wb__gpu_tables_write(wb__gpu_device *d, wb__gpu_tables *t, uint64_t block,
                         const wb__number *numbers);
int wb__gpu_table_launch(wb__gpu_device *d, const wb__gpu_table *t, uint64_t block,
                         wb__gpu_queue q);

#endif
