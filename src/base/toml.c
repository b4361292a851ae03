/* Parses and edits TOML: keys, tables, arrays.  toml_value.c parses strings, numbers and dates. */
#include "base/toml_parse.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { MOST_DEPTH = 64, MOST_PARTS = 64 };

/* Lines and columns in messages count characters, not bytes. */
int wb__toml_fail(const wb__toml *t, int at, const char *format, ...)
{
    char reason[256];
    va_list arguments;
    va_start(arguments, format);
    wb__plain_list(reason, sizeof reason, format, arguments);
    va_end(arguments);
    int line = 1, column = 1;
    for (int i = 0; i < at && i < t->bytes; i++) {
        if (t->text[i] == '\n') line++, column = 1;
        else if (((unsigned char)t->text[i] & 0xc0) != 0x80) column++;
    }
    return wb__fail(WB_ERROR_FORMAT, "%s:%d:%d: %s", t->file, line, column, reason);
}

#define peek wb__toml_peek
#define line_end wb__toml_line_end

/* ---- blanks, comments, ends of lines ------------------------------------------------------- */

static bool blank(int c) { return c == ' ' || c == '\t'; }

/* Skips blanks and the comment after them. */
static int skip_comment(wb__toml *t)
{
    while (blank(peek(t, 0))) t->at++;
    if (peek(t, 0) != '#') return 0;
    for (; t->at < t->bytes && !line_end(t); t->at++) {
        const int c = peek(t, 0);
        if ((c < ' ' && c != '\t') || c == 127)
            return wb__toml_fail(t, t->at, "the control character %d in a comment", c);
    }
    return 0;
}

static int finish_line(wb__toml *t)
{
    int e = skip_comment(t);
    if (e) return e;
    if (t->at < t->bytes && !line_end(t))
        return wb__toml_fail(t, t->at, "nothing more was expected in this line");
    t->at += line_end(t);
    return 0;
}

static int skip_lines(wb__toml *t)
{
    int e;
    while (!(e = skip_comment(t)) && line_end(t)) t->at += line_end(t);
    return e;
}

/* Skips blanks.  If the next character is `c`, skips it and the blanks after it. */
static bool take(wb__toml *t, int c)
{
    while (blank(peek(t, 0))) t->at++;
    const bool is = peek(t, 0) == c;
    t->at += is;
    while (is && blank(peek(t, 0))) t->at++;
    return is;
}

/* ---- nodes --------------------------------------------------------------------------------- */

typedef struct { const char *name; int at, bytes; } part;       /* part of a dotted key */

/* The index of the hash list for a name in the table `parent`. */
static int list_of(int parent, const char *name, int bytes)
{
    uint32_t h = (uint32_t)parent;
    for (int i = 0; i < bytes; i++) h = (h ^ (unsigned char)name[i]) * 0x01000193u;
    return (int)((h ^ h >> 15) % WB__TOML_LISTS);
}

static int find(const wb__toml *t, int parent, const char *name, int bytes)
{
    for (int i = t->first[list_of(parent, name, bytes)]; i; i = t->nodes[i].next) {
        const wb__toml_node *n = &t->nodes[i];
        if (n->parent == parent && n->name_bytes == bytes && !memcmp(n->name, name, (size_t)bytes))
            return i;
    }
    return -1;
}

static int find_part(const wb__toml *t, int parent, const part *p)
{
    return find(t, parent, p->name, p->bytes);
}

/* Adds a node and returns its index; -1: out of memory, with the error set. */
static int add_node(wb__toml *t, int parent, const part *p, int kind)
{
    if (!wb__reserve(&t->nodes, &t->capacity, t->n + 1, sizeof *t->nodes)) return -1;
    int *first = &t->first[list_of(parent, p->name, p->bytes)];
    t->nodes[t->n] = (wb__toml_node){.parent = parent, .next = *first, .name = p->name,
                                     .name_bytes = p->bytes, .kind = kind, .key_at = p->at};
    if (parent >= 0) *first = t->n;             /* the root and tables in arrays are in no list */
    return t->n++;
}

static int fail_part(const wb__toml *t, const part *p, const char *what)
{
    return wb__toml_fail(t, p->at, "\"%.*s\" %s", WB__MIN(p->bytes, 100), p->name, what);
}

/* ---- keys ---------------------------------------------------------------------------------- */

static bool bare(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-';
}

