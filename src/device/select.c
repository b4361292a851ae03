/* Selects devices by preference, by order or by index, and describes them.  Documentation and tests
 * contain the messages of this file word for word. */
#include "device/device.h"
#include "device/registry.h"

#include "backend/collective.h"
#include "base/options.h"
#include "tree/tree.h"

#include <stdio.h>
#include <string.h>

/* Guarded by the registry's lock. */
static int select_remembered;   /* 1 + row of the device that wb_gpu_device remembers; 0: none */
static struct {
    bool not_allowed, not_loaded, not_functional;  /* problems of the preference that were logged */
    bool nothing_loaded, nothing_works;                 /* problems that wb_gpu has logged */
} select_logged;

void wb__selection_forget_device(void) { select_remembered = 0; }

void wb__device_forget(void)
{
    wb__registry_lock();
    select_remembered = 0;
    memset(&select_logged, 0, sizeof select_logged);
    wb__preference_forget();
    wb__registry_unlock();
}

/* Whether this is the first call for the flag, which it sets. */
static bool set_once(bool *flag)
{
    bool first = !*flag;
    *flag = true;
    return first;
}

/* Returns the first device of a row, or that of this rank if several run on this machine. */
static const wb_device *first_device_of(int row)
{
    const wb_device_list all = wb__row_devices(row);
    const wb__communicator *c = wb__world();
    return all.device[c ? c->local_rank % all.n : 0];
}

/* ---- preferred device ---------------------------------------------------------------------- */

/* Returns the row of the preferred backend; -1: none.  With `once`, each problem is logged only
 * once. */
static int preferred_row(const wb__preference *p, bool verbose, bool once)
{
    if (!p->set) return -1;
    if (p->row < 0) {
        if (set_once(&select_logged.not_allowed))
            wb__log(WB_LOG_WARN, "gpu_backend preference is set to %s, which is not allowed.\n"
                    "Defaulting to automatic device selection.", p->name);
        return -1;
    }
    const char *name = wb__rows[p->row].name;
    if (verbose) wb__log(WB_LOG_INFO, "Using backend set in preferences: %s.", name);
    if (!wb__row_loaded(p->row)) {
        if (set_once(&select_logged.not_loaded) || !once)
            wb__log(WB_LOG_WARN, "Trying to use backend: %s but it's trigger package is not "
                    "loaded.\nPlease load the package and call this function again to respect the "
                    "preferences backend: wb_using(\"%s\").", name, name);
        return -1;
    }
    if (wb__row_works(p->row)) return p->row;
    if (set_once(&select_logged.not_functional) || !once)
        wb__log(WB_LOG_WARN, "Backend: %s from the set preferences is not functional. Defaulting "
                "to automatic device selection.\n%s", name, wb__row_reason(p->row));
    return -1;
}

static int first_working_row(int from, int to)
{
    for (int row = from; row < to; row++)
        if (wb__row_works(row)) return row;
    return -1;
}

const wb_device *wb_get_device_with(const wb_get_device_options *given)
{
    wb_get_device_options o;
    if (!wb__read_options("get_device", wb_get_device_options, &o, given, NULL)) return NULL;
    wb__registry_lock();
    int row = preferred_row(wb__preference_read(), o.verbose, false);
    const wb_device *d = row < 0 ? NULL : first_device_of(row);
    if (!d) {
        row = first_working_row(0, WB__ROWS);
        if (row < 0) row = WB__CPU_ROW; /* out of memory for the row's list of devices */
        if (o.verbose) wb__log(WB_LOG_INFO, "Using backend: %s.", wb__rows[row].name);
        d = row == WB__CPU_ROW ? &wb__cpu : first_device_of(row);
    }
    wb__registry_unlock();
    return d;
}

const wb_device *wb_cpu_device(void) { return &wb__cpu; }

/* ---- the GPU ------------------------------------------------------------------------------- */

static bool prefers_cpu(void)
{
    const wb__preference *p = wb__preference_read();
    return p->set && p->row == WB__CPU_ROW;
}

