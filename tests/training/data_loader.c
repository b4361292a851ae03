/* Loaders: order, epochs, memory, failures, fork, exit; with and without the background thread. */
#include "loader_fork.h"

#include "data/loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/* Observation i is {i}, with the label i.  Fails for observation `fail_at`; counts its calls. */
static atomic_int fail_at = -1, asked, delay_us;
static int get(int64_t i, void *x, void *y, void *ctx)
{
    atomic_fetch_add(&asked, 1);
    if (delay_us) usleep((unsigned)delay_us);
    if (i == fail_at) return 42;
    *(float *)x = (float)i;
    *(int32_t *)y = (int32_t)i;
    return 0;
}

static wb_dataset *numbers(int64_t n)
{
    return wb_dataset_from(&(wb_dataset_source){.size = sizeof(wb_dataset_source),
                                                .n = n,
                                                .x_ndim = 1,
                                                .x_dims = {1},
                                                .y_dtype = WB_I32,
                                                .get = get});
}

/* Writes the labels of one epoch to `out` and returns their number. */
static int epoch_of(wb_loader *l, int *out)
{
    int n = 0, batches = 0;
    WB_EACH_BATCH(b, l) {
        assert_int_equal(b.index, batches++);
        assert_int_equal(wb_dim(b.x, 0), b.n);
        assert_int_equal(wb_dim(b.y, 0), b.n);
        const float *x = wb_data(b.x);
        const int32_t *y = wb_data(b.y);
        for (int64_t i = 0; i < b.n; i++) {
            assert_true(x[i] == (float)y[i]);
            out[n++] = y[i];
        }
    }
    return n;
}

static const int aheads[] = {0, 1, 2, 7};

TEST(batches_in_order)
{
    for (size_t a = 0; a < WB__COUNT(aheads); a++)
        for (int64_t n = 0; n < 12; n++)
            for (int64_t size = 1; size < 6; size++) IN_SCOPE {
                int out[16];
                wb_loader *l = wb_dataloader(numbers(n), .batchsize = size, .ahead = aheads[a]);
                assert_int_equal(wb_loader_length(l), (n + size - 1) / size);
                for (int epoch = 0; epoch < 3; epoch++) {
                    assert_int_equal(wb_loader_epoch(l), epoch);
                    assert_int_equal(epoch_of(l, out), n);
                    for (int i = 0; i < n; i++) assert_int_equal(out[i], i);
                    assert_int_equal(wb_loader_status(l), 0);
                }
            }
}

TEST_IN_SCOPE(a_short_last_batch_can_be_left_out)
{
    int out[16];
    wb_loader *l = wb_dataloader(numbers(11), .batchsize = 4, .drop_last = true);
    assert_int_equal(wb_loader_length(l), 2);
    assert_int_equal(epoch_of(l, out), 8);
}

static char logged[256];
static void catch_log(wb_log_level level, const char *text, void *context)
{
    assert_int_equal(level, WB_LOG_WARN);
    snprintf(logged, sizeof logged, "%s", text);
}

TEST(no_batch_is_a_warning)
{
    int out[16];
    wb_set_log(catch_log, NULL);
    wb_scope *s = wb_scope_open();
    wb_loader *l = wb_dataloader(numbers(3), .batchsize = 4, .drop_last = true);
    assert_true(HAS_FACTS(logged, "3", "batchsize", "4"));
    assert_int_equal(epoch_of(l, out), 0);
    assert_int_equal(wb_loader_status(l), 0);
    wb_scope_close(s);
    wb_set_log(NULL, NULL);
}

TEST(shuffling_depends_on_the_seed_alone)
{
    int first[3][50], again[3][50], other[50], seen[50] = {0};
    for (size_t a = 0; a < WB__COUNT(aheads); a++) IN_SCOPE {
        wb_seed(a);
        wb_loader *l = wb_dataloader(numbers(50), .batchsize = 7, .shuffle = true, .seed = 9,
                                     .ahead = aheads[a]);
        for (int epoch = 0; epoch < 3; epoch++)
            assert_int_equal(epoch_of(l, a ? again[epoch] : first[epoch]), 50);
        if (a) assert_memory_equal(first, again, sizeof first);
        epoch_of(wb_dataloader(numbers(50), .batchsize = 7, .shuffle = true, .seed = 10), other);
        assert_memory_not_equal(first[0], other, sizeof other);
    }
    assert_memory_not_equal(first[0], first[1], sizeof first[0]);
    for (int i = 0; i < 50; i++) seen[first[2][i]]++;
    for (int i = 0; i < 50; i++) assert_int_equal(seen[i], 1);
    wb_scope *s = wb_scope_open();          /* without .seed, the order follows from wb_seed */
    wb_seed(5);
    epoch_of(wb_dataloader(numbers(50), .shuffle = true), first[0]);
    wb_seed(5);
    epoch_of(wb_dataloader(numbers(50), .shuffle = true), first[1]);
    epoch_of(wb_dataloader(numbers(50), .shuffle = true), first[2]);
    assert_memory_equal(first[0], first[1], sizeof first[0]);
    assert_memory_not_equal(first[0], first[2], sizeof first[0]);
    wb_scope_close(s);
}

