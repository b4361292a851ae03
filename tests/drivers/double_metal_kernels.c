/* The test double of Metal, by itself: kernels and encoders.  Each wrong use must be found, and a
 * missing barrier must lead to wrong numbers. */
#include "double_metal_kernels.h"

/* ---- kernels --------------------------------------------------------------------------------- */

CLEAN_TEST(kernels_compute)
{
    id x = floats(), y = floats();
    float *v = contents(x);
    for (int i = 0; i < N; i++) v[i] = (float)i;
    id c = launch(kernels.add, x, y, (args){N, 0.5f}, 4, 64);
    assert_int_equal(metal_books().commands, 1);
    wait_for(c);
    assert_int_equal(metal_books().commands, 0);
    assert_int_equal(number(c, "status"), 4);
    assert_null(get(c, "error"));
    assert_true(real(c, "GPUEndTime") >= real(c, "GPUStartTime"));
    assert_true(real(c, "GPUStartTime") > 0);
    for (int i = 0; i < N; i++) assert_true(((float *)contents(y))[i] == (float)i + 0.5f);
    float *four = contents(y);
    for (int i = 0; i < 4; i++) four[i] = (float)i;
    wait_for(launch(kernels.wide, NULL, y, (args){0}, 1, 1));
    for (int i = 0; i < 4; i++) assert_true(four[i] == 3.0f * (float)(i * i));
    objc_release(x);
    objc_release(y);
}

CLEAN_TEST(items_know_their_places)
{
    id x = new_buffer(device[0], 16 * 3 * 2 * 2 * 24, 0);
    for (int backward = 0; backward < 2; backward++) {
        setenv("VGPU_ORDER", backward ? "backward" : "forward", 1);
        id c = commands(), e = compute(c);
        tell1(e, "setComputePipelineState:", kernels.places);
        bind(e, x, 0, 0);
        dispatch3(e, (size3){3, 2, 2}, (size3){4, 3, 2});
        tell(e, "endEncoding");
        tell(c, "commit");
        wait_for(c);
        const unsigned(*got)[4] = contents(x);
        for (unsigned i = 0; i < 12 * 24; i++) {
            const unsigned px = i % 12, py = i / 12 % 6, pz = i / 72;
            const unsigned group = (pz / 2 * 2 + py / 3) * 3 + px / 4;
            const unsigned item = (pz % 2 * 3 + py % 3) * 4 + px % 4;
            assert_int_equal(got[i][0], group + 1);
            assert_int_equal(got[i][1], item);
            assert_int_equal(got[i][2], item);
            assert_int_equal(got[i][3], 7);
        }
    }
    unsetenv("VGPU_ORDER");
    objc_release(x);
}

static bool turned(id pipeline)
{
    id x = floats();
    float *v = contents(x);
    bool good = true;
    for (int i = 0; i < 64; i++) v[i] = (float)i;
    wait_for(launch(pipeline, x, NULL, (args){0}, 1, 64));
    for (int i = 0; i < 64; i++) good &= v[i] == 2 * (float)(63 - i);
    objc_release(x);
    return good;
}

CLEAN_TEST(a_missing_barrier_shows)
{
    for (int backward = 0; backward < 2; backward++) {
        setenv("VGPU_ORDER", backward ? "backward" : "forward", 1);
        assert_true(turned(kernels.turn));
        assert_false(turned(kernels.turn_badly));
    }
    unsetenv("VGPU_ORDER");
}

/* The command buffer ends with an error, and later ones run. */
static void fails(id c, long why, const char *part)
{
    wait_for(c);
    assert_int_equal(number(c, "status"), 5);
    id error = get(c, "error");
    assert_string_equal(chars(get(error, "domain")), "MTLCommandBufferErrorDomain");
    assert_int_equal(code(error), why);
    expect_wrong(1, part);
    id x = floats();
    zero(x);
    assert_true(first(x) == 0);
    objc_release(x);
}

CLEAN_TEST(faults_end_their_command_buffer)
{
    enum { TIMEOUT = 2, PAGE_FAULT = 3 };
    id x = floats(), y = floats();
    fails(launch(kernels.wild, x, NULL, (args){4096, 0}, 1, 1), PAGE_FAULT, "wild: device 0 has");
    fails(launch(kernels.diverge, x, NULL, (args){0}, 1, 64), TIMEOUT, "32 wait at the barrier");
    fails(launch(kernels.two, x, NULL, (args){0}, 1, 64), TIMEOUT, "different barriers");
    id c = commands(), e = compute(c);  /* commands after the fault do not run */
    zero(y);
    encode(e, kernels.wild, x, NULL, (args){4096, 0});
    dispatch(e, 1, 1);
    encode(e, kernels.set, y, NULL, (args){N, 5});
    dispatch(e, 4, 64);
    tell(e, "endEncoding");
    tell(c, "commit");
    fails(c, PAGE_FAULT, "wild");
    assert_true(first(y) == 0);
    objc_release(x);
    objc_release(y);
}

