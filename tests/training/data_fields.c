/* Datasets and batches of more tensors than x and y. */
#include "test.h"

#include "data/dataset.h"
#include "far_device.h"

/* Observation i: ids {i, i}, length 2 i, weight i / 2, and a mask that is i odd. */
static wb_tree *arrays(int64_t n)
{
    int32_t *ids = malloc((size_t)n * 2 * sizeof *ids);
    int64_t *lengths = malloc((size_t)n * sizeof *lengths);
    float *weights = malloc((size_t)n * sizeof *weights);
    bool *odd = malloc((size_t)n);
    for (int64_t i = 0; i < n; i++) {
        ids[2 * i] = ids[2 * i + 1] = (int32_t)i;
        lengths[i] = 2 * i;
        weights[i] = (float)i / 2;
        odd[i] = i % 2;
    }
    void *list[] = {wb_from(ids, WB_I32, 2, (int64_t[]){n, 2}), wb_from(lengths, WB_I64, 1, &n),
                    wb_from(weights, WB_F32, 1, &n), wb_from(odd, WB_BOOL, 1, &n)};
    free(ids);
    free(lengths);
    free(weights);
    free(odd);
    return wb_named_tuple(4, (const char *[]){"ids", "lengths", "weights", "odd"}, list);
}

/* The tensors of a batch belong together: all are of the observations ids[:, 0].  Returns their
 * number, and adds them to `seen`. */
static int64_t belongs_together(wb_batch b, bool *seen)
{
    wb_tensor *ids = wb_batch_get(b, "ids"), *lengths = wb_batch_get(b, "lengths");
    wb_tensor *weights = wb_batch_get(b, "weights"), *odd = wb_batch_get(b, "odd");
    if (!ids || !lengths || !weights || !odd) fail_msg("%s", wb_error());
    assert_true(ids == b.x && lengths == b.y && weights == b.more[0] && odd == b.more[1]);
    assert_null(b.more[2]);
    assert_ptr_equal(wb_batch_get(b, "x"), b.x);
    assert_ptr_equal(wb_batch_get(b, "y"), b.y);
    const int32_t *i = wb_data(ids);
    const int64_t *l = wb_data(lengths);
    const float *w = wb_data(weights);
    const bool *o = wb_data(odd);
    for (int64_t k = 0; k < b.n; k++) {
        const int32_t at = i[2 * k];
        assert_true(i[2 * k + 1] == at && l[k] == 2 * at && w[k] == (float)at / 2);
        assert_true(o[k] == at % 2);
        if (seen) seen[at] = true;
    }
    assert_true(wb_dim(ids, 0) == b.n && wb_dim(odd, 0) == b.n);
    return b.n;
}

static void whole_epoch(wb_loader *l, int64_t n)
{
    bool seen[100] = {false};
    int64_t all = 0;
    WB_EACH_BATCH(b, l) all += belongs_together(b, seen);
    assert_int_equal(wb_loader_status(l), 0);
    assert_int_equal(all, n);
    for (int64_t i = 0; i < n; i++) assert_true(seen[i]);
}

TEST_IN_SCOPE(batches)
{
    wb_dataset *d = wb_dataset_of_tree(arrays(10));
    if (!d) fail_msg("%s", wb_error());
    char *text = wb_object_format(d);
    assert_true(HAS_FACTS(text, "10", "ids", "[2] i32", "lengths", "weights", "[] f32", "odd"));
    wb_free_text(text);
    for (int ahead = 0; ahead < 3; ahead++) {
        wb_loader *l = wb_dataloader(d, 3, .shuffle = true, .ahead = ahead);
        whole_epoch(l, 10);
        whole_epoch(l, 10);
    }
    wb_dataset *a, *b;
    assert_int_equal(wb_splitobs(d, 0.7, &a, &b, .shuffle = true), 0);
    assert_int_equal(wb_dataset_length(a), 7);
    int loops = 0;          /* the loader is made once */
    WB_EACH_BATCH(batch, wb_dataloader(wb_subset(a, 2, 6), 3)) {
        belongs_together(batch, NULL);
        if (++loops > 2) break;
    }
    assert_int_equal(loops, 2);
    wb_tensor *w = wb_dataset_get(wb_subset(d, 4, 6), "weights");
    assert_true(wb_at(w, 0) == 2 && wb_at(w, 1) == 2.5);
    assert_true(wb_at(wb_dataset_get(d, "ids"), 3, 1) == 3);
    assert_ptr_equal(wb_dataset_get(d, "x"), wb_dataset_x(d));
    REFUSED(wb_dataset_get(d, "mask"), WB_ERROR_ARGUMENT, "dataset_get", "\"mask\"", "ids",
            "lengths", "weights", "odd");
}

