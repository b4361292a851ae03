/* The orientation of an image: how a camera was held, which PNG and JPEG files have in their Exif
 * data. */
#ifndef WB__EXIF_H
#define WB__EXIF_H

#include "io/image/codecs.h"

/* Returns the orientation that a JPEG or PNG file names, 1 to 8; 1, which is upright, if it names
 * none or another number. */
int wb__exif_orientation(const wb__mapping *m);
/* Turns an image with this orientation upright.  Returns 0, or an error code with the image
 * unchanged. */
int wb__exif_upright(wb__pixels *image, int orientation);

#endif
