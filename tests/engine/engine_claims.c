/* Claims of variables: threads that train, assign and evaluate with the same ones, and children of
 * fork that were made meanwhile. */
#include "test.h"

#include "weber.h"

#include "engine/tensor.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- another thread inside a function of the program ----------------------------------------- */

/* The other thread goes into `inside`, and stays there until `go_on`. */
static atomic_bool inside, go_on;
static wb_layer *model;
static wb_tensor *parameter;
static double value;                    /* of the parameter, without writes of other threads */

static void stay(void)
{
    inside = true;
    while (!go_on) usleep(100);
}

static int at_host(int n, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    (void)n, (void)ctx;
    stay();
    *(float *)out->data = *(const float *)in->data;
    return 0;
}

static int at_batch(int epoch, int64_t batch, wb_tensor *loss, void *ctx)
{
    (void)epoch, (void)batch, (void)loss, (void)ctx;
    if (!inside) stay();
    return 0;
}

static wb_tensor *mse(wb_layer *m, wb_batch b, void *ctx)
{
    (void)ctx;
    return wb_mse(wb_call(m, b.x), b.y);
}

static wb_loader *batches(void)
{
    return wb_dataloader(wb_dataset_of(wb_ones(8, 4), wb_ones(8, 1)), 4);
}

/* The work of the other thread; each returns 0 or an error code. */
static int trains(void)
{
    return wb_train(mse, model, batches(), wb_setup(wb_Adam(), model), .each = at_batch);
}

static int evaluates(void)
{
    wb_tensor *sum = wb_sum(wb_call(model, wb_ones(1, 4)));
    return wb_eval(wb_host_operation(at_host, NULL, WB_F32, 0, NULL, 1, &sum));
}

static int assigns(void)
{
    if (wb_assign(parameter, wb_full(3, 4))) return 1;
    stay();
    return wb_eval(parameter);
}

static int doubles(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)in, (void)ctx;
    wb_tensor *sum = wb_sum(wb_mul(parameter, 2));
    out[0] = wb_host_operation(at_host, NULL, WB_F32, 0, NULL, 1, &sum);
    return 1;
}

static int replays(void)
{
    wb_tensor *y;
    return wb_call_compiled(wb_compile(doubles, NULL), 0, NULL, 1, &y) || wb_item(y) != 8;
}

static void *in_thread(void *work)
{
    return ((int (**)(void))work)[0]() ? work : NULL;
}

static void begin(pthread_t *thread, int (**work)(void))
{
    inside = go_on = false;
    assert_int_equal(pthread_create(thread, NULL, in_thread, work), 0);
    while (!inside) usleep(100);
}

static void end(pthread_t thread)
{
    void *wrong;
    go_on = true;
    pthread_join(thread, &wrong);
    assert_null(wrong);
}

static void make(void)
{
    model = wb_Chain(wb_Dense(4, 4, wb_relu), wb_Dense(4, 1));
    parameter = wb_variable(wb_ones(4));
    value = 1;
}

/* ---- fork ------------------------------------------------------------------------------------ */

/* Calls and trains the model, and assigns. */
static int use(void)
{
    wb__claim_waits = 1;                /* a claim that waits for a thread that is not here */
    go_on = true;
    if (wb_at(parameter, 2) != value) return 5;
    wb_tensor *y = wb_call(model, wb_ones(1, 4));
    if (!y || wb_eval(y)) return 1;
    if (wb_train(mse, model, batches(), wb_setup(wb_Adam(), model))) return 2;
    if (wb_assign(parameter, wb_full(5, 4)) || wb_at(parameter, 2) != 5) return 3;
    return parameter->readers || parameter->writer ? 4 : 0;
}

/* The child of a child uses the model too. */
static int use_in_child(void)
{
    int status = 1;
    const pid_t child = fork();
    if (!child) _exit(use());
    return waitpid(child, &status, 0) != child || status ? 9 : use();
}

