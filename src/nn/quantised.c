/* Quantized: a Dense or Embedding with an i8 weight.  Its child "layer" is the layer with this
 * weight; "scale" has an f32 for each row; "like" has one number, whose dtype is that of the
 * results, as the weight's dtype is in other layers.  wb_quantize makes Quantized layers. */
#include "nn/layer.h"

#include "weber/adapt.h"

extern const wb__layer_type wb__quantised_type, wb__dense_type, wb__embedding_type;

typedef struct { size_t size; int64_t bits; } quantised_options;
#define QUANTISED_OPTIONS(X) X(quantised_options, bits, INT, 1)
static const wb__option quantised_table[] = {QUANTISED_OPTIONS(WB__OPTION_ROW)};
enum { QUANTISED_WEIGHT };              /* child of a Dense or Embedding */
enum {
    QUANTISED_BITS = 8,
    QUANTISED_LEAST = 64                /* elements of a row; with fewer, f32 is far faster */
};

bool wb__is_quantised(const void *l)
{
    return wb__is(l, &wb__layer_class) && ((const wb_layer *)l)->type == &wb__quantised_type;
}

static wb_tensor *quantised_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    wb_function f;
    if (!wb__one_input(l, n)) return NULL;
    if (((wb_layer *)wb__layer_child(l, WB__QUANTISED_LAYER))->type == &wb__embedding_type)
        return wb__embedding_rows(l, inputs[0]);
    wb_tensor *y = wb__dense_linear(l, inputs[0], &f);
    return y ? wb__activate(f, y) : NULL;
}

static void quantised_print(const wb_layer *l, wb__text *t)
{
    wb__text_add(t, "Quantized(");
    wb__print_layer(wb__layer_child(l, WB__QUANTISED_LAYER), t);
    wb__text_add(t, ")");
}

static bool quantised_supports(const wb_layer *l)
{
    return l->type == &wb__dense_type || l->type == &wb__embedding_type;
}

/* Returns a Quantized of a layer, whose weight becomes q.  NULL with the error set. */
static wb_layer *quantised_around(wb_layer *layer, wb_tensor *q, wb_tensor *scale, wb_tensor *like)
{
    wb_layer *l = wb__layer_new(&wb__quantised_type,
                                &(quantised_options){sizeof(quantised_options), QUANTISED_BITS}, 3);
    scale->flags |= WB__FROZEN | WB__WIDE;
    like->flags |= WB__FROZEN;
    return l && wb__layer_put(l, WB__QUANTISED_LAYER, "layer", wb__layer_with(layer,
                                                                              QUANTISED_WEIGHT,
                                                                              q)) &&
                   wb__layer_put(l, WB__QUANTISED_SCALE, "scale", scale) &&
                   wb__layer_put(l, WB__QUANTISED_LIKE, "like", like)
               ? l : NULL;
}

/* Returns a Quantized whose values a file will provide. */
static wb_layer *quantised_assemble(const void *options, int n, const char *const *names,
                                    wb_layer *const *layers)
{
    (void)names;
    const quantised_options *o = options;
    if (n != 1 || o->bits != QUANTISED_BITS || !quantised_supports(layers[0]))
        return wb__fail_null(WB_ERROR_FORMAT, "Quantized: of %lld bits, with %d layers, the first "
                             "%s; it has %d bits and one Dense or Embedding", (long long)o->bits,
                             n, n ? layers[0]->type->name : "none", QUANTISED_BITS);
    const wb_tensor *w = wb__layer_child(layers[0], QUANTISED_WEIGHT);
    wb_tensor *q = wb__variable_empty(WB_I8, w->ndim, w->dims);
    wb_tensor *scale = wb__statistic("Quantized", "scale", wb__init_empty, WB_F32, w->dims[0]);
    wb_tensor *like = wb__statistic("Quantized", "like", wb__init_empty, (wb_dtype)w->dtype, 1);
    if (!q || !scale || !like) return NULL;
    q->name = w->name;
    return quantised_around(layers[0], q, scale, like);
}

static const wb__torch_child quantised_torch_rows[] = {{"layer", "", NULL, 0}};
static const wb__torch_kind quantised_torch = {WB__TORCH_CHILDREN(quantised_torch_rows)};

const wb__layer_type wb__quantised_type = {
    .name = "Quantized", WB__LAYER_OPTIONS(quantised_options, quantised_table),
    .call = quantised_call, .print = quantised_print, .assemble = quantised_assemble,
    .one_row = true, .torch = &quantised_torch};

/* ---- a whole model --------------------------------------------------------------------------- */

