/* PNG by libpng 1.6 and JPEG by libjpeg-turbo, which are opened at run time when a first image
 * needs them.  The functions that are used here have a stable binary interface. */
#ifndef WB__CODECS_H
#define WB__CODECS_H

#include "base/map.h"

/* An image: pixels row by row, `channels` bytes each: grey, grey and alpha, RGB, or RGBA. */
typedef struct {
    int64_t height, width;
    int channels;
    uint8_t *pixels;                    /* a block of wb__alloc */
} wb__pixels;

enum { WB__IMAGE_MOST = 1 << 28 };      /* the most bytes of an image */

/* Opens libpng or libjpeg-turbo, unless it is open.  Returns 0 or an error code.  `what` begins the
 * message. */
int wb__png_open(const char *what);
int wb__jpeg_open(const char *what);
/* Sets *image to the pixels of a PNG or JPEG file, with its own channels.  The caller frees
 * image->pixels.  Returns 0, or an error code with nothing to free.  `what` begins the message if
 * the library is missing. */
int wb__image_read(const char *what, const wb__mapping *m, wb__pixels *image);

/* Returns an image compressed as PNG, a block of *bytes bytes, or NULL with the error set. */
void *wb__png_write(const char *what, const wb__pixels *image, int64_t *bytes);

#endif
