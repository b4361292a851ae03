/* The sorted order of the rows along the first dimension, for any strides.
 *
 * An element becomes a key, an unsigned number whose order is that of the elements; all NaN have
 * one key, which is the greatest, and -0 has the key of 0.  Long rows are sorted byte by byte from
 * the lowest (a radix sort), short ones by insertion.  Both keep the order of equal keys. */
#include "backend/cpu/cpu.h"

#include <string.h>

typedef struct { uint64_t key; int64_t place; } cpu_sort_item;

typedef struct {
    wb__cpu_kernel head;
    wb__view x, y;
    int64_t n, rows, parts;             /* elements of a row, rows, tasks */
    bool descending;
} sort_kernel;

typedef struct {
    const sort_kernel *k;
    const char *x;
    char *y;
    cpu_sort_item *items;
} sort_run;

enum { CPU_SORT_SHORT = 48, CPU_SORT_GRAIN = 4096, CPU_SORT_MAX_PARTS = 64 };

static uint64_t key_of_double(double v)
{
    uint64_t bits;
    if (v != v) return UINT64_MAX;
    if (v == 0) v = 0;
    memcpy(&bits, &v, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

static uint64_t key_of_float(float v)
{
    uint32_t bits;
    if (v != v) return UINT32_MAX;
    if (v == 0) v = 0;
    memcpy(&bits, &v, sizeof bits);
    return bits >> 31 ? (uint32_t)~bits : bits | (uint32_t)1 << 31;
}

static uint64_t cpu_sort_key_at(wb_dtype t, const char *x, int64_t i)
{
    switch (t) {
    case WB_F32: return key_of_float(((const float *)(const void *)x)[i]);
    case WB_F64: return key_of_double(((const double *)(const void *)x)[i]);
    case WB_F16: return key_of_float(wb__f16_to_f32(((const uint16_t *)(const void *)x)[i]));
    case WB_BF16: return key_of_float(wb__bf16_to_f32(((const uint16_t *)(const void *)x)[i]));
    case WB_I8: return (uint8_t)((const uint8_t *)x)[i] ^ 0x80u;
    case WB_I32: return ((const uint32_t *)(const void *)x)[i] ^ 0x80000000u;
    case WB_I64: return ((const uint64_t *)(const void *)x)[i] ^ (uint64_t)1 << 63;
    default: return ((const uint8_t *)x)[i];
    }
}

/* Sorts n items by insertion. */
static void cpu_sort_insert(cpu_sort_item *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const cpu_sort_item moved = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1].key > moved.key; j--) a[j] = a[j - 1];
        a[j] = moved;
    }
}

/* Sorts n items by their lowest `bytes` bytes.  b has room for n items.  Returns the array that has
 * the result: a or b. */
static cpu_sort_item *cpu_sort_ordered(cpu_sort_item *a, cpu_sort_item *b, int64_t n, int bytes)
{
    if (n <= CPU_SORT_SHORT) {
        cpu_sort_insert(a, n);
        return a;
    }
    for (int byte = 0; byte < bytes; byte++) {
        int64_t count[256] = {0}, at = 0;
        const int shift = 8 * byte;
        for (int64_t i = 0; i < n; i++) count[a[i].key >> shift & 255]++;
        if (count[a[0].key >> shift & 255] == n) continue;
        for (int d = 0; d < 256; d++) {
            const int64_t size = count[d];
            count[d] = at;
            at += size;
        }
        for (int64_t i = 0; i < n; i++) b[count[a[i].key >> shift & 255]++] = a[i];
        cpu_sort_item *other = a;
        a = b;
        b = other;
    }
    return a;
}

/* Writes the sorted order of a row to y. */
static void cpu_sort_row(const sort_run *r, int64_t row, cpu_sort_item *items)
{
    const sort_kernel *k = r->k;
    int64_t x_at = 0, y_at = 0;
    for (int i = k->x.ndim - 1; i > 0; i--) {
        const int64_t at = row % k->x.dims[i];
        row /= k->x.dims[i];
        x_at += at * k->x.strides[i];
        y_at += at * k->y.strides[i];
    }
    const wb_dtype t = k->x.dtype;
    const uint64_t flip = k->descending ? UINT64_MAX : 0;
    for (int64_t i = 0; i < k->n; i++)
        items[i] = (cpu_sort_item){cpu_sort_key_at(t, r->x, x_at + i * k->x.strides[0]) ^ flip, i};
    const int bytes = wb__is_half(t) ? 4 : (int)wb__dtype_size(t);
    const cpu_sort_item *order = cpu_sort_ordered(items, items + k->n, k->n, bytes);
    int32_t *y = (int32_t *)(void *)r->y + y_at;
    for (int64_t i = 0; i < k->n; i++) y[i * k->y.strides[0]] = (int32_t)order[i].place;
}

static void cpu_sort_part(void *ctx, int64_t part)
{
    const sort_run *r = ctx;
    const sort_kernel *k = r->k;
    for (int64_t i = k->rows * part / k->parts; i < k->rows * (part + 1) / k->parts; i++)
        cpu_sort_row(r, i, r->items + 2 * k->n * part);
}

static int cpu_sort_launch(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                           const wb__number *numbers)
{
    (void)numbers;
    const sort_kernel *k = (const sort_kernel *)kernel;
    if (!k->parts) return 0;
    sort_run r = {k, wb__cpu_at(&k->x, buffers), wb__cpu_at(&k->y, buffers), workspace};
    wb__parallel(k->parts, cpu_sort_part, &r);
    return 0;
}

int wb__cpu_sort(const wb__step *s, wb__cpu_kernel **kernel)
{
    sort_kernel *k = wb__alloc_zero(1, sizeof *k);
    if (!k) return WB_ERROR_MEMORY;
    k->x = s->views[0];
    k->y = s->views[1];
    k->n = k->x.dims[0];
    k->rows = 1;
    for (int i = 1; i < k->x.ndim; i++) k->rows *= k->x.dims[i];
    k->descending = s->variant != 0;
    k->parts = k->n ? WB__MIN(WB__MIN(k->rows, CPU_SORT_MAX_PARTS),
                              k->rows * k->n / CPU_SORT_GRAIN + 1) : 0;
    k->parts = WB__MIN(k->parts, wb__threads());
    k->head.base.workspace = (size_t)(2 * k->n * k->parts) * sizeof(cpu_sort_item);
    k->head.launch = cpu_sort_launch;
    k->head.destroy = wb__cpu_kernel_free;
    k->head.base.impl = "sorted rows";
    *kernel = &k->head;
    return 0;
}
