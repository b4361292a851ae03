/* wb_show of a model: a table with a line for each layer with its parameters, and a total.
 *
 *   Chain(
 *     Dense(1 => 256, tanh),                # 512 parameters
 *     Dense(256 => 1),                      # 257 parameters
 *   )                   # Total: 4 arrays, 769 parameters, 3.004 KiB. */
#include "nn/layer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COLUMN_ALONE = 20, COLUMN_NESTED = 39 };

void wb__print_layer(const wb_layer *l, wb__text *t)
{
    if (l->type->print) l->type->print(l, t);
    else wb__text_add(t, "%s()", l->type->name);
}

typedef struct {
    int arrays, other_arrays;           /* trained tensors, and others such as running statistics */
    int64_t elements, others, bytes;    /* elements of both kinds; bytes of all tensors */
    bool all_zero, some_nan, some_inf;  /* whether the values are so, if they are looked at */
    bool failed;
} nn_show_sums;

typedef struct { nn_show_sums sums; bool values; wb_dtype dtype; } nn_show_count;

static int nn_show_scan_values(const void *data, int64_t size, void *ctx)
{
    enum { BLOCK = 512 };
    double block[BLOCK];
    nn_show_count *c = ctx;
    nn_show_sums *s = &c->sums;
    const size_t each = wb__dtype_size(c->dtype);
    for (int64_t i = 0; i < size; i += BLOCK) {
        int64_t n = WB__MIN(size - i, BLOCK);
        wb__convert(block, WB_F64, (const char *)data + (size_t)i * each, c->dtype, n);
        for (int64_t j = 0; j < n; j++) {
            if (block[j] != 0) s->all_zero = false;
            if (isnan(block[j])) s->some_nan = true;
            if (isinf(block[j])) s->some_inf = true;
        }
    }
    return 0;
}

static int nn_show_add_leaf(const wb__leaf *leaf, void *ctx)
{
    nn_show_count *c = ctx;
    const wb_tensor *x = leaf->x;
    c->sums.bytes += x->size * (int64_t)wb__dtype_size((wb_dtype)x->dtype);
    if (!leaf->trainable) {
        c->sums.other_arrays++;
        c->sums.others += x->size;
        return 0;
    }
    c->sums.arrays++;
    c->sums.elements += x->size;
    if (!c->values || !x->size) return 0;
    c->dtype = (wb_dtype)x->dtype;
    if (wb__read_in_parts(leaf->x, nn_show_scan_values, c)) c->sums.failed = true;
    return 0;
}

/* Returns the totals of the tensors of a layer; `values`: also of what their values are. */
static nn_show_sums nn_show_sum_up(const wb_layer *l, bool values)
{
    nn_show_count c = {.sums = {.all_zero = true}, .values = values};
    if (wb__walk("show", (void *)(uintptr_t)l, NULL, WB__DISTINCT, nn_show_add_leaf, &c))
        c.sums.failed = true;
    return c.sums;
}

static void show_one_line(wb__text *t, const wb_layer *l, int indent, const char *name)
{
    wb__text line = {0};
    if (name) wb__text_add(&line, "%s = ", name);
    wb__print_layer(l, &line);
    int length = line.text ? wb__characters(line.text) : 0;
    char *text = wb__text_take(&line);
    if (!text) {
        t->failed = true;
        return;
    }
    wb__text_spaces(t, indent);
    wb__text_add(t, indent ? "%s," : "%s", text);
    wb__free(text);
    nn_show_sums s = nn_show_sum_up(l, true);
    if (!s.elements && !s.others) return;
    wb__text_spaces(t, WB__MAX(2, (indent ? COLUMN_NESTED : COLUMN_ALONE) - indent - length));
    wb__text_add(t, "# ");
    wb__text_count(t, s.elements);
    wb__text_add(t, " parameters");
    if (s.others) {
        wb__text_add(t, ", plus ");
        wb__text_count(t, s.others);
        if (!indent) wb__text_add(t, " non-trainable");
    }
    if (!s.elements || s.failed) return;
    if (s.all_zero) wb__text_add(t, "  (all zero)");
    else if (s.some_nan) wb__text_add(t, "  (some NaN)");
    else if (s.some_inf) wb__text_add(t, "  (some Inf)");
}

