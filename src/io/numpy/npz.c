/* Reads NPZ files with libzip.  libzip allocates its tables with malloc; they are at most about ten
 * times as large as the archive.  Each array takes its decompressed size in addition.
 *
 * Sizes in the archive are checked.  Each array that is read has the number of bytes in its
 * directory entry, with a correct checksum.  All members fit in the file.  All compressed members
 * together are at most as large, when decompressed, as the limit of wb_set_unpack_limit. */
#include "io/numpy/npz.h"

#include "base/files/file.h"
#include "base/packages.h"
#include "io/numpy/npy.h"
#include "io/zip.h"

#include <stdio.h>
#include <string.h>

#ifndef WB_HAVE_ZIP

static int npz_read_archive(wb__mapping *m, bool values, wb__table *out)
{
    (void)values;
    (void)out;
    return wb__package_missing(WB__PACKAGE_ZIP, m->path, NULL);
}

#else

enum { FIRST_BLOCK = 1 << 20 };

/* An archive while it is read. */
typedef struct {
    wb__mapping *m;                         /* the file */
    zip_t *zip;
    int64_t decompressed;                   /* bytes decompressed so far, of all members together */
} npz_archive;

typedef struct {
    npz_archive *a;                     /* the archive with this member */
    const char *name;
    zip_file_t *file;
    int64_t offset, size;               /* bytes read so far; size in the archive's directory */
    bool compressed;
} npz_member;

/* ---- a member as a wb__npy_source ------------------------------------------------------------ */

static int npz_member_fail(void *ctx, int64_t offset, const char *reason)
{
    const npz_member *f = ctx;
    return wb__fail(WB_ERROR_FORMAT, "%s: member \"%.200s\": byte %lld: %s", f->a->m->path, f->name,
                    (long long)offset, reason);
}

static int npz_fail_damaged(npz_member *f, zip_error_t *e)
{
    if (zip_error_code_zip(e) == ZIP_ER_MEMORY) return wb__zip_fail(f->a->m, e);
    char reason[160];
    snprintf(reason, sizeof reason, "%s", zip_error_strerror(e));
    return npz_member_fail(f, f->offset, reason);
}

static int npz_fail_over_limit(const npz_archive *a)
{
    return wb__fail(WB_ERROR_FORMAT, "%s: more than %lld bytes when decompressed: the limit of "
                    "wb_set_unpack_limit", a->m->path, (long long)wb__unpack_limit());
}

/* Reads up to n bytes into `to`.  Returns the number of bytes read, which is less than n only at
 * the end of the member; -1 with the error set. */
static int64_t npz_member_read(void *ctx, void *to, int64_t n)
{
    npz_member *f = ctx;
    int64_t done = 0;
    while (done < n) {
        int64_t got = zip_fread(f->file, (char *)to + done, (zip_uint64_t)(n - done));
        if (got < 0) return npz_fail_damaged(f, zip_file_get_error(f->file)), -1;
        if (got == 0) break;
        done += got;
        f->offset += got;
        if (f->compressed && (f->a->decompressed += got) > wb__unpack_limit())
            return npz_fail_over_limit(f->a), -1;
    }
    return done;
}

/* Returns 0 if the member has no further bytes, else an error code.  libzip compares the checksum
 * at the end. */
static int npz_member_end(npz_member *f)
{
    char more;
    const int64_t at = f->offset, got = npz_member_read(f, &more, 1);
    if (got < 0) return wb_error_code();
    return got == 0 ? 0 : npz_member_fail(f, at, "the contents should end here, but go on");
}

/* ---- an array -------------------------------------------------------------------------------- */

static int npz_read_array(npz_member *f, bool values, wb__entry *e)
{
    wb__npy_source s = {npz_member_read, npz_member_fail, f, "it", 0, f->size,
                        f->compressed ? FIRST_BLOCK : f->a->m->bytes};
    wb__npy h;
    int status = wb__npy_header(&s, true, &h);
    if (status) return status;
    wb__npy_describe(&h, e);
    if (!h.dtype) {
        e->bytes = WB__MAX(s.left, 0);
        return 0;
    }
    if (wb__npy_bytes(&h) != s.left) {
        char reason[160];
        snprintf(reason, sizeof reason, "it ends after %lld of the %lld bytes of elements, or goes "
                 "on", (long long)s.left, (long long)wb__npy_bytes(&h));
        return npz_member_fail(f, s.offset, reason);
    }
    if (!values) return 0;
    if (!(e->data = wb__npy_values(&s, &h))) return wb_error_code();
    e->owned = true;
    return npz_member_end(f);
}

static const char *npz_unreadable(const zip_stat_t *s)
{
    if (s->encryption_method != ZIP_EM_NONE) return "it is encrypted";
    if (s->comp_method != ZIP_CM_STORE && s->comp_method != ZIP_CM_DEFLATE)
        return "it is compressed otherwise than by deflate";
    return s->size > INT64_MAX / 2 ? "its size is impossible" : NULL;
}

