/* Upsample: more elements of space, by the nearest element or by linear interpolation along each
 * axis of space. */
#include "nn/space.h"

static void upsample_sizes_around(const wb_tensor *x, int axis, int64_t *outer, int64_t *inner)
{
    *outer = *inner = 1;
    for (int i = 0; i < x->ndim; i++) *(i < axis ? outer : inner) *= i == axis ? 1 : x->dims[i];
}

wb_tensor *wb__along_axis(wb_tensor *x, int axis, wb_tensor *weights)
{
    int64_t dims[WB_MAX_DIMS], outer, inner;
    if (!x || !weights) return NULL;
    weights = wb__as(weights, (wb_dtype)x->dtype);
    if (axis == x->ndim - 1) return wb_linear(x, weights, WB_NONE);
    upsample_sizes_around(x, axis, &outer, &inner);
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = weights->dims[0];
    const int64_t three[3] = {outer, x->dims[axis], inner};
    wb_tensor *y = wb_matmul(weights, wb_reshape_array(x, 3, three));
    return y ? wb_reshape_array(y, x->ndim, dims) : NULL;
}

/* Returns `out` elements along the axis: element i is the one at its position in x, rounded
 * down. */
static wb_tensor *upsample_nearest(wb_tensor *x, int axis, int64_t out)
{
    int64_t dims[WB_MAX_DIMS], outer, inner;
    const int64_t in = x->dims[axis];
    upsample_sizes_around(x, axis, &outer, &inner);
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = out;
    if (out % in == 0) {
        const int64_t apart[4] = {outer, in, 1, inner}, wide[4] = {outer, in, out / in, inner};
        wb_tensor *y = wb_reshape_array(x, 4, apart);
        y = y ? wb_expand_array(y, 4, wide) : NULL;
        return y ? wb_reshape_array(y, x->ndim, dims) : NULL;
    }
    const int64_t three[3] = {outer, in, inner}, first[3] = {1, 0, 2};
    wb_tensor *index = wb_div(wb_mul(wb_arange(out, WB_I64), wb_scalar_int(in)),
                              wb_scalar_int(out));
    wb_tensor *rows = wb_reshape_array(x, 3, three);
    rows = rows ? wb_permute_array(rows, 3, first) : NULL;
    rows = rows && index ? wb_take(rows, index) : NULL;
    rows = rows ? wb_permute_array(rows, 3, first) : NULL;
    return rows ? wb_reshape_array(rows, x->ndim, dims) : NULL;
}

/* Returns the weights [out, in] of a linear interpolation.  Row i has 1 - |p - j| at column j if
 * that is positive, where p is the position of result i among the elements of the input. */
static wb_tensor *upsample_interpolation(int64_t in, int64_t out, bool corners, wb_dtype dtype)
{
    const double step = !corners ? (double)in / (double)out
                        : out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
    wb_tensor *p = wb_unsqueeze(wb_arange(out, dtype), -1);
    if (corners) p = wb_mul(p, wb_scalar(step));
    else p = wb_sub(wb_mul(wb_add(p, wb_scalar(0.5)), wb_scalar(step)), wb_scalar(0.5));
    p = wb_minimum(wb_maximum(p, wb_scalar(0)), wb_scalar((double)(in - 1)));
    wb_tensor *distance = wb_abs(wb_sub(p, wb_arange(in, dtype)));
    return wb_relu(wb_sub(wb_scalar(1), distance));
}

static wb_tensor *upsample_to_sizes(wb_tensor *x, const int64_t *out, const wb_upsample_options *o)
{
    for (int a = 2; x && a < x->ndim; a++) {
        const int64_t in = x->dims[a];
        if (out[a - 2] == in) continue;
        if (o->mode == WB_UPSAMPLE_NEAREST) {
            x = upsample_nearest(x, a, out[a - 2]);
            continue;
        }
        const wb_dtype wide = wb__computed_in((wb_dtype)x->dtype);
        x = wb__along_axis(x, a, upsample_interpolation(in, out[a - 2], o->align_corners, wide));
    }
    return x;
}

bool wb__has_space(const char *what, const wb_tensor *x)
{
    bool full = x->ndim >= 3 && x->ndim <= 5;
    for (int i = 2; full && i < x->ndim; i++) full = x->dims[i] > 0;
    if (full) return true;
    return wb__fail(WB_ERROR_SHAPE, "%s: expects [N,C,L], [N,C,H,W] or [N,C,D,H,W], got %s", what,
                    wb_describe(x)), false;
}

bool wb__for_each_axis(const char *what, const char *option, const wb_tensor *x,
                       const int64_t *list, int64_t *out)
{
    const int axes = x->ndim - 2;
    if (list[0] != 1 && list[0] != axes)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .%s has %d numbers; it has one, or one for each of "
                        "the %d axes of space of %s", what, option, (int)list[0], axes,
                        wb_describe(x)), false;
    for (int i = 0; i < axes; i++) out[i] = list[list[0] == 1 ? 1 : 1 + i];
    return true;
}

static bool upsample_is_mode(const char *what, int64_t mode)
{
    if (mode == WB_UPSAMPLE_NEAREST || mode == WB_UPSAMPLE_LINEAR) return true;
    return !wb__fail(WB_ERROR_ARGUMENT, "%s: .mode is %lld; it is WB_UPSAMPLE_NEAREST or "
                     "WB_UPSAMPLE_LINEAR", what, (long long)mode);
}

