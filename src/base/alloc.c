/* The allocator of host memory.  It can be replaced (wb_set_allocator), counts its bytes, and can
 * fail on demand.  pool.c, which keeps small freed blocks, takes its blocks from here.
 *
 *   base            block - 16        block
 *   | (alignment)   | size, distance  | the caller's bytes ... | */
#include "base/base.h"
#include "base/environment.h"
#include "base/mutex.h"
#include "base/os.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t total;               /* size of the block at `base`, in bytes */
    size_t distance;            /* bytes from `base` to the block of the caller */
} alloc_header;

enum { ALLOC_HEADER = 16, ALLOC_ALIGN = 64, ALLOC_LARGE = 8 << 20 };
_Static_assert(sizeof(alloc_header) <= ALLOC_HEADER, "a block's header must fit before it");

static void *system_reallocate(void *context, void *block, size_t bytes)
{
    (void)context;
    if (bytes) return realloc(block, bytes);
    free(block);
    return NULL;
}

static wb_allocator alloc_allocator = {system_reallocate, NULL};
static _Atomic int64_t alloc_used, alloc_peak;

void wb_set_allocator(const wb_allocator *a)
{
    int64_t held = wb_memory_used();
    if (held) {
        wb__fail(WB_ERROR_ARGUMENT, "set_allocator: the library already holds %lld bytes",
                 (long long)held);
        return;
    }
    alloc_allocator = a && a->reallocate ? *a : (wb_allocator){system_reallocate, NULL};
}

int64_t wb_memory_used(void) { return atomic_load_explicit(&alloc_used, memory_order_relaxed); }
int64_t wb_memory_peak(void) { return atomic_load_explicit(&alloc_peak, memory_order_relaxed); }

WB__PROGRAM_CALL(allocator_call, allocator_run, void *,
                 void *block; size_t bytes;,
                 alloc_allocator.reallocate(alloc_allocator.context, c->block, c->bytes))

static void *reallocate(void *block, size_t bytes)
{
    if (wb__likely(alloc_allocator.reallocate == system_reallocate))
        return system_reallocate(NULL, block, bytes);
    allocator_call c = {block, bytes, NULL};
    return wb__call_caught(allocator_run, &c) ? c.result : NULL;
}

static void count_bytes_in_use(int64_t bytes)
{
    int64_t now = atomic_fetch_add_explicit(&alloc_used, bytes, memory_order_relaxed) + bytes;
    int64_t most = atomic_load_explicit(&alloc_peak, memory_order_relaxed);
    while (now > most && !atomic_compare_exchange_weak_explicit(
                             &alloc_peak, &most, now, memory_order_relaxed,
                             memory_order_relaxed)) {}
}

/* ---- failing on demand ----------------------------------------------------------------------- */

static _Atomic int64_t alloc_count, alloc_fail_at;
_Atomic bool wb__alloc_watched;
static wb__once environment_once = WB__ONCE_INIT;

static void alloc_read_environment(void)
{
    const double n = wb__environment_number("WEBER_FAIL_ALLOC", -1);
    if (n < 0) return;
    atomic_store(&alloc_fail_at, (int64_t)WB__MIN(n, 1e15));
    atomic_store(&wb__alloc_watched, true);
}

void wb__alloc_fail_at(int64_t n)
{
    wb__once_run(&environment_once, alloc_read_environment);    /* so that it is not read later */
    atomic_store(&alloc_count, 0);
    atomic_store(&alloc_fail_at, n);
    atomic_store(&wb__alloc_watched, n != 0);
}

int64_t wb__alloc_count(void) { return atomic_load(&alloc_count); }

