/* Reads and writes JSON.  The reader first computes an upper bound of the number of nodes, so that
 * nodes and texts fit in one block. */
#include "io/json.h"

#include "base/files/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char json_no_memory[] = "memory ran out";  /* a reason, compared by its address */

/* Returns the value of four hexadecimal digits at *at and moves *at behind them; -1 if there are
 * fewer than four. */
static int32_t json_four_digits(const char **at, const char *end)
{
    int32_t value = 0;
    if (end - *at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int c = (*at)[i];
        const int letter = c | 32;
        if (c >= '0' && c <= '9') value = 16 * value + c - '0';
        else if (letter >= 'a' && letter <= 'f') value = 16 * value + letter - 'a' + 10;
        else return -1;
    }
    *at += 4;
    return value;
}

/* Writes the character of an escape sequence as UTF-8 to `out` and moves *at, which points behind
 * the backslash.  Returns the number of bytes written, at most 4; 0, with *reason set, if the
 * sequence is wrong. */
static int json_read_escape(const char **at, const char *end, char *out, const char **reason)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const int c = *at < end ? **at : 0;
    const char *known = c ? strchr(letters, c) : NULL;
    if (known) {
        out[0] = meant[known - letters];
        return ++*at, 1;
    }
    if (c != 'u') return *reason = "an unknown escape in a text", 0;
    ++*at;
    int32_t first = json_four_digits(at, end), second = 0;
    const bool pair = first >= 0xd800 && first < 0xdc00;
    if (pair) {
        const bool follows = end - *at >= 2 && (*at)[0] == '\\' && (*at)[1] == 'u';
        *at += 2 * follows;
        second = follows ? json_four_digits(at, end) : -1;
    }
    if (first < 0 || (first >= 0xdc00 && first < 0xe000) ||
        (pair && (second < 0xdc00 || second >= 0xe000)))
        return *reason = "a wrong \\u escape in a text", 0;
    if (!first) return *reason = "a zero in a text; names here end at one", 0;
    if (pair) first = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    return wb__utf8_put((uint32_t)first, out);
}

int64_t wb__json_characters(const char **at, const char *end, char *to, const char **reason)
{
    char *out = to;
    while (*at < end && **at != '"') {
        const bool control = (unsigned char)**at < ' ';
        int n = control ? 0 : wb__utf8(*at, (size_t)(end - *at));
        if (!n) return *reason = control ? "a control character in a text" : "not UTF-8", -1;
        if (**at == '\\') {
            ++*at;
            if (!(n = json_read_escape(at, end, out, reason))) return -1;
        } else {
            memcpy(out, *at, (size_t)n);
            *at += n;
        }
        out += n;
    }
    return out - to;
}

static int json_by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

const char *wb__repeated(int64_t n, const char **texts)
{
    if (n > 1) qsort(texts, (size_t)n, sizeof *texts, json_by_text);
    for (int64_t i = 1; i < n; i++)
        if (!strcmp(texts[i - 1], texts[i])) return texts[i];
    return NULL;
}

enum { JSON_ROOT = -1 };

typedef struct {
    const char *at, *end, *reason;
    wb__json *nodes;
    int64_t n, capacity;
    int64_t open;                       /* index, in `nodes`, of the innermost list or object that
                                           is not complete; JSON_ROOT: none */
    char *texts;                        /* where the next text is written */
} parser;

/* Sets the reason for which the text is no JSON.  Returns false. */
static bool json_bad(parser *p, const char *reason)
{
    p->reason = reason;
    return false;
}

/* Skips blanks and returns the next character, which stays; 0 at the end. */
static char json_next(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\r' || *p->at == '\n'))
        p->at++;
    return p->at < p->end ? *p->at : 0;
}

static wb__json *json_new_node(parser *p, wb__json_kind kind)
{
    if (p->n == p->capacity) return json_bad(p, "more values than commas and brackets"), NULL;
    p->nodes[p->n] = (wb__json){.span = 1, .kind = kind};
    return &p->nodes[p->n++];
}

