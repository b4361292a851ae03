/* Loads values from a table into an existing model. */
#ifndef WB__LOAD_STATE_H
#define WB__LOAD_STATE_H

#include "io/table.h"
#include "tree/tree.h"

/* A file, and the options of wb_load_state. */
typedef struct {
    const char *path;           /* the path of the file, for messages */
    const char *prefix;         /* the prefix of names in the file; NULL: none */
    wb_names names;
    bool lenient, check_only;
    int n_rename;
    const wb_rename *rename;
} wb__state_load;

/* Sets the tensors of a model to the values of a table, as wb_load_state does; returns 0 or an
 * error code.  If any tensor does not fit, nothing is written; with `lenient`, the tensors that fit
 * are written.  With `check_only` nothing is written in any case. */
int wb__load_values(wb__table *file, const wb__state_load *o, void *model);

/* Returns the values of an entry as a tensor stores them: e->data, or a corrected copy if a matrix
 * is column-major or a bool is neither 0 nor 1.  *block is that copy, which the caller frees with
 * wb__free; without a copy it is NULL.  The result is NULL if memory is short or
 * the entry has no data. */
const void *wb__entry_values(const wb__entry *e, void **block);
/* Returns the shape and dtype of an entry, such as "[3,2] f32".  For a dtype that Weber lacks, the
 * text has the name in the file.  The text is valid until the next call in this thread. */
const char *wb__entry_describe(const wb__entry *e);

#endif