TEST(leaving_a_loop_is_safe)
{
    int out[32];
    for (size_t a = 0; a < WB__COUNT(aheads); a++) IN_SCOPE {
        wb_loader *l = wb_dataloader(numbers(20), .batchsize = 3, .ahead = aheads[a]);
        for (int round = 0; round < 20; round++) {
            WB_EACH_BATCH(b, l) if (b.index == round % 5) break;
            assert_int_equal(wb_loader_epoch(l), 2 * round);
            assert_int_equal(epoch_of(l, out), 20);
            assert_int_equal(out[0], 0);
        }
        wb_scope *inner = wb_scope_open();      /* its end closes the batch's scope too */
        WB_EACH_BATCH(b, l) break;
        wb_scope_close(inner);
        inner = wb_scope_open();
        assert_int_equal(epoch_of(l, out), 20);
        assert_non_null(wb_from(out, WB_I32, 0, NULL));             /* `inner` is still open */
        assert_int_equal(wb_scope_close(inner), 0);
        wb_batch b;
        assert_true(wb_loader_next(l, &b) && wb_loader_next(l, &b));
        assert_int_equal(wb_loader_stop(l), 0);
        assert_int_equal(wb_loader_stop(l), 0);
        assert_true(wb_loader_next(l, &b) && b.index == 0);
        wb_object_free(l);                                          /* the open batch holds it */
        assert_true(wb_at(b.x, 1, 0) == 1);
    }
}

TEST_IN_SCOPE(kept_batches_stay)
{
    wb_loader *l = wb_dataloader(numbers(12), .batchsize = 2);
    wb_tensor *kept[6];
    WB_EACH_BATCH(b, l) kept[b.index] = wb_keep(b.x);
    WB_EACH_BATCH(b, l) (void)b;
    wb_object_free(l);
    for (int i = 0; i < 6; i++)
        assert_true(wb_at(kept[i], 0, 0) == 2 * i && wb_at(kept[i], 1, 0) == 2 * i + 1);
}

/* The scopes of the two loaders' batches are nested; wb_retain keeps tensors longer than both. */
TEST(loaders_take_turns)
{
    wb_scope *s = wb_scope_open();
    wb_loader *l[2] = {wb_dataloader(numbers(12), .batchsize = 2),
                       wb_dataloader(numbers(12), .batchsize = 2)};
    wb_tensor *kept[6][2];
    wb_batch b[2];
    int n = 0;
    for (; wb_loader_next(l[0], &b[0]) && wb_loader_next(l[1], &b[1]); n++)
        for (int i = 0; i < 2; i++) {
            assert_true(wb_at(b[i].x, 0, 0) == 2 * n);
            kept[n][i] = wb_retain(b[i].x);
        }
    assert_int_equal(n, 6);
    assert_int_equal(wb_loader_status(l[0]) + wb_loader_status(l[1]), 0);
    assert_int_equal(wb_scope_close(s), 0);
    for (int i = 0; i < 12; i++) {
        assert_true(wb_at(kept[i / 2][i % 2], 1, 0) == 2 * (i / 2) + 1);
        wb_release(kept[i / 2][i % 2]);
    }
}

/* Memory held after many epochs equals that before them: tensors of a batch come from the memory
 * pool, buffers from the loader.  The peak within an epoch depends on the timing of the two
 * threads, so IN_FLIGHT bytes more are allowed there.  Under AddressSanitizer the pool keeps no
 * blocks, so that the memory held between epochs varies by up to HELD bytes; a leak of 16 bytes in
 * each of the EPOCHS would still exceed them. */
