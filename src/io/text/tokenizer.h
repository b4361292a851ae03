/* A tokenizer: added tokens are cut out of the text, the pieces between them are normalised and
 * split, the model turns each piece into tokens, and a template puts special tokens around them.
 * Loaded once and constant afterwards, so that threads may share it. */
#ifndef WB__TOKENIZER_H
#define WB__TOKENIZER_H

#include "engine/object.h"
#include "io/json.h"
#include "io/text/trie.h"

/* ---- steps ----------------------------------------------------------------------------------- */

/* What a step of a list does; in brackets the fields of wb__text_step that it uses. */
typedef enum {
    /* normalisers: from letters to letters */
    WB__NORMAL_FORM,            /* a normal form of Unicode [first: compose, second: K] */
    WB__LOWERCASE,
    WB__DROP,                   /* drops characters of some classes [first] */
    WB__CLEAN_TEXT,             /* BERT: drops control characters, white space becomes ' ' */
    WB__SPACE_IDEOGRAPHS,       /* BERT: spaces around ideographs */
    WB__STRIP,                  /* white space at the ends [first: left, second: right] */
    WB__REPLACE,                /* [from, to] */
    WB__PREPEND,                /* [to]; not in an empty text */
    /* splitters: of pieces */
    WB__SPLIT,                  /* at characters of some classes [first], or at a text [from];
                                   [second: wb__delimiters] */
    WB__SPLIT_WORDS,            /* runs of word characters and of others, without white space */
    WB__SPLIT_GPT2,             /* GPT-2's pattern */
    WB__SPLIT_GPT4,             /* cl100k's pattern [first: the most digits of a number] */
    WB__PREFIX,                 /* puts `to` before a piece, unless it begins with `to` */
    WB__PREFIX_FIRST,           /* WB__PREFIX for the piece at the beginning of the text only */
    WB__REPLACE_CHARACTER,      /* replaces the character `from` by `to` in pieces */
    WB__SPLIT_BEFORE,           /* before each character `to` */
    WB__BYTE_LEVEL,             /* each byte becomes a character of GPT-2's alphabet */
    /* decoders: of the letters of one token; WB__REPLACE is a decoder too */
    WB__DECODE_BYTE_LEVEL,      /* GPT-2's characters become bytes, in tokens that have
                                   no others */
    WB__DECODE_SPACES,          /* a space before each token but the first */
    WB__DECODE_WORDPIECE,       /* WordPiece [from: the prefix, first: clean up] */
    WB__DECODE_METASPACE,       /* Metaspace [from: the character, first: dropped in token 0] */
    WB__DECODE_BYTE_FALLBACK,   /* <0xE2> becomes a byte */
    WB__DECODE_FUSE,            /* does nothing, since tokens are joined anyway */
    WB__DECODE_STRIP            /* drops `from` at the start of the text, at most `first` times */
} wb__text_step_kind;

typedef enum {
    WB__REMOVED, WB__ISOLATED, WB__CONTIGUOUS, WB__WITH_PREVIOUS, WB__WITH_NEXT
} wb__delimiters;

/* A step with its arguments. */
typedef struct {
    wb__text_step_kind kind;
    int first, second;
    wb__letters from, to;               /* texts that the step owns */
} wb__text_step;
typedef struct { wb__text_step *at; int n, capacity; } wb__text_steps;

/* Adds a step; NULL: out of memory.  Valid until the next call. */
wb__text_step *wb__steps_add(wb__text_steps *s, wb__text_step_kind kind, int first, int second);
void wb__steps_free(wb__text_steps *s);

/* ---- the tokenizer --------------------------------------------------------------------------- */

/* A token of the vocabulary.  `text` and `decoded` are offsets in wb_tokenizer.texts: those of its
 * text, and of its decoded text, which is the normal form if the token is found in normalised
 * text. */
typedef struct { int32_t id; uint32_t text, decoded; bool special; } wb__entry_of_vocabulary;

typedef struct { int32_t id; bool single_word, lstrip, rstrip; } wb__added;
/* Finds added tokens, which are cut out of a text whole: the values of the trie are indices of
 * `added`. */
typedef struct {
    wb__trie trie;
    bool starts[256];                   /* whether a key begins with this byte */
    bool any;
} wb__finder;

