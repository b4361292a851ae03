/* Writes each kind of layer as Flux's struct of the requested version, or as Flux.state returns it,
 * by the fields of fields.c.
 *
 * Flux's sizes are reversed: {h, w} is (w, h), {top, bottom, left, right} is (left, right, top,
 * bottom), and [out, in, kh, kw] is (kw, kh, in, out) with the same bytes.  The matrix of a Dense
 * or a cell is (out, in) in Flux too, so it is written column-major.  Flux.state returns the empty
 * tuple for functions and for values of types without fields, such as Colon. */
#include "io/flux/save.h"
#include "nn/window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Versions of Flux, as minor*100 + patch, that changed how layers are written. */
enum {
    ACTIVE_MAY_BE_NOTHING = 1000, STATES_ARE_COLUMNS = 1200, NORMS_WITH_OPTIONS = 1200,
    NAMED_CHAINS = 1207, TRILINEAR = 1209, FLUX_PUT_SCALE = 1300, BROADCAST_FUNCTION = 1300,
    EVERYTHING_HAS_CHILDREN = 1500, STATELESS_CELLS = 1500, RETURNED_STATES = 1601
};

/* ---- a struct under construction ------------------------------------------------------------- */

/* A layer while its struct is made. */
typedef struct {
    wb__flux_saver *s;                  /* the file */
    wb_layer *l;                        /* the layer */
    const wb__layer_type *type;
    const void *options;                /* the options of the layer, of `type` */
    const wb__flux_struct *row;
    wb__julia at[WB__FLUX_FIELDS];      /* the values of the fields of `row` */
} flux_put_record;

static wb__julia struct_of(wb__flux_saver *s, wb_layer *l, const char *type, const void *options);

static wb__julia flux_put_empty(wb__flux_saver *s) { return wb__julia_tuple(&s->arena, 0, NULL); }

/* Returns the only value of a type without fields, such as the type of a function.  `path` is the
 * name of the type.  Returns the empty tuple if s->structs is false. */
static wb__julia flux_put_only(wb__flux_saver *s, const char *path)
{
    return s->structs ? wb__julia_singleton(&s->arena, path) : flux_put_empty(s);
}

static const void *flux_put_option(const flux_put_record *r, const char *name)
{
    return wb__layer_option(r->type, r->options, name);
}

static bool flux_put_has(const flux_put_record *r, const char *name)
{
    const bool *value = flux_put_option(r, name);
    return value && *value;
}

static wb_function flux_put_function(const flux_put_record *r)
{
    wb_function f;
    memcpy(&f, flux_put_option(r, "activation"), sizeof f);
    return f == wb_identity ? NULL : f;
}

static void *flux_put_child(const wb_layer *l, const char *name)
{
    for (int i = 0; i < l->node.n; i++)
        if (!strcmp(l->node.children[i].name, name)) return l->node.children[i].object;
    return WB_NONE;
}

/* ---- functions ------------------------------------------------------------------------------- */

static const wb__flux_name *flux_put_function_row(const wb__flux_saver *s, const char *name)
{
    return wb__flux_name_weber(wb__flux_functions, name, 1, s->version);
}

static wb__julia flux_put_activation(wb__flux_saver *s, wb_function f)
{
    if (!s->structs) return flux_put_empty(s);
    const char *name = f ? wb__function_name(f) : "identity";
    const wb__flux_name *row = flux_put_function_row(s, name);
    if (!row) return wb__flux_refuse(s, "the activation %s", name ? name : "without a name");
    if (!row->elements && strcmp(name, "identity"))
        return wb__flux_refuse(s, "%s as an activation: it is a layer of its own", name);
    return flux_put_only(s, row->path);
}

