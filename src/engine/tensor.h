/* The node of the graph, which is the tensor itself, and the functions that create tensors.
 *
 * A tensor is in one of these states:
 *   - evaluated: `storage` is set; the values are row-major and contiguous from byte `offset` on;
 *   - unevaluated: `op` and `in` describe how it is computed;
 *   - a variable (op variable), such as a parameter of a layer.  `current` is its current version:
 *     an evaluated constant on the variable's storage, or an unevaluated assign.  An operation on
 *     the variable gets this version as its operand (wb__bind);
 *   - gone (flag WB__GONE): its value cannot be read any more.  It is a version that was
 *     overwritten, an assign that was replaced or cancelled, or a tensor that lost its inputs
 *     before it was evaluated (WB__CUT).
 *
 * The operands of a tensor are on the device of the tensor.  Only wb_to has its operand on another
 * device.  Literals, counts (iota) and tensors computed from these alone have no device.  They are
 * computed on the device of the operation that uses them.  Evaluating such a tensor gives it the
 * device that computed it, unless it has consumers or is a 0-d literal.
 *
 * Tensors keep their inputs after evaluation, so that gradients can still be computed.  Closing a
 * scope detaches the tensors that outlive it from their inputs. */
#ifndef WB__TENSOR_H
#define WB__TENSOR_H

#include "backend/backend.h"
#include "engine/compiled/recording.h"

/* The values of a leaf in the order in which a kernel reads them. */
typedef struct wb__form wb__form;

/* Memory on a device, with a reference count. */
typedef struct {
    _Atomic uint32_t refs;
    _Atomic uint32_t lent;              /* number of tensors of other libraries that use the memory;
                                           while it is not 0, the memory is not written */
    bool borrowed;                      /* memory of the program (wb_borrow) */
    const wb_device *device;
    void *data;                         /* a handle of the device; a pointer if host_visible */
    size_t bytes;
    void (*release)(void *data, void *context);     /* frees borrowed memory; may be NULL */
    void *context;                      /* argument of `release` */
    void *mirror;                       /* copy of the values on the host, made by the first read */
    _Atomic(wb__form *) forms;          /* prepared forms of the values (forms.c) */
    _Atomic uint64_t read_by;       /* number of the latest run of a plan that could read a form */
    _Atomic uint32_t reads; /* number of runs that could read a form since the last write */
} wb__storage;
wb__storage *wb__storage_new(const wb_device *device, size_t bytes);
static inline wb__storage *wb__storage_ref(wb__storage *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}
void wb__storage_unref(wb__storage *s);
/* Returns the bytes of the storage for reading on the host, or NULL on failure.  Valid until the
 * storage is written or freed. */
const void *wb__storage_read(wb__storage *s);
/* Whether the host has a copy of the storage's values; sets this copy, if there is memory. */
bool wb__storage_is_read(wb__storage *s);
void wb__storage_set_read(wb__storage *s, const void *values);
void wb__forms_drop(wb__storage *s);            /* forms.c */
void wb__forms_lend(wb__storage *s);            /* others may write the values from now on */
void wb__storage_written(wb__storage *s);       /* drops the host's copy and the prepared forms */

/* Bits of wb_tensor.flags, in 16 bits. */
enum {
    WB__GONE = 1 << 0,          /* the tensor's value cannot be read any more (head of this file) */
    WB__WEAK = 1 << 1,          /* a literal that takes the dtype of an operation's other operand */
    WB__IS_UNCONSUMED = 1 << 2, /* the tensor is in its thread's ring of unconsumed results */
    WB__PENDING = 1 << 3,       /* an assign that is not evaluated yet */
    WB__FROZEN = 1 << 4,        /* a variable that is not trained, such as running statistics */
    WB__FIXED = 1 << 5,         /* a literal whose value is part of the plan, such as 1/n */
    WB__RENEWED = 1 << 6,       /* a literal whose value each replay of a recording sets */
    WB__CANCELLED = 1 << 7,     /* an assign that was not made, since its evaluation failed */
    WB__KEPT = 1 << 8,          /* a version that kept its memory when the variable got new memory
                                   for a write; it holds a reference to the variable */
    WB__CUT = 1 << 9,           /* the inputs were dropped; with WB__GONE, before the tensor was
                                   evaluated, so it has no value */
    WB__HELD = 1 << 10,         /* the program kept or retained the tensor before its evaluation: it
                                   stays an unconsumed result, even with consumers */
    WB__MIXED = 1 << 11,        /* a parameter in f16 or bf16 whose f32 copy is trained */
    WB__UNCONFIRMED = 1 << 12,  /* a write, or the guard, of the optimiser step whose guard the host
                                   has not read yet (guard.c).  If the guard is not finite, the
                                   write becomes WB__CANCELLED: its variable keeps its value. */
    WB__SLICED = 1 << 13,       /* the tensor is not evaluated, but a slice of it was */
    WB__TYPED = 1 << 14,        /* a parameter whose dtype must not change */
    WB__WIDE = 1 << 15          /* a variable whose dtype stays where wb_to changes a model's */
};

