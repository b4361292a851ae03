/* The registry: which backends there could be, which are loaded, and the devices they have.
 *
 * Rows are numbered in order of preference; the last is the CPU's.  All state is guarded by one
 * lock, which a thread may take again: a log handler that is called inside may ask for devices.
 * Choosing a device is select.c's; opening files is load.c's. */
#ifndef WB__REGISTRY_H
#define WB__REGISTRY_H

#include "backend/host.h"

enum { WB__ROWS = 5, WB__CPU_ROW = WB__ROWS - 1, WB__WHY = WB__ROOM };

typedef struct {
    const char *name, *in_front;        /* "CPU", and as it stands in front of a sentence */
    const char *prefix;                 /* "CPUDevice" */
    const char *alias;                  /* an old name that is still understood, or NULL */
    const char *file;                   /* without folder and ".so"; NULL: part of the library */
    const char *missing;                /* how to get the file */
    const char *deviceless;             /* how to get a device, when the backend found none */
    const char *const *parts;           /* what it may lack and still work, ended by NULL */
    wb__backend_entry linked;           /* of a backend that is linked in, or NULL */
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
const char *wb__row_path(int row);                      /* of the file that was opened, or "" */
bool wb__row_present(int row);          /* a file was there when it was last looked for */
wb_device_list wb__row_devices(int row);

/* What a call that must not fail does to this thread's error is undone. */
typedef struct { int code; char text[WB__WHY]; } wb__error_kept;
void wb__error_keep(wb__error_kept *k);
void wb__error_restore(const wb__error_kept *k);

/* load.c: opens FILE.so from the first folder that has a usable one.  Its table and, in `path`,
 * where it was; or NULL and, in `tried`, a line a path with what was wrong there. */
typedef struct {
    char path[WB__WHY], tried[WB__WHY - 512];
    bool present;                       /* some folder has such a file */
} wb__load;
const wb__backend *wb__load_backend(const wb__row *row, wb__load *l);
/* The same for a backend that is linked in. */
const wb__backend *wb__load_linked(const wb__row *row, wb__load *l);

#endif
