/* The rows of a CSV file. */
#include "io/dataset/csv.h"

#include <stdio.h>

enum { MOST_ONE_HOT = 1000, MOST_WORDS = 1 << 24 };     /* numbers of words are exact in f32 */

static const char *csv_rows_name_of(char c)
{
    return c == ';' ? "';'" : c == '|' ? "'|'" : c == '\t' ? "'\\t'" : "','";
}

int wb__csv_check_separator(const wb__csv *t)
{
    const wb__cells *s = &t->cells;
    const char *end = memchr(s->at, '\n', (size_t)(s->end - s->at));
    int64_t count;
    const char other = wb__cells_other(s, &count);
    if (!other || memchr(s->at, s->separator, (size_t)((end ? end : s->end) - s->at))) return 0;
    const char own[] = {'\'', s->separator, '\'', 0};
    return wb__fail(WB_ERROR_FORMAT,
                    "%s: byte %lld (%s): no %s separates columns, but the line has %s %lld times: "
                    "then .separator = %s", s->path, (long long)(s->at - s->text),
                    wb__cells_place(s, -1, NULL).text, s->separator == '\t' ? "'\\t'" : own,
                    csv_rows_name_of(other), (long long)count, csv_rows_name_of(other));
}

/* Whether a cell of the row is a number. */
static bool row_has_number(const wb__csv *t)
{
    wb__cells s = t->cells;
    wb__cell f;
    double value;
    s.at = t->row;
    for (int64_t column = 0; !wb__cells_next(&s, column, &f); column++, s.at++) {
        if (wb__cell_number(f, &value)) return true;
        if (wb__cells_line_ends(&s)) break;
    }
    return false;
}

/* Writes the cause and the cure of a cell that is no number to `to`. */
static void csv_rows_explain(const wb__csv *t, const wb__column *k, wb__cell f, char *to,
                             size_t bytes)
{
    wb__cells s = {.text = f.text, .at = f.text, .end = f.text + f.length,
                   .separator = t->cells.separator};
    int64_t count;
    const char other = f.quoted ? 0 : wb__cells_other(&s, &count);
    const char *name = k->name ? k->name : "*";
    *to = 0;
    if (!t->c->header && !t->lines && !row_has_number(t))
        snprintf(to, bytes, ", nor is another cell of the line; a line of names? then .header = "
                 "true");
    else if (other == ',' && count == 1)
        snprintf(to, bytes, "; a number has a decimal point, not a comma");
    else if (other)
        snprintf(to, bytes, "; it has %s: another .separator?", csv_rows_name_of(other));
    else if (t->like)
        snprintf(to, bytes, "; the column has numbers in the file of .like");
    else if (k->role == WB__FEATURE)
        snprintf(to, bytes, "; .one_hot = \"%.60s\" makes columns of 0 and 1 of the words of a "
                 "column, .numbered numbers them%s", name,
                 k->name ? ", .skip leaves the column out" : "");
}

static int csv_rows_fail_word(const wb__csv *t, int64_t column, const wb__column *k, wb__cell f)
{
    char cure[300];
    csv_rows_explain(t, k, f, cure, sizeof cure);
    return wb__fail(WB_ERROR_FORMAT, "%s: byte %lld (%s): \"%.*s\" is not a number%s",
                    t->cells.path, (long long)(f.text - t->cells.text),
                    wb__cells_place(&t->cells, column, k->name).text, WB__MIN(f.length, 60), f.text,
                    cure);
}

/* Handles a cell without a value, or with a word that .like does not have. */
static int csv_rows_read_missing(wb__csv *t, int64_t column, const wb__column *k, wb__cell f,
                                 bool is_new)
{
    const char *cure = is_new ? "the file of .like does not have this word"
                       : t->like && k->role == WB__LABEL
                           ? "the columns of .like were read without WB_MISSING_DROP, which leaves "
                             "out such rows"
                       : t->like ? "the columns of .like were read without .missing"
                       : k->role == WB__LABEL
                           ? ".missing = WB_MISSING_DROP leaves out such rows"
                           : ".missing = WB_MISSING_MEAN or WB_MISSING_MEDIAN fills it in, "
                             "WB_MISSING_NAN makes it NaN, WB_MISSING_DROP leaves out such rows";
    t->incomplete = true;
    if (t->c->missing == WB_MISSING_DROP ||
        (t->c->missing != WB_MISSING_ERROR && k->role != WB__LABEL))
        return 0;
    const char *path = t->cells.path;
    const wb__cell_place place = wb__cells_place(&t->cells, column, k->name);
    const long long byte = (long long)(f.text - t->cells.text);
    if (!f.length)
        return wb__fail(WB_ERROR_FORMAT, "%s: byte %lld (%s): a value is missing; %s", path, byte,
                        place.text, cure);
    return wb__fail(WB_ERROR_FORMAT, "%s: byte %lld (%s): \"%.*s\": a value is missing; %s", path,
                    byte, place.text, WB__MIN(f.length, 60), f.text, cure);
}

