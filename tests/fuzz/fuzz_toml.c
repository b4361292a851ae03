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
    char *changed = wb__toml_edit((wb__toml){"fuzz", text, size}, "Flux", "gpu", value, &n);
    if (!changed) return;
    wb__toml_kind kind;
    must(!wb__toml_get((wb__toml){"fuzz", changed, n}, "Flux", "gpu", &kind, &at, &m));
    must(value ? kind == WB__TOML_STRING && m == strlen(value) && !memcmp(at, value, m)
               : kind == WB__TOML_ABSENT);
    wb__free(changed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = wb__alloc(size + 1);           /* its own block, for sanitizers */
    if (!text) return 0;
    memcpy(text, data, size);
    const wb__toml t = {"fuzz", text, size};
    const char *at, *after;
    size_t n, m, bytes;
    wb__toml_kind other, still;
    char *changed = NULL;
    if (!wb__toml_get(t, "a", "b", &other, &at, &n))
        changed = wb__toml_edit(t, "Flux", "gpu", "X", &bytes);
    if (changed) {
        must(!wb__toml_get((wb__toml){"fuzz", changed, bytes}, "a", "b", &still, &after, &m));
        must(still == other && n == m);
        must(!n || !memcmp(at, after, n));
    }
    wb__free(changed);
    check_edit(text, size, "X");
    check_edit(text, size, NULL);
    wb__free(text);
    return 0;
}
