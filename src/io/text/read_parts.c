/* The steps of a tokenizer.json: normalizer, pre_tokenizer and decoder. */
#include "io/text/read.h"
#include "io/text/unicode.h"

#include <stdio.h>
#include <string.h>

static int text_parts_fail(wb__part_reader *r, int code, const char *format, va_list arguments)
{
    wb__text raw = {0}, message = {0};
    if (r->status) return r->status;
    wb__text_list(&raw, format, arguments);
    char *text = wb__text_take(&raw);
    if (text) wb__text_foreign(&message, text);
    wb__free(text);
    text = wb__text_take(&message);
    r->status = text ? wb__fail(code, "%s: %s: %s", r->t->path, r->what, text) : WB_ERROR_MEMORY;
    wb__free(text);
    return r->status;
}

int wb__part_bad(wb__part_reader *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int code = text_parts_fail(r, WB_ERROR_FORMAT, format, arguments);
    va_end(arguments);
    return code;
}

int wb__part_unknown(wb__part_reader *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int code = text_parts_fail(r, WB_ERROR_UNSUPPORTED, format, arguments);
    va_end(arguments);
    return code;
}

static bool text_parts_is_listed(const char *keys, const char *key)
{
    const size_t n = strlen(key);
    for (const char *at = keys; *at; at += strcspn(at, " "), at += *at == ' ') {
        if (strcspn(at, " ") == n && !strncmp(at, key, n)) return true;
    }
    return false;
}

void wb__part_keys(wb__part_reader *r, const wb__json *object, const char *keys)
{
    const wb__json *member;
    if (!wb__json_is(object, WB__JSON_OBJECT)) wb__part_bad(r, "no object where one should be");
    WB__JSON_EACH_MEMBER(object, member, i) {
        const char *key = wb__json_key(member);
        if (!text_parts_is_listed(keys, key))
            wb__part_unknown(r, "\"%.60s\" is not known; known are: %s", key, keys);
    }
}

/* Returns the member, or NULL if it is missing or null. */
static const wb__json *text_parts_member(const wb__json *o, const char *key)
{
    const wb__json *v = wb__json_get(o, key);
    return wb__json_is(v, WB__JSON_NULL) ? NULL : v;
}

bool wb__part_bool(wb__part_reader *r, const wb__json *o, const char *key, bool by_default)
{
    const wb__json *v = text_parts_member(o, key);
    if (v && v->kind != WB__JSON_TRUE && v->kind != WB__JSON_FALSE)
        wb__part_bad(r, "%s is neither true nor false", key);
    return v ? v->kind == WB__JSON_TRUE : by_default;
}

int64_t wb__part_integer(wb__part_reader *r, const wb__json *o, const char *key,
                         int64_t by_default)
{
    const wb__json *v = text_parts_member(o, key);
    if (v && v->kind != WB__JSON_INTEGER) wb__part_bad(r, "%s is no integer", key);
    return v ? wb__json_integer(v) : by_default;
}

const char *wb__part_text(wb__part_reader *r, const wb__json *o, const char *key,
                          const char *by_default)
{
    const wb__json *v = text_parts_member(o, key);
    if (v && v->kind != WB__JSON_TEXT) wb__part_bad(r, "%s is no text", key);
    if (!v && !by_default) wb__part_bad(r, "%s is missing", key);
    const char *text = v ? wb__json_text(v) : NULL;
    return text ? text : by_default ? by_default : "";
}

int wb__part_choice(wb__part_reader *r, const wb__json *o, const char *key, int by_default,
                    const char *const *names)
{
    const wb__json *v = text_parts_member(o, key);
    const char *text = wb__json_text(v);
    for (int i = 0; text && names[i]; i++)
        if (!strcmp(text, names[i])) return i;
    if (v) wb__part_unknown(r, "%s is \"%.60s\", which is not known", key, text ? text : "no text");
    return by_default;
}

void wb__part_step(wb__part_reader *r, wb__text_steps *s, wb__text_step_kind kind, int first,
                   int second, const char *from, const char *to)
{
    wb__text_step *step = r->status ? NULL : wb__steps_add(s, kind, first, second);
    const bool ok = step && (!from || wb__letters_text(&step->from, from)) &&
                    (!to || wb__letters_text(&step->to, to));
    if (!ok && !r->status) r->status = wb__error_or(WB_ERROR_MEMORY);
}

