/* A value does not depend on the other values of its plan.  Integers wrap and bools are 0 or 1
 * within a kernel as in memory, and a sum over no elements is 0 for every operation that reads
 * it. */
#include "reference.h"

#include "engine/tensor.h"

/* ---- integers -------------------------------------------------------------------------------- */

enum { MOST = 64, ROWS = 3, COLUMNS = 70 };
typedef struct { wb_tensor *t[MOST]; int n, eager; } values;

static wb_tensor *keep(values *v, wb_tensor *t)
{
    if (!t) fail_msg("value %d: %s", v->n, wb_error());
    assert_true(v->n < MOST);
    v->t[v->n++] = t;
    return t;
}

/* Integer operations whose results overflow the dtype, and operations on these results that would
 * have other values without the wrap. */
static void arithmetic(values *v, wb_tensor *x, wb_tensor *y)
{
    wb_tensor *sums[4] = {keep(v, wb_sum(x, 1, .keep = true)), keep(v, wb_sum(x, 0)),
                          keep(v, wb_sum(x)), keep(v, wb_sum(wb_mul(x, y), 1, .keep = true))};
    wb_tensor *results[] = {wb_add(x, y), wb_mul(x, y), wb_square(x), wb_neg(x),
                            wb_abs(x),    wb_sub(y, x), wb_div(x, y)};
    for (int i = 0; i < 4; i++) {
        wb_tensor *s = sums[i];
        keep(v, wb_astype(s, WB_F32));
        keep(v, wb_gt(s, wb_scalar(5)));
        keep(v, wb_div(s, wb_scalar(2)));
        keep(v, wb_add(s, s));
        keep(v, wb_max(s));
        keep(v, wb_div(wb_add(x, s), wb_scalar(3)));
    }
    for (size_t i = 0; i < WB__COUNT(results); i++) {
        keep(v, results[i]);
        keep(v, wb_astype(results[i], WB_I64));
        keep(v, wb_div(results[i], wb_scalar(2)));
        keep(v, wb_lt(results[i], x));
    }
    keep(v, wb_where(wb_gt(wb_square(x), y), x, wb_neg(y)));
}

/* Constants and ranges with values that their dtype cannot represent. */
static void sources(values *v, wb_dtype t)
{
    const int64_t n = 700, one = 1;
    wb_tensor *x[3] = {wb_arange(n, t), wb_full_array(300.7, t, 1, &one),
                       wb_full_array(-7, t, 1, &n)};
    for (int i = 0; i < 3; i++) {
        keep(v, x[i]);
        keep(v, wb_astype(x[i], widest_float()));
        keep(v, wb_astype(wb_eq(x[i], wb_flip(x[i], 0)), WB_I32));
        keep(v, wb_where(wb_ne(x[i], wb_full_array(1, t, 1, &one)), wb_arange(n, WB_F32),
                         wb_scalar(0)));
        if (t == WB_BOOL) {
            keep(v, wb_not(x[i]));
            keep(v, wb_and(x[i], wb_full_array(2, t, 1, &n)));
        } else {
            keep(v, wb_div(x[i], wb_full_array(3, t, 1, &one)));
            keep(v, wb_sum(x[i]));
        }
    }
}

static void build(values *v, wb_dtype t, int what)
{
    static int64_t x[2][ROWS * COLUMNS];
    const int64_t dims[2] = {ROWS, COLUMNS};
    memset(v, 0, sizeof *v);
    draw_state = 5;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        for (int k = 0; k < 2; k++)
            x[k][i] = t == WB_I64 || t == WB_I32 ? (int64_t)draw_bits() >> draw_int(0, 62)
                                                 : draw_int(-128, 255);
    wb_tensor *a = wb_astype(wb_from(x[0], WB_I64, 2, dims), t),
              *b = wb_astype(wb_from(x[1], WB_I64, 2, dims), t);
    if (wb_eval(a, b)) fail_msg("%s", wb_error());
    if (what) arithmetic(v, a, b);
    else sources(v, t);
}

