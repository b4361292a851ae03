/* Memory: buffers of the driver's behind handles of ours, kept by size when they are released, and
 * never more of them than the device or WEBER_MEMORY_LIMIT allows. */
#include "backend/opencl/opencl.h"

#include <stdio.h>

/* ---- the cache ------------------------------------------------------------------------------- */

/* `code`: what the driver said, if it was asked. */
static void *no_room(wb__cl_device *d, size_t bytes, cl_int code)
{
    char wanted[32], all[32], used[32], cached[32], said[96] = "";
    const wb__cl_cache *c = &d->cache;
    pthread_mutex_lock(&d->lock);
    const int64_t held = c->used, kept = c->cached;
    pthread_mutex_unlock(&d->lock);
    const int64_t size = (int64_t)WB__MIN(bytes, (size_t)INT64_MAX);
    if (code)
        snprintf(said, sizeof said, "; the driver says %s (%d)", wb__cl_error_name(code),
                 (int)code);
    if (size > d->most && d->most < c->limit)
        return wb__fail_null(WB_ERROR_MEMORY, "opencl:%d: out of memory: %s wanted; the device"
                             " gives at most %s in one piece", d->base.ordinal,
                             wb__gpu_size_text(size, wanted), wb__gpu_size_text(d->most, all));
    return wb__fail_null(WB_ERROR_MEMORY, "opencl:%d: out of memory: %s wanted; %s %s, %s in"
                         " tensors and plans, %s cached%s", d->base.ordinal,
                         wb__gpu_size_text(size, wanted), wb__gpu_size_text(c->limit, all),
                         c->limit < d->total ? "allowed by WEBER_MEMORY_LIMIT" : "in all",
                         wb__gpu_size_text(held, used), wb__gpu_size_text(kept, cached), said);
}

static void free_block(wb__cl_memory *m)
{
    if (m->mem) cl.ReleaseMemObject(m->mem);
    wb__free(m);
}

/* With the lock. */
static void empty_cache(wb__cl_device *d)
{
    wb__cl_cache *c = &d->cache;
    c->cached = 0;
    for (size_t i = 0; i < WB__COUNT(c->free); i++) {
        while (c->free[i].first) {
            wb__cl_memory *m = c->free[i].first;
            c->free[i].first = m->next;
            free_block(m);
        }
        c->free[i].last = NULL;
    }
}

/* The driver frees a buffer when the commands that use it have ended. */
void wb__cl_trim(const wb_device *base)
{
    wb__cl_device *d = base->state;
    if (!d->open || wb__cl_is_child()) return;
    pthread_mutex_lock(&d->lock);
    empty_cache(d);
    pthread_mutex_unlock(&d->lock);
}

/* With the lock.  Blocks made when memory was short may be smaller than their class. */
static wb__cl_memory *take(wb__cl_cache *c, int k, size_t size)
{
    wb__cl_class *list = &c->free[k];
    for (wb__cl_memory **at = &list->first, *before = NULL; *at; before = *at, at = &(*at)->next) {
        wb__cl_memory *m = *at;
        if (m->bytes < size) continue;
        *at = m->next;
        if (list->last == m) list->last = before;
        c->cached -= (int64_t)m->bytes;
        c->used += (int64_t)m->bytes;
        c->peak = WB__MAX(c->peak, c->used);
        return m;
    }
    return NULL;
}

/* ---- asking the driver ----------------------------------------------------------------------- */

/* Drivers give memory when it is first used; a migration asks for it now, so that what fails,
 * fails here.  It is waited for, on the transfer queue: nothing may use the memory before it. */
static cl_int create(wb__cl_device *d, wb__cl_memory *m)
{
    cl_int code = 0;
    m->mem = cl.CreateBuffer(d->platform->context, CL_MEM_READ_WRITE, m->bytes, NULL, &code);
    if (!code)
        code = cl.EnqueueMigrateMemObjects(d->transfer, 1, &m->mem,
                                           CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, NULL);
    if (!code) code = cl.Finish(d->transfer);
    return code;
}

