/* State that a recorded function depends on in addition to its inputs.  Changes after the recording
 * take effect; values computed before the recording are constants.  Every result is compared with
 * that of plain calls of the same function. */
#include "recorded.h"

#include <pthread.h>

/* ---- recorded functions and scopes within recorded functions --------------------------------- */

static wb_tensor *counter;
static int noisy(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    if (wb_assign(counter, wb_add(counter, wb_scalar(1)))) return -1;
    out[0] = wb_add(wb_mul(in[0], counter), wb_rand(2));
    return 1;
}

static int outer(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    wb_compiled *inner = ctx;
    wb_tensor *a, *b, *sum = NULL;
    if (wb_call_compiled(inner, 1, in, 1, &a)) return -1;
    wb_scope *s = wb_scope_open();
    if (wb_call_compiled(inner, 1, &a, 1, &b)) return -1;
    sum = wb_keep(wb_add(wb_exp(a), b));
    if (wb_scope_close(s)) return -1;
    out[0] = wb_mul(sum, in[0]);
    return 1;
}

TEST(nested)
{
    double first[4];
    for (int compiled = 0; compiled < 2; compiled++) IN_SCOPE {
        wb_seed(4);
        counter = wb_variable(wb_zeros(2));
        wb_compiled *inner = wb_compile(noisy, NULL), *c = wb_compile(outer, inner);
        for (int i = 0; i < 4; i++) {
            wb_tensor *x = wb_full_array(0.1 * i, WB_F32, 1, (int64_t[]){2}), *y;
            if (compiled ? wb_call_compiled(c, 1, &x, 1, &y) : outer(&x, &y, inner) < 0)
                fail_msg("%s", wb_error());
            if (!compiled) first[i] = wb_at(y, 1);
            else if (wb_at(y, 1) != first[i])
                fail_msg("call %d: %.9g, plain %.9g", i, wb_at(y, 1), first[i]);
        }
        assert_true(wb_at(counter, 0) == 8);
    }
}

/* ---- changes between calls ------------------------------------------------------------------- */

typedef struct {
    wb_layer *model;
    wb_opt_state *state;
    int recorded;                       /* calls of the function */
} trainer;

static int step(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    trainer *t = ctx;
    wb_tree *g;
    t->recorded++;
    out[0] = wb_withgradient(loss_of, t->model, ((wb_batch){.x = in[0], .y = in[1]}), &g);
    return !out[0] || wb_update(t->state, t->model, g) ? -1 : 1;
}

/* An update of the first layer alone: the other parameters are then one step behind. */
static int partial(trainer *t, wb_tensor *x)
{
    wb_tensor *part = wb_sum(wb_call(wb_layer_at(t->model, "layers.0"), x));
    return wb_update(t->state, t->model, wb_gradient(part, t->model));
}

static const char *change(trainer *t, int i, wb_tensor *x)
{
    wb_layer *m = t->model;
    const char *file = in_folder("step.safetensors");
    wb_checkpoint all = {.model = m, .state = t->state};
    switch (i) {
    case 2: return wb_freeze(t->state, "layers.0") ? NULL : "freeze";
    case 4: return wb_adjust(t->state, .eta = 0.03) ? NULL : "adjust";
    case 5: return wb_save_checkpoint(file, &all) ? NULL : "save";
    case 6: return wb_thaw(t->state, "layers.0.weight") ? NULL : "thaw";
    case 8: return wb_set(m, "layers.3.weight", wb_full_array(0.1, WB_F32, 2, (int64_t[]){5, 5}))
                ? NULL : "set";
    case 10: return wb_load_checkpoint(file, &all) ? NULL : "load";
    case 12: return wb_testmode(m) ? "testmode" : NULL;
    case 14: return wb_trainmode(wb_layer_at(m, "layers.2")) ? "trainmode of one" : NULL;
    case 16: return wb_automode(m) ? "automode" : NULL;
    case 17: return wb_thaw(t->state, "") ? NULL : "thaw all";
    case 18: return partial(t, x) ? NULL : "a partial update";
    case 20: return wb_assign(wb_get(m, "layers.4.bias"), wb_ones(5)) ? NULL : "assign";
    case 22:            /* a state of the model without the tie refuses the model with it */
        if (wb_tie(m, "layers.4.weight", "layers.3.weight")) return NULL;
        wb_release(t->state);
        t->state = wb_retain(wb_setup(wb_Adam(.eta = 0.1), m));
        return t->state ? "tie" : NULL;
    }
    return "";
}

