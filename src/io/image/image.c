/* wb_load_image, wb_save_image and wb_resize_image. */
#include "io/image/image.h"

#include "base/files/file.h"
#include "base/options.h"
#include "base/os.h"
#include "engine/tensor.h"
#include "io/borrow.h"
#include "io/image/exif.h"

#include "weber/images.h"

#include <math.h>

/* ---- planes ---------------------------------------------------------------------------------- */

/* Returns the luma, as in JPEG files and in Pillow: (0.299 R + 0.587 G + 0.114 B), rounded. */
static uint8_t image_luma(const uint8_t *rgb)
{
    return (uint8_t)((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 32768u) >> 16);
}

/* Returns the value that a pixel with n channels has in plane c of `channels` planes. */
static uint8_t image_plane_value(const uint8_t *pixel, int n, int c, int channels)
{
    const bool colours = n > 2, wanted = channels > 2;
    if (c == (wanted ? 3 : 1)) return n % 2 == 0 ? pixel[n - 1] : 255;
    if (colours) return wanted ? pixel[c] : image_luma(pixel);
    return pixel[0];
}

void wb__image_planes(const wb__pixels *image, int channels, uint8_t *to)
{
    const int64_t n = image->height * image->width;
    for (int c = 0; c < channels; c++)
        for (int64_t i = 0; i < n; i++)
            *to++ = image_plane_value(image->pixels + i * image->channels, image->channels, c,
                                      channels);
}

int wb__image_load(const char *what, const char *path, int channels, bool exif, int64_t dims[3],
                   uint8_t **planes)
{
    wb__pixels image;
    wb__os_about about;
    *planes = NULL;
    if (wb__os_look(path, true, &about) && about.kind == WB__OS_OTHER)
        return wb__fail(WB_ERROR_FILE, "%s: a pipe or a device, and images are read from files",
                        path);
    wb__mapping *m = wb__map(path);
    int status = m ? wb__image_read(what, m, &image) : (int)wb_error_code();
    const int orientation = !status && exif ? wb__exif_orientation(m) : 1;
    wb__unmap(m);
    if (!status && (status = wb__exif_upright(&image, orientation))) wb__free(image.pixels);
    if (status) return status;
    if (!channels) channels = image.channels;
    dims[0] = channels;
    dims[1] = image.height;
    dims[2] = image.width;
    *planes = wb__alloc_aligned((size_t)(channels * image.height * image.width));
    if (*planes) wb__image_planes(&image, channels, *planes);
    wb__free(image.pixels);
    return *planes ? 0 : WB_ERROR_MEMORY;
}

wb_tensor *wb_load_image_with(const char *path, const wb_load_image_options *given)
{
    wb_load_image_options o;
    if (WB__NULL(path) || !wb__read_options("load_image", wb_load_image_options, &o, given, NULL))
        return NULL;
    if (o.channels < 0 || o.channels > 4)
        return wb__fail_null(WB_ERROR_ARGUMENT, "load_image: %d channels; there are 1 to 4, or 0 "
                             "for those of the file", o.channels);
    int64_t dims[3];
    uint8_t *planes;
    if (wb__image_load("load_image", path, o.channels, o.exif, dims, &planes)) return NULL;
    const wb_device *was = wb__use_device(&wb__cpu);
    wb_tensor *x = wb__borrow_block(planes, WB_U8, 3, dims);
    wb__use_device(was);
    return x;
}

/* Returns a number from 0 to 1 as a byte; numbers outside and NaN become 0 or 255. */
static uint8_t byte_of(float x)
{
    return x >= 1 ? 255 : x > 0 ? (uint8_t)(x * 255 + 0.5f) : 0;
}

int wb_save_image(const char *path, wb_tensor *image)
{
    WB__PUBLIC(wb_save_image, wb_error_code());
    if (WB__NULL(path) || !wb__operand("save_image", image)) return wb__error_or(WB_ERROR_ARGUMENT);
    const int nd = wb_ndim(image);
    const int64_t *d = wb_dims(image), channels = nd == 3 ? d[0] : 1;
    const wb_dtype t = wb_dtype_of(image);
    if (nd < 2 || nd > 3 || (t != WB_U8 && t != WB_F32) || channels < 1 || channels > 4 ||
        !wb_size(image) || wb_size(image) > WB__IMAGE_MOST)
        return wb__fail(WB_ERROR_SHAPE, "save_image: %s is no image: u8 or f32, [H,W], or [C,H,W] "
                        "with C from 1 to 4", wb_describe(image));
    const void *planes = wb_data(image);
    wb__pixels p = {d[nd - 2], d[nd - 1], (int)channels, NULL};
    const int64_t n = p.height * p.width;
    p.pixels = planes ? wb__alloc((size_t)(n * channels)) : NULL;
    if (!p.pixels) return wb__error_or(WB_ERROR_MEMORY);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < channels; c++)
            p.pixels[i * channels + c] = t == WB_U8 ? ((const uint8_t *)planes)[c * n + i]
                                                    : byte_of(((const float *)planes)[c * n + i]);
    int64_t bytes;
    void *file = wb__png_write("save_image", &p, &bytes);
    const int status = file ? wb__file_write(path, file, bytes) : (int)wb_error_code();
    wb__free(file);
    wb__free(p.pixels);
    return status;
}

/* ---- resizing -------------------------------------------------------------------------------- */

/* The elements whose weighted sum is an element of a resized axis: `n` from `first` on. */
typedef struct { int64_t first, n; double *weight; } taps;

