/* Reads tokenizer.json, the format of Hugging Face's tokenizers. */
#include "io/text/read.h"

#include <string.h>

/* ---- templates ------------------------------------------------------------------------------- */

static void text_json_add_part(wb__part_reader *r, wb__template *to, int32_t id, int64_t type)
{
    if (type < 0 || type > INT32_MAX) wb__part_bad(r, "type_id %lld", (long long)type);
    if (r->status) return;
    if (!wb__reserve(&to->at, &to->capacity, to->n + 1, sizeof *to->at)) {
        r->status = WB_ERROR_MEMORY;
        return;
    }
    to->at[to->n++] = (wb__part){id, (int32_t)type};
}

/* Adds parts to a template.  Each character of `form` is a text, A or B, or a digit, which is an
 * index of `ids`; `types` has the type of each part, '0' or '1'. */
static void text_json_add_parts(wb__part_reader *r, wb__template *to, const char *form,
                                const char *types, const int32_t *ids)
{
    for (; *form; form++, types++)
        text_json_add_part(r, to,
                           *form == 'A'   ? WB__TEXT_FIRST
                           : *form == 'B' ? WB__TEXT_SECOND
                                          : ids[*form - '0'],
                           *types - '0');
}

void wb__template_plain(wb__part_reader *r)
{
    text_json_add_parts(r, &r->t->alone, "A", "0", NULL);
    text_json_add_parts(r, &r->t->pair, "AB", "01", NULL);
}

void wb__template_bert(wb__part_reader *r, const int32_t ids[2])
{
    text_json_add_parts(r, &r->t->alone, "0A1", "000", ids);
    text_json_add_parts(r, &r->t->pair, "0A1B1", "00011", ids);
}

void wb__template_roberta(wb__part_reader *r, const int32_t ids[2])
{
    text_json_add_parts(r, &r->t->alone, "0A1", "000", ids);
    text_json_add_parts(r, &r->t->pair, "0A11B1", "000000", ids);
}

/* Adds the ids of a special token, which the post-processor lists by the token's name. */
static void text_json_add_special(wb__part_reader *r, wb__template *to, const wb__json *specials,
                                  const char *name, int64_t type)
{
    const wb__json *ids = wb__json_get(wb__json_get(specials, name), "ids"), *id;
    if (!wb__json_count(ids)) wb__part_bad(r, "special_tokens has no ids of %.60s", name);
    WB__JSON_EACH(ids, id, i) {
        if (!wb__json_is(id, WB__JSON_INTEGER) || !wb__token_of(r->t, wb__json_integer(id)))
            wb__part_bad(r, "an id of %.60s is no id of a token", name);
        text_json_add_part(r, to, (int32_t)wb__json_integer(id), type);
    }
}

/* Adds the parts in a list of {"SpecialToken": {"id", "type_id"}} and {"Sequence": {"id",
 * "type_id"}}, in which each of the texts, `texts` of them, occurs once. */
static void text_json_read_list(wb__part_reader *r, wb__template *to, const wb__json *list,
                                int texts, const wb__json *specials)
{
    const wb__json *item;
    int found[2] = {0, 0};
    WB__JSON_EACH(list, item, i) {
        const wb__json *text = wb__json_get(item, "Sequence");
        const wb__json *special = wb__json_get(item, "SpecialToken");
        if (!text == !special) wb__part_bad(r, "neither Sequence nor SpecialToken");
        const wb__json *of = text ? text : special;
        const char *name = wb__part_text(r, of, "id", NULL);
        const int64_t type = wb__part_integer(r, of, "type_id", 0);
        const int k = strcmp(name, "B") == 0;
        if (special) text_json_add_special(r, to, specials, name, type);
        else if (k || !strcmp(name, "A")) {
            found[k]++;
            text_json_add_part(r, to, k ? WB__TEXT_SECOND : WB__TEXT_FIRST, type);
        } else wb__part_bad(r, "the sequence %.60s is neither A nor B", name);
    }
    if (found[0] != 1 || found[1] != texts - 1)
        wb__part_bad(r, "a template of %d texts needs each once", texts);
}

static void text_json_read_templates(wb__part_reader *r, const wb__json *p)
{
    wb__part_keys(r, p, "type single pair special_tokens");
    const wb__json *specials = wb__json_get(p, "special_tokens");
    text_json_read_list(r, &r->t->alone, wb__json_get(p, "single"), 1, specials);
    text_json_read_list(r, &r->t->pair, wb__json_get(p, "pair"), 2, specials);
}

