/* Linear algebra by LAPACK.  An operation is a C function, as a step of the CPU's plan, and a
 * gradient that is made of other operations.  Several results are parts of one output, side by side
 * along its last axis. */
#include "base/lapack.h"
#include "engine/ops/op.h"
#include "weber/linalg.h"

#include <limits.h>
#include <string.h>

/* ---- the functions of the steps: row-major matrices ------------------------------------------ */

/* The operands of one call.  LAPACK, which is column-major, sees a row-major matrix transposed. */
typedef struct {
    const wb__lapack *f;
    size_t bytes;                       /* size of an element */
    int m, n, k;                        /* x is m by n; k is the smaller of m and n */
    int64_t matrices;                   /* number of matrices */
    char *work;                         /* LAPACK's working memory; freed at the end */
} lapack_call;

static bool lapack_call_begin(lapack_call *p, const char *what, const wb_host_array *x,
                              size_t elements)
{
    const int64_t *dims = x->dims + x->ndim - 2;
    *p = (lapack_call){.f = wb__lapack_open(what, x->dtype == WB_F64),
                       .bytes = x->dtype == WB_F64 ? sizeof(double) : sizeof(float),
                       .m = (int)dims[0], .n = (int)dims[1],
                       .k = (int)WB__MIN(dims[0], dims[1]), .matrices = 1};
    for (int i = 0; i < x->ndim - 2; i++) p->matrices *= x->dims[i];
    if (p->f) p->work = wb__alloc((elements + 1) * p->bytes);
    return p->work;
}

/* Copies a matrix of rows by columns, transposed. */
static void copy_transposed(void *to, const void *from, int64_t rows, int64_t columns, size_t bytes)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            if (bytes == sizeof(double))
                ((double *)to)[j * rows + i] = ((const double *)from)[i * columns + j];
            else ((float *)to)[j * rows + i] = ((const float *)from)[i * columns + j];
}

static double element_at(const void *x, int64_t i, size_t bytes)
{
    return bytes == sizeof(double) ? ((const double *)x)[i] : (double)((const float *)x)[i];
}
static void set_element_at(void *x, int64_t i, double value, size_t bytes)
{
    if (bytes == sizeof(double)) ((double *)x)[i] = value;
    else ((float *)x)[i] = (float)value;
}

static int fail_singular(const char *what, int64_t matrix, int pivot)
{
    return wb__fail(WB_ERROR_ARGUMENT, "%s: matrix %lld is singular: pivot %d is 0", what,
                    (long long)matrix, pivot - 1);
}

/* Solves x y = b for each matrix; b NULL is the identity. */
static int solve_each(const char *what, const wb_host_array *x, const wb_host_array *b,
                      const wb_host_array *y)
{
    lapack_call p;
    const int64_t n = x->dims[x->ndim - 1], k = y->dims[y->ndim - 1];
    if (!n || !k) return 0;
    int *pivots = wb__alloc((size_t)n * sizeof *pivots), info = 0;
    const bool works = pivots && lapack_call_begin(&p, what, x, (size_t)(n * n + n * k));
    for (int64_t i = 0; works && !info && i < p.matrices; i++) {
        const int columns = (int)k;
        char *right = p.work + (size_t)(n * n) * p.bytes;
        char *to = (char *)y->data + (size_t)(i * n * k) * p.bytes;
        memcpy(p.work, (const char *)x->data + (size_t)(i * n * n) * p.bytes,
               (size_t)(n * n) * p.bytes);
        for (int64_t j = 0; !b && j < n * n; j++)
            set_element_at(right, j, j % (n + 1) == 0, p.bytes);
        if (b) copy_transposed(right, (const char *)b->data + (size_t)(i * n * k) * p.bytes, n, k,
                               p.bytes);
        p.f->getrf(&p.n, &p.n, p.work, &p.n, pivots, &info);
        if (info) info = fail_singular(what, i, info);
        else p.f->getrs("T", &p.n, &columns, p.work, &p.n, pivots, right, &p.n, &info, 1);
        copy_transposed(to, right, k, n, p.bytes);
    }
    if (works) wb__free(p.work);
    wb__free(pivots);
    return works ? info : (int)wb_error_code();
}

