/* Reading and writing safetensors. */
#include "io/safetensors/safetensors.h"

#include "io/safetensors/checksums.h"
#include "io/json.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_MOST = 100000000 };

#define METADATA "__metadata__"

static uint64_t safetensors_header_length(const wb__mapping *m)
{
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) n |= (uint64_t)m->data[i] << (8 * i);
    return n;
}

static int safetensors_read_header(wb__mapping *m, wb__table *st)
{
    int64_t at = 0;
    if (!wb__map_take(m, &at, WB__ST_HEADER_BEGINS, "the header's length")) return wb_error_code();
    uint64_t n = safetensors_header_length(m);
    if (n < 2 || n > HEADER_MOST)
        return wb__map_fail(m, 0, "a header of %llu bytes; 2 to %d are possible",
                            (unsigned long long)n, HEADER_MOST);
    if (!wb__map_take(m, &at, (int64_t)n, "the header")) return wb_error_code();
    int status = wb__st_header(m, (int64_t)n, st);
    return status ? status
                  : wb__sums_read(st, m->path, (const char *)m->data + WB__ST_HEADER_BEGINS,
                                  (size_t)n);
}

/* Sets `data` of the entries, which are sorted by offset, to their values.  Checks that the file
 * ends behind the last value. */
static int safetensors_set_values(const wb__mapping *m, wb__table *st)
{
    const int64_t begin = WB__ST_HEADER_BEGINS + (int64_t)safetensors_header_length(m);
    const int64_t contents = m->bytes - begin;
    int64_t end = 0;
    for (int i = 0; i < st->n; i++) {
        wb__entry *t = &st->entries[i];
        end = t->begin + t->bytes;
        if (end > contents)
            return wb__map_fail(m, begin + t->begin, "the file ends after %lld of the %lld bytes "
                                "of the tensor \"%.200s\"",
                                (long long)WB__MAX(contents - t->begin, 0), (long long)t->bytes,
                                t->name);
        t->data = m->data + begin + t->begin;
    }
    if (end == contents) return 0;
    return wb__map_fail(m, begin + end, "the contents should end here, but go on for %lld bytes",
                        (long long)(contents - end));
}

/* Widens the integers of dtypes that Weber lacks.  Until then such an entry has the file's bytes
 * and size. */
static int safetensors_widen_all(wb__table *st)
{
    for (int i = 0; i < st->n; i++) {
        wb__entry *e = &st->entries[i];
        const wb__narrow_int narrow = wb__st_narrow(e);
        if (!narrow) continue;
        const int64_t n = e->bytes / wb__narrow_bytes(narrow);
        e->dtype = wb__narrow_dtype(narrow);
        e->bytes = n * (int64_t)wb__dtype_size(e->dtype);
        if (!e->data) continue;
        void *wide = wb__alloc_aligned((size_t)WB__MAX(e->bytes, 1));
        if (!wide) return WB_ERROR_MEMORY;
        wb__widen_ints(wide, e->data, n, narrow);
        e->data = wide;
        e->owned = true;
    }
    return 0;
}

int wb__st_table(wb__mapping *m, bool values, wb__table *out)
{
    *out = (wb__table){0};
    int status = safetensors_read_header(m, out);
    out->mapping = m;
    if (!status && values) status = safetensors_set_values(m, out);
    if (!status && values && !out->summed) wb__map_ahead(m, m->data, m->bytes);
    if (!status && values) status = wb__sums_check(out, m->path);
    if (!status) status = safetensors_widen_all(out);
    wb__table_sort(out);
    if (!status) return 0;
    out->mapping = NULL;
    wb__table_free(out);
    return status;
}

int wb__st_load(const char *path, bool values, wb__table *out)
{
    *out = (wb__table){0};
    wb__mapping *m = wb__map(path);
    if (!m) return wb_error_code();
    int status = wb__st_table(m, values, out);
    if (status) wb__unmap(m);
    return status;
}

/* Compares tensors: wider dtypes come first, which aligns all values; equal widths by name. */
static int safetensors_by_width(const void *a, const void *b)
{
    const wb__st_out *x = a, *y = b;
    size_t wide_x = wb__dtype_size(x->dtype), wide_y = wb__dtype_size(y->dtype);
    return wide_x != wide_y ? (wide_x > wide_y ? -1 : 1) : strcmp(x->name, y->name);
}

static int safetensors_check_names(int n, const wb__st_out *tensors)
{
    const char **names = wb__alloc(((size_t)n + 1) * sizeof *names);
    if (!names) return WB_ERROR_MEMORY;
    for (int i = 0; i < n; i++) names[i] = tensors[i].name;
    names[n] = METADATA;
    const char *twice = wb__repeated((int64_t)n + 1, names);
    wb__free(names);
    return twice ? wb__fail(WB_ERROR_ARGUMENT, "save: two tensors are named \"%s\"", twice) : 0;
}

