/* Steps with a guard on the CUDA backend (engine/guard.c), on the test double: the calls of the
 * driver, and calls that fail. */
#include "test.h"

#include "backend/gpu/runtime/runtime.h"
#include "optim/optim.h"
#include "tests/doubles/cuda_double.h"

#include "weber/device.h"

enum { WIDTH = 24, STEPS = 20 };

typedef struct {
    wb_layer *model;
    wb_opt_state *state;
    bool at_once;               /* the host reads the guard before the writes */
} training;

static int step(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    const training *t = ctx;
    out[0] = wb_mean(wb_square(wb_call(t->model, in[0])));
    wb__this_thread()->guard_at_once = t->at_once;
    return wb_update(t->state, t->model, wb_gradient(out[0], t->model)) ? -1 : 1;
}

static wb_tensor *input(const wb_device *gpu, double value)
{
    wb_tensor *x = wb_full(value, 8, WIDTH);
    return x ? wb_to(x, gpu) : NULL;
}

static int64_t waits(void) { return count_calls("cuStreamSynchronize"); }

/* A compiled step is one graph, and the host waits for the step before it; so is one that adds to
 * accumulated gradients, or applies them.  Read at once, the guard makes it two graphs, between
 * which the device has nothing to do. */
TEST(calls_of_a_step)
{
    const wb_device *gpu = wb_device_at("CUDA", 0);
    for (int kind = 0; kind < 3; kind++) IN_SCOPE {
        const int at_once = kind == 1;
        training t = {wb_to(wb_Chain(wb_Dense(WIDTH, 48, wb_relu), wb_Dense(48, WIDTH)), gpu),
                      NULL, at_once};
        t.state = kind < 2 ? wb_setup(wb_Adam(), t.model)
                           : wb_setup(wb_OptimizerChain(wb_AccumGrad(2), wb_Adam()), t.model);
        wb_compiled *c = wb_compile(step, &t);
        wb_tensor *x = input(gpu, 0.5), *out;
        for (int i = 0; i < 2 * STEPS; i++) IN_SCOPE {
            if (i == STEPS) forget_calls();
            if (wb_call_compiled(c, 1, &x, 1, &out)) fail_msg("%s", wb_error());
        }
        print_message("kind %d: graphs %lld, launches %lld, downloads %lld, event waits %lld,"
                      " stream waits %lld, all calls %lld\n", kind,
                      (long long)count_calls("cuGraphLaunch"),
                      (long long)count_calls("cuLaunchKernel"),
                      (long long)count_calls("cuMemcpyDtoHAsync_v2"),
                      (long long)count_calls("cuEventSynchronize"), (long long)waits(),
                      (long long)count_calls(NULL));
        assert_int_equal(count_calls("cuGraphLaunch"), (1 + at_once) * STEPS);
        assert_int_equal(count_calls("cuMemcpyDtoHAsync_v2"), STEPS);
        assert_int_equal(count_calls("cuEventSynchronize"), STEPS);
        assert_int_equal(count_calls("cuStreamBeginCapture_v2"), 0);
        assert_int_equal(waits(), 0);
        assert_int_equal(wb_synchronize(gpu), 0);
    }
}

/* With the batches of a loader in turn, the addresses of a step repeat: later no graph is
 * recorded and nothing is copied. */
TEST_IN_SCOPE(batches_in_turn)
{
    enum { BATCHES = 8, STEADY = 24, ALL = 64 };
    const wb_device *gpu = wb_device_at("CUDA", 0);
    training t = {wb_to(wb_Chain(wb_Dense(WIDTH, 48, wb_relu), wb_Dense(48, WIDTH)), gpu), NULL,
                  false};
    t.state = wb_setup(wb_Adam(), t.model);
    wb_compiled *c = wb_compile(step, &t);
    wb_tensor *x[BATCHES], *out;
    for (int i = 0; i < BATCHES; i++) x[i] = input(gpu, 0.1 * i);
    for (int i = 0; i < ALL; i++) IN_SCOPE {
        if (i == STEADY) forget_calls();
        if (wb_call_compiled(c, 1, &x[i % BATCHES], 1, &out)) fail_msg("%s", wb_error());
    }
    assert_int_equal(count_calls("cuGraphLaunch"), ALL - STEADY);
    assert_int_equal(count_calls("cuStreamBeginCapture_v2"), 0);
    assert_int_equal(count_calls("cuMemcpyDtoDAsync_v2"), 0);
}

/* An estimate waits for no guard, and cancels nothing: not the step whose guard is unread, which is
 * bad here, and not the pending update. */
