/* Flux's layers without others inside, one function a kind.  Fields go by Flux's newest names
 * (flux_fields.h). Dimensions come reversed: a kernel of Julia's (kw, kh, in, out) is [out, in, kh,
 * kw] as it lies.  A Dense's weight is (out, in) there, so [in, out] as it lies, and is turned into
 * our [out, in]; so are those of recurrent cells. */
#include "io/flux_read.h"

#include <stdio.h>
#include <string.h>

/* ---- values ---------------------------------------------------------------------------------- */

/* An array that is to be a child of a layer. */
typedef struct {
    const char *child;
    wb__jl_array a;             /* data NULL: none */
} slot;

/* false, with the reason: neither an array of floats nor, where `optional`, nothing. */
static bool take(wb__flux_reader *r, const wb__jl *v, const char *field, const char *child,
                 bool optional, slot *s)
{
    wb__jl value = wb__jl_field(&r->f, v, field);
    *s = (slot){.child = child};
    if (value.kind == WB__JL_GPU) return wb__jl_gpu_fail(&r->f, &value, r->path), false;
    if (wb__jl_array_of(&r->f, &value, &s->a)) {
        if (s->a.dtype && wb__dtype_float(s->a.dtype)) return true;
        s->a.data = NULL;
        return wb__flux_why(r, "its %s is of %s", child, s->a.type), false;
    }
    bool none = value.kind == WB__JL_NOTHING || (value.kind == WB__JL_BOOL && !value.integer) ||
                wb__jl_flux(&value, "Zeros") || value.kind == WB__JL_ABSENT;
    if (r->f.status || (none && optional)) return !r->f.status;
    return wb__flux_why(r, "its %s is no array", child), false;
}

/* A matrix of (out, in) there: its sizes in our order. */
static void turn(slot *s)
{
    int64_t in = s->a.dims[0];
    if (s->a.ndim != 2) return;
    s->a.dims[0] = s->a.dims[1];
    s->a.dims[1] = in;
    s->a.transposed = !s->a.transposed;
}

static bool shaped(wb__flux_reader *r, const slot *s, int ndim, const int64_t *dims)
{
    if (!s->a.data || (s->a.ndim == ndim && !memcmp(s->a.dims, dims, (size_t)ndim * sizeof *dims)))
        return true;
    return wb__flux_why(r, "its %s has another shape than its other arrays ask for", s->child),
           false;
}

static bool positive(wb__flux_reader *r, const slot *s, int ndim)
{
    for (int i = 0; s->a.ndim == ndim && i < ndim; i++)
        if (s->a.dims[i] < 1) return wb__flux_why(r, "its %s is empty", s->child), false;
    if (s->a.ndim == ndim) return true;
    return wb__flux_why(r, "its %s has %d axes, not %d", s->child, s->a.ndim, ndim), false;
}

/* The widest: what is narrower fits without loss. */
static wb_dtype widest(int n, const slot *s)
{
    wb_dtype t = 0;
    for (int i = 0; i < n; i++) {
        if (!s[i].a.data) continue;
        wb_dtype other = s[i].a.dtype;
        if (!t) t = other;
        else if (t != other) t = t == WB_F64 || other == WB_F64 ? WB_F64 : WB_F32;
    }
    return t;
}

/* The values in an order and a dtype: where they lie, or in `*made`. */
static const void *values_of(const wb__jl_array *a, wb_dtype dtype, void **made)
{
    *made = NULL;
    if (!a->transposed && a->dtype == dtype) return a->data;
    void *as = wb__alloc_aligned((size_t)a->bytes + 1);
    if (as && a->transposed) wb__jl_transpose(a, as);
    else if (as) memcpy(as, a->data, (size_t)a->bytes);
    *made = as;
    if (!as || a->dtype == dtype) return as;
    *made = wb__alloc_aligned((size_t)a->count * wb__dtype_size(dtype) + 1);
    if (*made) wb__convert(*made, dtype, as, a->dtype, a->count);
    wb__free(as);
    return *made;
}

