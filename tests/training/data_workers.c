/* Loaders with several workers, and maps of single observations: order, values, random numbers,
 * failures and ends do not depend on the number of workers. */
#include "device_numbers.h"
#include "loader_fork.h"

#include "base/numbers/philox.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* The threads and batches ahead with which each case is run. */
static const struct { int workers, ahead; } runs[] = {{1, 0}, {1, 2}, {2, 1}, {3, 7}, {8, 2}};

/* ---- one observation ------------------------------------------------------------------------- */

/* Observation i of numbers() becomes x = {i, i + 0.5, 2 i}, f64, and keeps its label. */
static int widened(wb_batch *b, void *ctx)
{
    double x[3] = {wb_at(b->x, 0, 0), wb_at(b->x, 0, 1), 2 * wb_at(b->x, 0, 0)};
    if (b->n != 1 || wb_dim(b->x, 0) != 1 || b->index != (int64_t)x[0]) return 77;
    b->x = wb_from(x, WB_F64, 2, (int64_t[]){1, 3});
    return 0;
}

TEST_IN_SCOPE(single_observations_are_mapped)
{
    static const int order[] = {4, 9, 4, 0, 7};
    wb_dataset *d = wb_mapobs_each(numbers(10), widened, NULL);
    wb_dataset *view = wb_obsview(d, 5, (int64_t[]){4, 9, 4, 0, 7});
    wb_tensor *x = wb_dataset_x(view), *y = wb_dataset_y(view);
    assert_string_equal(wb_describe(x), "[5,3] f64");
    for (int i = 0; i < 5; i++)
        assert_true(wb_at(x, i, 2) == 2 * order[i] && wb_at(x, i, 1) == order[i] + 0.5 &&
                    wb_at(y, i) == order[i]);
    assert_int_equal(wb_dataset_length(view), 5);
    assert_true(wb_dim(wb_dataset_x(wb_subset(d, 3, 3)), 0) == 0);
    for (size_t r = 0; r < WB__COUNT(runs); r++) {
        int n = 0;
        wb_loader *l =
            wb_dataloader(view, 2, .ahead = runs[r].ahead, .workers = runs[r].workers);
        WB_EACH_BATCH(b, l)
            for (int i = 0; i < b.n; i++, n++) assert_true(wb_at(b.x, i, 2) == 2 * order[n]);
        assert_int_equal(wb_loader_status(l), 0);
        assert_int_equal(n, 5);
    }
}

/* Is called with the number of the observation in the view below, which reverses the order. */
static int reversed(wb_batch *b, void *ctx)
{
    return b->index == 9 - (int64_t)wb_at(b->x, 0, 0) ? 0 : 78;
}
static int plus_index(wb_batch *b, void *ctx)
{
    b->x = wb_add(b->x, wb_scalar(100 * (double)b->index));
    return 0;
}

