/* Finds Weber's activations and connections for functions of Julia. */
#include "io/flux/read.h"

#include <string.h>

wb_function wb__flux_function(const wb__jl *v)
{
    if (v->kind != WB__JL_FUNCTION) return NULL;
    const wb__flux_name *row = wb__flux_name_julia(wb__flux_functions, wb__jl_last(v));
    return wb__function_by_name(row ? row->weber : wb__jl_last(v));
}

wb__jl wb__flux_unbroadcast(wb__flux_reader *r, const wb__jl *v)
{
    if (v->kind != WB__JL_STRUCT) return *v;
    if (!strcmp(wb__jl_last(v), "BroadcastFunction")) return wb__jl_item(&r->f, v, 0);
    if (strcmp(wb__jl_last(v), "Fix1")) return *v;
    wb__jl f = wb__jl_item(&r->f, v, 0);
    if (f.kind != WB__JL_FUNCTION || strcmp(wb__jl_last(&f), "broadcast")) return *v;
    return wb__jl_item(&r->f, v, 1);
}

wb__connection wb__flux_connection(wb__flux_reader *r, const wb__jl *v)
{
    wb__jl f = wb__flux_unbroadcast(r, v);
    if (f.kind != WB__JL_FUNCTION) return NULL;
    const wb__flux_name *row = wb__flux_name_julia(wb__flux_connections, wb__jl_last(&f));
    if (row && row->elements && v->kind != WB__JL_STRUCT) return NULL;
    return wb__connection_by_name(row ? row->weber : wb__jl_last(&f));
}

bool wb__flux_activation(wb__flux_reader *r, const wb__jl *v, const char *field, wb_function *out)
{
    *out = NULL;
    wb__jl f = wb__jl_field(&r->f, v, field);
    if (f.kind == WB__JL_ABSENT || f.kind == WB__JL_NOTHING) return true;
    f = wb__flux_unbroadcast(r, &f);
    *out = wb__flux_function(&f);
    if (*out == wb_identity) *out = NULL;
    else if (!*out) {
        size_t back;
        if (!wb__flux_enter(r, "activation", &back)) return false;
        wb_layer *l = wb__flux_unknown(r, &f);
        wb__flux_leave(r, back);
        if (!l) return false;
        if (l->type != wb__layer_type_named("Function"))
            return wb__flux_reason(r,
                                   "its activation was given as a %s; give wb_layer_from_function",
                                   l->type->name), false;
        memcpy(out, (const char *)l->options + l->type->options[0].offset, sizeof *out);
    }
    return true;
}
