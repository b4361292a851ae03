/* Files, for all readers and writers: gzip is seen through, errors name file, offset and reason,
 * and what is written appears whole or not at all.  Formats are src/io's. */
#ifndef WB__FILE_H
#define WB__FILE_H

#include "base/base.h"

/* No file is read into memory that is larger than this, or unfolds to more than the limit that the program sets
 * (wb_set_unpack_limit). */
#define WB__FILE_MOST ((int64_t)4 << 30)
int64_t wb__unpack_limit(void);

/* ---- reading --------------------------------------------------------------------------------- */

/* A file from its beginning as far as is asked for, in one block that grows as the bytes come, so that
 * a file that lies about its length costs no more than its length. */
typedef struct wb__reader wb__reader;
wb__reader *wb__reader_open(const char *path);
void wb__reader_close(wb__reader *r);                   /* takes NULL */
bool wb__reader_unpacks(const wb__reader *r);           /* is it gzip? */
/* Reads until the block has n bytes, of which it takes no more, or all that there are. */
int wb__reader_fill(wb__reader *r, int64_t n);
const char *wb__reader_contents(const wb__reader *r, int64_t *bytes);
/* Looks for one byte more, which is lost: *ended, if there is none. */
int wb__reader_at_end(wb__reader *r, bool *ended);
/* The block, with a zero after it that is not counted, to be given to wb__free; NULL without memory.
 * The reader is closed. */
char *wb__reader_take(wb__reader *r);

char *wb__file_read(const char *path, int64_t *bytes);  /* such a block of the whole file */

/* ---- writing --------------------------------------------------------------------------------- */

/* To a temporary file in the same folder, which wb__writer_close makes durable and gives its name.
 * Until then the old file stands; after any failure it still does, and the temporary one is gone
 * (unless only the folder's change of names could not be made durable: then the new file stands).
 * A process that is killed leaves PATH.0.part, which the next writer of that path clears away.
 * A path that is no plain file (a pipe, /dev/stdout) is written directly.  A symbolic link to a plain
 * file is replaced, and what it leads to stays as it is. */
typedef struct wb__writer wb__writer;
wb__writer *wb__writer_open(const char *path);
int wb__writer_put(wb__writer *w, const void *data,
                   int64_t n); /* after a failure: that failure again */
int64_t wb__writer_offset(const wb__writer *w);
/* The CRC-32 of all that was put since the call before; the first one begins. */
uint32_t wb__writer_sum(wb__writer *w);
/* Writes over what was put; not where a path is written directly (wb__writer_patches is false). */
bool wb__writer_patches(const wb__writer *w);
int wb__writer_patch(wb__writer *w, int64_t offset, const void *data, int64_t n);
int wb__writer_close(wb__writer *w); /* 0, or the first failure; frees w in any case */
void wb__writer_drop(wb__writer *w);                    /* gives up; takes NULL */

int wb__file_write(const char *path, const void *data, int64_t bytes);

/* Removes a temporary file that nobody writes any more; false: it is still there. */
bool wb__writer_sweep(const char *temporary);

/* ---- folders --------------------------------------------------------------------------------- */

/* Makes it, unless it is there; the folder it is in must be. */
int wb__folder_make(const char *path);
/* Calls each(name) for every name but . and .., in no order; stops at nonzero, which it returns. */
int wb__folder_each(const char *path, int (*each)(const char *name, void *ctx), void *ctx);
int wb__file_remove(const char *path);

/* ---- for tests ------------------------------------------------------------------------------- */

/* The n-th call of the system for a file (open, read, write, sync, rename) from now on fails, once;
 * 0: none. wb__io_count: such calls since then. */
void wb__io_fail_at(int64_t n);
int64_t wb__io_count(void);
void wb__pipe_limit(int64_t bytes);     /* instead of WB__FILE_MOST, for what is not compressed */

#endif