/* A new block, where there is room for it; NULL without an error: there is none; *code is the
 * driver's error, if it was asked. */
static wb__cl_memory *fresh(wb__cl_device *d, size_t bytes, cl_int *code)
{
    static _Atomic uint64_t serials;
    wb__cl_cache *c = &d->cache;
    *code = 0;
    if (bytes > (size_t)WB__MIN(d->most, c->limit)) return NULL;
    pthread_mutex_lock(&d->lock);
    const bool room = c->used + c->cached + (int64_t)bytes <= c->limit;
    if (room) c->used += (int64_t)bytes;
    pthread_mutex_unlock(&d->lock);
    if (!room) return NULL;
    wb__cl_memory *m = wb__alloc_zero(1, sizeof *m);
    if (m) {
        m->bytes = bytes;
        m->serial = ++serials;
        *code = create(d, m);
    } else {
        *code = CL_OUT_OF_HOST_MEMORY;
    }
    pthread_mutex_lock(&d->lock);
    if (*code) c->used -= (int64_t)bytes;
    else c->peak = WB__MAX(c->peak, c->used);
    pthread_mutex_unlock(&d->lock);
    if (!*code) return m;
    if (m) free_block(m);
    return NULL;
}

static bool says_full(cl_int code)
{
    return !code || code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES ||
           code == CL_OUT_OF_HOST_MEMORY || code == CL_INVALID_BUFFER_SIZE;
}

void *wb__cl_allocate(const wb_device *base, size_t size)
{
    wb__cl_device *d = base->state;
    if (wb__cl_check_fork() || wb__cl_open(d)) return NULL;
    size_t bytes = 0;
    cl_int code = 0;
    const int k = wb__gpu_size_class(size, &bytes);
    if (k < 0) return no_room(d, size, 0);
    pthread_mutex_lock(&d->lock);
    wb__cl_memory *m = take(&d->cache, k, size);
    pthread_mutex_unlock(&d->lock);
    if (m) return m;
    m = fresh(d, bytes, &code);
    if (!m && says_full(code)) {            /* what is kept in other sizes, and exactly so much */
        cl.Finish(d->compute);
        wb__cl_trim(base);
        m = fresh(d, bytes, &code);
        const size_t least = WB__MAX((size + 63) / 64 * 64, (size_t)64);
        if (!m && says_full(code) && least < bytes) m = fresh(d, least, &code);
    }
    if (m) return m;
    if (code && !says_full(code)) {
        wb__cl_fail(d, "clCreateBuffer", code, "%zu bytes", size);
        return NULL;
    }
    return no_room(d, size, code);
}

void wb__cl_release(const wb_device *base, void *memory, size_t size)
{
    wb__cl_device *d = base->state;
    wb__cl_memory *m = memory;
    if (!m || wb__cl_is_child()) return;
    size_t bytes = 0;
    const int k = wb__gpu_size_class(size, &bytes);
    wb__cl_class *list = &d->cache.free[k];
    pthread_mutex_lock(&d->lock);
    d->cache.used -= (int64_t)m->bytes;
    d->cache.cached += (int64_t)m->bytes;
    m->next = NULL;
    if (list->last && list->first) list->last->next = m;
    else list->first = m;
    list->last = m;
    pthread_mutex_unlock(&d->lock);
}

/* The driver does not tell what others hold: free is what this process could still have. */
int wb__cl_memory_of(const wb_device *base, wb_device_memory *m)
{
    wb__cl_device *d = base->state;
    if (wb__cl_check_fork()) return WB_ERROR_DEVICE;
    pthread_mutex_lock(&d->lock);
    const wb__cl_cache *c = &d->cache;
    *m = (wb_device_memory){.total = d->total, .free = c->limit - c->used - c->cached,
                            .used = c->used, .peak = c->peak, .cached = c->cached};
    pthread_mutex_unlock(&d->lock);
    return 0;
}
