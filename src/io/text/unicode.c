#include "io/text/unicode.h"

#ifndef WB_HAVE_UTF8PROC

int wb__unicode_classes(uint32_t c) { return (void)c, 0; }
uint32_t wb__unicode_lower(uint32_t c) { return c; }

bool wb__unicode_normal(const wb__letters *in, bool compose, bool compatibility, wb__letters *out)
{
    (void)compose, (void)compatibility;
    return wb__letters_copy(out, in->at, in->n);
}

#else

#include <string.h>
#include <utf8proc.h>

static const uint8_t of_category[] = {
    [UTF8PROC_CATEGORY_LU] = WB__IS_LETTER | WB__IS_WORD,
    [UTF8PROC_CATEGORY_LL] = WB__IS_LETTER | WB__IS_WORD,
    [UTF8PROC_CATEGORY_LT] = WB__IS_LETTER | WB__IS_WORD,
    [UTF8PROC_CATEGORY_LM] = WB__IS_LETTER | WB__IS_WORD,
    [UTF8PROC_CATEGORY_LO] = WB__IS_LETTER | WB__IS_WORD,
    [UTF8PROC_CATEGORY_MN] = WB__IS_MARK | WB__IS_NONSPACING | WB__IS_WORD,
    [UTF8PROC_CATEGORY_MC] = WB__IS_MARK | WB__IS_WORD,
    [UTF8PROC_CATEGORY_ME] = WB__IS_MARK | WB__IS_WORD,
    [UTF8PROC_CATEGORY_ND] = WB__IS_NUMBER | WB__IS_WORD,
    [UTF8PROC_CATEGORY_NL] = WB__IS_NUMBER | WB__IS_WORD,
    [UTF8PROC_CATEGORY_NO] = WB__IS_NUMBER,
    [UTF8PROC_CATEGORY_PC] = WB__IS_PUNCTUATION | WB__IS_WORD,
    [UTF8PROC_CATEGORY_PD] = WB__IS_PUNCTUATION,
    [UTF8PROC_CATEGORY_PS] = WB__IS_PUNCTUATION,
    [UTF8PROC_CATEGORY_PE] = WB__IS_PUNCTUATION,
    [UTF8PROC_CATEGORY_PI] = WB__IS_PUNCTUATION,
    [UTF8PROC_CATEGORY_PF] = WB__IS_PUNCTUATION,
    [UTF8PROC_CATEGORY_PO] = WB__IS_PUNCTUATION,
    [UTF8PROC_CATEGORY_ZS] = WB__IS_SPACE,
    [UTF8PROC_CATEGORY_ZL] = WB__IS_SPACE,
    [UTF8PROC_CATEGORY_ZP] = WB__IS_SPACE,
    [UTF8PROC_CATEGORY_CC] = WB__IS_CONTROL,
    [UTF8PROC_CATEGORY_CF] = WB__IS_CONTROL,
    [UTF8PROC_CATEGORY_CO] = WB__IS_CONTROL,
};

typedef struct { uint32_t first, last; } unicode_range;

static bool unicode_in_ranges(uint32_t c, const unicode_range *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c >= r[i].first && c <= r[i].last) return true;
    return false;
}

/* Whether c is in the ranges of Hugging Face's BertNormalizer.  These lack U+2B820 to U+2B91F, too,
 * and models are trained with that. */
