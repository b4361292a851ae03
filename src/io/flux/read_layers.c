/* Reads Flux's layers that contain no other layers, by the fields of fields.c.  Julia is
 * column-major, so the same bytes have reversed dimensions in Weber.  A kernel (kw, kh, in, out)
 * becomes [out, in, kh, kw] without a copy.  A weight (out, in) of a Dense or a recurrent cell
 * would become [in, out], so it is transposed to [out, in]. */
#include "io/flux/kinds.h"

#include <stdio.h>
#include <string.h>

static void *flux_layer_option(wb__flux_reading *x, const char *name)
{
    return wb__layer_option(x->type, &x->o, name);
}

/* Returns the layout, for the type of v, with as many fields as v; if there is none, the newest
 * layout of the type.  NULL: v is no struct of Flux. */
const wb__flux_struct *wb__flux_row_of(wb__flux_reader *r, const wb__jl *v)
{
    const char *type = wb__jl_last(v);
    if (!wb__jl_flux(v, type)) return NULL;
    const wb__flux_struct *row = wb__flux_struct_by_count(type, wb__bson_count(&r->f, v->items));
    return row ? row : wb__flux_struct_named(type);
}

/* Adds the array of a field to x->s.  False with r->reason set: the value is no array of floats, or
 * a required array is missing.  False with r->f.status set: another failure, such as an array in
 * GPU memory. */
