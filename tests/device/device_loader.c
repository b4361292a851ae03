/* Loaders on devices: batches are uploaded ahead of their use, and a batch that the program
 * keeps is never overwritten; training with them.  Datasets are tested in device_data.c. */
#include "device_numbers.h"

#include "engine/request.h"

#include <unistd.h>

/* ---- loaders --------------------------------------------------------------------------------- */

/* Each epoch has a new order, which is the order of the original loader. */
TEST(a_loader_keeps_its_options)
{
    for (int i = 1; i < n_places; i++)
        for (int ahead = 0; ahead < 4; ahead++) IN_SCOPE {
            int want[3][32], got[32];
            char text[96];
            wb_loader *near = wb_dataloader(numbers(23), .batchsize = 4, .shuffle = true,
                                            .drop_last = true, .ahead = ahead);
            wb_loader *l = wb_to(near, places[i]);
            assert_true(l != near);
            assert_ptr_equal(wb_device_of(near), places[0]);
            assert_ptr_equal(wb_device_of(l), places[i]);
            assert_ptr_equal(wb_to(l, places[i]), l);
            assert_int_equal(wb_loader_length(l), 5);
            snprintf(text, sizeof text, "DataLoader(5 batches of 4, shuffled, on %s:%d)",
                     places[i]->backend->tag, places[i]->ordinal);
            assert_shows(l, text);
            for (int epoch = 0; epoch < 3; epoch++) {
                assert_int_equal(wb_loader_epoch(l), epoch);
                assert_int_equal(epoch_on(places[0], near, want[epoch]), 20);
                assert_int_equal(epoch_on(places[i], l, got), 20);
                assert_memory_equal(got, want[epoch], 20 * sizeof(int));
            }
            assert_memory_not_equal(want[0], want[1], 20 * sizeof(int));
            assert_memory_not_equal(want[1], want[2], 20 * sizeof(int));
        }
}

/* A loader is moved in the middle of an epoch: it and the original continue with the next batch. */
TEST(a_loader_keeps_its_place)
{
    for (int i = 1; i < n_places; i++) IN_SCOPE {
        int whole[2][32], got[32], some[8];
        wb_loader *l = wb_dataloader(numbers(23), .batchsize = 4, .shuffle = true, .seed = 5);
        for (int epoch = 0; epoch < 2; epoch++) epoch_on(places[0], l, whole[epoch]);
        l = wb_dataloader(numbers(23), .batchsize = 4, .shuffle = true, .seed = 5);
        epoch_on(places[0], l, got);
        wb_batch b;
        for (int k = 0; k < 3; k++) assert_true(wb_loader_next(l, &b));
        wb_loader *moved = wb_keep(wb_to(l, places[i]));      /* out of the batch's scope */
        assert_int_equal(wb_loader_epoch(moved), 1);
        assert_true(wb_loader_next(moved, &b) && b.index == 3);
        read_batch(b, some);
        assert_memory_equal(some, whole[1] + 12, 16);
        assert_true(wb_loader_next(l, &b) && b.index == 3);         /* the original too */
        read_batch(b, got);
        assert_memory_equal(some, got, 16);
        assert_int_equal(wb_loader_stop(l) | wb_loader_stop(moved), 0);
    }
}

/* All batches of two epochs are kept and read afterwards. */
TEST(kept_batches_stay_what_they_are)
{
    for (int i = 1; i < n_places; i++)
        for (int whole = 0; whole < 2; whole++) {       /* uploaded; gathered on the device */
            wb_scope *s = wb_scope_open();
            wb__cache_clear();                          /* plans own device memory */
            const int64_t held = far_held();
            wb_batch kept[12];
            int want[2][64], got[64], n = 0;
            wb_dataset *d = numbers(23);
            wb_loader *near = wb_dataloader(d, .batchsize = 4, .shuffle = true, .seed = 3), *l;
            if (whole)
                l = wb_dataloader(wb_to(d, places[i]), .batchsize = 4, .shuffle = true, .seed = 3);
            else l = wb_to(near, places[i]);
            for (int epoch = 0; epoch < 2; epoch++) {
                epoch_on(places[0], near, want[epoch]);
                WB_EACH_BATCH(b, l) {
                    kept[n] = b;
                    kept[n].x = wb_keep(b.x);
                    kept[n++].y = wb_keep(b.y);
                }
            }
            assert_int_equal(n, 12);
            wb_free(l);
            for (int k = 0, at = 0; k < n; at += (int)kept[k++].n) read_batch(kept[k], got + at);
            assert_memory_equal(got, want[0], 23 * sizeof(int));
            assert_memory_equal(got + 23, want[1], 23 * sizeof(int));
            assert_int_equal(wb_scope_close(s), 0);
            wb__cache_clear();
            assert_int_equal(far_held(), held);
        }
}