struct wb_tensor {
    wb__object object;
    uint16_t op;                    /* wb__op */
    uint8_t dtype, ndim;
    uint16_t flags, n_attr;
    uint32_t n_in;                  /* number of inputs */
    uint32_t mark, index;           /* number of the latest walk that marked this tensor, and the
                                       tensor's index in that walk (graph.h) */
    int64_t size;                   /* number of elements */
    wb_tensor **in;                 /* inputs */
    int64_t *attr;                  /* n_attr attributes of the operation, such as axes */
    union {
        wb__number number[2];       /* the value of a literal, the eps of a normalise, or
                                       the key and counter of random numbers */
        struct {                    /* of a variable: who trains it (claims.c) */
            /* The number of the thread that has claimed the variable, or 0.  Of a version that is
             * gone, and of what was made from one (WB__CUT): the thread that has overwritten the
             * version, or 0. */
            _Atomic long writer;
            _Atomic uint32_t readers;       /* evaluations that read the variable */
            _Atomic uint16_t forks;         /* wb__forks when the fields were right */
            uint16_t claims : 15;   /* claims of the writer that are in force */
            uint16_t claims_write : 1;      /* one of these claims is for pending writes */
        };
    };
    wb__storage *storage;                   /* values of an evaluated tensor; else NULL */
    union {
        int64_t offset;                 /* byte offset of an evaluated tensor in its storage */
        /* of a literal with WB__RENEWED: arguments `hook` and `i` of wb__renewed */
        struct { int32_t hook, number; } renewed;
    };
    wb_tensor *variable;            /* the variable of a version.  Holds a reference only with
                                       WB__KEPT.  With WB__GONE the variable may be freed. */
    wb_tensor *current;             /* the current version of a variable, with a reference */
    wb_tensor *live;                /* the version in a variable's memory, with a reference.  For a
                                       pending assign: the previous pending assign to the variable,
                                       or NULL. */
    const char *name;               /* name of a variable or layer, for messages; may be NULL */
    wb_tensor *prev_unconsumed;
    union {
        wb_tensor *next_unconsumed;
        wb_tensor *next_dead;           /* while the tensor is being destroyed */
    };
    const wb_device *device;        /* NULL: the tensor has no device */
    uint32_t bytes;                 /* size of this block of memory, with `in` and `attr` */
    uint32_t recorded;              /* id of the recording in which the tensor was created, or 0 */
    uint8_t n_numbers;              /* run-time numbers in `number` */
    int64_t dims[WB_MAX_DIMS];
};

/* Creates a node, which belongs to the current scope.  Inputs are bound (wb__bind) and referenced;
 * attributes are copied.  Shapes and dtypes are not checked.  With WEBER_EAGER, wb__node evaluates
 * the node at once; wb__node_with does not.  NULL: out of memory, inputs on two devices, or an
 * evaluation failed. */
wb_tensor *wb__node(wb__op op, wb_dtype dtype, int ndim, const int64_t *dims, int n_in,
                    wb_tensor *const *in, int n_attr, const int64_t *attr);
wb_tensor *wb__node_with(wb__op op, wb_dtype dtype, int ndim, const int64_t *dims, int n_in,
                         wb_tensor *const *in, int n_attr, const int64_t *attr, int n_numbers,
                         const wb__number *numbers);

/* Returns the operand for operations: a variable's current version, or x itself.  For a variable,
 * this thread must have claimed it or count as its reader, or only compare the pointer: else
 * another thread may free the version. */
static inline wb_tensor *wb__bind(wb_tensor *x)
{
    return x->op == WB__OP_variable ? x->current : x;
}

