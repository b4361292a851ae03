/* Base64. */
#include "io/base64.h"

#include <string.h>

static const char
    base64_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void wb__base64_add(wb__text *t, const uint8_t *bytes, size_t n)
{
    enum { LINE = 768 };                /* bytes that are added at once */
    char line[LINE / 3 * 4];
    for (size_t from = 0; from < n; from += LINE) {
        const size_t end = WB__MIN(from + LINE, n);
        size_t length = 0;
        for (size_t i = from; i < end; i += 3) {
            const unsigned second = i + 1 < end ? bytes[i + 1] : 0;
            const unsigned third = i + 2 < end ? bytes[i + 2] : 0;
            const unsigned three = (unsigned)bytes[i] << 16 | second << 8 | third;
            for (int k = 0; k < 4; k++) line[length++] = base64_letters[three >> (18 - 6 * k) & 63];
            if (i + 2 >= end) line[length - 1] = '=';
            if (i + 1 >= end) line[length - 2] = '=';
        }
        wb__text_raw(t, line, length);
    }
}

int64_t wb__base64_bytes(const char *text)
{
    const size_t n = strlen(text);
    if (n % 4) return -1;
    const int padding = n ? (text[n - 1] == '=') + (text[n - 2] == '=') : 0;
    return (int64_t)(n / 4) * 3 - padding;
}

bool wb__base64_read(const char *text, uint8_t *bytes)
{
    const int64_t n = wb__base64_bytes(text);
    unsigned value = 0;
    for (int64_t i = 0, at = 0; at < n; i++) {
        const char *letter = text[i] ? memchr(base64_letters, text[i], 64) : NULL;
        if (!letter) return false;
        value = value << 6 | (unsigned)(letter - base64_letters);
        if (i % 4) bytes[at++] = (uint8_t)(value >> (6 - 2 * (i % 4)));
    }
    return n >= 0;
}
