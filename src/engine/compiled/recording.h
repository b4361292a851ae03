/* What wb_compile must know of a function that it records, beside the graph that the function
 * builds: settings of objects that it read or set, numbers that each replay renews, and the first
 * call in it that no recording can hold. */
#ifndef WB__RECORDING_H
#define WB__RECORDING_H

#include "engine/object.h"

/* ---- calls that cannot be recorded ----------------------------------------------------------- */

typedef enum {
    WB__READS,              /* the call needs a value: there is none before the first replay */
    WB__ACTS                /* the call has an effect at once: a replay would not have it */
} wb__unrecordable_call;
/* True while this thread records: sets the error, which names the call and the cure, and makes the
 * recording fail with it, whatever the recorded function returns.  Otherwise false. */
bool wb__unrecordable(const char *call, wb__unrecordable_call kind);

/* ---- settings -------------------------------------------------------------------------------- */

/* A setting is a number in an object on which a graph may depend, and which is no tensor: the mode
 * of a layer, whether a parameter is frozen, how often the children of a branch were replaced.
 * Settings are read and set by these functions alone.  A recording notes those that it read, and is
 * not replayed while one of them has another value; it notes those that were set in it, and sets
 * them at each replay. */
typedef _Atomic uint32_t wb__setting;
uint32_t wb__setting_read(void *object, wb__setting *at);
void wb__setting_set(void *object, wb__setting *at, uint32_t value);
/* A setting that only counts changes: a recording that read it is dropped after the next one.  Not
 * counted while a function is being recorded. */
void wb__setting_count(wb__setting *at);
void wb__setting_counted(void *object, wb__setting *at);

/* ---- what replays renew ---------------------------------------------------------------------- */

/* While a function is being recorded: these n literals get their values from `before` at each
 * replay, and `after` is called when one succeeded; where `fits` returns false the recording is
 * dropped.  Each of them may be NULL.  `context` is copied; `holds` lives as long as the recording.
 * Outside a recording nothing happens.  0, or an error code. */
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
    void *object;                       /* counted; NULL: the setting is never freed */
    wb__setting *at;
    uint32_t before, after;             /* the values that the function read and set, if it did */
    bool read, set, counts;
} wb__noted;

typedef struct {
    wb__replay hook;
    void *context;
} wb__renewal;

typedef struct wb__recording {
    uint32_t number;                    /* of its tensors: wb_tensor.recorded */
    wb_scope *scope;                    /* of what the function makes */
    int failed;                         /* the code of the first call that cannot be recorded, */
    char *reason;                          /* and its message (NULL: no memory) */
    uint64_t changes;                   /* all settings up to this change were compared */
    wb__noted *noted;
    int n_noted, noted_capacity;
    wb__renewal *renewals;
    int n_renewals, renewals_capacity;
} wb__recording;

void wb__recording_begin(wb__recording *r, wb_scope *scope);
/* It failed with this thread's error; the first one counts. */
void wb__recording_fail(wb__recording *r, int code);
/* In place of the evaluation when a scope closes: values of an inner scope that outlive it are
 * computed by the replays; what outlives the function fails its recording. */
int wb__recording_close(wb__recording *r, int n, struct wb_tensor *const *survivors);
/* 0, or the error of the first call that cannot be recorded. */
int wb__recording_end(wb__recording *r);
void wb__recording_drop(wb__recording *r);

/* May it be replayed: yes; not while settings are as they are; never again. */
typedef enum { WB__FITS, WB__FITS_NOT_NOW, WB__FITS_NEVER } wb__fit;
wb__fit wb__recording_fit(wb__recording *r);
/* After a replay: what the recorded function did beside its graph. */
void wb__recording_replayed(const wb__recording *r);

#endif
