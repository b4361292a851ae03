/* What the engine asks of a device: memory, copies, kernels made of steps, a queue.
 *
 * A plan is a list of steps.  A step is a library operation (matrix product, convolution, ...) on
 * strided views, or a fused kernel in the engine's own form, below.  A backend prepares each step
 * once into a kernel, when the plan is made, and launches it at every run with the plan's buffers
 * and numbers. */
#ifndef WB__BACKEND_H
#define WB__BACKEND_H

#include "ops/ops.h"
#include "backend/kinds.h"

/* ---- values in memory ------------------------------------------------------------------------ */

/* A strided view of one of the plan's buffers; offset and strides in elements, a stride 0 where
 * broadcast.  `granule`: 0 where the buffer is aligned as memory of the backend's is; else the
 * buffer begins anywhere in such memory, at a multiple of so many bytes. */
typedef struct {
    wb_dtype dtype;
    int buffer, ndim, granule;
    int64_t offset, dims[WB_MAX_DIMS], strides[WB_MAX_DIMS];
} wb__view;

/* ---- fused kernels --------------------------------------------------------------------------- */

/* What a register holds.  f16 and bf16 are loaded into F32; bool, i8, u8 and i32 into I32. */
typedef enum { WB__REG_F32, WB__REG_F64, WB__REG_I32, WB__REG_I64 } wb__reg;
static inline wb__reg wb__reg_of(wb_dtype t)
{
    return t == WB_F64 ? WB__REG_F64 : t == WB_I64 ? WB__REG_I64
         : t == WB_F32 || t == WB_F16 || t == WB_BF16 ? WB__REG_F32 : WB__REG_I32;
}

/* A fused kernel runs over a space of `ndim` dimensions.  The last `col_dims` of them are the
 * columns, the `row_dims` before them the rows, those in front the outer dimensions (seldom any);
 * each group is walked row-major and is a product, so the space is [outer][rows][cols], each at
 * least 1 (col_dims may be 0: one column).
 *
 * A value is FULL (one an element), ROW (one a row: a reduction over the columns, or made of such),
 * or ONE (the same everywhere: numbers).  An elementwise instruction may mix them; its own level is
 * the finest of its operands'.
 *
 *   LOAD        arg: the view, whose ndim is the space's (stride 0 broadcasts).  Level FULL, or ROW where
 *               the view does not vary along the columns and the program needs it once a row only
 *   NUMBER      arg: index into the plan's numbers (f).  Level ONE
 *   IOTA        arg: the dimension of the space whose index it is; value: scale * index + shift
 *   UNIFORM, GAUSSIAN   arg: index of two numbers (u), Philox key and counter; c: a view of no buffer,
 *               whose offset and strides give each point's element number in the draw
 *   ROW         an elementwise row of ops.def: `op`, operands a, b, c (where: condition, x, y).
 *               Comparisons give I32 0 or 1
 *   CAST        a, to this instruction's register kind, as wb_astype does when the value is stored in
 *               `dtype` (so f32 -> i8 -> f32 saturates)
 *   REDUCE_COLUMNS   a FULL -> ROW; `op` is sum, max, min or argmax (of I32).  NaN wins max, min and
 *               argmax; of equals the first
 *   REDUCE_ROWS   a -> stored into view arg over [outer][cols], whose strides along the rows are 0;
 *               nothing may use it
 *   REDUCE_ALL    a -> stored into the one element of view arg, outer dimensions too; nothing may use it
 *   STORE       a -> view arg, converted to the view's dtype (a ROW value: to the view with stride 0
 *               along the columns)
 *
 * A store may write what a load of the same kernel reads, if both views are the same (offset,
 * strides, dtype and buffer index): in place.  Any other overlap is the engine's to avoid.
 *
 * Sums of F32 are made in a way whose error does not grow with the length (pairwise, or in blocks).
 */
typedef enum {
    WB__LOAD, WB__NUMBER, WB__IOTA, WB__UNIFORM, WB__GAUSSIAN, WB__ROW, WB__CAST,
    WB__REDUCE_COLUMNS, WB__REDUCE_ROWS, WB__REDUCE_ALL, WB__STORE
} wb__instr_kind;

/* Instructions whose arg is the view that they write. */
static inline bool wb__instr_writes(wb__instr_kind k)
{
    return k == WB__REDUCE_ROWS || k == WB__REDUCE_ALL || k == WB__STORE;
}

/* Each level is finer than the one before: they are compared. */
typedef enum { WB__LEVEL_ONE, WB__LEVEL_ROW, WB__LEVEL_FULL } wb__level;

typedef struct {
    uint8_t kind, reg, level,
        dtype; /* wb__instr_kind, wb__reg, wb__level, wb_dtype (of the tensor it stands for) */
    uint16_t op;                        /* wb__op */
    int32_t a, b, c;                    /* earlier instructions, -1 where absent */
    int32_t arg;
    int64_t scale, shift;               /* IOTA */
} wb__instr;

