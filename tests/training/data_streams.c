/* Streams: datasets of unknown length, which a function of the program gives one observation after
 * the other. */
#include "device_numbers.h"

#include "weber/layers.h"
#include "weber/train.h"

#include <sys/wait.h>
#include <unistd.h>

/* A stream of the numbers 0 .. length-1, which fails at observation `fail_at`. */
typedef struct {
    int at, length, fail_at, fail_epoch, restarts, calls;
    int64_t epoch;
    atomic_int inside;
    bool met, message;
} numbers_from;

static int next_number(void *const *fields, void *ctx)
{
    numbers_from *s = ctx;
    s->met |= atomic_fetch_add(&s->inside, 1) > 0;
    const int i = s->at++;
    s->calls++;
    usleep(i % 16 == 0 ? 200 : 0);
    int code = i < s->length;
    if (i < s->length) {
        ((float *)fields[0])[0] = (float)i;
        ((float *)fields[0])[1] = (float)i + 0.5f;
        if (fields[1]) *(int32_t *)fields[1] = i;
        if (fields[2]) *(double *)fields[2] = -i;
    }
    if (i == s->fail_at && s->message) wb_add(wb_zeros(2), wb_zeros(3));
    if (i == s->fail_at) code = s->message ? (int)wb_error_code() : -4;
    atomic_fetch_sub(&s->inside, 1);
    return code;
}

static int begin_again(int64_t epoch, void *ctx)
{
    numbers_from *s = ctx;
    s->restarts++;
    s->epoch = epoch;
    s->at = 0;
    return epoch == s->fail_epoch ? 9 : 0;
}

static wb_dataset *stream_of(numbers_from *s, int length)
{
    *s = (numbers_from){.length = length, .fail_at = -1, .fail_epoch = -1};
    return wb_dataset_from(&(wb_dataset_source){.size = sizeof(wb_dataset_source), .x_ndim = 1,
                                                .x_dims = {2}, .y_dtype = WB_I32, .n_more = 1,
                                                .more_dtype = {WB_F64}, .next = next_number,
                                                .restart = begin_again, .ctx = s});
}

static const struct { int workers, ahead; } runs[] = {{1, 0}, {1, 2}, {2, 2}, {5, 7}};

TEST(a_stream_is_read_to_its_end)
{
    numbers_from source;
    for (size_t r = 0; r < WB__COUNT(runs); r++)
        for (int n = 0; n < 10; n++)
            for (int drop = 0; drop < 2; drop++) IN_SCOPE {
                int out[16];
                wb_dataset *d = stream_of(&source, n);
                wb_loader *l = wb_dataloader(d, 3, .drop_last = drop, .ahead = runs[r].ahead,
                                             .workers = runs[r].workers);
                wb_clear_error();
                assert_int_equal(wb_loader_length(l), -1);
                assert_int_equal(wb_dataset_length(d), -1);
                assert_int_equal(wb_error_code(), 0);
                for (int epoch = 0; epoch < 3; epoch++) {
                    assert_int_equal(wb_loader_epoch(l), epoch);
                    assert_int_equal(epoch_on(places[0], l, out), drop ? n / 3 * 3 : n);
                    for (int i = 0; i < (drop ? n / 3 * 3 : n); i++) assert_int_equal(out[i], i);
                    assert_int_equal(source.restarts, epoch + 1);
                    assert_int_equal(source.epoch, epoch);
                }
                assert_false(source.met);
            }
}

TEST_IN_SCOPE(further_fields_and_descriptions)
{
    numbers_from source;
    wb_dataset *d = stream_of(&source, 5);
    int n = 0;
    WB_EACH_BATCH(b, wb_dataloader(d, 2))
        for (int i = 0; i < b.n; i++, n++) assert_true(wb_at(wb_batch_get(b, "2"), i) == -n);
    assert_int_equal(n, 5);
    assert_shows(d, "Dataset(stream: x [2] f32, y [] i32, 2 [] f64)");
    assert_shows(wb_dataloader(d, 2), "DataLoader(stream in batches of 2)");
}

