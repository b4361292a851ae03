/* CSV files: tables of numbers. data/readers.c makes datasets of them. */
#ifndef WB__CSV_H
#define WB__CSV_H

#include "base/base.h"

/* Reads a file into *x [rows, columns] f32, without the label column, and *y [rows] i32, the
 * classes of the label column; *y is WB_NONE if o->has_label is false. Returns 0 or an error
 * code. */
int wb__csv_read(const char *path, const wb_load_csv_options *o, wb_tensor **x, wb_tensor **y);

#endif
