/* Files as datasets.  src/io reads the formats. */
#include "base/options.h"
#include "data/dataset.h"
#include "io/borrow.h"
#include "io/dataset/csv.h"

/* Returns the images of a file, u8 [N,H,W], as f32 [N,1,H,W] with values from 0 to 1. */
static wb_tensor *readers_images_of(const char *path)
{
    wb_tensor *raw = wb_load_idx_tensor(path);
    if (!raw) return NULL;
    if (wb_ndim(raw) != 3 || wb_dtype_of(raw) != WB_U8)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: byte 0: %s are not images, [N,H,W] u8", path,
                             wb_describe(raw));
    const int64_t *d = wb_dims(raw), n = wb_size(raw);
    const uint8_t *from = wb_data(raw);
    float *to = from ? wb__alloc_aligned((size_t)n * sizeof *to) : NULL;
    for (int64_t i = 0; to && i < n; i++) to[i] = (float)from[i] / 255;
    wb_tensor *x = wb__borrow_block(to, WB_F32, 4, (int64_t[]){d[0], 1, d[1], d[2]});
    wb_object_free(raw);
    return x;
}

/* Returns the labels of a file, integers [N], as i32. */
static wb_tensor *readers_labels_of(const char *path)
{
    wb_tensor *raw = wb_load_idx_tensor(path);
    if (!raw) return NULL;
    wb_dtype t = wb_dtype_of(raw);
    if (wb_ndim(raw) != 1 || wb__dtype_float(t))
        return wb__fail_null(WB_ERROR_FORMAT, "%s: byte 0: %s are not labels, [N] of integers",
                             path, wb_describe(raw));
    int64_t n = wb_size(raw);
    const void *from = wb_data(raw);
    int32_t *to = from ? wb__alloc_aligned((size_t)n * sizeof *to) : NULL;
    if (to) wb__convert(to, WB_I32, from, t, n);
    wb_tensor *y = wb__borrow_block(to, WB_I32, 1, &n);
    wb_object_free(raw);
    return y;
}

static wb_dataset *idx_dataset(const char *images, const char *labels)
{
    wb_tensor *x = readers_images_of(images), *y = x ? readers_labels_of(labels) : NULL;
    if (!y) return NULL;
    if (wb_dim(x, 0) != wb_dim(y, 0))
        return wb__fail_null(WB_ERROR_FORMAT, "%s: byte 4: %lld images, but %s has %lld labels",
                             images, (long long)wb_dim(x, 0), labels, (long long)wb_dim(y, 0));
    return wb_dataset_of(x, y);
}

/* Closes the scope, keeps only the dataset d and returns it; NULL if d is NULL or closing fails. */
static wb_dataset *readers_close_keeping(wb_scope *s, wb_dataset *d)
{
    if (d) d = wb_object_keep(d);
    return wb_scope_close(s) ? NULL : d;
}

wb_dataset *wb_load_idx(const char *images, const char *labels)
{
    WB__EDGE;
    wb_scope *s = wb_scope_open();
    return s ? readers_close_keeping(s, idx_dataset(images, labels)) : NULL;
}

/* Adds the images and labels of one file to x and y.  Returns their number, or -1 with the error
 * set. */
static int64_t readers_add_cifar(const wb__mapping *m, float *x, int32_t *y)
{
    enum { PIXELS = 3 * 32 * 32, IMAGE = 1 + PIXELS };
    if (!m->bytes || m->bytes % IMAGE)
        return wb__map_fail(m, 0, "%lld bytes are no whole number of images of %d bytes",
                            (long long)m->bytes, IMAGE), -1;
    const int64_t n = m->bytes / IMAGE;
    for (int64_t i = 0; x && i < n; i++) {
        const uint8_t *image = m->data + i * IMAGE;
        if (image[0] > 9)
            return wb__map_fail(m, i * IMAGE, "the label %d is above 9", image[0]), -1;
        y[i] = image[0];
        for (int64_t p = 0; p < PIXELS; p++) x[i * PIXELS + p] = (float)image[1 + p] / 255;
    }
    return n;
}

/* Adds the images of all files to x and y or, if x is NULL, only counts them.  Returns their
 * number, or -1. */
