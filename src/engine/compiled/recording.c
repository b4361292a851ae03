/* The notes of a recording; see recording.h. */
#include "engine/graph.h"

#include <string.h>

/* Index in wb__recording.noted of each setting that the recording in progress has noted, by the
 * address of the setting. */
static _Thread_local wb__pointer_map recording_numbers;

/* ---- what public functions do first ---------------------------------------------------------- */

void wb__recording_fail(wb__recording *r, int code)
{
    if (r->failed) return;
    r->failed = code;
    r->reason = wb__strdup(wb_error());
}

bool wb__unrecordable(const char *call, wb__duty duty)
{
    wb__recording *r = wb__this_thread()->recording;
    if (wb__likely(!r) || duty == WB__CONFIRMS) return false;
    const char *cure = duty & WB__READS
        ? "no value exists yet; make what is read a result of the function and read it after "
          "wb_call_compiled (wb_where chooses between values)"
        : "replays would not repeat it; call it before or after wb_call_compiled";
    wb__recording_fail(r, wb__fail(WB_ERROR_ARGUMENT,
                                   "%s: called inside a function that wb_compile is recording: %s",
                                   call, cure));
    return true;
}

#define ROW(f, called, duty) {#called, WB__##duty},
static const struct { const char *name; wb__duty duty; } duties[] = {
#include "engine/public.def"
};

const char *wb__public_name(wb__public f) { return duties[f].name + strlen("wb_"); }

bool wb__duty_fails(wb__public f)
{
    if (wb__unrecordable(wb__public_name(f), duties[f].duty)) return true;
    return duties[f].duty & WB__CONFIRMS && wb__engine.guard_confirm();
}

/* ---- settings -------------------------------------------------------------------------------- */

static _Atomic uint64_t recording_changes; /* total number of changes of settings */

/* Returns the note of a setting, creating it if needed.  NULL: out of memory, and the recording
 * fails. */
static wb__noted *recording_note_of(wb__recording *r, void *object, wb__setting *at)
{
    const int known = wb__pointer_map_get(&recording_numbers, at);
    if (known >= 0) return &r->noted[known];
    if (!wb__reserve(&r->noted, &r->noted_capacity, r->n_noted + 1, sizeof *r->noted) ||
        !wb__pointer_map_put(&recording_numbers, at, r->n_noted)) {
        wb__recording_fail(r, WB_ERROR_MEMORY);
        return NULL;
    }
    r->noted[r->n_noted] = (wb__noted){.object = wb__ref(object), .at = at};
    return &r->noted[r->n_noted++];
}

/* Notes that the function read a setting, unless the function has read or set it before. */
static void recording_note_read(wb__recording *r, void *object, wb__setting *at, bool counts)
{
    wb__noted *n = recording_note_of(r, object, at);
    if (!n || n->read || n->set) return;
    n->read = true;
    n->counts = counts;
    n->before = *at;
}

static void change_setting(wb__setting *at, uint32_t value)
{
    if (atomic_exchange(at, value) != value) atomic_fetch_add(&recording_changes, 1);
}

uint32_t wb__setting_read(void *object, wb__setting *at)
{
    wb__recording *r = wb__this_thread()->recording;
    if (wb__unlikely(r != NULL)) recording_note_read(r, object, at, false);
    return *at;
}

void wb__setting_set(void *object, wb__setting *at, uint32_t value)
{
    wb__recording *r = wb__this_thread()->recording;
    wb__noted *n = wb__unlikely(r != NULL) ? recording_note_of(r, object, at) : NULL;
    if (n) {
        n->set = true;
        n->after = value;
    }
    change_setting(at, value);
}

void wb__setting_count(wb__setting *at)
{
    atomic_fetch_add(at, 1);
    atomic_fetch_add(&recording_changes, 1);
}

void wb__setting_counted(void *object, wb__setting *at)
{
    wb__recording *r = wb__this_thread()->recording;
    if (wb__unlikely(r != NULL)) recording_note_read(r, object, at, true);
}

/* ---- numbers that replays set ---------------------------------------------------------------- */

