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