/* Returns an elementwise function as a layer that broadcasts it over arrays. */
static wb__julia flux_put_broadcast(wb__flux_saver *s, const char *path)
{
    wb__julia fields[2] = {flux_put_only(s, "Base.Broadcast.#broadcast"), flux_put_only(s, path)};
    if (!s->structs)
        return wb__julia_named_tuple(&s->arena, 2, (const char *const[]){"f", "x"}, fields);
    wb__doc *types[2] = {fields[0].type, fields[1].type};
    return wb__julia_struct(&s->arena, wb__julia_type(&s->arena, "Base.Fix1", 2, types), 2, fields);
}

static wb__julia flux_put_function_named(wb__flux_saver *s, const char *name)
{
    const wb__flux_name *row = flux_put_function_row(s, name);
    if (!row && !s->structs) return flux_put_empty(s);
    if (!row) return wb__flux_refuse(s, "the function %s", name ? name : "without a name");
    return row->elements ? flux_put_broadcast(s, row->path) : flux_put_only(s, row->path);
}

static wb__julia flux_put_connection(const flux_put_record *r)
{
    wb__flux_saver *s = r->s;
    wb__connection f;
    wb__child *layers;
    memcpy(&f, flux_put_option(r, "connection"), sizeof f);
    const bool skip = !strcmp(r->type->name, "SkipConnection");
    const char *name = wb__connection_name(f);
    const int n = skip ? 2 : wb__container_layers(r->l, &layers);
    const wb__flux_name *row = wb__flux_name_weber(wb__flux_connections, name, n, s->version);
    if (!row && !s->structs) return flux_put_empty(s);
    if (!row) return wb__flux_refuse(s, "the connection %s", name ? name : "without a name");
    wb__julia inner = flux_put_only(s, row->path);
    if (!row->elements) return inner;
    if (!s->structs)
        return wb__julia_named_tuple(&s->arena, 1, (const char *const[]){"f"}, &inner);
    if (s->version < BROADCAST_FUNCTION)
        return wb__flux_refuse(s, "the connection %s, for which 0.13 is the first", name);
    wb__doc *type = wb__julia_type(&s->arena, "Base.Broadcast.BroadcastFunction", 1, &inner.type);
    return wb__julia_struct(&s->arena, type, 1, &inner);
}

/* ---- children -------------------------------------------------------------------------------- */

/* Returns a kernel.  Flux's Conv flips its kernels.  Flux's CrossCor does not, but has no groups.
 * So a Conv without .flip is written as a CrossCor, or, if it has groups, as a Conv with flipped
 * kernels.  A ConvTranspose without .flip is written with flipped kernels too. */
static wb__julia flux_put_kernel(const flux_put_record *r, const wb__flux_field *f)
{
    const bool flipped = f->kind == WB__FIELD_FLIPPED && !flux_put_has(r, "flip");
    const wb__doc_order order = flipped ? WB__DOC_FLIPPED : WB__DOC_ROWS;
    return wb__flux_tensor(r->s, f->weber, flux_put_child(r->l, f->weber), order);
}

/* Returns the bias.  A missing bias is `false`, or zeros in versions before f->since. */
static wb__julia flux_put_bias(const flux_put_record *r, const wb__flux_field *f)
{
    wb__flux_saver *s = r->s;
    const wb_tensor *weight = wb__layer_child(r->l, 0);
    void *x = flux_put_child(r->l, f->weber);
    if (!wb_is_none(x)) return wb__flux_value(s, f->weber, x);
    if (s->version >= f->since) return wb__julia_bool(&s->arena, false);
    const int64_t *out = flux_put_option(r, "kernel") ? flux_put_option(r, "out") : weight->dims;
    return wb__julia_zeros(&s->arena, (wb_dtype)weight->dtype, 1, out);
}

/* Returns an initial state, as a matrix with one column, or as a vector for versions before 0.12.
 * Cells and Recurs of versions before 0.15 have fields for states. */
