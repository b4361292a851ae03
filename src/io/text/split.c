/* Steps that split a text into pieces, parts that become tokens separately, and change the letters
 * of pieces.  Added tokens, which are pieces with an id, stay as they are. */
#include "io/text/tokenizer.h"
#include "io/text/unicode.h"

#include "base/text.h"

/* ---- splitters ------------------------------------------------------------------------------- */

/* Adds a piece, unless it is empty. */
static bool text_split_add_piece(wb__pieces *out, int begin, int end)
{
    return begin == end || wb__pieces_add(out, begin, end, -1);
}

/* Whether a piece ends between two characters; `left` and `right` are whether these are
 * delimiters. */
static bool text_split_is_border(wb__delimiters b, bool left, bool right)
{
    switch (b) {
    case WB__ISOLATED: return left || right;
    case WB__WITH_PREVIOUS: return left;
    case WB__WITH_NEXT: return right;
    default: return left != right;
    }
}

/* Whether letter i begins a delimiter: a character of the step's classes, or the step's text.  Sets
 * *n to its length, or to 1. */
static bool text_split_is_delimiter(const wb__text_step *step, const wb__letter *at, int i, int end,
                                    int *n)
{
    const wb__letters *text = &step->from;
    *n = 1;
    if (!text->n) return wb__unicode_classes(at[i].c) & step->first;
    if (!wb__letters_begin(at + i, end - i, text)) return false;
    *n = text->n;
    return true;
}

static bool text_split_delimiters(const wb__letter *at, wb__piece s, const wb__text_step *step,
                                  wb__pieces *out)
{
    const wb__delimiters b = (wb__delimiters)step->second;
    bool before = false;
    int begin = s.begin;
    for (int i = s.begin, n; i < s.end; i += n) {
        const bool now = text_split_is_delimiter(step, at, i, s.end, &n);
        if (i > s.begin && text_split_is_border(b, before, now)) {
            if (!(before && b == WB__REMOVED) && !text_split_add_piece(out, begin, i)) return false;
            begin = i;
        }
        before = now;
    }
    return (before && b == WB__REMOVED) || text_split_add_piece(out, begin, s.end);
}

static bool text_split_words(const wb__letter *at, wb__piece s, wb__pieces *out)
{
    int begin = s.begin, before = 0;
    for (int i = s.begin; i < s.end; i++) {
        const int now = wb__unicode_classes(at[i].c) & (WB__IS_WORD | WB__IS_SPACE);
        if (i > s.begin && now != before) {
            if (!(before & WB__IS_SPACE) && !text_split_add_piece(out, begin, i)) return false;
            begin = i;
        }
        before = now;
    }
    return before & WB__IS_SPACE || text_split_add_piece(out, begin, s.end);
}

static bool text_split_before(const wb__letter *at, wb__piece s, uint32_t c, wb__pieces *out)
{
    int begin = s.begin;
    for (int i = s.begin + 1; i < s.end; i++)
        if (at[i].c == c) {
            if (!text_split_add_piece(out, begin, i)) return false;
            begin = i;
        }
    return text_split_add_piece(out, begin, s.end);
}

/* ---- the patterns of GPT --------------------------------------------------------------------- */

/* The kinds of characters that the patterns distinguish. */
typedef enum { LETTER, TEXT_SPLIT_NUMBER, TEXT_SPLIT_SPACE, TEXT_SPLIT_OTHER,
               TEXT_SPLIT_END } text_split_kind;

/* Returns the kind of the character at i, or TEXT_SPLIT_END. */
static text_split_kind text_split_kind_at(const wb__letter *at, int i, int end)
{
    if (i >= end) return TEXT_SPLIT_END;
    const uint32_t c = at[i].c;
    if (c < 0x80) {
        if ((c | 32) >= 'a' && (c | 32) <= 'z') return LETTER;
        if (c >= '0' && c <= '9') return TEXT_SPLIT_NUMBER;
        return c == ' ' || (c >= 9 && c <= 13) ? TEXT_SPLIT_SPACE : TEXT_SPLIT_OTHER;
    }
    const int classes = wb__unicode_classes(c);
    return classes & WB__IS_LETTER   ? LETTER
           : classes & WB__IS_NUMBER ? TEXT_SPLIT_NUMBER
           : classes & WB__IS_SPACE  ? TEXT_SPLIT_SPACE
                                     : TEXT_SPLIT_OTHER;
}

