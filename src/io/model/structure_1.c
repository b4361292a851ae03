/* Reads structures of models of version 1, which Weber 0.4 wrote. */
#include "io/model/structure.h"

#include <string.h>

/* Changes an option of version 1 to that of version 2.  In version 1 the default eps, momentum and
 * padding_index were 0, and an eps of 0 was -1e-300; .bias = false was .no_bias = true.  In version
 * 2 a default is null. */
static void update_option(wb__json *key, wb__json *value)
{
    const char *name = key->is.text;
    const bool some = !strcmp(name, "eps") || !strcmp(name, "momentum") ||
                      !strcmp(name, "padding_index");
    const double number = wb__json_is(value, WB__JSON_REAL) ? value->is.real
                                                            : (double)wb__json_integer(value);
    if (value->kind == WB__JSON_REAL && number == -1e-300) value->is.real = 0;
    else if (some && number == 0) value->kind = WB__JSON_NULL;
    if (!wb__begins(name, "no_")) return;
    key->is.text += strlen("no_");
    if (value->kind == WB__JSON_TRUE) value->kind = WB__JSON_FALSE;
    else if (value->kind == WB__JSON_FALSE) value->kind = WB__JSON_TRUE;
}

void wb__structure_update(wb__json *root)
{
    const wb__layer_type *type = NULL;
    for (wb__json *v = root, *end = root + root->span; v < end; v++) {
        if (v->kind != WB__JSON_KEY) continue;
        const char *text = wb__json_text(v + 1);
        if (!strcmp(v->is.text, "layer")) type = text ? wb__layer_type_named(text) : NULL;
        else if (!strcmp(v->is.text, "tree")) type = NULL;
        else if (!strcmp(v->is.text, "options") && type && type->defaults)
            for (wb__json *o = v + 2, *last = v + 1 + v[1].span; o < last; o += 1 + o[1].span)
                update_option(o, o + 1);
    }
}