TEST_IN_SCOPE(maps_above_maps)
{
    wb_dataset *d = wb_mapobs_each(numbers(10), widened, NULL);
    d = wb_obsview(d, 10, (int64_t[]){9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
    d = wb_subset(wb_mapobs_each(d, reversed, NULL), 2, 10);
    d = wb_mapobs(d, plus_index, NULL);
    wb_loader *l = wb_dataloader(d, 4, .shuffle = true, .workers = 3);
    int seen = 0;
    WB_EACH_BATCH(b, l)
        for (int i = 0; i < b.n; i++, seen++)
            assert_true(wb_at(b.x, i, 0) == wb_at(b.y, i) + 100 * (double)b.index);
    if (wb_loader_status(l)) fail_msg("%s", wb_error());
    assert_int_equal(seen, 8);
}

TEST_IN_SCOPE(single_observations_on_every_device)
{
    for (int i = 0; i < n_places; i++) {
        wb_dataset *d = wb_mapobs_each(numbers(7), widened, NULL);
        wb_loader *l = wb_to(wb_dataloader(d, 2, .workers = 2), places[i]);
        MADE(l);
        int n = 0;
        WB_EACH_BATCH(b, l) {
            assert_ptr_equal(wb_device_of(b.x), places[i]);
            for (int k = 0; k < b.n; k++, n++) assert_true(wb_at(b.x, k, 2) == 2 * n);
        }
        if (wb_loader_status(l)) fail_msg("%s", wb_error());
        assert_int_equal(n, 7);
        wb_device *on = NULL;
        wb_dataset *there = wb_to(wb_mapobs_each(numbers(5), twice, &on), places[i]);
        wb_tensor *x = wb_dataset_x(there);
        MADE(x);
        assert_ptr_equal(on, places[i]);
        assert_true(wb_at(x, 4, 1) == 9);
    }
}

static int grows(wb_batch *b, void *ctx)
{
    b->x = wb_zeros(1, b->index == 5 ? 3 : 2);
    return 0;
}
static int two_rows(wb_batch *b, void *ctx)
{
    b->x = wb_zeros(2, 2);
    return 0;
}
static int loses_y(wb_batch *b, void *ctx)
{
    if (b->index == 5) b->y = WB_NONE;
    return 0;
}
static int more_tensors(wb_batch *b, void *ctx)
{
    if (b->index == 5) b->more[0] = b->x;
    return 0;
}
static int no_axis(wb_batch *b, void *ctx)
{
    b->x = wb_sum(b->x);
    return 0;
}
static int fails_at_5(wb_batch *b, void *ctx) { return b->index == 5 ? 33 : 0; }

TEST_IN_SCOPE(wrong_maps_of_single_observations)
{
    static const struct { wb_collate f; int code; const char *fact, *observation; } cases[] = {
        {grows, WB_ERROR_SHAPE, "[1,3]", "observation 5"},
        {two_rows, WB_ERROR_SHAPE, "[2,2]", "observation 4"},
        {loses_y, WB_ERROR_SHAPE, "none", "observation 5"},
        {more_tensors, WB_ERROR_SHAPE, "tensors", "observation 5"},
        {no_axis, WB_ERROR_SHAPE, "[]", "observation 4"},
        {fails_at_5, 33, "33", "observation 5"},
    };
    for (size_t i = 0; i < WB__COUNT(cases); i++) {
        wb_dataset *d = wb_subset(wb_mapobs_each(numbers(8), cases[i].f, NULL), 4, 8);
        REFUSED(wb_dataset_x(d), cases[i].code, "mapobs_each", cases[i].observation);
        wb_loader *l = wb_dataloader(d, 4, .workers = 2);
        WB_EACH_BATCH(b, l) fail_msg("case %zu: a batch", i);
        assert_int_equal(wb_loader_status(l), cases[i].code);
        FAILED(cases[i].code, "batch 0", cases[i].observation, "mapobs_each", cases[i].fact);
    }
    REFUSED(wb_mapobs_each(numbers(2), NULL, NULL), WB_ERROR_ARGUMENT, "mapobs_each");
    REFUSED(wb_mapobs_each((void *)wb_scalar(1), widened, NULL), WB_ERROR_ARGUMENT, "mapobs_each",
            "tensor");
}

static int frees_x(wb_batch *b, void *ctx) { return wb_object_free(b->x), 0; }
static int frees_y(wb_batch *b, void *ctx) { return wb_object_free(b->y), 0; }
static int gives_a_layer(wb_batch *b, void *ctx)
{
    b->x = (wb_tensor *)wb_Dense(2, 2);
    return 0;
}

/* What a function leaves in a batch is looked at before it is read, also on a worker. */
TEST_IN_SCOPE(functions_that_leave_no_tensor)
{
    static const struct { wb_collate f; const char *place, *found; } cases[] = {
        {frees_x, " .x ", "freed object"}, {frees_y, " .y ", "freed object"},
        {gives_a_layer, " .x ", "layer"}};
    for (size_t i = 0; i < WB__COUNT(cases); i++)
        for (int workers = 1; workers < 3; workers++)
            for (int form = 0; form < 3; form++) {
                static const char *const names[] = {"collate", "mapobs", "mapobs_each"};
                wb_dataset *d = numbers(8);
                if (form == 1) d = wb_mapobs(d, cases[i].f, NULL);
                if (form == 2) d = wb_mapobs_each(d, cases[i].f, NULL);
                wb_loader *l = wb_dataloader(d, 4, .workers = workers,
                                             .collate = form ? NULL : cases[i].f);
                WB_EACH_BATCH(b, l) fail_msg("case %zu: a batch", i);
                assert_int_equal(wb_loader_status(l), WB_ERROR_ARGUMENT);
                FAILED(WB_ERROR_ARGUMENT, names[form], cases[i].place, cases[i].found);
            }
    wb_clear_error();
}

/* ---- workers --------------------------------------------------------------------------------- */

static int noisy(wb_batch *b, void *ctx)
{
    b->x = wb_add(b->x, wb_randn(1, 2));
    return wb_error_code();
}
static int noisy_batch(wb_batch *b, void *ctx)
{
    usleep(b->index % 3 == 0 ? 2000 : 0);               /* later batches are ready first */
    b->x = wb_mul(b->x, wb_rand(b->n, 2));
    return wb_error_code();
}

/* Writes x and y of the batches that are left of an epoch to `out`, and returns their number. */
static int write_epoch(wb_loader *l, float *out)
{
    int n = 0;
    for (wb_batch b; wb_loader_next(l, &b);) {
        memcpy(out + n, wb_data(b.x), (size_t)b.n * 8);
        n += 2 * (int)b.n;
        for (int i = 0; i < b.n; i++) out[n++] = (float)wb_at(b.y, i);
    }
    if (wb_loader_status(l)) fail_msg("%s", wb_error());
    return n;
}

static wb_loader *noisy_loader(size_t r, uint64_t seed, bool shuffle)
{
    wb_dataset *d = wb_mapobs(wb_mapobs_each(computed(23), noisy, NULL), noisy_batch, NULL);
    return wb_dataloader(d, 3, shuffle, .seed = seed, .ahead = runs[r].ahead,
                         .workers = runs[r].workers);
}

TEST(results_do_not_depend_on_the_workers)
{
    static float first[2][128], again[2][128];
    for (int shuffle = 0; shuffle < 2; shuffle++)
        for (size_t r = 0; r < WB__COUNT(runs); r++) IN_SCOPE {
            wb_seed(r);
            wb_loader *l = noisy_loader(r, 5, shuffle);
            for (int epoch = 0; epoch < 2; epoch++)
                assert_int_equal(write_epoch(l, r ? again[epoch] : first[epoch]), 69);
            if (r) assert_memory_equal(first, again, sizeof first);
            assert_memory_not_equal(first[0], first[1], sizeof *first);
            write_epoch(noisy_loader(r, 6, shuffle), again[0]);
            assert_memory_not_equal(first[0], again[0], sizeof *first);
            const wb__rng_state before = wb__rng_get_state();
            write_epoch(l, again[0]);                   /* draws no numbers of this thread */
            assert_true(wb__rng_get_state().counter == before.counter);
        }
    wb_scope *s = wb_scope_open();                      /* without .seed, wb_seed decides */
    for (int i = 0; i < 2; i++) {
        wb_seed(3);
        wb_dataset *d = wb_mapobs_each(numbers(8), noisy, NULL);
        write_epoch(wb_dataloader(d, 3, .workers = 2), i ? again[0] : first[0]);
    }
    assert_memory_equal(first[0], again[0], 8 * 3 * sizeof **first);
    wb_scope_close(s);
}

/* A loader with other workers continues where the state was written. */
TEST(a_place_is_restored_with_other_workers)
{
    static float rest[128], again[128];
    for (size_t r = 0; r < WB__COUNT(runs); r++) IN_SCOPE {
        wb_loader *l = noisy_loader(0, 8, true), *m = noisy_loader(r, 9, true);
        wb_batch b;
        write_epoch(l, rest);
        for (int i = 0; i < 4; i++) assert_true(wb_loader_next(l, &b) && wb_loader_next(m, &b));
        uint64_t place[WB__LOADER_WORDS];
        wb__loader_state(l, place);
        assert_int_equal(write_epoch(l, rest), 3 * 11);
        WORKS(wb__loader_restore(m, place));
        assert_int_equal(write_epoch(m, again), 3 * 11);
        assert_memory_equal(rest, again, 33 * sizeof *rest);
        assert_int_equal(wb_loader_epoch(m), 2);
    }
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int inside, most_inside;

/* Waits until three threads are inside at the same time. */
static int meets(wb_batch *b, void *ctx)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    pthread_mutex_lock(&lock);
    inside++;
    if (inside > most_inside) most_inside = inside;
    pthread_cond_broadcast(&changed);
    while (most_inside < 3 && !pthread_cond_timedwait(&changed, &lock, &until)) {}
    inside--;
    pthread_mutex_unlock(&lock);
    return 0;
}

TEST_IN_SCOPE(workers_are_at_work_at_the_same_time)
{
    most_inside = 0;
    wb_loader *l = wb_dataloader(wb_mapobs(numbers(12), meets, NULL), 2, .workers = 3);
    int out[12];
    assert_int_equal(epoch_on(places[0], l, out), 12);
    for (int i = 0; i < 12; i++) assert_int_equal(out[i], i);
    assert_int_equal(most_inside, 3);
}

/* Observations 14 and 26 fail; the first one later than the second. */
static atomic_bool healed;
static int ill(wb_batch *b, void *ctx)
{
    if (healed) return 0;
    if (b->index == 14) usleep(20000);
    if (b->index == 14) return wb_add(b->x, wb_zeros(7, 7)) ? 0 : (int)wb_error_code();
    return b->index == 26 ? 51 : 0;
}

TEST(the_first_failure_in_order_ends_the_epoch)
{
    for (size_t r = 0; r < WB__COUNT(runs); r++) IN_SCOPE {
        wb_loader *l = wb_dataloader(wb_mapobs_each(computed(60), ill, NULL), 3,
                                     .ahead = runs[r].ahead, .workers = runs[r].workers);
        int batches = 0, out[60];
        healed = false;
        for (int epoch = 0; epoch < 2; epoch++) {
            batches = 0;
            WB_EACH_BATCH(b, l) assert_int_equal(b.index, batches++);
            assert_int_equal(batches, 4);
            assert_int_equal(wb_loader_status(l), WB_ERROR_SHAPE);
            FAILED(WB_ERROR_SHAPE, "batch 4", "observation 14", "[7,7]");
        }
        healed = true;
        assert_int_equal(epoch_on(places[0], l, out), 60);
    }
}

static int slow(wb_batch *b, void *ctx)
{
    usleep(500);
    return 0;
}

TEST(leaving_and_freeing_while_workers_work)
{
    for (size_t r = 0; r < WB__COUNT(runs); r++) IN_SCOPE {
        wb_loader *l = wb_dataloader(wb_mapobs(numbers(40), slow, NULL), 4, true,
                                     .ahead = runs[r].ahead, .workers = runs[r].workers);
        int out[40], seen[40] = {0};
        for (int i = 0; i < 6; i++) WB_EACH_BATCH(b, l) if (b.index == i) break;
        assert_int_equal(epoch_on(places[0], l, out), 40);
        for (int i = 0; i < 40; i++) assert_int_equal(seen[out[i]]++, 0);
        WB_EACH_BATCH(b, l) break;
        wb_object_free(l);
        wb_loader *other = wb_dataloader(numbers(4), .workers = 4);
        WB_EACH_BATCH(b, other) break;
    }
}

TEST(children_of_fork_have_workers_too)
{
#ifdef __SANITIZE_THREAD__
    print_message("SKIP: ThreadSanitizer does not let children of fork start threads\n");
    skip();
#endif
    wb_scope *s = wb_scope_open();
    wb_loader *l = wb_dataloader(wb_mapobs(computed(60), slow, NULL), 4, .workers = 3, .ahead = 5);
    reads_on_after_fork(l, s);
}

TEST_IN_SCOPE(wrong_numbers_of_workers)
{
    wb_dataset *d = numbers(4);
    REFUSED(wb_dataloader(d, .workers = 65), WB_ERROR_ARGUMENT, "dataloader", ".workers", "65");
    REFUSED(wb_dataloader(d, .workers = -1), WB_ERROR_ARGUMENT, "dataloader", ".workers", "-1");
    REFUSED(wb_dataloader(d, .workers = 0), WB_ERROR_ARGUMENT, "dataloader", ".workers", "0");
    REFUSED(wb_dataloader(d, .workers = 2, .ahead = 0), WB_ERROR_ARGUMENT, ".workers", "2");
}

TEST(every_allocation_may_fail)
{
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        int batches = 0;
        wb_dataset *d = numbers(6);
        wb__alloc_fail_at(n);
        d = wb_mapobs_each(wb_obsview(wb_mapobs_each(d, noisy, NULL), 3, (int64_t[]){5, 0, 3}),
                           noisy, NULL);
        wb_loader *l = d ? wb_dataloader(d, 2, .workers = 2) : NULL;
        WB_EACH_BATCH(b, l) batches++;
        const int status = l ? wb_loader_status(l) : (int)wb_error_code();
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        if (finished) assert_true(batches == 2 && !status);
        else assert_true((batches < 2 && status == WB_ERROR_MEMORY) || batches == 2);
    }
}

int main(void) { return run_everywhere(places, &n_places); }