/* True on a device that compiles kernels: fewer cases are tested there. */
static bool compiles_kernels(void) { return getenv("WEBER_TEST_DEVICE") != NULL; }

/* The expected values: eagerly, one operation at a time, on the CPU. */
static void one_by_one(values *v, wb_dtype t, int what, array *want)
{
    const wb_device *before = wb__use_device(NULL);
    wb__this_thread()->eager = 1;
    build(v, t, what);
    wb__this_thread()->eager = 0;
    for (int i = 0; i < v->n; i++) want[i] = values_of(v->t[i]);
    wb__use_device(before);
}

static void same(values *got, int i, const array *want, wb_dtype t, const char *how)
{
    check(got->t[i], *want, 0, 0, "value %d of %s, %s", i, wb_dtype_name(t), how);
}

TEST(integers_wrap_everywhere)
{
    for (wb_dtype t = WB_I8; t <= WB_BOOL; t++)
        for (int what = 0; what <= (t != WB_BOOL); what++) IN_SCOPE {
            values v;
            array want[MOST];
            one_by_one(&v, t, what, want);
            const int n = v.n;
            build(&v, t, what);
            if (wb_eval_array(n, v.t)) fail_msg("%s", wb_error());
            for (int i = 0; i < n; i++) same(&v, i, &want[i], t, "all at once");
            for (int i = 0; i < n && !compiles_kernels(); i++) {
                build(&v, t, what);
                same(&v, i, &want[i], t, "alone");
            }
            ref_forget();
        }
}

/* A wb_scalar with an integer tensor is converted to its dtype; out of its range it is an error. */
TEST(numbers_that_do_not_fit)
{
    static const struct { wb_dtype dtype; double fits, over; } all[] = {
        {WB_I8, -128, 128}, {WB_U8, 255, -1}, {WB_I32, 2147483647.0, -2147483649.0},
        {WB_I64, -0x1p63, 1e19}};
    for (size_t i = 0; i < WB__COUNT(all); i++) {
        wb_tensor *x = wb_full_array(3, all[i].dtype, 1, (int64_t[]){2});
        assert_true(wb_item(wb_max(wb_astype(wb_gt(x, wb_scalar(all[i].fits)), WB_I32))) ==
                    (3 > all[i].fits));
        REFUSED(wb_lt(x, wb_scalar(all[i].over)), WB_ERROR_DTYPE, wb_dtype_name(all[i].dtype));
        assert_null(wb_where(wb_gt(x, wb_scalar(0)), wb_scalar(all[i].over), x));
        wb_clear_error();
    }
}

/* Sums of i8, with expected values computed by hand. */
TEST(sums_of_bytes)
{
    static const int8_t x[8] = {100, 53, -70, 70, 100, -120, -110, -9};     /* sums: 153, -139 */
    wb_tensor *s = wb_sum(wb_from(x, WB_I8, 2, (int64_t[]){2, 4}), .axes = WB_INTS(1));
    wb_tensor *wide = wb_astype(s, WB_I32), *above = wb_gt(s, wb_scalar(0)), *most = wb_max(s);
    wb_tensor *half = wb_div(s, wb_scalar(2));
    assert_int_equal(wb_eval(s, wide, above, most, half), 0);
    assert_true(wb_at(s, 0) == -103 && wb_at(s, 1) == 117);
    assert_true(wb_at(wide, 0) == -103 && wb_at(wide, 1) == 117);
    assert_true(wb_at(above, 0) == 0 && wb_at(above, 1) == 1);
    assert_true(wb_at(half, 0) == -51 && wb_at(half, 1) == 58 && wb_item(most) == 117);
}

/* ---- sums over no elements ------------------------------------------------------------------- */

enum { FOLLOWERS = 9 };

