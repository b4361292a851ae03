/* Views by index, groups, splits, folds, samples and windows.  The numbers are those that the
 * documentation of MLUtils.jl gives, or follow from its rules, counted from 0 here. */
#include "test.h"

#include "data/dataset.h"

/* Observation i is x = {i, -i}, f32, with the label y[i]; y is i if it is NULL. */
static wb_dataset *series(int64_t n, const int32_t *y)
{
    float x[200];
    int32_t own[100];
    for (int i = 0; i < n; i++) {
        x[2 * i] = (float)i;
        x[2 * i + 1] = (float)-i;
        own[i] = y ? y[i] : i;
    }
    return wb_dataset_of(wb_from(x, WB_F32, 2, (int64_t[]){n, 2}), wb_from(own, WB_I32, 1, &n));
}

static void expect(wb_dataset *d, int n, const int *observations)
{
    assert_non_null(d);
    assert_int_equal(wb_dataset_length(d), n);
    const float *x = wb_data(wb_dataset_x(d));
    for (int i = 0; i < n; i++)
        if (x[2 * i] != (float)observations[i] || x[2 * i + 1] != (float)-observations[i])
            fail_msg("observation %d is %g, not %d", i, x[2 * i], observations[i]);
}
#define EXPECT(d, ...) \
    expect((d), (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})

static void expect_range(wb_dataset *d, int start, int stop)
{
    int all[100];
    for (int i = start; i < stop; i++) all[i - start] = i;
    expect(d, stop - start, all);
}

/* Sets count[i] to how often d has observation i, of n. */
static void count_all(wb_dataset *d, int n, int *count)
{
    const float *x = wb_data(wb_dataset_x(d));
    for (int i = 0; i < n; i++) count[i] = 0;
    for (int i = 0; i < wb_dataset_length(d); i++) count[(int)x[2 * i]]++;
}

TEST_IN_SCOPE(views_by_index)
{
    wb_dataset *d = series(10, NULL), *view = wb_obsview(d, 4, (int64_t[]){7, 0, 7, 3});
    EXPECT(view, 7, 0, 7, 3);
    EXPECT(wb_obsview(view, 2, (int64_t[]){3, 0}), 3, 7);
    EXPECT(wb_obsview(wb_subset(d, 2, 6), 2, (int64_t[]){3, 0}), 5, 2);
    assert_int_equal(((const int32_t *)wb_data(wb_dataset_y(view)))[2], 7);
    assert_int_equal(wb_dataset_length(wb_obsview(d, 0, NULL)), 0);
    REFUSED(wb_obsview(d, 2, (int64_t[]){0, 10}), WB_ERROR_ARGUMENT, "index 1", "10 observations");
    assert_null(wb_obsview(d, 1, (int64_t[]){-1}));
    assert_null(wb_obsview(d, 1, NULL));
    int count[10], moved = 0;
    wb_seed(1);
    wb_dataset *mixed = wb_shuffleobs(d);
    const float *x = wb_data(wb_dataset_x(mixed));
    for (int i = 0; i < 10; i++) moved += x[2 * i] != (float)i;
    count_all(mixed, 10, count);
    for (int i = 0; i < 10; i++) assert_int_equal(count[i], 1);
    assert_true(moved > 3);
    wb_dataset *some = wb_randobs(d, 1000);
    count_all(some, 10, count);
    for (int i = 0; i < 10; i++) assert_true(count[i] > 60 && count[i] < 140);
    assert_null(wb_randobs(wb_subset(d, 0, 0), 1));
    assert_int_equal(wb_dataset_length(wb_randobs(d, 0)), 0);
}

static int above(wb_batch b, void *least)
{
    assert_int_equal(b.n, 1);
    if (wb_ndim(b.x) > 1) assert_true(wb_at(b.x, 0, 0) == (double)b.index);
    return wb_item(b.y) > *(double *)least;
}
static int fails(wb_batch b, void *ctx)
{
    (void)ctx;
    return b.index == 2 ? -7 : 1;
}
static int parity(wb_batch b, int64_t *label, void *ctx)
{
    (void)ctx;
    *label = -((int64_t)wb_item(b.y) & 1);
    return 0;
}
static int add_nine(wb_batch *b, void *ctx)
{
    (void)ctx;
    b->y = wb_add(b->y, wb_scalar_int(9));
    return 0;
}