/* Whether this thread has claimed v (claims.c): a variable that one thread trains is not used by
 * another.  In the functions below, messages begin with `what`. */
bool wb__is_claimed(const wb_tensor *v);
/* Returns wb__bind(x) as a version that lives until the scope closes.  NULL: another thread has
 * claimed x. */
wb_tensor *wb__version(const char *what, wb_tensor *x);
/* Returns the tensor that an evaluation of x computes: wb__bind(x) if this thread has claimed x,
 * whose writes may be pending; else x itself, which has its value in memory if it is a variable.
 * NULL: another thread has claimed x. */
wb_tensor *wb__to_evaluate(const char *what, wb_tensor *x);
/* Enters this thread among the threads that use the library; each thread calls it at its start. */
void wb__claims_thread(void);
/* Whether a second thread has used the library; claims.c describes how two threads meet. */
extern atomic_bool wb__several;
extern atomic_int wb__alone;
static inline bool wb__is_alone(void)
{
    atomic_signal_fence(memory_order_seq_cst);
    return !atomic_load_explicit(&wb__several, memory_order_relaxed);
}
static inline void wb__alone_add(int n)
{
    const int now = atomic_load_explicit(&wb__alone, memory_order_relaxed);
    atomic_store_explicit(&wb__alone, now + n, memory_order_release);   /* and what was written */
}
/* Whether no other thread has used the library.  If so, none begins to until wb__alone_end, and the
 * caller need not be counted as a reader. */
static inline bool wb__alone_begin(void)
{
    if (!wb__is_alone()) return false;
    wb__alone_add(1);
    if (wb__is_alone()) return true;
    wb__alone_add(-1);
    return false;
}
static inline void wb__alone_end(void)
{
    atomic_signal_fence(memory_order_seq_cst);
    wb__alone_add(-1);
}
/* Begins to use v, so that no other thread claims it.  WB__READS_COUNTED: wb__read_end ends the
 * use.  WB__READS_OWN: this thread has claimed v.  WB__READS_NOT: another thread has claimed v, and
 * the error is set. */
typedef enum { WB__READS_NOT, WB__READS_OWN, WB__READS_COUNTED } wb__reading;
wb__reading wb__read_begin(wb_tensor *v, const char *what);
void wb__read_end(wb_tensor *v, int forks);     /* `forks`: wb__fork_number() at the begin */
/* The number of forks between the first process and this one.  A reading that began before the last
 * fork is counted no more. */
extern _Atomic uint16_t wb__forks;
static inline int wb__fork_number(void)
{
    return atomic_load_explicit(&wb__forks, memory_order_relaxed);
}
void wb__claims_in_child(void);         /* for wb__at_fork */
extern double wb__claim_waits;
/* Claims v for this thread, and waits until no other thread uses v.  Returns 0 or an error code.  A
 * thread may claim v several times, and then releases it as often. */
int wb__claim(wb_tensor *v, const char *what);
void wb__unclaim(wb_tensor *v);
/* Claims v for all pending writes to it; one claim serves all of them. */
int wb__claim_write(wb_tensor *v);
void wb__unclaim_write(wb_tensor *v);

/* A read of a value, from wb__bind_begin or wb__value_begin (evaluate.h) to wb__value_end, in which
 * no other thread writes the value. */
typedef struct {
    wb_tensor *counted;                 /* a variable that this thread reads, or NULL */
    int forks;
} wb__value_read;
/* Returns wb__bind(x), or NULL on failure, after which wb__value_end may be called too. */
wb_tensor *wb__bind_begin(const char *what, wb_tensor *x, wb__value_read *r);
void wb__value_end(const wb__value_read *r);
/* Sets the error that the value of x was overwritten, and returns its code. */
int wb__gone(const wb_tensor *x);

/* Whether another thread has overwritten a version: x, or the one that x, which is WB__CUT, was
 * made from.  If so, sets the error. */
bool wb__overwritten_by_another(const char *what, const wb_tensor *x);

/* The flags of a tensor that may be a version, which another thread may end (wb__set_gone). */
static inline unsigned wb__flags_of(const wb_tensor *x)
{
    return __atomic_load_n(&x->flags, __ATOMIC_ACQUIRE);
}

/* Returns the variable of which x is a version.  NULL: x is no version, or has WB__KEPT. */
static inline wb_tensor *wb__variable_of(const wb_tensor *x)
{
    return wb__flags_of(x) & WB__KEPT ? NULL : x->variable;
}