static int in_child(int (*f)(void))
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        alarm(60);
        const int code = f();
        if (code) fprintf(stderr, "%d: %s\n", code, wb_error());
        _exit(code);
    }
    if (waitpid(child, &status, 0) != child) return -1;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void fork_beside(int (*work)(void))
{
    pthread_t thread;
#ifdef __SANITIZE_THREAD__
    print_message("SKIP: ThreadSanitizer does not let children of fork start threads\n");
    skip();
#endif
    for (int deep = 0; deep < 2; deep++) {
        make();
        begin(&thread, &work);
        const int wrong = in_child(deep ? use_in_child : use);
        end(thread);
        assert_int_equal(wrong, 0);
    }
}

TEST(a_child_beside_a_thread_that_trains) { fork_beside(trains); }
TEST(a_child_beside_a_thread_that_evaluates) { fork_beside(evaluates); }
TEST(a_child_beside_a_thread_that_assigns) { fork_beside(assigns); }

/* The writes that the thread itself has pending are made in the child too, and the variable is its
 * own; what it has read before is counted no more. */
static int finish(void)
{
    if (wb_at(parameter, 0) != 7 || parameter->writer || parameter->readers) return 1;
    return use();
}

TEST(a_child_has_the_claims_of_its_thread)
{
    make();
    WORKS(wb_assign(parameter, wb_full(7, 4)));
    value = 7;
    assert_int_equal(in_child(finish), 0);
    assert_true(wb_at(parameter, 0) == 7);
}

static int child_of_reading;
static int forks(int n, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    const pid_t child = fork();
    if (child) waitpid(child, &child_of_reading, 0);
    else if (!wb_mul(parameter, 2)) _exit(6);           /* reads it anew */
    *(bool *)ctx = !child;
    return at_host(n, in, out, NULL);
}

TEST(a_reading_goes_on_in_a_child)
{
    make();
    bool is_child = false;
    go_on = true;
    wb_tensor *sum = wb_sum(wb_mul(parameter, 2));
    wb_tensor *y = wb_host_operation(forks, &is_child, WB_F32, 0, NULL, 1, &sum);
    const double read = wb_item(y);
    if (is_child) _exit(read != 8 ? 7 : use());
    assert_int_equal(child_of_reading, 0);
    assert_true(read == 8);
    assert_int_equal(parameter->readers, 0);
}

/* ---- threads --------------------------------------------------------------------------------- */

static atomic_int failed;
static void *assigns_once(void *given)
{
    failed = wb_assign(parameter, wb_full(4, 4)) ? 1 : wb_eval(parameter) ? 2 : 0;
    snprintf(given, 300, "%s", wb_error());
    return NULL;
}

static void try_assign(char *message)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, assigns_once, message), 0);
    pthread_join(thread, NULL);
}

TEST(a_claim_waits_for_a_reader)
{
    pthread_t reader, writer;
    int (*work)(void) = evaluates;
    char message[300];
    make();
    parameter = wb_get(model, "layers.0.bias");
    begin(&reader, &work);
    assert_true(parameter->readers > 0);
    assert_int_equal(pthread_create(&writer, NULL, assigns_once, message), 0);
    while (!parameter->writer) usleep(100);
    assert_true(parameter->live == parameter->current);         /* it waits */
    end(reader);
    pthread_join(writer, NULL);
    assert_int_equal(failed, 0);
    assert_true(wb_at(parameter, 0) == 4);
    assert_int_equal(parameter->readers, 0);
    begin(&reader, &work);
    wb__claim_waits = 0;
    try_assign(message);
    wb__claim_waits = 20;
    end(reader);
    assert_int_equal(failed, 1);
    if (!strstr(message, "assign: another thread has evaluated with bias [4] f32 for 0 s: "
                         "wait for that thread, or train a copy of the model (wb_clone)"))
        fail_msg("%s", message);
    assert_int_equal(parameter->writer, 0);
}

