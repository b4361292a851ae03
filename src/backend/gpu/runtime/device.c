/* Devices are found once, opened at the first use, and marked as lost after a fatal error.  A
 * forked child gets an error.  Errors of drivers are reported as errors of Weber. */
#include "backend/gpu/runtime/runtime.h"

#include "base/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

_Thread_local const char *wb__gpu_call = "";

/* ---- errors ---------------------------------------------------------------------------------- */

void wb__gpu_mark_lost(wb__gpu_device *d, int code, const char *what)
{
    wb__mutex_lock(&d->losing);
    if (!d->lost)
        snprintf(d->lost_because, sizeof d->lost_because, "%s: %s (%d): %.300s", wb__gpu_call,
                 d->driver->error_name(code), code, what);
    d->lost = true;
    wb__mutex_unlock(&d->losing);
}

void wb__gpu_mark_lost_because(wb__gpu_device *d, const char *why)
{
    wb__mutex_lock(&d->losing);
    if (!d->lost) snprintf(d->lost_because, sizeof d->lost_because, "%.430s", why);
    d->lost = true;
    wb__mutex_unlock(&d->losing);
}

bool wb__gpu_is_lost(const wb_device *base)
{
    const wb__gpu_device *d = base->state;
    return d->lost;
}

static int report_lost(wb__gpu_device *d)
{
    wb__mutex_lock(&d->losing);
    char because[sizeof d->lost_because];
    memcpy(because, d->lost_because, sizeof because);
    wb__mutex_unlock(&d->losing);
    return wb__fail(WB_ERROR_DEVICE, "%s:%d: the device is lost: %s; restart the process to"
                    " use it; other devices still work", d->driver->backend->tag,
                    d->base.ordinal, because);
}

int wb__gpu_fail(const wb__gpu_driver *v, wb__gpu_device *d, int code, const char *format, ...)
{
    char who[24], what[1200], message[400] = "";
    if (d && d->lost) return report_lost(d);
    if (d) snprintf(who, sizeof who, "%s:%d", v->backend->tag, d->base.ordinal);
    else snprintf(who, sizeof who, "%s", v->backend->tag);
    va_list arguments;
    va_start(arguments, format);
    wb__plain_list(what, sizeof what, format, arguments);
    va_end(arguments);
    const int kind = v->error_kind(code);
    const bool lost = d && kind & WB__GPU_ERROR_LOST;
    if (lost) wb__gpu_mark_lost(d, code, what);
    v->error_text(d, code, message, sizeof message);
    return wb__fail(kind & WB__GPU_ERROR_MEMORY ? WB_ERROR_MEMORY : WB_ERROR_DEVICE,
                    "%s: %s: %s (%d): %s%s%s%s", who, wb__gpu_call, v->error_name(code), code, what,
                    *message ? "; the driver reports: " : "", message,
                    lost && !d->debug_sync ? "; WEBER_DEBUG=sync names the kernel" : "");
}

/* ---- fork ----
 *
 * A forked child has none of the driver's threads: a driver call may fail or never return. */

enum { MAX_DRIVERS = 8 };
static wb__gpu_state *gpu_device_guarded[MAX_DRIVERS];
static _Atomic int n_guarded;

static void gpu_device_in_child(void)
{
    for (int i = 0; i < n_guarded; i++) gpu_device_guarded[i]->child = true;
}

/* Makes each use of the backend in a forked child an error, from now on; the driver is open. */
static void gpu_device_guard_forks(wb__gpu_state *s)
{
    static wb__mutex one = WB__MUTEX_INIT;
    static wb__fork_handler child = {.f = gpu_device_in_child};
    wb__at_fork(&child);
    wb__mutex_lock(&one);
    if (!s->guarded && n_guarded < MAX_DRIVERS) {
        gpu_device_guarded[n_guarded] = s;
        n_guarded++;
        s->guarded = true;
    }
    wb__mutex_unlock(&one);
}

