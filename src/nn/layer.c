/* Common code of all layers: creation, calls, copies, modes. */
#include "nn/layer.h"

#include <stdio.h>
#include <string.h>

#define LAYERS(X)                                                                               \
    X(dense) X(conv) X(conv1d) X(conv_transpose) X(conv_transpose1d) X(maxpool) X(maxpool1d)    \
    X(meanpool) X(meanpool1d) X(globalmaxpool)                                                  \
    X(globalmeanpool) X(flatten)                                                                \
    X(dropout) X(alphadropout) X(batchnorm) X(instancenorm) X(groupnorm) X(layernorm)           \
    X(rmsnorm) X(scale) X(bilinear) X(pixelshuffle) X(upsample) X(adaptivemaxpool)              \
    X(adaptivemeanpool) X(embedding) X(embeddingbag) X(attention)                               \
    X(rnn) X(lstm) X(gru) X(rnn_cell) X(lstm_cell) X(gru_cell)                                  \
    X(gruv3) X(gruv3_cell) X(recurrence) X(weightnorm) X(quantised) X(lora)                     \
    X(chain) X(skip) X(parallel) X(fusion) X(maxout) X(function) X(onnx_model)                  \
    X(transformer) X(transformer_block) X(token_pool)

#define EXTERN(name) extern const wb__layer_type wb__##name##_type;
LAYERS(EXTERN)
#undef EXTERN
#define ROW(name) &wb__##name##_type,
static const wb__layer_type *const layer_types[] = {LAYERS(ROW) NULL};
#undef ROW

const wb__layer_type *wb__layer_type_named(const char *name)
{
    for (int i = 0; layer_types[i]; i++)
        if (!strcmp(layer_types[i]->name, name)) return layer_types[i];
    return wb__own_type_named(name);
}

void *wb__layer_option(const wb__layer_type *type, const void *options, const char *name)
{
    for (int i = 0; i < type->n_options; i++)
        if (!strcmp(type->options[i].name, name))
            return (char *)(uintptr_t)options + type->options[i].offset;
    return NULL;
}

/* ---- blobs ----------------------------------------------------------------------------------- */

wb__blob *wb__blob_new(size_t n)
{
    wb__blob *b = n < SIZE_MAX / 2 ? wb__alloc(sizeof *b + n) : NULL;
    if (!b) return NULL;
    *b = (wb__blob){.n = n};
    atomic_init(&b->refs, 1);
    return b;
}

void wb__blob_unref(wb__blob *b)
{
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) return;
    if (b->made) b->drop(b->made);
    wb__free(b);
}

/* Returns the blob of option i; NULL if the option is of another kind or has no blob. */
static wb__blob *layer_blob_of(const wb__layer_type *type, const void *options, int i)
{
    wb__blob *b = NULL;
    if (type->options[i].kind == WB__OPTION_BLOB)
        memcpy(&b, (const char *)options + type->options[i].offset, sizeof b);
    return b;
}

void wb__blobs_ref(const wb__layer_type *type, const void *options)
{
    for (int i = 0; i < type->n_options; i++) {
        wb__blob *b = layer_blob_of(type, options, i);
        if (b) atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    }
}

void wb__blobs_unref(const wb__layer_type *type, const void *options)
{
    for (int i = 0; i < type->n_options; i++) wb__blob_unref(layer_blob_of(type, options, i));
}

static void layer_destroy(void *object)
{
    wb_layer *l = object;
    wb__branch_clear(&l->node);
    if (l->options) wb__blobs_unref(l->type, l->options);
    wb__free(l->options);
    wb__object_end(l, sizeof *l);
}

/* Writes the name of the layer's type.  A layer without a type is one that could not be put into a
 * scope, for lack of memory. */
static void layer_brief(const void *object, char *text, size_t bytes)
{
    const wb_layer *l = object;
    snprintf(text, bytes, "%s", l->type ? l->type->name : "layer");
}

