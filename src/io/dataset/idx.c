/* IDX, the format of MNIST (LeCun, Cortes & Burges): two zeros, a byte of type, a byte of
 * dimensions, each dimension as a big-endian u32, then the elements, big-endian and row-major.  As
 * a dataset: data/readers.c. */
#include "io/dataset/idx.h"

#include "base/file.h"
#include "io/borrow.h"

#include <stdio.h>
#include <string.h>

/* What the types are called in the file, and here: 16-bit integers are widened. */
static const struct { uint8_t code, bytes; wb_dtype dtype;
} types[] = {
    {0x08, 1, WB_U8},  {0x09, 1, WB_I8},  {0x0b, 2, WB_I32},
    {0x0c, 4, WB_I32}, {0x0d, 4, WB_F32}, {0x0e, 8, WB_F64},
};

static void big_to_host(unsigned char *data, int64_t n, int bytes)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (int64_t i = 0; i < n; i++, data += bytes)
        for (int a = 0, b = bytes - 1; a < b; a++, b--) {
            unsigned char c = data[a];
            data[a] = data[b];
            data[b] = c;
        }
#else
    (void)data, (void)n, (void)bytes;
#endif
}

/* Dimensions, and the number of elements; -1 with the error set. */
static int64_t read_dims(wb__reader *r, int ndim, int64_t *dims)
{
    int64_t size = 1;
    for (int i = 0; i < ndim; i++) {
        unsigned char b[4];
        if (wb__reader_exact(r, b, 4, "a dimension")) return -1;
        dims[i] = (int64_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
        if (dims[i] && size > UINT32_MAX / dims[i]) {
            wb__reader_fail_at(r, wb__reader_offset(r) - 4,
                               "dimension %d is %lld: 2^32 elements or more", i,
                               (long long)dims[i]);
            return -1;
        }
        size *= dims[i];
    }
    return size;
}

typedef struct { size_t type; int ndim; int64_t dims[WB_MAX_DIMS], size; } header;

static int read_header(wb__reader *r, header *h)
{
    unsigned char magic[4];
    int status = wb__reader_exact(r, magic, 4, "the header");
    if (status) return status;
    h->type = 0;
    while (h->type < WB__COUNT(types) && types[h->type].code != magic[2]) h->type++;
    if (magic[0] || magic[1] || h->type == WB__COUNT(types))
        return wb__reader_fail_at(r, 0, "%02x %02x %02x is no header of an IDX file", magic[0],
                                  magic[1], magic[2]);
    if (magic[3] > WB_MAX_DIMS)
        return wb__reader_fail_at(r, 3, "%d dimensions; at most %d", magic[3], WB_MAX_DIMS);
    h->ndim = magic[3];
    h->size = read_dims(r, h->ndim, h->dims);
    return h->size < 0 ? (int)wb_error_code() : 0;
}

static wb_tensor *read_idx(wb__reader *r)
{
    header h;
    if (read_header(r, &h)) return NULL;
    const int bytes = types[h.type].bytes;
    unsigned char *data = wb__reader_block(r, h.size * bytes, "elements");
    if (!data || wb__reader_end(r)) {
        wb__free(data);
        return NULL;
    }
    big_to_host(data, h.size, bytes);
    if (types[h.type].code == 0x0b) {
        int32_t *wide = wb__alloc_aligned((size_t)h.size * sizeof *wide);
        int16_t narrow;
        for (int64_t i = 0; wide && i < h.size; i++) {
            memcpy(&narrow, data + 2 * i, 2);
            wide[i] = narrow;
        }
        wb__free(data);
        if (!(data = (void *)wide)) return NULL;
    }
    return wb__borrow_block(data, types[h.type].dtype, h.ndim, h.dims);
}

wb_tensor *wb_read_idx(const char *path)
{
    wb__reader *r = wb__reader_open(path);
    if (!r) return NULL;
    wb_tensor *x = read_idx(r);
    wb__reader_close(r);
    return x;
}

/* The elements are read past, so that a file that is cut short or damaged is told. */
static int list_idx(wb__reader *r, wb__table *out)
{
    header h;
    int status = read_header(r, &h);
    wb__entry *e = status ? NULL : wb__table_add(out, "0");
    if (!e) return wb_error_code();
    e->dtype = types[h.type].dtype;
    e->ndim = h.ndim;
    memcpy(e->dims, h.dims, sizeof e->dims);
    e->begin = wb__reader_offset(r);
    e->bytes = h.size * types[h.type].bytes;
    snprintf(e->type, sizeof e->type, "0x%02x", types[h.type].code);
    for (int64_t left = e->bytes; left > 0;) {
        char block[4096];
        int64_t some = WB__MIN(left, (int64_t)sizeof block);
        if ((status = wb__reader_exact(r, block, some, "elements"))) return status;
        left -= some;
    }
    return wb__reader_end(r);
}

int wb__idx_table(const char *path, wb__table *out)
{
    *out = (wb__table){.nameless = true};
    wb__reader *r = wb__reader_open(path);
    if (!r) return wb_error_code();
    int status = list_idx(r, out);
    wb__reader_close(r);
    if (status) wb__table_free(out);
    return status;
}
