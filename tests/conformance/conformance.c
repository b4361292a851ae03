/* The elementwise rows of ops.def against references in double precision: every dtype that the row
 * accepts, every kind of shape, operands that are views of other memory, broadcasting, special
 * values; gradients against finite differences.  The tests are generated from ops.def: a row
 * without a reference fails.  conformance_shape.c and conformance_product.c test the other rows,
 * conformance_graph.c random mixtures of all.
 *
 *   conformance [--seed N] [--count N] [--perf]
 *
 * --perf prints the time and GB/s of each row over 4 million f32. */
#include "reference.h"

#include "engine/tensor.h"

typedef wb_tensor *(*call1)(wb_tensor *);
typedef wb_tensor *(*call2)(wb_tensor *, wb_tensor *);
typedef struct { const char *name; wb__op op; call1 f; } row1;
typedef struct { const char *name; wb__op op; call2 f; } row2;

static const row1 unaries[] = {
#define WB_UNARY(name, accepts, expression, gradient) {#name, WB__OP_##name, wb_##name},
#include "ops/ops.def"
};
static const row1 tests1[] = {
#define WB_TEST(name, accepts, expression) {#name, WB__OP_##name, wb_##name},
#include "ops/ops.def"
};
static const row2 binaries[] = {
#define WB_BINARY(name, accepts, expression, dx, dy) {#name, WB__OP_##name, wb_##name},
#include "ops/ops.def"
};
static const row2 compares[] = {
#define WB_COMPARE(name, accepts, expression) {#name, WB__OP_##name, wb_##name},
#include "ops/ops.def"
};

static bool accepts(wb__op op, wb_dtype t)
{
    int a = wb__ops[op].accepts;
    return t == WB_BOOL         ? (a & WB__BOOLS) != 0
           : wb__dtype_float(t) ? (a & WB__FLOATS) != 0
                                : (a & WB__INTEGERS) != 0;
}

/* The interval that the operands of a row are drawn from: a part of the function's domain where it
 * is well conditioned. */
static void domain(const char *name, double *low, double *high)
{
    *low = -4;
    *high = 4;
    if (!strcmp(name, "sqrt") || !strcmp(name, "rsqrt") || !strcmp(name, "log")) *low = 0.01;
    if (!strcmp(name, "log1p")) *low = -0.9;
    if (!strcmp(name, "sin") || !strcmp(name, "cos")) *low = -30, *high = 30;
    if (!strcmp(name, "pow")) *low = 0.1;
}

/* Random elements of the row's domain that dtype t represents exactly. */
static array operand(const char *name, wb_dtype t, int ndim, const int64_t *dims)
{
    double low, high;
    domain(name, &low, &high);
    bool whole = !wb__dtype_float(t);
    array x = draw_array(ndim, dims, whole ? (t == WB_U8 ? 0 : -10) : low, whole ? 11 : high);
    round_to(x, t);
    for (int64_t i = 0; t == WB_BOOL && i < x.size; i++) x.at[i] = draw_int(0, 1);
    return x;
}

/* y with integers wrapped to the range of t; other dtypes are unchanged. */
static array as_result(array y, wb_dtype t)
{
    if (!wb__dtype_float(t) && t != WB_BOOL) {
        int64_t mask = t == WB_U8 || t == WB_I8 ? 0xff : -1;
        for (int64_t i = 0; i < y.size; i++) {
            int64_t v = (int64_t)y.at[i] & mask;
            y.at[i] = t == WB_I8 && v > 127 ? (double)(v - 256) : (double)v;
        }
    }
    return y;
}