CLEAN_TEST(memory_of_groups_has_the_length_of_the_encoder)
{
    id x = floats(), c = commands(), e = compute(c);
    tell1(e, "setComputePipelineState:", kernels.dynamic);
    bind(e, x, 0, 0);
    SEND(void, (, word, word), e, SEL("setThreadgroupMemoryLength:atIndex:"), 32, 0);
    WRONG(dispatch(e, 1, 8), "threadgroup(1)");
    WRONG(SEND(void, (, word, word), e, SEL("setThreadgroupMemoryLength:atIndex:"), 40, 1),
          "multiple of 16");
    SEND(void, (, word, word), e, SEL("setThreadgroupMemoryLength:atIndex:"), 32752, 1);
    WRONG(dispatch(e, 1, 8), "32784 bytes");
    SEND(void, (, word, word), e, SEL("setThreadgroupMemoryLength:atIndex:"), 32, 1);
    dispatch(e, 1, 8);
    tell(e, "endEncoding");
    tell(c, "commit");
    wait_for(c);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(((unsigned *)contents(x))[i], 11 * (7 - i));
    objc_release(x);
}

/* ---- encoders -------------------------------------------------------------------------------- */

CLEAN_TEST(arguments_of_kernels_are_checked)
{
    id x = floats(), far = new_buffer(device[1], BYTES, 0), c = commands(), e = compute(c);
    static char many[4100];
    const args a = {N, 1};
    WRONG(dispatch(e, 1, 1), "no pipeline");
    id error = NULL, l = new_library(device[1], source, &error);
    id other = new_pipeline(device[1], l, "add");
    WRONG(tell1(e, "setComputePipelineState:", other), "pipeline of another device");
    WRONG(tell1(e, "setComputePipelineState:", NULL), "nil in the place");
    id f = get1(l, "newFunctionWithName:", string("add"));
    WRONG(get2(device[0], "newComputePipelineStateWithFunction:error:", f, &error),
          "function of another device");
    objc_release(f);
    objc_release(other);
    objc_release(l);
    tell1(e, "setComputePipelineState:", kernels.add);
    WRONG(dispatch(e, 1, 1), "nothing is bound to buffer(0)");
    WRONG(bind(e, x, 0, 31), "index 31");
    WRONG(bind_bytes(e, &a, 8, 31), "index 31");
    WRONG(bind(e, x, BYTES, 0), "offset 1024");
    WRONG(bind(e, far, 0, 0), "buffer of another device");
    WRONG(bind(e, c, 0, 0), "VGPUCommandBuffer in the place of VGPUBuffer");
    WRONG(bind(e, (id)(void *)many, 0, 0), "is no object");
    WRONG(bind_bytes(e, many, 4097, 0), "4097 bytes");
    WRONG(bind_bytes(e, many, 0, 0), "0 bytes");
    WRONG(bind_bytes(e, NULL, 4, 0), "4 bytes");
    bind(e, x, 0, 0);
    bind(e, x, 2, 1);
    bind_bytes(e, &a, 4, 2);
    WRONG(dispatch(e, 1, 1), "offset 2 of buffer(1)");
    bind(e, x, 512, 1);
    WRONG(dispatch(e, 1, 1), "buffer(2) has 4 bytes, its type has 8");
    bind_bytes(e, &a, sizeof a, 2);
    bind(e, NULL, 0, 0);
    WRONG(dispatch(e, 1, 1), "nothing is bound to buffer(0)");
    bind(e, x, 0, 0);
    WRONG(dispatch(e, 0, 64), "a size is 0");
    WRONG(dispatch(e, 1, 0), "a size is 0");
    WRONG(dispatch(e, 1, 1025), "1025 x 1 x 1 items");
    WRONG(dispatch3(e, (size3){1, 1, 1}, (size3){32, 32, 2}), "the pipeline's most is 1024");
    WRONG(dispatch(e, 1ul << 32, 1), "more than 2^32 groups");
    setenv("VGPU_METAL_ITEMS", "64", 1);
    id small = new_pipeline(device[0], library, "add");
    unsetenv("VGPU_METAL_ITEMS");
    tell1(e, "setComputePipelineState:", small);
    WRONG(dispatch(e, 1, 65), "the pipeline's most is 64");
    objc_release(small);
    WRONG(set2(e, "useResource:usage:", x, 0), "usage 0");
    WRONG(set2(e, "useResource:usage:", far, 1), "another device");
    set2(e, "useResource:usage:", x, 3);
    WRONG(set(e, "memoryBarrierWithScope:", 0), "scope 0");
    tell1(e, "setLabel:", string("name"));
    WRONG(tell1(e, "setLabel:", x), "in the place of NSString");
    tell(e, "endEncoding");
    assert_int_equal(metal_books().commands, 0);
    objc_release(x);
    objc_release(far);
}

