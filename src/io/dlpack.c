/* DLPack: gives tensors to other libraries and takes tensors from them, without copies if possible.
 *
 * wb_to_dlpack gives out the tensor's storage, which is held and marked as lent until the consumer
 * calls the deleter.  A variable whose storage is lent gets new memory before it is written
 * (wb__own_memory), so that lent values never change.  wb_from_dlpack creates a borrowed storage,
 * whose release calls the producer's deleter.  If the tensor must be copied, the deleter is called
 * after the copy. */
#include "io/dlpack.h"

#include "device/registry.h"
#include "engine/evaluate.h"
#include "io/borrow.h"

#include <stdatomic.h>
#include <string.h>

enum { ALIGNMENT = 64 };                /* required alignment of GPU memory, in bytes */

/* DLPack's {code, bits, lanes} of each dtype.  Codes: 0 int, 1 unsigned, 2 float, 4 bfloat, 6
 * bool. */
static const struct { wb_dtype dtype; wb__dl_type type; } dlpack_types[] = {
    {WB_I8, {0, 8, 1}},   {WB_I32, {0, 32, 1}}, {WB_I64, {0, 64, 1}}, {WB_U8, {1, 8, 1}},
    {WB_F16, {2, 16, 1}}, {WB_F32, {2, 32, 1}}, {WB_F64, {2, 64, 1}}, {WB_BF16, {4, 16, 1}},
    {WB_BOOL, {6, 8, 1}}};

/* ---- giving tensors -------------------------------------------------------------------------- */

typedef struct {
    union {
        struct DLManagedTensorVersioned versioned;
        struct DLManagedTensor unversioned;
    } as;
    wb__storage *storage;
    int64_t shape[WB_MAX_DIMS], strides[WB_MAX_DIMS];
} lent;

/* Releases the storage that was lent, when the consumer is done. */
static void dlpack_take_back(lent *l)
{
    atomic_fetch_sub_explicit(&l->storage->lent, 1, memory_order_relaxed);
    wb__storage_unref(l->storage);
    wb__free(l);
}

static void delete_versioned(struct DLManagedTensorVersioned *self) { dlpack_take_back(self->ctx); }
static void delete_unversioned(struct DLManagedTensor *self) { dlpack_take_back(self->ctx); }

/* Returns where the storage's byte `at` is, as DLPack names places. */
static wb__shared dlpack_shared(const wb__storage *s, size_t at)
{
    wb__shared place = {.kind = WB__DL_CPU, .data = (char *)s->data + at};
    const wb__backend *b = s->device->backend;
    if (!b->host_visible) b->share(s->device, s->data, at, &place);
    return place;
}

/* Sets *out to the description of x. */
static void dlpack_describe(lent *l, const wb_tensor *x, wb__dl_tensor *out)
{
    const wb__shared place = dlpack_shared(x->storage, (size_t)x->offset);
    *out = (wb__dl_tensor){.data = x->size ? place.data : NULL,
                           .device = {place.kind, place.ordinal},
                           .ndim = x->ndim, .shape = l->shape, .strides = l->strides,
                           .byte_offset = place.at};
    for (size_t i = 0; i < WB__COUNT(dlpack_types); i++)
        if (dlpack_types[i].dtype == (wb_dtype)x->dtype) out->dtype = dlpack_types[i].type;
    int64_t step = 1;
    for (int i = x->ndim - 1; i >= 0; i--) {
        l->shape[i] = x->dims[i];
        l->strides[i] = step;
        step *= WB__MAX(x->dims[i], 1);
    }
}

/* On a GPU waits for the device of x, which is evaluated.  Holds the storage of x and marks it as
 * lent; dlpack_take_back undoes both.  NULL with the error set. */
static lent *dlpack_lend(const wb_tensor *x)
{
    wb__storage *s = x->storage;
    const wb__backend *backend = s->device->backend;
    if (!backend->host_visible && !backend->share)
        return wb__fail_null(WB_ERROR_UNSUPPORTED, "to_dlpack: %s:%d has no memory that other "
                             "libraries know; move it first (wb_cpu)", backend->tag,
                             s->device->ordinal);
    if (!backend->host_visible && backend->wait(s->device)) return NULL;
    lent *l = wb__alloc_zero(1, sizeof *l);
    if (!l) return NULL;
    l->storage = s;
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->lent, 1, memory_order_relaxed);
    wb__forms_lend(s);                  /* a consumer may ignore that the values are read-only */
    return l;
}

/* Returns the value of x, lent, with its description in one of the two structs.  NULL with the
 * error set. */
static lent *dlpack_lend_value(wb_tensor *x, bool versioned)
{
    wb__value_read r;
    const wb_tensor *from = wb__value_begin("to_dlpack", x, &r);
    if (!from) return NULL;
    lent *l = dlpack_lend(from);
    if (l)
        dlpack_describe(l, from, versioned ? &l->as.versioned.tensor : &l->as.unversioned.tensor);
    wb__value_end(&r);
    return l;
}

