/* Objects: reference counts, scopes, and the state of a thread. */
#ifndef WB__OBJECT_H
#define WB__OBJECT_H

#include "base/base.h"

#include <stdatomic.h>

/* A class of objects.  `destroy` drops the references that the object holds and frees its
 * memory. */
typedef struct {
    const char *name;                   /* for messages, such as "tensor" */
    void (*destroy)(void *object);
    char *(*format)(void *object);      /* for wb_show; text of wb__alloc, or NULL */
    /* For wb_to and wb_device_of.  NULL: objects of this class have no device.  `to` returns the
     * object itself if nothing changes; `dtype` is the option .dtype of wb_to. */
    void *(*to)(void *object, const wb_device *d, wb_dtype dtype);
    const wb_device *(*device_of)(void *object);
    /* Writes a description of the object for messages, such as "[2,3] f32".  NULL: messages show
     * only the name of the class. */
    void (*brief)(const void *object, char *text, size_t bytes);
    /* Makes sure that an unevaluated value can still be evaluated later.  Called when the program
     * keeps or retains the object.  NULL: not needed. */
    void (*hold)(void *object);
} wb__class;

/* Marks functions that read the first word of memory in which there may be no object. */
#if defined(__GNUC__)
#define WB__READS_ANY __attribute__((no_sanitize_address))
#else
#define WB__READS_ANY
#endif

/* The first member of every object. */
typedef struct {
    const wb__class *class;
    _Atomic uint64_t counts;        /* low 32 bits: references; high 32: consumers of a tensor */
} wb__object;

/* A consumer of a tensor is a live tensor that has it as an input.  A consumer also holds a
 * reference, so one addition changes both counts. */
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
    wb__compiled_class, wb__tokenizer_class, wb__decoder_class, wb__schedule_class,
    wb__logger_class, wb__columns_class;

/* The class of an object whose memory was freed.  Checks of an object's class detect a freed object
 * until its memory is used again. */
extern const wb__class wb__freed_class;

/* Returns zeroed memory for an object.  Its one reference belongs to the current scope.  NULL:
 * failed, with the error set.  The caller fills the object in before anything else can fail. */
void *wb__object_new(const wb__class *class, size_t bytes);

/* Returns memory as wb__object_new does, but the reference belongs to the caller. */
void *wb__object_new_owned(const wb__class *class, size_t bytes);

/* Frees an object's memory; `bytes` is the size that was passed to wb__object_new.  Called at the
 * end of `destroy`. */
void wb__object_end(void *object, size_t bytes);

/* Whether WEBER_DEBUG=check is set.  Freed memory is then kept apart for a while, and indices are
 * checked. */
extern bool wb__checks;
void wb__quarantine(void *object, size_t bytes);        /* called by wb__object_end */
void wb__quarantine_empty(void);

/* Returns a text for messages: the name of the object's class, such as "layer".  With
 * WEBER_DEBUG=check, the text for a freed object also has a description of the object and when it
 * was freed.  The text is valid until this thread calls wb__kind again.
 *
 * A C compiler only warns where a program passes a pointer of another type, so the memory may have
 * no object: a path, or a device.  Its first word is compared with the addresses of all classes and
 * with that of wb__device_kind, and nothing else is read. */
const char *wb__kind(const void *object);
/* Whether the memory has an object that is not freed. */
bool wb__is_object(const void *object);
/* Whether `object` is an object that is not freed.  Else sets the error, whose message begins with
 * `what`. */
bool wb__alive(const char *what, const void *object);
/* Sets the error "what: a rule is not a state", or that the object is NULL.  `expected` is the name
 * of a class, or several names.  Returns false. */
bool wb__not_a(const char *what, const void *object, const char *expected);
/* Whether d is a device or NULL.  Else sets the error.  The lists of devices are not asked: a
 * program may keep a device beyond wb_shutdown, which empties them. */
bool wb__is_device(const char *what, const wb_device *d);

/* Moves the caller's reference to the current scope and returns the object.  On failure (out of
 * memory) drops the reference and returns NULL. */