/* Returns the text of a member that has exactly one character. */
static const char *text_parts_one_character(wb__part_reader *r, const wb__json *o, const char *key,
                                            const char *by_default)
{
    const char *text = wb__part_text(r, o, key, by_default);
    if (wb__characters(text) != 1) wb__part_bad(r, "%s is not one character", key);
    return text;
}

/* Returns the text of {"String": "..."}, or sets *regex to that of {"Regex": "..."}, which is an
 * error if `regex` is NULL. */
static const char *text_parts_pattern(wb__part_reader *r, const wb__json *o, const char **regex)
{
    const wb__json *pattern = wb__json_get(o, "pattern");
    const char *text = wb__json_text(wb__json_get(pattern, "String"));
    const char *expression = wb__json_text(wb__json_get(pattern, "Regex"));
    if (regex) *regex = expression;
    else if (expression)
        wb__part_unknown(r, "the regular expression %.200s; plain strings are known", expression);
    if (!text && !expression) wb__part_bad(r, "pattern has neither String nor Regex");
    return text ? text : "";
}

/* Sets an error if a part has members other than its type. */
static void text_parts_check_no_members(wb__part_reader *r,
                                        const wb__json *p) { wb__part_keys(r, p, "type"); }

typedef struct { const char *type; void (*read)(wb__part_reader *r,
                                                const wb__json *p); } text_parts_reader;

/* Reads a part by the function for its type.  A Sequence has its parts in the member `list`.  A
 * Sequence in a Sequence is an error, so there is no recursion. */
static void text_parts_read_part(wb__part_reader *r, const wb__json *part, const char *list,
                                 size_t n, const text_parts_reader *readers)
{
    const char *type = wb__part_text(r, part, "type", NULL);
    const bool sequence = !strcmp(type, "Sequence");
    const wb__json *parts = sequence ? wb__json_get(part, list) : NULL, *p;
    if (sequence) {
        if (!wb__json_is(parts, WB__JSON_LIST)) wb__part_bad(r, "Sequence has no list %s", list);
        WB__JSON_EACH(parts, p, i) {
            if (!strcmp(wb__part_text(r, p, "type", NULL), "Sequence"))
                wb__part_unknown(r, "a Sequence in a Sequence");
            else text_parts_read_part(r, p, list, n, readers);
        }
        return;
    }
    for (size_t i = 0; !r->status && i < n; i++)
        if (!strcmp(type, readers[i].type)) {
            readers[i].read(r, part);
            return;
        }
    if (!r->status) wb__part_unknown(r, "the type \"%.60s\" is not known", type);
}

/* ---- normalisers ----------------------------------------------------------------------------- */

void wb__bert_steps(wb__part_reader *r, bool clean, bool ideographs, bool accents, bool lowercase)
{
    wb__text_steps *s = &r->t->normalisers;
    if (clean) wb__part_step(r, s, WB__CLEAN_TEXT, 0, 0, NULL, NULL);
    if (ideographs) wb__part_step(r, s, WB__SPACE_IDEOGRAPHS, 0, 0, NULL, NULL);
    if (accents) {
        wb__part_step(r, s, WB__NORMAL_FORM, false, false, NULL, NULL);
        wb__part_step(r, s, WB__DROP, WB__IS_NONSPACING, 0, NULL, NULL);
    }
    if (lowercase) wb__part_step(r, s, WB__LOWERCASE, 0, 0, NULL, NULL);
}

static void text_parts_read_bert(wb__part_reader *r, const wb__json *p)
{
    wb__part_keys(r, p, "type clean_text handle_chinese_chars strip_accents lowercase");
    const bool lowercase = wb__part_bool(r, p, "lowercase", true);
    wb__bert_steps(r, wb__part_bool(r, p, "clean_text", true),
                   wb__part_bool(r, p, "handle_chinese_chars", true),
                   wb__part_bool(r, p, "strip_accents", lowercase), lowercase);
}