/* A part of a template is the token `id`, or one of the two texts if `id` is one of these. */
enum { WB__TEXT_FIRST = -1, WB__TEXT_SECOND = -2 };
typedef struct { int32_t id, type; } wb__part;
typedef struct { wb__part *at; int n, capacity; } wb__template;

typedef enum { WB__WORDPIECE, WB__BPE } wb__model_kind;
typedef enum { WB__LONGEST_FIRST, WB__ONLY_FIRST, WB__ONLY_SECOND } wb__text_cut;

struct wb_tokenizer {
    wb__object object;
    char *path;
    char *texts;                        /* texts of all tokens, each with a final 0 */
    int n_texts, texts_capacity;
    wb__entry_of_vocabulary *tokens;    /* the vocabulary, sorted by id */
    int n_tokens, tokens_capacity;
    wb__trie vocabulary, others;        /* id of each text: of the model's tokens, and of added
                                           tokens that the model does not have */

    wb__added *added;
    int n_added, added_capacity;
    wb__finder in_text, in_normal;      /* added tokens in the text, and in its normal form */
    wb__text_steps normalisers, splitters, decoders;

    wb__model_kind model;
    int32_t unknown;                    /* the id of the unknown token; -1: none */
    char *prefix, *suffix;  /* prefix of tokens inside a word, suffix at the end of a word; or "" */
    uint32_t inside;  /* node of `vocabulary` after `prefix`; 0: there is no prefix */
    int most_letters;                   /* WordPiece: a longer word is unknown */
    bool fuse_unknown, byte_fallback, whole_first;          /* BPE: its options of these names */
    int32_t bytes[256];                 /* byte_fallback: the tokens <0x00> ...; -1: none */
    /* The rank of a merge << 32 | the token that it makes, by the two tokens side by side
     * (text_model_merge_key of model.c).  The lowest rank comes first. */
    wb__hash_table merges;

    wb__template alone, pair;           /* the templates of one text and of two */
    bool trim;                          /* offsets leave out spaces at the ends of a token, */
    bool keep_first;                    /* but include a single space at the start of the text */

    int64_t most, padded, multiple;     /* the file's truncation; padding, to a multiple; 0: none */
    wb__text_cut cut;
    bool cut_left, pad_left;
    int32_t pad_id, pad_type;
};

/* Returns an empty tokenizer of the current scope. */
wb_tokenizer *wb__tokenizer_new(const char *path);
/* Adds a token of the model, or an added one.  If the token is there with the same id, only adds
 * its `special`.  It is an error, which names file and token, if the token has another id, or the
 * id is above 2^30. */
int wb__tokenizer_token(wb_tokenizer *t, const char *text, int64_t id, bool added, bool special);
/* Returns the id of a token of the model or of an added one; -1 if there is none. */
int32_t wb__token_named(const wb_tokenizer *t, const char *text);
/* Adds an added token, which the vocabulary has, to the finder of normalised or raw text.  Called
 * after the normalisers are known. */
int wb__tokenizer_add(wb_tokenizer *t, const char *text, wb__added a, bool normalised);
/* Adds a merge of BPE. */
int wb__merges_add(wb_tokenizer *t, const char *a, const char *b, int64_t rank);
/* Completes a tokenizer whose parts are read. */
int wb__tokenizer_ready(wb_tokenizer *t);

/* Returns the token with this id; NULL if there is none. */
const wb__entry_of_vocabulary *wb__token_of(const wb_tokenizer *t, int64_t id);

/* wb__byte_letter returns the character of a byte in GPT-2's alphabet, wb__letter_byte the byte of
 * a character, -1 if none. */
uint32_t wb__byte_letter(uint8_t byte);
int wb__letter_byte(uint32_t c);

/* ---- readers of files ------------------------------------------------------------------------ */

/* These functions read tokenizer.json, from its root; vocab.txt; or vocab.json and merges.txt.
 * `settings` is the root of tokenizer_config.json, or NULL. */
int wb__read_tokenizer_json(wb_tokenizer *t, const wb__json *root);
int wb__read_vocab_txt(wb_tokenizer *t, char *text, int64_t bytes, const wb__json *settings);
int wb__read_vocab_json(wb_tokenizer *t, const wb__json *vocabulary, char *merges, int64_t bytes,
                        const wb__json *settings);

