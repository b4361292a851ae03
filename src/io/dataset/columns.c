/* The columns of a CSV file: their words, and what programs ask of them. */
#include "io/dataset/columns.h"

#include <stdio.h>

/* Sets *byte to the next byte of a cell's text, in which two quotation marks count as one; false at
 * the end. */
static inline bool next_byte(wb__cell c, int *at, char *byte)
{
    if (*at >= c.length) return false;
    *byte = c.text[*at];
    *at += 1 + (c.quoted && *byte == '"');
    return true;
}

static bool columns_is_word(const char *word, wb__cell c)
{
    char byte;
    for (int at = 0; next_byte(c, &at, &byte); word++)
        if (*word != byte || !byte) return false;
    return !*word;
}

static uint64_t columns_hash_of(wb__cell c)
{
    uint64_t hash = 0;
    char byte;
    for (int at = 0; next_byte(c, &at, &byte);) hash = wb__mix(hash, (unsigned char)byte + 1u);
    return hash | 1;
}

static int columns_find_word(const wb__words *w, wb__cell c, uint64_t hash)
{
    const wb__hashed *s = wb__hash_get(&w->table, hash);
    while (s && !columns_is_word(w->list[s->number], c)) s = wb__hash_next(&w->table, s);
    return s ? (int)s->number : -1;
}

int wb__words_find(const wb__words *w, wb__cell c)
{
    return w->n ? columns_find_word(w, c, columns_hash_of(c)) : -1;
}

int wb__words_add(wb__words *w, const wb__cells *t, wb__cell c)
{
    const uint64_t hash = columns_hash_of(c);
    const int known = columns_find_word(w, c, hash);
    if (known >= 0) return known;
    if (!wb__reserve(&w->list, &w->capacity, w->n + 1, sizeof *w->list)) return -1;
    char *word = wb__cell_word(t, c);
    wb__hashed *s = word ? wb__hash_add(&w->table, hash) : NULL;
    if (!s) return wb__free(word), -1;
    w->list[w->n] = word;
    s->number = w->n;
    return w->n++;
}

typedef struct { char *word; int32_t number; } columns_numbered;

static int columns_by_word(const void *a, const void *b)
{
    return strcmp(((const columns_numbered *)a)->word, ((const columns_numbered *)b)->word);
}

int wb__words_sort(wb__words *w, const int64_t *uses, int32_t *rank)
{
    columns_numbered *all = wb__alloc(((size_t)w->n + 1) * sizeof *all);
    if (!all) return WB_ERROR_MEMORY;
    int n = 0;
    for (int i = 0; i < w->n; i++) {
        if (uses[i]) all[n++] = (columns_numbered){w->list[i], i};
        else wb__free(w->list[i]);
    }
    if (n) qsort(all, (size_t)n, sizeof *all, columns_by_word);
    wb__hash_clear(&w->table);          /* it keeps its memory, so that no addition fails */
    for (int i = 0; i < n; i++) {
        w->list[i] = all[i].word;
        rank[all[i].number] = i;
        const wb__cell c = {all[i].word, (int)strlen(all[i].word), false};
        wb__hash_add(&w->table, columns_hash_of(c))->number = i;
    }
    w->n = n;
    wb__free(all);
    return 0;
}

void wb__words_clear(wb__words *w)
{
    for (int i = 0; i < w->n; i++) wb__free(w->list[i]);
    wb__free(w->list);
    wb__hash_free(&w->table);
}

void wb__words_free(wb__words *w)
{
    if (w) wb__words_clear(w);
    wb__free(w);
}

static void columns_destroy(void *object)
{
    wb_columns *c = object;
    for (int64_t i = 0; i < c->n; i++) {
        if (!c->names) wb__free(c->column[i].name);
        wb__words_free(c->column[i].words);
    }
    wb__free(c->column);
    wb__free(c->names);
    wb__free(c->missing_texts);
    wb__words_clear(&c->gaps);
    wb__free(c->gap_numbers);
    wb__object_end(c, sizeof *c);
}

static char *columns_format(void *object)
{
    enum { MOST_WORDS = 12 };
    const wb_columns *c = object;
    wb__text t = {0};
    wb__text_add(&t, "columns: %lld of x, %lld of y\n", (long long)wb__columns_width(c),
                 (long long)c->labels);
    for (int64_t i = 0; i < c->n; i++) {
        const wb__column *k = &c->column[i];
        wb__text_add(&t, "  %lld ", (long long)i + 1);
        if (k->name) wb__text_foreign(&t, k->name);
        wb__text_add(&t, ": %s",
                     k->role == WB__LEFT_OUT ? "left out"
                     : k->words ? k->role == WB__LABEL ? "classes" : k->words->one_hot ? "one-hot"
                                                                                       : "numbered"
                     : k->role == WB__FEATURE || c->label_numbers ? "numbers" : "class numbers");
        for (int w = 0; k->words && w < WB__MIN(k->words->n, MOST_WORDS); w++) {
            wb__text_add(&t, "%s", w ? ", " : " ");
            wb__text_foreign(&t, k->words->list[w]);
        }
        if (k->words && k->words->n > MOST_WORDS)
            wb__text_add(&t, ", and %d more", k->words->n - MOST_WORDS);
        if (k->role == WB__LABEL) wb__text_add(&t, " (y)");
        if (!isnan(k->fill) && k->words)
            wb__text_add(&t, "; missing: %s", k->words->list[(int)k->fill]);
        else if (!isnan(k->fill)) wb__text_add(&t, "; missing: %g", (double)k->fill);
        wb__text_add(&t, "\n");
    }
    return wb__text_take(&t);
}

