/* Collective operations on tensors.  Broadcasts and reductions to one rank are performed here, in
 * the host's memory unless the communicator takes that of the device; the others are operations of
 * the graph. */
#include "dist/dist.h"
#include "engine/evaluate.h"

#include <math.h>
#include <string.h>

static bool is_known_reduction(const char *what, wb_ranks_reduction how, int root)
{
    if (how < WB_RANKS_SUM || how > WB_RANKS_MAX)
        wb__fail(WB_ERROR_ARGUMENT, "%s: %d is not a wb_ranks_reduction", what, (int)how);
    else if (root < 0 || root >= wb_distributed_size())
        wb__fail(WB_ERROR_ARGUMENT, "%s: there is no rank %d of %d", what, root,
                 wb_distributed_size());
    else return true;
    return false;
}

/* Whether x can be reduced over the ranks in this way. */
static bool is_reducible(const char *what, const wb_tensor *x, wb_ranks_reduction how)
{
    if (x->dtype == WB_BOOL)
        wb__fail(WB_ERROR_DTYPE, "%s: %s: make integers of it with wb_astype", what,
                 wb_describe(x));
    else if (how == WB_RANKS_MEAN && !wb__dtype_float((wb_dtype)x->dtype))
        wb__fail(WB_ERROR_DTYPE, "%s: the mean of %s is no integer: make it floating with"
                 " wb_astype", what, wb_describe(x));
    else return true;
    return false;
}

static wb__ranks_op dist_tensor_op_of(wb_ranks_reduction how)
{
    return how == WB_RANKS_MIN ? WB__RANKS_MIN : how == WB_RANKS_MAX ? WB__RANKS_MAX
                                                                      : WB__RANKS_SUM;
}

/* Returns x in the dtype in which it is reduced: f32 for halves.  Extremes of u8 are those of i32:
 * some versions of the libraries that connect ranks compare unsigned numbers as if they had a
 * sign. */
static wb_tensor *widen_halves(wb_tensor *x, wb_ranks_reduction how)
{
    const bool half = wb__is_half(x->dtype);
    if (half) return wb_astype(x, WB_F32);
    return x->dtype == WB_U8 && how >= WB_RANKS_MIN ? wb_astype(x, WB_I32) : x;
}

/* Returns y, a reduction's result, with the dtype of x; a sum becomes a mean if `how` is that. */
static wb_tensor *narrow_result(wb_tensor *y, const wb_tensor *x, wb_ranks_reduction how)
{
    if (y && how == WB_RANKS_MEAN) y = wb_mul(y, wb_scalar(1.0 / wb_distributed_size()));
    return y ? wb__as(y, (wb_dtype)x->dtype) : NULL;
}

static bool may_drop_nan(const wb_tensor *x, wb_ranks_reduction how)
{
    return how >= WB_RANKS_MIN && wb__dtype_float((wb_dtype)x->dtype);
}

/* Returns a tensor of u8: 1 where x is NaN, else 0. */
static wb_tensor *where_nan(wb_tensor *x)
{
    wb_tensor *is = wb_ne(x, x);
    return is ? wb_astype(is, WB_U8) : NULL;
}

static wb_tensor *put_nan_back(wb_tensor *y, wb_tensor *nan)
{
    wb_tensor *is = y && nan ? wb_astype(nan, WB_BOOL) : NULL;
    return is ? wb_where(is, wb_scalar(NAN), y) : NULL;
}

int wb__end_pending_exchange(void)
{
    const wb__thread *t = wb__this_thread();
    return t->exchanged && !t->recording ? wb__evaluate_keeping(0, NULL) : 0;
}

/* Calls wb__end_pending_exchange, with x evaluated first if it depends on values that the writes
 * replace.  False: failed. */
static bool settle_for(wb_tensor *x)
{
    const wb__thread *t = wb__this_thread();
    return !t->exchanged || t->recording || !wb__evaluate_keeping(1, &x);
}

