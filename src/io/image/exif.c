/* Exif data are those of a TIFF file: "II*\0" or "MM\0*" for the order of bytes, the offset of a
 * directory, and the directory: a number of entries, and for each a tag, a type, a count and the
 * value, in 12 bytes.  JPEG has them in a segment APP1 behind "Exif\0\0", PNG in a chunk eXIf.
 * Offsets that lead out of the data are taken for no orientation, since the pixels do not depend on
 * it. */
#include "io/image/exif.h"

#include <string.h>

typedef struct { const uint8_t *data; int64_t bytes; bool big; } tiff;

/* Returns the unsigned number of n bytes at an offset; 0 outside of the data. */
static uint32_t exif_number(const tiff *t, int64_t at, int n)
{
    uint32_t value = 0;
    if (at < 0 || at + n > t->bytes) return 0;
    for (int i = 0; i < n; i++)
        value |= (uint32_t)t->data[at + i] << (8 * (t->big ? n - 1 - i : i));
    return value;
}

/* Returns the orientation in the first directory; 0 if there is none. */
static int exif_orientation_in(const uint8_t *data, int64_t bytes)
{
    enum { HEAD = 8, ENTRY = 12, TAG = 0x0112, BYTE = 1, SHORT = 3, LONG = 4 };
    tiff t = {data, bytes, bytes > 0 && data[0] == 'M'};
    if (bytes < HEAD || (memcmp(data, "II*\0", 4) && memcmp(data, "MM\0*", 4))) return 0;
    const int64_t at = exif_number(&t, 4, 4), n = exif_number(&t, at, 2);
    for (int64_t i = 0; i < n && at + 2 + ENTRY * (i + 1) <= bytes; i++) {
        const int64_t entry = at + 2 + ENTRY * i;
        const uint32_t type = exif_number(&t, entry + 2, 2);
        if (exif_number(&t, entry, 2) != TAG || exif_number(&t, entry + 4, 4) != 1) continue;
        if (type != BYTE && type != SHORT && type != LONG) continue;
        const uint32_t value = exif_number(&t, entry + 8, type == LONG ? 4 : (int)(type + 1) / 2);
        if (value >= 1 && value <= 8) return (int)value;
    }
    return 0;
}

/* Returns the orientation in a JPEG file's segment of Exif data; 0 if there is none.  Segments
 * precede the pixels: 0xff, a kind, a length that includes its own two bytes, and contents. */
static int exif_in_jpeg(const wb__mapping *m)
{
    enum { APP1 = 0xe1, SCAN = 0xda };
    static const uint8_t head[6] = {'E', 'x', 'i', 'f', 0, 0};
    for (int64_t at = 2, n; at + 4 <= m->bytes; at += 2 + n) {
        const uint8_t *p = m->data + at;
        while (at + 4 < m->bytes && p[0] == 0xff && p[1] == 0xff) p++, at++;    /* fill bytes */
        n = p[2] << 8 | p[3];
        if (p[0] != 0xff || p[1] == SCAN || n < 2 || at + 2 + n > m->bytes) return 0;
        if (p[1] != APP1 || n < 8 || memcmp(p + 4, head, sizeof head)) continue;
        const int found = exif_orientation_in(p + 10, n - 8);
        if (found) return found;
    }
    return 0;
}

/* Returns the orientation in a PNG file's chunk eXIf; 0 if there is none.  A chunk has a length and
 * a type of 4 bytes each, data, and a checksum. */
static int exif_in_png(const wb__mapping *m)
{
    for (int64_t at = 8, n; at + 12 <= m->bytes; at += 12 + n) {
        const uint8_t *p = m->data + at;
        n = (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
        if (n > m->bytes - at - 12 || !memcmp(p + 4, "IEND", 4)) return 0;
        if (!memcmp(p + 4, "eXIf", 4)) return exif_orientation_in(p + 8, n);
    }
    return 0;
}

int wb__exif_orientation(const wb__mapping *m)
{
    if (m->bytes < 8) return 1;
    return WB__MAX(m->data[0] == 0xff ? exif_in_jpeg(m) : exif_in_png(m), 1);
}

/* Returns the index of the pixel of the file, `height` rows of `width` pixels, that is pixel (i, j)
 * of the upright image.  For orientations from 5 on rows become columns. */
static int64_t exif_place_of(int orientation, int64_t i, int64_t j, int64_t height, int64_t width)
{
    const bool turned = orientation > 4;
    int64_t row = turned ? j : i, column = turned ? i : j;
    if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7)
        row = height - 1 - row;
    if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8)
        column = width - 1 - column;
    return row * width + column;
}

int wb__exif_upright(wb__pixels *image, int orientation)
{
    if (orientation < 2) return 0;
    const size_t each = (size_t)image->channels;
    const int64_t h = orientation > 4 ? image->width : image->height;
    const int64_t w = orientation > 4 ? image->height : image->width;
    uint8_t *pixels = wb__alloc((size_t)(h * w) * each), *to = pixels;
    if (!pixels) return WB_ERROR_MEMORY;
    for (int64_t i = 0; i < h; i++)
        for (int64_t j = 0; j < w; j++, to += each)
            memcpy(to, image->pixels + each * (size_t)exif_place_of(orientation, i, j,
                                                                    image->height, image->width),
                                                                    each);
    wb__free(image->pixels);
    *image = (wb__pixels){h, w, image->channels, pixels};
    return 0;
}