#if defined(__SANITIZE_ADDRESS__)
enum { EPOCHS = 400, HELD = 4096, IN_FLIGHT = 4096 };
#else
enum { EPOCHS = 400, HELD = 0, IN_FLIGHT = 4096 };
#endif

static void hold_steady(int ahead, int64_t in_flight)
{
    wb_scope *s = wb_scope_open();
    wb_loader *l = wb_dataloader(numbers(40), .batchsize = 4, .shuffle = true, .ahead = ahead);
    int out[40];
    epoch_of(l, out);
    epoch_of(l, out);
    int64_t used = wb_memory_used(), peak = wb_memory_peak();
    for (int i = 0; i < EPOCHS; i++) epoch_of(l, out);
    assert_in_range(wb_memory_used() + HELD - used, 0, 2 * HELD);
    assert_in_range(wb_memory_peak() - peak, 0, in_flight);
    wb_scope_close(s);
}

/* The number of buffers in use at once depends on which of the two threads is slower.  The memory
 * that a loader holds between epochs must not depend on it. */
TEST_IN_SCOPE(what_is_held_does_not_depend_on_the_pace)
{
    wb_loader *l = wb_dataloader(numbers(40), .batchsize = 4);
    int64_t used = 0;
    for (int epoch = 0; epoch < 4; epoch++) {
        delay_us = epoch < 2 ? 300 : 0;             /* first the source is slow, then the loop */
        WB_EACH_BATCH(b, l) {
            assert_int_equal(b.n, 4);
            if (!delay_us) usleep(2000);
        }
        if (epoch == 1) used = wb_memory_used();
    }
    assert_in_range(wb_memory_used() + HELD - used, 0, 2 * HELD);
}

TEST(nothing_is_allocated_in_the_steady_state)
{
    hold_steady(0, HELD);         /* one thread: exact at every moment */
    hold_steady(2, IN_FLIGHT);
}

TEST_IN_SCOPE(a_place_can_be_restored)
{
    for (int k = 0; k <= 7; k++) {
        wb_loader *l = wb_dataloader(numbers(20), .batchsize = 3, .shuffle = true, .seed = 4);
        wb_loader *m = wb_dataloader(numbers(20), .batchsize = 3, .shuffle = true, .seed = 5);
        int out[32];
        wb_batch b, c;
        epoch_of(l, out);
        for (int i = 0; i < k; i++) assert_true(wb_loader_next(l, &b));
        uint64_t place[WB__LOADER_WORDS];
        wb__loader_state(l, place);
        WB_EACH_BATCH(d, m) if (d.index == 2) break;
        assert_int_equal(wb__loader_restore(m, place), 0);
        bool first = true;
        for (int i = 0; i < 20; i++) {
            if (first) c = wb_loader_begin(m);  /* a loop continues at the restored position */
            first = false;
            bool more = wb_loader_next(l, &b);
            assert_int_equal(more, wb_loader_next(m, &c));
            assert_int_equal(wb_loader_epoch(l), wb_loader_epoch(m));
            if (!more) continue;
            assert_int_equal(b.index, c.index);
            assert_memory_equal(wb_data(b.y), wb_data(c.y), (size_t)b.n * 4);
        }
        wb_loader *n = wb_dataloader(numbers(20), .batchsize = 4);
        assert_int_equal(wb__loader_restore(n, place), k ? WB_ERROR_ARGUMENT : 0);
        if (k) FAILED(WB_ERROR_ARGUMENT, "loader", "batchsize", "3", "4");
        wb_loader *o = wb_dataloader(numbers(20), .batchsize = 3);
        wb_clear_error();
        assert_int_equal(wb__loader_restore(o, place), k ? WB_ERROR_ARGUMENT : 0);
        if (k) FAILED(WB_ERROR_ARGUMENT, "loader", "shuffle = 1", "shuffle = 0");
        place[WB__LOADER_SHUFFLE] = UINT64_MAX;             /* as in a checkpoint of 0.4 */
        assert_int_equal(wb__loader_restore(o, place), 0);
        wb_loader *longer = wb_dataloader(numbers(22), .batchsize = 3);
        wb_clear_error();
        assert_int_equal(wb__loader_restore(longer, place), k ? WB_ERROR_ARGUMENT : 0);
        if (k) FAILED(WB_ERROR_ARGUMENT, "loader", "20 observations", "22");
        place[WB__LOADER_LENGTH] = UINT64_MAX;
        assert_int_equal(wb__loader_restore(longer, place), 0);
        wb_object_free(l);
        wb_object_free(m);
    }
}

