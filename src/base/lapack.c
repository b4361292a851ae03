/* The library of linear algebra: LAPACK, or another library that has its functions. */
#include "base/lapack.h"

#include "base/library.h"
#include "base/mutex.h"
#include "base/packages.h"

static const char *const lapack_usual[] = {
#ifdef __APPLE__
    "/System/Library/Frameworks/Accelerate.framework/Accelerate",
#endif
    "liblapack.so.3", "libopenblas.so.0", "libopenblas.so.3", NULL};
static const char *const lapack_names[] = {
    "sgetrf_", "sgetrs_", "spotrf_", "sgesdd_", "sgeqrf_", "sorgqr_",
    "dgetrf_", "dgetrs_", "dpotrf_", "dgesdd_", "dgeqrf_", "dorgqr_", NULL};

static wb__mutex lapack_lock = WB__MUTEX_INIT;
static wb__lapack lapack_tables[2]; /* f32, f64; guarded by the lock until lapack_is_open is true */
static bool lapack_is_open;

static int lapack_open_library(const char *what)
{
    char reason[WB__LIBRARY_REASON];
    const char *variable = wb__packages[WB__PACKAGE_LAPACK].variable;
    lapack_is_open = wb__library_open(variable, lapack_usual, lapack_names, NULL, lapack_tables,
                                      reason);
    return lapack_is_open ? 0 : wb__package_missing(WB__PACKAGE_LAPACK, what, reason);
}

const wb__lapack *wb__lapack_open(const char *what, bool f64)
{
    wb__mutex_lock(&lapack_lock);
    const bool works = lapack_is_open || !lapack_open_library(what);
    wb__mutex_unlock(&lapack_lock);
    return works ? &lapack_tables[f64] : NULL;
}
