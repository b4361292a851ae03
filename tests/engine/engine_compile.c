/* Recorded functions compute the same bits as plain calls; threads share models and plans.  Built
 * with -fsanitize=thread this program is the race test (without oneDNN, because the sanitizer does
 * not support OpenMP). */
#include "reference.h"

#include "engine/tensor.h"
#include "weber/train.h"

#include <pthread.h>

typedef struct { wb_layer *model; wb_opt_state *state; } trainer;

static wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(m, b.x), b.y);
}

static int step(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    trainer *t = ctx;
    wb_tree *g;
    out[0] = wb_withgradient(loss_of, t->model, ((wb_batch){.x = in[0], .y = in[1]}), &g);
    return !out[0] || wb_update(t->state, t->model, g) ? -1 : 1;
}

/* The parameters and losses of 10 steps.  With f64 the literals of the graph change their dtype. */
static array train(bool compiled, bool chained, wb_dtype dtype)
{
    wb_scope *s = wb_scope_open();
    wb_seed(17);
    wb_layer *m = wb_Chain(wb_Dense(5, 12, wb_tanh, .dtype = dtype), wb_Dropout(.p = 0.4),
                           wb_BatchNorm(12, .dtype = dtype), wb_Dropout(.p = 0.2),
                           wb_Dense(12, 2, .dtype = dtype));
    wb_rule *rule = chained
                        ? wb_OptimizerChain(wb_ClipNorm(.omega = 0.5),
                                            wb_WeightDecay(.lambda = 0.01), wb_AdamW(.eta = 0.02))
                        : wb_Adam(.eta = 1);
    trainer t = {m, wb_setup(rule, m)};
    if (!t.state) fail_msg("%s", wb_error());
    wb_compiled *c = compiled ? wb_compile(step, &t) : NULL;
    array seen = ref_new(1, (int64_t[]){12 * 5 + 12 + 12 + 10});
    for (int i = 0; i < 10; i++) IN_SCOPE {
        int64_t n = i % 5 == 4 ? 3 : 8;                     /* a last batch of another size */
        wb_tensor *in[2] = {wb_astype(wb_randn(n, 5), dtype), wb_astype(wb_randn(n, 2), dtype)};
        wb_tensor *loss;
        assert_int_equal(wb_eval(in[0], in[1]), 0);
        if (i == 6) wb_adjust(t.state, .eta = 0.005);
        if (compiled ? wb_call_compiled(c, 2, in, 1, &loss) : step(in, &loss, &t) < 0)
            fail_msg("%s", wb_error());
        seen.at[seen.size - 10 + i] = wb_item(loss);
    }
    array w = values_of(wb_get(m, "layers.0.weight")), mean = values_of(wb_get(m, "layers.2.mean")),
          var = values_of(wb_get(m, "layers.2.var"));
    memcpy(seen.at, w.at, 60 * sizeof(double));
    memcpy(seen.at + 60, mean.at, 12 * sizeof(double));
    memcpy(seen.at + 72, var.at, 12 * sizeof(double));
    wb_scope_close(s);
    return seen;
}

TEST(compiled_is_plain)
{
    for (int k = 0; k < 4; k++) {
        array plain = train(false, k & 1, k & 2 ? widest_float() : WB_F32),
              compiled = train(true, k & 1, k & 2 ? widest_float() : WB_F32);
        for (int64_t i = plain.size - 10; i < plain.size; i++)
            if (plain.at[i] != compiled.at[i])
                fail_msg("rule %d: the loss of step %lld is %.17g, plain %.17g", k,
                         (long long)(i - plain.size + 10), compiled.at[i], plain.at[i]);
        assert_memory_equal(plain.at, compiled.at, (size_t)plain.size * sizeof(double));
        ref_forget();
    }
}

/* A recording that assigns a variable, with a captured constant, an output that is an input and
 * random numbers. */
static wb_tensor *held;
static int add_one(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    wb_tensor *v = ctx;
    if (wb_assign(v, wb_add(v, in[0]))) return -1;
    out[0] = wb_mul(v, held);
    out[1] = in[0];
    out[2] = wb_rand(3);
    return 3;
}