TEST_IN_SCOPE(filters)
{
    wb_dataset *d = series(10, NULL);
    EXPECT(wb_filterobs(d, above, &(double){5}), 6, 7, 8, 9);
    EXPECT(wb_filterobs(wb_mapobs(d, add_nine, NULL), above, &(double){15}), 7, 8, 9);
    assert_int_equal(wb_dataset_length(wb_filterobs(d, above, &(double){50})), 0);
    assert_int_equal(wb_dataset_length(wb_filterobs(series(0, NULL), above, NULL)), 0);
    REFUSED(wb_filterobs(d, fails, NULL), WB_ERROR_ARGUMENT, "observation 2", "-7");
    assert_null(wb_filterobs(d, NULL, NULL));
    enum { MANY = 700 };                    /* several batches of observations */
    float x[MANY];
    for (int i = 0; i < MANY; i++) x[i] = (float)i;
    wb_tensor *many = wb_from(x, WB_F32, 2, (int64_t[]){MANY, 1});
    wb_dataset *last = wb_filterobs(wb_dataset_of(many, many), above, &(double){697});
    assert_int_equal(wb_dataset_length(last), 2);
    assert_true(wb_at(wb_dataset_x(last), 1, 0) == 699);
}

TEST_IN_SCOPE(groups)
{
    static const int32_t y[] = {5, -1, 5, 2, -1, 5};
    wb_dataset *d = series(6, y), *part[3];
    int64_t label[3];
    assert_int_equal(wb_groupobs(d, NULL, NULL, 3, label, part), 3);
    assert_true(label[0] == -1 && label[1] == 2 && label[2] == 5);
    EXPECT(part[0], 1, 4);
    EXPECT(part[1], 3);
    EXPECT(part[2], 0, 2, 5);
    assert_int_equal(wb_groupobs(d, parity, NULL, 2, label, part), 2);
    EXPECT(part[1], 3);
    EXPECT(part[0], 0, 1, 2, 4, 5);
    assert_int_equal(wb_groupobs(d, NULL, NULL, 2, NULL, part), -1);
    FAILED(WB_ERROR_ARGUMENT, "3 groups", "2");
    wb_tensor *x = wb_dataset_x(d), *values;
    assert_int_equal(wb_groupobs(wb_dataset_of(x, x), NULL, NULL, 3, label, part), -1);
    FAILED(WB_ERROR_DTYPE, "f32");
    wb_tensor *counts = wb_group_counts(wb_dataset_y(d), &values);
    assert_int_equal(wb_dtype_of(values), WB_I32);
    static const int expected[3][2] = {{-1, 2}, {2, 1}, {5, 3}};
    for (int k = 0; k < 3; k++)
        assert_true(wb_at(values, k) == expected[k][0] && wb_at(counts, k) == expected[k][1]);
    wb_tensor *at = wb_group_indices(wb_dataset_y(d), 5);
    assert_true(wb_dim(at, 0) == 3 && wb_at(at, 0) == 0 && wb_at(at, 1) == 2 && wb_at(at, 2) == 5);
    assert_int_equal(wb_dim(wb_group_indices(wb_dataset_y(d), 4), 0), 0);
    const float real[] = {0.5f, -2, -0.0f, -3, 0};
    counts = wb_group_counts(wb_from(real, WB_F32, 2, (int64_t[]){5, 1}), &values);
    static const double sorted[] = {-3, -2, 0, 0.5}, times[] = {1, 1, 2, 1};
    assert_int_equal(wb_dim(counts, 0), 4);
    for (int k = 0; k < 4; k++)
        assert_true(wb_at(values, k) == sorted[k] && wb_at(counts, k) == times[k]);
    assert_null(wb_group_counts(wb_from((float[]){1, NAN}, WB_F32, 1, (int64_t[]){2}), NULL));
    FAILED(WB_ERROR_NUMBER, "NaN");
    REFUSED(wb_group_counts(x, NULL), WB_ERROR_SHAPE, "[6,2] f32");
}