/* An observation comes at most .buffer - 1 places before its place in the stream. */
TEST(a_buffer_shuffles_a_stream)
{
    numbers_from source;
    int first[2][64], again[2][64];
    for (size_t r = 0; r < WB__COUNT(runs); r++) IN_SCOPE {
        wb_loader *l = wb_dataloader(stream_of(&source, 50), 7, true, .buffer = 8, .seed = 2,
                                     .ahead = runs[r].ahead, .workers = runs[r].workers);
        for (int epoch = 0; epoch < 2; epoch++) {
            int *out = r ? again[epoch] : first[epoch], seen[64] = {0}, moved = 0;
            assert_int_equal(epoch_on(places[0], l, out), 50);
            for (int i = 0; i < 50; i++) {
                assert_int_equal(seen[out[i]]++, 0);
                assert_true(out[i] < i + 8);
                moved += out[i] != i;
            }
            assert_true(moved > 25);
            if (r) assert_memory_equal(first[epoch], again[epoch], 50 * sizeof(int));
        }
        assert_memory_not_equal(first[0], first[1], 50 * sizeof(int));
    }
    /* With a buffer for the whole stream each number comes first about equally often. */
    int count[4] = {0};
    wb_scope *s = wb_scope_open();
    wb_loader *l = wb_dataloader(stream_of(&source, 4), 4, true, .buffer = 100, .seed = 1);
    for (int epoch = 0; epoch < 400; epoch++) {
        epoch_on(places[0], l, first[0]);
        count[first[0][0]]++;
    }
    for (int i = 0; i < 4; i++) assert_in_range(count[i], 65, 135);
    wb_scope_close(s);
}

static int noisy(wb_batch *b, void *ctx)
{
    b->x = wb_add(b->x, wb_randn(1, 2));
    return wb_error_code();
}

TEST(a_place_in_a_stream_is_restored)
{
    numbers_from source[2];
    for (size_t r = 0; r < WB__COUNT(runs); r++)
        for (int k = 0; k <= 4; k++) IN_SCOPE {
            wb_loader *l = wb_dataloader(wb_mapobs_each(stream_of(&source[0], 10), noisy, NULL), 3,
                                         true, .buffer = 4, .seed = 2);
            wb_loader *m = wb_dataloader(wb_mapobs_each(stream_of(&source[1], 10), noisy, NULL), 3,
                                         true, .buffer = 4, .seed = 3, .ahead = runs[r].ahead,
                                         .workers = runs[r].workers);
            wb_batch b, c;
            WB_EACH_BATCH(first, l) assert_int_equal(first.names != NULL, true);
            for (int i = 0; i < k; i++) assert_true(wb_loader_next(l, &b));
            uint64_t place[WB__LOADER_WORDS];
            wb__loader_state(l, place);
            WORKS(wb__loader_restore(m, place));
            wb_loader *n = wb_dataloader(stream_of(&source[1], 10), 3, true, .buffer = 5);
            assert_int_equal(wb__loader_restore(n, place), k ? WB_ERROR_ARGUMENT : 0);
            if (k) FAILED(WB_ERROR_ARGUMENT, "loader", "buffer = 4", "buffer = 5");
            wb_clear_error();
            for (int i = 0; i < 9; i++) {
                const bool more = wb_loader_next(l, &b);
                assert_int_equal(more, wb_loader_next(m, &c));
                assert_int_equal(wb_loader_epoch(l), wb_loader_epoch(m));
                if (!more) continue;
                assert_true(b.index == c.index && b.n == c.n);
                assert_memory_equal(wb_data(b.x), wb_data(c.x), (size_t)b.n * 8);
            }
        }
}

TEST(failures_of_a_stream)
{
    numbers_from source;
    for (size_t r = 0; r < WB__COUNT(runs); r++)
        for (int buffer = 0; buffer < 5; buffer += 4) IN_SCOPE {
            int out[32];
            wb_dataset *d = stream_of(&source, 20);
            wb_loader *l = buffer ? wb_dataloader(d, 3, true, .buffer = buffer, .seed = 1,
                                                  .workers = runs[r].workers)
                                  : wb_dataloader(d, 3, .ahead = runs[r].ahead,
                                                  .workers = runs[r].workers);
            source.fail_at = 10;
            int n = 0;
            WB_EACH_BATCH(b, l) n += (int)b.n;
            assert_int_equal(n, buffer ? 6 : 9);
            assert_int_equal(wb_loader_status(l), -4);
            FAILED(-4, "batch", "observation 10", "-4");
            source.message = true;
            WB_EACH_BATCH(b, l) (void)b;
            assert_int_equal(wb_loader_status(l), WB_ERROR_SHAPE);
            FAILED(WB_ERROR_SHAPE, "observation 10", "[2]", "[3]");
            source.fail_at = -1;
            source.fail_epoch = 2;
            WB_EACH_BATCH(b, l) fail_msg("a batch after .restart has failed");
            assert_int_equal(wb_loader_status(l), 9);
            FAILED(9, "batch 0", ".restart", "9");
            assert_int_equal(epoch_on(places[0], l, out), 20);
        }
}

