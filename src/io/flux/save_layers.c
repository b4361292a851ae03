/* Writes each kind of layer as Flux's struct of the requested version, or as Flux.state returns it,
 * by the fields of fields.c.
 *
 * Flux's sizes are reversed: {h, w} is (w, h), {top, bottom, left, right} is (left, right, top,
 * bottom), and [out, in, kh, kw] is (kw, kh, in, out) with the same bytes. The matrix of a Dense or
 * a cell is (out, in) in Flux too, so it is written column-major. Flux.state returns the empty
 * tuple for functions and for values of types without fields, such as Colon. */
#include "io/flux/save.h"
#include "nn/window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Versions of Flux, as minor*100 + patch, that changed how layers are written. */
enum {
    ACTIVE_MAY_BE_NOTHING = 1000, STATES_ARE_COLUMNS = 1200, NORMS_WITH_OPTIONS = 1200,
    NAMED_CHAINS = 1207, SCALE = 1300, BROADCAST_FUNCTION = 1300, EVERYTHING_HAS_CHILDREN = 1500,
    STATELESS_CELLS = 1500
};

/* ---- a struct under construction ------------------------------------------------------------- */

typedef struct {
    wb__flux_saver *s;
    wb_layer *l;
    const wb__layer_type *type;
    const void *options;                /* options of `type` */
    const wb__flux_struct *row;
    wb__julia at[WB__FLUX_FIELDS];
} record;

static wb__julia struct_of(wb__flux_saver *s, wb_layer *l, const char *type, const void *options);

static wb__julia empty(wb__flux_saver *s) { return wb__julia_tuple(&s->arena, 0, NULL); }

/* Writes the only value of a type without fields, such as the type of a function. `path` is the
 * name of the type. If s->structs is false, writes the empty tuple. */
static wb__julia only(wb__flux_saver *s, const char *path)
{
    return s->structs ? wb__julia_singleton(&s->arena, path) : empty(s);
}

static const void *option(const record *r, const char *name)
{
    return wb__layer_option(r->type, r->options, name);
}

static bool has(const record *r, const char *name)
{
    const bool *value = option(r, name);
    return value && *value;
}

static wb_function function(const record *r)
{
    wb_function f;
    memcpy(&f, option(r, "activation"), sizeof f);
    return f == wb_identity ? NULL : f;
}

static void *child(const wb_layer *l, const char *name)
{
    for (int i = 0; i < l->node.n; i++)
        if (!strcmp(l->node.children[i].name, name)) return l->node.children[i].object;
    return WB_NONE;
}

/* ---- functions ------------------------------------------------------------------------------- */

static const wb__flux_name *named(const wb__flux_saver *s, const char *name)
{
    return wb__flux_name_weber(wb__flux_functions, name, 1, s->version);
}

static wb__julia activation(wb__flux_saver *s, wb_function f)
{
    if (!s->structs) return empty(s);
    const char *name = f ? wb__function_name(f) : "identity";
    const wb__flux_name *row = named(s, name);
    if (!row) return wb__flux_refuse(s, "the activation %s", name ? name : "without a name");
    if (!row->elements && strcmp(name, "identity"))
        return wb__flux_refuse(s, "%s as an activation: it is a layer of its own", name);
    return only(s, row->path);
}

/* Writes an elementwise function as a layer that broadcasts it over arrays. */
static wb__julia broadcast(wb__flux_saver *s, const char *path)
{
    wb__julia fields[2] = {only(s, "Base.Broadcast.#broadcast"), only(s, path)};
    if (!s->structs)
        return wb__julia_named_tuple(&s->arena, 2, (const char *const[]){"f", "x"}, fields);
    wb__doc *types[2] = {fields[0].type, fields[1].type};
    return wb__julia_struct(&s->arena, wb__julia_type(&s->arena, "Base.Fix1", 2, types), 2, fields);
}

static wb__julia function_named(wb__flux_saver *s, const char *name)
{
    const wb__flux_name *row = named(s, name);
    if (!row && !s->structs) return empty(s);
    if (!row) return wb__flux_refuse(s, "the function %s", name ? name : "without a name");
    return row->elements ? broadcast(s, row->path) : only(s, row->path);
}

