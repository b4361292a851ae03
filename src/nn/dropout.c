/* Dropout: in train mode, sets random elements (or whole slices) to zero. */
#include "nn/layer.h"

#define OPTIONS(X) X(wb_Dropout_options, p, REAL, 1) X(wb_Dropout_options, axes, INTS, 0)
static const wb__option option_table[] = {OPTIONS(WB__OPTION_ROW)};

/* Draws one random number for each combination of indices along the axes o->axes. All elements with
 * the same indices along these axes are kept or dropped together. */
static wb_tensor *drop_slices(wb_tensor *x, const wb_Dropout_options *o)
{
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) dims[i] = 1;
    for (int i = 0; i < o->axes[0]; i++) {
        int axis = wb__axis("Dropout", x, o->axes[1 + i]);
        if (axis < 0) return NULL;
        dims[axis] = x->dims[axis];
    }
    wb_dtype draws = x->dtype == WB_F64 ? WB_F64 : WB_F32;
    wb_tensor *keep = wb_ge(wb__uniform_beside(x, draws, x->ndim, dims), wb_scalar(o->p));
    return wb_where(keep, wb_mul(x, wb_scalar(o->p < 1 ? 1 / (1 - o->p) : 0)), wb_scalar(0));
}

static wb_tensor *call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_Dropout_options *o = l->options;
    wb_tensor *x = inputs[0];
    if (!wb__one_input(l, n) || !wb__floating("Dropout", x)) return NULL;
    bool automatic, train = wb__train_mode(l, &automatic);
    if (o->p == 0) return x;
    if (!train) return automatic ? wb__mark_automatic(x, "Dropout") : x;
    return o->axes[0] ? drop_slices(x, o) : wb_dropout(x, o->p);
}

static void print(const wb_layer *l, wb__text *t)
{
    const wb_Dropout_options *o = l->options;
    wb__text_add(t, "Dropout(%g", o->p);
    if (o->axes[0] == 1) wb__text_add(t, ", axes=%d", (int)o->axes[1]);
    for (int i = 0; o->axes[0] > 1 && i < o->axes[0]; i++)
        wb__text_add(t, i ? ", %d" : ", axes=(%d", (int)o->axes[1 + i]);
    if (o->axes[0] > 1) wb__text_add(t, ")");
    if (l->mode != WB__MODE_AUTO)
        wb__text_add(t, ", active=%s", l->mode == WB__MODE_TRAIN ? "true" : "false");
    wb__text_add(t, ")");
}

WB__PLAIN_LAYER(dropout, "Dropout", wb_Dropout_options, option_table, wb_Dropout_with,
                .call = call, .print = print);

wb_layer *wb_Dropout_with(const wb_Dropout_options *given)
{
    wb_Dropout_options o;
    wb__given g;
    if (!wb__read_options("Dropout", &o, sizeof o, given, "p", &g)) return NULL;
    if (g.known && o.p == 0 && !wb__is_given(&g, "p", 0))
        return wb__fail_null(WB_ERROR_ARGUMENT, "Dropout: no probability is given");
    if (!(o.p >= 0 && o.p <= 1))
        return wb__fail_null(WB_ERROR_ARGUMENT, "Dropout: p is %g; it must be in [0, 1]", o.p);
    if (!wb__ints_read("Dropout", &g, "axes", -1, o.axes, WB_MAX_DIMS)) return NULL;
    for (int i = 1; i <= o.axes[0]; i++)
        if (o.axes[i] < -WB_MAX_DIMS || o.axes[i] >= WB_MAX_DIMS)
            return wb__fail_null(WB_ERROR_ARGUMENT,
                                 "Dropout: .axes has %lld; an axis is in [-8, 7]",
                                 (long long)o.axes[i]);
    return wb__layer_new(&wb__dropout_type, &o, 0);
}
