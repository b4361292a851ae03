/* Each kind of layer as Flux's struct of the version asked for, or as what Flux.state makes of it.
 *
 * Flux's sizes run the other way: {h, w} here is (w, h) there, {top, bottom, left, right} is (left,
 * right, top, bottom), and [out, in, kh, kw] is kw by kh by in by out, the same bytes.  But the matrix
 * of a Dense or a cell is out by in on both sides, so that its columns are written.  In a state,
 * functions and whatever else is no array, number or nothing are the empty tuple. */
#include "io/flux_save.h"
#include "nn/window.h"

#include <string.h>

/* When things came, or changed: minor*100 + patch. */
enum {
    ACTIVE_MAY_BE_NOTHING = 1000, GLOBAL_POOLS = 1100, BIAS_MAY_BE_FALSE = 1300, NORMS_WITH_OPTIONS = 1200,
    SKIP_HAS_PARAMETERS = 1204, NAMED_CHAINS = 1207, SCALE = 1300,
    CELLS_OF_TWO_TYPES = 1307,
    EVERYTHING_HAS_CHILDREN = 1500, STATELESS_CELLS = 1500, RETURN_STATE = 1601,
    BROADCAST_FUNCTION = 1300, PADDED_EMBEDDING = 1611, PAD_MODES = 1612
};

/* ---- a struct under construction -------------------------------------------------------------- */

typedef struct { const wb__flux_struct *layout; wb__julia at[WB__FLUX_FIELDS]; } record;

static bool record_open(wb__flux_saver *s, record *r, const char *type)
{
    r->layout = wb__flux_struct_of(type, s->version);
    if (!r->layout) wb__flux_refuse(s, "%s", type);
    else
        for (int i = 0; i < r->layout->n; i++) r->at[i] = wb__julia_nothing(&s->room);
    return r->layout;
}

/* A field that this version has not is left out. */
static void set(record *r, const char *field, wb__julia value)
{
    int i = wb__flux_field(r->layout, field);
    if (i >= 0) r->at[i] = value;
}

static wb__doc *type_of(const record *r, const char *field)
{
    int i = wb__flux_field(r->layout, field);
    return i < 0 ? NULL : r->at[i].type;
}

/* The registry has the newest names; NamedTuples want those of the version. */
static const char *written(const wb__flux_saver *s, const char *type, const char *field)
{
    bool cell = strstr(type, "Cell") != NULL;
    if (cell && !strcmp(field, "bias") && (s->version < STATELESS_CELLS || !strcmp(type, "GRUCell")))
        return "b";
    return field;
}

/* Its type's parameters are a row that a NULL ends. */
static wb__julia record_close(wb__flux_saver *s, const record *r, wb__doc *const *parameters)
{
    const wb__flux_struct *l = r->layout;
    char path[64] = "Flux.";
    int n = 0;
    if (s->structs) {
        while (parameters && parameters[n]) n++;
        strncat(path, l->type, sizeof path - sizeof "Flux.");
        return wb__julia_struct(&s->room, wb__julia_type(&s->room, path, n, parameters), l->n, r->at);
    }
    const char *names[WB__FLUX_FIELDS];
    for (int i = 0; i < l->n; i++) names[i] = written(s, l->type, l->fields[i]);
    return wb__julia_named_tuple(&s->room, l->n, names, r->at);
}

/* Names the types of fields as parameters: CLOSE(s, &r, "σ", "weight"). */
enum { PARAMETERS = 8 };
static wb__julia close_by(wb__flux_saver *s, const record *r, const char *const *fields)
{
    wb__doc *types[PARAMETERS + 1] = {NULL};
    for (int i = 0; fields[i] && i < PARAMETERS; i++) types[i] = type_of(r, fields[i]);
    return record_close(s, r, types);
}
#define CLOSE(s, r, ...) close_by((s), (r), (const char *const[]){__VA_ARGS__, NULL})

