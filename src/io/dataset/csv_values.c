/* The values of a CSV file as tensors: numbers of words, missing values, one-hot columns. */
#include "io/dataset/csv.h"

#include "io/borrow.h"

/* One column of x or y in memory: `rows` values, `step` apart. */
typedef struct { wb__csv_value *first; int64_t step, rows; } csv_values_strip;

/* Numbers the words of a column in the order of their bytes.  Words that only rows left out have
 * are removed. */
static int csv_values_renumber(wb__column *k, csv_values_strip s)
{
    const int n = k->words->n;
    int64_t *uses = wb__alloc_zero((size_t)n + 1, sizeof *uses);
    int32_t *rank = uses ? wb__alloc_zero((size_t)n + 1, sizeof *rank) : NULL;
    int status = rank ? 0 : WB_ERROR_MEMORY;
    for (int64_t i = 0; !status && i < s.rows; i++) {
        const int32_t word = s.first[i * s.step].word;
        if (word >= 0) uses[word]++;
    }
    if (!status) status = wb__words_sort(k->words, uses, rank);
    for (int64_t i = 0; !status && i < s.rows; i++) {
        int32_t *word = &s.first[i * s.step].word;
        if (*word >= 0) *word = rank[*word];
    }
    wb__free(uses);
    wb__free(rank);
    return status;
}

/* ---- missing values -------------------------------------------------------------------------- */

static int csv_values_by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Sets *result to the mean of the numbers; NaN if there is none. */
static int csv_values_mean_of(csv_values_strip s, float *result)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < s.rows; i++) {
        const float x = s.first[i * s.step].number;
        if (!isnan(x)) sum += x, n++;
    }
    *result = n ? (float)(sum / (double)n) : NAN;
    return 0;
}

static int csv_values_median_of(csv_values_strip s, float *result)
{
    float *all = wb__alloc((size_t)s.rows * sizeof *all);
    if (!all) return WB_ERROR_MEMORY;
    int64_t n = 0;
    for (int64_t i = 0; i < s.rows; i++) {
        const float x = s.first[i * s.step].number;
        if (!isnan(x)) all[n++] = x;
    }
    if (n) qsort(all, (size_t)n, sizeof *all, csv_values_by_value);
    *result = n ? (float)(((double)all[(n - 1) / 2] + all[n / 2]) / 2) : NAN;
    wb__free(all);
    return 0;
}

/* Sets *result to the first of the most frequent words. */
static int frequent_of(const wb__words *w, csv_values_strip s, float *result)
{
    int64_t *uses = wb__alloc_zero((size_t)w->n + 1, sizeof *uses);
    if (!uses) return WB_ERROR_MEMORY;
    int best = 0;
    for (int64_t i = 0; i < s.rows; i++) {
        const int32_t word = s.first[i * s.step].word;
        if (word >= 0) uses[word]++;
    }
    for (int i = 1; i < w->n; i++)
        if (uses[i] > uses[best]) best = i;
    *result = w->n ? (float)best : NAN;
    wb__free(uses);
    return 0;
}

static int csv_values_find_fill(const wb__csv *t, int64_t column, csv_values_strip s)
{
    wb__column *k = &t->c->column[column];
    const int status = k->words                              ? frequent_of(k->words, s, &k->fill)
                       : t->c->missing == WB_MISSING_MEDIAN ? csv_values_median_of(s, &k->fill)
                                                             : csv_values_mean_of(s, &k->fill);
    if (status || !isnan(k->fill)) return status;
    return wb__cells_wrong(&t->cells, t->cells.at, column, k->name,
                           "no value in the whole column%s",
                           k->name ? "; .skip leaves it out" : "");
}

/* Logs a warning of a column in which many rows have a word of their own, such as a customer's
 * number. */
static void report_many_words(const wb__csv *t, int64_t column)
{
    enum { USUAL = 20 };
    const wb__column *k = &t->c->column[column];
    const int n = k->words && k->words->one_hot && !t->like ? k->words->n : 0;
    if (n > USUAL && 2 * n > t->rows)
        wb__log(WB_LOG_WARN, "%s: column %lld%s%s has %d different words in %lld rows, each of "
                "which is a column of x: .skip leaves it out", t->cells.path,
                (long long)column + 1, k->name ? ", " : "", k->name ? k->name : "", n,
                (long long)t->rows);
}

