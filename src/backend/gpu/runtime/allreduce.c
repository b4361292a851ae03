/* ALLREDUCE through the host's memory: the launch downloads the operand and begins the operation,
 * the finish uploads the result. */
#include "backend/collective.h"
#include "backend/gpu/runtime/runtime.h"

typedef struct wb__gpu_allreduce {
    pthread_mutex_t lock;               /* held from a launch to its finish */
    wb__view x, y;
    size_t bytes;
    wb__collective operation;
    uint64_t begun;                     /* number of the operation */
    void *to;                           /* the result's memory, and its offset in bytes */
    size_t at;
} wb__gpu_allreduce;

static size_t offset_of(const wb__view *v, const size_t *offsets)
{
    return (offsets ? offsets[v->buffer] : 0) + (size_t)v->offset * wb__dtype_size(v->dtype);
}

int wb__gpu_allreduce_prepare(const wb__step *s, wb__gpu_allreduce **made)
{
    wb__gpu_allreduce *a = wb__alloc_zero(1, sizeof *a);
    if (!a) return WB_ERROR_MEMORY;
    int64_t n = 1;
    for (int i = 0; i < s->views[0].ndim; i++) n *= s->views[0].dims[i];
    a->x = s->views[0];
    a->y = s->views[1];
    a->bytes = (size_t)n * wb__dtype_size(a->x.dtype);
    void *memory = wb__alloc_aligned(a->bytes + 1);
    a->operation = (wb__collective){.communicator = s->communicator, .kind = WB__COLLECT_ALLREDUCE,
                                    .op = (wb__ranks_op)s->variant, .dtype = a->x.dtype, .n = n,
                                    .from = memory, .to = memory};
    pthread_mutex_init(&a->lock, NULL);
    *made = a;
    if (memory) return 0;
    wb__gpu_allreduce_destroy(a);
    *made = NULL;
    return WB_ERROR_MEMORY;
}

void wb__gpu_allreduce_destroy(wb__gpu_allreduce *a)
{
    if (!a) return;
    pthread_mutex_destroy(&a->lock);
    wb__free(a->operation.to);
    wb__free(a);
}

int wb__gpu_allreduce_launch(const wb_device *base, wb__gpu_allreduce *a, void *const *buffers,
                             const size_t *offsets)
{
    pthread_mutex_lock(&a->lock);
    const int status = wb__gpu_download(base, a->operation.to, buffers[a->x.buffer],
                                        offset_of(&a->x, offsets), a->bytes);
    if (status) {
        pthread_mutex_unlock(&a->lock);
        return status;
    }
    a->to = buffers[a->y.buffer];
    a->at = offset_of(&a->y, offsets);
    a->begun = wb__collective_begin(&a->operation);
    return 0;
}

int wb__gpu_allreduce_finish(const wb_device *base, wb__gpu_allreduce *a)
{
    int status = wb__collective_end(a->begun);
    if (!status) status = wb__gpu_upload(base, a->to, a->at, a->operation.to, a->bytes);
    pthread_mutex_unlock(&a->lock);
    return status;
}
