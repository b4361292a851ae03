/* The library in a process that it shares with others: dlclose, fork beside threads that compute,
 * wb_shutdown, and the floating-point modes of the caller. */
#include "test.h"

#include "base/modes.h"
#include "weber.h"

#include <dlfcn.h>
#include <fenv.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
#define FORKS_WITH_THREADS 0
#else
#define FORKS_WITH_THREADS 1
#endif

/* Runs f in a child process, which has two minutes.  Returns its result, or minus a signal. */
static int in_child(int (*f)(void))
{
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        alarm(120);
        _exit(f());
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child) return -1;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- dlclose --------------------------------------------------------------------------------- */

static const char *file;                /* the shared object that the children open */
static sem_t used, closed;

/* Calls the library by the names of its functions, or the plugin.  0: it has computed. */
static int compute_by(void *object)
{
    double (*plugin)(void) = (double (*)(void))(uintptr_t)dlsym(object, "plugin_compute");
    if (plugin) return plugin() != 300. * 300 * 300;
    wb_tensor *(*full)(double, wb_dtype, int, const int64_t *) =
        (wb_tensor * (*)(double, wb_dtype, int, const int64_t *))(uintptr_t)
            dlsym(object, "wb_full_array");
    wb_tensor *(*matmul)(wb_tensor *, wb_tensor *) =
        (wb_tensor * (*)(wb_tensor *, wb_tensor *))(uintptr_t)dlsym(object, "wb_matmul");
    double (*item)(wb_tensor *) = (double (*)(wb_tensor *))(uintptr_t)dlsym(object, "wb_item");
    wb_tensor *(*reshape)(wb_tensor *, int, const int64_t *) =
        (wb_tensor * (*)(wb_tensor *, int, const int64_t *))(uintptr_t)
            dlsym(object, "wb_reshape_array");
    int (*threads)(int) = (int (*)(int))(uintptr_t)dlsym(object, "wb_set_threads");
    if (!full || !matmul || !item || !reshape || !threads) return 3;
    threads(2);
    const int64_t n = 300;
    wb_tensor *one = full(1, WB_F32, 2, (int64_t[]){1, n});
    wb_tensor *y = matmul(matmul(one, full(1, WB_F32, 2, (int64_t[]){n, n})),
                          full(1, WB_F32, 2, (int64_t[]){n, 1}));
    return item(reshape(y, 0, NULL)) != 300. * 300;
}

static void *compute_and_wait(void *object)
{
    const int wrong = compute_by(object);
    sem_post(&used);
    sem_wait(&closed);                  /* ends when the object has been closed */
    return wrong ? object : NULL;
}

/* Opens, uses and closes the object five times, and once while a thread has used it that ends
 * later; a fork afterwards calls its handlers. */
static int open_and_close(void)
{
    for (int i = 0; i < 5; i++) {
        void *object = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (!object) return 2;
        const int wrong = compute_by(object);
        if (wrong) return wrong;
        dlclose(object);
        usleep(2000);                   /* a worker that still runs meets what is gone */
    }
    void *object = dlopen(file, RTLD_NOW | RTLD_LOCAL), *wrong = NULL;
    pthread_t thread;
    sem_init(&used, 0, 0);
    sem_init(&closed, 0, 0);
    if (!object || pthread_create(&thread, NULL, compute_and_wait, object)) return 2;
    sem_wait(&used);
    dlclose(object);
    sem_post(&closed);
    pthread_join(thread, &wrong);
    const pid_t child = fork();
    if (!child) _exit(0);
    int status = 1;
    waitpid(child, &status, 0);
    return wrong || status || !dlopen(file, RTLD_NOW | RTLD_NOLOAD);
}

static void close_safely(const char *object)
{
    if (!FORKS_WITH_THREADS) {
        print_message("SKIP: ThreadSanitizer does not let children of fork start threads\n");
        skip();
    }
    if (access(object, R_OK)) {
        print_message("SKIP: no %s\n", object);
        skip();
    }
    file = object;
    for (int i = 0; i < 4; i++) assert_int_equal(in_child(open_and_close), 0);
}

