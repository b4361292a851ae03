/* Reads Julia's values.  BSON.jl writes most values as documents with a "tag", such as "struct". */
#include "io/flux/value.h"

#include "io/model/transpose.h"

#include <stdio.h>
#include <string.h>

enum { MOST_HOPS = 16 };

/* The fields of a document of BSON.jl that has a "tag", found in one walk. */
typedef struct { wb__bson tag, type, data, size, name, ref, type_name; } flux_value_tagged;

static flux_value_tagged flux_value_parts_of(wb__bson_file *f, wb__bson doc)
{
    flux_value_tagged t = {0};
    for (wb__bson_walk w = wb__bson_walk_of(doc); wb__bson_next(f, &w);) {
        if (!strcmp(w.key, "tag")) t.tag = w.value;
        else if (!strcmp(w.key, "type")) t.type = w.value;
        else if (!strcmp(w.key, "data")) t.data = w.value;
        else if (!strcmp(w.key, "size")) t.size = w.value;
        else if (!strcmp(w.key, "name")) t.name = w.value;
        else if (!strcmp(w.key, "ref")) t.ref = w.value;
        else if (!strcmp(w.key, "typename")) t.type_name = w.value;
    }
    return t;
}

/* Returns the value to which references lead from v. */
static wb__bson flux_value_follow(wb__bson_file *f, wb__bson v, bool *shared)
{
    for (int hops = 0; v.kind == WB__BSON_DOCUMENT; hops++) {
        int64_t k;
        wb__bson tag = wb__bson_get(f, v, "tag");
        if (!wb__bson_equals(tag, "backref")) break;
        if (hops == MOST_HOPS) {
            wb__bson_fail(f, v.at, "a reference that leads to nothing but references");
            return (wb__bson){0};
        }
        if (!wb__bson_integer(wb__bson_get(f, v, "ref"), &k)) {
            wb__bson_fail(f, v.at, "a reference without a number");
            return (wb__bson){0};
        }
        v = wb__bson_ref(f, k);
        if (shared) *shared = true;
    }
    return v;
}

/* Sets `out` to a list of names, joined: ["Main", "Flux", "Dense"] becomes "Flux.Dense". */
static void flux_value_join_names(wb__bson_file *f, wb__bson list, char *out)
{
    int n = wb__bson_count(f, list), i = 0;
    size_t used = 0;
    *out = 0;
    for (wb__bson_walk w = wb__bson_walk_of(list); wb__bson_next(f, &w); i++) {
        if (i == 0 && n > 2 && wb__bson_equals(w.value, "Main")) continue;
        if (used + 2 >= WB__JL_NAME) break;
        if (used) out[used++] = '.';
        wb__bson_text(w.value, out + used, WB__JL_NAME - used);
        used += strlen(out + used);
    }
}

/* Writes the name of a closure, which is the first symbol in the document `type_name`. */
static void flux_value_closure_name(wb__bson_file *f, wb__bson type_name, char *out)
{
    *out = 0;
    flux_value_tagged t = flux_value_parts_of(f, flux_value_follow(f, type_name, NULL));
    for (wb__bson_walk w = wb__bson_walk_of(t.data); wb__bson_next(f, &w);) {
        if (w.value.kind != WB__BSON_DOCUMENT) continue;
        flux_value_tagged field = flux_value_parts_of(f, w.value);
        if (!wb__bson_equals(field.tag, "symbol")) continue;
        wb__bson_text(field.name, out, WB__JL_NAME);
        return;
    }
}

const char *wb__jl_last(const wb__jl *v)
{
    const char *from = strchr(v->name, '#');    /* names of functions may contain '.' */
    const char *dot = from ? NULL : strrchr(v->name, '.');
    return from ? from : dot ? dot + 1 : v->name;
}

bool wb__jl_flux(const wb__jl *v, const char *type)
{
    return v->kind == WB__JL_STRUCT && wb__begins(v->name, "Flux.") &&
           !strcmp(wb__jl_last(v), type);
}

