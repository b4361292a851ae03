/* The structs of DLPack, version 1.1.  Programs get their definitions from DLPack's own dlpack.h.
 * The structs are a binary interface: their layout is the same within a major version. */
#ifndef WB__DLPACK_H
#define WB__DLPACK_H

#include "base/base.h"

enum { WB__DL_MAJOR = 1, WB__DL_MINOR = 1 };
enum { WB__DL_READ_ONLY = 1 };                              /* a bit of `flags` */
/* Kinds of devices whose memory the host can read. */
enum { WB__DL_CPU = 1, WB__DL_PINNED = 3, WB__DL_PINNED_2 = 11 };

typedef struct { int32_t kind, ordinal; } wb__dl_device;
typedef struct { uint8_t code, bits; uint16_t lanes; } wb__dl_type;
typedef struct {
    void *data;
    wb__dl_device device;
    int32_t ndim;
    wb__dl_type dtype;
    int64_t *shape, *strides;           /* strides in elements; NULL: row-major without gaps */
    uint64_t byte_offset;
} wb__dl_tensor;

struct DLManagedTensor {
    wb__dl_tensor tensor;
    void *ctx;
    void (*deleter)(struct DLManagedTensor *self);
};

struct DLManagedTensorVersioned {
    struct { uint32_t major, minor; } version;
    void *ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    wb__dl_tensor tensor;
};

#endif
