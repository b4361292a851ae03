/* Memory: each handle is a block of the driver.  Released blocks are kept for reuse.  Blocks in use
 * and kept ones together never exceed the device's memory or WEBER_MEMORY_LIMIT. */
#include "backend/gpu/runtime/runtime.h"

#include "base/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Parses "100M", "1.5GiB", "2GB" or "50%".  K, M, G, T and KiB, MiB, GiB, TiB are powers of 1,024;
 * KB, MB, GB, TB are powers of 1,000; a number without a unit is in bytes. */
int wb__gpu_memory_limit(const char *tag, int64_t total, int64_t *limit)
{
    const char *text = wb__environment_text("WEBER_MEMORY_LIMIT");
    *limit = total;
    if (!text || !*text) return 0;
    char *end = NULL;
    double value = wb__plain_number(text, &end);
    const bool number = end != text;
    static const char letters[] = "KMGT";
    const char *letter = *end ? strchr(letters, *end & ~0x20) : NULL;
    if (*end == '%' && !end[1]) {
        value *= (double)total / 100;
        end++;
    } else if (letter) {
        end++;
        const double unit = !strcasecmp(end, "B") ? 1000 : 1024;
        for (long i = 0; i <= letter - letters; i++) value *= unit;
        if (!strcasecmp(end, "iB")) end += 2;
        else if (!strcasecmp(end, "B")) end++;
    } else if (!strcasecmp(end, "B")) {
        end++;
    }
    if (!number || *end || !(value >= 0))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: WEBER_MEMORY_LIMIT: \"%s\" is not a size such as"
                        " 100M, 1.5GiB or 50%%", tag, text);
    if (value < (double)total) *limit = (int64_t)value;
    return 0;
}

