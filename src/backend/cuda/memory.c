/* Memory: blocks of the driver's stream-ordered pool behind handles of ours, kept by size when they
 * are released, and never more of them than the device or WEBER_MEMORY_LIMIT allows.  A device
 * without pools is asked in the old way, which waits for it. */
#include "backend/cuda/cuda.h"

#include <stdio.h>

static void *no_room(wb__cu_device *d, size_t bytes, CUresult code)
{
    char wanted[32], all[32], used[32], cached[32], said[96] = "";
    const wb__cu_cache *c = &d->cache;
    pthread_mutex_lock(&d->lock);
    const int64_t held = c->used, kept = c->cached;
    pthread_mutex_unlock(&d->lock);
    const int64_t size = (int64_t)WB__MIN(bytes, (size_t)INT64_MAX);
    if (code)
        snprintf(said, sizeof said, "; the driver says %s (%u)", wb__cu_error_name(code), code);
    return wb__fail_null(WB_ERROR_MEMORY, "cuda:%d: out of memory: %s wanted; %s %s, %s in tensors"
                         " and plans, %s cached%s", d->ordinal, wb__gpu_size_text(size, wanted),
                         wb__gpu_size_text(c->limit, all),
                         c->limit < d->total ? "allowed by WEBER_MEMORY_LIMIT" : "in all",
                         wb__gpu_size_text(held, used), wb__gpu_size_text(kept, cached), said);
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* With the lock and the context.  What the compute stream still does with the block comes first;
 * so does an upload that nobody waited for. */
static void free_block(wb__cu_device *d, wb__cu_memory *m)
{
    if (d->pool) {
        if (wb__cu_uses(d, m)) wb_clear_error();
        cu.MemFreeAsync(m->at, d->compute);
        wb__cu_issue(d);
    } else {
        cu.MemFree_v2(m->at);
    }
    wb__free(m);
}

/* With the context. */
static void empty_cache(wb__cu_device *d)
{
    wb__cu_cache *c = &d->cache;
    pthread_mutex_lock(&d->lock);
    const bool any = c->cached != 0;
    c->cached = 0;
    for (size_t i = 0; i < WB__COUNT(c->free); i++) {
        while (c->free[i]) {
            wb__cu_memory *m = c->free[i];
            c->free[i] = m->next;
            free_block(d, m);
        }
    }
    pthread_mutex_unlock(&d->lock);
    if (!any || !d->pool) return;
    cu.StreamSynchronize(d->compute);           /* only what is free by then leaves the pool */
    cu.MemPoolTrimTo(d->pool, 0);
}

void wb__cu_trim(const wb_device *base)
{
    wb__cu_device *d = base->state;
    if (!d->open || wb__cu_is_child()) return;
    const bool entered = wb__cu_enter_to_release(d);
    empty_cache(d);
    if (entered) wb__cu_leave();
}

void wb__cu_release(const wb_device *base, void *memory, size_t size)
{
    wb__cu_device *d = base->state;
    wb__cu_memory *m = memory;
    if (!m || wb__cu_is_child()) return;
    size_t bytes = 0;
    wb__cu_memory **list = &d->cache.free[wb__gpu_size_class(size, &bytes)];
    pthread_mutex_lock(&d->lock);
    d->cache.used -= (int64_t)m->bytes;
    d->cache.cached += (int64_t)m->bytes;
    m->next = *list;
    *list = m;
    pthread_mutex_unlock(&d->lock);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* With the lock.  Blocks made when memory was short may be smaller than their class. */
static wb__cu_memory *take(wb__cu_cache *c, int k, size_t size)
{
    for (wb__cu_memory **at = &c->free[k]; *at; at = &(*at)->next) {
        wb__cu_memory *m = *at;
        if (m->bytes < size) continue;
        *at = m->next;
        c->cached -= (int64_t)m->bytes;
        c->used += (int64_t)m->bytes;
        c->peak = WB__MAX(c->peak, c->used);
        return m;
    }
    return NULL;
}

/* With the lock: a block of the pool's is there for what the compute stream does after it. */
static CUresult create(wb__cu_device *d, wb__cu_memory *m)
{
    if (!d->pool) return cu.MemAlloc_v2(&m->at, m->bytes);
    const CUresult code = cu.MemAllocFromPoolAsync(&m->at, m->bytes, d->pool, d->compute);
    if (code) return code;
    wb__cu_issue(d);
    m->used = d->issued;
    return 0;
}

/* A new block, where there is room for it; NULL without an error: there is none; *code is the
 * driver's error, if it was asked. */
static wb__cu_memory *fresh(wb__cu_device *d, size_t bytes, CUresult *code)
{
    wb__cu_cache *c = &d->cache;
    *code = 0;
    if (bytes > (size_t)c->limit) return NULL;
    wb__cu_memory *m = wb__alloc_zero(1, sizeof *m);
    if (!m) {
        *code = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    m->bytes = bytes;
    pthread_mutex_lock(&d->lock);
    const bool room = c->used + c->cached + (int64_t)bytes <= c->limit;
    if (room) *code = create(d, m);
    const bool made = room && !*code;
    if (made) {
        c->used += (int64_t)bytes;
        c->peak = WB__MAX(c->peak, c->used);
    }
    pthread_mutex_unlock(&d->lock);
    if (made) return m;
    wb__free(m);
    return NULL;
}

static bool says_full(CUresult code) { return !code || code == CUDA_ERROR_OUT_OF_MEMORY; }

/* With the context. */
static wb__cu_memory *allocate(wb__cu_device *d, size_t size, int k, size_t bytes)
{
    CUresult code = 0;
    pthread_mutex_lock(&d->lock);
    wb__cu_memory *m = take(&d->cache, k, size);
    pthread_mutex_unlock(&d->lock);
    if (m) return m;
    m = fresh(d, bytes, &code);
    if (!m && says_full(code)) {            /* what is kept in other sizes, and exactly so much */
        empty_cache(d);
        m = fresh(d, bytes, &code);
        const size_t least = WB__MAX((size + 63) / 64 * 64, (size_t)64);
        if (!m && says_full(code) && least < bytes) m = fresh(d, least, &code);
    }
    if (m) return m;
    if (says_full(code)) return no_room(d, size, code);
    wb__cu_fail(d, d->pool ? "cuMemAllocFromPoolAsync" : "cuMemAlloc", code, "%zu bytes", size);
    return NULL;
}

void *wb__cu_allocate(const wb_device *base, size_t size)
{
    wb__cu_device *d = base->state;
    size_t bytes = 0;
    if (wb__cu_enter(d)) return NULL;
    const int k = wb__gpu_size_class(size, &bytes);
    wb__cu_memory *m = k < 0 ? no_room(d, size, 0) : allocate(d, size, k, bytes);
    wb__cu_leave();
    return m;
}

/* Free is what the driver could still give to us. */
int wb__cu_memory_of(const wb_device *base, wb_device_memory *m)
{
    wb__cu_device *d = base->state;
    size_t free = (size_t)d->total, total = 0;
    if (wb__cu_check_fork()) return WB_ERROR_DEVICE;
    if (d->open) {                              /* merely to ask, none is opened */
        if (wb__cu_enter(d)) return WB_ERROR_DEVICE;
        const CUresult code = cu.MemGetInfo_v2(&free, &total);
        wb__cu_leave();
        if (code) return wb__cu_fail(d, "cuMemGetInfo", code, "%s", d->name);
    }
    pthread_mutex_lock(&d->lock);
    const wb__cu_cache *c = &d->cache;
    const int64_t allowed = c->limit - c->used - c->cached;
    *m = (wb_device_memory){.total = d->total, .free = WB__MIN(allowed, (int64_t)free),
                            .used = c->used, .peak = c->peak, .cached = c->cached};
    pthread_mutex_unlock(&d->lock);
    return 0;
}

/* ---- shared with other libraries ------------------------------------------------------------- */

void wb__cu_share(const wb_device *base, const void *memory, size_t at, wb__shared *s)
{
    const wb__cu_device *d = base->state;
    const wb__cu_memory *m = memory;
    *s = (wb__shared){.kind = 2, .ordinal = d->ordinal};
    if (m) s->data = (void *)(uintptr_t)(m->at + at);
}

/* Counted as kernels are, so that the device stays open as long as somebody holds the handle. */
void *wb__cu_adopt(const wb_device *base, void *address, size_t bytes)
{
    wb__cu_device *d = base->state;
    wb__cu_memory *m = wb__cu_check_fork() ? NULL : wb__alloc_zero(1, sizeof *m);
    if (!m) return NULL;
    m->at = (CUdeviceptr)(uintptr_t)address;
    m->bytes = bytes;
    d->kernels++;
    return m;
}

void wb__cu_disown(const wb_device *base, void *memory)
{
    wb__cu_device *d = base->state;
    wb__free(memory);
    d->kernels--;
}
