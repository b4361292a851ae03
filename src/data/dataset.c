/* Creates datasets and returns their properties. fetch.c fetches observations, loader.c iterates
 * over batches, move.c moves datasets between devices. */
#include "data/dataset.h"

#include "base/options.h"
#include "base/numbers/philox.h"
#include "io/borrow.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { X, Y };
static const int64_t most_shuffled = UINT32_MAX;

static void destroy(void *object)
{
    wb_dataset *d = object;
    wb__unref(d->under);
    wb__unref(d->tensor[X]);
    wb__unref(d->tensor[Y]);
    wb__free(d->order);
    wb__object_end(d, sizeof *d);
}

static const char *describe_field(const wb__field *f, char *text, size_t bytes)
{
    if (!f->present) return "none";
    size_t n = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < f->ndim && n < bytes; i++)
        n += (size_t)snprintf(text + n, bytes - n, i ? ",%lld" : "%lld", (long long)f->dims[i]);
    if (n < bytes) snprintf(text + n, bytes - n, "] %s", wb_dtype_name(f->dtype));
    return text;
}

static char *format(void *object)
{
    const wb_dataset *d = object, *root = wb__dataset_root(d);
    char x[160], y[160], place[64] = "";
    if (root->device != &wb__cpu)
        snprintf(place, sizeof place, ", on %s:%d", root->device->backend->tag,
                 root->device->ordinal);
    return wb__printf("Dataset(%lld observations%s: x %s, y %s%s)", (long long)d->n,
                      wb__dataset_mapped(d) ? ", mapped" : "",
                      describe_field(&root->field[X], x, sizeof x),
                      describe_field(&root->field[Y], y, sizeof y), place);
}

const wb__class wb__dataset_class = {.name = "dataset", .destroy = destroy, .format = format,
                                     .to = wb__dataset_to, .device_of = wb__dataset_device};

/* Whether d is a dataset. Otherwise sets the error; if d is NULL, an earlier error is kept. */
static bool is_dataset(const wb_dataset *d, const char *what)
{
    if (!d) return !wb__null(what, "the dataset");
    if (wb__is(d, &wb__dataset_class)) return true;
    wb__fail(WB_ERROR_ARGUMENT, "%s: a %s is not a dataset", what, wb__kind(d));
    return false;
}

/* ---- roots ----------------------------------------------------------------------------------- */

/* Returns the number of bytes of field f in one observation; -1 with the error set. */
static int64_t field_bytes(const char *what, const char *name, const wb__field *f)
{
    if (f->ndim < 0 || f->ndim >= WB_MAX_DIMS || !wb__dtype_size(f->dtype)) {
        wb__fail(WB_ERROR_SHAPE,
                 "%s: %s has %d dimensions and dtype %s; with the batch axis there may be %d", what,
                 name, f->ndim, wb_dtype_name(f->dtype), WB_MAX_DIMS);
        return -1;
    }
    int64_t size = 1;
    for (int i = 0; i < f->ndim; i++) {
        if (f->dims[i] < 0 || (f->dims[i] && size > UINT32_MAX / f->dims[i])) {
            wb__fail(WB_ERROR_SHAPE, "%s: dimension %d of %s is %lld", what, i, name,
                     (long long)f->dims[i]);
            return -1;
        }
        size *= f->dims[i];
    }
    return size * (int64_t)wb__dtype_size(f->dtype);
}

/* Stores x in the dataset and takes a reference. Instead of a variable, which may change, stores a
 * copy. Instead of a tensor with inputs, stores a tensor on the same memory, so that the inputs can
 * be freed. */
static bool take_array(wb_dataset *d, int xy, wb_tensor *x)
{
    wb__field *f = &d->field[xy];
    if (wb_eval_array(1, &x)) return false;
    const wb_tensor *bound = wb__bind(x);
    if (x != bound || x->variable) x = wb__copied(x, wb__device_of(x));
    else if (x->n_in || !x->device) x = wb__as_constant(x);
    if (!x) return false;
    if (xy == Y && x->device != d->device) {
        wb__fail(WB_ERROR_DEVICE,
                 "dataset_of: x is on %s:%d and y on %s:%d: move one to the other, as in "
                 "y = wb_to(y, wb_device_of(x))",
                 d->device->backend->tag, d->device->ordinal, x->device->backend->tag,
                 x->device->ordinal);
        return false;
    }
    d->device = x->device;
    if (d->device == &wb__cpu && !(d->data[xy] = wb_data(x))) return false;
    *f = (wb__field){.present = true, .dtype = (wb_dtype)x->dtype, .ndim = x->ndim - 1};
    memcpy(f->dims, x->dims + 1, (size_t)f->ndim * sizeof *f->dims);
    f->bytes = field_bytes("dataset_of", xy == X ? "x" : "y", f);
    if (f->bytes < 0) return false;
    d->tensor[xy] = wb__ref(x);
    return true;
}

