/* Operators of the domain ai.onnx.ml: linear models and the preparation of features, which
 * exporters of scikit-learn write.  Their coefficients are attributes, so they are not trained.
 * Strings are refused, since tensors have numbers only. */
#include "io/onnx/frame.h"
#include "io/onnx/ops_common.h"
#include "weber/indexing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the numbers of a list or of a tensor, [n], as a constant.  NULL with the error set. */
static wb_tensor *onnx_ml_numbers_in(const wb__onnx_call *c, const wb__onnx_attr *a)
{
    const wb_device *d = wb_default_device();
    const int64_t n = a->n;
    if (a->t) return wb_reshape_array(wb__onnx_constant(c, a->t), 1, &a->t->size);
    wb_tensor *x = wb__onnx_cached(c->run->state, d, a);
    if (x) return x;
    if (a->type == WB__ONNX_IS_FLOATS) x = wb_from(a->floats, WB_F32, 1, &n);
    else if (a->type == WB__ONNX_IS_INTS) x = wb_from(a->ints, WB_I64, 1, &n);
    else wb__onnx_refuse(c, WB_ERROR_FORMAT, "its attribute '%.100s' is no list of numbers",
                         a->name);
    return wb__onnx_cache(c->run->state, d, a, x);
}

/* Returns the numbers of the attribute WHAT_int64s, WHAT_floats or WHAT_tensor.  NULL with the
 * error set: none of them is there, or the attribute is WHAT_strings. */
static wb_tensor *onnx_ml_numbers_of(const wb__onnx_call *c, const char *what)
{
    static const char *const kinds[] = {"int64s", "floats", "tensor", "strings"};
    char name[40];
    for (size_t i = 0; i < WB__COUNT(kinds); i++) {
        snprintf(name, sizeof name, "%s_%s", what, kinds[i]);
        const wb__onnx_attr *a = wb__onnx_attribute(c, name);
        if (!a || (!a->n && !a->t)) continue;
        if (a->type != WB__ONNX_IS_STRINGS) return onnx_ml_numbers_in(c, a);
        wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "its attribute '%s' has texts, which Weber lacks; "
                        "train the model with integers in their place", name);
        return NULL;
    }
    wb__onnx_refuse(c, WB_ERROR_FORMAT, "has no attribute '%s_int64s', '%s_floats' or '%s_tensor'",
                    what, what, what);
    return NULL;
}

/* Sets *list to the `n` floats of an attribute, in the dtype t; NULL without the attribute.  If
 * `one`, the attribute may have one float for all.  False with the error set. */
static bool read_floats(const wb__onnx_call *c, const char *name, int64_t n, bool one, wb_dtype t,
                        wb_tensor **list)
{
    const wb__onnx_attr *a = wb__onnx_attribute(c, name);
    *list = NULL;
    if (!a || !a->n) return true;
    if (a->n != n && !(one && a->n == 1))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its attribute '%s' has %d numbers; %lld are "
                               "needed for %s", name, a->n, (long long)n, wb_describe(c->in[0]));
    *list = wb__as(onnx_ml_numbers_in(c, a), t);
    return *list != NULL;
}

/* ---- inputs and results ---------------------------------------------------------------------- */

/* Returns the dtype in which x is computed. */
static wb_dtype real_dtype(const wb_tensor *x) { return x->dtype == WB_F64 ? WB_F64 : WB_F32; }

static bool give_f32(wb__onnx_call *c, wb_tensor *y) { return wb__onnx_give(c, wb__as(y, WB_F32)); }

/* Whether input 0 is [N, F] or [F]; else sets the error. */
static bool onnx_ml_has_features(const wb__onnx_call *c)
{
    if (!wb__onnx_has(c, 1)) return false;
    if (c->in[0]->ndim == 1 || c->in[0]->ndim == 2) return true;
    return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its input is %s; it must be [N,F] or [F]",
                           wb_describe(c->in[0]));
}

static int64_t onnx_ml_features(const wb_tensor *x) { return x->ndim ? x->dims[x->ndim - 1] : 1; }

/* ---- preparation of numbers ------------------------------------------------------------------ */

/* Computes Scaler: (x - offset) · scale, with a number for each feature or one for all. */
bool wb__onnx_scaler(wb__onnx_call *c)
{
    wb_tensor *offset, *scale;
    const wb_dtype t = real_dtype(c->in[0]);
    const int64_t n = c->in[0]->ndim <= 2 ? onnx_ml_features(c->in[0]) : 1;
    wb_tensor *y = wb__as(c->in[0], t);
    if (!read_floats(c, "offset", n, true, t, &offset) ||
        !read_floats(c, "scale", n, true, t, &scale))
        return false;
    if (offset) y = wb_sub(y, offset);
    if (scale) y = wb_mul(y, scale);
    return give_f32(c, y);
}

