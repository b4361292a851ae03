/* CSV files: tables of numbers. data/readers.c makes datasets of them. */
#ifndef WB__CSV_H
#define WB__CSV_H

#include "base/base.h"

/* x [rows, columns] f32 without the label column; y [rows] i32, or WB_NONE. 0, or an error code. */
int wb__csv_read(const char *path, const wb_load_csv_options *o, wb_tensor **x, wb_tensor **y);

#endif
