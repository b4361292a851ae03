/* Memory for small objects of few sizes (tensors, scopes, graph nodes).  A freed block is kept on a
 * list of the thread that freed it.
 *
 * There is a list for each multiple of 64 bytes up to 1 KiB.  Blocks come from alloc.c one at a
 * time, and may be freed by another thread than the one that allocated them.  If a list has
 * POOL_LONGEST blocks, further blocks are freed at once.  Under AddressSanitizer, and while
 * allocations are watched (wb__alloc_fail_at), no block is kept.  base.h has the fast part, which
 * each tensor needs. */
#include "base/base.h"
#include "base/mutex.h"

#include <stdatomic.h>

enum { POOL_LONGEST = 16384 };

#if defined(__SANITIZE_ADDRESS__)
#define KEEPS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEEPS 0
#endif
#endif
#ifndef KEEPS
#define KEEPS 1
#endif

/* This thread's lists, which have no room until pool_thread_end is sure to run. */
_Thread_local WB__FAST_TLS wb__pool wb__pool_mine;

static wb__os_key pool_key;
static wb__once pool_key_once = WB__ONCE_INIT;

void wb__pool_trim(void)
{
    wb__pool *p = &wb__pool_mine;
    for (int c = 0; c < WB__POOL_CLASSES; c++) {
        while (p->first[c]) {
            wb__pool_block *block = p->first[c];
            p->first[c] = block->next;
            wb__free(block);
        }
        p->room[c] = p->noted ? POOL_LONGEST : 0;
    }
}

/* Frees the blocks on the lists of a thread that ends.  If the destructor of another key frees a
 * block later, wb__pool_put sets the key again, and the system calls this destructor again. */
static void pool_thread_end(void *set)
{
    (void)set;
    wb__pool_mine.noted = false;
    wb__pool_trim();
}

static void pool_make_key(void) { wb__os_key_make(&pool_key, pool_thread_end); }

static bool pool_set_key(void)
{
    wb__once_run(&pool_key_once, pool_make_key);
    return wb__pool_mine.noted = wb__os_key_set(pool_key, &wb__pool_mine);
}

void *wb__pool_miss(size_t bytes)
{
    const size_t c = bytes ? (bytes - 1) / WB__POOL_STEP : 0;
    return wb__alloc(c < WB__POOL_CLASSES ? (c + 1) * WB__POOL_STEP : bytes);
}

void wb__pool_full(void *block, size_t bytes)
{
    const bool keeps = KEEPS && block && bytes - 1 < WB__POOL_STEP * WB__POOL_CLASSES &&
                       !wb__alloc_is_watched();
    if (!keeps || wb__pool_mine.noted || !pool_set_key()) {
        wb__free(block);
        return;
    }
    wb__pool_trim();                /* for the first block of this thread: gives the lists room */
    wb__pool_put(block, bytes);
}
