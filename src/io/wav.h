/* WAV files as tables. */
#ifndef WB__WAV_H
#define WB__WAV_H

#include "base/map.h"
#include "io/table.h"

/* Whether the file begins as a RIFF file of the kind WAVE. */
bool wb__wav_is(const wb__mapping *m);
/* Sets *out to a table of `rate`, i32 without axes, and `samples`, f32 [channels, samples].  With
 * `values` false the entries have no data.  On success the table owns the mapping, on failure the
 * caller. */
int wb__wav_table(wb__mapping *m, bool values, wb__table *out);

#endif
