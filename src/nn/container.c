/* Containers: Chain, SkipConnection, Parallel, PairwiseFusion. */
#include "nn/layer.h"

#include <stdio.h>
#include <string.h>

extern const wb__layer_type wb__chain_type, wb__parallel_type, wb__fusion_type;

static int container_named_call(wb_layer *l, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    return wb__call_layer(wb__layer_child(l, 0), n, inputs, outputs);
}

static void container_named_print(const wb_layer *l, wb__text *t)
{
    wb__print_layer(wb__layer_child(l, 0), t);
}

static const wb__layer_type container_named_type = {
    .name = "Named", .call_many = container_named_call, .print = container_named_print};

wb_layer *(wb_named)(const char *name, wb_layer *layer)
{
    if (!wb__expect("named", layer, &wb__layer_class)) return NULL;
    if (!name || !*name || strchr(name, '.'))
        return wb__fail_null(WB_ERROR_ARGUMENT, "named: \"%s\" is no name: it must not be empty or "
                             "hold a dot", name ? name : "");
    wb_layer *l = wb__layer_new(&container_named_type, NULL, 1);
    if (!l) return NULL;
    l->node.owns_names = true;
    if (wb__branch_put_copy(&l->node, 0, name, wb__layer_unnamed(layer, NULL))) return l;
    wb_object_free(l);
    return NULL;
}

wb_layer *wb__layer_unnamed(wb_layer *l, const char **name)
{
    if (name) *name = NULL;
    if (l->type != &container_named_type) return l;
    if (name) *name = l->node.children[0].name;
    return wb__layer_child(l, 0);
}

/* Returns a tree of the layers.  A layer from wb_named keeps its name.  Another layer gets
 * names[i], or its index if `names` is NULL. */
wb_tree *wb__layer_list(const char *what, int n, const char *const *names, wb_layer *const *layers)
{
    if (n < 1 || !layers) return wb__fail_null(WB_ERROR_ARGUMENT, "%s: no layers", what);
    wb_tree *list = wb__tree_new(n);
    for (int i = 0; list && i < n; i++) {
        char number[16];
        const char *name = NULL;
        bool ok = layers[i] || !wb__null(what, "a layer");
        if (ok && !wb__is(layers[i], &wb__layer_class))
            ok = !wb__fail(WB_ERROR_ARGUMENT, "%s: element %d is a %s, not a layer", what, i,
                           wb__kind(layers[i]));
        wb_layer *layer = ok ? wb__layer_unnamed(layers[i], &name) : NULL;
        snprintf(number, sizeof number, "%d", i);
        if (!name) name = names ? names[i] : number;
        if (ok && wb__branch_put_copy(&list->node, i, name, layer)) continue;
        wb_object_free(list);
        return NULL;
    }
    char repeated[96];
    snprintf(repeated, sizeof repeated, "%s: two layers are", what);
    if (!list || wb__branch_check_names(&list->node, repeated)) return list;
    wb_object_free(list);
    return NULL;
}

int wb__container_layers(const wb_layer *l, wb__child **layers)
{
    *layers = NULL;
    if (!l->type->assemble) return 0;
    wb__branch *inner = wb__layer_child(l, 0);
    bool list = wb__is(inner, &wb__tree_class);
    *layers = list ? inner->children : l->node.children;
    return list ? inner->n : 1;
}

/* Calls one inner layer, like wb__call_layer.  The message of an error gets the path of the inner
 * layer as a prefix.  `list`: the layer is in a list. */
static int call_inner_many(const wb__child *layer, bool list, int n, wb_tensor *const *inputs,
                           wb_tensor **outputs)
{
    const unsigned failures = wb__failures();
    const int n_out = wb__call_layer(layer->object, n, inputs, outputs);
    if (wb__likely(n_out > 0)) return n_out;
    if (failures != wb__failures()) wb__failed_in("layers", list ? layer->name : "");
    return n_out;
}

/* Calls one inner layer that has one output, and returns this output. */
static wb_tensor *container_call_inner(const wb__child *layer, bool list, int n,
                                       wb_tensor *const *inputs)
{
    wb_tensor *outputs[WB__OUTPUTS];
    const int n_out = call_inner_many(layer, list, n, inputs, outputs);
    if (wb__likely(n_out == 1)) return outputs[0];
    if (n_out < 0) return NULL;
    wb__fail(WB_ERROR_ARGUMENT, "%s: gives %d tensors; a connection takes one of each layer",
             ((wb_layer *)layer->object)->type->name, n_out);
    return wb__failed_in("layers", list ? layer->name : ""), NULL;
}

/* ---- Chain ----------------------------------------------------------------------------------- */

