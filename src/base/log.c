/* The log in the format of Julia, the topics of WEBER_DEBUG, the clock, and the version of the
 * library. */
#include "base/base.h"
#include "base/environment.h"
#include "base/mutex.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_TEXT_(x) #x
#define LOG_TEXT(x) LOG_TEXT_(x)

const char *wb_version(void)
{
    return LOG_TEXT(WB_VERSION_MAJOR) "." LOG_TEXT(WB_VERSION_MINOR) "." LOG_TEXT(WB_VERSION_PATCH);
}

static wb__mutex handler_lock = WB__MUTEX_INIT;
static struct { wb_log_handler call; void *context; } log_handler;

void wb_set_log(wb_log_handler call, void *context)
{
    wb__mutex_lock(&handler_lock);
    log_handler.call = call;
    log_handler.context = context;
    wb__mutex_unlock(&handler_lock);
}

/* Prints a text of one line as "[ Info: text", and a longer text as
 *     ┌ Warning: first
 *     │ next
 *     └ last */
static void log_print(wb_log_level level, const char *text)
{
    static const char *const names[] = {"Debug", "Info", "Warning", "Error"};
    const char *name = names[(unsigned)level < WB__COUNT(names) ? level : WB_LOG_INFO];
    size_t length = strlen(text);
    while (length && text[length - 1] == '\n') length--;
    const char *end = text + length, *line_end = memchr(text, '\n', length);
    flockfile(stderr);
    if (!line_end) {
        fprintf(stderr, "[ %s: %.*s\n", name, (int)length, text);
    } else {
        fprintf(stderr, "┌ %s: %.*s\n", name, (int)(line_end - text), text);
        for (const char *line = line_end + 1; line <= end; line = line_end + 1) {
            line_end = memchr(line, '\n', (size_t)(end - line));
            bool last = !line_end;
            if (last) line_end = end;
            fprintf(stderr, "%s %.*s\n", last ? "└" : "│", (int)(line_end - line), line);
        }
    }
    funlockfile(stderr);
}

_Thread_local int wb__thread_rank;
static bool _Atomic without_info;
void wb__log_without_info(bool without) { without_info = without; }

/* Returns the text with escapes in place of characters that control a terminal, which names in
 * files and values of variables may have.  *clean: a block that the caller frees, or NULL. */
static const char *log_escaped(const char *text, char **clean)
{
    wb__text t = {0};
    const char *at = text;
    *clean = NULL;
    while (*at && !wb__control_character(at) && wb__utf8(at, SIZE_MAX))
        at += wb__utf8(at, SIZE_MAX);
    if (!*at) return text;
    wb__text_foreign_lines(&t, text);
    *clean = wb__text_take(&t);
    return *clean ? *clean : "a message that needs more memory than there is";
}

WB__PROGRAM_CALL(handler_call, handler_run, int,
                 wb_log_handler f; wb_log_level level; const char *text; void *context;,
                 (c->f(c->level, c->text, c->context), 0))

void wb__log(wb_log_level level, const char *format, ...)
{
    if (level == WB_LOG_INFO && (without_info || wb__thread_rank > 1)) return;
    char text[2048], *all = text;
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int n = wb__plain_list(text, sizeof text, format, arguments);
    va_end(arguments);
    if (n >= (int)sizeof text) {            /* if this fails the beginning is printed */
        char *longer = wb__alloc((size_t)n + 1);
        if (longer) wb__plain_list(all = longer, (size_t)n + 1, format, again);
    }
    va_end(again);
    if (n < 0) return;
    wb__mutex_lock(&handler_lock);
    wb_log_handler call = log_handler.call;
    void *context = log_handler.context;
    wb__mutex_unlock(&handler_lock);
    char *clean;
    const char *safe = log_escaped(all, &clean);
    if (call) wb__call_caught(handler_run, &(handler_call){call, level, safe, context, 0});
    else log_print(level, safe);
    wb__free(clean);
    if (all != text) wb__free(all);
}

static char log_topics[256];    /* WEBER_DEBUG with commas around each topic: ",plan,kernel," */
static wb__once topics_once = WB__ONCE_INIT;

static void read_topics(void)
{
    const char *value = wb__environment_text("WEBER_DEBUG");
    if (!value || !*value) return;
    size_t n = 0;
    log_topics[n++] = ',';
    for (; *value && n < sizeof log_topics - 2; value++)
        if (*value != ' ') log_topics[n++] = *value;
    log_topics[n++] = ',';
}

static bool log_has_topic(const char *topic)
{
    size_t length = strlen(topic);
    for (const char *at = log_topics; (at = strstr(at, topic)); at++)
        if (at > log_topics && at[-1] == ',' && at[length] == ',') return true;
    return false;
}

bool wb__debug(const char *topic)
{
    wb__once_run(&topics_once, read_topics);
    return wb__unlikely(log_topics[0]) && (log_has_topic(topic) || log_has_topic("all"));
}

double wb__now(void) { return 1e-9 * (double)wb__os_clock(WB__OS_STEADY); }
