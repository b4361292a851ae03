/* Every call of CUDA's driver and of NVRTC fails once: see text_faults.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEST_CUDA
#include "text_faults.h"

#include "cuda_double.h"

static void test_once_from_text(void **state)
{
    (void)state;
    fail_each(false, true, 100);
}

static void test_once_from_disk(void **state)
{
    (void)state;
    without_graph = 0;
    fail_each(false, false, 100);
    assert_true(without_graph > 4);     /* what cannot be recorded was launched one by one */
}

static void test_from_there_on(void **state)
{
    (void)state;
    fail_each(true, false, 100);
}

/* What the double counts is all given back. */
static int end(void **state)
{
    (void)state;
    test_disk_empty();
    const vgpu_books left = books();
    if (left.contexts + left.streams + left.events + left.modules + left.pools + left.graphs +
            left.execs + left.blocks + left.host_blocks == 0)
        return 0;
    print_error("left: %lld contexts, %lld streams, %lld events, %lld modules, %lld pools, %lld"
                " graphs, %lld of them to run, %lld and %lld blocks\n", (long long)left.contexts,
                (long long)left.streams, (long long)left.events, (long long)left.modules,
                (long long)left.pools, (long long)left.graphs, (long long)left.execs,
                (long long)left.blocks, (long long)left.host_blocks);
    return 1;
}

static int begin(void **state)
{
    (void)state;
    wb_set_log(listen, NULL);
    b = test_open_backend();
    return b ? 0 : 1;
}

int main(void)
{
    open_double();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once_from_text),
        cmocka_unit_test(test_once_from_disk),
        cmocka_unit_test(test_from_there_on),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
