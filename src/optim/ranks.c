/* Means of gradients over the ranks.  The gradients are copied into buckets, one tensor each.  The
 * last parameters of a model get their gradients first, so the first bucket holds the gradients of
 * the last parameters, and travels while those of the first are computed. */
#include "backend/collective.h"
#include "optim/optim.h"

typedef struct {
    wb_tensor **part;                   /* the gradients of the bucket, in one dimension */
    wb_tensor ***from;                  /* where each of them was, and gets its mean */
    int n;
    int64_t bytes;
    wb_tensor *before;                  /* the allreduce of the bucket before, or NULL */
    wb_tensor *scale;                   /* 1 / number of gradients in a sum: one number, so that
                                           the updates of all parameters are one kernel */
} bucket;

/* Reduces the bucket, and empties it.  False, with the error set, on failure. */
static bool reduce(bucket *b)
{
    const wb__communicator *c = wb__world();
    if (!b->n) return true;
    wb_tensor *all = b->n > 1 ? wb_concat_array(b->n, b->part, 0) : b->part[0];
    b->before = all ? wb__allreduce(c, WB__RANKS_SUM, all, b->before) : NULL;
    int64_t at = 0;
    for (int i = 0; i < b->n && b->before; i++) {
        const wb_tensor *g = *b->from[i];
        const int64_t size = b->part[i]->size;
        wb_tensor *part = b->n > 1 ? wb_slice(b->before, 0, at, at + size) : b->before;
        at += size;
        part = part ? wb_reshape_array(part, g->ndim, g->dims) : NULL;
        *b->from[i] = part ? wb_mul(part, b->scale) : NULL;
        if (!*b->from[i]) return false;
    }
    b->n = 0;
    b->bytes = 0;
    return b->before;
}

static bool add(bucket *b, wb_tensor **g, int64_t limit)
{
    const int64_t bytes = (*g)->size * (int64_t)wb__dtype_size((wb_dtype)(*g)->dtype);
    if (b->n && (b->bytes + bytes > limit || b->part[0]->dtype != (*g)->dtype) && !reduce(b))
        return false;
    const int64_t size = (*g)->size;
    b->part[b->n] = wb_reshape_array(*g, 1, &size);
    b->from[b->n] = g;
    b->bytes += bytes;
    return b->part[b->n++];
}

int wb__ranks_mean(int n, wb_tensor **const *g, wb_tensor **loss, int64_t limit, int64_t batches)
{
    const double sums = (double)wb__world()->size * (double)batches;
    bucket b = {.scale = wb_scalar(1 / sums),
                .part = wb__alloc(((size_t)n + 1) * sizeof *b.part),
                .from = wb__alloc(((size_t)n + 1) * sizeof *b.from)};
    bool good = b.part && b.from && b.scale;
    for (int i = n - 1; i >= 0 && good; i--)
        if (*g[i]) good = add(&b, g[i], limit);
    if (good && *loss) {
        if (b.n) *loss = wb__as(*loss, (wb_dtype)b.part[0]->dtype);
        good = *loss && add(&b, loss, INT64_MAX);
    }
    good = good && reduce(&b);
    wb__free(b.part);
    wb__free(b.from);
    return good ? 0 : wb__error_or(WB_ERROR_MEMORY);
}