/* Returns the name of a column in the file; NULL if it has none. */
static const char *csv_rows_column_name(const wb__csv *t, int64_t column)
{
    return (t->places ? t->places[column].column : &t->c->column[column])->name;
}

/* Makes the column one of words, at its first word. */
static int csv_rows_begin_words(wb__csv *t, int64_t column, wb__column *k, wb__cell f)
{
    const bool classes = k->role == WB__LABEL && !t->c->label_numbers;
    if (t->like || !(classes || (k->role == WB__FEATURE && (t->all_one_hot || t->all_numbered))))
        return csv_rows_fail_word(t, column, k, f);
    k->words = wb__alloc_zero(1, sizeof *k->words);
    if (!k->words) return WB_ERROR_MEMORY;
    k->words->one_hot = !classes && t->all_one_hot;
    k->words->found = !classes;
    t->again |= t->lines > 0;
    return 0;
}

/* Counts a cell of a column that the option "*" has made one of words. */
static void csv_rows_count_cell(const wb__csv *t, wb__words *w, wb__cell f)
{
    double value;
    if (wb__cell_number(f, &value)) {
        w->numbers++;
    } else if (!w->others++) {
        w->first = f.text - t->cells.text;
        w->line = t->cells.line;
        w->length = f.length;
    }
}

/* Returns an error code if most cells of a column that "*" made one of words are numbers: then its
 * words are probably mistakes. */
static int csv_rows_check_words(const wb__csv *t, int64_t column)
{
    const wb__column *k = &t->c->column[column];
    const wb__words *w = k->words;
    if (!w || !w->found || w->numbers <= w->others) return 0;
    const wb__cell f = {t->cells.text + w->first, w->length, false};
    wb__cells s = t->cells;
    s.line = w->line;
    char cure[120] = "";
    if (k->name)
        snprintf(cure, sizeof cure, ", .%s = \"*,%.60s\" has words in it on purpose",
                 w->one_hot ? "one_hot" : "numbered", k->name);
    return wb__fail(WB_ERROR_FORMAT,
                    "%s: byte %lld (%s): \"%.*s\" is not a number, as %lld of %lld cells of the "
                    "column are%s; .missing_texts makes it a missing value%s",
                    s.path, (long long)w->first, wb__cells_place(&s, column, k->name).text,
                    WB__MIN(f.length, 60), f.text, (long long)w->numbers,
                    (long long)(w->numbers + w->others),
                    memchr(f.text, ',', (size_t)f.length)
                        ? ", and a number has a decimal point, not a comma" : "", cure);
}

static int csv_rows_read_word(wb__csv *t, int64_t column, wb__column *k, wb__cell f, int32_t *word)
{
    double value;
    if (t->like) {
        *word = wb__words_find(k->words, f);
        return *word < 0 ? csv_rows_read_missing(t, column, k, f, true) : 0;
    }
    if (t->only_words && t->lines == 1 && wb__cell_number(f, &value))
        return wb__cells_wrong(&t->cells, f.text, column, k->name,
                               "a number, where the line before has a word, as it has everywhere; "
                               "a line of names? then .header = true");
    *word = wb__words_add(k->words, &t->cells, f);
    if (*word < 0) return wb_error_code();
    if (k->words->found) csv_rows_count_cell(t, k->words, f);
    const int most = k->words->one_hot ? MOST_ONE_HOT : MOST_WORDS;
    if (k->words->n <= most) return 0;
    if (csv_rows_check_words(t, column)) return wb_error_code();
    return wb__cells_wrong(&t->cells, f.text, column, k->name,
                           "more than %d words%s%s", most,
                           k->name ? "; .skip leaves out the column" : "",
                           !k->words->one_hot ? "" : k->name ? ", .numbered gives words numbers"
                                                             : "; .numbered gives words numbers");
}

static void csv_rows_record(wb__csv_found *found, const wb__csv *t, int64_t column, wb__cell f)
{
    if (!found->cell.text) *found = (wb__csv_found){f, t->cells.line, column};
}

/* Sets the error that a number is infinite as f32, and returns its code. */
static int not_finite(const wb__csv *t, int64_t line, int64_t column, wb__cell f)
{
    wb__cells s = t->cells;
    bool digits = false;
    s.line = line;
    for (int i = 0; i < f.length; i++) digits |= f.text[i] >= '0' && f.text[i] <= '9';
    return wb__cells_wrong(&s, f.text, column, csv_rows_column_name(t, column), "\"%.*s\" is %s",
                           WB__MIN(f.length, 60), f.text,
                           digits ? "too large for f32, which ends at 3.4e38" : "not finite");
}

/* Sets *to to a number of x, or of y as f32. */
static int csv_rows_set_number(wb__csv *t, int64_t column, wb__cell f, double value,
                               wb__csv_value *to)
{
    to->number = (float)value;
    if (isfinite(to->number)) return 0;
    if (!t->all_one_hot && !t->all_numbered) return not_finite(t, t->cells.line, column, f);
    csv_rows_record(&t->infinite, t, column, f);
    return 0;
}

