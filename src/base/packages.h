/* The libraries of others that Weber uses, by the rows of packages.def. */
#ifndef WB__PACKAGES_H
#define WB__PACKAGES_H

#include "base/base.h"

typedef enum {
#define WB_PACKAGE(id, ...) WB__PACKAGE_##id,
#include "base/packages.def"
#undef WB_PACKAGE
    WB__PACKAGES
} wb__package_id;

/* A row of packages.def, whose head describes the columns. */
typedef struct {
    const char *id, *name, *purpose, *file, *debian, *homebrew, *variable;
} wb__package;
extern const wb__package wb__packages[WB__PACKAGES];

/* Whether a library without a variable is built in. */
bool wb__package_built(wb__package_id id);
/* Sets the error that the library is missing, and returns its code.  `what` begins the message;
 * `reason`: why it was not opened; NULL for a library that is not built in. */
int wb__package_missing(wb__package_id id, const char *what, const char *reason);

#endif
