/* Kernels for any processor, in plain C with vectors of 16 bytes; see cpu_kernels.h. */
#define WB__ISA 0
#define WB__ISA_NAME portable
#include "backend/cpu/cpu_kernels.h"