TEST_IN_SCOPE(splits)
{
    wb_dataset *part[3], *d = series(100, NULL);
    assert_int_equal(wb_splitobs_array(d, 2, ((double[]){0.1, 0.4}), part), 0);
    expect_range(part[0], 0, 10);
    expect_range(part[1], 10, 50);
    expect_range(part[2], 50, 100);
    assert_int_equal(wb_splitobs_array(d, 2, ((double[]){7, 90}), part, .counts = true), 0);
    expect_range(part[1], 7, 97);
    FAILS(wb_splitobs_array(d, 2, ((double[]){7, 0.5}), part, .counts = true), WB_ERROR_ARGUMENT,
          "splitobs_array", "part 1", "0.5", ".counts");
    assert_true(!part[0] && !part[1] && !part[2]);
    FAILS(wb_splitobs_array(d, 1, &(double){NAN}, part, .counts = true), WB_ERROR_ARGUMENT,
          "splitobs_array", "part 0");
    assert_int_equal(wb_splitobs_array(series(5, NULL), 1, &(double){0.5}, part), 0);
    expect_range(part[0], 0, 2);
    assert_int_equal(wb_splitobs_array(d, 2, ((double[]){0.7, 0.4}), part), WB_ERROR_ARGUMENT);
    FAILED(WB_ERROR_ARGUMENT, "part 1", "0.4");
    assert_true(!part[0] && !part[1] && !part[2]);
    assert_int_equal(wb_splitobs_array(d, 1, &(double){-0.1}, part), WB_ERROR_ARGUMENT);
    assert_int_equal(wb_splitobs_array(d, 16, &(double){0.1}, part), WB_ERROR_ARGUMENT);
    static const int32_t y[] = {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    wb_dataset *few = series(12, y);
    assert_int_equal(
        wb_splitobs_array(few, 2, ((double[]){0.5, 0.25}), part, .stratified = true), 0);
    EXPECT(part[0], 0, 1, 4, 5, 6, 7);
    EXPECT(part[1], 2, 8, 9);
    EXPECT(part[2], 3, 10, 11);
    wb_tensor *two = wb_from((float[12]){0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}, WB_F32, 1,
                             (int64_t[]){12});
    assert_int_equal(wb_splitobs_array(few, 1, &(double){1. / 3}, part, .labels = two), 0);
    EXPECT(part[0], 0, 1, 2, 3);
    int count[12], again[12], moved = 0;
    wb_seed(2);
    assert_int_equal(
        wb_splitobs_array(few, 1, &(double){0.25}, part, .stratified = true, .shuffle = true), 0);
    count_all(part[0], 12, count);
    count_all(part[1], 12, again);
    for (int i = 0; i < 12; i++) assert_int_equal(count[i] + again[i], 1);
    assert_int_equal(count[0] + count[1] + count[2] + count[3], 1);
    assert_int_equal(wb_dataset_length(part[0]), 3);
    const float *x = wb_data(wb_dataset_x(part[1]));
    for (int i = 1; i < 9; i++) moved += x[2 * i] < x[2 * i - 2];
    assert_true(moved > 1);
    assert_int_equal(wb_splitobs_array(d, 1, &(double){0.5}, part, .labels = two), WB_ERROR_SHAPE);
    FAILED(WB_ERROR_SHAPE, "[12] f32", "100");
}

TEST_IN_SCOPE(folds)
{
    wb_dataset *d = series(10, NULL), *train, *held;
    assert_int_equal(wb_kfolds(d, 5, 1, &train, &held), 0);
    EXPECT(held, 2, 3);
    EXPECT(train, 0, 1, 4, 5, 6, 7, 8, 9);
    static const int bounds[] = {0, 4, 7, 10};      /* 10 = 4 + 3 + 3 */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wb_kfolds(d, 3, i, &train, &held), 0);
        expect_range(held, bounds[i], bounds[i + 1]);
        assert_int_equal(wb_dataset_length(train), 10 - (bounds[i + 1] - bounds[i]));
    }
    assert_int_equal(wb_leavepout(d, 3, 2, &train, &held), 0);      /* 3 folds */
    EXPECT(held, 7, 8, 9);
    EXPECT(train, 0, 1, 2, 3, 4, 5, 6);
    assert_true(!held->order);                      /* a range needs no list */
    assert_int_equal(wb_kfolds(wb_obsview(d, 4, (int64_t[]){9, 2, 7, 0}), 2, 1, &train, &held), 0);
    EXPECT(held, 7, 0);
    EXPECT(train, 9, 2);
    assert_int_equal(wb_leavepout(d, 1, 9, &train, &held), 0);
    EXPECT(held, 9);
    assert_int_equal(wb_leavepout(d, 6, 0, &train, &held), WB_ERROR_ARGUMENT);
    assert_int_equal(wb_leavepout(d, 3, 3, &train, &held), WB_ERROR_ARGUMENT);
    FAILS(wb_kfolds(d, 11, 0, &train, &held), WB_ERROR_ARGUMENT, "11 folds", "10");
    assert_int_equal(wb_kfolds(d, 1, 0, &train, &held), WB_ERROR_ARGUMENT);
    assert_int_equal(wb_kfolds(d, 5, 5, &train, &held), WB_ERROR_ARGUMENT);
    assert_true(!train && !held);
    static const int32_t y[] = {0, 1, 1, 0, 1, 1, 0, 1, 1};
    wb_dataset *labelled = series(9, y);            /* three of label 0, six of label 1 */
    assert_int_equal(wb_kfolds(labelled, 3, 1, &train, &held, .stratified = true), 0);
    EXPECT(held, 3, 4, 5);
    EXPECT(train, 0, 1, 2, 6, 7, 8);
    FAILS(wb_kfolds(labelled, 4, 1, &train, &held, .stratified = true), WB_ERROR_ARGUMENT,
          "3 times", "k = 4");
}

