/* Checksums in safetensors files: CRC-32 (zlib's), as a note that comes first in the header,
 *
 *   {"__metadata__":{"weber_crc32":"89abcdef0123456789abcdef",...
 *
 * eight hexadecimal digits for the header, read with zeros in place of all these digits, and eight for
 * each tensor in the order of places.  Files without it are as good as any; where it is, what is
 * loaded is compared with it. */
#ifndef WB__CHECKSUMS_H
#define WB__CHECKSUMS_H

#include "base/files/file.h"
#include "io/table.h"

#define WB__SUMS_KEY "weber_crc32"

/* The note's text, all zeros, for n tensors; for wb__free. */
char *wb__sums_blank(int n);
/* Puts the sums of n tensors and, from these, the header's into the text of a header that has the
 * blank note in front. */
void wb__sums_fill(char *header, size_t length, int n, const uint32_t *sums);

/* What the header says of its tensors, whose entries are in the order of places, into the entries.
 * Errors: the header is not what was written. */
int wb__sums_take(wb__table *t, const char *path, const char *header, size_t length);
/* Compares all values that the table has with what was taken.  Errors name the tensor. */
int wb__sums_check(const wb__table *t, const char *path);

#endif