/* i8, u8 and bool are narrower than their register.  What NUMBER, IOTA, ROW and REDUCE_COLUMNS make of these
 * dtypes is in the register as storing and loading would make it.  (Rows of bool are 0 or 1 anyway.) */
static inline bool wb__is_narrow(const wb__instr *i)
{
    return i->dtype == WB_I8 || i->dtype == WB_U8 || (i->dtype == WB_BOOL && i->kind != WB__ROW);
}

/* One program over one or more spaces of the same shape of loop: an optimiser's update of all
 * parameters is one kernel of many segments.  Views of segment s are views[s * n_views + i];
 * numbers are shared. */
typedef struct {
    int ndim, row_dims, col_dims;
    int64_t dims[WB_MAX_DIMS];
} wb__space;

typedef struct {
    int n_instr, n_views, n_segments;
    const wb__instr *instr;             /* in order: operands before their users */
    const wb__space *spaces;            /* one a segment */
    const wb__view *views;
} wb__fused;

/* ---- steps ----------------------------------------------------------------------------------- */

/* Bytes.  The libraries of vendors demand 256 of a workspace; some of their engines like more. */
enum { WB__WORKSPACE_ALIGN = 1024 };

typedef struct {
    wb__step_kind kind;
    wb__fused fused;
    int n_views;
    wb__view views[9];      /* logical shapes: [batch..., m, k], [N, C, H, W], ... */
    int variant;            /* wb__conv_kind, wb__pool_kind, wb__attention_kind; of CUMSUM: is it exclusive? */
    wb__op epilogue;        /* where wb__has_epilogue: kinds.h */
    wb__aux aux_kind;
    wb__view aux;
    int sums_of;            /* wb__sums, of a product without batch dimensions */
    wb__view sums;          /* one dimension; f32 or c's dtype */
    uint8_t precision;      /* wb__precision, of products, convolutions and attention */
    bool deterministic;     /* the same bits at every run */
    wb__conv_attr conv;
    wb__pool_attr pool;
    wb__attention_attr attention;
} wb__step;

/* A product with more than bias and epilogue: asked for only where `takes` says yes. */
static inline bool wb__step_is_special(const wb__step *s)
{
    return s->kind == WB__STEP_MATMUL && (s->aux_kind != WB__AUX_NONE || s->sums_of);
}

/* ---- devices --------------------------------------------------------------------------------- */

typedef struct wb__kernel wb__kernel;
typedef struct wb__backend wb__backend;

/* Devices belong to their backend and last as long as it is loaded. */
struct wb_device {
    const wb__backend *backend;
    int ordinal;
    const char *name;       /* the maker's; "" for the CPU */
    void *state;
};

struct wb__kernel {
    size_t workspace;       /* bytes the plan must lend it */
    const char *impl;       /* what was chosen, for the printed plan */
    const char *why;        /* why not the library, or NULL */
};

/* ---- plans as one command -------------------------------------------------------------------- */

typedef struct wb__graph wb__graph;

typedef enum {
    WB__BUFFER_INPUT, WB__BUFFER_VARIABLE, WB__BUFFER_RESULT, WB__BUFFER_ARENA
} wb__buffer_kind;
typedef struct {
    wb__buffer_kind kind;
    size_t bytes;           /* that the kernels may touch, from the buffer's beginning */
    bool scattered;         /* they touch fewer than half of these: a copy does not pay */
} wb__buffer;

/* Kernels in order, and the buffers they use.  An input may be anywhere at every run, and is only
 * read; a result too, and nothing of it is read before it is written; a variable is where it was as
 * a rule; the arena has what no run leaves for the next one, with the workspace behind it. */
typedef struct {
    int n_kernels;
    const wb__kernel *const *kernels;
    int n_buffers;
    const wb__buffer *buffers;
    size_t workspace_at;
    int n_numbers;
    bool split;         /* one of two that run one after the other, the second on what the first left
                           in the arena and in results: both are where the run says */
} wb__sequence;

/* ---- memory shared with other libraries ------------------------------------------------------- */

typedef struct {
    int kind, ordinal;      /* the device, in DLPack's numbers */
    void *data;             /* an address, or a handle that they know */
    size_t at;              /* bytes from there */
} wb__shared;

/* Memory is a handle: a pointer where `host_visible` (the host may then read and write it), else
 * whatever the backend likes; places within it are byte offsets.  Every call may come from
 * any thread, and leaves the caller's current device, where the driver has such a thing, as it was.
 * What returns int: 0, or an error code with wb__fail called.
 *
 * A device's commands take effect in the order of the calls, whatever runs at the same time:
 * released memory may be handed out at once, and a download sees all launches before it. */
