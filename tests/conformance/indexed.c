/* Elements by index, scatter, sorting: numbers of PyTorch 2.15, gradients against differences;
 * long rows, views, ties, NaN and many duplicates against plain loops. */
#include "literal.h"

static const double counts[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const double mixed[12] = {5, 2, 9, 0.5, 1, 7, 3, 8, 6, 4, 2.5, 10};
static const double ties[12] = {3, 1, 2, 3, 1, 2, 7, 7, 0, 5, 5, 7};
static const double ties3[12] = {1, 2, 3, 4, 0, 1, 2, 1, 3, 2, 1, 2};

static wb_tensor *ints(int n, const int32_t *v) { return wb_from(v, WB_I32, 1, (int64_t[]){n}); }
#define INTS(...) \
    ints((int)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)), (int32_t[]){__VA_ARGS__})
#define ALONG wb_reshape(INTS(1, 1, 0, 3, 3, 2, 1, 0, 0, 0, 0, 0), 3, 4)
#define ROWS wb_flip(wb_add(wb_mul(x, wb_scalar(0.5)), wb_scalar(1)), 0)

CASE(taken, wb_take(x, INTS(3, 0, 0), 1))
CASE(taken_matrix, wb_take(x, wb_reshape(INTS(3, 0, 0, 2), 2, 2), -1))
CASE(taken_first, wb_take(x, INTS(2, 0), 0))
CASE(along_columns, wb_take_along(x, ALONG, 1))
CASE(along_rows, wb_take_along(x, wb_reshape(INTS(2, 0, 1, 1), 1, 4), 0))
CASE(along_broadcast, wb_take_along(x, wb_reshape(INTS(2, 0), 1, 2), 1))
CASE(add, wb_scatter(x, INTS(2, 0, 2), ROWS))
CASE(add_others, wb_scatter(x, INTS(2, 0, 2), ROWS, .exclude_self = true))
CASE(mul, wb_scatter(x, INTS(2, 0, 2), ROWS, .reduce = WB_SCATTER_MUL))
CASE(mul_others, wb_scatter(x, INTS(2, 0, 2), ROWS, .reduce = WB_SCATTER_MUL, .exclude_self = true))
CASE(mul_zeros, wb_scatter(wb_add(wb_mul(x, wb_scalar(0)), wb_scalar(1)), INTS(1, 1, 0),
     wb_sub(x, wb_scalar(2.5)), .reduce = WB_SCATTER_MUL))
CASE(max, wb_scatter(x, INTS(2, 0, 2), ROWS, .reduce = WB_SCATTER_MAX))
CASE(max_others, wb_scatter(x, INTS(2, 0, 2), ROWS, .reduce = WB_SCATTER_MAX, .exclude_self = true))
CASE(min, wb_scatter(x, INTS(2, 0, 2), ROWS, .reduce = WB_SCATTER_MIN))
CASE(mean, wb_scatter(x, INTS(2, 0, 2), ROWS, .reduce = WB_SCATTER_MEAN))
CASE(mean_others, wb_scatter(x, INTS(2, 0, 2), ROWS, .reduce = WB_SCATTER_MEAN,
     .exclude_self = true))
CASE(set, wb_scatter(x, INTS(1, 0, 1), wb_neg(wb_neg(x)), .reduce = WB_SCATTER_SET))
CASE(whole_max, wb_scatter(x, INTS(2, 0, 2), wb_flip(x, 0), .reduce = WB_SCATTER_MAX))
CASE(whole_mul, wb_scatter(x, INTS(2, 0, 2), wb_flip(x, 0), .reduce = WB_SCATTER_MUL))
CASE(along_add, wb_scatter_along(x, ALONG, ROWS, 1))
CASE(along_max, wb_scatter_along(x, ALONG, ROWS, 1, .reduce = WB_SCATTER_MAX))
CASE(index_add, wb_scatter_along(x, wb_reshape(INTS(3, 1, 3, 1), 1, 4), ROWS, 1))
CASE(sorted, wb_sort(x, 1))
CASE(sorted_rows, wb_sort(x, 0, .descending = true))
CASE(order, wb_argsort(x, -1))
CASE(order_down, wb_argsort(x, -1, .descending = true))
CASE(order_rows, wb_argsort(x, 0))
CASE(greatest, wb_topk(x, 2, 1, NULL))
CASE(least, wb_topk(x, 2, 0, NULL, .smallest = true))
CASE(places, wb_searchsorted(wb_sort(wb_reshape(x, -1), 0), x))
CASE(places_right, wb_searchsorted(wb_sort(x, 1), wb_slice(x, 1, 1, 4), .right = true))