TEST(one_thread_assigns)
{
    char message[300];
    make();
    for (int evaluated = 0; evaluated < 2; evaluated++) {
        WORKS(wb_assign(parameter, wb_full(2, 4)));
        try_assign(message);
        assert_int_equal(failed, 1);
        assert_non_null(strstr(message, "trains or assigns"));
        assert_true(wb_at(parameter, 1) == 2);
        try_assign(message);
        assert_int_equal(failed, 0);
        assert_true(wb_at(parameter, 1) == 4);
    }
}

/* In the root scope the second assignment to x makes the writes of the first step, but not the
 * second write to `parameter`, which is as the statistics of a layer.  Between both writes, where
 * the first one is done and frees what it was made from, no other thread can assign. */
static char between[300];
static void assign_between(void *data, void *context)
{
    (void)data, (void)context;
    try_assign(between);
}

TEST(the_later_of_two_writes_keeps_the_claim)
{
    static float three[4] = {3, 3, 3, 3};
    make();
    wb_tensor *x = wb_variable(wb_ones(4));
    parameter->flags |= WB__FROZEN;
    wb_tensor *value = wb_borrow(three, WB_F32, 1, (int64_t[]){4}, assign_between, NULL);
    wb_tensor *product = wb_mul(value, 2);
    WORKS(wb_assign(parameter, product));
    WORKS(wb_assign(x, wb_zeros(4)));
    WORKS(wb_assign(parameter, wb_add(parameter, 1)));
    wb_free(product);
    wb_free(value);
    *between = 0;
    WORKS(wb_assign(x, wb_ones(4)));
    assert_int_equal(failed, 1);
    assert_non_null(strstr(between, "trains or assigns"));
    assert_true(wb_at(parameter, 0) == 7);
    try_assign(between);
    assert_int_equal(failed, 0);
    assert_true(wb_at(parameter, 0) == 4);
    assert_int_equal(parameter->writer, 0);
}

TEST(every_operand_is_read)
{
    enum { N = 130 };
    pthread_t thread;
    int (*work)(void) = assigns;
    wb_tensor *x[N];
    make();
    for (int i = 0; i < N; i++) x[i] = i == N - 1 ? parameter : wb_variable(wb_full(i, 4));
    begin(&thread, &work);
    wb_clear_error();
    assert_null(wb_concat_array(0, N, x));
    assert_non_null(strstr(wb_error(), "trains or assigns"));
    end(thread);
    wb_tensor *y = wb_concat_array(0, N, x);
    assert_true(wb_at(y, 4 * (N - 2)) == N - 2 && wb_at(y, 4 * (N - 1)) == 3);
    for (int i = 0; i < N; i++) assert_int_equal(x[i]->readers, 0);
}

TEST(a_call_beside_a_compiled_function)
{
    pthread_t thread;
    int (*work)(void) = replays;
    char message[300];
    make();
    begin(&thread, &work);
    assert_true(parameter->readers > 0);
    assert_true(wb_item(wb_sum(wb_mul(parameter, 3))) == 12);   /* both read */
    wb__claim_waits = 0;
    try_assign(message);
    wb__claim_waits = 20;
    end(thread);
    assert_int_equal(failed, 1);
    assert_non_null(strstr(message, "another thread has evaluated"));
    assert_int_equal(parameter->readers, 0);
}

/* A copy that is made while another thread trains would have values of several steps. */
TEST(a_copy_beside_a_training)
{
    pthread_t thread;
    int (*work)(void) = trains;
    make();
    begin(&thread, &work);
    wb_clear_error();
    assert_null(wb_clone(model));
    assert_non_null(strstr(wb_error(), "copy: thread "));
    assert_non_null(strstr(wb_error(), " trains or assigns "));
    end(thread);
    assert_non_null(wb_clone(model));
    assert_int_equal(wb_get(model, "layers.0.bias")->readers, 0);
}

