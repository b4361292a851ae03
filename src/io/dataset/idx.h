/* IDX files as tables. */
#ifndef WB__IDX_H
#define WB__IDX_H

#include "base/map.h"
#include "io/table.h"

/* Sets *out to a table with one entry, "0".  With `values` true, the `bytes` of the entry are the
 * size of the elements after widening.  With `values` false, they are the size in the file, and the
 * entry has no data.  On success the table owns the mapping, on failure the caller. */
int wb__idx_table(wb__mapping *m, bool values, wb__table *out);

#endif