static wb_tensor *follower(wb_tensor *s, int i)
{
    const int64_t n = wb_size(s);
    wb_tensor *line = wb_reshape(s, 1, 1, n);
    switch (i) {
    case 0: return s;
    case 1: return wb_exp(s);
    case 2: return wb_add(wb_softmax(line), wb_scalar(1));
    case 3: return wb_logsoftmax(line);
    case 4: return wb_add(s, wb_max(s));
    case 5: return wb_sub(s, wb_min(wb_add(s, wb_scalar(2))));
    case 6: return wb_mul(wb_sum(wb_add(s, wb_scalar(1))), s);
    case 7: return wb_normalize(line, 1, 0.5);
    default: return wb_astype(wb_argmax(line, 2), WB_F32);
    }
}

static array followed(array s, int i)
{
    const unsigned all = (1u << s.ndim) - 1;
    const array line = ref_reshape(s, 3, (int64_t[]){1, 1, s.size});
    const ref_f2 add = ref_binary("add"), sub = ref_binary("sub"), mul = ref_binary("mul");
    switch (i) {
    case 0: return s;
    case 1: return ref_map(ref_unary("exp"), s);
    case 2: return ref_map2(add, ref_softmax(line), ref_number(1));
    case 3: return ref_logsoftmax(line);
    case 4: return ref_map2(add, s, ref_max(s, all, false));
    case 5: return ref_map2(sub, s, ref_min(ref_map2(add, s, ref_number(2)), all, false));
    case 6: return ref_map2(mul, ref_sum(ref_map2(add, s, ref_number(1)), all, false), s);
    case 7: return ref_normalise(line, 1, 0.5);
    default: return ref_argmax(line, 2);
    }
}

static const struct { int ndim; int64_t dims[4]; } empty[] = {
    {1, {0}},        {2, {0, 5}},    {2, {5, 0}},    {2, {0, 0}},      {3, {16, 5, 0}},
    {3, {3, 0, 4}},  {3, {0, 6, 2}}, {4, {2, 3, 0, 4}}, {2, {1, 0}}};

static void of_nothing(int shape, unsigned mask, bool keep_axes, bool computed)
{
    wb_scope *scope = wb_scope_open();
    const array x = ref_new(empty[shape].ndim, empty[shape].dims),
                want = ref_sum(x, mask, keep_axes);
    wb_reduce_options o = WB_OPTIONS_OF(wb_reduce_options, .keep = keep_axes);
    int64_t axes[WB_MAX_DIMS];
    int n_axes = 0;
    for (int a = 0; a < x.ndim; a++)
        if (mask >> a & 1) axes[n_axes++] = a;
    wb_ints_set(o.axes, n_axes, axes);
    wb_tensor *t = tensor_of(x, WB_F32, 0), *all[FOLLOWERS];
    if (want.size) {
        wb_tensor *s = wb_sum_with(computed ? wb_tanh(t) : t, &o);
        for (int i = 0; i < FOLLOWERS; i++) all[i] = follower(s, i);
        if (wb_eval_array(FOLLOWERS, all)) fail_msg("%s", wb_error());
        for (int i = 0; i < FOLLOWERS; i++)
            check(all[i], followed(want, i), 1e-6, 1e-6, "shape %d, axes %x: %d at once", shape,
                  mask, i);
    }
    for (int i = 0; i < FOLLOWERS && want.size && !compiles_kernels(); i++) {
        wb_tensor *s = wb_sum_with(computed ? wb_tanh(t) : t, &o);
        check(follower(s, i), followed(want, i), 1e-6, 1e-6, "shape %d, axes %x: %d alone", shape,
              mask, i);
    }
    wb_scope_close(scope);
    ref_forget();
}

TEST(sums_of_nothing)
{
    static const struct { int shape; unsigned mask; } few[] = {{1, 1}, {2, 2}, {4, 5}, {5, 2}};
    for (size_t i = 0; i < WB__COUNT(few) && compiles_kernels(); i += (size_t)fewer())
        of_nothing(few[i].shape, few[i].mask, false, true);
    for (int shape = 0; shape < (int)WB__COUNT(empty) && !compiles_kernels(); shape++)
        for (unsigned mask = 1; mask < 1u << empty[shape].ndim; mask++)
            for (int k = 0; k < 4; k++) of_nothing(shape, mask, k & 1, k >> 1);
}