static bool alike(const wb_tensor *x, const wb_tensor *y)
{
    return x->dtype == y->dtype && x->ndim == y->ndim &&
           !memcmp(x->dims, y->dims, (size_t)x->ndim * sizeof *x->dims) &&
           (x->flags & WB__FROZEN) == (y->flags & WB__FROZEN);
}

static int fill_child(wb__flux_reader *r, wb_layer *l, int i, const slot *s)
{
    wb_tensor *x = wb__layer_child(l, i);
    bool frozen = x->flags & WB__FROZEN;
    if (frozen && (wb_dtype)x->dtype != s->a.dtype) { /* statistics have a dtype of their own */
        x = wb__statistic(l->type->name, s->child, wb_init_zeros, s->a.dtype, x->dims[0]);
        if (!x) return WB_ERROR_MEMORY;
        wb__branch_put(&l->node, i, s->child, x);
    }
    const char *key = (const char *)s->a.at + s->a.transposed; /* turned, it is another array */
    void **shared = s->a.shared ? wb__pointer_map_at(&r->arrays, key) : NULL, *made;
    if (s->a.shared && !shared) return WB_ERROR_MEMORY;
    if (shared && *shared && alike(*shared, x)) {
        wb__branch_put(&l->node, i, s->child, *shared);
        return 0;
    }
    if (s->a.shared && !wb__bson_spend(&r->f, s->a.bytes)) return r->f.status;
    const void *values = values_of(&s->a, (wb_dtype)x->dtype, &made);
    int status =
        values ? wb__overwrite(x, values, (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype))
               : WB_ERROR_MEMORY;
    wb__free(made);
    if (shared && !*shared) *shared = x;
    return status;
}

