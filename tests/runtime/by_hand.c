/* See by_hand.h. */
#include "by_hand.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---- kernels --------------------------------------------------------------------------------- */

#define FLOATS "GLOBAL float *x = PTR(float, b0, 0, 0), *y = PTR(float, b1, 0, 0);"
#define ARGUMENTS                                                                                  \
    "typedef struct { uint n; float factor; uint at[2]; } test_args;\n"
const char *const test_texts[STEPS_BY_HAND] = {
    [STEP_SCALE] = ARGUMENTS
        "KERNEL scale(BUF(b0, 0), BUF(b1, 1), ARGS(test_args, 2))\n"
        "{ " FLOATS " uint i = GID(0); if (i < a.n) y[i] = a.factor * x[i]; }\n",
    [STEP_TWICE] = ARGUMENTS
        "KERNEL add(BUF(b0, 0), BUF(b1, 1), ARGS(test_args, 2))\n"
        "{ " FLOATS " uint i = GID(0); if (i < a.n) y[a.at[0] / 4 + i] = x[i] + 1; }\n"
        "KERNEL scale(BUF(b0, 0), BUF(b1, 1), ARGS(test_args, 2))\n"
        "{ " FLOATS " uint i = GID(0); if (i < a.n) y[i] = a.factor * x[a.at[0] / 4 + i]; }\n",
    [STEP_SLOW] = ARGUMENTS
        "KERNEL slow(IN(float, x, 0), OUT(float, y, 1), ARGS(test_args, 2))\n"
        "{ uint i = GID(0), k; float v = x[i];\n"
        "  for (k = 0; k < 60000; k++) { v = v * 1.0001f + 0.001f; if (v > 2) v -= 1; }\n"
        "  if (i < a.n) y[i] = v > -1 ? x[i] + 1 : v; }\n",
    [STEP_F64] = ARGUMENTS
        "KERNEL wide(IN(float, x, 0), OUT(float, y, 1), ARGS(test_args, 2))\n"
        "{ double d = 1.0 + 9.094947017729282e-13; uint i = GID(0);\n"
        "  if (i < a.n) y[i] = (float)(d - x[i]); }\n",
    [STEP_WRONG] = "KERNEL wrong(IN(float, x, 0) { there is no such_word; }\n",
    [STEP_WIDE] = ARGUMENTS
        "KERNEL scale(IN(float, x, 0), OUT(float, y, 1), ARGS(test_args, 2)) { y[0] = x[0]; }\n",
    [STEP_NAMELESS] = ARGUMENTS
        "KERNEL other(IN(float, x, 0), OUT(float, y, 1), ARGS(test_args, 2)) { y[0] = x[0]; }\n",
    [STEP_PARTS] = ARGUMENTS
        "KERNEL scale(BUF(b0, 0), BUF(b1, 1), ARGS(test_args, 2))\n"
        "{ " FLOATS " uint i = GID(0) + a.at[0];\n"
        "  if (GID(0) < a.n) y[i] = a.factor * x[i]; }\n",
};
#undef FLOATS
#undef ARGUMENTS

static wb__gpu_launch *test_add(wb__gpu_work *work, const wb__step *step, const char *entry,
                                int from, int to)
{
    const test_args args = {
        (uint32_t)step->views[0].dims[0], 0, {0, 0}};
    wb__gpu_launch *l = wb__gpu_add_launch(work, wb__strdup(test_texts[step->variant]), entry, 2,
                                           sizeof args, 1);
    if (!l) return NULL;
    memcpy(l->args, &args, sizeof args);
    l->numbers[0] = (wb__gpu_number){.number = 0, .at = 4, .type = WB__GPU_NUMBER_F32};
    l->buffer[0] = from;
    l->buffer[1] = to;
    l->items[0] = step->variant == STEP_WIDE ? 1 << 24 : 64;
    l->groups[0] = (args.n + 63) / 64;
    l->f64 = step->variant == STEP_F64;
    if (step->variant == STEP_SCALE || step->variant == STEP_TWICE || step->variant == STEP_PARTS)
        l->args_type = "test_args";
    return l;
}

