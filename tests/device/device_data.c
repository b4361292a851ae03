/* Datasets on devices: moves of whole datasets, and batches gathered on the device.  Loaders are
 * tested in device_loader.c. */
#include "device_numbers.h"

/* ---- datasets -------------------------------------------------------------------------------- */

TEST(a_dataset_goes_there_and_back)
{
    for (int i = 0; i < n_places; i++) IN_SCOPE {
        wb_dataset *d = numbers(10), *there = wb_to(d, places[i]);
        assert_true((there == d) == (i == 0));
        assert_ptr_equal(wb_device_of(there), places[i]);
        assert_ptr_equal(wb_to(there, places[i]), there);
        assert_ptr_equal(wb_device_of(wb_dataset_x(there)), places[i]);
        assert_int_equal(wb_dataset_length(there), 10);
        char want[128];
        snprintf(want, sizeof want, "Dataset(10 observations: x [2] f32, y [] i32, on %s:%d)",
                 places[i]->backend->tag, places[i]->ordinal);
        assert_shows(there, i ? want : "Dataset(10 observations: x [2] f32, y [] i32)");
        wb_dataset *back = wb_cpu(there);
        assert_ptr_equal(wb_device_of(back), places[0]);
        assert_memory_equal(wb_data(wb_dataset_x(back)), wb_data(wb_dataset_x(d)), 80);
        assert_memory_equal(wb_data(wb_dataset_y(back)), wb_data(wb_dataset_y(d)), 40);
        wb_dataset *alone = wb_to(wb_dataset_of(wb_dataset_x(d), WB_NONE), places[i]);
        assert_true(wb_is_none(wb_dataset_y(alone)));
        wb_dataset *empty = wb_to(wb_subset(d, 4, 4), places[i]);
        assert_int_equal(wb_size(wb_dataset_x(empty)), 0);
    }
}

TEST(tensors_of_a_device_stay_there)
{
    for (int i = 1; i < n_places; i++) IN_SCOPE {
        wb_tensor *x = wb_to(wb_ones(6, 2), places[i]), *v = wb_variable(x);
        wb_dataset *d = wb_dataset_of(v, WB_NONE);      /* a copy: a variable may change */
        assert_ptr_equal(wb_device_of(d), places[i]);
        assert_int_equal(wb_assign(v, wb_mul(v, wb_scalar(3))), 0);
        assert_true(wb_item(wb_sum(wb_dataset_x(d))) == 12);
        wb_dataset *made = wb_dataset_of(wb_add(x, x), WB_NONE);
        assert_ptr_equal(wb_device_of(made), places[i]);
        assert_true(wb_item(wb_sum(wb_dataset_x(made))) == 24);
        wb_tensor *near = wb_ones(6);
        REFUSED(wb_dataset_of(x, near), WB_ERROR_DEVICE, "dataset_of", "cpu:0");
    }
}

TEST(views_stay_views)
{
    for (int i = 1; i < n_places; i++) IN_SCOPE {
        wb_seed(4);
        wb_dataset *d = numbers(20), *a, *b;
        assert_int_equal(wb_splitobs(d, 0.7, &a, &b, .shuffle = true), 0);
        a = wb_subset(a, 2, 9);
        wb_dataset *there = wb_to(a, places[i]);
        assert_int_equal(there->kind, WB__DATA_VIEW);
        assert_int_equal(wb_dataset_length(there), 7);
        assert_ptr_equal(wb_to(there, places[i]), there);
        assert_memory_equal(wb_data(wb_dataset_y(there)), wb_data(wb_dataset_y(a)), 28);
        assert_memory_equal(wb_data(wb_dataset_x(there)), wb_data(wb_dataset_x(a)), 56);
        /* views are created on the device */
        wb_seed(4);
        wb_dataset *c, *e;
        assert_int_equal(wb_splitobs(wb_to(d, places[i]), 0.7, &c, &e, .shuffle = true), 0);
        assert_ptr_equal(wb_device_of(e), places[i]);
        assert_memory_equal(wb_data(wb_dataset_y(e)), wb_data(wb_dataset_y(b)), 24);
        wb_tensor *some = wb_dataset_y(wb_subset(wb_to(d, places[i]), 3, 6));
        assert_ptr_equal(wb_device_of(some), places[i]);
        assert_true(wb_item(wb_sum(wb_astype(some, WB_F32))) == 12);
    }
}