/* The layer, whose options came from the arrays' own shapes, with the arrays in it. */
static wb_layer *filled(wb__flux_reader *r, wb_layer *l, int n, const slot *s)
{
    if (!l) {
        if (wb_error_code() == WB_ERROR_MEMORY) r->f.status = WB_ERROR_MEMORY;
        return wb__flux_why(r, "%.200s", wb_error());
    }
    for (int i = 0; i < n; i++) {
        if (!s[i].a.data) continue;
        int at = 0;
        while (at < l->node.n && strcmp(l->node.children[at].name, s[i].child)) at++;
        if (at == l->node.n || wb_is_none(l->node.children[at].object)) continue;
        int status = fill_child(r, l, at, &s[i]);
        if (status) return r->f.status = status, NULL;
    }
    return l;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static double number(wb__flux_reader *r, const wb__jl *v, const char *field, double otherwise)
{
    wb__jl value = wb__jl_field(&r->f, v, field);
    return value.kind != WB__JL_NUMBER ? otherwise : value.real == 0 ? WB_ZERO : value.real;
}

static bool yes(wb__flux_reader *r, const wb__jl *v, const char *field, bool otherwise)
{
    wb__jl value = wb__jl_field(&r->f, v, field);
    return value.kind == WB__JL_BOOL ? value.integer != 0 : otherwise;
}

/* `old`: of a version in which "active" was true unless somebody said otherwise. */
static int mode(wb__flux_reader *r, const wb__jl *v, bool old)
{
    wb__jl active = wb__jl_field(&r->f, v, "active");
    if (active.kind != WB__JL_BOOL || (old && active.integer)) return WB__MODE_AUTO;
    return active.integer ? WB__MODE_TRAIN : WB__MODE_TEST;
}

/* Two of a kind: (w, h) there, {h, w} here. */
static bool pair(wb__flux_reader *r, const wb__jl *v, const char *field, int64_t *out)
{
    int64_t both[3];
    wb__jl value = wb__jl_field(&r->f, v, field);
    if (wb__jl_integers(&r->f, &value, 3, both) != 2)
        return wb__flux_why(r, "its %s is not of two axes", field), false;
    if (both[0] < 1 || both[1] < 1) return wb__flux_why(r, "its %s is not positive", field), false;
    out[0] = both[1];
    out[1] = both[0];
    return true;
}

/* (w, h) or (left, right, top, bottom) there; {top, bottom, left, right} here. */
static bool pad(wb__flux_reader *r, const wb__jl *v, int64_t *out)
{
    int64_t p[5];
    wb__jl value = wb__jl_field(&r->f, v, "pad");
    int n = wb__jl_integers(&r->f, &value, 5, p);
    if (n != 2 && n != 4) return wb__flux_why(r, "its padding is not of two axes"), false;
    int64_t sides[4] = {n == 2 ? p[1] : p[2], n == 2 ? p[1] : p[3], p[0], n == 2 ? p[0] : p[1]};
    bool any = sides[0] || sides[1] || sides[2] || sides[3];
    for (int i = 0; i < 4; i++) {
        if (sides[i] < 0) return wb__flux_why(r, "its padding is negative"), false;
        out[i] = any && !sides[i] ? WB_NO_PAD : sides[i];
    }
    return true;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static wb_layer *dense(wb__flux_reader *r, const wb__jl *v)
{
    slot s[2];
    wb_dense_options o = {.size = sizeof o};
    if (!take(r, v, "weight", "weight", false, &s[0]) || !take(r, v, "bias", "bias", true, &s[1]))
        return NULL;
    turn(&s[0]);
    if (!positive(r, &s[0], 2) || !shaped(r, &s[1], 1, s[0].a.dims)) return NULL;
    if (!wb__flux_activation(r, v, "σ", &o.activation)) return NULL;
    o.out = s[0].a.dims[0];
    o.in = s[0].a.dims[1];
    o.no_bias = !s[1].a.data;
    o.dtype = widest(2, s);
    o.init = wb_init_zeros;
    r->channels = 0;
    return filled(r, wb_dense_with(&o), 2, s);
}

static wb_layer *convolution(wb__flux_reader *r, const wb__jl *v, bool flip, bool depthwise)
{
    slot s[2];
    wb_conv_options o = {.size = sizeof o, .flip = flip, .init = wb_init_zeros, .groups = 1};
    if (!take(r, v, "weight", "weight", false, &s[0]) || !take(r, v, "bias", "bias", true, &s[1]))
        return NULL;
    int64_t *dims = s[0].a.dims;
    if (!positive(r, &s[0], 4)) return NULL;
    if (depthwise) { /* (kw, kh, multiplier, in) there: its outputs are in/multiplier pairs, in
                        order */
        o.groups = dims[0];
        dims[0] *= dims[1];
        dims[1] = 1;
    }
    if (!shaped(r, &s[1], 1, dims) || !pair(r, v, "stride", o.stride) ||
        !pair(r, v, "dilation", o.dilation) || !pad(r, v, o.pad) ||
        !wb__flux_activation(r, v, "σ", &o.activation))
        return NULL;
    wb__jl groups = wb__jl_field(&r->f, v, "groups"), pad_mode = wb__jl_field(&r->f, v, "pad_mode");
    if (groups.kind == WB__JL_NUMBER) o.groups = groups.integer;
    if (pad_mode.kind == WB__JL_SYMBOL && !wb__bson_says(pad_mode.items, "zeros"))
        return wb__flux_why(r, "it pads with other things than zeros");
    if (o.groups < 1 || o.groups > dims[0] || dims[1] > INT64_MAX / o.groups)
        return wb__flux_why(r, "it has %lld groups", (long long)o.groups);
    o.out = dims[0];
    o.in = dims[1] * o.groups;
    o.kernel[0] = dims[2];
    o.kernel[1] = dims[3];
    o.no_bias = !s[1].a.data;
    o.dtype = widest(2, s);
    wb_layer *l = filled(r, wb_conv_layer_with(&o), 2, s);
    if (l) r->channels = o.out;
    return l;
}

static wb_layer *conv(wb__flux_reader *r, const wb__jl *v)
{
    return convolution(r, v, true, false);
}
static wb_layer *crosscor(wb__flux_reader *r, const wb__jl *v)
{
    return convolution(r, v, false, false);
}
static wb_layer *depthwise(wb__flux_reader *r, const wb__jl *v)
{
    return convolution(r, v, true, true);
}

static wb_layer *pool(wb__flux_reader *r, const wb__jl *v, wb_layer *make(const wb_pool_options *))
{
    wb_pool_options o = {.size = sizeof o};
    if (!pair(r, v, "k", o.window) || !pair(r, v, "stride", o.stride) || !pad(r, v, o.pad))
        return NULL;
    if (!r->channels) r->channels = 1;
    return filled(r, make(&o), 0, NULL);
}

static wb_layer *maxpool(wb__flux_reader *r, const wb__jl *v)
{
    return pool(r, v, wb_maxpool_layer_with);
}
static wb_layer *meanpool(wb__flux_reader *r, const wb__jl *v)
{
    return pool(r, v, wb_meanpool_layer_with);
}

static wb_layer *global(wb__flux_reader *r, wb_layer *l)
{
    if (!r->channels) r->channels = 1;
    return filled(r, l, 0, NULL);
}

static wb_layer *globalmax(wb__flux_reader *r, const wb__jl *v)
{
    return (void)v, global(r, wb_GlobalMaxPool());
}
static wb_layer *globalmean(wb__flux_reader *r, const wb__jl *v)
{
    return (void)v, global(r, wb_GlobalMeanPool());
}

/* Adaptive pools to one place are global ones. */
static wb_layer *adaptive(wb__flux_reader *r, const wb__jl *v)
{
    int64_t out[2];
    wb__jl value = wb__jl_field(&r->f, v, "out");
    if (wb__jl_integers(&r->f, &value, 2, out) != 2 || out[0] != 1 || out[1] != 1)
        return wb__flux_why(r, "only adaptive pools to (1, 1) are known");
    bool max = strstr(wb__jl_last(v), "Max") != NULL;
    return global(r, max ? wb_GlobalMaxPool() : wb_GlobalMeanPool());
}

static wb_layer *batchnorm(wb__flux_reader *r, const wb__jl *v)
{
    slot s[4];
    wb_batchnorm_options o = {.size = sizeof o,
                              .eps = number(r, v, "ϵ", 1e-5),
                              .momentum = number(r, v, "momentum", 0.1),
                              .has_eps = true,
                              .has_momentum = true};
    if (!take(r, v, "γ", "scale", true, &s[0]) || !take(r, v, "β", "bias", true, &s[1]) ||
        !take(r, v, "μ", "mean", true, &s[2]) || !take(r, v, "σ²", "var", true, &s[3])) return NULL;
    const slot *some = s[0].a.data ? &s[0] : &s[2];
    if (!some->a.data) return wb__flux_why(r, "it has neither parameters nor statistics");
    if (!positive(r, some, 1)) return NULL;
    for (int i = 0; i < 4; i++)
        if (!shaped(r, &s[i], 1, some->a.dims)) return NULL;
    o.no_affine = !s[0].a.data || !yes(r, v, "affine", true);
    o.no_track_stats = !s[2].a.data || !yes(r, v, "track_stats", true);
    if (!o.no_affine != !!s[1].a.data || !o.no_track_stats != !!s[3].a.data)
        return wb__flux_why(r, "one of two arrays that go together is missing");
    if (!wb__flux_activation(r, v, "λ", &o.activation)) return NULL;
    o.channels = some->a.dims[0];
    o.dtype = widest(o.no_affine ? 4 : 2, s);
    wb_layer *l = filled(r, wb_batchnorm_with(&o), 4, s);
    if (l) l->mode = mode(r, v, wb__jl_count(&r->f, v) == 8);
    return l;
}

static wb_layer *layernorm(wb__flux_reader *r, const wb__jl *v)
{
    slot s[2] = {0};
    wb_layernorm_options o = {.size = sizeof o, .eps = number(r, v, "ϵ", 1e-5), .has_eps = true};
    wb__jl diag = wb__jl_field(&r->f, v, "diag"), size = wb__jl_field(&r->f, v, "size");
    int64_t shape[5] = {0};
    int n = size.kind ? wb__jl_integers(&r->f, &size, 4, shape) : 0;
    if (wb__jl_flux(&diag, "Scale") || wb__jl_flux(&diag, "Diagonal")) {
        if (!take(r, &diag, "scale", "scale", false, &s[0]) ||
            !take(r, &diag, "bias", "bias", true, &s[1]))
            return NULL;
        if (s[0].a.ndim < 1 || s[0].a.ndim > 4 || !positive(r, &s[0], s[0].a.ndim) ||
            !shaped(r, &s[1], s[0].a.ndim, s[0].a.dims)) return NULL;
        if (!s[1].a.data) return wb__flux_why(r, "it has no bias");
        n = s[0].a.ndim;
        memcpy(o.shape, s[0].a.dims, (size_t)n * sizeof *o.shape);
    } else {
        o.no_affine = true;
        for (int i = 0; i < n; i++) o.shape[i] = shape[n - 1 - i];
    }
    if (n < 1) return wb__flux_why(r, "its size is unknown");
    if (!wb__flux_activation(r, v, "λ", &o.activation)) return NULL;
    o.dtype = widest(2, s);
    return filled(r, wb_layernorm_with(&o), 2, s);
}

static wb_layer *dropout(wb__flux_reader *r, const wb__jl *v)
{
    int64_t axes[WB_MAX_DIMS];
    wb_dropout_options o = {.size = sizeof o, .p = number(r, v, "p", 2)};
    wb__jl dims = wb__jl_field(&r->f, v, "dims");
    int n = wb__jl_integers(&r->f, &dims, WB_MAX_DIMS, axes);
    for (int i = 0; i < n; i++) {
        if (axes[i] < 1 || axes[i] > WB_MAX_DIMS)
            return wb__flux_why(r, "its dims are no dimensions");
        o.axes.axis[i] = -(int)axes[i];
    }
    if (n > 0) o.axes.n = n;
    else if (strcmp(wb__jl_last(&dims), "Colon")) return wb__flux_why(r, "its dims are not known");
    wb_layer *l = filled(r, wb_dropout_layer_with(&o), 0, NULL);
    if (l) l->mode = mode(r, v, wb__jl_count(&r->f, v) == 3);
    return l;
}

static wb_layer *embedding(wb__flux_reader *r, const wb__jl *v)
{
    slot s;
    if (!take(r, v, "weight", "weight", false, &s) || !positive(r, &s, 2)) return NULL;
    wb_embedding_options o = {.size = sizeof o,
                              .n = s.a.dims[0],
                              .dim = s.a.dims[1],
                              .init = wb_init_zeros,
                              .dtype = s.a.dtype};
    r->channels = 0;
    return filled(r, wb_embedding_with(&o), 1, &s);
}

/* ---- recurrent layers ------------------------------------------------------------------------ */

static bool zero(const wb__jl_array *a)
{
    for (int64_t i = 0; i < a->bytes; i++)
        if (a->data[i]) return false;
    return true;
}

/* One learned state, (out) or (out, 1): kept unless it is zero. */
static bool state(wb__flux_reader *r, const wb__jl *v, const char *child, int64_t out, slot *s)
{
    *s = (slot){.child = child};
    if (v->kind == WB__JL_GPU) return wb__jl_gpu_fail(&r->f, v, r->path), false;
    if (!wb__jl_array_of(&r->f, v, &s->a) || zero(&s->a)) return s->a.data = NULL, !r->f.status;
    if (!s->a.dtype || !wb__dtype_float(s->a.dtype) || s->a.count != out || s->a.transposed)
        return wb__flux_why(r, "its initial state is not one of %lld numbers", (long long)out),
               false;
    s->a.ndim = 1;
    s->a.dims[0] = out;
    return true;
}

static bool states(wb__flux_reader *r, const wb__jl *cell, int64_t out, slot *s)
{
    wb__jl first = wb__jl_field(&r->f, cell, "state0"), second = {0};
    if (!first.kind) {
        first = wb__jl_field(&r->f, cell, "h");
        second = wb__jl_field(&r->f, cell, "c");
    } else if (first.kind == WB__JL_TUPLE) {
        wb__jl both = first;
        first = wb__jl_item(&r->f, &both, 0);
        second = wb__jl_item(&r->f, &both, 1);
    }
    return state(r, &first, "initial_hidden", out, &s[0]) &&
           state(r, &second, "initial_cell", out, &s[1]);
}

/* RNNCell, LSTMCell, GRUCell; in a Recur or a layer of sequences they are that layer. */
static const struct recurrent {
    const char *cell;
    int gates;
    wb_layer *(*one)(const wb_recurrent_options *), *(*sequence)(const wb_recurrent_options *);
} recurrent_kinds[] = {{"RNNCell", 1, wb_rnn_cell_with, wb_rnn_with},
                       {"LSTMCell", 4, wb_lstm_cell_with, wb_lstm_with},
                       {"GRUCell", 3, wb_gru_cell_with, wb_gru_with}};

static const struct recurrent *recurrent_kind(const wb__jl *cell)
{
    for (size_t i = 0; i < WB__COUNT(recurrent_kinds); i++)
        if (wb__jl_flux(cell, recurrent_kinds[i].cell)) return &recurrent_kinds[i];
    return NULL;
}

static wb_layer *recurrent(wb__flux_reader *r, const wb__jl *v, const struct recurrent *kind,
                           bool sequence)
{
    slot s[5];
    if (!take(r, v, "Wi", "weight_input", false, &s[0]) ||
        !take(r, v, "Wh", "weight_hidden", false, &s[1]) ||
        !take(r, v, "bias", "bias", true, &s[2]))
        return NULL;
    turn(&s[0]);
    turn(&s[1]);
    if (!positive(r, &s[0], 2) || !positive(r, &s[1], 2)) return NULL;
    int64_t rows = s[0].a.dims[0], out = s[1].a.dims[1];
    if (rows / kind->gates != out || rows % kind->gates || s[1].a.dims[0] != rows)
        return wb__flux_why(r, "its weights do not go together");
    if (!shaped(r, &s[2], 1, &rows) || !states(r, v, out, s + 3)) return NULL;
    wb_recurrent_options o = {
        .size = sizeof o, .in = s[0].a.dims[1], .out = out, .init = wb_init_zeros};
    o.no_bias = !s[2].a.data;
    o.initial_state = s[3].a.data || s[4].a.data;
    o.dtype = widest(5, s);
    if (kind->gates == 1) {
        if (!wb__flux_activation(r, v, "σ", &o.activation)) return NULL;
        if (!o.activation) o.activation = wb_identity;
        else if (o.activation == wb_tanh) o.activation = NULL;
    }
    r->channels = 0;
    return filled(r, sequence ? kind->sequence(&o) : kind->one(&o), 5, s);
}

static wb_layer *cell(wb__flux_reader *r, const wb__jl *v)
{
    return recurrent(r, v, recurrent_kind(v), false);
}

/* Recur (to 0.14); RNN, LSTM, GRU (from 0.15); Recurrence. */
static wb_layer *recur(wb__flux_reader *r, const wb__jl *v)
{
    wb__jl inner = wb__jl_field(&r->f, v, "cell");
    const struct recurrent *kind = recurrent_kind(&inner);
    if (!kind)
        return wb__flux_why(r, "its cell is %s",
                            inner.kind == WB__JL_STRUCT ? inner.name : "no struct");
    return recurrent(r, &inner, kind, true);
}

/* ---- attention ------------------------------------------------------------------------------- */

static wb_layer *attention(wb__flux_reader *r, const wb__jl *v)
{
    static const char *const names[4] = {"q_proj", "k_proj", "v_proj", "out_proj"};
    slot s[4][2];
    wb__jl heads = wb__jl_field(&r->f, v, "nheads"), drop = wb__jl_field(&r->f, v, "attn_drop");
    wb_attention_options o = {.size = sizeof o, .heads = heads.integer, .init = wb_init_zeros};
    for (int i = 0; i < 4; i++) {
        wb__jl part = wb__jl_field(&r->f, v, names[i]);
        wb_function f;
        if (!wb__jl_flux(&part, "Dense")) return wb__flux_why(r, "its %s is no Dense", names[i]);
        if (!take(r, &part, "weight", "weight", false, &s[i][0]) ||
            !take(r, &part, "bias", "bias", true, &s[i][1]))
            return NULL;
        turn(&s[i][0]);
        if (!positive(r, &s[i][0], 2) || !wb__flux_activation(r, &part, "σ", &f)) return NULL;
        int64_t dim = s[0][0].a.dims[0];
        if (!shaped(r, &s[i][0], 2, (int64_t[]){dim, dim}) || !shaped(r, &s[i][1], 1, &dim) || f ||
            !s[i][1].a.data != !s[0][1].a.data)
            return wb__flux_why(r, "its projections are not all of one size without activation");
    }
    o.dim = s[0][0].a.dims[0];
    o.bias = s[0][1].a.data != NULL;
    o.dtype = widest(8, s[0]);
    o.dropout = wb__jl_flux(&drop, "Dropout") ? number(r, &drop, "p", 0) : 0;
    if (heads.kind != WB__JL_NUMBER || o.heads < 1)
        return wb__flux_why(r, "its number of heads is unknown");
    wb_layer *l = filled(r, wb_attention_layer_with(&o), 0, NULL);
    for (int i = 0; l && i < 4; i++)
        if (!filled(r, wb__layer_child(l, i), 2, s[i])) return NULL;
    return l;
}

/* ---- which ----------------------------------------------------------------------------------- */

static const struct {
    const char *type;
    wb_layer *(*make)(wb__flux_reader *, const wb__jl *);
} kinds[] = {
    {"Dense", dense}, {"Conv", conv}, {"CrossCor", crosscor}, {"DepthwiseConv", depthwise},
    {"MaxPool", maxpool}, {"MeanPool", meanpool}, {"GlobalMaxPool", globalmax},
    {"GlobalMeanPool", globalmean}, {"AdaptiveMaxPool", adaptive}, {"AdaptiveMeanPool", adaptive},
    {"BatchNorm", batchnorm}, {"LayerNorm", layernorm}, {"Dropout", dropout},
    {"Embedding", embedding}, {"RNNCell", cell}, {"LSTMCell", cell}, {"GRUCell", cell},
    {"Recur", recur}, {"RNN", recur}, {"LSTM", recur}, {"GRU", recur}, {"Recurrence", recur},
    {"MultiHeadAttention", attention}};

wb_layer *wb__flux_plain(wb__flux_reader *r, const wb__jl *v)
{
    r->why = NULL;
    for (size_t i = 0; i < WB__COUNT(kinds); i++)
        if (wb__jl_flux(v, kinds[i].type)) return kinds[i].make(r, v);
    return NULL;
}

bool wb__flux_known(const wb__jl *v)
{
    static const char *const more[] = {"Chain", "Parallel", "SkipConnection", "Scale", "Diagonal"};
    for (size_t i = 0; i < WB__COUNT(kinds); i++)
        if (wb__jl_flux(v, kinds[i].type)) return true;
    for (size_t i = 0; i < WB__COUNT(more); i++)
        if (wb__jl_flux(v, more[i])) return true;
    return false;
}
