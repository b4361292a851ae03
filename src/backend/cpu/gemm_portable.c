/* The matrix product's kernels in plain C with 16-byte vectors, for any processor: only the text of gemm_kernel.h, twice.
 * Not here: anything that runs on a processor without these instructions.  Next: gemm_kernel.h. */
#include "backend/cpu/gemm.h"

#include <math.h>
#include <string.h>

#define WB__ISA 0

#define WB__DOUBLE 0
#include "backend/cpu/gemm_simd.h"
#include "backend/cpu/gemm_kernel.h"
#undef WB__DOUBLE

#define WB__DOUBLE 1
#include "backend/cpu/gemm_simd.h"
#include "backend/cpu/gemm_kernel.h"

const wb__gemm_isa wb__gemm_portable = { "portable", &kernel_f32, &kernel_f64 };
