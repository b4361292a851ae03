/* NPZ, NumPy's archives: a zip file with an NPY file for each array, named after it. */
#ifndef WB__NPZ_H
#define WB__NPZ_H

#include "base/map.h"
#include "io/model/model_file.h"

/* The arrays of a mapped NPZ or NPY file by their names; in an NPY file, "0".  `values` false: from their
 * headers alone, without data.  What Weber has not (other dtypes, members that are no arrays) has a dtype of
 * 0.  The mapping is the table's from here on, but stays the caller's on failure. */
int wb__npz_table(wb__mapping *m, bool values, wb__table *out);

/* As numpy.savez: stored, not compressed; in the order of the list, whose values go to the file in
 * parts. */
int wb__npz_save(const char *path, wb__saving *list);

/* Sizes and places from here on are written in 64 bits; tests make it small. */
extern uint32_t wb__npz_most;

#endif
