/* The node of the graph, which is the tensor itself, and the functions that make one.
 *
 * A tensor is in one of these states:
 *   - evaluated: `storage` is set; it stands there row-major at `offset` bytes, contiguous;
 *   - unevaluated: `op` and `in` say how to compute it; it may be asked for later;
 *   - a variable (op variable): what layers hold.  It has no value of its own: `current` is the
 * tensor that stands for its present version (an evaluated constant on the variable's storage, or
 * an unevaluated assign), and every operation given the variable binds that one (wb__bind);
 *   - gone: a version that was overwritten (flag WB__GONE).
 *
 * A tensor has a device, and its operands have the same one.  Literals and counts (iota) have none,
 * nor has what is made of such alone: they float, and are computed wherever they are used.  Once
 * computed for its own sake such a result settles, on the thread's device, unless something is made of
 * it already, which may be elsewhere; a single number never does: it is not read from memory but made
 * anew (wb__known).
 *
 * Inputs stay attached after evaluation, so that a gradient can still be taken; scopes detach what
 * outlives them. */
#ifndef WB__TENSOR_H
#define WB__TENSOR_H

#include "backend/backend.h"
#include "engine/compiled/recording.h"

/* Memory on a device, counted. */
typedef struct {
    _Atomic uint32_t refs;
    _Atomic uint32_t lent;              /* to other libraries: it is not written to any more */
    bool borrowed;                      /* of wb_borrow: the program's own memory */
    const wb_device *device;
    void *data;                         /* a handle of the device's; a pointer where host_visible */
    size_t bytes;
    void (*release)(void *data, void *context);     /* of borrowed memory; may be NULL */
    void *context;
    void *mirror;                       /* the values on the host, once somebody read them there */
} wb__storage;
wb__storage *wb__storage_new(const wb_device *device, size_t bytes);
static inline wb__storage *wb__storage_ref(wb__storage *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}
void wb__storage_unref(wb__storage *s);
/* The values as the host can read them, until the storage is written to or goes; NULL on failure. */
const void *wb__storage_read(wb__storage *s);
void wb__storage_written(wb__storage *s);       /* what was read of it is no longer so */

/* x bound and evaluated, of which `what` speaks; NULL on failure. */
wb_tensor *wb__evaluated(const char *what, wb_tensor *x);
/* x's values, evaluated, in order and in parts of bounded size: f(part, elements, ctx), whose nonzero
 * return ends it.  Where wb_data would keep a copy of a device's memory on the host, this keeps
 * nothing. */
int wb__read_in_parts(wb_tensor *x, int (*f)(const void *part, int64_t n, void *ctx), void *ctx);

/* wb_tensor.flags */
enum {
    WB__GONE = 1,           /* this version of a variable was overwritten */
    WB__WEAK = 2,           /* a literal whose dtype follows the other operand */
    WB__IS_UNCONSUMED = 4,
    WB__PENDING = 8,        /* an assign still to be made */
    WB__FROZEN = 16,        /* a variable that is not trained: running statistics */
    WB__FIXED = 32,         /* a literal that is part of a plan's structure: 1/n, a formula's number */
    WB__RENEWED = 64,       /* a literal that each replay of a recording renews: never part of it */
    WB__CANCELLED = 128,   /* an assign that was not made, since an evaluation failed */
    WB__KEPT = 256,         /* a version that lives on in memory of its own: its variable is counted */
    WB__MIXED = 2048,       /* a variable that is rounded from a wider variable, which is trained */
    WB__HELD = 1024,        /* kept or retained before it was computed: it stays among the sinks */
    WB__CUT = 512           /* what it was made of was given up: its scope closed, or that reads a
                               version that is gone (whose name it has then); with WB__GONE: before
                               it was evaluated, so it has no value */
};

struct wb_tensor {
    wb__object object;
    uint16_t op;                    /* wb__op */
    uint8_t dtype, ndim;
    uint16_t flags, n_attr;
    uint32_t n_in;
    uint32_t mark, index;           /* of the walk under way, by the thread that owns the graph */
    int64_t size;                   /* elements */
    wb_tensor **in;
    int64_t *attr;
    wb__number number[2];           /* run-time arguments of plans */
    wb__storage *storage;
    union {
        int64_t offset;                 /* bytes, of an evaluated tensor in its storage */
        struct { int32_t hook, number; } renewed;   /* of a literal with WB__RENEWED: see wb__renewed */
    };
    wb_tensor *variable;            /* of a version: its variable (counted only with WB__KEPT); once
                                       gone, only its address */
    wb_tensor *current;             /* of a variable (counted); its memory is `storage` */
    wb_tensor *live;                /* of a variable: the version in its memory (counted); of a
                                       pending assign: the variable's pending assign before it */
    const char *name;               /* of a variable, for messages; or of a layer (automatic) */
    wb_tensor *prev_unconsumed;
    union {
        wb_tensor *next_unconsumed;
        wb_tensor *next_dead;           /* while it is being destroyed */
    };
    const wb_device *device;        /* NULL: it floats */
    uint32_t bytes;                 /* of this block */
    uint32_t recorded;              /* the recording (its number) in which it was made, or 0 */
    uint8_t n_numbers;
    int64_t dims[WB_MAX_DIMS];
};

