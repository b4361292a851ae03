/* Sequences, slices and classes of labels.  The numbers are those of the documentation of
 * MLUtils.jl and OneHotArrays.jl, or follow from the formulas. */
#include "test.h"

#include "base/base.h"
#include "weber.h"

#include <limits.h>

static wb_tensor *floats(int64_t n, const float *x) { return wb_from(x, WB_F32, 1, &n); }

static void expect(wb_tensor *x, const char *shape, int n, const double *values)
{
    assert_non_null(x);
    assert_string_equal(wb_describe(x), shape);
    wb_tensor *flat = wb_reshape(wb_astype(x, WB_F64), -1);
    assert_int_equal(wb_size(flat), n);
    for (int i = 0; i < n; i++) assert_float_equal(wb_at(flat, i), values[i], 1e-6);
}
#define EXPECT(x, shape, ...)                                                         \
    expect((x), (shape), (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)),     \
           (double[]){__VA_ARGS__})

TEST_IN_SCOPE(sequences)
{
    wb_tensor *lengths, *x[] = {floats(3, (float[]){1, 2, 3}), floats(2, (float[]){10, 20})};
    EXPECT(wb_batch_sequence(2, x, 0, &lengths), "[2,3] f32", 1, 2, 3, 10, 20, 0);
    EXPECT(lengths, "[2] i32", 3, 2);
    wb_tensor *wide[] = {wb_ones(1, 2), wb_full(2, 3, 2), wb_ones(0, 2)};
    EXPECT(wb_batch_sequence(3, wide, -1, NULL), "[3,3,2] f32", 1, 1, -1, -1, -1, -1, 2, 2, 2, 2, 2,
           2, -1, -1, -1, -1, -1, -1);
    wb_tensor *v = wb_variable(x[1]), *both[] = {x[0], v};
    wb_tensor *slope = wb_gradient(wb_sum(wb_square(wb_batch_sequence(2, both, 5, NULL))), v);
    EXPECT(slope, "[2] f32", 20, 40);
    assert_null(wb_batch_sequence(0, x, 0, NULL));
    assert_null(wb_batch_sequence(2, (wb_tensor *[]){x[0], wide[0]}, 0, NULL));
    REFUSED(wb_batch_sequence(2, (wb_tensor *[]){x[0], NULL}, 0, &lengths), WB_ERROR_ARGUMENT,
            "batch_sequence");
    assert_null(lengths);
    wb_tensor *long_one = wb_zeros((int64_t)INT32_MAX + 1, 0);      /* no elements */
    assert_non_null(long_one);
    REFUSED(wb_batch_sequence(2, (wb_tensor *[]){wb_zeros(1, 0), long_one}, 0, &lengths),
            WB_ERROR_SHAPE, "sequence 1 has 2147483648", "2147483647");
    assert_null(lengths);
    EXPECT(wb_rpad_constant(x[1], 0, 4, -1), "[4] f32", 10, 20, -1, -1);
    assert_ptr_equal(wb_rpad_constant(x[0], 0, 2, 7), x[0]);
}

/* An axis that is not there is named, and so is a scalar. */
TEST_IN_SCOPE(no_such_axis)
{
    wb_tensor *x = wb_ones(2, 3), *parts[3], *scalar = wb_sum(x);
    const int axes[] = {2, 7, -3, INT_MIN};
    for (size_t i = 0; i < WB__COUNT(axes); i++) {
        REFUSED(wb_rpad_constant(x, axes[i], 5, 0), WB_ERROR_SHAPE, "rpad_constant", "no axis",
                "[2,3] f32");
        REFUSED(wb_dim(x, axes[i]) != -1, WB_ERROR_SHAPE, "dim", "no axis", "[2,3] f32");
        REFUSED(wb_chunk(x, axes[i], 2, parts) != -1, WB_ERROR_SHAPE, "chunk", "no axis");
        REFUSED(wb_unstack(x, axes[i], 3, parts) != -1, WB_ERROR_SHAPE, "unstack", "no axis");
    }
    REFUSED(wb_batch_sequence(1, &scalar, 0, NULL), WB_ERROR_SHAPE, "batch_sequence", "scalar");
    wb_clear_error();
    EXPECT(wb_rpad_constant(x, -1, 4, 2), "[2,4] f32", 1, 1, 1, 2, 1, 1, 1, 2);
}

TEST_IN_SCOPE(rescaled)
{
    wb_tensor *x = wb_from((float[]){1, 5, 3, -2, 2, 6}, WB_F32, 2, (int64_t[]){2, 3});
    EXPECT(wb_rescale(x, 1, 0), "[2,3] f32", 0, 1, 0.5, 0, 0.5, 1);
    EXPECT(wb_rescale(x, 0, 1), "[2,3] f32", 0.75, 0.75, 0, 0, 0, 0.75);
    assert_null(wb_rescale(x, 0, -1));
    assert_null(wb_rescale(x, 2, 0));
}

