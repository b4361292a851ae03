/* The kernels of one instruction set.  cpu_portable.c, cpu_avx2.c and cpu_avx512.c define WB__ISA
 * (see simd.h) and WB__ISA_NAME and include this file, which is compiled for that set. */
#include "backend/cpu/isa.h"
#if WB__ISA
#include "backend/cpu/transpose.h"
#endif

#include <math.h>
#include <string.h>

#define WB__DOUBLE 0
#include "backend/cpu/simd.h"
#include "backend/cpu/product/gemm_kernel.h"
#include "backend/cpu/conv/pool_kernel.h"
#include "backend/cpu/conv/gather_kernel.h"
#include "backend/cpu/conv/line_kernel.h"
#include "backend/cpu/conv/strips_kernel.h"
#include "backend/cpu/conv/winograd_kernel.h"
#undef WB__DOUBLE

#define WB__DOUBLE 1
#include "backend/cpu/simd.h"
#include "backend/cpu/product/gemm_kernel.h"
#include "backend/cpu/conv/pool_kernel.h"
#include "backend/cpu/conv/gather_kernel.h"

#define QUOTED_(x) #x
#define QUOTED(x) QUOTED_(x)
#define SET_(name) wb__isa_##name
#define SET(name) SET_(name)

const wb__isa SET(WB__ISA_NAME) = {
    .name = QUOTED(WB__ISA_NAME),
    .gemm_f32 = &kernel_f32, .gemm_f64 = &kernel_f64,
    .pool_f32 = pool_one_f32, .pool_f64 = pool_one_f64,
    .gather_f32 = gather_one_f32, .gather_f64 = gather_one_f64,
    .line = line_f32, .line_weights = line_weights_f32, .strips = strips_f32,
    .winograd = &winograd_f32,
};
