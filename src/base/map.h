/* A whole file in memory, to be read in place.  A plain file is mapped; a compressed file, or one
 * that cannot be mapped (a pipe), is read.  If another program truncates a mapped file while it is
 * read, this process gets SIGBUS, as with every mapping.  The writers of file.h replace files and
 * never truncate them. */
#ifndef WB__MAP_H
#define WB__MAP_H

#include "base/base.h"

typedef struct wb__mapping {
    char *path;
    const uint8_t *data;                /* NULL: nothing was read yet */
    int64_t bytes;                      /* number of bytes at `data` */
    bool mapped;                        /* false: the file is read */
    bool unpacked;                      /* the file is gzip: offsets count decompressed bytes */
    struct wb__reader *rest;        /* reader of the remaining contents; NULL: all are in memory */
} wb__mapping;

wb__mapping *wb__map(const char *path);         /* NULL with the error set */
/* Maps a plain file as it is, also one that begins like a compressed file.  NULL with the error
 * set: it cannot be mapped. */
wb__mapping *wb__map_raw(const char *path);
/* Maps a file as wb__map does, but a file that cannot be mapped is read only as far as wb__map_more
 * and wb__map_take ask.  Reading may move `data`.  After wb__map_end returned 0, the whole file is
 * in memory. */
wb__mapping *wb__map_begin(const char *path);
int wb__map_more(wb__mapping *m, int64_t n);    /* reads the first n bytes, or all if there are
                                                   fewer */
void wb__unmap(wb__mapping *m);                 /* accepts NULL */
/* Asks the system to read `bytes` bytes at `from`, at most 1 GiB, from the disk before they are
 * used.  Returns at once.  Does nothing if the file is not mapped. */
void wb__map_ahead(const wb__mapping *m, const void *from, int64_t bytes);

/* Returns the n bytes at offset *at and adds n to *at.  NULL, with the error set, if the file ends
 * before these bytes do, or cannot be read.  `what` names the bytes in the error message, for
 * example "the header". */
const uint8_t *wb__map_take(wb__mapping *m, int64_t *at, int64_t n, const char *what);
/* Returns 0 if the file ends at the offset `at`, else an error. */
int wb__map_end(wb__mapping *m, int64_t at);

/* Sets the error WB_ERROR_FORMAT with a message such as "path: byte 16: reason", and returns the
 * code. */
int wb__map_fail(const wb__mapping *m, int64_t offset, const char *format, ...) WB__PRINTF(3, 4);

#endif