static int is_even(wb_batch b, void *ctx) { (void)ctx; return b.index % 2 == 0; }

TEST(joined_datasets_and_windows_stay_there)
{
    for (int i = 0; i < n_places; i++) IN_SCOPE {
        wb_dataset *d = numbers(9), *there = wb_to(d, places[i]);
        wb_dataset *near = wb_joinobs(wb_subset(d, 2, 5), d);
        wb_dataset *sets[] = {
            wb_joinobs(wb_subset(there, 2, 5), there), wb_to(near, places[i]),
            wb_slidingwindow(there, 3, 2), wb_to(wb_slidingwindow(d, 3, 2), places[i]),
            wb_obsview(wb_slidingwindow(there, 3, 2), 4, (int64_t[]){0, 1, 2, 3}),
            wb_obsview(wb_to(wb_slidingwindow(d, 3, 2), places[i]), 2, (int64_t[]){3, 0}),
        };
        static const double sums[] = {9 + 36, 9 + 36, 52 - 4, 52 - 4, 52 - 4, 24};
        for (size_t k = 0; k < WB__COUNT(sums); k++) {
            wb_tensor *y = wb_dataset_y(sets[k]);
            assert_ptr_equal(wb_device_of(y), places[i]);
            assert_true(wb_item(wb_sum(wb_astype(y, WB_F32))) == sums[k]);
        }
        assert_true(wb_at(wb_dataset_y(sets[5]), 0, 2) == 8);
        wb_tensor *x = wb_dataset_x(sets[3]);
        assert_true(wb_ndim(x) == 3 && wb_dim(x, 0) == 4 && wb_dim(x, 1) == 3);
        wb_dataset *few = wb_filterobs(there, is_even, NULL);
        assert_true(wb_at(wb_dataset_y(few), 2) == 4);
        assert_ptr_equal(wb_device_of(few), places[i]);
    }
}

TEST(maps_run_where_the_dataset_is)
{
    const wb_device *seen;
    for (int i = 0; i < n_places; i++) IN_SCOPE {
        seen = NULL;
        wb_dataset *d = wb_to(wb_mapobs(numbers(9), twice, &seen), places[i]);
        assert_int_equal(d->kind, WB__DATA_MAP);
        assert_ptr_equal(wb_device_of(d), places[i]);
        assert_true(wb_item(wb_sum(wb_dataset_x(d))) == 2 * (2 * 36 + 4.5));
        assert_ptr_equal(seen, places[i]);
        double sum = 0;
        wb_loader *l = wb_dataloader(d, .batchsize = 2, .shuffle = true);
        WB_EACH_BATCH(b, l) {
            assert_ptr_equal(wb_device_of(b.x), places[i]);
            sum += wb_item(wb_sum(b.x));
        }
        assert_true(sum == 2 * (2 * 36 + 4.5));
        assert_ptr_equal(seen, places[i]);
    }
}

TEST(a_function_is_read_out_once)
{
    for (int i = 1; i < n_places; i++) IN_SCOPE {
        wb_dataset *source = computed(30), *view = wb_subset(source, 10, 20);
        asked = 0;
        assert_ptr_equal(wb_to(source, places[0]), source);
        assert_int_equal(asked, 0);
        wb_dataset *there = wb_to(view, places[i]);
        assert_int_equal(asked, 30);
        int out[16];
        assert_int_equal(epoch_on(places[i], wb_dataloader(there, .batchsize = 4), out), 10);
        for (int k = 0; k < 10; k++) assert_int_equal(out[k], 10 + k);
        assert_int_equal(asked, 30);
    }
}