/* Losses of a model; with a batch of no observations all gradients are zeros. */
static wb_tensor *head(wb_tensor *y, int which)
{
    switch (which) {
    case 0: return wb_sum(wb_logsoftmax(y));
    case 1: return wb_sum(wb_mul(wb_softmax(y), y));
    case 2: return wb_sum(wb_square(wb_normalize(y, 1, 0)));
    case 3: return wb_sum(wb_max(y, .axes = WB_INTS(1)));
    default: return wb_sum(wb_square(wb_relu(y)));
    }
}

TEST(gradients_of_nothing)
{
    for (int which = 0; which < 5; which += fewer()) IN_SCOPE {
        const array zeros[3] = {ref_new(1, (int64_t[]){19}), ref_new(2, (int64_t[]){19, 2}),
                                ref_new(2, (int64_t[]){0, 2})};
        wb_tensor *x[3], *g[3];
        for (int i = 0; i < 3; i++) x[i] = tensor_of(zeros[i], WB_F32, 0);
        wb_tensor *loss = head(wb_linear(x[2], x[1], x[0]), which);
        if (!loss || wb__gradients(loss, 3, x, g) || wb_eval(loss, g[0], g[1], g[2]))
            fail_msg("head %d: %s", which, wb_error());
        check(loss, ref_number(0), 0, 0, "the loss of head %d", which);
        for (int i = 0; i < 3; i++) check(g[i], zeros[i], 0, 0, "gradient %d of head %d", i, which);
        ref_forget();
    }
}

/* ---- variances ------------------------------------------------------------------------------- */

enum { SAMPLES = 700, CHANNELS = 4 };

/* Sample i of a channel: spread numbers, far from 0 in channel 1; constant in channel 2; with a
 * first one 30 deviations away in channel 3.  All are exact in f32. */
static double sample(int i, int channel)
{
    const double x = (i * 7919 % 17 - 8) * 0.125;
    return channel == 1 ? 20000 + x : channel == 2 ? 3 : channel == 3 && !i ? 18 : x;
}

/* The variance of a product's rows, which a GPU computes in the pass that computes the mean.  Its
 * relative error is a few units of rounding of f32, or 30^2 times that in channel 3. */
TEST_IN_SCOPE(variances_of_rows)
{
    float numbers[SAMPLES * CHANNELS], one[CHANNELS * CHANNELS] = {0};
    for (int i = 0; i < SAMPLES * CHANNELS; i++)
        numbers[i] = (float)sample(i / CHANNELS, i % CHANNELS);
    for (int i = 0; i < CHANNELS; i++) one[i * CHANNELS + i] = 1;
    wb_tensor *x = wb_from(numbers, WB_F32, 2, (int64_t[]){SAMPLES, CHANNELS});
    wb_tensor *y = wb_from(one, WB_F32, 2, (int64_t[]){CHANNELS, CHANNELS}), *centred, *spread;
    WORKS(wb_eval(x, y));
    MADE(x = wb_matmul(x, y));
    MADE(centred = wb_sub(x, wb_mean(x, .axes = WB_INTS(0), .keep = true)));
    MADE(spread = wb_mean(wb_square(centred), .axes = WB_INTS(0)));
    wb_tensor *scaled = wb_mul(centred, wb_rsqrt(wb_add(spread, wb_scalar(1e-5))));
    WORKS(wb_eval(scaled, spread));
    for (int c = 0; c < CHANNELS; c++) {
        double mean = 0, variance = 0;
        for (int i = 0; i < SAMPLES; i++) mean += sample(i, c) / SAMPLES;
        for (int i = 0; i < SAMPLES; i++)
            variance += (sample(i, c) - mean) * (sample(i, c) - mean) / SAMPLES;
        const double error = (c == 3 ? 900 : 4) * 1.2e-7, got = wb_at(spread, c);
        if (!(fabs(got - variance) <= error * variance + 1e-20))
            fail_msg("channel %d: the variance is %.9g, not %.9g", c, got, variance);
        for (int i = 0; i < SAMPLES; i++) {
            const double want = (sample(i, c) - mean) / sqrt(variance + 1e-5);
            const double is = wb_at(scaled, i, c), unit = c == 1 ? 1e-3 : 1e-6;
            if (!(fabs(is - want) <= error * fabs(want) + unit))
                fail_msg("channel %d, sample %d: %.9g, not %.9g", c, i, is, want);
        }
    }
}

