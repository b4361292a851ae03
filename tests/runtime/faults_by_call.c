/* See faults_by_call.h. */
#include "faults_by_call.h"

#include <stdio.h>

static const calls_that_fail *faults;

/* The number of plans that the backend reported to run without a graph; the call that failed. */
int without_graph;
static char reached_text[200];

static void listen(wb_log_level level, const char *text, void *context)
{
    (void)level, (void)context;
    without_graph += HAS_LINE(text, "without", "graph");
}

/* All objects of an attempt, so that they can be released wherever it fails. */
typedef struct {
    const wb_device *d[2];
    void *x, *y, *arena, *other;
    wb__kernel *scale, *twice;
} things;

static void give_back(things *t)
{
    if (t->scale) b->destroy(t->d[0], t->scale);
    if (t->twice) b->destroy(t->d[0], t->twice);
    if (t->x) b->release(t->d[0], t->x, BYTES);
    if (t->y) b->release(t->d[0], t->y, BYTES);
    if (t->arena) b->release(t->d[0], t->arena, BYTES);
    if (t->other) b->release(t->d[1], t->other, BYTES);
}

/* Runs both kernels as one command, five times. */
static int use_graph(things *t, const float *x)
{
    const wb__kernel *const kernels[] = {t->scale, t->twice};
    static const wb__buffer kinds[] = {
        {.kind = WB__BUFFER_INPUT, .bytes = BYTES}, {.kind = WB__BUFFER_RESULT, .bytes = BYTES},
        {.kind = WB__BUFFER_ARENA, .bytes = BYTES}};
    const wb__sequence s = {.n_kernels = 2, .kernels = kernels, .n_buffers = 3, .buffers = kinds,
                            .n_numbers = 1};
    void *buffers[] = {t->x, t->y, t->arena};
    float y[N];
    wb__graph *g = NULL;
    int e = b->upload(t->d[0], t->x, 0, x, BYTES);
    if (!e) e = b->graph(t->d[0], &s, &g);
    if (e == WB_ERROR_UNSUPPORTED && !*wb_error()) return 0;
    for (int i = 0; i < 5 && !e; i++) {
        const wb__number number = {.f = i};
        e = b->graph_run(t->d[0], g, buffers, NULL, &number);
        if (!e) e = b->download(t->d[0], y, t->y, 0, BYTES);
        for (int k = 0; k < N && !e; k++) assert_true(y[k] == (float)i * (x[k] + 1));
    }
    b->graph_free(t->d[0], g);
    return e;
}

/* Returns 0 or the error; a wrong result fails the test. */
static int use(things *t)
{
    float x[N], y[N];
    const wb__step scale = test_step_of(STEP_SCALE, N), twice = test_step_of(STEP_TWICE, N);
    const wb__number two = {.f = 2}, three = {.f = 3};
    const wb_device *d = t->d[0];
    int e = 0;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    if (!(t->x = b->allocate(d, BYTES)) || !(t->y = b->allocate(d, BYTES)) ||
        !(t->arena = b->allocate(d, BYTES)) || !(t->other = b->allocate(t->d[1], BYTES)))
        return wb_error_code();
    void *buffers[] = {t->x, t->y};
    if ((e = b->upload(d, t->x, 0, x, BYTES)) || (e = b->prepare(d, &scale, &t->scale)) ||
        (e = b->prepare(d, &twice, &t->twice)))
        return e;
    for (int i = 0; i < 20; i++)
        if ((e = b->launch(d, t->scale, buffers, NULL, NULL, 0, &two))) return e;
    if ((e = b->download(d, y, t->y, 0, BYTES))) return e;
    for (int i = 0; i < N; i++) assert_true(y[i] == 2 * x[i]);
    if ((e = b->launch(d, t->twice, buffers, NULL, t->arena, 0, &three)) ||
        (e = copy_or_stage(t->d[1], t->other, 0, d, t->y, 0, BYTES)) ||
        (e = b->copy(d, t->x, 40, d, t->y, 40, 40)) ||
        (e = b->download(t->d[1], y, t->other, 0, BYTES)))
        return e;
    for (int i = 0; i < N; i++) assert_true(y[i] == 3 * (x[i] + 1));
    if ((e = b->download(d, y, t->x, 0, BYTES))) return e;
    for (int i = 0; i < N; i++)
        assert_true(y[i] == (i >= 10 && i < 20 ? 3 * (x[i] + 1) : x[i]));
    b->trim(d);
    if ((e = b->upload(d, t->y, 0, x, BYTES)) || (e = b->wait(d)) || (e = b->wait(t->d[1])))
        return e;
    return b->graph ? use_graph(t, x) : 0;
}

/* A whole attempt, from start() on; returns 0 or the error. */
static int try_all(things *t)
{
    memset(t, 0, sizeof *t);
    const int e = b->start();
    if (e) return e;
    for (int i = 0; i < 2; i++) t->d[i] = b->device(i);
    assert_int_equal(b->count(), 2);
    return use(t);
}

/* One attempt in which the n-th call fails (`all`: also all later calls), then a second attempt
 * without stop() in between; everything is released.  True if a call failed. */
static bool one(int n, bool all, bool fresh)
{
    char text[16];
    things t, again;
    faults->failed(reached_text);
    snprintf(text, sizeof text, "%d%s", n, all ? "+" : "");
    setenv(faults->variable, text, 1);
    if (fresh) test_disk_empty();
    const int64_t before = wb_memory_used();
    wb_clear_error();
    const int e = try_all(&t);
    const bool did = faults->failed(reached_text) > 0;
    if (e && !did) fail_msg("%d: without a reason: %s", n, wb_error());
    if (e && !strstr(wb_error(), b->tag))
        fail_msg("%s: the error is \"%s\"", reached_text, wb_error());
    if (!e && did && all) fail_msg("%s: no error", reached_text);
    if (!all && did) {
        wb_clear_error();
        if (!b->count()) unsetenv(faults->variable);     /* a new start would count again */
        int repeated = try_all(&again);
        if (repeated && strstr(wb_error(), "is lost")) {        /* it is found again after stop() */
            give_back(&again);
            give_back(&t);
            memset(&t, 0, sizeof t);
            b->stop();
            unsetenv(faults->variable);
            repeated = try_all(&again);
        }
        if (repeated) fail_msg("%s: and then: %s", reached_text, wb_error());
        give_back(&again);
    }
    give_back(&t);
    b->stop();
    if (!faults->nothing_left()) fail_msg("%s: objects are left", reached_text);
    if (wb_memory_used() != before && !fresh)
        fail_msg("%s: %lld bytes are left", reached_text, (long long)(wb_memory_used() - before));
    return did;
}

/* The first call fails, then only the second, and so on, until an attempt has fewer calls. */
void fail_each(const calls_that_fail *calls, bool all, bool fresh, int least)
{
    int n = 1;
    faults = calls;
    b = calls->backend;
    wb_set_log(listen, NULL);
    while (one(n, all, fresh)) n++;
    print_message("%d calls\n", n - 1);
    assert_true(n > least);             /* fewer: the test does not reach the driver */
    unsetenv(faults->variable);
    things t;
    assert_int_equal(try_all(&t), 0);
    give_back(&t);
    b->stop();
}