void *wb__scope_give(void *object);
/* Whether an open scope of this thread owns the object. */
bool wb__scope_has(const void *object);

static inline void wb__hold(void *object)
{
    const wb__class *class = ((wb__object *)object)->class;
    if (class->hold) class->hold(object);
}

/* Whether the memory, which may be a program's own, has an object of this class.  No object is at
 * an address that is not aligned, and an aligned word is in one page, so the first word of a text
 * that is shorter can be read. */
WB__READS_ANY static inline bool wb__is(const void *object, const wb__class *class)
{
    return (uintptr_t)object % _Alignof(wb__object) == 0 && object &&
           ((const wb__object *)object)->class == class;
}

/* Whether the object is of this class.  Else sets the error; `what` is the public function. */
static inline bool wb__expect(const char *what, const void *object, const wb__class *class)
{
    return wb__likely(wb__is(object, class)) || wb__not_a(what, object, class->name);
}

/* Adds a reference and returns the object.  NULL gives NULL. */
static inline void *wb__ref(void *object)
{
    if (object)
        atomic_fetch_add_explicit(&((wb__object *)object)->counts, 1, memory_order_relaxed);
    return object;
}
void wb__unref(void *object);
/* Subtracts `counts` from the object's counts and returns the rest.  Destroys the object if the
 * rest is 0.  If these are all counts, no other thread can use the object, and the subtraction need
 * not be atomic. */
static inline uint64_t wb__drop(wb__object *o, uint64_t counts)
{
    uint64_t left = 0;
    if (atomic_load_explicit(&o->counts, memory_order_acquire) == counts)
        atomic_store_explicit(&o->counts, 0, memory_order_relaxed);
    else
        left = atomic_fetch_sub_explicit(&o->counts, counts, memory_order_acq_rel) - counts;
    if (!left) o->class->destroy(o);
    return left;
}

/* What a number of the host was before a write that may still be cancelled (journal.c). */
typedef struct {
    struct wb_tensor *write;  /* the write, or the guard of its optimiser step, with a reference */
    void *block;                        /* the object that has the number, with a reference */
    void *number;                       /* address of the number */
    size_t bytes;                       /* size of the number, at most 8 */
    uint64_t was;                       /* the number's old value */
} wb__journal_entry;
typedef struct { wb__journal_entry *entry; int n, capacity; } wb__journal_list;

/* The state of a thread. */
typedef struct wb__thread {
    wb_scope *scope;                    /* innermost; the root scope is created when first needed */
    int training;                       /* depth of wb_withgradient calls */
    int eager;                          /* from WEBER_EAGER: a tensor is evaluated when created */
    const wb_device *device;            /* device of new tensors; NULL: the CPU */
    bool cutting;        /* tensors that lose their last consumer now do not join `unconsumed` */
    /* Ring, through .next_unconsumed, of the unconsumed results: unevaluated tensors that have
     * inputs but no consumers.  Those with WB__HELD may have consumers. */
    struct wb_tensor *unconsumed;
    struct wb_tensor **pending;         /* pending writes, oldest first: assigns to variables that
                                           are not evaluated yet */
    int n_pending, pending_capacity;
    struct wb_tensor *guard;            /* tensor of one element, with a reference.  If it is not
                                           finite, no pending write is made.  NULL: no guard. */
    const char *guarded_by;             /* the guard's name, for messages */
    bool guard_at_once;                 /* the host reads the guard before the writes */
    /* The optimiser step whose guard the host has not read yet (guard.c).  guard NULL: there is
     * none. */
    struct {
        struct wb_tensor *guard;        /* with a reference */
        const char *by;                 /* name of the guard, for messages */
        void *read;                     /* the read that has begun, or NULL */
        struct wb_tensor **writes;      /* the writes of that step, with references */
        int n, capacity;
    } late;
    wb__journal_list journal;           /* oldest first */
    struct wb_tensor *finite;           /* a zero on a device: the guard before the first optimiser
                                           step; NULL: none yet */
    bool failed_late;       /* the last guard that failed was that of an earlier optimiser step */
    /* The last operation of the ranks that the pending writes depend on, with a reference; or
     * NULL. */
    struct wb_tensor *exchanged;
    int made;                           /* tensors created since the last evaluation */
    int64_t scopes;                     /* number of scopes opened so far */
    int64_t closing;                    /* id of the scope that is being closed, or 0 */
    int64_t program_calls;              /* calls of the program's callbacks so far */
    wb_scope *spare;                    /* closed scopes with their lists, for reuse */
    int spares;
    /* > 0: inside a call that builds a graph, so that no automatic evaluation starts */
    int busy;
    struct wb__recording *recording;    /* the recording of wb_compile in progress, or NULL */
    uint32_t recorded;                  /* id of this recording, else 0 */
    /* depth of edges (program.c): calls of the program that have not returned; counted anew in each
     * function of the program that the library calls */
    int inside;
    int called;     /* depth of calls of the library to functions of the program, in progress */
    long number;                        /* number of the thread, as debuggers show it */
} wb__thread;
extern _Thread_local wb__thread *wb__thread_now;   /* NULL before the first call */
wb__thread *wb__thread_start(void);
static inline wb__thread *wb__this_thread(void)
{
    return wb__likely(wb__thread_now != NULL) ? wb__thread_now : wb__thread_start();
}