/* Sets truncation and padding as a sentence encoder's sentence_bert_config.json has them. */
int wb__read_sentences(wb_tokenizer *t, const wb__json *settings);

/* ---- encoding -------------------------------------------------------------------------------- */

/* A piece: letters [begin, end) of a text, or if id >= 0 an added token with this id, which stays
 * whole. */
typedef struct { int begin, end; int32_t id; } wb__piece;
typedef struct { wb__piece *at; int n, capacity; } wb__pieces;
static inline bool wb__pieces_add(wb__pieces *s, int begin, int end, int32_t id)
{
    if (!wb__reserve(&s->at, &s->capacity, s->n + 1, sizeof *s->at)) return false;
    s->at[s->n++] = (wb__piece){begin, end, id};
    return true;
}

/* A token of a text, and its bytes in the text. */
typedef struct { int32_t id, type; uint32_t begin, end; } wb__token;
typedef struct { wb__token *at; int n, capacity; } wb__tokens;
static inline bool wb__tokens_add(wb__tokens *l, wb__token x)
{
    if (!wb__reserve(&l->at, &l->capacity, l->n + 1, sizeof *l->at)) return false;
    l->at[l->n++] = x;
    return true;
}

/* A symbol of a word: its token, its neighbours, and its letters [begin, end). */
typedef struct { int32_t id, previous, next, begin, end; } wb__symbol;
/* A merge that may join the symbol `at` with the symbol behind it, and the index of the next
 * candidate of the list; 0: there is none.  merge is NULL when the candidate has been removed. */
typedef struct { const wb__hashed *merge; int32_t at, next; } wb__candidate;
/* The first candidate of a list, with the rank of its merge and its symbol `at` */
typedef struct { uint32_t rank; int32_t at, candidate; } wb__list_head;
/* Memory for one text, which is reused from text to text. */
typedef struct {
    wb__letters raw, normal, text, spare;
    wb__pieces found, more, pieces;
    wb__symbol *symbols;
    wb__candidate *candidates;
    wb__list_head *heap;
    int n_symbols, symbols_capacity, n_candidates, candidates_capacity, n_heap, heap_capacity;
    int last[256];                      /* the newest candidate, by the rank of its merge mod 256 */
} wb__text_work;
void wb__text_work_free(wb__text_work *w);

/* Normalises the letters of a text.  False with the error set: out of memory, or too long. */
bool wb__normalise_text(const wb__text_steps *s, wb__letters *text, wb__letters *spare);
bool wb__split_text(const wb__text_steps *s, wb__text_work *w);
/* Adds the added tokens in `l` and the pieces between them to `pieces`. */
bool wb__find_added(const wb_tokenizer *t, const wb__finder *f, const wb__letters *l,
                    wb__pieces *pieces);
/* Adds the token `id` of the letters [begin, end), at least one. */
bool wb__emit(const wb_tokenizer *t, const wb__letters *l, int begin, int end, int32_t id,
              wb__tokens *out);
bool wb__wordpiece(const wb_tokenizer *t, const wb__letters *l, wb__piece s, wb__tokens *out);
bool wb__bpe(const wb_tokenizer *t, wb__text_work *w, wb__piece s, wb__tokens *out);

/* Adds the tokens of a text, without special ones, to `out`. */
bool wb__tokenize(const wb_tokenizer *t, wb__text_work *w, const char *text, wb__tokens *out);

/* ---- decoding -------------------------------------------------------------------------------- */

/* A text that is decoded token by token.  `bytes` has the first `n` bytes of a character whose
 * other bytes follow. */
typedef struct {
    bool keep_special, begun;
    int stripped;                       /* how often WB__DECODE_STRIP has dropped; -1: no more */
    char bytes[4];
    int n;
    wb__letters word, spare;
} wb__decoding;

/* Adds the text that one more token contributes to `text`.  Returns 0 or an error code. */
int wb__decode_token(const wb_tokenizer *t, wb__decoding *d, int64_t id, wb__text *text);
void wb__decode_rest(wb__decoding *d, wb__text *text);      /* at the end of the tokens */
void wb__decoding_free(wb__decoding *d);

#endif
