/* Vendor libraries (vendor.c, timing.c): included by runtime.h. */
#ifndef WB__GPU_VENDOR_H
#define WB__GPU_VENDOR_H

/* ---- vendor.c -------------------------------------------------------------------------------- */

/* What a library has found, such as an algorithm, for one problem: the shapes, strides and dtypes
 * of a step.  The entry is the first member of the library's own struct, the problem the second. */
typedef struct wb__gpu_entry {
    struct wb__gpu_entry *next; /* next entry of the same device and library */
    int holders;                /* number of routines that use the entry */
    bool found;                 /* false: the library has no solution */
    bool refused;               /* the solution failed at a launch, and is never tried again */
} wb__gpu_entry;

/* Reasons why a library does not execute a step, for the printed plan. */
enum { WB__GPU_UNUSED, WB__GPU_NO_HANDLE, WB__GPU_NOTHING, WB__GPU_REFUSED, WB__GPU_REASONS };
enum { WB__GPU_MAX_FUNCTIONS = 32 };

/* A vendor library.  It is opened at the first use. */
struct wb__gpu_vendor {
    const char *name, *variable;  /* environment variable: 0 disables the library; NULL: none */
    const char *advice;                     /* how to install it */
    const wb__gpu_search *search;
    const wb__gpu_file *files;
    const wb__gpu_function *functions;
    size_t n_functions;
    void *table;                            /* the function table; NULL: it has no functions */
    /* Whether an opened version of the library is usable; if not, writes `reason`.  `missing`: the
     * first function that `table` lacks, or NULL. */
    bool (*suits)(const void *table, const char *missing, char *reason, size_t capacity);

    /* Fields of a library with cached entries (wb__gpu_entry), each with the problem that it is
     * for.  `find` fills the entry e, whose problem is set, and returns 0 or an error.  `drop`
     * frees what e refers to; NULL: nothing. */
    const char *creating;                   /* the name of the call that creates a handle */
    int (*create)(void **handle);           /* the library's status, 0 for success */
    void (*destroy)(void *handle);          /* may be NULL */
    const char *(*status_name)(int status);
    bool (*is_memory)(int status);          /* whether the status means that memory is exhausted */
    void (*last_message)(char *text, size_t capacity);  /* writes the last error's text; or NULL */
    size_t entry_bytes, problem_bytes;      /* sizes of the library's structs of both */
    int (*find)(wb__gpu_device *d, const wb__gpu_vendor *l, void *handle, wb__gpu_entry *e);
    void (*drop)(wb__gpu_entry *e);
    const char *reasons[WB__GPU_REASONS];   /* texts of the reasons above */

    wb__mutex lock;                         /* guards the fields below, which the runtime sets */
    bool searched, works, version_fixed;    /* version_fixed: some device has a handle */
    _Atomic bool missing_logged, warned;    /* logged: library missing; handle missing */
    int from;                               /* position in the search of the next version to open */
    char reason[600];                       /* why no version works */
};

/* A device's handle of a library, and the device's cached entries. */
struct wb__gpu_vendor_state {
    wb__gpu_vendor_state *next;
    wb__gpu_vendor *library;
    void *handle;               /* NULL: could not be created */
    wb__gpu_entry *first;       /* newest first */
    int n;                      /* number of entries */
    bool refusal_logged;        /* the first refused entry was logged */
};

bool wb__gpu_vendor_works(wb__gpu_vendor *l);   /* opens l at the first call; false: error set */
/* Whether l works; if not, logs one warning instead of setting an error, none if l is disabled. */
bool wb__gpu_vendor_usable(wb__gpu_vendor *l);
void wb__gpu_vendors_close(wb__gpu_device *d);
/* Return the device's handle of a usable library, and the entry of a problem; each is created at
 * the first use.  The device's lock is held.  NULL: failed; wb__gpu_vendor_handle leaves no error,
 * and wb__gpu_entry_of sets *error and, for WB_ERROR_UNSUPPORTED, *reason. */
void *wb__gpu_vendor_handle(wb__gpu_device *d, wb__gpu_vendor *l);
wb__gpu_entry *wb__gpu_entry_of(wb__gpu_device *d, wb__gpu_vendor *l, const void *problem,
                                const char **reason, int *error);
/* These functions report a failed call of the library.  wb__gpu_vendor_fail sets an error and
 * returns its code.  wb__gpu_vendor_log_failure sets no error, and logs the call with
 * WEBER_DEBUG=dispatch. */
int wb__gpu_vendor_fail(const wb__gpu_device *d, const wb__gpu_vendor *l, int status,
                         const char *call);
void wb__gpu_vendor_log_failure(const wb__gpu_device *d, const wb__gpu_vendor *l, int status,
                                 const char *call);
/* Reports a call that failed at a launch.  If the device has failed too, returns the device's
 * error.  Otherwise returns WB_ERROR_UNSUPPORTED, and the entry is not used again.  The first
 * refusal is logged as a warning. */
int wb__gpu_refuse_entry(wb__gpu_device *d, wb__gpu_vendor *l, wb__gpu_entry *e, int status,
                         const char *call);

/* ---- timing.c -------------------------------------------------------------------------------- */

/* Whether a step is worth timing: whether it takes long by its arithmetic (`flop`, floating-point
 * operations) or by the bytes that it moves.  size: bytes of an element of its operands.  rounded:
 * f32 operands are rounded before they are multiplied, which makes products faster. */
bool wb__gpu_worth_timing(const wb__gpu_device *d, size_t size, bool rounded, double flop,
                          double bytes);
/* Whether this process may still time candidates on the device: it has not timed for MOST_SECONDS
 * yet.  The caller adds the time that it spends to d->timing_seconds. */
bool wb__gpu_may_time(const wb__gpu_device *d);

enum { WB__GPU_CANDIDATES = 8, WB__GPU_SCRATCH = 10 };
/* n candidates of a library, or of our own kernels, for a problem.  The choice depends on the
 * library, its version, the problem and the device's name.  fingerprint[i], which is not 0,
 * identifies candidate i in each process.  `run` launches candidate i on scratch memory and returns
 * 0 or a code; ctx is its first argument. */
typedef struct {
    const char *library;
    uint64_t version;                   /* version of the library */
    const void *problem;                /* the problem's bytes */
    size_t problem_bytes;
    int n;                              /* number of candidates */
    uint64_t fingerprint[WB__GPU_CANDIDATES];
    int (*run)(void *ctx, int i);
    void *ctx;
    size_t bytes[WB__GPU_SCRATCH];       /* of the buffers in scratch memory */
    uint64_t at[WB__GPU_SCRATCH];       /* addresses of these buffers, which wb__gpu_fastest sets */
} wb__gpu_candidates;
/* With the lock held.  wb__gpu_kept_fingerprint returns the fingerprint that was kept on disk for
 * the problem; 0: none.  wb__gpu_fastest returns the index of the candidate with that fingerprint,
 * or else of the fastest, whose fingerprint is then kept; 0, the first, if none can be timed. */
uint64_t wb__gpu_kept_fingerprint(const wb__gpu_device *d, const wb__gpu_candidates *c);
int wb__gpu_fastest(wb__gpu_device *d, wb__gpu_candidates *c);

#endif
