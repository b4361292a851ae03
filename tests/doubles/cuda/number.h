/* Conversions between double and the types of NVIDIA's libraries.  See vgpu.h. */
#ifndef VGPU_NUMBER_H
#define VGPU_NUMBER_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Values of cudaDataType. */
typedef enum { VGPU_F32 = 0, VGPU_F64 = 1, VGPU_F16 = 2, VGPU_BF16 = 14 } vgpu_type;

static inline size_t vgpu_size(int type) { return type == VGPU_F64 ? 8 : type == VGPU_F32 ? 4 : 2; }

static inline double vgpu_of_half(uint16_t h)
{
    const int exponent = h >> 10 & 31, part = h & 1023;
    const double v = exponent == 31 ? (part ? NAN : INFINITY)
                     : exponent ? ldexp(1024 + part, exponent - 25) : ldexp(part, -24);
    return h >> 15 ? -v : v;
}

/* v rounded to this many bits of significand, ties to even; `least` is the least exponent. */
static inline double vgpu_round(double v, int bits, int least)
{
    int exponent;
    if (v == 0 || v - v != 0) return v;
    frexp(v, &exponent);
    if (exponent < least) exponent = least;
    return ldexp(nearbyint(ldexp(v, bits - exponent)), exponent - bits);
}

static inline uint16_t vgpu_to_half(double v)
{
    const uint16_t sign = signbit(v) ? 0x8000 : 0;
    int exponent;
    if (v != v) return 0x7e00;
    v = fabs(vgpu_round(v, 11, -13));
    if (v > 65504) return sign | 0x7c00;
    if (v < 6.103515625e-05) return sign | (uint16_t)(v * 16777216);
    const double part = frexp(v, &exponent);
    return (uint16_t)(sign | (exponent + 14) << 10 | ((int)(part * 2048) - 1024));
}

static inline double vgpu_load(const void *at, int type, int64_t i)
{
    const char *p = (const char *)at + (size_t)i * vgpu_size(type);
    double d;
    float f;
    uint16_t h;
    uint32_t w;
    switch (type) {
    case VGPU_F64: memcpy(&d, p, 8); return d;
    case VGPU_F32: memcpy(&f, p, 4); return (double)f;
    case VGPU_F16: memcpy(&h, p, 2); return vgpu_of_half(h);
    default:
        memcpy(&h, p, 2);
        w = (uint32_t)h << 16;
        memcpy(&f, &w, 4);
        return (double)f;
    }
}

static inline void vgpu_store(void *at, int type, int64_t i, double v)
{
    char *p = (char *)at + (size_t)i * vgpu_size(type);
    float f = (float)v;
    uint16_t h;
    uint32_t w;
    switch (type) {
    case VGPU_F64: memcpy(p, &v, 8); return;
    case VGPU_F32: memcpy(p, &f, 4); return;
    case VGPU_F16: h = vgpu_to_half(v); break;
    default:
        f = (float)vgpu_round(v, 8, -125);
        memcpy(&w, &f, 4);
        h = (uint16_t)(v != v ? 0x7fc0 : w >> 16);
    }
    memcpy(p, &h, 2);
}

/* GELU in its tanh form. */
static inline double vgpu_gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
static inline double vgpu_gelu_slope(double x)
{
    const double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t)
           + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

#endif
