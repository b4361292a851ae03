/* One interface for oneDNN 2.x and 3.x.  All differences between the versions are in this file:
 *
 *     2.x   memory descriptors are structs; primitive descriptors need an operation descriptor
 *     3.x   memory descriptors are handles; primitive descriptors are created directly
 *
 * dnnl.c uses this interface. */
#ifndef WB__DNNL_API_H
#define WB__DNNL_API_H

#include <dnnl.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* wb__md is a memory descriptor that we own.  wb__md_ref refers to a wb__md, or to a memory
 * descriptor that belongs to a primitive descriptor. */
#if DNNL_VERSION_MAJOR >= 3
typedef struct { dnnl_memory_desc_t handle; } wb__md;
typedef const_dnnl_memory_desc_t wb__md_ref;
static inline wb__md_ref wb__md_of(const wb__md *d) { return d->handle; }
static inline void wb__md_drop(wb__md *d)
{
    if (d->handle) dnnl_memory_desc_destroy(d->handle);
    d->handle = NULL;
}
#else
typedef struct { dnnl_memory_desc_t desc; bool made; } wb__md;
typedef const dnnl_memory_desc_t *wb__md_ref;
static inline wb__md_ref wb__md_of(const wb__md *d) { return d->made ? &d->desc : NULL; }
static inline void wb__md_drop(wb__md *d) { d->made = false; }
#endif

static inline dnnl_status_t wb__md_strided(wb__md *d, int n, const int64_t *dims,
                                           dnnl_data_type_t type, const int64_t *strides)
{
    dnnl_dims_t size, step;
    for (int i = 0; i < n; i++) size[i] = dims[i], step[i] = strides[i];
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(&d->handle, n, size, type, step);
#else
    d->made = true;
    return dnnl_memory_desc_init_by_strides(&d->desc, n, size, type, step);
#endif
}

/* Makes a memory descriptor whose layout the primitive chooses. */
static inline dnnl_status_t wb__md_any(wb__md *d, int n, const int64_t *dims, dnnl_data_type_t type)
{
    dnnl_dims_t size;
    for (int i = 0; i < n; i++) size[i] = dims[i];
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_tag(&d->handle, n, size, type, dnnl_format_tag_any);
#else
    d->made = true;
    return dnnl_memory_desc_init_by_tag(&d->desc, n, size, type, dnnl_format_tag_any);
#endif
}

/* Copies the bytes of a memory descriptor to `to`, which has `size` bytes, and returns their
 * number.  0: they do not fit, or oneDNN does not give them. */
static inline size_t wb__md_bytes(wb__md_ref d, void *to, size_t size)
{
#if DNNL_VERSION_MAJOR >= 3
    size_t bytes = 0;
    if (dnnl_memory_desc_get_blob(NULL, &bytes, d) || bytes > size) return 0;
    return dnnl_memory_desc_get_blob((uint8_t *)to, &bytes, d) ? 0 : bytes;
#else
    if (sizeof *d > size) return 0;
    memcpy(to, d, sizeof *d);
    return sizeof *d;
#endif
}

static inline dnnl_status_t wb__append_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t kind)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_eltwise(ops, kind, 0, 0);
#else
    return dnnl_post_ops_append_eltwise(ops, 1, kind, 0, 0);
#endif
}

static inline dnnl_status_t wb__matmul_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                          wb__md_ref a, wb__md_ref b, wb__md_ref bias, wb__md_ref c,
                                          const_dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(pd, engine, a, b, bias, c, attr);
#else
    dnnl_matmul_desc_t d;
    dnnl_status_t s = dnnl_matmul_desc_init(&d, a, b, bias, c);
    return s ? s : dnnl_primitive_desc_create(pd, &d, attr, engine, NULL);
#endif
}

/* Creates the primitive descriptor of a convolution or a gradient.  hint: the descriptor of the
 * forward convolution, which a gradient needs, else NULL. */
static inline dnnl_status_t wb__conv_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                        wb__conv_kind kind, wb__md_ref x, wb__md_ref w,
                                        wb__md_ref bias, wb__md_ref y, const dnnl_dims_t strides,
                                        const dnnl_dims_t dilates, const dnnl_dims_t low,
                                        const dnnl_dims_t high, dnnl_primitive_desc_t hint,
                                        const_dnnl_primitive_attr_t attr)
{
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
    if (kind == WB__CONV_FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training,
                                                              direct, x, w, bias, y, strides,
                                                              dilates, low, high, attr);
    if (kind == WB__CONV_GRAD_INPUT)
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, direct, x, w, y, strides, dilates, low, high, hint, attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, engine, direct, x, w, bias, y, strides, dilates, low, high, hint, attr);
#else
    dnnl_convolution_desc_t d;
    dnnl_status_t s =
        kind == WB__CONV_FORWARD ? dnnl_dilated_convolution_forward_desc_init(
            &d, dnnl_forward_training, direct, x, w, bias, y, strides, dilates, low, high)
        : kind == WB__CONV_GRAD_INPUT ? dnnl_dilated_convolution_backward_data_desc_init(
            &d, direct, x, w, y, strides, dilates, low, high)
        : dnnl_dilated_convolution_backward_weights_desc_init(&d, direct, x, w, bias, y, strides,
                                                              dilates, low, high);
    return s ? s : dnnl_primitive_desc_create(pd, &d, attr, engine, hint);
#endif
}

#endif