TEST_IN_SCOPE(slices)
{
    wb_tensor *ten = wb_astype(wb_arange(10, WB_I32), WB_F32), *part[10];
    assert_int_equal(wb_chunk(ten, 0, 3, part), 3);
    EXPECT(part[0], "[4] f32", 0, 1, 2, 3);
    EXPECT(part[2], "[2] f32", 8, 9);
    assert_int_equal(wb_chunk(ten, 0, 6, part), 5);
    EXPECT(part[4], "[2] f32", 8, 9);
    assert_int_equal(wb_chunk(ten, 0, 0, part), -1);
    wb_tensor *x = wb_reshape(ten, 2, 5);
    assert_int_equal(wb_unstack(x, 1, 10, part), 5);
    EXPECT(part[3], "[2] f32", 3, 8);
    assert_int_equal(wb_unstack(x, -2, 10, part), 2);
    EXPECT(part[1], "[5] f32", 5, 6, 7, 8, 9);
    assert_int_equal(wb_unstack(x, 1, 4, part), -1);
    FAILED(WB_ERROR_ARGUMENT, "size 5", "4");
}

TEST_IN_SCOPE(classes)
{
    static const char *const labels[] = {"cat", "dog", "fox"};
    static const char *const words[] = {"dog", "cow", "cat"};
    EXPECT(wb_word_classes(3, words, 3, labels, "fox"), "[3] i32", 1, 2, 0);
    REFUSED(wb_word_classes(3, words, 3, labels, NULL), WB_ERROR_ARGUMENT, "word 1", "cow");
    assert_null(wb_word_classes(3, words, 3, labels, "cow"));
    assert_null(wb_word_classes(1, (const char *[]){NULL}, 3, labels, "fox"));
    wb_tensor *found = wb_word_classes(1, words, 3, labels, NULL);
    EXPECT(wb_onehotbatch(found, 3), "[1,3] f32", 0, 1, 0);
    static const double numbers[] = {-1, 10, 0.5};
    wb_tensor *x = wb_from((float[]){10, 0.5f, -1, 7}, WB_F32, 2, (int64_t[]){2, 2});
    EXPECT(wb_number_classes(x, 3, numbers, 1), "[2,2] i32", 1, 2, 0, 1);
    REFUSED(wb_number_classes(x, 3, numbers, -1), WB_ERROR_ARGUMENT, "element 3", "7");
    assert_null(wb_number_classes(x, 3, numbers, 3));
    wb_tensor *list = wb_from(numbers, WB_F64, 1, (int64_t[]){3});
    wb_tensor *rows = wb_onehotbatch(wb_number_classes(x, 3, numbers, 0), 3);
    wb_tensor *back = wb_take(list, wb_onecold(rows));
    EXPECT(back, "[2,2] f64", 10, 0.5, -1, -1);
}

/* Labels in no order, with a second one of each word, against the place that the formula gives. */
TEST_IN_SCOPE(classes_of_many_labels)
{
    enum { N = 20011, STEP = 7919 };            /* N is prime: k * STEP mod N is a permutation */
    static char text[N][8];
    static const char *labels[2 * N], *words[N];
    static double numbers[2 * N], x[N];
    static int32_t place[N];
    const int64_t n = N;
    for (int64_t k = 0; k < N; k++) {
        const int64_t v = k * STEP % N;
        snprintf(text[v], sizeof text[v], "w%d", (int)v);
        labels[k] = labels[2 * N - 1 - k] = text[v];
        numbers[k] = numbers[2 * N - 1 - k] = (double)v / 8 - 1000;
        place[v] = (int32_t)k;
    }
    for (int64_t v = 0; v < N; v++) {
        words[v] = text[v];
        x[v] = (double)v / 8 - 1000;
    }
    const int32_t *found = wb_data(wb_word_classes(n, words, 2 * n, labels, NULL));
    assert_non_null(found);
    assert_memory_equal(found, place, sizeof place);
    found = wb_data(wb_number_classes(wb_from(x, WB_F64, 1, &n), 2 * n, numbers, -1));
    assert_non_null(found);
    assert_memory_equal(found, place, sizeof place);
    EXPECT(wb_word_classes(3, (const char *[]){"w", "w20011", "x"}, n, labels, text[STEP]),
           "[3] i32", 1, 1, 1);
    const double odd[] = {0, NAN, 5, -0.0, -INFINITY, INFINITY, 5};
    wb_tensor *y = wb_from((double[]){5, -0.0, INFINITY, NAN, -INFINITY, 4}, WB_F64, 1,
                           (int64_t[]){6});
    EXPECT(wb_number_classes(y, 7, odd, 1), "[6] i32", 2, 0, 5, 1, 4, 1);
    REFUSED(wb_number_classes(y, 7, odd, -1), WB_ERROR_ARGUMENT, "element 3", "nan", "7 labels");
    const double gaps[] = {5, NAN, 3, NAN, 1, NAN, 4, 2, NAN, 0};
    EXPECT(wb_number_classes(wb_arange(6, WB_I32), 10, gaps, -1), "[6] i32", 9, 4, 7, 2, 6, 0);
}

TEST(every_allocation_may_fail)
{
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        wb_tensor *x[] = {floats(3, (float[]){1, 2, 3}), floats(2, (float[]){10, 20})}, *lengths;
        wb__alloc_fail_at(n);
        wb_tensor *batch = wb_batch_sequence(2, x, 0, &lengths);
        wb_tensor *found = batch ? wb_number_classes(x[1], 2, (double[]){20, 10}, -1) : NULL;
        const char *word = "a";
        if (found) found = wb_word_classes(1, &word, 1, &word, NULL);
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        assert_true(finished == (found != NULL));
    }
}