bool wb__jl_named_tuple(const wb__jl *v)
{
    return v->kind == WB__JL_STRUCT && !strcmp(wb__jl_last(v), "NamedTuple");
}

/* ---- kinds of values ------------------------------------------------------------------------- */

/* A Julia type of numbers or of array elements. */
typedef struct {
    const char *name;
    wb_dtype dtype;             /* 0: a dtype that Weber lacks */
    int bytes;
    enum { NO_NUMBER, FLOAT, SIGNED, UNSIGNED } number;
    wb__narrow_int narrow;
} flux_value_element;

/* Returns the row of a Julia type; NULL if it is not in the table. */
static const flux_value_element *flux_value_element_named(const char *type)
{
    static const flux_value_element elements[] = {
        {"Float32", WB_F32, 4, FLOAT, 0},     {"Float64", WB_F64, 8, FLOAT, 0},
        {"Float16", WB_F16, 2, FLOAT, 0},     {"BFloat16", WB_BF16, 2, FLOAT, 0},
        {"Int8", WB_I8, 1, SIGNED, 0},        {"UInt8", WB_U8, 1, UNSIGNED, 0},
        {"Int32", WB_I32, 4, SIGNED, 0},      {"Int64", WB_I64, 8, SIGNED, 0},
        {"Bool", WB_BOOL, 1, NO_NUMBER, 0},   {"Int16", 0, 2, SIGNED, WB__NARROW_I16},
        {"UInt16", 0, 2, UNSIGNED, WB__NARROW_U16}, {"UInt32", 0, 4, UNSIGNED, WB__NARROW_U32},
        {"UInt64", 0, 8, UNSIGNED, 0},        {"Char", 0, 4, NO_NUMBER, 0},
        {"Int128", 0, 16, NO_NUMBER, 0},      {"UInt128", 0, 16, NO_NUMBER, 0}};
    for (size_t i = 0; i < WB__COUNT(elements); i++)
        if (!strcmp(type, elements[i].name)) return &elements[i];
    return NULL;
}

/* Sets v to a number that BSON.jl writes as a struct with the bytes of the number, such as a
 * Float32.  Returns false if v is no such number. */
static bool flux_value_number_of(wb__jl *v)
{
    const flux_value_element *e = flux_value_element_named(wb__jl_last(v));
    const wb__bson data = v->items;
    uint64_t bits = 0;
    if (!e || !e->number || data.kind != WB__BSON_BINARY || data.bytes != (uint32_t)e->bytes)
        return false;
    memcpy(&bits, data.at, data.bytes);
    if (e->number == FLOAT) return wb__convert(&v->real, WB_F64, &bits, e->dtype, 1), true;
    if (e->number == SIGNED && e->bytes < 8 && bits >> (8 * e->bytes - 1))
        bits -= (uint64_t)1 << (8 * e->bytes);
    memcpy(&v->integer, &bits, sizeof v->integer);
    v->whole = true;
    v->real = (double)v->integer;
    return true;
}

static bool flux_value_is_gpu_array(const char *type)
{
    static const char *const types[] = {"CuArray", "ROCArray", "MtlArray", "oneArray"};
    for (size_t i = 0; i < WB__COUNT(types); i++)
        if (!strcmp(type, types[i])) return true;
    return false;
}

static void flux_value_set_struct_kind(wb__bson_file *f, wb__jl *v)
{
    v->type = flux_value_follow(f, v->type, NULL);
    flux_value_tagged type = flux_value_parts_of(f, v->type);
    v->kind = WB__JL_STRUCT;
    if (wb__bson_equals(type.tag, "jl_anonymous")) {
        flux_value_closure_name(f, type.type_name, v->name);
        v->kind = WB__JL_CLOSURE;
        return;
    }
    flux_value_join_names(f, type.name, v->name);
    const char *last = wb__jl_last(v);
    if (*last == '#') {
        bool closure = strchr(last + 1, '#') || (last[1] >= '0' && last[1] <= '9');
        v->kind = closure ? WB__JL_CLOSURE : WB__JL_FUNCTION;
        if (closure) memmove(v->name, last, strlen(last) + 1);
        else memmove((char *)(uintptr_t)last, last + 1, strlen(last));
    } else if (flux_value_is_gpu_array(last)) {
        v->kind = WB__JL_GPU;
    } else if (v->items.kind == WB__BSON_BINARY) {
        if (flux_value_number_of(v)) v->kind = WB__JL_NUMBER;
    } else if (!strcmp(last, "Undef")) {
        v->kind = WB__JL_NOTHING;
    }
}

