/* Reads PyTorch's files with libzip. Their members are not compressed. The bytes of all tensors
 * together are at most those of the file and the limit of wb_set_unpack_limit: several tensors may
 * be views of one storage, also with strides of 0. */
#include "io/torch/pt.h"

#include "base/files/file.h"
#include "engine/tensor.h"
#include "io/torch/pickle.h"
#include "io/zip.h"

#include <stdio.h>
#include <string.h>

enum { DEEPEST = 64 };                  /* dicts and lists within each other */

/* The first member, whose name is behind the header of 30 bytes, is NAME/data.pkl. */
bool wb__pt_is(const wb__mapping *m)
{
    static const char end[] = "/data.pkl";
    if (m->bytes < 30 || memcmp(m->data, "PK\3\4", 4)) return false;
    const int64_t length = m->data[26] | m->data[27] << 8, n = sizeof end - 1;
    return length > n && 30 + length <= m->bytes &&
           !memcmp(m->data + 30 + length - n, end, (size_t)n);
}

#ifndef WB_HAVE_ZIP

int wb__pt_table(wb__mapping *m, bool values, wb__table *out)
{
    (void)values;
    *out = (wb__table){0};
    return wb__fail(WB_ERROR_UNSUPPORTED, "%s: a file of PyTorch, and this Weber was built without "
                    "libzip: install libzip-dev and build anew", m->path);
}

#else

typedef struct {
    wb__mapping *m;
    zip_t *zip;
    bool values;
    char folder[256];                   /* of the members, with a slash */
    wb__pickle pickle;
    wb__table *out;
    int64_t bytes;                      /* of all tensors */
    int visits;
    /* the storage that was read last */
    int storage;                        /* its value; -1: none */
    char *block;
} archive;

/* ---- members --------------------------------------------------------------------------------- */

/* Reads a member of the folder into a block of wb__alloc_aligned. NULL: failed. */
static char *member(archive *a, const char *name, int length, int64_t *bytes)
{
    char path[600];
    zip_stat_t s;
    snprintf(path, sizeof path, "%s%.*s", a->folder, length, name);
    const zip_uint64_t all = ZIP_STAT_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if (zip_stat(a->zip, path, ZIP_FL_ENC_RAW, &s) || (s.valid & all) != all)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: it has no member \"%s\"", a->m->path, path);
    if (s.comp_method != ZIP_CM_STORE || s.encryption_method != ZIP_EM_NONE ||
        s.size > (uint64_t)a->m->bytes)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: member \"%s\" is compressed or encrypted, or "
                             "larger than the file", a->m->path, path);
    *bytes = (int64_t)s.size;
    zip_file_t *file = zip_fopen(a->zip, path, ZIP_FL_ENC_RAW);
    if (!file) return wb__zip_fail(a->m, zip_get_error(a->zip)), NULL;
    char *block = wb__alloc_aligned((size_t)WB__MAX(*bytes, 1)), more;
    int64_t done = 0, got = block ? 1 : 0;
    while (done < *bytes && got > 0) {
        got = zip_fread(file, block + done, (zip_uint64_t)(*bytes - done));
        done += WB__MAX(got, 0);
    }
    /* libzip compares the checksum when it reaches the end */
    if (block && (done < *bytes || zip_fread(file, &more, 1) != 0)) {
        wb__zip_fail(a->m, zip_file_get_error(file));
        wb__free(block);
        block = NULL;
    }
    zip_fclose(file);
    return block;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static const struct { const char *name; wb_dtype dtype; } classes[] = {
    {"torch\nFloatStorage", WB_F32}, {"torch\nDoubleStorage", WB_F64},
    {"torch\nHalfStorage", WB_F16},  {"torch\nBFloat16Storage", WB_BF16},
    {"torch\nCharStorage", WB_I8},   {"torch\nByteStorage", WB_U8},
    {"torch\nIntStorage", WB_I32},   {"torch\nLongStorage", WB_I64},
    {"torch\nBoolStorage", WB_BOOL}};

static const wb__pickle_value *item(const archive *a, const wb__pickle_value *v, int i)
{
    return &a->pickle.values[v->items[i]];
}

/* Sets *dense to whether the elements are one after the other, and *last to the offset of the last
 * one in the storage. False: the tensor is impossible. */
