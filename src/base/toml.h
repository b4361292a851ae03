/* One key of a table in a TOML file: read, set or removed; every other byte stays.
 *
 * Only what decides where the key and its value are is parsed: comments, strings, brackets, tables
 * and keys.  Other values are not checked.  Escapes are not decoded, so that a string or a name
 * with one is another name than any of Weber's.
 *
 * Errors are WB_ERROR_FORMAT and begin with file, line and column: "settings.toml:3:7: ...". */
#ifndef WB__TOML_H
#define WB__TOML_H

#include "base/base.h"

enum { WB__TOML_MOST_BYTES = 256 << 10 };

typedef struct { const char *file, *text; size_t bytes; } wb__toml;     /* file: for messages */
typedef enum { WB__TOML_ABSENT, WB__TOML_STRING, WB__TOML_OTHER, WB__TOML_TABLE } wb__toml_kind;

/* Finds `key` in the table `table` of the root.  Sets *kind, *at to the text of the value (of a
 * string, without quotes), and *bytes to its length; no zero ends the text.  If the key is absent
 * or a table, *at is NULL.  Returns 0 or an error code. */
int wb__toml_get(wb__toml t, const char *table, const char *key, wb__toml_kind *kind,
                 const char **at, size_t *bytes);

/* Returns the text with `key` of `table` set to the string `value`, or removed if `value` is NULL.
 * The caller frees the text; a zero after it is not counted.  NULL with the error set.  The names
 * and the value must not need quotes or escapes. */
char *wb__toml_edit(wb__toml t, const char *table, const char *key, const char *value,
                    size_t *new_bytes);

#endif