/* Adds part i of a step in several parts, whose sizes differ. */
static wb__gpu_launch *test_add_piece(wb__gpu_work *work, const wb__step *step, uint32_t i)
{
    const uint32_t n = (uint32_t)step->views[0].dims[0], a_piece = n / TEST_PARTS;
    const test_args args = {
        i + 1 < TEST_PARTS ? a_piece : n - i * a_piece, 0, {i * a_piece, 0}};
    wb__gpu_launch *l = test_add(work, step, "scale", step->views[0].buffer,
                                 step->views[1].buffer);
    if (!l) return NULL;
    memcpy(l->args, &args, sizeof args);
    l->groups[0] = (args.n + 63) / 64;
    l->segment = (int)i;
    return l;
}

int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work)
{
    static const char *const entries[] = {"scale", "add", "slow", "wide", "wrong", "scale",
                                          "nothing", "scale"};
    if (step->variant == STEP_F64 && !t->f64)
        return wb__fail(WB_ERROR_UNSUPPORTED, "the device has no double");
    wb__gpu_work *w = wb__alloc_zero(1, sizeof *w);
    if (!w) return WB_ERROR_MEMORY;
    const bool twice = step->variant == STEP_TWICE;
    const bool parts = step->variant == STEP_PARTS;
    const int from = step->views[0].buffer, to = step->views[1].buffer;
    wb__gpu_launch *l = parts ? test_add_piece(w, step, 0)
                              : test_add(w, step, entries[step->variant], from,
                                         twice ? WB__GPU_WORKSPACE : to);
    for (uint32_t i = 1; i < TEST_PARTS && l && parts; i++) l = test_add_piece(w, step, i);
    if (l && twice) {
        l->workspace_at = 8;
        l = test_add(w, step, "scale", WB__GPU_WORKSPACE, to);
        if (l) l->workspace_at = 8;
        w->workspace = 4 * (size_t)step->views[0].dims[0];
    }
    w->impl = "test";
    if (l) *work = w;
    else wb__gpu_work_free(w);
    return l ? 0 : WB_ERROR_MEMORY;
}

wb__step test_step_of(test_step which, int64_t n)
{
    return (wb__step){.kind = WB__STEP_COPY, .variant = (int)which, .n_views = 2,
                      .views = {{.dtype = WB_F32, .ndim = 1, .dims = {n}, .strides = {1}},
                                {.dtype = WB_F32, .buffer = 1, .ndim = 1, .dims = {n},
                                 .strides = {1}}}};
}

/* ---- a backend with two devices -------------------------------------------------------------- */

const wb__backend *b;
const wb_device *dev[2];
static int64_t memory_before;

int restart(const char *name, const char *value)
{
    b->stop();
    if (value) setenv(name, value, 1);
    else unsetenv(name);
    const int status = b->start();
    for (int i = 0; i < 2; i++) dev[i] = status ? NULL : b->device(i);
    return status;
}

int test_begin(const wb__backend *backend)
{
    b = backend;
    memory_before = wb_memory_used();
    if (b->start()) {
        print_error("%s\n", wb_error());
        return 1;
    }
    for (int i = 0; i < 2; i++) dev[i] = b->device(i);
    return b->count() == 2 ? 0 : 1;
}

void test_end(void)
{
    b->stop();
    b->stop();
    test_disk_empty();
    assert_int_equal(wb_memory_used() - memory_before, 0);
}

int in_child(int (*run)(void))
{
    int status = -1;
    fflush(NULL);
    const pid_t process = fork();
    if (!process) {
        alarm(60);
        status = run();
        if (status) fprintf(stderr, "%d: %s\n", status, wb_error());
        _exit(status);
    }
    waitpid(process, &status, 0);
    return status;
}

static struct {
    const wb__backend *backend;
    const char *name, *value, *const *facts;
} asked;

