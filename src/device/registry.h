/* The registry of backends: which are known, which are loaded, and their devices.
 *
 * Rows are in order of preference; the last row is the CPU.  One recursive lock guards all state;
 * it is recursive because a log handler that runs under it may ask for devices.  select.c chooses
 * devices. */
#ifndef WB__REGISTRY_H
#define WB__REGISTRY_H

#include "backend/backend.h"

enum { WB__ROWS = 5, WB__CPU_ROW = WB__ROWS - 1, WB__REASON_BYTES = WB__THREAD_TEXT_BYTES };

typedef struct {
    const char *name, *label;           /* "CPU"; "CPU: " as the start of a sentence */
    const char *prefix;                 /* "CPUDevice" */
    const char *alias;                  /* a deprecated name, or NULL */
    const char *missing;                /* if not built in: the reason and the remedy */
    const char *deviceless;             /* if no device was found: how to get one */
    const char *const *libraries;       /* optional libraries, ended by NULL */
} wb__row;

extern const wb__row wb__rows[WB__ROWS];

/* Locks the registry.  The first call also loads the backends that WEBER_BACKENDS names. */
void wb__registry_lock(void);
void wb__registry_unlock(void);

/* Returns the row of the backend with this name; -1, without an error: there is none.  A deprecated
 * name is accepted and logged once. */
int wb__row_find(const char *name);
/* Returns the row as wb__row_find does; -1, with an error that lists the names: there is none.
 * wb__row_exact does not accept deprecated names. */
int wb__row_named(const char *name);
int wb__row_exact(const char *name);
int wb__row_of(const wb__backend *backend);

/* Whether the backend of the row is loaded; whether it works; and why it does not, or "".
 * wb__row_works starts the backend if no start was tried, and does not change this thread's error.
 * The lock must be held for these functions, wb__row_backend and wb__row_devices. */
bool wb__row_loaded(int row);
bool wb__row_works(int row);
const wb__backend *wb__row_backend(int row);            /* NULL: not loaded */
const char *wb__row_reason(int row);
/* Returns the text to print before a reason: "CUDA: ", or "" if the reason begins with the name of
 * the backend. */
const char *wb__row_label(int row, const char *reason);
wb_device_list wb__row_devices(int row);

/* Sets the backend that is built in under a name; NULL: none.  For tests.  A loaded backend is not
 * replaced. */
void wb__registry_put(const char *name, const wb__backend *backend);

#endif