/* Returns the flags of x that a variable made from x gets too.  Returns 0 if x is no variable. */
static inline uint16_t wb__kept_flags(const wb_tensor *x)
{
    const uint16_t kept = WB__FROZEN | WB__MIXED | WB__TYPED | WB__WIDE;
    return x->op == WB__OP_variable ? x->flags & kept : 0;
}

/* Marks x, a version, as gone.  A thread that writes a variable ends the version in its memory,
 * which another thread may have as the operand of a graph: the flag is set first, then the storage
 * is dropped.  So a thread that finds no storage finds the flag afterwards. */
static inline void wb__set_gone(wb_tensor *x)
{
    __atomic_store_n(&x->flags, (uint16_t)(x->flags | WB__GONE), __ATOMIC_RELEASE);
    __atomic_store_n(&x->storage, NULL, __ATOMIC_RELEASE);
}
/* Marks x as a tensor that loses its inputs, and is not computed any more. */
static inline void wb__set_cut(wb_tensor *x, long writer)
{
    x->flags |= WB__CUT;
    atomic_store_explicit(&x->writer, writer, memory_order_relaxed);
}
static inline bool wb__is_gone(const wb_tensor *x) { return wb__flags_of(x) & WB__GONE; }
static inline bool wb__has_storage(const wb_tensor *x)
{
    return __atomic_load_n(&x->storage, __ATOMIC_ACQUIRE);
}
/* Whether x is known: it is evaluated and has a device, so that a plan can read it from memory. */
static inline bool wb__known(const wb_tensor *x) { return wb__has_storage(x) && x->device; }
static inline bool wb__is_leaf(const wb_tensor *x) { return wb__known(x) || wb__is_gone(x); }

/* Whether x is the version in a variable's memory, and a pending write of this thread will replace
 * it. */
static inline bool wb__overwritten(const wb_tensor *x)
{
    const bool has = wb__has_storage(x) && !(wb__flags_of(x) & (WB__GONE | WB__KEPT));
    const wb_tensor *v = has ? x->variable : NULL;
    return v && wb__is_claimed(v) && v->live == x && v->current != x;
}

/* Gives the variable new memory with a copy, if other libraries use its memory (`lent`).  Called
 * before the variable is written.  Returns 0 or an error code. */
int wb__take_memory(wb_tensor *variable);
static inline int wb__own_memory(wb_tensor *variable)
{
    if (wb__likely(!atomic_load_explicit(&variable->storage->lent, memory_order_relaxed))) return 0;
    return wb__take_memory(variable);
}

/* The device of x, or the device on which it would be evaluated. */
const wb_device *wb__device_of(const wb_tensor *x);
/* Sets the device of this thread's new tensors and returns the previous one (NULL: the CPU). */
const wb_device *wb__use_device(const wb_device *d);
/* Returns the memory handle of x, a known tensor or a variable.  Sets *offset to the position, in
 * bytes, of byte `at` of x in that memory. */
void *wb__memory_of(const wb_tensor *x, int64_t at, size_t *offset);

/* Returns the result of an operation that leaves the value of x as it is.  This is x itself, or, if
 * x is a variable, a new tensor with the value of its current version. */
wb_tensor *wb__unchanged(wb_tensor *x);

/* Returns a new number for `mark`; never 0. */
uint32_t wb__next_mark(void);

/* An evaluated tensor on new, uninitialised memory. */
wb_tensor *wb__empty_on(const wb_device *d, wb_dtype dtype, int ndim, const int64_t *dims);

/* A constant with the shape and dtype of `like` and the values in `s` from byte `offset` on. */
wb_tensor *wb__constant_on(wb__storage *s, int64_t offset, const wb_tensor *like);

/* Returns a tensor as wb_borrow does, but on d.  `memory` is a memory handle of d's backend. */
wb_tensor *wb__borrow_on(const wb_device *d, void *memory, wb_dtype dtype, int ndim,
                         const int64_t *dims, void (*release)(void *memory, void *context),
                         void *context);

/* Moves a tensor, for wb__tensor_class: wb__tensor_to (evaluate.h). */
void *wb__tensor_moved(void *x, const wb_device *d, wb_dtype dtype);