/* A weight that was quantised. */
typedef struct { const wb_tensor *w; wb_tensor *q, *scale, *like; } quantised_done;
/* The state of wb_quantize while it visits a model. */
typedef struct {
    const char *layers;                 /* patterns of paths, or NULL */
    int n, capacity, replaced;          /* replaced: number of quantised layers */
    quantised_done *done;
    wb__pointer_map normed;             /* layers inside a WeightNorm, which stay as they are */
} quantisation;

/* Whether all scales, [n], are finite.  Otherwise sets the error. */
static bool quantised_all_finite(wb_tensor *scale, const char *path)
{
    wb_tensor *all = wb__reduce(WB__OP_min, wb_astype(wb_isfinite(scale), WB_I32), 1, false);
    const double one = all ? wb_item(all) : 0;
    if (one == 1) return true;
    if (!wb_error_code())
        wb__fail(WB_ERROR_ARGUMENT, "quantize: the weight of \"%s\" has NaN, infinity or a number "
                 "beyond f32", path);
    return false;
}

/* Returns the integers and scales of the weight as variables; NULL with the error set. */
static const quantised_done *quantised_weight(quantisation *t, wb_tensor *w, const char *path)
{
    for (int i = 0; i < t->n; i++)
        if (t->done[i].w == w) return &t->done[i];
    wb_tensor *q, *scale;
    if (w->dims[1] > WB__INT8_MOST)
        return wb__fail_null(WB_ERROR_UNSUPPORTED, "quantize: the weight of \"%s\" is %s; a row "
                             "has at most %d elements", path, wb_describe(w), WB__INT8_MOST);
    if (!wb__reserve(&t->done, &t->capacity, t->n + 1, sizeof *t->done) ||
        wb_quantize_rows(w, &q, &scale) || wb_eval(q, scale) || !quantised_all_finite(scale, path))
        return NULL;
    wb_tensor *first = wb_slice(scale, 0, 0, 1);
    wb_tensor *like = first ? wb_variable(wb__as(first, (wb_dtype)w->dtype)) : NULL;
    quantised_done *d = &t->done[t->n];
    *d = (quantised_done){w, wb_variable(q), wb_variable(scale), like};
    if (!d->q || !d->scale || !d->like) return NULL;
    d->q->name = w->name;
    d->scale->name = "scale";
    d->like->name = "like";
    t->n++;
    return d;
}

static void *quantised_replace(void *branch, const char *path, void *ctx)
{
    quantisation *t = ctx;
    wb_layer *l = branch;
    const wb_layer *base;
    int child;
    if (!wb__is(branch, &wb__layer_class)) return branch;
    if (wb__normed_child(l, &base, &child))
        return wb__pointer_map_put(&t->normed, base, 0) ? branch : NULL;
    if (!quantised_supports(l) || wb__pointer_map_get(&t->normed, l) >= 0) return branch;
    wb_tensor *w = wb__layer_child(l, QUANTISED_WEIGHT);
    if (!wb__dtype_float((wb_dtype)w->dtype) || w->dims[1] < QUANTISED_LEAST) return branch;
    if (t->layers && !wb__path_matches(t->layers, path)) return branch;
    const quantised_done *d = quantised_weight(t, w, path);
    t->replaced++;
    return d ? quantised_around(l, d->q, d->scale, d->like) : NULL;
}

void *wb_object_quantize(void *model, const wb_quantize_options *given)
{
    WB__PUBLIC(wb_object_quantize, NULL);
    wb_quantize_options o;
    if (!wb__is_model("quantize", model)) return NULL;
    if (!wb__read_options("quantize", wb_quantize_options, &o, given, NULL)) return NULL;
    if (o.bits != QUANTISED_BITS)
        return wb__fail_null(WB_ERROR_UNSUPPORTED, "quantize: .bits is %lld; it is %d",
                             (long long)o.bits, QUANTISED_BITS);
    if (!wb__each_matches("quantize: .layers", o.layers, model)) return NULL;
    quantisation t = {.layers = o.layers};
    void *made = wb__fmap_replacing(model, quantised_replace, &t);
    if (made && !t.replaced)
        made = wb__fail_null(WB_ERROR_ARGUMENT, "quantize: no Dense or Embedding with a floating "
                             "weight of %d columns or more%s%s%s", QUANTISED_LEAST,
                             o.layers ? " has a path that matches \"" : "",
                             o.layers ? o.layers : "", o.layers ? "\"" : "");
    wb__free(t.done);
    wb__pointer_map_free(&t.normed);
    return made;
}
