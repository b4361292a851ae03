/* All arrays of a BSON file by name.  Names are Weber's where the fields are those of a layer of
 * Flux's, whether they stand in its structs or in a NamedTuple or dictionary of the same names
 * (Flux.state): such things are told by the names that stand together. */
#include "io/flux.h"
#include "io/flux_read.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    wb__flux_reader *r;
    wb__table *t;
    bool zeros;                 /* initial states that are zero count too */
} filling;

/* What kind of layer has such fields. */
typedef struct { bool dense, norm, layernorm, cell, depthwise; wb__flip flip; } traits;

static traits traits_of(wb__bson_file *f, const wb__jl *v)
{
    bool weight = false, sigma = false, stride = false, gamma = false, beta = false, diag = false,
         affine = false, wi = false, wh = false, groups = false;
    const struct { const char *name; bool *has; } marks[] = {
        {"weight", &weight}, {"σ", &sigma}, {"stride", &stride}, {"γ", &gamma}, {"β", &beta},
        {"diag", &diag}, {"affine", &affine}, {"Wi", &wi}, {"Wh", &wh}, {"groups", &groups}};
    if (v->kind != WB__JL_STRUCT && v->kind != WB__JL_DICT) return (traits){0};
    wb__jl_fields w;
    wb__jl_fields_of(f, v, &w);
    while (wb__jl_fields_next(f, &w))
        for (size_t i = 0; i < WB__COUNT(marks); i++)
            if (!strcmp(w.name, marks[i].name)) *marks[i].has = true;
    bool old = wb__jl_flux(v, "LayerNorm");
    bool depthwise = wb__jl_flux(v, "DepthwiseConv");
    bool flips = groups || depthwise || wb__jl_flux(v, "Conv"); /* a CrossCor has no groups */
    return (traits){.dense = weight && sigma && !stride,
                    .norm = gamma && beta,
                    .layernorm = diag && (affine || old),
                    .cell = wi && wh,
                    .depthwise = depthwise,
                    .flip = !weight || !stride ? WB__FLIP_UNKNOWN
                            : flips            ? WB__FLIP_YES
                                               : WB__FLIP_NO};
}

