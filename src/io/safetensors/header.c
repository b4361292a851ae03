/* Reads the header of a safetensors file, JSON of a fixed form, in one pass without a tree of
 * nodes.  Each error names its byte offset.
 *
 *   {"__metadata__": {"key": "text", ...},
 *    "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...} */
#include "io/safetensors/safetensors.h"

#include "io/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All dtypes of the format with their sizes in bits.  UNKNOWN: Weber lacks the dtype; I16, U16 and
 * U32 are widened (wb__st_narrow). */
#define UNKNOWN WB_DTYPE_DEFAULT
#define DTYPES(X)                                                                               \
    X(F64, 64, WB_F64) X(F32, 32, WB_F32) X(F16, 16, WB_F16) X(BF16, 16, WB_BF16)               \
    X(I64, 64, WB_I64) X(I32, 32, WB_I32) X(I8, 8, WB_I8) X(U8, 8, WB_U8) X(BOOL, 8, WB_BOOL)   \
    X(I16, 16, UNKNOWN) X(U16, 16, UNKNOWN) X(U32, 32, UNKNOWN) X(U64, 64, UNKNOWN)             \
    X(C64, 64, UNKNOWN) X(F4, 4, UNKNOWN) X(F6_E2M3, 6, UNKNOWN) X(F6_E3M2, 6, UNKNOWN)         \
    X(F8_E4M3, 8, UNKNOWN) X(F8_E5M2, 8, UNKNOWN) X(F8_E8M0, 8, UNKNOWN)                        \
    X(F8_E4M3FNUZ, 8, UNKNOWN) X(F8_E5M2FNUZ, 8, UNKNOWN)
typedef struct { const char *name; int bits; wb_dtype dtype; } known_dtype;
#define ROW(name, bits, dtype) {#name, bits, dtype},
static const known_dtype safetensors_dtypes[] = {DTYPES(ROW)};
#undef ROW

/* Returns the row of a dtype by its name; NULL: the format has no dtype of that name. */
static const known_dtype *safetensors_dtype_named(const char *name)
{
    for (size_t i = 0; i < WB__COUNT(safetensors_dtypes); i++)
        if (!strcmp(safetensors_dtypes[i].name, name)) return &safetensors_dtypes[i];
    return NULL;
}

wb__narrow_int wb__st_narrow(const wb__entry *e)
{
    if (e->axes > WB_MAX_DIMS) return WB__NOT_NARROW;
    return !strcmp(e->type, "I16") ? WB__NARROW_I16 : !strcmp(e->type, "U16") ? WB__NARROW_U16
           : !strcmp(e->type, "U32") ? WB__NARROW_U32 : WB__NOT_NARROW;
}

const char *wb__st_dtype_name(wb_dtype dtype)
{
    for (size_t i = 0; dtype && i < WB__COUNT(safetensors_dtypes); i++)
        if (safetensors_dtypes[i].dtype == dtype) return safetensors_dtypes[i].name;
    return "";
}

/* ---- JSON tokens ----------------------------------------------------------------------------- */

/* A header while it is read. */
typedef struct {
    const wb__mapping *m;               /* the file */
    const uint8_t *text;
    int64_t n, at;                      /* length of the header; offset of the next character */
    wb__text key, word;                 /* the key, and the text, that were read last */
} scanner;

static int64_t file_offset(int64_t at) { return WB__ST_HEADER_BEGINS + at; }
#define BAD(s, ...) wb__map_fail((s)->m, file_offset((s)->at), __VA_ARGS__)

/* Skips spaces and returns the next character; 0 at the end of the header, or for a zero byte. */
static int safetensors_next_character(scanner *s)
{
    while (s->at < s->n && strchr(" \t\r\n", s->text[s->at]) && s->text[s->at]) s->at++;
    return s->at < s->n ? s->text[s->at] : 0;
}

static int safetensors_expect(scanner *s, char c, const char *where)
{
    int found = safetensors_next_character(s);
    if (found == c) return s->at++, 0;
    if (s->at >= s->n) return BAD(s, "the header ends where a '%c' should be, %s", c, where);
    if (found < ' ' || found > '~') return BAD(s, "a '%c' should be here, %s", c, where);
    return BAD(s, "a '%c' should be here, %s; found '%c'", c, where, found);
}

static int safetensors_read_text(scanner *s, wb__text *t, const char *where)
{
    int status = safetensors_expect(s, '"', where);
    if (status) return status;
    const char *text = (const char *)s->text, *end = text + s->n, *reason = "";
    const char *at = text + s->at, *stop = at;
    while (stop < end && *stop != '"') stop += *stop == '\\' && stop + 1 < end ? 2 : 1;
    t->length = 0;
    wb__text_raw(t, at, (size_t)(stop - at));
    if (t->failed) return WB_ERROR_MEMORY;
    const int64_t n = wb__json_characters(&at, end, t->text, &reason);
    s->at = at - text;
    if (n < 0) return BAD(s, "%s", reason);
    t->text[t->length = (size_t)n] = 0;
    return safetensors_expect(s, '"', "at the end of a text");
}

