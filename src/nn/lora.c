/* LoRA: a layer with a trained change B·A of low rank to its weight (Hu et al. 2021).  Its child
 * "layer" is the layer, which is frozen; "a" and "b" are the factors.  Dense and Embedding compute
 * with the factors; the call of a convolution makes a copy of the layer with the sum as its
 * weight. */
#include "nn/layer.h"

#include "weber/adapt.h"

#include <math.h>

extern const wb__layer_type wb__lora_type, wb__dense_type, wb__embedding_type, wb__conv_type,
    wb__conv1d_type, wb__conv_transpose_type, wb__conv_transpose1d_type;

typedef struct { size_t size; int64_t rank; double alpha, dropout; } lora_options;
#define LORA_OPTIONS(X) \
    X(lora_options, rank, INT, 1) X(lora_options, alpha, REAL, 1) X(lora_options, dropout, REAL, 1)
static const wb__option lora_table[] = {LORA_OPTIONS(WB__OPTION_ROW)};
enum { LORA_LAYER, LORA_A, LORA_B, LORA_WEIGHT = 0 };

bool wb__is_lora(const void *l)
{
    return wb__is(l, &wb__layer_class) && ((const wb_layer *)l)->type == &wb__lora_type;
}

void wb__lora_numbers(const wb_layer *l, int64_t *rank, double *alpha, double *dropout)
{
    const lora_options *o = l->options;
    *rank = o->rank;
    *alpha = o->alpha;
    *dropout = o->dropout;
}

/* Returns the layer that has the weight: l itself, or the layer inside a quantised l. */
static wb_layer *lora_owner_of(const wb_layer *l)
{
    return wb__is_quantised(l) ? wb__layer_child(l, LORA_LAYER) : (wb_layer *)(uintptr_t)l;
}
static wb_tensor *lora_weight_of(const wb_layer *l) { return wb__layer_child(lora_owner_of(l),
                                                                             LORA_WEIGHT); }

wb_tensor *wb__dense_typed(const wb_layer *l)
{
    while (wb__is_lora(l)) l = wb__layer_child(l, LORA_LAYER);
    return wb__layer_child(l, wb__is_quantised(l) ? WB__QUANTISED_LIKE : LORA_WEIGHT);
}

static bool is_dense(const wb_layer *l) { return lora_owner_of(l)->type == &wb__dense_type; }
static bool lora_is_embedding(const wb_layer *l)
{
    return lora_owner_of(l)->type == &wb__embedding_type;
}
static bool lora_is_conv(const wb_layer *l)
{
    return l->type == &wb__conv_type || l->type == &wb__conv1d_type ||
           l->type == &wb__conv_transpose_type || l->type == &wb__conv_transpose1d_type;
}
/* Whether the layer is of a kind that LoRA supports. */
static bool lora_supports(const wb_layer *l)
{
    return is_dense(l) || lora_is_embedding(l) || lora_is_conv(l);
}

/* Returns x times alpha / rank. */
static wb_tensor *lora_times_scale(const lora_options *o, wb_tensor *x)
{
    return x ? wb_mul(x, wb__literal(o->alpha / (double)o->rank, (wb_dtype)x->dtype)) : NULL;
}

/* Returns the change of the weight, in the weight's shape and dtype. */
static wb_tensor *lora_weight_change(const wb_layer *l)
{
    const wb_tensor *w = lora_weight_of(wb__layer_child(l, LORA_LAYER));
    wb_tensor *change = wb__matmul(wb__layer_child(l, LORA_B), wb__layer_child(l, LORA_A), false,
                                   false);
    return wb_reshape_array(lora_times_scale(l->options, change), w->ndim, w->dims);
}

static wb_tensor *lora_call_dense(wb_layer *l, wb_layer *base, wb_tensor *x)
{
    const lora_options *o = l->options;
    wb_function f;
    bool automatic = false;
    wb_tensor *y = wb__dense_linear(base, x, &f), *a = wb__layer_child(l, LORA_A);
    if (!y) return NULL;
    x = wb__layer_input(l, x, a);
    const bool drops = o->dropout > 0 && wb__train_mode(l, &automatic);
    if (drops) x = wb_dropout(x, o->dropout);
    wb_tensor *low = x ? wb_linear(x, a, WB_NONE) : NULL;
    wb_tensor *change = low ? wb_linear(low, wb__layer_child(l, LORA_B), WB_NONE) : NULL;
    y = change ? wb_add(y, lora_times_scale(o, change)) : NULL;
    y = y ? wb__activate(f, y) : NULL;
    return y && o->dropout > 0 && !drops && automatic ? wb__mark_automatic(y, "LoRA") : y;
}

