/* The sums of the elements of four vectors of 8 i32. */
WB__INLINE void int8_totals(const __m256i v[4], int32_t total[4])
{
    const __m256i low = _mm256_hadd_epi32(v[0], v[1]), high = _mm256_hadd_epi32(v[2], v[3]);
    const __m256i four = _mm256_hadd_epi32(low, high);
    _mm_storeu_si128((__m128i *)(void *)total, _mm_add_epi32(_mm256_castsi256_si128(four),
                                                            _mm256_extracti128_si256(four, 1)));
}
