/* Any bytes as a TOML text: read or refused.  After an edit of one key, that key has the new value,
 * and another key has its old one. */
#include "base/toml.h"

#include <stdlib.h>
#include <string.h>

static void must(bool right)
{
    if (!right) abort();
}

static void check_edit(const char *text, size_t size, const char *value)
{
    size_t n, m;
    const char *at;
    char *changed = wb__toml_edit("fuzz", text, size, "Flux", "gpu", value, &n);
    if (!changed) return;
    wb__toml *t = wb__toml_parse("fuzz", changed, n);
    must(t != NULL);
    wb__toml_kind kind = wb__toml_get(t, "Flux", "gpu", &at, &m);
    must(value ? kind == WB__TOML_STRING && m == strlen(value) && !memcmp(at, value, m)
               : kind == WB__TOML_ABSENT);
    wb__toml_free(t);
    wb__free(changed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = wb__alloc(size + 1);           /* its own block, for sanitizers */
    if (!text) return 0;
    memcpy(text, data, size);
    wb__toml *t = wb__toml_parse("fuzz", text, size);
    if (t) {
        const char *at, *after;
        size_t n, m, bytes;
        wb__toml_kind other = wb__toml_get(t, "a", "b", &at, &n);
        char *changed = wb__toml_edit("fuzz", text, size, "Flux", "gpu", "X", &bytes);
        wb__toml *u = changed ? wb__toml_parse("fuzz", changed, bytes) : NULL;
        if (u) {
            must(wb__toml_get(u, "a", "b", &after, &m) == other && n == m);
            must(!n || !memcmp(at, after, n));
        }
        wb__toml_free(u);
        wb__free(changed);
    }
    wb__toml_free(t);
    check_edit(text, size, "X");
    check_edit(text, size, NULL);
    wb__free(text);
    return 0;
}