static int host_solve(int n, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    (void)n, (void)ctx;
    return solve_each("solve", in, in + 1, out);
}
static int host_inverse(int n, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    (void)n, (void)ctx;
    return solve_each("inverse", in, NULL, out);
}

static int host_determinant(int count, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    (void)count, (void)ctx;
    lapack_call p;
    const int64_t n = in->dims[in->ndim - 1];
    int *pivots = wb__alloc((size_t)(n + 1) * sizeof *pivots), info = 0;
    const bool works = pivots && lapack_call_begin(&p, "determinant", in, (size_t)(n * n));
    for (int64_t i = 0; works && i < p.matrices; i++) {
        double product = 1;
        memcpy(p.work, (const char *)in->data + (size_t)(i * n * n) * p.bytes,
               (size_t)(n * n) * p.bytes);
        if (n) p.f->getrf(&p.n, &p.n, p.work, &p.n, pivots, &info);
        for (int64_t j = 0; j < n; j++)
            product *= (pivots[j] == j + 1 ? 1 : -1) * element_at(p.work, j * (n + 1), p.bytes);
        set_element_at(out->data, i, product, p.bytes);
    }
    if (works) wb__free(p.work);
    wb__free(pivots);
    return works ? 0 : (int)wb_error_code();
}

static int host_cholesky(int count, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    (void)count, (void)ctx;
    lapack_call p;
    const int64_t n = in->dims[in->ndim - 1];
    int info = 0;
    if (!n) return 0;
    if (!lapack_call_begin(&p, "cholesky", in, 0)) return wb_error_code();
    for (int64_t i = 0; !info && i < p.matrices; i++) {
        char *y = (char *)out->data + (size_t)(i * n * n) * p.bytes;
        memcpy(y, (const char *)in->data + (size_t)(i * n * n) * p.bytes,
               (size_t)(n * n) * p.bytes);
        p.f->potrf("U", &p.n, y, &p.n, &info, 1);
        for (int64_t j = 0; j < n * n; j++)
            if (j % n > j / n) set_element_at(y, j, 0, p.bytes);
        if (info)
            info = wb__fail(WB_ERROR_ARGUMENT, "cholesky: matrix %lld is not positive definite: "
                            "its leading %d by %d block is not", (long long)i, info, info);
    }
    wb__free(p.work);
    return info;
}

enum { NUMBERS_FAIL = -4 };             /* gesdd's status for a matrix with NaN */

/* x^T = v s u^T in column-major order: LAPACK's first vectors are vt, its second ones u. */
static int host_svd(int count, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    (void)count, (void)ctx;
    lapack_call p;
    const int64_t m = in->dims[in->ndim - 2], n = in->dims[in->ndim - 1], k = WB__MIN(m, n);
    if (!k) return 0;
    if (!lapack_call_begin(&p, "svd", in, (size_t)(m * n))) return wb_error_code();
    int info = 0, query = -1, n_work = 0;
    double best = 0;                    /* a float is written into it too */
    int *integers = wb__alloc((size_t)(8 * k) * sizeof *integers);
    p.f->gesdd("S", &p.n, &p.m, p.work, &p.n, p.work, p.work, &p.n, p.work, &p.k, &best, &query,
               integers, &info, 1);
    /* a float has 24 bits of the size, rounded by LAPACK */
    n_work = (int)WB__MIN(element_at(&best, 0, p.bytes) * (1 + 0x1p-22) + 1, INT_MAX);
    void *work = wb__alloc((size_t)n_work * p.bytes);
    for (int64_t i = 0; work && integers && !info && i < p.matrices; i++) {
        char *u = (char *)out->data + (size_t)(i * (m * k + k + k * n)) * p.bytes;
        char *s = u + (size_t)(m * k) * p.bytes, *vt = s + (size_t)k * p.bytes;
        memcpy(p.work, (const char *)in->data + (size_t)(i * m * n) * p.bytes,
               (size_t)(m * n) * p.bytes);
        p.f->gesdd("S", &p.n, &p.m, p.work, &p.n, s, vt, &p.n, u, &p.k, work, &n_work, integers,
                   &info, 1);
        if (info)
            info = wb__fail(info < 0 && info != NUMBERS_FAIL ? WB_ERROR_UNSUPPORTED
                                                             : WB_ERROR_ARGUMENT,
                            "svd: matrix %lld has no singular values: %s", (long long)i,
                            info == NUMBERS_FAIL ? "it has NaN or infinity"
                            : info < 0 ? "LAPACK refuses its size"
                                       : "the iteration does not converge");
    }
    const bool works = work && integers;
    wb__free(work);
    wb__free(integers);
    wb__free(p.work);
    return works ? info : (int)wb_error_code();
}

