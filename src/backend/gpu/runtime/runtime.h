/* The runtime of every backend that compiles text for a GPU.
 *
 *   device.c     starting and stopping, opening devices, lost devices, fork, messages
 *   memory.c     the caching allocator, the limit, sizes
 *   transfer.c   the order of commands, uploads, downloads, copies within and between devices
 *   program.c    compiled texts, in memory and on disk
 *   kernel.c     steps prepared and launched, by a vendor's library or as text
 *   vendor.c     libraries of vendors opened, with their handles and what they have for problems
 *   split.c      a step without what a library does not do, and the rest in place; matrices
 *   graph.c      plans as one command, where the driver records its commands
 *   table.c      in graphs: arguments in the device's memory, many segments as one launch
 *
 * A backend is a driver: one table of functions, below, of which most are one call of the vendor's.
 * A library of a vendor's that does whole steps is a table of functions too (wb__gpu_hook). */
#ifndef WB__GPU_RUNTIME_H
#define WB__GPU_RUNTIME_H

#include "backend/gpu/gpu.h"

#include <pthread.h>

typedef struct wb__gpu_device wb__gpu_device;
typedef struct wb__gpu_driver wb__gpu_driver;
typedef struct wb__gpu_held wb__gpu_held;
typedef struct wb__gpu_vendor wb__gpu_vendor;

/* ---- memory ---------------------------------------------------------------------------------- */

/* The engine's handle.  Commands of the compute queue are counted, and so are uploads: memory
 * remembers the last of either that used it. */
typedef struct wb__gpu_memory {
    uint64_t at;                /* its address, or the driver's object as a number */
    size_t bytes;
    uint64_t serial;            /* no other memory of the process had this number */
    uint64_t used;              /* the last command of the compute queue that uses it */
    uint64_t uploaded;          /* the last upload into it that may still be on its way */
    struct wb__gpu_memory *next;        /* in the cache */
} wb__gpu_memory;

/* Blocks are rounded up to one of eight sizes an octave and are kept by size when released. */
enum { WB__GPU_SIZE_CLASSES = 320 };
typedef struct {
    struct { wb__gpu_memory *first, *last; } free[WB__GPU_SIZE_CLASSES];
    int64_t limit, used, peak, cached;      /* bytes */
} wb__gpu_cache;

/* Pinned memory that data pass through, in two halves: while one is copied, the other travels.
 * Behind those for uploads there are some small pieces, so that none waits for a large one. */
enum { WB__GPU_HALF = 4 << 20, WB__GPU_SMALL = 64 << 10 };
typedef struct {
    pthread_mutex_t lock;
    unsigned char *at;          /* NULL: not made yet */
    void *object;               /* the driver's */
    void *event[2];             /* the last transfer of each half */
    bool busy[2];
    int next;
} wb__gpu_staging;

/* ---- devices --------------------------------------------------------------------------------- */

/* A device's queues run in order, each beside the others.  Nothing runs on the last: graphs are
 * recorded there.  A driver without graphs has the first three. */
typedef enum {
    WB__GPU_COMPUTE, WB__GPU_UP, WB__GPU_DOWN, WB__GPU_RECORDING, WB__GPU_QUEUES
} wb__gpu_queue;

/* An event and the number of the last command or upload before it. */
typedef struct { void *event; uint64_t count; } wb__gpu_mark;

enum { WB__GPU_MOST_DEVICES = 64, WB__GPU_MARKS = 16 };

typedef struct wb__gpu_program {
    struct wb__gpu_program *next;
    uint64_t hash, last;        /* last: when it was given back, by the table's clock */
    int users, flags;
    void *made;                 /* the driver's */
    char text[];
} wb__gpu_program;

enum { WB__GPU_BUCKETS = 256 };
typedef struct {
    pthread_mutex_t lock;       /* of what follows, and of the driver's compiler */
    wb__gpu_program *program[WB__GPU_BUCKETS];
    uint64_t clock;
    int idle;
} wb__gpu_programs;