static bool json_read_text(parser *p, wb__json_kind kind)
{
    wb__json *node = json_new_node(p, kind);
    if (!node) return false;
    node->is.text = p->texts;
    p->at++;
    const int64_t n = wb__json_characters(&p->at, p->end, p->texts, &p->reason);
    if (n < 0) return false;
    if (p->at == p->end) return json_bad(p, "a text without its end");
    p->at++;
    p->texts += n;
    *p->texts++ = 0;
    return true;
}

static bool json_digits(parser *p)
{
    const char *begin = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') p->at++;
    return p->at > begin;
}

/* Sets the node to the number in n characters, a double.  False: too many characters, or no finite
 * number. */
static bool json_read_real(wb__json *node, const char *begin, size_t n)
{
    char copy[400];
    if (n >= sizeof copy) return false;
    memcpy(copy, begin, n);
    copy[n] = 0;
    node->is.real = wb__plain_number(copy, NULL);
    return isfinite(node->is.real);
}

static bool json_read_number(parser *p)
{
    wb__json *node = json_new_node(p, WB__JSON_INTEGER);
    if (!node) return false;
    const char *begin = p->at, *first = begin + (*begin == '-');
    p->at = first;
    bool ok = json_digits(p) && (*first != '0' || p->at == first + 1);
    if (ok && p->at < p->end && *p->at == '.') {
        node->kind = WB__JSON_REAL;
        p->at++;
        ok = json_digits(p);
    }
    if (ok && p->at < p->end && (*p->at | 32) == 'e') {
        node->kind = WB__JSON_REAL;
        p->at++;
        if (p->at < p->end && (*p->at == '+' || *p->at == '-')) p->at++;
        ok = json_digits(p);
    }
    if (!ok) return json_bad(p, "a number is wrong");
    errno = 0;
    if (node->kind == WB__JSON_INTEGER) node->is.integer = strtoll(begin, NULL, 10);
    else ok = json_read_real(node, begin, (size_t)(p->at - begin));
    if (!ok || (node->kind == WB__JSON_INTEGER && errno))
        return json_bad(p, "a number is too large");
    return true;
}

static bool json_read_word(parser *p)
{
    static const char *const words[] = {
        [WB__JSON_NULL] = "null", [WB__JSON_FALSE] = "false", [WB__JSON_TRUE] = "true"};
    for (int k = 0; k < (int)WB__COUNT(words); k++) {
        const size_t n = strlen(words[k]);
        if ((size_t)(p->end - p->at) < n || memcmp(p->at, words[k], n)) continue;
        p->at += n;
        return json_new_node(p, (wb__json_kind)k) != NULL;
    }
    if (p->at == p->end) return json_bad(p, "it ends where a value should be");
    return json_bad(p, "no value where one should be");
}

static bool json_read_key(parser *p)
{
    if (json_next(p) != '"') return json_bad(p, "no key where one should be");
    if (!json_read_text(p, WB__JSON_KEY)) return false;
    if (json_next(p) != ':') return json_bad(p, "no ':' behind a key");
    return p->at++, true;
}

static bool json_keys_differ(parser *p, const wb__json *object)
{
    const int64_t n = wb__json_members(object);
    if (n < 2) return true;
    const char **keys = wb__alloc((size_t)n * sizeof *keys);
    if (!keys) return json_bad(p, json_no_memory);
    const wb__json *member;
    WB__JSON_EACH_MEMBER(object, member, i) keys[i] = wb__json_key(member);
    const bool differ = !wb__repeated(n, keys);
    wb__free(keys);
    return differ ? true : json_bad(p, "a key is there twice");
}

/* Completes the innermost list or object.  Until then its `span` is 1 + the index, in `nodes`, of
 * the list or object that contains it. */
static bool json_close_innermost(parser *p)
{
    wb__json *node = &p->nodes[p->open];
    const int64_t around = (int64_t)node->span - 1;
    node->span = (uint32_t)(p->n - p->open);
    p->open = around;
    p->at++;
    return node->kind == WB__JSON_LIST || json_keys_differ(p, node);
}

/* Completes the lists and objects that end behind a value, after which it is called.  Sets *more if
 * another value follows. */
