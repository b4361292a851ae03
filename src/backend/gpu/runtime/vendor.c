/* Vendor libraries are opened at the first use and never closed, because their threads may still
 * run.  Each device has a handle of the library, and caches the algorithm for each problem, or the
 * fact that there is none. */
#include "backend/gpu/runtime/runtime.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- versions -------------------------------------------------------------------------------- */

/* With l->lock held: opens the next suitable version, and fills the function table.  false: there
 * is none, l->reason is set, and the table is unchanged. */
static bool vendor_open_next(wb__gpu_vendor *l)
{
    char message[400];
    void *file, *found[WB__GPU_MAX_FUNCTIONS];
    *l->reason = 0;
    while ((file = wb__gpu_open_next(l->search, l->files, &l->from, message, sizeof message))) {
        const char *missing = wb__gpu_find_functions(file, l->functions, l->n_functions, found);
        if (l->suits(found, missing, l->reason, sizeof l->reason)) {
            if (l->table) memcpy(l->table, found, l->n_functions * sizeof *found);
            return true;
        }
        if (wb__debug("load"))
            wb__log(WB_LOG_INFO, "%s: %s: %s", l->search->tag, l->name, l->reason);
    }
    if (!*l->reason) snprintf(l->reason, sizeof l->reason, "%s; %s", message, l->advice);
    return false;
}

bool wb__gpu_vendor_works(wb__gpu_vendor *l)
{
    if (wb__gpu_is_off(l->variable)) {
        wb__fail(WB_ERROR_UNSUPPORTED, "%s: %s: %s=0 disables it", l->search->tag, l->name,
                 l->variable);
        return false;
    }
    wb__mutex_lock(&l->lock);
    if (!l->searched) l->works = vendor_open_next(l);
    l->searched = true;
    wb__mutex_unlock(&l->lock);
    if (!l->works) wb__fail(WB_ERROR_UNSUPPORTED, "%s: %s: %s", l->search->tag, l->name, l->reason);
    return l->works;
}

bool wb__gpu_vendor_usable(wb__gpu_vendor *l)
{
    if (wb__gpu_vendor_works(l)) return true;
    if (!wb__gpu_is_off(l->variable) && !atomic_exchange(&l->missing_logged, true))
        wb__log(WB_LOG_WARN, "%s: %s is not used, our own kernels are: %s", l->search->tag, l->name,
                l->reason);
    wb_clear_error();
    return false;
}

/* ---- errors ---------------------------------------------------------------------------------- */

int wb__gpu_vendor_fail(const wb__gpu_device *d, const wb__gpu_vendor *l, int status,
                         const char *call)
{
    char message[256] = "";
    if (l->last_message) l->last_message(message, sizeof message);
    return wb__fail(l->is_memory(status) ? WB_ERROR_MEMORY : WB_ERROR_DEVICE,
                    "%s:%d: %s: %s (%d)%s%s", l->search->tag, d->base.ordinal, call,
                    l->status_name(status), status, *message ? ": " : "", message);
}

void wb__gpu_vendor_log_failure(const wb__gpu_device *d, const wb__gpu_vendor *l, int status,
                                 const char *call)
{
    if (wb__debug("dispatch"))
        wb__log(WB_LOG_INFO, "%s:%d: %s: %s (%d)", l->search->tag, d->base.ordinal, call,
                l->status_name(status), status);
}

/* ---- handles --------------------------------------------------------------------------------- */

/* Creates a handle.  If this fails, the next version of the library is tried, unless memory is
 * exhausted or some device has a handle.  Returns 0, or the first version's status. */
static int vendor_create(wb__gpu_vendor *l, void **handle)
{
    wb__mutex_lock(&l->lock);
    const int first = l->create(handle);
    int status = first;
    while (status && !l->is_memory(status) && !l->version_fixed && vendor_open_next(l))
        status = l->create(handle);
    l->version_fixed |= !status;
    wb__mutex_unlock(&l->lock);
    return status ? first : 0;
}

/* Returns the device's state of the library, its handle and entries, created at the first use.  If
 * no handle can be created, the state has none, and this is logged once.  NULL: out of memory. */
