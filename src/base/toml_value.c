/* TOML's values that hold no others: strings with their escapes, numbers, booleans, dates. */
#include "base/toml_parse.h"

#include <string.h>

/* ---- strings ------------------------------------------------------------------------------- */

#define peek wb__toml_peek

static void put(wb__toml *t, int c) { t->decoded[t->n_decoded++] = (char)c; }

static void put_utf8(wb__toml *t, uint32_t c)
{
    if (c < 0x80) {
        put(t, (int)c);
        return;
    }
    if (c >= 0x10000) put(t, (int)(0xf0 | c >> 18)), put(t, (int)(0x80 | (c >> 12 & 0x3f)));
    else if (c >= 0x800) put(t, (int)(0xe0 | c >> 12));
    put(t, (int)(c >= 0x800 ? 0x80 | (c >> 6 & 0x3f) : 0xc0 | c >> 6));
    put(t, (int)(0x80 | (c & 0x3f)));
}

static int hex(int c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* \uXXXX or \UXXXXXXXX */
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
    put_utf8(t, c);
    return 0;
}

/* A backslash at a line's end: what is blank up to the next word is not there. */
static bool skip_to_next_line(wb__toml *t)
{
    bool ended = false;
    for (int i = 0;; i++) {
        const int c = peek(t, i);
        if (c == '\n' || (c == '\r' && peek(t, i + 1) == '\n')) {
            ended = true;
        } else if (c != ' ' && c != '\t') {
            if (ended) t->at += i;
            return ended;
        }
    }
}

/* At the backslash. */
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

/* At a quotation mark in a long string: three end it, one or two more before them belong to it. */
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
    if (is_long && peek(t, 0) == '\n') t->at++;
    else if (is_long && peek(t, 0) == '\r' && peek(t, 1) == '\n') t->at += 2;
    for (;;) {
        const int c = peek(t, 0);
        const bool newline = c == '\n' || (c == '\r' && peek(t, 1) == '\n');
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
            put(t, c);
            t->at++;
            if (c == '\r') put(t, '\n'), t->at++;
        }
    }
}

/* ---- numbers ------------------------------------------------------------------------------- */

/* A word of a text: what is left of it. */
typedef struct { const char *at, *end; } word;

static bool take(word *w, char c)
{
    if (w->at == w->end || *w->at != c) return false;
    w->at++;
    return true;
}

static bool is(const word *w, const char *text)
{
    return (size_t)(w->end - w->at) == strlen(text) && !memcmp(w->at, text, strlen(text));
}

/* Digits with single underscores between them.  *value is UINT64_MAX when it is more
 * than `most`. */
static bool digits(word *w, int base, uint64_t most, uint64_t *value)
{
    bool any = false, fits = true;
    *value = 0;
    for (int d; w->at < w->end; w->at++) {
        if (*w->at == '_' && any && w->at + 1 < w->end && hex(w->at[1]) >= 0 &&
            hex(w->at[1]) < base)
            continue;
        if ((d = hex(*w->at)) < 0 || d >= base) break;
        any = true;
        if (*value > (most - (uint64_t)d) / (uint64_t)base) fits = false;
        else *value = *value * (uint64_t)base + (uint64_t)d;
    }
    if (!fits) *value = UINT64_MAX;
    return any;
}