static int host_qr(int count, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    (void)count, (void)ctx;
    lapack_call p;
    const int64_t m = in->dims[in->ndim - 2], n = in->dims[in->ndim - 1], k = WB__MIN(m, n);
    if (!k) return 0;
    if (!lapack_call_begin(&p, "qr", in, (size_t)(m * n + k))) return wb_error_code();
    int info = 0, n_work = (int)WB__MIN(64 * n, INT_MAX);
    char *tau = p.work + (size_t)(m * n) * p.bytes;
    void *work = wb__alloc((size_t)n_work * p.bytes);
    for (int64_t i = 0; work && !info && i < p.matrices; i++) {
        char *q = (char *)out->data + (size_t)(i * (m * k + k * n)) * p.bytes;
        char *r = q + (size_t)(m * k) * p.bytes;
        copy_transposed(p.work, (const char *)in->data + (size_t)(i * m * n) * p.bytes, m, n,
                        p.bytes);
        p.f->geqrf(&p.m, &p.n, p.work, &p.m, tau, work, &n_work, &info);
        for (int64_t j = 0; j < k * n; j++)
            set_element_at(r, j, j % n < j / n ? 0 : element_at(p.work, j % n * m + j / n, p.bytes),
                           p.bytes);
        if (!info) p.f->orgqr(&p.m, &p.k, &p.k, p.work, &p.m, tau, work, &n_work, &info);
        copy_transposed(q, p.work, k, m, p.bytes);
    }
    const bool works = work;
    wb__free(work);
    wb__free(p.work);
    return works ? info : (int)wb_error_code();
}

/* ---- operands -------------------------------------------------------------------------------- */

static bool is_on_cpu(const char *what, const wb_tensor *x)
{
    const wb_device *d = wb__device_of(x);
    if (d->backend == wb__cpu.backend)
        return wb__lapack_open(what, x->dtype == WB_F64);
    return !wb__fail(WB_ERROR_DEVICE, "%s: %s is on %s:%d, and LAPACK runs on the CPU: wb_cpu(x) "
                     "moves it", what, wb_describe(x), d->backend->tag, d->ordinal);
}

static bool are_matrices(const char *what, const wb_tensor *x, bool square)
{
    if (!wb__floating(what, x)) return false;
    if (x->ndim < 2 || (square && x->dims[x->ndim - 1] != x->dims[x->ndim - 2]))
        return !wb__fail(WB_ERROR_SHAPE, "%s: expects %s, got %s", what,
                         square ? "square matrices [...,n,n]" : "matrices [...,m,n]",
                         wb_describe(x));
    return is_on_cpu(what, x);
}

/* Returns the step of f with the result [batch of x..., last...], with a gradient. */
static wb_tensor *add_host_step(wb_host_function f, wb_gradient_function gradient, int n,
                                wb_tensor *const *in, int last, const int64_t *sizes)
{
    int64_t dims[WB_MAX_DIMS];
    const int batch = in[0]->ndim - 2;
    for (int i = 0; i < batch; i++) dims[i] = in[0]->dims[i];
    for (int i = 0; i < last; i++) dims[batch + i] = sizes[i];
    wb_tensor *y = wb_host_operation(f, NULL, (wb_dtype)in[0]->dtype, batch + last, dims, n, in);
    return y ? wb_custom_gradient_array(y, gradient, NULL, n, in) : NULL;
}

static wb_tensor *transposed_of(wb_tensor *x) { return x ? wb_transpose(x) : NULL; }
static wb_tensor *linalg_half(wb_tensor *x) { return wb_mul(x, wb_scalar(0.5)); }

/* ---- solve, inverse, determinant ------------------------------------------------------------- */

static int solve_gradient(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x, wb_tensor **dx,
                          void *ctx)
{
    (void)n, (void)ctx;
    dx[1] = wb_solve(transposed_of(x[0]), g);
    dx[0] = dx[1] ? wb_neg(wb_matmul(dx[1], transposed_of(y))) : NULL;
    return !dx[0];
}