TEST_IN_SCOPE(folds_of_a_series_of_time)
{
    wb_dataset *d = series(10, NULL), *train, *held;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wb_timeseries_kfolds(d, 3, i, &train, &held), 0);
        expect_range(train, 0, 4 + 2 * i);
        expect_range(held, 4 + 2 * i, 6 + 2 * i);
        assert_int_equal(wb_timeseries_kfolds(d, 3, i, &train, &held, .gap = 1), 0);
        expect_range(train, 0, 3 + 2 * i);
        expect_range(held, 4 + 2 * i, 6 + 2 * i);
        assert_int_equal(wb_timeseries_kfolds(d, 3, i, &train, &held, .max_train_size = 2), 0);
        expect_range(train, 2 + 2 * i, 4 + 2 * i);
    }
    assert_int_equal(wb_timeseries_kfolds(d, 1, 0, &train, &held), WB_ERROR_ARGUMENT);
    assert_int_equal(wb_timeseries_kfolds(d, 10, 0, &train, &held), WB_ERROR_ARGUMENT);
    FAILS(wb_timeseries_kfolds(d, 3, 0, &train, &held, .gap = 4), WB_ERROR_ARGUMENT, ".gap", "4");
    assert_int_equal(wb_timeseries_kfolds(d, 3, 3, &train, &held), WB_ERROR_ARGUMENT);
}

TEST_IN_SCOPE(equal_classes)
{
    static const int32_t y[] = {0, 1, 1, 1, 1, 0, 1, 1};    /* two of label 0, six of label 1 */
    wb_dataset *d = series(8, y);
    int count[8];
    wb_dataset *more = wb_oversample(d, .shuffle = false);
    assert_int_equal(wb_dataset_length(more), 12);
    expect_range(wb_subset(more, 0, 8), 0, 8);
    count_all(more, 8, count);
    static const int doubled[] = {3, 1, 1, 1, 1, 3, 1, 1};
    assert_memory_equal(count, doubled, sizeof count);
    wb_seed(5);
    more = wb_oversample(d, .fraction = 0.5);               /* 0.5 of six */
    assert_int_equal(wb_dataset_length(more), 9);
    count_all(more, 8, count);
    assert_int_equal(count[0] + count[5], 3);
    assert_int_equal(wb_dataset_length(wb_oversample(d, .fraction = 0)), 8);
    assert_null(wb_oversample(d, .fraction = -1));
    wb_dataset *fewer = wb_undersample(d, .shuffle = false);
    assert_int_equal(wb_dataset_length(fewer), 4);
    count_all(fewer, 8, count);
    assert_int_equal(count[0] + count[5], 2);
    const float *x = wb_data(wb_dataset_x(fewer));
    for (int i = 1; i < 4; i++) assert_true(x[2 * i] > x[2 * i - 2]);
    wb_tensor *labels = wb_from((int64_t[8]){0, 0, 0, 0, 1, 1, 1, 1}, WB_I64, 1, (int64_t[]){8});
    assert_int_equal(wb_dataset_length(wb_undersample(d, .labels = labels)), 8);
    REFUSED(wb_oversample(wb_dataset_of(wb_dataset_x(d), WB_NONE)), WB_ERROR_ARGUMENT, ".labels");
}

