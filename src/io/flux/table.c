/* Lists all arrays of a variable of a BSON file by name.  The fields of Flux's layers get Weber's
 * names.  Layers are structs, or, as Flux.state returns them, NamedTuples or dictionaries, which
 * are recognised by the names of their fields. */
#include "io/flux/flux.h"
#include "base/files/file.h"
#include "engine/tensor.h"
#include "io/flux/read.h"

#include <stdio.h>
#include <string.h>

/* A table while it is filled. */
typedef struct {
    wb__flux_reader *r;         /* the file */
    wb__table *t;               /* the table */
    bool zeros;                 /* initial states of zeros are included */
    int64_t repeated;           /* bytes of arrays that were reached through a reference */
} filling;

/* Returns the name of a type of Flux whose fields become the same children as the fields of v.
 * NULL: v is not known as a layer. */
static const char *flux_table_like(wb__bson_file *f, const wb__jl *v)
{
    unsigned marks = 0;
    if (v->kind != WB__JL_STRUCT && v->kind != WB__JL_DICT) return NULL;
    wb__jl_fields w;
    wb__jl_fields_of(f, v, &w);
    while (wb__jl_fields_next(f, &w)) marks |= wb__flux_mark(w.name);
    if (wb__jl_flux(v, "LayerNorm")) marks |= wb__flux_mark("affine");
    const char *own = wb__jl_last(v), *type = wb__flux_like(marks);
    const bool conv = type && (!strcmp(type, "Conv") || !strcmp(type, "CrossCor"));
    return conv && wb__jl_flux(v, own) && wb__flux_struct_known(own) ? own : type;
}

static bool flux_table_is_cell(const char *type) { return type && strstr(type, "Cell"); }

/* ---- entries --------------------------------------------------------------------------------- */

/* Adds the bytes of an array that is named several times to x->repeated: each name becomes a
 * tensor. */
static int flux_table_count_repeated(filling *x, const wb__jl_array *a)
{
    const int64_t limit = wb__unpack_limit();
    if (!a->shared) return 0;
    x->repeated += a->bytes;
    if (x->repeated <= x->r->f.map->bytes + limit) return 0;
    return x->r->f.status = wb__fail(WB_ERROR_FORMAT, "%s: its arrays have more than %lld bytes "
                                     "beyond those of the file, since it names them several times: "
                                     "the limit of wb_set_unpack_limit", x->r->f.map->path,
                                     (long long)limit);
}

/* Sets the entry's data to a block with the integers of the array, widened. */
static int flux_table_widen(wb__entry *e, const wb__jl_array *a)
{
    e->dtype = wb__narrow_dtype(a->narrow);
    e->bytes = a->count * (int64_t)wb__dtype_size(e->dtype);
    void *wide = wb__alloc_aligned((size_t)WB__MAX(e->bytes, 1));
    if (wide) wb__widen_ints(wide, a->data, a->count, a->narrow);
    e->data = wide;
    e->owned = true;
    return wide ? 0 : WB_ERROR_MEMORY;
}

/* Adds the entry of an array, in the shape of Weber's child for the field. */
static int flux_table_add(filling *x, const wb__jl_array *found, const wb__flux_field *field)
{
    wb__flux_reader *r = x->r;
    wb__jl_array a = *found;
    wb__flux_field_kind kind = field ? field->kind : WB__FIELD_NONE;
    if (kind == WB__FIELD_MATRIX && (a.dtype || a.narrow)) wb__jl_transpose(&a);
    if (flux_table_count_repeated(x, &a)) return r->f.status;
    if (kind == WB__FIELD_DEPTHWISE && a.ndim == 4 && a.count) {
        a.dims[0] *= a.dims[1];     /* the shape of a grouped convolution's kernel */
        a.dims[1] = 1;
    }
    if (!a.count || (a.ndim == 2 && (a.dims[0] == 1 || a.dims[1] == 1))) a.transposed = false;
    if (!wb__bson_spend(&r->f, (int64_t)r->path_length + (a.transposed && a.shared ? a.bytes : 0)))
        return r->f.status;
    wb__entry *e = wb__table_add(x->t, r->path);
    if (!e) return r->f.status = WB_ERROR_MEMORY;
    e->dtype = a.dtype;
    snprintf(e->type, sizeof e->type, "%s", a.type);
    e->axes = a.axes;
    e->ndim = a.ndim;
    memcpy(e->dims, a.dims, sizeof e->dims);
    e->begin = a.data - r->f.map->data;
    e->bytes = a.bytes;
    e->data = a.data;
    if (a.ndim >= 3 && kind >= WB__FIELD_KERNEL && kind <= WB__FIELD_DEPTHWISE)
        e->flip = kind == WB__FIELD_KERNEL ? WB__FLIP_NO : WB__FLIP_YES;
    e->transposed = a.transposed;
    return a.narrow ? r->f.status = flux_table_widen(e, &a) : 0;
}

