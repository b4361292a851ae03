/* Several GPUs in one process: wb_distributed_run with NCCL, on the doubles of CUDA and NCCL, or of
 * HIP and RCCL with WEBER_BACKENDS=AMDGPU.
 *
 *   cuda_ranks child HOW DEVICES    is a process of its own for a case: it prints the losses of a
 *                                   training, or ends in the way HOW */
#include "test.h"

#include "dist/dist.h"
#include "rank_processes.h"
#include "tests/doubles/cuda_double.h"
#include "weber.h"

#include <unistd.h>

enum { OBSERVATIONS = 48, BATCH = 12, SIDE = 8, EPOCHS = 2, STEPS = EPOCHS * OBSERVATIONS / BATCH,
       MOST = 4 };

static void initialise(int devices)
{
    WORKS(wb_distributed_initialize(WB_NCCL, .devices = devices, .timeout = 20));
}

/* Runs f on n ranks, and disconnects them. */
static void on_ranks(int n, int (*f)(void *), void *ctx)
{
    initialise(n);
    WORKS(wb_distributed_run(f, ctx));
    WORKS(wb_distributed_finalize());
}

/* ---- training -------------------------------------------------------------------------------- */

typedef struct {
    bool compiled, dropout;
    const char *checkpoint;             /* with which it goes on, and which it writes; NULL: none */
    int epochs;                         /* 0: EPOCHS */
    double loss[STEPS];                 /* the mean over the ranks */
    double drawn[MOST];                 /* a random number of each rank in the first step */
    int n;
} training;

static wb_tensor *loss_of(wb_layer *model, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(model, b.x), b.y);
}

static wb_layer *lenet(const training *t)
{
    wb_seed(3);
    return wb_gpu(wb_Chain(wb_Conv(1, 4, {3}, wb_relu), wb_MaxPool({2}), wb_Flatten(),
                           wb_Dense(36, 16, wb_tanh), wb_Dropout(t->dropout ? 0.3 : 0),
                           wb_Dense(16, 2)));
}

static wb_loader *batches(void)
{
    wb_seed(5);
    wb_dataset *d = wb_dataset_of(wb_randn(OBSERVATIONS, 1, SIDE, SIDE), wb_randn(OBSERVATIONS, 2));
    d = wb_distributed_dataset(d);
    return d ? wb_gpu(wb_dataloader(d, BATCH / wb_distributed_size(), true, .seed = 4)) : NULL;
}

static int see(int epoch, int64_t batch, wb_tensor *loss, void *ctx)
{
    training *t = ctx;
    if (epoch == 1 && batch == 1) t->drawn[wb_distributed_rank()] = wb_item(wb_rand(1));
    if (!wb_distributed_rank() && t->n < STEPS) t->loss[t->n++] = wb_item(loss);
    return 0;
}

typedef struct { wb_layer *model; wb_opt_state *state; } recorded;

static int step(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    const recorded *r = ctx;
    wb_tree *grads;
    const wb_batch b = {.x = in[0], .y = in[1], .n = wb_dim(in[0], 0)};
    wb_tensor *loss = wb_withgradient(loss_of, r->model, b, &grads);
    out[0] = loss ? wb_distributed_allreduce(loss, WB_RANKS_MEAN) : NULL;
    return out[0] && !wb_update(r->state, r->model, grads) ? 1 : -1;
}

static int loop(training *t, wb_layer *model, wb_loader *data, wb_opt_state *state)
{
    recorded r = {model, state};
    wb_compiled *c = wb_compile(step, &r);
    HOLDS(!wb_distributed_synchronize(model));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        wb_batch b;
        while (wb_loader_next(data, &b)) {
            wb_tensor *in[] = {b.x, b.y}, *loss;
            HOLDS(!wb_call_compiled(c, 2, in, 1, &loss));
            const double value = wb_item(loss);
            if (!wb_distributed_rank()) t->loss[t->n++] = value;
        }
        HOLDS(!wb_loader_status(data));
    }
    return 0;
}

