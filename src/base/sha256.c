/* SHA-256 and HMAC (sha256.h). */
#include "base/sha256.h"

#include <string.h>

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
/* clang-format off */
static const uint32_t sha256_roots[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
};
/* clang-format on */

static uint32_t rotate_right(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha256_add_block(uint32_t h[8], const unsigned char *p)
{
    uint32_t w[64], x[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] +
               (rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(x, h, sizeof x);
    for (int i = 0; i < 64; i++) {
        const uint32_t one = x[7] +
                             (rotate_right(x[4], 6) ^ rotate_right(x[4], 11) ^
                              rotate_right(x[4], 25)) +
                             ((x[4] & x[5]) ^ (~x[4] & x[6])) + sha256_roots[i] + w[i];
        const uint32_t two = (rotate_right(x[0], 2) ^ rotate_right(x[0], 13) ^
                              rotate_right(x[0], 22)) +
                             ((x[0] & x[1]) ^ (x[0] & x[2]) ^ (x[1] & x[2]));
        memmove(x + 1, x, 7 * sizeof *x);
        x[4] += one;
        x[0] = one + two;
    }
    for (int i = 0; i < 8; i++) h[i] += x[i];
}

void wb__sha256_begin(wb__sha256 *s)
{
    *s = (wb__sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
              0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void wb__sha256_add(wb__sha256 *s, const void *bytes, size_t n)
{
    for (const unsigned char *at = bytes; n;) {
        const size_t used = s->n % 64, part = n < 64 - used ? n : 64 - used;
        memcpy(s->block + used, at, part);
        s->n += part;
        if (s->n % 64 == 0) sha256_add_block(s->h, s->block);
        at += part;
        n -= part;
    }
}

void wb__sha256_end(wb__sha256 *s, unsigned char sum[WB__SHA256])
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(s->n * 8 >> (56 - 8 * i));
    wb__sha256_add(s, "\x80", 1);
    while (s->n % 64 != 56) wb__sha256_add(s, "", 1);
    wb__sha256_add(s, length, sizeof length);
    for (int i = 0; i < WB__SHA256; i++) sum[i] = (unsigned char)(s->h[i / 4] >> (24 - i % 4 * 8));
}

/* Begins an HMAC.  A key that is longer than a block is replaced by its SHA-256. */
void wb__hmac_begin(wb__hmac *m, const void *key, size_t n)
{
    unsigned char pad[64] = {0};
    if (n > sizeof pad) {
        wb__sha256_begin(&m->inner);
        wb__sha256_add(&m->inner, key, n);
        wb__sha256_end(&m->inner, pad);
    } else if (n) {
        memcpy(pad, key, n);
    }
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36;
    wb__sha256_begin(&m->inner);
    wb__sha256_add(&m->inner, pad, sizeof pad);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36 ^ 0x5c;
    wb__sha256_begin(&m->outer);
    wb__sha256_add(&m->outer, pad, sizeof pad);
}

void wb__hmac_add(wb__hmac *m, const void *bytes, size_t n) { wb__sha256_add(&m->inner, bytes, n); }

void wb__hmac_end(wb__hmac *m, unsigned char sum[WB__SHA256])
{
    wb__sha256_end(&m->inner, sum);
    wb__sha256_add(&m->outer, sum, WB__SHA256);
    wb__sha256_end(&m->outer, sum);
}

bool wb__same_secret(const void *a, const void *b, size_t n)
{
    const volatile unsigned char *x = a, *y = b;
    unsigned char differ = 0;
    for (size_t i = 0; i < n; i++) differ |= x[i] ^ y[i];
    return !differ;
}