static double allowed(wb_dtype t)
{
    return t == WB_F64 ? 16 * tolerance(t) : t == WB_F32 ? 6 * tolerance(t) : tolerance(t);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The tests below number their shapes: draw_shape has eight kinds, and two_operands broadcasts in
 * two ways from shapes 8 and 16 on.  A device compiles a kernel for every pattern of strides, so
 * that only every step-th shape is tested there.  With fewer() > 1 it is about one shape for a row
 * and a dtype, each another one; with fewer() > 5 a row has f32 and every other of the dtypes. */
static int step_of_shapes(int step)
{
    return (getenv("WEBER_TEST_DEVICE") ? step : 1) * fewer();
}
static int first_shape(int n, int step, size_t row, wb_dtype t)
{
    if (fewer() > 5 && t != WB_F32 && (row + (size_t)t) % 2) return n;
    return fewer() == 1 ? 0 : (int)(row * 5 + (size_t)t * 3) % WB__MIN(n, step_of_shapes(step));
}

static void one_operand(const row1 *rows, size_t n, ref_f1 (*reference)(const char *), bool to_bool)
{
    int64_t dims[WB_MAX_DIMS];
    int ndim;
    for (size_t r = 0; r < n; r++) {
        ref_f1 f = reference(rows[r].name);
        if (!f) fail_msg("%s has no reference in tests/support/reference.c", rows[r].name);
        for (wb_dtype t = WB_F32; t < WB_DTYPE_COUNT; t++) IN_SCOPE {
            if (!accepts(rows[r].op, t)) {
                wb_clear_error();
                assert_null(rows[r].f(tensor_of(draw_array(1, (int64_t[]){3}, 0, 2), t, 0)));
                if (!failed_with(WB_ERROR_DTYPE, FACTS(wb_dtype_name(t))))
                    fail_msg("%s of %s: the message is: %s", rows[r].name, wb_dtype_name(t),
                             wb_error());
            }
            for (int shape = first_shape(8, 3, r, t); accepts(rows[r].op, t) && shape < 8;
                 shape += step_of_shapes(3)) {
                draw_shape(shape, &ndim, dims);
                array x = operand(rows[r].name, t, ndim, dims);
                wb_tensor *y = rows[r].f(tensor_of(x, t, (int)draw_int(0, VIEWS - 1)));
                wb_dtype out = to_bool ? WB_BOOL : t;
                check(y, as_result(ref_map(f, x), out), allowed(out), allowed(out),
                      "%s of %s, shape %d", rows[r].name, wb_dtype_name(t), shape);
                if (wb_dtype_of(y) != out)
                    fail_msg("%s of %s gives %s", rows[r].name, wb_dtype_name(t), wb_describe(y));
            }
            ref_forget();
        }
    }
}

TEST(unary_rows)
{
    one_operand(unaries, sizeof unaries / sizeof *unaries, ref_unary, false);
}
TEST(test_rows)
{
    one_operand(tests1, sizeof tests1 / sizeof *tests1, ref_test, true);
}

static double integer_quotient(double x, double y) { return y == 0 ? 0 : trunc(x / y); }

static void two_operands(const row2 *rows, size_t n, ref_f2 (*reference)(const char *),
                         bool to_bool)
{
    int64_t dims[WB_MAX_DIMS];
    int ndim;
    for (size_t r = 0; r < n; r++) {
        ref_f2 f = reference(rows[r].name);
        if (!f) fail_msg("%s has no reference in tests/support/reference.c", rows[r].name);
        for (wb_dtype t = WB_F32; t < WB_DTYPE_COUNT; t++) IN_SCOPE {
            bool whole = !wb__dtype_float(t);
            ref_f2 g = whole && !strcmp(rows[r].name, "div") ? integer_quotient : f;
            for (int shape = first_shape(24, 5, r, t); accepts(rows[r].op, t) && shape < 24;
                 shape += step_of_shapes(5)) {
                int64_t other[WB_MAX_DIMS];
                draw_shape(shape, &ndim, dims);
                memcpy(other, dims, sizeof other);
                /* Broadcasting: y has no leading axes, and other axes have size 1. */
                int drop = shape >= 8 && ndim ? (int)draw_int(0, ndim) : 0;
                for (int d = 0; shape >= 16 && d < ndim; d++) if (draw_int(0, 1)) other[d] = 1;
                for (int d = 0; shape >= 16 && d < ndim; d++)
                    if (other[d] != 1 && !draw_int(0, 2)) dims[d] = 1;
                array x = operand(rows[r].name, t, ndim, dims),
                      y = operand(rows[r].name, t, ndim - drop, other + drop);
                for (int64_t i = 0; i < y.size; i++)
                    if (!strcmp(rows[r].name, "div") && !whole && fabs(y.at[i]) < 0.05) y.at[i] = 1;
                for (int64_t i = 0; i < x.size && x.size == y.size; i++)
                    if (!draw_int(0, 3)) y.at[i] = x.at[i];
                wb_tensor *z = rows[r].f(tensor_of(x, t, (int)draw_int(0, VIEWS - 1)),
                                         tensor_of(y, t, (int)draw_int(0, VIEWS - 1)));
                wb_dtype out = to_bool ? WB_BOOL : t;
                check(z, as_result(ref_map2(g, x, y), out), 2 * allowed(out), allowed(out),
                      "%s of %s, shape %d", rows[r].name, wb_dtype_name(t), shape);
            }
            ref_forget();
        }
    }
}

TEST(binary_rows)
{
    two_operands(binaries, sizeof binaries / sizeof *binaries, ref_binary, false);
}
TEST(compare_rows)
{
    two_operands(compares, sizeof compares / sizeof *compares, ref_compare, true);
}

/* ---- special values -------------------------------------------------------------------------- */

static const double special[] = {0.0,    -0.0, 1,    -1,   INFINITY, -INFINITY, NAN, 1e-30,
                                 -1e-30, 100,  -100, 3e38, -3e38,    0.5,       88,  -88};
enum { SPECIAL = sizeof special / sizeof *special };

static bool one_of(const char *name, const char *list)
{
    const char *at = strstr(list, name);
    return at && (at == list || at[-1] == ' ') && (!at[strlen(name)] || at[strlen(name)] == ' ');
}

/* Every function of NaN is NaN; at infinity it has the limit of its formula. */
TEST(special_values)
{
    array x = ref_new(1, (int64_t[]){SPECIAL});
    memcpy(x.at, special, sizeof special);
    for (wb_dtype t = WB_F32; t <= WB_F64; t++) {
        round_to(x, t);
        for (size_t r = 0; r < sizeof unaries / sizeof *unaries; r++) {
            array want = ref_map(ref_unary(unaries[r].name), x);
            for (int i = 0; i < SPECIAL; i++) {
                double v = x.at[i];
                /* Functions of the form x f(x): the limit is accepted, and below NaN too, which is
                 * the value of the formula, infinity times 0. */
                if (one_of(unaries[r].name, "swish gelu gelu_erf mish hardswish") &&
                    v == -INFINITY)
                    want.at[i] = 0;
                if (!strcmp(unaries[r].name, "gelu_slope") && isinf(v)) want.at[i] = v > 0;
                if (!strcmp(unaries[r].name, "gelu_slope") && fabs(v) > 50)
                    want.at[i] = isnan(v) ? v : v > 0;
                if (!strcmp(unaries[r].name, "gelu") && v < -50) want.at[i] = 0;
                if (one_of(unaries[r].name, "sin cos") && fabs(v) > 1e30 && !isinf(v)) continue;
                if (t == WB_F32) want.at[i] = (float)want.at[i];
            }
            wb_tensor *y = unaries[r].f(tensor_of(x, t, 0));
            array got = values_of(y);
            for (int i = 0; i < SPECIAL; i++) {
                double w = want.at[i], g = got.at[i];
                if (one_of(unaries[r].name, "sin cos") && fabs(x.at[i]) > 1e30 && !isinf(x.at[i]))
                    continue;
                if (one_of(unaries[r].name, "swish gelu gelu_erf gelu_slope mish hardswish") &&
                    (fabs(x.at[i]) > 1e19 || isinf(x.at[i])) && isnan(g))
                    continue;
                bool good = isnan(w)   ? isnan(g)
                            : isinf(w) ? g == w
                                       : fabs(g - w) <= 1e-5 * fabs(w) + 1e-37;
                if (!good)
                    fail_msg("%s(%g) in %s is %.9g, should be %.9g", unaries[r].name, x.at[i],
                             wb_dtype_name(t), g, w);
            }
        }
        for (size_t r = 0; r < sizeof binaries / sizeof *binaries; r++)
            for (int k = 0; k < SPECIAL; k++) {
                array y = ref_number(ref_cast(special[k], t)),
                      want = ref_map2(ref_binary(binaries[r].name), x, y);
                array got = values_of(binaries[r].f(tensor_of(x, t, 0), tensor_of(y, t, 0)));
                for (int i = 0; i < SPECIAL; i++) {
                    double w = t == WB_F32 ? (float)want.at[i] : want.at[i], g = got.at[i];
                    if (t == WB_F32 && fabs(w) < 1.2e-38) w = g = fabs(g) < 1.3e-38 ? 0 : g;
                    bool good = isnan(w)   ? isnan(g)
                                : isinf(w) ? g == w
                                           : fabs(g - w) <= 1e-5 * fabs(w);
                    if (!good)
                        fail_msg("%s(%g, %g) in %s is %.9g, should be %.9g", binaries[r].name,
                                 x.at[i], y.at[0], wb_dtype_name(t), got.at[i], want.at[i]);
                }
            }
        for (size_t r = 0; r < sizeof compares / sizeof *compares; r++)
            for (int k = 0; k < SPECIAL && accepts(compares[r].op, t); k++) {
                array y = ref_number(ref_cast(special[k], t));
                check(compares[r].f(tensor_of(x, t, 0), tensor_of(y, t, 0)),
                      ref_map2(ref_compare(compares[r].name), x, y), 0, 0, "%s with %g",
                      compares[r].name, special[k]);
            }
        check(wb_isfinite(tensor_of(x, t, 0)), ref_map(ref_test("isfinite"), x), 0, 0, "isfinite");
        ref_forget();
        x = ref_new(1, (int64_t[]){SPECIAL});
        memcpy(x.at, special, sizeof special);
    }
}

/* ---- where, cast ----------------------------------------------------------------------------- */

TEST(where_and_cast)
{
    int64_t dims[WB_MAX_DIMS];
    int ndim;
    for (wb_dtype t = WB_F32; t < WB_DTYPE_COUNT; t++) {
        for (int s = first_shape(8, 3, 0, t); s < 8 * has_dtype(t); s += step_of_shapes(3)) {
            wb_scope *scope = wb_scope_open();
            draw_shape(s, &ndim, dims);
            array c = operand("where", WB_BOOL, ndim, dims), x = operand("where", t, ndim, dims),
                  y = operand("where", t, 0, NULL);
            check(wb_where(tensor_of(c, WB_BOOL, 1), tensor_of(x, t, 2), tensor_of(y, t, 0)),
                  ref_where(c, x, y), 0, 0, "where of %s", wb_dtype_name(t));
            check(wb_where(tensor_of(c, WB_BOOL, 3), tensor_of(y, t, 0), tensor_of(x, t, 1)),
                  ref_where(c, y, x), 0, 0, "where of %s", wb_dtype_name(t));
            for (wb_dtype to = WB_F32; to < WB_DTYPE_COUNT; to++) {
                array z = ref_new(ndim, dims);
                if (!has_dtype(to)) continue;
                for (int64_t i = 0; i < z.size; i++)
                    z.at[i] = wb__dtype_float(t)    ? ref_cast(x.at[i], to)
                              : wb__dtype_float(to) ? ref_cast(x.at[i], to)
                              : to == WB_BOOL       ? x.at[i] != 0
                                                    : x.at[i];
                check(wb_astype(tensor_of(x, t, (int)draw_int(0, 5)), to),
                      wb__dtype_float(t) || to == WB_BOOL ? z : as_result(z, to), 0, 0, "%s as %s",
                      wb_dtype_name(t), wb_dtype_name(to));
            }
            wb_scope_close(scope);
            ref_forget();
        }
    }
    array x = ref_new(1, (int64_t[]){8});
    static const double odd[] = {NAN, INFINITY, -INFINITY, 300.7, -300.7, 1e20, -1e20, -0.9};
    memcpy(x.at, odd, sizeof odd);
    for (wb_dtype to = WB_I8; to <= WB_I32; to++) {
        array z = ref_new(1, x.dims);
        for (int i = 0; i < 8; i++) z.at[i] = ref_cast(x.at[i], to);
        check(wb_astype(tensor_of(x, WB_F32, 0), to), z, 0, 0, "f32 as %s saturates",
              wb_dtype_name(to));
        check(wb_astype(wb_astype(tensor_of(x, WB_F32, 0), to), WB_F32), z, 1e-6, 0,
              "f32 as %s and back", wb_dtype_name(to));
    }
    static const double small[] = {-1e-50, -1e-300, -7e-46, -0x1p-1074, 1e-50, 0x1p-1074};
    array tiny = ref_new(1, (int64_t[]){WB__COUNT(small)}),
          y = ref_map2(ref_binary("mul"), tiny, ref_number(0));
    memcpy(tiny.at, small, sizeof small);
    for (wb_dtype to = WB_F16; to <= WB_BF16; to++) {
        check(wb_astype(tensor_of(tiny, WB_F64, 0), to), y, 0, 0, "tiny f64 as %s",
              wb_dtype_name(to));
        check(wb_astype(wb_astype(tensor_of(tiny, WB_F64, 0), to), WB_F32), y, 0, 0,
              "tiny f64 as %s and back", wb_dtype_name(to));
    }
}

/* ---- running sums ---------------------------------------------------------------------------- */

static array ref_running(array x, int axis, const wb_cumsum_options *o)
{
    array y = ref_new(x.ndim, x.dims);
    int64_t step = 1;
    for (int d = axis + 1; d < x.ndim; d++) step *= x.dims[d];
    const int64_t n = x.dims[axis];
    for (int64_t i = 0; i < x.size; i++) {
        const int64_t at = i / step % n;
        for (int64_t j = 0; j < n; j++)
            if ((o->reverse ? j > at : j < at) || (j == at && !o->exclusive))
                y.at[i] += x.at[i + (j - at) * step];
    }
    return y;
}

/* how: bit 0 exclusive, bit 1 reverse, bit 2 the axis counted from the end. */
static void check_running(array x, wb_dtype t, int axis, int view, int how)
{
    const wb_cumsum_options o = {.exclusive = how & 1, .reverse = how & 2};
    const double n = (double)WB__MAX(x.dims[axis], 1), e = tolerance(t == WB_F64 ? t : WB_F32);
    const double absolute = wb__dtype_float(t) ? 4 * (t == WB_F64 ? n * n : 8 + n / 8) * e : 0;
    wb_tensor *y = wb_cumsum(tensor_of(x, t, view), axis - (how & 4 ? x.ndim : 0),
                             .exclusive = how & 1, .reverse = how & 2);
    if (!y) fail_msg("%s", wb_error());
    assert_int_equal(wb_dtype_of(y), t);
    check(y, as_result(ref_running(x, axis, &o), t), 2 * tolerance(t), absolute,
          "running sums of %s along %d of %d, %lld elements%s%s", wb_dtype_name(t), axis, x.ndim,
          (long long)x.dims[axis], o.exclusive ? ", exclusive" : "", o.reverse ? ", reverse" : "");
}

TEST(running_sums_of_all_dtypes)
{
    static const int64_t sizes[][5] = {         /* four dimensions and the axis */
        {3, 5, 4, 7, 1}, {2, 1, 300, 3, 2}, {1, 70, 2, 150, 3}, {130, 1, 1, 2, 0}, {2, 0, 3, 4, 1},
        {2, 0, 3, 4, 3}, {1, 1, 1, 1000, 3}, {700, 1, 3, 1, 0}, {3, 5, 4, 7, 3}, {5, 9, 20, 2, 2}};
    for (wb_dtype t = WB_F32; t < WB_BOOL; t++)
        for (int i = (int)t % fewer(); i < (int)WB__COUNT(sizes) * 8; i += fewer()) IN_SCOPE {
            const int64_t *dims = sizes[i / 8];
            array x = operand("", t, 4, dims);
            check_running(x, t, (int)dims[4], (int)draw_int(0, VIEWS - 1), i % 8);
            ref_forget();
        }
    for (int axis = 0; axis < WB_MAX_DIMS; axis += fewer()) {
        const array x = operand("", WB_F32, 8, (int64_t[]){2, 3, 1, 2, 3, 2, 2, 3});
        check_running(x, WB_F32, axis, 2, axis % 4);
        check_running(operand("", WB_I32, 1, (int64_t[]){5 * axis}), WB_I32, 0, 3, axis % 4);
    }
}

/* Small sums computed by hand; long sums in f32, whose error must not grow with the length;
 * infinities. */
TEST(running_sums)
{
    static const double rows[4][6] = {
        {1, 2, 3, 10, 20, 30}, {1, 3, 6, 10, 30, 60}, {0, 1, 3, 0, 10, 30}, {6, 5, 3, 60, 50, 30}};
    array x = ref_new(2, (int64_t[]){2, 3}), want = ref_new(2, x.dims);
    memcpy(x.at, rows[0], sizeof rows[0]);
    wb_tensor *p = tensor_of(x, WB_F32, 0);
    wb_tensor *y[4] = {p, wb_cumsum(p, 1), wb_cumsum(p, -1, .exclusive = true),
                       wb_cumsum(p, 1, .reverse = true)};
    for (int i = 0; i < 4; i++) {
        memcpy(want.at, rows[i], sizeof rows[i]);
        check(y[i], want, 0, 0, "running sums %d", i);
    }
    for (int columns = 1; columns <= 2; columns++) {
        wb_tensor *tenth = wb_full_array(0.1, WB_F32, 2, (int64_t[]){200000, columns});
        array sums = values_of(wb_cumsum(tenth, 0));
        for (int64_t i = 0; i < sums.size; i++)
            assert_true(fabs(sums.at[i] / (double)(i / columns + 1) - (double)0.1f) <= 5e-8);
    }
    x = ref_new(1, (int64_t[]){5});
    memcpy(x.at, (double[]){1, INFINITY, 2, -INFINITY, 3}, 5 * sizeof(double));
    want = ref_running(x, 0, &(wb_cumsum_options){0});
    for (wb_dtype t = WB_F32; t <= WB_F64; t++)
        check(wb_cumsum(tensor_of(x, t, 0), 0), want, 0, 0, "infinities of %s", wb_dtype_name(t));
    ref_forget();
}

TEST(running_sums_refused)
{
    REFUSED(wb_cumsum(wb_zeros(2, 3), 2), WB_ERROR_SHAPE, "cumsum", "axis", "2", "[2,3] f32", "0",
            "1", "-1");
    REFUSED(wb_cumsum(wb_zeros(2, 3), -3), WB_ERROR_SHAPE, "cumsum", "axis", "-3", "[2,3] f32", "0",
            "1", "-1");
    REFUSED(wb_cumsum(wb_scalar(1), 0), WB_ERROR_SHAPE, "cumsum", "axis", "0", "[] f32", "scalar",
            "wb_unsqueeze");
    REFUSED(wb_cumsum(wb_eq(wb_zeros(2), wb_zeros(2)), 0), WB_ERROR_DTYPE, "cumsum", "[2] bool",
            "integers", "wb_astype");
    REFUSED(wb_cumsum(NULL, 0), WB_ERROR_ARGUMENT, "cumsum", "operand", "NULL");
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* First and second derivatives against finite differences of the library's own f64 values, which
 * the tests above compare with references. */
static double value_at(call1 f1, call2 f2, array x, array y, double weight)
{
    wb_tensor *z =
        f1 ? f1(tensor_of(x, WB_F64, 0)) : f2(tensor_of(x, WB_F64, 0), tensor_of(y, WB_F64, 0));
    array v = values_of(z);
    double sum = 0;
    for (int64_t i = 0; i < v.size; i++) sum += v.at[i] * (1 + weight * (double)i);
    return sum;
}

static void gradient_of(const char *name, call1 f1, call2 f2, array x, array y)
{
    wb_scope *scope = wb_scope_open();
    wb_tensor *in[2] = {tensor_of(x, WB_F64, 0), tensor_of(y, WB_F64, 0)},
              *z = f1 ? f1(in[0]) : f2(in[0], in[1]);
    array w = ref_new(wb_ndim(z), wb_dims(z));
    for (int64_t i = 0; i < w.size; i++) w.at[i] = 1 + 0.1 * (double)i;
    wb_tensor *loss = wb_sum(wb_mul(z, tensor_of(w, WB_F64, 0)));
    for (int k = 0; k < (f1 ? 1 : 2); k++) {
        wb_tensor *g = wb_gradient(loss, in[k]);
        array got = values_of(g), second = values_of(wb_gradient(wb_sum(wb_mul(g, g)), in[k])),
              p = k ? y : x;
        for (int64_t i = 0; i < p.size; i++) {
            double h = 1e-5, keep = p.at[i];
            p.at[i] = keep + h;
            double up = value_at(f1, f2, x, y, 0.1);
            double up_g = 0, down_g = 0;
            wb_tensor *a[2] = {tensor_of(x, WB_F64, 0), tensor_of(y, WB_F64, 0)};
            array gu = values_of(wb_gradient(
                wb_sum(wb_mul(f1 ? f1(a[0]) : f2(a[0], a[1]), tensor_of(w, WB_F64, 0))), a[k]));
            p.at[i] = keep - h;
            double down = value_at(f1, f2, x, y, 0.1);
            wb_tensor *b[2] = {tensor_of(x, WB_F64, 0), tensor_of(y, WB_F64, 0)};
            array gd = values_of(wb_gradient(
                wb_sum(wb_mul(f1 ? f1(b[0]) : f2(b[0], b[1]), tensor_of(w, WB_F64, 0))), b[k]));
            p.at[i] = keep;
            for (int64_t j = 0; j < gu.size; j++) {
                up_g += gu.at[j] * gu.at[j];
                down_g += gd.at[j] * gd.at[j];
            }
            double want = (up - down) / (2 * h), want2 = (up_g - down_g) / (2 * h);
            if (!(fabs(got.at[i] - want) <= 1e-6 * (1 + fabs(want))))
                fail_msg("%s: the gradient to operand %d, element %lld, is %.10g; finite "
                         "differences give %.10g",
                         name, k, (long long)i, got.at[i], want);
            if (!(fabs(second.at[i] - want2) <= 1e-5 * (1 + fabs(want2))))
                fail_msg("%s: the second derivative to operand %d, element %lld, is %.10g; finite "
                         "differences give %.10g",
                         name, k, (long long)i, second.at[i], want2);
        }
    }
    wb_scope_close(scope);
}

TEST(gradients)
{
    int64_t dims[2] = {3, 4};
    for (size_t r = 0; r < sizeof unaries / sizeof *unaries; r++) {
        double low, high;
        domain(unaries[r].name, &low, &high);
        array x = draw_array(2, dims, fmax(low, 0.05), fmin(high, 3));
        for (int64_t i = 0; low < -1 && i < x.size; i += 2)
            x.at[i] = -x.at[i]; /* both signs, not near 0, where some have kinks */
        for (int64_t i = 0; i < x.size; i++)
            if (fabs(x.at[i] - round(x.at[i])) < 0.01) x.at[i] += 0.02;
        gradient_of(unaries[r].name, unaries[r].f, NULL, x, x);
        ref_forget();
    }
    for (size_t r = 0, step = WB__MIN(fewer(), 3); r < sizeof binaries / sizeof *binaries; r++)
        for (int broadcast = (int)(r % step); broadcast < 3; broadcast += (int)step) {
            array x = draw_array(2, dims, 0.3, 2),
                  y = draw_array(broadcast == 1 ? 1 : 2,
                                 broadcast == 2 ? (int64_t[]){3, 1} : dims + (broadcast == 1), 0.35,
                                 2.1);
            gradient_of(binaries[r].name, NULL, binaries[r].f, x, y);
            if (!broadcast) gradient_of(binaries[r].name, NULL, binaries[r].f, y, x);
            ref_forget();
        }
}

static wb_tensor *before(wb_tensor *x) { return wb_sin(wb_cumsum(x, -1, .exclusive = true)); }
static wb_tensor *behind(wb_tensor *x)
{
    return wb_cumsum(wb_square(wb_cumsum(x, 1, .reverse = true)), 0, .exclusive = true,
                     .reverse = true);
}

TEST(gradients_of_running_sums)
{
    array x = draw_array(2, (int64_t[]){3, 4}, -1, 1);
    gradient_of("exclusive cumsum", before, NULL, x, x);
    gradient_of("reverse cumsum", behind, NULL, x, x);
}

/* The gradients that ops.h documents at points where the function has a kink or two equal operands.
 */
TEST(gradients_at_points)
{
    static const struct { call1 f; double x, want;
    } points[] = {
        {wb_abs, 0, 0},     {wb_relu, 0, 0},   {wb_sign, 2, 0},
        {wb_floor, 2.5, 0}, {wb_relu, NAN, 0}, {wb_square, -3, -6},
    };
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        wb_tensor *x = tensor_of(ref_number(points[i].x), WB_F32, 0);
        double g = wb_item(wb_gradient(points[i].f(x), x));
        if (!(g == points[i].want) && !isnan(points[i].x))
            fail_msg("point %d: the gradient is %g", (int)i, g);
    }
    wb_tensor *x = tensor_of(ref_number(2), WB_F32, 0), *y = tensor_of(ref_number(2), WB_F32, 0);
    assert_true(wb_item(wb_gradient(wb_maximum(x, y), x)) == 1 &&
                wb_item(wb_gradient(wb_maximum(x, y), y)) == 0);
    assert_true(wb_item(wb_gradient(wb_minimum(x, y), x)) == 1 &&
                wb_item(wb_gradient(wb_minimum(x, y), y)) == 0);
}

/* ---- the list -------------------------------------------------------------------------------- */

/* The rows that are not elementwise, each with the test program that covers it. */
TEST(every_row_is_covered)
{
    static const char covered[] =
        "where cast " /* this program */
        "reshape permute expand slice concat sum max min argmax literal iota uniform gaussian "
        "take scatter_add " /* conformance_shape; the next five: indexed */
        "scatter_mul scatter_max scatter_min scatter_set argsort "
        "matmul conv conv_grad_input conv_grad_weight maxpool maxpool_grad maxpool_gather meanpool "
        "meanpool_grad softmax logsoftmax normalize "
        "attention attention_dq attention_dk attention_dv attention_lse " /* conformance_product */
        "attention_cached linear_int8 average adam_step " /* nn_sequences; quantised, optim_rules */
        "constant variable assign stop automatic host custom " /* engine_semantics, _custom */
        "moved collective cumsum"; /* device_move; dist/ranks; here, after "sum" (see one_of) */
#define WB_LIBRARY(name, step, variant, composed, gradient) WB_OTHER(name, LIBRARY, gradient)
#define WB_COMPOSITE(name, composed, gradient) WB_OTHER(name, COMPOSITE, gradient)
#define WB_OTHER(name, class, gradient) \
    if (!one_of(#name, covered)) fail_msg("%s: no test is named for this row", #name);
#include "ops/ops.def"
}

static void performance(void)
{
    int64_t n = 1 << 22;
    array a = draw_array(1, &n, 0.1, 2);
    wb_tensor *x = tensor_of(a, WB_F32, 0), *y = tensor_of(a, WB_F32, 0);
    for (size_t r = 0; r < sizeof unaries / sizeof *unaries + sizeof binaries / sizeof *binaries;
         r++) {
        bool one = r < sizeof unaries / sizeof *unaries;
        const char *name =
            one ? unaries[r].name : binaries[r - sizeof unaries / sizeof *unaries].name;
        double best = INFINITY;
        for (int k = 0; k < 8; k++) IN_SCOPE {
            wb_tensor *z =
                one ? unaries[r].f(x) : binaries[r - sizeof unaries / sizeof *unaries].f(x, y);
            double start = wb__now();
            wb_eval(z);
            best = fmin(best, wb__now() - start);
        }
        printf("%-12s %8.3f ms %7.1f GB/s\n", name, 1e3 * best,
               (one ? 8.0 : 12.0) * (double)n / best * 1e-9);
    }
    ref_forget();
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    return option_perf ? performance(), 0 : run_all_cases();
}
