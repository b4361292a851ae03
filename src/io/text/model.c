/* The models of tokenizers, which turn pieces of text into tokens: WordPiece and byte pair
 * encoding. */
#include "io/text/tokenizer.h"
#include "io/text/unicode.h"

#include "base/text.h"

#include <string.h>

enum { BYTE_SPACE = 0x120 };            /* the letter of the byte ' ' (wb__byte_letter) */

static bool text_model_is_blank(uint32_t c)
{
    return c == BYTE_SPACE || wb__unicode_classes(c) & WB__IS_SPACE;
}

bool wb__emit(const wb_tokenizer *t, const wb__letters *l, int begin, int end, int32_t id,
              wb__tokens *out)
{
    const wb__letter *at = l->at;
    int first = begin, last = end;
    while (t->trim && first < end && text_model_is_blank(at[first].c)) first++;
    while (t->trim && last > begin && text_model_is_blank(at[last - 1].c)) last--;
    if (first == begin + 1 && t->keep_first && !at[begin].begin) first = begin;
    const uint32_t from = first < end ? at[first].begin : at[end - 1].end;
    const uint32_t to = last > begin ? at[last - 1].end : at[begin].begin;
    return wb__tokens_add(out, (wb__token){id, 0, from, WB__MAX(from, to)});
}

/* ---- WordPiece ------------------------------------------------------------------------------- */

bool wb__wordpiece(const wb_tokenizer *t, const wb__letters *l, wb__piece s, wb__tokens *out)
{
    const int mark = out->n;
    bool known = s.end - s.begin <= t->most_letters;
    for (int i = s.begin; known && i < s.end;) {
        uint32_t node = i == s.begin ? 0 : t->inside;
        int end = i;
        int32_t id = -1;
        if (i > s.begin && *t->prefix && !node) break;
        for (int k = i; k < s.end; k++) {
            if (!(node = wb__trie_letter(&t->vocabulary, node, l->at[k].c))) break;
            if (t->vocabulary.values[node] < 0) continue;
            id = t->vocabulary.values[node];
            end = k + 1;
        }
        known = id >= 0;
        if (known && !wb__emit(t, l, i, end, id, out)) return false;
        i = end;
        if (known && i == s.end) return true;
    }
    out->n = mark;
    return wb__emit(t, l, s.begin, s.end, t->unknown, out);
}

/* ---- byte pair encoding: the symbols of a word ----------------------------------------------- */

static bool text_model_add_symbol(wb__text_work *w, int32_t id, int begin, int end)
{
    if (!wb__reserve(&w->symbols, &w->symbols_capacity, w->n_symbols + 1, sizeof *w->symbols))
        return false;
    const int n = w->n_symbols++;
    w->symbols[n] = (wb__symbol){id, n - 1, n + 1, begin, end};
    return true;
}

/* Returns the token of a single letter, with prefix and suffix; -1 if there is none. */
static int32_t text_model_letter_token(const wb_tokenizer *t, uint32_t c, bool first, bool last)
{
    uint32_t node = first ? 0 : t->inside;
    if (!first && *t->prefix && !node) return -1;
    node = wb__trie_letter(&t->vocabulary, node, c);
    if (node && last && *t->suffix) node = wb__trie_text(&t->vocabulary, node, t->suffix);
    return node ? t->vocabulary.values[node] : -1;
}

/* Adds the tokens of the bytes of a letter.  Sets *known to false if a byte has no token.  Prefix
 * and suffix do not apply to tokens of bytes. */
static bool text_model_add_byte_tokens(const wb_tokenizer *t, wb__text_work *w, int at, bool *known)
{
    char bytes[4];
    const int n = wb__utf8_put(w->text.at[at].c, bytes);
    for (int i = 0; i < n; i++) *known = *known && t->bytes[(uint8_t)bytes[i]] >= 0;
    for (int i = 0; *known && i < n; i++)
        if (!text_model_add_symbol(w, t->bytes[(uint8_t)bytes[i]], at, at + 1)) return false;
    return true;
}

/* Sets w->symbols to symbols of all letters.  Letters without a token become the unknown token, one
 * for each or one for all neighbours; if there is no unknown token, they are left out. */