/* Computes Normalizer: rows over their norm; rows with the norm 0 stay as they are. */
bool wb__onnx_normalizer(wb__onnx_call *c)
{
    const int norm = wb__onnx_word_index(c, "norm");
    if (!onnx_ml_has_features(c)) return false;
    wb_tensor *x = wb__as(c->in[0], real_dtype(c->in[0]));
    if (!x) return false;
    const int axis = x->ndim - 1;
    if (norm) return give_f32(c, wb__onnx_over_norm(x, norm, axis));
    if (!x->size) return give_f32(c, x);
    wb_tensor *most = wb__reduce(WB__OP_max, x, 1u << axis, true);
    most = wb_where(wb_eq(most, wb__number_of(0)), wb__number_of(1), most);
    return give_f32(c, wb_div(x, most));
}

/* Computes Binarizer: 1 where x is greater than the threshold, else 0. */
bool wb__onnx_binarizer(wb__onnx_call *c)
{
    wb_tensor *x = c->in[0];
    const double threshold = wb__onnx_real(c, "threshold");
    wb_tensor *y = wb_gt(wb__as(x, real_dtype(x)), wb__number_of(threshold));
    return wb__onnx_give(c, wb__as(y, (wb_dtype)x->dtype));
}

/* Computes Imputer.  Elements that equal the replaced value, which may be NaN, become the imputed
 * value of their feature, or the only imputed value. */
bool wb__onnx_imputer(wb__onnx_call *c)
{
    wb_tensor *x = c->in[0], *value = onnx_ml_numbers_of(c, "imputed_value");
    const wb_dtype t = (wb_dtype)x->dtype;
    if (!value) return false;
    if (value->size != 1 && value->size != onnx_ml_features(x))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "has %lld imputed values for %s",
                               (long long)value->size, wb_describe(x));
    if (wb__dtype_float((wb_dtype)value->dtype) != wb__dtype_float(t))
        return wb__onnx_refuse(c, WB_ERROR_DTYPE, "its imputed values are %s, and its input is %s",
                               wb_dtype_name((wb_dtype)value->dtype), wb_describe(x));
    const double replaced = wb__dtype_float(t)
                                ? wb__onnx_real(c, "replaced_value_float")
                                : (double)wb__onnx_int(c, "replaced_value_int64");
    if (!wb__dtype_float(t) && !wb__holds(t, replaced)) return wb__onnx_give(c, x);
    wb_tensor *here = isnan(replaced) ? wb_ne(x, x) : wb_eq(x, wb__literal(replaced, t));
    return wb__onnx_give(c, wb_where(here, wb__as(value, t), x));
}

/* Computes FeatureVectorizer: matrices side by side, as f32, each with inputdimensions[i] columns.
 * A vector is one row. */
bool wb__onnx_feature_vectorizer(wb__onnx_call *c)
{
    const int64_t *sizes;
    wb_tensor *y = NULL;
    const int n = wb__onnx_ints(c, "inputdimensions", &sizes);
    if (!onnx_ml_has_features(c)) return false;
    if (n >= 0 && n != c->n_in)
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "has %d inputs, and the sizes of %d", c->n_in,
                               n);
    for (int i = 0; i < c->n_in; i++) {
        wb_tensor *x = wb__onnx_in(c, i);
        if (!x) return wb__onnx_has(c, i + 1);
        x = wb__as(x, WB_F32);
        if (x && x->ndim == 1) x = wb_unsqueeze(x, 0);
        if (x && (x->ndim != 2 || (n >= 0 && x->dims[1] != sizes[i])))
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "input %d is %s; it must have %lld columns",
                                   i, wb_describe(x), n < 0 ? 1 : (long long)sizes[i]);
        y = y ? wb_concat(1, y, x) : x;
    }
    return wb__onnx_give(c, y);
}

/* ---- selection and categories ---------------------------------------------------------------- */

/* Computes ArrayFeatureExtractor: elements of the last axis by index.  Those of a vector are one
 * row. */
bool wb__onnx_array_feature_extractor(wb__onnx_call *c)
{
    wb_tensor *x = c->in[0], *index = c->in[1];
    const int64_t n = index->size;
    if (!x->ndim || wb__dtype_float((wb_dtype)index->dtype) || index->dtype == WB_BOOL)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its inputs are %s and %s; they must be an array "
                               "and integers", wb_describe(x), wb_describe(index));
    wb_tensor *y = wb_take(x, wb_reshape_array(index, 1, &n), -1);
    return wb__onnx_give(c, x->ndim == 1 ? wb_unsqueeze(y, 0) : y);
}

