/* Protobuf's wire format.  See protobuf.h. */
#include "io/protobuf.h"

#include <stdio.h>
#include <string.h>

enum { VARINT_MOST = 10, NUMBER_MOST = (1 << 29) - 1 };

int wb__wire_fail(wb__wire *w, const uint8_t *at, const char *format, ...)
{
    char reason[512];
    va_list arguments;
    if (w->status) return w->status;
    w->status = WB_ERROR_FORMAT;
    if (!w->file) return w->status;
    va_start(arguments, format);
    wb__plain_list(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return wb__fail(w->status, "%s: byte %lld: %s", w->file->path,
                    (long long)(at - w->file->data), reason);
}

static bool protobuf_read_varint(wb__wire *w, uint64_t *value)
{
    const uint8_t *from = w->at;
    *value = 0;
    for (int i = 0; i < VARINT_MOST && w->at < w->end; i++) {
        const uint8_t byte = *w->at++;
        if (i == VARINT_MOST - 1 && byte > 1) break;
        *value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) return true;
    }
    if (w->at == w->end && w->end - from < VARINT_MOST)
        wb__wire_fail(w, from, "the message ends inside a number");
    else
        wb__wire_fail(w, from, "a number has more than 64 bits");
    return false;
}

static bool protobuf_read_fixed(wb__wire *w, size_t n, uint64_t *value)
{
    if ((size_t)(w->end - w->at) < n)
        return wb__wire_fail(w, w->at, "the message ends inside a number of %zu bytes", n), false;
    *value = 0;
    for (size_t i = 0; i < n; i++) *value |= (uint64_t)w->at[i] << (8 * i);
    w->at += n;
    return true;
}

bool wb__wire_number(wb__wire *list, wb__wire_kind kind, uint64_t *value)
{
    if (list->at == list->end || list->status) return false;
    return kind == WB__WIRE_VARINT
               ? protobuf_read_varint(list, value)
               : protobuf_read_fixed(list, kind == WB__WIRE_FIXED64 ? 8 : 4, value);
}

/* Sets the value of a field whose number and kind are known. */
static bool protobuf_read_value(wb__wire *w, wb__wire_field *f)
{
    uint64_t n;
    switch (f->kind) {
    case WB__WIRE_VARINT:
    case WB__WIRE_FIXED64:
    case WB__WIRE_FIXED32:
        f->bytes = w->at;
        if (w->at == w->end)
            return wb__wire_fail(w, f->at, "field %u has no value", f->number), false;
        if (!wb__wire_number(w, f->kind, &f->value)) return false;
        f->n = (size_t)(w->at - f->bytes);
        return true;
    case WB__WIRE_BYTES:
        if (!protobuf_read_varint(w, &n)) return false;
        if (n > (uint64_t)(w->end - w->at))
            return wb__wire_fail(w, f->at,
                                 "field %u has %llu bytes; the message ends after %lld of them",
                                 f->number, (unsigned long long)n, (long long)(w->end - w->at)),
                   false;
        f->bytes = w->at;
        f->n = (size_t)n;
        w->at += n;
        return true;
    }
    return wb__wire_fail(w, f->at, "field %u has kind %d, which is %s", f->number, (int)f->kind,
                         (int)f->kind == 3 || (int)f->kind == 4 ? "a group; groups are not read"
                                                          : "none of protobuf's"), false;
}

bool wb__wire_next(wb__wire *w, wb__wire_field *f)
{
    uint64_t tag;
    if (w->status || w->at == w->end) return false;
    *f = (wb__wire_field){.at = w->at};
    if (!protobuf_read_varint(w, &tag)) return false;
    if (tag >> 3 > NUMBER_MOST || !(tag >> 3))
        return wb__wire_fail(w, f->at, "a field has number %llu", (unsigned long long)(tag >> 3)),
               false;
    f->number = (uint32_t)(tag >> 3);
    f->kind = (wb__wire_kind)(tag & 7);
    return protobuf_read_value(w, f);
}

static bool protobuf_has_kind(wb__wire *w, const wb__wire_field *f, wb__wire_kind kind)
{
    static const char *const names[] = {"a number", "8 bytes", "text or a message", "", "",
                                        "4 bytes"};
    if (f->kind == kind) return true;
    wb__wire_fail(w, f->at, "field %u has %s instead of %s", f->number, names[f->kind],
                  names[kind]);
    return false;
}

bool wb__wire_int(wb__wire *w, const wb__wire_field *f, int64_t *value)
{
    if (!protobuf_has_kind(w, f, WB__WIRE_VARINT)) return false;
    *value = (int64_t)f->value;
    return true;
}

bool wb__wire_float(wb__wire *w, const wb__wire_field *f, float *value)
{
    const uint32_t bits = (uint32_t)f->value;
    if (!protobuf_has_kind(w, f, WB__WIRE_FIXED32)) return false;
    memcpy(value, &bits, sizeof *value);
    return true;
}

bool wb__wire_bytes(wb__wire *w, const wb__wire_field *f, wb__span *value)
{
    if (!protobuf_has_kind(w, f, WB__WIRE_BYTES)) return false;
    *value = (wb__span){(const char *)f->bytes, f->n};
    return true;
}

bool wb__wire_text(wb__wire *w, const wb__wire_field *f, wb__span *value)
{
    if (!wb__wire_bytes(w, f, value)) return false;
    if (!value->n || !memchr(value->at, 0, value->n)) return true;
    wb__wire_fail(w, f->at, "the text of field %u has a zero byte", f->number);
    return false;
}