static wb_tensor *linalg_solve(wb_tensor *a, wb_tensor *b)
{
    if (!are_matrices("solve", a, true) || !wb__floating("solve", b) ||
        !is_on_cpu("solve", b))
        return NULL;
    const bool vector = b->ndim == 1;
    const wb_dtype t = (wb_dtype)a->dtype;
    const int ndim = WB__MAX(a->ndim, vector ? 2 : b->ndim);
    if (b->dtype != t)
        return wb__fail_null(WB_ERROR_DTYPE, "solve: dtypes differ: %s · %s", wb_describe(a),
                             wb_describe(b));
    int64_t left[WB_MAX_DIMS], right[WB_MAX_DIMS];
    const int64_t n = a->dims[a->ndim - 1];
    bool fits = b->ndim && b->dims[vector ? 0 : b->ndim - 2] == n;
    for (int i = 0; fits && i < ndim - 2; i++) {
        const int p = i + a->ndim - ndim, q = i + b->ndim - ndim;
        const int64_t of_a = p < 0 ? 1 : a->dims[p], of_b = vector || q < 0 ? 1 : b->dims[q];
        fits = of_a == of_b || of_a == 1 || of_b == 1;
        left[i] = right[i] = of_a == 1 ? of_b : of_a;
    }
    if (!fits)
        return wb__fail_null(WB_ERROR_SHAPE, "solve: %s and %s: expects [...,n,n] and [...,n,k], "
                             "or a vector [n]", wb_describe(a), wb_describe(b));
    left[ndim - 2] = left[ndim - 1] = right[ndim - 2] = n;
    right[ndim - 1] = vector ? 1 : b->dims[b->ndim - 1];
    b = wb__wide(vector ? wb_unsqueeze(b, -1) : b);
    a = wb__wide(a);
    if (!a || !b) return NULL;
    wb_tensor *in[] = {wb_expand_array(a, ndim, left), wb_expand_array(b, ndim, right)};
    wb_tensor *y = in[0] && in[1]
                       ? add_host_step(host_solve, solve_gradient, 2, in, 2, right + ndim - 2)
                       : NULL;
    if (y && vector) y = wb_reshape_array(y, ndim - 1, right);
    return y ? wb__as(y, t) : NULL;
}

wb_tensor *wb_solve(wb_tensor *a, wb_tensor *b)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, linalg_solve(a, b));
}

static int inverse_gradient(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x, wb_tensor **dx,
                            void *ctx)
{
    (void)n, (void)x, (void)ctx;
    dx[0] = wb_neg(wb_matmul(transposed_of(y), wb_matmul(g, transposed_of(y))));
    return !dx[0];
}
static int determinant_gradient(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x,
                                wb_tensor **dx, void *ctx)
{
    (void)n, (void)ctx;
    wb_tensor *each = wb_unsqueeze(wb_unsqueeze(wb_mul(g, y), -1), -1);
    dx[0] = wb_mul(each, transposed_of(wb_inverse(x[0])));
    return !dx[0];
}
static int cholesky_gradient(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x, wb_tensor **dx,
                             void *ctx)
{
    (void)n, (void)x, (void)ctx;
    wb_tensor *upper = transposed_of(y), *m = wb_matmul(upper, g);
    wb_tensor *p = linalg_half(wb_add(wb_tril(m, 0), wb_tril(m, -1)));
    wb_tensor *s = wb_solve(upper, transposed_of(wb_solve(upper, p)));
    dx[0] = linalg_half(wb_add(s, transposed_of(s)));
    return !dx[0];
}