/* A function that ends the threads of loaders, which src/data sets.  wb_shutdown calls it first,
 * with the calling thread's scopes closed. */
extern void (*wb__before_shutdown)(void);

/* Runs run(arg), which calls a function of the program (program.c).  False, with the error set:
 * that function has thrown an exception of C++; the scopes that it opened are closed. */
bool wb__call_program(void (*run)(void *arg), void *arg);
/* The first line of a function that a program calls, and in which functions of the program may run.
 * If one of them has thrown an exception, it is thrown again when the function returns. */
#define WB__EDGE \
    __attribute__((cleanup(wb__edge_leave), unused)) wb__thread *edge_ = wb__edge_enter()
wb__thread *wb__edge_enter(void);
void wb__edge_leave(wb__thread **edge);

/* A function that stops all backends, which src/device sets.  wb_shutdown calls it after the
 * calling thread's scopes are closed and all plans are freed. */
extern void (*wb__at_shutdown)(void);

enum { WB__PAST = 8 };  /* length of wb_scope.past_n */

/* A scope: a list of objects in the order in which the program received them.  An object freed
 * early leaves a hole (NULL). */
struct wb_scope {
    wb_scope *outer;
    void **objects;
    int n, capacity, holes;     /* length of the list; entries that are NULL */
    int pinned;         /* > 0: outer_n or wb__frame.n are positions in the list, so holes stay */
    int outer_n;                /* length of the outer scope's list when this scope was opened */
    int64_t number;                     /* id among the thread's scopes, from 1 */
    int past_n[WB__PAST];               /* of a root scope: length of its list at the latest calls
                                           of wb__cut_stale, newest first */
};
/* Does what wb__scope_give does, for an object that is not NULL or WB_NONE; t is this thread. */
static inline void *wb__scope_add(wb__thread *t, void *object)
{
    wb_scope *s = t->scope;
    if (wb__unlikely(!s || s->n == s->capacity)) return wb__scope_give(object);
    return s->objects[s->n++] = object;
}
static inline bool wb__in_root(const wb__thread *t) { return !t->scope || !t->scope->outer; }
void wb__scope_spare_free(wb__thread *t);

/* A frame drops the intermediate objects of a library function.  wb__frame_end drops the objects
 * added to the scope since wb__frame_begin, except the n results.  A result may be NULL, or older
 * than the frame.  If a callback of the program ran in between, all objects stay, since the program
 * may hold them.  wb__frame_end returns its argument `result`. */
typedef struct {
    wb_scope *scope;                    /* the innermost scope at wb__frame_begin, */
    int64_t number, program_calls;      /* its `number`, and `program_calls` of the thread */
    int n;                              /* length of the scope's list at wb__frame_begin */
} wb__frame;
wb__frame wb__frame_begin(void);
void *wb__frame_end(wb__frame f, void *result);
void wb__frame_end_many(wb__frame f, int n, void *const *results);

#endif