static int start_wrongly(void)
{
    setenv(asked.name, asked.value, 1);
    const int status = asked.backend->start();
    const bool right = status && has_facts(wb_error(), asked.facts) && asked.backend->count() == 0;
    if (!right) fprintf(stderr, "%s=%s: %d\n", asked.name, asked.value, status);
    if (status) asked.backend->stop();          /* allowed after a failed start */
    return !right;
}

int child(const wb__backend *backend, const char *name, const char *value,
          const char *const *facts)
{
    asked.backend = backend;
    asked.name = name;
    asked.value = value;
    asked.facts = facts;
    return in_child(start_wrongly);
}

void expect_error(int status, int code, const char *const *facts)
{
    assert_int_equal(status, code);
    if (!failed_with(code, facts)) fail_msg("the message is: %s", wb_error());
    wb_clear_error();
}

void expect_none(void *memory, const char *const *facts)
{
    assert_null(memory);
    expect_error(wb_error_code(), WB_ERROR_MEMORY, facts);
}

void *take(const wb_device *d, size_t bytes)
{
    void *memory = b->allocate(d, bytes);
    if (!memory) print_error("%s\n", wb_error());
    assert_non_null(memory);
    return memory;
}

wb_device_memory memory_of(const wb_device *d)
{
    wb_device_memory m;
    WORKS(b->memory(d, &m));
    return m;
}

wb__kernel *prepared(const wb_device *d, test_step which, int64_t n)
{
    wb__kernel *k = NULL;
    const wb__step step = test_step_of(which, n);
    WORKS(b->prepare(d, &step, &k));
    assert_non_null(k);
    return k;
}

void launch(const wb_device *d, const wb__kernel *k, void *from, void *to, void *workspace,
            size_t workspace_at, double number)
{
    const wb__number numbers = {.f = number};
    void *buffers[] = {from, to};
    WORKS(b->launch(d, k, buffers, NULL, workspace, workspace_at, &numbers));
}

void fill(float *x, size_t n, float first)
{
    for (size_t i = 0; i < n; i++) x[i] = first + (float)(i % 1000);
}

int copy_or_stage(const wb_device *to_device, void *to, size_t to_at, const wb_device *from_device,
                  const void *from, size_t from_at, size_t bytes)
{
    char stage[BYTES];
    int e = b->copy(to_device, to, to_at, from_device, from, from_at, bytes);
    if (e != WB_ERROR_UNSUPPORTED || to_device == from_device) return e;
    e = b->download(from_device, stage, from, from_at, WB__MIN(bytes, sizeof stage));
    return e ? e : b->upload(to_device, to, to_at, stage, bytes);
}

/* ---- copies ---------------------------------------------------------------------------------- */

void two_devices(const char *name, const char *tag)
{
    assert_string_equal(b->name, name);
    assert_string_equal(b->tag, tag);
    assert_true(b->dear_launches && !b->host_visible);
    assert_int_equal(b->start(), 0);            /* a second start does nothing */
    assert_int_equal(b->count(), 2);
    assert_null(b->device(2));
    assert_null(b->device(-1));
    for (int i = 0; i < 2; i++) {
        const char *of = dev[i]->name;
        assert_true(dev[i]->backend == b && dev[i]->ordinal == i);
        assert_true(*of && *of != ' ' && of[strlen(of) - 1] != ' ');
        for (wb_dtype t = 0; t < WB_DTYPE_COUNT; t++)
            assert_true(b->has_dtype(dev[i], t) == (t != WB_F64 || strcmp(tag, "metal")));
        assert_int_equal(b->wait(dev[i]), 0);   /* no command was launched yet */
    }
}

/* The driver is out of memory while blocks of other sizes are cached: the cache frees them. */
void cached_sizes_go_back(void)
{
    const size_t half = (size_t)memory_of(dev[0]).total / 2, eighth = half / 4;
    for (int turn = 0; turn < 2; turn++) {
        void *a = take(dev[0], half);
        b->release(dev[0], a, half);
        void *c[5];
        for (int i = 0; i < 5; i++) c[i] = take(dev[0], eighth);
        for (int i = 0; i < 5; i++) b->release(dev[0], c[i], eighth);
    }
    b->trim(dev[0]);
}

