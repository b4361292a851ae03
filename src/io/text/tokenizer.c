/* The public functions of tokenizers. */
#include "io/text/tokenizer.h"

#include "base/options.h"
#include "engine/tensor.h"

#include "weber/text.h"

#include <string.h>

int64_t wb_vocabulary_size(const wb_tokenizer *t)
{
    if (!wb__expect("vocabulary_size", t, &wb__tokenizer_class)) return -1;
    return (int64_t)t->tokens[t->n_tokens - 1].id + 1;
}

int64_t wb_token_id(const wb_tokenizer *t, const char *token)
{
    if (!wb__expect("token_id", t, &wb__tokenizer_class) || WB__NULL(token)) return -1;
    return wb__token_named(t, token);
}

const char *wb_token_text(const wb_tokenizer *t, int64_t id)
{
    if (!wb__expect("token_text", t, &wb__tokenizer_class)) return NULL;
    const wb__entry_of_vocabulary *e = wb__token_of(t, id);
    if (!e)
        return wb__fail_null(WB_ERROR_ARGUMENT, "token_text: no token has the id %lld (%s)",
                             (long long)id, t->path);
    return t->texts + e->text;
}

/* The tokens of one text, or of two, and where the second one begins. */
typedef struct { wb__tokens tokens; int second; bool pair; } tokenizer_row;

static int tokenizer_encode_row(const wb_tokenizer *t, wb__text_work *w, const char *text,
                                const char *pair, tokenizer_row *r)
{
    r->tokens.n = 0;
    r->pair = pair != NULL;
    bool ok = wb__tokenize(t, w, text, &r->tokens);
    r->second = r->tokens.n;
    if (ok && pair) ok = wb__tokenize(t, w, pair, &r->tokens);
    return ok ? 0 : wb__error_or(WB_ERROR_MEMORY);
}

static int64_t tokenizer_special_count(const wb_tokenizer *t, bool pair)
{
    return pair ? t->pair.n - 2 : t->alone.n - 1;
}

/* Removes `have` - n tokens at the end or, with .cut_left, at the beginning. */
static void tokenizer_drop_tokens(const wb_tokenizer *t, wb__token *at, int64_t have, int64_t n)
{
    if (t->cut_left && n < have) memmove(at, at + have - n, (size_t)n * sizeof *at);
}

/* Cuts a row to `most` tokens, not counting special ones.  For a pair the longer text is cut to the
 * length of the shorter one, then both to equal lengths, the second one longer by one if `most` is
 * odd; or only one text is cut, by t->cut. */
static int tokenizer_truncate_row(const wb_tokenizer *t, tokenizer_row *r, int64_t most)
{
    const int64_t have[2] = {r->second, r->tokens.n - r->second};
    const int64_t less = r->tokens.n - most;
    int64_t n[2] = {have[0], have[1]};
    if (less <= 0) return 0;
    const int one = t->cut == WB__ONLY_SECOND;
    if (t->cut != WB__LONGEST_FIRST) {
        if ((one && !r->pair) || have[one] <= less)
            return wb__fail(WB_ERROR_ARGUMENT, "encode_batch: only the %s text is cut by this "
                            "tokenizer, and it has %lld tokens; %lld must go",
                            one ? "second" : "first", (long long)have[one], (long long)less);
        n[one] -= less;
    } else if (r->pair) {
        const int shorter = have[1] < have[0];
        const int64_t left = WB__MAX(have[shorter], most - have[shorter]);
        n[!shorter] = left;
        if (have[shorter] + left > most) {
            n[shorter] = most / 2;
            n[!shorter] = most - most / 2;
        }
    } else n[0] = most;
    tokenizer_drop_tokens(t, r->tokens.at, have[0], n[0]);
    tokenizer_drop_tokens(t, r->tokens.at + have[0], have[1], n[1]);
    memmove(r->tokens.at + n[0], r->tokens.at + have[0], (size_t)n[1] * sizeof *r->tokens.at);
    r->second = (int)n[0];
    r->tokens.n = (int)(n[0] + n[1]);
    return 0;
}

