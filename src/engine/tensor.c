/* Creates tensors and describes them.  read.c reads their values; ops/ has the operations. */
#include "base/mutex.h"
#include "engine/request.h"

#include <stdio.h>
#include <string.h>

static void tensor_destroy(void *object);
static const wb_device *tensor_device(void *x) { return wb__device_of(x); }
static void tensor_brief(const void *object, char *text, size_t bytes)
{
    const wb_tensor *x = object;
    snprintf(text, bytes, x->name ? "%s, \"%s\"" : "%s", wb_describe(x), x->name);
}
/* Makes x an unconsumed result, so that a write does not make it unreadable. */
static void tensor_keep_evaluable(void *object)
{
    wb_tensor *x = object;
    if (x->storage || !x->n_in || x->flags & (WB__GONE | WB__PENDING)) return;
    if (!wb__scope_has(x)) return;      /* only the thread that owns the tensor may change it */
    x->flags |= WB__HELD;
    wb__unconsumed_add(wb__this_thread(), x);
}

const wb__class wb__tensor_class = {.name = "tensor", .destroy = tensor_destroy,
                                    .to = wb__tensor_moved, .device_of = tensor_device,
                                    .brief = tensor_brief, .hold = tensor_keep_evaluable};

/* WB_NONE is a static tensor without elements.  Its reference count starts so high that it is never
 * freed. */
static wb_tensor tensor_none = {.object = {&wb__tensor_class, 1u << 30}, .ndim = 0, .size = 0};
wb_tensor *const WB_NONE = &tensor_none;
bool wb_is_none(const void *object) { return object == &tensor_none; }

/* ---- storage --------------------------------------------------------------------------------- */

wb__storage *wb__storage_new(const wb_device *device, size_t bytes)
{
    wb__storage *s = wb__pool_get(sizeof *s);
    if (!s) return NULL;
    *s = (wb__storage){.device = device, .bytes = bytes ? bytes : 1};
    atomic_init(&s->refs, 1);
    s->data = wb__engine.allocate(device, s->bytes);
    if (s->data) return s;
    wb__pool_put(s, sizeof *s);
    return NULL;
}

static wb__mutex tensor_mirrors = WB__MUTEX_INIT;

const void *wb__storage_read(wb__storage *s)
{
    const wb__backend *b = s->device->backend;
    const void *at = NULL;
    if (b->host_visible) return s->data;
    if (b->map && b->map(s->device, s->data, &at) != WB_ERROR_UNSUPPORTED) return at;
    wb__mutex_lock(&tensor_mirrors);
    const void *values = s->mirror;
    wb__mutex_unlock(&tensor_mirrors);
    if (values) return values;
    /* Without the lock: the device may wait for a rank that waits for the lock. */
    void *copy = wb__alloc_aligned(s->bytes);
    if (copy && b->download(s->device, copy, s->data, 0, s->bytes)) {
        wb__free(copy);
        copy = NULL;
    }
    if (!copy) return NULL;
    wb__mutex_lock(&tensor_mirrors);
    void *spare = s->mirror ? copy : NULL;      /* another thread has set the mirror meanwhile */
    if (!spare) s->mirror = copy;
    values = s->mirror;
    wb__mutex_unlock(&tensor_mirrors);
    wb__free(spare);
    return values;
}

bool wb__storage_is_read(wb__storage *s)
{
    if (s->device->backend->host_visible) return false;
    wb__mutex_lock(&tensor_mirrors);
    const bool is = s->mirror != NULL;
    wb__mutex_unlock(&tensor_mirrors);
    return is;
}

void wb__storage_set_read(wb__storage *s, const void *values)
{
    void *copy = wb__alloc_aligned(s->bytes);
    if (!copy) {
        wb_clear_error();
        return;
    }
    memcpy(copy, values, s->bytes);
    wb__mutex_lock(&tensor_mirrors);
    void *spare = s->mirror ? copy : NULL;
    if (!spare) s->mirror = copy;
    wb__mutex_unlock(&tensor_mirrors);
    wb__free(spare);
}

void wb__storage_written(wb__storage *s)
{
    wb__forms_drop(s);
    if (wb__likely(!s->mirror)) return;
    wb__mutex_lock(&tensor_mirrors);
    wb__free(s->mirror);
    s->mirror = NULL;
    wb__mutex_unlock(&tensor_mirrors);
}

WB__PROGRAM_CALL(release_call, release_run, int,
                 const wb__storage *s;,
                 (c->s->release(c->s->data, c->s->context), 0))

