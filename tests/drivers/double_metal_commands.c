/* The test double of Metal, by itself: command buffers, queues and events.  Each wrong use must be
 * found, and a missing wait or event must lead to wrong numbers. */
#include "double_metal_kernels.h"

static void signal_event(id c, id e, word v) { set2(c, "encodeSignalEvent:value:", e, v); }
static void wait_event(id c, id e, word v) { set2(c, "encodeWaitForEvent:value:", e, v); }

/* ---- command buffers ------------------------------------------------------------------------- */

CLEAN_TEST(command_buffers_are_used_in_order)
{
    id event = get(device[0], "newEvent"), c = commands(), x = floats();
    WRONG(wait_for(c), "not committed");
    WRONG(tell(c, "waitUntilScheduled"), "not committed");
    WRONG(real(c, "GPUStartTime"), "not completed");
    assert_int_equal(number(c, "status"), 0);
    id e = compute(c);
    WRONG(assert_null(compute(c)), "the encoder before has not ended");
    WRONG(assert_null(get(c, "blitCommandEncoder")), "has not ended");
    WRONG(signal_event(c, event, 1), "has not ended");
    WRONG(wait_event(c, event, 1), "has not ended");
    WRONG(tell(c, "commit"), "has not ended");
    tell(e, "endEncoding");
    WRONG(tell(e, "endEncoding"), "encoder has ended");
    WRONG(bind(e, x, 0, 0), "encoder has ended");
    WRONG(bind_bytes(e, "a", 1, 0), "encoder has ended");
    WRONG(tell1(e, "setComputePipelineState:", kernels.set), "encoder has ended");
    WRONG(dispatch(e, 1, 1), "encoder has ended");
    tell(c, "enqueue");
    WRONG(tell(c, "enqueue"), "enqueued already");
    assert_int_equal(number(c, "status"), 1);
    tell(c, "commit");
    WRONG(tell(c, "commit"), "committed already");
    WRONG(assert_null(compute(c)), "committed already");
    WRONG(signal_event(c, event, 1), "committed already");
    WRONG(tell(c, "enqueue"), "enqueued already");
    tell(c, "waitUntilScheduled");
    for (int i = 0; i < 9 && number(c, "status") < 4; i++) { }
    assert_int_equal(number(c, "status"), 4);
    wait_for(c);
    assert_ptr_equal(get(c, "commandQueue"), queue);
    assert_ptr_equal(get(queue, "device"), device[0]);
    assert_ptr_equal(get(event, "device"), device[0]);
    assert_ptr_equal(get(x, "device"), device[0]);
    objc_release(event);
    objc_release(x);
}

TEST(encoders_must_end_before_they_are_released)
{
    void *pool = objc_autoreleasePoolPush();
    compute(commands());
    WRONG(objc_autoreleasePoolPop(pool), "released before endEncoding");
    nothing_left();
}

/* Nothing runs before a call waits, and then at least what it waits for. */
CLEAN_TEST(a_missing_wait_shows)
{
    id x = floats();
    zero(x);
    id c = launch(kernels.set, x, NULL, (args){N, 1}, 4, 64);
    assert_true(first(x) == 0);
    id later = launch(kernels.add, x, x, (args){N, 1}, 4, 64);
    wait_for(later);
    assert_true(first(x) == 2);
    assert_int_equal(number(c, "status"), 4);
    c = launch(kernels.set, x, NULL, (args){N, 1}, 4, 64);
    for (int i = 0; i < 9 && number(c, "status") < 4; i++) { }       /* polling helps too */
    assert_true(first(x) == 1);
    objc_release(x);
}

CLEAN_TEST(command_buffers_run_in_the_order_of_enqueue)
{
    id x = floats(), early = commands(), e = compute(early);
    tell(early, "enqueue");
    id late = launch(kernels.set, x, NULL, (args){N, 2}, 4, 64);
    encode(e, kernels.set, x, NULL, (args){N, 1});
    dispatch(e, 4, 64);
    tell(e, "endEncoding");
    WRONG(wait_for(late), "enqueued, but not committed");
    assert_int_equal(number(late, "status"), 5);
    late = launch(kernels.set, x, NULL, (args){N, 2}, 4, 64);
    tell(early, "commit");
    wait_for(late);
    assert_true(first(x) == 2);
    objc_release(x);
}

