/* Changing one value of a TOML text.  All is found by reading the text; what comes out is read
 * again before anybody sees it. */
#include "base/toml_parse.h"

#include <string.h>

/* Replaces [from, to) of the text. */
static char *splice(const wb__toml *t, int from, int to, const char *by, size_t *bytes)
{
    if (!by) return NULL;
    const size_t n = strlen(by), tail = (size_t)(t->bytes - to);
    char *text = wb__alloc((size_t)from + n + tail + 1);
    if (!text) return NULL;
    memcpy(text, t->text, (size_t)from);
    memcpy(text + from, by, n);
    memcpy(text + from + n, t->text + to, tail);
    *bytes = (size_t)from + n + tail;
    text[*bytes] = 0;
    return text;
}

/* `splice`, and frees what it was given. */
static char *splice_made(const wb__toml *t, int from, int to, char *by, size_t *bytes)
{
    char *text = splice(t, from, to, by, bytes);
    wb__free(by);
    return text;
}

/* "value", with what must be escaped escaped. */
static char *quoted(const char *value)
{
    static const char digits[] = "0123456789abcdef";
    char *text = wb__alloc(6 * strlen(value) + 3), *to = text;
    if (!text) return NULL;
    *to++ = '"';
    for (; *value; value++) {
        const unsigned char c = (unsigned char)*value;
        if (c == '"' || c == '\\') *to++ = '\\';
        if (c >= ' ' && c != 127) {
            *to++ = (char)c;
            continue;
        }
        memcpy(to, "\\u00", 4);
        to[4] = digits[c >> 4];
        to[5] = digits[c & 15];
        to += 6;
    }
    *to++ = '"';
    *to = 0;
    return text;
}

static const char *newline_of(const wb__toml *t)
{
    const char *first = memchr(t->text, '\n', (size_t)t->bytes);
    return first && first > t->text && first[-1] == '\r' ? "\r\n" : "\n";
}

/* ---- setting ------------------------------------------------------------------------------- */

static char *replace_value(const wb__toml *t, int node, const char *value, size_t *bytes)
{
    const wb__toml_node *n = &t->nodes[node];
    return splice_made(t, n->at, n->end, quoted(value), bytes);
}

/* As the last of { ... }; the value's end is behind the brace. */
static char *add_inside(const wb__toml *t, int table, const char *key, const char *value,
                        size_t *bytes)
{
    int at = t->nodes[table].end - 1;
    const bool empty = t->nodes[table].child < 0;
    while (t->text[at - 1] == ' ' || t->text[at - 1] == '\t') at--;
    return splice_made(t, at, at, wb__printf("%s%s = %s%s", empty ? " " : ", ", key, value,
                                             empty ? " " : ""), bytes);
}

static char *add_line(const wb__toml *t, int at, const char *prefix, const char *dot,
                      const char *key, const char *value, size_t *bytes)
{
    const char *newline = newline_of(t);
    const bool open = at > 0 && t->text[at - 1] != '\n';
    return splice_made(t, at, at, wb__printf("%s%s%s%s = %s%s", open ? newline : "", prefix, dot,
                                             key, value, newline), bytes);
}

static char *add_table(const wb__toml *t, const char *table, const char *key, const char *value,
                       size_t *bytes)
{
    const char *newline = newline_of(t);
    const size_t n = strlen(newline);
    const int at = t->bytes;
    const bool begun = at > 0, ended = begun && t->text[at - 1] == '\n';
    const bool spaced = ended && (at == (int)n || t->text[at - 1 - (int)n] == '\n');
    return splice_made(t, at, at, wb__printf("%s%s[%s]%s%s = %s%s", begun && !ended ? newline : "",
                                             begun && !spaced ? newline : "", table, newline, key,
                                             value, newline), bytes);
}

