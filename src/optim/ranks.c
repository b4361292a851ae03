/* In an update the ranks exchange gradients, and the parameters of a divided state.  Tensors are
 * concatenated to buckets; where possible (placement.c) kernels write them there.  The last
 * parameters of a model get their gradients first, so the first bucket has the gradients of the
 * last parameters, and travels while the gradients of the first ones are computed.
 *
 * A part of a bucket is [rows, n], and a bucket is the parts side by side.  With a whole state
 * there is one row, and an allreduce gives all ranks the mean of the bucket.  With a divided state
 * (wb_opt_state.parts) row r of a gradient is what rank r updates: a reduce_scatter gives each rank
 * the mean of its row.  The new values of its row then travel in buckets of one row, and an
 * allgather gives all ranks all rows. */
#include "backend/collective.h"
#include "optim/optim.h"

#include <math.h>

/* Tensors that the ranks exchange as one. */
typedef struct {
    wb_tensor **part;                   /* [n] */
    wb_tensor ***from;                  /* *from[i]: the tensor of part[i], then its result */
    const wb__slot **slot;              /* the slot of each part; NULL: the part is the loss */
    int n;
    int64_t bytes, limit;               /* bytes of the parts; when bytes exceed `limit`, the parts
                                           are exchanged */
    wb_tensor *scale;                   /* 1 / number of summed gradients: one tensor, so that the
                                           updates of all parameters can be one kernel */
    const wb_opt_state *state;
    bool gathers;                       /* ranks exchange new values of parameters, not gradients */
    wb_tensor *before;                  /* the last collective before this bucket's, or NULL */
    wb_tensor *first;                   /* the result of the first exchange */
} bucket;

/* Sets *b to an empty bucket with memory for all slots and the loss.  False: out of memory. */
static bool bucket_init(bucket *b, const wb_opt_state *s, bool gathers, wb_tensor *before)
{
    const size_t n = (size_t)s->n + 1;
    *b = (bucket){.part = wb__alloc(n * sizeof *b->part), .from = wb__alloc(n * sizeof *b->from),
                  .slot = wb__alloc(n * sizeof *b->slot), .limit = s->rule->bucket, .state = s,
                  .gathers = gathers, .before = before};
    return b->part && b->from && b->slot;
}

static void bucket_free(bucket *b)
{
    wb__free(b->part);
    wb__free(b->from);
    wb__free((void *)b->slot);
}

/* ---- a divided state ------------------------------------------------------------------------- */

static int64_t bucket_size_of(const wb__slot *slot)
{
    int64_t n = 1;
    for (int i = 0; i < slot->ndim; i++) n *= slot->dims[i];
    return n;
}

int64_t wb__part_length(const wb_opt_state *s, const wb__slot *slot)
{
    return (bucket_size_of(slot) + s->parts - 1) / s->parts;
}

int wb__ranks_check(const char *what, const wb_opt_state *s)
{
    const wb__communicator *c = wb__world();
    const int ranks = c ? c->size : 1;
    if (!s->rule->shard || (s->parts == ranks && s->part == (c ? c->rank : 0))) return 0;
    return wb__fail(WB_ERROR_ARGUMENT, "%s: wb_setup divided the state over %d rank%s, and now"
                    " there are %d: call wb_setup after wb_distributed_initialize", what, s->parts,
                    s->parts > 1 ? "s" : "", ranks);
}

/* Appends zeros to x [n], so that it has `length` elements. */
static wb_tensor *bucket_pad_with_zeros(wb_tensor *x, int64_t length)
{
    return x && x->size < length ? wb_pad(x, 0, 0, length - x->size) : x;
}

wb_tensor *wb__own_part(const wb_opt_state *s, const wb__slot *slot, wb_tensor *x)
{
    const int64_t n = x->size, length = wb__part_length(s, slot);
    const int64_t first = WB__MIN(s->part * length, n), end = WB__MIN(first + length, n);
    if (s->parts == 1) return x;
    wb_tensor *flat = wb_reshape_array(x, 1, &n);
    return flat ? bucket_pad_with_zeros(wb_slice(flat, 0, first, end), length) : NULL;
}