/* A driver's device begins with it. */
struct wb__gpu_device {
    wb_device base;             /* filled by the runtime */
    const wb__gpu_driver *driver;

    /* What the driver's `find` fills. */
    char name[128], about[256]; /* the maker's name; for the log */
    const char *kind;           /* "gpu", "accelerator" or "cpu", by which a program chooses */
    char maker[384];            /* what compiled images depend on beside text and options */
    wb__gpu_target target;
    int64_t total, most;        /* bytes of the device; of one block, 0: as the device */
    bool staged;                /* transfers pass through pinned memory */
    bool keeps_images;          /* compiled images are kept on disk */
    bool graphs;                /* commands can be recorded */
    bool allocates_in_order;    /* a block is there for commands issued after it was asked for */

    bool debug_sync;
    pthread_mutex_t opening;
    _Atomic bool open;
    _Atomic int holders;        /* kernels, graphs and adopted memory that were not given back */

    /* Why the device can no longer be used, once it cannot. */
    pthread_mutex_t losing;
    _Atomic bool lost;
    char lost_because[440];

    pthread_mutex_t lock;       /* of what follows, and of putting commands on queues */
    uint64_t issued, completed; /* commands of the compute queue: so many, known to be done */
    uint64_t uploads, awaited;  /* uploads; the compute queue waits for those up to this one */
    wb__gpu_mark mark[WB__GPU_MARKS], upload[WB__GPU_MARKS];    /* rings */
    uint64_t marks, looked;     /* marks ever made; of these, known to be reached */
    int waiting, most_waiting;  /* commands since the last flush, and before the next */
    int failed;                 /* how a command ended that nobody waited for */
    wb__gpu_cache cache;

    wb__gpu_staging to, from;   /* the device */
    wb__gpu_programs programs;
    wb__gpu_held *held;         /* of libraries of vendors */
};

/* ---- drivers --------------------------------------------------------------------------------- */

/* What an error means beside its name. */
typedef enum {
    WB__GPU_ERROR_MEMORY = 1,   /* there is no memory: WB_ERROR_MEMORY */
    WB__GPU_ERROR_FULL = 2,     /* of an allocation: there may be room when the cache is empty */
    WB__GPU_ERROR_LOST = 4      /* the driver does nothing more for the device */
} wb__gpu_error;

/* The name of the vendor's function that was called last in this thread: a driver sets it. */
extern _Thread_local const char *wb__gpu_call;

typedef struct wb__gpu_hook wb__gpu_hook;

/* What the runtime keeps of a backend. */
typedef struct {
    pthread_mutex_t starting;
    bool started;
    _Atomic bool guarded, child;        /* a fork is noticed; this process is one */
    int n;
    wb__gpu_device *device[WB__GPU_MOST_DEVICES];
} wb__gpu_state;

/* Functions that return a code give the vendor's, 0 for success, and set wb__gpu_call; those of
 * `status` give an error code of Weber's, the error being set.  From `allocate` on, devices are open
 * and entered; commands are put on queues with the device's lock, but for transfers, which may run
 * in several threads.  `event`, of a command: where to put its event; NULL: none is wanted. */
struct wb__gpu_driver {
    const wb__backend *backend;
    wb__gpu_state *state;
    int dlpack;                 /* the kind of device in DLPack's numbers */
    bool objects;               /* memory is an object of the driver's, not an address */
    bool oldest_first;          /* of released blocks, the one whose use has most likely ended */
    const char *choosing;       /* the variable by which a program chooses devices; or NULL */
    const wb__gpu_hook *const *libraries;       /* NULL at the end; NULL: none */

    /* status: opens the vendor's library; fills the list of devices (none of them open). */
    int (*load)(void);
    int (*find)(wb__gpu_device **list, int *n);
    void (*forget)(void);                       /* after the last device was closed; or NULL */
    int (*open)(wb__gpu_device *d);             /* status: queues and what they need */
    void (*close)(wb__gpu_device *d);
    int (*enter)(wb__gpu_device *d);            /* code: before calls; or NULL, with leave */
    void (*leave)(void);