static wb__julia flux_put_state(const flux_put_record *r, const char *name)
{
    wb__flux_saver *s = r->s;
    const wb_tensor *weight = wb__layer_child(r->l, 1);
    wb_tensor *x = flux_put_child(r->l, name);
    int64_t dims[2] = {1, weight->dims[1]};
    bool column = s->version >= STATES_ARE_COLUMNS;
    if (!wb_is_none(x))
        return column ? wb__julia_column(&s->arena, x) : wb__flux_tensor(s, name, x, WB__DOC_ROWS);
    wb_dtype dtype = (wb_dtype)weight->dtype;
    return wb__julia_zeros(&s->arena, dtype, column ? 2 : 1, column ? dims : dims + 1);
}

/* Returns the weights of the hidden state of a GRUv3.  Flux's first array has the gates r and z,
 * and since 0.15 a third block that nothing uses; its second array has the gate n. */
static wb__julia flux_put_gates(const flux_put_record *r, const wb__flux_field *f)
{
    wb_tensor *weight = flux_put_child(r->l, f->weber);
    const int64_t out = weight->dims[1], block[2] = {out, out};
    wb_tensor *part = f->kind == WB__FIELD_GATES ? wb_slice(weight, 0, 0, 2 * out)
                                                 : wb_slice(weight, 0, 2 * out, 3 * out);
    if (part && f->kind == WB__FIELD_GATES && r->s->version >= STATELESS_CELLS)
        part = wb_concat(0, part, wb_full_array(0, (wb_dtype)weight->dtype, 2, block));
    if (part && !wb_eval_array(1, &part))
        return wb__flux_tensor(r->s, f->weber, part, WB__DOC_COLUMNS);
    r->s->arena.failed = true;
    return wb__julia_nothing(&r->s->arena);
}

static wb__julia flux_put_states(const flux_put_record *r)
{
    if (!wb__begins(r->type->name, "LSTM")) return flux_put_state(r, "initial_hidden");
    wb__julia both[2] = {flux_put_state(r, "initial_hidden"), flux_put_state(r, "initial_cell")};
    return wb__julia_tuple(&r->s->arena, 2, both);
}

/* Returns the field `diag` of a LayerNorm: a Diagonal, or, from version 0.13, a Scale, which
 * includes the activation.  Without .affine, returns only the activation, or identity. */
static wb__julia flux_put_affine(const flux_put_record *r)
{
    wb__flux_saver *s = r->s;
    wb_function f = flux_put_function(r);
    bool scale = s->version >= FLUX_PUT_SCALE;
    if (flux_put_has(r, "affine"))
        return struct_of(s, r->l, scale ? "Scale" : "Diagonal", r->options);
    if (!scale || !f) return flux_put_only(s, "Base.#identity");
    wb__julia refused = flux_put_activation(s, f);
    const wb__flux_name *row = flux_put_function_row(s, wb__function_name(f));
    return row ? flux_put_broadcast(s, row->path) : refused;
}

static wb__julia flux_put_layers(const flux_put_record *r)
{
    wb__flux_saver *s = r->s;
    wb__child *children;
    int n = wb__container_layers(r->l, &children);
    if (s->structs && s->version < NAMED_CHAINS && !wb__flux_numbered(n, children))
        wb__flux_refuse(s, "%s with names, which came with 0.12.7", r->type->name);
    const size_t length = s->path.length;
    wb__path_push(&s->path, "layers");
    wb__julia v = wb__flux_children(s, n, children);
    wb__path_cut(&s->path, length);
    return v;
}

static wb__julia flux_put_cell(const flux_put_record *r)
{
    const wb__flux_struct *newest = wb__flux_struct_named(r->type->name);
    return struct_of(r->s, r->l, newest->layer, r->options);
}

static wb__julia flux_put_padding(const flux_put_record *r)
{
    int64_t p[6], sides[6];
    const int axes = wb__padding(r->type, r->options, p);
    for (int i = 0; i < axes; i++) memcpy(sides + 2 * i, p + 2 * (axes - 1 - i), 2 * sizeof *p);
    return wb__julia_ints(&r->s->arena, 2 * axes, sides);
}

static int flux_put_reversed(const int64_t *shape, int64_t *size)
{
    for (int i = 0; i < shape[0]; i++) size[i] = (shape + 1)[shape[0] - 1 - i];
    return (int)shape[0];
}