static int read_part(wb__toml *t, part *p)
{
    int e = 0, decoded = t->n_decoded;
    *p = (part){.at = t->at, .name = t->decoded + decoded};
    if (peek(t, 0) == '"' || peek(t, 0) == '\'') {
        e = wb__toml_string(t, false);
    } else {
        if (!bare(peek(t, 0))) return wb__toml_fail(t, t->at, "a key was expected");
        while (bare(peek(t, 0))) t->decoded[t->n_decoded++] = t->text[t->at++];
    }
    p->bytes = t->n_decoded - decoded;
    return e;
}

/* Enters the table that a part of a key names: sets *table to the index of the table, and creates
 * the table if it is new. */
static int enter(wb__toml *t, bool header, int *table, const part *p)
{
    int next = find_part(t, *table, p);
    if (next < 0) next = add_node(t, *table, p, header ? WB__AT_IMPLICIT : WB__AT_DOTTED);
    if (next < 0) return WB_ERROR_MEMORY;
    wb__toml_node *n = &t->nodes[next];
    if (header && n->kind < WB__AT_IMPLICIT) return fail_part(t, p, "is a value, not a table");
    if (header && n->kind == WB__AT_TABLES) next = n->last;
    if (!header) {
        if (n->kind != WB__AT_DOTTED && n->kind != WB__AT_IMPLICIT)
            return fail_part(t, p, "is defined already, and cannot be added to here");
        n->kind = WB__AT_DOTTED;
        if (!*table) t->dotted = next;
    }
    *table = next;
    return 0;
}

/* Parses a key such as a.b.c in the table with index *table.  Sets *table to the index of the
 * table a.b, and *last to the part c. */
static int read_key(wb__toml *t, bool header, int *table, part *last)
{
    for (int n = 0; n < MOST_PARTS; n++) {
        int e = read_part(t, last);
        if (e || !take(t, '.') || (e = enter(t, header, table, last))) return e;
    }
    return wb__toml_fail(t, t->at, "a key of more than %d parts", MOST_PARTS);
}

/* ---- values -------------------------------------------------------------------------------- */

static int read_value(wb__toml *t, int node);
static int read_pair(wb__toml *t, int table);

static int read_array(wb__toml *t)
{
    const int open = t->at++;
    for (;;) {
        int e = skip_lines(t);
        if (e) return e;
        if (peek(t, 0) == ']') return t->at++, 0;
        if (t->at == t->bytes) return wb__toml_fail(t, open, "this array is never closed");
        if ((e = read_value(t, -1)) || (e = skip_lines(t))) return e;
        if (peek(t, 0) == ',') t->at++;
        else if (peek(t, 0) != ']' && t->at < t->bytes)
            return wb__toml_fail(t, t->at, "a comma or ] was expected in this array");
    }
}

/* Parses an inline table into the node with index `node`.  A table in an array has node -1: it gets
 * a new node without a parent. */
static int read_inline(wb__toml *t, int node)
{
    const int open = t->at;
    if (node < 0) node = add_node(t, -1, &(part){.name = ""}, WB__AT_INLINE);
    if (node < 0) return WB_ERROR_MEMORY;
    take(t, '{');
    if (peek(t, 0) == '}') return t->at++, 0;
    do {
        int e = read_pair(t, node);
        if (e) return e;
    } while (take(t, ','));
    if (peek(t, 0) == '}') return t->at++, 0;
    return peek(t, 0) < 0 || line_end(t)
               ? wb__toml_fail(t, open, "this inline table is not closed in its line")
               : wb__toml_fail(t, t->at, "a comma or } was expected in this table");
}

/* Parses a value into the node with index `node`.  A value in an array has node -1. */
static int read_value(wb__toml *t, int node)
{
    const int c = peek(t, 0), at = t->at, decoded = t->n_decoded;
    int e, kind = WB__AT_VALUE;
    if (t->depth == MOST_DEPTH)
        return wb__toml_fail(t, t->at, "values nested more than %d deep", MOST_DEPTH);
    t->depth++;
    if (c == '"' || c == '\'') e = wb__toml_string(t, true), kind = WB__AT_STRING;
    else if (c == '[') e = read_array(t);
    else if (c == '{') e = read_inline(t, node), kind = WB__AT_INLINE;
    else e = wb__toml_plain(t);
    t->depth--;
    if (e || node < 0) return e;
    wb__toml_node *n = &t->nodes[node];
    n->kind = kind;
    n->at = at;
    n->end = t->at;
    if (kind == WB__AT_STRING)
        n->value = t->decoded + decoded, n->value_bytes = t->n_decoded - decoded;
    return 0;
}

/* Parses key = value. */
static int read_pair(wb__toml *t, int table)
{
    part last;
    const int from = t->at;
    int e = read_key(t, false, &table, &last);
    if (e) return e;
    if (!take(t, '=')) return wb__toml_fail(t, t->at, "= was expected after the key");
    if (find_part(t, table, &last) >= 0) return fail_part(t, &last, "is defined twice");
    int node = add_node(t, table, &last, WB__AT_VALUE);
    if (node < 0) return WB_ERROR_MEMORY;
    t->nodes[node].key_at = from;
    return read_value(t, node);
}