struct wb__backend {
    const char *name;                       /* "CPU" */
    const char *tag;                        /* "cpu", as in messages: cpu:1 */
    bool host_visible;          /* the host may read and write memory through the handle */
    bool is_gpu;                /* plans are those for a GPU: few launches, much parallel work */

    /* Looks for devices, once; an error's message says what is missing and how to get it. */
    int (*start)(void);
    /* Gives back everything that nobody holds; nothing where it was stopped.  Devices keep their
     * addresses, and start again when they are used. */
    void (*stop)(void);
    int (*count)(void);
    const wb_device *(*device)(int ordinal);
    /* One part of the backend by name such as a library that it uses: 1 works, 0 does not (error set), -1 no such part. */
    int (*part)(const char *name);
    bool (*has_dtype)(const wb_device *d, wb_dtype t);
    int (*memory)(const wb_device *d, wb_device_memory *m);

    /* Memory comes back to a cache, aligned to 64 bytes.  NULL on failure: what is cached has then
     * been given back and the driver asked again. */
    void *(*allocate)(const wb_device *d, size_t bytes);
    void (*release)(const wb_device *d, void *memory, size_t bytes);
    void (*trim)(const wb_device *d);       /* gives the cache back to the system */
    int (*upload)(const wb_device *d, void *to, size_t at, const void *from, size_t bytes);
    int (*download)(const wb_device *d, void *to, const void *from, size_t at, size_t bytes);
    /* Within a device, or from another one of the same backend; WB_ERROR_UNSUPPORTED without a
     * message where there is no direct way. */
    int (*copy)(const wb_device *d, void *to, size_t to_at, const wb_device *from_device,
                const void *from, size_t from_at, size_t bytes);

    /* A kernel for a step, or an error.  The step is copied where it must live on.
     * WB_ERROR_UNSUPPORTED for a fused step that is too large: the engine makes smaller ones; and
     * for a step that was taken (`takes`) and cannot be done: the engine plans without it. */
    int (*prepare)(const wb_device *d, const wb__step *step, wb__kernel **kernel);
    void (*destroy)(const wb_device *d, wb__kernel *kernel);
    /* Enqueues: buffers[view.buffer] is each buffer's memory, in which the buffer begins at byte
     * places[view.buffer] (`places` NULL: all at 0, as always where `host_visible`); the workspace
     * begins at byte `workspace_at` of `workspace`, a multiple of WB__WORKSPACE_ALIGN.
     * WB_ERROR_UNSUPPORTED: a library refused this step, and nothing of it runs; `prepare` gives the
     * next kernel of this step to something else, so the engine makes the plan again. */
    int (*launch)(const wb_device *d, const wb__kernel *kernel, void *const *buffers,
                  const size_t *places, void *workspace, size_t workspace_at,
                  const wb__number *numbers);
    int (*wait)(const wb_device *d);        /* until all that was launched is done */
    /* How the engine should lay out a convolution's x and y: true for NHWC. */
    bool (*prefers_nhwc)(const wb_device *d, const wb__step *conv);

    /* What follows may be NULL. */

    /* Whether the backend does this step, of a kind or with an epilogue or sums that the engine
     * would otherwise make of several: asked while a plan is made, with shapes, dtypes and strides
     * (as they will most likely be), but no buffers. */
    bool (*takes)(const wb_device *d, const wb__step *step);
    /* A plan that runs again, as one command.  `s` and all it points to outlive the graph.
     * WB_ERROR_UNSUPPORTED without a message: launch its kernels one by one. */
    int (*graph)(const wb_device *d, const wb__sequence *s, wb__graph **graph);
    void (*graph_free)(const wb_device *d, wb__graph *graph);
    int (*graph_run)(const wb_device *d, wb__graph *graph, void *const *buffers,
                     const size_t *places, const wb__number *numbers);

    /* A byte of the backend's memory as other libraries know it; memory NULL: the device alone.
     * Nothing is waited for. */
    void (*share)(const wb_device *d, const void *memory, size_t at, wb__shared *s);
    /* A handle for another library's memory on the device, which is only read and stays that
     * library's; and its end.  NULL on failure. */
    void *(*adopt)(const wb_device *d, void *address, size_t bytes);
    void (*disown)(const wb_device *d, void *memory);
};

extern const wb__backend wb__cpu_backend, wb__cl_backend, wb__cu_backend;
/* CPUDevice(): one, or as many as WEBER_CPU_DEVICES says, for tests of programs that use several. */
enum { WB__MOST_CPU_DEVICES = 16 };
extern const wb_device wb__cpu_devices[WB__MOST_CPU_DEVICES];
#define wb__cpu (wb__cpu_devices[0])

#endif
