/* The CPU's kernels in plain C with 16-byte vectors, for any processor: only texts shared with the
 * other sets, included once for float and once for double. Not here: anything that runs on a
 * processor without these instructions.  Next: isa.h. */
#include "backend/cpu/isa.h"

#include <math.h>
#include <string.h>

#define WB__ISA 0

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

const wb__isa wb__isa_portable = {
    .name = "portable", .gemm_f32 = &kernel_f32, .gemm_f64 = &kernel_f64,
    .pool_f32 = pool_f32, .pool_f64 = pool_f64,
    .gather_f32 = gather_f32, .gather_f64 = gather_f64,
    .line_f32 = line_f32, .line_f64 = line_f64,
};
