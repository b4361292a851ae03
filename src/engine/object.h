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
    /* A few words about the object for messages, as in "[2,3] f32"; NULL: the name alone. */
    void (*brief)(const void *object, char *text, size_t bytes);
    /* The program keeps or retains the object: what is not computed yet must not be lost.  NULL: nothing
     * of it can be. */
    void (*hold)(void *object);
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

/* The class of an object whose memory was given back.  A pointer that a program still has to it is
 * found out wherever the kind of an object is checked, until the memory is used again. */
extern const wb__class wb__freed_class;

/* Zeroed memory for an object, one reference, handed to the current scope.  NULL: the error is set
 * and nothing was made.  The maker fills it in before anything can fail. */
void *wb__object_new(const wb__class *class, size_t bytes);

/* The same without a scope: the one reference is the caller's. */
void *wb__object_new_owned(const wb__class *class, size_t bytes);

/* Gives an object's memory back: `bytes` as it was made with.  What destroy ends with. */
void wb__object_end(void *object, size_t bytes);

/* WEBER_DEBUG=check: what was freed is kept apart for a while, and indices are past_n at. */
extern bool wb__checks;
void wb__quarantine(void *object, size_t bytes);        /* the object's memory, in wb__object_end */
void wb__quarantine_empty(void);

/* The kind of an object for messages: "layer", or of one that was freed all that is known of it. */
const char *wb__kind(const void *object);
/* False for an object that was freed, and for NULL, with the error set, which begins with `what`. */
bool wb__alive(const char *what, const void *object);

/* Hands a caller's own reference to the current scope and returns the object; on failure (no memory
 * to note it down) the reference is dropped and NULL returned. */
void *wb__scope_give(void *object);
/* Was the object handed to this thread's program, in a scope that is still open? */
bool wb__scope_has(const void *object);

static inline void wb__hold(void *object)
{
    const wb__class *class = ((wb__object *)object)->class;
    if (class->hold) class->hold(object);
}

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
    bool cutting;        /* what was made into something else becomes no sink again */
    struct wb_tensor *unconsumed; /* unevaluated tensors nobody consumes: a ring through .next_unconsumed */
    struct wb_tensor **pending;         /* assignments still to be made, oldest first */
    int n_pending, pending_capacity;
    struct wb_tensor *guard;            /* one element (counted): unless it is finite, none of the
                                           pending assignments is made; NULL: they always are */
    const char *guarded_by;             /* what it is, for messages */
    int made;                           /* tensors since the last evaluation */
    int64_t scopes;                     /* opened so far */
    int64_t closing;                    /* the number of the scope that is being closed; or 0 */
    int64_t program_calls;              /* calls of the program's functions so far */
    wb_scope *spare;                    /* closed scopes with their lists, for the next ones */
    int spares;
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

/* A scope.  Objects are listed in the order in which they were handed to the program; what was given
 * back early leaves a hole (NULL). */
enum { WB__PAST = 8 };
struct wb_scope {
    wb_scope *outer;
    void **objects;
    int n, capacity, holes;
    int pinned;                         /* > 0: positions are remembered, so holes stay */
    int outer_n;                        /* what the outer scope had when this one was opened */
    int64_t number;                     /* of the thread's scopes, from 1 */
    int past_n[WB__PAST];              /* of a root scope: how long its list was at the latest
                                           evaluations that overwrote a version (automatic.c) */
};
static inline bool wb__in_root(const wb__thread *t) { return !t->scope || !t->scope->outer; }
void wb__scope_spare_free(wb__thread *t);

/* A function of the library that makes more than it returns: what was handed to the scope since
 * wb__frame_begin is dropped again, but for the n results (some of which may be NULL or older).
 * Where a function of the program ran in between, all stays: the program may know of it.
 * wb__frame_end returns its argument. */
typedef struct {
    wb_scope *scope;
    int64_t number, program_calls;
    int n;
} wb__frame;
wb__frame wb__frame_begin(void);
void *wb__frame_end(wb__frame f, void *result);
void wb__frame_end_many(wb__frame f, int n, void *const *results);

#endif
