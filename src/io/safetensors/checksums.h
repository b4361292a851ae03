/* Checksums in safetensors files: CRC-32 (zlib's) in a note that is the first entry of the header,
 *
 *   {"__metadata__":{"weber_crc32":"89abcdef0123456789abcdef",...
 *
 * The note has eight hexadecimal digits for the header, computed with zeros in place of all digits
 * of the note, and eight digits for each tensor in the order of their offsets. The note is
 * optional; if a file has it, loaded data is checked. */
#ifndef WB__CHECKSUMS_H
#define WB__CHECKSUMS_H

#include "base/files/file.h"
#include "io/table.h"

#define WB__SUMS_KEY "weber_crc32"

/* The text of the note for n tensors, all zeros; the caller frees it. */
char *wb__sums_blank(int n);
/* Writes the checksums of n tensors, and the checksum of the header computed with them, into a
 * header that begins with the blank note. */
void wb__sums_fill(char *header, size_t length, int n, const uint32_t *sums);

/* Reads the checksums into the entries, which are in the order of their offsets, and checks the
 * header. Error: the header is damaged. */
int wb__sums_take(wb__table *t, const char *path, const char *header, size_t length);
/* Checks all values that the table has. The error names the tensor. */
int wb__sums_check(const wb__table *t, const char *path);

#endif