TEST(the_shared_library_may_be_closed) { close_safely(WB_TEST_LIBRARY); }
TEST(a_plugin_with_the_library_inside_may_be_closed) { close_safely(WB_TEST_PLUGIN); }

/* ---- fork ------------------------------------------------------------------------------------ */

static atomic_bool stop, inside, forking;
static wb_compiled *compiled;

static double compute(int k)
{
    wb_scope *s = wb_scope_open();
    const int64_t n = 500 + k % 700 * 10;
    const double y = wb_item(wb_sum(wb_square(wb_full_array(2, WB_F32, 1, &n))));
    wb_scope_close(s);
    return y - 4. * (double)n;
}

static wb_tensor *mse(wb_layer *m, wb_batch b, void *ctx) { return wb_mse(wb_call(m, b.x), b.y); }

/* Trains with the workers of a loader. */
static int train(void)
{
    wb_scope *s = wb_scope_open();
    wb_layer *m = wb_Chain(wb_Dense(4, 8, wb_tanh), wb_Dense(8, 2));
    wb_loader *l = wb_dataloader(wb_dataset_of(wb_randn(32, 4), wb_randn(32, 2)), 8, .workers = 2,
                                 .shuffle = true);
    const int status = wb_train(mse, m, l, wb_setup(wb_Adam(.eta = 0.01), m), .epochs = 1);
    wb_scope_close(s);
    return status;
}

static int twice(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_sum(wb_mul(in[0], 2));
    return 1;
}

static double replay(void)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *x = wb_ones(64, 64), *y = NULL;
    const double sum = wb_call_compiled(compiled, 1, &x, 1, &y) ? NAN : wb_item(y);
    wb_scope_close(s);
    return sum;
}

static int everything(void)
{
    for (int k = 0; k < 3; k++)
        if (compute(k) != 0) return 1;
    if (replay() != 2. * 64 * 64) return 2;
    return train() ? 3 : 0;
}

static void *computes(void *given)
{
    for (int k = 0; !stop && !given; k++)
        if (compute(k) != 0) given = &stop;
    return given;
}

static void *trains(void *given)
{
    while (!stop && !given)
        if (train()) given = &stop;
    return given;
}

static void *replays(void *given)
{
    while (!stop && !given)
        if (replay() != 2. * 64 * 64) given = &stop;
    return given;
}

/* A child computes, replays a compiled function and trains, whatever other threads of its parent
 * did when it was made. */
TEST(children_of_a_program_whose_threads_compute)
{
    if (!FORKS_WITH_THREADS) {
        print_message("SKIP: ThreadSanitizer does not let children of fork start threads\n");
        skip();
    }
#ifdef __SANITIZE_ADDRESS__
    print_message("SKIP: AddressSanitizer's own allocator may be locked in a child of fork\n");
    skip();
#endif
    void *(*const work[])(void *) = {computes, computes, trains, replays};
    pthread_t thread[4];
    compiled = wb_retain(wb_compile(twice, NULL));
    assert_int_equal(everything(), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work[i], NULL), 0);
    int wrong = 0;
    for (int i = 0; i < 100 && !wrong; i++) wrong = in_child(everything);
    stop = true;
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        pthread_join(thread[i], &result);
        assert_null(result);
    }
    assert_int_equal(wrong, 0);
    wb_release(compiled);
}

/* A compiled function whose first call is in progress when the process forks. */

static int slowly(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    inside = true;
    while (!forking) {}
    for (volatile int i = 0; i < 3000000; i++) {}
    return twice(in, out, ctx);
}

static void *call_slowly(void *given)
{
    return replay() == 2. * 64 * 64 ? NULL : given;
}

static int replay_once(void) { return replay() != 2. * 64 * 64; }

static int fork_and_replay(void)
{
    pthread_t thread;
    void *wrong = NULL;
    if (pthread_create(&thread, NULL, call_slowly, &stop)) return 9;
    while (!inside) {}
    forking = true;
    const int child = in_child(replay_once);
    pthread_join(thread, &wrong);
    return wrong ? 8 : child;
}