static char *add(const wb__toml *t, int table, const char *name, const char *key,
                 const char *value, size_t *bytes)
{
    char *text = NULL, *quoted_key = quoted(key), *quoted_name = quoted(name),
         *string = quoted(value);
    if (!quoted_key || !quoted_name || !string) goto out;
    const char *bare_key = key, *bare_name = name;
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    if (!*key || key[strspn(key, letters)]) bare_key = quoted_key;
    if (!*name || name[strspn(name, letters)]) bare_name = quoted_name;
    const int kind = table < 0 ? WB__AT_IMPLICIT : t->nodes[table].kind;
    if (kind == WB__AT_IMPLICIT) text = add_table(t, bare_name, bare_key, string, bytes);
    else if (kind == WB__AT_INLINE) text = add_inside(t, table, bare_key, string, bytes);
    else if (kind == WB__AT_HEADER)
        text = add_line(t, t->nodes[table].insert_at, "", "", bare_key, string, bytes);
    else if (kind == WB__AT_DOTTED)
        text = add_line(t, t->nodes[table].insert_at, bare_name, ".", bare_key, string, bytes);
    else wb__toml_fail(t, t->nodes[table].key_at, "%s is not a table", name);
out:
    wb__free(quoted_key);
    wb__free(quoted_name);
    wb__free(string);
    return text;
}

/* ---- removing ------------------------------------------------------------------------------ */

static bool blank(char c) { return c == ' ' || c == '\t'; }

/* With the comma behind it, or, of the last one, with that before it. */
static char *remove_inside(const wb__toml *t, int from, int to, size_t *bytes)
{
    int after = to, before = from;
    while (blank(t->text[after])) after++;
    while (blank(t->text[before - 1])) before--;
    if (t->text[after] == ',') {
        to = after + 1;
        while (blank(t->text[to])) to++;
    } else if (t->text[before - 1] == ',') {
        from = before - 1;
    }
    return splice(t, from, to, "", bytes);
}

/* With its line; if a comment stands behind it, that stays. */
static char *remove_line(const wb__toml *t, int from, int to, size_t *bytes)
{
    while (to < t->bytes && blank(t->text[to])) to++;
    if (to < t->bytes && t->text[to] == '#') return splice(t, from, to, "", bytes);
    while (from > 0 && blank(t->text[from - 1])) from--;
    if (to < t->bytes && t->text[to] == '\r') to++;
    if (to < t->bytes) to++;
    return splice(t, from, to, "", bytes);
}

/* ---- all ----------------------------------------------------------------------------------- */

static char *change(const wb__toml *t, const char *table, const char *key, const char *value,
                    size_t *bytes)
{
    const int parent = wb__toml_child(t, 0, table, strlen(table));
    const bool several = parent >= 0 && t->nodes[parent].kind == WB__AT_TABLES;
    const int node = parent < 0 || several ? -1 : wb__toml_child(t, parent, key, strlen(key));
    if (node < 0) return value ? add(t, parent, table, key, value, bytes)
                               : splice(t, t->bytes, t->bytes, "", bytes);
    const wb__toml_node *n = &t->nodes[node];
    if (n->kind >= WB__AT_IMPLICIT) {
        wb__toml_fail(t, n->key_at, "%s.%s is a table", table, key);
        return NULL;
    }
    if (value) return replace_value(t, node, value, bytes);
    return t->nodes[parent].kind == WB__AT_INLINE ? remove_inside(t, n->key_at, n->end, bytes)
                                                  : remove_line(t, n->key_at, n->end, bytes);
}

static bool says(const char *file, const char *text, size_t bytes, const char *table,
                 const char *key, const char *value)
{
    const char *at;
    size_t n;
    wb__toml *t = wb__toml_parse(file, text, bytes);
    if (!t) return false;
    wb__toml_kind kind = wb__toml_get(t, table, key, &at, &n);
    bool right = !value ? kind == WB__TOML_ABSENT
                        : kind == WB__TOML_STRING && n == strlen(value) && !memcmp(at, value, n);
    wb__toml_free(t);
    if (!right) wb__fail(WB_ERROR_FORMAT, "%s: %s.%s cannot be changed there", file, table, key);
    return right;
}

char *wb__toml_edit(const char *file, const char *text, size_t bytes, const char *table,
                    const char *key, const char *value, size_t *new_bytes)
{
    wb__toml *t = wb__toml_parse(file, text, bytes);
    char *changed = t ? change(t, table, key, value, new_bytes) : NULL;
    wb__toml_free(t);
    if (changed && !says(file, changed, *new_bytes, table, key, value)) {
        wb__free(changed);
        changed = NULL;
    }
    return changed;
}
