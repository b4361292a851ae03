/* Datasets: arrays, functions of the program, views, maps. */
#include "test.h"

#include "data/dataset.h"

#include <stdatomic.h>

/* Observation i is {i, i + 0.5}, its label 10 i. */
static wb_dataset *numbers(int64_t n)
{
    float *x = malloc((size_t)n * 2 * sizeof *x + 1);
    int32_t *y = malloc((size_t)n * sizeof *y + 1);
    for (int64_t i = 0; i < n; i++) {
        x[2 * i] = (float)i;
        x[2 * i + 1] = (float)i + 0.5f;
        y[i] = (int32_t)(10 * i);
    }
    wb_dataset *d =
        wb_dataset_of(wb_from(x, WB_F32, 2, (int64_t[]){n, 2}), wb_from(y, WB_I32, 1, &n));
    free(x);
    free(y);
    return d;
}

static void expect(wb_dataset *d, int n, const int *observations)
{
    assert_int_equal(wb_dataset_length(d), n);
    wb_tensor *x = wb_dataset_x(d), *y = wb_dataset_y(d);
    assert_int_equal(wb_dim(x, 0), n);
    assert_int_equal(wb_dim(x, 1), 2);
    const float *xs = wb_data(x);
    const int32_t *ys = wb_data(y);
    for (int i = 0; i < n; i++) {
        assert_true(xs[2 * i] == (float)observations[i] &&
                    xs[2 * i + 1] == (float)observations[i] + 0.5f);
        assert_int_equal(ys[i], 10 * observations[i]);
    }
}

TEST_IN_SCOPE(arrays)
{
    wb_dataset *d = numbers(4);
    expect(d, 4, (int[]){0, 1, 2, 3});
    expect(numbers(0), 0, NULL);
    d = wb_dataset_of(wb_dataset_x(d), WB_NONE);
    assert_true(wb_is_none(wb_dataset_y(d)));
    wb_tensor *five = wb_from((float[5]){0}, WB_F32, 1, (int64_t[]){5});
    REFUSED(wb_dataset_of(five, NULL), WB_ERROR_ARGUMENT, "y", "NULL");
    REFUSED(wb_dataset_of(NULL, five), WB_ERROR_ARGUMENT, "x", "NULL");
    REFUSED(wb_dataset_of(five, wb_dataset_x(d)), WB_ERROR_SHAPE, "x", "[5] f32", "y", "[4,2] f32");
    assert_null(wb_dataset_of(wb_from(&(float){1}, WB_F32, 0, NULL), WB_NONE));
    assert_null(wb_dataset_of(WB_NONE, five));
}

TEST_IN_SCOPE(parameters_are_copied)
{
    wb_tensor *v = wb_variable(wb_from((float[]){1, 2}, WB_F32, 1, (int64_t[]){2}));
    wb_dataset *d = wb_dataset_of(v, WB_NONE);
    assert_true(wb_data(v) != wb_data(wb_dataset_x(d)));
    assert_true(wb_at(wb_dataset_x(d), 1) == 2);
}

TEST_IN_SCOPE(views)
{
    wb_dataset *d = numbers(10), *a, *b;
    expect(wb_subset(d, 2, 5), 3, (int[]){2, 3, 4});
    expect(wb_subset(wb_subset(d, 2, 8), 1, 3), 2, (int[]){3, 4});
    expect(wb_subset(d, 4, 4), 0, NULL);
    assert_null(wb_subset(d, -1, 3));
    assert_null(wb_subset(d, 3, 2));
    assert_null(wb_subset(d, 3, 11));
    assert_int_equal(wb_splitobs(d, 0.3, &a, &b), 0);
    expect(a, 3, (int[]){0, 1, 2});
    expect(b, 7, (int[]){3, 4, 5, 6, 7, 8, 9});
    static const struct { int64_t n; double at; int64_t first;
    } halves[] = {
        {10, 0.25, 2}, {10, 0.35, 4}, {5, 0.5, 2},       {7, 0.5, 4},
        {7, 0, 0},     {7, 1, 7},     {1797, 0.8, 1438}, {0, 0.5, 0},
    };
    for (size_t i = 0; i < WB__COUNT(halves); i++) {
        WORKS(wb_splitobs(numbers(halves[i].n), halves[i].at, &a, &b, .shuffle = i % 2));
        assert_int_equal(wb_dataset_length(a), halves[i].first);
        assert_int_equal(wb_dataset_length(b), halves[i].n - halves[i].first);
    }
    assert_int_equal(wb_splitobs(d, 1.5, &a, &b), WB_ERROR_ARGUMENT);
    assert_true(!a && !b);
    assert_int_not_equal(wb_splitobs(NULL, 0.5, &a, &b), 0);
}

TEST_IN_SCOPE(a_shuffled_split_has_everything_once)
{
    wb_dataset *a, *b, *c, *e;
    wb_seed(3);
    wb_splitobs(numbers(100), 0.6, &a, &b, .shuffle = true);
    wb_seed(3);
    wb_splitobs(numbers(100), 0.6, &c, &e, .shuffle = true);
    int seen[100] = {0}, moved = 0;
    for (int part = 0; part < 2; part++) {
        wb_dataset *d = part ? b : a;
        const float *x = wb_data(wb_dataset_x(d)), *again = wb_data(wb_dataset_x(part ? e : c));
        for (int64_t i = 0; i < wb_dataset_length(d); i++) {
            seen[(int)x[2 * i]]++;
            moved += (int)x[2 * i] != i + 60 * part;
            assert_true(x[2 * i] == again[2 * i]);
        }
    }
    for (int i = 0; i < 100; i++) assert_int_equal(seen[i], 1);
    assert_true(moved > 80);
}

