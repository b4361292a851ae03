/* Training on AMDGPU while calls of HIP, rocBLAS and MIOpen fail. */
#define BACKEND "AMDGPU"
#define TAG "amdgpu"
#define GRAPHS "WEBER_AMDGPU_GRAPHS"
#define COUNT 40
#include "tests/gpu/stream_training_faults.h"

int main(int argc, char **argv) { return run_training(argc, argv); }