static wb__julia empty(wb__flux_saver *s) { return wb__julia_tuple(&s->room, 0, NULL); }

/* Something of one value alone. */
static wb__julia only(wb__flux_saver *s, const char *path)
{
    return s->structs ? wb__julia_singleton(&s->room, path) : empty(s);
}

/* ---- functions -------------------------------------------------------------------------------- */

static wb__julia activation(wb__flux_saver *s, wb_function f)
{
    if (!s->structs) return empty(s);
    const char *name = f ? wb__function_name(f) : "identity";
    const wb__flux_name *row = wb__flux_function_here(name, s->version);
    if (!row) return wb__flux_refuse(s, "the activation %s", name ? name : "without a name");
    if (!row->elements && strcmp(name, "identity"))
        return wb__flux_refuse(s, "%s as an activation: it is a layer of its own", name);
    return only(s, row->path);
}

/* broadcast with f: a function of elements for whole arrays */
static wb__julia broadcast(wb__flux_saver *s, const char *path)
{
    wb__julia fields[2] = {only(s, "Base.Broadcast.#broadcast"), only(s, path)};
    if (!s->structs) return wb__julia_named_tuple(&s->room, 2, (const char *const[]){"f", "x"}, fields);
    wb__doc *types[2] = {fields[0].type, fields[1].type};
    return wb__julia_struct(&s->room, wb__julia_type(&s->room, "Base.Fix1", 2, types), 2, fields);
}

static wb__julia function_named(wb__flux_saver *s, const char *name)
{
    const wb__flux_name *row = wb__flux_function_here(name, s->version);
    if (!row && !s->structs) return empty(s);
    if (!row) return wb__flux_refuse(s, "the function %s", name ? name : "without a name");
    return row->elements ? broadcast(s, row->path) : only(s, row->path);
}

static wb__julia function_layer(wb__flux_saver *s, wb_layer *l)
{
    wb_function f;
    memcpy(&f, (const char *)l->options + l->type->options[0].offset, sizeof f);
    return function_named(s, wb__function_name(f));
}

static wb__julia flatten(wb__flux_saver *s, wb_layer *l)
{
    (void)l;
    return function_named(s, "flatten");
}

/* ---- Dense, Conv, pools ----------------------------------------------------------------------- */

static wb__julia parameter(wb__flux_saver *s, const char *name, void *x)
{
    return wb__flux_value(s, name, x);
}

/* Zeros stand for the bias that a layer has not where Flux has no `false` for it yet. */
static wb__julia bias_of(wb__flux_saver *s, void *bias, wb_tensor *weight, int64_t n, int since)
{
    if (!wb_is_none(bias)) return parameter(s, "bias", bias);
    if (s->version >= since) return wb__julia_bool(&s->room, false);
    return wb__julia_zeros(&s->room, (wb_dtype)weight->dtype, 1, &n);
}

static wb__julia dense(wb__flux_saver *s, wb_layer *l)
{
    const wb_dense_options *o = l->options;
    wb_tensor *weight = wb__layer_child(l, 0);
    record r;
    if (!record_open(s, &r, "Dense")) return wb__julia_nothing(&s->room);
    set(&r, "weight", wb__flux_tensor(s, "weight", weight, WB__COLUMNS));
    set(&r, "bias", bias_of(s, wb__layer_child(l, 1), weight, o->out, BIAS_MAY_BE_FALSE));
    set(&r, "σ", activation(s, o->activation));
    return CLOSE(s, &r, "σ", "weight", "bias");
}

static wb__julia pair(wb__flux_saver *s, const int64_t *hw)
{
    return wb__julia_ints(&s->room, 2, (int64_t[]){hw[1], hw[0]});
}

static wb__julia padding(wb__flux_saver *s, const int64_t *in_force)
{
    const int64_t *p = in_force;
    return wb__julia_ints(&s->room, 4, (int64_t[]){p[2], p[3], p[0], p[1]});
}

