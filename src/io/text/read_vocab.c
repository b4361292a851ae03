/* Reads the older files of a model hub's folder: vocab.txt of BERT, and vocab.json with merges.txt
 * of GPT-2 and RoBERTa, with the settings of tokenizer_config.json. */
#include "io/text/read.h"

#include "base/text.h"

#include <string.h>

/* Returns the special token in a setting, which is a text or an object with a text "content". */
static const char *special_of(wb__part_reader *r, const wb__json *settings, const char *key,
                              const char *by_default)
{
    const wb__json *v = wb__json_get(settings, key);
    if (wb__json_is(v, WB__JSON_OBJECT)) return wb__part_text(r, v, "content", by_default);
    return wb__part_text(r, settings, key, by_default);
}

/* Returns the id of a token that the vocabulary must have. */
static int32_t text_vocab_id_of(wb__part_reader *r, const char *token)
{
    const int32_t id = wb__trie_value(&r->t->vocabulary, token);
    if (id < 0) wb__part_bad(r, "it has no token \"%.60s\"", token);
    return id;
}

/* Adds the token, if the vocabulary has it, as a special one that is cut out of texts. */
static void text_vocab_add_special(wb__part_reader *r, const char *token)
{
    const int32_t id = wb__trie_value(&r->t->vocabulary, token);
    if (r->status || id < 0) return;
    r->status = wb__tokenizer_token(r->t, token, id, true, true);
    if (!r->status) r->status = wb__tokenizer_add(r->t, token, (wb__added){.id = id}, false);
}

/* Returns the index, in the list, of the tokenizer class that the settings name.  Another class is
 * an error. */
static int text_vocab_class_of(wb__part_reader *r, const wb__json *settings,
                               const char *const *classes)
{
    r->what = "tokenizer_config.json";
    const int k = wb__part_choice(r, settings, "tokenizer_class", 0, classes);
    if (r->status)
        r->status = wb__fail(WB_ERROR_UNSUPPORTED, "%s; a tokenizer.json, which save_pretrained of "
                             "transformers writes, has all that is needed", wb_error());
    return k;
}

/* Returns the next line of the text, without its end; NULL if there is none. */
static char *text_vocab_next_line(char **at, const char *end)
{
    char *line = *at;
    if (line >= end) return NULL;
    char *stop = memchr(line, '\n', (size_t)(end - line));
    *at = stop ? stop + 1 : line + (end - line);
    if (!stop) stop = *at;
    if (stop > line && stop[-1] == '\r') stop--;
    *stop = 0;
    return line;
}

/* Sets an error if a text has a zero byte, which would end a line. */
static void text_vocab_refuse_zeros(wb__part_reader *r, const char *text, int64_t bytes)
{
    const char *zero = bytes ? memchr(text, 0, (size_t)bytes) : NULL;
    if (zero)
        wb__part_bad(r, "byte %lld is zero, so that it is no text in UTF-8 (UTF-16?)",
                     (long long)(zero - text));
}

/* ---- vocab.txt ------------------------------------------------------------------------------- */

static void text_vocab_add_bert(wb__part_reader *r, const wb__json *settings)
{
    static const char *const keys[] = {"unk_token", "cls_token", "sep_token", "pad_token",
                                       "mask_token"};
    static const char *const names[] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"};
    const char *tokens[WB__COUNT(keys)];
    r->what = "tokenizer_config.json";
    for (size_t i = 0; i < WB__COUNT(keys); i++)
        tokens[i] = special_of(r, settings, keys[i], names[i]);
    const bool lowercase = wb__part_bool(r, settings, "do_lower_case", true);
    wb__bert_steps(r, true, wb__part_bool(r, settings, "tokenize_chinese_chars", true),
                   wb__part_bool(r, settings, "strip_accents", lowercase), lowercase);
    r->what = "vocab.txt";
    r->t->unknown = text_vocab_id_of(r, tokens[0]);
    const int32_t ids[2] = {text_vocab_id_of(r, tokens[1]), text_vocab_id_of(r, tokens[2])};
    wb__template_bert(r, ids);
    for (size_t i = 0; i < WB__COUNT(keys); i++) text_vocab_add_special(r, tokens[i]);
    const int32_t pad = wb__trie_value(&r->t->vocabulary, tokens[3]);
    r->t->pad_id = WB__MAX(pad, 0);
}