void transfers(void)
{
    enum { SIZE = 9 << 20 };                    /* staged in three parts */
    unsigned char *x = malloc(SIZE), *y = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) x[i] = (unsigned char)(i * 2654435761u >> 13);
    void *memory = take(dev[0], SIZE);
    WORKS(b->upload(dev[0], memory, 0, x, SIZE));
    WORKS(b->download(dev[0], y, memory, 0, SIZE));
    assert_memory_equal(x, y, SIZE);
    static const struct { size_t at, n; } parts[] = {
        {0, 1}, {1, 1}, {3, 1000}, {SIZE - 1, 1}, {4093, 5000000}, {SIZE / 2, SIZE / 2}};
    for (size_t i = 0; i < WB__COUNT(parts); i++) {
        memset(y, 0xaa, SIZE);
        WORKS(b->download(dev[0], y, memory, parts[i].at, parts[i].n));
        assert_memory_equal(x + parts[i].at, y, parts[i].n);
        assert_true(parts[i].n == SIZE || y[parts[i].n] == 0xaa);
        memset(y, (int)i, parts[i].n);
        memcpy(x + parts[i].at, y, parts[i].n);
        WORKS(b->upload(dev[0], memory, parts[i].at, y, parts[i].n));
        WORKS(b->download(dev[0], y, memory, 0, SIZE));
        assert_memory_equal(x, y, SIZE);
    }
    b->release(dev[0], memory, SIZE);
    memory = take(dev[0], 100);
    EXPECT_ERROR(b->upload(dev[0], memory, 5000, x, 1), WB_ERROR_INTERNAL, "1", "5000");
    EXPECT_ERROR(b->download(dev[0], y, memory, 0, 999), WB_ERROR_INTERNAL, "999", "0");
    b->release(dev[0], memory, 100);
    free(x);
    free(y);
}

void copies(void)
{
    float x[N], y[N];
    fill(x, N, 1);
    for (int source = 0; source < 2; source++) {
        for (int target = 0; target < 2; target++) {
            const wb_device *from_device = dev[source], *to_device = dev[target];
            void *from = take(from_device, BYTES), *to = take(to_device, BYTES);
            wb__kernel *k = prepared(from_device, STEP_SCALE, N);
            WORKS(b->upload(from_device, from, 0, x, BYTES));
            launch(from_device, k, from, from, NULL, 0, 3);     /* before the copy */
            memset(y, 0, BYTES);
            WORKS(b->upload(to_device, to, 0, y, BYTES));
            WORKS(copy_or_stage(to_device, to, 40, from_device, from, 80, 400));
            launch(from_device, k, from, from, NULL, 0, 0);     /* after the copy */
            WORKS(b->download(to_device, y, to, 0, BYTES));
            for (int i = 0; i < N; i++)
                assert_true(y[i] == (i >= 10 && i < 110 ? 3 * x[i + 10] : 0));
            WORKS(b->download(from_device, y, from, 0, BYTES));
            for (int i = 0; i < N; i++) assert_true(y[i] == 0);
            b->destroy(from_device, k);
            b->release(from_device, from, BYTES);
            b->release(to_device, to, BYTES);
        }
    }
}

/* ---- commands -------------------------------------------------------------------------------- */

/* The memory of a slow kernel is written, released, allocated again and written while the kernel
 * runs: the commands keep their order. */
