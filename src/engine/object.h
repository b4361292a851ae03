/* Objects: counted references, scopes, and what a thread remembers. */
#ifndef WB__OBJECT_H
#define WB__OBJECT_H

#include "base/base.h"

#include <stdatomic.h>

/* A kind of object.  `destroy` drops what the object holds and frees its memory. */
typedef struct {
    const char *name;                   /* "tensor", as in messages */
    void (*destroy)(void *object);
    char *(*format)(void *object);      /* for wb_show; wb__alloc'ed text, or NULL */
    /* Behind wb_to and wb_device_of; NULL: objects of this kind have no place.  `to` gives the same
     * object where nothing is to be done; dtype as in wb_to_options. */
    void *(*to)(void *object, const wb_device *d, wb_dtype dtype);
    const wb_device *(*device_of)(void *object);
} wb__class;

/* Every object begins with this. */
typedef struct {
    const wb__class *class;
    _Atomic uint64_t counts;            /* references, and times 2^32 the consumers of a tensor */
} wb__object;

/* A consumer is a live tensor that has this one as input, which is a reference too: both counts
 * change in one step. */
#define WB__CONSUMER (((uint64_t)1 << 32) + 1)
static inline uint32_t wb__refs(const void *object)
{
    return (uint32_t)atomic_load_explicit(&((wb__object *)(uintptr_t)object)->counts,
                                          memory_order_relaxed);
}
static inline uint32_t wb__consumers(const void *object)
{
    return (uint32_t)(atomic_load_explicit(&((wb__object *)(uintptr_t)object)->counts,
                                           memory_order_relaxed) >> 32);
}

extern const wb__class wb__tensor_class, wb__layer_class, wb__tree_class, wb__rule_class,
    wb__opt_state_class, wb__dataset_class, wb__loader_class, wb__progress_class,
    wb__compiled_class;

/* Zeroed memory for an object, one reference, handed to the current scope.  NULL: the error is set
 * and nothing was made.  The maker fills it in before anything can fail, or drops it with
 * wb__drop_new. */
void *wb__object_new(const wb__class *class, size_t bytes);

/* The same without a scope: the one reference is the caller's. */
void *wb__object_new_owned(const wb__class *class, size_t bytes);

/* Hands a caller's own reference to the current scope and returns the object; on failure (no memory
 * to note it down) the reference is dropped and NULL returned. */
void *wb__scope_give(void *object);

static inline bool wb__is(const void *object, const wb__class *class)
{
    return object && ((const wb__object *)object)->class == class;
}

/* Counting.  wb__ref returns its argument; both take NULL. */
static inline void *wb__ref(void *object)
{
    if (object)
        atomic_fetch_add_explicit(&((wb__object *)object)->counts, 1, memory_order_relaxed);
    return object;
}
void wb__unref(void *object);
uint64_t wb__unref_consumer(void *object);      /* returns the counts that are left */

/* The thread's memory. */
typedef struct wb__thread {
    wb_scope *scope;                    /* innermost; the root scope is made when first needed */
    int training;                       /* > 0 inside wb_withgradient */
    int eager;                          /* WEBER_EAGER */
    const wb_device *device;            /* where new tensors are made; NULL: the CPU */
    struct wb_tensor *sinks; /* unevaluated tensors nobody consumes: a ring through .next_sink */
    struct wb_tensor **pending;         /* assignments still to be made, oldest first */
    int n_pending, pending_room;
    int made;                           /* tensors since the last evaluation */
    int busy; /* > 0 inside calls that build much at once: nothing is evaluated behind their back */
    struct wb__recording *recording;    /* of wb_compile, under way; */
    uint32_t recorded;                  /* its number, else 0 */
} wb__thread;
extern _Thread_local wb__thread *wb__thread_now;   /* NULL before the first call */
wb__thread *wb__thread_start(void);
static inline wb__thread *wb__this_thread(void)
{
    return wb__likely(wb__thread_now != NULL) ? wb__thread_now : wb__thread_start();
}

/* What wb_shutdown calls when all objects and plans are gone: the backends are above the engine. */
extern void (*wb__at_shutdown)(void);

/* What a scope holds, for the engine's closing evaluation. */
struct wb_scope {
    wb_scope *outer;
    void **objects;
    int n, room;
};

#endif