struct DLManagedTensorVersioned *wb_to_dlpack(wb_tensor *x)
{
    WB__FIRST(wb_to_dlpack, NULL);
    lent *l = dlpack_lend_value(x, true);
    if (!l) return NULL;
    struct DLManagedTensorVersioned *m = &l->as.versioned;
    m->version.major = WB__DL_MAJOR;
    m->version.minor = WB__DL_MINOR;
    m->ctx = l;
    m->deleter = delete_versioned;
    m->flags = WB__DL_READ_ONLY;
    return m;
}

struct DLManagedTensor *wb_to_dlpack_unversioned(wb_tensor *x)
{
    WB__FIRST(wb_to_dlpack_unversioned, NULL);
    lent *l = dlpack_lend_value(x, false);
    if (!l) return NULL;
    struct DLManagedTensor *m = &l->as.unversioned;
    m->ctx = l;
    m->deleter = delete_unversioned;
    return m;
}

/* ---- taking tensors -------------------------------------------------------------------------- */

/* The producer's struct in one of the two fields; the other field is NULL.  The struct's deleter is
 * called when the memory is released.  If both fields are NULL, no deleter is called. */
typedef struct {
    struct DLManagedTensorVersioned *versioned;
    struct DLManagedTensor *unversioned;
} owner;

static void dlpack_call_deleter(const owner *o)
{
    if (o->versioned && o->versioned->deleter) o->versioned->deleter(o->versioned);
    if (o->unversioned && o->unversioned->deleter) o->unversioned->deleter(o->unversioned);
}

typedef struct {
    const wb__dl_tensor *t;             /* the producer's description */
    wb_dtype dtype;
    size_t each;                        /* bytes of one element */
    int64_t size;                       /* number of elements */
    const wb_device *device;            /* NULL: host memory */
    char *data;                         /* the first element */
    bool row_major, aligned;
} incoming;

static const char *dlpack_check_type(incoming *in)
{
    const wb__dl_type type = in->t->dtype;
    for (size_t i = 0; i < WB__COUNT(dlpack_types); i++)
        if (!memcmp(&dlpack_types[i].type, &type, sizeof type)) in->dtype = dlpack_types[i].dtype;
    in->each = in->dtype ? wb__dtype_size(in->dtype) : 1;
    return in->dtype ? NULL : "a dtype that Weber has not";
}

static const char *dlpack_check_shape(incoming *in)
{
    const wb__dl_tensor *t = in->t;
    if (t->ndim < 0 || (t->ndim && !t->shape)) return "no shape";
    if (t->ndim > WB_MAX_DIMS) return "more than 8 dimensions";
    in->size = 1;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] < 0) return "a negative dimension";
        if (t->shape[i] && in->size > UINT32_MAX / t->shape[i]) return "2^32 elements or more";
        in->size *= t->shape[i];
    }
    in->row_major = true;
    int64_t step = 1;
    for (int i = t->ndim - 1; t->strides && in->size && i >= 0; step *= t->shape[i--])
        if (t->shape[i] != 1 && t->strides[i] != step) in->row_major = false;
    return in->size && !t->data ? "no data" : NULL;
}

/* Returns the device with the requested kind and ordinal of DLPack, if its backend is loaded and
 * works; NULL: none. */
static const wb_device *dlpack_device_of(const wb__dl_device *requested)
{
    const wb_device *found = NULL;
    wb__registry_lock();
    for (int row = 0; row < WB__ROWS && !found; row++) {
        const wb__backend *b = wb__row_loaded(row) ? wb__row_backend(row) : NULL;
        if (!b || b->host_visible || !b->share || !b->adopt || !wb__row_works(row)) continue;
        const wb_device_list list = wb__row_devices(row);
        for (int i = 0; i < list.n && !found; i++) {
            wb__shared s;
            b->share(list.device[i], NULL, 0, &s);
            if (s.kind == requested->kind && s.ordinal == requested->ordinal)
                found = list.device[i];
        }
    }
    wb__registry_unlock();
    return found;
}

static int dlpack_check(const wb__dl_tensor *t, incoming *in)
{
    *in = (incoming){.t = t};
    const char *reason = dlpack_check_type(in);
    if (!reason) reason = dlpack_check_shape(in);
    if (reason)
        return wb__fail(WB_ERROR_ARGUMENT,
                        "from_dlpack: %s (%d dimensions, dtype code %d with %d bits, %d lanes)",
                        reason, t->ndim, t->dtype.code, t->dtype.bits, t->dtype.lanes);
    const int kind = t->device.kind;
    if (kind != WB__DL_CPU && kind != WB__DL_PINNED && kind != WB__DL_PINNED_2 &&
        !(in->device = dlpack_device_of(&t->device)))
        return wb__fail(WB_ERROR_DEVICE, "from_dlpack: memory of a device of DLPack's kind %d, "
                        "number %d: no backend that is loaded takes it: load its backend "
                        "(wb_using); where a GPU's memory has no addresses, copy it to the CPU "
                        "there", kind, t->device.ordinal);
    if (in->device && !in->row_major)
        return wb__fail(WB_ERROR_ARGUMENT, "from_dlpack: strides in memory of %s:%d: make it "
                        "contiguous there first", in->device->backend->tag, in->device->ordinal);
    in->data = in->size ? (char *)t->data + t->byte_offset : NULL;
    in->aligned = (uintptr_t)in->data % (in->device ? (size_t)ALIGNMENT : in->each) == 0;
    return 0;
}

