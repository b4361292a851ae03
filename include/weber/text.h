/* Weber, chapter 5, fourth part: texts as tokens.
 *
 * A tokenizer divides texts into tokens, the numbers by which a model of language knows words and
 * parts of words.  It is read from the files that come with a model and computes what Hugging
 * Face's library `tokenizers` computes from them.  Characters are classified by utf8proc; a Weber
 * that was built without it (Debian's libutf8proc-dev) cannot load tokenizers.  utf8proc knows one
 * version of Unicode (2.8: 15.0), `tokenizers` several: of characters that are newer than Unicode
 * 8.0 some hundreds are classified otherwise, such as U+2E44, which is punctuation since 9.0.
 *
 * Texts are UTF-8 and end at their first zero byte.  Bytes that are no UTF-8 count as U+FFFD, one
 * for each longest part that begins like a character.  Several threads may use one tokenizer at the
 * same time; each decoder is used by one thread at a time. */
#ifndef WEBER_TEXT_H
#define WEBER_TEXT_H

#include "weber/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The tokenizer of a model hub's folder, or in one file:
 *   - tokenizer.json, which is preferred: the models WordPiece and BPE.
 *   - vocab.txt: BERT's WordPiece.
 *   - vocab.json, and merges.txt beside it: the byte-level BPE of GPT-2 and RoBERTa.
 * For the last two, tokenizer_config.json in the same folder names the class and its settings
 * (do_lower_case, strip_accents, tokenize_chinese_chars, add_prefix_space, special tokens); without
 * it, those of BertTokenizer and GPT2Tokenizer are assumed.
 *
 * In the folder of a sentence encoder "max_seq_length" of sentence_bert_config.json takes the place
 * of truncation and padding of tokenizer.json: texts are cut to it, and rows padded to the longest.
 *
 * Of tokenizer.json these parts are known:
 *   - normalizer: BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace (of a string),
 *     Sequence, Strip, StripAccents
 *   - pre_tokenizer: BertPreTokenizer, ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split
 *     (at a string, or with the patterns of GPT-2, of cl100k, which Llama 3 uses, and of Qwen 2),
 *     Whitespace, WhitespaceSplit
 *   - post_processor: BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing
 *   - decoder: ByteFallback, ByteLevel, Fuse, Metaspace, Replace (of a string), Sequence, Strip (at
 *     the start of the text, behind Fuse), WordPiece
 *   - added_tokens, truncation (without its stride) and padding.
 * Everything else in the file is an error that names it.
 *
 * It belongs to the current scope.  Errors: no such file; a part that is not known; a damaged file,
 * or one with a zero byte; two tokens with one id, or one with two; a merge of tokens that the
 * vocabulary does not have; more than 2^24 different beginnings of tokens. */
WB_API wb_tokenizer *wb_load_tokenizer(const char *path);

/** The number of rows that a table of embeddings needs: 1 + the greatest id.  -1: `t` is NULL. */
WB_API int64_t wb_vocabulary_size(const wb_tokenizer *t);
/** The id of a token as the vocabulary writes it, such as "##ing" or "\u0120the", or of an added
 * token, such as "[MASK]".  -1, without an error: there is none. */
WB_API int64_t wb_token_id(const wb_tokenizer *t, const char *token);
/** The token with this id, as the vocabulary writes it.  The text belongs to the tokenizer.  NULL,
 * with the error set: no token has the id. */
WB_API const char *wb_token_text(const wb_tokenizer *t, int64_t id);

/* ---- encoding -------------------------------------------------------------------------------- */

/** Options of wb_encode. */
#define wb_encode_options_(OPT, ARG)                                                               \
    OPT(const char *, pair, NULL)           /* a second text, which follows the first one */       \
    OPT(bool, special, true)                /* with [CLS], [SEP] and the like */                   \
    /* is set to i32 [T, 2]: begin and end of each token in its text, in bytes; 0, 0 of special
     * tokens */                                                                                   \
    OPT(wb_tensor **, offsets, NULL)
WB_OPTIONS(wb_encode_options);
/** The tokens of a text, i32 [T], neither cut nor padded: wb_encode(t, "Hello!", .special =
 * false).  Errors: more than 2^26 bytes. */
WB_API wb_tensor *wb_encode_with(const wb_tokenizer *t, const char *text,
                                 const wb_encode_options *o);

/** Texts as tokens.  All tensors are i32 on the default device.  ids is NULL after a failure. */
typedef struct {
    wb_tensor *ids;                         /* [N, T] */
    wb_tensor *mask;                        /* [N, T]: 1 for tokens, 0 for padding */
    wb_tensor *types;                       /* [N, T]: 1 for the second text and its special
                                               tokens, if the model distinguishes them, else 0 */
    wb_tensor *offsets;                     /* [N, T, 2]: bytes, as .offsets of wb_encode */
} wb_encoded;