static int safetensors_read_count(scanner *s, int64_t *value, const char *what)
{
    int c = safetensors_next_character(s);
    int64_t begin = s->at;
    *value = 0;
    if (c == '-') return BAD(s, "%s is negative", what);
    for (; s->at < s->n && s->text[s->at] >= '0' && s->text[s->at] <= '9'; s->at++) {
        int digit = s->text[s->at] - '0';
        if (*value > (INT64_MAX - digit) / 10)
            return s->at = begin, BAD(s, "%s is 2^63 or more", what);
        *value = 10 * *value + digit;
    }
    int after = s->at < s->n ? s->text[s->at] : 0;
    bool whole = s->at > begin && after != '.' && (after | 32) != 'e';
    if (!whole || (c == '0' && s->at > begin + 1))
        return s->at = begin, BAD(s, "%s is no whole number", what);
    return 0;
}

/* Whether a comma follows an element of an object or list; skips the comma. */
static bool safetensors_comma_follows(scanner *s)
{
    if (safetensors_next_character(s) != ',') return false;
    s->at++;
    return true;
}

typedef struct { int64_t shape; bool overflow; uint64_t elements; } safetensors_measures;

static int safetensors_read_shape(scanner *s, wb__entry *t, safetensors_measures *z)
{
    int status = safetensors_expect(s, '[', "where a shape begins");
    int64_t n = 0;
    *z = (safetensors_measures){.shape = s->at - 1, .elements = 1};
    bool more = !status && safetensors_next_character(s) != ']';
    for (; more && !status; more = !status && safetensors_comma_follows(s), n++) {
        int64_t d;
        status = safetensors_read_count(s, &d, "a dimension");
        if (status) break;
        if (n < WB_MAX_DIMS) t->dims[n] = d;
        if (d && z->elements > UINT64_MAX / (uint64_t)d) z->overflow = true;
        else z->elements *= (uint64_t)d;
    }
    t->ndim = (int)WB__MIN(n, WB_MAX_DIMS);
    t->axes = (int)WB__MIN(n, INT32_MAX);
    return status ? status : safetensors_expect(s, ']', "where a shape ends");
}

static int safetensors_read_offsets(scanner *s, wb__entry *t)
{
    int64_t end;
    int status = safetensors_expect(s, '[', "where data_offsets begin");
    if (!status) status = safetensors_read_count(s, &t->begin, "an offset");
    if (!status) status = safetensors_expect(s, ',', "between the two offsets");
    if (!status) status = safetensors_read_count(s, &end, "an offset");
    if (!status && end < t->begin)
        status = BAD(s, "tensor \"%.200s\": it ends before it begins", t->name);
    if (status) return status;
    t->bytes = end - t->begin;
    return safetensors_expect(s, ']', "after the two offsets");
}

/* Returns 0 if dtype and shape give the same number of bytes as the offsets, else an error code. */
static int safetensors_check_size(scanner *s, wb__entry *t, const known_dtype *dtype,
                                  const safetensors_measures *z)
{
    s->at = z->shape;
    if (z->overflow || z->elements > UINT64_MAX / 64)
        return BAD(s, "tensor \"%.200s\": its shape is too large for any file", t->name);
    uint64_t bits = z->elements * (uint64_t)dtype->bits;
    if (bits % 8)
        return BAD(s, "tensor \"%.200s\": %s do not fill whole bytes", t->name, dtype->name);
    if (bits / 8 != (uint64_t)t->bytes)
        return BAD(s,
                   "tensor \"%.200s\": its shape and its place do not agree: %llu bytes and %lld",
                   t->name, (unsigned long long)(bits / 8), (long long)t->bytes);
    t->dtype = dtype->dtype;
    snprintf(t->type, sizeof t->type, "%s", dtype->name);
    if (t->axes <= WB_MAX_DIMS) return 0;
    t->ndim = 0;
    t->dtype = WB_DTYPE_DEFAULT;
    return 0;
}

static int safetensors_read_tensor(scanner *s, wb__entry *t)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    const known_dtype *dtype = NULL;
    safetensors_measures z = {0};
    unsigned seen = 0;
    int64_t begin = s->at;
    int status = safetensors_expect(s, '{', "where a tensor is described");
    for (bool more = !status && safetensors_next_character(s) != '}'; more && !status;
         more = !status && safetensors_comma_follows(s)) {
        int64_t at = s->at;
        unsigned k = 0;
        status = safetensors_read_text(s, &s->key, "around a key");
        if (!status) status = safetensors_expect(s, ':', "after a key");
        if (status) break;
        while (k < 3 && strcmp(s->key.text, keys[k])) k++;
        if (k == 3 || seen & (1u << k)) {
            s->at = at;
            return BAD(s, "tensor \"%.200s\": %s \"%.40s\"; it needs dtype, shape and data_offsets",
                       t->name, k == 3 ? "an unknown" : "a second", s->key.text);
        }
        seen |= 1u << k;
        if (k == 1) status = safetensors_read_shape(s, t, &z);
        if (k == 2) status = safetensors_read_offsets(s, t);
        if (k) continue;
        (void)safetensors_next_character(s);
        at = s->at;
        status = safetensors_read_text(s, &s->word, "around a dtype");
        if (!status && !(dtype = safetensors_dtype_named(s->word.text))) {
            s->at = at;
            return BAD(s, "tensor \"%.200s\": unknown dtype \"%.40s\"", t->name, s->word.text);
        }
    }
    if (!status) status = safetensors_expect(s, '}', "after a tensor's description");
    if (status) return status;
    if (seen == 7) {
        int64_t end = s->at;
        status = safetensors_check_size(s, t, dtype, &z);
        s->at = end;
        return status;
    }
    s->at = begin;
    return BAD(s, "tensor \"%.200s\": needs dtype, shape and data_offsets", t->name);
}

