/* Columns as a file, itself CSV with three cells a line:
 *
 *     weber columns,1,
 *     header,yes,
 *     missing,mean,
 *     missing texts,"NA,N/A",
 *     label,numbers,
 *     numbers,rooms,5.25          name, and what replaces a missing value
 *     one-hot,colour,0            here the number of a word
 *     word,blue,
 *     word,red,
 *     left out,id,
 *     y,price,
 *
 * A word belongs to the column before it. */
#include "io/dataset/columns.h"

#include "base/files/file.h"
#include "engine/compiled/recording.h"

#include <stdio.h>

enum { COLUMNS_FILE_NUMBERS, ONE_HOT, NUMBERED, CLASSES, COLUMNS_FILE_Y, LEFT_OUT,
       COLUMNS_FILE_KINDS };
static const char *const columns_file_kinds[COLUMNS_FILE_KINDS] = {"numbers", "one-hot", "numbered",
                                                                   "classes", "y",
                                                                         "left out"};
static const char *const columns_file_policies[] = {"error", "nan", "mean", "median", "drop"};

static int columns_file_kind_of(const wb__column *k)
{
    if (k->role == WB__LEFT_OUT) return LEFT_OUT;
    if (k->role == WB__LABEL) return k->words ? CLASSES : COLUMNS_FILE_Y;
    return !k->words ? COLUMNS_FILE_NUMBERS : k->words->one_hot ? ONE_HOT : NUMBERED;
}

static void columns_file_add_cell(wb__text *t, const char *text)
{
    wb__text_raw(t, "\"", 1);
    for (const char *c = text; *c; c++) wb__text_raw(t, *c == '"' ? "\"\"" : c, *c == '"' ? 2 : 1);
    wb__text_raw(t, "\"", 1);
}

static void columns_file_add_line(wb__text *t, const char *kind, const char *value, float fill)
{
    wb__text_add(t, "%s,", kind);
    columns_file_add_cell(t, value);
    if (isnan(fill)) wb__text_add(t, ",\n");
    else wb__text_add(t, ",%.9g\n", (double)fill);
}

static void columns_file_add_columns(wb__text *t, const wb_columns *c)
{
    columns_file_add_line(t, "weber columns", "1", NAN);
    columns_file_add_line(t, "header", c->header ? "yes" : "no", NAN);
    columns_file_add_line(t, "missing", columns_file_policies[c->missing], NAN);
    columns_file_add_line(t, "missing texts", c->missing_texts, NAN);
    columns_file_add_line(t, "label", c->label_numbers ? "numbers" : "classes", NAN);
    for (int64_t i = 0; i < c->n; i++) {
        const wb__column *k = &c->column[i];
        columns_file_add_line(t, columns_file_kinds[columns_file_kind_of(k)],
                              k->name ? k->name : "", k->fill);
        for (int w = 0; k->words && w < k->words->n; w++)
            columns_file_add_line(t, "word", k->words->list[w], NAN);
    }
}

int wb_save_columns(const char *path, const wb_columns *c)
{
    WB__FIRST(wb_save_columns, wb_error_code());
    if (!wb__expect("save_columns", c, &wb__columns_class)) return wb__error_or(WB_ERROR_ARGUMENT);
    if (WB__NULL(path)) return wb__error_or(WB_ERROR_ARGUMENT);
    wb__plain_locale locale;
    wb__text t = {0};
    if (!wb__plain_begin(&locale, path)) return wb_error_code();
    columns_file_add_columns(&t, c);
    wb__plain_end(&locale);
    const int64_t bytes = (int64_t)t.length;
    char *text = wb__text_take(&t);
    const int status = text ? wb__file_write(path, text, bytes) : (int)wb_error_code();
    wb__free(text);
    return status;
}

typedef struct {
    wb__cells cells;
    wb_columns *c;                      /* the columns that are read */
    int capacity;                       /* size of the list of columns */
    wb__cell cell[3];                   /* the cells of the last line */
    char *value;                        /* the text of cell[1] */
} columns_file;

static bool columns_file_cell_is(wb__cell f, const char *text)
{
    return (size_t)f.length == strlen(text) && !memcmp(f.text, text, (size_t)f.length);
}

/* Returns the index of a cell's text among n texts; -1 with the error set. */
static int columns_file_one_of(const columns_file *f, wb__cell cell, int n,
                               const char *const *texts)
{
    for (int i = 0; i < n; i++)
        if (columns_file_cell_is(cell, texts[i])) return i;
    wb__cells_wrong(&f->cells, cell.text, -1, NULL, "\"%.*s\" has no meaning here",
                    WB__MIN(cell.length, 60), cell.text);
    return -1;
}

/* Reads the next line, of three cells, into f->cell. */
static int columns_file_next_line(columns_file *f)
{
    wb__cells *s = &f->cells;
    const char *start = s->at;
    if (!wb__cells_next_line(s)) return wb__cells_wrong(s, s->at, -1, NULL, "the file ends early");
    start = s->at;
    for (int i = 0; i < 3; i++) {
        const int status = wb__cells_next(s, i, &f->cell[i]);
        if (status) return status;
        if (wb__cells_line_ends(s) != (i == 2))
            return wb__cells_wrong(s, start, -1, NULL, "a line has three columns");
        if (i < 2) s->at++;
    }
    wb__cells_end_line(s, start);
    wb__free(f->value);
    f->value = wb__cell_word(s, f->cell[1]);
    return f->value ? 0 : (int)wb_error_code();
}