static void flux_value_set_tagged_kind(wb__bson_file *f, wb__bson doc, wb__jl *v)
{
    flux_value_tagged t = flux_value_parts_of(f, doc);
    v->kind = WB__JL_OTHER;
    v->items = t.data;
    v->type = t.type;
    if (t.tag.kind != WB__BSON_STRING) {
        v->kind = WB__JL_DICT;
        v->items = doc;
    } else if (wb__bson_equals(t.tag, "struct")) {
        flux_value_set_struct_kind(f, v);
    } else if (wb__bson_equals(t.tag, "array")) {
        v->kind = WB__JL_ARRAY;
        v->type = flux_value_follow(f, t.type, NULL);
        v->size = t.size;
    } else if (wb__bson_equals(t.tag, "tuple") || wb__bson_equals(t.tag, "svec")) {
        v->kind = WB__JL_TUPLE;
    } else if (wb__bson_equals(t.tag, "symbol")) {
        v->kind = WB__JL_SYMBOL;
        v->items = t.name;
    }
}

static wb__jl flux_value_plain(wb__bson_file *f, wb__bson v)
{
    wb__jl j = {.kind = WB__JL_OTHER};
    v = flux_value_follow(f, v, &j.shared);
    j.at = v.at;
    j.items = v;
    switch (v.kind) {
    case WB__BSON_ABSENT: j.kind = WB__JL_ABSENT; break;
    case WB__BSON_NULL: j.kind = WB__JL_NOTHING; break;
    case WB__BSON_STRING: j.kind = WB__JL_STRING; break;
    case WB__BSON_BINARY: j.kind = WB__JL_ARRAY; break;
    case WB__BSON_ARRAY: j.kind = WB__JL_LIST; break;
    case WB__BSON_BOOL:
        j.kind = WB__JL_BOOL;
        j.integer = v.integer;
        break;
    case WB__BSON_DOUBLE: case WB__BSON_INT32: case WB__BSON_INT64:
        j.kind = WB__JL_NUMBER;
        j.whole = wb__bson_integer(v, &j.integer);
        wb__bson_number(v, &j.real);
        break;
    default: flux_value_set_tagged_kind(f, v, &j);
    }
    if (f->status) j = (wb__jl){0};
    return j;
}

wb__jl wb__jl_of(wb__bson_file *f, wb__bson v)
{
    wb__jl j = flux_value_plain(f, v);
    for (int hops = 0; j.kind == WB__JL_STRUCT && !strcmp(wb__jl_last(&j), "TrackedArray");
         hops++) {
        bool shared = j.shared;
        if (hops == MOST_HOPS) {
            wb__bson_fail(f, j.at, "tracked arrays in one another");
            return (wb__jl){0};
        }
        j = flux_value_plain(f, wb__bson_at(f, j.items, 1));
        j.shared |= shared;
    }
    return j;
}

/* ---- fields ---------------------------------------------------------------------------------- */

bool wb__jl_is_dict_struct(const wb__jl *v)
{
    const char *last = wb__jl_last(v);
    return v->kind == WB__JL_STRUCT && (!strcmp(last, "Dict") || !strcmp(last, "IdDict"));
}

static bool flux_value_is_of_flux(const wb__jl *v)
{
    return v->kind == WB__JL_STRUCT && wb__begins(v->name, "Flux.");
}

