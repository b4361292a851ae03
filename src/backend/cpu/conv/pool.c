/* Pooling.  The work is cut into units: images, or planes of NCHW.  One kernel call computes a
 * unit.
 *
 * f16 and bf16 are converted to f32 one unit at a time, in a task's own part of the workspace.  The
 * gradient of a maximum searches x for the maxima again, because their positions are not stored. */
#include "backend/cpu/isa.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    wb__cpu_op op;
    wb__pool_desc d;
    wb__pool_kernel *kernel;
    int64_t units, tasks, sizes[3];     /* sizes: elements of a unit of each operand */
    int operands;                       /* number of operands; the last one is written */
    bool narrow;  /* the stored dtype is f16 or bf16 */
    char impl[32];
} pooling;

typedef struct {
    const pooling *p;
    void *const *buffers;
    char *workspace;
} cpu_pool_job;

static void cpu_pool_one_task(void *ctx, int64_t task)
{
    const cpu_pool_job *j = ctx;
    const pooling *p = j->p;
    const size_t size = wb__dtype_size(p->d.dtype);
    const int last = p->operands - 1;
    const int64_t from = p->units * task / p->tasks, to = p->units * (task + 1) / p->tasks;
    for (int64_t u = from; u < to; u++) {
        void *at[3], *wide[3];
        float *space = (float *)(j->workspace + (p->narrow ? p->op.workspace / (size_t)p->tasks : 0)
                                                * (size_t)task);
        for (int i = 0; i < p->operands; i++) {
            wide[i] = at[i] = (char *)j->buffers[i] + (size_t)(u * p->sizes[i]) * size;
            if (!p->narrow) continue;
            wide[i] = space;
            space += p->sizes[i];
            if (i < last) wb__widen(wide[i], at[i], p->d.dtype, p->sizes[i]);
        }
        p->kernel(&p->d, (const void *const[]){ wide[0], wide[last == 2] }, wide[last]);
        if (p->narrow) wb__narrow(at[last], p->d.dtype, wide[last], p->sizes[last]);
    }
}

static void run_pooling(const wb__cpu_op *op, void *const *buffers, void *workspace)
{
    const pooling *p = (const pooling *)op;
    cpu_pool_job j = { p, buffers, workspace };
    if (p->tasks == 1) cpu_pool_one_task(&j, 0);
    else wb__parallel(p->tasks, cpu_pool_one_task, &j);
}

int wb__cpu_pool(const wb__pool_desc *d, wb__cpu_op **op)
{
    enum { SERIAL = 8 * 1024 };         /* with fewer elements, one thread is faster */
    if (!wb__dtype_float(d->dtype))
        return wb__fail(WB_ERROR_UNSUPPORTED, "pool: not for dtype %s", wb_dtype_name(d->dtype));
    pooling *p = wb__alloc_zero(1, sizeof *p);
    if (!p) return WB_ERROR_MEMORY;
    const wb__isa *isa = wb__isa_best();
    const int64_t channels = d->nhwc ? d->c : 1;
    const int64_t x = d->h * d->w * channels, y = d->oh * d->ow * channels;
    p->d = *d;
    p->kernel = d->dtype == WB_F64 ? isa->pool_f64 : isa->pool_f32;
    p->narrow = wb__is_half(d->dtype);
    p->units = d->nhwc ? d->n : d->n * d->c;
    switch (d->kind) {
    case WB__POOL_MAX_GRAD:
        p->operands = 3, p->sizes[0] = x, p->sizes[1] = y, p->sizes[2] = x;
        break;
    case WB__POOL_MAX_GATHER:
        p->operands = 3, p->sizes[0] = x, p->sizes[1] = x, p->sizes[2] = y;
        break;
    case WB__POOL_MEAN_GRAD: p->operands = 2, p->sizes[0] = y, p->sizes[1] = x; break;
    default: p->operands = 2, p->sizes[0] = x, p->sizes[1] = y;
    }
    if (!channels) p->units = 0;
    int64_t most = p->narrow ? wb__threads() : 4 * (int64_t)wb__threads();
    if (wb__threads() == 1 || p->units * WB__MAX(x, y) < SERIAL) most = 1;
    p->tasks = WB__MAX(WB__MIN(most, p->units), 1);
    if (p->narrow)
        p->op.workspace =
            (size_t)((p->sizes[0] + p->sizes[1] + p->sizes[2]) * p->tasks) * sizeof(float);
    p->op.run = run_pooling;
    p->op.destroy = wb__cpu_op_free;
    snprintf(p->impl, sizeof p->impl, "pool %s", isa->name);
    p->op.impl = p->impl;
    *op = &p->op;
    return 0;
}