/* Sets, for each column, the numbers of its words and what replaces missing values. */
static int csv_values_finish_columns(const wb__csv *t)
{
    wb_columns *c = t->c;
    int64_t x = 0, y = 0;
    for (int64_t i = 0; i < c->n; i++) {
        wb__column *k = &c->column[i];
        if (k->role == WB__LEFT_OUT) continue;
        const bool label = k->role == WB__LABEL;
        const csv_values_strip s = label ? (csv_values_strip){t->y + y++, t->labels, t->rows}
                                         : (csv_values_strip){t->x + x++, t->features, t->rows};
        int status = k->words ? csv_values_renumber(k, s) : 0;
        if (!status && !label &&
            (c->missing == WB_MISSING_MEAN || c->missing == WB_MISSING_MEDIAN))
            status = csv_values_find_fill(t, i, s);
        if (status) return status;
        if (!label) report_many_words(t, i);
    }
    return 0;
}

/* Writes one value of a row, and returns where the next one belongs. */
static float *csv_values_put_value(const wb__column *k, wb__csv_value from, float *to)
{
    if (!k->words) {
        *to = isnan(from.number) ? k->fill : from.number;
        return to + 1;
    }
    const int32_t fill = isnan(k->fill) ? -1 : (int32_t)k->fill;
    const int32_t word = from.word < 0 ? fill : from.word;
    if (!k->words->one_hot) {
        *to = word < 0 ? NAN : (float)word;
        return to + 1;
    }
    memset(to, 0, (size_t)k->words->n * sizeof *to);
    if (word >= 0) to[word] = 1;
    return to + k->words->n;
}

/* Whether the rows in memory are x already: no column has words or replaces missing values. */
static bool csv_values_is_plain(const wb_columns *c)
{
    for (int64_t i = 0; i < c->n; i++)
        if (c->column[i].role == WB__FEATURE && (c->column[i].words || !isnan(c->column[i].fill)))
            return false;
    return true;
}

static void *csv_values_shrink_block(wb__csv_value **block, int64_t n)
{
    void *fitting = wb__realloc(*block, (size_t)n * sizeof **block);
    if (fitting) *block = NULL;
    return fitting;
}

static wb_tensor *csv_values_make_x(wb__csv *t)
{
    const wb_columns *c = t->c;
    const int64_t width = wb__columns_width(c);
    if (!width)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: x has no column: no column of words has a word",
                             t->cells.path);
    if (csv_values_is_plain(c))
        return wb__borrow_block(csv_values_shrink_block(&t->x, t->rows * width), WB_F32, 2,
                                (int64_t[]){t->rows, width});
    if (t->rows > UINT32_MAX / width)
        return wb__fail_null(WB_ERROR_FORMAT, "%s: %lld rows with %lld numbers are 2^32 or more",
                             t->cells.path, (long long)t->rows, (long long)width);
    float *x = wb__alloc_aligned((size_t)(t->rows * width) * sizeof *x), *to = x;
    for (int64_t i = 0; x && i < t->rows; i++) {
        const wb__csv_value *from = t->x + i * t->features;
        for (int64_t k = 0; k < c->n; k++)
            if (c->column[k].role == WB__FEATURE)
                to = csv_values_put_value(&c->column[k], *from++, to);
    }
    return wb__borrow_block(x, WB_F32, 2, (int64_t[]){t->rows, width});
}

static wb_tensor *csv_values_make_y(wb__csv *t)
{
    if (!t->labels) return WB_NONE;
    const bool numbers = t->c->label_numbers;
    const int64_t dims[] = {t->rows, t->labels};
    void *y = csv_values_shrink_block(&t->y, t->rows * t->labels);
    return wb__borrow_block(y, numbers ? WB_F32 : WB_I32, numbers || t->labels > 1 ? 2 : 1, dims);
}

/* Returns an error code if a label that is a number is no class. */
static int check_classes(const wb__csv *t)
{
    bool numbers = false;
    for (int64_t i = 0; i < t->c->n; i++)
        numbers |= t->c->column[i].role == WB__LABEL && !t->c->column[i].words;
    if (!t->fraction.cell.text || !numbers) return 0;
    const wb__cell f = t->fraction.cell;
    double value = 0;
    wb__cell_number(f, &value);
    return wb__fail(WB_ERROR_FORMAT, "%s: byte %lld (line %lld): the label \"%.*s\" is not a "
                    "class, a whole number%s; .label_dtype = WB_F32 makes numbers of labels",
                    t->cells.path, (long long)(f.text - t->cells.text), (long long)t->fraction.line,
                    WB__MIN(f.length, 60), f.text,
                    value == trunc(value) ? " of up to 2147483647" : "");
}

int wb__csv_finish(wb__csv *t, wb_tensor **x, wb_tensor **y)
{
    int status = check_classes(t);
    if (!status && !t->like) status = csv_values_finish_columns(t);
    if (status) return status;
    *x = csv_values_make_x(t);
    *y = *x ? csv_values_make_y(t) : NULL;
    return *y ? 0 : (int)wb_error_code();
}
