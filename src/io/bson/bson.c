/* Walks over BSON with libbson's iterators, which stay within the bytes of a document. */
#include "io/bson/bson.h"

#include "base/packages.h"

#include <stdio.h>
#include <string.h>

#ifdef WB_HAVE_BSON
#include <bson/bson.h>
#endif

/* ---- errors ---------------------------------------------------------------------------------- */

int wb__bson_fail(wb__bson_file *f, const void *at, const char *format, ...)
{
    char reason[1024];
    va_list arguments;
    if (f->status) return f->status;
    va_start(arguments, format);
    wb__plain_list(reason, sizeof reason, format, arguments);
    va_end(arguments);
    if (at) f->status = wb__map_fail(f->map, (const uint8_t *)at - f->map->data, "%s", reason);
    else f->status = wb__fail(WB_ERROR_FORMAT, "%s: %s", f->map->path, reason);
    return f->status;
}

bool wb__bson_spend(wb__bson_file *f, int64_t n)
{
    if (f->status) return false;
    f->unfold_left -= n;
    if (f->unfold_left >= 0) return true;
    wb__bson_fail(f, NULL,
                  "refers to its own parts so often that it would unfold to many times its size");
    return false;
}

wb__bson_walk wb__bson_walk_of(wb__bson doc)
{
    return (wb__bson_walk){.of = doc, .next = 4};
}

#ifdef WB_HAVE_BSON

static wb__bson bson_value_of(const bson_iter_t *at)
{
    wb__bson v = {.kind = (uint8_t)bson_iter_type(at)};
    bson_subtype_t subtype;
    switch (v.kind) {
    case WB__BSON_DOUBLE: v.real = bson_iter_double(at); break;
    case WB__BSON_STRING: v.at = (const uint8_t *)bson_iter_utf8(at, &v.bytes); break;
    case WB__BSON_DOCUMENT: bson_iter_document(at, &v.bytes, &v.at); break;
    case WB__BSON_ARRAY: bson_iter_array(at, &v.bytes, &v.at); break;
    case WB__BSON_BINARY: bson_iter_binary(at, &subtype, &v.bytes, &v.at); break;
    case WB__BSON_BOOL: v.integer = bson_iter_bool(at); break;
    case WB__BSON_INT32: v.integer = bson_iter_int32(at); break;
    case WB__BSON_INT64: v.integer = bson_iter_int64(at); break;
    case WB__BSON_NULL: break;
    default: v.kind = WB__BSON_ABSENT;
    }
    return v;
}

bool wb__bson_next(wb__bson_file *f, wb__bson_walk *w)
{
    bool list = w->of.kind == WB__BSON_DOCUMENT || w->of.kind == WB__BSON_ARRAY;
    if (f->status || !list) return false;
    if (f->steps-- <= 0) {
        wb__bson_fail(f, NULL, "refers to its own parts so often that reading it would not end");
        return false;
    }
    const uint8_t *end = w->of.at + w->of.bytes, *here = w->of.at + w->next;
    if (w->of.bytes < 5 || here >= end) {
        wb__bson_fail(f, w->of.at, "a document without an end");
        return false;
    }
    if (here == end - 1 && !*here) return false;
    bson_iter_t at;
    if (!bson_iter_init_from_data_at_offset(&at, w->of.at, w->of.bytes, w->next, 0)) {
        wb__bson_fail(f, here, "no BSON: the element of type 0x%02x there is cut short, or BSON "
                      "has no such", *here);
        return false;
    }
    w->key = bson_iter_key(&at);
    w->value = bson_value_of(&at);
    w->next = at.next_off;
    if (!w->value.kind) {
        wb__bson_fail(f, here, "an element of type 0x%02x, which BSON.jl does not write", *here);
        return false;
    }
    return true;
}

static bool bson_printable(const char *text, uint32_t bytes)
{
    return bson_utf8_validate(text, bytes, false);
}

#else

bool wb__bson_next(wb__bson_file *f, wb__bson_walk *w)
{
    (void)f, (void)w;
    return false;
}

static bool bson_printable(const char *text, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        if ((uint8_t)text[i] >= 0x80) return false;
    return true;
}

#endif

wb__bson wb__bson_get(wb__bson_file *f, wb__bson doc, const char *key)
{
    for (wb__bson_walk w = wb__bson_walk_of(doc); wb__bson_next(f, &w);)
        if (!strcmp(w.key, key)) return w.value;
    return (wb__bson){0};
}

