/* The interface between the engine and a device: memory, copies, kernels and a queue.
 *
 * A plan is a list of steps.  A step is either a library operation (matrix product, convolution,
 * ...) on strided views, or a fused kernel, described below.  When a plan is created, a backend
 * prepares a kernel for each step.  Each run of the plan launches these kernels with the plan's
 * buffers and numbers. */
#ifndef WB__BACKEND_H
#define WB__BACKEND_H

#include "base/environment.h"
#include "ops/ops.h"
#include "backend/kinds.h"

/* ---- values in memory ------------------------------------------------------------------------ */

/* A strided view of a buffer of the plan.  Offset and strides are in elements; a broadcast
 * dimension has stride 0.  granule: 0 if the buffer is aligned like the backend's own memory;
 * otherwise the buffer begins at a multiple of `granule` bytes from such an address. */
typedef struct {
    wb_dtype dtype;
    int buffer, ndim, granule;
    int64_t offset, dims[WB_MAX_DIMS], strides[WB_MAX_DIMS];
} wb__view;

/* The elements of a view that is padded with zeros.  Along each dimension d of the view, index
 * begin + k step has element k in memory, at k times the view's stride, for 0 <= k < size.  All
 * other elements of the view are 0. */
typedef struct {
    int64_t begin[WB_MAX_DIMS], step[WB_MAX_DIMS], size[WB_MAX_DIMS];
} wb__window;

/* Whether no index of dimension d, which has size `dim`, is outside the window. */
static inline bool wb__window_is_whole(const wb__window *w, int d, int64_t dim)
{
    return !w->begin[d] && w->step[d] == 1 && w->size[d] == dim;
}

/* Restricts the window to the indices from 0 to dim - 1 of dimension d, and returns how many of its
 * first elements that removes. */
static inline int64_t wb__window_clip(wb__window *w, int d, int64_t dim)
{
    const int64_t step = w->step[d];
    const int64_t gone = w->begin[d] < 0 ? WB__MIN((step - 1 - w->begin[d]) / step, w->size[d]) : 0;
    w->begin[d] += gone * step;
    w->size[d] -= gone;
    const int64_t left = w->begin[d] < dim ? (dim - w->begin[d] + step - 1) / step : 0;
    w->size[d] = WB__MIN(w->size[d], left);
    if (dim == 1 && w->size[d]) w->step[d] = 1;
    return gone;
}

/* ---- fused kernels --------------------------------------------------------------------------- */

/* The type of a register's elements: F32 also for f16 and bf16, I32 also for bool, i8 and u8. */
typedef enum { WB__REG_F32, WB__REG_F64, WB__REG_I32, WB__REG_I64 } wb__reg;
static inline wb__reg wb__reg_of(wb_dtype t)
{
    return t == WB_F64 ? WB__REG_F64 : t == WB_I64 ? WB__REG_I64
         : t == WB_F32 || t == WB_F16 || t == WB_BF16 ? WB__REG_F32 : WB__REG_I32;
}