TEST(one_loader_at_a_time_reads_a_stream)
{
    numbers_from source;
    for (size_t r = 0; r < WB__COUNT(runs); r++) IN_SCOPE {
        int out[32];
        wb_batch b;
        wb_dataset *d = stream_of(&source, 20);
        wb_loader *l = wb_dataloader(d, 4, .ahead = runs[r].ahead, .workers = runs[r].workers);
        wb_loader *m = wb_dataloader(d, 5, .ahead = runs[r].ahead);
        assert_true(wb_loader_next(l, &b) && wb_loader_next(l, &b));
        REFUSED(wb_loader_next(m, &b), WB_ERROR_ARGUMENT, "loader", "stream");
        assert_int_equal(wb_loader_status(m), WB_ERROR_ARGUMENT);
        assert_true(wb_loader_next(l, &b) && wb_at(b.y, 0) == 8);
        WORKS(wb_loader_stop(l));
        assert_int_equal(epoch_on(places[0], m, out), 20);
        assert_true(wb_loader_next(l, &b) && wb_at(b.y, 0) == 0);
        wb_object_free(l);                              /* frees the stream too */
        wb_loader_stop(m);
    }
}

TEST(moved_loaders_go_on_in_their_stream)
{
    numbers_from source;
    for (int i = 1; i < n_places; i++) IN_SCOPE {
        int out[32], n = 0;
        wb_batch b;
        wb_loader *l = wb_dataloader(stream_of(&source, 11), 2, .workers = 2);
        assert_true(wb_loader_next(l, &b) && wb_loader_next(l, &b));
        wb_loader *there = wb_keep(wb_to(l, places[i]));
        MADE(there);
        WORKS(wb_loader_stop(l));
        while (wb_loader_next(there, &b)) {
            assert_ptr_equal(wb_device_of(b.x), places[i]);
            read_batch(b, out + n);
            n += (int)b.n;
        }
        if (wb_loader_status(there)) fail_msg("%s", wb_error());
        assert_int_equal(n, 7);
        assert_int_equal(out[0], 4);
        REFUSED(wb_to(stream_of(&source, 3), places[i]), WB_ERROR_UNSUPPORTED, "stream", "loader");
    }
}

static int any(wb_batch b, void *ctx) { return 1; }

TEST_IN_SCOPE(what_a_stream_cannot_do)
{
    numbers_from source;
    wb_dataset *d = wb_mapobs(stream_of(&source, 9), noisy, NULL), *a, *b, *part[2];
    const int u = WB_ERROR_UNSUPPORTED;
    REFUSED(wb_subset(d, 0, 0), u, "subset", "stream");
    REFUSED(wb_shuffleobs(d), u, "shuffleobs", "stream");
    wb_dataset *train, *held;
    REFUSED(!wb_leavepout(d, 1, 0, &train, &held), u, "leavepout", "stream");
    REFUSED(wb_obsview(d, 0, NULL), u, "obsview", "stream");
    REFUSED(wb_filterobs(d, any, NULL), u, "filterobs", "stream");
    REFUSED(wb_joinobs(d, d), u, "joinobs", "stream");
    REFUSED(wb_slidingwindow(d, 1, 1), u, "slidingwindow", "stream");
    REFUSED(wb_dataset_x(d), u, "dataset_x", "stream");
    REFUSED(wb_oversample(d), u, "oversample", "stream");
    FAILS(wb_splitobs(d, 0.5, &a, &b), u, "splitobs", "stream");
    FAILS(wb_splitobs_array(d, 1, &(double){0.5}, part), u, "splitobs_array", "stream");
    FAILS(wb_kfolds(d, 2, 0, &a, &b), u, "kfolds", "stream");
    REFUSED(wb_dataloader(d, 2, true), WB_ERROR_ARGUMENT, "dataloader", ".buffer", "0");
    REFUSED(wb_dataloader(d, 2, .buffer = 4), WB_ERROR_ARGUMENT, "dataloader", ".buffer", "4");
    REFUSED(wb_dataloader(d, 2, true, .buffer = -1), WB_ERROR_ARGUMENT, ".buffer", "-1");
    REFUSED(wb_dataloader(numbers(9), 2, true, .buffer = 4), WB_ERROR_ARGUMENT, ".buffer", "4");
    REFUSED(wb_dataloader(d, -1), WB_ERROR_ARGUMENT, "dataloader", "batchsize", "-1");
    wb_dataset_source s = {.size = sizeof s, .next = next_number};
    REFUSED(wb_dataset_from(&s), WB_ERROR_ARGUMENT, "dataset_from", ".next", ".restart");
    s.restart = begin_again;
    s.n = 4;
    REFUSED(wb_dataset_from(&s), WB_ERROR_ARGUMENT, "dataset_from", "4 observations");
    s.n = 0;
    s.get = get;
    REFUSED(wb_dataset_from(&s), WB_ERROR_ARGUMENT, "dataset_from", ".get");
}

