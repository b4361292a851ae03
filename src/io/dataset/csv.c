/* Comma-separated numbers. A field may be quoted; "" in quotes is one quote. Blank lines are
 * skipped; lines end with \n or \r\n. Numbers are read as f64 and rounded to f32, independent of
 * the locale.
 *
 * Labels are collected as text first. If all are whole numbers they are the classes; if any is not
 * a number, all are names, and classes are numbered by their first appearance. */
#include "io/dataset/csv.h"

#include "base/files/file.h"
#include "io/borrow.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <xlocale.h>            /* newlocale */
#endif

typedef struct { const char *text; int length; } field;

typedef struct {
    const char *path, *text, *at, *end;
    char separator;
    int64_t line, columns, label;       /* line: from 1; label: column of the labels, -1: none */
    float *x;
    int64_t n, capacity;                /* of x */
    field *labels;
    int64_t rows, label_capacity;
} table;

static int wrong(const table *t, const char *at, int64_t column, const char *format, ...)
    WB__PRINTF(4, 5);
static int wrong(const table *t, const char *at, int64_t column, const char *format, ...)
{
    char reason[256], where[40] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    if (column >= 0) snprintf(where, sizeof where, ", column %lld", (long long)column);
    return wb__fail(WB_ERROR_FORMAT, "%s: byte %lld (line %lld%s): %s", t->path,
                    (long long)(at - t->text), (long long)t->line, where, reason);
}

/* ---- fields ---------------------------------------------------------------------------------- */

static bool is_blank(const table *t, char c)
{
    return (c == ' ' || c == '\t' || c == '\r') && c != t->separator;
}

/* Reads a field from t->at, without blanks and quotes around it. Moves t->at to the separator, the
 * newline or the end of the text. */
static int next_field(table *t, int64_t column, field *f)
{
    while (t->at < t->end && is_blank(t, *t->at)) t->at++;
    const char *start = t->at;
    if (t->at < t->end && *t->at == '"') {
        for (t->at++; t->at < t->end; t->at++) {
            if (*t->at != '"') continue;
            if (t->at + 1 == t->end || t->at[1] != '"') break;
            t->at++;
        }
        if (t->at == t->end) return wrong(t, start, column, "a quote has no end");
        *f = (field){start + 1, (int)WB__MIN(t->at - start - 1, INT32_MAX)};
        t->at++;
        while (t->at < t->end && is_blank(t, *t->at)) t->at++;
        if (t->at < t->end && *t->at != t->separator && *t->at != '\n')
            return wrong(t, t->at, column, "something follows the closing quote");
        return 0;
    }
    while (t->at < t->end && *t->at != t->separator && *t->at != '\n') t->at++;
    const char *last = t->at;
    while (last > start && is_blank(t, last[-1])) last--;
    *f = (field){start, (int)WB__MIN(last - start, INT32_MAX)};
    return 0;
}

/* Reads a number; false: the field is no number. Up to 16 digits that fit in 53 bits are divided by
 * a power of ten, which gives a correctly rounded double. strtod reads other numbers. */
static bool read_number(field f, double *value)
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
    char copy[401], *stop;
    memcpy(copy, f.text, (size_t)f.length);
    copy[f.length] = 0;
    if (strpbrk(copy, "xXpP( \t\n")) return false;  /* strtod would accept hexadecimal, nan(...) */
    *value = strtod(copy, &stop);
    return stop != copy && !*stop;
}

static void *grown(void *block, int64_t *capacity, size_t size)
{
    int64_t more = *capacity ? 2 * *capacity : 256;
    void *larger = wb__realloc(block, (size_t)more * size);
    if (larger) *capacity = more;
    return larger;
}

static int add_number(table *t, int64_t column, field f)
{
    double value;
    if (!f.length) return wrong(t, f.text, column, "no number");
    if (!read_number(f, &value))
        return wrong(t, f.text, column, "\"%.*s\" is not a number%s", WB__MIN(f.length, 60), f.text,
                     t->rows == 0 && t->line == 1 ? " (a line of names? then .header = true)" : "");
    if (t->n == t->capacity) {
        float *larger = grown(t->x, &t->capacity, sizeof *t->x);
        if (!larger) return WB_ERROR_MEMORY;
        t->x = larger;
    }
    t->x[t->n++] = (float)value;
    return 0;
}

