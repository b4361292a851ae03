/* What a recording of wb_compile notes beside the graph: the settings of objects that the function
 * read or set, the numbers that each replay sets, and the first call that cannot be recorded. */
#ifndef WB__RECORDING_H
#define WB__RECORDING_H

#include "engine/object.h"

/* ---- what public functions do first ---------------------------------------------------------- */

typedef enum {
    WB__READS = 1,          /* the call needs a value, and none exists before the first replay */
    WB__ACTS = 2,           /* the call has an effect at once, which a replay would not repeat */
    WB__CONFIRMS = 4,       /* the guard of the last step is read first (wb__guard_confirm) */
    WB__READS_CONFIRMS = 5,
    WB__ACTS_CONFIRMS = 6
} wb__duty;

/* The functions of public.def with a duty: WB__OF_wb_save_with. */
#define ROW(f, called, duty) WB__OF_##f,
typedef enum {
#include "engine/public.def"
} wb__public;

/* Begins a public function that has a row in public.def and is an edge (WB__EDGE): returns
 * `failed`, with the error set, if a duty of the row fails.  WB__FIRST: of one that is no edge. */
#define WB__PUBLIC(f, failed) \
    WB__EDGE; \
    WB__FIRST(f, failed)
#define WB__FIRST(f, failed) \
    do { \
        if (wb__unlikely(wb__has_duties()) && wb__duty_fails(WB__OF_##f)) return failed; \
    } while (0)
static inline bool wb__has_duties(void)
{
    const wb__thread *t = wb__thread_now;
    return t && (t->recording || t->late.guard);
}
/* Whether the function f must fail: this thread records and f READS or ACTS, or f CONFIRMS and the
 * guard is not finite.  Sets the error; one of the first kind names the cure, and the recording
 * fails with it. */
bool wb__duty_fails(wb__public f);
/* The name of a function in messages. */
const char *wb__public_name(wb__public f);
/* Does what wb__duty_fails does for READS or ACTS, for the engine's own call that is named
 * `call`. */
bool wb__unrecordable(const char *call, wb__duty duty);

/* ---- settings -------------------------------------------------------------------------------- */

/* A setting is a number, stored in an object, on which a graph may depend.  Examples are the mode
 * of a layer, whether a parameter is frozen, and how often a child of a layer was replaced.
 * Settings are read and set only by these functions.  A recording notes the settings that the
 * function read, and is not replayed while one of them has another value.  It also notes the
 * settings that the function set, and sets them at each replay. */
typedef _Atomic uint32_t wb__setting;
uint32_t wb__setting_read(void *object, wb__setting *at);
void wb__setting_set(void *object, wb__setting *at, uint32_t value);
/* Adds 1 to a setting that counts changes; replays do not repeat the addition.  wb__setting_counted
 * notes that the function being recorded depends on the count.  Once the count has changed, the
 * recording is dropped. */
void wb__setting_count(wb__setting *at);
void wb__setting_counted(void *object, wb__setting *at);

/* ---- numbers that replays set ---------------------------------------------------------------- */

/* Whether the recording can be replayed: now (FITS), only after settings have changed back
 * (FITS_NOT_NOW), or never again (FITS_NEVER). */
typedef enum { WB__FITS, WB__FITS_NOT_NOW, WB__FITS_NEVER } wb__fit;

/* Callbacks for the replays of a recording.  wb__on_replay adds them to the recording in progress;
 * without one it does nothing.  `before` fills in the values of the n literals, at most 64, before
 * each replay; `after` is called when a replay has succeeded, and returns 0 or an error code.
 * `fits` returns whether the recording can be replayed.  A callback may be NULL.  `context`,
 * `bytes` bytes, is copied.  The recording keeps a reference to the object `holds`.  Returns 0 or
 * an error code. */
struct wb_tensor;
typedef struct {
    int n;
    struct wb_tensor *const *literals;
    void (*before)(void *context, double *numbers);
    int (*after)(void *context);
    wb__fit (*fits)(const void *context);
    const void *context;
    size_t bytes;
    void *holds;
} wb__replay;
int wb__on_replay(const wb__replay *r);

/* ---- one recording --------------------------------------------------------------------------- */

typedef struct {
    void *object;   /* the setting's owner, with a reference; NULL: the setting is never freed */
    wb__setting *at;
    uint32_t before, after;             /* value that the function read; value that it set */
    bool read, set;                     /* the function has read it; has set it */
    bool counts;                        /* the setting counts changes (wb__setting_count) */
} wb__noted;

typedef struct {
    wb__replay hook;                    /* as passed to wb__on_replay */
    void *context;                      /* copy of hook.context */
} wb__renewal;

typedef struct wb__recording {
    uint32_t number;                    /* id, as in wb_tensor.recorded */
    wb_scope *scope;                    /* scope of the objects that the function creates; NULL once
                                           that scope closes */
    int failed;                         /* error code of the first failure; 0: none */
    char *reason;                       /* message of that failure (NULL: out of memory) */
    uint64_t changes;                   /* total number of changes of settings when the noted
                                           settings last fitted; they are compared again only if it
                                           has changed */
    wb__noted *noted;
    int n_noted, noted_capacity;
    wb__renewal *renewals;
    int n_renewals, renewals_capacity;
} wb__recording;

void wb__recording_begin(wb__recording *r, wb_scope *scope);
/* Makes the recording fail with this thread's error.  Only the first failure counts. */
void wb__recording_fail(wb__recording *r, int code);
/* Forgets the settings of objects that only the recording refers to, such as the tree of a
 * gradient: nothing can change them.  Called when the scope of the recording closes, after it has
 * dropped its references to trees and layers.  Does nothing for scopes that the function opened. */
void wb__recording_forget(wb__recording *r);
/* Makes the recording fail if its scope closes and one of the n tensors that outlive the scope,
 * `survivors`, is not evaluated.  Called when a scope closes during a recording, instead of
 * evaluating the survivors.  Does nothing for scopes that the function opened.  Returns 0 or an
 * error code. */
int wb__recording_close(wb__recording *r, int n, struct wb_tensor *const *survivors);
/* Ends the recording.  Returns 0, or the code of the first failure, whose error is set again. */
int wb__recording_end(wb__recording *r);
void wb__recording_drop(wb__recording *r);

/* Returns whether the recording can be replayed, by the `fits` callbacks and the settings. */
wb__fit wb__recording_fit(wb__recording *r);
/* Sets the settings that the recorded function set, and calls the `after` callbacks (wb__replay).
 * Called after a replay.  Returns 0 or the error code of the first callback that fails. */
int wb__recording_replayed(const wb__recording *r);

#endif
