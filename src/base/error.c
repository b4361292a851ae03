/* Errors: one message and one code for each thread.  The message is in a buffer of thread_text.c,
 * which needs no memory of the allocator.  So running out of memory can be reported too.  A failing
 * function calls wb__fail; a function that receives NULL keeps the error that is set.
 *
 * A message ends in the name of its page in docs/errors.md, which follows from its format
 * (mistakes.c).  A message that quotes another one has the name once, at its end. */
#include "base/base.h"
#include "base/mistakes.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { ERROR_BYTES = WB__ERROR_BYTES }; /* enough for a message that lists many names */
enum { SUFFIX = 8 };                   /* bytes of the name of a page, as in " (W0201)" */
static _Thread_local int error_code;
static _Thread_local unsigned error_failures;
static _Thread_local bool has_path;    /* the message begins with a position in a model */

static const char *const error_meanings[WB_ERROR_COUNT] = {
    "",
#define SENTENCE(NAME, text) text,
    WB_ERRORS(SENTENCE)
#undef SENTENCE
};

static const char *name_of_code(int c)
{
    return c > WB_OK && c < WB_ERROR_COUNT ? error_meanings[c] : "failed";
}

static bool is_suffix(const char *at)
{
    if (strncmp(at, " (W", 3) || at[SUFFIX - 1] != ')') return false;
    for (int i = 3; i < SUFFIX - 1; i++)
        if (!isdigit((unsigned char)at[i])) return false;
    return true;
}

/* Removes the names of pages that quoted messages have, and returns the number of the last page; 0:
 * the text names none. */
static int remove_suffixes(char *text)
{
    int page = 0;
    for (char *at = strstr(text, " (W"); at; at = strstr(at, " (W")) {
        if (strlen(at) < SUFFIX || !is_suffix(at)) {
            at++;
            continue;
        }
        sscanf(at, " (W%d)", &page);
        memmove(at, at + SUFFIX, strlen(at + SUFFIX) + 1);
    }
    return page;
}

/* Returns the page of a message of page `own` that quotes one of page `quoted` (0: none).  A
 * general page, a multiple of 100, gives way to the quoted one. */
static int page_to_name(int own, int quoted) { return own % 100 || !quoted ? own : quoted; }

/* Sets the message and returns c.  A message may quote the old one, so it is first formatted in
 * another buffer.  `page` is that of docs/errors.md; 0: none, unless a quoted message has one. */
static int error_fail(int c, int page, const char *format, va_list arguments)
{
    char text[ERROR_BYTES + SUFFIX];
    int n = format ? wb__plain_list(text, ERROR_BYTES, format, arguments) : 0;
    if (n <= 0) snprintf(text, ERROR_BYTES, "%s", name_of_code(c));
    if (n >= ERROR_BYTES) memcpy(text + ERROR_BYTES - 4, "...", 4);
    page = page_to_name(page, remove_suffixes(text));
    n = (int)strlen(text);
    if (page && n > ERROR_BYTES - 1 - SUFFIX) {
        memcpy(text + ERROR_BYTES - 4 - SUFFIX, "...", 4);
        n = ERROR_BYTES - 1 - SUFFIX;
    }
    if (page) n += snprintf(text + n, SUFFIX + 1, " (W%04d)", page);
    for (int i = 0; i < n; i++)             /* names in files must not control a terminal */
        memset(text + i, '?', (size_t)wb__control_character(text + i));
    memcpy(wb__thread_text(WB__TEXT_ERROR), text, (size_t)n + 1);
    error_code = c;
    error_failures++;
    has_path = false;
    return c;
}

int wb__fail(int c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    error_fail(c, wb__mistake(c, format), format, arguments);
    va_end(arguments);
    return c;
}

int wb_fail(wb_status c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    error_fail(c > WB_OK && c < WB_ERROR_COUNT ? (int)c : WB_ERROR_ARGUMENT, 0, format, arguments);
    va_end(arguments);
    return error_code;
}

void *wb__fail_null(int c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    error_fail(c, wb__mistake(c, format), format, arguments);
    va_end(arguments);
    return NULL;
}

int wb__error_or(int otherwise) { return error_code ? (int)error_code : otherwise; }

bool wb__null(const char *function, const char *argument)
{
    if (error_code) return true;
    function += wb__begins(function, "wb_") ? 3 : 0;
    const char *with = strstr(function, "_with");
    const int n = with ? (int)(with - function) : (int)strlen(function);
    wb__fail(WB_ERROR_ARGUMENT, "%.*s: %s is NULL, and nothing failed before", n, function,
             argument);
    return true;
}

unsigned wb__failures(void) { return error_failures; }

void wb__failed_in(const char *folder, const char *part)
{
    char text[ERROR_BYTES];
    const char *dot = *part ? "." : "";
    snprintf(text, sizeof text, "%s%s%s%s%s", folder, dot, part, has_path ? "." : ": ", wb_error());
    memcpy(wb__thread_text(WB__TEXT_ERROR), text, sizeof text);
    has_path = true;
}

const char *wb_error(void) { return error_code ? wb__thread_text(WB__TEXT_ERROR) : ""; }

void wb__error_plain(char *to, size_t bytes)
{
    snprintf(to, bytes, "%s", wb_error());
    remove_suffixes(to);
}

wb_status wb_error_code(void) { return (wb_status)error_code; }

void wb_clear_error(void) { error_code = WB_OK; }

void wb__error_keep(wb__error_kept *k)
{
    k->code = error_code;
    if (error_code) memcpy(k->text, wb_error(), sizeof k->text);
}

void wb__error_restore(const wb__error_kept *k)
{
    error_code = k->code;
    if (error_code) memcpy(wb__thread_text(WB__TEXT_ERROR), k->text, sizeof k->text);
}