TEST_IN_SCOPE(an_estimate_waits_for_nothing)
{
    const wb_device *gpu = wb_device_at("CUDA", 0);
    training t = {wb_to(wb_Dense(WIDTH, WIDTH), gpu), NULL, false};
    t.state = wb_setup(wb_Adam(), t.model);
    wb_tensor *x = input(gpu, NAN), *out;
    wb_memory m;
    assert_true(step(&x, &out, &t) == 1 && !wb_eval(out));
    const wb_tensor *unread = wb__this_thread()->late.guard;
    assert_non_null(unread);
    assert_int_equal(step(&x, &out, &t), 1);
    const int pending = wb__pending_count();
    for (int at_once = 0; at_once < 2; at_once++) {
        wb__this_thread()->guard_at_once = at_once;
        if (wb_estimate_memory(1, &out, &m)) fail_msg("%s", wb_error());
        assert_true(m.peak > 0);
        assert_ptr_equal(wb__this_thread()->late.guard, unread);
        assert_int_equal(wb__pending_count(), pending);
        assert_int_equal(t.state->counts->updates, 2);
    }
    assert_int_equal(wb_synchronize(gpu), WB_ERROR_NUMBER);
    assert_int_equal(t.state->counts->updates, 0);
    assert_int_equal(wb__pending_count(), 0);
    wb_clear_error();
}

/* The device is lost between a step and the reading of its guard: whatever the program does next
 * fails for this reason, the step counts as not made, and everything can be freed. */
TEST(a_device_lost_in_between)
{
    for (int next = 0; next < 4; next++) {
        wb_scope *scope = wb_scope_open();
        const wb_device *gpu = wb_device_at("CUDA", 0);
        training t = {wb_to(wb_Dense(WIDTH, WIDTH), gpu), NULL, false};
        t.state = wb_setup(wb_Adam(), t.model);
        wb_compiled *c = wb_compile(step, &t);
        wb_tensor *x = input(gpu, 0.5), *out;
        for (int i = 0; i < 3; i++) {
            if (next % 2) assert_int_equal(wb_call_compiled(c, 1, &x, 1, &out), 0);
            else assert_true(step(&x, &out, &t) == 1 && !wb_eval(out));
        }
        assert_non_null(wb__this_thread()->late.guard);
        wb__gpu_mark_lost_because(gpu->state, "it was unplugged");
        wb_clear_error();
        int status = next == 0 ? step(&x, &out, &t) < 0 ? (int)wb_error_code() : wb_eval(out)
                   : next == 1 ? wb_call_compiled(c, 1, &x, 1, &out)
                   : next == 2 ? wb_synchronize(gpu)
                   : wb_data(wb_get(t.model, "weight")) ? 0 : (int)wb_error_code();
        if (status != WB_ERROR_DEVICE) fail_msg("%d: %d %s", next, status, wb_error());
        FAILED(WB_ERROR_DEVICE, "cuda:0", "lost", "unplugged", "restart the process");
        wb_clear_error();
        if (wb__guard_confirm()) FAILED(WB_ERROR_DEVICE, "cuda:0", "lost", "unplugged");
        wb_clear_error();
        assert_null(wb__this_thread()->late.guard);
        assert_int_equal(wb__guard_confirm(), 0);           /* it has been reported */
        assert_int_equal(t.state->counts->updates, 2);
        assert_int_equal(t.state->counts->slot[0].steps, 2);
        wb_scope_close(scope);
        wb_clear_error();
        wb_shutdown();
        assert_int_equal(tell_left(), 0);
        assert_int_equal(wb_using("CUDA"), 0);
    }
}

/* A thread ends before it has read the guard. */
TEST(nothing_is_left)
{
    wb_scope *scope = wb_scope_open();
    const wb_device *gpu = wb_device_at("CUDA", 0);
    training t = {wb_to(wb_Dense(WIDTH, WIDTH), gpu), NULL, false};
    t.state = wb_setup(wb_Descent(), t.model);
    wb_tensor *x = input(gpu, NAN), *out;
    assert_int_equal(step(&x, &out, &t), 1);
    assert_int_equal(wb_eval(out), 0);
    assert_non_null(wb__this_thread()->late.guard);
    wb_shutdown();
    assert_null(wb__this_thread()->late.guard);
    (void)scope;
    assert_int_equal(tell_left(), 0);
}

static int begin(void **state)
{
    open_double();
    setenv("VGPU_DEVICES", "2", 1);
    return wb_using("CUDA");
}

int main(void) { return run_cases(begin, NULL); }