/* Returns the device that wb_gpu uses; NULL: there is no GPU, or the CPU is preferred.  Only a GPU
 * is remembered, so that a backend that is loaded later is found. */
static const wb_device *find_gpu(void)
{
    if (select_remembered) return first_device_of(select_remembered - 1);
    if (prefers_cpu()) return NULL;
    const int row = first_working_row(0, WB__CPU_ROW);
    if (row < 0) return NULL;
    const int named = preferred_row(wb__preference_read(), false, true);
    select_remembered = 1 + (named < 0 ? row : named);
    return first_device_of(select_remembered - 1);
}

const char *wb__gpu_backend_in_use(void)
{
    wb__registry_lock();
    const wb__preference *p = wb__preference_read();
    const int named = p->set && p->row < WB__CPU_ROW ? p->row : -1;
    int row = named >= 0 && wb__row_works(named) ? named : first_working_row(0, WB__CPU_ROW);
    if (row < 0) row = named;
    wb__registry_unlock();
    return row < 0 ? NULL : wb__rows[row].name;
}

/* Sets the error of a missing GPU, with a line for each backend that does not work.  Returns
 * NULL. */
static void *fail_without_gpu(void)
{
    char text[WB__REASON_BYTES];
    int n = snprintf(text, sizeof text, "No functional GPU device found!");
    const wb__preference *p = wb__preference_read();
    if (p->set && p->row == WB__CPU_ROW)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "\nThe gpu_backend preference is CPU: no other backend is used.");
    for (int row = 0; row < WB__CPU_ROW && n < (int)sizeof text; row++) {
        const char *reason = wb__row_reason(row);
        if (*reason)
            n += snprintf(text + n, sizeof text - (size_t)n, "\n%s%s", wb__row_label(row, reason),
                          reason);
    }
    return wb__fail_null(WB_ERROR_DEVICE, "%s", text);
}

const wb_device *wb_gpu_device_with(const wb_gpu_device_options *given)
{
    wb_gpu_device_options o;
    if (!wb__read_options("gpu_device", wb_gpu_device_options, &o, given, NULL)) return NULL;
    wb__registry_lock();
    const wb_device *d = find_gpu();
    if (!d && !prefers_cpu()) preferred_row(wb__preference_read(), false, true);
    if (!d) d = o.force ? fail_without_gpu() : &wb__cpu;
    wb__registry_unlock();
    return d;
}

void wb_reset_gpu_device(void)
{
    wb__registry_lock();
    select_remembered = 0;
    select_logged.not_loaded = select_logged.not_functional = false;
    wb__registry_unlock();
}

/* Logs once that a backend does not work.  The message names the preferred backend, else the first
 * loaded one, else the first one. */
static void log_nothing_works(void)
{
    const wb__preference *p = wb__preference_read();
    int row = p->set ? p->row : -1;
    if (row < 0) {
        for (row = 0; row < WB__CPU_ROW && !wb__row_loaded(row);) row++;
        if (row == WB__CPU_ROW) row = 0;
    }
    const wb__row *r = &wb__rows[row];
    const bool loaded = wb__row_loaded(row);
    if (!set_once(loaded ? &select_logged.nothing_works : &select_logged.nothing_loaded)) return;
    if (loaded)
        wb__log(WB_LOG_INFO, "The %s function is being called but %s is not functional.\n"
                "Defaulting back to the CPU. (No action is required if you want to run on the "
                "CPU).", r->name, r->name);
    else
        wb__log(WB_LOG_INFO, "The %s functionality is being called but the backend %s must be "
                "loaded to access it: wb_using(\"%s\").", r->name, r->name, r->name);
}

const wb_device *wb__gpu_for_move(void)
{
    wb__registry_lock();
    const wb_device *d = find_gpu();
    if (!d && !prefers_cpu()) {
        const wb__preference *p = wb__preference_read();
        if (p->set && p->row < 0) preferred_row(p, false, true);
        log_nothing_works();
    }
    wb__registry_unlock();
    return d;
}