/* Sets *o to the options.  False, with the error set, if they do not fit together. */
static bool upsample_read_options(const char *what, wb_upsample_options *o,
                                  const wb_upsample_options *given)
{
    wb__given g;
    if (!wb__read_options(what, wb_upsample_options, o, given, &g) ||
        !wb__ints_read(what, &g, "scale", -1, o->scale, 3) ||
        !wb__ints_read(what, &g, "sizes", -1, o->sizes, 3))
        return false;
    if (!o->scale[0] == !o->sizes[0])
        return wb__fail(WB_ERROR_ARGUMENT, "%s: give one of .scale and .sizes", what), false;
    const int64_t *list = o->scale[0] ? o->scale : o->sizes;
    for (int i = 0; i < list[0]; i++)
        if (list[1 + i] < 1 || list[1 + i] > INT32_MAX)
            return wb__fail(WB_ERROR_ARGUMENT, "%s: .%s has %lld; its numbers are positive", what,
                            o->scale[0] ? "scale" : "sizes", (long long)list[1 + i]), false;
    if (!upsample_is_mode(what, o->mode)) return false;
    if (!o->align_corners && o->mode == WB_UPSAMPLE_NEAREST)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .align_corners is an option of "
                        "WB_UPSAMPLE_LINEAR", what), false;
    return true;
}

wb_tensor *wb_upsample_with(wb_tensor *x, const wb_upsample_options *given)
{
    const char *what = "upsample";
    wb_upsample_options o;
    int64_t out[3], dims[WB_MAX_DIMS], size;
    if (!wb__operand(what, x) || !upsample_read_options(what, &o, given) ||
        !wb__has_space(what, x) || (o.mode == WB_UPSAMPLE_LINEAR && !wb__floating(what, x)))
        return NULL;
    if (!wb__for_each_axis(what, o.scale[0] ? "scale" : "sizes", x,
                           o.scale[0] ? o.scale : o.sizes, out))
        return NULL;
    memcpy(dims, x->dims, sizeof dims);
    for (int i = 2; i < x->ndim; i++) dims[i] = out[i - 2] *= o.scale[0] ? x->dims[i] : 1;
    if (!wb__check_dims(what, x->ndim, dims, &size)) return NULL;
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, upsample_to_sizes(x, out, &o));
}

#define UPSAMPLE_OPTIONS(X)                                                                     \
    X(wb_Upsample_options, scale, INTS, 0) X(wb_Upsample_options, sizes, INTS, 0)               \
    X(wb_Upsample_options, mode, INT, 1) X(wb_Upsample_options, align_corners, BOOL, 1)
static const wb__option upsample_table[] = {UPSAMPLE_OPTIONS(WB__OPTION_ROW)};

static wb_upsample_options upsample_options_of(const wb_Upsample_options *o)
{
    wb_upsample_options s = WB__OPTIONS(wb_upsample_options, .align_corners = o->align_corners);
    s.mode = (wb_upsample_mode)o->mode;
    wb_ints_set(s.scale, (int)o->scale[0], o->scale + 1);
    wb_ints_set(s.sizes, (int)o->sizes[0], o->sizes + 1);
    return s;
}

static wb_tensor *upsample_call(wb_layer *l, int n, wb_tensor *const *x)
{
    if (!wb__one_input(l, n)) return NULL;
    const wb_upsample_options s = upsample_options_of(l->options);
    return wb_upsample_with(x[0], &s);
}

void wb__print_sizes(const int64_t *list, wb__text *t)
{
    if (list[0] == 1) wb__text_add(t, "%lld", (long long)list[1]);
    for (int i = 0; list[0] > 1 && i < list[0]; i++)
        wb__text_add(t, i ? ", %lld" : "(%lld", (long long)list[1 + i]);
    if (list[0] > 1) wb__text_add(t, ")");
}

static void upsample_print(const wb_layer *l, wb__text *t)
{
    const wb_Upsample_options *o = l->options;
    wb__text_add(t, "Upsample(%s, %s=", o->mode == WB_UPSAMPLE_LINEAR ? "linear" : "nearest",
                 o->scale[0] ? "scale" : "sizes");
    wb__print_sizes(o->scale[0] ? o->scale : o->sizes, t);
    wb__text_add(t, o->align_corners ? ")" : ", align_corners=false)");
}

WB__PLAIN_LAYER(upsample, "Upsample", wb_Upsample_options, upsample_table, wb_Upsample_with,
                .call = upsample_call, .print = upsample_print);

wb_layer *wb_Upsample_with(const wb_Upsample_options *given)
{
    WB__EDGE;
    wb_Upsample_options o;
    wb__given g;
    if (!wb__read_options("Upsample", wb_Upsample_options, &o, given, &g) ||
        !wb__ints_read("Upsample", &g, "scale", -1, o.scale, 3) ||
        !wb__ints_read("Upsample", &g, "sizes", -1, o.sizes, 3) ||
        !upsample_is_mode("Upsample", o.mode))
        return NULL;
    const wb_upsample_options s = upsample_options_of(&o);
    wb_upsample_options checked;
    return upsample_read_options("Upsample", &checked, &s) ? wb__layer_new(&wb__upsample_type, &o,
                                                                           0) : NULL;
}
