/* IDX, the format of MNIST (LeCun, Cortes & Burges): two zeros, a byte of type, a byte of
 * dimensions, each dimension as a big-endian u32, then the elements, big-endian and row-major.  As
 * a dataset: data/readers.c. */
#include "base/file.h"
#include "io/borrow.h"

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

static wb_tensor *read_idx(wb__reader *r)
{
    unsigned char magic[4];
    int64_t dims[WB_MAX_DIMS];
    if (wb__reader_exact(r, magic, 4, "the header")) return NULL;
    size_t t = 0;
    while (t < WB__COUNT(types) && types[t].code != magic[2]) t++;
    if (magic[0] || magic[1] || t == WB__COUNT(types))
        return wb__reader_fail_at(r, 0, "%02x %02x %02x is no header of an IDX file", magic[0],
                                  magic[1], magic[2]),
               NULL;
    if (magic[3] > WB_MAX_DIMS)
        return wb__reader_fail_at(r, 3, "%d dimensions; at most %d", magic[3], WB_MAX_DIMS), NULL;
    int64_t n = read_dims(r, magic[3], dims);
    if (n < 0) return NULL;
    unsigned char *data = wb__reader_block(r, n * types[t].bytes, "elements");
    if (!data || wb__reader_end(r)) {
        wb__free(data);
        return NULL;
    }
    big_to_host(data, n, types[t].bytes);
    if (types[t].code == 0x0b) {
        int32_t *wide = wb__alloc_aligned((size_t)n * sizeof *wide);
        int16_t narrow;
        for (int64_t i = 0; wide && i < n; i++) {
            memcpy(&narrow, data + 2 * i, 2);
            wide[i] = narrow;
        }
        wb__free(data);
        if (!(data = (void *)wide)) return NULL;
    }
    return wb__borrow_block(data, types[t].dtype, magic[3], dims);
}

wb_tensor *wb_read_idx(const char *path)
{
    wb__reader *r = wb__reader_open(path);
    if (!r) return NULL;
    wb_tensor *x = read_idx(r);
    wb__reader_close(r);
    return x;
}