void wb__storage_unref(wb__storage *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
    wb__free(s->mirror);
    wb__forms_drop(s);
    if (!s->borrowed) s->device->backend->release(s->device, s->data, s->bytes);
    else if (s->release) {
        wb__this_thread()->program_calls++;
        wb__call_program(release_run, &(release_call){s, 0});
    }
    wb__pool_put(s, sizeof *s);
}

/* ---- unconsumed results: unevaluated tensors without consumers, in a ring of each thread ----- */

void wb__unconsumed_add(wb__thread *t, wb_tensor *x)
{
    if (x->flags & WB__IS_UNCONSUMED || !x->n_in) return;    /* else it can always be evaluated */
    if (t->unconsumed) {
        x->next_unconsumed = t->unconsumed;
        x->prev_unconsumed = t->unconsumed->prev_unconsumed;
        x->prev_unconsumed->next_unconsumed = x;
        t->unconsumed->prev_unconsumed = x;
    } else {
        t->unconsumed = x->next_unconsumed = x->prev_unconsumed = x;
    }
    x->flags |= WB__IS_UNCONSUMED;
}

void wb__unconsumed_remove(wb_tensor *x)
{
    if (!(x->flags & WB__IS_UNCONSUMED)) return;
    wb__thread *t = wb__this_thread();
    x->flags &= (uint16_t)~WB__IS_UNCONSUMED;
    if (x->next_unconsumed == x) {
        if (t->unconsumed == x) t->unconsumed = NULL;
        return;
    }
    x->prev_unconsumed->next_unconsumed = x->next_unconsumed;
    x->next_unconsumed->prev_unconsumed = x->prev_unconsumed;
    if (t->unconsumed == x) t->unconsumed = x->next_unconsumed;
}

/* ---- devices --------------------------------------------------------------------------------- */

const wb_device *wb__use_device(const wb_device *d)
{
    wb__thread *t = wb__this_thread();
    const wb_device *was = t->device;
    t->device = d;
    return was;
}

const wb_device *wb_default_device(void)
{
    const wb_device *d = wb__this_thread()->device;
    return d ? d : &wb__cpu;
}

void wb_set_default_device(const wb_device *d)
{
    if (wb__is_device("set_default_device", d)) wb__use_device(d);
}

const wb_device *wb__device_of(const wb_tensor *x)
{
    return x->device ? x->device : x->storage ? x->storage->device : wb_default_device();
}

void *wb__memory_of(const wb_tensor *x, int64_t at, size_t *offset)
{
    const wb__storage *s = x->storage;
    const int64_t first = at + (x->op == WB__OP_variable ? 0 : x->offset);
    const bool pointer = s->device->backend->host_visible;
    *offset = pointer ? 0 : (size_t)first;
    return pointer ? (char *)s->data + first : s->data;
}

bool wb__one_device(const char *what, const wb_tensor *x, const wb_tensor *y)
{
    if (!x->device || !y->device || x->device == y->device) return true;
    wb__fail(WB_ERROR_DEVICE,
             "%s: %s and %s are on two devices, %s:%d and %s:%d: move one to the other, as in "
             "y = wb_to(y, wb_device_of(x))",
             what, wb_describe(x), wb_describe(y), x->device->backend->tag, x->device->ordinal,
             y->device->backend->tag, y->device->ordinal);
    return false;
}

/* Sets *device to the device of a new node.  This is the device of its operands, or NULL if no
 * operand has one.  Without operands it is the thread's default device, or NULL for literals and
 * iota.  False, with the error set: two operands are on different devices. */
