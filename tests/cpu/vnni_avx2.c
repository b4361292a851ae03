#ifdef WB_HAVE_X86_ISA
#include "backend/cpu/product/int8.h"

#include <immintrin.h>

/* VPDPBUSD: adds the four products of unsigned bytes of u and signed bytes of s to each i32. */
WB__INLINE __m256i multiply_bytes(__m256i sum, __m256i u, __m256i s)
{
    __m256i pairs[2];
    for (int i = 0; i < 2; i++) {
        const __m128i a = i ? _mm256_extracti128_si256(u, 1) : _mm256_castsi256_si128(u),
                      b = i ? _mm256_extracti128_si256(s, 1) : _mm256_castsi256_si128(s);
        pairs[i] = _mm256_madd_epi16(_mm256_cvtepu8_epi16(a), _mm256_cvtepi8_epi16(b));
    }
    const __m256i fours = _mm256_hadd_epi32(pairs[0], pairs[1]);
    return _mm256_add_epi32(sum, _mm256_permute4x64_epi64(fours, 0xd8));
}
#define MULTIPLY_BYTES(v, q, w) (v) = multiply_bytes(v, q, w)
#define wb__int8_vnni_avx2 emulated
#include "backend/cpu/product/int8_vnni_avx2.c"
#undef wb__int8_vnni_avx2
#undef NAME

#include "vnni_avx2.h"
const wb__int8_kernel *const emulated_vnni_avx2 = &emulated;
#else
#include "vnni_avx2.h"
const wb__int8_kernel *const emulated_vnni_avx2;
#endif
