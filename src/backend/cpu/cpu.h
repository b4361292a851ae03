/* Shared declarations of the CPU backend. */
#ifndef WB__CPU_H
#define WB__CPU_H

#include "backend/backend.h"
#include "backend/cpu/lib.h"

/* The base of every CPU kernel. */
typedef struct wb__cpu_kernel wb__cpu_kernel;
struct wb__cpu_kernel {
    wb__kernel base;
    int (*launch)(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                  const wb__number *numbers);
    int (*finish)(const wb__cpu_kernel *kernel);    /* as in wb__backend; NULL: nothing to do */
    void (*destroy)(wb__cpu_kernel *kernel);
};
/* The `destroy` of kernels that are one block of memory. */
static inline void wb__cpu_kernel_free(wb__cpu_kernel *kernel) { wb__free(kernel); }

int wb__cpu_fused(const wb__fused *fused, wb__cpu_kernel **kernel);             /* task.c */
/* A function that creates a kernel for a step of another kind; ops.def names one for each kind. */
typedef int wb__cpu_preparer(const wb__step *step, wb__cpu_kernel **kernel);
#define WB_STEP(NAME, name, cpu, gpu) wb__cpu_preparer wb__cpu_##cpu;
#include "ops/ops.def"

/* The function `supports` of wb__backend (cpu_attention.c). */
bool wb__cpu_supports(const wb_device *device, const wb__step *step);
/* Whether the CPU computes a LINEAR_INT8 (cpu_linear_int8.c). */
bool wb__cpu_supports_int8(const wb__step *step);
/* The function `packed_bytes` of wb__backend (cpu_library.c). */
int64_t wb__cpu_packed_bytes(const wb_device *device, const wb__step *step);
/* The function `prepare_form` of wb__backend (cpu_library.c). */
int wb__cpu_prepare_form(const wb_device *device, const wb__kernel *kernel, const void *leaf,
                         void *form);

/* Returns the address of a view's first element. */
static inline void *wb__cpu_at(const wb__view *v, void *const *buffers)
{
    return (char *)buffers[v->buffer] + v->offset * (int64_t)wb__dtype_size(v->dtype);
}

#endif