static wb__julia connection(const record *r)
{
    wb__flux_saver *s = r->s;
    wb__connection f;
    wb__child *layers;
    memcpy(&f, option(r, "connection"), sizeof f);
    const bool skip = !strcmp(r->type->name, "SkipConnection");
    const char *name = wb__connection_name(f);
    const int n = skip ? 2 : wb__container_layers(r->l, &layers);
    const wb__flux_name *row = wb__flux_name_weber(wb__flux_connections, name, n, s->version);
    if (!row && !s->structs) return empty(s);
    if (!row) return wb__flux_refuse(s, "the connection %s", name ? name : "without a name");
    wb__julia inner = only(s, row->path);
    if (!row->elements) return inner;
    if (!s->structs)
        return wb__julia_named_tuple(&s->arena, 1, (const char *const[]){"f"}, &inner);
    if (s->version < BROADCAST_FUNCTION)
        return wb__flux_refuse(s, "the connection %s, for which 0.13 is the first", name);
    wb__doc *type = wb__julia_type(&s->arena, "Base.Broadcast.BroadcastFunction", 1, &inner.type);
    return wb__julia_struct(&s->arena, type, 1, &inner);
}

/* ---- children -------------------------------------------------------------------------------- */

/* Writes a kernel. Flux's Conv flips its kernels. Flux's CrossCor does not, but has no groups. So a
 * Conv without .flip is written as a CrossCor, or, if it has groups, as a Conv with flipped
 * kernels. A ConvTranspose without .flip is written with flipped kernels too. */
static wb__julia kernel(const record *r, const wb__flux_field *f)
{
    bool flipped = f->kind == WB__FIELD_FLIPPED && !has(r, "flip");
    return wb__flux_tensor(r->s, f->weber, child(r->l, f->weber), flipped ? WB__FLIPPED : WB__ROWS);
}

/* Writes the bias. A missing bias is written as `false`, or as zeros in versions before
 * f->since. */
static wb__julia bias(const record *r, const wb__flux_field *f)
{
    wb__flux_saver *s = r->s;
    const wb_tensor *weight = wb__layer_child(r->l, 0);
    void *x = child(r->l, f->weber);
    if (!wb_is_none(x)) return wb__flux_value(s, f->weber, x);
    if (s->version >= f->since) return wb__julia_bool(&s->arena, false);
    const int64_t *out = weight->ndim == 4 ? option(r, "out") : weight->dims;
    return wb__julia_zeros(&s->arena, (wb_dtype)weight->dtype, 1, out);
}

/* Writes an initial state, as a matrix with one column, or as a vector for versions before 0.12.
 * Cells and Recurs of versions before 0.15 have fields for states. */
static wb__julia state(const record *r, const char *name)
{
    wb__flux_saver *s = r->s;
    const wb_tensor *weight = wb__layer_child(r->l, 1);
    wb_tensor *x = child(r->l, name);
    int64_t dims[2] = {1, weight->dims[1]};
    bool column = s->version >= STATES_ARE_COLUMNS;
    if (!wb_is_none(x))
        return column ? wb__julia_column(&s->arena, x) : wb__flux_tensor(s, name, x, WB__ROWS);
    wb_dtype dtype = (wb_dtype)weight->dtype;
    return wb__julia_zeros(&s->arena, dtype, column ? 2 : 1, column ? dims : dims + 1);
}

static wb__julia states(const record *r)
{
    if (strncmp(r->type->name, "LSTM", 4)) return state(r, "initial_hidden");
    wb__julia both[2] = {state(r, "initial_hidden"), state(r, "initial_cell")};
    return wb__julia_tuple(&r->s->arena, 2, both);
}

/* Writes the field `diag` of a LayerNorm: a Diagonal, or, from version 0.13, a Scale, which
 * includes the activation. With .no_affine, writes only the activation, or identity. */
static wb__julia affine(const record *r)
{
    wb__flux_saver *s = r->s;
    wb_function f = function(r);
    bool scale = s->version >= SCALE;
    if (!has(r, "no_affine")) return struct_of(s, r->l, scale ? "Scale" : "Diagonal", r->options);
    if (!scale || !f) return only(s, "Base.#identity");
    wb__julia refused = activation(s, f);
    const wb__flux_name *row = named(s, wb__function_name(f));
    return row ? broadcast(s, row->path) : refused;
}