/* Views keep lists of 4 bytes for each of their observations, and little else. */
TEST_IN_SCOPE(views_hold_no_more_than_their_observations)
{
    enum { N = 50000, LITTLE = 4096 };
    static int32_t y[N];
    for (int i = 0; i < N; i++) y[i] = i % 1000 ? 0 : 1;
    wb_tensor *labels = wb_from(y, WB_I32, 1, (int64_t[]){N});
    wb_dataset *d = wb_dataset_of(labels, labels), *part[8], *train, *held;
    const double sizes[7] = {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1};
    for (int warm = 0; warm < 2; warm++) {          /* the first calls leave buffers behind */
        const int64_t before = wb_memory_used();
        assert_int_equal(wb_splitobs_array(d, 7, sizes, part, .stratified = true), 0);
        const int64_t split = wb_memory_used();
        wb_dataset *few = wb_undersample(d);
        assert_int_equal(wb_dataset_length(few), 100);
        const int64_t sampled = wb_memory_used();
        assert_int_equal(wb_kfolds(d, 5, 1, &train, &held, .stratified = true), 0);
        const int64_t folded = wb_memory_used();
        assert_int_equal(wb_kfolds(d, 5, 1, &train, &held), 0);
        const int64_t plain = wb_memory_used();
        wb_dataset *ones = wb_filterobs(d, above, &(double){0});
        assert_int_equal(wb_dataset_length(ones), 50);
        if (!warm) continue;
        assert_true(split - before < 4 * N + 8 * LITTLE);
        assert_true(sampled - split < LITTLE);
        assert_true(folded - sampled < 4 * N + LITTLE);
        assert_true(plain - folded < 4 * (N - N / 5) + LITTLE);
        assert_true(wb_memory_used() - plain < LITTLE);
    }
}

static int64_t calls;
static int squares(int64_t i, void *x, void *y, void *ctx)
{
    (void)ctx;
    ((float *)x)[0] = (float)i;
    ((float *)x)[1] = (float)-i;
    *(int32_t *)y = (int32_t)(i * i);
    calls++;
    return 0;
}

static int three(int64_t i, void *const *fields, void *ctx)
{
    (void)ctx;
    squares(i, fields[0], fields[1], NULL);
    ((double *)fields[2])[0] = 0.5 * (double)i;
    return i < 8 ? 0 : -1;
}

TEST_IN_SCOPE(sources_with_more_fields)
{
    static const char *const names[] = {"pair", "square", "half"};
    wb_dataset_source s = {.size = sizeof s, .n = 8, .x_ndim = 1, .x_dims = {2}, .y_dtype = WB_I32,
                           .n_more = 1, .more_dtype = {WB_F64}, .get_all = three};
    wb_dataset *d = wb_dataset_from(&s);
    assert_true(wb_at(wb_dataset_get(wb_subset(d, 3, 8), "2"), 2) == 2.5);
    s.names = names;
    d = wb_dataset_from(&s);
    int64_t batches = 0;
    WB_EACH_BATCH(b, wb_dataloader(d, -1)) {
        assert_int_equal(b.n, 8);
        assert_true(wb_at(wb_batch_get(b, "half"), 7) == 3.5);
        assert_true(wb_at(wb_batch_get(b, "square"), 7) == 49 && wb_at(b.more[0], 1) == 0.5);
        batches++;
    }
    assert_int_equal(batches, 1);
    assert_null(wb_dataloader(d, -2));
    s.get = squares;
    REFUSED(wb_dataset_from(&s), WB_ERROR_ARGUMENT, "two functions");
    s.get_all = NULL;
    assert_null(wb_dataset_from(&s));
    s.get = NULL;
    assert_null(wb_dataset_from(&s));
    s = (wb_dataset_source){.size = sizeof s, .n = 9, .x_ndim = 1, .x_dims = {2},
                            .y_dtype = WB_I32, .n_more = 1, .more_dtype = {WB_F64},
                            .get_all = three};
    wb_clear_error();
    assert_null(wb_dataset_x(wb_dataset_from(&s)));
    s.n_more = 7;
    REFUSED(wb_dataset_from(&s), WB_ERROR_ARGUMENT, "7 further fields");
}

