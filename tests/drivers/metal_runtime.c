/* The Metal backend by itself, on two devices of the test double: the order of commands, kernels
 * and their errors, archives, shared and private memory, which GPUs are used. */
#include "tests/runtime/by_hand.h"

#include "backend/backend.h"

#include "tests/doubles/metal_double.h"

/* ---- which systems and GPUs cannot be used: in child processes, so the first test ----------- */

#define STARTS(name, value, ...) CHILD(&wb__mtl_backend, name, value, __VA_ARGS__)

TEST(not_here)
{
    const char *library = "WEBER_METAL_LIBRARY";
    assert_int_equal(STARTS(library, WB_TEST_NOWHERE, "metal", WB_TEST_NOWHERE, "macOS 13"), 0);
    assert_int_equal(STARTS(library, "libm.so.6", "libm.so.6", "objc_msgSend", "macOS"), 0);
#ifndef __APPLE__
    assert_int_equal(STARTS(library, "", "metal", "macOS 13", "another system"), 0);
#endif
    assert_int_equal(STARTS("VGPU_METAL", "none", "metal", "no GPU"), 0);
    assert_int_equal(STARTS("VGPU_METAL_FAMILY", "6", "metal", "none of 2", "Metal 3"), 0);
    assert_int_equal(STARTS("WEBER_METAL_DEVICES", "2", "WEBER_METAL_DEVICES", "2"), 0);
}

TEST(starts) { assert_int_equal(test_begin(&wb__mtl_backend), 0); }

/* ---- commands -------------------------------------------------------------------------------- */

static const char *const staging[] = {NULL, "1"};

/* In whichever order the double runs the queues, commands wait for their events. */
TEST(commands_wait)
{
    static const char *const schedules[] = {"round", "latest", "lazy", "random:1"};
    for (size_t s = 0; s < 2; s++) {
        setenv("WEBER_METAL_STAGING", s ? "1" : "0", 1);
        for (size_t i = 0; i < WB__COUNT(schedules); i++) {
            WORKS(restart("VGPU_SCHEDULE", schedules[i]));
            order();
        }
    }
    unsetenv("WEBER_METAL_STAGING");
    WORKS(restart("VGPU_SCHEDULE", NULL));
}

TEST(devices) { two_devices("Metal", "metal"); }

/* Also positions and sizes that are no multiples of 4, which Metal does not copy. */
TEST(data_moves)
{
    for (size_t s = 0; s < 2; s++) {
        WORKS(restart("WEBER_METAL_STAGING", staging[s]));
        transfers();
        copies();
    }
    WORKS(restart("WEBER_METAL_STAGING", NULL));
}

TEST(copies_of_any_bytes)
{
    for (size_t s = 0; s < 2; s++) {
        WORKS(restart("WEBER_METAL_STAGING", staging[s]));
        unsigned char x[1000], y[1000];
        for (int i = 0; i < 1000; i++) x[i] = (unsigned char)(i * 7);
        void *from = take(dev[0], 1000), *to = take(dev[0], 1000);
        WORKS(b->upload(dev[0], from, 0, x, 1000));
        WORKS(b->upload(dev[0], to, 0, x, 1000));
        WORKS(b->copy(dev[0], to, 3, dev[0], from, 501, 257));
        WORKS(b->download(dev[0], y, to, 0, 1000));
        assert_memory_equal(y, x, 3);
        assert_memory_equal(y + 3, x + 501, 257);
        assert_memory_equal(y + 260, x + 260, 740);
        b->release(dev[0], from, 1000);
        b->release(dev[0], to, 1000);
    }
    WORKS(restart("WEBER_METAL_STAGING", NULL));
}

/* The host reads memory that it shares with the GPU at its own address, after the kernel that
 * writes it; private memory has no such address. */
TEST(shared_memory_is_not_copied)
{
    float x[N];
    const void *at = NULL, *again = NULL;
    fill(x, N, 1);
    setenv("VGPU_SCHEDULE", "lazy", 1);
    for (size_t s = 0; s < 2; s++) {
        WORKS(restart("WEBER_METAL_STAGING", staging[s]));
        void *from = take(dev[0], BYTES), *to = take(dev[0], BYTES);
        wb__kernel *k = prepared(dev[0], STEP_SCALE, N);
        WORKS(b->upload(dev[0], from, 0, x, BYTES));
        for (int factor = 20; factor >= 3; factor--)    /* more than the double runs when polled */
            launch(dev[0], k, from, to, NULL, 0, factor);
        const int status = b->map(dev[0], to, &at);
        assert_int_equal(status, s ? WB_ERROR_UNSUPPORTED : 0);
        assert_string_equal(wb_error(), "");
        for (int i = 0; i < N && !s; i++) assert_true(((const float *)at)[i] == 3 * x[i]);
        if (!s) {
            WORKS(b->map(dev[0], to, &again));
            assert_ptr_equal(at, again);
        }
        b->destroy(dev[0], k);
        b->release(dev[0], from, BYTES);
        b->release(dev[0], to, BYTES);
    }
    unsetenv("VGPU_SCHEDULE");
    WORKS(restart("WEBER_METAL_STAGING", NULL));
}

