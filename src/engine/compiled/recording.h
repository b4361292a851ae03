/* The notes of a recording of wb_compile, beside the graph that the function builds: the settings
 * of objects that it read or set, the numbers that each replay sets, and the first call in it that
 * cannot be recorded. */
#ifndef WB__RECORDING_H
#define WB__RECORDING_H

#include "engine/object.h"

/* ---- calls that cannot be recorded ----------------------------------------------------------- */

typedef enum {
    WB__READS,              /* the call needs a value, and none exists before the first replay */
    WB__ACTS                /* the call has an effect at once, which a replay would not repeat */
} wb__unrecordable_call;
/* While this thread records: returns true, sets an error with the name of the call and the cure,
 * and makes the recording fail with it, whatever the recorded function returns.  Otherwise returns
 * false. */
bool wb__unrecordable(const char *call, wb__unrecordable_call kind);

/* ---- settings -------------------------------------------------------------------------------- */

/* A setting is a number in an object that a graph may depend on and that is no tensor: the mode of
 * a layer, whether a parameter is frozen, how often the children of a branch were replaced.
 * Settings are read and set only by these functions.  A recording notes the settings that the
 * function read, and is not replayed while one of them has another value.  It also notes the
 * settings that the function set, and sets them at each replay. */
typedef _Atomic uint32_t wb__setting;
uint32_t wb__setting_read(void *object, wb__setting *at);
void wb__setting_set(void *object, wb__setting *at, uint32_t value);
/* A setting that counts changes. wb__setting_count adds a change, which a recording does not note.
 * wb__setting_counted notes in the recording in progress that the function depends on the count:
 * the recording is dropped after the next change. */
void wb__setting_count(wb__setting *at);
void wb__setting_counted(void *object, wb__setting *at);

/* ---- numbers that replays set ---------------------------------------------------------------- */

/* Called while a function is recorded; outside a recording it does nothing.  At each replay
 * `before` fills in the values of these n literals, at most 64; `after` is called when the replay
 * has succeeded; if `fits` returns false the recording is dropped.  Each callback may be NULL.
 * `context` is copied (`bytes` bytes); `holds` is an object that the recording keeps a reference
 * to.  Returns 0 or an error code. */
struct wb_tensor;
typedef struct {
    int n;
    struct wb_tensor *const *literals;
    void (*before)(void *context, double *numbers);
    void (*after)(void *context);
    bool (*fits)(const void *context);
    const void *context;
    size_t bytes;
    void *holds;
} wb__replay;
int wb__on_replay(const wb__replay *r);

/* ---- one recording --------------------------------------------------------------------------- */

typedef struct {
    void *object;                       /* the owner of the setting, with a reference; NULL: the
                                           setting is never freed */
    wb__setting *at;
    uint32_t before, after;             /* the values that the function read and set */
    bool read, set, counts;
} wb__noted;

typedef struct {
    wb__replay hook;
    void *context;
} wb__renewal;

typedef struct wb__recording {
    uint32_t number;                    /* id that is stored in wb_tensor.recorded */
    wb_scope *scope;                    /* the scope of the objects that the function creates */
    int failed;                         /* code of the first failure: a call that cannot be
                                           recorded, or another error; 0: none */
    char *reason;                       /* message of that failure (NULL: out of memory) */
    uint64_t changes;                   /* the count of changes of all settings when the noted
                                           settings last fitted: while it is the same, they need no
                                           comparison */
    wb__noted *noted;
    int n_noted, noted_capacity;
    wb__renewal *renewals;
    int n_renewals, renewals_capacity;
} wb__recording;

void wb__recording_begin(wb__recording *r, wb_scope *scope);
/* Makes the recording fail with this thread's error.  Only the first failure counts. */
void wb__recording_fail(wb__recording *r, int code);
/* Replaces the evaluation when a scope closes.  Tensors that outlive an inner scope are computed by
 * the replays; a tensor that outlives the function makes the recording fail. */
int wb__recording_close(wb__recording *r, int n, struct wb_tensor *const *survivors);
/* Ends the recording.  Returns 0, or, with the error set again, the code of the first failure. */
int wb__recording_end(wb__recording *r);
void wb__recording_drop(wb__recording *r);

/* Whether the recording may be replayed: yes; not with the present settings; never again. */
typedef enum { WB__FITS, WB__FITS_NOT_NOW, WB__FITS_NEVER } wb__fit;
wb__fit wb__recording_fit(wb__recording *r);
/* Called after a replay: sets the settings that the recorded function set, and calls the `after`
 * callbacks (wb__replay). */
void wb__recording_replayed(const wb__recording *r);

#endif