/* A fused kernel runs over a space of `ndim` dimensions.  The last `col_dims` of them are the
 * columns, the `row_dims` before them the rows, and the rest, rarely any, the outer dimensions.
 * The space is thus [outer][rows][cols], each the product of its dimensions in row-major order;
 * the product of no dimensions is 1.  col_dims may be 0: one column.
 *
 * The level of a value is FULL (one number per element), PER_ROW (one number per row, such as a
 * reduction over the columns) or ONE (one number for the whole space).  An elementwise instruction
 * may mix levels; its result has the finest level of its operands.
 *
 *   LOAD        Reads view arg, whose ndim is the space's (stride 0 broadcasts).  Level FULL, or
 *               PER_ROW if the view does not vary along the columns.  a: -1, or the index of the
 *               view's window, with which the view varies too.
 *   NUMBER      Reads the plan's number `arg` (its field f).  Level ONE.  If scale is 1, the number
 *               is a constant of the plan, 0 or 1, which is also `shift`.
 *   IOTA        The index along dimension arg: scale * index + shift.
 *   UNIFORM, GAUSSIAN   A random number.  The plan's numbers arg and arg + 1 (their field u)
 *               are the Philox key and counter.  c: a view without a buffer; its offset and strides
 *               give each point's element index in the draw.
 *   PRODUCT     A matrix product's element: the sum, over `scale` indices k, of the products of the
 *               elements of views arg and c.  The views have the space's dimensions, of which the
 *               rows or the columns have stride 0, and then k.  Level FULL.  Only in programs
 *               without reductions, if `supports` accepts the product (wb__backend).
 *   ELEMENTWISE   An operation of ops.def: `op` with operands a, b, c (where: condition, x, y).
 *               Comparisons give I32 0 or 1.
 *   CAST        Converts a to this instruction's register type, as wb_astype does when the value is
 *               stored in `dtype` (so f32 -> i8 -> f32 saturates).
 *   REDUCE_COLUMNS   Reduces a FULL value to PER_ROW.  `op` is sum, max, min, or argmax, whose
 *               result is I32.  NaN wins max, min and argmax; of equal elements the first wins.
 *   REDUCE_ROWS   Reduces a over the rows and stores it into view arg over [outer][cols]; the
 *               view's strides along the rows are 0.  No instruction may use the result.
 *   REDUCE_ALL  Reduces a over all dimensions and stores it into the one element of view arg.  No
 *               instruction may use the result.
 *   STORE       Stores a into view arg, converted to the view's dtype.  The view of a PER_ROW value
 *               has stride 0 along the columns.
 *
 * A store may overwrite memory that a load of the same kernel reads if both views are the same
 * (offset, strides, dtype and buffer index).  The engine must avoid all other overlaps.
 *
 * Sums of F32 are computed pairwise, in blocks or with compensation for rounding errors, so that
 * the error hardly grows with the length. */
typedef enum {
    WB__LOAD, WB__NUMBER, WB__IOTA, WB__UNIFORM, WB__GAUSSIAN, WB__PRODUCT, WB__ELEMENTWISE_OP,
    WB__CAST, WB__REDUCE_COLUMNS, WB__REDUCE_ROWS, WB__REDUCE_ALL, WB__STORE
} wb__instr_kind;

/* Whether an instruction has no other instructions as operands. */
static inline bool wb__instr_is_source(wb__instr_kind k) { return k <= WB__PRODUCT; }

/* Whether an instruction writes its view arg. */
static inline bool wb__instr_writes(wb__instr_kind k)
{
    return k == WB__REDUCE_ROWS || k == WB__REDUCE_ALL || k == WB__STORE;
}

/* The levels of values (see above), from coarse to fine. */
typedef enum { WB__LEVEL_ONE, WB__LEVEL_PER_ROW, WB__LEVEL_FULL } wb__level;

typedef struct {
    uint8_t kind, reg, level, dtype;    /* wb__instr_kind, wb__reg, wb__level and wb_dtype */
    uint16_t op;                        /* wb__op of an ELEMENTWISE or a reduction */
    int32_t a, b, c;                    /* indices of earlier instructions; -1: none */
    int32_t arg;                        /* index of a view, number or dimension, by kind */
    int64_t scale, shift;               /* of IOTA and NUMBER; a PRODUCT has `scale` alone */
} wb__instr;

/* Whether an instruction's dtype is an integer type narrower than its register: i8, u8 or bool.
 * bool does not count for ELEMENTWISE, whose bool results are already 0 or 1.  If true, the
 * result of a NUMBER, IOTA, ELEMENTWISE or REDUCE_COLUMNS is converted as if stored and loaded. */
static inline bool wb__is_narrow(const wb__instr *i)
{
    return i->dtype == WB_I8 || i->dtype == WB_U8 ||
           (i->dtype == WB_BOOL && i->kind != WB__ELEMENTWISE_OP);
}

/* The space of a fused kernel: dims[0] is the outermost dimension. */
typedef struct {
    int ndim, row_dims, col_dims;
    int64_t dims[WB_MAX_DIMS];
} wb__space;