/* Calls the layers in order.  The outputs of a layer are the inputs of the next one. */
static int chain_call(wb_layer *l, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    wb__child *layers;
    const int n_layers = wb__container_layers(l, &layers);
    wb_tensor *x[WB__OUTPUTS];
    n = call_inner_many(&layers[0], true, n, inputs, outputs);
    for (int i = 1; n > 0 && i < n_layers; i++) {
        memcpy(x, outputs, (size_t)n * sizeof *x);
        n = call_inner_many(&layers[i], true, n, x, outputs);
    }
    return n;
}

/* Prints the inner layers with their names; `comma`: each after a comma. */
static void print_layers(const wb_layer *l, wb__text *t, bool comma)
{
    wb__child *layers;
    int n = wb__container_layers(l, &layers);
    for (int i = 0; i < n; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        if (comma || i) wb__text_add(t, ", ");
        if (wb__is(wb__layer_child(l, 0), &wb__tree_class) && strcmp(number, layers[i].name))
            wb__text_add(t, "%s = ", layers[i].name);
        wb__print_layer(layers[i].object, t);
    }
}

static void chain_print(const wb_layer *l, wb__text *t)
{
    wb__text_add(t, "Chain(");
    print_layers(l, t, false);
    wb__text_add(t, ")");
}

/* Returns a new container whose layers are children of a tree named "layers".  NULL: error set. */
static wb_layer *container_of_list(const wb__layer_type *type, const void *options, int n,
                                   const char *const *names, wb_layer *const *layers)
{
    wb_tree *list = wb__layer_list(type->name, n, names, layers);
    wb_layer *l = list ? wb__layer_new(type, options, 1) : NULL;
    return l && wb__layer_put(l, 0, "layers", list) ? l : NULL;
}

static wb_layer *chain_assemble(const void *options, int n, const char *const *names,
                                wb_layer *const *layers)
{
    return container_of_list(&wb__chain_type, options, n, names, layers);
}

static const wb__torch_child container_torch_rows[] = {{"layers", "", NULL, 0}};
static const wb__torch_kind container_torch = {WB__TORCH_CHILDREN(container_torch_rows),
                                               .numbered = true};

const wb__layer_type wb__chain_type = {.name = "Chain", .call_many = chain_call,
                                       .print = chain_print, .assemble = chain_assemble,
                                       .torch = &container_torch};

wb_layer *wb_Chain_array(int n, wb_layer *const *layers)
{
    WB__EDGE;
    return chain_assemble(NULL, n, NULL, layers);
}

/* ---- SkipConnection -------------------------------------------------------------------------- */

typedef struct { size_t size; wb__connection connection; } container_join_options;
#define JOIN_OPTIONS(X) X(container_join_options, connection, CONNECTION, 1)
static const wb__option container_join_table[] = {JOIN_OPTIONS(WB__OPTION_ROW)};

const char *wb__layer_connection(const wb_layer *l)
{
    wb__connection f;
    const void *at = wb__layer_option(l->type, l->options, "connection");
    if (!at) return NULL;
    memcpy(&f, at, sizeof f);
    const char *name = wb__connection_name(f);
    return name ? name : "function";
}

static wb_tensor *skip_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    if (!wb__one_input(l, n)) return NULL;
    wb_tensor *y = container_call_inner(&l->node.children[0], false, 1, inputs);
    return y ? wb__connect(((const container_join_options *)l->options)->connection, y, inputs[0])
             : NULL;
}

static void skip_print(const wb_layer *l, wb__text *t)
{
    wb__text_add(t, "SkipConnection(");
    wb__print_layer(wb__layer_child(l, 0), t);
    wb__text_add(t, ", %s)", wb__layer_connection(l));
}

static wb_layer *skip_assemble(const void *options, int n, const char *const *names,
                               wb_layer *const *layers)
{
    (void)names;
    if (n != 1) return wb__fail_null(WB_ERROR_ARGUMENT, "SkipConnection: has one layer, got %d", n);
    return wb_SkipConnection(layers[0], ((const container_join_options *)options)->connection);
}

const wb__layer_type wb__skip_type = {
    .name = "SkipConnection", WB__LAYER_OPTIONS(container_join_options, container_join_table),
    .call = skip_call, .print = skip_print, .assemble = skip_assemble};

wb_layer *(wb_SkipConnection)(wb_layer *layer, wb__connection connection)
{
    WB__EDGE;
    if (!wb__expect("SkipConnection", layer, &wb__layer_class)) return NULL;
    if (!connection) return wb__fail_null(WB_ERROR_ARGUMENT, "SkipConnection: no connection");
    wb_layer *l =
        wb__layer_new(&wb__skip_type, &(container_join_options){sizeof(container_join_options),
                                                                connection}, 1);
    return l && wb__layer_put(l, 0, "layers", wb__layer_unnamed(layer, NULL)) ? l : NULL;
}