/* Trains; the same program for one rank and for several, as threads or processes. */
static int train(void *ctx)
{
    training *t = ctx;
    wb_scope *s = wb_scope_open();
    wb_layer *model = lenet(t);
    wb_loader *data = batches();
    HOLDS(model && data);
    HOLDS(wb_device_ordinal(wb_device_of(model)) == wb_distributed_local_rank());
    wb_opt_state *state = wb_setup(wb_DistributedOptimizer(wb_Adam(0.01), .bucket = 2000), model);
    wb_seed(9);
    const int status =
        t->compiled ? loop(t, model, data, state)
                    : wb_train(loss_of, model, data, state, .each = see, .ctx = t,
                               .epochs = t->epochs ? t->epochs : EPOCHS,
                               .checkpoint = t->checkpoint, .resume = t->checkpoint != NULL);
    return status ? status : wb_scope_close(s);
}

static void expect_close(const training *t, const training *wanted, double tolerance)
{
    assert_int_equal(t->n, STEPS);
    assert_int_equal(wanted->n, STEPS);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(t->loss[i] - wanted->loss[i]) <= tolerance))
            fail_msg("step %d: %.9g, not %.9g", i, t->loss[i], wanted->loss[i]);
}

/* ---- other processes ------------------------------------------------------------------------- */

/* The same training by processes with `devices` ranks each; "0": each is one rank. */
static training by_processes(int processes, const char *how, const char *devices)
{
    char text[8192];
    training t = {.n = 0};
    if (run_processes(processes, how, devices, text)) fail_msg("%s", text);
    const char *at = text;
    while (t.n < STEPS && (at = strstr(at, "loss "))) t.loss[t.n++] = strtod(at += 5, NULL);
    at = strstr(text, "drawn ");
    if (at) sscanf(at + 6, "%lf %lf %lf %lf", &t.drawn[0], &t.drawn[1], &t.drawn[2], &t.drawn[3]);
    return t;
}

static int print_training(training *t, int devices, double timeout)
{
    if (wb_distributed_initialize(WB_NCCL, .devices = devices, .timeout = timeout)) return 1;
    if (wb_distributed_run(train, t)) return 1;
    for (int i = 0; i < t->n; i++) printf("loss %a\n", t->loss[i]);
    if (!wb_distributed_rank())
        printf("drawn %a %a %a %a\n", t->drawn[0], t->drawn[1], t->drawn[2], t->drawn[3]);
    return wb_distributed_finalize();
}

/* ---- the same losses ------------------------------------------------------------------------- */

TEST(training_as_one_rank_with_the_whole_batch)
{
    for (int compiled = 0; compiled < 2; compiled++) {
        training alone = {.compiled = compiled};
        WORKS(wb_distributed_run(train, &alone));       /* no ranks: in this thread */
        for (int n = 1; n < 4; n++) {
            training t = {.compiled = compiled};
            on_ranks(n, train, &t);
            expect_close(&t, &alone, 1e-6);
        }
    }
}

/* Rank 0 reads and writes the checkpoint, and the number of ranks changes. */
TEST(training_that_goes_on)
{
    const char *path = test_file("cuda-ranks");
    training alone = {.n = 0}, t = {.checkpoint = path, .epochs = 1};
    WORKS(wb_distributed_run(train, &alone));
    on_ranks(3, train, &t);
    assert_int_equal(t.n, STEPS / 2);
    t.epochs = 2;
    on_ranks(2, train, &t);
    expect_close(&t, &alone, 1e-6);
    unlink(path);
}

/* With dropout, which three ranks have too, the numbers of each rank are those of a rank that is a
 * process. */
TEST(training_as_processes)
{
    static const char *const ways[] = {"train", "compiled", "dropout"};
    for (int n = 2; n < 4; n++)
        for (int way = n == 3 ? 2 : 0; way < 3; way++) {
            training t = {.compiled = way == 1, .dropout = way == 2};
            on_ranks(n, train, &t);
            const training processes = by_processes(n, ways[way], "0");
            expect_close(&t, &processes, 0);
            if (way == 1) continue;
            assert_true(t.drawn[0] == processes.drawn[0]);
            for (int r = 1; r < n; r++) assert_true(t.drawn[r] != t.drawn[r - 1]);
        }
}

TEST(training_by_processes_with_two_devices_each)
{
    training alone = {.n = 0};
    WORKS(wb_distributed_run(train, &alone));
    const training four = by_processes(2, "train", "2");
    expect_close(&four, &alone, 1e-6);
}

TEST(processes_with_other_numbers_of_devices)
{
    char text[8192];
    assert_int_equal(run_processes(2, "uneven", "1", text), 2);
    assert_true(HAS_LINE(text, ".devices", "2", "1", "rank 0"));
}

