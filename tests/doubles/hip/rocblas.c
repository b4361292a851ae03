/* A test double of rocBLAS: products in plain loops.  See hip.h.
 *
 * It counts as wrong what the real library does without a word: a product on a stream that was not
 * set, memory outside of its blocks, atomic additions, and a product whose workspace is too small
 * (the real library then allocates memory, or frees its own, which must not happen while commands
 * are recorded). */
#include "hip.h"

#include "../cuda/number.h"

#include <pthread.h>

enum { SUCCESS = 0, INVALID_HANDLE = 1, INVALID_POINTER = 3, INVALID_SIZE = 4, MEMORY_ERROR = 5,
       INVALID_VALUE = 11 };
enum { NONE = 111, TRANSPOSE = 112, F16 = 150, F32 = 151, F64 = 152, BF16 = 168 };

typedef struct {
    CUstream stream;
    bool has_stream, exact, lent;       /* lent: its own memory was given up */
    void *workspace;
    size_t workspace_bytes;
} *rocblas_handle;

VGPU_API const char *rocblas_status_to_string(int status)
{
    static _Thread_local char text[40];
    snprintf(text, sizeof text, "rocblas_status %d", status);
    return status == MEMORY_ERROR ? "rocblas_status_memory_error" : text;
}

VGPU_API int rocblas_create_handle(rocblas_handle *made)
{
    if (vgpu_fails("rocblas_create_handle")) return MEMORY_ERROR;
    *made = calloc(1, sizeof **made);
    if (*made) vgpu_held(1);
    return *made ? SUCCESS : MEMORY_ERROR;
}

VGPU_API int rocblas_destroy_handle(rocblas_handle h)
{
    if (!h) return INVALID_HANDLE;
    vgpu_held(-1);
    free(h);
    return SUCCESS;
}

VGPU_API int rocblas_set_stream(rocblas_handle h, CUstream stream)
{
    if (vgpu_fails("rocblas_set_stream")) return MEMORY_ERROR;
    h->stream = stream;
    h->has_stream = true;
    return SUCCESS;
}

VGPU_API int rocblas_set_atomics_mode(rocblas_handle h, int mode)
{
    h->exact = !mode;
    return SUCCESS;
}

VGPU_API int rocblas_set_workspace(rocblas_handle h, void *at, size_t bytes)
{
    if (at && !h->lent)
        vgpu_wrong("rocblas_set_workspace: the handle still has its own memory, which cannot be"
                   " freed while commands are recorded");
    h->lent = true;
    if (at && vgpu_span((uint64_t)(uintptr_t)at) < bytes)
        vgpu_wrong("rocblas_set_workspace: %zu bytes are not in one block", bytes);
    h->workspace = at;
    h->workspace_bytes = bytes;
    return SUCCESS;
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct { const char *at; int op, type, ld; int64_t step; } matrix;
typedef struct {
    matrix a, b, d;
    int m, n, k, batch;
    double alpha;
    void *workspace;
    size_t workspace_bytes;
} product;

static int number_type(int t)
{
    return t == F64 ? VGPU_F64 : t == F32 ? VGPU_F32 : t == F16 ? VGPU_F16 : VGPU_BF16;
}

/* The elements of op(x), rows x cols and column-major, as double in the order [j][i], or [i][j] if
 * `by_rows`. */
static void load(double *to, const matrix *x, int64_t batch, int64_t rows, int64_t cols,
                 bool by_rows)
{
    const int type = number_type(x->type);
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < rows; i++) {
            const int64_t index = x->op == NONE ? i + j * x->ld : j + i * x->ld;
            to[by_rows ? i * cols + j : j * rows + i] = vgpu_load(x->at, type,
                                                                  batch * x->step + index);
        }
}