/* Returns the factors or sizes of an Upsample: nothing, a number, or a tuple. */
static wb__julia flux_put_factors(const flux_put_record *r, const int64_t *list, bool is_size)
{
    int64_t size[4];
    const int n = flux_put_reversed(list, size);
    if (!n) return wb__julia_nothing(&r->s->arena);
    return n == 1 && !is_size ? wb__julia_int(&r->s->arena, size[0])
                              : wb__julia_ints(&r->s->arena, n, size);
}

static int upsampled_axes(const flux_put_record *r)
{
    const int64_t *scale = flux_put_option(r, "scale"), *sizes = flux_put_option(r, "sizes");
    return (int)(scale[0] ? scale[0] : sizes[0]);
}

/* Returns the index of a row of an Embedding: a negative index counts from n, 0 means no row. */
static wb__julia flux_put_row_index(const flux_put_record *r, int64_t index)
{
    const int64_t *n = flux_put_option(r, "n");
    return index == INT64_MIN ? wb__julia_nothing(&r->s->arena)
                              : wb__julia_int(&r->s->arena, *n + index + 1);
}

/* Returns the axes of a Dropout.  Julia's axis i is Weber's axis -i, so only negative axes can be
 * written. */
static wb__julia flux_put_drop_axes(wb__flux_saver *s, const int64_t *axes)
{
    int64_t dims[WB_MAX_DIMS];
    if (!axes[0]) return flux_put_only(s, "Base.Colon");
    for (int i = 0; i < axes[0]; i++) {
        if (axes[1 + i] >= 0 && !s->structs) return flux_put_empty(s);
        if (axes[1 + i] >= 0)
            return wb__flux_refuse(s, "Dropout over axis %d: count axes from the end, as -1 does",
                                   (int)axes[1 + i]);
        dims[i] = -axes[1 + i];
    }
    return axes[0] == 1 ? wb__julia_int(&s->arena, dims[0])
                        : wb__julia_ints(&s->arena, (int)axes[0], dims);
}

static wb__julia flux_put_mode(const flux_put_record *r)
{
    if (r->l->mode != WB__MODE_AUTO || r->s->version < ACTIVE_MAY_BE_NOTHING)
        return wb__julia_bool(&r->s->arena, r->l->mode != WB__MODE_TEST);
    return wb__julia_nothing(&r->s->arena);
}

static wb__julia flux_put_option_of(const flux_put_record *r, const wb__flux_field *f)
{
    wb__doc_arena *arena = &r->s->arena;
    const void *at = f->weber ? flux_put_option(r, f->weber) : NULL;
    const int64_t *whole = at;
    int64_t size[4];
    wb_function tanh = f->kind == WB__FIELD_TANH && !*(const wb_function *)at ? wb_tanh : NULL;
    switch (f->kind) {
    case WB__FIELD_INT: return wb__julia_int(arena, *whole);
    case WB__FIELD_FLOAT64: return wb__julia_float64(arena, *(const double *)at);
    case WB__FIELD_FLOAT32:
        return wb__julia_float32(arena, (float)(at ? *(const double *)at : f->by_default));
    case WB__FIELD_BOOL: return wb__julia_bool(arena, *(const bool *)at);
    case WB__FIELD_FALSE: return wb__julia_bool(arena, false);
    case WB__FIELD_AXES_OF_SPACE: case WB__FIELD_COUNTS: case WB__FIELD_SIZES:
        return wb__julia_ints(arena, flux_put_reversed(at, size), size);
    case WB__FIELD_PAD: return flux_put_padding(r);
    case WB__FIELD_FACTORS: return flux_put_factors(r, at, !strcmp(f->name, "size"));
    case WB__FIELD_INDEX: return flux_put_row_index(r, *whole);
    case WB__FIELD_REDUCTION:
        return flux_put_only(r->s, wb__flux_value_julia(wb__flux_reductions, *whole));
    case WB__FIELD_PAD_MODE:
        return wb__julia_symbol(arena, wb__flux_value_julia(wb__flux_pad_modes, *whole));
    case WB__FIELD_AXES: return flux_put_drop_axes(r->s, at);
    case WB__FIELD_DROPOUT:
        return struct_of(r->s, r->l, "Dropout",
                         &(wb_Dropout_options){.p = *(const double *)at});
    case WB__FIELD_TANH: case WB__FIELD_FIRST_FUNCTION: case WB__FIELD_FUNCTION:
        return flux_put_activation(r->s, tanh ? tanh : flux_put_function(r));
    case WB__FIELD_CONNECTION: return flux_put_connection(r);
    case WB__FIELD_MODE: case WB__FIELD_TRAINING: return flux_put_mode(r);
    case WB__FIELD_RANDOM: return flux_put_only(r->s, "Flux.Random.TaskLocalRNG");
    default: return wb__julia_nothing(arena);
    }
}