static wb_tensor *lora_call_embedding(wb_layer *l, wb_layer *base, wb_tensor *x)
{
    wb_tensor *y = wb__embedding_rows(base, x);
    wb_tensor *rows = y ? wb_take(wb__layer_child(l, LORA_B), x) : NULL;
    wb_tensor *change = rows ? wb_matmul(rows, wb__layer_child(l, LORA_A)) : NULL;
    y = change ? wb_add(y, lora_times_scale(l->options, change)) : NULL;
    return wb__without_padding(lora_owner_of(base), x, y);
}

static wb_tensor *lora_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    wb_layer *base = wb__layer_child(l, LORA_LAYER);
    if (!wb__one_input(l, n)) return NULL;
    wb__branch_used(&base->node);
    if (is_dense(base)) return lora_call_dense(l, base, inputs[0]);
    if (lora_is_embedding(base)) return lora_call_embedding(l, base, inputs[0]);
    wb_tensor *change = lora_weight_change(l);
    wb_tensor *w = change ? wb_add(lora_weight_of(base), change) : NULL;
    wb_layer *with = w ? wb__layer_with(base, LORA_WEIGHT, w) : NULL;
    return with ? wb_call_array(with, 1, inputs) : NULL;
}

static void lora_print(const wb_layer *l, wb__text *t)
{
    const lora_options *o = l->options;
    wb__text_add(t, "LoRA(");
    wb__print_layer(wb__layer_child(l, LORA_LAYER), t);
    wb__text_add(t, "; rank=%lld", (long long)o->rank);
    if (o->alpha != (double)o->rank) wb__text_add(t, ", alpha=%g", o->alpha);
    if (o->dropout > 0) wb__text_add(t, ", dropout=%g", o->dropout);
    wb__text_add(t, ")");
}

static int lora_freeze_leaf(const wb__leaf *leaf, void *ctx)
{
    (void)ctx;
    if (leaf->x->op == WB__OP_variable) leaf->x->flags |= WB__FROZEN;
    return 0;
}

static bool lora_freeze(void *object)
{
    return !wb__walk("LoRA", object, NULL, WB__DISTINCT | WB__NAMELESS, lora_freeze_leaf, NULL);
}

/* Whether LoRA supports the layer and its weight.  Otherwise sets the error. */
static bool lora_check(const wb_layer *layer, const lora_options *o)
{
    if (!lora_supports(layer))
        return !wb__fail(WB_ERROR_ARGUMENT, "LoRA: %s has no adapter: Dense, Embedding and "
                         "convolutions have one; wb_add_lora finds them in a model",
                         layer->type->name);
    const wb_tensor *w = lora_weight_of(layer);
    const int64_t rows = w->dims[0], columns = w->size / WB__MAX(rows, 1);
    if (o->rank < 1 || o->rank > WB__MAX(rows, columns))
        return !wb__fail(WB_ERROR_ARGUMENT, "LoRA: .rank is %lld; for the weight %s of %s it is "
                         "in 1 .. %lld", (long long)o->rank, wb_describe(w), layer->type->name,
                         (long long)WB__MAX(rows, columns));
    if (!(o->dropout >= 0 && o->dropout < 1) || !isfinite(o->alpha))
        return !wb__fail(WB_ERROR_ARGUMENT, "LoRA: .dropout is %g and .alpha %g; dropout must be "
                         "in [0, 1), and alpha finite", o->dropout, o->alpha);
    if (o->dropout > 0 && !is_dense(layer))
        return !wb__fail(WB_ERROR_ARGUMENT, "LoRA: .dropout of %s: Dense alone has it",
                         layer->type->name);
    return true;
}

static wb_tensor *lora_init_a(wb_dtype dtype, int ndim, const int64_t *dims)
{
    return wb_mul(wb_randn_array(dtype, ndim, dims), wb_scalar(1 / sqrt((double)dims[1])));
}

/* Returns a new LoRA around `layer`, without freezing the layer.  `init` makes the factor A. */
static wb_layer *lora_around(const lora_options *o, wb_layer *layer, wb_initializer init)
{
    if (!lora_check(layer, o)) return NULL;
    const wb_tensor *w = lora_weight_of(layer);
    const wb_dtype dtype = (wb_dtype)wb__dense_typed(layer)->dtype;
    const wb_device *was = w->device ? wb__use_device(w->device) : NULL;
    const int64_t rows = w->dims[0], a[2] = {o->rank, w->size / rows}, b[2] = {rows, o->rank};
    wb_layer *l = wb__layer_new(&wb__lora_type, o, 3);
    const bool empty = init == wb__init_empty;
    const bool made = l && wb__layer_put(l, LORA_LAYER, "layer", layer) &&
                      wb__layer_put_parameter(l, LORA_A, "a", true, init, dtype, 2, a) &&
                      wb__layer_put_parameter(l, LORA_B, "b", true, empty ? init : wb_init_zeros,
                                              dtype, 2, b);
    if (was) wb__use_device(was);
    return made ? l : NULL;
}