int wb__read_vocab_txt(wb_tokenizer *t, char *text, int64_t bytes, const wb__json *settings)
{
    static const char *const classes[] = {"BertTokenizer", "BertTokenizerFast",
                                          "DistilBertTokenizer", "DistilBertTokenizerFast",
                                          "ElectraTokenizer", "ElectraTokenizerFast", NULL};
    wb__part_reader reader = {t, "vocab.txt", 0}, *r = &reader;
    const char *end = text + bytes;
    text_vocab_class_of(r, settings, classes);
    r->what = "vocab.txt";
    text_vocab_refuse_zeros(r, text, bytes);
    t->model = WB__WORDPIECE;
    t->most_letters = 100;
    wb__free(t->prefix);
    t->prefix = wb__strdup("##");
    if (!t->prefix) return WB_ERROR_MEMORY;
    int64_t id = 0;
    for (char *line; !r->status && (line = text_vocab_next_line(&text, end)); id++)
        if (!wb__is_utf8(line)) wb__part_bad(r, "line %lld is not UTF-8", (long long)id + 1);
        else if (wb__trie_value(&t->vocabulary, line) >= 0)
            wb__part_bad(r, "line %lld: \"%.60s\" is there twice", (long long)id + 1, line);
        else r->status = wb__tokenizer_token(t, line, id, false, false);
    if (!r->status) text_vocab_add_bert(r, settings);
    if (!r->status) r->status = wb__tokenizer_ready(t);
    wb__bert_pieces(r);
    wb__part_step(r, &t->decoders, WB__DECODE_WORDPIECE, true, 0, "##", NULL);
    return r->status;
}

/* ---- vocab.json and merges.txt --------------------------------------------------------------- */

static void text_vocab_read_merges(wb__part_reader *r, char *text, int64_t bytes)
{
    const char *end = text + bytes;
    int64_t rank = 0;
    r->what = "merges.txt";
    text_vocab_refuse_zeros(r, text, bytes);
    char *line = text_vocab_next_line(&text, end);
    if (line && wb__begins(line, "#version")) line = text_vocab_next_line(&text, end);
    for (; !r->status && line; line = text_vocab_next_line(&text, end)) {
        char *space = strchr(line, ' ');
        if (!*line) continue;
        if (!wb__is_utf8(line) || !space || strchr(space + 1, ' ')) {
            wb__part_bad(r, "\"%.60s\" is no pair of tokens", line);
            return;
        }
        *space = 0;
        r->status = wb__merges_add(r->t, line, space + 1, rank++);
    }
}

/* Adds the parts that RoBERTa has and GPT-2 lacks: special tokens around texts. */
static void text_vocab_add_roberta(wb__part_reader *r, const wb__json *settings)
{
    const char *const tokens[] = {
        special_of(r, settings, "cls_token", "<s>"), special_of(r, settings, "sep_token", "</s>"),
        special_of(r, settings, "unk_token", "<unk>"),
        special_of(r, settings, "pad_token", "<pad>")};
    r->what = "vocab.json";
    const int32_t ids[2] = {text_vocab_id_of(r, tokens[0]), text_vocab_id_of(r, tokens[1])};
    wb__template_roberta(r, ids);
    for (size_t i = 0; i < WB__COUNT(tokens); i++) text_vocab_add_special(r, tokens[i]);
    r->t->pad_id = WB__MAX(wb__trie_value(&r->t->vocabulary, tokens[3]), 0);
    r->t->trim = true;
    /* The mask token includes the space before it. */
    const char *mask = special_of(r, settings, "mask_token", "<mask>");
    const int32_t id = wb__trie_value(&r->t->vocabulary, mask);
    if (r->status || id < 0) return;
    r->status = wb__tokenizer_token(r->t, mask, id, true, true);
    if (!r->status)
        r->status = wb__tokenizer_add(r->t, mask, (wb__added){.id = id, .lstrip = true}, false);
}

static void text_vocab_add_gpt2(wb__part_reader *r, const wb__json *settings)
{
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token"};
    const char *before = "";
    for (size_t i = 0; i < WB__COUNT(keys); i++) {
        const char *token = special_of(r, settings, keys[i], "<|endoftext|>");
        if (strcmp(token, before)) text_vocab_add_special(r, token);
        before = token;
    }
    wb__template_plain(r);
}

int wb__read_vocab_json(wb_tokenizer *t, const wb__json *vocabulary, char *merges, int64_t bytes,
                        const wb__json *settings)
{
    static const char *const classes[] = {"GPT2Tokenizer", "GPT2TokenizerFast", "RobertaTokenizer",
                                          "RobertaTokenizerFast", NULL};
    wb__part_reader reader = {t, "vocab.json", 0}, *r = &reader;
    const bool roberta = text_vocab_class_of(r, settings, classes) >= 2;
    t->model = WB__BPE;
    r->what = "vocab.json";
    wb__read_vocabulary(r, vocabulary);
    text_vocab_read_merges(r, merges, bytes);
    r->what = "tokenizer_config.json";
    const bool prefix_space = wb__part_bool(r, settings, "add_prefix_space", false);
    (roberta ? text_vocab_add_roberta : text_vocab_add_gpt2)(r, settings);
    if (!r->status) r->status = wb__tokenizer_ready(t);
    t->keep_first = prefix_space;
    wb__byte_steps(r, prefix_space, true);
    wb__part_step(r, &t->decoders, WB__DECODE_BYTE_LEVEL, 0, 0, NULL, NULL);
    return r->status;
}
