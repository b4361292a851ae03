/* The product of quantised rows and i8 weights with AVX-VNNI; see int8_kernel.h.  The instruction
 * multiplies unsigned by signed bytes, those of x by the weights, and adds four products to an i32,
 * without saturation. */
#include "backend/cpu/product/int8.h"

#include <immintrin.h>

#define NAME vnni_avx2
#define Q uint8_t
#define APART 1
enum { STEP = 32 };
#define ROWS 3
typedef __m256i V, W;

WB__INLINE V int8_zero(void) { return _mm256_setzero_si256(); }
WB__INLINE W int8_load_weight(const int8_t *w)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)w);
}
WB__INLINE V int8_add(V a, V b) { return _mm256_add_epi32(a, b); }
/* The instruction, as in int8_vnni_avx512.c.  A test replaces it by other instructions. */
#ifndef MULTIPLY_BYTES
#define MULTIPLY_BYTES(v, q, w) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(v) : "x"(q), "x"(w))
#endif
WB__INLINE V int8_add_products(V v, W w, const uint8_t *q)
{
    const __m256i row = _mm256_load_si256((const __m256i *)(const void *)q);
    MULTIPLY_BYTES(v, row, w);
    return v;
}

#include "backend/cpu/product/int8_totals.h"
#include "backend/cpu/product/int8_kernel.h"
