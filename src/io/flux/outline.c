/* The outline of a BSON file, for printing. */
#include "io/flux/flux.h"
#include "io/flux/read.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    wb__flux_reader *r;         /* the file */
    int (*row)(const wb__flux_row *, void *ctx);
    void *ctx;
    int status;                 /* the last result of `row` */
} outline_text;

/* ---- bytes ----------------------------------------------------------------------------------- */

static int64_t outline_bytes_in(wb__bson_file *f, const wb__jl *v, int depth)
{
    wb__jl_array a;
    int64_t sum = 0;
    if (depth > WB__JL_MAX_DEPTH)
        return wb__bson_fail(f, v->at, "parts are nested deeper than %d", WB__JL_MAX_DEPTH), 0;
    if (wb__jl_array_of(f, v, &a)) return a.bytes;
    if (!wb__jl_may_hold_arrays(v)) return 0;
    wb__jl_fields w;
    for (wb__jl_fields_of(f, v, &w); !f->status && wb__jl_fields_next(f, &w);) {
        int64_t more = outline_bytes_in(f, &w.value, depth + 1);
        sum = more > INT64_MAX - sum ? INT64_MAX : sum + more;
    }
    return sum;
}

static int outline_add_value(outline_text *t, const wb__jl *v, int depth, const char *name);

static const char *outline_value_text(const wb__jl *v, char *out, size_t size)
{
    switch (v->kind) {
    case WB__JL_BOOL: snprintf(out, size, "%s", v->integer ? "true" : "false"); return out;
    case WB__JL_NUMBER:
        if (v->whole) snprintf(out, size, "%lld", (long long)v->integer);
        else wb__plain(out, size, "%g", v->real);
        return out;
    case WB__JL_STRING: case WB__JL_SYMBOL:
        wb__bson_text(v->items, out, size);
        return out;
    default: return NULL;
    }
}

/* Writes the name of a layer's activation to `out` and returns it; NULL if none or identity. */
static const char *activation_text(wb__bson_file *f, const wb__jl *v, char *out, size_t size)
{
    static const char *const fields[] = {"σ", "λ"};
    for (size_t i = 0; i < WB__COUNT(fields); i++) {
        wb__jl s = wb__jl_field(f, v, fields[i]);
        if (s.kind != WB__JL_FUNCTION && s.kind != WB__JL_CLOSURE) continue;
        if (!strcmp(wb__jl_last(&s), "identity")) return NULL;
        snprintf(out, size, "%s", wb__jl_last(&s));
        return out;
    }
    return NULL;
}

static int outline_kind_of(outline_text *t, const wb__jl *v)
{
    wb__jl f;
    wb__jl_array a;
    switch (v->kind) {
    case WB__JL_NOTHING:
    case WB__JL_BOOL:
    case WB__JL_NUMBER:
    case WB__JL_STRING:
    case WB__JL_SYMBOL:
    case WB__JL_OTHER: case WB__JL_ABSENT: return WB__FLUX_VALUE;
    case WB__JL_ARRAY: return v->items.kind == WB__BSON_BINARY ? WB__FLUX_ARRAY : WB__FLUX_LIST;
    case WB__JL_LIST: case WB__JL_TUPLE: case WB__JL_DICT: return WB__FLUX_LIST;
    case WB__JL_FUNCTION:
        return wb__flux_function(v) || !strcmp(wb__jl_last(v), "flatten") ? WB__FLUX_LAYER
                                                                          : WB__FLUX_UNKNOWN;
    case WB__JL_STRUCT:
        if (wb__jl_named_tuple(v)) return WB__FLUX_LIST;
        if (wb__jl_array_of(&t->r->f, v, &a)) return WB__FLUX_ARRAY;
        f = wb__flux_unbroadcast(t->r, v);
        if (f.kind == WB__JL_FUNCTION) return WB__FLUX_LAYER;
        return wb__flux_known(v) ? WB__FLUX_LAYER : WB__FLUX_UNKNOWN;
    default: return WB__FLUX_UNKNOWN;
    }
}

/* Whether the outline has a row for v, a part of `of`.  Options and functions of a layer, and
 * numbers and strings in a tuple or list, have none. */
