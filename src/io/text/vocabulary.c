/* The vocabulary of a tokenizer, its added tokens, and the object itself. */
#include "io/text/tokenizer.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wb__text_step *wb__steps_add(wb__text_steps *s, wb__text_step_kind kind, int first, int second)
{
    if (!wb__reserve(&s->at, &s->capacity, s->n + 1, sizeof *s->at)) return NULL;
    s->at[s->n] = (wb__text_step){.kind = kind, .first = first, .second = second};
    return &s->at[s->n++];
}

void wb__steps_free(wb__text_steps *s)
{
    for (int i = 0; i < s->n; i++) {
        wb__free(s->at[i].from.at);
        wb__free(s->at[i].to.at);
    }
    wb__free(s->at);
}

static void vocabulary_destroy(void *object)
{
    wb_tokenizer *t = object;
    wb__free(t->path);
    wb__free(t->texts);
    wb__free(t->tokens);
    wb__free(t->added);
    wb__trie_free(&t->vocabulary);
    wb__trie_free(&t->others);
    wb__trie_free(&t->in_text.trie);
    wb__trie_free(&t->in_normal.trie);
    wb__steps_free(&t->normalisers);
    wb__steps_free(&t->splitters);
    wb__steps_free(&t->decoders);
    wb__free(t->prefix);
    wb__free(t->suffix);
    wb__hash_free(&t->merges);
    wb__free(t->alone.at);
    wb__free(t->pair.at);
    wb__object_end(t, sizeof *t);
}

static char *vocabulary_format(void *object)
{
    const wb_tokenizer *t = object;
    return wb__printf("Tokenizer(%s, %d tokens, %d of them added)",
                      t->model == WB__WORDPIECE ? "WordPiece" : "BPE", t->n_tokens, t->n_added);
}

const wb__class wb__tokenizer_class = {.name = "tokenizer", .destroy = vocabulary_destroy,
                                       .format = vocabulary_format};

