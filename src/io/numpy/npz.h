/* NPZ, NumPy's archives: a zip file with an NPY file for each array. */
#ifndef WB__NPZ_H
#define WB__NPZ_H

#include "base/map.h"
#include "io/model/model_file.h"

/* The arrays of a mapped NPZ or NPY file, by name; "0" in an NPY file. With `values` false only the
 * headers are read, and the entries have no data. Entries of dtype 0 are dtypes that Weber lacks
 * and members that are not arrays. On success the table owns the mapping, on failure the caller. */
int wb__npz_table(wb__mapping *m, bool values, wb__table *out);

/* Saves as numpy.savez does: uncompressed, in the order of the list; values are written in
 * parts. */
int wb__npz_save(const char *path, wb__saving *list);

/* Sizes and offsets from this number on are written in 64 bits; tests make it small. */
extern uint32_t wb__npz_limit;

#endif