static const literal rows[] = {
    {"taken", taken, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 3},
     VALUES(4, 1, 1, 8, 5, 5, 12, 9, 9)},
    {"taken_matrix", taken_matrix, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 2, 2},
     VALUES(4, 1, 1, 3, 8, 5, 5, 7, 12, 9, 9, 11)},
    {"taken_first", taken_first, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {2, 4},
     VALUES(9, 10, 11, 12, 1, 2, 3, 4)},
    {"along_columns", along_columns, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(2, 2, 1, 4, 8, 7, 6, 5, 9, 9, 9, 9)},
    {"along_rows", along_rows, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {1, 4},
     VALUES(9, 2, 7, 8)},
    {"along_broadcast", along_broadcast, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 2},
     VALUES(3, 1, 7, 5, 11, 9)},
    {"add", add, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(6.5, 6.5, 11.5, 5.5, 1, 7, 3, 8, 13.5, 9, 10.25, 17.25)},
    {"add_others", add_others, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(1.5, 4.5, 2.5, 5, 1, 7, 3, 8, 7.5, 5, 7.75, 7.25)},
    {"mul", mul, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(7.5, 9, 22.5, 2.5, 1, 7, 3, 8, 84, 24, 30.9375, 75)},
    {"mul_others", mul_others, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(1.5, 4.5, 2.5, 5, 1, 7, 3, 8, 14, 6, 12.375, 7.5)},
    {"mul_zeros", mul_zeros, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(3.5, 1.5, 0, 7.5, -3.75, -2.25, 3.25, -11, 1, 1, 1, 1)},
    {"max", max, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(5, 4.5, 9, 5, 1, 7, 3, 8, 6, 4, 5.5, 10)},
    {"max_others", max_others, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(1.5, 4.5, 2.5, 5, 1, 7, 3, 8, 4, 3, 5.5, 6)},
    {"min", min, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(1.5, 2, 2.5, 0.5, 1, 7, 3, 8, 3.5, 2, 2.25, 1.25)},
    {"mean", mean, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(3.25, 3.25, 5.75, 2.75, 1, 7, 3, 8, 4.5, 3, 3.41666666667, 5.75)},
    {"mean_others", mean_others, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(1.5, 4.5, 2.5, 5, 1, 7, 3, 8, 3.75, 2.5, 3.875, 3.625)},
    {"set", set, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(5, 6, 7, 8, 9, 10, 11, 12, 9, 10, 11, 12)},
    {"whole_max", whole_max, counts, {3, 4}, FLOATS | INTEGERS, {3, 4},
     VALUES(5, 6, 7, 8, 5, 6, 7, 8, 9, 10, 11, 12)},
    {"whole_mul", whole_mul, ties3, {3, 4}, FLOATS | INTEGERS, {3, 4},
     VALUES(0, 2, 6, 4, 0, 1, 2, 1, 9, 8, 3, 16)},
    {"along_add", along_add, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(7.25, 9, 9, 6.5, 6, 9.5, 7.5, 9.5, 18.25, 4, 2.5, 10)},
    {"along_max", along_max, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(5, 4, 9, 6, 5, 7, 4.5, 8, 6, 4, 2.5, 10)},
    {"index_add", index_add, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(5, 11, 9, 6.75, 1, 16.5, 3, 12, 6, 7.25, 2.5, 19)},
    {"sorted", sorted, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(0.5, 2, 5, 9, 1, 3, 7, 8, 2.5, 4, 6, 10)},
    {"sorted_rows", sorted_rows, mixed, {3, 4}, SMOOTH | FLOATS, {3, 4},
     VALUES(6, 7, 9, 10, 5, 4, 3, 8, 1, 2, 2.5, 0.5)},
    {"order", order, ties, {2, 6}, FLOATS | INTEGERS, {2, 6},
     VALUES(1, 4, 2, 5, 0, 3, 2, 3, 4, 0, 1, 5)},
    {"order_down", order_down, ties, {2, 6}, FLOATS | INTEGERS, {2, 6},
     VALUES(0, 3, 2, 5, 1, 4, 0, 1, 5, 3, 4, 2)},
    {"order_rows", order_rows, ties, {2, 6}, FLOATS | INTEGERS, {2, 6},
     VALUES(0, 0, 1, 0, 0, 0, 1, 1, 0, 1, 1, 1)},
    {"greatest", greatest, mixed, {3, 4}, SMOOTH | FLOATS, {3, 2},
     VALUES(9, 5, 8, 7, 10, 6)},
    {"least", least, mixed, {3, 4}, SMOOTH | FLOATS, {2, 4},
     VALUES(1, 2, 2.5, 0.5, 5, 4, 3, 8)},
    {"places", places, ties, {2, 6}, FLOATS | INTEGERS, {2, 6},
     VALUES(5, 1, 3, 5, 1, 3, 9, 9, 0, 7, 7, 9)},
    {"places_right", places_right, ties, {2, 6}, FLOATS | INTEGERS, {2, 3},
     VALUES(2, 4, 6, 6, 1, 3)},
};