TEST_IN_SCOPE(dtypes)
{
    wb_dataset *d = wb_dataset_of(wb_from((double[]){0.1, 0.2}, WB_F64, 1, (int64_t[]){2}),
                                  wb_from((int64_t[]){1, 2}, WB_I64, 1, (int64_t[]){2}));
    assert_int_equal(wb_dtype_of(wb_dataset_x(wb_to(d, places[1]))), WB_F64);
    wb_dataset *f = wb_to(d, far_device());
    assert_int_equal(wb_dtype_of(wb_dataset_x(f)), WB_F32);
    assert_int_equal(wb_dtype_of(wb_dataset_y(f)), WB_I64);
    assert_int_equal(wb_dtype_of(wb_dataset_x(wb_cpu(f))), WB_F32);
    assert_int_equal(wb_dtype_of(wb_dataset_x(wb_to(f, far_device(), .dtype = WB_F16))), WB_F16);
    assert_int_equal(wb_dtype_of(wb_dataset_x(wb_to(d, places[0], .dtype = WB_F32))), WB_F32);
    REFUSED(wb_to(d, far_device(), .dtype = WB_DTYPE_KEEP), WB_ERROR_UNSUPPORTED, "far:0", "f64");
    wb_clear_error();

    /* the same for loaders: their batches have the dtype */
    wb_loader *l = wb_dataloader(d, .batchsize = 2);
    const struct { const wb_device *d; wb_dtype wanted, becomes; } all[] = {
        {places[1], 0, WB_F64}, {places[1], WB_F16, WB_F16}, {places[0], WB_F32, WB_F32},
        {places[0], WB_DTYPE_KEEP, WB_F64}, {far_device(), 0, WB_F32},
        {far_device(), WB_BF16, WB_BF16}};
    for (size_t i = 0; i < WB__COUNT(all); i++) {
        wb_loader *to = wb_to(l, all[i].d, .dtype = all[i].wanted);
        assert_true((to == l) == (all[i].becomes == WB_F64 && all[i].d == places[0]));
        WB_EACH_BATCH(b, to) {
            assert_int_equal(wb_dtype_of(b.x), all[i].becomes);
            assert_int_equal(wb_dtype_of(b.y), WB_I64);
            assert_true(fabs(wb_item(wb_sum(b.x)) - 0.3) < 0.01);
        }
        wb_loader *back = wb_cpu(to);
        WB_EACH_BATCH(b, back) assert_int_equal(wb_dtype_of(b.x), all[i].becomes);
        assert_ptr_equal(wb_to(to, all[i].d, .dtype = all[i].wanted), to);
    }
    REFUSED(wb_to(l, far_device(), .dtype = WB_DTYPE_KEEP), WB_ERROR_UNSUPPORTED, "far:0", "f64");
    REFUSED(wb_to(l, places[1], .dtype = WB_I8), WB_ERROR_DTYPE, "floating");
}

/* ---- batches of a dataset that was moved whole ----------------------------------------------- */

TEST(batches_are_gathered_on_the_device)
{
    for (int i = 1; i < n_places; i++)
        for (int shuffle = 0; shuffle < 2; shuffle++)
            for (int drop = 0; drop < 2; drop++) IN_SCOPE {
                int want[32], got[32];
                wb_dataset *d = numbers(23), *there = wb_to(d, places[i]);
                wb_loader *near = wb_dataloader(d, 5, shuffle, .drop_last = drop, .seed = 8);
                wb_loader *l = wb_dataloader(there, 5, shuffle, .drop_last = drop, .seed = 8);
                assert_ptr_equal(wb_device_of(l), places[i]);
                assert_ptr_equal(wb_to(l, places[i]), l);
                for (int epoch = 0; epoch < 3; epoch++) {
                    int n = epoch_on(places[0], near, want);
                    assert_int_equal(n, drop ? 20 : 23);
                    assert_int_equal(epoch_on(places[i], l, got), n);
                    assert_memory_equal(got, want, (size_t)n * sizeof(int));
                }
                assert_int_equal(epoch_on(places[0], wb_cpu(l), got), drop ? 20 : 23);
            }
}

TEST_IN_SCOPE(nothing_comes_to_the_host_meanwhile)
{
    wb_dataset *d = wb_to(numbers(240), far_device());
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        wb_loader *l = wb_dataloader(d, .batchsize = 48, .shuffle = shuffle);
        far_forget();
        for (int epoch = 0; epoch < 2; epoch++) WB_EACH_BATCH(b, l) assert_int_equal(b.n, 48);
        const far_counts c = far_count();
        assert_int_equal(c.downloads, 0);
        assert_int_equal(c.up_bytes, shuffle ? 2 * 240 * 4 : 0);    /* only the order is uploaded */
        assert_int_equal(c.copies, shuffle ? 0 : 2 * 2 * 5);
    }
}

int main(void) { return run_everywhere(places, &n_places); }