    const char *(*error_name)(int code);
    int (*error_kind)(int code);                /* bits of wb__gpu_error */
    /* Writes the driver's words on an error, if there are any; d may be NULL. */
    void (*error_text)(wb__gpu_device *d, int code, char *text, size_t room);

    int (*allocate)(wb__gpu_device *d, size_t bytes, uint64_t *at);     /* code; without the lock */
    void (*release)(wb__gpu_device *d, uint64_t at);                    /* with the lock */
    void (*trim)(wb__gpu_device *d);            /* after releases; or NULL */
    int (*memory_left)(wb__gpu_device *d, size_t *bytes);               /* code; or NULL */
    int (*pin)(wb__gpu_device *d, wb__gpu_staging *s, size_t bytes);    /* code */
    void (*unpin)(wb__gpu_device *d, wb__gpu_staging *s);

    /* code: between host and device; `wait`: until it is done, else the data are pinned. */
    int (*up)(wb__gpu_device *d, wb__gpu_queue q, uint64_t to, size_t at, const void *from,
              size_t bytes, bool wait);
    int (*down)(wb__gpu_device *d, wb__gpu_queue q, void *to, uint64_t from, size_t at,
                size_t bytes, bool wait);
    /* Whether `d` copies from the memory of `source`; NULL: always. */
    bool (*reaches)(const wb__gpu_device *d, const wb__gpu_device *source);
    /* code: on d's compute queue. */
    int (*copy)(wb__gpu_device *d, uint64_t to, size_t to_at, wb__gpu_device *source, uint64_t from,
                size_t from_at, size_t bytes, void **event);

    int (*new_event)(void **event);             /* code; NULL: record makes them */
    void (*drop_event)(void *event);
    int (*record)(wb__gpu_device *d, wb__gpu_queue q, void **event);    /* code */
    int (*wait_event)(wb__gpu_device *d, wb__gpu_queue q, void *event); /* code: the queue waits */
    int (*sync_event)(void *event);             /* code: the host waits */
    /* Whether the event was reached, and how its command ended; NULL: never asked. */
    bool (*done)(void *event, int *ended);
    int (*flush)(wb__gpu_device *d);            /* code: the compute queue; NULL: not needed */
    int (*sync)(wb__gpu_device *d, wb__gpu_queue q);    /* code: until the queue is empty */

    /* The options to compile with; false: there is nothing to compile with, the error being set. */
    bool (*options)(wb__gpu_device *d, int flags, char *text, size_t room);
    /* status: *image is allocated, or NULL.  WB_ERROR_UNSUPPORTED: other options may do better. */
    int (*compile)(wb__gpu_device *d, const char *text, const char *options, void **program,
                   void **image, size_t *bytes);
    int (*load_image)(wb__gpu_device *d, const void *image, size_t bytes, const char *options,
                      void **program);          /* code */
    void (*unload)(wb__gpu_device *d, void *program);
    /* code: a kernel, and the most items that a group of it has. */
    int (*function)(wb__gpu_device *d, void *program, const char *entry, void **function,
                    size_t *most_items);
    void (*drop_function)(void *function);      /* or NULL */
    /* code: an argument of the function's next launches; NULL: they are given at the launch. */
    int (*bind)(void *function, int index, size_t bytes, const void *value);
    int (*launch)(wb__gpu_device *d, wb__gpu_queue q, void *function, const uint32_t groups[3],
                  const uint32_t items[3], void **arguments, void **event);     /* code */

    /* code; NULL where commands cannot be recorded.  They are recorded on WB__GPU_RECORDING; what was
     * recorded is instantiated and dropped; a graph runs any number of times. */
    int (*record_begin)(wb__gpu_device *d);
    int (*record_end)(wb__gpu_device *d, void **recorded);
    int (*instantiate)(void *recorded, void **graph);
    int (*run)(wb__gpu_device *d, void *graph);
    void (*drop_recorded)(void *recorded);
    void (*drop_graph)(void *graph);
};

/* ---- libraries of vendors -------------------------------------------------------------------- */

typedef struct wb__gpu_places wb__gpu_places;

