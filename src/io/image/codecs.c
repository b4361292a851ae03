/* Calls libpng and libjpeg-turbo.  The declarations follow png.h and turbojpeg.h: the simplified
 * API of libpng 1.6, and the functions of TurboJPEG 2. */
#include "io/image/codecs.h"

#include "base/files/file.h"
#include "base/library.h"
#include "base/mutex.h"
#include "base/packages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the libraries --------------------------------------------------------------------------- */

typedef struct {
    void *state;
    uint32_t version, width, height, format, flags, colours, outcome;
    char message[64];
} png_image;
enum { PNG_VERSION = 1, PNG_ALPHA = 1, PNG_COLOUR = 2, PNG_16_BIT_SRGB = 4 };

static struct {
    int (*begin)(png_image *image, const void *data, size_t bytes);
    int (*finish)(png_image *image, const void *background, void *pixels, int32_t stride,
                  void *colours);
    void (*free)(png_image *image);
    int (*write)(png_image *image, void *to, size_t *bytes, int to_8_bit, const void *pixels,
                 int32_t stride, const void *colours);
} png;

enum { JPEG_RGB = 0, JPEG_GREY = 6 };                       /* formats of pixels */
enum { JPEG_IS_GREY = 2, JPEG_IS_CMYK = 3, JPEG_IS_YCCK = 4 };  /* colour spaces of files */
enum { JPEG_STOP_ON_WARNING = 8192, JPEG_LIMIT_SCANS = 32768 };

static struct {
    void *(*init)(void);
    int (*header)(void *handle, const uint8_t *data, unsigned long bytes, int *width, int *height,
                  int *sampling, int *space);
    int (*decode)(void *handle, const uint8_t *data, unsigned long bytes, uint8_t *pixels,
                  int width, int stride, int height, int format, int flags);
    const char *(*reason)(void *handle);
    int (*destroy)(void *handle);
} jpeg;

typedef struct {
    wb__package_id package;
    const char *files[3], *functions[6];
    void *table;  /* structure of pointers that receives the functions, in their order */
    bool is_open;                               /* guarded by `lock`, as is the table before */
} codecs_library;

static wb__mutex codecs_lock = WB__MUTEX_INIT;
static codecs_library libpng = {
    WB__PACKAGE_PNG,
    {"libpng16.so.16", "libpng16.16.dylib", NULL},
    {"png_image_begin_read_from_memory", "png_image_finish_read", "png_image_free",
     "png_image_write_to_memory", NULL}, &png, false};
static codecs_library turbojpeg = {
    WB__PACKAGE_JPEG,
    {"libturbojpeg.so.0", "libturbojpeg.0.dylib", NULL},
    {"tjInitDecompress", "tjDecompressHeader3", "tjDecompress2", "tjGetErrorStr2", "tjDestroy",
     NULL}, &jpeg, false};

static int codecs_open_file(const char *what, codecs_library *l)
{
    char reason[WB__LIBRARY_REASON];
    l->is_open = wb__library_open(wb__packages[l->package].variable, l->files, l->functions, NULL,
                                  l->table, reason);
    return l->is_open ? 0 : wb__package_missing(l->package, what, reason);
}

static int codecs_open_library(const char *what, codecs_library *l)
{
    wb__mutex_lock(&codecs_lock);
    const int status = l->is_open ? 0 : codecs_open_file(what, l);
    wb__mutex_unlock(&codecs_lock);
    return status;
}

int wb__png_open(const char *what) { return codecs_open_library(what, &libpng); }
int wb__jpeg_open(const char *what) { return codecs_open_library(what, &turbojpeg); }

/* Allocates the pixels of *image.  Fails if the sizes in the file are too large, or if no
 * compression could bring so many pixels into a file of this size. */
static int codecs_make_pixels(const wb__mapping *m, int64_t height, int64_t width, int channels,
                              wb__pixels *image)
{
    const int64_t most = WB__MIN(WB__IMAGE_MOST, wb__unpack_limit()), ratio = 32768;
    if (height < 1 || width < 1 || height > most / channels / width)
        return wb__map_fail(m, 0, "an image of %lld x %lld pixels; at most %lld bytes are read",
                            (long long)height, (long long)width, (long long)most);
    const int64_t bytes = height * width * channels;
    if (bytes / ratio > m->bytes)
        return wb__map_fail(m, 0, "a file of %lld bytes cannot hold an image of %lld x %lld pixels",
                            (long long)m->bytes, (long long)height, (long long)width);
    *image = (wb__pixels){height, width, channels, wb__alloc_zero((size_t)bytes, 1)};
    return image->pixels ? 0 : WB_ERROR_MEMORY;
}

/* Whether the chunks of a PNG file reach the last one, which libpng does not read.  A chunk is its
 * length in 4 bytes, its type in 4, its data, and a checksum in 4. */
