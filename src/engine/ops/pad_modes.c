/* wb_pad: padding with a number, or with elements of the tensor itself. */
#include "base/options.h"
#include "engine/ops/op.h"

#include <string.h>

static const char *const pad_names[] = {"WB_PAD_CONSTANT", "WB_PAD_REFLECT", "WB_PAD_REPLICATE",
                                        "WB_PAD_SYMMETRIC", "WB_PAD_CIRCULAR"};

/* Returns the most elements that a mode can add at an end of an axis of n elements. */
static int64_t most_padding(wb_pad_mode mode, int64_t n)
{
    switch (mode) {
    case WB_PAD_REFLECT: return WB__MAX(n - 1, 0);
    case WB_PAD_SYMMETRIC: case WB_PAD_CIRCULAR: return n;
    case WB_PAD_REPLICATE: return n ? UINT32_MAX : 0;
    default: return UINT32_MAX;
    }
}

static bool pad_read(const wb_tensor *x, int axis, int64_t before, int64_t after,
                     const wb_pad_options *given, wb_pad_options *o)
{
    if (!wb__read_options("pad", wb_pad_options, o, given, NULL)) return false;
    if ((unsigned)o->mode >= WB__COUNT(pad_names))
        return !wb__fail(WB_ERROR_ARGUMENT, "pad: .mode is %d; it is one of WB_PAD_CONSTANT to "
                         "WB_PAD_CIRCULAR", (int)o->mode);
    if (o->value != 0 && o->mode != WB_PAD_CONSTANT)
        return !wb__fail(WB_ERROR_ARGUMENT, "pad: .value is %g, but %s adds elements of x",
                         o->value, pad_names[o->mode]);
    if (!wb__dtype_float((wb_dtype)x->dtype) && !wb__holds((wb_dtype)x->dtype, o->value))
        return !wb__fail(WB_ERROR_DTYPE, "pad: .value %g does not fit into %s", o->value,
                         wb_describe(x));
    const int64_t limit = most_padding(o->mode, x->dims[axis]);
    if (before >= 0 && after >= 0 && before <= limit && after <= limit) return true;
    return !wb__fail(WB_ERROR_SHAPE, "pad: %lld before and %lld after axis %d of %s; %s adds 0 to "
                     "%lld at an end", (long long)before, (long long)after, axis, wb_describe(x),
                     pad_names[o->mode], (long long)limit);
}

/* Returns the `count` elements that the mode puts before the axis, or behind it. */
static wb_tensor *elements_of_margin(wb_tensor *x, int axis, int64_t count, bool behind,
                                     const wb_pad_options *o)
{
    const int64_t n = x->dims[axis];
    int64_t dims[WB_MAX_DIMS];
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = count;
    switch (o->mode) {
    case WB_PAD_CONSTANT: return wb_full_array(o->value, (wb_dtype)x->dtype, x->ndim, dims);
    case WB_PAD_REPLICATE:
        return wb_expand_array(wb_slice(x, axis, behind ? n - 1 : 0, behind ? n : 1), x->ndim,
                               dims);
    case WB_PAD_CIRCULAR: return wb_slice(x, axis, behind ? 0 : n - count, behind ? count : n);
    default: break;
    }
    const int64_t skipped = o->mode == WB_PAD_REFLECT;
    return wb_flip(behind ? wb_slice(x, axis, n - skipped - count, n - skipped)
                          : wb_slice(x, axis, skipped, skipped + count), axis);
}

static wb_tensor *pad_axis(wb_tensor *x, int axis, int64_t before, int64_t after,
                           const wb_pad_options *given)
{
    wb_pad_options o;
    const int a = wb__axis("pad", x, axis);
    if (a < 0 || !pad_read(x, a, before, after, given, &o)) return NULL;
    if (o.mode == WB_PAD_CONSTANT && o.value == 0) return wb__pad_zeros(x, a, before, after);
    if (!before && !after) return wb__unchanged(x);
    wb_tensor *part[3];
    int n = 0;
    if (before) part[n++] = elements_of_margin(x, a, before, false, &o);
    part[n++] = x;
    if (after) part[n++] = elements_of_margin(x, a, after, true, &o);
    for (int i = 0; i < n; i++)
        if (!part[i]) return NULL;
    return wb_concat_array(a, n, part);
}

wb_tensor *wb_pad_with(wb_tensor *x, int axis, int64_t before, int64_t after,
                       const wb_pad_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, pad_axis(x, axis, before, after, o));
}