/* The results of a command buffer that failed are lost, and so is the device: no later read returns
 * numbers.  The call that fails is the first commit after the memory has its values. */
TEST(a_command_buffer_fails)
{
    int lost[2] = {0, 0};
    for (int n = 2; n < 20; n++) {
        char text[16], error[300];
        float x[N];
        const void *at = NULL;
        fill(x, N, 1);
        WORKS(restart("WEBER_METAL_STAGING", staging[n % 2]));
        void *from = take(dev[0], BYTES), *to = take(dev[0], BYTES);
        wb__kernel *k = prepared(dev[0], STEP_SCALE, N);
        WORKS(b->upload(dev[0], from, 0, x, BYTES));
        WORKS(b->wait(dev[0]));
        snprintf(text, sizeof text, "%d", n / 2);
        setenv("VGPU_FAIL", text, 1);
        fail_from_here();
        const wb__number three = {.f = 3};
        int status = b->launch(dev[0], k, (void *[]){from, to}, NULL, NULL, 0, &three);
        if (!status) status = b->wait(dev[0]);
        snprintf(error, sizeof error, "%s", wb_error());
        unsetenv("VGPU_FAIL");
        fail_from_here();
        wb_clear_error();
        if (status && HAS_FACTS(error, "commit")) {
            lost[n % 2]++;
            for (int turn = 0; turn < 2; turn++) {
                assert_int_equal(b->download(dev[0], x, to, 0, BYTES), WB_ERROR_DEVICE);
                assert_true(HAS_FACTS(wb_error(), "metal:0", "lost", "commit"));
                assert_int_not_equal(b->map(dev[0], to, &at), 0);
                wb_clear_error();
            }
        }
        b->destroy(dev[0], k);
        b->release(dev[0], from, BYTES);
        b->release(dev[0], to, BYTES);
    }
    assert_true(lost[0] && lost[1]);
    WORKS(restart("WEBER_METAL_STAGING", NULL));
}

/* ---- kernels --------------------------------------------------------------------------------- */

TEST(arguments_of_launches) { launches(); }

TEST(kernels_that_cannot_be)
{
    CANNOT_BE(STEP_WRONG, "newLibrary", "does not compile");
    CANNOT_BE(STEP_WRONG, "program_source", "error");   /* from the compiler's message */
    CANNOT_BE(STEP_WIDE, "scale", "16777216");
    CANNOT_BE(STEP_NAMELESS, "newFunction", "nothing");
}

TEST(programs_are_kept)
{
    vgpu_metal_books before, after;
    keep_programs("VGPU_DEVICES", "2", "2");
    /* Pipelines are compiled into an archive, and those of a program from disk come from it. */
    static const char add[] = "addComputePipelineFunctionsWithDescriptor:error:";
    test_disk_empty();
    for (int turn = 0; turn < 2; turn++) {
        const int64_t added = count_calls(add);
        read_metal_books(&before);
        b->destroy(dev[0], prepared(dev[0], STEP_SCALE, N));
        read_metal_books(&after);
        assert_int_equal(after.from_archives - before.from_archives, 1);
        assert_int_equal(after.compiled - before.compiled, 0);
        assert_int_equal(count_calls(add) - added, turn ? 0 : 1);
        WORKS(restart("VGPU_DEVICES", "2"));
    }
    test_disk_empty();
}

/* ---- which GPUs are used --------------------------------------------------------------------- */

TEST(gpus_that_are_used)
{
    WORKS(restart("VGPU_METAL", "paravirtual"));        /* the GPU of a virtual machine */
    assert_int_equal(b->count(), 2);
    WORKS(restart("VGPU_METAL", "discrete"));           /* memory of its own: staged */
    order();
    transfers();
    WORKS(restart("VGPU_METAL", NULL));
}

TEST(memory_is_exhausted)
{
    WORKS(restart("VGPU_MEMORY", "1000000"));
    EXPECT_NONE(b->allocate(dev[0], 2000000), "metal:0", "out of memory", "1.9 MiB");
    cached_sizes_go_back();
    WORKS(restart("VGPU_MEMORY", NULL));
}

TEST(nothing_is_left)
{
    test_end();
    assert_int_equal(tell_left(), 0);
}

int main(void)
{
    open_double();
    setenv("VGPU_DEVICES", "2", 1);
    return run_all_cases();
}