TEST(children_may_call_what_another_thread_was_calling)
{
    if (!FORKS_WITH_THREADS) {
        print_message("SKIP: ThreadSanitizer does not let children of fork start threads\n");
        skip();
    }
    compiled = wb_retain(wb_compile(slowly, NULL));
    assert_int_equal(fork_and_replay(), 0);
    wb_release(compiled);
}

/* A callback that forks: the thread keeps the locks that it holds. */

static int forks(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    const pid_t child = fork();
    if (!child) {
        alarm(60);
        _exit(twice(in, out, ctx) == 1 ? 0 : 1);
    }
    waitpid(child, ctx, 0);
    return twice(in, out, ctx);
}

TEST(a_callback_may_fork)
{
    int status = 1;
    compiled = wb_retain(wb_compile(forks, &status));
    assert_true(replay() == 2. * 64 * 64);
    assert_int_equal(status, 0);
    assert_true(replay() == 2. * 64 * 64);
    wb_release(compiled);
}

/* ---- wb_shutdown ----------------------------------------------------------------------------- */

#ifdef __linux__
#include <dirent.h>

static int threads_listed(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *at; tasks && (at = readdir(tasks));) n += at->d_name[0] != '.';
    if (tasks) closedir(tasks);
    return n;
}

/* Whether the process has n threads; the system lists one a little longer than it runs. */
static bool has_threads(int n)
{
    for (int i = 0; i < 2000 && threads_listed() != n; i++) usleep(1000);
    return threads_listed() == n;
}

/* Uses the pool and a loader that outlives wb_shutdown. */
static int shut_down(void)
{
    wb_set_threads(4);
    wb_loader *l = wb_retain(
        wb_dataloader(wb_dataset_of(wb_ones(32, 4), wb_zeros(32, 1)), 8, .workers = 3));
    const int before = threads_listed();
    for (int round = 0; round < 3; round++) {
        wb_batch b;
        double sum = 0;
        while (wb_loader_next(l, &b)) sum += wb_item(wb_sum(b.x));
        if (sum != 128) return 99;
        /* On a busy machine the pool computes without its workers for a while. */
        for (int i = 0; i < 1000 && (!i || threads_listed() < before + 3 + 3); i++) {
            wb_scope *s = wb_scope_open();
            wb_tensor *x = wb_ones(400, 400);
            if (wb_item(wb_mean(wb_matmul(x, x))) != 400) return 100;
            wb_scope_close(s);
        }
        if (!has_threads(before + 3 + 3)) return 101;
        wb_shutdown();
        if (!has_threads(before)) return 102;
    }
    wb_release(l);
    return 0;
}

TEST(shutdown_ends_the_threads)
{
    if (!FORKS_WITH_THREADS) {
        print_message("SKIP: ThreadSanitizer has threads of its own\n");
        skip();
    }
    wb_shutdown();
    assert_int_equal(in_child(shut_down), 0);
}
#endif

/* ---- floating-point modes -------------------------------------------------------------------- */

#if WB__MODES_KNOWN
#if defined(__aarch64__)
static const wb__modes FLUSH = 1 << 24;
#else
static const wb__modes FLUSH = 0x8040;
#endif
#else
static const wb__modes FLUSH = 0;
#endif

static void flush_to_zero(bool flush)
{
    wb__modes_take(flush ? wb__modes_now() | FLUSH : wb__modes_now() & ~FLUSH);
}

/* The number of zeros in 3x for 2^20 numbers below the normal ones. */
static int64_t zeros(void)
{
    const int64_t n = 1 << 20;
    wb_scope *s = wb_scope_open();
    const uint32_t *y = wb_data(wb_mul(wb_full_array(1e-39, WB_F32, 1, &n), wb_scalar(3.0)));
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += !y[i];
    wb_scope_close(s);
    return sum;
}

static void skip_unknown_modes(void)
{
    if (FLUSH) return;
    print_message("SKIP: how this processor flushes numbers to zero is not known here\n");
    skip();
}

