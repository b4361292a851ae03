/* Opens libhdf5. */
#include "io/jld2/hdf5.h"

#include "base/environment.h"
#include "base/packages.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const usual[] = {
#ifdef __APPLE__
    "libhdf5.dylib", "/opt/homebrew/lib/libhdf5.dylib", "/usr/local/lib/libhdf5.dylib",
#endif
    "libhdf5_serial.so.103", "libhdf5.so.103", "libhdf5.so.200", "libhdf5_serial.so.310",
    "libhdf5.so.310", "libhdf5_serial.so", "libhdf5.so", NULL};
static const char *const names[] = {
#define NAME(result, name, arguments) #name,
    WB__HDF5_FUNCTIONS(NAME)
#undef NAME
};

static wb__hdf5 table;
static bool is_open;

/* Sets the table from a library. Returns the name of a function that the library does not have, or
 * NULL. */
static const char *find(void *library)
{
    for (size_t i = 0; i < WB__COUNT(names); i++) {
        void *found = dlsym(library, names[i]);
        if (!found) return names[i];
        memcpy((char *)&table + i * sizeof found, &found, sizeof found);
    }
    return NULL;
}

static int forbid(const char *file, const char *group, const char *child_file, const char *child,
                  unsigned *flags, int64_t properties, void *data)
{
    (void)file, (void)group, (void)child_file, (void)child, (void)flags, (void)properties;
    (void)data;
    return -1;
}

/* Whether the library begins to work and is 1.10 or newer. */
static bool begins(void *library)
{
    unsigned major, minor, release;
    int64_t class;
    if (table.H5open() < 0 || table.H5get_libversion(&major, &minor, &release) < 0) return false;
    void *found = dlsym(library, "H5P_CLS_LINK_ACCESS_ID_g");
    if ((major == 1 && minor < 10) || !found) return false;
    memcpy(&class, found, sizeof class);
    table.link_access = table.H5Pcreate(class);
    return table.link_access >= 0 && table.H5Eset_auto2(0, NULL, NULL) >= 0 &&
           table.H5Pset_elink_cb(table.link_access, forbid, NULL) >= 0;
}

const wb__hdf5 *wb__hdf5_open(const char *path)
{
    const char *own = wb__environment_path(wb__packages[WB__PACKAGE_HDF5].variable);
    const char *const only[] = {own, NULL}, *const *file = own && *own ? only : usual;
    char reason[256] = "";
    for (; !is_open && *file; file++) {
        void *library = dlopen(*file, RTLD_NOW | RTLD_LOCAL);
        const char *missing = library ? find(library) : NULL, *message = library ? "" : dlerror();
        if (library && !missing) {
            if (begins(library)) is_open = true;       /* the library stays open */
            else if (!*reason) snprintf(reason, sizeof reason, "%s is older than 1.10", *file);
            continue;
        }
        if (library) dlclose(library);
        if (!*reason)
            snprintf(reason, sizeof reason, missing ? "%s has no %s" : "%s: %s", *file,
                     missing ? missing : message ? message : "not opened");
    }
    if (is_open) return &table;
    return wb__package_missing(WB__PACKAGE_HDF5, path, reason), NULL;
}
