/* Reading TOML: keys, tables, arrays.  Strings, numbers and dates are toml_value.c's, changing a
 * text toml_edit.c's.  Functions that return int give 0 or the code of the error that they set. */
#include "base/toml_parse.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { MOST_DEPTH = 64, MOST_PARTS = 64 };

/* Counts characters, not bytes. */
int wb__toml_fail(const wb__toml *t, int at, const char *format, ...)
{
    char reason[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    int line = 1, column = 1;
    for (int i = 0; i < at && i < t->bytes; i++) {
        if (t->text[i] == '\n') line++, column = 1;
        else if (((unsigned char)t->text[i] & 0xc0) != 0x80) column++;
    }
    return wb__fail(WB_ERROR_FORMAT, "%s:%d:%d: %s", t->file, line, column, reason);
}

#define peek wb__toml_peek

/* ---- blanks, comments, ends of lines ------------------------------------------------------- */

static void skip_blanks(wb__toml *t)
{
    while (peek(t, 0) == ' ' || peek(t, 0) == '\t') t->at++;
}

/* Bytes of the end of a line that stands here, or 0. */
static int line_end(const wb__toml *t)
{
    return peek(t, 0) == '\n' ? 1 : peek(t, 0) == '\r' && peek(t, 1) == '\n' ? 2 : 0;
}

static int skip_comment(wb__toml *t)
{
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
    skip_blanks(t);
    int e = skip_comment(t);
    if (e) return e;
    if (t->at < t->bytes && !line_end(t))
        return wb__toml_fail(t, t->at, "nothing more was expected in this line");
    t->at += line_end(t);
    return 0;
}

static int skip_lines(wb__toml *t)
{
    for (;;) {
        skip_blanks(t);
        int e = skip_comment(t);
        if (e) return e;
        if (!line_end(t)) return 0;
        t->at += line_end(t);
    }
}

/* ---- nodes --------------------------------------------------------------------------------- */

int wb__toml_child(const wb__toml *t, int parent, const char *name, size_t bytes)
{
    int i = t->nodes[parent].child;
    for (; i >= 0; i = t->nodes[i].next)
        if ((size_t)t->nodes[i].name_bytes == bytes &&
            !memcmp(t->decoded + t->nodes[i].name, name, bytes))
            break;
    return i;
}

typedef struct { int at, decoded, bytes; } part;        /* of a key */

/* -1 and the error without memory.  Without a parent it only holds a table inside an array. */
static int add_node(wb__toml *t, int parent, const part *name, int kind)
{
    if (t->n == t->room) {
        int room = t->room ? 2 * t->room : 32;
        wb__toml_node *more = wb__realloc(t->nodes, (size_t)room * sizeof *more);
        if (!more) return -1;
        t->nodes = more;
        t->room = room;
    }
    wb__toml_node *n = &t->nodes[t->n];
    *n = (wb__toml_node){.kind = kind, .child = -1, .next = -1, .at = t->at, .end = t->at,
                         .insert_at = -1};
    if (name) n->name = name->decoded, n->name_bytes = name->bytes, n->key_at = name->at;
    if (parent >= 0) {
        n->next = t->nodes[parent].child;
        t->nodes[parent].child = t->n;
    }
    return t->n++;
}

static int find_part(const wb__toml *t, int parent, const part *p)
{
    return wb__toml_child(t, parent, t->decoded + p->decoded, (size_t)p->bytes);
}

static int fail_part(const wb__toml *t, const part *p, const char *what)
{
    return wb__toml_fail(t, p->at, "\"%.*s\" %s", WB__MIN(p->bytes, 100), t->decoded + p->decoded,
                         what);
}

/* ---- keys ---------------------------------------------------------------------------------- */

static bool bare(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-';
}

static int read_part(wb__toml *t, part *p)
{
    *p = (part){.at = t->at, .decoded = t->n_decoded};
    int e = 0;
    if (peek(t, 0) == '"' || peek(t, 0) == '\'') {
        e = wb__toml_string(t, false);
    } else {
        if (!bare(peek(t, 0))) return wb__toml_fail(t, t->at, "a key was expected");
        while (bare(peek(t, 0))) t->decoded[t->n_decoded++] = t->text[t->at++];
    }
    p->bytes = t->n_decoded - p->decoded;
    return e;
}

static int read_key(wb__toml *t, part *parts, int *n)
{
    for (*n = 0;;) {
        if (*n == MOST_PARTS)
            return wb__toml_fail(t, t->at, "a key of more than %d parts", MOST_PARTS);
        int e = read_part(t, &parts[(*n)++]);
        if (e) return e;
        skip_blanks(t);
        if (peek(t, 0) != '.') return 0;
        t->at++;
        skip_blanks(t);
    }
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

static int read_inline(wb__toml *t, int node)
{
    const int open = t->at++;
    if (node < 0 && (node = add_node(t, -1, NULL, WB__AT_INLINE)) < 0) return WB_ERROR_MEMORY;
    t->nodes[node].kind = WB__AT_HEADER;        /* while it is open, keys may be added */
    skip_blanks(t);
    if (peek(t, 0) == '}') t->at++;
    else for (;;) {
        int e = read_pair(t, node);
        if (e) return e;
        skip_blanks(t);
        const int c = peek(t, 0);
        if (c != ',' && c != '}')
            return c < 0 || line_end(t)
                       ? wb__toml_fail(t, open, "this inline table is not closed in its line")
                       : wb__toml_fail(t, t->at, "a comma or } was expected in this table");
        t->at++;
        if (c == '}') break;
        skip_blanks(t);
    }
    t->nodes[node].kind = WB__AT_INLINE;
    return 0;
}

/* Into a node, or, in an array, nowhere. */
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
    if (kind == WB__AT_STRING) n->value = decoded, n->value_bytes = t->n_decoded - decoded;
    return 0;
}

/* key = value.  The parts before the last name tables, which are made, or were made so. */
static int read_pair(wb__toml *t, int table)
{
    part parts[MOST_PARTS];
    int n, from = t->at, e = read_key(t, parts, &n), through[MOST_PARTS];
    if (e) return e;
    if (peek(t, 0) != '=') return wb__toml_fail(t, t->at, "= was expected after the key");
    t->at++;
    skip_blanks(t);
    for (int i = 0; i < n - 1; i++) {
        int next = find_part(t, table, &parts[i]);
        if (next >= 0 && t->nodes[next].kind != WB__AT_DOTTED &&
            t->nodes[next].kind != WB__AT_IMPLICIT)
            return fail_part(t, &parts[i], "is defined already, and cannot be added to here");
        if (next < 0 && (next = add_node(t, table, &parts[i], WB__AT_DOTTED)) < 0)
            return WB_ERROR_MEMORY;
        t->nodes[next].kind = WB__AT_DOTTED;
        table = through[i] = next;
    }
    if (find_part(t, table, &parts[n - 1]) >= 0)
        return fail_part(t, &parts[n - 1], "is defined twice");
    int node = add_node(t, table, &parts[n - 1], WB__AT_VALUE);
    if (node < 0) return WB_ERROR_MEMORY;
    t->nodes[node].key_at = from;
    if ((e = read_value(t, node))) return e;
    for (int i = 0; i < n - 1; i++) t->nodes[through[i]].end = t->at;
    return 0;
}

/* ---- the text ------------------------------------------------------------------------------ */

/* One more table of [[name]]. */
static int open_one_more(wb__toml *t, int parent, const part *name, int *table)
{
    int node = find_part(t, parent, name);
    if (node >= 0 && t->nodes[node].kind != WB__AT_TABLES)
        return fail_part(t, name, "is defined already, and not as an array of tables");
    if (node < 0 && (node = add_node(t, parent, name, WB__AT_TABLES)) < 0) return WB_ERROR_MEMORY;
    t->nodes[node].child = -1;
    *table = add_node(t, node, NULL, WB__AT_HEADER);
    return *table < 0 ? WB_ERROR_MEMORY : 0;
}

static int open_table(wb__toml *t, int parent, const part *name, int *table)
{
    int node = find_part(t, parent, name);
    if (node >= 0 && t->nodes[node].kind != WB__AT_IMPLICIT)
        return fail_part(t, name, "is defined twice");
    if (node < 0 && (node = add_node(t, parent, name, WB__AT_HEADER)) < 0) return WB_ERROR_MEMORY;
    t->nodes[node].kind = WB__AT_HEADER;
    *table = node;
    return 0;
}

/* [a.b] or [[a.b]]: what follows belongs to it. */
static int read_header(wb__toml *t, int *table)
{
    const bool several = peek(t, 1) == '[';
    const int open = t->at;
    part parts[MOST_PARTS];
    int n, at = 0;
    t->at += several ? 2 : 1;
    skip_blanks(t);
    int e = read_key(t, parts, &n);
    if (e) return e;
    if (peek(t, 0) != ']' || (several && peek(t, 1) != ']'))
        return wb__toml_fail(t, t->at, "%s was expected after the table's name",
                             several ? "]]" : "]");
    t->at += several ? 2 : 1;
    for (int i = 0; i < n - 1; i++) {
        int next = find_part(t, at, &parts[i]);
        if (next < 0 && (next = add_node(t, at, &parts[i], WB__AT_IMPLICIT)) < 0)
            return WB_ERROR_MEMORY;
        if (t->nodes[next].kind == WB__AT_TABLES) next = t->nodes[next].child;
        if (t->nodes[next].kind < WB__AT_IMPLICIT)
            return fail_part(t, &parts[i], "is a value, not a table");
        at = next;
    }
    e = several ? open_one_more(t, at, &parts[n - 1], table)
                : open_table(t, at, &parts[n - 1], table);
    if (e) return e;
    t->nodes[*table].key_at = t->nodes[find_part(t, at, &parts[n - 1])].key_at = open;
    return 0;
}

/* Where a line may be added that speaks of the table, and of those that its keys name. */
static void note_line(wb__toml *t, int table, int from)
{
    t->nodes[table].insert_at = t->at;
    for (int i = t->nodes[table].child; i >= 0; i = t->nodes[i].next)
        if (t->nodes[i].kind == WB__AT_DOTTED && t->nodes[i].end >= from)
            t->nodes[i].insert_at = t->at;
}

static int read_text(wb__toml *t)
{
    int table = add_node(t, -1, NULL, WB__AT_HEADER), e = 0;
    if (table < 0) return WB_ERROR_MEMORY;
    t->nodes[0].insert_at = t->at;
    while (!(e = skip_lines(t)) && t->at < t->bytes) {
        const int from = t->at;
        e = peek(t, 0) == '[' ? read_header(t, &table) : read_pair(t, table);
        if (e || (e = finish_line(t))) return e;
        note_line(t, table, from);
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
    t->decoded = wb__alloc(bytes + 1);          /* no escape is shorter than what it stands for */
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
    int parent = wb__toml_child(t, 0, table, strlen(table));
    *at = NULL;
    *bytes = 0;
    int node = parent < 0 ? -1 : wb__toml_child(t, parent, key, strlen(key));
    if (node < 0 || t->nodes[parent].kind == WB__AT_TABLES) return WB__TOML_ABSENT;
    const wb__toml_node *n = &t->nodes[node];
    if (n->kind >= WB__AT_IMPLICIT) return WB__TOML_TABLE;
    const bool is_string = n->kind == WB__AT_STRING;
    *at = is_string ? t->decoded + n->value : t->text + n->at;
    *bytes = (size_t)(is_string ? n->value_bytes : n->end - n->at);
    return is_string ? WB__TOML_STRING : n->kind == WB__AT_INLINE ? WB__TOML_TABLE : WB__TOML_OTHER;
}