/* ---- results in the memory of operands ------------------------------------------------------- */

/* A value of the square matrix p.  One kernel computes it of the rows of p (0, 1) and of elements
 * elsewhere (2, 3), or two kernels compute it (4, 5). */
static wb_tensor *value_of(wb_tensor *p, int which)
{
    wb_tensor *y = wb_softmax(p);
    if (which == 2) y = wb_add(y, wb_transpose(p));
    if (which == 3) y = wb_add(y, wb_slice(p, 0, 3, 4));
    if (which >= 4) y = wb_add(y, wb_sum(y, .axes = WB_INTS(0), .keep = true));
    return y;
}

/* On a GPU a kernel stores its result in place of an operand, unless a later kernel reads this one
 * (1), or the kernel reads it elsewhere (2, 3); and only one of two results (5). */
TEST_IN_SCOPE(results_in_place)
{
    enum { N = 48, BYTES = 4 * N * N };
    wb_tensor *x[2], *result[2];
    wb_memory need[2];
    for (int i = 0; i < 2; i++) {
        x[i] = wb_sin(wb_mul(wb_arange(N * N, WB_F32), wb_scalar(1.3 + i)));
        MADE(x[i] = wb_reshape(x[i], N, N));
        WORKS(wb_eval(x[i]));
    }
    for (int which = 0; which < 6; which++) {
        for (int i = 0; i < 2; i++) {
            wb_tensor *p = wb_matmul(x[0], x[1]);
            if (i) WORKS(wb_eval(p));
            wb_tensor *y = value_of(p, which);
            MADE(result[i] = wb_matmul(y, x[0]));
            if (which == 1) MADE(result[i] = wb_matmul(result[i], p));
            if (which == 5) MADE(result[i] = wb_matmul(result[i], wb_cos(y)));
            WORKS(wb_estimate_memory(1, &result[i], &need[i]));
            WORKS(wb_eval(result[i]));
        }
        assert_true(wb_item(wb_max(wb_abs(wb_sub(result[0], result[1])))) < 1e-3);
        if (!compiles_kernels()) continue;
        assert_int_equal(need[0].arena - need[1].arena, which >= 1 && which <= 3 ? BYTES : 0);
    }
}

/* ---- sums of exponentials -------------------------------------------------------------------- */

enum { SCORES = 1500, KINDS = 9 };

/* Score i of a row: rising slowly, rising and falling far, all equal, spread, with infinities, with
 * NaN. */
static double score(int i, int row)
{
    switch (row) {
    case 0: return i * 0.0078125;
    case 1: return i - 700;
    case 2: return 700 - i;
    case 3: return -20000;
    case 4: return i * 7919 % 1009 * 0.03125 - 15;
    case 5: return i % 3 ? -INFINITY : i % 7;
    case 6: return -INFINITY;
    case 7: return i == 77 || i == 1200 ? INFINITY : i % 5;
    default: return i == 1300 ? NAN : i % 5;
    }
}

/* The logarithm of the sum of exp(x - m) for the scores x of a row and their maximum m; an element
 * equal to m counts as 1. */
static double log_of_sum(int row, double *m)
{
    double sum = 0;
    *m = -INFINITY;
    for (int i = 0; i < SCORES; i++)
        *m = score(i, row) > *m || isnan(score(i, row)) ? score(i, row) : *m;
    for (int i = 0; i < SCORES; i++)
        sum += score(i, row) == *m ? 1 : exp(score(i, row) - *m);
    return log(sum);
}

