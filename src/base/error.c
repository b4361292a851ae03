/* Errors: one message and one code for each thread.  The message is in a buffer of thread_text.c,
 * which needs no memory of the allocator.  So running out of memory can be reported too.  A failing
 * function calls wb__fail; a function that receives NULL keeps the error that is set. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

enum { BYTES = WB__ERROR_BYTES };      /* enough for a message that lists many names */
static _Thread_local int code;
static _Thread_local unsigned failures;
static _Thread_local bool has_path;    /* the message begins with a position in a model */

static const char *const meanings[WB_ERROR_COUNT] = {
    "",
#define SENTENCE(NAME, text) text,
    WB_ERRORS(SENTENCE)
#undef SENTENCE
};

static const char *meaning(int c)
{
    return c > WB_OK && c < WB_ERROR_COUNT ? meanings[c] : "failed";
}

/* The new message may quote the old one, so it is formatted in another buffer first. */
static int fail(int c, const char *format, va_list arguments)
{
    char text[BYTES];
    int n = format ? vsnprintf(text, sizeof text, format, arguments) : 0;
    if (n <= 0) n = snprintf(text, sizeof text, "%s", meaning(c));
    if (n >= BYTES) {
        memcpy(text + BYTES - 4, "...", 4);
        n = BYTES - 1;
    }
    for (int i = 0; i < n; i++)             /* names in files must not control a terminal */
        if (((unsigned char)text[i] < ' ' && text[i] != '\n' && text[i] != '\t') || text[i] == 127)
            text[i] = '?';
    memcpy(wb__thread_text(WB__TEXT_ERROR), text, (size_t)n + 1);
    code = c;
    failures++;
    has_path = false;
    return c;
}

int wb__fail(int c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(c, format, arguments);
    va_end(arguments);
    return c;
}

int wb_fail(wb_status c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(c > WB_OK && c < WB_ERROR_COUNT ? (int)c : WB_ERROR_ARGUMENT, format, arguments);
    va_end(arguments);
    return code;
}

void *wb__fail_null(int c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(c, format, arguments);
    va_end(arguments);
    return NULL;
}

int wb__error_or(int otherwise) { return code ? (int)code : otherwise; }

bool wb__null(const char *function, const char *argument)
{
    if (code) return true;
    function += wb__begins(function, "wb_") ? 3 : 0;
    const char *with = strstr(function, "_with");
    const int n = with ? (int)(with - function) : (int)strlen(function);
    wb__fail(WB_ERROR_ARGUMENT, "%.*s: %s is NULL, and nothing failed before", n, function,
             argument);
    return true;
}

unsigned wb__failures(void) { return failures; }

void wb__failed_in(const char *folder, const char *part)
{
    char text[BYTES];
    const char *dot = *part ? "." : "";
    snprintf(text, sizeof text, "%s%s%s%s%s", folder, dot, part, has_path ? "." : ": ", wb_error());
    memcpy(wb__thread_text(WB__TEXT_ERROR), text, sizeof text);
    has_path = true;
}

const char *wb_error(void) { return code ? wb__thread_text(WB__TEXT_ERROR) : ""; }

wb_status wb_error_code(void) { return (wb_status)code; }

void wb_clear_error(void)
{
    code = WB_OK;
}

void wb__error_keep(wb__error_kept *k)
{
    k->code = code;
    if (code) memcpy(k->text, wb_error(), sizeof k->text);
}

void wb__error_restore(const wb__error_kept *k)
{
    code = k->code;
    if (code) memcpy(wb__thread_text(WB__TEXT_ERROR), k->text, sizeof k->text);
}