static int safetensors_by_key(const void *a, const void *b)
{
    return strcmp(((const wb__note *)a)->key, ((const wb__note *)b)->key);
}

static int safetensors_read_notes(scanner *s, wb__table *st)
{
    int status = safetensors_expect(s, '{', "where the metadata begin");
    int64_t begin = s->at;
    for (bool more = !status && safetensors_next_character(s) != '}'; more && !status;
         more = !status && safetensors_comma_follows(s)) {
        status = safetensors_read_text(s, &s->key, "around a key");
        if (!status) status = safetensors_expect(s, ':', "after a key");
        if (!status) status = safetensors_read_text(s, &s->word, "since metadata are texts");
        if (!status) status = wb__table_add_note(st, s->key.text, s->word.text);
    }
    if (!status) status = safetensors_expect(s, '}', "after the metadata");
    if (st->n_notes) qsort(st->notes, (size_t)st->n_notes, sizeof *st->notes, safetensors_by_key);
    for (int i = 1; !status && i < st->n_notes; i++) {
        if (strcmp(st->notes[i - 1].key, st->notes[i].key)) continue;
        s->at = begin;
        return BAD(s, "__metadata__ has \"%.200s\" twice", st->notes[i].key);
    }
    return status;
}

static int safetensors_read_all(scanner *s, wb__table *st)
{
    bool notes = false;
    if (s->text[0] != '{') return BAD(s, "the header does not begin with {");
    int status = safetensors_expect(s, '{', "where the header begins");
    for (bool more = !status && safetensors_next_character(s) != '}'; more && !status;
         more = !status && safetensors_comma_follows(s)) {
        (void)safetensors_next_character(s);
        int64_t at = s->at;
        status = safetensors_read_text(s, &s->key, "around a name");
        if (!status) status = safetensors_expect(s, ':', "after a name");
        if (status) break;
        if (!strcmp(s->key.text, "__metadata__")) {
            if (notes) return s->at = at, BAD(s, "a second __metadata__");
            notes = true;
            status = safetensors_read_notes(s, st);
            continue;
        }
        wb__entry *t = wb__table_add(st, s->key.text);
        if (!t) return WB_ERROR_MEMORY;
        t->data = s->text + at;
        status = safetensors_read_tensor(s, t);
    }
    if (!status) status = safetensors_expect(s, '}', "where the header ends");
    (void)safetensors_next_character(s);
    return !status && s->at < s->n ? BAD(s, "something follows the header's last }") : status;
}

static int safetensors_by_offset(const void *a, const void *b)
{
    const wb__entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1) : strcmp(x->name, y->name);
}

/* Sorts the entries by offset and checks for repeated names, overlaps and gaps.  Until then `data`
 * of an entry points to its name in the header. */
static int safetensors_check_table(scanner *s, wb__table *st)
{
    wb__table_sort(st);
    for (int i = 1; i < st->n; i++) {
        const wb__entry *a = &st->entries[i - 1], *b = &st->entries[i];
        if (strcmp(a->name, b->name)) continue;
        s->at = (const uint8_t *)WB__MAX(a->data, b->data) - s->text;
        return BAD(s, "a second tensor \"%.200s\"", b->name);
    }
    if (st->n) qsort(st->entries, (size_t)st->n, sizeof *st->entries, safetensors_by_offset);
    int64_t end = 0;
    for (int i = 0; i < st->n; end += st->entries[i++].bytes) {
        const wb__entry *t = &st->entries[i];
        if (t->begin == end) continue;
        s->at = (const uint8_t *)t->data - s->text;
        return BAD(s, "tensor \"%.200s\": %s", t->name,
                   t->begin < end ? "overlaps another" : "a hole is before it");
    }
    return 0;
}

int wb__st_header(const wb__mapping *m, int64_t n, wb__table *st)
{
    scanner s = {.m = m, .text = m->data + WB__ST_HEADER_BEGINS, .n = n};
    int status = safetensors_read_all(&s, st);
    if (!status) status = safetensors_check_table(&s, st);
    for (int i = 0; i < st->n; i++) st->entries[i].data = NULL;
    wb__free(s.key.text);
    wb__free(s.word.text);
    return status;
}
