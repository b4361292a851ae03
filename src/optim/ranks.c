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
    int64_t batches;                    /* of each rank, in the sums of gradients */
} bucket;

/* Reduces the bucket, and empties it.  False, with the error set, on failure. */
static bool reduce(bucket *b)
{
    const wb__communicator *c = wb__world();
    const double scale = 1.0 / ((double)c->size * (double)b->batches);
    if (!b->n) return true;
    wb_tensor *all = b->n > 1 ? wb_concat_array(b->n, b->part, 0) : b->part[0];
    b->before = all ? wb__allreduce(c, WB__RANKS_SUM, all, b->before) : NULL;
    wb_tensor *mean = b->before ? wb_mul(b->before, wb_scalar(scale)) : NULL;
    int64_t at = 0;
    for (int i = 0; i < b->n && mean; i++) {
        const wb_tensor *g = *b->from[i];
        const int64_t size = b->part[i]->size;
        wb_tensor *part = b->n > 1 ? wb_slice(mean, 0, at, at + size) : mean;
        at += size;
        *b->from[i] = part ? wb_reshape_array(part, g->ndim, g->dims) : NULL;
        if (!*b->from[i]) return false;
    }
    b->n = 0;
    b->bytes = 0;
    return mean;
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
    bucket b = {.batches = batches,
                .part = wb__alloc(((size_t)n + 1) * sizeof *b.part),
                .from = wb__alloc(((size_t)n + 1) * sizeof *b.from)};
    bool good = b.part && b.from;
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
