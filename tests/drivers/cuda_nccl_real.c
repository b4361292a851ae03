/* The real NCCL, where it is installed.  Without a GPU it names its version, makes unique ids and
 * describes errors. */
#include "test.h"

#include "backend/nccl/ranks.h"
#include "weber.h"

#include <stdlib.h>
#include <string.h>

static const wb__nccl_functions *nccl;

TEST(test_version)
{
    int version = 0;
    assert_int_equal(nccl->GetVersion(&version), ncclSuccess);
    print_message("NCCL %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    assert_true(version >= WB__NCCL_OLDEST && version < 30000);
}

TEST(test_unique_ids)
{
    ncclUniqueId id[2];
    memset(id, 0, sizeof id);
    for (int i = 0; i < 2; i++) {
        const wb__nccl_enum result = nccl->GetUniqueId(&id[i]);
        if (result) fail_msg("%s: %s", nccl->GetErrorString(result), nccl->GetLastError(NULL));
    }
    assert_memory_not_equal(&id[0], &id[1], sizeof id[0]);
}

TEST(test_wrong_arguments)
{
    assert_int_equal(nccl->GetVersion(NULL), ncclInvalidArgument);
    assert_non_null(strstr(nccl->GetErrorString(ncclInvalidArgument), "argument"));
    assert_int_equal(nccl->GroupStart(), ncclSuccess);
    assert_int_equal(nccl->GroupEnd(), ncclSuccess);
    assert_int_equal(nccl->GroupEnd(), ncclInvalidUsage);   /* no group has begun */
}

TEST(test_switched_off)
{
    setenv("WEBER_CUDA_NCCL", "0", 1);
    assert_null(wb__nccl_open(&wb__cu_nccl));
    assert_int_equal(wb_error_code(), WB_ERROR_UNSUPPORTED);
    assert_non_null(strstr(wb_error(), "WEBER_CUDA_NCCL=0"));
    wb_clear_error();
    unsetenv("WEBER_CUDA_NCCL");
    assert_ptr_equal(wb__nccl_open(&wb__cu_nccl), nccl);
}

int main(void)
{
    unsetenv("WEBER_CUDA_PATH");        /* which may name the folder of the doubles */
    nccl = wb__nccl_open(&wb__cu_nccl);
    if (!nccl) {
        printf("SKIP: %s\n", wb_error());
        return 77;
    }
    return run_all_cases();
}