/* 0-d literals.  The value of a wb__literal is part of the plan.  So is the value of a wb__argument
 * that is 0, 1 or -1 and has no WB__RENEWED.  Any other value of a wb__argument is passed to each
 * run of the plan.  wb__number_of is a wb__literal that takes the dtype of the other operand of an
 * operation. */
wb_tensor *wb__literal(double value, wb_dtype dtype);
wb_tensor *wb__argument(double value, wb_dtype dtype);
wb_tensor *wb__number_of(double value);
/* Whether the dtype holds v exactly. */
bool wb__holds(wb_dtype dtype, double v);
/* Makes each replay of a recording of wb_compile set this literal.  If `hook` is -1, the value is
 * that of input i of the compiled function.  Else it is number i that callback `hook` of the
 * recording (wb__on_replay) fills in. */
static inline void wb__renewed(wb_tensor *literal, int hook, int i)
{
    literal->flags |= WB__RENEWED;
    literal->renewed.hook = hook;
    literal->renewed.number = i;
}

/* Returns a new node.  With WEBER_EAGER, evaluates it; NULL: that failed.  NULL gives NULL. */
wb_tensor *wb__made(wb_tensor *x);
void wb__tensor_detach(wb_tensor *x);   /* drops x's inputs; if x is evaluated without a device,
                                           binds x to the device of its storage */
/* Adds x to this thread's ring of unconsumed results; no effect if x is in it or has no inputs.  x
 * may have consumers. */
void wb__unconsumed_add(wb__thread *t, wb_tensor *x);
void wb__unconsumed_remove(wb_tensor *x);
/* Makes x evaluated: its values begin at byte `offset` of s.  Takes over the caller's reference to
 * s. */
void wb__set_storage(wb_tensor *x, wb__storage *s, int64_t offset);

/* Checks of arguments.  `what` is the name of the operation, with which the error messages
 * begin. */

#define WB__MAX_DIM ((int64_t)UINT32_MAX)           /* limit of the size of one dimension */
#define WB__MAX_SIZE (((int64_t)1 << 40) - 1)   /* limit of the number of elements of a tensor */

/* Whether a tensor can have these dimensions.  If so, sets *size to its number of elements.  Else
 * sets the error: too many dimensions, a size that is negative or above WB__MAX_DIM, or sizes (each
 * 0 counted as 1) whose product is above WB__MAX_SIZE. */
bool wb__check_dims(const char *what, int ndim, const int64_t *dims, int64_t *size);
bool wb__broadcast(const char *what, const wb_tensor *x, const wb_tensor *y, int *ndim,
                   int64_t *dims);
/* Whether x and y are on one device; else sets the error.  A tensor without a device fits any. */
bool wb__one_device(const char *what, const wb_tensor *x, const wb_tensor *y);
bool wb__same_dims(const wb_tensor *x, const wb_tensor *y);
/* Returns the axis as 0 .. ndim - 1 (a negative axis counts from the end), or -1 with the error set
 * if x has no such axis or is no operand. */
int wb__axis(const char *what, const wb_tensor *x, int64_t axis);
/* Whether x can be an operand.  Else sets the error: x is NULL, WB_NONE, freed or no tensor.  If x
 * is NULL because an earlier call failed, that call's error stays.  wb__floating also requires a
 * floating dtype. */
bool wb__operand(const char *what, const wb_tensor *x);
bool wb__floating(const char *what, const wb_tensor *x);
static inline bool wb__is_dtype(const char *what, wb_dtype dtype)
{
    if (wb__likely((unsigned)(dtype - 1) < WB_DTYPE_COUNT - 1)) return true;
    wb__fail(WB_ERROR_DTYPE, "%s: no dtype has the number %d", what, (int)dtype);
    return false;
}

/* Whether all elements of the index are in 0 to bound - 1.  False, with the error set: one is not,
 * or its evaluation failed.  Called only with WEBER_DEBUG=check.  While wb_compile records, an
 * unevaluated index is not checked. */
bool wb__indices_below(const char *what, wb_tensor *index, int64_t bound);
/* Checks class numbers as wb__indices_below does; *except is allowed too unless `except` is NULL.
 * Without WEBER_DEBUG=check it checks only inside wb_withgradient and wb_train, outside recordings,
 * and only labels that are evaluated in memory that the host may read, so that nothing waits. */