wb__bson wb__bson_at(wb__bson_file *f, wb__bson doc, int i)
{
    for (wb__bson_walk w = wb__bson_walk_of(doc); wb__bson_next(f, &w);)
        if (!i--) return w.value;
    return (wb__bson){0};
}

int wb__bson_count(wb__bson_file *f, wb__bson doc)
{
    int n = 0;
    for (wb__bson_walk w = wb__bson_walk_of(doc); wb__bson_next(f, &w);) n++;
    return n;
}

bool wb__bson_equals(wb__bson v, const char *text)
{
    return v.kind == WB__BSON_STRING && v.bytes == strlen(text) && !memcmp(v.at, text, v.bytes);
}

bool wb__bson_integer(wb__bson v, int64_t *out)
{
    *out = v.integer;
    return v.kind == WB__BSON_INT32 || v.kind == WB__BSON_INT64;
}

bool wb__bson_number(wb__bson v, double *out)
{
    int64_t integer;
    bool whole = wb__bson_integer(v, &integer);
    *out = whole ? (double)integer : v.real;
    return whole || v.kind == WB__BSON_DOUBLE;
}

void wb__bson_text(wb__bson v, char *out, size_t size)
{
    size_t n = v.kind == WB__BSON_STRING ? WB__MIN(v.bytes, size - 1) : 0;
    if (n < v.bytes)
        while (n && (v.at[n] & 0xc0) == 0x80) n--;      /* not within a character */
    if (n) memcpy(out, v.at, n);
    out[n] = 0;
    bool whole = bson_printable(out, (uint32_t)n);
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)out[i] < ' ' || out[i] == 0x7f || (!whole && (uint8_t)out[i] >= 0x80))
            out[i] = '?';
}

#ifdef WB_HAVE_BSON

/* Sets f->ref_at to the offsets of the entries of "_backrefs", so that wb__bson_ref needs no
 * walk. */
static int bson_find_references(wb__bson_file *f)
{
    f->refs = wb__bson_get(f, f->root, "_backrefs");
    if (f->status || !f->refs.kind) return f->status;
    if (f->refs.kind != WB__BSON_ARRAY)
        return wb__bson_fail(f, f->refs.at, "\"_backrefs\" is no list");
    int n = wb__bson_count(f, f->refs);
    if (f->status) return f->status;
    f->ref_at = wb__alloc_zero((size_t)n + 1, sizeof *f->ref_at);
    if (!f->ref_at) return f->status = WB_ERROR_MEMORY;
    wb__bson_walk w = wb__bson_walk_of(f->refs);
    for (uint32_t at = w.next; f->n_refs < n && wb__bson_next(f, &w); at = w.next)
        f->ref_at[f->n_refs++] = at;
    return f->status;
}

int wb__bson_open(wb__bson_file *f, const wb__mapping *m)
{
    *f = (wb__bson_file){.map = m,
                         .steps = 100 * m->bytes + 10000,
                         .unfold_left = 4 * m->bytes + 10000};
    if (m->bytes < 5)
        return wb__bson_fail(f, NULL, "no BSON: %lld bytes, the least are 5", (long long)m->bytes);
    const uint8_t *at = m->data;
    int64_t length = (int32_t)(at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24);
    if (length != m->bytes)
        return wb__bson_fail(f, NULL, "%s: the file has %lld bytes, its document says %lld",
                             m->bytes < length ? "cut short" : "no BSON", (long long)m->bytes,
                             (long long)length);
    f->root = (wb__bson){.at = at, .bytes = (uint32_t)m->bytes, .kind = WB__BSON_DOCUMENT};
    return bson_find_references(f);
}

#else

int wb__bson_open(wb__bson_file *f, const wb__mapping *m)
{
    *f = (wb__bson_file){.map = m};
    return f->status = wb__package_missing(WB__PACKAGE_BSON, m->path, NULL);
}

#endif

void wb__bson_close(wb__bson_file *f)
{
    wb__free(f->ref_at);
    f->ref_at = NULL;
}

wb__bson wb__bson_ref(wb__bson_file *f, int64_t k)
{
    if (f->status) return (wb__bson){0};
    if (k < 1 || k > f->n_refs) {
        wb__bson_fail(f, NULL, "refers to entry %lld of \"_backrefs\", which has %d", (long long)k,
                      f->n_refs);
        return (wb__bson){0};
    }
    wb__bson_walk w = {.of = f->refs, .next = f->ref_at[k - 1]};
    return wb__bson_next(f, &w) ? w.value : (wb__bson){0};
}
