/* Every call of CUDA's driver and of NVRTC fails once. */
#define DRIVER wb__cu_backend
#include "tests/runtime/stream_faults.h"

int main(void) { return run_faults(); }