static int leaves_a_gap(wb_batch *b, void *ctx)
{
    b->more[3] = b->x;
    return 0;
}

static int double_weights(wb_batch *b, void *ctx)
{
    b->more[0] = wb_mul(wb_batch_get(*b, "weights"), 2);
    if (ctx) b->more[2] = wb_square(b->more[0]);
    return b->more[0] ? 0 : WB_ERROR_ARGUMENT;
}

TEST_IN_SCOPE(tensors_without_names)
{
    wb_batch b = wb_batch_of(wb_ones(2, 3), wb_zeros(2));
    REFUSED(wb_batch_get(b, "2"), WB_ERROR_ARGUMENT, "batch_get", "\"2\"", "there is x, y");
    b.more[0] = wb_ones(2);
    assert_ptr_equal(wb_batch_get(b, "2"), b.more[0]);
    assert_ptr_equal(wb_batch_get(b, "y"), b.y);
    REFUSED(wb_batch_get(b, "mask"), WB_ERROR_ARGUMENT, "there is x, y, 2");
}

TEST_IN_SCOPE(maps_and_devices)
{
    wb_dataset *d = wb_dataset_of_tree(arrays(9));
    wb_loader *l;
    wb_dataset *mapped = wb_mapobs(d, double_weights, NULL);
    l = wb_dataloader(mapped, 4);
    int loops = 0;
    WB_EACH_BATCH(b, l) {
        assert_true(wb_item(wb_sum(b.more[0])) ==
                    wb_item(wb_sum(wb_astype(wb_slice(b.x, 1, 0, 1), WB_F32))));
        loops++;
    }
    assert_int_equal(loops, 3);
    assert_true(wb_at(wb_dataset_get(mapped, "weights"), 8) == 8);
    int one = 1;
    l = wb_dataloader(d, 4, .collate = double_weights, .collate_ctx = &one);
    WB_EACH_BATCH(b, l) {
        assert_non_null(b.more[2]);
        assert_null(b.more[3]);
        assert_true(wb_at(b.more[2], 0) == wb_at(b.more[0], 0) * wb_at(b.more[0], 0));
        assert_ptr_equal(wb_batch_get(b, "4"), b.more[2]);      /* it has no name */
        REFUSED(wb_batch_get(b, "mask"), WB_ERROR_ARGUMENT, "\"mask\"", "odd, 4");
        loops++;
    }
    assert_int_equal(loops, 6);
    l = wb_dataloader(d, 4, .collate = leaves_a_gap);
    WB_EACH_BATCH(b, l) fail();
    assert_int_equal(wb_loader_status(l), WB_ERROR_ARGUMENT);
    FAILED(WB_ERROR_ARGUMENT, "collate", ".more[3]", ".more[2]");
    const wb_device *places[MOST_PLACES];
    const int n = every_device(places);
    for (int i = 0; i < n; i++) {
        wb_dataset *there = wb_to(d, places[i]);
        if (!there) fail_msg("%s", wb_error());
        wb_loader *loaders[] = {wb_dataloader(there, 4, .shuffle = true),
                                wb_to(wb_dataloader(d, 4, .shuffle = true), places[i])};
        for (int k = 0; k < 2; k++) {
            loops = 0;
            WB_EACH_BATCH(b, loaders[k]) {
                assert_ptr_equal(wb_device_of(b.more[1]), places[i]);
                loops++;
            }
            assert_int_equal(loops, 3);
            whole_epoch(loaders[k], 9);
        }
        wb_batch b = {.x = wb_ones(2), .y = wb_ones(2), .n = 2, .more = {wb_zeros(2)}};
        b = wb_to(b, places[i]);
        assert_ptr_equal(wb_device_of(b.more[0]), places[i]);
    }
}