TEST_IN_SCOPE(joined)
{
    wb_dataset *a = series(4, NULL), *b = wb_subset(series(9, NULL), 5, 9);
    wb_dataset *source = wb_dataset_from(&(wb_dataset_source){
        .size = sizeof(wb_dataset_source), .n = 3, .x_ndim = 1, .x_dims = {2},
        .y_dtype = WB_I32, .get = squares});
    wb_dataset *all = wb_joinobs(a, wb_subset(a, 0, 0), b, source);
    EXPECT(all, 0, 1, 2, 3, 5, 6, 7, 8, 0, 1, 2);
    EXPECT(wb_obsview(all, 5, (int64_t[]){10, 4, 3, 9, 0}), 2, 5, 3, 1, 0);
    assert_int_equal(((const int32_t *)wb_data(wb_dataset_y(all)))[10], 4);
    EXPECT(wb_joinobs(all, wb_subset(all, 7, 9)), 0, 1, 2, 3, 5, 6, 7, 8, 0, 1, 2, 8, 0);
    int seen = 0;
    WB_EACH_BATCH(batch, wb_dataloader(all, 4, .shuffle = true, .seed = 3))
        for (int64_t i = 0; i < batch.n; i++) seen += 1 << (int)wb_at(batch.x, i, 0);
    assert_int_equal(seen, 1 + 2 + 4 + 8 + 32 + 64 + 128 + 256 + 1 + 2 + 4);
    wb_tensor *x = wb_dataset_x(a);
    REFUSED(wb_joinobs(a, wb_dataset_of(x, x)), WB_ERROR_SHAPE, "dataset 1");
    REFUSED(wb_joinobs(a, wb_mapobs(b, add_nine, NULL)), WB_ERROR_ARGUMENT, "joinobs", "wb_mapobs");
    assert_null(wb_joinobs_array(0, NULL));
}

/* Fails for the observation in ctx. */
static int all_but_one(int64_t i, void *x, void *y, void *ctx)
{
    ((float *)x)[0] = (float)i;
    ((float *)x)[1] = (float)-i;
    *(int32_t *)y = (int32_t)(100 * i);
    return i == *(const int *)ctx ? -3 : 0;
}

TEST_IN_SCOPE(joined_sources)
{
    int bad = -1;
    wb_dataset_source s = {.size = sizeof s, .n = 3, .x_ndim = 1, .x_dims = {2}, .y_dtype = WB_I32,
                           .get = all_but_one, .ctx = &(int){-1}};
    wb_dataset *a = wb_dataset_from(&s);
    s.n = 60;
    s.ctx = &bad;
    wb_dataset *b = wb_dataset_from(&s), *some = wb_obsview(b, 3, (int64_t[]){50, 4, 41});
    wb_dataset *all = wb_joinobs(wb_joinobs(a, wb_subset(b, 7, 7)), some, wb_subset(b, 7, 9));
    EXPECT(all, 0, 1, 2, 50, 4, 41, 7, 8);
    wb_dataset *mixed = wb_obsview(all, 6, (int64_t[]){7, 2, 3, 0, 5, 3});
    EXPECT(mixed, 8, 2, 50, 0, 41, 50);
    assert_int_equal(((const int32_t *)wb_data(wb_dataset_y(mixed)))[4], 4100);
    wb_tensor *x = wb_dataset_x(wb_slidingwindow(mixed, 3, 3));
    assert_true(wb_at(x, 1, 0, 0) == 0 && wb_at(x, 1, 1, 1) == -41 && wb_at(x, 0, 1, 0) == 2);
    int seen = 0;
    WB_EACH_BATCH(batch, wb_dataloader(wb_joinobs(a, wb_subset(b, 3, 20)), 8, .shuffle = true,
                                       .seed = 3, .ahead = 0))
        for (int64_t i = 0; i < batch.n; i++) seen += 1 << (int)wb_at(batch.x, i, 0);
    assert_int_equal(seen, (1 << 20) - 1);
    bad = 41;
    wb_clear_error();
    assert_null(wb_dataset_x(mixed));
    assert_non_null(strstr(wb_error(), "observation 41"));
    assert_non_null(strstr(wb_error(), "-3"));
    wb_clear_error();
}