enum { STEPS = 26, TRACE = STEPS + 25 + 25 + 25 + 5 };

/* The losses of all steps, then the parameters. */
static void trace(bool compiled, double *seen)
{
    wb_scope *s = wb_scope_open();
    wb_seed(21);
    wb_layer *m = wb_Chain(wb_Dense(5, 5, wb_tanh), wb_Dropout(.p = 0.3), wb_BatchNorm(5),
                           wb_Dense(5, 5), wb_Dense(5, 5));
    trainer t = {m, wb_retain(wb_setup(wb_Adam(.eta = 0.1), m)), 0};
    wb_compiled *c = wb_compile(step, &t);
    for (int i = 0; i < STEPS; i++) IN_SCOPE {
        wb_tensor *in[2] = {wb_randn(8, 5), wb_randn(8, 5)}, *loss;
        const char *what = change(&t, i, in[0]);
        if (!what) fail_msg("step %d: %s", i, wb_error());
        if (compiled ? wb_call_compiled(c, 2, in, 1, &loss) : step(in, &loss, &t) < 0)
            fail_msg("step %d, %s: %s", i, what, wb_error());
        seen[i] = wb_item(loss);
    }
    const char *const path[] = {"layers.0.weight", "layers.3.weight", "layers.4.weight",
                                "layers.4.bias"};
    for (int i = 0, at = STEPS; i < 4; at += (int)wb_size(wb_get(m, path[i++]))) {
        const float *values = wb_data(wb_get(m, path[i]));
        for (int j = 0; j < wb_size(wb_get(m, path[i])); j++) seen[at + j] = (double)values[j];
    }
    wb_release(t.state);
    WORKS(wb_scope_close(s));
}

TEST(changes_are_seen)
{
    double plain[TRACE], compiled[TRACE];
    trace(false, plain);
    trace(true, compiled);
    for (int i = 0; i < STEPS; i++)
        if (plain[i] != compiled[i])
            fail_msg("step %d: the loss is %.9g, plain %.9g", i, compiled[i], plain[i]);
    assert_memory_equal(plain, compiled, sizeof plain);
}

/* Parameters with equal step counts share the step's coefficients (such as Adam's bias correction)
 * in a recording; when the counts differ the function is recorded again. */
TEST(parameters_a_step_apart)
{
    double plain[5] = {0}, seen[5] = {0};
    for (int compiled = 0; compiled < 2; compiled++) IN_SCOPE {
        wb_seed(2);
        wb_layer *m = wb_Chain(wb_Dense(5, 5), wb_Dense(5, 5));
        trainer t = {m, wb_setup(wb_Adam(.eta = 0.1), m), 0};
        wb_compiled *c = wb_compile(step, &t);
        for (int i = 0; i < 5; i++) {
            wb_tensor *in[2] = {wb_randn(8, 5), wb_randn(8, 5)}, *loss;
            if (i == 2) WORKS(partial(&t, in[0]));
            if (compiled ? wb_call_compiled(c, 2, in, 1, &loss) : step(in, &loss, &t) < 0)
                fail_msg("%s", wb_error());
            (compiled ? seen : plain)[i] = wb_item(loss);
        }
        if (compiled) assert_int_equal(t.recorded, 2);
    }
    assert_memory_equal(plain, seen, sizeof plain);
}

/* ---- how often a function is recorded -------------------------------------------------------- */

static int in_mode(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    trainer *t = ctx;
    t->recorded++;
    out[0] = wb_call(t->model, in[0]);
    return 1;
}

static double zeros_in(wb_compiled *c, wb_tensor *x)
{
    wb_tensor *y;
    double n = 0;
    WORKS(wb_call_compiled(c, 1, &x, 1, &y));
    const float *at = wb_data(y);
    for (int i = 0; i < wb_size(y); i++) n += at[i] == 0;
    return n;
}

static wb_compiled *called;
static wb_tensor *calls_it(wb_layer *m, wb_batch b, void *ctx)
{
    *(double *)ctx = zeros_in(called, b.x);
    return wb_sum(b.x);
}

