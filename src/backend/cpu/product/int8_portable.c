/* The product of quantised rows and i8 weights for any processor, in plain C; see int8_kernel.h. */
#include "backend/cpu/product/int8.h"

#define NAME portable
#define Q int16_t
#define APART 0
enum { STEP = 64 };
#define ROWS 2
typedef struct { int32_t sum; } V;
typedef const int8_t *W;

WB__INLINE V int8_zero(void) { return (V){0}; }
WB__INLINE W int8_load_weight(const int8_t *w) { return w; }
WB__INLINE V int8_add(V a, V b) { return (V){a.sum + b.sum}; }
WB__INLINE V int8_add_products(V v, W w, const int16_t *q)
{
    for (int i = 0; i < STEP; i++) v.sum += (int16_t)w[i] * q[i];
    return v;
}
WB__INLINE void int8_totals(const V v[4], int32_t total[4])
{
    for (int i = 0; i < 4; i++) total[i] = v[i].sum;
}

#include "backend/cpu/product/int8_kernel.h"
