/* Running sums along the first dimension, for any strides.  A row consists of the elements that
 * differ only in the first index.  The rows of a block are summed side by side, with vectors if
 * they are adjacent in memory.
 *
 * f32, f16 and bf16 are summed as pairs of f32, the sum and its rounding error (Knuth's TwoSum), so
 * that the error does not grow with the length.  f64 is added plainly; integers wrap around.  Each
 * row is summed in order, so the result does not depend on the number of threads. */
#include "backend/cpu/cpu.h"

#include "base/numbers/dialect.h"

typedef struct {
    int64_t n, x_step, y_step;          /* elements of a row, and the strides along it */
    int64_t width, x_next, y_next;  /* rows side by side, and the strides from one to the next */
} block;

typedef struct {
    wb__cpu_kernel head;
    wb__view x, y;                      /* the rows of a block differ in the last index */
    void (*sum)(const block *b, const char *x, char *y);
    /* blocks: number of blocks along the last dimension; tasks: number of all blocks */
    int64_t blocks, tasks;
    bool exclusive;
} cumsum_kernel;

typedef struct {
    const cumsum_kernel *k;
    const char *x;
    char *y;
} cumsum_run;

enum { MAX_WIDTH = 128, APART = 8, CPU_CUMSUM_GRAIN = 16 * 1024 };

/* ---- a block --------------------------------------------------------------------------------- */

#define PLAIN_ADD(s, c, v) (s) += (v), (void)(c)
#define LOSSY_ADD(s, c, v) add_lossy(&(s), &(c), (v))

/* Adds v to the sum s + c, of which s is the rounded value; c is NaN if s is infinite. */
static inline void add_lossy(float *s, float *c, float v)
{
    const float sum = *s + v, back = sum - *s, lost = *c + ((*s - (sum - back)) + (v - back));
    const float total = lost - lost == 0 ? sum + lost : sum;
    *c = lost - (total - sum);
    *s = total;
}

#define CPU_CUMSUM_SUMS(NAME, type, sum_type, HOW, OF, TO)                                         \
    static inline __attribute__((always_inline)) void NAME##_apart(                                \
        const block *b, const type *restrict x, type *restrict y, int64_t x_next, int64_t y_next)  \
    {                                                                                              \
        sum_type sum[MAX_WIDTH] = {0}, lost[MAX_WIDTH] = {0};                                      \
        for (int64_t i = 0; i < b->n; i++, x += b->x_step, y += b->y_step)                         \
            for (int64_t j = 0; j < b->width; j++) {                                               \
                const sum_type v = (sum_type)OF(x[j * x_next]);                                    \
                HOW##_ADD(sum[j], lost[j], v);                                                     \
                y[j * y_next] = (type)TO(sum[j]);                                                  \
            }                                                                                      \
    }                                                                                              \
    static void NAME(const block *b, const char *x, char *y)                                       \
    {                                                                                              \
        const type *from = (const type *)(const void *)x;                                          \
        type *to = (type *)(void *)y;                                                              \
        if (b->x_next == 1 && b->y_next == 1) NAME##_apart(b, from, to, 1, 1);                     \
        else NAME##_apart(b, from, to, b->x_next, b->y_next);                                      \
    }

CPU_CUMSUM_SUMS(sum_f32, float, float, LOSSY, , )
CPU_CUMSUM_SUMS(sum_f64, double, double, PLAIN, , )
CPU_CUMSUM_SUMS(sum_f16, uint16_t, float, LOSSY, of_f16, to_f16)
CPU_CUMSUM_SUMS(sum_bf16, uint16_t, float, LOSSY, of_bf16, to_bf16)
CPU_CUMSUM_SUMS(sum_8, uint8_t, uint32_t, PLAIN, , )
CPU_CUMSUM_SUMS(sum_32, uint32_t, uint32_t, PLAIN, , )
CPU_CUMSUM_SUMS(sum_64, uint64_t, uint64_t, PLAIN, , )

/* ---- running --------------------------------------------------------------------------------- */

