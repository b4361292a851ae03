/* The subset of TOML 1.0 that a settings file needs.  The whole text is checked.  One value can be
 * read by table and key, set, or removed; every other byte stays.
 *
 * Errors are WB_ERROR_FORMAT and begin with file, line and column: "settings.toml:3:7: ...". */
#ifndef WB__TOML_H
#define WB__TOML_H

#include "base/base.h"

enum { WB__TOML_MOST_BYTES = 256 << 10 };

typedef struct wb__toml wb__toml;

/* Parses and checks a text of at most 256 KiB, which must outlive the result; `file` is its name
 * for messages.  NULL with the error set. */
wb__toml *wb__toml_parse(const char *file, const char *text, size_t bytes);
void wb__toml_free(wb__toml *t);                        /* accepts NULL */

typedef enum { WB__TOML_ABSENT, WB__TOML_STRING, WB__TOML_OTHER, WB__TOML_TABLE } wb__toml_kind;

/* Finds `key` in the table `table` of the root.  Sets *at to the characters of a string, without
 * quotes and escapes, or to the text of another value, and *bytes to their number; no zero ends
 * them.  If the key is absent, or a table that is not in braces, *at is NULL. */
wb__toml_kind wb__toml_get(const wb__toml *t, const char *table, const char *key,
                           const char **at, size_t *bytes);

/* Returns the text with `key` of `table` set to the string `value`, or removed if `value` is NULL.
 * The caller frees the text; a zero after it is not counted.  NULL with the error set.  All other
 * bytes stay.  The names and the value must not need quotes or escapes. */
char *wb__toml_edit(const char *file, const char *text, size_t bytes, const char *table,
                    const char *key, const char *value, size_t *new_bytes);

#endif
