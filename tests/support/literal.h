/* Operations of one tensor against literal numbers in all dtypes, and their gradients against
 * differences.  A program has a table of `literal` rows. */
#ifndef LITERAL_H
#define LITERAL_H

#include "reference.h"

enum { SMOOTH = 1, INTEGERS = 2, FLOATS = 4 };

typedef struct {
    const char *name;
    wb_tensor *(*f)(wb_tensor *x);
    const double *x;            /* the operand, of the shape `dims`; a 0 ends the shape */
    int64_t dims[5];
    int kinds;                  /* SMOOTH: has a gradient.  FLOATS, INTEGERS: dtypes of x */
    int64_t shape[6];           /* of the result; a 0 ends it */
    const double *value;        /* of the n elements of the result: VALUES(...) */
    size_t n;
} literal;

#define VALUES(...) \
    (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double)

#define CASE(name, ...) static wb_tensor *name(wb_tensor *x) { return __VA_ARGS__; }

static inline int length_of(const int64_t *dims)
{
    int n = 0;
    while (dims[n]) n++;
    return n;
}

static inline wb_tensor *literal_operand(const literal *r, wb_dtype t, double moved, int64_t at)
{
    array x = ref_new(length_of(r->dims), r->dims);
    for (int64_t i = 0; i < x.size; i++) x.at[i] = r->x[i] + (i == at ? moved : 0);
    return tensor_of(x, t, 0);
}

static inline void literal_equals(const literal *r, wb_tensor *y, double within)
{
    if (!y) fail_msg("%s: %s", r->name, wb_error());
    const int n = length_of(r->shape);
    if (wb_ndim(y) != n || (n && memcmp(wb_dims(y), r->shape, (size_t)n * sizeof(int64_t))))
        fail_msg("%s is %s", r->name, wb_describe(y));
    const array got = values_of(y);
    if (got.size != (int64_t)r->n)
        fail_msg("%s has %d elements, and %d values", r->name, (int)got.size, (int)r->n);
    for (int64_t i = 0; i < got.size; i++)
        if (!(fabs(got.at[i] - r->value[i]) <= within * fmax(1, fabs(r->value[i]))) &&
            !(isnan(got.at[i]) && isnan(r->value[i])) && got.at[i] != r->value[i])
            fail_msg("%s of %s [%d] is %.12g, not %.12g", r->name, wb_describe(y), (int)i,
                     got.at[i], r->value[i]);
}

/* Compares the values of n rows in all dtypes that they take.  A dtype other than f32 is tested
 * with one row in fewer(). */
static inline void literal_values(const literal *rows, size_t n)
{
    static const double within[] = {[WB_F32] = 4e-6, [WB_F64] = 1e-11, [WB_F16] = 8e-3,
                                    [WB_BF16] = 5e-2, [WB_I32] = 0, [WB_I64] = 0, [WB_U8] = 0};
    static const wb_dtype dtypes[] = {WB_F32, WB_F64, WB_F16, WB_BF16, WB_I32, WB_I64, WB_U8};
    for (size_t i = 0; i < n; i++)
        for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) IN_SCOPE {
            const literal *r = rows + i;
            const bool whole = dtypes[t] > WB_BF16;
            if (!has_dtype(dtypes[t]) || !(r->kinds & (whole ? INTEGERS : FLOATS))) continue;
            if (t && (i + t) % (size_t)fewer()) continue;
            literal_equals(r, r->f(literal_operand(r, dtypes[t], 0, 0)), within[dtypes[t]]);
            ref_forget();
        }
}

/* The sum of the elements of y, each with a weight of its own. */
static inline wb_tensor *literal_sum(wb_tensor *y)
{
    if (!y) fail_msg("%s", wb_error());
    array w = ref_new(wb_ndim(y), wb_dims(y));
    for (int64_t i = 0; i < w.size; i++) w.at[i] = 1 + 0.25 * (double)((5 * i + 3) % 7);
    return wb_sum(wb_mul(y, tensor_of(w, wb_dtype_of(y), 0)));
}

/* Compares the gradients of the smooth rows, of one in fewer(), with differences, in the widest
 * dtype. */
static inline void literal_gradients(const literal *rows, size_t n)
{
    const wb_dtype t = widest_float();
    const double h = t == WB_F64 ? 1e-5 : 1e-2, within = t == WB_F64 ? 1e-7 : 1e-2;
    for (size_t i = 0; i < n; i++) IN_SCOPE {
        const literal *r = rows + i;
        if (!(r->kinds & SMOOTH) || i % (size_t)fewer()) continue;
        wb_tensor *x = literal_operand(r, t, 0, 0), *slope;
        slope = wb_gradient(literal_sum(r->f(x)), x);
        if (!slope) fail_msg("%s: %s", r->name, wb_error());
        const array got = values_of(slope);
        for (int64_t k = 0; k < got.size; k++) {
            const double up = wb_item(literal_sum(r->f(literal_operand(r, t, h, k)))),
                         down = wb_item(literal_sum(r->f(literal_operand(r, t, -h, k)))),
                         want = (up - down) / (2 * h);
            if (!(fabs(got.at[k] - want) <= within * fmax(1, fabs(want))))
                fail_msg("the gradient of %s [%d] is %.9g, not %.9g", r->name, (int)k, got.at[k],
                         want);
        }
        ref_forget();
    }
}

#endif