/* Returns the id in a member such as ["[SEP]", 102]. */
static int32_t text_json_token_id(wb__part_reader *r, const wb__json *p, const char *key)
{
    const wb__json *pair = wb__json_get(p, key), *v, *id = NULL;
    WB__JSON_EACH(pair, v, i) if (i == 1) id = v;
    if (wb__json_count(pair) != 2 || !wb__json_is(id, WB__JSON_INTEGER) ||
        !wb__token_of(r->t, wb__json_integer(id)))
        wb__part_bad(r, "%s is no token with its id", key);
    return r->status ? 0 : (int32_t)wb__json_integer(id);
}

static void text_json_read_template(wb__part_reader *r, const wb__json *p)
{
    const char *type = wb__part_text(r, p, "type", NULL);
    const bool bert = !strcmp(type, "BertProcessing"), roberta = !strcmp(type, "RobertaProcessing");
    if (!strcmp(type, "ByteLevel")) {
        wb__part_keys(r, p, "type add_prefix_space trim_offsets use_regex");
        r->t->trim = wb__part_bool(r, p, "trim_offsets", true);
        r->t->keep_first = wb__part_bool(r, p, "add_prefix_space", true);
        return;
    }
    if (r->t->alone.n) wb__part_unknown(r, "more than one part that adds tokens: %.60s", type);
    if (!strcmp(type, "TemplateProcessing")) {
        text_json_read_templates(r, p);
        return;
    }
    if (!bert && !roberta) {
        wb__part_unknown(r, "the type \"%.60s\" is not known", type);
        return;
    }
    wb__part_keys(r, p, bert ? "type sep cls" : "type sep cls trim_offsets add_prefix_space");
    const int32_t ids[2] = {text_json_token_id(r, p, "cls"), text_json_token_id(r, p, "sep")};
    (bert ? wb__template_bert : wb__template_roberta)(r, ids);
    if (roberta) r->t->trim = wb__part_bool(r, p, "trim_offsets", true);
    if (roberta) r->t->keep_first = wb__part_bool(r, p, "add_prefix_space", true);
}

void wb__read_template(wb__part_reader *r, const wb__json *part)
{
    const wb__json *p, *parts = wb__json_get(part, "processors");
    r->what = "post_processor";
    if (part && part->kind != WB__JSON_NULL) {
        const char *type = wb__part_text(r, part, "type", NULL);
        if (strcmp(type, "Sequence")) text_json_read_template(r, part);
        else if (!wb__json_is(parts, WB__JSON_LIST)) wb__part_bad(r, "Sequence without processors");
        WB__JSON_EACH(strcmp(type, "Sequence") ? NULL : parts, p, i) text_json_read_template(r, p);
    }
    if (!r->t->alone.n) wb__template_plain(r);
}

/* ---- truncation and padding ------------------------------------------------------------------ */

static bool text_json_is_left(wb__part_reader *r, const wb__json *p)
{
    static const char *const sides[] = {"Right", "Left", NULL};
    return wb__part_choice(r, p, "direction", 0, sides) == 1;
}

static void text_json_read_truncation(wb__part_reader *r, const wb__json *p)
{
    static const char *const cuts[] = {"LongestFirst", "OnlyFirst", "OnlySecond", NULL};
    r->what = "truncation";
    if (!p || p->kind == WB__JSON_NULL) return;
    wb__part_keys(r, p, "direction max_length strategy stride");
    r->t->most = wb__part_integer(r, p, "max_length", 0);
    r->t->cut = (wb__text_cut)wb__part_choice(r, p, "strategy", 0, cuts);
    r->t->cut_left = text_json_is_left(r, p);
    if (r->t->most < 1) wb__part_bad(r, "max_length %lld", (long long)r->t->most);
}

static void text_json_read_padding(wb__part_reader *r, const wb__json *p)
{
    const wb__json *strategy = wb__json_get(p, "strategy");
    r->what = "padding";
    if (!p || p->kind == WB__JSON_NULL) {
        const int32_t bert = wb__token_named(r->t, "[PAD]");
        const int32_t pad = wb__token_named(r->t, "<pad>");
        r->t->pad_id = bert >= 0 ? bert : WB__MAX(pad, 0);
        return;
    }
    wb__part_keys(r, p, "strategy direction pad_to_multiple_of pad_id pad_type_id pad_token");
    if (wb__json_is(strategy, WB__JSON_OBJECT)) {
        wb__part_keys(r, strategy, "Fixed");
        r->t->padded = wb__part_integer(r, strategy, "Fixed", 0);
    } else {
        static const char *const names[] = {"BatchLongest", NULL};
        wb__part_choice(r, p, "strategy", 0, names);
    }
    r->t->multiple = wb__part_integer(r, p, "pad_to_multiple_of", 0);
    const int64_t id = wb__part_integer(r, p, "pad_id", 0);
    const int64_t type = wb__part_integer(r, p, "pad_type_id", 0);
    r->t->pad_left = text_json_is_left(r, p);
    r->t->pad_id = (int32_t)id;
    r->t->pad_type = (int32_t)type;
    if (id < 0 || id > INT32_MAX || type < 0 || type > INT32_MAX || r->t->padded < 0 ||
        r->t->padded > WB__LETTERS_MOST || r->t->multiple < 0 || r->t->multiple > WB__LETTERS_MOST)
        wb__part_bad(r, "a number is negative or too large");
}

