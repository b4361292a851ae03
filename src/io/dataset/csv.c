/* CSV files: the heading, the roles of columns, and the whole file.  Numbers are read as f64 and
 * rounded to f32, independent of the locale. */
#include "io/dataset/csv.h"

#include "base/files/file.h"

/* ---- options that name columns --------------------------------------------------------------- */

typedef struct { wb__csv *t; const char *option; } csv_named;

/* Returns the column that a cell of an option names; NULL with the error set. */
static wb__column *csv_column_of(const csv_named *n, const wb__cells *list, wb__cell f)
{
    char *name = wb__cell_word(list, f);
    const int64_t at = name ? wb__columns_named(n->t->c, n->t->cells.path, n->option, name) : -1;
    wb__free(name);
    return at < 0 ? NULL : &n->t->c->column[at];
}

static int csv_set_role(wb__csv *t, wb__column *k, int role)
{
    if (k->role != WB__FEATURE)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: options name column %lld \"%.60s\" twice",
                        t->cells.path, (long long)(k - t->c->column) + 1, k->name ? k->name : "");
    k->role = (uint8_t)role;
    return 0;
}

static int csv_add_label(const wb__cells *list, wb__cell f, void *ctx)
{
    const csv_named *n = ctx;
    wb__column *k = csv_column_of(n, list, f);
    return k ? csv_set_role(n->t, k, WB__LABEL) : (int)wb_error_code();
}

static int csv_leave_out(const wb__cells *list, wb__cell f, void *ctx)
{
    const csv_named *n = ctx;
    wb__column *k = csv_column_of(n, list, f);
    return k ? csv_set_role(n->t, k, WB__LEFT_OUT) : (int)wb_error_code();
}

static int csv_add_words(const csv_named *n, const wb__cells *list, wb__cell f, bool one_hot)
{
    if (f.length == 1 && *f.text == '*') {
        *(one_hot ? &n->t->all_one_hot : &n->t->all_numbered) = true;
        return 0;
    }
    wb__column *k = csv_column_of(n, list, f);
    if (!k) return wb_error_code();
    const bool label = k->role == WB__LABEL;
    if (k->role == WB__LEFT_OUT || k->words || (label && (one_hot || n->t->c->label_numbers)))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: %s names column %lld \"%.60s\", which is %s",
                        n->t->cells.path, n->option, (long long)(k - n->t->c->column) + 1, k->name,
                        k->words ? "named twice" : label ? "the label" : "left out");
    k->words = wb__alloc_zero(1, sizeof *k->words);
    if (!k->words) return WB_ERROR_MEMORY;
    k->words->one_hot = one_hot;
    return 0;
}

static int csv_add_one_hot(const wb__cells *list, wb__cell f, void *ctx)
{
    return csv_add_words(ctx, list, f, true);
}
static int csv_add_numbered(const wb__cells *list, wb__cell f, void *ctx)
{
    return csv_add_words(ctx, list, f, false);
}

static int csv_each_name(wb__csv *t, const char *option, const char *list,
                         int (*each)(const wb__cells *, wb__cell, void *))
{
    return list ? wb__cells_of(option, list, each, &(csv_named){t, option}) : 0;
}

/* Sets the roles of the columns of a file that is read without .like. */
static int csv_set_roles(wb__csv *t, const wb_load_csv_options *o)
{
    wb_columns *c = t->c;
    c->label_numbers = o->label_dtype == WB_F32;
    int status = csv_each_name(t, ".skip", o->skip, csv_leave_out);
    if (!status) status = csv_each_name(t, ".label_name", o->label_name, csv_add_label);
    if (!status && o->label != INT32_MIN) {
        const int64_t label = o->label + (o->label < 0 ? c->n : 0);
        if (label < 0 || label >= c->n)
            return wb__fail(WB_ERROR_ARGUMENT, "%s: label column %d of %lld columns", t->cells.path,
                            o->label, (long long)c->n);
        status = csv_set_role(t, &c->column[label], WB__LABEL);
    }
    if (!status) status = csv_each_name(t, ".one_hot", o->one_hot, csv_add_one_hot);
    if (!status) status = csv_each_name(t, ".numbered", o->numbered, csv_add_numbered);
    for (int64_t i = 0; i < c->n; i++) c->labels += c->column[i].role == WB__LABEL;
    return status;
}

/* ---- the first lines ------------------------------------------------------------------------- */