/* Sets *to to a cell that is not a number of a feature. */
static int csv_rows_read_cell(wb__csv *t, int64_t column, wb__column *k, wb__cell f,
                              wb__csv_value *to)
{
    double value;
    if (k->words) to->word = -1;
    else to->number = NAN;
    if (!f.length || wb__columns_gap(t->c, f)) return csv_rows_read_missing(t, column, k, f, false);
    if (!k->words && wb__cell_number(f, &value)) {
        if (k->role == WB__FEATURE || t->c->label_numbers) {
            return csv_rows_set_number(t, column, f, value, to);
        } else if (value == trunc(value) && fabs(value) <= INT32_MAX) {
            to->word = (int32_t)value;
        } else {
            csv_rows_record(&t->fraction, t, column, f);
        }
        return 0;
    }
    const int status = k->words ? 0 : csv_rows_begin_words(t, column, k, f);
    return status ? status : csv_rows_read_word(t, column, k, f, &to->word);
}

static bool csv_rows_reserve(wb__csv *t)
{
    if (t->rows < t->capacity) return true;
    const int64_t width = t->features + t->labels;
    const int64_t rows = t->capacity ? 2 * t->capacity : WB__MAX(256 / width, 1);
    const size_t bytes = sizeof *t->x;
    wb__csv_value *x = wb__realloc(t->x, (size_t)(rows * t->features) * bytes);
    if (!x) return false;
    t->x = x;
    wb__csv_value *y = t->labels ? wb__realloc(t->y, (size_t)(rows * t->labels) * bytes) : t->y;
    if (t->labels && !y) return false;
    t->y = y;
    t->capacity = rows;
    return true;
}

/* Sets the error that the line has more or fewer columns than the heading or the first row. */
static int csv_rows_fail_length(const wb__csv *t, int64_t column, bool ends)
{
    if (ends)
        return wb__cells_wrong(&t->cells, t->row, -1, NULL, "%lld columns instead of %lld",
                               (long long)column + 1, (long long)t->n);
    return wb__cells_wrong(&t->cells, t->cells.at, -1, NULL, "more than %lld columns",
                           (long long)t->n);
}

static int csv_rows_read_row(wb__csv *t)
{
    wb__cells *s = &t->cells;
    if (!csv_rows_reserve(t)) return WB_ERROR_MEMORY;
    wb__csv_value *x = t->x + t->rows * t->features, *y = t->y + t->rows * t->labels;
    const struct wb__csv_place *places = t->places;
    wb__column *columns = t->c->column;
    const bool plain = !t->c->n_gap_numbers;
    const int64_t n = t->n;
    wb__cell f;
    double value;
    t->row = s->at;
    t->incomplete = false;
    for (int64_t column = 0; column < n; column++) {
        int status = wb__cells_next(s, column, &f);
        if (status) return status;
        wb__column *k = places ? places[column].column : &columns[column];
        if (k && k->role != WB__LEFT_OUT) {
            const bool label = k->role == WB__LABEL;
            wb__csv_value *to = places ? (label ? y : x) + places[column].at : label ? y++ : x++;
            if (plain && !label && !k->words && wb__cell_number(f, &value))
                status = csv_rows_set_number(t, column, f, value, to);
            else
                status = csv_rows_read_cell(t, column, k, f, to);
            if (status) return status;
        }
        const bool ends = wb__cells_line_ends(s);
        if (ends != (column == n - 1)) return csv_rows_fail_length(t, column, ends);
        if (!ends) s->at++;
    }
    wb__cells_end_line(s, t->row);
    t->rows += !(t->incomplete && t->c->missing == WB_MISSING_DROP);
    return 0;
}

int wb__csv_rows(wb__csv *t)
{
    int status = 0;
    t->rows = t->lines = 0;
    t->again = false;
    t->fraction.cell.text = t->infinite.cell.text = NULL;
    wb__words *w;
    for (int64_t i = 0; i < t->c->n && !t->like; i++)
        if ((w = t->c->column[i].words)) w->numbers = w->others = 0;
    while (!status && wb__cells_next_line(&t->cells)) {
        status = csv_rows_read_row(t);
        if (!t->lines++) t->only_words = !t->like && !t->c->header && !row_has_number(t);
    }
    if (status || t->again) return status;
    if (t->infinite.cell.text)
        return not_finite(t, t->infinite.line, t->infinite.column, t->infinite.cell);
    for (int64_t i = 0; i < t->c->n && !t->like; i++)
        if (csv_rows_check_words(t, i)) return wb_error_code();
    if (!t->rows)
        return wb__cells_wrong(&t->cells, t->cells.at, -1, NULL,
                               "no row is left of %lld with .missing = WB_MISSING_DROP",
                               (long long)t->lines);
    if (t->rows > UINT32_MAX / t->features)
        return wb__cells_wrong(&t->cells, t->cells.at, -1, NULL, "2^32 numbers or more");
    return 0;
}
