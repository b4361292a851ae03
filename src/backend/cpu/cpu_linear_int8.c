/* Products with i8 weights (wb_linear_int8).  A run quantises the rows of x in its workspace, and
 * multiplies them by the weights, which are read as they are.  Rows and columns are divided into
 * parts; integers are summed, so the result does not depend on the number of threads. */
#include "backend/cpu/cpu.h"

#include "backend/cpu/product/int8.h"

#include <string.h>

#ifdef WB_HAVE_X86_ISA
#include <cpuid.h>
#endif

enum {
    CPU_INT8_X, CPU_INT8_WEIGHT, CPU_INT8_SCALE, CPU_INT8_Y, CPU_INT8_BIAS, /* step views */
    CPU_INT8_SERIAL = 256 * 1024,       /* with fewer multiplications one thread is faster */
    CPU_INT8_GRAIN = 16 * 1024,         /* elements that one thread quantises */
    CPU_INT8_PER_THREAD = 3,            /* parts of the product for each thread */
    LEAST_COLUMNS = 32,                 /* least columns of a part, if a product has several */
    ROWS_OF_PART = 48                   /* more rows than this are divided too */
};

typedef struct {
    wb__cpu_kernel head;
    const wb__int8_kernel *kernel;
    wb__view views[5];
    int n_views;
    int64_t m, n, k, q_step;                  /* of the product; q_step: bytes of a quantised row */
    int64_t rows, columns, row_parts, parts;  /* rows and columns of a part; parts in all */
    wb__act act;
} int8_kernel;

typedef struct {
    const int8_kernel *k;
    wb__int8_product p;
    const float *x;
    wb__int8_row *row;
} int8_run;

static void quantise_row(void *ctx, int64_t i)
{
    const int8_run *r = ctx;
    r->k->kernel->quantise(r->x + i * r->k->views[CPU_INT8_X].strides[0], r->k->k,
                           (char *)(uintptr_t)r->p.q + i * r->k->q_step, &r->row[i]);
}

static void cpu_int8_run_part(void *ctx, int64_t part)
{
    const int8_run *r = ctx;
    const int8_kernel *k = r->k;
    const int64_t i = part % k->row_parts * k->rows, j = part / k->row_parts * k->columns;
    k->kernel->product(&r->p, i, WB__MIN(i + k->rows, k->m), j, WB__MIN(j + k->columns, k->n));
}

static int cpu_int8_launch(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                           const wb__number *numbers)
{
    (void)numbers;
    const int8_kernel *k = (const int8_kernel *)kernel;
    const wb__view *v = k->views;
    if (!k->parts) return 0;
    char *q = (char *)workspace + wb__aligned((size_t)k->m * sizeof(wb__int8_row));
    int8_run r = {.k = k, .x = wb__cpu_at(&v[CPU_INT8_X], buffers), .row = workspace};
    r.p = (wb__int8_product){
        .m = k->m, .n = k->n, .k = k->k, .w = wb__cpu_at(&v[CPU_INT8_WEIGHT], buffers),
        .w_step = v[CPU_INT8_WEIGHT].strides[0], .q = q, .q_step = k->q_step, .row = r.row,
        .scale = wb__cpu_at(&v[CPU_INT8_SCALE], buffers),
        .scale_step = v[CPU_INT8_SCALE].strides[0],
        .bias = k->n_views > CPU_INT8_BIAS ? wb__cpu_at(&v[CPU_INT8_BIAS], buffers) : NULL,
        .y = wb__cpu_at(&v[CPU_INT8_Y], buffers), .y_step = {v[CPU_INT8_Y].strides[0],
                                                             v[CPU_INT8_Y].strides[1]},
                                                             .act = k->act};
    if (k->m * k->k >= CPU_INT8_GRAIN) wb__parallel(k->m, quantise_row, &r);
    else for (int64_t i = 0; i < k->m; i++) quantise_row(&r, i);
    if (k->parts > 1) wb__parallel(k->parts, cpu_int8_run_part, &r);
    else cpu_int8_run_part(&r, 0);
    return 0;
}

/* ---- the kernels of this processor ----------------------------------------------------------- */

