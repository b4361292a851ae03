/* Base64 (RFC 4648), with padding. */
#ifndef WB__BASE64_H
#define WB__BASE64_H

#include "base/text.h"

void wb__base64_add(wb__text *t, const uint8_t *bytes, size_t n);
/* Returns the number of bytes that the text encodes; -1 if it is no base64. */
int64_t wb__base64_bytes(const char *text);
/* Writes the encoded bytes to `bytes`.  False: the text is no base64. */
bool wb__base64_read(const char *text, uint8_t *bytes);

#endif