/* A program that runs once per segment, for example once per parameter of an optimiser.  Each
 * segment has its own space and views; the spaces differ only in `dims`.  View i of segment s is
 * views[s * n_views + i]. */
typedef struct {
    int n_instr, n_views, n_segments;
    const wb__instr *instr;             /* operands precede their users */
    const wb__space *spaces;            /* one per segment */
    const wb__view *views;
    const wb__window *windows;          /* of padded views; a step with windows has one segment */
    /* NULL, or args[s * n_instr + i] replaces the `arg` of instruction i in segment s, since
     * segments differ in the numbers of the plan that they read */
    const int32_t *args;
} wb__fused;

/* ---- steps ----------------------------------------------------------------------------------- */

/* The alignment of workspaces, in bytes.  Vendor libraries require 256; some of their engines are
 * faster with more. */
enum { WB__WORKSPACE_ALIGN = 1024 };

typedef struct wb__communicator wb__communicator;

typedef struct {
    wb__step_kind kind;
    wb__fused fused;
    int n_views;
    wb__view views[9];      /* logical shapes: [batch..., m, k], [N, C, H, W], ... */
    /* an enum of the kind, such as wb__conv_kind, wb__pool_kind, wb__attention_kind or
     * wb__ranks_op; CUMSUM: 1 if exclusive */
    int variant;
    wb__op epilogue;        /* of a product or convolution (wb__has_epilogue in kinds.h) */
    wb__aux aux_kind;
    wb__view aux;
    int sums_of;            /* wb__sums, of a product without batch dimensions */
    wb__view sums;          /* one dimension; f32 or the dtype of c */
    bool packed;            /* of a product: view 1 is the packed form of b, made by a PACK */
    /* Of a product or convolution whose view 1 is a leaf that this plan does not write: index of
     * the buffer with the prepared form of view 1 (`prepare_form` below); 0: none. */
    int form;
    uint8_t precision;      /* wb__precision, of products, convolutions and attention */
    bool deterministic;     /* the results must be the same bits at every run */
    bool in_branch;         /* in a recorded graph, runs beside the steps without this mark */
    wb__conv_attr conv;
    wb__pool_attr pool;
    wb__attention_attr attention;
    wb_host_function host;                  /* of a HOST step: the function and its argument */
    void *host_ctx;
    int collective;                         /* wb__collective_kind of a COLLECTIVE */
    const wb__communicator *communicator;   /* of a COLLECTIVE (backend/collective.h) */
} wb__step;

/* Whether a product needs more than a bias and an epilogue.  The engine plans such a step only if
 * `supports` returns true. */
static inline bool wb__step_is_special(const wb__step *s)
{
    return s->kind == WB__STEP_MATMUL && (s->aux_kind != WB__AUX_NONE || s->sums_of);
}

/* ---- devices --------------------------------------------------------------------------------- */

typedef struct wb__kernel wb__kernel;
typedef struct wb__backend wb__backend;

/* Devices belong to their backend; their addresses stay valid as long as Weber is loaded. */
struct wb_device {
    const char *kind;       /* wb__device_kind, by which a device is recognised */
    const wb__backend *backend;
    int ordinal;                        /* index of the device among those of its backend */
    const char *name;       /* as the manufacturer names it; "" for the CPU */
    const char *about;      /* such as its architecture and its driver's version; or NULL */
    void *state;                        /* the backend's own data of the device */
};

struct wb__kernel {
    size_t workspace;       /* bytes of workspace that the plan must provide */
    int64_t reloaded;       /* bytes of long rows that loops after the first one load again */
    const char *impl;       /* the chosen implementation, for the printed plan */
    const char *reason;     /* the reason why no library was chosen, or NULL */
    bool unfinished;        /* a launch only begins the step, and needs `finish` */
    bool in_branch;         /* as in wb__step */
    bool by_host;           /* the host takes part, so that no graph contains the step */
    /* The prepared form of view 1, if the step has `form`: its size (0: the kernel has none) and
     * its format.  Kernels with the same key make the same form of the same leaf. */
    size_t form_bytes;
    uint64_t form_key;
};