static void text_parts_normal_form(wb__part_reader *r, const wb__json *p)
{
    const char *type = wb__json_text(wb__json_get(p, "type"));      /* NFC, NFD, NFKC or NFKD */
    text_parts_check_no_members(r, p);
    wb__part_step(r, &r->t->normalisers, WB__NORMAL_FORM, type[strlen(type) - 1] == 'C',
                  type[2] == 'K', NULL, NULL);
}

static void text_parts_read_lowercase(wb__part_reader *r, const wb__json *p)
{
    text_parts_check_no_members(r, p);
    wb__part_step(r, &r->t->normalisers, WB__LOWERCASE, 0, 0, NULL, NULL);
}

static void text_parts_read_accents(wb__part_reader *r, const wb__json *p)
{
    text_parts_check_no_members(r, p);
    wb__part_step(r, &r->t->normalisers, WB__DROP, WB__IS_MARK, 0, NULL, NULL);
}

static void text_parts_read_strip(wb__part_reader *r, const wb__json *p)
{
    wb__part_keys(r, p, "type strip_left strip_right");
    wb__part_step(r, &r->t->normalisers, WB__STRIP, wb__part_bool(r, p, "strip_left", true),
                  wb__part_bool(r, p, "strip_right", true), NULL, NULL);
}

static void text_parts_read_replace(wb__part_reader *r, const wb__json *p)
{
    wb__part_keys(r, p, "type pattern content");
    wb__part_step(r, &r->t->normalisers, WB__REPLACE, 0, 0, text_parts_pattern(r, p, NULL),
                  wb__part_text(r, p, "content", NULL));
}

static void text_parts_read_prepend(wb__part_reader *r, const wb__json *p)
{
    wb__part_keys(r, p, "type prepend");
    wb__part_step(r, &r->t->normalisers, WB__PREPEND, 0, 0, NULL,
                  wb__part_text(r, p, "prepend", NULL));
}

void wb__read_normaliser(wb__part_reader *r, const wb__json *part)
{
    static const text_parts_reader readers[] = {
        {"BertNormalizer", text_parts_read_bert}, {"Lowercase", text_parts_read_lowercase},
        {"NFC", text_parts_normal_form}, {"NFKC", text_parts_normal_form},
        {"NFD", text_parts_normal_form}, {"NFKD", text_parts_normal_form},
        {"StripAccents", text_parts_read_accents}, {"Strip", text_parts_read_strip},
        {"Replace", text_parts_read_replace}, {"Prepend", text_parts_read_prepend}};
    r->what = "normalizer";
    if (part && part->kind != WB__JSON_NULL)
        text_parts_read_part(r, part, "normalizers", WB__COUNT(readers), readers);
}

/* ---- splitters ------------------------------------------------------------------------------- */

static const char *const text_parts_behaviors[] = {"Removed", "Isolated", "Contiguous",
                                                   "MergedWithPrevious", "MergedWithNext", NULL};

static void text_parts_split_at(wb__part_reader *r, int classes, wb__delimiters b)
{
    wb__part_step(r, &r->t->splitters, WB__SPLIT, classes, (int)b, NULL, NULL);
}

void wb__bert_pieces(wb__part_reader *r)
{
    text_parts_split_at(r, WB__IS_SPACE, WB__REMOVED);
    text_parts_split_at(r, WB__IS_PUNCTUATION, WB__ISOLATED);
}

static void text_parts_bert_splitter(wb__part_reader *r, const wb__json *p)
{
    text_parts_check_no_members(r, p);
    wb__bert_pieces(r);
}

static void text_parts_space_splitter(wb__part_reader *r, const wb__json *p)
{
    text_parts_check_no_members(r, p);
    text_parts_split_at(r, WB__IS_SPACE, WB__REMOVED);
}

static void text_parts_read_words(wb__part_reader *r, const wb__json *p)
{
    text_parts_check_no_members(r, p);
    wb__part_step(r, &r->t->splitters, WB__SPLIT_WORDS, 0, 0, NULL, NULL);
}

static void text_parts_read_punctuation(wb__part_reader *r, const wb__json *p)
{
    wb__part_keys(r, p, "type behavior");
    text_parts_split_at(r, WB__IS_PUNCTUATION,
        (wb__delimiters)wb__part_choice(r, p, "behavior", WB__ISOLATED, text_parts_behaviors));
}

