/* Text that grows (text.h). */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static bool text_reserve(wb__text *t, size_t more)
{
    if (t->failed) return false;
    if (t->length + more + 1 <= t->capacity) return true;
    size_t capacity = WB__MAX(2 * t->capacity, t->length + more + 64);
    char *text = wb__realloc(t->text, capacity);
    if (!text) return t->failed = true, false;
    t->text = text;
    t->capacity = capacity;
    return true;
}

void wb__text_raw(wb__text *t, const char *bytes, size_t n)
{
    if (!text_reserve(t, n)) return;
    memcpy(t->text + t->length, bytes, n);
    t->length += n;
    t->text[t->length] = 0;
}

void wb__text_spaces(wb__text *t, int n)
{
    while (n-- > 0) wb__text_raw(t, " ", 1);
}

void wb__text_count(wb__text *t, int64_t n)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) wb__text_raw(t, "_", 1);
        wb__text_raw(t, &digits[i], 1);
    }
}

void wb__text_bytes(wb__text *t, int64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) {
        wb__text_add(t, bytes == 1 ? "%lld byte" : "%lld bytes", (long long)bytes);
        return;
    }
    double value = (double)bytes / 1024;
    int unit = 0;
    for (; value >= 1024 && unit < 3; unit++) value /= 1024;
    wb__text_add(t, "%.3f %s", value, units[unit]);
}

int wb__utf8(const char *at, size_t most)
{
    static const struct { uint8_t from, to, low, high, n; } forms[] = {
        {0x00, 0x7f, 0, 0, 1},          {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3},    {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4},    {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    const uint8_t *c = (const uint8_t *)at;
    for (size_t i = 0; most && i < WB__COUNT(forms); i++) {
        if (c[0] < forms[i].from || c[0] > forms[i].to || forms[i].n > most) continue;
        if (forms[i].n > 1 && (c[1] < forms[i].low || c[1] > forms[i].high)) return 0;
        for (int k = 2; k < forms[i].n; k++)
            if (c[k] < 0x80 || c[k] > 0xbf) return 0;
        return forms[i].n;
    }
    return 0;
}

bool wb__is_utf8(const char *text)
{
    while (*text) {
        const int n = wb__utf8(text, SIZE_MAX);
        if (!n) return false;
        text += n;
    }
    return true;
}

int wb__utf8_put(uint32_t c, char *to)
{
    const int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    to[0] = (char)(n == 1 ? c : (0xf0u << (4 - n)) | (c >> (6 * (n - 1))));
    for (int i = 1; i < n; i++) to[i] = (char)(0x80 | ((c >> (6 * (n - 1 - i))) & 0x3f));
    return n;
}

/* Returns the bytes of a control character (text.h); U+0080 to U+009F are such characters too. */
int wb__control_character(const char *at)
{
    const uint8_t *c = (const uint8_t *)at;
    if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) return 2;
    return (c[0] < 0x20 && c[0] != '\n' && c[0] != '\t') || c[0] == 0x7f;
}

/* Adds untrusted text; `stays` lists characters beside the printable ones that are added
 * unchanged. */
static void text_add_escaped(wb__text *t, const char *text, const char *stays)
{
    for (const char *at = text; *at;) {
        const bool kept = *at == '\n' || *at == '\t' ? strchr(stays, *at) != NULL
                                                     : !wb__control_character(at);
        const int n = kept ? wb__utf8(at, SIZE_MAX) : 0;
        if (n) wb__text_raw(t, at, (size_t)n);
        else if (*at == '\n') wb__text_raw(t, "\\n", 2);
        else if (*at == '\t') wb__text_raw(t, "\\t", 2);
        else wb__text_add(t, "\\x%02x", (uint8_t)*at);
        at += n ? n : 1;
    }
}

void wb__text_foreign(wb__text *t, const char *text) { text_add_escaped(t, text, ""); }
void wb__text_foreign_lines(wb__text *t, const char *text) { text_add_escaped(t, text, "\n\t"); }

int wb__characters(const char *text)
{
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

void wb__text_list(wb__text *t, const char *format, va_list list)
{
    va_list again;
    va_copy(again, list);
    int n = wb__plain_list(NULL, 0, format, list);
    if (n >= 0 && text_reserve(t, (size_t)n)) {
        wb__plain_list(t->text + t->length, (size_t)n + 1, format, again);
        t->length += (size_t)n;
    }
    va_end(again);
}

void wb__text_add(wb__text *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    wb__text_list(t, format, list);
    va_end(list);
}

char *wb__text_take(wb__text *t)
{
    if (!t->text && !t->failed) wb__text_raw(t, "", 0);
    char *text = t->text;
    if (t->failed) {
        wb__free(text);
        text = NULL;
    }
    *t = (wb__text){0};
    return text;
}

void wb__list_words(char *to, size_t bytes, const char *words)
{
    if (bytes) *to = 0;
    for (const char *word = words; *word && bytes;) {
        const size_t n = strcspn(word, " =");
        const bool last = !word[n];
        const int wrote = snprintf(to, bytes, "%s%.*s", word == words ? "" : last ? " or " : ", ",
                                   (int)n, word);
        const size_t step = WB__MIN((size_t)wrote, bytes - 1);
        to += step;
        bytes -= step;
        word += n + !last;
    }
}