static bool strides_of(const archive *a, const wb__pickle_value *v, const wb__entry *e,
                       int64_t *strides, bool *dense, int64_t *last)
{
    const int64_t most = (int64_t)1 << 40;
    int64_t step = 1;
    *last = v->number;
    *dense = true;
    if (v->number < 0 || v->number > most) return false;
    for (int i = e->ndim - 1; i >= 0; i--) {
        const wb__pickle_value *s = item(a, item(a, v, 2), i);
        strides[i] = s->number;
        if (s->kind != WB__PICKLE_NUMBER || s->number < 0 || s->number > most) return false;
        if (e->dims[i] > 1 && s->number != step) *dense = false;
        if (e->dims[i] > 1 && s->number > most / e->dims[i]) return false;
        if (e->dims[i] > 1) *last += (e->dims[i] - 1) * s->number;
        step *= e->dims[i];
    }
    return *last <= most;
}

/* Copies the elements of a view of the storage at `from`, row-major. */
static void gather(char *to, const char *from, const wb__entry *e, const int64_t *strides,
                   size_t bytes)
{
    int64_t index[WB_MAX_DIMS] = {0}, at = 0;
    for (int64_t i = 0, n = e->bytes / (int64_t)bytes; i < n; i++) {
        memcpy(to + (size_t)i * bytes, from + (size_t)at * bytes, bytes);
        for (int k = e->ndim - 1; k >= 0; k--) {
            at += strides[k];
            if (++index[k] < e->dims[k]) break;
            at -= strides[k] * e->dims[k];
            index[k] = 0;
        }
    }
}

static int read_values(archive *a, wb__entry *e, const wb__pickle_value *v)
{
    const int number = v->items[0];
    const wb__pickle_value *storage = &a->pickle.values[number], *key = item(a, storage, 0);
    const size_t size = wb_dtype_bytes(e->dtype);
    int64_t strides[WB_MAX_DIMS], last;
    bool dense;
    if (!strides_of(a, v, e, strides, &dense, &last))
        return wb__fail(WB_ERROR_FORMAT, "%s: tensor \"%.200s\" has impossible strides", a->m->path,
                        e->name);
    if (!a->values || !e->bytes) return 0;
    if (a->storage != number) {
        char name[300];
        int64_t bytes;
        wb__free(a->block);
        a->storage = -1;
        snprintf(name, sizeof name, "data/%.*s", WB__MIN(key->length, 250), key->text);
        if (!(a->block = member(a, name, (int)strlen(name), &bytes))) return wb_error_code();
        const int64_t elements = bytes / (int64_t)size;
        if (storage->number != elements || bytes % (int64_t)size)
            return wb__fail(WB_ERROR_FORMAT, "%s: storage %.*s has %lld bytes, not %lld elements",
                            a->m->path, key->length, key->text, (long long)bytes,
                            (long long)storage->number);
        a->storage = number;
    }
    if (last >= storage->number)
        return wb__fail(WB_ERROR_FORMAT, "%s: tensor \"%.200s\" has more elements than its storage",
                        a->m->path, e->name);
    if (dense && !v->number && e->bytes == storage->number * (int64_t)size) {
        e->data = a->block;             /* the whole storage */
        a->block = NULL;
        a->storage = -1;
    } else {
        char *copy = wb__alloc_aligned((size_t)e->bytes);
        if (!copy) return WB_ERROR_MEMORY;
        gather(copy, a->block + (size_t)v->number * size, e, strides, size);
        e->data = copy;
    }
    e->owned = true;
    return 0;
}

static int add_tensor(archive *a, const char *name, const wb__pickle_value *v)
{
    const wb__pickle_value *sizes = item(a, v, 1), *class = item(a, item(a, v, 0), 1);
    int64_t size;
    wb__entry *e = wb__table_add(a->out, name);
    if (!e) return WB_ERROR_MEMORY;
    if (sizes->n != item(a, v, 2)->n)   /* an opcode after the tensor's has lengthened a list */
        return wb__fail(WB_ERROR_FORMAT, "%s: tensor \"%.200s\" has %d sizes and %d strides",
                        a->m->path, name, sizes->n, item(a, v, 2)->n);
    for (size_t i = 0; i < WB__COUNT(classes); i++)
        if (wb__pickle_is(class, classes[i].name)) e->dtype = classes[i].dtype;
    const int before = (int)strlen("torch\n"), after = (int)strlen("Storage");
    snprintf(e->type, sizeof e->type, "%.*s", class->length - before - after, class->text + before);
    e->ndim = WB__MIN(sizes->n, WB_MAX_DIMS);
    for (int i = 0; i < e->ndim; i++) {
        e->dims[i] = item(a, sizes, i)->number;
        if (item(a, sizes, i)->kind != WB__PICKLE_NUMBER) e->dims[i] = -1;
    }
    if (!wb__check_dims(name, sizes->n, e->dims, &size)) return wb_error_code();
    if (!e->dtype) return 0;            /* wb__table_check names it */
    e->bytes = size * (int64_t)wb_dtype_bytes(e->dtype);
    a->bytes += e->bytes;
    if (a->bytes > a->m->bytes + wb__unpack_limit())
        return wb__fail(WB_ERROR_FORMAT, "%s: its tensors have more than %lld bytes beyond "
                        "those of the file: the limit of wb_set_unpack_limit", a->m->path,
                        (long long)wb__unpack_limit());
    return read_values(a, e, v);
}

