/* The table of file formats: detects the format of a file, and reads the table of its tensors
 * (table.h). */
#include "io/formats.h"

#include "base/text.h"
#include "io/dataset/idx.h"
#include "io/flux/flux.h"
#include "io/jld2/jld2.h"
#include "io/numpy/npz.h"
#include "io/onnx/layer.h"
#include "io/onnx/table.h"
#include "io/torch/pt.h"
#include "io/wav.h"

#include <stdio.h>
#include <string.h>

/* ---- recognising ----------------------------------------------------------------------------- */

static bool formats_begins(const wb__mapping *m, const char *with, int64_t n)
{
    return m->bytes >= n && !memcmp(m->data, with, (size_t)n);
}

static bool npy_is(const wb__mapping *m) { return formats_begins(m, "\x93NUMPY", 6); }

static bool npz_is(const wb__mapping *m)
{
    return formats_begins(m, "PK\3\4", 4) || formats_begins(m, "PK\5\6", 4);
}

/* Whether the file may be BSON: a document begins with its length and ends with a zero byte. */
static bool bson_is(const wb__mapping *m)
{
    int64_t length = 0;
    for (int i = 0; i < 4 && i < m->bytes; i++) length |= (int64_t)m->data[i] << (8 * i);
    return m->bytes >= 5 && length == m->bytes && !m->data[length - 1];
}

/* Whether the file may be safetensors: it begins with its header's length and a brace. */
static bool safetensors_is(const wb__mapping *m) { return m->bytes >= 9 && m->data[8] == '{'; }

static bool idx_is(const wb__mapping *m)
{
    const uint8_t *at = m->data;
    return m->bytes >= 4 && !at[0] && !at[1] && at[2] >= 8 && at[2] <= 14 && at[3] <= 8;
}

static int bson_table(wb__mapping *m, const char *key, bool values, wb__table *out)
{
    if (values) wb__map_ahead(m, m->data, m->bytes);
    const int status = wb__flux_table(m, key, out);
    if (!status) out->mapping = m;
    return status;
}

/* Sets *out to the table of one variable, or of all variables if there is no key. */
static int jld2_table(wb__mapping *m, const char *key, bool values, wb__table *out)
{
    return wb__jld2_table(m, key == wb__all_variables ? NULL : key, values, out);
}

static int save_npz(const char *path, void *model, wb__saving *list, bool torch)
{
    (void)model, (void)torch;
    return wb__npz_save(path, list);
}

/* clang-format off */
const wb__format_row wb__formats[WB__FORMATS] = {
    {"unknown", .save = wb__saving_write_model},
    {"NPY", {".npy"}, WB__WRITES_ARRAYS, WB__PACKAGES, .is = npy_is, .table = wb__npz_table},
    {"PT", {".pt", ".pth"}, 0, WB__PACKAGE_ZIP, .is = wb__pt_is, .table = wb__pt_table},
    {"JLD2", {".jld2"}, 0, WB__PACKAGE_HDF5, .is = wb__jld2_is, .table_of = jld2_table},
    {"NPZ", {".npz"}, WB__WRITES_TENSORS, WB__PACKAGE_ZIP, .is = npz_is, .table = wb__npz_table,
     .save = save_npz},
    {"BSON", {".bson"}, WB__HAS_MODELS, WB__PACKAGE_BSON, .is = bson_is, .table_of = bson_table,
     .load = wb__flux_load},
    {"ONNX", {".onnx"}, WB__HAS_CALLS, WB__PACKAGES, .is = wb__onnx_is, .table = wb__onnx_table,
     .load = wb__onnx_load},
    {"safetensors", {".safetensors"}, WB__HAS_MODELS, WB__PACKAGES, .is = safetensors_is,
     .table = wb__st_table, .save = wb__saving_write_model},
    {"WAV", {".wav"}, 0, WB__PACKAGES, .is = wb__wav_is, .table = wb__wav_table},
    {"IDX", {".idx"}, 0, WB__PACKAGES, .is = idx_is, .table = wb__idx_table},
};
/* clang-format on */

wb__format wb__format_of(const wb__mapping *m)
{
    int f = 1;
    while (f < WB__FORMATS && !wb__formats[f].is(m)) f++;
    return f < WB__FORMATS ? (wb__format)f : WB__FORMAT_UNKNOWN;
}

wb__format wb__format_named(const char *path)
{
    const char *ending = strrchr(path, '.');
    for (int f = 1; ending && f < WB__FORMATS; f++)
        for (int i = 0; i < 2 && wb__formats[f].endings[i]; i++)
            if (!strcmp(ending, wb__formats[f].endings[i])) return (wb__format)f;
    return WB__FORMAT_UNKNOWN;
}

wb__format wb__format_in(const wb__mapping *m)
{
    wb__format format = wb__format_of(m);
    return format == WB__FORMAT_UNKNOWN ? wb__format_named(m->path) : format;
}

const char *wb__format_endings(int flags, char text[WB__FORMAT_WORDS])
{
    char words[WB__FORMAT_WORDS] = "";
    for (int f = 1, n = 0; f < WB__FORMATS; f++)
        if (!flags || wb__formats[f].flags & flags)
            n += snprintf(words + n, sizeof words - (size_t)n, "%s%s", n ? " " : "",
                          flags ? wb__formats[f].endings[0] : wb__formats[f].name);
    wb__list_words(text, WB__FORMAT_WORDS, words);
    return text;
}

int wb__format_fail(const char *path)
{
    char names[WB__FORMAT_WORDS];
    return wb__fail(WB_ERROR_FORMAT, "%s: unknown format; known are files of %s", path,
                    wb__format_endings(0, names));
}

int wb__table_of(wb__mapping *m, const char *key, bool values, wb__table *out)
{
    *out = (wb__table){0};
    const wb__format_row *f = &wb__formats[wb__format_in(m)];
    if (f->table_of) return f->table_of(m, key, values, out);
    return f->table ? f->table(m, values, out) : wb__format_fail(m->path);
}

int wb__table_load(const char *path, const char *key, bool values, wb__table *out)
{
    *out = (wb__table){0};
    wb__mapping *m = wb__map(path);
    if (!m) return wb_error_code();
    int status = wb__table_of(m, key, values, out);
    if (status) wb__unmap(m);
    return status;
}
