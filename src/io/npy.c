/* NPY, NumPy's format for one array (numpy/lib/format.py):
 *
 *   93 "NUMPY"  version, 0  length of the header (u16, from version 2 on u32)
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   spaces, a newline
 *   the elements
 *
 * Integers without a dtype of their own here are widened where nothing is lost (i2, u2, u4).  Not
 * read: big-endian files, records, objects, complex numbers. */
#include "base/file.h"
#include "engine/tensor.h"
#include "io/borrow.h"

#include <stdio.h>
#include <string.h>

static const char magic[6] = "\x93NUMPY";
enum { LONGEST_HEADER = 1 << 16 };

/* What a header may call its elements. */
static const struct { const char *name; uint8_t bytes; wb_dtype dtype;
} types[] = {
    {"<f4", 4, WB_F32}, {"<f8", 8, WB_F64},  {"<f2", 2, WB_F16}, {"|i1", 1, WB_I8},
    {"|u1", 1, WB_U8},  {"|b1", 1, WB_BOOL}, {"<i4", 4, WB_I32}, {"<i8", 8, WB_I64},
    {"<i2", 2, WB_I32}, {"<u2", 2, WB_I32},  {"<u4", 4, WB_I64}, /* widened */
};

typedef struct {
    int type, ndim;                     /* type: of the table, -1 unseen */
    bool fortran, has_order, has_shape;
    int64_t dims[WB_MAX_DIMS], size;
} header;

/* ---- the header, a literal of Python --------------------------------------------------------- */

typedef struct {
    const wb__reader *r;
    const char *text, *at;              /* ends with a zero */
    int64_t offset;                     /* of text in the file */
} cursor;

static bool wrong(const cursor *c, const char *reason)
{
    wb__reader_fail_at(c->r, c->offset + (c->at - c->text), "the header: %s", reason);
    return false;
}

