/* The state of a TOML parser, shared by toml.c and toml_value.c. */
#ifndef WB__TOML_PARSE_H
#define WB__TOML_PARSE_H

#include "base/toml.h"

typedef enum {
    WB__AT_STRING, WB__AT_VALUE,        /* a string; a number, boolean, date or array */
    WB__AT_INLINE,                      /* { ... }: cannot be extended */
    WB__AT_IMPLICIT,                    /* named only by the header of a child: [this.other] */
    WB__AT_HEADER,                      /* [this] */
    WB__AT_DOTTED,                      /* this.other = ... */
    WB__AT_TABLES                       /* [[this]] */
} wb__at_kind;

/* A key or a table.  Positions are in bytes from the beginning of the text. */
typedef struct {
    const char *name, *value;           /* `value`: NULL unless the node is a string.  Both are in
                                           `decoded`, without quotes and escapes. */
    int name_bytes, value_bytes, kind;
    int parent;                         /* index in `nodes` of the table that has the key; -1: the
                                           root, or a table in an array */
    int next;                           /* index in `nodes` of the next node in the same hash list;
                                           0: none */
    int last;                           /* if the kind is WB__AT_TABLES: index in `nodes` of the
                                           latest table */
    int key_at, at, end;                /* positions of the key, of the value, and of the end of the
                                           value */
    int insert_at;                      /* position after the table's last line */
} wb__toml_node;

/* Names are in hash lists, so that a file with many keys is parsed in linear time. */
enum { WB__TOML_LISTS = 16384 };
struct wb__toml {
    const char *file, *text;
    int bytes, at, depth;
    wb__toml_node *nodes;               /* node 0 is the root */
    int n, capacity;
    int first[WB__TOML_LISTS];          /* index in `nodes` of the latest node of each hash list; 0:
                                           empty */
    /* index in `nodes` of the table a, if this line has a key a.b or a.b.c of the root table; 0:
     * it has none */
    int dotted;
    char *decoded;
    int n_decoded;
};

/* The character `ahead` bytes after t->at; -1 after the end. */
static inline int wb__toml_peek(const wb__toml *t, int ahead)
{
    return t->at + ahead < t->bytes ? (unsigned char)t->text[t->at + ahead] : -1;
}

/* Number of bytes of a line end at t->at, or 0. */
static inline int wb__toml_line_end(const wb__toml *t)
{
    const int c = wb__toml_peek(t, 0);
    return c == '\n' ? 1 : c == '\r' && wb__toml_peek(t, 1) == '\n' ? 2 : 0;
}

/* Sets the error for a position in the text and returns its code. */
int wb__toml_fail(const wb__toml *t, int at, const char *format, ...) WB__PRINTF(3, 4);

/* These functions of toml_value.c parse a value, move t->at behind it, and return 0 or an error
 * code.  The characters of a string are added to `decoded`. */
int wb__toml_plain(wb__toml *t);        /* number, boolean or date */
int wb__toml_string(wb__toml *t, bool may_be_long);

#endif
