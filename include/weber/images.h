/* Weber, chapter 5, third part: files of images.
 *
 * PNG files are read and written by libpng 1.6, JPEG files read by libjpeg-turbo.  Weber opens
 * these libraries at run time (Debian's libpng16-16 and libturbojpeg0; the environment variables
 * WEBER_PNG_LIBRARY and WEBER_JPEG_LIBRARY can name other files; in a program with rights that its
 * caller lacks no variable that names a file has an effect).  If one is missing, functions
 * that need it fail with WB_ERROR_UNSUPPORTED.
 *
 * Images are [C, H, W] as those of vision.h: a batch of them is [N, C, H, W].  On tensors, a crop
 * is wb_slice, a flip wb_flip, and wb_div(wb_sub(x, mean), std) normalises, with mean and std [C,
 * 1, 1]. */
#ifndef WEBER_IMAGES_H
#define WEBER_IMAGES_H

#include "weber/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of wb_load_image. */
#define wb_load_image_options_(OPT, ARG)                                                           \
    /* 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA; 0: those of the file */                            \
    OPT(int, channels, 0)                                                                          \
    OPT(bool, exif, true)                   /* turns the image upright; false: pixels as stored */
WB_OPTIONS(wb_load_image_options);
/** The image in a PNG or JPEG file, u8 [C, H, W], on the CPU: wb_load_image("a.png", .channels =
 * 3).  RGB becomes grey as 0.299 R + 0.587 G + 0.114 B, rounded; grey becomes RGB with three equal
 * channels; alpha is left out, or added as 255.  16 bits become 8, and libpng converts colours to
 * sRGB where the file names another gamma.
 *
 * Cameras store pixels as the sensor has them, and the file's Exif data (of JPEG; the chunk eXIf of
 * PNG) have how the camera was held, as one of 8 orientations.  The image is turned or mirrored
 * accordingly, so that it is as viewers show it; [C, H, W] are then the sizes of the upright image.
 * .exif = false leaves the pixels as they are stored.
 *
 * Errors, which name the file: one that cannot be read, is damaged, cut off, or neither PNG nor
 * JPEG; a pipe or a device; a JPEG file of four colours (CMYK); more than 2^28 bytes of pixels, or
 * more than wb_set_unpack_limit allows; a library that is missing. */
WB_API wb_tensor *wb_load_image_with(const char *path, const wb_load_image_options *o);
#ifndef __cplusplus
#define wb_load_image(...) WB_LOAD_IMAGE_(__VA_ARGS__, )
#define WB_LOAD_IMAGE_(path, ...) \
    WB_CALL_WITH_(wb_load_image_with((path), WB_GET_(wb_load_image_options, __VA_ARGS__)))
#endif

/** Writes an image, [H, W] or [C, H, W] with 1 to 4 channels, as a PNG file of 8 bits.  u8 is
 * written as it is, f32 as 255 x, rounded, with numbers outside [0, 1] moved to its ends and NaN to
 * 0.  The call evaluates the image.  Returns 0 or an error code.  Errors: another shape or dtype; a
 * file that cannot be written; libpng is missing. */
WB_API int wb_save_image(const char *path, wb_tensor *image);

/** An image with other sizes of its last two axes, [..., H, W] -> [..., height, width], u8 or f32,
 * on the CPU.  Along each axis an element is the mean of the elements around its middle, with the
 * weights of a triangle that reaches max(H / height, 1) elements to both sides:
 * interpolate(mode="bilinear", antialias=True) of PyTorch.  u8 is rounded, halves up.  The call
 * evaluates the image and has no gradient; wb_upsample has one, runs on GPUs, and leaves out
 * elements where it makes an image smaller.  Errors: another dtype; an image or a result without
 * elements. */
WB_API wb_tensor *wb_resize_image(wb_tensor *image, int64_t height, int64_t width);

/** Options of wb_load_images. */
#define wb_load_images_options_(OPT, ARG)                                                          \
    /* with .width: the size to which all images are resized; 0: all have the size of the first */ \
    OPT(int64_t, height, 0)                                                                        \
    OPT(int64_t, width, 0)                  /* see .height */                                      \
    OPT(int, channels, 3)                   /* 1 to 4, with the meanings of wb_load_image */       \
    OPT(bool, exif, true)                   /* turns images upright; false: pixels as stored */
WB_OPTIONS(wb_load_images_options);
/** A dataset of the images in a folder that has a folder for each class, such as photos/cat/1.png:
 * wb_load_images("photos", .height = 224, .width = 224).  x is f32 [C, H, W] in [0, 1], y the
 * class, i32.  Classes are numbered in the order of their names, and observations are in the order
 * of classes and names, both compared byte by byte.  Names that begin with a dot, and files whose
 * names do not end with .png, .jpg or .jpeg, are passed over.  Images are turned upright as by
 * wb_load_image, unless .exif is false, and then resized as by wb_resize_image.
 *
 * Files are read when a batch needs them, by the workers of the loader, and must stay until then.
 * Errors: a folder without classes, a class without images, .height without .width; and in the
 * epoch, with the number of the observation: those of wb_load_image, or an image of another size.
 * */
WB_API wb_dataset *wb_load_images_with(const char *folder, const wb_load_images_options *o);
#ifndef __cplusplus
#define wb_load_images(...) WB_LOAD_IMAGES_(__VA_ARGS__, )
#define WB_LOAD_IMAGES_(folder, ...) \
    WB_CALL_WITH_(wb_load_images_with((folder), WB_GET_(wb_load_images_options, __VA_ARGS__)))
#endif
/** The names of the classes of a dataset of wb_load_images, or of a view or map of it, and their
 * number *n (n may be NULL).  They live as long as the dataset.  NULL with the error set: another
 * dataset. */
WB_API const char *const *wb_image_classes(const wb_dataset *d, int64_t *n);

#ifdef __cplusplus
}
#endif
#endif