wb_layer *wb__lora_empty(wb_layer *layer, int64_t rank, double alpha, double dropout)
{
    return lora_around(&(lora_options){sizeof(lora_options), rank, alpha, dropout}, layer,
                       wb__init_empty);
}

static wb_layer *lora_assemble(const void *options, int n, const char *const *names,
                               wb_layer *const *layers)
{
    (void)names;
    wb_layer *l = n == 1 ? lora_around(options, layers[0], wb__init_empty) : NULL;
    if (n == 1) return l && lora_freeze(layers[0]) ? l : NULL;
    return wb__fail_null(WB_ERROR_ARGUMENT, "LoRA: has one layer, got %d", n);
}

static const wb__torch_child lora_torch_rows[] = {{"layer", "", NULL, 0}};
static const wb__torch_kind lora_torch = {WB__TORCH_CHILDREN(lora_torch_rows)};

const wb__layer_type wb__lora_type = {
    .name = "LoRA", WB__LAYER_OPTIONS(lora_options, lora_table), .call = lora_call,
    .print = lora_print, .assemble = lora_assemble, .one_row = true, .torch = &lora_torch};

static lora_options lora_options_of(int64_t rank, double alpha, double dropout)
{
    return (lora_options){sizeof(lora_options), rank, wb__or(alpha, (double)rank), dropout};
}

wb_layer *wb_LoRA_with(wb_layer *layer, const wb_LoRA_options *given)
{
    WB__PUBLIC(wb_LoRA_with, NULL);
    wb_LoRA_options o;
    if (!wb__expect("LoRA", layer, &wb__layer_class)) return NULL;
    if (!wb__read_options("LoRA", wb_LoRA_options, &o, given, NULL)) return NULL;
    const lora_options made = lora_options_of(o.rank, o.alpha, o.dropout);
    layer = wb__layer_unnamed(layer, NULL);
    wb_layer *l = lora_around(&made, layer, o.init ? o.init : lora_init_a);
    return l && lora_freeze(layer) ? l : NULL;
}

/* ---- a whole model --------------------------------------------------------------------------- */

/* The state of wb_add_lora while it visits a model. */
typedef struct {
    lora_options o;                     /* options */
    const char *layers, *train;         /* the options: patterns of paths, or NULL */
    wb_initializer init;                /* initialiser of the factor A */
    int replaced;                       /* number of layers that got adapters */
    wb__pointer_map inside;             /* layers inside layers that must stay as they are */
    wb__pointer_map trained;            /* tensors that stay trained */
} lora_adding;

static int lora_keep_trained(const wb__leaf *leaf, void *ctx)
{
    if (!leaf->trainable) return 0;
    return wb__pointer_map_put(ctx, leaf->x, 0) ? 0 : WB_ERROR_MEMORY;
}

/* Adds to *ctx the tensors of the layers that match .train, and the layers that must not be
 * replaced. */
static int lora_note_layer(wb_layer *l, const char *path, void *ctx)
{
    lora_adding *t = ctx;
    const wb_layer *base = NULL;
    int child;
    if (wb__normed_child(l, &base, &child) || wb__is_quantised(l) || wb__is_lora(l)) {
        const void *inner = base ? base : wb__layer_child(l, LORA_LAYER);
        if (!wb__pointer_map_put(&t->inside, inner, 0)) return WB_ERROR_MEMORY;
    }
    if (!t->train || !wb__path_matches(t->train, path)) return 0;
    return wb__walk("add_lora", l, NULL, WB__DISTINCT, lora_keep_trained, &t->trained);
}

static int lora_freeze_others(const wb__leaf *leaf, void *ctx)
{
    const lora_adding *t = ctx;
    if (wb__pointer_map_get(&t->trained, leaf->x) < 0) lora_freeze_leaf(leaf, NULL);
    return 0;
}

/* Whether a tensor of the layer is in t->trained. */
static bool is_trained(const lora_adding *t, const wb_layer *l)
{
    l = lora_owner_of(l);
    for (int i = 0; i < l->node.n; i++)
        if (wb__pointer_map_get(&t->trained, wb__layer_child(l, i)) >= 0) return true;
    return false;
}

