/* TOML values without children: strings with escapes, numbers, booleans, dates. */
#include "base/toml_parse.h"

#include "base/text.h"

#include <string.h>

/* ---- strings ------------------------------------------------------------------------------- */

#define peek wb__toml_peek
#define line_end wb__toml_line_end

static void put(wb__toml *t, int c) { t->decoded[t->n_decoded++] = (char)c; }

static int hex(int c)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *digit = c > 0 ? strchr(digits, c) : NULL;
    return !digit ? -1 : digit - digits < 16 ? (int)(digit - digits) : (int)(digit - digits) - 6;
}

/* Parses the digits of \uXXXX or \UXXXXXXXX; the backslash is at `from`. */
static int read_code_point(wb__toml *t, int from, int digits)
{
    uint32_t c = 0;
    for (int i = 0; i < digits; i++) {
        int d = hex(peek(t, 0));
        if (d < 0) return wb__toml_fail(t, from, "this escape wants %d hexadecimal digits", digits);
        c = c << 4 | (uint32_t)d;
        t->at++;
    }
    if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return wb__toml_fail(t, from, "%x is no character of Unicode", (unsigned)c);
    t->n_decoded += wb__utf8_put(c, t->decoded + t->n_decoded);
    return 0;
}

/* After a backslash, skips blanks and line ends up to the next character.  If there is no line end,
 * skips nothing and returns false. */
static bool skip_to_next_line(wb__toml *t)
{
    const int from = t->at;
    bool ended = false;
    for (int n; (n = line_end(t)) || peek(t, 0) == ' ' || peek(t, 0) == '\t'; t->at += n ? n : 1)
        ended = ended || n;
    if (!ended) t->at = from;
    return ended;
}

/* Parses an escape; t->at is at the backslash. */
static int read_escape(wb__toml *t, bool is_long)
{
    static const char letters[] = "btnfr\"\\", meanings[] = "\b\t\n\f\r\"\\";
    const int from = t->at++, c = peek(t, 0);
    if (is_long && skip_to_next_line(t)) return 0;
    t->at++;
    if (c == 'u' || c == 'U') return read_code_point(t, from, c == 'u' ? 4 : 8);
    const char *letter = c > 0 ? strchr(letters, c) : NULL;
    if (!letter) return wb__toml_fail(t, from, "there is no such escape");
    put(t, meanings[letter - letters]);
    return 0;
}

/* Parses up to five quotation marks in a long string.  If there are three or more, the last three
 * end the string, and true is returned.  The other marks are part of the string. */
static bool ends_long(wb__toml *t, int quote)
{
    int n = 0;
    while (n < 5 && peek(t, n) == quote) n++;
    for (int i = n >= 3 ? n - 3 : n; i > 0; i--) put(t, quote);
    t->at += n;
    return n >= 3;
}

int wb__toml_string(wb__toml *t, bool may_be_long)
{
    const int quote = peek(t, 0), open = t->at;
    const bool is_long = may_be_long && peek(t, 1) == quote && peek(t, 2) == quote;
    t->at += is_long ? 3 : 1;
    if (is_long) t->at += line_end(t);
    for (;;) {
        const int c = peek(t, 0), newline = line_end(t);
        if (c < 0 || (newline && !is_long))
            return wb__toml_fail(t, open, "this string is never closed");
        if (c == quote && !is_long) return t->at++, 0;
        if (c == quote) {
            if (ends_long(t, quote)) return 0;
        } else if (c == '\\' && quote == '"') {
            int e = read_escape(t, is_long);
            if (e) return e;
        } else if ((c < ' ' && c != '\t' && !newline) || c == 127) {
            return wb__toml_fail(t, t->at, "the control character %d in a string", c);
        } else {
            for (int i = newline > 1 ? 2 : 1; i > 0; i--) put(t, t->text[t->at++]);
        }
    }
}

/* ---- numbers ------------------------------------------------------------------------------- */

/* The rest of a word that is being parsed. */
typedef struct { const char *at, *end; } word;

/* Skips one of the given characters. */
static bool take(word *w, const char *any)
{
    if (w->at == w->end || !strchr(any, *w->at)) return false;
    w->at++;
    return true;
}

static bool is(const word *w, const char *text)
{
    return (size_t)(w->end - w->at) == strlen(text) && !memcmp(w->at, text, strlen(text));
}

/* Skips digits with single underscores between them.  Sets *too_large if the number is above
 * `most`. */
static bool digits(word *w, int base, uint64_t most, bool *too_large)
{
    bool any = false;
    uint64_t value = 0;
    for (int d; w->at < w->end; w->at++) {
        if (*w->at == '_' && any && w->at + 1 < w->end && hex(w->at[1]) >= 0 &&
            hex(w->at[1]) < base)
            continue;
        if ((d = hex(*w->at)) < 0 || d >= base) break;
        any = true;
        if (value > (most - (uint64_t)d) / (uint64_t)base) *too_large = true;
        else value = value * (uint64_t)base + (uint64_t)d;
    }
    return any;
}

