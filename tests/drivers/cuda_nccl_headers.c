/* Weber's own declarations of NCCL are compared with its header. */
#if defined(WB_TEST_CUDA_HEADERS) && __has_include(<nccl.h>)
#include <nccl.h>
#define WB__NCCL_STREAM cudaStream_t
#define HAS_HEADER
#endif

#include "nccl_headers.h"

int main(void) { return compare(); }