static wb__gpu_vendor_state *vendor_state_of(wb__gpu_device *d, wb__gpu_vendor *l)
{
    wb__gpu_vendor_state *s = d->vendor_states;
    while (s && s->library != l) s = s->next;
    if (s || !(s = wb__alloc_zero(1, sizeof *s))) return s;
    const int status = vendor_create(l, &s->handle);
    if (status) {
        s->handle = NULL;
        if (!atomic_exchange(&l->warned, true))
            wb__log(WB_LOG_WARN, "%s:%d: %s is not used, our own kernels are: %s: %s (%d)",
                    l->search->tag, d->base.ordinal, l->name, l->creating, l->status_name(status),
                    status);
    }
    s->library = l;
    s->next = d->vendor_states;
    return d->vendor_states = s;
}

void *wb__gpu_vendor_handle(wb__gpu_device *d, wb__gpu_vendor *l)
{
    const wb__gpu_vendor_state *s = vendor_state_of(d, l);
    if (!s) wb_clear_error();
    return s ? s->handle : NULL;
}

/* Unlinks and frees the entry *at. */
static void vendor_drop_entry(wb__gpu_vendor_state *s, wb__gpu_entry **at)
{
    wb__gpu_entry *e = *at;
    *at = e->next;
    s->n--;
    if (s->library->drop) s->library->drop(e);
    wb__free(e);
}

void wb__gpu_vendors_close(wb__gpu_device *d)
{
    while (d->vendor_states) {
        wb__gpu_vendor_state *s = d->vendor_states;
        d->vendor_states = s->next;
        while (s->first) vendor_drop_entry(s, &s->first);
        if (s->handle && s->library->destroy) s->library->destroy(s->handle);
        wb__free(s);
    }
}

/* ---- cached entries -------------------------------------------------------------------------- */

enum { MAX_ENTRIES = 512 };

/* Frees the oldest entry that has no holders and was not refused, if the list is full. */
static void vendor_drop_oldest(wb__gpu_vendor_state *s)
{
    wb__gpu_entry **oldest = NULL;
    for (wb__gpu_entry **at = &s->first; *at && s->n >= MAX_ENTRIES; at = &(*at)->next)
        if (!(*at)->holders && !(*at)->refused) oldest = at;
    if (oldest) vendor_drop_entry(s, oldest);
}

/* Returns the entry for a problem, which the library fills if it is new; NULL: failed. */
static wb__gpu_entry *vendor_find_entry(wb__gpu_device *d, wb__gpu_vendor_state *s,
                                        const void *problem)
{
    const wb__gpu_vendor *l = s->library;
    for (wb__gpu_entry *e = s->first; e; e = e->next)
        if (!memcmp(e + 1, problem, l->problem_bytes)) return e;
    vendor_drop_oldest(s);
    wb__gpu_entry *e = wb__alloc_zero(1, l->entry_bytes);
    if (!e) return NULL;
    memcpy(e + 1, problem, l->problem_bytes);
    if (l->find(d, l, s->handle, e)) {
        wb__free(e);
        return NULL;
    }
    e->next = s->first;
    s->n++;
    return s->first = e;
}

wb__gpu_entry *wb__gpu_entry_of(wb__gpu_device *d, wb__gpu_vendor *l, const void *problem,
                                const char **reason, int *error)
{
    wb__gpu_vendor_state *s = vendor_state_of(d, l);
    wb__gpu_entry *e = s && s->handle ? vendor_find_entry(d, s, problem) : NULL;
    *error = WB_ERROR_UNSUPPORTED;
    if (e && e->found && !e->refused) *error = 0;
    else if (e) *reason = l->reasons[e->refused ? WB__GPU_REFUSED : WB__GPU_NOTHING];
    else if (s && !s->handle) *reason = l->reasons[WB__GPU_NO_HANDLE];
    else *error = (int)wb_error_code();
    return *error ? NULL : e;
}

int wb__gpu_refuse_entry(wb__gpu_device *d, wb__gpu_vendor *l, wb__gpu_entry *e, int status,
                         const char *call)
{
    char message[600];
    bool *refusal_logged = &vendor_state_of(d, l)->refusal_logged;
    wb__gpu_vendor_fail(d, l, status, call);
    snprintf(message, sizeof message, "%s", wb_error());
    const int code = d->recording ? 0 : d->driver->sync(d, WB__GPU_COMPUTE);
    if (code) return wb__gpu_fail(d->driver, d, code, "%s", message);
    if (!*refusal_logged || wb__debug("dispatch"))
        wb__log(*refusal_logged ? WB_LOG_INFO : WB_LOG_WARN, "%s; from now on our own kernels do"
                " this step and others that the library refuses", message);
    *refusal_logged = e->refused = true;
    return wb__fail(WB_ERROR_UNSUPPORTED, "%s", message);
}
