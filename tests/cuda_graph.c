/* Graphs of the CUDA backend, on the test double: what is in them, how often the driver is called,
 * what happens when buffers move, and where they cannot be made. */
#include "test.h"

#define TEST_CUDA
#include "text_program.h"

#include "cuda_double.h"

#include <pthread.h>

/* variable = n·in, in pieces; then out = n·(variable + 1), by the way of the workspace. */
enum { IN, VARIABLE, OUT, ARENA, BUFFERS };
static const wb__buffer kinds[BUFFERS] = {
    [IN] = {.kind = WB__BUFFER_INPUT, .bytes = BYTES},
    [VARIABLE] = {.kind = WB__BUFFER_VARIABLE, .bytes = BYTES},
    [OUT] = {.kind = WB__BUFFER_RESULT, .bytes = BYTES},
    [ARENA] = {.kind = WB__BUFFER_ARENA, .bytes = 2 * BYTES + 64}};

static wb__step step_between(test_step which, int from, int to)
{
    wb__step s = test_step_of(which, N);
    s.views[0].buffer = from;
    s.views[1].buffer = to;
    return s;
}

typedef struct {
    const wb_device *d;
    wb__kernel *parts, *twice;
    const wb__kernel *kernels[2];
    wb__sequence s;
    wb__graph *graph;
} model;

static void make(model *m, const wb_device *d)
{
    const wb__step parts = step_between(STEP_PARTS, IN, VARIABLE);
    const wb__step twice = step_between(STEP_TWICE, VARIABLE, OUT);
    memset(m, 0, sizeof *m);
    m->d = d;
    check(b->prepare(d, &parts, &m->parts));
    check(b->prepare(d, &twice, &m->twice));
    m->kernels[0] = m->parts;
    m->kernels[1] = m->twice;
    m->s = (wb__sequence){.n_kernels = 2, .kernels = m->kernels, .n_buffers = BUFFERS,
                          .buffers = kinds, .workspace_at = 64, .n_numbers = 1};
    check(b->graph(d, &m->s, &m->graph));
}

static void unmake(model *m)
{
    b->graph_free(m->d, m->graph);
    b->destroy(m->d, m->parts);
    b->destroy(m->d, m->twice);
}

static void run(model *m, void *const *buffers, double number)
{
    const wb__number n = {.f = number};
    check(b->graph_run(m->d, m->graph, buffers, NULL, &n));
}

/* Runs with an input that begins so, and looks at what comes out. */
static void run_right(model *m, void *const *buffers, float first, double number)
{
    float x[N], y[N];
    fill(x, N, first);
    check(b->upload(m->d, buffers[IN], 0, x, BYTES));
    run(m, buffers, number);
    check(b->download(m->d, y, buffers[OUT], 0, BYTES));
    for (int i = 0; i < N; i++)
        if (y[i] != (float)number * ((float)number * x[i] + 1))
            fail_msg("element %d is %g; %g of %g was wanted", i, y[i], number, x[i]);
    check(b->download(m->d, y, buffers[VARIABLE], 0, BYTES));
    for (int i = 0; i < N; i++) assert_true(y[i] == (float)number * x[i]);
}

static void take_all(const wb_device *d, void **buffers)
{
    for (int i = 0; i < BUFFERS; i++) buffers[i] = take(d, kinds[i].bytes);
}

static void release_all(const wb_device *d, void **buffers)
{
    for (int i = 0; i < BUFFERS; i++) b->release(d, buffers[i], kinds[i].bytes);
}

/* ---- what the driver is asked ---------------------------------------------------------------- */

static void test_calls_of_a_step(void **state)
{
    void *buffers[BUFFERS];
    model m;
    make(&m, dev[0]);
    take_all(m.d, buffers);
    run_right(&m, buffers, 1, 2);
    assert_int_equal(books().execs, 1);
    assert_int_equal(books().graphs, 0);
    forget_calls();
    enum { STEPS = 20 };
    for (int i = 0; i < STEPS; i++) run(&m, buffers, i);
    assert_int_equal(count_calls("cuGraphLaunch"), STEPS);
    assert_int_equal(count_calls("cuLaunchKernel"), STEPS);     /* the numbers */
    assert_int_equal(count_calls("cuEventRecord"), STEPS);
    assert_int_equal(count_calls("cuStreamBeginCapture_v2"), 0);
    assert_int_equal(count_calls("cuMemAllocFromPoolAsync"), 0);
    assert_int_equal(count_calls(NULL), 5 * STEPS);             /* and the context, twice */
    run_right(&m, buffers, 5, 3);
    unmake(&m);
    release_all(dev[0], buffers);
    assert_int_equal(books().execs, 0);
}

/* The pieces of a step are one kernel: recorded are it and the two of the other step. */
static void test_pieces_are_one_kernel(void **state)
{
    void *buffers[BUFFERS];
    model m;
    make(&m, dev[0]);
    take_all(m.d, buffers);
    forget_calls();
    run(&m, buffers, 1);
    assert_int_equal(count_calls("cuLaunchKernel"), 1 + 1 + 2);
    unmake(&m);
    release_all(dev[0], buffers);
}

/* ---- buffers that move ----------------------------------------------------------------------- */

static int64_t captures(void) { return count_calls("cuStreamBeginCapture_v2"); }