/* The type's first parameters: two axes, four sides. */
static void over_two_axes(wb__flux_saver *s, wb__doc **parameters)
{
    parameters[0] = wb__doc_int(&s->room, 2);
    parameters[1] = wb__doc_int(&s->room, 4);
}

/* Flux's Conv turns its kernels over, its CrossCor does not, but has no groups. */
static wb__julia conv(wb__flux_saver *s, wb_layer *l)
{
    const wb_conv_options *o = l->options;
    const char *type = o->flip || o->groups > 1 ? "Conv" : "CrossCor";
    wb_tensor *weight = wb__layer_child(l, 0);
    int64_t pad[4];
    record r;
    if (!record_open(s, &r, type)) return wb__julia_nothing(&s->room);
    if (o->groups > 1 && wb__flux_field(r.layout, "groups") < 0)
        return wb__flux_refuse(s, "Conv with groups, which came with 0.12.5");
    if (s->structs && s->version >= PAD_MODES)
        return wb__flux_refuse(s, "%s: its type's parameters are not known here since 0.16.12; .flux = \"0.16.10\" or "
                               "a state document will do", type);
    wb__conv_padding(o, pad);
    set(&r, "σ", activation(s, o->activation));
    set(&r, "weight", wb__flux_tensor(s, "weight", weight, o->flip || o->groups == 1 ? WB__ROWS : WB__TURNED));
    set(&r, "bias", bias_of(s, wb__layer_child(l, 1), weight, o->out, BIAS_MAY_BE_FALSE));
    set(&r, "stride", pair(s, o->stride));
    set(&r, "pad", padding(s, pad));
    set(&r, "dilation", pair(s, o->dilation));
    set(&r, "groups", wb__julia_int(&s->room, o->groups));
    set(&r, "pad_mode", wb__julia_symbol(&s->room, "zeros"));
    wb__doc *parameters[6] = {NULL};
    over_two_axes(s, parameters);
    parameters[2] = type_of(&r, "σ");
    parameters[3] = type_of(&r, "weight");
    parameters[4] = type_of(&r, "bias");
    return record_close(s, &r, parameters);
}

static wb__julia pool(wb__flux_saver *s, wb_layer *l)
{
    const wb_pool_options *o = l->options;
    int64_t pad[4];
    record r;
    if (!s->structs && s->version < EVERYTHING_HAS_CHILDREN) return empty(s);
    if (!record_open(s, &r, l->type->name)) return wb__julia_nothing(&s->room);
    wb__pad_in_force(o->pad, pad);
    set(&r, "k", pair(s, o->window));
    set(&r, "pad", padding(s, pad));
    set(&r, "stride", pair(s, o->stride));
    wb__doc *parameters[3] = {NULL};
    over_two_axes(s, parameters);
    return record_close(s, &r, parameters);
}

static wb__julia global_pool(wb__flux_saver *s, wb_layer *l)
{
    bool max = !strcmp(l->type->name, "GlobalMaxPool");
    if (s->version < GLOBAL_POOLS) return wb__flux_refuse(s, "%s", l->type->name);
    return only(s, max ? "Flux.GlobalMaxPool" : "Flux.GlobalMeanPool");
}

static wb__julia embedding(wb__flux_saver *s, wb_layer *l)
{
    record r;
    if (!record_open(s, &r, "Embedding")) return wb__julia_nothing(&s->room);
    if (s->structs && s->version >= PADDED_EMBEDDING)
        return wb__flux_refuse(s, "Embedding: its type's parameters are not known here since 0.16.11; .flux = "
                               "\"0.16.10\" or a state document will do");
    set(&r, "weight", parameter(s, "weight", wb__layer_child(l, 0)));
    return CLOSE(s, &r, "weight");
}

/* ---- what differs in training ----------------------------------------------------------------- */

