/* Images as planes, [C, H, W], for readers of files. */
#ifndef WB__IMAGE_H
#define WB__IMAGE_H

#include "io/image/codecs.h"

/* Writes the pixels as `channels` planes of u8, [channels, H, W].  1 and 2 channels are grey, 3 and
 * 4 RGB; 2 and 4 have alpha, which is 255 where the image has none. */
void wb__image_planes(const wb__pixels *image, int channels, uint8_t *to);

/* Sets *planes to the planes of a file, a block of wb__alloc_aligned.  `channels` 0: those of the
 * file.  With `exif` its Exif data turn it upright.  Returns 0 or an error code. */
int wb__image_load(const char *what, const char *path, int channels, bool exif, int64_t dims[3],
                   uint8_t **planes);

/* Writes one plane [h, w], resized to [height, width] (wb_resize_image), to `to`.  Returns 0 or an
 * error code. */
int wb__image_resize(const float *from, int64_t h, int64_t w, float *to, int64_t height,
                     int64_t width);

#endif
