/* Properties of characters, by the library utf8proc.  Without it (WB_HAVE_UTF8PROC) no tokenizer
 * can be loaded. */
#ifndef WB__UNICODE_H
#define WB__UNICODE_H

#include "io/text/letters.h"

/* Classes of characters; a character may be in several. */
enum {
    WB__IS_LETTER = 1,                  /* L of Unicode's general categories */
    WB__IS_NUMBER = 2,                  /* N */
    WB__IS_SPACE = 4,                   /* the property White_Space */
    WB__IS_PUNCTUATION = 8,             /* P, and all of ASCII's */
    WB__IS_MARK = 16,                   /* M */
    WB__IS_NONSPACING = 32,             /* Mn */
    WB__IS_CONTROL = 64,                /* Cc, Cf, Co */
    WB__IS_WORD = 128,                  /* \w of Unicode's regular expressions: letters, marks,
                                           decimal numbers, connectors, joiners */
    WB__IS_IDEOGRAPH = 256              /* BERT puts spaces around these ideographs of CJK */
};
int wb__unicode_classes(uint32_t c);
/* Returns the lower case of c, one character.  U+0130 has two; the second, U+0307, is left out. */
uint32_t wb__unicode_lower(uint32_t c);

/* Writes the letters of `in` in a normal form of Unicode to `out`: decomposed, or decomposed and
 * then composed; canonical, or with compatibility (the forms with K). */
bool wb__unicode_normal(const wb__letters *in, bool compose, bool compatibility,
                        wb__letters *out);

#endif
