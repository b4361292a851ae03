/* Part of tile_rows.h: random numbers, the bits of base/philox.h. */

#define DRAW(name, type, expression)                                                                \
    static void name(void *d_, int64_t n, uint64_t key, uint64_t counter, int64_t first, int64_t step) \
    {                                                                                               \
        type *d = d_;                                                                               \
        for (int64_t i = 0; i < n; i++) {                                                           \
            const uint64_t e = (uint64_t)(first + i * step);                                        \
            d[i] = (type)(expression);                                                              \
        }                                                                                           \
    }

static double normal_at(uint64_t key, uint64_t counter, uint64_t e)
{
    double z[2];
    wb__normal_pair(wb__philox_at(key, counter, e & ~UINT64_C(1)), wb__philox_at(key, counter, e | 1), z);
    return z[e & 1];
}

DRAW(uniform_f32, float, wb__uniform_f32(wb__philox_at(key, counter, e)))
DRAW(uniform_f64, double, wb__uniform_f64(wb__philox_at(key, counter, e)))
DRAW(gaussian_f32, float, normal_at(key, counter, e))
DRAW(gaussian_f64, double, normal_at(key, counter, e))