/* Without waiting for the time-out, which is 20 s. */
TEST(processes_without_an_id)
{
    char text[8192];
    setenv("VGPU_NCCL_FAIL", "GetUniqueId:1", 1);
    const double since = wb__now();
    assert_int_equal(run_processes(2, "train", "1", text), 2);
    unsetenv("VGPU_NCCL_FAIL");
    assert_true(wb__now() - since < 10);
    assert_true(HAS_LINE(text, "rank 0", "cannot", "ncclGetUniqueId"));
}

/* One graph of CUDA a rank and step, from the second run on. */
TEST(a_graph_for_each_device)
{
    training t = {.compiled = true};
    initialise(2);
    forget_calls();
    WORKS(wb_distributed_run(train, &t));
    assert_true(count_calls("cuGraphLaunch") >= 2 * (STEPS - 2));
    WORKS(wb_distributed_finalize());
}

/* ---- what is of the rank --------------------------------------------------------------------- */

typedef struct { int n; _Atomic int ranks[MOST], infos; float seeded[MOST], first[MOST]; } places;

static void count_info(wb_log_level level, const char *text, void *ctx)
{
    if (level == WB_LOG_INFO && strstr(text, "hello")) ((places *)ctx)->infos++;
}

/* Functions that the library calls in threads of its own: they are of the loader's rank. */
static int get(int64_t i, void *x, void *y, void *ctx)
{
    *(float *)x = (float)wb_distributed_rank();
    return 0;
}

static int add_place(wb_batch *b, void *ctx)
{
    b->x = wb_add(b->x, wb_scalar(10 * wb_device_ordinal(wb_gpu_device()) +
                                  100 * wb_distributed_rank()));
    return b->x ? 0 : -1;
}

static int look(void *ctx)
{
    places *p = ctx;
    const int me = wb_distributed_rank();
    wb_scope *s = wb_scope_open();
    p->ranks[me]++;
    HOLDS(wb_distributed_initialized() && wb_distributed_size() == p->n);
    HOLDS(wb_distributed_local_rank() == me);
    HOLDS(wb_device_ordinal(wb_gpu_device()) == me && wb_device_ordinal(wb_get_device()) == me);
    HOLDS(wb_device_ordinal(wb_device_of(wb_gpu(wb_ones(3)))) == me);
    HOLDS(!strcmp(wb_device_backend(wb_default_device()), "CPU"));
    wb__log(WB_LOG_INFO, "hello");
    p->seeded[me] = (float)wb_item(wb_rand(1));
    wb_dataset *d = wb_dataset_from(&(wb_dataset_source){.size = sizeof(wb_dataset_source), .n = 64,
                                                         .x_ndim = 1, .x_dims = {1}, .get = get});
    for (int ahead = 0; ahead < 2; ahead++) {   /* by the pool of threads; by the loader's thread */
        wb_loader *l = wb_dataloader(wb_mapobs(d, add_place, NULL), 32, .ahead = ahead);
        HOLDS(l);
        for (wb_batch b; wb_loader_next(l, &b);) {
            const float *x = wb_data(b.x);
            for (int i = 0; i < 32; i++) HOLDS(x[i] == 111.0f * (float)me);
        }
        HOLDS(!wb_loader_status(l));
    }
    wb_tensor *x = wb_distributed_allgather(wb_full(me, 2));
    HOLDS(x);
    for (int i = 0; i < 2 * p->n; i++) HOLDS(wb_at(x, i) == i / 2);
    HOLDS(!wb_distributed_barrier());
    return wb_scope_close(s);
}

TEST(ranks_are_threads)
{
    for (int n = 1; n < 4; n++) {
        places p = {.n = n};
        wb_set_log(count_info, &p);
        wb_seed(70);
        initialise(n == 3 ? -1 : n);            /* -1: all three devices */
        WORKS(wb_distributed_run(look, &p));
        assert_int_equal(wb_distributed_rank(), 0);
        assert_int_equal(wb_distributed_size(), n);
        WORKS(wb_distributed_run(look, &p));    /* again */
        WORKS(wb_distributed_finalize());
        wb_set_log(NULL, NULL);
        assert_int_equal(p.infos, 2);           /* of rank 0 only */
        wb_seed(70);
        const float wanted = (float)wb_item(wb_rand(1));
        for (int r = 0; r < n; r++) {
            assert_int_equal(p.ranks[r], 2);
            assert_true(p.seeded[r] == wanted);
        }
    }
}

