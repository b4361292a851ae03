/* JLD2 files, which JLD2.jl writes and Flux's manual recommends: JLD2.jldsave("m.jld2"; model_state
 * = Flux.state(model)).  They are HDF5 files, read by libhdf5. */
#ifndef WB__JLD2_H
#define WB__JLD2_H

#include "base/map.h"
#include "io/table.h"

/* Whether the file is an HDF5 file. */
bool wb__jld2_is(const wb__mapping *m);
/* Sets *out to the table of the arrays of a mapped file.  `key` is a variable, or NULL: the only
 * variable, else "model_state", else "model", else all variables, whose names then begin the names
 * of the arrays.  The fields of Flux's layers get Weber's names, and matrices of layers Weber's
 * shapes, as in a table of a BSON file (wb__flux_table).  Numbers and texts are left out; arrays of
 * elements that Weber lacks have no dtype.  With `values` false entries have no data.  On success
 * the table owns the mapping, on failure the caller. */
int wb__jld2_table(wb__mapping *m, const char *key, bool values, wb__table *out);

#endif
