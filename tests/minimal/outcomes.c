/* Tests whose names describe how they end, for cmocka and for minimal/cmocka.c (check.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>

static int torn_down;

static int begin(void **state)
{
    static int value = 7;
    *state = &value;
    return 0;
}

static int refuse(void **state)
{
    (void)state;
    return -1;
}

static int count_end(void **state)
{
    (void)state;
    torn_down++;
    return 0;
}

#define TEST(name, ...) static void name(void **state) { (void)state; __VA_ARGS__; }
static const int two[] = {1, 2}, other[] = {1, 3};
TEST(passes_state, assert_int_equal(*(int *)*state, 7))
TEST(passes_prestate, assert_ptr_equal(*state, two))
TEST(passes_state_before_prestate, assert_int_equal(*(int *)*state, 7))
TEST(fails_prestate, assert_ptr_equal(*state, other))
TEST(passes_all, assert_true(1); assert_false(0); assert_null(NULL); assert_non_null(two);
     assert_int_equal(-1, -1); assert_int_not_equal(1, 2); assert_ptr_equal(two, two);
     assert_ptr_not_equal(two, other); assert_in_range(2, 2, 3); assert_float_equal(1, 1.05f, 0.1f);
     assert_string_equal("a", "a"); assert_string_not_equal("a", "b");
     assert_memory_equal(two, two, sizeof two); assert_memory_not_equal(two, other, sizeof two);
     print_message("%d\n", 1))
TEST(passes_torn_down, assert_int_equal(torn_down, 3))
TEST(fails_true, assert_true(0))
TEST(fails_false, assert_false(1))
TEST(fails_null, assert_null(two))
TEST(fails_non_null, assert_non_null(NULL))
TEST(fails_int, assert_int_equal(1, 2))
TEST(fails_int_not, assert_int_not_equal(1, 1))
TEST(fails_wide, assert_int_equal(INT64_C(1) << 40, 0))
TEST(fails_ptr, assert_ptr_equal(two, other))
TEST(fails_ptr_not, assert_ptr_not_equal(two, two))
TEST(fails_below, assert_in_range(1, 2, 3))
TEST(fails_above, assert_in_range(4, 2, 3))
TEST(fails_float, assert_float_equal(1, 1.2f, 0.1f))
TEST(fails_string, assert_string_equal("a", "b"))
TEST(fails_string_not, assert_string_not_equal("a", "a"))
TEST(fails_memory, assert_memory_equal(two, other, sizeof two))
TEST(fails_memory_not, assert_memory_not_equal(two, two, sizeof two))
TEST(fails_by_itself, fail())
TEST(fails_with_words, fail_msg("%d of %s", 1, "them"))
TEST(fails_before_it_begins, (void)0)
TEST(fails_once_it_is_over, (void)0)
TEST(skipped_by_itself, print_message("SKIP: no reason\n"); skip())

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_state),
        cmocka_unit_test(passes_all),
        cmocka_unit_test(fails_true),
        cmocka_unit_test(fails_false),
        cmocka_unit_test(fails_null),
        cmocka_unit_test(fails_non_null),
        cmocka_unit_test(fails_int),
        cmocka_unit_test(fails_int_not),
        cmocka_unit_test(fails_wide),
        cmocka_unit_test(fails_ptr),
        cmocka_unit_test(fails_ptr_not),
        cmocka_unit_test(fails_below),
        cmocka_unit_test(fails_above),
        cmocka_unit_test(fails_float),
        cmocka_unit_test(fails_string),
        cmocka_unit_test(fails_string_not),
        cmocka_unit_test(fails_memory),
        cmocka_unit_test(fails_memory_not),
        cmocka_unit_test(fails_by_itself),
        cmocka_unit_test(fails_with_words),
        cmocka_unit_test_setup(fails_before_it_begins, refuse),
        cmocka_unit_test_teardown(fails_once_it_is_over, refuse),
        cmocka_unit_test(skipped_by_itself),
        cmocka_unit_test_teardown(passes_all, count_end),
        cmocka_unit_test_teardown(fails_int, count_end),
        cmocka_unit_test_setup_teardown(passes_state, begin, count_end),
        cmocka_unit_test(passes_torn_down),
        cmocka_unit_test_prestate(passes_state_before_prestate, (void *)two),
    };
    const struct CMUnitTest without_begin[] = {
        cmocka_unit_test_prestate(passes_prestate, (void *)two),
        cmocka_unit_test_prestate(fails_prestate, (void *)two),
    };
    return cmocka_run_group_tests(tests, begin, NULL) +
           cmocka_run_group_tests(without_begin, NULL, NULL);
}
