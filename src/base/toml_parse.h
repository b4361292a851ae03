/* What toml.c finds in a text and toml_edit.c changes there. */
#ifndef WB__TOML_PARSE_H
#define WB__TOML_PARSE_H

#include "base/toml.h"

typedef enum {
    WB__AT_STRING, WB__AT_VALUE,        /* of any other type: numbers, dates, arrays */
    WB__AT_INLINE,                      /* { ... }: closed */
    WB__AT_IMPLICIT,                    /* [this.other] speaks of it */
    WB__AT_HEADER,                      /* [this] */
    WB__AT_DOTTED,                      /* this.other = ... */
    WB__AT_TABLES                       /* [[this]]: the last of them is its only child */
} wb__at_kind;

/* Places in the text are bytes from its beginning.  Nodes name each other by number. */
typedef struct {
    int kind;
    int name, name_bytes;               /* in `decoded` */
    int value, value_bytes;             /* of a string, likewise */
    int child, next;                    /* the newest child; the next older one; -1 */
    int key_at, at, end;                /* of the whole key in front; of the value */
    int insert_at;                      /* behind the last line that speaks of it; -1 */
} wb__toml_node;

struct wb__toml {
    const char *file, *text;
    int bytes, at, depth;
    wb__toml_node *nodes;               /* the first is the root */
    int n, room;
    char *decoded;
    int n_decoded, decoded_room;
};

/* The character so far behind t->at, -1 behind the end. */
static inline int wb__toml_peek(const wb__toml *t, int ahead)
{
    return t->at + ahead < t->bytes ? (unsigned char)t->text[t->at + ahead] : -1;
}

int wb__toml_child(const wb__toml *t, int parent, const char *name, size_t bytes);
/* Sets the error of a place in the text. */
int wb__toml_fail(const wb__toml *t, int at, const char *format, ...) WB__PRINTF(3, 4);

/* toml_value.c: a value that is no string, array or table; 0, with t->at behind it, or the
 * error's code. */
int wb__toml_plain(wb__toml *t);
/* A string in quotes of either kind, of one line or of many; its characters are added to
 * `decoded`. */
int wb__toml_string(wb__toml *t, bool may_be_long);

#endif