/* Calls each(cell, column, ctx), if `each` is not NULL, for the cells of the line at t->cells.at,
 * and sets *n to their number.  Does not move t->cells.at. */
static int csv_each_cell(wb__csv *t, int64_t *n,
                         int (*each)(wb__csv *t, wb__cell f, int64_t column))
{
    wb__cells *s = &t->cells;
    const wb__cells was = *s;
    wb__cell f;
    for (*n = 0;; s->at++) {
        int status = wb__cells_next(s, *n, &f);
        if (!status && each) status = each(t, f, *n);
        if (status) return status;
        ++*n;
        if (wb__cells_line_ends(s)) break;
    }
    const char *end = s->at;
    *s = was;
    if (!each) return 0;
    s->at = end;
    wb__cells_end_line(s, was.at);
    return 0;
}

static int csv_skip_cell(wb__csv *t, wb__cell f, int64_t column)
{
    (void)t, (void)f, (void)column;
    return 0;
}

/* Refuses a word in the first line if the option "*" would otherwise read a heading as a row. */
static int csv_refuse_word(wb__csv *t, wb__cell f, int64_t column)
{
    double value;
    if (!f.length || wb__columns_gap(t->c, f) || wb__cell_number(f, &value)) return 0;
    return wb__cells_wrong(&t->cells, f.text, column, NULL,
                           "\"%.*s\" is a word: is the line a heading? .header = true says so, "
                           ".header = false says that it is a row", WB__MIN(f.length, 60), f.text);
}

static int csv_set_name(wb__csv *t, wb__cell f, int64_t column)
{
    t->c->column[column].name = t->name_end;
    t->name_end = wb__cell_put(&t->cells, f, t->name_end);
    return t->name_end ? 0 : (int)wb_error_code();
}

static bool csv_names_columns(const char *list) { return list && strcmp(list, "*"); }

/* Returns 0 if there is a row at t->cells.at with as many cells as the heading, else an error
 * code. */
static int csv_check_row(wb__csv *t)
{
    wb__cells *s = &t->cells;
    int64_t n;
    if (!wb__cells_next_line(s)) return wb__cells_wrong(s, s->at, -1, NULL, "no rows");
    const int status = t->c->header ? csv_each_cell(t, &n, NULL) : 0;
    if (status || !t->c->header || n == t->n) return status;
    return wb__cells_wrong(s, s->at, -1, NULL, "%lld columns, but the heading has %lld names",
                           (long long)n, (long long)t->n);
}

/* Checks the first row before the columns are made, and for a compressed file that the memory of
 * its columns is within the limit.  Sets *bytes to the memory that the names need. */
static int csv_check_columns(wb__csv *t, size_t *bytes)
{
    const wb__cells line = t->cells;
    const int64_t each = sizeof(wb__column) + sizeof(wb__csv_value);
    int64_t n;
    int status = t->c->header ? csv_each_cell(t, &n, csv_skip_cell) : 0;
    *bytes = (size_t)(t->cells.at - line.at + t->n) + 1;
    if (!status) status = csv_check_row(t);
    t->cells = line;
    const int64_t text = line.end - line.text, limit = wb__unpack_limit();
    if (status || !t->unpacked || text + (int64_t)*bytes + t->n * each <= limit) return status;
    return wb__fail(WB_ERROR_FORMAT, "%s: byte %lld (%s): %lld columns, which take more than %lld "
                    "bytes with the decompressed text: the limit of wb_set_unpack_limit", line.path,
                    (long long)(line.at - line.text), wb__cells_place(&line, -1, NULL).text,
                    (long long)t->n, (long long)limit);
}

static int csv_make_columns(wb__csv *t, const wb_load_csv_options *o)
{
    wb_columns *c = t->c;
    size_t bytes;
    int64_t n;
    c->header = o->header > 0 || o->label_name || o->skip || csv_names_columns(o->one_hot) ||
                csv_names_columns(o->numbered);
    int status = csv_check_columns(t, &bytes);
    if (status) return status;
    if (c->header && !(t->name_end = c->names = wb__alloc(bytes))) return WB_ERROR_MEMORY;
    c->column = wb__alloc_zero((size_t)t->n, sizeof *c->column);
    if (!c->column) return WB_ERROR_MEMORY;
    c->n = t->n;
    for (int64_t i = 0; i < c->n; i++) c->column[i].fill = NAN;
    status = c->header ? csv_each_cell(t, &n, csv_set_name) : 0;
    return status ? status : csv_set_roles(t, o);
}