static bool flux_layer_take(wb__flux_reading *x, const wb__jl *v, const wb__flux_field *f)
{
    wb__flux_reader *r = x->r;
    wb__jl value = wb__jl_field(&r->f, v, f->name);
    wb__flux_child *s = &x->s[x->n++];
    *s = (wb__flux_child){.child = f->weber, .kind = f->kind};
    if (value.kind == WB__JL_GPU) return wb__jl_gpu_fail(&r->f, &value, r->path), false;
    if (wb__jl_array_of(&r->f, &value, &s->a)) {
        if (s->a.dtype && wb__dtype_float(s->a.dtype)) {
            if (f->kind <= WB__FIELD_LAST_GATE) wb__jl_transpose(&s->a);
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

bool wb__flux_take_all(wb__flux_reading *x, const wb__jl *v, const wb__flux_struct *row)
{
    const wb__flux_field *f = NULL;
    while ((f = wb__flux_field_after(row, f))) {
        if (f->kind >= WB__FIELD_MATRIX && f->kind <= WB__FIELD_BIAS && !flux_layer_take(x, v, f))
            return false;
        if (f->kind != WB__FIELD_AFFINE) continue;
        wb__jl inner = wb__jl_field(&x->r->f, v, f->name);
        const wb__flux_struct *scale = wb__flux_row_of(x->r, &inner);
        bool affine = scale && scale->layer && !strcmp(scale->layer, "Scale");
        if (affine && !wb__flux_take_all(x, &inner, scale)) return false;
    }
    return true;
}

bool wb__flux_has_shape(wb__flux_reader *r, const wb__flux_child *s, int ndim, const int64_t *dims)
{
    if (!s->a.data || (s->a.ndim == ndim && !memcmp(s->a.dims, dims, (size_t)ndim * sizeof *dims)))
        return true;
    return wb__flux_reason(r, "its %s has another shape than its other arrays ask for", s->child),
           false;
}

bool wb__flux_positive(wb__flux_reader *r, const wb__flux_child *s, int ndim)
{
    for (int i = 0; s->a.ndim == ndim && i < ndim; i++)
        if (s->a.dims[i] < 1) return wb__flux_reason(r, "its %s is empty", s->child), false;
    if (s->a.ndim == ndim) return true;
    return wb__flux_reason(r, "its %s has %d axes, not %d", s->child, s->a.ndim, ndim), false;
}

/* Returns a dtype that can hold the values of all n arrays without loss. */
static wb_dtype flux_layer_widest(int n, const wb__flux_child *s)
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

static bool flux_layer_same_type(const wb_tensor *x, const wb_tensor *y)
{
    return x->dtype == y->dtype && x->ndim == y->ndim &&
           !memcmp(x->dims, y->dims, (size_t)x->ndim * sizeof *x->dims) &&
           (x->flags & WB__FROZEN) == (y->flags & WB__FROZEN);
}

static int flux_layer_fill_child(wb__flux_reader *r, wb_layer *l, int i, const wb__flux_child *s)
{
    wb_tensor *x = wb__layer_child(l, i);
    const char *name = l->node.children[i].name;        /* the layer may own it */
    bool frozen = x->flags & WB__FROZEN;
    /* In the file, statistics may have another dtype than the parameters. */
    if (frozen && (wb_dtype)x->dtype != s->a.dtype) {
        x = wb__statistic(l->type->name, s->child, wb_init_zeros, s->a.dtype, x->dims[0]);
        if (!x) return WB_ERROR_MEMORY;
        wb__branch_put(&l->node, i, name, x);
    }
    /* An array and its transpose become two tensors, so their keys differ. */
    const char *key = (const char *)s->a.at + s->a.transposed;
    void **shared = s->a.shared ? wb__pointer_map_at(&r->arrays, key) : NULL, *made;
    if (s->a.shared && !shared) return WB_ERROR_MEMORY;
    if (shared && *shared && flux_layer_same_type(*shared, x)) {
        wb__branch_put(&l->node, i, name, *shared);
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

/* Returns the new layer `l` with copies of the arrays as values.  NULL, with r->reason or
 * r->f.status set: `l` is NULL, or the copying failed. */
static wb_layer *flux_layer_filled(wb__flux_reader *r, wb_layer *l, int n, const wb__flux_child *s)
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
        int status = flux_layer_fill_child(r, l, at, &s[i]);
        if (status) return r->f.status = status, NULL;
    }
    return l;
}

static double flux_layer_number(wb__flux_reader *r, const wb__jl *v, const char *field,
                                double by_default)
{
    wb__jl value = wb__jl_field(&r->f, v, field);
    return value.kind == WB__JL_NUMBER ? value.real : by_default;
}

/* Sets `out` to 1 to 3 numbers, which must be at least `least`.  Julia's (w, h) becomes {h, w}. */
static bool flux_layer_read_axes(wb__flux_reader *r, const wb__jl *value, const char *field,
                                 int64_t least, int64_t *out)
{
    int64_t given[4], sizes[3];
    const int n = wb__jl_integers(&r->f, value, 3, given);
    if (n < 1) return wb__flux_reason(r, "its %s is not of 1 to 3 axes", field), false;
    for (int i = 0; i < n; i++) {
        if (given[i] < least)
            return wb__flux_reason(r, least ? "its %s is not positive" : "its %s is negative",
                                   field), false;
        sizes[n - 1 - i] = given[i];
    }
    wb_ints_set(out, n, sizes);
    return true;
}

/* Sets `list` to a padding of the window or kernel that `stride` slides.  (w, h) or (left, right,
 * top, bottom) in Julia becomes {top, bottom, left, right}. */
static bool flux_layer_pad(wb__flux_reader *r, const wb__jl *value, const wb__jl *stride,
                           int64_t *list)
{
    int64_t p[7], sides[6], strides[4];
    const int n = wb__jl_integers(&r->f, value, 6, p);
    const int axes = wb__jl_integers(&r->f, stride, 3, strides);
    if (axes < 1 || (n != axes && n != 2 * axes))
        return wb__flux_reason(r, "its padding is not of as many axes as its stride"), false;
    for (int i = 0; i < axes; i++) {
        const int from = axes - 1 - i;
        sides[2 * i] = n == axes ? p[from] : p[2 * from];
        sides[2 * i + 1] = n == axes ? p[from] : p[2 * from + 1];
    }
    for (int i = 0; i < 2 * axes; i++)
        if (sides[i] < 0) return wb__flux_reason(r, "its padding is negative"), false;
    wb_ints_set(list, 2 * axes, sides);
    return true;
}

static bool flux_layer_padding_mode(wb__flux_reader *r, const wb__jl *value, int64_t *mode)
{
    for (const wb__flux_value_name *row = wb__flux_pad_modes; row->julia; row++)
        if (value->kind == WB__JL_SYMBOL && wb__bson_equals(value->items, row->julia))
            return *mode = row->value, true;
    return value->kind != WB__JL_SYMBOL ||
           wb__flux_reason(r, "what it pads with is unknown here");
}

/* Sets *mode to the function that reduces the rows of a bag. */
static bool flux_layer_reduction(wb__flux_reader *r, const wb__jl *value, int64_t *mode)
{
    for (const wb__flux_value_name *row = wb__flux_reductions; row->julia; row++)
        if (value->kind == WB__JL_FUNCTION &&
            !strcmp(wb__jl_last(value), strchr(row->julia, '#') + 1))
            return *mode = row->value, true;
    return wb__flux_reason(r, "its reduction is neither mean, sum nor maximum"), false;
}

/* Sets *index to the index of a row of an Embedding, which counts from 1 in Julia. */
static bool flux_layer_row_index(wb__flux_reading *x, const wb__jl *value, int64_t *index)
{
    const int64_t n = x->o.embedding.n;
    if (value->kind == WB__JL_NOTHING || value->kind == WB__JL_ABSENT) return true;
    if (value->kind != WB__JL_NUMBER || !value->whole || value->integer < 1 || value->integer > n)
        return wb__flux_reason(x->r, "its padding index is not in 1 to %lld", (long long)n), false;
    *index = value->integer - 1 - n;
    return true;
}

static bool flux_layer_axes(wb__flux_reader *r, const wb__jl *value, int64_t *out)
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

/* Adds one learned initial state, which is (out) or (out, 1) in Julia, to x->s, unless it is
 * zeros. */
static bool flux_layer_state(wb__flux_reading *x, const wb__jl *v, const char *child)
{
    wb__flux_reader *r = x->r;
    wb__flux_child *s = &x->s[x->n++];
    const int64_t out = x->o.recurrent.out;
    *s = (wb__flux_child){.child = child};
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

static bool flux_layer_states(wb__flux_reading *x, const wb__jl *v, const char *child)
{
    if (v->kind != WB__JL_TUPLE) return flux_layer_state(x, v, child);
    wb__jl first = wb__jl_item(&x->r->f, v, 0), second = wb__jl_item(&x->r->f, v, 1);
    return flux_layer_state(x, &first, "initial_hidden") &&
           flux_layer_state(x, &second, "initial_cell");
}

static bool flux_layer_read_function(wb__flux_reading *x, const wb__flux_field *f)
{
    wb_function *at = flux_layer_option(x, f->weber);
    if (!wb__flux_activation(x->r, x->v, f->name, at)) return false;
    if (f->kind == WB__FIELD_TANH) *at = !*at ? wb_identity : *at == wb_tanh ? NULL : *at;
    return true;
}

static bool flux_layer_read_option(wb__flux_reading *x, const wb__flux_field *f)
{
    wb__flux_reader *r = x->r;
    wb__jl value = wb__jl_field(&r->f, x->v, f->name);
    void *at = f->weber ? flux_layer_option(x, f->weber) : NULL;
    wb__jl stride;
    switch (f->kind) {
    case WB__FIELD_STATE: return flux_layer_state(x, &value, f->weber);
    case WB__FIELD_STATES: return flux_layer_states(x, &value, f->weber);
    case WB__FIELD_FLOAT32: case WB__FIELD_FLOAT64:
        if (at && f->by_default) *(double *)at = f->by_default;
        if (at) *(double *)at = flux_layer_number(r, x->v, f->name, *(double *)at);
        return true;
    case WB__FIELD_AXES_OF_SPACE: return flux_layer_read_axes(r, &value, f->name, 1, at);
    case WB__FIELD_COUNTS: return flux_layer_read_axes(r, &value, f->name, 0, at);
    case WB__FIELD_FACTORS:
        return value.kind == WB__JL_NOTHING || flux_layer_read_axes(r, &value, f->name, 1, at);
    case WB__FIELD_PAD: stride = wb__jl_field(&r->f, x->v, "stride");
        return flux_layer_pad(r, &value, &stride, at);
    case WB__FIELD_PAD_MODE: return flux_layer_padding_mode(r, &value, at);
    case WB__FIELD_REDUCTION: return flux_layer_reduction(r, &value, at);
    case WB__FIELD_INDEX: return flux_layer_row_index(x, &value, at);
    case WB__FIELD_AXES: return flux_layer_axes(r, &value, at);
    case WB__FIELD_DROPOUT:
        *(double *)at = wb__jl_flux(&value, "Dropout") ? flux_layer_number(r, &value, "p", 0) : 0;
        return true;
    case WB__FIELD_MODE: case WB__FIELD_TRAINING:
        if (value.kind == WB__JL_BOOL && !(f->kind == WB__FIELD_TRAINING && value.integer))
            x->mode = value.integer ? WB__MODE_TRAIN : WB__MODE_TEST;
        return true;
    default: return true;
    }
}

/* Sets the options that many kinds of layers share, and returns the layer with its arrays. */
static wb_layer *flux_layer_new(wb__flux_reading *x, const wb__flux_kind *kind)
{
    const wb__images images = kind->images;
    const bool projections = kind->projections;
    wb__flux_reader *r = x->r;
    wb_initializer *init = flux_layer_option(x, "init");
    wb_dtype *dtype = flux_layer_option(x, "dtype");
    bool *bias = flux_layer_option(x, "bias");
    if (init) *init = wb_init_zeros;
    if (dtype) *dtype = flux_layer_widest(x->n_typed ? x->n_typed : x->n, x->s);
    for (int i = 0; bias && !projections && i < x->n; i++)
        if (x->s[i].kind == WB__FIELD_BIAS) *bias = x->s[i].a.data != NULL;
    if (images == WB__IMAGES_ENDS || (images == WB__IMAGES_POOLS && !r->channels))
        r->channels = images == WB__IMAGES_POOLS;
    wb_layer *l = flux_layer_filled(r, x->type->make(&x->o), projections ? 0 : x->n, x->s);
    for (int i = 0; l && projections && i < 4; i++)
        if (!flux_layer_filled(r, wb__layer_child(l, i), 2, &x->s[2 * i])) return NULL;
    if (l && x->mode) l->mode = x->mode;
    if (l && images == WB__IMAGES_STARTS) r->channels = x->o.conv.out;
    return l;
}

/* Returns the layer that the struct x->v describes.  NULL with a reason or status set. */
static wb_layer *flux_layer_read(wb__flux_reading *x, const wb__flux_kind *kind)
{
    const wb__flux_field *f = NULL;
    while ((f = wb__flux_field_after(x->row, f))) {
        wb__jl value = wb__jl_field(&x->r->f, x->v, f->name);
        if (f->kind == WB__FIELD_INT && value.kind == WB__JL_NUMBER)
            *(int64_t *)flux_layer_option(x, f->weber) = value.integer;
    }
    if (!wb__flux_take_all(x, x->v, x->row) || (kind->sizes && !kind->sizes(x))) return NULL;
    while ((f = wb__flux_field_after(x->row, f)))
        if (!flux_layer_read_option(x, f)) return NULL;
    while ((f = wb__flux_field_after(x->row, f)))
        if (f->weber && !strcmp(f->weber, "activation") && !flux_layer_read_function(x, f))
            return NULL;
    return !kind->last || kind->last(x) ? flux_layer_new(x, kind) : NULL;
}

/* Returns the first parameter of the type of v. */
static wb__jl first_parameter(wb__flux_reader *r, const wb__jl *v)
{
    return wb__jl_of(&r->f, wb__bson_at(&r->f, wb__bson_get(&r->f, v->type, "params"), 0));
}

wb_layer *wb__flux_plain(wb__flux_reader *r, const wb__jl *v)
{
    wb__flux_reading x = {.r = r, .v = v, .row = wb__flux_row_of(r, v)};
    wb__jl inner;
    char layer[32];
    int64_t strides[4];
    bool return_state = false;
    r->reason = NULL;
    if (x.row && !strcmp(x.row->type, "WeightNorm"))
        return wb__flux_reason(r, "in Julia, save Flux.remove_weight_norms(model)");
    if (!x.row || !x.row->layer) return NULL;
    /* a struct with a cell is read from its cell */
    const bool sequence = x.row->fields[0].kind == WB__FIELD_CELL;
    if (sequence) {
        inner = wb__jl_field(&r->f, v, "cell");
        x.v = &inner;
        x.row = wb__flux_row_of(r, &inner);
        if (!x.row || !strstr(x.row->type, "Cell"))
            return wb__flux_reason(r, "its cell is %s",
                                inner.kind == WB__JL_STRUCT ? inner.name : "no struct");
        wb__jl parameter = first_parameter(r, v);
        return_state = parameter.kind == WB__JL_BOOL && parameter.integer;
    }
    const wb__flux_kind *kind = wb__flux_kind_of(x.row->layer);
    wb__jl stride = wb__jl_field(&r->f, x.v, "stride");
    const bool line = stride.kind && wb__jl_integers(&r->f, &stride, 3, strides) == 1;
    snprintf(layer, sizeof layer, "%s%s", x.row->layer, line ? "1d" : "");
    if (sequence) *strstr(layer, "Cell") = 0;
    x.type = wb__layer_type_named(layer);
    if (!kind || !x.type) return NULL;
    if (x.type->defaults) memcpy(&x.o, x.type->defaults, x.type->options_size);
    if (sequence) x.o.recurrent.return_state = return_state;
    wb_layer *l = flux_layer_read(&x, kind);
    for (int i = 0; i < x.n; i++) wb__free(x.s[i].made);
    return l;
}

bool wb__flux_known(const wb__jl *v)
{
    const wb__flux_struct *row = wb__flux_struct_named(wb__jl_last(v));
    return row && row->layer && wb__jl_flux(v, row->type);
}
