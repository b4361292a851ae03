#include "base/toml.h"

#include "base/text.h"

#include <string.h>

/* The path of names of tables and keys to a place in the file: `depth` names, of which the first
 * `same` are those that are looked for (scan.name). */
typedef struct { int depth, same; } path;

/* How the file has the table: not at all, as a.b = ..., as [a], as a = {...}, or as no table. */
typedef enum { TOML_NONE, DOTTED, TOML_HEADER, TOML_INLINE, NO_TABLE } toml_place;

typedef struct {
    wb__toml t;
    const char *name[2];                /* the table and the key that are looked for */
    size_t at;                          /* byte that is read next */
    wb__toml_kind kind;
    size_t key_at, value_at, value_end;
    size_t text_at, text_end;           /* begin and end of the value without quotes */
    toml_place table;
    bool dotted;                        /* this line adds to the table as a.b = ... */
    size_t table_at, insert_at;     /* beginning of the table, and end of its last line or its } */
} scan;

static int toml_fail(const scan *s, size_t at, const char *format, const char *name)
{
    int line = 1, column = 1;           /* a column is a character, not a byte */
    for (size_t i = 0; i < at && i < s->t.bytes; i++) {
        if (s->t.text[i] == '\n') line++, column = 1;
        else if (((unsigned char)s->t.text[i] & 0xc0) != 0x80) column++;
    }
    char reason[160];
    wb__plain(reason, sizeof reason, format, name);
    return wb__fail(WB_ERROR_FORMAT, "%s:%d:%d: %s", s->t.file, line, column, reason);
}

/* ---- characters ------------------------------------------------------------------------------ */

/* Returns the character `ahead` bytes further on; -1 after the end. */
static int toml_peek(const scan *s, size_t ahead)
{
    return s->at + ahead < s->t.bytes ? (unsigned char)s->t.text[s->at + ahead] : -1;
}

static bool toml_is_blank(int c) { return c == ' ' || c == '\t'; }
static bool is_any(int c, const char *of) { return c > 0 && strchr(of, c); }

static bool toml_at_line_end(const scan *s)
{
    return toml_peek(s, 0) == '\n' || (toml_peek(s, 0) == '\r' && toml_peek(s, 1) == '\n');
}

/* Skips blanks, and with `lines` also comments and ends of lines. */
static void toml_skip(scan *s, bool lines)
{
    bool comment = false;
    for (int c; (c = toml_peek(s, 0)) >= 0; s->at++) {
        comment = lines && (comment ? c != '\n' : c == '#');
        if (!comment && !toml_is_blank(c) && !(lines && toml_at_line_end(s))) return;
    }
}

static bool toml_skip_character(scan *s, int c)
{
    toml_skip(s, false);
    const bool is = toml_peek(s, 0) == c;
    s->at += is;
    if (is) toml_skip(s, false);
    return is;
}

