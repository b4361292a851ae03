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
    bool one_hot;                       /* x has a column for each word, not one of the numbers */
    /* only while the file is read, and if the option "*" made this a column of words: */
    bool found;                         /* the column has a word */
    int64_t numbers, others;  /* number of cells that are numbers; of cells that are not */
    int64_t first, line;                /* byte, line, length of the first cell that is no number */
    int length;
} wb__words;
/* Returns the number of a word; -1 if it is not there. */
int wb__words_find(const wb__words *w, wb__cell c);
/* Returns the number of a word, and adds the word if it is not there.  -1: failed. */
int wb__words_add(wb__words *w, const wb__cells *t, wb__cell c);
/* Sorts the words with uses[k] > 0 by their bytes and removes the others.  Sets rank[k] to the new
 * number of word k. */
int wb__words_sort(wb__words *w, const int64_t *uses, int32_t *rank);
void wb__words_clear(wb__words *w);                     /* frees what it holds */
void wb__words_free(wb__words *w);                      /* accepts NULL */

enum { WB__FEATURE, WB__LABEL, WB__LEFT_OUT };          /* values of wb__column.role */
/* A column of the file.  The struct is small, since a file may have a million columns. */
typedef struct {
    char *name;                         /* NULL: the file has no heading; see `names` */
    wb__words *words;                   /* NULL: numbers */
    float fill;                         /* what replaces a missing value: a number, or the number
                                           of a word; NaN: nothing does */
    uint8_t role;                       /* WB__FEATURE, WB__LABEL or WB__LEFT_OUT */
} wb__column;

struct wb_columns {
    wb__object object;
    wb__column *column;
    char *names;                        /* a block with all names; NULL: each name is a block */
    int64_t n, labels;                  /* number of columns, and of those that are y */
    bool header, label_numbers;         /* label_numbers: y is f32 */
    wb_missing missing;
    char *missing_texts;                /* the option .missing_texts */
    wb__words gaps;                     /* the missing texts: the words in this option */
    double *gap_numbers;                /* those of the missing texts that are numbers */
    int n_gap_numbers, gap_capacity;
};

/* Returns an object without columns, in the current scope. */
wb_columns *wb__columns_new(wb_missing missing, const char *missing_texts);
/* Whether a cell has no value: its text, or its number, is one of the missing texts. */
bool wb__columns_gap(const wb_columns *c, wb__cell f);
/* Returns how many columns of x a column of the file becomes. */
static inline int64_t wb__column_width(const wb__column *k)
{
    return k->role != WB__FEATURE ? 0 : k->words && k->words->one_hot ? k->words->n : 1;
}
int64_t wb__columns_width(const wb_columns *c);
/* Returns the index of the column with this name; -1, with the error set, unless it is unique. */
int64_t wb__columns_named(const wb_columns *c, const char *path, const char *option,
                          const char *name);

#endif