int wb__jl_count(wb__bson_file *f, const wb__jl *v)
{
    if (wb__jl_is_dict_struct(v)) return wb__bson_count(f, wb__bson_at(f, v->items, 1));
    return wb__bson_count(f, v->items);
}

void wb__jl_fields_of(wb__bson_file *f, const wb__jl *v, wb__jl_fields *out)
{
    *out = (wb__jl_fields){.items = wb__bson_walk_of(v->items)};
    if (v->kind == WB__JL_DICT) {
        out->keyed = true;
    } else if (wb__jl_named_tuple(v)) {
        wb__bson params = wb__bson_get(f, v->type, "params");
        wb__jl names = wb__jl_of(f, wb__bson_at(f, params, 0));
        out->named = names.kind == WB__JL_TUPLE;
        out->names = wb__bson_walk_of(names.items);
    } else if (wb__jl_is_dict_struct(v)) {
        wb__jl keys = wb__jl_of(f, wb__bson_at(f, v->items, 0));
        wb__jl values = wb__jl_of(f, wb__bson_at(f, v->items, 1));
        out->named = true;
        out->names = wb__bson_walk_of(keys.items);
        out->items = wb__bson_walk_of(values.items);
    } else if (flux_value_is_of_flux(v)) {
        out->layout = wb__flux_struct_by_count(wb__jl_last(v), wb__bson_count(f, v->items));
    }
    out->i = -1;
}

void wb__jl_key_text(const wb__bson_walk *w, char *out, size_t size)
{
    wb__bson key = {.kind = WB__BSON_STRING, .at = (const uint8_t *)w->key};
    key.bytes = (uint32_t)strlen(w->key);
    wb__bson_text(key, out, size);
}

bool wb__jl_fields_next(wb__bson_file *f, wb__jl_fields *w)
{
    if (!wb__bson_next(f, &w->items)) return false;
    w->i++;
    w->value = wb__jl_of(f, w->items.value);
    snprintf(w->name, sizeof w->name, "%d", w->i);
    if (w->keyed) {
        wb__jl_key_text(&w->items, w->name, sizeof w->name);
    } else if (w->layout) {
        snprintf(w->name, sizeof w->name, "%s", w->layout->fields[w->i].name);
    } else if (w->named && wb__bson_next(f, &w->names)) {
        wb__jl name = wb__jl_of(f, w->names.value);
        if (name.kind == WB__JL_SYMBOL || name.kind == WB__JL_STRING)
            wb__bson_text(name.items, w->name, sizeof w->name);
    }
    return !f->status;
}

wb__jl wb__jl_field(wb__bson_file *f, const wb__jl *v, const char *name)
{
    const wb__flux_struct *s =
        flux_value_is_of_flux(v)
            ? wb__flux_struct_by_count(wb__jl_last(v), wb__bson_count(f, v->items)) : NULL;
    if (s) {
        int i = wb__flux_field_at(s, name);
        return i < 0 ? (wb__jl){0} : wb__jl_item(f, v, i);
    }
    wb__jl_fields w;
    wb__jl_fields_of(f, v, &w);
    while (wb__jl_fields_next(f, &w))
        if (!strcmp(w.name, name)) return w.value;
    return (wb__jl){0};
}

wb__jl wb__jl_item(wb__bson_file *f, const wb__jl *v, int i)
{
    return wb__jl_of(f, wb__bson_at(f, v->items, i));
}

int wb__jl_integers(wb__bson_file *f, const wb__jl *v, int most, int64_t *out)
{
    int n = 0;
    if (v->kind == WB__JL_NUMBER && v->whole) return *out = v->integer, 1;
    if (v->kind == WB__JL_ARRAY) {
        wb__jl_array a;
        if (!wb__jl_array_of(f, v, &a) || a.dtype != WB_I64 || a.count > most) return -1;
        memcpy(out, a.data, (size_t)a.bytes);
        return (int)a.count;
    }
    if (v->kind != WB__JL_TUPLE && v->kind != WB__JL_LIST) return -1;
    for (wb__bson_walk w = wb__bson_walk_of(v->items); wb__bson_next(f, &w); n++)
        if (n == most || !wb__bson_integer(w.value, &out[n])) return -1;
    return f->status ? -1 : n;
}