/* ---- the text ------------------------------------------------------------------------------ */

/* Parses [a.b] or [[a.b]], and sets *table to the index of this table. */
static int read_header(wb__toml *t, int *table)
{
    const bool several = peek(t, 1) == '[';
    const int open = t->at, kind = several ? WB__AT_TABLES : WB__AT_HEADER;
    part last;
    *table = 0;
    t->at += several;
    take(t, '[');
    int e = read_key(t, true, table, &last);
    if (e) return e;
    if (peek(t, 0) != ']' || (several && peek(t, 1) != ']'))
        return wb__toml_fail(t, t->at, "%s was expected after the table's name",
                             several ? "]]" : "]");
    t->at += several ? 2 : 1;
    int node = find_part(t, *table, &last);
    const int before = node < 0 ? WB__AT_IMPLICIT : t->nodes[node].kind;
    if (several && node >= 0 && before != WB__AT_TABLES)
        return fail_part(t, &last, "is defined already, and not as an array of tables");
    if (!several && before != WB__AT_IMPLICIT) return fail_part(t, &last, "is defined twice");
    if (node < 0 && (node = add_node(t, *table, &last, kind)) < 0) return WB_ERROR_MEMORY;
    t->nodes[node].kind = kind;
    t->nodes[node].key_at = open;
    *table = several ? add_node(t, -1, &last, WB__AT_HEADER) : node;
    if (*table < 0) return WB_ERROR_MEMORY;
    t->nodes[node].last = *table;
    return 0;
}

static int read_text(wb__toml *t)
{
    int table = add_node(t, -1, &(part){.name = ""}, WB__AT_HEADER), e = 0;
    if (table < 0) return WB_ERROR_MEMORY;
    while (!(e = skip_lines(t)) && t->at < t->bytes) {
        t->dotted = 0;
        e = peek(t, 0) == '[' ? read_header(t, &table) : read_pair(t, table);
        if (e || (e = finish_line(t))) return e;
        t->nodes[table].insert_at = t->nodes[t->dotted].insert_at = t->at;
    }
    return e;
}

static int check_utf8(const wb__toml *t)
{
    for (int i = 0, n; i < t->bytes; i += n)
        if (!(n = wb__utf8(t->text + i, (size_t)(t->bytes - i))))
            return wb__toml_fail(t, i, "the byte %02x is not UTF-8", (unsigned char)t->text[i]);
    return 0;
}

wb__toml *wb__toml_parse(const char *file, const char *text, size_t bytes)
{
    if (bytes > WB__TOML_MOST_BYTES)
        return wb__fail_null(WB_ERROR_FORMAT, "%s:1:1: %zu bytes; the limit is 256 KiB", file,
                             bytes);
    wb__toml *t = wb__alloc_zero(1, sizeof *t);
    if (!t) return NULL;
    t->file = file;
    t->text = text;
    t->bytes = (int)bytes;
    t->decoded = wb__alloc(bytes + 1);          /* an escape is never shorter than its character */
    if (bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) t->at = 3;
    if (t->decoded && !check_utf8(t) && !read_text(t)) return t;
    wb__toml_free(t);
    return NULL;
}

void wb__toml_free(wb__toml *t)
{
    if (!t) return;
    wb__free(t->nodes);
    wb__free(t->decoded);
    wb__free(t);
}

wb__toml_kind wb__toml_get(const wb__toml *t, const char *table, const char *key,
                           const char **at, size_t *bytes)
{
    const int parent = find(t, 0, table, (int)strlen(table));
    const int node = parent < 0 ? -1 : find(t, parent, key, (int)strlen(key));
    *at = NULL;
    *bytes = 0;
    if (node < 0) return WB__TOML_ABSENT;
    const wb__toml_node *n = &t->nodes[node];
    if (n->kind >= WB__AT_IMPLICIT) return WB__TOML_TABLE;
    const bool is_string = n->kind == WB__AT_STRING;
    *at = is_string ? n->value : t->text + n->at;
    *bytes = (size_t)(is_string ? n->value_bytes : n->end - n->at);
    return is_string ? WB__TOML_STRING : n->kind == WB__AT_INLINE ? WB__TOML_TABLE : WB__TOML_OTHER;
}

/* ---- editing --------------------------------------------------------------------------------- */

/* An edit that replaces the bytes [from, to) of the text by `by`. */
typedef struct { int from, to; wb__text by; } change;

