/* LAPACK, which is opened at run time: its functions for f32 and f64.  All arguments are pointers,
 * as in Fortran; matrices are column-major.  Texts have their length behind the arguments.
 *
 *   WEBER_LAPACK_LIBRARY    the library's file, instead of the usual ones */
#ifndef WB__LAPACK_H
#define WB__LAPACK_H

#include "base/base.h"

typedef struct {
    void (*getrf)(const int *m, const int *n, void *a, const int *lda, int *pivots, int *info);
    void (*getrs)(const char *transposed, const int *n, const int *k, const void *lu,
                  const int *lda, const int *pivots, void *b, const int *ldb, int *info, size_t);
    void (*potrf)(const char *half, const int *n, void *a, const int *lda, int *info, size_t);
    void (*gesdd)(const char *job, const int *m, const int *n, void *a, const int *lda, void *s,
                  void *u, const int *ldu, void *vt, const int *ldvt, void *work,
                  const int *n_work, int *integers, int *info, size_t);
    void (*geqrf)(const int *m, const int *n, void *a, const int *lda, void *tau, void *work,
                  const int *n_work, int *info);
    void (*orgqr)(const int *m, const int *n, const int *k, void *a, const int *lda,
                  const void *tau, void *work, const int *n_work, int *info);
} wb__lapack;

/* Returns the functions for f64 or f32.  NULL, with the error set: no library was found. */
const wb__lapack *wb__lapack_open(const char *what, bool f64);

#endif