static int run(void *payload)
{
    const product *p = payload;
    double *a = calloc((size_t)p->m * (size_t)p->k, sizeof *a);
    double *b = calloc((size_t)p->k * (size_t)p->n, sizeof *b);
    if (p->workspace_bytes) memset(p->workspace, 0xff, p->workspace_bytes);
    for (int64_t batch = 0; a && b && batch < p->batch; batch++) {
        load(a, &p->a, batch, p->m, p->k, true);
        load(b, &p->b, batch, p->k, p->n, false);
        for (int64_t j = 0; j < p->n; j++)
            for (int64_t i = 0; i < p->m; i++) {
                double sum = 0;
                for (int64_t l = 0; l < p->k; l++) sum += a[i * p->k + l] * b[j * p->k + l];
                vgpu_store((char *)(uintptr_t)p->d.at, number_type(p->d.type),
                           batch * p->d.step + i + j * p->d.ld, p->alpha * sum);
            }
    }
    const int status = !a || !b;
    free(a);
    free(b);
    return status;
}

/* Whether all elements of a matrix of `rows` x `cols` stored elements, and its batch, are in one
 * block. */
static void check_place(const matrix *x, int rows, int cols, int batch, const char *name)
{
    const int64_t last = (int64_t)(batch - 1) * x->step + (int64_t)(cols - 1) * x->ld + rows - 1;
    const size_t bytes = (size_t)(last + 1) * vgpu_size(number_type(x->type));
    if (vgpu_span((uint64_t)(uintptr_t)x->at) < bytes)
        vgpu_wrong("rocblas_gemm_strided_batched_ex: %s is not in one block", name);
}

static bool known(int type) { return type == F16 || type == F32 || type == F64 || type == BF16; }

VGPU_API int rocblas_gemm_strided_batched_ex(
    rocblas_handle h, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a,
    int a_type, int a_ld, int64_t a_step, const void *b, int b_type, int b_ld, int64_t b_step,
    const void *beta, const void *c, int c_type, int c_ld, int64_t c_step, void *d, int d_type,
    int d_ld, int64_t d_step, int batch, int compute, int algorithm, int solution, uint32_t flags)
{
    if (!h) return INVALID_HANDLE;
    if (!alpha || !beta || !a || !b || !c || !d) return INVALID_POINTER;
    if ((op_a != NONE && op_a != TRANSPOSE) || (op_b != NONE && op_b != TRANSPOSE))
        return INVALID_VALUE;
    if (m < 1 || n < 1 || k < 1 || batch < 1 || a_ld < (op_a == NONE ? m : k) ||
        b_ld < (op_b == NONE ? k : n) || c_ld < m || d_ld < m)
        return INVALID_SIZE;
    if (!known(a_type) || a_type != b_type || a_type != c_type || a_type != d_type ||
        (a_type == F64 ? compute != F64 : compute != F32) || algorithm || solution || flags)
        return INVALID_VALUE;
    const size_t needed = (size_t)k > 64 ? (size_t)m * (size_t)n * 4 : 0;     /* of split sums */
    if (vgpu_fails("rocblas_gemm_strided_batched_ex")) return MEMORY_ERROR;
    if (!h->has_stream) vgpu_wrong("rocblas_gemm_strided_batched_ex: no stream was set");
    if (!h->exact) vgpu_wrong("rocblas_gemm_strided_batched_ex: atomic additions are allowed");
    if (needed > h->workspace_bytes)
        vgpu_wrong("rocblas_gemm_strided_batched_ex: %zu bytes of workspace, %zu are needed",
                   h->workspace_bytes, needed);
    const double factor = compute == F64 ? *(const double *)alpha : (double)*(const float *)alpha;
    const double kept = compute == F64 ? *(const double *)beta : (double)*(const float *)beta;
    if (kept != 0) vgpu_wrong("rocblas_gemm_strided_batched_ex: beta is not supported here");
    (void)c_step;
    product p = {.a = {a, op_a, a_type, a_ld, a_step}, .b = {b, op_b, b_type, b_ld, b_step},
                 .d = {d, NONE, d_type, d_ld, d_step}, .m = m, .n = n, .k = k, .batch = batch,
                 .alpha = factor, .workspace = h->workspace, .workspace_bytes = needed};
    check_place(&p.a, op_a == NONE ? m : k, op_a == NONE ? k : m, batch, "a");
    check_place(&p.b, op_b == NONE ? k : n, op_b == NONE ? n : k, batch, "b");
    check_place(&p.d, m, n, batch, "d");
    return vgpu_enqueue(h->stream, "rocblas_gemm_strided_batched_ex", run, &p, sizeof p)
           ? MEMORY_ERROR : SUCCESS;
}
