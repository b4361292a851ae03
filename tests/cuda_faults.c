/* Every call of CUDA's driver and of NVRTC fails once: see text_faults.h. */
#include "test.h"

#define TEST_CUDA
#include "cuda_double.h"
#include "text_faults.h"

static void test_once_from_text(void **state)
{
    fail_each(false, true, 100);
}

static void test_once_from_disk(void **state)
{
    without_graph = 0;
    fail_each(false, false, 100);
    assert_true(without_graph > 4);     /* what cannot be recorded was launched one by one */
}

static void test_from_there_on(void **state)
{
    fail_each(true, false, 100);
    test_disk_empty();
}

static int begin(void **state)
{
    wb_set_log(listen, NULL);
    b = &TEST_BACKEND;
    return 0;
}

int main(void)
{
    open_double();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once_from_text),
        cmocka_unit_test(test_once_from_disk),
        cmocka_unit_test(test_from_there_on),
        cmocka_unit_test(test_books),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
