/* NPZ, NumPy's archives: a zip file with an NPY file for each array. */
#ifndef WB__NPZ_H
#define WB__NPZ_H

#include "base/map.h"
#include "io/model/model_file.h"

/* Sets *out to the table of the arrays of a mapped NPZ or NPY file.  The array of an NPY file is
 * named "0".  With `values` false only the headers are read, and the entries have no data.  An
 * entry has dtype 0 if Weber cannot hold the array, or if the member is not an array.  On success
 * the table owns the mapping, on failure the caller. */
int wb__npz_table(wb__mapping *m, bool values, wb__table *out);

/* Saves the tensors as numpy.savez does: uncompressed, in the order of the list. */
int wb__npz_save(const char *path, wb__saving *list);

/* Sizes and offsets of at least this number are written in 64 bits.  Tests make it small. */
extern uint32_t wb__npz_limit;

#endif
