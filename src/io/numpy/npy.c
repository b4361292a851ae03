/* NPY, NumPy's format for one array (numpy/lib/format.py):
 *
 *   0x93 "NUMPY"  version, 0  length of the header (u16; u32 from version 2)
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   spaces, a newline
 *   the elements
 *
 * Integers i2, u2 and u4, whose dtypes Weber lacks, are widened.  Big-endian elements, records,
 * objects and complex numbers are not read.  npy_write.c writes NPY files, npz.c reads archives of
 * them. */
#include "engine/tensor.h"
#include "io/numpy/npy.h"

#include "io/borrow.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_HEADER = 1 << 16 };

/* NumPy's names of dtypes. */
static const struct { const char *name; uint8_t bytes; wb_dtype dtype; wb__narrow_int narrow;
} npy_types[] = {
    {"<f4", 4, WB_F32, 0}, {"<f8", 8, WB_F64, 0},  {"<f2", 2, WB_F16, 0}, {"|i1", 1, WB_I8, 0},
    {"|u1", 1, WB_U8, 0},  {"|b1", 1, WB_BOOL, 0}, {"<i4", 4, WB_I32, 0}, {"<i8", 8, WB_I64, 0},
    {"<i2", 2, WB_I32, WB__NARROW_I16}, {"<u2", 2, WB_I32, WB__NARROW_U16},
    {"<u4", 4, WB_I64, WB__NARROW_U32},
};

/* ---- the header, a Python literal ------------------------------------------------------------ */

/* A header while it is read. */
typedef struct {
    wb__npy_source *s;                  /* where the bytes come from */
    wb__npy *h;                         /* the result */
    const char *text, *at;              /* ends with a zero byte */
    int64_t offset;                     /* the offset of `text` in the file */
    bool any, has_type, has_order, has_shape;   /* any: as in wb__npy_header */
    const char *lacks;                  /* the reason why Weber cannot hold the array, or NULL */
} cursor;

static bool npy_fail_at(const cursor *c, const char *reason)
{
    char text[96];
    snprintf(text, sizeof text, "the header: %s", reason);
    c->s->fail(c->s->ctx, c->offset + (c->at - c->text), text);
    return false;
}