void order(void)
{
    const wb_device *d = dev[0];
    float x[N], y[N], z[N];
    fill(x, N, 1);
    fill(z, N, 5);
    wb__kernel *slow = prepared(d, STEP_SLOW, N), *scale = prepared(d, STEP_SCALE, N);
    void *from = take(d, BYTES), *to = take(d, BYTES), *third = take(d, BYTES);
    WORKS(b->upload(d, from, 0, x, BYTES));
    for (int turn = 0; turn < 2; turn++) {      /* the first one compiles */
        launch(d, slow, from, to, NULL, 0, 0);
        launch(d, scale, to, third, NULL, 0, 2);
        WORKS(b->upload(d, from, 0, z, BYTES)); /* after `slow` reads it */
        b->release(d, to, BYTES);
        void *again = take(d, BYTES);           /* the same memory: the only one of its size */
        assert_ptr_equal(again, to);
        WORKS(b->upload(d, again, 0, z, BYTES));
        WORKS(b->download(d, y, again, 0, BYTES));
        assert_memory_equal(y, z, BYTES);
        WORKS(b->download(d, y, third, 0, BYTES));
        for (int i = 0; i < N; i++) assert_true(y[i] == 2 * (x[i] + 1));
        WORKS(b->upload(d, from, 0, x, BYTES));
    }
    b->destroy(d, slow);                        /* then a kernel is destroyed while it runs */
    slow = prepared(d, STEP_SLOW, N);
    launch(d, slow, from, to, NULL, 0, 0);
    b->destroy(d, slow);
    b->destroy(d, scale);
    WORKS(b->wait(d));
    WORKS(b->download(d, y, to, 0, BYTES));
    for (int i = 0; i < N; i++) assert_true(y[i] == x[i] + 1);
    b->release(d, from, BYTES);
    b->release(d, to, BYTES);
    b->release(d, third, BYTES);
    b->trim(d);
}

void launches(void)
{
    float x[N], y[N];
    fill(x, N, 0);
    for (int i = 0; i < 2; i++) {
        const wb_device *d = dev[i];
        void *from = take(d, BYTES), *to = take(d, BYTES), *other = take(d, BYTES);
        WORKS(b->upload(d, from, 0, x, BYTES));
        wb__kernel *k = prepared(d, STEP_SCALE, N);
        assert_string_equal(k->impl, "test");
        assert_int_equal(k->workspace, 0);
        for (int turn = 1; turn < 100; turn++) {        /* new and repeated numbers, buffers */
            launch(d, k, from, turn % 5 == 4 ? other : to, NULL, 0, turn / 2);
            if (turn % 10) continue;
            WORKS(b->download(d, y, to, 0, BYTES));
            for (int n = 0; n < N; n++) assert_true(y[n] == (float)(turn / 2) * x[n]);
        }
        b->release(d, other, BYTES);
        b->trim(d);             /* new memory may have an old address: arguments are set again */
        other = take(d, BYTES);
        launch(d, k, from, other, NULL, 0, 7);
        WORKS(b->download(d, y, other, 0, BYTES));
        for (int n = 0; n < N; n++) assert_true(y[n] == 7 * x[n]);
        b->destroy(d, k);
        b->destroy(d, NULL);
        b->release(d, from, BYTES);
        b->release(d, to, BYTES);
        b->release(d, other, BYTES);
    }
}

/* Constants are float in f32 kernels and double in those of f64. */
void f64_kernels(void)
{
    const wb_device *d = dev[0];
    const float one = 1;
    float y = 0;
    void *from = take(d, 4), *to = take(d, 4);
    WORKS(b->upload(d, from, 0, &one, 4));
    wb__kernel *k = prepared(d, STEP_F64, 1);
    launch(d, k, from, to, NULL, 0, 0);
    WORKS(b->download(d, &y, to, 0, 4));
    assert_true(y == 0x1p-40f);
    b->destroy(d, k);
    b->release(d, from, 4);
    b->release(d, to, 4);
}