/* Rank 0 reads the loss of its last update, and the others return before they have executed it. */
static int read_alone(void *ctx)
{
    wb_layer *m = wb_gpu(wb_Dense(2, 2));
    wb_opt_state *s = m ? wb_setup(wb_DistributedOptimizer(wb_Adam(), .shard = true), m) : NULL;
    const wb_batch b = {.x = wb_gpu(wb_ones(4, 2)), .y = wb_gpu(wb_ones(4, 2)), .n = 4};
    wb_tree *grads;
    wb_tensor *loss = s ? wb_withgradient(loss_of, m, b, &grads) : NULL;
    if (!loss || wb_update(s, m, grads)) return 1;
    return wb_distributed_rank() ? 0 : !isfinite(wb_item(loss));
}

TEST(one_rank_reads_its_last_loss) { on_ranks(3, read_alone, NULL); }

/* ---- no lock is held while a rank waits ------------------------------------------------------ */

/* Rank 0 waits for its device, in an allreduce, while rank 1 does what takes locks of the library:
 * it reads a tensor, makes plans and drops others, records a graph, loads data, and moves tensors.
 * Then it takes part. */
static int work_while_another_waits(void *ctx)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *x = wb_gpu(wb_full(1, 1000)), *y = wb_gpu(wb_randn(40, 40));
    HOLDS(!wb_eval(x) && !wb_eval(y));
    HOLDS(!wb_distributed_barrier());
    if (!wb_distributed_rank()) {
        wb_tensor *sum = wb_distributed_allreduce(x, WB_RANKS_SUM);
        const float *values = wb_data(sum);
        HOLDS(values && values[0] == 2);
        return wb_scope_close(s);
    }
    nap(0.3);
    wb_set_plan_cache(1);
    for (int i = 0; i < 6; i++) {
        wb_tensor *z = wb_exp(wb_mul(y, wb_scalar(i)));
        for (int k = 0; k <= i; k++) z = wb_add(wb_matmul(z, y), wb_tanh(z));
        HOLDS(wb_data(z));
    }
    wb_set_plan_cache(64);
    wb_layer *m = wb_gpu(wb_Chain(wb_Dense(8, 8, wb_relu), wb_Dense(8, 2)));
    wb_opt_state *state = wb_setup(wb_Adam(), m);
    wb_loader *l = wb_gpu(wb_dataloader(wb_dataset_of(wb_randn(64, 8), wb_randn(64, 2)), 8));
    HOLDS(!wb_train(loss_of, m, l, state, .epochs = 1));
    HOLDS(wb_data(wb_distributed_allreduce(x, WB_RANKS_SUM)));
    return wb_scope_close(s);
}

TEST(a_rank_works_while_another_waits) { on_ranks(2, work_while_another_waits, NULL); }

/* ---- the cache of plans ---------------------------------------------------------------------- */

/* Evaluates 40 graphs, each of which has another plan. */
static int make_plans(void *ctx)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *x = wb_gpu(wb_ones(4));
    for (int i = 0; i < 40; i++) {
        wb_tensor *y = x;
        for (int bit = 1; bit < 64; bit *= 2) y = i & bit ? wb_exp(y) : wb_tanh(y);
        HOLDS(!wb_eval(y));
    }
    return wb_scope_close(s);
}

/* The plans of two ranks are more than the cache has for one. */
TEST(each_rank_has_room_for_its_plans)
{
    initialise(2);
    WORKS(wb_distributed_run(make_plans, NULL));
    const int64_t built = wb_stats().plans_built;
    WORKS(wb_distributed_run(make_plans, NULL));
    assert_int_equal(wb_stats().plans_built, built);
    WORKS(wb_distributed_finalize());
}

/* ---- errors ---------------------------------------------------------------------------------- */

TEST(wrong_numbers_of_devices)
{
    FAILS(wb_distributed_initialize(WB_NCCL, .devices = 4), WB_ERROR_DEVICE, ".devices", "4", "3");
    FAILS(wb_distributed_initialize(WB_NCCL, .devices = -2), WB_ERROR_ARGUMENT, ".devices", "-2");
    FAILS(wb_distributed_initialize(WB_NCCL, .devices = 1000), WB_ERROR_ARGUMENT, ".devices",
          "1000");
    const wb_distributed_backend other = {.version = WB__DIST_VERSION, .name = "other"};
    FAILS(wb_distributed_initialize(&other, .devices = 2), WB_ERROR_UNSUPPORTED, ".devices",
          "other");
    FAILS(wb_distributed_initialize(WB_NCCL, .devices = 2, .through = &other), WB_ERROR_ARGUMENT,
          ".devices", ".through");
    assert_false(wb_distributed_initialized());
}