/* Returns whether each element of x, [..., 1], equals each key, [K].  NaN equals NaN. */
static wb_tensor *onnx_ml_equal_keys(wb_tensor *x, wb_tensor *keys)
{
    wb_tensor *same = wb_eq(x, keys);
    if (!keys || !wb__dtype_float((wb_dtype)keys->dtype)) return same;
    return wb_or(same, wb_and(wb_ne(x, x), wb_ne(keys, keys)));
}

/* Computes OneHotEncoder: y[..., k] is 1 if x[...] is category k, else 0.  Floats are truncated to
 * integers.  If `zeros` is 0, y is NaN for an x that is no category. */
bool wb__onnx_one_hot_encoder(wb__onnx_call *c)
{
    wb_tensor *x = c->in[0], *cats = onnx_ml_numbers_of(c, "cats");
    if (!cats) return false;
    x = wb_unsqueeze(x, -1);
    wb_tensor *here = wb_eq(wb__as(x, WB_I64), cats);
    if (wb__dtype_float((wb_dtype)c->in[0]->dtype)) here = wb_and(here, wb_isfinite(x));
    wb_tensor *y = wb__as(here, WB_F32);
    if (y && !wb__onnx_int(c, "zeros")) {
        wb_tensor *any = wb__reduce(WB__OP_max, y, 1u << (y->ndim - 1), true);
        y = wb_where(wb_eq(any, wb__number_of(0)), wb__number_of(NAN), y);
    }
    return wb__onnx_give(c, y);
}

/* Returns the value for keys that are not among those of the node, [1] with the dtype of the
 * values. */
static wb_tensor *onnx_ml_default_of(const wb__onnx_call *c, const wb_tensor *values)
{
    const wb__onnx_attr *a = wb__onnx_attribute(c, "default_tensor");
    const wb_dtype t = (wb_dtype)values->dtype;
    if (a && a->t && wb__onnx_dtype(a->t->type) == t && a->t->size == 1)
        return onnx_ml_numbers_in(c, a);
    const double whole = (double)wb__onnx_int(c, "default_int64");
    const double real = wb__onnx_real(c, "default_float");
    return wb_full_array(wb__dtype_float(t) ? real : whole, t, 1, (int64_t[]){1});
}

/* Computes LabelEncoder: the value for each element of x, which is a key.  The last one of equal
 * keys counts. */
bool wb__onnx_label_encoder(wb__onnx_call *c)
{
    wb_tensor *x = c->in[0], *keys = onnx_ml_numbers_of(c, "keys");
    wb_tensor *values = keys ? onnx_ml_numbers_of(c, "values") : NULL;
    if (!values) return false;
    if (keys->size != values->size || keys->dtype != x->dtype)
        return wb__onnx_refuse(c, WB_ERROR_DTYPE, "has %lld keys of %s and %lld values for %s",
                               (long long)keys->size, wb_dtype_name((wb_dtype)keys->dtype),
                               (long long)values->size, wb_describe(x));
    wb_tensor *same = onnx_ml_equal_keys(wb_unsqueeze(x, -1), keys);
    wb_tensor *place = wb_add(wb_arange(keys->size, WB_I32), wb__number_of(1));
    place = wb_where(same, place, wb__literal(0, WB_I32));
    if (!place) return false;
    place = wb__reduce(WB__OP_max, place, 1u << (place->ndim - 1), false);
    return wb__onnx_give(c, wb_take(wb_concat(0, onnx_ml_default_of(c, values), values), place));
}

/* Computes ZipMap, by ONNX a sequence of maps, one for each row, from classes to elements.  Here
 * the result is the matrix itself. */
bool wb__onnx_zip_map(wb__onnx_call *c)
{
    const wb__onnx_attr *a = wb__onnx_attribute(c, "classlabels_int64s");
    if (!a) a = wb__onnx_attribute(c, "classlabels_strings");
    if (!onnx_ml_has_features(c)) return false;
    if (!a || a->n != onnx_ml_features(c->in[0]))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "has %d classes for %s", a ? a->n : 0,
                               wb_describe(c->in[0]));
    return give_f32(c, c->in[0]);
}

/* ---- linear models --------------------------------------------------------------------------- */

/* Returns x·Wᵀ + b, [N, n], with `n` rows of coefficients.  NULL with the error set. */
static wb_tensor *onnx_ml_linear(const wb__onnx_call *c, int64_t n)
{
    wb_tensor *x = c->in[0], *w, *b;
    const wb_dtype t = real_dtype(x);
    const int64_t dims[2] = {n, onnx_ml_features(x)};
    if (!read_floats(c, "coefficients", n * dims[1], false, t, &w) ||
        !read_floats(c, "intercepts", n, false, t, &b))
        return NULL;
    if (!w) return wb__onnx_refuse(c, WB_ERROR_FORMAT, "has no coefficients"), NULL;
    x = wb__as(x->ndim == 1 ? wb_unsqueeze(x, 0) : x, t);
    return wb_linear(x, wb_reshape_array(w, 2, dims), b ? b : WB_NONE);
}