wb_device_list wb_devices(const char *backend)
{
    int row = wb__row_named(backend);
    if (row < 0) return (wb_device_list){0};
    wb__registry_lock();
    wb_device_list list = wb__row_devices(row);
    wb__registry_unlock();
    return list;
}

static const wb_device *device_of_row(int row, int ordinal)
{
    const char *name = wb__rows[row].name;
    if (!wb__row_loaded(row))
        return wb__fail_null(WB_ERROR_DEVICE, "Unavailable backend: %s. Try loading it with "
                             "wb_using(\"%s\").", name, name);
    wb_device_list list = wb__row_devices(row);
    if (!list.n)
        return wb__fail_null(WB_ERROR_DEVICE, "Backend: %s is not functional.\n%s", name,
                             wb__row_reason(row));
    if (ordinal >= 0 && ordinal < list.n) return list.device[ordinal];
    return wb__fail_null(WB_ERROR_DEVICE, "%s has no device %d: there %s %d, numbered from 0.",
                         name, ordinal, list.n == 1 ? "is" : "are", list.n);
}

const wb_device *wb_device_at(const char *backend, int ordinal)
{
    int row = wb__row_named(backend);
    if (row < 0) return NULL;
    wb__registry_lock();
    const wb_device *d = device_of_row(row, ordinal);
    wb__registry_unlock();
    return d;
}

/* Whether d is a device; false without an error for NULL.  An object in its place is an error. */
static bool select_is_device(const wb_device *d, const char *what)
{
    return d && wb__is_device(what, d);
}

int wb_device_ordinal(const wb_device *d)
{
    return select_is_device(d, "device_ordinal") ? d->ordinal : -1;
}
const char *wb_device_backend(const wb_device *d)
{
    return select_is_device(d, "device_backend") ? d->backend->name : "";
}
bool wb_device_is_gpu(const wb_device *d)
{
    return select_is_device(d, "device_is_gpu") && !d->backend->host_visible;
}

const char *wb_device_name(const wb_device *d)
{
    return !select_is_device(d,
                             "device_name") ? "" : d->name && *d->name ? d->name : d->backend->name;
}

const char *wb_device_describe(const wb_device *d)
{
    enum { RING = 8, ROOM = 256 };
    static _Thread_local unsigned next;
    if (!select_is_device(d, "device_describe")) return "";
    char *text = wb__thread_text(WB__TEXT_DEVICES) + next++ % RING * ROOM;
    const char *prefix = wb__rows[wb__row_of(d->backend)].prefix;
    if (wb_device_is_gpu(d))
        snprintf(text, ROOM, "%s(%d): %s", prefix, d->ordinal, d->name);
    else if (wb__cpu_backend.count() > 1)
        snprintf(text, ROOM, "%s(%d)", prefix, d->ordinal);
    else
        snprintf(text, ROOM, "%s()", prefix);
    return text;
}

static bool is_given_device(const wb_device *d, const char *what)
{
    if (!d && !*wb_error()) wb__fail(WB_ERROR_ARGUMENT, "%s: no device", what);
    return select_is_device(d, what);
}

int wb_device_memory_of(const wb_device *d, wb_device_memory *m)
{
    if (m)
        *m = (wb_device_memory){.total = -1, .free = -1, .used = -1, .peak = -1, .cached = -1};
    if (!is_given_device(d, "device_memory_of")) return wb_error_code();
    if (!m) return wb__fail(WB_ERROR_ARGUMENT, "device_memory_of: no struct for the result");
    return d->backend->memory(d, m);
}

void wb_device_trim(const wb_device *d)
{
    if (is_given_device(d, "device_trim")) d->backend->trim(d);
}

int wb_synchronize(const wb_device *d)
{
    WB__PUBLIC(wb_synchronize, wb_error_code());
    if (!is_given_device(d, "synchronize")) return wb_error_code();
    return d->backend->wait(d);
}