/* ---- a file like another --------------------------------------------------------------------- */

/* Makes column `from` of c the one that column `column` of the file becomes. */
static int csv_use_column(wb__csv *t, int64_t from, int64_t column, int64_t *places)
{
    if (t->c->column[from].role == WB__LEFT_OUT) return 0;
    if (places[from] < 0)
        return wb__cells_wrong(&t->cells, t->cells.at, column, t->c->column[from].name,
                               "the heading has this name twice");
    t->places[column] = (struct wb__csv_place){&t->c->column[from], places[from]};
    places[from] = -1;
    return 0;
}

enum { TWICE = -1 };
typedef struct { wb__words names; int32_t *column; } name_index;

/* Sets *index to a map from names to columns of c; a name that two columns have leads to TWICE. */
static bool csv_index_names(const wb_columns *c, name_index *index)
{
    const wb__cells none = {.path = "load_csv"};
    index->column = wb__alloc_zero((size_t)c->n + 1, sizeof *index->column);
    for (int64_t i = 0; index->column && i < c->n; i++) {
        const char *name = c->column[i].name;
        const int before = index->names.n;
        const int at =
            wb__words_add(&index->names, &none, (wb__cell){name, (int)strlen(name), false});
        if (at < 0) return false;
        index->column[at] = at == before ? (int32_t)i : TWICE;
    }
    return index->column != NULL;
}

/* Whether the heading has the names of c in their order, with or without the labels. */
static bool csv_same_names(const wb__csv *t, const name_index *index)
{
    const wb_columns *c = t->c;
    const bool without = t->n == c->n - c->labels;
    wb__cells s = t->cells;
    wb__cell f;
    if (!without && t->n != c->n) return false;
    for (int64_t i = 0, column = 0; i < c->n; i++) {
        if (without && c->column[i].role == WB__LABEL) continue;
        if (wb__cells_next(&s, column++, &f)) return false;
        const int word = wb__words_find(&index->names, f);
        if (word < 0 || strcmp(index->names.list[word], c->column[i].name) != 0) return false;
        s.at += !wb__cells_line_ends(&s);
    }
    return true;
}

/* Sets `places` by the names in the heading.  Columns that .like lacks are not used. */
static int csv_match_names(wb__csv *t, const name_index *index, int64_t *places)
{
    wb__cells *s = &t->cells;
    wb__cell f;
    for (int64_t column = 0;; column++, s->at++) {
        int status = wb__cells_next(s, column, &f);
        const int word = status ? -1 : wb__words_find(&index->names, f);
        const int64_t from = word < 0 ? -1 : index->column[word];
        if (!status && word >= 0 && from == TWICE)
            return wb__cells_wrong(s, f.text, column, index->names.list[word],
                                   "the file of .like has this name twice; then the headings "
                                   "must be the same");
        if (!status && from >= 0) status = csv_use_column(t, from, column, places);
        if (status || wb__cells_line_ends(s)) return status;
    }
}

/* Sets `places` by the order of the columns: all columns of .like, or all but the labels. */
static int csv_match_order(wb__csv *t, int64_t *places)
{
    const wb_columns *c = t->c;
    const bool without = t->n == c->n - c->labels;
    if (!without && t->n != c->n)
        return wb__cells_wrong(&t->cells, t->cells.at, -1, NULL,
                               "%lld columns; the file of .like has %lld", (long long)t->n,
                               (long long)c->n);
    int status = 0;
    for (int64_t i = 0, column = 0; !status && i < c->n; i++)
        if (!without || c->column[i].role != WB__LABEL)
            status = csv_use_column(t, i, column++, places);
    return status;
}

static int match_heading(wb__csv *t, const name_index *index, int64_t *places)
{
    int64_t n;
    const wb__cells line = t->cells;
    const int status = csv_same_names(t, index) ? csv_match_order(t, places)
                                                : csv_match_names(t, index, places);
    if (status) return status;
    t->cells = line;
    return csv_each_cell(t, &n, csv_skip_cell);
}

