/* Maxout: the elementwise maximum of the results of layers with one input. */
#include "nn/layer.h"

extern const wb__layer_type wb__maxout_type;

static wb_tensor *maxout_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    wb__child *layers;
    wb_tensor *y = NULL;
    const int n_layers = wb__container_layers(l, &layers);
    if (!wb__one_input(l, n)) return NULL;
    for (int i = 0; i < n_layers; i++) {
        const unsigned failures = wb__failures();
        wb_tensor *result = wb_call_array(layers[i].object, 1, inputs);
        if (!result && failures != wb__failures()) wb__failed_in("layers", layers[i].name);
        if (!result) return NULL;
        y = i ? wb_maximum(y, result) : result;
        if (!y) return NULL;
    }
    return y;
}

static void maxout_print(const wb_layer *l, wb__text *t)
{
    wb__child *layers;
    const int n = wb__container_layers(l, &layers);
    wb__text_add(t, "Maxout(");
    for (int i = 0; i < n; i++) {
        if (i) wb__text_add(t, ", ");
        wb__print_layer(layers[i].object, t);
    }
    wb__text_add(t, ")");
}

static wb_layer *maxout_assemble(const void *options, int n, const char *const *names,
                                 wb_layer *const *layers)
{
    (void)options;
    wb_tree *list = wb__layer_list("Maxout", n, names, layers);
    wb_layer *l = list ? wb__layer_new(&wb__maxout_type, NULL, 1) : NULL;
    return l && wb__layer_put(l, 0, "layers", list) ? l : NULL;
}

const wb__layer_type wb__maxout_type = {
    .name = "Maxout", .call = maxout_call, .print = maxout_print, .assemble = maxout_assemble};

wb_layer *wb_Maxout_array(int n, wb_layer *const *layers)
{
    WB__EDGE;
    return maxout_assemble(NULL, n, NULL, layers);
}