/* Adds the tokens of a row to `all`, with special tokens around them if `special` is true. */
static bool tokenizer_add_row(const wb_tokenizer *t, const tokenizer_row *r, bool special,
                              wb__tokens *all)
{
    const wb__template *form = r->pair ? &t->pair : &t->alone;
    for (int i = 0; i < form->n; i++) {
        const wb__part p = form->at[i];
        if (p.id >= 0) {
            if (special && !wb__tokens_add(all, (wb__token){p.id, p.type, 0, 0})) return false;
            continue;
        }
        const int begin = p.id == WB__TEXT_SECOND ? r->second : 0;
        const int end = p.id == WB__TEXT_SECOND ? r->tokens.n : r->second;
        for (int k = begin; k < end; k++) {
            wb__token x = r->tokens.at[k];
            x.type = p.type;
            if (!wb__tokens_add(all, x)) return false;
        }
    }
    return true;
}

typedef enum { IDS, MASK, TOKENIZER_TYPES, OFFSETS } field;

static int32_t tokenizer_value_of(const wb__token *x, field f, int k)
{
    switch (f) {
    case IDS: return x->id;
    case MASK: return 1;
    case TOKENIZER_TYPES: return x->type;
    default: return (int32_t)(k ? x->end : x->begin);
    }
}

/* Rows of tokens, one behind the other; row i has lengths[i] tokens. */
typedef struct { wb__tokens tokens; int64_t n, length; int64_t *lengths; } tokenizer_rows;

/* Returns a field of all rows as a tensor, [n, length] or [n, length, 2]; for one row without n. */
static wb_tensor *tokenizer_tensor_of(const wb_tokenizer *t, const tokenizer_rows *r, field f,
                                      bool batch)
{
    const int width = f == OFFSETS ? 2 : 1;
    const int32_t padding = f == IDS ? t->pad_id : f == TOKENIZER_TYPES ? t->pad_type : 0;
    const int64_t dims[3] = {r->n, r->length, width}, size = r->n * r->length * width;
    int32_t *values = wb__alloc((size_t)size * sizeof *values + 1), *to = values;
    const wb__token *x = r->tokens.at;
    if (!values) return NULL;
    for (int64_t i = 0; i < r->n; i++) {
        const int64_t pad = r->length - r->lengths[i], left = t->pad_left ? pad : 0;
        for (int64_t k = 0; k < left * width; k++) *to++ = padding;
        for (int64_t j = 0; j < r->lengths[i]; j++, x++)
            for (int k = 0; k < width; k++) *to++ = tokenizer_value_of(x, f, k);
        for (int64_t k = left * width; k < pad * width; k++) *to++ = padding;
    }
    wb_tensor *made = wb_from(values, WB_I32, 1 + batch + (f == OFFSETS),
                              batch ? dims : dims + 1);
    wb__free(values);
    return made;
}

wb_tensor *wb_encode_with(const wb_tokenizer *t, const char *text, const wb_encode_options *given)
{
    wb_encode_options o;
    wb__given names;
    if (!wb__expect("encode", t, &wb__tokenizer_class) || WB__NULL(text) ||
        !wb__read_options("encode", wb_encode_options, &o, given, &names) ||
        wb__is_given_null("encode", &names, "pair", o.pair))
        return NULL;
    wb__text_work w = {0};
    tokenizer_row r = {0};
    tokenizer_rows all = {.n = 1};
    wb_tensor *ids = NULL, *offsets = NULL;
    const wb__frame f = wb__frame_begin();
    if (!tokenizer_encode_row(t, &w, text, o.pair, &r) &&
        tokenizer_add_row(t, &r, o.special, &all.tokens)) {
        all.length = all.tokens.n;
        all.lengths = &all.length;
        ids = tokenizer_tensor_of(t, &all, IDS, false);
        offsets = ids && o.offsets ? tokenizer_tensor_of(t, &all, OFFSETS, false) : NULL;
        if (o.offsets && !offsets) ids = NULL;
    }
    wb__text_work_free(&w);
    wb__free(r.tokens.at);
    wb__free(all.tokens.at);
    if (o.offsets) *o.offsets = offsets;
    wb_tensor *results[2] = {ids, offsets};
    wb__frame_end_many(f, 2, (void *const *)results);
    return ids;
}