wb_dataset *wb_dataset_of(wb_tensor *x, wb_tensor *y)
{
    if (WB__NULL(x) || WB__NULL(y)) return NULL;
    if (!wb__operand("dataset_of", x) || (!wb_is_none(y) && !wb__operand("dataset_of", y)))
        return NULL;
    bool labelled = !wb_is_none(y);
    if (wb_ndim(x) < 1 || (labelled && (wb_ndim(y) < 1 || wb_dim(x, 0) != wb_dim(y, 0))))
        return wb__fail_null(
            WB_ERROR_SHAPE,
            "dataset_of: x %s and y %s do not have observations along a first axis "
            "of the same length",
            wb_describe(x), labelled ? wb_describe(y) : "none");
    if (wb__unrecordable("dataset_of", WB__READS)) return NULL;
    wb_dataset *d = wb__object_new(&wb__dataset_class, sizeof *d);
    if (!d) return NULL;
    d->kind = WB__DATA_ARRAYS;
    d->device = &wb__cpu;
    d->n = wb_dim(x, 0);
    if (take_array(d, X, x) && (!labelled || take_array(d, Y, y))) return d;
    wb_object_free(d);
    return NULL;
}

wb_dataset *wb_dataset_from(const wb_dataset_source *given)
{
    wb_dataset_source s;
    if (!wb__read_struct("dataset_from", &s, sizeof s, given)) return NULL;
    if (!s.get || s.n < 0)
        return wb__fail_null(WB_ERROR_ARGUMENT, "dataset_from: %s, %lld observations",
                             s.get ? "a function" : "no function", (long long)s.n);
    wb_dataset *d = wb__object_new(&wb__dataset_class, sizeof *d);
    if (!d) return NULL;
    d->kind = WB__DATA_SOURCE;
    d->device = &wb__cpu;
    d->n = s.n;
    d->get = s.get;
    d->ctx = s.ctx;
    d->field[X] = (wb__field){true, s.x_dtype ? s.x_dtype : WB_F32, s.x_ndim, {0}, 0};
    d->field[Y] =
        (wb__field){s.y_dtype || s.y_ndim, s.y_dtype ? s.y_dtype : WB_F32, s.y_ndim, {0}, 0};
    memcpy(d->field[X].dims, s.x_dims, sizeof s.x_dims);
    memcpy(d->field[Y].dims, s.y_dims, sizeof s.y_dims);
    for (int xy = X; xy <= Y; xy++) {
        d->field[xy].bytes = field_bytes("dataset_from", xy == X ? "x" : "y", &d->field[xy]);
        if (d->field[xy].bytes >= 0) continue;
        wb_object_free(d);
        return NULL;
    }
    return d;
}

/* ---- views and maps -------------------------------------------------------------------------- */

wb_dataset *wb__dataset_over(wb_dataset *under, wb__data_kind kind, int64_t n)
{
    wb_dataset *d = wb__object_new(&wb__dataset_class, sizeof *d);
    if (!d) return NULL;
    d->kind = kind;
    d->n = n;
    d->under = wb__ref(under);
    return d;
}

wb_dataset *wb__dataset_share(wb_dataset *d, int rank, int ranks, uint64_t seed)
{
    wb_dataset *share = wb__dataset_over(d, WB__DATA_SHARE, (d->n + ranks - 1) / ranks);
    if (!share) return NULL;
    share->rank = rank;
    share->ranks = ranks;
    share->seed = seed;
    return share;
}

wb_dataset *wb_subset(wb_dataset *d, int64_t start, int64_t stop)
{
    if (!is_dataset(d, "subset")) return NULL;
    if (start < 0 || stop < start || stop > d->n)
        return wb__fail_null(WB_ERROR_ARGUMENT, "subset: %lld .. %lld of %lld observations",
                             (long long)start, (long long)stop, (long long)d->n);
    wb_dataset *view = wb__dataset_over(d, WB__DATA_VIEW, stop - start);
    if (view) view->start = start;
    return view;
}

static uint32_t *random_order(int64_t n)
{
    if (n > most_shuffled)
        return wb__fail_null(WB_ERROR_UNSUPPORTED,
                             "splitobs: %lld observations are too many to shuffle", (long long)n);
    uint32_t *order = wb__alloc((size_t)n * sizeof *order);
    uint64_t key, counter;
    wb__rng_take(1, &key, &counter);
    if (order) wb__shuffle(order, n, key, counter);
    return order;
}