/* Writes the short name of an element type and returns its row; NULL if it is not in the table. */
static const flux_value_element *element_type(wb__bson_file *f, wb__bson type, char *name,
                                              size_t size)
{
    char full[WB__JL_NAME];
    wb__bson names = wb__bson_get(f, type, "name");
    flux_value_join_names(f, names, full);
    const char *dot = strrchr(full, '.'), *last = dot ? dot + 1 : full;
    snprintf(name, size, "%.*s", (int)size - 1, *last ? last : "Any");
    return flux_value_element_named(last);
}

static bool flux_value_sizes_of(wb__bson_file *f, const wb__jl *v, wb__jl_array *a, int *n_sizes)
{
    int n = 0;
    a->count = 1;
    bool fits = true;
    for (wb__bson_walk w = wb__bson_walk_of(v->size); wb__bson_next(f, &w); n++) {
        int64_t size;
        if (!wb__bson_integer(w.value, &size) || size < 0) return false;
        if (size && a->count > INT64_MAX / size) return false;
        a->count *= size;
        if (n < WB_MAX_DIMS) a->dims[n] = size;
        else fits = false;
    }
    *n_sizes = a->axes = n;
    a->ndim = fits ? n : 0;
    for (int i = 0; i < a->ndim / 2; i++) {
        int64_t other = a->dims[i];
        a->dims[i] = a->dims[a->ndim - 1 - i];
        a->dims[a->ndim - 1 - i] = other;
    }
    return !f->status && v->size.kind == WB__BSON_ARRAY;
}

static bool flux_value_plain_array(wb__bson_file *f, const wb__jl *v, wb__jl_array *a)
{
    int n_sizes;
    if (v->items.kind != WB__BSON_BINARY) return false;
    a->data = v->items.at;
    a->bytes = v->items.bytes;
    if (!v->type.kind) {                        /* Vector{UInt8} */
        a->dtype = WB_U8;
        snprintf(a->type, sizeof a->type, "UInt8");
        a->ndim = 1;
        a->count = a->dims[0] = a->bytes;
        return true;
    }
    const flux_value_element *e = element_type(f, v->type, a->type, sizeof a->type);
    if (!flux_value_sizes_of(f, v, a, &n_sizes)) {
        wb__bson_fail(f, v->at, "an array of %s whose sizes are no sizes", a->type);
        return false;
    }
    if (!e) return true;
    if (a->count > INT64_MAX / e->bytes || a->count * e->bytes != a->bytes) {
        wb__bson_fail(f, v->at, "an array of %lld %s has %lld bytes", (long long)a->count, a->type,
                      (long long)a->bytes);
        return false;
    }
    for (int64_t i = 0; e->dtype == WB_BOOL && i < a->bytes; i++) {
        if (a->data[i] <= 1) continue;
        wb__bson_fail(f, v->at, "an array of Bool has a %d in it", a->data[i]);
        return false;
    }
    if (n_sizes > WB_MAX_DIMS) return true;
    a->dtype = e->dtype;
    a->narrow = e->narrow;
    return true;
}

void wb__jl_transpose(wb__jl_array *a)
{
    const int64_t first = a->dims[0];
    if (a->ndim != 2 && a->ndim != 3) return;
    a->dims[0] = a->dims[a->ndim - 1];
    a->dims[a->ndim - 1] = first;
    a->transposed = !a->transposed;
}

bool wb__jl_zero(const wb__jl_array *a)
{
    for (int64_t i = 0; i < a->bytes; i++)
        if (a->data[i]) return false;
    return true;
}

/* Sets *out to the array of v.  An Adjoint or Transpose of a vector is a matrix of one row with the
 * same bytes. */
