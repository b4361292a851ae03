/* Opens libhdf5. */
#include "io/jld2/hdf5.h"

#include "base/library.h"
#include "base/os.h"
#include "base/packages.h"

#include <string.h>

static const char *const hdf5_usual[] = {
#ifdef __APPLE__
    "libhdf5.dylib", "/opt/homebrew/lib/libhdf5.dylib", "/usr/local/lib/libhdf5.dylib",
#endif
    "libhdf5_serial.so.103", "libhdf5.so.103", "libhdf5.so.200", "libhdf5_serial.so.310",
    "libhdf5.so.310", "libhdf5_serial.so", "libhdf5.so", NULL};
static const char *const hdf5_names[] = {
#define NAME(result, name, arguments) #name,
    WB__HDF5_FUNCTIONS(NAME)
#undef NAME
    NULL};

static wb__hdf5 hdf5_table;
static bool hdf5_is_open;

static int hdf5_forbid(const char *file, const char *group, const char *child_file,
                       const char *child, unsigned *flags, int64_t properties, void *data)
{
    (void)file, (void)group, (void)child_file, (void)child, (void)flags, (void)properties;
    (void)data;
    return -1;
}

/* Initialises the library for use here.  Returns NULL, or the reason why it cannot be used. */
static const char *hdf5_init_library(void *library)
{
    static const char old[] = "is older than 1.10";
    unsigned major, minor, release;
    int64_t class;
    if (hdf5_table.H5open() < 0 || hdf5_table.H5get_libversion(&major, &minor, &release) < 0)
        return old;
    void *found = wb__os_library_find(library, "H5P_CLS_LINK_ACCESS_ID_g");
    if ((major == 1 && minor < 10) || !found) return old;
    memcpy(&class, found, sizeof class);
    hdf5_table.link_access = hdf5_table.H5Pcreate(class);
    return hdf5_table.link_access >= 0 && hdf5_table.H5Eset_auto2(0, NULL, NULL) >= 0 &&
           hdf5_table.H5Pset_elink_cb(hdf5_table.link_access, hdf5_forbid, NULL) >= 0 ? NULL : old;
}

const wb__hdf5 *wb__hdf5_open(const char *path)
{
    char reason[WB__LIBRARY_REASON];
    if (!hdf5_is_open)
        hdf5_is_open = wb__library_open(wb__packages[WB__PACKAGE_HDF5].variable, hdf5_usual,
                                        hdf5_names, hdf5_init_library, &hdf5_table, reason);
    if (hdf5_is_open) return &hdf5_table;
    return wb__package_missing(WB__PACKAGE_HDF5, path, reason), NULL;
}