TEST_IN_SCOPE(windows)
{
    wb_dataset *d = series(20, NULL), *w = wb_slidingwindow(d, 6, 3);
    assert_int_equal(wb_dataset_length(w), 5);
    wb_tensor *x = wb_dataset_x(w), *y = wb_dataset_y(w);
    assert_string_equal(wb_describe(x), "[5,6,2] f32");
    assert_string_equal(wb_describe(y), "[5,6] i32");
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 6; j++)
            assert_true(wb_at(x, i, j, 1) == -(3 * i + j) && wb_at(y, i, j) == 3 * i + j);
    x = wb_dataset_x(wb_slidingwindow(wb_dataset_of(wb_arange(9, WB_F32), WB_NONE), 4, 5));
    assert_string_equal(wb_describe(x), "[2,4] f32");
    assert_true(wb_at(x, 1, 0) == 5);
    assert_int_equal(wb_dataset_length(wb_slidingwindow(d, 20, 1)), 1);
    assert_int_equal(wb_dataset_length(wb_slidingwindow(d, 6, 1)), 15);
    wb_dataset *over = wb_slidingwindow(wb_obsview(d, 3, (int64_t[]){9, 4, 6}), 2, 1);
    x = wb_dataset_x(wb_obsview(over, 1, (int64_t[]){1}));
    assert_true(wb_at(x, 0, 0, 0) == 4 && wb_at(x, 0, 1, 0) == 6);
    int64_t n = 0;
    WB_EACH_BATCH(batch, wb_dataloader(wb_slidingwindow(w, 2, 2), 2)) {
        assert_int_equal(wb_ndim(batch.x), 4);
        assert_true(wb_at(batch.x, 1, 0, 1, 0) == 7);
        n += batch.n;
    }
    assert_int_equal(n, 2);
    REFUSED(wb_slidingwindow(d, 21, 1), WB_ERROR_ARGUMENT, "21", "20");
    assert_null(wb_slidingwindow(d, 0, 1));
    assert_null(wb_slidingwindow(d, 2, 0));
}

/* One call of each function; returns the last dataset, or NULL if any has failed. */
static wb_dataset *all_functions(wb_dataset *d)
{
    int64_t label[3];
    wb_dataset *a, *b, *part[3];
    if (!wb_obsview(d, 2, (int64_t[]){1, 0}) || !wb_randobs(d, 3)) return NULL;
    if (!wb_filterobs(d, above, &(double){-9}) || wb_groupobs(d, NULL, NULL, 3, label, part) < 0)
        return NULL;
    if (wb_groupobs(d, parity, NULL, 3, NULL, part) < 0) return NULL;
    wb_tensor *values, *counts = wb_group_counts(wb_dataset_y(d), &values);
    if (!counts || !wb_group_indices(wb_dataset_y(d), 1)) return NULL;
    if (wb_splitobs_array(d, 2, ((double[]){0.5, 0.2}), part, .stratified = true)) return NULL;
    if (wb_kfolds(d, 2, 1, &a, &b) || wb_kfolds(d, 2, 1, &a, &b, .stratified = true)) return NULL;
    if (!wb_undersample(d)) return NULL;
    wb_dataset *join = wb_joinobs(wb_oversample(d), wb_shuffleobs(d));
    wb_dataset *w = join ? wb_slidingwindow(join, 2, 2) : NULL;
    return w && wb_dataset_x(w) ? w : NULL;
}

TEST(every_allocation_may_fail)
{
    static const int32_t y[] = {0, 1, 1, 1, 0, 1};
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        wb_dataset *d = series(6, y);
        wb__alloc_fail_at(n);
        wb_dataset *last = all_functions(d);
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        assert_true(finished == (last != NULL));
        if (!last) assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
    }
}
