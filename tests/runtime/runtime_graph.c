/* Graphs of the GPU runtime, on a driver in host memory (test_gpu.h): their commands, the calls of
 * the driver, buffers at other addresses, and drivers without graphs. */
#include "by_hand.h"
#include "test_gpu.h"

#include <pthread.h>

/* ---- calls of the driver --------------------------------------------------------------------- */

TEST(calls_of_a_step)
{
    void *buffers[BUFFERS];
    model m;
    make(&m, dev[0]);
    take_all(m.d, buffers);
    run_right(&m, buffers, 1, 2);
    assert_int_equal(gpu_graphs(), 1);
    gpu_forget();
    enum { STEPS = 20 };
    for (int i = 0; i < STEPS; i++) run(&m, buffers, i);
    assert_int_equal(gpu_calls("run"), STEPS);
    assert_int_equal(gpu_calls("launch"), STEPS);     /* writes the run-time numbers */
    assert_int_equal(gpu_calls("record"), STEPS);
    assert_int_equal(gpu_calls("record_begin"), 0);
    assert_int_equal(gpu_calls("allocate"), 0);
    assert_int_equal(gpu_calls(NULL), 3 * STEPS);
    run_right(&m, buffers, 5, 3);
    unmake(&m);
    release_all(dev[0], buffers);
    assert_int_equal(gpu_graphs(), 0);
}

/* The parts of a step are one launch; this one and the two of the other step are recorded. */
TEST(pieces_are_one_kernel)
{
    void *buffers[BUFFERS];
    model m;
    make(&m, dev[0]);
    take_all(m.d, buffers);
    gpu_forget();
    run(&m, buffers, 1);
    assert_int_equal(gpu_calls("launch"), 1 + 1 + 2);
    unmake(&m);
    release_all(dev[0], buffers);
}

/* ---- buffers at other addresses -------------------------------------------------------------- */

static int64_t captures(void) { return gpu_calls("record_begin"); }

/* With few sets of addresses in turn each has its own graph; with many, one graph has its own
 * memory, to and from which the buffers are copied. */
TEST(places)
{
    enum { PLACES = 23, BATCHES = 8 };
    void *all[PLACES][BUFFERS], *buffers[BUFFERS];
    model m;
    make(&m, dev[0]);
    for (int i = 0; i < PLACES; i++) take_all(m.d, all[i]);
    memcpy(buffers, all[0], sizeof buffers);
    gpu_forget();
    for (int turn = 0; turn < 12; turn++) {
        buffers[IN] = all[turn % 2][IN];
        buffers[OUT] = all[turn / 2 % 2][OUT];
        run_right(&m, buffers, (float)turn, turn);
    }
    assert_int_equal(captures(), 4);
    const int64_t copies = gpu_calls("copy");
    for (int turn = 0; turn < 5 * BATCHES; turn++) {            /* a loader's batches */
        buffers[IN] = all[turn % BATCHES][IN];
        buffers[OUT] = all[2 + turn % 2][OUT];
        run_right(&m, buffers, (float)turn, turn);
    }
    assert_int_equal(captures(), 4 + BATCHES);
    assert_int_equal(gpu_calls("copy"), copies);
    for (int turn = 0; turn < 3 * PLACES; turn++) {
        buffers[IN] = all[turn % PLACES][IN];
        buffers[OUT] = all[turn * 2 % PLACES][OUT];
        run_right(&m, buffers, (float)turn, turn);
    }
    assert_int_equal(captures(), 17);
    const int64_t used = memory_of(dev[0]).used;
    for (int turn = 0; turn < 3 * PLACES; turn++) {             /* the arena too */
        buffers[IN] = all[turn % PLACES][IN];
        buffers[ARENA] = all[turn % PLACES][ARENA];
        run_right(&m, buffers, (float)turn, turn);
    }
    assert_int_equal(captures(), 18);
    assert_true(memory_of(dev[0]).used >= used + (int64_t)kinds[ARENA].bytes);
    assert_true(memory_of(dev[0]).peak >= memory_of(dev[0]).used);
    for (int i = 1; i < 4; i++) {               /* a variable at a new address: recorded again */
        buffers[VARIABLE] = all[i][VARIABLE];
        for (int turn = 0; turn < 3; turn++) run_right(&m, buffers, (float)turn, 4);
        assert_int_equal(captures(), 18 + i);
    }
    unmake(&m);
    for (int i = 0; i < PLACES; i++) release_all(dev[0], all[i]);
    assert_int_equal(memory_of(dev[0]).used, 0);
}

/* More models of one shape run in turn than a plan has graphs: runs do not record again and
 * again. */
TEST(many_models)
{
    enum { MODELS = 20, TURNS = 40 };
    void *all[MODELS][BUFFERS];
    model m;
    make(&m, dev[0]);
    for (int i = 0; i < MODELS; i++) take_all(m.d, all[i]);
    gpu_forget();
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < MODELS; i++) run_right(&m, all[i], (float)(i + turn), turn);
    assert_in_range(captures(), 16, 32 + MODELS * TURNS / 8);
    assert_true(gpu_calls("run") > MODELS * TURNS / 3);
    unmake(&m);
    for (int i = 0; i < MODELS; i++) release_all(dev[0], all[i]);
    assert_int_equal(memory_of(dev[0]).used, 0);
}