/* Writes a size as "1.5 MiB"; returns the buffer. */
static const char *gpu_memory_size_text(int64_t bytes, char text[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t u = 0;
    while (value >= 1024 && u + 1 < WB__COUNT(units)) value /= 1024, u++;
    wb__plain(text, 32, u ? "%.1f %s" : "%.0f %s", value, units[u]);
    return text;
}

enum { GPU_MEMORY_LEAST = 8, GPU_MEMORY_OCTAVES = 40,
       GPU_MEMORY_A_CLASS = WB__GPU_SIZE_CLASSES / GPU_MEMORY_OCTAVES, UNIT = 32 << 20 };

/* Returns the size class for `size` bytes, and sets *bytes to `size`, rounded up to the size of
 * this class or, if that is less, to a multiple of UNIT; -1: too large. */
static int gpu_memory_size_class(size_t size, size_t *bytes)
{
    int octave = 0;
    while (octave < GPU_MEMORY_OCTAVES && ((size_t)2 << (GPU_MEMORY_LEAST + octave)) < size)
        octave++;
    if (octave == GPU_MEMORY_OCTAVES) return -1;
    const size_t base = (size_t)1 << (GPU_MEMORY_LEAST + octave), step = base / GPU_MEMORY_A_CLASS;
    size_t k = size <= base ? 0 : (size - base + step - 1) / step;
    *bytes = WB__MIN(base + k * step, (WB__MAX(size, 1) + UNIT - 1) / UNIT * UNIT);
    if (k == GPU_MEMORY_A_CLASS) octave++, k = 0;
    return octave == GPU_MEMORY_OCTAVES ? -1 : octave * GPU_MEMORY_A_CLASS + (int)k;
}

/* Reports that memory is exhausted.  `code`: the driver's error; 0: the driver was not called. */
static void *out_of_memory(wb__gpu_device *d, size_t bytes, int code)
{
    char wanted[32], all[32], used[32], cached[32], message[96] = "";
    const wb__gpu_cache *c = &d->cache;
    const char *tag = d->driver->backend->tag;
    wb__mutex_lock(&d->lock);
    const int64_t in_use = c->used, kept = c->cached;
    wb__mutex_unlock(&d->lock);
    const int64_t size = (int64_t)WB__MIN(bytes, (size_t)INT64_MAX);
    if (code)
        snprintf(message, sizeof message, "; the driver reports %s (%d)",
                 d->driver->error_name(code), code);
    if (d->most && size > d->most && d->most < c->limit)
        return wb__fail_null(WB_ERROR_MEMORY,
                             "%s:%d: out of memory: %s requested; the device"
                             " allocates at most %s at once: make smaller batches",
                             tag, d->base.ordinal, gpu_memory_size_text(size, wanted),
                             gpu_memory_size_text(d->most, all));
    return wb__fail_null(WB_ERROR_MEMORY,
                         "%s:%d: out of memory: %s requested; %s %s, %s in tensors"
                         " and plans, %s cached%s",
                         tag, d->base.ordinal, gpu_memory_size_text(size, wanted),
                         gpu_memory_size_text(c->limit, all),
                         c->limit < d->total ? "allowed by WEBER_MEMORY_LIMIT" : "in all",
                         gpu_memory_size_text(in_use, used), gpu_memory_size_text(kept, cached),
                         message);
}

/* ---- freeing --------------------------------------------------------------------------------- */

/* With the lock held: makes the compute queue wait for uploads into the block, and releases it.
 * The driver frees a block after the commands of the compute queue that use it. */
static void gpu_memory_free_block(wb__gpu_device *d, wb__gpu_memory *m)
{
    if (wb__gpu_command_uses(d, m)) wb_clear_error();
    d->driver->release(d, m->at);
    wb__free(m);
}

/* With the lock held: frees the cached blocks of class k. */
static void empty_class(wb__gpu_device *d, size_t k)
{
    wb__gpu_cache *c = &d->cache;
    while (c->free[k].first) {
        wb__gpu_memory *m = c->free[k].first;
        c->free[k].first = m->next;
        c->cached -= (int64_t)m->bytes;
        gpu_memory_free_block(d, m);
    }
}

/* Frees all cached blocks. */
static void gpu_memory_empty_cache(wb__gpu_device *d)
{
    wb__gpu_cache *c = &d->cache;
    wb__mutex_lock(&d->lock);
    const bool any = c->cached != 0;
    for (size_t i = 0; i < WB__COUNT(c->free); i++) empty_class(d, i);
    wb__mutex_unlock(&d->lock);
    if (any && d->driver->trim) d->driver->trim(d);
}

void wb__gpu_trim(const wb_device *base)
{
    wb__gpu_device *d = base->state;
    if (!d->open || wb__gpu_is_child(d)) return;
    const bool entered = wb__gpu_enter_to_release(d);
    gpu_memory_empty_cache(d);
    if (entered) wb__gpu_leave(d);
}

/* Puts a block into the list of free blocks of its size class.  By default, the block released last
 * is reused first, so that a program that repeats its steps gets the same addresses, which graphs
 * contain.  With oldest_first, the block released first is reused, whose last use has most likely
 * ended, so that an upload into it need not wait. */
void wb__gpu_release(const wb_device *base, void *memory, size_t size)
{
    wb__gpu_device *d = base->state;
    wb__gpu_memory *m = memory;
    if (!m || wb__gpu_is_child(d)) return;
    size_t bytes = 0;
    const int k = gpu_memory_size_class(size, &bytes);
    wb__mutex_lock(&d->lock);
    wb__gpu_memory **first = &d->cache.free[k].first, **last = &d->cache.free[k].last;
    d->cache.used -= (int64_t)m->bytes;
    d->cache.cached += (int64_t)m->bytes;
    const bool behind = *first && d->driver->oldest_first;
    m->next = behind ? NULL : *first;
    if (behind) (*last)->next = m;
    else *first = m;
    if (!m->next) *last = m;
    wb__mutex_unlock(&d->lock);
}

/* ---- allocating ------------------------------------------------------------------------------ */

/* With the lock held: takes a block of class k that has at least `size` bytes; NULL: there is none.
 * Blocks that were allocated when memory was short may be smaller than their class. */
static wb__gpu_memory *reuse_block(wb__gpu_cache *c, int k, size_t size)
{
    wb__gpu_memory *before = NULL;
    for (wb__gpu_memory **at = &c->free[k].first; *at; before = *at, at = &(*at)->next) {
        wb__gpu_memory *m = *at;
        if (m->bytes < size) continue;
        *at = m->next;
        if (c->free[k].last == m) c->free[k].last = before;
        c->cached -= (int64_t)m->bytes;
        c->used += (int64_t)m->bytes;
        c->peak = WB__MAX(c->peak, c->used);
        return m;
    }
    return NULL;
}

/* Allocates a new block.  NULL: the limit does not allow it, the host is out of memory, or the
 * driver failed.  *code: the driver's error code, or 0. */
static wb__gpu_memory *gpu_memory_new_block(wb__gpu_device *d, size_t bytes, int *code)
{
    static _Atomic uint64_t serials;
    wb__gpu_cache *c = &d->cache;
    *code = 0;
    if (bytes > (size_t)c->limit || (d->most && bytes > (size_t)d->most)) return NULL;
    wb__mutex_lock(&d->lock);
    const bool fits = c->used + c->cached + (int64_t)bytes <= c->limit;
    if (fits) c->used += (int64_t)bytes;
    wb__mutex_unlock(&d->lock);
    if (!fits) return NULL;
    wb__gpu_memory *m = wb__alloc_zero(1, sizeof *m);
    bool made = false;
    if (m) {
        *m = (wb__gpu_memory){.bytes = bytes, .serial = ++serials};
        *code = d->driver->allocate(d, bytes, &m->at);
        made = !*code;
    }
    wb__mutex_lock(&d->lock);
    if (!made) c->used -= (int64_t)bytes;
    else c->peak = WB__MAX(c->peak, c->used);
    if (made && d->allocates_in_order) {
        wb__gpu_count_command(d, NULL);
        m->used = d->issued;
    }
    wb__mutex_unlock(&d->lock);
    if (made) return m;
    wb__free(m);
    return NULL;
}

static bool is_full(const wb__gpu_device *d, int code)
{
    return !code || d->driver->error_kind(code) & (WB__GPU_ERROR_FULL | WB__GPU_ERROR_MEMORY);
}

/* With the device entered: takes a block of class k from the cache, or allocates a new one. */
static wb__gpu_memory *gpu_memory_allocate(wb__gpu_device *d, size_t size, int k, size_t bytes)
{
    int code = 0;
    wb__mutex_lock(&d->lock);
    wb__gpu_memory *m = reuse_block(&d->cache, k, size);
    if (!m) empty_class(d, (size_t)k);  /* a larger block takes the place of those of the class */
    wb__mutex_unlock(&d->lock);
    if (!m) m = gpu_memory_new_block(d, bytes, &code);
    /* free all cached blocks and try again; then try the exact size, which is not rounded up */
    if (!m && is_full(d, code)) {
        d->driver->sync(d, WB__GPU_COMPUTE);
        gpu_memory_empty_cache(d);
        m = gpu_memory_new_block(d, bytes, &code);
        const size_t least = WB__MAX((size + 63) / 64 * 64, (size_t)64);
        if (!m && is_full(d, code) && least < bytes) m = gpu_memory_new_block(d, least, &code);
    }
    if (m) return m;
    if (is_full(d, code)) return out_of_memory(d, size, code);
    wb__gpu_fail(d->driver, d, code, "%zu bytes", size);
    return NULL;
}

void *wb__gpu_allocate(const wb_device *base, size_t size)
{
    wb__gpu_device *d = base->state;
    size_t bytes = 0;
    if (wb__gpu_enter(d)) return NULL;
    const int k = gpu_memory_size_class(size, &bytes);
    wb__gpu_memory *m = k < 0 ? out_of_memory(d, size, 0) : gpu_memory_allocate(d, size, k, bytes);
    wb__gpu_leave(d);
    return m;
}

/* Sets *m to the device's memory and how much of it is used.  If the device is not open or the
 * driver does not report the free memory, only this process's memory counts as used. */
int wb__gpu_memory_of(const wb_device *base, wb_device_memory *m)
{
    wb__gpu_device *d = base->state;
    size_t left = (size_t)d->total;
    if (wb__gpu_check_fork(d->driver)) return WB_ERROR_DEVICE;
    if (d->open && d->driver->memory_left) {    /* a query does not open the device */
        const int status = wb__gpu_enter(d);
        if (status) return status;
        const int code = d->driver->memory_left(d, &left);
        wb__gpu_leave(d);
        if (code) return wb__gpu_fail(d->driver, d, code, "%s", d->name);
    }
    *m = (wb_device_memory){.total = d->total, .free = (int64_t)left};
    if (base->ordinal >= d->driver->state->n) return 0;     /* not started: it has no lock */
    wb__mutex_lock(&d->lock);
    const wb__gpu_cache *c = &d->cache;
    const int64_t allowed = c->limit - c->used - c->cached;
    *m = (wb_device_memory){.total = d->total, .free = WB__MIN(allowed, (int64_t)left),
                            .used = c->used, .peak = c->peak, .cached = c->cached};
    wb__mutex_unlock(&d->lock);
    return 0;
}

/* ---- memory shared with other libraries ------------------------------------------------------ */

void wb__gpu_share(const wb_device *base, const void *memory, size_t at, wb__shared *s)
{
    const wb__gpu_device *d = base->state;
    const wb__gpu_memory *m = memory;
    const bool object = d->driver->objects;
    *s = (wb__shared){.kind = d->driver->dlpack, .ordinal = base->ordinal};
    if (!m) return;
    s->data = (void *)(uintptr_t)(m->at + (object ? 0 : at));
    s->at = object ? at : 0;
}

/* Creates a handle of memory that another library owns.  The handle is counted in `holders`, so
 * that the device stays open while the handle exists. */
void *wb__gpu_adopt(const wb_device *base, void *address, size_t bytes)
{
    wb__gpu_device *d = base->state;
    wb__gpu_memory *m = wb__gpu_check_fork(d->driver) ? NULL : wb__alloc_zero(1, sizeof *m);
    if (!m) return NULL;
    m->at = (uint64_t)(uintptr_t)address;
    m->bytes = bytes;
    d->holders++;
    return m;
}

void wb__gpu_disown(const wb_device *base, void *memory)
{
    wb__gpu_device *d = base->state;
    wb__free(memory);
    d->holders--;
}