/* A step that a library does; the library's own begins with it.  It must be fit for recording: what
 * it needs is made when it is prepared, its memory is the workspace that it is lent. */
typedef struct {
    const wb__gpu_hook *library;
    const char *impl;           /* for the printed plan: the library and the epilogue */
    size_t workspace;
} wb__gpu_routine;

/* takes, prepare, launch, destroy and prefers_nhwc are called with the device entered and its lock
 * held. */
struct wb__gpu_hook {
    unsigned kinds;             /* of steps, as bits */
    bool bare;                  /* bias and epilogue are left to others */
    wb__gpu_vendor *vendor;     /* usable before anything is asked; NULL: `prepare` decides */
    /* Whether it would take an epilogue, sums, attention: see `takes` of wb__backend; or NULL. */
    bool (*takes)(wb__gpu_device *d, const wb__step *step);
    /* 0; WB_ERROR_UNSUPPORTED without a message: not by this library, and *why has the reason in a
     * few words; another code: an error. */
    int (*prepare)(wb__gpu_device *d, const wb__step *step, wb__gpu_routine **r, const char **why);
    /* status: enqueues, and counts what it put on the compute queue. */
    int (*launch)(wb__gpu_device *d, wb__gpu_routine *r, wb__gpu_queue q, const wb__gpu_places *at);
    void (*destroy)(wb__gpu_device *d, wb__gpu_routine *r);
    bool (*prefers_nhwc)(wb__gpu_device *d, const wb__step *conv);      /* or NULL */
};

/* Where a kernel's buffers are, by the plan's numbers; the workspace begins at byte workspace_at of
 * `workspace`. */
struct wb__gpu_places {
    const uint64_t *address;            /* of each buffer, for drivers with addresses */
    void *const *buffers;               /* their memory, */
    const size_t *places;               /* and where in it each begins; NULL: at 0 */
    wb__gpu_memory *memory;             /* the workspace's, of objects */
    uint64_t workspace;
    size_t workspace_at;
    const wb__number *numbers;
};

/* ---- device.c -------------------------------------------------------------------------------- */

/* The functions of wb__backend that name no device. */
int wb__gpu_start(const wb__gpu_driver *v);
void wb__gpu_stop(const wb__gpu_driver *v);
int wb__gpu_count(const wb__gpu_driver *v);
const wb_device *wb__gpu_device_at(const wb__gpu_driver *v, int ordinal);
bool wb__gpu_has_dtype(const wb_device *base, wb_dtype t);

/* For a backend's file: these functions for its driver, and what each wb__backend table has. */
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
    .prefers_nhwc = wb__gpu_prefers_nhwc, .share = wb__gpu_share

/* An error of the driver's as ours: "tag:0: function: NAME OF THE ERROR (700): what was asked; what
 * the driver says", the function being wb__gpu_call.  d may be NULL; where it is not, errors after
 * which the driver does nothing more make the device a lost one. */
int wb__gpu_fail(const wb__gpu_driver *v, wb__gpu_device *d, int code, const char *format, ...)
    WB__PRINTF(4, 5);

/* A child of fork has no use of the driver: no call is made there.  0, or an error. */
int wb__gpu_check_fork(const wb__gpu_driver *v);
static inline bool wb__gpu_is_child(const wb__gpu_device *d) { return d->driver->state->child; }

/* Before calls for a device, and after them: opens it and makes it current.  0, or an error: then
 * there is nothing to leave.  What only gives back enters with enter_to_release, which never
 * complains, and returns whether there is something to leave. */
int wb__gpu_enter(wb__gpu_device *d);
bool wb__gpu_enter_to_release(wb__gpu_device *d);
void wb__gpu_leave(wb__gpu_device *d);

/* ---- memory.c -------------------------------------------------------------------------------- */

/* The bytes that WEBER_MEMORY_LIMIT allows of `total`; 0, or an error, in which `tag` comes
 * first. */
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

/* All with the lock.  uses: the next command of the compute queue uses this memory, and waits for
 * its upload.  wanted: where the next command puts its event, or NULL; issued: it was put on the
 * compute queue.  mark_now: an event behind all of them, or NULL with the error set. */