static bool must_fail(void)
{
    wb__once_run(&environment_once, alloc_read_environment);
    if (wb__likely(!atomic_load_explicit(&wb__alloc_watched, memory_order_relaxed))) return false;
    int64_t n = atomic_fetch_add_explicit(&alloc_count, 1, memory_order_relaxed) + 1;
    return wb__unlikely(n == atomic_load_explicit(&alloc_fail_at, memory_order_relaxed));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void *fail_out_of_memory(size_t bytes)
{
    return wb__fail_null(WB_ERROR_MEMORY, "out of memory: %zu bytes asked for, %lld held", bytes,
                         (long long)wb_memory_used());
}

static alloc_header *header_of(void *block)
{
    return (alloc_header *)((char *)block - ALLOC_HEADER);
}

static void *write_block_header(char *base, size_t total, size_t distance)
{
    char *block = base + distance;
    *header_of(block) = (alloc_header){total, distance};
    count_bytes_in_use((int64_t)total);
    return block;
}

void *wb__alloc(size_t bytes)
{
    size_t total = bytes + ALLOC_HEADER;
    char *base = total < bytes || must_fail() ? NULL : reallocate(NULL, total);
    return base ? write_block_header(base, total, ALLOC_HEADER) : fail_out_of_memory(bytes);
}

void *wb__alloc_zero(size_t n, size_t size)
{
    if (size && n > (SIZE_MAX - ALLOC_HEADER) / size)
        return wb__fail_null(WB_ERROR_MEMORY, "out of memory: %zu times %zu bytes asked for", n,
                             size);
    size_t bytes = n * size;
    /* calloc writes no zeros to fresh pages, which are zero already; for small blocks calloc is
     * slower than malloc */
    if (bytes > 4096 && alloc_allocator.reallocate == system_reallocate) {
        char *base = must_fail() ? NULL : calloc(1, bytes + ALLOC_HEADER);
        return base ? write_block_header(base, bytes + ALLOC_HEADER, ALLOC_HEADER)
                    : fail_out_of_memory(bytes);
    }
    void *block = wb__alloc(bytes);
    return block ? memset(block, 0, bytes) : NULL;
}

void *wb__alloc_aligned(size_t bytes)
{
    size_t total = bytes + ALLOC_HEADER + ALLOC_ALIGN;
    char *base = total < bytes || must_fail() ? NULL : reallocate(NULL, total);
    if (!base) return fail_out_of_memory(bytes);
    if (total >= ALLOC_LARGE && alloc_allocator.reallocate == system_reallocate)
        wb__os_huge_pages(base, total);
    uintptr_t first = ((uintptr_t)base + ALLOC_HEADER + ALLOC_ALIGN - 1) &
                      ~(uintptr_t)(ALLOC_ALIGN - 1);
    return write_block_header(base, total, first - (uintptr_t)base);
}

void *wb__realloc(void *block, size_t bytes)
{
    if (!block) return wb__alloc(bytes);
    alloc_header old = *header_of(block);
    size_t total = bytes + ALLOC_HEADER;
    char *base = total < bytes || must_fail()
        ? NULL : reallocate((char *)block - old.distance, total);
    if (!base) return fail_out_of_memory(bytes);            /* the old block stays valid */
    count_bytes_in_use(-(int64_t)old.total);
    return write_block_header(base, total, old.distance);
}

bool wb__grow(void *list, int *capacity, int n, size_t each)
{
    int wider = *capacity ? 2 * *capacity : 32;
    void *old, *more;
    while (wider < n) wider *= 2;
    memcpy(&old, list, sizeof old);
    if (!(more = wb__realloc(old, (size_t)wider * each))) return false;
    memcpy(list, &more, sizeof more);
    *capacity = wider;
    return true;
}

void wb__free(void *block)
{
    if (!block) return;
    alloc_header h = *header_of(block);
    count_bytes_in_use(-(int64_t)h.total);
    reallocate((char *)block - h.distance, 0);
}

/* ---- text ------------------------------------------------------------------------------------ */

char *wb__strdup(const char *s)
{
    if (!s) return NULL;
    size_t n = strlen(s) + 1;
    char *copy = wb__alloc(n);
    return copy ? memcpy(copy, s, n) : NULL;
}

char *wb__printf(const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int n = wb__plain_list(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = n < 0 ? wb__fail_null(WB_ERROR_INTERNAL, "a text could not be formatted")
                       : wb__alloc((size_t)n + 1);
    if (text) wb__plain_list(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}
