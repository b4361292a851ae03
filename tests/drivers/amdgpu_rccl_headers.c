/* Weber's own declarations of NCCL are compared with the header of RCCL, which has the same. */
#if defined(WB_TEST_HIP_HEADERS) && __has_include(<rccl/rccl.h>)
#define __HIP_PLATFORM_AMD__ 1
#include <rccl/rccl.h>
#define WB__NCCL_STREAM hipStream_t
#define HAS_HEADER
#endif

#include "nccl_headers.h"

int main(void) { return compare(); }
