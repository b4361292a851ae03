/* The matrix product's kernels in AVX2 with FMA and F16C (-mavx2 -mfma -mf16c): only the text of gemm_kernel.h, twice.
 * Not here: anything that runs on a processor without these instructions.  Next: gemm_kernel.h. */
#include "backend/cpu/gemm.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

static const int32_t wb__mask_8[16] = { -1, -1, -1, -1, -1, -1, -1, -1 };
static const int64_t wb__mask_4[8] = { -1, -1, -1, -1 };

#define WB__ISA 2

#define WB__DOUBLE 0
#include "backend/cpu/gemm_simd.h"
#include "backend/cpu/gemm_kernel.h"
#undef WB__DOUBLE

#define WB__DOUBLE 1
#include "backend/cpu/gemm_simd.h"
#include "backend/cpu/gemm_kernel.h"

const wb__gemm_isa wb__gemm_avx2 = { "avx2", &kernel_f32, &kernel_f64 };