/* ---- what a thread does with a model that another one trains --------------------------------- */

static char folder[] = "/tmp/weber-claims-XXXXXX";
static const char *in_folder(const char *name)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int uses_eval(void) { return wb_eval(parameter); }
static int uses_estimate(void)
{
    wb_memory m;
    return wb_estimate_memory(1, &parameter, &m);
}
static int uses_save(void) { return wb_save(in_folder("new.safetensors"), model); }
static int uses_npz(void) { return wb_save(in_folder("new.npz"), model); }
static int uses_checkpoint(void)
{
    return wb_save_checkpoint(in_folder("new.ckpt"), &(wb_checkpoint){.model = model});
}
static int uses_load(void) { return wb_load_state(in_folder("old.safetensors"), model); }
static int uses_set(void) { return wb_set(model, "layers.0.bias", wb_ones(4)); }
static int uses_tie(void) { return wb_tie(model, "layers.0.bias", "layers.0.bias"); }
static int uses_to_dlpack(void) { return wb_to_dlpack(parameter) ? 0 : (int)wb_error_code(); }
static int uses_version(void)
{
    return wb__version("test", parameter) ? 0 : (int)wb_error_code();
}
static int uses_loss(void)
{
    return wb_gradient(wb_get(model, "layers.1.bias"), model) ? 0 : (int)wb_error_code();
}
static int uses_compiled(void)
{
    wb_tensor *y;
    return wb_call_compiled(wb_compile(doubles, NULL), 1, &parameter, 1, &y);
}

TEST(each_use_beside_a_training_names_the_thread)
{
    static int (*const use[])(void) = {uses_eval, uses_estimate, uses_save, uses_npz,
                                       uses_checkpoint, uses_load, uses_set, uses_tie,
                                       uses_to_dlpack, uses_version, uses_loss, uses_compiled};
    pthread_t thread;
    int (*work)(void) = trains;
    char number[64];
    make();
    assert_non_null(mkdtemp(folder));
    WORKS(wb_save(in_folder("old.safetensors"), model));
    parameter = wb_get(model, "layers.0.bias");
    begin(&thread, &work);
    snprintf(number, sizeof number, "thread %ld trains or assigns", (long)parameter->writer);
    for (size_t i = 0; i < WB__COUNT(use); i++) {
        wb_clear_error();
        const int status = use[i]();
        if (!status || !strstr(wb_error(), number))
            fail_msg("use %zu: %d, %s", i, status, wb_error());
    }
    assert_int_equal(parameter->readers, 0);
    end(thread);
    assert_true(wb_get(model, "layers.0.bias") == parameter);
    WORKS(uses_load());
    WORKS(uses_set());
    assert_true(wb_at(wb_get(model, "layers.0.bias"), 3) == 1);
    assert_int_equal(parameter->writer, 0);
    remove(in_folder("old.safetensors"));
    assert_int_equal(rmdir(folder), 0);         /* nothing else was written */
}

/* The writes that this thread has pending stay, if it evaluates what another thread trains. */
TEST(an_evaluation_that_is_refused_keeps_the_pending_writes)
{
    pthread_t thread;
    int (*work)(void) = trains;
    make();
    begin(&thread, &work);
    WORKS(wb_assign(parameter, wb_full(6, 4)));
    assert_true(wb_eval(wb_get(model, "layers.0.bias")) == WB_ERROR_ARGUMENT);
    assert_true(wb_at(parameter, 0) == 6);
    end(thread);
}

static void expect_writer(const char *what)
{
    if (!strstr(wb_error(), what) || !strstr(wb_error(), " has written ") ||
        !strstr(wb_error(), ", used it for "))
        fail_msg("%s", wb_error());
    wb_clear_error();
}