TEST_IN_SCOPE(recorded_as_rarely_as_can_be)
{
    trainer t = {.model = wb_Chain(wb_Dropout(.p = 0.5), wb_Dropout(.p = 0.5))};
    wb_layer *other = wb_Chain(wb_Dropout(.p = 0.5), wb_Dense(3, 3));
    wb_compiled *c = wb_compile(in_mode, &t);
    wb_tensor *x = wb_ones(400);
    for (int epoch = 0; epoch < 6; epoch++) {
        wb_trainmode(t.model);
        for (int i = 0; i < 3; i++) {
            assert_true(zeros_in(c, x) > 200);
            wb_trainmode(t.model);                      /* no change */
            wb_testmode(other);                         /* a model that the function does not use */
            wb_automode(other);
            WORKS(wb_set(other, "layers.1.bias", wb_ones(3)));
        }
        wb_testmode(t.model);
        assert_true(zeros_in(c, x) == 0);
    }
    assert_int_equal(t.recorded, 2);
    wb_automode(t.model);
    assert_true(zeros_in(c, x) == 0);
    double inside = 0;
    called = c;
    assert_non_null(wb_withgradient(calls_it, t.model, ((wb_batch){.x = x}), NULL, &inside));
    assert_true(inside > 200);
    assert_true(zeros_in(c, x) == 0);
    assert_int_equal(t.recorded, 4);
}

/* Parameters are replaced more often than a function keeps recordings. */
static int product(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    trainer *t = ctx;
    t->recorded++;
    out[0] = wb_matmul(in[0], wb_get(t->model, "weight"));
    return 1;
}

TEST_IN_SCOPE(parts_replaced_often)
{
    trainer t = {.model = wb_Dense(2, 2, .bias = false)};
    wb_compiled *c = wb_compile(product, &t);
    wb_tensor *x = wb_ones(2, 2), *y;
    for (int i = 0; i < 40; i++) IN_SCOPE {
        WORKS(wb_set(t.model, "weight", wb_full_array(i, WB_F32, 2, (int64_t[]){2, 2})));
        for (int again = 0; again < 2; again++) {
            WORKS(wb_call_compiled(c, 1, &x, 1, &y));
            assert_true(wb_at(y, 1, 0) == 2.0 * i);
        }
    }
    assert_int_equal(t.recorded, 40);
}

/* If the function itself sets modes and freezes parameters, replays do so too. */
static int sets_modes(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    trainer *t = ctx;
    t->recorded++;
    wb_trainmode(t->model);
    out[0] = wb_call(t->model, in[0]);
    wb_tensor *l = wb_sum(out[0]);
    if (wb_freeze(t->state, "layers.1.weight")) return -1;
    if (wb_update(t->state, t->model, wb_gradient(l, t->model))) return -1;
    if (wb_thaw(t->state, "layers.1.weight")) return -1;
    wb_testmode(wb_layer_at(t->model, "layers.0"));
    return 1;
}

TEST_IN_SCOPE(settings_inside)
{
    wb_layer *m = wb_Chain(wb_Dropout(.p = 0.5), wb_Dense(8, 8), wb_Dropout(.p = 0.5));
    trainer t = {m, wb_setup(wb_Descent(.eta = 1), m), 0};
    wb_compiled *c = wb_compile(sets_modes, &t);
    wb_tensor *x = wb_ones(50, 8), *first = wb_add(wb_get(m, "layers.1.weight"), wb_scalar(0));
    WORKS(wb_eval(first));
    for (int i = 0; i < 4; i++) {
        if (i == 2) wb_automode(m);
        assert_true(zeros_in(c, x) > 100);
        assert_true(wb_at(wb_get(m, "layers.1.bias"), 3) < -20);
        assert_memory_equal(wb_data(first), wb_data(wb_get(m, "layers.1.weight")), 64 * 4);
        char *last = wb_object_format(wb_layer_at(m, "layers.2")),
             *one = wb_object_format(wb_layer_at(m, "layers.0")),
             *shown = wb_object_format(t.state);
        assert_non_null(strstr(last, "active=true"));
        assert_non_null(strstr(one, "active=false"));
        assert_null(strstr(shown, "frozen"));
        wb_free_text(last), wb_free_text(one), wb_free_text(shown);
        WORKS(wb_assign(wb_get(m, "layers.1.bias"), wb_zeros(8)));
    }
    assert_int_equal(t.recorded, 1);
    WORKS(wb_freeze(t.state, ""));            /* also the bias, which the function does not thaw */
    (void)zeros_in(c, x);
    assert_true(wb_at(wb_get(m, "layers.1.bias"), 3) == 0);
}

/* ---- values computed before the recording ---------------------------------------------------- */

