/* Whether oneDNN has enough memory for an operation.  oneDNN 2.6 does not check whether it gets
 * memory for the descriptions and the code that it makes, and crashes without: where little address
 * space is left, or where no program may make code. */
#include "backend/cpu/onednn/dnnl_piece.h"

#include "base/os.h"

#include <stdatomic.h>

/* Whether a piece may get memory.  A piece has some kernels, for each of which oneDNN maps 256 KiB.
 * If the process has no limit of memory, the system is asked only once. */
bool wb__dnnl_has_memory(const char **reason)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    static atomic_bool had;
    if (atomic_load(&had) && !wb__os_memory_is_limited()) return true;
    const bool has = wb__os_may_make_code(16 << 20);
    const int why = wb__os_error();
    atomic_store(&had, has);
    if (has) return true;
    *reason = "the code of oneDNN gets no memory";
    if (!atomic_flag_test_and_set(&reported))
        wb__log(WB_LOG_WARN, "oneDNN is not used, since its code gets no memory: %s.\nOur own "
                "kernels compute; they are slower for large products and convolutions.",
                wb__os_text(why));
    return false;
}
