/* Opening a library of NCCL's interface, and what it offers before the ranks are connected. */
#include "backend/nccl/ranks.h"

#include "base/environment.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME(type, name, parameters) {"nccl" #name, offsetof(wb__nccl_functions, name)},
const wb__gpu_function wb__nccl_names[] = {WB__NCCL_FUNCTIONS(NAME)};
#undef NAME
_Static_assert(WB__COUNT(wb__nccl_names) == WB__NCCL_COUNT, "the number of functions");
_Static_assert(WB__COUNT(wb__nccl_names) <= WB__GPU_MAX_FUNCTIONS, "room for the functions");

/* Whether the library is new enough.  Its version has two digits for second and third part each. */
bool wb__nccl_suits(const wb__nccl_functions *f, const char *missing, const char *file,
                    const char *needed, char *reason, size_t capacity)
{
    int version = 0;
    if (missing) {
        snprintf(reason, capacity, "%s has no %s: it is too old: install %s", file, missing,
                 needed);
        return false;
    }
    const wb__nccl_enum result = f->GetVersion(&version);
    if (result)
        snprintf(reason, capacity, "ncclGetVersion: %s (%u)", f->GetErrorString(result), result);
    else if (version < WB__NCCL_OLDEST)
        snprintf(reason, capacity, "its version number is %d: install %s", version, needed);
    else if (version >= 30000)
        snprintf(reason, capacity, "%s is of version %d.%d, whose functions are not known: install"
                 " %s", file, version / 10000, version / 100 % 100, needed);
    else return true;
    return false;
}

const wb__nccl_functions *wb__nccl_open(const wb__nccl_library *l)
{
    return wb__gpu_vendor_works(l->vendor) ? l->vendor->table : NULL;
}

const char *wb__nccl_version(const wb__nccl_library *l)
{
    static char text[40];
    int version = 0;
    const wb__nccl_functions *nccl = wb__nccl_open(l);
    if (!nccl) return NULL;
    nccl->GetVersion(&version);
    snprintf(text, sizeof text, "%s %d.%d.%d", l->name, version / 10000, version / 100 % 100,
             version % 100);
    return text;
}

int wb__nccl_ranks_id(const wb__nccl_library *l, char id[WB__NCCL_RANKS_ID])
{
    _Static_assert(sizeof(ncclUniqueId) == WB__NCCL_RANKS_ID, "an id has so many bytes");
    const wb__nccl_functions *nccl = wb__nccl_open(l);
    if (!nccl) return wb_error_code();
    const wb__nccl_enum result = nccl->GetUniqueId((ncclUniqueId *)(void *)id);
    if (!result) return 0;
    return wb__fail(WB_ERROR_DEVICE, "%s: ncclGetUniqueId: %s (%u): %s", l->name,
                    nccl->GetErrorString(result), result, nccl->GetLastError(NULL));
}

int wb__nccl_ranks_devices(const wb__nccl_library *l)
{
    const wb__backend *b = l->driver->backend;
    if (b->start()) return 0;
    const int n = b->count();
    if (!n) wb__fail(WB_ERROR_DEVICE, "%s: there is no device", b->tag);
    return n;
}

/* Whether environment variables give each process a first device of its own. */
static bool nccl_library_chooses(const wb__nccl_library *l)
{
    bool set = false;
    for (const char *const *name = l->visible; *name; name++)
        set |= wb__environment_text(*name) != NULL;
    return set;
}

int wb__nccl_ranks_device(const wb__nccl_library *l, const wb__communicator *c, const wb_device **d)
{
    const wb__backend *b = l->driver->backend;
    const int n = wb__nccl_ranks_devices(l);
    if (!n) return wb_error_code();
    if (c->local_size > n && (wb__nccl_ranks_here() > n || !nccl_library_chooses(l)))
        return wb__fail(WB_ERROR_DEVICE, "%s: this machine has %d %s device%s for %d ranks, and"
                        " each rank needs one: start %d, or use WB_MPI", l->name, n, b->name,
                        n > 1 ? "s" : "", c->local_size, n);
    *d = b->device(c->local_rank % n);
    return 0;
}
