/* Text that grows, for everything that prints. */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static bool room_for(wb__text *t, size_t more)
{
    if (t->failed) return false;
    if (t->length + more + 1 <= t->room) return true;
    size_t room = WB__MAX(2 * t->room, t->length + more + 64);
    char *text = wb__realloc(t->text, room);
    if (!text) return t->failed = true, false;
    t->text = text;
    t->room = room;
    return true;
}

void wb__text_raw(wb__text *t, const char *bytes, size_t n)
{
    if (!room_for(t, n)) return;
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

/* Bytes of the character there; 0: it is not UTF-8, or commands the terminal (U+0080 to U+009F). */
static int utf8(const unsigned char *at)
{
    const int more = at[0] < 0x80 ? 0 : at[0] < 0xc2 ? -1 : at[0] < 0xe0 ? 1 : at[0] < 0xf0 ? 2 : at[0] < 0xf5 ? 3 : -1;
    for (int i = 1; i <= more; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    if (more == 1 && at[0] == 0xc2 && at[1] < 0xa0) return 0;
    return more + 1;
}

void wb__text_foreign(wb__text *t, const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        const int n = *at < 0x20 || *at == 0x7f ? 0 : utf8(at);
        if (n) wb__text_raw(t, (const char *)at, (size_t)n);
        else if (*at == '\n') wb__text_raw(t, "\\n", 2);
        else if (*at == '\t') wb__text_raw(t, "\\t", 2);
        else wb__text_add(t, "\\x%02x", *at);
        at += n ? n : 1;
    }
}

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
    int n = vsnprintf(NULL, 0, format, list);
    if (n >= 0 && room_for(t, (size_t)n)) {
        vsnprintf(t->text + t->length, (size_t)n + 1, format, again);
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
