/* Rows by index: gather y[i] = x[index[i]], and its gradient, scatter_add y[index[i]] += rows[i],
 * with sums or other combinations (wb__rows_kind); ROWS_SET replaces rows of y.
 *
 * Rows are contiguous; the rows of x may be any distance apart.  An index out of range gives a row
 * of zeros, or adds nothing.  scatter_add is parallel over the rows of y: each thread reads all
 * indices in order, so the result does not depend on the number of threads.  f16 and bf16 are
 * combined in f32, in the workspace. */
#include "backend/cpu/cpu.h"

#include <string.h>

typedef struct {
    wb__cpu_kernel head;
    wb__view x, index, y;               /* scatter_add: x is the rows to be added */
    /* n: number of rows that can be indexed, of x (gather) or of y (scatter_add); count: number of
     * indices; inner: elements per row; from_step: stride of the rows of x */
    int64_t n, count, inner, from_step;
    int64_t parts;                      /* tasks that divide the rows */
    int variant;
} rows_kernel;

typedef struct {
    const rows_kernel *k;
    const char *x, *index;
    char *y, *sums, *begun;         /* begun[i]: whether row i of y has a value (NULL for sums) */
} rows_run;

enum { CPU_ROWS_GRAIN = 16 * 1024, CPU_ROWS_MAX_PARTS = 64 };

/* Returns the value of index i; -1: out of range. */
static inline int64_t cpu_rows_index_at(const rows_run *r, int64_t i)
{
    int64_t at;
    switch (r->k->index.dtype) {
    case WB_I8: at = ((const int8_t *)r->index)[i]; break;
    case WB_U8: case WB_BOOL: at = ((const uint8_t *)r->index)[i]; break;
    case WB_I32: at = ((const int32_t *)r->index)[i]; break;
    default: at = ((const int64_t *)r->index)[i]; break;
    }
    return at >= 0 && at < r->k->n ? at : -1;
}

static void cpu_rows_gather_part(void *ctx, int64_t part)
{
    const rows_run *r = ctx;
    const rows_kernel *k = r->k;
    const int64_t size = (int64_t)wb__dtype_size(k->y.dtype), bytes = k->inner * size;
    for (int64_t i = k->count * part / k->parts; i < k->count * (part + 1) / k->parts; i++) {
        const int64_t at = cpu_rows_index_at(r, i);
        if (at < 0) memset(r->y + i * bytes, 0, (size_t)bytes);
        else memcpy(r->y + i * bytes, r->x + at * k->from_step * size, (size_t)bytes);
    }
}

#define CPU_ROWS_ADD(NAME, sum_type, type, widen)                                                  \
    case WB_##NAME: {                                                                              \
        sum_type *to = (sum_type *)sums + at * k->inner;                                           \
        const type *from = (const type *)r->x + i * k->from_step;                                  \
        for (int64_t j = 0; j < k->inner; j++) to[j] = (sum_type)(to[j] + widen(from[j]));         \
        break;                                                                                     \
    }

/* Combines one row by an operation that is no sum: the first row is copied. */
#define CPU_ROWS_EACH(value)                                                                       \
    for (int64_t j = 0; j < k->inner; j++) {                                                       \
        const kind v = (kind)WIDEN(from[j]), s = to[j];                                            \
        (void)s;                                                                                   \
        to[j] = (kind)(value);                                                                     \
    }
#define COMBINE(NAME, kind_, type, product)                                                        \
    case WB_##NAME: {                                                                              \
        typedef kind_ kind;                                                                        \
        kind *to = (kind *)sums + at * k->inner;                                                   \
        const type *from = (const type *)r->x + i * k->from_step;                                  \
        if (first) CPU_ROWS_EACH(v)                                                                \
        else if (k->variant == WB__ROWS_MUL) CPU_ROWS_EACH((product)s * (product)v)                \
        else if (k->variant == WB__ROWS_MAX) CPU_ROWS_EACH(v > s || v != v ? v : s)                \
        else CPU_ROWS_EACH(v < s || v != v ? v : s)                                                \
        break;                                                                                     \
    }

static void cpu_rows_combine(const rows_run *r, char *sums, int64_t i, int64_t at, bool first)
{
    const rows_kernel *k = r->k;
    switch (k->y.dtype) {
#define WIDEN(v) v
    COMBINE(F32, float, float, float)
    COMBINE(F64, double, double, double)
    COMBINE(I8, int8_t, int8_t, int)
    COMBINE(U8, uint8_t, uint8_t, int)
    COMBINE(BOOL, uint8_t, uint8_t, int)
    COMBINE(I32, int32_t, int32_t, uint32_t)
    COMBINE(I64, int64_t, int64_t, uint64_t)
#undef WIDEN
#define WIDEN(v) wb__f16_to_f32(v)
    COMBINE(F16, float, uint16_t, float)
#undef WIDEN
#define WIDEN(v) wb__bf16_to_f32(v)
    COMBINE(BF16, float, uint16_t, float)
#undef WIDEN
    default: break;
    }
}

