/* Text that grows, for everything that prints. */
#include "tree/tree.h"

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

void wb__text_add(wb__text *t, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int n = vsnprintf(NULL, 0, format, arguments);
    if (n >= 0 && room_for(t, (size_t)n)) {
        vsnprintf(t->text + t->length, (size_t)n + 1, format, again);
        t->length += (size_t)n;
    }
    va_end(again);
    va_end(arguments);
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