TEST(values) { literal_values(rows, sizeof rows / sizeof *rows); }
TEST(gradients) { literal_gradients(rows, sizeof rows / sizeof *rows); }

/* ---- sorting --------------------------------------------------------------------------------- */

static bool precedes(double p, double q, bool down)
{
    return down ? p > q || (isnan(p) && !isnan(q)) : p < q || (!isnan(p) && isnan(q));
}

/* The place of each element in the stable order along axis 1 of [2, n, 3], by counting. */
static array ref_order(array x, bool down)
{
    array y = ref_new(x.ndim, x.dims);
    const int64_t n = x.dims[1];
    for (int64_t row = 0; row < 6; row++) {
        const double *v = x.at + row / 3 * n * 3 + row % 3;
        double *to = y.at + row / 3 * n * 3 + row % 3;
        for (int64_t i = 0; i < n; i++) {
            int64_t before = 0;
            for (int64_t j = 0; j < n; j++)
                before += precedes(v[3 * j], v[3 * i], down) ||
                          (j < i && !precedes(v[3 * i], v[3 * j], down));
            to[3 * before] = (double)i;
        }
    }
    return y;
}

TEST(orders)
{
    static const int64_t sizes[] = {1, 2, 31, 33, 64, 100, 193, 700};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (wb_dtype t = WB_F32; t < WB_BOOL; t++) IN_SCOPE {
            if (!has_dtype(t) || (s + t) % (size_t)fewer()) continue;
            array x = draw_array(3, (int64_t[]){2, sizes[s], 3}, t > WB_BF16 ? -100 : -3,
                                 t > WB_BF16 ? 100 : 3);
            const bool down = (s + t / 2) % 2;
            if (t == WB_U8) for (int64_t i = 0; i < x.size; i++) x.at[i] = fabs(x.at[i]);
            round_to(x, t);
            for (int64_t i = 0; i < x.size && t <= WB_BF16; i += 7)
                x.at[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? -0.0 : i % 2 ? INFINITY : -INFINITY;
            for (int64_t i = 0; i < x.size && t <= WB_BF16; i += 11) x.at[i] = 0;
            wb_tensor *y = wb_argsort(tensor_of(x, t, (int)(s + t) % VIEWS), 1, .descending = down);
            check(y, ref_order(x, down), 0, 0, "order of %d %s", (int)sizes[s], wb_dtype_name(t));
            ref_forget();
        }
}

TEST_IN_SCOPE(greatest_of_many)
{
    enum { N = 5000 };
    static float v[N];
    for (int i = 0; i < N; i++) v[i] = (float)(i * 7919 % N);
    wb_tensor *x = wb_from(v, WB_F32, 1, (int64_t[]){N}), *index, *y;
    MADE(y = wb_topk(x, 3, 0, &index));
    for (int i = 0; i < 3; i++) {
        assert_true(wb_at(y, i) == N - 1 - i);
        assert_true(v[(int)wb_at(index, i)] == (float)(N - 1 - i));
    }
    assert_int_equal(wb_dtype_of(index), WB_I32);
    assert_true(wb_at(wb_sort(x, 0), 1234) == 1234);
    assert_int_equal(wb_size(wb_topk(x, 0, 0, &index)), 0);
    assert_int_equal(wb_size(wb_sort(wb_zeros(0, 4), 0)), 0);
    assert_int_equal(wb_size(wb_argsort(wb_zeros(3, 0), 0)), 0);
}

static void expect_places(wb_tensor *y, const int *values)
{
    assert_string_equal(wb_describe(wb_cpu(y)), "[2,4] i32");
    for (int i = 0; i < 8; i++) assert_int_equal((int)wb_at(y, i / 4, i % 4), values[i]);
}

/* NaN is the greatest, as in numpy.searchsorted. */
TEST_IN_SCOPE(places_of_nan)
{
    wb_tensor *s = wb_from((float[]){-2, 0.5f, 0.5f, 3, NAN, 1, 2, NAN, NAN, NAN}, WB_F32, 2,
                           (int64_t[]){2, 5});
    wb_tensor *x = wb_from((float[]){0.5f, NAN, -9, 4, NAN, 2, 3, 0}, WB_F32, 2,
                           (int64_t[]){2, 4});
    expect_places(wb_searchsorted(s, x), (int[]){1, 4, 0, 4, 2, 1, 2, 0});
    expect_places(wb_searchsorted(s, x, .right = true), (int[]){3, 5, 0, 4, 5, 2, 2, 0});
    wb_tensor *none = wb_searchsorted(wb_zeros(0), x);
    expect_places(none, (int[8]){0});
}

/* ---- scatter --------------------------------------------------------------------------------- */

/* Many rows with few indices, some out of range, against loops. */
TEST(many_rows)
{
    enum { N = 9, MANY = 1900, W = 5 };
    static const wb_scatter_reduce reduce[] = {WB_SCATTER_ADD, WB_SCATTER_MAX, WB_SCATTER_MIN,
                                               WB_SCATTER_SET, WB_SCATTER_MEAN};
    for (size_t k = 0; k < 5; k++)
        for (wb_dtype t = WB_F32; t <= WB_I64; t++) IN_SCOPE {
            if (!has_dtype(t) || (k + t) % (size_t)fewer()) continue;
            if (t > WB_BF16 && reduce[k] == WB_SCATTER_MEAN) continue;
            /* a GPU sets few rows otherwise than many */
            const int m = k == 3 && t % 2 ? MANY : 700;
            array x = draw_array(2, (int64_t[]){N, W}, 0, 3), y = ref_new(2, x.dims);
            array rows_ = draw_array(2, (int64_t[]){m, W}, 0, 3);
            array index = ref_new(1, (int64_t[]){m});
            double count[N] = {0};
            round_to(x, t);
            round_to(rows_, t);
            memcpy(y.at, x.at, sizeof(double) * N * W);
            for (int i = 0; i < m; i++) {
                const int at = (int)(index.at[i] = (double)draw_int(-1, N)), in = at >= 0 && at < N;
                if (in) count[at]++;
                for (int j = 0; j < W && in; j++) {
                    double *to = y.at + at * W + j, v = rows_.at[i * W + j];
                    *to = k == 0 || k == 4 ? *to + v : k == 1 ? fmax(*to, v)
                          : k == 2 ? fmin(*to, v) : v;
                }
            }
            for (int i = 0; i < N * W; i++) {
                if (k == 4) y.at[i] /= count[i / W] + 1;
                if (t == WB_U8) y.at[i] = (double)(uint8_t)(int64_t)y.at[i];
                if (t == WB_I8) y.at[i] = (double)(int8_t)(int64_t)y.at[i];
            }
            wb_tensor *got = wb_scatter(tensor_of(x, t, 0), tensor_of(index, WB_I32, 0),
                                        tensor_of(rows_, t, 3), .reduce = reduce[k]);
            check(got, y, 4 * tolerance(t), 0, "scatter %d of %s", (int)k, wb_dtype_name(t));
            ref_forget();
        }
}

TEST_IN_SCOPE(corners)
{
    wb_tensor *x = wb_reshape(wb_arange(6, WB_F32), 2, 3), *y, *slope;
    wb_tensor *far = wb_reshape(INTS(0, 3, -1, 2), 2, 2);
    MADE(y = wb_take_along(x, far, 1));
    MADE(slope = wb_gradient(wb_sum(wb_mul(y, y)), x));
    assert_true(wb_at(y, 0, 1) == 0 && wb_at(y, 1, 0) == 0 && wb_at(y, 1, 1) == 5);
    assert_true(wb_at(slope, 1, 2) == 10 && wb_at(slope, 1, 1) == 0);
    MADE(y = wb_take(x, far, 1));
    assert_true(wb_ndim(y) == 3 && wb_at(y, 1, 0, 0) == 3 && wb_at(y, 1, 1, 0) == 0);
    MADE(y = wb_scatter(wb_full(9, 2), INTS(5, -1), wb_ones(2), .reduce = WB_SCATTER_SET));
    assert_true(wb_at(y, 0) == 9 && wb_at(y, 1) == 9);
    MADE(y = wb_scatter(x, wb_reshape(INTS(1, 1), 1, 2), wb_ones(1, 2, 3)));
    assert_true(wb_at(y, 1, 0) == 5 && wb_at(y, 0, 0) == 0);
    wb_tensor *index = wb_from((uint8_t[]){0, 0}, WB_U8, 1, (int64_t[]){2});
    MADE(y = wb_scatter(wb_zeros(1), index, wb_ones(2), .reduce = WB_SCATTER_MAX));
    assert_true(wb_item(y) == 1);
    wb_tensor *v = wb_ones(2);
    MADE(slope = wb_gradient(wb_sum(wb_scatter(wb_zeros(1), index, v,
                                               .reduce = WB_SCATTER_MAX)), v));
    assert_true(wb_at(slope, 0) == 0.5 && wb_at(slope, 1) == 0.5);
    /* all of an empty index, and no rows to scatter into */
    assert_int_equal(wb_size(wb_take_along(x, wb_astype(wb_zeros(2, 0), WB_I32), 1)), 0);
    MADE(y = wb_scatter(x, wb_slice(INTS(1), 0, 0, 0), wb_zeros(0, 3), .reduce = WB_SCATTER_MIN));
    assert_true(wb_at(y, 1, 2) == 5);
}

TEST_IN_SCOPE(errors)
{
    wb_tensor *x = wb_ones(2, 3), *i = INTS(0, 1), *b = wb_gt(x, wb_scalar(0)), *index = x;
    REFUSED(wb_take(x, x, 1), WB_ERROR_DTYPE, "take", "[2,3] f32");
    REFUSED(wb_take(x, i, 2), WB_ERROR_SHAPE, "take", "2");
    REFUSED(wb_take_along(x, i, 1), WB_ERROR_SHAPE, "take_along", "[2,3] f32", "[2] i32");
    REFUSED(wb_take_along(x, wb_reshape(INTS(0, 0, 0), 3, 1), 1), WB_ERROR_SHAPE, "[3,1] i32");
    REFUSED(wb_scatter(x, i, wb_ones(2, 2)), WB_ERROR_SHAPE, "scatter", "[2,2] f32", "[2,3] f32");
    REFUSED(wb_scatter(x, i, wb_astype(x, WB_I32)), WB_ERROR_DTYPE, "scatter", "[2,3] i32");
    REFUSED(wb_scatter(x, x, x), WB_ERROR_DTYPE, "scatter", "index", "[2,3] f32");
    REFUSED(wb_scatter(b, i, b), WB_ERROR_DTYPE, "WB_SCATTER_ADD", "bool");
    REFUSED(wb_scatter(i, i, i, .reduce = WB_SCATTER_MEAN), WB_ERROR_DTYPE, "WB_SCATTER_MEAN");
    REFUSED(wb_scatter(x, i, x, .reduce = (wb_scatter_reduce)6), WB_ERROR_ARGUMENT, "reduce", "6");
    REFUSED(wb_scatter_along(x, wb_reshape(i, 2, 1), x, 1), WB_ERROR_SHAPE, "scatter_along",
            "[2,1] i32");
    REFUSED(wb_sort(b, 0), WB_ERROR_DTYPE, "sort", "bool");
    REFUSED(wb_argsort(x, 2), WB_ERROR_SHAPE, "argsort", "2");
    REFUSED(wb_topk(x, 4, 1, &index), WB_ERROR_ARGUMENT, "topk", "4", "[2,3] f32");
    assert_null(index);
    REFUSED(wb_searchsorted(wb_sum(x), x), WB_ERROR_SHAPE, "searchsorted", "[] f32", "[2,3] f32");
    REFUSED(wb_searchsorted(wb_zeros(3, 5), x), WB_ERROR_SHAPE, "searchsorted", "[3,5] f32");
    REFUSED(wb_searchsorted(wb_arange(3, WB_I32), x), WB_ERROR_DTYPE, "searchsorted", "[3] i32");
    REFUSED(wb_searchsorted(b, b), WB_ERROR_DTYPE, "searchsorted", "bool");
}


int main(int argc, char **argv) { return run_with_options(argc, argv); }