/* Adds the weight of the hidden state of a GRUv3, whose first array is v, a field of `of`. */
static int flux_table_add_gates(filling *x, const wb__jl *of, const wb__jl *v, const char *name)
{
    wb__flux_reader *r = x->r;
    wb__jl_array gates, last, whole;
    void *made;
    size_t back;
    wb__jl other = wb__jl_field(&r->f, of, "Wh_h̃");
    if (!wb__jl_array_of(&r->f, v, &gates) || !wb__jl_array_of(&r->f, &other, &last) ||
        !gates.dtype)
        return r->f.status;
    wb__jl_transpose(&gates);
    wb__jl_transpose(&last);
    if (!wb__flux_enter(r, name, &back)) return r->f.status;
    if (wb__flux_join_gates(r, &gates, &last, &whole, &made) && !flux_table_add(x, &whole, NULL)) {
        wb__entry *e = &x->t->entries[x->t->n - 1];
        e->owned = true;
        e->begin = gates.data - r->f.map->data;
        made = NULL;
    } else if (!r->f.status) {
        wb__bson_fail(&r->f, of->at, "\"%s\": %s", r->path, r->reason);
    }
    wb__free(made);
    wb__flux_leave(r, back);
    return r->f.status;
}

static int flux_table_visit(filling *x, const wb__jl *v, const wb__flux_field *field);

static int flux_table_visit_part(filling *x, const wb__jl *v, const wb__flux_field *field,
                                 const char *name)
{
    size_t back;
    if (!*name) return flux_table_visit(x, v, field);
    if (!wb__flux_enter(x->r, name, &back)) return x->r->f.status;
    int status = flux_table_visit(x, v, field);
    wb__flux_leave(x->r, back);
    return status;
}

/* Adds the initial states of a recurrent layer.  v is the state h or the tuple (h, c).  In Julia a
 * state is (out) or (out, 1). */
static int flux_table_visit_state(filling *x, const wb__jl *v, const char *name)
{
    static const char *const names[2] = {"initial_hidden", "initial_cell"};
    wb__flux_reader *r = x->r;
    wb__jl_array a;
    size_t back;
    for (int i = 0; v->kind == WB__JL_TUPLE && i < 2; i++) {
        wb__jl one = wb__jl_item(&r->f, v, i);
        int status = one.kind == WB__JL_ARRAY ? flux_table_visit_state(x, &one, names[i])
                                              : r->f.status;
        if (status) return status;
    }
    if (v->kind == WB__JL_TUPLE || !wb__jl_array_of(&r->f, v, &a)) return r->f.status;
    if (!x->zeros && wb__jl_zero(&a)) return 0;
    if (a.ndim == 2 && a.dims[0] == 1) {
        a.ndim = 1;
        a.dims[0] = a.dims[1];
    }
    if (!wb__flux_enter(r, name, &back)) return r->f.status;
    int status = flux_table_add(x, &a, NULL);
    wb__flux_leave(r, back);
    return status;
}

static int flux_table_visit_fields(filling *x, const wb__jl *v)
{
    wb__flux_reader *r = x->r;
    wb__jl_fields w;
    const char *type = flux_table_like(&r->f, v);
    if (r->depth >= WB__JL_MAX_DEPTH)
        return wb__bson_fail(&r->f, v->at, "parts are nested deeper than %d", WB__JL_MAX_DEPTH);
    if (v->shared && !wb__bson_spend(&r->f, v->items.bytes)) return r->f.status;
    r->depth++;
    bool recurrent = false;
    for (wb__jl_fields_of(&r->f, v, &w); !r->f.status && wb__jl_fields_next(&r->f, &w);) {
        bool cell = !strcmp(w.name, "cell") && flux_table_is_cell(flux_table_like(&r->f, &w.value));
        recurrent |= cell;
        if (recurrent && (!strcmp(w.name, "init") || !strcmp(w.name, "state")))
            continue;               /* the states of the last call */
        const wb__flux_field *field = wb__flux_child_field(type, w.name);
        bool inside = cell || (field && field->kind == WB__FIELD_AFFINE);
        const char *name = inside ? "" : field ? field->weber : w.name;
        if (field && field->kind == WB__FIELD_LAST_GATE) continue;  /* see flux_table_add_gates */
        if (wb__begins(name, "initial_")) flux_table_visit_state(x, &w.value, name);
        else if (field && field->kind == WB__FIELD_GATES)
            flux_table_add_gates(x, v, &w.value, name);
        else flux_table_visit_part(x, &w.value, field, name);
    }
    r->depth--;
    return r->f.status;
}

