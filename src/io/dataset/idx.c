/* IDX, the format of MNIST (LeCun, Cortes & Burges): two zero bytes, a byte for the type, a byte
 * for the number of dimensions, each dimension as a big-endian u32, then the elements, big-endian
 * and row-major.  data/readers.c makes datasets of such files. */
#include "io/dataset/idx.h"

#include "io/borrow.h"

#include <stdio.h>
#include <string.h>

/* The types of elements in IDX files.  16-bit integers are widened to i32. */
static const struct { uint8_t code, bytes; wb_dtype dtype;
} idx_types[] = {
    {0x08, 1, WB_U8},  {0x09, 1, WB_I8},  {0x0b, 2, WB_I32},
    {0x0c, 4, WB_I32}, {0x0d, 4, WB_F32}, {0x0e, 8, WB_F64},
};

static void idx_big_to_host(unsigned char *data, int64_t n, int bytes)
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

/* The header of a file.  `elements` points to the big-endian numbers in the mapping, `begin` is
 * their offset in the file. */
typedef struct {
    size_t type;
    int ndim;
    int64_t dims[WB_MAX_DIMS], size, begin;
    const uint8_t *elements;
} idx_header;

static int idx_read_dims(wb__mapping *m, idx_header *h)
{
    int64_t size = 1;                   /* like h->size, but with 1 for dimensions of 0 */
    h->size = 1;
    for (int i = 0; i < h->ndim; i++) {
        const uint8_t *b = wb__map_take(m, &h->begin, 4, "a dimension");
        if (!b) return wb_error_code();
        h->dims[i] = (int64_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
        if (h->dims[i] && size > UINT32_MAX / h->dims[i])
            return wb__map_fail(m, h->begin - 4, "dimension %d is %lld: 2^32 elements or more", i,
                                (long long)h->dims[i]);
        size *= WB__MAX(h->dims[i], 1);
        h->size *= h->dims[i];
    }
    return 0;
}

static int idx_read_header(wb__mapping *m, idx_header *h)
{
    *h = (idx_header){0};
    const uint8_t *magic = wb__map_take(m, &h->begin, 4, "the header");
    if (!magic) return wb_error_code();
    while (h->type < WB__COUNT(idx_types) && idx_types[h->type].code != magic[2]) h->type++;
    if (magic[0] || magic[1] || h->type == WB__COUNT(idx_types))
        return wb__map_fail(m, 0, "%02x %02x %02x is no header of an IDX file", magic[0], magic[1],
                            magic[2]);
    if (magic[3] > WB_MAX_DIMS)
        return wb__map_fail(m, 3, "%d dimensions; at most %d", magic[3], WB_MAX_DIMS);
    h->ndim = magic[3];
    int status = idx_read_dims(m, h);
    if (status) return status;
    int64_t end = h->begin;
    if (!wb__map_take(m, &end, h->size * idx_types[h->type].bytes, "elements"))
        return wb_error_code();
    status = wb__map_end(m, end);
    h->elements = m->data + h->begin;   /* the mapping may have moved */
    return status;
}

/* Returns the elements in host byte order, in a new block of wb__alloc_aligned; NULL: out of
 * memory. */
static void *idx_host_elements(const idx_header *h)
{
    const int bytes = idx_types[h->type].bytes;
    const size_t each = wb__dtype_size(idx_types[h->type].dtype);
    unsigned char *data = wb__alloc_aligned((size_t)h->size * each + 1);
    if (!data) return NULL;
    memcpy(data, h->elements, (size_t)(h->size * bytes));
    idx_big_to_host(data, h->size, bytes);
    /* from the end, since it widens in place */
    for (int64_t i = bytes == 2 ? h->size - 1 : -1; i >= 0; i--) {
        int16_t narrow;
        memcpy(&narrow, data + 2 * i, 2);
        ((int32_t *)(void *)data)[i] = narrow;
    }
    return data;
}

/* Returns the tensor of a file.  If the file is in memory of its own, not mapped by the system, and
 * its elements are aligned and not widened, the tensor takes over that memory; else it gets a
 * copy. */
wb_tensor *wb_load_idx_tensor(const char *path)
{
    idx_header h;
    wb__mapping *m = wb__map_begin(path);
    if (!m) return NULL;
    wb_tensor *x = NULL;
    if (!idx_read_header(m, &h)) {
        const int bytes = idx_types[h.type].bytes;
        if (m->mapped || bytes == 2 || h.begin % bytes) {
            x = wb__borrow_block(idx_host_elements(&h), idx_types[h.type].dtype, h.ndim, h.dims);
        } else {
            unsigned char *data = (unsigned char *)(uintptr_t)h.elements;
            idx_big_to_host(data, h.size, bytes);
            x = wb_borrow(data, idx_types[h.type].dtype, h.ndim, h.dims, wb__free_mapping, m);
            if (x) return x;
        }
    }
    wb__unmap(m);
    return x;
}

int wb__idx_table(wb__mapping *m, bool values, wb__table *out)
{
    idx_header h;
    *out = (wb__table){.nameless = true};
    int status = idx_read_header(m, &h);
    wb__entry *e = status ? NULL : wb__table_add(out, "0");
    if (!e) return wb_error_code();
    e->dtype = idx_types[h.type].dtype;
    e->ndim = h.ndim;
    memcpy(e->dims, h.dims, sizeof e->dims);
    e->begin = h.begin;
    e->bytes = h.size * idx_types[h.type].bytes;
    snprintf(e->type, sizeof e->type, "0x%02x", idx_types[h.type].code);
    if (values) {
        e->data = idx_host_elements(&h);
        e->owned = true;
        e->bytes = h.size * (int64_t)wb__dtype_size(e->dtype);
    }
    if (values && !e->data) return wb__table_free(out), WB_ERROR_MEMORY;
    out->mapping = m;
    return 0;
}
