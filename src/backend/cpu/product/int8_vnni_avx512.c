/* The product of quantised rows and i8 weights with AVX512-VNNI; see int8_kernel.h and, for the
 * offset, int8_vnni_avx2.c. */
#include "backend/cpu/product/int8.h"

#include <immintrin.h>

#define NAME vnni_avx512
#define Q int8_t
#define OFFSET 128u
enum { STEP = 64 };
#define ROWS 6
typedef __m512i V, W;

WB__INLINE V zero(void) { return _mm512_setzero_si512(); }
WB__INLINE W load_weight(const int8_t *w)
{
    return _mm512_xor_si512(_mm512_loadu_si512(w), _mm512_set1_epi8(-128));
}
WB__INLINE V add(V a, V b) { return _mm512_add_epi32(a, b); }
/* Written as an instruction: gcc 12 copies each sum before and after the intrinsic, which takes
 * more than half of the time. */
WB__INLINE V add_products(V v, W w, const int8_t *q)
{
    const __m512i row = _mm512_load_si512(q);
    __asm__("vpdpbusd %2, %1, %0" : "+v"(v) : "v"(w), "v"(row));
    return v;
}
WB__INLINE __m256i half(V v)
{
    return _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
}
WB__INLINE void totals(const V v[4], int32_t total[4])
{
    const __m256i low = _mm256_hadd_epi32(half(v[0]), half(v[1])),
                  high = _mm256_hadd_epi32(half(v[2]), half(v[3]));
    const __m256i four = _mm256_hadd_epi32(low, high);
    _mm_storeu_si128((__m128i *)(void *)total, _mm_add_epi32(_mm256_castsi256_si128(four),
                                                            _mm256_extracti128_si256(four, 1)));
}

#include "backend/cpu/product/int8_kernel.h"