/* Making.  Checks nothing but memory; the new tensor belongs to the current scope.  Inputs are
 * bound (wb__bind) and referenced; attributes are copied.  Under WEBER_EAGER it is evaluated at
 * once. */
wb_tensor *wb__node(wb__op op, wb_dtype dtype, int ndim, const int64_t *dims, int n_in,
                    wb_tensor *const *in, int n_attr, const int64_t *attr);
wb_tensor *wb__node_with(wb__op op, wb_dtype dtype, int ndim, const int64_t *dims, int n_in,
                         wb_tensor *const *in, int n_attr, const int64_t *attr, int n_numbers,
                         const wb__number *numbers);

/* The tensor an operation computes with: a variable's current version, else itself. */
static inline wb_tensor *wb__bind(wb_tensor *x)
{
    return x->op == WB__OP_variable ? x->current : x;
}

/* The variable whose version a tensor is, unless that has memory of its own. */
static inline wb_tensor *wb__variable_of(const wb_tensor *x)
{
    return x->flags & WB__KEPT ? NULL : x->variable;
}

/* The flags of a variable that pass on to one that takes its place. */
static inline uint16_t wb__kept_flags(const wb_tensor *x)
{
    return x->op == WB__OP_variable ? x->flags & (WB__FROZEN | WB__MIXED) : 0;
}

/* Is its value there to be read by a plan? */
static inline bool wb__known(const wb_tensor *x) { return x->storage && x->device; }
static inline bool wb__is_leaf(const wb_tensor *x) { return wb__known(x) || x->flags & WB__GONE; }

/* Is x the version in a variable's memory, which a pending write is about to replace? */
static inline bool wb__overwritten(const wb_tensor *x)
{
    const wb_tensor *v = x->storage && !(x->flags & (WB__GONE | WB__KEPT)) ? x->variable : NULL;
    return v && v->live == x && v->current != x;
}

/* Before a variable is written to: where its memory is lent, it gets other memory with the same values.
 * 0, or an error code. */
int wb__take_memory(wb_tensor *variable);
static inline int wb__own_memory(wb_tensor *variable)
{
    if (wb__likely(!atomic_load_explicit(&variable->storage->lent, memory_order_relaxed))) return 0;
    return wb__take_memory(variable);
}

/* Where x is, or would be if it were computed for its own sake. */
const wb_device *wb__device_of(const wb_tensor *x);
/* Sets where this thread's new tensors are made, and returns where they were (NULL: the CPU). */
const wb_device *wb__use_device(const wb_device *d);
/* Byte `at` of a known tensor or variable, as backends take it: memory, and the place in it. */
void *wb__memory_of(const wb_tensor *x, int64_t at, size_t *offset);

/* The result of an operation that has nothing to do: x, or where that is a variable, its present
 * version for good. */
wb_tensor *wb__unchanged(wb_tensor *x);

/* A number for `mark` that no tensor has yet; never 0. */
uint32_t wb__next_mark(void);

/* An evaluated tensor on new, uninitialised storage of a device. */
wb_tensor *wb__empty_on(const wb_device *d, wb_dtype dtype, int ndim, const int64_t *dims);

/* A constant of like's shape and dtype, whose values are in `s` from `offset` on. */
wb_tensor *wb__constant_on(wb__storage *s, int64_t offset, const wb_tensor *like);

/* wb_borrow's on any device, of a handle of its backend's. */
wb_tensor *wb__borrow_on(const wb_device *d, void *memory, wb_dtype dtype, int ndim,
                         const int64_t *dims, void (*release)(void *memory, void *context),
                         void *context);

/* move.c: x, evaluated, as a constant on the same memory that knows nothing of x; x's value anew on
 * a device, such a constant too; the same as a variable, with x's flags if it is one; and wb_to,
 * which gives x itself where there is nothing to do, and through which gradients pass. */