CLEAN_TEST(queues_hold_a_number_of_command_buffers)
{
    id q = SEND(id, (, word), device[0], SEL("newCommandQueueWithMaxCommandBufferCount:"), 3);
    id x = floats();
    zero(x);
    tell1(q, "setLabel:", string("queue"));
    for (int i = 0; i < 5; i++) {
        void *pool = objc_autoreleasePoolPush();
        launch_on(q, kernels.add, x, x, (args){N, 1}, 4, 64);
        objc_autoreleasePoolPop(pool);
    }
    assert_true(first(x) == 2);         /* the fourth and the fifth waited */
    wait_for(launch_on(q, kernels.add, x, x, (args){N, 1}, 4, 64));
    assert_true(first(x) == 6);
    void *pool = objc_autoreleasePoolPush();
    for (int i = 0; i < 3; i++) assert_non_null(get(q, "commandBuffer"));
    WRONG(assert_null(get(q, "commandBuffer")), "3 command buffers are not committed");
    objc_autoreleasePoolPop(pool);
    assert_non_null(get(q, "commandBuffer"));
    objc_release(q);
    WRONG(SEND(id, (, word), device[0], SEL("newCommandQueueWithMaxCommandBufferCount:"), 0),
          "Count: 0");
    objc_release(x);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Commands on one queue, and on another queue one that needs their result; `waits`: for an event,
 * even if that command buffer is committed first. */
static float chained(bool waits, bool first_in)
{
    id a = get(device[0], "newCommandQueue"), b = get(device[0], "newCommandQueue");
    id event = get(device[0], "newEvent"), x = floats(), y = floats(), last = NULL;
    for (int part = 0; part < 2; part++) {
        if ((part == 1) == first_in) {
            launch_on(a, kernels.set, x, NULL, (args){N, 0}, 4, 64);
            for (int i = 0; i < 8; i++) launch_on(a, kernels.add, x, x, (args){N, 1}, 4, 64);
            id c = get(a, "commandBuffer");
            signal_event(c, event, 5);
            tell(c, "commit");
        } else {
            last = get(b, "commandBuffer");
            if (waits) wait_event(last, event, 4);
            id e = compute(last);
            encode(e, kernels.add, x, y, (args){N, 100});
            dispatch(e, 4, 64);
            tell(e, "endEncoding");
            tell(last, "commit");
        }
    }
    wait_for(last);
    const float v = first(y);
    id rest = launch_on(a, kernels.set, x, NULL, (args){N, 0}, 4, 64);
    wait_for(rest);
    objc_release(a);
    objc_release(b);
    objc_release(event);
    objc_release(x);
    objc_release(y);
    return v;
}

CLEAN_TEST(a_missing_event_shows)
{
    static const char *const schedules[] = {"round", "latest", "lazy", "random:1", "random:2"};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        setenv("VGPU_SCHEDULE", schedules[i], 1);
        assert_true(chained(true, false) == 108);
        assert_true(chained(true, true) == 108);
        assert_false(chained(false, false) == 108);
    }
    unsetenv("VGPU_SCHEDULE");
}

CLEAN_TEST(deadlocks_end)
{
    static const char *const schedules[] = {"round", "lazy"};
    for (int i = 0; i < 2; i++) {
        setenv("VGPU_SCHEDULE", schedules[i], 1);
        id event = get(device[0], "newEvent"), c = commands();
        wait_event(c, event, 3);
        tell(c, "commit");
        WRONG(wait_for(c), "waits for value 3 of an event, which is 0");
        assert_int_equal(number(c, "status"), 5);
        assert_int_equal(code(get(c, "error")), 2);
        id other = get(device[0], "newCommandQueue"), e = get(device[0], "newEvent");
        id d = get(other, "commandBuffer");     /* each waits for the other */
        c = commands();
        wait_event(c, event, 1);
        signal_event(c, e, 1);
        wait_event(d, e, 1);
        signal_event(d, event, 1);
        tell(c, "commit");
        tell(d, "commit");
        WRONG(wait_for(d), "deadlock");
        wait_for(c);
        objc_release(other);
        objc_release(e);
        objc_release(event);
    }
    unsetenv("VGPU_SCHEDULE");
}

CLEAN_TEST(events_belong_to_devices)
{
    id event = get(device[1], "newEvent"), shared = get(device[1], "newSharedEvent");
    id c = commands(), far = get(device[1], "newCommandQueue"), d = get(far, "commandBuffer");
    WRONG(wait_event(c, event, 1), "another device");
    WRONG(signal_event(c, c, 1), "in the place of VGPUEvent");
    WRONG(signal_event(c, NULL, 1), "nil");
    wait_event(c, shared, 2);
    tell(c, "commit");
    signal_event(d, shared, 2);
    tell(d, "commit");
    wait_for(c);
    assert_int_equal(number(shared, "signaledValue"), 2);
    WRONG(set(shared, "setSignaledValue:", 2), "it is 2 already");
    c = commands();
    wait_event(c, shared, 7);
    tell(c, "commit");
    set(shared, "setSignaledValue:", 9);
    wait_for(c);
    assert_int_equal(number(c, "status"), 4);
    c = get(far, "commandBuffer");
    signal_event(c, shared, 10);
    tell(c, "commit");
    for (int i = 0; i < 9 && number(shared, "signaledValue") < 10; i++) { }
    assert_int_equal(number(shared, "signaledValue"), 10);
    wait_for(d);
    objc_release(far);
    objc_release(event);
    WRONG(signal_event(commands(), event, 1), "released already");
    objc_release(shared);
}

CLEAN_TEST(commands_fail_on_demand)
{
    static const char *const names[] = {"commandBuffer", "computeCommandEncoder",
                                        "blitCommandEncoder", "commit"};
    for (int i = 0; i < 4; i++) {
        char which[20], told[200];
        id x = floats();
        zero(x);
        snprintf(which, sizeof which, "%d", i + 1);
        setenv("VGPU_FAIL", which, 1);
        objc_release(MTLCopyAllDevices());      /* counts from here */
        id c = commands(), e = compute(c);
        if (e) {
            encode(e, kernels.set, x, NULL, (args){N, 1});
            dispatch(e, 4, 64);
            tell(e, "endEncoding");
        }
        id blit = get(c, "blitCommandEncoder");
        tell(blit, "endEncoding");
        tell(c, "commit");
        wait_for(c);
        assert_int_equal(number(c, "status"), i == 0 ? 0 : i == 3 ? 5 : 4);
        assert_true(first(x) == (i == 2));
        if (i == 3) assert_int_equal(code(get(c, "error")), 8);
        assert_int_equal(vgpu_failed(told), 1);
        assert_non_null(strstr(told, names[i]));
        unsetenv("VGPU_FAIL");
        objc_release(MTLCopyAllDevices());
        objc_release(x);
    }
}

int main(void) { return run_cases(begin, end); }