/* ---- operations of the graph ----------------------------------------------------------------- */

/* Evaluates y now, unless wb_compile records: all ranks must begin the operation of y before their
 * next one. */
static wb_tensor *begin_operation(wb_tensor *y)
{
    if (y && !wb__this_thread()->recording && wb_eval_array(1, &y)) return NULL;
    return y;
}

/* Returns the reduction of x by an operation of the graph.  A minimum or maximum is NaN where the x
 * of any rank is NaN, as in wb_minimum.  The libraries of the ranks keep or drop a NaN, and not on
 * all ranks alike, so a second operation finds where there is one. */
static wb_tensor *reduce_in_graph(int kind, wb_tensor *x, wb_ranks_reduction how)
{
    const wb__communicator *c = wb__world();
    wb_tensor *wide = widen_halves(x, how);
    wb_tensor *y = wide ? wb__collect(c, kind, (int)dist_tensor_op_of(how), wide, NULL) : NULL;
    if (y && may_drop_nan(x, how)) {
        wb_tensor *nan = where_nan(wide);
        y = put_nan_back(y, nan ? wb__collect(c, kind, WB__RANKS_MAX, nan, y) : NULL);
    }
    return begin_operation(narrow_result(y, x, how));
}

wb_tensor *wb_distributed_allreduce(wb_tensor *x, wb_ranks_reduction how)
{
    WB__EDGE;
    static const char what[] = "distributed_allreduce";
    if (!wb__operand(what, x) || !is_known_reduction(what, how, 0) || !is_reducible(what, x, how))
        return NULL;
    if (!wb__world()) return x;
    return settle_for(x) ? reduce_in_graph(WB__COLLECT_ALLREDUCE, x, how) : NULL;
}

static bool dist_tensor_has_axis(const char *what, const wb_tensor *x)
{
    if (x->ndim) return true;
    wb__fail(WB_ERROR_SHAPE, "%s: %s has no axis", what, wb_describe(x));
    return false;
}

wb_tensor *wb_distributed_allgather(wb_tensor *x)
{
    WB__EDGE;
    static const char what[] = "distributed_allgather";
    int64_t dims[WB_MAX_DIMS], size;
    if (!wb__operand(what, x) || !dist_tensor_has_axis(what, x)) return NULL;
    if (!wb__world()) return x;
    memcpy(dims, x->dims, sizeof dims);
    dims[0] *= wb_distributed_size();
    if (!wb__check_dims(what, x->ndim, dims, &size) || !settle_for(x)) return NULL;
    return begin_operation(wb__collect(wb__world(), WB__COLLECT_ALLGATHER, 0, x, NULL));
}

wb_tensor *wb_distributed_reduce_scatter(wb_tensor *x, wb_ranks_reduction how)
{
    WB__EDGE;
    static const char what[] = "distributed_reduce_scatter";
    const int ranks = wb_distributed_size();
    if (!wb__operand(what, x) || !dist_tensor_has_axis(what, x) ||
        !is_known_reduction(what, how, 0) || !is_reducible(what, x, how))
        return NULL;
    if (x->dims[0] % ranks)
        return wb__fail_null(WB_ERROR_SHAPE, "%s: the first axis of %s cannot be cut into %d equal"
                             " parts", what, wb_describe(x), ranks);
    if (!wb__world()) return x;
    return settle_for(x) ? reduce_in_graph(WB__COLLECT_REDUCE_SCATTER, x, how) : NULL;
}

/* ---- broadcasts, and reductions to one rank -------------------------------------------------- */

/* Returns the address of an evaluated tensor in its device's memory. */
static void *dist_tensor_address_of(const wb_tensor *x)
{
    wb__shared place;
    const wb__storage *s = x->storage;
    s->device->backend->share(s->device, s->data, (size_t)x->offset, &place);
    return place.data;
}

