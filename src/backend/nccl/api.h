/* Declarations of NCCL 2, which are those of RCCL too: the types, constants and functions that
 * ranks.c uses, so that it compiles without the vendors' headers.  Names that do not begin with
 * wb__ or WB__ are NVIDIA's. */
#ifndef WB__NCCL_API_H
#define WB__NCCL_API_H

#include <stddef.h>
#include <stdint.h>

#ifndef WB__NCCL_STREAM   /* defined by a test: cudaStream_t or hipStream_t */
#define WB__NCCL_STREAM void *
#endif

typedef unsigned int wb__nccl_enum;     /* as C passes enumerations */

enum { WB__NCCL_ID_BYTES = 128, WB__NCCL_OLDEST = 21700 };
typedef struct { char internal[WB__NCCL_ID_BYTES]; } wb__nccl_id;

/* The configuration of NCCL 2.17, which all later versions accept: NCCL reads as many bytes as
 * `size`, and gives fields that are newer than `version` their defaults. */
typedef struct {
    size_t size;
    unsigned int magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
} wb__nccl_config;
#define WB__NCCL_UNDEFINED INT32_MIN
#define WB__NCCL_MAGIC 0xcafebeefu

#ifndef WB__NCCL_NO_TYPES  /* defined by a test that includes a vendor's header */
typedef struct ncclComm *ncclComm_t;
typedef wb__nccl_id ncclUniqueId;
typedef wb__nccl_config ncclConfig_t;
#endif

#define WB__NCCL_CONSTANTS(X)                                                                      \
    X(ncclSuccess, 0) X(ncclUnhandledCudaError, 1) X(ncclSystemError, 2) X(ncclInternalError, 3)   \
    X(ncclInvalidArgument, 4) X(ncclInvalidUsage, 5) X(ncclRemoteError, 6) X(ncclInProgress, 7)    \
    X(ncclSum, 0) X(ncclMax, 2) X(ncclMin, 3)                                                      \
    X(ncclInt8, 0) X(ncclUint8, 1) X(ncclInt32, 2) X(ncclInt64, 4) X(ncclFloat32, 7)               \
    X(ncclFloat64, 8)

#define WB__NCCL_ENUM(name, number) name = number,
#ifndef WB__NCCL_NO_TYPES
enum { WB__NCCL_CONSTANTS(WB__NCCL_ENUM) WB__NCCL_CONSTANTS_END };
#endif
#undef WB__NCCL_ENUM

/* X(result, name without nccl, parameters) */
#define WB__NCCL_FUNCTIONS(X)                                                                      \
    X(wb__nccl_enum, GetVersion, (int *version))                                                   \
    X(wb__nccl_enum, GetUniqueId, (ncclUniqueId *id))                                              \
    X(const char *, GetErrorString, (wb__nccl_enum result))                                        \
    X(const char *, GetLastError, (ncclComm_t comm))                                               \
    X(wb__nccl_enum, CommInitRank, (ncclComm_t *comm, int size, ncclUniqueId id, int rank))        \
    X(wb__nccl_enum, CommInitRankConfig,                                                           \
      (ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config))               \
    X(wb__nccl_enum, CommGetAsyncError, (ncclComm_t comm, wb__nccl_enum *result))                  \
    X(wb__nccl_enum, CommFinalize, (ncclComm_t comm))                                              \
    X(wb__nccl_enum, CommDestroy, (ncclComm_t comm))                                               \
    X(wb__nccl_enum, CommAbort, (ncclComm_t comm))                                                 \
    X(wb__nccl_enum, GroupStart, (void))                                                           \
    X(wb__nccl_enum, GroupEnd, (void))                                                             \
    X(wb__nccl_enum, AllReduce,                                                                    \
      (const void *from, void *to, size_t n, wb__nccl_enum type, wb__nccl_enum op,                 \
       ncclComm_t comm, WB__NCCL_STREAM stream))                                                   \
    X(wb__nccl_enum, Reduce,                                                                       \
      (const void *from, void *to, size_t n, wb__nccl_enum type, wb__nccl_enum op, int root,       \
       ncclComm_t comm, WB__NCCL_STREAM stream))                                                   \
    X(wb__nccl_enum, Broadcast,                                                                    \
      (const void *from, void *to, size_t n, wb__nccl_enum type, int root, ncclComm_t comm,        \
       WB__NCCL_STREAM stream))                                                                    \
    X(wb__nccl_enum, AllGather,                                                                    \
      (const void *from, void *to, size_t n, wb__nccl_enum type, ncclComm_t comm,                  \
       WB__NCCL_STREAM stream))                                                                    \
    X(wb__nccl_enum, ReduceScatter,                                                                \
      (const void *from, void *to, size_t n, wb__nccl_enum type, wb__nccl_enum op,                 \
       ncclComm_t comm, WB__NCCL_STREAM stream))

/* The function table: nccl.AllReduce is ncclAllReduce. */
#define WB__NCCL_FIELD(type, name, parameters) type (*name) parameters;
typedef struct { WB__NCCL_FUNCTIONS(WB__NCCL_FIELD) } wb__nccl_functions;
#undef WB__NCCL_FIELD

#endif
