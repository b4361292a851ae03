/* Reference results in double precision: plain loops over elements, written from
 * include/weber/ops.h and the papers named there, independently of the implementations.  Arrays are
 * row-major and dense, and valid until ref_forget(). */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "test.h"

#include "weber.h"

typedef struct {
    int ndim;
    int64_t dims[WB_MAX_DIMS], size;
    double *at;
} array;

array ref_new(int ndim, const int64_t *dims);
void ref_forget(void);
array ref_number(double v);

/* The reference of an elementwise operation by name, or NULL. */
typedef double (*ref_f1)(double x);
typedef double (*ref_f2)(double x, double y);
ref_f1 ref_unary(const char *name);
ref_f2 ref_binary(const char *name);
ref_f1 ref_test(const char *name);
ref_f2 ref_compare(const char *name);
double ref_cast(double x, wb_dtype to);             /* the value of wb_astype(x, to) */

array ref_map(ref_f1 f, array x);
array ref_map2(ref_f2 f, array x, array y);         /* broadcasts */
array ref_where(array c, array x, array y);
bool ref_broadcast(const array *x, const array *y, int *ndim, int64_t *dims);

/* Reductions over the axes of a mask. */
array ref_sum(array x, unsigned mask, bool keep);
array ref_mean(array x, unsigned mask, bool keep);
array ref_max(array x, unsigned mask, bool keep);
array ref_min(array x, unsigned mask, bool keep);
array ref_variance(array x, unsigned mask, bool keep);
array ref_logsumexp(array x, unsigned mask, bool keep);
array ref_argmax(array x, int axis);

array ref_reshape(array x, int ndim, const int64_t *dims);
array ref_permute(array x, const int64_t *order);
array ref_expand(array x, int ndim, const int64_t *dims);
array ref_slice(array x, int axis, int64_t start, int64_t stop);
array ref_flip(array x, int axis);
array ref_pad(array x, int axis, int64_t before, int64_t after);
array ref_concat(int n, const array *x, int axis);
array ref_take(array x, array index);

/* At least two dimensions each; the leading dimensions broadcast. */
array ref_matmul(array a, array b);
array ref_conv(array x, array w, const int64_t *stride, const int64_t *pad, const int64_t *dilation,
               int64_t groups);
array ref_pool(array x, bool max, const int64_t *window, const int64_t *stride, const int64_t *pad);
array ref_softmax(array x);
array ref_logsoftmax(array x);
array ref_normalise(array x, int n_axes, double eps);
array ref_attention(array q, array k, array v, const array *mask);

/* ---- random arrays --------------------------------------------------------------------------- */

extern uint64_t draw_state;
uint64_t draw_bits(void);
int64_t draw_int(int64_t low, int64_t high);        /* both included */
double draw_real(double low, double high);
array draw_array(int ndim, const int64_t *dims, double low, double high);
/* A random shape of one of eight kinds, kind % 8: scalar, empty, of ones, odd, large and others. */
void draw_shape(int kind, int *ndim, int64_t *dims);

/* Rounds the elements of x in place to values that the dtype represents. */
void round_to(array x, wb_dtype dtype);

bool has_dtype(wb_dtype dtype);         /* whether the device under test has it */
void need_dtype(wb_dtype dtype);        /* skips the test if it does not */
wb_dtype widest_float(void);            /* f64, or f32 if the device under test has no f64 */
/* x as a tensor of that dtype, on the CPU if the device under test does not have the dtype.  `view`
 * 0: dense memory; 1..5: a slice, a permutation, a flip, an expansion or a strided slice of other
 * memory. */
wb_tensor *tensor_of(array x, wb_dtype dtype, int view);
enum { VIEWS = 6 };

/* Fails the test unless |got - expected| <= relative |expected| + absolute for each element.  NaN
 * equals NaN, and infinities must be equal.  `what` and the arguments after it name the case. */
void check(wb_tensor *got, array expected, double relative, double absolute, const char *what, ...)
    __attribute__((format(printf, 5, 6)));
array values_of(wb_tensor *x);                      /* evaluates; fails the test on an error */
double tolerance(wb_dtype dtype);                   /* relative, for one rounding of this dtype */

/* Numbers of the command line: --seed N, --count N, --perf. */
extern int64_t option_seed, option_count;
extern bool option_perf;
void read_options(int argc, char **argv);
int run_with_options(int argc, char **argv);        /* the whole of such a program's main */

#endif
