/* The part of cmocka that the tests use, for machines without cmocka: the same names, lines of
 * output and exit statuses.  tests/CMakeLists.txt uses it where cmocka is not found, and prints
 * that.  A test that crashes ends its program. */
#ifndef MINIMAL_CMOCKA_H
#define MINIMAL_CMOCKA_H

#include <stddef.h>
#include <stdint.h>

typedef void (*CMUnitTestFunction)(void **state);
typedef int (*CMFixtureFunction)(void **state);
struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func, teardown_func;
    void *initial_state;
};
#define cmocka_unit_test(f) {#f, f, NULL, NULL, NULL}
#define cmocka_unit_test_setup(f, setup) {#f, f, setup, NULL, NULL}
#define cmocka_unit_test_teardown(f, teardown) {#f, f, NULL, teardown, NULL}
#define cmocka_unit_test_setup_teardown(f, setup, teardown) {#f, f, setup, teardown, NULL}
#define cmocka_unit_test_prestate(f, state) {#f, f, NULL, NULL, state}

#define cmocka_run_group_tests(tests, setup, teardown)                                         \
    cmocka_run_group_tests_name(#tests, tests, setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                              \
    minimal_run(name, tests, sizeof(tests) / sizeof(tests)[0], setup, teardown)
#define _cmocka_run_group_tests minimal_run
int minimal_run(const char *name, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                CMFixtureFunction teardown);

void print_message(const char *format, ...) __attribute__((format(printf, 1, 2)));
void print_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A check that fails ends the running test. */
_Noreturn void minimal_fail(const char *file, int line);
_Noreturn void minimal_skip(const char *file, int line);
void minimal_true(int holds, const char *text, const char *file, int line);
void minimal_integers(uintmax_t a, uintmax_t b, int equal, const char *file, int line);
void minimal_range(uintmax_t value, uintmax_t least, uintmax_t most, const char *file, int line);
void minimal_floats(double a, double b, double most, const char *file, int line);
void minimal_strings(const char *a, const char *b, int equal, const char *file, int line);
void minimal_memories(const void *a, const void *b, size_t n, int equal, const char *file,
                      int line);

#define fail() minimal_fail(__FILE__, __LINE__)
#define fail_msg(...)                                                                          \
    do {                                                                                       \
        print_error("ERROR: " __VA_ARGS__);                                                    \
        print_error("\n");                                                                     \
        fail();                                                                                \
    } while (0)
#define skip() minimal_skip(__FILE__, __LINE__)
#define MINIMAL_POINTER(p) ((uintmax_t)(uintptr_t)(p))
#define assert_true(c) minimal_true(!!(c), #c, __FILE__, __LINE__)
#define assert_false(c) minimal_true(!(c), "!(" #c ")", __FILE__, __LINE__)
#define assert_non_null(p) minimal_true(MINIMAL_POINTER(p) != 0, #p, __FILE__, __LINE__)
#define assert_null(p) minimal_true(MINIMAL_POINTER(p) == 0, "!(" #p ")", __FILE__, __LINE__)
#define assert_int_equal(a, b)                                                                 \
    minimal_integers((uintmax_t)(a), (uintmax_t)(b), 1, __FILE__, __LINE__)
#define assert_int_not_equal(a, b)                                                             \
    minimal_integers((uintmax_t)(a), (uintmax_t)(b), 0, __FILE__, __LINE__)
#define assert_ptr_equal(a, b)                                                                 \
    minimal_integers(MINIMAL_POINTER(a), MINIMAL_POINTER(b), 1, __FILE__, __LINE__)
#define assert_ptr_not_equal(a, b)                                                             \
    minimal_integers(MINIMAL_POINTER(a), MINIMAL_POINTER(b), 0, __FILE__, __LINE__)
#define assert_in_range(v, least, most)                                                        \
    minimal_range((uintmax_t)(v), (uintmax_t)(least), (uintmax_t)(most), __FILE__, __LINE__)
#define assert_float_equal(a, b, most) minimal_floats((a), (b), (most), __FILE__, __LINE__)
#define assert_string_equal(a, b) minimal_strings((a), (b), 1, __FILE__, __LINE__)
#define assert_string_not_equal(a, b) minimal_strings((a), (b), 0, __FILE__, __LINE__)
#define assert_memory_equal(a, b, n) minimal_memories((a), (b), (n), 1, __FILE__, __LINE__)
#define assert_memory_not_equal(a, b, n) minimal_memories((a), (b), (n), 0, __FILE__, __LINE__)

#endif
