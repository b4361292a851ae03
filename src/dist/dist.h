/* The interface between the library and the libraries that connect ranks, such as libweber-mpi.
 * Both are built from one source tree; `version` tells if they are not. */
#ifndef WB__DIST_H
#define WB__DIST_H

#include "backend/collective.h"

enum { WB__DIST_VERSION = WB_VERSION_MAJOR * 10000 + WB_VERSION_MINOR * 100 + WB_VERSION_PATCH };

/* What the library offers to the backend, whose functions cannot call internal functions. */
typedef struct {
    double timeout;                     /* seconds */
    /* Sets the error of the calling thread, and returns `code`. */
    int (*fail)(int code, const char *format, ...) WB__PRINTF(2, 3);
} wb__dist_services;

struct wb_distributed_backend {
    int version;                        /* WB__DIST_VERSION */
    const char *name;                   /* "MPI" */
    /* Connects the ranks and fills in *c.  `services` stays valid until the process ends.  0 or an
     * error code. */
    int (*start)(const wb__dist_services *services, wb__communicator *c);
    /* Disconnects the ranks, when all of them call it.  0 or an error code. */
    int (*stop)(void);
    /* Ends the processes of all ranks. */
    void (*abort)(void);
};

#endif