TEST(batches_go_ahead_of_their_use)
{
    for (int ahead = 1; ahead < 4; ahead++) IN_SCOPE {
        wb_loader *l =
            wb_to(wb_dataloader(numbers(40), .batchsize = 4, .ahead = ahead), far_device());
        far_forget();
        wb_batch b;
        assert_true(wb_loader_next(l, &b));
        const int64_t want = 2 * (1 + ahead);           /* x and y */
        for (int k = 0; k < 5000 && far_count().uploads < want; k++) usleep(1000);
        assert_int_equal(far_count().uploads, want);
        usleep(20000);
        assert_int_equal(far_count().uploads, want);    /* no batch beyond `ahead` */
        assert_int_equal(wb_loader_stop(l), 0);
    }
}

TEST(device_memory_is_flat)
{
    for (int whole = 0; whole < 2; whole++) IN_SCOPE {
        wb_dataset *d = numbers(250);
        wb_loader *l =
            whole ? wb_dataloader(wb_to(d, far_device()), .batchsize = 20, .shuffle = true)
                  : wb_to(wb_dataloader(d, .batchsize = 20, .shuffle = true), far_device());
        int64_t device = 0, host = 0;
        for (int epoch = 0; epoch < 60; epoch++) {
            WB_EACH_BATCH(b, l) assert_ptr_equal(wb_device_of(b.x), far_device());
            if (epoch == 9) device = far_held(), host = wb_memory_used();
        }
        assert_int_equal(far_held(), device);
        /* this thread keeps small blocks of the prefetcher in a list of bounded length */
        assert_true(wb_memory_used() - host < 50 * 13 * 4096);
    }
}

/* Mapped functions receive the batch on the host, and the loader moves their result. */
TEST(functions_come_before_the_move)
{
    const wb_device *seen, *seen_last;
    for (int i = 1; i < n_places; i++) IN_SCOPE {
        seen = seen_last = NULL;
        wb_loader *l = wb_to(wb_dataloader(wb_mapobs(computed(10), twice, &seen), .batchsize = 4,
                                           .collate = twice, .collate_ctx = &seen_last),
                             places[i]);
        double sum = 0;
        WB_EACH_BATCH(b, l) {
            assert_ptr_equal(wb_device_of(b.x), places[i]);
            assert_ptr_equal(wb_device_of(b.y), places[i]);
            sum += wb_item(wb_sum(b.x));
        }
        assert_true(sum == 4 * (2 * 45 + 5));
        assert_ptr_equal(seen, places[0]);
        assert_ptr_equal(seen_last, places[0]);
        assert_ptr_equal(wb_to(l, places[i]), l);
    }
}

/* DataLoader(mapobs(gpu, data)) in Flux, which gives the same batches as gpu(DataLoader(data)). */
static int move_batch(wb_batch *b, void *ctx)
{
    *b = wb_to(*b, (const wb_device *)ctx);
    return b->x ? 0 : 1;
}

TEST(a_map_may_move_batches_itself)
{
    for (int i = 1; i < n_places; i++) IN_SCOPE {
        int want[32], got[32];
        wb_dataset *d = numbers(11);
        wb_dataset *m = wb_mapobs(d, move_batch, (void *)(uintptr_t)places[i]);
        epoch_on(places[0], wb_dataloader(d, .batchsize = 3, .shuffle = true, .seed = 2), want);
        assert_int_equal(
            epoch_on(places[i], wb_dataloader(m, .batchsize = 3, .shuffle = true, .seed = 2), got),
            11);
        assert_memory_equal(got, want, 11 * sizeof(int));
    }
}