/* Returns a new row-major tensor with the elements, which are in host memory.  NULL: error set. */
static wb_tensor *dlpack_copy_from_host(const incoming *in)
{
    const wb__dl_tensor *t = in->t;
    char *block = wb__alloc_aligned((size_t)in->size * in->each + 1);
    if (!block) return NULL;
    int64_t index[WB_MAX_DIMS] = {0}, at = 0;
    if (in->row_major && in->size) memcpy(block, in->data, (size_t)in->size * in->each);
    for (int64_t i = 0; i < in->size && !in->row_major; i++) {
        memcpy(block + (size_t)i * in->each, in->data + at * (int64_t)in->each, in->each);
        for (int k = t->ndim - 1; k >= 0; k--) {
            at += t->strides[k];
            if (++index[k] < t->shape[k]) break;
            at -= t->strides[k] * t->shape[k];
            index[k] = 0;
        }
    }
    return wb__borrow_block(block, in->dtype, t->ndim, t->shape);
}

/* ---- borrowed storage ------------------------------------------------------------------------ */

typedef struct { owner owner; const wb_device *device; } hold;

static void dlpack_release_host(void *data, void *context)
{
    (void)data;
    dlpack_call_deleter(&((hold *)context)->owner);
    wb__free(context);
}

/* Waits for the device, since launched kernels may still read the memory, and releases the
 * memory. */
static void dlpack_release_device(void *memory, void *context)
{
    hold *h = context;
    const wb__backend *backend = h->device->backend;
    wb__error_kept kept;
    wb__error_keep(&kept);
    backend->wait(h->device);
    wb__error_restore(&kept);
    backend->disown(h->device, memory);
    dlpack_release_host(memory, context);
}

/* Returns a constant whose values stay in the producer's device memory, or a copy if the address is
 * not aligned.  On success takes `h` over.  On failure frees `h` without calling the producer's
 * deleter. */
static wb_tensor *dlpack_borrow_on_device(const incoming *in, hold *h)
{
    const wb__backend *backend = in->device->backend;
    void *memory = backend->adopt(in->device, in->data, (size_t)in->size * in->each);
    wb_tensor *x = memory ? wb__borrow_on(in->device, memory, in->dtype, in->t->ndim, in->t->shape,
                                          dlpack_release_device, h) : NULL;
    if (memory && !x) backend->disown(in->device, memory);
    if (!x) wb__free(h);
    if (!x || in->aligned) return x;
    wb_tensor *copy = wb__copied(x, in->device);
    if (copy) {
        wb_object_free(x);
        return copy;
    }
    h->owner = (owner){NULL, NULL};         /* on failure the caller keeps the struct */
    wb_object_free(x);
    return NULL;
}

static wb_tensor *dlpack_copied(const incoming *in, const owner *o)
{
    static _Atomic bool logged;
    wb_tensor *x = in->size || !in->device ? dlpack_copy_from_host(in)
                 : wb__empty_on(in->device, in->dtype, in->t->ndim, in->t->shape);
    if (!x) return NULL;
    if (in->size && !atomic_exchange(&logged, true))
        wb__log(WB_LOG_INFO,
                "from_dlpack: %s comes with strides or at an odd address, and is copied.",
                wb_describe(x));
    dlpack_call_deleter(o);
    return x;
}

/* Returns a tensor made from the producer's struct.  On success the struct must not be used
 * afterwards, because its deleter may have been called.  On failure the deleter is not called. */
static wb_tensor *dlpack_tensor_from(const wb__dl_tensor *t, owner o)
{
    incoming in;
    if (dlpack_check(t, &in)) return NULL;
    if (!in.size || (!in.device && (!in.row_major || !in.aligned))) return dlpack_copied(&in, &o);
    hold *h = wb__alloc(sizeof *h);
    if (!h) return NULL;
    *h = (hold){o, in.device};
    if (in.device) return dlpack_borrow_on_device(&in, h);
    wb_tensor *x = wb_borrow(in.data, in.dtype, t->ndim, t->shape, dlpack_release_host, h);
    if (!x) wb__free(h);
    return x;
}

wb_tensor *wb_from_dlpack(struct DLManagedTensorVersioned *m)
{
    if (WB__NULL(m)) return NULL;
    if (m->version.major != WB__DL_MAJOR)
        return wb__fail_null(WB_ERROR_UNSUPPORTED, "from_dlpack: version %u.%u of DLPack; %d is "
                             "understood", m->version.major, m->version.minor, WB__DL_MAJOR);
    return dlpack_tensor_from(&m->tensor, (owner){.versioned = m});
}

wb_tensor *wb_from_dlpack_unversioned(struct DLManagedTensor *m)
{
    return WB__NULL(m) ? NULL : dlpack_tensor_from(&m->tensor, (owner){.unversioned = m});
}
