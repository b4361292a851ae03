/* Reads values: evaluates tensors and copies their elements to the host. */
#include "engine/evaluate.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { PART_BYTES = 1 << 20 };          /* size of a part for wb__read_in_parts */

static _Atomic int scalar_reads = 1;    /* what reads of single elements from a GPU do: 0: they
                                           fail; 1: the first logs a warning, then as 2; 2: they are
                                           allowed */

void wb_allow_scalar(bool allow) { scalar_reads = allow ? 2 : 0; }

/* Returns wb__bind(x), evaluated and with a guard that is read; NULL: failed. */
static wb_tensor *evaluate_for_read(const char *what, wb_tensor *x)
{
    wb_tensor *bound = wb__bind(x);
    if (!bound->storage && wb__evaluate(1, &bound, NULL)) return NULL;
    if (!bound->storage)
        return wb__fail_null(WB_ERROR_INTERNAL, "%s: %s has no value", what, wb_describe(x));
    return wb__guard_confirm_for(bound->storage) ? NULL : bound;
}

wb_tensor *wb__value_begin(const char *what, wb_tensor *x, wb__value_read *r)
{
    *r = (wb__value_read){0};
    if (!wb__operand(what, x) || !wb__bind_begin(what, x, r)) return NULL;
    wb_tensor *bound = evaluate_for_read(what, x);
    if (!bound) wb__value_end(r);
    return bound;
}

int wb_eval_array(int n, wb_tensor *const *tensors)
{
    WB__PUBLIC(wb_eval_array, wb_error_code());
    if (n < 0 || (n && !tensors)) return wb__fail(WB_ERROR_ARGUMENT, "eval: %d tensors", n);
    for (int i = 0; i < n; i++)
        if (!wb__operand("eval", tensors[i]))
            return wb__error_or(WB_ERROR_ARGUMENT);
    return wb__evaluate(n, tensors, NULL);
}

const void *wb_data(wb_tensor *x)
{
    WB__PUBLIC(wb_data, NULL);
    wb__value_read r;
    wb_tensor *bound = wb__value_begin("data", x, &r);
    if (!bound) return NULL;
    const char *values = wb__storage_read(bound->storage);
    if (values) values += bound->offset;
    wb__value_end(&r);
    return values;
}

/* Reads one element of an evaluated tensor; NaN on failure, with the error set. */
static double tensor_read_element(const wb_tensor *bound, int64_t index)
{
    wb__storage *s = bound->storage;
    const size_t size = wb__dtype_size((wb_dtype)bound->dtype);
    char bytes[8];
    double v;
    const size_t at = (size_t)bound->offset + (size_t)index * size;
    const char *copy = wb__storage_is_read(s) ? wb__storage_read(s) : NULL;
    if (copy) memcpy(bytes, copy + at, size);
    else if (s->device->backend->download(s->device, bytes, s->data, at, size)) return NAN;
    wb__convert(&v, WB_F64, bytes, (wb_dtype)bound->dtype, 1);
    return v;
}

/* Whether a single element of the tensor may be read.  If it is in a GPU's memory, `scalar_reads`
 * decides.  False: the error is set. */
static bool may_read_scalar(const wb_tensor *bound)
{
    if (bound->storage->device->backend->host_visible || scalar_reads == 2) return true;
    if (!scalar_reads) {
        wb__fail(WB_ERROR_DEVICE,
                 "Scalar indexing is disallowed: one element of %s was asked for; read the whole "
                 "(wb_data, wb_copy_out), or move it first (wb_cpu)",
                 wb_describe(bound));
        return false;
    }
    int once = 1;
    if (!atomic_compare_exchange_strong(&scalar_reads, &once, 2)) return may_read_scalar(bound);
    wb__log(WB_LOG_WARN,
            "Performing scalar indexing on a tensor of a GPU, %s: each element is a transfer.\n"
            "Read the whole with wb_data or wb_copy_out; wb_allow_scalar(false) makes this an "
            "error.",
            wb_describe(bound));
    return true;
}

