/* The first header of every test file.  `TEST(name) { ... }` is a test; run_cases runs all of them
 * in their order in the file, and main does in a program without a main (main.c).  TEST_IN_SCOPE is
 * a test in a scope of its own, which must close without an error. */
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

/* Callbacks and fixtures rarely use all their parameters. */
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

/* A block in a scope of its own, which must close without an error: IN_SCOPE { ... }, also as the
 * body of a loop.  `continue` leaves the block; `break`, `return` and `goto` would leave the scope
 * open.  What a loader's functions use is declared before the block: its variables end first. */
#define IN_SCOPE IN_SCOPE_AT(__COUNTER__)
#define IN_SCOPE_AT(n) IN_SCOPE_NAMED(n)
#define IN_SCOPE_NAMED(n)                                                                          \
    for (struct wb_scope *scope_##n = open_scope(); scope_##n; scope_##n = close_scope(scope_##n))
struct wb_scope *open_scope(void);
struct wb_scope *close_scope(struct wb_scope *scope);      /* returns NULL */

/* Runs all tests, then wb_shutdown, and returns the exit status.  The fixtures may be NULL.
 * run_cases calls them once, run_cases_each for each test. */
int run_cases(CMFixtureFunction setup, CMFixtureFunction teardown);
int run_cases_each(CMFixtureFunction setup, CMFixtureFunction teardown);
/* The path of a file of this process, /tmp/weber-123-NAME.  run_cases removes the file at its end,
 * also if a test has failed. */
const char *test_file(const char *name);
static inline int run_all_cases(void) { return run_cases(NULL, NULL); }

/* The environment variable WEBER_TEST_FEWER=N, or 1; also 1 if WEBER_TEST_ALL is set.  Tests run
 * about one in N of the shapes, dtypes and rounds that compile new kernels, but every operation:
 * where another test, of another backend or build, runs them all. */
int fewer(void);

/* If set, only tests whose names contain it, or one of its words, are run. */
extern const char *cases_named;

/* Called after each test: NULL, or ref_forget (reference.h). */
extern void (*after_each_test)(void);

/* ---- errors ---------------------------------------------------------------------------------- */

/* Tests compare the code of a failure and the facts of its message, not the sentence.  A fact is a
 * text that every good message about this failure contains: the name of a function, an option, a
 * parameter or a file, a shape, a number.  A fact is found as a whole word ("2" is not in "12",
 * "2.5" or "-2"), and no two facts are found at the same position. */
#define FACTS(...) (const char *const[]){__VA_ARGS__, NULL}

/* True if the text contains all facts; the list ends with NULL.  A fact that is missing is
 * printed. */
bool has_facts(const char *text, const char *const *facts);
#define HAS_FACTS(text, ...) has_facts(text, FACTS(__VA_ARGS__))

/* True if one line of the text contains all facts. */
bool has_line(const char *text, const char *const *facts);
#define HAS_LINE(text, ...) has_line(text, FACTS(__VA_ARGS__))

/* How many lines the text has. */
int lines_of(const char *text);

/* True if the text is the pattern, in which '*' is any text of one line. */
bool is_like(const char *text, const char *pattern);

/* True if the latest failure of this thread has this code and its message contains all facts. */
bool failed_with(int code, const char *const *facts);

/* wb_show prints this text of the object, or the same text of both objects. */
void assert_shows(void *object, const char *text);
void assert_shown_alike(void *a, void *b);

/* The latest failure has this code and these facts: FAILED(WB_ERROR_SHAPE, "matmul"). */
#define FAILED(code, ...)                                                                          \
    do {                                                                                           \
        if (!failed_with(code, FACTS(__VA_ARGS__)))                                                \
            fail_msg("the failure has another code or message: %s", wb_error());                   \
    } while (0)

/* `call` returns NULL, 0 or false, and fails with this code and these facts. */
#define REFUSED(call, code, ...)                                                                   \
    do {                                                                                           \
        wb_clear_error();                                                                          \
        assert_false(call);                                                                        \
        FAILED(code, __VA_ARGS__);                                                                 \
    } while (0)

/* `call` returns this status, and fails with these facts. */
#define FAILS(call, code, ...)                                                                     \
    do {                                                                                           \
        wb_clear_error();                                                                          \
        assert_int_equal(call, code);                                                              \
        FAILED(code, __VA_ARGS__);                                                                 \
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
