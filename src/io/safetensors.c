/* Reading and writing safetensors.  JSON is jansson's, which takes its memory from malloc: its
 * allocator is one for the whole process, so it is left as the program has it. */
#include "io/safetensors.h"

#include "io/checksums.h"
#include "io/json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_MOST = 100000000, HEADER_BEGINS = 8 };

#define NAMES(X) X(F64) X(F32) X(F16) X(BF16) X(I64) X(I32) X(I8) X(U8) X(BOOL)
#define ROW(name) {#name, WB_##name},
static const struct { const char *name; wb_dtype dtype; } dtypes[] = {NAMES(ROW)};
#undef ROW

static wb_dtype dtype_named(const char *name)
{
    for (size_t i = 0; i < WB__COUNT(dtypes); i++)
        if (!strcmp(dtypes[i].name, name)) return dtypes[i].dtype;
    return WB_DTYPE_DEFAULT;
}

static const char *name_of(wb_dtype dtype)
{
    for (size_t i = 0; i < WB__COUNT(dtypes); i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    return "";
}

/* ---- the header ------------------------------------------------------------------------------ */

static int bad(const wb__reader *r, const char *name, const char *reason)
{
    return wb__reader_fail_at(r, HEADER_BEGINS, "tensor \"%.200s\": %s", name, reason);
}

static int parse_shape(const wb__reader *r, json_t *shape, wb__entry *t)
{
    size_t n = json_array_size(shape);
    if (!json_is_array(shape)) return bad(r, t->name, "has no shape");
    if (n > WB_MAX_DIMS) return bad(r, t->name, "has more than 8 dimensions");
    uint64_t elements = 1;
    bool empty = false;
    t->ndim = (int)n;
    for (size_t i = 0; i < n; i++) {
        json_t *d = json_array_get(shape, i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return bad(r, t->name, "has a wrong dimension");
        t->dims[i] = json_integer_value(d);
        if (!t->dims[i]) empty = true;
        else if (elements > UINT32_MAX / (uint64_t)t->dims[i]) elements = (uint64_t)UINT32_MAX + 1;
        else elements *= (uint64_t)t->dims[i];
    }
    if (empty) elements = 0;
    if (elements > UINT32_MAX) return bad(r, t->name, "has 2^32 elements or more");
    if ((uint64_t)t->bytes != elements * wb__dtype_size(t->dtype))
        return bad(r, t->name, "its shape and its place do not agree");
    return 0;
}

static int parse_tensor(const wb__reader *r, const char *name, json_t *info, wb__entry *t)
{
    json_t *dtype = json_object_get(info, "dtype"),
           *offsets = json_object_get(info, "data_offsets");
    if (!json_is_object(info) || json_object_size(info) != 3)
        return bad(r, name, "wants dtype, shape and data_offsets");
    if (!json_is_string(dtype)) return bad(r, name, "has no dtype");
    t->dtype = dtype_named(json_string_value(dtype));
    snprintf(t->type, sizeof t->type, "%s", json_string_value(dtype));
    if (!t->dtype)
        return wb__reader_fail_at(r, HEADER_BEGINS, "tensor \"%.200s\": unknown dtype \"%.40s\"",
                                  name, json_string_value(dtype));
    json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return bad(r, name, "has a wrong place");
    t->begin = json_integer_value(begin);
    t->bytes = json_integer_value(end) - t->begin;
    return parse_shape(r, json_object_get(info, "shape"), t);
}

static int parse_notes(const wb__reader *r, json_t *notes, wb__table *st)
{
    const char *key;
    json_t *value;
    if (!json_is_object(notes))
        return wb__reader_fail_at(r, HEADER_BEGINS, "__metadata__ is not an object");
    json_object_foreach(notes, key, value) {
        if (!json_is_string(value))
            return wb__reader_fail_at(r, HEADER_BEGINS, "__metadata__ holds more than text");
        int status = wb__table_add_note(st, key, json_string_value(value));
        if (status) return status;
    }
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const wb__entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1) : strcmp(x->name, y->name);
}

static int parse(const wb__reader *r, json_t *header, wb__table *st)
{
    const char *key;
    json_t *value;
    int status = 0;
    if (!json_is_object(header))
        return wb__reader_fail_at(r, HEADER_BEGINS, "the header is not an object");
    json_object_foreach(header, key, value) {
        wb__entry *t = NULL;
        if (!strcmp(key, "__metadata__")) status = parse_notes(r, value, st);
        else if ((t = wb__table_add(st, key))) status = parse_tensor(r, key, value, t);
        else status = WB_ERROR_MEMORY;
        if (status) return status;
    }
    if (st->n) qsort(st->entries, (size_t)st->n, sizeof *st->entries, by_place);
    int64_t end = 0;
    for (int i = 0; i < st->n; end += st->entries[i++].bytes)
        if (st->entries[i].begin != end)
            return bad(r, st->entries[i].name,
                       st->entries[i].begin < end ? "overlaps another" : "a hole is before it");
    return 0;
}

static int read_header(wb__reader *r, wb__table *st)
{
    uint8_t length[8];
    uint64_t n = 0;
    int status = wb__reader_exact(r, length, sizeof length, "the header's length");
    if (status) return status;
    for (int i = 0; i < 8; i++) n |= (uint64_t)length[i] << (8 * i);
    if (n < 2 || n > HEADER_MOST)
        return wb__reader_fail_at(r, 0, "a header of %llu bytes; 2 to %d are possible",
                                  (unsigned long long)n, HEADER_MOST);
    char *text = wb__reader_block(r, (int64_t)n, "the header");
    if (!text) return wb_error_code();
    json_error_t error;
    json_t *header =
        text[0] == '{' ? json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (header) {
        status = parse(r, header, st);
        if (!status) status = wb__sums_take(st, wb__reader_path(r), text, (size_t)n);
    } else if (text[0] != '{')
        status = wb__reader_fail_at(r, HEADER_BEGINS, "the header does not begin with {");
    else
        status =
            wb__reader_fail_at(r, HEADER_BEGINS + error.position, "the header: %s", error.text);
    json_decref(header);
    wb__free(text);
    return status;
}

/* ---- a file ---------------------------------------------------------------------------------- */

static int read_values(wb__reader *r, wb__table *st)
{
    for (int i = 0; i < st->n; i++) {
        wb__entry *t = &st->entries[i];
        uint8_t *bytes = wb__reader_block(r, t->bytes, "a tensor");
        if (!bytes) return wb_error_code();
        t->data = bytes;
        t->owned = true;
    }
    int status = wb__reader_end(r);
    if (!status) status = wb__sums_check(st, wb__reader_path(r));
    for (int i = 0; i < st->n; i++) {
        wb__entry *t = &st->entries[i];
        uint8_t *bytes = (uint8_t *)(uintptr_t)t->data;
        for (int64_t j = 0; t->dtype == WB_BOOL && j < t->bytes; j++) bytes[j] = bytes[j] != 0;
    }
    return status;
}

int wb__st_load(const char *path, bool values, wb__table *out)
{
    *out = (wb__table){0};
    wb__reader *r = wb__reader_open(path);
    if (!r) return wb_error_code();
    int status = read_header(r, out);
    if (!status && values) status = read_values(r, out);
    wb__reader_close(r);
    if (status) wb__table_free(out);
    else wb__table_sort(out);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Wider dtypes first, so that all stand aligned. */
static int by_width(const void *a, const void *b)
{
    const wb__st_out *x = a, *y = b;
    size_t wide_x = wb__dtype_size(x->dtype), wide_y = wb__dtype_size(y->dtype);
    return wide_x != wide_y ? (wide_x > wide_y ? -1 : 1) : strcmp(x->name, y->name);
}

static int set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) ? wb__fail(WB_ERROR_MEMORY, NULL) : 0;
}

