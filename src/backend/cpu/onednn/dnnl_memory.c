/* The memory that oneDNN needs for an operation.  oneDNN 2.6 does not check whether it gets memory
 * for the descriptions and the code that it makes, and crashes where it does not: where little
 * address space is left, or where no program may make code. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE             /* MAP_ANONYMOUS of strict C */
#endif
#include "backend/cpu/onednn/dnnl_piece.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifdef __APPLE__

bool wb__dnnl_has_memory(const char **reason)   /* macOS has no limit of address space */
{
    (void)reason;
    return true;
}

#else

static bool is_limited(int resource)
{
    struct rlimit l;
    return !getrlimit(resource, &l) && l.rlim_cur != RLIM_INFINITY;
}

/* A piece has some kernels, for each of which oneDNN maps 256 KiB.  The memory here is not touched.
 * Where the process has no limit it is asked for once. */
bool wb__dnnl_has_memory(const char **reason)
{
    enum { MOST = 16 << 20 };
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    static atomic_bool had;
    if (atomic_load(&had) && !is_limited(RLIMIT_AS) && !is_limited(RLIMIT_DATA)) return true;
    void *code = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool has = code != MAP_FAILED && !mprotect(code, MOST, PROT_READ | PROT_EXEC);
    const int why = errno;
    if (code != MAP_FAILED) munmap(code, MOST);
    atomic_store(&had, has);
    if (has) return true;
    *reason = "the code of oneDNN gets no memory";
    if (!atomic_flag_test_and_set(&reported))
        wb__log(WB_LOG_WARN, "oneDNN is not used, since its code gets no memory: %s.\nOur own "
                "kernels compute; they are slower for large products and convolutions.",
                strerror(why));
    return false;
}

#endif
