/* A stream is a dataset of unknown length: a function of the program returns one observation after
 * the other.  A wb__stream is one loader's position in a stream, with the buffer of a shuffle. */
#ifndef WB__STREAM_H
#define WB__STREAM_H

#include "data/dataset.h"

typedef struct wb__stream wb__stream;

/* Makes a wb__stream of the stream `root`.  Each observation is drawn at random from the next
 * `buffer` ones; 0: in the order of the stream.  NULL with the error set. */
wb__stream *wb__stream_new(const wb_dataset *root, int64_t buffer);
void wb__stream_free(wb__stream *s);                    /* accepts NULL */

/* Begins an epoch: the next wb__stream_read restarts the stream and skips `skip` observations.
 * Fails if another loader reads the stream.  Returns 0 or an error code. */
int wb__stream_begin(wb__stream *s, uint64_t key, int64_t epoch, int64_t skip);
/* Lets other loaders read the stream. */
void wb__stream_release(wb__stream *s);

/* Writes at most n observations to to[k], for each field k that is present.  Sets *read to their
 * number, which is below n at the end.  One thread at a time.  Returns 0 or an error code. */
int wb__stream_read(wb__stream *s, int64_t n, void *const *to, int64_t *read);

#endif