static int64_t readers_add_cifars(int n, const char *const *paths, float *x, int32_t *y)
{
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        wb__mapping *m = wb__map(paths[i]);
        float *at = x ? x + total * 3072 : NULL;
        const int64_t made = m ? readers_add_cifar(m, at, x ? y + total : NULL) : -1;
        wb__unmap(m);
        if (made < 0) return -1;
        total += made;
    }
    return total;
}

static wb_dataset *cifar_dataset(int n, const char *const *paths)
{
    const int64_t total = readers_add_cifars(n, paths, NULL, NULL);
    if (total < 0) return NULL;
    float *x = wb__alloc_aligned((size_t)total * 3072 * sizeof *x);
    int32_t *y = x ? wb__alloc_aligned((size_t)total * sizeof *y) : NULL;
    const bool ok = y && readers_add_cifars(n, paths, x, y) == total;
    if (!ok) {
        wb__free(x);
        wb__free(y);
        return NULL;
    }
    wb_tensor *images = wb__borrow_block(x, WB_F32, 4, (int64_t[]){total, 3, 32, 32});
    wb_tensor *labels = wb__borrow_block(y, WB_I32, 1, &total);
    return images && labels ? wb_dataset_of(images, labels) : NULL;
}

wb_dataset *wb_load_cifar10(int n, const char *const *paths)
{
    WB__EDGE;
    if (n < 1 || !paths)
        return wb__fail_null(WB_ERROR_ARGUMENT, "load_cifar10: %d files", n);
    wb_scope *s = wb_scope_open();
    return s ? readers_close_keeping(s, cifar_dataset(n, paths)) : NULL;
}

/* Returns 0, or an error code if options are given that exclude each other. */
static int check_csv(const wb_load_csv_options *o, const wb__given *g)
{
    if (!o->separator)
        return wb__fail(WB_ERROR_ARGUMENT, "load_csv: .separator is 0");
    if (o->separator == '"' || o->separator == '\n')
        return wb__fail(WB_ERROR_ARGUMENT, "load_csv: .separator is a quotation mark or newline");
    if (o->label != INT32_MIN && o->label_name)
        return wb__fail(WB_ERROR_ARGUMENT, "load_csv: .label = %d and .label_name = \"%.60s\"",
                        o->label, o->label_name);
    if (o->label_dtype && o->label_dtype != WB_I32 && o->label_dtype != WB_F32)
        return wb__fail(WB_ERROR_ARGUMENT, "load_csv: .label_dtype is %s; it must be i32 or f32",
                        wb_dtype_name(o->label_dtype));
    if ((unsigned)o->missing > WB_MISSING_DROP)
        return wb__fail(WB_ERROR_ARGUMENT, "load_csv: .missing is %d", (int)o->missing);
    if (wb__is_given_null("load_csv", g, "like", o->like)) return wb_error_code();
    if (!o->like) return 0;
    if (!wb__expect("load_csv: .like", o->like, &wb__columns_class)) return wb_error_code();
    if (o->label != INT32_MIN || o->label_name || o->label_dtype || o->header > 0 || o->skip ||
        o->one_hot || o->numbered || o->missing || o->missing_texts)
        return wb__fail(WB_ERROR_ARGUMENT, "load_csv: options beside .like, which has them "
                        "already; only .separator and .columns may be there");
    return 0;
}

/* Returns the dataset in the current scope, and sets *o->columns, if o->columns is not NULL. */
static wb_dataset *csv_dataset(const char *path, const wb_load_csv_options *o)
{
    wb_scope *s = wb_scope_open();
    if (!s) return NULL;
    wb_tensor *x, *y;
    wb_columns *columns;
    wb_dataset *d = wb__csv_read(path, o, &x, &y, &columns) ? NULL : wb_dataset_of(x, y);
    if (d && o->columns && !o->like) columns = wb_object_keep(columns);
    d = columns ? readers_close_keeping(s, d) : readers_close_keeping(s, NULL);
    if (d && o->columns) *o->columns = columns;
    return d;
}

wb_dataset *wb_load_csv_with(const char *path, const wb_load_csv_options *given)
{
    WB__EDGE;
    wb_load_csv_options o;
    wb__given g;
    const bool read = wb__read_options("load_csv", wb_load_csv_options, &o, given, &g);
    if (o.columns && !o.like) *o.columns = NULL;        /* .like may be *columns */
    if (!read || check_csv(&o, &g)) return NULL;
    if (!o.missing_texts) o.missing_texts = WB_MISSING_TEXTS;
    return csv_dataset(path, &o);
}