static bool unicode_is_ideograph(uint32_t c)
{
    static const unicode_range cjk[] = {
        {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},   {0x20000, 0x2a6df},
        {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
    return c >= 0x3400 && unicode_in_ranges(c, cjk, WB__COUNT(cjk));
}

/* Whether c is a zero width joiner, or a symbol with the property Alphabetic: letters in circles
 * and squares. */
static bool unicode_is_word_symbol(uint32_t c)
{
    static const unicode_range symbols[] = {{0x200c, 0x200d},   {0x24b6, 0x24e9},
                                              {0x1f130, 0x1f149}, {0x1f150, 0x1f169},
                                              {0x1f170, 0x1f189}};
    return c >= 0x200c && unicode_in_ranges(c, symbols, WB__COUNT(symbols));
}

int wb__unicode_classes(uint32_t c)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    int classes = (size_t)category < WB__COUNT(of_category) ? of_category[category] : 0;
    if ((c >= 9 && c <= 13) || c == 0x85) classes |= WB__IS_SPACE;
    if (c > ' ' && c < 0x7f && !(classes & (WB__IS_LETTER | WB__IS_NUMBER)))
        classes |= WB__IS_PUNCTUATION;
    if (unicode_is_word_symbol(c)) classes |= WB__IS_WORD;
    if (unicode_is_ideograph(c)) classes |= WB__IS_IDEOGRAPH;
    return classes;
}

uint32_t wb__unicode_lower(uint32_t c) { return (uint32_t)utf8proc_tolower((utf8proc_int32_t)c); }

/* ---- normal forms ---------------------------------------------------------------------------- */

enum { UNICODE_LONGEST = 32 };          /* the longest decomposition has 18 characters */

static int unicode_class_of(uint32_t c)
{
    return c < 0x300 ? 0 : utf8proc_get_property((utf8proc_int32_t)c)->combining_class;
}

static bool unicode_decompose(const wb__letters *in, bool compatibility, wb__letters *out)
{
    const uint32_t first = compatibility ? 0xa0 : 0xc0;     /* below, no character decomposes */
    const utf8proc_option_t how =
        UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : (utf8proc_option_t)0);
    for (int i = 0; i < in->n; i++) {
        const wb__letter x = in->at[i];
        const utf8proc_int32_t c = (utf8proc_int32_t)x.c;
        utf8proc_int32_t parts[UNICODE_LONGEST] = {c};
        utf8proc_ssize_t n = 1;
        int bound = 0;
        if (x.c >= first) n = utf8proc_decompose_char(c, parts, UNICODE_LONGEST, how, &bound);
        if (n < 1 || n > UNICODE_LONGEST) parts[0] = c, n = 1;
        for (int k = 0; k < n; k++)
            if (!wb__letters_add(out, (wb__letter){(uint32_t)parts[k], x.begin, x.end}))
                return false;
    }
    return true;
}

/* Sorts n marks, letters that are no starters, by their combining class, and keeps the order in a
 * class.  `to` is memory for them.  Counting makes this linear, also for a hostile text of
 * marks. */
static void unicode_sort_marks(wb__letter *marks, int n, wb__letter *to)
{
    int place[257] = {0};
    for (int i = 0; i < n; i++) place[(unicode_class_of(marks[i].c) & 0xff) + 1]++;
    for (int k = 0; k < 256; k++) place[k + 1] += place[k];
    for (int i = 0; i < n; i++) to[place[unicode_class_of(marks[i].c) & 0xff]++] = marks[i];
    memcpy(marks, to, (size_t)n * sizeof *marks);
}

/* Changes the marks behind each starter to their canonical order. */
static bool unicode_reorder(wb__letters *l)
{
    wb__letters spare = {0};
    bool ok = true;
    for (int i = 0; ok && i < l->n;) {
        int end = i, before = 0;
        bool sorted = true;
        for (int k; end < l->n && (k = unicode_class_of(l->at[end].c)); end++) {
            sorted = sorted && before <= k;
            before = k;
        }
        if (!sorted) {
            ok = wb__letters_room(&spare, end - i);
            if (ok) unicode_sort_marks(l->at + i, end - i, spare.at);
        }
        i = end + 1;
    }
    wb__free(spare.at);
    return ok;
}

/* Returns the character that a followed by b becomes; 0 if there is none. */
static uint32_t unicode_compose_pair(uint32_t a, uint32_t b)
{
    utf8proc_int32_t pair[2] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b};
    if (b < 0x300) return 0;
    return utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE) == 1
               ? (uint32_t)pair[0] : 0;
}

/* Composes decomposed letters in place. */
static void unicode_compose(wb__letters *l)
{
    int n = 0, starter = -1, before = 0;
    for (int i = 0; i < l->n; i++) {
        const wb__letter x = l->at[i];
        const int k = unicode_class_of(x.c);
        const bool reachable = starter >= 0 && (starter == n - 1 || before < k);
        const uint32_t c = reachable ? unicode_compose_pair(l->at[starter].c, x.c) : 0;
        if (c) {
            l->at[starter].c = c;
            l->at[starter].end = WB__MAX(l->at[starter].end, x.end);
            continue;
        }
        if (!k) starter = n;
        before = k;
        l->at[n++] = x;
    }
    l->n = n;
}

bool wb__unicode_normal(const wb__letters *in, bool compose, bool compatibility, wb__letters *out)
{
    if (!unicode_decompose(in, compatibility, out) || !unicode_reorder(out)) return false;
    if (compose) unicode_compose(out);
    return true;
}

#endif