/* What was made of a value that another thread has overwritten since. */
TEST(an_overwritten_value_names_the_thread)
{
    char message[300];
    make();
    wb_tensor *y = wb_mul(parameter, 2), *loss = wb_sum(wb_mul(parameter, parameter));
    wb_tensor *late = wb_sum(wb_mul(parameter, parameter)), *mine = wb_variable(wb_ones(4));
    WORKS(wb_eval(loss));
    try_assign(message);
    assert_int_equal(failed, 0);
    assert_true(wb_eval(y) == WB_ERROR_VERSION);
    expect_writer("evaluation: thread ");
    assert_null(wb_gradient(loss, wb_tuple(parameter)));
    expect_writer("gradient: thread ");
    WORKS(wb_assign(mine, wb_zeros(4)));        /* detaches the tensors of the root scope that */
    WORKS(wb_eval(mine));                       /* are of no use any more */
    assert_true(wb_eval(late) == WB_ERROR_VERSION);
    expect_writer("evaluation: thread ");
    assert_null(wb_gradient(loss, wb_tuple(parameter)));
    expect_writer("gradient: thread ");
    WORKS(wb_assign(parameter, wb_ones(4)));    /* its own write */
    y = wb_mul(mine, 2);
    WORKS(wb_assign(mine, wb_ones(4)));
    WORKS(wb_eval(parameter));
}

static int doubles_input(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)ctx;
    wb_tensor *sum = wb_sum(wb_mul(in[0], 2));
    out[0] = wb_host_operation(at_host, NULL, WB_F32, 0, NULL, 1, &sum);
    return 1;
}

static int replays_input(void)
{
    wb_tensor *y;
    return wb_call_compiled(wb_compile(doubles_input, NULL), 1, &parameter, 1, &y) ||
           wb_item(y) != 8;
}

TEST(an_input_of_a_compiled_function_is_read)
{
    pthread_t thread;
    int (*work)(void) = replays_input;
    char message[300];
    make();
    begin(&thread, &work);
    assert_true(parameter->readers > 0);
    wb__claim_waits = 0;
    try_assign(message);
    wb__claim_waits = 20;
    end(thread);
    assert_int_equal(failed, 1);
    assert_int_equal(parameter->readers, 0);
}

/* A result of this thread that reads a variable, to which another thread assigns, is not part of
 * this thread's own step. */
TEST(a_step_beside_a_pending_assignment)
{
    pthread_t thread;
    int (*work)(void) = assigns;
    make();
    wb_tensor *x = wb_variable(wb_ones(4)), *unread = wb_mul(parameter, 2);
    begin(&thread, &work);
    WORKS(wb_assign(x, wb_full(2, 4)));
    WORKS(wb_eval(x));
    end(thread);
    assert_true(wb_at(x, 3) == 2);
    (void)unread;
}

static void *assigns_often(void *end)
{
    for (int i = 0; i < 2000 && !failed; i++) IN_SCOPE {
        failed = wb_assign(parameter, wb_full(i, 4)) || wb_eval(parameter);
    }
    *(atomic_bool *)end = true;
    return NULL;
}

/* What is read of a variable is the value of one assignment, or an error. */
TEST(reads_beside_assignments)
{
    pthread_t thread;
    atomic_bool end = false;
    float got[4];
    make();
    failed = 0;
    assert_int_equal(pthread_create(&thread, NULL, assigns_often, &end), 0);
    bool one = true;
    for (int i = 0; !end; i++) {
        wb_scope *s = wb_scope_open();
        wb_tensor *copy = i & 1 ? wb_variable(parameter) : parameter;
        if (copy && !wb_copy_out(copy, got, sizeof got))
            one &= got[0] == got[1] && got[0] == got[2] && got[0] == got[3];
        if (wb_scope_close(s)) one = false;
    }
    pthread_join(thread, NULL);
    assert_int_equal(failed, 0);
    assert_true(one);
    assert_true(wb_at(parameter, 0) == 1999);
    assert_int_equal(parameter->readers, 0);
}