wb_tensor *wb__as_constant(const wb_tensor *x);
wb_tensor *wb__copied(wb_tensor *x, const wb_device *d);
wb_tensor *wb__variable_on(wb_tensor *x, const wb_device *d);
/* On the default device, with whatever is in its memory: for readers of files, who overwrite all of it. */
wb_tensor *wb__variable_empty(wb_dtype dtype, int ndim, const int64_t *dims);
wb_tensor *wb__tensor_to(wb_tensor *x, const wb_device *d, wb_dtype dtype);
/* What wb_to makes of a dtype on its way to a device; WB_DTYPE_DEFAULT, with the error set, where
 * the device has no such. */
wb_dtype wb__dtype_on(const wb_device *d, wb_dtype from, wb_dtype wanted);
int wb__copy_bytes(const wb_device *to_device, void *to, size_t to_at, const wb_device *from_device,
                   const void *from, size_t from_at, size_t bytes);

/* Numbers of no dimension: part of a plan's structure; a run-time argument of it; part of it, with a
 * dtype that follows the other operand's. */
wb_tensor *wb__literal(double value, wb_dtype dtype);
wb_tensor *wb__argument(double value, wb_dtype dtype);
wb_tensor *wb__number_of(double value);
bool wb__holds(wb_dtype dtype, double v);      /* exactly */
/* A recording renews the value of this literal at each replay: it is the i-th number of its hook, or
 * where that is -1, the i-th input. */
static inline void wb__renewed(wb_tensor *literal, int hook, int i)
{
    literal->flags |= WB__RENEWED;
    literal->renewed.hook = hook;
    literal->renewed.number = i;
}

void wb__tensor_detach(wb_tensor *x);   /* drops inputs: x must be evaluated */
void wb__unconsumed_add(wb__thread *t, wb_tensor *x);      /* once; x may have consumers */
void wb__unconsumed_remove(wb_tensor *x);
/* Takes the reference over; x is evaluated from now on. */
void wb__set_storage(wb_tensor *x, wb__storage *s, int64_t offset);

/* Checks.  The name of the operation stands first in messages. */
/* Fewer than 2^32 elements, sizes of 0 counted as 1: then no product of some of the sizes overflows,
 * and a sum over an empty axis is small enough too. */
bool wb__check_dims(const char *what, int ndim, const int64_t *dims, int64_t *size);
bool wb__broadcast(const char *what, const wb_tensor *x, const wb_tensor *y, int *ndim,
                   int64_t *dims);
/* Not on two devices; what floats is on any. */
bool wb__one_device(const char *what, const wb_tensor *x, const wb_tensor *y);
bool wb__same_dims(const wb_tensor *x, const wb_tensor *y);
/* 0 .. ndim-1, or -1 with the error set, for what is no operand too. */
int wb__axis(const char *what, const wb_tensor *x, int64_t axis);
/* Usable as an operand: a tensor, not NULL, WB_NONE or freed; and floating.  Else the error is set
 * (a NULL after another error keeps that one). */
bool wb__operand(const char *what, const wb_tensor *x);
bool wb__floating(const char *what, const wb_tensor *x);
static inline bool wb__is_dtype(const char *what, wb_dtype dtype)
{
    if (wb__likely((unsigned)(dtype - 1) < WB_DTYPE_COUNT - 1)) return true;
    wb__fail(WB_ERROR_DTYPE, "%s: no dtype has the number %d", what, (int)dtype);
    return false;
}

/* Under WEBER_DEBUG=check: each element is in 0 to bound - 1, else the error is set.  Evaluates the
 * index; what a function that is being recorded computes itself is not past_n at. */
bool wb__indices_below(const char *what, wb_tensor *index, int64_t bound);

/* f16 and bf16 are storage: what has sums in the middle is computed in f32.  x in the dtype that a
 * value of `dtype` is computed in, or in another one: x itself where it is of that. */
static inline wb_dtype wb__computed_in(wb_dtype dtype)
{
    return dtype == WB_F16 || dtype == WB_BF16 ? WB_F32 : dtype;
}
wb_tensor *wb__as(wb_tensor *x, wb_dtype dtype);
wb_tensor *wb__wide(wb_tensor *x);

/* Operations without options, for the engine and layers. */
wb_tensor *wb__reduce(wb__op op, wb_tensor *x, unsigned mask, bool keep);
wb_tensor *wb__mean(wb_tensor *x, unsigned mask, bool keep);
wb_tensor *wb__sum_to(wb_tensor *g, int ndim, const int64_t *dims);     /* undoes a broadcast */
wb_tensor *wb__normalise(wb_tensor *x, unsigned mask, double eps);
wb_tensor *wb__matmul(wb_tensor *a, wb_tensor *b, bool transpose_a, bool transpose_b);
/* The score of a pair that a mask leaves out: far below any score, yet finite: exp gives exactly 0, and a
 * row with nothing kept stays a number. */
static inline double wb__masked(wb_dtype t) { return t == WB_F16 ? -6e4 : -1e30; }
wb_tensor *wb__slice_at(wb_tensor *x, const int64_t *start, const int64_t *dims,
                            const int64_t *step);