int wb__gpu_uses(wb__gpu_device *d, wb__gpu_memory *m);
void **wb__gpu_wanted(wb__gpu_device *d);
void wb__gpu_issued(wb__gpu_device *d, void **wanted);
wb__gpu_mark *wb__gpu_mark_now(wb__gpu_device *d);

/* ---- program.c ------------------------------------------------------------------------------- */

/* Words that are defined in front of the prelude. */
typedef enum { WB__GPU_PLAIN = 0, WB__GPU_F64 = 1, WB__GPU_TABLE = 2 } wb__gpu_flags;

/* The program of a text, from memory, from disk or from the compiler; to be given back.  put takes
 * NULL. */
wb__gpu_program *wb__gpu_program_get(wb__gpu_device *d, const char *text, int flags);
void wb__gpu_program_put(wb__gpu_device *d, wb__gpu_program *p);
void wb__gpu_programs_free(wb__gpu_device *d);
/* A kernel of the program that is to run with so many items in a group; 0, or an error. */
int wb__gpu_function_of(wb__gpu_device *d, const wb__gpu_program *p, const char *entry,
                        const uint32_t items[3], void **function);
/* For a driver: the compiler's words on a text, for the log. */
void wb__gpu_log_build(const wb__gpu_device *d, const char *text, const char *said);

/* ---- kernel.c -------------------------------------------------------------------------------- */

/* One launch of a step. */
typedef struct {
    const wb__gpu_launch *launch;
    wb__gpu_program *program;
    void *function;
    bool changes;               /* the struct of arguments differs from launch to launch */
    bool set;                   /* it was bound */
    unsigned char *args, *next; /* the struct as it is; where it is bound, as it will be */
    uint64_t *address;          /* of each buffer; where they are bound, its serial number */
    void **argument;            /* pointers to these, and to the struct */
} wb__gpu_part;

typedef struct {
    wb__kernel base;
    wb__gpu_routine *routine;   /* comes before the parts; NULL: there is none */
    int n_buffers;              /* of the plan's, as far as the step names them */
    int n_used, *used;          /* which */
    uint64_t *address;          /* of each, at the launch */
    wb__gpu_work *work;         /* NULL: the routine is all */
    char what[160];             /* the step, for errors */
    int n;
    wb__gpu_part parts[];
} wb__gpu_kernel;

int wb__gpu_prepare(const wb_device *base, const wb__step *step, wb__kernel **kernel);
void wb__gpu_destroy(const wb_device *base, wb__kernel *kernel);
int wb__gpu_launch_kernel(const wb_device *base, const wb__kernel *kernel, void *const *buffers,
                          const size_t *places, void *workspace, size_t workspace_at,
                          const wb__number *numbers);
bool wb__gpu_takes_step(const wb_device *base, const wb__step *step);
bool wb__gpu_prefers_nhwc(const wb_device *base, const wb__step *conv);

/* With the lock: puts one part of a kernel, or its routine, on a queue. */
int wb__gpu_launch_part(wb__gpu_device *d, const wb__gpu_kernel *k, wb__gpu_part *p,
                        wb__gpu_queue q, const wb__gpu_places *at);
int wb__gpu_launch_routine(wb__gpu_device *d, const wb__gpu_kernel *k, wb__gpu_queue q,
                           const wb__gpu_places *at);

/* ---- vendor.c -------------------------------------------------------------------------------- */

/* A function of a vendor's library, and its byte of a table of functions.  find: fills the table;
 * NULL, or the first name that the library lacks, whose place is NULL. */
typedef struct { const char *name; size_t at; } wb__gpu_function;
const char *wb__gpu_find_functions(void *library, const wb__gpu_function *list, size_t n, void *to);

/* Opens a driver's library.  *file: its name, from a variable of the environment or the usual one.
 * NULL with an error that ends in the advice. */
void *wb__gpu_open_library(const char *tag, const char *variable, const char *usual,
                           const char *advice, const char **file);