bool wb__wire_message(wb__wire *w, const wb__wire_field *f, wb__wire *inside)
{
    if (!protobuf_has_kind(w, f, WB__WIRE_BYTES)) return false;
    *inside = wb__wire_of(w->file, f->bytes, f->n);
    return true;
}

bool wb__wire_list(wb__wire *w, const wb__wire_field *f, wb__wire_kind kind, wb__wire *list)
{
    if (f->kind != WB__WIRE_BYTES && !protobuf_has_kind(w, f, kind)) return false;
    *list = wb__wire_of(w->file, f->bytes, f->n);
    return true;
}

int64_t wb__wire_count(const wb__wire *list, wb__wire_kind kind)
{
    const int64_t n = list->end - list->at;
    int64_t count = 0;
    if (kind == WB__WIRE_FIXED64) return (n + 7) / 8;
    if (kind == WB__WIRE_FIXED32) return (n + 3) / 4;
    for (int64_t i = 0; i < n; i++) count += !(list->at[i] & 0x80);
    return count + (n && list->at[n - 1] & 0x80);       /* one that does not end */
}

/* Returns the address of n more bytes, which it reserves; NULL after a failure. */
static uint8_t *protobuf_reserve(wb__wire_out *o, size_t n)
{
    if (o->failed) return NULL;
    if (n > o->capacity - o->n) {
        const size_t capacity = o->capacity + WB__MAX(WB__MAX(n, o->capacity), 64);
        uint8_t *data = n > SIZE_MAX / 4 || o->capacity > SIZE_MAX / 4
                            ? NULL
                            : wb__realloc(o->data, capacity);
        if (!data) return o->failed = true, NULL;
        o->data = data;
        o->capacity = capacity;
    }
    uint8_t *to = o->data + o->n;
    o->n += n;
    return to;
}

static size_t protobuf_varint_bytes(uint64_t value)
{
    size_t n = 1;
    while (value >>= 7) n++;
    return n;
}

static void protobuf_encode_varint(uint8_t *to, uint64_t value)
{
    for (; value >> 7; value >>= 7) *to++ = (uint8_t)(value | 0x80);
    *to = (uint8_t)value;
}

static void protobuf_put_varint(wb__wire_out *o, uint64_t value)
{
    uint8_t *to = protobuf_reserve(o, protobuf_varint_bytes(value));
    if (to) protobuf_encode_varint(to, value);
}

static void protobuf_put_tag(wb__wire_out *o, uint32_t number, wb__wire_kind kind)
{
    protobuf_put_varint(o, (uint64_t)number << 3 | (uint64_t)kind);
}

static void protobuf_put_bits(wb__wire_out *o, size_t n, uint64_t bits)
{
    uint8_t *to = protobuf_reserve(o, n);
    for (size_t i = 0; to && i < n; i++) to[i] = (uint8_t)(bits >> (8 * i));
}

static uint32_t protobuf_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void wb__wire_put_int(wb__wire_out *o, uint32_t number, int64_t value)
{
    protobuf_put_tag(o, number, WB__WIRE_VARINT);
    protobuf_put_varint(o, (uint64_t)value);
}

void wb__wire_put_fixed(wb__wire_out *o, uint32_t number, wb__wire_kind kind, uint64_t bits)
{
    protobuf_put_tag(o, number, kind);
    protobuf_put_bits(o, kind == WB__WIRE_FIXED64 ? 8 : 4, bits);
}

void wb__wire_put_float(wb__wire_out *o, uint32_t number, float value)
{
    wb__wire_put_fixed(o, number, WB__WIRE_FIXED32, protobuf_bits_of(value));
}

void wb__wire_put_length(wb__wire_out *o, uint32_t number, uint64_t n)
{
    protobuf_put_tag(o, number, WB__WIRE_BYTES);
    protobuf_put_varint(o, n);
}

void wb__wire_put_raw(wb__wire_out *o, const void *data, size_t n)
{
    uint8_t *to = protobuf_reserve(o, n);
    if (to && n) memcpy(to, data, n);
}

void wb__wire_put_bytes(wb__wire_out *o, uint32_t number, const void *data, size_t n)
{
    wb__wire_put_length(o, number, n);
    wb__wire_put_raw(o, data, n);
}

void wb__wire_put_text(wb__wire_out *o, uint32_t number, const char *text)
{
    wb__wire_put_bytes(o, number, text, strlen(text));
}

void wb__wire_put_ints(wb__wire_out *o, uint32_t number, int n, const int64_t *values)
{
    const size_t begun = wb__wire_begin(o, number);
    for (int i = 0; i < n; i++) protobuf_put_varint(o, (uint64_t)values[i]);
    wb__wire_end(o, begun);
}

void wb__wire_put_floats(wb__wire_out *o, uint32_t number, int n, const float *values)
{
    const size_t begun = wb__wire_begin(o, number);
    for (int i = 0; i < n; i++) protobuf_put_bits(o, 4, protobuf_bits_of(values[i]));
    wb__wire_end(o, begun);
}

size_t wb__wire_begin(wb__wire_out *o, uint32_t number)
{
    protobuf_put_tag(o, number, WB__WIRE_BYTES);
    return o->n;
}

/* Writes the length of a message before the message, which is moved back to make space. */
void wb__wire_end(wb__wire_out *o, size_t begun)
{
    const size_t n = o->n - begun, each = protobuf_varint_bytes(n);
    if (!protobuf_reserve(o, each)) return;
    memmove(o->data + begun + each, o->data + begun, n);
    protobuf_encode_varint(o->data + begun, n);
}

void wb__wire_free(wb__wire_out *o)
{
    wb__free(o->data);
    *o = (wb__wire_out){0};
}