/* Returns the end of the characters of kind k that begin at i. */
static int text_split_run_of(const wb__letter *at, int i, int end, text_split_kind k)
{
    while (text_split_kind_at(at, i, end) == k) i++;
    return i;
}

/* Returns the length of 's, 't, 're, 've, 'm, 'll or 'd at i; 0 if there is none.  `any_case`
 * includes capitals and U+017F, whose upper case is S. */
static int text_split_contraction(const wb__letter *at, int i, int end, bool any_case)
{
    uint32_t c[2] = {0, 0};
    if (at[i].c != '\'') return 0;
    for (int k = 0; k < 2 && i + 1 + k < end; k++) {
        c[k] = at[i + 1 + k].c;
        if (any_case && c[k] >= 'A' && c[k] <= 'Z') c[k] |= 32;
        if (any_case && c[k] == 0x17f) c[k] = 's';
    }
    if (c[0] == 's' || c[0] == 't' || c[0] == 'm' || c[0] == 'd') return 2;
    return ((c[0] == 'r' || c[0] == 'v') && c[1] == 'e') || (c[0] == 'l' && c[1] == 'l') ? 3 : 0;
}

/* Returns the end of the white space that begins at i, without its last character if more text
 * follows, but with at least one character. */
static int text_split_spaces_end(const wb__letter *at, int i, int end)
{
    const int stop = text_split_run_of(at, i, end, TEXT_SPLIT_SPACE);
    return stop < end && stop > i + 1 ? stop - 1 : stop;
}

/* Returns the end of a match of 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|
 * \s+(?!\S)|\s+ at i. */
static int text_split_gpt2_end(const wb__letter *at, int i, int end)
{
    const int short_form = text_split_contraction(at, i, end, false);
    if (short_form) return i + short_form;
    const int first = i + (at[i].c == ' ');
    const text_split_kind k = text_split_kind_at(at, first, end);
    return k == TEXT_SPLIT_SPACE || k == TEXT_SPLIT_END ? text_split_spaces_end(at, i, end)
                                                        : text_split_run_of(at, first, end, k);
}

static bool text_split_is_newline(const wb__letter *at, int i, int end)
{
    return i < end && (at[i].c == '\r' || at[i].c == '\n');
}

/* Returns the end of a match of (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|
 * \p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ at i. */
static int text_split_gpt4_end(const wb__letter *at, int i, int end, int digits)
{
    const int short_form = text_split_contraction(at, i, end, true);
    if (short_form) return i + short_form;
    const text_split_kind k = text_split_kind_at(at, i, end);
    if (k == LETTER) return text_split_run_of(at, i, end, LETTER);
    if (k == TEXT_SPLIT_NUMBER) {
        const int stop = text_split_run_of(at, i, end, TEXT_SPLIT_NUMBER);
        return WB__MIN(stop, i + digits);
    }
    if (!text_split_is_newline(at, i, end) && text_split_kind_at(at, i + 1, end) == LETTER)
        return text_split_run_of(at, i + 1, end, LETTER);
    const int first = i + (at[i].c == ' ');
    if (text_split_kind_at(at, first, end) == TEXT_SPLIT_OTHER) {
        int stop = text_split_run_of(at, first, end, TEXT_SPLIT_OTHER);
        while (text_split_is_newline(at, stop, end)) stop++;
        return stop;
    }
    int last = text_split_run_of(at, i, end, TEXT_SPLIT_SPACE);
    while (last > i && !text_split_is_newline(at, last - 1, end)) last--;
    return last > i ? last : text_split_spaces_end(at, i, end);
}

static bool text_split_pattern(const wb__letter *at, wb__piece s, const wb__text_step *step,
                               wb__pieces *out)
{
    for (int i = s.begin; i < s.end;) {
        const int next = step->kind == WB__SPLIT_GPT2
                             ? text_split_gpt2_end(at, i, s.end)
                             : text_split_gpt4_end(at, i, s.end, step->first);
        if (!text_split_add_piece(out, i, next)) return false;
        i = next;
    }
    return true;
}

/* ---- changes of letters ---------------------------------------------------------------------- */

/* Whether a byte is its own character in GPT-2's alphabet, because it is printable in Latin-1.  The
 * 68 other bytes are U+0100 and following, in their order. */