int wb__gpu_check_fork(const wb__gpu_driver *v)
{
    if (wb__likely(!v->state->child)) return 0;
    return wb__fail(WB_ERROR_DEVICE, "%s: this process was forked after %s was started, which"
                    " works in the parent process only: fork before the first use of a device, or"
                    " call exec after the fork", v->backend->tag, v->backend->name);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Initialises (made) or destroys (!made) the device's locks. */
static void set_locks(wb__gpu_device *d, bool made)
{
    wb__mutex *const locks[] = {&d->opening, &d->losing, &d->lock, &d->programs.lock,
                                      &d->to.lock, &d->from.lock};
    for (size_t i = 0; i < WB__COUNT(locks); i++)
        if (made) wb__mutex_init(locks[i]);
        else wb__mutex_destroy(locks[i]);
}

static int gpu_device_make_current(wb__gpu_device *d)
{
    const int code = d->driver->enter ? d->driver->enter(d) : 0;
    return wb__likely(!code) ? 0 : wb__gpu_fail(d->driver, d, code, "%s", d->name);
}

void wb__gpu_leave(wb__gpu_device *d) { if (d->driver->leave) d->driver->leave(); }

/* The device's events: two for each staging buffer, those of the rings `mark` and `upload`, one for
 * each small read, and those that graph.c makes. */
enum {
    RING_EVENTS = 4 + 2 * WB__GPU_MARKS,
    EVENTS = RING_EVENTS + WB__GPU_READS,
    ALL_EVENTS = EVENTS + 2 * WB__GPU_MARKS
};

static void **event_at(wb__gpu_device *d, int i)
{
    if (i < 2) return &d->to.event[i];
    if (i < 4) return &d->from.event[i - 2];
    if (i >= EVENTS) return &d->branch_events[i - EVENTS];
    if (i >= RING_EVENTS) return &d->read[i - RING_EVENTS].event;
    return i % 2 ? &d->upload[i / 2 - 2].event : &d->mark[i / 2 - 2].event;
}

static int make_events(wb__gpu_device *d)
{
    int code = 0;
    for (int i = 0; i < EVENTS && d->driver->new_event && !code; i++)
        code = d->driver->new_event(event_at(d, i));
    return code ? wb__gpu_fail(d->driver, d, code, "%s", d->name) : 0;
}

static void drop_events(wb__gpu_device *d)
{
    for (int i = 0; i < ALL_EVENTS; i++) {
        void **event = event_at(d, i);
        if (*event) d->driver->drop_event(*event);
        *event = NULL;
    }
    for (int i = 0; i < WB__GPU_MARKS; i++) d->mark[i].count = d->upload[i].count = 0;
    for (int i = 0; i < WB__GPU_READS; i++) d->read[i].busy = false;
}

static int gpu_device_open(wb__gpu_device *d)
{
    int status = d->driver->open(d);
    if (status) return status;
    if (!(status = gpu_device_make_current(d))) {
        status = make_events(d);
        if (status) drop_events(d);
        wb__gpu_leave(d);
    }
    if (status) d->driver->close(d);
    return status;
}

int wb__gpu_enter(wb__gpu_device *d)
{
    if (wb__gpu_check_fork(d->driver)) return WB_ERROR_DEVICE;
    if (wb__unlikely(!d->open)) {
        /* the backend may have been stopped after d was found, so it is started */
        int status = d->base.backend->start();
        if (status) return status;
        wb__mutex_lock(&d->opening);
        if (!d->open) status = gpu_device_open(d);
        if (!status) d->open = true;
        wb__mutex_unlock(&d->opening);
        if (status) return status;
    }
    return wb__unlikely(d->lost) ? report_lost(d) : gpu_device_make_current(d);
}

bool wb__gpu_enter_to_release(wb__gpu_device *d)
{
    return !wb__gpu_is_child(d) && d->open && (!d->driver->enter || !d->driver->enter(d));
}

/* ---- closing --------------------------------------------------------------------------------- */

static void gpu_device_close(wb__gpu_device *d)
{
    const wb__gpu_driver *v = d->driver;
    if (!d->open) return;
    const bool entered = wb__gpu_enter_to_release(d);
    const wb__gpu_queue queues[] = {WB__GPU_UP, WB__GPU_DOWN, WB__GPU_COMPUTE};
    for (size_t i = 0; i < WB__COUNT(queues); i++) v->sync(d, queues[i]);
    wb__gpu_vendors_close(d);
    wb__gpu_free_staging(d, &d->to);
    wb__gpu_free_staging(d, &d->from);
    wb__gpu_programs_free(d);
    wb__gpu_trim(&d->base);
    drop_events(d);
    if (entered) wb__gpu_leave(d);
    v->close(d);
    d->open = false;
}

static void gpu_device_forget(const wb__gpu_driver *v)
{
    wb__gpu_state *s = v->state;
    for (int i = 0; i < s->n; i++) {
        gpu_device_close(s->device[i]);
        set_locks(s->device[i], false);
    }
    s->n = 0;
    if (v->forget) v->forget();
}

/* ---- choosing devices: CPUs are last, or an environment variable selects --------------------- */

typedef struct {
    wb__gpu_device *device[WB__GPU_MAX_DEVICES];
    int n;
} gpu_device_list;

/* Moves devices that run items in turn, CPUs, to the end; otherwise keeps the driver's order. */
static void gpu_device_sort(gpu_device_list *l)
{
    for (int i = 1; i < l->n; i++) {
        wb__gpu_device *d = l->device[i];
        int k = i;
        for (; k && l->device[k - 1]->target.in_turn > d->target.in_turn; k--)
            l->device[k] = l->device[k - 1];
        l->device[k] = d;
    }
}

/* Moves the devices that `word` selects, by index or by kind, from the list `from` to `to`. */
static int gpu_device_choose(const wb__gpu_driver *v, const char *word, gpu_device_list *from,
                             gpu_device_list *to)
{
    static const char *const kinds[] = {"gpu", "accelerator", "cpu"};
    char *end = NULL;
    const long number = strtol(word, &end, 10);
    const bool is_number = end != word && !*end;
    bool known = is_number;
    for (size_t i = 0; i < WB__COUNT(kinds); i++) known |= !strcasecmp(word, kinds[i]);
    if (!known)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: %s: \"%s\" is neither a device's number nor gpu,"
                        " accelerator or cpu", v->backend->tag, v->choosing, word);
    if (is_number && (number < 0 || number >= from->n))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: %s names device %ld; there are %d",
                        v->backend->tag, v->choosing, number, from->n);
    for (int i = 0; i < from->n; i++) {
        wb__gpu_device *d = from->device[i];
        if (!d || !(is_number ? i == number : !strcasecmp(word, d->kind))) continue;
        to->device[to->n++] = d;
        from->device[i] = NULL;
    }
    return 0;
}