const wb__class wb__layer_class = {.name = "layer", .destroy = layer_destroy,
                                   .format = wb__format_layer, .to = wb__branch_to,
                                   .device_of = wb__branch_device, .brief = layer_brief};

static wb__branch *layer_empty_like(wb__branch *of);
static const wb__branch_kind layer_kind = {.layer = true, .like = layer_empty_like};

static wb_layer *layer_new(const wb__layer_type *type, const void *options)
{
    wb_layer *l = wb__object_new(&wb__layer_class, sizeof *l);
    if (!l) return NULL;
    l->type = type;
    l->node.kind = &layer_kind;
    if (!type->options_size) return l;
    l->options = wb__alloc(type->options_size);
    if (l->options) {
        memcpy(l->options, options, type->options_size);
        wb__blobs_ref(type, l->options);
        return l;
    }
    wb_object_free(l);
    return NULL;
}

wb_layer *wb__layer_new(const wb__layer_type *type, const void *options, int n_children)
{
    wb_layer *l = layer_new(type, options);
    if (!l || wb__branch_init(&l->node, &layer_kind, n_children)) return l;
    wb_object_free(l);
    return NULL;
}

static wb__branch *layer_empty_like(wb__branch *of)
{
    wb_layer *from = (wb_layer *)of;
    wb_layer *l = layer_new(from->type, from->options);
    if (!l) return NULL;
    l->mode = wb__setting_read(from, &from->mode);
    l->recomputed = wb__setting_read(from, &from->recomputed);
    if (wb__branch_init_like(&l->node, of)) return &l->node;
    wb_object_free(l);
    return NULL;
}

wb_layer *wb__layer_with(wb_layer *l, int i, void *object)
{
    if (!object) return NULL;
    wb__branch_used(&l->node);
    wb_layer *made = (wb_layer *)l->node.kind->like(&l->node);
    for (int k = 0; made && k < l->node.n; k++)
        wb__branch_put(&made->node, k, made->node.children[k].name,
                       k == i ? object : l->node.children[k].object);
    return made;
}

bool wb__layer_put(wb_layer *l, int i, const char *name, void *object)
{
    if (object) {
        wb__branch_put(&l->node, i, name, object);
        if (wb__branch_check_depth(&l->node, l->type->name)) return true;
    }
    wb_object_free(l);
    return false;
}

bool wb__layer_dtype(const char *what, wb_dtype *dtype)
{
    if (*dtype == WB_DTYPE_DEFAULT) *dtype = WB_F32;
    if ((unsigned)(*dtype - 1) < WB_DTYPE_COUNT - 1 && wb__dtype_float(*dtype)) return true;
    wb__fail(WB_ERROR_DTYPE, "%s: parameters are floating, got dtype %s", what,
             wb_dtype_name(*dtype));
    return false;
}

/* The number of bytes that new parameters of this thread may still take; negative: no limit. */
static _Thread_local int64_t layer_limit = -1;

void wb__parameters_limit(int64_t bytes) { layer_limit = bytes; }

/* Subtracts `bytes` from the limit.  False, with the error set, if `bytes` exceeds the limit. */
static bool layer_affordable(const char *what, const char *name, int64_t bytes)
{
    if (layer_limit < 0) return true;
    if (bytes > layer_limit) {
        wb__fail(WB_ERROR_FORMAT, "%s: %s would take %lld bytes, far more than there are values "
                 "for", what, name, (long long)bytes);
        return false;
    }
    layer_limit -= bytes;
    return true;
}

wb_tensor *wb__init_empty(wb_dtype dtype, int ndim, const int64_t *dims)
{
    return wb__variable_empty(dtype, ndim, dims);
}

WB__PROGRAM_CALL(init_call, init_run, wb_tensor *,
                 wb_initializer f; wb_dtype dtype; int ndim; const int64_t *dims;,
                 c->f(c->dtype, c->ndim, c->dims))

