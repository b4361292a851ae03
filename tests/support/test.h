/* The first header of every test file.  `TEST(name) { ... }` is a test; run_cases runs all of them
 * in their order in the file.  TEST_IN_SCOPE is a test in a scope of its own, which must close
 * without an error. */
#ifndef TEST_H
#define TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Callbacks and fixtures rarely use all that they are given. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define TEST(name) TEST_AT(name, __COUNTER__, false)
#define TEST_IN_SCOPE(name) TEST_AT(name, __COUNTER__, true)
#define TEST_AT(name, at, scoped)                                                                  \
    static void name(void);                                                                        \
    __attribute__((constructor)) static void name##_is_a_test(void)                                \
    {                                                                                              \
        add_test(#name, name, at, scoped);                                                         \
    }                                                                                              \
    static void name(void)
void add_test(const char *name, void (*run)(void), int at, bool scoped);

/* Runs all tests, then wb_shutdown, and returns the exit status.  The fixtures may be NULL; those of
 * run_cases_each are for each test. */
int run_cases(CMFixtureFunction setup, CMFixtureFunction teardown);
int run_cases_each(CMFixtureFunction setup, CMFixtureFunction teardown);
static inline int run_all_cases(void) { return run_cases(NULL, NULL); }

/* Where it is set, only tests with it in their names are run. */
extern const char *cases_named;

/* Called after each test: NULL, or ref_forget (reference.h). */
extern void (*after_each_test)(void);

/* ---- errors ---------------------------------------------------------------------------------- */

/* True where the last message has the part, which is printed otherwise. */
bool says(const char *part);

/* The last message as it would be on the CPU: without the device behind each tensor, where the
 * tests run on another device (support/on_device.c). */
const char *plain_error(void);

/* `call` is NULL, 0 or false, and the message is this one. */
#define REFUSED(call, message)                                                                     \
    do {                                                                                           \
        wb_clear_error();                                                                          \
        assert_false(call);                                                                        \
        assert_string_equal(plain_error(), message);                                               \
    } while (0)

/* `call` is 0, or an object. */
#define WORKS(call)                                                                                \
    do {                                                                                           \
        if (call) fail_msg("%s: %s", #call, wb_error());                                           \
    } while (0)
#define MADE(call)                                                                                 \
    do {                                                                                           \
        if (!(call)) fail_msg("%s: %s", #call, wb_error());                                        \
    } while (0)

#endif
