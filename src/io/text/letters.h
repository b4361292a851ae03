/* Texts as arrays of characters, for tokenizers. */
#ifndef WB__LETTERS_H
#define WB__LETTERS_H

#include "base/base.h"

/* A character, and the bytes [begin, end) of the original text that it comes from.  A character
 * that a step puts before a text has the bytes of the text's first one.  While tokens are decoded,
 * c may be WB__RAW + a byte. */
typedef struct { uint32_t c, begin, end; } wb__letter;
typedef struct { wb__letter *at; int n, capacity; } wb__letters;

enum {
    WB__RAW = 0x110000,                 /* above all characters */
    WB__REPLACEMENT = 0xfffd,           /* U+FFFD, in the place of bytes that are not UTF-8 */
    WB__LETTERS_MOST = 1 << 26          /* the most characters of a text after any step */
};

/* Reserves memory for n more letters.  False, with the error set: out of memory, or too many. */
bool wb__letters_room(wb__letters *l, int n);
static inline bool wb__letters_add(wb__letters *l, wb__letter x)
{
    if (wb__unlikely(l->n == l->capacity) && !wb__letters_room(l, 1)) return false;
    l->at[l->n++] = x;
    return true;
}
bool wb__letters_copy(wb__letters *l, const wb__letter *from, int n);
/* Whether the n letters at `at` begin with `word`. */
static inline bool wb__letters_begin(const wb__letter *at, int n, const wb__letters *word)
{
    int i = 0;
    while (i < word->n && i < n && at[i].c == word->at[i].c) i++;
    return i == word->n;
}
/* Adds the letters of a text of the vocabulary or of a file, with offsets 0. */
bool wb__letters_text(wb__letters *l, const char *text);

/* Adds the letters of n bytes of UTF-8 with their offsets.  Each longest part that begins like a
 * character and is none becomes U+FFFD, as in Python's bytes.decode("utf-8", "replace"). */
bool wb__letters_read(wb__letters *l, const char *text, size_t n);

/* Returns the length of the bytes at `at` that become one U+FFFD.  `most` bytes, at least 1, may be
 * read.  Sets *open if further bytes could complete them to a character. */
int wb__utf8_broken(const char *at, size_t most, bool *open);

/* Returns the character of n bytes at `at`; n is the result of wb__utf8. */
static inline uint32_t wb__utf8_get(const char *at, int n)
{
    const uint8_t *b = (const uint8_t *)at;
    uint32_t c = n == 1 ? b[0] : b[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) c = c << 6 | (b[i] & 0x3f);
    return c;
}

#endif