wb_tensor *wb__parameter(const char *what, const char *name, wb_initializer init, wb_dtype dtype,
                         int ndim, const int64_t *dims)
{
    int64_t size;
    if (!wb__check_dims(what, ndim, dims, &size)) return NULL;
    if (!layer_affordable(what, name, size * (int64_t)wb__dtype_size(dtype))) return NULL;
    init_call c = {init, dtype, ndim, dims, NULL};
    wb_tensor *x = wb__call_program(init_run, &c) ? c.result : NULL;
    if (!x && !wb_error_code())
        wb__fail(WB_ERROR_ARGUMENT, "%s: the initialiser of %s gave no tensor", what, name);
    if (!x || !wb__operand(what, x)) return NULL;
    if (x->dtype != dtype || x->ndim != ndim || memcmp(x->dims, dims, (size_t)ndim * sizeof *dims))
        return wb__fail_null(WB_ERROR_SHAPE, "%s: the initialiser of %s gave %s", what, name,
                             wb_describe(x));
    wb_tensor *v = init == wb__init_empty ? x : wb_variable(x);
    if (v != x && x->op != WB__OP_variable) wb_object_free(x);
    if (v) v->name = name;
    return v;
}

bool wb__layer_put_parameter(wb_layer *l, int i, const char *name, bool has, wb_initializer init,
                             wb_dtype dtype, int ndim, const int64_t *dims)
{
    if (!l) return false;
    return wb__layer_put(l, i, name,
                         !has ? WB_NONE
                              : wb__parameter(l->type->name, name, init, dtype, ndim, dims));
}

wb_tensor *wb__statistic(const char *what, const char *name, wb_initializer init, wb_dtype dtype,
                         int64_t n)
{
    wb_tensor *v = wb__parameter(what, name, init, dtype, 1, &n);
    if (v) v->flags |= WB__FROZEN;
    return v;
}

/* Calls the function of the layer's type. */
static int layer_call_type(wb_layer *layer, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    if (layer->type->call_many) return layer->type->call_many(layer, n, inputs, outputs);
    outputs[0] = layer->type->call(layer, n, inputs);
    return outputs[0] ? 1 : -1;
}

/* Calls a layer of wb_checkpoint_layer, so that its gradient computes it again. */
static int call_recomputed(wb_layer *layer, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    const wb__rng_state before = wb__rng_get_state();
    const int n_out = layer_call_type(layer, n, inputs, outputs);
    if (n_out > 1)
        wb__fail(WB_ERROR_UNSUPPORTED, "%s: gives %d tensors; a layer of wb_checkpoint_layer gives "
                 "one", layer->type->name, n_out);
    if (n_out != 1) return -1;
    outputs[0] = wb__recomputed(layer, n, inputs, outputs[0], before);
    return outputs[0] ? 1 : -1;
}

int wb__call_layer(wb_layer *layer, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    if (!wb__expect("call", layer, &wb__layer_class)) return -1;
    const wb__layer_type *type = layer->type;
    if (n < !type->without_inputs || (n && !inputs))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: no inputs", type->name), -1;
    for (int i = 0; i < n; i++)
        if (!wb__operand(type->name, inputs[i])) return -1;
    wb__branch_used(&layer->node);
    const unsigned failures = wb__failures();
    const wb__frame f = wb__frame_begin();
    const bool again = wb__setting_read(layer, &layer->recomputed) &&
                       wb__this_thread()->training > 0;
    wb__observer *observer = wb__layer_observer;
    const bool observed = wb__unlikely(observer != NULL) && wb__has_row(layer);
    if (observed) wb__layer_observer = NULL;
    const int n_out = (again ? call_recomputed : layer_call_type)(layer, n, inputs, outputs);
    wb__frame_end_many(f, WB__MAX(n_out, 0), (void *const *)outputs);
    if (observed) {
        wb__layer_observer = observer;
        if (n_out > 0) observer->called(observer, layer, n, inputs, n_out, outputs);
    }
    if (wb__likely(n_out > 0)) return n_out;
    if (!wb_error_code())
        wb__fail(WB_ERROR_ARGUMENT, "%s: gave NULL or a negative number for %d input%s, and "
                 "nothing failed; wb_fail sets the reason", type->name, n, n == 1 ? "" : "s");
    if (failures != wb__failures()) wb__own_failed(layer);
    return -1;
}