/* Few places take turns: each has its instance.  Many: one has memory of its own. */
static void test_places(void **state)
{
    enum { PLACES = 23, BATCHES = 8 };
    void *all[PLACES][BUFFERS], *buffers[BUFFERS];
    model m;
    make(&m, dev[0]);
    for (int i = 0; i < PLACES; i++) take_all(m.d, all[i]);
    memcpy(buffers, all[0], sizeof buffers);
    forget_calls();
    for (int turn = 0; turn < 12; turn++) {
        buffers[IN] = all[turn % 2][IN];
        buffers[OUT] = all[turn / 2 % 2][OUT];
        run_right(&m, buffers, (float)turn, turn);
    }
    assert_int_equal(captures(), 4);
    const int64_t copies = count_calls("cuMemcpyDtoDAsync_v2");
    for (int turn = 0; turn < 5 * BATCHES; turn++) {            /* a loader's batches */
        buffers[IN] = all[turn % BATCHES][IN];
        buffers[OUT] = all[2 + turn % 2][OUT];
        run_right(&m, buffers, (float)turn, turn);
    }
    assert_int_equal(captures(), 4 + BATCHES);
    assert_int_equal(count_calls("cuMemcpyDtoDAsync_v2"), copies);
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
    assert_true(memory_of(dev[0]).used >= used + (int64_t)kinds[ARENA].bytes);     /* its own */
    assert_true(memory_of(dev[0]).peak >= memory_of(dev[0]).used);
    for (int i = 1; i < 4; i++) {               /* a variable: what was recorded is of no use */
        buffers[VARIABLE] = all[i][VARIABLE];
        for (int turn = 0; turn < 3; turn++) run_right(&m, buffers, (float)turn, 4);
        assert_int_equal(captures(), 18 + i);
    }
    unmake(&m);
    for (int i = 0; i < PLACES; i++) release_all(dev[0], all[i]);
    assert_int_equal(memory_of(dev[0]).used, 0);
}

/* Models of one shape take turns, more of them than there are instances: recording does not go on. */
static void test_many_models(void **state)
{
    enum { MODELS = 20, TURNS = 40 };
    void *all[MODELS][BUFFERS];
    model m;
    make(&m, dev[0]);
    for (int i = 0; i < MODELS; i++) take_all(m.d, all[i]);
    forget_calls();
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < MODELS; i++) run_right(&m, all[i], (float)(i + turn), turn);
    assert_in_range(captures(), 16, 32 + MODELS * TURNS / 8);
    assert_true(count_calls("cuGraphLaunch") > MODELS * TURNS / 3);
    unmake(&m);
    for (int i = 0; i < MODELS; i++) release_all(dev[0], all[i]);
    assert_int_equal(memory_of(dev[0]).used, 0);
}

/* Memory of its own is not to be had: it is recorded anew, though not every time, and right. */
static void test_places_without_memory(void **state)
{
    enum { PLACES = 20 };
    check(restart("WEBER_MEMORY_LIMIT", "4M"));
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
    check(restart("WEBER_MEMORY_LIMIT", NULL));
}

/* Uploads for the next runs go on while runs are waiting: each sees its own. */
static void test_uploads_between_runs(void **state)
{
    static const char *const schedules[] = {"round", "latest", "lazy", "random:5"};
    enum { RUNS = 12 };
    for (size_t s = 0; s < WB__COUNT(schedules); s++) {
        check(restart("VGPU_SCHEDULE", schedules[s]));
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
            check(b->upload(m.d, in[i & 1], 0, x, BYTES));
            run(&m, now, i);
        }
        for (int i = 0; i < RUNS; i++) {
            check(b->download(m.d, y, out[i], 0, BYTES));
            fill(x, N, (float)i);
            for (int k = 0; k < N; k++) assert_true(y[k] == (float)i * ((float)i * x[k] + 1));
            b->release(m.d, out[i], BYTES);
        }
        for (int i = 0; i < 2; i++) b->release(m.d, in[i], BYTES);
        unmake(&m);
        release_all(dev[0], buffers);
    }
    check(restart("VGPU_SCHEDULE", NULL));
}

/* ---- threads --------------------------------------------------------------------------------- */

static model shared;

static void *work(void *argument)
{
    const int id = (int)(intptr_t)argument;
    void *buffers[BUFFERS];
    float x[N], y[N];
    intptr_t wrong = 0;
    for (int i = 0; i < BUFFERS; i++) wrong |= !(buffers[i] = b->allocate(shared.d, kinds[i].bytes));
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

static void test_threads(void **state)
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

/* ---- where there is none --------------------------------------------------------------------- */

/* Switched off, or beside WEBER_DEBUG=sync, which a process reads once and another test tries. */
static void test_without(void **state)
{
    check(restart("WEBER_CUDA_GRAPHS", "0"));
    const wb__step step = step_between(STEP_PARTS, IN, VARIABLE);
    wb__kernel *k = NULL;
    check(b->prepare(dev[0], &step, &k));
    const wb__kernel *kernels[] = {k};
    const wb__sequence s = {.n_kernels = 1, .kernels = kernels, .n_buffers = BUFFERS,
                            .buffers = kinds, .n_numbers = 1};
    wb__graph *graph = (wb__graph *)&s;
    wb_clear_error();
    assert_int_equal(b->graph(dev[0], &s, &graph), WB_ERROR_UNSUPPORTED);
    assert_null(graph);
    assert_string_equal(wb_error(), "");
    b->destroy(dev[0], k);
    check(restart("WEBER_CUDA_GRAPHS", NULL));
}

int main(void)
{
    open_double();
    setenv("VGPU_DEVICES", "2", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_of_a_step),
        cmocka_unit_test(test_pieces_are_one_kernel),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_many_models),
        cmocka_unit_test(test_places_without_memory),
        cmocka_unit_test(test_uploads_between_runs),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_without),
        cmocka_unit_test(test_nothing_left),
        cmocka_unit_test(test_books),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