int wb__read_sentences(wb_tokenizer *t, const wb__json *settings)
{
    wb__part_reader reader = {t, "sentence_bert_config.json", 0}, *r = &reader;
    if (!wb__json_is(settings, WB__JSON_OBJECT)) return wb__part_bad(r, "it is no object");
    const int64_t most = wb__part_integer(r, settings, "max_seq_length", 0);
    if (most < 0) wb__part_bad(r, "max_seq_length %lld", (long long)most);
    if (wb__part_bool(r, settings, "do_lower_case", false))
        wb__part_unknown(r, "do_lower_case is true, which is not done: lower texts first, and load "
                         "the tokenizer's file instead of the folder");
    if (most) {
        t->most = most;
        t->cut = WB__LONGEST_FIRST;
        t->padded = t->multiple = 0;
    }
    return r->status;
}

/* ---- the model ------------------------------------------------------------------------------- */

void wb__read_vocabulary(wb__part_reader *r, const wb__json *vocabulary)
{
    const wb__json *id;
    if (!wb__json_is(vocabulary, WB__JSON_OBJECT)) wb__part_bad(r, "vocab is no object");
    WB__JSON_EACH_MEMBER(vocabulary, id, i) {
        if (r->status) return;
        if (!wb__json_is(id, WB__JSON_INTEGER))
            wb__part_bad(r, "the id of the token \"%.60s\" is no integer", wb__json_key(id));
        else
            r->status = wb__tokenizer_token(r->t, wb__json_key(id), wb__json_integer(id),
                                            false, false);
    }
}

/* Sets a field of the tokenizer to a copy of a text of the model. */
static void text_json_keep_text(wb__part_reader *r, char **field, const char *text)
{
    wb__free(*field);
    *field = wb__strdup(text);
    if (!*field && !r->status) r->status = WB_ERROR_MEMORY;
}

static void text_json_read_unknown(wb__part_reader *r, const wb__json *p, const char *by_default,
                                   bool must)
{
    const char *token = wb__part_text(r, p, "unk_token", by_default);
    if (!*token && !must) return;
    r->t->unknown = wb__trie_value(&r->t->vocabulary, token);
    if (r->t->unknown < 0 && !r->status)
        wb__part_bad(r, "the vocabulary has no unk_token \"%.60s\"", token);
}

static void text_json_read_wordpiece(wb__part_reader *r, const wb__json *p)
{
    wb__part_keys(r, p, "type unk_token continuing_subword_prefix max_input_chars_per_word vocab");
    const int64_t most = wb__part_integer(r, p, "max_input_chars_per_word", 100);
    if (most < 0) wb__part_bad(r, "max_input_chars_per_word %lld", (long long)most);
    r->t->model = WB__WORDPIECE;
    r->t->most_letters = (int)WB__MIN(most, (int64_t)WB__LETTERS_MOST);
    text_json_keep_text(r, &r->t->prefix, wb__part_text(r, p, "continuing_subword_prefix", "##"));
    wb__read_vocabulary(r, wb__json_get(p, "vocab"));
    text_json_read_unknown(r, p, "[UNK]", true);
}

/* Adds a merge, "a b" or ["a", "b"].  The text of the first form is split in place. */
static void text_json_read_merge(wb__part_reader *r, const wb__json *merge, int64_t rank)
{
    const wb__json *part, *parts[2] = {NULL, NULL};
    const char *text = wb__json_text(merge);
    WB__JSON_EACH(merge, part, i) if (i < 2) parts[i] = part;
    const char *a = wb__json_text(parts[0]), *b = wb__json_text(parts[1]);
    char *copy = text ? wb__strdup(text) : NULL, *space = copy ? strchr(copy, ' ') : NULL;
    if (space) {
        *space = 0;
        a = copy;
        b = space + 1;
    }
    if (text && !copy) r->status = WB_ERROR_MEMORY;
    else if (!a || !b || (text && strchr(b, ' ')) || (!text && wb__json_count(merge) != 2))
        wb__part_bad(r, "merge %lld is no pair of tokens", (long long)rank);
    else r->status = wb__merges_add(r->t, a, b, rank);
    wb__free(copy);
}

