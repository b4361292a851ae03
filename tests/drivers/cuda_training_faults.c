/* Training on CUDA while calls of its driver and libraries fail. */
#define BACKEND "CUDA"
#define TAG "cuda"
#define GRAPHS "WEBER_CUDA_GRAPHS"
#define COUNT 100
#include "tests/gpu/stream_training_faults.h"

int main(int argc, char **argv) { return run_training(argc, argv); }
