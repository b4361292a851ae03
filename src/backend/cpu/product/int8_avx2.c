/* The product of quantised rows and i8 weights with AVX2; see int8_kernel.h.  The instruction that
 * multiplies bytes saturates its sums of two products, so both operands become i16, whose products
 * the processor adds in i32. */
#include "backend/cpu/product/int8.h"

#include <immintrin.h>

#define NAME avx2
#define Q int16_t
#define APART 0
enum { STEP = 16 };
#define ROWS 2
typedef __m256i V, W;

WB__INLINE V int8_zero(void) { return _mm256_setzero_si256(); }
WB__INLINE W int8_load_weight(const int8_t *w)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)w));
}
WB__INLINE V int8_add(V a, V b) { return _mm256_add_epi32(a, b); }
WB__INLINE V int8_add_products(V v, W w, const int16_t *q)
{
    const __m256i row = _mm256_load_si256((const __m256i *)(const void *)q);
    return int8_add(v, _mm256_madd_epi16(w, row));
}

#include "backend/cpu/product/int8_totals.h"
#include "backend/cpu/product/int8_kernel.h"