bool wb__jl_array_of(wb__bson_file *f, const wb__jl *v, wb__jl_array *out)
{
    const char *last = wb__jl_last(v);
    *out = (wb__jl_array){.at = v->at, .shared = v->shared};
    if (v->kind == WB__JL_ARRAY) return flux_value_plain_array(f, v, out);
    if (v->kind != WB__JL_STRUCT || (strcmp(last, "Adjoint") && strcmp(last, "Transpose")))
        return false;
    wb__jl parent = wb__jl_item(f, v, 0);
    if (parent.kind != WB__JL_ARRAY || !flux_value_plain_array(f, &parent, out)) return false;
    if (out->ndim == 1) {
        out->dims[out->ndim++] = 1;
        return true;
    }
    if (out->ndim != 2 || !out->dtype) return false;
    wb__jl_transpose(out);
    out->transposed = out->dims[0] > 1 && out->dims[1] > 1;
    return true;
}

const void *wb__jl_values(const wb__jl_array *a, wb_dtype dtype, void **made)
{
    *made = NULL;
    if (!a->transposed && a->dtype == dtype) return a->data;
    size_t each = wb__dtype_size(a->dtype);
    void *as = *made = wb__alloc_aligned((size_t)a->bytes + 1);
    if (as && a->transposed) wb__to_rows(as, a->data, each, a->ndim, a->dims);
    else if (as) memcpy(as, a->data, (size_t)a->bytes);
    if (!as || a->dtype == dtype) return as;
    *made = wb__alloc_aligned((size_t)a->count * wb__dtype_size(dtype) + 1);
    if (*made) wb__convert(*made, dtype, as, a->dtype, a->count);
    wb__free(as);
    return *made;
}

/* ---- types in messages ----------------------------------------------------------------------- */

void wb__jl_type_text(wb__bson_file *f, const wb__jl *v, char *out, size_t size)
{
    static const char *const words[] = {
        [WB__JL_ABSENT] = "nothing", [WB__JL_NOTHING] = "nothing", [WB__JL_BOOL] = "Bool",
        [WB__JL_STRING] = "String",  [WB__JL_SYMBOL] = "Symbol",   [WB__JL_LIST] = "Vector",
        [WB__JL_TUPLE] = "Tuple",    [WB__JL_DICT] = "Dict",       [WB__JL_OTHER] = "Type"};
    wb__jl_array a;
    switch (v->kind) {
    case WB__JL_FUNCTION: snprintf(out, size, "function %s", v->name); return;
    case WB__JL_CLOSURE: snprintf(out, size, "closure %s", v->name); return;
    case WB__JL_GPU: snprintf(out, size, "%s", v->name); return;
    case WB__JL_STRUCT:
        snprintf(out, size, "%s",
                 wb__begins(v->name, "Flux.") || wb__jl_named_tuple(v) ? wb__jl_last(v) : v->name);
        return;
    case WB__JL_NUMBER:
        snprintf(out, size, "%s", v->type.kind ? wb__jl_last(v) : v->whole ? "Int64" : "Float64");
        return;
    case WB__JL_ARRAY:
        if (wb__jl_array_of(f, v, &a)) {
            snprintf(out, size, "Array{%s,%d}", a.type, a.ndim);
        } else {
            char type[WB__JL_NAME];
            element_type(f, v->type, type, sizeof type);
            snprintf(out, size, "Array{%.60s}", type);
        }
        return;
    default: snprintf(out, size, "%s", words[v->kind]);
    }
}

int wb__jl_gpu_fail(wb__bson_file *f, const wb__jl *v, const char *path)
{
    return wb__bson_fail(f, NULL, "\"%s\" is a %s: the model was saved from a GPU's memory, and "
                         "its values are not in the file. In Julia, save it again after model = "
                         "cpu(model)", path, v->name);
}

bool wb__jl_may_hold_arrays(const wb__jl *v)
{
    return v->kind >= WB__JL_ARRAY && v->kind != WB__JL_OTHER && v->kind != WB__JL_FUNCTION;
}

bool wb__jl_layer(const wb__jl *v)
{
    return flux_value_is_of_flux(v) && wb__flux_struct_known(wb__jl_last(v));
}