double wb__item(wb_tensor *x)
{
    if (x && wb__is(x, &wb__tensor_class) && x != WB_NONE && x->size != 1) {
        wb__fail(WB_ERROR_SHAPE, "item: %s is not one element", wb_describe(x));
        return NAN;
    }
    wb__value_read r;
    const wb_tensor *bound = wb__value_begin("item", x, &r);
    if (!bound) return NAN;
    const double value = tensor_read_element(bound, 0);
    wb__value_end(&r);
    return value;
}

double wb_item(wb_tensor *x)
{
    WB__PUBLIC(wb_item, NAN);
    return wb__item(x);
}

double wb_at_array(wb_tensor *x, int n, const int64_t *index)
{
    WB__PUBLIC(wb_at_array, NAN);
    if (!wb__operand("at", x)) return NAN;
    int64_t at = 0;
    if (n != x->ndim) {
        wb__fail(WB_ERROR_SHAPE, "at: %d indices for %s", n, wb_describe(x));
        return NAN;
    }
    if (n && !index) {
        wb__fail(WB_ERROR_ARGUMENT, "at: no indices");
        return NAN;
    }
    for (int i = 0; i < n; i++) {
        if (index[i] < 0 || index[i] >= x->dims[i]) {
            wb__fail(WB_ERROR_ARGUMENT, "at: index %lld of axis %d of %s", (long long)index[i], i,
                     wb_describe(x));
            return NAN;
        }
        at = at * x->dims[i] + index[i];
    }
    wb__value_read r;
    const wb_tensor *bound = wb__value_begin("at", x, &r);
    if (!bound) return NAN;
    const double value = may_read_scalar(bound) ? tensor_read_element(bound, at) : NAN;
    wb__value_end(&r);
    return value;
}

int wb_copy_out(wb_tensor *x, void *buffer, size_t bytes)
{
    WB__PUBLIC(wb_copy_out, wb_error_code());
    wb__value_read r;
    const wb_tensor *from = wb__value_begin("copy_out", x, &r);
    if (!from) return wb__error_or(WB_ERROR_ARGUMENT);
    const wb__storage *s = from->storage;
    size_t need = (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype);
    int status = 0;
    if (bytes != need)
        status = wb__fail(WB_ERROR_ARGUMENT, "copy_out: %zu bytes of room for %s, which is %zu",
                          bytes, wb_describe(x), need);
    else if (bytes && !buffer)
        status = wb__fail(WB_ERROR_ARGUMENT, "copy_out: no buffer");
    else if (bytes)
        status = s->device->backend->download(s->device, buffer, s->data, (size_t)from->offset,
                                              bytes);
    wb__value_end(&r);
    return status;
}

static int pass_in_parts(const wb_tensor *x, const wb_tensor *from,
                         int (*f)(const void *part, int64_t n, void *ctx), void *ctx)
{
    const wb__storage *s = from->storage;
    if (!x->size) return 0;
    const wb__backend *b = s->device->backend;
    const void *all = b->host_visible ? s->data : NULL;
    int status = b->map ? b->map(s->device, s->data, &all) : 0;
    if (status && status != WB_ERROR_UNSUPPORTED) return status;
    if (all) return f((const char *)all + from->offset, x->size, ctx);
    const int64_t each = (int64_t)wb__dtype_size((wb_dtype)x->dtype), most = PART_BYTES / each;
    void *part = wb__alloc_aligned((size_t)(WB__MIN(most, x->size) * each));
    status = part ? 0 : WB_ERROR_MEMORY;
    for (int64_t i = 0; !status && i < x->size; i += most) {
        const int64_t n = WB__MIN(most, x->size - i);
        status = s->device->backend->download(s->device, part, s->data,
                                              (size_t)(from->offset + i * each),
                                              (size_t)(n * each));
        if (!status) status = f(part, n, ctx);
    }
    wb__free(part);
    return status;
}

int wb__read_in_parts(wb_tensor *x, int (*f)(const void *part, int64_t n, void *ctx), void *ctx)
{
    wb__value_read r;
    const wb_tensor *from = wb__value_begin("read", x, &r);
    if (!from) return wb__error_or(WB_ERROR_ARGUMENT);
    const int status = pass_in_parts(x, from, f, ctx);
    wb__value_end(&r);
    return status;
}
