/* Reads PyTorch's files with libzip.  Their members are not compressed.
 *
 * Several tensors may be views of one storage, also with strides of 0, and a list may refer to the
 * same part many times, so a small file may describe many large tensors.  The parts, with those
 * that are met again, are at most as many as the pickle has bytes, and PT_LEAST_VISITS.  What the
 * tensors take beyond a small multiple of the file counts against the limit of wb_set_unpack_limit:
 * their elements, and WB__TENSOR_TAKES bytes and a name for each.  All this is known before any
 * value is read.
 *
 * The tensors of a storage are read one after the other, so each storage is read once. */
#include "io/torch/pt.h"

#include "base/files/file.h"
#include "base/packages.h"
#include "engine/tensor.h"
#include "io/torch/pickle.h"
#include "io/zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PT_DEEPEST = 64,                    /* levels of nested dicts and lists */
    PT_LEAST_VISITS = 1 << 12
};

/* Whether the first member, whose name follows a header of 30 bytes, is NAME/data.pkl. */
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
    return wb__package_missing(WB__PACKAGE_ZIP, m->path, NULL);
}

#else

/* A view of the storage `key`: tensor `tensor` of the pickle, and entry `entry` of the table. */
typedef struct {
    const wb__pickle_value *tensor, *key;
    int entry;
    wb__narrow_int narrow;
} view;

typedef struct {
    wb__mapping *m;                     /* the file */
    zip_t *zip;
    bool values;
    char folder[256];                   /* the folder of the members, with a slash at the end */
    wb__pickle pickle;
    int64_t pickle_bytes;
    wb__table *out;
    view *views;                        /* the views of all entries with elements */
    int n_views, capacity;
    int64_t bytes, takes;               /* bytes of the elements of all tensors; bytes of their
                                           names and objects */
    int64_t visits, names;              /* parts of the pickle met so far; bytes of their names */
} pt_archive;

/* Reads a member of the folder into a block of wb__alloc_aligned.  NULL: failed. */
static char *pt_read_member(pt_archive *a, const char *name, int length, int64_t *bytes)
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

/* PyTorch's dtypes: the class of their storages, and their names. */
static const struct { const char *class,
                      *name; wb_dtype dtype; wb__narrow_int narrow; } pt_types[] = {
    {"FloatStorage", "float32", WB_F32, 0},   {"DoubleStorage", "float64", WB_F64, 0},
    {"HalfStorage", "float16", WB_F16, 0},    {"BFloat16Storage", "bfloat16", WB_BF16, 0},
    {"CharStorage", "int8", WB_I8, 0},        {"ByteStorage", "uint8", WB_U8, 0},
    {"IntStorage", "int32", WB_I32, 0},       {"LongStorage", "int64", WB_I64, 0},
    {"BoolStorage", "bool", WB_BOOL, 0},      {"ShortStorage", "int16", 0, WB__NARROW_I16},
    {"UInt16Storage", "uint16", 0, WB__NARROW_U16},
    {"UInt32Storage", "uint32", 0, WB__NARROW_U32}};

static const wb__pickle_value *pt_item(const pt_archive *a, const wb__pickle_value *v, int i)
{
    return &a->pickle.values[v->items[i]];
}

/* Sets *dense to whether the elements follow one another, and *last to the offset of the last one
 * in the storage.  False: the tensor is impossible. */
static bool pt_strides_of(const pt_archive *a, const wb__pickle_value *v, const wb__entry *e,
                          int64_t *strides, bool *dense, int64_t *last)
{
    const int64_t most = (int64_t)1 << 40;
    int64_t step = 1;
    *last = v->number;
    *dense = true;
    if (v->number < 0 || v->number > most) return false;
    for (int i = e->ndim - 1; i >= 0; i--) {
        const wb__pickle_value *s = pt_item(a, pt_item(a, v, 2), i);
        strides[i] = s->number;
        if (s->kind != WB__PICKLE_NUMBER || s->number < 0 || s->number > most) return false;
        if (e->dims[i] > 1 && s->number != step) *dense = false;
        if (e->dims[i] > 1 && s->number > most / e->dims[i]) return false;
        if (e->dims[i] > 1) *last += (e->dims[i] - 1) * s->number;
        step *= e->dims[i];
    }
    return *last <= most;
}