CLEAN_TEST(groups_of_whole_waves_are_as_promised)
{
    id x = floats(), error = NULL, with = new_object("MTLComputePipelineDescriptor");
    id f = get1(library, "newFunctionWithName:", string("set")), c = commands(), e = compute(c);
    tell1(with, "setComputeFunction:", f);
    SEND(void, (, bool), with, SEL("setThreadGroupSizeIsMultipleOfThreadExecutionWidth:"), true);
    set(with, "setMaxTotalThreadsPerThreadgroup:", 128);
    WRONG(set(with, "setMaxTotalThreadsPerThreadgroup:", 1025), "1025 items");
    id p = SEND(id, (, id, word, id *, id *), device[0],
                SEL("newComputePipelineStateWithDescriptor:options:reflection:error:"), with, 0,
                NULL, &error);
    encode(e, p, x, NULL, (args){N, 1});
    dispatch(e, 4, 64);
    WRONG(dispatch(e, 4, 63), "63 items");
    WRONG(dispatch(e, 4, 160), "the pipeline's most is 128");
    tell(e, "endEncoding");
    objc_release(p);
    objc_release(f);
    objc_release(with);
    objc_release(x);
}

CLEAN_TEST(bytes_are_copied_and_buffers_kept)
{
    id x = floats(), y = floats(), c = commands(), e = compute(c);
    args a = {N, 3};
    encode(e, kernels.set, x, NULL, a);
    bind_bytes(e, &a, sizeof a, 2);
    a.a = 4;
    dispatch(e, 4, 64);
    encode(e, kernels.add, x, y, (args){N, 1});
    dispatch(e, 4, 64);
    tell(e, "endEncoding");
    objc_release(x);                    /* the command buffer keeps it */
    assert_int_equal(metal_books().buffers, 2);
    tell(c, "commit");
    wait_for(c);
    assert_int_equal(metal_books().buffers, 1);
    assert_true(first(y) == 4);
    objc_release(y);
}

CLEAN_TEST(copies_are_checked)
{
    id x = floats(), y = floats(), far = new_buffer(device[1], BYTES, 0), c = commands();
    id e = get(c, "blitCommandEncoder");
    for (int i = 0; i < N; i++) ((float *)contents(x))[i] = (float)i;
    fill(e, y, 0, BYTES, 0);
    copy(e, x, 40, y, 4, 8);
    copy(e, x, 0, x, 512, 512);
    WRONG(copy(e, x, 0, x, 4, 8), "overlap");
    WRONG(copy(e, x, 2, y, 4, 8), "multiples of 4");
    WRONG(copy(e, x, 0, y, 4, 6), "multiples of 4");
    WRONG(copy(e, x, 0, y, BYTES - 4, 8), "8 bytes at 1020");
    WRONG(copy(e, x, BYTES + 4, y, 0, 4), "4 bytes at 1028");
    WRONG(copy(e, x, 0, y, 0, 0), "0 bytes");
    WRONG(copy(e, far, 0, y, 0, 4), "another device");
    WRONG(copy(e, x, 0, e, 0, 4), "in the place of VGPUBuffer");
    WRONG(fill(e, y, 1, 4, 0), "multiples of 4");
    WRONG(fill(e, y, 0, BYTES + 4, 0), "1028 bytes");
    WRONG(tell1(e, "synchronizeResource:", x), "not managed");
    fill(e, y, 16, 4, 0x3f);
    tell(e, "endEncoding");
    WRONG(fill(e, y, 0, 4, 0), "encoder has ended");
    tell(c, "commit");
    wait_for(c);
    const float *v = contents(y);
    assert_true(v[0] == 0 && v[1] == 10 && v[2] == 11 && v[3] == 0);
    assert_int_equal(((unsigned *)contents(y))[4], 0x3f3f3f3f);
    assert_true(((float *)contents(x))[130] == 2);
    objc_release(x);
    objc_release(y);
    objc_release(far);
}

CLEAN_TEST(concurrent_launches_need_barriers)
{
    for (int has = 0; has < 2; has++) {
        id x = floats(), y = floats(), c = commands();
        id e = SEND(id, (, word), c, SEL("computeCommandEncoderWithDispatchType:"), 1);
        zero(x);
        encode(e, kernels.set, x, NULL, (args){N, 1});
        dispatch(e, 4, 64);
        if (has) set(e, "memoryBarrierWithScope:", 1);
        encode(e, kernels.add, x, y, (args){N, 1});
        dispatch(e, 4, 64);
        tell(e, "endEncoding");
        tell(c, "commit");
        wait_for(c);
        assert_true(first(y) == (has ? 2 : 1));
        objc_release(x);
        objc_release(y);
    }
    id c = commands();
    WRONG(SEND(id, (, word), c, SEL("computeCommandEncoderWithDispatchType:"), 2), "Type: 2");
}

int main(void) { return run_cases(begin, end); }
