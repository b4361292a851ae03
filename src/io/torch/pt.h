/* PyTorch's files (torch.save): a zip archive with a pickle, data.pkl, and the bytes of each
 * storage. */
#ifndef WB__PT_H
#define WB__PT_H

#include "base/map.h"
#include "io/table.h"

/* Whether the file is such an archive. */
bool wb__pt_is(const wb__mapping *m);
/* Sets *out to the table of the tensors of a mapped file.  Keys of dicts and indices of lists make
 * the names, joined by dots; values that are no tensors are left out.  A tensor alone is named
 * "0".  With `values` false entries have no data.  On success the table owns the mapping, on
 * failure the caller. */
int wb__pt_table(wb__mapping *m, bool values, wb__table *out);

#endif
