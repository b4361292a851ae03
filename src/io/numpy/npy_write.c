/* Writing NPY files; npy.c describes the format. */
#include "io/numpy/npy.h"

#include "base/files/file.h"
#include "engine/evaluate.h"

#include <stdio.h>
#include <string.h>

static const char *npy_write_name_of(wb_dtype t)
{
    switch (t) {
    case WB_F64: return "<f8";
    case WB_F16: return "<f2";
    case WB_I8: return "|i1";
    case WB_U8: return "|u1";
    case WB_BOOL: return "|b1";
    case WB_I32: return "<i4";
    case WB_I64: return "<i8";
    default: return "<f4";
    }
}

/* Writes the header, padded so that the elements begin at a multiple of 64 bytes.  Returns the
 * length of the header. */
static int write_header(char *to, size_t size, const wb_tensor *x)
{
    char dims[200] = "";
    size_t n = 0;
    for (int i = 0; i < wb_ndim(x); i++)
        n += (size_t)snprintf(dims + n, sizeof dims - n, i ? ", %lld" : "%lld",
                              (long long)wb_dim(x, i));
    int length = snprintf(to + 10, size - 10,
                          "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }",
                          npy_write_name_of(wb_dtype_of(x)), dims, wb_ndim(x) == 1 ? "," : "");
    int total = (10 + length + 1 + 63) / 64 * 64;
    memset(to + 10 + length, ' ', (size_t)(total - 10 - length));
    to[total - 1] = '\n';
    memcpy(to, "\x93NUMPY\1\0", 8);
    to[8] = (char)((total - 10) & 255);
    to[9] = (char)((total - 10) >> 8);
    return total;
}

typedef struct { wb__npy_put put; void *ctx; wb_dtype dtype; } npy_writing;

static int npy_write_part(const void *part, int64_t n, void *ctx)
{
    const npy_writing *to = ctx;
    int status = 0;
    if (to->dtype != WB_BF16)
        return to->put(to->ctx, part, n * (int64_t)wb__dtype_size(to->dtype));
    for (int64_t i = 0, some; !status && i < n; i += some) {
        float wide[1024];
        some = WB__MIN(n - i, (int64_t)WB__COUNT(wide));
        wb__convert(wide, WB_F32, (const char *)part + 2 * i, WB_BF16, some);
        status = to->put(to->ctx, wide, some * 4);
    }
    return status;
}

int wb__npy_write(wb_tensor *x, wb__npy_put put, void *ctx)
{
    char text[512];
    npy_writing to = {put, ctx, wb_dtype_of(x)};
    int status = put(ctx, text, write_header(text, sizeof text, x));
    return status ? status : wb__read_in_parts(x, npy_write_part, &to);
}

static int npy_write_to_writer(void *w, const void *data, int64_t bytes)
{
    return wb__writer_put(w, data, bytes);
}

int wb_save_npy(const char *path, wb_tensor *x)
{
    WB__PUBLIC(wb_save_npy, wb_error_code());
    if (!wb__operand("save_npy", x)) return wb_error_code();
    int status = wb_eval_array(1, &x);
    if (status) return status;
    wb__writer *w = wb__writer_open(path);
    if (!w) return wb_error_code();
    status = wb__npy_write(x, npy_write_to_writer, w);
    if (!status) return wb__writer_close(w);
    wb__writer_drop(w);
    return status;
}
