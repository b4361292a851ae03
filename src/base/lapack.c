/* The library of linear algebra: LAPACK, or another library that has its functions. */
#include "base/lapack.h"

#include "base/environment.h"
#include "base/mutex.h"
#include "base/packages.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const usual[] = {
#ifdef __APPLE__
    "/System/Library/Frameworks/Accelerate.framework/Accelerate",
#endif
    "liblapack.so.3", "libopenblas.so.0", "libopenblas.so.3", NULL};
static const char *const names[2][6] = {
    {"sgetrf_", "sgetrs_", "spotrf_", "sgesdd_", "sgeqrf_", "sorgqr_"},
    {"dgetrf_", "dgetrs_", "dpotrf_", "dgesdd_", "dgeqrf_", "dorgqr_"},
};

static wb__mutex lock = WB__MUTEX_INIT;
static wb__lapack tables[2];            /* f32, f64; guarded by the lock until is_open is true */
static bool is_open;

/* Sets the tables from a library.  Returns the name of a function that the library does not have,
 * or NULL. */
static const char *find(void *library)
{
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < WB__COUNT(names[t]); i++) {
            void *found = dlsym(library, names[t][i]);
            if (!found) return names[t][i];
            memcpy((char *)&tables[t] + i * sizeof found, &found, sizeof found);
        }
    return NULL;
}

static int open_library(const char *what)
{
    const char *own = wb__environment_path(wb__packages[WB__PACKAGE_LAPACK].variable);
    const char *const only[] = {own, NULL}, *const *file = own && *own ? only : usual;
    char reason[256] = "";
    for (; *file; file++) {
        void *library = dlopen(*file, RTLD_NOW | RTLD_LOCAL);
        const char *missing = library ? find(library) : NULL, *message = library ? "" : dlerror();
        if (library && !missing) {
            is_open = true;             /* the library stays open */
            return 0;
        }
        if (library) dlclose(library);
        if (!*reason)
            snprintf(reason, sizeof reason, missing ? "%s has no %s" : "%s: %s", *file,
                     missing ? missing : message ? message : "not opened");
    }
    return wb__package_missing(WB__PACKAGE_LAPACK, what, reason);
}

const wb__lapack *wb__lapack_open(const char *what, bool f64)
{
    wb__mutex_lock(&lock);
    const bool works = is_open || !open_library(what);
    wb__mutex_unlock(&lock);
    return works ? &tables[f64] : NULL;
}