static void cpu_cumsum_run_task(void *ctx, int64_t task)
{
    const cumsum_run *r = ctx;
    const cumsum_kernel *k = r->k;
    const int last = k->x.ndim - 1;
    const int64_t size = (int64_t)wb__dtype_size(k->y.dtype), rows = k->x.dims[last];
    const int64_t first = rows * (task % k->blocks) / k->blocks;
    block b = {.n = k->x.dims[0], .x_step = k->x.strides[0], .y_step = k->y.strides[0],
               .width = rows * (task % k->blocks + 1) / k->blocks - first,
               .x_next = k->x.strides[last], .y_next = k->y.strides[last]};
    int64_t x_at = first * b.x_next, y_at = first * b.y_next, line = task / k->blocks;
    for (int i = last - 1; i > 0; i--) {
        const int64_t at = line % k->x.dims[i];
        line /= k->x.dims[i];
        x_at += at * k->x.strides[i];
        y_at += at * k->y.strides[i];
    }
    char *y = r->y + y_at * size;
    if (k->exclusive) {             /* a row begins with 0, and its sums are shifted by one place */
        for (int64_t j = 0; j < b.width; j++) memset(y + j * b.y_next * size, 0, (size_t)size);
        y += b.y_step * size;
        b.n--;
    }
    k->sum(&b, r->x + x_at * size, y);
}

static int cpu_cumsum_launch(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                             const wb__number *numbers)
{
    (void)workspace, (void)numbers;
    const cumsum_kernel *k = (const cumsum_kernel *)kernel;
    cumsum_run r = {k, wb__cpu_at(&k->x, buffers), wb__cpu_at(&k->y, buffers)};
    const int64_t work = k->tasks / k->blocks * k->x.dims[0] * k->x.dims[k->x.ndim - 1];
    if (work >= CPU_CUMSUM_GRAIN) wb__parallel(k->tasks, cpu_cumsum_run_task, &r);
    else for (int64_t i = 0; i < k->tasks; i++) cpu_cumsum_run_task(&r, i);
    return 0;
}

/* Chooses the dimension along which the rows of a block are neighbours, and swaps it with the last
 * dimension.  The best dimension has stride 1 in x and y; the second best has a size above 1. */
static void cpu_cumsum_choose_last(wb__view *x, wb__view *y)
{
    int best = x->ndim - 1;
    for (int i = 1; i < x->ndim; i++)
        if (x->dims[i] > 1 && (x->dims[best] == 1 || (x->strides[i] == 1 && y->strides[i] == 1)))
            best = i;
    for (int side = 0; side < 2; side++) {
        wb__view *v = side ? y : x;
        const int last = v->ndim - 1;
        const int64_t size = v->dims[best], step = v->strides[best];
        v->dims[best] = v->dims[last];
        v->strides[best] = v->strides[last];
        v->dims[last] = size;
        v->strides[last] = step;
    }
}

int wb__cpu_cumsum(const wb__step *s, wb__cpu_kernel **kernel)
{
    static void (*const sums[WB_DTYPE_COUNT])(const block *, const char *, char *) = {
        [WB_F32] = sum_f32, [WB_F64] = sum_f64, [WB_F16] = sum_f16, [WB_BF16] = sum_bf16,
        [WB_I8] = sum_8, [WB_U8] = sum_8, [WB_I32] = sum_32, [WB_I64] = sum_64};
    cumsum_kernel *k = wb__alloc_zero(1, sizeof *k);
    if (!k) return WB_ERROR_MEMORY;
    k->x = s->views[0];
    k->y = s->views[1];
    if (k->x.ndim == 1) {               /* one row */
        k->x.dims[1] = k->y.dims[1] = 1;
        k->x.strides[1] = k->y.strides[1] = 1;
        k->x.ndim = k->y.ndim = 2;
    }
    cpu_cumsum_choose_last(&k->x, &k->y);
    const int last = k->x.ndim - 1;
    const bool beside = k->x.strides[last] == 1 && k->y.strides[last] == 1;
    const int64_t width = beside ? MAX_WIDTH : APART;
    k->blocks = WB__MAX((k->x.dims[last] + width - 1) / width, 1);
    k->tasks = k->x.dims[0] ? (k->x.dims[last] ? k->blocks : 0) : 0;
    for (int i = 1; i < last; i++) k->tasks *= k->x.dims[i];
    k->sum = sums[k->y.dtype];
    k->exclusive = s->variant != 0;
    k->head.launch = cpu_cumsum_launch;
    k->head.destroy = wb__cpu_kernel_free;
    k->head.base.impl = "running sums";
    *kernel = &k->head;
    return 0;
}
