/* Philox against the vectors of Random123 (kat_vectors, "philox4x32 10"), and the generator of a
 * thread. */
#include "test.h"

#include "base/numbers/philox.h"

static const struct { uint32_t counter[4], key[2], out[4]; } vectors[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(known_answers)
{
    for (size_t i = 0; i < WB__COUNT(vectors); i++) {
        uint32_t block[4];
        memcpy(block, vectors[i].counter, sizeof block);
        wb__philox(block, vectors[i].key[0], vectors[i].key[1]);
        assert_memory_equal(block, vectors[i].out, sizeof block);
    }
    for (unsigned i = 0; i < 4; i++) assert_int_equal(wb__philox_at(0, 0, i), vectors[0].out[i]);
}

TEST(elements_do_not_depend_on_order)
{
    uint64_t key = 0x123456789abcdef0, counter = 0xfffffffffull;
    for (uint64_t i = 0; i < 100; i++) {
        uint32_t words[4];
        wb__philox_block(key, counter + i / 4, words);
        assert_int_equal(wb__philox_at(key, counter, i), words[i & 3]);
        assert_int_equal(wb__philox_at(key, counter, i + 4), wb__philox_at(key, counter + 1, i));
    }
}

TEST(seeds_and_ranges)
{
    uint64_t key, a, b;
    wb_seed(42);
    wb__rng_take(3, &key, &a);
    wb__rng_take(1, &key, &b);
    assert_int_equal(key, 42);
    assert_int_equal(a, 0);
    assert_int_equal(b, 3);
    wb__rng_state here = wb__rng_get_state();
    wb__rng_take(10, &key, &a);
    wb__rng_set_state(here);
    wb__rng_take(10, &key, &b);
    assert_int_equal(a, b);
}

TEST(moments)
{
    enum { N = 200000 };
    double sum = 0, square = 0, normal = 0, normal2 = 0, normal4 = 0;
    for (uint64_t i = 0; i < N; i += 2) {
        uint32_t w0 = wb__philox_at(7, 0, i), w1 = wb__philox_at(7, 0, i + 1);
        double u = wb__uniform_f32(w0), z[2];
        assert_true(u >= 0 && u < 1 && fabs(u - wb__uniform_f64(w0)) < 0x1p-24);
        sum += u;
        square += u * u;
        wb__normal_pair(w0, w1, z);
        for (int k = 0; k < 2; k++) normal += z[k], normal2 += z[k] * z[k], normal4 += pow(z[k], 4);
    }
    assert_true(fabs(sum / (N / 2) - 0.5) < 0.005);
    assert_true(fabs(square / (N / 2) - 1.0 / 3) < 0.005);
    assert_true(fabs(normal / N) < 0.01);
    assert_true(fabs(normal2 / N - 1) < 0.02);
    assert_true(fabs(normal4 / N - 3) < 0.1);
    double z[2];
    wb__normal_pair(0, 0, z);                   /* finite for the least and greatest words */
    assert_true(isfinite(z[0]) && z[0] > 6.6);
    wb__normal_pair(~0u, ~0u, z);
    assert_true(z[0] == 0 && z[1] == 0);
    assert_true(wb__uniform_f32(~0u) < 1 && wb__uniform_f64(~0u) < 1);
}