/* Returns 0 if all features are in the file, and all labels or none; else an error code. */
static int csv_check_matches(wb__csv *t, const int64_t *places)
{
    int64_t labels = 0;
    for (int64_t i = 0; i < t->n; i++)
        labels += t->places[i].column && t->places[i].column->role == WB__LABEL;
    for (int64_t i = 0; i < t->c->n; i++) {
        const wb__column *k = &t->c->column[i];
        if (places[i] < 0 || k->role == WB__LEFT_OUT || (k->role == WB__LABEL && !labels)) continue;
        return wb__fail(WB_ERROR_FORMAT, "%s: no column \"%.60s\", which the file of .like has",
                        t->cells.path, k->name ? k->name : "");
    }
    t->labels = labels;
    return 0;
}

static int csv_match_columns(wb__csv *t)
{
    const wb_columns *c = t->c;
    int64_t *places = wb__alloc_zero((size_t)c->n + 1, sizeof *places), x = 0, y = 0;
    t->places = wb__alloc_zero((size_t)t->n, sizeof *t->places);
    name_index index = {0};
    int status = places && t->places && (!c->header || csv_index_names(c, &index))
                     ? 0
                     : WB_ERROR_MEMORY;
    for (int64_t i = 0; !status && i < c->n; i++)
        places[i] = c->column[i].role == WB__FEATURE ? x++
                    : c->column[i].role == WB__LABEL ? y++ : 0;
    if (!status) status = c->header ? match_heading(t, &index, places) : csv_match_order(t, places);
    if (!status) status = csv_check_matches(t, places);
    wb__free(places);
    wb__free(index.column);
    wb__words_clear(&index.names);
    return status;
}

static int csv_read_first_lines(wb__csv *t, const wb_load_csv_options *o)
{
    wb__cells *s = &t->cells;
    int64_t n;
    if (s->end - s->at >= 3 && !memcmp(s->at, "\xef\xbb\xbf", 3)) s->at += 3;
    if (!wb__cells_next_line(s)) return wb__cells_wrong(s, s->at, -1, NULL, "no rows");
    int status = wb__csv_check_separator(t);
    if (!status) status = csv_each_cell(t, &t->n, NULL);
    if (!status) t->labels = 0, status = t->like ? csv_match_columns(t) : csv_make_columns(t, o);
    if (status) return status;
    if (!t->like) t->labels = t->c->labels;
    for (int64_t i = 0; i < t->c->n; i++) t->features += t->c->column[i].role == WB__FEATURE;
    if (!t->features)
        return wb__cells_wrong(s, s->at, -1, NULL,
                               "no column is left for x: the file has %lld, of which %lld are "
                               "labels; another .separator?",
                               (long long)t->n, (long long)t->labels);
    status = csv_check_row(t);
    if (status || t->c->header) return status;
    const wb__cells row = *s;
    const bool unclear = !t->asked_header && (t->all_one_hot || t->all_numbered);
    status = unclear ? csv_each_cell(t, &n, csv_refuse_word) : 0;
    *s = row;
    return status;
}

static int csv_read_all(wb__csv *t, const wb_load_csv_options *o, wb_tensor **x, wb_tensor **y)
{
    int status = csv_read_first_lines(t, o);
    const wb__cells rows = t->cells;
    if (!status) status = wb__csv_rows(t);
    if (!status && t->again) {
        t->cells = rows;
        status = wb__csv_rows(t);
    }
    return status ? status : wb__csv_finish(t, x, y);
}

int wb__csv_read(const char *path, const wb_load_csv_options *o, wb_tensor **x,
                 wb_tensor **y, wb_columns **columns)
{
    int64_t bytes;
    bool unpacked;
    const char separator = o->separator ? o->separator : ',';
    *x = *y = NULL;
    *columns = o->like ? o->like : wb__columns_new(o->missing, o->missing_texts);
    char *text = *columns ? wb__csv_text(path, separator, &bytes, &unpacked) : NULL;
    if (!text) return wb_error_code();
    wb__csv t = {.cells = {.path = path, .text = text, .at = text, .end = text + bytes, .line = 1,
                           .separator = separator},
                 .c = *columns, .like = o->like != NULL, .asked_header = o->header >= 0,
                 .unpacked = unpacked};
    wb__plain_locale locale;
    int status = wb_error_code();
    if (wb__plain_begin(&locale, path)) {
        status = csv_read_all(&t, o, x, y);
        wb__plain_end(&locale);
    }
    wb__free(t.x);
    wb__free(t.y);
    wb__free(t.places);
    wb__free(text);
    return status;
}
