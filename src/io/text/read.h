/* Reading JSON for tokenizers: members by name and kind, and errors that name them. */
#ifndef WB__TOKENIZER_READ_H
#define WB__TOKENIZER_READ_H

#include "io/text/tokenizer.h"

/* A file while it is read.  `status` is 0 or the code of the first failure. */
typedef struct {
    wb_tokenizer *t;                    /* the tokenizer that is made */
    const char *what;                   /* the part that is read, such as "normalizer" */
    int status;
} wb__part_reader;

/* Fails with WB_ERROR_FORMAT (wb__part_unknown: WB_ERROR_UNSUPPORTED) and the message "file: part:
 * ...".  Only the first failure counts.  Returns its code. */
int wb__part_bad(wb__part_reader *r, const char *format, ...) WB__PRINTF(2, 3);
int wb__part_unknown(wb__part_reader *r, const char *format, ...) WB__PRINTF(2, 3);

/* Sets an error if a key of the object is not in `keys`, which blanks separate. */
void wb__part_keys(wb__part_reader *r, const wb__json *object, const char *keys);
/* Returns a member by its key.  A missing or null member has the default; one of another kind is an
 * error.  Texts are valid as long as the JSON. */
bool wb__part_bool(wb__part_reader *r, const wb__json *o, const char *key, bool by_default);
int64_t wb__part_integer(wb__part_reader *r, const wb__json *o, const char *key,
                         int64_t by_default);
const char *wb__part_text(wb__part_reader *r, const wb__json *o, const char *key,
                          const char *by_default);
/* Returns the index of the member's text in the list, which ends with NULL.  A text that is not in
 * the list is an error. */
int wb__part_choice(wb__part_reader *r, const wb__json *o, const char *key, int by_default,
                    const char *const *names);

/* Adds a step to s; `from` and `to` may be NULL. */
void wb__part_step(wb__part_reader *r, wb__text_steps *s, wb__text_step_kind kind, int first,
                   int second, const char *from, const char *to);

/* These functions read the parts of tokenizer.json; `part` may be NULL or null. */
void wb__read_normaliser(wb__part_reader *r, const wb__json *part);
void wb__read_splitter(wb__part_reader *r, const wb__json *part);
void wb__read_decoder(wb__part_reader *r, const wb__json *part);
void wb__read_template(wb__part_reader *r, const wb__json *part);

/* Adds the tokens of an object with their ids. */
void wb__read_vocabulary(wb__part_reader *r, const wb__json *vocabulary);

/* These functions add the steps of BertNormalizer, BertPreTokenizer and ByteLevel. */
void wb__bert_pieces(wb__part_reader *r);
void wb__bert_steps(wb__part_reader *r, bool clean, bool ideographs, bool accents, bool lowercase);
void wb__byte_steps(wb__part_reader *r, bool prefix_space, bool pattern);
/* These functions add the templates of a single text and of a pair: without special tokens, or with
 * those of BERT or RoBERTa.  `ids` are the first token and the separator. */
void wb__template_plain(wb__part_reader *r);
void wb__template_bert(wb__part_reader *r, const int32_t ids[2]);
void wb__template_roberta(wb__part_reader *r, const int32_t ids[2]);

#endif
