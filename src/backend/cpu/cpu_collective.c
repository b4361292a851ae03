/* A collective operation as a step: the launch begins it, and wb__cpu_finish waits for it. */
#include "backend/collective.h"
#include "backend/cpu/cpu.h"

typedef struct {
    wb__cpu_kernel head;
    wb__view x, y;
    wb__collective operation;
    _Atomic uint64_t begun;             /* number of the operation that was begun last */
} collective_kernel;

static int cpu_collective_launch(const wb__cpu_kernel *kernel, void *const *buffers,
                                 void *workspace, const wb__number *numbers)
{
    collective_kernel *k = (collective_kernel *)(uintptr_t)kernel;
    wb__collective c = k->operation;
    (void)workspace, (void)numbers;
    c.from = wb__cpu_at(&k->x, buffers);
    c.to = wb__cpu_at(&k->y, buffers);
    k->begun = wb__collective_begin(&c);
    return 0;
}

/* Waits for the operation that was begun last, and returns its status. */
static int cpu_collective_finish(const wb__cpu_kernel *kernel)
{
    return wb__collective_end(((const collective_kernel *)kernel)->begun);
}

int wb__cpu_collective(const wb__step *s, wb__cpu_kernel **kernel)
{
    collective_kernel *k = wb__alloc_zero(1, sizeof *k);
    size_t from, to;
    if (!k) return WB_ERROR_MEMORY;
    k->x = s->views[0];
    k->y = s->views[1];
    k->operation = wb__collective_of(s, &from, &to);
    k->head.launch = cpu_collective_launch;
    k->head.finish = cpu_collective_finish;
    k->head.destroy = wb__cpu_kernel_free;
    k->head.base.unfinished = true;
    k->head.base.impl = s->communicator->name;
    *kernel = &k->head;
    return 0;
}
