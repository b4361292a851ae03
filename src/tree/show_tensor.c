/* Formats a tensor as text: its shape and dtype, then its values in rows.  Long axes are
 * abbreviated.
 *
 *   [2,3] f32
 *     1  2.5  -3
 *     4    5   6 */
#include "tree/tree.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of an axis longer than AT_MOST, only the first and last SHOW_TENSOR_EDGE elements are printed;
 * "..." marks the elements between, the gap. */
enum { AT_MOST = 8, SHOW_TENSOR_EDGE = 4 };
enum { SHOW_TENSOR_WIDTH = 24 };

static void show_tensor_format_value(char *text, const void *data, wb_dtype dtype, int64_t i)
{
    double f = 0;
    int64_t n = 0;
    wb_dtype to = wb__dtype_float(dtype) ? WB_F64 : WB_I64;
    wb__convert(to == WB_F64 ? (void *)&f : &n, to,
                (const char *)data + (size_t)i * wb__dtype_size(dtype), dtype, 1);
    if (dtype == WB_BOOL) snprintf(text, SHOW_TENSOR_WIDTH, "%s", n ? "true" : "false");
    else if (to == WB_I64) snprintf(text, SHOW_TENSOR_WIDTH, "%lld", (long long)n);
    else if (isnan(f)) snprintf(text, SHOW_TENSOR_WIDTH, "NaN");
    else if (isinf(f)) snprintf(text, SHOW_TENSOR_WIDTH, f > 0 ? "Inf" : "-Inf");
    else wb__plain(text, SHOW_TENSOR_WIDTH, "%.6g", f);
}

/* show_tensor_shown returns the number of printed entries of an axis of n elements, the gap counted
 * as one.  index_shown returns the index of the k-th printed element, or -1 for the gap. */
static int show_tensor_shown(int64_t n) { return n <= AT_MOST ? (int)n : 2 * SHOW_TENSOR_EDGE + 1; }
static int64_t index_shown(int64_t n, int k)
{
    if (n <= AT_MOST || k < SHOW_TENSOR_EDGE) return k;
    return k == SHOW_TENSOR_EDGE ? -1 : n - 2 * SHOW_TENSOR_EDGE - 1 + k;
}

static void show_matrix(wb__text *t, const void *data, wb_dtype dtype, int64_t base, int64_t rows,
                        int64_t columns)
{
    char cells[2 * SHOW_TENSOR_EDGE + 1][2 * SHOW_TENSOR_EDGE + 1][SHOW_TENSOR_WIDTH];
    int width[2 * SHOW_TENSOR_EDGE + 1] = {0}, n_rows = show_tensor_shown(rows),
    n_columns = show_tensor_shown(columns);
    for (int r = 0; r < n_rows; r++) {
        for (int c = 0; c < n_columns; c++) {
            int64_t i = index_shown(rows, r), j = index_shown(columns, c);
            if (i < 0 || j < 0)
                snprintf(cells[r][c], SHOW_TENSOR_WIDTH, i < 0 && j >= 0 ? ":" : "...");
            else show_tensor_format_value(cells[r][c], data, dtype, base + i * columns + j);
            width[c] = WB__MAX(width[c], (int)strlen(cells[r][c]));
        }
    }
    for (int r = 0; r < n_rows; r++) {
        wb__text_add(t, "\n");
        for (int c = 0; c < n_columns; c++) wb__text_add(t, "  %*s", width[c], cells[r][c]);
    }
}

static void show_tensor_add_values(wb__text *t, const wb_tensor *x, const void *data)
{
    int64_t columns = x->ndim ? x->dims[x->ndim - 1] : 1,
            rows = x->ndim > 1 ? x->dims[x->ndim - 2] : 1;
    int64_t matrices = x->size ? x->size / (rows * columns) : 0;
    for (int k = 0; matrices && k < show_tensor_shown(matrices); k++) {
        int64_t m = index_shown(matrices, k), rest = m;
        if (m < 0) {
            wb__text_add(t, "\n...");
            continue;
        }
        if (x->ndim > 2) {
            int64_t index[WB_MAX_DIMS];
            for (int a = x->ndim - 3; a >= 0; rest /= x->dims[a], a--) index[a] = rest % x->dims[a];
            wb__text_add(t, "\n[");
            for (int a = 0; a < x->ndim - 2; a++) wb__text_add(t, "%lld,", (long long)index[a]);
            wb__text_add(t, ":,:]");
        }
        show_matrix(t, data, (wb_dtype)x->dtype, m * rows * columns, rows, columns);
    }
}

/* Returns the text of x.  Values on a device whose memory the host cannot read are copied to the
 * host for this call only. */
char *wb__format_tensor(wb_tensor *x)
{
    wb__text t = {0};
    wb__text_add(&t, "%s", wb_describe(x));
    if (wb_is_none(x) || !x->size) return wb__text_take(&t);
    const bool here = wb__device_of(x)->backend->host_visible;
    const size_t bytes = (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype);
    void *fetched = here ? NULL : wb__alloc_aligned(bytes);
    wb__value_read r;
    const wb_tensor *from = wb__value_begin("data", x, &r);
    const char *data = fetched;
    if (from && here) data = (const char *)from->storage->data + from->offset;
    if (!from || (fetched && wb_copy_out(x, fetched, bytes))) data = NULL;
    if (data) show_tensor_add_values(&t, x, data);
    if (from) wb__value_end(&r);
    wb__free(fetched);
    char *text = wb__text_take(&t);
    if (data) return text;
    wb__free(text);
    return NULL;
}