static void show_total(wb__text *t, const wb_layer *l)
{
    nn_show_sums s = nn_show_sum_up(l, false);
    if (s.arrays <= 2) return;
    wb__text_spaces(t, s.other_arrays ? 9 : 19);
    wb__text_add(t, "# Total: %d %s, ", s.arrays, s.other_arrays ? "trainable arrays" : "arrays");
    wb__text_count(t, s.elements);
    wb__text_add(t, " parameters,");
    if (s.other_arrays) {
        wb__text_add(t, "\n          # plus %d non-trainable, ", s.other_arrays);
        wb__text_count(t, s.others);
        wb__text_add(t, " parameters, summarysize");
    }
    wb__text_add(t, " ");
    wb__text_bytes(t, s.bytes);
    wb__text_add(t, ".");
}

static void nn_show(wb__text *t, const wb_layer *l, int indent, const char *name);

static bool has_layers(const wb_layer *l)
{
    for (int i = 0; i < l->node.n; i++)
        if (wb__is(wb__layer_child(l, i), &wb__layer_class)) return true;
    return false;
}

/* Prints a struct of the program that has layers: a line for each tensor, tree and number, and the
 * lines of each layer. */
static void show_struct(wb__text *t, const wb_layer *l, int indent)
{
    for (int i = 0; i < l->node.n; i++) {
        const wb__child *c = &l->node.children[i];
        if (wb__is(c->object, &wb__layer_class)) {
            nn_show(t, c->object, indent, c->name);
        } else {
            wb__text_spaces(t, indent);
            const bool tensor = wb__is(c->object, &wb__tensor_class);
            wb__text_add(t, "%s = %s,", c->name, tensor ? wb_describe(c->object) : "tree");
        }
        wb__text_add(t, "\n");
    }
    for (int i = 0; i < l->type->n_options; i++) {
        wb__text_spaces(t, indent);
        wb__print_option(l, &l->type->options[i], t);
        wb__text_add(t, ",\n");
    }
}

/* Adds the lines of a layer and of its inner layers to the text. */
static void nn_show(wb__text *t, const wb_layer *l, int indent, const char *name)
{
    l = wb__layer_unnamed((wb_layer *)(uintptr_t)l, NULL);
    const bool is_struct = wb__own_struct(l->type) && has_layers(l);
    if (l->type->one_row || (!l->type->assemble && !is_struct)) {
        show_one_line(t, l, indent, name);
        return;
    }
    wb__child *layers;
    int n = wb__container_layers(l, &layers);
    bool list = n && wb__is(wb__layer_child(l, 0), &wb__tree_class);
    const char *connection = is_struct ? NULL : wb__layer_connection(l);
    wb__text_spaces(t, indent);
    wb__text_add(t, name ? "%s = %s(\n" : "%.0s%s(\n", name ? name : "", l->type->name);
    if (is_struct) show_struct(t, l, indent + 2);
    if (connection && list) {
        wb__text_spaces(t, indent + 2);
        wb__text_add(t, "%s,\n", connection);
    }
    for (int i = 0; i < n; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        nn_show(t, layers[i].object, indent + 2,
                list && strcmp(number, layers[i].name) ? layers[i].name : NULL);
        wb__text_add(t, "\n");
    }
    if (connection && !list) {
        wb__text_spaces(t, indent + 2);
        wb__text_add(t, "%s,\n", connection);
    }
    wb__text_spaces(t, indent);
    wb__text_add(t, indent ? ")," : ")");
    if (!indent) show_total(t, l);
}

char *wb__format_layer(void *layer)
{
    wb__text t = {0};
    nn_show(&t, layer, 0, NULL);
    return wb__text_take(&t);
}
