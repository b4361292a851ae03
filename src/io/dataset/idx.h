/* What stands in an IDX file; its values are wb_read_idx's. */
#ifndef WB__IDX_H
#define WB__IDX_H

#include "io/table.h"

/* One entry, "0", without its values.  The file is read through, and what is wrong with it is an error. */
int wb__idx_table(const char *path, wb__table *out);

#endif