static void cpu_rows_add_part(void *ctx, int64_t part)
{
    const rows_run *r = ctx;
    const rows_kernel *k = r->k;
    const int64_t low = k->n * part / k->parts, high = k->n * (part + 1) / k->parts;
    const wb_dtype t = k->y.dtype;
    const bool half = wb__is_half(t);
    const int64_t size = half ? 4 : (int64_t)wb__dtype_size(t);
    char *sums = half ? r->sums : r->y;
    memset(sums + low * k->inner * size, 0, (size_t)((high - low) * k->inner * size));
    if (k->variant != WB__ROWS_ADD) memset(r->begun + low, 0, (size_t)(high - low));
    for (int64_t i = 0; i < k->count; i++) {
        const int64_t at = cpu_rows_index_at(r, i);
        if (at < low || at >= high) continue;
        if (k->variant != WB__ROWS_ADD) {
            cpu_rows_combine(r, sums, i, at, !r->begun[at]);
            r->begun[at] = 1;
            continue;
        }
        switch (t) {
        CPU_ROWS_ADD(F32, float, float, )
        CPU_ROWS_ADD(F64, double, double, )
        CPU_ROWS_ADD(F16, float, uint16_t, wb__f16_to_f32)
        CPU_ROWS_ADD(BF16, float, uint16_t, wb__bf16_to_f32)
        CPU_ROWS_ADD(I8, int8_t, int8_t, (unsigned))
        CPU_ROWS_ADD(U8, uint8_t, uint8_t, (unsigned))
        CPU_ROWS_ADD(I32, uint32_t, uint32_t, )
        CPU_ROWS_ADD(I64, uint64_t, uint64_t, )
        CPU_ROWS_ADD(BOOL, uint8_t, uint8_t, (unsigned))
        default: break;
        }
    }
    if (half)
        wb__convert(r->y + low * k->inner * 2, t, sums + low * k->inner * 4, WB_F32,
                    (high - low) * k->inner);
}

static void cpu_rows_set_part(void *ctx, int64_t part)
{
    const rows_run *r = ctx;
    const rows_kernel *k = r->k;
    const int64_t low = k->n * part / k->parts, high = k->n * (part + 1) / k->parts;
    const size_t bytes = (size_t)k->inner * wb__dtype_size(k->y.dtype);
    for (int64_t i = 0; i < k->count; i++) {
        const int64_t at = cpu_rows_index_at(r, i);
        if (at >= low && at < high)
            memcpy(r->y + (size_t)at * bytes, r->x + (size_t)i * bytes, bytes);
    }
}

static int cpu_rows_launch(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                           bool adds)
{
    const rows_kernel *k = (const rows_kernel *)kernel;
    if (!k->parts) return 0;
    const bool half = wb__is_half(k->y.dtype);
    rows_run r = {.k = k, .x = wb__cpu_at(&k->x, buffers), .index = wb__cpu_at(&k->index, buffers),
                  .y = wb__cpu_at(&k->y, buffers), .sums = workspace,
                  .begun = (char *)workspace + (half ? k->n * k->inner * 4 : 0)};
    wb__parallel(k->parts,
                 !adds                        ? cpu_rows_gather_part
                 : k->variant == WB__ROWS_SET ? cpu_rows_set_part
                                              : cpu_rows_add_part,
                 &r);
    return 0;
}

static int cpu_rows_launch_gather(const wb__cpu_kernel *k, void *const *buffers, void *workspace,
                                  const wb__number *numbers)
{
    (void)numbers;
    return cpu_rows_launch(k, buffers, workspace, false);
}

static int cpu_rows_launch_add(const wb__cpu_kernel *k, void *const *buffers, void *workspace,
                               const wb__number *numbers)
{
    (void)numbers;
    return cpu_rows_launch(k, buffers, workspace, true);
}

static int64_t cpu_rows_size_of(const wb__view *v, int from)
{
    int64_t n = 1;
    for (int i = from; i < v->ndim; i++) n *= v->dims[i];
    return n;
}

int wb__cpu_rows(const wb__step *s, wb__cpu_kernel **kernel)
{
    const bool adds = s->kind == WB__STEP_SCATTER_ADD;
    rows_kernel *k = wb__alloc_zero(1, sizeof *k);
    if (!k) return WB_ERROR_MEMORY;
    k->x = s->views[adds ? 1 : 0];
    k->index = s->views[adds ? 0 : 1];
    k->y = s->views[2];
    const wb__view *table = adds ? &k->y : &k->x;
    k->n = table->dims[0];
    k->inner = cpu_rows_size_of(table, 1);
    k->count = cpu_rows_size_of(&k->index, 0);
    k->from_step = adds || k->x.dims[0] == 1 ? k->inner : k->x.strides[0];
    const int64_t rows = adds ? k->n : k->count;
    k->parts = WB__MIN(WB__MIN(rows, CPU_ROWS_MAX_PARTS), k->count * k->inner / CPU_ROWS_GRAIN + 1);
    if (adds) k->parts = WB__MIN(k->parts, wb__threads());
    if (!k->inner) k->parts = 0;
    k->head.launch = adds ? cpu_rows_launch_add : cpu_rows_launch_gather;
    k->head.destroy = wb__cpu_kernel_free;
    k->variant = s->variant;
    const bool sets = adds && k->variant == WB__ROWS_SET, combines = adds && !sets;
    k->head.base.impl = sets ? "rows set" : adds ? "rows added" : "rows taken";
    if (combines && (wb__is_half(k->y.dtype)))
        k->head.base.workspace = (size_t)(k->n * k->inner * 4);
    if (combines && k->variant != WB__ROWS_ADD) k->head.base.workspace += (size_t)k->n;
    *kernel = &k->head;
    return 0;
}