/* Copies the elements of a view of the storage at `from`, elements of `bytes` bytes, row-major. */
static void pt_copy_view(char *to, const char *from, const wb__entry *e, const int64_t *strides,
                         size_t bytes)
{
    int64_t index[WB_MAX_DIMS] = {0}, at = 0;
    const int64_t n = e->bytes / (int64_t)wb__dtype_size(e->dtype);
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + (size_t)i * bytes, from + (size_t)at * bytes, bytes);
        for (int k = e->ndim - 1; k >= 0; k--) {
            at += strides[k];
            if (++index[k] < e->dims[k]) break;
            at -= strides[k] * e->dims[k];
            index[k] = 0;
        }
    }
}

/* Returns the bytes of an element in the file. */
static int64_t pt_width_of(const view *v, const wb__entry *e)
{
    return v->narrow ? wb__narrow_bytes(v->narrow) : (int64_t)wb__dtype_size(e->dtype);
}

/* Sets the dtype of an entry.  The class of a storage is named after the dtype, "FloatStorage". */
static void pt_set_type(const pt_archive *a, const wb__pickle_value *v, wb__entry *e,
                        wb__narrow_int *narrow)
{
    const wb__pickle_value *named = v->n > 3 ? pt_item(a, v, 3) : NULL;
    const wb__pickle_value *type = named ? named : pt_item(a, pt_item(a, v, 0), 1);
    const int end = named ? 0 : (int)strlen("Storage");
    for (size_t i = 0; i < WB__COUNT(pt_types); i++) {
        if (!wb__pickle_is(type, named ? pt_types[i].name : pt_types[i].class)) continue;
        *narrow = pt_types[i].narrow;
        e->dtype = *narrow ? wb__narrow_dtype(*narrow) : pt_types[i].dtype;
    }
    snprintf(e->type, sizeof e->type, "%.*s", type->n - end, type->text);
}

/* Returns an error code if all tensors so far take too much memory, else 0. */
static int pt_check_limit(const pt_archive *a)
{
    const int64_t elements = WB__MAX(a->bytes - a->m->bytes, 0);
    const int64_t others = WB__MAX(a->takes - WB__TENSORS_TIMES * a->pickle_bytes, 0);
    if (elements + others <= wb__unpack_limit()) return 0;
    return wb__fail(WB_ERROR_FORMAT, "%s: its tensors take more than %lld bytes beyond those of "
                    "the file: the limit of wb_set_unpack_limit", a->m->path,
                    (long long)wb__unpack_limit());
}

static int pt_add_view(pt_archive *a, const wb__pickle_value *v, wb__narrow_int narrow)
{
    const wb__entry *e = &a->out->entries[a->out->n - 1];
    int64_t strides[WB_MAX_DIMS], last;
    bool dense;
    if (!pt_strides_of(a, v, e, strides, &dense, &last))
        return wb__fail(WB_ERROR_FORMAT, "%s: tensor \"%.200s\" has impossible strides", a->m->path,
                        e->name);
    if (!a->values || !e->bytes) return 0;
    if (!wb__reserve(&a->views, &a->capacity, a->n_views + 1, sizeof *a->views))
        return WB_ERROR_MEMORY;
    a->views[a->n_views++] = (view){v, pt_item(a, pt_item(a, v, 0), 0), a->out->n - 1, narrow};
    return 0;
}

static int pt_add_tensor(pt_archive *a, const char *name, const wb__pickle_value *v)
{
    const wb__pickle_value *sizes = pt_item(a, v, 1);
    wb__narrow_int narrow = WB__NOT_NARROW;
    int64_t size;
    wb__entry *e = wb__table_add(a->out, name);
    if (!e) return WB_ERROR_MEMORY;
    if (sizes->n != pt_item(a, v, 2)->n) /* a later opcode has lengthened one of the lists */
        return wb__fail(WB_ERROR_FORMAT, "%s: tensor \"%.200s\" has %d sizes and %d strides",
                        a->m->path, name, sizes->n, pt_item(a, v, 2)->n);
    pt_set_type(a, v, e, &narrow);
    a->takes += WB__TENSOR_TAKES + (int64_t)strlen(name);
    e->axes = sizes->n;
    if (e->axes > WB_MAX_DIMS) return e->dtype = WB_DTYPE_DEFAULT, pt_check_limit(a);
    e->ndim = sizes->n;
    for (int i = 0; i < e->ndim; i++) {
        e->dims[i] = pt_item(a, sizes, i)->number;
        if (pt_item(a, sizes, i)->kind != WB__PICKLE_NUMBER) e->dims[i] = -1;
    }
    if (!wb__check_dims(name, e->ndim, e->dims, &size)) return wb_error_code();
    if (!e->dtype) return pt_check_limit(a);       /* wb__table_check reports it */
    e->bytes = size * (int64_t)wb__dtype_size(e->dtype);
    a->bytes += e->bytes;
    const int status = pt_check_limit(a);
    return status ? status : pt_add_view(a, v, narrow);
}

