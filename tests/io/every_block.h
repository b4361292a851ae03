/* Counts the heap memory of the process, that of all libraries included: `live` is the number of
 * bytes held now, `peak` the largest since the test set it, `allocated` the sum of all blocks.
 * Include it in one file of a program.  begin_counting returns false where nothing can be
 * counted. */
#ifndef EVERY_BLOCK_H
#define EVERY_BLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __GLIBC__                /* stdint.h defines it */
#include <malloc.h>
#endif

static _Atomic int64_t live, peak, allocated;

static inline void count(int64_t bytes)
{
    if (bytes > 0) atomic_fetch_add(&allocated, bytes);
    int64_t now = atomic_fetch_add(&live, bytes) + bytes, most = atomic_load(&peak);
    while (now > most && !atomic_compare_exchange_weak(&peak, &most, now)) {}
}

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

#if SANITIZED
int __sanitizer_install_malloc_and_free_hooks(void (*made)(const volatile void *, size_t),
                                              void (*freed)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *block);
static void made(const volatile void *block, size_t n) { (void)block, count((int64_t)n); }
static void freed(const volatile void *block)
{
    if (block) count(-(int64_t)__sanitizer_get_allocated_size(block));
}
static bool begin_counting(void)
{
    return __sanitizer_install_malloc_and_free_hooks(made, freed) != 0;
}
#elif defined(__GLIBC__)
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *block, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *block);
/* Other libraries call these functions too. */
#define EXPORTED __attribute__((visibility("default")))
static void *counted(void *block)
{
    if (block) count((int64_t)malloc_usable_size(block));
    return block;
}
EXPORTED void *malloc(size_t n) { return counted(__libc_malloc(n)); }
EXPORTED void *calloc(size_t n, size_t size) { return counted(__libc_calloc(n, size)); }
EXPORTED void *memalign(size_t alignment, size_t n)
{
    return counted(__libc_memalign(alignment, n));
}
EXPORTED void *aligned_alloc(size_t alignment, size_t n) { return memalign(alignment, n); }
EXPORTED int posix_memalign(void **block, size_t alignment, size_t n)
{
    return (*block = memalign(alignment, n)) ? 0 : 12;
}
EXPORTED void *realloc(void *block, size_t n)
{
    const int64_t before = block ? (int64_t)malloc_usable_size(block) : 0;
    void *larger = __libc_realloc(block, n);
    if (larger) count((int64_t)malloc_usable_size(larger) - before);
    else if (!n) count(-before);
    return larger;
}
EXPORTED void free(void *block)
{
    if (block) count(-(int64_t)malloc_usable_size(block));
    __libc_free(block);
}
static bool begin_counting(void) { return true; }
#else
static bool begin_counting(void) { return false; }
#endif

#endif
