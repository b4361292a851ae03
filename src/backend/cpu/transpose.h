/* Transposes 8 vectors of 8 elements of 32 bits.  For code that is compiled for AVX2 or AVX-512. */
#ifndef WB__CPU_TRANSPOSE_H
#define WB__CPU_TRANSPOSE_H

#include <immintrin.h>

static inline __attribute__((always_inline)) void wb__transpose_8(__m256 r[8])
{
    __m256 t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        const __m256 low = r[i];
        r[i] = _mm256_permute2f128_ps(low, r[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(low, r[i + 4], 0x31);
    }
}

#endif