static wb__julia layers(const record *r)
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

static wb__julia cell(const record *r)
{
    const wb__flux_struct *newest = wb__flux_struct_named(r->type->name);
    return struct_of(r->s, r->l, newest->layer, r->options);
}

/* ---- options --------------------------------------------------------------------------------- */

static wb__julia padding(const record *r)
{
    int64_t p[6], sides[6];
    const int axes = wb__padding(r->type, r->options, p);
    for (int i = 0; i < axes; i++) memcpy(sides + 2 * i, p + 2 * (axes - 1 - i), 2 * sizeof *p);
    return wb__julia_ints(&r->s->arena, 2 * axes, sides);
}

static int reversed(const int64_t *shape, int64_t *size)
{
    for (int i = 0; i < shape[0]; i++) size[i] = (shape + 1)[shape[0] - 1 - i];
    return (int)shape[0];
}

/* Writes the axes of a Dropout. Julia's axis i is Weber's axis -i, so only negative axes can be
 * written. */
static wb__julia drop_axes(wb__flux_saver *s, const int64_t *axes)
{
    int64_t dims[WB_MAX_DIMS];
    if (!axes[0]) return only(s, "Base.Colon");
    for (int i = 0; i < axes[0]; i++) {
        if (axes[1 + i] >= 0 && !s->structs) return empty(s);
        if (axes[1 + i] >= 0)
            return wb__flux_refuse(s, "Dropout over axis %d: count axes from the end, as -1 does",
                                   (int)axes[1 + i]);
        dims[i] = -axes[1 + i];
    }
    return axes[0] == 1 ? wb__julia_int(&s->arena, dims[0])
                        : wb__julia_ints(&s->arena, (int)axes[0], dims);
}

static wb__julia mode(const record *r)
{
    if (r->l->mode != WB__MODE_AUTO || r->s->version < ACTIVE_MAY_BE_NOTHING)
        return wb__julia_bool(&r->s->arena, r->l->mode != WB__MODE_TEST);
    return wb__julia_nothing(&r->s->arena);
}

static wb__julia option_of(const record *r, const wb__flux_field *f)
{
    wb__doc_arena *arena = &r->s->arena;
    const void *at = f->weber ? option(r, f->weber) : NULL;
    const int64_t *whole = at;
    int64_t size[4];
    wb_function tanh = f->kind == WB__FIELD_TANH && !*(const wb_function *)at ? wb_tanh : NULL;
    switch (f->kind) {
    case WB__FIELD_INT: return wb__julia_int(arena, *whole);
    case WB__FIELD_FLOAT64: return wb__julia_float64(arena, *(const double *)at);
    case WB__FIELD_FLOAT32:
        return wb__julia_float32(arena, (float)wb__real(*(const double *)at, f->by_default));
    case WB__FIELD_NOT: return wb__julia_bool(arena, !*(const bool *)at);
    case WB__FIELD_PAIR: case WB__FIELD_COUNTS:
        return wb__julia_ints(arena, reversed(at, size), size);
    case WB__FIELD_PAD: return padding(r);
    case WB__FIELD_SIZES: return wb__julia_ints(arena, reversed(at, size), size);
    case WB__FIELD_AXES: return drop_axes(r->s, at);
    case WB__FIELD_DROPOUT:
        return struct_of(r->s, r->l, "Dropout",
                         &(wb_Dropout_options){.p = wb__real(*(const double *)at, 0)});
    case WB__FIELD_TANH: case WB__FIELD_FIRST_FUNCTION: case WB__FIELD_FUNCTION:
        return activation(r->s, tanh ? tanh : function(r));
    case WB__FIELD_CONNECTION: return connection(r);
    case WB__FIELD_ZEROS: return wb__julia_symbol(arena, "zeros");
    case WB__FIELD_MODE: case WB__FIELD_TRAINING: return mode(r);
    case WB__FIELD_RANDOM: return only(r->s, "Flux.Random.TaskLocalRNG");
    default: return wb__julia_nothing(arena);
    }
}

