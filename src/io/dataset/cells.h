/* The cells of a CSV file.  A cell may be in quotation marks; "" in them is one mark.  Blank lines
 * are skipped; lines end with \n or \r\n.
 *
 * What is called for each cell is in this header, so that the compiler inlines it. */
#ifndef WB__CELLS_H
#define WB__CELLS_H

#include "base/base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A cell: its text without the outer quotation marks. */
typedef struct {
    const char *text;
    int length;
    bool quoted;
} wb__cell;

/* The text of a file while it is read. */
typedef struct {
    const char *path, *text, *at, *end;     /* at: the next byte */
    char separator;
    int64_t line;                           /* the line of `at`, from 1 */
} wb__cells;

/* A place in the file for messages: "line 3, column 2 \"rooms\"".  The argument `column` counts
 * from 0, in messages from 1; column -1: only the line.  `name` may be NULL. */
typedef struct { char text[120]; } wb__cell_place;
wb__cell_place wb__cells_place(const wb__cells *t, int64_t column, const char *name);
/* Sets an error with a message of the place and of printf's arguments, and returns its code. */
int wb__cells_wrong(const wb__cells *t, const char *at, int64_t column, const char *name,
                    const char *format, ...) WB__PRINTF(5, 6);

/* Writes the text of a cell, without marks, and a 0, to `to`, which has room for c.length + 1
 * bytes.  Returns the end behind the 0.  NULL with the error set: the text has a byte 0. */
char *wb__cell_put(const wb__cells *t, wb__cell c, char *to);
/* Returns the text of a cell, without marks, which the caller frees.  NULL, with the error set: out
 * of memory, or the text has a byte 0. */
char *wb__cell_word(const wb__cells *t, wb__cell c);
/* Calls each(cell, ctx) for the cells of one line of text, "a,\"b,c\"", until one fails.  Returns
 * its status, or 0.  `what` names the list in messages. */
int wb__cells_of(const char *what, const char *list,
                 int (*each)(const wb__cells *t, wb__cell c, void *ctx), void *ctx);
/* Returns the most frequent of the separators ; TAB | and , other than the file's that are in the
 * line at `at`, outside of quotation marks, and sets *count; 0 if there is none. */
char wb__cells_other(const wb__cells *t, int64_t *count);

/* Between these two calls, numbers are read and written with a decimal point, whatever the
 * program's locale is. */
typedef struct { void *plain, *old; } wb__plain_locale;
bool wb__plain_begin(wb__plain_locale *l, const char *path);
void wb__plain_end(wb__plain_locale *l);

static inline bool wb__cell_blank(const wb__cells *t, char c)
{
    return (c == ' ' || c == '\t' || c == '\r') && c != t->separator;
}

/* Moves t->at to the next line with a cell.  Returns false at the end of the text. */
static inline bool wb__cells_next_line(wb__cells *t)
{
    for (;;) {
        const char *c = t->at;
        while (c < t->end && wb__cell_blank(t, *c)) c++;
        if (c == t->end) return false;
        if (*c != '\n') return true;
        t->at = c + 1;
        t->line++;
    }
}
/* Whether a line ends at t->at. */
static inline bool wb__cells_line_ends(const wb__cells *t)
{
    return t->at == t->end || *t->at == '\n';
}
/* Moves t->at behind the line that began at `start` and ends at t->at. */
static inline void wb__cells_end_line(wb__cells *t, const char *start)
{
    t->at += t->at < t->end;
    for (const char *c = start; c < t->at; c++) t->line += *c == '\n';  /* also in quotes */
    t->line += t->at == t->end && t->at[-1] != '\n';
}

/* Sets *f to the cell at t->at, without blanks and quotation marks around it.  Moves t->at to the
 * separator, the newline or the end of the text. */
static inline int wb__cells_next(wb__cells *t, int64_t column, wb__cell *f)
{
    while (t->at < t->end && wb__cell_blank(t, *t->at)) t->at++;
    const char *start = t->at;
    if (t->at < t->end && *t->at == '"') {
        for (t->at++; t->at < t->end; t->at++) {
            if (*t->at != '"') continue;
            if (t->at + 1 == t->end || t->at[1] != '"') break;
            t->at++;
        }
        if (t->at == t->end) return wb__cells_wrong(t, start, column, NULL, "a quote has no end");
        *f = (wb__cell){start + 1, (int)WB__MIN(t->at - start - 1, INT32_MAX), true};
        t->at++;
        while (t->at < t->end && wb__cell_blank(t, *t->at)) t->at++;
        if (t->at < t->end && *t->at != t->separator && *t->at != '\n')
            return wb__cells_wrong(t, t->at, column, NULL, "something follows the closing quote");
        return 0;
    }
    while (t->at < t->end && *t->at != t->separator && *t->at != '\n') t->at++;
    const char *last = t->at;
    while (last > start && wb__cell_blank(t, last[-1])) last--;
    *f = (wb__cell){start, (int)WB__MIN(last - start, INT32_MAX), false};
    return 0;
}

bool wb__cell_long_number(wb__cell f, double *value);       /* reads by strtod */

/* Sets *value to the cell's number; false: the cell is none.  Up to 16 digits that fit in 53 bits
 * are divided by a power of ten, which gives a correctly rounded double.  strtod reads other
 * numbers. */
static inline bool wb__cell_number(wb__cell f, double *value)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *c = f.text, *end = f.text + f.length;
    if (f.length <= 0 || f.length > 400) return false;
    bool negative = *c == '-';
    c += *c == '-' || *c == '+';
    uint64_t digits = 0;
    int count = 0, after = 0;
    for (; c < end && *c >= '0' && *c <= '9' && count < 16; c++, count++)
        digits = 10 * digits + (uint64_t)(*c - '0');
    if (c < end && *c == '.')
        for (c++; c < end && *c >= '0' && *c <= '9' && count < 16; c++, count++, after++)
            digits = 10 * digits + (uint64_t)(*c - '0');
    if (c == end && count && digits < (uint64_t)1 << 53) {
        *value = (double)digits / powers[after];
        if (negative) *value = -*value;
        return true;
    }
    return wb__cell_long_number(f, value);
}

#endif
