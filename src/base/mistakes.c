/* Finds the page of docs/errors.md for a message. */
#include "base/mistakes.h"

#include "base/base.h"

#include <string.h>

#define MISTAKES_PAGE(number) (1##number - 10000) /* 0201 alone would be an octal number */

static const struct { int page, status; const char *text; } mistakes_rows[] = {
#define WB_MISTAKE(number, STATUS, text) {MISTAKES_PAGE(number), WB_ERROR_##STATUS, text},
#include "base/mistakes.def"
#undef WB_MISTAKE
};

int wb__mistake(int status, const char *format)
{
    for (size_t i = 0; format && i < WB__COUNT(mistakes_rows); i++)
        if (mistakes_rows[i].status == status && strstr(format, mistakes_rows[i].text))
            return mistakes_rows[i].page;
    return 100 * status;
}
