/* Kernels for x86 with AVX-512 F, BW, DQ and VL; see cpu_kernels.h. */
#define WB__ISA 5
#define WB__ISA_NAME avx512
#include "backend/cpu/cpu_kernels.h"