wb_tensor *wb_call_array(wb_layer *layer, int n, wb_tensor *const *inputs)
{
    WB__EDGE;
    wb_tensor *outputs[WB__OUTPUTS];
    const int n_out = wb__call_layer(layer, n, inputs, outputs);
    if (wb__likely(n_out == 1)) return outputs[0];
    if (n_out < 0) return NULL;
    return wb__fail_null(WB_ERROR_ARGUMENT, "%s: gives %d tensors: wb_call_outputs returns them "
                         "all", layer->type->name, n_out);
}

int wb_call_outputs(wb_layer *layer, int n, wb_tensor *const *inputs, int n_outputs,
                    wb_tensor **outputs)
{
    WB__EDGE;
    wb_tensor *all[WB__OUTPUTS];
    for (int i = 0; outputs && i < n_outputs; i++) outputs[i] = NULL;
    if (!wb__expect("call_outputs", layer, &wb__layer_class))
        return wb__error_or(WB_ERROR_ARGUMENT);
    const int n_all = wb__call_layer(layer, n, inputs, all);
    if (n_all < 0) return wb__error_or(WB_ERROR_ARGUMENT);
    if (n_all != n_outputs || !outputs)
        return wb__fail(WB_ERROR_ARGUMENT, "call_outputs: a %s gives %d tensor%s here, not %d",
                        layer->type->name, n_all, n_all == 1 ? "" : "s", outputs ? n_outputs : 0);
    memcpy(outputs, all, (size_t)n_all * sizeof *all);
    return 0;
}

wb_tensor *(wb_call)(wb_layer *layer, wb_tensor *x)
{
    WB__EDGE;
    return wb_call_array(layer, 1, &x);
}

bool wb__one_input(const wb_layer *l, int n)
{
    if (n == 1) return true;
    wb__fail(WB_ERROR_ARGUMENT, "%s: takes one input, got %d", l->type->name, n);
    return false;
}

static void layer_warn_dtype(const wb_layer *l, const wb_tensor *x, const wb_tensor *parameter)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&warned)) return;
    wb__text t = {0};
    wb__print_layer(l, &t);
    char *layer = wb__text_take(&t);
    wb__log(WB_LOG_WARN,
            "Layer with %s parameters got %s input.\n"
            "The input will be converted, but any earlier layers may be very slow.\nlayer = "
            "%s\nsummary(x) = %s",
            wb_dtype_name((wb_dtype)parameter->dtype), wb_dtype_name((wb_dtype)x->dtype),
            layer ? layer : l->type->name, wb_describe(x));
    wb__free(layer);
}

/* Logs a warning if x has the dtype u8: such inputs are usually images with values from 0 to 255,
 * and initial weights are meant for values near 1. */
static void layer_warn_bytes(const wb_layer *l, const wb_tensor *x, const wb_tensor *parameter)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&warned)) return;
    wb__log(WB_LOG_WARN,
            "%s: a layer with %s parameters got %s, whose bytes are converted as they are, from 0 "
            "to 255.\nThe values of images are scaled before: wb_div(wb_astype(x, WB_F32), 255).\n"
            "A program that means the bytes themselves says so: wb_astype(x, WB_F32).",
            l->type->name, wb_dtype_name((wb_dtype)parameter->dtype), wb_describe(x));
}

