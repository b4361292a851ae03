/* The parts shared by all backends that compile kernel text: a step becomes kernels in one dialect.
 *
 *   prelude.k    precedes every text; adapts it to the kernel language
 *   kernels/     written kernels: products, convolutions, pools, rows by index, copies, running
 *                sums, attention
 *   fused.c ...  fused kernels, generated from the engine's instructions
 *   library.c    selects the written kernel and its arguments for a step
 *   runtime/     memory, transfers, programs, launches and graphs of every backend
 *
 * A backend is a driver, which is a table of functions (runtime/runtime.h), and optional vendor
 * libraries, which get a step first. */
#ifndef WB__GPU_H
#define WB__GPU_H

#include "backend/backend.h"

/* The capabilities of a device that the texts of kernels and their launches depend on. */
typedef struct {
    bool f64;                   /* kernels may use double */
    bool is_cpu;                /* a CPU with a GPU interface: items run one after another */
    int max_items;              /* items in a group; at least 256 */
    size_t local_bytes;         /* local memory per group, in bytes */
    size_t max_args_bytes;      /* bytes of arguments; at least 1,024 */
    size_t buffer_bytes;        /* argument bytes of each buffer */
    int max_buffers;            /* buffers that a kernel can bind; 0: no own limit */
    uint32_t max_groups[3];     /* groups of a launch, per dimension */
    uint32_t max_points;        /* points that one kernel can index; 0: 2^32 - 1 */
} wb__gpu_target;

/* A number of the plan that is written to the argument struct at every launch.  f64, i64 and u64
 * are two words, the lower first; f32, i32 and i64 are converted from the number's double. */
typedef enum {
    WB__GPU_NUMBER_F32, WB__GPU_NUMBER_F64, WB__GPU_NUMBER_I32, WB__GPU_NUMBER_I64,
    WB__GPU_NUMBER_U64
} wb__gpu_number_type;
typedef struct {
    int number;
    uint32_t at;                /* offset in the struct, in bytes */
    wb__gpu_number_type type;
} wb__gpu_number;
static inline bool wb__gpu_two_words(wb__gpu_number_type p)
{
    return p == WB__GPU_NUMBER_F64 || p == WB__GPU_NUMBER_I64 || p == WB__GPU_NUMBER_U64;
}

/* The offset of a view in its buffer, in elements, as two words of the struct, the lower first.
 * The buffer's own offset is added if it is not 0. */
typedef struct {
    int buffer;                 /* index in the plan */
    uint32_t at, size;          /* at: offset in the struct, in bytes; size: bytes of an element */
} wb__gpu_origin;

enum { WB__GPU_WORKSPACE = -1 };

/* A kernel and its launch.  Arguments 0 .. n_buffers-1 are buffers, the last argument is the
 * struct.  All fields of the struct have 4 bytes. */
typedef struct {
    char *text;                 /* in the dialect, without the prelude */
    const char *entry;
    bool f64;                   /* uses double: WB_F64 is defined before the prelude */
    int n_buffers;
    int *buffer;  /* per argument: buffer index in the plan, or WB__GPU_WORKSPACE */
    size_t args_bytes;
    unsigned char *args;        /* the struct; numbers and offsets are set at each launch */
    /* offset in the struct of the workspace's byte offset, which is two words, the lower first; -1:
     * none */
    int workspace_at;
    int n_numbers;
    wb__gpu_number *numbers;
    /* origins of the views with a granule; the other views' buffers begin at byte 0 of their
     * memory */
    int n_origins;
    wb__gpu_origin *origins;
    uint32_t groups[3], items[3];   /* number of groups, and items per group; all at least 1 */
    /* the name of the struct's type in the text of a fused kernel; NULL: a written kernel */
    const char *args_type;
    /* index of a fused step's segment; launches of different segments are independent */
    int segment;
} wb__gpu_launch;

/* The launches of a step, in order; a launch may read the results of earlier ones. */
typedef struct {
    int n;
    wb__gpu_launch *launch;
    size_t workspace;           /* size in bytes; it must begin at a multiple of 64 bytes */
    const char *impl;           /* for the printed plan; a constant */
} wb__gpu_work;

/* Creates the launches of a step; the caller frees *work.  Returns 0, or an error code;
 * WB_ERROR_UNSUPPORTED: no kernel has this dtype, the target lacks f64, or the step exceeds one of
 * its limits. */
int wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
void wb__gpu_work_free(wb__gpu_work *work);         /* accepts NULL */

/* Whether our kernels execute an optional step (`supports` of wb__backend) faster than its
 * parts. */
bool wb__gpu_supports(const wb__gpu_target *t, const wb__step *step);

/* Writes the argument struct of a launch to `out`, of args_bytes bytes.  `offsets`: offsets of the
 * plan's buffers; NULL: the launch gets addresses that include them. */
void wb__gpu_fill(const wb__gpu_launch *l, const wb__number *numbers, const size_t *offsets,
                  size_t workspace_at, void *out);

extern const char wb__gpu_prelude[];

/* ---- between the files of this folder -------------------------------------------------------- */

/* A dtype in the dialect: its name in the prelude, its type in memory and in a register. */
typedef struct { const char *name, *stored, *kind; } wb__gpu_type;
extern const wb__gpu_type wb__gpu_types[WB_DTYPE_COUNT];

int wb__gpu_fused(const wb__gpu_target *t, const wb__fused *fused, wb__gpu_work *work);
int wb__gpu_library(const wb__gpu_target *t, const wb__step *step, wb__gpu_work *work);

/* Adds a launch of one item without a workspace to `work`.  The launch's arrays have space for this
 * many buffers, argument bytes and numbers, and are zeroed.  NULL: `text` is NULL, or memory is
 * exhausted.  The caller gives `text` away, also on failure. */
wb__gpu_launch *wb__gpu_add(wb__gpu_work *work, char *text, const char *entry, int n_buffers,
                            size_t args_bytes, int n_numbers);
/* If a view has a granule, adds its origin to a list; `at`: offset in the struct of the view's
 * offset.  false: out of memory. */
bool wb__gpu_add_origin(wb__gpu_origin **list, int *n, const wb__view *v, size_t at);

#endif