/* Reads a line of this kind, and sets *value to the index of the line's value among n texts. */
static int columns_file_read_setting(columns_file *f, const char *kind, int n,
                                     const char *const *texts, int *value)
{
    const int status = columns_file_next_line(f);
    if (status) return status;
    if (columns_file_one_of(f, f->cell[0], 1, &kind) < 0) return wb_error_code();
    *value = n ? columns_file_one_of(f, f->cell[1], n, texts) : 0;
    return *value < 0 ? (int)wb_error_code() : 0;
}

static int columns_file_read_head(columns_file *f)
{
    static const char *const one[] = {"1"}, *const yes[] = {"no", "yes"},
                            *const labels[] = {"classes", "numbers"};
    int header, missing = 0, numbers = 0, any;
    int status = columns_file_read_setting(f, "weber columns", 1, one, &any);
    if (!status) status = columns_file_read_setting(f, "header", 2, yes, &header);
    if (!status)
        status = columns_file_read_setting(f, "missing", (int)WB__COUNT(columns_file_policies),
                                           columns_file_policies, &missing);
    if (!status) status = columns_file_read_setting(f, "missing texts", 0, NULL, &any);
    if (status) return status;
    f->c = wb__columns_new((wb_missing)missing, f->value);
    if (!f->c) return wb_error_code();
    f->c->header = header;
    status = columns_file_read_setting(f, "label", 2, labels, &numbers);
    f->c->label_numbers = numbers;
    return status;
}

/* Whether the fill of a column of words is one of its words or empty. */
static int columns_file_check_column(const columns_file *f)
{
    const wb__column *k = f->c->n ? &f->c->column[f->c->n - 1] : NULL;
    if (!k || !k->words || isnan(k->fill) || (k->fill >= 0 && k->fill < (float)k->words->n))
        return 0;
    return wb__cells_wrong(&f->cells, f->cells.at, -1, NULL,
                           "column %lld has %d words, and word %g for missing values",
                           (long long)f->c->n, k->words->n, (double)k->fill);
}

static int columns_file_read_column(columns_file *f)
{
    wb_columns *c = f->c;
    const int kind = columns_file_one_of(f, f->cell[0], COLUMNS_FILE_KINDS, columns_file_kinds);
    if (kind < 0 || columns_file_check_column(f)) return wb_error_code();
    if (kind == CLASSES && c->label_numbers)
        return wb__cells_wrong(&f->cells, f->cell[0].text, -1, NULL,
                               "classes, but the labels are numbers");
    if (!wb__reserve(&c->column, &f->capacity, (int)c->n + 1, sizeof *c->column))
        return WB_ERROR_MEMORY;
    double fill = NAN;
    if (f->cell[2].length && (!wb__cell_number(f->cell[2], &fill) || !isfinite((float)fill)))
        return wb__cells_wrong(&f->cells, f->cell[2].text, -1, NULL, "no number");
    wb__column *k = &c->column[c->n++];
    *k = (wb__column){.fill = (float)fill, .name = c->header ? f->value : NULL};
    if (c->header) f->value = NULL;
    k->role = kind == LEFT_OUT                            ? WB__LEFT_OUT
              : kind == COLUMNS_FILE_Y || kind == CLASSES ? WB__LABEL
                                                          : WB__FEATURE;
    c->labels += k->role == WB__LABEL;
    if (kind != ONE_HOT && kind != NUMBERED && kind != CLASSES) return 0;
    k->words = wb__alloc_zero(1, sizeof *k->words);
    if (!k->words) return WB_ERROR_MEMORY;
    k->words->one_hot = kind == ONE_HOT;
    return 0;
}

static int columns_file_add_word(const columns_file *f, wb__words *w)
{
    const int n = w ? w->n : 0;
    const int at = w ? wb__words_add(w, &f->cells, f->cell[1]) : -1;
    if (w && at < 0) return wb_error_code();
    if (w && at == n) return 0;
    return wb__cells_wrong(&f->cells, f->cell[1].text, -1, NULL,
                           "a word that is there twice, or belongs to no column");
}

static int columns_file_read(columns_file *f)
{
    int status = columns_file_read_head(f);
    while (!status && wb__cells_next_line(&f->cells)) {
        status = columns_file_next_line(f);
        if (status || !columns_file_cell_is(f->cell[0], "word")) {
            if (!status) status = columns_file_read_column(f);
            continue;
        }
        status = columns_file_add_word(f, f->c->n ? f->c->column[f->c->n - 1].words : NULL);
    }
    if (!status) status = columns_file_check_column(f);
    if (!status && !wb__columns_width(f->c))
        status = wb__cells_wrong(&f->cells, f->cells.at, -1, NULL, "no column of x");
    return status;
}

wb_columns *wb_load_columns(const char *path)
{
    int64_t bytes;
    char *text = WB__NULL(path) ? NULL : wb__file_read(path, &bytes);
    if (!text) return NULL;
    columns_file f = {.cells = {.path = path, .text = text, .at = text, .end = text + bytes,
                                .line = 1, .separator = ','}};
    wb__plain_locale locale;
    int status = wb__error_or(WB_ERROR_MEMORY);
    if (wb__plain_begin(&locale, path)) {
        status = columns_file_read(&f);
        wb__plain_end(&locale);
    }
    wb__free(f.value);
    wb__free(text);
    if (!status) return f.c;
    if (f.c) wb_object_free(f.c);
    return NULL;
}