wb_tensor *wb__layer_input(const wb_layer *l, wb_tensor *x, const wb_tensor *parameter)
{
    if (wb__likely(x->dtype == parameter->dtype)) return x;
    if (x->dtype == WB_U8 && wb__dtype_float((wb_dtype)parameter->dtype))
        layer_warn_bytes(l, x, parameter);
    if (wb__dtype_float((wb_dtype)x->dtype) && parameter->op == WB__OP_variable &&
        !(parameter->flags & WB__MIXED))
        layer_warn_dtype(l, x, parameter);
    return wb_astype(x, (wb_dtype)parameter->dtype);
}

/* ---- modes ----------------------------------------------------------------------------------- */

bool wb__train_mode(wb_layer *l, bool *automatic)
{
    const bool training = wb__this_thread()->training > 0;
    const uint32_t mode = wb__setting_read(l, &l->mode);
    *automatic = mode == WB__MODE_AUTO && !training;
    return mode == WB__MODE_AUTO ? training : mode == WB__MODE_TRAIN;
}

static void layer_set_mode(void *object, uint32_t mode)
{
    if (!wb__is_branch(object)) return;
    if (wb__is(object, &wb__layer_class))
        wb__setting_set(object, &((wb_layer *)object)->mode, mode);
    wb__branch *node = object;
    wb__branch_used(node);
    for (int i = 0; i < node->n; i++) layer_set_mode(node->children[i].object, mode);
}

/* Sets the mode of the layer and of all layers inside, and returns the layer. */
static wb_layer *layer_in_mode(const char *what, wb_layer *layer, uint32_t mode)
{
    if (wb__is_model(what, layer)) layer_set_mode(layer, mode);
    return layer;
}

wb_layer *wb_trainmode(wb_layer *layer) { return layer_in_mode("trainmode", layer,
                                                               WB__MODE_TRAIN); }
wb_layer *wb_testmode(wb_layer *layer) { return layer_in_mode("testmode", layer, WB__MODE_TEST); }
wb_layer *wb_automode(wb_layer *layer) { return layer_in_mode("automode", layer, WB__MODE_AUTO); }

bool wb__path_matches(const char *patterns, const char *path)
{
    while (*patterns) {
        const size_t n = strcspn(patterns, " ");
        if (n && wb__path_is_below(path, patterns, n)) return true;
        patterns += n + (patterns[n] == ' ');
    }
    return false;
}

typedef struct { const char *pattern; size_t n; bool found; } layer_pattern;

static int layer_find_pattern(wb_layer *l, const char *path, void *ctx)
{
    (void)l;
    layer_pattern *p = ctx;
    p->found = p->found || wb__path_is_below(path, p->pattern, p->n);
    return 0;
}

bool wb__each_matches(const char *option, const char *patterns, void *model)
{
    while (patterns && *(patterns += strspn(patterns, " "))) {
        layer_pattern p = {patterns, strcspn(patterns, " "), false};
        if (wb_each_layer(model, layer_find_pattern, &p)) return false;
        if (!p.found)
            return !wb__fail(WB_ERROR_ARGUMENT, "%s: no layer has a path that matches \"%.*s\"",
                             option, (int)p.n, p.pattern);
        patterns += p.n;
    }
    return true;
}

wb_layer *wb_layer_at(void *object, const char *path)
{
    if (!wb__is_model("layer_at", object)) return NULL;
    if (!path) return wb__fail_null(WB_ERROR_ARGUMENT, "layer_at: no path");
    wb__child *child = *path ? wb__child_at("layer_at", object, path, NULL) : NULL;
    void *found = *path ? (child ? child->object : NULL) : object;
    if (!found) return NULL;
    if (wb__is(found, &wb__layer_class)) return wb__scope_give(wb__ref(found));
    return wb__fail_null(WB_ERROR_ARGUMENT, "layer_at: \"%s\" is a %s, not a layer", path,
                         wb__kind(found));
}
