/* The CPU's kernels in AVX2 with FMA and F16C (-mavx2 -mfma -mf16c): only texts shared with the
 * other sets, included once for float and once for double. Not here: anything that runs on a
 * processor without these instructions.  Next: isa.h. */
#include "backend/cpu/isa.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

static const int32_t wb__mask_8[16] = { -1, -1, -1, -1, -1, -1, -1, -1 };
static const int64_t wb__mask_4[8] = { -1, -1, -1, -1 };

#define WB__ISA 2

#define WB__DOUBLE 0
#include "backend/cpu/simd.h"
#include "backend/cpu/gemm_kernel.h"
#include "backend/cpu/pool_kernel.h"
#include "backend/cpu/gather_kernel.h"
#include "backend/cpu/line_kernel.h"
#undef WB__DOUBLE

#define WB__DOUBLE 1
#include "backend/cpu/simd.h"
#include "backend/cpu/gemm_kernel.h"
#include "backend/cpu/pool_kernel.h"
#include "backend/cpu/gather_kernel.h"
#include "backend/cpu/line_kernel.h"

const wb__isa wb__isa_avx2 = {
    .name = "avx2", .gemm_f32 = &kernel_f32, .gemm_f64 = &kernel_f64,
    .pool_f32 = pool_f32, .pool_f64 = pool_f64,
    .gather_f32 = gather_f32, .gather_f64 = gather_f64,
    .line_f32 = line_f32, .line_f64 = line_f64,
};