static int misuse(void *ctx)
{
    wb_compiled *_Atomic *shared = ctx;
    HOLDS(wb_distributed_run(misuse, ctx) == WB_ERROR_ARGUMENT);
    HOLDS(failed_with(WB_ERROR_ARGUMENT, FACTS("distributed_run")));
    HOLDS(wb_distributed_finalize() == WB_ERROR_ARGUMENT);
    HOLDS(failed_with(WB_ERROR_ARGUMENT, FACTS("distributed_finalize", "wb_distributed_run")));
    HOLDS(wb_distributed_initialize(WB_NCCL) == WB_ERROR_ARGUMENT);
    if (!wb_distributed_rank()) *shared = wb_retain(wb_compile(step, NULL));
    HOLDS(!wb_distributed_barrier());
    wb_tensor *in[2] = {wb_ones(2), wb_ones(2)}, *out;
    if (wb_distributed_rank()) {
        HOLDS(wb_call_compiled(*shared, 2, in, 1, &out) == WB_ERROR_ARGUMENT);
        HOLDS(failed_with(WB_ERROR_ARGUMENT, FACTS("call_compiled", "rank")));
    }
    wb_clear_error();
    return wb_distributed_barrier();
}

TEST(wrong_uses)
{
    wb_compiled *_Atomic shared = NULL;
    FAILS(wb_distributed_run(NULL, NULL), WB_ERROR_ARGUMENT, "distributed_run");
    initialise(2);
    WORKS(wb_distributed_run(misuse, &shared));
    wb_release(shared);
    /* outside */
    FAILS(wb_distributed_barrier(), WB_ERROR_ARGUMENT, "wb_distributed_run");
    training t = {.n = 0};
    FAILS(train(&t), WB_ERROR_ARGUMENT, "wb_distributed_run");
    WORKS(wb_distributed_finalize());
}

/* ---- a rank that fails ----------------------------------------------------------------------- */

typedef struct { const char *how; char other[4096]; double since; } failure;

/* Fails on rank 1 in the third batch. */
static wb_tensor *failing_loss(wb_layer *model, wb_batch b, void *ctx)
{
    failure *f = ctx;
    if (b.index != 2 || wb_distributed_rank() != 1) return loss_of(model, b, NULL);
    f->since = wb__now();
    return wb__fail_null(WB_ERROR_NUMBER, "the answer is %d", 42);
}

static int fail_one(void *ctx)
{
    failure *f = ctx;
    training t = {.n = 0};
    const bool one = wb_distributed_rank() == 1;
    if (one && !strcmp(f->how, "exit")) exit(5);
    if (one && !strcmp(f->how, "first")) {
        f->since = wb__now();
        return 7;
    }
    wb_layer *model = lenet(&t);
    wb_loader *data = batches();
    HOLDS(model && data);
    wb_opt_state *state = wb_setup(wb_DistributedOptimizer(wb_Adam(0.01)), model);
    const int status = wb_train(failing_loss, model, data, state, .epochs = 50, .ctx = f);
    if (one) return status;
    if (!wb_distributed_rank()) snprintf(f->other, sizeof f->other, "%s", wb_error());
    /* The device of a rank that has waited is lost: what is in its memory cannot be read. */
    if (!strcmp(f->how, "late") && wb_data(wb_get(model, "layers.0.weight")))
        snprintf(f->other, sizeof f->other, "the model can be read");
    return status;
}

static int train_nan(void *ctx)
{
    wb_layer *model = lenet(&(training){.n = 0});
    wb_loader *data = batches();
    wb_opt_state *state = wb_setup(wb_DistributedOptimizer(wb_Descent(1e30)), model);
    return wb_train(loss_of, model, data, state, .epochs = 50);
}

/* In a process of its own.  Prints the error of the run and that of rank 0. */
static int fail_as(const char *how)
{
    failure f = {.how = how, .since = wb__now()};
    if (wb_distributed_initialize(WB_NCCL, .devices = 3, .timeout = 60)) return 1;
    const int status = wb_distributed_run(strcmp(how, "nan") ? fail_one : train_nan, &f);
    printf("status %d code %d\nerror %s\nother %s\nseconds %.1f\n", status, wb_error_code(),
           wb_error(), f.other, wb__now() - f.since);
    printf("again %d", wb_distributed_run(fail_one, &f));
    printf(" %s\n", wb_error());
    printf("finalise %d\n", wb_distributed_finalize());
    wb_clear_error();
    fflush(stdout);
    return 0;
}

