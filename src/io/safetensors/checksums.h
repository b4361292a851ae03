/* Checksums in safetensors files: CRC-32 (zlib's) in a note that is the first entry of the header,
 *
 *   {"__metadata__":{"weber_crc32":"89abcdef0123456789abcdef",...
 *
 * The note has eight hexadecimal digits for the header, computed with zeros in place of all digits
 * of the note, and eight digits for each tensor in the order of their offsets.  The note is
 * optional; if a file has it, loaded data is checked. */
#ifndef WB__CHECKSUMS_H
#define WB__CHECKSUMS_H

#include "base/files/file.h"
#include "io/table.h"

#define WB__SUMS_KEY "weber_crc32"

/* Returns the text of the note for n tensors, with zeros for all digits; the caller frees it.
 * NULL: out of memory. */
char *wb__sums_blank(int n);
/* Writes the checksums of the header and of the n tensors into a header that begins with the note
 * for n tensors.  Leaves any other header unchanged. */
void wb__sums_fill(char *header, size_t length, int n, const uint32_t *sums);

/* Sets `sum` of the entries, which are sorted by offset, after checking the checksum of the
 * header.  Returns 0, also if the header has no note for this number of tensors; an error code if
 * the header is damaged. */
int wb__sums_read(wb__table *t, const char *path, const char *header, size_t length);
/* Returns 0 if the values of all entries have their checksums or t->summed is false, else an error
 * code; the error names the first damaged tensor in the file. */
int wb__sums_check(const wb__table *t, const char *path);

#endif