/* When a step may begin.  Some launches only begin a step, which goes on while later steps run. */
typedef struct {
    int waits_for;          /* index of the last begun step that must be complete before this step;
                               -1: none */
    bool begins;            /* the launch of this step only begins it */
} wb__plan_wait;

/* ---- plans as one command -------------------------------------------------------------------- */

typedef struct wb__graph wb__graph;

typedef enum {
    WB__BUFFER_INPUT, WB__BUFFER_VARIABLE, WB__BUFFER_RESULT, WB__BUFFER_ARENA
} wb__buffer_kind;
typedef struct {
    wb__buffer_kind kind;
    size_t bytes;           /* size of the prefix that the kernels may access */
    bool scattered;         /* the kernels access less than half of these bytes */
} wb__buffer;

/* Kernels in order of execution, and the buffers that they use.  Inputs and results may have a
 * different address at every run.  Inputs are only read; a result is not read before it is written.
 * A variable usually keeps its address.  The arena keeps nothing from one run to the next; the
 * workspace begins at byte workspace_at of the arena's memory. */
typedef struct {
    int n_kernels;
    const wb__kernel *const *kernels;
    int n_buffers;
    const wb__buffer *buffers;
    size_t workspace_at;
    int n_numbers;
    /* waits[i] is what kernel i waits for; NULL: every launch completes its step.  Its indices
     * count the steps of the plan, of which `first` is kernel 0.  All steps are complete when the
     * sequence is. */
    const wb__plan_wait *waits;
    int first;                          /* plan step that is kernel 0 */
    /* after[i] is the last kernel with another `in_branch` that must be complete before kernel i,
     * counted as in `waits`; -1: none.  Kernels with the same `in_branch` run in order.  NULL: all
     * kernels run in order.  Kernels with `in_branch` have a workspace of their own, which begins
     * branch_at bytes after that of the other kernels. */
    const int *after;
    size_t branch_at;
    /* true: this is one of two sequences that run one after the other.  The second reads results of
     * the first, in the arena and in result buffers. */
    bool split;
} wb__sequence;

/* ---- memory shared with other libraries ------------------------------------------------------ */

struct wb__collective;
typedef struct {
    int kind, ordinal;      /* the device as DLPack numbers it */
    void *data;             /* an address, or a handle that other libraries accept */
    size_t at;              /* byte offset from `data` */
} wb__shared;

/* Memory is a handle.  If `host_visible`, it is a pointer that the host may read and write;
 * otherwise its meaning is private to the backend.  Positions within memory are byte offsets.
 * Every function may be called from any thread, and leaves the caller's current device (of the
 * driver) unchanged.  Functions that return int, except count and part, return 0 or the code of an
 * error; they set the error with wb__fail unless a comment calls it an error without a message.
 *
 * A device's commands take effect in the order of the calls.  Released memory may therefore be
 * allocated again at once, and a download sees all earlier launches. */
struct wb__backend {
    const char *name;                       /* "CPU" */
    const char *tag;                        /* "cpu", as in messages: cpu:1 */

    /* Traits: what is true of the devices, asked in place of "is it a GPU" (see WB__GPU_TRAITS).
     * host_visible: the host may read and write memory through the handle.  Only then do tensors
     *   borrow the host's memory, and elements are read one by one without a warning.
     * dear_launches: a launch takes the time of moving megabytes.  Layers and plans then join
     *   products, sums, slices and concats in fewer kernels, and avoid kernels that copy.
     * free_operations: operations take no time beside a kernel's loads and stores.  Plans then
     *   compute many values again rather than storing them (merge.c, remake.c).
     * scarce_memory: nothing swaps memory out.  Arenas then are as small as possible (arena.c),
     *   and a plan that needs more than is free fails before it runs.  Other arenas stay in caches.
     * narrows_f64: moves to the device make f32 of f64, unless they name a dtype (wb_to, loaders).
     * padded_views: fused kernels take windows (window.c and programs.c make them).
     * segment_numbers: fused kernels take `args`, so that segments.c merges more kernels.
     * part_align: a number of bytes, at least 1.  Kernels are slower on tensors that do not begin
     *   at a multiple of it (placement.c). */
    bool host_visible, dear_launches, free_operations, scarce_memory, narrows_f64, padded_views,
         segment_numbers;
    int part_align;

