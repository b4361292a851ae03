/* Which device to use: the target of wb_gpu, and the preferred backend. */
#ifndef WB__DEVICE_H
#define WB__DEVICE_H

#include "backend/backend.h"
#include "base/os.h"


/* Returns the device that wb_gpu moves objects to.  NULL: wb_gpu moves nothing, since the CPU is
 * preferred or there is no GPU.  A missing GPU is logged once. */
const wb_device *wb__gpu_for_move(void);
/* Returns the name of the backend of the GPU that wb_gpu uses; if there is none, that of the
 * preferred backend, which the program may load later; NULL: none is preferred. */
const char *wb__gpu_backend_in_use(void);

/* Forgets the device that wb_gpu_device remembers; wb_shutdown calls it. */
void wb__selection_forget_device(void);

/* The preferred backend, as read from the preferences file. */
typedef struct {
    bool set;                           /* the file names a preferred backend */
    bool failed;                        /* the file could not be read */
    int row;                            /* row in the registry; -1: no backend is called `name` */
    char name[64];                      /* the value in the file */
    char table[32];                     /* the table of the file in which the value is */
    char path[WB__OS_PATH];             /* the file that was read, or "" */
} wb__preference;

/* Returns the preference, never NULL.  Call with the registry's lock held. */
const wb__preference *wb__preference_read(void);
/* Reads true or false from a key of the table [Flux] of the preferences file, at each call; *value
 * stays if the key is absent.  0 or an error code: the file is broken, or the value is neither. */
int wb__preference_bool(const char *key, bool *value);
/* Resets the selection of devices to its state at the start of the process, for tests.  The
 * preference is read again, and the messages of the selection are logged again.  Loaded backends
 * stay loaded. */
void wb__device_forget(void);
void wb__preference_forget(void);

#endif