#define OF_SQUARES(name, last)                                                                     \
    wb_tensor *wb_##name(wb_tensor *x)                                                             \
    {                                                                                              \
        if (!are_matrices(#name, x, true)) return NULL;                                            \
        const wb__frame f = wb__frame_begin();                                                     \
        const wb_dtype t = (wb_dtype)x->dtype;                                                     \
        wb_tensor *wide = wb__wide(x), *y = NULL;                                                  \
        if (wide)                                                                                  \
            y = add_host_step(host_##name, name##_gradient, 1, &wide, last,                        \
                              x->dims + x->ndim - 2);                                              \
        return wb__frame_end(f, y ? wb__as(y, t) : NULL);                                          \
    }
OF_SQUARES(inverse, 2)
OF_SQUARES(determinant, 0)
OF_SQUARES(cholesky, 2)

/* ---- several results ------------------------------------------------------------------------- */

/* Returns elements *at to *at + rows columns of the last axis of y, a result for x, as rows by
 * columns (columns 0: as a vector), and moves *at behind them. */
static wb_tensor *part_of_results(wb_tensor *y, const wb_tensor *x, int64_t *at, int64_t rows,
                                  int64_t columns)
{
    const int batch = x->ndim - 2;
    const int64_t from = *at;
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < batch; i++) dims[i] = x->dims[i];
    dims[batch] = rows;
    dims[batch + 1] = columns;
    *at += rows * (columns ? columns : 1);
    y = y ? wb_slice(y, batch, from, *at) : NULL;
    return y ? wb_reshape_array(y, batch + (columns ? 2 : 1), dims) : NULL;
}

typedef struct { wb_tensor *u, *s, *vt; } svd_parts;
static svd_parts svd_of(wb_tensor *y, const wb_tensor *x)
{
    const int64_t m = x->dims[x->ndim - 2], n = x->dims[x->ndim - 1], k = WB__MIN(m, n);
    int64_t at = 0;
    svd_parts p;
    p.u = part_of_results(y, x, &at, m, k);
    p.s = part_of_results(y, x, &at, k, 0);
    p.vt = part_of_results(y, x, &at, k, n);
    return p;
}

/* Returns x - x^T. */
static wb_tensor *skew_part(wb_tensor *x) { return wb_sub(x, transposed_of(x)); }

/* Sets dx = u (inner + diag(ds)) vt, plus the part outside the spaces of u and vt, as PyTorch
 * does. */
static int svd_gradient(wb_tensor *g, wb_tensor *y, int count, wb_tensor *const *in,
                        wb_tensor **dx, void *ctx)
{
    (void)count, (void)ctx;
    const wb_tensor *x = in[0];
    const int64_t m = x->dims[x->ndim - 2], n = x->dims[x->ndim - 1], k = WB__MIN(m, n);
    const svd_parts p = svd_of(y, x), d = svd_of(g, x);
    wb_tensor *one = wb_eye(k, (wb_dtype)x->dtype);
    wb_tensor *row = wb_unsqueeze(p.s, -2), *column = wb_unsqueeze(p.s, -1);
    wb_tensor *differences = wb_add(wb_sub(wb_square(row), wb_square(column)), one);
    wb_tensor *of_u = wb_mul(skew_part(wb_matmul(transposed_of(p.u), d.u)), row);
    wb_tensor *of_v = wb_mul(column, skew_part(wb_matmul(p.vt, transposed_of(d.vt))));
    wb_tensor *inner = wb_div(wb_add(of_u, of_v), differences);
    inner = wb_add(inner, wb_mul(wb_unsqueeze(d.s, -1), one));
    wb_tensor *left = wb_matmul(p.u, inner);
    if (m > k) {
        wb_tensor *outside = wb_div(d.u, row);
        outside = wb_sub(outside, wb_matmul(p.u, wb_matmul(transposed_of(p.u), outside)));
        left = wb_add(left, outside);
    }
    dx[0] = wb_matmul(left, p.vt);
    if (n > k) {
        wb_tensor *outside = wb_div(d.vt, column);
        outside = wb_sub(outside, wb_matmul(wb_matmul(outside, transposed_of(p.vt)), p.vt));
        dx[0] = wb_add(dx[0], wb_matmul(p.u, outside));
    }
    return !dx[0];
}

static bool not_empty(const char *what, const wb_tensor *x)
{
    if (!are_matrices(what, x, false)) return false;
    if (x->dims[x->ndim - 1] && x->dims[x->ndim - 2]) return true;
    return !wb__fail(WB_ERROR_SHAPE, "%s: %s has empty matrices", what, wb_describe(x));
}

int wb_svd(wb_tensor *x, wb_tensor **u, wb_tensor **s, wb_tensor **vt)
{
    if (WB__NULL(u) || WB__NULL(s) || WB__NULL(vt)) return wb_error_code();
    *u = *s = *vt = NULL;
    if (!not_empty("svd", x)) return wb_error_code();
    const wb__frame f = wb__frame_begin();
    const int64_t m = x->dims[x->ndim - 2], n = x->dims[x->ndim - 1], k = WB__MIN(m, n);
    wb_tensor *wide = wb__wide(x), *y = NULL;
    if (wide) y = add_host_step(host_svd, svd_gradient, 1, &wide, 1, &(int64_t){m * k + k + k * n});
    const svd_parts p = y ? svd_of(y, x) : (svd_parts){NULL, NULL, NULL};
    wb_tensor *all[3] = {p.u, p.s, p.vt};
    for (int i = 0; i < 3; i++) all[i] = all[i] ? wb__as(all[i], (wb_dtype)x->dtype) : NULL;
    const bool works = all[0] && all[1] && all[2];
    wb__frame_end_many(f, works ? 3 : 0, (void *const *)all);
    if (!works) return wb_error_code();
    *u = all[0], *s = all[1], *vt = all[2];
    return 0;
}

/* Returns (dq + q c) r^-T for a square r, where c is the lower triangle of r dr^T - dq^T q and its
 * mirror image. */
static wb_tensor *qr_square(wb_tensor *q, wb_tensor *r, wb_tensor *dq, wb_tensor *dr)
{
    wb_tensor *m = wb_sub(wb_matmul(r, transposed_of(dr)), wb_matmul(transposed_of(dq), q));
    wb_tensor *c = wb_add(wb_tril(m, 0), transposed_of(wb_tril(m, -1)));
    return transposed_of(wb_solve(r, transposed_of(wb_add(dq, wb_matmul(q, c)))));
}

/* Sets dx by qr_square.  If x has more columns than rows, x = [p, w] and r = [s, v], with p = q s
 * and w = q v. */
static int qr_gradient(wb_tensor *g, wb_tensor *y, int count, wb_tensor *const *in, wb_tensor **dx,
                       void *ctx)
{
    (void)count, (void)ctx;
    wb_tensor *x = in[0];
    const int axis = x->ndim - 1;
    const int64_t m = x->dims[axis - 1], n = x->dims[axis], k = WB__MIN(m, n);
    int64_t at = 0, same = 0;
    wb_tensor *q = part_of_results(y, x, &at, m, k), *r = part_of_results(y, x, &at, k, n);
    wb_tensor *dq = part_of_results(g, x, &same, m, k),
              *dr = wb_triu(part_of_results(g, x, &same, k, n), 0);
    if (n > k) {
        wb_tensor *dv = wb_slice(dr, axis, k, n), *w = wb_slice(x, axis, k, n);
        dq = wb_add(dq, wb_matmul(w, transposed_of(dv)));
        wb_tensor *dp = qr_square(q, wb_slice(r, axis, 0, k), dq, wb_slice(dr, axis, 0, k));
        dx[0] = wb_concat(axis, dp, wb_matmul(q, dv));
    } else dx[0] = qr_square(q, r, dq, dr);
    return !dx[0];
}

int wb_qr(wb_tensor *x, wb_tensor **q, wb_tensor **r)
{
    if (WB__NULL(q) || WB__NULL(r)) return wb_error_code();
    *q = *r = NULL;
    if (!not_empty("qr", x)) return wb_error_code();
    const wb__frame f = wb__frame_begin();
    const int64_t m = x->dims[x->ndim - 2], n = x->dims[x->ndim - 1], k = WB__MIN(m, n);
    int64_t at = 0;
    wb_tensor *wide = wb__wide(x), *y = NULL;
    if (wide) y = add_host_step(host_qr, qr_gradient, 1, &wide, 1, &(int64_t){m * k + k * n});
    wb_tensor *all[2] = {part_of_results(y, x, &at, m, k), NULL};
    all[1] = part_of_results(y, x, &at, k, n);
    for (int i = 0; i < 2; i++) all[i] = all[i] ? wb__as(all[i], (wb_dtype)x->dtype) : NULL;
    const bool works = all[0] && all[1];
    wb__frame_end_many(f, works ? 2 : 0, (void *const *)all);
    if (!works) return wb_error_code();
    *q = all[0], *r = all[1];
    return 0;
}