static void text_parts_read_digits(wb__part_reader *r, const wb__json *p)
{
    wb__part_keys(r, p, "type individual_digits");
    text_parts_split_at(r, WB__IS_NUMBER,
                        wb__part_bool(r, p, "individual_digits", false) ? WB__ISOLATED
                                                                        : WB__CONTIGUOUS);
}

void wb__byte_steps(wb__part_reader *r, bool prefix_space, bool pattern)
{
    wb__text_steps *s = &r->t->splitters;
    if (prefix_space) wb__part_step(r, s, WB__PREFIX, 0, 0, NULL, " ");
    if (pattern) wb__part_step(r, s, WB__SPLIT_GPT2, 0, 0, NULL, NULL);
    wb__part_step(r, s, WB__BYTE_LEVEL, 0, 0, NULL, NULL);
}

static void text_parts_read_byte_level(wb__part_reader *r, const wb__json *p)
{
    wb__part_keys(r, p, "type add_prefix_space trim_offsets use_regex");
    wb__byte_steps(r, wb__part_bool(r, p, "add_prefix_space", true),
                   wb__part_bool(r, p, "use_regex", true));
}

enum { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };

/* Returns Metaspace's prepend_scheme, or what the older add_prefix_space means. */
static int scheme_of(wb__part_reader *r, const wb__json *p)
{
    static const char *const schemes[] = {"always", "first", "never", NULL};
    wb__part_keys(r, p, "type replacement add_prefix_space prepend_scheme split str_rep");
    const bool prefix = wb__part_bool(r, p, "add_prefix_space", true);
    return wb__part_choice(r, p, "prepend_scheme", prefix ? SCHEME_ALWAYS : SCHEME_NEVER, schemes);
}

static void text_parts_read_metaspace(wb__part_reader *r, const wb__json *p)
{
    wb__text_steps *s = &r->t->splitters;
    const int scheme = scheme_of(r, p);
    const char *mark = text_parts_one_character(r, p, "replacement", "\xe2\x96\x81");
    wb__part_step(r, s, WB__REPLACE_CHARACTER, 0, 0, " ", mark);
    if (scheme != SCHEME_NEVER)
        wb__part_step(r, s, scheme == SCHEME_FIRST ? WB__PREFIX_FIRST : WB__PREFIX, 0, 0, NULL,
                      mark);
    if (wb__part_bool(r, p, "split", true))
        wb__part_step(r, s, WB__SPLIT_BEFORE, 0, 0, NULL, mark);
}

/* Reads a Split.  The known regular expressions are those of GPT-2, of cl100k and Llama 3, and of
 * Qwen 2. */