static wb__julia value_of(const record *r, const wb__flux_field *f)
{
    switch (f->kind) {
    case WB__FIELD_MATRIX:
        return wb__flux_tensor(r->s, f->weber, child(r->l, f->weber), WB__COLUMNS);
    case WB__FIELD_KERNEL: case WB__FIELD_FLIPPED: return kernel(r, f);
    case WB__FIELD_BIAS: return bias(r, f);
    case WB__FIELD_WEIGHT: case WB__FIELD_SCALE: case WB__FIELD_SHIFT: case WB__FIELD_STATISTIC:
    case WB__FIELD_LAYER: return wb__flux_value(r->s, f->weber, child(r->l, f->weber));
    case WB__FIELD_LAYERS: return layers(r);
    case WB__FIELD_AFFINE: return affine(r);
    case WB__FIELD_CELL: return cell(r);
    case WB__FIELD_STATE: return state(r, f->weber);
    case WB__FIELD_STATES: case WB__FIELD_CALLED: return states(r);
    default: return option_of(r, f);
    }
}

/* ---- structs --------------------------------------------------------------------------------- */

/* Returns the type parameter for a word of `parameters` in fields.c. The name of a field gives the
 * type of that field, "array" the array type of the scale, and "axes" the number of axes of .shape.
 * Other words are values, a number or false. */
static wb__doc *parameter(const record *r, const char *word)
{
    wb__doc_arena *arena = &r->s->arena;
    int64_t size[4];
    int field = wb__flux_field_at(r->row, word);
    if (field >= 0) return r->at[field].type;
    if (!strcmp(word, "axes")) return wb__doc_int(arena, reversed(option(r, "shape"), size));
    if (!strcmp(word, "false")) return wb__doc_bool(arena, false);
    if (strcmp(word, "array")) return wb__doc_int(arena, atoi(word));
    const wb_tensor *scale = wb__layer_child(r->l, 0);
    return wb__julia_array_type(arena, (wb_dtype)scale->dtype, scale->ndim);
}

static wb__doc *type_of(const record *r)
{
    char path[64] = "Flux.", word[24];
    wb__doc *parameters[WB__FLUX_FIELDS];
    int n = 0;
    for (const char *at = r->row->parameters; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        parameters[n++] = parameter(r, word);
        at += length;
    }
    strncat(path, r->row->type, sizeof path - sizeof "Flux.");
    return wb__julia_type(&r->s->arena, path, n, parameters);
}

static wb__julia closed(const record *r)
{
    wb__flux_saver *s = r->s;
    const wb__flux_struct *row = r->row;
    if (s->structs) return wb__julia_struct(&s->arena, type_of(r), row->n, r->at);
    if (!row->n) return empty(s);
    const char *names[WB__FLUX_FIELDS];
    for (int i = 0; i < row->n; i++)
        names[i] = row->fields[i].written ? row->fields[i].written : row->fields[i].name;
    return wb__julia_named_tuple(&s->arena, row->n, names, r->at);
}

/* Returns the name of an option that the layer uses and that only a later version of the struct
 * has; NULL: none. Sets *since to that version. */
static const char *newer_field(const record *r, int *since)
{
    const char *name = NULL;
    for (const wb__flux_struct *s = wb__flux_structs; s->type; s++) {
        if (s->since <= r->row->since || strcmp(s->type, r->row->type)) continue;
        for (int i = 0; i < s->n; i++) {
            const wb__flux_field *f = &s->fields[i];
            const bool count = f->kind == WB__FIELD_COUNTS;
            if (!count && strcmp(f->name, "groups")) continue;
            if (wb__flux_field_at(r->row, f->name) >= 0) continue;
            const void *value = option(r, f->weber);
            const int64_t *pair = value;
            if (count ? !pair[1] && !pair[2] : *(const int64_t *)value <= 1) continue;
            name = f->name;
            *since = s->since;
        }
    }
    return name;
}

/* Whether the layer is an attention with shared heads or rotary positions, which Flux's has not. */
static bool has_own_attention(const record *r)
{
    const int64_t *heads = option(r, "heads"), *kv_heads = option(r, "kv_heads");
    const double *rotary = option(r, "rotary");
    return kv_heads && (*kv_heads != *heads || *rotary > 0);
}

/* Whether Flux's struct of the requested version lacks an option that the layer uses. If so,
 * refuses the layer. */
