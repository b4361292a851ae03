/* Reads Flux's layers that contain no other layers, by the fields of fields.c. Julia is
 * column-major, so the same bytes have reversed dimensions in Weber. A kernel (kw, kh, in, out)
 * becomes [out, in, kh, kw] without a copy. A weight (out, in) of a Dense or a recurrent cell would
 * become [in, out], so it is transposed to [out, in]. */
#include "io/flux/read.h"

#include <stdio.h>
#include <string.h>

/* An array of the file that becomes a child of a layer. */
typedef struct {
    const char *child;
    wb__flux_field_kind kind;
    wb__jl_array a;             /* data NULL: none */
} child_array;

/* A struct while it is read. */
typedef struct {
    wb__flux_reader *r;
    const wb__jl *v;
    const wb__flux_struct *row;
    const wb__layer_type *type;         /* type of the layer */
    union {
        wb_Dense_options dense;
        wb_Conv_options conv;
        wb_Pool_options pool;
        wb_BatchNorm_options batchnorm;
        wb_LayerNorm_options layernorm;
        wb_Dropout_options dropout;
        wb_Embedding_options embedding;
        wb_Recurrent_options recurrent;
        wb_MultiHeadAttention_options attention;
    } o;
    /* n_typed: number of arrays, at the beginning of `s`, that determine the dtype; 0: all n */
    int mode, n_typed, n;
    child_array s[8];
} reading;

/* ---- arrays ---------------------------------------------------------------------------------- */

static void *option(reading *x, const char *name)
{
    return wb__layer_option(x->type, &x->o, name);
}

/* Returns the layout, for the type of v, with as many fields as v; if there is none, the newest
 * layout of the type. NULL: v is no struct of Flux. */
static const wb__flux_struct *row_of(wb__flux_reader *r, const wb__jl *v)
{
    const char *type = wb__jl_last(v);
    if (!wb__jl_flux(v, type)) return NULL;
    const wb__flux_struct *row = wb__flux_struct_by_count(type, wb__bson_count(&r->f, v->items));
    return row ? row : wb__flux_struct_named(type);
}

/* Reads the array of a field. False with r->reason set: the value is no array of floats, or a
 * required array is missing. False with r->f.status set: another failure, such as an array in GPU
 * memory. */
static bool take(reading *x, const wb__jl *v, const wb__flux_field *f)
{
    wb__flux_reader *r = x->r;
    wb__jl value = wb__jl_field(&r->f, v, f->name);
    child_array *s = &x->s[x->n++];
    *s = (child_array){.child = f->weber, .kind = f->kind};
    if (value.kind == WB__JL_GPU) return wb__jl_gpu_fail(&r->f, &value, r->path), false;
    if (wb__jl_array_of(&r->f, &value, &s->a)) {
        if (s->a.dtype && wb__dtype_float(s->a.dtype)) {
            if (f->kind == WB__FIELD_MATRIX) wb__jl_transpose(&s->a);
            return true;
        }
        s->a.data = NULL;
        return wb__flux_reason(r, "its %s is of %s", f->weber, s->a.type), false;
    }
    bool none = value.kind == WB__JL_NOTHING || (value.kind == WB__JL_BOOL && !value.integer) ||
                wb__jl_flux(&value, "Zeros") || value.kind == WB__JL_ABSENT;
    bool optional = f->kind > WB__FIELD_WEIGHT;
    if (r->f.status || (none && optional)) return !r->f.status;
    return wb__flux_reason(r, "its %s is no array", f->weber), false;
}

static bool take_all(reading *x, const wb__jl *v, const wb__flux_struct *row)
{
    const wb__flux_field *f = NULL;
    while ((f = wb__flux_field_after(row, f))) {
        if (f->kind >= WB__FIELD_MATRIX && f->kind <= WB__FIELD_BIAS && !take(x, v, f))
            return false;
        if (f->kind != WB__FIELD_AFFINE) continue;
        wb__jl inner = wb__jl_field(&x->r->f, v, f->name);
        const wb__flux_struct *scale = row_of(x->r, &inner);
        bool affine = scale && scale->layer && !strcmp(scale->layer, "Scale");
        if (affine && !take_all(x, &inner, scale)) return false;
    }
    return true;
}

