/* TOML 1.0, as far as a file of settings needs it: the whole text is checked, one value can be read
 * by table and key, and one can be set or removed with every other byte kept.
 *
 * Errors are WB_ERROR_FORMAT and begin with file, line and column: "settings.toml:3:7: ...". */
#ifndef WB__TOML_H
#define WB__TOML_H

#include "base/base.h"

enum { WB__TOML_MOST_BYTES = 256 << 10 };

typedef struct wb__toml wb__toml;

/* The text must outlive the result.  At most 256 KiB. */
wb__toml *wb__toml_parse(const char *file, const char *text, size_t bytes);
void wb__toml_free(wb__toml *t);                        /* takes NULL */

typedef enum { WB__TOML_ABSENT, WB__TOML_STRING, WB__TOML_OTHER, WB__TOML_TABLE } wb__toml_kind;

/* Of `key` in the table `table` of the root.  *at: a string's characters without quotes and
 * escapes, or what else stands there as it stands; not ended by a zero. */
wb__toml_kind wb__toml_get(const wb__toml *t, const char *table, const char *key,
                           const char **at, size_t *bytes);

/* The text with `key` of `table` set to the string `value`, or, if that is NULL, removed;
 * allocated, ended by a zero that is not counted.  All other bytes are kept.  The names and the
 * value must need no quotes and no escapes. */
char *wb__toml_edit(const char *file, const char *text, size_t bytes, const char *table,
                    const char *key, const char *value, size_t *new_bytes);

#endif