static wb_tensor *onnx_ml_same(wb_tensor *x) { return x; }
static wb_tensor *onnx_ml_softmax(wb_tensor *x) { return wb_softmax_over(x, -1); }

/* Returns a softmax in which elements within 1e-7 of 0 are x exp(-max) in place of exp(x - max). */
static wb_tensor *onnx_ml_softmax_zero(wb_tensor *x)
{
    const unsigned last = x ? 1u << (x->ndim - 1) : 0;
    wb_tensor *most = x ? wb__reduce(WB__OP_max, x, last, true) : NULL;
    wb_tensor *y = wb_where(wb_gt(wb_abs(x), wb__number_of(1e-7)), wb_exp(wb_sub(x, most)),
                            wb_mul(x, wb_exp(wb_neg(most))));
    return y ? wb_div(y, wb__reduce(WB__OP_sum, y, last, true)) : NULL;
}

/* Returns √2 erf⁻¹(2x - 1) as ONNX Runtime and the package onnx have it: by Winitzki's
 * approximation of erf⁻¹, which is off by a few thousandths. */
static wb_tensor *onnx_ml_probit(wb_tensor *x)
{
    const double a = 0.147, pi = 3.14159265358979323846;
    wb_tensor *u = wb_sub(wb_mul(x, wb__number_of(2)), wb__number_of(1)), *one = wb__number_of(1);
    wb_tensor *l = wb_log(wb_mul(wb_sub(one, u), wb_add(one, u)));
    wb_tensor *v = wb_add(wb_mul(l, wb__number_of(0.5)), wb__number_of(2 / (pi * a)));
    wb_tensor *w = wb_sqrt(wb_sub(wb_mul(v, v), wb_mul(l, wb__number_of(1 / a))));
    w = wb_sqrt(wb_maximum(wb_sub(w, v), wb__number_of(0)));
    return wb_mul(wb_mul(wb_sign(u), w), wb__number_of(sqrt(2)));
}

enum { LOGISTIC = 2 };

/* Returns the scores after post_transform.  NULL with the error set. */
static wb_tensor *onnx_ml_post_transform(const wb__onnx_call *c, wb_tensor *scores)
{
    static wb_tensor *(*const transforms[])(wb_tensor *x) = {onnx_ml_same, onnx_ml_softmax,
                                                             wb_sigmoid, onnx_ml_softmax_zero,
                                                             onnx_ml_probit};
    return transforms[wb__onnx_word_index(c, "post_transform")](scores);
}

bool wb__onnx_linear_regressor(wb__onnx_call *c)
{
    if (!onnx_ml_has_features(c)) return false;
    const int64_t n = wb__onnx_int(c, "targets");
    if (n < 1 || n > INT32_MAX)
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "has %lld targets", (long long)n);
    wb_tensor *y = onnx_ml_linear(c, n);
    return y && give_f32(c, onnx_ml_post_transform(c, y));
}

/* Computes LinearClassifier: the class of the greatest score, and the scores.  Classes that are
 * strings are not computed: a node that reads them fails.  A single row of coefficients belongs to
 * the second of two classes: the scores are -y and y.  Without LOGISTIC other programs disagree
 * about these scores, so that is refused. */
bool wb__onnx_linear_classifier(wb__onnx_call *c)
{
    if (!onnx_ml_has_features(c)) return false;
    const wb__onnx_attr *ints = wb__onnx_attribute(c, "classlabels_ints");
    const wb__onnx_attr *texts = wb__onnx_attribute(c, "classlabels_strings");
    const wb__onnx_attr *w = wb__onnx_attribute(c, "coefficients");
    const int n = ints && ints->n ? ints->n : texts ? texts->n : 0;
    const bool one_row = w && w->n == onnx_ml_features(c->in[0]);
    if (n < 2 || (one_row && (n > 2 || wb__onnx_word_index(c, "post_transform") != LOGISTIC)))
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "has %d classes and %d coefficients for "
                               "%s; a row of coefficients for each of two or more classes is done, "
                               "and one for two classes with LOGISTIC", n, w ? w->n : 0,
                               wb_describe(c->in[0]));
    wb_tensor *scores = onnx_ml_linear(c, one_row ? 1 : n);
    if (one_row) scores = wb_concat(1, wb_neg(scores), scores);
    wb_tensor *y = scores ? onnx_ml_post_transform(c, scores) : NULL;
    if (!y || (wb__onnx_wants(c, 1) && !(c->out[1] = wb__as(y, WB_F32)))) return false;
    if (!ints || !ints->n) return true;
    return wb__onnx_give(c, wb_take(onnx_ml_numbers_in(c, ints), wb_argmax(scores, -1)));
}