static wb__julia active(wb__flux_saver *s, const wb_layer *l)
{
    if (l->mode != WB__MODE_AUTO || s->version < ACTIVE_MAY_BE_NOTHING)
        return wb__julia_bool(&s->room, l->mode != WB__MODE_TEST);
    return wb__julia_nothing(&s->room);
}

/* The axes that are drawn for: Julia counts from the last of ours, so ours must be counted from there too. */
static wb__julia drop_axes(wb__flux_saver *s, const wb_axes *axes)
{
    int64_t dims[WB_MAX_DIMS];
    if (!axes->n) return only(s, "Base.Colon");
    for (int i = 0; i < axes->n; i++) {
        if (axes->axis[i] >= 0)
            return s->structs ? wb__flux_refuse(s, "Dropout over axis %d: count axes from the end, as -1 does",
                                                axes->axis[i])
                              : empty(s);
        dims[i] = -axes->axis[i];
    }
    return axes->n == 1 ? wb__julia_int(&s->room, dims[0]) : wb__julia_ints(&s->room, axes->n, dims);
}

static wb__julia dropout_of(wb__flux_saver *s, const wb_layer *l, double p, const wb_axes *axes)
{
    record r;
    if (!record_open(s, &r, "Dropout")) return wb__julia_nothing(&s->room);
    set(&r, "p", wb__julia_float64(&s->room, p));
    set(&r, "dims", drop_axes(s, axes));
    set(&r, "active", active(s, l));
    set(&r, "rng", only(s, "Flux.Random.TaskLocalRNG"));
    return wb__flux_field(r.layout, "rng") < 0 ? CLOSE(s, &r, "p", "dims")
                                               : CLOSE(s, &r, "p", "dims", "rng");
}

static wb__julia dropout(wb__flux_saver *s, wb_layer *l)
{
    const wb_dropout_options *o = l->options;
    return dropout_of(s, l, o->p, &o->axes);
}

static wb__julia number(wb__flux_saver *s, double value, double by_default)
{
    return wb__julia_float32(&s->room, (float)wb__real(value, by_default));
}

static wb__julia batchnorm(wb__flux_saver *s, wb_layer *l)
{
    const wb_batchnorm_options *o = l->options;
    static const struct { const char *field, *name; } tensors[] = {
        {"γ", "scale"}, {"β", "bias"}, {"μ", "mean"}, {"σ²", "var"}};
    bool old = s->version < NORMS_WITH_OPTIONS;
    record r;
    if (old && (o->no_affine || o->no_track_stats))
        return wb__flux_refuse(s, "BatchNorm without %s, which came with 0.12",
                               o->no_affine ? "scale and bias" : "running statistics");
    if (!record_open(s, &r, "BatchNorm")) return wb__julia_nothing(&s->room);
    for (int i = 0; i < 4; i++) set(&r, tensors[i].field, parameter(s, tensors[i].name, wb__layer_child(l, i)));
    set(&r, "λ", activation(s, o->activation));
    set(&r, "ϵ", number(s, o->eps, 1e-5));
    set(&r, "momentum", number(s, o->momentum, 0.1));
    set(&r, "affine", wb__julia_bool(&s->room, !o->no_affine));
    set(&r, "track_stats", wb__julia_bool(&s->room, !o->no_track_stats));
    set(&r, "active", active(s, l));
    set(&r, "chs", wb__julia_int(&s->room, o->channels));
    return old ? CLOSE(s, &r, "λ", "β", "μ", "ϵ") : CLOSE(s, &r, "λ", "β", "ϵ", "μ");
}