static wb__julia flux_put_value_of(const flux_put_record *r, const wb__flux_field *f)
{
    switch (f->kind) {
    case WB__FIELD_MATRIX:
        return wb__flux_tensor(r->s, f->weber, flux_put_child(r->l, f->weber), WB__DOC_COLUMNS);
    case WB__FIELD_GATES: case WB__FIELD_LAST_GATE: return flux_put_gates(r, f);
    case WB__FIELD_KERNEL: case WB__FIELD_FLIPPED: return flux_put_kernel(r, f);
    case WB__FIELD_BIAS: return flux_put_bias(r, f);
    case WB__FIELD_WEIGHT: case WB__FIELD_SCALE: case WB__FIELD_SHIFT: case WB__FIELD_STATISTIC:
    case WB__FIELD_LAYER: return wb__flux_value(r->s, f->weber, flux_put_child(r->l, f->weber));
    case WB__FIELD_LAYERS: return flux_put_layers(r);
    case WB__FIELD_AFFINE: return flux_put_affine(r);
    case WB__FIELD_CELL: return flux_put_cell(r);
    case WB__FIELD_STATE: return flux_put_state(r, f->weber);
    case WB__FIELD_STATES: case WB__FIELD_CALLED: return flux_put_states(r);
    default: return flux_put_option_of(r, f);
    }
}

/* Returns the number of a layer's axes of space, or of the axes that a LayerNorm normalises. */
static int flux_put_axes_of(const flux_put_record *r)
{
    static const char *const lists[] = {"kernel", "window", "out", "shape"};
    for (size_t i = 0; i < WB__COUNT(lists); i++) {
        const int64_t *list = flux_put_option(r, lists[i]);
        if (list && (strcmp(lists[i], "out") || !flux_put_option(r, "in"))) return (int)list[0];
    }
    return 2;
}

/* Returns the type parameter for a word of `parameters` in fields.c.  The name of a field gives the
 * type of that field, "array" the array type of the scale, "mode" the mode of an Upsample, and
 * "return_state" that option.  "axes" is the number of axes, "2axes" twice that number, and
 * "2+axes" 2 more than that number. */
static wb__doc *flux_put_parameter(const flux_put_record *r, const char *word)
{
    wb__doc_arena *arena = &r->s->arena;
    int field = wb__flux_field_at(r->row, word);
    if (field >= 0) return r->at[field].type;
    if (!strcmp(word, "axes")) return wb__doc_int(arena, flux_put_axes_of(r));
    if (!strcmp(word, "2axes")) return wb__doc_int(arena, 2 * flux_put_axes_of(r));
    if (!strcmp(word, "2+axes")) return wb__doc_int(arena, 2 + flux_put_axes_of(r));
    if (!strcmp(word, "return_state")) return wb__doc_bool(arena, flux_put_has(r, "return_state"));
    if (!strcmp(word, "mode")) {
        const bool linear = *(const int64_t *)flux_put_option(r, "mode") == WB_UPSAMPLE_LINEAR;
        const char *name = !linear ? "nearest" : upsampled_axes(r) == 3 ? "trilinear" : "bilinear";
        return wb__julia_symbol(arena, name).value;
    }
    const wb_tensor *scale = wb__layer_child(r->l, 0);
    return wb__julia_array_type(arena, (wb_dtype)scale->dtype, scale->ndim);
}

