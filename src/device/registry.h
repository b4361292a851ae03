/* The registry: which backends there could be, which are loaded, and the devices they have.
 *
 * Rows are numbered in order of preference; the last is the CPU's.  All state is guarded by one
 * lock, which a thread may take again: a log handler that is called inside may ask for devices.
 * Choosing a device is select.c's. */
#ifndef WB__REGISTRY_H
#define WB__REGISTRY_H

#include "backend/backend.h"

enum { WB__ROWS = 5, WB__CPU_ROW = WB__ROWS - 1, WB__WHY = WB__THREAD_TEXT_BYTES };

typedef struct {
    const char *name, *in_front;        /* "CPU", and as it stands in front of a sentence */
    const char *prefix;                 /* "CPUDevice" */
    const char *alias;                  /* an old name that is still understood, or NULL */
    const char *missing;                /* why it is no part of this library, and what helps */
    const char *deviceless;             /* how to get a device, when the backend found none */
    const char *const *parts;           /* what it may lack and still work, ended by NULL */
} wb__row;

extern const wb__row wb__rows[WB__ROWS];

void wb__registry_lock(void);           /* also loads what WEBER_BACKENDS asks for, once */
void wb__registry_unlock(void);

/* The row of a name, or -1 without an error; an old name is understood, and that said once. */
int wb__row_find(const char *name);
/* The same, or -1 and the error that lists the names.  wb__row_exactly: no old name. */
int wb__row_named(const char *name);
int wb__row_exactly(const char *name);
int wb__row_of(const wb__backend *backend);

/* With the lock taken.  wb__row_works starts the backend if that was not tried before; it leaves
 * this thread's error alone.  wb__row_why: the reason why it does not work, "" if it does. */
bool wb__row_loaded(int row);
bool wb__row_works(int row);
const wb__backend *wb__row_backend(int row);            /* NULL if not loaded */
const char *wb__row_why(int row);
const char *wb__row_in_front(int row, const char *why);     /* "CUDA: ", unless `why` begins so */
wb_device_list wb__row_devices(int row);

/* What a call that must not fail does to this thread's error is undone. */
typedef struct { int code; char text[WB__WHY]; } wb__error_kept;
void wb__error_keep(wb__error_kept *k);
void wb__error_restore(const wb__error_kept *k);

/* For tests: from now on the library has this table under this name; NULL: none.  A backend that is
 * loaded already stays as it is. */
void wb__registry_put(const char *name, const wb__backend *backend);

#endif
