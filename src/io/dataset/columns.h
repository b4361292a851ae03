/* What wb_load_csv knows of the columns of a file: names, roles, words. */
#ifndef WB__COLUMNS_H
#define WB__COLUMNS_H

#include "base/table.h"
#include "base/text.h"
#include "engine/object.h"
#include "io/dataset/cells.h"

/* Words with numbers from 0, and a hash table that finds them. */
typedef struct {
    char **list;
    int n, capacity;
    wb__hash_table table;               /* a hash of a word -> its number */
    bool one_hot;                       /* else a column has the words' numbers */
    /* Of a column that "*" makes one of words, while its file is read: */
    bool found;
    int64_t numbers, others;            /* cells */
    int64_t first, line;                /* of the first cell that is no number: byte and line */
    int length;
} wb__words;
/* The number of a word; -1: it is not there. */
int wb__words_find(const wb__words *w, wb__cell c);
/* The same, but adds a word that is not there.  -1: failed. */
int wb__words_add(wb__words *w, const wb__cells *t, wb__cell c);
/* Puts the words with uses[k] > 0 in order of their bytes and forgets the others.  Sets rank[k] to
 * the new number of word k. */
int wb__words_sort(wb__words *w, const int64_t *uses, int32_t *rank);
void wb__words_clear(wb__words *w);                     /* frees what it holds */
void wb__words_free(wb__words *w);                      /* accepts NULL */

enum { WB__FEATURE, WB__LABEL, WB__LEFT_OUT };          /* of wb__column.role */
/* A file may have a million columns, so this is small. */
typedef struct {
    char *name;                         /* NULL: the file has no heading; see `names` */
    wb__words *words;                   /* NULL: numbers */
    float fill;                         /* in place of a missing value: a number, or the number of a
                                           word; NaN: nothing */
    uint8_t role;
} wb__column;

struct wb_columns {
    wb__object object;
    wb__column *column;
    char *names;                        /* a block with all names; NULL: each is a block */
    int64_t n, labels;                  /* columns of the file, and those of them that are y */
    bool header, label_numbers;         /* label_numbers: y is f32 */
    wb_missing missing;
    char *missing_texts;                /* as the option */
    wb__words gaps;                     /* the words in it */
    double *gap_numbers;                /* those of them that are numbers */
    int n_gap_numbers, gap_capacity;
};

/* An object without columns, in the current scope. */
wb_columns *wb__columns_new(wb_missing missing, const char *missing_texts);
/* Whether a cell has no value: it is one of the missing texts, or the same number as one. */
bool wb__columns_gap(const wb_columns *c, wb__cell f);
/* Columns of x that a column becomes. */
static inline int64_t wb__column_width(const wb__column *k)
{
    return k->role != WB__FEATURE ? 0 : k->words && k->words->one_hot ? k->words->n : 1;
}
int64_t wb__columns_width(const wb_columns *c);
/* The column of this name; -1: there is none, or there are two, with the error set. */
int64_t wb__columns_named(const wb_columns *c, const char *path, const char *option,
                          const char *name);

#endif