/* What scales and shifts: a Diagonal, or since 0.13 a Scale, which has the activation too. */
static wb__julia affine(wb__flux_saver *s, wb_layer *l)
{
    const wb_layernorm_options *o = l->options;
    bool scale = s->version >= SCALE;
    record r;
    if (o->no_affine && (!scale || !o->activation || o->activation == wb_identity)) return only(s, "Base.#identity");
    if (o->no_affine) {
        wb__julia f = activation(s, o->activation);
        const wb__flux_name *row =
            wb__flux_function_here(wb__function_name(o->activation), s->version);
        return row ? broadcast(s, row->path) : f;
    }
    if (!record_open(s, &r, scale ? "Scale" : "Diagonal")) return wb__julia_nothing(&s->room);
    set(&r, "scale", parameter(s, "scale", wb__layer_child(l, 0)));
    set(&r, "bias", parameter(s, "bias", wb__layer_child(l, 1)));
    set(&r, "σ", activation(s, o->activation));
    return scale ? CLOSE(s, &r, "σ", "scale", "bias") : CLOSE(s, &r, "scale");
}

static wb__julia layernorm(wb__flux_saver *s, wb_layer *l)
{
    const wb_layernorm_options *o = l->options;
    bool old = s->version < NORMS_WITH_OPTIONS;
    record r;
    bool options = o->no_affine || (o->activation && o->activation != wb_identity) ||
                   (float)wb__real(o->eps, 1e-5) != 1e-5f;
    if (old && options)
        return wb__flux_refuse(s, "LayerNorm with an activation or an eps, or without scale and bias: since 0.12");
    int64_t size[4];
    int n = 0;
    while (n < 4 && o->shape[n]) n++;
    for (int i = 0; i < n; i++) size[i] = o->shape[n - 1 - i];
    if (!record_open(s, &r, "LayerNorm")) return wb__julia_nothing(&s->room);
    set(&r, "diag", affine(s, l));
    set(&r, "λ", activation(s, o->activation));
    set(&r, "ϵ", number(s, o->eps, 1e-5));
    set(&r, "size", wb__julia_ints(&s->room, n, size));
    set(&r, "affine", wb__julia_bool(&s->room, !o->no_affine));
    if (old) {
        const wb_tensor *scale = wb__layer_child(l, 0);
        wb__doc *array[2] = {wb__julia_array_type(&s->room, (wb_dtype)scale->dtype, scale->ndim), NULL};
        return record_close(s, &r, array);
    }
    wb__doc *parameters[5] = {type_of(&r, "λ"), type_of(&r, "diag"), type_of(&r, "ϵ"),
                               wb__doc_int(&s->room, n), NULL};
    return record_close(s, &r, parameters);
}

/* ---- attention -------------------------------------------------------------------------------- */

static wb__julia attention(wb__flux_saver *s, wb_layer *l)
{
    const wb_attention_options *o = l->options;
    static const char *const names[4] = {"q_proj", "k_proj", "v_proj", "out_proj"};
    record r;
    if (!record_open(s, &r, "MultiHeadAttention")) return wb__julia_nothing(&s->room);
    if (s->structs && o->causal)
        return wb__flux_refuse(s, "a causal MultiHeadAttention: there the mask is an argument of the call");
    set(&r, "nheads", wb__julia_int(&s->room, o->heads));
    for (int i = 0; i < 4; i++) set(&r, names[i], wb__flux_value(s, names[i], wb__layer_child(l, i)));
    set(&r, "attn_drop", dropout_of(s, l, wb__real(o->dropout, 0), &(wb_axes){0}));
    return CLOSE(s, &r, "q_proj", "attn_drop", "out_proj");
}

/* ---- recurrent layers ------------------------------------------------------------------------- */

/* Its own initial state, if it has one. */
static wb_tensor *initial(const wb_layer *l, const char *name)
{
    for (int i = 0; i < l->node.n; i++)
        if (!strcmp(l->node.children[i].name, name) && !wb_is_none(l->node.children[i].object))
            return l->node.children[i].object;
    return NULL;
}