static void text_parts_read_split(wb__part_reader *r, const wb__json *p)
{
    static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                               "\\s+(?!\\S)|\\s+";
    static const char gpt4[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|%s|"
                               " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    const char *regex;
    char expected[256];
    wb__part_keys(r, p, "type pattern behavior invert");
    const char *text = text_parts_pattern(r, p, &regex);
    const int behavior = wb__part_choice(r, p, "behavior", WB__ISOLATED, text_parts_behaviors);
    if (wb__part_bool(r, p, "invert", false)) wb__part_unknown(r, "Split with invert");
    if (!regex && !*text) wb__part_bad(r, "pattern is empty");
    if (!regex) wb__part_step(r, &r->t->splitters, WB__SPLIT, 0, behavior, text, NULL);
    if (regex && behavior != WB__ISOLATED)
        wb__part_unknown(r, "Split with a regular expression and another behavior than Isolated");
    if (regex && !strcmp(regex, gpt2))
        wb__part_step(r, &r->t->splitters, WB__SPLIT_GPT2, 0, 0, NULL, NULL);
    for (int digits = 1; regex && digits <= 3; digits += 2) {
        snprintf(expected, sizeof expected, gpt4, digits == 1 ? "\\p{N}" : "\\p{N}{1,3}");
        if (strcmp(regex, expected)) continue;
        wb__part_step(r, &r->t->splitters, WB__SPLIT_GPT4, digits, 0, NULL, NULL);
        return;
    }
    if (regex && strcmp(regex, gpt2))
        wb__part_unknown(r, "Split with the regular expression %.300s; known are those of GPT-2, "
                         "cl100k (Llama 3) and Qwen 2", regex);
}

void wb__read_splitter(wb__part_reader *r, const wb__json *part)
{
    static const text_parts_reader readers[] = {
        {"BertPreTokenizer", text_parts_bert_splitter}, {"ByteLevel", text_parts_read_byte_level},
        {"Whitespace", text_parts_read_words}, {"WhitespaceSplit", text_parts_space_splitter},
        {"Punctuation", text_parts_read_punctuation}, {"Digits", text_parts_read_digits},
        {"Metaspace", text_parts_read_metaspace}, {"Split", text_parts_read_split}};
    r->what = "pre_tokenizer";
    if (part && part->kind != WB__JSON_NULL)
        text_parts_read_part(r, part, "pretokenizers", WB__COUNT(readers), readers);
}

/* ---- decoders -------------------------------------------------------------------------------- */

static void decoder_bytes(wb__part_reader *r, const wb__json *p)
{
    wb__part_keys(r, p, "type add_prefix_space trim_offsets use_regex");
    wb__part_step(r, &r->t->decoders, WB__DECODE_BYTE_LEVEL, 0, 0, NULL, NULL);
}

static void decoder_wordpiece(wb__part_reader *r, const wb__json *p)
{
    wb__part_keys(r, p, "type prefix cleanup");
    wb__part_step(r, &r->t->decoders, WB__DECODE_WORDPIECE, wb__part_bool(r, p, "cleanup", true), 0,
                  wb__part_text(r, p, "prefix", "##"), NULL);
}

static void decoder_metaspace(wb__part_reader *r, const wb__json *p)
{
    wb__part_step(r, &r->t->decoders, WB__DECODE_METASPACE, scheme_of(r, p) != SCHEME_NEVER, 0,
                  text_parts_one_character(r, p, "replacement", "\xe2\x96\x81"), NULL);
}

static void decoder_fallback(wb__part_reader *r, const wb__json *p)
{
    text_parts_check_no_members(r, p);
    wb__part_step(r, &r->t->decoders, WB__DECODE_BYTE_FALLBACK, 0, 0, NULL, NULL);
}

static void decoder_fuse(wb__part_reader *r, const wb__json *p)
{
    text_parts_check_no_members(r, p);
    wb__part_step(r, &r->t->decoders, WB__DECODE_FUSE, 0, 0, NULL, NULL);
}

static void decoder_replace(wb__part_reader *r, const wb__json *p)
{
    wb__part_keys(r, p, "type pattern content");
    wb__part_step(r, &r->t->decoders, WB__REPLACE, 0, 0, text_parts_pattern(r, p, NULL),
                  wb__part_text(r, p, "content", NULL));
}

static void decoder_strip(wb__part_reader *r, const wb__json *p)
{
    const wb__text_steps *s = &r->t->decoders;
    wb__part_keys(r, p, "type content start stop");
    const int64_t start = wb__part_integer(r, p, "start", 0);
    const int64_t stop = wb__part_integer(r, p, "stop", 0);
    if (!s->n || s->at[s->n - 1].kind != WB__DECODE_FUSE || stop || start < 0 || start > 1 << 20)
        wb__part_unknown(r, "Strip with start %lld and stop %lld; known is Strip at the start, "
                         "behind Fuse", (long long)start, (long long)stop);
    wb__part_step(r, &r->t->decoders, WB__DECODE_STRIP, (int)start, 0,
                  text_parts_one_character(r, p, "content", NULL), NULL);
}

void wb__read_decoder(wb__part_reader *r, const wb__json *part)
{
    static const text_parts_reader readers[] = {
        {"ByteLevel", decoder_bytes}, {"WordPiece", decoder_wordpiece},
        {"Metaspace", decoder_metaspace}, {"ByteFallback", decoder_fallback},
        {"Fuse", decoder_fuse}, {"Replace", decoder_replace}, {"Strip", decoder_strip}};
    r->what = "decoder";
    if (part && part->kind != WB__JSON_NULL)
        text_parts_read_part(r, part, "decoders", WB__COUNT(readers), readers);
    else wb__part_step(r, &r->t->decoders, WB__DECODE_SPACES, 0, 0, NULL, NULL);
}
