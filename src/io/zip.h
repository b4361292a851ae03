/* Opens zip archives with libzip, for the formats that are such archives. */
#ifndef WB__ZIP_H
#define WB__ZIP_H

#include "base/map.h"

#ifdef WB_HAVE_ZIP

#include <zip.h>

/* Sets the error of an archive that libzip refuses, and returns its code. */
int wb__zip_fail(const wb__mapping *m, zip_error_t *e);
/* Opens the archive in a mapped file for reading.  NULL: failed.  The caller calls zip_discard. */
zip_t *wb__zip_open(const wb__mapping *m);

#endif
#endif
