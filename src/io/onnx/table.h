/* ONNX files as tables: their initializers. */
#ifndef WB__ONNX_TABLE_H
#define WB__ONNX_TABLE_H

#include "base/map.h"
#include "io/table.h"

/* Whether the bytes are fields of a ModelProto, the first of which is the version of the format,
 * and one of which is the graph.  ONNX has no magic number. */
bool wb__onnx_is(const wb__mapping *m);
/* Sets *out to the table of the initializers of a mapped file, which is checked as a whole.  With
 * `values` false entries have no data.  On success the table owns the mapping, on failure the
 * caller. */
int wb__onnx_table(wb__mapping *m, bool values, wb__table *out);

#endif