/* The default device, on which new tensors are created, does not affect moves and batches, and no
 * move, failed or not, changes it. */
TEST(the_default_device_has_no_part_in_it)
{
    for (int i = 0; i < n_places; i++)
        for (int ahead = 0; ahead < 2; ahead++) IN_SCOPE {
            int out[16];
            wb_dataset *d = numbers(9);
            wb_layer *m = wb_Dense(2, 1);
            wb_set_default_device(places[i]);
            wb_loader *l = wb_dataloader(d, .batchsize = 4, .ahead = ahead);
            assert_int_equal(epoch_on(places[0], l, out), 9);
            assert_ptr_equal(wb_device_of(wb_setup(wb_Adam(), m)), places[0]);
            assert_ptr_equal(wb_device_of(wb_dataset_x(wb_subset(d, 2, 5))), places[0]);
            for (int j = 0; j < n_places; j++) {
                assert_int_equal(epoch_on(places[j], wb_to(l, places[j]), out), 9);
                wb_dataset *there = wb_to(d, places[j]);
                wb_loader *whole = wb_dataloader(there, .batchsize = 4, .shuffle = true);
                assert_int_equal(epoch_on(places[j], whole, out), 9);
                assert_ptr_equal(wb_device_of(wb_setup(wb_Adam(), wb_to(m, places[j]))), places[j]);
                assert_ptr_equal(wb_default_device(), places[i]);
            }
            far_fail_at(2);
            wb_to(d, far_device());
            far_fail_at(0);
            wb_clear_error();
            assert_ptr_equal(wb_default_device(), places[i]);
            wb_set_default_device(NULL);
        }
}

TEST_IN_SCOPE(without_a_gpu_everything_comes_back)
{
    wb_dataset *d = numbers(8);
    wb_loader *l = wb_dataloader(d, .batchsize = 4);
    wb_opt_state *o = wb_setup(wb_Adam(), wb_Dense(2, 1));
    const bool gpu = wb_device_is_gpu(wb_gpu_device());
    assert_true((wb_gpu(d) == d) == !gpu);
    assert_true((wb_gpu(l) == l) == !gpu);
    assert_true((wb_gpu(o) == o) == !gpu);
    assert_ptr_equal(wb_device_of(wb_gpu(l)), wb_gpu_device());
    WB_EACH_BATCH(b, l) {
        wb_batch moved = wb_gpu(b);
        assert_true((moved.x == b.x) == !gpu);
        assert_ptr_equal(wb_device_of(moved.x), wb_gpu_device());
    }
}

TEST(loaders_do_not_go_into_tuples)
{
    wb_loader *l = wb_dataloader(numbers(4));
    assert_null(wb_tuple_array(2, (void *[]){l, l}));
    FAILED(WB_ERROR_ARGUMENT, "tuple", "element", "0", "loader", "tensors", "trees", "wb_gpu");
    wb_tensor *x = wb_ones(1);
    assert_null(wb_tuple_array(2, (void *[]){x, wb_dataset_of(x, WB_NONE)}));
    FAILED(WB_ERROR_ARGUMENT, "tuple", "element", "1", "dataset");
}

TEST(one_hot_batches_of_labels_there)
{
    for (int i = 0; i < n_places; i++) IN_SCOPE {
        wb_loader *l = wb_to(wb_dataloader(numbers(3), .batchsize = 3), places[i]);
        WB_EACH_BATCH(b, l) {
            wb_tensor *hot = wb_onehotbatch(b.y, 4);
            assert_ptr_equal(wb_device_of(hot), places[i]);
            float values[12], want[12] = {[0] = 1, [5] = 1, [10] = 1};
            assert_int_equal(wb_copy_out(hot, values, sizeof values), 0);
            assert_memory_equal(values, want, sizeof want);
            assert_true(wb_item(wb_sum(wb_to(hot, places[0]))) == 3);
        }
    }
}

/* ---- training -------------------------------------------------------------------------------- */

static wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    wb_tensor *y = wb_astype(wb_unsqueeze(b.y, 1), WB_F32);
    return wb_mean(wb_square(wb_sub(wb_call(m, b.x), wb_div(y, wb_scalar(16)))));
}

/* The loss of a batch that the program moves itself, as in Flux's guides. */
static wb_tensor *moving_loss(wb_layer *m, wb_batch b, void *ctx)
{
    return loss_of(m, wb_to(b, (const wb_device *)ctx), ctx);
}

static wb_layer *trained(const wb_device *d, int style, const char *checkpoint)
{
    wb_seed(1);
    wb_layer *m = wb_to(wb_Dense(2, 1), d);
    wb_dataset *data = numbers(16);
    wb_loader *l =
        style == 2 ? wb_dataloader(wb_to(data, d), .batchsize = 5, .shuffle = true, .seed = 9)
                   : wb_dataloader(data, .batchsize = 5, .shuffle = true, .seed = 9);
    if (style == 1) l = wb_to(l, d);
    wb_opt_state *o = wb_setup(wb_Adam(.eta = 0.01), m);
    if (wb_train(style ? loss_of : moving_loss, m, l, o, .epochs = 4, .ctx = (void *)(uintptr_t)d,
                 .checkpoint = checkpoint))
        fail_msg("%s", wb_error());
    return wb_cpu(m);
}

/* The three ways of Flux's guides: the program moves each batch, the loader moves them, or all data
 * are moved first. */
TEST(three_ways_to_train)
{
    for (int i = 0; i < n_places; i++)
        for (int style = 0; style < 3; style++) IN_SCOPE {
            const float *want = wb_data(wb_get(trained(places[0], 1, NULL), "weight"));
            const float *got = wb_data(wb_get(trained(places[i], style, NULL), "weight"));
            for (int k = 0; k < 2; k++)
                assert_true(same_bits(places[i]) ? got[k] == want[k]
                                                 : fabsf(got[k] - want[k]) < 1e-5f);
        }
}

TEST(a_checkpoint_knows_the_place_of_a_moved_loader)
{
    const char *path = test_file("data");
    for (int i = 0; i < n_places; i++) IN_SCOPE {
        int want[32], got[32];
        wb_loader *l = wb_to(wb_dataloader(numbers(16), .batchsize = 5, .shuffle = true, .seed = 9),
                             places[i]);
        wb_batch b;
        epoch_on(places[i], l, want);
        for (int k = 0; k < 2; k++) assert_true(wb_loader_next(l, &b));
        assert_int_equal(wb_save_checkpoint(path, &(wb_checkpoint){.loader = l}), 0);
        assert_true(wb_loader_next(l, &b));
        read_batch(b, want);
        assert_int_equal(wb_loader_stop(l), 0);
        wb_loader *again = wb_to(wb_dataloader(numbers(16), .batchsize = 5, .shuffle = true),
                                 places[(i + 1) % n_places]);
        assert_int_equal(wb_load_checkpoint(path, &(wb_checkpoint){.loader = again}), 0);
        assert_int_equal(wb_loader_epoch(again), 1);
        assert_true(wb_loader_next(again, &b) && b.index == 2);
        read_batch(b, got);
        assert_memory_equal(got, want, 5 * sizeof(int));
        assert_int_equal(wb_loader_stop(again), 0);
    }
    unlink(path);
}

TEST(progress_takes_losses_from_anywhere)
{
    for (int i = 0; i < n_places; i++) IN_SCOPE {
        wb_clear_error();
        wb_layer *m = wb_to(wb_Dense(2, 1), places[i]);
        wb_loader *l = wb_to(wb_dataloader(numbers(16), .batchsize = 4), places[i]);
        wb_progress *p = wb_progress_begin(l, "on %s", wb_device_describe(places[i]));
        WB_EACH_BATCH(b, l) wb_progress_step(p, "loss", loss_of(m, b, NULL));
        wb_progress_end(p);
        assert_int_equal(wb_error_code(), 0);
    }
}