static bool text_model_make_symbols(const wb_tokenizer *t, wb__text_work *w, wb__piece s)
{
    int unknown_from = -1, unknown_to = -1;
    w->n_symbols = 0;
    for (int i = s.begin; i < s.end; i++) {
        const int32_t id = text_model_letter_token(t, w->text.at[i].c, i == s.begin,
                                                   i + 1 == s.end);
        bool known = id >= 0 || t->byte_fallback;
        if (id < 0 && known && !text_model_add_byte_tokens(t, w, i, &known)) return false;
        if (id < 0 && known) continue;
        if (unknown_from >= 0 && (id >= 0 || !t->fuse_unknown)) {
            if (!text_model_add_symbol(w, t->unknown, unknown_from, unknown_to)) return false;
            unknown_from = -1;
        }
        if (id >= 0 && !text_model_add_symbol(w, id, i, i + 1)) return false;
        if (id < 0 && t->unknown >= 0) {
            if (unknown_from < 0) unknown_from = i;
            unknown_to = i + 1;
        }
    }
    return unknown_from < 0 || text_model_add_symbol(w, t->unknown, unknown_from, unknown_to);
}

/* ---- byte pair encoding: merges -------------------------------------------------------------- */

static uint64_t text_model_merge_key(int32_t a, int32_t b)
{
    return ((uint64_t)(uint32_t)a + 1) << 32 | (uint32_t)b;
}

static uint32_t merge_rank(const wb__hashed *merge) { return (uint32_t)(merge->number >> 32); }

static int text_model_unknown_part(const wb_tokenizer *t, const char *a, const char *b,
                                   const char *token)
{
    wb__text message = {0};
    wb__text_foreign(&message, a);
    wb__text_add(&message, " ");
    wb__text_foreign(&message, b);
    wb__text_add(&message, ": the vocabulary has no token ");
    wb__text_foreign(&message, token);
    char *text = wb__text_take(&message);
    if (!text) return WB_ERROR_MEMORY;
    const int code = wb__fail(WB_ERROR_FORMAT, "%s: the merge %s", t->path, text);
    wb__free(text);
    return code;
}

int wb__merges_add(wb_tokenizer *t, const char *a, const char *b, int64_t rank)
{
    const size_t skip = wb__begins(b, t->prefix) ? strlen(t->prefix) : 0;
    char *both = wb__printf("%s%s", a, b + skip);
    if (!both) return WB_ERROR_MEMORY;
    const int32_t x = wb__trie_value(&t->vocabulary, a), y = wb__trie_value(&t->vocabulary, b),
                  id = wb__trie_value(&t->vocabulary, both);
    const int status = x < 0 || y < 0 || id < 0 ? text_model_unknown_part(t, a, b,
                                                           x < 0 ? a : y < 0 ? b : both) : 0;
    wb__free(both);
    if (status) return status;
    wb__hashed *m = wb__hash_at(&t->merges, text_model_merge_key(x, y));
    if (!m) return WB_ERROR_MEMORY;
    m->number = rank << 32 | id;        /* if a merge is listed twice, the later one counts */
    return 0;
}

/* ---- byte pair encoding: the queue of candidates --------------------------------------------- */

/* A candidate is a symbol that a merge may join with the symbol behind it.  Candidates of one merge
 * that are added from left to right form a list; the heap has the first candidate of each list.  So
 * the heap stays small where a text repeats few pairs, however long it is. */

/* Whether x comes before y in the heap: lower ranks first, equal ranks from left to right. */
static bool text_model_comes_before(const wb__list_head *x, const wb__list_head *y)
{
    return x->rank < y->rank || (x->rank == y->rank && x->at < y->at);
}

