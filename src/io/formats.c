/* Detects the format of a file, and reads the table of its tensors (table.h). */
#include "io/formats.h"

#include "io/dataset/idx.h"
#include "io/flux/flux.h"
#include "io/jld2/jld2.h"
#include "io/numpy/npz.h"
#include "io/onnx/table.h"
#include "io/torch/pt.h"

#include <string.h>

static const char *const names[WB__FORMATS] = {"unknown", "safetensors", "BSON",
                                               "NPZ", "NPY", "IDX", "PT", "JLD2", "ONNX"};
static const struct { const char *ending; wb__format format; } endings[] = {
    {".safetensors", WB__FORMAT_SAFETENSORS}, {".bson", WB__FORMAT_BSON}, {".npz", WB__FORMAT_NPZ},
    {".npy", WB__FORMAT_NPY}, {".idx", WB__FORMAT_IDX}, {".pt", WB__FORMAT_PT},
    {".pth", WB__FORMAT_PT}, {".jld2", WB__FORMAT_JLD2}, {".onnx", WB__FORMAT_ONNX}};

static uint64_t little(const uint8_t *at, int n)
{
    uint64_t value = 0;
    for (int i = 0; i < n; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* Checks the formats from the most certain to the least certain. A BSON document begins with its
 * length and ends with a zero byte. An ONNX file is one whose fields are all known. A safetensors
 * file begins with its header's length and a brace. */
wb__format wb__format_of(const wb__mapping *m)
{
    const uint8_t *at = m->data;
    if (m->bytes >= 6 && !memcmp(at, "\x93NUMPY", 6)) return WB__FORMAT_NPY;
    if (wb__pt_is(m)) return WB__FORMAT_PT;
    if (wb__jld2_is(m)) return WB__FORMAT_JLD2;
    if (m->bytes >= 4 && (!memcmp(at, "PK\3\4", 4) || !memcmp(at, "PK\5\6", 4)))
        return WB__FORMAT_NPZ;
    if (m->bytes >= 5 && (int64_t)little(at, 4) == m->bytes && !at[m->bytes - 1])
        return WB__FORMAT_BSON;
    if (wb__onnx_is(m)) return WB__FORMAT_ONNX;
    if (m->bytes >= 9 && at[8] == '{') return WB__FORMAT_SAFETENSORS;
    if (m->bytes >= 4 && !at[0] && !at[1] && at[2] >= 8 && at[2] <= 14 && at[3] <= 8)
        return WB__FORMAT_IDX;
    return WB__FORMAT_UNKNOWN;
}

wb__format wb__format_named(const char *path)
{
    const char *ending = strrchr(path, '.');
    for (size_t i = 0; ending && i < WB__COUNT(endings); i++)
        if (!strcmp(ending, endings[i].ending)) return endings[i].format;
    return WB__FORMAT_UNKNOWN;
}

const char *wb__format_name(wb__format f) { return names[f]; }

wb__format wb__format_in(const wb__mapping *m)
{
    wb__format format = wb__format_of(m);
    return format == WB__FORMAT_UNKNOWN ? wb__format_named(m->path) : format;
}

int wb__table_of(wb__mapping *m, const char *key, bool values, wb__table *out)
{
    *out = (wb__table){0};
    switch (wb__format_in(m)) {
    case WB__FORMAT_SAFETENSORS: return wb__st_table(m, values, out);
    case WB__FORMAT_NPZ:
    case WB__FORMAT_NPY: return wb__npz_table(m, values, out);
    case WB__FORMAT_IDX: return wb__idx_table(m, values, out);
    case WB__FORMAT_PT: return wb__pt_table(m, values, out);
    case WB__FORMAT_JLD2:               /* without a key it reads all variables */
        return wb__jld2_table(m, key == wb__all_variables ? NULL : key, values, out);
    case WB__FORMAT_ONNX: return wb__onnx_table(m, values, out);
    case WB__FORMAT_BSON: {
        if (values) wb__map_ahead(m, m->data, m->bytes);
        int status = wb__flux_table(m, key, out);
        if (!status) out->mapping = m;
        return status;
    }
    default:
        return wb__map_fail(m, 0,
                            "this is no file with tensors: it does not begin as safetensors, BSON, "
                            "NPZ, NPY, IDX, PT (of PyTorch), JLD2 (of Julia) or ONNX");
    }
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