TEST(failures_end_an_epoch)
{
    int out[32];
    for (size_t a = 0; a < WB__COUNT(aheads); a++) IN_SCOPE {
        wb_loader *l = wb_dataloader(numbers(20), .batchsize = 3, .ahead = aheads[a]);
        fail_at = 10;
        assert_int_equal(epoch_of(l, out), 9);
        assert_int_equal(wb_loader_status(l), 42);
        FAILED(42, "batch", "3", "observation", "10", "42");
        fail_at = -1;
        assert_int_equal(epoch_of(l, out), 20);
        assert_int_equal(wb_loader_status(l), 0);
    }
}

static pthread_t consumer;
static int on_thread(wb_batch *b, void *ctx)
{
    *(int *)ctx += !pthread_equal(pthread_self(), consumer);
    float *x = (float *)(uintptr_t)wb_data(b->x);
    for (int64_t i = 0; i < b->n; i++) x[i] += 100;
    return b->index == 99 ? 1 : 0;
}

static int as_f64(wb_batch *b, void *ctx)
{
    const float *x = wb_data(b->x);
    double wide[8];
    for (int64_t i = 0; i < b->n; i++) wide[i] = 2.0 * x[i];
    b->x = wb_from(wide, WB_F64, 1, &b->n);
    return b->x ? 0 : (int)wb_error_code();
}

TEST(batches_can_be_changed)
{
    int elsewhere;
    consumer = pthread_self();
    for (size_t a = 0; a < WB__COUNT(aheads); a++) IN_SCOPE {
        int n = elsewhere = 0;
        wb_dataset *mapped = wb_mapobs(numbers(20), on_thread, &elsewhere);
        wb_loader *l = wb_dataloader(mapped, .batchsize = 3, .ahead = aheads[a], .collate = as_f64);
        for (int epoch = 0; epoch < 3; epoch++)
            WB_EACH_BATCH(b, l) {
                assert_int_equal(wb_dtype_of(b.x), WB_F64);
                assert_true(wb_at(b.x, 0) == 200 + 2 * wb_at(b.y, 0));
                n++;
            }
        assert_int_equal(wb_loader_status(l), 0);
        assert_int_equal(n, 21);
        assert_int_equal(elsewhere, aheads[a] > 0 ? 21 : 0);
        WB_EACH_BATCH(b, l) if (b.index == 3) break;
    }
}

static int computed(wb_batch *b, void *ctx)
{
    b->x = wb_add(wb_mul(b->x, wb_scalar(2)), wb_scalar(1));
    return b->x ? 0 : (int)wb_error_code();
}

TEST(batches_can_be_computed)
{
    for (size_t a = 0; a < WB__COUNT(aheads); a++) IN_SCOPE {
        double sum = 0;
        wb_loader *l =
            wb_dataloader(numbers(20), .batchsize = 3, .ahead = aheads[a], .collate = computed);
        for (int epoch = 0; epoch < 3; epoch++)
            WB_EACH_BATCH(b, l) {
                assert_true(wb_at(b.x, 0, 0) == 2 * wb_at(b.y, 0) + 1);
                sum += wb_item(wb_sum(b.x));
            }
        assert_true(sum == 3 * (19 * 20 + 20));
        assert_int_equal(wb_loader_status(l), 0);
    }
}

TEST_IN_SCOPE(the_thread_keeps_ahead_and_no_further)
{
    asked = 0;
    wb_loader *l = wb_dataloader(numbers(100), .batchsize = 5, .ahead = 3);
    wb_batch b;
    assert_true(wb_loader_next(l, &b));
    for (int wait = 0; asked < 20 && wait < 2000; wait++) usleep(1000);
    usleep(20000);
    assert_int_equal(asked, 20);                                    /* 5 for this batch, 15 ahead */
}

TEST(slow_sources_and_stopping)
{
    wb_scope *s = wb_scope_open();
    delay_us = 300;
    wb_loader *l = wb_dataloader(numbers(40), .batchsize = 4, .ahead = 2, .shuffle = true);
    int out[40];
    for (int i = 0; i < 5; i++) WB_EACH_BATCH(b, l) if (b.index == i) break;
    assert_int_equal(epoch_of(l, out), 40);
    wb_object_free(wb_dataloader(numbers(4)));
    WB_EACH_BATCH(b, l) break;
    wb_scope_close(s);                      /* while the thread is loading */
    delay_us = 0;
}