static bool has_shape(wb__flux_reader *r, const child_array *s, int ndim, const int64_t *dims)
{
    if (!s->a.data || (s->a.ndim == ndim && !memcmp(s->a.dims, dims, (size_t)ndim * sizeof *dims)))
        return true;
    return wb__flux_reason(r, "its %s has another shape than its other arrays ask for", s->child),
           false;
}

static bool positive(wb__flux_reader *r, const child_array *s, int ndim)
{
    for (int i = 0; s->a.ndim == ndim && i < ndim; i++)
        if (s->a.dims[i] < 1) return wb__flux_reason(r, "its %s is empty", s->child), false;
    if (s->a.ndim == ndim) return true;
    return wb__flux_reason(r, "its %s has %d axes, not %d", s->child, s->a.ndim, ndim), false;
}

/* Returns a dtype that can hold the values of all n arrays without loss. */
static wb_dtype widest(int n, const child_array *s)
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

static bool alike(const wb_tensor *x, const wb_tensor *y)
{
    return x->dtype == y->dtype && x->ndim == y->ndim &&
           !memcmp(x->dims, y->dims, (size_t)x->ndim * sizeof *x->dims) &&
           (x->flags & WB__FROZEN) == (y->flags & WB__FROZEN);
}

static int fill_child(wb__flux_reader *r, wb_layer *l, int i, const child_array *s)
{
    wb_tensor *x = wb__layer_child(l, i);
    bool frozen = x->flags & WB__FROZEN;
    /* In the file, statistics may have another dtype than the parameters. */
    if (frozen && (wb_dtype)x->dtype != s->a.dtype) {
        x = wb__statistic(l->type->name, s->child, wb_init_zeros, s->a.dtype, x->dims[0]);
        if (!x) return WB_ERROR_MEMORY;
        wb__branch_put(&l->node, i, s->child, x);
    }
    /* An array and its transpose become two tensors, so their keys differ. */
    const char *key = (const char *)s->a.at + s->a.transposed;
    void **shared = s->a.shared ? wb__pointer_map_at(&r->arrays, key) : NULL, *made;
    if (s->a.shared && !shared) return WB_ERROR_MEMORY;
    if (shared && *shared && alike(*shared, x)) {
        wb__branch_put(&l->node, i, s->child, *shared);
        return 0;
    }
    if (s->a.shared && !wb__bson_spend(&r->f, s->a.bytes)) return r->f.status;
    const void *values = wb__jl_values(&s->a, (wb_dtype)x->dtype, &made);
    int status =
        values ? wb__overwrite(x, values, (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype))
               : WB_ERROR_MEMORY;
    wb__free(made);
    if (shared && !*shared) *shared = x;
    return status;
}

/* Copies the arrays into the new layer `l` and returns it. NULL, with r->reason or r->f.status set:
 * `l` is NULL, or the copying failed. */