/* Adds the tensors in a value, whose names begin with `path`. */
static int pt_walk(pt_archive *a, const char *path, int number, int depth)
{
    const wb__pickle_value *v = &a->pickle.values[number];
    if (depth > PT_DEEPEST)
        return wb__fail(WB_ERROR_FORMAT, "%s: its dicts and lists are nested deeper than %d",
                        a->m->path, PT_DEEPEST);
    a->names += (int64_t)strlen(path);
    if (++a->visits > a->pickle_bytes + PT_LEAST_VISITS ||
        a->names > WB__TENSORS_TIMES * (a->pickle_bytes + PT_LEAST_VISITS))
        return wb__fail(WB_ERROR_FORMAT, "%s: its dicts and lists refer to the same parts so often "
                        "that they unfold to many times the file: save each tensor once",
                        a->m->path);
    if (v->kind == WB__PICKLE_TENSOR) return pt_add_tensor(a, *path ? path : "0", v);
    if (v->kind != WB__PICKLE_LIST && v->kind != WB__PICKLE_DICT) return 0;
    const int step = v->kind == WB__PICKLE_DICT ? 2 : 1;
    for (int i = 0; i < v->n; i += step) {
        const wb__pickle_value *key = pt_item(a, v, i);
        const char *dot = *path ? "." : "";
        char *name = NULL;
        if (step == 1) name = wb__printf("%s%s%d", path, dot, i);
        else if (key->kind == WB__PICKLE_NUMBER)
            name = wb__printf("%s%s%lld", path, dot, (long long)key->number);
        else if (key->kind == WB__PICKLE_TEXT && key->n < 1000)
            name = wb__printf("%s%s%.*s", path, dot, key->n, key->text);
        else
            return wb__fail(WB_ERROR_FORMAT, "%s: a key in \"%.200s\" is no text and no number, or "
                            "too long", a->m->path, path);
        if (!name) return WB_ERROR_MEMORY;
        const int status = pt_walk(a, name, v->items[i + step - 1], depth + 1);
        wb__free(name);
        if (status) return status;
    }
    return 0;
}

static int pt_by_storage(const void *a, const void *b)
{
    const view *x = a, *y = b;
    if (x->key->n != y->key->n) return x->key->n < y->key->n ? -1 : 1;
    const int order = x->key->n ? memcmp(x->key->text, y->key->text, (size_t)x->key->n) : 0;
    return order ? order : (x->entry > y->entry) - (x->entry < y->entry);
}

/* Whether the storage has the size that the pickle gives, `bytes`, and contains the view. */
static int pt_check_view(const pt_archive *a, const view *v, int64_t bytes)
{
    const wb__entry *e = &a->out->entries[v->entry];
    const wb__pickle_value *storage = pt_item(a, v->tensor, 0);
    const int64_t width = pt_width_of(v, e);
    const int64_t each = wb__pickle_is(pt_item(a, storage, 1), "UntypedStorage") ? 1 : width;
    int64_t strides[WB_MAX_DIMS], last;
    bool dense;
    if (bytes % width || bytes % each || storage->number != bytes / each)
        return wb__fail(WB_ERROR_FORMAT, "%s: storage %.*s has %lld bytes, not %lld elements",
                        a->m->path, v->key->n, v->key->text, (long long)bytes,
                        (long long)storage->number);
    pt_strides_of(a, v->tensor, e, strides, &dense, &last);
    if (last < bytes / width) return 0;
    return wb__fail(WB_ERROR_FORMAT, "%s: tensor \"%.200s\" has more elements than its storage",
                    a->m->path, e->name);
}

/* Sets the data of the entry to a copy of the elements of a view, or to *block, the view's
 * storage. */
