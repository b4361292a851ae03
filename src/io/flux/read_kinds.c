/* What the layers that contain no other layers need besides the fields of fields.c: the options
 * that follow from the shapes of their arrays, and checks. */
#include "io/flux/kinds.h"

#include <string.h>

static bool flux_read_is_true(wb__flux_reading *x, const char *field)
{
    wb__jl value = wb__jl_field(&x->r->f, x->v, field);
    return value.kind != WB__JL_BOOL || value.integer;
}

/* ---- options from the shapes of arrays ------------------------------------------------------- */

static bool flux_read_dense(wb__flux_reading *x)
{
    wb_Dense_options *o = &x->o.dense;
    const int64_t *dims = x->s[0].a.dims;
    o->out = dims[0];
    o->in = dims[1];
    return wb__flux_positive(x->r, &x->s[0], 2) && wb__flux_has_shape(x->r, &x->s[1], 1, dims);
}

static bool flux_read_conv(wb__flux_reading *x)
{
    wb_Conv_options *o = &x->o.conv;
    int64_t *dims = x->s[0].a.dims;
    const int ndim = x->s[0].a.ndim;
    if (!wb__flux_positive(x->r, &x->s[0], WB__MIN(WB__MAX(ndim, 3), 5))) return false;
    o->flip = x->s[0].kind != WB__FIELD_KERNEL;
    if (x->s[0].kind == WB__FIELD_DEPTHWISE) {      /* an output for each input and multiplier */
        o->groups = dims[0];
        dims[0] *= dims[1];
        dims[1] = 1;
    }
    return true;
}

static bool flux_read_conv_groups(wb__flux_reading *x)
{
    wb_Conv_options *o = &x->o.conv;
    const int64_t *dims = x->s[0].a.dims;
    if (o->groups < 1 || o->groups > dims[0] || dims[1] > INT64_MAX / o->groups)
        return wb__flux_reason(x->r, "it has %lld groups", (long long)o->groups), false;
    const bool transpose = !strcmp(x->row->layer, "ConvTranspose");
    o->out = transpose ? dims[1] * o->groups : dims[0];
    o->in = transpose ? dims[0] : dims[1] * o->groups;
    wb_ints_set(o->kernel, x->s[0].a.ndim - 2, dims + 2);
    return wb__flux_has_shape(x->r, &x->s[1], 1, &o->out);
}

/* Sets *channels, *affine and *tracked from the arrays of a norm with statistics: scale, bias, mean
 * and var, which all have the shape [channels] or are missing.  *channels is set if there is an
 * array, *affine is whether there are scale and bias, *tracked whether there are mean and var. */
static bool flux_read_norm(wb__flux_reading *x, int64_t *channels, bool *affine, bool *tracked)
{
    enum { SCALE, SHIFT, MEAN, VAR };
    wb__flux_reader *r = x->r;
    const wb__flux_child *s = x->s, *some = s[SCALE].a.data ? &s[SCALE] : &s[MEAN];
    if (some->a.data && !wb__flux_positive(r, some, 1)) return false;
    for (int i = 0; i < 4; i++)
        if (!wb__flux_has_shape(r, &s[i], 1, some->a.dims)) return false;
    *affine = s[SCALE].a.data && flux_read_is_true(x, "affine");
    *tracked = s[MEAN].a.data && flux_read_is_true(x, "track_stats");
    if (*affine != !!s[SHIFT].a.data || *tracked != !!s[VAR].a.data)
        return wb__flux_reason(r, "one of two arrays that go together is missing"), false;
    if (some->a.data) *channels = some->a.dims[0];
    if (*affine) x->n_typed = 2;
    return some->a.data || *channels > 0 ||
           wb__flux_reason(r, "it has neither parameters nor statistics");
}

static bool flux_read_batchnorm(wb__flux_reading *x)
{
    wb_BatchNorm_options *o = &x->o.batchnorm;
    bool affine, tracked;
    o->channels = 0;                    /* the arrays determine the number */
    if (!flux_read_norm(x, &o->channels, &affine, &tracked)) return false;
    o->affine = affine;
    o->track_stats = tracked;
    return true;
}