bool wb__labels_below(const char *what, wb_tensor *labels, int64_t bound, const int64_t *except);
/* Whether the offsets begin with 0, never decrease, and are in 0 to bound - 1.  False: the error is
 * set.  Without WEBER_DEBUG=check it checks only outside recordings, and only offsets that are
 * evaluated in memory that the host may read. */
bool wb__offsets_ascend(const char *what, wb_tensor *offsets, int64_t bound);
/* Does what wb__offsets_ascend does, but for numbers in any order, of which the first may be
 * any. */
bool wb__known_below(const char *what, wb_tensor *index, int64_t bound);

/* Returns the dtype in which sums over this dtype are computed: f32 for f16 and bf16, else the same
 * dtype. */
static inline wb_dtype wb__computed_in(wb_dtype dtype)
{
    return dtype == WB_F16 || dtype == WB_BF16 ? WB_F32 : dtype;
}
/* Returns x cast to dtype, or x itself if it has that dtype. */
wb_tensor *wb__as(wb_tensor *x, wb_dtype dtype);
/* Returns a tensor of `dtype` on the default device, which need not have f64, with these values.
 * Frees `values`.  NULL: `values` is NULL, or the call failed. */
wb_tensor *wb__from_doubles(double *values, wb_dtype dtype, int ndim, const int64_t *dims);
/* Returns x cast to the dtype in which sums over it are computed. */
wb_tensor *wb__wide(wb_tensor *x);

/* Operations for the engine and for layers.  They take plain arguments instead of a struct of
 * options. */
wb_tensor *wb__reduce(wb__op op, wb_tensor *x, unsigned mask, bool keep);
/* The operation of a row WB_UNARY, WB_TEST, WB_BINARY or WB_COMPARE of ops.def. */
wb_tensor *wb__elementwise(wb__op op, wb_tensor *const *x);
wb_tensor *wb__mean(wb_tensor *x, unsigned mask, bool keep);
/* Returns g summed to the shape `dims`, which broadcasts to the shape of g. */
wb_tensor *wb__sum_to(wb_tensor *g, int ndim, const int64_t *dims);
wb_tensor *wb__normalise(wb_tensor *x, unsigned mask, double eps);
wb_tensor *wb__matmul(wb_tensor *a, wb_tensor *b, bool transpose_a, bool transpose_b);
/* Returns a tensor with the value and the gradient of y, which is attention of one query in each
 * head to a cache.  Its value is a step of the backend, if the backend accepts WB__ATTENTION_CACHED
 * (ops.h), whose operands these are: q, k, v, k_now, v_now, position.  NULL: failed. */
wb_tensor *wb__attention_cached(wb_tensor *y, wb_tensor *const operands[6], double scale);
/* Returns the power of 2 by which an operand of a matrix product in dtype t is to be multiplied
 * before the product, which is scaled by *scale, less than 1, and sets *scale to the rest, 1 to 2.
 * So an f16 product does not overflow if the scaled one fits.  For dtypes other than f16 returns 1,
 * and leaves *scale. */
double wb__power_within(double *scale, wb_dtype t);
/* The attention score of a masked pair of query and key: finite, so that a row in which all pairs
 * are masked has no NaN, and so low that its softmax is 0 beside usual scores. */
static inline double wb__masked(wb_dtype t) { return t == WB_F16 ? -6e4 : -1e30; }
wb_tensor *wb__slice_at(wb_tensor *x, const int64_t *start, const int64_t *dims,
                        const int64_t *step);
/* wb_take of rows, and wb_pad with zeros. */
wb_tensor *wb__take_rows(wb_tensor *x, wb_tensor *index);
wb_tensor *wb__pad_zeros(wb_tensor *x, int axis, int64_t before, int64_t after);
wb_tensor *wb__concat_at(int ndim, const int64_t *dims, int n, wb_tensor *const *parts,
                         const int64_t *starts);
/* A tensor of zeros with the shape, dtype and device of x. */
wb_tensor *wb__zeros_like(wb_tensor *x);
/* Returns x if x has a device or d is NULL.  Else returns a new tensor on d with the value of x.
 * NULL: x is NULL, or the call failed. */
wb_tensor *wb__with_device(wb_tensor *x, const wb_device *d);
/* Changes the dtype of a variable that has no pending write.  `version`, the new value, is a
 * constant with the shape and device of the variable, whose memory nothing else uses.  Tensors
 * computed from the old version keep the old version.  Counts the change in wb__retyped, so that
 * wb_compile records its functions again. */