static void npy_skip_blanks(cursor *c)
{
    while (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r') c->at++;
}

static bool npy_skip_text(cursor *c, const char *what)
{
    npy_skip_blanks(c);
    size_t n = strlen(what);
    if (strncmp(c->at, what, n) != 0) return false;
    c->at += n;
    return true;
}

/* Reads a string in single or double quotes into `to`, which is `bytes` bytes long. */
static bool npy_read_quoted(cursor *c, char *to, size_t bytes)
{
    npy_skip_blanks(c);
    char quote = *c->at;
    if (quote != '\'' && quote != '"') return npy_fail_at(c, "a string is expected");
    const char *end = strchr(c->at + 1, quote);
    if (!end || (size_t)(end - c->at) > bytes)
        return npy_fail_at(c, "a string has no end, or is too long");
    size_t n = (size_t)(end - c->at - 1);
    memcpy(to, c->at + 1, n);
    to[n] = 0;
    c->at = end + 1;
    return true;
}

/* Reads the dimensions up to the closing parenthesis into c->h.  If Weber cannot hold the array,
 * returns the reason, else NULL.  If the text is no shape, sets *failed to true and sets the
 * error. */
static const char *npy_read_dimensions(cursor *c, bool *failed)
{
    wb__npy *h = c->h;
    int64_t size = 1;                   /* like h->size, but with 1 for dimensions of 0 */
    h->size = 1;
    h->ndim = 0;
    while (!npy_skip_text(c, ")")) {
        *failed = *c->at < '0' || *c->at > '9';
        if (*failed) return npy_fail_at(c, "a dimension is expected"), NULL;
        int64_t n = 0;
        for (; *c->at >= '0' && *c->at <= '9'; c->at++)
            if ((n = 10 * n + (*c->at - '0')) > WB__MAX_DIM)
                return h->axes = -1, "2^32 elements or more along an axis";
        if (*c->at == 'L') c->at++;     /* Python 2 wrote an L */
        if (h->ndim == WB_MAX_DIMS) return h->axes = WB_MAX_DIMS + 1, "more than 8 dimensions";
        if (n && size > WB__MAX_SIZE / n) return h->axes = -1, "2^40 elements or more";
        h->dims[h->ndim++] = n;
        h->size *= n;
        size *= WB__MAX(n, 1);
        if (npy_skip_text(c, ",")) continue;
        if (npy_skip_text(c, ")")) break;
        *failed = true;
        return npy_fail_at(c, "a comma is expected"), NULL;
    }
    return NULL;
}

static bool npy_read_shape(cursor *c)
{
    if (!npy_skip_text(c, "(")) return npy_fail_at(c, "a shape in parentheses is expected");
    bool failed = false;
    const char *lacks = npy_read_dimensions(c, &failed);
    if (failed || (lacks && !c->any)) return failed ? false : npy_fail_at(c, lacks);
    c->has_shape = true;
    if (!lacks) return true;
    c->lacks = c->h->axes > 0 ? c->h->type : "too large";
    c->h->ndim = 0;
    for (; *c->at && *c->at != ')'; c->at++)            /* "3, 4)" */
        if (c->h->axes > 0 && *c->at == ',' && c->at[1 + strspn(c->at + 1, " ")] != ')')
            c->h->axes++;
    return npy_skip_text(c, ")") || npy_fail_at(c, "a shape has no end");
}

/* Skips the list of fields of a record dtype.  Without c->any a record dtype is an error. */
static bool npy_skip_record(cursor *c)
{
    if (!c->any) return npy_fail_at(c, "records are not read");
    int depth = 0;
    do {
        char at = *c->at;
        const char *end = at == '\'' || at == '"' ? strchr(c->at + 1, at) : c->at;
        if (!at || !end) return npy_fail_at(c, "a list has no end");
        depth += (at == '[' || at == '(') - (at == ']' || at == ')');
        c->at = end + 1;
    } while (depth > 0);
    snprintf(c->h->type, sizeof c->h->type, "record");
    c->lacks = c->h->type;
    return c->has_type = true;
}

static bool npy_same_type(const char *name, const char *known, int bytes)
{
    if (strcmp(name + 1, known + 1) != 0) return false;
    return *name == *known || (*name == '=' && *known == '<') ||
           (bytes == 1 && strchr("<>=|", *name));
}

static bool npy_read_type(cursor *c)
{
    wb__npy *h = c->h;
    char name[16];
    npy_skip_blanks(c);
    if (*c->at == '[') return npy_skip_record(c);
    if (!npy_read_quoted(c, name, sizeof name)) return false;
    memcpy(h->type, name, sizeof name);
    c->has_type = true;
    for (size_t i = 0; *name && i < WB__COUNT(npy_types); i++) {
        if (!npy_same_type(name, npy_types[i].name, npy_types[i].bytes)) continue;
        h->dtype = npy_types[i].dtype;
        h->width = npy_types[i].bytes;
        h->narrow = npy_types[i].narrow;
        return true;
    }
    char reason[64];
    snprintf(reason, sizeof reason, "elements of type '%s' are not read%s", name,
             *name == '>' ? ": big-endian" : "");
    if (!c->any) return npy_fail_at(c, reason);
    c->lacks = h->type;
    return true;
}

static bool npy_parse(cursor *c)
{
    char key[16];
    if (!npy_skip_text(c, "{")) return npy_fail_at(c, "'{' is expected");
    while (!npy_skip_text(c, "}")) {
        if (!npy_read_quoted(c, key, sizeof key)) return false;
        if (!npy_skip_text(c, ":")) return npy_fail_at(c, "':' is expected");
        if (!strcmp(key, "descr")) {
            if (!npy_read_type(c)) return false;
        } else if (!strcmp(key, "shape")) {
            if (!npy_read_shape(c)) return false;
        } else if (!strcmp(key, "fortran_order")) {
            c->h->fortran = npy_skip_text(c, "True");
            if (!c->h->fortran && !npy_skip_text(c, "False"))
                return npy_fail_at(c, "True or False is expected");
            c->has_order = true;
        } else {
            return npy_fail_at(c, "an unknown key");
        }
        if (npy_skip_text(c, ",")) continue;
        if (npy_skip_text(c, "}")) break;
        return npy_fail_at(c, "',' is expected");
    }
    npy_skip_blanks(c);
    if (*c->at) return npy_fail_at(c, "something follows it");
    if (!c->has_type || !c->has_order || !c->has_shape)
        return npy_fail_at(c, "descr, fortran_order or shape is missing");
    if (!c->lacks) return true;
    c->h->dtype = WB_DTYPE_DEFAULT;
    if (c->lacks != c->h->type) snprintf(c->h->type, sizeof c->h->type, "%s", c->lacks);
    return true;
}

static int npy_fail(wb__npy_source *s, int64_t offset, const char *format, ...) WB__PRINTF(3, 4);
static int npy_fail(wb__npy_source *s, int64_t offset, const char *format, ...)
{
    char reason[160];
    va_list arguments;
    va_start(arguments, format);
    wb__plain_list(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return s->fail(s->ctx, offset, reason);
}

static int too_short(wb__npy_source *s, int64_t at, int64_t n, int64_t got, const char *what)
{
    return npy_fail(s, at, "%s ends after %lld of the %lld bytes of %s", s->what, (long long)got,
                    (long long)n, what);
}

/* Reads up to n bytes.  Returns the number of bytes read, which is less than n only at the end of
 * the source; -1 with the error set. */
static int64_t npy_read_up_to(wb__npy_source *s, void *to, int64_t n)
{
    const int64_t got = s->read(s->ctx, to, n);
    s->offset += WB__MAX(got, 0);
    s->left -= WB__MAX(got, 0);
    return got;
}

static int npy_read_exactly(wb__npy_source *s, void *to, int64_t n)
{
    const int64_t at = s->offset, got = npy_read_up_to(s, to, n);
    if (got < 0) return wb_error_code();
    return got == n ? 0 : too_short(s, at, n, got, "the header");
}

int wb__npy_header(wb__npy_source *s, bool any, wb__npy *h)
{
    unsigned char start[12];
    *h = (wb__npy){.size = 0};
    int status = npy_read_exactly(s, start, 10);
    if (status) return status;
    int version = start[6];
    if (memcmp(start, "\x93NUMPY", 6) != 0) return npy_fail(s, 0, "not an NPY file");
    if (version < 1 || version > 3) return npy_fail(s, 6, "version %d is unknown", version);
    int64_t length = start[8] | start[9] << 8;
    if (version > 1) {
        if ((status = npy_read_exactly(s, start + 10, 2))) return status;
        length |= (int64_t)start[10] << 16 | (int64_t)start[11] << 24;
    }
    if (length > LONGEST_HEADER)
        return npy_fail(s, 8, "a header of %lld bytes; at most %d", (long long)length,
                        LONGEST_HEADER);
    cursor c = {.s = s, .h = h, .offset = s->offset, .any = any};
    char *text = wb__alloc((size_t)length + 1);
    if (!text) return WB_ERROR_MEMORY;
    bool good = !npy_read_exactly(s, text, length);
    if (good) {
        text[length] = 0;
        c.text = c.at = text;
        good = strlen(text) == (size_t)length ? npy_parse(&c) : npy_fail_at(&c, "a zero byte");
    }
    wb__free(text);
    return good ? 0 : (int)wb_error_code();
}

/* Returns a new block with exactly n bytes of the source; NULL with the error set. */
static void *npy_read_block(wb__npy_source *s, int64_t n)
{
    const int64_t at = s->offset;
    if (n > s->left) return too_short(s, at, n, WB__MAX(s->left, 0), "elements"), NULL;
    int64_t got = 0, capacity = WB__MIN(n, s->trusted);
    char *block = wb__alloc_aligned((size_t)WB__MAX(capacity, 1));
    while (block && got < n) {
        if (got == capacity) {
            const int64_t more = WB__MIN(n, 2 * capacity);
            char *larger = wb__alloc_aligned((size_t)more);
            if (larger) memcpy(larger, block, (size_t)got);
            wb__free(block);
            if (!(block = larger)) return NULL;
            capacity = more;
        }
        const int64_t some = npy_read_up_to(s, block + got, capacity - got);
        if (some == capacity - got) {
            got = capacity;
            continue;
        }
        if (some >= 0) too_short(s, at, n, got + some, "elements");
        wb__free(block);
        return NULL;
    }
    return block;
}

/* Copies a column-major array to `to`, row-major. */
static void npy_make_row_major(char *to, const char *from, const wb__npy *h, size_t bytes)
{
    int64_t index[WB_MAX_DIMS] = {0}, stride[WB_MAX_DIMS], step = 1, at = 0;
    for (int k = 0; k < h->ndim; step *= h->dims[k++]) stride[k] = step;
    for (int64_t i = 0; i < h->size; i++) {
        memcpy(to + (size_t)i * bytes, from + (size_t)at * bytes, bytes);
        for (int k = h->ndim - 1; k >= 0; k--) {
            at += stride[k];
            if (++index[k] < h->dims[k]) break;
            at -= stride[k] * h->dims[k];
            index[k] = 0;
        }
    }
}

/* Whether the elements are neither widened nor reordered. */
static bool npy_plain(const wb__npy *h) { return !h->narrow && (!h->fortran || h->ndim < 2); }

/* Returns `data`, in which every bool has become 0 or 1, since in files any byte but 0 is true. */
static void *npy_normalise_bools(void *data, const wb__npy *h)
{
    if (data && h->dtype == WB_BOOL) wb__convert(data, WB_BOOL, data, WB_BOOL, h->size);
    return data;
}

/* Returns a new block with a file's elements, widened and row-major; NULL: out of memory. */
static void *npy_convert(const void *from, const wb__npy *h)
{
    const size_t bytes = wb__dtype_size(h->dtype), all = (size_t)h->size * bytes;
    const bool column_major = h->fortran && h->ndim > 1;
    void *to = wb__alloc_aligned(WB__MAX(all, 1));
    void *wide = h->narrow && column_major && to ? to : NULL;
    if (to && h->narrow) wb__widen_ints(to, from, h->size, h->narrow);
    if (wide) to = wb__alloc_aligned(WB__MAX(all, 1));
    if (to && column_major) npy_make_row_major(to, wide ? wide : from, h, bytes);
    else if (to && !h->narrow) memcpy(to, from, all);
    wb__free(wide);
    return npy_normalise_bools(to, h);
}

void *wb__npy_values(wb__npy_source *s, const wb__npy *h)
{
    void *data = npy_read_block(s, wb__npy_bytes(h));
    if (!data || npy_plain(h)) return npy_normalise_bools(data, h);
    void *to = npy_convert(data, h);
    wb__free(data);
    return to;
}

/* ---- a file ---------------------------------------------------------------------------------- */

typedef struct { wb__mapping *m; int64_t at; } mapped;

static int64_t read_mapped(void *ctx, void *to, int64_t n)
{
    mapped *p = ctx;
    if (wb__map_more(p->m, p->at + n)) return -1;
    const int64_t some = WB__MIN(n, p->m->bytes - p->at);
    if (some) memcpy(to, p->m->data + p->at, (size_t)some);
    p->at += some;
    return some;
}

static int fail_mapped(void *ctx, int64_t offset, const char *reason)
{
    return wb__map_fail(((mapped *)ctx)->m, offset, "%s", reason);
}

/* Sets *h to the header of a mapped file and *begin to the offset of the elements.  If Weber has
 * the dtype, sets *data to the elements and checks that the file ends behind the elements. */
static int read_in_place(wb__mapping *m, bool any, wb__npy *h, int64_t *begin, const uint8_t **data)
{
    mapped p = {m, 0};
    wb__npy_source s = {read_mapped, fail_mapped, &p, "the file", 0, 0, 0};
    int status = wb__npy_header(&s, any, h);
    int64_t end = *begin = s.offset;
    if (status || !h->dtype) return status;
    if (!wb__map_take(m, &end, wb__npy_bytes(h), "elements")) return wb_error_code();
    status = wb__map_end(m, end);
    *data = m->data + *begin;           /* the mapping may have moved */
    return status;
}

/* Returns the tensor of a file.  If the file is in memory of its own, not mapped by the system, and
 * its elements are aligned and not converted, the tensor takes over that memory; else it gets a
 * copy. */
wb_tensor *wb_load_npy(const char *path)
{
    wb__mapping *m = wb__map_begin(path);
    if (!m) return NULL;
    wb__npy h;
    int64_t begin;
    const uint8_t *data = NULL;
    wb_tensor *x = NULL;
    if (!read_in_place(m, false, &h, &begin, &data)) {
        const bool copy = m->mapped || !npy_plain(&h) || begin % h.width;
        void *values =
            copy ? npy_convert(data, &h) : npy_normalise_bools((void *)(uintptr_t)data, &h);
        if (copy) x = wb__borrow_block(values, h.dtype, h.ndim, h.dims);
        else if ((x = wb_borrow(values, h.dtype, h.ndim, h.dims, wb__free_mapping, m))) return x;
    }
    wb__unmap(m);
    return x;
}

void wb__npy_describe(const wb__npy *h, wb__entry *e)
{
    e->dtype = h->dtype;
    memcpy(e->type, h->type, sizeof e->type);
    e->axes = h->axes;
    e->ndim = h->ndim;
    memcpy(e->dims, h->dims, sizeof e->dims);
    if (e->dtype) e->bytes = h->size * (int64_t)wb__dtype_size(h->dtype);
}

/* Sets the entry to the array.  Elements that need no conversion stay in the mapping. */
static int npy_fill_entry(wb__mapping *m, bool values, wb__entry *e)
{
    wb__npy h;
    const uint8_t *data = NULL;
    int status = read_in_place(m, true, &h, &e->begin, &data);
    if (status) return status;
    wb__npy_describe(&h, e);
    if (!h.dtype) e->bytes = m->bytes - e->begin;
    if (!h.dtype || !values) return 0;
    e->data = data;
    if (npy_plain(&h)) return 0;
    e->data = npy_convert(data, &h);
    e->owned = true;
    return e->data ? 0 : WB_ERROR_MEMORY;
}

int wb__npy_table(wb__mapping *m, bool values, wb__table *out)
{
    *out = (wb__table){0};
    wb__entry *e = wb__table_add(out, "0");
    int status = e ? npy_fill_entry(m, values, e) : WB_ERROR_MEMORY;
    if (status) wb__table_free(out);
    else out->mapping = m;
    return status;
}
