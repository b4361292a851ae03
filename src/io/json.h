/* JSON: a text read into one block of memory, and a text written by calls in its order. */
#ifndef WB__JSON_H
#define WB__JSON_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- reading -------------------------------------------------------------------------------- */

typedef enum {
    WB__JSON_NULL, WB__JSON_FALSE, WB__JSON_TRUE, WB__JSON_INTEGER, WB__JSON_REAL, WB__JSON_TEXT,
    WB__JSON_KEY, WB__JSON_LIST, WB__JSON_OBJECT
} wb__json_kind;

/* A node; those inside it follow it.  Inside an object each value follows its key. */
typedef struct {
    union { int64_t integer, count; double real; const char *text; } is;
    uint32_t span;                      /* nodes: this one and all inside it */
    uint32_t kind;
} wb__json;

/* The root, which is the whole block (wb__free); NULL with the reason in `why`.  A block has at
 * most 17 bytes for each byte of the text, and nothing here recurses.  An object that has a key
 * twice is an error. */
wb__json *wb__json_read(const char *text, const char **why);

/* All of these take NULL, and nodes of another kind: no member, no text, 0, nothing inside. */
const wb__json *wb__json_get(const wb__json *object, const char *key);
const char *wb__json_text(const wb__json *v);
bool wb__json_is(const wb__json *v, wb__json_kind kind);
int64_t wb__json_integer(const wb__json *v);
int64_t wb__json_count(const wb__json *v);              /* of a list's values */
int64_t wb__json_members(const wb__json *v);            /* of an object's */

/* Visits the values of a list; those of an object's members, whose wb__json_key is the key: `i`
 * counts them.  Nothing is visited of what is of another kind. */
#define WB__JSON_EACH(v, value, i) WB__JSON_WALK(wb__json_count(v), v, value, i)
#define WB__JSON_EACH_MEMBER(v, value, i) WB__JSON_WALK(wb__json_members(v), v, value, i)
#define WB__JSON_WALK(n, v, value, i)                                                               \
    for (int64_t i = 0; i < (n) && ((value) = wb__json_after(i ? (value) : (v), !i)); i++)
const wb__json *wb__json_after(const wb__json *v, bool inside);
const char *wb__json_key(const wb__json *member);

/* A text without its escapes, from behind its opening quote up to the closing one or `end`, where *at
 * is then: the bytes that were written, never more than were read; -1 with the reason in `why`, and
 * *at where that is. */
int64_t wb__json_characters(const char **at, const char *end, char *to, const char **why);

/* The text that is there twice, NULL if none is; sorts the list. */
const char *wb__repeated(int64_t n, const char **texts);

/* ---- writing -------------------------------------------------------------------------------- */

/* Begins as {0}.  The first failure is kept in `status`, with the error set. */
typedef struct { wb__text text; bool follows; int status; } wb__json_out;
void wb__json_open(wb__json_out *out, char bracket);
void wb__json_close(wb__json_out *out, char bracket);
void wb__json_put_key(wb__json_out *out, const char *key);
void wb__json_put_text(wb__json_out *out, const char *text);
void wb__json_put_pair(wb__json_out *out, const char *key, const char *text);
void wb__json_put_integer(wb__json_out *out, int64_t value);
void wb__json_put_real(wb__json_out *out, double value);
void wb__json_put_bool(wb__json_out *out, bool value);
/* The text, for wb__free; NULL with the error set. */
char *wb__json_take(wb__json_out *out);

#endif
