#include "cmocka.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef enum { OK = 0, FAILED, SKIPPED } outcome;

static jmp_buf end_of_test;
static int running;

static void print(FILE *to, const char *format, va_list list)
{
    vfprintf(to, format, list);
    fflush(to);                         /* before a test can end the process */
}

void print_message(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    print(stdout, format, list);
    va_end(list);
}

void print_error(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    print(stderr, format, list);
    va_end(list);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static _Noreturn void leave(outcome how, const char *file, int line)
{
    print_error("[   LINE   ] --- %s:%d: %s\n", file, line,
                how == FAILED ? "error: Failure!" : "Skipped!");
    if (running) longjmp(end_of_test, (int)how);
    print_error("This is outside of a test.\n");
    fflush(NULL);
    __builtin_trap();
}

void minimal_fail(const char *file, int line) { leave(FAILED, file, line); }
void minimal_skip(const char *file, int line) { leave(SKIPPED, file, line); }

void minimal_true(int holds, const char *text, const char *file, int line)
{
    if (holds) return;
    print_error("ERROR: %s does not hold\n", text);
    minimal_fail(file, line);
}

void minimal_integers(uintmax_t a, uintmax_t b, int equal, const char *file, int line)
{
    if ((a == b) == equal) return;
    print_error("ERROR: 0x%jx %s 0x%jx\n", a, equal ? "!=" : "==", b);
    minimal_fail(file, line);
}

void minimal_range(uintmax_t value, uintmax_t least, uintmax_t most, const char *file, int line)
{
    if (value >= least && value <= most) return;
    print_error("ERROR: %ju is not within the range %ju-%ju\n", value, least, most);
    minimal_fail(file, line);
}

void minimal_floats(double a, double b, double most, const char *file, int line)
{
    if (fabs(a - b) <= most) return;
    print_error("ERROR: %.9g != %.9g\n", a, b);
    minimal_fail(file, line);
}

void minimal_strings(const char *a, const char *b, int equal, const char *file, int line)
{
    if (a && b && (strcmp(a, b) == 0) == equal) return;
    print_error("ERROR: \"%s\" %s \"%s\"\n", a ? a : "(null)",
                equal ? "!=" : "==", b ? b : "(null)");
    minimal_fail(file, line);
}

void minimal_memories(const void *a, const void *b, size_t n, int equal, const char *file, int line)
{
    const unsigned char *x = a, *y = b;
    size_t i = 0;
    while (i < n && x[i] == y[i]) i++;
    if ((i == n) == equal) return;
    if (equal) print_error("ERROR: byte %zu of %zu is 0x%02x and 0x%02x\n", i, n, x[i], y[i]);
    else print_error("ERROR: all of %zu bytes are equal\n", n);
    minimal_fail(file, line);
}

/* ---- running --------------------------------------------------------------------------------- */

static int fixture(CMFixtureFunction f, void **state)
{
    return f && f(state) ? FAILED : OK;
}

/* A fixture that returns a status other than 0, or fails a check, fails its test. */
static outcome run_test(const struct CMUnitTest *t, void **state)
{
    volatile int how = OK, part = 0;
    running = 1;
    const int ended = setjmp(end_of_test);
    if (ended) how = ended;
    while (part < 3) {
        const int now = part++;
        if (now == 0) how = fixture(t->setup_func, state);
        else if (now == 1 && how == OK) t->test_func(state);
        else if (now == 2 && fixture(t->teardown_func, state)) how = FAILED;
    }
    running = 0;
    return (outcome)how;
}

int minimal_run(const char *name, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                CMFixtureFunction teardown)
{
    static const char *const labels[] = {"      OK", " FAILED ", " SKIPPED"};
    void *state = NULL;
    int count[3] = {0};
    print_message("[==========] Running %zu test(s).\n", n);
    if (setup && setup(&state)) {
        print_error("[  FAILED  ] %s: the group's setup failed\n", name);
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        void *own = state ? state : tests[i].initial_state;
        print_message("[ RUN      ] %s\n", tests[i].name);
        const outcome how = run_test(&tests[i], &own);
        count[how]++;
        print_message("[ %s ] %s\n", labels[how], tests[i].name);
    }
    if (teardown && teardown(&state)) {
        print_error("[  FAILED  ] %s: the group's teardown failed\n", name);
        count[FAILED]++;
    }
    print_message("[==========] %zu test(s) run.\n[  PASSED  ] %d test(s).\n", n, count[OK]);
    if (count[SKIPPED]) print_message("[  SKIPPED ] %d test(s), listed below:\n", count[SKIPPED]);
    if (count[FAILED]) print_message("\n %d FAILED TEST(S)\n", count[FAILED]);
    return count[FAILED];
}