static int flux_table_visit(filling *x, const wb__jl *v, const wb__flux_field *field)
{
    wb__jl_array a;
    switch (v->kind) {
    case WB__JL_GPU: return wb__jl_gpu_fail(&x->r->f, v, x->r->path);
    case WB__JL_ARRAY:
        if (wb__jl_array_of(&x->r->f, v, &a)) return flux_table_add(x, &a, field);
        return x->r->f.status ? x->r->f.status : flux_table_visit_fields(x, v);
    case WB__JL_STRUCT:
        if (wb__jl_array_of(&x->r->f, v, &a)) return flux_table_add(x, &a, field);
        return flux_table_visit_fields(x, v);
    case WB__JL_LIST:
    case WB__JL_TUPLE:
    case WB__JL_DICT:
    case WB__JL_CLOSURE: return flux_table_visit_fields(x, v);
    default: return x->r->f.status;
    }
}

/* ---- lists of parameters --------------------------------------------------------------------- */

/* Returns the list of arrays in a Params of Zygote or Tracker.  A Params is (order, set), and its
 * order is a list, or a Buffer with a list.  Any other value is returned unchanged. */
static wb__jl flux_table_parameters_of(wb__bson_file *f, const wb__jl *v)
{
    if (v->kind != WB__JL_STRUCT || strcmp(wb__jl_last(v), "Params")) return *v;
    wb__jl order = wb__jl_item(f, v, 0);
    return order.kind == WB__JL_STRUCT ? wb__jl_item(f, &order, 0) : order;
}

static bool flux_table_all_arrays(wb__bson_file *f, const wb__jl *v)
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

static int flux_table_check_names(filling *x)
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

/* Adds the arrays of the variable that `key` names. */
static void flux_table_visit_variable(filling *x, const char *key)
{
    wb__bson_file *f = &x->r->f;
    char name[WB__JL_NAME] = "";
    wb__jl_array a;
    wb__jl v = wb__jl_variable(f, key, name, sizeof name);
    if (!f->status) v = flux_table_parameters_of(f, &v);
    x->t->nameless = !f->status && flux_table_all_arrays(f, &v);
    const bool alone = !f->status && wb__jl_array_of(f, &v, &a);
    if (!f->status) flux_table_visit_part(x, &v, NULL, alone ? name : "");
}

/* Adds the arrays of all variables.  The names begin with the name of the variable. */
static void flux_table_visit_variables(filling *x)
{
    char name[WB__JL_NAME];
    wb__jl v;
    for (wb__bson_walk w = wb__bson_walk_of(x->r->f.root);
         wb__jl_next_variable(&x->r->f, &w, &v, name, sizeof name) && !x->r->f.status;)
        if (wb__jl_may_hold_arrays(&v)) flux_table_visit_part(x, &v, NULL, name);
}

/* Adds the note with the structure of the model, as in other files that wb_save writes. */
static int flux_table_add_structure(wb__table *t, wb__bson structure)
{
    char *text = wb__alloc((size_t)structure.bytes + 1);
    if (!text) return WB_ERROR_MEMORY;
    memcpy(text, structure.at, structure.bytes);
    text[structure.bytes] = 0;
    const int status = wb__table_add_note(t, "weber", text);
    wb__free(text);
    return status;
}

int wb__flux_table(const wb__mapping *m, const char *key, wb__table *out)
{
    *out = (wb__table){0};
    wb__flux_reader *r = wb__alloc_zero(1, sizeof *r);
    if (!r) return WB_ERROR_MEMORY;
    filling x = {.r = r, .t = out};
    if (!wb__bson_open(&r->f, m)) {
        const wb__bson structure = wb__bson_get(&r->f, r->f.root, "weber");
        x.zeros = structure.kind == WB__BSON_STRING;
        if (key == wb__all_variables && wb__jl_is_unclear(&r->f)) flux_table_visit_variables(&x);
        else flux_table_visit_variable(&x, key == wb__all_variables ? NULL : key);
        if (!r->f.status) flux_table_check_names(&x);
        if (!r->f.status && x.zeros) r->f.status = flux_table_add_structure(out, structure);
    }
    int status = r->f.status;
    wb__bson_close(&r->f);
    wb__free(r);
    if (status) wb__table_free(out);
    return status;
}
