/* Declarations shared by library.c and the files beside it, which fill in launches of written
 * kernels. */
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

/* Offsets are computed in 32 bits if all elements of each view are less than this many elements
 * apart. */
enum { WB__GPU_NARROW = 1 << 30 };

/* Whether the offsets of the views' elements, or the numbers up to `count`, need 64 bits. */
bool wb__gpu_wide(const wb__view *views, int n, int64_t count);

/* The source text of a launch's program: definitions for `dtype`, `defines`, the types, the
 * argument structs, then two texts of kernels/, `family` and `rest`.  dtype -1: elements are only
 * copied.  The caller frees it; NULL: out of memory. */
char *wb__gpu_text(int dtype, bool wide, const char *defines, const char *family, const char *rest);

/* Fills the arguments for two views of one shape.  With first 0, the items are all elements; with
 * first 1, the rows along the first dimension.  *total receives the number of items.  Returns the
 * number of dimensions from `first` on, after merging those that both views allow; it is rounded
 * up, so that few texts are compiled.  0: the elements of both views are contiguous. */
int wb__gpu_pair(const wb__view *x, const wb__view *y, int first, int64_t *total,
                 wb__pair_args *args);

/* A launch of a written kernel: at least `total` items, in groups of `items`.  The caller of
 * wb__gpu_launch_of gives `text` away, also on failure. */
enum { WB__GPU_MAX_ORIGINS = 9 };
typedef struct {
    const char *entry;
    int n_buffers, buffers[8];
    const void *args;
    size_t args_bytes;
    int workspace_at;                       /* as in wb__gpu_launch */
    struct {
        const wb__view *view;               /* NULL ends the list */
        size_t at;                          /* offset in the struct of the view's offset */
    } origins[WB__GPU_MAX_ORIGINS + 1];
    bool f64;
    int64_t total, items;
} wb__gpu_plan;
int wb__gpu_launch_of(wb__gpu_work *work, char *text, const wb__gpu_plan *p);

/* The functions that ops.def names for steps, each with the text of kernels/ of the same name. */
typedef int wb__gpu_step_function(const wb__gpu_target *t, const wb__step *step,
                                  wb__gpu_work *work);
#define WB_STEP(NAME, name, cpu, gpu) \
    wb__gpu_step_function wb__gpu_step_##gpu; \
    extern const char wb__gpu_text_##gpu[];
#include "ops/ops.def"
extern const char wb__gpu_text_args[], wb__gpu_text_types[], wb__gpu_text_matmul[],
    wb__gpu_text_conv[];

#endif
