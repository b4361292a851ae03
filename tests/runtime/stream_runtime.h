/* Tests of a driver with streams (gpu/runtime/stream_api.h) by itself, on two devices of the test
 * double: the order of commands, kernels and their errors, the cache of programs, the device that
 * is current for the caller.  Included by a program of each such backend, which defines
 *   COMPILE     the compiler's function that compiles, for messages
 *   NO_KERNEL   the facts of the message about a kernel that a program lacks */
#include "tests/runtime/by_hand.h"

#include "backend/backend.h"

#include "tests/doubles/cuda_double.h"

/* In whichever order the double runs the streams, commands wait for their events. */
TEST(commands_wait)
{
    static const char *const schedules[] = {"round", "latest", "lazy", "random:1", "random:2"};
    for (size_t i = 0; i < WB__COUNT(schedules); i++) {
        WORKS(restart("VGPU_SCHEDULE", schedules[i]));
        order();
    }
    WORKS(restart("VGPU_SCHEDULE", NULL));
}

TEST(arguments_of_launches) { launches(); }

TEST(kernels_with_double) { f64_kernels(); }

TEST(kernels_that_cannot_be)
{
    CANNOT_BE(STEP_WRONG, COMPILE);
    CANNOT_BE(STEP_WRONG, "error");            /* from the compiler's message */
    CANNOT_BE(STEP_WIDE, "scale", "16777216");
    CANNOT_BE(STEP_NAMELESS, NO_KERNEL);
    forget_calls();                             /* the double counts the missing name as an error */
}

/* A text is compiled once per device; the next process finds the image; a text whose image the
 * driver rejects is compiled again. */
TEST(programs_are_kept)
{
    keep_programs("VGPU_DEVICES", "2", "2");
    forget_calls();                             /* the double counts the damaged image */
}

/* Calls that make each of the two devices current. */
static void use_both(void)
{
    float x[N], y[N];
    fill(x, N, 1);
    void *from = take(dev[0], BYTES), *to = take(dev[0], BYTES), *other = take(dev[1], BYTES);
    WORKS(b->upload(dev[0], from, 0, x, BYTES));
    wb__kernel *k = prepared(dev[0], STEP_SCALE, N);
    launch(dev[0], k, from, to, NULL, 0, 2);
    WORKS(b->copy(dev[1], other, 0, dev[0], to, 0, BYTES));
    WORKS(b->download(dev[1], y, other, 0, BYTES));
    assert_true(y[5] == 2 * x[5]);
    memory_of(dev[0]);
    b->destroy(dev[0], k);
    b->release(dev[0], from, BYTES);
    b->release(dev[0], to, BYTES);
    b->release(dev[1], other, BYTES);
    b->trim(dev[0]);
}

/* Begins the tests with two devices; the last test follows. */
static int begin_two(const wb__backend *backend)
{
    open_double();
    setenv("VGPU_DEVICES", "2", 1);
    return test_begin(backend);
}

static void end_empty(void)
{
    test_end();
    assert_int_equal(tell_left(), 0);
}