/* The weighted squared distance of a Dense layer's result from the lengths. */
static wb_tensor *weighted(wb_layer *m, wb_batch b, void *ctx)
{
    wb_tensor *y = wb_call(m, wb_div(wb_astype(wb_batch_get(b, "ids"), WB_F32), 10));
    wb_tensor *target = wb_unsqueeze(wb_div(wb_astype(wb_batch_get(b, "lengths"), WB_F32), 10), 1);
    wb_tensor *weights = wb_unsqueeze(wb_batch_get(b, "weights"), 1);
    return wb_mean(wb_mul(wb_square(wb_sub(y, target)), weights));
}

TEST_IN_SCOPE(training)
{
    wb_seed(1);
    wb_layer *m = wb_Dense(2, 1);
    wb_loader *l = wb_dataloader(wb_dataset_of_tree(arrays(10)), 5, .shuffle = true);
    assert_int_equal(wb_train(weighted, m, l, wb_setup(wb_Adam(0.05), m), .epochs = 300), 0);
    wb_tensor *y = wb_call(m, wb_from(((float[]){0.8f, 0.8f}), WB_F32, 2, (int64_t[]){1, 2}));
    assert_true(fabs(wb_item(y) - 1.6) < 0.02);
}

TEST_IN_SCOPE(trees)
{
    wb_tensor *a = wb_ones(3, 2), *b = wb_zeros(3);
    wb_loader *l;
    wb_dataset *d = wb_dataset_of_tree(wb_tuple(a, b, a));
    wb_batch first = wb_loader_begin(wb_dataloader(d, 3));
    assert_null(first.x);
    l = wb_dataloader(d, 3);
    int loops = 0;
    WB_EACH_BATCH(batch, l) {
        loops++;
        assert_ptr_equal(wb_batch_get(batch, "2"), batch.more[0]);
        assert_ptr_equal(wb_batch_get(batch, "0"), batch.x);
    }
    assert_int_equal(loops, 1);
    wb_tree *inner = wb_named_tuple(1, (const char *[]){"mask"}, (void *[]){b});
    l = wb_dataloader(wb_dataset_of_tree(wb_tuple(a, inner)), 3);
    WB_EACH_BATCH(batch, l) {
        loops++;
        assert_ptr_equal(wb_batch_get(batch, "1.mask"), batch.y);
    }
    assert_int_equal(loops, 2);
    l = wb_dataloader(wb_dataset_of_tree(wb_tuple(a)), 3);
    WB_EACH_BATCH(batch, l) {
        loops++;
        assert_true(wb_is_none(batch.y));
        REFUSED(wb_batch_get(batch, "y"), WB_ERROR_ARGUMENT, "batch_get", "\"y\"", "0");
    }
    assert_int_equal(loops, 3);
    l = wb_dataloader(wb_dataset_of(a, b), 3);
    WB_EACH_BATCH(batch, l) {
        loops++;
        assert_ptr_equal(wb_batch_get(batch, "x"), batch.x);
        assert_ptr_equal(wb_batch_get(batch, "y"), batch.y);
        REFUSED(wb_batch_get(batch, "z"), WB_ERROR_ARGUMENT, "batch_get", "\"z\"", "x", "y");
        REFUSED(wb_batch_get(batch, NULL), WB_ERROR_ARGUMENT, "batch_get", "name");
    }
    assert_int_equal(loops, 4);
    REFUSED(wb_dataset_of_tree(wb_tuple(a, wb_ones(4))), WB_ERROR_SHAPE, "dataset_of_tree", "0",
            "[3,2] f32", "1", "[4] f32");
    REFUSED(wb_dataset_of_tree(wb_tuple(wb_Dense(1, 1))), WB_ERROR_ARGUMENT, "dataset_of_tree",
            "layer");
    REFUSED(wb_dataset_of_tree(wb_tuple(WB_NONE)), WB_ERROR_ARGUMENT, "dataset_of_tree", "no");
    REFUSED(wb_dataset_of_tree(wb_tuple(a, a, a, a, a, a, a, a, a)), WB_ERROR_ARGUMENT,
            "dataset_of_tree", "8");
    REFUSED(wb_dataset_of_tree((wb_tree *)a), WB_ERROR_ARGUMENT, "dataset_of_tree", "tensor");
    wb_tensor *far = wb_to(b, far_device());
    REFUSED(wb_dataset_of_tree(wb_tuple(a, far)), WB_ERROR_DEVICE, "dataset_of_tree", "0", "1");
}