/* Softmax, logsoftmax and the loss of rows longer than a group, for scores in any order. */
TEST_IN_SCOPE(sums_of_exponentials)
{
    static float x[KINDS * SCORES];
    int32_t labels[KINDS];
    double loss = 0;
    for (int i = 0; i < KINDS * SCORES; i++) x[i] = (float)score(i % SCORES, i / SCORES);
    for (int r = 0; r < KINDS; r++) labels[r] = 31 * r;
    wb_tensor *scores = wb_from(x, WB_F32, 2, (int64_t[]){KINDS, SCORES});
    wb_tensor *classes = wb_from(labels, WB_I32, 1, (int64_t[]){KINDS});
    wb_tensor *soft = wb_softmax(scores), *logs = wb_logsoftmax(scores), *finite, *mean, *g;
    WORKS(wb_eval(scores, classes, soft, logs));
    MADE(finite = wb_slice(scores, 0, 0, 5));
    mean = wb_logitcrossentropy(finite, wb_slice(classes, 0, 0, 5));
    MADE(g = wb_gradient(mean, finite));
    WORKS(wb_eval(mean, g));
    const float *p = wb_data(soft), *l = wb_data(logs), *slope = wb_data(g);
    for (int r = 0; r < KINDS; r++) {
        double m;
        const double log_sum = log_of_sum(r, &m);
        for (int i = 0; i < SCORES; i++) {
            const int at = r * SCORES + i;
            const double want = (score(i, r) == m ? 0 : score(i, r) - m) - log_sum;
            const bool good = isnan(want) ? isnan(l[at]) && isnan(p[at])
                                          : l[at] == want || fabs(l[at] - want) <=
                                                2e-6 + 3e-7 * fabs(want);
            if (!good || fabs(p[at] - exp(want)) > 1e-6 * exp(want) + 1e-37)
                fail_msg("row %d, score %d: %.9g and %.9g, not %.9g and %.9g", r, i, l[at], p[at],
                         want, exp(want));
            if (r >= 5) continue;
            if (i == labels[r]) loss -= want / 5;
            const double slope_want = (exp(want) - (i == labels[r])) / 5;
            if (fabs(slope[at] - slope_want) > 1e-6 * fabs(slope_want) + 1e-8)
                fail_msg("row %d, score %d: the slope is %.9g, not %.9g", r, i, slope[at],
                         slope_want);
        }
    }
    assert_true(fabs(wb_item(mean) - loss) <= 1e-6 * loss);
}

/* ---- values computed again ------------------------------------------------------------------- */

/* Evaluates a normalised sum of x and y twice, with the sum evaluated before or not.  Two kernels
 * read the normalised values, which a GPU computes again from the sum that it stores. */
static void normalised_sum(wb_dtype t, int64_t rows, int64_t columns)
{
    wb_tensor *x[2], *w, *sum, *first[2], *second[2];
    wb_memory need[2];
    MADE(w = wb_cos(wb_arange(columns * columns, WB_F32)));
    MADE(w = wb_reshape(wb_astype(w, t), columns, columns));
    for (int i = 0; i < 2; i++) {
        x[i] = wb_sin(wb_mul(wb_arange(rows * columns, WB_F32), wb_scalar(1.7 + i)));
        MADE(x[i] = wb_reshape(wb_astype(x[i], t), rows, columns));
    }
    WORKS(wb_eval(w, x[0], x[1]));
    for (int i = 0; i < 2; i++) {
        MADE(sum = wb_add(x[0], x[1]));
        if (i) WORKS(wb_eval(sum));
        wb_tensor *wide = wb_astype(sum, WB_F32);
        wb_tensor *centred = wb_sub(wide, wb_mean(wide, .axes = WB_INTS(1), .keep = true));
        wb_tensor *spread = wb_mean(wb_square(centred), .axes = WB_INTS(1), .keep = true);
        wb_tensor *scaled = wb_mul(centred, wb_rsqrt(wb_add(spread, wb_scalar(1e-5))));
        first[i] = wb_astype(scaled, t);
        second[i] = wb_mul(scaled, wb_astype(wb_matmul(first[i], w), WB_F32));
        MADE(second[i]);
        wb_tensor *const results[] = {first[i], second[i], sum};
        WORKS(wb_estimate_memory(3 - i, results, &need[i]));
        WORKS(wb_eval_array(3 - i, results));
    }
    if (compiles_kernels())             /* `scaled` is not stored */
        assert_int_equal(need[0].arena, need[1].arena);
    for (int64_t r = 0; r < rows && compiles_kernels(); r++)
        for (int64_t c = 0; c < columns; c++)
            if (wb_at(first[0], r, c) != wb_at(first[1], r, c) ||
                wb_at(second[0], r, c) != wb_at(second[1], r, c))
                fail_msg("%s, row %d, column %d: %.9g and %.9g, not %.9g and %.9g",
                         wb_dtype_name(t), (int)r, (int)c, wb_at(first[0], r, c),
                         wb_at(second[0], r, c), wb_at(first[1], r, c), wb_at(second[1], r, c));
}