static wb__doc *flux_put_type_of(const flux_put_record *r)
{
    char path[64] = "Flux.", word[24];
    wb__doc *parameters[WB__FLUX_FIELDS];
    int n = 0;
    for (const char *at = r->row->parameters; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        parameters[n++] = flux_put_parameter(r, word);
        at += length;
    }
    strncat(path, r->row->type, sizeof path - sizeof "Flux.");
    return wb__julia_type(&r->s->arena, path, n, parameters);
}

static wb__julia flux_put_finish(const flux_put_record *r)
{
    wb__flux_saver *s = r->s;
    const wb__flux_struct *row = r->row;
    if (s->structs) return wb__julia_struct(&s->arena, flux_put_type_of(r), row->n, r->at);
    if (!row->n) return flux_put_empty(s);
    const char *names[WB__FLUX_FIELDS];
    for (int i = 0; i < row->n; i++)
        names[i] = row->fields[i].written ? row->fields[i].written : row->fields[i].name;
    return wb__julia_named_tuple(&s->arena, row->n, names, r->at);
}

/* Whether the layer uses the option of a field that some versions of its struct lack. */
static bool flux_put_is_used(const flux_put_record *r, const wb__flux_field *f)
{
    const bool structs = r->s->structs, groups = !strcmp(f->name, "groups");
    const int64_t *value = f->weber ? flux_put_option(r, f->weber) : NULL;
    switch (f->kind) {
    case WB__FIELD_COUNTS:
        for (int i = 1; i <= value[0]; i++)
            if (value[i]) return true;
        return false;
    case WB__FIELD_INT: return groups && *value > 1;
    case WB__FIELD_PAD_MODE: return *value != WB_PAD_CONSTANT;
    case WB__FIELD_INDEX: return structs && *value != INT64_MIN;
    default: return false;
    }
}

/* Returns the name of an option that the layer uses and that only a later version of the struct
 * has; NULL: none.  Sets *since to that version. */
static const char *flux_put_newer_field(const flux_put_record *r, int *since)
{
    const char *name = NULL;
    for (const wb__flux_struct *s = wb__flux_structs; s->type; s++) {
        if (s->since <= r->row->since || strcmp(s->type, r->row->type)) continue;
        for (int i = 0; i < s->n; i++) {
            const wb__flux_field *f = &s->fields[i];
            if (wb__flux_field_at(r->row, f->name) >= 0 || !flux_put_is_used(r, f)) continue;
            name = f->name;
            *since = s->since;
        }
    }
    return name;
}

/* Whether the layer is an attention with shared heads or rotary positions, which Flux lacks. */
static bool flux_put_own_attention(const flux_put_record *r)
{
    const int64_t *heads = flux_put_option(r, "heads"), *kv_heads = flux_put_option(r, "kv_heads");
    const double *rotary = flux_put_option(r, "rotary");
    return kv_heads && (*kv_heads != *heads || *rotary > 0);
}

/* Whether this adaptive pool has windows of one size, as those of Flux have. */
static bool flux_put_fits_adaptive(const flux_put_record *r)
{
    const int64_t *out = flux_put_option(r, "out");
    bool one = true;
    for (int i = 1; i <= out[0]; i++) one = one && out[i] == 1;
    return one || flux_put_has(r, "fixed");
}

