/* Makes tokens of a text: cuts out the added tokens (tokenizer.h), normalises the text between
 * them, splits it into pieces, and lets the tokenizer's model (model.c) turn each piece into
 * tokens. */
#include "io/text/tokenizer.h"
#include "io/text/unicode.h"

#include "base/text.h"

#include <string.h>

void wb__text_work_free(wb__text_work *w)
{
    wb__free(w->raw.at);
    wb__free(w->normal.at);
    wb__free(w->text.at);
    wb__free(w->spare.at);
    wb__free(w->found.at);
    wb__free(w->more.at);
    wb__free(w->pieces.at);
    wb__free(w->symbols);
    wb__free(w->candidates);
    wb__free(w->heap);
}

/* ---- added tokens ---------------------------------------------------------------------------- */

/* Returns the value of the longest key that begins at letter i, and sets *end; -1 if there is
 * none. */
static int32_t encode_longest_at(const wb__finder *f, const wb__letters *l, int i, int *end)
{
    char bytes[4];
    int32_t found = -1;
    const uint32_t c = l->at[i].c;
    if (c >= 0x80) wb__utf8_put(c, bytes);
    if (!f->starts[c < 0x80 ? c : (uint8_t)bytes[0]]) return -1;
    uint32_t node = 0;
    for (int k = i; k < l->n && (node = wb__trie_letter(&f->trie, node, l->at[k].c)); k++)
        if (f->trie.values[node] >= 0) {
            found = f->trie.values[node];
            *end = k + 1;
        }
    return found;
}

static bool encode_has_class(const wb__letters *l, int i, int classes)
{
    return i >= 0 && i < l->n && wb__unicode_classes(l->at[i].c) & classes;
}

bool wb__find_added(const wb_tokenizer *t, const wb__finder *f, const wb__letters *l,
                    wb__pieces *pieces)
{
    int done = 0;
    for (int i = 0; f->any && i < l->n;) {
        int end = i + 1;
        const int32_t k = encode_longest_at(f, l, i, &end);
        int from = i, to = end;
        i = end;
        if (k < 0) continue;
        const wb__added *a = &t->added[k];
        if (a->single_word &&
            (encode_has_class(l, from - 1, WB__IS_WORD) || encode_has_class(l, to, WB__IS_WORD)))
            continue;
        from = WB__MAX(from, done);
        while (a->lstrip && from > done && encode_has_class(l, from - 1, WB__IS_SPACE)) from--;
        while (a->rstrip && encode_has_class(l, to, WB__IS_SPACE)) to++;
        if (to <= from) continue;                   /* another token has taken all these spaces */
        if ((from > done && !wb__pieces_add(pieces, done, from, -1)) ||
            !wb__pieces_add(pieces, from, to, a->id))
            return false;
        done = to;
    }
    return done >= l->n || wb__pieces_add(pieces, done, l->n, -1);
}

/* Adds a part of the raw text, normalised, to w->text, and divides it into w->pieces. */
static bool encode_add_piece(const wb_tokenizer *t, wb__text_work *w, wb__piece s)
{
    w->normal.n = w->found.n = 0;
    if (!wb__letters_copy(&w->normal, w->raw.at + s.begin, s.end - s.begin) ||
        !wb__normalise_text(&t->normalisers, &w->normal, &w->spare) ||
        !wb__find_added(t, &t->in_normal, &w->normal, &w->found))
        return false;
    const int shift = w->text.n;
    for (int i = 0; i < w->found.n; i++) {
        const wb__piece f = w->found.at[i];
        if (!wb__pieces_add(&w->pieces, f.begin + shift, f.end + shift, f.id)) return false;
    }
    return wb__letters_copy(&w->text, w->normal.at, w->normal.n);
}

static bool encode_split_text(const wb_tokenizer *t, wb__text_work *w, const char *text)
{
    w->raw.n = w->text.n = w->pieces.n = w->more.n = 0;
    if (!wb__letters_read(&w->raw, text, strlen(text)) ||
        !wb__find_added(t, &t->in_text, &w->raw, &w->more))
        return false;
    for (int i = 0; i < w->more.n; i++) {
        const wb__piece s = w->more.at[i];
        const int begin = w->text.n;
        if (s.id < 0 ? !encode_add_piece(t, w, s)
                     : !wb__letters_copy(&w->text, w->raw.at + s.begin, s.end - s.begin) ||
                       !wb__pieces_add(&w->pieces, begin, w->text.n, s.id))
            return false;
    }
    return wb__split_text(&t->splitters, w);
}

bool wb__tokenize(const wb_tokenizer *t, wb__text_work *w, const char *text, wb__tokens *out)
{
    if (!encode_split_text(t, w, text)) return false;
    for (int i = 0; i < w->pieces.n; i++) {
        const wb__piece s = w->pieces.at[i];
        const bool ok = s.id >= 0 ? wb__emit(t, &w->text, s.begin, s.end, s.id, out)
                        : t->model == WB__WORDPIECE ? wb__wordpiece(t, &w->text, s, out)
                                                    : wb__bpe(t, w, s, out);
        if (!ok) return false;
    }
    return true;
}