/* The gradient of logsumexp at infinities is its limit: rows of -Inf have none, several +Inf share
 * it; over several axes too, and for halves. */
TEST_IN_SCOPE(slopes_of_sums_of_exponentials)
{
    const float inf = INFINITY;
    const float x[] = {0, 1, -inf,  -inf, -inf, -inf,  1, inf, 2,  inf, -inf, inf,  -inf, 3, -inf};
    const double e = exp(1) / (1 + exp(1));
    const double want[] = {1 - e, e, 0,  0, 0, 0,  0, 1, 0,  0.5, 0, 0.5,  0, 1, 0};
    const wb_dtype all[] = {WB_F32, widest_float(), WB_F16};
    for (size_t k = 0; k < WB__COUNT(all); k++) {
        wb_tensor *from = wb_from(x, WB_F32, 3, (int64_t[]){5, 1, 3}), *g;
        wb_tensor *v = wb_variable(wb_astype(from, all[k]));
        wb_tensor *y = wb_logsumexp(v, .axes = WB_INTS(2, 1));
        MADE(g = wb_gradient(wb_sum(wb_where(wb_isfinite(y), y, 0)), v));
        wb_tensor *whole = wb_gradient(wb_sum(y), v);
        const double tol = all[k] == WB_F16 ? 1e-3 : 1e-6;
        for (int i = 0; i < 15; i++) {
            const double masked = i / 3 == 0 || i / 3 == 4 ? want[i] : 0;
            if (!(fabs(wb_at(g, i / 3, 0, i % 3) - masked) < tol) ||
                !(fabs(wb_at(whole, i / 3, 0, i % 3) - want[i]) < tol))
                fail_msg("%s %d: %g and %g, not %g", wb_dtype_name(all[k]), i,
                         wb_at(g, i / 3, 0, i % 3), wb_at(whole, i / 3, 0, i % 3), want[i]);
        }
        assert_true(wb_at(y, 1) == -INFINITY && wb_at(y, 3) == INFINITY && wb_at(y, 4) == 3);
    }
    /* the second derivative of log(e^a + e^b) by a is p (1 - p) */
    const wb_dtype wide = widest_float();
    wb_tensor *from = wb_from((float[]){0.3f, -0.4f}, WB_F32, 1, (int64_t[]){2}), *g, *h;
    wb_tensor *v = wb_variable(wb_astype(from, wide));
    MADE(g = wb_gradient(wb_logsumexp(v), v));
    MADE(h = wb_gradient(wb_slice(g, 0, 0, 1), v));
    const double p = 1 / (1 + exp(-(double)0.3f - (double)0.4f));
    const double tol = wide == WB_F64 ? 1e-12 : 1e-6;
    assert_true(fabs(wb_at(h, 0) - p * (1 - p)) < tol && fabs(wb_at(h, 1) + p * (1 - p)) < tol);
}

/* A kernel that rounds a value and reads it by a cast goes on with the rounded number, from which
 * other kernels compute values again. */