/* A library's file, and the version of the vendor's toolkit that it belongs to; 0: not known.  A
 * NULL ends a list. */
typedef struct { const char *name; int major; } wb__gpu_file;

/* Where a vendor's files are: in the folder that the variable names, where the system looks, in
 * further folders. */
typedef struct {
    const char *tag, *variable, *folders[2];    /* NULL: none */
    const int *version;         /* of the toolkit that the driver is for: 1000 * major; NULL: any */
} wb__gpu_search;

/* Opens the first of these files that is there; in each folder those of the driver's version come
 * first, then older ones, then newer ones.  *from: where to begin, 0, and afterwards where to go on
 * for another file.  NULL: there is none, and `why` has the system's words on the first. */
void *wb__gpu_open_next(const wb__gpu_search *s, const wb__gpu_file *files, int *from, char *why,
                        size_t room);

/* What a library has for a problem; the library's own begins with it, the problem follows it. */
typedef struct wb__gpu_entry {
    struct wb__gpu_entry *next;
    int holders;                /* routines */
    bool found;                 /* false: it has nothing */
    bool refused;               /* at a launch: not asked for again */
} wb__gpu_entry;

/* Why a library does not do a step, in the words of the printed plan. */
enum { WB__GPU_UNUSED, WB__GPU_NO_HANDLE, WB__GPU_NOTHING, WB__GPU_REFUSED, WB__GPU_WHY };
enum { WB__GPU_MOST_FUNCTIONS = 24 };

/* A library that is opened when it is first wanted. */
struct wb__gpu_vendor {
    const char *name, *variable;            /* a variable that switches it off with 0; or NULL */
    const char *advice;                     /* how to get it */
    const wb__gpu_search *search;
    const wb__gpu_file *files;
    const wb__gpu_function *functions;
    size_t n_functions;
    void *table;                            /* of the functions */
    /* Whether a version will do, by its table and the first function that it lacks; else why not. */
    bool (*suits)(const void *table, const char *missing, char *why, size_t room);

    /* Of a library with problems: handles, what a status means, entries.  find: fills an entry for
     * its problem; 0, or an error; drop: frees what it filled; or NULL. */
    const char *creating;                   /* the name of the call */
    int (*create)(void **handle);           /* a status of the library's, 0 for success */
    void (*destroy)(void *handle);
    const char *(*status_name)(int status);
    bool (*is_memory)(int status);
    void (*said)(char *text, size_t room);  /* the library's words on an error; or NULL */
    size_t entry_bytes, problem_bytes;
    int (*find)(wb__gpu_device *d, const wb__gpu_vendor *l, void *handle, wb__gpu_entry *e);
    void (*drop)(wb__gpu_entry *e);
    const char *why_not[WB__GPU_WHY];

    pthread_mutex_t lock;                   /* of what the runtime fills */
    bool looked, works, settled;            /* settled: a device has a handle */
    _Atomic bool missed, warned;            /* it was logged that it is missing, gives no handle */
    int from;
    char why[600];
};

/* A device's handle and entries. */
struct wb__gpu_held {
    wb__gpu_held *next;
    wb__gpu_vendor *library;
    void *handle;               /* NULL: none could be had */
    wb__gpu_entry *first;       /* newest first */
    int n;
    bool told;                  /* that the library refused something */
};

bool wb__gpu_vendor_works(wb__gpu_vendor *l);         /* opens it, once; false with the error set */
/* The same without an error: that it is missing although nobody switched it off is a warning, once. */
bool wb__gpu_vendor_usable(wb__gpu_vendor *l);
void wb__gpu_vendors_close(wb__gpu_device *d);
/* Of usable libraries, with the device's lock.  handle: NULL without an error where there is none.
 * entry_of: as `prepare` of a hook; NULL with *error and *why. */
void *wb__gpu_vendor_handle(wb__gpu_device *d, wb__gpu_vendor *l);
wb__gpu_entry *wb__gpu_entry_of(wb__gpu_device *d, wb__gpu_vendor *l, const void *problem,
                                const char **why, int *error);
