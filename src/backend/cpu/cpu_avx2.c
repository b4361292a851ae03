/* Kernels for x86 with AVX2, FMA and F16C; see cpu_kernels.h. */
#define WB__ISA 2
#define WB__ISA_NAME avx2
#include "backend/cpu/cpu_kernels.h"