/* Adds the tensors in a value, whose names begin with `path`. */
static int walk(archive *a, const char *path, int number, int depth)
{
    const wb__pickle_value *v = &a->pickle.values[number];
    if (depth > DEEPEST || ++a->visits > 1 << 22)
        return wb__fail(WB_ERROR_FORMAT, "%s: its dicts and lists are nested deeper than %d, or "
                        "too often", a->m->path, DEEPEST);
    if (v->kind == WB__PICKLE_TENSOR) return add_tensor(a, *path ? path : "0", v);
    if (v->kind != WB__PICKLE_LIST && v->kind != WB__PICKLE_DICT) return 0;
    const int step = v->kind == WB__PICKLE_DICT ? 2 : 1;
    for (int i = 0; i < v->n; i += step) {
        const wb__pickle_value *key = item(a, v, i);
        const char *dot = *path ? "." : "";
        char *name = NULL;
        if (step == 1) name = wb__printf("%s%s%d", path, dot, i);
        else if (key->kind == WB__PICKLE_NUMBER)
            name = wb__printf("%s%s%lld", path, dot, (long long)key->number);
        else if (key->kind == WB__PICKLE_TEXT && key->length < 1000)
            name = wb__printf("%s%s%.*s", path, dot, key->length, key->text);
        else
            return wb__fail(WB_ERROR_FORMAT, "%s: a key in \"%.200s\" is no text and no number, or "
                            "too long", a->m->path, path);
        if (!name) return WB_ERROR_MEMORY;
        const int status = walk(a, name, v->items[i + step - 1], depth + 1);
        wb__free(name);
        if (status) return status;
    }
    return 0;
}

/* ---- the archive ----------------------------------------------------------------------------- */

/* Sets the folder, from the name of the first member. */
static int read_folder(archive *a)
{
    const int length = (a->m->data[26] | a->m->data[27] << 8) - (int)strlen("data.pkl");
    if (length >= (int)sizeof a->folder)
        return wb__fail(WB_ERROR_FORMAT, "%s: the name of its first member is too long",
                        a->m->path);
    memcpy(a->folder, a->m->data + 30, (size_t)length);
    a->folder[length] = 0;
    if (zip_name_locate(a->zip, "byteorder", ZIP_FL_NODIR) < 0) return 0;    /* older than 2.1 */
    int64_t bytes;
    char *order = member(a, "byteorder", 9, &bytes);
    if (!order) return wb_error_code();
    const bool little = bytes == 6 && !memcmp(order, "little", 6);
    wb__free(order);
    return little ? 0 : wb__fail(WB_ERROR_UNSUPPORTED, "%s: its numbers are not little-endian",
                                 a->m->path);
}

static int read_archive(archive *a)
{
    int status = read_folder(a);
    if (status) return status;
    int64_t bytes;
    char *pickle = member(a, "data.pkl", 8, &bytes);
    if (!pickle) return wb_error_code();
    status = wb__pickle_read(a->m->path, (const uint8_t *)pickle, bytes, &a->pickle);
    if (!status) status = walk(a, "", a->pickle.root, 0);
    wb__pickle_free(&a->pickle);
    wb__free(a->block);
    wb__free(pickle);
    return status;
}

int wb__pt_table(wb__mapping *m, bool values, wb__table *out)
{
    *out = (wb__table){0};
    if (!wb__pt_is(m))
        return wb__map_fail(m, 0, "not an archive of PyTorch: files from before version 1.6 are "
                            "not read");
    archive a = {.m = m, .values = values, .out = out, .storage = -1,
                 .zip = wb__zip_open(m)};
    if (!a.zip) return wb_error_code();
    int status = read_archive(&a);
    zip_discard(a.zip);
    if (!status) wb__table_sort(out);
    for (int i = 1; !status && i < out->n; i++)
        if (!strcmp(out->entries[i - 1].name, out->entries[i].name))
            status = wb__fail(WB_ERROR_FORMAT, "%s: two tensors are named \"%.200s\"", m->path,
                              out->entries[i].name);
    if (status) wb__table_free(out);
    else out->mapping = m;
    return status;
}

#endif
