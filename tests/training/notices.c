/* What the log reports once in a process: calls that are right for the library, and seldom what the
 * program means; and what it reports of variables of the environment. */
#include "process.h"
#include "reference.h"

#include "base/environment.h"
#include "nn/layer.h"

#include <sys/wait.h>
#include <unistd.h>

static int warnings;
static char warning[2000];
static void hear(wb_log_level level, const char *text, void *ctx)
{
    (void)ctx;
    if (level != WB_LOG_WARN) return;
    warnings++;
    snprintf(warning, sizeof warning, "%s", text);
}

static void listen(void)
{
    wb_set_log(hear, NULL);
    warnings = 0;
    *warning = 0;
}

#define HEARD(n, ...)                                                                           \
    do {                                                                                        \
        wb_set_log(NULL, NULL);                                                                 \
        if (warnings != (n) || !HAS_FACTS(warning, __VA_ARGS__))                                \
            fail_msg("%d warnings, %s", warnings, warning);                                     \
    } while (0)
#define SILENT()                                                                                \
    do {                                                                                        \
        wb_set_log(NULL, NULL);                                                                 \
        if (warnings) fail_msg("%s", warning);                                                  \
    } while (0)

TEST_IN_SCOPE(bytes_into_a_layer)
{
    wb_tensor *image = wb_full_array(200, WB_U8, 4, (int64_t[]){1, 3, 8, 8});
    wb_layer *conv = wb_Conv(3, 4, {3, 3});
    listen();
    MADE(wb_call(conv, wb_div(wb_astype(image, WB_F32), 255)));
    MADE(wb_call(wb_Embedding(256, 2), wb_reshape(image, 3, 64)));     /* indices */
    MADE(wb_call(wb_Dense(2, 2), wb_full_array(1, WB_I8, 2, (int64_t[]){1, 2})));
    SILENT();
    listen();
    MADE(wb_call(conv, image));
    MADE(wb_call(conv, image));
    HEARD(1, "Conv", "f32", "[1,3,8,8] u8", "255", "wb_div(wb_astype(x, WB_F32), 255)");
}

/* The look at the parameters evaluates the update before it; its failure is that of the average.
 * What the update replaces stays readable, and a target is looked at once. */
TEST_IN_SCOPE(an_update_that_fails_before_an_average)
{
    wb_layer *m = wb_Dense(2, 1), *target = wb_clone(m), *second = wb_clone(m);
    wb_opt_state *state = wb_setup(wb_Descent(0.1), m);
    const float was = (float)wb_at(wb_get(m, "weight"), 0, 0);
    wb_tensor *loss = wb_mean(wb_mul(wb_call(m, wb_ones(1, 2)), NAN));
    WORKS(wb_update(state, m, wb_gradient(loss, m)));
    REFUSED(!wb_average(target, m), WB_ERROR_NUMBER, "loss", "NaN");
    wb_clear_error();
    assert_true((float)wb_at(wb_get(m, "weight"), 0, 0) == was);
    assert_true((float)wb_at(wb_get(target, "weight"), 0, 0) == was);
    wb_tensor *before = wb_mul(wb_get(m, "weight"), 1);
    for (int i = 0; i < 2; i++) {
        loss = wb_mean(wb_square(wb_call(m, wb_ones(1, 2))));
        WORKS(wb_update(state, m, wb_gradient(loss, m)));
        WORKS(wb_average(second, m));
        assert_true(wb__pending_count() == (i ? 6 : 2));
    }
    assert_true((float)wb_at(before, 0, 0) == was);
}

/* Averages of a model, and of one from a file, are not reported. */
TEST_IN_SCOPE(averages_that_copy_nothing)
{
    wb_seed(3);
    wb_layer *m = wb_Chain(wb_Dense(4, 8), wb_Dense(8, 1)), *a = wb_average_of(m);
    wb_layer *loaded = wb_clone(m), *target = wb_Chain(wb_Dense(4, 8), wb_Dense(8, 1));
    wb_layer *copied = wb_Chain(wb_Dense(4, 8), wb_Dense(8, 1));
    listen();
    for (int i = 0; i < 3; i++) {
        WORKS(wb_assign(wb_get(m, "layers.0.weight"), wb_mul(wb_get(m, "layers.0.weight"), 1.1)));
        WORKS(wb_average(a, m));
        WORKS(wb_average(loaded, m));
    }
    WORKS(wb_copy(copied, m));
    WORKS(wb_average(copied, m));
    WORKS(wb_average(target, m, 0.9));
    wb_layer *swa = wb_Chain(wb_Dense(4, 8), wb_Dense(8, 1));
    WORKS(wb_average(swa, m, .count = 1));
    SILENT();
    target = wb_Chain(wb_Dense(4, 8), wb_Dense(8, 1));
    const double before = wb_at(wb_get(target, "layers.0.weight"), 0, 0);
    listen();
    WORKS(wb_average(target, m));
    WORKS(wb_average(target, m));
    HEARD(1, "average", "0.999", "wb_copy(to, from)", "wb_average_of");
    const double x = wb_at(wb_get(m, "layers.0.weight"), 0, 0);
    assert_true(fabs(wb_at(wb_get(target, "layers.0.weight"), 0, 0) -
                     (0.998001 * before + 0.001999 * x)) < 1e-6);
}