TEST(one_result_is_flushed_by_all_threads_or_none)
{
    skip_unknown_modes();
    const int before = wb_threads();
    wb_set_threads(4);
    for (int round = 0; round < 20; round++) {
        assert_int_equal(zeros(), 0);
        flush_to_zero(true);
        const int64_t n = zeros();
        flush_to_zero(false);
        assert_int_equal(n, 1 << 20);
    }
    wb_set_threads(before);
}

/* A batch of a loader has the modes of the thread that begins the epoch, whichever thread prepares
 * it. */

static int triple(wb_batch *b, void *ctx)
{
    b->x = wb_mul(b->x, 3);
    return 0;
}

static int64_t zeros_of_epoch(int workers)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *small = wb_full_array(1e-39, WB_F32, 2, (int64_t[]){64, 1 << 10});
    wb_loader *l = wb_dataloader(wb_mapobs(wb_dataset_of(small, wb_zeros(64, 1)), triple, NULL), 4,
                                 .workers = workers);
    wb_batch b;
    int64_t sum = 0;
    while (wb_loader_next(l, &b)) {
        const uint32_t *x = wb_data(b.x);
        for (int64_t i = 0; i < wb_size(b.x); i++) sum += !x[i];
    }
    wb_scope_close(s);
    return sum;
}

TEST(workers_of_loaders_have_the_modes_of_the_caller)
{
    skip_unknown_modes();
    for (int workers = 1; workers < 4; workers++) {
        assert_int_equal(zeros_of_epoch(workers), 0);
        flush_to_zero(true);
        const int64_t n = zeros_of_epoch(workers);
        flush_to_zero(false);
        assert_int_equal(n, 64 << 10);
    }
}

/* 1 + 2^-30 is 1, or the next number above it where the thread rounds upwards. */
static int64_t above_one(void)
{
    const int64_t n = 1 << 20;
    wb_scope *s = wb_scope_open();
    const float *y = wb_data(wb_add(wb_full_array(1, WB_F32, 1, &n), wb_scalar(0x1p-30)));
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += y[i] == 1 + 0x1p-23f;
    wb_scope_close(s);
    return sum;
}

TEST(one_result_is_rounded_in_one_direction)
{
    const int before = wb_threads();
    wb_set_threads(4);
    for (int round = 0; round < 20; round++) {
        assert_int_equal(above_one(), 0);
        fesetround(FE_UPWARD);
        const int64_t n = above_one();
        fesetround(FE_TONEAREST);
        assert_int_equal(n, 1 << 20);
    }
    wb_set_threads(before);
}

/* No kernel, and no code that oneDNN makes, changes the modes of the caller. */
TEST(the_modes_of_the_caller_stay)
{
    for (int k = 0; k < 4; k++) {
        flush_to_zero(k & 1);
        fesetround(k & 2 ? FE_DOWNWARD : FE_TONEAREST);
        const wb__modes before = wb__modes_now();
        wb_scope *s = wb_scope_open();
        wb_layer *m = wb_Chain(wb_Conv(1, 8, {3, 3}, wb_relu), wb_Flatten(),
                               wb_Dense(8 * 14 * 14, 10));
        wb_tensor *loss = wb_crossentropy(wb_call(m, wb_randn(32, 1, 16, 16)),
                                          wb_full_array(0.1, WB_F32, 2, (int64_t[]){32, 10}));
        wb_tensor *bf16 = wb_matmul(wb_astype(wb_randn(64, 64), WB_BF16),
                                    wb_astype(wb_randn(64, 64), WB_BF16));
        const int status = wb_eval(loss, bf16, wb_gradient(loss, wb_get(m, "layers.0.weight")));
        wb_scope_close(s);
        const wb__modes after = wb__modes_now();
        const int direction = fegetround();
        fesetround(FE_TONEAREST);
        flush_to_zero(false);
        assert_int_equal(status, 0);
        assert_int_equal(after, before);
        assert_int_equal(direction, k & 2 ? FE_DOWNWARD : FE_TONEAREST);
    }
}