/* Refuses (wb__flux_refuse) a layer with options that no version of Flux's struct has. */
static void flux_put_check_options(const flux_put_record *r)
{
    wb__flux_saver *s = r->s;
    const char *type = r->row->type, *name = r->type->name;
    const bool cell = strstr(type, "Cell") != NULL;
    const bool linear = !strcmp(type, "Upsample") && *(const int64_t *)flux_put_option(r, "mode");
    if (s->structs && flux_put_has(r, "causal"))
        wb__flux_refuse(s, "a causal %s: there the mask is an argument of the call", type);
    else if (s->structs && flux_put_own_attention(r))
        wb__flux_refuse(s, "%s with .kv_heads or .rotary", type);
    else if (s->structs && !cell && !strstr(name, "Cell") && flux_put_has(r, "last"))
        wb__flux_refuse(s, "%s with .last: there it gives all steps", name);
    else if (cell && (flux_put_has(r, "bidirectional") ||
                      *(const int64_t *)flux_put_option(r, "layers") > 1))
        wb__flux_refuse(s, "%s with several layers or directions: Flux's has one", name);
    else if (cell && flux_put_has(r, "hidden_bias"))
        wb__flux_refuse(s, "%s with .hidden_bias: Flux's has one bias", type);
    else if (s->structs && wb__begins(type, "Adaptive") && !flux_put_fits_adaptive(r))
        wb__flux_refuse(s, "%s without .fixed: there all windows have one size", type);
    else if (s->structs && linear && (!flux_put_has(r, "align_corners") || upsampled_axes(r) < 2))
        wb__flux_refuse(s, !flux_put_has(r, "align_corners")
                               ? "Upsample without .align_corners: there corners are aligned"
                               : "Upsample with linear interpolation and one number: give one for "
                                 "each axis, as {2, 2}");
    else if (s->structs && linear && upsampled_axes(r) == 3 && s->version < TRILINEAR)
        wb__flux_refuse(s, "Upsample with trilinear interpolation, which came with 0.12.9");
}

/* Refuses a layer whose options the requested version of Flux's struct lacks. */
static void flux_put_check_version(const flux_put_record *r)
{
    wb__flux_saver *s = r->s;
    const char *type = r->row->type, *name = r->type->name, *newer;
    const bool old = s->version < NORMS_WITH_OPTIONS, cell = strstr(type, "Cell") != NULL;
    const bool sequence = cell && !strstr(name, "Cell");
    int since;
    if (old && !strcmp(type, "BatchNorm") &&
        (!flux_put_has(r, "affine") || !flux_put_has(r, "track_stats")))
        wb__flux_refuse(s, "BatchNorm without %s, which came with 0.12",
                        flux_put_has(r, "affine") ? "running statistics" : "scale and bias");
    else if (old && !strcmp(type, "InstanceNorm") &&
             !(flux_put_has(r, "affine") && flux_put_has(r, "track_stats")))
        wb__flux_refuse(s, "InstanceNorm without .affine and .track_stats, which came with 0.12");
    else if (old && !strcmp(type, "GroupNorm"))
        wb__flux_refuse(s, "GroupNorm without running statistics, which came with 0.12");
    else if (old && !strcmp(type, "LayerNorm") &&
             (!flux_put_has(r, "affine") || flux_put_function(r) ||
              (float)*(const double *)flux_put_option(r, "eps") != 1e-5f))
        wb__flux_refuse(s, "LayerNorm with an activation or an eps, or without scale and bias: "
                           "since 0.12");
    else if (!strcmp(type, "Diagonal") &&
             (!flux_put_has(r, "bias") || (flux_put_function(r) && strcmp(name, "LayerNorm"))))
        wb__flux_refuse(s, "%s with an activation or without a bias, which came with 0.13", name);
    else if (cell && s->version >= STATELESS_CELLS && flux_put_has(r, "initial_state"))
        wb__flux_refuse(s, "%s with an initial state: since 0.15 that is an argument of the call",
                        type);
    else if (s->structs && sequence && flux_put_has(r, "return_state") &&
             s->version < RETURNED_STATES)
        wb__flux_refuse(s, "%s with .return_state, which came with 0.16.1", name);
    else if ((newer = flux_put_newer_field(r, &since)))
        wb__flux_refuse(s, "%s with %s, which came with 0.%d.%d", type, newer, since / 100,
                        since % 100);
    else if (s->structs && !r->row->parameters)
        wb__flux_refuse(s, "%s: its type's parameters are not known here since 0.%d.%d; .flux = "
                           "\"0.16.10\" or a state document will do", type, r->row->since / 100,
                        r->row->since % 100);
}

