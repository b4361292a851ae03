/* Choosing a device, for the library's own use: where wb_gpu moves to, and the preference. */
#ifndef WB__DEVICE_H
#define WB__DEVICE_H

#include "backend/backend.h"

#include <limits.h>

/* The device that wb_gpu moves to, or NULL: everything stays where it is, and why was said
 * once. */
const wb_device *wb__gpu_for_move(void);

/* Devices are gone after wb_shutdown: the one that wb_gpu_device remembers must go too. */
void wb__selection_forget_device(void);

/* The preference as it was when it was first asked for. */
typedef struct {
    bool set;
    bool failed;                        /* the file could not be read: that was said */
    int row;                            /* of the registry; -1: not the name of a backend */
    char name[64];                      /* what the file says */
    char table[32];                     /* which table says so */
    char path[PATH_MAX];                /* the file that was read, or "" */
} wb__preference;
const wb__preference *wb__preference_read(void);         /* with the registry's lock taken */

/* For tests: as when the process started.  The preference is read again, what is said once may be
 * said again; what is loaded stays. */
void wb__device_forget(void);
void wb__preference_forget(void);

#endif