static bool flux_read_instancenorm(wb__flux_reading *x)
{
    wb_InstanceNorm_options *o = &x->o.instancenorm;
    return flux_read_norm(x, &o->channels, &o->affine, &o->track_stats);
}

static bool flux_read_groupnorm(wb__flux_reading *x)
{
    wb_GroupNorm_options *o = &x->o.groupnorm;
    wb__flux_reader *r = x->r;
    const wb__flux_child *scale = &x->s[0];
    if (wb__jl_field(&r->f, x->v, "μ").kind == WB__JL_ARRAY)
        return wb__flux_reason(r, "it has running statistics; Weber's has none"), false;
    if (scale->a.data && !wb__flux_positive(r, scale, 1)) return false;
    if (!wb__flux_has_shape(r, &x->s[1], 1, scale->a.dims)) return false;
    if (!scale->a.data != !x->s[1].a.data)
        return wb__flux_reason(r, "one of two arrays that go together is missing"), false;
    o->affine = scale->a.data != NULL;
    if (scale->a.data) o->channels = scale->a.dims[0];
    return true;
}

static bool flux_read_layernorm(wb__flux_reading *x)
{
    wb_LayerNorm_options *o = &x->o.layernorm;
    wb__flux_reader *r = x->r;
    const wb__flux_child *s = x->s;
    int64_t shape[5] = {0};
    wb__jl size = wb__jl_field(&r->f, x->v, "size");
    int n = size.kind ? wb__jl_integers(&r->f, &size, 4, shape) : 0;
    o->affine = x->n > 0;
    if (x->n) {
        n = s[0].a.ndim;
        if (n < 1 || n > 4 || !wb__flux_positive(r, &s[0], n) ||
            !wb__flux_has_shape(r, &s[1], n, s[0].a.dims))
            return false;
        wb_ints_set(o->shape, n, s[0].a.dims);
    } else {
        int64_t dims[4];
        for (int i = 0; i < n && i < 4; i++) dims[i] = shape[n - 1 - i];
        if (n >= 1 && n <= 4) wb_ints_set(o->shape, n, dims);
    }
    return n >= 1 || wb__flux_reason(r, "its size is unknown");
}

static bool flux_read_embedding(wb__flux_reading *x)
{
    x->o.embedding.n = x->s[0].a.dims[0];
    x->o.embedding.dim = x->s[0].a.dims[1];
    return wb__flux_positive(x->r, &x->s[0], 2);
}

static bool flux_read_bag(wb__flux_reading *x)
{
    x->o.bag.n = x->s[0].a.dims[0];
    x->o.bag.dim = x->s[0].a.dims[1];
    return wb__flux_positive(x->r, &x->s[0], 2);
}

static bool flux_read_scale(wb__flux_reading *x)
{
    const wb__flux_child *s = x->s;
    const int n = s[0].a.ndim;
    if (n < 1 || n > 4) return wb__flux_reason(x->r, "its scale has %d axes", n), false;
    wb_ints_set(x->o.scale.shape, n, s[0].a.dims);
    return wb__flux_positive(x->r, &s[0], n) && wb__flux_has_shape(x->r, &s[1], n, s[0].a.dims);
}

static bool flux_read_bilinear(wb__flux_reading *x)
{
    wb_Bilinear_options *o = &x->o.bilinear;
    const int64_t *dims = x->s[0].a.dims;
    o->out = dims[0];
    o->in1 = dims[1];
    o->in2 = dims[2];
    return wb__flux_positive(x->r, &x->s[0], 3) && wb__flux_has_shape(x->r, &x->s[1], 1, dims);
}

static bool flux_read_adaptive(wb__flux_reading *x)
{
    x->o.adaptive.fixed = true;
    return true;
}