/* A field's name in our models; "": its parts stand in its place. */
static const char *our_name(const traits *of, const char *name, const traits *value)
{
    static const struct { const char *flux, *here; } norms[] = {
        {"γ", "scale"}, {"β", "bias"}, {"μ", "mean"}, {"σ²", "var"}};
    static const struct { const char *flux, *here; } cells[] = {
        {"Wi", "weight_input"}, {"Wh", "weight_hidden"}, {"b", "bias"},
        {"h", "initial_hidden"}, {"c", "initial_cell"}, {"state0", "initial_hidden"}};
    for (size_t i = 0; of->norm && i < WB__COUNT(norms); i++)
        if (!strcmp(name, norms[i].flux)) return norms[i].here;
    for (size_t i = 0; of->cell && i < WB__COUNT(cells); i++)
        if (!strcmp(name, cells[i].flux)) return cells[i].here;
    if (of->layernorm && !strcmp(name, "diag")) return "";
    if (value->cell && !strcmp(name, "cell")) return "";
    return name;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Weights that lie (out, in) in Julia's order are turned. */
static bool is_turned(const traits *of, const char *name)
{
    return (of->dense && !strcmp(name, "weight")) ||
           (of->cell && (!strcmp(name, "weight_input") || !strcmp(name, "weight_hidden")));
}

static int add(filling *x, const wb__jl_array *found, const traits *of, const char *name)
{
    wb__flux_reader *r = x->r;
    wb__jl_array a = *found;
    if (of && is_turned(of, name) && a.ndim == 2 && a.dtype) {
        int64_t rows = a.dims[0];
        a.dims[0] = a.dims[1];
        a.dims[1] = rows;
        a.transposed = !a.transposed;
    }
    if (of && of->depthwise && a.ndim == 4 && a.count && !strcmp(name, "weight")) {
        a.dims[0] *= a.dims[1];     /* [in, multiplier, kh, kw], as a grouped convolution's */
        a.dims[1] = 1;
    }
    if (a.count == 0 || a.ndim < 2 || a.dims[0] == 1 || a.dims[1] == 1) a.transposed = false;
    if (!wb__bson_spend(&r->f, (int64_t)r->path_length + (a.transposed && a.shared ? a.bytes : 0)))
        return r->f.status;
    wb__entry *e = wb__table_add(x->t, r->path);
    if (!e) return r->f.status = WB_ERROR_MEMORY;
    e->dtype = a.dtype;
    snprintf(e->type, sizeof e->type, "%s", a.type);
    e->ndim = a.ndim;
    memcpy(e->dims, a.dims, sizeof e->dims);
    e->begin = a.data - r->f.map->data;
    e->bytes = a.bytes;
    e->data = a.data;
    if (of && a.ndim == 4 && !strcmp(name, "weight")) e->flip = of->flip;
    e->transposed = a.transposed;
    return 0;
}

/* ---- walking --------------------------------------------------------------------------------- */

static int visit(filling *x, const wb__jl *v, const traits *of, const char *name);

static int visit_part(filling *x, const wb__jl *v, const traits *of, const char *name)
{
    size_t back;
    if (!*name) return visit(x, v, of, name);
    if (!wb__flux_enter(x->r, name, &back)) return x->r->f.status;
    int status = visit(x, v, of, name);
    wb__flux_leave(x->r, back);
    return status;
}

/* What a recurrent layer begins with: h, or (h, c); each (out) or (out, 1). */
static int visit_state(filling *x, const wb__jl *v, const char *name)
{
    static const char *const names[2] = {"initial_hidden", "initial_cell"};
    wb__flux_reader *r = x->r;
    wb__jl_array a;
    size_t back;
    for (int i = 0; v->kind == WB__JL_TUPLE && i < 2; i++) {
        wb__jl one = wb__jl_item(&r->f, v, i);
        int status = one.kind == WB__JL_ARRAY ? visit_state(x, &one, names[i]) : r->f.status;
        if (status) return status;
    }
    if (v->kind == WB__JL_TUPLE || !wb__jl_array_of(&r->f, v, &a)) return r->f.status;
    bool zero = !x->zeros;
    for (int64_t i = 0; zero && i < a.bytes; i++) zero = !a.data[i];
    if (zero) return 0;
    if (a.ndim == 2 && a.dims[0] == 1) {
        a.ndim = 1;
        a.dims[0] = a.dims[1];
    }
    if (!wb__flux_enter(r, name, &back)) return r->f.status;
    int status = add(x, &a, NULL, name);
    wb__flux_leave(r, back);
    return status;
}

static int visit_fields(filling *x, const wb__jl *v)
{
    wb__flux_reader *r = x->r;
    wb__jl_fields w;
    traits has = traits_of(&r->f, v);
    if (r->depth >= WB__JL_DEEPEST)
        return wb__bson_fail(&r->f, v->at, "parts stand in one another deeper than %d",
                             WB__JL_DEEPEST);
    if (v->shared && !wb__bson_spend(&r->f, v->items.bytes)) return r->f.status;
    r->depth++;
    bool recurrent = false;
    for (wb__jl_fields_of(&r->f, v, &w); !r->f.status && wb__jl_fields_next(&r->f, &w);) {
        traits inner = {0};
        if (!strcmp(w.name, "cell")) inner = traits_of(&r->f, &w.value);
        recurrent |= inner.cell;
        if (recurrent && (!strcmp(w.name, "init") || !strcmp(w.name, "state")))
            continue; /* of its last call */
        const char *name = our_name(&has, w.name, &inner);
        if (!strncmp(name, "initial_", 8)) visit_state(x, &w.value, name);
        else visit_part(x, &w.value, &has, name);
    }
    r->depth--;
    return r->f.status;
}

static int visit(filling *x, const wb__jl *v, const traits *of, const char *name)
{
    wb__jl_array a;
    switch (v->kind) {
    case WB__JL_GPU: return wb__jl_gpu_fail(&x->r->f, v, x->r->path);
    case WB__JL_ARRAY:
        if (wb__jl_array_of(&x->r->f, v, &a)) return add(x, &a, of, name);
        return x->r->f.status ? x->r->f.status : visit_fields(x, v);
    case WB__JL_STRUCT:
        if (wb__jl_array_of(&x->r->f, v, &a)) return add(x, &a, of, name);
        return visit_fields(x, v);
    case WB__JL_LIST:
    case WB__JL_TUPLE:
    case WB__JL_DICT:
    case WB__JL_CLOSURE: return visit_fields(x, v);
    default: return x->r->f.status;
    }
}

/* ---- lists of parameters --------------------------------------------------------------------- */

/* Params of Zygote's or Tracker's: (order, set), where the order is a list, or a Buffer of one. */
static wb__jl parameters_of(wb__bson_file *f, const wb__jl *v)
{
    if (v->kind != WB__JL_STRUCT || strcmp(wb__jl_last(v), "Params")) return *v;
    wb__jl order = wb__jl_item(f, v, 0);
    return order.kind == WB__JL_STRUCT ? wb__jl_item(f, &order, 0) : order;
}

static bool all_arrays(wb__bson_file *f, const wb__jl *v)
{
    int n = 0;
    wb__jl_array a;
    if (v->kind != WB__JL_LIST && v->kind != WB__JL_TUPLE) return false;
    for (wb__bson_walk w = wb__bson_walk_of(v->items); wb__bson_next(f, &w); n++) {
        wb__jl item = wb__jl_of(f, w.value);
        if (!wb__jl_array_of(f, &item, &a)) return false;
    }
    return n > 0 && !f->status;
}

static int check_names(filling *x)
{
    const wb__table *t = x->t;
    if (t->nameless) return 0;
    wb__table_sort(x->t);
    for (int i = 1; i < t->n; i++)
        if (!strcmp(t->entries[i].name, t->entries[i - 1].name))
            return wb__bson_fail(&x->r->f, NULL, "two arrays are named \"%.200s\"",
                                 t->entries[i].name);
    return 0;
}

int wb__flux_table(const wb__mapping *m, const char *key, wb__table *out)
{
    char name[WB__JL_NAME] = "";
    *out = (wb__table){0};
    wb__flux_reader *r = wb__alloc_zero(1, sizeof *r);
    if (!r) return WB_ERROR_MEMORY;
    filling x = {.r = r, .t = out};
    if (!wb__bson_open(&r->f, m)) {
        wb__jl v = wb__jl_variable(&r->f, key, name, sizeof name);
        x.zeros = wb__bson_get(&r->f, r->f.root, "weber").kind == WB__BSON_STRING;
        if (!r->f.status) v = parameters_of(&r->f, &v);
        out->nameless = !r->f.status && all_arrays(&r->f, &v);
        wb__jl_array a;
        bool alone = !r->f.status && wb__jl_array_of(&r->f, &v, &a);
        if (!r->f.status) visit_part(&x, &v, &(traits){0}, alone ? name : "");
        if (!r->f.status) check_names(&x);
    }
    int status = r->f.status;
    wb__bson_close(&r->f);
    wb__free(r);
    if (status) wb__table_free(out);
    return status;
}