void keep_programs(const char *name, const char *value, const char *after)
{
    float x[N], y[N];
    fill(x, N, 1);
    WORKS(restart(name, value));
    test_disk_empty();
    for (int turn = 0; turn < 3; turn++) {
        const int before = test_kept;
        test_hits = 0;
        test_spoiled = turn == 2;
        const wb_device *d = dev[0];
        void *from = take(d, BYTES), *to = take(d, BYTES);
        WORKS(b->upload(d, from, 0, x, BYTES));
        wb__kernel *k = prepared(d, STEP_SCALE, N), *same = prepared(d, STEP_SCALE, 10);
        launch(d, k, from, to, NULL, 0, 3);
        WORKS(b->download(d, y, to, 0, BYTES));
        for (int i = 0; i < N; i++) assert_true(y[i] == 3 * x[i]);
        assert_int_equal(test_hits, turn > 0);
        assert_int_equal(test_kept - before, turn != 1);
        b->destroy(d, k);
        b->destroy(d, same);
        k = prepared(d, STEP_SCALE, 20);                /* still in memory */
        assert_int_equal(test_hits, turn > 0);
        b->destroy(d, k);
        b->release(d, from, BYTES);
        b->release(d, to, BYTES);
        WORKS(restart(name, turn < 2 ? value : after));
    }
    test_spoiled = false;
    test_disk_empty();
}

void cannot_be(test_step which, const char *const *facts)
{
    const wb__step step = test_step_of(which, N);
    wb__kernel *k = (wb__kernel *)&step;
    const int status = b->prepare(dev[0], &step, &k);
    assert_null(k);
    expect_error(status, WB_ERROR_DEVICE, facts);
}

/* ---- a plan ---------------------------------------------------------------------------------- */

const wb__buffer kinds[BUFFERS] = {
    [IN] = {.kind = WB__BUFFER_INPUT, .bytes = BYTES},
    [VARIABLE] = {.kind = WB__BUFFER_VARIABLE, .bytes = BYTES},
    [OUT] = {.kind = WB__BUFFER_RESULT, .bytes = BYTES},
    [ARENA] = {.kind = WB__BUFFER_ARENA, .bytes = 2 * BYTES + 64}};

wb__step step_between(test_step which, int from, int to)
{
    wb__step s = test_step_of(which, N);
    s.views[0].buffer = from;
    s.views[1].buffer = to;
    return s;
}

void make(model *m, const wb_device *d)
{
    const wb__step parts = step_between(STEP_PARTS, IN, VARIABLE);
    const wb__step twice = step_between(STEP_TWICE, VARIABLE, OUT);
    memset(m, 0, sizeof *m);
    m->d = d;
    WORKS(b->prepare(d, &parts, &m->parts));
    WORKS(b->prepare(d, &twice, &m->twice));
    m->kernels[0] = m->parts;
    m->kernels[1] = m->twice;
    m->s = (wb__sequence){.n_kernels = 2, .kernels = m->kernels, .n_buffers = BUFFERS,
                          .buffers = kinds, .workspace_at = 64, .n_numbers = 1};
    WORKS(b->graph(d, &m->s, &m->graph));
}

void unmake(model *m)
{
    b->graph_free(m->d, m->graph);
    b->destroy(m->d, m->parts);
    b->destroy(m->d, m->twice);
}

void run(model *m, void *const *buffers, double number)
{
    const wb__number n = {.f = number};
    WORKS(b->graph_run(m->d, m->graph, buffers, NULL, &n));
}

/* Runs the plan with an input that begins with `first`, and checks the results. */
void run_right(model *m, void *const *buffers, float first, double number)
{
    float x[N], y[N];
    fill(x, N, first);
    WORKS(b->upload(m->d, buffers[IN], 0, x, BYTES));
    run(m, buffers, number);
    WORKS(b->download(m->d, y, buffers[OUT], 0, BYTES));
    for (int i = 0; i < N; i++)
        if (y[i] != (float)number * ((float)number * x[i] + 1))
            fail_msg("element %d is %g; %g of %g was wanted", i, y[i], number, x[i]);
    WORKS(b->download(m->d, y, buffers[VARIABLE], 0, BYTES));
    for (int i = 0; i < N; i++) assert_true(y[i] == (float)number * x[i]);
}

void take_all(const wb_device *d, void **buffers)
{
    for (int i = 0; i < BUFFERS; i++) buffers[i] = take(d, kinds[i].bytes);
}

void release_all(const wb_device *d, void **buffers)
{
    for (int i = 0; i < BUFFERS; i++) b->release(d, buffers[i], kinds[i].bytes);
}