/* Sets the options of an Upsample, whose mode is the first parameter of its type. */
static bool flux_read_upsample(wb__flux_reading *x)
{
    wb__bson_file *f = &x->r->f;
    wb_Upsample_options *o = &x->o.upsample;
    wb__jl mode = wb__jl_of(f, wb__bson_at(f, wb__bson_get(f, x->v->type, "params"), 0));
    const bool symbol = mode.kind == WB__JL_SYMBOL;
    if (symbol && wb__bson_equals(mode.items, "nearest")) o->mode = WB_UPSAMPLE_NEAREST;
    else if (symbol && (wb__bson_equals(mode.items, "bilinear") ||
                        wb__bson_equals(mode.items, "trilinear")))
        o->mode = WB_UPSAMPLE_LINEAR;
    else return wb__flux_reason(x->r, "its mode is unknown"), false;
    return true;
}

/* ---- recurrent cells ------------------------------------------------------------------------- */

bool wb__flux_join_gates(wb__flux_reader *r, const wb__jl_array *gates, const wb__jl_array *last,
                         wb__jl_array *out, void **made)
{
    const int64_t n = last->dims[0], *dims = gates->dims;
    void *blocks[2] = {NULL, NULL};
    *made = NULL;
    if (gates->dtype != last->dtype || gates->ndim != 2 || last->ndim != 2 || n != last->dims[1] ||
        n != dims[1] || n > INT64_MAX / 3 || (dims[0] != 2 * n && dims[0] != 3 * n))
        return wb__flux_reason(r, "its weights do not go together"), false;
    const bool shared = gates->shared || last->shared;
    if (shared && !wb__bson_spend(&r->f, gates->bytes + last->bytes)) return false;
    const size_t bytes = (size_t)last->bytes;
    char *all = *made = wb__alloc_aligned(3 * bytes + 1);
    const void *upper = all ? wb__jl_values(gates, gates->dtype, &blocks[0]) : NULL;
    const void *lower = upper ? wb__jl_values(last, last->dtype, &blocks[1]) : NULL;
    if (lower) {
        memcpy(all, upper, 2 * bytes);
        memcpy(all + 2 * bytes, lower, bytes);
    } else {
        wb__free(all);
        *made = NULL;
        r->f.status = WB_ERROR_MEMORY;
    }
    for (int i = 0; i < 2; i++) wb__free(blocks[i]);
    *out = *last;
    out->data = *made;
    out->dims[0] = 3 * n;
    out->count = 3 * last->count;
    out->bytes = 3 * last->bytes;
    out->transposed = out->shared = false;
    return lower != NULL;
}

static bool flux_read_cell(wb__flux_reading *x)
{
    wb_Recurrent_options *o = &x->o.recurrent;
    wb__flux_child *s = x->s;
    const char *type = x->row->type;
    const bool joins = s[2].kind == WB__FIELD_LAST_GATE;
    wb__jl_array whole;
    if (joins && !wb__flux_join_gates(x->r, &s[1].a, &s[2].a, &whole, &s[1].made)) return false;
    if (joins) s[1].a = whole, s[2].a.data = NULL;
    if (!wb__flux_positive(x->r, &s[0], 2) || !wb__flux_positive(x->r, &s[1], 2)) return false;
    int64_t rows = s[0].a.dims[0], gates = *type == 'L' ? 4 : *type == 'G' ? 3 : 1;
    o->in = s[0].a.dims[1];
    o->out = s[1].a.dims[1];
    if (rows / gates != o->out || rows % gates || s[1].a.dims[0] != rows)
        return wb__flux_reason(x->r, "its weights do not go together"), false;
    return wb__flux_has_shape(x->r, &s[joins ? 3 : 2], 1, &rows);
}