static bool json_end_value(parser *p, bool *more)
{
    *more = false;
    while (p->open != JSON_ROOT) {
        wb__json *node = &p->nodes[p->open];
        const bool object = node->kind == WB__JSON_OBJECT;
        node->is.count++;
        const char c = json_next(p);
        if (c == ',') {
            p->at++;
            *more = true;
            return object ? json_read_key(p) : true;
        }
        if (c != (object ? '}' : ']'))
            return json_bad(p, object ? "no ',' or '}' in an object" : "no ',' or ']' in a list");
        if (!json_close_innermost(p)) return false;
    }
    return json_next(p) || p->at < p->end ? json_bad(p, "more text behind the value") : true;
}

static bool json_read_values(parser *p)
{
    for (bool more = true; more;) {
        const char c = json_next(p);
        bool ok = true, value = true;
        if (c == '[' || c == '{') {
            wb__json *node = json_new_node(p, c == '[' ? WB__JSON_LIST : WB__JSON_OBJECT);
            if (!node) return false;
            node->span = (uint32_t)(p->open + 1);
            p->open = p->n - 1;
            p->at++;
            value = json_next(p) == (c == '[' ? ']' : '}');         /* empty */
            ok = value ? json_close_innermost(p) : c == '[' || json_read_key(p);
        } else if (c == '"') ok = json_read_text(p, WB__JSON_TEXT);
        else ok = c == '-' || (c >= '0' && c <= '9') ? json_read_number(p) : json_read_word(p);
        if (!ok || (value && !json_end_value(p, &more))) return false;
    }
    return true;
}

/* Returns an upper bound of the number of nodes.  Each node except the root follows a comma, a
 * colon, a [ or a { outside of strings. */
static int64_t json_most_nodes(const char *text)
{
    int64_t n = 1;
    for (bool inside = false; *text; text++) {
        if (inside && *text == '\\' && text[1]) text++;
        else if (*text == '"') inside = !inside;
        else n += !inside && (*text == ',' || *text == ':' || *text == '[' || *text == '{');
    }
    return n;
}

wb__json *wb__json_read(const char *text, const char **reason)
{
    const size_t length = strlen(text);
    *reason = "it is longer than 2 GiB";
    if (length > INT32_MAX) return NULL;
    const int64_t capacity = json_most_nodes(text);
    wb__json *nodes = wb__alloc((size_t)capacity * sizeof *nodes + length + 1);
    *reason = json_no_memory;
    if (!nodes) return NULL;
    parser p = {.at = text,
                .end = text + length,
                .nodes = nodes,
                .capacity = capacity,
                .open = JSON_ROOT,
                .texts = (char *)(nodes + capacity)};
    if (json_read_values(&p)) return nodes;
    wb__free(nodes);
    *reason = p.reason;
    return NULL;
}

wb__json *wb__json_of(const char *path, const char *text, int64_t bytes)
{
    const char *reason = "it has a zero byte";
    wb__json *root = (int64_t)strlen(text) < bytes ? NULL : wb__json_read(text, &reason);
    if (root) return root;
    return wb__fail_null(reason == json_no_memory ? WB_ERROR_MEMORY : WB_ERROR_FORMAT,
                         "%s: no JSON: %s", path, reason);
}

wb__json *wb__json_file(const char *path)
{
    enum { MOST = 64 << 20 };
    int64_t bytes = 0;
    wb__json *root = NULL;
    wb__reader *r = wb__reader_open(path);
    const char *text = r && !wb__reader_fill(r, MOST + 1) ? wb__reader_contents(r, &bytes) : NULL;
    if (bytes > MOST) wb__fail(WB_ERROR_FORMAT, "%s: has more than %d bytes", path, MOST);
    else if (text) {
        char *whole = wb__reader_take(r);
        r = NULL;
        root = whole ? wb__json_of(path, whole, bytes) : NULL;
        wb__free(whole);
    }
    wb__reader_close(r);
    return root;
}

