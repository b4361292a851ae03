/* Part of rows.h: random numbers with the bits of base/numbers/philox.h.  Many Philox blocks are
 * computed at a time, one per lane.  Normals of f32 use polynomials in double; fewer than one in a
 * million differ from the reference by rounding. */

typedef uint64_t v_u64 __attribute__((vector_size(VECTOR), aligned(8), may_alias));

/* The product of the low halves of each lane. */
#if defined(__AVX512F__)
#define LOW_PRODUCT(a, b) ((v_u64)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#elif defined(__AVX2__)
#define LOW_PRODUCT(a, b) ((v_u64)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#elif defined(__SSE2__)
#define LOW_PRODUCT(a, b) ((v_u64)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#else
#define LOW_PRODUCT(a, b) (((a) & 0xffffffffu) * ((b) & 0xffffffffu))
#endif

enum { DRAW_BLOCKS = 64 };

/* Writes the words of Philox blocks [c, c + blocks), in order.  May also write later blocks, up to
 * DRAW_BLOCKS in total.  Four vectors go through the rounds together to hide latency. */
static void draw_words(uint64_t key, uint64_t c, int64_t blocks, uint32_t *words)
{
    enum { L = VECTOR / 8, SIDE = 4 };
    const uint64_t low = 0xffffffffu;
    const v_u64 m0 = (v_u64){0} + 0xd2511f53u, m1 = (v_u64){0} + 0xcd9e8d57u;
    v_u64 places;
    uint64_t lane[L];
    for (int j = 0; j < L; j++) lane[j] = (uint64_t)j;
    memcpy(&places, lane, sizeof places);
    for (int64_t i = 0; i < blocks; i += SIDE * L) {
        v_u64 w0[SIDE], w1[SIDE], w2[SIDE], w3[SIDE];
        for (int s = 0; s < SIDE; s++) {
            w0[s] = places + (c + (uint64_t)(i + s * L));
            w1[s] = w0[s] >> 32;
            w2[s] = w3[s] = (v_u64){0};
        }
        uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
        /* only the low half of a lane is used */
        for (int round = 0; round < 10; round++) {
            for (int s = 0; s < SIDE; s++) {
                const v_u64 a = LOW_PRODUCT(w0[s], m0), b = LOW_PRODUCT(w2[s], m1);
                w0[s] = (b >> 32) ^ w1[s] ^ k0;
                w1[s] = b;
                w2[s] = (a >> 32) ^ w3[s] ^ k1;
                w3[s] = a;
            }
            k0 += 0x9e3779b9u;
            k1 += 0xbb67ae85u;
        }
        for (int s = 0; s < SIDE; s++) {
            uint64_t pair[2][L];
            w0[s] = (w0[s] & low) | (w1[s] << 32);
            w2[s] = (w2[s] & low) | (w3[s] << 32);
            memcpy(pair[0], &w0[s], sizeof pair[0]);
            memcpy(pair[1], &w2[s], sizeof pair[1]);
            for (int j = 0; j < L; j++) {
                uint32_t *to = words + 4 * (i + s * L + j);
                to[0] = (uint32_t)pair[0][j], to[1] = (uint32_t)(pair[0][j] >> 32);
                to[2] = (uint32_t)pair[1][j], to[3] = (uint32_t)(pair[1][j] >> 32);
            }
        }
    }
}

/* Draws n numbers.  With step 1, four elements share a Philox block; with another step, a block is
 * computed for each element. */
#define UNIFORM(name, type, convert)                                                               \
    static void name(void *d_, int64_t n, uint64_t key, uint64_t counter, int64_t first,           \
                     int64_t step)                                                                 \
    {                                                                                              \
        type *d = d_;                                                                              \
        uint32_t words[4 * DRAW_BLOCKS];                                                           \
        for (int64_t i = 0; step != 1 && i < n; i++)                                               \
            d[i] = convert(wb__philox_at(key, counter, (uint64_t)(first + i * step)));             \
        for (int64_t i = 0; step == 1 && i < n;) {                                                 \
            const int64_t e = first + i, skip = e % 4, m = WB__MIN(n - i, 4 * DRAW_BLOCKS - skip); \
            draw_words(key, counter + (uint64_t)(e / 4), (skip + m + 3) / 4, words);               \
            for (int64_t j = 0; j < m; j++) d[i + j] = convert(words[skip + j]);                   \
            i += m;                                                                                \
        }                                                                                          \
    }