/** Options of wb_encode_batch. */
#define wb_encode_batch_options_(OPT, ARG)                                                         \
    OPT(const char *const *, pairs, NULL)   /* the second text of each pair, N of them */          \
    OPT(bool, special, true)                /* with [CLS], [SEP] and the like */                   \
    OPT(int64_t, most, 0)                   /* the most tokens of a text, which is cut to them */  \
    ARG(int64_t, length, 0)                 /* T: longer texts are cut, shorter ones padded */
WB_OPTIONS(wb_encode_batch_options);
/** The tokens of n texts: wb_encoded x = wb_encode_batch(t, 32, texts, .length = 128).  Rows are
 * padded to the longest one, or to .length.  Without .length and .most, truncation and padding of
 * tokenizer.json decide: the file may cut texts, pad all to a fixed length or to a multiple.  The
 * special tokens count; the text is cut, not they.  Which end is cut and padded, whether the longer
 * text of a pair is cut or always the same one, and the id of padding are those of the file.  Of
 * files that have none: the end, the longer one, and the token [PAD] or <pad>, or id 0.
 *
 * Errors: n below 1; a text that is NULL; a .length or .most that has no room for the special
 * tokens; one text of a pair is cut, and is too short for that; a text of more than 2^26
 * bytes, or texts of more than 2^29 tokens in all. */
WB_API wb_encoded wb_encode_batch_with(const wb_tokenizer *t, int64_t n, const char *const *texts,
                                       const wb_encode_batch_options *o);

/* ---- decoding -------------------------------------------------------------------------------- */

/** Options of wb_decode and wb_decoder_begin. */
#define wb_decode_options_(OPT, ARG)                                                               \
    OPT(bool, keep_special, false)          /* writes special tokens; else they are left out */
WB_OPTIONS(wb_decode_options);
/** The text of tokens, i32 or i64 [T] (or another shape, read row by row), which the caller frees
 * with wb_free_text.  It ends at a token of a zero byte.  Bytes that are no UTF-8 become U+FFFD.
 * An added token with "normalized" gives its normal form, as in tokenizers since 0.23.  The call
 * evaluates `ids`.  Errors: another dtype; an id that no token has. */
WB_API char *wb_decode_with(const wb_tokenizer *t, wb_tensor *ids, const wb_decode_options *o);

/** Decodes tokens one after the other, as a model generates them:
 *
 *     wb_decoder *d = wb_decoder_begin(t);
 *     while (...) fputs(wb_decoder_next(d, id), stdout);
 *     fputs(wb_decoder_end(d), stdout);
 *
 * The texts together are that of wb_decode.  The decoder keeps the tokenizer. */
WB_API wb_decoder *wb_decoder_begin_with(const wb_tokenizer *t, const wb_decode_options *o);
/** The text that one more token adds, always whole characters: "" while a character is unfinished.
 * It belongs to the decoder and is valid until the next call with it.  NULL: no token has the
 * id. */
WB_API const char *wb_decoder_next(wb_decoder *d, int64_t id);
/** The rest: U+FFFD if the last character is unfinished, else "".  Then a new text begins. */
WB_API const char *wb_decoder_end(wb_decoder *d);

#ifndef __cplusplus
#define wb_encode(...) WB_ENCODE_(__VA_ARGS__, )
#define WB_ENCODE_(t, text, ...) \
    WB_CALL_WITH_(wb_encode_with((t), (text), WB_GET_(wb_encode_options, __VA_ARGS__)))
#define wb_encode_batch(...) WB_ENCODE_BATCH_(__VA_ARGS__, )
#define WB_ENCODE_BATCH_(t, n, texts, ...) \
    WB_CALL_WITH_(wb_encode_batch_with((t), (n), (texts), \
                                       WB_GET_(wb_encode_batch_options, __VA_ARGS__)))
#define wb_decode(...) WB_DECODE_(__VA_ARGS__, )
#define WB_DECODE_(t, ids, ...) \
    WB_CALL_WITH_(wb_decode_with((t), (ids), WB_GET_(wb_decode_options, __VA_ARGS__)))
#define wb_decoder_begin(...) WB_DECODER_BEGIN_(__VA_ARGS__, )
#define WB_DECODER_BEGIN_(t, ...) \
    WB_CALL_WITH_(wb_decoder_begin_with((t), WB_GET_(wb_decode_options, __VA_ARGS__)))
#endif

#ifdef __cplusplus
}
#endif
#endif
