/* Dropout and AlphaDropout: in train mode, replace random elements (or whole slices). */
#include "nn/layer.h"

#include <math.h>

#define DROPOUT_OPTIONS(X) X(wb_Dropout_options, p, REAL, 1) X(wb_Dropout_options, axes, INTS, 0)
static const wb__option dropout_table[] = {DROPOUT_OPTIONS(WB__OPTION_ROW)};

/* Returns one random number for each combination of indices along the axes o->axes, so that all
 * elements with the same indices along these axes are kept or dropped together. */
static wb_tensor *dropout_numbers(wb_tensor *x, const wb_Dropout_options *o)
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

static wb_tensor *dropout_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_Dropout_options *o = l->options;
    wb_tensor *x = inputs[0];
    if (!wb__one_input(l, n) || !wb__floating("Dropout", x)) return NULL;
    bool automatic, train = wb__train_mode(l, &automatic);
    if (o->p == 0) return x;
    if (!train) return automatic ? wb__mark_automatic(x, "Dropout") : x;
    return o->axes[0] ? dropout_numbers(x, o) : wb_dropout(x, o->p);
}

static void dropout_print_mode(const wb_layer *l, wb__text *t)
{
    if (l->mode != WB__MODE_AUTO)
        wb__text_add(t, ", active=%s", l->mode == WB__MODE_TRAIN ? "true" : "false");
    wb__text_add(t, ")");
}

static void dropout_print(const wb_layer *l, wb__text *t)
{
    const wb_Dropout_options *o = l->options;
    wb__text_add(t, "Dropout(%g", o->p);
    if (o->axes[0] == 1) wb__text_add(t, ", axes=%d", (int)o->axes[1]);
    for (int i = 0; o->axes[0] > 1 && i < o->axes[0]; i++)
        wb__text_add(t, i ? ", %d" : ", axes=(%d", (int)o->axes[1 + i]);
    if (o->axes[0] > 1) wb__text_add(t, ")");
    dropout_print_mode(l, t);
}

WB__PLAIN_LAYER(dropout, "Dropout", wb_Dropout_options, dropout_table, wb_Dropout_with,
                .call = dropout_call, .print = dropout_print);

static bool dropout_valid_p(const char *what, double p)
{
    if (p == WB_DEFAULT)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: no probability is given", what), false;
    if (!(p >= 0 && p <= 1))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: p is %g; it must be in [0, 1]", what, p), false;
    return true;
}

wb_layer *wb_Dropout_with(const wb_Dropout_options *given)
{
    WB__EDGE;
    wb_Dropout_options o;
    wb__given g;
    if (!wb__read_options("Dropout", wb_Dropout_options, &o, given, &g)) return NULL;
    if (!dropout_valid_p("Dropout", o.p)) return NULL;
    if (!wb__ints_read("Dropout", &g, "axes", -1, o.axes, WB_MAX_DIMS)) return NULL;
    for (int i = 1; i <= o.axes[0]; i++)
        if (o.axes[i] < -WB_MAX_DIMS || o.axes[i] >= WB_MAX_DIMS)
            return wb__fail_null(WB_ERROR_ARGUMENT, "Dropout: .axes has %lld; an axis is in [-8, "
                                 "7]", (long long)o.axes[i]);
    return wb__layer_new(&wb__dropout_type, &o, 0);
}

/* ---- AlphaDropout ---------------------------------------------------------------------------- */

#define ALPHA_OPTIONS(X) X(wb_AlphaDropout_options, p, REAL, 1)
static const wb__option alpha_table[] = {ALPHA_OPTIONS(WB__OPTION_ROW)};

/* The limit of selu at -infinity.  A dropped element gets this value; then all elements get a
 * factor and a shift, so that the result for a standard normal x has mean 0 and variance 1. */
static const double DROPOUT_LIMIT = -1.7580993408473766;

static wb_tensor *alpha_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const double p = ((const wb_AlphaDropout_options *)l->options)->p;
    wb_tensor *x = inputs[0];
    if (!wb__one_input(l, n) || !wb__floating("AlphaDropout", x)) return NULL;
    bool automatic, train = wb__train_mode(l, &automatic);
    if (p == 0) return x;
    if (!train) return automatic ? wb__mark_automatic(x, "AlphaDropout") : x;
    if (p == 1) return wb_mul(x, wb_scalar(0));
    const double factor = 1 / sqrt((1 - p) * (1 + p * DROPOUT_LIMIT * DROPOUT_LIMIT));
    const wb_dtype draws = x->dtype == WB_F64 ? WB_F64 : WB_F32;
    wb_tensor *keep = wb_ge(wb__uniform_beside(x, draws, x->ndim, x->dims), wb_scalar(p));
    return wb_add(wb_mul(wb_where(keep, x, wb_scalar(DROPOUT_LIMIT)), wb_scalar(factor)),
                  wb_scalar(-factor * DROPOUT_LIMIT * p));
}

static void alpha_print(const wb_layer *l, wb__text *t)
{
    wb__text_add(t, "AlphaDropout(%g", ((const wb_AlphaDropout_options *)l->options)->p);
    dropout_print_mode(l, t);
}

WB__PLAIN_LAYER(alphadropout, "AlphaDropout", wb_AlphaDropout_options, alpha_table,
                wb_AlphaDropout_with, .call = alpha_call, .print = alpha_print);

wb_layer *wb_AlphaDropout_with(const wb_AlphaDropout_options *given)
{
    WB__EDGE;
    wb_AlphaDropout_options o;
    if (!wb__read_options("AlphaDropout", wb_AlphaDropout_options, &o, given, NULL) ||
        !dropout_valid_p("AlphaDropout", o.p))
        return NULL;
    return wb__layer_new(&wb__alphadropout_type, &o, 0);
}
