/* What backends that compile text share: a step of a plan as kernels in one dialect.
 *
 *   prelude.k    stands in front of every text, and is the only one that knows which language it is in
 *   kernels/     written kernels: products, convolutions, pools, rows by index, copies, running
 *                sums, attention
 *   fused.c ...  fused kernels, generated from the engine's form
 *   library.c    which written kernel does a step, with which arguments
 *   runtime/     what every backend does with them: memory, transfers, programs, launches, graphs
 *
 * A backend is a driver, a table of functions (runtime/runtime.h), and libraries of its vendor's,
 * which may take a step before it comes here. */
#ifndef WB__GPU_H
#define WB__GPU_H

#include "backend/backend.h"

/* What a device can, as far as texts depend on it. */
typedef struct {
    bool f64;                   /* double in kernels */
    bool is_cpu;                /* a processor behind a GPU's interface: items run one after another */
    int most_items;             /* in a group; at least 256 */
    size_t local_bytes;         /* of memory that a group shares */
    size_t most_args;           /* bytes of arguments; at least 1,024 */
    size_t buffer_bytes;        /* of these, what each buffer takes */
    int most_buffers;           /* that a kernel binds; 0: as many as the arguments hold */
    uint32_t most_groups[3];    /* of a launch */
    uint32_t most_points;       /* of a space that one kernel walks; 0: what 32 bits count */
} wb__gpu_target;

/* A number of the plan's that goes into the struct of arguments at every launch.  f64, i64 and u64
 * are two words, the lower first; f32 and i32 are converted from the number's double. */
typedef enum { WB__PUT_F32, WB__PUT_F64, WB__PUT_I32, WB__PUT_I64, WB__PUT_U64 } wb__gpu_put;
typedef struct {
    int number;
    uint32_t at;                /* byte of the struct */
    wb__gpu_put put;
} wb__gpu_number;
static inline bool wb__gpu_two_words(wb__gpu_put p)
{
    return p == WB__PUT_F64 || p == WB__PUT_I64 || p == WB__PUT_U64;
}

/* Where a view begins in its buffer, in elements, as two words of the struct, the lower first: the
 * buffer's own place is added where it has one. */
typedef struct {
    int buffer;                 /* the plan's */
    uint32_t at, size;          /* byte of the struct; bytes of an element */
} wb__gpu_origin;

enum { WB__GPU_WORKSPACE = -1 };

/* One kernel and its launch.  Arguments 0 .. n_buffers-1 are buffers, the last is the struct.  All
 * fields of the struct are 4 bytes. */
typedef struct {
    char *text;                 /* in the dialect, without the prelude */
    const char *entry;
    bool f64;                   /* uses double: WB_F64 is defined in front of the prelude */
    int n_buffers;
    int *buffer;                /* of each argument: the plan's buffer, or WB__GPU_WORKSPACE */
    size_t args_bytes;
    unsigned char *args;        /* as they are but for the numbers and the workspace's place */
    int workspace_at;           /* byte of the struct where the workspace's byte offset goes, as two
                                 * words, the lower first; -1: nowhere */
    int n_numbers;
    wb__gpu_number *numbers;
    int n_origins;              /* of views that have a granule: other buffers are at place 0 */
    wb__gpu_origin *origins;
    uint32_t groups[3], items[3];   /* groups, and items in each; all at least 1 */
    const char *args_type;      /* the struct's name in the text, whose buffers are all declared by
                                 * BUF; NULL: a written kernel */
    int segment;                /* of a fused step: launches of different segments are independent */
} wb__gpu_launch;

/* A step: its launches in order, each seeing what those before it wrote. */
typedef struct {
    int n;
    wb__gpu_launch *launch;
    size_t workspace;           /* bytes; aligned to 64 by the caller */
    const char *impl;           /* for the printed plan; a constant */
} wb__gpu_work;

/* 0, or an error code (UNSUPPORTED: an f64 kernel where the target has none). */
int wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
void wb__gpu_work_free(wb__gpu_work *work);         /* takes NULL */

/* Whether a step that the engine need not make (wb__backend's `takes`) is made here, and well. */
bool wb__gpu_takes(const wb__gpu_target *t, const wb__step *step);

/* The struct of arguments as it is to be at one launch: `out` has room for args_bytes.  `places`,
 * of the plan's buffers, is NULL where the launch is given addresses that are moved on by them. */
void wb__gpu_fill(const wb__gpu_launch *l, const wb__number *numbers, const size_t *places,
                  size_t workspace_at, void *out);

extern const char wb__gpu_prelude[];

/* ---- between the files of this folder -------------------------------------------------------- */

/* A dtype in the dialect: as the prelude spells it, its type in memory, and in a register. */
typedef struct { const char *name, *stored, *kind; } wb__gpu_type;
extern const wb__gpu_type wb__gpu_types[WB_DTYPE_COUNT];

int wb__gpu_fused(const wb__gpu_target *t, const wb__fused *fused, wb__gpu_work *work);
int wb__gpu_library(const wb__gpu_target *t, const wb__step *step, wb__gpu_work *work);

/* A launch added to `work`, zeroed, with room for so many buffers, bytes of arguments and numbers;
 * NULL on failure.  `text` is taken over. */
wb__gpu_launch *wb__gpu_add(wb__gpu_work *work, char *text, const char *entry, int n_buffers,
                            size_t args_bytes, int n_numbers);
/* An origin added to a list, of a view whose offset is at byte `at` of the struct, if it is to be
 * there.  False: no memory. */
bool wb__gpu_add_origin(wb__gpu_origin **list, int *n, const wb__view *v, size_t at);

#endif