static bool tensor_find_device(wb__op op, int n_in, wb_tensor *const *in, const wb_device **device)
{
    const wb_tensor *first = NULL;
    *device = NULL;
    for (int i = 0; i < n_in; i++) {
        if (!in[i]->device || in[i]->device == *device) continue;
        if (first && !wb__one_device(wb__ops[op].name, first, in[i])) return false;
        first = in[i];
        *device = first->device;
    }
    if (!n_in && op != WB__OP_literal && op != WB__OP_iota) *device = wb_default_device();
    return true;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Returns the version of variable v that a new node reads, which then has one more consumer.  NULL:
 * another thread trains v. */
static wb_tensor *consume_version(const char *what, wb_tensor *v)
{
    const int forks = wb__fork_number();
    const bool alone = wb__alone_begin();
    const wb__reading reads = alone ? WB__READS_OWN : wb__read_begin(v, what);
    if (!reads) return NULL;
    wb_tensor *version = v->current;
    atomic_fetch_add_explicit(&version->object.counts, WB__CONSUMER, memory_order_relaxed);
    if (alone) wb__alone_end();
    else if (reads == WB__READS_COUNTED) wb__read_end(v, forks);
    return version;
}

/* Drops x's references to its inputs. */
static inline void tensor_unref_inputs(wb_tensor *x)
{
    for (uint32_t i = 0; i < x->n_in; i++) {
        wb_tensor *in = x->in[i];
        /* an unevaluated input that loses its last consumer becomes an unconsumed result */
        const bool waits = !wb__has_storage(in) && !wb__is_gone(in);
        const uint64_t left = wb__drop(&in->object, WB__CONSUMER);
        if (!waits || !left || left >> 32) continue;
        wb__thread *t = wb__this_thread();
        if (!t->cutting) wb__unconsumed_add(t, in);
    }
    x->n_in = 0;
}

static void tensor_drop_inputs(wb_tensor *x)
{
    tensor_unref_inputs(x);
    if (wb__unlikely(x->op == WB__OP_custom)) wb__custom_end(x);
}

/* Drops the references between v and its versions. */
static void unlink_variable(wb_tensor *v)
{
    for (wb_tensor *a = v->current; a && a->flags & WB__PENDING; a = a->live) a->variable = NULL;
    if (v->live) v->live->variable = NULL;
    if (v->current) v->current->variable = NULL;
    wb__unref(v->live);
    wb__unref(v->current);
}

/* Frees a tensor and the inputs that only this tensor holds, without recursion, since a graph may
 * be a chain of any length: tensors whose last reference is dropped meanwhile wait in a list. */
static void tensor_destroy(void *object)
{
    static _Thread_local wb_tensor *waiting;
    static _Thread_local bool busy;
    wb_tensor *x = object;
    wb__unconsumed_remove(x);
    x->next_dead = waiting;
    waiting = x;
    if (busy) return;
    busy = true;
    while (waiting) {
        x = waiting;
        waiting = x->next_dead;
        tensor_drop_inputs(x);
        wb__storage_unref(x->storage);
        if (x->op == WB__OP_variable) unlink_variable(x);
        if (wb__unlikely(x->flags & WB__KEPT)) wb__unref(x->variable);
        wb__object_end(x, x->bytes);
    }
    busy = false;
}

wb_tensor *wb__node_with(wb__op op, wb_dtype dtype, int ndim, const int64_t *dims, int n_in,
                         wb_tensor *const *in, int n_attr, const int64_t *attr, int n_numbers,
                         const wb__number *numbers)
{
    size_t bytes =
        sizeof(wb_tensor) + (size_t)n_in * sizeof(wb_tensor *) + (size_t)n_attr * sizeof(int64_t);
    const wb_device *device;
    wb_tensor *x = tensor_find_device(op, n_in, in, &device) ? wb__pool_get(bytes) : NULL;
    if (!x) return NULL;
    memset(x, 0, bytes);                /* a call for a size that is no constant, which is faster */
    x->object.class = &wb__tensor_class;
    atomic_init(&x->object.counts, 1);
    x->op = (uint16_t)op;
    x->dtype = (uint8_t)dtype;
    x->ndim = (uint8_t)ndim;
    x->n_attr = (uint16_t)n_attr;
    x->bytes = (uint32_t)bytes;
    x->device = device;
    x->attr = (int64_t *)(x + 1);
    x->in = (wb_tensor **)(x->attr + n_attr);
    x->size = 1;
    for (int i = 0; i < ndim; i++) x->size *= x->dims[i] = dims[i];
    if (n_attr) memcpy(x->attr, attr, (size_t)n_attr * sizeof *attr);
    x->n_numbers = (uint8_t)n_numbers;
    for (int i = 0; i < n_numbers; i++) x->number[i] = numbers[i];
    x->n_in = (uint32_t)n_in;
    wb_tensor **operand = x->in;
    for (int i = 0; i < n_in; i++) {
        wb_tensor *bound = operand[i] = in[i];
        if (wb__likely(bound->op != WB__OP_variable)) {
            atomic_fetch_add_explicit(&bound->object.counts, WB__CONSUMER, memory_order_relaxed);
        } else if (!(bound = operand[i] = consume_version(wb__ops[op].name, bound))) {
            x->n_in = (uint32_t)i;
            tensor_unref_inputs(x);
            wb__pool_put(x, bytes);
            return NULL;
        }
        if ((bound->flags & (WB__IS_UNCONSUMED | WB__HELD)) == WB__IS_UNCONSUMED)
            wb__unconsumed_remove(bound);
    }
    wb__thread *t = wb__this_thread();
    x->recorded = t->recorded;
    if (op != WB__OP_constant && op != WB__OP_variable) wb__unconsumed_add(t, x);
    return wb__scope_add(t, x);
}

wb_tensor *wb__made(wb_tensor *x)
{
    const wb__thread *t = wb__this_thread();
    if (wb__likely(!t->eager) || !x || !x->device || t->recording) return x;
    return wb__engine.evaluate(1, &x, NULL) ? NULL : x;
}

wb_tensor *wb__node(wb__op op, wb_dtype dtype, int ndim, const int64_t *dims, int n_in,
                    wb_tensor *const *in, int n_attr, const int64_t *attr)
{
    wb_tensor *x = wb__node_with(op, dtype, ndim, dims, n_in, in, n_attr, attr, 0, NULL);
    wb__thread *t = wb__this_thread();
    if (wb__unlikely(++t->made > WB__MOST_UNEVALUATED) && x && wb__engine.evaluate_overgrown(t))
        return NULL;
    return op == WB__OP_constant || op == WB__OP_variable ? x : wb__made(x);
}

wb_tensor *wb__unchanged(wb_tensor *x)
{
    if (x->op != WB__OP_variable) return x;
    return wb__node(WB__OP_reshape, (wb_dtype)x->dtype, x->ndim, x->dims, 1, &x, 0, NULL);
}

wb_tensor *wb__with_device(wb_tensor *x, const wb_device *d)
{
    if (!x || x->device || !d) return x;
    wb_tensor *made =
        wb__node(WB__OP_reshape, (wb_dtype)x->dtype, x->ndim, x->dims, 1, &x, 0, NULL);
    if (made) made->device = d;
    return made;
}

/* Binds x, if it is evaluated and has no device, to the device of its storage.  A 0-d literal stays
 * without a device. */
static void tensor_bind_device(wb_tensor *x)
{
    if (!x->device && x->storage && (x->op != WB__OP_literal || x->ndim))
        x->device = x->storage->device;
}

void wb__tensor_detach(wb_tensor *x)
{
    tensor_bind_device(x);
    tensor_drop_inputs(x);
}

void wb__set_storage(wb_tensor *x, wb__storage *s, int64_t offset)
{
    wb__storage_unref(x->storage);
    x->storage = s;
    x->offset = offset;
    if (!wb__consumers(x)) tensor_bind_device(x);
    wb__unconsumed_remove(x);
}

wb_tensor *wb__constant_on(wb__storage *s, int64_t offset, const wb_tensor *like)
{
    wb_tensor *x = wb__node(WB__OP_constant, (wb_dtype)like->dtype, like->ndim, like->dims, 0, NULL,
                            0, NULL);
    if (!x) return NULL;
    x->device = s->device;
    x->storage = wb__storage_ref(s);
    x->offset = offset;
    return x;
}

wb_tensor *wb__empty_on(const wb_device *d, wb_dtype dtype, int ndim, const int64_t *dims)
{
    if (!d->backend->has_dtype(d, dtype))
        return wb__fail_null(WB_ERROR_UNSUPPORTED, "%s:%d has no %s: create the tensor on the CPU"
                             " (wb_set_default_device(wb_cpu_device())); wb_to makes f32 of it",
                             d->backend->tag, d->ordinal, wb_dtype_name(dtype));
    wb_tensor *x = wb__node(WB__OP_constant, dtype, ndim, dims, 0, NULL, 0, NULL);
    if (!x) return NULL;
    x->device = d;
    x->storage = wb__storage_new(x->device, (size_t)x->size * wb__dtype_size(dtype));
    if (x->storage) return x;
    wb_object_free(x);
    return NULL;
}

static wb_tensor *tensor_literal(double value, wb_dtype dtype, int flags)
{
    wb_tensor *x = wb__node_with(WB__OP_literal, dtype, 0, NULL, 0, NULL, 0, NULL, 1,
                                 &(wb__number){.f = value});
    if (x) x->flags |= (uint16_t)flags;
    return x;
}

wb_tensor *wb__literal(double value, wb_dtype dtype) { return tensor_literal(value, dtype,
                                                                             WB__FIXED); }
wb_tensor *wb__argument(double value, wb_dtype dtype) { return tensor_literal(value, dtype, 0); }
wb_tensor *wb__number_of(double value) { return tensor_literal(value, WB_F32,
                                                               WB__FIXED | WB__WEAK); }
wb_tensor *wb_scalar(double value) { return tensor_literal(value, WB_F32, WB__WEAK); }

wb_tensor *wb_scalar_int(int64_t value)
{
    const double real = (double)value;
    if (real < 0x1p63 && (int64_t)real == value) return wb_scalar(real);
    return wb__fail_null(WB_ERROR_ARGUMENT,
                         "scalar: numbers are doubles, which do not hold %lld: make an i64 tensor "
                         "of it with wb_from", (long long)value);
}

/* Whether `data` of the host can become a tensor of these dimensions.  If so, sets *size to the
 * number of elements.  Else sets the error. */
static bool host_data(const char *what, const void *data, wb_dtype dtype, int ndim,
                      const int64_t *dims, int64_t *size)
{
    if (!wb__check_dims(what, ndim, dims, size) || !wb__is_dtype(what, dtype)) return false;
    if (!data && *size) wb__fail(WB_ERROR_ARGUMENT, "%s: no data", what);
    return data || !*size;
}

wb_tensor *(wb_from)(const void *data, wb_dtype dtype, int ndim, const int64_t *dims)
{
    int64_t size;
    if (!host_data("from", data, dtype, ndim, dims, &size)) return NULL;
    wb_tensor *x = wb__empty_on(wb_default_device(), dtype, ndim, dims);
    if (!x || !size || !x->device->backend->upload(x->device, x->storage->data, 0, data,
                                                   (size_t)size * wb__dtype_size(dtype)))
        return x;
    wb_object_free(x);
    return NULL;
}

wb_tensor *wb__borrow_on(const wb_device *d, void *memory, wb_dtype dtype, int ndim,
                         const int64_t *dims, void (*release)(void *memory, void *context),
                         void *context)
{
    wb__storage *s = wb__pool_get(sizeof *s);
    if (!s) return NULL;
    wb_tensor *x = wb__node(WB__OP_constant, dtype, ndim, dims, 0, NULL, 0, NULL);
    if (!x) {
        wb__pool_put(s, sizeof *s);
        return NULL;
    }
    x->device = d;
    *s = (wb__storage){.data = memory, .borrowed = true, .device = d,
                       .bytes = (size_t)x->size * wb__dtype_size(dtype), .release = release,
                       .context = context};
    atomic_init(&s->refs, 1);
    x->storage = s;
    return x;
}

wb_tensor *(wb_borrow)(void *data, wb_dtype dtype, int ndim, const int64_t *dims,
                       void (*release)(void *data, void *context), void *context)
{
    int64_t size;
    if (!host_data("borrow", data, dtype, ndim, dims, &size)) return NULL;
    const wb_device *d = wb_default_device();
    if (!d->backend->host_visible) d = &wb__cpu;
    return wb__borrow_on(d, data, dtype, ndim, dims, release, context);
}

/* ---- descriptions ---------------------------------------------------------------------------- */

static bool is_tensor(const char *what, const wb_tensor *x)
{
    return wb__expect(what, x, &wb__tensor_class);
}

int wb_ndim(const wb_tensor *x) { return x != &tensor_none && is_tensor("ndim", x) ? x->ndim : -1; }
const int64_t *wb_dims(const wb_tensor *x) { return is_tensor("dims", x) ? x->dims : NULL; }
int64_t wb_size(const wb_tensor *x) { return is_tensor("size", x) ? x->size : -1; }
wb_dtype wb_dtype_of(const wb_tensor *x)
{
    return is_tensor("dtype_of", x) ? (wb_dtype)x->dtype : WB_DTYPE_DEFAULT;
}

int64_t wb_dim(const wb_tensor *x, int axis)
{
    if (x == &tensor_none || !is_tensor("dim", x)) return -1;
    const int a = wb__axis("dim", x, axis);
    return a < 0 ? -1 : x->dims[a];
}

const char *wb_describe(const wb_tensor *x)
{
    enum { RING = 8, EACH = 128 };
    static _Thread_local unsigned turn;
    if (!x) return "NULL";
    if (x == &tensor_none) return "none";
    /* without a class, it is a description that the library itself has filled in */
    if (wb__unlikely(x->object.class && x->object.class != &wb__tensor_class)) return wb__kind(x);
    char *text = wb__thread_text(WB__TEXT_TENSORS) + turn++ % RING * EACH;
    size_t n = 0, capacity = EACH;
    n += (size_t)snprintf(text, capacity, "[");
    for (int i = 0; i < x->ndim && n < capacity; i++)
        n += (size_t)snprintf(text + n, capacity - n, i ? ",%lld" : "%lld", (long long)x->dims[i]);
    if (n < capacity)
        n += (size_t)snprintf(text + n, capacity - n, "] %s", wb_dtype_name((wb_dtype)x->dtype));
    if (n < capacity && x->device && x->device != &wb__cpu)
        snprintf(text + n, capacity - n, " %s:%d", x->device->backend->tag, x->device->ordinal);
    return text;
}