/* Until 0.14 a cell has its initial states, and Recur the present ones: columns, and before 0.12 vectors. */
static wb__julia state(wb__flux_saver *s, const wb_layer *l, const char *name)
{
    const wb_recurrent_options *o = l->options;
    const wb_tensor *weight = wb__layer_child(l, 0);
    wb_tensor *x = initial(l, name);
    int64_t dims[2] = {1, o->out};
    bool column = s->version >= NORMS_WITH_OPTIONS;
    if (x && !column) return wb__flux_tensor(s, name, x, WB__ROWS);
    if (x) return wb__julia_column(&s->room, x);
    return wb__julia_zeros(&s->room, (wb_dtype)weight->dtype, column ? 2 : 1, column ? dims : dims + 1);
}

static wb__julia states(wb__flux_saver *s, const wb_layer *l)
{
    wb__julia both[2] = {state(s, l, "initial_hidden"), state(s, l, "initial_cell")};
    return strncmp(l->type->name, "LSTM", 4) ? both[0] : wb__julia_tuple(&s->room, 2, both);
}

static wb__julia cell(wb__flux_saver *s, wb_layer *l, const char *type)
{
    const wb_recurrent_options *o = l->options;
    wb_tensor *weight = wb__layer_child(l, 0);
    record r;
    if (!record_open(s, &r, type)) return wb__julia_nothing(&s->room);
    if (s->version >= STATELESS_CELLS && initial(l, "initial_hidden"))
        return wb__flux_refuse(s, "%s with an initial state: since 0.15 that is an argument of the call", type);
    if (o->hidden_bias) return wb__flux_refuse(s, "%s with .hidden_bias: Flux's has one bias", type);
    bool rnn = !strcmp(type, "RNNCell");
    set(&r, "σ", activation(s, rnn && !o->activation ? wb_tanh : o->activation));
    set(&r, "Wi", wb__flux_tensor(s, "weight_input", weight, WB__COLUMNS));
    set(&r, "Wh", wb__flux_tensor(s, "weight_hidden", wb__layer_child(l, 1), WB__COLUMNS));
    set(&r, "bias", bias_of(s, wb__layer_child(l, 2), weight, weight->dims[0], STATELESS_CELLS));
    set(&r, "state0", states(s, l));
    set(&r, "h", state(s, l, "initial_hidden"));
    set(&r, "c", state(s, l, "initial_cell"));
    const char *parameters[6];
    int n = 0;
    if (rnn) parameters[n++] = "σ";
    parameters[n++] = "Wi";
    if (s->version >= CELLS_OF_TWO_TYPES) parameters[n++] = "Wh";
    parameters[n++] = "bias";
    if (wb__flux_field(r.layout, "state0") >= 0) parameters[n++] = "state0";
    parameters[n] = NULL;
    return close_by(s, &r, parameters);
}

static wb__julia bare_cell(wb__flux_saver *s, wb_layer *l) { return cell(s, l, l->type->name); }

static wb__julia sequence(wb__flux_saver *s, wb_layer *l)
{
    const wb_recurrent_options *o = l->options;
    const char *name = l->type->name;
    const char *type = !strcmp(name, "RNN") ? "RNNCell" : !strcmp(name, "LSTM") ? "LSTMCell" : "GRUCell";
    bool recur = s->version < STATELESS_CELLS;
    record r;
    if (s->structs && o->last) return wb__flux_refuse(s, "%s with .last: there it gives all steps", name);
    if (!record_open(s, &r, recur ? "Recur" : name)) return wb__julia_nothing(&s->room);
    set(&r, "cell", cell(s, l, type));
    set(&r, "init", states(s, l));
    set(&r, "state", states(s, l));
    if (recur) return s->version < NORMS_WITH_OPTIONS ? CLOSE(s, &r, "cell") : CLOSE(s, &r, "cell", "state");
    if (s->version < RETURN_STATE) return CLOSE(s, &r, "cell");
    wb__doc *parameters[3] = {wb__doc_bool(&s->room, false), type_of(&r, "cell"), NULL};
    return record_close(s, &r, parameters);
}

/* ---- containers ------------------------------------------------------------------------------- */