UNIFORM(uniform_f32, float, wb__uniform_f32)
UNIFORM(uniform_f64, double, wb__uniform_f64)

/* Returns -2 ln((w + 1) / 2^32), with an error of about 1e-13.  The logarithm of a fraction x near
 * 1 is the series 2 artanh((x - 1) / (x + 1)). */
static inline double minus_two_log(uint32_t w)
{
    double x = (double)w + 1;
    int64_t bits, k;
    memcpy(&bits, &x, 8);
    /* replaces x by x / 2^k, with k such that x / 2^k is in [sqrt(1/2), sqrt(2)) */
    k = (bits - 0x3fe6a09e667f3bcd) >> 52;
    bits -= k * (INT64_C(1) << 52);
    memcpy(&x, &bits, 8);
    const double s = (x - 1) / (x + 1), z = s * s;
    double p = 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    const double log_fraction = 2 * (s + s * z * p);
    return -2 * ((double)(int32_t)(k - 32) * 0.693147180559945309 + log_fraction);
}

/* Computes two normal numbers from two random words, as base/numbers/philox.h does. */
static inline void normals(uint32_t w0, uint32_t w1, float *z0, float *z1)
{
    const double radius = __builtin_sqrt(minus_two_log(w0));
    /* w1 shifted by an eighth of a turn, so that quadrants are centred on the axes */
    const uint32_t shifted = w1 + 0x20000000u;
    const int32_t quadrant = (int32_t)(shifted >> 30);
    const int32_t part = (int32_t)((shifted & 0x3fffffffu) - 0x20000000u);
    const double t = (double)part * (6.283185307179586476925 * 0x1p-32);
    const double z = t * t;
    double s = 1.0 / 362880 - z * (1.0 / 39916800), c = 1.0 / 3628800 - z * (1.0 / 479001600);
    s = -1.0 / 5040 + z * s;
    s = 1.0 / 120 + z * s;
    s = -1.0 / 6 + z * s;
    s = t + t * z * s;
    c = 1.0 / 40320 - z * c;
    c = -1.0 / 720 + z * c;
    c = 1.0 / 24 + z * c;
    c = 1 + z * (-0.5 + z * c);
    const double cosine = quadrant & 1 ? -s : c, sine = quadrant & 1 ? c : s;
    *z0 = (float)(radius * (quadrant & 2 ? -cosine : cosine));
    *z1 = (float)(radius * (quadrant & 2 ? -sine : sine));
}

static double normal_at(uint64_t key, uint64_t counter, uint64_t e)
{
    const uint64_t pair = philox_pair(key, counter, e);
    double z[2];
    wb__normal_pair((uint32_t)pair, (uint32_t)(pair >> 32), z);
    return z[e & 1];
}

static void gaussian_f32(void *d_, int64_t n, uint64_t key, uint64_t counter, int64_t first,
                         int64_t step)
{
    float *d = d_, z[4 * DRAW_BLOCKS];
    uint32_t words[4 * DRAW_BLOCKS];
    for (int64_t i = 0; i < n;) {
        const int64_t e = first + i * step, skip = e % 4;
        const int64_t m = step == 1 ? WB__MIN(n - i, 4 * DRAW_BLOCKS - skip) : 1;
        if (m < 4) {
            const uint64_t pair = philox_pair(key, counter, (uint64_t)e);
            normals((uint32_t)pair, (uint32_t)(pair >> 32), &z[skip & 2], &z[(skip & 2) + 1]);
            d[i++] = z[skip];
            continue;
        }
        draw_words(key, counter + (uint64_t)(e / 4), (skip + m + 3) / 4, words);
        for (int64_t j = 0; j < skip + m; j += 2) normals(words[j], words[j + 1], &z[j], &z[j + 1]);
        for (int64_t j = 0; j < m; j++) d[i + j] = z[skip + j];
        i += m;
    }
}

static void gaussian_f64(void *d_, int64_t n, uint64_t key, uint64_t counter, int64_t first,
                         int64_t step)
{
    double *d = d_;
    for (int64_t i = 0; i < n; i++) d[i] = normal_at(key, counter, (uint64_t)(first + i * step));
}