static int read_number(wb__toml *t, int from, word w)
{
    const bool minus = take(&w, '-'), sign = minus || take(&w, '+');
    uint64_t value, ignored;
    const char *first = w.at;
    if (is(&w, "inf") || is(&w, "nan")) return 0;
    const int base = w.end - w.at < 2 || *w.at != '0' ? 10
                   : w.at[1] == 'x' ? 16 : w.at[1] == 'o' ? 8 : w.at[1] == 'b' ? 2 : 10;
    if (base != 10) {
        w.at += 2;
        if (sign || !digits(&w, base, INT64_MAX, &value) || w.at < w.end)
            return wb__toml_fail(t, from, "this is no number");
    } else {
        if (!digits(&w, 10, (uint64_t)INT64_MAX + minus, &value))
            return wb__toml_fail(t, from, "this is no value (strings stand in quotes)");
        if (*first == '0' && w.at > first + 1)
            return wb__toml_fail(t, from, "a number must not begin with 0");
        bool is_float = false, right = true;
        if (take(&w, '.')) is_float = true, right = digits(&w, 10, UINT64_MAX, &ignored);
        if (right && (take(&w, 'e') || take(&w, 'E'))) {
            is_float = true;
            if (!take(&w, '-')) take(&w, '+');
            right = digits(&w, 10, UINT64_MAX, &ignored);
        }
        if (!right || w.at < w.end) return wb__toml_fail(t, from, "this is no number");
        if (is_float) return 0;
    }
    if (value == UINT64_MAX) return wb__toml_fail(t, from, "this number does not fit into 64 bits");
    return 0;
}

/* ---- dates and times ----------------------------------------------------------------------- */

static bool fixed(word *w, int n, int least, int most, int *value)
{
    int v = 0;
    for (int i = 0; i < n; i++, w->at++) {
        if (w->at == w->end || *w->at < '0' || *w->at > '9') return false;
        v = 10 * v + (*w->at - '0');
    }
    *value = v;
    return v >= least && v <= most;
}

static bool read_date(word *w)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day;
    if (!fixed(w, 4, 0, 9999, &year) || !take(w, '-') || !fixed(w, 2, 1, 12, &month) ||
        !take(w, '-') || !fixed(w, 2, 1, 31, &day))
        return false;
    const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return day <= days[month - 1] + (month == 2 && leap);
}

/* 07:32:00, with a fraction or not; 60 is a leap second. */
static bool read_time(word *w)
{
    int part;
    uint64_t fraction;
    if (!fixed(w, 2, 0, 23, &part) || !take(w, ':') || !fixed(w, 2, 0, 59, &part) ||
        !take(w, ':') || !fixed(w, 2, 0, 60, &part))
        return false;
    if (!take(w, '.')) return true;
    const char *first = w->at;
    return digits(w, 10, UINT64_MAX, &fraction) && !memchr(first, '_', (size_t)(w->at - first));
}

static bool read_offset(word *w)
{
    int part;
    if (take(w, 'Z') || take(w, 'z')) return true;
    if (!take(w, '+') && !take(w, '-')) return true;    /* none: a local time */
    return fixed(w, 2, 0, 23, &part) && take(w, ':') && fixed(w, 2, 0, 59, &part);
}

static bool read_moment(word w, bool has_date)
{
    if (!has_date) return read_time(&w) && w.at == w.end;
    if (!read_date(&w)) return false;
    if (w.at == w.end) return true;
    if (!take(&w, 'T') && !take(&w, 't') && !take(&w, ' ')) return false;
    return read_time(&w) && read_offset(&w) && w.at == w.end;
}

static bool of_word(int c)
{
    return hex(c) >= 0 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '+' || c == '-' || c == '.' || c == ':';
}

int wb__toml_plain(wb__toml *t)
{
    const int from = t->at;
    word w = {.at = t->text + from};
    while (of_word(peek(t, 0))) t->at++;
    const int n = t->at - from;
    const bool has_date = n > 4 && w.at[4] == '-' && w.at[0] >= '0' && w.at[0] <= '9';
    if (has_date && n == 10 && peek(t, 0) == ' ' && peek(t, 1) >= '0' && peek(t, 1) <= '9') {
        t->at++;                        /* a blank may stand between date and time */
        while (of_word(peek(t, 0))) t->at++;
    }
    w.end = t->text + t->at;
    if (!n) return wb__toml_fail(t, from, "a value was expected");
    if (is(&w, "true") || is(&w, "false")) return 0;
    if (has_date || (n > 2 && w.at[2] == ':'))
        return read_moment(w, has_date) ? 0 : wb__toml_fail(t, from, "this is no date or time");
    return read_number(t, from, w);
}
