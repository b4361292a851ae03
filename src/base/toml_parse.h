/* The place in a TOML text, which toml.c and toml_value.c move on. */
#ifndef WB__TOML_PARSE_H
#define WB__TOML_PARSE_H

#include "base/toml.h"

typedef enum {
    WB__AT_STRING, WB__AT_VALUE,        /* of any other type: numbers, dates, arrays */
    WB__AT_INLINE,                      /* { ... }: closed */
    WB__AT_IMPLICIT,                    /* [this.other] names it */
    WB__AT_HEADER,                      /* [this] */
    WB__AT_DOTTED,                      /* this.other = ... */
    WB__AT_TABLES                       /* [[this]] */
} wb__at_kind;

/* A key or a table.  Places are bytes from the beginning of the text. */
typedef struct {
    const char *name, *value;           /* without quotes and escapes, in `decoded`; of a string */
    int name_bytes, value_bytes, kind;
    int parent;                         /* an index of `nodes`; -1: it can be found by no name */
    int next;                           /* on its list; 0: it is the last */
    int last;                           /* of WB__AT_TABLES: the newest table */
    int key_at, at, end;                /* of the whole key in front; of the value */
    int insert_at;                      /* behind its last line */
} wb__toml_node;

/* Names are on lists by hash, so that a file of many keys is read in linear time. */
enum { WB__TOML_LISTS = 16384 };
struct wb__toml {
    const char *file, *text;
    int bytes, at, depth;
    wb__toml_node *nodes;               /* the first is the root */
    int n, capacity;
    int first[WB__TOML_LISTS];          /* the newest node of each list; 0: it is empty */
    int dotted;                         /* the table that a dotted key of this line names, or 0 */
    char *decoded;
    int n_decoded;
};

/* The character so far behind t->at, -1 behind the end. */
static inline int wb__toml_peek(const wb__toml *t, int ahead)
{
    return t->at + ahead < t->bytes ? (unsigned char)t->text[t->at + ahead] : -1;
}

/* Bytes of the end of a line at t->at, or 0. */
static inline int wb__toml_line_end(const wb__toml *t)
{
    const int c = wb__toml_peek(t, 0);
    return c == '\n' ? 1 : c == '\r' && wb__toml_peek(t, 1) == '\n' ? 2 : 0;
}

/* Sets the error of a place in the text, and returns its code. */
int wb__toml_fail(const wb__toml *t, int at, const char *format, ...) WB__PRINTF(3, 4);

/* toml_value.c: these leave t->at behind the value and return 0, or the code of an error.  The
 * characters of a string are added to `decoded`. */
int wb__toml_plain(wb__toml *t);        /* a number, a boolean or a date */
int wb__toml_string(wb__toml *t, bool may_be_long);

#endif