/* Moves head i towards the first one, to its place in the order of the heap. */
static void text_model_sift_up(wb__list_head *heap, int i)
{
    const wb__list_head x = heap[i];
    for (; i && text_model_comes_before(&x, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = x;
}

/* Replaces the first head by x, and restores the order of the heap. */
static void text_model_sift_down(wb__list_head *heap, int n, wb__list_head x)
{
    int i = 0;
    for (int k; (k = 2 * i + 1) < n; i = k) {
        k += k + 1 < n && text_model_comes_before(&heap[k + 1], &heap[k]);
        if (!text_model_comes_before(&heap[k], &x)) break;
        heap[i] = heap[k];
    }
    heap[i] = x;
}

/* Returns the merge of the first candidate, which it removes, and sets *at to the candidate's
 * symbol. */
static const wb__hashed *text_model_remove_first(wb__text_work *w, int *at)
{
    wb__candidate *c = &w->candidates[w->heap[0].candidate];
    const wb__hashed *m = c->merge;
    *at = c->at;
    c->merge = NULL;                    /* marks a candidate to which none is appended */
    if (c->next) {
        const wb__list_head next = {merge_rank(m), w->candidates[c->next].at, c->next};
        text_model_sift_down(w->heap, w->n_heap, next);
    } else if (--w->n_heap) text_model_sift_down(w->heap, w->n_heap, w->heap[w->n_heap]);
    return m;
}

/* Adds the candidate of symbol `at` and the symbol behind it, if a merge joins them, to the end of
 * the merge's list, or as a new list. */
static bool text_model_add_candidate(const wb_tokenizer *t, wb__text_work *w, int at)
{
    const int next = at < 0 ? w->n_symbols : w->symbols[at].next;
    if (next >= w->n_symbols) return true;
    const wb__hashed *m =
        wb__hash_get(&t->merges, text_model_merge_key(w->symbols[at].id, w->symbols[next].id));
    if (!m) return true;
    const int new = w->n_candidates;
    int *last = &w->last[merge_rank(m) % WB__COUNT(w->last)];
    if (!wb__reserve(&w->candidates, &w->candidates_capacity, new + 1, sizeof *w->candidates) ||
        !wb__reserve(&w->heap, &w->heap_capacity, w->n_heap + 1, sizeof *w->heap))
        return false;
    wb__candidate *c = w->candidates;
    c[w->n_candidates++] = (wb__candidate){m, at, 0};
    if (*last < new && c[*last].merge == m && c[*last].at <= at) c[*last].next = new;
    else {
        w->heap[w->n_heap] = (wb__list_head){merge_rank(m), at, new};
        text_model_sift_up(w->heap, w->n_heap++);
    }
    *last = new;
    return true;
}

/* Merges until no merge applies.  Each merge removes a symbol and adds at most two candidates, so a
 * word of n letters takes at most O(n log n).  A symbol that was merged into its left neighbour has
 * id -1. */
static bool text_model_merge_all(const wb_tokenizer *t, wb__text_work *w)
{
    w->n_heap = w->n_candidates = 0;
    for (int i = 0; i + 1 < w->n_symbols; i++)
        if (!text_model_add_candidate(t, w, i)) return false;
    while (w->n_heap) {
        int at;
        const wb__hashed *m = text_model_remove_first(w, &at);
        wb__symbol *left = &w->symbols[at], *right = &w->symbols[left->next];
        if (left->next >= w->n_symbols || text_model_merge_key(left->id, right->id) != m->key)
            continue;                   /* a symbol of the candidate has changed */
        left->id = (int32_t)m->number;
        left->end = right->end;
        left->next = right->next;
        right->id = -1;
        if (left->next < w->n_symbols) w->symbols[left->next].previous = at;
        if (!text_model_add_candidate(t, w, left->previous) || !text_model_add_candidate(t, w, at))
            return false;
    }
    return true;
}

/* Returns the token of a whole piece; -1 if there is none. */
static int32_t text_model_whole_token(const wb_tokenizer *t, const wb__letters *l, wb__piece s)
{
    uint32_t node = 0;
    for (int i = s.begin; i < s.end; i++)
        if (!(node = wb__trie_letter(&t->vocabulary, node, l->at[i].c))) return -1;
    return t->vocabulary.values[node];
}

bool wb__bpe(const wb_tokenizer *t, wb__text_work *w, wb__piece s, wb__tokens *out)
{
    const int32_t whole = t->whole_first ? text_model_whole_token(t, &w->text, s) : -1;
    if (whole >= 0) return wb__emit(t, &w->text, s.begin, s.end, whole, out);
    if (!text_model_make_symbols(t, w, s) || !text_model_merge_all(t, w)) return false;
    for (int i = 0; i < w->n_symbols; i = w->symbols[i].next)
        if (!wb__emit(t, &w->text, w->symbols[i].begin, w->symbols[i].end, w->symbols[i].id, out))
            return false;
    return true;
}
