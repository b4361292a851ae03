/* Single checkpoint files (checkpoint.c), as used by keep.c, which manages folders of them, and by
 * wb_train. */
#ifndef WB__CHECKPOINT_H
#define WB__CHECKPOINT_H

#include "base/base.h"

#define WB__CHECKPOINT_HIGHEST "highest"
#define WB__CHECKPOINT_LOWEST "lowest"

/* The note of a checkpoint. */
typedef struct {
    char name[104];                     /* "": none */
    char best[8];                       /* WB__CHECKPOINT_HIGHEST, _LOWEST, or "" */
    int64_t epoch;
    int64_t serial;                     /* increases with each file written to a folder; 0: none */
    double metric;
    bool has_metric;
} wb__checkpoint_about;

/* Returns 0 if `name` is valid for a checkpoint, else an error code. */
int wb__checkpoint_name(const char *what, const char *name);
int wb__checkpoint_write(const char *path, const wb_checkpoint *c, int64_t serial,
                         const char *best);
/* Reads the note only. */
int wb__checkpoint_peek(const char *path, wb__checkpoint_about *about);
/* Loads a checkpoint into *c. Sets *whole to whether the file is an undamaged checkpoint, even if
 * it does not fit the objects of *c. */
int wb__checkpoint_read(const char *path, wb_checkpoint *c, bool *whole);

/* wb_checkpoint_latest, but a folder without a checkpoint is no error: then *found is false. */
int wb__checkpoint_resume(const char *folder, wb_checkpoint *c, bool *found);

#endif