TEST_IN_SCOPE(compiled_state)
{
    wb_tensor *v = wb_variable(wb_zeros(2)), *one = wb_ones(2), *out[3];
    held = wb_full_array(10, WB_F32, 1, (int64_t[]){2});
    wb_compiled *c = wb_compile(add_one, v);
    double last = -1;
    wb_seed(1);
    for (int i = 1; i < 5; i++) {
        if (wb_call_compiled(c, 1, &one, 3, out)) fail_msg("%s", wb_error());
        assert_true(wb_at(out[0], 1) == 10.0 * i && wb_at(v, 0) == i && wb_at(out[1], 0) == 1);
        assert_true(wb_at(out[2], 0) != last);
        last = wb_at(out[2], 0);
    }
    wb_tensor *two[2] = {one, one};
    assert_int_not_equal(
        wb_call_compiled(c, 1, &one, 4, (wb_tensor *[]){out[0], out[1], out[2], two[0]}), 0);
    wb_clear_error();
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 8 };
static wb_layer *shared;
static float given[32 * 6], expected[32 * 3];
static _Atomic int wrong;

static const wb_device *where;          /* the default device of the test's thread */

static void *infer(void *arg)
{
    wb_set_default_device(where);
    for (int round = 0; round < 40; round++) {
        wb_scope *s = wb_scope_open();
        int from = (int)(intptr_t)arg % 4, n = 20 + (int)((intptr_t)arg + round) % 3;
        wb_tensor *y =
            wb_call(shared, wb_from(given + 6 * from, WB_F32, 2, (int64_t[]){n - 10, 6}));
        const float *got = y ? wb_data(y) : NULL;
        for (int i = 0; i < 3 * (n - 10); i++)
            if (!got || !(fabsf(got[i] - expected[3 * from + i]) < 1e-5f)) wrong++;
        wb_tensor *mine = wb_variable(wb_zeros(4));
        wb_assign(mine, wb_add(mine, wb_scalar(round)));
        if (wb_at(mine, 2) != round) wrong++;
        if (wb_scope_close(s)) wrong++;
    }
    return NULL;
}

TEST_IN_SCOPE(threads)
{
    where = wb_default_device();
    shared = wb_Chain(wb_Dense(6, 40, wb_gelu), wb_LayerNorm({40}), wb_Dense(40, 3), wb_softmax);
    for (int i = 0; i < 32 * 6; i++) given[i] = (float)draw_real(-1, 1);
    wb_tensor *y = wb_call(shared, wb_from(given, WB_F32, 2, (int64_t[]){32, 6}));
    assert_int_equal(wb_copy_out(y, expected, sizeof expected), 0);
    wb_set_plan_cache(2); /* plans are evicted while others run them */
    pthread_t all[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&all[i], NULL, infer, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
    wb_set_plan_cache(64);
    assert_int_equal(wrong, 0);
}

/* Evaluations large enough to use the thread pool, from two threads at once. */
static void *large(void *arg)
{
    wb_tensor *const *x = arg;
    wb_set_default_device(where);
    for (int round = 0; round < 6; round++) IN_SCOPE {
        double sum = wb_item(wb_mean(wb_sin(wb_mul(*x, wb_scalar(2)))));
        if (!(fabs(sum - sin(2)) < 1e-5)) wrong++;
        if (wb_at(wb_matmul(*x, *x), 3, 4) != 500) wrong++;
    }
    return NULL;
}

TEST(threads_on_the_pool)
{
    where = wb_default_device();
    wb_tensor *x = wb_ones(500, 500);
    wb_eval(x);
    int before = wb_threads();
    wb_set_threads(4);
    pthread_t two[2];
    for (int i = 0; i < 2; i++) pthread_create(&two[i], NULL, large, &x);
    for (int i = 0; i < 2; i++) pthread_join(two[i], NULL);
    wb_set_threads(before);
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv) { return run_with_options(argc, argv); }