#if defined(WB_HAVE_VNNI_AVX2) || defined(WB_HAVE_VNNI_AVX512)
/* Whether a bit of cpuid's leaf 7 is set: of `subleaf`, in register 0 (EAX) or 2 (ECX). */
static bool has_bit(unsigned subleaf, int reg, int bit)
{
    unsigned r[4];
    return __get_cpuid_count(7, subleaf, &r[0], &r[1], &r[2], &r[3]) && r[reg] >> bit & 1;
}
#endif

const wb__int8_kernel *wb__int8_kernel_at(int i)
{
    const wb__int8_kernel *all[5] = {&wb__int8_portable};
    int n = 1;
#ifdef WB_HAVE_X86_ISA
    const wb__isa_level level = wb__isa_here();
    if (level >= WB__ISA_AVX2) all[n++] = &wb__int8_avx2;
#ifdef WB_HAVE_VNNI_AVX2
    if (level >= WB__ISA_AVX2 && has_bit(1, 0, 4)) all[n++] = &wb__int8_vnni_avx2;
#endif
#ifdef WB_HAVE_VNNI_AVX512
    if (level >= WB__ISA_AVX512 && has_bit(0, 2, 11)) all[n++] = &wb__int8_vnni_avx512;
#endif
#endif
    return i >= 0 && i < n ? all[i] : NULL;
}

const wb__int8_kernel *wb__int8_best(void)
{
    int i = 0;
    while (wb__int8_kernel_at(i + 1)) i++;
    return wb__int8_kernel_at(i);
}

/* ---- preparing ------------------------------------------------------------------------------- */

bool wb__cpu_supports_int8(const wb__step *s)
{
    const wb__view *x = &s->views[CPU_INT8_X], *w = &s->views[CPU_INT8_WEIGHT];
    return x->dtype == WB_F32 && w->dtype == WB_I8 && s->views[CPU_INT8_SCALE].dtype == WB_F32 &&
           x->ndim == 2 && w->ndim == 2 && x->dims[1] <= WB__INT8_MOST;
}

/* Divides the product among the threads.  A single row is divided into columns alone, so that all
 * threads read different weights. */
static void cpu_int8_divide(int8_kernel *k)
{
    const double work = (double)k->m * (double)k->n * (double)k->k;
    const int64_t threads = work < CPU_INT8_SERIAL ? 1 : wb__threads(),
                  want = CPU_INT8_PER_THREAD * threads;
    k->rows = k->m;
    k->columns = k->n;
    if (threads > 1) {
        const int64_t row_parts = WB__MAX(WB__MIN(k->m / ROWS_OF_PART, want), 1);
        k->rows = (k->m + row_parts - 1) / row_parts;
        const int64_t column_parts = (want + row_parts - 1) / row_parts;
        k->columns = WB__MAX((k->n + column_parts - 1) / column_parts, LEAST_COLUMNS);
        k->columns = (k->columns + 3) / 4 * 4;
    }
    if (!k->m || !k->n) return;
    k->row_parts = (k->m + k->rows - 1) / k->rows;
    k->parts = k->row_parts * ((k->n + k->columns - 1) / k->columns);
}

int wb__cpu_linear_int8(const wb__step *s, wb__cpu_kernel **kernel)
{
    if (!wb__cpu_supports_int8(s))
        return wb__fail(WB_ERROR_UNSUPPORTED, "linear_int8: not for %s and %s",
                        wb_dtype_name(s->views[CPU_INT8_X].dtype),
                        wb_dtype_name(s->views[CPU_INT8_WEIGHT].dtype));
    int8_kernel *k = wb__alloc_zero(1, sizeof *k);
    if (!k) return WB_ERROR_MEMORY;
    k->kernel = wb__int8_best();
    k->n_views = s->n_views;
    memcpy(k->views, s->views, (size_t)s->n_views * sizeof *k->views);
    k->m = s->views[CPU_INT8_X].dims[0];
    k->k = s->views[CPU_INT8_X].dims[1];
    k->n = s->views[CPU_INT8_WEIGHT].dims[0];
    k->q_step = wb__int8_row_bytes(k->kernel, k->k);
    k->act = wb__act_of(s->epilogue, WB_F32);
    cpu_int8_divide(k);
    k->head.launch = cpu_int8_launch;
    k->head.destroy = wb__cpu_kernel_free;
    k->head.base.impl = k->kernel->name;
    k->head.base.workspace = wb__aligned((size_t)k->m * sizeof(wb__int8_row)) +
                             (size_t)(k->m * k->q_step);
    *kernel = &k->head;
    return 0;
}