void wb__retype(wb_tensor *variable, wb_tensor *version);
extern wb__setting wb__retyped;
/* Returns a tensor of uniform random numbers on the device of x.  The call itself, not the
 * evaluation, reserves counters of the generator. */
wb_tensor *wb__uniform_beside(const wb_tensor *x, wb_dtype dtype, int ndim, const int64_t *dims);
/* Returns a new tensor with the value of x.  A gradient through the new tensor fails.  Called for a
 * layer that acts in test mode only because it is called outside wb_withgradient.  `layer` is the
 * name of the layer in the message.  NULL gives NULL. */
wb_tensor *wb__mark_automatic(wb_tensor *x, const char *layer);
/* Returns x a + y b, or x a + y^2 b if `squared`, without a gradient.  x and y have one shape and
 * dtype; a and b are 0-d. */
wb_tensor *wb__average(wb_tensor *x, wb_tensor *a, wb_tensor *y, wb_tensor *b, bool squared);
/* Returns m eta / (sqrt(v) + eps), without a gradient.  m and v have one shape and dtype; eta and
 * eps are 0-d. */
wb_tensor *wb__adam_step(wb_tensor *m, wb_tensor *v, wb_tensor *eta, wb_tensor *eps);
/* Returns the derivative of gelu at x. */
wb_tensor *wb_gelu_slope(wb_tensor *x);

/* Sets grads[i] to the gradient of loss with respect to wrt[i] (a variable or any tensor), or to
 * NULL if the loss does not depend on it.  Returns 0 or an error code. */
int wb__gradients(wb_tensor *loss, int n, wb_tensor *const *wrt, wb_tensor **grads);
/* Sets the gradients as wb__gradients does, but the walk does not go beyond the tensors `wrt` and
 * `beside`, none of which counts as computed from another.  The gradients themselves are tensors of
 * the graph as usual. */
int wb__gradients_within(wb_tensor *loss, int n, wb_tensor *const *wrt, wb_tensor **grads,
                         wb_tensor *beside);
void wb__gradient_end(void);            /* frees this thread's working memory */

/* An operation of the ranks of a communicator (backend/collective.h) on x.  `kind` is a
 * wb__collective_kind, and `op` the wb__ranks_op of a reduction: ALLREDUCE keeps the shape of x,
 * REDUCE_SCATTER makes [n, ...] of [size n, ...], ALLGATHER the converse.  The operation is
 * performed when it is evaluated, which all ranks must do in the same order: after `before`,
 * another such operation or NULL. */
struct wb__communicator;
wb_tensor *wb__collect(const struct wb__communicator *c, int kind, int op, wb_tensor *x,
                       wb_tensor *before);

/* Number of tensors that a thread may create without an evaluation. */
enum { WB__MOST_UNEVALUATED = 100000 };

/* The functions of the evaluation that the graph below it calls.  The files of the graph (objects,
 * scopes, tensors, operations) call no function of the evaluation by name. */
typedef struct {
    int (*evaluate)(int n, wb_tensor *const *tensors, wb_tensor *guard);     /* wb__evaluate */
    int (*evaluate_keeping)(int n, wb_tensor *const *tensors);
    /* Called when a scope is closed.  Evaluates n tensors that outlive the scope, and the pending
     * writes. */
    int (*evaluate_survivors)(int n, wb_tensor *const *tensors);
    int (*evaluate_overgrown)(wb__thread *t);
    void (*forget_pending)(int first);
    int (*guard_confirm)(void);
    void *(*allocate)(const wb_device *d, size_t bytes);        /* wb__device_allocate */
    void (*thread_end)(void);           /* frees this thread's working memory */
    void (*shutdown)(void);             /* also frees the plans */
} wb__evaluation;
extern const wb__evaluation wb__engine;

/* Returns what wb_custom_gradient_array returns, without checks.  end(ctx) is called when no
 * gradient can be taken any more; NULL: nothing is called.  On failure `end` is not called. */
wb_tensor *wb__custom_gradient(wb_tensor *y, wb_gradient_function f, void *ctx,
                               void (*end)(void *ctx), int n, wb_tensor *const *x);
/* Frees what a node `custom` holds beside its inputs.  Called when the node loses its inputs. */
void wb__custom_end(wb_tensor *node);

#endif
