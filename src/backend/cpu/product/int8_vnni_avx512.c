/* The product of quantised rows and i8 weights with AVX512-VNNI; see int8_kernel.h and, for the
 * instruction, int8_vnni_avx2.c. */
#include "backend/cpu/product/int8.h"

#include <immintrin.h>

#define NAME vnni_avx512
#define Q uint8_t
#define APART 1
enum { STEP = 64 };
#define ROWS 6
typedef __m512i V, W;

WB__INLINE V int8_zero(void) { return _mm512_setzero_si512(); }
WB__INLINE W int8_load_weight(const int8_t *w) { return _mm512_loadu_si512(w); }
/* Loads n elements, fewer than STEP, and zeros. */
#define LOAD_END
WB__INLINE W int8_load_end(const int8_t *w, int64_t n)
{
    return _mm512_maskz_loadu_epi8(((__mmask64)1 << n) - 1, w);
}
WB__INLINE V int8_add(V a, V b) { return _mm512_add_epi32(a, b); }
/* Written in assembly: gcc 12 copies each sum before and after the intrinsic, which takes more than
 * half of the time. */
WB__INLINE V int8_add_products(V v, W w, const uint8_t *q)
{
    const __m512i row = _mm512_load_si512(q);
    __asm__("vpdpbusd %2, %1, %0" : "+v"(v) : "v"(row), "v"(w));
    return v;
}
WB__INLINE void int8_totals(const V v[4], int32_t total[4])
{
    const V low = int8_add(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1])),
            high = int8_add(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    const V four = int8_add(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
    const __m256i two = _mm256_add_epi32(_mm512_castsi512_si256(four),
                                         _mm512_extracti64x4_epi64(four, 1));
    _mm_storeu_si128((__m128i *)(void *)total, _mm_add_epi32(_mm256_castsi256_si128(two),
                                                            _mm256_extracti128_si256(two, 1)));
}

#include "backend/cpu/product/int8_kernel.h"