/* Returns x [parts, length], the parts of all ranks, in the shape of the parameter. */
static wb_tensor *bucket_whole(const wb__slot *slot, wb_tensor *x)
{
    const int64_t n = bucket_size_of(slot);
    wb_tensor *flat = wb_reshape_array(x, 1, &x->size);
    if (flat && n < x->size) flat = wb_slice(flat, 0, 0, n);
    return flat ? wb_reshape_array(flat, slot->ndim, slot->dims) : NULL;
}

/* Returns a gradient as a part of a bucket: row r is the part that rank r updates. */
static wb_tensor *bucket_rows_of_gradient(const wb_opt_state *s, const wb__slot *slot, wb_tensor *g)
{
    const int64_t length = wb__part_length(s, slot), dims[] = {s->parts, length};
    wb_tensor *flat = wb_reshape_array(g, 1, &g->size);
    flat = bucket_pad_with_zeros(flat, s->parts * length);
    return flat ? wb_reshape_array(flat, 2, dims) : NULL;
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* Returns a tensor as a part of the bucket.  The loss is in all rows. */
static wb_tensor *bucket_as_part(const bucket *b, const wb__slot *slot, wb_tensor *x)
{
    if (!b->gathers && slot) return bucket_rows_of_gradient(b->state, slot, x);
    wb_tensor *row = wb_reshape_array(x, 2, (int64_t[]){1, x->size});
    if (!row || slot) return row;
    return wb_expand_array(row, 2, (int64_t[]){b->state->parts, 1});
}

/* Returns the result for x from y, the columns of the bucket's result that belong to x. */
static wb_tensor *bucket_as_result(const bucket *b, const wb__slot *slot, const wb_tensor *x,
                                   wb_tensor *y)
{
    if (!y || !slot) return y ? wb_reshape_array(y, x->ndim, x->dims) : NULL;
    if (b->gathers) return bucket_whole(slot, y);
    return b->state->parts > 1 ? wb_reshape_array(y, 1, &y->size)
                               : wb_reshape_array(y, slot->ndim, slot->dims);
}

/* Exchanges the tensors of the bucket, and empties the bucket.  False with the error set. */
static bool bucket_exchange(bucket *b)
{
    const wb__communicator *c = wb__world();
    const int kind = b->gathers            ? WB__COLLECT_ALLGATHER
                   : b->state->parts > 1 ? WB__COLLECT_REDUCE_SCATTER
                                         : WB__COLLECT_ALLREDUCE;
    if (!b->n) return true;
    wb_tensor *all = b->n > 1 ? wb_concat_array(1, b->n, b->part) : b->part[0];
    wb_tensor *y = all ? wb__collect(c, kind, WB__RANKS_SUM, all, b->before) : NULL;
    if (!y) return false;
    b->before = y;
    if (!b->first) b->first = y;
    int64_t at = 0;
    for (int i = 0; i < b->n; i++) {
        const int64_t length = b->part[i]->dims[1];
        wb_tensor *own = b->n > 1 ? wb_slice(y, 1, at, at + length) : y;
        at += length;
        own = bucket_as_result(b, b->slot[i], *b->from[i], own);
        if (own && b->scale) own = wb_mul(own, b->scale);
        if (!(*b->from[i] = own)) return false;
    }
    b->n = 0;
    b->bytes = 0;
    return true;
}

/* Adds *x to the bucket, after exchanging the bucket's tensors if it is full or of another
 * dtype. */
static bool bucket_add(bucket *b, const wb__slot *slot, wb_tensor **x)
{
    wb_tensor *part = bucket_as_part(b, slot, *x);
    if (!part) return false;
    const int64_t bytes = part->size * (int64_t)wb__dtype_size((wb_dtype)part->dtype) *
                          (b->gathers ? b->state->parts : 1);
    const bool full = b->bytes + bytes > b->limit && slot;      /* the loss is in the last bucket */
    if (b->n && (full || b->part[0]->dtype != part->dtype) && !bucket_exchange(b)) return false;
    b->part[b->n] = part;
    b->from[b->n] = x;
    b->slot[b->n++] = slot;
    b->bytes += bytes;
    return true;
}

/* Returns a hash, not 0, of the description of the tensors that the ranks exchange in an update.
 * It is below 2^48, so that its sum over the ranks does not overflow. */
static int64_t hash_of_exchange(const wb_opt_state *s, wb_tensor **const *g, const wb_tensor *loss)
{
    const uint64_t word[] = {(uint64_t)wb__world()->size, (uint64_t)s->rule->bucket,
                             (uint64_t)s->rule->accumulate, (uint64_t)s->parts, loss != NULL};
    uint64_t h = 1;
    for (size_t i = 0; i < WB__COUNT(word); i++) h = wb__mix(h, word[i]);
    for (int i = 0; i < s->n; i++) h = wb__mix(h, *g[i] ? (uint64_t)(*g[i])->size + 1 : 0);
    return (int64_t)(h >> 16 | 1);
}

/* Evaluates the pending updates, which other ranks may have evaluated already, together with the n
 * gradients, which may depend on values that these updates replace. */
static int bucket_end_updates(int n, wb_tensor **g, wb_tensor **before)
{
    const wb__thread *t = wb__this_thread();
    if (t->recording || !t->exchanged) return 0;
    *before = NULL;
    return wb__evaluate_keeping(n, g);
}

static int bucket_run_collective(const wb__collective *c)
{
    return wb__collective_end(wb__collective_begin(c));
}

/* Whether the number at x, of this dtype, is a mark: a number that only meet_others sends. */
static bool is_mark(const void *x, wb_dtype dtype, double mark)
{
    return dtype == WB_F64 ? *(const double *)x == mark : *(const float *)x == (float)mark;
}

/* Starts the first operation of the previous update once more, since another rank for which nothing
 * has changed starts it now.  Sets *all to whether all ranks have called this function instead:
 * then the first element is a sum of marks (see is_mark).  Else the other rank gets NaN, and does
 * not update its parameters.  Returns 0 or an error code. */
static int bucket_meet_ranks(const wb_opt_state *s, bool *all)
{
    const wb__communicator *c = wb__world();
    const double mark = 0x1p60;
    const size_t each = wb__dtype_size(s->first.dtype), n = (size_t)s->first.n;
    const size_t rows = s->first.kind == WB__COLLECT_REDUCE_SCATTER ? (size_t)c->size : 1;
    char *x = wb__alloc(rows * n * each + 1), *y = wb__alloc(n * each + 1);
    int status = x && y ? 0 : WB_ERROR_MEMORY;
    for (size_t i = 0; i < rows * n && !status; i++)
        wb__convert(x + i * each, s->first.dtype, &(double){i % n ? NAN : mark}, WB_F64, 1);
    if (!status)
        status = bucket_run_collective(&(wb__collective){
            .communicator = c, .kind = (wb__collective_kind)s->first.kind, .op = WB__RANKS_SUM,
            .dtype = s->first.dtype, .n = s->first.n, .from = x, .to = y});
    if (!status) *all = is_mark(y, s->first.dtype, c->size * mark);
    wb__free(x);
    wb__free(y);
    return status;
}

/* Compares with the other ranks what they exchange, if this rank exchanges other tensors than in
 * the previous update.  Returns 0 or an error code. */
static int bucket_compare_ranks(wb_opt_state *s, wb_tensor **const *g, wb_tensor *loss,
                                wb_tensor **before)
{
    const wb__communicator *c = wb__world();
    const int64_t mine = hash_of_exchange(s, g, loss);
    int64_t sum = 0;
    int n = 0;
    bool same = true;
    if (mine == s->agreed) return 0;
    wb_tensor **all = wb__alloc(((size_t)s->n + 1) * sizeof *all);
    if (!all) return WB_ERROR_MEMORY;
    for (int i = 0; i < s->n; i++)
        if (*g[i]) all[n++] = *g[i];
    if (loss) all[n] = loss;
    int status = bucket_end_updates(n + (loss != NULL), all, before);
    wb__free(all);
    if (!status && s->agreed && s->first.n) status = bucket_meet_ranks(s, &same);
    if (!status && same)
        status = bucket_run_collective(&(wb__collective){
            .communicator = c, .kind = WB__COLLECT_ALLREDUCE, .op = WB__RANKS_SUM, .dtype = WB_I64,
            .n = 1, .from = &mine, .to = &sum});
    wb__collective_report("update");
    if (status) return status;
    same = same && sum == c->size * mine;
    s->agreed = same ? mine : 0;
    if (same) return 0;
    return wb__fail(WB_ERROR_ARGUMENT, "update: rank %d of %d has gradients of %d parameters, and"
                    " another rank those of other parameters, or other options of"
                    " wb_DistributedOptimizer: freeze the same parameters on all ranks, and give"
                    " all the same options", c->rank, c->size, n);
}

int wb__ranks_mean(wb_opt_state *s, int64_t batches, wb_tensor **const *g, wb_tensor **loss,
                   wb_tensor **before)
{
    bucket b;
    const int differ = bucket_compare_ranks(s, g, *loss, before);
    if (differ) return differ;
    bool good = bucket_init(&b, s, false, *before);
    b.scale = wb_scalar(1 / ((double)wb__world()->size * (double)batches));
    good = good && b.scale;
    for (int i = s->n - 1; i >= 0 && good; i--)
        if (*g[i]) good = bucket_add(&b, &s->slots[i], g[i]);
    if (good && *loss) {
        *loss = wb__as(*loss, b.n ? (wb_dtype)b.part[0]->dtype
                                  : wb__moment_dtype((wb_dtype)(*loss)->dtype));
        good = *loss && bucket_add(&b, NULL, loss);
    }
    good = good && bucket_exchange(&b);
    if (good && b.first) {
        s->first.kind = s->parts > 1 ? WB__COLLECT_REDUCE_SCATTER : WB__COLLECT_ALLREDUCE;
        s->first.dtype = (wb_dtype)b.first->dtype;
        s->first.n = b.first->size;
    }
    *before = b.before;
    bucket_free(&b);
    return good ? 0 : wb__error_or(WB_ERROR_MEMORY);
}

int wb__ranks_gather(const wb_opt_state *s, wb_tensor **const *x, wb_tensor **before)
{
    bucket b;
    bool good = bucket_init(&b, s, true, *before);
    for (int i = s->n - 1; i >= 0 && good; i--)
        if (*x[i]) good = bucket_add(&b, &s->slots[i], x[i]);
    good = good && bucket_exchange(&b);
    *before = b.before;
    bucket_free(&b);
    return good ? 0 : wb__error_or(WB_ERROR_MEMORY);
}

wb_tensor *wb__ranks_sum(wb_tensor *x, wb_tensor **before)
{
    wb_tensor *sum = wb__collect(wb__world(), WB__COLLECT_ALLREDUCE, WB__RANKS_SUM, x, *before);
    if (sum) *before = sum;
    return sum;
}

int wb__ranks_begin(wb_opt_state *s, wb_tensor **before)
{
    const wb__thread *t = wb__this_thread();
    if (t->recording || !t->exchanged || !s->rule->bucket || !wb__world()) return 0;
    if (t->exchanged->device != wb__opt_device(s)) return wb__evaluate_keeping(0, NULL);
    *before = t->exchanged;
    return 0;
}

void wb__ranks_pending(wb_tensor *last)
{
    wb__thread *t = wb__this_thread();
    if (t->recording || !last || !t->n_pending) return;         /* else it is evaluated */
    wb__ref(last);
    wb__unref(t->exchanged);
    t->exchanged = last;
}
