/* Steps from letters to letters. */
#include "io/text/tokenizer.h"
#include "io/text/unicode.h"

#include <string.h>

static bool text_normalise_lower(const wb__letters *in, wb__letters *out)
{
    for (int i = 0; i < in->n; i++) {
        wb__letter x = in->at[i];
        const bool dotted = x.c == 0x130;               /* its lower case has two characters */
        x.c = x.c < 0x80 ? x.c | (x.c >= 'A' && x.c <= 'Z') << 5 : wb__unicode_lower(x.c);
        if (!wb__letters_add(out, x)) return false;
        x.c = 0x307;
        if (dotted && !wb__letters_add(out, x)) return false;
    }
    return true;
}

/* Writes the letters that are in none of the classes to `out`. */
static bool text_normalise_drop(const wb__letters *in, int classes, wb__letters *out)
{
    const bool ascii = classes & ~(WB__IS_MARK | WB__IS_NONSPACING);    /* ASCII has no marks */
    for (int i = 0; i < in->n; i++) {
        const uint32_t c = in->at[i].c;
        if ((c >= 0x80 || ascii) && wb__unicode_classes(c) & classes) continue;
        if (!wb__letters_add(out, in->at[i])) return false;
    }
    return true;
}

/* Writes the letters to `out` without control characters, white space as ' '. */
static bool text_normalise_clean(const wb__letters *in, wb__letters *out)
{
    for (int i = 0; i < in->n; i++) {
        wb__letter x = in->at[i];
        const bool plain = x.c >= ' ' && x.c < 0x7f;
        const bool blank = x.c == '\t' || x.c == '\n' || x.c == '\r';
        const int classes = plain || blank ? 0 : wb__unicode_classes(x.c);
        if (x.c == WB__REPLACEMENT || classes & WB__IS_CONTROL) continue;
        if (blank || classes & WB__IS_SPACE) x.c = ' ';
        if (!wb__letters_add(out, x)) return false;
    }
    return true;
}

/* Writes the letters to `out`, with spaces around ideographs. */
static bool space_ideographs(const wb__letters *in, wb__letters *out)
{
    for (int i = 0; i < in->n; i++) {
        const wb__letter x = in->at[i];
        const bool alone = x.c >= 0x3400 && wb__unicode_classes(x.c) & WB__IS_IDEOGRAPH;
        if (alone && !wb__letters_add(out, (wb__letter){' ', x.begin, x.begin})) return false;
        if (!wb__letters_add(out, x)) return false;
        if (alone && !wb__letters_add(out, (wb__letter){' ', x.end, x.end})) return false;
    }
    return true;
}

/* Writes the letters to `out` without the white space at the left or right end. */
static bool text_normalise_strip(const wb__letters *in, bool left, bool right, wb__letters *out)
{
    int begin = 0, end = in->n;
    while (left && begin < end && wb__unicode_classes(in->at[begin].c) & WB__IS_SPACE) begin++;
    while (right && end > begin && wb__unicode_classes(in->at[end - 1].c) & WB__IS_SPACE) end--;
    return wb__letters_copy(out, in->at + begin, end - begin);
}

static bool text_normalise_replace(const wb__letters *in, const wb__letters *from,
                                   const wb__letters *to, wb__letters *out)
{
    for (int i = 0; i < in->n;) {
        if (!from->n || !wb__letters_begin(in->at + i, in->n - i, from)) {
            if (!wb__letters_add(out, in->at[i++])) return false;
            continue;
        }
        const uint32_t begin = in->at[i].begin, end = in->at[i + from->n - 1].end;
        for (int k = 0; k < to->n; k++)
            if (!wb__letters_add(out, (wb__letter){to->at[k].c, begin, end})) return false;
        i += from->n;
    }
    return true;
}

static bool text_normalise_prepend(const wb__letters *in, const wb__letters *to, wb__letters *out)
{
    for (int k = 0; in->n && k < to->n; k++)
        if (!wb__letters_add(out, (wb__letter){to->at[k].c, in->at[0].begin, in->at[0].end}))
            return false;
    return wb__letters_copy(out, in->at, in->n);
}

static bool text_normalise_step(const wb__text_step *s, const wb__letters *in, wb__letters *out)
{
    switch (s->kind) {
    case WB__NORMAL_FORM: return wb__unicode_normal(in, s->first, s->second, out);
    case WB__LOWERCASE: return text_normalise_lower(in, out);
    case WB__DROP: return text_normalise_drop(in, s->first, out);
    case WB__CLEAN_TEXT: return text_normalise_clean(in, out);
    case WB__SPACE_IDEOGRAPHS: return space_ideographs(in, out);
    case WB__STRIP: return text_normalise_strip(in, s->first, s->second, out);
    case WB__REPLACE: return text_normalise_replace(in, &s->from, &s->to, out);
    default: return text_normalise_prepend(in, &s->to, out);
    }
}

bool wb__normalise_text(const wb__text_steps *s, wb__letters *text, wb__letters *spare)
{
    for (int i = 0; i < s->n; i++) {
        spare->n = 0;
        if (!text_normalise_step(&s->at[i], text, spare)) return false;
        const wb__letters made = *spare;
        *spare = *text;
        *text = made;
    }
    return true;
}