static int describe(json_t *header, int n, const wb__st_out *tensors, int n_notes,
                    const wb__note *notes)
{
    char *blank = wb__sums_blank(n);
    json_t *object = json_object();
    int status = set(header, "__metadata__", object);
    if (!status) status = blank ? set(object, WB__SUMS_KEY, json_string(blank)) : WB_ERROR_MEMORY;
    wb__free(blank);
    for (int i = 0; !status && i < n_notes; i++)
        status = set(object, notes[i].key, json_string(notes[i].value));
    int64_t offset = 0;
    for (int i = 0; !status && i < n; i++) {
        const wb__st_out *t = &tensors[i];
        if (json_object_get(header, t->name))
            return wb__fail(WB_ERROR_ARGUMENT, "save: two tensors are named \"%s\"", t->name);
        json_t *shape = json_array();
        for (int d = 0; d < t->ndim; d++) json_array_append_new(shape, json_integer(t->dims[d]));
        json_t *info =
            json_pack("{s:s, s:o, s:[I,I]}", "dtype", name_of(t->dtype), "shape", shape,
                      "data_offsets", (json_int_t)offset, (json_int_t)(offset + t->bytes));
        status = set(header, t->name, info);
        offset += t->bytes;
    }
    return status;
}

/* With spaces behind it, so that the tensors begin at a multiple of eight. */
static char *padded_text(const json_t *header, size_t *length)
{
    char *text = wb__json_text(header);
    if (!text) return NULL;
    size_t n = strlen(text);
    char *padded = wb__realloc(text, *length = (n + 7) & ~(size_t)7);
    if (!padded) wb__free(text);
    else memset(padded + n, ' ', *length - n);
    return padded;
}