static int read_number(wb__toml *t, int from, word w)
{
    static const char letters[] = "box";
    static const int bases[] = {2, 8, 16};
    const bool minus = take(&w, "-"), sign = minus || take(&w, "+");
    const char *first = w.at;
    const char *letter = w.end - first > 1 && *first == '0' ? strchr(letters, first[1]) : NULL;
    bool right, too_large = false, ignored;
    if (is(&w, "inf") || is(&w, "nan")) return 0;
    if (letter) {
        w.at += 2;
        right = !sign && digits(&w, bases[letter - letters], INT64_MAX, &too_large);
    } else {
        if (!digits(&w, 10, (uint64_t)INT64_MAX + minus, &too_large))
            return wb__toml_fail(t, from, "this is no value (strings stand in quotes)");
        if (*first == '0' && w.at > first + 1)
            return wb__toml_fail(t, from, "a number must not begin with 0");
        const char *whole = w.at;
        right = !take(&w, ".") || digits(&w, 10, INT64_MAX, &ignored);
        if (right && take(&w, "eE")) {
            take(&w, "+-");
            right = digits(&w, 10, INT64_MAX, &ignored);
        }
        too_large = too_large && w.at == whole;
    }
    if (!right || w.at < w.end) return wb__toml_fail(t, from, "this is no number");
    return too_large ? wb__toml_fail(t, from, "this number does not fit into 64 bits") : 0;
}

/* ---- dates and times ----------------------------------------------------------------------- */

/* Parses numbers into `values`.  A digit in `shape` is the number of digits of a number: "2:2:2" is
 * for 07:32:00.  Other characters of `shape` must be in the word too. */
static bool fields(word *w, const char *shape, int *values)
{
    for (; *shape; shape++) {
        if (hex(*shape) < 0) {
            if (w->at == w->end || *w->at++ != *shape) return false;
            continue;
        }
        int value = 0;
        for (int n = hex(*shape); n > 0; n--, w->at++) {
            if (w->at == w->end || *w->at < '0' || *w->at > '9') return false;
            value = 10 * value + (*w->at - '0');
        }
        *values++ = value;
    }
    return true;
}

/* Parses a time such as 07:32:00 or 07:32:00.5; second 60 is a leap second. */
static bool read_time(word *w)
{
    int v[3];
    if (!fields(w, "2:2:2", v) || v[0] > 23 || v[1] > 59 || v[2] > 60) return false;
    if (!take(w, ".")) return true;
    const char *first = w->at;
    while (take(w, "0123456789")) continue;
    return w->at > first;
}

static bool read_date(word *w)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int v[3];
    if (!fields(w, "4-2-2", v) || v[1] < 1 || v[1] > 12) return false;
    const bool leap = v[0] % 4 == 0 && (v[0] % 100 != 0 || v[0] % 400 == 0);
    return v[2] >= 1 && v[2] <= days[v[1] - 1] + (v[1] == 2 && leap);
}

/* Whether the word is a date, a time, or both, with or without an offset from UTC. */
static bool is_moment(word w, bool has_date)
{
    int v[2];
    if (has_date) {
        if (!read_date(&w)) return false;
        if (w.at == w.end) return true;
        if (!take(&w, "Tt ")) return false;
    }
    if (!read_time(&w)) return false;
    if (has_date && !take(&w, "Zz") && take(&w, "+-") &&
        (!fields(&w, "2:2", v) || v[0] > 23 || v[1] > 59))
        return false;
    return w.at == w.end;
}

static bool of_word(int c)
{
    return hex(c) >= 0 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c > 0 && strchr("_+-.:", c));
}

int wb__toml_plain(wb__toml *t)
{
    const int from = t->at;
    int year;
    word w = {.at = t->text + from, .end = t->text + t->bytes}, start = w;
    const bool has_date = fields(&start, "4-", &year);
    while (of_word(peek(t, 0)) ||       /* the blank between date and time belongs to the word */
           (has_date && t->at == from + 10 && peek(t, 0) == ' ' && peek(t, 1) >= '0' &&
            peek(t, 1) <= '9'))
        t->at++;
    w.end = t->text + t->at;
    if (w.end == w.at) return wb__toml_fail(t, from, "a value was expected");
    if (is(&w, "true") || is(&w, "false")) return 0;
    if (has_date || (w.end - w.at > 2 && w.at[2] == ':'))
        return is_moment(w, has_date) ? 0 : wb__toml_fail(t, from, "this is no date or time");
    return read_number(t, from, w);
}
