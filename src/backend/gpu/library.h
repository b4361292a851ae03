/* Declarations for library.c and library_*.c, which fill in launches of written kernels. */
#ifndef WB__GPU_LIBRARY_H
#define WB__GPU_LIBRARY_H

#include "backend/gpu/gpu.h"

#define uint uint32_t
#include "backend/gpu/kernels/args.k"
#undef uint

static inline wb__wide wb__wide_of(int64_t v)
{
    return (wb__wide){(uint32_t)v, (uint32_t)((uint64_t)v >> 32)};
}

/* Kernels compute offsets, in elements, in 32 bits if they are less than this, else in 64 bits. */
enum { WB__GPU_NARROW = 1 << 30 };

/* Whether kernels need 64 bits for offsets in the views, or for indices up to `count`. */
bool wb__gpu_needs_wide(const wb__view *views, int n, int64_t count);

/* Returns the source text of a program: definitions for `dtype`, `defines`, types, argument
 * structs, `family` and `rest`.  family and rest: texts of kernels/, or "".  dtype -1: the kernels
 * only copy elements.  wide: offsets need 64 bits.  The caller frees the text; NULL: out of
 * memory. */
char *wb__gpu_source(int dtype, bool wide, const char *defines, const char *family,
                     const char *rest);

/* Fills the arguments for two views of one shape.  first 0: an item processes an element; 1: a row
 * along the first dimension.  *total receives the number of elements or rows.  Returns the number
 * of dimensions from `first` on after merging, rounded up to limit the number of texts; 0: these
 * dimensions are contiguous in both views. */
int wb__gpu_fill_pair(const wb__view *x, const wb__view *y, int first, int64_t *total,
                      wb__pair_args *args);

/* A launch of a kernel of kernels/: at least `total` items (threads), in groups of `items`.
 * wb__gpu_launch_of adds it to `work`, and takes ownership of `text`, also on failure. */
enum { WB__GPU_MAX_ORIGINS = 9 };
typedef struct {
    const char *entry;
    int n_buffers, buffers[8];              /* plan's index of each buffer argument */
    const void *args;                       /* the argument struct */
    size_t args_bytes;
    int workspace_at;                       /* as in wb__gpu_launch */
    struct {
        const wb__view *view;               /* NULL ends the list */
        size_t at;                          /* offset in the struct of the view's offset */
    } origins[WB__GPU_MAX_ORIGINS + 1];
    bool f64;
    int64_t total, items;                   /* items in all; items of a group */
} wb__gpu_plan;
int wb__gpu_launch_of(wb__gpu_work *work, char *text, const wb__gpu_plan *p);

/* These tables have, for each name in the column `gpu` of ops.def, the function that adds a step's
 * launches, and the text of kernels/<name>.k. */
typedef int wb__gpu_step_function(const wb__gpu_target *t, const wb__step *step,
                                  wb__gpu_work *work);
#define WB_STEP(NAME, name, cpu, gpu) \
    wb__gpu_step_function wb__gpu_step_##gpu; \
    extern const char wb__gpu_text_##gpu[];
#include "ops/ops.def"
extern const char wb__gpu_text_args[], wb__gpu_text_types[], wb__gpu_text_matmul[],
    wb__gpu_text_conv[], wb__gpu_text_tile[], wb__gpu_text_fragments[],
    wb__gpu_text_attention_fragments[];

#endif
