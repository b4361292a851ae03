/* Every call of HIP and hiprtc fails once. */
#define DRIVER wb__amd_backend
#include "tests/runtime/stream_faults.h"

int main(void) { return run_faults(); }