/* Sets *most and *least to the limits of a row's number of tokens, and checks that the special
 * tokens fit. */
static int tokenizer_limits(const wb_tokenizer *t, const wb_encode_batch_options *o, int64_t *most,
                            int64_t *least)
{
    const bool own = o->length || o->most;
    const int64_t specials = o->special ? tokenizer_special_count(t, o->pairs != NULL) : 0;
    *least = o->length ? o->length : own ? 0 : t->padded;
    *most = o->length ? o->length : own ? o->most : t->most ? t->most : INT64_MAX;
    if (o->length && o->most && o->most < o->length) *most = o->most;
    if (!own && *most < specials)
        return wb__fail(WB_ERROR_ARGUMENT, "encode_batch: %s cuts rows to %lld tokens, which has "
                        "no room for %lld special ones: give .most", t->path, (long long)*most,
                        (long long)specials);
    if (o->length < 0 || o->most < 0 || *most < specials || *least > WB__LETTERS_MOST)
        return wb__fail(WB_ERROR_ARGUMENT, "encode_batch: .length = %lld, .most = %lld; rows have "
                        "from %lld special tokens to 2^26 tokens", (long long)o->length,
                        (long long)o->most, (long long)specials);
    if (*most < INT64_MAX) *most -= specials;
    return 0;
}

static int tokenizer_encode_all(const wb_tokenizer *t, const char *const *texts,
                                const wb_encode_batch_options *o, tokenizer_rows *all)
{
    wb__text_work w = {0};
    tokenizer_row r = {0};
    int64_t most, least;
    int status = tokenizer_limits(t, o, &most, &least);
    for (int64_t i = 0; !status && i < all->n; i++) {
        const int64_t before = all->tokens.n;
        if (!texts[i] || (o->pairs && !o->pairs[i]))
            status = wb__fail(WB_ERROR_ARGUMENT, "encode_batch: text %lld is NULL", (long long)i);
        if (!status)
            status = tokenizer_encode_row(t, &w, texts[i], o->pairs ? o->pairs[i] : NULL, &r);
        if (!status) status = tokenizer_truncate_row(t, &r, most);
        if (!status && !tokenizer_add_row(t, &r, o->special, &all->tokens))
            status = WB_ERROR_MEMORY;
        if (all->tokens.n > 1 << 29)
            status = wb__fail(WB_ERROR_ARGUMENT, "encode_batch: more than 2^29 tokens in all");
        all->lengths[i] = all->tokens.n - before;
        all->length = WB__MAX(all->length, all->lengths[i]);
    }
    all->length = WB__MAX(all->length, least);
    if (t->multiple && !o->length)
        all->length = (all->length + t->multiple - 1) / t->multiple * t->multiple;
    wb__text_work_free(&w);
    wb__free(r.tokens.at);
    return status;
}

wb_encoded wb_encode_batch_with(const wb_tokenizer *t, int64_t n, const char *const *texts,
                                const wb_encode_batch_options *given)
{
    const wb_encoded none = {0};
    wb_encode_batch_options o;
    wb__given names;
    if (!wb__expect("encode_batch", t, &wb__tokenizer_class) || WB__NULL(texts) ||
        !wb__read_options("encode_batch", wb_encode_batch_options, &o, given, &names) ||
        wb__is_given_null("encode_batch", &names, "pairs", o.pairs))
        return none;
    if (n < 1 || n > INT32_MAX) {
        wb__fail(WB_ERROR_ARGUMENT, "encode_batch: %lld texts", (long long)n);
        return none;
    }
    tokenizer_rows all = {.n = n, .lengths = wb__alloc((size_t)n * sizeof *all.lengths)};
    const wb__frame f = wb__frame_begin();
    wb_tensor *x[4] = {NULL, NULL, NULL, NULL};
    if (all.lengths && !tokenizer_encode_all(t, texts, &o, &all))
        for (int k = 0; k < 4 && (!k || x[k - 1]); k++)
            x[k] = tokenizer_tensor_of(t, &all, (field)k, true);
    wb__free(all.lengths);
    wb__free(all.tokens.at);
    if (!x[3]) x[0] = x[1] = x[2] = NULL;
    wb__frame_end_many(f, 4, (void *const *)x);
    return (wb_encoded){x[IDS], x[MASK], x[TOKENIZER_TYPES], x[OFFSETS]};
}