TEST(children_of_fork)
{
#ifdef __SANITIZE_THREAD__
    print_message("SKIP: ThreadSanitizer does not let children of fork start threads\n");
    skip();
#endif
    wb_scope *s = wb_scope_open();
    delay_us = 200;
    wb_loader *l = wb_dataloader(numbers(60), .batchsize = 4, .ahead = 3);
    reads_on_after_fork(l, s);
    delay_us = 0;
}

TEST(exit_with_a_thread_at_work)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        delay_us = 2000;
        wb_batch b;
        wb_loader *l = wb_dataloader(numbers(1000), .batchsize = 10, .ahead = 2);
        if (wb_loader_next(l, &b)) {
            wb_shutdown();          /* stops the thread; the second loader's meets exit() */
            l = wb_dataloader(numbers(1000), .batchsize = 10, .ahead = 2);
            if (wb_loader_next(l, &b)) exit(7);
        }
        _exit(1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

static atomic_bool enough;

static void *reads_often(void *unused)
{
    while (!atomic_load(&enough)) IN_SCOPE {
        wb_batch b;
        wb_loader *l = wb_dataloader(numbers(64), .batchsize = 8, .workers = 2);
        while (wb_loader_next(l, &b)) continue;
    }
    return unused;
}

/* The threads of a loader in the parent wait for conditions; the child has neither. */
TEST(exit_of_children_beside_a_loader)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    print_message("SKIP: sanitizers wait at a child's end for threads of its parent\n");
    skip();
#endif
    enum { CHILDREN = 300 };
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, reads_often, NULL), 0);
    int status = 0;
    for (int i = 0; i < CHILDREN && !status; i++) {
        const pid_t child = fork();
        if (!child) {
            alarm(20);
            exit(0);
        }
        waitpid(child, &status, 0);
    }
    atomic_store(&enough, true);
    pthread_join(reader, NULL);
    assert_int_equal(status, 0);
}

TEST_IN_SCOPE(wrong_options)
{
    wb_dataset *d = numbers(5);
    assert_null(wb_dataloader(d, .batchsize = -2));
    assert_null(wb_dataloader(d, .ahead = -2));
    assert_null(wb_dataloader_with(NULL, NULL));
    assert_null(wb_dataloader_with((void *)wb_scalar(1), NULL));
    FAILED(WB_ERROR_ARGUMENT, "dataloader", "tensor", "dataset");
    wb_loader *l = wb_dataloader_with(d, NULL);
    assert_int_equal(wb_loader_length(l), 5);
    l = wb_dataloader(d, .batchsize = INT64_MAX);
    assert_int_equal(wb_loader_length(l), 1);
    int out[8];
    assert_int_equal(epoch_of(l, out), 5);
    wb_dataset *large = wb_dataset_from(&(wb_dataset_source){.size = sizeof(wb_dataset_source),
                                                             .n = 5,
                                                             .x_ndim = 1,
                                                             .x_dims = {UINT32_MAX},
                                                             .get = get});
    assert_null(wb_dataloader(large, .batchsize = 2));
    wb_batch b;
    assert_false(wb_loader_next(NULL, &b));
    assert_int_not_equal(wb_loader_stop(NULL), 0);
}

TEST(every_allocation_may_fail)
{
    int elsewhere = 0;
    for (size_t a = 0; a < 2; a++) {
        bool finished = false;
        for (int64_t n = 1; !finished; n++) IN_SCOPE {
            int batches = 0;
            wb__alloc_fail_at(n);
            wb_dataset *d = wb_mapobs(numbers(20), on_thread, &elsewhere);
            wb_loader *l = wb_dataloader(d, 4, true, .ahead = aheads[a], .collate = as_f64);
            WB_EACH_BATCH(b, l) batches++;
            int status = l ? wb_loader_status(l) : (int)wb_error_code();
            finished = wb__alloc_count() < n;
            wb__alloc_fail_at(0);
            if (finished) assert_true(batches == 5 && !status);
            else assert_true((batches < 5 && status == WB_ERROR_MEMORY) || batches == 5);
        }
    }
}

static int clean(void **state)
{
    wb_shutdown();
    wb__pool_trim();
    return 0;
}

int main(void) { return run_cases(NULL, clean); }