/* Performs *c for the values of x on its device, which the communicator must take. */
static wb_tensor *perform_on_device(const char *what, const wb_tensor *from, wb__collective *c)
{
    const wb_device *d = from->storage->device;
    wb_tensor *y = wb__empty_on(d, (wb_dtype)from->dtype, from->ndim, from->dims);
    if (!y) return NULL;
    const size_t bytes = (size_t)from->size * wb__dtype_size((wb_dtype)from->dtype);
    int status = 0;
    if (c->kind == WB__COLLECT_BROADCAST)
        status = d->backend->copy(d, y->storage->data, (size_t)y->offset, d, from->storage->data,
                                  (size_t)from->offset, bytes);
    if (!status) status = d->backend->wait(d);
    if (status) return NULL;
    c->device = d;
    c->from = dist_tensor_address_of(from);
    c->to = dist_tensor_address_of(y);
    status = wb__collective_end(wb__collective_begin(c));
    wb__collective_report(what);
    return status ? NULL : y;
}

/* Performs *c for the values of x.  The result has the shape of x.  NULL: failed. */
static wb_tensor *perform_on_host(const char *what, wb_tensor *x, wb__collective *c)
{
    if (!settle_for(x)) return NULL;
    c->communicator = wb__world();
    c->dtype = (wb_dtype)x->dtype;
    c->n = x->size;
    if (wb__collective_takes_addresses_of(c->communicator, wb__device_of(x))) {
        wb__value_read r;
        const wb_tensor *from = wb__value_begin(what, x, &r);
        wb_tensor *y = from ? perform_on_device(what, from, c) : NULL;
        if (from) wb__value_end(&r);
        return y;
    }
    const size_t bytes = (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype);
    char *to = wb__alloc_aligned(2 * bytes + 1);        /* room for `to` and for `from` */
    if (!to || wb_copy_out(x, to + bytes, bytes)) return wb__free(to), NULL;
    c->from = to + bytes;
    c->to = to;
    if (c->kind == WB__COLLECT_BROADCAST) memcpy(to, c->from, bytes);
    const int status = wb__collective_end(wb__collective_begin(c));
    wb__collective_report(what);
    const wb_device *was = wb__use_device(wb__device_of(x));
    wb_tensor *y = status ? NULL : wb_from(to, (wb_dtype)x->dtype, x->ndim, x->dims);
    wb__use_device(was);
    wb__free(to);
    return y;
}

wb_tensor *wb_distributed_broadcast(wb_tensor *x, int root)
{
    WB__EDGE;
    static const char what[] = "distributed_broadcast";
    if (!wb__operand(what, x) || !is_known_reduction(what, WB_RANKS_SUM, root)) return NULL;
    if (!wb__world()) return x;
    WB__FIRST(wb_distributed_broadcast, NULL);
    return perform_on_host(what, x, &(wb__collective){.kind = WB__COLLECT_BROADCAST,
                                                      .root = root});
}

wb_tensor *wb_distributed_reduce(wb_tensor *x, wb_ranks_reduction how, int root)
{
    WB__EDGE;
    static const char what[] = "distributed_reduce";
    if (!wb__operand(what, x) || !is_known_reduction(what, how, root) ||
        !is_reducible(what, x, how))
        return NULL;
    if (!wb__world()) return x;
    WB__FIRST(wb_distributed_reduce, NULL);
    wb__collective c = {.kind = WB__COLLECT_REDUCE, .op = dist_tensor_op_of(how), .root = root},
    max = c;
    max.op = WB__RANKS_MAX;
    wb_tensor *wide = widen_halves(x, how);
    wb_tensor *y = wide ? perform_on_host(what, wide, &c) : NULL;
    if (y && may_drop_nan(x, how)) {
        wb_tensor *nan = where_nan(wide);
        y = put_nan_back(y, nan ? perform_on_host(what, nan, &max) : NULL);
    }
    if (!y) return NULL;
    return wb_distributed_rank() == root ? narrow_result(y, x, how) : WB_NONE;
}