static wb_layer *filled(wb__flux_reader *r, wb_layer *l, int n, const child_array *s)
{
    if (!l) {
        if (wb_error_code() == WB_ERROR_MEMORY) r->f.status = WB_ERROR_MEMORY;
        return wb__flux_reason(r, "%.200s", wb_error());
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

/* ---- options --------------------------------------------------------------------------------- */

static double number(wb__flux_reader *r, const wb__jl *v, const char *field, double by_default)
{
    wb__jl value = wb__jl_field(&r->f, v, field);
    return value.kind != WB__JL_NUMBER ? by_default : value.real == 0 ? WB__ZERO : value.real;
}

static bool is_true(reading *x, const char *field)
{
    wb__jl value = wb__jl_field(&x->r->f, x->v, field);
    return value.kind != WB__JL_BOOL || value.integer;
}

/* Reads two numbers, which must be at least `least`. (w, h) in Julia becomes {h, w} in `out`. */
static bool pair(wb__flux_reader *r, const wb__jl *value, const char *field, int64_t least,
                 int64_t *out)
{
    int64_t both[3];
    if (wb__jl_integers(&r->f, value, 3, both) != 2)
        return wb__flux_reason(r, "its %s is not of two axes", field), false;
    if (both[0] < least || both[1] < least)
        return wb__flux_reason(r, least ? "its %s is not positive" : "its %s is negative", field),
               false;
    wb_ints_set(out, 2, (int64_t[]){both[1], both[0]});
    return true;
}

/* Reads a padding. (w, h) or (left, right, top, bottom) in Julia becomes {top, bottom, left, right}
 * in `list`. */
static bool pad(wb__flux_reader *r, const wb__jl *value, int64_t *list)
{
    int64_t p[5];
    int n = wb__jl_integers(&r->f, value, 5, p);
    if (n != 2 && n != 4) return wb__flux_reason(r, "its padding is not of two axes"), false;
    int64_t sides[4] = {n == 2 ? p[1] : p[2], n == 2 ? p[1] : p[3], p[0], n == 2 ? p[0] : p[1]};
    for (int i = 0; i < 4; i++)
        if (sides[i] < 0) return wb__flux_reason(r, "its padding is negative"), false;
    wb_ints_set(list, 4, sides);
    return true;
}

static bool axes(wb__flux_reader *r, const wb__jl *value, int64_t *out)
{
    int64_t dims[WB_MAX_DIMS];
    int n = wb__jl_integers(&r->f, value, WB_MAX_DIMS, dims);
    for (int i = 0; i < n; i++) {
        if (dims[i] < 1 || dims[i] > WB_MAX_DIMS)
            return wb__flux_reason(r, "its dims are no dimensions"), false;
        dims[i] = -dims[i];
    }
    if (n > 0) wb_ints_set(out, n, dims);
    else if (strcmp(wb__jl_last(value), "Colon"))
        return wb__flux_reason(r, "its dims are not known"), false;
    return true;
}

/* Reads one learned initial state, which is (out) or (out, 1) in Julia. A state of zeros is
 * ignored. */
static bool state(reading *x, const wb__jl *v, const char *child)
{
    wb__flux_reader *r = x->r;
    child_array *s = &x->s[x->n++];
    const int64_t out = x->o.recurrent.out;
    *s = (child_array){.child = child};
    if (v->kind == WB__JL_GPU) return wb__jl_gpu_fail(&r->f, v, r->path), false;
    if (!wb__jl_array_of(&r->f, v, &s->a) || wb__jl_zero(&s->a))
        return s->a.data = NULL, !r->f.status;
    if (!s->a.dtype || !wb__dtype_float(s->a.dtype) || s->a.count != out || s->a.transposed)
        return wb__flux_reason(r, "its initial state is not one of %lld numbers", (long long)out),
               false;
    s->a.ndim = 1;
    s->a.dims[0] = out;
    x->o.recurrent.initial_state = true;
    return true;
}

static bool states(reading *x, const wb__jl *v, const char *child)
{
    if (v->kind != WB__JL_TUPLE) return state(x, v, child);
    wb__jl first = wb__jl_item(&x->r->f, v, 0), second = wb__jl_item(&x->r->f, v, 1);
    return state(x, &first, "initial_hidden") && state(x, &second, "initial_cell");
}

static bool read_function(reading *x, const wb__flux_field *f)
{
    wb_function *at = option(x, f->weber);
    if (!wb__flux_activation(x->r, x->v, f->name, at)) return false;
    if (f->kind == WB__FIELD_TANH) *at = !*at ? wb_identity : *at == wb_tanh ? NULL : *at;
    return true;
}

static bool read_option(reading *x, const wb__flux_field *f)
{
    wb__flux_reader *r = x->r;
    wb__jl value = wb__jl_field(&r->f, x->v, f->name);
    void *at = f->weber ? option(x, f->weber) : NULL;
    int64_t out[2];
    switch (f->kind) {
    case WB__FIELD_STATE: return state(x, &value, f->weber);
    case WB__FIELD_STATES: return states(x, &value, f->weber);
    case WB__FIELD_FLOAT32: case WB__FIELD_FLOAT64:
        *(double *)at = number(r, x->v, f->name, f->by_default);
        return true;
    case WB__FIELD_PAIR: return pair(r, &value, f->name, 1, at);
    case WB__FIELD_COUNTS: return pair(r, &value, f->name, 0, at);
    case WB__FIELD_PAD: return pad(r, &value, at);
    case WB__FIELD_PLACES:
        if (wb__jl_integers(&r->f, &value, 2, out) == 2 && out[0] == 1 && out[1] == 1) return true;
        return wb__flux_reason(r, "only adaptive pools to (1, 1) are known"), false;
    case WB__FIELD_AXES: return axes(r, &value, at);
    case WB__FIELD_DROPOUT:
        *(double *)at = wb__jl_flux(&value, "Dropout") ? number(r, &value, "p", 0) : 0;
        return true;
    case WB__FIELD_MODE: case WB__FIELD_TRAINING:
        if (value.kind == WB__JL_BOOL && !(f->kind == WB__FIELD_TRAINING && value.integer))
            x->mode = value.integer ? WB__MODE_TRAIN : WB__MODE_TEST;
        return true;
    default: return true;
    }
}

/* ---- options from the shapes of arrays ------------------------------------------------------- */

static bool dense(reading *x)
{
    wb_Dense_options *o = &x->o.dense;
    const int64_t *dims = x->s[0].a.dims;
    o->out = dims[0];
    o->in = dims[1];
    return positive(x->r, &x->s[0], 2) && has_shape(x->r, &x->s[1], 1, dims);
}

static bool conv(reading *x)
{
    wb_Conv_options *o = &x->o.conv;
    int64_t *dims = x->s[0].a.dims;
    if (!positive(x->r, &x->s[0], 4)) return false;
    o->flip = x->s[0].kind != WB__FIELD_KERNEL;
    if (x->s[0].kind == WB__FIELD_DEPTHWISE) {      /* an output for each input and multiplier */
        o->groups = dims[0];
        dims[0] *= dims[1];
        dims[1] = 1;
    } else if (wb__jl_field(&x->r->f, x->v, "groups").kind != WB__JL_NUMBER) o->groups = 1;
    return true;
}

static bool conv_groups(reading *x)
{
    wb_Conv_options *o = &x->o.conv;
    const int64_t *dims = x->s[0].a.dims;
    wb__jl pad_mode = wb__jl_field(&x->r->f, x->v, "pad_mode");
    if (pad_mode.kind == WB__JL_SYMBOL && !wb__bson_equals(pad_mode.items, "zeros"))
        return wb__flux_reason(x->r, "it pads with other things than zeros"), false;
    if (o->groups < 1 || o->groups > dims[0] || dims[1] > INT64_MAX / o->groups)
        return wb__flux_reason(x->r, "it has %lld groups", (long long)o->groups), false;
    const bool transpose = !strcmp(x->type->name, "ConvTranspose");
    o->out = transpose ? dims[1] * o->groups : dims[0];
    o->in = transpose ? dims[0] : dims[1] * o->groups;
    wb_ints_set(o->kernel, 2, dims + 2);
    return has_shape(x->r, &x->s[1], 1, &o->out);
}

static bool batchnorm(reading *x)
{
    enum { SCALE, SHIFT, MEAN, VAR };
    wb_BatchNorm_options *o = &x->o.batchnorm;
    wb__flux_reader *r = x->r;
    const child_array *s = x->s, *some = s[SCALE].a.data ? &s[SCALE] : &s[MEAN];
    if (!some->a.data) return wb__flux_reason(r, "it has neither parameters nor statistics"), false;
    if (!positive(r, some, 1)) return false;
    for (int i = 0; i < 4; i++)
        if (!has_shape(r, &s[i], 1, some->a.dims)) return false;
    o->no_affine = !s[SCALE].a.data || !is_true(x, "affine");
    o->no_track_stats = !s[MEAN].a.data || !is_true(x, "track_stats");
    if (!o->no_affine != !!s[SHIFT].a.data || !o->no_track_stats != !!s[VAR].a.data)
        return wb__flux_reason(r, "one of two arrays that go together is missing"), false;
    o->channels = some->a.dims[0];
    if (!o->no_affine) x->n_typed = 2;
    return true;
}

static bool layernorm(reading *x)
{
    wb_LayerNorm_options *o = &x->o.layernorm;
    wb__flux_reader *r = x->r;
    const child_array *s = x->s;
    int64_t shape[5] = {0};
    wb__jl size = wb__jl_field(&r->f, x->v, "size");
    int n = size.kind ? wb__jl_integers(&r->f, &size, 4, shape) : 0;
    o->eps = 1e-5;
    o->no_affine = !x->n;
    if (x->n) {
        n = s[0].a.ndim;
        if (n < 1 || n > 4 || !positive(r, &s[0], n) || !has_shape(r, &s[1], n, s[0].a.dims))
            return false;
        if (!s[1].a.data) return wb__flux_reason(r, "it has no bias"), false;
        wb_ints_set(o->shape, n, s[0].a.dims);
    } else {
        int64_t dims[4];
        for (int i = 0; i < n && i < 4; i++) dims[i] = shape[n - 1 - i];
        if (n >= 1 && n <= 4) wb_ints_set(o->shape, n, dims);
    }
    return n >= 1 || wb__flux_reason(r, "its size is unknown");
}

static bool embedding(reading *x)
{
    x->o.embedding.n = x->s[0].a.dims[0];
    x->o.embedding.dim = x->s[0].a.dims[1];
    return positive(x->r, &x->s[0], 2);
}

static bool cell(reading *x)
{
    wb_Recurrent_options *o = &x->o.recurrent;
    const child_array *s = x->s;
    const char *type = x->row->type;
    if (!positive(x->r, &s[0], 2) || !positive(x->r, &s[1], 2)) return false;
    int64_t rows = s[0].a.dims[0], gates = *type == 'L' ? 4 : *type == 'G' ? 3 : 1;
    o->in = s[0].a.dims[1];
    o->out = s[1].a.dims[1];
    if (rows / gates != o->out || rows % gates || s[1].a.dims[0] != rows)
        return wb__flux_reason(x->r, "its weights do not go together"), false;
    return has_shape(x->r, &s[2], 1, &rows);
}

static bool attention(reading *x)
{
    static const char *const names[4] = {"q_proj", "k_proj", "v_proj", "out_proj"};
    wb__flux_reader *r = x->r;
    for (int i = 0; i < 4; i++) {
        wb__jl dense = wb__jl_field(&r->f, x->v, names[i]);
        wb_function f;
        if (!wb__jl_flux(&dense, "Dense"))
            return wb__flux_reason(r, "its %s is no Dense", names[i]), false;
        if (!take_all(x, &dense, row_of(r, &dense))) return false;
        const child_array *s = &x->s[2 * i];
        if (!positive(r, s, 2) || !wb__flux_activation(r, &dense, "σ", &f)) return false;
        if (!has_shape(r, s + 1, 1, s->a.dims) || f || !s[1].a.data != !x->s[1].a.data)
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

/* ---- layers ---------------------------------------------------------------------------------- */

/* How a layer changes r->channels, which is 0 without images. KEEPS: not at all. ENDS: to 0.
 * STARTS: to the number of output channels. POOLS: from 0 to 1; other values stay. */
typedef enum { KEEPS, ENDS, STARTS, POOLS } images;

static const struct kind {
    const char *layer;
    images images;
    /* `sizes` is called after the arrays are read, `last` after the options are read; NULL: none */
    bool (*sizes)(reading *x), (*last)(reading *x);
} kinds[] = {{"Dense", ENDS, dense, NULL}, {"Conv", STARTS, conv, conv_groups},
             {"ConvTranspose", STARTS, conv, conv_groups},
             {"MaxPool", POOLS, NULL, NULL}, {"MeanPool", POOLS, NULL, NULL},
             {"GlobalMaxPool", POOLS, NULL, NULL}, {"GlobalMeanPool", POOLS, NULL, NULL},
             {"BatchNorm", KEEPS, batchnorm, NULL}, {"LayerNorm", KEEPS, layernorm, NULL},
             {"Dropout", KEEPS, NULL, NULL}, {"Embedding", ENDS, embedding, NULL},
             {"RNNCell", ENDS, cell, NULL}, {"LSTMCell", ENDS, cell, NULL},
             {"GRUCell", ENDS, cell, NULL}, {"MultiHeadAttention", KEEPS, attention, NULL}};

/* Sets the options that many kinds of layers share, and creates the layer with its arrays. */
static wb_layer *made(reading *x, const struct kind *kind)
{
    const images images = kind->images;
    wb__flux_reader *r = x->r;
    wb_initialiser *init = option(x, "init");
    wb_dtype *dtype = option(x, "dtype");
    bool *no_bias = option(x, "no_bias");
    if (init) *init = wb_init_zeros;
    if (dtype) *dtype = widest(x->n_typed ? x->n_typed : x->n, x->s);
    for (int i = 0; no_bias && i < x->n; i++)
        if (x->s[i].kind == WB__FIELD_BIAS) *no_bias = !x->s[i].a.data;
    if (images == ENDS || (images == POOLS && !r->channels)) r->channels = images == POOLS;
    memcpy(&x->o, &x->type->options_size, sizeof x->type->options_size);
    const bool projections = kind->sizes == attention;      /* arrays are of its Dense layers */
    wb_layer *l = filled(r, x->type->make(&x->o), projections ? 0 : x->n, x->s);
    for (int i = 0; l && projections && i < 4; i++)
        if (!filled(r, wb__layer_child(l, i), 2, &x->s[2 * i])) return NULL;
    if (l && x->mode) l->mode = x->mode;
    if (l && images == STARTS) r->channels = x->o.conv.out;
    return l;
}

static wb_layer *read(reading *x, const struct kind *kind)
{
    const wb__flux_field *f = NULL;
    while ((f = wb__flux_field_after(x->row, f))) {
        wb__jl value = wb__jl_field(&x->r->f, x->v, f->name);
        if (f->kind == WB__FIELD_INT && value.kind == WB__JL_NUMBER)
            *(int64_t *)option(x, f->weber) = value.integer;
    }
    if (!take_all(x, x->v, x->row) || (kind->sizes && !kind->sizes(x))) return NULL;
    while ((f = wb__flux_field_after(x->row, f)))
        if (!read_option(x, f)) return NULL;
    while ((f = wb__flux_field_after(x->row, f)))
        if (f->weber && !strcmp(f->weber, "activation") && !read_function(x, f)) return NULL;
    return !kind->last || kind->last(x) ? made(x, kind) : NULL;
}

wb_layer *wb__flux_plain(wb__flux_reader *r, const wb__jl *v)
{
    reading x = {.r = r, .v = v, .row = row_of(r, v)};
    wb__jl inner;
    char layer[32];
    r->reason = NULL;
    if (!x.row || !x.row->layer) return NULL;
    /* a struct with a cell is read from its cell */
    const bool sequence = x.row->fields[0].kind == WB__FIELD_CELL;
    if (sequence) {
        inner = wb__jl_field(&r->f, v, "cell");
        x.v = &inner;
        x.row = row_of(r, &inner);
        if (!x.row || !strstr(x.row->type, "Cell"))
            return wb__flux_reason(r, "its cell is %s",
                                inner.kind == WB__JL_STRUCT ? inner.name : "no struct");
    }
    snprintf(layer, sizeof layer, "%s", x.row->layer);
    if (sequence) *strstr(layer, "Cell") = 0;
    x.type = wb__layer_type_named(layer);
    for (size_t i = 0; i < WB__COUNT(kinds); i++)
        if (!strcmp(x.row->layer, kinds[i].layer)) return read(&x, &kinds[i]);
    return NULL;
}

bool wb__flux_known(const wb__jl *v)
{
    const wb__flux_struct *row = wb__flux_struct_named(wb__jl_last(v));
    return row && row->layer && wb__jl_flux(v, row->type);
}