static double call_with(wb_layer *m, int64_t n)
{
    wb_scope *s = wb_scope_open();
    const double y = wb_item(wb_mean(wb_square(wb_call(m, wb_randn(n, 3)))));
    WORKS(wb_scope_close(s));
    return y;
}

/* No shape of data changes, but a number that is a part of the plan does.  In a child, since the
 * warning comes once in a process. */
static void plans_of(wb_tensor *(*f)(wb_tensor *x, int i), const char *what)
{
    const pid_t child = fork();
    int status = -1;
    if (!child) {
        wb_tensor *x = wb_rand(100, 3);
        bool right = !wb_eval(x);
        listen();
        for (int i = 1; right && i <= 40; i++) right = wb_item(wb_sum(f(x, i))) >= 0;
        if (!right || warnings != 1 ||
            !HAS_FACTS(warning, "32 plans", "numbers of an operation change", what, "wb_take"))
            fprintf(stderr, "%d warnings, %s; %s\n", warnings, warning, wb_error());
        else _exit(0);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}
static wb_tensor *slices(wb_tensor *x, int i) { return wb_slice(wb_relu(x), 0, 0, i); }
static wb_tensor *rolls(wb_tensor *x, int i) { return wb_roll(wb_relu(x), 0, i); }
static wb_tensor *pads(wb_tensor *x, int i) { return wb_pad(wb_relu(x), 0, i, 0); }
static wb_tensor *norms(wb_tensor *x, int i) { return wb_norm(x, 1 + 0.1 * i); }

TEST(plans_for_new_slices) { plans_of(slices, "slice"); }
TEST(plans_for_new_rolls) { plans_of(rolls, "slice"); }
TEST(plans_for_new_pads) { plans_of(pads, "132,3] f32"); }
TEST(plans_for_new_exponents) { plans_of(norms, "the number"); }

/* 32 plans for the same operations; looking at the parameters of a large model is none of this. */
TEST_IN_SCOPE(plans_for_new_shapes)
{
    wb_layer *m = wb_Chain(wb_Dense(3, 5, wb_relu), wb_Dense(5, 2));
    listen();
    for (int64_t n = 1; n <= 50; n++) {
        wb_tensor *x = wb_randn(n, n + 1);
        WORKS(wb_eval(x));
        assert_true(wb_item(wb_norm(x, 2)) > 0);
    }
    for (int i = 0; i < 40; i++) call_with(m, 7 + i % 31);
    SILENT();
    listen();
    for (int64_t n = 1; n <= 40; n++) call_with(m, n + 100);
    HEARD(1, "32 plans", "3] f32", "at first [7,3]", "Pad", "buckets", ".drop_last");
}

TEST_IN_SCOPE(a_batch_above_the_data)
{
    wb_dataset *d = wb_dataset_of(wb_randn(5, 2), wb_randn(5, 1));
    listen();
    MADE(wb_dataloader(d, 5));
    MADE(wb_dataloader(d, -1));
    SILENT();
    listen();
    for (int i = 0; i < 2; i++) {
        wb_loader *l = wb_dataloader(d, 64);
        wb_batch b;
        MADE(l);
        assert_true(wb_loader_next(l, &b) && b.n == 5 && !wb_loader_next(l, &b));
    }
    HEARD(1, "dataloader", "64", "one batch, of 5");
    listen();
    MADE(wb_dataloader(d, 64, .drop_last = true));
    HEARD(1, "5 observations", "64", "no batch", ".drop_last");
}

/* Numbers that no reader takes. */
TEST(variables)
{
    static const char *const wrong[] = {"abc", "4,2,1", "0", "-1", "2.5", "257", "1e99", "nan",
                                        "4 "};
    static const char *const right[] = {"", "1", "4", "256"};
    char why[320];
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        *why = 0;
        assert_false(wb__environment_takes("WEBER_NUM_THREADS", wrong[i], why, sizeof why));
        assert_true(HAS_FACTS(why, "WEBER_NUM_THREADS", wrong[i], "no effect", "1 to 256"));
        assert_int_equal(setenv("WEBER_NUM_THREADS", wrong[i], 1), 0);
        assert_true(wb__environment_number("WEBER_NUM_THREADS", -7) == -7);
    }
    for (size_t i = 0; i < WB__COUNT(right); i++)
        assert_true(wb__environment_takes("WEBER_NUM_THREADS", right[i], why, sizeof why));
    unsetenv("WEBER_NUM_THREADS");
    assert_false(wb__environment_takes("WEBER_CPU_DEVICES", "17", why, sizeof why));
    assert_false(wb__environment_takes("WEBER_FAIL_ALLOC", "few", why, sizeof why));
    assert_false(wb__environment_takes("WEBER_GPU_TIMING", "-1", why, sizeof why));
    assert_true(wb__environment_takes("WEBER_GPU_TIMING", "12.5", why, sizeof why));
}
