/* Copies between devices.  wb_to copies to another device during the call, not at the next
 * evaluation.  Its result has the source as an input, so that gradients pass through. */
#include "engine/evaluate.h"
#include "engine/gradient/gradient.h"
#include "engine/request.h"

#include <string.h>

static int copy_through_host(const wb_device *to_device, void *to, size_t to_at,
                             const wb_device *from_device, const void *from, size_t from_at,
                             size_t bytes)
{
    const wb__backend *b = from_device->backend;
    const void *all = NULL;
    int status = b->map ? b->map(from_device, from, &all) : WB_ERROR_UNSUPPORTED;
    if (!status)
        return to_device->backend->upload(to_device, to, to_at, (const char *)all + from_at, bytes);
    if (status != WB_ERROR_UNSUPPORTED) return status;
    void *stage = wb__alloc_aligned(bytes);
    if (!stage) return WB_ERROR_MEMORY;
    status = b->download(from_device, stage, from, from_at, bytes);
    if (!status) status = to_device->backend->upload(to_device, to, to_at, stage, bytes);
    wb__free(stage);
    return status;
}

int wb__copy_bytes(const wb_device *to_device, void *to, size_t to_at, const wb_device *from_device,
                   const void *from, size_t from_at, size_t bytes)
{
    const wb__backend *into = to_device->backend, *out_of = from_device->backend;
    if (!bytes) return 0;
    if (out_of->host_visible)
        return into->upload(to_device, to, to_at, (const char *)from + from_at, bytes);
    if (into->host_visible)
        return out_of->download(from_device, (char *)to + to_at, from, from_at, bytes);
    int status = WB_ERROR_UNSUPPORTED;
    if (into == out_of)
        status = into->copy(to_device, to, to_at, from_device, from, from_at, bytes);
    if (status != WB_ERROR_UNSUPPORTED) return status;
    return copy_through_host(to_device, to, to_at, from_device, from, from_at, bytes);
}

/* Returns wb__bind(x), evaluated; NULL: failed.  If x has no device, returns an evaluated copy, so
 * that x stays without a device. */
static wb_tensor *evaluated_for_move(wb_tensor *x)
{
    wb_tensor *bound = wb__with_device(wb__bind(x), wb_default_device());
    if (!bound) return NULL;
    return bound->storage || !wb__evaluate(1, &bound, NULL) ? bound : NULL;
}

wb_tensor *wb__as_constant(const wb_tensor *x) { return wb__constant_on(x->storage, x->offset, x); }

wb_tensor *wb__constant_of(const char *what, wb_tensor *x)
{
    wb__value_read r;
    const wb_tensor *bound = wb__bind_begin(what, x, &r);
    wb_tensor *made = bound && bound->storage ? wb__as_constant(bound) : NULL;
    if (bound && wb__is_gone(bound)) wb__gone(bound);
    wb__value_end(&r);
    return made;
}

static wb_tensor *copy_to_device(wb_tensor *x, const wb_device *d)
{
    wb_tensor *from = evaluated_for_move(x);
    if (from && from->storage->device != d && wb__guard_confirm_for(from->storage)) return NULL;
    wb_tensor *made = from ? wb__empty_on(d, (wb_dtype)x->dtype, x->ndim, x->dims) : NULL;
    if (!made) return NULL;
    if (!wb__copy_bytes(d, made->storage->data, 0, from->storage->device, from->storage->data,
                        (size_t)from->offset,
                        (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype)))
        return made;
    wb_object_free(made);
    return NULL;
}

wb_tensor *wb__copied(wb_tensor *x, const wb_device *d)
{
    wb__value_read r;
    wb_tensor *made = wb__bind_begin("copy", x, &r) ? copy_to_device(x, d) : NULL;
    wb__value_end(&r);
    return made;
}

wb_dtype wb__dtype_on(const wb_device *d, wb_dtype from, wb_dtype wanted)
{
    wb_dtype t = from;
    if (wb__dtype_float(from) && wanted != WB_DTYPE_KEEP) {
        if (wanted) t = wanted;
        else if (from == WB_F64 && d->backend->narrows_f64) t = WB_F32;
    }
    if (d->backend->has_dtype(d, t)) return t;
    wb__fail(WB_ERROR_UNSUPPORTED, "to: %s:%d has no %s; without .dtype = %s it becomes f32",
             d->backend->tag, d->ordinal, wb_dtype_name(t),
             wanted == WB_DTYPE_KEEP ? "WB_DTYPE_KEEP"
             : wanted == WB_F64 ? "WB_F64" : "this dtype");
    return WB_DTYPE_DEFAULT;
}