static bool lacks(const record *r)
{
    wb__flux_saver *s = r->s;
    const char *type = r->row->type, *name = r->type->name;
    bool old = s->version < NORMS_WITH_OPTIONS, cell = strstr(type, "Cell") != NULL;
    int before = s->n_wrong, since;
    const char *newer;
    if (old && !strcmp(type, "BatchNorm") && (has(r, "no_affine") || has(r, "no_track_stats")))
        wb__flux_refuse(s, "BatchNorm without %s, which came with 0.12",
                        has(r, "no_affine") ? "scale and bias" : "running statistics");
    else if (old && !strcmp(type, "LayerNorm") &&
             (has(r, "no_affine") || function(r) ||
              (float)wb__real(*(const double *)option(r, "eps"), 1e-5) != 1e-5f))
        wb__flux_refuse(s, "LayerNorm with an activation or an eps, or without scale and bias: "
                           "since 0.12");
    else if (s->structs && has(r, "causal"))
        wb__flux_refuse(s, "a causal %s: there the mask is an argument of the call", type);
    else if (s->structs && has_own_attention(r))
        wb__flux_refuse(s, "%s with .kv_heads or .rotary", type);
    else if (s->structs && !cell && !strstr(name, "Cell") && has(r, "last"))
        wb__flux_refuse(s, "%s with .last: there it gives all steps", name);
    else if (cell && s->version >= STATELESS_CELLS && has(r, "initial_state"))
        wb__flux_refuse(s, "%s with an initial state: since 0.15 that is an argument of the call",
                        type);
    else if (cell && (has(r, "bidirectional") || *(const int64_t *)option(r, "layers") > 1))
        wb__flux_refuse(s, "%s with several layers or directions: Flux's has one", name);
    else if (cell && has(r, "hidden_bias"))
        wb__flux_refuse(s, "%s with .hidden_bias: Flux's has one bias", type);
    else if ((newer = newer_field(r, &since)))
        wb__flux_refuse(s, "%s with %s, which came with 0.%d.%d", type, newer, since / 100,
                        since % 100);
    else if (s->structs && !r->row->parameters)
        wb__flux_refuse(s, "%s: its type's parameters are not known here since 0.%d.%d; .flux = "
                           "\"0.16.10\" or a state document will do", type, r->row->since / 100,
                        r->row->since % 100);
    return s->n_wrong > before;
}

static wb__julia struct_of(wb__flux_saver *s, wb_layer *l, const char *type, const void *options)
{
    record r = {.s = s, .l = l, .options = options, .row = wb__flux_struct_of(type, s->version)};
    if (!r.row) return wb__flux_refuse(s, "%s", type);
    r.type = strcmp(type, "Dropout") ? l->type : wb__layer_type_named(type);
    if (lacks(&r)) return wb__julia_nothing(&s->arena);
    const wb__flux_field *f = NULL;
    while ((f = wb__flux_field_after(r.row, f))) r.at[f - r.row->fields] = value_of(&r, f);
    return closed(&r);
}

static wb__julia function_layer(wb__flux_saver *s, wb_layer *l)
{
    wb_function f;
    memcpy(&f, (const char *)l->options + l->type->options[0].offset, sizeof f);
    return function_named(s, wb__function_name(f));
}

wb__julia wb__flux_save_layer(wb__flux_saver *s, wb_layer *l)
{
    const char *name = l->type->name, *type = name;
    const wb_Conv_options *o = l->options;
    if (!strcmp(name, "Flatten")) return function_named(s, "flatten");
    if (!strcmp(name, "Function")) return function_layer(s, l);
    if (!strcmp(name, "Recurrence")) return wb__flux_refuse(s, "%s", name);
    if (!strcmp(name, "Conv") && !o->flip && o->groups == 1) type = "CrossCor";
    const wb__flux_struct *newest = wb__flux_struct_named(name);
    bool sequence = newest && newest->fields[0].kind == WB__FIELD_CELL;
    if (sequence && s->version < STATELESS_CELLS) type = "Recur";
    const bool pool = !strcmp(name, "MaxPool") || !strcmp(name, "MeanPool");
    if (pool && !s->structs && s->version < EVERYTHING_HAS_CHILDREN) return empty(s);
    return struct_of(s, l, type, l->options);
}
