/* From tokens to text, token by token. */
#include "io/text/tokenizer.h"

#include "base/text.h"

#include <string.h>

/* ---- steps on the letters of one token ------------------------------------------------------- */

/* Changes all letters to bytes, unless one is not in GPT-2's alphabet: that token is ordinary
 * text. */
static void decode_byte_level(wb__letters *l)
{
    for (int i = 0; i < l->n; i++)
        if (wb__letter_byte(l->at[i].c) < 0) return;
    for (int i = 0; i < l->n; i++) l->at[i].c = WB__RAW + (uint32_t)wb__letter_byte(l->at[i].c);
}

static int decode_hex(uint32_t c)
{
    return c >= '0' && c <= '9' ? (int)c - '0' : c >= 'A' && c <= 'F' ? (int)c - 'A' + 10
           : c >= 'a' && c <= 'f' ? (int)c - 'a' + 10 : -1;
}

static void decode_byte_fallback(wb__letters *l)
{
    const wb__letter *x = l->at;
    if (l->n != 6 || x[0].c != '<' || x[1].c != '0' || x[2].c != 'x' || x[5].c != '>') return;
    if (decode_hex(x[3].c) < 0 || decode_hex(x[4].c) < 0) return;
    l->at[0].c = WB__RAW + (uint32_t)(16 * decode_hex(x[3].c) + decode_hex(x[4].c));
    l->n = 1;
}

static bool decode_add_space(wb__letters *l)
{
    if (!wb__letters_room(l, 1)) return false;
    memmove(l->at + 1, l->at, (size_t)l->n++ * sizeof *l->at);
    l->at[0] = (wb__letter){' ', 0, 0};
    return true;
}

/* Replaces all `from` by `to`, which is not longer, in place. */
static void decode_replace(wb__letters *l, const char *from, const char *to)
{
    const int n = (int)strlen(from), m = (int)strlen(to);
    int made = 0;
    for (int i = 0; i < l->n;) {
        int k = 0;
        while (k < n && i + k < l->n && l->at[i + k].c == (uint8_t)from[k]) k++;
        if (k < n) l->at[made++] = l->at[i++];
        else for (i += n, k = 0; k < m; k++) l->at[made++].c = (uint8_t)to[k];
    }
    l->n = made;
}

/* Removes the spaces that splitting has put before punctuation and English contractions.  The
 * replacements are applied in this order to one token with the space before it. */
static void decode_remove_spaces(wb__letters *l)
{
    static const char *const pairs[][2] = {
        {" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < WB__COUNT(pairs); i++) decode_replace(l, pairs[i][0], pairs[i][1]);
}

static bool decode_wordpiece(const wb__text_step *s, wb__letters *l, bool first)
{
    if (!first && wb__letters_begin(l->at, l->n, &s->from)) {
        memmove(l->at, l->at + s->from.n, (size_t)(l->n - s->from.n) * sizeof *l->at);
        l->n -= s->from.n;
    } else if (!first && !decode_add_space(l)) return false;
    if (s->first) decode_remove_spaces(l);
    return true;
}

static void decode_metaspace(const wb__text_step *s, wb__letters *l, bool first)
{
    int made = 0;
    for (int i = 0; i < l->n; i++) {
        wb__letter x = l->at[i];
        const bool mark = x.c == s->from.at[0].c;
        if (mark && first && s->first) continue;
        if (mark) x.c = ' ';
        l->at[made++] = x;
    }
    l->n = made;
}

static void decode_strip_start(const wb__text_step *s, wb__decoding *d, wb__letters *l)
{
    int begin = 0;
    if (d->stripped < 0 || !l->n) return;
    while (begin < l->n && d->stripped < s->first && l->at[begin].c == s->from.at[0].c) {
        d->stripped++;
        begin++;
    }
    if (begin < l->n) d->stripped = -1;
    memmove(l->at, l->at + begin, (size_t)(l->n - begin) * sizeof *l->at);
    l->n -= begin;
}

static bool decode_step(const wb__text_step *s, wb__decoding *d)
{
    const bool first = !d->begun;
    switch (s->kind) {
    case WB__DECODE_BYTE_LEVEL: decode_byte_level(&d->word); return true;
    case WB__DECODE_SPACES: return first || decode_add_space(&d->word);
    case WB__DECODE_WORDPIECE: return decode_wordpiece(s, &d->word, first);
    case WB__DECODE_METASPACE: decode_metaspace(s, &d->word, first); return true;
    case WB__DECODE_BYTE_FALLBACK: decode_byte_fallback(&d->word); return true;
    case WB__DECODE_STRIP: decode_strip_start(s, d, &d->word); return true;
    case WB__REPLACE: {
        const wb__text_steps one = {(wb__text_step *)(uintptr_t)s, 1, 1};
        return wb__normalise_text(&one, &d->word, &d->spare);
    }
    default: return true;
    }
}

/* ---- bytes that may be a part of a character ------------------------------------------------- */

static void decode_replacement(wb__text *text) { wb__text_raw(text, "\xef\xbf\xbd", 3); }

/* Adds the complete characters among the waiting bytes to the text.  Bytes that belong to no
 * character become U+FFFD, at the end of the text also an unfinished character. */
static void decode_add_waiting(wb__decoding *d, bool end, wb__text *text)
{
    while (d->n) {
        bool open = false;
        int n = wb__utf8(d->bytes, (size_t)d->n);
        if (n) wb__text_raw(text, d->bytes, (size_t)n);
        else {
            n = wb__utf8_broken(d->bytes, (size_t)d->n, &open);
            if (open && !end) return;
            decode_replacement(text);
        }
        d->n -= n;
        memmove(d->bytes, d->bytes + n, (size_t)d->n);
    }
}

static void decode_add_letter(wb__decoding *d, uint32_t c, wb__text *text)
{
    char bytes[4];
    if (c < WB__RAW) {
        decode_add_waiting(d, true, text);
        wb__text_raw(text, bytes, (size_t)wb__utf8_put(c, bytes));
        return;
    }
    d->bytes[d->n++] = (char)(c - WB__RAW);
    decode_add_waiting(d, false, text);
}

int wb__decode_token(const wb_tokenizer *t, wb__decoding *d, int64_t id, wb__text *text)
{
    const wb__entry_of_vocabulary *e = wb__token_of(t, id);
    if (!e)
        return wb__fail(WB_ERROR_ARGUMENT, "decode: no token has the id %lld (%s)", (long long)id,
                        t->path);
    if (e->special && !d->keep_special) return 0;
    d->word.n = 0;
    bool ok = wb__letters_text(&d->word, t->texts + e->decoded);
    for (int i = 0; ok && i < t->decoders.n; i++) ok = decode_step(&t->decoders.at[i], d);
    d->begun = true;
    for (int i = 0; ok && i < d->word.n; i++) decode_add_letter(d, d->word.at[i].c, text);
    return ok && !text->failed ? 0 : wb__error_or(WB_ERROR_MEMORY);
}

void wb__decode_rest(wb__decoding *d, wb__text *text) { decode_add_waiting(d, true, text); }

void wb__decoding_free(wb__decoding *d)
{
    wb__free(d->word.at);
    wb__free(d->spare.at);
}