/* Refuses a layer that no version of Flux has, or that only later versions have. */
static wb__julia no_struct(wb__flux_saver *s, const char *type)
{
    const wb__flux_struct *row = wb__flux_struct_named(type);
    const bool known = row && row->layer;
    int since = 0;
    for (row = wb__flux_structs; known && row->type; row++)
        if (!strcmp(row->type, type)) since = row->since;
    if (known)
        return wb__flux_refuse(s, "%s, which came with 0.%d.%d", type, since / 100, since % 100);
    return wb__flux_refuse(s, "%s, a layer that Flux has in no version", type);
}

static wb__julia struct_of(wb__flux_saver *s, wb_layer *l, const char *type, const void *options)
{
    flux_put_record r = {.s = s, .l = l, .options = options, .row = wb__flux_struct_of(type,
                                                                                       s->version)};
    const int before = s->n_wrong;
    if (!r.row) return no_struct(s, type);
    r.type = strcmp(type, "Dropout") ? l->type : wb__layer_type_named(type);
    flux_put_check_options(&r);
    if (s->n_wrong == before) flux_put_check_version(&r);
    if (s->n_wrong > before) return wb__julia_nothing(&s->arena);
    const wb__flux_field *f = NULL;
    while ((f = wb__flux_field_after(r.row, f))) r.at[f - r.row->fields] = flux_put_value_of(&r, f);
    return flux_put_finish(&r);
}

static wb__julia flux_put_function_layer(wb__flux_saver *s, wb_layer *l)
{
    wb_function f;
    memcpy(&f, (const char *)l->options + l->type->options[0].offset, sizeof f);
    return flux_put_function_named(s, wb__function_name(f));
}

/* Whether Flux.state returned the empty tuple for such a struct before version 0.15. */
static bool flux_put_had_no_children(const char *type)
{
    static const char *const types[] = {"MaxPool", "MeanPool", "AdaptiveMaxPool",
                                        "AdaptiveMeanPool", "Upsample", "PixelShuffle"};
    for (size_t i = 0; i < WB__COUNT(types); i++)
        if (!strcmp(type, types[i])) return true;
    return false;
}

wb__julia wb__flux_save_layer(wb__flux_saver *s, wb_layer *l)
{
    char type[40];
    snprintf(type, sizeof type, "%s", l->type->name);
    const wb_Conv_options *o = l->options;
    if (!strcmp(type, "Flatten")) return flux_put_function_named(s, "flatten");
    if (!strcmp(type, "Function")) return flux_put_function_layer(s, l);
    if (l->type->one_row)                       /* a Recurrence, WeightNorm, LoRA or Quantized */
        return wb__flux_refuse(s, "%s", type);
    char *line = strstr(type, "1d");
    if (line && !line[2]) *line = 0;            /* Flux has one type for 1, 2 and 3 axes */
    if (!strcmp(type, "Conv") && !o->flip && o->groups == 1) snprintf(type, 9, "CrossCor");
    if (!strcmp(type, "Scale") && s->version < FLUX_PUT_SCALE) snprintf(type, 9, "Diagonal");
    const wb__flux_struct *newest = wb__flux_struct_named(type);
    bool sequence = newest && newest->fields[0].kind == WB__FIELD_CELL;
    if (sequence && s->version < STATELESS_CELLS && newest->layer[0]) {
        if (!wb__flux_struct_of(newest->layer, s->version)) return no_struct(s, newest->layer);
        snprintf(type, sizeof type, "Recur");
    }
    if (flux_put_had_no_children(type) && !s->structs && s->version < EVERYTHING_HAS_CHILDREN)
        return flux_put_empty(s);
    return struct_of(s, l, type, l->options);
}