static wb_tensor *variable, *captured, *middle, *noise;
static int with_captured(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    wb_tensor *seen = wb_mul(captured, in[0]);
    if (wb_assign(variable, wb_add(variable, wb_scalar(1)))) return -1;
    out[0] = wb_add(seen, variable);
    out[1] = wb_mul(noise, in[0]);
    out[2] = wb_gradient(wb_sum(captured), middle);
    out[3] = captured;
    return 4;
}

TEST(captured_values_are_constants)
{
    for (int evaluated = 0; evaluated < 2; evaluated++) IN_SCOPE {
        variable = wb_variable(wb_full_array(0.5, WB_F32, 1, (int64_t[]){2}));
        middle = wb_mul(variable, wb_scalar(2));
        captured = wb_exp(middle);
        noise = wb_randn(2);
        if (evaluated) WORKS(wb_eval(middle, captured, noise));
        wb_compiled *c = wb_compile(with_captured, NULL);
        double drawn = 0;
        for (int i = 0; i < 3; i++) {
            wb_tensor *x = wb_ones(2), *out[4];
            WORKS(wb_call_compiled(c, 1, &x, 4, out));
            if (!i) drawn = wb_at(out[1], 1);
            if (fabs(wb_at(out[0], 0) - (exp(1) + 1.5 + i)) > 1e-5)
                fail_msg("call %d: %g, not %g", i, wb_at(out[0], 0), exp(1) + 1.5 + i);
            assert_true(wb_at(out[1], 1) == drawn && drawn == wb_at(noise, 1));
            assert_true(fabs(wb_at(out[2], 1) - exp(1)) < 1e-5);
            assert_true(wb_at(out[3], 1) == wb_at(captured, 1));
        }
    }
}

/* A captured value whose version was overwritten gives the error of a plain call. */
static int only_captured(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_add(captured, in[0]);
    return 1;
}

TEST_IN_SCOPE(captured_value_that_is_gone)
{
    wb_tensor *x = wb_ones(2), *out[4], *y;
    variable = wb_variable(wb_zeros(2));
    captured = middle = wb_ones(2);
    noise = wb_ones(2);
    wb_compiled *c = wb_compile(with_captured, NULL), *d = wb_compile(only_captured, NULL);
    WORKS(wb_call_compiled(c, 1, &x, 2, out));
    captured = wb_exp(variable);
    WORKS(wb_call_compiled(c, 1, &x, 2, out));        /* overwrites the variable's value */
    wb_clear_error();
    only_captured(&x, &y, NULL);
    assert_int_equal(wb_eval(y), WB_ERROR_VERSION);
    wb_clear_error();
    assert_int_equal(wb_call_compiled(d, 1, &x, 1, &y), WB_ERROR_VERSION);
    wb_clear_error();
}

/* ---- inputs that are numbers ----------------------------------------------------------------- */

static int recorded;
static int scaled(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    recorded++;
    out[0] = wb_sub(wb_mul(in[0], in[1]), in[1]);
    out[1] = wb_mul(in[1], in[1]);
    out[2] = in[1];
    return 3;
}

/* A plain call and the recorded call have the same bits or the same error. */
static void same_as_plain(wb_compiled *c, wb_tensor *x, wb_tensor *number)
{
    wb_tensor *in[9] = {x, number}, *out[3] = {NULL}, *results[3];
    wb_clear_error();
    scaled(in, out, NULL);
    recorded--;
    const int code = out[0] ? 0 : wb_error_code(), status = wb_call_compiled(c, 2, in, 3, results);
    if (status != code) fail_msg("the recorded call: %d, plain %d: %s", status, code, wb_error());
    for (int i = 0; i < 3 && !code; i++) {
        assert_int_equal(wb_dtype_of(out[i]), wb_dtype_of(results[i]));
        double a[8] = {0}, b[8] = {0};
        const size_t bytes = (size_t)wb_size(out[i]) * wb_dtype_bytes(wb_dtype_of(out[i]));
        WORKS(wb_copy_out(out[i], a, bytes));
        WORKS(wb_copy_out(results[i], b, bytes));
        assert_memory_equal(a, b, bytes);
    }
}