    /* Looks for devices if the backend is not started yet.  An error's message names what is
     * missing and how to get it. */
    int (*start)(void);
    /* Closes the devices and frees what they hold; if the program still uses objects of the
     * backend, frees only the cache.  Does nothing if the backend is not started.  Devices keep
     * their addresses and start again when they are used. */
    void (*stop)(void);
    int (*count)(void);
    const wb_device *(*device)(int ordinal);
    /* The state of a component, such as a library that the backend uses.  Returns 1 if it works, 0
     * with the error set if it does not, and -1 if the backend has no component of this name. */
    int (*part)(const char *name);
    bool (*has_dtype)(const wb_device *d, wb_dtype t);
    int (*memory)(const wb_device *d, wb_device_memory *m);

    /* Memory is aligned to 64 bytes.  Released memory goes to a cache.  If an allocation fails, the
     * cache is freed and the allocation is tried again.  NULL, with the error set: both failed. */
    void *(*allocate)(const wb_device *d, size_t bytes);
    void (*release)(const wb_device *d, void *memory, size_t bytes);
    void (*trim)(const wb_device *d);       /* frees the cache */
    int (*upload)(const wb_device *d, void *to, size_t at, const void *from, size_t bytes);
    int (*download)(const wb_device *d, void *to, const void *from, size_t at, size_t bytes);
    /* Sets *at to the host's address of the memory, and waits until no command writes the memory.
     * The host may read it until it is written or released.  WB_ERROR_UNSUPPORTED without a
     * message: this memory has no host address.  NULL: no memory has one. */
    int (*map)(const wb_device *d, const void *memory, const void **at);
    /* begin_read begins to read `bytes` bytes, at most 8, as they are after all commands so far;
     * later commands do not wait for the read.  The memory is not released or written before
     * end_read, which waits, copies the bytes to `to`, unless `to` is NULL, and frees the read.
     * begin_read returns WB_ERROR_UNSUPPORTED without a message if the device cannot read so.
     * NULL: no device can. */
    int (*begin_read)(const wb_device *d, const void *memory, size_t at, size_t bytes, void **read);
    int (*end_read)(const wb_device *d, void *read, void *to);
    /* Whether each further use of the device is an error.  NULL: never. */
    bool (*is_lost)(const wb_device *d);
    /* Copies within a device, or from another device of the same backend.  WB_ERROR_UNSUPPORTED
     * without a message: no direct copy is possible. */
    int (*copy)(const wb_device *d, void *to, size_t to_at, const wb_device *from_device,
                const void *from, size_t from_at, size_t bytes);

    /* Creates a kernel for a step.  The kernel does not refer to *step later.  Returns
     * WB_ERROR_UNSUPPORTED if a fused step is too large; the engine then splits the step.  Also
     * returns WB_ERROR_UNSUPPORTED if another step cannot be prepared although `supports` accepted
     * it; the engine then plans without this step. */
    int (*prepare)(const wb_device *d, const wb__step *step, wb__kernel **kernel);
    void (*destroy)(const wb_device *d, wb__kernel *kernel);
    /* Enqueues a kernel.  Buffer i begins at byte offsets[i] of the memory buffers[i].  If
     * `offsets` is NULL or the backend is `host_visible`, all offsets are 0.  The workspace begins
     * at byte `workspace_at` of `workspace`.  workspace_at is a multiple of WB__WORKSPACE_ALIGN.
     * WB_ERROR_UNSUPPORTED: a library refused this step, and no part of the step runs.  The engine
     * then plans again, and `prepare` chooses another implementation for the step. */
    int (*launch)(const wb_device *d, const wb__kernel *kernel, void *const *buffers,
                  const size_t *offsets, void *workspace, size_t workspace_at,
                  const wb__number *numbers);
    /* Completes the last launch of the kernel of a COLLECTIVE, which may only have begun it:
     * kernels that are launched later may read its result and write its operand. */
    int (*finish)(const wb_device *d, const wb__kernel *kernel);
    int (*wait)(const wb_device *d);        /* until all launched kernels have finished */
    /* Whether the engine should store a convolution's x and y in channels-last layout (NHWC). */
    bool (*prefers_channels_last)(const wb_device *d, const wb__step *conv);