/* Skips a string.  Sets *at and *end to its text without the quotes. */
static int toml_skip_string(scan *s, bool may_be_long, size_t *at, size_t *end)
{
    const int quote = toml_peek(s, 0);
    const bool is_long = may_be_long && toml_peek(s, 1) == quote && toml_peek(s, 2) == quote;
    const size_t open = s->at;
    *at = s->at += is_long ? 3 : 1;
    for (int c; (c = toml_peek(s, 0)) >= 0 && (is_long || c != '\n'); s->at++) {
        if (c == '\\' && quote == '"') s->at++;
        else if (c == quote && (!is_long || (toml_peek(s, 1) == c && toml_peek(s, 2) == c))) {
            for (int i = 0; i < 2 && is_long && toml_peek(s, 3) == quote; i++) s->at++;
            *end = s->at;
            s->at += is_long ? 3 : 1;
            return 0;
        }
    }
    return toml_fail(s, open, "this string is never closed", NULL);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static bool is_bare(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* Reads a key such as a.'b'.c and adds its parts to the path. */
static int toml_read_key(scan *s, path *p)
{
    do {
        size_t at = s->at, end;
        int status = 0;
        if (is_any(toml_peek(s, 0), "\"'")) status = toml_skip_string(s, false, &at, &end);
        else {
            while (is_bare(toml_peek(s, 0))) s->at++;
            if ((end = s->at) == at) status = toml_fail(s, at, "a key was expected", NULL);
        }
        if (status) return status;
        const char *name = p->depth < 2 ? s->name[p->depth] : "";
        if (p->same == p->depth++ && p->depth <= 2 && strlen(name) == end - at &&
            !memcmp(name, s->t.text + at, end - at))
            p->same++;
    } while (toml_skip_character(s, '.'));
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Skips [...] or {...} with everything inside. */
static int toml_skip_brackets(scan *s)
{
    const size_t open = s->at;
    int depth = 0, status = 0;
    while (!status) {
        toml_skip(s, true);
        const int c = toml_peek(s, 0);
        size_t at, end;
        if (c < 0) return toml_fail(s, open, "this bracket is never closed", NULL);
        if (is_any(c, "\"'")) status = toml_skip_string(s, true, &at, &end);
        else {
            s->at++;
            depth += is_any(c, "[{") - is_any(c, "]}");
            if (!depth) return 0;
        }
    }
    return status;
}

static int toml_read_pair(scan *s, path p);

/* Reads { ... }, if `p` is the table that is looked for. */
static int toml_read_inline(scan *s, path p)
{
    const size_t open = s->at;
    int status = 0;
    toml_skip_character(s, '{');
    if (toml_peek(s, 0) != '}')
        do status = toml_read_pair(s, p);
        while (!status && toml_skip_character(s, ','));
    if (!status && toml_peek(s, 0) != '}')
        status = toml_fail(s, open, "this table is not closed in its line", NULL);
    s->insert_at = s->at++;
    return status;
}

static int toml_read_value(scan *s, path p, wb__toml_kind *kind, size_t *at, size_t *end)
{
    static const char *const words[] = {"true", "false", "inf", "nan"};
    const int c = toml_peek(s, 0);
    *at = s->at;
    *kind = is_any(c, "\"'") ? WB__TOML_STRING : c == '{' ? WB__TOML_TABLE : WB__TOML_OTHER;
    if (*kind == WB__TOML_STRING) return toml_skip_string(s, true, at, end);
    int status = 0;
    if (c == '{' && p.depth == 1 && p.same == 1) status = toml_read_inline(s, p);
    else if (is_any(c, "[{")) status = toml_skip_brackets(s);
    else {
        bool known = is_any(c, "0123456789+-");
        for (size_t i = 0; i < WB__COUNT(words); i++)
            known = known || (s->at + strlen(words[i]) <= s->t.bytes &&
                              !memcmp(s->t.text + s->at, words[i], strlen(words[i])));
        if (!known) return toml_fail(s, s->at, "a value was expected", NULL);
        while (toml_peek(s, 0) >= 0 && !is_any(toml_peek(s, 0), ",]}#\r\n")) s->at++;
        while (toml_is_blank(s->t.text[s->at - 1])) s->at--;
    }
    *end = s->at;
    return status;
}

/* Reads key = value in the table at `p`. */
static int toml_read_pair(scan *s, path p)
{
    const path table = p;
    const size_t key_at = s->at;
    wb__toml_kind kind;
    size_t at, end;
    int status = toml_read_key(s, &p);
    if (status) return status;
    if (!toml_skip_character(s, '='))
        return toml_fail(s, s->at, "= was expected after the key", NULL);
    const size_t value_at = s->at;
    s->dotted = !table.depth && p.same && p.depth > 1;
    if (s->dotted && !s->table) s->table = DOTTED, s->table_at = key_at;
    if (!table.depth && p.same && p.depth == 1) {
        if (s->table) return toml_fail(s, key_at, "%s is defined twice", s->name[0]);
        s->table = toml_peek(s, 0) == '{' ? TOML_INLINE : NO_TABLE;
        s->table_at = key_at;
    }
    if ((status = toml_read_value(s, p, &kind, &at, &end)) || p.same < 2) return status;
    if (s->kind && (p.depth == 2 || s->kind != WB__TOML_TABLE))
        return toml_fail(s, key_at, "%s is defined twice", s->name[1]);
    if (!s->kind) s->key_at = key_at;
    s->kind = p.depth > 2 ? WB__TOML_TABLE : kind;
    if (p.depth > 2) return 0;
    s->value_at = value_at;
    s->value_end = s->at;
    s->text_at = at;
    s->text_end = end;
    return 0;
}

/* Reads [a.b] or [[a.b]]. */
static int toml_read_header(scan *s, path *p)
{
    const size_t open = s->at++;
    const bool several = toml_skip_character(s, '[');
    *p = (path){0, 0};
    toml_skip(s, false);
    int status = toml_read_key(s, p);
    if (status) return status;
    if (!toml_skip_character(s, ']') || (several && !toml_skip_character(s, ']')))
        return toml_fail(s, s->at, "%s was expected after the table's name", several ? "]]" : "]");
    if (p->depth == 1 && p->same == 1) {
        if (s->table && !(several && s->table == NO_TABLE))
            return toml_fail(s, open, "%s is defined twice", s->name[0]);
        s->table = several ? NO_TABLE : TOML_HEADER;
        s->table_at = open;
    }
    if (p->same == 2 && !s->kind) s->key_at = open;
    if (p->same == 2) s->kind = WB__TOML_TABLE;
    if (several) p->same = 0;
    return 0;
}

static int toml_read_all(scan *s)
{
    path table = {0, 0};
    if (s->t.bytes > WB__TOML_MOST_BYTES)
        return wb__fail(WB_ERROR_FORMAT, "%s:1:1: %zu bytes; the limit is 256 KiB", s->t.file,
                        s->t.bytes);
    if (s->t.bytes >= 3 && !memcmp(s->t.text, "\xef\xbb\xbf", 3)) s->at = 3;
    for (;;) {
        toml_skip(s, true);
        if (toml_peek(s, 0) < 0) return 0;
        s->dotted = false;
        const int status = toml_peek(s, 0) == '[' ? toml_read_header(s, &table)
                                                  : toml_read_pair(s, table);
        if (status) return status;
        toml_skip(s, false);
        if (toml_peek(s, 0) >= 0 && toml_peek(s, 0) != '#' && !toml_at_line_end(s))
            return toml_fail(s, s->at, "nothing more was expected in this line", NULL);
        while (toml_peek(s, 0) >= 0 && toml_peek(s, 0) != '\n') s->at++;
        s->at += s->at < s->t.bytes;
        if (s->table == TOML_HEADER ? table.depth == 1 && table.same
                                    : s->table == DOTTED && s->dotted)
            s->insert_at = s->at;
    }
}

int wb__toml_get(wb__toml t, const char *table, const char *key, wb__toml_kind *kind,
                 const char **at, size_t *bytes)
{
    scan s = {.t = t, .name = {table, key}};
    const int status = toml_read_all(&s);
    *kind = s.kind;
    *at = s.value_end ? t.text + s.text_at : NULL;
    *bytes = s.text_end - s.text_at;
    return status;
}

/* ---- editing --------------------------------------------------------------------------------- */

/* An edit that replaces the bytes [from, to) of the text by `by`. */
typedef struct { size_t from, to; wb__text by; } toml_change;

/* Makes *c the change that adds the key, and the table if there is none. */
static int toml_add_key(const scan *s, const char *value, toml_change *c)
{
    const char *text = s->t.text, *first = memchr(text, '\n', s->t.bytes);
    const char *newline = first && first > text && first[-1] == '\r' ? "\r\n" : "\n";
    size_t at = s->table == TOML_NONE ? s->t.bytes : s->insert_at;
    if (s->table == NO_TABLE)
        return toml_fail(s, s->table_at, "%s is not a table", s->name[0]);
    if (s->table == TOML_INLINE) {              /* inserts before the closing brace */
        while (toml_is_blank(text[at - 1])) at--;
        const bool empty = text[at - 1] == '{';
        wb__text_add(&c->by, "%s%s = \"%s\"%s", empty ? " " : ", ", s->name[1], value,
                     empty ? " " : "");
    } else {
        const bool ended = at > 0 && text[at - 1] == '\n';
        if (at > 0 && !ended) wb__text_add(&c->by, "%s", newline);
        if (s->table == TOML_NONE) {            /* inserts after an empty line */
            const size_t before = ended ? at - strlen(newline) : at;
            const bool spaced = ended && (!before || text[before - 1] == '\n');
            wb__text_add(&c->by, "%s[%s]%s", at > 0 && !spaced ? newline : "", s->name[0], newline);
        }
        wb__text_add(&c->by, "%s%s%s = \"%s\"%s", s->table == DOTTED ? s->name[0] : "",
                     s->table == DOTTED ? "." : "", s->name[1], value, newline);
    }
    c->from = c->to = at;
    return 0;
}

/* Extends *c, which removes a pair: in braces, to the comma behind or before the pair; else to the
 * whole line, unless a comment follows. */
static void toml_remove_pair(const scan *s, toml_change *c)
{
    const char *text = s->t.text;
    size_t after = c->to, before = c->from;
    while (after < s->t.bytes && toml_is_blank(text[after])) after++;
    while (before > 0 && toml_is_blank(text[before - 1])) before--;
    if (s->table == TOML_INLINE && text[after] == ',') {
        for (c->to = after + 1; toml_is_blank(text[c->to]);) c->to++;
    } else if (s->table == TOML_INLINE) {
        if (text[before - 1] == ',') c->from = before - 1;
    } else {
        c->to = after;
        if (after < s->t.bytes && text[after] == '#') return;
        c->from = before;
        c->to += after < s->t.bytes && text[after] == '\r';
        c->to += c->to < s->t.bytes;
    }
}

char *wb__toml_edit(wb__toml t, const char *table, const char *key, const char *value,
                    size_t *new_bytes)
{
    scan s = {.t = t, .name = {table, key}};
    toml_change c = {0};
    wb__text changed = {0};
    int status = toml_read_all(&s);
    if (!status && s.kind == WB__TOML_TABLE)
        status = toml_fail(&s, s.key_at, "%s is a table", key);
    else if (!status && s.kind) {
        c.from = value ? s.value_at : s.key_at;
        c.to = s.value_end;
        if (value) wb__text_add(&c.by, "\"%s\"", value);
        else toml_remove_pair(&s, &c);
    } else if (!status && value) status = toml_add_key(&s, value, &c);
    if (!status) {
        wb__text_raw(&changed, t.text, c.from);
        if (c.by.length) wb__text_raw(&changed, c.by.text, c.by.length);
        wb__text_raw(&changed, t.text + c.to, t.bytes - c.to);
    }
    changed.failed = changed.failed || c.by.failed || status;
    wb__free(c.by.text);
    *new_bytes = changed.length;
    return wb__text_take(&changed);
}