TEST(children_of_fork_begin_a_stream_again)
{
#ifdef __SANITIZE_THREAD__
    print_message("SKIP: ThreadSanitizer does not let children of fork start threads\n");
    skip();
#endif
    numbers_from source;
    wb_scope *s = wb_scope_open();
    wb_loader *l = wb_dataloader(stream_of(&source, 4000), 40, .workers = 2);
    wb_batch b;
    assert_true(wb_loader_next(l, &b));
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        int n = 0, good;
        while (wb_loader_next(l, &b)) {}                /* to the end, or to a batch being read */
        good = wb_loader_status(l) == 0 || wb_loader_status(l) == WB_ERROR_UNSUPPORTED;
        WB_EACH_BATCH(again, l) good &= wb_at(again.y, 0) == 40 * n++;
        good &= n == 100 && wb_loader_status(l) == 0;
        wb_scope_close(s);
        wb_shutdown();
        _exit(good ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    wb_scope_close(s);
}

/* ---- training -------------------------------------------------------------------------------- */

static wb_tensor *loss(wb_layer *model, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(model, b.x), wb_mul(b.x, wb_scalar(2)));
}

/* Trains with batches of a stream, or of an array with the same numbers, accumulated by two. */
static double trained(wb_loader *l)
{
    wb_seed(1);
    wb_layer *m = wb_Dense(2, 2);
    wb_opt_state *state = wb_setup(wb_OptimizerChain(wb_AccumGrad(2), wb_Adam(0.1)), m);
    WORKS(wb_train(loss, m, l, state, .epochs = 3, .progress = true));
    return wb_at(wb_get(m, "weight"), 0, 1);
}

TEST_IN_SCOPE(training_on_a_stream)
{
    numbers_from source;
    wb_dataset *d = stream_of(&source, 10);
    const double expected = trained(wb_dataloader(numbers(10), 2));
    assert_true(trained(wb_dataloader(d, 2, .workers = 2)) == expected);
    wb_layer *m = wb_Dense(2, 2);
    wb_opt_state *state = wb_setup(wb_Adam(0.1), m);
    FAILS(wb_train(loss, m, wb_dataloader(stream_of(&source, 0), 2), state), WB_ERROR_ARGUMENT,
          "train", "stream", "epoch 1");
}

TEST(every_allocation_may_fail)
{
    numbers_from source;
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        int batches = 0;
        wb__alloc_fail_at(n);
        wb_dataset *d = stream_of(&source, 5);
        wb_loader *l = d ? wb_dataloader(d, 2, true, .buffer = 3, .workers = 2) : NULL;
        WB_EACH_BATCH(b, l) batches++;
        const int status = l ? wb_loader_status(l) : (int)wb_error_code();
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        if (finished) assert_true(batches == 3 && !status);
        else assert_true((batches < 3 && status == WB_ERROR_MEMORY) || batches == 3);
    }
}

int main(void) { return run_everywhere(places, &n_places); }