wb_tensor *wb__converted(wb_tensor *x, wb_dtype t, const wb_device *d)
{
    if (t == (wb_dtype)x->dtype) return x;
    if (!x->device || x->device->backend->has_dtype(x->device, t)) return wb_astype(x, t);
    return wb_astype(wb__tensor_to(x, d, WB_DTYPE_KEEP), t);
}

wb_tensor *wb__tensor_to(wb_tensor *x, const wb_device *d, wb_dtype wanted)
{
    if (!x || wb_is_none(x)) return x;
    if (wanted != WB_DTYPE_DEFAULT && wanted != WB_DTYPE_KEEP && !wb__dtype_float(wanted))
        return wb__fail_null(WB_ERROR_DTYPE,
                             "to: .dtype is %s; it must be floating, or WB_DTYPE_KEEP",
                             wb_dtype_name(wanted));
    const bool there = x->device == d;
    wb_dtype t = (wb_dtype)x->dtype;
    if (!there || wanted) t = wb__dtype_on(d, t, wanted);
    if (!t) return NULL;
    if (there && t == (wb_dtype)x->dtype) return x;
    if (there) return wb_astype(x, t);
    WB__FIRST(wb_object_to, NULL);
    const wb_device *was = wb__use_device(x->device ? x->device : d);
    wb_tensor *narrow = wb__converted(x, t, d);
    const bool arrived = narrow && x->device && narrow->device == d;
    wb_tensor *made = narrow && !arrived ? wb__copied(narrow, d) : NULL;
    wb__use_device(was);
    if (arrived) return narrow;
    if (!made) return NULL;
    wb_tensor *moved =
        wb__node_with(WB__OP_moved, t, x->ndim, x->dims, 1, &narrow, 0, NULL, 0, NULL);
    if (!moved) return NULL;
    moved->device = d;
    wb__set_storage(moved, wb__storage_ref(made->storage), 0);
    wb_object_free(made);
    return moved;
}

void *wb__tensor_moved(void *x, const wb_device *d, wb_dtype wanted)
{
    return wb__tensor_to(x, d, wanted);
}

/* Moves the gradient to the device of the operand, and so evaluates the gradient. */
void wb__grad_moved(wb__gradient_walk *w, wb_tensor *node, wb_tensor *g, const bool *wanted,
                    wb_tensor **out)
{
    (void)w;
    if (wanted[0]) out[0] = wb__tensor_to(g, wb__device_of(node->in[0]), WB_DTYPE_KEEP);
}

int wb__take_memory(wb_tensor *v)
{
    wb__storage *lent = v->storage, *s = wb__storage_new(v->device, lent->bytes);
    if (!s) return WB_ERROR_MEMORY;
    const int status =
        wb__copy_bytes(v->device, s->data, 0, lent->device, lent->data, 0, lent->bytes);
    if (status) {
        wb__storage_unref(s);
        return status;
    }
    v->storage = s;
    v->live->storage = wb__storage_ref(s);
    wb__storage_unref(lent);
    wb__storage_unref(lent);
    return 0;
}

int wb__overwrite(wb_tensor *v, const void *values, size_t bytes)
{
    if (bytes != (size_t)v->size * wb__dtype_size((wb_dtype)v->dtype))
        return wb__fail(WB_ERROR_SHAPE, "%zu bytes for %s", bytes, wb_describe(v));
    if (wb__guard_confirm()) return wb_error_code();
    int status = wb__claim(v, "load");
    if (status) return status;
    if (v->current != v->live) status = wb__evaluate(0, NULL, NULL);
    if (!status) status = wb__own_memory(v);
    if (!status) wb__storage_written(v->storage);
    if (!status && bytes)
        status = v->device->backend->upload(v->device, v->storage->data, 0, values, bytes);
    wb__unclaim(v);
    return status;
}
