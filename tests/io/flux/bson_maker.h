/* Makes BSON documents in the form of BSON.jl, for tests.  Each call adds one value of Julia: to
 * the innermost open document, under the key that bm_key set, or to the end of the innermost open
 * list. */
#ifndef BSON_MAKER_H
#define BSON_MAKER_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint8_t *bytes;
    size_t n, capacity;
    size_t *open;                   /* offset of each open document or list in `bytes` */
    int *next, depth, deepest;      /* next: index of a list's next element; -1: a document */
    const char *key;
    double value;                   /* of the next element that bm_array writes */
} bson_maker;

static inline void bm_raw(bson_maker *m, const void *bytes, size_t n)
{
    while (m->n + n > m->capacity)
        m->bytes = realloc(m->bytes, m->capacity = 2 * m->capacity + 4096);
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static inline void bm_i32(bson_maker *m, int32_t v) { bm_raw(m, &v, 4); }

static inline void bm_element(bson_maker *m, int type)
{
    char place[16], code = (char)type;
    const char *key = m->key;
    if (m->next[m->depth] >= 0) {
        snprintf(place, sizeof place, "%d", m->next[m->depth]++);
        key = place;
    }
    bm_raw(m, &code, 1);
    bm_raw(m, key, strlen(key) + 1);
}

static inline void bm_key(bson_maker *m, const char *key) { m->key = key; }

static inline void bm_open(bson_maker *m, int type)
{
    if (m->depth || m->n) bm_element(m, type);
    if (++m->depth >= m->deepest) {
        m->deepest = 2 * m->deepest + 64;
        m->open = realloc(m->open, (size_t)m->deepest * sizeof *m->open);
        m->next = realloc(m->next, (size_t)m->deepest * sizeof *m->next);
    }
    m->open[m->depth] = m->n;
    m->next[m->depth] = type == 4 ? 0 : -1;
    bm_i32(m, 0);
}
static inline void bm_document(bson_maker *m) { bm_open(m, 3); }
static inline void bm_list(bson_maker *m) { bm_open(m, 4); }

static inline void bm_close(bson_maker *m)
{
    bm_raw(m, "", 1);
    int32_t size = (int32_t)(m->n - m->open[m->depth]);
    memcpy(m->bytes + m->open[m->depth--], &size, 4);
}

static inline void bm_text(bson_maker *m, const char *text)
{
    bm_element(m, 2);
    bm_i32(m, (int32_t)strlen(text) + 1);
    bm_raw(m, text, strlen(text) + 1);
}
static inline void bm_integer(bson_maker *m, int64_t v) { bm_element(m, 0x12), bm_raw(m, &v, 8); }
static inline void bm_real(bson_maker *m, double v) { bm_element(m, 1), bm_raw(m, &v, 8); }
static inline void bm_bool(bson_maker *m, int v) { bm_element(m, 8), bm_raw(m, v ? "\1" : "", 1); }
static inline void bm_null(bson_maker *m) { bm_element(m, 10); }
static inline void bm_binary(bson_maker *m, const void *bytes, size_t n)
{
    bm_element(m, 5);
    bm_i32(m, (int32_t)n);
    bm_raw(m, "", 1);
    bm_raw(m, bytes, n);
}

/* Closes what is open.  The document's bytes are valid until bm_free. */
static inline void bm_finish(bson_maker *m)
{
    while (m->depth) bm_close(m);
}
static inline void bm_free(bson_maker *m)
{
    free(m->bytes), free(m->open), free(m->next);
    *m = (bson_maker){0};
}

static inline void bm_tag(bson_maker *m, const char *tag)
{
    bm_document(m);
    bm_key(m, "tag");
    bm_text(m, tag);
}

static inline void bm_names(bson_maker *m, const char *dotted)
{
    bm_list(m);
    while (*dotted) {
        char part[100];
        size_t n = *dotted == '#' ? strlen(dotted) : strcspn(dotted, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, dotted);
        bm_text(m, part);
        dotted += n + (dotted[n] == '.');
    }
    bm_close(m);
}

/* "Main.Flux.Dense": {tag: datatype, params: [], name: [Main, Flux, Dense]} */
static inline void bm_type(bson_maker *m, const char *dotted)
{
    bm_tag(m, "datatype");
    bm_key(m, "params");
    bm_list(m);
    bm_close(m);
    bm_key(m, "name");
    bm_names(m, dotted);
    bm_close(m);
}

/* Begins a struct.  The caller adds its fields, then calls bm_end. */
static inline void bm_struct(bson_maker *m, const char *dotted)
{
    bm_tag(m, "struct");
    bm_key(m, "type");
    bm_type(m, dotted);
    bm_key(m, "data");
    bm_list(m);
}
static inline void bm_tuple(bson_maker *m)
{
    bm_tag(m, "tuple");
    bm_key(m, "data");
    bm_list(m);
}
static inline void bm_end(bson_maker *m) { bm_close(m), bm_close(m); }

static inline void bm_symbol(bson_maker *m, const char *name)
{
    bm_tag(m, "symbol");
    bm_key(m, "name");
    bm_text(m, name);
    bm_close(m);
}

/* A function, for instance "NNlib.#relu". */
static inline void bm_function(bson_maker *m, const char *dotted)
{
    bm_struct(m, dotted), bm_end(m);
}

static inline void bm_closure(bson_maker *m, const char *name)
{
    bm_tag(m, "struct");
    bm_key(m, "type");
    bm_tag(m, "jl_anonymous");
    bm_key(m, "params");
    bm_list(m);
    bm_close(m);
    bm_key(m, "typename");
    bm_struct(m, "Core.TypeName");
    bm_text(m, "1.6.0");
    bm_symbol(m, name);
    bm_end(m);
    bm_close(m);
    bm_key(m, "data");
    bm_list(m);
}

/* Begins a NamedTuple with n names.  The caller adds its values, then calls bm_end. */
static inline void bm_named(bson_maker *m, int n, ...)
{
    va_list names;
    bm_tag(m, "struct");
    bm_key(m, "type");
    bm_tag(m, "datatype");
    bm_key(m, "name");
    bm_names(m, "Main.Core.NamedTuple");
    bm_key(m, "params");
    bm_list(m);
    bm_tuple(m);
    va_start(names, n);
    for (int i = 0; i < n; i++) bm_symbol(m, va_arg(names, const char *));
    va_end(names);
    bm_end(m);
    bm_type(m, "Core.Tuple");
    bm_close(m);
    bm_close(m);
    bm_key(m, "data");
    bm_list(m);
}

static inline void bm_ref(bson_maker *m, int64_t k)
{
    bm_tag(m, "backref");
    bm_key(m, "ref");
    bm_integer(m, k);
    bm_close(m);
}

static inline void bm_float(bson_maker *m, float v)
{
    bm_tag(m, "struct");
    bm_key(m, "type");
    bm_type(m, "Core.Float32");
    bm_key(m, "data");
    bm_binary(m, &v, 4);
    bm_close(m);
}

static inline void bm_integers(bson_maker *m, int n, ...)
{
    va_list list;
    bm_tuple(m);
    va_start(list, n);
    for (int i = 0; i < n; i++) bm_integer(m, va_arg(list, int));
    va_end(list);
    bm_end(m);
}

/* An array of this element type, sizes and n bytes, which need not fit one another. */
static inline void bm_bytes(bson_maker *m, const char *type, int ndim, const int64_t *sizes,
                            const void *data, size_t n)
{
    bm_tag(m, "array");
    bm_key(m, "type");
    bm_type(m, type);
    bm_key(m, "size");
    bm_list(m);
    for (int i = 0; i < ndim; i++) bm_integer(m, sizes[i]);
    bm_close(m);
    bm_key(m, "data");
    bm_binary(m, data, n);
    bm_close(m);
}

/* A Float32 array of these sizes in Julia's order.  Its elements count up from m->value in the
 * order of memory. */
static inline void bm_array(bson_maker *m, int ndim, ...)
{
    int64_t sizes[8], n = 1;
    va_list list;
    va_start(list, ndim);
    for (int i = 0; i < ndim; i++) n *= sizes[i] = va_arg(list, int);
    va_end(list);
    float *data = malloc((size_t)n * sizeof *data + 1);
    for (int64_t i = 0; i < n; i++) data[i] = (float)m->value++;
    bm_bytes(m, "Main.Core.Float32", ndim, sizes, data, (size_t)n * sizeof *data);
    free(data);
}

#endif