/* No memory is left for a graph of its own: plans are recorded again, but not in every run, and
 * the results are right. */
TEST(places_without_memory)
{
    enum { PLACES = 20 };
    WORKS(restart("WEBER_MEMORY_LIMIT", "4M"));
    void *all[PLACES][BUFFERS], *rest[1200];
    model m;
    int n = 0;
    make(&m, dev[0]);
    for (int i = 0; i < PLACES; i++) take_all(m.d, all[i]);
    for (int i = 0; i < 16; i++) run_right(&m, all[i], 1, 2);
    while (n < 1200 && (rest[n] = b->allocate(dev[0], BYTES))) n++;
    wb_clear_error();
    for (int i = 0; i < 3 * PLACES; i++) run_right(&m, all[i % PLACES], (float)i, 2);
    while (n) b->release(dev[0], rest[--n], BYTES);
    unmake(&m);
    for (int i = 0; i < PLACES; i++) release_all(dev[0], all[i]);
    WORKS(restart("WEBER_MEMORY_LIMIT", NULL));
}

/* Inputs of later runs are uploaded while earlier runs are queued: each run reads its own input. */
TEST(uploads_between_runs)
{
    static const char *const schedules[] = {"round", "latest", "lazy", "random:5"};
    enum { RUNS = 12 };
    for (size_t s = 0; s < WB__COUNT(schedules); s++) {
        WORKS(restart("TEST_GPU_SCHEDULE", schedules[s]));
        float x[N], y[N];
        void *buffers[BUFFERS], *in[2], *out[RUNS];
        model m;
        make(&m, dev[0]);
        take_all(m.d, buffers);
        for (int i = 0; i < 2; i++) in[i] = take(m.d, BYTES);
        for (int i = 0; i < RUNS; i++) out[i] = take(m.d, BYTES);
        for (int i = 0; i < RUNS; i++) {
            void *now[BUFFERS] = {in[i & 1], buffers[VARIABLE], out[i], buffers[ARENA]};
            fill(x, N, (float)i);
            WORKS(b->upload(m.d, in[i & 1], 0, x, BYTES));
            run(&m, now, i);
        }
        for (int i = 0; i < RUNS; i++) {
            WORKS(b->download(m.d, y, out[i], 0, BYTES));
            fill(x, N, (float)i);
            for (int k = 0; k < N; k++) assert_true(y[k] == (float)i * ((float)i * x[k] + 1));
            b->release(m.d, out[i], BYTES);
        }
        for (int i = 0; i < 2; i++) b->release(m.d, in[i], BYTES);
        unmake(&m);
        release_all(dev[0], buffers);
    }
    WORKS(restart("TEST_GPU_SCHEDULE", NULL));
}

/* ---- threads --------------------------------------------------------------------------------- */

static model shared;

static void *work(void *argument)
{
    const int id = (int)(intptr_t)argument;
    void *buffers[BUFFERS];
    float x[N], y[N];
    intptr_t wrong = 0;
    for (int i = 0; i < BUFFERS; i++)
        wrong |= !(buffers[i] = b->allocate(shared.d, kinds[i].bytes));
    for (int turn = 0; turn < 40 && !wrong; turn++) {
        const wb__number n = {.f = id + turn};
        fill(x, N, (float)(id * 10 + turn));
        wrong |= b->upload(shared.d, buffers[IN], 0, x, BYTES);
        wrong |= b->graph_run(shared.d, shared.graph, buffers, NULL, &n);
        wrong |= b->download(shared.d, y, buffers[OUT], 0, BYTES);
        for (int i = 0; i < N && !wrong; i++)
            wrong |= y[i] != (float)n.f * ((float)n.f * x[i] + 1);
    }
    if (wrong) print_error("thread %d: %s\n", id, wb_error());
    for (int i = 0; i < BUFFERS; i++) b->release(shared.d, buffers[i], kinds[i].bytes);
    return (void *)wrong;
}

TEST(threads)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    make(&shared, dev[1]);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, (void *)(intptr_t)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(thread[i], &wrong), 0);
        assert_null(wrong);
    }
    unmake(&shared);
}

/* ---- without graphs -------------------------------------------------------------------------- */

/* The driver cannot record commands.  runtime_commands.c tests WEBER_DEBUG=sync, with which there
 * are no graphs either. */
TEST(without)
{
    WORKS(restart("TEST_GPU_GRAPHS", "0"));
    const wb__step step = step_between(STEP_PARTS, IN, VARIABLE);
    wb__kernel *k = NULL;
    WORKS(b->prepare(dev[0], &step, &k));
    const wb__kernel *kernels[] = {k};
    const wb__sequence s = {.n_kernels = 1, .kernels = kernels, .n_buffers = BUFFERS,
                            .buffers = kinds, .n_numbers = 1};
    wb__graph *graph = (wb__graph *)&s;
    wb_clear_error();
    assert_int_equal(b->graph(dev[0], &s, &graph), WB_ERROR_UNSUPPORTED);
    assert_null(graph);
    assert_string_equal(wb_error(), "");
    b->destroy(dev[0], k);
    WORKS(restart("TEST_GPU_GRAPHS", NULL));
}

TEST(nothing_is_left)
{
    test_end();
    assert_int_equal(gpu_left(), 0);
}

static int begin(void **state) { return test_begin(&test_gpu); }

int main(void) { return run_cases(begin, NULL); }