static void blank(cursor *c)
{
    while (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r') c->at++;
}

static bool take(cursor *c, const char *what)
{
    blank(c);
    size_t n = strlen(what);
    if (strncmp(c->at, what, n) != 0) return false;
    c->at += n;
    return true;
}

/* A short string in either kind of quotes. */
static bool quoted(cursor *c, char *to, size_t room)
{
    blank(c);
    char quote = *c->at;
    if (quote != '\'' && quote != '"') return wrong(c, "a string is expected");
    const char *end = strchr(c->at + 1, quote);
    if (!end || (size_t)(end - c->at) > room)
        return wrong(c, "a string has no end, or is too long");
    size_t n = (size_t)(end - c->at - 1);
    memcpy(to, c->at + 1, n);
    to[n] = 0;
    c->at = end + 1;
    return true;
}

static bool shape(cursor *c, header *h)
{
    if (!take(c, "(")) return wrong(c, "a shape in parentheses is expected");
    h->size = 1;
    h->ndim = 0;
    while (!take(c, ")")) {
        if (*c->at < '0' || *c->at > '9') return wrong(c, "a dimension is expected");
        int64_t n = 0;
        for (; *c->at >= '0' && *c->at <= '9'; c->at++)
            if ((n = 10 * n + (*c->at - '0')) > UINT32_MAX)
                return wrong(c, "2^32 elements or more");
        if (*c->at == 'L') c->at++;     /* as Python 2 wrote them */
        if (h->ndim == WB_MAX_DIMS) return wrong(c, "more than 8 dimensions");
        if (n && h->size > UINT32_MAX / n) return wrong(c, "2^32 elements or more");
        h->dims[h->ndim++] = n;
        h->size *= n;
        if (take(c, ",")) continue;
        if (take(c, ")")) break;
        return wrong(c, "a comma is expected");
    }
    return h->has_shape = true;
}

static bool descr(cursor *c, header *h)
{
    char name[16];
    blank(c);
    if (*c->at == '[') return wrong(c, "records are not read");
    if (!quoted(c, name, sizeof name)) return false;
    for (h->type = 0; h->type < (int)WB__COUNT(types); h->type++) {
        const char *known = types[h->type].name;
        if (strcmp(name + 1, known + 1) == 0 &&
            (*name == *known || (*name == '=' && *known == '<')))
            return true;
        if (types[h->type].bytes == 1 && strcmp(name + 1, known + 1) == 0 && strchr("<>=|", *name))
            return true;
    }
    char reason[64];
    snprintf(reason, sizeof reason, "elements of type '%s' are not read%s", name,
             *name == '>' ? ": big-endian" : "");
    return wrong(c, reason);
}

static bool parse(cursor *c, header *h)
{
    char key[16];
    h->type = -1;
    if (!take(c, "{")) return wrong(c, "'{' is expected");
    while (!take(c, "}")) {
        if (!quoted(c, key, sizeof key)) return false;
        if (!take(c, ":")) return wrong(c, "':' is expected");
        if (!strcmp(key, "descr")) {
            if (!descr(c, h)) return false;
        } else if (!strcmp(key, "shape")) {
            if (!shape(c, h)) return false;
        } else if (!strcmp(key, "fortran_order")) {
            h->fortran = take(c, "True");
            if (!h->fortran && !take(c, "False")) return wrong(c, "True or False is expected");
            h->has_order = true;
        } else {
            return wrong(c, "an unknown key");
        }
        if (take(c, ",")) continue;
        if (take(c, "}")) break;
        return wrong(c, "',' is expected");
    }
    blank(c);
    if (*c->at) return wrong(c, "something follows it");
    return (h->type >= 0 && h->has_order && h->has_shape) ||
           wrong(c, "descr, fortran_order or shape is missing");
}

static bool read_header(wb__reader *r, header *h)
{
    unsigned char start[12];
    if (wb__reader_exact(r, start, 10, "the header")) return false;
    int version = start[6];
    if (memcmp(start, magic, sizeof magic) != 0)
        return wb__reader_fail_at(r, 0, "not an NPY file"), false;
    if (version < 1 || version > 3)
        return wb__reader_fail_at(r, 6, "version %d is unknown", version), false;
    int64_t length = start[8] | start[9] << 8;
    if (version > 1) {
        if (wb__reader_exact(r, start + 10, 2, "the header")) return false;
        length |= (int64_t)start[10] << 16 | (int64_t)start[11] << 24;
    }
    if (length > LONGEST_HEADER)
        return wb__reader_fail_at(r, 8, "a header of %lld bytes; at most %d", (long long)length,
                                  LONGEST_HEADER),
               false;
    cursor c = {.r = r, .offset = wb__reader_offset(r)};
    char *text = wb__alloc((size_t)length + 1);
    bool good = text && !wb__reader_exact(r, text, length, "the header");
    if (good) {
        text[length] = 0;
        c.text = c.at = text;
        good = strlen(text) == (size_t)length ? parse(&c, h) : wrong(&c, "a zero byte");
    }
    wb__free(text);
    return good;
}

/* ---- elements -------------------------------------------------------------------------------- */

static void widen(void *to, const void *from, const header *h)
{
    for (int64_t i = 0; i < h->size; i++) {
        int16_t s;
        uint16_t u;
        uint32_t v;
        if (!strcmp(types[h->type].name, "<i2"))
            ((int32_t *)to)[i] = (memcpy(&s, (const char *)from + 2 * i, 2), s);
        else if (!strcmp(types[h->type].name, "<u2"))
            ((int32_t *)to)[i] = (memcpy(&u, (const char *)from + 2 * i, 2), u);
        else ((int64_t *)to)[i] = (memcpy(&v, (const char *)from + 4 * i, 4), v);
    }
}

/* Row-major from column-major. */
static void reorder(char *to, const char *from, const header *h, size_t bytes)
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

/* A new block for the old one, which is freed. */
static void *changed(void *data, const header *h, size_t bytes, bool wider)
{
    void *to = wb__alloc_aligned((size_t)h->size * bytes);
    if (to && wider) widen(to, data, h);
    else if (to) reorder(to, data, h, bytes);
    wb__free(data);
    return to;
}

static wb_tensor *load(wb__reader *r)
{
    header h = {0};
    if (!read_header(r, &h)) return NULL;
    wb_dtype dtype = types[h.type].dtype;
    size_t bytes = wb__dtype_size(dtype);
    void *data = wb__reader_block(r, h.size * types[h.type].bytes, "elements");
    if (!data || wb__reader_end(r)) {
        wb__free(data);
        return NULL;
    }
    if (types[h.type].bytes != bytes) data = changed(data, &h, bytes, true);
    if (data && h.fortran && h.ndim > 1) data = changed(data, &h, bytes, false);
    if (data && dtype == WB_BOOL) wb__convert(data, WB_BOOL, data, WB_BOOL, h.size);
    return wb__borrow_block(data, dtype, h.ndim, h.dims);
}

wb_tensor *wb_load_npy(const char *path)
{
    wb__reader *r = wb__reader_open(path);
    if (!r) return NULL;
    wb_tensor *x = load(r);
    wb__reader_close(r);
    return x;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* bf16, which NumPy does not have, as f32. */
static const char *name_of(wb_dtype t)
{
    for (size_t i = 0; i < WB__COUNT(types); i++)
        if (types[i].dtype == t) return types[i].name;
    return "<f4";
}

/* The whole header, padded so that elements begin at a multiple of 64; its length. */
static int write_header(char *to, size_t room, const wb_tensor *x)
{
    char dims[200] = "";
    size_t n = 0;
    for (int i = 0; i < wb_ndim(x); i++)
        n += (size_t)snprintf(dims + n, sizeof dims - n, i ? ", %lld" : "%lld",
                              (long long)wb_dim(x, i));
    int length =
        snprintf(to + 10, room - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }",
                 name_of(wb_dtype_of(x)), dims, wb_ndim(x) == 1 ? "," : "");
    int total = (10 + length + 1 + 63) / 64 * 64;
    memset(to + 10 + length, ' ', (size_t)(total - 10 - length));
    to[total - 1] = '\n';
    memcpy(to, magic, sizeof magic);
    to[6] = 1;
    to[7] = 0;
    to[8] = (char)((total - 10) & 255);
    to[9] = (char)((total - 10) >> 8);
    return total;
}

typedef struct { wb__writer *w; wb_dtype dtype; } writing;

static int write_part(const void *part, int64_t n, void *ctx)
{
    const writing *to = ctx;
    int status = 0;
    if (to->dtype != WB_BF16)
        return wb__writer_put(to->w, part, n * (int64_t)wb__dtype_size(to->dtype));
    for (int64_t i = 0, some; !status && i < n; i += some) {
        float wide[256];
        some = WB__MIN(n - i, 256);
        wb__convert(wide, WB_F32, (const char *)part + 2 * i, WB_BF16, some);
        status = wb__writer_put(to->w, wide, some * 4);
    }
    return status;
}

int wb_save_npy(const char *path, wb_tensor *x)
{
    if (!x) return wb_error_code() ? (int)wb_error_code() : WB_ERROR_ARGUMENT;
    if (wb_ndim(x) < 0) return wb__fail(WB_ERROR_ARGUMENT, "save_npy: no tensor");
    int status = wb_eval_all(1, &x);
    if (status) return status;
    wb__writer *w = wb__writer_open(path);
    if (!w) return wb_error_code();
    char text[512];
    status = wb__writer_put(w, text, write_header(text, sizeof text, x));
    if (!status) status = wb__read_in_parts(x, write_part, &(writing){w, wb_dtype_of(x)});
    if (!status) return wb__writer_close(w);
    wb__writer_drop(w);
    return status;
}
