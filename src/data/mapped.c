/* Files without a header as datasets, whose tensors are on the mapped file.  A tensor has fewer
 * than 2^32 elements, so a large file becomes several datasets, which are joined. */
#include "data/dataset.h"
#include "base/options.h"
#include "io/borrow.h"

#include <string.h>

enum { MAPPED_X, MAPPED_Y };
static const int64_t mapped_most_elements = (int64_t)1 << 31;

/* A file that consists of observations of equal size. */
typedef struct {
    wb_raw_file file;
    int64_t row;                        /* bytes of one observation */
    int64_t elements, n;                /* elements of one observation; observations */
} mapped_raw;

/* Reads the description and finds the number of observations.  Returns 0 or an error code. */
static int mapped_measure(const wb_raw_file *given, mapped_raw *r)
{
    *r = (mapped_raw){.elements = 1};
    if (!wb__read_struct("dataset_map", &r->file, sizeof r->file, given)) return wb_error_code();
    if (!r->file.dtype) r->file.dtype = WB_F32;
    const int64_t size = (int64_t)wb__dtype_size(r->file.dtype);
    bool fits = size && r->file.ndim >= 0 && r->file.ndim < WB_MAX_DIMS && r->file.offset >= 0;
    for (int i = 0; fits && i < r->file.ndim; i++) {
        fits = r->file.dims[i] > 0 && r->elements <= mapped_most_elements / r->file.dims[i];
        r->elements *= fits ? r->file.dims[i] : 1;
    }
    if (!fits || r->file.offset % size)
        return wb__fail(WB_ERROR_ARGUMENT,
                        "dataset_map: offset %lld, %d dimensions, dtype %s: the offset is a "
                        "multiple of the element's size, and the dimensions are positive",
                        (long long)r->file.offset, r->file.ndim, wb_dtype_name(r->file.dtype));
    r->row = r->elements * size;
    wb__mapping *m = wb__map_raw(r->file.path);
    if (!m) return wb_error_code();
    const int64_t bytes = m->bytes - r->file.offset;
    r->n = bytes / r->row;
    wb__unmap(m);
    if (bytes >= 0 && bytes % r->row == 0) return 0;
    return wb__fail(WB_ERROR_FORMAT,
                    "%s: byte %lld: %lld bytes are no whole number of observations of %lld bytes",
                    r->file.path, (long long)r->file.offset, (long long)bytes, (long long)r->row);
}

/* Returns observations first .. first + n - 1 as a tensor, which owns a mapping of the file. */
static wb_tensor *mapped_rows_of(const mapped_raw *r, int64_t first, int64_t n)
{
    wb__mapping *m = wb__map_raw(r->file.path);
    if (!m) return NULL;
    const int64_t at = r->file.offset + first * r->row;
    int64_t dims[WB_MAX_DIMS] = {n};
    memcpy(dims + 1, r->file.dims, (size_t)r->file.ndim * sizeof *dims);
    wb_tensor *x = NULL;
    if (at + n * r->row > m->bytes)
        wb__fail(WB_ERROR_FORMAT, "%s: the file became shorter", r->file.path);
    else
        x = wb_borrow((void *)(uintptr_t)(m->data + at), r->file.dtype, r->file.ndim + 1, dims,
                      wb__free_mapping, m);
    if (!x) wb__unmap(m);
    return x;
}

static wb_dataset *mapped_chunk_of(const mapped_raw *r, int fields, int64_t first, int64_t n)
{
    wb_tensor *x = mapped_rows_of(&r[MAPPED_X], first, n), *y = NULL;
    if (x) y = fields > 1 ? mapped_rows_of(&r[MAPPED_Y], first, n) : WB_NONE;
    return y ? wb_dataset_of(x, y) : NULL;
}

static wb_dataset *mapped_dataset_of(const mapped_raw *r, int fields)
{
    const int64_t most = mapped_most_elements /
                         WB__MAX(r[MAPPED_X].elements, fields > 1 ? r[MAPPED_Y].elements : 1);
    const int64_t chunks = WB__MAX((r[MAPPED_X].n + most - 1) / most, 1);
    if (chunks > 65536)
        return wb__fail_null(WB_ERROR_UNSUPPORTED, "dataset_map: %lld observations are too many",
                             (long long)r[MAPPED_X].n);
    wb_dataset **part = wb__alloc((size_t)chunks * sizeof *part), *d = NULL;
    int made = 0;
    for (; part && made < chunks; made++)
        if (!(part[made] = mapped_chunk_of(r, fields, made * most,
                                           WB__MIN(most, r[MAPPED_X].n - made * most))))
            break;
    if (part && made == chunks) d = made == 1 ? part[0] : wb_joinobs_array(made, part);
    wb__free(part);
    return d;
}

wb_dataset *wb_dataset_map(const wb_raw_file *x, const wb_raw_file *y)
{
    WB__EDGE;
    mapped_raw r[2];
    const int fields = y ? 2 : 1;
    if (WB__NULL(x) || mapped_measure(x, &r[MAPPED_X]) || (y && mapped_measure(y, &r[MAPPED_Y])))
        return NULL;
    if (y && r[MAPPED_X].n != r[MAPPED_Y].n)
        return wb__fail_null(WB_ERROR_FORMAT, "dataset_map: %s has %lld observations, but %s has "
                             "%lld", r[MAPPED_X].file.path, (long long)r[MAPPED_X].n,
                             r[MAPPED_Y].file.path, (long long)r[MAPPED_Y].n);
    const wb_device *was = wb__use_device(&wb__cpu);
    wb_scope *s = wb_scope_open();
    wb_dataset *d = s ? mapped_dataset_of(r, fields) : NULL;
    if (d) d = wb_object_keep(d);
    if (s && wb_scope_close(s)) d = NULL;
    wb__use_device(was);
    return d;
}
