/* Opens libhdf5. */
#include "io/jld2/hdf5.h"

#include "base/library.h"
#include "base/os.h"
#include "base/packages.h"

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
    NULL};

static wb__hdf5 table;
static bool is_open;

static int forbid(const char *file, const char *group, const char *child_file, const char *child,
                  unsigned *flags, int64_t properties, void *data)
{
    (void)file, (void)group, (void)child_file, (void)child, (void)flags, (void)properties;
    (void)data;
    return -1;
}

/* Begins to work with the library.  Returns NULL, or what is wrong. */
static const char *begin(void *library)
{
    static const char old[] = "is older than 1.10";
    unsigned major, minor, release;
    int64_t class;
    if (table.H5open() < 0 || table.H5get_libversion(&major, &minor, &release) < 0) return old;
    void *found = wb__os_library_find(library, "H5P_CLS_LINK_ACCESS_ID_g");
    if ((major == 1 && minor < 10) || !found) return old;
    memcpy(&class, found, sizeof class);
    table.link_access = table.H5Pcreate(class);
    return table.link_access >= 0 && table.H5Eset_auto2(0, NULL, NULL) >= 0 &&
           table.H5Pset_elink_cb(table.link_access, forbid, NULL) >= 0 ? NULL : old;
}

const wb__hdf5 *wb__hdf5_open(const char *path)
{
    char reason[WB__LIBRARY_REASON];
    if (!is_open)
        is_open = wb__library_open(wb__packages[WB__PACKAGE_HDF5].variable, usual, names, begin,
                                   &table, reason);
    if (is_open) return &table;
    return wb__package_missing(WB__PACKAGE_HDF5, path, reason), NULL;
}