static void safetensors_describe_tensor(wb__json_out *out, const wb__st_out *t, int64_t offset)
{
    wb__json_put_key(out, t->name);
    wb__json_open(out, '{');
    wb__json_put_pair(out, "dtype", wb__st_dtype_name(t->dtype));
    wb__json_put_key(out, "shape");
    wb__json_open(out, '[');
    for (int d = 0; d < t->ndim; d++) wb__json_put_integer(out, t->dims[d]);
    wb__json_close(out, ']');
    wb__json_put_key(out, "data_offsets");
    wb__json_open(out, '[');
    wb__json_put_integer(out, offset);
    wb__json_put_integer(out, offset + t->bytes);
    wb__json_close(out, ']');
    wb__json_close(out, '}');
}

/* Returns the header as JSON, with zeros for the checksums; the caller frees it.  The values follow
 * in the order of `tensors`.  NULL with the error set. */
static char *safetensors_header_text(int n, const wb__st_out *tensors, int n_notes,
                                     const wb__note *notes)
{
    wb__json_out out = {.status = safetensors_check_names(n, tensors)};
    char *blank = out.status ? NULL : wb__sums_blank(n);
    if (!blank) return NULL;
    wb__json_open(&out, '{');
    wb__json_put_key(&out, METADATA);
    wb__json_open(&out, '{');
    wb__json_put_pair(&out, WB__SUMS_KEY, blank);
    wb__free(blank);
    for (int i = 0; i < n_notes; i++) wb__json_put_pair(&out, notes[i].key, notes[i].value);
    wb__json_close(&out, '}');
    int64_t offset = 0;
    for (int i = 0; i < n; i++) {
        safetensors_describe_tensor(&out, &tensors[i], offset);
        offset += tensors[i].bytes;
    }
    wb__json_close(&out, '}');
    return wb__json_take(&out);
}

/* Returns `text` padded with spaces to *length bytes, a multiple of eight, in the block of `text`
 * or a new one.  The result may lack a final 0.  NULL: `text` is NULL, or out of memory. */
static char *safetensors_pad_header(char *text, size_t *length)
{
    if (!text) return NULL;
    size_t n = strlen(text);
    char *padded = wb__realloc(text, *length = (n + 7) & ~(size_t)7);
    if (!padded) wb__free(text);
    else memset(padded + n, ' ', *length - n);
    return padded;
}

/* Writes the header and the values, and sets sums[i] to the checksum of tensor i. */
static int safetensors_write_all(wb__writer *w, wb__st_put put, const char *text, size_t length,
                                 int n, const wb__st_out *tensors, uint32_t *sums)
{
    uint8_t bytes[WB__ST_HEADER_BEGINS];
    for (int i = 0; i < WB__ST_HEADER_BEGINS; i++)
        bytes[i] = (uint8_t)((uint64_t)length >> (8 * i));
    wb__writer_put(w, bytes, WB__ST_HEADER_BEGINS);
    wb__writer_put(w, text, (int64_t)length);
    wb__writer_sum(w);
    int status = 0;
    for (int i = 0; !status && i < n; i++) {
        const wb__st_out *t = &tensors[i];
        const wb__st_put by = t->put ? t->put : put;
        status = by ? by(w, t->data) : wb__writer_put(w, t->data, t->bytes);
        sums[i] = wb__writer_sum(w);
    }
    return status;
}

/* Writes the file.  The header has the checksums of the values, so it is written again after the
 * values.  A pipe cannot be rewritten: for a pipe, all is first written to /dev/null to compute the
 * checksums. */
static int safetensors_write(wb__st_put put, const char *path, char *text, size_t length, int n,
                             const wb__st_out *tensors, uint32_t *sums)
{
    wb__writer *w = wb__writer_open(path);
    if (!w) return wb_error_code();
    int status = 0;
    if (!wb__writer_patches(w)) {
        wb__writer *nowhere = wb__writer_open("/dev/null");
        status = nowhere ? safetensors_write_all(nowhere, put, text, length, n, tensors, sums)
                         : (int)wb_error_code();
        wb__writer_drop(nowhere);
        wb__sums_fill(text, length, n, sums);
    }
    if (!status) status = safetensors_write_all(w, put, text, length, n, tensors, sums);
    if (!status && wb__writer_patches(w)) {
        wb__sums_fill(text, length, n, sums);
        status = wb__writer_patch(w, WB__ST_HEADER_BEGINS, text, (int64_t)length);
    }
    if (!status) return wb__writer_close(w);
    wb__writer_drop(w);
    return status;
}

int wb__st_save(wb__st_put put, const char *path, int n, wb__st_out *tensors, int n_notes,
                const wb__note *notes)
{
    size_t length = 0;
    if (n > 1) qsort(tensors, (size_t)n, sizeof *tensors, safetensors_by_width);
    char *text = safetensors_pad_header(safetensors_header_text(n, tensors, n_notes, notes),
                                        &length);
    int status = text ? 0 : (int)wb_error_code();
    if (text && length > HEADER_MOST)
        status = wb__fail(WB_ERROR_UNSUPPORTED, "save: %s: its header would have %zu bytes; "
                          "readers of safetensors take %d.  The model's description is in it: the "
                          "constants of an ONNX model are too large", path, length, HEADER_MOST);
    uint32_t *sums = status ? NULL : wb__alloc_zero((size_t)WB__MAX(n, 1), sizeof *sums);
    if (!status) status = sums ? safetensors_write(put, path, text, length, n, tensors,
                                                   sums) : WB_ERROR_MEMORY;
    wb__free(sums);
    wb__free(text);
    return status;
}