static bool flux_read_attention(wb__flux_reading *x)
{
    static const char *const names[4] = {"q_proj", "k_proj", "v_proj", "out_proj"};
    wb__flux_reader *r = x->r;
    for (int i = 0; i < 4; i++) {
        wb__jl dense = wb__jl_field(&r->f, x->v, names[i]);
        wb_function f;
        if (!wb__jl_flux(&dense, "Dense"))
            return wb__flux_reason(r, "its %s is no Dense", names[i]), false;
        if (!wb__flux_take_all(x, &dense, wb__flux_row_of(r, &dense))) return false;
        const wb__flux_child *s = &x->s[2 * i];
        if (!wb__flux_positive(r, s, 2) || !wb__flux_activation(r, &dense, "σ", &f)) return false;
        if (!wb__flux_has_shape(r, s + 1, 1, s->a.dims) || f || !s[1].a.data != !x->s[1].a.data)
            return wb__flux_reason(r, "its projections have activations or different biases"),
                   false;
    }
    /* of q, k, v and out: the features that each gives and takes */
    const int64_t *q = x->s[0].a.dims, *k = x->s[2].a.dims, *v = x->s[4].a.dims,
                  *out = x->s[6].a.dims;
    if (q[0] != k[0] || v[0] != out[1])
        return wb__flux_reason(r, "the sizes of its projections do not go together"), false;
    wb_MultiHeadAttention_options *o = &x->o.attention;
    o->dim = q[1];
    o->k_in = k[1];
    o->v_in = v[1];
    o->qk_dim = q[0];
    o->v_dim = v[0];
    o->out = out[0];
    o->bias = x->s[1].a.data != NULL;
    return x->o.attention.heads >= 1 || wb__flux_reason(r, "its number of heads is unknown");
}

static const wb__flux_kind flux_read_kinds[] = {
    {"Dense", WB__IMAGES_ENDS, flux_read_dense, NULL, false},
    {"Conv", WB__IMAGES_STARTS, flux_read_conv, flux_read_conv_groups, false},
    {"ConvTranspose", WB__IMAGES_STARTS, flux_read_conv, flux_read_conv_groups, false},
    {"MaxPool", WB__IMAGES_POOLS, NULL, NULL, false},
    {"MeanPool", WB__IMAGES_POOLS, NULL, NULL, false},
    {"GlobalMaxPool", WB__IMAGES_POOLS, NULL, NULL, false},
    {"GlobalMeanPool", WB__IMAGES_POOLS, NULL, NULL, false},
    {"AdaptiveMaxPool", WB__IMAGES_POOLS, flux_read_adaptive, NULL, false},
    {"AdaptiveMeanPool", WB__IMAGES_POOLS, flux_read_adaptive, NULL, false},
    {"Upsample", WB__IMAGES_POOLS, flux_read_upsample, NULL, false},
    {"PixelShuffle", WB__IMAGES_POOLS, NULL, NULL, false},
    {"BatchNorm", WB__IMAGES_KEEPS, flux_read_batchnorm, NULL, false},
    {"InstanceNorm", WB__IMAGES_KEEPS, flux_read_instancenorm, NULL, false},
    {"GroupNorm", WB__IMAGES_KEEPS, flux_read_groupnorm, NULL, false},
    {"LayerNorm", WB__IMAGES_KEEPS, flux_read_layernorm, NULL, false},
    {"Scale", WB__IMAGES_KEEPS, flux_read_scale, NULL, false},
    {"Bilinear", WB__IMAGES_ENDS, flux_read_bilinear, NULL, false},
    {"Dropout", WB__IMAGES_KEEPS, NULL, NULL, false},
    {"AlphaDropout", WB__IMAGES_KEEPS, NULL, NULL, false},
    {"Embedding", WB__IMAGES_ENDS, flux_read_embedding, NULL, false},
    {"EmbeddingBag", WB__IMAGES_ENDS, flux_read_bag, NULL, false},
    {"RNNCell", WB__IMAGES_ENDS, flux_read_cell, NULL, false},
    {"LSTMCell", WB__IMAGES_ENDS, flux_read_cell, NULL, false},
    {"GRUCell", WB__IMAGES_ENDS, flux_read_cell, NULL, false},
    {"GRUv3Cell", WB__IMAGES_ENDS, flux_read_cell, NULL, false},
    {"MultiHeadAttention", WB__IMAGES_KEEPS, flux_read_attention, NULL, true}};

const wb__flux_kind *wb__flux_kind_of(const char *layer)
{
    for (size_t i = 0; i < WB__COUNT(flux_read_kinds); i++)
        if (!strcmp(layer, flux_read_kinds[i].layer)) return &flux_read_kinds[i];
    return NULL;
}