/* Makes *c the change that adds a key and its value to the table with index `table`.  If `table` is
 * -1, the change also creates the table, with the name `name`. */
static int add(const wb__toml *t, int table, const char *name, const char *key, const char *value,
               change *c)
{
    const char *text = t->text, *first = memchr(text, '\n', (size_t)t->bytes);
    const char *newline = first && first > text && first[-1] == '\r' ? "\r\n" : "\n";
    const wb__toml_node *n = table < 0 ? NULL : &t->nodes[table];
    const int kind = n ? n->kind : WB__AT_IMPLICIT;
    int at = kind == WB__AT_IMPLICIT ? t->bytes : kind == WB__AT_INLINE ? n->end - 1 : n->insert_at;
    if (kind < WB__AT_INLINE || kind == WB__AT_TABLES)
        return wb__toml_fail(t, n->key_at, "%s is not a table", name);
    if (kind == WB__AT_INLINE) {                /* before the closing brace */
        while (blank(text[at - 1])) at--;
        const bool empty = text[at - 1] == '{';
        wb__text_add(&c->by, "%s%s = \"%s\"%s", empty ? " " : ", ", key, value, empty ? " " : "");
    } else {
        if (at > 0 && text[at - 1] != '\n') wb__text_add(&c->by, "%s", newline);
        if (kind == WB__AT_IMPLICIT) {          /* after an empty line */
            const int before = at - (int)strlen(newline);
            const bool ended = at > 0 && text[at - 1] == '\n';
            const bool spaced = ended && (!before || text[before - 1] == '\n');
            wb__text_add(&c->by, "%s[%s]%s", at > 0 && !spaced ? newline : "", name, newline);
        }
        if (kind == WB__AT_DOTTED) wb__text_add(&c->by, "%s.", name);
        wb__text_add(&c->by, "%s = \"%s\"%s", key, value, newline);
    }
    c->from = c->to = at;
    return 0;
}

/* Extends *c, which removes a pair of an inline table, to the comma after the pair.  The last
 * pair has no comma after it, so *c is extended to the comma before the pair. */
static void remove_inside(const wb__toml *t, change *c)
{
    int after = c->to, before = c->from;
    while (blank(t->text[after])) after++;
    while (blank(t->text[before - 1])) before--;
    if (t->text[after] == ',') {
        c->to = after + 1;
        while (blank(t->text[c->to])) c->to++;
    } else if (t->text[before - 1] == ',') {
        c->from = before - 1;
    }
}

/* Extends *c, which removes a pair, to the whole line of the pair, unless a comment follows the
 * pair. */
static void remove_line(const wb__toml *t, change *c)
{
    while (c->to < t->bytes && blank(t->text[c->to])) c->to++;
    if (c->to < t->bytes && t->text[c->to] == '#') return;
    while (c->from > 0 && blank(t->text[c->from - 1])) c->from--;
    if (c->to < t->bytes && t->text[c->to] == '\r') c->to++;
    if (c->to < t->bytes) c->to++;
}

static int find_change(const wb__toml *t, const char *table, const char *key, const char *value,
                       change *c)
{
    const int parent = find(t, 0, table, (int)strlen(table));
    const int node = parent < 0 ? -1 : find(t, parent, key, (int)strlen(key));
    if (node < 0) return value ? add(t, parent, table, key, value, c) : 0;
    const wb__toml_node *n = &t->nodes[node];
    if (n->kind >= WB__AT_INLINE)
        return wb__toml_fail(t, n->key_at, "%s.%s is a table", table, key);
    c->from = value ? n->at : n->key_at;
    c->to = n->end;
    if (value) wb__text_add(&c->by, "\"%s\"", value);
    else if (t->nodes[parent].kind == WB__AT_INLINE) remove_inside(t, c);
    else remove_line(t, c);
    return 0;
}

char *wb__toml_edit(const char *file, const char *text, size_t bytes, const char *table,
                    const char *key, const char *value, size_t *new_bytes)
{
    change c = {0};
    wb__text changed = {0};
    wb__toml *t = wb__toml_parse(file, text, bytes);
    const int e = t ? find_change(t, table, key, value, &c) : (int)wb_error_code();
    wb__toml_free(t);
    if (!e) {
        wb__text_raw(&changed, text, (size_t)c.from);
        if (c.by.length) wb__text_raw(&changed, c.by.text, c.by.length);
        wb__text_raw(&changed, text + c.to, bytes - (size_t)c.to);
    }
    changed.failed = changed.failed || c.by.failed || e;
    wb__free(c.by.text);
    *new_bytes = changed.length;
    return wb__text_take(&changed);
}
