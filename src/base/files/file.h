/* Reading and writing of files.  Readers decompress gzip.  Errors name file, offset and reason.  A
 * new file replaces the old file only when it is complete.  File formats are in src/io. */
#ifndef WB__FILE_H
#define WB__FILE_H

#include "base/base.h"

/* The largest file that is read into memory, in bytes.  For a compressed file the limit is
 * wb__unpack_limit() decompressed bytes (wb_set_unpack_limit). */
#define WB__FILE_MOST ((int64_t)4 << 30)
int64_t wb__unpack_limit(void);

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads a file from its beginning as far as the caller asks, into one block that grows as bytes
 * arrive.  So a header that claims a wrong size costs no memory. */
typedef struct wb__reader wb__reader;
wb__reader *wb__reader_open(const char *path);          /* NULL with the error set */
void wb__reader_close(wb__reader *r);                   /* accepts NULL */
bool wb__reader_unpacks(const wb__reader *r);           /* whether the file is gzip */
/* Reads until the block has n bytes, or the whole file if it is shorter.  Returns 0 or an error
 * code. */
int wb__reader_fill(wb__reader *r, int64_t n);
const char *wb__reader_contents(const wb__reader *r, int64_t *bytes);
/* Sets *ended to whether no byte is left.  If a byte is left, it is read and lost. */
int wb__reader_at_end(wb__reader *r, bool *ended);
/* Returns the block, with a zero after it that is not counted, and closes the reader.  The caller
 * frees the block with wb__free.  NULL: out of memory. */
char *wb__reader_take(wb__reader *r);

/* Returns a block with the whole file, as wb__reader_take does; NULL with the error set. */
char *wb__file_read(const char *path, int64_t *bytes);

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes to a temporary file in the same folder.  wb__writer_close makes it durable and renames it.
 * Until then, and after a failure, the old file is unchanged.  After a failure the temporary file
 * is removed.  (If only the sync of the folder fails, the new file is in place.)  A process that is
 * killed leaves PATH.0.part, which the next writer of that path removes.  A path that is no plain
 * file (a pipe, /dev/stdout) is written directly.  A symbolic link to a plain file is replaced, and
 * its target is unchanged. */
typedef struct wb__writer wb__writer;
wb__writer *wb__writer_open(const char *path);
int wb__writer_put(wb__writer *w, const void *data,
                   int64_t n); /* after a failure: returns that failure again */
int64_t wb__writer_offset(const wb__writer *w);
/* Returns the CRC-32 of all bytes put since the previous call.  The first call starts the
 * checksum. */
uint32_t wb__writer_sum(wb__writer *w);
/* Whether wb__writer_patch can overwrite bytes that were put before: it cannot if the path, such as
 * a pipe, is written directly. */
bool wb__writer_patches(const wb__writer *w);
int wb__writer_patch(wb__writer *w, int64_t offset, const void *data, int64_t n);
/* Completes the file.  Returns 0 or the code of the first error of this writer.  Always frees w. */
int wb__writer_close(wb__writer *w);
void wb__writer_drop(wb__writer *w);                    /* frees w without writing; accepts NULL */

int wb__file_write(const char *path, const void *data, int64_t bytes);

/* Removes a temporary file that no process is writing.  Returns true also if there is no such file;
 * false: a process is writing the file, or it cannot be removed. */
bool wb__writer_sweep(const char *temporary);

/* ---- folders --------------------------------------------------------------------------------- */

/* Creates the folder, unless it exists.  Its parent must exist. */
int wb__folder_make(const char *path);
/* Calls each(name) for every name except . and .., in no particular order.  Stops at a nonzero
 * return and returns it. */
int wb__folder_each(const char *path, int (*each)(const char *name, void *ctx), void *ctx);
int wb__file_remove(const char *path);
bool wb__is_folder(const char *path);

/* ---- for tests ------------------------------------------------------------------------------- */

/* Makes the n-th system call for a file from now on fail, once; 0: none fails.  Such calls are
 * open, read, write, sync, rename and others.  wb__io_count returns the number of such calls since
 * the last wb__io_fail_at. */
void wb__io_fail_at(int64_t n);
int64_t wb__io_count(void);
void wb__pipe_limit(int64_t bytes);     /* the limit of wb__reader_fill for files that are not
                                           compressed */

#endif