wb_tokenizer *wb__tokenizer_new(const char *path)
{
    wb_tokenizer *t = wb__object_new(&wb__tokenizer_class, sizeof *t);
    if (!t) return NULL;
    t->unknown = -1;
    t->path = wb__strdup(path);
    t->prefix = wb__strdup("");
    t->suffix = wb__strdup("");
    for (int i = 0; i < 256; i++) t->bytes[i] = -1;
    return t->path && t->prefix && t->suffix ? t : NULL;    /* the scope frees it */
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Returns a token for an error message: at most its first 60 bytes, without control characters.
 * The caller frees the text. */
static char *vocabulary_token_text(const char *token)
{
    wb__text t = {0};
    char begin[61];
    const size_t n = WB__MIN(strlen(token), sizeof begin - 1);
    memcpy(begin, token, n);
    begin[n] = 0;
    wb__text_foreign(&t, begin);
    if (token[n]) wb__text_add(&t, "...");
    return wb__text_take(&t);
}

static int vocabulary_fail_token(const wb_tokenizer *t, const char *token, const char *reason,
                                 int64_t number)
{
    char *text = vocabulary_token_text(token);
    if (!text) return WB_ERROR_MEMORY;
    const int code = wb__fail(WB_ERROR_FORMAT, "%s: the token \"%s\" %s %lld", t->path, text,
                              reason, (long long)number);
    wb__free(text);
    return code;
}

static bool vocabulary_store_text(wb_tokenizer *t, const char *text, size_t n)
{
    if (n > (size_t)(1 << 30) - 1 || t->n_texts > (1 << 30) - (int)n - 1)
        return wb__fail(WB_ERROR_UNSUPPORTED, "%s: tokens of more than 2^30 bytes in all", t->path),
               false;
    if (!wb__reserve(&t->texts, &t->texts_capacity, t->n_texts + (int)n + 1, 1)) return false;
    memcpy(t->texts + t->n_texts, text, n + 1);
    t->n_texts += (int)n + 1;
    return true;
}

int32_t wb__token_named(const wb_tokenizer *t, const char *text)
{
    const int32_t id = wb__trie_value(&t->vocabulary, text);
    return id >= 0 ? id : wb__trie_value(&t->others, text);
}

int wb__tokenizer_token(wb_tokenizer *t, const char *text, int64_t id, bool added, bool special)
{
    if (id < 0 || id > 1 << 30)
        return vocabulary_fail_token(t, text, "has an id that is not from 0 to 2^30:", id);
    const bool other = added && wb__trie_value(&t->vocabulary, text) < 0;
    int32_t *known = wb__trie_at(other ? &t->others : &t->vocabulary, text, strlen(text));
    if (!known) return wb__error_or(WB_ERROR_MEMORY);
    if (*known >= 0 && *known != id)
        return vocabulary_fail_token(t, text, "has two ids, of which one is", id);
    const uint32_t at = *known < 0 ? (uint32_t)t->n_texts : UINT32_MAX;
    if ((*known < 0 && !vocabulary_store_text(t, text, strlen(text))) ||
        !wb__reserve(&t->tokens, &t->tokens_capacity, t->n_tokens + 1, sizeof *t->tokens))
        return wb__error_or(WB_ERROR_MEMORY);
    /* A token that is there gets a second entry without a text, which wb__tokenizer_ready joins. */
    t->tokens[t->n_tokens++] =
        (wb__entry_of_vocabulary){.id = (int32_t)id, .text = at, .decoded = at, .special = special};
    *known = (int32_t)id;
    return 0;
}

int wb__tokenizer_add(wb_tokenizer *t, const char *text, wb__added a, bool normalised)
{
    wb__finder *f = normalised && t->normalisers.n ? &t->in_normal : &t->in_text;
    wb__letters word = {0}, spare = {0};
    wb__text bytes = {0};
    bool ok = wb__letters_text(&word, text) &&
              (f == &t->in_text || wb__normalise_text(&t->normalisers, &word, &spare));
    for (int i = 0; ok && i < word.n; i++) {
        char c[4];
        wb__text_raw(&bytes, c, (size_t)wb__utf8_put(word.at[i].c, c));
    }
    const size_t n = bytes.length;
    char *key = ok ? wb__text_take(&bytes) : NULL;
    int32_t *value = key && n ? wb__trie_at(&f->trie, key, n) : NULL;
    ok = key && (!n || (value && wb__reserve(&t->added, &t->added_capacity, t->n_added + 1,
                                             sizeof *t->added)));
    if (ok && n) {
        f->starts[(uint8_t)*key] = f->any = true;
        if (*value < 0) *value = t->n_added;
        t->added[t->n_added++] = a;
    }
    if (ok && f == &t->in_normal) {
        t->tokens[wb__token_of(t, a.id) - t->tokens].decoded = (uint32_t)t->n_texts;
        ok = vocabulary_store_text(t, key, n);
    }
    wb__free(key);
    wb__free(word.at);
    wb__free(spare.at);
    return ok ? 0 : wb__error_or(WB_ERROR_MEMORY);
}

static int vocabulary_by_id(const void *a, const void *b)
{
    const wb__entry_of_vocabulary *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return x->text < y->text ? -1 : x->text > y->text;
}

/* Sorts the tokens by id, and joins entries of the same token. */
static int vocabulary_sort_tokens(wb_tokenizer *t)
{
    int n = 0;
    if (t->n_tokens) qsort(t->tokens, (size_t)t->n_tokens, sizeof *t->tokens, vocabulary_by_id);
    for (int i = 0; i < t->n_tokens; i++) {
        const wb__entry_of_vocabulary e = t->tokens[i];
        if (!n || t->tokens[n - 1].id != e.id) t->tokens[n++] = e;
        else if (e.text == UINT32_MAX) t->tokens[n - 1].special |= e.special;
        else return vocabulary_fail_token(t, t->texts + e.text, "shares with another token the id",
                                          e.id);
    }
    t->n_tokens = n;
    return n && t->vocabulary.n_nodes
               ? 0 : wb__fail(WB_ERROR_FORMAT, "%s: the vocabulary of the model is empty", t->path);
}

int wb__tokenizer_ready(wb_tokenizer *t)
{
    const int status = vocabulary_sort_tokens(t);
    if (status) return status;
    t->inside = wb__trie_text(&t->vocabulary, 0, t->prefix);
    for (int i = 0; t->byte_fallback && i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        t->bytes[i] = wb__trie_value(&t->vocabulary, name);
    }
    return 0;
}

const wb__entry_of_vocabulary *wb__token_of(const wb_tokenizer *t, int64_t id)
{
    int low = 0, high = t->n_tokens;
    if (id < 0 || id > INT32_MAX) return NULL;
    if (id < high && t->tokens[id].id == id) return &t->tokens[id];         /* dense ids */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (t->tokens[middle].id < id) low = middle + 1;
        else high = middle;
    }
    return low < t->n_tokens && t->tokens[low].id == id ? &t->tokens[low] : NULL;
}
