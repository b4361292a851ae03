/* Loaders over data without labels, and functions of the program that use the loader that calls
 * them. */
#include "device_numbers.h"

#include <unistd.h>

static int leave(wb_batch *batch, void *ctx)
{
    return 0;
}

static int drop_labels(wb_batch *batch, void *ctx)
{
    batch->y = WB_NONE;
    return 0;
}

static int add_noise(wb_batch *batch, void *ctx)
{
    batch->x = wb_add(batch->x, wb_randn(batch->n, 3));
    return batch->x == NULL;
}

/* The loader has two epochs of four batches without labels, on device d. */
static void expect_batches(wb_loader *l, const wb_device *d)
{
    assert_non_null(l);
    for (int epoch = 0; epoch < 2; epoch++) {
        int n = 0;
        WB_EACH_BATCH(b, l) {
            assert_true(wb_is_none(b.y));
            assert_ptr_equal(wb_device_of(b.x), d);
            assert_int_equal(wb_dim(b.x, 0), n < 3 ? 2 : 1);
            assert_true(isfinite(wb_at(b.x, 0, 2)));
            n++;
        }
        if (wb_loader_status(l)) fail_msg("%s", wb_error());
        assert_int_equal(n, 4);
    }
}

TEST(functions_of_batches_without_labels)
{
    const wb_collate functions[] = {leave, drop_labels, add_noise};
    for (size_t f = 0; f < WB__COUNT(functions); f++)
        for (int labels = 0; labels <= (f == 1); labels++)
            for (int ahead = 0; ahead < 3; ahead += 2) IN_SCOPE {
                wb_dataset *d = wb_dataset_of(wb_rand(7, 3), labels ? wb_rand(7, 1) : WB_NONE);
                wb_loader *l = wb_dataloader(d, .batchsize = 2, .ahead = ahead,
                                             .collate = functions[f]);
                expect_batches(l, places[0]);
                l = wb_dataloader(wb_mapobs(d, functions[f], NULL), .batchsize = 2, .ahead = ahead);
                expect_batches(l, places[0]);
            }
}

TEST(batches_without_labels_are_moved)
{
    for (int i = 1; i < n_places; i++)
        for (int mapped = 0; mapped < 2; mapped++) IN_SCOPE {
            wb_dataset *d = wb_dataset_of(wb_rand(7, 3), WB_NONE);
            if (mapped) d = wb_mapobs(d, leave, NULL);
            expect_batches(wb_to(wb_dataloader(d, .batchsize = 2), places[i]), places[i]);
            expect_batches(wb_dataloader(wb_to(d, places[i]), .batchsize = 2), places[i]);
        }
}

/* Functions that return WB_NONE add it to no scope, so that its number of references is
 * constant. */
TEST(none_belongs_to_no_scope)
{
    const uint32_t refs = wb__refs(WB_NONE);
    wb_scope *s = wb_scope_open();
    wb_dataset *d = wb_dataset_of(wb_ones(2, 2), WB_NONE);
    wb_layer *l = wb_Dense(2, 2, .bias = false);
    for (int i = 0; i < 10; i++) {
        assert_true(wb_is_none(wb_dataset_y(d)));
        assert_true(wb_is_none(wb_get(l, "bias")));
        wb_release(wb_retain(WB_NONE));
    }
    assert_int_equal(wb_scope_close(s), 0);
    assert_int_equal(wb__refs(WB_NONE), refs);
}

/* ---- functions that use their own loader ----------------------------------------------------- */

static wb_loader *own;

static int advance_own(wb_batch *batch, void *ctx)
{
    wb_batch other;
    return wb_loader_next(own, &other) ? 0 : (int)wb_error_code();
}

static int stop_own(wb_batch *batch, void *ctx)
{
    return wb_loader_stop(own);
}

TEST(a_function_must_not_use_its_own_loader)
{
    alarm(60);                                          /* a deadlock ends the program */
    for (int ahead = 0; ahead < 2; ahead++)
        for (int stops = 0; stops < 2; stops++) IN_SCOPE {
            own = wb_dataloader(numbers(6), .batchsize = 2, .ahead = ahead,
                                .collate = stops ? stop_own : advance_own);
            wb_batch b;
            wb_clear_error();
            assert_false(wb_loader_next(own, &b));
            assert_int_equal(wb_loader_status(own), WB_ERROR_ARGUMENT);
            FAILED(WB_ERROR_ARGUMENT, stops ? "loader_stop" : "loader_next", ".collate");
        }
    alarm(0);
}

int main(void) { return run_everywhere(places, &n_places); }
