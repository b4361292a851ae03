/* Weber, chapter 3, fourth part: linear algebra.  ops.h has the rules that hold for all operations.
 *
 * LAPACK computes these functions on the CPU.  It is opened at the first call: liblapack.so.3 or
 * libopenblas.so.0, or the file that the environment variable WEBER_LAPACK_LIBRARY names.  Matrices
 * are the last two axes; all axes before them count matrices, each of which is computed alone.
 * Dtypes: f32 and f64; f16 and bf16 are computed in f32.
 *
 * Errors of all functions: WB_ERROR_UNSUPPORTED: LAPACK is not installed (Debian's package is
 * liblapack3); WB_ERROR_DEVICE: a tensor on another device than the CPU (wb_cpu moves it);
 * WB_ERROR_SHAPE: fewer than two axes, or no square where one is needed.  A matrix that has no
 * result fails when the result is evaluated, with WB_ERROR_ARGUMENT. */
#ifndef WEBER_LINALG_H
#define WEBER_LINALG_H

#include "weber/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In the gradients y is the result, and dy the gradient with respect to it; x^T has the last two
 * axes of x exchanged; gradients are summed over axes that were broadcast. */

/** The solution y of a·y = b.   a [..., n, n]   b [..., n, k], or a vector [n]   y as b.  The axes
 * before the last two broadcast.  By the LU decomposition with pivots.
 *   db = a^-T dy   da = -db y^T
 * Error: a matrix is singular. */
WB_API wb_tensor *wb_solve(wb_tensor *a, wb_tensor *b);

/** The lower triangle l with positive diagonal and l·l^T = x.   x [..., n, n] is symmetric and
 * positive definite; only its lower triangle is read.
 *   dx = (s + s^T) / 2,   s = l^-T p l^-1,   p = the lower triangle of l^T dl, its diagonal halved
 * Error: a matrix is not positive definite. */
WB_API wb_tensor *wb_cholesky(wb_tensor *x);

/** The inverse of x [..., n, n].  dx = -y^T dy y^T.  Error: a matrix is singular.  wb_solve is more
 * accurate than a product with the inverse. */
WB_API wb_tensor *wb_inverse(wb_tensor *x);

/** The determinant, [..., n, n] -> [...]; 1 for n = 0.  dx = dy y x^-T, so the evaluation of
 * the gradient fails for a singular matrix. */
WB_API wb_tensor *wb_determinant(wb_tensor *x);

/** The singular values of x and their vectors: x = u·diag(s)·vt, where k = min(m, n).
 *   x [..., m, n]   *u [..., m, k]   *s [..., k], descending   *vt [..., k, n]
 * Columns of u and rows of vt are orthonormal; a column of u and the row of vt that belongs to it
 * are determined up to a common sign.  (svd of PyTorch with full_matrices=False)  Returns 0 or an
 * error code; then all three are NULL.  The gradient divides by s_j² - s_i², and, unless x is
 * square, by s: it is infinite or NaN where singular values are equal, or 0.  It makes sense for
 * losses that do not depend on the signs.  Error: x has NaN or infinity. */
WB_API int wb_svd(wb_tensor *x, wb_tensor **u, wb_tensor **s, wb_tensor **vt);

/** x = q·r with orthonormal columns of q and an upper triangle r, where k = min(m, n).
 *   x [..., m, n]   *q [..., m, k]   *r [..., k, n]
 * The diagonal of r can be negative, as in LAPACK and PyTorch (mode "reduced").  Returns 0 or an
 * error code; then both are NULL.  The gradient needs the first k columns of x to be independent;
 * otherwise its evaluation fails, as that of wb_solve. */
WB_API int wb_qr(wb_tensor *x, wb_tensor **q, wb_tensor **r);

#ifdef __cplusplus
}
#endif
#endif
