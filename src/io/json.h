/* Reads JSON into one block of memory, and writes JSON value by value. */
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

/* A node: a value, or the key of a member.  The nodes inside a list or object directly follow the
 * node of the list or object.  In an object each value follows its key. */
typedef struct {
    union { int64_t integer, count; double real; const char *text; } is;  /* the value, by kind */
    uint32_t span;                      /* number of nodes: this node and all inside it */
    uint32_t kind;
} wb__json;

/* Reads a JSON text and returns its root node.  One block, which begins with the root node, has all
 * nodes and strings; the caller frees it with wb__free.  On failure returns NULL and sets *reason
 * to a constant text.  The block has at most 17 bytes for each byte of `text`, the final 0
 * included.  The reader does not recurse.  A repeated key is an error. */
wb__json *wb__json_read(const char *text, const char **reason);

/* wb__json_of does the same for a text of `bytes` bytes of the file `path`, which a final 0
 * follows, and wb__json_file for the whole file, of at most 64 MiB.  Both return NULL with the
 * error set, which names the file. */
wb__json *wb__json_of(const char *path, const char *text, int64_t bytes);
wb__json *wb__json_file(const char *path);

/* Accessors.  For NULL and for nodes of another kind they return NULL, false or 0.  wb__json_get
 * returns NULL, too, if no member has the key. */
const wb__json *wb__json_get(const wb__json *object, const char *key);
const char *wb__json_text(const wb__json *v);
bool wb__json_is(const wb__json *v, wb__json_kind kind);
int64_t wb__json_integer(const wb__json *v);
int64_t wb__json_count(const wb__json *v);              /* the values of a list */
int64_t wb__json_members(const wb__json *v);            /* the members of an object */

/* Executes its body for each value of a list, or of an object's members, whose keys wb__json_key
 * returns.  The caller declares `value`, a const wb__json *; the loop declares `i`, the index from
 * 0.  For nodes of another kind the body is not executed. */
#define WB__JSON_EACH(v, value, i) WB__JSON_WALK(wb__json_count(v), v, value, i)
#define WB__JSON_EACH_MEMBER(v, value, i) WB__JSON_WALK(wb__json_members(v), v, value, i)
#define WB__JSON_WALK(n, v, value, i)                                                           \
    for (int64_t i = 0; i < (n) && ((value) = wb__json_after(i ? (value) : (v), !i)); i++)
const wb__json *wb__json_after(const wb__json *v, bool inside);
const char *wb__json_key(const wb__json *member);

/* Writes a text, from *at behind its opening quote up to the closing quote or `end`, decoded to
 * `to`, at most as many bytes as were read.  Returns their number, and moves *at to the end.
 * Returns -1 on an error, with the reason in *reason and the position of the error in *at. */
int64_t wb__json_characters(const char **at, const char *end, char *to, const char **reason);

/* Returns a text that occurs in the list more than once; NULL if all texts differ.  Sorts the
 * list. */
const char *wb__repeated(int64_t n, const char **texts);

/* ---- writing -------------------------------------------------------------------------------- */

/* A JSON text that is being written; initialise it with {0}.  The functions write the commas.
 * `status` is 0 or the code of the first failure, whose error is set.  Only wb__json_take reports
 * that memory for the text was short. */
typedef struct { wb__text text; bool follows; int status; } wb__json_out;
void wb__json_open(wb__json_out *out, char bracket);
void wb__json_close(wb__json_out *out, char bracket);
void wb__json_put_key(wb__json_out *out, const char *key);
void wb__json_put_text(wb__json_out *out, const char *text);
void wb__json_put_pair(wb__json_out *out, const char *key, const char *text);
void wb__json_put_integer(wb__json_out *out, int64_t value);
void wb__json_put_real(wb__json_out *out, double value);
void wb__json_put_bool(wb__json_out *out, bool value);
/* Returns the finished text, which the caller frees with wb__free.  After any failure it returns
 * NULL with the error set. */
char *wb__json_take(wb__json_out *out);

#endif