static void *lora_adapt(void *branch, const char *path, void *ctx)
{
    lora_adding *t = ctx;
    wb_layer *l = branch;
    if (!wb__is(branch, &wb__layer_class) || !lora_supports(l) || is_trained(t, l)) return branch;
    if (wb__pointer_map_get(&t->inside, l) >= 0) return branch;
    if (t->layers ? !wb__path_matches(t->layers, path) : !is_dense(l)) return branch;
    t->replaced++;
    return wb__pointer_map_put(&t->inside, l, 0) ? lora_around(&t->o, l, t->init) : NULL;
}

void *wb_object_add_lora(void *model, const wb_add_lora_options *given)
{
    WB__PUBLIC(wb_object_add_lora, NULL);
    wb_add_lora_options o;
    if (!wb__is_model("add_lora", model)) return NULL;
    if (!wb__read_options("add_lora", wb_add_lora_options, &o, given, NULL)) return NULL;
    if (!wb__each_matches("add_lora: .layers", o.layers, model) ||
        !wb__each_matches("add_lora: .train", o.train, model))
        return NULL;
    lora_adding t = {.o = lora_options_of(o.rank, o.alpha, o.dropout), .layers = o.layers,
                     .train = o.train, .init = o.init ? o.init : lora_init_a};
    void *made = NULL;
    if (!wb_each_layer(model, lora_note_layer, &t))
        made = wb__fmap_replacing(model, lora_adapt, &t);
    if (made && o.train && !t.trained.n)
        made = wb__fail_null(WB_ERROR_ARGUMENT, "add_lora: .train: no layer with parameters "
                             "matches \"%s\"", o.train);
    if (made && !t.replaced)
        made = o.layers ? wb__fail_null(WB_ERROR_ARGUMENT, "add_lora: no layer that can have an "
                                        "adapter matches \"%s\"", o.layers)
                        : wb__fail_null(WB_ERROR_ARGUMENT, "add_lora: no Dense that can have an "
                                        "adapter is in the model: name other layers by .layers");
    if (made &&
        wb__walk("add_lora", model, NULL, WB__DISTINCT | WB__NAMELESS, lora_freeze_others, &t))
        made = NULL;
    wb__pointer_map_free(&t.inside);
    wb__pointer_map_free(&t.trained);
    return made;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* A merged LoRA: its weight, factors a and b, alpha / rank, and w = weight + factor b·a. */
typedef struct { const wb_tensor *weight, *a, *b; double factor; wb_tensor *w; } lora_merged;
typedef struct { lora_merged *done; int n, capacity; } merging;

/* Returns the weight plus its change as a variable.  LoRAs that share all factors get one
 * variable. */
static wb_tensor *lora_merged_weight(const wb_layer *l, merging *t)
{
    wb_tensor *weight = lora_weight_of(wb__layer_child(l, LORA_LAYER));
    const lora_options *o = l->options;
    const lora_merged m = {weight, wb__layer_child(l, LORA_A), wb__layer_child(l, LORA_B),
                           o->alpha / (double)o->rank, NULL};
    for (int i = 0; i < t->n; i++) {
        const lora_merged *other = &t->done[i];
        if (other->weight == m.weight && other->a == m.a && other->b == m.b &&
            other->factor == m.factor)
            return other->w;
    }
    wb_tensor *change = lora_weight_change(l), *sum = change ? wb_add(weight, change) : NULL;
    wb_tensor *w = sum ? wb_variable(sum) : NULL;
    if (!w || !wb__reserve(&t->done, &t->capacity, t->n + 1, sizeof *t->done)) return NULL;
    w->name = weight->name;
    t->done[t->n] = m;
    t->done[t->n++].w = w;
    return w;
}

static void *lora_merge_layer(void *branch, const char *path, void *ctx)
{
    if (!wb__is_lora(branch)) return branch;
    wb_layer *l = branch, *base = wb__layer_child(l, LORA_LAYER);
    if (wb__is_quantised(base))
        return wb__fail_null(WB_ERROR_UNSUPPORTED, "merge_lora: \"%s\" is quantised, so that its "
                             "weight cannot take the change: merge the adapters into the model "
                             "before wb_quantize", path);
    return wb__layer_with(base, LORA_WEIGHT, lora_merged_weight(l, ctx));
}

void *wb_object_merge_lora(void *model)
{
    WB__PUBLIC(wb_object_merge_lora, NULL);
    if (!wb__is_model("merge_lora", model)) return NULL;
    merging t = {0};
    void *made = wb__fmap_replacing(model, lora_merge_layer, &t);
    wb__free(t.done);
    return made;
}
