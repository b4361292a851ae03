/* The list of a program's tests, and its run: see test.h. */
#include "test.h"

#include "weber.h"

#include <ctype.h>

enum { MOST_TESTS = 100 };

typedef struct {
    const char *name;
    void (*run)(void);
    int at;
    bool scoped;
} test;

static test tests[MOST_TESTS];
static size_t n_tests;

const char *cases_named;
void (*after_each_test)(void);

/* Constructors run in any order: a test goes to its place. */
void add_test(const char *name, void (*run)(void), int at, bool scoped)
{
    size_t i = n_tests++;
    if (n_tests > MOST_TESTS) abort();
    for (; i && tests[i - 1].at > at; i--) tests[i] = tests[i - 1];
    tests[i] = (test){name, run, at, scoped};
}

static void run_case(void **state)
{
    const test *t = *state;
    wb_scope *s = t->scoped ? wb_scope_open() : NULL;
    t->run();
    if (s && wb_scope_close(s)) fail_msg("closing the test's scope: %s", wb_error());
    if (after_each_test) after_each_test();
}

static int run_group(CMFixtureFunction setup, CMFixtureFunction teardown, bool each)
{
    struct CMUnitTest all[MOST_TESTS];
    size_t n = 0;
    for (size_t i = 0; i < n_tests; i++)
        if (!cases_named || strstr(tests[i].name, cases_named))
            all[n++] = (struct CMUnitTest){tests[i].name, run_case, each ? setup : NULL,
                                           each ? teardown : NULL, &tests[i]};
    const int failed = _cmocka_run_group_tests("tests", all, n, each ? NULL : setup,
                                               each ? NULL : teardown);
    wb_shutdown();
    return failed;
}

int run_cases(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    return run_group(setup, teardown, false);
}

int run_cases_each(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    return run_group(setup, teardown, true);
}

/* ---- errors ---------------------------------------------------------------------------------- */

bool says(const char *part)
{
    if (strstr(wb_error(), part)) return true;
    print_message("not in \"%s\": \"%s\"\n", wb_error(), part);
    return false;
}

const char *plain_error(void)
{
    static char text[2048];
    char device[64];
    const wb_device *d = wb_default_device();
    int n = snprintf(device, sizeof device, " %s:%d", wb_device_backend(d), wb_device_ordinal(d));
    for (int i = 0; i < n; i++) device[i] = (char)tolower((unsigned char)device[i]);
    snprintf(text, sizeof text, "%s", wb_error());
    for (char *at; (at = strstr(text, device)) != NULL;) memmove(at, at + n, strlen(at + n) + 1);
    return text;
}