/* The header, then the tensors, whose sums are noted down on the way. */
static int put_all(wb__writer *w, wb__st_put put, const char *text, size_t length, int n,
                   const wb__st_out *tensors, uint32_t *sums)
{
    uint8_t bytes[HEADER_BEGINS];
    for (int i = 0; i < HEADER_BEGINS; i++) bytes[i] = (uint8_t)((uint64_t)length >> (8 * i));
    wb__writer_put(w, bytes, HEADER_BEGINS);
    wb__writer_put(w, text, (int64_t)length);
    wb__writer_sum(w);
    int status = 0;
    for (int i = 0; !status && i < n; i++) {
        const wb__st_out *t = &tensors[i];
        status = put ? put(w, t->data) : wb__writer_put(w, t->data, t->bytes);
        sums[i] = wb__writer_sum(w);
    }
    return status;
}

/* The sums stand in front of what they are of, so they are written last; where that cannot be, into a
 * pipe, all is written twice, at first to nowhere. */
static int write(wb__st_put put, const char *path, char *text, size_t length, int n,
                 const wb__st_out *tensors, uint32_t *sums)
{
    wb__writer *w = wb__writer_open(path);
    if (!w) return wb_error_code();
    int status = 0;
    if (!wb__writer_patches(w)) {
        wb__writer *nowhere = wb__writer_open("/dev/null");
        status = nowhere ? put_all(nowhere, put, text, length, n, tensors, sums) : (int)wb_error_code();
        wb__writer_drop(nowhere);
        wb__sums_fill(text, length, n, sums);
    }
    if (!status) status = put_all(w, put, text, length, n, tensors, sums);
    if (!status && wb__writer_patches(w)) {
        wb__sums_fill(text, length, n, sums);
        status = wb__writer_patch(w, HEADER_BEGINS, text, (int64_t)length);
    }
    if (!status) return wb__writer_close(w);
    wb__writer_drop(w);
    return status;
}

int wb__st_save(const char *path, int n, wb__st_out *tensors, int n_notes, const wb__note *notes)
{
    return wb__st_save_by(NULL, path, n, tensors, n_notes, notes);
}

int wb__st_save_by(wb__st_put put, const char *path, int n, wb__st_out *tensors, int n_notes,
                   const wb__note *notes)
{
    size_t length = 0;
    if (n > 1) qsort(tensors, (size_t)n, sizeof *tensors, by_width);
    json_t *header = json_object();
    int status =
        header ? describe(header, n, tensors, n_notes, notes) : wb__fail(WB_ERROR_MEMORY, NULL);
    char *text = status ? NULL : padded_text(header, &length);
    if (!status && !text) status = wb_error_code();
    json_decref(header);
    uint32_t *sums = status ? NULL : wb__alloc_zero((size_t)WB__MAX(n, 1), sizeof *sums);
    if (!status) status = sums ? write(put, path, text, length, n, tensors, sums) : WB_ERROR_MEMORY;
    wb__free(sums);
    wb__free(text);
    return status;
}
