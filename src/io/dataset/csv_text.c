/* The text of a CSV file: UTF-8, whose lines end with \n or \r\n.  Programs of Windows write
 * UTF-16, and spreadsheets on the Mac end lines with \r. */
#include "io/dataset/csv.h"

#include "base/files/file.h"
#include "base/text.h"

typedef enum { UTF_8, UTF_16_LITTLE, UTF_16_BIG, UTF_32 } encoding;

/* Returns the encoding of a text by its byte order mark, of *mark bytes, or by its zeros: a line in
 * UTF-16 has a zero in every second byte, except for letters that are not Latin.  At least a
 * quarter of these bytes must be 0, and few of the others. */
static encoding encoding_of(const uint8_t *text, int64_t bytes, int *mark)
{
    enum { LOOKED_AT = 512, LEAST = 3 };
    int zeros[2] = {0};
    const int n = (int)WB__MIN(bytes, LOOKED_AT) & ~1;
    *mark = 0;
    if (bytes >= 4 && (!memcmp(text, "\xff\xfe\0\0", 4) || !memcmp(text, "\0\0\xfe\xff", 4)))
        return UTF_32;
    if (bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) return *mark = 3, UTF_8;
    if (n && !memcmp(text, "\xff\xfe", 2)) return *mark = 2, UTF_16_LITTLE;
    if (n && !memcmp(text, "\xfe\xff", 2)) return *mark = 2, UTF_16_BIG;
    for (int i = 0; i < n; i++) zeros[i % 2] += !text[i];
    const int odd = zeros[1] > 4 * zeros[0], most = zeros[odd];
    if (most < LEAST || most * 8 < n || most <= 4 * zeros[!odd]) return UTF_8;
    return odd ? UTF_16_LITTLE : UTF_16_BIG;
}

static int csv_text_fail(const char *path, int64_t at, const char *what)
{
    return wb__fail(WB_ERROR_FORMAT, "%s: byte %lld: %s", path, (long long)at, what);
}

static uint32_t csv_text_code_unit(const uint8_t *at, bool big)
{
    return big ? (uint32_t)at[0] << 8 | at[1] : (uint32_t)at[1] << 8 | at[0];
}

/* Returns UTF-16 as UTF-8, in a new block with a final 0, and sets *bytes to its length without the
 * 0.  NULL with the error set. */
static char *from_utf_16(const char *path, const uint8_t *text, int64_t *bytes, int mark, bool big)
{
    if (*bytes % 2) {
        csv_text_fail(path, *bytes, "UTF-16, but the number of bytes is odd: the file is cut off");
        return NULL;
    }
    char *made = wb__alloc((size_t)(*bytes / 2 * 3) + 1), *to = made;
    for (int64_t at = mark; made && at < *bytes; at += 2) {
        uint32_t c = csv_text_code_unit(text + at, big);
        const uint32_t low = at + 2 < *bytes ? csv_text_code_unit(text + at + 2, big) : 0;
        if (c >= 0xd800 && c < 0xdc00 && low >= 0xdc00 && low < 0xe000) {
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            at += 2;
        } else if (c >= 0xd800 && c < 0xe000) {
            csv_text_fail(path, at, "UTF-16 with half of a pair: the text is damaged");
            wb__free(made);
            return NULL;
        }
        to += wb__utf8_put(c, to);
    }
    if (!made) return NULL;
    *to = 0;
    *bytes = to - made;
    return made;
}

/* Whether the text has a \r that no \n follows. */
static bool has_lone_return(const char *text, const char *end)
{
    for (const char *c = text; (c = memchr(c, '\r', (size_t)(end - c))); c++)
        if (c + 1 == end || c[1] != '\n') return true;
    return false;
}

/* Changes each \r that no \n follows to \n, outside of quotation marks. */
static void csv_text_end_lines(char *text, const char *end, char separator)
{
    bool begins = true;                 /* the cell has had only blanks so far */
    for (char *c = text; c < end; c++) {
        if (begins && *c == '"') {
            for (c++; c < end && (*c != '"' || (c + 1 < end && c[1] == '"')); c++) c += *c == '"';
            begins = false;
        } else if (*c == '\r' && (c + 1 == end || c[1] != '\n')) {
            *c = '\n';
            begins = true;
        } else if (*c == separator || *c == '\n') {
            begins = true;
        } else if (*c != ' ' && *c != '\t' && *c != '\r') {
            begins = false;
        }
    }
}

/* Returns the bytes of the file, unpacked.  Sets *unpacked to whether the file is gzip. */
static char *csv_text_read_whole(const char *path, int64_t *bytes, bool *unpacked)
{
    wb__reader *r = wb__reader_open(path);
    if (r && !wb__reader_fill(r, INT64_MAX)) {
        *unpacked = wb__reader_unpacks(r);
        wb__reader_contents(r, bytes);
        return wb__reader_take(r);
    }
    wb__reader_close(r);
    return NULL;
}

char *wb__csv_text(const char *path, char separator, int64_t *bytes, bool *unpacked)
{
    int mark;
    char *text = csv_text_read_whole(path, bytes, unpacked);
    if (!text) return NULL;
    const encoding e = encoding_of((const uint8_t *)text, *bytes, &mark);
    if (e != UTF_8) {
        char *made = NULL;
        if (e == UTF_32) csv_text_fail(path, 0, "a text in UTF-32: save it as UTF-8");
        else made = from_utf_16(path, (const uint8_t *)text, bytes, mark, e == UTF_16_BIG);
        wb__free(text);
        if (!(text = made)) return NULL;
    }
    if (has_lone_return(text, text + *bytes)) csv_text_end_lines(text, text + *bytes, separator);
    return text;
}