TEST(shuffles_are_even)
{
    int counts[6] = {0};
    for (uint64_t epoch = 0; epoch < 6000; epoch++) {
        uint32_t o[3];
        wb__shuffle(o, 3, 1, epoch);
        counts[2 * o[0] + (o[1] > o[2])]++;
    }
    for (int i = 0; i < 6; i++) assert_true(counts[i] > 900 && counts[i] < 1100);
}

static atomic_int calls;
static int square(int64_t i, void *x, void *y, void *ctx)
{
    atomic_fetch_add(&calls, 1);
    if (ctx && i == *(int *)ctx) return 77;
    double *to = x;
    to[0] = (double)i;
    to[1] = (double)(i * i);
    if (y) *(uint8_t *)y = i % 2;
    return 0;
}

TEST_IN_SCOPE(functions)
{
    wb_dataset_source source = {.size = sizeof source,
                                .n = 5,
                                .x_dtype = WB_F64,
                                .x_ndim = 1,
                                .x_dims = {2},
                                .y_dtype = WB_U8,
                                .get = square};
    wb_dataset *d = wb_dataset_from(&source);
    assert_string_equal(wb_describe(wb_dataset_x(d)), "[5,2] f64");
    assert_string_equal(wb_describe(wb_dataset_y(d)), "[5] u8");
    assert_true(wb_at(wb_dataset_x(wb_subset(d, 3, 5)), 1, 1) == 16);
    assert_true(wb_at(wb_dataset_y(d), 3) == 1);
    source.y_dtype = 0;
    assert_true(wb_is_none(wb_dataset_y(wb_dataset_from(&source))));
    source.ctx = &(int){3};
    d = wb_dataset_from(&source);
    REFUSED(wb_dataset_x(d), 77, "observation", "3", "77");
    source.get = NULL;
    assert_null(wb_dataset_from(&source));
    source.get = square;
    source.x_ndim = WB_MAX_DIMS;
    assert_null(wb_dataset_from(&source));
    source.x_ndim = 1;
    source.x_dims[0] = -1;
    assert_null(wb_dataset_from(&source));
    assert_null(wb_dataset_from(NULL));
}

static int negate(wb_batch *b, void *ctx)
{
    if (ctx && --*(int *)ctx < 0) return 5;
    float *x = (float *)(uintptr_t)wb_data(b->x);
    for (int64_t i = 0; i < wb_size(b->x); i++) x[i] = -x[i];
    return 0;
}

static int drop_labels(wb_batch *b, void *ctx)
{
    b->x = wb_from(wb_data(b->x), WB_F32, 1, (int64_t[]){2 * b->n});
    b->y = WB_NONE;
    return 0;
}

static int fail_with_words(wb_batch *b, void *ctx)
{
    return wb__fail(WB_ERROR_NUMBER, "in words");
}

static int leave_nothing(wb_batch *b, void *ctx)
{
    b->x = NULL;
    return 0;
}

TEST_IN_SCOPE(maps)
{
    wb_dataset *d = numbers(4), *m = wb_mapobs(wb_subset(d, 1, 4), negate, NULL);
    assert_int_equal(wb_dataset_length(m), 3);
    assert_true(wb_at(wb_dataset_x(m), 0, 1) == -1.5 && wb_at(wb_dataset_y(m), 0) == 10);
    assert_true(wb_at(wb_dataset_x(d), 1, 1) == 1.5); /* the array itself did not change */
    assert_true(wb_at(wb_dataset_x(wb_subset(wb_mapobs(m, negate, NULL), 1, 2)), 0, 0) == 2);
    m = wb_mapobs(d, drop_labels, NULL);
    assert_string_equal(wb_describe(wb_dataset_x(m)), "[8] f32");
    assert_true(wb_is_none(wb_dataset_y(m)));
    REFUSED(wb_dataset_x(wb_mapobs(d, negate, &(int){0})), 5, "mapobs", "5");
    assert_null(wb_dataset_x(wb_mapobs(d, fail_with_words, NULL)));
    FAILED(WB_ERROR_NUMBER, "mapobs", "in words");
    assert_null(wb_dataset_y(wb_mapobs(d, leave_nothing, NULL)));
    assert_null(wb_mapobs(d, NULL, NULL));
    assert_null(wb_mapobs(NULL, negate, NULL));
}

TEST(views_keep_what_they_need)
{
    wb_scope *s = wb_scope_open();
    wb_dataset *d = numbers(6), *part = wb_subset(d, 2, 4);
    part = wb_object_keep(part);
    wb_scope_close(s);
    expect(part, 2, (int[]){2, 3});
    wb_object_free(part);
}

TEST(every_allocation_may_fail)
{
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        wb_dataset *d = numbers(6), *a, *b;
        wb__alloc_fail_at(n);
        int status = wb_splitobs(d, 0.5, &a, &b, .shuffle = true);
        wb_dataset *m = status ? NULL : wb_mapobs(b, negate, NULL);
        wb_tensor *x = wb_dataset_x(m);
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        assert_true(finished == (x != NULL));
        if (!x) assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
    }
}
