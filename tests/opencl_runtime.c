/* The OpenCL backend by itself, on two devices of PoCL's: memory, copies, kernels, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "opencl_device.h"

static const wb__backend *b;
static const wb_device *dev[2];

enum { N = 1000 };

static wb__kernel *prepared(const wb_device *d, test_step which, int64_t n)
{
    wb__kernel *k = NULL;
    const wb__step step = test_step_of(which, n);
    assert_int_equal(b->prepare(d, &step, &k), 0);
    assert_non_null(k);
    return k;
}

static void test_launches(void **state)
{
    (void)state;
    float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = (float)i;
    for (int i = 0; i < 2; i++) {
        const wb_device *d = dev[i];
        void *from = b->allocate(d, sizeof x), *to = b->allocate(d, sizeof x);
        assert_non_null(from);
        assert_non_null(to);
        assert_int_equal(b->upload(d, from, 0, x, sizeof x), 0);
        wb__kernel *k = prepared(d, STEP_SCALE, N);
        for (int turn = 1; turn < 40; turn++) {
            const wb__number factor = {.f = turn};
            void *buffers[] = {from, to};
            assert_int_equal(b->launch(d, k, buffers, NULL, 0, &factor), 0);
        }
        assert_int_equal(b->download(d, y, to, 0, sizeof y), 0);
        for (int n = 0; n < N; n++) assert_true(y[n] == 39.0f * x[n]);
        b->destroy(d, k);
        b->release(d, from, sizeof x);
        b->release(d, to, sizeof x);
    }
}

static int begin(void **state)
{
    (void)state;
    b = test_open_backend();
    if (!b || b->start()) {
        fprintf(stderr, "%s\n", wb_error());
        return 1;
    }
    for (int i = 0; i < 2; i++) dev[i] = b->device(i);
    return b->count() == 2 ? 0 : 1;
}

static int end(void **state)
{
    (void)state;
    b->stop();
    return 0;
}

int main(void)
{
    setenv("POCL_DEVICES", "pthread pthread", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launches),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