TEST(inputs_of_no_dimension)
{
    const double values[] = {0.1, 0, 1, -1, 2.5, 1e-30, 3, INFINITY};
    const wb_dtype dtypes[] = {WB_F32, widest_float(), WB_I32};
    for (int k = 0; k < 3; k++) IN_SCOPE {
        wb_compiled *c = wb_compile(scaled, NULL);
        wb_tensor *x = wb_astype(wb_arange(4, WB_I32), dtypes[k]);
        recorded = 0;
        for (int i = 0; i < 8; i++) same_as_plain(c, x, wb_scalar(values[i]));
        /* recordings of 0.1 (no integer), 0 (a value of every integer dtype), -1 and infinity */
        if (k < 2) assert_int_equal(recorded, 4);
        for (int i = 0; i < 8; i++)
            same_as_plain(c, x, wb_full_array(values[i], dtypes[k], 0, NULL));
        if (k < 2) assert_int_equal(recorded, 5);
        wb_tensor *read = wb_full_array(2.5, dtypes[k], 0, NULL);
        for (int i = 0; i < 4; i++) {
            wb_tensor *factor = wb_full_array(i, dtypes[k], 1, (int64_t[]){1});
            same_as_plain(c, x, wb_reshape_array(wb_mul(read, factor), 0, NULL));
        }
        if (k < 2) assert_int_equal(recorded, 6);
    }
    wb_clear_error();
}

/* ---- devices, threads ------------------------------------------------------------------------ */

static int draws(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_rand(3);
    out[1] = wb_scalar(5);
    return 2;
}

static int on_two(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    const wb_device *was = wb_default_device();
    wb_set_default_device(elsewhere());
    out[0] = wb_rand(3);
    wb_set_default_device(was);
    out[1] = in[0];
    return 2;
}

static int on_another(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    const wb_device *was = wb_default_device();
    wb_set_default_device(elsewhere());
    out[0] = wb_rand(3);
    wb_set_default_device(was);
    wb_tensor *number = in[0];
    out[1] = wb_mul(number, number);
    (*(int *)ctx)++;
    return 2;
}

TEST_IN_SCOPE(default_device)
{
    const wb_device *here = wb_default_device(), *there = elsewhere();
    wb_compiled *c = wb_compile(draws, NULL);
    wb_tensor *out[2], *x = wb_ones(2);
    for (int i = 0; i < 4; i++) {
        wb_set_default_device(i & 1 ? there : here);
        WORKS(wb_call_compiled(c, 0, NULL, 2, out));
        assert_ptr_equal(wb_device_of(out[0]), i & 1 ? there : here);
        assert_true(wb_item(out[1]) == 5);
    }
    wb_set_default_device(here);
    assert_int_equal(wb_call_compiled(wb_compile(on_two, NULL), 1, &x, 2, out),
                     WB_ERROR_UNSUPPORTED);
    wb_clear_error();
    int calls = 0;
    wb_compiled *d = wb_compile(on_another, &calls);
    for (int i = 0; i < 3; i++) {       /* a result that has no device gets the plan's */
        wb_tensor *number = wb_scalar(i);
        WORKS(wb_call_compiled(d, 1, &number, 2, out));
        assert_ptr_equal(wb_device_of(out[0]), there);
        assert_true(wb_item(out[1]) == i * i);
    }
}

enum { THREADS = 6 };
static wb_compiled *shared;
static wb_layer *shared_model;
static _Atomic int wrong;

static int through_model(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_mul(wb_call(ctx, in[0]), in[1]);
    return 1;
}

/* A thread that calls the shared function with its own numbers, and changes the modes of a layer of
 * its own. */
static void *calls_shared(void *arg)
{
    const int mine = (int)(intptr_t)arg;
    wb_set_default_device(wb_device_of(shared_model));
    for (int i = 0; i < 30; i++) {
        wb_scope *s = wb_scope_open();
        wb_layer *own = wb_Dropout(.p = 0.5);
        i & 1 ? wb_trainmode(own) : wb_testmode(own);
        wb_tensor *in[2] = {wb_ones(2 + i % 2, 4), wb_scalar(mine + i)}, *y, *z;
        if (wb_call_compiled(shared, 2, in, 1, &y)) wrong++;
        else if (wb_at(y, 1, 2) != 4.0 * (mine + i)) wrong++;
        trainer t = {.model = own};
        if (wb_call_compiled(wb_compile(in_mode, &t), 1, in, 1, &z)) wrong++;
        if (wb_scope_close(s)) wrong++;
    }
    return NULL;
}

TEST_IN_SCOPE(threads)
{
    shared_model = wb_Dense(4, 4, .init = wb_init_ones);
    shared = wb_compile(through_model, shared_model);
    pthread_t all[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&all[i], NULL, calls_shared, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    setenv("WEBER_CPU_DEVICES", "2", 0);
    read_options(argc, argv);
    return run_cases(make_folder, remove_folder);
}
