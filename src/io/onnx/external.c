/* Values of a tensor in another file (external_data).  The file is in the folder of the model or in
 * a folder inside it, and no link leads out: a model from elsewhere must not read other files. */
#include "io/onnx/read.h"

#include "base/files/file.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>

/* The entries of external_data.  Entries of other names, such as a checksum, are ignored. */
typedef struct {
    const char *tensor;
    wb__span location;
    int64_t offset, length;             /* in bytes; length -1: as many as the shape needs */
} onnx_external_place;

static int onnx_external_fail(const wb__onnx_reader *r, const onnx_external_place *p,
                              const char *reason)
{
    return wb__onnx_fail(r, WB_ERROR_FORMAT, "tensor \"%.200s\": its values are in the file "
                         "\"%.*s\" (external data): %s", p->tensor,
                         (int)WB__MIN(p->location.n, 300), p->location.at, reason);
}

/* Sets *value to a number in digits.  False: the text is none. */
static bool onnx_external_read_digits(wb__span text, int64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < text.n; i++) {
        const int digit = text.at[i] - '0';
        if (digit < 0 || digit > 9 || *value > (INT64_MAX - digit) / 10) return false;
        *value = 10 * *value + digit;
    }
    return text.n > 0;
}

static int onnx_external_read_entry(const wb__onnx_reader *r, wb__wire in, onnx_external_place *p)
{
    wb__wire_field f;
    wb__span key = {"", 0}, value = {"", 0};
    while (wb__wire_next(&in, &f)) {
        if (f.number == ENTRY_KEY) wb__wire_text(&in, &f, &key);
        else if (f.number == ENTRY_VALUE) wb__wire_text(&in, &f, &value);
    }
    if (in.status) return in.status;
    if (wb__span_is(key, "location")) p->location = value;
    const bool is_offset = wb__span_is(key, "offset");
    if (!is_offset && !wb__span_is(key, "length")) return 0;
    if (onnx_external_read_digits(value, is_offset ? &p->offset : &p->length)) return 0;
    return wb__onnx_fail(r, WB_ERROR_FORMAT, "tensor \"%.200s\": its %s in external data is "
                         "\"%.*s\", which is no number", p->tensor,
                         is_offset ? "offset" : "length", (int)WB__MIN(value.n, 40), value.at);
}

static int onnx_external_read_place(const wb__onnx_reader *r, wb__wire in, onnx_external_place *p)
{
    wb__wire_field f;
    wb__wire entry;
    while (wb__wire_next(&in, &f))
        if (f.number == TENSOR_EXTERNAL && wb__wire_message(&in, &f, &entry))
            in.status = onnx_external_read_entry(r, entry, p);
    if (in.status) return in.status;
    return p->location.n ? 0 : onnx_external_fail(r, p, "there is no entry \"location\"");
}

/* Whether a component of the path is "..". */
static bool onnx_external_leaves(wb__span path)
{
    size_t from = 0;
    for (size_t i = 0; i <= path.n; i++) {
        if (i < path.n && path.at[i] != '/') continue;
        if (i - from == 2 && path.at[from] == '.' && path.at[from + 1] == '.') return true;
        from = i + 1;
    }
    return false;
}

/* Sets r->folder, the folder of the model. */
static int onnx_external_find_folder(wb__onnx_reader *r, const onnx_external_place *p)
{
    const char *path = r->file.path, *end = strrchr(path, '/');
    char real[WB__OS_PATH];
    if (r->folder) return 0;
    char *folder = end ? wb__printf("%.*s/", (int)(end - path), path) : wb__strdup(".");
    if (!folder) return wb_error_code();
    const bool found = wb__os_real_path(folder, real);
    wb__free(folder);
    if (!found) return onnx_external_fail(r, p, "the model's folder cannot be found");
    r->folder = wb__onnx_copy(r->m, wb__span_of(real));
    return r->folder ? 0 : (int)wb_error_code();
}

/* Maps the file into memory, unless it is mapped already.  Returns 0 or an error code. */
static int onnx_external_map_file(wb__onnx_reader *r, const onnx_external_place *p,
                                  const char *real)
{
    wb__mapping *m = wb__onnx_find_mapping(r->m, real);
    if (!m) {
        if (!(m = wb__map_raw(real))) return wb_error_code();
        const int status = wb__onnx_add_mapping(r->m, m);
        if (status) return wb__unmap(m), status;
        r->mapped += m->bytes;
    }
    r->location = p->location;
    r->located = m;
    return 0;
}

static int onnx_external_open_file(wb__onnx_reader *r, const onnx_external_place *p)
{
    char real[WB__OS_PATH];
    if (r->located && r->location.n == p->location.n &&
        !memcmp(r->location.at, p->location.at, p->location.n)) return 0;
    if (r->bare) return onnx_external_fail(r, p, "a model in memory has no folder");
    if (p->location.at[0] == '/' || onnx_external_leaves(p->location))
        return onnx_external_fail(r, p, "its path must be inside the model's folder");
    int status = onnx_external_find_folder(r, p);
    if (status) return status;
    char *path = wb__printf("%s/%.*s", r->folder, (int)WB__MIN(p->location.n, WB__OS_PATH),
                            p->location.at);
    if (!path) return wb_error_code();
    const bool found = wb__os_real_path(path, real);
    wb__free(path);
    if (!found) return onnx_external_fail(r, p, "it is not there; it belongs beside the model");
    const size_t n = strcmp(r->folder, "/") ? strlen(r->folder) : 0;
    if (strncmp(real, r->folder, n) != 0 || real[n] != '/')
        return onnx_external_fail(r, p, "a link leads out of the model's folder: copy the file "
                                  "into the folder");
    return onnx_external_map_file(r, p, real);
}

int wb__onnx_external(wb__onnx_reader *r, wb__wire in, int64_t bytes, wb__onnx_tensor *t)
{
    char reason[200];
    onnx_external_place p = {.tensor = t->name, .location = {"", 0}, .length = -1};
    int status = onnx_external_read_place(r, in, &p);
    if (status) return status;
    if (p.length >= 0 && p.length != bytes) {
        snprintf(reason, sizeof reason, "its length is %lld; shape and type need %lld bytes",
                 (long long)p.length, (long long)bytes);
        return onnx_external_fail(r, &p, reason);
    }
    if (!bytes) return 0;
    if ((status = onnx_external_open_file(r, &p))) return status;
    if (p.offset > r->located->bytes || bytes > r->located->bytes - p.offset) {
        snprintf(reason, sizeof reason, "it has %lld bytes, and the values are %lld bytes at "
                 "offset %lld", (long long)r->located->bytes, (long long)bytes,
                 (long long)p.offset);
        return onnx_external_fail(r, &p, reason);
    }
    t->data = r->located->data + p.offset;
    r->external += bytes;
    if (r->external - r->mapped <= wb__unpack_limit()) return 0;
    snprintf(reason, sizeof reason, "its file and others have %lld bytes, and the tensors in them "
             "more than %lld besides, since they overlap: the limit of wb_set_unpack_limit",
             (long long)r->mapped, (long long)wb__unpack_limit());
    return onnx_external_fail(r, &p, reason);
}