static int npz_open_member(npz_archive *a, uint64_t i, const zip_stat_t *s, bool values,
                           wb__entry *e)
{
    npz_member f = {.a = a, .name = s->name, .size = (int64_t)s->size,
                    .compressed = s->comp_method != ZIP_CM_STORE};
    const char *reason = npz_unreadable(s);
    if (reason) return npz_member_fail(&f, 0, reason);
    f.file = zip_fopen_index(a->zip, i, 0);
    if (!f.file) return npz_fail_damaged(&f, zip_get_error(a->zip));
    int status = npz_read_array(&f, values, e);
    zip_fclose(f.file);
    return status;
}

static int npz_read_member(npz_archive *a, uint64_t i, const zip_stat_t *s, bool values,
                           wb__table *out)
{
    const size_t n = strlen(s->name);
    if (n && s->name[n - 1] == '/') return 0;       /* a folder */
    const bool array = n >= 4 && !strcmp(s->name + n - 4, ".npy");
    if (!n || (array && n == 4))
        return wb__fail(WB_ERROR_FORMAT, "%s: member %llu has no name", a->m->path,
                        (unsigned long long)i);
    char *name = wb__strdup(s->name);
    if (!name) return WB_ERROR_MEMORY;
    if (array) name[n - 4] = 0;
    wb__entry *e = wb__table_add(out, name);
    wb__free(name);
    if (!e) return WB_ERROR_MEMORY;
    if (array) return npz_open_member(a, i, s, values, e);
    snprintf(e->type, sizeof e->type, "no array");
    e->bytes = (int64_t)WB__MIN(s->size, (uint64_t)INT64_MAX);
    return 0;
}

/* Returns an error code if the sizes in the archive's directory are too large, before the first
 * member is read.  A size that no compression could reach is left to the reader, which finds that
 * it is wrong. */
static int npz_check_sizes(const npz_archive *a)
{
    enum { RATIO = 1032, MORE = 1000 };             /* the most that deflate compresses */
    const uint64_t limit = (uint64_t)wb__unpack_limit();
    uint64_t all = 0;
    for (int64_t i = 0, n = zip_get_num_entries(a->zip, 0); i < n; i++) {
        zip_stat_t s;
        if (zip_stat_index(a->zip, (zip_uint64_t)i, 0, &s)) continue;   /* npz_read_members fails */
        const size_t end = strlen(s.name);
        if (end < 4 || strcmp(s.name + end - 4, ".npy") || s.comp_method == ZIP_CM_STORE) continue;
        const uint64_t held = WB__MIN(s.comp_size, UINT32_MAX);
        const uint64_t size = WB__MIN(s.size, RATIO * held + MORE);
        if (size > limit - all) return npz_fail_over_limit(a);
        all += size;
    }
    return 0;
}

static int npz_read_members(npz_archive *a, bool values, wb__table *out)
{
    const int64_t n = zip_get_num_entries(a->zip, 0);
    uint64_t held = 0;
    for (int64_t i = 0; i < n; i++) {
        zip_stat_t s;
        const zip_uint64_t all = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE |
                                 ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
        if (zip_stat_index(a->zip, (zip_uint64_t)i, 0, &s))
            return wb__zip_fail(a->m, zip_get_error(a->zip));
        if ((s.valid & all) != all || s.comp_size > (uint64_t)a->m->bytes - held)
            return wb__fail(WB_ERROR_FORMAT, "%s: member %lld: it claims bytes that the file has "
                            "not, or that others have", a->m->path, (long long)i);
        held += s.comp_size;
        int status = npz_read_member(a, (uint64_t)i, &s, values, out);
        if (status) return status;
    }
    wb__table_sort(out);
    for (int i = 1; i < out->n; i++)
        if (!strcmp(out->entries[i - 1].name, out->entries[i].name))
            return wb__fail(WB_ERROR_FORMAT, "%s: two members are named \"%.200s\"", a->m->path,
                            out->entries[i].name);
    return 0;
}

static int npz_read_archive(wb__mapping *m, bool values, wb__table *out)
{
    npz_archive a = {.m = m, .zip = wb__zip_open(m)};
    if (!a.zip) return wb_error_code();
    int status = values ? npz_check_sizes(&a) : 0;
    if (!status) status = npz_read_members(&a, values, out);
    zip_discard(a.zip);
    return status;
}

#endif

int wb__npz_table(wb__mapping *m, bool values, wb__table *out)
{
    if (m->bytes >= 6 && !memcmp(m->data, "\x93NUMPY", 6)) return wb__npy_table(m, values, out);
    *out = (wb__table){0};
    if (m->bytes < 2 || memcmp(m->data, "PK", 2) != 0)
        return wb__map_fail(m, 0, "not an NPZ file");
    if (m->bytes < 22)
        return wb__map_fail(m, m->bytes, "an archive that is cut off: copy or download it again");
    int status = npz_read_archive(m, values, out);
    if (status) wb__table_free(out);
    else out->mapping = m;
    return status;
}