TEST(a_loader_elsewhere_is_an_error)
{
    for (int i = 1; i < n_places; i++) IN_SCOPE {
        char there[64];
        wb_layer *m = wb_to(wb_Dense(2, 1), places[i]);
        wb_opt_state *o = wb_setup(wb_Descent(), m);
        wb_loader *l = wb_dataloader(numbers(8), .batchsize = 4);
        assert_int_equal(wb_train(loss_of, m, l, o), WB_ERROR_DEVICE);
        snprintf(there, sizeof there, "%s:%d", places[i]->backend->tag, places[i]->ordinal);
        FAILED(WB_ERROR_DEVICE, "model", there, "loader", "cpu:0", "wb_to", "wb_device_of");
        assert_int_equal(wb_train(loss_of, m, wb_to(l, wb_device_of(m)), o), 0);
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

/* The n-th allocation, or call of the device, fails during the move and two epochs: this is an
 * error, and the loader then returns the rest of the data unchanged. */
static void failing_epochs(void (*fail_at)(int64_t), const char *what, bool whole, int ahead)
{
    int failures = 0, want[32], got[32];
    wb__cache_clear();
    const int64_t held = far_held();
    for (int64_t n = 1;; n++) {
        wb_scope *s = wb_scope_open();
        wb_dataset *d = numbers(10);
        wb_loader *near = wb_dataloader(d, 4, true, .seed = 7, .ahead = ahead), *l = NULL;
        const int before = failures;
        fail_at(n);
        if (whole) l = wb_dataloader(wb_to(d, far_device()), 4, true, .seed = 7, .ahead = ahead);
        else l = wb_to(near, far_device());
        if (!l) failures++;
        for (int epoch = 0; l && epoch < 2; epoch++) {
            WB_EACH_BATCH(b, l) assert_ptr_equal(wb_device_of(b.y), far_device());
            if (!wb_loader_status(l)) continue;
            failures++;
            assert_true(wb_error()[0]);
            assert_int_equal(wb_loader_epoch(l), epoch + 1);
        }
        fail_at(0);
        if (failures != before && !wb_error()[0]) fail_msg("%s %d failed in silence", what, (int)n);
        wb_clear_error();
        if (!l) l = wb_to(near, far_device());
        for (int64_t epoch = wb_loader_epoch(l); epoch; epoch--) epoch_on(places[0], near, want);
        epoch_on(places[0], near, want);
        epoch_on(far_device(), l, got);
        assert_memory_equal(got, want, 10 * sizeof(int));
        assert_int_equal(wb_scope_close(s), 0);
        wb__cache_clear();
        if (far_held() != held)
            fail_msg("%s %d: %d bytes are left", what, (int)n, (int)(far_held() - held));
        if (failures == before) break;
    }
    assert_true(failures > 5);
    print_message("%s, %s, %d ahead: %d places\n", what, whole ? "whole" : "batches",
                  WB__MAX(ahead, 0), failures);
}

TEST(failing_allocations)
{
    for (int k = 0; k < 4; k++)
        failing_epochs(wb__alloc_fail_at, "allocation", k & 1, k & 2 ? 0 : 2);
}

TEST(failing_calls)
{
    for (int k = 0; k < 4; k++)
        failing_epochs(far_fail_at, "call", k & 1, k & 2 ? 0 : 2);
}

static int fail_late(wb_batch *b, void *ctx)
{
    return b->index == 2 ? wb__fail(WB_ERROR_ARGUMENT, "this one is bad") : 0;
}

TEST(a_failure_names_its_batch)
{
    for (int i = 1; i < n_places; i++) {
        wb_scope *s = wb_scope_open();
        int n = 0;
        wb_loader *l =
            wb_to(wb_dataloader(numbers(16), .batchsize = 4, .collate = fail_late), places[i]);
        WB_EACH_BATCH(b, l) n++;
        assert_int_equal(n, 2);
        assert_int_equal(wb_loader_status(l), WB_ERROR_ARGUMENT);
        FAILED(WB_ERROR_ARGUMENT, "batch", "2", "collate", "this one is bad");
        assert_int_equal(wb_scope_close(s), 0);
        wb_clear_error();
    }
}

int main(void) { return run_everywhere(places, &n_places); }