TEST_IN_SCOPE(values_computed_again)
{
    for (int i = 0; i < 2; i++) {
        normalised_sum(i ? WB_F16 : WB_BF16, 30, 70);
        normalised_sum(i ? WB_F16 : WB_BF16, 7, 1);
        normalised_sum(i ? WB_F16 : WB_BF16, 1, 7);
        normalised_sum(i ? WB_F16 : WB_BF16, 0, 7);
    }
}

/* The gradient goes to the maximum of each row: a kernel that computes x * u again has a more exact
 * number than the maximum that another one has rounded and stored. */
TEST_IN_SCOPE(maxima_of_rounded_values)
{
    enum { ROWS = 2, COLUMNS = 8 };
    for (int k = 0; k < 2; k++) {
        const wb_dtype dtype = k ? WB_F16 : WB_BF16;
        const wb_device *cpu = wb_cpu_device(), *d = wb_default_device();
        float a[ROWS * COLUMNS], b[ROWS * COLUMNS];
        const float *slope[2];
        for (int i = 0; i < ROWS * COLUMNS; i++) a[i] = .1f + .137f * (float)(i * 7 % 16);
        for (int i = 0; i < ROWS * COLUMNS; i++) b[i] = .3f + .217f * (float)(i * 5 % 13);
        for (int i = 0; i < 2; i++) {
            wb_tensor *from = wb_from(a, WB_F32, 2, (int64_t[]){ROWS, COLUMNS});
            wb_tensor *by = wb_from(b, WB_F32, 2, (int64_t[]){ROWS, COLUMNS});
            wb_tensor *x = wb_variable(wb_to(wb_astype(from, dtype), i ? d : cpu));
            wb_tensor *y = wb_mul(x, wb_to(wb_astype(by, dtype), i ? d : cpu)), *g;
            wb_tensor *z = wb_mul(y, wb_max(y, .axes = WB_INTS(1), .keep = true));
            wb_tensor *q = wb_mean(wb_square(wb_sub(z, wb_mean(z))));
            MADE(g = wb_gradient(wb_astype(q, WB_F32), x));
            MADE(slope[i] = wb_data(wb_cpu(wb_astype(g, WB_F32))));
        }
        for (int i = 0; i < ROWS * COLUMNS; i++)
            if (!(fabsf(slope[1][i] - slope[0][i]) <= 0.05f * fabsf(slope[0][i]) + 0.05f))
                fail_msg("%s, element %d: %g, not %g", wb_dtype_name(dtype), i,
                         (double)slope[1][i], (double)slope[0][i]);
    }
}

/* 1 - y * y of a y near 1 that is rounded to bf16 would be off by a tenth: the slope is that of the
 * more exact y. */
TEST_IN_SCOPE(slopes_of_large_values)
{
    enum { N = 32 };
    float large[N * N], ones[N * N];
    for (int i = 0; i < N * N; i++) large[i] = 1.5f + (float)(i % 64) / 64;
    for (int i = 0; i < N * N; i++) ones[i] = i % N == i / N;
    wb_tensor *from = wb_from(large, WB_F32, 2, (int64_t[]){N, N});
    wb_tensor *by = wb_from(ones, WB_F32, 2, (int64_t[]){N, N});
    wb_tensor *x = wb_variable(wb_astype(from, WB_BF16)), *w = wb_astype(by, WB_BF16), *g;
    WORKS(wb_eval(x, w));
    wb_tensor *y = wb_tanh(x);
    MADE(g = wb_gradient(wb_sum(wb_square(wb_astype(wb_matmul(y, w), WB_F32))), x));
    WORKS(wb_eval(y, g));
    const float *slope = wb_data(wb_cpu(wb_astype(g, WB_F32)));
    MADE(slope);
    for (int i = 0; i < N * N; i++) {
        const double exact = tanh(1.5 + (i % 64) / 64.0), want = 2 * exact * (1 - exact * exact);
        if (!(fabs(slope[i] - want) <= 0.02 * want))
            fail_msg("element %d: %g, not %g", i, (double)slope[i], want);
    }
}

int main(int argc, char **argv) { return run_with_options(argc, argv); }