bool wb__json_is(const wb__json *v, wb__json_kind kind) { return v && v->kind == kind; }
const char *wb__json_text(const wb__json *v)
{
    return wb__json_is(v, WB__JSON_TEXT) ? v->is.text : NULL;
}
int64_t wb__json_integer(const wb__json *v)
{
    return wb__json_is(v, WB__JSON_INTEGER) ? v->is.integer : 0;
}
int64_t wb__json_count(const wb__json *v)
{
    return wb__json_is(v, WB__JSON_LIST) ? v->is.count : 0;
}
int64_t wb__json_members(const wb__json *v)
{
    return wb__json_is(v, WB__JSON_OBJECT) ? v->is.count : 0;
}

const char *wb__json_key(const wb__json *member) { return member[-1].is.text; }

/* Returns the value behind v, or, if `inside` is true, the first value inside v.  Skips a key in
 * front of the value. */
const wb__json *wb__json_after(const wb__json *v, bool inside)
{
    v += inside ? 1 : v->span;
    return v + (v->kind == WB__JSON_KEY);
}

const wb__json *wb__json_get(const wb__json *object, const char *key)
{
    const wb__json *member;
    WB__JSON_EACH_MEMBER(object, member, i)
        if (!strcmp(wb__json_key(member), key)) return member;
    return NULL;
}

/* Adds a comma if a value comes before the next one. */
static void json_separate(wb__json_out *out)
{
    if (out->follows) wb__text_raw(&out->text, ",", 1);
    out->follows = true;
}

void wb__json_open(wb__json_out *out, char bracket)
{
    json_separate(out);
    wb__text_raw(&out->text, &bracket, 1);
    out->follows = false;
}

void wb__json_close(wb__json_out *out, char bracket)
{
    wb__text_raw(&out->text, &bracket, 1);
    out->follows = true;
}

void wb__json_put_text(wb__json_out *out, const char *text)
{
    json_separate(out);
    if (!wb__is_utf8(text) && !out->status)
        out->status =
            wb__fail(WB_ERROR_ARGUMENT, "save: the name or note \"%.200s\" is not UTF-8", text);
    wb__text_raw(&out->text, "\"", 1);
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, "\"\\\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e"
                                     "\x0f\x10\x11\x12\x13\x14\x15"
                                     "\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f");
        static const char meant[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
        wb__text_raw(&out->text, at, n);
        at += n;
        const char *known = *at ? strchr(meant, *at) : NULL;
        if (known) wb__text_add(&out->text, "\\%c", letters[known - meant]);
        else if (*at) wb__text_add(&out->text, "\\u%04X", (unsigned)*at);
        at += *at != 0;
    }
    wb__text_raw(&out->text, "\"", 1);
}

void wb__json_put_key(wb__json_out *out, const char *key)
{
    wb__json_put_text(out, key);
    wb__text_raw(&out->text, ":", 1);
    out->follows = false;
}

void wb__json_put_pair(wb__json_out *out, const char *key, const char *text)
{
    wb__json_put_key(out, key);
    wb__json_put_text(out, text);
}

void wb__json_put_integer(wb__json_out *out, int64_t value)
{
    json_separate(out);
    wb__text_add(&out->text, "%lld", (long long)value);
}

void wb__json_put_real(wb__json_out *out, double value)
{
    char text[40];
    json_separate(out);
    if (!isfinite(value) && !out->status)
        out->status = wb__fail(WB_ERROR_ARGUMENT,
                               "save: a number of a layer is %g, which JSON cannot hold", value);
    wb__plain(text, sizeof text, "%.17g", value);
    const char *point = text + strspn(text, "-0123456789");
    wb__text_add(&out->text, "%s%s", text, *point ? "" : ".0");
}

void wb__json_put_bool(wb__json_out *out, bool value)
{
    json_separate(out);
    wb__text_add(&out->text, value ? "true" : "false");
}

char *wb__json_take(wb__json_out *out)
{
    if (!out->status && out->text.failed) out->status = wb__fail(WB_ERROR_MEMORY, NULL);
    char *text = wb__text_take(&out->text);
    if (!out->status) return text;
    wb__free(text);
    return NULL;
}