static void expect_failure(const char *how, const char *status, const char *error)
{
    char text[8192];
    const int failed = run_processes(1, how, "3", text);
    const char *seconds = strstr(text, "\nseconds ");
    if (failed || !strstr(text, status) || !strstr(text, error) || !seconds ||
        !(atof(seconds + 9) < 10) || !strstr(text, "finalise 0"))
        fail_msg("%s: %s", how, text);
    assert_true(HAS_LINE(text, "again", "rank 1") || !strcmp(how, "nan"));
    if (!strcmp(how, "late")) assert_true(HAS_LINE(text, "other", "rank 1 of 3", "42"));
}

TEST(a_rank_that_fails)
{
    expect_failure("first", "status 7 ",
                   "error rank 1 of 3: its function has returned 7 (W0400)\n");
    expect_failure("late", "status 7 code 7", "error rank 1 of 3: the answer is 42 ");
    expect_failure("nan", "status 7 code 7", "stopping training");
}

/* Rank 1 fails while rank 0 waits for rank 2, which comes within a second. */
static int come_late(void *ctx)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *x = wb_gpu(wb_ones(100));
    HOLDS(!wb_eval(x) && !wb_distributed_barrier());
    if (wb_distributed_rank() == 2) nap(0.4);
    wb_tensor *sum = wb_distributed_allreduce(x, WB_RANKS_SUM);
    HOLDS(!wb_eval(sum));
    if (wb_distributed_rank() == 1) return 7;
    const float *values = wb_data(sum);
    HOLDS(values && values[0] == 3);
    ++*(_Atomic int *)ctx;
    return wb_scope_close(s);
}

TEST(ranks_have_time_to_end)
{
    _Atomic int ended = 0;
    initialise(3);
    const int status = wb_distributed_run(come_late, &ended);
    wb_clear_error();
    WORKS(wb_distributed_finalize());
    assert_int_equal(status, 7);
    assert_int_equal(ended, 2);
}

/* As in a process that is one rank. */
TEST(a_rank_that_ends_the_process)
{
    char text[8192];
    const double since = wb__now();
    assert_int_equal(run_processes(1, "exit", "3", text), 1);
    assert_true(wb__now() - since < 10);
    if (!strstr(text, "rank 1 of 3 ends with an error")) fail_msg("%s", text);
}

TEST(a_rank_that_cannot_be_connected)
{
    setenv("VGPU_NCCL_FAIL", "CommInitRankConfig:2", 1);
    const double since = wb__now();
    FAILS(wb_distributed_initialize(WB_NCCL, .devices = 3, .timeout = 60), WB_ERROR_DEVICE,
          "ncclCommInitRankConfig");
    assert_true(wb__now() - since < 10);
    unsetenv("VGPU_NCCL_FAIL");
    training t = {.n = 0};
    on_ranks(3, train, &t);             /* and now they are */
}

TEST(nothing_is_left)
{
    wb_shutdown();
    assert_int_equal(tell_left(), 0);
}

static int child(const char *how, int devices)
{
    training t = {.compiled = !strcmp(how, "compiled"), .dropout = !strcmp(how, "dropout")};
    const bool uneven = !strcmp(how, "uneven");
    if (uneven) devices += atoi(getenv("WEBER_RANK"));
    if (strstr("first late nan exit", how)) return fail_as(how);
    if (!print_training(&t, devices, uneven ? 2 : 20)) return 0;
    printf("%s\n", wb_error());
    fflush(stdout);
    return 1;
}

int main(int argc, char **argv)
{
    const bool is_child = argc > 3 && !strcmp(argv[1], "child");
    const char *const four = is_child && !strcmp(argv[3], "2") ? "4" : "3";
    setenv("VGPU_DEVICES", is_child ? four : "3", 1);
    setenv("VGPU_STRICT", "1", 1);
    if (!getenv("WEBER_BACKENDS")) wb_using("CUDA");
    wb_set_threads(2);
    if (is_child) return child(argv[2], atoi(argv[3]));
    open_double();
    if (argc > 1) cases_named = argv[1];
    return run_all_cases();
}
