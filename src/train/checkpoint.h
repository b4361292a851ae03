/* What checkpoint.c does with one file for keep.c, which knows folders of them, and for wb_train. */
#ifndef WB__CHECKPOINT_H
#define WB__CHECKPOINT_H

#include "base/base.h"

#define WB__CHECKPOINT_HIGHEST "highest"
#define WB__CHECKPOINT_LOWEST "lowest"

/* What a checkpoint says of itself. */
typedef struct {
    char name[104], best[8];            /* "": none; which metric is the best of its folder */
    int64_t epoch, serial;              /* serial: of a folder's, in the order in which they were written */
    double metric;
    bool has_metric;
} wb__checkpoint_about;

int wb__checkpoint_name(const char *what, const char *name);        /* is it one? */
int wb__checkpoint_write(const char *path, const wb_checkpoint *c, int64_t serial, const char *best);
int wb__checkpoint_peek(const char *path, wb__checkpoint_about *about);
int wb__checkpoint_read(const char *path, wb_checkpoint *c, bool *whole);

/* wb_checkpoint_latest, where it is no error if there is none: then `found` is false. */
int wb__checkpoint_resume(const char *folder, wb_checkpoint *c, bool *found);

#endif
