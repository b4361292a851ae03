/* CSV files: tables of numbers and words.  data/readers.c makes datasets of them.
 *
 * csv_text.c reads the file as UTF-8, csv.c reads the heading and decides what each column is,
 * csv_rows.c reads the rows, csv_values.c numbers the words, fills in missing values and makes
 * tensors. */
#ifndef WB__CSV_H
#define WB__CSV_H

#include "io/dataset/columns.h"

/* A value of x or y: the number of a word, -1 if it is missing; or a number, NaN if it is
 * missing. */
typedef union { float number; int32_t word; } wb__csv_value;

/* A cell that is an error unless later rows show that it is not.  cell.text NULL: there is none. */
typedef struct { wb__cell cell; int64_t line, column; } wb__csv_found;

/* A CSV file while it is read. */
typedef struct {
    wb__cells cells;
    wb_columns *c;                      /* the result, or the columns of .like */
    bool like;                          /* c comes from .like, and does not change */
    bool all_one_hot, all_numbered;     /* the option is "*": all columns with a word */
    bool asked_header;                  /* the program gives .header */
    bool unpacked;                      /* the file is gzip */
    char *name_end;                     /* where the next name of the heading belongs */
    int64_t n;                          /* columns of the file */
    /* with `like`, for each column of the file: the column of c (NULL: it is not used), and its
     * index in a row of x or y */
    struct wb__csv_place { wb__column *column; int64_t at; } *places;
    int64_t features, labels;           /* values of a row in x and in y */
    wb__csv_value *x, *y;
    int64_t rows, capacity;  /* number of rows of x and y; for how many there is memory */
    int64_t lines;                      /* rows that were read, also those that were left out */
    bool incomplete;                    /* the present row lacks a value */
    bool only_words;                    /* the first row has only words, and no heading before it */
    bool again;                         /* a column has its first word after the first row, so the
                                           rows must be read again */
    const char *row;                    /* where the row begins */
    wb__csv_found fraction;             /* the first label that is no class */
    wb__csv_found infinite;             /* the first number that is infinite as f32, in a column
                                           whose later cells may be words */
} wb__csv;

/* Reads a file into *x [rows, columns] f32, *y and *columns, as wb_load_csv describes; *y is
 * WB_NONE without a label.  Returns 0 or an error code. */
int wb__csv_read(const char *path, const wb_load_csv_options *o, wb_tensor **x,
                 wb_tensor **y, wb_columns **columns);

/* Returns the text of a file, with \n at the ends of lines, in a block that the caller frees, and
 * sets *bytes, and *unpacked to whether the file is gzip.  NULL with the error set. */
char *wb__csv_text(const char *path, char separator, int64_t *bytes, bool *unpacked);
int wb__csv_rows(wb__csv *t);                           /* reads the rows at t->cells.at */
int wb__csv_finish(wb__csv *t, wb_tensor **x, wb_tensor **y);
/* Returns an error code if the line at t->cells.at has one column and contains another
 * separator. */
int wb__csv_check_separator(const wb__csv *t);

#endif
