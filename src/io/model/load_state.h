/* Values from a table into a model that exists. */
#ifndef WB__POUR_H
#define WB__POUR_H

#include "io/table.h"
#include "tree/tree.h"

typedef struct {
    const char *path;           /* the file's, for messages */
    const char *prefix;         /* NULL: none */
    wb_names names;
    bool lenient, check_only;
    int n_rename;
    const wb_rename *rename;
} wb__state_load;

/* Nothing is written if anything does not fit; if lenient, what does.  See wb_load_state. */
int wb__load_values(wb__table *file, const wb__state_load *o, void *model);

/* The values as a tensor takes them: those of the file, or of a matrix that lies by columns, or of bools that
 * are neither 0 nor 1, a copy made right in *block, for wb__free.  NULL without memory. */
const void *wb__entry_values(const wb__entry *e, void **block);
const char *wb__entry_describe(const wb__entry *e);     /* "[3,2] f32", or the file's word for its dtype */

#endif
