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
    /* Traits of CPUs with a GPU interface.  in_turn: a core with caches runs the items of a group
     * one after another, so that neighbours in memory belong to one item.  composes: attention as
     * several steps, and products apart from their readers, are no slower (wb__gpu_supports). */
    bool in_turn, composes;
    bool tickets;               /* the prelude has COUNTERS, TICKET and FENCE */
    int max_items;              /* items in a group; at least 256 */
    size_t local_bytes;         /* local memory per group, in bytes */
    /* local memory of a group with what its launch asks for (wb__gpu_launch.local), 0: launches
     * cannot ask; of a processor, for all its groups, 0: the same */
    size_t launch_bytes, processor_bytes;
    size_t max_args_bytes;      /* bytes of arguments; at least 1,024 */
    size_t buffer_bytes;        /* bytes that each buffer takes in the arguments */
    int max_buffers;            /* most buffers of a kernel; 0: no limit but max_args_bytes */
    uint32_t max_groups[3];     /* groups of a launch, per dimension */
    /* items of a wave (subgroup) that multiplies fragments (kernels/fragments.k); 0: none does */
    int fragments_f16, fragments_bf16;
    uint32_t max_points;        /* points that one kernel can index; 0: 2^32 - 1 */
    int processors;         /* processors of the GPU; each runs at least 256 items; 0: not known */
    int tile;                   /* which of the tiles that suit a product (wb__gpu_work.tiles) its
                                   kernel has; 0: the best by estimate */
} wb__gpu_target;

/* How a number of the plan (wb__number) is stored in an argument struct, at every launch.  F64, I64
 * and U64 have two words, the lower first.  F32, I32 and I64 are converted from a double; ODD is an
 * f32 of which f16 and bf16 are made (wb__f64_to_odd). */
typedef enum {
    WB__GPU_NUMBER_F32, WB__GPU_NUMBER_ODD, WB__GPU_NUMBER_F64, WB__GPU_NUMBER_I32,
    WB__GPU_NUMBER_I64, WB__GPU_NUMBER_U64
} wb__gpu_number_type;
typedef struct {
    int number;                 /* index of the number in the plan */
    uint32_t at;                /* offset in the struct, in bytes */
    wb__gpu_number_type type;
} wb__gpu_number;
static inline bool wb__gpu_two_words(wb__gpu_number_type p)
{
    return p == WB__GPU_NUMBER_F64 || p == WB__GPU_NUMBER_I64 || p == WB__GPU_NUMBER_U64;
}

/* The place, in an argument struct, of the offset of a view in its buffer.  The offset is in
 * elements and has two words, the lower first.  wb__gpu_fill_args adds the buffer's entry of
 * `offsets`, if `offsets` is not NULL. */
typedef struct {
    int buffer;                 /* index of the buffer in the plan */
    uint32_t at, size;          /* byte offset of the place in the struct; bytes of an element */
} wb__gpu_origin;

enum { WB__GPU_WORKSPACE = -1 };

/* A kernel and its launch.  The kernel's arguments are n_buffers buffers and, last, the argument
 * struct, whose fields have 4 bytes each. */
typedef struct {
    char *text;                 /* in the dialect, without the prelude */
    const char *entry;          /* name of the kernel in the text */
    bool f64;                   /* the kernel uses double: WB_F64 is defined before the prelude */
    int n_buffers;
    int *buffer;  /* per buffer argument: its index in the plan, or WB__GPU_WORKSPACE */
    size_t args_bytes;
    unsigned char *args;        /* the struct, before wb__gpu_fill_args sets numbers and offsets */
    /* byte offset, in the struct, of the two words that hold the workspace's offset; -1: none */
    int workspace_at;
    int n_numbers;
    wb__gpu_number *numbers;
    /* origins of the views whose `granule` is not 0 (wb__view) */
    int n_origins;
    wb__gpu_origin *origins;
    uint32_t groups[3], items[3];   /* number of groups, and items per group; all at least 1 */
    size_t local;               /* bytes of local memory beside the arrays of the text */
    /* the argument struct's type name in the text; NULL: this kernel is not fused */
    const char *args_type;
    /* index of a fused step's segment; launches of different segments are independent */
    int segment;
} wb__gpu_launch;

/* The launches of a step, in order; a launch may read the results of earlier ones. */
typedef struct {
    int n;                      /* number of launches */
    wb__gpu_launch *launch;
    size_t workspace;           /* bytes of workspace, aligned to 64 bytes */
    int64_t reloaded;           /* bytes that loops load again (wb__kernel) */
    const char *impl;           /* for the printed plan; a constant */
    int tiles;                  /* number of tiles that suit, if the step is a product */
} wb__gpu_work;

/* Creates the launches of a step; the caller frees *work with wb__gpu_work_free.  Returns 0, or an
 * error code.  WB_ERROR_UNSUPPORTED: no kernel has this dtype, the target lacks f64, or the step
 * exceeds a limit of the target. */
int wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
void wb__gpu_work_free(wb__gpu_work *work);         /* accepts NULL */

/* Whether to execute an optional step (`supports` of wb__backend) by one of our kernels.  If not,
 * the engine composes it from other steps. */
bool wb__gpu_supports(const wb__gpu_target *t, const wb__step *step);

/* Writes the argument struct of a launch, args_bytes bytes, to `out`.  `offsets`: the byte offset
 * of each buffer of the plan in its memory; NULL: the buffer addresses include these offsets. */
void wb__gpu_fill_args(const wb__gpu_launch *l, const wb__number *numbers, const size_t *offsets,
                       size_t workspace_at, void *out);

extern const char wb__gpu_prelude[];

/* ---- between the files of this folder -------------------------------------------------------- */

/* A dtype in the dialect: its name in the prelude, its type in memory and in a register. */
typedef struct { const char *name, *stored, *kind; } wb__gpu_type;
extern const wb__gpu_type wb__gpu_types[WB_DTYPE_COUNT];

int wb__gpu_fused(const wb__gpu_target *t, const wb__fused *fused, wb__gpu_work *work);
bool wb__fuse_takes_product(const wb__gpu_target *t, const wb__step *step);
int wb__gpu_library(const wb__gpu_target *t, const wb__step *step, wb__gpu_work *work);

/* Sets the error that the device has no f64, and returns its code.  what: the operation. */
int wb__gpu_no_f64(const char *what);

/* Adds a launch of one item to `work`, which takes ownership of `text`, also on failure.  The
 * launch's arrays are zeroed, and have space for n_buffers buffers, args_bytes bytes and n_numbers
 * numbers.  NULL: `text` is NULL, or memory is exhausted. */
wb__gpu_launch *wb__gpu_add_launch(wb__gpu_work *work, char *text, const char *entry, int n_buffers,
                                   size_t args_bytes, int n_numbers);
/* Adds the origin of a view to a list, if the view's granule is not 0.  `at`: the byte offset, in
 * the argument struct, of the view's offset.  false: out of memory. */
bool wb__gpu_add_origin(wb__gpu_origin **list, int *n, const wb__view *v, size_t at);

#endif
