/* Writing NPZ files.  The header of an uncompressed member has the checksum of its bytes, so the
 * values are read twice.  The archive is written sequentially:
 *
 *   for each array: a local header, the member's name, the NPY file
 *   the directory: an entry for each array
 *   the position of the directory
 *
 * Sizes and offsets have fields of 32 bits, the number of members has a field of 16 bits.  If a
 * number does not fit, all bits of its field are 1.  The number is then written in 64 bits, behind
 * the member's name or in a record behind the directory. */
#include "base/files/file.h"
#include "base/files/packed.h"
#include "engine/tensor.h"
#include "io/numpy/npy.h"
#include "io/numpy/npz.h"

#include <stdlib.h>
#include <string.h>

uint32_t wb__npz_limit = UINT32_MAX;

enum {
    LOCAL = 0x04034b50, NPZ_WRITE_ENTRY = 0x02014b50, NPZ_WRITE_END = 0x06054b50,
    END_64 = 0x06064b50, WHERE_64 = 0x07064b50,
    NPZ_WRITE_VERSION = 20, VERSION_64 = 45,
    NAME_IN_UTF8 = 1 << 11,
    FIRST_DAY = 1 << 5 | 1              /* 1 January 1980, so that equal values give equal files */
};

/* A file of the archive. */
typedef struct {
    const char *name;
    wb_tensor *x;                       /* its array */
    uint32_t crc;
    uint64_t bytes, at;                 /* size of the NPY file; offset of its local header */
} npz_write_member;

/* ---- little-endian numbers ------------------------------------------------------------------- */

typedef struct { uint8_t bytes[128]; int n; } npz_write_record;

static void npz_write_add(npz_write_record *r, uint64_t value, int n)
{
    for (int i = 0; i < n; i++) r->bytes[r->n++] = (uint8_t)(value >> (8 * i));
}

static bool npz_write_large(uint64_t value) { return value >= wb__npz_limit; }
static void add_32(npz_write_record *r, uint64_t value) {
    npz_write_add(r, npz_write_large(value) ? UINT32_MAX : value, 4);
}

static int npz_write_add_to_sum(void *ctx, const void *data, int64_t bytes)
{
    npz_write_member *f = ctx;
    f->crc = wb__crc32(f->crc, data, (size_t)bytes);
    f->bytes += (uint64_t)bytes;
    return 0;
}

static int npz_write_to_writer(void *w, const void *data, int64_t bytes)
{
    return wb__writer_put(w, data, bytes);
}

static uint64_t npz_write_name_bytes(const npz_write_member *f) { return strlen(f->name) + 4; }

/* Adds the fields that a local header and a directory entry share, from the version to the length
 * of the name. */
static void npz_write_add_common(npz_write_record *r, const npz_write_member *f, bool long_form)
{
    bool plain = true;
    for (const char *c = f->name; *c; c++) plain &= (unsigned char)*c < 128;
    npz_write_add(r, long_form ? VERSION_64 : NPZ_WRITE_VERSION, 2);
    npz_write_add(r, plain ? 0 : NAME_IN_UTF8, 2);
    npz_write_add(r, 0, 2);             /* not compressed */
    npz_write_add(r, 0, 2);
    npz_write_add(r, FIRST_DAY, 2);
    npz_write_add(r, f->crc, 4);
    npz_write_add(r, long_form && npz_write_large(f->bytes) ? UINT32_MAX : f->bytes, 4);
    npz_write_add(r, long_form && npz_write_large(f->bytes) ? UINT32_MAX : f->bytes, 4);
    npz_write_add(r, npz_write_name_bytes(f), 2);
}

static int npz_write_name(wb__writer *w, const npz_write_member *f)
{
    wb__writer_put(w, f->name, (int64_t)strlen(f->name));
    return wb__writer_put(w, ".npy", 4);
}

static int npz_write_put_member(wb__writer *w, npz_write_member *f)
{
    const bool long_form = npz_write_large(f->bytes);
    npz_write_record r = {.n = 0}, extra = {.n = 0};
    f->at = (uint64_t)wb__writer_offset(w);
    if (long_form) {
        npz_write_add(&extra, 1, 2);
        npz_write_add(&extra, 16, 2);
        npz_write_add(&extra, f->bytes, 8);
        npz_write_add(&extra, f->bytes, 8);
    }
    npz_write_add(&r, LOCAL, 4);
    npz_write_add_common(&r, f, long_form);
    npz_write_add(&r, (uint64_t)extra.n, 2);
    wb__writer_put(w, r.bytes, r.n);
    npz_write_name(w, f);
    int status = wb__writer_put(w, extra.bytes, extra.n);
    return status ? status : wb__npy_write(f->x, npz_write_to_writer, w);
}

