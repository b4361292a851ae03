/* Functions for single checkpoint files (checkpoint.c), which train.c and keep.c use.  keep.c
 * manages folders of checkpoints. */
#ifndef WB__CHECKPOINT_H
#define WB__CHECKPOINT_H

#include "base/base.h"

#define WB__CHECKPOINT_HIGHEST "highest"
#define WB__CHECKPOINT_LOWEST "lowest"

enum { WB__CHECKPOINT_VERSION = 2 };

/* Data about a checkpoint, read from its JSON note. */
typedef struct {
    char name[104];                     /* "": the checkpoint has no name */
    char best[8];                       /* WB__CHECKPOINT_HIGHEST, _LOWEST, or "" */
    int64_t epoch;
    int64_t serial;                     /* order of writing within a folder, from 1; 0: no folder */
    double metric;
    bool has_metric;
} wb__checkpoint_about;

/* Returns 0 if `name` is valid for a checkpoint, else an error code. */
int wb__checkpoint_name(const char *what, const char *name);
/* Whether wb_train's options for saving fit together: 0, or an error code. */
int wb__check_saving(const wb_train_options *o);
/* Returns the JSON note (note.c), in a block of wb__alloc; NULL: out of memory. */
char *wb__checkpoint_note(const wb_checkpoint *c, int64_t serial, const char *best);
int wb__checkpoint_write(const char *path, const wb_checkpoint *c, int64_t serial,
                         const char *best);
/* Reads only the note of a checkpoint. */
int wb__checkpoint_peek(const char *path, wb__checkpoint_about *about);
/* Loads a checkpoint into *c.  Sets *whole to whether the file is an undamaged checkpoint. *whole
 * is true also if loading fails because the checkpoint is of another model or state. */
int wb__checkpoint_read(const char *path, wb_checkpoint *c, bool *whole);

/* Like wb_load_latest_checkpoint, but a folder without a checkpoint is no error.  Sets *found to
 * whether there is a checkpoint. */
int wb__checkpoint_resume(const char *folder, wb_checkpoint *c, bool *found);
/* Sets *epoch to the epoch of the folder's newest checkpoint with the name of *c, or to -1. */
int wb__checkpoint_newest(const char *folder, const wb_checkpoint *c, int64_t *epoch);

#endif