int wb__on_replay(const wb__replay *hook)
{
    wb__recording *r = wb__this_thread()->recording;
    if (!r) return 0;
    if (!wb__reserve(&r->renewals, &r->renewals_capacity, r->n_renewals + 1, sizeof *r->renewals))
        return WB_ERROR_MEMORY;
    wb__renewal n = {.hook = *hook, .context = wb__alloc(hook->bytes + 1)};
    if (!n.context) return WB_ERROR_MEMORY;
    for (int i = 0; i < hook->n; i++) wb__renewed(hook->literals[i], r->n_renewals, i);
    if (hook->bytes) memcpy(n.context, hook->context, hook->bytes);
    wb__ref(hook->holds);
    r->renewals[r->n_renewals++] = n;
    return 0;
}

/* ---- one recording --------------------------------------------------------------------------- */

void wb__recording_begin(wb__recording *r, wb_scope *scope)
{
    static _Atomic uint32_t last;
    wb__thread *t = wb__this_thread();
    r->number = 1 + atomic_fetch_add_explicit(&last, 1, memory_order_relaxed);
    r->scope = scope;
    r->changes = atomic_load_explicit(&recording_changes, memory_order_acquire);
    t->recording = r;
    t->recorded = r->number;
    wb__setting_counted(NULL, &wb__retyped);
}

void wb__recording_forget(wb__recording *r)
{
    if (r->scope) return;               /* the function is still running */
    for (bool again = true; again;) {   /* again: a tree that is freed frees trees inside it */
        again = false;
        for (int i = r->n_noted - 1; i >= 0; i--) {
            void *object = r->noted[i].object;
            if (!object || wb__refs(object) > 1) continue;
            r->noted[i] = r->noted[--r->n_noted];
            wb__unref(object);
            again = true;
        }
    }
}

int wb__recording_close(wb__recording *r, int n, wb_tensor *const *survivors)
{
    int first = 0;
    /* skips evaluated tensors: the function did not create them */
    while (first < n && survivors[first]->storage) first++;
    if (first == n || r->scope || r->failed) return 0;
    wb__recording_fail(r, wb__fail(WB_ERROR_ARGUMENT, "compile: %s, made by the function, outlives "
                                   "it: make it a result of the function, or a variable that it "
                                   "assigns to", wb_describe(survivors[first])));
    return r->failed;
}

int wb__recording_end(wb__recording *r)
{
    wb__thread *t = wb__this_thread();
    t->recording = NULL;
    t->recorded = 0;
    wb__pointer_map_free(&recording_numbers);
    if (!r->failed) return 0;
    return wb__fail(r->failed, "%s",
                    r->reason ? r->reason : "compile: the function cannot be recorded "
                                            "(no memory for the reason)");
}

void wb__recording_drop(wb__recording *r)
{
    for (int i = 0; i < r->n_renewals; i++) {
        wb__free(r->renewals[i].context);
        wb__unref(r->renewals[i].hook.holds);
    }
    for (int i = 0; i < r->n_noted; i++) wb__unref(r->noted[i].object);
    wb__free(r->renewals);
    wb__free(r->noted);
    wb__free(r->reason);
}

wb__fit wb__recording_fit(wb__recording *r)
{
    wb__fit fit = WB__FITS;
    for (int i = 0; i < r->n_renewals && fit != WB__FITS_NEVER; i++) {
        const wb__renewal *n = &r->renewals[i];
        const wb__fit its = n->hook.fits ? n->hook.fits(n->context) : WB__FITS;
        fit = WB__MAX(fit, its);
    }
    const uint64_t now = atomic_load_explicit(&recording_changes, memory_order_acquire);
    if (fit != WB__FITS || wb__likely(r->changes == now)) return fit;
    for (int i = 0; i < r->n_noted && fit != WB__FITS_NEVER; i++) {
        const wb__noted *n = &r->noted[i];
        if (n->read && *n->at != n->before) fit = n->counts ? WB__FITS_NEVER : WB__FITS_NOT_NOW;
    }
    if (fit == WB__FITS) r->changes = now;
    return fit;
}

int wb__recording_replayed(const wb__recording *r)
{
    int status = 0;
    for (int i = 0; i < r->n_noted; i++)
        if (r->noted[i].set) change_setting(r->noted[i].at, r->noted[i].after);
    for (int i = 0; i < r->n_renewals && !status; i++)
        if (r->renewals[i].hook.after) status = r->renewals[i].hook.after(r->renewals[i].context);
    return status;
}
