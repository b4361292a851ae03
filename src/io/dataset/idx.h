/* An IDX file as a table. */
#ifndef WB__IDX_H
#define WB__IDX_H

#include "base/map.h"
#include "io/table.h"

/* One entry, "0"; `values` false: without data, and with its bytes in the file.  The mapping is the
 * table's from here on, but stays the caller's on failure. */
int wb__idx_table(wb__mapping *m, bool values, wb__table *out);

#endif