static wb__julia layers_of(wb__flux_saver *s, wb_layer *l)
{
    wb__child *parts;
    int n = wb__layer_parts(l, &parts);
    if (s->structs && s->version < NAMED_CHAINS && !wb__flux_numbered(n, parts))
        wb__flux_refuse(s, "%s with names, which came with 0.12.7", l->type->name);
    size_t length = wb__flux_save_enter(s, "layers");
    wb__julia v = wb__flux_parts(s, n, parts);
    wb__flux_save_leave(s, length);
    return v;
}

static wb__julia chain(wb__flux_saver *s, wb_layer *l)
{
    record r;
    if (!record_open(s, &r, "Chain")) return wb__julia_nothing(&s->room);
    set(&r, "layers", layers_of(s, l));
    return CLOSE(s, &r, "layers");
}

static wb__julia connection(wb__flux_saver *s, wb_layer *l, int n)
{
    wb__connection f;
    memcpy(&f, (const char *)l->options + l->type->options[0].offset, sizeof f);
    const char *name = wb__connection_name(f);
    const wb__flux_name *row = wb__flux_connection_here(name, n);
    if (!row && !s->structs) return empty(s);
    if (!row) return wb__flux_refuse(s, "the connection %s", name ? name : "without a name");
    wb__julia inner = only(s, row->path);
    if (!row->elements) return inner;
    if (!s->structs)
        return wb__julia_named_tuple(&s->room, 1, (const char *const[]){"f"}, &inner);
    if (s->version < BROADCAST_FUNCTION)
        return wb__flux_refuse(s, "the connection %s, for which 0.13 is the first", name);
    wb__doc *type = wb__julia_type(&s->room, "Base.Broadcast.BroadcastFunction", 1, &inner.type);
    return wb__julia_struct(&s->room, type, 1, &inner);
}

static wb__julia parallel(wb__flux_saver *s, wb_layer *l)
{
    wb__child *parts;
    record r;
    if (!record_open(s, &r, "Parallel")) return wb__julia_nothing(&s->room);
    set(&r, "connection", connection(s, l, wb__layer_parts(l, &parts)));
    set(&r, "layers", layers_of(s, l));
    return CLOSE(s, &r, "connection", "layers");
}

static wb__julia skip(wb__flux_saver *s, wb_layer *l)
{
    record r;
    if (!record_open(s, &r, "SkipConnection")) return wb__julia_nothing(&s->room);
    set(&r, "layers", wb__flux_value(s, "layers", wb__layer_child(l, 0)));
    set(&r, "connection", connection(s, l, 2));
    return s->version < SKIP_HAS_PARAMETERS ? record_close(s, &r, NULL) : CLOSE(s, &r, "layers", "connection");
}

/* ---- all of them ------------------------------------------------------------------------------ */

static const struct { const char *name; wb__julia (*save)(wb__flux_saver *s, wb_layer *l); } kinds[] = {
    {"Chain", chain}, {"SkipConnection", skip}, {"Parallel", parallel}, {"Function", function_layer},
    {"Flatten", flatten}, {"Dense", dense}, {"Conv", conv}, {"MaxPool", pool}, {"MeanPool", pool},
    {"GlobalMaxPool", global_pool}, {"GlobalMeanPool", global_pool}, {"Dropout", dropout},
    {"BatchNorm", batchnorm}, {"LayerNorm", layernorm}, {"Embedding", embedding},
    {"MultiHeadAttention", attention}, {"RNN", sequence}, {"LSTM", sequence}, {"GRU", sequence},
    {"RNNCell", bare_cell}, {"LSTMCell", bare_cell}, {"GRUCell", bare_cell}};

wb__julia wb__flux_save_layer(wb__flux_saver *s, wb_layer *l)
{
    for (size_t i = 0; i < WB__COUNT(kinds); i++)
        if (!strcmp(l->type->name, kinds[i].name)) return kinds[i].save(s, l);
    return wb__flux_refuse(s, "%s", l->type->name);
}
