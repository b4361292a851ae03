/* The variables of a BSON file: which of them a key means, or is preferred without a key. */
#include "io/flux/value.h"

#include <stdio.h>
#include <string.h>

/* Returns the part of v at a path: names or indices of fields, separated by dots. */
static wb__jl flux_variables_part_at(wb__bson_file *f, wb__jl v, const char *path)
{
    while (*path && v.kind != WB__JL_ABSENT) {
        char name[WB__JL_NAME];
        const size_t n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)WB__MIN(n, sizeof name - 1), path);
        v = wb__jl_field(f, &v, name);
        path += n + (path[n] == '.');
    }
    return v;
}

/* Returns the layer in a dictionary with a layer "model" or with only one layer, and appends the
 * name of its entry to `name`.  Otherwise returns v. */
static wb__jl flux_variables_layer_in(wb__bson_file *f, wb__jl v, char *name, size_t size)
{
    int n = 0;
    wb__jl found = v;
    wb__jl_fields w;
    const size_t end = strlen(name);
    if (v.kind != WB__JL_DICT && !wb__jl_is_dict_struct(&v)) return v;
    for (wb__jl_fields_of(f, &v, &w); wb__jl_fields_next(f, &w);) {
        const bool model = !strcmp(w.name, "model");
        if (!wb__jl_layer(&w.value) || (n++ && !model)) continue;
        found = w.value;
        snprintf(name + end, size - end, ".%.*s", (int)WB__MIN(size, (size_t)WB__JL_NAME), w.name);
        if (model) return found;
    }
    if (n == 1) return found;
    name[end] = 0;
    return v;
}

/* The variables of a file, for messages: their names, their number, and how many of them hold
 * arrays or layers. */
typedef struct { char names[400]; size_t used; int n, n_holding; } variables;

bool wb__jl_next_variable(wb__bson_file *f, wb__bson_walk *w, wb__jl *v, char *name, size_t size)
{
    do
        if (!wb__bson_next(f, w)) return false;
    while (!strcmp(w->key, "_backrefs"));
    wb__jl_key_text(w, name, size);
    *v = wb__jl_of(f, w->value);
    return true;
}

/* Returns the variable as wb__jl_variable does; its kind is WB__JL_ABSENT if there is none. */
static wb__jl flux_variables_choose(wb__bson_file *f, const char *key, char *name, size_t size,
                                    variables *all)
{
    int n_layers = 0;
    wb__jl v, only = {0}, layer = {0}, part = {0};
    char layer_name[WB__JL_NAME] = "", text[WB__JL_NAME];
    *all = (variables){.n = 0};
    for (wb__bson_walk w = wb__bson_walk_of(f->root);
         wb__jl_next_variable(f, &w, &v, text, sizeof text);) {
        if (!key && !strcmp(w.key, "weber")) continue;
        if (!strcmp(w.key, key ? key : "model")) {
            snprintf(name, size, "%s", text);
            return key ? v : flux_variables_layer_in(f, v, name, size);
        }
        const size_t length = strlen(w.key), room = sizeof all->names - all->used;
        if (key && !strncmp(key, w.key, length) && key[length] == '.')
            part = flux_variables_part_at(f, v, key + length + 1);
        if (all->used < sizeof all->names)
            all->used += (size_t)snprintf(all->names + all->used, room, all->n ? ", %s" : "%s",
                                          text);
        all->n++;
        if (wb__jl_layer(&v) && !n_layers++) {
            layer = v;
            snprintf(layer_name, sizeof layer_name, "%s", text);
        }
        if (!wb__jl_may_hold_arrays(&v) && v.kind != WB__JL_FUNCTION) continue;
        if (!all->n_holding++) {
            only = v;
            snprintf(name, size, "%s", text);
        }
    }
    if (key && part.kind) return snprintf(name, size, "%s", key), part;
    if (!key && all->n_holding == 1) return flux_variables_layer_in(f, only, name, size);
    if (!key && n_layers == 1) return snprintf(name, size, "%s", layer_name), layer;
    return (wb__jl){0};
}

bool wb__jl_is_unclear(wb__bson_file *f)
{
    char name[WB__JL_NAME];
    variables all;
    return !flux_variables_choose(f, NULL, name, sizeof name, &all).kind && all.n_holding > 1;
}

wb__jl wb__jl_variable(wb__bson_file *f, const char *key, char *name, size_t size)
{
    variables all;
    const wb__jl v = flux_variables_choose(f, key, name, size, &all);
    if (v.kind || f->status) return v;
    const char *more = all.used >= sizeof all.names ? "..." : "";
    if (key)
        wb__bson_fail(f, NULL, "no variable is named \"%.100s\"; there are: %s%s", key,
                      all.n ? all.names : "none", more);
    else if (!all.n_holding)
        wb__bson_fail(f, NULL, "there is no array and no layer in it: it has %s%s; `weber show` "
                      "lists the variables of a file", all.n ? all.names : "no variable", more);
    else
        wb__bson_fail(f, NULL, "no variable is named \"model\": say by .key which is meant: %s%s",
                      all.names, more);
    return (wb__jl){0};
}
