/* The cells of a CSV file: messages, words, lists, the locale. */
#include "io/dataset/cells.h"

#include "base/text.h"

#include <locale.h>
#include <stdio.h>
#ifdef __APPLE__
#include <xlocale.h>            /* newlocale */
#endif

wb__cell_place wb__cells_place(const wb__cells *t, int64_t column, const char *name)
{
    wb__cell_place p;
    int n = snprintf(p.text, sizeof p.text, "line %lld", (long long)t->line);
    if (column >= 0)
        n += snprintf(p.text + n, sizeof p.text - (size_t)n, ", column %lld",
                      (long long)column + 1);
    if (name) snprintf(p.text + n, sizeof p.text - (size_t)n, " \"%.60s\"", name);
    return p;
}

int wb__cells_wrong(const wb__cells *t, const char *at, int64_t column, const char *name,
                    const char *format, ...)
{
    char reason[512];
    va_list arguments;
    va_start(arguments, format);
    wb__plain_list(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return wb__fail(WB_ERROR_FORMAT, "%s: byte %lld (%s): %s", t->path, (long long)(at - t->text),
                    wb__cells_place(t, column, name).text, reason);
}

bool wb__cell_long_number(wb__cell f, double *value)
{
    char copy[401], *stop;
    if (f.length > 400) return false;
    memcpy(copy, f.text, (size_t)f.length);
    copy[f.length] = 0;
    if (strpbrk(copy, "xXpP( \t\n")) return false;      /* strtod would accept hexadecimal */
    *value = strtod(copy, &stop);
    return stop == copy + f.length && stop != copy && !isnan(*value);
}

char *wb__cell_put(const wb__cells *t, wb__cell c, char *to)
{
    if (memchr(c.text, 0, (size_t)c.length)) {
        wb__cells_wrong(t, c.text, -1, NULL, "a word with a byte 0");
        return NULL;
    }
    for (int i = 0; i < c.length; i++) {
        *to++ = c.text[i];
        i += c.quoted && c.text[i] == '"';              /* the second mark of two */
    }
    *to = 0;
    return to + 1;
}

char *wb__cell_word(const wb__cells *t, wb__cell c)
{
    char *word = wb__alloc((size_t)c.length + 1);
    if (!word || wb__cell_put(t, c, word)) return word;
    wb__free(word);
    return NULL;
}

int wb__cells_of(const char *what, const char *list,
                 int (*each)(const wb__cells *t, wb__cell c, void *ctx), void *ctx)
{
    wb__cells t = {.path = what, .text = list, .at = list, .end = list + strlen(list),
                   .separator = ',', .line = 1};
    for (int64_t column = 0;; column++) {
        wb__cell c;
        int status = wb__cells_next(&t, column, &c);
        if (!status) status = each(&t, c, ctx);
        if (status || wb__cells_line_ends(&t)) return status;
        t.at++;
    }
}

char wb__cells_other(const wb__cells *t, int64_t *count)
{
    static const char all[] = ";\t|,";
    int64_t counts[sizeof all] = {0};
    bool quoted = false;
    for (const char *c = t->at; c < t->end && (quoted || *c != '\n'); c++) {
        quoted ^= *c == '"';
        const char *found = quoted || !*c ? NULL : strchr(all, *c);
        if (found && *c != t->separator) counts[found - all]++;
    }
    int best = 0;
    for (int i = 1; i < (int)sizeof all - 1; i++)
        if (counts[i] > counts[best]) best = i;
    *count = counts[best];
    return *count ? all[best] : 0;
}

bool wb__plain_begin(wb__plain_locale *l, const char *path)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!plain) return wb__fail(WB_ERROR_MEMORY, "%s: no memory for a locale", path), false;
    *l = (wb__plain_locale){(void *)plain, (void *)uselocale(plain)};
    return true;
}

void wb__plain_end(wb__plain_locale *l)
{
    uselocale((locale_t)l->old);
    freelocale((locale_t)l->plain);
}