static bool text_split_is_own(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

uint32_t wb__byte_letter(uint8_t byte)
{
    if (text_split_is_own(byte)) return byte;
    return 0x100u + (byte < 0x21 ? byte : byte < 0xa1 ? byte - 0x7fu + 33 : 67);
}

int wb__letter_byte(uint32_t c)
{
    if (c < 0x100) return text_split_is_own((int)c) ? (int)c : -1;
    const int k = (int)c - 0x100;
    return k < 33 ? k : k < 67 ? k - 33 + 0x7f : k == 67 ? 0xad : -1;
}

static bool text_split_add_bytes(const wb__letter *at, wb__piece s, wb__letters *out)
{
    for (int i = s.begin; i < s.end; i++) {
        wb__letter x = at[i];
        char bytes[4] = {(char)x.c};
        const int n = x.c < 0x80 ? 1 : wb__utf8_put(x.c, bytes);
        for (int k = 0; k < n; k++) {
            x.c = wb__byte_letter((uint8_t)bytes[k]);
            if (!wb__letters_add(out, x)) return false;
        }
    }
    return true;
}

/* Writes the letters of a piece, changed by the step, to `out`. */
static bool text_split_change(const wb__text_step *step, const wb__letter *at, wb__piece s,
                              wb__letters *out)
{
    if (step->kind == WB__BYTE_LEVEL) return text_split_add_bytes(at, s, out);
    const uint32_t mark = step->to.at[0].c;
    const bool lead =
        step->kind == WB__PREFIX || (step->kind == WB__PREFIX_FIRST && !at[s.begin].begin);
    if (lead && at[s.begin].c != mark &&
        !wb__letters_add(out, (wb__letter){mark, at[s.begin].begin, at[s.begin].end}))
        return false;
    const int first = out->n;
    if (!wb__letters_copy(out, at + s.begin, s.end - s.begin)) return false;
    for (int i = first; step->kind == WB__REPLACE_CHARACTER && i < out->n; i++)
        if (out->at[i].c == step->from.at[0].c) out->at[i].c = mark;
    return true;
}

static bool text_split_changes(wb__text_step_kind k)
{
    return k == WB__PREFIX || k == WB__PREFIX_FIRST || k == WB__REPLACE_CHARACTER ||
           k == WB__BYTE_LEVEL;
}

/* Adds the pieces into which the step splits a piece to `out`. */
static bool text_split_piece(const wb__text_step *step, const wb__letter *at, wb__piece s,
                             wb__pieces *out)
{
    switch (step->kind) {
    case WB__SPLIT: return text_split_delimiters(at, s, step, out);
    case WB__SPLIT_WORDS: return text_split_words(at, s, out);
    case WB__SPLIT_BEFORE: return text_split_before(at, s, step->to.at[0].c, out);
    default: return text_split_pattern(at, s, step, out);
    }
}

/* Splits all pieces of w by the step, except added tokens. */
static bool text_split_all(const wb__text_step *step, wb__text_work *w)
{
    w->more.n = 0;
    for (int i = 0; i < w->pieces.n; i++) {
        const wb__piece s = w->pieces.at[i];
        if (s.id >= 0 ? !wb__pieces_add(&w->more, s.begin, s.end, s.id)
                      : !text_split_piece(step, w->text.at, s, &w->more))
            return false;
    }
    const wb__pieces made = w->more;
    w->more = w->pieces;
    w->pieces = made;
    return true;
}

/* Changes the letters of all pieces of w by the step, except added tokens. */
static bool text_split_change_all(const wb__text_step *step, wb__text_work *w)
{
    w->spare.n = 0;
    for (int i = 0; i < w->pieces.n; i++) {
        wb__piece *s = &w->pieces.at[i];
        const int begin = w->spare.n;
        if (s->id >= 0 ? !wb__letters_copy(&w->spare, w->text.at + s->begin, s->end - s->begin)
                       : !text_split_change(step, w->text.at, *s, &w->spare))
            return false;
        s->begin = begin;
        s->end = w->spare.n;
    }
    const wb__letters made = w->spare;
    w->spare = w->text;
    w->text = made;
    return true;
}

bool wb__split_text(const wb__text_steps *s, wb__text_work *w)
{
    for (int i = 0; i < s->n; i++)
        if (text_split_changes(s->at[i].kind) ? !text_split_change_all(&s->at[i], w)
                                              : !text_split_all(&s->at[i], w))
            return false;
    return true;
}