static bool outline_is_shown(outline_text *t, const wb__jl *of, const wb__jl *v, int kind)
{
    bool layer = of->kind == WB__JL_STRUCT && wb__flux_known(of);
    if (kind == WB__FLUX_VALUE)
        return !layer && of->kind != WB__JL_TUPLE && of->kind != WB__JL_LIST &&
               v->kind != WB__JL_OTHER;
    if (v->kind == WB__JL_FUNCTION) return !layer;
    if (layer && v->kind == WB__JL_TUPLE) return outline_bytes_in(&t->r->f, v, t->r->depth) > 0;
    if (v->kind == WB__JL_STRUCT && !wb__bson_count(&t->r->f, v->items))
        return !layer && kind == WB__FLUX_LAYER;
    return true;
}

static int outline_add_fields(outline_text *t, const wb__jl *v, int depth)
{
    wb__flux_reader *r = t->r;
    wb__jl_fields w;
    if (v->shared && !wb__bson_spend(&r->f, v->items.bytes)) return r->f.status;
    bool layers = wb__flux_contains(v);
    for (wb__jl_fields_of(&r->f, v, &w);
         !r->f.status && !t->status && wb__jl_fields_next(&r->f, &w);) {
        size_t back;
        if (!wb__flux_enter(r, w.name, &back)) break;
        if (layers && !strcmp(w.name, "layers")) outline_add_fields(t, &w.value, depth);
        else if (outline_is_shown(t, v, &w.value, outline_kind_of(t, &w.value)))
            outline_add_value(t, &w.value, depth, w.name);
        wb__flux_leave(r, back);
    }
    return r->f.status ? r->f.status : t->status;
}

static int outline_add_value(outline_text *t, const wb__jl *v, int depth, const char *name)
{
    wb__bson_file *f = &t->r->f;
    wb__jl_array a;
    char type[2 * WB__JL_NAME], value[WB__JL_NAME];
    wb__flux_row row = {
        .depth = depth, .path = t->r->path, .name = name, .type = type, .kind = outline_kind_of(t,
                                                                                                v)};
    wb__jl shown = wb__flux_unbroadcast(t->r, v);
    wb__jl_type_text(f, &shown, type, sizeof type);
    if (row.kind == WB__FLUX_ARRAY && wb__jl_array_of(f, v, &a)) {
        row.dtype = a.dtype;
        row.ndim = a.ndim;
        memcpy(row.dims, a.dims, sizeof row.dims);
    } else if (row.kind == WB__FLUX_VALUE) {
        row.value = outline_value_text(v, value, sizeof value);
    } else if (wb__jl_may_hold_arrays(v)) {
        row.fields = wb__jl_count(f, v);
        row.value = activation_text(f, v, value, sizeof value);
    }
    row.bytes = outline_bytes_in(f, v, t->r->depth);
    if (f->status) return f->status;
    if (!wb__bson_spend(f, v->shared ? (int64_t)t->r->path_length : 0)) return f->status;
    t->status = t->row(&row, t->ctx);
    if (t->status || row.kind == WB__FLUX_ARRAY || row.kind == WB__FLUX_VALUE ||
        !wb__jl_may_hold_arrays(v))
        return t->status;
    return outline_add_fields(t, v, depth + 1);
}

int wb__flux_outline(const wb__mapping *m, int (*row)(const wb__flux_row *, void *ctx), void *ctx)
{
    wb__flux_reader *r = wb__alloc_zero(1, sizeof *r);
    if (!r) return WB_ERROR_MEMORY;
    outline_text t = {.r = r, .row = row, .ctx = ctx};
    if (!wb__bson_open(&r->f, m)) {
        wb__jl root = {.kind = WB__JL_DICT, .items = r->f.root};
        wb__jl_fields w;
        for (wb__jl_fields_of(&r->f, &root, &w);
             !r->f.status && !t.status && wb__jl_fields_next(&r->f, &w);) {
            size_t back;
            if (!strcmp(w.name, "_backrefs") || !wb__flux_enter(r, w.name, &back)) continue;
            outline_add_value(&t, &w.value, 0, w.name);
            wb__flux_leave(r, back);
        }
    }
    int status = r->f.status ? r->f.status : t.status;
    wb__bson_close(&r->f);
    wb__free(r);
    return status;
}