static void text_json_read_bpe(wb__part_reader *r, const wb__json *p)
{
    const wb__json *merges = wb__json_get(p, "merges"), *merge;
    const wb__json *dropout = wb__json_get(p, "dropout");
    wb__part_keys(r, p, "type dropout unk_token continuing_subword_prefix end_of_word_suffix "
                  "fuse_unk byte_fallback ignore_merges vocab merges");
    if (dropout && !wb__json_is(dropout, WB__JSON_NULL) &&
        !(wb__json_is(dropout, WB__JSON_REAL) && dropout->is.real == 0))
        wb__part_unknown(r, "dropout: tokens that depend on chance");
    r->t->model = WB__BPE;
    r->t->fuse_unknown = wb__part_bool(r, p, "fuse_unk", false);
    r->t->byte_fallback = wb__part_bool(r, p, "byte_fallback", false);
    r->t->whole_first = wb__part_bool(r, p, "ignore_merges", false);
    text_json_keep_text(r, &r->t->prefix, wb__part_text(r, p, "continuing_subword_prefix", ""));
    text_json_keep_text(r, &r->t->suffix, wb__part_text(r, p, "end_of_word_suffix", ""));
    if (!wb__json_is(merges, WB__JSON_LIST)) wb__part_bad(r, "merges is no list");
    wb__read_vocabulary(r, wb__json_get(p, "vocab"));
    text_json_read_unknown(r, p, "", false);
    WB__JSON_EACH(merges, merge, i) if (!r->status) text_json_read_merge(r, merge, i);
}

static void text_json_read_model(wb__part_reader *r, const wb__json *p)
{
    static const char *const types[] = {"WordPiece", "BPE", NULL};
    r->what = "model";
    if (!wb__json_is(p, WB__JSON_OBJECT)) {
        wb__part_bad(r, "it is missing");
        return;
    }
    /* Files of the first versions have no type. */
    const int by_default = wb__json_get(p, "merges") ? WB__BPE : WB__WORDPIECE;
    if (wb__part_choice(r, p, "type", by_default, types) == WB__BPE) text_json_read_bpe(r, p);
    else if (!r->status) text_json_read_wordpiece(r, p);
}

static void text_json_read_added(wb__part_reader *r, const wb__json *list, bool enter)
{
    const wb__json *a;
    r->what = "added_tokens";
    if (list && !wb__json_is(list, WB__JSON_LIST)) wb__part_bad(r, "it is no list");
    WB__JSON_EACH(list, a, i) {
        wb__part_keys(r, a, "id content single_word lstrip rstrip normalized special");
        const char *text = wb__part_text(r, a, "content", NULL);
        const int64_t id = wb__part_integer(r, a, "id", -1);
        const bool special = wb__part_bool(r, a, "special", false);
        const wb__added added = {(int32_t)id, wb__part_bool(r, a, "single_word", false),
                                 wb__part_bool(r, a, "lstrip", false),
                                 wb__part_bool(r, a, "rstrip", false)};
        const bool normalised = wb__part_bool(r, a, "normalized", !special);
        if (r->status) return;
        r->status = enter ? wb__tokenizer_token(r->t, text, id, true, special)
                          : wb__tokenizer_add(r->t, text, added, normalised);
    }
}

int wb__read_tokenizer_json(wb_tokenizer *t, const wb__json *root)
{
    wb__part_reader reader = {t, "tokenizer.json", 0}, *r = &reader;
    const wb__json *added = wb__json_get(root, "added_tokens");
    wb__part_keys(r, root, "version truncation padding added_tokens normalizer pre_tokenizer "
                  "post_processor decoder model");
    if (!r->status) text_json_read_model(r, wb__json_get(root, "model"));
    if (!r->status) text_json_read_added(r, added, true);
    if (!r->status) r->status = wb__tokenizer_ready(t);
    if (!r->status) wb__read_normaliser(r, wb__json_get(root, "normalizer"));
    if (!r->status) text_json_read_added(r, added, false);
    if (!r->status) wb__read_splitter(r, wb__json_get(root, "pre_tokenizer"));
    if (!r->status) wb__read_template(r, wb__json_get(root, "post_processor"));
    if (!r->status) wb__read_decoder(r, wb__json_get(root, "decoder"));
    if (!r->status) text_json_read_truncation(r, wb__json_get(root, "truncation"));
    if (!r->status) text_json_read_padding(r, wb__json_get(root, "padding"));
    return r->status;
}