/* ---- Parallel -------------------------------------------------------------------------------- */

wb_tensor *wb_separate(wb_tensor *x, wb_tensor *y)
{
    (void)x, (void)y;
    return wb__fail_null(WB_ERROR_ARGUMENT, "separate: joins nothing: it is the connection of a "
                         "Parallel that gives several tensors");
}

static bool outputs_fit(const wb_layer *l, int n)
{
    if (n <= WB__OUTPUTS) return true;
    wb__fail(WB_ERROR_ARGUMENT, "%s: gives %d tensors; the limit is %d", l->type->name, n,
             WB__OUTPUTS);
    return false;
}

static int parallel_call(wb_layer *l, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    wb__child *layers;
    const int n_layers = wb__container_layers(l, &layers), calls = WB__MAX(n, n_layers);
    wb__connection connection = ((const container_join_options *)l->options)->connection;
    const bool separate = connection == wb_separate;
    if (n != 1 && n_layers != 1 && n != n_layers)
        return wb__fail(WB_ERROR_ARGUMENT, "Parallel: has %d layers, got %d inputs", n_layers, n),
               -1;
    if (separate && !outputs_fit(l, calls)) return -1;
    for (int i = 0; i < calls; i++) {
        const wb__child *layer = &layers[n_layers == 1 ? 0 : i];
        wb_tensor *result = container_call_inner(layer, true, 1, &inputs[n == 1 ? 0 : i]);
        if (!result) return -1;
        if (separate) outputs[i] = result;
        else outputs[0] = i ? wb__connect(connection, outputs[0], result) : result;
        if (!outputs[separate ? i : 0]) return -1;
    }
    return separate ? calls : 1;
}

static void container_join_print(const wb_layer *l, wb__text *t)
{
    wb__text_add(t, "%s(%s", l->type->name, wb__layer_connection(l));
    print_layers(l, t, true);
    wb__text_add(t, ")");
}

static wb_layer *parallel_assemble(const void *options, int n, const char *const *names,
                                   wb_layer *const *layers)
{
    if (!((const container_join_options *)options)->connection)
        return wb__fail_null(WB_ERROR_ARGUMENT, "Parallel: no connection");
    return container_of_list(&wb__parallel_type, options, n, names, layers);
}

const wb__layer_type wb__parallel_type = {
    .name = "Parallel", WB__LAYER_OPTIONS(container_join_options, container_join_table),
    .call_many = parallel_call, .print = container_join_print, .assemble = parallel_assemble};

wb_layer *wb_Parallel_array(wb__connection connection, int n, wb_layer *const *layers)
{
    WB__EDGE;
    return parallel_assemble(&(container_join_options){sizeof(container_join_options), connection},
                             n, NULL, layers);
}

/* ---- PairwiseFusion -------------------------------------------------------------------------- */

static int fusion_call(wb_layer *l, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    wb__child *layers;
    const int n_layers = wb__container_layers(l, &layers);
    wb__connection connection = ((const container_join_options *)l->options)->connection;
    if (!outputs_fit(l, n_layers)) return -1;
    if (n != 1 && n != n_layers)
        return wb__fail(WB_ERROR_ARGUMENT, "PairwiseFusion: has %d layers, got %d inputs", n_layers,
                        n), -1;
    for (int i = 0; i < n_layers; i++) {
        wb_tensor *x = inputs[n == 1 ? 0 : i];
        if (i) x = wb__connect(connection, outputs[i - 1], x);
        outputs[i] = x ? container_call_inner(&layers[i], true, 1, &x) : NULL;
        if (!outputs[i]) return -1;
    }
    return n_layers;
}

static wb_layer *fusion_assemble(const void *options, int n, const char *const *names,
                                 wb_layer *const *layers)
{
    if (!((const container_join_options *)options)->connection)
        return wb__fail_null(WB_ERROR_ARGUMENT, "PairwiseFusion: no connection");
    return container_of_list(&wb__fusion_type, options, n, names, layers);
}

const wb__layer_type wb__fusion_type = {
    .name = "PairwiseFusion", WB__LAYER_OPTIONS(container_join_options, container_join_table),
    .call_many = fusion_call, .print = container_join_print, .assemble = fusion_assemble};

wb_layer *wb_PairwiseFusion_array(wb__connection connection, int n, wb_layer *const *layers)
{
    WB__EDGE;
    return fusion_assemble(&(container_join_options){sizeof(container_join_options), connection}, n,
                           NULL, layers);
}