/* Sets *t for element i of an axis of `size` elements that becomes `made` elements long.  The
 * weights fall linearly from the middle of element i to both sides, as far as an element of the
 * shorter axis is wide.  t->weight has memory for 2 · ceil(size / made) + 3 numbers. */
static void image_find_taps(int64_t size, int64_t made, int64_t i, taps *t)
{
    const double scale = (double)size / (double)made, reach = WB__MAX(scale, 1);
    const double middle = scale * ((double)i + 0.5);
    t->first = (int64_t)WB__MAX(middle - reach + 0.5, 0);
    t->n = WB__MIN((int64_t)(middle + reach + 0.5), size) - t->first;
    double sum = 0;
    for (int64_t j = 0; j < t->n; j++) {
        const double at = fabs(((double)(t->first + j) - middle + 0.5) / reach);
        sum += t->weight[j] = at < 1 ? 1 - at : 0;
    }
    for (int64_t j = 0; j < t->n; j++) t->weight[j] /= sum;
}

int wb__image_resize(const float *from, int64_t h, int64_t w, float *to, int64_t height,
                     int64_t width)
{
    const int64_t most = WB__MAX(h / height, w / width) + 2;
    taps t = {.weight = wb__alloc((size_t)(2 * most + 3) * sizeof *t.weight)};
    float *narrow = wb__alloc((size_t)(h * width) * sizeof *narrow + 1);    /* [h, width] */
    const bool ok = t.weight && narrow;
    for (int64_t j = 0; ok && j < width; j++) {
        image_find_taps(w, width, j, &t);
        for (int64_t i = 0; i < h; i++) {
            double sum = 0;
            for (int64_t k = 0; k < t.n; k++) sum += t.weight[k] * from[i * w + t.first + k];
            narrow[i * width + j] = (float)sum;
        }
    }
    for (int64_t i = 0; ok && i < height; i++) {
        image_find_taps(h, height, i, &t);
        for (int64_t j = 0; j < width; j++) {
            double sum = 0;
            for (int64_t k = 0; k < t.n; k++)
                sum += t.weight[k] * narrow[(t.first + k) * width + j];
            to[i * width + j] = (float)sum;
        }
    }
    wb__free(t.weight);
    wb__free(narrow);
    return ok ? 0 : WB_ERROR_MEMORY;
}

/* Writes `planes` planes of u8 or f32, each resized from [from] to [to], to `made`. */
static int image_resize_planes(const void *data, bool u8, int64_t planes, const int64_t from[2],
                               void *made, const int64_t to[2])
{
    const int64_t n = from[0] * from[1], m = to[0] * to[1];
    float *in = u8 ? wb__alloc((size_t)n * sizeof *in) : NULL;
    float *out = u8 ? wb__alloc((size_t)m * sizeof *out) : NULL;
    int status = u8 && (!in || !out) ? WB_ERROR_MEMORY : 0;
    for (int64_t p = 0; !status && p < planes; p++) {
        const uint8_t *bytes = (const uint8_t *)data + p * n;
        for (int64_t i = 0; u8 && i < n; i++) in[i] = bytes[i];
        status = wb__image_resize(u8 ? in : (const float *)data + p * n, from[0], from[1],
                                  u8 ? out : (float *)made + p * m, to[0], to[1]);
        for (int64_t i = 0; u8 && !status && i < m; i++)
            ((uint8_t *)made)[p * m + i] = (uint8_t)(out[i] + 0.5f);
    }
    wb__free(in);
    wb__free(out);
    return status;
}

wb_tensor *wb_resize_image(wb_tensor *image, int64_t height, int64_t width)
{
    WB__PUBLIC(wb_resize_image, NULL);
    if (!wb__operand("resize_image", image)) return NULL;
    const int nd = wb_ndim(image);
    const wb_dtype t = wb_dtype_of(image);
    if (nd < 2 || (t != WB_U8 && t != WB_F32) || !wb_size(image) || height < 1 || width < 1 ||
        height > WB__IMAGE_MOST / width)
        return wb__fail_null(WB_ERROR_SHAPE, "resize_image: %s to %lld x %lld; images are u8 or "
                             "f32, [..., H, W], not empty, and so is the result",
                             wb_describe(image), (long long)height, (long long)width);
    int64_t dims[WB_MAX_DIMS], planes = 1, from[2], to[2] = {height, width};
    for (int i = 0; i < nd; i++) dims[i] = wb_dim(image, i);
    for (int i = 0; i < nd - 2; i++) planes *= dims[i];
    for (int i = 0; i < 2; i++) {
        from[i] = dims[nd - 2 + i];
        dims[nd - 2 + i] = to[i];
    }
    if (planes > UINT32_MAX / (height * width))
        return wb__fail_null(WB_ERROR_SHAPE, "resize_image: %s to %lld x %lld has 2^32 elements or "
                             "more", wb_describe(image), (long long)height, (long long)width);
    const void *data = wb_data(image);
    void *made = data ? wb__alloc_aligned((size_t)(planes * height * width) * wb__dtype_size(t))
                      : NULL;
    if (made && image_resize_planes(data, t == WB_U8, planes, from, made, to)) {
        wb__free(made);
        made = NULL;
    }
    const wb_device *was = wb__use_device(&wb__cpu);
    wb_tensor *x = wb__borrow_block(made, t, nd, dims);
    wb__use_device(was);
    return x;
}