/* A call of the library's failed: as an error; and, where a plan is made, in the log alone, since our
 * own kernels take over. */
int wb__gpu_vendor_fail(const wb__gpu_device *d, const wb__gpu_vendor *l, int status,
                         const char *call);
void wb__gpu_vendor_note(const wb__gpu_device *d, const wb__gpu_vendor *l, int status,
                          const char *call);
/* A call failed at a launch.  Where the device failed with it, that error; else
 * WB_ERROR_UNSUPPORTED, and the entry is not asked for again.  The first refusal of a library is a
 * warning. */
int wb__gpu_entry_refused(wb__gpu_device *d, wb__gpu_vendor *l, wb__gpu_entry *e, int status,
                          const char *call);

/* ---- split.c --------------------------------------------------------------------------------- */

/* A step without its epilogue (with `bare`: and without its bias), and what was left out, in place.
 * False: there is nothing to leave out. */
typedef struct {
    wb__step step;
    wb__instr instr[5];
    wb__view views[2];
    wb__space space;
} wb__gpu_rest;
bool wb__gpu_split(const wb__step *step, bool bare_of_bias, wb__step *bare, wb__gpu_rest *rest);

/* Whether a view's last two dimensions are rows one after another, as they are or transposed, and
 * the elements from a row to the next. */
bool wb__gpu_matrix(const wb__view *v, bool *transposed, int64_t *row);
/* Whether the batch dimensions of the three views of a product are one, with a step for each view;
 * steps are set where there are batch dimensions. */
bool wb__gpu_batch(const wb__view *v, int64_t *step, int64_t *batch);

/* ---- graph.c, table.c ------------------------------------------------------------------------ */

int wb__gpu_graph(const wb_device *base, const wb__sequence *s, wb__graph **graph);
void wb__gpu_graph_free(const wb_device *base, wb__graph *graph);
int wb__gpu_graph_run(const wb_device *base, wb__graph *graph, void *const *buffers,
                      const size_t *places, const wb__number *numbers);

/* Launches of one kernel as one table: its rows, in the device's memory, hold the addresses of the
 * buffers, the struct of arguments and the first group of one launch each. */
typedef struct {
    const wb__gpu_kernel *kernel;
    int n, *part;               /* which of the kernel's parts are its rows */
    wb__gpu_program *program;
    void *function;
    size_t at, row_bytes;       /* in the block; of one row */
    uint32_t groups;
} wb__gpu_table;

/* A number as the words that it becomes, and a place where one of them goes. */
typedef struct { uint32_t at, word; } wb__gpu_table_word;

/* The tables of a sequence, in the order of its kernels.  They are in one block, and behind them
 * the list of places into which, before every run, a small kernel writes the plan's numbers. */
typedef struct {
    int n, room, n_targets;
    wb__gpu_table *table;
    wb__gpu_table_word *target; /* by words */
    size_t list_at, bytes;      /* of the block */
    wb__gpu_launch words;       /* wb__gpu_fill makes the words with it */
    wb__gpu_program *program;   /* that writes them */
    void *function;
    unsigned char *args;        /* its arguments */
} wb__gpu_tables;

/* 0, an error, or WB_ERROR_UNSUPPORTED without a message: a launch with numbers that no table can
 * hold.  With the device entered. */
int wb__gpu_tables_make(wb__gpu_device *d, const wb__sequence *s, wb__gpu_tables *t);
void wb__gpu_tables_free(wb__gpu_device *d, wb__gpu_tables *t);
/* The block's contents for buffers at these places. */
void wb__gpu_tables_fill(const wb__gpu_tables *t, const wb__gpu_places *at, unsigned char *block);
/* With the lock: writes the numbers into the block, on the compute queue; a table, on a queue. */
int wb__gpu_tables_write(wb__gpu_device *d, wb__gpu_tables *t, uint64_t block,
                         const wb__number *numbers);
int wb__gpu_table_launch(wb__gpu_device *d, const wb__gpu_table *t, uint64_t block,
                         wb__gpu_queue q);

#endif