wb_tensor *wb__concat_at(int ndim, const int64_t *dims, int n, wb_tensor *const *parts,
                        const int64_t *starts);
wb_tensor *wb__zeros_like(wb_tensor *x);       /* where x is */
/* x itself, or where it floats the same on d, while x floats on; d may be NULL: x. */
wb_tensor *wb__with_device(wb_tensor *x, const wb_device *d);
/* A variable without pending writes becomes one of another dtype: `version`, a constant of its shape
 * on its device whose memory nothing else has (wb__as_constant), is its value from now on.  What was made
 * of the one before keeps it; recordings of wb_compile are made anew (wb__retyped counts). */
void wb__retype(wb_tensor *variable, wb_tensor *version);
extern wb__setting wb__retyped;
/* Takes its counters now; on the device of x. */
wb_tensor *wb__uniform_beside(const wb_tensor *x, wb_dtype dtype, int ndim, const int64_t *dims);
/* x, made by a layer in test mode that nobody asked for: a gradient that meets it complains. */
wb_tensor *wb__mark_automatic(wb_tensor *x, const char *layer);
/* For rules, of operands of one dtype: x a + y b, or x a + y^2 b, and m eta / (sqrt(v) + eps); x, y, m
 * and v have one shape, the others have no dimension.  They have no gradients. */
wb_tensor *wb__average(wb_tensor *x, wb_tensor *a, wb_tensor *y, wb_tensor *b, bool squared);
wb_tensor *wb__adam_step(wb_tensor *m, wb_tensor *v, wb_tensor *eta, wb_tensor *eps);
/* The derivative of gelu, a row of its own. */
wb_tensor *wb_gelu_slope(wb_tensor *x);

/* Gradients of loss with respect to n tensors (variables or any others): grads[i] NULL where there
 * is none.  0, or an error code. */
int wb__gradients(wb_tensor *loss, int n, wb_tensor *const *wrt, wb_tensor **grads);
void wb__gradient_end(void);            /* gives back this thread's working memory for it */

/* Evaluation.  `guard`, where not NULL, is a tensor of one element: unless it is finite no write
 * takes place, and WB_ERROR_NUMBER is returned with the guard's value in the message. */
int wb__evaluate(int n, wb_tensor *const *tensors, wb_tensor *guard);
/* The pending writes, and those to come until they are evaluated, are made if this tensor of one
 * element is finite: an evaluation without a guard of its own has this one.  `what` names it. */
int wb__guard_pending(wb_tensor *guard, const char *what);
void wb__fail_guard(const wb_tensor *guard, const char *what);          /* the error that it was not */
int wb__evaluate_pending(void);
/* Of a closing scope: these, and pending writes. */
int wb__evaluate_survivors(int n, wb_tensor *const *tensors);

/* automatic.c: what is computed outside any scope, where no scope ends a step.
 * Before n values are written to variables, some of which wait for an earlier write: a step begins,
 * so the writes of the one before are made.  Of what the values are made of, all that the program
 * was handed stays readable.  0, or an error code. */
int wb__end_step(wb__thread *t, int n, wb_tensor *const *values);
/* After versions were overwritten: what the program was handed lately and can no longer be computed
 * or differentiated gives up what it was made of. */
void wb__cut_stale(wb__thread *t);
/* Past so many tensors since the last evaluation everything nobody consumed is computed, and said
 * once, by wb__evaluate_keeping: every version that something was made of stays readable. */
enum { WB__MOST_UNEVALUATED = 100000 };
int wb__evaluate_keeping(int n, wb_tensor *const *tensors);
int wb__evaluate_overgrown(wb__thread *t);

/* The first n pending writes and these tensors; later writes go on waiting. */
int wb__evaluate_first(wb__thread *t, int n_writes, int n, wb_tensor *const *tensors);
/* Before a variable is written to: who reads its present version goes on doing so. */
int wb__keep_version(wb_tensor *variable);
void wb__engine_thread_end(void);       /* gives back this thread's working memory */
void wb__engine_shutdown(void);         /* and the plans */

/* x <- value without checks of shape, recorded. */
wb_tensor *wb__assign(wb_tensor *variable, wb_tensor *value);
/* All or nothing: this thread's pending writes from number `first` on do not take place. */
int wb__pending_count(void);
void wb__forget_pending(int first);
/* Its memory was written to by a replay: who held the old version finds it gone. */
int wb__new_version(wb_tensor *variable);
/* Host values into a variable at once (loading files): bytes must be what it holds; pending writes
 * are made first. */
int wb__overwrite(wb_tensor *variable, const void *values, size_t bytes);

#endif
