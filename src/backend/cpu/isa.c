/* Which instruction set this processor runs, and the conversions between stored and computed types.
 * Next: isa.h. */
#include "backend/cpu/isa.h"

#include <stdlib.h>
#include <string.h>

void wb__widen(void *to, const void *from, wb_dtype from_type, int64_t n)
{
    if (from_type == WB_F32) memcpy(to, from, (size_t)n * sizeof(float));
    else if (from_type == WB_F64) memcpy(to, from, (size_t)n * sizeof(double));
    else if (from_type == WB_BF16) {
        uint32_t *bits = to;
        const uint16_t *half = from;
        for (int64_t i = 0; i < n; i++) bits[i] = (uint32_t)half[i] << 16;
    } else wb__convert(to, WB_F32, from, from_type, n);
}

void wb__narrow(void *to, wb_dtype to_type, const void *from, int64_t n)
{
    if (to_type == WB_F32) memcpy(to, from, (size_t)n * sizeof(float));
    else if (to_type == WB_F64) memcpy(to, from, (size_t)n * sizeof(double));
    else wb__convert(to, to_type, from, WB_F32, n);
}

wb__act wb__act_of(wb__op op, wb_dtype computed)
{
    const wb__isa *isa = wb__isa_best();
    const wb__gemm_kernel *k = computed == WB_F64 ? isa->gemm_f64 : isa->gemm_f32;
    switch (op) {
    case WB__OP_NONE: return (wb__act){0};
    case WB__OP_relu: return (wb__act){.relu = true};
    case WB__OP_tanh: return (wb__act){.row = k->tanh};
    case WB__OP_sigmoid: return (wb__act){.row = k->sigmoid};
    default: break;
    }
    return (wb__act){.row = wb__tile_unary(wb__tile_table_here(), op, (int)wb__reg_of(computed))};
}

const wb__isa *wb__isa_best(void)
{
#if defined(__x86_64__)
    const char *limit = getenv("WEBER_CPU_ISA");
    const int most = !limit ? 2 : !strcmp(limit, "avx512") ? 2 : !strcmp(limit, "avx2") ? 1 : 0;
    __builtin_cpu_init();
    if (most == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &wb__isa_avx512;
    if (most >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &wb__isa_avx2;
#endif
    return &wb__isa_portable;
}