static int add_label(table *t, int64_t column, field f)
{
    if (!f.length) return wrong(t, f.text, column, "no label");
    if (t->rows == t->label_capacity) {
        field *larger = grown(t->labels, &t->label_capacity, sizeof *t->labels);
        if (!larger) return WB_ERROR_MEMORY;
        t->labels = larger;
    }
    t->labels[t->rows] = f;
    return 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static bool skip_blank_lines(table *t)
{
    for (;;) {
        const char *c = t->at;
        while (c < t->end && (is_blank(t, *c))) c++;
        if (c == t->end) return false;
        if (*c != '\n') return true;
        t->at = c + 1;
        t->line++;
    }
}

/* Counts the columns of the line at t->at. Leaves t->at unchanged. */
static int count_columns(table *t, int64_t *columns)
{
    const char *start = t->at;
    field f;
    for (*columns = 1;; t->at++, ++*columns) {
        int status = next_field(t, *columns - 1, &f);
        if (status) return status;
        if (t->at == t->end || *t->at == '\n') break;
    }
    t->at = start;
    return 0;
}

static int read_line(table *t)
{
    const char *start = t->at;
    field f;
    for (int64_t column = 0; column < t->columns; column++) {
        int status = next_field(t, column, &f);
        if (!status)
            status = column == t->label ? add_label(t, column, f) : add_number(t, column, f);
        if (status) return status;
        bool last = t->at == t->end || *t->at == '\n';
        if (last != (column == t->columns - 1)) {
            if (last)
                return wrong(t, start, -1, "%lld columns instead of %lld", (long long)column + 1,
                             (long long)t->columns);
            return wrong(t, t->at, -1, "more than %lld columns", (long long)t->columns);
        }
        t->at += t->at < t->end;
    }
    for (const char *c = start; c < t->at; c++) t->line += *c == '\n';  /* also in quotes */
    t->line += t->at == t->end && t->at[-1] != '\n';
    t->rows++;
    return 0;
}

static int read_lines(table *t, const wb_load_csv_options *o)
{
    if (t->end - t->at >= 3 && !memcmp(t->at, "\xef\xbb\xbf", 3)) t->at += 3;
    if (o->header && skip_blank_lines(t)) {
        const char *newline = memchr(t->at, '\n', (size_t)(t->end - t->at));
        t->at = newline ? newline + 1 : t->end;
        t->line++;
    }
    if (!skip_blank_lines(t)) return wrong(t, t->at, -1, "no rows");
    int status = count_columns(t, &t->columns);
    if (status) return status;
    t->label = o->has_label ? o->label + (o->label < 0 ? t->columns : 0) : -1;
    if (o->has_label && (t->label < 0 || t->label >= t->columns))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: label column %d of %lld columns", t->path, o->label,
                        (long long)t->columns);
    while (!status && skip_blank_lines(t)) status = read_line(t);
    if (!status && t->n > UINT32_MAX) return wrong(t, t->at, -1, "2^32 numbers or more");
    return status;
}

/* ---- classes --------------------------------------------------------------------------------- */

/* Reads all labels into y as whole numbers. Returns 1: done; 0: a label is not a number; -1, with
 * the error set: all are numbers, but one is not whole or does not fit in an int32_t. */
static int whole_numbers(const table *t, int32_t *y)
{
    double value;
    int64_t bad = -1;
    for (int64_t i = 0; i < t->rows; i++) {
        if (!read_number(t->labels[i], &value)) return 0;
        if (value != trunc(value) || fabs(value) > INT32_MAX) bad = bad < 0 ? i : bad;
        else y[i] = (int32_t)value;
    }
    if (bad < 0) return 1;
    field f = t->labels[bad];
    wb__fail(WB_ERROR_FORMAT, "%s: byte %lld: the label \"%.*s\" is not a class, a whole number",
             t->path, (long long)(f.text - t->text), WB__MIN(f.length, 60), f.text);
    return -1;
}

/* Numbers the names by order of appearance, with a hash table that is at most half full. */
static int by_name(const table *t, int32_t *y)
{
    size_t size = 16;
    while (size < 2 * (size_t)t->rows) size *= 2;
    int64_t *first = wb__alloc_zero(size, sizeof *first);   /* 1 + the first row with the name */
    if (!first) return WB_ERROR_MEMORY;
    int32_t classes = 0;
    for (int64_t i = 0; i < t->rows; i++) {
        field f = t->labels[i];
        uint64_t hash = 0xcbf29ce484222325u;                        /* FNV-1a */
        for (int k = 0; k < f.length; k++)
            hash = (hash ^ (unsigned char)f.text[k]) * 0x100000001b3u;
        size_t at = (size_t)(hash ^ hash >> 32) & (size - 1);
        while (first[at] && (t->labels[first[at] - 1].length != f.length ||
                             memcmp(t->labels[first[at] - 1].text, f.text, (size_t)f.length)))
            at = (at + 1) & (size - 1);
        if (!first[at]) {
            first[at] = i + 1;
            y[i] = classes++;
        } else {
            y[i] = y[first[at] - 1];
        }
    }
    wb__free(first);
    return 0;
}

static int read_classes(const table *t, wb_tensor **y)
{
    int32_t *numbers = wb__alloc_aligned((size_t)t->rows * sizeof *numbers);
    if (!numbers) return WB_ERROR_MEMORY;
    int whole = whole_numbers(t, numbers);
    if (whole < 0 || (whole == 0 && by_name(t, numbers))) {
        wb__free(numbers);
        return wb_error_code();
    }
    *y = wb__borrow_block(numbers, WB_I32, 1, &t->rows);
    return *y ? 0 : (int)wb_error_code();
}

/* ---- the whole file -------------------------------------------------------------------------- */

static int read_table(table *t, const wb_load_csv_options *o, wb_tensor **x, wb_tensor **y)
{
    int status = read_lines(t, o);
    if (!status && t->label >= 0) status = read_classes(t, y);
    if (status) return status;
    float *fitting = t->n ? wb__realloc(t->x, (size_t)t->n * sizeof *t->x) : wb__alloc(1);
    if (!fitting) return WB_ERROR_MEMORY;
    t->x = NULL;
    *x = wb__borrow_block(fitting, WB_F32, 2, (int64_t[]){t->rows, t->columns - (t->label >= 0)});
    return *x ? 0 : (int)wb_error_code();
}

int wb__csv_read(const char *path, const wb_load_csv_options *o, wb_tensor **x, wb_tensor **y)
{
    int64_t bytes;
    *x = NULL;
    *y = WB_NONE;
    char *text = wb__file_read(path, &bytes);
    if (!text) return wb_error_code();
    table t = {.path = path, .text = text, .at = text, .end = text + bytes, .line = 1,
               .separator = o->separator ? o->separator : ','};
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0),
             old = plain ? uselocale(plain) : (locale_t)0;
    int status = plain ? read_table(&t, o, x, y)
                       : wb__fail(WB_ERROR_MEMORY, "%s: no memory for a locale", path);
    if (plain) {
        uselocale(old);
        freelocale(plain);
    }
    wb__free(t.x);
    wb__free(t.labels);
    wb__free(text);
    return status;
}