int wb_splitobs(wb_dataset *d, double at, bool shuffle, wb_dataset **first, wb_dataset **second)
{
    if (first) *first = NULL;
    if (second) *second = NULL;
    if (!is_dataset(d, "splitobs"))
        return wb__error_or(WB_ERROR_ARGUMENT);
    if (!first || !second || !(at >= 0 && at <= 1))
        return wb__fail(WB_ERROR_ARGUMENT,
                        "splitobs: at is %g; it must be in [0, 1], with two places for the parts",
                        at);
    int64_t n = (int64_t)nearbyint((double)d->n * at);
    if (shuffle) {
        uint32_t *order = random_order(d->n);
        wb_dataset *mixed = order ? wb__dataset_over(d, WB__DATA_VIEW, d->n) : NULL;
        if (!mixed) {
            wb__free(order);
            return wb_error_code();
        }
        mixed->order = order;
        d = mixed;
    }
    wb_dataset *a = wb_subset(d, 0, n), *b = a ? wb_subset(d, n, d->n) : NULL;
    if (!b) return wb_error_code();
    *first = a;
    *second = b;
    return 0;
}

wb_dataset *wb_mapobs(wb_dataset *d, wb_collate f, void *ctx)
{
    if (!is_dataset(d, "mapobs")) return NULL;
    if (!f) return wb__fail_null(WB_ERROR_ARGUMENT, "mapobs: no function");
    wb_dataset *mapped = wb__dataset_over(d, WB__DATA_MAP, d->n);
    if (!mapped) return NULL;
    mapped->map = f;
    mapped->ctx = ctx;
    return mapped;
}

/* ---- properties ------------------------------------------------------------------------------ */

int64_t wb_dataset_length(const wb_dataset *d)
{
    return is_dataset(d, "dataset_length") ? d->n : -1;
}

/* Makes a batch of all observations, on memory that its tensors own. Arrays are copied. The
 * function of a source is called for each observation. */
static int fill_all(const wb_dataset *d, const wb_dataset *root, int64_t *index, wb_batch *batch)
{
    void *to[2] = {NULL, NULL};
    int made = 0, status = 0;
    for (int xy = X; xy <= Y && !status; xy++) {
        int64_t bytes = root->field[xy].present ? root->field[xy].bytes : 0;
        if (bytes && d->n > INT64_MAX / bytes)
            status =
                wb__fail(WB_ERROR_MEMORY, "the whole dataset: %lld observations", (long long)d->n);
        else if (!(to[xy] = wb__alloc_aligned((size_t)(d->n * bytes))))
            status = WB_ERROR_MEMORY;
    }
    if (!status) status = wb__dataset_fill(d, d->n, index, to, true);
    if (!status) status = wb__dataset_wrap(root, d->n, to, wb__free_block, NULL, batch, &made);
    if (made < 1) wb__free(to[X]);
    if (made < 2) wb__free(to[Y]);
    return status;
}

int wb__dataset_all(const wb_dataset *d, wb_batch *batch)
{
    const wb_dataset *root = wb__dataset_root(d);
    int64_t *index = wb__alloc_zero((size_t)d->n + 1, sizeof *index);
    if (!index) return WB_ERROR_MEMORY;
    for (int64_t i = 0; i < d->n; i++) index[i] = i;
    int status = wb__dataset_on_host(d) ? fill_all(d, root, index, batch)
                                        : wb__dataset_gather(d, d->n, index, batch);
    wb__free(index);
    const wb_device *was = wb__use_device(root->device);
    if (!status) status = wb__dataset_apply(d, batch);
    if (!status) status = wb__batch_evaluate(batch);
    wb__use_device(was);
    return status;
}

static wb_tensor *whole(wb_dataset *d, int xy, const char *what)
{
    if (!is_dataset(d, what)) return NULL;
    const wb_dataset *root = wb__dataset_root(d);
    if (!root->field[xy].present && !wb__dataset_mapped(d)) return WB_NONE;
    if (d->kind == WB__DATA_ARRAYS) return wb__scope_give(wb__ref(d->tensor[xy]));
    if (wb__unrecordable(what, WB__READS)) return NULL;
    wb_scope *s = wb_scope_open();
    if (!s) return NULL;
    wb_batch batch;
    int status = wb__dataset_all(d, &batch);
    wb_tensor *result = status ? NULL : xy == X ? batch.x : batch.y;
    if (result) result = wb_object_keep(result);
    return wb_scope_close(s) ? NULL : result;
}

wb_tensor *wb_dataset_x(wb_dataset *d) { return whole(d, X, "dataset_x"); }
wb_tensor *wb_dataset_y(wb_dataset *d) { return whole(d, Y, "dataset_y"); }