static bool png_is_whole(const wb__mapping *m)
{
    int64_t at = 8, length = 0;
    bool last = false;
    for (; !last && at + 12 <= m->bytes; at += 12 + length) {
        const uint8_t *p = m->data + at;
        length = (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
        last = !memcmp(p + 4, "IEND", 4);
    }
    return last && at <= m->bytes;
}

static int png_read(const char *what, const wb__mapping *m, wb__pixels *image)
{
    int status = codecs_open_library(what, &libpng);
    if (status) return status;
    png_image p = {.version = PNG_VERSION};
    bool good = png.begin(&p, m->data, (size_t)m->bytes) && p.outcome < 2;
    if (good) {
        p.format &= PNG_ALPHA | PNG_COLOUR;         /* 8 bits, no palette */
        p.flags |= PNG_16_BIT_SRGB;
        const int channels = 1 + (p.format & PNG_ALPHA) + (p.format & PNG_COLOUR);
        status = codecs_make_pixels(m, p.height, p.width, channels, image);
        if (!status) good = png.finish(&p, NULL, image->pixels, 0, NULL) && p.outcome < 2;
    }
    png.free(&p);
    const bool whole = png_is_whole(m);
    if (good && !status && whole) return 0;
    p.message[sizeof p.message - 1] = 0;
    if (!status && good)
        status = wb__map_fail(m, m->bytes, "the PNG file ends before its last chunk, IEND");
    if (!status) status = wb__map_fail(m, 0, "libpng: %s", p.message);
    wb__free(image->pixels);
    image->pixels = NULL;
    return status;
}

static int jpeg_decode(void *handle, const wb__mapping *m, wb__pixels *image)
{
    int width = 0, height = 0, sampling, space = -1;
    const unsigned long bytes = (unsigned long)m->bytes;
    if (jpeg.header(handle, m->data, bytes, &width, &height, &sampling, &space))
        return wb__map_fail(m, 0, "libjpeg-turbo: %s", jpeg.reason(handle));
    if (space == JPEG_IS_CMYK || space == JPEG_IS_YCCK)
        return wb__map_fail(m, 0, "a JPEG file with the four colours CMYK: convert it to RGB");
    const bool grey = space == JPEG_IS_GREY;
    const int status = codecs_make_pixels(m, height, width, grey ? 1 : 3, image);
    if (status) return status;
    if (!jpeg.decode(handle, m->data, bytes, image->pixels, width, 0, height,
                     grey ? JPEG_GREY : JPEG_RGB, JPEG_STOP_ON_WARNING | JPEG_LIMIT_SCANS))
        return 0;
    return wb__map_fail(m, 0, "libjpeg-turbo: %s", jpeg.reason(handle));
}

static int jpeg_read(const char *what, const wb__mapping *m, wb__pixels *image)
{
    int status = codecs_open_library(what, &turbojpeg);
    if (status) return status;
    void *handle = jpeg.init();
    if (!handle) return wb__fail(WB_ERROR_MEMORY, "%s: libjpeg-turbo did not start", what);
    status = jpeg_decode(handle, m, image);
    jpeg.destroy(handle);
    if (!status) return 0;
    wb__free(image->pixels);
    image->pixels = NULL;
    return status;
}

int wb__image_read(const char *what, const wb__mapping *m, wb__pixels *image)
{
    *image = (wb__pixels){0};
    if (m->bytes >= 8 && !memcmp(m->data, "\x89PNG\r\n\x1a\n", 8)) return png_read(what, m, image);
    if (m->bytes >= 3 && !memcmp(m->data, "\xff\xd8\xff", 3)) return jpeg_read(what, m, image);
    return wb__map_fail(m, 0, "neither a PNG nor a JPEG file");
}

void *wb__png_write(const char *what, const wb__pixels *image, int64_t *bytes)
{
    if (codecs_open_library(what, &libpng)) return NULL;
    static const uint32_t formats[] = {0, PNG_ALPHA, PNG_COLOUR, PNG_COLOUR | PNG_ALPHA};
    png_image p = {.version = PNG_VERSION, .width = (uint32_t)image->width,
                   .height = (uint32_t)image->height, .format = formats[image->channels - 1]};
    /* A compressed row is at most a few bytes longer than its pixels. */
    size_t size = (size_t)(image->height * (image->width * image->channels + 64)) + 4096;
    void *block = wb__alloc(size);
    if (block && !png.write(&p, block, &size, 0, image->pixels, 0, NULL)) {
        p.message[sizeof p.message - 1] = 0;
        wb__fail(WB_ERROR_ARGUMENT, "%s: libpng: %s", what, p.message);
        wb__free(block);
        block = NULL;
    }
    png.free(&p);
    *bytes = (int64_t)size;
    return block;
}