/* Restricts *all to the devices that the driver's variable selects, if the variable is set. */
static int gpu_device_choose_all(const wb__gpu_driver *v, gpu_device_list *all)
{
    const char *text = v->choosing ? wb__environment_text(v->choosing) : NULL;
    if (!text) return 0;
    char *words = wb__strdup(text), *rest = words;
    gpu_device_list to = {.n = 0};
    int status = words ? 0 : WB_ERROR_MEMORY;
    for (char *word; !status && (word = strtok_r(rest, ", ", &rest));)
        status = gpu_device_choose(v, word, all, &to);
    wb__free(words);
    if (!status && !to.n)
        status = wb__fail(WB_ERROR_DEVICE, "%s: %s=\"%s\" leaves no device of %d", v->backend->tag,
                          v->choosing, text, all->n);
    *all = to;
    return status;
}

/* ---- starting and stopping ------------------------------------------------------------------- */

static int gpu_device_find(const wb__gpu_driver *v)
{
    wb__gpu_state *s = v->state;
    gpu_device_list all = {.n = 0};
    int status = v->find(all.device, &all.n);
    if (!status) gpu_device_sort(&all);
    if (!status) status = gpu_device_choose_all(v, &all);
    for (int i = 0; i < all.n && !status; i++) {
        wb__gpu_device *d = s->device[i] = all.device[i];
        d->driver = v;
        d->base = (wb_device){.kind = wb__device_kind, .backend = v->backend, .ordinal = i,
                              .name = d->name, .about = d->about, .state = d};
        d->debug_sync = wb__debug("sync");
        d->flush_interval = 1;
        set_locks(d, true);
        s->n = i + 1;
        status = wb__gpu_memory_limit(v->backend->tag, d->total, &d->cache.limit);
        if (wb__debug("load"))
            wb__log(WB_LOG_DEBUG, "load: %s:%d: %s, %s", v->backend->tag, i, d->name, d->about);
    }
    if (status) gpu_device_forget(v);
    return status;
}

int wb__gpu_start(const wb__gpu_driver *v)
{
    wb__gpu_state *s = v->state;
    int status = wb__gpu_check_fork(v);
    if (status) return status;
    wb__mutex_lock(&s->starting);
    if (!s->started) status = v->load();
    if (!s->started && !status) {
        gpu_device_guard_forks(s);
        status = gpu_device_find(v);
    }
    if (!status) s->started = true;
    wb__mutex_unlock(&s->starting);
    return status;
}

static bool gpu_device_in_use(const wb__gpu_state *s)
{
    bool used = false;
    for (int i = 0; i < s->n; i++) used |= s->device[i]->cache.used || s->device[i]->holders;
    return used;
}

void wb__gpu_stop(const wb__gpu_driver *v)
{
    wb__gpu_state *s = v->state;
    if (s->child) return;
    wb__mutex_lock(&s->starting);
    /* the user still has objects of the backend, so the backend stays started */
    if (s->started && gpu_device_in_use(s)) {
        for (int i = 0; i < s->n; i++) wb__gpu_trim(&s->device[i]->base);
    } else if (s->started) {
        gpu_device_forget(v);
        s->started = false;
    }
    wb__mutex_unlock(&s->starting);
}

int wb__gpu_count(const wb__gpu_driver *v) { return v->state->n; }

const wb_device *wb__gpu_device_at(const wb__gpu_driver *v, int ordinal)
{
    return ordinal >= 0 && ordinal < v->state->n ? &v->state->device[ordinal]->base : NULL;
}

bool wb__gpu_has_dtype(const wb_device *base, wb_dtype t)
{
    const wb__gpu_device *d = base->state;
    return t != WB_F64 || d->target.f64;
}
