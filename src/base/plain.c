/* Texts of numbers with a decimal point, in every locale of the program (base.h). */
#include "base/base.h"
#include "base/mutex.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __APPLE__
#include <xlocale.h>            /* newlocale */
#endif

static locale_t plain;
static wb__once once = WB__ONCE_INIT;
static void make(void) { plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0); }

/* The locale is one of the thread.  Without memory for another one it stays. */
static locale_t begin(void)
{
    wb__once_run(&once, make);
    return plain ? uselocale(plain) : (locale_t)0;
}

static void end(locale_t before)
{
    if (before) uselocale(before);
}

int wb__plain_list(char *to, size_t bytes, const char *format, va_list arguments)
{
    const locale_t before = begin();
    const int n = vsnprintf(to, bytes, format, arguments);
    end(before);
    return n;
}

int wb__plain(char *to, size_t bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = wb__plain_list(to, bytes, format, arguments);
    va_end(arguments);
    return n;
}

double wb__plain_number(const char *text, char **stop)
{
    const locale_t before = begin();
    const double number = strtod(text, stop);
    end(before);
    return number;
}