    /* The functions below may be NULL. */

    /* Whether the backend accepts this step.  The engine calls it while planning, for step kinds,
     * epilogues and sums that it would otherwise compose from several steps.  The views have
     * shapes, dtypes and the most likely strides, but no buffers.  A FUSED step without a program
     * asks whether a fused kernel should compute the matrix product of views 0 and 1, view 2, of
     * which it reads every element, rather than a kernel before it. */
    bool (*supports)(const wb_device *d, const wb__step *step);
    /* The size in bytes of the packed form of b, view 1 of a MATMUL, if the product is faster with
     * the packed form; else 0.  All products with this b accept the form.  The engine packs
     * operands that several products of a plan read (packs.c).  The views have no buffers. */
    int64_t (*packed_bytes)(const wb_device *d, const wb__step *step);
    /* Writes the prepared form of a kernel's view 1 to `form`, which has form_bytes, from the
     * values of the leaf, whose buffer is `leaf`.  Returns 0 or an error code.  A launch reads the
     * form instead of the leaf if the buffer `form` of the step is not NULL.  The results have the
     * same bits with and without it.  NULL: no kernel of the backend has a form. */
    int (*prepare_form)(const wb_device *d, const wb__kernel *kernel, const void *leaf, void *form);
    /* Whether graphs of the device may run steps at the same time (`after` of wb__sequence). */
    bool (*branches)(const wb_device *d);
    /* Records a sequence as one command, for plans that run repeatedly.  `s` and everything it
     * points to must outlive the graph.  WB_ERROR_UNSUPPORTED without a message: launch the kernels
     * one by one. */
    int (*graph)(const wb_device *d, const wb__sequence *s, wb__graph **graph);
    void (*graph_free)(const wb_device *d, wb__graph *graph);
    int (*graph_run)(const wb_device *d, wb__graph *graph, void *const *buffers,
                     const size_t *offsets, const wb__number *numbers);

    /* Describes byte `at` of the backend's memory for other libraries.  memory NULL: describes only
     * the device.  Does not wait for pending commands. */
    void (*share)(const wb_device *d, const void *memory, size_t at, wb__shared *s);
    /* Wraps another library's memory on this device in a handle; the memory is only read and stays
     * that library's.  disown frees the handle.  NULL: failure. */
    void *(*adopt)(const wb_device *d, void *address, size_t bytes);
    void (*disown)(const wb_device *d, void *memory);
    /* Performs an operation of the ranks (backend/collective.h) on addresses of this device's
     * memory, when the event c->ready is reached, with the device current for this thread. */
    int (*collect)(const wb_device *d, const struct wb__collective *c);
};

#define WB__GPU_TRAITS                                                                             \
    .dear_launches = true, .free_operations = true, .scarce_memory = true, .narrows_f64 = true,    \
    .padded_views = true, .segment_numbers = true, .part_align = 16

extern const wb__backend wb__cpu_backend, wb__cl_backend, wb__cu_backend, wb__amd_backend,
    wb__mtl_backend;
/* The value of wb_device.kind; the CPU devices: one, or as many as WEBER_CPU_DEVICES asks for. */
extern const char wb__device_kind[];
extern const wb_device wb__cpu_devices[WB__MAX_CPU_DEVICES];
#define wb__cpu (wb__cpu_devices[0])

#endif