static int pt_read_view(const pt_archive *a, const view *v, char **block, int64_t bytes,
                        bool is_last)
{
    wb__entry *e = &a->out->entries[v->entry];
    const int64_t width = pt_width_of(v, e), n = e->bytes / (int64_t)wb__dtype_size(e->dtype);
    int64_t strides[WB_MAX_DIMS], last;
    bool dense;
    pt_strides_of(a, v->tensor, e, strides, &dense, &last);
    const char *from = *block + v->tensor->number * width;
    e->owned = true;
    if (is_last && dense && n * width == bytes && !v->narrow) {
        e->data = *block;
        *block = NULL;
        return 0;
    }
    char *copy = wb__alloc_aligned((size_t)e->bytes);
    char *narrow = v->narrow && !dense ? wb__alloc((size_t)(n * width)) : NULL;
    e->data = copy;
    if (!copy || (v->narrow && !dense && !narrow)) return wb__free(narrow), WB_ERROR_MEMORY;
    if (dense && !v->narrow) memcpy(copy, from, (size_t)e->bytes);
    else if (!dense) pt_copy_view(narrow ? narrow : copy, from, e, strides, (size_t)width);
    if (v->narrow) wb__widen_ints(copy, narrow ? narrow : from, n, v->narrow);
    wb__free(narrow);
    return 0;
}

/* Reads the n views of one storage. */
static int pt_read_storage(pt_archive *a, const view *v, int n)
{
    char name[300];
    int64_t bytes;
    snprintf(name, sizeof name, "data/%.*s", WB__MIN(v->key->n, 250), v->key->text);
    char *block = pt_read_member(a, name, (int)strlen(name), &bytes);
    int status = block ? 0 : (int)wb_error_code();
    for (int i = 0; !status && i < n; i++) {
        status = pt_check_view(a, &v[i], bytes);
        if (!status) status = pt_read_view(a, &v[i], &block, bytes, i == n - 1);
    }
    wb__free(block);
    return status;
}

static int pt_read_values(pt_archive *a)
{
    int status = 0;
    if (a->n_views) qsort(a->views, (size_t)a->n_views, sizeof *a->views, pt_by_storage);
    for (int i = 0, n; !status && i < a->n_views; i += n) {
        const wb__pickle_value *key = a->views[i].key, *next;
        for (n = 1; i + n < a->n_views; n++) {
            next = a->views[i + n].key;
            if (next->n != key->n || memcmp(next->text, key->text, (size_t)key->n)) break;
        }
        status = pt_read_storage(a, &a->views[i], n);
    }
    return status;
}

/* Sets a->folder by the name of the first member. */
static int pt_read_folder(pt_archive *a)
{
    const int length = (a->m->data[26] | a->m->data[27] << 8) - (int)strlen("data.pkl");
    if (length >= (int)sizeof a->folder)
        return wb__fail(WB_ERROR_FORMAT, "%s: the name of its first member is too long",
                        a->m->path);
    memcpy(a->folder, a->m->data + 30, (size_t)length);
    a->folder[length] = 0;
    if (zip_name_locate(a->zip, "byteorder", ZIP_FL_NODIR) < 0) return 0;    /* older than 2.1 */
    int64_t bytes;
    char *order = pt_read_member(a, "byteorder", 9, &bytes);
    if (!order) return wb_error_code();
    const bool little = bytes == 6 && !memcmp(order, "little", 6);
    wb__free(order);
    return little ? 0 : wb__fail(WB_ERROR_UNSUPPORTED, "%s: its numbers are not little-endian",
                                 a->m->path);
}

static int pt_read_archive(pt_archive *a)
{
    int status = pt_read_folder(a);
    if (status) return status;
    char *pickle = pt_read_member(a, "data.pkl", 8, &a->pickle_bytes);
    if (!pickle) return wb_error_code();
    status = wb__pickle_read(a->m->path, (const uint8_t *)pickle, a->pickle_bytes, &a->pickle);
    if (!status) status = pt_walk(a, "", a->pickle.root, 0);
    if (!status) status = pt_read_values(a);
    wb__pickle_free(&a->pickle);
    wb__free(a->views);
    wb__free(pickle);
    return status;
}

int wb__pt_table(wb__mapping *m, bool values, wb__table *out)
{
    *out = (wb__table){0};
    if (!wb__pt_is(m))
        return wb__map_fail(m, 0, "not an archive of PyTorch: files from before version 1.6 are "
                            "not read");
    pt_archive a = {.m = m, .values = values, .out = out, .zip = wb__zip_open(m)};
    if (!a.zip) return wb_error_code();
    int status = pt_read_archive(&a);
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