const wb__class wb__columns_class = {.name = "columns", .destroy = columns_destroy,
                                     .format = columns_format};

static int columns_add_gap(const wb__cells *t, wb__cell cell, void *ctx)
{
    wb_columns *c = ctx;
    double value;
    if (wb__cell_number(cell, &value)) {
        if (!wb__reserve(&c->gap_numbers, &c->gap_capacity, c->n_gap_numbers + 1, sizeof value))
            return WB_ERROR_MEMORY;
        c->gap_numbers[c->n_gap_numbers++] = value;
    }
    return wb__words_add(&c->gaps, t, cell) < 0 ? (int)wb_error_code() : 0;
}

bool wb__columns_gap(const wb_columns *c, wb__cell f)
{
    double value;
    if (wb__words_find(&c->gaps, f) >= 0) return true;
    if (!c->n_gap_numbers || !wb__cell_number(f, &value)) return false;
    for (int i = 0; i < c->n_gap_numbers; i++)
        if (c->gap_numbers[i] == value) return true;
    return false;
}

wb_columns *wb__columns_new(wb_missing missing, const char *missing_texts)
{
    wb_columns *c = wb__object_new(&wb__columns_class, sizeof *c);
    if (!c) return NULL;
    c->missing = missing;
    c->missing_texts = wb__strdup(missing_texts);
    if (c->missing_texts &&
        !wb__cells_of("load_csv: .missing_texts", missing_texts, columns_add_gap, c))
        return c;
    wb_object_free(c);
    return NULL;
}

int64_t wb__columns_width(const wb_columns *c)
{
    int64_t width = 0;
    for (int64_t i = 0; i < c->n; i++) width += wb__column_width(&c->column[i]);
    return width;
}

int64_t wb__columns_named(const wb_columns *c, const char *path, const char *option,
                          const char *name)
{
    enum { MOST_LISTED = 20 };
    int64_t found = -1;
    if (!c->header) {
        wb__fail(WB_ERROR_ARGUMENT, "%s: %s: \"%.60s\", but the columns have no names; a file "
                 "with a line of names is read with .header = true", path, option, name);
        return -1;
    }
    for (int64_t i = 0; i < c->n; i++) {
        if (!c->column[i].name || strcmp(c->column[i].name, name)) continue;
        if (found >= 0) {
            wb__fail(WB_ERROR_ARGUMENT, "%s: %s: columns %lld and %lld have the name \"%.60s\"",
                     path, option, (long long)found + 1, (long long)i + 1, name);
            return -1;
        }
        found = i;
    }
    if (found >= 0) return found;
    wb__text list = {0};
    for (int64_t i = 0; i < WB__MIN(c->n, MOST_LISTED); i++)
        wb__text_add(&list, "%s\"%.60s\"", i ? ", " : "", c->column[i].name);
    char *text = wb__text_take(&list);
    if (text)
        wb__fail(WB_ERROR_ARGUMENT, "%s: %s: no column \"%.60s\"; the heading has %s%s", path,
                 option, name, text, c->n > MOST_LISTED ? ", ..." : "");
    wb__free(text);
    return -1;
}

int64_t wb_columns_count(const wb_columns *c)
{
    return wb__expect("columns_count", c, &wb__columns_class) ? wb__columns_width(c) : -1;
}

const char *wb_columns_name(const wb_columns *c, int64_t k)
{
    if (!wb__expect("columns_name", c, &wb__columns_class)) return NULL;
    int64_t left = k;
    for (int64_t i = 0; k >= 0 && i < c->n; i++) {
        const int64_t width = wb__column_width(&c->column[i]);
        if (left < width) return c->column[i].name ? c->column[i].name : "";
        left -= width;
    }
    return wb__fail_null(WB_ERROR_ARGUMENT, "columns_name: column %lld of %lld", (long long)k,
                         (long long)wb__columns_width(c));
}

/* Returns the column of words with this name, or y; NULL with the error set. */
static const wb__column *columns_column_of(const wb_columns *c, const char *what, const char *name)
{
    if (!wb__expect(what, c, &wb__columns_class)) return NULL;
    if (name) {
        const int64_t at = wb__columns_named(c, what, "the name", name);
        return at < 0 ? NULL : &c->column[at];
    }
    for (int64_t i = 0; i < c->n; i++)
        if (c->column[i].role == WB__LABEL) return &c->column[i];
    return wb__fail_null(WB_ERROR_ARGUMENT, "%s: no column is the label", what);
}

int64_t wb_columns_words(const wb_columns *c, const char *name)
{
    const wb__column *k = columns_column_of(c, "columns_words", name);
    return !k ? -1 : k->words ? k->words->n : 0;
}

const char *wb_columns_word(const wb_columns *c, const char *name, int64_t i)
{
    const wb__column *k = columns_column_of(c, "columns_word", name);
    if (!k) return NULL;
    const int n = k->words ? k->words->n : 0;
    if (i >= 0 && i < n) return k->words->list[i];
    return wb__fail_null(WB_ERROR_ARGUMENT, "columns_word: word %lld of %d of column \"%.60s\"",
                         (long long)i, n, k->name ? k->name : "");
}
