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
/* Writes the header's checksum and the n tensors' checksums into a header that begins with the
 * blank note; leaves any other header as it is. */
void wb__sums_fill(char *header, size_t length, int n, const uint32_t *sums);

/* Reads the checksums into the entries, which are in the order of their offsets, and checks the
 * header. Returns 0, also if the header has no note for this number of tensors, or an error code if
 * the header is damaged. */
int wb__sums_read(wb__table *t, const char *path, const char *header, size_t length);
/* Checks the values in the table, if it is `summed`. Returns 0 or an error code; the error names
 * the first damaged tensor in the file. */
int wb__sums_check(const wb__table *t, const char *path);

#endif
