/* The instruction set of this processor, and conversions between stored and computed dtypes. */
#include "backend/cpu/isa.h"

#include "base/environment.h"

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
    } else if (n == 1) wb__convert(to, WB_F32, from, from_type, n);
    else wb__tile_table_here()->load[from_type](to, n, from, 1, n, 0, 1);
}

void wb__narrow(void *to, wb_dtype to_type, const void *from, int64_t n)
{
    if (to_type == WB_F32) memcpy(to, from, (size_t)n * sizeof(float));
    else if (to_type == WB_F64) memcpy(to, from, (size_t)n * sizeof(double));
    else if (n == 1) wb__convert(to, to_type, from, WB_F32, n);
    else wb__tile_table_here()->store[to_type](from, n, to, 1, n, 0, 1);
}

wb__isa_level wb__isa_here(void)
{
#ifdef WB_HAVE_X86_ISA
    const char *limit = wb__environment_text("WEBER_ISA");
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl");
    if (limit && !strcmp(limit, "portable")) return WB__ISA_PORTABLE;
    if (avx512 && !(limit && !strcmp(limit, "avx2"))) return WB__ISA_AVX512;
    if (avx2) return WB__ISA_AVX2;
#endif
    return WB__ISA_PORTABLE;
}

const wb__isa *wb__isa_best(void)
{
#ifdef WB_HAVE_X86_ISA
    static const wb__isa *const table[] = {&wb__isa_portable, &wb__isa_avx2, &wb__isa_avx512};
    return table[wb__isa_here()];
#else
    return &wb__isa_portable;
#endif
}

const wb__gemm_kernel *wb__isa_gemm_bf16(void)
{
#ifdef WB_HAVE_AVX512_BF16
    if (wb__isa_here() == WB__ISA_AVX512 && __builtin_cpu_supports("avx512bf16"))
        return &wb__gemm_bf16_avx512;
#endif
    return NULL;
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
