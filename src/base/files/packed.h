/* Checksums and the decompression of gzip: by zlib, or in a build without it (WEBER_ZLIB=OFF)
 * checksums by our own code and no gzip. */
#ifndef WB__PACKED_H
#define WB__PACKED_H

#include "base/base.h"

/* Returns the CRC-32 of zlib, gzip and ZIP: of the bytes that have the checksum `sum`, followed by
 * n more bytes.  The checksum of no bytes is 0. */
uint32_t wb__crc32(uint32_t sum, const void *data, size_t n);
/* Returns the checksum of two parts, one behind the other, from the checksums of both and the size
 * of the second part. */
uint32_t wb__crc32_join(uint32_t first, uint32_t second, int64_t bytes);

/* Decompresses one stream of gzip after the other: a header, compressed data and a checksum. */
typedef struct wb__unpacker wb__unpacker;
wb__unpacker *wb__unpacker_open(const char *path);      /* NULL with the error set */
void wb__unpacker_close(wb__unpacker *u);               /* accepts NULL */
bool wb__unpacker_next(wb__unpacker *u);                /* prepares for another stream */

typedef struct {
    const unsigned char *from;          /* the next compressed byte */
    size_t left;                        /* number of compressed bytes from there on */
    unsigned char *to;                  /* where the next decompressed byte belongs */
    size_t room;                        /* number of bytes that fit there */
    const char *why;                    /* for WB__UNPACK_DAMAGED: what is wrong */
} wb__unpacking;
typedef enum {
    WB__UNPACK_MORE, WB__UNPACK_END, WB__UNPACK_MEMORY, WB__UNPACK_DAMAGED
} wb__unpack_outcome;
/* Decompresses as much as the bytes and the room allow, and advances the first four fields. */
wb__unpack_outcome wb__unpack(wb__unpacker *u, wb__unpacking *all);

#endif
