/* Functions of libhdf5, which is opened when the first file is read.  The types are those of
 * libhdf5 since 1.10: an identifier (hid_t) is an int64_t, negative on failure; a size (hsize_t) is
 * a uint64_t; a status (herr_t) is an int, negative on failure. */
#ifndef WB__HDF5_H
#define WB__HDF5_H

#include "base/base.h"

#include <stddef.h>

/* The first field of the library's H5G_info_t that is used is `links`. */
typedef struct { int storage; uint64_t links; int64_t max_order; bool mounted; } wb__hdf5_group;

/* Called before a link to another file is followed; a negative result forbids it. */
typedef int wb__hdf5_traverse(const char *file, const char *group, const char *child_file,
                              const char *child, unsigned *flags, int64_t properties, void *data);

/* The columns of WB__HDF5_FUNCTIONS: the result, the name in libhdf5, the arguments. */
#define WB__HDF5_FUNCTIONS(X)                                                                     \
    X(int, H5open, (void))                                                                        \
    X(int, H5get_libversion, (unsigned *major, unsigned *minor, unsigned *release))               \
    X(int, H5free_memory, (void *memory))                                                         \
    X(int, H5Eset_auto2, (int64_t stack, void *f, void *data))                                    \
    X(int64_t, H5Fopen, (const char *path, unsigned flags, int64_t properties))                   \
    X(int, H5Fclose, (int64_t file))                                                              \
    X(int64_t, H5Oopen, (int64_t at, const char *name, int64_t properties))                       \
    X(int, H5Oclose, (int64_t object))                                                            \
    X(int, H5Iget_type, (int64_t object))                                                         \
    X(int, H5Gget_info, (int64_t group, wb__hdf5_group *info))                                    \
    X(ptrdiff_t, H5Lget_name_by_idx, (int64_t at, const char *group, int index, int order,         \
                                    uint64_t i, char *name, size_t size, int64_t properties))     \
    X(int64_t, H5Dget_type, (int64_t set))                                                        \
    X(int64_t, H5Dget_space, (int64_t set))                                                       \
    X(int, H5Dread, (int64_t set, int64_t type, int64_t memory, int64_t file, int64_t properties, \
                     void *to))                                                                   \
    X(int, H5Sclose, (int64_t space))                                                             \
    X(int, H5Sget_simple_extent_type, (int64_t space))                                            \
    X(int, H5Sget_simple_extent_ndims, (int64_t space))                                           \
    X(int, H5Sget_simple_extent_dims, (int64_t space, uint64_t *dims, uint64_t *most))            \
    X(int, H5Tclose, (int64_t type))                                                              \
    X(int64_t, H5Tcreate, (int class, size_t size))                                               \
    X(int, H5Tinsert, (int64_t type, const char *name, size_t offset, int64_t member))            \
    X(int, H5Tget_class, (int64_t type))                                                          \
    X(size_t, H5Tget_size, (int64_t type))                                                        \
    X(int, H5Tget_order, (int64_t type))                                                          \
    X(int, H5Tget_sign, (int64_t type))                                                           \
    X(size_t, H5Tget_precision, (int64_t type))                                                   \
    X(int, H5Tget_fields, (int64_t type, size_t *sign, size_t *exponent, size_t *exponent_bits,   \
                           size_t *mantissa, size_t *mantissa_bits))                              \
    X(int, H5Tget_nmembers, (int64_t type))                                                       \
    X(char *, H5Tget_member_name, (int64_t type, unsigned i))                                     \
    X(size_t, H5Tget_member_offset, (int64_t type, unsigned i))                                   \
    X(int64_t, H5Tget_member_type, (int64_t type, unsigned i))                                    \
    X(int, H5Tget_member_value, (int64_t type, unsigned i, void *value))                          \
    X(int64_t, H5Dget_create_plist, (int64_t set))                                                \
    X(int64_t, H5Pcreate, (int64_t class))                                                        \
    X(int, H5Pclose, (int64_t properties))                                                        \
    X(int, H5Pget_external_count, (int64_t properties))                                           \
    X(int, H5Pget_layout, (int64_t properties))                                                   \
    X(int, H5Pset_elink_cb, (int64_t properties, wb__hdf5_traverse *f, void *data))               \
    X(int64_t, H5Rdereference2, (int64_t at, int64_t properties, int kind, const void *reference))

typedef struct {
#define WB__HDF5_FIELD(result, name, arguments) result(*name) arguments;
    WB__HDF5_FUNCTIONS(WB__HDF5_FIELD)
#undef WB__HDF5_FIELD
    int64_t link_access;        /* properties that forbid links to other files */
} wb__hdf5;

/* Constants of libhdf5. */
enum {
    WB__H5I_GROUP = 2, WB__H5I_DATASET = 5,
    WB__H5S_SCALAR = 0, WB__H5S_SIMPLE = 1,
    WB__H5T_INTEGER = 0, WB__H5T_FLOAT = 1, WB__H5T_STRING = 3, WB__H5T_BITFIELD = 4,
    WB__H5T_COMPOUND = 6, WB__H5T_REFERENCE = 7, WB__H5T_ENUM = 8, WB__H5T_VLEN = 9,
    WB__H5R_OBJECT = 0, WB__H5D_VIRTUAL = 3
};

/* Returns the functions.  NULL with the error set: libhdf5 was not found, or is older than 1.10.
 * `path` is the file that is read, for the message.  libhdf5 may be called by one thread at a time:
 * the caller holds a lock. */
const wb__hdf5 *wb__hdf5_open(const char *path);

#endif
