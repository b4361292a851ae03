/* A COLLECTIVE through the host's memory: the launch downloads the operand and begins the
 * operation, the finish uploads the result. */
#include "backend/collective.h"
#include "backend/gpu/runtime/runtime.h"

typedef struct wb__gpu_collective {
    pthread_mutex_t lock;               /* held from a launch to its finish */
    wb__view x, y;
    size_t from_bytes, to_bytes;
    void *from_memory, *to_memory;      /* the same in an ALLREDUCE */
    wb__collective operation;
    uint64_t begun;                     /* number of the operation */
    void *to;                           /* the result's memory, and its offset in bytes */
    size_t at;
} wb__gpu_collective;

static size_t offset_of(const wb__view *v, const size_t *offsets)
{
    return (offsets ? offsets[v->buffer] : 0) + (size_t)v->offset * wb__dtype_size(v->dtype);
}

int wb__gpu_collective_prepare(const wb__step *s, wb__gpu_collective **made)
{
    wb__gpu_collective *a = wb__alloc_zero(1, sizeof *a);
    if (!a) return WB_ERROR_MEMORY;
    a->x = s->views[0];
    a->y = s->views[1];
    a->operation = wb__collective_of(s, &a->from_bytes, &a->to_bytes);
    a->from_memory = wb__alloc_aligned(a->from_bytes + 1);
    a->to_memory = s->collective == WB__COLLECT_ALLREDUCE ? a->from_memory
                                                          : wb__alloc_aligned(a->to_bytes + 1);
    a->operation.from = a->from_memory;
    a->operation.to = a->to_memory;
    pthread_mutex_init(&a->lock, NULL);
    *made = a;
    if (a->from_memory && a->to_memory) return 0;
    wb__gpu_collective_destroy(a);
    *made = NULL;
    return WB_ERROR_MEMORY;
}

void wb__gpu_collective_destroy(wb__gpu_collective *a)
{
    if (!a) return;
    pthread_mutex_destroy(&a->lock);
    if (a->to_memory != a->from_memory) wb__free(a->to_memory);
    wb__free(a->from_memory);
    wb__free(a);
}

int wb__gpu_collective_launch(const wb_device *base, wb__gpu_collective *a, void *const *buffers,
                             const size_t *offsets)
{
    pthread_mutex_lock(&a->lock);
    const int status = wb__gpu_download(base, a->from_memory, buffers[a->x.buffer],
                                        offset_of(&a->x, offsets), a->from_bytes);
    if (status) {
        pthread_mutex_unlock(&a->lock);
        return status;
    }
    a->to = buffers[a->y.buffer];
    a->at = offset_of(&a->y, offsets);
    a->begun = wb__collective_begin(&a->operation);
    return 0;
}

int wb__gpu_collective_finish(const wb_device *base, wb__gpu_collective *a)
{
    int status = wb__collective_end(a->begun);
    if (!status) status = wb__gpu_upload(base, a->to, a->at, a->to_memory, a->to_bytes);
    pthread_mutex_unlock(&a->lock);
    return status;
}
