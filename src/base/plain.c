/* Texts of numbers with a decimal point, in every locale of the program (base.h). */
#include "base/base.h"
#include "base/mutex.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __APPLE__
#include <xlocale.h>            /* newlocale */
#endif

static locale_t plain_numbers;
static wb__once plain_numbers_once = WB__ONCE_INIT;
static void make_plain_locale(void)
{
    plain_numbers = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
}

/* Sets this thread's locale, and returns the one before; 0: it stays, since there is no memory. */
static locale_t use_plain_locale(void)
{
    wb__once_run(&plain_numbers_once, make_plain_locale);
    return plain_numbers ? uselocale(plain_numbers) : (locale_t)0;
}

static void restore_locale(locale_t before)
{
    if (before) uselocale(before);
}

int wb__plain_list(char *to, size_t bytes, const char *format, va_list arguments)
{
    const locale_t before = use_plain_locale();
    const int n = vsnprintf(to, bytes, format, arguments);
    restore_locale(before);
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
    const locale_t before = use_plain_locale();
    const double number = strtod(text, stop);
    restore_locale(before);
    return number;
}
