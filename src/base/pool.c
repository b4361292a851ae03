/* Memory for small objects of few sizes (tensors, scopes, graph nodes).  A freed block is kept on a
 * list of the thread that freed it.
 *
 * There is a list for each multiple of 64 bytes up to 1 KiB.  Blocks come from alloc.c one at a
 * time, and may be freed by another thread than the one that allocated them.  If a list has LONGEST
 * blocks, further blocks are freed at once.  Under AddressSanitizer, and while allocations are
 * watched (wb__alloc_fail_at), no block is kept. */
#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

enum { STEP = 64, CLASSES = 16, LONGEST = 16384 };

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

/* FAST_TLS makes access to a thread-local variable fast.  The variable must be small, because glibc
 * reserves only a few hundred bytes for such variables of libraries that are loaded late. */
#if defined(__GLIBC__)
#define FAST_TLS __attribute__((tls_model("initial-exec")))
#else
#define FAST_TLS
#endif

/* A free block.  The pool does not write to `first`, the first word of the block.  In a freed
 * object this word is wb__freed_class, by which a later use of the object is detected. */
typedef struct link { void *first; struct link *next; } link;
static _Thread_local FAST_TLS struct {
    link *first[CLASSES];
    uint16_t length[CLASSES];
    bool noted;                 /* thread_end will run when the thread ends */
} mine;

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

void wb__pool_trim(void)
{
    for (int c = 0; c < CLASSES; c++) {
        while (mine.first[c]) {
            link *block = mine.first[c];
            mine.first[c] = block->next;
            wb__free(block);
        }
        mine.length[c] = 0;
    }
}

/* Frees the blocks on the lists of a thread that ends.  If the destructor of another key frees a
 * block later, wb__pool_put sets the key again, and the system calls this destructor again. */
static void thread_end(void *set)
{
    (void)set;
    mine.noted = false;
    wb__pool_trim();
}

static void make_key(void) { pthread_key_create(&key, thread_end); }

static bool note_thread(void)
{
    pthread_once(&key_once, make_key);
    return mine.noted = pthread_setspecific(key, &mine) == 0;
}

static bool keeps(void)
{
    return KEEPS && !atomic_load_explicit(&wb__alloc_watched, memory_order_relaxed);
}

void *wb__pool_get(size_t bytes)
{
    size_t c = bytes ? (bytes - 1) / STEP : 0;
    if (wb__unlikely(c >= CLASSES)) return wb__alloc(bytes);
    link *block = mine.first[c];
    if (wb__likely(block && keeps())) {
        mine.first[c] = block->next;
        mine.length[c]--;
        return block;
    }
    return wb__alloc((c + 1) * STEP);
}

void wb__pool_put(void *block, size_t bytes)
{
    size_t c = bytes ? (bytes - 1) / STEP : 0;
    if (wb__unlikely(!block || c >= CLASSES || mine.length[c] >= LONGEST || !keeps() ||
                     (!mine.noted && !note_thread()))) {
        wb__free(block);
        return;
    }
    link *l = block;
    l->next = mine.first[c];
    mine.first[c] = l;
    mine.length[c]++;
}
