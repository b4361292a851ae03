/* The matrix product's kernels in AVX-512 F, BW, DQ and VL: only the text of gemm_kernel.h, twice.
 * Not here: anything that runs on a processor without these instructions.  Next: gemm_kernel.h. */
#include "backend/cpu/gemm.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define WB__ISA 5

#define WB__DOUBLE 0
#include "backend/cpu/gemm_simd.h"
#include "backend/cpu/gemm_kernel.h"
#undef WB__DOUBLE

#define WB__DOUBLE 1
#include "backend/cpu/gemm_simd.h"
#include "backend/cpu/gemm_kernel.h"

const wb__gemm_isa wb__gemm_avx512 = { "avx512", &kernel_f32, &kernel_f64 };