static int npz_write_entry(wb__writer *w, const npz_write_member *f)
{
    npz_write_record r = {.n = 0}, extra = {.n = 0};
    if (npz_write_large(f->bytes)) {
        npz_write_add(&extra, f->bytes, 8);
        npz_write_add(&extra, f->bytes, 8);
    }
    if (npz_write_large(f->at)) npz_write_add(&extra, f->at, 8);
    npz_write_add(&r, NPZ_WRITE_ENTRY, 4);
    npz_write_add(&r, extra.n ? VERSION_64 : NPZ_WRITE_VERSION, 2);
    npz_write_add_common(&r, f, extra.n > 0);
    npz_write_add(&r, extra.n ? (uint64_t)extra.n + 4 : 0, 2);
    npz_write_add(&r, 0, 2);            /* no comment */
    npz_write_add(&r, 0, 2);            /* the first disk */
    npz_write_add(&r, 0, 2 + 4);        /* attributes */
    add_32(&r, f->at);
    wb__writer_put(w, r.bytes, r.n);
    int status = npz_write_name(w, f);
    if (!extra.n) return status;
    npz_write_record head = {.n = 0};
    npz_write_add(&head, 1, 2);
    npz_write_add(&head, (uint64_t)extra.n, 2);
    wb__writer_put(w, head.bytes, head.n);
    return wb__writer_put(w, extra.bytes, extra.n);
}

static int npz_write_end_record(wb__writer *w, uint64_t n, uint64_t at, uint64_t bytes)
{
    npz_write_record r = {.n = 0};
    const bool many = n >= WB__MIN(wb__npz_limit, (uint32_t)UINT16_MAX);
    if (many || npz_write_large(at) || npz_write_large(bytes)) {
        const uint64_t here = at + bytes;
        npz_write_add(&r, END_64, 4);
        npz_write_add(&r, 44, 8);       /* bytes of this record behind this field */
        npz_write_add(&r, VERSION_64, 2);
        npz_write_add(&r, VERSION_64, 2);
        npz_write_add(&r, 0, 4 + 4);
        npz_write_add(&r, n, 8);
        npz_write_add(&r, n, 8);
        npz_write_add(&r, bytes, 8);
        npz_write_add(&r, at, 8);
        npz_write_add(&r, WHERE_64, 4);
        npz_write_add(&r, 0, 4);
        npz_write_add(&r, here, 8);
        npz_write_add(&r, 1, 4);
    }
    npz_write_add(&r, NPZ_WRITE_END, 4);
    npz_write_add(&r, 0, 2 + 2);
    npz_write_add(&r, many ? UINT16_MAX : n, 2);
    npz_write_add(&r, many ? UINT16_MAX : n, 2);
    add_32(&r, bytes);
    add_32(&r, at);
    npz_write_add(&r, 0, 2);
    return wb__writer_put(w, r.bytes, r.n);
}

static int npz_write_directory(wb__writer *w, int n, const npz_write_member *members)
{
    const int64_t at = wb__writer_offset(w);
    int status = 0;
    for (int i = 0; i < n && !status; i++) status = npz_write_entry(w, &members[i]);
    if (status) return status;
    return npz_write_end_record(w, (uint64_t)n, (uint64_t)at,
                                (uint64_t)(wb__writer_offset(w) - at));
}

static int npz_write_by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int npz_write_check_names(int n, const npz_write_member *members)
{
    const char **names = wb__alloc(((size_t)n + 1) * sizeof *names);
    if (!names) return WB_ERROR_MEMORY;
    int status = 0;
    for (int i = 0; i < n; i++) names[i] = members[i].name;
    if (n) qsort(names, (size_t)n, sizeof *names, npz_write_by_name);
    for (int i = 0; i < n && !status; i++) {
        if (strlen(names[i]) > UINT16_MAX - 4)
            status = wb__fail(WB_ERROR_ARGUMENT,
                              "save: the name \"%.40s...\" is too long for an NPZ file", names[i]);
        else if (i && !strcmp(names[i - 1], names[i]))
            status = wb__fail(WB_ERROR_ARGUMENT, "save: two tensors are named \"%.200s\"",
                              names[i]);
    }
    wb__free(names);
    return status;
}

static int npz_write_all(const char *path, int n, npz_write_member *members)
{
    wb__writer *w = wb__writer_open(path);
    if (!w) return wb_error_code();
    int status = 0;
    for (int i = 0; i < n && !status; i++) status = npz_write_put_member(w, &members[i]);
    if (!status) status = npz_write_directory(w, n, members);
    if (!status) return wb__writer_close(w);
    wb__writer_drop(w);
    return status;
}

int wb__npz_save(const char *path, wb__saving *list)
{
    npz_write_member *members = wb__alloc_zero((size_t)list->n + 1, sizeof *members);
    if (!members) return WB_ERROR_MEMORY;
    for (int i = 0; i < list->n; i++) {
        members[i].name = list->tensors[i].name;
        members[i].x = (wb_tensor *)(uintptr_t)list->tensors[i].data;
    }
    int status = npz_write_check_names(list->n, members);
    for (int i = 0; i < list->n && !status; i++)
        status = wb__npy_write(members[i].x, npz_write_add_to_sum, &members[i]);
    if (!status) status = npz_write_all(path, list->n, members);
    wb__free(members);
    return status;
}
