/* A whole file in memory, to be read in place: mapped where it is a plain file, read where it is
 * compressed or cannot be mapped (a pipe).  A mapped file that another program cuts short while it is
 * read ends this one, as with every mapping: files are replaced, never cut, by writers of file.h. */
#ifndef WB__MAP_H
#define WB__MAP_H

#include "base/base.h"

typedef struct wb__mapping {
    char *path;
    const uint8_t *data;                /* not NULL, of an empty file too */
    int64_t bytes;
    bool unpacked;                      /* gzip: offsets count the decompressed contents */
    void *map;                          /* what the system mapped; NULL: data is a block of ours */
    struct wb__reader *rest;            /* what more is read from; NULL: all is here */
} wb__mapping;

wb__mapping *wb__map(const char *path);         /* NULL with the error set */
/* The same, but what is compressed or cannot be mapped is read as far as wb__map_more and wb__map_take
 * ask for, which moves data, and is wholly here once wb__map_end gave 0. */
wb__mapping *wb__map_begin(const char *path);
int wb__map_more(wb__mapping *m, int64_t n);    /* the first n bytes, or all that there are */
void wb__unmap(wb__mapping *m);                 /* takes NULL */
/* Has the system fetch these bytes of it, or the first GiB of them, which will be read soon; returns at
 * once. */
void wb__map_ahead(const wb__mapping *m, const void *from, int64_t bytes);

/* The n bytes at *at, which moves behind them; NULL, with the error set, where the file ends before:
 * then `what` names them, as "the header". */
const uint8_t *wb__map_take(wb__mapping *m, int64_t *at, int64_t n, const char *what);
/* 0 if the contents end at `at`, else an error. */
int wb__map_end(wb__mapping *m, int64_t at);

/* Sets WB_ERROR_FORMAT, "path: byte 16: reason", and returns it. */
int wb__map_fail(const wb__mapping *m, int64_t offset, const char *format, ...) WB__PRINTF(3, 4);

#endif