struct wb_decoder {
    wb__object object;
    wb_tokenizer *tokenizer;            /* with a reference */
    wb__decoding decoding;
    wb__text text;                      /* the result of the last call */
};

static void decoder_destroy(void *object)
{
    wb_decoder *d = object;
    wb__unref(d->tokenizer);
    wb__decoding_free(&d->decoding);
    wb__free(d->text.text);
    wb__object_end(d, sizeof *d);
}

const wb__class wb__decoder_class = {.name = "decoder", .destroy = decoder_destroy};

wb_decoder *wb_decoder_begin_with(const wb_tokenizer *t, const wb_decode_options *given)
{
    wb_decode_options o;
    if (!wb__expect("decoder_begin", t, &wb__tokenizer_class) ||
        !wb__read_options("decoder_begin", wb_decode_options, &o, given, NULL))
        return NULL;
    wb_decoder *d = wb__object_new(&wb__decoder_class, sizeof *d);
    if (!d) return NULL;
    d->tokenizer = wb__ref((void *)(uintptr_t)t);
    d->decoding.keep_special = o.keep_special;
    return d;
}

static const char *tokenizer_text_so_far(const wb_decoder *d)
{
    if (d->text.failed) return NULL;
    return d->text.length ? d->text.text : "";
}

const char *wb_decoder_next(wb_decoder *d, int64_t id)
{
    if (!wb__expect("decoder_next", d, &wb__decoder_class)) return NULL;
    d->text.length = d->text.failed = 0;
    return wb__decode_token(d->tokenizer, &d->decoding, id,
                            &d->text) ? NULL : tokenizer_text_so_far(d);
}

const char *wb_decoder_end(wb_decoder *d)
{
    if (!wb__expect("decoder_end", d, &wb__decoder_class)) return NULL;
    d->text.length = d->text.failed = 0;
    wb__decode_rest(&d->decoding, &d->text);
    d->decoding.begun = false;
    d->decoding.stripped = 0;
    return tokenizer_text_so_far(d);
}

char *wb_decode_with(const wb_tokenizer *t, wb_tensor *ids, const wb_decode_options *given)
{
    WB__PUBLIC(wb_decode_with, NULL);
    wb_decode_options o;
    if (!wb__expect("decode", t, &wb__tokenizer_class) || !wb__operand("decode", ids) ||
        !wb__read_options("decode", wb_decode_options, &o, given, NULL))
        return NULL;
    const wb_dtype type = wb_dtype_of(ids);
    if (type != WB_I32 && type != WB_I64)
        return wb__fail_null(WB_ERROR_DTYPE, "decode: ids are i32 or i64, not %s",
                             wb_describe(ids));
    const void *values = wb_data(ids);
    if (!values && wb_size(ids)) return NULL;
    wb__decoding d = {.keep_special = o.keep_special};
    wb__text text = {0};
    int status = 0;
    for (int64_t i = 0; !status && i < wb_size(ids); i++)
        status = wb__decode_token(t, &d, type == WB_I32 ? ((const int32_t *)values)[i]
                                                        : ((const int64_t *)values)[i], &text);
    wb__decode_rest(&d, &text);
    wb__decoding_free(&d);
    char *made = wb__text_take(&text);
    if (!status) return made;
    wb__free(made);
    return NULL;
}
